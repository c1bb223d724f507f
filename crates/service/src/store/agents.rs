//! Agents that have polled, and what they hold, for the leader and for operators.

use std::time::Duration;

use godwit_service_api::agent::{Lease, Share};

use super::{
    Store, StoreError,
    database::{Columns as _, Statement, json},
    leases::micros,
    model::{AgentRecord, LeasedUnit, QueueKey},
};

/// Which agents.
#[derive(Clone, Copy, Debug)]
pub enum Which {
    /// All.
    All,
    /// Those that have polled within this time.
    Within(Duration),
    /// Those whose numbers come after this one, at most so many.
    After(i64, i64),
}

impl Which {
    /// A condition for `agent`.
    fn text(self) -> &'static str {
        match self {
            Which::All => "TRUE",
            Which::Within(_) => "agent.seen >= (SELECT {now} - $1)",
            Which::After(..) => "agent.number > $1",
        }
    }

    fn bind(self, query: Statement) -> Statement {
        match self {
            Which::All => query,
            Which::Within(time) => query.bind(micros(time)),
            Which::After(number, _) => query.bind(number),
        }
    }

    fn limit(self) -> i64 {
        match self {
            Which::After(_, limit) => limit,
            Which::All | Which::Within(_) => i64::MAX,
        }
    }
}

impl Store {
    /// All agents that have polled, by name.
    pub async fn agents(&self) -> Result<Vec<AgentRecord>, StoreError> {
        let mut agents = self.some_agents(Which::All).await?;
        agents.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(agents)
    }

    /// Some agents that have polled, by number.
    pub async fn some_agents(&self, which: Which) -> Result<Vec<AgentRecord>, StoreError> {
        let (fitting, limit) = (which.text(), which.limit());
        let text = format!(
            "SELECT name, incarnation, description,
            CASE WHEN lease_until >= {{now}} THEN 1 ELSE 0 END, draining,
            (SELECT COUNT(*) FROM unit WHERE unit.agent = agent.number), seen, report, number
            FROM agent WHERE {fitting} ORDER BY number LIMIT {limit}"
        );
        let query = which.bind(self.database.query(&text));
        let rows = query.fetch_all(self.database.reader()).await?;
        let agents = rows.iter().map(|row| {
            Ok(AgentRecord {
                number: row.int(8)?,
                name: row.text(0)?,
                incarnation: row.uuid(1)?,
                description: row.json(2)?,
                alive: row.flag(3)?,
                draining: row.flag(4)?,
                units: row.small(5)?,
                seen: row.time(6)?,
                report: row.json(7)?,
            })
        });
        agents.collect()
    }

    /// All units that agents hold.
    pub async fn leased(&self) -> Result<Vec<LeasedUnit>, StoreError> {
        self.leased_where("IS NOT NULL", None).await
    }

    /// Units that the agents of these numbers hold.
    pub async fn leased_by(&self, agents: &[i64]) -> Result<Vec<LeasedUnit>, StoreError> {
        self.leased_where("IN {list}", Some(json(agents)?)).await
    }

    async fn leased_where(
        &self,
        fitting: &str,
        list: Option<String>,
    ) -> Result<Vec<LeasedUnit>, StoreError> {
        let text = format!(
            "SELECT agent.name, unit.id, unit.epoch, unit.job, unit.link, unit.files,
            unit.bytes, job.id, job.owner, unit.concurrency, unit.parallelism
            FROM unit JOIN agent ON agent.number = unit.agent JOIN job ON job.number = unit.job
            WHERE unit.agent {fitting} ORDER BY unit.id"
        );
        let query = self.database.query(&text);
        let query = match list {
            Some(list) => query.bind(list),
            None => query,
        };
        let rows = query.fetch_all(self.database.reader()).await?;
        let units = rows.iter().map(|row| {
            Ok(LeasedUnit {
                agent: row.text(0)?,
                lease: Lease {
                    unit: row.int(1)?,
                    epoch: row.int(2)?,
                },
                queue: QueueKey {
                    job: row.int(3)?,
                    link: row.int(4)?,
                },
                files: row.small(5)?,
                bytes: row.count(6)?,
                job: row.uuid(7)?,
                owner: row.text(8)?,
                share: Share {
                    concurrency: row.small(9)?,
                    parallelism: row.small(10)?,
                },
            })
        });
        units.collect()
    }
}
