//! Jobs and files of ours as FTS3 shows them.

use godwit_service_api::job::{FileView, JobState, Overwrite, Verify};
use jiff::{Timestamp, tz::TimeZone};
use serde_json::{Map, Value, json};

use super::{
    states,
    submission::{FileExtra, JobExtra, extra, storage},
};
use crate::store::model::JobRecord;

/// Files of a job are numbered within this, so that each file has a number of its own.
const FILES_OF_JOB: i64 = 1 << 24;

/// The number of a file over all jobs.
fn file_id(job: &JobRecord, index: u64) -> i64 {
    let index = i64::try_from(index).unwrap_or(i64::MAX);
    job.number
        .saturating_mul(FILES_OF_JOB)
        .saturating_add(index)
}

/// Job and file of a number; the other way of what [`file()`] shows.
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

/// Members of a file that FTS3 has and that nothing here fills.
const UNSET: [&str; 16] = [
    "staging_start",
    "staging_finished",
    "archive_start_time",
    "archive_finish_time",
    "staging_host",
    "transfer_host",
    "pid",
    "tx_duration",
    "throughput",
    "internal_file_params",
    "log_file",
    "log_debug",
    "bringonline_token",
    "src_token_id",
    "dst_token_id",
    "dest_surl_uuid",
];

/// A job, without `http_status`.
pub(super) fn job(record: &JobRecord, host: &str) -> Map<String, Value> {
    let extra = extra::<JobExtra>(record.options.metadata.as_ref());
    let options = &record.options;
    let reason = match record.state {
        JobState::Canceled => Some("Job canceled by the user"),
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

/// A file. Times are those of its job: when files begin and end is not kept.
pub(super) fn file(record: &JobRecord, file: &FileView) -> Map<String, Value> {
    let extra = extra::<FileExtra>(file.metadata.as_ref());
    let job = super::submission::extra::<JobExtra>(record.options.metadata.as_ref());
    let of = extra.as_ref();
    let state = states::file_state(file.state);
    let is_final = matches!(state, "FINISHED" | "FAILED" | "CANCELED");
    let started = record.started.filter(|_| is_final || state == "ACTIVE");
    let ended = record.ended.or(record.started).filter(|_| is_final);
    let mut shown = object(json!({
        "file_id": file_id(record, file.index),
        "file_index": of.map_or(file.index, |extra| extra.file_index),
        "job_id": record.id,
        "vo_name": job.map(|extra| extra.by.organisation),
        "source_se": storage(&file.source),
        "dest_se": storage(&file.destination),
        "source_surl": file.source,
        "dest_surl": file.destination,
        "file_state": state,
        "file_state_initial": "",
        "priority": record.options.priority,
        "activity": of.map_or("default", |extra| &extra.activity),
        "user_filesize": of.map_or(0, |extra| extra.user_filesize),
        "filesize": file.bytes,
        "checksum": of.map(|extra| extra.checksum.clone()).or_else(|| file.checksum.clone()),
        "selection_strategy": of.map_or("auto", |extra| &extra.selection_strategy),
        "file_metadata": of.map_or(file.metadata.as_ref(), |extra| Some(&extra.file_metadata)),
        "staging_metadata": of.map(|extra| &extra.staging_metadata),
        "archive_metadata": of.map(|extra| &extra.archive_metadata),
        "reason": file.error.as_ref().map(states::reason),
        "recoverable": file.error.as_ref().map(|error| error.may_pass),
        "retry": file.attempts.saturating_sub(1),
        "start_time": started.map(time),
        "finish_time": ended.map(time),
        "scitag": of.and_then(|extra| extra.scitag),
        "hashed_id": hashed(record.number),
    }));
    shown.extend(UNSET.map(|name| (name.to_owned(), Value::Null)));
    shown
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
