//! The transfer service: people submit jobs, agents do them with the client's library.
//!
//! # Map
//! - [`credentials`]: what proves users to endpoints, sealed at rest

pub mod credentials;
