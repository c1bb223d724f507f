//! One line of MLST, MLSD, MLSR or MLSC.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::facts(data));
