//! Servers of HTTP whose answers name no version of a file, as XRootD's: what they list tells it.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{
    harness::{Ran, bytes, godwit, text},
    hostile_http::{FakeHttp, Heard, multistatus_of, send},
};

const LENGTH: usize = 48 << 20;

const BEFORE: &str = "Mon, 12 Jan 2026 09:25:24 GMT";
const AFTER: &str = "Mon, 12 Jan 2026 09:25:31 GMT";

/// A server of one file. `listed`: what it lists as the time of the file, after so many answers to
/// GET; `None`: it is too busy to list.
fn server(listed: impl Fn(usize) -> Option<&'static str> + Send + Sync + 'static) -> FakeHttp {
    let content = bytes(LENGTH, 8);
    let gets = Arc::new(AtomicUsize::new(0));
    FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => match listed(gets.load(Ordering::SeqCst)) {
            Some(time) => multistatus_of(stream, &["/f"], LENGTH, time),
            None => send(stream, "503 Service Unavailable", "", b""),
        },
        "GET" => {
            gets.fetch_add(1, Ordering::SeqCst);
            let Some((first, last)) = range(heard) else {
                return send(stream, "200 OK", "", &content);
            };
            let head = format!("Content-Range: bytes {first}-{last}/{LENGTH}\r\n");
            send(stream, "206 Partial Content", &head, &content[first..=last]);
        }
        _ => send(stream, "405 Method Not Allowed", "", b""),
    })
}

fn range(heard: &Heard) -> Option<(usize, usize)> {
    let mut lines = heard.2.lines();
    let range = lines.find_map(|line| line.strip_prefix("range: bytes="))?;
    let (first, last) = range.trim().split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

fn get(server: &FakeHttp, to: &std::path::Path) -> Ran {
    let command = ["cp", "-p", "4", "-c", "1", "--retries=2", "--no-verify"];
    let mut run = godwit(&[&command[..], &[&server.url("/f"), text(to)]].concat());
    run.output().unwrap().into()
}

#[test]
fn a_file_comes_in_pieces_if_its_time_is_listed_and_stays_the_same() {
    let server = server(|_| Some(BEFORE));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(0, &[]);
    assert!(fs::read(&to).unwrap() == bytes(LENGTH, 8));
    let gets = server.heard("GET");
    let later = gets
        .iter()
        .filter_map(range)
        .filter(|(first, _)| *first > 0);
    assert!(later.count() >= 3, "{gets:?}");
}

#[test]
fn pieces_of_a_file_that_has_changed_make_no_file() {
    // The first answer is dropped, since it may be older than what is listed.
    let server = server(|gets| Some(if gets < 4 { BEFORE } else { AFTER }));
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let ran = get(&server, &to);
    assert_ne!(ran.code, 0);
    assert!(!to.exists());
    assert!(ran.err.contains("changed"), "{}", ran.err);
}

#[test]
fn what_could_not_be_looked_at_in_the_end_is_looked_at_again() {
    let refused = AtomicUsize::new(0);
    let server = server(move |gets| {
        let is_late = gets >= 4 && refused.fetch_add(1, Ordering::SeqCst) == 0;
        (!is_late).then_some(BEFORE)
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(0, &[]);
    assert!(fs::read(&to).unwrap() == bytes(LENGTH, 8));
    let gets = server.heard("GET");
    // What came is not fetched again, but for the last byte.
    let last = LENGTH - 1;
    assert_eq!(gets.last().and_then(range), Some((last, last)), "{gets:?}");
}
