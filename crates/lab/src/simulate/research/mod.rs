//! A research network at scale, with flows as rates: who gets what under four ways to share.
//!
//! | Module | What is in it |
//! |---|---|
//! | `scenario` | the words of a scenario; links and routes |
//! | `workload` | transfers of a day, from a seed |
//! | `alone` | every transfer alone, static or tuned |
//! | `service` | the service's scheduler, with agents and sessions |
//! | `outcome` | who got what |
//! | `timeline` | events by time |

mod alone;
pub(super) mod outcome;
mod scenario;
mod service;
mod timeline;
mod workload;

pub use outcome::{DayResult, LinkResult};
pub use scenario::{MapLink, MapSite, ResearchStudy, ServiceSpec, Sizes};
use serde::Serialize;

use super::parallel::Workers;
use scenario::Map;

/// Of a quick run: days, and the part of the hours and of the transfers.
const QUICK_SEEDS: u32 = 1;
const QUICK_PART: u32 = 24;

/// How transfers share the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum SharingWay {
    /// Each alone with a fixed number of connections.
    Static,
    /// Each alone with a tuner.
    Tuned,
    /// The service, with endpoint budgets; all jobs are of one user.
    Budgets,
    /// The service, with budgets and shares of users.
    FairShares,
}

impl SharingWay {
    /// All, as pages show them.
    pub const ALL: [Self; 4] = [Self::Static, Self::Tuned, Self::Budgets, Self::FairShares];

    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Static => "alone, static",
            Self::Tuned => "alone, tuned",
            Self::Budgets => "service, budgets",
            Self::FairShares => "service, budgets and fair shares",
        }
    }
}

/// Days under one way to share, by seed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ResearchResult {
    /// How, and what each day gave.
    pub(super) ways: Vec<(SharingWay, Vec<DayResult>)>,
    /// Transfers and bytes of each day.
    pub(super) days: Vec<(usize, f64)>,
}

pub(super) fn run(study: &ResearchStudy, quick: bool, workers: Workers<'_>) -> ResearchResult {
    let mut study = study.clone();
    if quick {
        study.seeds = study.seeds.min(QUICK_SEEDS);
        study.hours = study.hours.div_ceil(QUICK_PART);
        study.transfers = study.transfers.div_ceil(QUICK_PART);
    }
    let study = &study;
    let map = Map::new(study).expect("checked when it was read");
    let seeds = study.seeds as usize;
    let days: Vec<Vec<workload::DrawnTransfer>> = (1..=u64::from(study.seeds))
        .map(|seed| workload::draw(study, seed))
        .collect();
    let ways = SharingWay::ALL.len();
    // The longest first.
    let mut results: Vec<DayResult> = workers.map(ways * seeds, |index| {
        let (sharing, transfers) = (
            SharingWay::ALL[ways - 1 - index / seeds],
            &days[index % seeds],
        );
        let day = match sharing {
            SharingWay::Static => alone::run(study, &map, transfers, false),
            SharingWay::Tuned => alone::run(study, &map, transfers, true),
            SharingWay::Budgets => service::run(study, &map, transfers, false),
            SharingWay::FairShares => service::run(study, &map, transfers, true),
        };
        outcome::result(study, &map, transfers, &day)
    });
    let mut ways: Vec<(SharingWay, Vec<DayResult>)> = (SharingWay::ALL.into_iter().rev())
        .map(|sharing| (sharing, results.drain(..seeds).collect()))
        .collect();
    ways.reverse();
    #[allow(clippy::cast_precision_loss, reason = "bytes of a day")]
    let bytes = |day: &Vec<workload::DrawnTransfer>| day.iter().map(|t| t.bytes as f64).sum();
    ResearchResult {
        ways,
        days: days.iter().map(|day| (day.len(), bytes(day))).collect(),
    }
}

#[cfg(test)]
mod tests;
