//! The audit log: who did what, from which address, as which account, and how it ended. One JSON
//! object a line, written at once.
//!
//! ```text
//!   {"time":"…Z","session":7,"peer":"192.0.2.1:4711","identity":"/O=Grid/CN=Jo","account":"jo",
//!    "event":"put","path":"/f","octets":12,"result":"done"}
//! ```
//! The transfer log has transfers alone, in another server's format: [`transfers`].
//!
//! To rotate a log, rename the file and send SIGHUP. It has no secrets: passwords and tokens do not
//! come here.

mod transfers;

use crate::observe::event::{Entry, Who};
use std::{
    fs::{File, OpenOptions},
    io,
    os::unix::fs::{FileExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use godwit_engine::host::line_log::LineLog;
use godwit_proto::timestamp::Timestamp;
use serde::Serialize;
use tracing::{debug, error};

use super::event::Progress;
use crate::config::ServerSettings;

/// The open logs.
#[derive(Default)]
pub(crate) struct Audit {
    events: Mutex<Target>,
    transfers: Mutex<Option<TransferLog>>,
}

/// The transfer log, and the name of this host in it.
struct TransferLog {
    log: LineLog<File>,
    host: String,
}

#[derive(Default)]
enum Target {
    #[default]
    Nothing,
    File(LineLog<File>),
    /// The monitor, which has the file.
    Monitor(Arc<dyn Report>),
}

/// How the process of a session reports to the monitor, which records its events.
pub(crate) trait Report: Send + Sync {
    /// Reports an event.
    fn event(&self, event: &Entry) -> io::Result<()>;

    /// Reports progress.
    fn progress(&self, progress: Progress) -> io::Result<()>;
}

/// Why a log cannot be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot write the log {path}: {error}")]
pub struct AuditError {
    /// Which.
    path: PathBuf,
    /// Why.
    error: io::Error,
}

#[derive(Serialize)]
struct Line<'a> {
    time: String,
    #[serde(flatten)]
    who: &'a Who,
    #[serde(flatten)]
    event: &'a Entry,
}

impl Audit {
    /// Of a session's process.
    pub(crate) fn to_monitor(monitor: Arc<dyn Report>) -> Self {
        Self {
            events: Mutex::new(Target::Monitor(monitor)),
            transfers: Mutex::default(),
        }
    }

    /// Opens the files that the settings name, for appending; only their owner may read new ones.
    /// Without a file nothing is logged from now on. If this fails, open files stay open.
    pub(crate) fn open(&self, settings: &ServerSettings) -> Result<(), AuditError> {
        let events = settings.audit_log.as_deref().map(append).transpose()?;
        let transfers = settings.transfer_log.as_deref().map(append).transpose()?;
        *lock(&self.events) = match events {
            Some(log) => Target::File(log),
            None => Target::Nothing,
        };
        *lock(&self.transfers) = transfers.map(|log| TransferLog {
            log,
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
        });
        Ok(())
    }

    /// Writes one line. A failure stops no session; the server's log reports it.
    pub(crate) fn record(&self, who: &Who, event: &Entry) {
        if let Some(TransferLog { log, host }) = &mut *lock(&self.transfers)
            && let Some(line) = transfers::line(SystemTime::now(), host, who, event)
            && let Err(error) = log.append(line.as_bytes())
        {
            error!(%error, line, "the transfer log cannot be written");
        }
        match &mut *lock(&self.events) {
            Target::Nothing => {}
            Target::File(log) => {
                let line = line(SystemTime::now(), who, event);
                if let Err(error) = log.append(line.as_bytes()) {
                    error!(%error, line, "the audit log cannot be written");
                }
            }
            Target::Monitor(monitor) => {
                if let Err(error) = monitor.event(event) {
                    error!(%error, ?event, "the audit log cannot be written");
                }
            }
        }
    }

    /// Reports progress to the monitor, if there is one.
    pub(crate) fn progress(&self, progress: Progress) {
        if let Target::Monitor(monitor) = &*lock(&self.events)
            && let Err(error) = monitor.progress(progress)
        {
            debug!(%error, "cannot report progress");
        }
    }
}

fn lock<T>(log: &Mutex<T>) -> MutexGuard<'_, T> {
    // A panic leaves a line cut short at worst.
    log.lock().unwrap_or_else(PoisonError::into_inner)
}

fn append(path: &Path) -> Result<LineLog<File>, AuditError> {
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .mode(0o600)
        .open(path);
    let file = file.map_err(|error| AuditError {
        path: path.to_owned(),
        error,
    })?;
    let torn = ends_in_part_of_a_line(path, &file);
    Ok(LineLog::new(file, torn))
}

/// Of a regular file; false where it cannot be read.
fn ends_in_part_of_a_line(path: &Path, file: &File) -> bool {
    let Some(last) = (file.metadata().ok())
        .filter(|found| found.is_file())
        .and_then(|found| found.len().checked_sub(1))
    else {
        return false;
    };
    let mut byte = [0];
    let read = File::open(path).and_then(|file| file.read_exact_at(&mut byte, last));
    read.is_ok() && byte != *b"\n"
}

pub(crate) fn line(now: SystemTime, who: &Who, event: &Entry) -> String {
    let since = now.duration_since(SystemTime::UNIX_EPOCH);
    let since = since.unwrap_or_default();
    let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
    let t = Timestamp(seconds).to_string();
    let time = format!(
        "{}-{}-{}T{}:{}:{}.{:03}Z",
        &t[..4],
        &t[4..6],
        &t[6..8],
        &t[8..10],
        &t[10..12],
        &t[12..],
        since.subsec_millis()
    );
    let event = &Entry {
        wire: None,
        method: None,
        class: None,
        retransmitted: None,
        channels: None,
        ..event.clone()
    };
    let json = serde_json::to_string(&Line { time, who, event });
    let json = json.expect("strings and numbers always have JSON");
    let mut line = String::with_capacity(json.len() + 1);
    for c in json.chars() {
        // JSON lets those above 0x1f stand, and terminals act on some of them.
        match c.is_control() {
            true => line.push_str(&format!("\\u{:04x}", u32::from(c))),
            false => line.push(c),
        }
    }
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_proto::FtpPath;

    use super::*;
    use crate::observe::event::{TEXT_MAX, What};

    fn who() -> Who {
        Who {
            session: 7,
            peer: "192.0.2.1:4711".parse().unwrap(),
            identity: Some("/O=Grid/CN=Jo".to_owned()),
            account: Some("jo".to_owned()),
        }
    }

    #[test]
    fn a_line_is_one_bounded_json_object() {
        let path = FtpPath::new("/a\u{1b}[31m\"\u{9b}\u{7f}b".to_owned()).unwrap();
        let event = Entry::new(What::Put)
            .path(&path)
            .moved(12, Duration::from_millis(1500))
            .ended(Some("x".repeat(100_000)));
        let now = SystemTime::UNIX_EPOCH + Duration::from_millis(951_782_400_125);
        let line = line(now, &who(), &event);
        let start = "{\"time\":\"2000-02-29T00:00:00.125Z\",\"session\":7,\
            \"peer\":\"192.0.2.1:4711\",\"identity\":\"/O=Grid/CN=Jo\",\"account\":\"jo\",\
            \"event\":\"put\",\"path\":\"/a\\u001b[31m\\\"\\u009b\\u007fb\",\"octets\":12,\
            \"seconds\":1.5,\"result\":\"failed\",\"reason\":\"xxx";
        assert!(line.starts_with(start), "{line}");
        assert!(line.len() < start.len() + TEXT_MAX + 10);
        assert!(line.ends_with("\"}\n") && !line[..line.len() - 1].contains(char::is_control));
        let value: serde_json::Value = serde_json::from_str(&line).unwrap();
        assert_eq!(value["path"], path.to_string());
    }

    #[test]
    fn a_line_that_a_crash_has_torn_does_not_join_the_next() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit");
        for (before, after) in [("", "x\n"), ("a\n", "a\nx\n"), ("a\nb", "a\nb\nx\n")] {
            std::fs::write(&path, before).unwrap();
            append(&path).unwrap().append(b"x\n").unwrap();
            assert_eq!(std::fs::read_to_string(&path).unwrap(), after);
        }
    }

    #[test]
    fn lines_go_to_the_file_that_has_the_name_when_it_was_opened() {
        let folder = tempfile::tempdir().unwrap();
        let [path, old] = ["audit", "audit.1"].map(|name| folder.path().join(name));
        let audit = Audit::default();
        let to = |path: &Path| ServerSettings {
            audit_log: Some(path.to_owned()),
            ..ServerSettings::new("/", crate::config::Anonymous::Off)
        };
        let record = |name: &str| {
            audit.record(&who(), &Entry::new(What::Login).to(name));
        };
        record("without a listener");
        audit.open(&to(&path)).unwrap();
        record("one");
        std::fs::rename(&path, &old).unwrap();
        record("two");
        audit.open(&to(&path)).unwrap();
        record("three");
        assert!(audit.open(&to(folder.path())).is_err());
        record("four");
        let lines = |path| std::fs::read_to_string(path).unwrap();
        let texts = [lines(&old), lines(&path)].map(|text| text.lines().count());
        assert_eq!(texts, [2, 2]);
        assert!(lines(&old).contains("\"to\":\"two\"") && !lines(&old).contains("listener"));
    }
}
