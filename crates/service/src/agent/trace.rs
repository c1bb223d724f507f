//! What operators see of a unit in traces: a span of it, and spans of its files.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::{Duration, SystemTime},
};

use godwit_client::report::events::{Event, FileState};
use godwit_service_api::{
    agent::{FileEnd, FileOutcome, Grant, UnitFile, Work},
    job::FileError,
};
use opentelemetry::trace::SpanKind;
use parking_lot::Mutex;

use crate::{
    store::endpoint_of,
    traces::{Parent, Span, Traces},
};

/// Files of a unit that have a span each. Those that fail all have one.
const FILE_SPANS_MAX: usize = 100;

/// A unit that is a part of a trace.
pub(super) struct UnitTrace {
    traces: Traces,
    parent: Parent,
    span: Mutex<Span>,
    files: AtomicU64,
    failed: AtomicU64,
    bytes: AtomicU64,
    spans: AtomicUsize,
    /// Numbers in the job of files that have ended, until their spans are made.
    ended: Mutex<HashMap<String, u64>>,
}

impl UnitTrace {
    /// `None`: it is a part of no trace, or there are none here.
    pub(super) fn begin(traces: &Traces, grant: &Grant) -> Option<Arc<Self>> {
        let parent = grant.trace.as_deref().and_then(Parent::parse)?;
        let (name, ends) = match &grant.work {
            Work::Copy(files) => ("transfer", files.first().map(ends_of)),
            Work::List {
                source,
                destination,
            } => ("list", Some((source.as_str(), destination.as_str()))),
        };
        let mut span = traces.within(name, SpanKind::Consumer, Some(&parent));
        let parent = span.as_parent()?;
        span.set("godwit.job.id", grant.job.to_string());
        span.set("godwit.unit", grant.lease.unit);
        span.set("godwit.epoch", grant.lease.epoch);
        if let Some((source, destination)) = ends {
            let endpoint = |url| endpoint_of(url).unwrap_or_default();
            span.set("godwit.source", endpoint(source));
            span.set("godwit.destination", endpoint(destination));
        }
        Some(Arc::new(Self {
            traces: traces.clone(),
            parent,
            span: Mutex::new(span),
            files: AtomicU64::default(),
            failed: AtomicU64::default(),
            bytes: AtomicU64::default(),
            spans: AtomicUsize::default(),
            ended: Mutex::default(),
        }))
    }

    /// A file ended. `path` is its source as [`Event::File`] has it, where that follows.
    pub(super) fn file_ended(&self, path: Option<&str>, outcome: &FileOutcome) {
        let failed = matches!(outcome.end, FileEnd::Failed(_));
        let count = if failed { &self.failed } else { &self.files };
        count.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(outcome.bytes, Ordering::Relaxed);
        if let Some(path) = path
            && (failed || self.spans.fetch_add(1, Ordering::Relaxed) < FILE_SPANS_MAX)
        {
            self.ended.lock().insert(path.to_owned(), outcome.index);
        }
    }

    /// What the client says of it then.
    pub(super) fn on_event(&self, event: &Event) {
        let Event::File {
            path,
            bytes,
            seconds,
            state,
            error,
            ..
        } = event
        else {
            return;
        };
        let Some(index) = self.ended.lock().remove(path) else {
            return;
        };
        let took = Duration::try_from_secs_f64(*seconds).unwrap_or_default();
        let now = SystemTime::now();
        let since = now.checked_sub(took).unwrap_or(now);
        let within = (Some(&self.parent), since);
        let mut span = self.traces.begin("file", SpanKind::Internal, within);
        span.count("godwit.file", index);
        span.count("godwit.bytes", *bytes);
        let word = match state {
            FileState::Verified => "verified",
            FileState::Done => "done",
            FileState::Failed => "failed",
        };
        span.outcome(word, error.as_ref().map(|error| error.code()));
    }

    /// The unit ended, after so many bytes, those of files that have not ended among them.
    pub(super) fn end(&self, bytes: u64, error: Option<&FileError>, is_stopped: bool) {
        let mut span = self.span.lock();
        let failed = self.failed.load(Ordering::Relaxed);
        let of_files = self.bytes.load(Ordering::Relaxed);
        // Progress is reported now and then.
        span.count("godwit.bytes", bytes.max(of_files));
        span.count("godwit.files", self.files.load(Ordering::Relaxed));
        span.count("godwit.files.failed", failed);
        match error {
            _ if is_stopped => span.outcome("stopped", None),
            Some(error) => span.outcome("failed", Some(&error.code)),
            None if failed > 0 => span.outcome("failed", Some("files")),
            None => span.outcome("finished", None),
        }
        // It ends now.
        drop(std::mem::take(&mut *span));
    }
}

fn ends_of(file: &UnitFile) -> (&str, &str) {
    (&file.file.source, &file.file.destination)
}
