//! A method: the client and server programs and their settings.

use serde::{Deserialize, Serialize};

use super::super::quantity::{Size, Time};

/// A client and a server, how they are set, and how many of them there are.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Method {
    /// Short name, for `--only` and raw data.
    pub name: String,
    /// What figures call it.
    pub label: String,
    /// The program that gets the transfer as arguments.
    pub client: Client,
    /// The program that serves.
    pub server: Server,
    /// Which way. Default `get`.
    #[serde(default)]
    pub direction: Direction,
    /// Parallel channels, instead of the axis of the sweep.
    #[serde(default)]
    pub channels: Option<u32>,
    /// Channels of each mover (of each process, where a client has one mover): N channels are
    /// N / `parallelism` movers. Default: all channels in one mover. Beside `tuner`: what the tuner
    /// must leave alone.
    #[serde(default)]
    pub parallelism: Option<u32>,
    /// `godwit --tuner`: `apt:n0=4`. Then only the tuner chooses the channels, and the method runs
    /// for [`super::RunSpec::evolve`].
    #[serde(default)]
    pub tuner: Option<String>,
    /// `godwit --epoch`. Default: the program's.
    #[serde(default)]
    pub epoch: Option<Time>,
    /// `godwit --epoch-mode`. Default: the program's.
    #[serde(default)]
    pub epoch_mode: Option<EpochMode>,
    /// `godwit --max-channels` beside `tuner`. Default: the program's.
    #[serde(default)]
    pub max_channels: Option<u32>,
    /// Transfers at once, each between hosts of its own. Default 1.
    #[serde(default = "Method::one")]
    pub transfers: u32,
    /// How much later each of them starts than the one before. Default: all at once.
    #[serde(default)]
    pub stagger: Option<Time>,
    /// Whether transfers over the same path may find each other and share one tuner, as those of
    /// one user on one machine do. Default: no, as if they were of different users.
    #[serde(default)]
    pub one_user: bool,
    /// Both ends prove who they are (GSI), and data channels have this at least. Default: neither,
    /// as anybody.
    #[serde(default)]
    pub protect: Option<Protect>,
    /// More arguments of the client, as it has them: `["-fast", "-pp"]`.
    #[serde(default)]
    pub arguments: Vec<String>,
    /// Socket buffer asked for at both ends. Default: left to the kernel.
    #[serde(default)]
    pub tcp_buffer: Option<Size>,
    /// Runs of every cell. Default: those of the scenario.
    #[serde(default)]
    pub repeats: Option<u32>,
}

impl Method {
    fn one() -> u32 {
        1
    }

    /// Whether the program chooses its own number of channels.
    pub fn is_tuned(&self) -> bool {
        self.tuner.is_some()
    }

    /// When transfer `index`, from 0, starts: s after the first data of the first.
    pub fn start_of(&self, index: usize) -> f64 {
        #[allow(clippy::cast_precision_loss, reason = "transfers are few")]
        self.stagger.map_or(0.0, |stagger| stagger.0 * index as f64)
    }

    /// Whether both move data with the same programs the same way: then one with a fixed number of
    /// channels is what the other is held against.
    pub fn is_kin(&self, other: &Method) -> bool {
        let kind = |method: &Method| {
            let ends = (method.client, method.server, method.direction);
            (ends, method.tcp_buffer, method.protect)
        };
        kind(self) == kind(other)
    }
}

/// Which way data goes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Direction {
    /// From the server to the client.
    #[default]
    Get,
    /// From the client to the server.
    Put,
    /// From server to server, started by a client elsewhere.
    ThirdParty,
}

/// What protects data channels between users of a grid.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Protect {
    /// Both ends have proven who they are; data travels as it is.
    Identity,
    /// And no third party can change it.
    Integrity,
    /// And no third party can read it.
    Private,
}

impl Protect {
    /// As our command line has it.
    pub fn name(self) -> &'static str {
        match self {
            Protect::Identity => "identity",
            Protect::Integrity => "integrity",
            Protect::Private => "private",
        }
    }

    /// As `globus-url-copy` has it; nothing for what it does by itself.
    pub fn of_url_copy(self) -> Option<&'static str> {
        match self {
            Protect::Identity => None,
            Protect::Integrity => Some("-dcsafe"),
            Protect::Private => Some("-dcpriv"),
        }
    }
}

/// How a control epoch is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EpochMode {
    /// Data never stops.
    Live,
    /// Everything stops between epochs, as published.
    Restart,
}

impl EpochMode {
    /// As the command line has it.
    pub fn name(self) -> &'static str {
        match self {
            EpochMode::Live => "live",
            EpochMode::Restart => "restart",
        }
    }
}

/// Programs that get transfers as arguments.
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
    /// BSD's `ftp`: one channel in stream mode.
    Tnftp,
    /// One channel in stream mode.
    Ncftp,
    /// No FTP: one connection of ssh.
    Scp,
    /// One or more control connections, each with one channel in stream mode.
    Lftp,
    /// The same, over FTP or WebDAV.
    Rclone,
    /// One connection of HTTP for each file.
    Davix,
    /// Some connections of HTTP for one file, or sessions of FTP.
    Aria2,
    /// The transfer manager of Python's library for buckets.
    Boto3,
    /// No protocol: `tar` at both ends of one TCP connection, which `nc` makes.
    Tar,
}

/// Programs that serve.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Server {
    /// Ours.
    Godwitd,
    /// The same, for clients of HTTPS and WebDAV.
    GodwitdHttps,
    /// The Grid Community Toolkit's.
    GlobusGridftpServer,
    /// Buckets, which are the directories of [`super::Work::files`].
    Versitygw,
    /// For `scp` only.
    Sshd,
    /// For the client of that name only.
    Iperf3,
    /// For the client of that name only.
    Tar,
}
