//! What the fuzz targets `service_submission`, `service_poll`, `service_fts` and `service_schedule`
//! do with bytes of users and agents; the tests below replay their corpora through the same
//! functions.

use godwit_proto::url::Location;
use godwit_service_api::{
    agent::{FileEnd, PollRequest},
    job::{
        FileRequest, JobRequest, MAX_FILE_BYTES, MAX_ORDERED_FILES, MAX_URL_BYTES, Notification,
    },
};

use jiff::Timestamp;

use crate::{
    api::policy::EndpointPolicy,
    fts,
    gateway::bounds,
    store::{RequestDigest, endpoint_of, found},
    timetable::Timetable,
};

/// A submission as one object, or a line of one: nothing panics, and what is accepted goes where
/// the queue says.
pub(crate) fn submission(bytes: &[u8]) {
    let policies = [
        EndpointPolicy::default(),
        EndpointPolicy {
            endpoints: vec!["*.example.org:*".to_owned()],
            local: vec!["/data".into()],
            ..EndpointPolicy::default()
        },
        EndpointPolicy {
            endpoints: vec!["*".to_owned()],
            personal: true,
            ..EndpointPolicy::default()
        },
    ];
    let job: JobRequest = serde_json::from_slice(bytes).unwrap_or_default();
    let line: Option<FileRequest> = serde_json::from_slice(bytes).ok();
    let mut digest = RequestDigest::new(&job.options).expect("options are JSON");
    for file in job.files.iter().chain(&line) {
        digest.add(file).expect("a file is JSON");
        for policy in &policies {
            if policy.check_file(file).is_ok() {
                accepted(&file.source);
                accepted(&file.destination);
                assert!(file.bytes.is_none_or(|bytes| bytes <= MAX_FILE_BYTES));
            }
        }
        let written = serde_json::to_vec(file).expect("a file is JSON");
        let read: FileRequest = serde_json::from_slice(&written).expect("what we write we read");
        assert_eq!(&read, file);
    }
    assert_eq!(digest.finish().len(), 32);
    let mail_to = Some(vec!["*@example.org".to_owned()]);
    let mail = EndpointPolicy {
        mail_to,
        ..EndpointPolicy::default()
    };
    for notification in &job.options.notify {
        match notification {
            Notification::Webhook { url } => {
                let _ = policies[0].check_webhook(url);
            }
            Notification::Mail { address } => {
                let is_taken = mail.check_mail(address).is_ok();
                assert!(!is_taken || address.parse::<lettre::Address>().is_ok());
                assert!(!is_taken || address.to_lowercase().ends_with("@example.org"));
            }
        }
    }
}

/// The agent connects to the endpoint that the service counts.
fn accepted(url: &str) {
    assert!(url.len() <= MAX_URL_BYTES && !url.contains(char::is_control));
    let endpoint = endpoint_of(url).expect("an accepted URL has an endpoint");
    assert_eq!(endpoint_of(&endpoint).as_ref(), Some(&endpoint));
    match Location::parse(url.as_bytes()).expect("an accepted URL is one") {
        Location::Remote(remote) => {
            assert!(remote.user.is_none() && remote.password.is_none());
            let host = remote.host.to_ascii_lowercase();
            let shown = match host.contains(':') {
                true => format!("[{host}]"),
                false => host,
            };
            let meant = format!("{}://{shown}:{}", remote.scheme.as_str(), remote.port);
            assert_eq!(endpoint_of(&meant), Some(endpoint));
        }
        Location::Local(path) => {
            assert!(path.starts_with(b"/data/") || path == b"/data", "{url}");
            assert!(!path.split(|byte| *byte == b'/').any(|name| name == b".."));
        }
        Location::Standard => panic!("{url} is no place"),
    }
}

/// A submission of FTS3: nothing panics, and what is accepted is bounded and goes where the queue
/// says.
pub(crate) fn fts(bytes: &[u8]) {
    let policy = EndpointPolicy::default();
    let Some((options, files)) = fts::hear_submission(bytes) else {
        return;
    };
    assert!((1..=100).contains(&options.attempts) && (1..=5).contains(&options.priority));
    assert!(!files.is_empty());
    assert!(options.order.is_any() || files.len() as u64 <= MAX_ORDERED_FILES);
    for file in &files {
        assert!(!file.recursive);
        if policy.check_copy(file).is_ok() {
            accepted(&file.source);
            accepted(&file.destination);
        }
    }
}

/// A poll: nothing panics, and what is kept of it is short, plain and finite.
pub(crate) fn poll(bytes: &[u8]) {
    let Ok(mut poll) = serde_json::from_slice::<PollRequest>(bytes) else {
        return;
    };
    bounds::apply(&mut poll);
    let agent = &poll.description;
    let texts = agent.labels.iter().chain(&agent.endpoints);
    for text in texts.chain([&agent.version, &agent.host]) {
        plain(text);
    }
    for unit in &poll.units {
        assert!(unit.goodput.is_finite() && unit.goodput >= 0.0);
        assert!(unit.bytes <= MAX_FILE_BYTES && unit.open_bytes <= unit.bytes);
        unit.limited_by.iter().for_each(|text| plain(text));
    }
    let directory = FileRequest {
        source: "ftp://a.example.org/tree".to_owned(),
        destination: "ftp://b.example.org/copy".to_owned(),
        recursive: true,
        ..FileRequest::default()
    };
    for result in &poll.results {
        for file in &result.files {
            match &file.end {
                FileEnd::Finished { size, checksum } => {
                    assert!(*size <= MAX_FILE_BYTES);
                    checksum.iter().for_each(|text| plain(text));
                }
                // The store takes no name that is not plain.
                FileEnd::Divided(_) | FileEnd::Skipped | FileEnd::Copied => {}
                FileEnd::Failed(error) => plain(&error.message),
            }
        }
        result.error.iter().for_each(|error| plain(&error.message));
        result.undivided.iter().for_each(|file| plain(&file.reason));
        let placed = found::placed(&directory, &result.found).unwrap_or_default();
        for (source, destination, file) in placed {
            assert_eq!(source, "ftp://a.example.org");
            assert_eq!(destination, "ftp://b.example.org");
            assert!(file.source.starts_with("ftp://a.example.org/tree/"));
            assert!(file.destination.starts_with("ftp://b.example.org/copy/"));
            accepted(&file.source);
        }
    }
    let written = serde_json::to_vec(&poll).expect("a poll is JSON");
    serde_json::from_slice::<PollRequest>(&written).expect("what we write we read");
}

/// A cron expression, a time zone and a second, each a line: nothing panics, and times go on.
pub(crate) fn schedule(bytes: &[u8]) {
    let Some((timetable, mut at)) = timetable(bytes) else {
        return;
    };
    for _ in 0..4 {
        let Some(next) = timetable.next(at) else {
            return;
        };
        assert!(next > at, "{at} {next}");
        at = next;
    }
}

fn timetable(bytes: &[u8]) -> Option<(Timetable, Timestamp)> {
    let mut lines = str::from_utf8(bytes).ok()?.splitn(3, '\n');
    let timetable = Timetable::parse(lines.next()?, lines.next()?).ok()?;
    let at = Timestamp::from_second(lines.next()?.trim().parse().ok()?).ok()?;
    Some((timetable, at))
}

fn plain(text: &str) {
    assert!(text.len() <= 1000 && !text.contains(char::is_control));
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{
        replay::{Target, check_targets, replay},
        *,
    };

    const TARGETS: &[Target] = &[
        ("service_fts", fts),
        ("service_poll", poll),
        ("service_schedule", schedule),
        ("service_submission", submission),
    ];

    #[test]
    fn corpora_of_the_service_run_clean() {
        check_targets(TARGETS, |name| name.starts_with("service_"));
        for (target, run) in TARGETS {
            let mut understood = 0;
            replay(target, |bytes| {
                run(bytes);
                understood += usize::from(serde_json::from_slice::<PollRequest>(bytes).is_ok());
                understood += usize::from(serde_json::from_slice::<JobRequest>(bytes).is_ok());
                understood += usize::from(crate::fts::hear_submission(bytes).is_some());
                understood += usize::from(timetable(bytes).is_some());
            });
            assert!(
                understood > 1,
                "{target}: only {understood} inputs are understood"
            );
        }
    }

    proptest! {
        #[test]
        fn any_url_runs_clean(
            scheme in "(gsiftp|ftp|FTPES|sshftp|file|http|[a-z]{0,3})",
            rest in "[ -~]{0,40}",
            host in "[a-zA-Z0-9.:%@\\[\\]-]{0,24}",
            text: String,
        ) {
            for url in [
                format!("{scheme}://{host}"),
                format!("{scheme}://{host}/{rest}"),
                format!("{scheme}://{rest}"),
                format!("{scheme}:{text}"),
                text.clone(),
            ] {
                let file = serde_json::json!({
                    "source": &url, "destination": "ftp://b.example.org/x", "checksum": &text,
                });
                submission(file.to_string().as_bytes());
                let mail = serde_json::json!({"mail": {"address": &text}});
                let options = serde_json::json!({
                    "name": &text, "notify": [{"webhook": {"url": &url}}, mail],
                });
                let job = serde_json::json!({"files": [file], "options": options});
                submission(job.to_string().as_bytes());
            }
        }

        #[test]
        fn any_text_of_a_client_of_fts_runs_clean(text: String, number: i64, real: f64) {
            for value in [serde_json::json!(&text), number.into(), real.into(), vec![text].into()] {
                let url = format!("gsiftp://a.example.org/{}", value.as_str().unwrap_or("x"));
                let file = serde_json::json!({
                    "sources": [&url, &value], "destinations": [&url], "filesize": &value,
                    "checksum": &value, "metadata": &value, "scitag": &value,
                    "source_tokens": [&value, &value], "destination_tokens": [&value],
                });
                let plain = serde_json::json!({"sources": [&url], "destinations": [&url]});
                let params = serde_json::json!({
                    "retry": &value, "priority": &value, "max_time_in_queue": &value,
                    "verify_checksum": &value, "overwrite": &value, "multihop": &value,
                    "reuse": &value, "job_metadata": &value, "bring_online": &value,
                });
                for files in [vec![file.clone()], vec![plain.clone()], vec![plain, file]] {
                    fts(serde_json::json!({"files": &files}).to_string().as_bytes());
                    let whole = serde_json::json!({"files": files, "params": &params});
                    fts(whole.to_string().as_bytes());
                }
            }
        }

        #[test]
        fn any_text_of_an_agent_runs_clean(text: String, number: u64, rate: f64) {
            let lease = serde_json::json!({"unit": 1, "epoch": 1});
            let error = serde_json::json!({
                "code": &text, "message": &text, "who": "user", "may_pass": true,
            });
            let unit = serde_json::json!({
                "lease": &lease, "bytes": number, "open_bytes": number, "files": number,
                "goodput": rate, "setting": {"concurrency": 1, "parallelism": 1},
                "limited_by": &text,
            });
            let found = serde_json::json!({
                "source": format!("ftp://a.example.org/tree/{text}"),
                "destination": format!("ftp://b.example.org/copy/{text}"),
                "directory": false, "bytes": number,
            });
            let files = serde_json::json!([
                {"index": number, "bytes": number, "end": {"failed": &error}},
                {"index": 0, "bytes": 0, "end": {"finished": {"size": number, "checksum": &text}}},
            ]);
            let result = serde_json::json!({
                "lease": &lease, "sequence": number, "files": files, "found": [found],
                "last": true, "error": &error,
            });
            let description = serde_json::json!({
                "version": &text, "host": &text, "labels": [&text], "endpoints": [&text],
                "slots": 1,
            });
            let whole = serde_json::json!({
                "protocol": 1, "agent": &text, "incarnation": uuid::Uuid::nil(),
                "sequence": number, "description": description, "free_slots": 1,
                "units": [unit], "results": [result], "wait_seconds": number,
            });
            // Not all floats are JSON.
            let understood = serde_json::from_value::<PollRequest>(whole.clone());
            prop_assert!(understood.is_ok() || !rate.is_finite());
            poll(whole.to_string().as_bytes());
        }
    }
}
