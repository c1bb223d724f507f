//! Simulated agents: how fast units go to them and results come back, and how many may wait.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_service_api::{job::JobView, page::Page};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::sleep};

use super::{Facts, LARGE, ServiceSize, UNIT_TIME, expect, fill, rate_time, spread};
use crate::service_load::{Account, Agent, LoadedService, Tally, job_lines, work};

/// More units of one file a second than pass.
const UNITS_RATE_MAX: u64 = 2000;

/// The first results come within it, also on a busy machine.
const START_LIMIT: Duration = Duration::from_secs(60);

/// Starts agents; they end when the tally says so.
pub(super) fn start(
    accounts: &[Account],
    site: &LoadedService,
    slots: u32,
    unit_time: Duration,
) -> Started {
    let tally = Arc::<Tally>::default();
    let mut tasks = JoinSet::new();
    for account in accounts {
        let agent = Agent::new(account, site.http(account), slots, unit_time);
        tasks.spawn(work(agent, Arc::clone(&tally)));
    }
    Started { tally, tasks }
}

pub(super) struct Started {
    pub(super) tally: Arc<Tally>,
    tasks: JoinSet<()>,
}

impl Started {
    pub(super) async fn end(mut self) -> Arc<Tally> {
        self.tally.over.store(true, Ordering::Relaxed);
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.tally
    }
}

/// Agents that do each unit in no time: how many units and results pass.
pub(super) async fn rate(site: &LoadedService, size: &ServiceSize, bytes: u64) -> Facts {
    // More units than can pass meanwhile.
    let files = match bytes {
        LARGE => (size.job_files / 10).max(UNITS_RATE_MAX * (size.rate_seconds + 2)),
        _ => size.job_files * 4,
    };
    let jobs = 20.min(files);
    fill(site, jobs, files / jobs, bytes).await?;
    let count = (size.busy_agents / 20).max(2);
    let accounts = site.accounts("agent", count).await?;
    let skip = site.steps(0).len();
    let agents = start(&accounts, site, 16, Duration::ZERO);
    let tally = Arc::clone(&agents.tally);
    let started = Instant::now();
    let is_under_way = || Tally::of(&tally.grants) > 0 && Tally::of(&tally.files) > 0;
    sleep(Duration::from_secs(1)).await;
    while !is_under_way() && started.elapsed() < START_LIMIT {
        sleep(Duration::from_millis(50)).await;
    }
    let counts = || {
        let Tally {
            grants,
            files,
            polls,
            ..
        } = &*tally;
        [grants, files, polls].map(Tally::of)
    };
    let (before, began, cpu) = (counts(), Instant::now(), site.cpu());
    sleep(rate_time(size)).await;
    // Beside others a short while may pass in which nothing is done.
    let is_done = |now: [u64; 3]| now[0] > before[0] && now[1] > before[1];
    while !is_done(counts()) && began.elapsed() < START_LIMIT {
        sleep(Duration::from_millis(50)).await;
    }
    let (now, seconds) = (counts(), began.elapsed().as_secs_f64());
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let [grants, files, polls] =
        [0, 1, 2].map(|place| (now[place] - before[place]) as f64 / seconds);
    let tally = agents.end().await;
    expect(grants > 0.0 && files > 0.0, "nothing was done")?;
    let waits = tally.waits.lock().clone();
    Ok(vec![
        format!(
            "{count} agents with 16 slots: {grants:.0} units granted/s, {files:.0} results of \
             files/s, {polls:.0} polls/s, {} polls refused; {:.0} % of a processor",
            Tally::of(&tally.failures),
            cpu * 100.0
        ),
        format!("free slot to grant: {}", spread(&waits)),
        format!("steps of the leader: {}", spread(&site.steps(skip))),
    ])
}

/// One agent that waits for work gets it, works, and is told to stop.
pub(super) async fn steer(site: &LoadedService, size: &ServiceSize) -> Facts {
    let account = site.accounts("agent", 1).await?;
    let tally = Arc::<Tally>::default();
    let mut agent = Agent::new(
        &account[0],
        site.http(&account[0]),
        1,
        Duration::from_secs(600),
    );
    let mut user = site.operator();
    let (mut grants, mut stops) = (Vec::new(), Vec::new());
    for _ in 0..(10 * size.rate_seconds) {
        let polling = Arc::clone(&tally);
        let waiting = tokio::spawn(async move {
            while agent.poll(&polling).await?.grants == 0 {}
            Ok::<_, std::io::Error>((agent, Instant::now()))
        });
        sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        let job: JobView = user.upload("/api/v1/jobs", job_lines(1, LARGE, 0)).await?;
        let (mut granted, at) = waiting.await.map_err(std::io::Error::other)??;
        grants.push((at - began).as_secs_f64());
        let polling = Arc::clone(&tally);
        let waiting = tokio::spawn(async move {
            while granted.poll(&polling).await?.stops == 0 {}
            Ok::<_, std::io::Error>((granted, Instant::now()))
        });
        sleep(Duration::from_millis(50)).await;
        let began = Instant::now();
        let path = format!("/api/v1/jobs/{}/cancel", job.id);
        let _: JobView = user.must("POST", &path, b"").await?;
        let at;
        (agent, at) = waiting.await.map_err(std::io::Error::other)??;
        stops.push((at - began).as_secs_f64());
        agent.poll(&tally).await?;
    }
    Ok(vec![
        format!(
            "submission to the grant of an agent that waits: {}",
            spread(&grants)
        ),
        format!("cancel to the stop at the agent: {}", spread(&stops)),
    ])
}

/// Agents that hold units for a while and report, as real ones do; a user asks meanwhile.
pub(super) async fn busy(site: &LoadedService, size: &ServiceSize) -> Facts {
    let files = (size.busy_agents as u64 * 20).max(100);
    let users = fill(site, 100, files / 100, LARGE).await?;
    let accounts = site.accounts("agent", size.busy_agents).await?;
    let agents = start(&accounts, site, 2, UNIT_TIME);
    // Units end all over the time that one takes.
    sleep(rate_time(size).max(Duration::from_secs(3))).await;
    let skip = site.steps(0).len();
    let (polls, began, cpu) = (Tally::of(&agents.tally.polls), Instant::now(), site.cpu());
    let mut asked = Vec::new();
    let mut http = site.http(&users[0]);
    let page: Page<JobView> = http.must("GET", "/api/v1/jobs", b"").await?;
    let ids: Vec<_> = page.items.iter().map(|job| job.id).collect();
    while began.elapsed() < rate_time(size) {
        for id in &ids {
            for path in [
                format!("/api/v1/jobs/{id}"),
                format!("/api/v1/jobs/{id}/files?limit=100"),
                "/api/v1/jobs".to_owned(),
            ] {
                let sent = Instant::now();
                let _: Value = http.must("GET", &path, b"").await?;
                asked.push(sent.elapsed().as_secs_f64());
                sleep(Duration::from_millis(10)).await;
            }
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let polls = (Tally::of(&agents.tally.polls) - polls) as f64 / seconds;
    let tally = agents.end().await;
    expect(Tally::of(&tally.grants) > 0, "nothing was granted")?;
    Ok(vec![
        format!(
            "{} agents with 2 units each: {:.0} % of a processor, {polls:.0} polls/s, {} polls \
             refused",
            accounts.len(),
            cpu * 100.0,
            Tally::of(&tally.failures)
        ),
        format!("requests of a user meanwhile: {}", spread(&asked)),
        format!("steps of the leader: {}", spread(&site.steps(skip))),
    ])
}

/// Agents that wait for work.
pub(super) async fn idle(site: &LoadedService, size: &ServiceSize) -> Facts {
    let accounts = site.accounts("agent", size.idle_agents).await?;
    let agents = start(&accounts, site, 2, UNIT_TIME);
    let memory = site.watch_memory();
    let settled = 3 * rate_time(size);
    sleep(settled).await;
    let (cpu, began) = (site.cpu(), Instant::now());
    let polls = Tally::of(&agents.tally.polls);
    sleep(2 * rate_time(size)).await;
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let polls = (Tally::of(&agents.tally.polls) - polls) as f64 / seconds;
    let mut http = site.operator();
    let known: Vec<Value> = http.must("GET", "/api/v1/agents", b"").await?;
    let alive = known.iter().filter(|agent| agent["alive"] == json!(true));
    let alive = alive.count();
    let tally = agents.end().await;
    let memory = memory.stop().total_bytes as f64 / 1e6;
    Ok(vec![format!(
        "{} agents wait, {alive} of them alive by the books: {:.0} % of a processor, {polls:.0} \
         polls/s, {} polls refused, {memory:.0} MB resident",
        accounts.len(),
        cpu * 100.0,
        Tally::of(&tally.failures)
    )])
}
