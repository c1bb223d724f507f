//! Whole transfers between real programs: ours and the peers'. Which requirement each test stands
//! for: `docs/spec/conformance.md`. And emulated networks on a real kernel, which need root and TUN
//! devices and print a skip elsewhere.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "in a test a panic is the report"
)]

mod support;

mod addresses;
mod anybody;
mod between;
mod campaign;
mod client;
mod client_failures;
mod client_many;
mod compatibility;
mod congestion;
mod control;
mod credentials;
mod error_texts;
mod faults;
mod ftpes;
mod fts_clients;
mod fts_https;
mod gct_settings;
mod gfal;
mod gsi_client;
mod gsi_others;
mod gsi_server;
mod guc;
mod https_peers;
mod https_third_party;
mod integrity;
mod kills;
mod leftovers;
mod listings;
mod netns;
mod pictures;
mod plain_ftp;
mod plain_resume;
mod power;
mod refused_names;
mod restart;
mod s3_services;
mod scenario;
mod service_links;
mod service_load;
mod service_servers;
mod service_shares;
mod soak;
mod sshftp;
mod striping;
mod striping_faults;
mod sync;
mod terminal;
mod third_party;
mod two_authorities;
mod url_copy;
mod webdav_servers;
mod whole;

// Certificates for tests are made in one place.
#[path = "../../../gsi/tests/it/bad/mod.rs"]
mod bad;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/grid.rs"]
mod grid;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/issuer.rs"]
mod issuer;
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../gsi/tests/it/pki.rs"]
mod pki;
// And what spoils bytes.
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../client/tests/it/relay.rs"]
mod relay;
