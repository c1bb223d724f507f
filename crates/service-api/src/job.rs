//! Jobs: what users submit, and what they see of it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::why::Why;

/// Most bytes of a URL.
pub const MAX_URL_BYTES: usize = 8192;

/// Largest file: a pebibyte. Sums over files are bounded by it.
pub const MAX_FILE_BYTES: u64 = 1 << 50;

/// Most files of a submission as one JSON object. Longer lists are sent as a stream of lines.
pub const MAX_INLINE_FILES: usize = 10_000;

/// Most files of a job with an order.
pub const MAX_ORDERED_FILES: u64 = 100;

/// Most bytes of `metadata` of a job or a file, as JSON.
pub const MAX_METADATA_BYTES: usize = 4096;

/// A submission: `POST /api/v1/jobs`. As `application/x-ndjson` the first line is this object with
/// `files` empty, each further line a [`FileRequest`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobRequest {
    /// What to copy. At least one unless more lines follow.
    pub files: Vec<FileRequest>,
    /// How.
    pub options: JobOptions,
}

/// One copy of a submission: a file, or a tree with `recursive`.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileRequest {
    /// URL; for a tree of a directory.
    pub source: String,
    /// URL of the copy, not of the directory that it goes to.
    pub destination: String,
    /// All that is below `source`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub recursive: bool,
    /// Bytes, where the user knows; a source of another size is an error.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// `algorithm:value`, e.g. `adler32:1a2b3c4d`; both ends must agree with it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// The user's own; the service returns it and does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<serde_json::Value>,
}

/// How a job is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobOptions {
    /// Shown in lists.
    pub name: Option<String>,
    /// 1 (last) to 5 (first) among the jobs of one share.
    pub priority: u8,
    /// What it may take from others.
    pub class: Class,
    /// Path of the share that pays, e.g. `physics/alice`; `None`: the user's own.
    pub share: Option<String>,
    /// What is compared after the bytes arrived.
    pub verify: Verify,
    /// What becomes of files that exist.
    pub overwrite: Overwrite,
    /// Whether files wait for each other.
    #[serde(skip_serializing_if = "FileOrder::is_any")]
    pub order: FileOrder,
    /// Attempts for each file that fails for a reason that may pass, 1 to 100.
    pub attempts: u32,
    /// When it must be done: weighs more as that comes near, and fails afterwards.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub deadline: Option<Timestamp>,
    /// Starts when these are done; is canceled when one of them is not.
    pub after: Vec<Uuid>,
    /// Agents must have all of these labels.
    pub labels: Vec<String>,
    /// Times of the last change are copied.
    pub preserve_times: bool,
    /// Starts paused.
    pub paused: bool,
    /// Only says what would be done: the job is checked, not kept.
    pub dry_run: bool,
    /// Where the end of the job is reported.
    pub notify: Vec<Notification>,
    /// The user's own.
    pub metadata: Option<serde_json::Value>,
}

impl Default for JobOptions {
    fn default() -> Self {
        JobOptions {
            name: None,
            priority: 3,
            class: Class::Normal,
            share: None,
            verify: Verify::Size,
            overwrite: Overwrite::Never,
            order: FileOrder::Any,
            attempts: 5,
            deadline: None,
            after: Vec::new(),
            labels: Vec::new(),
            preserve_times: false,
            paused: false,
            dry_run: false,
            notify: Vec::new(),
            metadata: None,
        }
    }
}

/// What a user changes of a job that has not ended: `PATCH /api/v1/jobs/{id}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobChange {
    /// 1 (last) to 5 (first).
    pub priority: Option<u8>,
    /// Shown in lists.
    pub name: Option<String>,
}

/// Classes of service.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Class {
    /// Twice the weight.
    Urgent,
    /// By its share.
    #[default]
    Normal,
    /// Only what others leave.
    Scavenger,
}

/// What is compared after the bytes arrived.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Verify {
    /// Sizes.
    #[default]
    Size,
    /// Checksums of both ends.
    Checksum,
}

/// What becomes of files that exist at the destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Overwrite {
    /// The file fails.
    #[default]
    Never,
    /// Replaced where size or time differ, else skipped.
    Different,
    /// Replaced.
    Always,
}

/// Whether files of a job wait for each other. An order is for at most 100 files and for no trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FileOrder {
    /// They do not.
    #[default]
    Any,
    /// They are ways to the same file: each starts when the one before has failed, and the first
    /// that is complete ends the job.
    Alternatives,
    /// Each copies on what the one before has copied: it starts when that is complete, and the
    /// first that fails ends the job.
    Hops,
}

impl FileOrder {
    /// Files do not wait for each other.
    pub fn is_any(&self) -> bool {
        *self == FileOrder::Any
    }
}

/// Where the end of a job is reported.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Notification {
    /// A signed POST of the job.
    Webhook {
        /// `https`, or `http` where the operator allows it.
        url: String,
    },
    /// A message for people, where the operator has set a mail relay.
    Mail {
        /// `jo@example.org`, without a name.
        address: String,
    },
}

/// Where a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobState {
    /// Its list of files is still coming in; a submission that breaks off here is removed.
    Submitting,
    /// Nothing has started.
    Queued,
    /// Something has.
    Active,
    /// The user or the service stopped it; `why` says who.
    Paused,
    /// Final: every file finished or was skipped; of alternatives, one did.
    Finished,
    /// Final: some files finished, others did not.
    Partial,
    /// Final: no file finished.
    Failed,
    /// Final: by the user, all of it or every file.
    Canceled,
}

impl JobState {
    /// It never changes again, but by a retry of failed files.
    pub fn is_final(self) -> bool {
        use JobState::*;
        matches!(self, Finished | Partial | Failed | Canceled)
    }

    /// As in JSON and in the database.
    pub fn as_str(self) -> &'static str {
        match self {
            JobState::Submitting => "submitting",
            JobState::Queued => "queued",
            JobState::Active => "active",
            JobState::Paused => "paused",
            JobState::Finished => "finished",
            JobState::Partial => "partial",
            JobState::Failed => "failed",
            JobState::Canceled => "canceled",
        }
    }
}

impl std::str::FromStr for JobState {
    type Err = serde::de::value::Error;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        use serde::de::IntoDeserializer as _;
        JobState::deserialize(name.into_deserializer())
    }
}

/// Where a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum FileState {
    /// It waits.
    Queued,
    /// An agent has it.
    Active,
    /// Final: it is complete at the destination.
    Finished,
    /// Final: it was there already.
    Skipped,
    /// Final until the user retries it.
    Failed,
    /// Final.
    Canceled,
    /// Its turn has not come, by the order of its job; final where the job is.
    Unused,
}

/// A job as users see it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobView {
    /// Its name for machines.
    pub id: Uuid,
    /// Who submitted it.
    pub owner: String,
    /// The schedule of its owner that submitted it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<String>,
    /// Where it is.
    pub state: JobState,
    /// Why it waits or is slow, most telling first; empty for what is final.
    pub why: Vec<Why>,
    /// How it is done.
    pub options: JobOptions,
    /// Files by state. `total` grows while trees are listed.
    pub files: FileCounts,
    /// Bytes of files whose size is known.
    pub bytes_total: u64,
    /// Bytes safe at the destination.
    pub bytes_done: u64,
    /// Every tree of it has been listed.
    pub listed: bool,
    /// Bytes a second over the last seconds, by what its agents report.
    pub goodput: f64,
    /// Seconds that the rest takes at that rate.
    pub eta_seconds: Option<u64>,
    /// Errors by code, with how many files met each.
    pub errors: BTreeMap<String, u64>,
    /// When it was accepted.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// When the first agent took something of it.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub started: Option<Timestamp>,
    /// When it became final.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub ended: Option<Timestamp>,
}

/// Files of a job by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileCounts {
    /// All that are known.
    pub total: u64,
    /// Complete at the destination.
    pub finished: u64,
    /// There already.
    pub skipped: u64,
    /// Given up.
    pub failed: u64,
    /// By the user.
    pub canceled: u64,
    /// Their turn did not come before the job ended.
    #[serde(default)]
    pub unused: u64,
}

impl FileCounts {
    /// Files whose state is final.
    pub fn ended(&self) -> u64 {
        self.finished + self.skipped + self.failed + self.canceled + self.unused
    }
}

/// A file of a job as users see it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileView {
    /// Its number in the job, from 0.
    pub index: u64,
    /// URL.
    pub source: String,
    /// URL.
    pub destination: String,
    /// Bytes, where known.
    pub bytes: Option<u64>,
    /// Where it is.
    pub state: FileState,
    /// Attempts that ended.
    pub attempts: u32,
    /// Of the last attempt that failed.
    pub error: Option<FileError>,
    /// `algorithm:value`, where a checksum was taken.
    pub checksum: Option<String>,
    /// As submitted.
    pub metadata: Option<serde_json::Value>,
}

/// Why a file failed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FileError {
    /// Stable: `not_found`, `permission`, `exists`, `no_space`, `checksum`, `unreachable`,
    /// `credential`, `refused`, `interrupted`, `internal` ...
    pub code: String,
    /// One line for people.
    pub message: String,
    /// Who must act.
    pub who: WhoActs,
    /// The service may try again by itself.
    pub may_pass: bool,
}

/// Who must act so that a failed file succeeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WhoActs {
    /// Who submitted it.
    User,
    /// The administrator of the source.
    Source,
    /// The administrator of the destination.
    Destination,
    /// The operator of the service.
    Operator,
    /// Nobody yet: the service tries again.
    Service,
}
