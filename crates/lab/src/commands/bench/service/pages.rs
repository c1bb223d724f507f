//! Pages of browsers, where the database has very many jobs.

use std::{
    fmt::Write as _,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use godwit_service_api::job::JobView;

use super::{Facts, PAIRS, SMALL, ServiceSize, expect, fill, spread};
use crate::service_load::{Http, LoadError, LoadedService, job_lines};

/// Times that each page is asked for.
const REQUESTS: usize = 100;

/// Bytes that no page may have.
const BYTES_MAX: usize = 100_000;

/// Jobs that wait, with ten files each.
const WAITING: u64 = 1_000;

/// Jobs that one transaction adds: the service writes, too.
const TOGETHER: usize = 50_000;

/// Of the jobs that are added one in so many belongs to the first user, the others to the rest.
const FIRST_USER_OF: u64 = 2;

/// Pages that a click on `Earlier jobs` leads to.
const EARLIER: usize = 20;

/// A million jobs, of which all but some have ended: each page by its time and size.
pub(super) async fn pages(site: &LoadedService, size: &ServiceSize) -> Facts {
    let users = fill(site, WAITING.min(size.page_jobs), 10, SMALL).await?;
    let job: JobView = {
        let lines = job_lines(size.job_files / 10, SMALL, 0);
        site.http(&users[0]).upload("/api/v1/jobs", lines).await?
    };
    let began = Instant::now();
    site.execute(&ended_jobs(size.page_jobs, users.len() as u64))?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = site.database_bytes()? as f64 / 1e6;
    let mut facts = vec![format!(
        "{} jobs that have ended were added in {seconds:.0} s; the database has {bytes:.0} MB",
        size.page_jobs
    )];
    let mut operator = site.operator_browser().await?;
    let job = format!("/jobs/{}", job.id);
    for path in [
        "/jobs?all=yes",
        "/jobs?all=yes&state=failed",
        "/jobs?all=yes&state=queued",
        "/jobs?all=yes&state=paused",
        "/jobs?all=yes&q=run",
        "/jobs?all=yes&q=run+7",
        "/jobs?all=yes&q=run&state=failed",
        "/jobs?all=yes&q=nothing",
        "/jobs?owner=user00000",
        "/jobs?owner=user00000&q=run",
        "/jobs?owner=user00000&q=run&state=canceled",
        "/jobs/live?all=yes",
        &job,
        &format!("{job}?files=failed"),
        "/submit",
        "/endpoints",
        "/links",
        "/agents",
        "/schedules",
        "/credentials",
        "/shares",
        "/users",
        "/users?q=user0005",
        "/operator",
    ] {
        facts.push(page(&mut operator, path, "operator").await?);
    }
    let mut user = site.browser(&users[0]).await?;
    for path in [
        "/jobs",
        "/jobs?state=partial",
        "/jobs?state=paused",
        "/jobs?q=run+99",
        &job,
        "/shares",
    ] {
        facts.push(page(&mut user, path, "user").await?);
    }
    facts.push(earlier(&mut operator).await?);
    Ok(facts)
}

/// The times of one page, and its size.
async fn page(http: &mut Http, path: &str, who: &str) -> Result<String, LoadError> {
    let (mut times, mut bytes) = (Vec::new(), 0);
    for _ in 0..REQUESTS {
        let (taken, text) = ask(http, path).await?;
        times.push(taken.as_secs_f64());
        bytes = text.len();
    }
    let shown = path
        .split_at_checked(42)
        .filter(|_| path.contains("/jobs/0"));
    let path = shown.map_or(path.to_owned(), |(_, rest)| format!("/jobs/ID{rest}"));
    Ok(format!("{who} {path}: {}, {bytes} bytes", spread(&times)))
}

/// Pages further and further back.
async fn earlier(http: &mut Http) -> Result<String, LoadError> {
    let (mut times, mut path) = (Vec::new(), "/jobs?all=yes".to_owned());
    for _ in 0..EARLIER {
        let (taken, text) = ask(http, &path).await?;
        times.push(taken.as_secs_f64());
        let link = text.split("rel=\"next\" href=\"").nth(1);
        let link = link.and_then(|rest| rest.split('"').next());
        let Some(next) = link else { break };
        path = next.replace("&amp;", "&");
    }
    Ok(format!(
        "operator, earlier and earlier jobs: {}",
        spread(&times)
    ))
}

async fn ask(http: &mut Http, path: &str) -> Result<(Duration, String), LoadError> {
    let began = Instant::now();
    let (status, body) = http.ask("GET", path, b"").await?;
    let taken = began.elapsed();
    let is_fit = status == 200 && body.len() < BYTES_MAX;
    expect(is_fit, &format!("{path}: {status}, {} bytes", body.len()))?;
    Ok((taken, String::from_utf8_lossy(&body).into_owned()))
}

/// Statements that add jobs of all ends, and hours of their pairs of endpoints.
fn ended_jobs(jobs: u64, users: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.unwrap_or_default().as_micros();
    let mut text = String::new();
    for first in (0..jobs).step_by(TOGETHER) {
        let past = (first + TOGETHER as u64).min(jobs);
        // One second after the other. Both databases understand all of this.
        let _ = writeln!(
            text,
            "INSERT INTO job (id, owner, state, options, name, total, finished, failed, bytes_total,
                bytes_done, events, created, touched, started, ended)
            WITH RECURSIVE n(i) AS (
                SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {past})
            SELECT '01900000-0000-7000-8000-' || CAST(100000000000 + i AS TEXT),
                'user' || CASE WHEN i % {FIRST_USER_OF} = 0 THEN '00000'
                    ELSE substr(CAST(100000 + i % {users} AS TEXT), 2) END,
                CASE i % 1000 WHEN 7 THEN 'failed' WHEN 8 THEN 'partial' WHEN 9 THEN 'canceled'
                    ELSE 'finished' END,
                '{{\"name\":\"Run ' || CAST(i AS TEXT) || '\"}}', 'run ' || CAST(i AS TEXT),
                10, CASE i % 1000 WHEN 7 THEN 0 WHEN 8 THEN 5 WHEN 9 THEN 0 ELSE 10 END,
                CASE i % 1000 WHEN 7 THEN 10 WHEN 8 THEN 5 ELSE 0 END,
                1000000, 1000000, 3, {now} - ({jobs} - i) * 1000000, {now} - ({jobs} - i) * 1000000,
                {now} - ({jobs} - i) * 1000000, {now} - ({jobs} - i) * 1000000 FROM n;"
        );
    }
    let hour = now / 3_600_000_000;
    let _ = writeln!(
        text,
        "INSERT INTO link_hour (link, hour, finished, failed, bytes)
        WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < {})
        SELECT link.number, {hour} - n.i, 1000, 3, 1000000 FROM link, n
        WHERE link.number <= {PAIRS} ON CONFLICT DO NOTHING;",
        30 * 24
    );
    text
}
