//! What monitoring reads, and what SIGUSR1 logs; in one process and in many.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpStream},
    os::unix::fs::PermissionsExt as _,
    process::Command,
};

use tempfile::TempDir;

use crate::{
    client::connect,
    harness::{eventually, pattern},
    privsep::can_separate,
    program::Program,
    scraped::{Scraped, asked_for},
};

const MIB: usize = 1 << 20;

/// What comes back for `request`, head and body.
fn ask(metrics: SocketAddr, request: &str) -> (String, String) {
    let mut socket = connect(metrics);
    socket.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    (head.to_owned(), body.to_owned())
}

pub(crate) fn scrape(program: &Program) -> Scraped {
    scrape_at(program.metrics.unwrap())
}

pub(crate) fn scrape_at(metrics: SocketAddr) -> Scraped {
    let request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n";
    let (head, body) = ask(metrics, request);
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let kind = "Content-Type: text/plain; version=0.0.4; charset=utf-8";
    assert!(head.lines().any(|line| line == kind), "{head}");
    Scraped::of(&body)
}

fn becomes(program: &Program, what: &str, value: f64) {
    eventually(&format!("{what} {value}"), || {
        scrape(program).value(what) == value
    });
}

/// A server for all, in each of both ways that can be here, with a directory that all may write to.
fn in_both_ways(test: impl Fn(&Program)) {
    for way in ["--privsep=false", "--privsep=true"] {
        if way.ends_with("true") && !can_separate() {
            continue;
        }
        let root = TempDir::new().unwrap();
        fs::set_permissions(root.path(), fs::Permissions::from_mode(0o777)).unwrap();
        let root = root.path().to_str().unwrap();
        test(&Program::start(&[
            "--anonymous",
            "rw",
            "--root",
            root,
            "--metrics",
            "127.0.0.1:0",
            way,
        ]));
    }
}

#[test]
#[allow(clippy::cast_precision_loss)] // of MiB
fn numbers_grow_while_bytes_flow_and_each_is_counted_once() {
    in_both_ways(|program| {
        becomes(program, "godwitd_sessions{method=\"anonymous\"}", 0.0);
        let mut ftp = program.login();
        becomes(program, "godwitd_sessions{method=\"anonymous\"}", 1.0);
        let bytes = pattern(2 * MIB, 7);
        let mut data = ftp.passive();
        ftp.send("STOR /f");
        ftp.await_code(150);
        data.write_all(&bytes[..MIB]).unwrap();
        let received = "godwitd_transfer_bytes_total{direction=\"in\"}";
        becomes(program, received, MIB as f64);
        let midst = scrape(program);
        for (what, value) in [
            ("godwitd_transfers_running{direction=\"in\"}", 1.0),
            (
                "godwitd_transfers_total{direction=\"in\",result=\"done\"}",
                0.0,
            ),
            ("godwitd_data_channels", 1.0),
            ("godwitd_data_channels_opened_total", 1.0),
        ] {
            assert_eq!(midst.value(what), value, "{what}");
        }
        data.write_all(&bytes[MIB..]).unwrap();
        drop(data);
        ftp.await_code(226);
        assert!(ftp.get("RETR /f") == bytes);
        let data = ftp.passive();
        ftp.expect("RETR /none", 550);
        drop(data);
        ftp.expect("MKD /d", 257);
        ftp.expect("DELE /none", 550);
        ftp.expect("QUIT", 221);
        ftp.expect_end();
        let mut stranger = crate::client::Ftp::connect(program.address);
        stranger.await_code(220);
        stranger.expect("USER unknown-user", 331);
        stranger.expect("PASS hunter2", 530);
        drop(stranger);
        becomes(program, "godwitd_sessions{method=\"anonymous\"}", 0.0);
        becomes(program, "godwitd_connections_waiting", 0.0);
        let end = scrape(program);
        for (what, value) in [
            (received, 2.0 * MIB as f64),
            (
                "godwitd_transfer_bytes_total{direction=\"out\"}",
                2.0 * MIB as f64,
            ),
            (
                "godwitd_transfers_total{direction=\"in\",result=\"done\"}",
                1.0,
            ),
            (
                "godwitd_transfers_total{direction=\"out\",result=\"done\"}",
                1.0,
            ),
            (
                "godwitd_transfers_total{direction=\"out\",result=\"failed\"}",
                1.0,
            ),
            ("godwitd_transfers_running{direction=\"in\"}", 0.0),
            ("godwitd_errors_total{cause=\"not_found\"}", 2.0),
            ("godwitd_changes_total{result=\"done\"}", 1.0),
            ("godwitd_changes_total{result=\"failed\"}", 1.0),
            ("godwitd_logins_total{method=\"anonymous\"}", 1.0),
            ("godwitd_logins_refused_total{cause=\"credentials\"}", 1.0),
            ("godwitd_connections_total", 2.0),
            ("godwitd_data_channels", 0.0),
            ("godwitd_build_info{version=\"0.1.0\"}", 1.0),
        ] {
            assert_eq!(end.value(what), value, "{what}");
        }
        let channels = end.value("godwitd_data_channels_opened_total");
        assert!((2.0..=3.0).contains(&channels), "{channels}");
        for above_nothing in [
            "godwitd_transfer_seconds_total{direction=\"in\"}",
            "process_resident_memory_bytes",
            "process_open_fds",
            "process_max_fds",
            "process_start_time_seconds",
        ] {
            assert!(end.value(above_nothing) > 0.0, "{above_nothing}");
        }
    });
}

#[test]
fn only_get_of_two_paths_is_answered() {
    in_both_ways(|program| {
        let metrics = program.metrics.unwrap();
        for (request, status) in [
            ("GET / HTTP/1.1", "200 OK"),
            ("GET /metrics?x HTTP/1.0", "200 OK"),
            ("GET /etc/passwd HTTP/1.1", "404 Not Found"),
            ("POST /metrics HTTP/1.1", "405 Method Not Allowed"),
            ("USER anonymous", "400 Bad Request"),
        ] {
            let (head, _) = ask(metrics, &format!("{request}\r\nHost: x\r\n\r\n"));
            assert!(
                head.starts_with(&format!("HTTP/1.1 {status}\r\n")),
                "{head}"
            );
            assert!(head.lines().any(|line| line == "Connection: close"));
        }
    });
}

#[test]
fn garbage_and_silent_peers_do_not_block_metrics() {
    in_both_ways(|program| {
        let metrics = program.metrics.unwrap();
        let mut silent = Vec::new();
        for number in 0..40 {
            let mut socket = connect(metrics);
            match number % 4 {
                0 => {}
                1 => socket.write_all(b"GET /metrics HTTP/1.1\r\nHo").unwrap(),
                2 => {
                    // Longer than any request; it may be cut in the midst.
                    drop(socket.write_all(&pattern(MIB, number)));
                }
                _ => {
                    // The answer is not read.
                    socket.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
                }
            }
            silent.push(socket);
        }
        scrape(program);
        program.login().expect("NOOP", 200);
        for socket in &mut silent {
            expect_given_up(socket);
        }
        scrape(program);
    });
}

fn expect_given_up(socket: &mut TcpStream) {
    drop(socket.shutdown(Shutdown::Write));
    // An answer, the end or a reset, but no wait beyond the patience of the tests.
    match socket.read_to_end(&mut Vec::new()) {
        Ok(_) => {}
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset),
    }
}

#[test]
fn sigusr1_logs_the_sessions_and_ends_none() {
    in_both_ways(|program| {
        let mut idle = program.login();
        let mut ftp = program.login();
        let mut data = ftp.passive();
        ftp.send("STOR /a\u{1b}b");
        ftp.await_code(150);
        data.write_all(&[7; MIB]).unwrap();
        becomes(program, "godwitd_transfers_running{direction=\"in\"}", 1.0);
        // As a service manager does that sends it to all processes there are.
        let own = ["privsep-front", "privsep-session"].map(|role| program.children(role));
        for pid in own.concat() {
            let status = Command::new("kill")
                .args(["-s", "USR1", &pid.to_string()])
                .status();
            assert!(status.unwrap().success());
        }
        program.signal("USR1");
        let log = || fs::read_to_string(program.log.path()).unwrap();
        eventually("the status is logged", || {
            log().contains(" status connections=")
        });
        drop(data);
        ftp.await_code(226);
        idle.expect("NOOP", 200);
        let log = log();
        for words in [
            &["status: idle", "user=\"anonymous\"", "method=Anonymous"][..],
            &[
                "status: transfers",
                "verb=\"receive\"",
                "path_bytes=1048576",
                "channels=1",
            ],
        ] {
            let found = log
                .lines()
                .any(|line| words.iter().all(|word| line.contains(word)));
            assert!(found, "{words:?}: {log}");
        }
        assert!(
            !log.contains("example.org") && !log.contains('\u{1b}'),
            "{log:?}"
        );
    });
}

#[test]
fn dashboard_and_alerts_use_existing_metrics() {
    let root = TempDir::new().unwrap();
    let root = root.path().to_str().unwrap();
    let arguments = ["--anonymous", "ro", "--root", root, "--privsep=false"];
    let program = Program::start(&[&arguments[..], &["--metrics", "127.0.0.1:0"]].concat());
    let scraped = scrape(&program);
    let asked = asked_for(&["godwitd_", "process_"]);
    let unknown: Vec<_> = asked
        .iter()
        .filter(|name| !scraped.names().contains(name.as_str()))
        .collect();
    assert!(
        unknown.is_empty() && asked.len() > 15,
        "{unknown:?} of {asked:?}"
    );
    let unasked: Vec<_> = scraped
        .names()
        .into_iter()
        .filter(|name| !asked.contains(*name))
        .collect();
    assert!(unasked.is_empty(), "on no picture: {unasked:?}");
}
