//! Benchmark cells of the transfer service: what one process that serves takes in, hands out and
//! answers, on both databases, with simulated agents; and what the service costs over `godwit cp`.

use std::{
    fs,
    path::Path,
    process::Command,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_service_api::{job::JobView, page::Page};
use serde_json::{Value, json};
use tokio::{runtime::Runtime, task::JoinSet, time::sleep};

use super::{
    BenchError, RUN_LIMIT,
    files::{Files, check_and_remove, run_with_room},
    godwit_cp, io_error,
    record::{BenchCell, RunResult, Unit},
    testbed::{Testbed, goodput_cell},
};
use crate::{
    faults::service::Database,
    peers::{
        Error,
        godwit::{self, Godwitd},
        service::Service,
    },
    service_load::{Account, Agent, Http, LoadError, LoadedService, Rucio, Tally, job_lines, work},
    stats::{median, quantile},
};

/// Sizes of the cells.
#[derive(Debug, clap::Args)]
pub struct ServiceSize {
    /// Service: files of the one large job
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub job_files: u64,
    /// Service: files that wait in the jobs of many users
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub queue_files: u64,
    /// Service: those jobs; a tenth as many users submit them
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub queue_jobs: u64,
    /// Service: agents with work
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub busy_agents: usize,
    /// Service: agents without work
    #[arg(long, default_value_t = 10_000, value_name = "N")]
    pub idle_agents: usize,
    /// Service: submitters of Rucio
    #[arg(long, default_value_t = 100, value_name = "N")]
    pub submitters: usize,
    /// Service: files of a job of Rucio
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub rucio_files: usize,
    /// Service: seconds between two rounds of a submitter of Rucio, as its daemons rest
    #[arg(long, default_value_t = 60, value_name = "S")]
    pub rucio_seconds: u64,
    /// Service: requests of one user who does not stop
    #[arg(long, default_value_t = 1_000_000, value_name = "N")]
    pub flood_requests: u64,
    /// Service: seconds of a rate
    #[arg(long, default_value_t = 10, value_name = "S")]
    pub rate_seconds: u64,
}

impl ServiceSize {
    /// A fiftieth, with `--quick`.
    fn of(testbed: &Testbed<'_>) -> Self {
        let all = &testbed.options.service;
        let quick = testbed.options.quick;
        let (part, agents_part) = if quick { (50, 50) } else { (1, 1) };
        Self {
            job_files: all.job_files / part,
            queue_files: all.queue_files / part,
            queue_jobs: all.queue_jobs / part,
            busy_agents: all.busy_agents / agents_part,
            idle_agents: all.idle_agents / agents_part,
            submitters: all.submitters.div_ceil(if quick { 25 } else { 1 }),
            rucio_files: all.rucio_files.div_ceil(if quick { 10 } else { 1 }),
            rucio_seconds: if quick { 1 } else { all.rucio_seconds },
            flood_requests: all.flood_requests / part,
            rate_seconds: if quick { 3 } else { all.rate_seconds },
        }
    }
}

/// Name of the cells.
const NAME: &str = "service";

/// The cell in which users have the limits that they have by default.
const FLOOD: &str = "flood";

/// Connections of the user who does not stop, and every which request is a job.
const FLOODERS: u64 = 32;
const JOB_EVERY: u64 = 10;

/// More units of one file a second than pass.
const UNITS_RATE_MAX: u64 = 2000;

/// Pairs of endpoints of the queue.
const PAIRS: u64 = 50;

/// Bytes of a file that is a unit of its own.
const LARGE: u64 = 8 << 30;

/// Bytes of a file of which a thousand are a unit.
const SMALL: u64 = 100_000;

/// Connections that submit jobs.
const SUBMITTERS: usize = 8;

/// Jobs that one poll of a user asks for.
const POLLED_JOBS: usize = 100;

/// Files of a tree that a real agent copies.
const SMALL_FILES: u32 = 10_000;

/// Bytes of each.
const SMALL_BYTES: usize = 10_000;

/// The contender that the client alone is held against.
const BY_SERVICE: &str = "godwit submit";

/// Time for a process to end.
const END_LIMIT: Duration = Duration::from_secs(20);

/// Time for the jobs of Rucio to end.
const ROUNDS_LIMIT: Duration = Duration::from_secs(600);

/// Units of busy agents take so long.
const UNIT_TIME: Duration = Duration::from_secs(20);

type Facts = Result<Vec<String>, LoadError>;

/// Runs the cells that are asked for.
pub(super) fn run(
    testbed: &mut Testbed<'_>,
    files: &mut Files,
    folder: &Path,
) -> Result<(), BenchError> {
    let size = ServiceSize::of(testbed);
    let runtime = Runtime::new().map_err(io_error("runtime".as_ref()))?;
    for database in [Database::Sqlite, Database::Postgres] {
        let mut cell = |part: &str, title: &str, measure: &dyn Fn(&LoadedService) -> Facts| {
            let name = format!("{NAME}/{database}/{part}");
            if !testbed.is_asked_for(&name) {
                return Ok(());
            }
            testbed.begin(goodput_cell(name.clone(), title.to_owned(), "godwit"))?;
            let site = match part {
                FLOOD => LoadedService::start_with(database, &[])?,
                _ => LoadedService::start(database)?,
            };
            for fact in measure(&site)? {
                testbed.fact(&name, fact)?;
            }
            Ok::<_, BenchError>(())
        };
        cell("accept", "one job of many files", &|site| {
            runtime.block_on(accept(site, &size))
        })?;
        cell("queue", "jobs of many users wait", &|site| {
            runtime.block_on(queue(site, &size))
        })?;
        cell("leases", "units of one file, done at once", &|site| {
            runtime.block_on(rate(site, &size, LARGE))
        })?;
        cell("results", "units of 1000 files, done at once", &|site| {
            runtime.block_on(rate(site, &size, SMALL))
        })?;
        cell("steer", "an agent waits; a job is canceled", &|site| {
            runtime.block_on(steer(site, &size))
        })?;
        cell("rucio", "submitters and polls of Rucio", &|site| {
            runtime.block_on(rucio(site, &size))
        })?;
        cell("busy", "many agents with work", &|site| {
            runtime.block_on(busy(site, &size))
        })?;
        cell(FLOOD, "one user asks without end", &|site| {
            runtime.block_on(flood(site, &size))
        })?;
        cell("idle", "many agents without work", &|site| {
            runtime.block_on(idle(site, &size))
        })?;
    }
    cost(testbed, files, folder)
}

/// A share of samples of seconds, as milliseconds.
fn milliseconds(samples: &[f64], share: f64) -> f64 {
    quantile(samples, share).unwrap_or(f64::NAN) * 1e3
}

/// `p50`, `p99` and the longest of samples of seconds.
fn spread(samples: &[f64]) -> String {
    let of = |share| milliseconds(samples, share);
    format!(
        "p50 {:.1} ms, p99 {:.1} ms, max {:.1} ms ({} samples)",
        of(0.5),
        of(0.99),
        of(1.0),
        samples.len()
    )
}

/// One job comes in as lines; then its files are read.
async fn accept(site: &LoadedService, size: &ServiceSize) -> Facts {
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

fn expect(is_so: bool, otherwise: &str) -> Result<(), std::io::Error> {
    match is_so {
        true => Ok(()),
        false => Err(std::io::Error::other(otherwise)),
    }
}

/// Jobs of many users come in, a tenth as many users as jobs.
async fn fill(
    site: &LoadedService,
    jobs: u64,
    files: u64,
    bytes: u64,
) -> Result<Vec<Account>, LoadError> {
    let count = usize::try_from(jobs.div_ceil(10)).unwrap_or(usize::MAX);
    let users = site.accounts("user", count).await?;
    let mut submitters = JoinSet::new();
    for first in 0..SUBMITTERS {
        let address = site.address();
        let users = users.clone();
        submitters.spawn(async move {
            let mine = (first as u64..jobs).step_by(SUBMITTERS);
            for (number, user) in mine.zip(users.iter().cycle().skip(first).step_by(SUBMITTERS)) {
                let mut http = Http::new(address, &user.token);
                let lines = job_lines(files, bytes, number % PAIRS);
                let _: JobView = http.upload("/api/v1/jobs", lines).await?;
            }
            Ok::<_, std::io::Error>(())
        });
    }
    while let Some(submitted) = submitters.join_next().await {
        submitted.map_err(std::io::Error::other)??;
    }
    Ok(users)
}

/// A long queue: its size, the leader's steps, and what an agent and a user wait for.
async fn queue(site: &LoadedService, size: &ServiceSize) -> Facts {
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

fn rate_time(size: &ServiceSize) -> Duration {
    Duration::from_secs(size.rate_seconds)
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

/// Starts agents; they end when the tally says so.
fn start(accounts: &[Account], site: &LoadedService, slots: u32, unit_time: Duration) -> Started {
    let tally = Arc::<Tally>::default();
    let mut tasks = JoinSet::new();
    for account in accounts {
        let agent = Agent::new(account, site.http(account), slots, unit_time);
        tasks.spawn(work(agent, Arc::clone(&tally)));
    }
    Started { tally, tasks }
}

struct Started {
    tally: Arc<Tally>,
    tasks: JoinSet<()>,
}

impl Started {
    async fn end(mut self) -> Arc<Tally> {
        self.tally.over.store(true, Ordering::Relaxed);
        self.tasks.abort_all();
        while self.tasks.join_next().await.is_some() {}
        self.tally
    }
}

/// Agents that do each unit in no time: how many units and results pass.
async fn rate(site: &LoadedService, size: &ServiceSize, bytes: u64) -> Facts {
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
    sleep(Duration::from_secs(1)).await;
    let tally = Arc::clone(&agents.tally);
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
async fn steer(site: &LoadedService, size: &ServiceSize) -> Facts {
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

/// What one connection of a user who does not stop was answered.
#[derive(Default)]
struct Flooded {
    done: u64,
    refused: u64,
    jobs: Vec<String>,
}

async fn flood_by(mut http: Http, requests: u64) -> std::io::Result<Flooded> {
    let mut flooded = Flooded::default();
    let file = json!({
        "source": "gsiftp://dtn.example.org/f", "destination": "gsiftp://store.example.net/f",
    });
    let job = json!({"files": [file]}).to_string();
    for number in 0..requests {
        let (method, body) = match number % JOB_EVERY {
            0 => ("POST", job.as_bytes()),
            _ => ("GET", &b""[..]),
        };
        let (status, answer) = http.ask(method, "/api/v1/jobs", body).await?;
        match (status, method) {
            (200..300, "POST") => {
                let job: JobView = serde_json::from_slice(&answer)?;
                flooded.jobs.push(job.id.to_string());
                flooded.done += 1;
            }
            (200..300, _) => flooded.done += 1,
            (429, _) => flooded.refused += 1,
            _ => {
                let text = String::from_utf8_lossy(&answer).into_owned();
                return Err(std::io::Error::other(format!(
                    "answered with {status}: {text}"
                )));
            }
        }
    }
    Ok(flooded)
}

/// One user asks more than is allowed, over many connections; another asks meanwhile. Every job
/// that was accepted is there.
async fn flood(site: &LoadedService, size: &ServiceSize) -> Facts {
    let users = site.accounts("user", 2).await?;
    let (began, cpu) = (Instant::now(), site.cpu());
    let mut connections = JoinSet::new();
    for _ in 0..FLOODERS {
        connections.spawn(flood_by(
            site.http(&users[0]),
            size.flood_requests / FLOODERS,
        ));
    }
    let (mut other, mut asked) = (site.http(&users[1]), Vec::new());
    let mut all = Flooded::default();
    while !connections.is_empty() {
        let sent = Instant::now();
        let _: Value = other.must("GET", "/api/v1/jobs", b"").await?;
        asked.push(sent.elapsed().as_secs_f64());
        sleep(Duration::from_millis(50)).await;
        while let Some(ended) = connections.try_join_next() {
            let one = ended.map_err(std::io::Error::other)??;
            all.done += one.done;
            all.refused += one.refused;
            all.jobs.extend(one.jobs);
        }
    }
    let seconds = began.elapsed().as_secs_f64();
    let cpu = (site.cpu() - cpu).as_secs_f64() / seconds;
    let mut operator = site.operator();
    for job in &all.jobs {
        let path = format!("/api/v1/jobs/{job}");
        let _: JobView = operator.must("GET", &path, b"").await?;
        // The operator has the same limit.
        sleep(Duration::from_millis(25)).await;
    }
    let total = all.done + all.refused;
    Ok(vec![
        format!(
            "{total} requests in {seconds:.0} s, {:.0} a second; {} done, {} refused (429), \
             nothing else; {:.0} % of a processor",
            total as f64 / seconds,
            all.done,
            all.refused,
            100.0 * cpu
        ),
        format!("{} jobs were accepted, and each is there", all.jobs.len()),
        format!("requests of another user meanwhile: {}", spread(&asked)),
    ])
}

/// Agents that hold units for a while and report, as real ones do; a user asks meanwhile.
async fn busy(site: &LoadedService, size: &ServiceSize) -> Facts {
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

/// Submitters of Rucio, which also poll, beside agents that work and a user of the native
/// interface.
async fn rucio(site: &LoadedService, size: &ServiceSize) -> Facts {
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

/// Agents that wait for work.
async fn idle(site: &LoadedService, size: &ServiceSize) -> Facts {
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

/// Seconds that a copy took, and of processors: the client's with agent and service, the server's.
struct Spent {
    wall: f64,
    client: f64,
    server: f64,
}

/// What the service costs over the client alone, with a real server and agent.
fn cost(testbed: &mut Testbed<'_>, files: &mut Files, folder: &Path) -> Result<(), BenchError> {
    let [large, small] = ["large", "small"].map(|part| format!("{NAME}/cost/{part}"));
    if ![&large, &small]
        .iter()
        .any(|name| testbed.is_asked_for(name))
    {
        return Ok(());
    }
    let bytes = files.bytes(testbed);
    let source = files.source(testbed)?.to_owned();
    let count = u64::from(SMALL_FILES) / testbed.scale();
    let tree = folder.join("tree");
    make_tree(&tree, count).map_err(io_error(&tree))?;
    let server = Godwitd::serving(folder).anonymous("ro").start()?;
    let data = folder.join("service");
    let service = Service::start(&data, folder, &["--requests-per-second", "1000"])?;
    let agent = service.agent("one", folder, &[])?;
    let contenders = [false, true].map(|by_service| {
        let name = if by_service { BY_SERVICE } else { "godwit cp" };
        (by_service, name.to_owned())
    });
    let spent = || {
        (
            agent.usage().cpu() + service.process().usage().cpu(),
            server.usage().cpu(),
        )
    };
    let copy = |by_service, from: &str, to: &Path, room| -> Result<Spent, BenchError> {
        let mut command = match by_service {
            true => {
                let mut command = Command::new(godwit::binary("godwit").map_err(Error::from)?);
                command.args(["submit", "--watch"]);
                command.envs(service.variables());
                command
            }
            false => godwit_cp()?,
        };
        let to = format!("file://{}", to.display());
        if from.ends_with('/') {
            command.arg("-r");
        }
        command.args([&server.url(from), &to]);
        let before = spent();
        let usage = run_with_room(command, room, RUN_LIMIT)?.usage;
        let after = spent();
        Ok(Spent {
            wall: usage.wall.as_secs_f64(),
            client: (usage.cpu() + after.0.saturating_sub(before.0)).as_secs_f64(),
            server: after.1.saturating_sub(before.1).as_secs_f64(),
        })
    };
    let cell = BenchCell {
        name: large,
        title: format!(
            "one file of {:.1} GB from a server to tmpfs",
            bytes as f64 / 1e9
        ),
        unit: Unit::Gbps,
        ours: BY_SERVICE.to_owned(),
        bounds: Vec::new(),
    };
    let name = source.file_name().unwrap_or_default().to_string_lossy();
    testbed.compare(cell, &contenders, |by_service| {
        let target = files.target();
        let spent = copy(*by_service, &name, &target, bytes)?;
        check_and_remove(&target, bytes)?;
        let gigabytes = bytes as f64 / 1e9;
        Ok(RunResult {
            value: gigabytes * 8.0 / spent.wall,
            client_cpu: spent.client / gigabytes,
            server_cpu: spent.server / gigabytes,
        })
    })?;
    let cell = BenchCell {
        name: small,
        title: format!("{count} files of {SMALL_BYTES} bytes from a server to tmpfs"),
        unit: Unit::Files,
        ours: BY_SERVICE.to_owned(),
        bounds: Vec::new(),
    };
    testbed.compare(cell, &contenders, |by_service| {
        let target = folder.join("copies");
        let room = count * SMALL_BYTES as u64;
        let spent = copy(*by_service, "tree/", &target, room)?;
        let arrived = fs::read_dir(&target).map_err(io_error(&target))?.count();
        expect(arrived as u64 == count, "files are missing").map_err(io_error(&target))?;
        fs::remove_dir_all(&target).map_err(io_error(&target))?;
        Ok(RunResult {
            value: count as f64 / spent.wall,
            client_cpu: spent.client * 1e6 / count as f64,
            server_cpu: spent.server * 1e6 / count as f64,
        })
    })?;
    agent.terminate(END_LIMIT)?;
    service.terminate(END_LIMIT)?;
    Ok(())
}

fn make_tree(tree: &Path, files: u64) -> std::io::Result<()> {
    fs::create_dir(tree)?;
    for number in 0..files {
        fs::write(tree.join(format!("file{number:06}")), [7; SMALL_BYTES])?;
    }
    Ok(())
}
