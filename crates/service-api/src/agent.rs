//! The lease protocol: agents ask for work by long poll, report and renew with the same request.
//!
//! A *unit* is what an agent takes at once: files of one job between one pair of endpoints, or a
//! directory to list. An agent holds its units by one lease of its own, which every poll renews.
//! The service counts the lease by the clock of the database from receiving the poll, the agent by
//! its monotonic clock from sending it, so the agent stops first. Every grant carries an *epoch*,
//! which rises with each grant of the unit; a result with an older epoch is refused.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{
    browse::{BrowseRequest, BrowsedDirectory},
    job::{Class, FileError, FileRequest, Overwrite, Verify},
    preview::{JobPreview, PreviewQuestion},
};

/// Version of this protocol. The service accepts no other: an agent must know each kind of work.
pub const PROTOCOL: u32 = 2;

/// Seconds that a lease lasts.
pub const LEASE_SECONDS: u64 = 60;

/// An agent stops writing so many seconds before its lease ends.
pub const SAFETY_SECONDS: u64 = 10;

/// Longest wait of a poll, in seconds.
pub const POLL_SECONDS: u64 = 20;

/// Most files of a unit.
pub const MAX_UNIT_FILES: usize = 1000;

/// `POST /agent/v1/poll`.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PollRequest {
    /// [`PROTOCOL`].
    pub protocol: u32,
    /// Unique among the agents of the service.
    pub agent: String,
    /// Made when the agent's state directory was made: a second process of the same name with
    /// another directory is refused while the first is alive.
    pub incarnation: Uuid,
    /// Rises with each poll, over restarts of the agent too; an older one than the last is refused
    /// while the lease lasts.
    pub sequence: u64,
    /// What it is.
    pub description: AgentDescription,
    /// Units that it could take now.
    pub free_slots: u32,
    /// All units that it holds, and those whose last result is not acknowledged. What it has by the
    /// service's books and is not named here is granted again, as the same grant: an answer was
    /// lost, or the agent was started again.
    pub units: Vec<UnitProgress>,
    /// Units that ended, and parts of units. They are repeated until an answer acknowledges them.
    pub results: Vec<UnitResult>,
    /// Of the last answer that had one: credentials that were stored since are not known here.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub renewed: Option<Timestamp>,
    /// Temporary files that it was asked to remove, and that are gone.
    #[serde(default)]
    pub removed: Vec<i64>,
    /// Directories that it lists for users: each [`Browse::id`].
    #[serde(default)]
    pub browses: Vec<Uuid>,
    /// Seconds that the service may hold the answer back while there is no work.
    pub wait_seconds: u64,
}

/// What an agent is and can reach.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentDescription {
    /// Of its program.
    pub version: String,
    /// Of its host; agents of one host share its budgets.
    pub host: String,
    /// Jobs can ask for them.
    pub labels: Vec<String>,
    /// Endpoints that it may reach, as patterns with `*` over `scheme://host:port`.
    pub endpoints: Vec<String>,
    /// Units at a time.
    pub slots: u32,
    /// It sends ranges of a file to an upload in parts that another agent has begun.
    #[serde(default)]
    pub joins_uploads: bool,
}

/// Code of the error of a unit that an agent's process died with, time after time.
pub const POISON: &str = "poison";

/// Code of the error of a unit that an agent hands back: it goes to an agent again as if it had not
/// been granted. Without it, the last result of a unit that lists says that the list is complete.
pub const HANDED_BACK: &str = "handed_back";

/// Names a grant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Lease {
    /// The unit.
    pub unit: i64,
    /// Of the grant.
    pub epoch: i64,
}

/// How a unit does.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnitProgress {
    /// Which.
    pub lease: Lease,
    /// Bytes safe at the destination since the grant.
    pub bytes: u64,
    /// Those of them that are of files which have not ended: results do not tell these.
    #[serde(default)]
    pub open_bytes: u64,
    /// Files that ended since the grant.
    pub files: u64,
    /// Bytes a second over the last control epoch.
    pub goodput: f64,
    /// Movers and channels in use.
    pub setting: Share,
    /// What held it back, as in the client's event log.
    pub limited_by: Option<String>,
}

/// What a unit may use; the sum over an endpoint is what the service tunes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Share {
    /// Sessions with data channels, at least 1.
    pub concurrency: u32,
    /// Data channels of each, at least 1.
    pub parallelism: u32,
}

/// What became of a unit, or of some of its files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnitResult {
    /// Which.
    pub lease: Lease,
    /// Number of this result, from 0 for each grant.
    pub sequence: u64,
    /// Files that ended.
    pub files: Vec<FileOutcome>,
    /// Of a unit that lists: what it found, at most [`MAX_UNIT_FILES`] a result.
    pub found: Vec<FoundFile>,
    /// No more of this grant: files that no result named go back to the queue, a listing is
    /// complete.
    pub last: bool,
    /// The unit as a whole failed, e.g. no session could be had.
    pub error: Option<FileError>,
    /// Large files that it copies alone.
    #[serde(default)]
    pub undivided: Vec<Undivided>,
}

/// A file that is larger than [`GrantOptions::divide_above`] and is not divided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Undivided {
    /// Its number in the job.
    pub index: u64,
    /// Why, one line.
    pub reason: String,
}

/// What became of a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileOutcome {
    /// Its number in the job.
    pub index: u64,
    /// Bytes of it that were sent by this grant.
    pub bytes: u64,
    /// What became of it.
    pub end: FileEnd,
}

/// How a file ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FileEnd {
    /// It is complete at the destination.
    Finished {
        /// Its size.
        size: u64,
        /// `algorithm:value`, where one was taken.
        checksum: Option<String>,
    },
    /// It was there already.
    Skipped,
    /// It is not copied: its ends allow that several units copy it.
    Divided(Division),
    /// The range of it that the unit is for is in the temporary file.
    Copied,
    /// It is not complete, nor is the range.
    Failed(FileError),
}

/// How several units may copy a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Division {
    /// Name of the temporary file that takes the ranges, beside the destination.
    pub temporary: String,
    /// Bytes of the source.
    pub size: u64,
    /// When the source was last changed; agents compare it and nothing else reads it.
    pub changed: i64,
    /// Where the destination is a bucket: the upload in parts that the temporary file is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<DividedUpload>,
}

/// An upload in parts to a bucket, which several units send.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DividedUpload {
    /// What agents know it by; nothing else reads it.
    pub known_as: String,
    /// Bytes of each part but the last: ranges begin at multiples of it.
    pub part_bytes: u64,
}

/// An entry that a listing found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FoundFile {
    /// URL.
    pub source: String,
    /// URL.
    pub destination: String,
    /// A directory, which is listed in its turn.
    pub directory: bool,
    /// Of a file.
    pub bytes: Option<u64>,
}

/// The answer to a poll.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PollResponse {
    /// The sequence number of the poll.
    pub sequence: u64,
    /// Seconds that the lease lasts from the sending of the poll.
    pub lease_seconds: u64,
    /// New work.
    pub grants: Vec<Grant>,
    /// Results that need not be repeated: lease and number of the result.
    pub acknowledged: Vec<(Lease, u64)>,
    /// Units that it must stop at once: canceled, paused, or given to another. Only its own
    /// temporary files may be removed.
    pub stop: Vec<Stop>,
    /// Shares of all units that it holds: they may have changed.
    pub shares: Vec<(Lease, Share)>,
    /// Credentials of units that it holds, where they were renewed.
    pub credentials: Vec<(Lease, Vec<GrantedCredential>)>,
    /// When the latest credential was stored.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub renewed: Option<Timestamp>,
    /// Temporary files of divided files that were given up.
    #[serde(default)]
    pub remove: Vec<Removal>,
    /// It gets no new work, and may end when it holds nothing.
    pub drain: bool,
    /// Directories that users wait to look into.
    #[serde(default)]
    pub browse: Vec<Browse>,
    /// Of [`PollRequest::browses`], those whose users have gone.
    #[serde(default)]
    pub browses_over: Vec<Uuid>,
    /// Jobs that users wait to see before they submit them.
    #[serde(default)]
    pub preview: Vec<Preview>,
}

/// A directory that a user waits to look into.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Browse {
    /// What [`BrowseAnswer::id`] names.
    pub id: Uuid,
    /// Which, and which part of it.
    pub request: BrowseRequest,
    /// Where its name may lead the agent to.
    #[serde(default)]
    pub addresses: AddressScope,
    /// For its endpoint.
    pub credentials: Vec<GrantedCredential>,
    /// The user waits so long.
    pub seconds: u64,
}

/// A job that a user waits to see before it is submitted.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Preview {
    /// What [`BrowseAnswer::id`] names.
    pub id: Uuid,
    /// Which.
    pub question: PreviewQuestion,
    /// Where its names may lead the agent to.
    #[serde(default)]
    pub addresses: AddressScope,
    /// For its endpoints.
    pub credentials: Vec<GrantedCredential>,
    /// The user waits so long.
    pub seconds: u64,
}

/// `POST /agent/v1/browse`: what became of a [`Browse`] or a [`Preview`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BrowseAnswer {
    /// Which.
    pub id: Uuid,
    /// What was found, or why nothing was.
    pub found: Browsed,
}

/// What became of a [`Browse`] or a [`Preview`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Browsed {
    /// The part of the directory.
    Directory(BrowsedDirectory),
    /// What the job would copy.
    Preview(JobPreview),
    /// It was not listed.
    Failed(FileError),
}

/// A temporary file that no unit writes any more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Removal {
    /// What [`PollRequest::removed`] names.
    pub id: i64,
    /// Where it is.
    pub url: String,
    /// As [`DividedUpload::known_as`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
    /// Where its name may lead the agent to.
    #[serde(default)]
    pub addresses: AddressScope,
    /// For its endpoint.
    pub credentials: Vec<GrantedCredential>,
}

/// Why a unit must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Stop {
    /// Which.
    pub lease: Lease,
    /// Why.
    pub why: StopReason,
}

/// Why a unit must stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum StopReason {
    /// By the user. Partial files are removed. As with `Paused`, a last result says what ended
    /// before the stop, and that nothing is written any more.
    Canceled,
    /// By the user or an operator. Partial files stay for a resume.
    Paused,
    /// Another agent has it, or had it and ended it. No result is wanted.
    Fenced,
}

/// A unit for an agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Grant {
    /// Which.
    pub lease: Lease,
    /// Of this job.
    pub job: Uuid,
    /// What to do.
    pub work: Work,
    /// How.
    pub options: GrantOptions,
    /// Agents had its files before, and may have copied some of them.
    #[serde(default)]
    pub again: bool,
    /// Where names and servers may lead the agent to.
    #[serde(default)]
    pub addresses: AddressScope,
    /// With so much.
    pub share: Share,
    /// Number of the next result: those before it were counted.
    #[serde(default)]
    pub next_result: u64,
    /// For the ends of this unit only; kept in memory.
    pub credentials: Vec<GrantedCredential>,
    /// The span of a trace that the unit is within, as the header `traceparent` of W3C has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub trace: Option<String>,
}

/// Addresses that an agent may connect to for a unit. The service has checked the URLs; names are
/// resolved by the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum AddressScope {
    /// Those of the Internet.
    #[default]
    Public,
    /// Those of private networks, too: an operator listed the endpoints.
    Site,
    /// All: the agent is the user's own.
    Any,
}

/// What to do.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Work {
    /// Copy these.
    Copy(Vec<UnitFile>),
    /// List this directory, one level.
    List {
        /// URL.
        source: String,
        /// URL.
        destination: String,
    },
}

/// A file of a unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UnitFile {
    /// Its number in the job.
    pub index: u64,
    /// What was submitted, or found.
    #[serde(flatten)]
    pub file: FileRequest,
    /// Several units copy it: what this one does. It is then the only file of its unit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<FilePart>,
}

/// What a unit does of a divided file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FilePart {
    /// URL of the temporary file that all its units write.
    pub temporary: String,
    /// Bytes that the source must have.
    pub size: u64,
    /// When the source must have been changed, as [`Division::changed`].
    pub changed: i64,
    /// Copies the bytes from the first number up to the second. `None`: all ranges are copied, and
    /// the unit compares the file and gives it its name.
    pub range: Option<(u64, u64)>,
    /// As [`DividedUpload::known_as`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upload: Option<String>,
}

/// The part of a job's options that agents need.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantOptions {
    /// What is compared afterwards.
    pub verify: Verify,
    /// What becomes of files that exist.
    pub overwrite: Overwrite,
    /// Times of the last change are copied.
    pub preserve_times: bool,
    /// What it may take from others on the host.
    pub class: Class,
    /// Files of more bytes are not copied where their ends allow that several units copy them.
    #[serde(default)]
    pub divide_above: Option<u64>,
    /// Those to buckets, too.
    #[serde(default)]
    pub divides_uploads: bool,
}

/// A credential for one endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct GrantedCredential {
    /// `scheme://host:port`.
    pub endpoint: String,
    /// The secret itself.
    pub secret: Secret,
}

/// What proves a user to an endpoint.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Secret {
    /// A proxy certificate with its chain and key, PEM.
    Proxy(String),
    /// A bearer token.
    Token(String),
    /// A user's name and password.
    Password {
        /// Login name.
        user: String,
        /// Its password.
        password: String,
    },
    /// Keys for buckets of S3.
    Keys(BucketKeys),
}

/// Keys for buckets, and the service that has them.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketKeys {
    /// Access key.
    pub access: String,
    /// Its secret.
    pub secret: String,
    /// Of keys that end.
    #[serde(default)]
    pub token: Option<String>,
    /// `https://host:port`. Default: the service of AWS in the region.
    #[serde(default)]
    pub service: Option<String>,
    /// Default: `us-east-1`.
    #[serde(default)]
    pub region: Option<String>,
}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Secret::Proxy(_) => "Proxy(..)",
            Secret::Token(_) => "Token(..)",
            Secret::Password { .. } => "Password(..)",
            Secret::Keys(_) => "Keys(..)",
        })
    }
}

impl std::fmt::Debug for BucketKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("BucketKeys(..)")
    }
}

impl std::fmt::Debug for GrantedCredential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let secret = &self.secret;
        f.debug_struct("GrantedCredential")
            .field("endpoint", &self.endpoint)
            .field("secret", secret)
            .finish()
    }
}
