//! Reports of ended jobs that wait to be sent, and the keys that they are signed with.

use std::time::Duration;

use godwit_service_api::job::{FileState, FileView, JobOptions, Notification};

use super::{
    Store, StoreError,
    database::{Columns as _, Work},
    model::{JobRecord, WaitingReport},
    units,
};

/// What the URL of a row begins with that goes by mail.
const MAILTO: &str = "mailto:";

/// A job has ended: its reports wait, in place of those of an earlier end.
pub(super) async fn add(work: &mut Work, job: i64) -> Result<(), StoreError> {
    let query = work.query("DELETE FROM webhook WHERE job = $1").bind(job);
    query.execute(work.connection()).await?;
    let query = work
        .query("SELECT options FROM job WHERE number = $1")
        .bind(job);
    let options: JobOptions = query.fetch_one(work.connection()).await?.json(0)?;
    for notification in options.notify {
        let url = match notification {
            Notification::Webhook { url } => url,
            Notification::Mail { address } => format!("{MAILTO}{address}"),
        };
        let text = "INSERT INTO webhook (job, url, next_at) VALUES ($1, $2, {now})";
        let query = work.query(text).bind(job).bind(url);
        query.execute(work.connection()).await?;
    }
    Ok(())
}

/// A scrape of the metrics counts no more rows.
const COUNTED_MAX: i64 = 10_000;

impl Store {
    /// Reports that are to be sent now. Each is put off by `again` at once, so that one that breaks
    /// off is not lost.
    pub async fn take_reports(
        &self,
        limit: u32,
        again: impl Fn(u32) -> Duration,
    ) -> Result<Vec<WaitingReport>, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT webhook.number, job.id, webhook.url, webhook.attempts
            FROM webhook JOIN job ON job.number = webhook.job
            WHERE webhook.next_at <= {now} AND job.ended IS NOT NULL
            ORDER BY webhook.next_at LIMIT $1";
        let query = work.query(text).bind(i64::from(limit));
        let rows = query.fetch_all(work.connection()).await?;
        let mut waiting = Vec::with_capacity(rows.len());
        for row in &rows {
            let url = row.text(2)?;
            let one = WaitingReport {
                number: row.int(0)?,
                job: row.uuid(1)?,
                to: match url.strip_prefix(MAILTO) {
                    Some(address) => Notification::Mail {
                        address: address.to_owned(),
                    },
                    None => Notification::Webhook { url },
                },
                attempts: row.small(3)?.saturating_add(1),
            };
            let text = "UPDATE webhook SET attempts = $2, next_at = {now} + $3 WHERE number = $1";
            let query = work
                .query(text)
                .bind(one.number)
                .bind(i64::from(one.attempts));
            let pause = i64::try_from(again(one.attempts).as_micros()).unwrap_or(i64::MAX / 4);
            let query = query.bind(pause);
            query.execute(work.connection()).await?;
            waiting.push(one);
        }
        work.commit().await?;
        Ok(waiting)
    }

    /// Webhooks and messages that wait, counted up to [`COUNTED_MAX`] together.
    pub async fn waiting_reports(&self) -> Result<(u64, u64), StoreError> {
        let text = "SELECT COUNT(*), COALESCE(SUM(CASE WHEN w.url LIKE $1 THEN 1 ELSE 0 END), 0)
            FROM (SELECT url FROM webhook LIMIT $2) AS w";
        let query = self.database.query(text).bind(format!("{MAILTO}%"));
        let row = query.bind(COUNTED_MAX).fetch_one(self.database.reader());
        let row = row.await?;
        let (all, mails) = (row.count(0)?, row.count(1)?);
        Ok((all.saturating_sub(mails), mails))
    }

    /// A report was taken or given up.
    pub async fn remove_report(&self, number: i64) -> Result<(), StoreError> {
        let query = self.database.query("DELETE FROM webhook WHERE number = $1");
        query.bind(number).execute(self.database.writer()).await?;
        Ok(())
    }

    /// Counts a message of a user. How many it makes today.
    pub async fn count_mail(&self, owner: &str) -> Result<u64, StoreError> {
        let text = "INSERT INTO mail_count (owner, day, messages)
            VALUES ($1, ({now}) / 86400000000, 1)
            ON CONFLICT (owner) DO UPDATE SET day = excluded.day, messages = CASE
            WHEN mail_count.day = excluded.day THEN mail_count.messages + 1 ELSE 1 END
            RETURNING messages";
        let query = self.database.query(text).bind(owner.to_owned());
        query.fetch_one(self.database.writer()).await?.count(0)
    }

    /// The first files that failed, of a job with any number of others. A file that a deadline has
    /// failed is not among them.
    pub async fn first_failures(
        &self,
        job: &JobRecord,
        limit: u32,
    ) -> Result<Vec<FileView>, StoreError> {
        let text = "SELECT number FROM file_exception WHERE job = $1 AND failed = $2
            ORDER BY number LIMIT $3";
        let query = self.database.query(text).bind(job.number);
        let query = query.bind(units::FAILED).bind(i64::from(limit));
        let mut files = Vec::new();
        for row in query.fetch_all(self.database.reader()).await? {
            let number = row.int(0)?.to_string();
            let page = self.files(job, Some(&number), 1, Some(FileState::Failed));
            files.extend(page.await?.items);
        }
        Ok(files)
    }

    /// The sealed key of a user's reports.
    pub async fn webhook_key(&self, owner: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let text = "SELECT sealed FROM webhook_key WHERE owner = $1";
        let query = self.database.query(text).bind(owner.to_owned());
        let found = query.fetch_optional(self.database.reader()).await?;
        found.map(|row| row.bytes(0)).transpose()
    }

    /// Sets the sealed key of a user's reports.
    pub async fn set_webhook_key(&self, owner: &str, sealed: &[u8]) -> Result<(), StoreError> {
        let text = "INSERT INTO webhook_key (owner, sealed) VALUES ($1, $2)
            ON CONFLICT (owner) DO UPDATE SET sealed = $2";
        let query = self.database.query(text).bind(owner.to_owned());
        let query = query.bind(sealed.to_vec());
        query.execute(self.database.writer()).await?;
        Ok(())
    }
}
