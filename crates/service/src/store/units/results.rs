//! What agents say of files.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use godwit_service_api::{
    agent::{FileEnd, FileOutcome},
    job::{FileError, MAX_FILE_BYTES, WhoActs},
};

use super::{
    divided::{Divided, Part},
    failures,
    job_row::Changes,
    queue::{self, End, PickedUnit},
    row::UnitRow,
    segments::{self, Segment},
};
use crate::store::{
    StoreError,
    database::{Work, json},
    manifest::Outcome,
};

/// Files of a unit that failed and are tried again, by how often they failed.
type Retries = BTreeMap<u32, Vec<u32>>;

/// What results of one poll change together: the segment that those of several units are of, and
/// the units that have ended.
#[derive(Default)]
pub(in crate::store) struct Batch {
    segment: Option<Segment>,
    ended: BTreeSet<i64>,
}

impl Batch {
    /// A result said that nothing of the unit is left.
    pub(in crate::store) fn has_ended(&self, unit: i64) -> bool {
        self.ended.contains(&unit)
    }

    /// The segment of a unit, locked.
    async fn take(&mut self, work: &mut Work, unit: &UnitRow) -> Result<Segment, StoreError> {
        if let Some(segment) = self.segment.take() {
            if segment.is_of(unit) {
                return Ok(segment);
            }
            segment.write(work).await?;
        }
        Segment::lock(work, unit).await
    }

    /// Before anything else reads units or segments.
    pub(in crate::store) async fn write(&mut self, work: &mut Work) -> Result<(), StoreError> {
        if let Some(segment) = self.segment.take() {
            segment.write(work).await?;
        }
        if !self.ended.is_empty() {
            let query = work.query("DELETE FROM unit WHERE id IN {list}");
            let query = query.bind(json(&self.ended)?);
            query.execute(work.connection()).await?;
        }
        Ok(())
    }
}

/// Takes in what an agent says of files of a unit. `end`: this grant is over. `above`: files of
/// more bytes may be divided. What `batch` holds is not written yet.
pub(in crate::store) async fn take_results(
    work: &mut Work,
    unit: &UnitRow,
    (agent, above): (&str, u64),
    files: &[FileOutcome],
    end: Option<End<'_>>,
    batch: &mut Batch,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    let mut segment = batch.take(work, unit).await?;
    if unit.range.is_some() {
        let part = Part::new(unit, segment.base, unit.first);
        batch.segment = Some(segment);
        return part
            .take_range(work, unit, (agent, files), end, changes)
            .await;
    }
    let mut ended = BTreeSet::new();
    let mut failed = Vec::<(Part, u32, Cow<'_, FileError>)>::new();
    let open = unit.open(&segment.outcomes);
    for file in files {
        let place = i64::try_from(file.index)
            .ok()
            .map(|index| index - segment.base);
        let Some(place) = place.and_then(|p| u32::try_from(p).ok()) else {
            continue;
        };
        if unit.directories || open.binary_search(&place).is_err() || !ended.insert(place) {
            continue;
        }
        let part = Part::new(unit, segment.base, place);
        match &file.end {
            FileEnd::Finished { size, checksum } => {
                part.finished(work, changes).await?;
                let change = changes.job(unit.job);
                segment.set(place, Outcome::Finished);
                change.finished += 1;
                let size = (*size).min(MAX_FILE_BYTES);
                change.bytes_done = change.bytes_done.saturating_add(size as i64);
                let link = changes.link(unit.link);
                link.finished += 1;
                link.bytes = link.bytes.saturating_add(size);
                let change = changes.job(unit.job);
                let known = match &segment.files {
                    Some(files) => files.get(place as usize).and_then(|f| f.bytes),
                    None => Some(size),
                };
                let more = size as i64 - known.unwrap_or(0) as i64;
                change.bytes_total = change.bytes_total.saturating_add(more);
                if checksum.is_some() || known != Some(size) {
                    segment.receipts.insert(place, (size, checksum.clone()));
                    segment.new_receipts = true;
                }
            }
            FileEnd::Skipped => {
                part.give_up(work, changes).await?;
                segment.set(place, Outcome::Skipped);
                changes.job(unit.job).skipped += 1;
            }
            FileEnd::Divided(division) => {
                match part.divide(work, unit, division, above, changes).await? {
                    Divided::InRanges => segment.set(place, Outcome::Odd),
                    // It stays open, as if nothing was said of it.
                    Divided::Late => drop(ended.remove(&place)),
                    Divided::Odd => failed.push((part, place, Cow::Owned(odd_division()))),
                }
            }
            FileEnd::Copied => drop(ended.remove(&place)),
            FileEnd::Failed(error) => failed.push((part, place, Cow::Borrowed(error))),
        }
    }
    if let Some(End {
        error: Some(error), ..
    }) = end
    {
        if unit.directories {
            let attempts = failures::attempts_of_job(work, unit.job).await?;
            return failures::fail_listing(work, unit, segment, agent, error, attempts, changes)
                .await;
        }
        for place in unit.open(&segment.outcomes) {
            if ended.insert(place) {
                let part = Part::new(unit, segment.base, place);
                failed.push((part, place, Cow::Borrowed(error)));
            }
        }
    }
    let most = match failed.is_empty() {
        true => 0,
        false => failures::attempts_of_job(work, unit.job).await?,
    };
    let mut retries = Retries::new();
    for (part, place, error) in failed {
        segment.set(place, Outcome::Odd);
        let by = (agent, &*error);
        if let Some(attempts) = part.failed(work, unit, by, most, changes).await? {
            retries.entry(attempts).or_default().push(place);
        }
    }
    let mut open = unit.open(&segment.outcomes);
    open.retain(|place| !ended.contains(place));
    batch.segment = Some(segment);
    for (attempts, places) in retries {
        failures::retry(work, unit, attempts, &PickedUnit::of(&places)).await?;
        changes.more_work(unit.job);
    }
    match end {
        Some(End { listed: true, .. }) if unit.directories => {
            segments::publish_staged(work, unit).await?;
            changes.job(unit.job).listings -= 1;
            changes.more_work(unit.job);
            queue::delete(work, unit).await
        }
        Some(_) if unit.directories => queue::release(work, unit, &[unit.first], changes).await,
        Some(_) if open.is_empty() => {
            batch.ended.insert(unit.id);
            Ok(())
        }
        Some(_) => queue::release(work, unit, &open, changes).await,
        None => queue::keep(work, unit, &open).await,
    }
}

/// An agent reports a division that cannot be.
fn odd_division() -> FileError {
    FileError {
        code: "protocol".to_owned(),
        message: "the agent divides the file in a way that makes no sense".to_owned(),
        who: WhoActs::Operator,
        may_pass: true,
    }
}
