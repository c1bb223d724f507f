//! The parts of the service together, with servers of ours and real agents.

#![allow(clippy::unwrap_used, reason = "a panic fails the test")]
#![allow(clippy::print_stderr, reason = "a skip is printed")]

mod account_pages;
mod accounts;
mod agents;
mod api;
mod backup;
mod browser;
mod browsing;
mod buckets;
#[allow(
    dead_code,
    unreachable_pub,
    reason = "the lab uses the rest, and from elsewhere"
)]
#[path = "../../../lab/src/chromium.rs"]
mod chromium;
mod collector;
mod commands;
mod delegation;
mod divided;
mod failures;
#[allow(dead_code, reason = "the suite of the store uses the rest")]
#[path = "../store/fixture.rs"]
mod fixture;
mod fts;
mod harness;
mod https;
mod issued;
mod login;
mod mail;
mod metrics;
mod pages;
#[allow(dead_code, reason = "other suites use the rest")]
#[path = "../../../gsi/tests/it/pki.rs"]
mod pki;
mod previews;
mod programs;
mod reference;
mod renewal;
#[allow(dead_code, reason = "the suite of the server uses the rest")]
#[path = "../../../server/tests/it/scraped.rs"]
mod scraped;
mod secrets;
mod site;
#[allow(dead_code, reason = "the suite of tokens uses the rest")]
#[path = "../../../gsi/tests/it/issuer.rs"]
mod tokens;
mod traces;
mod web;
mod web_browser;
mod web_issuer;
mod web_login;
mod web_text;
mod webhooks;
