//! The server, driven over real sockets by a client that says exactly what a test tells it to say.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod abandoned;
mod abort;
mod activation;
mod audit;
mod block_mode;
mod client;
mod control;
mod durability;
mod gsi;
mod half_open;
mod harness;
mod hostile;
mod hostile_children;
mod https;
mod https_copies;
mod https_copy_cases;
mod https_hostile;
mod https_issued;
mod https_parts;
mod https_records;
mod https_smuggling;
mod lifecycle;
mod listings;
mod live;
mod metrics;
mod nodes;
mod pipelined;
mod policy;
mod privsep;
mod program;
mod reaping;
mod s3;
mod s3_peers;
mod scraped;
mod separated_logins;
mod separated_paths;
mod shares;
mod ssh;
mod storage_failures;
mod stream_mode;
mod striping;
mod striping_programs;
mod striping_security;
mod striping_separated;
mod tls;

#[path = "../../../engine/tests/it/capture.rs"]
mod capture;

// Certificates for tests are made in one place.
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/grid.rs"]
mod grid;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/issuer.rs"]
mod issuer;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/pki.rs"]
mod pki;
