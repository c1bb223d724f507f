//! One line of another server's LIST.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::list_line(data));
