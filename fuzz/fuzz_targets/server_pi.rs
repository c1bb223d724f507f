//! The server's interpreter between a client and a shell, both at their worst.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/support/mod.rs"]
mod support;

fuzz_target!(|data: &[u8]| support::operations::server_pi(data));
