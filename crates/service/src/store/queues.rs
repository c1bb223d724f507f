//! What waits, for the leader: which jobs have changed, and the queues of some.

use std::time::Duration;

use godwit_service_api::job::JobState;

use super::{
    Store, StoreError,
    database::{Columns as _, json},
    leases::micros,
    model::{Held, QueueKey, QueueRecord},
};

impl Store {
    /// Jobs of which what waits has changed within this time, other than by grants, each with a
    /// mark that no other change of it has. Ended jobs are among them.
    ///
    /// A change is marked when it is made and seen when its transaction ends, which may be later.
    pub async fn changed_jobs(&self, within: Duration) -> Result<Vec<(i64, i64)>, StoreError> {
        // As a subquery the time is taken once, and the index can be used.
        let text = "SELECT number, changed FROM job WHERE changed >= (SELECT {now} - $1)";
        let query = self.database.query(text).bind(micros(within));
        let rows = query.fetch_all(self.database.reader()).await?;
        let marks = rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?)));
        marks.collect()
    }

    /// Jobs that have not ended, after this one; at most so many, in their order.
    pub async fn open_jobs(&self, after: i64, limit: usize) -> Result<Vec<i64>, StoreError> {
        let text = "SELECT number FROM job WHERE ended IS NULL AND number > $1
            ORDER BY number LIMIT $2";
        let query = self.database.query(text).bind(after).bind(limit as i64);
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(|row| row.int(0)).collect()
    }

    /// All queues with units that wait.
    pub async fn queues(&self) -> Result<Vec<QueueRecord>, StoreError> {
        let jobs = self.open_jobs(0, usize::MAX >> 1).await?;
        self.queues_of(&jobs).await
    }

    /// Queues of these jobs with units that wait.
    pub async fn queues_of(&self, jobs: &[i64]) -> Result<Vec<QueueRecord>, StoreError> {
        if jobs.is_empty() {
            return Ok(Vec::new());
        }
        // The next unit of a queue is the one with the lowest number, as `grant` takes it. Bytes
        // are summed as floats, which sizes that servers invent do not overflow.
        let text = "SELECT q.job, q.link, job.id, job.owner, link.source, link.destination,
                q.ready, q.waiting, q.files, q.bytes, COALESCE(next.files, 0),
                COALESCE(next.bytes, 0), q.not_before, job.state,
                CASE WHEN EXISTS (SELECT 1 FROM job_after WHERE job_after.job = q.job)
                    THEN 1 ELSE 0 END,
                job.options, job.created, job.started
            FROM (SELECT job, link,
                    SUM(CASE WHEN not_before <= {now} THEN 1 ELSE 0 END) AS ready,
                    SUM(CASE WHEN not_before > {now} THEN 1 ELSE 0 END) AS waiting,
                    CAST(SUM(files) AS bigint) AS files,
                    CAST(CASE WHEN SUM(CAST(bytes AS double precision)) > 9e15 THEN 9e15
                        ELSE SUM(CAST(bytes AS double precision)) END AS bigint) AS bytes,
                    MIN(CASE WHEN not_before <= {now} THEN id END) AS next,
                    MIN(CASE WHEN not_before > {now} THEN not_before END) AS not_before
                FROM unit WHERE agent IS NULL AND job IN {list} GROUP BY job, link) AS q
            JOIN job ON job.number = q.job
            JOIN link ON link.number = q.link
            LEFT JOIN unit AS next ON next.id = q.next
            WHERE job.state IN ('queued', 'active', 'paused')
            ORDER BY q.job, q.link";
        let query = self.database.query(text).bind(json(jobs)?);
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter()
            .map(|row| {
                let held = match (row.name(13)?, row.flag(14)?) {
                    (JobState::Paused, _) => Some(Held::Paused),
                    (_, true) => Some(Held::AfterJob),
                    _ => None,
                };
                Ok(QueueRecord {
                    key: QueueKey {
                        job: row.int(0)?,
                        link: row.int(1)?,
                    },
                    job: row.uuid(2)?,
                    owner: row.text(3)?,
                    source: row.text(4)?,
                    destination: row.text(5)?,
                    ready: row.count(6)?,
                    waiting: row.count(7)?,
                    files: row.count(8)?,
                    bytes: row.count(9)?,
                    next_files: row.small(10)?,
                    next_bytes: row.count(11)?,
                    not_before: row.maybe_time(12)?,
                    held,
                    options: row.json(15)?,
                    created: row.time(16)?,
                    started: row.maybe_int(17)?.is_some(),
                })
            })
            .collect()
    }
}
