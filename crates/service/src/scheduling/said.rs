//! What the leader says of jobs: why they wait, how fast they are.
//!
//! Reasons depend on nearly everything (what agents hold, what shares and endpoints have), so that
//! no note of what changed would spare much. A job that was read is reasoned about at once, all
//! others in turn, some at a time.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    ops::Bound,
};

use godwit_service_api::why::Why;
use uuid::Uuid;

use super::holders::UnitsProgress;
use crate::store::model::JobNow;

/// What is said, and what of it the database has.
pub(super) struct Said {
    now: HashMap<Uuid, JobNow>,
    written: HashMap<Uuid, JobNow>,
    /// Jobs of which the database has something else, and the last of those that were written.
    unwritten: BTreeSet<Uuid>,
    written_last: Uuid,
    /// The same for the other parts of this process.
    unposted: BTreeSet<Uuid>,
    /// Jobs of which agents report.
    moving: HashSet<Uuid>,
    /// What the leader before has said is not said any more, unless it is still so.
    pub(super) is_of_this_term: bool,
    /// Jobs to reason about first.
    pub(super) first: BTreeSet<i64>,
    /// The last job of those that were reasoned about in turn; `None`: all were.
    pub(super) turn: Option<i64>,
}

impl Said {
    /// By what the leader before has written.
    pub(super) fn new(written: HashMap<Uuid, JobNow>) -> Self {
        Self {
            now: written.clone(),
            written,
            unwritten: BTreeSet::new(),
            written_last: Uuid::nil(),
            unposted: BTreeSet::new(),
            moving: HashSet::new(),
            is_of_this_term: false,
            first: BTreeSet::new(),
            turn: None,
        }
    }

    fn change(&mut self, job: Uuid, change: impl FnOnce(&mut JobNow)) {
        let before = self.now.get(&job).cloned().unwrap_or_default();
        let mut now = before.clone();
        change(&mut now);
        if now == before {
            return;
        }
        let now = (now != JobNow::default()).then_some(now);
        self.unposted.insert(job);
        match self.written.get(&job) == now.as_ref() {
            true => self.unwritten.remove(&job),
            false => self.unwritten.insert(job),
        };
        match now {
            Some(now) => drop(self.now.insert(job, now)),
            None => drop(self.now.remove(&job)),
        }
    }

    /// Why a job waits.
    pub(super) fn why(&mut self, job: Uuid, why: Vec<Why>) {
        self.change(job, |now| now.why = why);
    }

    /// What agents report of jobs, of all that they report of.
    pub(super) fn moving(&mut self, jobs: HashMap<Uuid, UnitsProgress>) {
        let ended: Vec<Uuid> = (self.moving.iter().filter(|job| !jobs.contains_key(*job)))
            .copied()
            .collect();
        for job in ended {
            self.change(job, |now| put(now, UnitsProgress::default()));
        }
        self.moving = jobs.keys().copied().collect();
        for (job, progress) in jobs {
            self.change(job, |now| put(now, progress));
        }
    }

    /// Of no other jobs than these, which wait, and those that move anything is to be said.
    pub(super) fn keep(&mut self, jobs: &HashSet<Uuid>) {
        self.is_of_this_term = true;
        let moving = std::mem::take(&mut self.moving);
        let gone: Vec<Uuid> = (self.now.keys())
            .filter(|job| !jobs.contains(*job) && !moving.contains(*job))
            .copied()
            .collect();
        for job in gone {
            self.change(job, |now| *now = JobNow::default());
        }
        self.moving = moving;
    }

    /// What other parts of this process have not been told.
    pub(super) fn take_unposted(&mut self) -> Vec<(Uuid, Option<JobNow>)> {
        let unposted = std::mem::take(&mut self.unposted);
        let changes = unposted.into_iter();
        changes
            .map(|job| (job, self.now.get(&job).cloned()))
            .collect()
    }

    /// Something is to be reasoned about or written.
    pub(super) fn has_more(&self) -> bool {
        !self.first.is_empty() || !self.unwritten.is_empty()
    }

    /// Some of what the database does not have. All have their turn: many jobs that move change
    /// each second, and would keep what waits from being written.
    pub(super) fn unwritten(&self, most: usize) -> Vec<(Uuid, Option<JobNow>)> {
        let later = (Bound::Excluded(self.written_last), Bound::Unbounded);
        let later = self.unwritten.range(later);
        let others = self.unwritten.range(..=self.written_last);
        let some = later.chain(others).take(most);
        some.map(|job| (*job, self.now.get(job).cloned())).collect()
    }

    /// The database has it.
    pub(super) fn written(&mut self, jobs: Vec<(Uuid, Option<JobNow>)>) {
        if let Some((last, _)) = jobs.last() {
            self.written_last = *last;
        }
        for (job, now) in jobs {
            self.unwritten.remove(&job);
            match now {
                Some(now) => drop(self.written.insert(job, now)),
                None => drop(self.written.remove(&job)),
            }
        }
    }

    /// All that is said.
    #[cfg(test)]
    pub(super) fn all(&self) -> &HashMap<Uuid, JobNow> {
        &self.now
    }

    /// Whether the database has all of it.
    #[cfg(test)]
    pub(super) fn is_written(&self) -> bool {
        self.unwritten.is_empty() && self.written == self.now
    }
}

fn put(now: &mut JobNow, progress: UnitsProgress) {
    now.bytes = progress.bytes;
    now.goodput = progress.goodput;
    now.pace = progress.pace;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_that_change_each_second_do_not_keep_others_from_being_written() {
        let jobs: Vec<Uuid> = (1..=5).map(Uuid::from_u128).collect();
        let mut said = Said::new(HashMap::new());
        for round in 1..=3 {
            let progress = UnitsProgress {
                bytes: round,
                ..UnitsProgress::default()
            };
            said.moving(jobs.iter().map(|job| (*job, progress.clone())).collect());
            let some = said.unwritten(2);
            assert_eq!(some.len(), 2);
            said.written(some);
        }
        assert!(jobs.iter().all(|job| said.written.contains_key(job)));
    }
}
