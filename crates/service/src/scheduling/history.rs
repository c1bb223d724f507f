//! How fast jobs were and with what, in the memory of one process, for people who look at a job.
//!
//! A job has at most [`SAMPLES_MAX`] samples. When there are as many, every second one goes and the
//! gap between those that follow doubles: the history covers all of a long job, and the last
//! minutes of it as coarsely as the rest.

use std::{
    collections::{HashMap, VecDeque},
    time::{Duration, Instant},
};

use uuid::Uuid;

use crate::store::model::JobNow;

/// Samples of a job.
const SAMPLES_MAX: usize = 240;

/// Jobs that are remembered; those that have moved last.
const JOBS_MAX: usize = 1000;

/// A job without a unit for so many samples rests: between two units it often has none.
const IDLE: u32 = 3;

/// A job that has not moved for so long is forgotten.
const KEPT: Duration = Duration::from_secs(3600);

/// What a job did at one time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// When.
    pub(crate) at: Instant,
    /// Bytes a second.
    pub(crate) goodput: f64,
    /// Sessions in use.
    pub(crate) sessions: u32,
    /// Data channels in use.
    pub(crate) channels: u32,
    /// Data channels that it may use.
    pub(crate) allowed: u32,
}

#[derive(Default)]
pub(super) struct History {
    jobs: HashMap<Uuid, Track>,
}

struct Track {
    samples: VecDeque<Sample>,
    /// One of so many samples is kept.
    every: u32,
    skipped: u32,
    moved: Instant,
    /// Samples since then.
    idle: u32,
    /// The last sample that is kept says that it rests.
    rests: bool,
}

impl History {
    /// Takes down what these jobs do now. That one rests is taken down once.
    pub(super) fn take(&mut self, jobs: &HashMap<Uuid, JobNow>) {
        let now = Instant::now();
        for (id, job) in jobs {
            if job.goodput > 0.0 || job.pace.units > 0 {
                self.track(*id, now).push(sample(job, now));
            }
        }
        for (id, track) in &mut self.jobs {
            if track.moved == now {
                continue;
            }
            track.idle = track.idle.saturating_add(1);
            if track.idle == IDLE && !track.rests {
                track.rests = true;
                let idle = jobs.get(id).map(|job| sample(job, now));
                track.keep(idle.unwrap_or(Sample {
                    at: now,
                    goodput: 0.0,
                    sessions: 0,
                    channels: 0,
                    allowed: 0,
                }));
            }
        }
        self.jobs.retain(|_, track| track.moved.elapsed() < KEPT);
    }

    fn track(&mut self, id: Uuid, now: Instant) -> &mut Track {
        if self.jobs.len() >= JOBS_MAX && !self.jobs.contains_key(&id) {
            let oldest = self.jobs.iter().min_by_key(|(_, track)| track.moved);
            if let Some(oldest) = oldest.map(|(id, _)| *id) {
                self.jobs.remove(&oldest);
            }
        }
        let track = self.jobs.entry(id).or_insert_with(|| Track {
            samples: VecDeque::new(),
            every: 1,
            skipped: 0,
            moved: now,
            idle: 0,
            rests: false,
        });
        track.moved = now;
        track.idle = 0;
        track
    }

    pub(super) fn of(&self, job: Uuid) -> Vec<Sample> {
        let track = self.jobs.get(&job);
        track.map_or(Vec::new(), |track| track.samples.iter().copied().collect())
    }
}

impl Track {
    fn push(&mut self, sample: Sample) {
        self.skipped += 1;
        if self.skipped < self.every {
            return;
        }
        self.skipped = 0;
        self.rests = false;
        self.keep(sample);
    }

    fn keep(&mut self, sample: Sample) {
        self.samples.push_back(sample);
        if self.samples.len() > SAMPLES_MAX {
            let mut place = 0;
            self.samples.retain(|_| {
                place += 1;
                place % 2 == 1
            });
            self.every = self.every.saturating_mul(2);
        }
    }
}

fn sample(job: &JobNow, at: Instant) -> Sample {
    Sample {
        at,
        goodput: job.goodput,
        sessions: job.pace.sessions,
        channels: job.pace.channels,
        allowed: job.pace.allowed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::model::Pace;

    fn moving(goodput: f64) -> JobNow {
        JobNow {
            goodput,
            pace: Pace {
                units: 1,
                channels: 4,
                ..Pace::default()
            },
            ..JobNow::default()
        }
    }

    #[test]
    fn a_long_history_becomes_coarser_and_keeps_its_ends() {
        let mut history = History::default();
        let job = Uuid::now_v7();
        for step in 0..10_000 {
            history.take(&HashMap::from([(job, moving(f64::from(step)))]));
        }
        let samples = history.of(job);
        assert!(
            (100..=SAMPLES_MAX).contains(&samples.len()),
            "{}",
            samples.len()
        );
        assert!(samples[0].goodput < 1.0 && samples[samples.len() - 1].goodput > 9_800.0);
        // Its end is taken down once.
        for _ in 0..2 * IDLE {
            history.take(&HashMap::new());
        }
        let ended = history.of(job);
        assert_eq!(ended.len(), samples.len() + 1);
        assert!(ended[ended.len() - 1].goodput < 1.0);
    }

    #[test]
    fn a_job_that_moves_and_rests_in_turn_has_no_more_samples_than_others() {
        let mut history = History::default();
        let job = Uuid::now_v7();
        for _ in 0..20_000 {
            history.take(&HashMap::from([(job, moving(1.0))]));
            for _ in 0..IDLE {
                history.take(&HashMap::new());
            }
            assert!(history.of(job).len() <= SAMPLES_MAX);
        }
        assert!(history.of(job).len() >= 100, "{}", history.of(job).len());
    }

    #[test]
    fn jobs_that_moved_last_are_remembered() {
        let mut history = History::default();
        let jobs: Vec<Uuid> = (0..JOBS_MAX + 5).map(|_| Uuid::now_v7()).collect();
        for job in &jobs {
            history.take(&HashMap::from([(*job, moving(1.0))]));
        }
        assert_eq!(history.jobs.len(), JOBS_MAX);
        assert!(history.of(jobs[0]).is_empty() && !history.of(jobs[JOBS_MAX]).is_empty());
    }
}
