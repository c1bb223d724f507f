//! The row of a job: its counters, its state and its events.

use std::collections::BTreeMap;

use godwit_service_api::{
    event::JobEventKind,
    job::{FileError, JobState},
};
use uuid::Uuid;

use super::{BYTES_MAX, CHANGE_MAX, leftovers, segments};
use crate::store::{
    StoreError,
    database::{Columns as _, Work, json},
    model::{LinkTally, Tally},
    order::{self, Ends, Next},
    reports,
};

/// Has the leader read the queues of a job again. No mark comes twice, however coarse the clock is
/// and wherever it is set.
pub(in crate::store) const MARK: &str =
    "changed = CASE WHEN changed < {now} THEN {now} ELSE changed + 1 END";

/// Removes the rest of a job after [`Store::remove_parts`](crate::store::Store::remove_parts).
pub(in crate::store) async fn remove_row(work: &mut Work, job: i64) -> Result<(), StoreError> {
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
pub(in crate::store) async fn add_events(
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
pub(in crate::store) async fn set_state(
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
        let text = format!(
            "UPDATE job SET state = $2, reason = $3, ended = {ended}, {MARK} WHERE number = $1"
        );
        let query = work.query(&text).bind(job).bind(state.as_str());
        query
            .bind(reason.clone())
            .execute(work.connection())
            .await?;
        add_events(work, job, &[JobEventKind::State { state, reason }]).await?;
        if state.is_final() {
            reports::add(work, job).await?;
            leftovers::give_up_all(work, job).await?;
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
    let followers = rows.iter().map(|row| row.int(0));
    let followers = followers.collect::<Result<Vec<i64>, StoreError>>()?;
    for follower in &followers {
        mark(work, *follower).await?;
    }
    Ok(followers)
}

/// What waits of a job has changed.
async fn mark(work: &mut Work, job: i64) -> Result<(), StoreError> {
    let text = format!("UPDATE job SET {MARK} WHERE number = $1");
    let query = work.query(&text).bind(job);
    query.execute(work.connection()).await?;
    Ok(())
}

/// Makes a job wait for others; it is canceled when one of them has ended otherwise than well.
pub(in crate::store) async fn wait_for(
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

/// A job has work again: files that were given up are queued.
pub(in crate::store) async fn reopen(
    work: &mut Work,
    job: i64,
    files: u64,
    directories: bool,
) -> Result<(), StoreError> {
    let text = format!(
        "UPDATE job SET failed = failed - $2, total = total - $3, listings = listings + $3, {MARK}
        WHERE number = $1 RETURNING state"
    );
    let directories = if directories { files } else { 0 };
    let query = work
        .query(&text)
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

/// What a transaction changes of jobs; written at its end, by number.
#[derive(Default)]
pub(in crate::store) struct Changes {
    jobs: BTreeMap<i64, JobChange>,
    /// Units became ready.
    more_work: bool,
    /// Attempts that failed, by the code of their error.
    errors: BTreeMap<String, u64>,
    /// Files that ended, by pair of endpoints.
    links: BTreeMap<i64, LinkTally>,
}

#[derive(Default)]
pub(super) struct JobChange {
    pub(super) total: i64,
    pub(super) finished: i64,
    pub(super) skipped: i64,
    pub(super) failed: i64,
    pub(super) canceled: i64,
    pub(super) listings: i64,
    pub(super) bytes_total: i64,
    pub(super) bytes_done: i64,
    pub(super) failures: usize,
    /// Units that wait are others than before.
    pub(super) requeued: bool,
    pub(super) events: Vec<JobEventKind>,
    pub(super) errors: BTreeMap<String, i64>,
}

impl Changes {
    pub(super) fn job(&mut self, job: i64) -> &mut JobChange {
        self.jobs.entry(job).or_default()
    }

    /// Units of a job became ready, or wait for their next attempt.
    pub(super) fn more_work(&mut self, job: i64) {
        self.more_work = true;
        self.job(job).requeued = true;
    }

    /// Units of any job did.
    pub(in crate::store) fn have_more_work(&self) -> bool {
        self.more_work
    }

    pub(in crate::store) fn event(&mut self, job: i64, event: JobEventKind) {
        self.job(job).events.push(event);
    }

    pub(super) fn add_bytes_done(&mut self, job: i64, bytes: i64) {
        let done = &mut self.job(job).bytes_done;
        *done = done.saturating_add(bytes);
    }

    /// An attempt of a file failed.
    pub(super) fn failed_with(&mut self, error: &FileError) {
        *self.errors.entry(error.code.clone()).or_default() += 1;
    }

    pub(super) fn link(&mut self, link: i64) -> &mut LinkTally {
        self.links.entry(link).or_default()
    }

    /// What became of files by pair of endpoints, once.
    pub(in crate::store) fn take_links(&mut self) -> BTreeMap<i64, LinkTally> {
        std::mem::take(&mut self.links)
    }

    /// What became of files.
    pub(in crate::store) fn tally(&self) -> Tally {
        let mut tally = Tally {
            errors: self.errors.clone(),
            ..Tally::default()
        };
        for change in self.jobs.values() {
            tally.finished += change.finished.unsigned_abs();
            tally.skipped += change.skipped.unsigned_abs();
            tally.failed += change.failed.unsigned_abs();
            tally.bytes += change.bytes_done.max(0).unsigned_abs();
        }
        tally
    }

    /// Writes all, and ends jobs that have nothing left. Names of the jobs with new events.
    pub(in crate::store) async fn write(self, work: &mut Work) -> Result<Vec<Uuid>, StoreError> {
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
                Next::File(index) => {
                    segments::release_file(work, job, index).await?;
                    mark(work, job).await?;
                }
                Next::End(end) => set_state(work, job, end, None).await?,
            }
            if change.requeued {
                mark(work, job).await?;
            }
            changed.push(row.uuid(0)?);
        }
        Ok(changed)
    }
}
