//! Headers of MODE E on several channels.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/proto/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::mode_e_receiver(data));
