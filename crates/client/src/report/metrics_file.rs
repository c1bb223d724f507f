//! `--metrics-file`: how a copy is doing, in a file that Prometheus' node_exporter takes up (its
//! textfile collector).
//!
//! The file is replaced whole every few seconds and at the end, by rename: readers never see a
//! part. What outlasts a run, as when the last one succeeded, is taken from the file before.

#[cfg(test)]
mod tests;

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use godwit_engine::host::prometheus_text::{Label, PrometheusText};
use godwit_proto::url::Location;
use parking_lot::{Mutex, MutexGuard};

use super::{
    events::{Event, FileEnd, FileState, Observer},
    progress::{DisplayedRate, Snapshot},
    summary::Summary,
};
use crate::{
    error::{Error, Exit, Result},
    spec::JobSpec,
};

/// Between two files.
const EVERY: Duration = Duration::from_secs(5);

/// Bytes of a file that is read again; ours have three thousand.
const FILE_MAX: u64 = 64 * 1024;

const EXIT_STATUS: &str = "godwit_exit_status";
const ENDED: &str = "godwit_end_time_seconds";
const SUCCEEDED: &str = "godwit_success_time_seconds";

/// Stands between a job and its observer.
pub(crate) struct MetricsFile {
    observer: Arc<dyn Observer>,
    path: PathBuf,
    state: Mutex<MetricsState>,
}

struct MetricsState {
    /// Its labels: the file's name, and hosts.
    run: String,
    source: String,
    destination: String,
    began: SystemTime,
    written: Instant,
    /// A warning said that the file cannot be written.
    complained: bool,
    now: Snapshot,
    rate: DisplayedRate,
    files_failed: u64,
    summary: Option<Summary>,
    /// Of the last run that has ended.
    exit: Option<f64>,
    ended: Option<f64>,
    /// When one last ended with all there.
    succeeded: Option<f64>,
}

impl MetricsFile {
    /// Replaces the file, which nothing has happened in yet.
    ///
    /// # Errors
    /// It cannot be written.
    pub(crate) fn begin(
        path: &Path,
        spec: &JobSpec,
        observer: Arc<dyn Observer>,
    ) -> Result<Arc<Self>> {
        let before = read(path).unwrap_or_default();
        let stem = path.file_stem().unwrap_or_default();
        let state = MetricsState {
            run: stem.to_string_lossy().into_owned(),
            source: spec.sources.first().map(host).unwrap_or_default(),
            destination: host(&spec.destination),
            began: SystemTime::now(),
            written: Instant::now(),
            complained: false,
            now: Snapshot::default(),
            rate: DisplayedRate::default(),
            files_failed: 0,
            summary: None,
            exit: kept(&before, EXIT_STATUS),
            ended: kept(&before, ENDED),
            succeeded: kept(&before, SUCCEEDED),
        };
        replace(path, &state.text())
            .map_err(|e| Error::local(format!("write metrics file {}", path.display()), &e))?;
        Ok(Arc::new(Self {
            observer,
            path: path.to_owned(),
            state: Mutex::new(state),
        }))
    }

    /// The run has come to nothing, before there was a summary.
    pub(crate) fn failed(&self, exit: Exit) {
        let began = self.state().began.elapsed();
        let seconds = began.unwrap_or_default().as_secs_f64();
        self.ended(Summary::new(0, seconds, 0, 0, exit));
    }

    fn ended(&self, summary: Summary) {
        let mut state = self.state();
        let now = unix_seconds(SystemTime::now());
        state.exit = Some(f64::from(summary.exit));
        state.ended = Some(now);
        if summary.exit == Exit::Done.code() {
            state.succeeded = Some(now);
        }
        state.summary = Some(summary);
        self.write(state);
    }

    fn write(&self, mut state: MutexGuard<'_, MetricsState>) {
        state.written = Instant::now();
        let failed = replace(&self.path, &state.text()).err();
        let tells = failed.filter(|_| !std::mem::replace(&mut state.complained, true));
        drop(state);
        if let Some(error) = tells {
            let path = self.path.display();
            let text = format!("write metrics file {path}: {error}");
            self.observer.on_event(&Event::Warning { text });
        }
    }

    fn state(&self) -> MutexGuard<'_, MetricsState> {
        self.state.lock()
    }
}

impl Observer for MetricsFile {
    fn on_event(&self, event: &Event) {
        match event {
            Event::File {
                state: FileState::Failed,
                ..
            } => self.state().files_failed += 1,
            Event::Summary(summary) => self.ended(summary.clone()),
            _ => {}
        }
        self.observer.on_event(event);
    }

    fn on_file(&self, path: &str, end: &FileEnd<'_>) {
        self.observer.on_file(path, end);
    }

    fn on_undivided(&self, path: &str, reason: &str) {
        self.observer.on_undivided(path, reason);
    }

    fn hears_dialogue(&self) -> bool {
        self.observer.hears_dialogue()
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        if let Some(now) = progress {
            let mut state = self.state();
            state.now = *now;
            state.rate.update(now.bytes);
            if state.written.elapsed() >= EVERY {
                self.write(state);
            }
        }
        self.observer.on_progress(progress);
    }

    fn on_output(&self, line: &[u8]) {
        self.observer.on_output(line);
    }
}

impl MetricsState {
    fn text(&self) -> String {
        let mut out = PrometheusText::default();
        let labels = [
            ("run", self.run.as_str()),
            ("source", self.source.as_str()),
            ("destination", self.destination.as_str()),
        ];
        self.copied(&mut out, &labels);
        self.running(&mut out, &labels);
        out.gauge(
            "godwit_start_time_seconds",
            "When the run began, since 1970.",
        )
        .labelled(&labels, unix_seconds(self.began));
        for (name, help, value) in [
            (
                EXIT_STATUS,
                "Exit status of the last run that has ended: 0 all is there, 1 some files failed, \
                 3 refused, 4 failed, 130 interrupted.",
                self.exit,
            ),
            (
                ENDED,
                "When the last run ended that has ended, since 1970.",
                self.ended,
            ),
            (
                SUCCEEDED,
                "When a run last ended with exit status 0, since 1970.",
                self.succeeded,
            ),
        ] {
            if let Some(value) = value {
                out.gauge(name, help).labelled(&labels, value);
            }
        }
        out.gauge("godwit_build_info", "The version that runs; always 1.")
            .labelled(
                &[&labels[..], &[("version", env!("CARGO_PKG_VERSION"))]].concat(),
                1,
            );
        out.into_text()
    }

    fn copied(&self, out: &mut PrometheusText, labels: &[Label<'_>; 3]) {
        let summary = self.summary.as_ref();
        let failed = summary.map_or(self.files_failed, |s| s.files_failed);
        let done = summary.map_or(self.now.files.saturating_sub(failed), |s| s.files_done);
        out.counter(
            "godwit_transfer_bytes_total",
            "Bytes of this run: moved so far, at its end those of the files that are there.",
        )
        .labelled(labels, summary.map_or(self.now.bytes, |s| s.bytes));
        let mut of = out.counter(
            "godwit_files_total",
            "Files of this run, by what became of them.",
        );
        let mut of_result = |result, count: u64| {
            of.labelled(&[&labels[..], &[("result", result)]].concat(), count);
        };
        of_result("done", done);
        of_result("failed", failed);
        // What a sync finds the same is known at its end.
        if let Some(synced) = summary.and_then(|s| s.synced) {
            of_result("skipped", synced.files_same);
        }
        if let Some(bytes) = summary.and_then(|s| s.retransmitted_bytes) {
            out.counter(
                "godwit_retransmitted_bytes_total",
                "Bytes that TCP has sent again in this run, where the kernel tells; known at its \
                 end.",
            )
            .labelled(labels, bytes);
        }
        out.gauge(
            "godwit_goodput_bits_per_second",
            "Of the last seconds, after the end of the whole run.",
        )
        .labelled(labels, summary.map_or(self.rate.bps, |s| s.goodput_bps));
        let limited_by = match summary {
            Some(summary) => summary.limited_by.clone(),
            None => self.now.limited_by.map(|limit| limit.to_string()),
        };
        if let Some(limit) = &limited_by {
            out.gauge("godwit_limited_by", "What bounds the run; always 1.")
                .labelled(&[&labels[..], &[("limit", limit)]].concat(), 1);
        }
    }

    fn running(&self, out: &mut PrometheusText, labels: &[Label<'_>; 3]) {
        let runs = self.summary.is_none();
        let while_it_runs = |value: u64| if runs { value } else { 0 };
        out.gauge("godwit_running", "1 while the run goes on.")
            .labelled(labels, u8::from(runs));
        out.gauge(
            "godwit_bytes_expected",
            "Bytes of all files that were found so far.",
        )
        .labelled(labels, self.now.bytes_total);
        out.gauge("godwit_files_expected", "Files that were found so far.")
            .labelled(labels, self.now.files_total);
        out.gauge(
            "godwit_data_channels",
            "Data channels that carry bytes now.",
        )
        .labelled(labels, while_it_runs(self.now.channels.into()));
        let sessions = self.now.setting.map_or(0, |setting| setting.concurrency);
        out.gauge(
            "godwit_sessions",
            "Control channels that are steered towards.",
        )
        .labelled(labels, while_it_runs(sessions.into()));
    }
}

/// Where a place is.
fn host(place: &Location) -> String {
    match place {
        Location::Remote(url) => url.host.clone(),
        _ => "local".to_owned(),
    }
}

fn unix_seconds(time: SystemTime) -> f64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH);
    // Milliseconds are fine enough, and read better.
    (since.unwrap_or_default().as_secs_f64() * 1000.0).round() / 1000.0
}

fn read(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// The value that a file of an earlier run has.
fn kept(text: &str, name: &str) -> Option<f64> {
    let mut lines = text.lines();
    let line = lines.find(|line| line.strip_prefix(name).is_some_and(|l| l.starts_with('{')))?;
    let value: f64 = line.rsplit(' ').next()?.parse().ok()?;
    value.is_finite().then_some(value)
}

/// In the same directory, under a name that no collector takes up, and readable as the user's files
/// are.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let mut name = std::ffi::OsString::from(".");
    name.push(path.file_name().ok_or(io::ErrorKind::InvalidInput)?);
    name.push(format!(".{}.part", std::process::id()));
    let fresh = path.with_file_name(name);
    let written = File::create(&fresh)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .and_then(|()| fs::rename(&fresh, path));
    if written.is_err() {
        // It may never have been there.
        let _ = fs::remove_file(&fresh);
    }
    written
}
