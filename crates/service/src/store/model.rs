//! Values that the store takes and gives, where the API has none that fit.

use std::collections::BTreeMap;

use godwit_service_api::{
    agent::{AgentDescription, GrantOptions, Lease, Share, Stop, UnitProgress, Work},
    job::{FileCounts, JobOptions, JobRequest, JobState, Notification},
    site::{EndpointState, Limits, Role},
    why::Why,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// A job as the database has it. What agents report of its pace is in memory elsewhere.
#[derive(Clone, Debug)]
pub struct JobRecord {
    /// Its number in the database; later jobs have higher ones.
    pub number: i64,
    /// Its name for users.
    pub id: Uuid,
    /// Who submitted it.
    pub owner: String,
    /// The schedule of its owner that submitted it.
    pub schedule: Option<String>,
    /// Where it is.
    pub state: JobState,
    /// Of the last change of its state by a person or the service.
    pub reason: Option<String>,
    /// How it is done.
    pub options: JobOptions,
    /// Files by state; directories count only where their listing failed.
    pub files: FileCounts,
    /// Files from this number on wait for their turn, or need none any more.
    pub unused_from: u64,
    /// Bytes of files whose size is known.
    pub bytes_total: u64,
    /// Bytes of finished files.
    pub bytes_done: u64,
    /// Every tree of it has been listed.
    pub listed: bool,
    /// It waits for the end of another job.
    pub waits_for_job: bool,
    /// Files given up, by code of their error.
    pub errors: BTreeMap<String, u64>,
    /// When it was accepted.
    pub created: Timestamp,
    /// When the first agent took something of it.
    pub started: Option<Timestamp>,
    /// When it became final.
    pub ended: Option<Timestamp>,
}

/// A job that is submitted again and again.
#[derive(Clone, Debug)]
pub struct ScheduleRecord {
    /// Its number in the database.
    pub number: i64,
    /// Whose.
    pub owner: String,
    /// Unique among those of its owner.
    pub name: String,
    /// When it is due.
    pub cron: String,
    /// By the clock of this time zone.
    pub zone: String,
    /// What is submitted.
    pub request: JobRequest,
    /// When it is due next; `None`: never.
    pub next: Option<Timestamp>,
    /// The latest job of it.
    pub last_job: Option<Uuid>,
    /// It submits nothing.
    pub paused: bool,
}

/// Which jobs a list holds.
#[derive(Clone, Debug, Default)]
pub struct JobFilter {
    /// Only of this user.
    pub owner: Option<String>,
    /// Only in one of these states; empty: in any.
    pub states: Vec<JobState>,
    /// Only these; empty: all.
    pub ids: Vec<Uuid>,
}

/// Files that wait under the same conditions: of one job, between one pair of endpoints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct QueueKey {
    /// [`JobRecord::number`].
    pub job: i64,
    /// [`LinkRecord::number`].
    pub link: i64,
}

/// A queue with units that wait, for the leader.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueRecord {
    /// Which.
    pub key: QueueKey,
    /// Name of the job for users.
    pub job: Uuid,
    /// Who submitted it.
    pub owner: String,
    /// Endpoint that the files come from.
    pub source: String,
    /// Endpoint that they go to.
    pub destination: String,
    /// Units that an agent could take now.
    pub ready: u64,
    /// Units that wait for `not_before`.
    pub waiting: u64,
    /// Files of both.
    pub files: u64,
    /// Bytes of both, with an assumption for files of unknown size.
    pub bytes: u64,
    /// Files of the unit that is taken next.
    pub next_files: u32,
    /// Bytes of it.
    pub next_bytes: u64,
    /// When the first of those that wait may be taken.
    pub not_before: Option<Timestamp>,
    /// Why nothing of it may be taken: paused, or after another job.
    pub held: Option<Held>,
    /// How the job is done.
    pub options: JobOptions,
    /// When the job was accepted.
    pub created: Timestamp,
    /// Some unit of the job has started.
    pub started: bool,
}

/// Why nothing of a queue may be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Held {
    /// A person or the service paused the job.
    Paused,
    /// The job waits for another.
    AfterJob,
}

/// A unit of this queue for this agent.
#[derive(Clone, Debug)]
pub struct GrantOrder {
    /// Which.
    pub queue: QueueKey,
    /// Name of the agent.
    pub agent: String,
    /// Of its state directory; another takes nothing.
    pub incarnation: Uuid,
    /// What the unit may use.
    pub share: Share,
    /// Most files; what is left of the unit waits as before.
    pub files: u32,
}

/// A unit that an agent holds.
#[derive(Clone, Debug)]
pub struct GrantedUnit {
    /// Name of the agent.
    pub agent: String,
    /// Which.
    pub lease: Lease,
    /// Where it came from.
    pub queue: QueueKey,
    /// Name of the job for users.
    pub job: Uuid,
    /// Who submitted it: whose credentials the agent needs.
    pub owner: String,
    /// What to do.
    pub work: Work,
    /// Bytes of it, with an assumption for files of unknown size.
    pub bytes: u64,
    /// How.
    pub options: GrantOptions,
    /// Agents had its files before.
    pub again: bool,
    /// Results of this grant that were counted.
    pub results: u64,
    /// What it may use.
    pub share: Share,
    /// Where the trace of its job goes on.
    pub trace: Option<String>,
}

/// A unit that is leased, without its files.
#[derive(Clone, Debug)]
pub struct LeasedUnit {
    /// Name of the agent.
    pub agent: String,
    /// Which.
    pub lease: Lease,
    /// Where it came from.
    pub queue: QueueKey,
    /// Files when it was granted.
    pub files: u32,
    /// Bytes when it was granted.
    pub bytes: u64,
    /// Name of the job for users.
    pub job: Uuid,
    /// Who submitted it.
    pub owner: String,
    /// What it may use.
    pub share: Share,
}

/// What a poll changed, and what its answer must say.
#[derive(Clone, Debug, Default)]
pub struct Polled {
    /// Results that need not be repeated.
    pub acknowledged: Vec<(Lease, u64)>,
    /// Units that the agent must stop.
    pub stop: Vec<Stop>,
    /// Units that it holds and does not know of: an earlier answer was lost.
    pub undelivered: Vec<GrantedUnit>,
    /// What its units may use.
    pub shares: Vec<(Lease, Share)>,
    /// Jobs with new events.
    pub changed: Vec<Uuid>,
    /// Units became ready: retries, listings, or what an agent gave back.
    pub more_work: bool,
    /// What became of files.
    pub tally: Tally,
    /// The same by pair of endpoints.
    pub links: BTreeMap<i64, LinkTally>,
    /// It gets no new work.
    pub drain: bool,
    /// Temporary files that it is to remove.
    pub remove: Vec<Leftover>,
}

/// What one transaction did to files, for the metrics.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Complete at their destination.
    pub finished: u64,
    /// There already.
    pub skipped: u64,
    /// Given up.
    pub failed: u64,
    /// Bytes of files that are complete.
    pub bytes: u64,
    /// Attempts that failed, by the code of their error.
    pub errors: BTreeMap<String, u64>,
}

/// A temporary file that nothing writes any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Leftover {
    /// Names it.
    pub id: i64,
    /// Whose credentials remove it.
    pub owner: String,
    /// Where it is.
    pub url: String,
    /// What agents know it by, where it is an upload to a bucket.
    pub upload: Option<String>,
}

/// The right to write as the leader.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leadership {
    /// Every write carries it; a later leader has a higher one.
    pub epoch: i64,
}

/// A lease that ended without the agent.
#[derive(Clone, Debug)]
pub struct LostUnit {
    /// Which.
    pub lease: Lease,
    /// Where it went back to.
    pub queue: QueueKey,
    /// Name of the agent.
    pub agent: String,
}

/// An agent as the database has it.
#[derive(Clone, Debug)]
pub struct AgentRecord {
    /// Its number in the database.
    pub number: i64,
    /// Unique.
    pub name: String,
    /// Of its state directory.
    pub incarnation: Uuid,
    /// What it says of itself.
    pub description: AgentDescription,
    /// Its lease has not ended.
    pub alive: bool,
    /// It gets no new work.
    pub draining: bool,
    /// Units that it holds.
    pub units: u32,
    /// Its last poll.
    pub seen: Timestamp,
    /// What that poll said.
    pub report: AgentReport,
}

/// What an agent says of itself with each poll.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct AgentReport {
    /// Units that it could take.
    pub free_slots: u32,
    /// Units that it has.
    pub units: Vec<UnitProgress>,
}

/// What the leader says of a job.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobNow {
    /// Why it waits or is slow.
    pub why: Vec<Why>,
    /// Bytes safe at the destination that no result has counted.
    pub bytes: u64,
    /// Bytes a second.
    pub goodput: f64,
    /// With what.
    pub pace: Pace,
}

/// Sessions and data channels of units that run, over all agents.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pace {
    /// Units.
    pub units: u32,
    /// Sessions in use, as agents report.
    pub sessions: u32,
    /// Data channels in use, as agents report.
    pub channels: u32,
    /// Data channels that the service lets them use.
    pub allowed: u32,
    /// What holds most of the units back, as agents report.
    pub limited_by: Option<String>,
}

/// What the leader says of a pair of endpoints.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct LinkNow {
    /// Files that no agent has.
    pub waiting_files: u64,
    /// Bytes of these, with an assumption for files of unknown size.
    pub waiting_bytes: u64,
    /// Bytes a second.
    pub goodput: f64,
    /// With what.
    pub pace: Pace,
}

/// Files between a pair of endpoints that ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkTally {
    /// Complete at their destination.
    pub finished: u64,
    /// Given up.
    pub failed: u64,
    /// Bytes of files that are complete.
    pub bytes: u64,
}

/// An endpoint that an operator has set, or that a job named.
#[derive(Clone, Debug, PartialEq)]
pub struct EndpointRecord {
    /// `scheme://host:port`.
    pub name: String,
    /// By an operator.
    pub state: EndpointState,
    /// By an operator.
    pub limits: Limits,
}

/// A pair of endpoints.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkRecord {
    /// Its number in the database.
    pub number: i64,
    /// Endpoint.
    pub source: String,
    /// Endpoint.
    pub destination: String,
    /// By an operator.
    pub limits: Limits,
}

/// What running units between a pair of endpoints use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkUse {
    /// Endpoint.
    pub source: String,
    /// Endpoint.
    pub destination: String,
    /// Units.
    pub units: u64,
    /// Control sessions of all.
    pub sessions: u64,
    /// Most data channels of a session.
    pub parallelism: u64,
}

/// A node of the tree of shares.
#[derive(Clone, Debug, PartialEq)]
pub struct ShareRecord {
    /// `organisation/group/user`.
    pub path: String,
    /// Among its siblings.
    pub weight: f64,
}

/// Somebody who may use the service.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PrincipalRecord {
    /// Unique; owner of jobs.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Groups whose jobs a group admin sees.
    pub groups: Vec<String>,
    /// In the form of argon2, where they log in by password.
    pub password_hash: Option<String>,
    /// Names that other systems know them by: `dn:...`, `oidc:issuer#subject`.
    pub identities: Vec<String>,
    /// They are refused.
    pub disabled: bool,
    /// Jobs that are not final; `None`: no limit.
    pub max_jobs: Option<u64>,
    /// Files of jobs that are not final; `None`: no limit.
    pub max_files: Option<u64>,
}

/// A token for the API. Only its hash is known.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenRecord {
    /// Names it.
    pub id: Uuid,
    /// Whose.
    pub principal: String,
    /// SHA-256 of the token.
    pub hash: Vec<u8>,
    /// What it is for, by its owner.
    pub label: String,
    /// When it was made.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

/// What a user has shown to begin a session. The session ends with it.
#[derive(Clone, PartialEq, Eq)]
pub enum SessionProof {
    /// An API token: SHA-256 of it.
    Token(Vec<u8>),
    /// A name that another system knows the user by.
    Identity(String),
    /// The password: its hash as the database has it.
    Password(String),
}

impl std::fmt::Debug for SessionProof {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            SessionProof::Token(_) => "Token(..)",
            SessionProof::Identity(_) => "Identity(..)",
            SessionProof::Password(_) => "Password(..)",
        })
    }
}

/// A credential; its secret is sealed by a key outside the database.
#[derive(Clone, PartialEq)]
pub struct CredentialRecord {
    /// Names it.
    pub id: Uuid,
    /// Whose.
    pub owner: String,
    /// Pattern of endpoints that it is for.
    pub endpoint: String,
    /// `proxy`, `token`, `password` ...
    pub kind: String,
    /// The secret, encrypted.
    pub sealed: Vec<u8>,
    /// When it ends.
    pub expires: Option<Timestamp>,
    /// When it was stored.
    pub created: Timestamp,
}

impl std::fmt::Debug for CredentialRecord {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "CredentialRecord({} {} {})",
            self.id, self.kind, self.endpoint
        )
    }
}

/// A report of an ended job that is to be sent.
#[derive(Clone, Debug, PartialEq)]
pub struct WaitingReport {
    /// Which.
    pub number: i64,
    /// The job.
    pub job: Uuid,
    /// Where to.
    pub to: Notification,
    /// Attempts, this one included.
    pub attempts: u32,
}

/// Until when a credential is good.
#[derive(Clone, Debug, PartialEq)]
pub struct CredentialEnd {
    /// Whose.
    pub owner: String,
    /// Pattern of endpoints that it is for.
    pub endpoint: String,
    /// When it was stored.
    pub created: Timestamp,
    /// When it ends.
    pub expires: Option<Timestamp>,
}

/// Who did what.
#[derive(Clone, Debug, PartialEq)]
pub struct AuditRecord {
    /// Rises.
    pub number: i64,
    /// By the clock of the database.
    pub at: Timestamp,
    /// Name of the principal.
    pub who: String,
    /// E.g. `job.cancel`.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// One line, no secrets.
    pub detail: String,
}

/// How long things are kept after their end.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Files of final jobs.
    pub files_days: u32,
    /// Events.
    pub events_days: u32,
    /// The summary of a job, and the audit.
    pub history_days: u32,
}

impl Default for Retention {
    fn default() -> Self {
        Retention {
            files_days: 30,
            events_days: 30,
            history_days: 365,
        }
    }
}

/// What one run of the maintenance did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Maintained {
    /// Final jobs that moved to the history.
    pub jobs: u64,
    /// Submissions that broke off and were removed.
    pub submissions: u64,
    /// Jobs whose deadline passed.
    pub deadlines: u64,
}
