//! The client's interpreter before a server at its worst.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::operations::client_pi(data));
