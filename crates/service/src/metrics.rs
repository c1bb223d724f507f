//! Figures of a process for operators, in the text format of Prometheus.
//!
//! Each process has the figures of its own requests and results. Those of the whole service (what
//! waits, what runs, agents) are from the process that leads, which has them in memory: a scrape
//! asks the database for the reports that wait alone.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use axum::{
    Router,
    extract::{Request, State},
    http::{Method, StatusCode, header},
    middleware::{Next, from_fn_with_state},
    response::{IntoResponse, Response},
    routing::get,
};
use godwit_engine::host::prometheus_text::{CONTENT_TYPE, Histogram, PrometheusText};
use godwit_service_api::job::Class;
use parking_lot::Mutex;
use tokio::time::timeout;

use crate::store::{Store, model::Tally};

/// Agents name errors: others have no line of their own.
const CODES_MAX: usize = 100;

/// Errors beyond those.
const OTHER_CODE: &str = "other";

/// A database that does not answer must not hold a scrape.
const COUNT_LIMIT: Duration = Duration::from_secs(2);

/// Who sends requests.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Interface {
    Api,
    Fts,
    Agents,
    Web,
}

const INTERFACES: [(Interface, &str); 4] = [
    (Interface::Api, "api"),
    (Interface::Fts, "fts"),
    (Interface::Agents, "agents"),
    (Interface::Web, "web"),
];

const STATUSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];

const CLASSES: [(Class, &str); 3] = [
    (Class::Urgent, "urgent"),
    (Class::Normal, "normal"),
    (Class::Scavenger, "scavenger"),
];

/// Of one interface.
#[derive(Debug, Default)]
struct Requests {
    statuses: [AtomicU64; STATUSES.len()],
    reading: Histogram,
    writing: Histogram,
}

/// What this process has done.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    requests: [Requests; INTERFACES.len()],
    accepted_jobs: AtomicU64,
    accepted_files: AtomicU64,
    results: Mutex<Tally>,
    steps: Histogram,
    granted: AtomicU64,
    lost: AtomicU64,
    sent_reports: AtomicU64,
    failed_reports: AtomicU64,
    dropped_reports: AtomicU64,
    /// While this process leads.
    fleet: Mutex<Option<Fleet>>,
}

/// What the leader sees of the whole service.
#[derive(Debug, Default)]
pub(crate) struct Fleet {
    /// By class and state of their queues.
    pub(crate) waiting: BTreeMap<(Class, QueueState), Waiting>,
    /// Units that agents hold.
    pub(crate) units: u64,
    /// Files of these.
    pub(crate) files: u64,
    /// Bytes of these.
    pub(crate) bytes: u64,
    /// Agents that poll and take work.
    pub(crate) agents_alive: u64,
    /// Agents that poll, and get no new work.
    pub(crate) agents_draining: u64,
    /// Agents whose lease has ended.
    pub(crate) agents_gone: u64,
    /// Bytes a second, as agents reported within the last seconds.
    pub(crate) goodput: f64,
}

/// Files and bytes that no agent holds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Waiting {
    pub(crate) files: u64,
    pub(crate) bytes: u64,
}

/// Why a queue waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum QueueState {
    /// For its turn.
    Ready,
    /// Until failed files are tried again.
    Retry,
    Paused,
    /// For another job.
    AfterJob,
}

const QUEUE_STATES: [(QueueState, &str); 4] = [
    (QueueState::Ready, "ready"),
    (QueueState::Retry, "retry"),
    (QueueState::Paused, "paused"),
    (QueueState::AfterJob, "after_job"),
];

/// What became of an attempt to send a report.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ReportEnd {
    Sent,
    Failed,
    GivenUp,
}

impl Metrics {
    pub(crate) fn accepted(&self, files: u64) {
        self.accepted_jobs.fetch_add(1, Relaxed);
        self.accepted_files.fetch_add(files, Relaxed);
    }

    pub(crate) fn results(&self, tally: Tally) {
        let mut all = self.results.lock();
        all.finished += tally.finished;
        all.skipped += tally.skipped;
        all.failed += tally.failed;
        all.bytes = all.bytes.saturating_add(tally.bytes);
        for (code, attempts) in tally.errors {
            let is_known = all.errors.len() < CODES_MAX || all.errors.contains_key(&code);
            let code = if is_known {
                code
            } else {
                OTHER_CODE.to_owned()
            };
            *all.errors.entry(code).or_default() += attempts;
        }
    }

    pub(crate) fn stepped(&self, took: Duration) {
        self.steps.observe(took);
    }

    pub(crate) fn granted(&self, units: u64) {
        self.granted.fetch_add(units, Relaxed);
    }

    pub(crate) fn lost(&self, units: u64) {
        self.lost.fetch_add(units, Relaxed);
    }

    pub(crate) fn reported(&self, end: ReportEnd) {
        let counter = match end {
            ReportEnd::Sent => &self.sent_reports,
            ReportEnd::Failed => &self.failed_reports,
            ReportEnd::GivenUp => &self.dropped_reports,
        };
        counter.fetch_add(1, Relaxed);
    }

    /// `None`: another process leads.
    pub(crate) fn set_fleet(&self, fleet: Option<Fleet>) {
        *self.fleet.lock() = fleet;
    }

    fn write_requests(&self, out: &mut PrometheusText) {
        let mut of = out.counter(
            "godwit_service_requests_total",
            "Requests that were answered, by interface and status.",
        );
        for (interface, name) in INTERFACES {
            let requests = &self.requests[interface as usize];
            for (status, count) in STATUSES.iter().zip(&requests.statuses) {
                let labels = [("interface", name), ("status", *status)];
                of.labelled(&labels, count.load(Relaxed));
            }
        }
        let mut of = out.histogram(
            "godwit_service_request_seconds",
            "From the head of a request to that of its answer, with all of the request.",
        );
        for (interface, name) in INTERFACES {
            // Polls are held back on purpose.
            if matches!(interface, Interface::Agents) {
                continue;
            }
            let requests = &self.requests[interface as usize];
            of.distribution(&[("interface", name), ("kind", "read")], &requests.reading)
                .distribution(&[("interface", name), ("kind", "write")], &requests.writing);
        }
    }

    fn write_work(&self, out: &mut PrometheusText) {
        out.counter(
            "godwit_service_accepted_jobs_total",
            "Jobs that were accepted.",
        )
        .value(self.accepted_jobs.load(Relaxed));
        let help = "Files and directories of accepted jobs, as they were submitted.";
        out.counter("godwit_service_accepted_files_total", help)
            .value(self.accepted_files.load(Relaxed));
        let results = self.results.lock().clone();
        let help = "Files that have ended, as agents reported them to this process.";
        out.counter("godwit_service_files_total", help)
            .labelled(&[("end", "finished")], results.finished)
            .labelled(&[("end", "skipped")], results.skipped)
            .labelled(&[("end", "failed")], results.failed);
        out.counter(
            "godwit_service_bytes_total",
            "Bytes of files that were copied.",
        )
        .value(results.bytes);
        let mut of = out.counter(
            "godwit_service_failed_attempts_total",
            "Attempts of files that failed, by the code of their error.",
        );
        for (code, attempts) in &results.errors {
            of.labelled(&[("code", code)], attempts);
        }
        let help = "Attempts to send reports of ended jobs.";
        out.counter("godwit_service_report_attempts_total", help)
            .labelled(&[("end", "sent")], self.sent_reports.load(Relaxed))
            .labelled(&[("end", "failed")], self.failed_reports.load(Relaxed))
            .labelled(&[("end", "given_up")], self.dropped_reports.load(Relaxed));
        let help = "A look of the leader at queues and agents, with what it hands out.";
        out.histogram("godwit_service_scheduling_seconds", help)
            .distribution(&[], &self.steps);
        out.counter(
            "godwit_service_granted_units_total",
            "Units given to agents.",
        )
        .value(self.granted.load(Relaxed));
        let help = "Units that came back because the lease of their agent ended.";
        out.counter("godwit_service_lost_units_total", help)
            .value(self.lost.load(Relaxed));
    }
}

impl Fleet {
    fn write(&self, out: &mut PrometheusText) {
        let waiting = |class, state| self.waiting.get(&(class, state)).copied();
        let mut gauge = |name, help, part: fn(Waiting) -> u64| {
            let mut of = out.gauge(name, help);
            for (class, class_name) in CLASSES {
                for (state, state_name) in QUEUE_STATES {
                    let value = part(waiting(class, state).unwrap_or_default());
                    of.labelled(&[("class", class_name), ("state", state_name)], value);
                }
            }
        };
        let help = "Files that no agent holds, by class of their jobs and state of their queues.";
        gauge("godwit_service_waiting_files", help, |waiting| {
            waiting.files
        });
        let help = "Bytes of these, with an assumption for files of unknown size.";
        gauge("godwit_service_waiting_bytes", help, |waiting| {
            waiting.bytes
        });
        out.gauge("godwit_service_running_units", "Units that agents hold.")
            .value(self.units);
        out.gauge("godwit_service_running_files", "Files of these.")
            .value(self.files);
        out.gauge("godwit_service_running_bytes", "Bytes of these.")
            .value(self.bytes);
        let help = "Bytes a second that agents move, as they reported last.";
        out.gauge("godwit_service_goodput_bytes", help)
            .value(self.goodput);
        out.gauge("godwit_service_agents", "Agents, by state.")
            .labelled(&[("state", "alive")], self.agents_alive)
            .labelled(&[("state", "draining")], self.agents_draining)
            .labelled(&[("state", "gone")], self.agents_gone);
    }
}

/// Counts what passes a router, and how long it takes.
pub(crate) fn measured(router: Router, metrics: &Arc<Metrics>, interface: Interface) -> Router {
    let state = (Arc::clone(metrics), interface);
    router.layer(from_fn_with_state(state, measure))
}

async fn measure(
    State((metrics, interface)): State<(Arc<Metrics>, Interface)>,
    request: Request,
    next: Next,
) -> Response {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let began = Instant::now();
    let answer = next.run(request).await;
    let requests = &metrics.requests[interface as usize];
    let hundreds = usize::from(answer.status().as_u16() / 100);
    if let Some(count) = requests.statuses.get(hundreds.saturating_sub(1)) {
        count.fetch_add(1, Relaxed);
    }
    match reads {
        true => requests.reading.observe(began.elapsed()),
        false => requests.writing.observe(began.elapsed()),
    }
    answer
}

/// The route of a scrape.
pub(crate) fn router(metrics: Arc<Metrics>, store: Store) -> Router {
    Router::new()
        .route("/metrics", get(scrape))
        .fallback(async || (StatusCode::NOT_FOUND, "see /metrics\n"))
        .with_state((metrics, store))
}

async fn scrape(State((metrics, store)): State<(Arc<Metrics>, Store)>) -> Response {
    let mut out = PrometheusText::default();
    let help = "The version that runs.";
    out.gauge("godwit_service_build_info", help)
        .labelled(&[("version", env!("CARGO_PKG_VERSION"))], 1);
    metrics.write_requests(&mut out);
    metrics.write_work(&mut out);
    store.write_metrics(&mut out);
    let leads = match &*metrics.fleet.lock() {
        Some(fleet) => {
            fleet.write(&mut out);
            true
        }
        None => false,
    };
    let help = "1: this process leads, and has the figures of the whole service.";
    out.gauge("godwit_service_leads", help)
        .value(u8::from(leads));
    if leads {
        match timeout(COUNT_LIMIT, store.waiting_reports()).await {
            Ok(Ok((webhooks, mails))) => {
                let help = "Reports of ended jobs that wait to be sent, counted up to 10000.";
                out.gauge("godwit_service_waiting_reports", help)
                    .labelled(&[("kind", "webhook")], webhooks)
                    .labelled(&[("kind", "mail")], mails);
            }
            Ok(Err(error)) => tracing::debug!(%error, "no count of reports"),
            Err(_) => tracing::debug!("the database does not count reports in time"),
        }
    }
    ([(header::CONTENT_TYPE, CONTENT_TYPE)], out.into_text()).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_with_any_number_of_codes_have_a_bounded_number_of_lines() {
        let metrics = Metrics::default();
        for number in 0..3 * CODES_MAX {
            metrics.results(Tally {
                errors: BTreeMap::from([(number.to_string(), 2)]),
                ..Tally::default()
            });
        }
        let errors = metrics.results.lock().errors.clone();
        assert_eq!(errors.len(), CODES_MAX + 1);
        assert_eq!(errors[OTHER_CODE], 4 * CODES_MAX as u64);
    }
}
