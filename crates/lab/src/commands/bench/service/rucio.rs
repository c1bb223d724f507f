//! Submitters of Rucio.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_service_api::job::JobView;
use serde_json::Value;
use tokio::{task::JoinSet, time::sleep};

use super::{Facts, PAIRS, POLLED_JOBS, SMALL, ServiceSize, UNIT_TIME, agents::start, spread};
use crate::service_load::{Http, LoadedService, Rucio, Tally, job_lines};

/// Time for the jobs of Rucio to end.
const ROUNDS_LIMIT: Duration = Duration::from_secs(600);

/// Submitters of Rucio, which also poll, beside agents that work and a user of the native
/// interface.
pub(super) async fn rucio(site: &LoadedService, size: &ServiceSize) -> Facts {
    let accounts = site.accounts("user", 2).await?;
    let load = Rucio::new(
        site.fts_address(),
        &accounts[0],
        size.rucio_files,
        POLLED_JOBS,
    );
    let load = Arc::new(load);
    let memory = site.watch_memory();
    let count = (size.busy_agents / 20).max(2);
    let agents = site.accounts("agent", count).await?;
    let agents = start(&agents, site, 2, UNIT_TIME.min(2 * rucio_time(size)));
    let began = Instant::now();
    let mut first = JoinSet::new();
    for number in 0..size.submitters {
        let load = Arc::clone(&load);
        first.spawn(async move { load.submit(number).await });
    }
    while let Some(submitted) = first.join_next().await {
        submitted.map_err(std::io::Error::other)??;
    }
    let at_once = std::mem::take(&mut *load.submissions.lock());
    let mut facts = vec![format!(
        "{} jobs of {} files submitted at once in {:.2} s: {}",
        size.submitters,
        size.rucio_files,
        began.elapsed().as_secs_f64(),
        spread(&at_once)
    )];
    let interval = rucio_time(size);
    let (began, cpu, skip) = (Instant::now(), site.cpu(), site.steps(0).len());
    let until = began + 2 * interval;
    let mut working = JoinSet::new();
    for number in 0..size.submitters {
        let share = number as f64 / size.submitters as f64;
        let first = began + interval.mul_f64(share);
        working.spawn(Arc::clone(&load).work(number, first, until, interval));
    }
    let native = tokio::spawn(native_reads(site.http(&accounts[1]), until));
    while let Some(worked) = working.join_next().await {
        worked.map_err(std::io::Error::other)??;
    }
    let native = native.await.map_err(std::io::Error::other)??;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let grants = Tally::of(&agents.tally.grants);
    // What was to be measured is over.
    agents.tally.hurries.store(true, Ordering::Relaxed);
    load.finish(ROUNDS_LIMIT).await?;
    let refused = Tally::of(&agents.end().await.failures);
    let memory = memory.stop().total_bytes as f64 / 1e6;
    let [submissions, polls, reads] =
        [&load.submissions, &load.polls, &load.reads].map(|samples| samples.lock().clone());
    let requests = submissions.len() + polls.len() + reads.len() + native.len();
    let poll_bytes = load.poll_bytes.load(Ordering::Relaxed) as f64 / polls.len() as f64;
    facts.extend([
        format!(
            "{} submitters, a round every {} s, {grants} units of {count} agents: {:.1} \
             requests/s, none refused; {refused} polls of agents refused; {:.0} % of a \
             processor, {memory:.0} MB resident",
            size.submitters,
            interval.as_secs(),
            requests as f64 / seconds,
            cpu * 100.0
        ),
        format!("submission: {}", spread(&submissions)),
        format!(
            "poll of the latest {POLLED_JOBS} jobs with all files, {:.1} MB: {}",
            poll_bytes / 1e6,
            spread(&polls)
        ),
        format!("read of one job: {}", spread(&reads)),
        format!(
            "requests of a user of the native interface: {}",
            spread(&native)
        ),
        format!("steps of the leader: {}", spread(&site.steps(skip))),
        format!("all {} jobs finished", load.jobs()),
    ]);
    Ok(facts)
}

fn rucio_time(size: &ServiceSize) -> Duration {
    Duration::from_secs(size.rucio_seconds)
}

/// A user submits a job and looks at it.
async fn native_reads(mut http: Http, until: Instant) -> Result<Vec<f64>, std::io::Error> {
    let job: JobView = http
        .upload("/api/v1/jobs", job_lines(100, SMALL, PAIRS))
        .await?;
    let mut seconds = Vec::new();
    while Instant::now() < until {
        for path in [
            format!("/api/v1/jobs/{}", job.id),
            format!("/api/v1/jobs/{}/files?limit=100", job.id),
            "/api/v1/jobs".to_owned(),
        ] {
            let sent = Instant::now();
            let _: Value = http.must("GET", &path, b"").await?;
            seconds.push(sent.elapsed().as_secs_f64());
            sleep(Duration::from_millis(20)).await;
        }
    }
    Ok(seconds)
}
