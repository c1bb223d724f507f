//! Who interrupts a copy ends it at the servers too, at once, and goes on with the same command.

use std::{
    fs,
    io::Write as _,
    path::Path,
    process::{Child, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::harness::{Ran, Served, bytes, godwit, nap, text, tree};

const LENGTH: usize = 24 << 20;

/// Bytes that are there when the signal comes.
const THERE: u64 = 8 << 20;

struct Here {
    folder: tempfile::TempDir,
    served: Served,
    get: bool,
    direct_io: bool,
}

impl Here {
    fn new(get: bool, direct_io: bool) -> Self {
        let here = Self {
            folder: tempfile::tempdir().unwrap(),
            served: Served::start_with(|settings| settings.direct_io = direct_io),
            get,
            direct_io,
        };
        let source = match get {
            true => here.served.path("f"),
            false => here.folder.path().join("f"),
        };
        fs::write(source, bytes(LENGTH, 1)).unwrap();
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
        let direct_io = self.direct_io.then_some("--direct-io");
        let mut command = godwit(&[&fixed[..], direct_io.as_slice(), more, &ends].concat());
        command.env("XDG_STATE_HOME", at("state"));
        command.stderr(Stdio::piped()).spawn().unwrap()
    }

    /// Where the copy goes.
    fn target(&self) -> &Path {
        match self.get {
            true => self.folder.path(),
            false => self.served.root.path(),
        }
    }

    /// Interrupts a copy in the middle; what it said.
    fn interrupt(&self, signal: Signal) -> Ran {
        // Slow enough to be caught.
        interrupt(self.copy(&["--max-rate", "80M"]), self.target(), signal)
    }
}

/// Bytes of what is in `folder` under a temporary name; `None`: nothing is.
fn begun(folder: &Path) -> Option<u64> {
    let mut names = tree(folder).into_iter();
    let part = names.find(|name| name.contains(".godwit-"))?;
    Some(fs::metadata(folder.join(part)).ok()?.len())
}

/// Waits until some has come to `folder`, then interrupts; what it said.
fn interrupt(mut child: Child, folder: &Path, signal: Signal) -> Ran {
    let mut stderr = child.stderr.take().unwrap();
    let reading = thread::spawn(move || {
        let mut said = String::new();
        std::io::Read::read_to_string(&mut stderr, &mut said).map(|_| said)
    });
    while begun(folder) < Some(THERE) {
        assert_eq!(child.try_wait().unwrap(), None);
        nap();
    }
    kill_process(Pid::from_child(&child), signal).unwrap();
    let mut ran = Ran::from(child.wait_with_output().unwrap());
    ran.err = reading.join().unwrap().unwrap();
    ran
}

/// Bytes that a run has moved of its one file, as its event log tells.
fn moved(log: &Path) -> u64 {
    let log = fs::read_to_string(log).unwrap();
    let mut events = log
        .lines()
        .map(|l| serde_json::from_str::<Value>(l).unwrap());
    let file = events.find(|e| e["event"] == "file").unwrap();
    file["bytes"].as_u64().unwrap()
}

#[test]
fn an_interrupt_aborts_at_the_server_and_the_same_command_resumes() {
    for (get, signal, direct_io) in [
        (true, Signal::INT, false),
        (false, Signal::TERM, false),
        (true, Signal::INT, true),
        (false, Signal::TERM, true),
    ] {
        let here = Here::new(get, direct_io);
        let ran = here.interrupt(signal);
        ran.expect(130, &["-> ABOR", "<- 426", "<- 226", "goes on from here"]);
        assert!(begun(here.target()) >= Some(THERE));
        let again: Ran = here.copy(&[]).wait_with_output().unwrap().into();
        again.expect(0, &["bytes are there from an earlier run"]);
        let copy = fs::read(here.target().join("copy")).unwrap();
        assert!(copy == bytes(LENGTH, 1));
        assert_eq!(begun(here.target()), None);
        let moved = moved(&here.folder.path().join("log"));
        // What had come is not asked for again, but for a leaf of each channel, and what each had
        // gathered.
        let again = if direct_io { 4 << 20 } else { 2 << 20 };
        assert!(moved <= LENGTH as u64 - THERE + again, "{moved}");
    }
}

/// A file of which no two pieces are alike, large enough to be caught while it is copied.
fn write_large(path: &Path) -> u64 {
    const PIECES: u64 = 512;
    let mut piece = bytes(1 << 20, 2);
    let mut file = fs::File::create(path).unwrap();
    for i in 0..PIECES {
        piece[..8].copy_from_slice(&i.to_le_bytes());
        file.write_all(&piece).unwrap();
    }
    PIECES << 20
}

#[test]
fn of_two_servers_the_sender_is_aborted_first_and_its_bytes_arrive() {
    for signal in [Signal::INT, Signal::TERM] {
        let from = Served::start_with(|settings| settings.foreign_data_hosts = true);
        let to = Served::start_at("127.0.0.2:0", |_| {});
        let here = tempfile::tempdir().unwrap();
        let length = write_large(&from.path("f"));
        let log = here.path().join("log");
        let (source, target) = (from.url("/f"), to.url("/copy"));
        let copy = || {
            let fixed = ["cp", "-vv", "-c", "1", "-p", "2", "--events", text(&log)];
            let mut command = godwit(&[&fixed[..], &[&source, &target]].concat());
            command.env("XDG_STATE_HOME", here.path());
            command.stderr(Stdio::piped()).spawn().unwrap()
        };
        let ran = interrupt(copy(), to.root.path(), signal);
        let words = ["127.0.0.1 -> ABOR", "127.0.0.1 <- 426", "127.0.0.1 <- 226"];
        let ran = ran.expect(130, &words);
        // It ends by itself, or gets ABOR.
        let ran = ran.expect(130, &["127.0.0.2 <- 426", "goes on from here"]);
        let before_abort = ran.err.split_once("-> ABOR").unwrap().0;
        assert!(before_abort.ends_with("127.0.0.1 "), "{}", ran.err);
        let there = begun(to.root.path()).unwrap();
        let again: Ran = copy().wait_with_output().unwrap().into();
        again.expect(0, &["bytes are there from an earlier run"]);
        let [sent, got] = [from.path("f"), to.path("copy")].map(|path| fs::read(path).unwrap());
        assert!(sent == got);
        assert_eq!(begun(to.root.path()), None);
        // But for the blocks that were on their way when the receiver's last marker came, and a
        // leaf at the end of each range.
        let moved = moved(&log);
        assert!(moved <= length - there + (14 << 20), "{moved} of {there}");
    }
}

#[test]
fn partial_small_files_of_a_killed_run_are_removed() {
    const FILES: u8 = 40;
    let served = Served::start();
    fs::create_dir(served.path("d")).unwrap();
    for i in 0..FILES {
        fs::write(
            served.path(&format!("d/f{i}")),
            bytes(1 << 20, u64::from(i)),
        )
        .unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    let target = here.path().join("copy");
    let copy = |more: &[&str]| {
        let (source, target) = (served.url("/d"), text(&target));
        let mut command = godwit(&[&["cp", "-r"], more, &[&source, target]].concat());
        command.env("XDG_STATE_HOME", here.path().join("state"));
        command.stderr(Stdio::null()).spawn().unwrap()
    };
    let mut killed = copy(&["--max-rate", "40M"]);
    while !target.exists() || begun(&target).is_none() {
        assert_eq!(killed.try_wait().unwrap(), None);
        nap();
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(
        begun(&target).is_some(),
        "it was killed in the middle of a file"
    );
    // Of another job.
    let other = ".godwit-0123456789abcdef.part";
    fs::write(target.join(other), "x").unwrap();
    let again: Ran = copy(&[]).wait_with_output().unwrap().into();
    again.expect(0, &[]);
    let mut names = tree(&target);
    names.retain(|name| !name.contains(other));
    assert_eq!(names.len(), usize::from(FILES), "{names:?}");
    assert_eq!(begun(&target), Some(1), "what is of another job stays");
}
