//! Servers of HTTP whose answers are cut off, never begin, have two lengths or more than their
//! length; and documents that grow when they are read.

use std::{
    fs,
    io::Write as _,
    net::{Shutdown, TcpStream},
    path::Path,
};

use crate::{
    harness::{Ran, bytes, for_each_at_once, nap, run, text},
    hostile_http::{FakeHttp, Heard, multistatus, send},
};

const OPEN: &str = "<D:multistatus xmlns:D=\"DAV:\">";

/// What is sent to a request.
type Reply = fn(&mut TcpStream);

/// Part of a multistatus: a file or, with a slash at its end, a directory.
fn response(href: &str) -> String {
    let kind = match href.ends_with('/') {
        true => "<D:collection/>",
        false => "",
    };
    format!(
        "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype>{kind}\
         </D:resourcetype><D:getcontentlength>1</D:getcontentlength></D:prop>\
         <D:status>HTTP/1.1 200 OK</D:status></D:propstat></D:response>"
    )
}

/// A file of 100 bytes, a GET of which is answered so.
fn file(answer: Reply) -> FakeHttp {
    FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], 100),
        "GET" => answer(stream),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    })
}

fn get(server: &FakeHttp, to: &Path) -> Ran {
    let url = server.url("/f");
    let options = ["cp", "--retries=1", "--stall-timeout=1", "--no-verify"];
    run(&[&options[..], &[url.as_str(), text(to)]].concat())
}

/// The range that is asked for, with its end.
fn range_of(heard: &Heard) -> Option<(usize, usize)> {
    let mut lines = heard.2.lines();
    let range = lines.find_map(|line| line.strip_prefix("range: bytes="))?;
    let (first, last) = range.trim().split_once('-')?;
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[test]
fn documents_that_grow_when_they_are_read_are_refused() {
    let mut entities = "<!ENTITY e0 \"many\">".to_owned();
    for n in 1..20 {
        let before = format!("&e{};", n - 1);
        entities += &format!("<!ENTITY e{n} \"{}\">", before.repeat(10));
    }
    let bomb = format!("<!DOCTYPE m [{entities}]>{OPEN}{}", response("/d/&e19;/"));
    let nameless = format!("{OPEN}{}</D:multistatus>", response("/d/&e19;/"));
    let deep = format!("{OPEN}{}", "<D:response>".repeat(20_000));
    let cases = [
        (bomb, "document type"),
        (nameless, "unknown entity"),
        (deep, "too large"),
    ];
    for_each_at_once(cases, |(document, why)| {
        let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
            "PROPFIND" => send(stream, "207 Multi-Status", "", document.as_bytes()),
            _ => send(stream, "405 Method Not Allowed", "", b""),
        });
        run(&["ls", &server.url("/d/")]).expect(4, &[why]);
    });
}

#[test]
fn a_listing_that_is_cut_off_lists_nothing_and_removes_nothing() {
    let part = format!("{OPEN}{}{}", response("/d/"), response("/d/x"));
    let whole = format!("{part}{}</D:multistatus>", response("/d/y"));
    let length = |bytes: usize| format!("Content-Length: {bytes}\r\n");
    let chunked = "Transfer-Encoding: chunked\r\n".to_owned();
    let chunk = format!("{:x}\r\n{part}\r\n", part.len());
    let cases = [
        (length(whole.len()), part.clone()),
        (chunked.clone(), chunk.clone()),
        // Whole by what HTTP says.
        (chunked, format!("{chunk}0\r\n\r\n")),
        (length(part.len()), part.clone()),
        ("Connection: close\r\n".to_owned(), part),
    ];
    for_each_at_once(cases, |(header, body)| {
        let said = header.clone();
        let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
            "PROPFIND" if heard.2.contains("depth: 0") => multistatus(stream, &["/d/"], 0),
            "PROPFIND" => {
                let answer = format!("HTTP/1.1 207 Multi-Status\r\n{header}\r\n{body}");
                drop(stream.write_all(answer.as_bytes()));
                drop(stream.shutdown(Shutdown::Both));
            }
            "GET" => send(stream, "200 OK", "", b"1"),
            _ => send(stream, "405 Method Not Allowed", "", b""),
        });
        let url = server.url("/d/");
        let listed = run(&["ls", &url]);
        assert_eq!(listed.code, 4, "{said}: {}", listed.err);
        assert!(listed.out.is_empty(), "{said}");
        let here = tempfile::tempdir().unwrap();
        for name in ["y", "surplus"] {
            fs::write(here.path().join(name), "kept").unwrap();
        }
        let synced = run(&["sync", "--delete", "--retries=1", &url, text(here.path())]);
        assert_ne!(synced.code, 0, "{said}");
        for name in ["y", "surplus"] {
            let found = fs::read(here.path().join(name)).unwrap();
            assert_eq!(found, b"kept", "{said}");
        }
    });
}

#[test]
fn an_answer_that_never_begins_is_given_up() {
    let cases: [(Reply, &str); 2] = [
        (
            // Slow enough not to be too long.
            |stream| {
                drop(stream.write_all(b"HTTP/1.1 200 OK\r\nX-Slow: "));
                while stream.write_all(b"x").is_ok() {
                    nap();
                }
            },
            "no answer within 1 s",
        ),
        (
            |stream| {
                while stream
                    .write_all(b"HTTP/1.1 103 Early Hints\r\nLink: </g>\r\n\r\n")
                    .is_ok()
                {}
            },
            "",
        ),
    ];
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    for (answer, why) in cases {
        get(&file(answer), &to).expect(4, &[why]);
        assert!(!to.exists());
    }
}

#[test]
fn hints_before_an_answer_are_no_answer() {
    let server = file(|stream| {
        for _ in 0..20 {
            drop(stream.write_all(b"HTTP/1.1 103 Early Hints\r\nContent-Length: 7\r\n\r\n"));
        }
        send(stream, "200 OK", "", &[7; 100]);
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(0, &[]);
    assert_eq!(fs::read(&to).unwrap(), [7; 100]);
}

#[test]
fn a_length_beside_chunks_does_not_count() {
    // With the marks of its chunk the body is longer than 100 bytes.
    let lacking = file(|stream| {
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n".to_vec();
        answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n5a\r\n");
        answer.extend_from_slice(&[7; 90]);
        answer.extend_from_slice(b"\r\n0\r\n\r\n");
        drop(stream.write_all(&answer));
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&lacking, &to).expect(4, &["10 bytes too early"]);
    assert!(!to.exists());
    let whole = file(|stream| {
        let mut answer = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n".to_vec();
        answer.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n64\r\n");
        answer.extend_from_slice(&[7; 100]);
        answer.extend_from_slice(b"\r\n0\r\n\r\n");
        drop(stream.write_all(&answer));
    });
    get(&whole, &to).expect(0, &[]);
    assert_eq!(fs::read(&to).unwrap(), [7; 100]);
}

#[test]
fn two_lengths_are_no_length() {
    let server = file(|stream| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 100\r\nContent-Length: 5\r\n\r\n";
        drop(stream.write_all(head.as_bytes()));
        drop(stream.write_all(&[7; 100]));
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    get(&server, &to).expect(4, &["content-length"]);
    assert!(!to.exists());
}

#[test]
fn what_follows_an_answer_does_not_answer_the_next_request() {
    let server = FakeHttp::start(|heard, stream| match heard.0.as_str() {
        "PROPFIND" if heard.2.contains("depth: 0") => multistatus(stream, &["/d/"], 0),
        "PROPFIND" => multistatus(stream, &["/d/", "/d/a", "/d/b", "/d/c"], 4),
        "GET" => {
            let answer = |content: &str| {
                let length = content.len();
                format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{content}")
            };
            let both = answer(&heard.1) + &answer("evil");
            drop(stream.write_all(both.as_bytes()));
        }
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("d");
    let url = server.url("/d/");
    let options = ["cp", "-r", "-c", "1", "-p", "1", "--no-verify"];
    run(&[&options[..], &[url.as_str(), text(&to)]].concat()).expect(0, &[]);
    for name in ["a", "b", "c"] {
        let found = fs::read_to_string(to.join(name)).unwrap();
        assert_eq!(found, format!("/d/{name}"));
    }
}

#[test]
fn bytes_of_another_range_are_not_taken() {
    const LENGTH: usize = 3 << 20;
    let content = bytes(LENGTH, 11);
    let server = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], LENGTH),
        "GET" => match range_of(heard) {
            // It breaks off, so that the rest is asked for.
            None => {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {LENGTH}\r\n\r\n");
                drop(stream.write_all(head.as_bytes()));
                drop(stream.write_all(&content[..1 << 20]));
                drop(stream.shutdown(Shutdown::Both));
            }
            Some((first, last)) => {
                let (first, last) = (first - 1, last - 1);
                let headers = format!("Content-Range: bytes {first}-{last}/{LENGTH}\r\n");
                let body = &content[first..=last];
                send(stream, "206 Partial Content", &headers, body);
            }
        },
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let url = server.url("/f");
    let options = ["cp", "--retries=2", "--no-verify"];
    let ran = run(&[&options[..], &[url.as_str(), text(&to)]].concat());
    ran.expect(4, &["where others were asked for"]);
    assert!(!to.exists());
    let asked = server.heard("GET");
    assert!(asked.iter().any(|heard| range_of(heard).is_some()));
}
