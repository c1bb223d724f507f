//! The machine that this process runs on: names and ports, processors, terminal, what its kernel
//! knows of TCP connections, and numbers for its monitoring.

pub mod cpu_affinity;
pub mod net;
pub mod prometheus_text;
pub mod tcp_diag;
pub mod terminal;
