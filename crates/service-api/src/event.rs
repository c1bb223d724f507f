//! What the event stream of a job carries: `GET /api/v1/jobs/{id}/events`.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

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
    /// Several agents copy a file.
    Divided {
        /// Its number.
        index: u64,
        /// Into how many ranges it was cut.
        ranges: u64,
    },
    /// One agent copies a large file alone.
    Undivided {
        /// Its number.
        index: u64,
        /// Why, one line.
        reason: String,
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

/// What a webhook is sent when its job has ended.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobEnded {
    /// `job.ended`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Of the job.
    pub id: Uuid,
    /// Who submitted it.
    pub owner: String,
    /// As submitted.
    pub name: Option<String>,
    /// How it ended.
    pub state: JobState,
    /// Why, where a person or the service ended it.
    pub reason: Option<String>,
    /// Files by state.
    pub files: FileCounts,
    /// Bytes of finished files.
    pub bytes_done: u64,
    /// Errors by code, with how many files met each.
    pub errors: BTreeMap<String, u64>,
    /// When it was accepted.
    pub created: Timestamp,
    /// When the first agent took something of it.
    pub started: Option<Timestamp>,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// As submitted.
    pub metadata: Option<serde_json::Value>,
}
