//! Many small files from one server to another: commands for many in flight at both, and a bad file
//! among them alone.

use std::{
    collections::BTreeSet,
    fs,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use crate::harness::{Served, bytes, run, run_with, text, tree};
use crate::interposed::interposed;
use crate::many::{assert_same, cutting_proxy, events, most_unanswered, write_many};

#[test]
fn commands_for_many_are_in_flight_at_both_servers() {
    let (from, to) = (Served::start(), Served::start());
    write_many(&from.path("many"), 300);
    let source = from.url("/many");
    for (depth, channels, least) in [("1", "2", 1), ("40", "1", 8), ("40", "3", 8)] {
        let there = format!("there-{depth}-{channels}");
        let target = to.url(&format!("/{there}"));
        let fixed = ["cp", "-r", "-vv", "-c", "1", "-p", channels];
        let ran = run(&[&fixed[..], &["--pipelining", depth, &source, &target]].concat());
        let ran = ran.expect(0, &["300 files"]);
        assert_same(&from.path("many"), &to.path(&there));
        assert_eq!(ran.err.matches("-> CKSM ").count(), 600, "{}", ran.err);
        let most = depth.parse().unwrap();
        for verb in ["STOR", "RETR"] {
            let unanswered = most_unanswered(&ran, verb);
            let context = format!("{unanswered} of {verb}: {}", ran.err);
            assert!((least..=most).contains(&unanswered), "{context}");
        }
        // The first file goes alone; the others use the channels that it leaves.
        assert_eq!(ran.err.matches("-> PORT ").count(), 1, "{}", ran.err);
    }
}

#[test]
fn small_and_large_files_go_together() {
    let (from, to) = (Served::start(), Served::start());
    write_many(&from.path("many"), 400);
    for i in 0..3 {
        let large = from.path(&format!("many/large{i}"));
        fs::write(large, bytes(20 << 20, i)).unwrap();
    }
    let (source, target) = (from.url("/many"), to.url("/there"));
    run(&["cp", "-r", "-c", "3", &source, &target]).expect(0, &["403 files"]);
    assert_same(&from.path("many"), &to.path("there"));
}

/// A server that, asked for `verb` of what has `name` in its path, hears of what is in no
/// directory.
fn misled(server: &Served, verb: &'static str, name: &'static str) -> String {
    let commands = move |line: String| match line.starts_with(verb) && line.contains(name) {
        true => format!("{verb} /in/no/directory"),
        false => line,
    };
    format!(
        "ftp://{}",
        interposed(server.address, commands, |line| line)
    )
}

/// What the sender refuses leaves the receiver waiting for bytes, and those that come are the next
/// file's. What the receiver refuses was sent all the same, and the next file is written with it.
#[test]
fn a_refused_file_fails_alone() {
    let (from, to) = (Served::start(), Served::start());
    write_many(&from.path("many"), 200);
    // Temporary names say nothing of the file, only of its directory.
    let pairs = [
        ("d2/f100", misled(&from, "RETR", "d2/f100"), to.url("")),
        ("d2/f", from.url(""), misled(&to, "STOR", "d2/")),
    ];
    let names = tree(&from.path("many"));
    for (i, (refused, source, target)) in pairs.iter().enumerate() {
        for verify in ["--verify", "--no-verify"] {
            let there = format!("there{i}{verify}");
            let (source, target) = (format!("{source}/many"), format!("{target}/{there}"));
            run(&["cp", "-r", "-c", "1", verify, &source, &target]).expect(1, &["d2/f100"]);
            let arrived: Vec<_> = names.iter().filter(|n| !n.starts_with(refused)).collect();
            assert_eq!(tree(&to.path(&there)).iter().collect::<Vec<_>>(), arrived);
            for name in arrived.into_iter().filter(|n| !n.ends_with('/')) {
                let [sent, got] = [from.path("many"), to.path(&there)].map(|top| top.join(name));
                assert!(fs::read(sent).unwrap() == fs::read(got).unwrap(), "{name}");
            }
        }
    }
}

/// A server may still carry out what a session that is gone had asked.
#[test]
fn a_file_whose_temporary_name_was_given_away_is_moved_again() {
    let to = Served::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("large");
    fs::write(&file, bytes(20 << 20, 1)).unwrap();
    let told = Arc::new(AtomicBool::new(false));
    let has_told = Arc::clone(&told);
    let commands = move |line: String| {
        let checks = line.starts_with("CKSM") || line.contains("LEAVES");
        match line
            .find('/')
            .filter(|_| checks && line.contains(".godwit-"))
        {
            Some(path) if !has_told.swap(true, Ordering::Relaxed) => {
                format!("{}/in/no/directory", &line[..path])
            }
            _ => line,
        }
    };
    let target = interposed(to.address, commands, |line| line);
    let target = format!("ftp://{target}/copy");
    run(&["cp", "--verify", text(&file), &target]).expect(0, &["1 file"]);
    assert!(told.load(Ordering::Relaxed));
    assert_eq!(tree(to.root.path()), ["copy"]);
    assert!(fs::read(&file).unwrap() == fs::read(to.path("copy")).unwrap());
}

#[test]
fn sessions_cut_at_either_end_lose_no_file_and_count_none_twice() {
    let (from, to) = (Served::start(), Served::start());
    let here = tempfile::tempdir().unwrap();
    write_many(&from.path("many"), 300);
    for bytes in [3000, 7000, 20_011] {
        for end in ["sender", "receiver"] {
            let (mut sender, mut receiver) = (from.address, to.address);
            let cut = match end {
                "sender" => &mut sender,
                _ => &mut receiver,
            };
            *cut = cutting_proxy(*cut, vec![bytes; 3]);
            let there = format!("{end}{bytes}");
            let source = format!("ftp://{sender}/many");
            let target = format!("ftp://{receiver}/{there}");
            let log = here.path().join("log");
            run_with("cp -r -c 1 --events", &[text(&log), &source, &target])
                .expect(0, &["300 files"]);
            let files = events(&log, "file");
            let names: BTreeSet<_> = files.iter().map(|f| f["path"].to_string()).collect();
            assert_eq!((files.len(), names.len()), (300, 300), "{there}");
            assert_same(&from.path("many"), &to.path(&there));
        }
    }
    let left = tree(to.root.path());
    assert!(!left.iter().any(|n| n.contains(".godwit-")), "{left:?}");
}

/// The server may still carry out what a session that is gone had asked, after another has removed
/// what was not there yet.
#[test]
fn temporary_files_that_appear_late_are_removed() {
    let (from, to) = (Served::start(), Served::start());
    write_many(&from.path("many"), 100);
    let (renames, misled) = (AtomicUsize::new(0), Arc::new(Mutex::new(BTreeSet::new())));
    let heard = Arc::clone(&misled);
    let commands = move |line: String| match &line[..4] {
        "RNFR" if renames.fetch_add(1, Ordering::Relaxed) == 20 => String::new(),
        "DELE" if heard.lock().unwrap().insert(line.clone()) => "DELE /not-yet".to_owned(),
        _ => line,
    };
    let target = interposed(to.address, commands, |line| line);
    let (source, target) = (from.url("/many"), format!("ftp://{target}/there"));
    run(&["cp", "-r", "-c", "1", &source, &target]).expect(0, &["100 files"]);
    assert!(!misled.lock().unwrap().is_empty());
    assert_same(&from.path("many"), &to.path("there"));
}
