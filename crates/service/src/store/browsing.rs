//! What users look at before they submit: directories, and what a job would copy. A row lives for
//! seconds: from the question until its answer was read, or nobody waits any more.

use std::{collections::HashSet, time::Duration};

use godwit_service_api::{
    agent::AgentDescription, browse::BrowseRequest, preview::PreviewQuestion,
};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::{
    Store, StoreError,
    database::{Alone, Columns as _, json},
    leases::micros,
    submission::endpoint_of,
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

/// What an agent reaches.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentReach {
    endpoints: Vec<String>,
    labels: Vec<String>,
}

impl AgentReach {
    /// Of an agent that says so.
    pub fn of(agent: &AgentDescription) -> Self {
        Self {
            endpoints: agent.endpoints.clone(),
            labels: agent.labels.clone(),
        }
    }

    /// Whether it may look at all of these endpoints, for a user who asks for these labels: as the
    /// scheduler chooses agents for units.
    pub fn may_look(&self, endpoints: &[String], labels: &[String]) -> bool {
        let reaches = |endpoint: &String| {
            let mut patterns = self.endpoints.iter();
            patterns.any(|pattern| godwit_scheduler::matches(pattern, endpoint))
        };
        let has = |label: &String| self.labels.contains(label);
        labels.iter().all(has) && endpoints.iter().all(reaches)
    }
}

/// What a user asks.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Question {
    /// What is in a directory.
    Directory(BrowseRequest),
    /// What a job would copy.
    Job(PreviewQuestion),
}

impl Question {
    /// `scheme://host:port` of all places that the agent must reach.
    pub fn endpoints(&self) -> Vec<String> {
        let urls = match self {
            Question::Directory(request) => vec![&request.url],
            Question::Job(PreviewQuestion { file, .. }) => vec![&file.source, &file.destination],
        };
        urls.into_iter()
            .filter_map(|url| endpoint_of(url))
            .collect()
    }

    /// Those that the agent must have.
    pub fn labels(&self) -> &[String] {
        match self {
            Question::Directory(request) => &request.labels,
            Question::Job(question) => &question.labels,
        }
    }
}

/// A question for an agent.
#[derive(Clone, Debug)]
pub struct OpenBrowse {
    /// Which.
    pub id: Uuid,
    /// Whose credentials the agent needs.
    pub owner: String,
    /// What is asked.
    pub question: Question,
}

/// A question that waits for an agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingBrowse {
    /// Which.
    pub id: Uuid,
    /// `scheme://host:port` of all places that the agent must reach.
    pub endpoints: Vec<String>,
    /// Those that the agent must have.
    pub labels: Vec<String>,
}

impl WaitingBrowse {
    /// Of this question.
    pub fn of(id: Uuid, question: &Question) -> Self {
        Self {
            id,
            endpoints: question.endpoints(),
            labels: question.labels().to_vec(),
        }
    }
}

/// What became of a question that nobody waits for any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedBrowse {
    /// The agent that had taken it.
    pub agent: Option<String>,
}

impl Store {
    /// Asks the agents.
    pub async fn add_browse(
        &self,
        owner: &str,
        question: &Question,
        limits: BrowseLimits,
    ) -> Result<Uuid, StoreError> {
        let mut work = self.database.begin().await?;
        // Or two requests count the same questions, and both are let in.
        work.alone(Alone::Browse).await?;
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
        let endpoint = question.endpoints().first().cloned().unwrap_or_default();
        let query = query.bind(endpoint).bind(json(question)?);
        query.execute(work.connection()).await?;
        work.commit().await?;
        Ok(id)
    }

    /// Questions that no agent has taken.
    pub async fn waiting_browses(&self) -> Result<Vec<WaitingBrowse>, StoreError> {
        let text = "SELECT id, request FROM browse WHERE answer IS NULL
            AND agent IS NULL AND created >= {now} - $1";
        let query = self.database.query(text).bind(micros(AGE_MAX));
        let rows = query.fetch_all(self.database.reader()).await?;
        let waiting = rows
            .iter()
            .map(|row| Ok(WaitingBrowse::of(row.uuid(0)?, &row.json(1)?)));
        waiting.collect()
    }

    /// Gives an agent questions that it may answer: of endpoints that it reaches, for users who ask
    /// for no label that it lacks. Jobs go to the same agents, with the same credentials.
    pub async fn take_browses(
        &self,
        agent: &str,
        reach: &AgentReach,
    ) -> Result<Vec<OpenBrowse>, StoreError> {
        let mut work = self.database.begin().await?;
        let text = "SELECT id, owner, request FROM browse WHERE answer IS NULL
            AND agent IS NULL AND created >= {now} - $1 ORDER BY created LIMIT 200 {skip}";
        let query = work.query(text).bind(micros(AGE_MAX));
        let rows = query.fetch_all(work.connection()).await?;
        let mut taken = Vec::new();
        for row in &rows {
            let question: Question = row.json(2)?;
            let may_look = reach.may_look(&question.endpoints(), question.labels());
            if taken.len() < TOGETHER && may_look {
                taken.push(OpenBrowse {
                    id: row.uuid(0)?,
                    owner: row.text(1)?,
                    question,
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
            WHERE id = $1 AND agent = $3 AND answer IS NULL AND is_over = 0";
        let query = self.database.query(text).bind(id.to_string());
        let query = query.bind(answer.to_owned()).bind(agent.to_owned());
        let done = query.execute(self.database.writer()).await?;
        if done.rows_affected() > 0 {
            return Ok(true);
        }
        // The agent has let go of it: the user may ask for another.
        let text = "DELETE FROM browse WHERE id = $1 AND agent = $2 AND is_over <> 0";
        let query = self.database.query(text).bind(id.to_string());
        let query = query.bind(agent.to_owned());
        query.execute(self.database.writer()).await?;
        Ok(false)
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

    /// Nobody waits any more. What an agent still looks for counts as its user's until the agent
    /// has let go of it, or the time for an answer has passed.
    pub async fn end_browse(&self, id: Uuid) -> Result<EndedBrowse, StoreError> {
        let text = "UPDATE browse SET is_over = 1
            WHERE id = $1 AND agent IS NOT NULL AND answer IS NULL RETURNING agent";
        let query = self.database.query(text).bind(id.to_string());
        let row = query.fetch_optional(self.database.writer()).await?;
        if let Some(row) = row {
            let agent = row.maybe_text(0)?;
            return Ok(EndedBrowse { agent });
        }
        let text = "DELETE FROM browse WHERE id = $1 RETURNING agent";
        let query = self.database.query(text).bind(id.to_string());
        let row = query.fetch_optional(self.database.writer()).await?;
        let agent = match row {
            Some(row) => row.maybe_text(0)?,
            None => None,
        };
        Ok(EndedBrowse { agent })
    }

    /// Of these questions, which an agent looks for, those that nobody waits for any more.
    pub async fn browses_over(
        &self,
        agent: &str,
        running: &[Uuid],
    ) -> Result<Vec<Uuid>, StoreError> {
        let text = "SELECT id FROM browse WHERE agent = $1 AND answer IS NULL AND is_over = 0";
        let query = self.database.query(text).bind(agent.to_owned());
        let rows = query.fetch_all(self.database.reader()).await?;
        let wanted: Result<HashSet<Uuid>, _> = rows.iter().map(|row| row.uuid(0)).collect();
        let wanted = wanted?;
        let over = running.iter().filter(|id| !wanted.contains(id));
        Ok(over.copied().collect())
    }
}
