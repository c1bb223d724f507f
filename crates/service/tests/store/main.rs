//! The store, in both engines: one suite of claims that each of them must meet.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![allow(clippy::print_stderr, reason = "a skip is printed")]

mod browsers;
mod browsing;
mod divided;
mod fixture;
mod jobs;
mod marks;
mod order;
mod people;
mod reports;
mod schedules;
mod site;
mod support;
mod units;
mod upgrade;
