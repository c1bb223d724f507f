//! Bearer tokens and key sets.
#![no_main]
#![allow(dead_code, clippy::unwrap_used)]

use libfuzzer_sys::fuzz_target;

#[path = "../../crates/gsi/tests/it/grid.rs"]
mod grid;
#[path = "../../crates/gsi/tests/it/pair.rs"]
mod pair;
#[path = "../../crates/gsi/tests/it/parsers.rs"]
mod parsers;
#[path = "../../crates/gsi/tests/it/pki.rs"]
mod pki;

fuzz_target!(|data: &[u8]| parsers::token(data));
