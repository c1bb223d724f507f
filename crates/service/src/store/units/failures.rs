//! Files and directories that failed: again later, or given up.

use godwit_service_api::{
    event::JobEventKind,
    job::{FileError, JobOptions},
};

use super::{
    job_row::Changes,
    queue::{self, PickedUnit},
    row::UnitRow,
    segments::{self, Segment},
};
use crate::store::{
    StoreError,
    database::{Columns as _, Work, json},
    manifest::Outcome,
    policy,
};

/// Events of failed files that one transaction adds to a job; the files themselves tell the rest.
const MAX_FAILURE_EVENTS: usize = 20;

pub(super) struct Failure<'a> {
    pub(super) index: i64,
    pub(super) agent: &'a str,
    pub(super) error: &'a FileError,
    pub(super) most: u32,
}

/// Attempts that the job allows.
pub(super) async fn attempts_of_job(work: &mut Work, job: i64) -> Result<u32, StoreError> {
    let query = work
        .query("SELECT options FROM job WHERE number = $1")
        .bind(job);
    let options: JobOptions = query.fetch_one(work.connection()).await?.json(0)?;
    Ok(options.attempts)
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
    changes.failed_with(error);
    if !again {
        changes.link(unit.link).failed += 1;
    }
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
pub(super) async fn fail_listing(
    work: &mut Work,
    unit: &UnitRow,
    mut segment: Segment,
    agent: &str,
    error: &FileError,
    most: u32,
    changes: &mut Changes,
) -> Result<(), StoreError> {
    segments::drop_staged(work, unit).await?;
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
            changes.more_work(unit.job);
        }
        None => {
            let change = changes.job(unit.job);
            change.total += 1;
            change.listings -= 1;
        }
    }
    segment.write(work).await?;
    queue::delete(work, unit).await
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
    queue::insert_picked(work, unit, &new).await
}
