//! Uploads in parts to servers that know less of them than ours, or say something wrong.

use std::{
    fs,
    net::{Shutdown, TcpStream},
    sync::OnceLock,
};

use crate::{
    harness::{Ran, bytes, godwit, text},
    hostile_http::{FakeHttp, Heard, multistatus, send},
};

const LENGTH: usize = 40 << 20;

/// The number after `name: ` in the headers of a request.
fn number(heard: &Heard, name: &str) -> Option<usize> {
    let value = heard.2.lines().find_map(|line| line.strip_prefix(name))?;
    value.strip_prefix(": ")?.trim().parse().ok()
}

/// The bytes that a part is to have.
fn range(heard: &Heard) -> Option<(usize, usize)> {
    let mut lines = heard.2.lines();
    let value = lines.find_map(|line| line.strip_prefix("content-range: bytes "))?;
    let (first, rest) = value.split_once('-')?;
    let (last, size) = rest.split_once('/')?;
    assert_eq!(size.trim().parse(), Ok(LENGTH));
    Some((first.parse().unwrap(), last.parse::<usize>().unwrap() + 1))
}

const OPEN: &str = "1, godwit-parts, godwit-open-parts";

/// A server that answers parts with what `stored` makes of their first byte and their length.
fn server(dav: &'static str, stored: fn(usize, usize) -> String) -> FakeHttp {
    FakeHttp::offering(dav, true, move |heard, stream| match range(heard) {
        Some((first, _)) if heard.0 == "PUT" => {
            let length = number(heard, "content-length").or(number(heard, "chunked-length"));
            let headers = stored(first, length.unwrap());
            send(stream, "204 No Content", &headers, b"");
        }
        _ => other(heard, stream),
    })
}

/// What is no part.
fn other(heard: &Heard, stream: &mut TcpStream) {
    match heard.0.as_str() {
        "PROPFIND" if heard.1 == "/" => multistatus(stream, &["/"], 0),
        "PROPFIND" if heard.1 == "/f" => send(stream, "404 Not Found", "", b""),
        "PROPFIND" => multistatus(stream, &[&heard.1], LENGTH),
        "PUT" | "MOVE" => send(stream, "201 Created", "", b""),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    }
}

fn stored(first: usize, end: usize) -> String {
    format!("Godwit-Stored: bytes {first}-{}/{LENGTH}\r\n", end - 1)
}

fn upload(server: &FakeHttp) -> Ran {
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("f");
    fs::write(&from, bytes(LENGTH, 3)).unwrap();
    let flags = [
        "cp",
        "-v",
        "--parallelism=4",
        "--no-verify",
        "--retries=9",
        "--retry-pause=0.01",
    ];
    let to = server.url("/f");
    let mut command = godwit(&[&flags[..], &[text(&from), &to]].concat());
    command.env("XDG_STATE_HOME", here.path().join("state"));
    command.output().unwrap().into()
}

/// Each byte of the file once, by what `length` says of a part.
#[track_caller]
fn covers(server: &FakeHttp, length: &str) {
    let heard = server.heard("PUT");
    let parts = heard.iter().filter(|heard| range(heard).is_some());
    let part = |heard: &Heard| (range(heard).unwrap().0, number(heard, length).unwrap());
    let mut parts: Vec<_> = parts.map(part).collect();
    parts.sort_unstable();
    let end = parts.iter().fold(0, |end, (first, length)| {
        assert_eq!(*first, end, "{parts:?}");
        first + length
    });
    assert_eq!(end, LENGTH);
}

#[test]
fn a_server_without_open_parts_gets_parts_that_say_their_length() {
    let server = server("1, godwit-parts", |_, _| String::new());
    upload(&server).expect(0, &[]);
    covers(&server, "content-length");
}

#[test]
fn a_server_with_open_parts_gets_chunks() {
    let server = server(OPEN, |first, length| stored(first, first + length));
    upload(&server).expect(0, &[]);
    covers(&server, "chunked-length");
}

#[test]
fn a_server_that_stores_less_has_not_stored_an_open_part() {
    let server = server(OPEN, |first, length| stored(first, first + length - 1));
    upload(&server).expect(4, &["the server says it has stored bytes "]);
    assert!(server.heard("MOVE").is_empty());
}

#[test]
fn a_server_that_closes_connections_in_their_first_part_gets_the_file_over_those_it_keeps() {
    let kept = OnceLock::new();
    let server = FakeHttp::offering(OPEN, true, move |heard, stream| match range(heard) {
        Some((first, _)) if heard.0 == "PUT" => {
            let from = stream.peer_addr().unwrap();
            match *kept.get_or_init(|| from) == from {
                true => {
                    let end = first + number(heard, "chunked-length").unwrap();
                    send(stream, "204 No Content", &stored(first, end), b"");
                }
                false => stream.shutdown(Shutdown::Both).unwrap(),
            }
        }
        _ => other(heard, stream),
    });
    upload(&server).expect(0, &[]);
    let begun = server.heard("PUT");
    let begun = begun.iter().filter(|heard| range(heard).is_none());
    assert_eq!(begun.count(), 1, "one attempt is enough");
}

/// A machine of another version behind the same name, or what is between and keeps bodies.
#[test]
fn where_open_parts_do_not_get_through_the_next_attempt_has_parts_that_say_their_length() {
    let silent = |_: &Heard, stream: &mut TcpStream| send(stream, "204 No Content", "", b"");
    let refuses = |heard: &Heard, stream: &mut TcpStream| match number(heard, "content-length") {
        Some(_) => send(stream, "204 No Content", "", b""),
        None => send(stream, "411 Length Required", "", b""),
    };
    for answer in [silent as fn(&Heard, &mut TcpStream), refuses] {
        let server = FakeHttp::offering(OPEN, true, move |heard, stream| match range(heard) {
            Some(_) if heard.0 == "PUT" => answer(heard, stream),
            _ => other(heard, stream),
        });
        upload(&server).expect(0, &["it does not take parts that end early"]);
    }
}
