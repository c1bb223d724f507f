//! Cron expressions and time zones of schedules.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| godwit_service::hear_foreign_schedule(data));
