//! Databases with the tables of every earlier version are upgraded with work in them, and agents
//! go on with what they hold.

use std::{borrow::Cow, path::Path, time::Instant};

use godwit_service::store::Store;
use godwit_service_api::job::{JobOptions, JobState};
use sqlx::{AnyPool, AssertSqlSafe, Row as _, TypeInfo as _, ValueRef as _, migrate::Migrator};

use crate::{
    fixture::{Fixture, LEASE},
    support::*,
};

/// Files of the job.
const FILES: usize = 20_000;

/// How many by hand, from the version before the newest alone.
const BY_HAND: &str = "GODWIT_UPGRADE_FILES";

/// What is copied into tables of an earlier version.
const TABLES: [&str; 7] = ["leader", "job", "link", "segment", "unit", "agent", "event"];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_in_sqlite_survives_an_upgrade_from_every_version() {
    let directory = tempfile::tempdir().unwrap();
    for version in earlier("sqlite").await {
        let path = directory.path().join(version.to_string());
        let url = format!("sqlite:{}?mode=rwc", path.display());
        upgrade(&url, "sqlite", version).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_in_postgres_survives_an_upgrade_from_every_version() {
    let Some(fixture) = Fixture::postgres().await else {
        return;
    };
    for version in earlier("postgres").await {
        fixture
            .execute(format!("CREATE DATABASE old{version}"))
            .await;
        let url = fixture.url.replace("/postgres", &format!("/old{version}"));
        upgrade(&url, "postgres", version).await;
    }
}

async fn migrations(engine: &str) -> Migrator {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/store/migrations");
    Migrator::new(folder.join(engine)).await.unwrap()
}

/// All versions but the newest.
async fn earlier(engine: &str) -> Vec<i64> {
    let mut versions: Vec<i64> = migrations(engine).await.iter().map(|m| m.version).collect();
    versions.pop();
    match std::env::var_os(BY_HAND) {
        Some(_) => versions.split_off(versions.len() - 1),
        None => versions,
    }
}

/// An agent holds work and has results when the old processes stop; the new ones know all of it.
async fn upgrade(url: &str, engine: &str, version: i64) {
    let files = std::env::var(BY_HAND).map_or(FILES, |text| text.parse().unwrap());
    let now = Fixture::sqlite().await;
    let id = submit(&now.store, files).await;
    let leader = lead(&now.store).await;
    let mut agent = Agent::new("dtn1");
    let mut held = agent.take(&now.store, leader, 4).await;
    let reported = held.remove(0);
    let odd = JobOptions {
        name: Some("Night".to_owned()),
        metadata: Some(serde_json::json!({"PostgreSQL reads no": "\0"})),
        ..JobOptions::default()
    };
    submit_with(&now.store, crate::support::files(1), &odd).await;
    agent
        .poll(&now.store, &[], vec![all_finished(&reported)])
        .await;

    let mut old = migrations(engine).await;
    let until = old
        .iter()
        .filter(|m| m.version <= version)
        .cloned()
        .collect();
    old.migrations = Cow::Owned(until);
    let raw = AnyPool::connect(url).await.unwrap();
    old.run(&mut *raw.acquire().await.unwrap()).await.unwrap();
    for table in TABLES {
        copy(&now.raw, &raw, engine, table).await;
    }
    raw.close().await;

    let began = Instant::now();
    let store = Store::migrate(url).await.unwrap().with_lease(LEASE);
    let seconds = began.elapsed().as_secs_f64();
    eprintln!("{engine}, version {version}, {files} files: upgraded in {seconds:.2} s");
    let leases: Vec<_> = held.iter().map(|unit| unit.lease).collect();
    let done = indices(&reported).len() as u64;
    let polled = agent
        .poll(&store, &leases, vec![all_finished(&held[0])])
        .await;
    assert_eq!(polled.acknowledged, [(leases[0], 0)]);
    assert!(polled.stop.is_empty() && polled.undelivered.is_empty());
    let job = store.job(id).await.unwrap();
    assert_eq!(job.files.finished, done + indices(&held[0]).len() as u64);
    let rest = held[1..].iter().map(all_finished).collect();
    agent.poll(&store, &[], rest).await;
    let leader = lead(&store).await;
    loop {
        let granted = agent.take(&store, leader, 16).await;
        if granted.is_empty() {
            break;
        }
        agent
            .poll(&store, &[], granted.iter().map(all_finished).collect())
            .await;
    }
    let job = store.job(id).await.unwrap();
    assert_eq!(
        (job.state, job.files.finished),
        (JobState::Finished, files as u64)
    );
    store.close().await;
}

/// The columns that both have, but for those without a value.
async fn copy(from: &AnyPool, to: &AnyPool, engine: &str, table: &str) {
    let mut columns = columns(from, "sqlite", table).await;
    let old = self::columns(to, engine, table).await;
    columns.retain(|column| old.contains(column));
    let text = format!("SELECT {} FROM {table}", columns.join(", "));
    let rows = sqlx::query(AssertSqlSafe(text))
        .fetch_all(from)
        .await
        .unwrap();
    for row in &rows {
        let has = |place: &usize| !row.try_get_raw(*place).unwrap().is_null();
        let places: Vec<usize> = (0..columns.len()).filter(has).collect();
        let names: Vec<&str> = places
            .iter()
            .map(|place| columns[*place].as_str())
            .collect();
        let values: Vec<String> = (1..=places.len()).map(|n| format!("${n}")).collect();
        let (names, values) = (names.join(", "), values.join(", "));
        let text = format!("INSERT INTO {table} ({names}) VALUES ({values})");
        let mut query = sqlx::query(AssertSqlSafe(text));
        for place in places {
            let value = row.try_get_raw(place).unwrap();
            query = match value.type_info().name() {
                "TEXT" => query.bind(row.get::<String, _>(place)),
                "BLOB" => query.bind(row.get::<Vec<u8>, _>(place)),
                "DOUBLE" | "REAL" => query.bind(row.get::<f64, _>(place)),
                _ => query.bind(row.get::<i64, _>(place)),
            };
        }
        query.execute(to).await.unwrap();
    }
    if engine == "postgres" && ["job", "link", "unit", "agent"].contains(&table) {
        // Numbers that were given are not given again.
        let key = if table == "unit" { "id" } else { "number" };
        let text = format!(
            "SELECT setval(pg_get_serial_sequence('{table}', '{key}'), MAX({key})) FROM {table}"
        );
        sqlx::query(AssertSqlSafe(text)).execute(to).await.unwrap();
    }
}

async fn columns(pool: &AnyPool, engine: &str, table: &str) -> Vec<String> {
    let text = match engine {
        "sqlite" => format!("SELECT name FROM pragma_table_info('{table}')"),
        _ => format!(
            "SELECT CAST(column_name AS text) FROM information_schema.columns
            WHERE table_name = '{table}'"
        ),
    };
    let rows = sqlx::query(AssertSqlSafe(text))
        .fetch_all(pool)
        .await
        .unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}
