//! Buckets whose service fails, lies and is slow; tests of `crates/lab` have real ones.

use std::{
    collections::BTreeMap,
    fs,
    net::TcpStream,
    path::Path,
    sync::{Arc, Mutex},
};

use crate::{
    harness::{Ran, bytes, godwit, nap, text},
    hostile_http::{FakeHttp, Heard, send},
};

const MIB: usize = 1 << 20;

/// Bytes of a part of the files below.
const PART: usize = 8 * MIB;

const SECRET: &str = "s3cretKey";

/// What the service has.
#[derive(Default)]
struct State {
    /// Bytes of each part of the one upload.
    parts: BTreeMap<u32, usize>,
    begun: u32,
    completed: u32,
    aborted: u32,
    /// Requests that were answered by a fault.
    faults: u32,
}

/// `true`: the request is answered.
type Fault = fn(&Heard, &mut State, &mut TcpStream) -> bool;

struct Bucket {
    server: FakeHttp,
    state: Arc<Mutex<State>>,
    here: tempfile::TempDir,
}

impl Bucket {
    fn start(fault: Fault) -> Self {
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

    fn command(&self, arguments: &[&str]) -> std::process::Command {
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

    fn run(&self, arguments: &[&str]) -> Ran {
        self.command(arguments).output().unwrap().into()
    }

    /// A file of four parts and a little more.
    fn large(&self) -> String {
        let path = self.here.path().join("large");
        fs::write(&path, bytes(4 * PART + 5, 1)).unwrap();
        text(&path).to_owned()
    }

    fn put(&self, more: &[&str]) -> Ran {
        let large = self.large();
        let ends = [&large[..], "s3://mine/large"];
        self.run(&[&["cp"], more, &ends].concat())
    }
}

fn value<'a>(heard: &'a Heard, name: &str) -> Option<&'a str> {
    let query = heard.1.split_once('?')?.1;
    let mut pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(key, _)| *key == name).map(|(_, value)| value)
}

fn length(heard: &Heard) -> usize {
    let mut lines = heard.2.lines();
    let length = lines.find_map(|line| line.strip_prefix("content-length: "));
    length.map_or(0, |length| length.trim().parse().unwrap())
}

/// A service that has no object.
fn answer(heard: &Heard, state: &mut State, stream: &mut TcpStream) {
    let is_of_upload = value(heard, "uploadId").is_some();
    match heard.0.as_str() {
        "HEAD" if !heard.1[1..].contains('/') => send(stream, "200 OK", "", b""),
        "HEAD" => send(stream, "404 Not Found", "", b""),
        "POST" if is_of_upload => {
            state.completed += 1;
            state.parts.clear();
            let made = b"<CompleteMultipartUploadResult><ETag>\"x-5\"</ETag>\
                </CompleteMultipartUploadResult>";
            send(stream, "200 OK", "", made);
        }
        "POST" => {
            state.begun += 1;
            let begun = b"<InitiateMultipartUploadResult><UploadId>the id</UploadId>\
                </InitiateMultipartUploadResult>";
            send(stream, "200 OK", "", begun);
        }
        "DELETE" if is_of_upload => {
            state.aborted += 1;
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

const SLOW_DOWN: &[u8] = b"<Error><Code>SlowDown</Code><Message>less</Message></Error>";
const INTERNAL: &[u8] = b"<Error><Code>InternalError</Code><Message>again</Message></Error>";

fn is_completion(heard: &Heard) -> bool {
    heard.0 == "POST" && value(heard, "uploadId").is_some()
}

fn is_part(heard: &Heard) -> bool {
    value(heard, "partNumber").is_some()
}

#[test]
fn a_large_file_goes_in_equal_parts_and_is_there_when_all_are() {
    let bucket = Bucket::start(|_, _, _| false);
    bucket.put(&["-p", "3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 1, 0));
    let parts = bucket.server.heard("PUT");
    let mut sizes: Vec<_> = parts.iter().map(length).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [5, PART, PART, PART, PART]);
    assert!(
        parts
            .iter()
            .all(|part| part.2.contains("x-amz-checksum-crc32c: "))
    );
    let begun = &bucket.server.heard("POST")[0];
    let modified = fs::metadata(bucket.here.path().join("large"))
        .unwrap()
        .modified()
        .unwrap();
    let since = modified
        .duration_since(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let said = format!("x-amz-meta-mtime: {}\r", since.as_secs());
    assert!(begun.2.contains(&said), "{}", begun.2);
}

#[test]
fn an_error_with_status_200_completes_nothing_and_is_tried_again() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_completion(heard) && state.faults == 0;
        if fails {
            send(stream, "200 OK", "", INTERNAL);
        }
        fails
    });
    bucket.put(&["--retries=3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 1));
}

#[test]
fn an_upload_that_fails_for_good_is_aborted() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = is_completion(heard);
        if fails {
            send(stream, "200 OK", "", INTERNAL);
        }
        fails
    });
    let ran = bucket.put(&["--retries=1", "--no-journal"]);
    ran.expect(4, &["InternalError"]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.aborted), (0, 1));
}

#[test]
fn a_service_that_wants_less_gets_less_and_all() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_part(heard) && state.faults < 3;
        if fails {
            send(stream, "503 Slow Down", "", SLOW_DOWN);
        }
        fails
    });
    bucket.put(&["-p", "3", "--retries=5"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.faults), (1, 3));
}

#[test]
fn a_part_whose_answer_is_lost_is_sent_again_or_found() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_part(heard) && state.faults == 0;
        if fails {
            let number = value(heard, "partNumber").unwrap().parse().unwrap();
            state.parts.insert(number, length(heard));
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        fails
    });
    bucket.put(&["--retries=3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 1));
}

#[test]
fn an_upload_that_was_killed_goes_on_with_the_parts_that_are_there() {
    let bucket = Bucket::start(|heard, state, stream| {
        // Nothing more is answered until the first run is gone.
        let waits = is_part(heard) && state.parts.len() == 2 && state.faults == 0;
        if waits {
            drop(stream.shutdown(std::net::Shutdown::Read));
        }
        waits
    });
    let journal = bucket.here.path().join("journal");
    let (journal, large) = (text(&journal).to_owned(), bucket.large());
    let arguments = [
        "cp",
        "--journal",
        &journal,
        "-p",
        "1",
        &large,
        "s3://mine/large",
    ];
    let mut first = bucket.command(&arguments).spawn().unwrap();
    for _ in 0..6000 {
        if bucket.state.lock().unwrap().faults > 0 {
            break;
        }
        nap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    let before = bucket.server.heard("PUT").len();
    bucket.run(&arguments).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 1, 0));
    let again = bucket.server.heard("PUT").len() - before;
    assert_eq!(again, 3, "of five parts two are there");
}

#[test]
fn a_listing_that_may_be_cut_deletes_nothing() {
    for body in [
        &b"<ListBucketResult><Contents><Key>d/a</Key><Size>1</Size></Contents>"[..],
        b"<ListBucketResult><Contents><Key>d/a</Key><Size>1</Size></Contents></ListBucketResult>",
        INTERNAL,
    ] {
        let body: &'static [u8] = body;
        let state = Arc::new(Mutex::new(State::default()));
        let server = FakeHttp::start(move |heard, stream| {
            let is_listing = heard.0 == "GET" && value(heard, "delimiter").is_some();
            let is_look = value(heard, "max-keys").is_some();
            match (is_listing, is_look) {
                (true, _) => send(stream, "200 OK", "", body),
                (_, true) => {
                    let some = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
                        <Key>d/a</Key><Size>1</Size></Contents></ListBucketResult>";
                    send(stream, "200 OK", "", some);
                }
                _ => answer(heard, &mut state.lock().unwrap(), stream),
            }
        });
        let bucket = Bucket {
            server,
            ..Bucket::start(|_, _, _| false)
        };
        let to = bucket.here.path().join("d");
        fs::create_dir(&to).unwrap();
        fs::write(to.join("mine"), "x").unwrap();
        let ran = bucket.run(&["sync", "--delete", "--retries=1", "s3://mine/d/", text(&to)]);
        assert_ne!(ran.code, 0, "{}", ran.err);
        assert!(to.join("mine").exists());
    }
}

#[test]
fn keys_that_are_no_names_of_files_are_reported_and_leave_no_directory() {
    let bucket = Bucket::start(|heard, _, stream| {
        if heard.0 != "GET" {
            return false;
        }
        let body = match value(heard, "prefix") {
            Some("d%2F") => {
                b"<ListBucketResult><IsTruncated>false</IsTruncated>\
                <Contents><Key>d/</Key><Size>0</Size></Contents>\
                <Contents><Key>d/&#10;x</Key><Size>1</Size></Contents>\
                <CommonPrefixes><Prefix>d//</Prefix></CommonPrefixes>\
                <CommonPrefixes><Prefix>d/../</Prefix></CommonPrefixes></ListBucketResult>"
                    as &[u8]
            }
            _ => b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        };
        send(stream, "200 OK", "", body);
        true
    });
    let to = bucket.here.path().join("d");
    let ran = bucket.run(&["cp", "-r", "--retries=1", "s3://mine/d/", text(&to)]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    for said in ["d//", "d/../"] {
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    let made = fs::read_dir(bucket.here.path()).unwrap().count();
    assert_eq!(made, 1, "the directory alone");
}

/// An object of so many bytes, each version of which is asked for by its tag.
fn object(heard: &Heard, tag: &str, content: &[u8], stream: &mut TcpStream) {
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

#[test]
fn an_object_that_changes_under_way_is_noticed() {
    let bucket = Bucket::start(|heard, state, stream| {
        let content = vec![7; 12 * MIB];
        match heard.0.as_str() {
            "HEAD" if heard.1.ends_with("/o") => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\
                     Last-Modified: Mon, 12 Jan 2026 09:25:24 GMT\r\n\r\n",
                    content.len()
                );
                drop(std::io::Write::write_all(stream, head.as_bytes()));
            }
            "GET" => {
                state.begun += 1;
                let tag = if state.begun == 1 { "one" } else { "two" };
                object(heard, tag, &content, stream);
            }
            _ => return false,
        }
        true
    });
    let to = bucket.here.path().join("o");
    let options = ["cp", "-p", "4", "--retries=1", "--no-journal"];
    let ran = bucket.run(&[&options[..], &["s3://mine/o", text(&to)]].concat());
    ran.expect(4, &["changed meanwhile"]);
    assert!(!Path::new(&to).exists());
}

#[test]
fn a_wrong_clock_is_named_and_no_secret_is_shown() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = heard.0 == "PUT";
        if fails {
            let body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large.</Message>\
                </Error>";
            send(stream, "403 Forbidden", "", body);
        }
        fails
    });
    let from = bucket.here.path().join("f");
    fs::write(&from, "x").unwrap();
    let ran = bucket.run(&["cp", "-vv", text(&from), "s3://mine/f"]);
    let ran = ran.expect(3, &["RequestTimeTooSkewed", "clock"]);
    for secret in [SECRET, "t0ken", "Signature"] {
        assert!(!ran.err.contains(secret), "{}", ran.err);
    }
    assert!(bucket.server.heard("PUT")[0].2.contains("signature="));
}
