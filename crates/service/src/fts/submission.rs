//! A submission of FTS3 as a job of ours. Pure: no database, no clock.

use godwit_service_api::job::{
    FileOrder, FileRequest, JobOptions, MAX_ORDERED_FILES, Overwrite, Verify,
};
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{
    refusal::{FtsResult, Refusal, invalid},
    tokens::{self, EndpointTokens},
};
use crate::api::FTS_METADATA;

/// Most bytes of a URL.
const URL_BYTES_MAX: usize = 1100;

/// Most bytes of a file's metadata, as JSON.
const FILE_METADATA_MAX: usize = 4096;

/// Most bytes of all that is kept of a file beside its URLs, as JSON.
const FILE_BYTES_MAX: usize = FILE_METADATA_MAX + 2 * TAPE_METADATA_MAX + 1024;

/// Most bytes of metadata of a job, as JSON.
const JOB_METADATA_MAX: usize = 2048;

/// Most bytes of metadata for tapes, as JSON.
const TAPE_METADATA_MAX: usize = 1024;

/// Scientific tags of a network flow.
const SCITAGS: std::ops::RangeInclusive<i64> = 65..=65_535;

/// Who submits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Submitter {
    pub(super) dn: String,
    pub(super) organisation: String,
    pub(super) delegation_id: String,
    pub(super) method: String,
}

/// What FTS3 says of a job and a job of ours does not: kept with its metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct JobExtra {
    pub(super) by: Submitter,
    /// `N`: files for themselves; `Y`: over one session; `R`: replicas of one file; `H`: hops.
    pub(super) job_type: String,
    pub(super) source_se: Option<String>,
    pub(super) dest_se: Option<String>,
    pub(super) retry: i64,
    pub(super) retry_delay: i64,
    /// `Y` or null.
    pub(super) overwrite_flag: Option<String>,
    /// `n`one, `t`arget, `s`ource, `b`oth.
    pub(super) verify_checksum: String,
    /// Seconds since the epoch.
    pub(super) max_time_in_queue: Option<f64>,
    pub(super) internal_job_params: Option<String>,
    pub(super) source_spacetoken: Option<String>,
    pub(super) destination_spacetoken: Option<String>,
    pub(super) dst_file_report: bool,
    pub(super) job_metadata: Value,
}

/// What FTS3 says of a file and ours does not: kept with its metadata.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct FileExtra {
    pub(super) file_index: u64,
    pub(super) activity: String,
    pub(super) selection_strategy: String,
    /// As submitted; `ADLER32` where the user gave none.
    pub(super) checksum: String,
    pub(super) user_filesize: u64,
    pub(super) file_metadata: Value,
    pub(super) staging_metadata: Value,
    pub(super) archive_metadata: Value,
    pub(super) scitag: Option<i64>,
}

/// A job as it is stored.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) options: JobOptions,
    pub(super) files: Vec<FileRequest>,
    pub(super) tokens: EndpointTokens,
    /// The client's own name for it, from which both compute the id.
    pub(super) sid: Option<String>,
}

/// The part of stored metadata that is FTS3's, as it is stored.
pub(super) fn stored_extra(metadata: Option<&Value>) -> Option<&Value> {
    metadata?.get(FTS_METADATA)
}

/// The part of stored metadata that is FTS3's.
pub(super) fn extra<T: serde::de::DeserializeOwned>(metadata: Option<&Value>) -> Option<T> {
    T::deserialize(stored_extra(metadata)?).ok()
}

fn stored(extra: &impl Serialize) -> Option<Value> {
    let value = serde_json::to_value(extra).unwrap_or_default();
    Some(Value::Object(Map::from_iter([(
        FTS_METADATA.to_owned(),
        value,
    )])))
}

/// A job of a body of `POST /jobs`.
///
/// # Errors
/// 400 with the texts that FTS3 has for them.
pub(super) fn parse(body: &[u8], by: Submitter, now: Timestamp) -> FtsResult<Submitted> {
    let badly = |_| Refusal::bad_request("Badly formatted JSON request");
    let body: Value = serde_json::from_slice(body).map_err(badly)?;
    let Value::Object(body) = body else {
        return Err(Refusal::bad_request("Expecting a dictionary"));
    };
    if body.get("delete").is_some_and(|value| !value.is_null()) {
        let text = "Deletion jobs are no longer supported by FTS";
        return Err(Refusal::new(
            axum::http::StatusCode::METHOD_NOT_ALLOWED,
            text,
        ));
    }
    let none = || Refusal::bad_request("No transfers operations specified");
    let files = body
        .get("files")
        .and_then(Value::as_array)
        .ok_or_else(none)?;
    let empty = Map::new();
    let params = match body.get("params") {
        None | Some(Value::Null) => &empty,
        Some(Value::Object(params)) => params,
        Some(_) => return Err(invalid("params is not a dictionary")),
    };
    let params = Params(params);
    params.check()?;
    let (mut rows, mut tokens) = (Vec::new(), EndpointTokens::new());
    for (index, file) in (0..).zip(files) {
        read_file(index, file, &mut rows, &mut tokens)?;
    }
    if rows.is_empty() {
        return Err(Refusal::bad_request("No valid pairs available"));
    }
    let job_type = params.job_type(&rows)?;
    let (source_se, dest_se) = match job_type {
        JobType::Hops => (
            rows.first().and_then(|row| storage(&row.source)),
            rows.last().and_then(|row| storage(&row.destination)),
        ),
        _ => (
            common(rows.iter().map(|row| row.source.as_str())),
            common(rows.iter().map(|row| row.destination.as_str())),
        ),
    };
    if job_type == JobType::Reuse && (source_se.is_none() || dest_se.is_none()) {
        return Err(Refusal::bad_request(
            "Reuse jobs must only contain transfers for the same source ad destination storage",
        ));
    }
    let mode = params.verification(&rows)?;
    let deadline = params.deadline(now)?;
    let retry = params.number("retry")?.unwrap_or(0);
    let overwrite = params.truth("overwrite")? || params.truth("overwrite_on_retry")?;
    let extra = JobExtra {
        job_type: job_type.letter().to_owned(),
        source_se: source_se.filter(|_| job_type != JobType::Replicas),
        dest_se,
        retry,
        retry_delay: params.number("retry_delay")?.unwrap_or(0),
        overwrite_flag: params.overwrite_flag()?,
        verify_checksum: mode.clone(),
        #[allow(clippy::cast_precision_loss, reason = "seconds of this age fit")]
        max_time_in_queue: deadline.map(|at| at.as_millisecond() as f64 / 1000.0),
        internal_job_params: params.internal()?,
        source_spacetoken: params.text("source_spacetoken"),
        destination_spacetoken: params.text("destination_spacetoken"),
        dst_file_report: params.truth("dst_file_report")?,
        job_metadata: params.metadata(&by)?,
        by,
    };
    let options = JobOptions {
        priority: params.priority()?,
        verify: match mode.as_str() {
            "n" => Verify::Size,
            _ => Verify::Checksum,
        },
        overwrite: if overwrite {
            Overwrite::Always
        } else {
            Overwrite::Never
        },
        order: match job_type {
            JobType::Files | JobType::Reuse => FileOrder::Any,
            JobType::Replicas => FileOrder::Alternatives,
            JobType::Hops => FileOrder::Hops,
        },
        attempts: match retry {
            // The next replica is the other attempt.
            0 if job_type == JobType::Replicas => 1,
            0 => JobOptions::default().attempts,
            retry => u32::try_from(retry.max(0)).unwrap_or(99).min(99) + 1,
        },
        deadline,
        metadata: stored(&extra),
        ..JobOptions::default()
    };
    let files = rows.into_iter().map(|row| row.request(&mode)).collect();
    let sid = match params.text("id_generator").as_deref() {
        Some("deterministic") => {
            let missing = || Refusal::bad_request("Client should provide a 'sid' parameter");
            Some(params.text("sid").ok_or_else(missing)?)
        }
        _ => None,
    };
    Ok(Submitted {
        options,
        files,
        tokens,
        sid,
    })
}

/// How files of a job belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum JobType {
    /// Each is for itself.
    Files,
    /// One pair of storages, over the sessions that are there.
    Reuse,
    /// Ways to one file.
    Replicas,
    /// Each goes on from the one before.
    Hops,
}

impl JobType {
    fn letter(self) -> &'static str {
        match self {
            JobType::Files => "N",
            JobType::Reuse => "Y",
            JobType::Replicas => "R",
            JobType::Hops => "H",
        }
    }
}

/// A pair of a file.
struct Row {
    source: String,
    destination: String,
    extra: FileExtra,
}

impl Row {
    fn request(self, mode: &str) -> FileRequest {
        let checksum = self.extra.checksum.split_once(':').filter(|_| mode != "n");
        FileRequest {
            recursive: false,
            bytes: Some(self.extra.user_filesize).filter(|bytes| *bytes > 0),
            checksum: checksum.map(|(algorithm, value)| {
                // Clients leave zeros out that the algorithm has.
                let value = value.to_ascii_lowercase();
                let algorithm = algorithm.to_ascii_lowercase();
                match algorithm.as_str() {
                    "adler32" | "crc32" | "crc32c" => format!("{algorithm}:{value:0>8}"),
                    _ => format!("{algorithm}:{value}"),
                }
            }),
            metadata: stored(&self.extra),
            source: self.source,
            destination: self.destination,
        }
    }
}

fn read_file(
    index: u64,
    file: &Value,
    rows: &mut Vec<Row>,
    tokens: &mut EndpointTokens,
) -> FtsResult<()> {
    let file = file
        .as_object()
        .ok_or_else(|| invalid("a file is not a dictionary"))?;
    let sources = urls(file, "sources")?;
    let destinations = urls(file, "destinations")?;
    tokens::read(file, &sources, &destinations, tokens)?;
    let pairs = sources.len().saturating_mul(destinations.len());
    if pairs > 1 && pairs as u64 > MAX_ORDERED_FILES {
        let text = format!("a file has at most {MAX_ORDERED_FILES} pairs of URLs");
        return Err(invalid(text));
    }
    let extra = FileExtra {
        file_index: index,
        activity: text(file, "activity").unwrap_or_else(|| "default".to_owned()),
        selection_strategy: text(file, "selection_strategy").unwrap_or_else(|| "auto".to_owned()),
        checksum: text(file, "checksum").unwrap_or_else(|| "ADLER32".to_owned()),
        user_filesize: file_size(file.get("filesize"))?,
        file_metadata: labeled(file.get("metadata"), FILE_METADATA_MAX)?,
        staging_metadata: tape(file.get("staging_metadata"))?,
        archive_metadata: tape(file.get("archive_metadata"))?,
        scitag: scitag(file.get("scitag"))?,
    };
    let attached = stored(&extra).unwrap_or_default();
    limited(attached, FILE_BYTES_MAX)?;
    for source in &sources {
        for destination in &destinations {
            rows.push(Row {
                source: source.clone(),
                destination: destination.clone(),
                extra: extra.clone(),
            });
        }
    }
    Ok(())
}

fn urls(file: &Map<String, Value>, name: &str) -> FtsResult<Vec<String>> {
    let missing = || Refusal::bad_request(format!("Missing parameter: '{name}'"));
    let list = file
        .get(name)
        .filter(|list| !list.is_null())
        .ok_or_else(missing)?;
    let list = match list {
        Value::Array(list) => list,
        // FTS3 goes through the letters of a text, and so the first of them lacks a scheme.
        Value::String(text) => {
            let first = text.chars().next().unwrap_or(' ');
            return Err(invalid(format!("Missing scheme ({first})")));
        }
        _ => return Err(invalid(format!("{name} is not a list"))),
    };
    let url = |value: &Value| {
        let url = value
            .as_str()
            .ok_or_else(|| invalid(format!("{name} holds no text")))?;
        let url = url.trim();
        check_url(url)?;
        Ok(url.to_owned())
    };
    list.iter().map(url).collect()
}

fn check_url(url: &str) -> FtsResult<()> {
    if url.len() > URL_BYTES_MAX {
        return Err(invalid(format!("a URL is longer than {URL_BYTES_MAX}")));
    }
    let Some((scheme, rest)) = url
        .split_once("://")
        .filter(|(scheme, _)| !scheme.is_empty())
    else {
        return Err(invalid(format!("Missing scheme ({url})")));
    };
    if scheme.eq_ignore_ascii_case("file") {
        return Err(invalid(format!("Can not transfer local files ({url})")));
    }
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    if host.is_empty() {
        return Err(invalid(format!("Missing host ({url})")));
    }
    match path.is_empty() {
        true => Err(invalid(format!("Missing path ({url})"))),
        false => Ok(()),
    }
}

/// The storage of a URL: its scheme and host, without the port.
pub(super) fn storage(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let authority = rest.split('/').next()?;
    let host = match authority.strip_prefix('[') {
        Some(address) => format!("[{}]", address.split(']').next()?),
        None => authority.split(':').next()?.to_owned(),
    };
    Some(format!("{scheme}://{host}"))
}

fn common<'a>(mut urls: impl Iterator<Item = &'a str>) -> Option<String> {
    let first = storage(urls.next()?)?;
    urls.all(|url| storage(url).as_ref() == Some(&first))
        .then_some(first)
}

fn text(values: &Map<String, Value>, name: &str) -> Option<String> {
    let text = values.get(name)?.as_str()?;
    (!text.is_empty()).then(|| text.to_owned())
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts saturate"
)]
fn file_size(value: Option<&Value>) -> FtsResult<u64> {
    let wrong = |text: &str| invalid(format!("could not convert string to float: '{text}'"));
    match value {
        None | Some(Value::Null) => Ok(0),
        Some(Value::Number(number)) => Ok(number
            .as_u64()
            .unwrap_or_else(|| number.as_f64().unwrap_or(0.0) as u64)),
        Some(Value::String(text)) => match text.trim().parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(number as u64),
            _ => Err(wrong(text)),
        },
        Some(other) => Err(wrong(&other.to_string())),
    }
}

/// An object, or a text as its label.
fn labeled(value: Option<&Value>, limit: usize) -> FtsResult<Value> {
    let value = match value {
        None | Some(Value::Null) => return Ok(Value::Null),
        Some(Value::String(text)) => match serde_json::from_str::<Value>(text) {
            Ok(object @ Value::Object(_)) => object,
            _ => serde_json::json!({"label": text}),
        },
        Some(object @ Value::Object(_)) => object.clone(),
        Some(_) => return Err(invalid("Metadata neither JSON nor String")),
    };
    limited(value, limit)
}

fn tape(value: Option<&Value>) -> FtsResult<Value> {
    match value {
        None | Some(Value::Null) => Ok(Value::Null),
        Some(object @ Value::Object(_)) => limited(object.clone(), TAPE_METADATA_MAX),
        Some(_) => Err(invalid("Metadata neither JSON nor String")),
    }
}

fn limited(value: Value, limit: usize) -> FtsResult<Value> {
    match value.to_string().len() <= limit {
        true => Ok(value),
        false => Err(invalid(format!(
            "Job Submission Refused, metadata exceeds size limit of {limit}"
        ))),
    }
}

fn scitag(value: Option<&Value>) -> FtsResult<Option<i64>> {
    let Some(value) = value.filter(|value| !value.is_null()) else {
        return Ok(None);
    };
    match value.as_i64().filter(|tag| SCITAGS.contains(tag)) {
        Some(tag) => Ok(Some(tag)),
        None => Err(invalid(format!(
            "Invalid SciTag value: {value} (not in [65, 65535] range)"
        ))),
    }
}

/// `params` of a submission. Null is as if it were not there.
struct Params<'a>(&'a Map<String, Value>);

impl Params<'_> {
    fn check(&self) -> FtsResult<()> {
        let refuse = |text: &str| Err(Refusal::bad_request(text));
        let flags = [
            "overwrite",
            "overwrite_on_retry",
            "overwrite_when_only_on_disk",
            "overwrite_hop",
        ];
        let mut set = Vec::new();
        for flag in flags {
            if self.truth(flag)? {
                set.push(flag);
            }
        }
        let archives = self.number("archive_timeout")?.unwrap_or(-1) > 0;
        match set.as_slice() {
            [] | [_] | ["overwrite_when_only_on_disk", "overwrite_hop"] => {}
            _ => return refuse("Incompatible overwrite flags used at the same time"),
        }
        if set.contains(&"overwrite_hop") && !self.truth("multihop")? {
            return refuse("'overwrite-hop' requires multihop job submission");
        }
        if set.contains(&"overwrite_when_only_on_disk") && !archives {
            return refuse("'overwrite-when-only-on-disk' requires 'archive-timeout' to be set");
        }
        if set.contains(&"overwrite_hop") {
            return Err(invalid(
                "overwrite_hop: overwrite is for all hops or for none",
            ));
        }
        for name in ["bring_online", "copy_pin_lifetime", "archive_timeout"] {
            if self.number(name)?.unwrap_or(-1) > 0 {
                return Err(invalid(format!("{name}: no storage served here has tapes")));
            }
        }
        match self.0.get("target_qos").is_some_and(|qos| !qos.is_null()) {
            true => Err(invalid("target_qos is not served")),
            false => Ok(()),
        }
    }

    fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name).filter(|value| !value.is_null())
    }

    fn text(&self, name: &str) -> Option<String> {
        text(self.0, name)
    }

    fn number(&self, name: &str) -> FtsResult<Option<i64>> {
        let Some(value) = self.get(name) else {
            return Ok(None);
        };
        let number = match value {
            Value::String(text) => text.trim().parse().ok(),
            value => value.as_i64(),
        };
        let wrong = || invalid(format!("{name} is expected to be an integer"));
        number.map(Some).ok_or_else(wrong)
    }

    fn truth(&self, name: &str) -> FtsResult<bool> {
        match self.get(name) {
            None => Ok(false),
            Some(Value::Bool(value)) => Ok(*value),
            Some(Value::Number(number)) => Ok(number.as_i64() != Some(0)),
            Some(Value::String(text)) => Ok(matches!(
                text.to_ascii_lowercase().as_str(),
                "y" | "yes" | "true" | "t" | "1"
            )),
            Some(_) => Err(invalid(format!("{name} is expected to be a boolean"))),
        }
    }

    fn job_type(&self, rows: &[Row]) -> FtsResult<JobType> {
        let (reuse, hops) = (self.truth("reuse")?, self.truth("multihop")?);
        let files = rows.last().map_or(0, |row| row.extra.file_index + 1);
        let has_replicas = rows.len() as u64 > files;
        match (has_replicas, hops, reuse) {
            (true, false, false) if files == 1 => Ok(JobType::Replicas),
            (true, false, false) => Err(invalid(
                "Multiple replica jobs must only have one unique file",
            )),
            (true, ..) => Err(Refusal::bad_request(
                "Can not request multiple replica job together with multihop or session reuse at \
                the same time",
            )),
            (false, true, _) => Ok(JobType::Hops),
            (false, false, true) => Ok(JobType::Reuse),
            (false, false, false) => Ok(JobType::Files),
        }
    }

    /// 1 to 5: what is outside is brought inside.
    fn priority(&self) -> FtsResult<u8> {
        let priority = self.number("priority")?.unwrap_or(3).clamp(1, 5);
        Ok(u8::try_from(priority).unwrap_or(3))
    }

    fn overwrite_flag(&self) -> FtsResult<Option<String>> {
        if self.truth("overwrite")? {
            return Ok(Some("Y".to_owned()));
        }
        let on_retry = self.truth("overwrite_on_retry")?;
        Ok(on_retry.then(|| "R".to_owned()))
    }

    fn verification(&self, rows: &[Row]) -> FtsResult<String> {
        let mode = match self.get("verify_checksum") {
            Some(Value::String(text)) if !text.is_empty() => text.to_ascii_lowercase(),
            Some(Value::Bool(true)) => "both".to_owned(),
            _ if rows.iter().any(|row| row.extra.checksum.contains(':')) => "target".to_owned(),
            _ => "none".to_owned(),
        };
        match mode.chars().next() {
            Some(letter @ ('n' | 't' | 's' | 'b')) => Ok(letter.to_string()),
            _ => Err(invalid(format!("verify_checksum: {mode}"))),
        }
    }

    /// Hours as a number, or a number with its unit.
    fn deadline(&self, now: Timestamp) -> FtsResult<Option<Timestamp>> {
        let Some(value) = self.get("max_time_in_queue") else {
            return Ok(None);
        };
        let wrong = || invalid(format!("max_time_in_queue: {value}"));
        let seconds = match value {
            Value::Number(hours) => hours.as_i64().and_then(|hours| hours.checked_mul(3600)),
            Value::String(text) => seconds_of(text.trim()),
            _ => None,
        };
        match seconds.ok_or_else(wrong)? {
            0 => Ok(None),
            seconds if seconds < 0 => Err(wrong()),
            seconds => now
                .checked_add(SignedDuration::from_secs(seconds))
                .map(Some)
                .map_err(|_| wrong()),
        }
    }

    /// What FTS3 keeps as one text.
    fn internal(&self) -> FtsResult<Option<String>> {
        let mut parts = Vec::new();
        let numbers = [
            ("nostreams", "nostreams"),
            ("timeout", "timeout"),
            ("buffer_size", "buffersize"),
        ];
        for (name, shown) in numbers {
            if let Some(number) = self.number(name)?.filter(|number| *number != 0) {
                parts.push(format!("{shown}:{number}"));
            }
        }
        for (name, shown) in [
            ("strict_copy", "strict"),
            ("disable_cleanup", "disable-cleanup"),
            ("ipv4", "ipv4"),
            ("ipv6", "ipv6"),
            ("s3alternate", "s3alternate"),
        ] {
            if self.truth(name)? {
                parts.push(shown.to_owned());
            }
        }
        Ok((!parts.is_empty()).then(|| parts.join(",")))
    }

    /// The user's, and how the user was known.
    fn metadata(&self, by: &Submitter) -> FtsResult<Value> {
        let mut metadata = match labeled(self.0.get("job_metadata"), JOB_METADATA_MAX)? {
            Value::Object(metadata) => metadata,
            _ => Map::new(),
        };
        metadata.insert("auth_method".to_owned(), by.method.clone().into());
        Ok(Value::Object(metadata))
    }
}

fn seconds_of(text: &str) -> Option<i64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return text.parse::<i64>().ok()?.checked_mul(3600),
    };
    text[..text.len() - 1]
        .parse::<i64>()
        .ok()?
        .checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn submit(body: &Value) -> FtsResult<Submitted> {
        let by = Submitter {
            dn: "/CN=a".to_owned(),
            organisation: "testvo".to_owned(),
            delegation_id: "0011".to_owned(),
            method: "certificate".to_owned(),
        };
        parse(body.to_string().as_bytes(), by, Timestamp::UNIX_EPOCH)
    }

    fn file() -> Value {
        json!({"sources": [" gsiftp://a.example:2811/p/f "], "destinations": ["gsiftp://b/q"]})
    }

    fn refused(body: &Value) -> String {
        submit(body).unwrap_err().message
    }

    #[test]
    fn a_submission_becomes_a_job() {
        let mut one = file();
        one["checksum"] = json!("ADLER32:cc737eb");
        one["filesize"] = json!("1024");
        one["metadata"] = json!("night run");
        let params = json!({"retry": 3, "overwrite": true, "priority": 9, "nostreams": 3,
            "strict_copy": true, "max_time_in_queue": "90m", "job_metadata": {"issuer": "rucio"}});
        let job = submit(&json!({"files": [one, file()], "params": params})).unwrap();
        assert_eq!(job.options.attempts, 4);
        assert_eq!(job.options.priority, 5);
        assert_eq!(job.options.overwrite, Overwrite::Always);
        assert_eq!(job.options.verify, Verify::Checksum);
        assert_eq!(job.options.deadline.unwrap().as_second(), 5400);
        let extra: JobExtra = extra(job.options.metadata.as_ref()).unwrap();
        assert_eq!(extra.verify_checksum, "t");
        assert_eq!(
            extra.internal_job_params.as_deref(),
            Some("nostreams:3,strict")
        );
        assert_eq!(extra.source_se.as_deref(), Some("gsiftp://a.example"));
        let metadata = json!({"issuer": "rucio", "auth_method": "certificate"});
        assert_eq!(extra.job_metadata, metadata);
        let [first, second] = job.files.as_slice() else {
            panic!("two files were submitted");
        };
        assert_eq!(first.source, "gsiftp://a.example:2811/p/f");
        assert_eq!(first.bytes, Some(1024));
        assert_eq!(first.checksum.as_deref(), Some("adler32:0cc737eb"));
        assert_eq!(
            first.metadata.as_ref().unwrap()["fts"]["file_metadata"]["label"],
            "night run"
        );
        assert_eq!(second.checksum, None);
        assert_eq!(second.metadata.as_ref().unwrap()["fts"]["file_index"], 1);
    }

    #[test]
    fn null_is_the_default() {
        let mut one = file();
        for name in ["checksum", "filesize", "activity", "metadata", "scitag"] {
            one[name] = Value::Null;
        }
        let params = json!({"retry": null, "overwrite": null, "verify_checksum": null,
            "max_time_in_queue": null, "bring_online": null, "account": "x"});
        let job = submit(&json!({"files": [one], "params": params})).unwrap();
        assert_eq!(job.options.attempts, JobOptions::default().attempts);
        assert_eq!(job.options.verify, Verify::Size);
        assert_eq!(
            job.files[0].metadata.as_ref().unwrap()["fts"]["activity"],
            "default"
        );
    }

    #[test]
    fn refusals_have_the_texts_of_fts() {
        let with = |name: &str, value: Value| {
            let mut one = file();
            one[name] = value;
            json!({"files": [one]})
        };
        let params = |params: Value| json!({"files": [file()], "params": params});
        let parse_text = |text: &[u8]| {
            let by = Submitter {
                dn: String::new(),
                organisation: String::new(),
                delegation_id: String::new(),
                method: String::new(),
            };
            parse(text, by, Timestamp::UNIX_EPOCH).unwrap_err().message
        };
        assert_eq!(parse_text(b"{"), "Badly formatted JSON request");
        assert_eq!(refused(&json!([])), "Expecting a dictionary");
        assert_eq!(refused(&json!({})), "No transfers operations specified");
        assert_eq!(refused(&json!({"files": []})), "No valid pairs available");
        let cases = [
            (
                with("destinations", Value::Null),
                "Missing parameter: 'destinations'",
            ),
            (
                with("sources", json!(["file:///a/b"])),
                "Can not transfer local files (file:///a/b)",
            ),
            (
                with("sources", json!(["https://a/"])),
                "Missing path (https://a/)",
            ),
            (with("sources", json!(["x"])), "Missing scheme (x)"),
            (with("sources", json!("https://a/b")), "Missing scheme (h)"),
            (
                with("scitag", json!(5)),
                "Invalid SciTag value: 5 (not in [65, 65535] range)",
            ),
            (
                with("metadata", json!([1])),
                "Metadata neither JSON nor String",
            ),
            (
                with("filesize", json!("abc")),
                "could not convert string to float: 'abc'",
            ),
            (
                params(json!({"job_metadata": "x".repeat(3000)})),
                "Job Submission Refused, metadata exceeds size limit of 2048",
            ),
            (
                params(json!({"overwrite": true, "overwrite_on_retry": true})),
                "Incompatible overwrite flags used at the same time",
            ),
            (
                params(json!({"overwrite_hop": true})),
                "'overwrite-hop' requires multihop job submission",
            ),
            (
                params(json!({"overwrite_when_only_on_disk": true})),
                "'overwrite-when-only-on-disk' requires 'archive-timeout' to be set",
            ),
        ];
        for (body, text) in cases {
            assert!(refused(&body).ends_with(text), "{body}: {}", refused(&body));
        }
    }

    #[test]
    fn replicas_and_hops_are_files_with_an_order() {
        let mut replicas = file();
        replicas["sources"] = json!(["gsiftp://a/f", "gsiftp://c/f"]);
        let job = submit(&json!({"files": [&replicas]})).unwrap();
        assert_eq!(job.options.order, FileOrder::Alternatives);
        assert_eq!(job.options.attempts, 1);
        let of_job: JobExtra = extra(job.options.metadata.as_ref()).unwrap();
        assert_eq!((of_job.job_type.as_str(), of_job.source_se), ("R", None));
        let index = |file: &FileRequest| {
            let extra: FileExtra = extra(file.metadata.as_ref()).unwrap();
            extra.file_index
        };
        assert_eq!(job.files.iter().map(index).collect::<Vec<_>>(), [0, 0]);
        let hop = json!({"sources": ["gsiftp://b/q"], "destinations": ["gsiftp://c/r"]});
        let params = json!({"multihop": true});
        let job = submit(&json!({"files": [file(), hop], "params": params})).unwrap();
        assert_eq!(job.options.order, FileOrder::Hops);
        let extra: JobExtra = extra(job.options.metadata.as_ref()).unwrap();
        assert_eq!(extra.dest_se.as_deref(), Some("gsiftp://c"));
        for (body, text) in [
            (
                json!({"files": [&replicas, file()]}),
                "Multiple replica jobs must only have one unique file",
            ),
            (
                json!({"files": [&replicas], "params": {"multihop": true}}),
                "together with multihop or session reuse at the same time",
            ),
            (
                json!({"files": [{"sources": vec!["gsiftp://a/f"; 101],
                    "destinations": ["gsiftp://b/q"]}]}),
                "a file has at most 100 pairs of URLs",
            ),
        ] {
            assert!(refused(&body).ends_with(text), "{}", refused(&body));
        }
    }

    #[test]
    fn storages_have_no_port() {
        let of = |url| storage(url).unwrap();
        assert_eq!(of("gsiftp://h:2811/x"), "gsiftp://h");
        assert_eq!(of("https://[::1]:443/x"), "https://[::1]");
    }
}
