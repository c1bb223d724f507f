//! What waits, by the last reading of each job, and which jobs are to be read.
//!
//! A job is read after its mark in the database changed, after a grant of it, and when a retry of
//! it is due. Beside that all jobs are read in turn, some at a time: what a mark did not tell
//! (a transaction that took longer than marks are asked for, a clock that was set) is found then.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_scheduler as scheduler;
use godwit_scheduler::Scheduler;
use godwit_service_api::job::Class;
use jiff::Timestamp;

use super::{
    convert::{class, since_1970},
    lifetimes::Lifetimes,
};
use crate::{
    metrics::{QueueState, Waiting as Amount},
    store::model::{Held, QueueKey, QueueRecord},
};

/// Marks of changes that were made so long before they could be seen are found. Longer statements
/// are ended by the database.
const OVERLAP: Duration = Duration::from_secs(5);

/// The same between two rounds, for what is asked often.
const SHORT_OVERLAP: Duration = Duration::from_millis(200);

/// All queues that have units, as far as they were read.
#[derive(Default)]
pub(super) struct WaitingQueues {
    queues: BTreeMap<QueueKey, Queue>,
    keys: HashMap<scheduler::QueueKey, QueueKey>,
    /// Marks of jobs that were seen.
    marks: HashMap<i64, i64>,
    marked: Option<Instant>,
    /// Jobs to read.
    changed: BTreeSet<i64>,
    /// Jobs that units were granted of, or were not to be had of. What is left is known about; it
    /// is read once a second.
    granted: BTreeSet<i64>,
    /// When failed files of jobs are tried again.
    due: BTreeSet<(Timestamp, QueueKey)>,
    /// The job that was read in turn last, and whether all were at least once.
    turn: i64,
    is_complete: bool,
    amounts: BTreeMap<(Class, QueueState), Amount>,
    /// By number of the pair of endpoints.
    links: BTreeMap<i64, Amount>,
    ready: u64,
}

/// A queue as it was read.
pub(super) struct Queue {
    pub(super) record: QueueRecord,
    pub(super) name: scheduler::QueueKey,
    /// Nothing starts, for the end of a credential.
    is_held: bool,
}

impl WaitingQueues {
    /// Within which time marks are asked for.
    pub(super) fn marks_within(&self, now: Instant, is_round: bool) -> Duration {
        let overlap = if is_round { OVERLAP } else { SHORT_OVERLAP };
        // All jobs are read at first.
        let asked = self.marked.map_or(Duration::ZERO, |at| now - at);
        asked + overlap
    }

    /// Jobs with another mark than before are to be read. `asked`: when these were asked for.
    pub(super) fn marks_are(&mut self, marks: &[(i64, i64)], is_round: bool, asked: Instant) {
        let is_new = |(job, mark): &&(i64, i64)| self.marks.get(job) != Some(mark);
        let new: Vec<i64> = marks.iter().filter(is_new).map(|(job, _)| *job).collect();
        self.changed.extend(new);
        if is_round {
            self.marks.clear();
        }
        self.marks.extend(marks.iter().copied());
        self.marked = Some(asked);
    }

    /// A job is to be read.
    pub(super) fn read_again(&mut self, job: i64) {
        self.changed.insert(job);
    }

    /// A unit of a job was granted.
    pub(super) fn granted(&mut self, job: i64) {
        self.granted.insert(job);
        for queue in self.queues_mut(job) {
            queue.record.started = true;
        }
    }

    /// What is known of a job may be wrong: it is read with the next round.
    pub(super) fn doubt(&mut self, job: i64) {
        self.granted.insert(job);
    }

    /// Jobs that units were granted of since are to be read.
    pub(super) fn read_granted(&mut self) {
        self.changed.append(&mut self.granted);
    }

    /// Jobs whose retries are due are to be read.
    pub(super) fn pass_time(&mut self, now: Duration) {
        while let Some((at, key)) = self.due.first().copied()
            && since_1970(at) <= now
        {
            self.due.remove(&(at, key));
            self.changed.insert(key.job);
        }
    }

    /// Whether there are jobs to read.
    pub(super) fn is_behind(&self) -> bool {
        !self.changed.is_empty() || !self.is_complete
    }

    /// All jobs were read at least once, or are to be.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete
    }

    /// The job after which jobs are to be read in turn.
    pub(super) fn turn(&self) -> i64 {
        self.turn
    }

    /// These jobs have not ended, and there are no others up to the last of them; `is_end`: nor
    /// after it. They are to be read, and those that were known there and have ended.
    pub(super) fn read_in_turn(&mut self, open: &[i64], is_end: bool) {
        let last = open.last().copied().filter(|_| !is_end);
        let from = QueueKey {
            job: self.turn.saturating_add(1),
            link: i64::MIN,
        };
        let until = QueueKey {
            job: last.unwrap_or(i64::MAX),
            link: i64::MAX,
        };
        let known = self.queues.range(from..=until.max(from));
        self.changed.extend(known.map(|(key, _)| key.job));
        self.changed.extend(open);
        self.turn = last.unwrap_or(0);
        self.is_complete |= is_end;
    }

    /// Some jobs that are to be read.
    pub(super) fn next(&self, most: usize) -> Vec<i64> {
        self.changed.iter().take(most).copied().collect()
    }

    /// A job could not be read now.
    pub(super) fn put_off(&mut self, job: i64) {
        self.changed.remove(&job);
    }

    /// These are the queues of these jobs.
    pub(super) fn jobs_are(
        &mut self,
        jobs: &[i64],
        records: Vec<QueueRecord>,
        scheduler: &mut Scheduler,
        lifetimes: &Lifetimes,
        now: Duration,
    ) {
        let there: BTreeSet<QueueKey> = records.iter().map(|record| record.key).collect();
        for job in jobs {
            let known = self.of(*job).map(|queue| queue.record.key);
            let gone: Vec<QueueKey> = known.filter(|key| !there.contains(key)).collect();
            for key in gone {
                if let Some(queue) = self.take(&key) {
                    scheduler.remove_queue(&queue.name);
                    self.keys.remove(&queue.name);
                }
            }
            self.changed.remove(job);
        }
        for record in records {
            let key = record.key;
            let known = self.take(&key).map(|queue| queue.name);
            let name = known.unwrap_or_else(|| scheduler::QueueKey {
                job: record.job.as_u128(),
                source: Arc::from(record.source.as_str()),
                destination: Arc::from(record.destination.as_str()),
            });
            let ending = lifetimes.of(&record, now);
            let is_held = ending.is_some_and(|ending| ending.holds);
            scheduler.set_queue(&name, state(&record, is_held));
            self.keys.insert(name.clone(), key);
            self.put(Queue {
                record,
                name,
                is_held,
            });
        }
    }

    /// Reads a job again where a credential begins or ceases to keep it from starting.
    pub(super) fn see_credentials(&mut self, job: i64, lifetimes: &Lifetimes, now: Duration) {
        let has_changed = self.of(job).any(|queue| {
            let ending = lifetimes.of(&queue.record, now);
            ending.is_some_and(|ending| ending.holds) != queue.is_held
        });
        if has_changed {
            self.changed.insert(job);
        }
    }

    fn take(&mut self, key: &QueueKey) -> Option<Queue> {
        let queue = self.queues.remove(key)?;
        let record = &queue.record;
        if let Some(at) = record.not_before {
            self.due.remove(&(at, *key));
        }
        if let Some(amount) = self.amounts.get_mut(&kind(record)) {
            amount.files = amount.files.saturating_sub(record.files);
            amount.bytes = amount.bytes.saturating_sub(record.bytes);
        }
        if let Some(amount) = self.links.get_mut(&key.link) {
            amount.files = amount.files.saturating_sub(record.files);
            amount.bytes = amount.bytes.saturating_sub(record.bytes);
        }
        if record.held.is_none() {
            self.ready -= record.ready;
        }
        Some(queue)
    }

    fn put(&mut self, queue: Queue) {
        let record = &queue.record;
        self.due
            .extend(record.not_before.map(|at| (at, record.key)));
        let amount = self.amounts.entry(kind(record)).or_default();
        amount.files += record.files;
        amount.bytes = amount.bytes.saturating_add(record.bytes);
        let amount = self.links.entry(record.key.link).or_default();
        amount.files += record.files;
        amount.bytes = amount.bytes.saturating_add(record.bytes);
        if record.held.is_none() {
            self.ready += record.ready;
        }
        self.queues.insert(record.key, queue);
    }

    /// Queues of a job.
    pub(super) fn of(&self, job: i64) -> impl Iterator<Item = &Queue> {
        self.queues.range(keys_of(job)).map(|(_, queue)| queue)
    }

    fn queues_mut(&mut self, job: i64) -> impl Iterator<Item = &mut Queue> {
        self.queues.range_mut(keys_of(job)).map(|(_, queue)| queue)
    }

    /// The first queue of a job after this one.
    pub(super) fn after(&self, job: i64) -> Option<&Queue> {
        let (_, last) = keys_of(job).into_inner();
        let mut later = self
            .queues
            .range((std::ops::Bound::Excluded(last), std::ops::Bound::Unbounded));
        later.next().map(|(_, queue)| queue)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = &Queue> {
        self.queues.values()
    }

    /// A queue as the database names it.
    pub(super) fn key(&self, name: &scheduler::QueueKey) -> Option<QueueKey> {
        self.keys.get(name).copied()
    }

    /// Units that an agent could take.
    pub(super) fn ready(&self) -> u64 {
        self.ready
    }

    /// What waits, by number of the pair of endpoints.
    pub(super) fn of_links(&self) -> &BTreeMap<i64, Amount> {
        &self.links
    }

    /// What waits, by class and state.
    pub(super) fn amounts(&self) -> BTreeMap<(Class, QueueState), Amount> {
        self.amounts.clone()
    }
}

fn keys_of(job: i64) -> std::ops::RangeInclusive<QueueKey> {
    let key = |link| QueueKey { job, link };
    key(i64::MIN)..=key(i64::MAX)
}

fn kind(record: &QueueRecord) -> (Class, QueueState) {
    let state = match record.held {
        Some(Held::Paused) => QueueState::Paused,
        Some(Held::AfterJob) => QueueState::AfterJob,
        None if record.ready == 0 => QueueState::Retry,
        None => QueueState::Ready,
    };
    (record.options.class, state)
}

/// As the scheduler takes it. `is_held`: by a credential.
fn state(record: &QueueRecord, is_held: bool) -> scheduler::QueueState {
    let options = &record.options;
    let hold = match record.held {
        Some(Held::Paused) => Some(scheduler::Hold::Paused),
        Some(Held::AfterJob) => Some(scheduler::Hold::AfterJob),
        None => is_held.then_some(scheduler::Hold::Credential),
    };
    let waits = record.ready == 0;
    let units = if waits { record.waiting } else { record.ready };
    let share = options.share.clone();
    scheduler::QueueState {
        ready: u32::try_from(units).unwrap_or(u32::MAX),
        unit_bytes: record.next_bytes,
        unit_files: record.next_files,
        ready_bytes: record.bytes,
        ready_files: record.files,
        share: share.unwrap_or_else(|| record.owner.clone()),
        class: class(options.class),
        priority: options.priority,
        created: since_1970(record.created),
        deadline: options.deadline.map(since_1970),
        labels: options.labels.clone(),
        hold,
        not_before: record.not_before.filter(|_| waits).map(since_1970),
        started_any: record.started,
    }
}
