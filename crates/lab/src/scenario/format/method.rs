//! Who moves the data.

use serde::{Deserialize, Serialize};

use super::super::quantity::Size;

/// A client and the server it fetches from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Short name, for `--only` and raw data.
    pub name: String,
    /// What figures call it.
    pub label: String,
    /// The program that fetches.
    pub client: Client,
    /// The program that serves.
    pub server: Server,
    /// Parallel channels, instead of the axis of the sweep.
    #[serde(default)]
    pub channels: Option<u32>,
    /// Socket buffer asked for at both ends. Default: left to the kernel.
    #[serde(default)]
    pub tcp_buffer: Option<Size>,
}

/// Programs that fetch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Client {
    /// Ours.
    Godwit,
    /// The Grid Community Toolkit's.
    GlobusUrlCopy,
    /// No file transfer, only TCP.
    Iperf3,
    /// One channel in stream mode.
    Curl,
    /// One or more control connections, each with one channel in stream mode.
    Lftp,
}

/// Programs that serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Ours.
    Godwitd,
    /// The Grid Community Toolkit's.
    GlobusGridftpServer,
    /// For the client of that name only.
    Iperf3,
}
