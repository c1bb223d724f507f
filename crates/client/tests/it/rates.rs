//! Caps.

use std::{
    fs,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use serde_json::Value;

use crate::harness::{Served, bytes, godwit, run, text};

const CAP: &str = "80M";
const CAP_BPS: f64 = 80e6;
/// Three seconds at the cap, so that what is under way at either end weighs little.
const LENGTH: usize = 30_000_000;

/// Runs a capped copy; the summary and the epochs.
fn capped(options: &[&str], from: &str, to: &str) -> (Value, Vec<Value>) {
    let here = tempfile::tempdir().unwrap();
    let log = here.path().join("log");
    let fixed = ["cp", "-q", "--json", "--no-verify", "--max-rate", CAP];
    let words = [&fixed[..], &["--events", text(&log)], options, &[from, to]].concat();
    let output = (godwit(&words).env("XDG_RUNTIME_DIR", here.path()))
        .env("XDG_STATE_HOME", here.path())
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let epochs = (fs::read_to_string(&log).unwrap().lines())
        .map(|line| serde_json::from_str::<Value>(line).unwrap())
        .filter(|event| event["event"] == "epoch")
        .collect();
    (serde_json::from_slice(&output.stdout).unwrap(), epochs)
}

/// An epoch that the cap held back. On a machine that is too busy there is none.
fn reached(epoch: &Value) -> bool {
    epoch["goodput_bps"].as_f64().unwrap() >= 0.951 * CAP_BPS
}

/// There and back under a cap. Slower than the cap is what a busy machine makes of it; faster is
/// wrong.
fn there_and_back(options: &[&str]) {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (file, copy) = (here.path().join("f"), here.path().join("copy"));
    let data = bytes(LENGTH, 3);
    fs::write(&file, &data).unwrap();
    let url = served.url("/f");
    for (from, to) in [(text(&file), url.as_str()), (&url, text(&copy))] {
        let (summary, epochs) = capped(options, from, to);
        let goodput = summary["goodput_bps"].as_f64().unwrap();
        assert!(goodput < 1.05 * CAP_BPS, "{from}: {goodput}");
        for epoch in epochs.iter().filter(|e| reached(e)) {
            assert_eq!(epoch["limited_by"], "policy", "{epoch}");
        }
        if epochs.iter().all(reached) {
            assert_eq!(summary["limited_by"], "policy", "{summary}");
        }
    }
    assert!(fs::read(served.path("f")).unwrap() == data);
    assert!(fs::read(&copy).unwrap() == data);
}

#[test]
fn a_cap_holds_for_one_channel() {
    there_and_back(&["-c", "1", "-p", "1"]);
}

#[test]
fn a_cap_holds_for_all_channels_of_all_movers_together() {
    there_and_back(&["-c", "3", "-p", "4"]);
}

#[test]
fn a_tuner_adds_no_channels_against_a_cap() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("f");
    fs::write(&file, bytes(LENGTH, 5)).unwrap();
    let (summary, epochs) = capped(&[], text(&file), &served.url("/f"));
    assert!(summary["goodput_bps"].as_f64().unwrap() < 1.05 * CAP_BPS);
    if epochs.iter().all(reached) {
        let most = epochs.iter().map(|e| e["channels"].as_u64().unwrap()).max();
        assert!(most <= Some(4), "{epochs:#?}");
    }
}

/// Two transfers to two servers at a time, each under `options`; their summaries.
fn side_by_side(options: [&[&str]; 2]) -> [Value; 2] {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("f");
    fs::write(&file, bytes(LENGTH, 7)).unwrap();
    let servers = [Served::start(), Served::start()];
    let members = here.path().join("godwit/host");
    let puts = [0, 1].map(|i| {
        if i == 1 {
            wait_for_a_member(&members);
        }
        let to = servers[i].url("/f");
        let fixed = ["cp", "-q", "--json", "--no-verify", "--no-path-memory"];
        let words = [&fixed[..], options[i], &[text(&file), &to]].concat();
        godwit(&words)
            .env("XDG_RUNTIME_DIR", here.path())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap()
    });
    puts.map(|put| {
        let output = put.wait_with_output().unwrap();
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    })
}

/// Until the first is there: the second could be over before it came.
fn wait_for_a_member(folder: &Path) {
    let begun = Instant::now();
    while fs::read_dir(folder).is_ok_and(|mut all| all.next().is_none()) || !folder.is_dir() {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the sessions did not join"
        );
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn transfers_to_different_servers_share_the_rate_of_the_host() {
    // One gets the limit, both keep to it.
    let [a, b] = side_by_side([&["--host-rate", CAP], &[]]);
    let seconds = |summary: &Value| summary["seconds"].as_f64().unwrap();
    #[allow(clippy::cast_precision_loss)] // a length
    let both = 2.0 * 8.0 * LENGTH as f64;
    // As long as both run each has half; who comes later has the whole for half a second, until it
    // is heard.
    let least = (both - 0.75 * CAP_BPS) / CAP_BPS / 1.05;
    assert!(seconds(&a).max(seconds(&b)) > least, "{a} {b}");
}

#[test]
fn a_run_with_alone_keeps_its_own_limit_only() {
    run(&["cp", "--alone", "--host-rate", "1G", "a", "ftp://h/"]).expect(2, &["--alone"]);
}
