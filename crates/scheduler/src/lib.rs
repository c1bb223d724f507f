//! Who gets what.
