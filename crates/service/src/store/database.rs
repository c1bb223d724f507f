//! The two engines: how they are opened, and the few places where their SQL differs.
//!
//! Statements are written once, with `$1` parameters and these words:
//! - `{now}`: microseconds since 1970 by the clock of the database
//! - `{lock}`, `{skip}`: locks the rows that a SELECT reads; the second passes over locked ones
//! - `IN {list}`, `NOT IN {list}`: among the integers of a JSON array in `$1`, or not
//! - `{texts}`: the strings of a JSON array in `$1` as `text`, with their places from 0 as `place`

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_engine::host::prometheus_text::Histogram;
use jiff::Timestamp;
use serde::{Serialize, de::DeserializeOwned};
use sqlx::{
    Any, AnyConnection, AnyPool, AssertSqlSafe, Connection as _, Row as _, Transaction,
    any::{AnyArguments, AnyPoolOptions, AnyRow},
    query::Query,
};
use uuid::Uuid;

use super::StoreError;

/// Which engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Engine {
    /// One file of this machine.
    Sqlite,
    /// A server.
    Postgres,
}

/// A statement with its parameters.
pub(super) type Statement = Query<'static, Any, AnyArguments>;

/// A connection that rested for so long is tested before it is used.
const TEST_AFTER: Duration = Duration::from_secs(1);

const SQLITE_NOW: &str = "CAST(unixepoch('subsec') * 1000000 AS INTEGER)";
const POSTGRES_NOW: &str = "CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint)";
const SQLITE_LIST: &str = "(SELECT value FROM json_each($1))";
// An array is looked up in an index by all plans. A subquery is joined by any of them, and before
// the tables were analysed that is often a scan.
const POSTGRES_LIST: &str =
    "(ARRAY(SELECT CAST(l.v AS bigint) FROM json_array_elements_text(CAST($1 AS json)) AS l(v)))";
const SQLITE_TEXTS: &str = "(SELECT value AS text, key AS place FROM json_each($1))";
const POSTGRES_TEXTS: &str = "(SELECT t.v AS text, t.n - 1 AS place
    FROM json_array_elements_text(CAST($1 AS json)) WITH ORDINALITY AS t(v, n))";

impl Engine {
    fn text(self, sql: &str) -> String {
        let [now, lock, skip, list, texts] = match self {
            Engine::Sqlite => [SQLITE_NOW, "", "", SQLITE_LIST, SQLITE_TEXTS],
            Engine::Postgres => {
                let (lock, skip) = ("FOR NO KEY UPDATE", "FOR NO KEY UPDATE SKIP LOCKED");
                [POSTGRES_NOW, lock, skip, POSTGRES_LIST, POSTGRES_TEXTS]
            }
        };
        let sql = match self {
            Engine::Sqlite => sql.to_owned(),
            Engine::Postgres => sql
                .replace("NOT IN {list}", "<> ALL {list}")
                .replace("IN {list}", "= ANY {list}"),
        };
        sql.replace("{now}", now)
            .replace("{lock}", lock)
            .replace("{skip}", skip)
            .replace("{list}", list)
            .replace("{texts}", texts)
    }

    /// A statement in the dialect of the engine.
    pub(super) fn query(self, sql: &str) -> Statement {
        sqlx::query(AssertSqlSafe(self.text(sql)))
    }

    fn settings(self) -> &'static [&'static str] {
        match self {
            Engine::Sqlite => &[
                "PRAGMA journal_mode = WAL",
                "PRAGMA synchronous = FULL",
                "PRAGMA busy_timeout = 5000",
                "PRAGMA cache_size = -65536",
                "PRAGMA journal_size_limit = 67108864",
            ],
            Engine::Postgres => &[
                "SET statement_timeout = '5s'",
                "SET idle_in_transaction_session_timeout = '10s'",
                "SET application_name = 'godwit-service'",
            ],
        }
    }
}

/// Connections of an open database.
#[derive(Clone)]
pub(super) struct Database {
    pub(super) engine: Engine,
    url: String,
    writers: AnyPool,
    readers: AnyPool,
    times: Arc<Times>,
}

/// How long transactions take.
#[derive(Debug, Default)]
pub(super) struct Times {
    /// Until one begins: a connection is free, and with SQLite no other writes.
    pub(super) begin: Histogram,
    /// From there until it is committed.
    pub(super) commit: Histogram,
}

impl std::fmt::Debug for Database {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // The URL may hold a password.
        write!(f, "Database({:?})", self.engine)
    }
}

impl Database {
    pub(super) async fn open(url: &str) -> Result<Database, StoreError> {
        sqlx::any::install_default_drivers();
        let engine = match url.split_once(':') {
            Some(("sqlite", _)) => Engine::Sqlite,
            Some(("postgres" | "postgresql", _)) => Engine::Postgres,
            _ => {
                return Err(StoreError::Invalid(
                    "the URL of a database is sqlite: or postgres:",
                ));
            }
        };
        Ok(match engine {
            // SQLite has one writer at a time: more would only wait for its lock.
            Engine::Sqlite => Database {
                engine,
                url: url.to_owned(),
                writers: pool(engine, url, 1).await?,
                readers: pool(engine, url, 4).await?,
                times: Arc::default(),
            },
            Engine::Postgres => {
                let both = pool(engine, url, 10).await?;
                Database {
                    engine,
                    url: url.to_owned(),
                    writers: both.clone(),
                    readers: both,
                    times: Arc::default(),
                }
            }
        })
    }

    pub(super) fn query(&self, sql: &str) -> Statement {
        self.engine.query(sql)
    }

    pub(super) fn times(&self) -> &Times {
        &self.times
    }

    /// Connections that work, and those that rest.
    pub(super) fn connections(&self) -> (u64, u64) {
        let pools = match self.engine {
            Engine::Sqlite => &[&self.writers, &self.readers][..],
            Engine::Postgres => &[&self.writers],
        };
        let all: u64 = pools.iter().map(|pool| u64::from(pool.size())).sum();
        let rest = pools.iter().map(|pool| pool.num_idle() as u64).sum();
        (all.saturating_sub(rest), rest)
    }

    /// For single statements that only read.
    pub(super) fn reader(&self) -> &AnyPool {
        &self.readers
    }

    /// For single statements that write.
    pub(super) fn writer(&self) -> &AnyPool {
        &self.writers
    }

    pub(super) async fn begin(&self) -> Result<Work, StoreError> {
        self.begin_with(match self.engine {
            // A transaction that reads first would fail when another process has written since.
            Engine::Sqlite => "BEGIN IMMEDIATE",
            Engine::Postgres => "BEGIN",
        })
        .await
    }

    /// A transaction that does not wait for the disk: a crash of the machine may take it back.
    pub(super) async fn begin_without_sync(&self) -> Result<Work, StoreError> {
        self.begin_with(match self.engine {
            Engine::Sqlite => "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE",
            Engine::Postgres => "BEGIN; SET LOCAL synchronous_commit = off",
        })
        .await
    }

    async fn begin_with(&self, start: &'static str) -> Result<Work, StoreError> {
        let asked = Instant::now();
        let transaction = self.writers.begin_with(start).await?;
        self.times.begin.observe(asked.elapsed());
        Ok(Work {
            engine: self.engine,
            transaction,
            began: Instant::now(),
            times: Arc::clone(&self.times),
        })
    }

    /// A connection of its own whose statements may take long.
    pub(super) async fn patient(&self) -> Result<AnyConnection, StoreError> {
        let mut connection = AnyConnection::connect(&self.url).await?;
        if self.engine == Engine::Sqlite {
            for setting in self.engine.settings() {
                sqlx::query(*setting).execute(&mut connection).await?;
            }
        }
        Ok(connection)
    }

    pub(super) async fn close(&self) {
        self.writers.close().await;
        self.readers.close().await;
    }
}

async fn pool(engine: Engine, url: &str, size: u32) -> Result<AnyPool, StoreError> {
    let pool = AnyPoolOptions::new()
        .max_connections(size)
        .acquire_timeout(Duration::from_secs(10))
        // A test each time would cost a round trip for each statement.
        .test_before_acquire(false)
        .before_acquire(|connection, found| {
            Box::pin(
                async move { Ok(found.idle_for < TEST_AFTER || connection.ping().await.is_ok()) },
            )
        })
        .after_release(move |connection, _| {
            Box::pin(async move {
                if engine == Engine::Sqlite {
                    // The transaction may have been one without sync.
                    let query = sqlx::query("PRAGMA synchronous = FULL");
                    query.execute(&mut *connection).await?;
                }
                Ok(true)
            })
        })
        .after_connect(move |connection, _| {
            Box::pin(async move {
                for setting in engine.settings() {
                    sqlx::query(*setting).execute(&mut *connection).await?;
                }
                Ok(())
            })
        })
        // SQLite ends a transaction by itself where the disk is full, and the driver then counts
        // one that there is not: no other would begin on this connection.
        .before_acquire(|connection, _| {
            Box::pin(async move { Ok(!connection.is_in_transaction()) })
        });
    Ok(pool.connect(url).await?)
}

/// Advisory locks of PostgreSQL have numbers, which programs of one database share. This one says
/// `godwit` in ASCII.
const LOCKS: i64 = 0x676f_6477_6974_0000;

/// Where one transaction is at a time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Alone {
    /// Questions for directories are counted, and one is added.
    Browse = 1,
}

/// A transaction.
pub(super) struct Work {
    engine: Engine,
    transaction: Transaction<'static, Any>,
    began: Instant,
    times: Arc<Times>,
}

impl Work {
    pub(super) fn query(&self, sql: &str) -> Statement {
        self.engine.query(sql)
    }

    /// Waits until no other transaction is in there, and keeps others out until this one has ended.
    /// SQLite has one writer at a time.
    pub(super) async fn alone(&mut self, place: Alone) -> Result<(), StoreError> {
        if self.engine == Engine::Postgres {
            let number = LOCKS + place as i64;
            let query = self.query("SELECT 1 FROM (SELECT pg_advisory_xact_lock($1)) AS held");
            query.bind(number).execute(self.connection()).await?;
        }
        Ok(())
    }

    pub(super) fn connection(&mut self) -> &mut AnyConnection {
        &mut self.transaction
    }

    pub(super) async fn commit(self) -> Result<(), StoreError> {
        self.transaction.commit().await?;
        self.times.commit.observe(self.began.elapsed());
        Ok(())
    }
}

/// Reads columns by their place.
pub(super) trait Columns {
    fn int(&self, column: usize) -> Result<i64, StoreError>;
    fn maybe_int(&self, column: usize) -> Result<Option<i64>, StoreError>;
    fn text(&self, column: usize) -> Result<String, StoreError>;
    fn maybe_text(&self, column: usize) -> Result<Option<String>, StoreError>;
    fn bytes(&self, column: usize) -> Result<Vec<u8>, StoreError>;
    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, StoreError>;
    fn real(&self, column: usize) -> Result<f64, StoreError>;

    fn count(&self, column: usize) -> Result<u64, StoreError> {
        Ok(self.int(column)?.max(0) as u64)
    }

    fn small(&self, column: usize) -> Result<u32, StoreError> {
        u32::try_from(self.int(column)?).map_err(StoreError::corrupt)
    }

    fn flag(&self, column: usize) -> Result<bool, StoreError> {
        Ok(self.int(column)? != 0)
    }

    fn uuid(&self, column: usize) -> Result<Uuid, StoreError> {
        self.text(column)?.parse().map_err(StoreError::corrupt)
    }

    fn time(&self, column: usize) -> Result<Timestamp, StoreError> {
        timestamp(self.int(column)?)
    }

    fn maybe_time(&self, column: usize) -> Result<Option<Timestamp>, StoreError> {
        self.maybe_int(column)?.map(timestamp).transpose()
    }

    fn json<T: DeserializeOwned>(&self, column: usize) -> Result<T, StoreError> {
        serde_json::from_str(&self.text(column)?).map_err(StoreError::corrupt)
    }

    /// A value of an enum that JSON has as a string.
    fn name<T: DeserializeOwned>(&self, column: usize) -> Result<T, StoreError> {
        serde_json::from_value(self.text(column)?.into()).map_err(StoreError::corrupt)
    }
}

impl Columns for AnyRow {
    fn int(&self, column: usize) -> Result<i64, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_int(&self, column: usize) -> Result<Option<i64>, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn text(&self, column: usize) -> Result<String, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_text(&self, column: usize) -> Result<Option<String>, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn bytes(&self, column: usize) -> Result<Vec<u8>, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn maybe_bytes(&self, column: usize) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.try_get(column)?)
    }

    fn real(&self, column: usize) -> Result<f64, StoreError> {
        Ok(self.try_get(column)?)
    }
}

fn timestamp(micros: i64) -> Result<Timestamp, StoreError> {
    Timestamp::from_microsecond(micros).map_err(StoreError::corrupt)
}

/// JSON of a value for a column or a parameter.
pub(super) fn json(value: &(impl Serialize + ?Sized)) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(StoreError::corrupt)
}

/// The string of an enum that JSON has as a string.
pub(super) fn name(value: impl Serialize) -> Result<String, StoreError> {
    match serde_json::to_value(value).map_err(StoreError::corrupt)? {
        serde_json::Value::String(name) => Ok(name),
        other => Err(StoreError::Corrupt(other.to_string())),
    }
}

/// Microseconds for a column.
pub(super) fn micros(time: Option<Timestamp>) -> Option<i64> {
    time.map(Timestamp::as_microsecond)
}
