//! Many small files: pipelined both ways, each whole, none twice, and a bad one among them alone.

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt,
    path::Path,
    thread,
};

use crate::harness::{Ran, Served, bytes, godwit, run, run_with, run_with_input, text, tree};

/// `count` files of different content and size below `top`, some in directories.
pub(crate) fn write_many(top: &Path, count: usize) {
    for i in 0..count {
        let folder = top.join(format!("d{}", i % 7));
        fs::create_dir_all(&folder).unwrap();
        let size = [0, 1, 100, 5000, 10_240, 70_000][i % 6];
        fs::write(folder.join(format!("f{i}")), bytes(size, i as u64)).unwrap();
    }
}

#[track_caller]
pub(crate) fn assert_same(a: &Path, b: &Path) {
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
pub(crate) fn events(log: &Path, name: &str) -> Vec<serde_json::Value> {
    fs::read_to_string(log)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|event: &serde_json::Value| event["event"] == name)
        .collect()
}

/// How many commands `verb` went out before the first reply of those that start with `code` came
/// in, at most.
pub(crate) fn most_unanswered(ran: &Ran, verb: &str) -> usize {
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
        let is_deep = |d: &serde_json::Value| d["to"]["pipelining"].as_u64() >= Some(16);
        assert!(decisions.iter().any(is_deep), "{decisions:?}");
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
        for (ran, verb) in [(&put, "STOR"), (&get, "RETR")] {
            // A large depth is not reached to the last where files are found no faster than they
            // are copied, but none stays at the one before.
            let unanswered = most_unanswered(ran, verb);
            let enough = (most.min(6)..=most).contains(&unanswered);
            assert!(enough, "{unanswered} {}", ran.err);
        }
    }
}

#[test]
fn bytes_in_flight_to_a_near_server_are_limited() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    for i in 0..60 {
        fs::write(top.join(i.to_string()), bytes(200_000, i)).unwrap();
    }
    // A MiB a channel and what the last file is longer.
    for (channels, most) in [("1", 6), ("2", 11)] {
        let is_bounded = |i: usize| {
            let up = served.url(&format!("/up{channels}-{i}"));
            let back = here.path().join(format!("back{channels}-{i}"));
            let fixed = ["cp", "-vv", "-r", "-c", "1", "-p", channels];
            let put = run(&[&fixed[..], &[text(&top), &up]].concat()).expect(0, &["60 files"]);
            let get = run(&[&fixed[..], &[&up, text(&back)]].concat()).expect(0, &["60 files"]);
            assert_same(&top, &back);
            let bounds = 2..=most;
            bounds.contains(&most_unanswered(&put, "STOR"))
                && bounds.contains(&most_unanswered(&get, "RETR"))
        };
        // A machine that is busy for a moment answers like one far away.
        assert!((0..8).any(is_bounded), "{channels} channels");
    }
}

#[test]
fn bad_files_in_the_middle_fail_alone_and_say_why() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    write_many(&served.path("top"), 300);
    // Where no user can put a file in place of it.
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
fn missing_and_unreadable_files_fail_alone() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 200);
    // A link to nowhere is found when the directory is read, and cannot be opened. A file without
    // permission is readable to root: then nothing fails of it.
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
        fs::write(top.join(format!("large{i}")), bytes(20 << 20, i)).unwrap();
    }
    let url = served.url("/up");
    for (from, to) in [(text(&top), url.as_str()), (url.as_str(), text(&back))] {
        run(&["cp", "-r", "-c", "3", from, to]).expect(0, &["403 files"]);
    }
    assert_same(&top, &back);
}

#[test]
fn large_files_are_checked_while_the_next_move() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    fs::create_dir(&top).unwrap();
    for i in 0..4 {
        fs::write(top.join(format!("large{i}")), bytes(24 << 20, i)).unwrap();
    }
    let url = served.url("/up");
    for (from, to) in [(text(&top), url.as_str()), (url.as_str(), text(&back))] {
        let ran = run_with("cp -r -vv -c 1 -p 2 --verify", &[from, to]).expect(0, &["4 files"]);
        let count = |what: &str| ran.err.matches(what).count();
        assert_eq!(count("-> SITE GODWIT LEAVES "), 4, "{}", ran.err);
        // One lists or makes directories and then moves files or checks them, one does the other.
        assert!((2..=3).contains(&count("-> USER ")), "{}", ran.err);
    }
    assert_same(&top, &back);
}

/// Stands between client and server on the control channel, and cuts the first sessions after so
/// many bytes of replies each.
pub(crate) fn cutting_proxy(server: SocketAddr, limits: Vec<u64>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mut limits = limits.into_iter();
    thread::spawn(move || {
        for client in listener.incoming() {
            let client = client.unwrap();
            let server = TcpStream::connect(server).unwrap();
            let limit = limits.next().unwrap_or(u64::MAX);
            let (mut from, mut to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
            thread::spawn(move || {
                // Either end may go at any time.
                let _ = io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Both);
            });
            thread::spawn(move || {
                let _ = io::copy(&mut server.take(limit), &mut &client);
                let _ = client.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

#[test]
fn cut_sessions_lose_no_file_and_count_none_twice() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 300);
    for bytes in [3000, 7000, 20_011] {
        let proxy = cutting_proxy(served.address, vec![bytes; 3]);
        let url = format!("ftp://{proxy}/up{bytes}");
        let back = here.path().join(format!("back{bytes}"));
        for (from, to) in [(text(&top), url.as_str()), (url.as_str(), text(&back))] {
            let log = here.path().join("log");
            run(&["cp", "-r", "-c", "1", "--events", text(&log), from, to])
                .expect(0, &["300 files"]);
            let files = events(&log, "file");
            let names: BTreeSet<_> = files.iter().map(|f| f["path"].to_string()).collect();
            assert_eq!((files.len(), names.len()), (300, 300), "cut at {bytes}");
        }
        assert_same(&top, &served.path(&format!("up{bytes}")));
        assert_same(&top, &back);
    }
}

#[test]
fn leftovers_of_a_lost_session_are_removed_by_a_later_one() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 300);
    let proxy = cutting_proxy(served.address, vec![20_011, 0, 0, 0]);
    let url = format!("ftp://{proxy}/up");
    let ran = run(&["cp", "-vv", "-r", "-c", "1", text(&top), &url]);
    let ran = ran.expect(0, &["300 files", "-> DELE "]);
    assert!(!ran.err.contains("left behind"), "{}", ran.err);
    assert_same(&top, &served.path("up"));
}

/// Starts a copy and kills it once `enough` says so.
fn kill_when(arguments: &[&str], enough: impl Fn() -> bool) {
    let mut child = godwit(arguments).spawn().unwrap();
    while !enough() {
        let ended = child.try_wait().unwrap();
        assert_eq!(ended, None, "it was too fast to be killed");
        thread::yield_now();
    }
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_repeated_command_copies_the_rest_after_a_kill() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    let (journal, log) = (here.path().join("journal"), here.path().join("log"));
    write_many(&top, 3000);
    // With slashes a command means the same whether its destination is there or not.
    let url = served.url("/up/");
    let [from_here, to_here] = [&top, &back].map(|folder| format!("{}/", text(folder)));
    for (from, to) in [(&from_here, &url), (&url, &to_here)] {
        let command = [
            "cp",
            "-r",
            "--journal",
            text(&journal),
            "--events",
            text(&log),
            from.as_str(),
            to.as_str(),
        ];
        let noted = || fs::read_to_string(&journal).unwrap_or_default();
        kill_when(&command, || noted().lines().count() > 100);
        // As if the machine had gone down with it.
        let torn = noted();
        fs::write(&journal, &torn[..torn.len() - 3]).unwrap();
        let finished = noted()
            .lines()
            .filter(|l| l.ends_with(" .") && !l.starts_with("part") && !l.starts_with("boot "))
            .count();
        run(&command).expect(0, &[]);
        assert_eq!(events(&log, "file").len(), 3000 - finished);
        assert!(!journal.exists(), "all is done");
        let there = match *to == url {
            true => served.path("up"),
            false => back.clone(),
        };
        let parts = tree(&there).into_iter().filter(|n| n.contains(".godwit-"));
        for part in parts {
            fs::remove_file(there.join(part)).unwrap();
        }
        assert_same(&top, &there);
        run(&command).expect(0, &["3000 files"]);
    }
}

#[test]
fn a_failed_file_keeps_the_journal_and_others_are_not_repeated() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, log) = (here.path().join("top"), here.path().join("log"));
    write_many(&top, 50);
    fs::create_dir_all(served.path("up/d3/f3")).unwrap();
    let from = format!("{}/", text(&top));
    let to = served.url("/up/");
    let journal = here.path().join("journal");
    let kept = ["--journal", text(&journal), "--events", text(&log)];
    let command = [&["cp", "-r"], &kept[..], &[&from, &to]].concat();
    run(&command).expect(1, &["49 files", "1 failed"]);
    fs::remove_dir(served.path("up/d3/f3")).unwrap();
    fs::write(top.join("d4/f4"), "changed since").unwrap();
    let words = [&["cp", "-v", "-r"], &kept[..], &[&from, &to]].concat();
    run(&words).expect(0, &["48 files were copied by an earlier run"]);
    assert_eq!(events(&log, "file").len(), 2);
    assert_same(&top, &served.path("up"));
    run(&command).expect(0, &["50 files"]);
}

#[test]
fn partial_files_of_a_killed_run_are_removed_at_either_end() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    let journal = here.path().join("journal");
    write_many(&top, 20);
    fs::create_dir_all(served.path("up/d1")).unwrap();
    fs::create_dir_all(&back).unwrap();
    let part = ".godwit-00112233445566ff.part";
    let url = served.url("/up/");
    let [from_here, to_here] = [&top, &back].map(|folder| format!("{}/", text(folder)));
    for (from, to, lies, called) in [
        (
            &from_here,
            &url,
            served.path("up/d1").join(part),
            format!("/up/d1/{part}"),
        ),
        (&url, &to_here, back.join(part), format!("{to_here}{part}")),
    ] {
        fs::write(&lies, "begun").unwrap();
        let innocent = lies.with_file_name("thesis");
        fs::write(&innocent, "begun").unwrap();
        let other = called.replace(part, "thesis");
        let lines = format!("godwit-journal 1\npart a {called} .\npart b {other} .\n");
        fs::write(&journal, lines).unwrap();
        run(&["cp", "-r", "--journal", text(&journal), from, to]).expect(0, &[]);
        assert!(!lies.exists() && innocent.exists() && !journal.exists());
        fs::remove_file(innocent).unwrap();
    }
    assert_same(&top, &back);
}

#[test]
fn a_repeated_upload_asks_the_server_for_its_files() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, log, state) = (
        here.path().join("top"),
        here.path().join("log"),
        here.path().join("state"),
    );
    write_many(&top, 300);
    fs::create_dir_all(served.path("up/d3/f3")).unwrap();
    let from = format!("{}/", text(&top));
    let to = served.url("/up/");
    let again = || {
        let arguments = ["cp", "-v", "-r", "--events", text(&log), &from, &to];
        let mut command = godwit(&arguments);
        Ran::from(command.env("XDG_STATE_HOME", &state).output().unwrap())
    };
    again().expect(1, &["299 files", "1 failed"]);
    again().expect(1, &["299 files were copied by an earlier run"]);
    assert_eq!(events(&log, "file").len(), 1);
    // Gone, of another size, and written to since.
    fs::remove_file(served.path("up/d1/f1")).unwrap();
    fs::write(served.path("up/d2/f2"), "not what we sent").unwrap();
    fs::write(served.path("up/d4/f4"), bytes(10_240, 1)).unwrap();
    let later = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let touched = fs::File::options()
        .write(true)
        .open(served.path("up/d4/f4"));
    touched.unwrap().set_modified(later).unwrap();
    fs::remove_dir(served.path("up/d3/f3")).unwrap();
    again().expect(0, &["296 files were copied by an earlier run"]);
    assert_eq!(events(&log, "file").len(), 4);
    assert_same(&top, &served.path("up"));
    assert_eq!(tree(&state.join("godwit/journals")), [""; 0], "all is done");
}

#[test]
fn files_are_named_by_a_list() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    write_many(&top, 140);
    let mut list = String::from("# a comment\n\n/d2/f2\n./d3//f3\nno/such\n../top/d1/f1\nd5\n");
    for i in (0..140).filter(|i| i % 7 == 6) {
        list.push_str(&format!("d6/f{i}\n"));
    }
    let names = here.path().join("names");
    fs::write(&names, list).unwrap();
    let expected: Vec<_> = tree(&top)
        .into_iter()
        .filter(|n| n == "d2/" || n == "d3/" || n == "d2/f2" || n == "d3/f3" || n[..2] >= *"d5")
        .collect();
    let url = served.url("/up/");
    let from = format!("{}/", text(&top));
    let failures = ["42 files", "no/such", "leads out of the source", "2 failed"];
    run(&["cp", "-r", "--files-from", text(&names), &from, &url]).expect(1, &failures);
    assert_eq!(tree(&served.path("up")), expected);
    let back = here.path().join("back");
    run(&["cp", "-r", "--files-from", text(&names), &url, text(&back)]).expect(1, &failures);
    assert_eq!(tree(&back), expected);
    assert_same(&served.path("up"), &back);
    let few = here.path().join("few");
    let arguments = ["cp", "--files-from", "-", "-0", &url, text(&few)];
    run_with_input(&arguments, b"d6/f6\0d2/f2").expect(0, &["2 files"]);
    assert_eq!(tree(&few), ["d2/", "d2/f2", "d6/", "d6/f6"]);
}

#[test]
fn trees_of_many_small_directories_are_listed_and_made() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (top, back) = (here.path().join("top"), here.path().join("back"));
    for i in 0..60 {
        let folder = top.join(format!("a{}/b{}/c{i}", i % 3, i % 5));
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("f"), bytes(2000, i)).unwrap();
    }
    let url = served.url("/up");
    run(&["cp", "-r", text(&top), &url]).expect(0, &["60 files"]);
    run(&["cp", "-r", &url, text(&back)]).expect(0, &["60 files"]);
    assert_same(&top, &served.path("up"));
    assert_same(&top, &back);
}
