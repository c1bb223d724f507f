//! A database that is lost while very many files wait, and its backup, by the commands of
//! `docs/service-operating.md`.

use std::{
    sync::atomic::Ordering,
    time::{Duration, Instant},
};

use godwit_service_api::{job::JobView, page::Page};
use tokio::time::sleep;

use super::{Facts, SMALL, ServiceSize, agents, expect, fill, rate_time};
use crate::service_load::{LoadError, LoadedService, Tally};

/// Agents that work before the loss and after it.
const AGENTS: usize = 10;

/// Units that each takes at a time.
const SLOTS: u32 = 16;

/// All files must have ended by then.
const END_LIMIT: Duration = Duration::from_secs(900);

/// Jobs of a page of the API.
const PAGE: usize = 1000;

/// Agents work while a backup is made, and go on; then the database is lost and restored, and other
/// agents end all that it knows.
pub(super) async fn restore(site: &mut LoadedService, size: &ServiceSize) -> Facts {
    let (jobs, each) = (size.queue_jobs, size.queue_files / size.queue_jobs);
    fill(site, jobs, each, SMALL).await?;
    let accounts = site.accounts("agent", 2 * AGENTS).await?;
    // Slow enough that most waits.
    let working = agents::start(&accounts[..AGENTS], site, SLOTS, rate_time(size) / 4);
    sleep(rate_time(size)).await;
    let began = Instant::now();
    let bytes = site.back_up()?;
    let backed_up = began.elapsed().as_secs_f64();
    sleep(rate_time(size) / 2).await;
    let tally = working.end().await;
    let counts = counts(site).await?;
    site.stop()?;
    let began = Instant::now();
    site.restore()?;
    let restored = began.elapsed().as_secs_f64();
    let began = Instant::now();
    site.start_again()?;
    let after = self::counts(site).await?;
    let answered = began.elapsed().as_secs_f64();
    expect(after.all == jobs * each, "files are lost")?;
    let is_older = after.finished < counts.finished;
    expect(is_older, "the backup knows what came after it")?;
    let working = agents::start(&accounts[AGENTS..], site, SLOTS, Duration::ZERO);
    let first = until(began, || Tally::of(&working.tally.grants) > 0).await?;
    let began = Instant::now();
    let mut left = PAGE;
    while left > 0 {
        expect(began.elapsed() < END_LIMIT, "not all files end")?;
        sleep(Duration::from_millis(500)).await;
        left = open_jobs(site).await?;
    }
    let ended = began.elapsed().as_secs_f64();
    let again = working.end().await;
    let end = self::counts(site).await?;
    let is_whole = end.finished == jobs * each && end.failed == 0;
    expect(is_whole, &format!("{} files are finished", end.finished))?;
    Ok(vec![
        format!(
            "backup beside {AGENTS} agents with {} files of {} waiting: {backed_up:.1} s, {:.0} MB",
            after.all - after.finished,
            after.all,
            bytes as f64 / 1e6
        ),
        format!(
            "restored in {restored:.1} s; from its start the service answers after \
             {answered:.2} s, and grants after {first:.2} s; {} files had ended that the backup \
             does not know",
            counts.finished - after.finished
        ),
        format!(
            "all {} files ended {ended:.1} s later, none failed; {} polls before the loss and {} \
             after it were refused",
            end.finished,
            tally.failures.load(Ordering::Relaxed),
            again.failures.load(Ordering::Relaxed)
        ),
    ])
}

/// Files of all jobs.
struct Counts {
    all: u64,
    finished: u64,
    failed: u64,
}

async fn counts(site: &LoadedService) -> Result<Counts, LoadError> {
    let mut http = site.operator();
    let (mut all, mut finished, mut failed) = (0, 0, 0);
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/jobs?all=true&limit={PAGE}{cursor}");
        let page: Page<JobView> = http.must("GET", &path, b"").await?;
        for job in &page.items {
            all += job.files.total;
            finished += job.files.finished;
            failed += job.files.failed;
        }
        let Some(next) = page.next else { break };
        cursor = format!("&cursor={next}");
    }
    Ok(Counts {
        all,
        finished,
        failed,
    })
}

/// Jobs that have not ended, as many as a page has at most.
async fn open_jobs(site: &LoadedService) -> Result<usize, LoadError> {
    let path = format!("/api/v1/jobs?all=true&state=queued,active&limit={PAGE}");
    let page: Page<JobView> = site.operator().must("GET", &path, b"").await?;
    Ok(page.items.len())
}

/// Seconds until something is so.
async fn until(began: Instant, is_so: impl Fn() -> bool) -> Result<f64, LoadError> {
    while !is_so() {
        expect(began.elapsed() < END_LIMIT, "no work is granted")?;
        sleep(Duration::from_millis(5)).await;
    }
    Ok(began.elapsed().as_secs_f64())
}
