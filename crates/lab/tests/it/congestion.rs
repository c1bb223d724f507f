//! `--congestion auto` on paths that need it and on paths that do not.

use std::{fs, io::Write as _, process::Command};

use godwit_lab::{
    network::{NetworkConfig, Paths, is_allowed},
    path::{Loss, PathConfig, Queue, QueueLimit},
    peers::godwit::{self, Godwitd},
};
use serde_json::Value;

use crate::netns::{LONG, MBPS, ends, present, start};
use crate::support::{Need, have};

/// A put over 200 Mbit/s and an RTT of 40 ms with the given loss: the events of its log. `None`,
/// with a printed reason, where that cannot be had, or the machine was too busy for the path to be
/// what it should.
fn put(test: &str, loss: Loss, length: &str) -> Option<Vec<Value>> {
    if !present(test) || !have(&[Need::Godwit, Need::Godwitd]) {
        return None;
    }
    if let Some(missing) = ["cubic", "bbr"].iter().find(|name| !is_allowed(name)) {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "skipped {test}: the kernel does not offer {missing}");
        return None;
    }
    let path = PathConfig {
        loss,
        queue: Queue {
            limit: QueueLimit::Packets(700),
            ..Queue::default()
        },
        ..PathConfig::new(200 * MBPS, 20_000_000)
    };
    let host = |host: godwit_lab::host::HostConfig| host.congestion_control("cubic");
    let network = start(&NetworkConfig::pair(Paths::same(path)).each_host(host));
    let (left, right) = ends(&network);
    let server = (right.enter(|| Godwitd::serving("/").ip(right.address().into()).start()))
        .expect("entered")
        .unwrap_or_else(|error| panic!("{error}"));
    let folder = tempfile::tempdir().expect("a directory");
    let log = folder.path().join("log");
    let mut client = Command::new(godwit::binary("godwit").expect("present"));
    client
        .args(["cp", "-q", "--congestion", "auto", "--max-channels", "8"])
        .args(["--no-verify", "--length", length, "--events"])
        .args([log.as_os_str(), "/dev/zero".as_ref()])
        .arg(server.url("dev/null"))
        .env("XDG_RUNTIME_DIR", folder.path())
        .env("XDG_STATE_HOME", folder.path());
    let finished = left.run(client, 4 * LONG);
    let faithful = network.lap().is_ok_and(|report| report.is_faithful());
    if !faithful {
        let mut err = std::io::stderr().lock();
        let _ = writeln!(err, "{test}: this machine is too busy to tell");
        return None;
    }
    if let Err(error) = finished.and_then(|finished| Ok(finished.success()?)) {
        panic!("{error}\n{}", server.log());
    }
    let lines = fs::read_to_string(log).expect("a log");
    let events = lines
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON"));
    Some(events.collect())
}

/// Where a decision says `words`.
fn decided(events: &[Value], words: &str) -> Option<usize> {
    events.iter().position(|e| {
        e["event"] == "decision" && e["reason"].as_str().is_some_and(|r| r.contains(words))
    })
}

/// The largest goodput of an epoch, bit/s.
fn most(events: &[Value]) -> f64 {
    (events.iter())
        .filter_map(|e| e["goodput_bps"].as_f64().filter(|_| e["event"] == "epoch"))
        .fold(0.0, f64::max)
}

/// Copies over a real kernel's TCP beside whatever else the machine does: one of them may see a
/// level that is none.
const ATTEMPTS: u32 = 3;

#[test]
fn random_loss_is_left_to_bbr() {
    let test = "random_loss_is_left_to_bbr";
    let mut seen = Vec::new();
    for _ in 0..ATTEMPTS {
        let Some(events) = put(test, Loss::Random { ratio: 0.01 }, "300M") else {
            return;
        };
        let begun = decided(&events, "cubic -> bbr: ");
        let kept = decided(&events, "bbr stays: ");
        if let (Some(begun), Some(kept)) = (begun, kept)
            && begun < kept
            && decided(&events, "bbr -> cubic").is_none()
            && most(&events[kept..]) > most(&events[..begun])
        {
            return;
        }
        let decisions = events.iter().filter(|e| e["event"] == "decision");
        seen.push(decisions.map(|e| e["reason"].clone()).collect::<Vec<_>>());
    }
    panic!("{seen:#?}");
}

#[test]
fn a_path_without_loss_keeps_the_systems_control() {
    let test = "a_path_without_loss_keeps_the_systems_control";
    let Some(events) = put(test, Loss::None, "200M") else {
        return;
    };
    assert!(most(&events) > 0.0);
    assert_eq!(decided(&events, "bbr"), None, "{events:#?}");
}
