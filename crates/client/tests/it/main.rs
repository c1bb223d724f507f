//! The program itself, run against our server in this process and against a scripted one that
//! lacks, refuses and breaks things.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]

mod ambiguous;
mod attributes;
mod between;
mod between_many;
mod between_walls;
mod bucket_conditions;
mod bucket_copies;
mod bucket_faults;
mod bucket_keys;
mod bucket_options;
mod bucket_pages;
mod bucket_roles;
mod bucket_uploads;
mod buckets;
mod classes;
mod closed_ports;
mod conformance;
mod copies;
mod degraded;
mod direct_io;
mod errors;
mod existing;
mod fake;
mod fake_bucket;
mod filters;
mod following;
mod gsi;
mod gsi_data;
mod harness;
mod holes;
mod hostile;
mod hostile_http;
mod hostile_http_answers;
mod https;
mod https_between;
mod https_copy_faults;
mod https_parts;
mod https_tokens;
mod integrity;
mod interposed;
mod interrupted;
mod kept;
mod listed_versions;
mod listings;
mod live;
mod live_requests;
mod manage;
mod many;
mod metrics_file;
mod names;
mod panics;
mod part_servers;
mod plain_resume;
mod proxy;
mod rates;
mod refused_names;
mod relay;
mod renaming;
mod silence;
mod striping;
mod sync;
mod through_client;
mod tls;
mod together;

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
// One reader of the text format for the server and the client.
#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../server/tests/it/scraped.rs"]
mod scraped;
