//! `--metrics-file`, as a collector sees it.

use std::{
    fs,
    io::Write as _,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    process::Stdio,
    thread,
    time::{Duration, Instant},
};

use crate::{
    harness::{Served, bytes, godwit, run, run_with, text, tree},
    scraped::Scraped,
};

const PATIENCE: Duration = Duration::from_secs(60);

#[test]
#[allow(clippy::cast_precision_loss)] // of MiB
fn a_copy_is_seen_while_it_runs_and_at_its_end() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("nightly.prom");
    let words = ["cp", "-q", "--metrics-file", text(&file), "-"];
    let mut copy = godwit(&[&words[..], &[&served.url("/f")]].concat())
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = copy.stdin.take().unwrap();
    let data = bytes(3 << 20, 1);
    input.write_all(&data).unwrap();
    let of = |name: &str, more: &str| {
        format!("{name}{{run=\"nightly\",source=\"local\",destination=\"127.0.0.1\"{more}}}")
    };
    let moved = of("godwit_transfer_bytes_total", "");
    let deadline = Instant::now() + PATIENCE;
    let midst = loop {
        // What is there is whole, whenever it is read.
        let seen = fs::read_to_string(&file).ok().map(|t| Scraped::of(&t));
        // A block may still be on its way.
        if let Some(seen) = seen.filter(|seen| seen.value(&moved) > 0.0) {
            break seen;
        }
        assert!(Instant::now() < deadline, "never seen");
        thread::sleep(Duration::from_millis(20));
    };
    assert_eq!(midst.value(&of("godwit_running", "")), 1.0);
    assert!(midst.value(&of("godwit_data_channels", "")) >= 1.0);
    assert!(!midst.names().contains("godwit_exit_status"));
    drop(input);
    assert!(copy.wait().unwrap().success());
    let end = fs::read_to_string(&file).unwrap();
    let end = Scraped::of(&end);
    for (name, more, value) in [
        ("godwit_transfer_bytes_total", "", data.len() as f64),
        ("godwit_files_total", ",result=\"done\"", 1.0),
        ("godwit_files_total", ",result=\"failed\"", 0.0),
        ("godwit_running", "", 0.0),
        ("godwit_exit_status", "", 0.0),
    ] {
        assert_eq!(end.value(&of(name, more)), value, "{name}{more}");
    }
    let [began, ended, succeeded] = ["start", "end", "success"]
        .map(|what| end.value(&of(&format!("godwit_{what}_time_seconds"), "")));
    assert!(began > 1e9 && began < ended && ended == succeeded);
    assert_eq!(tree(here.path()), ["nightly.prom"]);
    let mode = fs::metadata(&file).unwrap().permissions().mode();
    let plain = here.path().join("plain");
    fs::write(&plain, "").unwrap();
    assert_eq!(mode, fs::metadata(&plain).unwrap().permissions().mode());
}

#[test]
fn failures_and_the_time_of_the_last_success_are_written() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (file, from) = (here.path().join("s.prom"), here.path().join("from"));
    fs::create_dir(&from).unwrap();
    fs::write(from.join("a"), "a").unwrap();
    fs::write(from.join("b"), "b").unwrap();
    let (contents, url) = (format!("{}/", text(&from)), served.url("/to"));
    let sync = ["sync", "-q", "--metrics-file", text(&file)];
    let scrape = || Scraped::of(&fs::read_to_string(&file).unwrap());
    let of = |name: &str, more: &str| {
        format!("{name}{{run=\"s\",source=\"local\",destination=\"127.0.0.1\"{more}}}")
    };
    run(&[&sync[..], &[&contents, &url]].concat()).expect(0, &[]);
    let first = scrape().value(&of("godwit_success_time_seconds", ""));
    fs::write(from.join("c"), "c").unwrap();
    run(&[&sync[..], &[&contents, &url]].concat()).expect(0, &[]);
    let second = scrape();
    assert_eq!(
        second.value(&of("godwit_files_total", ",result=\"skipped\"")),
        2.0
    );
    assert_eq!(
        second.value(&of("godwit_files_total", ",result=\"done\"")),
        1.0
    );
    let well = second.value(&of("godwit_success_time_seconds", ""));
    assert!(well > first);
    let closed = TcpListener::bind("127.0.0.1:0").unwrap();
    let nowhere = format!("ftp://{}/to", closed.local_addr().unwrap());
    drop(closed);
    let cp = ["cp", "-q", "--metrics-file", text(&file), "--retries", "1"];
    let from = from.join("a");
    run(&[&cp[..], &[text(&from), &nowhere]].concat()).expect(4, &[]);
    let third = scrape();
    assert_eq!(third.value(&of("godwit_exit_status", "")), 4.0);
    assert_eq!(third.value(&of("godwit_success_time_seconds", "")), well);
    assert!(third.value(&of("godwit_end_time_seconds", "")) > well);
}

#[test]
fn an_unwritable_metrics_file_is_reported_at_once() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("none/m.prom");
    fs::write(served.path("f"), "f").unwrap();
    let to = here.path().join("f");
    run_with(
        "cp --metrics-file",
        &[text(&file), &served.url("/f"), text(&to)],
    )
    .expect(4, &["metrics file", text(&file)]);
    assert!(!to.exists());
}
