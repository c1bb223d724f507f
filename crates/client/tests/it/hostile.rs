//! Servers that mean harm, on the control channel, in listings and on data channels: nothing is
//! written outside the destination, nothing hangs, and the error says what was wrong.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::Path,
    sync::mpsc,
    thread,
};

use tokio::net::TcpSocket;

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, bytes, for_each_at_once, run, run_with, text, tree},
    interposed::interposed,
    relay::address_in,
};

const FACTS: Option<&[&str]> = Some(&["SIZE", "MLST"]);

#[test]
fn data_goes_to_no_host_but_the_servers_whatever_it_announces() {
    // The fake listens on 127.0.0.1 alone: a client that followed would reach no host, or
    // another one.
    for announces in ["127,0,0,2,", "192,0,2,7,", "0,0,0,0,"] {
        let fake = Fake::start(Quirks {
            announces: Some(announces),
            ..Quirks::default()
        });
        let here = tempfile::tempdir().unwrap();
        let (file, back) = (here.path().join("f"), here.path().join("back"));
        fs::write(&file, "secret").unwrap();
        let said = "using 127.0.0.1:";
        run(&["cp", "-v", text(&file), &fake.url("/f")]).expect(0, &[said]);
        assert_eq!(fake.get("/f").as_deref(), Some(&b"secret"[..]));
        run(&["cp", "-v", &fake.url("/f"), text(&back)]).expect(0, &[said]);
        assert_eq!(fs::read(&back).unwrap(), b"secret");
        run(&["ls", "-v", &fake.url("/")]).expect(0, &[said]);
    }
}

/// A stranger connects to each data port of the client before the server does.
#[test]
fn data_comes_from_no_host_but_the_servers() {
    let served = Served::start();
    let data = bytes(100_000, 1);
    fs::write(served.path("f"), &data).unwrap();
    let (keep, strangers) = mpsc::channel();
    let commands = move |line: String| {
        if let Some(numbers) = line.strip_prefix("PORT ") {
            // A block of MODE E that no file has. The client may close before it is sent.
            let mut stranger = connected_from("127.0.0.2", address_in(numbers).unwrap());
            let _ = stranger.write_all(&[0xFF; 17]);
            keep.send(stranger).unwrap();
        }
        line
    };
    let there = interposed(served.address, commands, |line| line);
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    let ran = run(&["cp", "-v", &format!("ftp://{there}/f"), text(&back)]).expect(0, &[]);
    assert!(!ran.err.contains("again"), "{}", ran.err);
    assert!(fs::read(&back).unwrap() == data);
    assert!(strangers.try_iter().count() > 0);
}

/// The kernel would let it connect from 127.0.0.1.
#[test]
fn godwitd_sends_from_the_address_that_it_was_reached_at() {
    let served = Served::start_at("0.0.0.0:0", |_| {});
    let data = bytes(100_000, 1);
    fs::write(served.path("f"), &data).unwrap();
    let here = tempfile::tempdir().unwrap();
    for host in ["127.0.0.1", "127.0.0.2"] {
        let back = here.path().join(host);
        let url = format!("ftp://{host}:{}/f", served.address.port());
        let ran = run(&["cp", "-v", &url, text(&back)]).expect(0, &[]);
        assert!(!ran.err.contains("again"), "{}", ran.err);
        assert!(fs::read(&back).unwrap() == data);
    }
}

/// A connection that begins at the address `host` of this machine.
fn connected_from(host: &str, to: SocketAddr) -> TcpStream {
    let runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = { runtime }.enable_io().build().unwrap();
    runtime.block_on(async {
        let socket = TcpSocket::new_v4().unwrap();
        socket
            .bind((host.parse::<std::net::IpAddr>().unwrap(), 0).into())
            .unwrap();
        let stream = socket.connect(to).await.unwrap().into_std().unwrap();
        stream.set_nonblocking(false).unwrap();
        stream
    })
}

#[test]
fn no_data_goes_to_the_ports_of_other_services() {
    for announces in ["127,0,0,1,0,22", "127,0,0,1,3,255", "127,0,0,1,0,0"] {
        let fake = Fake::start(Quirks {
            announces: Some(announces),
            ..Quirks::default()
        });
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("f");
        fs::write(&file, "secret").unwrap();
        let said = "ports below 1024 are those of other services";
        run(&["cp", text(&file), &fake.url("/f")]).expect(4, &[said]);
        run(&["ls", &fake.url("/")]).expect(4, &[said]);
        assert_eq!(fake.names(), [""; 0]);
    }
}

#[test]
fn names_that_are_none_are_refused_one_by_one() {
    let fake = Fake::start(Quirks {
        features: FACTS,
        listing: Some(
            b"Type=file;Size=2; ok\r\nType=file;Size=2; \r\nType=file;Size=2; /abs\r\n\
              Type=file;Size=2; a\0b\r\n\
              Type=dir; ../up\r\nType=file;Size=2; a\rb\r\nType=file;Size=2;\r\n\
              Size=2 no facts\r\n",
        ),
        ..Quirks::default()
    });
    fake.put("/d/ok", b"ok");
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    let words = [
        "\"/abs\"",
        "it holds a NUL",
        "\"../up\"",
        "it holds a line end",
        "1 file",
    ];
    run(&["cp", "-r", &fake.url("/d"), text(&to)]).expect(1, &words);
    assert_eq!(tree(here.path()), ["to/", "to/ok"]);
}

#[test]
fn a_name_that_is_listed_twice_is_copied_once_and_told() {
    let fake = Fake::start(Quirks {
        features: FACTS,
        listing: Some(
            b"Type=file;Size=2; f\r\nType=file;Size=3; f\r\nType=file;Size=2; F\r\nType=dir; f\r\n",
        ),
        ..Quirks::default()
    });
    fake.put("/d/f", b"ok");
    fake.put("/d/F", b"OK");
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    let ran = run(&["cp", "-r", &fake.url("/d"), text(&to)]);
    let ran = ran.expect(1, &["refused the name \"f\"", "it comes more than once"]);
    assert!(ran.err.contains("2 failed"), "{}", ran.err);
    assert_eq!(fs::read(to.join("f")).unwrap(), b"ok");
    assert_eq!(fs::read(to.join("F")).unwrap(), b"OK", "case matters here");
}

#[test]
fn an_endless_tree_is_left_where_it_repeats_or_is_too_deep() {
    let loops: [(&'static [u8], i32, &str); 2] = [
        // A link to a directory above, as a server shows it.
        (
            b"Type=dir;Unique=1; d\r\n",
            0,
            "leads back to a directory above it",
        ),
        (b"Type=dir; d\r\n", 4, "more than 200 directories deep"),
    ];
    for (listing, status, words) in loops {
        let fake = Fake::start(Quirks {
            features: FACTS,
            listing: Some(listing),
            ..Quirks::default()
        });
        fake.put("/d/x", b"");
        let here = tempfile::tempdir().unwrap();
        let to = here.path().join("to");
        run(&["cp", "-r", &fake.url("/d"), text(&to)]).expect(status, &[words]);
        assert!(tree(here.path()).iter().all(|name| name.starts_with("to/")));
    }
}

#[test]
fn two_sources_of_one_file_do_not_replace_each_other_silently() {
    let fake = Fake::start(Quirks {
        features: FACTS,
        ..Quirks::default()
    });
    for (path, data) in [("/a/f", "from a"), ("/b/f", "from b"), ("/b/g", "g")] {
        fake.put(path, data.as_bytes());
    }
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("f"), "of an earlier day").unwrap();
    let [a, b] = ["/a/f", "/b/f"].map(|p| fake.url(p));
    let words = [
        "another source of this command has this name",
        "to/f",
        "1 failed",
    ];
    run(&["cp", "-c", "1", &a, &b, text(&to)]).expect(1, &words);
    assert_eq!(fs::read(to.join("f")).unwrap(), b"from a");
    // As on a file system that makes no difference between two names.
    fs::create_dir(to.join("a")).unwrap();
    std::os::unix::fs::symlink("a", to.join("b")).unwrap();
    run_with("cp -r -c 1", &[&fake.url("/a"), &fake.url("/b"), text(&to)]).expect(1, &words[..1]);
    assert_eq!(tree(&to.join("a")), ["f", "g"]);
    let [x, y] = ["x", "y"].map(|folder| {
        fs::create_dir(here.path().join(folder)).unwrap();
        let file = here.path().join(folder).join("same");
        fs::write(&file, folder).unwrap();
        file
    });
    run(&["cp", text(&x), text(&y), &fake.url("/a/")]).expect(1, &words[..1]);
    assert_eq!(fake.get("/a/same").unwrap(), b"x");
}

#[test]
fn an_interrupted_listing_is_retried_and_copies_no_file_twice() {
    let fake = Fake::start(Quirks {
        features: FACTS,
        cuts: 2,
        cut_at: 130,
        ..Quirks::default()
    });
    for i in 0..20 {
        fake.put(&format!("/d/f{i}"), b"x");
    }
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    run(&["cp", "-r", &fake.url("/d"), text(&to)]).expect(0, &["20 files"]);
    assert_eq!(tree(&to).len(), 20);
    assert!(fake.heard("MLSD") >= 2);
    assert_eq!(fake.heard("RETR"), 20);
}

#[test]
fn a_name_that_is_too_long_for_this_machine_fails_alone() {
    static LISTING: std::sync::LazyLock<Vec<u8>> = std::sync::LazyLock::new(|| {
        let long = "n".repeat(300);
        format!("Type=file;Size=1; a\r\nType=file;Size=1; {long}\r\nType=file;Size=1; z\r\n").into()
    });
    let fake = Fake::start(Quirks {
        features: FACTS,
        listing: Some(&LISTING),
        ..Quirks::default()
    });
    for name in ["/d/a", "/d/z"] {
        fake.put(name, b"x");
    }
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    let words = ["File name too long", "2 files", "1 failed"];
    run(&["cp", "-r", &fake.url("/d"), text(&to)]).expect(1, &words);
    assert_eq!(tree(&to), ["a", "z"]);
}

#[test]
fn an_endless_line_ends_the_listing() {
    static LINE: [u8; 1 << 20] = [b'x'; 1 << 20];
    let fake = Fake::start(Quirks {
        features: FACTS,
        listing: Some(&LINE),
        ..Quirks::default()
    });
    fake.put("/d/f", b"x");
    let here = tempfile::tempdir().unwrap();
    let words = [
        "a line of the listing is longer than 65536 bytes",
        "list ftp://",
        "ask the server's administrator",
    ];
    run(&["cp", "-r", &fake.url("/d"), text(&here.path().join("to"))]).expect(4, &words);
    run(&["ls", &fake.url("/d")]).expect(4, &words);
}

/// Bytes of a file that lists as ten bytes long.
type Bytes = Vec<u8>;

fn header(descriptor: u8, count: u64, offset: u64) -> Bytes {
    let mut header = vec![descriptor];
    header.extend(count.to_be_bytes());
    header.extend(offset.to_be_bytes());
    header
}

fn block(descriptor: u8, offset: u64, data: &[u8]) -> Bytes {
    [header(descriptor, data.len() as u64, offset), data.to_vec()].concat()
}

const EOF: u8 = 64;
const EOD: u8 = 8;

/// What an honest server sends for [`GOOD`].
fn honest() -> Bytes {
    [block(0, 0, GOOD), header(EOF | EOD, 0, 1)].concat()
}

const GOOD: &[u8] = b"ten bytes.";

/// Serves a directory of ten files in MODE E. `bad` is sent for the one in the middle.
fn in_mode_e(bad: Bytes) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for control in listener.incoming() {
            let bad = bad.clone();
            // The client may go away at any time.
            thread::spawn(move || drop(converse(control.unwrap(), &bad)));
        }
    });
    address
}

fn converse(mut control: TcpStream, bad: &[u8]) -> std::io::Result<()> {
    let lines = BufReader::new(control.try_clone()?).lines();
    let mut passive = TcpListener::bind("127.0.0.1:0")?;
    let mut active: Option<SocketAddr> = None;
    let mut cached: Option<TcpStream> = None;
    control.write_all(b"220 at your service\r\n")?;
    for line in lines {
        let line = line?;
        let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
        let answer = match verb {
            "USER" => "331 who?",
            "PASS" => "230 in",
            "FEAT" => "211-Features\r\n PARALLEL\r\n SIZE\r\n MLST Type*;Size*;\r\n211 End",
            "TYPE" | "MODE" | "OPTS" => "200 ok",
            "MLST" => "250-facts\r\n Type=dir; /d\r\n250 End",
            "PASV" => {
                passive = TcpListener::bind("127.0.0.1:0")?;
                let port = passive.local_addr()?.port();
                let answer = format!("227 here (127,0,0,1,{},{})\r\n", port >> 8, port & 255);
                control.write_all(answer.as_bytes())?;
                continue;
            }
            "PORT" => {
                let numbers: Vec<u16> = argument.split(',').map(|n| n.parse().unwrap()).collect();
                let port = numbers[4] << 8 | numbers[5];
                active = Some(SocketAddr::from(([127, 0, 0, 1], port)));
                cached = None;
                "200 ok"
            }
            "MLSD" => {
                let (mut data, _) = passive.accept()?;
                control.write_all(b"150 now\r\n")?;
                for i in 0..10 {
                    write!(data, "Type=file;Size=10; f{i}\r\n")?;
                }
                "226 done"
            }
            "RETR" => {
                let mut data = match (cached.take(), active) {
                    (Some(data), _) => data,
                    (None, Some(address)) => TcpStream::connect(address)?,
                    (None, None) => {
                        control.write_all(b"425 no data channel\r\n")?;
                        continue;
                    }
                };
                control.write_all(b"150 now\r\n")?;
                let bytes = if argument.ends_with("f5") {
                    bad.to_vec()
                } else {
                    honest()
                };
                if data.write_all(&bytes).is_ok() {
                    cached = Some(data);
                }
                "226 done"
            }
            _ => "500 unknown command",
        };
        control.write_all(format!("{answer}\r\n").as_bytes())?;
    }
    Ok(())
}

#[track_caller]
fn all_but_one_arrive(what: &str, bad: Bytes, words: &[&str]) {
    let server = in_mode_e(bad);
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    let patience = ["--retries", "1", "--stall-timeout", "2"];
    let fixed = ["cp", "-v", "-r", "-c", "1", "-p", "1"];
    let url = format!("ftp://{server}/d");
    let ran = run(&[&fixed[..], &patience, &[&url, text(&to)]].concat());
    assert_eq!(ran.code, 1, "{what}: {}", ran.err);
    for word in ["9 files", "1 failed", "/d/f5"].iter().chain(words) {
        assert!(
            ran.err.contains(word),
            "{what}: no {word:?} in: {}",
            ran.err
        );
    }
    assert!(!ran.err.contains("panicked"), "{what}: {}", ran.err);
    assert_whole(&to, what);
    assert_eq!(
        tree(here.path()).len(),
        10,
        "{what}: {:?}",
        tree(here.path())
    );
}

#[track_caller]
fn assert_whole(to: &Path, what: &str) {
    for i in (0..10).filter(|i| *i != 5) {
        assert_eq!(
            fs::read(to.join(format!("f{i}"))).unwrap(),
            GOOD,
            "{what}: f{i}"
        );
    }
}

#[test]
fn hostile_blocks_in_a_pipeline_fail_only_their_own_file() {
    let end = header(EOF | EOD, 0, 1);
    let broke = &["peer broke the extended block mode"][..];
    let cases = [
        (
            "past the end",
            [block(0, 5, GOOD), end.clone()].concat(),
            broke,
        ),
        ("far past it", block(0, 1 << 40, b"x"), broke),
        (
            "past the last byte of all",
            block(0, u64::MAX, b"xy"),
            broke,
        ),
        ("a block without end", header(0, u64::MAX, 0), broke),
        (
            "too little",
            [block(0, 0, b"five."), end.clone()].concat(),
            &["5 bytes"],
        ),
        (
            "a hole",
            [block(0, 0, b"five."), block(0, 0, b"five."), end.clone()].concat(),
            &["10 bytes"],
        ),
        (
            "two ends",
            [
                block(0, 0, GOOD),
                header(EOF, 0, 1),
                header(EOF | EOD, 0, 2),
            ]
            .concat(),
            &[],
        ),
        (
            "absurdly many channels",
            [block(0, 0, GOOD), header(EOF | EOD, 0, 1 << 63)].concat(),
            &[],
        ),
        (
            "no channel at all",
            [block(0, 0, GOOD), header(EOF | EOD, 0, 0)].concat(),
            &[],
        ),
        ("every bit of a descriptor", block(0xFF, 0, GOOD), &[]),
        ("noise", vec![0xA5; 300], &[]),
    ];
    for_each_at_once(cases, |(what, bad, words)| {
        all_but_one_arrive(what, bad, words)
    });
}

/// Sets a title, clears the screen by C1, and writes backwards.
const STEERING: &str = "\x1b]0;owned\x07\u{9b}2J\u{202e}\u{2066}\u{200f}\x7f";

fn assert_steers_nothing(text: &str) {
    let steers = |c: char| c.is_control() && c != '\n' || "\u{202e}\u{2066}\u{200f}".contains(c);
    assert!(!text.contains(steers), "{text:?}");
}

#[test]
fn nothing_that_a_server_says_steers_the_terminal() {
    let reply = |code: &str| -> &'static str { format!("{code} {STEERING}").leak() };
    let replies =
        |verb: &'static str, code: &str| Quirks::default().replies(&[(verb, reply(code))]);
    let quirks = [
        Quirks {
            greeting: Some(reply("421")),
            ..Quirks::default()
        },
        replies("USER", "530"),
        replies("PASS", "230"),
        replies("RETR", "550"),
        replies("STOR", "553"),
        replies("PASV", "500"),
        replies("NLST", "550"),
        replies("SIZE", "550"),
        replies("TYPE", "501"),
        replies("DELE", "550"),
        Quirks {
            features: FACTS,
            listing: Some(
                format!("Type=file;Size=1; a{STEERING}/b\r\n")
                    .leak()
                    .as_bytes(),
            ),
            ..Quirks::default()
        },
    ];
    for_each_at_once(quirks, |quirks| {
        let here = tempfile::tempdir().unwrap();
        let (file, back) = (here.path().join("f"), here.path().join("back"));
        let tree = here.path().join("to");
        fs::write(&file, "x").unwrap();
        let fake = Fake::start(quirks);
        fake.put("/d/f", b"x");
        let (get, put, list) = (fake.url("/d/f"), fake.url("/d/g"), fake.url("/d"));
        let attempts: [&[&str]; 8] = [
            &["cp", "-vv", "--retries", "1", &get, text(&back)],
            &["cp", "-r", "--retries", "1", &list, text(&tree)],
            &["cp", "--retries", "1", text(&file), &put],
            &["ls", "-vv", &list],
            &["ls", "-l", &list],
            &["stat", "-v", &get],
            &["rm", &get],
            &[
                "guc",
                "-dbg",
                "-rst-retries",
                "1",
                &get,
                &format!("file://{}", text(&back)),
            ],
        ];
        for words in attempts {
            let ran = run(words);
            assert_steers_nothing(&ran.err);
        }
    });
}

#[test]
fn names_reach_programs_as_they_are() {
    let fake = Fake::start(Quirks {
        features: FACTS,
        listing: Some(b"Type=file;Size=1; a\x1b[2Jb\xff\r\n"),
        ..Quirks::default()
    });
    fake.put("/d/f", b"");
    let ran = run(&["ls", &fake.url("/d")]).expect(0, &[]);
    assert_eq!(ran.out, b"a\x1b[2Jb\xff\n");
}
