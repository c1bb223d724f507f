//! Files that several units copy, each a range of it, into one temporary file.
//!
//! An agent that is to copy a large file finds out how it can be divided. The row of
//! `divided_file` lives from then until the file has its name or was given up. Its units pick the
//! place of the file: one for each range, and one for the end when all ranges are copied. Ranges
//! have attempts of their own; a source that has changed, or a range that is given up, ends the
//! division, and with it all its units.

use godwit_proto::temporary::is_temporary;
use godwit_service_api::{
    agent::{DividedUpload, Division, FileEnd, FileOutcome, FilePart},
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

/// Bytes of what agents know an upload in parts by: its id, its object's name, and some numbers.
const UPLOAD_NAME_MAX: usize = 8 << 10;

/// Parts of an upload to a bucket.
const PARTS_MAX: u64 = 10_000;

/// What became of a division that an agent reports.
pub(super) enum Divided {
    InRanges,
    /// What it says makes no sense.
    Odd,
    /// The job is over, and an agent removes what was begun.
    Late,
}

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

    /// Cuts the file into ranges.
    pub(super) async fn divide(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        division: &Division,
        above: u64,
        changes: &mut Changes,
    ) -> Result<Divided, StoreError> {
        let name = &division.temporary;
        let is_of_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-');
        let is_plain = name.len() < 100 && name.bytes().all(is_of_name);
        let is_sized = (1..=MAX_FILE_BYTES).contains(&division.size);
        let upload = division.upload.as_ref();
        if !is_plain
            || !is_sized
            || !is_temporary(name.as_bytes())
            || !upload.is_none_or(|upload| is_upload(upload, division.size))
        {
            return Ok(Divided::Odd);
        }
        let text = "SELECT manifest FROM segment WHERE job = $1 AND seq = $2";
        let query = work.query(text).bind(self.job).bind(self.segment);
        let row = query.fetch_one(work.connection()).await?;
        let mut files = manifest::decode(&row.bytes(0)?)?.into_iter();
        let file = files.nth(self.place as usize).unwrap_or_default();
        let Some((directory, _)) = file.destination.rsplit_once('/') else {
            return Ok(Divided::Odd);
        };
        let temporary = format!("{directory}/{name}");
        let known_as = upload.map(|own| own.known_as.clone());
        if job_row::is_final(work, self.job).await? {
            leftovers::leave(work, self.job, &[(temporary, known_as)]).await?;
            return Ok(Divided::Late);
        }
        let ranges = policy::ranges(division.size, above, upload.map(|own| own.part_bytes));
        let text = "INSERT INTO divided_file
            (job, number, temporary, size, changed, waiting, upload)
            VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT (job, number) DO NOTHING";
        let query = work
            .query(text)
            .bind(self.job)
            .bind(self.index)
            .bind(temporary)
            .bind(division.size as i64)
            .bind(division.changed)
            .bind(ranges.len() as i64)
            .bind(known_as);
        if query.execute(work.connection()).await?.rows_affected() == 0 {
            return Ok(Divided::Odd);
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
        Ok(Divided::InRanges)
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
        if error.may_pass && attempts < most && !ends_division(error) {
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
            most: if ends_division(error) { most } else { 0 },
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

    /// After a failure of the file, or of its end: the next attempt is made of the same temporary
    /// file, unless the source is another one or there is none. `Some`: after so many attempts.
    pub(super) async fn failed(
        &self,
        work: &mut Work,
        unit: &UnitRow,
        (agent, error): (&str, &FileError),
        most: u32,
        changes: &mut Changes,
    ) -> Result<Option<u32>, StoreError> {
        let failure = Failure {
            index: self.index,
            agent,
            error,
            most,
        };
        let attempts = failures::fail(work, unit, &failure, changes).await?;
        if attempts.is_none() || ends_division(error) {
            self.give_up(work, changes).await?;
        }
        Ok(attempts)
    }

    /// Ends the division with all its units. An agent removes the temporary file when no other can
    /// write it any more.
    pub(super) async fn give_up(
        &self,
        work: &mut Work,
        changes: &mut Changes,
    ) -> Result<(), StoreError> {
        let Some(file) = self.end(work, changes).await? else {
            return Ok(());
        };
        let text = "DELETE FROM unit WHERE job = $1 AND segment = $2 AND first = $3
            AND range_from IS NOT NULL";
        let query = work.query(text).bind(self.job).bind(self.segment);
        let query = query.bind(i64::from(self.place));
        query.execute(work.connection()).await?;
        changes.job(self.job).requeued = true;
        leftovers::leave(work, self.job, &[file]).await
    }

    /// URL of the temporary file, and what it is known by if it is an upload, where the file is
    /// divided.
    async fn end(
        &self,
        work: &mut Work,
        changes: &mut Changes,
    ) -> Result<Option<(String, Option<String>)>, StoreError> {
        if !self.is_alone {
            return Ok(None);
        }
        let text = "DELETE FROM divided_file WHERE job = $1 AND number = $2
            RETURNING temporary, upload, copied";
        let query = work.query(text).bind(self.job).bind(self.index);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(None);
        };
        changes.add_bytes_done(self.job, -row.int(2)?);
        Ok(Some((row.text(0)?, row.maybe_text(1)?)))
    }
}

/// Whether what an agent says of an upload in parts can be: name of the object, bytes of a part and
/// of the object, and what agents know besides.
fn is_upload(upload: &DividedUpload, size: u64) -> bool {
    let is_shown = |byte: u8| byte == b' ' || byte.is_ascii_graphic();
    let known_as = &upload.known_as;
    let is_plain = known_as.len() <= UPLOAD_NAME_MAX && known_as.bytes().all(is_shown);
    let mut words = known_as.split(' ').skip(1);
    let is_same = |word: Option<&str>, number: u64| word == Some(&*number.to_string());
    let agrees = is_same(words.next(), upload.part_bytes) && is_same(words.next(), size);
    let parts = size.checked_div(upload.part_bytes);
    is_plain && agrees && parts.is_some_and(|parts| parts < PARTS_MAX)
}

/// The source is not what it was when it was divided, or what agents have sent of it is gone.
fn ends_division(error: &FileError) -> bool {
    matches!(&*error.code, "changed" | "upload_ended")
}

/// What a unit does of a divided file, from columns `temporary, size, changed, upload`.
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
            upload: row.maybe_text(column + 3)?,
        }),
        _ => None,
    })
}
