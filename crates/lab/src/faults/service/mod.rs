//! Faults of the transfer service: real processes that serve, agents, GridFTP servers and a
//! database, some of which die, stand still or cannot reach each other while jobs are done.
//!
//! The promises, for every plan:
//! - each job that was accepted ends;
//! - each file that is reported finished equals its source, and so does whatever has a final name;
//! - the bytes that were sent twice are at most those that were unacknowledged when a fault began
//!   or ended;
//! - no log, file or answer holds a secret, and no process ends by itself.
//!
//! [`plan`] draws what happens; `work` is what there is to do; `fleet` has the processes,
//! `balancer` the ways between agents and service, `user` who asks, `judge` what must be true.

mod balancer;
mod fleet;
mod judge;
mod plan;
mod poison;
mod soak;
mod stall;
mod user;
mod work;

use std::path::Path;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

pub use self::plan::{Database, Means, ServiceFault, ServiceKind, ServicePlan};
pub use self::soak::soak;
use self::{
    balancer::PollDelivery,
    fleet::Fleet,
    judge::{Judge, Progress},
    plan::ServiceKind as Kind,
    stall::StallClock,
    user::{Asked, User},
    work::{PlannedJob, Sources},
};
use super::Error;
use crate::file_error::io_error;
use crate::path::Rng;
use crate::peers::process::Signal;
use crate::state::{FOLDER_PREFIX, OwnedFolder};

/// How long jobs may take after the last fault. A file that failed waits 5, 10, 20, 40 s before it
/// is tried again, and a lease ends before.
const SETTLE_LIMIT: Duration = Duration::from_secs(180);

/// Between two looks at what is due.
const TICK: Duration = Duration::from_millis(50);

/// Between two looks at jobs, counters and destinations.
const LOOK: Duration = Duration::from_millis(500);

/// How often a plan may begin: on a machine that stands still, a program does not start in time.
const ATTEMPTS: u32 = 3;

/// How often the list of a job's files is asked for.
const ANSWERS: usize = 20;

/// A request that comes late comes after so long.
const LATE: Duration = Duration::from_millis(1500);

/// What came of a plan.
#[derive(Debug, Clone, Serialize)]
pub struct ServiceOutcome {
    /// What was to happen.
    pub plan: ServicePlan,
    /// From the first job to the end of the last, s.
    pub seconds: f64,
    /// Jobs that were accepted.
    pub jobs: usize,
    /// Files that were reported finished, or there already.
    pub files: u64,
    /// Bytes of files with final names.
    pub bytes: u64,
    /// Bytes that servers received beyond those.
    pub resent_bytes: u64,
    /// How many that may be.
    pub resent_max: u64,
    /// What is wrong, a line or more each.
    pub findings: Vec<String>,
}

/// Runs plans of one seed, any number at a time: each on a thread of its own.
#[derive(Debug)]
pub struct ServiceCampaign {
    seed: u64,
    database: Database,
    sources: Sources,
    folder: TempDir,
    _owned: OwnedFolder,
}

impl ServiceCampaign {
    /// Makes the files to copy.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn new(seed: u64, database: Database) -> Result<ServiceCampaign, Error> {
        let base = std::env::temp_dir();
        let folder = (tempfile::Builder::new().prefix(FOLDER_PREFIX))
            .tempdir_in(&base)
            .map_err(io_error(&base))?;
        let owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
        // PostgreSQL is another user's.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).map_err(io_error(folder.path()))?;
        let sources = folder.path().join("sources");
        let sources = Sources::make(&sources, seed).map_err(io_error(&sources))?;
        Ok(ServiceCampaign {
            seed,
            database,
            sources,
            folder,
            _owned: owned,
        })
    }

    /// The plan of a number.
    pub fn plan(&self, number: u64) -> ServicePlan {
        ServicePlan::draw(self.seed, number, self.database, fleet::means())
    }

    /// Runs one. The calling thread sees a file system of its own from then on.
    ///
    /// # Errors
    /// A program is missing or cannot be started. What faults led to is no error but a finding.
    pub fn run(&self, plan: &ServicePlan) -> Result<ServiceOutcome, Error> {
        let mut attempt = 1;
        loop {
            let name = format!("plan-{}-{attempt}", plan.number);
            let folder = self.folder.path().join(name);
            std::fs::create_dir(&folder).map_err(io_error(&folder))?;
            let run = ServiceRun::start(plan, &folder, &self.sources);
            match run.and_then(ServiceRun::finish) {
                Err(_) if attempt < ATTEMPTS => attempt += 1,
                outcome => {
                    std::fs::remove_dir_all(&folder).map_err(io_error(&folder))?;
                    return outcome;
                }
            }
        }
    }
}

/// A moment of a plan.
#[derive(Debug, Clone, Copy)]
struct Moment {
    at: Duration,
    fault: ServiceFault,
    ends: bool,
}

/// A plan that runs.
struct ServiceRun<'a> {
    plan: &'a ServicePlan,
    fleet: Fleet,
    user: User,
    jobs: Vec<Progress>,
    judge: Judge,
    secrets: Vec<String>,
    began: Instant,
    moments: Vec<Moment>,
}

impl<'a> ServiceRun<'a> {
    fn start(plan: &'a ServicePlan, folder: &Path, sources: &Sources) -> Result<Self, Error> {
        let mut rng = Rng::new(plan.seed ^ u64::from(std::process::id()), plan.number);
        let password = format!("planted-{:016x}{:016x}", rng.next_u64(), rng.next_u64());
        let mut fleet = Fleet::start(plan, folder, &sources.root, &password, fleet::means())?;
        let tokens = fleet.tokens()?;
        let token = tokens[0].clone();
        let secrets: Vec<String> = tokens.into_iter().chain([password.clone()]).collect();
        let mut user = User::new(fleet.addresses(), token, secrets.clone());
        let urls = fleet.urls();
        if !user.lend(&urls[work::TO_GUARDED], fleet::USER, &password) {
            let refused = format!("the credential was refused\n{}", fleet.log());
            fleet.findings.push(refused);
        }
        let jobs = work::jobs(plan, sources, &urls, &fleet.poisons());
        let roots = (0..urls.len()).map(|server| fleet.root(server).to_owned());
        let judge = Judge::new(roots.collect(), &jobs, plan.has(Kind::DiskFull));
        let moment = |fault: &ServiceFault, ends| {
            let at = fault.at_ms + if ends { fault.lasts_ms } else { 0 };
            Moment {
                at: Duration::from_millis(at),
                fault: *fault,
                ends,
            }
        };
        let faults = plan.faults.iter();
        let mut moments: Vec<_> = faults
            .flat_map(|fault| [moment(fault, false), moment(fault, true)])
            .collect();
        moments.sort_by_key(|moment| std::cmp::Reverse(moment.at));
        Ok(ServiceRun {
            plan,
            fleet,
            user,
            jobs: jobs.into_iter().map(Progress::new).collect(),
            judge,
            secrets,
            began: Instant::now(),
            moments,
        })
    }

    fn finish(mut self) -> Result<ServiceOutcome, Error> {
        let last = self.moments.first().map_or(Duration::ZERO, |last| last.at);
        let mut next_look = Duration::ZERO;
        let stalls = StallClock::start();
        loop {
            let stalled = stalls.take();
            if !stalled.is_zero() {
                // Leases ended meanwhile, and no limit of time was the service's.
                self.began += stalled;
                self.judge.disturbed();
            }
            let now = self.began.elapsed();
            while self.moments.last().is_some_and(|moment| moment.at <= now) {
                if let Some(moment) = self.moments.pop() {
                    self.judge.disturbed();
                    self.happen(moment)?;
                }
            }
            self.fleet.keep_up()?;
            self.talk(now);
            if now >= next_look {
                next_look = now + LOOK;
                self.look();
            }
            let over = self.moments.is_empty() && self.jobs.iter().all(Progress::is_over);
            if over || now > last + SETTLE_LIMIT {
                break;
            }
            std::thread::sleep(TICK);
        }
        let seconds = self.began.elapsed().as_secs_f64();
        self.look();
        for job in &self.jobs {
            let mut files = None;
            for _ in 0..ANSWERS {
                files = job.id().and_then(|id| self.user.files(id));
                if files.is_some() {
                    break;
                }
                self.fleet.keep_up()?;
                std::thread::sleep(LOOK);
            }
            self.judge.job(job, files);
        }
        self.user.look_around();
        let received = self.fleet.received();
        let verdict = self.judge.finish(received, &self.jobs);
        let mut findings = verdict.findings;
        findings.append(&mut self.user.leaks);
        if !findings.is_empty() {
            findings.push(self.fleet.log());
        }
        findings.extend(self.fleet.end(&self.secrets)?);
        Ok(ServiceOutcome {
            plan: self.plan.clone(),
            seconds,
            jobs: self.jobs.iter().filter(|job| job.id().is_some()).count(),
            files: verdict.files,
            bytes: verdict.bytes,
            resent_bytes: verdict.resent_bytes,
            resent_max: verdict.resent_max,
            findings,
        })
    }

    /// Submits and cancels what is due, again where the service forgot it.
    fn talk(&mut self, now: Duration) {
        for job in &mut self.jobs {
            let PlannedJob { due, cancels, .. } = job.planned;
            if due <= now && job.is_new() {
                let key = format!("{}-{}", self.plan.number, job.planned.name);
                job.submitted(self.user.submit(&job.planned.request, &key));
            }
            if let (true, Some(id)) = (
                !job.cancel_heard && cancels.is_some_and(|cancels| cancels <= now),
                job.id(),
            ) {
                job.cancel_heard = self.user.cancel(id);
            }
        }
    }

    fn look(&mut self) {
        for job in &mut self.jobs {
            let Some(id) = job.id() else { continue };
            match self.user.job(id) {
                Asked::Is(view) => job.view = Some(*view),
                Asked::Unknown if self.plan.forgets() => job.forgotten(),
                Asked::Unknown | Asked::NoAnswer => {}
            }
        }
        self.fleet.received();
        self.judge.look();
    }

    fn happen(&mut self, moment: Moment) -> Result<(), Error> {
        let Moment { fault, ends, .. } = moment;
        let fleet = &mut self.fleet;
        match (fault.kind, ends) {
            (Kind::AgentKilled, false) => fleet.kill_agent(fault.which)?,
            (Kind::AgentKilled, true) => fleet.want_agent(fault.which),
            (Kind::AgentPaused, false) => fleet.signal_agent(fault.which, Signal::STOP)?,
            (Kind::AgentPaused, true) => fleet.signal_agent(fault.which, Signal::CONT)?,
            (Kind::NodeKilled, false) => fleet.kill_node(fault.which)?,
            (Kind::NodeKilled | Kind::LeaderKilled, true) => fleet.want_nodes(),
            (Kind::LeaderKilled, false) => fleet.kill_node(fleet.leader())?,
            (Kind::LeaderPaused, false) => {
                let leader = fleet.leader();
                fleet.signal_node(leader, Signal::STOP)?;
            }
            (Kind::LeaderPaused, true) => fleet.signal_nodes(Signal::CONT)?,
            (Kind::DatabaseKilled, false) => fleet.crash_database()?,
            (Kind::DatabaseKilled, true) => fleet.begin_database()?,
            (Kind::ServerKilled, false) => fleet.kill_server(fault.which),
            (Kind::ServerKilled, true) => fleet.start_server(fault.which)?,
            (Kind::LinkCut, false) => fleet.deliver(None, PollDelivery::Cut),
            (Kind::OneLinkCut, false) => fleet.deliver(Some(fault.which), PollDelivery::Cut),
            (Kind::AnswersLost, false) => fleet.deliver(None, PollDelivery::AnswersLost),
            (Kind::LinkLate, false) => fleet.deliver(None, PollDelivery::Late(LATE)),
            (Kind::LinkCut | Kind::OneLinkCut | Kind::AnswersLost | Kind::LinkLate, true) => {
                fleet.deliver(None, PollDelivery::Works);
            }
            (Kind::DiskFull, false) => fleet.fill_disk()?,
            (Kind::DiskFull, true) => fleet.empty_disk()?,
            (Kind::DatabaseDiskFull, false) => fleet.fill_database_disk()?,
            (Kind::DatabaseDiskFull, true) => fleet.empty_database_disk()?,
            (Kind::SynchronousFailover, false) => fleet.crash_database()?,
            (Kind::AsynchronousFailover, false) => fleet.cut_replica_off()?,
            (Kind::SynchronousFailover | Kind::AsynchronousFailover, true) => {
                fleet.promote_replica()?;
            }
            (Kind::BackupRestored, back) => fleet.copy_database(back)?,
            (Kind::ClockOff, false) => fleet.set_clock(fault.which, fault.clock_seconds())?,
            (Kind::ClockOff, true) => fleet.set_clock(fault.which, 0)?,
            // These are jobs.
            (
                Kind::SourceHangs
                | Kind::SourceRefuses
                | Kind::SourceSendsNoise
                | Kind::UnitKillsAgents,
                _,
            ) => {}
        }
        if fault.kind.forgets() && ends {
            self.jobs.iter_mut().for_each(Progress::doubted);
        }
        Ok(())
    }
}
