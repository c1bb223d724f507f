//! What the original would print: URLs, rates, the dialogue, errors.

use std::{
    collections::HashSet,
    io,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_engine::host::terminal::escaped;
use parking_lot::{Mutex, MutexGuard};

use super::{
    options::{Options, Verbosity},
    url_text::{encoded, split},
};
use crate::{
    report::{
        events::{Event, FileState, Observer},
        progress::Snapshot,
    },
    spec::JobSpec,
};

/// Time between two lines of rates.
const RATES_EVERY: Duration = Duration::from_secs(1);

/// Where text goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Prints; line ends are part of the text. It says whether it could.
pub type Printer = Arc<dyn Fn(Stream, &[u8]) -> io::Result<()> + Send + Sync>;

/// Sees the jobs of a command line, one after the other.
pub(crate) struct UrlCopyReporter {
    say: Printer,
    verbosity: Verbosity,
    debugs: bool,
    continues: bool,
    state: Mutex<ReporterState>,
}

#[derive(Default)]
struct ReporterState {
    job: Option<RunningJob>,
    /// Names of sources that are copied.
    done: HashSet<String>,
    /// Paths of what a dry run would copy.
    wanted: Vec<String>,
    errors: u64,
    rates_shown: bool,
}

/// The job that runs.
struct RunningJob {
    /// What is before the names of files, at either end.
    source: String,
    destination: String,
    /// It is one file, and told of.
    is_told: bool,
    started: Instant,
    last: (Instant, u64),
}

impl UrlCopyReporter {
    pub(crate) fn new(options: &Options, say: Printer) -> Self {
        Self {
            say,
            verbosity: options.verbosity,
            debugs: options.debugs,
            continues: options.continues,
            state: Mutex::default(),
        }
    }

    /// A job begins. `one`: it is one file, and these are its URLs.
    pub(crate) fn begins(&self, spec: &JobSpec, one: Option<(&str, &str)>) {
        let now = Instant::now();
        let source = spec
            .sources
            .first()
            .map_or(String::new(), |s| s.to_string());
        let source = match spec.files_from {
            Some(_) => source,
            None => split_text(&source).0.to_owned(),
        };
        if let Some((source, destination)) = one {
            self.urls(source, destination);
        }
        self.lock().job = Some(RunningJob {
            source,
            destination: spec.destination.to_string(),
            is_told: one.is_some(),
            started: now,
            last: (now, 0),
        });
    }

    /// It has ended after so many bytes.
    pub(crate) fn ends(&self, bytes: u64) {
        let job = self.lock().job.take();
        if let (Some(job), Verbosity::Rates) = (job, self.verbosity) {
            let all = job.started.elapsed();
            self.rates(bytes, 0, all, all);
            self.lock().rates_shown = true;
        }
    }

    /// A pair of the command line has failed.
    pub(crate) fn error(&self, why: impl std::fmt::Display) {
        self.lock().errors += 1;
        let word = match self.continues {
            true => "continuing on error",
            false => "error",
        };
        self.say(
            Stream::Err,
            &format!("\n{word}: {}\n", lines(&why.to_string())),
        );
    }

    /// The closing line: how many errors there were.
    pub(crate) fn close(&self) -> u64 {
        let (errors, rates_shown) = {
            let state = self.lock();
            (state.errors, state.rates_shown)
        };
        if self.continues && errors > 0 {
            let many = match errors {
                1 => "There was an error with 1 transfer.".to_owned(),
                n => format!("There were errors with {n} transfers."),
            };
            self.say(Stream::Err, &format!("\nerror: {many}\n"));
        }
        if rates_shown {
            self.say(Stream::Out, "\n");
        }
        errors
    }

    pub(crate) fn errors(&self) -> u64 {
        self.lock().errors
    }

    /// A closed stream is ignored: there is no other place to report it.
    pub(crate) fn say(&self, stream: Stream, text: &str) {
        let _ = (self.say)(stream, text.as_bytes());
    }

    /// Output for programs, unchanged.
    pub(crate) fn hand_out(&self, bytes: &[u8]) -> io::Result<()> {
        (self.say)(Stream::Out, bytes)
    }

    /// That a source of this name, as events have it, is copied.
    pub(crate) fn is_done(&self, source: &str) -> bool {
        self.lock().done.contains(source)
    }

    /// Paths of a dry run, once.
    pub(crate) fn wanted(&self) -> Vec<String> {
        std::mem::take(&mut self.lock().wanted)
    }

    fn urls(&self, source: &str, destination: &str) {
        if self.verbosity == Verbosity::Nothing {
            return;
        }
        let ((above, name), (below, target)) = (split_text(source), split_text(destination));
        let mut text = format!("Source: {above}\nDest:   {below}\n");
        text += &match target.is_empty() || name == target {
            true => format!("  {name}\n"),
            false => format!("  {name}  ->  {target}\n"),
        };
        if self.verbosity == Verbosity::Rates {
            text.push('\n');
        }
        self.say(Stream::Out, &text);
    }

    #[allow(clippy::cast_precision_loss)] // two digits are shown
    fn rates(&self, bytes: u64, before: u64, since: Duration, all: Duration) {
        let rate = |bytes: u64, time: Duration| match time.as_secs_f64() {
            seconds if seconds > 0.0 => bytes as f64 / seconds / f64::from(1 << 20),
            _ => 0.0,
        };
        let (average, now) = (rate(bytes, all), rate(bytes.saturating_sub(before), since));
        let text = format!(" {bytes:12} bytes {average:12.2} MB/sec avg {now:12.2} MB/sec inst\r");
        self.say(Stream::Out, &text);
    }

    fn lock(&self) -> MutexGuard<'_, ReporterState> {
        self.state.lock()
    }
}

impl Observer for UrlCopyReporter {
    fn on_event(&self, event: &Event) {
        match event {
            Event::File {
                state: FileState::Failed,
                path,
                error,
                ..
            } => match error {
                Some(error) => self.error(error.explained()),
                None => self.error(format_args!("{path}: failed")),
            },
            Event::File { path, .. } => {
                let told = {
                    let mut state = self.lock();
                    state.done.insert(path.clone());
                    state.job.as_ref().is_none_or(|job| job.is_told)
                };
                if !told {
                    self.file(path);
                }
            }
            Event::Difference {
                action: "copy",
                path,
                dry_run: true,
                ..
            } => self.lock().wanted.push(path.clone()),
            Event::Warning { text } => {
                self.say(Stream::Err, &format!("\nwarning: {}\n", lines(text)))
            }
            Event::Dialogue { host, sent, line } if self.debugs => {
                let what = match sent {
                    true => "sending command to",
                    false => "response from",
                };
                let line = lines(line);
                self.say(Stream::Err, &format!("debug: {what} {host}:\n{line}\n\n"));
            }
            _ => {}
        }
    }

    fn hears_dialogue(&self) -> bool {
        self.debugs
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        let (Some(snapshot), Verbosity::Rates) = (progress, self.verbosity) else {
            return;
        };
        let now = Instant::now();
        let (before, since, all) = {
            let mut state = self.lock();
            let Some(job) = &mut state.job else { return };
            let (last, before) = job.last;
            if now - last < RATES_EVERY {
                return;
            }
            job.last = (now, snapshot.bytes);
            let all = now - job.started;
            state.rates_shown = true;
            (before, now - last, all)
        };
        self.rates(snapshot.bytes, before, since, all);
    }
}

/// Each line of a foreign text as a terminal may show it.
fn lines(text: &str) -> String {
    let lines: Vec<_> = text.split('\n').map(escaped).collect();
    lines.join("\n")
}

impl UrlCopyReporter {
    /// A file among others is complete.
    fn file(&self, path: &str) {
        let (source, destination) = {
            let state = self.lock();
            let Some(job) = &state.job else { return };
            let below = path.strip_prefix(&job.source).unwrap_or(path);
            let below = below.trim_start_matches('/');
            let above = job.destination.trim_end_matches('/');
            (as_url(path), as_url(&format!("{above}/{below}")))
        };
        self.urls(&source, &destination);
    }
}

/// A path of ours as the original shows it.
fn as_url(place: &str) -> String {
    match place.starts_with('/') {
        true => format!("file://{}", String::from_utf8_lossy(&encoded(place))),
        false => place.to_owned(),
    }
}

fn split_text(text: &str) -> (&str, &str) {
    let (above, _) = split(text.as_bytes());
    text.split_at(above.len())
}
