//! Bytes of a control channel as a client reads them.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::reply(data));
