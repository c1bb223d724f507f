//! Events of a running job, and the event log.
//!
//! One JSON object a line. Every object has `event` (its name) and `t` (seconds since the start of
//! the process); keys are in snake case and carry their units. Readers must ignore keys and events
//! that they do not know.

use std::{
    fs::File,
    io::{BufWriter, Write},
    path::Path,
    sync::Mutex,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};

/// An event.
#[derive(Clone, Debug, Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Event {
    /// First of a job.
    Start {
        /// The command line, secrets masked.
        command: String,
        /// Sources and, last, the destination.
        endpoints: Vec<String>,
        /// Ours.
        version: &'static str,
    },
    /// The plan is complete.
    Plan {
        /// Files.
        files: u64,
        /// Bytes of those whose size is known.
        bytes: u64,
    },
    /// The ends of a sync differ.
    Difference {
        /// The action: `copy`, `make` (a directory), `set` (permissions), `delete`.
        action: &'static str,
        /// `missing`, `size`, `mtime`, `unknown` (of what size a file is), `mode`, `extra`.
        reason: &'static str,
        /// Below the top, lossy; directories end in a slash.
        path: String,
        /// No action is taken.
        dry_run: bool,
    },
    /// A setting was measured.
    Epoch {
        /// The setting.
        setting: SettingView,
        /// Measured time, without settling and idle time.
        seconds: f64,
        /// Bytes that arrived in it.
        bytes: u64,
        /// `bytes` x 8 / `seconds`.
        goodput_bps: f64,
        /// Data channels at its end.
        channels: u32,
        /// Segments sent again over segments sent; absent if the kernel does not report it.
        #[serde(skip_serializing_if = "Option::is_none")]
        loss_ratio: Option<f64>,
        /// Smoothed round-trip time; absent if the kernel does not report it.
        #[serde(skip_serializing_if = "Option::is_none")]
        rtt_ms: Option<f64>,
        /// What limited it, a word of [`godwit_tune::Bottleneck`]; absent if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        limited_by: Option<&'static str>,
        /// Where files pass through this machine: `source` or `destination`, the server that the
        /// other waited for most of the time; absent if neither.
        #[serde(skip_serializing_if = "Option::is_none")]
        slower_side: Option<&'static str>,
    },
    /// A setting was chosen.
    Decision {
        /// Where files pass through this machine, and each server has a setting of its own: whose
        /// it is, `source` or `destination`.
        #[serde(skip_serializing_if = "Option::is_none")]
        side: Option<&'static str>,
        /// The previous setting; absent at the start.
        #[serde(skip_serializing_if = "Option::is_none")]
        from: Option<SettingView>,
        /// The new setting.
        to: SettingView,
        /// Why.
        reason: String,
    },
    /// A session with authenticated ends started.
    Secured {
        /// URL without path.
        endpoint: String,
        /// Subject of the server, `/C=.../CN=...`.
        server: String,
        /// Subject of the user.
        user: String,
        /// TLS version and cipher suite of the control channel.
        control: String,
        /// Protection of data channels: `DCAU N`, or `DCAU A, PROT P`.
        data: String,
    },
    /// Data channels opened or closed.
    Channel {
        /// What happened to them.
        state: ChannelState,
        /// How many.
        count: u32,
        /// URL without path.
        endpoint: String,
    },
    /// An attempt failed and is repeated.
    Retry {
        /// URL or path of the source.
        path: String,
        /// Bytes concerned, half-open; absent where the whole file is.
        #[serde(skip_serializing_if = "Option::is_none")]
        range: Option<[u64; 2]>,
        /// Which attempt failed, from 1.
        attempt: u32,
        /// Why.
        error: String,
    },
    /// A file outside the pipeline of small files starts.
    Begins {
        /// URL or path of the source.
        path: String,
        /// Bytes of it; absent if unknown.
        #[serde(skip_serializing_if = "Option::is_none")]
        bytes: Option<u64>,
    },
    /// A file is complete or failed.
    File {
        /// URL or path of the source.
        path: String,
        /// Bytes moved, repeated ones included.
        bytes: u64,
        /// Bytes of the copy; absent if it failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        size: Option<u64>,
        /// From its first attempt to its end.
        seconds: f64,
        /// `ALGORITHM:hex` where both ends agreed on it.
        #[serde(skip_serializing_if = "Option::is_none")]
        checksum: Option<String>,
        /// What each end computed it from.
        #[serde(skip_serializing_if = "Option::is_none")]
        computed: Option<Computed>,
        /// How it ended.
        state: FileState,
        /// Why it failed; the log has [`Error::explained`] and, as `code`, [`Error::code`].
        #[serde(
            flatten,
            skip_serializing_if = "Option::is_none",
            serialize_with = "explained"
        )]
        error: Option<Error>,
    },
    /// Last of a job.
    Summary(crate::report::summary::Summary),
    /// A feature is missing, and why.
    Note {
        /// One line.
        text: String,
    },
    /// A message for the user; the job continues.
    Warning {
        /// One line.
        text: String,
    },
    /// A line of the dialogue with a server, secrets masked.
    #[serde(skip)]
    Dialogue {
        /// Host of the server.
        host: String,
        /// True for lines that the client sent.
        sent: bool,
        /// The line.
        line: String,
    },
}

fn explained<S: serde::Serializer>(
    error: &Option<Error>,
    serializer: S,
) -> std::result::Result<S::Ok, S::Error> {
    #[derive(Serialize)]
    struct Explained {
        error: String,
        code: &'static str,
    }
    let explained = error.as_ref().map(|error| Explained {
        error: error.explained(),
        code: error.code(),
    });
    explained.serialize(serializer)
}

/// A setting as logs hold it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)] // godwit_tune::Setting, whose words the log keeps
pub struct SettingView {
    pub concurrency: u32,
    /// Of striped transfers, each of which has `parallelism` data channels a stripe.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub stripes: u32,
    pub parallelism: u32,
    pub pipelining: u32,
}

fn one() -> u32 {
    1
}

#[allow(clippy::trivially_copy_pass_by_ref, reason = "serde calls it so")]
fn is_one(n: &u32) -> bool {
    *n == 1
}

impl From<godwit_tune::Setting> for SettingView {
    fn from(s: godwit_tune::Setting) -> Self {
        Self {
            concurrency: s.concurrency,
            stripes: 1,
            parallelism: s.parallelism,
            pipelining: s.pipelining_depth,
        }
    }
}

/// What happened to data channels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
#[allow(missing_docs)] // the word is the documentation
pub enum ChannelState {
    Opened,
    Retired,
    Lost,
}

/// What checksums were computed from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[allow(missing_docs)] // the names are the documentation
pub struct Computed {
    pub source: ByteSource,
    pub destination: ByteSource,
}

/// Whose bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ByteSource {
    /// What a server read back.
    ServerFile,
    /// What was read back here.
    ClientFile,
    /// What passed by here.
    ClientStream,
}

/// How a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FileState {
    /// Complete, and both ends have the same checksum.
    Verified,
    /// Complete, not compared.
    Done,
    /// Failed.
    Failed,
}

/// How a file ended, for programs that follow each file; `Event::File` says less and reads better.
#[derive(Clone, Copy, Debug)]
pub enum FileEnd<'a> {
    /// It is complete at the destination.
    Done {
        /// Bytes moved, repeated ones included.
        bytes: u64,
        /// Its size.
        size: u64,
        /// `ALGORITHM:hex` where both ends agreed on it.
        checksum: Option<&'a str>,
    },
    /// An earlier run of this job has completed it.
    DoneBefore {
        /// Its size.
        size: Option<u64>,
        /// As of `Done`, where both ends were compared now.
        checksum: Option<&'a str>,
    },
    /// The destination had it and keeps it, as the job asks.
    Kept,
    /// It is not copied: several jobs may, each a part of it, as the job asks.
    Divisible(Division<'a>),
    /// It is not there.
    Failed(&'a Error),
}

/// How several jobs may copy a file.
#[derive(Clone, Copy, Debug)]
pub struct Division<'a> {
    /// Name of the temporary file that takes the parts, beside the destination.
    pub temporary: &'a [u8],
    /// Bytes of the source.
    pub size: u64,
    /// When it was last changed, as [`crate::spec::NamePair::changed`].
    pub changed: i64,
    /// Where the destination is a bucket: the upload that the temporary file is.
    pub upload: Option<DividedUpload<'a>>,
}

/// An upload in parts to a bucket, which several jobs send.
#[derive(Clone, Copy, Debug)]
pub struct DividedUpload<'a> {
    /// For [`crate::spec::SharedUpload::known_as`]: name of the object, bytes of a part and of the
    /// object, and what the service and the object know it by.
    pub known_as: &'a str,
    /// Bytes of each part but the last: what a job sends begins at a multiple of it.
    pub part_bytes: u64,
}

/// Receives events. Called from the job's own thread, in order; must not block for long.
pub trait Observer: Send + Sync {
    /// An event.
    fn on_event(&self, event: &Event);
    /// True to receive [`Event::Dialogue`].
    fn hears_dialogue(&self) -> bool {
        false
    }
    /// A file of the plan ended; `path` is its source as [`Event::File`] has it.
    fn on_file(&self, path: &str, end: &FileEnd<'_>) {
        let _ = (path, end);
    }
    /// A file is copied by this job alone, although the job asks to divide such files.
    fn on_undivided(&self, path: &str, reason: &str) {
        let _ = (path, reason);
    }
    /// Progress is to be drawn: `None` at the end.
    fn on_progress(&self, progress: Option<&crate::report::progress::Snapshot>) {
        let _ = progress;
    }
    /// A line for standard output, without line end: results of `ls`, `stat` and the like.
    fn on_output(&self, line: &[u8]) {
        let _ = line;
    }
}

/// Time in which lines about files are written together.
const FLUSH_PAUSE: Duration = Duration::from_millis(200);

/// The event log.
pub struct EventLog {
    out: Mutex<LogWriter>,
    started: Instant,
}

struct LogWriter {
    file: BufWriter<File>,
    flushed: Instant,
}

#[derive(Serialize)]
struct LogLine<'a> {
    t: f64,
    #[serde(flatten)]
    event: &'a Event,
}

impl EventLog {
    /// Creates or empties `path`; `started` is when the process began.
    pub fn create(path: &Path, started: Instant) -> Result<Self> {
        let file = File::create(path)
            .map_err(|e| Error::local(format!("write event log {}", path.display()), &e))?;
        let writer = LogWriter {
            file: BufWriter::new(file),
            flushed: started,
        };
        Ok(Self {
            out: Mutex::new(writer),
            started,
        })
    }

    /// Appends a line. A log that cannot be written must not end a transfer: errors are returned
    /// once, by `finish`.
    pub fn append(&self, event: &Event) {
        if matches!(event, Event::Dialogue { .. }) {
            return;
        }
        let line = LogLine {
            t: self.started.elapsed().as_secs_f64(),
            event,
        };
        if let (Ok(text), Ok(mut out)) = (serde_json::to_string(&line), self.out.lock()) {
            let _ = writeln!(out.file, "{text}");
            // Programs read the log while it grows, perhaps through a pipe.
            let is_frequent = matches!(event, Event::File { .. } | Event::Difference { .. });
            if !is_frequent || out.flushed.elapsed() >= FLUSH_PAUSE {
                let _ = out.file.flush();
                out.flushed = Instant::now();
            }
        }
    }

    /// Writes what is still buffered.
    pub fn finish(&self) -> std::io::Result<()> {
        match self.out.lock() {
            Ok(mut out) => out.file.flush(),
            Err(_) => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_carry_name_and_time_and_no_dialogue() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("events");
        let log = EventLog::create(&path, Instant::now()).unwrap();
        log.append(&Event::Plan { files: 2, bytes: 7 });
        log.append(&Event::Dialogue {
            host: "h".into(),
            sent: true,
            line: "PASS ***".into(),
        });
        log.append(&Event::File {
            path: "/x".into(),
            bytes: 0,
            size: None,
            seconds: 0.0,
            checksum: None,
            computed: None,
            state: FileState::Failed,
            error: Some(Error::Missing { what: "/x".into() }),
        });
        log.append(&Event::Retry {
            path: "/x".into(),
            range: Some([0, 5]),
            attempt: 1,
            error: "lost".into(),
        });
        log.finish().unwrap();
        let text = std::fs::read_to_string(path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|l| serde_json::from_str(l).unwrap())
            .collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[0]["event"], "plan");
        assert_eq!(lines[0]["bytes"], 7);
        assert!(lines[0]["t"].as_f64().unwrap() >= 0.0);
        assert_eq!(
            lines[1]["error"],
            "/x: no such file or directory; check what you asked for"
        );
        assert_eq!(lines[1]["code"], "not_found");
        assert_eq!(lines[2]["range"], serde_json::json!([0, 5]));
    }
}
