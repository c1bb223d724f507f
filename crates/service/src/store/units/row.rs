//! The hot row of a unit.

use godwit_service_api::agent::Share;
use sqlx::any::AnyRow;

use crate::store::{
    StoreError,
    database::Columns as _,
    manifest::{Outcome, Outcomes},
    policy,
};

/// Epochs of one unit before those of a unit that was made later. The first is the time at which
/// the unit was made: a database that lost its last commits, or was restored, gives a unit number
/// again, but no epoch.
pub(super) const EPOCHS: i64 = 4096;

/// The hot row of a unit.
#[derive(Clone, Debug)]
pub(in crate::store) struct UnitRow {
    pub(in crate::store) id: i64,
    pub(in crate::store) job: i64,
    pub(in crate::store) link: i64,
    pub(in crate::store) segment: i64,
    pub(super) first: u32,
    pub(super) past: u32,
    pub(in crate::store) files: u32,
    pub(in crate::store) bytes: u64,
    pub(in crate::store) agent: Option<i64>,
    pub(in crate::store) epoch: i64,
    pub(in crate::store) results: u64,
    pub(in crate::store) losses: u32,
    pub(in crate::store) attempts: u32,
    pub(in crate::store) directories: bool,
    pub(super) picks: Option<Vec<u32>>,
    pub(in crate::store) share: Share,
    /// Bytes of its only file that it copies.
    pub(in crate::store) range: Option<(u64, u64)>,
}

/// Columns of [`UnitRow::read`].
pub(in crate::store) const UNIT: &str =
    "unit.id, unit.job, unit.link, unit.segment, unit.first, unit.past,
    unit.files, unit.bytes, unit.agent, unit.epoch, unit.results, unit.losses, unit.attempts,
    unit.directories, unit.picks, unit.concurrency, unit.parallelism, unit.range_from,
    unit.range_to";

/// Columns of [`UNIT`].
pub(in crate::store) const UNIT_COLUMNS: usize = 19;

impl UnitRow {
    pub(in crate::store) fn read(row: &AnyRow) -> Result<UnitRow, StoreError> {
        let picks = match row.maybe_text(14)? {
            Some(_) => Some(row.json(14)?),
            None => None,
        };
        Ok(UnitRow {
            id: row.int(0)?,
            job: row.int(1)?,
            link: row.int(2)?,
            segment: row.int(3)?,
            first: row.small(4)?,
            past: row.small(5)?,
            files: row.small(6)?,
            bytes: row.count(7)?,
            agent: row.maybe_int(8)?,
            epoch: row.int(9)?,
            results: row.count(10)?,
            losses: row.small(11)?,
            attempts: row.small(12)?,
            directories: row.flag(13)?,
            picks,
            share: Share {
                concurrency: row.small(15)?,
                parallelism: row.small(16)?,
            },
            range: match row.maybe_int(17)? {
                Some(_) => Some((row.count(17)?, row.count(18)?)),
                None => None,
            },
        })
    }

    /// Stands for the units of a segment that has none.
    pub(in crate::store) fn of_segment(
        job: i64,
        link: i64,
        segment: i64,
        directories: bool,
    ) -> UnitRow {
        UnitRow {
            id: 0,
            job,
            link,
            segment,
            first: 0,
            past: 0,
            files: 1,
            bytes: if directories {
                0
            } else {
                policy::ASSUMED_BYTES
            },
            agent: None,
            epoch: 0,
            results: 0,
            losses: 0,
            attempts: 0,
            directories,
            picks: None,
            share: Share::default(),
            range: None,
        }
    }

    /// How often it was granted.
    pub(super) fn grants(&self) -> i64 {
        self.epoch % EPOCHS
    }

    /// Agents had its files before this grant.
    pub(in crate::store) fn is_again(&self) -> bool {
        self.grants() > 1 || self.losses > 0 || self.attempts > 0
    }

    /// It is of single files that wait for another attempt, or are divided.
    pub(in crate::store) fn has_picks(&self) -> bool {
        self.picks.is_some()
    }

    /// Its only file may be divided.
    pub(super) fn is_of_one_pick(&self) -> bool {
        self.picks.as_ref().is_some_and(|picks| picks.len() == 1)
    }

    /// Places that are still to be done, in order: agents report picked ones in any. Picked places
    /// are in no other unit.
    pub(in crate::store) fn open(&self, outcomes: &Outcomes) -> Vec<u32> {
        let is_open = |place: &u32| match outcomes.get(*place) {
            Outcome::Open => self.picks.is_none(),
            Outcome::Odd => self.picks.is_some(),
            Outcome::Finished | Outcome::Skipped => false,
        };
        let mut open: Vec<u32> = match &self.picks {
            Some(picks) => picks.iter().copied().filter(is_open).collect(),
            None => return (self.first..self.past).filter(is_open).collect(),
        };
        open.sort_unstable();
        open
    }
}
