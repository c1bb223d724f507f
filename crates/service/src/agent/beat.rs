//! A file that says that the agent runs, and whether the service answers it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use godwit_service_api::agent::LEASE_SECONDS;
use tokio::time::Instant;

/// Name of the file in the agent's directory.
pub(crate) const BEAT_FILE: &str = "beat";

/// Time between two writes of it.
pub(crate) const BEAT_PERIOD: Duration = Duration::from_secs(10);

/// Without an answer for so long the lease has ended for long.
const ANSWER_LIMIT: Duration = Duration::from_secs(2 * LEASE_SECONDS);

pub(super) struct Beat {
    path: PathBuf,
    answered: Option<Instant>,
    written: Option<Instant>,
}

impl Beat {
    pub(super) fn new(state: &Path) -> Self {
        Self {
            path: state.join(BEAT_FILE),
            answered: None,
            written: None,
        }
    }

    pub(super) fn answered(&mut self, now: Instant) {
        if self.answered.replace(now).is_none() {
            self.write(now);
        }
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if self.written.is_none_or(|last| now >= last + BEAT_PERIOD) {
            self.write(now);
        }
    }

    fn write(&mut self, now: Instant) {
        let is_answered = self.answered.is_some_and(|last| now < last + ANSWER_LIMIT);
        let text = if is_answered {
            "answered\n"
        } else {
            "silent\n"
        };
        if let Err(error) = fs::write(&self.path, text) {
            tracing::debug!(path = %self.path.display(), %error, "the beat is not written");
        }
        self.written = Some(now);
    }
}

impl Drop for Beat {
    /// The agent has ended; one that is killed leaves the file, which grows old.
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_tells_an_answer_from_a_silence() {
        let state = tempfile::tempdir().unwrap();
        let text = || fs::read_to_string(state.path().join(BEAT_FILE)).unwrap();
        let start = Instant::now();
        let mut beat = Beat::new(state.path());
        beat.tick(start);
        assert_eq!(text(), "silent\n");
        beat.answered(start);
        assert_eq!(text(), "answered\n");
        beat.tick(start + ANSWER_LIMIT);
        assert_eq!(text(), "silent\n");
    }
}
