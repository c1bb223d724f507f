//! Schedules and the times that they were due.

use godwit_service_api::{job::JobRequest, schedule::ScheduleRun};
use jiff::Timestamp;
use sqlx::any::AnyRow;
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, json, micros},
    model::ScheduleRecord,
};

/// Most schedules of a user.
const SCHEDULES_MAX: i64 = 100;

/// Most bytes of what the schedules of a user submit, as lists read them.
const REQUESTS_BYTES_MAX: i64 = 16 << 20;

/// Runs of a schedule that are kept.
const RUNS_KEPT: i64 = 50;

const SCHEDULE: &str = "number, owner, name, cron, zone, request, next_at, last_job, paused";

fn read(row: &AnyRow) -> Result<ScheduleRecord, StoreError> {
    let request: JobRequest = row.json(5)?;
    Ok(ScheduleRecord {
        number: row.int(0)?,
        owner: row.text(1)?,
        name: row.text(2)?,
        cron: row.text(3)?,
        zone: row.text(4)?,
        request,
        next: row.maybe_time(6)?,
        last_job: row
            .maybe_text(7)?
            .map(|id| id.parse())
            .transpose()
            .map_err(StoreError::corrupt)?,
        paused: row.flag(8)?,
    })
}

fn run(row: &AnyRow) -> Result<ScheduleRun, StoreError> {
    let job = row.maybe_text(1)?.map(|id| id.parse()).transpose();
    Ok(ScheduleRun {
        due: row.time(0)?,
        job: job.map_err(StoreError::corrupt)?,
        skipped: row.maybe_text(2)?,
    })
}

impl Store {
    /// Makes a schedule; its number is given.
    ///
    /// # Errors
    /// Its owner has one of this name, or as many as are allowed.
    pub async fn add_schedule(&self, schedule: &ScheduleRecord) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        let query = work.query("SELECT name FROM principal WHERE name = $1 {lock}");
        let query = query.bind(schedule.owner.clone());
        query.fetch_optional(work.connection()).await?;
        let text = "SELECT COUNT(*), CAST(COALESCE(SUM(LENGTH(request)), 0) AS bigint)
            FROM schedule WHERE owner = $1";
        let query = work.query(text).bind(schedule.owner.clone());
        let has = query.fetch_one(work.connection()).await?;
        if has.int(0)? >= SCHEDULES_MAX {
            return Err(StoreError::Conflict("a user has at most 100 schedules"));
        }
        let request = json(&schedule.request)?;
        let bytes = i64::try_from(request.len()).unwrap_or(i64::MAX);
        if has.int(1)?.saturating_add(bytes) > REQUESTS_BYTES_MAX {
            let why = "the lists of files of a user's schedules have at most 16 MiB together";
            return Err(StoreError::Conflict(why));
        }
        let text = "INSERT INTO schedule (owner, name, cron, zone, request, next_at)
            VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (owner, name) DO NOTHING";
        let query = work
            .query(text)
            .bind(schedule.owner.clone())
            .bind(schedule.name.clone())
            .bind(schedule.cron.clone())
            .bind(schedule.zone.clone())
            .bind(request)
            .bind(micros(schedule.next));
        if query.execute(work.connection()).await?.rows_affected() == 0 {
            return Err(StoreError::Conflict("there is a schedule of this name"));
        }
        work.commit().await
    }

    /// Schedules of a user, by name.
    pub async fn schedules(&self, owner: &str) -> Result<Vec<ScheduleRecord>, StoreError> {
        let text = format!("SELECT {SCHEDULE} FROM schedule WHERE owner = $1 ORDER BY name");
        let query = self.database.query(&text).bind(owner.to_owned());
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(read).collect()
    }

    /// One schedule.
    pub async fn schedule(&self, owner: &str, name: &str) -> Result<ScheduleRecord, StoreError> {
        let text = format!("SELECT {SCHEDULE} FROM schedule WHERE owner = $1 AND name = $2");
        let query = self
            .database
            .query(&text)
            .bind(owner.to_owned())
            .bind(name.to_owned());
        let row = query.fetch_optional(self.database.reader()).await?;
        read(&row.ok_or(StoreError::NotFound)?)
    }

    /// The last times that a schedule was due, latest first.
    pub async fn runs(&self, schedule: i64) -> Result<Vec<ScheduleRun>, StoreError> {
        let text = "SELECT due, job, skipped FROM schedule_run WHERE schedule = $1
            ORDER BY due DESC";
        let query = self.database.query(text).bind(schedule);
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(run).collect()
    }

    /// Removes a schedule. Its jobs stay.
    pub async fn remove_schedule(&self, owner: &str, name: &str) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        let text = "DELETE FROM schedule WHERE owner = $1 AND name = $2 RETURNING number";
        let query = work
            .query(text)
            .bind(owner.to_owned())
            .bind(name.to_owned());
        let row = query.fetch_optional(work.connection()).await?;
        let number = row.ok_or(StoreError::NotFound)?.int(0)?;
        let query = work.query("DELETE FROM schedule_run WHERE schedule = $1");
        query.bind(number).execute(work.connection()).await?;
        work.commit().await
    }

    /// The last time that each schedule of a user was due, by the schedule's number.
    pub async fn last_runs(&self, owner: &str) -> Result<Vec<(i64, ScheduleRun)>, StoreError> {
        let text = "SELECT r.due, r.job, r.skipped, r.schedule FROM schedule AS s
            JOIN schedule_run AS r ON r.schedule = s.number AND r.due =
                (SELECT MAX(due) FROM schedule_run WHERE schedule = s.number)
            WHERE s.owner = $1";
        let query = self.database.query(text).bind(owner.to_owned());
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter()
            .map(|row| Ok((row.int(3)?, run(row)?)))
            .collect()
    }

    /// Pauses a schedule, or resumes it: it is due at `next` then.
    ///
    /// # Errors
    /// There is none of this name, or it is so already.
    pub async fn set_schedule_paused(
        &self,
        owner: &str,
        name: &str,
        paused: bool,
        next: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let text = "UPDATE schedule SET paused = $3,
            next_at = CASE WHEN $3 = 1 THEN next_at ELSE $4 END
            WHERE owner = $1 AND name = $2 AND paused <> $3";
        let query = self.database.query(text).bind(owner.to_owned());
        let query = query.bind(name.to_owned()).bind(i64::from(paused));
        let query = query.bind(micros(next));
        let done = query.execute(self.database.writer()).await?;
        match (done.rows_affected(), paused) {
            (0, true) => Err(StoreError::Conflict("the schedule is paused already")),
            (0, false) => Err(StoreError::Conflict("the schedule is not paused")),
            _ => Ok(()),
        }
    }

    /// Schedules that are due by the clock of the database, the first of each owner, but for
    /// `without`.
    pub async fn due_schedules(&self, without: &[i64], limit: u32) -> Result<Vec<i64>, StoreError> {
        let text = "SELECT number FROM schedule WHERE next_at <= {now} AND paused = 0
            AND number NOT IN {list} AND NOT EXISTS (SELECT 1 FROM schedule AS earlier
            WHERE earlier.owner = schedule.owner AND earlier.paused = 0
            AND earlier.number NOT IN {list}
            AND (earlier.next_at, earlier.number) < (schedule.next_at, schedule.number))
            ORDER BY next_at LIMIT $2";
        let query = self.database.query(text).bind(json(without)?);
        let rows = query.bind(i64::from(limit));
        let rows = rows.fetch_all(self.database.reader()).await?;
        rows.iter().map(|row| row.int(0)).collect()
    }

    /// One that is due; `None`: it is not any more.
    pub async fn due_schedule(&self, number: i64) -> Result<Option<ScheduleRecord>, StoreError> {
        let text = format!(
            "SELECT {SCHEDULE} FROM schedule WHERE number = $1 AND next_at <= {{now}}
            AND paused = 0"
        );
        let query = self.database.query(&text).bind(number);
        let row = query.fetch_optional(self.database.reader()).await?;
        row.as_ref().map(read).transpose()
    }

    /// Writes down what became of a schedule that was due, unless another process has.
    pub async fn schedule_ran(
        &self,
        schedule: &ScheduleRecord,
        outcome: Result<Uuid, &str>,
        next: Option<Timestamp>,
    ) -> Result<(), StoreError> {
        let mut work = self.database.begin().await?;
        let text = "UPDATE schedule SET next_at = $3, last_job = COALESCE($4, last_job)
            WHERE number = $1 AND next_at = $2";
        let (number, due) = (schedule.number, micros(schedule.next));
        let job = outcome.ok().map(|id| id.to_string());
        let query = work.query(text).bind(number).bind(due);
        let query = query.bind(micros(next)).bind(job.clone());
        if query.execute(work.connection()).await?.rows_affected() == 0 {
            return Ok(());
        }
        let text = "INSERT INTO schedule_run (schedule, due, job, skipped)
            VALUES ($1, $2, $3, $4) ON CONFLICT (schedule, due) DO NOTHING";
        let query = work.query(text).bind(number).bind(due).bind(job);
        let query = query.bind(outcome.err().map(str::to_owned));
        query.execute(work.connection()).await?;
        let text = "DELETE FROM schedule_run WHERE schedule = $1 AND due <=
            (SELECT due FROM schedule_run WHERE schedule = $1 ORDER BY due DESC
            LIMIT 1 OFFSET $2)";
        let query = work.query(text).bind(number).bind(RUNS_KEPT);
        query.execute(work.connection()).await?;
        work.commit().await
    }
}
