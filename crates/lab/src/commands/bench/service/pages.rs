//! Pages of browsers, where the database has very many jobs.

use std::{
    fmt::Write as _,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use godwit_service_api::job::JobView;
use uuid::Uuid;

use super::{Facts, PAIRS, SMALL, ServiceSize, expect, fill, spread};
use crate::service_load::{Account, Http, LoadError, LoadedService, job_lines};

/// Times that each page is asked for.
const REQUESTS: usize = 100;

/// Bytes that no page may have.
const BYTES_MAX: usize = 100_000;

/// Jobs that wait, with ten files each.
const WAITING: u64 = 1_000;

/// Jobs that one transaction adds: the service writes, too.
const TOGETHER: usize = 50_000;

/// Of the jobs that are added one in so many failed.
const FAILED_OF: u64 = 10;

/// Of the jobs that are added one in so many belongs to the first user, the others to the rest.
const FIRST_USER_OF: u64 = 2;

/// Pages that clicks on `Earlier jobs` or `Next files` lead to.
const FURTHER: usize = 20;

/// Of the files of three jobs, which failed for good: by their number `i`, of `N`. The others of
/// these jobs have failed once and are tried again.
const FAILING: [(&str, &str); 3] = [
    ("all of which failed", "i >= 0"),
    (
        "all of which failed once, and one of 1000 for good",
        "i % 1000 = 999",
    ),
    (
        "all of which failed once, and the last for good",
        "i = N - 1",
    ),
];

/// A million jobs, of which all but some have ended: each page by its time and size.
pub(super) async fn pages(site: &LoadedService, size: &ServiceSize) -> Facts {
    let users = fill(site, WAITING.min(size.page_jobs), 10, SMALL).await?;
    let job: JobView = {
        let lines = job_lines(size.job_files / 10, SMALL, 0);
        site.http(&users[0]).upload("/api/v1/jobs", lines).await?
    };
    let mut failing = Vec::new();
    for (what, failed) in FAILING {
        let id = failing_job(site, &users[0], size, failed).await?;
        failing.push((what, format!("/jobs/{id}?files=failed")));
    }
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
    for (what, path) in &failing {
        let fact = page(&mut user, path, "user").await?;
        facts.push(format!("{fact}: {} files, {what}", size.job_files));
    }
    for (what, path) in [
        ("earlier jobs", "/jobs?all=yes"),
        ("earlier jobs that failed", "/jobs?all=yes&state=failed"),
        ("further failed files of the first", &failing[0].1),
        ("further failed files of the second", &failing[1].1),
    ] {
        facts.push(further(&mut operator, what, path).await?);
    }
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

/// Pages further and further from the first.
async fn further(http: &mut Http, what: &str, first: &str) -> Result<String, LoadError> {
    let (mut times, mut path) = (Vec::new(), first.to_owned());
    for _ in 0..FURTHER {
        let (taken, text) = ask(http, &path).await?;
        times.push(taken.as_secs_f64());
        let link = text.split("rel=\"next\" href=\"").nth(1);
        let link = link.and_then(|rest| rest.split('"').next());
        let Some(next) = link else { break };
        path = next.replace("&amp;", "&");
    }
    Ok(format!("operator, {what}: {}", spread(&times)))
}

async fn ask(http: &mut Http, path: &str) -> Result<(Duration, String), LoadError> {
    let began = Instant::now();
    let (status, body) = http.ask("GET", path, b"").await?;
    let taken = began.elapsed();
    let is_fit = status == 200 && body.len() < BYTES_MAX;
    expect(is_fit, &format!("{path}: {status}, {} bytes", body.len()))?;
    Ok((taken, String::from_utf8_lossy(&body).into_owned()))
}

/// A job whose files have failed.
async fn failing_job(
    site: &LoadedService,
    user: &Account,
    size: &ServiceSize,
    failed: &str,
) -> Result<Uuid, LoadError> {
    let files = size.job_files;
    let lines = job_lines(files, SMALL, 0);
    let JobView { id, .. } = site.http(user).upload("/api/v1/jobs", lines).await?;
    let failed = failed.replace('N', &files.to_string());
    let error =
        r#"{"code":"permission","message":"550 No permission","who":"source","may_pass":false}"#;
    let mut text = String::new();
    for first in (0..files).step_by(TOGETHER) {
        let past = (first + TOGETHER as u64).min(files);
        let _ = writeln!(
            text,
            "INSERT INTO file_exception (job, number, failed, attempts, error, agent, at)
            WITH RECURSIVE n(i) AS (
                SELECT CAST({first} AS BIGINT) UNION ALL SELECT i + 1 FROM n WHERE i + 1 < {past})
            SELECT job.number, i, CASE WHEN {failed} THEN 1 ELSE 0 END, 1, '{error}', 'agent00000',
                job.created FROM n, job WHERE job.id = '{id}';"
        );
    }
    // Of the first job nothing is left to do.
    let _ = writeln!(
        text,
        "UPDATE job SET failed = (SELECT COUNT(*) FROM file_exception
            WHERE file_exception.job = job.number AND failed = 1) WHERE id = '{id}';
        INSERT INTO job_error (job, code, files)
            SELECT number, 'permission', failed FROM job WHERE id = '{id}';
        UPDATE job SET state = 'failed', started = created, ended = created
            WHERE id = '{id}' AND failed = total;
        DELETE FROM unit WHERE job IN
            (SELECT number FROM job WHERE id = '{id}' AND failed = total);"
    );
    site.execute(&text)?;
    Ok(id)
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
                CASE i % 1000 WHEN 8 THEN 'partial' WHEN 9 THEN 'canceled' ELSE
                    CASE i % {FAILED_OF} WHEN 7 THEN 'failed' ELSE 'finished' END END,
                '{{\"name\":\"Run ' || CAST(i AS TEXT) || '\"}}', 'run ' || CAST(i AS TEXT),
                10, CASE i % 1000 WHEN 8 THEN 5 WHEN 9 THEN 0 ELSE
                    CASE i % {FAILED_OF} WHEN 7 THEN 0 ELSE 10 END END,
                CASE i % 1000 WHEN 8 THEN 5 WHEN 9 THEN 0 ELSE
                    CASE i % {FAILED_OF} WHEN 7 THEN 10 ELSE 0 END END,
                1000000, 1000000, 3, {now} - ({jobs} - i) * 1000000, {now} - ({jobs} - i) * 1000000,
                {now} - ({jobs} - i) * 1000000, {now} - ({jobs} - i) * 1000000 FROM n;"
        );
    }
    let _ = writeln!(
        text,
        "INSERT INTO job_error (job, code, files) SELECT number, 'permission', failed FROM job
            WHERE state IN ('failed', 'partial') AND id LIKE '01900000-%';"
    );
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
