//! The server: godwitd.
