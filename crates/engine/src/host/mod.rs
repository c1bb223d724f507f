//! The machine that this process runs on: names and ports, processors, terminal, files of lines,
//! what its kernel knows of TCP connections, and numbers for its monitoring.

pub mod cpu_affinity;
pub mod line_log;
pub mod net;
pub mod prometheus_text;
pub mod tcp_diag;
pub mod terminal;
