//! What a listing does not say is not taken for what is not there.

use std::{
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use proptest::{prelude::*, sample::Index, test_runner::TestRunner};

use crate::{
    fake::{Fake, Quirks},
    harness::{Ran, for_each_at_once, run, run_with, text, tree},
};

const NO: &str = "500 Command not supported";

/// How a server lists.
#[derive(Clone, Copy, Debug, PartialEq)]
enum ListingCommand {
    Mlsd,
    LongAll,
    Long,
    NamesAll,
    Names,
}

const COMMANDS: [ListingCommand; 5] = [
    ListingCommand::Mlsd,
    ListingCommand::LongAll,
    ListingCommand::Long,
    ListingCommand::NamesAll,
    ListingCommand::Names,
];

impl ListingCommand {
    fn quirks(self) -> Quirks {
        let lacks: &[&str] = match self {
            Self::Mlsd => &[],
            _ => &["MLSD", "MLST"],
        };
        Quirks {
            replies: lacks.iter().map(|verb| (*verb, NO)).collect(),
            long: matches!(self, Self::Long | Self::LongAll),
            options: matches!(self, Self::LongAll | Self::NamesAll),
            ..Quirks::default()
        }
    }
}

const FILES: [&str; 4] = ["alpha", "beta", ".dot", "sub/gamma"];

fn fill(fake: &Fake, top: &str) {
    for name in FILES {
        fake.put(&format!("{top}/{name}"), name.as_bytes());
    }
}

fn fill_here(top: &Path) {
    fs::create_dir_all(top.join("sub")).unwrap();
    for name in FILES {
        fs::write(top.join(name), name).unwrap();
    }
}

/// Which ends are at servers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Ends {
    Source,
    Target,
    Both,
}

/// Syncs a tree to one that has a file more, and gives what the latter has afterwards.
fn sync(ends: Ends, source: Quirks, target: Quirks) -> (Ran, Vec<String>) {
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (Fake::start(source), Fake::start(target));
    fill(&from, "/s");
    fill(&to, "/t");
    fill_here(&here.path().join("s"));
    fill_here(&here.path().join("t"));
    fs::write(here.path().join("t/extra"), "x").unwrap();
    to.put("/t/extra", b"x");
    let local = |name: &str| format!("{}/", text(&here.path().join(name)));
    let source = match ends {
        Ends::Target => local("s"),
        _ => from.url("/s/"),
    };
    let target = match ends {
        Ends::Source => local("t"),
        _ => to.url("/t/"),
    };
    let ran = run_with("sync --delete --size-only --retries 1", &[&source, &target]);
    let mut left: Vec<String> = match ends {
        Ends::Source => tree(&here.path().join("t")),
        _ => to.names().iter().map(|name| name[3..].to_owned()).collect(),
    };
    left.retain(|name| !name.ends_with('/'));
    left.sort();
    (ran, left)
}

fn names(with_extra: bool) -> Vec<String> {
    let mut names: Vec<_> = FILES.iter().map(|name| (*name).to_owned()).collect();
    names.extend(with_extra.then(|| "extra".to_owned()));
    names.sort();
    names
}

#[test]
fn each_listing_command_shows_all_names_and_extra_files_are_deleted() {
    let all_ends = [Ends::Source, Ends::Target, Ends::Both];
    let cases = COMMANDS
        .iter()
        .flat_map(|command| all_ends.map(|ends| (*command, ends)));
    for_each_at_once(cases, |(command, ends)| {
        let (ran, left) = sync(ends, command.quirks(), command.quirks());
        ran.expect(0, &["1 removed", "4 the same"]);
        assert_eq!(left, names(false), "{command:?} {ends:?}");
    });
}

/// What happens to a listing.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It ends early, with this reply. With 226 not at the end of a line: that is another listing,
    /// and a good one.
    Cut(Index, &'static str),
    /// It is whole, and this is the reply.
    Answered(&'static str),
    /// A byte of a name is one that no name has.
    Byte(Index, u8),
}

impl Fault {
    fn spoil(self, listing: &mut Vec<u8>) -> Option<&'static str> {
        match self {
            Self::Cut(at, reply) => {
                let mut at = at.index(listing.len().max(1));
                let is_line_end = at == 0 || listing[at - 1] == b'\n';
                if reply.starts_with("226") && is_line_end {
                    at += 1;
                }
                listing.truncate(at);
                Some(reply)
            }
            Self::Answered(reply) => Some(reply),
            Self::Byte(at, byte) => {
                let find = |name: &[u8]| listing.windows(5).position(|w| w == name);
                let name = find(b"alpha").or_else(|| find(b"gamma"))?;
                // One that ends with the line is a good line with another name.
                listing[name + at.index(4)] = byte;
                None
            }
        }
    }
}

fn faults() -> impl Strategy<Value = Fault> {
    let at = any::<Index>;
    let replies = || {
        let all = ["426 broken", "451 error", "550 no", "451 f: No such file"];
        prop::sample::select(all.to_vec())
    };
    prop_oneof![
        3 => at().prop_map(|at| Fault::Cut(at, "226 done")),
        2 => (at(), replies()).prop_map(|(at, reply)| Fault::Cut(at, reply)),
        1 => replies().prop_map(Fault::Answered),
        2 => (at(), prop_oneof![Just(0), Just(b'/'), Just(b'\n')])
            .prop_map(|(at, byte)| Fault::Byte(at, byte)),
    ]
}

/// For any listing command, either end or both, and any place of the fault.
#[test]
fn nothing_is_removed_after_a_damaged_listing() {
    let ends = prop_oneof![Just(Ends::Source), Just(Ends::Target), Just(Ends::Both)];
    let ways = prop::sample::select(COMMANDS.to_vec());
    let mut runner = TestRunner::new(ProptestConfig {
        cases: 60,
        failure_persistence: None,
        max_shrink_iters: 20,
        ..ProptestConfig::default()
    });
    let case = (ends, ways.clone(), ways, any::<bool>(), faults());
    let outcome = runner.run(&case, |(ends, one, other, at_source, fault)| {
        let at_source = match ends {
            Ends::Source => true,
            Ends::Target => false,
            Ends::Both => at_source,
        };
        let quirks = |command: ListingCommand, is_spoiled: bool| Quirks {
            spoil: is_spoiled.then(|| Arc::new(move |l: &mut Vec<u8>| fault.spoil(l)) as _),
            ..command.quirks()
        };
        let (source, target) = (quirks(one, at_source), quirks(other, !at_source));
        let (ran, left) = sync(ends, source, target);
        prop_assert!(ran.code > 0, "{}", ran.err);
        prop_assert_eq!(left, names(true), "{}", ran.err);
        Ok(())
    });
    outcome.unwrap_or_else(|error| panic!("{error}"));
}

/// For any listing command and any listing of a server that ends before its first line.
#[test]
fn a_listing_that_ends_before_its_first_line_removes_nothing() {
    let ends = [Ends::Source, Ends::Target];
    let cases = ends
        .iter()
        .flat_map(|ends| [0, 1, 2].map(|nth| (*ends, nth)));
    let cases = cases.flat_map(|(ends, nth)| COMMANDS.map(|command| (command, ends, nth)));
    for_each_at_once(cases, |(command, ends, nth)| {
        let count = AtomicUsize::new(0);
        let spoil = move |listing: &mut Vec<u8>| {
            (count.fetch_add(1, Ordering::Relaxed) == nth).then(|| {
                listing.clear();
                "226 done"
            })
        };
        let spoiled = Quirks {
            spoil: Some(Arc::new(spoil)),
            ..command.quirks()
        };
        let (source, target) = match ends {
            Ends::Target => (command.quirks(), spoiled),
            _ => (spoiled, command.quirks()),
        };
        let (ran, left) = sync(ends, source, target);
        let all = FILES.iter().all(|name| left.contains(&(*name).to_owned()));
        assert!(all, "{command:?} {ends:?} {nth}: {left:?}\n{}", ran.err);
        assert!(ran.code > 0 || left == names(false), "{}", ran.err);
    });
}

#[test]
fn an_empty_listing_that_another_command_contradicts_is_refused() {
    let fake = Fake::start(Quirks {
        spoil: Some(Arc::new(|listing: &mut Vec<u8>| {
            listing.starts_with(b"Type").then(|| {
                listing.clear();
                "226 done"
            })
        })),
        ..ListingCommand::Mlsd.quirks()
    });
    fake.put("/d/f", b"12");
    fails_everywhere(&fake, &["MLSD has nothing, and NLST has \"f\""]);
}

fn listing(quirks: Quirks, listing: &'static [u8]) -> Fake {
    let fake = Fake::start(Quirks {
        listing: Some(listing),
        ..quirks
    });
    fake.put("/d/f", b"12");
    fake
}

/// Copies and lists `/d`, and syncs it to a directory that has a file more: all of it fails.
#[track_caller]
fn fails_everywhere(fake: &Fake, words: &[&str]) {
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "x").unwrap();
    let (url, pattern, to) = (fake.url("/d/"), fake.url("/d/*"), text(&to));
    for arguments in [
        &["sync", "--delete", "--retries", "1", &url, to][..],
        &["cp", "-r", "--retries", "1", &url, to],
        &["cp", "--retries", "1", &pattern, to],
        &["ls", &url],
    ] {
        let ran = run(arguments);
        assert!(ran.code > 0, "{arguments:?}: {}", ran.err);
        for word in words {
            assert!(ran.err.contains(word), "{arguments:?}: {}", ran.err);
        }
        assert!(Path::new(to).join("mine").exists());
    }
}

#[test]
fn mlsd_in_the_shape_of_list_is_read_as_that() {
    let fake = listing(
        Quirks::default(),
        b"total 1\r\n-rw-r--r--   1 a  b   2 Nov 25 16:43 f\r\n",
    );
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    run(&["cp", "-r", &fake.url("/d/"), text(&to)]).expect(0, &["1 file"]);
    assert_eq!(fs::read(to.join("f")).unwrap(), b"12");
    let ran = run(&["ls", &fake.url("/d/")]).expect(0, &[]);
    assert_eq!(ran.out, b"f\n");
    fs::write(to.join("extra"), "x").unwrap();
    let ran = run(&["sync", "--delete", &fake.url("/d/"), text(&to)]);
    ran.expect(0, &["1 removed"]);
}

#[test]
fn malformed_mlsd_lines_are_named_failures() {
    let good_and_bad = b"Type=file;Size=2; f\r\nrubbish here\r\n";
    let fake = listing(Quirks::default(), good_and_bad);
    fails_everywhere(&fake, &["rubbish here", "not understood"]);
    let fake = listing(Quirks::default(), b"rubbish here\r\nmore\r\n");
    fails_everywhere(&fake, &["rubbish here"]);
    let fake = listing(Quirks::default(), b"Type=fule;Size=2; f\r\n");
    fails_everywhere(&fake, &["Type=fule"]);
}

#[test]
fn a_name_that_is_listed_and_not_there_is_a_failure() {
    for (command, names) in [
        (ListingCommand::Names, &b"f\r\ngone\r\n"[..]),
        (ListingCommand::Mlsd, b"Size=2; f\r\nSize=2; gone\r\n"),
    ] {
        let fake = listing(command.quirks(), names);
        let here = tempfile::tempdir().unwrap();
        fs::write(here.path().join("mine"), "x").unwrap();
        for verb in [&["sync", "--delete"][..], &["cp", "-r"]] {
            let ran = run(&[verb, &[&fake.url("/d/"), text(here.path())]].concat());
            let named = ran.err.contains("gone: no such file");
            assert!(ran.code > 0 && named, "{}", ran.err);
            assert!(here.path().join("mine").exists());
        }
    }
}

#[test]
fn a_refused_directory_fails_and_an_empty_one_does_not() {
    for (said, is_empty) in [
        ("550 No files found", true),
        ("450 No such file or directory", true),
        ("550 Permission denied", false),
        ("550 Failed", false),
        ("226 Transfer done (but failed to open directory).", false),
    ] {
        let quirks = Quirks {
            spoil: Some(Arc::new(move |listing: &mut Vec<u8>| {
                listing.clear();
                Some(said)
            })),
            ..ListingCommand::Names.quirks()
        };
        let fake = Fake::start(quirks);
        fake.put("/d/f", b"12");
        if !is_empty {
            fails_everywhere(&fake, &["/d"]);
            continue;
        }
        let here = tempfile::tempdir().unwrap();
        let url = fake.url("/d/");
        run(&["cp", "-r", &url, text(&here.path().join("to"))]).expect(0, &[]);
        run(&["ls", &url]).expect(0, &[]);
    }
}

#[test]
fn a_listing_cut_off_at_a_missing_file_is_incomplete() {
    for (command, line) in [
        (ListingCommand::Names, &b"f\r\n"[..]),
        (
            ListingCommand::Long,
            b"-rw-r--r--  1 a b 2 Nov 25 16:43 f\r\n",
        ),
    ] {
        for said in ["550 g: No such file or directory", "450 g: not found"] {
            let fake = Fake::start(Quirks {
                listing: Some(line),
                spoil: Some(Arc::new(move |_: &mut Vec<u8>| Some(said))),
                ..command.quirks()
            });
            fake.put("/d/f", b"12");
            fails_everywhere(&fake, &["/d"]);
        }
    }
}

#[test]
fn a_file_named_as_the_option_is_not_its_directory() {
    for command in [ListingCommand::Names, ListingCommand::Long] {
        let fake = Fake::start(command.quirks());
        for name in ["-a", "f", "g"] {
            fake.put(&format!("/d/{name}"), b"12");
        }
        let here = tempfile::tempdir().unwrap();
        for name in ["f", "g", "extra"] {
            fs::write(here.path().join(name), "12").unwrap();
        }
        let url = fake.url("/d/");
        let ran = run(&["sync", "--delete", "--size-only", &url, text(here.path())]);
        ran.expect(0, &["1 removed"]);
        assert_eq!(tree(here.path()), ["-a", "f", "g"], "{command:?}");
    }
}

#[test]
fn names_that_a_server_may_hide_are_not_removed() {
    let fake = listing(ListingCommand::Names.quirks(), b"f\r\n");
    let here = tempfile::tempdir().unwrap();
    for name in [".mine", "extra"] {
        fs::write(here.path().join(name), "x").unwrap();
    }
    let url = fake.url("/d/");
    let ran = run(&["sync", "-v", "--delete", &url, text(here.path())]);
    ran.expect(0, &["no LIST -a", ".mine: left", "1 removed"]);
    assert_eq!(tree(here.path()), [".mine", "f"]);
}

#[test]
fn special_files_are_left_out_with_status_0() {
    let fake = listing(
        Quirks::default(),
        b"Type=file;Size=2; f\r\nType=OS.unix=fifo; pipe\r\nType=unknown; sock\r\n",
    );
    let here = tempfile::tempdir().unwrap();
    for name in ["pipe", "extra"] {
        fs::write(here.path().join(name), "x").unwrap();
    }
    let ran = run(&["sync", "--delete", &fake.url("/d/"), text(here.path())]);
    ran.expect(0, &["pipe: neither file nor directory", "1 removed"]);
    assert_eq!(tree(here.path()), ["f", "pipe"]);
}
