//! What is in the file.

use std::path::PathBuf;

use godwit_tune::{Bottleneck, Setting};

use super::*;
use crate::report::summary::SyncSummary;

#[allow(dead_code, reason = "not every crate needs all of it")]
#[path = "../../../../server/tests/it/scraped.rs"]
mod scraped;

use scraped::{Scraped, asked_for};

fn state() -> MetricsState {
    MetricsState {
        run: "a\"b".to_owned(),
        source: "local".to_owned(),
        destination: "there".to_owned(),
        began: SystemTime::UNIX_EPOCH + Duration::from_millis(1_500),
        written: Instant::now(),
        complained: false,
        now: Snapshot {
            bytes: 7,
            bytes_total: 9,
            files: 3,
            files_total: 5,
            channels: 8,
            setting: Some(Setting::new(2, 4)),
            limited_by: Some(Bottleneck::Cpu),
            ..Snapshot::default()
        },
        rate: DisplayedRate::default(),
        files_failed: 1,
        summary: None,
        exit: None,
        ended: None,
        succeeded: None,
    }
}

/// The first line of a name.
fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let found = text
        .lines()
        .find(|line| line.starts_with(&format!("{name}{{")));
    found.unwrap_or_else(|| panic!("no {name}: {text}"))
}

#[test]
fn of_a_run_in_its_midst_there_is_what_is_known() {
    let text = state().text();
    let labels = "run=\"a\\\"b\",source=\"local\",destination=\"there\"";
    for (name, value) in [
        ("godwit_transfer_bytes_total", 7.0),
        ("godwit_files_total", 2.0),
        ("godwit_running", 1.0),
        ("godwit_data_channels", 8.0),
        ("godwit_sessions", 2.0),
        ("godwit_start_time_seconds", 1.5),
    ] {
        let line = line(&text, name);
        assert!(line.starts_with(&format!("{name}{{{labels}")), "{line}");
        assert_eq!(kept(&text, name), Some(value), "{line}");
    }
    assert!(line(&text, "godwit_limited_by").contains("limit=\"cpu\""));
    assert_eq!(kept(&text, EXIT_STATUS), None);
}

#[test]
fn dashboard_and_alerts_ask_for_what_is_written() {
    let mut state = state();
    state.run = "r".to_owned();
    (state.exit, state.ended, state.succeeded) = (Some(0.0), Some(2.0), Some(2.0));
    state.summary = Some(Summary {
        retransmitted_bytes: Some(1),
        synced: Some(SyncSummary {
            dry_run: false,
            files_differing: 0,
            bytes_differing: 0,
            files_same: 4,
            names_removed: 0,
        }),
        limited_by: Some("remote".to_owned()),
        ..Summary::new(7, 1.0, 3, 1, Exit::Partly)
    });
    let text = state.text();
    let written = Scraped::of(&text);
    let mut asked = asked_for(&["godwit_"]);
    asked.retain(|name| !name.starts_with("godwit_service_"));
    let unknown: Vec<_> = asked
        .iter()
        .filter(|name| !written.names().contains(name.as_str()))
        .collect();
    assert!(unknown.is_empty() && asked.len() > 10, "{unknown:?}");
    // The file is read again with no more than what is kept of it.
    assert!(text.len() < usize::try_from(FILE_MAX).unwrap() / 8);
}

#[test]
fn of_a_file_that_is_no_such_file_nothing_is_kept() {
    for text in [
        "",
        "godwit_exit_status 4",
        "godwit_exit_status{} x",
        "godwit_exit_status{} NaN",
        "godwit_exit_statuses{} 4",
    ] {
        assert_eq!(kept(text, EXIT_STATUS), None, "{text:?}");
    }
    assert_eq!(
        kept("# x\ngodwit_exit_status{a=\"b\"} 4\n", EXIT_STATUS),
        Some(4.0)
    );
    let nowhere = PathBuf::from("/nonexistent/m.prom");
    assert!(read(&nowhere).is_err() && replace(&nowhere, "").is_err());
}
