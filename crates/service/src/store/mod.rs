//! What the service knows, in SQLite or PostgreSQL.
//!
//! # Map
//! - [`model`]: the values; [`policy`]: how units are cut, retried and split (no database)
//! - `database`: the two engines, the only place that tells them apart
//! - `manifest`: codecs of segments
//! - `submission`: a job comes in; `jobs`: lists, cancel, pause, retry; `files`: files of a job
//! - `order`: files that wait for each other
//! - `found`: what a listing may add to its job
//! - `units`: what becomes of a unit and its files, within a transaction
//! - `leases`: leader, grants, expiry; `queues`: what waits; `agents`: who there is and what they
//!   hold; `polls`: an agent's report
//! - `links`: how pairs of endpoints do
//! - `site`: endpoints, shares, users, credentials, audit; `upkeep`: retention and deadlines;
//!   `reports`: of ended jobs; `schedules`: jobs that come again and again; [`sessions`]: of
//!   browsers; [`browsing`]: directories that users look into
//!
//! # Rules
//! - Time is the clock of the database; no statement takes the time of a host.
//! - Every method may be called again after an error: it was done once or not at all.
//! - [`StoreError::is_passing`] says that the database did not answer.
//! - Files are packed: a *segment* is an immutable manifest of up to 1000 files of one pair of
//!   endpoints with two bits a file for what became of it; a *unit* is a part of a segment that an
//!   agent takes at once, and its row lives only until it ended.

pub mod agents;
pub mod browsing;
mod database;
mod files;
pub(crate) mod found;
mod jobs;
mod leases;
mod links;
mod manifest;
pub mod model;
mod order;
pub mod people;
pub mod policy;
mod polls;
mod queues;
mod reports;
mod schedules;
pub mod sessions;
mod site;
mod submission;
mod units;
mod upkeep;

use std::{cmp::Ordering, fmt::Display, time::Duration};

use godwit_engine::host::prometheus_text::PrometheusText;
use godwit_service_api::agent::LEASE_SECONDS;
use sqlx::{Connection as _, migrate::Migrator};

use database::{Columns as _, Database, Engine};
pub use files::{FileStatus, SegmentState};
pub use submission::{Begun, Quota, RequestDigest, Submission, endpoint_of};

static SQLITE: Migrator = sqlx::migrate!("src/store/migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("src/store/migrations/postgres");

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// There is no such thing, or the caller may not see it.
    #[error("not found")]
    NotFound,
    /// It is not in a state that allows this.
    #[error("{0}")]
    Conflict(&'static str),
    /// The caller is not the leader any more.
    #[error("another node leads")]
    NotLeader,
    /// Another process polls under the agent's name, and its lease has not ended.
    #[error("another agent of this name is alive")]
    AgentTaken,
    /// A user has as much as is allowed.
    #[error("{has} {what} have not ended; {most} may be")]
    Quota {
        /// `jobs` or `files`.
        what: &'static str,
        /// So many are there.
        has: u64,
        /// So many may be.
        most: u64,
    },
    /// What was given cannot be stored.
    #[error("{0}")]
    Invalid(&'static str),
    /// What the database holds cannot be read.
    #[error("the database holds what it should not: {0}")]
    Corrupt(String),
    /// The tables are of another version of the program.
    #[error("the database must be migrated, by `godwit-service migrate`: {0}")]
    Schema(String),
    /// The tables are of a later version of the program.
    #[error(
        "the tables of the database have version {has}, and this program knows {knows} at most: \
         use the version of godwit-service that has migrated them"
    )]
    Newer {
        /// Version of the tables.
        has: i64,
        /// The newest that this program knows.
        knows: i64,
    },
    /// The engine.
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
}

impl StoreError {
    fn corrupt(error: impl Display) -> StoreError {
        StoreError::Corrupt(error.to_string())
    }

    /// The database did not answer, or stopped this transaction for another: again, later.
    pub fn is_passing(&self) -> bool {
        use sqlx::Error;
        match self {
            StoreError::Database(Error::Database(e)) => match e.code().as_deref() {
                // PostgreSQL: deadlock, a replica that is not promoted yet, a transaction that this
                // process held while it stood still.
                Some("40001" | "40P01" | "25006" | "25P03") => true,
                // Connection, resources, operator, operating system.
                Some(code) if code.len() == 5 => {
                    ["08", "53", "57", "58"].iter().any(|c| code.starts_with(c))
                }
                // SQLite: busy, locked, the disk failed or is full. The low byte is the kind.
                Some(code) => code
                    .parse()
                    .is_ok_and(|code: u32| matches!(code & 0xFF, 5 | 6 | 10 | 13)),
                None => false,
            },
            StoreError::Database(e) => matches!(
                e,
                Error::Io(_)
                    | Error::PoolTimedOut
                    | Error::PoolClosed
                    | Error::WorkerCrashed
                    | Error::Protocol(_)
                    | Error::Tls(_)
            ),
            _ => false,
        }
    }
}

/// The database of the service. Clones share its connections.
#[derive(Clone, Debug)]
pub struct Store {
    database: Database,
    lease: Duration,
    divide_above: u64,
}

impl Store {
    /// Opens a database whose tables are of this version: `sqlite:PATH` or `postgres://...`.
    pub async fn open(url: &str) -> Result<Store, StoreError> {
        let store = Store::connect(url).await?;
        store.check_version().await?;
        Ok(store)
    }

    /// Whether the tables are of this version of the program: another process may migrate them
    /// while this one serves.
    ///
    /// # Errors
    /// They are not, or the database does not answer.
    pub async fn check_version(&self) -> Result<(), StoreError> {
        let (has, knows) = (self.schema_version().await?, newest(self.database.engine));
        match has.cmp(&knows) {
            Ordering::Equal => Ok(()),
            Ordering::Greater => Err(StoreError::Newer { has, knows }),
            Ordering::Less => {
                let why = format!("it has version {has}, not {knows}");
                Err(StoreError::Schema(why))
            }
        }
    }

    /// Creates or upgrades the tables, and opens the database.
    pub async fn migrate(url: &str) -> Result<Store, StoreError> {
        let store = Store::connect(url).await?;
        if let Err(newer @ StoreError::Newer { .. }) = store.check_version().await {
            return Err(newer);
        }
        let mut connection = store.database.patient().await?;
        migrator(store.database.engine)
            .run(&mut connection)
            .await
            .map_err(|e| StoreError::Schema(e.to_string()))?;
        connection.close().await?;
        store.make_partitions().await?;
        Ok(store)
    }

    async fn connect(url: &str) -> Result<Store, StoreError> {
        Ok(Store {
            database: Database::open(url).await?,
            lease: Duration::from_secs(LEASE_SECONDS),
            divide_above: policy::DIVIDE_ABOVE,
        })
    }

    /// With another length of agents' leases: tests do not wait a minute.
    pub fn with_lease(mut self, lease: Duration) -> Store {
        self.lease = lease;
        self
    }

    /// Files of more bytes are copied by several agents.
    pub fn with_divide_above(mut self, bytes: u64) -> Store {
        self.divide_above = bytes;
        self
    }

    /// Files of more bytes are copied by several agents.
    pub fn divide_above(&self) -> u64 {
        self.divide_above
    }

    /// How long an agent's lease lasts.
    pub fn lease(&self) -> Duration {
        self.lease
    }

    /// Version of the tables; 0: there are none.
    pub async fn schema_version(&self) -> Result<i64, StoreError> {
        let query = "SELECT MAX(version) FROM _sqlx_migrations";
        match self
            .database
            .query(query)
            .fetch_one(self.database.reader())
            .await
        {
            Ok(row) => Ok(row.maybe_int(0)?.unwrap_or(0)),
            // There is no such table.
            Err(sqlx::Error::Database(_)) => Ok(0),
            Err(e) => Err(e.into()),
        }
    }

    /// How long transactions took in this process, and its connections.
    pub(crate) fn write_metrics(&self, out: &mut PrometheusText) {
        let times = self.database.times();
        let help = "Transactions: until one begins, and from there until it is committed.";
        out.histogram("godwit_service_database_seconds", help)
            .distribution(&[("part", "begin")], &times.begin)
            .distribution(&[("part", "commit")], &times.commit);
        let (used, idle) = self.database.connections();
        out.gauge(
            "godwit_service_database_connections",
            "Connections to the database.",
        )
        .labelled(&[("state", "used")], used)
        .labelled(&[("state", "idle")], idle);
    }

    /// By the clock of the database.
    pub async fn now(&self) -> Result<jiff::Timestamp, StoreError> {
        let query = self.database.query("SELECT {now}");
        query.fetch_one(self.database.reader()).await?.time(0)
    }

    /// Ends all connections.
    pub async fn close(&self) {
        self.database.close().await;
    }
}

fn migrator(engine: Engine) -> &'static Migrator {
    match engine {
        Engine::Sqlite => &SQLITE,
        Engine::Postgres => &POSTGRES,
    }
}

fn newest(engine: Engine) -> i64 {
    migrator(engine)
        .iter()
        .map(|m| m.version)
        .max()
        .unwrap_or(0)
}
