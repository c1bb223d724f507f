//! Each transfer tells the user's others how it is.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use super::story::Story;
use crate::{
    events::{Event, Observer},
    progress::Snapshot,
    roster::{Roster, user_folder},
};

/// Where they meet.
pub(super) const NAME: &str = "running";

/// Between two tellings.
const EVERY: Duration = Duration::from_secs(1);

/// Stands between a job and its observer.
pub(crate) struct Published {
    observer: Arc<dyn Observer>,
    roster: Roster,
    told: Mutex<Told>,
}

struct Told {
    story: Story,
    began: Instant,
    last: Option<Instant>,
}

impl Published {
    /// `observer`, and the user's others too, where they can be told.
    pub(crate) fn through(observer: Arc<dyn Observer>) -> Arc<dyn Observer> {
        let roster = user_folder().and_then(|folder| Roster::join(&folder, NAME));
        match roster {
            Ok(roster) => Arc::new(Self {
                observer,
                roster,
                told: Mutex::new(Told {
                    story: Story {
                        pid: std::process::id(),
                        ..Story::default()
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

impl Observer for Published {
    fn on_event(&self, event: &Event) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        told.story.hears(event);
        drop(told);
        self.observer.on_event(event);
    }

    fn hears_dialogue(&self) -> bool {
        self.observer.hears_dialogue()
    }

    fn on_progress(&self, progress: Option<&Snapshot>) {
        if let Some(now) = progress {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let Told { story, began, last } = &mut *told;
            story.sees(now, began.elapsed().as_secs_f64());
            if last.is_none_or(|last| last.elapsed() >= EVERY) {
                *last = Some(Instant::now());
                if let Ok(text) = serde_json::to_string(story) {
                    // Where that cannot be written there is nobody to see it.
                    let _ = self.roster.say(&text);
                }
            }
        }
        self.observer.on_progress(progress);
    }

    fn on_output(&self, line: &[u8]) {
        self.observer.on_output(line);
    }
}
