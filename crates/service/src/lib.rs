//! The transfer service: people submit jobs, agents do them with the client's library.
//!
//! # Map
//! - [`agent`]: asks the service for work, does it, reports what became of it
//! - [`store`]: what the service knows, in SQLite or PostgreSQL
//! - [`credentials`]: what proves users to endpoints, sealed at rest

pub mod agent;
pub mod credentials;
pub mod store;
