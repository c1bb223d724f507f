//! An agent: asks the service for units, runs them by the client's library, and reports what became
//! of them.
//!
//! # Map
//! - [`held`]: the units that it holds, and what they have to report
//! - [`mod@unit`]: one unit as jobs of the client, on a thread of its own
//! - [`plan`]: what a grant asks of the client; [`listing`]: one level of a directory
//! - [`results`]: results on disk until the service has acknowledged them
//! - [`deaths`]: units that the process died with
//! - [`beat`]: that it runs, for health checks
//! - [`browsing`]: directories that users look into; [`preview`]: what a job would copy
//! - [`local`]: threads for file systems that may never answer
//! - [`removal`]: temporary files that no unit writes any more
//! - [`trace`]: what operators see of a unit
//! - [`link`]: one poll over HTTP; [`file_error`]: errors as the service keeps them
//!
//! One poll is under way at a time. It renews the lease, which the agent counts from sending it, on
//! its monotonic clock: ten seconds before the end no unit writes any more. Units that were stopped
//! so stay, and go on where the service still knows their leases; what they had begun is in their
//! journals. A restarted agent names no units, so the service grants them again, as the same
//! grants, and the journals resume them. Another agent that gets a unit after its lease was lost
//! begins files that are not complete from zero: partial files bear random names that only the
//! journal has.

mod beat;
mod browsing;
mod deaths;
mod file_error;
mod held;
mod link;
mod listing;
mod local;
mod plan;
mod preview;
mod removal;
mod results;
mod trace;
mod unit;

use std::{
    fs, io,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    time::Duration,
};

use godwit_client::spec::{Connections, Rates};
use godwit_service_api::agent::{
    AgentDescription, LEASE_SECONDS, POLL_SECONDS, PROTOCOL, PollRequest, PollResponse,
    SAFETY_SECONDS, StopReason,
};
use jiff::Timestamp;
use tokio::{
    sync::mpsc,
    time::{Instant, MissedTickBehavior, interval, sleep_until},
};
use uuid::Uuid;

pub(crate) use self::beat::{BEAT_FILE, BEAT_PERIOD};
pub use self::link::{Authentication, LinkError};
use self::{
    beat::Beat,
    browsing::{Browser, Task},
    deaths::Deaths,
    held::UnitTable,
    link::Link,
    plan::UnitSettings,
    results::{Queued, Results},
};
use crate::traces::Traces;

/// Wait of a poll while units run: their progress is reported as often.
const BUSY_WAIT: u64 = 2;

/// Between two polls.
const POLL_GAP: Duration = Duration::from_millis(20);

/// First and longest pause after polls that failed, before jitter.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));

/// Between two looks at what units have to report.
const TICK: Duration = Duration::from_secs(1);

/// Numbers of polls that are reserved at a time.
const SEQUENCES: u64 = 1 << 20;

/// What an agent is told when it starts.
#[derive(Clone, Debug)]
pub struct Config {
    /// URL of the service.
    pub service: String,
    /// How it proves itself to the service.
    pub authentication: Authentication,
    /// Unique among the agents of the service.
    pub name: String,
    /// Its own directory: identity, results, journals.
    pub state: PathBuf,
    /// Jobs can ask for them.
    pub labels: Vec<String>,
    /// Endpoints that it may reach, patterns.
    pub endpoints: Vec<String>,
    /// Units at a time, at least 1.
    pub slots: u32,
    /// What connections to endpoints have in common. Credentials of units come on top of it.
    pub connections: Connections,
    /// Users may use what `connections` log in with: only where the agent is the user's own.
    pub own_credentials: bool,
    /// Directories that `file` URLs may name.
    pub local: Vec<PathBuf>,
    /// How fast units may go.
    pub rates: Rates,
    /// Time for units to end after it was told to stop; then they are handed back.
    pub drain: Duration,
    /// Where spans go.
    pub traces: Traces,
}

/// Why an agent cannot run.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// Its directory.
    #[error("{}: {error}", .path.display())]
    State {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Another process has its directory.
    #[error("{}: another agent runs there", .0.display())]
    InUse(PathBuf),
    /// The way to the service.
    #[error(transparent)]
    Link(#[from] LinkError),
}

/// Runs until `stop`, then until its units have ended or were handed back.
///
/// # Errors
/// Where it cannot begin. The service may be out of reach for as long as it likes.
pub async fn run(config: Config, stop: impl Future<Output = ()>) -> Result<(), AgentError> {
    let (events, mut told) = mpsc::unbounded_channel();
    let link = Link::new(&config.service, &config.authentication)?;
    let (gone, mut removed) = mpsc::unbounded_channel();
    let mut agent = Agent::open(config, events, gone)?;
    let browser = Browser::new(link.clone(), Arc::clone(&agent.settings));
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    tokio::pin!(stop);
    let mut poll: Option<(Instant, usize, Polling)> = None;
    let mut next_poll = Instant::now();
    let mut drains_until: Option<Instant> = None;
    // The answer to the poll that was under way may have had units; the next one has them again.
    let mut polled_since = false;
    loop {
        if drains_until.is_some_and(|until| agent.is_over(until, polled_since)) {
            return Ok(());
        }
        if poll.is_none() && Instant::now() >= next_poll {
            let request = agent.request(drains_until.is_some(), browser.running());
            let sent = Instant::now();
            let link = link.clone();
            let reported = request.removed.len();
            poll = Some((
                sent,
                reported,
                Box::pin(async move { link.poll(&request).await }),
            ));
        }
        let idle = poll.is_none();
        let polling = async {
            match &mut poll {
                Some((.., polling)) => polling.as_mut().await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            answer = polling => {
                let of = poll.take().map(|(sent, reported, _)| (sent, reported));
                let (sent, reported) = of.unwrap_or((Instant::now(), 0));
                polled_since = drains_until.is_some();
                next_poll = Instant::now() + match answer {
                    Ok(mut answer) => {
                        browser.stop(&answer.browses_over);
                        let directories = std::mem::take(&mut answer.browse);
                        let jobs = std::mem::take(&mut answer.preview);
                        let questions = directories.into_iter().map(Task::Directory);
                        let questions = questions.chain(jobs.into_iter().map(Task::Job));
                        questions.for_each(|question| browser.start(question));
                        agent.on_answer((sent, reported), answer)
                    }
                    Err(error) => agent.on_failure(&error),
                };
            }
            Some(event) = told.recv() => {
                // A result does not wait for the answer to a poll that the service holds back.
                let urgent = agent.held.note(event);
                agent.store_results();
                if urgent && agent.failures == 0 {
                    let last = poll.take().map_or(next_poll, |(sent, ..)| sent + POLL_GAP);
                    next_poll = last.max(Instant::now());
                }
            }
            Some(id) = removed.recv() => agent.removed.push(id),
            () = sleep_until(next_poll), if idle => {}
            _ = ticks.tick() => agent.tick(),
            () = sleep_until(agent.lease_until), if agent.held.runs() => agent.on_lease_end(),
            () = &mut stop, if drains_until.is_none() => {
                tracing::info!(units = agent.held.len(), "agent drains");
                drains_until = Some(Instant::now() + agent.drain);
                poll = None;
                next_poll = Instant::now();
            }
        }
        if drains_until.is_some_and(|until| Instant::now() >= until) {
            agent.held.stop_all(StopReason::Paused);
            agent.store_results();
        }
    }
}

type Polling = Pin<Box<dyn Future<Output = Result<PollResponse, LinkError>> + Send>>;

struct Agent {
    name: String,
    incarnation: Uuid,
    description: AgentDescription,
    drain: Duration,
    sequences: Sequences,
    held: UnitTable,
    settings: Arc<UnitSettings>,
    results: Results,
    /// Temporary files that are gone, until the service has heard so.
    removed: Vec<i64>,
    gone: mpsc::UnboundedSender<i64>,
    /// No unit writes after this.
    lease_until: Instant,
    /// Credentials are as good as the service had them then.
    renewed: Option<Timestamp>,
    /// Until the first answer: an earlier process held what it grants, and may have begun it.
    has_run_before: bool,
    beat: Beat,
    /// The service said so.
    drains: bool,
    /// Polls that failed, one after the other.
    failures: u32,
    /// Two processes in one directory would take each other's results.
    _lock: fs::File,
}

impl Agent {
    fn open(
        config: Config,
        events: mpsc::UnboundedSender<unit::Event>,
        gone: mpsc::UnboundedSender<i64>,
    ) -> Result<Self, AgentError> {
        let state = config.state.clone();
        let failed = |error| AgentError::State {
            path: state.clone(),
            error,
        };
        let journals = state.join("journals");
        fs::create_dir_all(&journals).map_err(failed)?;
        let lock = fs::File::create(state.join("lock")).map_err(failed)?;
        if lock.try_lock().is_err() {
            return Err(AgentError::InUse(state));
        }
        let slots = config.slots.max(1);
        let has_run_before = state.join("incarnation").exists();
        let settings = Arc::new(UnitSettings {
            journals,
            connections: config.connections,
            own_credentials: config.own_credentials,
            local: config.local,
            rates: config.rates,
            traces: config.traces,
        });
        Ok(Self {
            incarnation: incarnation(&state).map_err(failed)?,
            sequences: Sequences::open(&state).map_err(failed)?,
            results: Results::open(&state.join("results")).map_err(failed)?,
            name: config.name,
            description: AgentDescription {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                host: host_name(),
                labels: config.labels,
                endpoints: config.endpoints,
                slots,
                joins_uploads: true,
            },
            drain: config.drain,
            held: UnitTable::new(
                slots,
                Arc::clone(&settings),
                Deaths::open(&state.join("starts")).map_err(failed)?,
                events,
            ),
            settings,
            removed: Vec::new(),
            gone,
            lease_until: Instant::now(),
            renewed: None,
            has_run_before,
            beat: Beat::new(&state),
            drains: false,
            failures: 0,
            _lock: lock,
        })
    }

    fn request(&mut self, drains: bool, browses: Vec<Uuid>) -> PollRequest {
        let takes = !drains && !self.drains && !self.results.is_full();
        let results = self.results.next();
        let free_slots = if takes { self.held.free_slots() } else { 0 };
        PollRequest {
            protocol: PROTOCOL,
            agent: self.name.clone(),
            incarnation: self.incarnation,
            sequence: self.sequences.next(),
            description: AgentDescription {
                // The service sees that nothing more is taken, also when this agent has ended.
                slots: if drains { 0 } else { self.description.slots },
                ..self.description.clone()
            },
            free_slots,
            units: self.held.progress(),
            renewed: self.renewed,
            removed: self.removed.clone(),
            wait_seconds: match (
                drains || !results.is_empty(),
                self.held.is_empty() && browses.is_empty(),
            ) {
                (true, _) => 0,
                (false, false) => BUSY_WAIT,
                (false, true) => POLL_SECONDS,
            },
            results,
            browses,
        }
    }

    /// Time until the next poll.
    fn on_answer(&mut self, (sent, reported): (Instant, usize), answer: PollResponse) -> Duration {
        self.failures = 0;
        self.beat.answered(Instant::now());
        self.removed.drain(..reported);
        if !answer.remove.is_empty() {
            removal::start(answer.remove, &self.settings, self.gone.clone());
        }
        self.drains = answer.drain;
        let lease = answer
            .lease_seconds
            .clamp(SAFETY_SECONDS + 1, 10 * LEASE_SECONDS);
        self.lease_until = sent + Duration::from_secs(lease - SAFETY_SECONDS);
        for (lease, sequence) in answer.acknowledged {
            self.results.acknowledged(lease, sequence);
            self.held.acknowledged(lease, sequence);
        }
        for stop in answer.stop {
            if stop.why == StopReason::Fenced {
                self.results.forget(stop.lease);
            }
            self.held.stop(stop);
        }
        for (lease, share) in answer.shares {
            self.held.share(lease, share);
        }
        for (lease, credentials) in answer.credentials {
            self.held.renew(lease, credentials);
        }
        self.renewed = answer.renewed.or(self.renewed);
        let is_again = std::mem::take(&mut self.has_run_before);
        for mut grant in answer.grants {
            grant.again |= is_again;
            match self.results.of(grant.lease) {
                // It has ended, and the service will hear so.
                Some(Queued { last: true, .. }) => continue,
                Some(Queued { next, .. }) => grant.next_result = grant.next_result.max(next),
                None => {}
            }
            self.held.grant(grant);
        }
        if Instant::now() < self.lease_until {
            self.held.resume();
        }
        self.store_results();
        POLL_GAP
    }

    fn on_failure(&mut self, error: &LinkError) -> Duration {
        tracing::warn!(%error, failures = self.failures, "poll failed");
        let (first, longest) = BACKOFF;
        let pause = first
            .saturating_mul(1 << self.failures.min(10))
            .min(longest);
        self.failures = self.failures.saturating_add(1);
        // From half to all of it: agents do not come back in step.
        pause / 2 + pause.mul_f64(jitter() / 2.0)
    }

    fn tick(&mut self) {
        self.held.seal();
        self.store_results();
        self.results.retry_writes();
        self.beat.tick(Instant::now());
    }

    fn store_results(&mut self) {
        for result in self.held.take_reports() {
            self.results.push(result);
        }
    }

    fn on_lease_end(&mut self) {
        tracing::warn!("the lease ends: units stop until the service answers");
        self.held.suspend();
    }

    /// Nothing is left to do or to report; or the service has not answered for too long.
    fn is_over(&self, drains_until: Instant, polled_since: bool) -> bool {
        let reported = polled_since && self.held.is_empty() && self.results.is_empty();
        reported || Instant::now() > drains_until + Duration::from_secs(10)
    }
}

/// 0 to 1.
fn jitter() -> f64 {
    let random = u32::from_be_bytes(*Uuid::new_v4().as_bytes().first_chunk().unwrap_or(&[0; 4]));
    f64::from(random) / f64::from(u32::MAX)
}

fn host_name() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

/// Made once for a directory.
fn incarnation(state: &Path) -> io::Result<Uuid> {
    let path = state.join("incarnation");
    match fs::read_to_string(&path) {
        Ok(text) => Uuid::parse_str(text.trim()).map_err(io::Error::other),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let made = Uuid::new_v4();
            results::write_durably(&path, made.to_string().as_bytes())?;
            Ok(made)
        }
        Err(error) => Err(error),
    }
}

/// Numbers of polls; they rise over restarts too.
struct Sequences {
    path: PathBuf,
    next: u64,
    reserved: u64,
}

impl Sequences {
    fn open(state: &Path) -> io::Result<Self> {
        let path = state.join("sequence");
        let reserved = match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map_err(io::Error::other)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => 0,
            Err(error) => return Err(error),
        };
        let mut sequences = Self {
            path,
            next: reserved + 1,
            reserved,
        };
        sequences.reserve()?;
        Ok(sequences)
    }

    fn reserve(&mut self) -> io::Result<()> {
        self.reserved += SEQUENCES;
        results::write_durably(&self.path, self.reserved.to_string().as_bytes())
    }

    fn next(&mut self) -> u64 {
        let sequence = self.next;
        self.next += 1;
        if self.next > self.reserved
            && let Err(error) = self.reserve()
        {
            tracing::warn!(%error, "numbers of polls cannot be reserved");
        }
        sequence
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_and_numbers_of_polls_outlive_a_restart() {
        let state = tempfile::tempdir().unwrap();
        let first = incarnation(state.path()).unwrap();
        let mut sequences = Sequences::open(state.path()).unwrap();
        let last = (0..3).map(|_| sequences.next()).last().unwrap();
        assert_eq!(incarnation(state.path()).unwrap(), first);
        assert!(Sequences::open(state.path()).unwrap().next() > last);
    }
}
