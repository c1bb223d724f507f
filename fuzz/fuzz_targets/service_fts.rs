//! Submissions of clients of FTS3.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| godwit_service::hear_foreign_fts(data));
