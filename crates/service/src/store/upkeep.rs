//! Deadlines, submissions that broke off, and how long things are kept.

use std::time::Duration;

use godwit_service_api::job::JobState;

use super::{
    Store, StoreError,
    database::{Columns as _, Engine, json},
    leases::{check_leader, micros},
    model::{JobFilter, Leadership, Maintained, Retention},
    units,
};

/// Jobs that one run takes on, so that it ends soon.
const MAX_JOBS: i64 = 100;

/// A submission that has brought nothing for so long has broken off.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Rows that one statement removes: it must end within seconds.
const REMOVED_TOGETHER: u64 = 500;

/// Such statements of one run.
const REMOVALS_MAX: u32 = 200;

pub(super) const DAY: i64 = 86_400_000_000;

/// Tables that PostgreSQL keeps in a partition for each day, and the column of their time.
const DAILY: [(&str, &str); 2] = [("event", "at"), ("history", "ended")];

impl Store {
    /// One run of the maintenance. Call it again soon while it still does something.
    pub async fn maintain(
        &self,
        leader: Leadership,
        keep: Retention,
    ) -> Result<Maintained, StoreError> {
        let deadlines = self.pass_deadlines(leader).await?;
        let mut removals = REMOVALS_MAX;
        let submissions = self.drop_abandoned(leader, &mut removals).await?;
        let jobs = self
            .move_to_history(leader, keep.files_days, &mut removals)
            .await?;
        self.make_partitions().await?;
        self.drop_days("event", "at", keep.events_days).await?;
        self.drop_days("history", "ended", keep.history_days)
            .await?;
        self.drop_audit(keep.history_days, &mut removals).await?;
        self.drop_sessions(&mut removals).await?;
        Ok(Maintained {
            jobs,
            submissions,
            deadlines,
        })
    }

    /// Ends jobs whose deadline has passed: open files count as failed.
    async fn pass_deadlines(&self, leader: Leadership) -> Result<u64, StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        let text = "SELECT number,
            CASE WHEN ordered IS NULL THEN finished + skipped ELSE 0 END FROM job
            WHERE ended IS NULL AND state <> 'submitting' AND deadline < {now}
            ORDER BY number LIMIT $1 {lock}";
        let query = work.query(text).bind(MAX_JOBS);
        let rows = query.fetch_all(work.connection()).await?;
        let mut jobs = Vec::with_capacity(rows.len());
        for row in &rows {
            let state = match row.int(1)? {
                0 => JobState::Failed,
                _ => JobState::Partial,
            };
            jobs.push(row.int(0)?);
            units::set_state(&mut work, row.int(0)?, state, Some("its deadline passed")).await?;
        }
        work.commit().await?;
        for job in &jobs {
            self.drop_ready_units(*job).await?;
        }
        Ok(jobs.len() as u64)
    }

    async fn drop_abandoned(
        &self,
        leader: Leadership,
        removals: &mut u32,
    ) -> Result<u64, StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        // From here on they take no more files.
        let text = "UPDATE job SET touched = 0, idempotency_key = NULL WHERE number IN
            (SELECT number FROM job WHERE ended IS NULL AND state = 'submitting'
            AND touched < {now} - $1 ORDER BY number LIMIT $2)
            AND state = 'submitting' AND touched < {now} - $1 RETURNING number";
        let query = work.query(text).bind(micros(ABANDONED)).bind(MAX_JOBS);
        let rows = query.fetch_all(work.connection()).await?;
        work.commit().await?;
        let mut removed = 0;
        for row in &rows {
            let job = row.int(0)?;
            if !self.remove_parts(job, removals).await? {
                break;
            }
            let mut work = self.database.begin().await?;
            units::remove_row(&mut work, job).await?;
            work.commit().await?;
            removed += 1;
        }
        Ok(removed)
    }

    /// Removes a job that takes no more files, and all that belongs to it.
    pub(super) async fn remove_job(&self, job: i64) -> Result<(), StoreError> {
        self.remove_parts(job, &mut u32::MAX.clone()).await?;
        let mut work = self.database.begin().await?;
        units::remove_row(&mut work, job).await?;
        work.commit().await
    }

    /// Removes what belongs to a job, by as many statements as are left. False where they did not
    /// do.
    pub(super) async fn remove_parts(
        &self,
        job: i64,
        removals: &mut u32,
    ) -> Result<bool, StoreError> {
        let parts = [
            ("unit", "id"),
            ("segment", "seq"),
            ("file_exception", "number"),
            ("event", "number"),
        ];
        for (table, key) in parts {
            let text = format!(
                "DELETE FROM {table} WHERE job = $1 AND {key} IN
                (SELECT {key} FROM {table} WHERE job = $1 LIMIT {REMOVED_TOGETHER})"
            );
            loop {
                if *removals == 0 {
                    return Ok(false);
                }
                *removals -= 1;
                let query = self.database.query(&text).bind(job);
                let removed = query.execute(self.database.writer()).await?;
                if removed.rows_affected() < REMOVED_TOGETHER {
                    break;
                }
            }
        }
        Ok(true)
    }

    async fn drop_audit(&self, days: u32, removals: &mut u32) -> Result<(), StoreError> {
        let text = format!(
            "DELETE FROM audit WHERE number IN (SELECT number FROM audit
            WHERE at < {{now}} - $1 ORDER BY number LIMIT {REMOVED_TOGETHER})"
        );
        while *removals > 0 {
            *removals -= 1;
            let query = self.database.query(&text).bind(DAY * i64::from(days));
            let removed = query.execute(self.database.writer()).await?;
            if removed.rows_affected() < REMOVED_TOGETHER {
                break;
            }
        }
        Ok(())
    }

    /// Sessions of browsers that have lasted as long as they may.
    async fn drop_sessions(&self, removals: &mut u32) -> Result<(), StoreError> {
        let text = format!(
            "DELETE FROM web_session WHERE hash IN (SELECT hash FROM web_session
            WHERE expires < {{now}} LIMIT {REMOVED_TOGETHER})"
        );
        while *removals > 0 {
            *removals -= 1;
            let query = self.database.query(&text);
            let removed = query.execute(self.database.writer()).await?;
            if removed.rows_affected() < REMOVED_TOGETHER {
                break;
            }
        }
        Ok(())
    }

    /// Replaces old final jobs by their summaries.
    async fn move_to_history(
        &self,
        leader: Leadership,
        days: u32,
        removals: &mut u32,
    ) -> Result<u64, StoreError> {
        let text = "SELECT id FROM job WHERE ended < {now} - $1 ORDER BY ended LIMIT $2";
        let query = self
            .database
            .query(text)
            .bind(DAY * i64::from(days))
            .bind(MAX_JOBS);
        let rows = query.fetch_all(self.database.reader()).await?;
        let ids = rows
            .iter()
            .map(|row| row.uuid(0))
            .collect::<Result<Vec<_>, _>>()?;
        if ids.is_empty() {
            return Ok(0);
        }
        let filter = JobFilter {
            ids,
            ..JobFilter::default()
        };
        let old = self.jobs(&filter, None, u32::MAX).await?.items;
        let mut moved = 0;
        for job in &old {
            // From here on no user can have its failed files tried again.
            let text = "UPDATE job SET touched = 0
                WHERE number = $1 AND ended < {now} - $2";
            let query = self.database.query(text).bind(job.number);
            let query = query.bind(DAY * i64::from(days));
            let marked = query.execute(self.database.writer()).await?;
            if marked.rows_affected() == 0 {
                continue;
            }
            if !self.remove_parts(job.number, removals).await? {
                break;
            }
            let mut work = self.database.begin().await?;
            check_leader(&mut work, leader).await?;
            let text = "INSERT INTO history (id, owner, ended, summary) VALUES ($1, $2, $3, $4)";
            let summary = serde_json::json!({
                "state": job.state, "reason": job.reason, "options": job.options,
                "files": job.files, "bytes_done": job.bytes_done, "errors": job.errors,
                "created": job.created, "started": job.started, "ended": job.ended,
            });
            let query = work
                .query(text)
                .bind(job.id.to_string())
                .bind(job.owner.clone())
                .bind(super::database::micros(job.ended))
                .bind(json(&summary)?);
            query.execute(work.connection()).await?;
            units::remove_row(&mut work, job.number).await?;
            work.commit().await?;
            moved += 1;
        }
        Ok(moved)
    }

    /// Removes rows of days that are over for so long.
    async fn drop_days(&self, table: &str, column: &str, days: u32) -> Result<(), StoreError> {
        let before = self.now().await?.as_microsecond() / DAY - i64::from(days);
        if self.database.engine == Engine::Postgres {
            let text = "SELECT CAST(c.relname AS text) FROM pg_inherits AS i
                JOIN pg_class AS c ON c.oid = i.inhrelid
                JOIN pg_class AS p ON p.oid = i.inhparent WHERE p.relname = $1";
            let query = self.database.query(text).bind(table.to_owned());
            for row in query.fetch_all(self.database.reader()).await? {
                let partition = row.text(0)?;
                let day = partition
                    .rsplit_once('_')
                    .and_then(|(_, day)| day.parse::<i64>().ok());
                if day.is_some_and(|day| day < before) {
                    let query = self.database.query(&format!("DROP TABLE {partition}"));
                    query.execute(self.database.writer()).await?;
                }
            }
        }
        let text = format!("DELETE FROM {table} WHERE {column} < $1");
        let query = self.database.query(&text).bind(before * DAY);
        query.execute(self.database.writer()).await?;
        Ok(())
    }

    /// Makes the partitions of today and of the week to come, where the engine has such.
    pub(super) async fn make_partitions(&self) -> Result<(), StoreError> {
        if self.database.engine == Engine::Sqlite {
            return Ok(());
        }
        let today = self.now().await?.as_microsecond() / DAY;
        for (table, _) in DAILY {
            for day in today..today + 8 {
                let text = format!(
                    "CREATE TABLE IF NOT EXISTS {table}_{day} PARTITION OF {table}
                    FOR VALUES FROM ({}) TO ({})",
                    day * DAY,
                    (day + 1) * DAY,
                );
                let query = self.database.query(&text);
                match query.execute(self.database.writer()).await {
                    // Rows came before their day had a partition, as after the restore of an old
                    // backup. The default partition keeps that day.
                    Err(sqlx::Error::Database(e)) if e.code().as_deref() == Some("23514") => {}
                    other => {
                        other?;
                    }
                }
            }
        }
        Ok(())
    }
}
