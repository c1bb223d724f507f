//! Submissions of users: one object, or a line of many.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| godwit_service::hear_foreign_submission(data));
