//! The client: godwit.
