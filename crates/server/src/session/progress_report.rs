//! What a session reports to the metrics while a transfer runs.

use std::time::{Duration, Instant};

use super::{Session, Transfer};
use crate::observe::event::{Progress, Running, What};

/// Between two reports on a transfer.
const EVERY: Duration = Duration::from_secs(1);

/// Between two reports on idle data channels.
const IDLE_EVERY: Duration = Duration::from_secs(10);

impl Session {
    /// A transfer starts.
    pub(super) fn schedule_progress(&mut self) {
        let soon = Instant::now() + EVERY;
        self.next_progress_at = Some(self.next_progress_at.map_or(soon, |at| at.min(soon)));
    }

    /// Reports progress and schedules the next report: an idle session sends none.
    pub(super) fn publish_progress(&mut self) {
        let transfer = self.transfer.as_deref().map(|transfer| Running {
            what: transfer.what(),
            path: transfer.path.to_string(),
            flow: transfer.running.flow(),
        });
        let channels = self.channels.count();
        let every = match (&transfer, channels.now) {
            (Some(_), _) => Some(EVERY),
            (None, 1..) => Some(IDLE_EVERY),
            (None, 0) => None,
        };
        self.next_progress_at = every.map(|every| Instant::now() + every);
        let progress = Progress { transfer, channels }.bounded();
        self.permit.connection_metrics().progress(&progress);
        self.service.audit.progress(progress);
    }
}

impl Transfer {
    pub(super) fn what(&self) -> What {
        match self.verb {
            "send" => What::Get,
            "receive" => What::Put,
            _ => What::List,
        }
    }
}
