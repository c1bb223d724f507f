//! Requests for S3.
#![no_main]

use libfuzzer_sys::fuzz_target;

#[allow(dead_code)]
#[path = "../../crates/http/tests/it/parsers.rs"]
mod parsers;

fuzz_target!(|data: &[u8]| parsers::s3_requests(data));
