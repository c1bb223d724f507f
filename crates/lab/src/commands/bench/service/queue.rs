//! A large job, and jobs of many users: how they come in and wait.

use std::time::{Duration, Instant};

use godwit_service_api::{job::JobView, page::Page};
use serde_json::Value;

use super::{Facts, POLLED_JOBS, SMALL, ServiceSize, expect, fill, rate_time, spread};
use crate::{
    service_load::{Account, Agent, LoadError, LoadedService, Tally, job_lines},
    stats::median,
};

/// One job comes in as lines; then its files are read.
pub(super) async fn accept(site: &LoadedService, size: &ServiceSize) -> Facts {
    let mut http = site.operator();
    let files = size.job_files;
    let memory = site.watch_memory();
    let (began, cpu) = (Instant::now(), site.cpu());
    let job: JobView = http
        .upload("/api/v1/jobs", job_lines(files, SMALL, 0))
        .await?;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64();
    let memory = memory.stop().total_bytes as f64 / 1e6;
    let path = format!("/api/v1/jobs/{}/files?limit=100", job.id);
    let mut pages = Vec::new();
    for _ in 0..100 {
        let began = Instant::now();
        let page: Page<Value> = http.must("GET", &path, b"").await?;
        pages.push(began.elapsed().as_secs_f64());
        expect(page.items.len() as u64 == 100.min(files), "a page is short")?;
    }
    let bytes = site.database_bytes()? as f64;
    Ok(vec![
        format!(
            "{files} files accepted in {seconds:.2} s, {:.0} files/s, {memory:.0} MB resident, \
             {cpu:.1} s of a processor",
            files as f64 / seconds
        ),
        format!("first page of 100 of its files: {}", spread(&pages)),
        format!(
            "{:.0} MB of database per million files",
            bytes / files as f64
        ),
    ])
}

/// A long queue: its size, the leader's steps, and what an agent and a user wait for.
pub(super) async fn queue(site: &LoadedService, size: &ServiceSize) -> Facts {
    let (jobs, each) = (size.queue_jobs, size.queue_files / size.queue_jobs);
    let files = (jobs * each) as f64;
    let began = Instant::now();
    let users = fill(site, jobs, each, SMALL).await?;
    let seconds = began.elapsed().as_secs_f64();
    let bytes = site.database_bytes()? as f64;
    let skip = site.steps(0).len();
    let agent = site.accounts("agent", 1).await?;
    let tally = Tally::default();
    let mut agent = Agent::new(&agent[0], site.http(&agent[0]), 1, Duration::ZERO);
    let (until, cpu) = (Instant::now() + rate_time(size), site.cpu());
    while Instant::now() < until {
        agent.poll(&tally).await?;
    }
    let cpu = (site.cpu() - cpu).as_secs_f64() / rate_time(size).as_secs_f64();
    let waits = tally.waits.into_inner();
    expect(waits.len() > 1, "no work was granted")?;
    let mut facts = vec![
        format!(
            "{jobs} jobs of {} users with {files} files came in {seconds:.1} s, {:.0} files/s; \
             {:.0} MB of database per million files",
            users.len(),
            files / seconds,
            bytes / files
        ),
        format!(
            "poll to grant of one agent beside that queue: {}",
            spread(&waits)
        ),
        format!(
            "steps of the leader meanwhile: {}; {:.0} % of a processor",
            spread(&site.steps(skip)),
            cpu * 100.0
        ),
    ];
    facts.push(read_jobs(site, &users[0]).await?);
    Ok(facts)
}

/// A user looks at a hundred jobs, one by one, and at a page of them.
async fn read_jobs(site: &LoadedService, user: &Account) -> Result<String, LoadError> {
    let mut operator = site.operator();
    let list = format!("/api/v1/jobs?all=true&limit={POLLED_JOBS}");
    let page: Page<JobView> = operator.must("GET", &list, b"").await?;
    let (mut each, mut lists) = (Vec::new(), Vec::new());
    for _ in 0..10 {
        let began = Instant::now();
        for job in &page.items {
            let path = format!("/api/v1/jobs/{}", job.id);
            let _: JobView = operator.must("GET", &path, b"").await?;
        }
        each.push(began.elapsed().as_secs_f64());
        let began = Instant::now();
        let _: Page<JobView> = operator.must("GET", &list, b"").await?;
        lists.push(began.elapsed().as_secs_f64());
    }
    let mut http = site.http(user);
    let _: Page<JobView> = http.must("GET", "/api/v1/jobs", b"").await?;
    let of = |samples: &[f64]| median(samples).unwrap_or(f64::NAN) * 1e3;
    Ok(format!(
        "{} jobs asked for one after the other: {:.0} ms; as one page: {:.1} ms (medians of 10)",
        page.items.len(),
        of(&each),
        of(&lists)
    ))
}
