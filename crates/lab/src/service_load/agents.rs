//! Simulated agents: they hold units for a while and say that all files arrived.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use godwit_service_api::agent::{
    AgentDescription, BrowseAnswer, Browsed, FileEnd, FileOutcome, Lease, POLL_SECONDS, PROTOCOL,
    PollRequest, Share, Stop, UnitProgress, UnitResult,
};
use godwit_service_api::job::{FileError, WhoActs};
use godwit_service_api::preview::JobPreview;
use parking_lot::Mutex;
use serde::Deserialize;
use uuid::Uuid;

use super::{Account, Http};

/// Seconds that an agent with work lets the service hold a poll back, as real ones do.
const BUSY_WAIT: u64 = 2;

/// Between two polls, as of real agents.
const POLL_GAP: Duration = Duration::from_millis(20);

/// Rest after a poll that the service did not take.
const REST: Duration = Duration::from_millis(500);

/// Most results of a poll, as of real agents.
const RESULTS_MAX: usize = 16;

/// What all agents saw.
#[derive(Debug, Default)]
pub struct Tally {
    /// Polls that were answered.
    pub polls: AtomicU64,
    /// Polls that were refused or broke off.
    pub failures: AtomicU64,
    /// Units that were granted.
    pub grants: AtomicU64,
    /// Results of files that were taken in.
    pub files: AtomicU64,
    /// Seconds from the first poll that offered a slot to the grant.
    pub waits: Mutex<Vec<f64>>,
    /// Units end at once.
    pub hurries: AtomicBool,
    /// The agents end.
    pub over: AtomicBool,
}

impl Tally {
    /// What a counter has now.
    pub fn of(counter: &AtomicU64) -> u64 {
        counter.load(Ordering::Relaxed)
    }
}

/// What an agent does with its units beside holding them, and what it says of jobs that are not
/// submitted yet. By default nothing: it says of no unit how far it is, and all files arrive.
#[derive(Debug, Default)]
pub struct Conduct {
    /// Bytes a second of a unit.
    pub goodput: AtomicU64,
    /// Milliseconds that a unit takes, where it is not 0.
    pub unit_milliseconds: AtomicU64,
    /// Of 1000 files, so many fail. Which ones, their numbers decide.
    pub failing: u64,
    /// What each job would copy that a user wants to see before.
    pub preview: JobPreview,
}

/// A unit that is held.
#[derive(Debug)]
struct HeldUnit {
    since: Instant,
    goodput: u64,
    lease: Lease,
    share: Share,
    next_result: u64,
    files: Vec<UnitFile>,
    until: Instant,
}

/// The part of an answer that matters here: texts of URLs are passed over.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PollAnswer {
    grants: Vec<UnitGrant>,
    acknowledged: Vec<(Lease, u64)>,
    stop: Vec<Stop>,
    preview: Vec<AskedPreview>,
}

/// A user waits for it.
#[derive(Debug, Deserialize)]
struct AskedPreview {
    id: Uuid,
}

#[derive(Debug, Deserialize)]
struct UnitGrant {
    lease: Lease,
    share: Share,
    next_result: u64,
    work: UnitWork,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
enum UnitWork {
    Copy(Vec<UnitFile>),
}

#[derive(Debug, Deserialize)]
struct UnitFile {
    index: u64,
    bytes: Option<u64>,
}

/// What a poll brought.
#[derive(Debug)]
pub struct Brought {
    /// Units to do.
    pub grants: usize,
    /// Units to stop.
    pub stops: usize,
}

/// One agent.
#[derive(Debug)]
pub struct Agent {
    http: Http,
    request: PollRequest,
    slots: u32,
    unit_time: Duration,
    held: Vec<HeldUnit>,
    results: Vec<UnitResult>,
    offered: Option<Instant>,
    conduct: Arc<Conduct>,
}

impl Agent {
    /// Takes `slots` units at a time, each for `unit_time`.
    pub fn new(account: &Account, http: Http, slots: u32, unit_time: Duration) -> Agent {
        let description = AgentDescription {
            version: "simulated".to_owned(),
            host: account.name.clone(),
            labels: Vec::new(),
            endpoints: vec!["*".to_owned()],
            slots,
            joins_uploads: true,
        };
        Agent {
            http,
            request: PollRequest {
                protocol: PROTOCOL,
                agent: account.name.clone(),
                incarnation: Uuid::new_v4(),
                sequence: 0,
                description,
                free_slots: slots,
                units: Vec::new(),
                results: Vec::new(),
                wait_seconds: 0,
                renewed: None,
                removed: Vec::new(),
                browses: Vec::new(),
            },
            slots,
            unit_time,
            held: Vec::new(),
            results: Vec::new(),
            offered: None,
            conduct: Arc::default(),
        }
    }

    /// The same agent, which does this with its units.
    #[must_use]
    pub fn with(mut self, conduct: &Arc<Conduct>) -> Agent {
        self.conduct = Arc::clone(conduct);
        self
    }

    /// Ends what is due, and polls.
    ///
    /// # Errors
    /// The connection breaks, or the service refuses.
    pub async fn poll(&mut self, tally: &Tally) -> io::Result<Brought> {
        self.end_units(tally.hurries.load(Ordering::Relaxed));
        let free = (self.slots as usize).saturating_sub(self.held.len());
        let request = &mut self.request;
        request.sequence += 1;
        request.free_slots = u32::try_from(free).unwrap_or(u32::MAX);
        request.units = self.held.iter().map(HeldUnit::progress).collect();
        request.results = self.results.iter().take(RESULTS_MAX).cloned().collect();
        request.wait_seconds = match (self.results.is_empty(), self.held.is_empty()) {
            (false, _) => 0,
            (true, false) => BUSY_WAIT,
            (true, true) => POLL_SECONDS,
        };
        let body = serde_json::to_vec(&request)?;
        if free > 0 && self.offered.is_none() {
            self.offered = Some(Instant::now());
        }
        let answer: PollAnswer = self.http.must("POST", "/agent/v1/poll", &body).await?;
        let asked: Vec<Uuid> = answer.preview.iter().map(|asked| asked.id).collect();
        let brought = self.take(answer, tally);
        for id in asked {
            let found = Browsed::Preview(self.conduct.preview.clone());
            let body = serde_json::to_vec(&BrowseAnswer { id, found })?;
            // Its user may have gone: the service says so, and nothing is to be done.
            self.http.ask("POST", "/agent/v1/browse", &body).await?;
        }
        Ok(brought)
    }

    fn end_units(&mut self, all: bool) {
        let now = Instant::now();
        for unit in self.held.extract_if(.., |unit| all || unit.until <= now) {
            self.results.push(unit.into_result(self.conduct.failing));
        }
    }

    fn take(&mut self, answer: PollAnswer, tally: &Tally) -> Brought {
        let now = Instant::now();
        let of = |lease: &Lease| answer.acknowledged.iter().any(|(known, _)| known == lease);
        let taken = self.results.extract_if(.., |result| of(&result.lease));
        let files: usize = taken.map(|result| result.files.len()).sum();
        for stop in &answer.stop {
            self.results.retain(|result| result.lease != stop.lease);
            for mut unit in self.held.extract_if(.., |unit| unit.lease == stop.lease) {
                // What a stopped unit has not done it does not name.
                unit.files.clear();
                self.results.push(unit.into_result(0));
            }
        }
        let brought = Brought {
            grants: answer.grants.len(),
            stops: answer.stop.len(),
        };
        let conduct = &self.conduct;
        let goodput = conduct.goodput.load(Ordering::Relaxed);
        let unit_time = match conduct.unit_milliseconds.load(Ordering::Relaxed) {
            0 => self.unit_time,
            milliseconds => Duration::from_millis(milliseconds),
        };
        for grant in answer.grants {
            let UnitWork::Copy(files) = grant.work;
            self.held.push(HeldUnit {
                since: now,
                goodput,
                lease: grant.lease,
                share: grant.share,
                next_result: grant.next_result,
                files,
                until: now + unit_time,
            });
        }
        if brought.grants > 0
            && let Some(offered) = self.offered.take()
        {
            tally.waits.lock().push((now - offered).as_secs_f64());
        }
        let add = |counter: &AtomicU64, more: usize| {
            counter.fetch_add(more as u64, Ordering::Relaxed);
        };
        add(&tally.polls, 1);
        add(&tally.grants, brought.grants);
        add(&tally.files, files);
        brought
    }
}

impl HeldUnit {
    fn progress(&self) -> UnitProgress {
        let all: u64 = self.files.iter().filter_map(|file| file.bytes).sum();
        let milliseconds = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        let moved = (self.goodput / 1000).saturating_mul(milliseconds);
        let goodput = match self.goodput {
            0 => 1e8,
            goodput => goodput as f64,
        };
        UnitProgress {
            lease: self.lease,
            bytes: moved.min(all),
            files: 0,
            goodput,
            open_bytes: 0,
            setting: self.share,
            limited_by: Some("network".to_owned()),
        }
    }

    fn into_result(self, failing: u64) -> UnitResult {
        let unit = self.lease.unit.unsigned_abs();
        let ended = |file: UnitFile| {
            // An odd factor far from a power of two spreads neighbours.
            let number = unit
                .wrapping_mul(7919)
                .wrapping_add(file.index)
                .wrapping_mul(2_654_435_761)
                % 1000;
            if number < failing {
                return FileOutcome {
                    index: file.index,
                    bytes: 0,
                    end: FileEnd::Failed(failure(number)),
                };
            }
            let bytes = file.bytes.unwrap_or(0);
            let size = bytes;
            let end = FileEnd::Finished {
                size,
                checksum: None,
            };
            FileOutcome {
                index: file.index,
                bytes,
                end,
            }
        };
        UnitResult {
            lease: self.lease,
            sequence: self.next_result,
            files: self.files.into_iter().map(ended).collect(),
            found: Vec::new(),
            last: true,
            undivided: Vec::new(),
            error: None,
        }
    }
}

/// What servers say, in turn.
fn failure(number: u64) -> FileError {
    let (code, message, who, may_pass) = match number % 4 {
        0 => (
            "not_found",
            "550 No such file or directory",
            WhoActs::User,
            false,
        ),
        1 => ("permission", "550 Permission denied", WhoActs::User, false),
        2 => (
            "no_space",
            "552 Quota of the space token is used",
            WhoActs::Destination,
            false,
        ),
        _ => (
            "interrupted",
            "The server closed the data connection",
            WhoActs::Service,
            true,
        ),
    };
    FileError {
        code: code.to_owned(),
        message: message.to_owned(),
        who,
        may_pass,
    }
}

/// Polls until all agents are told to end.
pub async fn work(mut agent: Agent, tally: Arc<Tally>) {
    while !tally.over.load(Ordering::Relaxed) {
        match agent.poll(&tally).await {
            Ok(_) => tokio::time::sleep(POLL_GAP).await,
            Err(_) => {
                tally.failures.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(REST).await;
            }
        }
    }
}
