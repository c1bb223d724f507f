//! Bytes that change on their way are found, and no more than their leaf is moved again.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    harness::{Ran, Served, bytes, godwit, run, text, tree},
    relay::{Relay, Spoil},
};

/// Leaves of 256 KiB, the last one short.
const LENGTH: usize = (18 << 20) + (100 << 10) + 7;
const LEAF: u64 = 256 << 10;

/// A leaf in the middle, and a byte of payload in it: before it there are a header of 17 bytes for
/// each MiB.
const SPOILT: [u64; 2] = [5 << 20, (5 << 20) + LEAF];
const IN_SPOILT_LEAF: u64 = SPOILT[0] + 1000;

/// Bytes that an earlier run has brought.
const BROUGHT: usize = 12 << 20;

/// A file here, a server, and something between that spoils bytes.
struct Here {
    folder: tempfile::TempDir,
    served: Served,
    relay: Relay,
    bytes: Vec<u8>,
}

impl Here {
    fn new(length: usize, spoil: Spoil) -> Self {
        let served = Served::start();
        let here = Self {
            folder: tempfile::tempdir().unwrap(),
            relay: Relay::to(served.address, spoil),
            served,
            bytes: bytes(length, 1),
        };
        fs::write(here.folder.path().join("source"), &here.bytes).unwrap();
        fs::write(here.served.path("there"), &here.bytes).unwrap();
        here
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn put(&self, options: &[&str]) -> Ran {
        self.copy(options, text(&self.path("source")), &self.url("/copy"))
    }

    fn get(&self, options: &[&str]) -> Ran {
        self.copy(options, &self.url("/there"), text(&self.path("copy")))
    }

    fn url(&self, path: &str) -> String {
        format!("ftp://{}{path}", self.relay.address)
    }

    fn copy(&self, options: &[&str], from: &str, to: &str) -> Ran {
        let log = self.path("log");
        let fixed = ["cp", "-c", "1", "-p", "1", "--events", text(&log)];
        run(&[&fixed[..], options, &[from, to]].concat())
    }

    /// What is at the destination, of a put or a get.
    fn holds(&self, copy: &Path) {
        assert!(self.relay.has_spoiled());
        assert_eq!(fs::metadata(copy).unwrap().len(), self.bytes.len() as u64);
        assert!(fs::read(copy).unwrap() == self.bytes);
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.path("log")).unwrap();
        let lines = log
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines.filter(|event| event["event"] == name).collect()
    }

    /// These bytes were moved again, and no others; they were a range of the file, or all of it.
    #[track_caller]
    fn moved_again(&self, range: Value, bytes: u64) {
        let retries = self.events("retry");
        assert_eq!(retries.len(), 1, "{retries:#?}");
        assert_eq!(retries[0]["range"], range);
        let files = self.events("file");
        assert_eq!(files.len(), 1);
        assert_eq!(files[0]["state"], "verified");
        assert_eq!(files[0]["size"], self.bytes.len());
        assert_eq!(files[0]["bytes"], self.bytes.len() as u64 + bytes);
    }
}

#[test]
fn of_a_put_the_leaf_is_sent_again_in_which_a_bit_has_turned() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    here.put(&[]).expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!(SPOILT), LEAF);
    assert_eq!(tree(here.served.root.path()), ["copy", "there"]);
}

#[test]
fn a_get_repairs_only_the_part_with_a_flipped_bit() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    here.get(&[]).expect(0, &[]);
    here.holds(&here.path("copy"));
    here.moved_again(json!(SPOILT), LEAF);
    let computed = json!({"source": "server_file", "destination": "client_file"});
    assert_eq!(here.events("file")[0]["computed"], computed);
    assert_eq!(tree(here.folder.path()), ["copy", "log", "source"]);
}

#[test]
fn the_last_leaf_is_as_short_as_it_is() {
    let here = Here::new(LENGTH, Spoil::Once((18 << 20) + (50 << 10)));
    here.get(&[]).expect(0, &[]);
    here.holds(&here.path("copy"));
    here.moved_again(json!([18 << 20, LENGTH]), LENGTH as u64 - (18 << 20));
}

#[test]
fn leaves_tell_where_another_algorithm_finds_a_difference() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    here.put(&["--verify=sha256"]).expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!(SPOILT), LEAF);
    let checksum = here.events("file")[0]["checksum"].to_string();
    assert!(checksum.starts_with("\"SHA256:"), "{checksum}");
}

#[test]
fn parts_of_files_are_repaired_within() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    let part = ["--offset", "3M", "--length", "10M", "--verify"];
    here.get(&part).expect(0, &[]);
    assert!(here.relay.has_spoiled());
    let copy = fs::read(here.path("copy")).unwrap();
    assert!(copy == here.bytes[3 << 20..13 << 20]);
    assert_eq!(here.events("retry")[0]["range"], json!(SPOILT));
}

#[test]
fn a_file_of_one_leaf_is_moved_again_as_a_whole() {
    let length = 256 << 10;
    for get in [true, false] {
        let here = Here::new(length, Spoil::Once(1000));
        let copy = match get {
            true => here.get(&[]).expect(0, &[]),
            false => here.put(&[]).expect(0, &[]),
        };
        here.holds(&match get {
            true => here.path("copy"),
            false => here.served.path("copy"),
        });
        here.moved_again(Value::Null, length as u64);
        drop(copy);
    }
}

/// Bytes of each of [`MANY`] files.
const LITTLE: usize = 10_000;
const MANY: usize = 200;

#[test]
fn of_many_small_files_only_the_one_with_a_flipped_bit_is_moved_again() {
    for get in [true, false] {
        // In the payload of one in the middle.
        let here = Here::new(0, Spoil::Once(1_000_000));
        let (from, to) = match get {
            true => (here.served.path("many"), here.path("copy")),
            false => (here.path("many"), here.served.path("copy")),
        };
        fs::create_dir(&from).unwrap();
        for n in 0..MANY {
            fs::write(from.join(n.to_string()), bytes(LITTLE, n as u64)).unwrap();
        }
        let options = ["-r", "--pipelining", "64"];
        let ran = match get {
            true => here.copy(&options, &here.url("/many/"), &format!("{}/", text(&to))),
            false => here.copy(&options, &format!("{}/", text(&from)), &here.url("/copy/")),
        };
        ran.expect(0, &[]);
        assert!(here.relay.has_spoiled());
        for n in 0..MANY {
            let copy = fs::read(to.join(n.to_string())).unwrap();
            assert!(copy == bytes(LITTLE, n as u64), "{n}");
        }
        assert_eq!(here.events("retry").len(), 1, "get: {get}");
        // Headers, a list, and the one file.
        let beside = here.relay.carried() - (MANY * LITTLE) as u64;
        assert!(beside < 100_000, "get: {get}, {beside} bytes more than all");
    }
}

#[test]
fn a_path_that_always_corrupts_is_given_up_and_leaves_nothing() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Always(100 << 10));
        let words = ["CRC32C differs", "in bytes 0 to ", "check the network"];
        match get {
            true => here.get(&[]).expect(4, &words),
            false => here.put(&[]).expect(4, &words),
        };
        let retries = here.events("retry");
        assert_eq!(retries.len(), 3, "{retries:#?}");
        assert_eq!(retries[2]["attempt"], 3);
        assert_eq!(here.events("file")[0]["state"], "failed");
        assert_eq!(tree(here.folder.path()), ["log", "source"]);
        assert_eq!(tree(here.served.root.path()), ["there"]);
    }
}

#[test]
fn standard_output_is_not_repaired() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    let ran = here.copy(&[], &here.url("/there"), "-");
    ran.expect(4, &["CRC32C differs"]);
    assert!(here.events("retry").is_empty());
}

#[test]
fn between_two_servers_the_leaf_is_sent_again() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SPOILT_LEAF));
    let source = Served::start();
    fs::write(source.path("f"), &here.bytes).unwrap();
    here.copy(&[], &source.url("/f"), &here.url("/copy"))
        .expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!(SPOILT), LEAF);
}

/// Where it lies that an earlier run has begun.
const PART: &str = ".godwit-0123456789abcdef.part";

impl Here {
    /// As a run that was killed leaves it: `part` at a temporary name, and a journal that tells so.
    fn begun(&self, get: bool, part: &[u8]) {
        let (target, called) = match get {
            true => {
                let target = text(&self.path("copy")).to_owned();
                (target, text(&self.path(PART)).to_owned())
            }
            false => (self.url("/copy"), format!("/{PART}")),
        };
        let lies = match get {
            true => self.path(PART),
            false => self.served.path(PART),
        };
        fs::write(lies, part).unwrap();
        let journal = format!("godwit-journal 1\npart {target} {called} .\n");
        fs::write(self.path("journal"), journal).unwrap();
    }

    /// Runs the command that was killed; the bytes it moved and what it said.
    #[track_caller]
    fn goes_on(&self, get: bool) -> (u64, String) {
        let journal = self.path("journal");
        let options = ["-v", "--journal", text(&journal)];
        let ran = match get {
            true => self.get(&options).expect(0, &[]),
            false => self.put(&options).expect(0, &[]),
        };
        let copy = match get {
            true => self.path("copy"),
            false => self.served.path("copy"),
        };
        assert!(fs::read(copy).unwrap() == self.bytes);
        let there = [tree(self.folder.path()), tree(self.served.root.path())].concat();
        assert!(
            !there.iter().any(|name| name.contains(".godwit-")),
            "{there:?}"
        );
        assert!(!there.iter().any(|name| name == "journal"), "{there:?}");
        (self.events("file")[0]["bytes"].as_u64().unwrap(), ran.err)
    }
}

#[test]
fn only_missing_or_wrong_bytes_of_a_partial_file_are_moved() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Never);
        let mut part = here.bytes[..BROUGHT + 5].to_vec();
        part[BROUGHT / 3 + 70] ^= 1;
        here.begun(get, &part);
        let (moved, _) = here.goes_on(get);
        // Compared by leaves of 64 KiB.
        assert_eq!(moved, (LENGTH - BROUGHT) as u64 + (64 << 10));
    }
}

#[test]
fn of_a_file_that_was_brought_to_its_end_nothing_is_moved() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Never);
        here.begun(get, &here.bytes);
        assert_eq!(here.goes_on(get).0, 0);
    }
}

#[test]
fn a_changed_source_is_copied_from_the_start_and_a_note_says_so() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Never);
        // Of the same size, shorter, longer, empty.
        for length in [LENGTH, 100, LENGTH + 1, 0] {
            here.begun(get, &bytes(length, 2));
            let (moved, said) = here.goes_on(get);
            assert_eq!(moved, LENGTH as u64);
            assert!(said.contains("starts again"), "{said}");
        }
    }
}

#[test]
fn a_partial_file_of_an_older_source_is_removed() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Never);
        here.begun(get, &here.bytes);
        let source = match get {
            true => here.served.path("there"),
            false => here.path("source"),
        };
        let later = std::time::SystemTime::now() + std::time::Duration::from_secs(5);
        fs::File::open(source).unwrap().set_modified(later).unwrap();
        assert_eq!(here.goes_on(get).0, LENGTH as u64);
    }
}

#[test]
fn partial_files_elsewhere_and_links_are_not_resumed() {
    let here = Here::new(LENGTH, Spoil::Never);
    here.begun(true, b"");
    let other = here.path("thesis");
    fs::write(&other, "mine").unwrap();
    fs::remove_file(here.path(PART)).unwrap();
    std::os::unix::fs::symlink(&other, here.path(PART)).unwrap();
    let journal = here.path("journal");
    here.get(&["--journal", text(&journal)]).expect(0, &[]);
    assert_eq!(fs::read(&other).unwrap(), b"mine");
    assert!(fs::read(here.path("copy")).unwrap() == here.bytes);
}

#[test]
fn a_lost_data_connection_is_resumed_in_the_same_run() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::End(9 << 20));
        match get {
            true => here.get(&[]).expect(0, &[]),
            false => here.put(&[]).expect(0, &[]),
        };
        here.holds(&match get {
            true => here.path("copy"),
            false => here.served.path("copy"),
        });
        let again = here.relay.carried() - LENGTH as u64;
        // A block that was not whole, and headers.
        assert!(again < (1 << 20) + (1 << 17), "{again}");
    }
}

#[test]
fn a_copy_between_servers_is_resumed() {
    let here = Here::new(LENGTH, Spoil::Never);
    fs::write(here.served.path(PART), &here.bytes[..BROUGHT]).unwrap();
    let (to, journal) = (here.url("/copy"), here.path("journal"));
    let lines = format!("godwit-journal 1\npart {to} /{PART} .\n");
    fs::write(&journal, lines).unwrap();
    let options = ["-v", "--journal", text(&journal)];
    let from = here.served.url("/there");
    here.copy(&options, &from, &to).expect(0, &[]);
    assert!(fs::read(here.served.path("copy")).unwrap() == here.bytes);
    let moved = here.events("file")[0]["bytes"].as_u64().unwrap();
    assert_eq!(moved, (LENGTH - BROUGHT) as u64);
    assert_eq!(tree(here.served.root.path()), ["copy", "there"]);
}

#[test]
fn a_killed_copy_of_one_large_file_is_resumed() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Never);
        let (from, to) = match get {
            true => (here.url("/there"), text(&here.path("copy")).to_owned()),
            false => (text(&here.path("source")).to_owned(), here.url("/copy")),
        };
        let log = here.path("log");
        let fixed = ["cp", "-q", "-c", "1", "-p", "1", "--events", text(&log)];
        let command = |more: &[&str]| {
            let mut command = godwit(&[&fixed[..], more, &[&from, &to]].concat());
            command.env("XDG_STATE_HOME", here.path("state"));
            command
        };
        let lies = match get {
            true => here.folder.path(),
            false => here.served.root.path(),
        };
        let begun = || {
            let part = tree(lies).into_iter().find(|n| n.contains(".godwit-"));
            part.and_then(|part| fs::metadata(lies.join(part)).ok())
        };
        // Slow enough to be caught in the middle.
        let mut child = command(&["--max-rate", "40M"]).spawn().unwrap();
        while begun().is_none_or(|m| m.len() < 8 << 20) {
            assert_eq!(child.try_wait().unwrap(), None);
            crate::harness::nap();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        let again: Ran = command(&[]).output().unwrap().into();
        again.expect(0, &[]);
        let moved = here.events("file")[0]["bytes"].as_u64().unwrap();
        assert!(moved < LENGTH as u64, "{moved}");
        assert!(begun().is_none());
        assert!(fs::read(lies.join("copy")).unwrap() == here.bytes);
    }
}
