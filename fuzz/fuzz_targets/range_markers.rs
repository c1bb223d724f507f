//! A set of ranges, and what a 111 says of it.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::range_markers(data));
