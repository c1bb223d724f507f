//! Schedules: jobs that the service submits again and again.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::job::{JobOptions, JobRequest};

/// A schedule that is to be: `POST /api/v1/schedules`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleRequest {
    /// Unique among those of its owner: letters, digits, `.`, `_` and `-`.
    pub name: String,
    /// Five fields: minute, hour, day of the month, month, day of the week.
    pub cron: String,
    /// Time zone whose clock counts, as `Europe/Berlin`.
    #[serde(default = "utc")]
    pub zone: String,
    /// What is submitted each time: at most 10,000 files.
    pub job: JobRequest,
}

fn utc() -> String {
    "UTC".to_owned()
}

/// A schedule as its owner sees it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleView {
    /// Unique among those of its owner.
    pub name: String,
    /// When it is due.
    pub cron: String,
    /// By the clock of this time zone.
    pub zone: String,
    /// How its jobs are done.
    pub options: JobOptions,
    /// How many files its jobs are submitted with.
    pub files: u64,
    /// When it is due next.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub next: Option<Timestamp>,
    /// It submits nothing until it is resumed.
    #[serde(default)]
    pub paused: bool,
    /// The last times that it was due, latest first; empty in lists.
    #[serde(default)]
    pub runs: Vec<ScheduleRun>,
}

/// A time that a schedule was due.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ScheduleRun {
    /// When.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub due: Timestamp,
    /// The job that was submitted.
    pub job: Option<Uuid>,
    /// Why none was.
    pub skipped: Option<String>,
}
