//! Who interrupts a copy ends it at the servers too, at once, and goes on with the same command.

use std::{
    fs,
    process::{Child, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Ran, Served, godwit, octets, text, tree};

const LENGTH: usize = 24 << 20;

/// Octets that are there when the signal comes.
const THERE: u64 = 8 << 20;

struct Here {
    folder: tempfile::TempDir,
    served: Served,
    get: bool,
}

impl Here {
    fn new(get: bool) -> Self {
        let here = Self {
            folder: tempfile::tempdir().unwrap(),
            served: Served::start(),
            get,
        };
        let source = match get {
            true => here.served.path("f"),
            false => here.folder.path().join("f"),
        };
        fs::write(source, octets(LENGTH, 1)).unwrap();
        here
    }

    /// Starts the copy.
    fn copy(&self, more: &[&str]) -> Child {
        let at = |name| self.folder.path().join(name);
        let (f, copy, log) = (at("f"), at("copy"), at("log"));
        let (there, back) = (self.served.url("/f"), self.served.url("/copy"));
        let ends = match self.get {
            true => [&there, text(&copy)],
            false => [text(&f), &back],
        };
        let fixed = ["cp", "-vv", "-c", "1", "-p", "2", "--events", text(&log)];
        let mut command = godwit(&[&fixed[..], more, &ends].concat());
        command.env("XDG_STATE_HOME", at("state"));
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Where the copy goes.
    fn target(&self) -> &std::path::Path {
        match self.get {
            true => self.folder.path(),
            false => self.served.root.path(),
        }
    }

    fn has(&self, bytes: u64) -> bool {
        let names = tree(self.target()).into_iter();
        let mut parts = names.filter(|name| name.contains(".godwit-"));
        parts.any(|part| {
            let found = fs::metadata(self.target().join(part));
            found.is_ok_and(|found| found.len() >= bytes)
        })
    }

    /// Interrupts a copy in the middle; what it said.
    fn interrupt(&self, signal: Signal) -> Ran {
        // Slow enough to be caught.
        let mut child = self.copy(&["--max-rate", "80M"]);
        let mut stderr = child.stderr.take().unwrap();
        let reading = thread::spawn(move || {
            let mut said = String::new();
            std::io::Read::read_to_string(&mut stderr, &mut said).map(|_| said)
        });
        while !self.has(THERE) {
            assert_eq!(child.try_wait().unwrap(), None);
            thread::yield_now();
        }
        kill_process(Pid::from_child(&child), signal).unwrap();
        let mut ran = Ran::from(child.wait_with_output().unwrap());
        ran.err = reading.join().unwrap().unwrap();
        ran
    }
}

#[test]
fn the_server_is_told_to_give_up_and_the_same_command_goes_on() {
    for (get, signal) in [(true, Signal::INT), (false, Signal::TERM)] {
        let here = Here::new(get);
        let ran = here.interrupt(signal);
        ran.expect(130, &["-> ABOR", "<- 426", "<- 226", "goes on from here"]);
        assert!(here.has(THERE));
        let again: Ran = here.copy(&[]).wait_with_output().unwrap().into();
        again.expect(0, &["octets are there from an earlier run"]);
        let copy = fs::read(here.target().join("copy")).unwrap();
        assert!(copy == octets(LENGTH, 1));
        assert!(!here.has(0));
        let log = fs::read_to_string(here.folder.path().join("log")).unwrap();
        let events = log
            .lines()
            .map(|l| serde_json::from_str::<Value>(l).unwrap());
        let file = events.into_iter().find(|e| e["event"] == "file").unwrap();
        let moved = file["bytes"].as_u64().unwrap();
        // What had come is not asked for again, but for a leaf of each channel.
        assert!(moved <= LENGTH as u64 - THERE + (2 << 20), "{moved}");
    }
}
