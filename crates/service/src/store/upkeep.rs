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

const DAY: i64 = 86_400_000_000;

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
        let submissions = self.drop_abandoned(leader).await?;
        let jobs = self.move_to_history(leader, keep.files_days).await?;
        self.make_partitions().await?;
        self.drop_days("event", "at", keep.events_days).await?;
        self.drop_days("history", "ended", keep.history_days)
            .await?;
        let query = self
            .database
            .query("DELETE FROM audit WHERE at < {now} - $1");
        let query = query.bind(DAY * i64::from(keep.history_days));
        query.execute(self.database.writer()).await?;
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
        let text = "SELECT number, finished + skipped FROM job
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

    async fn drop_abandoned(&self, leader: Leadership) -> Result<u64, StoreError> {
        let mut work = self.database.begin().await?;
        check_leader(&mut work, leader).await?;
        let text = "SELECT number FROM job
            WHERE ended IS NULL AND state = 'submitting' AND touched < {now} - $1
            ORDER BY number LIMIT $2 {lock}";
        let query = work.query(text).bind(micros(ABANDONED)).bind(MAX_JOBS);
        let rows = query.fetch_all(work.connection()).await?;
        for row in &rows {
            units::remove_job(&mut work, row.int(0)?).await?;
        }
        work.commit().await?;
        Ok(rows.len() as u64)
    }

    /// Replaces old final jobs by their summaries.
    async fn move_to_history(&self, leader: Leadership, days: u32) -> Result<u64, StoreError> {
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
        for job in &old {
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
            units::remove_job(&mut work, job.number).await?;
            work.commit().await?;
        }
        Ok(old.len() as u64)
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
                query.execute(self.database.writer()).await?;
            }
        }
        Ok(())
    }
}
