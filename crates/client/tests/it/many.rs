//! Many small files: pipelined both ways, each whole, none twice, and a bad one among them alone.

use std::{fs, os::unix::fs::PermissionsExt, path::Path};

use crate::harness::{Ran, Served, octets, run, text, tree};

/// `count` files of different content and size below `top`, some in directories.
fn write_many(top: &Path, count: usize) {
    for i in 0..count {
        let folder = top.join(format!("d{}", i % 7));
        fs::create_dir_all(&folder).unwrap();
        let size = [0, 1, 100, 5000, 10_240, 70_000][i % 6];
        fs::write(folder.join(format!("f{i}")), octets(size, i as u64)).unwrap();
    }
}

#[track_caller]
fn assert_same(a: &Path, b: &Path) {
    let names = tree(a);
    assert_eq!(names, tree(b));
    for name in names.iter().filter(|n| !n.ends_with('/')) {
        assert_eq!(
            fs::read(a.join(name)).unwrap(),
            fs::read(b.join(name)).unwrap(),
            "{name}"
        );
    }
}

/// Lines of the event log with such an event.
fn events(log: &Path, name: &str) -> Vec<serde_json::Value> {
    fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &serde_json::Value| event["event"] == name)
        .collect()
}

/// How many commands `verb` went out before the first reply of those that start with `code` came in, at most.
fn most_unanswered(ran: &Ran, verb: &str) -> usize {
    let (mut now, mut most) = (0_usize, 0);
    for line in ran.err.lines() {
        if line.contains(&format!("-> {verb} ")) {
            now += 1;
            most = most.max(now);
        } else if line.contains("<- 226 ") {
            now = now.saturating_sub(1);
        }
    }
    most
}

#[test]
fn two_thousand_files_travel_both_ways() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 2000);
    for c in ["1", "3"] {
        let log = here.path().join("log");
        let up = format!("up{c}");
        let back = here.path().join(format!("back{c}"));
        let put = [
            "cp",
            "-r",
            "-c",
            c,
            text(&top),
            &served.url(&format!("/{up}")),
        ];
        run(&put).expect(0, &["2000 files"]);
        assert_same(&top, &served.path(&up));
        let url = served.url(&format!("/{up}"));
        let get = [
            "cp",
            "-r",
            "-c",
            c,
            "--events",
            text(&log),
            &url,
            text(&back),
        ];
        run(&get).expect(0, &["2000 files"]);
        assert_same(&top, &back);
        let files = events(&log, "file");
        assert_eq!(files.len(), 2000);
        assert!(files.iter().all(|f| f["state"] == "verified"));
        let decisions = events(&log, "decision");
        let told = |d: &serde_json::Value| d["to"]["pipelining"].as_u64() >= Some(16);
        assert!(decisions.iter().any(told), "{decisions:?}");
    }
}

#[test]
fn the_depth_is_the_users_where_he_fixes_it() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 60);
    for (depth, most) in [("1", 1), ("5", 5), ("40", 40)] {
        let up = served.url(&format!("/up{depth}"));
        let back = here.path().join(format!("back{depth}"));
        let fixed = ["cp", "-vv", "-r", "-c", "1", "--pipelining", depth];
        let put = run(&[&fixed[..], &[text(&top), &up]].concat()).expect(0, &["60 files"]);
        let get = run(&[&fixed[..], &[&up, text(&back)]].concat()).expect(0, &["60 files"]);
        assert_same(&top, &back);
        assert_eq!(most_unanswered(&put, "STOR"), most, "{}", put.err);
        assert_eq!(most_unanswered(&get, "RETR"), most, "{}", get.err);
    }
}

#[test]
fn bad_files_in_the_middle_fail_alone_and_say_why() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    write_many(&served.path("top"), 300);
    // Where nobody can put a file in place of it.
    for i in [40, 41, 150] {
        let name = format!("d{}/f{i}", i % 7);
        fs::create_dir_all(back.join(&name)).unwrap();
    }
    let url = served.url("/top/");
    run(&["cp", "-r", "-c", "1", &url, text(&back)])
        .expect(1, &["297 files", "f40", "f150", "Is a directory"]);
    write_many(&top, 300);
    for i in [3, 4, 200] {
        let name = format!("d{}/f{i}", i % 7);
        fs::create_dir_all(served.path("up").join(&name)).unwrap();
    }
    let log = here.path().join("log");
    let to = served.url("/up/");
    let from = format!("{}/", text(&top));
    run(&["cp", "-r", "-c", "1", "--events", text(&log), &from, &to])
        .expect(1, &["297 files", "f3", "f200", "rename to"]);
    assert_eq!(events(&log, "file").len(), 300);
    let left = tree(&served.path("up"));
    assert!(!left.iter().any(|n| n.contains(".godwit-")), "{left:?}");
}

#[test]
fn what_vanishes_or_cannot_be_read_stops_no_other() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 200);
    // A link to nowhere is found when the directory is read, and cannot be opened. A file without permission is readable to
    // root: then nothing fails of it.
    let closed = top.join("d5/f5");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o000)).unwrap();
    let readable = fs::read(&closed).is_ok();
    std::os::unix::fs::symlink("nowhere", top.join("d0/lost")).unwrap();
    let to = served.url("/up");
    let there = if readable { "200 files" } else { "199 files" };
    run(&["cp", "-r", "-c", "2", text(&top), &to]).expect(1, &[there, "lost"]);
    let names = tree(&served.path("up"));
    let files = names.iter().filter(|n| !n.ends_with('/')).count();
    assert_eq!(files, if readable { 200 } else { 199 });
}

#[test]
fn small_and_large_files_travel_together() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    write_many(&top, 400);
    for i in 0..3 {
        fs::write(top.join(format!("large{i}")), octets(20 << 20, i)).unwrap();
    }
    let url = served.url("/up");
    for (from, to) in [(text(&top), url.as_str()), (url.as_str(), text(&back))] {
        run(&["cp", "-r", "-c", "3", from, to]).expect(0, &["403 files"]);
    }
    assert_same(&top, &back);
}
