//! The program itself, run against our server in this process and against a scripted one that lacks, refuses and breaks things.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod asides;
mod copies;
mod degraded;
mod errors;
mod fake;
mod harness;
mod live;
mod manage;
mod many;
mod rates;
mod together;
