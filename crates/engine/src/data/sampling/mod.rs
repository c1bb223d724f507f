//! What a transfer measures of itself while it runs: bytes, TCP's counters, the time of movers.

pub(crate) mod batch;
pub(crate) mod cpu_time;
pub(crate) mod kernel_sampler;
pub(crate) mod report;
pub(crate) mod sample;
pub(crate) mod tcp_tally;
