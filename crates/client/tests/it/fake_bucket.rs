//! A service of S3 with one upload and one object, in memory, that fails, lies and is slow as a
//! test wants it to.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    sync::{Arc, Mutex},
};

use crate::{
    harness::{Ran, bytes, godwit, text},
    hostile_http::{FakeHttp, Heard, send},
};

pub(crate) const MIB: usize = 1 << 20;

/// Bytes of a part of the files below.
pub(crate) const PART: usize = 5 * MIB;

pub(crate) const SECRET: &str = "s3cretKey";

/// What the service has.
#[derive(Default)]
pub(crate) struct State {
    /// Bytes of each part of the one upload.
    pub(crate) parts: BTreeMap<u32, usize>,
    pub(crate) begun: u32,
    pub(crate) completed: u32,
    pub(crate) aborted: u32,
    /// The mark that the upload was begun with.
    pub(crate) mark: String,
    /// Bytes of the object that came of it, and its mark.
    pub(crate) object: Option<(usize, String)>,
    /// Of the object `o`.
    pub(crate) content: Option<&'static [u8]>,
    /// Requests that were answered by a fault.
    pub(crate) faults: u32,
}

pub(crate) struct Bucket {
    pub(crate) server: FakeHttp,
    pub(crate) state: Arc<Mutex<State>>,
    pub(crate) here: tempfile::TempDir,
}

impl Bucket {
    pub(crate) fn start(
        fault: impl Fn(&Heard, &mut State, &mut TcpStream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let state = Arc::<Mutex<State>>::default();
        let own = Arc::clone(&state);
        let server = FakeHttp::start(move |heard, stream| {
            let mut state = own.lock().unwrap();
            if fault(heard, &mut state, stream) {
                state.faults += 1;
            } else {
                answer(heard, &mut state, stream);
            }
        });
        Self {
            server,
            state,
            here: tempfile::tempdir().unwrap(),
        }
    }

    pub(crate) fn command(&self, arguments: &[&str]) -> std::process::Command {
        let mut command = godwit(arguments);
        let none = self.here.path().join("none");
        command
            .env("AWS_ENDPOINT_URL", self.server.url(""))
            .env("AWS_ACCESS_KEY_ID", "AKID")
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("AWS_SESSION_TOKEN", "t0ken")
            .env("AWS_CONFIG_FILE", &none)
            .env("AWS_SHARED_CREDENTIALS_FILE", &none)
            .env_remove("AWS_PROFILE");
        command
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// A file of four parts and a little more.
    pub(crate) fn large(&self) -> String {
        let path = self.here.path().join("large");
        fs::write(&path, bytes(4 * PART + 5, 1)).unwrap();
        text(&path).to_owned()
    }

    pub(crate) fn put(&self, more: &[&str]) -> Ran {
        let large = self.large();
        let ends = [&large[..], "s3://mine/large"];
        self.run(&[&["cp"], more, &ends].concat())
    }
}

pub(crate) fn value<'a>(heard: &'a Heard, name: &str) -> Option<&'a str> {
    let query = heard.1.split_once('?')?.1;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

pub(crate) fn length(heard: &Heard) -> usize {
    let mut lines = heard.2.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.map_or(0, |length| length.trim().parse().unwrap())
}

pub(crate) fn complete(state: &mut State) {
    state.completed += 1;
    state.object = Some((state.parts.values().sum(), state.mark.clone()));
    state.parts.clear();
}

/// The answer to HEAD of an object.
pub(crate) fn head(stream: &mut TcpStream, size: usize, mark: &str) {
    let head = format!(
        "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: \"x\"\r\n\
         x-amz-meta-godwit-upload: {mark}\r\n\
         Last-Modified: Mon, 12 Jan 2026 09:25:24 GMT\r\n\r\n"
    );
    drop(std::io::Write::write_all(stream, head.as_bytes()));
}

/// A service that has no object but that of the upload.
pub(crate) fn answer(heard: &Heard, state: &mut State, stream: &mut TcpStream) {
    let is_of_upload = value(heard, "uploadId").is_some();
    match heard.0.as_str() {
        "HEAD" if !heard.1[1..].contains('/') => send(stream, "200 OK", "", b""),
        "HEAD" if heard.1.ends_with("/o") && state.content.is_some() => {
            head(stream, state.content.map_or(0, <[u8]>::len), "");
        }
        "GET" if heard.1.ends_with("/o") && state.content.is_some() => {
            object(heard, "one", state.content.unwrap_or_default(), stream);
        }
        "HEAD" => match &state.object {
            Some((size, mark)) => head(stream, *size, mark),
            None => send(stream, "404 Not Found", "", b""),
        },
        "POST" if is_of_upload => {
            complete(state);
            let made = b"<CompleteMultipartUploadResult><ETag>\"x-5\"</ETag>\
                </CompleteMultipartUploadResult>";
            send(stream, "200 OK", "", made);
        }
        "POST" => {
            state.begun += 1;
            let mut lines = heard.2.lines();
            let mark = lines.find_map(|line| line.strip_prefix("x-amz-meta-godwit-upload: "));
            state.mark = mark.unwrap().trim().to_owned();
            let begun = b"<InitiateMultipartUploadResult><UploadId>the id</UploadId>\
                </InitiateMultipartUploadResult>";
            send(stream, "200 OK", "", begun);
        }
        "DELETE" if is_of_upload => {
            state.aborted += 1;
            state.parts.clear();
            send(stream, "204 No Content", "", b"");
        }
        "PUT" => {
            if let Some(number) = value(heard, "partNumber") {
                state.parts.insert(number.parse().unwrap(), length(heard));
            }
            send(stream, "200 OK", "ETag: \"p\"\r\n", b"");
        }
        "GET" if is_of_upload => {
            let mut body = "<ListPartsResult><IsTruncated>false</IsTruncated>".to_owned();
            for (number, size) in &state.parts {
                body += &format!(
                    "<Part><PartNumber>{number}</PartNumber><Size>{size}</Size>\
                     <ETag>\"p\"</ETag></Part>"
                );
            }
            send(
                stream,
                "200 OK",
                "",
                (body + "</ListPartsResult>").as_bytes(),
            );
        }
        _ => {
            let none = b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>";
            send(stream, "200 OK", "", none);
        }
    }
}

pub(crate) const SLOW_DOWN: &[u8] = b"<Error><Code>SlowDown</Code><Message>less</Message></Error>";
pub(crate) const INTERNAL: &[u8] =
    b"<Error><Code>InternalError</Code><Message>again</Message></Error>";

pub(crate) fn is_completion(heard: &Heard) -> bool {
    heard.0 == "POST" && value(heard, "uploadId").is_some()
}

pub(crate) fn is_part(heard: &Heard) -> bool {
    value(heard, "partNumber").is_some()
}

pub(crate) fn lists_parts(heard: &Heard) -> bool {
    heard.0 == "GET" && value(heard, "uploadId").is_some()
}

/// Answers that there is no such upload, once it was completed.
pub(crate) fn is_gone(heard: &Heard, state: &State, stream: &mut TcpStream) -> bool {
    let is_gone = lists_parts(heard) && state.completed > 0;
    if is_gone {
        let body = b"<Error><Code>NoSuchUpload</Code><Message>gone</Message></Error>";
        send(stream, "404 Not Found", "", body);
    }
    is_gone
}

/// An object of so many bytes, each version of which is asked for by its tag.
pub(crate) fn object(heard: &Heard, tag: &str, content: &[u8], stream: &mut TcpStream) {
    let range = heard
        .2
        .lines()
        .find_map(|line| line.strip_prefix("range: bytes="));
    let ends = range.and_then(|range| {
        let (start, end) = range.trim().split_once('-')?;
        Some((start.parse().ok()?, end.parse().ok()?))
    });
    let (start, end): (usize, usize) = ends.unwrap_or((0, content.len() - 1));
    let size = content.len();
    let headers = format!(
        "ETag: \"{tag}\"\r\nLast-Modified: Mon, 12 Jan 2026 09:25:24 GMT\r\n\
         Accept-Ranges: bytes\r\nContent-Range: bytes {start}-{end}/{size}\r\n"
    );
    match ends {
        Some(_) => send(
            stream,
            "206 Partial Content",
            &headers,
            &content[start..=end],
        ),
        None => send(stream, "200 OK", &headers, content),
    }
}
