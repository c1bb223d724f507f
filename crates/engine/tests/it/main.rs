//! The engine from outside.
#![allow(clippy::unwrap_used, reason = "in a test a panic is the report")]

mod capture;
mod control_protection;
mod data;
mod data_direct;
mod data_follow;
mod data_holes;
mod data_kernel;
mod data_live;
mod data_peer;
mod data_protected;
mod data_queue;
mod data_ranges;
mod data_refused;
mod data_stripes;
mod data_tls;
mod storage;
mod storage_confinement;
mod storage_faults;
mod storage_listing;

// Certificates for tests are made in one place.
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/grid.rs"]
mod grid;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/pair.rs"]
mod pair;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/pki.rs"]
mod pki;
