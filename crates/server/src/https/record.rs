//! What the audit log and the metrics record of a connection.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_proto::{FtpPath, error::StorageFailure};
use tracing::info;

use crate::{
    access::{admission::ConnectionPermit, channel_quota::Channels},
    observe::{
        audit::Audit,
        class::Class,
        event::{Command, Entry, Flow, Progress, Running, What, Who, Wire},
    },
};

/// Between two reports of a transfer that runs.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// Records events of one user of a connection.
#[derive(Clone)]
pub(super) struct Recorder {
    pub(super) permit: Arc<ConnectionPermit>,
    pub(super) audit: Arc<Audit>,
    pub(super) who: Arc<Who>,
}

impl Recorder {
    pub(super) fn record(&self, entry: &Entry) {
        self.permit.connection_metrics().observe(&self.who, entry);
        self.audit.record(&self.who, entry);
    }

    /// Records a change that was made, or not.
    pub(super) fn change<T>(&self, entry: Entry, result: &Result<T, StorageFailure>) {
        let failure = result.as_ref().err();
        self.record(&entry.class(failure.map(Into::into)).ended(failure));
    }
}

/// A transfer. One that is dropped before its end was cut short.
pub(super) struct Transfer {
    recorder: Recorder,
    what: What,
    path: FtpPath,
    block: u64,
    began: Instant,
    reported: Instant,
    bytes: u64,
    ended: bool,
}

impl Transfer {
    /// `block`: bytes of a chunk.
    pub(super) fn begin(recorder: &Recorder, what: What, path: &FtpPath, block: usize) -> Self {
        let now = Instant::now();
        Self {
            recorder: recorder.clone(),
            what,
            path: path.clone(),
            block: block as u64,
            began: now,
            reported: now,
            bytes: 0,
            ended: false,
        }
    }

    pub(super) fn moved(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        if self.reported.elapsed() < REPORT_EVERY {
            return;
        }
        self.reported = Instant::now();
        let flow = Flow {
            bytes: self.bytes,
            retransmitted: 0,
        };
        let running = Running {
            what: self.what,
            path: self.path.to_string(),
            flow,
        };
        let metrics = self.recorder.permit.connection_metrics();
        metrics.progress(&Progress {
            transfer: Some(running),
            channels: Channels::default(),
        });
    }

    /// `failure`: why not.
    pub(super) fn end(&mut self, failure: Option<(Class, &str)>) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let took = self.began.elapsed();
        let error = failure.map(|(_, error)| error);
        let verb = match self.what {
            What::Get => "send",
            What::Put => "receive",
            _ => "list",
        };
        let who = &self.recorder.who;
        info!(
            session = who.session,
            peer = %who.peer,
            user = ?who.account.as_deref().unwrap_or(""),
            verb,
            path = ?self.path,
            bytes = self.bytes,
            seconds = took.as_secs_f64(),
            error,
            "HTTPS transfer ends"
        );
        let command = match self.what {
            What::Put => Command::Stor,
            What::Get => Command::Retr,
            _ => Command::Mlsd,
        };
        let entry = Entry::new(self.what)
            .path(&self.path)
            .moved(self.bytes, took)
            .wire(Wire {
                command,
                buffer: 0,
                block: self.block,
                streams: 1,
            })
            .class(failure.map(|(class, _)| class))
            .ended(error);
        self.recorder.record(&entry);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        self.end(Some((Class::ConnectionLost, "the connection ended")));
    }
}
