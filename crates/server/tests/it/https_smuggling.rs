//! Requests whose ends can be read in two ways, with other requests where one of them ends.

use std::io::{ErrorKind, Read as _, Write as _};

use crate::{
    https::{KIM, connect, names},
    https_copies::passive,
    tls::Site,
};

/// A server with a file that hidden requests would remove.
fn site() -> Site {
    let site = passive();
    site.server.write("victim", b"here");
    site
}

/// Requests that show when they are carried out.
fn hidden() -> String {
    format!(
        "DELETE /victim HTTP/1.1\r\nHost: a\r\n{KIM}\r\n\
         PUT /planted HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n{KIM}\r\nx"
    )
}

/// The request that ends a connection.
fn last() -> String {
    format!("HEAD /victim HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{KIM}\r\n")
}

/// The statuses of all answers to these bytes, until the server closes the connection.
fn statuses(site: &Site, sent: &str) -> Vec<u16> {
    let mut stream = connect(site, None);
    // The server may close it before it has read all.
    let _ = stream.write_all(sent.as_bytes());
    let mut answers = Vec::new();
    if let Err(error) = stream.read_to_end(&mut answers) {
        assert_ne!(error.kind(), ErrorKind::WouldBlock, "it stays open");
    }
    let text = String::from_utf8_lossy(&answers);
    let answers = text.split("HTTP/1.").skip(1);
    answers
        .map(|answer| answer[2..5].parse().unwrap())
        .collect()
}

/// A PUT with these headers and this body, and the last request behind it.
fn put(path: &str, headers: &str, body: &str) -> String {
    let last = last();
    format!("PUT {path} HTTP/1.1\r\nHost: a\r\n{KIM}{headers}\r\n{body}{last}")
}

#[track_caller]
fn nothing_hidden_was_carried_out(site: &Site, what: &str) {
    assert!(site.server.path("victim").exists(), "{what:?}");
    assert!(!site.server.path("planted").exists(), "{what:?}");
}

#[test]
fn requests_that_are_not_hidden_are_carried_out() {
    let site = site();
    let sent = format!("{}{}", hidden(), last());
    assert_eq!(statuses(&site, &sent), [204, 201, 404]);
    assert_eq!(names(&site, ""), ["planted", "sam"]);
}

#[test]
fn heads_with_a_doubtful_length_are_refused() {
    let site = site();
    let body = format!("hello{}", hidden());
    for headers in [
        "Content-Length: 5\r\nContent-Length: 6\r\n",
        "Content-Length: 5, 6\r\n",
        "Content-Length: 5 5\r\n",
        "Content-Length: +5\r\n",
        "Content-Length: 0x5\r\n",
        "Content-Length: \r\n",
        "Content-Length: 99999999999999999999\r\n",
        "Content-Length : 5\r\n",
        "Content-Length: 5\r\n 5\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: xchunked\r\n",
        "Transfer-Encoding: \u{b}chunked\r\n",
        "Transfer-Encoding: chunked;q=1\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: xchunked\r\n",
        "X: a\r\n Transfer-Encoding: chunked\r\n",
        "X: a\rTransfer-Encoding: chunked\r\n",
    ] {
        let sent = put("/first", headers, &body);
        assert_eq!(statuses(&site, &sent), [400], "{headers:?}");
        nothing_hidden_was_carried_out(&site, headers);
    }
    let chunked = "Transfer-Encoding: chunked\r\n";
    let old = put("/first", chunked, &format!("0\r\n\r\n{}", hidden()));
    let old = old.replacen("HTTP/1.1", "HTTP/1.0", 1);
    assert_eq!(statuses(&site, &old), [400]);
    assert_eq!(names(&site, ""), ["sam", "victim"]);
}

#[test]
fn chunks_with_a_doubtful_length_end_the_connection() {
    let site = site();
    for chunks in [
        "+5\r\nhello\r\n0\r\n\r\n",
        "-5\r\nhello\r\n0\r\n\r\n",
        "0x5\r\nhello\r\n0\r\n\r\n",
        " 5\r\nhello\r\n0\r\n\r\n",
        "5 5\r\nhello\r\n0\r\n\r\n",
        "5g\r\nhello\r\n0\r\n\r\n",
        "\r\nhello\r\n0\r\n\r\n",
        "ffffffffffffffff5\r\nhello\r\n0\r\n\r\n",
        "5\nhello\n0\n\n",
        "5\rhello\r\n0\r\n\r\n",
        "5;a\nhello\r\n0\r\n\r\n",
        "5\r\nhello\n0\r\n\r\n",
        "5\r\nhello!\r\n0\r\n\r\n",
    ] {
        let body = format!("{chunks}{}", hidden());
        let sent = put("/first", "Transfer-Encoding: chunked\r\n", &body);
        let statuses = statuses(&site, &sent);
        assert!(
            matches!(statuses[..], [] | [400]),
            "{chunks:?} {statuses:?}"
        );
        nothing_hidden_was_carried_out(&site, chunks);
        assert!(!site.server.path("first").exists(), "{chunks:?}");
    }
}

#[test]
fn chunks_count_more_than_a_length_and_the_connection_ends() {
    let site = site();
    let hidden = hidden();
    let in_chunk = format!("{:x}\r\n{hidden}\r\n0\r\n\r\n", hidden.len());
    let behind = format!("5\r\nhello\r\n0\r\n\r\n{hidden}");
    let cases = [(&in_chunk, hidden.as_str()), (&behind, "hello")];
    for (number, (body, stored)) in cases.into_iter().enumerate() {
        let (length, coding) = ("Content-Length: 4\r\n", "Transfer-Encoding: chunked\r\n");
        for (order, headers) in [[length, coding], [coding, length]].iter().enumerate() {
            let name = format!("{number}-{order}");
            let sent = put(&format!("/{name}"), &headers.concat(), body);
            // The last request gets no answer (RFC 9112 §6.1).
            assert_eq!(statuses(&site, &sent), [201], "{name}");
            assert_eq!(site.server.read(&name), stored.as_bytes(), "{name}");
            nothing_hidden_was_carried_out(&site, &name);
        }
    }
}

#[test]
fn the_body_of_a_refused_request_is_no_request() {
    let site = site();
    let body = hidden();
    let length = format!("Content-Length: {}\r\n", body.len());
    let whole = put("/first", &length, &body);
    assert_eq!(statuses(&site, &whole), [201, 200]);
    assert_eq!(site.server.read("first"), body.as_bytes());
    let stranger = "Authorization: Basic a2ltOndyb25n\r\n";
    let expecting = format!("{length}Expect: 100-continue\r\n");
    for (sent, status) in [
        (whole.replacen("PUT", "HEAD", 1), 200),
        (whole.replacen("PUT", "FLY", 1), 405),
        (whole.replacen(KIM, stranger, 1), 401),
        (
            put("/first", &format!("{length}If-Match: \"x\"\r\n"), &body),
            412,
        ),
        (
            put("/first", &expecting, &body).replacen(KIM, stranger, 1),
            401,
        ),
    ] {
        let statuses = statuses(&site, &sent);
        assert_eq!(statuses.first(), Some(&status), "{sent}");
        // The connection serves the last request, or ends.
        let rest = &statuses[1..];
        assert!(matches!(rest, [] | [200]), "{sent} {statuses:?}");
        nothing_hidden_was_carried_out(&site, &sent);
    }
    // More than the server reads of a refused body.
    let padded = format!("{}{body}", "x".repeat(300 << 10));
    let headers = format!("Content-Length: {}\r\nIf-Match: \"x\"\r\n", padded.len());
    let statuses = statuses(&site, &put("/first", &headers, &padded));
    assert!(
        matches!(statuses[..], [] | [412] | [412, 200]),
        "{statuses:?}"
    );
    nothing_hidden_was_carried_out(&site, "a large body");
}

#[test]
fn lines_that_end_otherwise_hide_no_request() {
    let site = site();
    let body = hidden();
    let head = format!(
        "PUT /first HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n{KIM}\r\n",
        body.len()
    );
    let sent = format!("{}{body}{}", head.replace('\r', ""), last());
    let statuses = statuses(&site, &sent);
    assert!(matches!(statuses[..], [400] | [201, 200]), "{statuses:?}");
    nothing_hidden_was_carried_out(&site, "lines without CR");
}

#[test]
fn bodies_in_a_form_that_is_not_decoded_are_not_stored() {
    let site = site();
    for codings in [
        "Transfer-Encoding: gzip, chunked\r\n",
        "Transfer-Encoding: identity, chunked\r\n",
        "Transfer-Encoding: chunked, chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let sent = put("/first", codings, "5\r\nhello\r\n0\r\n\r\n");
        assert_eq!(statuses(&site, &sent), [501, 200], "{codings:?}");
    }
    assert_eq!(names(&site, ""), ["sam", "victim"]);
    let sent = put(
        "/first",
        "Transfer-Encoding: Chunked\r\n",
        "5\r\nhello\r\n0\r\n\r\n",
    );
    assert_eq!(statuses(&site, &sent), [201, 200]);
}
