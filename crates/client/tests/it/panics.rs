//! A bug of ours is a failure that is counted: the status is not 0, the journal stays, nothing is
//! removed, and no task waits for what another had when it panicked. Builds for tests panic where
//! the environment says so.

#![cfg(debug_assertions)]

use std::{fs, path::Path};

use tempfile::TempDir;

use crate::{
    harness::{Ran, Served, bytes, godwit, run, text, tree},
    many::assert_same,
};

const BUG: &[&str] = &["internal error: panicked", "this is a bug of godwit"];

/// Runs the program, which panics where a worker comes to a name that ends so.
fn run_with_bug(worker_and_name: &str, arguments: &[&str]) -> Ran {
    let mut command = godwit(arguments);
    command.env("GODWIT_TEST_PANIC", worker_and_name);
    // A run that hangs is a failure, and not of the whole test binary.
    let limited = ["60", command.get_program().to_str().unwrap()].map(str::to_owned);
    let mut limit = std::process::Command::new("timeout");
    limit.args(limited).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limit.env(name, value),
            None => limit.env_remove(name),
        };
    }
    limit.output().unwrap().into()
}

/// Source and destination of a sync: both have `same`, one has `d/new`, the other `d/old` and
/// `extra`.
fn two_trees(source: &Path, target: &Path) {
    for top in [source, target] {
        fs::create_dir_all(top.join("d")).unwrap();
        fs::write(top.join("same"), "same").unwrap();
    }
    fs::write(source.join("d/new"), "new").unwrap();
    fs::write(target.join("d/old"), "old").unwrap();
    fs::write(target.join("extra"), "extra").unwrap();
}

#[test]
fn no_sync_removes_anything_after_a_panic() {
    for (bug, options) in [
        ("pair:/from/", &[][..]),
        ("pair:/d", &[]),
        ("read:/from/", &[]),
        ("read:/d", &[]),
        ("checksum:/same", &["--checksum"]),
        ("plan:/new", &[]),
        ("begin:/new", &[]),
        ("piece:/new", &[]),
        ("finish:/new", &[]),
    ] {
        let served = Served::start();
        let here = TempDir::new().unwrap();
        let from = here.path().join("from");
        two_trees(&from, &served.path("to"));
        let (content, url) = (format!("{}/", text(&from)), served.url("/to"));
        let mut arguments = vec!["sync", "--delete"];
        arguments.extend(options);
        arguments.extend([content.as_str(), &url]);
        let ran = run_with_bug(bug, &arguments);
        assert!(matches!(ran.code, 1 | 4), "{bug}: {} {}", ran.code, ran.err);
        for word in BUG {
            assert!(ran.err.contains(word), "{bug}: {}", ran.err);
        }
        let there = tree(&served.path("to"));
        for kept in ["extra", "d/old", "same"] {
            assert!(there.iter().any(|name| name == kept), "{bug}: {there:?}");
        }
    }
}

#[test]
fn a_removal_that_panics_is_not_counted_as_done() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    let to = here.path().join("to");
    two_trees(&served.path("from"), &to);
    let url = served.url("/from/");
    let ran = run_with_bug("remove:/extra", &["sync", "--delete", &url, text(&to)]);
    ran.expect(1, BUG);
}

#[test]
fn a_directory_whose_lister_panicked_has_failed() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    for name in ["a/1", "b/2", "c/3"] {
        fs::create_dir_all(served.path(name).parent().unwrap()).unwrap();
        fs::write(served.path(name), name).unwrap();
    }
    let (url, to) = (served.url("/"), here.path().join("to"));
    let journal = here.path().join("journal");
    let arguments = ["cp", "-r", "--journal", text(&journal), &url, text(&to)];
    let ran = run_with_bug("lister:/b", &arguments);
    ran.expect(1, BUG).expect(1, &["/b"]);
    assert!(to.join("a/1").exists() && to.join("c/3").exists() && !to.join("b/2").exists());
    assert!(journal.exists());
    run(&arguments).expect(0, &[]);
    assert!(to.join("b/2").exists() && !journal.exists());
}

#[test]
fn a_file_whose_worker_panicked_fails_alone() {
    for (bug, size) in [
        ("begin", 17_000_000),
        ("piece", 17_000_000),
        ("finish", 17_000_000),
        ("small", 1000),
    ] {
        for put in [true, false] {
            let served = Served::start();
            let here = TempDir::new().unwrap();
            let (from, to) = match put {
                true => (here.path().join("from"), served.path("to")),
                false => (served.path("from"), here.path().join("to")),
            };
            fs::create_dir_all(&from).unwrap();
            for i in 0..4 {
                fs::write(from.join(format!("f{i}")), bytes(size, i)).unwrap();
            }
            let (a, b) = match put {
                true => (text(&from).to_owned(), served.url("/to")),
                false => (served.url("/from"), text(&to).to_owned()),
            };
            let arguments = ["cp", "-r", "-c", "2", "-p", "2", &a, &b];
            let ran = run_with_bug(&format!("{bug}:/f3"), &arguments);
            let shown = format!("{bug} {size} {put}: {}", ran.err);
            assert_eq!(ran.code, 1, "{shown}");
            assert!(ran.err.contains("internal error"), "{shown}");
            let there = tree(&to);
            let whole = there
                .iter()
                .filter(|name| !name.contains(".godwit"))
                .count();
            // What was in flight with it fails too, and nothing else.
            match bug {
                "small" => assert!(whole < 4, "{shown}"),
                _ => assert_eq!(whole, 3, "{shown}"),
            }
            run(&arguments);
            assert_same(&from, &to);
        }
    }
}

#[test]
fn a_worker_that_panics_with_a_file_ends_the_run() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    // More than the planner may be ahead of the workers.
    for i in 0..1500 {
        fs::write(served.path(&format!("f{i}")), "x").unwrap();
    }
    for sessions in ["1", "3"] {
        let (url, to) = (served.url("/"), here.path().join(sessions));
        let arguments = ["cp", "-r", "-c", sessions, &url, text(&to)];
        let ran = run_with_bug("worker:0", &arguments);
        assert!(matches!(ran.code, 1 | 4), "{} {}", ran.code, ran.err);
        assert!(
            ran.err.contains("move files: internal error"),
            "{}",
            ran.err
        );
        run(&arguments).expect(0, &[]);
        assert_same(served.root.path(), &to);
    }
}

#[test]
fn a_checksum_that_panics_is_no_checksum() {
    let here = TempDir::new().unwrap();
    let file = here.path().join("f");
    fs::write(&file, "x").unwrap();
    run_with_bug("cksum:/f", &["cksum", text(&file)]).expect(4, BUG);
}

#[test]
fn a_panic_in_a_warmed_session_fails_and_removes_nothing() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    let to = here.path().join("to");
    two_trees(&served.path("from"), &to);
    let url = served.url("/from/");
    let arguments = ["sync", "--delete", &url, text(&to)];
    run_with_bug("ahead:", &arguments).expect(1, BUG);
    assert_eq!(fs::read(to.join("d/new")).unwrap(), b"new");
    assert!(to.join("extra").exists() && to.join("d/old").exists());
    run(&arguments).expect(0, &[]);
    assert!(!to.join("extra").exists());
}

#[test]
fn a_panic_of_the_list_reader_is_no_end_of_the_list() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    fs::write(served.path("f"), "x").unwrap();
    let (list, to) = (here.path().join("list"), here.path().join("to"));
    fs::write(&list, "f\n").unwrap();
    let (url, list) = (served.url("/"), text(&list));
    let ran = run_with_bug(
        &format!("list:{list}"),
        &["cp", "--files-from", list, &url, text(&to)],
    );
    ran.expect(4, BUG);
}
