//! What the transfer service, its agents and its clients say to each other, as values.
//!
//! # Map
//! - [`job`]: what users submit, and what they see of it; [`why`]: why something waits
//! - [`problem`]: errors of the API (RFC 9457); [`page`]: lists in pages by cursor
//! - [`browse`]: directories of endpoints; [`preview`]: what a job would copy
//! - [`schedule`]: jobs that are submitted again and again
//! - [`event`]: what the event stream of a job carries
//! - [`site`]: endpoints, agents, shares and users, as operators see them
//! - [`account`]: users, their tokens and credentials
//! - [`agent`]: the lease protocol between the service and its agents
//!
//! Everything here is data: no I/O, no clock. Unknown fields of requests are errors, so that a
//! misspelt option is never ignored; unknown fields of answers are skipped, so that an older client
//! reads a newer service.

pub mod account;
pub mod agent;
pub mod browse;
pub mod event;
pub mod job;
pub mod page;
pub mod preview;
pub mod problem;
pub mod schedule;
pub mod site;
pub mod why;

/// Prefix of the API for users.
pub const API: &str = "/api/v1";

/// Prefix of the lease protocol.
pub const AGENT_API: &str = "/agent/v1";

/// Header of a submission that may be repeated: the same key gives the same job.
pub const IDEMPOTENCY_KEY: &str = "idempotency-key";

/// Port of the service, for users and agents.
pub const DEFAULT_PORT: u16 = 8447;
