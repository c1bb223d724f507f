//! Whole scenarios: from a file to a page.

use std::fs;
use std::io::Write as _;
use std::process::Command;

use godwit_lab::peers::{self, godwit};
use godwit_lab::{netns, report, runner, scenario};

const TINY: &str = r#"
title = "A tiny run"

[path]
rate = "50 Mbit/s"
delay = "5 ms"
queue = "50 packets"

[hosts]
congestion_control = "reno"

[sweep]
channels = [1, 4]

[run]
ramp = "500 ms"
measure = "1 s"
repeats = 2

[[method]]
name = "godwit"
label = "godwit both ends"
client = "godwit"
server = "godwitd"
tcp_buffer = "16 KiB"

[[theory]]
kind = "apt"
window = "measured"

[[expect]]
what = "never more than the link"
at_most = "50 Mbit/s"

[figure]
log_x = true
"#;

/// Whether emulated networks and our programs can be had; prints a skip when not.
fn present(test: &str) -> bool {
    if let Err(unavailable) = netns::available() {
        let _ = writeln!(std::io::stderr().lock(), "skipped {test}: {unavailable}");
        return false;
    }
    let both = godwit::binary("godwit").and_then(|_| godwit::binary("godwitd"));
    peers::present(test, both).is_some()
}

#[test]
fn a_scenario_runs_and_is_reported() {
    if !present("a_scenario_runs_and_is_reported") {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("tiny.toml");
    fs::write(&file, TINY).unwrap();
    let loaded = scenario::load(file.to_str().unwrap()).unwrap();
    let out = folder.path().join("out");
    let options = runner::Options {
        out: out.clone(),
        ..runner::Options::default()
    };
    let mut lines = Vec::new();
    let tally = runner::run(&loaded, &options, &mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(tally.failed, 0, "{lines:#?}");
    assert!(tally.runs >= 4, "{lines:#?}");

    let results = runner::read(&out).unwrap();
    assert_eq!(results.runs.len(), tally.runs as usize);
    for run in &results.runs {
        let outcome = run.result.as_ref().unwrap();
        assert!(
            outcome.goodput_bps > 0.0 && outcome.goodput_bps < 50e6,
            "{run:?}"
        );
        assert_eq!(outcome.channels_seen, run.cell.channels as usize, "{run:?}");
        // The delay of both ways; the kernel's smallest sample may lie somewhat below the path's 10 ms.
        assert!(outcome.sender.rtt_min_ms > 5.0, "{run:?}");
        assert!(outcome.sender.in_flight_bytes > 0.0, "{run:?}");
        assert!(outcome.fidelity.packets > 0, "{run:?}");
    }
    for name in [
        "runs.csv",
        "samples.csv",
        "scenario.toml",
        "environment.json",
    ] {
        assert!(fs::metadata(out.join(name)).unwrap().len() > 0, "{name}");
    }
    let page = report::page(&[results]);
    assert!(page.contains("A tiny run") && page.contains("<svg"));
}

#[test]
fn wrong_scenarios_are_refused_before_anything_runs() {
    let Some(lab) = peers::present(
        "wrong_scenarios_are_refused_before_anything_runs",
        godwit::binary("godwit-lab"),
    ) else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("wrong.toml");
    fs::write(
        &file,
        TINY.replace("50 Mbit/s\"\ndelay", "50 Mbps\"\ndelay"),
    )
    .unwrap();
    let output = Command::new(&lab).arg("run").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("wrong.toml:5: path.rate: "), "{said}");
}

/// Root without any capability, and no way to get them back: as in an ordinary container.
#[test]
fn a_machine_without_namespaces_gets_one_message_and_status_3() {
    let test = "a_machine_without_namespaces_gets_one_message_and_status_3";
    let Some(lab) = peers::present(test, godwit::binary("godwit-lab")) else {
        return;
    };
    if peers::tool::find_program("setpriv").is_none() || !rustix::process::geteuid().is_root() {
        let _ = writeln!(
            std::io::stderr().lock(),
            "skipped {test}: needs root and setpriv"
        );
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let output = Command::new("setpriv")
        .args(["--bounding-set=-all", "--inh-caps=-all", "--no-new-privs"])
        .arg(&lab)
        .args(["run", "apt-impl/evolution", "--quick", "--out"])
        .arg(folder.path().join("out"))
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no emulated network here"), "{said}");
}
