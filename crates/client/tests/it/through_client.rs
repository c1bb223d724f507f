//! Copies between servers that cannot send to each other: files pass through the client.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::atomic::{AtomicUsize, Ordering},
    thread,
    time::Duration,
};

use serde_json::Value;

use crate::{
    harness::{Ran, Served, bytes, godwit, nap, text, tree},
    hostile_http::{FakeHttp, Heard, multistatus, multistatus_of, send},
    https::Door,
    relay::{Relay, Spoil},
};

/// A server of HTTPS and one of FTP.
fn unlike() -> (Door, Served) {
    (Door::open(), Served::start())
}

fn same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

#[test]
fn files_of_every_size_pass_both_ways() {
    let (door, server) = unlike();
    for (at, length) in [0, 1, 300_000, 40 << 20].into_iter().enumerate() {
        let (from, to) = (format!("f{at}"), format!("g{at}"));
        fs::write(server.path(&from), bytes(length, at as u64)).unwrap();
        let ends = [server.url(&format!("/{from}")), door.url(&format!("/{to}"))];
        let ran = door.run(&["cp", "-v", "-p", "3", &ends[0], &ends[1]]);
        ran.expect(0, &["pass through this machine", "1 file"]);
        same(&server.path(&from), &door.root(&to));
        let back = server.url(&format!("/back{at}"));
        let ran = door.run(&["cp", "-p", "3", "-c", "2", &ends[1], &back]);
        ran.expect(0, &["1 file"]);
        same(&server.path(&from), &server.path(&format!("back{at}")));
    }
    assert_eq!(tree(&door.root("")).len(), 4, "no temporary file stays");
    assert_eq!(tree(server.root.path()).len(), 8);
}

#[test]
fn trees_pass_both_ways_and_a_second_sync_copies_nothing() {
    let (door, server) = unlike();
    for (at, name) in ["a", "two  blanks", "deep/er/ü%41", "empty"]
        .iter()
        .enumerate()
    {
        let path = server.path("top").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(at * 70_000, at as u64)).unwrap();
    }
    let ends = [server.url("/top/"), door.url("/top/"), server.url("/back/")];
    door.run(&["cp", "-r", &ends[0], &ends[1]])
        .expect(0, &["4 files"]);
    assert_eq!(tree(&server.path("top")), tree(&door.root("top")));
    let sync = |from: &str, to: &str| door.run(&["sync", "--delete", from, to]);
    sync(&ends[1], &ends[2]).expect(0, &["4 files"]);
    for name in tree(&server.path("top")) {
        if !name.ends_with('/') {
            same(
                &server.path("top").join(&name),
                &server.path("back").join(&name),
            );
        }
    }
    sync(&ends[1], &ends[2]).expect(0, &["0 files"]);
    fs::write(server.path("top/a"), b"other").unwrap();
    fs::remove_file(server.path("top/empty")).unwrap();
    sync(&ends[0], &ends[1]).expect(0, &["1 file"]);
    assert_eq!(tree(&server.path("top")), tree(&door.root("top")));
    same(&server.path("top/a"), &door.root("top/a"));
}

#[test]
fn a_part_of_a_file_of_http_is_written_into_another() {
    let (door, server) = unlike();
    fs::write(door.root("f"), b"0123456789").unwrap();
    fs::write(server.path("g"), b"abcdefghij").unwrap();
    let flags = ["cp", "--offset=3", "--length=4"];
    let ends = [door.url("/f"), server.url("/g")];
    door.run(&[&flags[..], &[&ends[0], &ends[1]]].concat())
        .expect(0, &[]);
    assert_eq!(fs::read(server.path("g")).unwrap(), b"abc3456hij");
}

#[test]
fn a_missing_source_leaves_nothing_at_the_destination() {
    let (door, server) = unlike();
    let ends = [server.url("/none"), door.url("/none")];
    let ran = door.run(&["cp", &ends[0], &ends[1]]);
    ran.expect(4, &[&ends[0]]);
    let ran = door.run(&["cp", &ends[1], &ends[0]]);
    ran.expect(4, &["no such file"]);
    assert!(tree(&door.root("")).is_empty() && tree(server.root.path()).is_empty());
}

/// Runs the client with the password and the authority of the door.
fn copy(door: &Door, ends: [&str; 2]) -> Ran {
    // More channels would carry less each, and a relay breaks one that carries much.
    let flags = ["cp", "--retries=2", "-v", "-c", "1", "-p", "2"];
    let mut program = godwit(&[&flags[..], &["--ca", text(&door.ca())]].concat());
    program.env("GODWIT_PASSWORD", "s3cret").args(ends);
    program.output().unwrap().into()
}

/// Where the headers of a request ask for a file from, and its bytes.
fn answer_get(heard: &Heard, stream: &mut TcpStream, content: &[u8], sent: usize) {
    let range = heard
        .2
        .lines()
        .find_map(|l| l.strip_prefix("range: bytes="));
    let first = range.and_then(|range| range.split('-').next()?.parse().ok());
    let first = first.unwrap_or(0);
    let rest = &content[first..];
    let status = match range {
        Some(_) => format!(
            "206 Partial Content\r\nContent-Range: bytes {first}-{}/{}",
            content.len() - 1,
            content.len()
        ),
        None => "200 OK".to_owned(),
    };
    let head = format!(
        "HTTP/1.1 {status}\r\nETag: \"v\"\r\nContent-Length: {}\r\n\r\n",
        rest.len()
    );
    drop(stream.write_all(head.as_bytes()));
    let end = sent.saturating_sub(first).min(rest.len());
    drop(stream.write_all(&rest[..end]));
    if end < rest.len() {
        drop(stream.shutdown(Shutdown::Both));
    }
}

/// A file at a server of HTTP that never sends more than the first `sent` bytes of it.
fn dying_source(length: usize, sent: usize) -> FakeHttp {
    let content = bytes(length, 3);
    FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => multistatus(stream, &["/f"], content.len()),
        "GET" => answer_get(heard, stream, &content, sent),
        _ => send(stream, "405 Method Not Allowed", "", b""),
    })
}

#[test]
fn a_source_that_dies_is_the_one_that_is_named() {
    let (door, server) = unlike();
    let source = dying_source(4 << 20, 1 << 20);
    let (from, to) = (source.url("/f"), server.url("/g"));
    let ran = copy(&door, [&from, &to]);
    ran.expect(4, &[&format!("get {from}")]);
    assert!(tree(server.root.path()).is_empty());
    // Over FTP, to a server of HTTPS.
    fs::write(server.path("h"), bytes(4 << 20, 4)).unwrap();
    let relay = Relay::to(server.address, Spoil::Always(1 << 20));
    let from = format!("ftp://{}/h", relay.address);
    let ran = copy(&door, [&from, &door.url("/h")]);
    assert_ne!(ran.code, 0, "{}", ran.err);
    assert!(relay.has_spoiled(), "the checksums differ each time");
    assert!(ran.err.contains("differs"), "{}", ran.err);
    assert!(tree(&door.root("")).is_empty());
}

#[test]
fn a_broken_source_goes_on_from_what_the_destination_has() {
    let (door, server) = unlike();
    fs::write(server.path("f"), bytes(40 << 20, 5)).unwrap();
    let relay = Relay::to(server.address, Spoil::End(12 << 20));
    let from = format!("ftp://{}/f", relay.address);
    copy(&door, [&from, &door.url("/f")]).expect(0, &["again: "]);
    same(&server.path("f"), &door.root("f"));
    // The destination takes parts.
    let relay = Relay::to(server.address, Spoil::End(12 << 20));
    let to = format!("ftp://{}/g", relay.address);
    copy(&door, [&door.url("/f"), &to]).expect(0, &["again: "]);
    same(&server.path("g"), &door.root("f"));
    assert!(relay.carried() < 60 << 20, "{}", relay.carried());
}

/// A file passes to parts, the client is killed on the way, `meanwhile` happens, and it is called
/// again. What that said, and how many bytes left the source all together.
fn killed_on_the_way(length: usize, meanwhile: impl FnOnce(&Path)) -> (Ran, u64) {
    let (door, server) = unlike();
    fs::write(server.path("f"), bytes(length, 7)).unwrap();
    let path = Relay::to(server.address, Spoil::Never);
    let state = tempfile::tempdir().unwrap();
    let (from, to) = (format!("ftp://{}/f", path.address), door.url("/g"));
    let copy = |flags: &[&str]| {
        let mut program = godwit(&["cp", "--ca", text(&door.ca()), "-c", "1", "-p", "2"]);
        program.env("GODWIT_PASSWORD", "s3cret");
        program.env("XDG_STATE_HOME", state.path());
        program.args(flags).args([&from, &to]);
        program
    };
    let mut killed = copy(&["--max-rate=400M"]).spawn().unwrap();
    while path.carried() < (length - (24 << 20)) as u64 {
        assert_eq!(killed.try_wait().unwrap(), None);
        nap();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    meanwhile(&server.path("f"));
    let ran = copy(&["-v"]).output().unwrap().into();
    same(&server.path("f"), &door.root("g"));
    assert_eq!(tree(&door.root("")).len(), 1, "no temporary file stays");
    (ran, path.carried())
}

#[test]
fn what_passes_to_parts_goes_on_when_the_client_was_killed() {
    let length = 240 << 20;
    let (ran, carried) = killed_on_the_way(length, |_| {});
    ran.expect(0, &["bytes are there"]);
    // The window of 64 MiB, and the pieces of two connections: longer where replies are slow.
    let most = length as u64 + (144 << 20);
    assert!(carried < most, "{carried}");
}

#[test]
fn what_passed_of_another_version_is_not_gone_on_with() {
    let length = 64 << 20;
    let (ran, carried) = killed_on_the_way(length, |source| {
        fs::write(source, bytes(length, 8)).unwrap();
        let file = fs::File::open(source).unwrap();
        let later = std::time::SystemTime::now() + Duration::from_secs(5);
        file.set_modified(later).unwrap();
    });
    ran.expect(0, &["1 file"]);
    assert!(carried > length as u64 + (32 << 20), "{carried}");
}

#[test]
fn a_destination_that_dies_is_the_one_that_is_named() {
    let (door, server) = unlike();
    fs::write(server.path("f"), bytes(8 << 20, 6)).unwrap();
    let target = FakeHttp::start(|heard, stream| match heard.0.as_str() {
        "PROPFIND" if heard.1 == "/" => multistatus(stream, &["/"], 0),
        "PUT" => drop(stream.shutdown(Shutdown::Both)),
        _ => send(stream, "404 Not Found", "", b""),
    });
    let (from, to) = (server.url("/f"), target.url("/f"));
    let ran = copy(&door, [&from, &to]).expect(4, &[&format!("put {to}")]);
    assert!(!ran.err.contains(&format!("get {from}")), "{}", ran.err);
    assert_eq!(target.heard("PUT").len(), 2, "each attempt");
}

#[test]
fn what_passes_follows_a_destination_that_sends_it_elsewhere() {
    const LENGTH: usize = 300_000;
    let (door, server) = unlike();
    fs::write(server.path("f"), bytes(LENGTH, 7)).unwrap();
    let other = FakeHttp::start(|_, stream| send(stream, "201 Created", "", b""));
    let place = format!("Location: {}\r\n", other.url("/other"));
    // It answers before the body is sent.
    let target = FakeHttp::reading(false, move |heard, stream| match heard.0.as_str() {
        "PROPFIND" if heard.1 == "/" => multistatus(stream, &["/"], 0),
        "PROPFIND" if heard.1 == "/f" => multistatus(stream, &["/f"], LENGTH),
        "PUT" => send(stream, "307 Temporary Redirect", &place, b""),
        _ => send(stream, "201 Created", "", b""),
    });
    let ends = [server.url("/f"), target.url("/f")];
    let flags = ["cp", "--no-verify", "--retries=1"];
    door.run(&[&flags[..], &[&ends[0], &ends[1]]].concat())
        .expect(0, &["1 file"]);
    let puts = other.heard("PUT");
    assert_eq!(puts.len(), 1, "all bytes came at once");
    assert!(puts[0].2.contains(&format!("content-length: {LENGTH}")));
}

#[test]
fn parts_of_two_versions_make_no_file() {
    const LENGTH: usize = 40 << 20;
    let (door, server) = unlike();
    let gets = AtomicUsize::new(0);
    let source = FakeHttp::start(move |heard, stream| match heard.0.as_str() {
        "PROPFIND" => {
            let minute = usize::from(gets.load(Ordering::SeqCst) > 0);
            let time = format!("Mon, 12 Jan 2026 09:{minute:02}:24 GMT");
            multistatus_of(stream, &["/f"], LENGTH, &time);
        }
        "GET" => {
            let tag = gets.fetch_add(1, Ordering::SeqCst);
            let range = heard
                .2
                .lines()
                .find_map(|l| l.strip_prefix("range: bytes="));
            let (first, last) = range.unwrap_or("0-").trim().split_once('-').unwrap();
            let first: usize = first.parse().unwrap();
            let last = last.parse().unwrap_or(LENGTH - 1);
            let headers =
                format!("Content-Range: bytes {first}-{last}/{LENGTH}\r\nETag: \"{tag}\"\r\n");
            let status = match range {
                Some(_) => "206 Partial Content",
                None => "200 OK",
            };
            send(stream, status, &headers, &vec![7; last + 1 - first]);
        }
        _ => send(stream, "405 Method Not Allowed", "", b""),
    });
    let (from, to) = (source.url("/f"), server.url("/g"));
    let flags = ["cp", "--no-verify", "--retries=1", "-p", "1", "-c", "2"];
    let ran = door.run(&[&flags[..], &[&from, &to]].concat());
    assert!(source.heard("GET").len() > 1, "one session took all of it");
    ran.expect(4, &[&from, "changed meanwhile"]);
    assert!(tree(server.root.path()).is_empty());
}

/// The way to a server, on which each connection carries 64 KiB in 20 ms, the way up or down.
fn slow_way(server: SocketAddr, is_up: bool) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let server = TcpStream::connect(server).unwrap();
            let ends = [&client, &server].map(|end| end.try_clone().unwrap());
            let [to_client, to_server] = ends;
            thread::spawn(move || carry(client, to_server, is_up));
            thread::spawn(move || carry(server, to_client, !is_up));
        }
    });
    address
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_slow: bool) {
    let mut buffer = vec![0; 64 << 10];
    while let Ok(read @ 1..) = from.read(&mut buffer)
        && to.write_all(&buffer[..read]).is_ok()
    {
        if is_slow {
            thread::sleep(Duration::from_millis(20));
        }
    }
    drop(to.shutdown(Shutdown::Both));
}

/// Copies a file over a way that is slow up or down, and checks that the side is named and tuned.
#[track_caller]
fn slower(side: &str, is_up: bool) {
    let (door, server) = unlike();
    let way = format!("https://jo@{}/f", slow_way(door.address(), is_up));
    let mut ends = [way, server.url("/f")];
    // More than a window holds, where that has to be full.
    let content = bytes(if is_up { 112 << 20 } else { 48 << 20 }, 7);
    match is_up {
        true => {
            fs::write(server.path("f"), content).unwrap();
            ends.reverse();
        }
        false => fs::write(door.root("f"), content).unwrap(),
    }
    let own = tempfile::tempdir().unwrap();
    let log = own.path().join("log");
    let flags = ["cp", "--no-verify", "-c", "1", "--events", text(&log)];
    let mut program = godwit(&[&flags[..], &["--ca", text(&door.ca())]].concat());
    // Alone on its path, whatever other tests do.
    program.env("XDG_RUNTIME_DIR", own.path());
    program.env("XDG_STATE_HOME", own.path());
    program.env("GODWIT_PASSWORD", "s3cret").args(&ends);
    let ran: Ran = program.output().unwrap().into();
    ran.expect(0, &[]);
    same(&server.path("f"), &door.root("f"));
    let explained = godwit(&["explain", text(&log)]).output().unwrap();
    let explained = String::from_utf8(explained.stdout).unwrap();
    let named = format!("the {side} was the slower server");
    assert!(explained.contains(&named), "{explained}");
    let log = fs::read_to_string(&log).unwrap();
    let events = log
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let decisions = events.filter(|event| event["event"] == "decision" && event["side"] == side);
    let channels = |event: &Value, of: &str| event[of]["parallelism"].as_u64();
    // Each connection adds the same.
    let mut more = decisions.filter(|event| channels(event, "to") > channels(event, "from"));
    assert!(more.next().is_some(), "{log}");
}

#[test]
fn a_source_that_is_slower_is_named_and_gets_channels_of_its_own() {
    slower("source", false);
}

#[test]
fn a_destination_that_is_slower_is_named_and_tuned() {
    slower("destination", true);
}
