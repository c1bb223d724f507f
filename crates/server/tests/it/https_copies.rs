//! COPY between two servers: both are ours, or the other one says what a test lets it say.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::Instant,
};

use godwit_server::{CopyAuthorities, CopySettings};
use openssl::ssl::{SslAcceptor, SslFiletype, SslMethod, SslStream};

use crate::{
    harness::{eventually, pattern},
    https::{Answer, KIM, SAM, ask, connect, names},
    tls::{Site, Wishes},
};

/// What the other server wants to see.
pub(crate) const THEIRS: &str = "TransferHeaderAuthorization: Basic a2ltOnNlIGNyZXQ=\r\n";

pub(crate) fn passive() -> Site {
    Site::new(Wishes {
        https: true,
        ..Wishes::default()
    })
}

/// A server that copies from and to `passive`.
pub(crate) fn active(passive: &Site) -> Site {
    active_with(passive, |_| {})
}

pub(crate) fn active_with(passive: &Site, change: impl FnOnce(&mut CopySettings)) -> Site {
    let wishes = Wishes {
        https: true,
        anonymous: true,
        ..Wishes::default()
    };
    let mut copies = CopySettings {
        hosts: vec!["127.0.0.0/8".parse().unwrap()],
        authorities: CopyAuthorities::File(passive.at("ca.pem")),
        ..CopySettings::default()
    };
    change(&mut copies);
    Site::with(wishes, |settings| settings.copies = Some(copies))
}

pub(crate) fn url(site: &Site, path: &str) -> String {
    format!("https://{}{path}", site.server.https.unwrap())
}

pub(crate) fn copy(site: &Site, path: &str, head: &str) -> Answer {
    ask(site, "COPY", path, &format!("{KIM}{head}"), b"")
}

pub(crate) fn pull(site: &Site, path: &str, source: &str, head: &str) -> Answer {
    copy(site, path, &format!("Source: {source}\r\n{THEIRS}{head}"))
}

/// The last line.
#[track_caller]
pub(crate) fn ending(answer: Answer) -> String {
    let answer = answer.is(202);
    assert_eq!(answer.header("content-type"), "text/perf-marker-stream");
    let text = answer.text();
    assert!(text.starts_with("Perf Marker\nTimestamp: "), "{text}");
    assert!(text.ends_with('\n'), "{text}");
    text.lines().last().unwrap_or_default().to_owned()
}

#[track_caller]
pub(crate) fn fails(answer: Answer, why: &str) {
    let ending = ending(answer);
    assert!(ending.starts_with("failure: "), "{ending}");
    assert!(ending.contains(why), "{ending}");
}

pub(crate) const DONE: &str = "success: Created";

#[test]
fn files_are_pulled_from_another_server() {
    let passive = passive();
    let active = active(&passive);
    let large = pattern(1_000_000, 3).repeat(40);
    for (name, content) in [("empty", vec![]), ("small", vec![7]), ("large", large)] {
        passive.server.write(name, &content);
        for streams in [1, 4] {
            let head = format!(
                "X-Number-Of-Streams: {streams}\r\nRequireChecksumVerification: true\r\n\
                 Overwrite: F\r\nClientInfo: job-id=1\r\nCredential: none\r\n"
            );
            let target = format!("/{name}-{streams}");
            let answer = pull(&active, &target, &url(&passive, &format!("/{name}")), &head);
            let text = answer.text();
            assert_eq!(ending(answer), DONE);
            let bytes = format!("Stripe Bytes Transferred: {}\n", content.len());
            assert!(text.contains(&bytes), "{text}");
            let peer = format!("RemoteConnections: tcp:{}\n", passive.server.https.unwrap());
            assert!(text.contains(&peer), "{text}");
            assert!(fs::read(active.server.path(&target[1..])).unwrap() == content);
        }
    }
    let target = url(&passive, "/small");
    assert_eq!(ending(pull(&active, "/large-1", &target, "")), DONE);
    assert_eq!(fs::read(active.server.path("large-1")).unwrap(), [7]);
    let digest = "Digest: adler32=00080008,md5=AAAAAAAAAAAAAAAAAAAAAA==\r\n";
    fails(
        pull(&active, "/large-4", &target, digest),
        "checksum mismatch",
    );
    let files = [
        "empty-1", "empty-4", "large-1", "large-4", "sam", "small-1", "small-4",
    ];
    eventually("nothing is left", || names(&active, "") == files);
}

#[test]
fn files_are_pushed_to_another_server() {
    let passive = passive();
    let active = active(&passive);
    let large = pattern(5_000_000, 4);
    for (name, content) in [("empty", vec![]), ("small", vec![7]), ("large", large)] {
        active.server.write(name, &content);
        let destination = url(&passive, &format!("/{name}"));
        let head =
            format!("Destination: {destination}\r\n{THEIRS}RequireChecksumVerification: true\r\n");
        let push = |head: &str| copy(&active, &format!("/{name}"), head);
        assert_eq!(ending(push(&format!("{head}Overwrite: F\r\n"))), DONE);
        assert!(fs::read(passive.server.path(name)).unwrap() == content);
        fails(push(&format!("{head}Overwrite: F\r\n")), "exists");
        assert_eq!(ending(push(&head)), DONE);
    }
    let head = format!("Destination: {}\r\n", url(&passive, "/x"));
    copy(&active, "/missing", &head).is(404);
    copy(&active, "/sam", &head).is(405);
    fails(copy(&active, "/small", &head), "status code 401");
    assert_eq!(names(&passive, ""), ["empty", "large", "sam", "small"]);
}

#[test]
fn what_cannot_be_done_here_is_refused_before_the_answer() {
    let passive = passive();
    let active = active(&passive);
    passive.server.write("f", b"x");
    active.server.write("there", b"y");
    let source = url(&passive, "/f");
    pull(&active, "/there", &source, "Overwrite: F\r\n").is(412);
    pull(&active, "/no/f", &source, "").is(409);
    pull(&active, "/sam", &source, "").is(405);
    pull(&active, "/f", "ftp://a/f", "").is(501);
    pull(&active, "/f", &source, "Destination: https://a/f\r\n").is(400);
    pull(&active, "/f", &source, "X-Number-Of-Streams: 101\r\n").is(400);
    pull(&active, "/f", &source, "Credential: gridsite\r\n").is(400);
    pull(&active, "/f", &source, "TransferHeaderHost: a\r\n").is(400);
    pull(
        &active,
        "/f",
        &source,
        "TransferHeaderContent-Length: 1\r\n",
    )
    .is(400);
    pull(&active, "/f", &source, "Copy-Header: Range: bytes=0-0\r\n").is(400);
    copy(&active, "/there", "").is(400);
    let head = format!("{SAM}Source: {source}\r\n");
    ask(&active, "COPY", "/sam/f", &head, b"").is(403);
    // Without a login anybody could send the server anywhere.
    ask(&active, "COPY", "/f", &format!("Source: {source}\r\n"), b"").is(401);
    let head = format!("Destination: {source}\r\n");
    ask(&active, "COPY", "/there", &head, b"").is(401);
    assert_eq!(names(&active, ""), ["sam", "there"]);
    assert_eq!(fs::read(active.server.path("there")).unwrap(), b"y");
}

#[test]
fn other_hosts_than_the_allowed_are_not_connected_to() {
    let passive = passive();
    let active = active_with(&passive, |copies| copies.hosts.clear());
    let port = passive.server.https.unwrap().port();
    for host in [
        "127.0.0.1",
        "localhost",
        "2130706433",
        "0x7f.1",
        "0177.0.0.1",
        "127.1",
        "0.0.0.0",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "169.254.169.254",
        "10.0.0.1",
        "[fe80::1]",
        "224.0.0.1",
    ] {
        pull(&active, "/f", &format!("https://{host}:{port}/f"), "").is(403);
    }
    // The answer does not tell which addresses a name has inside.
    let answer = pull(&active, "/f", &format!("https://localhost:{port}/f"), "").is(403);
    let text = answer.text();
    assert!(text.contains("no address of localhost may be"), "{text}");
    assert!(
        !text.contains("127.0.0.1") && !text.contains("::1"),
        "{text}"
    );
    let refusing = Site::with(
        Wishes {
            https: true,
            ..Wishes::default()
        },
        |settings| settings.copies = None,
    );
    pull(&refusing, "/f", &url(&passive, "/f"), "").is(501);
    eventually("nothing is left", || names(&active, "") == ["sam"]);
}

#[test]
fn a_server_that_no_authority_vouches_for_gets_no_request() {
    let passive = passive();
    let active = active_with(&passive, |copies| {
        copies.authorities = CopyAuthorities::System
    });
    let untrusted = pull(&active, "/f", &url(&passive, "/f"), "");
    fails(untrusted, "may vouch for others (copy-authorities)");
    // Another name of the address, which its certificate does not have.
    let active = active_with(&passive, |_| {});
    let port = passive.server.https.unwrap().port();
    let source = format!("https://2130706433:{port}/f");
    fails(pull(&active, "/f", &source, ""), "not trusted");
}

pub(crate) type Stream = SslStream<TcpStream>;

/// A server that answers each request with `answer`, until that returns false.
pub(crate) struct Fake {
    address: SocketAddr,
    heads: Arc<Mutex<Vec<String>>>,
}

impl Fake {
    pub(crate) fn new(
        passive: &Site,
        answer: impl Fn(&str, &mut Stream) -> bool + Send + Sync + 'static,
    ) -> Self {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::at(any, passive, answer).expect("an address of this machine")
    }

    /// `None`: this machine has no such address.
    pub(crate) fn at(
        address: SocketAddr,
        passive: &Site,
        answer: impl Fn(&str, &mut Stream) -> bool + Send + Sync + 'static,
    ) -> Option<Self> {
        let mut builder = SslAcceptor::mozilla_intermediate(SslMethod::tls()).unwrap();
        let pem = passive.at("host.pem");
        builder.set_certificate_chain_file(&pem).unwrap();
        builder
            .set_private_key_file(&pem, SslFiletype::PEM)
            .unwrap();
        let acceptor = Arc::new(builder.build());
        let listener = TcpListener::bind(address).ok()?;
        let address = listener.local_addr().unwrap();
        let heads = Arc::<Mutex<Vec<String>>>::default();
        let (seen, answer) = (Arc::clone(&heads), Arc::new(answer));
        thread::spawn(move || {
            for socket in listener.incoming() {
                let (acceptor, answer) = (Arc::clone(&acceptor), Arc::clone(&answer));
                let seen = Arc::clone(&seen);
                thread::spawn(move || {
                    let Ok(mut stream) = acceptor.accept(socket.unwrap()) else {
                        return;
                    };
                    while let Some(head) = head(&mut stream) {
                        seen.lock().unwrap().push(head.clone());
                        if !answer(&head, &mut stream) {
                            return;
                        }
                    }
                });
            }
        });
        Some(Self { address, heads })
    }

    pub(crate) fn url(&self) -> String {
        format!("https://{}/f", self.address)
    }

    pub(crate) fn heads(&self) -> Vec<String> {
        self.heads.lock().unwrap().clone()
    }
}

fn head(stream: &mut Stream) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
    }
    let head = String::from_utf8(head).ok()?;
    let (first, rest) = head.split_once("\r\n")?;
    Some(format!("{first}\r\n{}", rest.to_ascii_lowercase()))
}

pub(crate) fn say(stream: &mut Stream, text: &str) -> bool {
    stream.write_all(text.as_bytes()).is_ok()
}

pub(crate) fn ok(stream: &mut Stream, headers: &str, body: &str) -> bool {
    let length = body.len();
    say(
        stream,
        &format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n{headers}\r\n{body}"),
    )
}

/// Adler-32 of `abcdef`.
pub(crate) const ABCDEF: &str = "Digest: adler32=081e0256\r\n";

#[test]
fn sources_that_lie_are_found_out() {
    let passive = passive();
    let active = active(&passive);
    let from = |head: &str, answer: fn(&str, &mut Stream) -> bool| {
        let fake = Fake::new(&passive, answer);
        pull(&active, "/f", &fake.url(), head)
    };
    let several = "X-Number-Of-Streams: 3\r\n";
    let must = "RequireChecksumVerification: true\r\n";
    assert_eq!(ending(from(must, |_, s| ok(s, ABCDEF, "abcdef"))), DONE);
    // It knows no ranges.
    assert_eq!(ending(from(several, |_, s| ok(s, "", "abcdef"))), DONE);
    assert_eq!(ending(from("", |_, s| ok(s, "", "abcdef"))), DONE);
    fails(
        from(must, |_, s| ok(s, "", "abcdef")),
        "remote side has none",
    );
    fails(
        from("", |_, s| ok(s, ABCDEF, "abcdeg")),
        "checksum mismatch",
    );
    fails(
        from("", |head, s| match head.starts_with("HEAD") {
            true => say(
                s,
                &format!("HTTP/1.1 200 OK\r\nContent-Length: 6\r\n{ABCDEF}\r\n"),
            ),
            false => ok(s, "", "abcdeg"),
        }),
        "checksum mismatch",
    );
    fails(
        from(several, |_, s| {
            say(
                s,
                "HTTP/1.1 206 x\r\nContent-Length: 6\r\nContent-Range: bytes 1-6/7\r\n\r\nabcdef",
            )
        }),
        "another range",
    );
    fails(
        from(several, |_, s| {
            say(
                s,
                "HTTP/1.1 206 x\r\nContent-Length: 6\r\nContent-Range: bytes 0-4/5\r\n\r\nabcdef",
            )
        }),
        "more bytes",
    );
    fails(from("", |_, s| say(s, "220 FTP\r\n\r\n")), "no answer of");
    fails(
        from("", |_, s| {
            say(s, "HTTP/1.1 404 x\r\nContent-Length: 6\r\n\r\n\x1b[1mno")
        }),
        "status code 404",
    );
    let found = names(&active, "");
    assert!(
        found.iter().filter(|name| name.contains("godwit")).count() <= 1,
        "{found:?}"
    );
    eventually("nothing is left", || names(&active, "") == ["f", "sam"]);
    assert_eq!(fs::read(active.server.path("f")).unwrap(), b"abcdef");
}

#[test]
fn what_a_broken_connection_has_not_brought_is_asked_for_again() {
    let passive = passive();
    let active = active(&passive);
    let content = Arc::new(pattern(2_000_000, 5));
    let (breaks, sent) = (AtomicUsize::new(0), Arc::clone(&content));
    let fake = Fake::new(&passive, move |head, stream| {
        if head.starts_with("HEAD") {
            return say(stream, "HTTP/1.1 405 x\r\nContent-Length: 0\r\n\r\n");
        }
        let start = head.split("range: bytes=").nth(1).and_then(|rest| {
            let start = rest.split('-').next()?;
            start.parse::<usize>().ok()
        });
        let (size, begin) = (sent.len(), start.unwrap_or(0));
        let left = size - begin;
        let status = match start {
            Some(_) => format!("206 x\r\nContent-Range: bytes {begin}-{}/{size}", size - 1),
            None => "200 OK".to_owned(),
        };
        say(
            stream,
            &format!("HTTP/1.1 {status}\r\nETag: \"v1\"\r\nContent-Length: {left}\r\n\r\n"),
        );
        let ends = breaks.fetch_add(1, Ordering::Relaxed) < 2;
        let bytes = if ends { left.min(900_000) } else { left };
        stream.write_all(&sent[begin..begin + bytes]).is_ok() && !ends
    });
    assert_eq!(ending(pull(&active, "/f", &fake.url(), "")), DONE);
    assert!(fs::read(active.server.path("f")).unwrap() == *content);
    let heads = fake.heads();
    let ranges = heads.iter().filter(|head| head.contains("range: bytes="));
    let mut conditions = ranges.map(|head| head.contains("if-match: \"v1\""));
    assert!(conditions.all(|has| has), "{heads:?}");
    // A file that has changed meanwhile is another one, and one that always breaks is given up.
    let fake = Fake::new(&passive, |head, stream| {
        let is_again = head.contains("range: bytes=");
        let text = match is_again {
            true => "HTTP/1.1 412 x\r\nContent-Length: 0\r\n\r\n",
            false => "HTTP/1.1 200 x\r\nETag: \"v1\"\r\nContent-Length: 9\r\n\r\nabc",
        };
        say(stream, text) && is_again
    });
    fails(pull(&active, "/g", &fake.url(), ""), "has changed");
    let fake = Fake::new(&passive, |_, stream| {
        let text = "HTTP/1.1 200 x\r\nETag: \"v1\"\r\nContent-Length: 9\r\n\r\n";
        say(stream, text);
        false
    });
    fails(pull(&active, "/g", &fake.url(), ""), "serves no ranges");
    // Without a validator the rest may be of another file.
    let fake = Fake::new(&passive, |_, stream| {
        say(stream, "HTTP/1.1 200 x\r\nContent-Length: 9\r\n\r\nabc");
        false
    });
    fails(pull(&active, "/g", &fake.url(), ""), "cannot read from");
    let gets = fake.heads();
    let gets = gets.iter().filter(|head| head.starts_with("GET"));
    assert_eq!(gets.count(), 1);
    eventually("nothing is left", || names(&active, "") == ["f", "sam"]);
}

#[test]
fn a_body_that_ends_with_its_connection_counts_only_if_something_vouches_for_it() {
    let passive = passive();
    let active = active(&passive);
    let from = |head: &'static str, get: &'static str, order: &str| {
        let fake = Fake::new(&passive, move |request, stream| {
            let text = if request.starts_with("HEAD") {
                head
            } else {
                get
            };
            say(stream, text);
            // The end of TLS: this is no broken connection.
            let _ = stream.shutdown();
            false
        });
        pull(&active, "/f", &fake.url(), order)
    };
    let bare = "HTTP/1.0 200 OK\r\n\r\nabc";
    let silent = "HTTP/1.1 405 x\r\nContent-Length: 0\r\n\r\n";
    let long = "HTTP/1.1 200 x\r\nContent-Length: 1000000\r\n\r\n";
    let right = "HTTP/1.1 200 x\r\nContent-Length: 3\r\n\r\n";
    let chunked = "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n";
    fails(from(long, bare, ""), "3 bytes of 1000000");
    fails(from(long, chunked, ""), "3 bytes of 1000000");
    fails(from(silent, bare, ""), "the whole file");
    eventually("nothing is left", || names(&active, "") == ["sam"]);
    assert_eq!(ending(from(right, bare, "")), DONE);
    assert_eq!(ending(from(silent, chunked, "")), DONE);
    let stated = "Digest: adler32=024d0127\r\n";
    assert_eq!(ending(from(silent, bare, stated)), DONE);
    let digest = "HTTP/1.0 200 OK\r\nDigest: adler32=024d0127\r\n\r\nabc";
    assert_eq!(ending(from(silent, digest, "")), DONE);
}

/// A source of 40 MiB that knows ranges and ignores conditions; `headers` get the count of GETs.
fn large_source(passive: &Site, headers: fn(usize) -> String) -> Fake {
    let gets = AtomicUsize::new(0);
    Fake::new(passive, move |head, stream| {
        let is_get = head.starts_with("GET");
        let headers = is_get.then(|| headers(gets.fetch_add(1, Ordering::Relaxed)));
        answer_large(head, stream, &headers.unwrap_or_default())
    })
}

const LARGE_BYTES: usize = 40 << 20;

/// An answer to GET with these headers, as a server has that knows nothing else.
fn answer_large(head: &str, stream: &mut Stream, headers: &str) -> bool {
    if !head.starts_with("GET") {
        say(stream, "HTTP/1.1 405 x\r\nContent-Length: 0\r\n\r\n");
        // The body of the request is left.
        return head.starts_with("HEAD");
    }
    let range = head.split("range: bytes=").nth(1);
    let range = range.and_then(|rest| rest.lines().next()?.split_once('-'));
    let (status, bytes) = match range {
        Some((start, end)) => {
            let (start, end): (usize, usize) = (start.parse().unwrap(), end.parse().unwrap());
            let end = end.min(LARGE_BYTES - 1);
            let range = format!("Content-Range: bytes {start}-{end}/{LARGE_BYTES}\r\n");
            (format!("206 x\r\n{range}"), end + 1 - start)
        }
        None => ("200 x\r\n".to_owned(), LARGE_BYTES),
    };
    let text = format!("HTTP/1.1 {status}{headers}Content-Length: {bytes}\r\n\r\n");
    say(stream, &text) && stream.write_all(&vec![b'x'; bytes]).is_ok()
}

#[test]
fn pieces_of_two_versions_do_not_become_one_file() {
    let passive = passive();
    let active = active(&passive);
    let several = "X-Number-Of-Streams: 2\r\n";
    let get = |source: &Fake| pull(&active, "/f", &source.url(), several);
    let tags = large_source(&passive, |gets| format!("ETag: \"v{gets}\"\r\n"));
    fails(get(&tags), "has changed");
    let dates = large_source(&passive, |gets| {
        format!("Last-Modified: Mon, 02 Mar 2026 00:00:0{gets} GMT\r\n")
    });
    fails(get(&dates), "has changed");
    eventually("nothing is left", || names(&active, "") == ["sam"]);
    let same = large_source(&passive, |_| "ETag: \"v1\"\r\n".to_owned());
    assert_eq!(ending(get(&same)), DONE);
    // Without a validator the file comes as a whole.
    let silent = large_source(&passive, |_| String::new());
    assert_eq!(ending(get(&silent)), DONE);
    let heads = silent.heads();
    let gets: Vec<_> = heads
        .iter()
        .filter(|head| head.starts_with("GET"))
        .collect();
    assert_eq!(gets.len(), 2, "{gets:?}");
    assert!(!gets[1].contains("range: "), "{gets:?}");
    assert_eq!(
        fs::metadata(active.server.path("f")).unwrap().len(),
        40 << 20
    );
}

/// A listing of a file of so many bytes and of this day. `false`: the connection ends, since the
/// body of the request is left.
pub(crate) fn list(stream: &mut Stream, bytes: usize, day: usize) -> bool {
    let listed = format!(
        "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/f</D:href><D:propstat>\
         <D:prop><D:resourcetype/><D:getcontentlength>{bytes}</D:getcontentlength>\
         <D:getlastmodified>Mon, 0{day} Jun 2026 00:00:00 GMT</D:getlastmodified></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response></D:multistatus>"
    );
    let length = listed.len();
    let head = format!("HTTP/1.1 207 x\r\nContent-Length: {length}\r\n");
    say(stream, &format!("{head}Connection: close\r\n\r\n{listed}"));
    false
}

#[test]
fn pieces_are_of_the_version_that_the_source_lists() {
    let passive = passive();
    let active = active(&passive);
    let source = |last_day: usize| {
        let looked = AtomicUsize::new(0);
        Fake::new(&passive, move |head, stream| {
            if !head.starts_with("PROPFIND") {
                return answer_large(head, stream, "");
            }
            let day = 1 + looked.fetch_add(1, Ordering::Relaxed).min(last_day);
            list(stream, LARGE_BYTES, day)
        })
    };
    let several = "X-Number-Of-Streams: 2\r\n";
    let changed = source(1);
    fails(pull(&active, "/f", &changed.url(), several), "has changed");
    eventually("nothing is left", || names(&active, "") == ["sam"]);
    let same = source(0);
    assert_eq!(ending(pull(&active, "/f", &same.url(), several)), DONE);
    let heads = same.heads();
    let gets = heads.iter().filter(|head| head.starts_with("GET"));
    let ranges = gets.filter(|head| head.contains("range: bytes="));
    assert!(ranges.count() >= 3, "{heads:?}");
}

#[test]
fn another_form_of_the_file_is_not_stored() {
    let passive = passive();
    let active = active(&passive);
    for streams in [1, 2] {
        let fake = Fake::new(&passive, |_, s| ok(s, "Content-Encoding: gzip\r\n", "abc"));
        let head = format!("X-Number-Of-Streams: {streams}\r\n");
        fails(pull(&active, "/f", &fake.url(), &head), "another form");
        let heads = fake.heads();
        let asks = |head: &String| head.contains("accept-encoding: identity");
        assert!(heads.iter().all(asks), "{heads:?}");
    }
    eventually("nothing is left", || names(&active, "") == ["sam"]);
    let fake = Fake::new(&passive, |_, s| {
        ok(s, "Content-Encoding: identity\r\n", "abc")
    });
    assert_eq!(ending(pull(&active, "/f", &fake.url(), "")), DONE);
}

#[test]
fn malformed_checksums_of_a_source_do_not_count_as_none() {
    let passive = passive();
    let active = active(&passive);
    let in_get = Fake::new(&passive, |_, s| ok(s, "Digest: adler32=xyz\r\n", "abc"));
    fails(pull(&active, "/f", &in_get.url(), ""), "is malformed");
    let in_head = Fake::new(&passive, |head, s| match head.starts_with("HEAD") {
        true => {
            let digest = "Repr-Digest: md5=:AAAA:\r\n";
            say(
                s,
                &format!("HTTP/1.1 200 x\r\nContent-Length: 3\r\n{digest}\r\n"),
            )
        }
        false => ok(s, "", "abc"),
    });
    fails(pull(&active, "/f", &in_head.url(), ""), "is malformed");
    eventually("nothing is left", || names(&active, "") == ["sam"]);
}

/// A destination that answers a HEAD before the PUT and one after it with these statuses.
fn destination(passive: &Site, before: &'static str, after: &'static str) -> Fake {
    let puts = AtomicUsize::new(0);
    Fake::new(passive, move |head, stream| {
        let status = match head.starts_with("PUT") {
            true => {
                // The file of the tests has one byte.
                puts.fetch_add(1, Ordering::Relaxed);
                say(stream, "HTTP/1.1 100 Continue\r\n\r\n");
                stream.read_exact(&mut [0]).unwrap();
                "201 x"
            }
            false if puts.load(Ordering::Relaxed) == 0 => before,
            false => after,
        };
        say(
            stream,
            &format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\n\r\n"),
        )
    })
}

#[test]
fn a_push_believes_what_the_destination_says_about_the_file() {
    let passive = passive();
    let active = active(&passive);
    active.server.write("small", [7]);
    let push = |fake: &Fake, head: &str| {
        let head = format!("Destination: {}\r\n{THEIRS}{head}", fake.url());
        copy(&active, "/small", &head)
    };
    let careful = "Overwrite: F\r\n";
    let was_put = |fake: &Fake| fake.heads().iter().any(|head| head.starts_with("PUT"));
    for status in ["403 x", "405 x", "500 x"] {
        let fake = destination(&passive, status, "405 x");
        fails(
            push(&fake, careful),
            "cannot tell whether the destination exists",
        );
        assert!(!was_put(&fake), "{status}");
    }
    for status in ["404 x", "410 x"] {
        let fake = destination(&passive, status, "405 x");
        assert_eq!(ending(push(&fake, careful)), DONE);
        let fake = destination(&passive, status, status);
        fails(push(&fake, ""), "does not have the file");
        assert!(was_put(&fake), "{status}");
    }
}

#[test]
fn redirects_carry_no_credentials_to_another_server() {
    let passive = passive();
    let active = active(&passive);
    let last = Fake::new(&passive, |_, stream| ok(stream, ABCDEF, "abcdef"));
    let location = format!(
        "HTTP/1.1 307 x\r\nLocation: {}\r\nContent-Length: 0\r\n\r\n",
        last.url()
    );
    let first = Fake::new(&passive, move |_, stream| say(stream, &location));
    assert_eq!(ending(pull(&active, "/f", &first.url(), "")), DONE);
    assert!(
        first
            .heads()
            .iter()
            .all(|head| head.contains("authorization: basic"))
    );
    assert!(!last.heads().is_empty());
    assert!(
        !last
            .heads()
            .iter()
            .any(|head| head.contains("authorization"))
    );
    for (location, why) in [
        ("http://127.0.0.1/f", "from https to http"),
        ("https://10.0.0.1/f", "can allow it (allow-copy-host)"),
        ("ftp://127.0.0.1/f", "no URL"),
        ("/f", "circle"),
    ] {
        let head = format!("HTTP/1.1 302 x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        let fake = Fake::new(&passive, move |_, stream| say(stream, &head));
        fails(pull(&active, "/g", &fake.url(), ""), why);
    }
}

#[test]
fn a_copy_whose_client_is_gone_ends_and_leaves_nothing() {
    let passive = passive();
    let active = active_with(&passive, |copies| copies.per_user = 1);
    let closed = Arc::new(Mutex::new(None));
    let sees = Arc::clone(&closed);
    let fake = Fake::new(&passive, move |_, stream| {
        say(
            stream,
            "HTTP/1.1 200 x\r\nContent-Length: 999999999\r\n\r\nabc",
        );
        let mut byte = [0];
        let _ = stream.read(&mut byte);
        *sees.lock().unwrap() = Some(Instant::now());
        false
    });
    let mut client = connect(&active, None);
    let head = format!("{KIM}Source: {}\r\n", fake.url());
    let request = format!("COPY /f HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
    client.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    while text.matches("Perf Marker").count() < 3 {
        let mut bytes = [0; 1024];
        let got = client.read(&mut bytes).unwrap();
        assert!(got > 0, "{text}");
        text.push_str(&String::from_utf8_lossy(&bytes[..got]));
    }
    assert!(text.contains("Stripe Bytes Transferred: 0\n"), "{text}");
    assert_eq!(names(&active, "").len(), 2, "a partial file");
    let refused = pull(&active, "/g", &fake.url(), "").is(429);
    assert_eq!(refused.header("retry-after"), "10");
    drop(client);
    eventually("the source is left", || closed.lock().unwrap().is_some());
    eventually("nothing is left", || names(&active, "") == ["sam"]);
    let source = Fake::new(&passive, |_, stream| ok(stream, "", "x"));
    eventually("there is a place again", || {
        pull(&active, "/g", &source.url(), "")
            .text()
            .ends_with(&format!("{DONE}\n"))
    });
}
