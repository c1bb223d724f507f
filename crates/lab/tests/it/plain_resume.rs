//! A client that was killed in the middle of a file of an ordinary FTP server: the same command
//! resumes it.

use std::{fs, path::Path, process::Command};

use godwit_lab::peers::{Finished, Process, ftps::Kind, godwit, process::Options};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::support::{LONG, assert_holds, ftps_server, wait_until, write_noise};

const LENGTH: usize = 24 << 20;

/// Bytes that have moved when the client is killed.
const MOVED: u64 = 4 << 20;

/// Bytes of what is under a temporary name.
fn begun(folder: &Path) -> Option<u64> {
    let mut entries = fs::read_dir(folder).expect("lists").flatten();
    let part = entries.find(|entry| entry.file_name().to_string_lossy().starts_with(".godwit-"))?;
    Some(part.metadata().ok()?.len())
}

/// Bytes that a run has moved, as its event log tells of its file.
fn moved(log: &Path) -> u64 {
    let log = fs::read_to_string(log).expect("a log");
    let mut events = log
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).expect("an event"));
    let file = events.find(|event| event["event"] == "file");
    file.and_then(|file| file["bytes"].as_u64())
        .expect("a file")
}

fn goes_on_after_a_kill(kind: Kind, get: bool) {
    let Some(server) = ftps_server(kind, false, &[]) else {
        return;
    };
    let local = TempDir::new().expect("a directory");
    let here = |name: &str| local.path().join(name);
    let (source, target, folder) = match get {
        true => (server.at("f"), here("copy"), here("")),
        false => (here("f"), server.at("copy"), server.at("")),
    };
    let bytes = write_noise(&source, LENGTH, 7);
    let url = |name: &str| server.url(name).replace("ftpes://", "ftp://");
    let ends = match get {
        true => [url("f"), here("copy").display().to_string()],
        false => [here("f").display().to_string(), url("copy")],
    };
    let log = here("log");
    let run = |more: &[&str]| {
        let mut command = Command::new(godwit::binary("godwit").expect("built"));
        command.args(["cp", "-v", "--events"]).arg(&log);
        command.args(more).args(&ends);
        command.env("XDG_STATE_HOME", here("state"));
        command.env("GODWIT_PASSWORD", "sesame");
        Process::spawn(command, Options::default()).expect("starts")
    };
    let client = run(&["--max-rate", "80M"]);
    wait_until("some of it has arrived", || begun(&folder) > Some(MOVED));
    client.signal(Signal::KILL).expect("kills");
    client.wait(LONG).expect("ends");
    assert!(!target.exists());
    fs::remove_file(&log).expect("removes");
    let finished: Finished = run(&[]).wait(LONG).expect("ends");
    let output = format!("{}--- server\n{}", finished.log(), server.log());
    assert!(finished.status.success(), "{output}");
    assert_holds(&target, &bytes);
    assert!(moved(&log) <= LENGTH as u64 - MOVED, "{output}");
    assert_eq!(begun(&folder), None, "{output}");
}

#[test]
fn vsftpd_gives_and_takes_the_rest_of_a_file() {
    goes_on_after_a_kill(Kind::Vsftpd, true);
    goes_on_after_a_kill(Kind::Vsftpd, false);
}

#[test]
fn proftpd_gives_and_takes_the_rest_of_a_file() {
    goes_on_after_a_kill(Kind::Proftpd, true);
    goes_on_after_a_kill(Kind::Proftpd, false);
}

#[test]
fn pure_ftpd_gives_and_takes_the_rest_of_a_file() {
    goes_on_after_a_kill(Kind::PureFtpd, true);
    goes_on_after_a_kill(Kind::PureFtpd, false);
}

#[test]
fn pyftpdlib_gives_and_takes_the_rest_of_a_file() {
    goes_on_after_a_kill(Kind::Pyftpdlib, true);
    goes_on_after_a_kill(Kind::Pyftpdlib, false);
}
