//! The transfer service.
