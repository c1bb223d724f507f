//! What the event stream of a job carries: `GET /api/v1/jobs/{id}/events`.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::job::{FileCounts, FileError, JobState};

/// One event. Its number in the stream is `id:` of the server-sent event, so that
/// `Last-Event-ID` continues after it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct JobEvent {
    /// By the clock of the database.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// What happened.
    #[serde(flatten)]
    pub what: JobEventKind,
}

/// What happened to a job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum JobEventKind {
    /// Its state changed.
    State {
        /// To this.
        state: JobState,
        /// By whom or why, one line.
        reason: Option<String>,
    },
    /// An agent took a part of it.
    Started {
        /// Its name.
        agent: String,
        /// How many files.
        files: u64,
        /// How many bytes.
        bytes: u64,
    },
    /// A file failed; the service may try again.
    FileFailed {
        /// Its number.
        index: u64,
        /// Attempts that ended.
        attempts: u32,
        /// Why.
        error: FileError,
    },
    /// An agent lost its lease; the part goes to another.
    LeaseLost {
        /// Its name.
        agent: String,
        /// Files that go back.
        files: u64,
    },
    /// What is done; at most one a second, not kept.
    Progress {
        /// Files by state.
        files: FileCounts,
        /// Bytes safe at the destination.
        bytes_done: u64,
        /// Bytes a second.
        goodput: f64,
    },
}
