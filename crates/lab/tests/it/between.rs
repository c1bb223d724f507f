//! Our client controls two servers, ours and the reference server.

use std::{fs, os::unix::fs::symlink};

use godwit_lab::peers::process::Signal;

use crate::client_failures::{BIG, says, start};
use crate::client_many::{UNREADABLE, write_many};
use crate::support::{
    Kind, LONG, Need, Site, assert_holds, assert_same, assert_same_tree, files_below, have, noise,
    stored_below, wait_until, write_noise, write_sparse, write_tree,
};

const NEEDS: &[Need] = &[Need::Gct, Need::Godwit, Need::Godwitd];

/// Source and destination.
const PAIRS: [(Kind, Kind); 4] = [
    (Kind::Godwitd, Kind::Godwitd),
    (Kind::Godwitd, Kind::Gct),
    (Kind::Gct, Kind::Godwitd),
    (Kind::Gct, Kind::Gct),
];

/// Runs `test` with each pair of servers, source first.
fn with_each_pair(test: impl Fn(&Site, &Site)) {
    if !have(NEEDS) {
        return;
    }
    for (from, to) in PAIRS {
        test(&Site::new(from), &Site::new(to));
    }
}

#[test]
fn files_of_every_size_arrive_over_any_number_of_channels() {
    with_each_pair(|from, to| {
        let (source, target) = (from.url("f"), to.url("f"));
        for p in ["1", "4", "32"] {
            for size in [0, 1, (32 << 18) - 1, 3_000_001] {
                let bytes = write_noise(&from.at("f"), size, size as u64);
                to.godwit(&["cp", "--verify", "-p", p, &source, &target]);
                assert_holds(&to.at("f"), &bytes);
            }
        }
        assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
    });
}

#[test]
fn one_big_file_is_shared_by_pairs_of_sessions() {
    with_each_pair(|from, to| {
        write_sparse(&from.at("f"), (150 << 20) + 1);
        to.godwit(&["cp", "-c", "3", "-p", "2", &from.url("f"), &to.url("g")]);
        assert_same(&from.at("f"), &to.at("g"));
        assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
    });
}

#[test]
fn trees_arrive() {
    with_each_pair(|from, to| {
        let paths = write_tree(&from.at("tree"));
        fs::create_dir(from.at("tree/empty")).expect("a directory");
        for (i, options) in [&["-c", "1", "-p", "1"][..], &["-c", "3", "-p", "2"]]
            .into_iter()
            .enumerate()
        {
            let there = format!("there {i}");
            let (source, target) = (from.url("tree"), to.url(&there));
            to.godwit(&[&["cp", "-r"][..], options, &[&source, &target]].concat());
            assert_same_tree(&paths, &from.at("tree"), &to.at(&there));
            assert!(to.at(&there).join("empty").is_dir());
        }
    });
}

#[test]
fn parts_arrive_in_their_place() {
    with_each_pair(|from, to| {
        let bytes = write_noise(&from.at("f"), 1_000_000, 1);
        let mut expected = write_noise(&to.at("f"), 1_000_000, 2);
        expected[70_001..270_001].copy_from_slice(&bytes[70_001..270_001]);
        let part = ["cp", "-p", "2", "--offset", "70001", "--length", "200000"];
        to.godwit(&[&part[..], &[&from.url("f"), &to.url("f")]].concat());
        assert_holds(&to.at("f"), &expected);
    });
}

#[test]
fn a_failed_file_stops_no_other() {
    with_each_pair(|from, to| {
        let bytes = noise(80_000, 4);
        for n in [0, 1, 3, 4] {
            fs::write(from.at(&n.to_string()), &bytes).expect("a file");
        }
        fs::create_dir_all(to.at("there/3")).expect("a directory in the way");
        let mut arguments = vec!["cp".to_owned()];
        arguments.extend((0..5).map(|n| from.url(&n.to_string())));
        arguments.push(to.url("there/"));
        let log = to.godwit_exits(1, &arguments);
        assert!(log.contains(&from.url("2")), "{log}");
        assert!(log.contains(&to.url("there/3")), "{log}");
        for n in [0, 1, 4] {
            assert_holds(&to.at("there").join(n.to_string()), &bytes);
        }
        assert_eq!(files_below(&to.at("")), 3, "no temporary file stays");
    });
}

#[test]
fn an_interrupt_ends_both_and_the_same_command_goes_on() {
    with_each_pair(|from, to| {
        write_sparse(&from.at("f"), BIG);
        let (source, target) = (from.url("f"), to.url("copy"));
        let copy = ["cp", "-vv", "--no-sparse", "-c", "1", "-p", "2"];
        let copy = [&copy[..], &[&source, &target]].concat();
        let client = start(&copy);
        wait_until("some of it has arrived", || {
            stored_below(&to.at("")) > 16 << 20
        });
        client.signal(Signal::INT).expect("interrupts");
        let finished = client.wait(LONG).expect("ends");
        assert_eq!(finished.status.code(), Some(130), "{}", finished.log());
        // What the servers answer may take longer than the client waits.
        says(&finished.log(), &["-> ABOR", "goes on from here"]);
        assert!(!to.at("copy").exists());
        let said = to.godwit(&copy).log();
        says(&said, &["bytes are there from an earlier run"]);
        assert_same(&from.at("f"), &to.at("copy"));
        assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
    });
}

#[test]
fn commands_for_many_small_files_are_in_flight_at_both() {
    with_each_pair(|from, to| {
        let paths = write_many(&from.at("many"), 300);
        let (source, target) = (from.url("many"), to.url("there"));
        for options in [&["-c", "1", "-p", "1"][..], &["-c", "1", "-p", "4"], &[]] {
            let copy = [&["cp", "-r", "-vv"], options, &[&source, &target]].concat();
            let log = to.godwit(&copy).stderr_text();
            assert_same_tree(&paths, &from.at("many"), &to.at("there"));
            for verb in ["-> STOR ", "-> RETR "] {
                let ahead = most_ahead(&log, verb);
                assert!(options.is_empty() || ahead >= 8, "{ahead} of {verb}: {log}");
            }
            fs::remove_dir_all(to.at("there")).expect("removed");
        }
    });
}

/// How many commands of a kind went out one after the other without a final word on any of them, at
/// most.
fn most_ahead(log: &str, verb: &str) -> usize {
    let (mut ahead, mut most) = (0, 0);
    for line in log.lines() {
        if line.contains("<- 226 ") {
            ahead = 0;
        } else if line.contains(verb) {
            ahead += 1;
            most = most.max(ahead);
        }
    }
    most
}

#[test]
fn small_files_that_either_refuses_fail_alone() {
    if fs::read(UNREADABLE).is_ok() {
        return;
    }
    with_each_pair(|from, to| {
        let paths = write_many(&from.at("many"), 200);
        for verify in ["--verify=md5", "--no-verify"] {
            symlink(UNREADABLE, from.at("many/d5/closed")).expect("a link");
            fs::create_dir(to.at("there")).expect("a directory");
            symlink("/proc/sys/vm", to.at("there/d3")).expect("a link");
            let (source, target) = (from.url("many/"), to.url("there/"));
            let log = to.godwit_exits(1, &["cp", "-r", "-c", "1", verify, &source, &target]);
            assert!(log.contains("d3/f"), "{log}");
            for path in paths.iter().filter(|p| !p.starts_with("d3/")) {
                assert_same(&from.at("many").join(path), &to.at("there").join(path));
            }
            fs::remove_file(to.at("there/d3")).expect("removed");
            let good = paths.iter().filter(|p| !p.starts_with("d3/")).count();
            assert_eq!(files_below(&to.at("there")), good, "{log}");
            fs::remove_dir_all(to.at("there")).expect("removed");
            fs::remove_file(from.at("many/d5/closed")).expect("removed");
        }
    });
}
