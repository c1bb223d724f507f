//! Notifies the observer of a run, and its event log.

use std::{fmt::Display, sync::Arc};

use super::events::{Event, EventLog, FileEnd, Observer};

/// Where events go.
pub(crate) struct Reporter {
    observer: Arc<dyn Observer>,
    log: Option<EventLog>,
}

impl Reporter {
    pub(crate) fn new(observer: Arc<dyn Observer>, log: Option<EventLog>) -> Self {
        Self { observer, log }
    }

    pub(crate) fn emit(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.append(event);
        }
        self.observer.on_event(event);
    }

    /// A file of the plan ended.
    pub(crate) fn ended(&self, path: &str, end: &FileEnd<'_>) {
        self.observer.on_file(path, end);
    }

    /// A feature is missing, and what follows from that.
    pub(crate) fn note(&self, text: impl Display) {
        self.emit(&Event::Note {
            text: text.to_string(),
        });
    }

    /// A message that the user must see.
    pub(crate) fn warn(&self, text: impl Display) {
        self.emit(&Event::Warning {
            text: text.to_string(),
        });
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer.as_ref()
    }

    pub(crate) fn finish_log(&self) -> std::io::Result<()> {
        self.log.as_ref().map_or(Ok(()), EventLog::finish)
    }
}
