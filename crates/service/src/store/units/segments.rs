//! Segments of a job, and the units that are cut of them.

use std::collections::BTreeMap;

use godwit_service_api::job::FileRequest;

use super::{
    BYTES_MAX, CHANGE_MAX,
    row::{EPOCHS, UnitRow},
};
use crate::store::{
    StoreError,
    database::{Columns as _, Work},
    manifest::{self, Outcome, Outcomes},
    policy,
};

/// Files of one pair of endpoints that become part of a job.
pub(in crate::store) struct NewSegment<'a> {
    pub(in crate::store) job: i64,
    pub(in crate::store) link: i64,
    /// Its entries are to be listed.
    pub(in crate::store) directories: bool,
    pub(in crate::store) files: &'a [FileRequest],
    /// Not before this unit, which lists, has ended.
    pub(in crate::store) staged: Option<i64>,
    /// The job has no unit of files yet.
    pub(in crate::store) first: bool,
    /// Its turn comes later, by the order of its job: it has no unit yet.
    pub(in crate::store) waits: bool,
}

/// Appends a segment, and its units unless it is staged.
pub(in crate::store) async fn append(
    work: &mut Work,
    segment: &NewSegment<'_>,
) -> Result<(), StoreError> {
    let files = segment.files;
    let text = "UPDATE job SET next_index = next_index + $2, next_segment = next_segment + 1
        WHERE number = $1 RETURNING next_index, next_segment";
    let query = work.query(text).bind(segment.job).bind(files.len() as i64);
    let row = query.fetch_one(work.connection()).await?;
    let (base, seq) = (row.int(0)? - files.len() as i64, row.int(1)? - 1);
    let text = "INSERT INTO segment
        (job, seq, link, directories, base, files, sized, manifest, outcomes, staged)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10)";
    let query = work
        .query(text)
        .bind(segment.job)
        .bind(seq)
        .bind(segment.link)
        .bind(i64::from(segment.directories))
        .bind(base)
        .bind(files.len() as i64)
        .bind(i64::from(files.iter().all(|f| f.bytes.is_some())))
        .bind(manifest::encode(files)?)
        .bind(Outcomes::new(files.len()).as_bytes().to_vec())
        .bind(segment.staged);
    query.execute(work.connection()).await?;
    match segment.staged {
        Some(_) => Ok(()),
        None => {
            if !segment.waits {
                cut(work, segment, seq).await?;
            }
            count(work, segment).await
        }
    }
}

/// Makes units of a segment.
async fn cut(work: &mut Work, segment: &NewSegment<'_>, seq: i64) -> Result<(), StoreError> {
    let sizes: Vec<Option<u64>> = segment.files.iter().map(|f| f.bytes).collect();
    let cuts = match segment.directories {
        true => (0..sizes.len())
            .map(|place| (place..place + 1, 0))
            .collect(),
        false => policy::cut(&sizes, segment.first),
    };
    for (places, bytes) in cuts {
        let text = "INSERT INTO unit (job, link, segment, first, past, files, bytes, directories,
            epoch)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, {now} / $9 * $9)";
        let query = work
            .query(text)
            .bind(segment.job)
            .bind(segment.link)
            .bind(seq)
            .bind(places.start as i64)
            .bind(places.end as i64)
            .bind(places.len() as i64)
            .bind(bytes as i64)
            .bind(i64::from(segment.directories))
            .bind(EPOCHS);
        query.execute(work.connection()).await?;
    }
    Ok(())
}

/// Makes the unit of a file whose turn it is. It has one already where the job has any.
pub(in crate::store) async fn release_file(
    work: &mut Work,
    job: i64,
    index: u64,
) -> Result<(), StoreError> {
    let text = "SELECT seq, link, manifest FROM segment WHERE job = $1 AND base = $2
        AND NOT EXISTS (SELECT 1 FROM unit WHERE job = $1)";
    let query = work.query(text).bind(job).bind(index as i64);
    let Some(row) = query.fetch_optional(work.connection()).await? else {
        return Ok(());
    };
    let files = manifest::decode(&row.bytes(2)?)?;
    let segment = NewSegment {
        job,
        link: row.int(1)?,
        directories: false,
        files: &files,
        staged: None,
        first: false,
        waits: false,
    };
    cut(work, &segment, row.int(0)?).await
}

/// Counts the files of a segment.
async fn count(work: &mut Work, segment: &NewSegment<'_>) -> Result<(), StoreError> {
    let sizes = segment.files.iter().map(|file| file.bytes);
    let count = sizes.len() as i64;
    let (files, listings) = match segment.directories {
        true => (0, count),
        false => (count, 0),
    };
    let bytes = sizes
        .flatten()
        .fold(0_u64, |all, size| all.saturating_add(size));
    let text = "UPDATE job SET total = total + $2, listings = listings + $3,
        bytes_total = CASE WHEN bytes_total > $5 - $4 THEN $5 ELSE bytes_total + $4 END
        WHERE number = $1";
    let query = work
        .query(text)
        .bind(segment.job)
        .bind(files)
        .bind(listings)
        .bind(bytes.min(CHANGE_MAX as u64) as i64)
        .bind(BYTES_MAX);
    query.execute(work.connection()).await?;
    Ok(())
}

/// Makes what a listing found part of the job.
pub(super) async fn publish_staged(work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
    let text = "SELECT total, (SELECT COUNT(*) FROM segment WHERE staged = $2)
        FROM job WHERE number = $1";
    let query = work.query(text).bind(unit.job).bind(unit.id);
    let row = query.fetch_one(work.connection()).await?;
    let (mut first, mut left) = (row.int(0)? == 0, row.int(1)?);
    while left > 0 {
        let text = "SELECT seq, link, directories, manifest FROM segment
            WHERE staged = $1 ORDER BY seq LIMIT 1";
        let query = work.query(text).bind(unit.id);
        let row = query.fetch_one(work.connection()).await?;
        let files = manifest::decode(&row.bytes(3)?)?;
        let (seq, directories) = (row.int(0)?, row.flag(2)?);
        let segment = NewSegment {
            job: unit.job,
            link: row.int(1)?,
            directories,
            files: &files,
            staged: None,
            first: first && !directories,
            waits: false,
        };
        cut(work, &segment, seq).await?;
        count(work, &segment).await?;
        first &= directories;
        let text = "UPDATE segment SET staged = NULL WHERE job = $1 AND seq = $2";
        let query = work.query(text).bind(unit.job).bind(seq);
        query.execute(work.connection()).await?;
        left -= 1;
    }
    Ok(())
}

/// Number of a pair of endpoints, which is made where there is none.
pub(in crate::store) async fn link_number(
    work: &mut Work,
    source: &str,
    destination: &str,
) -> Result<i64, StoreError> {
    let find = "SELECT number FROM link WHERE source = $1 AND destination = $2";
    let make = "INSERT INTO link (source, destination, limits) VALUES ($1, $2, '{}')
        ON CONFLICT (source, destination) DO NOTHING";
    for text in [find, make, find] {
        let query = work.query(text);
        let query = query.bind(source.to_owned()).bind(destination.to_owned());
        if let Some(row) = query.fetch_optional(work.connection()).await? {
            return row.int(0);
        }
    }
    Err(StoreError::Conflict("the link was removed"))
}

/// A segment whose outcomes change.
pub(super) struct Segment {
    job: i64,
    number: i64,
    pub(super) base: i64,
    pub(super) outcomes: Outcomes,
    pub(super) files: Option<Vec<FileRequest>>,
    pub(super) receipts: manifest::Receipts,
    changed: bool,
    pub(super) new_receipts: bool,
}

impl Segment {
    /// Reads and locks it. Sizes are read where the agent may know more of them.
    pub(super) async fn lock(work: &mut Work, unit: &UnitRow) -> Result<Segment, StoreError> {
        let text = "SELECT base, outcomes, receipts,
            CASE WHEN sized = 1 AND directories = 0 THEN NULL ELSE manifest END
            FROM segment WHERE job = $1 AND seq = $2 {lock}";
        let query = work.query(text).bind(unit.job).bind(unit.segment);
        let row = query.fetch_one(work.connection()).await?;
        Ok(Segment {
            job: unit.job,
            number: unit.segment,
            base: row.int(0)?,
            outcomes: Outcomes::from_bytes(row.bytes(1)?),
            receipts: manifest::decode_receipts(row.maybe_bytes(2)?.as_deref())?,
            files: row
                .maybe_bytes(3)?
                .map(|m| manifest::decode(&m))
                .transpose()?,
            changed: false,
            new_receipts: false,
        })
    }

    pub(super) fn set(&mut self, place: u32, outcome: Outcome) {
        self.outcomes.set(place, outcome);
        self.changed = true;
    }

    /// It is that of the files of `unit`.
    pub(super) fn is_of(&self, unit: &UnitRow) -> bool {
        (self.job, self.number) == (unit.job, unit.segment)
    }

    pub(super) async fn write(self, work: &mut Work) -> Result<(), StoreError> {
        if !self.changed {
            return Ok(());
        }
        let outcomes = self.outcomes.as_bytes().to_vec();
        let query = match self.new_receipts {
            true => work
                .query(
                    "UPDATE segment SET outcomes = $3, receipts = $4 WHERE job = $1 AND seq = $2",
                )
                .bind(self.job)
                .bind(self.number)
                .bind(outcomes)
                .bind(manifest::encode_receipts(&self.receipts)?),
            false => work
                .query("UPDATE segment SET outcomes = $3 WHERE job = $1 AND seq = $2")
                .bind(self.job)
                .bind(self.number)
                .bind(outcomes),
        };
        query.execute(work.connection()).await?;
        Ok(())
    }
}

/// The directory that a unit lists. Locks its segment, as what follows locks the job.
pub(in crate::store) async fn directory(
    work: &mut Work,
    unit: &UnitRow,
) -> Result<FileRequest, StoreError> {
    let segment = Segment::lock(work, unit).await?;
    let mut directories = segment.files.unwrap_or_default().into_iter();
    let directory = directories.nth(unit.first as usize);
    directory.ok_or_else(|| StoreError::Corrupt("a unit is not in its segment".to_owned()))
}

/// Adds what a listing found, as segments that wait for its end.
pub(in crate::store) async fn stage(
    work: &mut Work,
    unit: &UnitRow,
    found: &[(String, String, FileRequest)],
) -> Result<(), StoreError> {
    let mut groups: BTreeMap<(&str, &str, bool), Vec<FileRequest>> = BTreeMap::new();
    for (source, destination, file) in found {
        let key = (source.as_str(), destination.as_str(), file.recursive);
        groups.entry(key).or_default().push(file.clone());
    }
    for ((source, destination, directories), files) in groups {
        let link = link_number(work, source, destination).await?;
        for files in files.chunks(manifest::SEGMENT_FILES) {
            let segment = NewSegment {
                job: unit.job,
                link,
                directories,
                files,
                staged: Some(unit.id),
                first: false,
                waits: false,
            };
            append(work, &segment).await?;
        }
    }
    Ok(())
}

/// What a listing found is not part of the job: it is listed again.
pub(super) async fn drop_staged(work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
    let query = work
        .query("DELETE FROM segment WHERE staged = $1")
        .bind(unit.id);
    query.execute(work.connection()).await?;
    Ok(())
}
