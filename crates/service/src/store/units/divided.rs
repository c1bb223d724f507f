//! Files that several units copy, each a range of it, into one temporary file.
//!
//! An agent that is to copy a large file finds out how it can be divided. The row of
//! `divided_file` lives from then until the file has its name or was given up. Its units pick the
//! place of the file: one for each range, and one for the end when all ranges are copied. Ranges
//! have attempts of their own; a source that has changed, or a range that is given up, ends the
//! division, and with it all its units.

use godwit_proto::temporary::is_temporary;
use godwit_service_api::{
    agent::{Division, FileEnd, FileOutcome, FilePart},
    event::JobEventKind,
    job::{FileError, MAX_FILE_BYTES},
};

use super::{
    failures::{self, Failure},
    job_row::{self, Changes},
    leftovers,
    queue::{self, End, PickedUnit},
    row::UnitRow,
};
use crate::store::{
    StoreError,
    database::{Columns as _, Work},
    manifest, policy,
};

/// A range of a divided file, or the end of it.
pub(super) struct Part {
    job: i64,
    segment: i64,
    place: u32,
    index: i64,
    /// The unit has no other file: else this one is not divided.
    is_alone: bool,
}

impl Part {
    /// Of a place of a segment that begins at `base`.
    pub(super) fn new(unit: &UnitRow, base: i64, place: u32) -> Part {
        Part {
            job: unit.job,
            segment: unit.segment,
            place,
            index: base + i64::from(place),
            is_alone: unit.is_of_one_pick(),
        }
    }

    /// Cuts the file into ranges. False: what the agent says makes no sense.
    pub(super) async fn divide(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        division: &Division,
        above: u64,
        changes: &mut Changes,
    ) -> Result<bool, StoreError> {
        let name = &division.temporary;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let is_plain = name.len() < 100 && name.bytes().all(is_of_name);
        let is_sized = (1..=MAX_FILE_BYTES).contains(&division.size);
        if !is_plain || !is_sized || !is_temporary(name.as_bytes()) {
            return Ok(false);
        }
        let text = "SELECT manifest FROM segment WHERE job = $1 AND seq = $2";
        let query = work.query(text).bind(self.job).bind(self.segment);
        let row = query.fetch_one(work.connection()).await?;
        let mut files = manifest::decode(&row.bytes(0)?)?.into_iter();
        let file = files.nth(self.place as usize).unwrap_or_default();
        let Some((directory, _)) = file.destination.rsplit_once('/') else {
            return Ok(false);
        };
        let ranges = policy::ranges(division.size, above);
        let text = "INSERT INTO divided_file (job, number, temporary, size, changed, waiting)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (job, number) DO NOTHING";
        let query = work
            .query(text)
            .bind(self.job)
            .bind(self.index)
            .bind(format!("{directory}/{name}"))
            .bind(division.size as i64)
            .bind(division.changed)
            .bind(ranges.len() as i64);
        if query.execute(work.connection()).await?.rows_affected() == 0 {
            return Ok(false);
        }
        let places = [self.place];
        for range in &ranges {
            let new = PickedUnit {
                range: Some((range.start, range.end)),
                ..PickedUnit::of(&places)
            };
            queue::insert_picked(work, unit, &new).await?;
        }
        let event = JobEventKind::Divided {
            index: self.index as u64,
            ranges: ranges.len() as u64,
        };
        changes.event(self.job, event);
        changes.more_work(self.job);
        Ok(true)
    }

    /// Takes in what an agent says of a range.
    pub(super) async fn take_range(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        (agent, files): (&str, &[FileOutcome]),
        end: Option<End<'_>>,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let mut failed = end.and_then(|end| end.error);
        for file in files.iter().filter(|file| file.index as i64 == self.index) {
            match &file.end {
                FileEnd::Copied => return self.copied(work, unit, changes).await,
                FileEnd::Failed(error) => failed = Some(error),
                FileEnd::Finished { .. } | FileEnd::Skipped | FileEnd::Divided(_) => {}
            }
        }
        match (failed, end) {
            (Some(error), _) => {
                let most = failures::attempts_of_job(work, self.job).await?;
                self.range_failed(work, unit, (agent, error), most, changes)
                    .await
            }
            (None, Some(_)) => queue::release(work, unit, &[self.place], changes).await,
            (None, None) => queue::keep(work, unit, &[self.place]).await,
        }
    }

    async fn copied(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        queue::delete(work, unit).await?;
        let bytes = unit.range.map_or(0, |(from, to)| to.saturating_sub(from)) as i64;
        let text = "UPDATE divided_file SET waiting = waiting - 1, copied = copied + $3
            WHERE job = $1 AND number = $2 RETURNING waiting";
        let query = work.query(text).bind(self.job).bind(self.index).bind(bytes);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(());
        };
        changes.add_bytes_done(self.job, bytes);
        if row.int(0)? == 0 && !job_row::is_final(work, self.job).await? {
            queue::insert_picked(work, unit, &PickedUnit::of(&[self.place])).await?;
            changes.more_work(self.job);
        }
        Ok(())
    }

    /// The range is tried again, or the file is given up.
    async fn range_failed(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        (agent, error): (&str, &FileError),
        most: u32,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let attempts = unit.attempts + 1;
        if error.may_pass && attempts < most && !is_of_source(error) {
            let event = JobEventKind::FileFailed {
                index: self.index as u64,
                attempts,
                error: error.clone(),
            };
            changes.event(self.job, event);
            changes.failed_with(error);
            changes.more_work(self.job);
            queue::delete(work, unit).await?;
            let places = [self.place];
            let new = PickedUnit {
                range: unit.range,
                losses: unit.losses,
                ..PickedUnit::of(&places)
            };
            return failures::retry(work, unit, attempts, &new).await;
        }
        self.give_up(work, changes).await?;
        let failure = Failure {
            index: self.index,
            agent,
            error,
            most: if is_of_source(error) { most } else { 0 },
        };
        if let Some(attempts) = failures::fail(work, unit, &failure, changes).await? {
            changes.more_work(self.job);
            return failures::retry(work, unit, attempts, &PickedUnit::of(&[self.place])).await;
        }
        Ok(())
    }

    /// The file has its name: what its ranges counted is counted again as the file's.
    pub(super) async fn finished(
        &self,
        work: &mut Work,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        self.end(work, changes).await.map(|_| ())
    }

    /// After a failure of its end: the next attempt is made of the same temporary file, unless the
    /// source is another one or there is none.
    pub(super) async fn end_failed(
        &self,
        work: &mut Work,
        error: &FileError,
        again: bool,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        match again && !is_of_source(error) {
            true => Ok(()),
            false => self.give_up(work, changes).await,
        }
    }

    /// Ends the division with all its units. An agent removes the temporary file when no other can
    /// write it any more.
    pub(super) async fn give_up(
        &self,
        work: &mut Work,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let Some(temporary) = self.end(work, changes).await? else {
            return Ok(());
        };
        let text = "DELETE FROM unit WHERE job = $1 AND segment = $2 AND first = $3
            AND range_from IS NOT NULL";
        let query = work.query(text).bind(self.job).bind(self.segment);
        let query = query.bind(i64::from(self.place));
        query.execute(work.connection()).await?;
        changes.job(self.job).requeued = true;
        leftovers::leave(work, self.job, &[temporary]).await
    }

    /// URL of the temporary file, where the file is divided.
    async fn end(
        &self,
        work: &mut Work,
        changes: &mut Changes,
    ) -> Result<Option<String>, StoreError> {
        if !self.is_alone {
            return Ok(None);
        }
        let text = "DELETE FROM divided_file WHERE job = $1 AND number = $2
            RETURNING temporary, copied";
        let query = work.query(text).bind(self.job).bind(self.index);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(None);
        };
        changes.add_bytes_done(self.job, -row.int(1)?);
        Ok(Some(row.text(0)?))
    }
}

/// The source is not what it was when it was divided.
fn is_of_source(error: &FileError) -> bool {
    error.code == "changed"
}

/// What a unit does of a divided file, from columns `temporary, size, changed`.
pub(in crate::store) fn part_of(
    unit: &UnitRow,
    row: &sqlx::any::AnyRow,
    column: usize,
) -> Result<Option<FilePart>, StoreError> {
    Ok(match row.maybe_text(column)? {
        Some(temporary) if unit.is_of_one_pick() => Some(FilePart {
            temporary,
            size: row.count(column + 1)?,
            changed: row.int(column + 2)?,
            range: unit.range,
        }),
        _ => None,
    })
}
