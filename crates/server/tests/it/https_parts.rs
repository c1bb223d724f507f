//! PUT of parts: several connections write one file.

use std::{fs, io::Write as _, net::TcpStream, thread};

use openssl::ssl::SslStream;

use crate::{
    harness::{eventually, pattern},
    https::{Answer, KIM, SAM, ask, bearer, connect, names, read_answer},
    tls::{Site, Wishes},
};

/// A temporary name as clients of ours choose it.
const PART: &str = "/.godwit-0123456789abcdef.part";
const MIB: usize = 1 << 20;

/// The first bytes of a part that the server writes before more have come.
const WRITTEN: usize = 64 << 10;

fn site() -> Site {
    Site::new(Wishes {
        https: true,
        ..Wishes::default()
    })
}

/// Sends a part and returns the status of the answer.
fn put(site: &Site, range: &str, body: &[u8]) -> u16 {
    let head = format!("{KIM}Content-Range: {range}\r\n");
    ask(site, "PUT", PART, &head, body).status()
}

fn file(site: &Site) -> Vec<u8> {
    fs::read(site.server.path(PART.trim_start_matches('/'))).unwrap()
}

/// A part in chunks, on a connection of its own.
struct OpenPart(SslStream<TcpStream>);

impl OpenPart {
    fn begin(site: &Site, range: &str) -> Self {
        let coding = "Transfer-Encoding: chunked\r\n";
        let range = format!("Content-Range: {range}\r\n");
        let head = format!("PUT {PART} HTTP/1.1\r\nHost: a\r\n{coding}{range}{KIM}\r\n");
        let mut part = Self(connect(site, None));
        part.send(head.as_bytes());
        part
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.write_all(bytes).unwrap();
    }

    fn chunk(&mut self, bytes: &[u8]) {
        let head = format!("{:x}\r\n", bytes.len());
        self.send(&[head.as_bytes(), bytes, b"\r\n"].concat());
    }

    fn end(&mut self) -> Answer {
        self.send(b"0\r\n\r\n");
        self.answer()
    }

    fn answer(&mut self) -> Answer {
        read_answer(&mut self.0, false).expect("an answer")
    }
}

fn rename(site: &Site) -> u16 {
    let head = format!("{KIM}Destination: https://localhost/whole\r\n");
    ask(site, "MOVE", PART, &head, b"").status()
}

#[test]
fn parts_come_over_several_connections_in_any_order() {
    let site = site();
    let content = pattern(8 * MIB + 17, 5);
    let offered = ask(&site, "OPTIONS", "/", "", b"").is(200);
    assert_eq!(offered.header("dav"), "1, godwit-parts, godwit-open-parts");
    ask(&site, "PUT", PART, KIM, b"").is(201);
    thread::scope(|scope| {
        for lane in 0..3 {
            let (site, content) = (&site, &content);
            scope.spawn(move || {
                let parts: Vec<_> = content.chunks(MIB).enumerate().collect();
                for (number, part) in parts.iter().rev().skip(lane).step_by(3) {
                    let (first, size) = (number * MIB, content.len());
                    let range = format!("bytes {first}-{}/{size}", first + part.len() - 1);
                    assert_eq!(put(site, &range, part), 204, "{range}");
                }
            });
        }
    });
    assert_eq!(rename(&site), 201);
    assert!(site.server.read("whole") == content);
    assert_eq!(names(&site, ""), ["sam", "whole"]);
}

#[test]
fn parts_that_make_no_sense_are_refused() {
    let site = site();
    assert_eq!(put(&site, "bytes 0-3/4", b"abcd"), 404, "nothing is there");
    ask(&site, "PUT", PART, KIM, b"01234567").is(201);
    for (range, status) in [
        ("bytes 0-4/8", 400),
        ("bytes 0-2/8", 400),
        ("bytes 4-7/6", 400),
        ("bytes 3-0/8", 400),
        ("bytes 0-3/*", 400),
        ("bytes */8", 400),
        ("lines 0-3/8", 400),
        ("", 400),
        ("bytes 0-18446744073709551615/18446744073709551615", 400),
        ("bytes 18446744073709551611-18446744073709551614/*", 400),
        (
            "bytes 18446744073709551611-18446744073709551614/18446744073709551615",
            413,
        ),
        ("bytes 0-3/9223372036854775808", 413),
        ("bytes 0-3/8\r\nContent-Range: bytes 4-7/8", 400),
        ("bytes 0-3/7", 409),
        ("bytes 0-3/8\r\nDigest: adler32=00000001", 400),
        ("bytes 0-3/8\r\nIf-None-Match: *", 412),
        ("bytes 0-3/8\r\nContent-Encoding: gzip", 415),
    ] {
        assert_eq!(put(&site, range, b"abcd"), status, "{range}");
    }
    assert_eq!(file(&site), b"01234567");
    let head = format!("{KIM}Content-Range: bytes 0-3/8\r\n");
    site.server.write("f", b"01234567");
    for (path, status) in [
        ("/f", 403),
        ("/new", 403),
        ("/.godwit-0123456789abcdef.part/", 405),
        ("/none/.godwit-0123456789abcdef.part", 404),
    ] {
        ask(&site, "PUT", path, &head, b"abcd").is(status);
    }
    // A link of that name would lead to a final one.
    std::os::unix::fs::symlink("f", site.server.path(".godwit-0000000000000000.part")).unwrap();
    ask(
        &site,
        "PUT",
        "/.godwit-0000000000000000.part",
        &head,
        b"abcd",
    )
    .is(403);
    assert_eq!(site.server.read("f"), b"01234567");
    // Users who may not write write no parts.
    let as_sam = head.replace(KIM, SAM);
    ask(&site, "PUT", PART, &as_sam, b"abcd").is(403);
    assert_eq!(put(&site, "bytes 0-3/8", b"abcd"), 204);
    assert_eq!(file(&site), b"abcd4567");
}

#[test]
fn a_part_that_is_written_is_taken_over_and_keeps_the_file_from_its_name() {
    let site = site();
    ask(&site, "PUT", PART, KIM, b"").is(201);
    let range = format!("Content-Range: bytes 0-{}/{}\r\n", 2 * MIB - 1, 2 * MIB);
    let length = format!("Content-Length: {}\r\n", 2 * MIB);
    let head = format!("PUT {PART} HTTP/1.1\r\nHost: a\r\n{length}{range}{KIM}\r\n");
    let mut stuck = connect(&site, None);
    stuck.write_all(head.as_bytes()).unwrap();
    stuck.write_all(&[7; MIB]).unwrap();
    // The server writes half a MiB or more at a time.
    eventually("bytes of the part", || file(&site).len() >= MIB / 2);
    assert_eq!(rename(&site), 409, "a part is written");
    assert_eq!(
        put(&site, "bytes 0-3/3000000", b"abcd"),
        409,
        "another size"
    );
    let (first, last) = (2 * MIB - 4, 2 * MIB - 1);
    assert_eq!(
        put(&site, &format!("bytes {first}-{last}/{}", 2 * MIB), b"wxyz"),
        204
    );
    let answer = read_answer(&mut stuck, false).unwrap();
    assert_eq!(
        answer.is(409).text(),
        "another request writes these bytes\n"
    );
    assert_eq!(file(&site)[first..], *b"wxyz");
    // One whose client goes away leaves what has come.
    let mut cut = connect(&site, None);
    cut.write_all(head.as_bytes()).unwrap();
    cut.write_all(&[9; MIB]).unwrap();
    eventually("bytes of the part", || file(&site)[MIB / 2 - 1] == 9);
    drop(cut);
    eventually("a name", || rename(&site) == 201);
    assert_eq!(site.server.read("whole").len(), 2 * MIB);
}

#[test]
fn clients_that_may_not_write_a_file_do_not_stop_its_parts() {
    let site = site();
    ask(&site, "PUT", PART, KIM, b"").is(201);
    let range = format!("Content-Range: bytes 0-{}/{}\r\n", MIB - 1, MIB);
    let head =
        format!("PUT {PART} HTTP/1.1\r\nHost: a\r\nContent-Length: {MIB}\r\n{range}{KIM}\r\n");
    let mut writer = connect(&site, None);
    writer.write_all(head.as_bytes()).unwrap();
    writer.write_all(&[7; MIB - 1]).unwrap();
    eventually("bytes of the part", || file(&site).len() >= MIB / 4);
    let range = format!("Content-Range: bytes 0-3/{MIB}\r\n");
    for scope in ["storage.read:/ storage.create:/sam", "storage.create:/"] {
        let head = format!("{range}{}", bearer(&site, scope));
        ask(&site, "PUT", PART, &head, b"abcd").is(403);
    }
    writer.write_all(&[7]).unwrap();
    read_answer(&mut writer, false).unwrap().is(204);
    assert!(file(&site) == [7; MIB]);
}

#[test]
fn an_open_part_ends_with_its_last_chunk() {
    let site = site();
    let content = pattern(3 * MIB, 9);
    ask(&site, "PUT", PART, KIM, b"").is(201);
    let all = format!("bytes 0-{}/{}", 3 * MIB - 1, 3 * MIB);
    let mut part = OpenPart::begin(&site, &all);
    for chunk in content[..MIB].chunks(100_000) {
        part.chunk(chunk);
    }
    // The least that a chunk can have.
    for byte in &content[MIB..MIB + 1000] {
        part.chunk(std::slice::from_ref(byte));
    }
    let cut = MIB + 1000;
    let stored = format!("bytes 0-{}/{}", cut - 1, 3 * MIB);
    assert_eq!(part.end().is(204).header("godwit-stored"), stored);
    assert!(file(&site) == content[..cut]);
    let rest = format!("bytes {cut}-{}/{}", 3 * MIB - 1, 3 * MIB);
    let mut part = OpenPart::begin(&site, &rest);
    part.chunk(&content[cut..]);
    assert_eq!(part.end().is(204).header("godwit-stored"), rest);
    // One of a length says it, too.
    let head = format!("{KIM}Content-Range: bytes 0-3/{}\r\n", 3 * MIB);
    let answer = ask(&site, "PUT", PART, &head, &content[..4]).is(204);
    assert!(answer.header("godwit-stored").starts_with("bytes 0-3/"));
    assert_eq!(rename(&site), 201);
    assert!(site.server.read("whole") == content);
}

#[test]
fn an_open_part_that_is_malformed_or_breaks_off_is_not_stored() {
    let site = site();
    ask(&site, "PUT", PART, KIM, b"").is(201);
    let range = "bytes 0-3/8";
    let long_extension = format!("1;{}\r\na\r\n0\r\n\r\n", "x".repeat(20_000));
    let extensions = format!("1;{}\r\na\r\n", "x".repeat(4_000)).repeat(5);
    for (body, what) in [
        ("5\r\nabcde\r\n0\r\n\r\n", "more than its range"),
        ("2\r\nab\r\n3\r\ncde\r\n0\r\n\r\n", "the same in two chunks"),
        ("0\r\n\r\n", "no byte"),
        ("2\r\nabcd", "a chunk that is longer than it says"),
        ("x\r\nab\r\n0\r\n\r\n", "no number"),
        ("-1\r\nab\r\n0\r\n\r\n", "a sign"),
        (
            "10000000000000002\r\nab\r\n0\r\n\r\n",
            "a number of 65 bits",
        ),
        ("ffffffffffffffff\r\nabcde", "all that can be said"),
        ("2\nab\n0\n\n", "other ends of lines"),
        (&long_extension, "a long extension"),
        (&extensions, "extensions that are long together"),
    ] {
        let mut part = OpenPart::begin(&site, range);
        part.send(body.as_bytes());
        let answer = read_answer(&mut part.0, false);
        let status = answer.map(|answer| answer.status());
        assert!(matches!(status, None | Some(400)), "{what}: {status:?}");
    }
    // Without the last chunk the connection ends before the server can answer.
    let range = format!("bytes 0-{}/{MIB}", MIB - 1);
    let mut part = OpenPart::begin(&site, &range);
    part.chunk(&[1; WRITTEN]);
    eventually("bytes of the part", || file(&site).len() == WRITTEN);
    part.0.shutdown().unwrap();
    let answer = read_answer(&mut part.0, false);
    assert!(answer.is_none_or(|answer| answer.status() == 400));
    // Another part may have the bytes, and the file its name.
    let mut part = OpenPart::begin(&site, &range);
    part.chunk(&[2; MIB]);
    part.end().is(204);
    assert_eq!(rename(&site), 201);
    assert!(site.server.read("whole") == [2; MIB]);
}

#[test]
fn one_connection_sends_what_another_leaves_of_its_open_part() {
    let site = site();
    let content = pattern(2 * MIB, 3);
    let size = content.len();
    ask(&site, "PUT", PART, KIM, b"").is(201);
    let range = |from: usize| format!("bytes {from}-{}/{size}", size - 1);
    let mut slow = OpenPart::begin(&site, &range(0));
    slow.chunk(&content[..MIB]);
    eventually("bytes of the part", || file(&site).len() >= WRITTEN);
    let cut = MIB + MIB / 2;
    let mut other = OpenPart::begin(&site, &range(cut));
    other.chunk(&content[cut..]);
    other.end().is(204);
    // The first goes on to where the other has begun, however late.
    slow.chunk(&content[MIB..cut]);
    let stored = format!("bytes 0-{}/{size}", cut - 1);
    assert_eq!(slow.end().is(204).header("godwit-stored"), stored);
    assert!(file(&site) == content);
    // But no further, as long as the other writes.
    let mut first = OpenPart::begin(&site, &range(0));
    first.chunk(&[1; WRITTEN]);
    eventually("the first part", || file(&site)[..WRITTEN] == [1; WRITTEN]);
    let begin = 2 * WRITTEN;
    let mut second = OpenPart::begin(&site, &range(begin));
    second.chunk(&[2; WRITTEN]);
    eventually("the second part", || {
        file(&site)[begin..][..WRITTEN] == [2; WRITTEN]
    });
    first.chunk(&[3; 2 * WRITTEN]);
    first.answer().is(409);
    second.end().is(204);
    assert!(file(&site)[begin..][..WRITTEN] == [2; WRITTEN]);
}
