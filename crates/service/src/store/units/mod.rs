//! Units, segments and counters of jobs, inside a transaction.
//!
//! Locks are taken in this order: unit, segment, job. A job's row comes last, as many share it.
//! Units are locked by number, segments by key.
//!
//! [`divided`]: files that several units copy, and what they leave.

pub(super) mod divided;

use std::collections::{BTreeMap, BTreeSet};

use godwit_service_api::{
    agent::{FileEnd, FileOutcome, POISON, Share},
    event::JobEventKind,
    job::{FileError, FileRequest, JobOptions, JobState, MAX_FILE_BYTES, WhoActs},
};
use sqlx::any::AnyRow;
use uuid::Uuid;

use self::divided::Part;
use super::{
    StoreError,
    database::{Columns as _, Work, json},
    manifest::{self, Outcome, Outcomes},
    order::{self, Ends, Next},
    policy::{self, AfterLoss},
    webhooks,
};

/// Events of failed files that one transaction adds to a job; the files themselves tell the rest.
const MAX_FAILURE_EVENTS: usize = 20;

/// Counters of bytes stop there: servers and agents say how large files are, and a sum that
/// overflows would be an error of the database for ever.
const BYTES_MAX: i64 = 1 << 62;

/// Most that one transaction adds to a counter of bytes.
const CHANGE_MAX: i64 = 1 << 60;

/// Epochs of one unit before those of a unit that was made later. The first is the time at which
/// the unit was made: a database that lost its last commits, or was restored, gives a unit number
/// again, but no epoch.
const EPOCHS: i64 = 4096;

/// Files of one pair of endpoints that become part of a job.
pub(super) struct NewSegment<'a> {
    pub(super) job: i64,
    pub(super) link: i64,
    /// Its entries are to be listed.
    pub(super) directories: bool,
    pub(super) files: &'a [FileRequest],
    /// Not before this unit, which lists, has ended.
    pub(super) staged: Option<i64>,
    /// The job has no unit of files yet.
    pub(super) first: bool,
    /// Its turn comes later, by the order of its job: it has no unit yet.
    pub(super) waits: bool,
}

/// Appends a segment, and its units unless it is staged.
pub(super) async fn append(work: &mut Work, segment: &NewSegment<'_>) -> Result<(), StoreError> {
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
pub(super) async fn release_file(work: &mut Work, job: i64, index: u64) -> Result<(), StoreError> {
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
async fn publish_staged(work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
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
pub(super) async fn link_number(
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

/// Removes the rest of a job after [`Store::remove_parts`](super::Store::remove_parts).
pub(super) async fn remove_row(work: &mut Work, job: i64) -> Result<(), StoreError> {
    for text in [
        "DELETE FROM webhook WHERE job = $1",
        "DELETE FROM job_error WHERE job = $1",
        "DELETE FROM divided_file WHERE job = $1",
        "DELETE FROM job_after WHERE job = $1",
        "DELETE FROM job WHERE number = $1",
    ] {
        let query = work.query(text).bind(job);
        query.execute(work.connection()).await?;
    }
    Ok(())
}

/// Adds events to a job; their numbers have no gaps, as the job's row is locked.
pub(super) async fn add_events(
    work: &mut Work,
    job: i64,
    events: &[JobEventKind],
) -> Result<(), StoreError> {
    if events.is_empty() {
        return Ok(());
    }
    let text = "UPDATE job SET events = events + $2 WHERE number = $1 RETURNING events";
    let query = work.query(text).bind(job).bind(events.len() as i64);
    let last = query.fetch_one(work.connection()).await?.int(0)?;
    let texts = events.iter().map(json);
    let texts = texts.collect::<Result<Vec<String>, StoreError>>()?;
    let text = "INSERT INTO event (job, number, at, what)
        SELECT $2, $3 + new.place, {now}, new.text FROM {texts} AS new";
    let query = work.query(text).bind(json(&texts)?).bind(job);
    let query = query.bind(last - events.len() as i64 + 1);
    query.execute(work.connection()).await?;
    Ok(())
}

/// Changes the state of a job, with its event. A job that becomes final frees or cancels those
/// that wait for it.
pub(super) async fn set_state(
    work: &mut Work,
    job: i64,
    state: JobState,
    reason: Option<&str>,
) -> Result<(), StoreError> {
    let mut changes = vec![(job, state, reason.map(str::to_owned))];
    while let Some((job, state, reason)) = changes.pop() {
        let ended = match state.is_final() {
            true => "{now}",
            false => "NULL",
        };
        let text =
            format!("UPDATE job SET state = $2, reason = $3, ended = {ended} WHERE number = $1");
        let query = work.query(&text).bind(job).bind(state.as_str());
        query
            .bind(reason.clone())
            .execute(work.connection())
            .await?;
        add_events(work, job, &[JobEventKind::State { state, reason }]).await?;
        if state.is_final() {
            webhooks::add(work, job).await?;
            divided::give_up_all(work, job).await?;
            for next in followers(work, job).await? {
                if state != JobState::Finished {
                    let reason = "a job that it waits for did not finish".to_owned();
                    changes.push((next, JobState::Canceled, Some(reason)));
                }
            }
        }
    }
    Ok(())
}

/// Jobs that waited for this one, and are not final. They wait for it no longer.
async fn followers(work: &mut Work, job: i64) -> Result<Vec<i64>, StoreError> {
    let text = "SELECT number FROM job WHERE ended IS NULL AND number IN
        (SELECT job FROM job_after WHERE predecessor = $1) ORDER BY number";
    let rows = work
        .query(text)
        .bind(job)
        .fetch_all(work.connection())
        .await?;
    let query = work.query("DELETE FROM job_after WHERE predecessor = $1");
    query.bind(job).execute(work.connection()).await?;
    rows.iter().map(|row| row.int(0)).collect()
}

/// Makes a job wait for others; it is canceled when one of them has ended otherwise than well.
pub(super) async fn wait_for(
    work: &mut Work,
    job: i64,
    predecessors: &[Uuid],
) -> Result<(), StoreError> {
    for id in predecessors {
        let text = "SELECT number, state FROM job WHERE id = $1 {lock}";
        let query = work.query(text).bind(id.to_string());
        let row = query.fetch_optional(work.connection()).await?;
        let state = row
            .as_ref()
            .map(|row| row.name::<JobState>(1))
            .transpose()?;
        match (row, state) {
            (Some(_), Some(JobState::Finished)) => {}
            (Some(row), Some(state)) if !state.is_final() => {
                let text = "INSERT INTO job_after (job, predecessor) VALUES ($1, $2)
                    ON CONFLICT (job, predecessor) DO NOTHING";
                let query = work.query(text).bind(job).bind(row.int(0)?);
                query.execute(work.connection()).await?;
            }
            _ => {
                let reason = Some("a job that it waits for did not finish");
                return set_state(work, job, JobState::Canceled, reason).await;
            }
        }
    }
    Ok(())
}

/// The hot row of a unit.
#[derive(Clone, Debug)]
pub(super) struct UnitRow {
    pub(super) id: i64,
    pub(super) job: i64,
    pub(super) link: i64,
    pub(super) segment: i64,
    first: u32,
    past: u32,
    pub(super) files: u32,
    pub(super) bytes: u64,
    pub(super) agent: Option<i64>,
    pub(super) epoch: i64,
    pub(super) results: u64,
    pub(super) losses: u32,
    pub(super) attempts: u32,
    pub(super) directories: bool,
    picks: Option<Vec<u32>>,
    pub(super) share: Share,
    /// Bytes of its only file that it copies.
    pub(super) range: Option<(u64, u64)>,
}

/// Columns of [`UnitRow::read`].
pub(super) const UNIT: &str = "unit.id, unit.job, unit.link, unit.segment, unit.first, unit.past,
    unit.files, unit.bytes, unit.agent, unit.epoch, unit.results, unit.losses, unit.attempts,
    unit.directories, unit.picks, unit.concurrency, unit.parallelism, unit.range_from,
    unit.range_to";

/// Columns of [`UNIT`].
pub(super) const UNIT_COLUMNS: usize = 19;

impl UnitRow {
    pub(super) fn read(row: &AnyRow) -> Result<UnitRow, StoreError> {
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
    pub(super) fn of_segment(job: i64, link: i64, segment: i64, directories: bool) -> UnitRow {
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
    fn grants(&self) -> i64 {
        self.epoch % EPOCHS
    }

    /// Agents had its files before this grant.
    pub(super) fn is_again(&self) -> bool {
        self.grants() > 1 || self.losses > 0 || self.attempts > 0
    }

    /// Its only file may be divided.
    pub(super) fn is_of_one_pick(&self) -> bool {
        self.picks.as_ref().is_some_and(|picks| picks.len() == 1)
    }

    /// Places that are still to be done. Picked places are in no other unit.
    pub(super) fn open(&self, outcomes: &Outcomes) -> Vec<u32> {
        let is_open = |place: &u32| match outcomes.get(*place) {
            Outcome::Open => self.picks.is_none(),
            Outcome::Odd => self.picks.is_some(),
            Outcome::Finished | Outcome::Skipped => false,
        };
        match &self.picks {
            Some(picks) => picks.iter().copied().filter(is_open).collect(),
            None => (self.first..self.past).filter(is_open).collect(),
        }
    }
}

/// What a transaction changes of jobs; written at its end, by number.
#[derive(Default)]
pub(super) struct Changes {
    jobs: BTreeMap<i64, JobChange>,
    /// Units became ready.
    pub(super) more_work: bool,
}

#[derive(Default)]
struct JobChange {
    total: i64,
    finished: i64,
    skipped: i64,
    failed: i64,
    canceled: i64,
    listings: i64,
    bytes_total: i64,
    bytes_done: i64,
    failures: usize,
    events: Vec<JobEventKind>,
    errors: BTreeMap<String, i64>,
}

impl Changes {
    fn job(&mut self, job: i64) -> &mut JobChange {
        self.jobs.entry(job).or_default()
    }

    pub(super) fn event(&mut self, job: i64, event: JobEventKind) {
        self.job(job).events.push(event);
    }

    pub(super) fn add_bytes_done(&mut self, job: i64, bytes: i64) {
        let done = &mut self.job(job).bytes_done;
        *done = done.saturating_add(bytes);
    }

    /// Writes all, and ends jobs that have nothing left. Names of the jobs with new events.
    pub(super) async fn write(self, work: &mut Work) -> Result<Vec<Uuid>, StoreError> {
        let mut changed = Vec::new();
        for (job, change) in self.jobs {
            let text = "UPDATE job SET total = total + $2, finished = finished + $3,
                skipped = skipped + $4, failed = failed + $5, listings = listings + $6,
                bytes_total = CASE WHEN bytes_total > $9 - $7 THEN $9 ELSE bytes_total + $7 END,
                bytes_done = CASE WHEN bytes_done > $9 - $8 THEN $9 ELSE bytes_done + $8 END,
                canceled = canceled + $10
                WHERE number = $1
                RETURNING id, state, total, finished + skipped, failed, canceled, listings,
                ordered";
            let query = work
                .query(text)
                .bind(job)
                .bind(change.total)
                .bind(change.finished)
                .bind(change.skipped)
                .bind(change.failed)
                .bind(change.listings)
                .bind(change.bytes_total.clamp(-CHANGE_MAX, CHANGE_MAX))
                .bind(change.bytes_done.clamp(-CHANGE_MAX, CHANGE_MAX))
                .bind(BYTES_MAX)
                .bind(change.canceled);
            let row = query.fetch_one(work.connection()).await?;
            for (code, files) in change.errors {
                let text = "INSERT INTO job_error (job, code, files) VALUES ($1, $2, $3)
                    ON CONFLICT (job, code) DO UPDATE SET files = job_error.files + $3";
                let query = work.query(text).bind(job).bind(code).bind(files);
                query.execute(work.connection()).await?;
            }
            add_events(work, job, &change.events).await?;
            let state: JobState = row.name(1)?;
            let ends = Ends {
                total: row.count(2)?,
                done: row.count(3)?,
                failed: row.count(4)?,
                canceled: row.count(5)?,
                listings: row.count(6)?,
            };
            let order = order::read(row.maybe_text(7)?)?;
            match order::next(order, &ends) {
                _ if state.is_final() => {}
                Next::Wait => {}
                Next::File(index) => release_file(work, job, index).await?,
                Next::End(end) => set_state(work, job, end, None).await?,
            }
            changed.push(row.uuid(0)?);
        }
        Ok(changed)
    }
}

/// A segment whose outcomes change.
pub(super) struct Segment {
    pub(super) base: i64,
    pub(super) outcomes: Outcomes,
    files: Option<Vec<FileRequest>>,
    receipts: manifest::Receipts,
    changed: bool,
    new_receipts: bool,
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

    fn set(&mut self, place: u32, outcome: Outcome) {
        self.outcomes.set(place, outcome);
        self.changed = true;
    }

    async fn write(self, work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
        if !self.changed {
            return Ok(());
        }
        let outcomes = self.outcomes.as_bytes().to_vec();
        let query = match self.new_receipts {
            true => work
                .query(
                    "UPDATE segment SET outcomes = $3, receipts = $4 WHERE job = $1 AND seq = $2",
                )
                .bind(unit.job)
                .bind(unit.segment)
                .bind(outcomes)
                .bind(manifest::encode_receipts(&self.receipts)?),
            false => work
                .query("UPDATE segment SET outcomes = $3 WHERE job = $1 AND seq = $2")
                .bind(unit.job)
                .bind(unit.segment)
                .bind(outcomes),
        };
        query.execute(work.connection()).await?;
        Ok(())
    }
}

/// Files of a unit that failed and are tried again, by how often they failed.
type Retries = BTreeMap<u32, Vec<u32>>;

/// Takes in what an agent says of files of a unit. `end`: this grant is over. `above`: files of
/// more bytes may be divided.
pub(super) async fn take_results(
    work: &mut Work,
    unit: &UnitRow,
    (agent, above): (&str, u64),
    files: &[FileOutcome],
    end: Option<End<'_>>,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    let mut segment = Segment::lock(work, unit).await?;
    if unit.range.is_some() {
        let part = Part::new(unit, segment.base, unit.first);
        return part
            .take_range(work, unit, (agent, files), end, changes)
            .await;
    }
    let (mut retries, mut ended) = (Retries::new(), BTreeSet::new());
    let attempts = attempts_of(work, unit.job, files, end).await?;
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
                    true => segment.set(place, Outcome::Odd),
                    // It stays open, as if nothing was said of it.
                    false => drop(ended.remove(&place)),
                }
            }
            FileEnd::Copied => drop(ended.remove(&place)),
            FileEnd::Failed(error) => {
                segment.set(place, Outcome::Odd);
                let index = segment.base + i64::from(place);
                let failure = Failure {
                    index,
                    agent,
                    error,
                    most: attempts,
                };
                let attempts = fail(work, unit, &failure, changes).await?;
                part.end_failed(work, error, attempts.is_some(), changes)
                    .await?;
                if let Some(attempts) = attempts {
                    retries.entry(attempts).or_default().push(place);
                }
            }
        }
    }
    if let Some(End {
        error: Some(error), ..
    }) = end
    {
        if unit.directories {
            return fail_listing(work, unit, segment, agent, error, attempts, changes).await;
        }
        for place in unit.open(&segment.outcomes) {
            if !ended.insert(place) {
                continue;
            }
            segment.set(place, Outcome::Odd);
            let index = segment.base + i64::from(place);
            let failure = Failure {
                index,
                agent,
                error,
                most: attempts,
            };
            let attempts = fail(work, unit, &failure, changes).await?;
            let part = Part::new(unit, segment.base, place);
            part.end_failed(work, error, attempts.is_some(), changes)
                .await?;
            if let Some(attempts) = attempts {
                retries.entry(attempts).or_default().push(place);
            }
        }
    }
    let mut open = unit.open(&segment.outcomes);
    open.retain(|place| !ended.contains(place));
    segment.write(work, unit).await?;
    for (attempts, places) in retries {
        retry(work, unit, attempts, &PickedUnit::of(&places)).await?;
        changes.more_work = true;
    }
    match end {
        Some(End { listed: true, .. }) if unit.directories => {
            publish_staged(work, unit).await?;
            changes.job(unit.job).listings -= 1;
            changes.more_work = true;
            delete(work, unit).await
        }
        Some(_) if unit.directories => release(work, unit, &[unit.first], changes).await,
        Some(_) if open.is_empty() => delete(work, unit).await,
        Some(_) => release(work, unit, &open, changes).await,
        None => keep(work, unit, &open).await,
    }
}

/// How a grant ends.
#[derive(Clone, Copy)]
pub(super) struct End<'a> {
    /// The unit as a whole failed.
    pub(super) error: Option<&'a FileError>,
    /// Its directory is listed.
    pub(super) listed: bool,
}

/// Attempts that the job allows, where something failed.
async fn attempts_of(
    work: &mut Work,
    job: i64,
    files: &[FileOutcome],
    end: Option<End<'_>>,
) -> Result<u32, StoreError> {
    let failed = |file: &FileOutcome| matches!(file.end, FileEnd::Failed(_));
    if !files.iter().any(failed) && end.is_none_or(|end| end.error.is_none()) {
        return Ok(0);
    }
    attempts_of_job(work, job).await
}

/// Attempts that the job allows.
pub(super) async fn attempts_of_job(work: &mut Work, job: i64) -> Result<u32, StoreError> {
    let query = work
        .query("SELECT options FROM job WHERE number = $1")
        .bind(job);
    let options: JobOptions = query.fetch_one(work.connection()).await?.json(0)?;
    Ok(options.attempts)
}

pub(super) struct Failure<'a> {
    pub(super) index: i64,
    pub(super) agent: &'a str,
    pub(super) error: &'a FileError,
    pub(super) most: u32,
}

/// Writes down that a file failed. `Some`: it is tried again after so many attempts.
pub(super) async fn fail(
    work: &mut Work,
    unit: &UnitRow,
    failure: &Failure<'_>,
    changes: &mut Changes,
) -> Result<Option<u32>, StoreError> {
    let Failure {
        index,
        agent,
        error,
        most,
    } = failure;
    let text = "INSERT INTO file_exception (job, number, failed, attempts, error, agent, at)
        VALUES ($1, $2, 0, 1, $3, $4, {now})
        ON CONFLICT (job, number) DO UPDATE SET attempts = file_exception.attempts + 1,
        error = $3, agent = $4, at = {now}
        RETURNING attempts";
    let query = work
        .query(text)
        .bind(unit.job)
        .bind(*index)
        .bind(json(error)?)
        .bind((*agent).to_owned());
    let attempts = query.fetch_one(work.connection()).await?.small(0)?;
    let again = error.may_pass && attempts < *most;
    let change = changes.job(unit.job);
    if !again {
        change.failed += 1;
        *change.errors.entry(error.code.clone()).or_default() += 1;
    }
    change.failures += 1;
    if change.failures <= MAX_FAILURE_EVENTS {
        change.events.push(JobEventKind::FileFailed {
            index: *index as u64,
            attempts,
            error: (*error).clone(),
        });
    }
    if again {
        return Ok(Some(attempts));
    }
    let text = "UPDATE file_exception SET failed = 1 WHERE job = $1 AND number = $2";
    let query = work.query(text).bind(unit.job).bind(*index);
    query.execute(work.connection()).await?;
    Ok(None)
}

/// A directory could not be listed: again later, or it counts as a file that failed.
async fn fail_listing(
    work: &mut Work,
    unit: &UnitRow,
    mut segment: Segment,
    agent: &str,
    error: &FileError,
    most: u32,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    drop_staged(work, unit).await?;
    let index = segment.base + i64::from(unit.first);
    let failure = Failure {
        index,
        agent,
        error,
        most,
    };
    segment.set(unit.first, Outcome::Odd);
    match fail(work, unit, &failure, changes).await? {
        Some(attempts) => {
            retry(work, unit, attempts, &PickedUnit::of(&[unit.first])).await?;
            changes.more_work = true;
        }
        None => {
            let change = changes.job(unit.job);
            change.total += 1;
            change.listings -= 1;
        }
    }
    segment.write(work, unit).await?;
    delete(work, unit).await
}

/// A unit of picked places that waits after so many attempts.
pub(super) async fn retry(
    work: &mut Work,
    unit: &UnitRow,
    attempts: u32,
    new: &PickedUnit<'_>,
) -> Result<(), StoreError> {
    let seed = (unit.segment as u64) << 32 | u64::from(new.places.first().copied().unwrap_or(0));
    let delay = policy::retry_after(attempts, seed.wrapping_add(unit.job as u64));
    let delay = i64::try_from(delay.as_micros()).map_err(StoreError::corrupt)?;
    let new = PickedUnit {
        delay,
        attempts,
        ..*new
    };
    insert_picked(work, unit, &new).await
}

pub(super) struct PickedUnit<'a> {
    pub(super) places: &'a [u32],
    pub(super) delay: i64,
    pub(super) losses: u32,
    pub(super) attempts: u32,
    pub(super) range: Option<(u64, u64)>,
}

impl<'a> PickedUnit<'a> {
    /// Whole files, for the first time.
    pub(super) fn of(places: &'a [u32]) -> Self {
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
pub(super) async fn insert_picked(
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
pub(super) async fn take_first(
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

/// What a listing found is not part of the job: it is listed again.
async fn drop_staged(work: &mut Work, unit: &UnitRow) -> Result<(), StoreError> {
    let query = work
        .query("DELETE FROM segment WHERE staged = $1")
        .bind(unit.id);
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
    drop_staged(work, unit).await?;
    if is_final(work, unit.job).await? {
        return delete(work, unit).await;
    }
    changes.more_work = true;
    give_back(work, unit, open, unit.losses).await
}

async fn give_back(
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

pub(super) async fn is_final(work: &mut Work, job: i64) -> Result<bool, StoreError> {
    let query = work
        .query("SELECT state FROM job WHERE number = $1")
        .bind(job);
    let row = query.fetch_optional(work.connection()).await?;
    Ok(row
        .map(|row| row.name::<JobState>(0))
        .transpose()?
        .is_none_or(JobState::is_final))
}

/// The unit of a grant that does not count any more goes back.
pub(super) async fn take_back(
    work: &mut Work,
    unit: &UnitRow,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    let segment = Segment::lock(work, unit).await?;
    let open = unit.open(&segment.outcomes);
    match open.is_empty() {
        true => delete(work, unit).await,
        false => release(work, unit, &open, changes).await,
    }
}

/// Value of `file_exception.failed` of a file that was given up.
pub(super) const FAILED: i64 = 1;

/// The same of a file that the user canceled.
pub(super) const CANCELED: i64 = 2;

/// Ends the file at a place of a segment, whose units these are. An agent that has it is told to
/// stop; what else the unit holds goes back to the queue. False where the file has ended before.
pub(super) async fn cancel_place(
    work: &mut Work,
    units: &[UnitRow],
    place: u32,
    reason: &str,
    changes: &mut Changes,
) -> Result<bool, StoreError> {
    let Some(any) = units.first() else {
        return Ok(false);
    };
    let mut segment = Segment::lock(work, any).await?;
    let has = |unit: &&UnitRow| unit.open(&segment.outcomes).binary_search(&place).is_ok();
    let Some(unit) = units.iter().find(has) else {
        return Ok(false);
    };
    let mut rest = unit.open(&segment.outcomes);
    rest.retain(|open| *open != place);
    let error = FileError {
        code: "canceled".to_owned(),
        message: format!("canceled {reason}"),
        who: WhoActs::User,
        may_pass: false,
    };
    let text = "INSERT INTO file_exception (job, number, failed, attempts, error, agent, at)
        VALUES ($1, $2, $3, 0, $4, '', {now})
        ON CONFLICT (job, number) DO UPDATE SET failed = $3, error = $4, at = {now}";
    let query = work.query(text).bind(unit.job);
    let query = query.bind(segment.base + i64::from(place)).bind(CANCELED);
    query.bind(json(&error)?).execute(work.connection()).await?;
    segment.set(place, Outcome::Odd);
    segment.write(work, unit).await?;
    changes.job(unit.job).canceled += 1;
    changes.more_work = true;
    match rest.is_empty() {
        true => delete(work, unit).await?,
        false => give_back(work, unit, &rest, unit.losses).await?,
    }
    Ok(true)
}

/// A unit whose agents were lost, so many times by now, goes back, in halves where too many were.
pub(super) async fn lose(
    work: &mut Work,
    unit: &UnitRow,
    agent: &str,
    losses: u32,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    drop_staged(work, unit).await?;
    if is_final(work, unit.job).await? {
        return delete(work, unit).await;
    }
    let mut segment = Segment::lock(work, unit).await?;
    let open = unit.open(&segment.outcomes);
    let event = JobEventKind::LeaseLost {
        agent: agent.to_owned(),
        files: open.len() as u64,
    };
    changes.event(unit.job, event);
    changes.more_work = true;
    match policy::after_loss(&open, losses) {
        AfterLoss::Again if open.is_empty() => delete(work, unit).await,
        AfterLoss::Again => give_back(work, unit, &open, losses).await,
        AfterLoss::Halves(left, right) => {
            for places in [&left, &right] {
                for place in places {
                    segment.set(*place, Outcome::Odd);
                }
                let new = PickedUnit {
                    losses: losses - 1,
                    attempts: unit.attempts,
                    ..PickedUnit::of(places)
                };
                insert_picked(work, unit, &new).await?;
            }
            segment.write(work, unit).await?;
            delete(work, unit).await
        }
        AfterLoss::Poison(place) => {
            let error = FileError {
                code: POISON.to_owned(),
                message: format!("{losses} agents were lost with it, the last was {agent}"),
                who: WhoActs::Operator,
                may_pass: false,
            };
            if unit.directories {
                return fail_listing(work, unit, segment, agent, &error, 0, changes).await;
            }
            segment.set(place, Outcome::Odd);
            let index = segment.base + i64::from(place);
            Part::new(unit, segment.base, place)
                .give_up(work, changes)
                .await?;
            let failure = Failure {
                index,
                agent,
                error: &error,
                most: 0,
            };
            fail(work, unit, &failure, changes).await?;
            segment.write(work, unit).await?;
            delete(work, unit).await
        }
    }
}

/// The directory that a unit lists. Locks its segment, as what follows locks the job.
pub(super) async fn directory(work: &mut Work, unit: &UnitRow) -> Result<FileRequest, StoreError> {
    let segment = Segment::lock(work, unit).await?;
    let mut directories = segment.files.unwrap_or_default().into_iter();
    let directory = directories.nth(unit.first as usize);
    directory.ok_or_else(|| StoreError::Corrupt("a unit is not in its segment".to_owned()))
}

/// Adds what a listing found, as segments that wait for its end.
pub(super) async fn stage(
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

/// A job has work again: files that were given up are queued.
pub(super) async fn reopen(
    work: &mut Work,
    job: i64,
    files: u64,
    directories: bool,
) -> Result<(), StoreError> {
    let text = "UPDATE job SET failed = failed - $2, total = total - $3, listings = listings + $3
        WHERE number = $1 RETURNING state";
    let directories = if directories { files } else { 0 };
    let query = work
        .query(text)
        .bind(job)
        .bind(files as i64)
        .bind(directories as i64);
    let row = query.fetch_one(work.connection()).await?;
    let query = work.query("DELETE FROM job_error WHERE job = $1").bind(job);
    query.execute(work.connection()).await?;
    let state: JobState = row.name(0)?;
    if !state.is_final() {
        return Ok(());
    }
    set_state(
        work,
        job,
        JobState::Active,
        Some("failed files are tried again"),
    )
    .await
}
