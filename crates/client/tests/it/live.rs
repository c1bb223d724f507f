//! Settings that change while data flows.

use std::{
    ffi::OsString,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
};

use godwit_client::{
    CancellationToken,
    cli::{self, Environment},
    job,
    report::{
        events::{Event, Observer},
        summary::Summary,
    },
    spec::Request,
};
use godwit_server::ServerSettings;
use godwit_tune::{Decision, Observation, Setting, Tuner};
use serde_json::Value;

use crate::harness::{Served, bytes, run, text};

/// Jumps as no tuner would, and never measures for long.
struct Wild(usize, &'static [(u32, u32)]);

const JUMPS: &[(u32, u32)] = &[
    (1, 12),
    (1, 2),
    (6, 2),
    (1, 1),
    (3, 5),
    (8, 1),
    (2, 16),
    (5, 3),
];

impl Tuner for Wild {
    fn name(&self) -> &'static str {
        "wild"
    }

    fn first(&mut self) -> Decision {
        let (concurrency, parallelism) = self.1[self.0 % self.1.len()];
        Decision {
            epoch_seconds: Some(0.02),
            ..Decision::new(
                Setting::new(concurrency, parallelism),
                format!("jump {}", self.0),
            )
        }
    }

    fn decide(&mut self, seen: &Observation) -> Decision {
        assert!(seen.goodput_bps().is_finite() && seen.seconds > 0.0);
        self.0 += 1;
        self.first()
    }
}

struct Quiet;

impl Observer for Quiet {
    fn on_event(&self, _: &Event) {}
}

/// Runs `godwit cp` in this process under the wild tuner; its summary and its event log.
fn cp(options: &[&str], from: &str, to: &str, log: &Path) -> (Summary, Vec<Value>) {
    cp_under(JUMPS, options, from, to, log)
}

fn cp_under(
    jumps: &'static [(u32, u32)],
    options: &[&str],
    from: &str,
    to: &str,
    log: &Path,
) -> (Summary, Vec<Value>) {
    let watching = Watching {
        observer: Arc::new(Quiet),
        stop: CancellationToken::default(),
    };
    cp_watched(jumps, watching, options, from, to, log)
}

/// An observer that can end the run.
pub(crate) struct Watching {
    pub(crate) observer: Arc<dyn Observer>,
    pub(crate) stop: CancellationToken,
}

pub(crate) fn cp_watched(
    jumps: &'static [(u32, u32)],
    watching: Watching,
    options: &[&str],
    from: &str,
    to: &str,
    log: &Path,
) -> (Summary, Vec<Value>) {
    let words: Vec<OsString> = ["godwit", "cp", "--events", text(log)]
        .iter()
        .chain(options)
        .chain(&[from, to])
        .map(OsString::from)
        .collect();
    let invocation = cli::parse(&words, &Environment::default()).unwrap();
    let Request::Copy(spec) = invocation.request else {
        panic!("a copy was asked for")
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let connections = invocation.connections;
    let copy = job::run_with(
        Box::new(Wild(0, jumps)),
        *spec,
        connections,
        watching.observer,
        watching.stop,
    );
    let summary = runtime.block_on(copy).unwrap();
    let lines = fs::read_to_string(log).unwrap();
    let events = lines.lines().map(|l| serde_json::from_str(l).unwrap());
    (summary, events.collect())
}

fn named<'a>(events: &'a [Value], name: &str) -> Vec<&'a Value> {
    events.iter().filter(|e| e["event"] == name).collect()
}

/// There and back, the copies compared; the two event logs. Small blocks, so that channels can
/// retire often.
fn there_and_back(length: usize, options: &[&str]) -> [Vec<Value>; 2] {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (file, log) = (here.path().join("big"), here.path().join("log"));
    let data = bytes(length, 11);
    fs::write(&file, &data).unwrap();
    let options = [&["--block-size", "64K"], options].concat();
    let (summary, put) = cp(&options, text(&file), &served.url("/big"), &log);
    assert_eq!((summary.exit, summary.bytes), (0, length as u64), "{put:?}");
    assert!(fs::read(served.path("big")).unwrap() == data);
    fs::remove_file(&file).unwrap();
    let (summary, get) = cp(&options, &served.url("/big"), text(&file), &log);
    assert_eq!((summary.exit, summary.bytes), (0, length as u64), "{get:?}");
    assert!(fs::read(&file).unwrap() == data);
    [put, get]
}

#[test]
fn settings_jump_while_one_file_is_moved() {
    // Slow enough for some epochs, whatever the machine.
    let [put, get] = there_and_back(320 << 20, &["--max-rate", "1500M"]);
    for events in [&put, &get] {
        let epochs = named(events, "epoch");
        assert!(!epochs.is_empty(), "{events:#?}");
        for epoch in &epochs {
            assert!(epoch["seconds"].as_f64().unwrap() > 0.0);
            assert!(epoch["goodput_bps"].as_f64().unwrap().is_finite());
            assert!(epoch["channels"].as_u64().is_some(), "{epoch}");
            assert!(epoch["setting"]["concurrency"].as_u64().unwrap() >= 1);
        }
        let decisions = named(events, "decision");
        assert!(decisions[0].get("from").is_none());
        for pair in decisions.windows(2) {
            assert_eq!(pair[1]["from"], pair[0]["to"]);
            let reason = pair[1]["reason"].as_str().unwrap();
            assert!(reason.starts_with("jump") || reason.contains("the end is near"));
        }
        assert_eq!(named(events, "file")[0]["state"], "verified");
    }
    // Channels of a put come and go within its one file.
    let states: Vec<_> = named(&put, "channel")
        .iter()
        .map(|c| c["state"].as_str().unwrap().to_owned())
        .collect();
    assert!(states.iter().any(|s| s == "retired"), "{states:?}");
    assert!(!states.iter().any(|s| s == "lost"), "{states:?}");
}

#[test]
fn channels_of_one_get_change_while_it_runs() {
    // Slow enough for some epochs, whatever the machine.
    let [_, get] = there_and_back(320 << 20, &["-c", "1", "--max-rate", "1500M"]);
    // One RETR, and still more than its first channels: the server was asked for them meanwhile.
    let channels = named(&get, "channel");
    assert!(channels.len() >= 2, "{get:#?}");
    assert!(!channels.iter().any(|c| c["state"] == "lost"), "{get:#?}");
    // A receiver knows of the sender's round trips only what that one tells.
    let knows_rtt = |e: &&Value| e["rtt_ms"].as_f64().is_some();
    assert!(named(&get, "epoch").iter().any(knows_rtt), "{get:#?}");
}

/// Both directions: more channels than to begin with are seen, and a get asks for no new address.
#[test]
fn channels_change_while_small_files_flow() {
    const COUNTS: &[(u32, u32)] = &[(1, 2), (1, 5), (1, 1), (1, 3)];
    let server = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (source, back) = (here.path().join("source"), here.path().join("back"));
    fs::create_dir(&source).unwrap();
    for i in 0..3000 {
        fs::write(source.join(format!("{i}")), bytes(3000 + i, 3)).unwrap();
    }
    let there = server.url("/up/");
    let (from, to) = (format!("{}/", text(&source)), format!("{}/", text(&back)));
    for (from, to) in [(&from, &there), (&there, &to)] {
        let log = here.path().join("log");
        let (summary, events) = cp_under(
            COUNTS,
            &["-r", "-c", "1", "--max-rate", "40M"],
            from,
            to,
            &log,
        );
        assert_eq!((summary.exit, summary.files_done), (0, 3000), "{events:?}");
        let channels = named(&events, "channel");
        let opened = |e: &&&Value| e["state"] == "opened" && e["count"].as_u64() > Some(1);
        assert!(channels.iter().filter(opened).count() > 1, "{channels:?}");
        let retired = |e: &&Value| e["state"] == "retired";
        assert!(channels.iter().any(retired), "{channels:?}");
    }
    for i in 0..3000 {
        assert!(fs::read(back.join(format!("{i}"))).unwrap() == bytes(3000 + i, 3));
    }
}

#[test]
fn a_server_that_refuses_more_channels_keeps_the_accepted_ones() {
    let served = Served::start_with(|settings| settings.channels_max = 6);
    let here = tempfile::tempdir().unwrap();
    let (file, log) = (here.path().join("big"), here.path().join("log"));
    let data = bytes(320 << 20, 5);
    fs::write(&file, &data).unwrap();
    let options = ["-c", "1", "--block-size", "64K"];
    let jumps = &[(1, 2), (1, 12)];
    let (summary, events) = cp_under(jumps, &options, text(&file), &served.url("/big"), &log);
    assert_eq!(summary.exit, 0, "{events:#?}");
    assert!(fs::read(served.path("big")).unwrap() == data);
    // On a fast machine it may be over before it grows; once it has failed, it never grows again.
    let decisions = named(&events, "decision");
    let failed = decisions
        .iter()
        .position(|d| d["reason"].as_str().unwrap().contains("gave up"));
    for later in decisions.iter().skip(failed.unwrap_or(decisions.len())) {
        assert_eq!(later["to"]["parallelism"], 2, "{events:#?}");
    }
}

#[test]
fn the_log_of_a_copy_explains_it() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (file, log) = (here.path().join("f"), here.path().join("log"));
    fs::write(&file, bytes(50_000_000, 3)).unwrap();
    let put = ["cp", "--events", text(&log), text(&file), &served.url("/f")];
    run(&put).expect(0, &[]);
    let explained = run(&["explain", text(&log)]).expect(0, &[]).out;
    let explained = String::from_utf8(explained).unwrap();
    assert!(explained.contains("1 of 1 files, 47.7 MiB"), "{explained}");
    let json = run(&["explain", "--json", text(&log)]).expect(0, &[]).out;
    let json: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(json["runs"][0]["bytes"], 50_000_000);
    run(&["explain", text(&file)]).expect(2, &["holds no event"]);
}

#[test]
fn a_restart_of_the_tuner_jumps_to_its_first_setting() {
    let [put, _] = there_and_back(200 << 20, &["--epoch-mode", "restart"]);
    assert!(!named(&put, "epoch").is_empty(), "{put:#?}");
    assert!(!named(&put, "channel").iter().any(|c| c["state"] == "lost"));
}

/// Stops a copy at the first ABOR, and else after a number of decisions.
#[derive(Default)]
struct UntilAbort {
    stop: CancellationToken,
    was_aborted: AtomicBool,
    decisions: AtomicU32,
}

impl Observer for UntilAbort {
    fn on_event(&self, event: &Event) {
        match event {
            Event::Dialogue { sent, line, .. }
                if *sent && line == "ABOR" && !self.stop.is_cancelled() =>
            {
                self.was_aborted.store(true, Ordering::Relaxed);
                self.stop.cancel();
            }
            Event::Decision { .. } if self.decisions.fetch_add(1, Ordering::Relaxed) == 20 => {
                self.stop.cancel();
            }
            _ => {}
        }
    }

    fn hears_dialogue(&self) -> bool {
        true
    }
}

/// Its piece would last for ever.
#[test]
fn a_surplus_session_between_two_servers_is_aborted() {
    const FEWER: &[(u32, u32)] = &[(2, 2), (1, 2)];
    let everything = |settings: &mut ServerSettings| settings.root = "/".into();
    let (from, to) = (
        Served::start_with(everything),
        Served::start_with(everything),
    );
    let here = tempfile::tempdir().unwrap();
    let log = here.path().join("log");
    let (source, target) = (from.url("/dev/zero"), to.url("/dev/null"));
    let until = Arc::new(UntilAbort::default());
    let watching = Watching {
        observer: Arc::<UntilAbort>::clone(&until),
        stop: until.stop.clone(),
    };
    let options = ["--length", "100T", "--no-verify", "--no-sparse"];
    let (summary, events) = cp_watched(FEWER, watching, &options, &source, &target, &log);
    assert!(until.was_aborted.load(Ordering::Relaxed), "{events:#?}");
    assert_eq!(summary.exit, 130, "{events:#?}");
    assert!(named(&events, "retry").is_empty(), "{events:#?}");
}

#[test]
fn settings_of_the_user_never_change() {
    for events in there_and_back(64 << 20, &["-c", "2", "-p", "3"]) {
        let fixed = serde_json::json!({"concurrency": 2, "parallelism": 3, "pipelining": 1});
        for decision in named(&events, "decision") {
            assert_eq!(decision["to"], fixed, "{decision}");
        }
        for epoch in named(&events, "epoch") {
            assert_eq!(epoch["setting"], fixed, "{epoch}");
        }
    }
}
