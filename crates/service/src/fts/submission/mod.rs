//! A submission of FTS3 as a job of ours. Pure: no database, no clock.

mod files;
mod params;
mod values;

use godwit_service_api::job::{FileOrder, FileRequest, JobOptions, Overwrite, Verify};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub(super) use self::{
    files::storage,
    values::{extra, stored_extra},
};
use self::{
    files::{common, read_file},
    params::{JobType, Params},
    values::stored,
};
use super::{
    refusal::{FtsResult, Refusal, invalid},
    tokens::EndpointTokens,
};

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

/// A job as it is stored.
#[derive(Debug)]
pub(super) struct Submitted {
    pub(super) options: JobOptions,
    pub(super) files: Vec<FileRequest>,
    pub(super) tokens: EndpointTokens,
    /// The client's own name for it, from which both compute the id.
    pub(super) sid: Option<String>,
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
        job_metadata: params.metadata(&by.method)?,
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
            let extra: files::FileExtra = extra(file.metadata.as_ref()).unwrap();
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
