//! Bytes received against time.

/// How much had arrived when: a line of `samples.csv`.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sample {
    /// Which transfer, from 0; other TCP connections come after the last.
    pub transfer: u32,
    /// Since the start of the first client, s.
    pub seconds: f64,
    /// Payload received so far, bytes.
    pub bytes: u64,
    /// Connections that are there and have received data.
    pub channels: u32,
}
