//! Rows of units that wait, are granted, and go back.

use godwit_service_api::job::FileError;

use super::{
    job_row::{self, Changes},
    row::{EPOCHS, UnitRow},
    segments,
};
use crate::store::{
    StoreError,
    database::{Columns as _, Work, json},
};

/// How a grant ends.
#[derive(Clone, Copy)]
pub(in crate::store) struct End<'a> {
    /// The unit as a whole failed.
    pub(in crate::store) error: Option<&'a FileError>,
    /// Its directory is listed.
    pub(in crate::store) listed: bool,
}

pub(in crate::store) struct PickedUnit<'a> {
    pub(in crate::store) places: &'a [u32],
    pub(in crate::store) delay: i64,
    pub(in crate::store) losses: u32,
    pub(in crate::store) attempts: u32,
    pub(in crate::store) range: Option<(u64, u64)>,
}

impl<'a> PickedUnit<'a> {
    /// Whole files, for the first time.
    pub(in crate::store) fn of(places: &'a [u32]) -> Self {
        Self {
            places,
            delay: 0,
            losses: 0,
            attempts: 0,
            range: None,
        }
    }
}

/// A unit of picked places of the segment of `unit`.
pub(in crate::store) async fn insert_picked(
    work: &mut Work,
    unit: &UnitRow,
    new: &PickedUnit<'_>,
) -> Result<(), StoreError> {
    let first = new.places.first().copied().unwrap_or(0);
    let past = new.places.last().copied().unwrap_or(0) + 1;
    let text = "INSERT INTO unit (job, link, segment, first, past, files, bytes, not_before,
        losses, attempts, directories, picks, range_from, range_to, epoch)
        VALUES ($1, $2, $3, $4, $5, $6, $7, {now} + $8, $9, $10, $11, $12, $13, $14,
        {now} / $15 * $15)";
    let bytes = match new.range {
        Some((from, to)) => to.saturating_sub(from) as i64,
        None => part_of_bytes(unit, new.places.len()),
    };
    let query = work
        .query(text)
        .bind(unit.job)
        .bind(unit.link)
        .bind(unit.segment)
        .bind(i64::from(first))
        .bind(i64::from(past))
        .bind(new.places.len() as i64)
        .bind(bytes)
        .bind(new.delay)
        .bind(i64::from(new.losses))
        .bind(i64::from(new.attempts))
        .bind(i64::from(unit.directories))
        .bind(json(new.places)?)
        .bind(new.range.map(|(from, _)| from as i64))
        .bind(new.range.map(|(_, to)| to as i64))
        .bind(EPOCHS);
    query.execute(work.connection()).await?;
    Ok(())
}

/// The first files of a unit that waits, at most so many, as a unit; its number. A unit of which
/// some files have ended stays whole.
pub(in crate::store) async fn take_first(
    work: &mut Work,
    unit: &mut UnitRow,
    files: u32,
) -> Result<i64, StoreError> {
    let is_untouched = unit.picks.is_none() && unit.files == unit.past.saturating_sub(unit.first);
    if !is_untouched || files == 0 || files >= unit.files {
        return Ok(unit.id);
    }
    let (middle, bytes) = (unit.first + files, part_of_bytes(unit, files as usize));
    let text = "INSERT INTO unit (job, link, segment, first, past, files, bytes, losses, attempts,
        directories, epoch)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, {now} / $11 * $11 + $12) RETURNING id";
    let query = work
        .query(text)
        .bind(unit.job)
        .bind(unit.link)
        .bind(unit.segment)
        .bind(i64::from(unit.first))
        .bind(i64::from(middle))
        .bind(i64::from(files))
        .bind(bytes)
        .bind(i64::from(unit.losses))
        .bind(i64::from(unit.attempts))
        .bind(i64::from(unit.directories))
        .bind(EPOCHS)
        .bind(unit.grants());
    let id = query.fetch_one(work.connection()).await?.int(0)?;
    let text = "UPDATE unit SET first = $2, files = files - $3, bytes = bytes - $4 WHERE id = $1";
    let query = work.query(text).bind(unit.id).bind(i64::from(middle));
    let query = query.bind(i64::from(files)).bind(bytes);
    query.execute(work.connection()).await?;
    (unit.first, unit.files) = (middle, unit.files - files);
    unit.bytes -= bytes.unsigned_abs();
    Ok(id)
}

fn part_of_bytes(unit: &UnitRow, files: usize) -> i64 {
    (unit.bytes / u64::from(unit.files.max(1)) * files as u64) as i64
}

pub(super) async fn delete(work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
    let query = work.query("DELETE FROM unit WHERE id = $1").bind(unit.id);
    query.execute(work.connection()).await?;
    Ok(())
}

/// Counts a result of a grant that goes on.
pub(super) async fn keep(work: &mut Work, unit: &UnitRow, open: &[u32]) -> Result<(), StoreError> {
    let picks = unit.picks.as_ref().map(|_| json(open)).transpose()?;
    let text = "UPDATE unit SET results = results + 1, picks = $2 WHERE id = $1";
    let query = work.query(text).bind(unit.id).bind(picks);
    query.execute(work.connection()).await?;
    Ok(())
}

/// A unit goes back to the queue, unless its job is final.
pub(super) async fn release(
    work: &mut Work,
    unit: &UnitRow,
    open: &[u32],
    changes: &mut Changes,
) -> Result<(), StoreError> {
    segments::drop_staged(work, unit).await?;
    if job_row::is_final(work, unit.job).await? {
        return delete(work, unit).await;
    }
    changes.more_work(unit.job);
    give_back(work, unit, open, unit.losses).await
}

pub(super) async fn give_back(
    work: &mut Work,
    unit: &UnitRow,
    open: &[u32],
    losses: u32,
) -> Result<(), StoreError> {
    let picks = unit.picks.as_ref().map(|_| json(open)).transpose()?;
    let text = "UPDATE unit SET agent = NULL, results = results + 1, losses = $2, picks = $3,
        files = $4, bytes = $5
        WHERE id = $1";
    let query = work
        .query(text)
        .bind(unit.id)
        .bind(i64::from(losses))
        .bind(picks)
        .bind(open.len() as i64)
        .bind(part_of_bytes(unit, open.len()));
    query.execute(work.connection()).await?;
    Ok(())
}
