//! Bytes: control channels, movers, data channels, storage.
