//! Which faults a service meets, and when: plain values, drawn from a seed.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::path::Rng;

/// Seconds that leases last: an agent stops ten seconds before the end, so it writes for five
/// seconds after each answer.
pub(super) const LEASE: Duration = Duration::from_secs(15);

/// Agents.
pub(super) const AGENTS: usize = 2;

/// Servers: one that sends, and two that receive.
pub(super) const SERVERS: usize = 3;

/// The last fault begins this long after the first job, ms.
const SPAN_MS: u64 = 14_000;

/// Where the service keeps what it knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Database {
    /// A file, and one process that serves.
    Sqlite,
    /// A server, and up to two processes that serve.
    Postgres,
}

impl fmt::Display for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Database::Sqlite => "sqlite",
            Database::Postgres => "postgres",
        })
    }
}

/// What goes wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ServiceKind {
    /// SIGKILL to an agent, which is started again.
    AgentKilled,
    /// An agent stands still for longer than its lease.
    AgentPaused,
    /// SIGKILL to a process that serves, which is started again.
    NodeKilled,
    /// The same to the one that leads.
    LeaderKilled,
    /// The one that leads stands still for longer than its term.
    LeaderPaused,
    /// PostgreSQL ends at once, and comes back.
    DatabaseKilled,
    /// SIGKILL to a GridFTP server, which comes back.
    ServerKilled,
    /// No agent reaches the service.
    LinkCut,
    /// One of them does not.
    OneLinkCut,
    /// Requests of agents arrive, and the answers do not.
    AnswersLost,
    /// Requests of agents arrive late.
    LinkLate,
    /// The file system of a destination has no room left.
    DiskFull,
}

impl ServiceKind {
    /// All there are.
    pub const ALL: [ServiceKind; 12] = [
        ServiceKind::AgentKilled,
        ServiceKind::AgentPaused,
        ServiceKind::NodeKilled,
        ServiceKind::LeaderKilled,
        ServiceKind::LeaderPaused,
        ServiceKind::DatabaseKilled,
        ServiceKind::ServerKilled,
        ServiceKind::LinkCut,
        ServiceKind::OneLinkCut,
        ServiceKind::AnswersLost,
        ServiceKind::LinkLate,
        ServiceKind::DiskFull,
    ];

    /// As it is printed.
    pub fn name(self) -> &'static str {
        match self {
            ServiceKind::AgentKilled => "agent-killed",
            ServiceKind::AgentPaused => "agent-paused",
            ServiceKind::NodeKilled => "node-killed",
            ServiceKind::LeaderKilled => "leader-killed",
            ServiceKind::LeaderPaused => "leader-paused",
            ServiceKind::DatabaseKilled => "database-killed",
            ServiceKind::ServerKilled => "server-killed",
            ServiceKind::LinkCut => "link-cut",
            ServiceKind::OneLinkCut => "one-link-cut",
            ServiceKind::AnswersLost => "answers-lost",
            ServiceKind::LinkLate => "link-late",
            ServiceKind::DiskFull => "disk-full",
        }
    }

    /// Which can be had with this database and by this user.
    fn can_be_had(self, database: Database, disks: bool) -> bool {
        match self {
            ServiceKind::DatabaseKilled => database == Database::Postgres,
            ServiceKind::DiskFull => disks,
            _ => true,
        }
    }

    /// Shortest and longest time until all is as before, ms.
    fn lasts_ms(self) -> (u64, u64) {
        match self {
            ServiceKind::AgentPaused => (17_000, 20_000),
            ServiceKind::LeaderPaused => (11_000, 14_000),
            // Some come back within their lease, others do not.
            ServiceKind::AgentKilled | ServiceKind::LinkCut | ServiceKind::OneLinkCut => {
                (200, 20_000)
            }
            ServiceKind::AnswersLost | ServiceKind::LinkLate => (1_000, 8_000),
            ServiceKind::DiskFull => (500, 4_000),
            _ => (100, 5_000),
        }
    }
}

impl fmt::Display for ServiceKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceFault {
    /// When, after the first job.
    pub at_ms: u64,
    /// What.
    pub kind: ServiceKind,
    /// To which agent, process or server, where there are several.
    pub which: usize,
    /// How long until all is as before.
    pub lasts_ms: u64,
}

impl fmt::Display for ServiceFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            at_ms,
            kind,
            which,
            lasts_ms,
        } = self;
        write!(f, "{kind} {which} at {at_ms} ms for {lasts_ms} ms")
    }
}

/// A service, and what it meets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServicePlan {
    /// Of the campaign.
    pub seed: u64,
    /// Of this plan, from 0.
    pub number: u64,
    /// Where the service keeps what it knows.
    pub database: Database,
    /// Processes that serve.
    pub nodes: usize,
    /// Every poll is delivered twice.
    pub doubled: bool,
    /// By time.
    pub faults: Vec<ServiceFault>,
}

impl ServicePlan {
    /// The plan of this number in the campaign of `seed`. `disks`: a disk can be full here.
    pub fn draw(seed: u64, number: u64, database: Database, disks: bool) -> ServicePlan {
        let mut rng = Rng::new(seed, number);
        let nodes = match database {
            Database::Sqlite => 1,
            Database::Postgres => 1 + below(&mut rng, 2),
        };
        let doubled = rng.chance(0.5);
        let kinds = ServiceKind::ALL.into_iter();
        let kinds: Vec<_> = kinds
            .filter(|kind| kind.can_be_had(database, disks))
            .collect();
        let count = 3 + below(&mut rng, 4);
        let fault = |_| {
            let kind = kinds[below(&mut rng, kinds.len())];
            let which = match kind {
                ServiceKind::NodeKilled => below(&mut rng, nodes),
                ServiceKind::ServerKilled => below(&mut rng, SERVERS),
                _ => below(&mut rng, AGENTS),
            };
            let (least, most) = kind.lasts_ms();
            ServiceFault {
                at_ms: rng.up_to(SPAN_MS),
                kind,
                which,
                lasts_ms: least + rng.up_to(most - least),
            }
        };
        let mut faults: Vec<_> = (0..count).map(fault).collect();
        faults.sort_by_key(|fault| fault.at_ms);
        ServicePlan {
            seed,
            number,
            database,
            nodes,
            doubled,
            faults,
        }
    }
}

fn below(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.up_to(count as u64 - 1)).expect("below a count")
}

impl fmt::Display for ServicePlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}, {} serving", self.database, self.nodes)?;
        if self.doubled {
            write!(f, ", every poll twice")?;
        }
        self.faults
            .iter()
            .try_for_each(|fault| write!(f, "; {fault}"))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_number_is_the_same_plan_whichever_came_before() {
        let draw = |seed, number| ServicePlan::draw(seed, number, Database::Postgres, true);
        assert_eq!(draw(7, 31), draw(7, 31));
        assert_ne!(draw(8, 31).faults, draw(7, 31).faults);
    }

    #[test]
    fn every_fault_is_drawn_where_it_can_be_had() {
        let met = |database, disks| -> BTreeSet<ServiceKind> {
            let plans = (0..200).map(|number| ServicePlan::draw(1, number, database, disks));
            plans
                .flat_map(|plan| plan.faults)
                .map(|fault| fault.kind)
                .collect()
        };
        assert_eq!(met(Database::Postgres, true).len(), ServiceKind::ALL.len());
        let fewer = met(Database::Sqlite, false);
        assert_eq!(fewer.len(), ServiceKind::ALL.len() - 2);
        assert!(!fewer.contains(&ServiceKind::DiskFull));
    }

    #[test]
    fn an_agent_that_stands_still_loses_its_lease() {
        let plans = (0..200).map(|number| ServicePlan::draw(1, number, Database::Sqlite, false));
        let paused = plans.flat_map(|plan| plan.faults);
        let mut paused = paused.filter(|fault| fault.kind == ServiceKind::AgentPaused);
        assert!(paused.all(|fault| u128::from(fault.lasts_ms) > LEASE.as_millis()));
    }
}
