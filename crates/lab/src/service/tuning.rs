//! Six jobs of three users over one bottleneck: tuned together by the service, each for itself, and
//! with static sums of channels.

use std::time::Duration;

use serde::Serialize;

use super::Error;
use super::fairness::middle_and_most;
use super::site::{NewJob, Site, SiteConfig};
use crate::judge::jain;
use crate::path::{Loss, PathConfig};

/// Users, each with two jobs.
const USERS: usize = 3;
/// Jobs over the bottleneck.
const JOBS: usize = 6;

/// How much is done.
#[derive(Debug, Clone, Serialize)]
pub struct TuningExtent {
    /// Names of paths.
    pub paths: Vec<LossyPath>,
    /// Channels of each job that are set; the sum is six times that.
    pub channels: Vec<u32>,
    /// Before bytes are counted, where something tunes.
    pub settle_s: u64,
    /// Before bytes are counted of static sums.
    pub warm_up_s: u64,
    /// Over which bytes are counted.
    pub window_s: u64,
    /// How often each is done.
    pub repeats: usize,
}

/// A path that drops packets at random.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct LossyPath {
    /// Rate in bit/s.
    pub rate_bps: u64,
    /// Delay each way in milliseconds.
    pub delay_ms: u64,
    /// Of packets.
    pub loss: f64,
}

impl TuningExtent {
    /// For the page.
    pub fn full() -> TuningExtent {
        TuningExtent {
            paths: vec![
                LossyPath {
                    rate_bps: 100_000_000,
                    delay_ms: 50,
                    loss: 0.001,
                },
                LossyPath {
                    rate_bps: 200_000_000,
                    delay_ms: 25,
                    loss: 0.0005,
                },
            ],
            channels: vec![1, 2, 4, 8, 16],
            settle_s: 90,
            warm_up_s: 15,
            window_s: 60,
            repeats: 3,
        }
    }

    /// Shows that it works.
    pub fn quick() -> TuningExtent {
        let full = TuningExtent::full();
        TuningExtent {
            paths: full.paths[..1].to_vec(),
            channels: vec![1, 4],
            settle_s: 5,
            warm_up_s: 2,
            window_s: 4,
            repeats: 1,
        }
    }
}

/// Bytes a second of each user, by what decided about channels.
#[derive(Debug, Serialize)]
pub struct TuningRun {
    /// Over which.
    pub path: LossyPath,
    /// What decided.
    pub by: Decider,
    /// Of all users.
    pub rate: f64,
    /// Jain's index of the users.
    pub jain: f64,
}

/// What decides how many channels jobs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Decider {
    /// So many for each job.
    Static(u32),
    /// Each copy tunes itself, and knows of no other.
    Itself,
    /// The service tunes the sum.
    Service,
}

/// Measures all of it.
///
/// # Errors
/// A part of the testbed does not start, or the service does not do what it is asked.
pub fn run(extent: &TuningExtent, told: &mut dyn FnMut(&str)) -> Result<Vec<TuningRun>, Error> {
    let mut measured = Vec::new();
    for _ in 0..extent.repeats {
        for path in &extent.paths {
            let fixed = extent.channels.iter().map(|each| Decider::Static(*each));
            for by in fixed.chain([Decider::Itself, Decider::Service]) {
                let one = measure(extent, *path, by)?;
                told(&format!(
                    "{} Mbit/s {} ms {}: {by:?}: {:.2} MB/s, Jain {:.3}",
                    path.rate_bps / 1_000_000,
                    path.delay_ms,
                    path.loss,
                    one.rate / 1e6,
                    one.jain
                ));
                measured.push(one);
            }
        }
    }
    Ok(measured)
}

fn measure(extent: &TuningExtent, path: LossyPath, by: Decider) -> Result<TuningRun, Error> {
    let ratio = path.loss;
    let mut site = Site::start(&SiteConfig {
        path: PathConfig {
            loss: Loss::Random { ratio },
            ..PathConfig::new(path.rate_bps, path.delay_ms * 1_000_000)
        },
        users: JOBS,
        agents: 2,
        slots: 4,
        file_bytes: 32 << 20,
    })?;
    let settle = match by {
        Decider::Static(_) => extent.warm_up_s,
        Decider::Itself | Decider::Service => extent.settle_s,
    };
    let mut copies = Vec::new();
    for job in 0..JOBS {
        let options = match by {
            Decider::Service => {
                site.submit(NewJob {
                    user: job % USERS,
                    name: &format!("job{job}"),
                    files: 500,
                    options: &[],
                })?;
                continue;
            }
            Decider::Itself => Vec::new(),
            Decider::Static(channels) => ["-c", "1", "-p", &channels.to_string()]
                .map(str::to_owned)
                .to_vec(),
        };
        copies.push(site.copy(job, &options)?);
    }
    std::thread::sleep(Duration::from_secs(settle));
    let bytes = site.measure(JOBS, Duration::from_secs(extent.window_s))?;
    drop(copies);
    if by == Decider::Service {
        site.clear()?;
    }
    #[allow(clippy::cast_precision_loss, reason = "seconds")]
    let seconds = extent.window_s as f64;
    // Each user has the jobs of this number and of three more.
    let users: Vec<f64> = (0..USERS)
        .map(|user| bytes[user] + bytes[user + USERS])
        .collect();
    Ok(TuningRun {
        path,
        by,
        rate: users.iter().sum::<f64>() / seconds,
        jain: jain(&users).unwrap_or(0.0),
    })
}

/// All runs of one decider over one path.
#[derive(Debug)]
pub struct Row {
    /// Over which.
    pub path: LossyPath,
    /// What decided.
    pub by: Decider,
    /// Median of bytes a second.
    pub rate: f64,
    /// Least and most.
    pub spread: (f64, f64),
    /// Part of the median of the best static sum.
    pub of_best: f64,
    /// Least of Jain's indices.
    pub jain: f64,
}

/// A row for each path and decider.
pub fn summarise(measured: &[TuningRun]) -> Vec<Row> {
    let mut rows: Vec<Row> = Vec::new();
    for one in measured {
        if rows
            .iter()
            .any(|row| (row.path, row.by) == (one.path, one.by))
        {
            continue;
        }
        let same = || {
            let of = measured.iter();
            of.filter(|other| (other.path, other.by) == (one.path, one.by))
        };
        let rates = || same().map(|other| other.rate);
        rows.push(Row {
            path: one.path,
            by: one.by,
            rate: middle_and_most(rates()).0,
            spread: (
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
            ),
            of_best: 0.0,
            jain: same().map(|other| other.jain).fold(1.0, f64::min),
        });
    }
    let best = |path| {
        let fixed = rows
            .iter()
            .filter(|row| row.path == path && matches!(row.by, Decider::Static(_)));
        fixed.map(|row| row.rate).fold(0.0, f64::max)
    };
    let best: Vec<f64> = rows.iter().map(|row| best(row.path)).collect();
    for (row, best) in rows.iter_mut().zip(best) {
        row.of_best = row.rate / best;
    }
    rows
}
