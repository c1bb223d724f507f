//! How pairs of endpoints do: what the leader says of them, and files that ended, by the hour.

use std::collections::BTreeMap;

use super::{
    Store, StoreError,
    database::{Columns as _, json},
    leases::check_leader,
    model::{Leadership, LinkNow, LinkTally},
};

/// Microseconds of an hour.
const HOUR: i64 = 3_600_000_000;

/// Hours that are kept, and summed up.
const HOURS: i64 = 24;

impl Store {
    /// What the leader says of pairs of endpoints, by number.
    pub async fn links_now(&self) -> Result<BTreeMap<i64, LinkNow>, StoreError> {
        let query = self.database.query("SELECT link, now FROM link_now");
        let rows = query.fetch_all(self.database.reader()).await?;
        let links = rows.iter().map(|row| Ok((row.int(0)?, row.json(1)?)));
        links.collect()
    }

    /// Sets what the leader says of some pairs of endpoints; `None`: no more.
    pub async fn set_links_now(
        &self,
        leader: Leadership,
        links: &BTreeMap<i64, Option<LinkNow>>,
    ) -> Result<(), StoreError> {
        // What a crash of the machine takes back, the next leader says again.
        let mut work = self.database.begin_without_sync().await?;
        check_leader(&mut work, leader).await?;
        for (link, now) in links {
            let query = match now {
                Some(now) => {
                    let text = "INSERT INTO link_now (link, now) VALUES ($1, $2)
                        ON CONFLICT (link) DO UPDATE SET now = excluded.now";
                    work.query(text).bind(*link).bind(json(now)?)
                }
                None => work
                    .query("DELETE FROM link_now WHERE link = $1")
                    .bind(*link),
            };
            query.execute(work.connection()).await?;
        }
        work.commit().await
    }

    /// Adds files that ended.
    pub async fn count_links(&self, links: &BTreeMap<i64, LinkTally>) -> Result<(), StoreError> {
        let mut work = self.database.begin_without_sync().await?;
        for (link, tally) in links {
            let text = "INSERT INTO link_hour (link, hour, finished, failed, bytes)
                VALUES ($1, ({now}) / $2, $3, $4, $5)
                ON CONFLICT (link, hour) DO UPDATE SET
                finished = link_hour.finished + excluded.finished,
                failed = link_hour.failed + excluded.failed,
                bytes = link_hour.bytes + excluded.bytes";
            let query = work.query(text).bind(*link).bind(HOUR);
            let query = query
                .bind(tally.finished as i64)
                .bind(tally.failed as i64)
                .bind(i64::try_from(tally.bytes).unwrap_or(i64::MAX / 1000));
            query.execute(work.connection()).await?;
        }
        let query = work.query("DELETE FROM link_hour WHERE hour < ({now}) / $1 - $2");
        let query = query.bind(HOUR).bind(2 * HOURS);
        query.execute(work.connection()).await?;
        work.commit().await
    }

    /// Files that ended within the last day, by number of the pair of endpoints.
    pub async fn link_tallies(&self) -> Result<BTreeMap<i64, LinkTally>, StoreError> {
        // Bytes are summed as floats, which sizes that servers invent do not overflow.
        let text = "SELECT link, CAST(SUM(finished) AS bigint), CAST(SUM(failed) AS bigint),
            CAST(CASE WHEN SUM(CAST(bytes AS double precision)) > 9e15 THEN 9e15
                ELSE SUM(CAST(bytes AS double precision)) END AS bigint)
            FROM link_hour WHERE hour > ({now}) / $1 - $2 GROUP BY link";
        let query = self.database.query(text).bind(HOUR).bind(HOURS);
        let rows = query.fetch_all(self.database.reader()).await?;
        let links = rows.iter().map(|row| {
            let tally = LinkTally {
                finished: row.count(1)?,
                failed: row.count(2)?,
                bytes: row.count(3)?,
            };
            Ok((row.int(0)?, tally))
        });
        links.collect()
    }
}
