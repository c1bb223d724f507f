//! Octets that change on their way are found, and no more than their leaf is moved again.

use std::{fs, path::Path};

use serde_json::{Value, json};

use crate::{
    harness::{Ran, Served, octets, run, text, tree},
    relay::{Relay, Spoil},
};

/// Five leaves of 4 MiB, the last one short.
const LENGTH: usize = (18 << 20) + 7;
const LEAF: u64 = 4 << 20;

/// An octet of payload in the second leaf: beside it there are a header of 17 octets for each MiB.
const IN_SECOND_LEAF: u64 = (5 << 20) + 1000;

/// A file here, a server, and something between that spoils octets.
struct Here {
    folder: tempfile::TempDir,
    served: Served,
    relay: Relay,
    octets: Vec<u8>,
}

impl Here {
    fn new(length: usize, spoil: Spoil) -> Self {
        let served = Served::start();
        let here = Self {
            folder: tempfile::tempdir().unwrap(),
            relay: Relay::to(served.address, spoil),
            served,
            octets: octets(length, 1),
        };
        fs::write(here.folder.path().join("source"), &here.octets).unwrap();
        fs::write(here.served.path("there"), &here.octets).unwrap();
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
        let fixed = ["cp", "-q", "-c", "1", "-p", "1", "--events", text(&log)];
        run(&[&fixed[..], options, &[from, to]].concat())
    }

    /// What is at the destination, of a put or a get.
    fn holds(&self, copy: &Path) {
        assert!(self.relay.has_spoiled());
        assert_eq!(fs::metadata(copy).unwrap().len(), self.octets.len() as u64);
        assert!(fs::read(copy).unwrap() == self.octets);
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let log = fs::read_to_string(self.path("log")).unwrap();
        let lines = log
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap());
        lines.filter(|event| event["event"] == name).collect()
    }

    /// These octets were moved again, and no others; they were a range of the file, or all of it.
    #[track_caller]
    fn moved_again(&self, range: Value, octets: u64) {
        let retries = self.events("retry");
        assert_eq!(retries.len(), 1, "{retries:#?}");
        assert_eq!(retries[0]["range"], range);
        let files = self.events("file");
        assert_eq!(files.len(), 1);
        assert_eq!(files[0]["state"], "verified");
        assert_eq!(files[0]["bytes"], self.octets.len() as u64 + octets);
    }
}

#[test]
fn of_a_put_the_leaf_is_sent_again_in_which_a_bit_has_turned() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    here.put(&[]).expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!([LEAF, 2 * LEAF]), LEAF);
    assert_eq!(tree(here.served.root.path()), ["copy", "there"]);
}

#[test]
fn of_a_get_the_leaf_is_fetched_again_in_which_a_bit_has_turned() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    here.get(&[]).expect(0, &[]);
    here.holds(&here.path("copy"));
    here.moved_again(json!([LEAF, 2 * LEAF]), LEAF);
    assert_eq!(tree(here.folder.path()), ["copy", "log", "source"]);
}

#[test]
fn the_last_leaf_is_as_short_as_it_is() {
    let here = Here::new(LENGTH, Spoil::Once((17 << 20) + 1000));
    here.get(&[]).expect(0, &[]);
    here.holds(&here.path("copy"));
    here.moved_again(json!([4 * LEAF, LENGTH]), LENGTH as u64 - 4 * LEAF);
}

#[test]
fn leaves_tell_where_another_algorithm_finds_a_difference() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    here.put(&["--verify=sha256"]).expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!([LEAF, 2 * LEAF]), LEAF);
    let checksum = here.events("file")[0]["checksum"].to_string();
    assert!(checksum.starts_with("\"SHA256:"), "{checksum}");
}

#[test]
fn parts_of_files_are_repaired_within() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    let part = ["--offset", "3M", "--length", "10M", "--verify"];
    here.get(&part).expect(0, &[]);
    assert!(here.relay.has_spoiled());
    let copy = fs::read(here.path("copy")).unwrap();
    assert!(copy == here.octets[3 << 20..13 << 20]);
    assert_eq!(here.events("retry")[0]["range"], json!([LEAF, 2 * LEAF]));
}

#[test]
fn a_file_of_one_leaf_is_moved_again_as_a_whole() {
    let length = 1 << 20;
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

#[test]
fn a_path_that_spoils_octets_each_time_is_given_up_and_leaves_nothing() {
    for get in [true, false] {
        let here = Here::new(LENGTH, Spoil::Always(1 << 20));
        let words = ["CRC32C differs", "in octets 0 to ", "check the network"];
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
fn what_passes_by_once_is_not_repaired() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    let ran = here.copy(&[], &here.url("/there"), "-");
    ran.expect(4, &["CRC32C differs"]);
    assert!(here.events("retry").is_empty());
}

#[test]
fn between_two_servers_the_leaf_is_sent_again() {
    let here = Here::new(LENGTH, Spoil::Once(IN_SECOND_LEAF));
    let source = Served::start();
    fs::write(source.path("f"), &here.octets).unwrap();
    here.copy(&[], &source.url("/f"), &here.url("/copy"))
        .expect(0, &[]);
    here.holds(&here.served.path("copy"));
    here.moved_again(json!([LEAF, 2 * LEAF]), LEAF);
}
