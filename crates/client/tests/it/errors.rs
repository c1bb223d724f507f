//! Every class of failure: the message names path, endpoint and cause, and the exit status is the
//! documented one.

use std::{fs, net::TcpListener};

use crate::harness::{Served, run, run_with, text, tree};

#[test]
fn a_missing_source_is_named() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let url = served.url("/none");
    run(&["cp", &url, text(here.path())]).expect(
        4,
        &[
            &url,
            "no such file or directory",
            "check what you asked for",
        ],
    );
    assert_eq!(tree(here.path()), Vec::<String>::new());
    let file = here.path().join("none");
    run(&["cp", text(&file), &served.url("/x")])
        .expect(4, &[text(&file), "no such file or directory"]);
    run(&["cp", &served.url("/no*"), text(here.path())]).expect(4, &["/no*", "no such file"]);
    assert_eq!(tree(served.root.path()), Vec::<String>::new());
}

#[test]
fn some_failed_is_1() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(served.path("f"), "x").unwrap();
    run(&[
        "cp",
        &served.url("/f"),
        &served.url("/none"),
        text(here.path()),
    ])
    .expect(
        1,
        &["/none: no such file or directory", "1 file,", "1 failed"],
    );
    assert_eq!(tree(here.path()), ["f"]);
}

#[test]
fn a_directory_in_the_way_is_named() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    fs::write(served.path("f"), "x").unwrap();
    fs::create_dir(here.path().join("f")).unwrap();
    run(&["cp", &served.url("/f"), text(here.path())])
        .expect(4, &[text(&here.path().join("f")), "Is a directory"]);
    assert_eq!(tree(here.path()), ["f/"]);
    // The other way round: nothing half-done stays at the server.
    let file = here.path().join("d");
    fs::write(&file, "x").unwrap();
    fs::create_dir_all(served.path("up/d/x")).unwrap();
    run(&["cp", text(&file), &served.url("/up")]).expect(4, &["/up/d"]);
    assert_eq!(tree(&served.path("up")), ["d/", "d/x/"]);
    run(&["cp", text(here.path()), &served.url("/up")]).expect(2, &["add -r"]);
}

#[test]
fn a_server_that_is_not_there_is_4_at_once() {
    let gone = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let url = format!("ftp://{gone}/f");
    run(&["cp", &url, "."]).expect(
        4,
        &[
            &gone.to_string(),
            "Connection refused",
            "check the network or try later",
        ],
    );
    run(&["ls", "ftp://no-such-host.invalid/f"])
        .expect(4, &["cannot find host no-such-host.invalid"]);
}

#[test]
fn permission_is_3() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("f");
    fs::write(&file, "x").unwrap();
    let refused = run(&[
        "cp",
        text(&file),
        &format!("ftp://me:wrong@{}/x", served.address),
    ]);
    refused.expect(3, &["login refused", "530"]);
    assert_eq!(tree(served.root.path()), Vec::<String>::new());
}

#[test]
fn wrong_usage_is_2_and_help_is_0() {
    run(&["cp", "--nonsense", "a", "b"]).expect(2, &["--nonsense"]);
    run(&["cp", "gsiftp:///f", "."]).expect(2, &["no host"]);
    run(&["cp", "gsiftp://h:99999/f", "."]).expect(2, &["bad port"]);
    run(&["ls", "--protect", "private", "ftp://h/"])
        .expect(2, &["ftp:// has no protection: use gsiftp://"]);
    run(&["sync", "x"]).expect(2, &["<DST>"]);
    let keep_to = |processors| ["cp", "--processors", processors, "gsiftp://h/f", "."];
    run(&keep_to("near:none0")).expect(2, &["no network interface \"none0\""]);
    run(&keep_to("1-0")).expect(2, &["names no processors"]);
    run(&[]).expect(2, &["Usage"]);
    let help = run(&["cp", "--help"]).expect(0, &[]);
    assert!(
        String::from_utf8(help.out)
            .unwrap()
            .contains("--parallelism")
    );
    let version = run(&["--version"]).expect(0, &[]);
    assert!(version.out.starts_with(b"godwit "));
}

#[test]
fn an_unwritable_event_log_is_reported_before_the_copy() {
    let served = Served::start();
    fs::write(served.path("f"), "x").unwrap();
    run_with("cp --events /none/log", &[&served.url("/f"), "/dev/null"])
        .expect(4, &["/none/log", "No such file or directory"]);
}
