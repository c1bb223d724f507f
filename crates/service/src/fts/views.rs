//! Jobs and files of ours as FTS3 shows them.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use axum::body::Bytes;
use godwit_service_api::job::{FileRequest, JobState, Overwrite, Verify};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value, json};

use super::{
    states,
    submission::{JobExtra, extra, storage, stored_extra},
};
use crate::{
    rendered::{self, SubmittedText},
    store::{FileStatus, SegmentState, StoreError, model::JobRecord},
};

/// Files of a job are numbered within this, so that each file has a number of its own.
const FILES_OF_JOB: i64 = 1 << 24;

/// FTS3's words for what was canceled.
const CANCELED: &str = "Job canceled by the user";

/// The number of a file over all jobs.
fn file_id(job: &JobRecord, index: u64) -> i64 {
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    job.number
        .saturating_mul(FILES_OF_JOB)
        .saturating_add(index)
}

/// Job and file of a number; the other way of [`file_id`].
pub(super) fn parts_of_file_id(id: i64) -> (i64, u64) {
    let index = id.rem_euclid(FILES_OF_JOB);
    (id.div_euclid(FILES_OF_JOB), index.unsigned_abs())
}

/// `2026-11-25T14:00:48`: clients read exactly this form.
pub(super) fn time(at: Timestamp) -> String {
    TimeZone::UTC
        .to_datetime(at)
        .strftime("%Y-%m-%dT%H:%M:%S")
        .to_string()
}

/// A job, without `http_status`.
pub(super) fn job(record: &JobRecord, host: &str) -> Map<String, Value> {
    let extra = extra::<JobExtra>(record.options.metadata.as_ref());
    let options = &record.options;
    let reason = match record.state {
        JobState::Canceled => Some(CANCELED),
        JobState::Failed | JobState::Partial => {
            Some("One or more files failed. Please have a look at the details for more information")
        }
        _ => None,
    };
    let retry = i64::from(options.attempts.saturating_sub(1));
    let overwrite = (options.overwrite == Overwrite::Always).then(|| "Y".to_owned());
    let verify = match options.verify {
        Verify::Size => "n",
        Verify::Checksum => "b",
    };
    let of = extra.as_ref();
    let by = of.map(|extra| &extra.by);
    object(json!({
        "job_id": record.id,
        "job_state": states::job_state(record.state),
        "job_type": of.map_or("N", |extra| &extra.job_type),
        "source_se": of.and_then(|extra| extra.source_se.as_ref()),
        "dest_se": of.and_then(|extra| extra.dest_se.as_ref()),
        "vo_name": by.map(|by| &by.organisation),
        "user_dn": by.map_or(&record.owner, |by| &by.dn),
        "cred_id": by.map(|by| &by.delegation_id),
        "submit_time": time(record.created),
        "job_finished": record.ended.map(time),
        "submit_host": host,
        "priority": options.priority,
        "retry": of.map_or(retry, |extra| extra.retry),
        "retry_delay": of.map_or(0, |extra| extra.retry_delay),
        "overwrite_flag": of.map_or(overwrite, |extra| extra.overwrite_flag.clone()),
        "verify_checksum": of.map_or(verify, |extra| &extra.verify_checksum),
        "reason": reason,
        "cancel_job": record.state == JobState::Canceled,
        "bring_online": -1,
        "copy_pin_lifetime": -1,
        "archive_timeout": -1,
        "max_time_in_queue": of.and_then(|extra| extra.max_time_in_queue),
        "internal_job_params": of.and_then(|extra| extra.internal_job_params.as_ref()),
        "target_qos": null,
        "source_spacetoken": of.and_then(|extra| extra.source_spacetoken.as_ref()),
        "destination_spacetoken": of.and_then(|extra| extra.destination_spacetoken.as_ref()),
        "os_project_id": null,
        "dst_file_report": of.is_some_and(|extra| extra.dst_file_report),
        "job_metadata": of.map_or(options.metadata.as_ref(), |extra| Some(&extra.job_metadata)),
    }))
}

/// Files of one job, with the members that are asked for. Times are those of the job: when files
/// begin and end is not kept.
///
/// A file is written in two parts, since polls show many thousands: what was submitted stays, and
/// is rendered once for a segment; what became of the file is short.
pub(super) struct Files<'a> {
    job: &'a JobRecord,
    organisation: Value,
    started: Value,
    ended: Value,
    fixed: Vec<&'static (&'static str, Fixed)>,
    changing: Vec<&'static (&'static str, Changing)>,
}

/// A file as it was submitted.
struct FixedRow<'a> {
    of: &'a Files<'a>,
    index: u64,
    file: &'a FileRequest,
    /// As `FileExtra` was stored: read in place.
    extra: Option<&'a Value>,
}

/// What became of it.
struct ChangingRow<'a> {
    of: &'a Files<'a>,
    file: &'a FileStatus<'a>,
    bytes: Option<u64>,
    state: &'static str,
}

type Fixed = for<'a> fn(&FixedRow<'a>) -> Cow<'a, Value>;

type Changing = fn(&ChangingRow<'_>) -> Value;

const FIXED: &[(&str, Fixed)] = &[
    ("file_id", |row| own(file_id(row.of.job, row.index))),
    ("file_index", |row| row.stored("file_index", row.index)),
    ("job_id", |row| own(row.of.job.id.to_string())),
    ("vo_name", |row| Cow::Borrowed(&row.of.organisation)),
    ("source_se", |row| own(storage(&row.file.source))),
    ("dest_se", |row| own(storage(&row.file.destination))),
    ("source_surl", |row| own(row.file.source.as_str())),
    ("dest_surl", |row| own(row.file.destination.as_str())),
    ("file_state_initial", |_| own("")),
    ("activity", |row| row.stored("activity", "default")),
    ("user_filesize", |row| row.stored("user_filesize", 0)),
    ("checksum", |row| {
        row.stored("checksum", row.file.checksum.clone())
    }),
    ("selection_strategy", |row| {
        row.stored("selection_strategy", "auto")
    }),
    ("file_metadata", |row| match row.extra {
        Some(_) => row.stored("file_metadata", Value::Null),
        None => row.file.metadata.as_ref().map_or(NULL, Cow::Borrowed),
    }),
    ("staging_metadata", |row| {
        row.stored("staging_metadata", Value::Null)
    }),
    ("archive_metadata", |row| {
        row.stored("archive_metadata", Value::Null)
    }),
    ("scitag", |row| row.stored("scitag", Value::Null)),
    ("hashed_id", |row| own(hashed(row.of.job.number))),
    // What FTS3 has and nothing here fills.
    ("staging_start", |_| NULL),
    ("staging_finished", |_| NULL),
    ("archive_start_time", |_| NULL),
    ("archive_finish_time", |_| NULL),
    ("staging_host", |_| NULL),
    ("transfer_host", |_| NULL),
    ("pid", |_| NULL),
    ("tx_duration", |_| NULL),
    ("throughput", |_| NULL),
    ("internal_file_params", |_| NULL),
    ("log_file", |_| NULL),
    ("log_debug", |_| NULL),
    ("bringonline_token", |_| NULL),
    ("src_token_id", |_| NULL),
    ("dst_token_id", |_| NULL),
    ("dest_surl_uuid", |_| NULL),
];

const FILESIZE: &str = "filesize";

const CHANGING: &[(&str, Changing)] = &[
    ("file_state", |row| row.state.into()),
    ("priority", |row| row.of.job.options.priority.into()),
    (FILESIZE, |row| row.bytes.into()),
    ("reason", |row| {
        // Clients write it into their records: without a text they show none.
        match (row.file.error.as_deref(), row.state) {
            (Some(error), _) => states::reason(error).into(),
            (None, "CANCELED") => CANCELED.into(),
            (None, _) => Value::Null,
        }
    }),
    ("recoverable", |row| {
        row.file.error.as_ref().map(|error| error.may_pass).into()
    }),
    ("retry", |row| row.file.attempts.saturating_sub(1).into()),
    ("start_time", |row| {
        match row.is_final() || row.state == "ACTIVE" {
            true => row.of.started.clone(),
            false => Value::Null,
        }
    }),
    ("finish_time", |row| match row.is_final() {
        true => row.of.ended.clone(),
        false => Value::Null,
    }),
];

const NULL: Cow<'static, Value> = Cow::Owned(Value::Null);

fn own(value: impl Into<Value>) -> Cow<'static, Value> {
    Cow::Owned(value.into())
}

impl<'a> FixedRow<'a> {
    /// What was stored with the file, else what FTS3 has where a user says nothing.
    fn stored(&self, name: &str, otherwise: impl Into<Value>) -> Cow<'a, Value> {
        match self.extra.and_then(|extra| extra.get(name)) {
            Some(value) => Cow::Borrowed(value),
            None => own(otherwise),
        }
    }
}

impl ChangingRow<'_> {
    fn is_final(&self) -> bool {
        matches!(self.state, "FINISHED" | "FAILED" | "CANCELED")
    }
}

impl<'a> Files<'a> {
    /// With these members, or all.
    pub(super) fn new(job: &'a JobRecord, fields: Option<&HashSet<String>>) -> Self {
        let extra = extra::<JobExtra>(job.options.metadata.as_ref());
        let is_asked_for = |name: &str| fields.is_none_or(|fields| fields.contains(name));
        Files {
            job,
            organisation: extra.map(|extra| extra.by.organisation).into(),
            started: job.started.map(time).into(),
            ended: job.ended.or(job.started).map(time).into(),
            fixed: FIXED
                .iter()
                .filter(|(name, _)| is_asked_for(name))
                .collect(),
            changing: CHANGING
                .iter()
                .filter(|(name, _)| is_asked_for(name))
                .collect(),
        }
    }

    /// Which rendering of a segment this is of.
    pub(super) fn key(&self, segment: &SegmentState<'_>) -> rendered::Key {
        let members = FIXED.iter().map(|(name, _)| *name);
        let is_asked_for = |name| self.fixed.iter().any(|(asked, _)| *asked == name);
        rendered::Key {
            job: self.job.id,
            segment: segment.number(),
            members: members.fold(0, |bits, name| bits << 1 | u64::from(is_asked_for(name))),
        }
    }

    /// Of the files of a segment, what was submitted.
    pub(super) fn fixed(&self, segment: &SegmentState<'_>, files: &[FileRequest]) -> SubmittedText {
        let mut submitted = SubmittedText::default();
        for (index, file) in (segment.first()..).zip(files) {
            let row = FixedRow {
                of: self,
                index,
                file,
                extra: stored_extra(file.metadata.as_ref()),
            };
            let members = self.fixed.iter();
            write(
                members.map(|(name, member)| (*name, member(&row))),
                &mut submitted.text,
            );
            submitted.files.push((submitted.text.len(), file.bytes));
        }
        submitted.text.shrink_to_fit();
        submitted
    }

    /// JSON of the files of a segment, with commas between.
    ///
    /// # Errors
    /// As [`SegmentState::receipts`].
    pub(super) fn render(
        &self,
        segment: &SegmentState<'_>,
        submitted: &SubmittedText,
    ) -> Result<Bytes, StoreError> {
        let mut text = Vec::with_capacity(submitted.text.len() + 128 * submitted.files.len());
        let mut changing = Vec::new();
        let shows_bytes = self.changing.iter().any(|(name, _)| *name == FILESIZE);
        let receipts = match shows_bytes {
            true => segment.receipts()?,
            false => BTreeMap::new(),
        };
        // Most are in the state of the one before.
        let mut last = None;
        for file in segment.files() {
            let Some((fixed, bytes)) = submitted.file(file.place) else {
                continue;
            };
            let found = receipts.get(&file.place).map(|(bytes, _)| *bytes);
            let bytes = found.or(bytes).filter(|_| shows_bytes);
            let as_before = file
                .error
                .is_none()
                .then_some((file.state, file.attempts, bytes));
            if as_before.is_none() || as_before != last {
                changing.clear();
                let row = ChangingRow {
                    of: self,
                    file: &file,
                    bytes,
                    state: states::file_state(file.state),
                };
                let members = self.changing.iter();
                let members = members.map(|(name, member)| (*name, Cow::Owned(member(&row))));
                write(members, &mut changing);
                last = as_before;
            }
            text.extend_from_slice(if text.is_empty() { b"{" } else { b",{" });
            text.extend_from_slice(fixed);
            if !fixed.is_empty() && !changing.is_empty() {
                text.push(b',');
            }
            text.extend_from_slice(&changing);
            text.push(b'}');
        }
        Ok(text.into())
    }
}

/// Members of an object, with commas between.
fn write<'a>(members: impl Iterator<Item = (&'a str, Cow<'a, Value>)>, text: &mut Vec<u8>) {
    for (place, (name, value)) in members.enumerate() {
        if place > 0 {
            text.push(b',');
        }
        text.push(b'"');
        text.extend_from_slice(name.as_bytes());
        text.extend_from_slice(b"\":");
        // Memory takes any value.
        let _ = serde_json::to_writer(&mut *text, &*value);
    }
}

/// FTS3 spreads jobs over its hosts by it; here it only has to be a number of 16 bits.
fn hashed(number: i64) -> i64 {
    number.rem_euclid(1 << 16)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_no_fraction_and_no_zone() {
        let at = Timestamp::from_millisecond(1_764_079_248_123).unwrap();
        assert_eq!(time(at), "2025-11-25T14:00:48");
    }

    #[test]
    fn the_number_of_a_file_says_job_and_place() {
        assert_eq!(parts_of_file_id(7 * FILES_OF_JOB + 3), (7, 3));
    }
}
