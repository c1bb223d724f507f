//! The transfer service: people submit jobs, agents do them with the client's library.
//!
//! # Map
//! - [`config`]: flags and file; [`serve`]: a process of the service; `tls`: its connections;
//!   [`doctor`]: checks its parts; [`probe`]: whether a process works
//! - [`api`]: what users ask for over HTTP; [`accounts`]: who they are
//! - `web`: the same for people with browsers
//! - [`fts`]: the same in the interface of FTS3
//! - [`gateway`]: agents' polls; [`scheduling`]: the leader, who gives them units
//! - `metrics`: figures of a process for operators; [`traces`]: a submission step by step
//! - `schedules`: submits what is due; `timetable`: when that is
//! - `problem`: errors of requests; `rendered`: parts of answers that are asked for again;
//!   `reports`: of ended jobs
//! - [`agent`]: asks the service for work, does it, reports what became of it
//! - [`store`]: what the service knows, in SQLite or PostgreSQL
//! - `mock`: files that test suites of clients only pretend to have
//! - `foreign`: what fuzz targets do with bytes of users and agents
//! - [`credentials`]: what proves users to endpoints, sealed at rest

pub mod accounts;
pub mod agent;
pub mod api;
pub mod config;
pub mod credentials;
pub mod doctor;
mod error;
#[cfg(any(test, fuzzing))]
mod foreign;
pub mod fts;
pub mod gateway;
mod metrics;
mod mock;
pub mod probe;
mod problem;
mod rendered;
mod reports;
mod schedules;
pub mod scheduling;
pub mod serve;
pub mod store;
mod timetable;
mod tls;
pub mod traces;
mod web;

pub use error::ServiceError;

/// For the fuzz target: a submission of a hostile user.
#[cfg(fuzzing)]
pub fn hear_foreign_submission(bytes: &[u8]) {
    foreign::submission(bytes);
}

/// For the fuzz target: a submission of a hostile client of FTS3.
#[cfg(fuzzing)]
pub fn hear_foreign_fts(bytes: &[u8]) {
    foreign::fts(bytes);
}

/// For the fuzz target: a poll of a hostile agent.
#[cfg(fuzzing)]
pub fn hear_foreign_poll(bytes: &[u8]) {
    foreign::poll(bytes);
}

/// For the fuzz target: a schedule of a hostile user.
#[cfg(fuzzing)]
pub fn hear_foreign_schedule(bytes: &[u8]) {
    foreign::schedule(bytes);
}
