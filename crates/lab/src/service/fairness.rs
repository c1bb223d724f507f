//! Users, weights and classes over one bottleneck, and small jobs beside large ones.

use std::time::Duration;

use serde::Serialize;

use super::Error;
use super::site::{NewJob, SOURCES, Site, SiteConfig};
use crate::judge::jain;
use crate::path::PathConfig;

/// Longest time for a small job.
const SMALL_LIMIT: Duration = Duration::from_secs(60);

/// How much is done.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct FairnessExtent {
    /// Rate of the path in bit/s.
    pub rate_bps: u64,
    /// Its delay each way in milliseconds.
    pub delay_ms: u64,
    /// Users with equal shares.
    pub users: usize,
    /// Before bytes are counted.
    pub warm_up_s: u64,
    /// Over which bytes of equal users are counted.
    pub equal_s: u64,
    /// Over which bytes of weighted users are counted.
    pub weighted_s: u64,
    /// Over which bytes are counted beside a scavenger and without.
    pub scavenged_s: u64,
    /// Files of the large job.
    pub large_job: usize,
    /// Small jobs beside it.
    pub small_jobs: usize,
    /// How often all but the small jobs is done.
    pub repeats: usize,
}

impl FairnessExtent {
    /// For the page.
    pub const FULL: FairnessExtent = FairnessExtent {
        rate_bps: 100_000_000,
        delay_ms: 5,
        users: 10,
        warm_up_s: 20,
        equal_s: 60,
        weighted_s: 120,
        scavenged_s: 30,
        large_job: 1_000_000,
        small_jobs: 20,
        repeats: 3,
    };

    /// Shows that it works, in less than a minute, at a rate that a busy machine keeps up with.
    pub const QUICK: FairnessExtent = FairnessExtent {
        rate_bps: 40_000_000,
        users: 4,
        warm_up_s: 12,
        equal_s: 12,
        weighted_s: 20,
        scavenged_s: 4,
        large_job: 10_000,
        small_jobs: 3,
        repeats: 1,
        ..FairnessExtent::FULL
    };
}

/// What was measured.
#[derive(Debug, Default, Serialize)]
pub struct Fairness {
    /// Bytes of each user with an equal share, and Jain's index of them.
    pub equal: Vec<(Vec<f64>, f64)>,
    /// Bytes of users of weight 1, 2 and 4.
    pub weighted: Vec<[f64; 3]>,
    /// Seconds from the acceptance of small jobs to their start, and to their end.
    pub small: Vec<(f64, f64)>,
    /// Of a job that has work for all slots, and of one with a single file.
    pub scavenged: Vec<[Scavenged; 2]>,
}

/// Bytes with a scavenger beside a normal job, and without.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub struct Scavenged {
    /// Of the normal job without a scavenger.
    pub alone: f64,
    /// Of the normal job beside it.
    pub beside: f64,
    /// Of the scavenger beside the normal job.
    pub taken: f64,
    /// Of the scavenger when the normal job has ended.
    pub rest: f64,
}

/// The parts of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Users of equal shares.
    Equal,
    /// Users of weight 1, 2 and 4.
    Weighted,
    /// Small jobs beside a large one.
    Small,
    /// A scavenger beside a normal job.
    Scavenger,
}

impl Part {
    /// All.
    pub const ALL: [Part; 4] = [Part::Equal, Part::Weighted, Part::Small, Part::Scavenger];
}

/// Measures some of it.
///
/// # Errors
/// A part of the testbed does not start, or the service does not do what it is asked.
pub fn run(
    extent: &FairnessExtent,
    parts: &[Part],
    told: &mut dyn FnMut(&str),
) -> Result<Fairness, Error> {
    let mut fairness = Fairness::default();
    for repeat in 0..extent.repeats {
        for part in parts.iter().filter(|part| **part != Part::Small) {
            told(&format!(
                "{part:?}, run {} of {}",
                repeat + 1,
                extent.repeats
            ));
            match part {
                Part::Equal => fairness.equal.push(equal(extent)?),
                Part::Weighted => fairness.weighted.push(weighted(extent)?),
                Part::Scavenger => fairness.scavenged.push(scavenged(extent)?),
                Part::Small => {}
            }
        }
    }
    if parts.contains(&Part::Small) {
        told("Small");
        fairness.small = small(extent)?;
    }
    Ok(fairness)
}

fn site(extent: &FairnessExtent, users: usize, file_bytes: u64) -> Result<Site, Error> {
    Site::start(&SiteConfig {
        path: PathConfig::new(extent.rate_bps, extent.delay_ms * 1_000_000),
        users,
        agents: 2,
        slots: 4,
        file_bytes,
    })
}

/// Files of 1 MiB; each user has more of them than the path takes in the time.
fn site_of_many_files(extent: &FairnessExtent, users: usize) -> Result<Site, Error> {
    let mut site = site(extent, users, 1 << 20)?;
    for user in 0..users {
        site.submit(many_files(user, &[]))?;
    }
    std::thread::sleep(Duration::from_secs(extent.warm_up_s));
    Ok(site)
}

fn many_files<'a>(user: usize, options: &'a [&'a str]) -> NewJob<'a> {
    NewJob {
        user,
        name: "many",
        files: 3 * SOURCES,
        options,
    }
}

fn equal(extent: &FairnessExtent) -> Result<(Vec<f64>, f64), Error> {
    let mut site = site_of_many_files(extent, extent.users)?;
    let bytes = site.measure(extent.users, Duration::from_secs(extent.equal_s))?;
    site.clear()?;
    let index = jain(&bytes).unwrap_or(0.0);
    Ok((bytes, index))
}

fn weighted(extent: &FairnessExtent) -> Result<[f64; 3], Error> {
    let mut site = site(extent, 3, 1 << 20)?;
    for (user, weight) in [1.0, 2.0, 4.0].into_iter().enumerate() {
        site.weigh(user, weight)?;
    }
    // The leader reads what operators set every five seconds.
    std::thread::sleep(Duration::from_secs(6));
    (0..3).try_for_each(|user| site.submit(many_files(user, &[])).map(drop))?;
    std::thread::sleep(Duration::from_secs(extent.warm_up_s));
    let bytes = site.measure(3, Duration::from_secs(extent.weighted_s))?;
    site.clear()?;
    Ok([bytes[0], bytes[1], bytes[2]])
}

/// One user has the large job; every other small job is that user's too.
fn small(extent: &FairnessExtent) -> Result<Vec<(f64, f64)>, Error> {
    let mut site = site(extent, 2, 1)?;
    site.submit(NewJob {
        user: 0,
        name: "large",
        files: extent.large_job,
        options: &[],
    })?;
    std::thread::sleep(Duration::from_secs(extent.warm_up_s));
    let mut times = Vec::new();
    for number in 0..extent.small_jobs {
        let (user, name) = (number % 2, format!("small{number}"));
        let id = site.submit(NewJob {
            user,
            name: &name,
            files: 1,
            options: &[],
        })?;
        let job = site.wait_for(user, &id, SMALL_LIMIT)?;
        let after = |at: Option<jiff::Timestamp>| {
            at.map_or(f64::INFINITY, |at| {
                at.duration_since(job.created).as_secs_f64()
            })
        };
        times.push((after(job.started), after(job.ended)));
    }
    site.clear()?;
    Ok(times)
}

fn scavenged(extent: &FairnessExtent) -> Result<[Scavenged; 2], Error> {
    let many = scavenged_by(extent, 1 << 20, many_files(0, &[]))?;
    let single = NewJob {
        files: 1,
        ..many_files(0, &[])
    };
    let bytes = extent.rate_bps / 8 * (extent.warm_up_s + extent.scavenged_s) * 2;
    let one = scavenged_by(extent, bytes, single)?;
    Ok([many, one])
}

fn scavenged_by(
    extent: &FairnessExtent,
    file_bytes: u64,
    normal: NewJob<'_>,
) -> Result<Scavenged, Error> {
    let warm_up = || std::thread::sleep(Duration::from_secs(extent.warm_up_s));
    let window = Duration::from_secs(extent.scavenged_s);
    let mut site = site(extent, 2, file_bytes)?;
    site.submit(normal)?;
    warm_up();
    let alone = site.measure(2, window)?[0];
    site.clear()?;
    site.submit(normal)?;
    site.submit(many_files(1, &["--class", "scavenger"]))?;
    warm_up();
    let both = site.measure(2, window)?;
    site.cancel_first()?;
    warm_up();
    let rest = site.measure(2, window)?[1];
    site.clear()?;
    Ok(Scavenged {
        alone,
        beside: both[0],
        taken: both[1],
        rest,
    })
}

impl Fairness {
    /// Whether those who should have more have more, whatever the machine.
    ///
    /// # Errors
    /// The first who have not.
    pub fn check(&self) -> Result<(), String> {
        let unequal = self.equal.iter().find(|(_, index)| *index < LEAST_INDEX);
        if let Some((bytes, index)) = unequal {
            return Err(format!("equal users have {bytes:?}: Jain {index:.3}"));
        }
        let unordered = self.weighted.iter().find(|bytes| !bytes.is_sorted());
        if let Some(bytes) = unordered {
            return Err(format!("weights of 1, 2 and 4 gave {bytes:?}"));
        }
        if self.small.iter().any(|(start, _)| !start.is_finite()) {
            return Err("a small job did not start".to_owned());
        }
        let scavenged = self.scavenged.iter().flatten();
        let outdone = scavenged
            .copied()
            .find(|of| of.taken > of.beside || of.rest <= 0.0);
        outdone.map_or(Ok(()), |of| Err(format!("a scavenger took more: {of:?}")))
    }
}

/// Least index of equal users that is no fault on a busy machine.
const LEAST_INDEX: f64 = 0.7;

/// Median and largest.
pub fn middle_and_most(values: impl Iterator<Item = f64>) -> (f64, f64) {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    let middle = values.get(values.len() / 2).copied();
    (middle.unwrap_or(0.0), values.last().copied().unwrap_or(0.0))
}
