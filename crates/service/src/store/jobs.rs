//! Jobs as users see them, and what users do to them. Their files are in `files`.

use std::collections::{BTreeMap, HashMap};

use godwit_service_api::{
    event::{JobEvent, JobEventKind},
    job::{FileCounts, FileOrder, FileRequest, JobOptions, JobState},
    page::{MAX_PAGE, Page},
};
use sqlx::any::AnyRow;
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, json},
    manifest,
    model::{JobFilter, JobRecord},
    order,
    units::{self, Changes, MARK, PickedUnit, UNIT, UnitRow},
};

const JOB: &str = "number, id, owner, state, reason, options, total, finished, skipped, failed,
    bytes_total, bytes_done, listings, created, started, ended,
    CASE WHEN EXISTS (SELECT 1 FROM job_after WHERE job_after.job = job.number)
    THEN 1 ELSE 0 END, canceled, ordered, schedule";

/// Jobs that a search by name looks at.
const SEARCHED_MAX: u32 = 1000;

fn read_job(row: &AnyRow) -> Result<JobRecord, StoreError> {
    let state: JobState = row.name(3)?;
    let (total, listings) = (row.count(6)?, row.int(12)?);
    let mut files = FileCounts {
        total,
        finished: row.count(7)?,
        skipped: row.count(8)?,
        failed: row.count(9)?,
        canceled: row.count(17)?,
        unused: 0,
    };
    let unused_from = order::unused_from(order::read(row.maybe_text(18)?)?, &files);
    if state.is_final() {
        files.unused = total.saturating_sub(unused_from.max(files.ended()));
    }
    // What was open when the job became final was never written file by file.
    let rest = total.saturating_sub(files.ended());
    match state {
        JobState::Canceled => files.canceled += rest,
        _ if state.is_final() => files.failed += rest,
        _ => {}
    }
    Ok(JobRecord {
        number: row.int(0)?,
        id: row.uuid(1)?,
        owner: row.text(2)?,
        schedule: row.maybe_text(19)?,
        state,
        reason: row.maybe_text(4)?,
        options: row.json(5)?,
        files,
        unused_from,
        bytes_total: row.count(10)?,
        bytes_done: row.count(11)?,
        listed: listings == 0 && state != JobState::Submitting,
        waits_for_job: row.flag(16)?,
        errors: BTreeMap::new(),
        created: row.time(13)?,
        started: row.maybe_time(14)?,
        ended: row.maybe_time(15)?,
    })
}

impl Store {
    /// Jobs, latest first. `cursor` is `next` of the page before.
    pub async fn jobs(
        &self,
        filter: &JobFilter,
        cursor: Option<&str>,
        limit: u32,
    ) -> Result<Page<JobRecord>, StoreError> {
        let below = match cursor {
            Some(cursor) => parse_cursor(cursor)?,
            None => i64::MAX,
        };
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut text = format!("SELECT {JOB} FROM job WHERE number < $1");
        let mut words: Vec<String> = Vec::new();
        if let Some(owner) = &filter.owner {
            // Text of PostgreSQL has no NUL, and no user's name either.
            if owner.contains('\0') {
                let (items, next) = (Vec::new(), None);
                return Ok(Page { items, next });
            }
            words.push(owner.clone());
            text += &format!(" AND owner = ${}", words.len() + 1);
        }
        // Not as parameters: PostgreSQL plans for how many jobs are in these states, of which some
        // are rare.
        let states = filter.states.iter().map(|s| format!("'{}'", s.as_str()));
        let ids: Vec<String> = filter.ids.iter().map(Uuid::to_string).collect();
        let from = words.len() + 2;
        let places = (from..from + ids.len()).map(|n| format!("${n}"));
        for (column, values) in [
            ("state", states.collect::<Vec<_>>()),
            ("id", places.collect()),
        ] {
            // By one value an index gives the order, too.
            text += &match values.as_slice() {
                [] => String::new(),
                [value] => format!(" AND {column} = {value}"),
                values => format!(" AND {column} IN ({})", values.join(", ")),
            };
        }
        words.extend(ids);
        text += &format!(" ORDER BY number DESC LIMIT {}", limit + 1);
        let mut query = self.database.query(&text).bind(below);
        for word in words {
            query = query.bind(word);
        }
        let rows = query.fetch_all(self.database.reader()).await?;
        let mut items = rows
            .iter()
            .take(limit)
            .map(read_job)
            .collect::<Result<Vec<_>, _>>()?;
        self.add_errors(&mut items).await?;
        let more = rows.len() > limit;
        let last = items.last().filter(|_| more);
        let next = last.map(|job| job.number.to_string());
        Ok(Page { items, next })
    }

    /// Jobs whose name begins with `text`, in capitals or not, by name and latest first: among the
    /// first [`SEARCHED_MAX`], those that fit the filter, at most `limit`. Its ids are not read.
    pub async fn jobs_named(
        &self,
        filter: &JobFilter,
        text: &str,
        limit: u32,
    ) -> Result<Vec<JobRecord>, StoreError> {
        let owner = filter.owner.as_deref().unwrap_or("");
        // Text of PostgreSQL has no NUL, and no name that is searched either.
        if text.contains('\0') || owner.contains('\0') {
            return Ok(Vec::new());
        }
        let from = text.to_lowercase();
        let mut words = vec![from.clone(), format!("{from}{}", char::MAX)];
        let mut which = "name >= $1 AND name < $2".to_owned();
        if let Some(owner) = &filter.owner {
            words.push(owner.clone());
            which += " AND owner = $3";
        }
        let states = filter
            .states
            .iter()
            .map(|state| format!("'{}'", state.as_str()));
        let states: Vec<String> = states.collect();
        let fits = match states.is_empty() {
            true => String::new(),
            false => format!("AND state IN ({})", states.join(", ")),
        };
        let text = format!(
            "SELECT {JOB} FROM job WHERE number IN (SELECT number FROM job WHERE {which}
            ORDER BY name, number DESC LIMIT {SEARCHED_MAX}) {fits}
            ORDER BY name, number DESC LIMIT {}",
            limit.clamp(1, MAX_PAGE)
        );
        let mut query = self.database.query(&text);
        for word in words {
            query = query.bind(word);
        }
        let rows = query.fetch_all(self.database.reader()).await?;
        let mut items = rows.iter().map(read_job).collect::<Result<Vec<_>, _>>()?;
        self.add_errors(&mut items).await?;
        Ok(items)
    }

    /// Ids of jobs in a state, of one user or of all, latest first, at most `limit`.
    pub async fn ids_in(
        &self,
        owner: Option<&str>,
        state: JobState,
        limit: u32,
    ) -> Result<Vec<Uuid>, StoreError> {
        // Text of PostgreSQL has no NUL, and no user's name either.
        if owner.is_some_and(|owner| owner.contains('\0')) {
            return Ok(Vec::new());
        }
        let of = owner.map_or("", |_| "AND owner = $2");
        let state = state.as_str();
        let text = format!(
            "SELECT id FROM job WHERE state = '{state}' {of} ORDER BY number DESC LIMIT $1"
        );
        let mut query = self.database.query(&text).bind(i64::from(limit));
        if let Some(owner) = owner {
            query = query.bind(owner.to_owned());
        }
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(|row| row.uuid(0)).collect()
    }

    /// One job.
    pub async fn job(&self, id: Uuid) -> Result<JobRecord, StoreError> {
        let filter = JobFilter {
            ids: vec![id],
            ..JobFilter::default()
        };
        let page = self.jobs(&filter, None, 1).await?;
        page.items.into_iter().next().ok_or(StoreError::NotFound)
    }

    async fn add_errors(&self, jobs: &mut [JobRecord]) -> Result<(), StoreError> {
        let failed = jobs.iter().filter(|job| job.files.failed > 0);
        let numbers: Vec<i64> = failed.map(|job| job.number).collect();
        if numbers.is_empty() {
            return Ok(());
        }
        let text = "SELECT job, code, files FROM job_error WHERE job IN {list}";
        let query = self.database.query(text).bind(json(&numbers)?);
        let mut errors: HashMap<i64, BTreeMap<String, u64>> = HashMap::new();
        for row in query.fetch_all(self.database.reader()).await? {
            let of_job = errors.entry(row.int(0)?).or_default();
            of_job.insert(row.text(1)?, row.count(2)?);
        }
        for job in jobs {
            job.errors = errors.remove(&job.number).unwrap_or_default();
        }
        Ok(())
    }

    /// How many segments of a job were submitted. Listings add theirs after them.
    ///
    /// # Errors
    /// Its list is not complete, or it has trees and is older than the column that says so.
    pub async fn submitted_segments(&self, job: &JobRecord) -> Result<i64, StoreError> {
        let text = "SELECT submitted, next_segment, CASE WHEN EXISTS
            (SELECT 1 FROM segment WHERE segment.job = $1 AND directories = 1)
            THEN 1 ELSE 0 END
            FROM job WHERE number = $1 AND state <> 'submitting' AND touched > 0";
        let query = self.database.query(text).bind(job.number);
        let row = query.fetch_optional(self.database.reader()).await?;
        let row = row.ok_or(StoreError::Conflict(
            "its list of files is not complete, or is being removed",
        ))?;
        match (row.maybe_int(0)?, row.flag(2)?) {
            (Some(submitted), _) => Ok(submitted),
            (None, false) => row.int(1),
            (None, true) => Err(StoreError::Conflict(
                "it has directories, and an earlier version did not keep which were submitted",
            )),
        }
    }

    /// Files of a segment as they were submitted.
    pub async fn submitted_files(
        &self,
        job: &JobRecord,
        segment: i64,
    ) -> Result<Vec<FileRequest>, StoreError> {
        let text = "SELECT manifest FROM segment WHERE job = $1 AND seq = $2";
        let query = self.database.query(text).bind(job.number).bind(segment);
        let row = query.fetch_optional(self.database.reader()).await?;
        manifest::decode(&row.ok_or(StoreError::NotFound)?.bytes(0)?)
    }

    /// Ends a job. What agents hold of it they are told to stop with their next poll.
    pub async fn cancel(&self, id: Uuid, reason: &str) -> Result<(), StoreError> {
        let job = self
            .change_state(
                id,
                |state, _| match state {
                    JobState::Submitting => Err(StoreError::NotFound),
                    state if state.is_final() => Err(StoreError::Conflict("the job has ended")),
                    _ => Ok(JobState::Canceled),
                },
                Some(reason),
            )
            .await?;
        self.drop_ready_units(job).await
    }

    /// Ends one file of a job, and no other. False where it has ended before.
    pub async fn cancel_file(
        &self,
        id: Uuid,
        index: u64,
        reason: &str,
    ) -> Result<bool, StoreError> {
        let mut work = self.database.begin().await?;
        let query = work.query("SELECT number, state, ordered FROM job WHERE id = $1");
        let row = query.bind(id.to_string()).fetch_optional(work.connection());
        let row = row.await?.ok_or(StoreError::NotFound)?;
        let (job, state) = (row.int(0)?, row.name::<JobState>(1)?);
        if row.maybe_text(2)?.is_some() {
            return Err(StoreError::Conflict(
                "files of a job with an order end together",
            ));
        }
        let index = i64::try_from(index).map_err(|_| StoreError::NotFound)?;
        let text = "SELECT seq, base FROM segment
            WHERE job = $1 AND base <= $2 AND base + files > $2 AND directories = 0
            AND staged IS NULL";
        let query = work.query(text).bind(job).bind(index);
        let row = query.fetch_optional(work.connection()).await?;
        let row = row.ok_or(StoreError::NotFound)?;
        let (seq, base) = (row.int(0)?, row.int(1)?);
        let place = u32::try_from(index - base).map_err(StoreError::corrupt)?;
        if state.is_final() {
            return Ok(false);
        }
        let text =
            format!("SELECT {UNIT} FROM unit WHERE job = $1 AND segment = $2 ORDER BY id {{lock}}");
        let query = work.query(&text).bind(job).bind(seq);
        let rows = query.fetch_all(work.connection()).await?;
        let unit_rows = rows
            .iter()
            .map(UnitRow::read)
            .collect::<Result<Vec<_>, _>>()?;
        let mut changes = Changes::default();
        let is_canceled =
            units::cancel_place(&mut work, &unit_rows, place, reason, &mut changes).await?;
        changes.write(&mut work).await?;
        work.commit().await?;
        Ok(is_canceled)
    }

    /// Stops a job until it is resumed.
    pub async fn pause(&self, id: Uuid, reason: &str) -> Result<(), StoreError> {
        let to = |state, _| match state {
            JobState::Queued | JobState::Active => Ok(JobState::Paused),
            JobState::Submitting => Err(StoreError::NotFound),
            _ => Err(StoreError::Conflict(
                "only a job that waits or moves can be paused",
            )),
        };
        self.change_state(id, to, Some(reason)).await?;
        Ok(())
    }

    /// Resumes a paused job.
    pub async fn resume(&self, id: Uuid) -> Result<(), StoreError> {
        let to = |state, started: bool| match (state, started) {
            (JobState::Paused, true) => Ok(JobState::Active),
            (JobState::Paused, false) => Ok(JobState::Queued),
            (JobState::Submitting, _) => Err(StoreError::NotFound),
            _ => Err(StoreError::Conflict("the job is not paused")),
        };
        self.change_state(id, to, None).await?;
        Ok(())
    }

    async fn change_state(
        &self,
        id: Uuid,
        to: impl FnOnce(JobState, bool) -> Result<JobState, StoreError>,
        reason: Option<&str>,
    ) -> Result<i64, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT number, state, started FROM job WHERE id = $1 {lock}";
        let query = work.query(text).bind(id.to_string());
        let row = query.fetch_optional(work.connection()).await?;
        let row = row.ok_or(StoreError::NotFound)?;
        let job = row.int(0)?;
        let state = to(row.name(1)?, row.maybe_int(2)?.is_some())?;
        units::set_state(&mut work, job, state, reason).await?;
        work.commit().await?;
        Ok(job)
    }

    /// Ready units of a job that is final. In a transaction of its own: grants lock units first.
    pub(super) async fn drop_ready_units(&self, job: i64) -> Result<(), StoreError> {
        let query = self
            .database
            .query("DELETE FROM unit WHERE job = $1 AND agent IS NULL");
        query.bind(job).execute(self.database.writer()).await?;
        Ok(())
    }

    /// Queues the files again that were given up, a thousand a transaction; says how many.
    pub async fn retry_failed(&self, id: Uuid) -> Result<u64, StoreError> {
        let mut files = 0;
        loop {
            let some = self.retry_some(id).await?;
            if some == 0 {
                return Ok(files);
            }
            files += some;
        }
    }

    async fn retry_some(&self, id: Uuid) -> Result<u64, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT number, state, ordered FROM job WHERE id = $1 AND touched > 0";
        let query = work.query(text).bind(id.to_string());
        let row = query.fetch_optional(work.connection()).await?;
        let row = row.ok_or(StoreError::NotFound)?;
        let job = row.int(0)?;
        if matches!(row.name(1)?, JobState::Submitting | JobState::Canceled) {
            return Err(StoreError::Conflict("the job was canceled"));
        }
        if order::read(row.maybe_text(2)?)? == FileOrder::Alternatives {
            return Err(StoreError::Conflict(
                "alternatives are not tried again; submit the job again",
            ));
        }
        let text = "SELECT seq, base, files, link, directories FROM segment
            WHERE job = $1 AND base <=
            (SELECT MIN(number) FROM file_exception WHERE job = $1 AND failed = 1)
            ORDER BY base DESC LIMIT 1 {lock}";
        let query = work.query(text).bind(job);
        let Some(row) = query.fetch_optional(work.connection()).await? else {
            return Ok(0);
        };
        let (seq, base, count) = (row.int(0)?, row.int(1)?, row.int(2)?);
        let (link, directories) = (row.int(3)?, row.flag(4)?);
        let text = "UPDATE file_exception SET failed = 0, attempts = 0
            WHERE job = $1 AND failed = 1 AND number >= $2 AND number < $3 RETURNING number";
        let query = work.query(text).bind(job).bind(base).bind(base + count);
        let rows = query.fetch_all(work.connection()).await?;
        let places = rows.iter().map(|row| {
            let place = row.int(0)? - base;
            u32::try_from(place).map_err(StoreError::corrupt)
        });
        let mut places = places.collect::<Result<Vec<u32>, _>>()?;
        places.sort_unstable();
        let unit = UnitRow::of_segment(job, link, seq, directories);
        let chunk = if directories { 1 } else { places.len() };
        for places in places.chunks(chunk.max(1)) {
            units::insert_picked(&mut work, &unit, &PickedUnit::of(places)).await?;
        }
        units::reopen(&mut work, job, places.len() as u64, directories).await?;
        work.commit().await?;
        Ok(places.len() as u64)
    }

    /// Adds an event to a job.
    pub async fn add_event(&self, id: Uuid, event: &JobEventKind) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        let query = work.query("SELECT number FROM job WHERE id = $1 {lock}");
        let row = query
            .bind(id.to_string())
            .fetch_optional(work.connection())
            .await?;
        let job = row.ok_or(StoreError::NotFound)?.int(0)?;
        units::add_events(&mut work, job, std::slice::from_ref(event)).await?;
        work.commit().await
    }

    /// Events of a job after this number, with theirs.
    pub async fn events(
        &self,
        id: Uuid,
        after: u64,
        limit: u32,
    ) -> Result<Vec<(u64, JobEvent)>, StoreError> {
        let text = "SELECT number, at, what FROM event
            WHERE job = (SELECT number FROM job WHERE id = $1) AND number > $2
            ORDER BY number LIMIT $3";
        let query = self.database.query(text).bind(id.to_string());
        let query = query
            .bind(after as i64)
            .bind(i64::from(limit.clamp(1, MAX_PAGE)));
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(read_event).collect()
    }

    /// The latest events of a job, latest first.
    pub async fn latest_events(
        &self,
        job: &JobRecord,
        limit: u32,
    ) -> Result<Vec<(u64, JobEvent)>, StoreError> {
        let text = "SELECT number, at, what FROM event WHERE job = $1
            ORDER BY number DESC LIMIT $2";
        let query = self.database.query(text).bind(job.number);
        let query = query.bind(i64::from(limit.clamp(1, MAX_PAGE)));
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(read_event).collect()
    }

    /// Changes how a job is done, e.g. its priority. Units that run keep their options.
    pub async fn set_options(&self, id: Uuid, options: &JobOptions) -> Result<(), StoreError> {
        let text = format!(
            "UPDATE job SET options = $2, deadline = $3, name = $4, {MARK}
            WHERE id = $1 AND ended IS NULL"
        );
        let query = self
            .database
            .query(&text)
            .bind(id.to_string())
            .bind(json(options)?);
        let query = query
            .bind(super::database::micros(options.deadline))
            .bind(options.name.as_deref().map(str::to_lowercase));
        match query.execute(self.database.writer()).await?.rows_affected() {
            0 => Err(StoreError::Conflict("the job has ended")),
            _ => Ok(()),
        }
    }
}

fn read_event(row: &AnyRow) -> Result<(u64, JobEvent), StoreError> {
    let event = JobEvent {
        at: row.time(1)?,
        what: row.json(2)?,
    };
    Ok((row.count(0)?, event))
}

pub(super) fn parse_cursor(cursor: &str) -> Result<i64, StoreError> {
    let error = StoreError::Invalid("the cursor is not one of this service");
    cursor.parse().map_err(|_| error)
}
