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
const SPAN_MS: u64 = 18_000;

/// Fewest and most faults of a plan.
const FAULTS: (usize, usize) = (4, 8);

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
    /// That of the database has none.
    DatabaseDiskFull,
    /// The database's server ends, and a replica that has every commit takes its place.
    SynchronousFailover,
    /// The same with a replica that got nothing for a while: the last commits are lost.
    AsynchronousFailover,
    /// The database becomes what it was a while ago.
    BackupRestored,
    /// The wall clock of an agent or of a process that serves is wrong by minutes.
    ClockOff,
    /// A job reads from a server that accepts connections and says nothing, until it is canceled.
    SourceHangs,
    /// A job reads from a server that refuses every command.
    SourceRefuses,
    /// A job reads from a server that sends noise.
    SourceSendsNoise,
    /// An agent that runs a certain unit dies by SIGKILL, every time.
    UnitKillsAgents,
}

/// What this machine can do to a service.
#[derive(Debug, Clone, Copy)]
pub struct Means {
    /// Mount file systems, which can be full.
    pub disks: bool,
    /// Show wrong clocks to programs.
    pub clocks: bool,
}

impl ServiceKind {
    /// All there are.
    pub const ALL: [ServiceKind; 21] = [
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
        ServiceKind::DatabaseDiskFull,
        ServiceKind::SynchronousFailover,
        ServiceKind::AsynchronousFailover,
        ServiceKind::BackupRestored,
        ServiceKind::ClockOff,
        ServiceKind::SourceHangs,
        ServiceKind::SourceRefuses,
        ServiceKind::SourceSendsNoise,
        ServiceKind::UnitKillsAgents,
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
            ServiceKind::DatabaseDiskFull => "database-disk-full",
            ServiceKind::SynchronousFailover => "synchronous-failover",
            ServiceKind::AsynchronousFailover => "asynchronous-failover",
            ServiceKind::BackupRestored => "backup-restored",
            ServiceKind::ClockOff => "clock-off",
            ServiceKind::SourceHangs => "source-hangs",
            ServiceKind::SourceRefuses => "source-refuses",
            ServiceKind::SourceSendsNoise => "source-sends-noise",
            ServiceKind::UnitKillsAgents => "unit-kills-agents",
        }
    }

    /// Which can be had with this database and on this machine.
    fn can_be_had(self, database: Database, means: Means) -> bool {
        match self {
            ServiceKind::DatabaseKilled
            | ServiceKind::SynchronousFailover
            | ServiceKind::AsynchronousFailover => database == Database::Postgres,
            ServiceKind::DiskFull | ServiceKind::DatabaseDiskFull => means.disks,
            ServiceKind::ClockOff => means.clocks,
            _ => true,
        }
    }

    /// Another database takes the place of the one that was: once in a plan.
    fn replaces_database(self) -> bool {
        self == ServiceKind::SynchronousFailover || self.forgets()
    }

    /// The service forgets what it has answered.
    pub(super) fn forgets(self) -> bool {
        matches!(
            self,
            ServiceKind::AsynchronousFailover | ServiceKind::BackupRestored
        )
    }

    /// A job that cannot be done is part of the plan.
    pub(super) fn is_poison(self) -> bool {
        matches!(
            self,
            ServiceKind::SourceHangs
                | ServiceKind::SourceRefuses
                | ServiceKind::SourceSendsNoise
                | ServiceKind::UnitKillsAgents
        )
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
            ServiceKind::DatabaseDiskFull => (1_000, 8_000),
            ServiceKind::AsynchronousFailover => (300, 2_000),
            ServiceKind::BackupRestored => (500, 6_000),
            ServiceKind::ClockOff => (2_000, 15_000),
            // The job is there from the first moment on.
            kind if kind.is_poison() => (0, 0),
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
    /// The plan of this number in the campaign of `seed`.
    pub fn draw(seed: u64, number: u64, database: Database, means: Means) -> ServicePlan {
        let mut rng = Rng::new(seed, number);
        let nodes = match database {
            Database::Sqlite => 1,
            Database::Postgres => 1 + below(&mut rng, 2),
        };
        let doubled = rng.chance(0.5);
        let kinds = ServiceKind::ALL.into_iter();
        let mut kinds: Vec<_> = kinds
            .filter(|kind| kind.can_be_had(database, means))
            .collect();
        let count = FAULTS.0 + below(&mut rng, FAULTS.1 - FAULTS.0 + 1);
        let mut faults = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = kinds[below(&mut rng, kinds.len())];
            if kind.replaces_database() {
                kinds.retain(|kind| !kind.replaces_database());
            }
            if kind.is_poison() {
                kinds.retain(|other| *other != kind);
            }
            let which = match kind {
                ServiceKind::NodeKilled => below(&mut rng, nodes),
                ServiceKind::ServerKilled => below(&mut rng, SERVERS),
                ServiceKind::ClockOff => below(&mut rng, AGENTS + nodes),
                _ => below(&mut rng, AGENTS),
            };
            let (least, most) = kind.lasts_ms();
            faults.push(ServiceFault {
                at_ms: rng.up_to(SPAN_MS),
                kind,
                which,
                lasts_ms: least + rng.up_to(most - least),
            });
        }
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

    /// Whether this happens in it.
    pub fn has(&self, kind: ServiceKind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }

    /// The service forgets some of what it has answered.
    pub(super) fn forgets(&self) -> bool {
        self.faults.iter().any(|fault| fault.kind.forgets())
    }
}

impl ServiceFault {
    /// By how many seconds a clock is wrong.
    pub(super) fn clock_seconds(&self) -> i64 {
        let minutes = 1 + i64::try_from(self.lasts_ms % 10).unwrap_or(0);
        match self.at_ms % 2 {
            0 => 60 * minutes,
            _ => -60 * minutes,
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

    const ALL: Means = Means {
        disks: true,
        clocks: true,
    };

    fn plans(database: Database, means: Means) -> impl Iterator<Item = ServicePlan> {
        (0..300).map(move |number| ServicePlan::draw(1, number, database, means))
    }

    #[test]
    fn a_number_is_the_same_plan_whichever_came_before() {
        let draw = |seed, number| ServicePlan::draw(seed, number, Database::Postgres, ALL);
        assert_eq!(draw(7, 31), draw(7, 31));
        assert_ne!(draw(8, 31).faults, draw(7, 31).faults);
    }

    #[test]
    fn every_fault_is_drawn_where_it_can_be_had() {
        let met = |database, means| -> BTreeSet<ServiceKind> {
            let faults = plans(database, means).flat_map(|plan| plan.faults);
            faults.map(|fault| fault.kind).collect()
        };
        assert_eq!(met(Database::Postgres, ALL).len(), ServiceKind::ALL.len());
        let few = Means {
            disks: false,
            clocks: false,
        };
        let fewer = met(Database::Sqlite, few);
        assert_eq!(fewer.len(), ServiceKind::ALL.len() - 6);
        assert!(!fewer.contains(&ServiceKind::DiskFull));
    }

    #[test]
    fn an_agent_that_stands_still_loses_its_lease() {
        let paused = plans(Database::Sqlite, ALL).flat_map(|plan| plan.faults);
        let mut paused = paused.filter(|fault| fault.kind == ServiceKind::AgentPaused);
        assert!(paused.all(|fault| u128::from(fault.lasts_ms) > LEASE.as_millis()));
    }

    #[test]
    fn a_database_is_replaced_once() {
        let replaced = |plan: ServicePlan| {
            let faults = plan.faults.into_iter();
            faults
                .filter(|fault| fault.kind.replaces_database())
                .count()
        };
        assert!(plans(Database::Postgres, ALL).map(replaced).all(|n| n < 2));
    }
}
