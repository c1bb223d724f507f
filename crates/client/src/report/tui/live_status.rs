//! Each transfer publishes its state to the user's other transfers.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;

use super::history::TransferHistory;
use crate::{
    local::presence::{Presence, user_folder},
    report::{
        events::{Event, FileEnd, Observer},
        progress::Snapshot,
    },
};

/// The name of the presence group.
pub(crate) const NAME: &str = "running";

/// Time between two publications.
const EVERY: Duration = Duration::from_secs(1);

/// Stands between a job and its observer.
pub(crate) struct LiveStatus {
    observer: Arc<dyn Observer>,
    presence: Presence,
    state: Mutex<StatusState>,
}

struct StatusState {
    history: TransferHistory,
    began: Instant,
    last: Option<Instant>,
}

impl LiveStatus {
    /// Wraps `observer` and publishes the state, if the group can be joined.
    pub(crate) fn through(observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
        let presence = user_folder().and_then(|folder| Presence::join(&folder, NAME));
        match presence {
            Ok(presence) => Arc::new(Self {
                observer,
                presence,
                state: Mutex::new(StatusState {
                    history: TransferHistory {
                        pid: std::process::id(),
                        ..TransferHistory::default()
                    },
                    began: Instant::now(),
                    last: None,
                }),
            }),
            Err(error) => {
                tracing::debug!(%error, "this transfer will not be seen by godwit top");
                observer
            }
        }
    }
}

impl Observer for LiveStatus {
    fn on_event(&self, event: &Event) {
        let mut state = self.state.lock();
        state.history.on_event(event);
        drop(state);
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
            let mut state = self.state.lock();
            let StatusState {
                history,
                began,
                last,
            } = &mut *state;
            history.on_progress(now, began.elapsed().as_secs_f64());
            if last.is_none_or(|last| last.elapsed() >= EVERY) {
                *last = Some(Instant::now());
                if let Ok(text) = serde_json::to_string(history) {
                    // If that cannot be written, no reader can see it either.
                    let _ = self.presence.publish(&text);
                }
            }
        }
        self.observer.on_progress(progress);
    }

    fn on_output(&self, line: &[u8]) {
        self.observer.on_output(line);
    }
}
