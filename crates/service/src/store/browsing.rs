//! Directories that users look into. A row lives for seconds: from the question until its answer
//! was read, or nobody waits any more.

use std::time::Duration;

use godwit_service_api::browse::BrowseRequest;
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Columns as _, json},
    leases::micros,
};

/// Nobody waits for the answer to an older question: who asked was killed. An agent gets each one
/// once, as a slow endpoint would else see several logins for it.
const AGE_MAX: Duration = Duration::from_secs(30);

/// Questions that an agent takes at a time.
const TOGETHER: usize = 8;

/// What limits the questions that wait.
#[derive(Clone, Copy, Debug)]
pub struct BrowseLimits {
    /// Nobody waits longer for an answer.
    pub wait: Duration,
    /// Of one user at a time.
    pub of_user: u64,
    /// Of all users at a time.
    pub of_all: u64,
}

/// A question for an agent.
#[derive(Clone, Debug)]
pub struct OpenBrowse {
    /// Which.
    pub id: Uuid,
    /// Whose credentials the agent needs.
    pub owner: String,
    /// `scheme://host:port`.
    pub endpoint: String,
    /// What is asked.
    pub request: BrowseRequest,
}

impl Store {
    /// Asks what is in a directory of an endpoint.
    pub async fn add_browse(
        &self,
        owner: &str,
        endpoint: &str,
        request: &BrowseRequest,
        limits: BrowseLimits,
    ) -> Result<Uuid, StoreError> {
        let mut work = self.database.begin().await?;
        // Whoever asked may have been killed.
        let query = work.query("DELETE FROM browse WHERE created < {now} - $1");
        let query = query.bind(micros(limits.wait));
        query.execute(work.connection()).await?;
        let text = "SELECT COUNT(*), COUNT(CASE WHEN owner = $1 THEN 1 END) FROM browse";
        let query = work.query(text).bind(owner.to_owned());
        let row = query.fetch_one(work.connection()).await?;
        for (has, most) in [
            (row.count(1)?, limits.of_user),
            (row.count(0)?, limits.of_all),
        ] {
            if has >= most {
                let what = "questions for directories";
                return Err(StoreError::Quota { what, has, most });
            }
        }
        let id = Uuid::new_v4();
        let text = "INSERT INTO browse (id, owner, endpoint, request, created)
            VALUES ($1, $2, $3, $4, {now})";
        let query = work.query(text).bind(id.to_string()).bind(owner.to_owned());
        let query = query.bind(endpoint.to_owned()).bind(json(request)?);
        query.execute(work.connection()).await?;
        work.commit().await?;
        Ok(id)
    }

    /// Questions that no agent has taken.
    pub async fn waiting_browses(&self) -> Result<Vec<Uuid>, StoreError> {
        let text = "SELECT id FROM browse WHERE answer IS NULL AND agent IS NULL
            AND created >= {now} - $1";
        let query = self.database.query(text).bind(micros(AGE_MAX));
        let rows = query.fetch_all(self.database.reader()).await?;
        rows.iter().map(|row| row.uuid(0)).collect()
    }

    /// Gives an agent questions of endpoints that it reaches, by its patterns.
    pub async fn take_browses(
        &self,
        agent: &str,
        patterns: &[String],
    ) -> Result<Vec<OpenBrowse>, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT id, owner, endpoint, request FROM browse WHERE answer IS NULL
            AND agent IS NULL AND created >= {now} - $1 ORDER BY created LIMIT 200 {skip}";
        let query = work.query(text).bind(micros(AGE_MAX));
        let rows = query.fetch_all(work.connection()).await?;
        let mut taken = Vec::new();
        for row in &rows {
            let endpoint = row.text(2)?;
            let reaches = |pattern: &String| godwit_scheduler::matches(pattern, &endpoint);
            if taken.len() < TOGETHER && patterns.iter().any(reaches) {
                taken.push(OpenBrowse {
                    id: row.uuid(0)?,
                    owner: row.text(1)?,
                    endpoint: endpoint.clone(),
                    request: row.json(3)?,
                });
            }
        }
        for browse in &taken {
            let text = "UPDATE browse SET agent = $2, taken = {now} WHERE id = $1";
            let query = work.query(text).bind(browse.id.to_string());
            query
                .bind(agent.to_owned())
                .execute(work.connection())
                .await?;
        }
        work.commit().await?;
        Ok(taken)
    }

    /// What the agent found that took the question. False where nobody waits any more, or another
    /// agent has it.
    pub async fn answer_browse(
        &self,
        id: Uuid,
        agent: &str,
        answer: &str,
    ) -> Result<bool, StoreError> {
        let text = "UPDATE browse SET answer = $2
            WHERE id = $1 AND agent = $3 AND answer IS NULL";
        let query = self.database.query(text).bind(id.to_string());
        let query = query.bind(answer.to_owned()).bind(agent.to_owned());
        let done = query.execute(self.database.writer()).await?;
        Ok(done.rows_affected() > 0)
    }

    /// The answer, once there is one.
    pub async fn browse_answer(&self, id: Uuid) -> Result<Option<String>, StoreError> {
        let query = self
            .database
            .query("SELECT answer FROM browse WHERE id = $1");
        let query = query.bind(id.to_string());
        let row = query.fetch_optional(self.database.reader()).await?;
        row.ok_or(StoreError::NotFound)?.maybe_text(0)
    }

    /// Nobody waits any more. Whether an agent had taken it.
    pub async fn remove_browse(&self, id: Uuid) -> Result<bool, StoreError> {
        let text = "DELETE FROM browse WHERE id = $1 RETURNING agent";
        let query = self.database.query(text).bind(id.to_string());
        let row = query.fetch_optional(self.database.writer()).await?;
        match row {
            Some(row) => Ok(row.maybe_text(0)?.is_some()),
            None => Ok(false),
        }
    }
}
