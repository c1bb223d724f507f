//! A job from a command line, a list of files or another job.

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    mem,
    path::{Path, PathBuf},
};

use godwit_service_api::{
    IDEMPOTENCY_KEY,
    job::{FileRequest, JobRequest, JobView},
};
use reqwest::{Body, Method, header::CONTENT_TYPE};
use tokio::sync::mpsc;
use uuid::Uuid;

use super::{
    CloneRequest, Submission,
    connection::{Connection, ServiceError, failed},
};

/// Most bytes of a line of a list.
const MAX_LINE_BYTES: u64 = 64 << 10;

/// Lines are sent in parts of about this size.
const PART_BYTES: usize = 256 << 10;

/// Submits it as a stream of lines, so that a list may be of any length.
pub(super) async fn submit(
    connection: &Connection,
    submission: Submission,
) -> Result<JobView, ServiceError> {
    let head = JobRequest {
        files: Vec::new(),
        options: submission.options,
    };
    let (parts, stream) = mpsc::channel(4);
    let (files, list) = (submission.files, submission.list);
    let reader = tokio::task::spawn_blocking(move || lines(&head, &files, list, &parts));
    let request = connection
        .request(Method::POST, "/jobs")
        .header(CONTENT_TYPE, "application/x-ndjson")
        .header(IDEMPOTENCY_KEY, key(submission.idempotency_key))
        .body(Body::wrap_stream(
            tokio_stream::wrappers::ReceiverStream::new(stream),
        ));
    let answer = connection.fetch(request).await;
    // A flaw of the list is the cause of what the service says of a body that broke off.
    match reader.await {
        Ok(Err(error)) => Err(error),
        _ => answer,
    }
}

/// Submits the files and options of another job.
pub(super) async fn again(
    connection: &Connection,
    clone: &CloneRequest,
) -> Result<JobView, ServiceError> {
    let request = connection
        .request(Method::POST, &format!("/jobs/{}/clone", clone.id))
        .query(&[("paused", clone.paused)])
        .header(IDEMPOTENCY_KEY, key(clone.idempotency_key.clone()));
    connection.fetch(request).await
}

/// A repetition after a lost answer must not make a second job.
fn key(given: Option<String>) -> String {
    given.unwrap_or_else(|| Uuid::now_v7().to_string())
}

type BodyChunk = Result<Vec<u8>, io::Error>;

/// Sends the lines of the body; ends early where the receiver is gone.
fn lines(
    head: &JobRequest,
    files: &[FileRequest],
    list: Option<PathBuf>,
    parts: &mpsc::Sender<BodyChunk>,
) -> Result<(), ServiceError> {
    let mut part = Vec::new();
    push(&mut part, head);
    for file in files {
        push(&mut part, file);
    }
    if let Some(path) = list {
        let read = read_list(&path, |file| {
            push(&mut part, &file);
            part.len() < PART_BYTES || parts.blocking_send(Ok(mem::take(&mut part))).is_ok()
        });
        if let Err(error) = read {
            let broken = io::Error::new(io::ErrorKind::InvalidData, error.to_string());
            let _ = parts.blocking_send(Err(broken));
            return Err(error);
        }
    }
    let _ = parts.blocking_send(Ok(part));
    Ok(())
}

/// Reads a list until its end, or until `take` wants no more.
pub(super) fn read_list(
    path: &Path,
    mut take: impl FnMut(FileRequest) -> bool,
) -> Result<(), ServiceError> {
    let mut reader: Box<dyn BufRead> = match path.as_os_str() == "-" {
        true => Box::new(io::stdin().lock()),
        false => Box::new(BufReader::new(
            File::open(path).map_err(|e| failed(path, e))?,
        )),
    };
    let mut text = Vec::new();
    for line in 1.. {
        text.clear();
        let limited = io::Read::take(&mut reader, MAX_LINE_BYTES).read_until(b'\n', &mut text);
        if limited.map_err(|e| failed(path, e))? == 0 {
            break;
        }
        let wrong = |why: String| ServiceError::List {
            path: path.to_owned(),
            line,
            why,
        };
        let text = std::str::from_utf8(&text).map_err(|_| wrong("it is not UTF-8".to_owned()))?;
        if let Some(file) = entry(text).map_err(wrong)?
            && !take(file)
        {
            break;
        }
    }
    Ok(())
}

/// A line of a list; `None` for an empty one and a comment.
fn entry(text: &str) -> Result<Option<FileRequest>, String> {
    let text = text.trim();
    if text.is_empty() || text.starts_with('#') {
        return Ok(None);
    }
    if text.starts_with('{') {
        return serde_json::from_str(text)
            .map(Some)
            .map_err(|error| error.to_string());
    }
    let mut words = text.split_whitespace();
    match (words.next(), words.next(), words.next()) {
        (Some(source), Some(destination), None) => Ok(Some(FileRequest {
            source: source.to_owned(),
            destination: destination.to_owned(),
            ..FileRequest::default()
        })),
        _ => Err("wanted SOURCE DESTINATION, or a JSON object".to_owned()),
    }
}

fn push<T: serde::Serialize>(part: &mut Vec<u8>, value: &T) {
    serde_json::to_writer(&mut *part, value).expect("plain data is JSON");
    part.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_pair_or_json() {
        let file = entry("gsiftp://a/x gsiftp://b/x\n")
            .expect("a pair")
            .expect("a file");
        assert_eq!(
            (&*file.source, &*file.destination),
            ("gsiftp://a/x", "gsiftp://b/x")
        );
        let json = r#"{"source":"ftp://a/x","destination":"ftp://b/x","bytes":7}"#;
        assert_eq!(entry(json).expect("JSON").expect("a file").bytes, Some(7));
        assert_eq!(entry("  # a comment").expect("skipped"), None);
        assert!(entry("one").is_err());
        assert!(entry("one two three").is_err());
        assert!(entry(r#"{"source":"a","destination":"b","sise":7}"#).is_err());
    }
}
