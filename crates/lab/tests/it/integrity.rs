//! Bytes that are corrupted on their way to or from the reference server.

use std::fs;

use crate::relay::{Relay, Spoil};
use crate::support::{Kind, Need, Site, assert_holds, have, write_noise};

const LENGTH: usize = (18 << 20) + 7;

/// A byte of payload, beside the headers of one channel.
const SPOILED: u64 = (5 << 20) + 1000;

#[test]
fn a_bit_that_turns_costs_the_whole_file_once_more() {
    if !have(&[Need::Godwit, Need::Gct]) {
        return;
    }
    for get in [true, false] {
        let site = Site::new(Kind::Gct);
        let relay = Relay::to(site.addr(), Spoil::Once(SPOILED));
        let bytes = write_noise(&site.local("source"), LENGTH, 1);
        fs::write(site.at("there"), &bytes).unwrap();
        let url = |name: &str| {
            let (to, instead) = (site.addr().to_string(), relay.address.to_string());
            site.url(name).replace(&to, &instead)
        };
        let local = |name: &str| site.local(name).to_str().expect("UTF-8").to_owned();
        let (from, to, copy) = match get {
            true => (url("there"), local("copy"), site.local("copy")),
            false => (local("source"), url("copy"), site.at("copy")),
        };
        let log = local("log");
        let fixed = ["cp", "-c", "1", "-p", "1", "--events", &log];
        site.godwit(&[&fixed[..], &[&from, &to]].concat());
        assert!(relay.has_spoiled());
        assert_holds(&copy, &bytes);
        let log = fs::read_to_string(log).unwrap();
        let events = |name: &str| {
            let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
            let named = lines.filter(|e: &serde_json::Value| e["event"] == name);
            named.collect::<Vec<_>>()
        };
        let (retries, files) = (events("retry"), events("file"));
        assert_eq!(retries.len(), 1, "{retries:#?}");
        assert!(retries[0]["range"].is_null());
        assert_eq!(files[0]["state"], "verified");
        assert_eq!(files[0]["bytes"], 2 * LENGTH);
    }
}

/// CKSM of its parts tells what of a file is there already.
#[test]
fn partial_files_are_resumed_by_block_checksums() {
    if !have(&[Need::Godwit, Need::Gct]) {
        return;
    }
    const PART: &str = ".godwit-0123456789abcdef.part";
    const BEGUN: usize = 12 << 20;
    for get in [true, false] {
        let site = Site::new(Kind::Gct);
        let bytes = write_noise(&site.local("source"), LENGTH, 1);
        fs::write(site.at("there"), &bytes).unwrap();
        let local = |name: &str| site.local(name).to_str().expect("UTF-8").to_owned();
        let (from, to, copy) = match get {
            true => (site.url("there"), local("copy"), site.local("copy")),
            false => (local("source"), site.url("copy"), site.at("copy")),
        };
        let (lies, called) = match get {
            true => (site.local(PART), local(PART)),
            false => {
                let url = site.url(PART);
                let path = url.splitn(4, '/').nth(3).expect("a path");
                (site.at(PART), format!("/{path}"))
            }
        };
        let mut begun = bytes[..BEGUN].to_vec();
        begun[BEGUN / 2] ^= 1;
        fs::write(&lies, begun).unwrap();
        let (journal, log) = (local("journal"), local("log"));
        fs::write(
            &journal,
            format!("godwit-journal 1\npart {to} {called} .\n"),
        )
        .unwrap();
        let fixed = ["cp", "-c", "1", "-p", "1", "--events", &log];
        site.godwit(&[&fixed[..], &["--journal", &journal, &from, &to]].concat());
        assert_holds(&copy, &bytes);
        assert!(!lies.exists());
        let log = fs::read_to_string(log).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let mut files = lines.filter(|e: &serde_json::Value| e["event"] == "file");
        // Parts of 128 KiB.
        let moved = files.next().unwrap()["bytes"].as_u64().unwrap();
        assert_eq!(moved, (LENGTH - BEGUN + (128 << 10)) as u64);
    }
}
