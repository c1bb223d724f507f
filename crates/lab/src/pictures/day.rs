//! A day of a site at speed: users submit, agents come and go, an operator sets limits. No byte
//! moves: agents are simulated.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_service_api::{
    job::{JobState, JobView},
    page::Page,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use super::desk;
use crate::{
    service_load::{Account, Agent, Conduct, Http, LoadError, LoadedService, Tally, new_account},
    stats::quantile,
};

/// Units that an agent takes at a time.
const SLOTS: u32 = 8;

/// Of each unit, bytes a second.
const UNIT_GOODPUT: u64 = 60_000_000;

/// What a unit takes during the day, ms.
const UNIT_MILLISECONDS: u64 = 300;

/// What a unit takes while pictures are made, ms: long enough to be seen.
const EVENING_MILLISECONDS: u64 = 8000;

/// What is away for as long is gone, and another has its files.
const LEASE_SECONDS: u32 = 13;

/// Files of the job that is shown.
const LARGE_FILES: u64 = 5000;

/// Of 1000 files, so many fail.
const FAILING: u64 = 6;

/// Connections that submit.
const SUBMITTERS: usize = 8;

/// Jobs of 100 that are submitted in each hour of the day, as offices have them.
const HOURS: [u64; 24] = [
    2, 2, 1, 1, 1, 2, 3, 4, 5, 7, 8, 8, 6, 7, 8, 8, 7, 5, 4, 3, 2, 2, 2, 2,
];

/// Between two polls of an agent, as of real ones.
const POLL_GAP: Duration = Duration::from_millis(20);

const SOURCES: [&str; 5] = ["accelerator", "telescope", "genomes", "climate", "archive"];
const DESTINATIONS: [&str; 5] = ["store1", "store2", "tape", "campus", "cloud"];

/// What a day is made of.
#[derive(Debug, Clone, Copy)]
pub struct DayPlan {
    /// Jobs of all users.
    pub jobs: u64,
    /// Who submit them.
    pub users: usize,
    /// Machines that copy.
    pub agents: u32,
    /// Seconds that the day takes.
    pub seconds: u64,
}

/// How a day went.
#[derive(Debug, Default)]
pub struct DayFacts {
    /// Seconds that it took until the last job was submitted.
    pub seconds: f64,
    /// Files of all jobs.
    pub files: u64,
    /// Jobs by state, most first.
    pub states: Vec<(JobState, usize)>,
    /// Seconds from submission to the first unit, of jobs that started.
    pub waits: Vec<f64>,
    /// How often an agent went away, with all that it held.
    pub departures: u64,
    /// Polls of agents that were answered.
    pub polls: u64,
    /// Polls that were refused or broke off.
    pub failures: u64,
}

/// A site in the evening of its day. Its agents go on until it is dropped.
pub(super) struct Evening {
    /// The service.
    pub(super) site: LoadedService,
    /// Of the jobs that move, the one with most files.
    pub(super) moving: String,
    /// How the day went.
    pub(super) facts: DayFacts,
    /// They end with it.
    _agents: JoinSet<()>,
}

/// Replays a day.
///
/// # Errors
/// The service refuses what it must not.
pub(super) async fn replay(
    plan: DayPlan,
    told: &mut dyn FnMut(&str),
) -> Result<Evening, LoadError> {
    let lease = LEASE_SECONDS.to_string();
    let more = [
        "--requests-per-second",
        "1000000",
        "--lease-seconds",
        &lease,
    ];
    let site = LoadedService::start_with(crate::faults::service::Database::Sqlite, &more)?;
    let mut operator = site.operator();
    set_limits(&mut operator).await?;
    desk::add(&mut operator).await?;
    let mut users = Vec::new();
    for number in 0..plan.users {
        let group = SOURCES[number % SOURCES.len()];
        let name = format!("{group}.{number:03}");
        users.push(new_account(&mut operator, name, "user", &[group]).await?);
    }
    let conduct = Arc::new(Conduct {
        goodput: UNIT_GOODPUT.into(),
        unit_milliseconds: UNIT_MILLISECONDS.into(),
        failing: FAILING,
        preview: desk::preview(),
    });
    let (tally, departures) = (Arc::<Tally>::default(), Arc::<AtomicU64>::default());
    let (began, is_evening) = (Instant::now(), Arc::<AtomicBool>::default());
    let hour = Duration::from_secs(plan.seconds) / 24;
    let mut agents = JoinSet::new();
    for number in 0..plan.agents {
        let name = format!("dtn{:02}.site{}", number + 1, number % 3 + 1);
        let account = new_account(&mut operator, name, "agent", &[]).await?;
        let shift = Shift {
            address: site.address(),
            account,
            conduct: Arc::clone(&conduct),
            tally: Arc::clone(&tally),
            departures: Arc::clone(&departures),
            is_evening: Arc::clone(&is_evening),
            number,
            hour,
        };
        agents.spawn(shift.work());
    }
    told(&format!(
        "{} agents; {} users submit",
        plan.agents, plan.users
    ));
    let (files, submitted) = tokio::join!(submit(&site, &users, plan, began), async {
        // Some hours before, so that it has a past in the evening.
        tokio::time::sleep(19 * hour).await;
        submit_large(&site, &users[0]).await
    });
    let files = files?;
    submitted?;
    let evening = submit_evening(&site, &users, &mut operator, told).await?;
    let seconds = began.elapsed().as_secs_f64();
    // What runs from now on lasts as long as the pictures.
    is_evening.store(true, Ordering::Relaxed);
    tokio::time::sleep(4 * hour).await;
    (conduct.unit_milliseconds).store(EVENING_MILLISECONDS, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (mut facts, moving) = look_back(&mut operator).await?;
    facts.seconds = seconds;
    facts.files = files + evening;
    facts.departures = departures.load(Ordering::Relaxed);
    facts.polls = Tally::of(&tally.polls);
    facts.failures = Tally::of(&tally.failures);
    Ok(Evening {
        site,
        moving,
        facts,
        _agents: agents,
    })
}

/// One of a list, in turn.
fn turn<T>(list: &[T], number: u64) -> &T {
    let place = number % list.len() as u64;
    &list[usize::try_from(place).unwrap_or(0)]
}

fn end_of(list: &[&str], number: u64, domain: &str) -> String {
    let name = turn(list, number);
    format!("gsiftp://{name}.{domain}")
}

async fn set_limits(operator: &mut Http) -> Result<(), LoadError> {
    for (name, limits) in [
        (
            "gsiftp://tape.example.net",
            json!({"sessions": 12, "files_per_second": 40}),
        ),
        (
            "gsiftp://genomes.example.org",
            json!({"bytes_per_second": 12_500_000_000_u64}),
        ),
    ] {
        let body = json!({"name": name, "limits": limits}).to_string();
        put(operator, "/api/v1/endpoints", &body).await?;
    }
    for (number, group) in SOURCES.iter().enumerate() {
        let weight = [4.0, 2.0, 1.0, 1.0, 0.5][number];
        let body = json!({"path": group, "weight": weight}).to_string();
        put(operator, "/api/v1/shares", &body).await?;
    }
    Ok(())
}

async fn put(operator: &mut Http, path: &str, body: &str) -> Result<(), LoadError> {
    let (status, text) = operator.ask("PUT", path, body.as_bytes()).await?;
    if (200..300).contains(&status) {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&text);
    Err(std::io::Error::other(format!("PUT {path} is answered with {status}: {text}")).into())
}

/// A job as users of this site have them.
fn job(number: u64, files: u64, name: &str, more: Value) -> Value {
    let pair = number / 3;
    let source = end_of(&SOURCES, number, "example.org");
    let destination = end_of(&DESTINATIONS, pair, "example.net");
    let bytes = 40_000_000 + (number % 17) * 20_000_000;
    let file = |at| {
        json!({"source": format!("{source}/data/run{number}/part{at:04}.h5"),
            "destination": format!("{destination}/copies/run{number}/part{at:04}.h5"),
            "bytes": bytes})
    };
    let files: Vec<Value> = (0..files).map(file).collect();
    let mut options = json!({"name": name});
    if let (Some(options), Value::Object(more)) = (options.as_object_mut(), more) {
        options.extend(more);
    }
    json!({"files": files, "options": options})
}

/// What a job is called.
fn name_of(number: u64) -> String {
    let kinds = [
        "Raw data of run",
        "Calibration",
        "Reconstruction",
        "Simulated events",
        "Images of night",
        "Alignments",
        "Nightly backup",
    ];
    let kind = turn(&kinds, number);
    format!("{kind} {}", 4000 + number)
}

/// All jobs of the day, when their hours come. How many files they have.
async fn submit(
    site: &LoadedService,
    users: &[Account],
    plan: DayPlan,
    began: Instant,
) -> Result<u64, LoadError> {
    let mut submitters = JoinSet::new();
    for first in 0..SUBMITTERS as u64 {
        let (address, users) = (site.address(), users.to_vec());
        submitters.spawn(async move {
            let mut files = 0;
            for number in (first..plan.jobs).step_by(SUBMITTERS) {
                let due = began + Duration::from_secs(plan.seconds).mul_f64(due(number, plan.jobs));
                tokio::time::sleep_until(due.into()).await;
                let user = turn(&users, number);
                let count = 1 + number * 7 % 13;
                let share = user.name.split('.').next();
                let options = json!({"priority": 1 + number % 5, "share": share});
                let job = job(number, count, &name_of(number), options).to_string();
                let mut http = Http::new(address, &user.token);
                let _: JobView = http.must("POST", "/api/v1/jobs", job.as_bytes()).await?;
                files += count;
            }
            Ok::<_, std::io::Error>(files)
        });
    }
    let mut files = 0;
    while let Some(submitted) = submitters.join_next().await {
        files += submitted.map_err(std::io::Error::other)??;
    }
    Ok(files)
}

/// Which part of the day has passed when a job comes.
fn due(number: u64, jobs: u64) -> f64 {
    let all: u64 = HOURS.iter().sum();
    let mut left = number as f64 / jobs as f64 * all as f64;
    for (hour, share) in HOURS.iter().enumerate() {
        let share = *share as f64;
        if left < share {
            return (hour as f64 + left / share) / 24.0;
        }
        left -= share;
    }
    1.0
}

async fn submit_large(site: &LoadedService, user: &Account) -> Result<(), LoadError> {
    let options = json!({"priority": 5, "share": SOURCES[0]});
    let name = "All of run 4711, for the reprocessing";
    let body = job(0, LARGE_FILES, name, options).to_string();
    let path = "/api/v1/jobs";
    let _: JobView = site.http(user).must("POST", path, body.as_bytes()).await?;
    Ok(())
}

/// What comes in the evening, so that each reason to wait is there. How many files.
async fn submit_evening(
    site: &LoadedService,
    users: &[Account],
    operator: &mut Http,
    told: &mut dyn FnMut(&str),
) -> Result<u64, LoadError> {
    let body = json!({"name": "gsiftp://cloud.example.net", "state": "draining",
        "limits": {"sessions": 40}});
    put(operator, "/api/v1/endpoints", &body.to_string()).await?;
    let mut files = 0;
    for (user, number) in users.iter().cycle().zip(20_000..20_120_u64) {
        let (name, options) = match number % 12 {
            0 => (
                "Copy to tape after a check".to_owned(),
                json!({"paused": true}),
            ),
            5 => (
                "Recall from tape".to_owned(),
                json!({"labels": ["tape-robot"]}),
            ),
            7 => (
                "What others leave".to_owned(),
                json!({"class": "scavenger"}),
            ),
            _ => (name_of(number), json!({})),
        };
        let count = 20 + number % 40;
        let body = job(number, count, &name, options).to_string();
        let path = "/api/v1/jobs";
        let _: JobView = site.http(user).must("POST", path, body.as_bytes()).await?;
        files += count;
    }
    told("it is evening");
    Ok(files + LARGE_FILES)
}

/// All jobs, as they are now; and which of those that move has most files.
async fn look_back(operator: &mut Http) -> Result<(DayFacts, String), LoadError> {
    let mut facts = DayFacts::default();
    let (mut moving, mut most) = (String::new(), 0);
    let mut cursor = String::new();
    loop {
        let path = format!("/api/v1/jobs?all=true&limit=1000{cursor}");
        let page: Page<JobView> = operator.must("GET", &path, b"").await?;
        for job in &page.items {
            match facts
                .states
                .iter_mut()
                .find(|(state, _)| *state == job.state)
            {
                Some((_, count)) => *count += 1,
                None => facts.states.push((job.state, 1)),
            }
            if job.goodput > 0.0 && job.files.total > most {
                (moving, most) = (job.id.to_string(), job.files.total);
            }
            if let Some(started) = job.started {
                let wait = started.duration_since(job.created);
                facts.waits.push(wait.as_secs_f64());
            }
        }
        match page.next {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    facts
        .states
        .sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    Ok((facts, moving))
}

impl DayFacts {
    /// Seconds that so large a share of the jobs waited at most.
    pub fn wait(&self, share: f64) -> f64 {
        quantile(&self.waits, share).unwrap_or(f64::NAN)
    }
}

/// An agent over the day.
struct Shift {
    address: std::net::SocketAddr,
    account: Account,
    conduct: Arc<Conduct>,
    tally: Arc<Tally>,
    departures: Arc<AtomicU64>,
    is_evening: Arc<AtomicBool>,
    number: u32,
    hour: Duration,
}

impl Shift {
    /// Works some hours, is away for two or three without a word, and comes again when its lease
    /// is over.
    async fn work(self) {
        loop {
            let http = Http::new(self.address, &self.account.token);
            let unit_time = Duration::from_millis(UNIT_MILLISECONDS);
            let agent = Agent::new(&self.account, http, SLOTS, unit_time).with(&self.conduct);
            let until = Instant::now() + self.hour * (5 + self.number * 3 % 7);
            self.poll(agent, until).await;
            self.departures.fetch_add(1, Ordering::Relaxed);
            let away = self.hour * (2 + self.number % 2);
            let lease = Duration::from_secs(u64::from(LEASE_SECONDS) + 1);
            tokio::time::sleep(away.max(lease)).await;
        }
    }

    async fn poll(&self, mut agent: Agent, until: Instant) {
        // In the evening all but one stay.
        let stays = || self.is_evening.load(Ordering::Relaxed) && self.number != 2;
        while Instant::now() < until || stays() {
            match agent.poll(&self.tally).await {
                Ok(_) => tokio::time::sleep(POLL_GAP).await,
                Err(_) => {
                    self.tally.failures.fetch_add(1, Ordering::Relaxed);
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_come_in_order_and_most_of_them_in_the_day() {
        let dues: Vec<f64> = (0..1000).map(|number| due(number, 1000)).collect();
        assert!(dues.is_sorted());
        assert_eq!(dues[0], 0.0);
        assert!(dues[999] < 1.0);
        let daytime = dues
            .iter()
            .filter(|due| (8.0 / 24.0..18.0 / 24.0).contains(*due));
        assert!(daytime.count() > 600);
    }
}
