//! What goes in and comes out: configuration, agents, queues, leases and grants.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

/// What a file costs beyond its bytes, in bytes: opening, checking and closing it.
pub const FILE_COST: u64 = 2 << 20;

/// Scheme, host and port of URLs, e.g. `gsiftp://dtn.example.org:2811`.
pub type EndpointName = Arc<str>;

/// All that the operator decides. [`crate::Scheduler::configure`] takes it whole.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Config {
    /// By path, `organisation/group/user`. A path that is not named has weight 1 and no limits.
    pub shares: BTreeMap<String, ShareConfig>,
    /// An endpoint that is not named is open and has no limits.
    pub endpoints: BTreeMap<EndpointName, EndpointConfig>,
    /// By source and destination.
    pub links: BTreeMap<(EndpointName, EndpointName), Limits>,
    /// Most units at a time of all agents of a host.
    pub hosts: BTreeMap<String, u32>,
    /// How sums of channels are tuned.
    pub tuning: Tuning,
}

/// A node of the tree of shares.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ShareConfig {
    /// Among its siblings; what is not a positive number counts as 1.
    pub weight: f64,
    /// Most units that run at a time for it and all below it.
    pub units: Option<u32>,
    /// Most bytes of units that run at a time; one unit may always run.
    pub bytes: Option<u64>,
}

impl Default for ShareConfig {
    fn default() -> Self {
        Self {
            weight: 1.0,
            units: None,
            bytes: None,
        }
    }
}

/// What an endpoint takes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct EndpointConfig {
    /// Whether it takes anything.
    pub state: EndpointState,
    /// Over all agents and jobs, as source and as destination together.
    pub limits: Limits,
}

/// Whether an endpoint takes work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndpointState {
    /// It does.
    #[default]
    Open,
    /// Running units continue; none starts.
    Draining,
    /// Nothing may run. The caller stops what does.
    Banned,
    /// It does not answer: one unit at a time tries it.
    Down,
}

/// Limits of an endpoint or of a link; `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Limits {
    /// Control sessions at a time.
    pub sessions: Option<u32>,
    /// Data channels at a time.
    pub channels: Option<u32>,
    /// Bytes a second, as a mean: a unit starts when those before it have had their time.
    pub bytes_per_second: Option<u64>,
    /// Files a second, as a mean in the same way.
    pub files_per_second: Option<u32>,
}

/// How sums of channels are tuned.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tuning {
    /// Most channels of the leases of an endpoint where it has no limit of its own.
    pub channels_max: u32,
    /// Shortest time between two decisions about one sum.
    pub epoch: Duration,
    /// Time after a change in which reports do not count.
    pub settle: Duration,
}

impl Default for Tuning {
    fn default() -> Self {
        Self {
            channels_max: 256,
            epoch: Duration::from_secs(10),
            settle: Duration::from_secs(5),
        }
    }
}

/// An agent that is alive.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentState {
    /// Of its host; agents of one host share its budget.
    pub host: String,
    /// A queue may ask for some.
    pub labels: Vec<String>,
    /// Endpoints that it reaches, as patterns in which `*` stands for any text.
    pub endpoints: Vec<String>,
    /// Units that it can hold.
    pub slots: u32,
    /// Units that it could take more, as it says.
    pub free: u32,
    /// It gets no new work.
    pub draining: bool,
}

/// A queue: the units of one job between one pair of endpoints.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// The number of the job's UUID.
    pub job: u128,
    /// Where its bytes come from.
    pub source: EndpointName,
    /// Where they go.
    pub destination: EndpointName,
}

/// What waits in a queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QueueState {
    /// Units that could start.
    pub ready: u32,
    /// Bytes of the next unit.
    pub unit_bytes: u64,
    /// Files of the next unit.
    pub unit_files: u32,
    /// Bytes of all units that could start.
    pub ready_bytes: u64,
    /// Files of all units that could start.
    pub ready_files: u64,
    /// Path of the share that pays, `organisation/group/user`.
    pub share: String,
    /// What it may take from others.
    pub class: Class,
    /// 1 (last) to 5 (first) among the jobs of its share.
    pub priority: u8,
    /// When the job was accepted.
    pub created: Duration,
    /// When the job must be done.
    pub deadline: Option<Duration>,
    /// Agents must have all of them.
    pub labels: Vec<String>,
    /// Nothing of it may start, whatever is free.
    pub hold: Option<Hold>,
    /// Nothing of it may start before.
    pub not_before: Option<Duration>,
    /// Some unit of the job has started, in this queue or another.
    pub started_any: bool,
}

/// Classes of service.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// Twice the weight.
    Urgent,
    /// By its share.
    #[default]
    Normal,
    /// Only what others leave.
    Scavenger,
}

/// Why nothing of a queue may start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Hold {
    /// By the user or an operator.
    Paused,
    /// A credential has expired or is missing.
    Credential,
    /// It waits for another job.
    AfterJob,
}

/// Sessions and channels that a unit may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Share {
    /// Sessions with data channels, at least 1.
    pub concurrency: u32,
    /// Data channels of each, at least 1.
    pub parallelism: u32,
}

impl Share {
    /// All data channels.
    pub const fn channels(self) -> u32 {
        self.concurrency.saturating_mul(self.parallelism)
    }
}

/// A running unit, by the scheduler's own number. The caller keeps which unit and epoch it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LeaseId(pub u64);

/// The next unit of a queue goes to an agent. It counts as running from here on; a caller that
/// cannot start it says so with [`crate::Scheduler::lease_ended`] of nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// What the scheduler calls the running unit.
    pub lease: LeaseId,
    /// Whose next unit.
    pub queue: QueueKey,
    /// To whom.
    pub agent: String,
    /// With so much to begin with.
    pub share: Share,
    /// The first files of the unit, at most so many; the rest waits as the next unit.
    pub files: u32,
}

/// A unit that runs already when the scheduler starts.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedLease {
    /// Whose unit.
    pub queue: QueueKey,
    /// Path of the share that pays.
    pub path: String,
    /// Of its job.
    pub class: Class,
    /// Who has it.
    pub agent: String,
    /// What it may use.
    pub share: Share,
    /// Bytes of the unit.
    pub bytes: u64,
    /// Files of the unit.
    pub files: u32,
}

/// What an agent says of a running unit, every few seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct LeaseReport {
    /// Bytes a second.
    pub goodput: f64,
    /// What it uses.
    pub setting: Share,
    /// What held it back, as in the client's event log.
    pub limited_by: Option<String>,
}
