//! Copies between servers when two meet, when readers look on, and when one end gives up.

use std::{
    fs,
    io::Read as _,
    net::Ipv6Addr,
    sync::{
        Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
        mpsc,
    },
    thread,
};

use crate::{
    client::read_all,
    harness::{eventually, pattern},
    https::{KIM, ask, bearer, connect, names},
    https_copies::{
        ABCDEF, DONE, Fake, THEIRS, active, active_with, copy, ending, fails, list, ok, passive,
        pull, say, url,
    },
    storage_failures::SmallDisk,
};

#[test]
fn the_status_of_a_source_is_in_the_reason() {
    let passive = passive();
    let active = active(&passive);
    for status in ["401", "403", "404", "410", "429", "500", "503", "507"] {
        let fake = Fake::new(&passive, move |_, stream| {
            let text = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
            say(stream, &text)
        });
        let why = format!("status code {status}");
        fails(pull(&active, "/f", &fake.url(), ""), &why);
    }
    eventually("nothing is left", || names(&active, "") == ["sam"]);
}

#[test]
fn a_destination_may_refuse_before_it_has_the_bytes() {
    let passive = passive();
    let active = active(&passive);
    active.server.write("large", pattern(20_000_000, 1));
    for status in ["403", "413", "417", "507"] {
        let fake = Fake::new(&passive, move |head, stream| {
            let text = format!("HTTP/1.1 {status} x\r\nContent-Length: 0\r\n\r\n");
            assert!(
                !head.starts_with("PUT") || head.contains("expect: 100-continue"),
                "{head}"
            );
            say(stream, &text);
            false
        });
        let head = format!("Destination: {}\r\n{THEIRS}", fake.url());
        fails(
            copy(&active, "/large", &head),
            &format!("status code {status}"),
        );
    }
}

/// A source that sends the first half of a file, and the second when it is told to.
struct Halves {
    source: Fake,
    go: mpsc::Sender<()>,
}

impl Halves {
    fn of(passive: &crate::tls::Site, content: Vec<u8>) -> Self {
        let (go, may_go) = mpsc::channel();
        let may_go = Mutex::new(may_go);
        let source = Fake::new(passive, move |head, stream| {
            use std::io::Write as _;
            let length = content.len();
            let text = format!("HTTP/1.1 200 x\r\nContent-Length: {length}\r\n\r\n");
            if head.starts_with("HEAD") {
                return say(stream, &text);
            }
            let (first, second) = content.split_at(length / 2);
            say(stream, &text)
                && stream.write_all(first).is_ok()
                && may_go.lock().unwrap().recv().is_ok()
                && stream.write_all(second).is_ok()
        });
        Self { source, go }
    }
}

#[test]
fn readers_see_the_old_file_until_the_new_one_is_whole() {
    let passive = passive();
    let active = active(&passive);
    let (old, new) = (pattern(1000, 1), pattern(2_000_000, 2));
    active.server.write("f", &old);
    let halves = Halves::of(&passive, new.clone());
    let copied = AtomicBool::new(false);
    thread::scope(|scope| {
        let copying = scope.spawn(|| {
            let answer = pull(&active, "/f", &halves.source.url(), "");
            copied.store(true, Ordering::Relaxed);
            ending(answer)
        });
        eventually("half has come", || names(&active, "").len() == 3);
        assert!(active.server.read("f") == old && !copied.load(Ordering::Relaxed));
        halves.go.send(()).unwrap();
        assert_eq!(copying.join().unwrap(), DONE);
    });
    assert!(active.server.read("f") == new);
}

#[test]
fn of_two_copies_to_one_name_each_is_whole() {
    let passive = passive();
    let active = active(&passive);
    let contents = [pattern(1_000_000, 1), pattern(2_000_000, 2)];
    let halves = contents
        .each_ref()
        .map(|content| Halves::of(&passive, content.clone()));
    thread::scope(|scope| {
        let copying = halves.each_ref().map(|halves| {
            let active = &active;
            let url = halves.source.url();
            scope.spawn(move || ending(pull(active, "/f", &url, "")))
        });
        eventually("both have begun", || names(&active, "").len() == 3);
        for halves in &halves {
            halves.go.send(()).unwrap();
        }
        for copy in copying {
            assert_eq!(copy.join().unwrap(), DONE);
        }
    });
    assert!(contents.contains(&active.server.read("f")));
    eventually("nothing is left", || names(&active, "") == ["f", "sam"]);
}

#[test]
fn a_full_disk_ends_a_copy_and_leaves_nothing() {
    let passive = passive();
    let active = active(&passive);
    let folder = active.server.path("disk");
    fs::create_dir(&folder).unwrap();
    let Some(_disk) = SmallDisk::mount_at(&folder) else {
        println!("skipped: cannot mount a small tmpfs (needs root)");
        return;
    };
    // It says no length, so that the lack of space shows while bytes come.
    let fake = Fake::new(&passive, |head, stream| {
        let chunk = format!("{:x}\r\n{}\r\n", 1 << 20, "x".repeat(1 << 20));
        match head.starts_with("HEAD") {
            true => say(stream, "HTTP/1.1 405 x\r\nContent-Length: 0\r\n\r\n"),
            false => {
                say(
                    stream,
                    "HTTP/1.1 200 x\r\nTransfer-Encoding: chunked\r\n\r\n",
                ) && (0..3).all(|_| say(stream, &chunk))
                    && say(stream, "0\r\n\r\n")
            }
        }
    });
    fails(pull(&active, "/disk/f", &fake.url(), ""), "No space left");
    eventually("nothing is left", || names(&active, "disk").is_empty());
}

#[test]
fn a_source_may_have_an_address_of_ipv6_alone() {
    let passive = passive();
    let active = active_with(&passive, |copies| {
        copies.hosts.push("::1/128".parse().unwrap());
    });
    let loopback = (Ipv6Addr::LOCALHOST, 0).into();
    let Some(fake) = Fake::at(loopback, &passive, |_, stream| ok(stream, "", "abc")) else {
        println!("skipped: this machine has no IPv6");
        return;
    };
    assert_eq!(ending(pull(&active, "/f", &fake.url(), "")), DONE);
    assert_eq!(active.server.read("f"), b"abc");
}

#[test]
fn a_source_that_answers_a_range_beyond_its_end_senselessly_is_asked_for_the_whole() {
    let passive = passive();
    let active = active(&passive);
    let fake = Fake::new(&passive, |head, stream| {
        let range = "HTTP/1.1 206 x\r\nContent-Length: 16777216\r\n\
                     Content-Range: bytes 0-16777215/3\r\n\r\nabc";
        match head.contains("range: bytes=") {
            _ if head.starts_with("PROPFIND") => list(stream, 3, 1),
            true => {
                say(stream, range);
                false
            }
            false => ok(stream, "", "abc"),
        }
    });
    let several = "X-Number-Of-Streams: 2\r\n";
    assert_eq!(ending(pull(&active, "/f", &fake.url(), several)), DONE);
    assert_eq!(active.server.read("f"), b"abc");
}

#[test]
fn a_source_that_loses_an_answer_is_asked_again_over_another_connection() {
    let passive = passive();
    let active = active(&passive);
    let asked = AtomicUsize::new(0);
    let fake = Fake::new(&passive, move |head, stream| {
        if !head.starts_with("HEAD") {
            return ok(stream, "", "abcdef");
        }
        if asked.fetch_add(1, Ordering::Relaxed) == 0 {
            // As XRootD 5.5 does now and then when it has made a checksum.
            return true;
        }
        let headers = format!("Content-Length: 6\r\n{ABCDEF}");
        say(stream, &format!("HTTP/1.1 200 OK\r\n{headers}\r\n"))
    });
    let verified = "RequireChecksumVerification: true\r\n";
    assert_eq!(ending(pull(&active, "/f", &fake.url(), verified)), DONE);
    assert_eq!(active.server.read("f"), b"abcdef");
    let heads = fake.heads();
    let asked = heads.iter().filter(|head| head.starts_with("HEAD"));
    assert_eq!(asked.count(), 2);
}

#[test]
fn a_server_that_stops_says_so_and_names_no_file() {
    let passive = passive();
    let mut active = active(&passive);
    let halves = Halves::of(&passive, pattern(2_000_000, 1));
    let mut client = connect(&active, None);
    let head = format!("{KIM}Source: {}\r\n{THEIRS}", halves.source.url());
    let request = format!("COPY /f HTTP/1.1\r\nHost: localhost\r\n{head}\r\n");
    std::io::Write::write_all(&mut client, request.as_bytes()).unwrap();
    eventually("half has come", || names(&active, "").len() == 2);
    // The file may be there before the answer begins.
    let mut status = [0; 12];
    client.read_exact(&mut status).unwrap();
    assert_eq!(status, *b"HTTP/1.1 202");
    active.server.begin_shutdown();
    let mut text = Vec::new();
    let _ = client.read_to_end(&mut text);
    let text = String::from_utf8_lossy(&text);
    assert!(!text.contains("success"), "{text}");
    let (_, end) = text.rsplit_once("failure: ").expect("a last line");
    assert!(end.starts_with("the server is shutting down\n"), "{text}");
    // The body is whole.
    assert!(end.ends_with("\r\n0\r\n\r\n"), "{text}");
    active.server.join();
    assert!(!active.server.path("f").exists());
}

#[test]
fn a_token_for_one_file_suffices_to_store_it() {
    let site = passive();
    let bearer = |scope: &str| bearer(&site, scope);
    let put = |token: &str, path: &str| ask(&site, "PUT", path, token, b"x");
    let create = bearer("storage.create:/one");
    put(&create, "/two").is(403);
    put(&create, "/one").is(201);
    put(&create, "/one").is(403);
    let modify = bearer("storage.modify:/one");
    put(&modify, "/one").is(204);
    put(&bearer("storage.read:/one"), "/one").is(403);
    let active = active(&site);
    active.server.write("f", b"pushed");
    let (token, there) = (bearer("storage.modify:/four"), url(&site, "/four"));
    let head = format!("Destination: {there}\r\nTransferHeader{token}");
    assert_eq!(ending(copy(&active, "/f", &head)), DONE);
    assert_eq!(site.server.read("four"), b"pushed");
    assert_eq!(names(&site, ""), ["four", "one", "sam"]);
}

#[test]
fn redirects_within_a_server_keep_the_credentials() {
    let passive = passive();
    let active = active(&passive);
    let fake = Fake::new(&passive, |head, stream| {
        let host = head.split("host: ").nth(1);
        let host = host.and_then(|rest| rest.lines().next()).unwrap();
        let location = match head.split(' ').nth(1) {
            Some("/f") => "/g".to_owned(),
            Some("/g") => format!("https://{host}/h"),
            _ => return ok(stream, ABCDEF, "abcdef"),
        };
        let text = format!("HTTP/1.1 307 x\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n");
        say(stream, &text)
    });
    assert_eq!(ending(pull(&active, "/f", &fake.url(), "")), DONE);
    let heads = fake.heads();
    let last = heads.last().unwrap();
    assert!(last.starts_with("GET /h "), "{heads:?}");
    let has = |head: &String| head.contains("authorization: basic");
    assert!(heads.iter().all(has), "{heads:?}");
}

#[test]
fn a_hundred_streams_bring_the_whole_file() {
    let passive = passive();
    let active = active(&passive);
    // Several pieces; none has a whole number of patterns.
    let content = pattern(1_000_003, 6).repeat(84);
    passive.server.write("f", &content);
    let several = "X-Number-Of-Streams: 100\r\n";
    let answer = pull(&active, "/f", &url(&passive, "/f"), several);
    let text = answer.text();
    assert_eq!(ending(answer), DONE);
    let (_, last) = text.rsplit_once("Stripe Bytes Transferred: ").unwrap();
    let size = content.len().to_string();
    assert_eq!(last.lines().next(), Some(&size[..]));
    assert!(active.server.read("f") == content);
}

#[test]
fn a_reader_over_ftp_gets_all_of_the_file_that_a_copy_replaces() {
    let passive = passive();
    let active = active(&passive);
    // More than sockets hold.
    let (old, new) = (pattern(1_000_000, 1).repeat(20), pattern(1_000_000, 2));
    active.server.write("f", &old);
    passive.server.write("f", &new);
    let mut ftp = active.server.login();
    let mut data = ftp.passive();
    ftp.expect("RETR /f", 150);
    let mut read = vec![0; 1000];
    data.read_exact(&mut read).unwrap();
    assert_eq!(ending(pull(&active, "/f", &url(&passive, "/f"), "")), DONE);
    assert!(active.server.read("f") == new);
    read.extend(read_all(data));
    ftp.await_code(226);
    assert!(read == old);
    assert!(ftp.get("RETR /f") == new);
}
