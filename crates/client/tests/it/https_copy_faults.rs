//! Copies between two servers of HTTP that stall, break off or bring other bytes; what their
//! markers are worth, and how many streams they are asked for.

use std::{
    collections::BTreeMap,
    io::Write as _,
    net::{Shutdown, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_client::{
    CancellationToken,
    report::{
        events::{Event, Observer},
        progress::Snapshot,
    },
};
use godwit_http::marker::Marker;

use crate::{
    harness::{Ran, nap, run},
    hostile_http::{FakeHttp, Heard, multistatus, send},
    live::{Watching, cp_watched},
};

/// For what must come at once.
const LIMIT: Duration = Duration::from_secs(60);

const CONTENT: &[u8] = b"12345";

/// Of an answer in chunks.
const HEAD: &str = "HTTP/1.1 202 Accepted\r\nTransfer-Encoding: chunked\r\n\r\n";

/// By path, all in lower case; directories end in a slash and have no content.
type Files = Arc<Mutex<BTreeMap<String, Vec<u8>>>>;

/// A server with files, which answers COPY as it is told to.
struct Store {
    server: FakeHttp,
    files: Files,
}

impl Store {
    fn start(copy: impl Fn(&Heard, &mut TcpStream, &Files) + Send + Sync + 'static) -> Self {
        let files = Files::default();
        let kept = Arc::clone(&files);
        let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
            "COPY" => copy(heard, stream, &kept),
            _ => answer(heard, stream, &kept),
        });
        Self { server, files }
    }

    fn names(&self) -> Vec<String> {
        self.files.lock().unwrap().keys().cloned().collect()
    }

    fn content(&self, path: &str) -> Option<Vec<u8>> {
        self.files.lock().unwrap().get(path).cloned()
    }
}

fn put(files: &Files, path: &str, content: &[u8]) {
    let mut files = files.lock().unwrap();
    files.insert(path.to_owned(), content.to_vec());
}

/// Answers all that is no COPY.
fn answer(heard: &Heard, stream: &mut TcpStream, files: &Files) {
    let (method, path) = (heard.0.as_str(), heard.1.as_str());
    let mut files = files.lock().unwrap();
    let within = format!("{}/", path.trim_end_matches('/'));
    let is_within = |name: &&String| {
        let rest = name.strip_prefix(&within).unwrap_or_default();
        !rest.is_empty() && !rest.contains('/')
    };
    let is_directory = within == "/" || files.keys().any(|name| name.starts_with(&within));
    match (method, files.get(path).cloned()) {
        ("PROPFIND", _) if is_directory => {
            let mut hrefs = vec![within.as_str()];
            if heard.2.contains("depth: 1") {
                hrefs.extend(files.keys().filter(is_within).map(String::as_str));
            }
            multistatus(stream, &hrefs, CONTENT.len());
        }
        ("PROPFIND", Some(content)) => multistatus(stream, &[path], content.len()),
        ("HEAD", Some(content)) => {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nDigest: adler32={:08x}\r\n\r\n",
                content.len(),
                adler32(&content)
            );
            drop(stream.write_all(head.as_bytes()));
        }
        ("MKCOL", _) => {
            files.insert(within, Vec::new());
            send(stream, "201 Created", "", b"");
        }
        ("MOVE", Some(content)) => {
            let to = heard.2.lines().find_map(|line| {
                let url = line.strip_prefix("destination: http://")?;
                Some(format!("/{}", url.trim().split_once('/')?.1))
            });
            files.remove(path);
            files.insert(to.unwrap(), content);
            send(stream, "201 Created", "", b"");
        }
        ("DELETE", Some(_)) => {
            files.remove(path);
            send(stream, "204 No Content", "", b"");
        }
        _ => send(stream, "404 Not Found", "", b""),
    }
}

/// RFC 1950 §9.
fn adler32(content: &[u8]) -> u32 {
    let (a, b) = content.iter().fold((1_u32, 0_u32), |(a, b), byte| {
        let a = (a + u32::from(*byte)) % 65_521;
        (a, (b + a) % 65_521)
    });
    (b << 16) | a
}

/// Bytes of one of two stripes.
fn marker(stripe: u32, bytes: u64) -> String {
    let marker = Marker {
        stripe,
        stripes: 2,
        bytes,
        ..Marker::default()
    };
    marker.to_string()
}

/// Sends part of an answer in chunks; `false`: the client has gone.
fn send_chunk(stream: &mut TcpStream, text: &str) -> bool {
    let chunk = format!("{:x}\r\n{text}\r\n", text.len());
    stream.write_all(chunk.as_bytes()).is_ok()
}

/// The end of a copy that has gone well.
fn send_success(stream: &mut TcpStream) {
    send_chunk(stream, "success: Created\n");
    drop(stream.write_all(b"0\r\n\r\n"));
}

/// A server with `/source` and one that is to get it.
struct Ends {
    source: Store,
    target: Store,
}

impl Ends {
    /// `copy`: what the one that is to get it does.
    fn of(copy: impl Fn(&Heard, &mut TcpStream, &Files) + Send + Sync + 'static) -> Self {
        let source = Store::start(|_, stream, _| send(stream, "501 Not Implemented", "", b""));
        put(&source.files, "/source", CONTENT);
        let target = Store::start(copy);
        Self { source, target }
    }

    fn urls(&self) -> [String; 2] {
        let (source, target) = (&self.source.server, &self.target.server);
        [source.url("/source"), target.url("/target")]
    }

    fn cp(&self, options: &[&str]) -> Ran {
        let [from, to] = self.urls();
        let ends = [from.as_str(), to.as_str()];
        run(&[&["cp"][..], options, &ends[..]].concat())
    }

    #[track_caller]
    fn has_no_copy(&self) {
        let names = self.target.names();
        assert!(!names.iter().any(|name| name == "/target"), "{names:?}");
        assert!(self.target.server.heard("MOVE").is_empty());
    }

    #[track_caller]
    fn has_the_copy(&self) {
        assert_eq!(self.target.names(), ["/target"]);
        assert_eq!(self.target.content("/target").unwrap(), CONTENT);
    }
}

#[test]
fn a_copy_whose_markers_stand_still_is_given_up() {
    let ends = Ends::of(|_, stream, _| {
        drop(stream.write_all(HEAD.as_bytes()));
        // Until the client goes away.
        while send_chunk(stream, &marker(0, 3)) {
            nap();
        }
    });
    let ran = ends.cp(&["--stall-timeout=0.5", "--retries=1", "--no-verify"]);
    let to = &ends.urls()[1];
    let said = "nothing moved between the two servers for 5 s";
    ran.expect(4, &[to.as_str(), said, "; check the network or try later"]);
    ends.has_no_copy();
}

#[test]
fn a_failure_in_an_answer_of_201_is_a_failure() {
    for said in [
        "failure: the pool is broken\n",
        "Failed: the pool is broken",
        "aborted: the pool is broken\n",
        // What follows the first ending says nothing.
        "\nfailure: the pool is broken\nsuccess: Created\n",
    ] {
        let ends = Ends::of(move |heard, stream, files| {
            put(files, &heard.1, CONTENT);
            send(stream, "201 Created", "", said.as_bytes());
        });
        let ran = ends.cp(&["--retries=1", "--no-verify"]);
        ran.expect(4, &["the pool is broken"]);
        ends.has_no_copy();
    }
}

#[test]
fn a_copy_of_the_right_size_with_other_bytes_is_found_out() {
    let copying = |content: &'static [u8]| {
        Ends::of(move |heard, stream, files| {
            put(files, &heard.1, content);
            drop(stream.write_all(HEAD.as_bytes()));
            send_chunk(stream, &marker(0, 5));
            send_success(stream);
        })
    };
    let ends = copying(b"54321");
    let to = &ends.urls()[1];
    let words = [to.as_str(), "ADLER32 differs", "check the network"];
    ends.cp(&[]).expect(4, &words);
    ends.has_no_copy();
    // Nor is it left under another name.
    let left = ends.target.names();
    assert!(left.is_empty(), "{left:?}");
    // The same with the truth.
    let ends = copying(CONTENT);
    ends.cp(&[]).expect(0, &[]);
    ends.has_the_copy();
}

/// A receiver that has all of the file, and whose connection breaks off before it says so, at
/// first.
fn breaking_off() -> Ends {
    let is_first = AtomicBool::new(true);
    Ends::of(move |heard, stream, files| {
        put(files, &heard.1, CONTENT);
        drop(stream.write_all(HEAD.as_bytes()));
        send_chunk(stream, &marker(0, 5));
        match is_first.swap(false, Ordering::Relaxed) {
            true => drop(stream.shutdown(Shutdown::Both)),
            false => send_success(stream),
        }
    })
}

#[test]
fn a_whole_file_without_the_word_success_is_no_copy() {
    let ends = breaking_off();
    ends.cp(&["--retries=1"]).expect(4, &["connection"]);
    ends.has_no_copy();
}

#[test]
fn a_copy_that_broke_off_is_asked_for_again_and_verified() {
    let ends = breaking_off();
    ends.cp(&["--retries=2"]).expect(0, &[]);
    ends.has_the_copy();
    assert_eq!(ends.target.server.heard("COPY").len(), 2);
    for end in [&ends.source, &ends.target] {
        let asked = end.server.heard("HEAD");
        assert!(asked.iter().any(|heard| heard.2.contains("want-digest: ")));
    }
}

/// What a run in this process says of itself.
#[derive(Default)]
struct Seen {
    /// Of the last decision.
    parallelism: AtomicU32,
    /// Most bytes so far, and the channels then.
    progress: Mutex<(u64, u32)>,
}

impl Observer for Seen {
    fn on_event(&self, event: &Event) {
        if let Event::Decision { to, .. } = event {
            self.parallelism.store(to.parallelism, Ordering::Relaxed);
        }
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        let mut most = self.progress.lock().unwrap();
        if let Some(now) = progress.filter(|now| now.bytes > most.0) {
            *most = (now.bytes, now.channels);
        }
    }
}

/// Runs `cp` in this process under a tuner of these settings.
fn cp_seen(
    jumps: &'static [(u32, u32)],
    seen: &Arc<Seen>,
    options: &[&str],
    (from, to): (&str, &str),
) {
    let here = tempfile::tempdir().unwrap();
    let watching = Watching {
        observer: seen.clone(),
        stop: CancellationToken::default(),
    };
    let log = here.path().join("log");
    let (summary, events) = cp_watched(jumps, watching, options, from, to, &log);
    assert_eq!(summary.exit, 0, "{events:?}");
}

#[test]
fn markers_of_all_stripes_are_the_progress_of_a_copy() {
    let (seen, midst) = (Arc::<Seen>::default(), Arc::<Mutex<(u64, u32)>>::default());
    let (shown, kept) = (Arc::clone(&seen), Arc::clone(&midst));
    let ends = Ends::of(move |heard, stream, files| {
        drop(stream.write_all(HEAD.as_bytes()));
        for (stripe, bytes) in [(0, 1), (1, 1), (0, 3)] {
            send_chunk(stream, &marker(stripe, bytes));
        }
        let deadline = Instant::now() + LIMIT;
        while shown.progress.lock().unwrap().0 < 4 && Instant::now() < deadline {
            nap();
        }
        *kept.lock().unwrap() = *shown.progress.lock().unwrap();
        put(files, &heard.1, CONTENT);
        send_success(stream);
    });
    let [from, to] = ends.urls();
    cp_seen(&[(1, 3)], &seen, &["--no-journal"], (&from, &to));
    assert_eq!(*midst.lock().unwrap(), (4, 3));
    ends.has_the_copy();
}

/// How many streams a copy was to have.
fn streams_of(heard: &Heard) -> u32 {
    let mut lines = heard.2.lines();
    let told = lines.find_map(|line| line.strip_prefix("x-number-of-streams: "));
    told.unwrap().trim().parse().unwrap()
}

#[test]
fn the_next_file_has_as_many_streams_as_the_tuner_wants_by_then() {
    // Near its end a run takes no larger setting, so each of these is smaller.
    const JUMPS: &[(u32, u32)] = &[
        (1, 16),
        (1, 15),
        (1, 14),
        (1, 13),
        (1, 12),
        (1, 11),
        (1, 10),
        (1, 9),
        (1, 8),
        (1, 7),
        (1, 6),
        (1, 5),
    ];
    let seen = Arc::<Seen>::default();
    let decided = Arc::clone(&seen);
    let ends = Ends::of(move |heard, stream, files| {
        let asked = streams_of(heard);
        drop(stream.write_all(HEAD.as_bytes()));
        let (mut bytes, deadline) = (0, Instant::now() + LIMIT);
        while decided.parallelism.load(Ordering::Relaxed) == asked && Instant::now() < deadline {
            bytes += 1;
            send_chunk(stream, &marker(0, bytes));
            nap();
        }
        put(files, &heard.1, CONTENT);
        send_success(stream);
    });
    for name in ["/tree/a", "/tree/b", "/tree/c"] {
        put(&ends.source.files, name, CONTENT);
    }
    let (from, to) = (&ends.source.server, &ends.target.server);
    let (from, to) = (from.url("/tree/"), to.url("/copy/"));
    cp_seen(JUMPS, &seen, &["-r", "--no-journal"], (&from, &to));
    let asked = ends.target.server.heard("COPY");
    let asked: Vec<u32> = asked.iter().map(streams_of).collect();
    assert!(asked.len() == 3 && asked[0] == 16, "{asked:?}");
    assert!(asked.is_sorted_by(|one, next| one > next), "{asked:?}");
}

#[test]
fn as_many_streams_are_asked_for_as_the_setting_has_channels() {
    for (setting, streams) in [
        ("--parallelism=3", 3),
        ("--tuner=static:concurrency=2,parallelism=7", 7),
        // No server is asked for more.
        ("--parallelism=101", 100),
    ] {
        let ends = Ends::of(|heard, stream, files| {
            put(files, &heard.1, CONTENT);
            drop(stream.write_all(HEAD.as_bytes()));
            send_success(stream);
        });
        for name in ["/tree/a", "/tree/b", "/tree/c"] {
            put(&ends.source.files, name, CONTENT);
        }
        let (from, to) = (&ends.source.server, &ends.target.server);
        let (from, to) = (from.url("/tree/"), to.url("/copy/"));
        let options = ["cp", "-r", "--alone", "--no-path-memory", setting];
        let both = [from.as_str(), to.as_str()];
        run(&[&options[..], &both[..]].concat()).expect(0, &[]);
        let wanted = ["/copy/", "/copy/a", "/copy/b", "/copy/c"];
        assert_eq!(ends.target.names(), wanted, "{setting}");
        let asked = ends.target.server.heard("COPY");
        assert_eq!(asked.len(), 3, "{setting}");
        for heard in asked {
            assert_eq!(streams_of(&heard), streams, "{setting}");
        }
    }
}
