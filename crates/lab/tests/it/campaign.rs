//! A campaign that is interrupted and continued.

use std::{
    fs,
    path::Path,
    process::{Command, Output},
};

use godwit_lab::{
    netns,
    peers::{self, godwit},
    runner,
};

const TINY: &str = r#"
title = "A tiny run"

[path]
rate = "50 Mbit/s"
delay = "2 ms"
queue = "50 packets"

[sweep]
channels = [1, 2]

[run]
ramp = "200 ms"
measure = "500 ms"

[[method]]
name = "godwit"
label = "godwit both ends"
client = "godwit"
server = "godwitd"
"#;

fn campaign(folder: &Path, more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_godwit-lab"))
        .current_dir(folder)
        .args([
            "campaign",
            "list.toml",
            "--state",
            "state",
            "--pages",
            "pages",
        ])
        .args(more)
        .output()
        .unwrap()
}

#[test]
fn a_campaign_is_interrupted_continued_and_ends_with_a_page() {
    let test = "a_campaign_is_interrupted_continued_and_ends_with_a_page";
    if let Err(unavailable) = netns::available() {
        eprintln!("skipped {test}: {unavailable}");
        return;
    }
    let both = godwit::binary("godwit").and_then(|_| godwit::binary("godwitd"));
    if peers::present(test, both).is_none() {
        return;
    }
    let folder = tempfile::TempDir::new().unwrap();
    let folder = folder.path();
    fs::write(folder.join("tiny.toml"), TINY).unwrap();
    // What counts has tests of its own.
    let list = "runs = 2\nruns_if_long = 1\nlong = '10 min'\nspare = 1\nbusy = '100 %'\n\
                wait = '0 s'\nscenarios = ['tiny.toml']\n";
    fs::write(folder.join("list.toml"), list).unwrap();
    let state = folder.join("state/tiny");

    let first = campaign(folder, &["--runs", "1"]);
    assert!(first.status.success(), "{first:?}");
    assert_eq!(runner::read(&state).unwrap().runs.len(), 1);
    assert!(!folder.join("pages").exists());
    // It was killed in mid-line.
    let runs = state.join("runs.jsonl");
    let before = fs::read_to_string(&runs).unwrap();
    fs::write(&runs, format!("{before}{{\"number\":2,\"rep")).unwrap();

    let second = campaign(folder, &[]);
    assert!(second.status.success(), "{second:?}");
    let results = runner::read(&state).unwrap();
    assert!(fs::read_to_string(&runs).unwrap().starts_with(&before));
    for channels in [1, 2] {
        let of = || {
            results
                .runs
                .iter()
                .filter(move |run| run.cell.channels == channels)
        };
        let counted = of()
            .filter(|run| run.result.is_some() && run.is_faithful())
            .count();
        // A machine that cannot keep up has used its spare run up.
        assert!(
            counted >= 2 || of().count() - counted >= 2,
            "{channels}: {counted}"
        );
        assert!(of().count() <= 4, "{channels}");
    }
    let page = fs::read_to_string(folder.join("pages/tiny.md")).unwrap();
    assert!(page.contains("A tiny run"));

    // Nothing is left to run.
    let third = campaign(folder, &[]);
    assert!(third.status.success(), "{third:?}");
    assert_eq!(runner::read(&state).unwrap().runs.len(), results.runs.len());

    // Another text of the scenario is another experiment.
    fs::write(
        folder.join("tiny.toml"),
        TINY.replace("50 Mbit/s", "40 Mbit/s"),
    )
    .unwrap();
    let other = campaign(folder, &[]);
    assert_eq!(other.status.code(), Some(4), "{other:?}");
    let said = String::from_utf8_lossy(&other.stderr);
    assert!(said.contains("another text of tiny"), "{said}");
}
