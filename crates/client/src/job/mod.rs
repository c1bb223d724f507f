//! A copy, from its plan to its summary.
//!
//! ```text
//!   Planner ──bounded channel──► Queue ──► Worker 1 (session, mover)
//!                                  ▲  └──► Worker 2
//!                                  └ pieces of large files that a worker shares
//! ```

mod file;
mod queue;
mod worker;

use std::sync::{Arc, Mutex, PoisonError, atomic::Ordering};

use godwit_proto::url::Location;
use tokio::{sync::mpsc, task::LocalSet, time};

use crate::{
    carrier::Pool,
    context::{Context, Stop},
    controller::Controller,
    error::{Error, Exit, Result},
    events::{Event, EventLog, FileState, Observer},
    plan::{self, Planner},
    progress::TICK,
    spec::{Connections, JobSpec},
    summary::Summary,
};

use queue::Queue;
use worker::Worker;

/// What all workers of a job share.
pub(crate) struct Job {
    pub(crate) spec: Arc<JobSpec>,
    pub(crate) context: Arc<Context>,
    pub(crate) pool: Arc<Pool>,
    pub(crate) controller: Controller,
    pub(crate) queue: Queue,
    /// How failed files would end the process, most telling first.
    verdicts: Mutex<Vec<Exit>>,
}

/// Runs a copy. Errors are those that keep it from beginning; everything later is in the summary and was told to
/// the observer.
pub async fn run(
    spec: JobSpec,
    connections: Connections,
    observer: Arc<dyn Observer>,
    stop: Stop,
) -> Result<Summary> {
    let started = time::Instant::now();
    let log = match &spec.events {
        Some(path) => Some(EventLog::create(path, started.into_std())?),
        None => None,
    };
    let context = Context::new(connections, observer, log, stop);
    let controller = Controller::new(&spec.tuner);
    context.target.send_replace(controller.setting());
    context.emit(&Event::Start {
        command: spec.command.clone(),
        endpoints: spec
            .sources
            .iter()
            .chain([&spec.destination])
            .map(Location::to_string)
            .collect(),
        version: env!("CARGO_PKG_VERSION"),
    });
    context.emit(&Event::Decision {
        from: None,
        to: controller.setting().into(),
        reason: controller.reason().to_owned(),
    });
    let params = controller.channel_params(&spec, &context.connections);
    let pool = Pool::new(Arc::clone(&context), params, spec.attempts);
    let (sender, receiver) = mpsc::channel(plan::AHEAD_MAX);
    let job = Arc::new(Job {
        spec: Arc::new(spec),
        context,
        pool,
        controller,
        queue: Queue::new(receiver),
        verdicts: Mutex::default(),
    });
    let planner = Planner::new(Arc::clone(&job.spec), Arc::clone(&job.pool), sender);
    LocalSet::new().run_until(move_all(&job, planner)).await;
    let summary = job.summarise(started.elapsed().as_secs_f64());
    job.context.emit(&Event::Summary(summary.clone()));
    if let Err(error) = job.context.finish_log() {
        job.context.warn(format!("write event log: {error}"));
    }
    Ok(summary)
}

async fn move_all(job: &Arc<Job>, planner: Planner) {
    let context = Arc::clone(&job.context);
    let display = tokio::task::spawn_local(async move {
        let mut ticks = time::interval(TICK);
        ticks.set_missed_tick_behavior(time::MissedTickBehavior::Skip);
        loop {
            ticks.tick().await;
            let snapshot = context.counters.snapshot();
            context.observer().on_progress(Some(&snapshot));
        }
    });
    let planning = tokio::task::spawn_local(planner.run());
    let workers: Vec<_> = (0..job.controller.setting().concurrency)
        .map(|_| tokio::task::spawn_local(Worker::new(Arc::clone(job), true).run()))
        .collect();
    for worker in workers {
        // A panic in a worker is a bug, and its files are missing from the count of what is done.
        if worker.await.is_err() {
            job.record(Exit::Failed);
        }
    }
    // What workers gave back because another one was there, which then ended too.
    if !job.queue.is_empty() && !job.context.stop.is_set() {
        Worker::new(Arc::clone(job), false).run().await;
    }
    if planning.await.is_err() {
        job.record(Exit::Failed);
    }
    job.pool.close().await;
    display.abort();
    job.context.observer().on_progress(None);
}

impl Job {
    /// Counts a file that is not there.
    pub(crate) fn file_failed(&self, path: &str, seconds: f64, bytes: u64, error: &Error) {
        if matches!(error, Error::Interrupted) {
            return;
        }
        self.record(error.exit());
        let counters = &self.context.counters;
        counters.files_failed.fetch_add(1, Ordering::Relaxed);
        self.context.emit(&Event::File {
            path: path.to_owned(),
            bytes,
            seconds,
            checksum: None,
            state: FileState::Failed,
            error: Some(error.explained()),
        });
    }

    /// Counts a file that is there.
    pub(crate) fn file_done(&self, path: &str, seconds: f64, bytes: u64, checksum: Option<String>) {
        let counters = &self.context.counters;
        counters.files_done.fetch_add(1, Ordering::Relaxed);
        counters.bytes_done.fetch_add(bytes, Ordering::Relaxed);
        self.context.emit(&Event::File {
            path: path.to_owned(),
            bytes,
            seconds,
            state: if checksum.is_some() {
                FileState::Verified
            } else {
                FileState::Done
            },
            checksum,
            error: None,
        });
    }

    fn record(&self, exit: Exit) {
        let mut verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        if !verdicts.contains(&exit) {
            verdicts.push(exit);
        }
    }

    fn summarise(&self, seconds: f64) -> Summary {
        let counters = &self.context.counters;
        let done = counters.files_done.load(Ordering::Relaxed);
        let failed = counters.files_failed.load(Ordering::Relaxed);
        let verdicts = self.verdicts.lock().unwrap_or_else(PoisonError::into_inner);
        let exit = exit_of(self.context.stop.is_set(), done, &verdicts);
        let bytes = counters.bytes_done.load(Ordering::Relaxed);
        Summary::new(bytes, seconds, done, failed, exit)
    }
}

/// The status of a whole job from those of its failures.
fn exit_of(stopped: bool, done: u64, verdicts: &[Exit]) -> Exit {
    if stopped {
        Exit::Interrupted
    } else if verdicts.is_empty() {
        Exit::Done
    } else if done > 0 {
        Exit::Partly
    } else {
        // Trouble of the world outweighs a refusal, and that a slip of the user.
        [Exit::Failed, Exit::Refused]
            .into_iter()
            .find(|e| verdicts.contains(e))
            .unwrap_or(Exit::Usage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn some_files_failed_is_1_and_all_failed_says_why() {
        assert_eq!(exit_of(false, 3, &[]), Exit::Done);
        assert_eq!(exit_of(false, 0, &[]), Exit::Done);
        assert_eq!(exit_of(false, 1, &[Exit::Refused]), Exit::Partly);
        assert_eq!(exit_of(false, 0, &[Exit::Refused]), Exit::Refused);
        assert_eq!(
            exit_of(false, 0, &[Exit::Refused, Exit::Failed]),
            Exit::Failed
        );
        assert_eq!(exit_of(false, 0, &[Exit::Usage]), Exit::Usage);
        assert_eq!(exit_of(true, 1, &[Exit::Failed]), Exit::Interrupted);
    }
}
