//! Servers of HTTP that lie, stall, lead elsewhere or never end.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    net::{SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
};

use crate::harness::{Ran, bytes, godwit, text};

/// A request: method, path, headers in lower case, one a line, and a form as it came.
pub(crate) type Heard = (String, String, String);

type Answer = fn(&Heard, &mut TcpStream);

/// A server that answers each request with what `answer` writes, and closes where that says so.
pub(crate) struct FakeHttp {
    address: SocketAddr,
    heard: Arc<Mutex<Vec<Heard>>>,
}

impl FakeHttp {
    pub(crate) fn start(answer: impl Fn(&Heard, &mut TcpStream) + Send + Sync + 'static) -> Self {
        Self::reading(true, answer)
    }

    /// `bodies`: it reads them before it answers.
    pub(crate) fn reading(
        bodies: bool,
        answer: impl Fn(&Heard, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        Self::offering("1", bodies, answer)
    }

    /// `dav`: the words of that header.
    pub(crate) fn offering(
        dav: &'static str,
        bodies: bool,
        answer: impl Fn(&Heard, &mut TcpStream) + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let heard = Arc::<Mutex<Vec<Heard>>>::default();
        let (kept, answer) = (Arc::clone(&heard), Arc::new(answer));
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (kept, answer) = (Arc::clone(&kept), Arc::clone(&answer));
                thread::spawn(move || {
                    let mut lines = BufReader::new(stream.try_clone().unwrap());
                    let mut stream = stream;
                    while let Some(request) = read_request(&mut lines, bodies) {
                        kept.lock().unwrap().push(request.clone());
                        match request.0.as_str() {
                            "OPTIONS" => {
                                let dav = format!("DAV: {dav}\r\n");
                                send(&mut stream, "200 OK", &dav, b"");
                            }
                            _ => answer(&request, &mut stream),
                        }
                    }
                });
            }
        });
        Self { address, heard }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn heard(&self, method: &str) -> Vec<Heard> {
        let heard = self.heard.lock().unwrap();
        heard.iter().filter(|h| h.0 == method).cloned().collect()
    }
}

fn read_request(lines: &mut BufReader<TcpStream>, bodies: bool) -> Option<Heard> {
    let mut first = String::new();
    lines
        .read_line(&mut first)
        .ok()
        .filter(|bytes| *bytes > 0)?;
    let mut words = first.split(' ').map(str::to_owned);
    let (method, path) = (words.next()?, words.next()?);
    let mut headers = String::new();
    loop {
        let mut line = String::new();
        lines.read_line(&mut line).ok()?;
        if line.trim().is_empty() {
            break;
        }
        headers += &line.to_ascii_lowercase();
    }
    let length = headers
        .lines()
        .find_map(|l| l.strip_prefix("content-length: "));
    let length = length.filter(|_| bodies);
    let mut length: usize = length.map_or(0, |text| text.trim().parse().unwrap());
    let mut body = vec![0; length];
    std::io::Read::read_exact(lines, &mut body).ok()?;
    if headers.contains("application/x-www-form-urlencoded") {
        headers += &format!("form: {}\n", String::from_utf8_lossy(&body));
    }
    if bodies && headers.contains("transfer-encoding: chunked") {
        loop {
            let mut line = String::new();
            lines.read_line(&mut line).ok()?;
            let chunk = usize::from_str_radix(line.trim(), 16).ok()?;
            std::io::Read::read_exact(lines, &mut vec![0; chunk + 2]).ok()?;
            length += chunk;
            if chunk == 0 {
                break;
            }
        }
        headers += &format!("chunked-length: {length}\n");
    }
    Some((method, path, headers))
}

pub(crate) fn send(stream: &mut TcpStream, status: &str, headers: &str, body: &[u8]) {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {}\r\n{headers}\r\n",
        body.len()
    );
    // The client may have gone.
    drop(stream.write_all(head.as_bytes()));
    drop(stream.write_all(body));
}

/// A multistatus about a file or, with a slash at its end, a directory, each.
pub(crate) fn multistatus(stream: &mut TcpStream, hrefs: &[&str], length: usize) {
    multistatus_of(stream, hrefs, length, "Mon, 12 Jan 2026 09:25:24 GMT");
}

/// The same, with their time.
pub(crate) fn multistatus_of(stream: &mut TcpStream, hrefs: &[&str], length: usize, time: &str) {
    let mut body = "<D:multistatus xmlns:D=\"DAV:\">".to_owned();
    for href in hrefs {
        let kind = match href.ends_with('/') {
            true => "<D:collection/>",
            false => "",
        };
        body += &format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}\
             </D:resourcetype><D:getcontentlength>{length}</D:getcontentlength>\
             <D:getlastmodified>{time}</D:getlastmodified></D:prop>\
             <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
        );
    }
    body += "</D:multistatus>";
    send(stream, "207 Multi-Status", "", body.as_bytes());
}

fn run(arguments: &[&str]) -> Ran {
    godwit(arguments).output().unwrap().into()
}

fn get(server: &FakeHttp, to: &std::path::Path) -> Ran {
    run(&[
        "cp",
        "--retries=2",
        "--no-verify",
        &server.url("/f"),
        text(to),
    ])
}

/// A file whose GET is answered by `answer`.
fn file(length: usize, answer: Answer) -> FakeHttp {
    FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], length),
        "GET" => answer(heard, stream),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    })
}

#[test]
fn answers_that_are_not_the_file_make_no_file() {
    let cases: [(Answer, &str); 7] = [
        (|_, s| send(s, "200 OK", "", b"short"), "changed meanwhile"),
        (|_, s| send(s, "200 OK", "", &[7; 200]), "changed meanwhile"),
        (
            |_, s| {
                send(
                    s,
                    "206 Partial Content",
                    "Content-Range: bytes 5-104/105\r\n",
                    &[7; 100],
                )
            },
            "206",
        ),
        (
            |_, s| send(s, "200 OK", "Content-Encoding: gzip\r\n", &[7; 100]),
            "Content-Encoding",
        ),
        (|_, s| send(s, "204 No Content", "", b""), "204"),
        (
            |_, s| {
                let head = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nno more";
                drop(s.write_all(head));
                drop(s.shutdown(std::net::Shutdown::Both));
            },
            "connection",
        ),
        (
            |_, s| {
                drop(s.write_all(b"HTTP/1.1 200 OK\r\n"));
                while s.write_all(b"X-Endless: yes\r\n").is_ok() {}
            },
            "",
        ),
    ];
    let here = tempfile::tempdir().unwrap();
    for (case, (answer, word)) in cases.into_iter().enumerate() {
        let server = file(100, answer);
        let to = here.path().join(format!("f{case}"));
        get(&server, &to).expect(4, &[word]);
        assert!(!to.exists(), "{case}");
    }
}

#[test]
fn redirects_end_and_take_no_password_along() {
    let content = bytes(100, 1);
    let body = content.clone();
    let other = file(100, |_, _| {});
    drop(other);
    let other = FakeHttp::start(move |_, stream| send(stream, "200 OK", "", &body));
    let to = other.url("/elsewhere");
    let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], 100),
        _ => send(stream, "302 Found", &format!("Location: {to}\r\n"), b""),
    });
    let here = tempfile::tempdir().unwrap();
    let file_here = here.path().join("f");
    let url = server.url("/f").replace("http://", "http://jo:s3cret@");
    run(&["cp", "--no-verify", &url, text(&file_here)]).expect(0, &[]);
    assert_eq!(fs::read(&file_here).unwrap(), content);
    assert!(server.heard("GET")[0].2.contains("authorization: basic"));
    assert!(!other.heard("GET")[0].2.contains("authorization"));
    let circle = file(100, |heard, stream| {
        let next = format!("Location: {}x\r\n", heard.1);
        send(stream, "302 Found", &next, b"");
    });
    get(&circle, &here.path().join("g")).expect(4, &["redirects"]);
    assert!(circle.heard("GET").len() < 30);
}

#[test]
fn names_that_lead_outside_the_directory_are_refused() {
    for name in ["/d/..%2fx", "/d/a%2Fb", "/other", "/d/x%0Ay", "https://h/e"] {
        let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
            "PROPFIND" if heard.2.contains("depth: 0") => multistatus(stream, &["/d/"], 0),
            "PROPFIND" => multistatus(stream, &["/d/", name], 1),
            _ => send(stream, "200 OK", "", b"x"),
        });
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("d");
        let ran = run(&["cp", "-r", "--no-verify", &server.url("/d/"), text(&to)]);
        assert_ne!(ran.code, 0, "{name}");
        assert!(ran.err.contains("refused the name"), "{name}: {}", ran.err);
        assert!(server.heard("GET").is_empty(), "{name}");
    }
}

#[test]
fn a_file_that_changes_between_two_ranges_is_no_mixture() {
    let server = FakeHttp::start(|heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], 48 << 20),
        "GET" => {
            let range = heard
                .2
                .lines()
                .find_map(|l| l.strip_prefix("range: bytes="));
            let range = range.unwrap_or("0-50331647");
            let (first, last) = range.trim().split_once('-').unwrap();
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let tag = if first == 0 { "\"one\"" } else { "\"two\"" };
            let headers = format!(
                "ETag: {tag}\r\nAccept-Ranges: bytes\r\n\
                 Content-Range: bytes {first}-{last}/50331648\r\n"
            );
            let body = vec![7; last + 1 - first];
            let status = match heard.2.contains("range: bytes=") {
                true => "206 Partial Content",
                false => "200 OK",
            };
            send(stream, status, &headers, &body);
        }
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let flags = ["cp", "--parallelism=4", "--concurrency=1", "--no-verify"];
    let ran = run(&[&flags[..], &[&server.url("/f"), text(&to)]].concat());
    ran.expect(4, &["changed meanwhile"]);
    assert!(!to.exists());
    let ranged = server.heard("GET");
    assert!(ranged.iter().any(|h| h.2.contains("if-match: \"one\"")));
}

#[test]
fn a_server_without_webdav_has_files_and_no_listings() {
    let server = FakeHttp::start(|heard, stream| match heard.0.as_str() {
        "HEAD" | "GET" => {
            let body: &[u8] = match heard.0.as_str() {
                "GET" => b"12345",
                _ => b"",
            };
            let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n";
            drop(stream.write_all(head.as_bytes()));
            drop(stream.write_all(body));
        }
        _ => send(stream, "501 Not Implemented", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(0, &[]);
    assert_eq!(fs::read(&to).unwrap(), b"12345");
    run(&["ls", &server.url("/d/")]).expect(4, &["no listings"]);
}

#[test]
fn a_server_that_takes_no_parts_gets_one_stream_and_the_user_hears_of_it() {
    const LENGTH: usize = 9 << 20;
    let server = FakeHttp::start(|heard, stream| match (heard.0.as_str(), heard.1.as_str()) {
        ("PROPFIND", "/") => multistatus(stream, &["/"], 0),
        ("PROPFIND", "/f") => multistatus(stream, &["/f"], LENGTH),
        ("PUT", _) => send(stream, "201 Created", "", b""),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    fs::write(&from, bytes(LENGTH, 3)).unwrap();
    let flags = ["cp", "-v", "--parallelism=4", "--no-verify"];
    let ran = run(&[&flags[..], &[text(&from), &server.url("/f")]].concat());
    ran.expect(0, &["no uploads in parts", "begins again if it breaks off"]);
    let puts = server.heard("PUT");
    assert_eq!(puts.len(), 1);
    assert!(!puts[0].2.contains("content-range"), "{}", puts[0].2);
}

#[test]
fn a_download_that_broke_off_goes_on_where_it_was() {
    let content = bytes(3 << 20, 5);
    let expected = content.clone();
    let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], content.len()),
        "GET" => {
            let range = heard
                .2
                .lines()
                .find_map(|l| l.strip_prefix("range: bytes="));
            let Some(range) = range else {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n",
                    content.len()
                );
                drop(stream.write_all(head.as_bytes()));
                drop(stream.write_all(&content[..1 << 20]));
                drop(stream.shutdown(std::net::Shutdown::Both));
                return;
            };
            let (first, last) = range.trim().split_once('-').unwrap();
            let (first, last): (usize, usize) = (first.parse().unwrap(), last.parse().unwrap());
            let headers = format!("Content-Range: bytes {first}-{last}/{}\r\n", content.len());
            send(
                stream,
                "206 Partial Content",
                &headers,
                &content[first..=last],
            );
        }
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(0, &[]);
    assert!(fs::read(&to).unwrap() == expected);
    let gets = server.heard("GET");
    assert_eq!(gets.len(), 2);
    assert!(!gets[1].2.contains("range: bytes=0-"), "{}", gets[1].2);
}

#[test]
fn without_a_version_a_file_comes_in_one_answer() {
    // Each answer is of another version of the file, which nothing tells.
    let answer: Answer = |heard, stream| {
        let wanted = heard
            .2
            .lines()
            .find_map(|line| line.strip_prefix("range: bytes="));
        let Some((from, to)) = wanted.and_then(|range| range.split_once('-')) else {
            return send(stream, "200 OK", "", &vec![1; 48 << 20]);
        };
        let from: usize = from.parse().unwrap();
        let to = to.trim().parse().map_or(48 << 20, |to: usize| to + 1);
        let head = format!("Content-Range: bytes {from}-{}/{}\r\n", to - 1, 48 << 20);
        let version = u8::try_from(2 + from % 7).unwrap();
        send(
            stream,
            "206 Partial Content",
            &head,
            &vec![version; to - from],
        );
    };
    let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus_of(stream, &["/f"], 48 << 20, ""),
        "GET" => answer(heard, stream),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let many = [
        "cp",
        "-p",
        "4",
        "-c",
        "1",
        "--no-verify",
        &server.url("/f"),
        text(&to),
    ];
    run(&many).expect(0, &[]);
    let got = fs::read(&to).unwrap();
    assert!(got.len() == 48 << 20 && got.iter().all(|byte| *byte == got[0]));
}

#[test]
fn a_file_that_has_grown_is_not_cut_to_its_old_length() {
    let answer: Answer = |_, stream| send(stream, "200 OK", "", &vec![1; 64 << 20]);
    let server = file(48 << 20, answer);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let many = [
        "cp",
        "-p",
        "4",
        "-c",
        "1",
        "--retries=1",
        "--no-verify",
        &server.url("/f"),
        text(&to),
    ];
    assert_ne!(run(&many).code, 0);
    assert!(!to.exists());
}

#[test]
fn what_a_server_does_not_describe_is_neither_missing_nor_a_file() {
    const OPEN: &str = "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/d/</D:href>\
        <D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype></D:prop>\
        <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>";
    let server = FakeHttp::start(|heard, stream| {
        let hidden = "<D:response><D:href>/d/x</D:href><D:status>HTTP/1.1 403 Forbidden</D:status>\
            </D:response></D:multistatus>";
        let untyped = "<D:multistatus xmlns:D=\"DAV:\"><D:response><D:href>/u</D:href>\
            <D:propstat><D:prop><D:getlastmodified>Mon, 12 Jan 2026 09:25:24 GMT\
            </D:getlastmodified></D:prop><D:status>HTTP/1.1 200 OK</D:status></D:propstat>\
            </D:response></D:multistatus>";
        let is_deep = heard.2.contains("depth: 1");
        let body = match heard.1.as_str() {
            "/u" => untyped.to_owned(),
            _ if is_deep => format!("{OPEN}{hidden}"),
            _ => format!("{OPEN}</D:multistatus>"),
        };
        match heard.0.as_str() {
            "PROPFIND" => send(stream, "207 Multi-Status", "", body.as_bytes()),
            _ => send(stream, "204 No Content", "", b""),
        }
    });
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("x"), b"kept").unwrap();
    let sync = ["sync", "--delete", &server.url("/d/"), text(here.path())];
    assert_ne!(run(&sync).code, 0);
    assert_eq!(fs::read(here.path().join("x")).unwrap(), b"kept");
    assert_ne!(run(&["rm", "-r", &server.url("/d")]).code, 0);
    assert_ne!(run(&["rm", &server.url("/u")]).code, 0);
    assert!(server.heard("DELETE").is_empty());
}

#[test]
fn a_name_is_not_replaced_where_the_server_does_not_tell_what_has_it() {
    let was_moved = AtomicBool::new(false);
    let server = FakeHttp::start(
        move |heard, stream| match (heard.0.as_str(), heard.1.as_str()) {
            ("PROPFIND", "/f") => multistatus(stream, &["/f"], 5),
            ("MOVE", _) => {
                was_moved.store(true, Ordering::Relaxed);
                send(stream, "412 Precondition Failed", "", b"");
            }
            _ if was_moved.load(Ordering::Relaxed) => send(stream, "403 Forbidden", "", b""),
            _ => send(stream, "404 Not Found", "", b""),
        },
    );
    assert_ne!(run(&["mv", &server.url("/f"), &server.url("/g")]).code, 0);
    let moves = server.heard("MOVE");
    assert!(!moves.is_empty() && moves.iter().all(|heard| heard.2.contains("overwrite: f")));
}

#[test]
fn a_change_is_not_carried_to_another_server() {
    let other = FakeHttp::start(|_, stream| send(stream, "204 No Content", "", b""));
    let elsewhere = format!("Location: {}\r\n", other.url("/precious"));
    let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], 5),
        _ => send(stream, "307 Temporary Redirect", &elsewhere, b""),
    });
    assert_ne!(run(&["rm", &server.url("/f")]).code, 0);
    assert!(!server.heard("DELETE").is_empty() && other.heard("DELETE").is_empty());
}
