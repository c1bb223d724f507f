//! Messages between processes of a server with privileges apart.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| godwit_server::hear_foreign_message(data));
