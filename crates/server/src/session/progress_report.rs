//! What a session tells of itself while something moves, for who counts.

use std::time::{Duration, Instant};

use super::{Session, Transfer};
use crate::observe::event::{Progress, Running, What};

/// Between two words on a transfer.
const EVERY: Duration = Duration::from_secs(1);

/// Between two words on data channels that carry nothing.
const IDLE_EVERY: Duration = Duration::from_secs(10);

impl Session {
    /// Something begins to move.
    pub(super) fn schedule_progress(&mut self) {
        let soon = Instant::now() + EVERY;
        self.next_progress_at = Some(self.next_progress_at.map_or(soon, |at| at.min(soon)));
    }

    /// Tells how far it is, and when to do so again: an idle session tells nothing.
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
