//! Messages of the other end of a node link.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| godwit_server::hear_node_message(data));
