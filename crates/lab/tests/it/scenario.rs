//! Whole scenarios, from file to report.

use std::fs;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;

use godwit_lab::load::Sharing;
use godwit_lab::peers::{self, gct, godwit, iperf3};
use godwit_lab::{netns, report, runner, scenario, stats};
use tempfile::TempDir;

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

/// Runs a scenario into a directory of its own; `None` where it cannot run.
fn run_here(test: &str, text: &str) -> Option<(TempDir, runner::Results)> {
    present(test).then(|| {
        let folder = TempDir::new().unwrap();
        let results = run(text, &folder.path().join("out"));
        (folder, results)
    })
}

/// Runs a scenario into a directory; every run must come to its end.
fn run(text: &str, out: &Path) -> runner::Results {
    let file = out.with_extension("toml");
    fs::write(&file, text).unwrap();
    let loaded = scenario::load(file.to_str().unwrap()).unwrap();
    let options = runner::Options {
        out: out.to_owned(),
        ..runner::Options::default()
    };
    let mut lines = Vec::new();
    let tally = runner::run(&loaded, &options, &mut |line| lines.push(line.to_owned())).unwrap();
    assert_eq!(tally.failed, 0, "{lines:#?}");
    let results = runner::read(out).unwrap();
    assert_eq!(results.runs.len(), tally.runs as usize);
    results
}

#[test]
fn a_scenario_runs_and_is_reported() {
    let Some((folder, results)) = run_here("a_scenario_runs_and_is_reported", TINY) else {
        return;
    };
    let out = folder.path().join("out");
    assert!(results.runs.len() >= 4);
    for run in &results.runs {
        let outcome = run.result.as_ref().unwrap();
        assert!(
            outcome.goodput_bps > 0.0 && outcome.goodput_bps < 50e6,
            "{run:?}"
        );
        assert_eq!(outcome.channels_seen, run.cell.channels as usize, "{run:?}");
        // The delay of both ways; the kernel's smallest sample may lie somewhat below the path's 10
        // ms.
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

const BUSY: &str = r#"
title = "Two transfers, a third connection, and a path that loses half of its rate"

[path]
rate = "40 Mbit/s"
delay = "2 ms"
queue = "50 packets"

[run]
evolve = "6 s"
repeats = 1

[[change]]
at = "3 s"
rate = "20 Mbit/s"

[[load]]
kind = "tcp"
flows = 1
from = "1 s"

[[method]]
name = "two"
label = "two at once"
client = "godwit"
server = "godwitd"
direction = "put"
tuner = "static:concurrency=1,parallelism=3"
transfers = 2
stagger = "2 s"
"#;

#[test]
fn transfers_from_several_hosts_share_a_path_that_changes() {
    let test = "transfers_from_several_hosts_share_a_path_that_changes";
    if !present(test) || peers::present(test, iperf3::IPERF3.available()).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let out = folder.path().join("out");
    let results = run(BUSY, &out);
    let outcome = results.runs[0].result.as_ref().unwrap();
    assert_eq!(outcome.channels_seen, 6, "three of each");
    assert!(outcome.transfers_bps.iter().all(|bps| *bps > 0.0));
    assert!(outcome.beside_bps.unwrap() > 0.0);
    let both = outcome.goodput_bps + outcome.beside_bps.unwrap();
    assert!(both < 20e6, "more than the path has left: {both}");
    let evolution = outcome.evolution.as_ref().unwrap();
    let [first, second] = &evolution.transfers[..] else {
        panic!("{evolution:?}");
    };
    assert!(first.goodput_bps[0] > 0.0);
    assert!(second.goodput_bps[..3].iter().all(|bps| *bps == 0.0));
    // Single bins may exceed the path: what waited for a lost packet counts when that has come.
    assert!(stats::mean(&evolution.total_bps()).unwrap() < 40e6);
    assert_eq!(evolution.beside_bps[0], 0.0, "it starts later");
    assert_eq!(first.choices[0].parallelism, 3, "{first:?}");
    for log in ["1-0.jsonl", "1-1.jsonl"] {
        assert!(fs::metadata(out.join("events").join(log)).unwrap().len() > 0);
    }
    let (page, figures) = report::markdown(&results, "busy");
    assert!(page.contains("Jain") && figures.len() == 2, "{page}");
}

const FILES: &str = r#"
title = "Small files, and a run that is stopped"

[path]
rate = "20 Mbit/s"
delay = "2 ms"
queue = "50 packets"

[work]
files = "4 MB"

[sweep]
files = [4, 40]

[run]
measure = "20 s"
repeats = 1

[[method]]
name = "get"
label = "get"
client = "godwit"
server = "godwitd"
tuner = "godwit"

[[method]]
name = "put"
label = "put"
client = "godwit"
server = "godwitd"
direction = "put"
channels = 2

[figure]
x = "file_size"
log_x = true
"#;

#[test]
fn sets_of_files_count_when_they_are_complete() {
    let test = "sets_of_files_count_when_they_are_complete";
    let Some((_folder, results)) = run_here(test, FILES) else {
        return;
    };
    assert!(results.runs.len() >= 4);
    for run in &results.runs {
        let outcome = run.result.as_ref().unwrap();
        assert_eq!((outcome.files, outcome.bytes), (run.cell.files, 4_000_000));
        assert_eq!(run.cell.file_bytes * u64::from(run.cell.files), 4_000_000);
        assert!(!outcome.stopped && outcome.goodput_bps < 20e6, "{run:?}");
    }
    let (page, figures) = report::markdown(&results, "files");
    assert!(
        page.contains("40 x 100 kB") && page.contains("files/s"),
        "{page}"
    );
    assert_eq!(figures.len(), 1);
}

#[test]
fn a_stopped_set_of_files_counts_what_arrived() {
    let slow =
        (FILES.replace("20 Mbit/s", "1 Mbit/s")).replace("measure = \"20 s\"", "measure = \"3 s\"");
    let test = "a_stopped_set_of_files_counts_what_arrived";
    let Some((_folder, results)) = run_here(test, &slow) else {
        return;
    };
    for run in &results.runs {
        let outcome = run.result.as_ref().unwrap();
        assert!(outcome.stopped && outcome.bytes < 4_000_000, "{run:?}");
        assert!(outcome.files < run.cell.files, "{run:?}");
    }
    let (page, _) = report::markdown(&results, "files");
    assert!(page.contains(" stopped, "), "{page}");
}

const ONE_MACHINE: &str = r#"
title = "No path, and a busy process"

[sweep]
channels = [4]
compute = [1]

[run]
ramp = "200 ms"
measure = "500 ms"
repeats = 1

[[method]]
name = "put"
label = "put"
client = "godwit"
server = "godwitd"
direction = "put"
parallelism = 2
"#;

#[test]
fn without_a_path_both_ends_meet_on_loopback() {
    let test = "without_a_path_both_ends_meet_on_loopback";
    let Some((_folder, results)) = run_here(test, ONE_MACHINE) else {
        return;
    };
    let outcome = results.runs[0].result.as_ref().unwrap();
    assert!(outcome.goodput_bps > 0.0);
    assert_eq!(outcome.channels_seen, 4, "two movers of two");
    assert_eq!(outcome.fidelity.packets, 0, "nothing was emulated");
    assert_eq!(outcome.sharing, Some(Sharing::ByThread));
}

const THIRD_PARTY: &str = r#"
title = "Between two servers, started by a client elsewhere"

[path]
rate = "50 Mbit/s"
delay = "5 ms"
queue = "50 packets"

[hosts]
client_delay = "1 ms"

[sweep]
channels = [3]

[run]
ramp = "200 ms"
measure = "1 s"
repeats = 1

[[method]]
name = "third"
label = "third"
client = "globus-url-copy"
server = "godwitd"
direction = "third-party"
"#;

#[test]
fn a_third_host_directs_two_servers() {
    let test = "a_third_host_directs_two_servers";
    if !present(test) || peers::present(test, gct::URL_COPY.available()).is_none() {
        return;
    }
    let folder = TempDir::new().unwrap();
    let results = run(THIRD_PARTY, &folder.path().join("out"));
    let outcome = results.runs[0].result.as_ref().unwrap();
    assert_eq!(outcome.channels_seen, 3);
    assert!(outcome.goodput_bps > 0.0 && outcome.goodput_bps < 50e6);
    // Of the long way, not of the client's.
    assert!(outcome.sender.rtt_min_ms > 5.0, "{outcome:?}");
}

const LOSSY: &str = r#"
title = "Random loss, the same every time"

[path]
rate = "30 Mbit/s"
delay = "5 ms"
queue = "100 packets"
loss = "0.5 %"

[hosts]
congestion_control = "reno"

[sweep]
channels = [2]

[run]
ramp = "500 ms"
measure = "1500 ms"
repeats = 3
seed = 7

[[method]]
name = "godwit"
label = "godwit both ends"
client = "godwit"
server = "godwitd"
"#;

/// Twice the same seeds on a real kernel: means as far apart as chance allows, which is within
/// the confidence intervals that both runs state. Chance misses one time in twenty or so, hence a
/// second and a third try.
#[test]
fn the_same_seed_gives_the_same_goodput_within_its_interval() {
    let test = "the_same_seed_gives_the_same_goodput_within_its_interval";
    if !present(test) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let mut seen = Vec::new();
    for attempt in 0..3 {
        let [one, other] = [0, 1].map(|which| {
            let out = folder.path().join(format!("{attempt}-{which}"));
            let results = run(LOSSY, &out);
            let goodput: Vec<f64> = (results.runs.iter())
                .filter(|run| run.is_faithful())
                .filter_map(runner::Run::goodput_bps)
                .collect();
            // Fewer say nothing about their spread.
            stats::Summary::of(&goodput).filter(|summary| summary.count >= 3)
        });
        let (Some(one), Some(other)) = (one, other) else {
            continue;
        };
        if one.low() <= other.high() && other.low() <= one.high() {
            return;
        }
        seen.push((one, other));
    }
    if seen.is_empty() {
        let _ = writeln!(
            std::io::stderr().lock(),
            "{test}: this machine is too busy to tell"
        );
    }
    assert!(seen.is_empty(), "{seen:#?}");
}

#[test]
fn wrong_scenarios_are_refused_before_anything_runs() {
    let Some(lab) = peers::present(
        "wrong_scenarios_are_refused_before_anything_runs",
        godwit::binary("godwit-lab"),
    ) else {
        return;
    };
    let folder = TempDir::new().unwrap();
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
    let folder = TempDir::new().unwrap();
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

const STRIPED: &str = r#"
title = "Servers with two data nodes, one of them slower"

[path]
rate = "20 Mbit/s"
delay = "2 ms"
queue = "50 packets"

[[nodes.link]]
node = 2
rate = "10 Mbit/s"

[sweep]
nodes = [0, 2]
channels = [2]

[run]
evolve = "6 s"
repeats = 1

[[method]]
name = "get"
label = "get"
client = "godwit"
server = "godwitd"

[[method]]
name = "put"
label = "put"
client = "godwit"
server = "godwitd"
direction = "put"

[[method]]
name = "between"
label = "between"
client = "godwit"
server = "godwitd"
direction = "third-party"

[[change]]
at = "3 s"
node = 2
rate = "5 Mbit/s"

[[expect]]
what = "the links are full"
links_at_least = "30 %"

[figure]
x = "nodes"
"#;

#[test]
fn servers_with_data_nodes_use_the_link_of_each() {
    let test = "servers_with_data_nodes_use_the_link_of_each";
    let Some((_folder, results)) = run_here(test, STRIPED) else {
        return;
    };
    assert!(results.runs.len() >= 6);
    for run in &results.runs {
        let outcome = run.result.as_ref().unwrap();
        assert_eq!(outcome.nodes_bps.len(), run.cell.nodes as usize, "{run:?}");
        let story = format!(
            "{} {:?} {}",
            run.method, outcome.nodes_bps, outcome.goodput_bps
        );
        if let [first, second] = outcome.nodes_bps[..] {
            // Both carry data, and the one whose rate was changed no more than it may.
            assert!(first > second && second > 1e6 && second < 6e6, "{story}");
            assert!(
                outcome.front_end_cpu_seconds < outcome.server_cpu_seconds,
                "{story}"
            );
        }
    }
    let page = report::page(&[results]);
    assert!(page.contains("of all links, %") && page.contains("Data nodes"));
}
