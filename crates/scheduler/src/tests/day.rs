//! A day of a site with two hundred users, in virtual time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use godwit_tune::random::Random;

use super::world::{GIB, agent, configured, jain, key, of_class, queue, seconds, sessions};
use crate::{
    AgentState, Class, Config, EndpointState, Grant, LeaseId, QueueKey, QueueState, Scheduler,
    ShareConfig,
};

const HOUR: f64 = 3600.0;
const ENDPOINTS: u64 = 8;
const AGENTS: u64 = 10;
const SLOTS: u32 = 4;
/// Sessions that an endpoint takes.
const SESSIONS: u32 = 16;
/// Seconds of a unit of 4 GiB.
const UNIT_SECONDS: f64 = 200.0;
/// Users with more to move than a day's share, and units of each.
const HEAVY: usize = 10;
const HEAVY_UNITS: u32 = 250;
/// Units at a time of the user who has a limit.
const LIMITED: u32 = 3;
/// Arrivals in each hour, as parts of the mean.
const BY_HOUR: [f64; 24] = [
    0.3, 0.2, 0.2, 0.2, 0.2, 0.3, 0.5, 0.9, 1.6, 2.0, 2.1, 2.0, 1.6, 1.8, 2.0, 2.0, 1.8, 1.4, 0.8,
    0.6, 0.5, 0.4, 0.3, 0.3,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrival(usize),
    /// The unit is done, or its endpoint did not answer.
    UnitEnd(LeaseId, bool),
    AgentDies(u64),
    AgentReturns(u64),
    Endpoint(u64, bool),
}

struct Job {
    key: QueueKey,
    state: QueueState,
    left: u32,
    running: u32,
    arrived: Duration,
    /// When its first unit started.
    started: Option<Duration>,
    ended: Option<Duration>,
    seconds: f64,
}

struct Day {
    scheduler: Scheduler,
    config: Config,
    jobs: Vec<Job>,
    events: BTreeSet<(Duration, Event)>,
    running: BTreeMap<LeaseId, Grant>,
    down: BTreeSet<String>,
    now: Duration,
    moved: BTreeMap<String, u64>,
    /// What the heavy users had when the first of them was done.
    heavy: Option<Vec<u64>>,
    random: Random,
}

fn endpoint(number: u64) -> String {
    format!("gsiftp://e{}.org", number % ENDPOINTS)
}

fn heavy(user: usize) -> String {
    format!("heavy/u{user}")
}

fn mover(number: u64) -> AgentState {
    agent(&format!("h{}", number / 2), SLOTS)
}

impl Day {
    fn new(seed: u64) -> Self {
        let names: Vec<String> = (0..ENDPOINTS).map(endpoint).collect();
        let limits: Vec<_> = names
            .iter()
            .map(|name| (&**name, sessions(SESSIONS)))
            .collect();
        let mut config = configured(&limits);
        let limited = ShareConfig {
            units: Some(LIMITED),
            ..ShareConfig::default()
        };
        config.shares.insert("users/u0".to_owned(), limited);
        // The two agents of the first host share a budget.
        config.hosts.insert("h0".to_owned(), 2 * SLOTS - 2);
        Self {
            scheduler: Scheduler::new(config.clone()),
            config,
            jobs: Vec::new(),
            events: BTreeSet::new(),
            running: BTreeMap::new(),
            down: BTreeSet::new(),
            now: Duration::ZERO,
            moved: BTreeMap::new(),
            heavy: None,
            random: Random::new(seed),
        }
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.random.next_u64() % limit
    }

    fn at(&mut self, time: f64, event: Event) {
        self.events.insert((seconds(time), event));
    }

    fn submit(&mut self, share: &str, class: Class, units: u32, bytes: u64, time: f64) {
        let job = self.jobs.len();
        let source = self.below(ENDPOINTS);
        let destination = source + 1 + self.below(ENDPOINTS - 1);
        let state = QueueState {
            unit_bytes: bytes,
            ready_bytes: u64::from(units) * bytes,
            created: seconds(time),
            started_any: false,
            ..of_class(class, queue(share, units))
        };
        #[allow(clippy::cast_precision_loss)]
        let part = bytes as f64 / (4 * GIB) as f64;
        self.jobs.push(Job {
            key: key(job as u128, &endpoint(source), &endpoint(destination)),
            state,
            left: units,
            running: 0,
            arrived: seconds(time),
            started: None,
            ended: None,
            seconds: 1.0 + UNIT_SECONDS * part,
        });
        self.at(time, Event::Arrival(job));
    }

    /// What comes in the day.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "sizes are positive and bounded"
    )]
    fn plan(&mut self) {
        for user in 0..HEAVY {
            // Two jobs each: the same for all, from and to other endpoints.
            for _ in 0..2 {
                self.submit(&heavy(user), Class::Normal, HEAVY_UNITS / 2, 4 * GIB, 60.0);
            }
        }
        for (hour, factor) in (0_u32..).zip(BY_HOUR) {
            for _ in 0..(factor * 30.0) as u32 {
                let time = HOUR * (f64::from(hour) + self.random.unit());
                let user = format!("users/u{}", self.below(190));
                // Pareto: most jobs are small, a few are most of the bytes.
                let size = (0.05 * self.random.unit().max(1e-4).powf(-1.0 / 1.1)).min(1000.0);
                let (units, bytes) = if size <= 4.0 {
                    (1, (size * GIB as f64) as u64)
                } else {
                    ((size / 4.0) as u32, 4 * GIB)
                };
                let class = match self.below(20) {
                    0 => Class::Urgent,
                    1 => Class::Scavenger,
                    _ => Class::Normal,
                };
                self.submit(&user, class, units, bytes, time);
            }
        }
        for agent in 0..AGENTS {
            self.scheduler
                .set_agent(&format!("agent{agent}"), mover(agent));
            let dies = HOUR * (1.0 + 20.0 * self.random.unit());
            self.at(dies, Event::AgentDies(agent));
            self.at(dies + 1200.0, Event::AgentReturns(agent));
        }
        for (number, hour) in [(2, 5.0), (5, 11.0)] {
            self.at(hour * HOUR, Event::Endpoint(number, false));
            self.at((hour + 1.0) * HOUR, Event::Endpoint(number, true));
        }
    }

    fn is_down(&self, key: &QueueKey) -> bool {
        self.down.contains(&*key.source) || self.down.contains(&*key.destination)
    }

    fn tell(&mut self, job: usize) {
        let job = &mut self.jobs[job];
        job.state.ready = job.left;
        job.state.ready_bytes = u64::from(job.left) * job.state.unit_bytes;
        job.state.ready_files = u64::from(job.left);
        self.scheduler.set_queue(&job.key, job.state.clone());
    }

    fn end(&mut self, lease: LeaseId, is_done: bool) {
        let Some(grant) = self.running.remove(&lease) else {
            return;
        };
        let number = usize::try_from(grant.queue.job).unwrap();
        let job = &mut self.jobs[number];
        job.running -= 1;
        if is_done {
            let bytes = job.state.unit_bytes;
            *self.moved.entry(job.state.share.clone()).or_default() += bytes;
            self.scheduler.lease_ended(lease, bytes, 1, self.now);
            if job.left == 0 && job.running == 0 {
                job.ended = Some(self.now);
                self.scheduler.remove_queue(&grant.queue);
                if self.heavy.is_none() && number < 2 * HEAVY {
                    let moved = |user| self.moved.get(&heavy(user)).copied().unwrap_or(0);
                    self.heavy = Some((0..HEAVY).map(moved).collect());
                }
            }
        } else {
            job.left += 1;
            self.scheduler.lease_ended(lease, 0, 0, self.now);
            self.tell(number);
        }
    }

    fn end_all(&mut self, is_lost: impl Fn(&Grant) -> bool) {
        let lost = self.running.values().filter(|grant| is_lost(grant));
        let lost: Vec<LeaseId> = lost.map(|grant| grant.lease).collect();
        lost.into_iter().for_each(|lease| self.end(lease, false));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Arrival(job) => self.tell(job),
            Event::UnitEnd(lease, is_done) => self.end(lease, is_done),
            Event::AgentDies(number) => {
                let name = format!("agent{number}");
                self.scheduler.remove_agent(&name);
                self.end_all(|grant| grant.agent == name);
            }
            Event::AgentReturns(number) => {
                self.scheduler
                    .set_agent(&format!("agent{number}"), mover(number));
            }
            Event::Endpoint(number, is_up) => {
                let name = endpoint(number);
                let state = if is_up {
                    self.down.remove(&name);
                    EndpointState::Open
                } else {
                    self.down.insert(name.clone());
                    EndpointState::Down
                };
                self.config.endpoints.get_mut(&*name).unwrap().state = state;
                self.scheduler.configure(self.config.clone());
                self.end_all(|grant| {
                    !is_up && (*grant.queue.source == *name || *grant.queue.destination == *name)
                });
            }
        }
    }

    fn step(&mut self) {
        for grant in self.scheduler.step(self.now) {
            let job = &mut self.jobs[usize::try_from(grant.queue.job).unwrap()];
            job.left -= 1;
            job.running += 1;
            job.state.started_any = true;
            job.started.get_or_insert(self.now);
            let length = job.seconds;
            let is_down = self.is_down(&grant.queue);
            let length = if is_down { 30.0 } else { length };
            let end = self.now + seconds(length);
            self.events
                .insert((end, Event::UnitEnd(grant.lease, !is_down)));
            self.running.insert(grant.lease, grant);
        }
        self.check_budgets();
    }

    fn check_budgets(&self) {
        let mut of_endpoint: BTreeMap<&str, u32> = BTreeMap::new();
        let mut of_agent: BTreeMap<&str, u32> = BTreeMap::new();
        let mut of_limited = 0;
        for grant in self.running.values() {
            for name in [&grant.queue.source, &grant.queue.destination] {
                *of_endpoint.entry(name).or_default() += grant.share.concurrency;
            }
            *of_agent.entry(&grant.agent).or_default() += 1;
            let job = &self.jobs[usize::try_from(grant.queue.job).unwrap()];
            of_limited += u32::from(job.state.share == "users/u0");
        }
        assert!(of_endpoint.values().all(|used| *used <= SESSIONS));
        // The first unit of a job may run beside full slots.
        assert!(of_agent.values().all(|used| *used <= SLOTS + 1));
        let first_host = ["agent0", "agent1"].map(|name| of_agent.get(name).unwrap_or(&0));
        assert!(first_host.into_iter().sum::<u32>() <= 2 * SLOTS - 2);
        assert!(of_limited <= LIMITED);
        assert!(
            self.down
                .iter()
                .all(|name| of_endpoint.get(&**name).unwrap_or(&0) <= &1)
        );
    }

    fn run(&mut self) {
        self.plan();
        while let Some((at, event)) = self.events.pop_first() {
            self.now = at;
            self.happen(event);
            if self.events.first().is_none_or(|next| next.0 > at) {
                self.step();
            }
        }
    }
}

#[test]
fn a_day_of_two_hundred_users_ends_well() {
    let mut day = Day::new(7);
    day.run();
    // Every job ends.
    assert!(day.running.is_empty());
    for job in &day.jobs {
        assert!(job.ended.is_some() && job.left == 0, "{:?}", job.key);
    }
    // Small jobs wait for the next slot. An endpoint that is down makes them wait for it.
    let was_down = |job: &Job| {
        [(2, 5.0), (5, 11.0)].iter().any(|(number, hour)| {
            let name = endpoint(*number);
            let ends = [&*job.key.source, &*job.key.destination];
            let arrived = job.arrived.as_secs_f64() / HOUR;
            ends.contains(&&*name) && (hour - 0.5..hour + 1.5).contains(&arrived)
        })
    };
    let small = day.jobs.iter().filter(|job| {
        let is_scavenger = job.state.class == Class::Scavenger;
        job.state.unit_bytes < GIB && !is_scavenger && !was_down(job)
    });
    let mut waits: Vec<f64> = small
        .map(|job| (job.started.unwrap() - job.arrived).as_secs_f64())
        .collect();
    waits.sort_by(f64::total_cmp);
    let p99 = waits[waits.len() * 99 / 100];
    let index = jain(
        day.heavy
            .clone()
            .unwrap()
            .into_iter()
            .map(|bytes| bytes as f64),
    );
    println!(
        "{} jobs in {:.1} h; {} small ones waited {:.0} s (p50), {p99:.0} s (p99); Jain {index:.3}",
        day.jobs.len(),
        day.now.as_secs_f64() / HOUR,
        waits.len(),
        waits[waits.len() / 2],
    );
    assert!(p99 <= 120.0, "{p99}");
    assert!(index >= 0.95, "{:?}", day.heavy);
}
