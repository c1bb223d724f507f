//! A soak of the transfer service: users submit, cancel and pause jobs for minutes while an agent
//! and a process that serves die again and again. The others must not grow, every job must end, and
//! receipts must be true.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use godwit_service_api::job::{FileRequest, FileState, JobOptions, JobRequest, JobState};

use super::fleet::Fleet;
use super::plan::{Database, Means, ServicePlan};
use super::user::{Asked, User};
use super::work::{FROM, Sources, TO};
use crate::faults::Error;
use crate::faults::watch::difference;
use crate::file_error::io_error;
use crate::path::Rng;
use crate::soak::{Done, Length, Level, Soak, UsageSample, verdict};
use crate::state::{FOLDER_PREFIX, OwnedFolder};

/// Jobs at a time.
const JOBS: usize = 6;

/// How long the last jobs may take.
const SETTLE_LIMIT: Duration = Duration::from_secs(120);

/// Longest pause of a job, and rest of a process that was killed.
const REST: Duration = Duration::from_secs(5);

/// Between two looks.
const LOOK: Duration = Duration::from_millis(300);

/// Chance of each act at a look.
const CANCELED: f64 = 0.02;
const PAUSED: f64 = 0.03;
const AGENT_KILLED: f64 = 0.015;
const NODE_KILLED: f64 = 0.01;

/// Growth of the database that is explained by a job that is kept, bytes.
const JOB_BYTES: u64 = 60_000;

/// The agent and the process that live all the time, and those that die.
const LIVES: usize = 0;
const DIES: usize = 1;

/// A job that has not ended.
struct Open {
    id: String,
    folder: String,
    /// Of its source.
    files: u64,
    canceled: bool,
    resumes: Option<Instant>,
    /// As it was at the last look.
    state: JobState,
}

/// Runs one over PostgreSQL; `tell` hears a line now and then.
///
/// # Errors
/// A program is missing or does not start. What goes wrong under load is no error but a finding.
pub fn soak(seed: u64, length: Length, tell: &mut dyn FnMut(&str)) -> Result<Soak, Error> {
    let base = std::env::temp_dir();
    let folder = (tempfile::Builder::new().prefix(FOLDER_PREFIX))
        .tempdir_in(&base)
        .map_err(io_error(&base))?;
    let _owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(folder.path(), open).map_err(io_error(folder.path()))?;
    let sources = folder.path().join("sources");
    let sources = Sources::make(&sources, seed).map_err(io_error(&sources))?;
    let plan = ServicePlan {
        seed,
        number: 0,
        database: Database::Postgres,
        nodes: 2,
        doubled: false,
        faults: Vec::new(),
    };
    let means = Means {
        disks: false,
        clocks: false,
    };
    let mut fleet = Fleet::start(&plan, folder.path(), &sources.root, "planted-soak", means)?;
    let token = fleet.tokens()?.swap_remove(0);
    let user = User::new(fleet.addresses(), token, Vec::new());
    let mut run = SoakRun {
        rng: Rng::new(seed, 0),
        user,
        urls: fleet.urls(),
        to: fleet.root(TO).to_owned(),
        sources,
        open: Vec::new(),
        done: Done::default(),
        findings: Vec::new(),
    };
    let began = Instant::now();
    let (mut samples, mut next_sample) = (Vec::new(), Instant::now());
    let mut back: BTreeMap<&'static str, Instant> = BTreeMap::new();
    let mut first_size = None;
    while began.elapsed() < length.load {
        fleet.keep_up()?;
        run.act();
        if run.rng.chance(AGENT_KILLED) && !back.contains_key("agent") {
            fleet.kill_agent(DIES)?;
            run.done.cut_short += 1;
            back.insert("agent", Instant::now() + REST);
        }
        if run.rng.chance(NODE_KILLED) && !back.contains_key("node") {
            fleet.kill_node(DIES)?;
            run.done.cut_short += 1;
            back.insert("node", Instant::now() + REST);
        }
        if back.get("agent").is_some_and(|at| *at <= Instant::now()) {
            fleet.want_agent(DIES);
            back.remove("agent");
        }
        if back.get("node").is_some_and(|at| *at <= Instant::now()) {
            fleet.want_nodes();
            back.remove("node");
        }
        if next_sample <= Instant::now() {
            next_sample += length.interval;
            let seconds = began.elapsed().as_secs_f64();
            if first_size.is_none() && began.elapsed() > length.load / 5 {
                first_size = Some((run.done.commands, fleet.database_bytes()));
            }
            for (side, pid) in fleet.members(LIVES) {
                if let Some(level) = Level::of(pid) {
                    tell(&format!("{seconds:7.1} s {side}: {level}"));
                    samples.push(UsageSample {
                        seconds,
                        side,
                        level,
                    });
                }
            }
        }
        std::thread::sleep(LOOK);
    }
    fleet.want_agent(DIES);
    fleet.want_nodes();
    let seconds = began.elapsed().as_secs_f64();
    run.settle(&mut fleet)?;
    let SoakRun {
        mut findings, done, ..
    } = run;
    if let Some((jobs, bytes)) = first_size {
        let now = fleet.database_bytes();
        let most = bytes + bytes / 10 + (done.commands - jobs) * JOB_BYTES;
        tell(&format!(
            "database: {bytes} bytes after {jobs} jobs, {now} after {}",
            done.commands
        ));
        if now > most {
            findings.push(format!("the database has {now} bytes, had {bytes}"));
        }
    }
    findings.extend(fleet.end(&["planted-soak".to_owned()])?);
    Ok(Soak {
        seed,
        seconds,
        done,
        verdicts: verdict::judge(&samples, seconds),
        samples,
        findings,
    })
}

/// What the user does.
struct SoakRun {
    rng: Rng,
    user: User,
    urls: Vec<String>,
    to: PathBuf,
    sources: Sources,
    open: Vec<Open>,
    done: Done,
    findings: Vec<String>,
}

impl SoakRun {
    /// Looks at jobs, and submits, cancels, pauses or resumes some.
    fn act(&mut self) {
        self.look();
        if self.open.len() < JOBS {
            self.submit();
        }
        for number in 0..self.open.len() {
            let (cancels, pauses) = (self.rng.chance(CANCELED), self.rng.chance(PAUSED));
            let job = &mut self.open[number];
            if cancels && !job.canceled {
                job.canceled = self.user.cancel(&job.id);
            } else if job.resumes.is_some_and(|at| at <= Instant::now()) {
                if self.user.change(&job.id, "resume") {
                    job.resumes = None;
                }
            } else if pauses && job.resumes.is_none() && self.user.change(&job.id, "pause") {
                job.resumes = Some(Instant::now() + REST);
            }
        }
    }

    fn submit(&mut self) {
        let folders = ["small", "large", "tree"];
        let choice = self.rng.up_to(folders.len() as u64 - 1);
        let source = folders[usize::try_from(choice).unwrap_or(0)];
        let number = self.done.commands;
        let folder = format!("soak-{number}");
        let request = JobRequest {
            files: vec![FileRequest {
                source: format!("{}/{source}", self.urls[FROM]),
                destination: format!("{}/{folder}", self.urls[TO]),
                recursive: true,
                ..FileRequest::default()
            }],
            options: JobOptions {
                name: Some(folder.clone()),
                ..JobOptions::default()
            },
        };
        match self.user.submit(&request, &folder) {
            Ok(Some(job)) => {
                self.done.commands += 1;
                let files = self.sources.below(source).count() as u64;
                self.open.push(Open {
                    id: job.id.to_string(),
                    folder,
                    files,
                    canceled: false,
                    resumes: None,
                    state: JobState::Queued,
                });
            }
            // No answer: again, with the same key.
            Ok(None) => {}
            Err(why) => self.findings.push(format!("{folder} was refused: {why}")),
        }
    }

    /// Judges the jobs that have ended.
    fn look(&mut self) {
        let mut number = 0;
        while number < self.open.len() {
            let id = self.open[number].id.clone();
            let Asked::Is(view) = self.user.job(&id) else {
                number += 1;
                continue;
            };
            if !view.state.is_final() {
                let job = &mut self.open[number];
                job.state = view.state;
                // The answer to the request for its pause may be lost.
                if view.state == JobState::Paused && job.resumes.is_none() {
                    job.resumes = Some(Instant::now() + REST);
                }
                number += 1;
                continue;
            }
            let job = self.open.swap_remove(number);
            if view.state != JobState::Finished && !job.canceled {
                let state = view.state.as_str();
                self.findings
                    .push(format!("{} is {state}: {:?}", job.folder, view.files));
            } else if view.state == JobState::Finished && view.files.total != job.files {
                self.findings
                    .push(format!("{} has {:?}", job.folder, view.files));
            }
            self.judge_files(&job);
        }
    }

    /// What is reported finished equals its source.
    fn judge_files(&mut self, job: &Open) {
        let Some(files) = self.user.files(&job.id) else {
            self.findings
                .push(format!("{}: no list of files", job.folder));
            return;
        };
        let from = format!("{}/", self.urls[FROM]);
        let to = format!("{}/", self.urls[TO]);
        for file in files {
            if !matches!(file.state, FileState::Finished | FileState::Skipped) {
                continue;
            }
            self.done.files += 1;
            let ends = (
                file.source.strip_prefix(&from),
                file.destination.strip_prefix(&to),
            );
            let (Some(source), Some(place)) = ends else {
                self.findings
                    .push(format!("{} is invented", file.destination));
                continue;
            };
            let source = self.sources.root.join(Path::new(source));
            if let Some(how) = difference(&source, &self.to.join(place)) {
                self.findings
                    .push(format!("{place} is {:?} and {how}", file.state));
            }
        }
        // Room for others. What a canceled job still removes may be gone.
        let _ = fs::remove_dir_all(self.to.join(&job.folder));
    }

    /// Waits for the end of all jobs.
    fn settle(&mut self, fleet: &mut Fleet) -> Result<(), Error> {
        let until = Instant::now() + SETTLE_LIMIT;
        while !self.open.is_empty() && Instant::now() < until {
            fleet.keep_up()?;
            for job in &mut self.open {
                if job.resumes.is_some() && self.user.change(&job.id, "resume") {
                    job.resumes = None;
                }
            }
            self.look();
            std::thread::sleep(LOOK);
        }
        let late = self.open.iter();
        let late = late.map(|job| {
            let (folder, state) = (&job.folder, job.state.as_str());
            format!("{folder} has not ended in {SETTLE_LIMIT:?}: {state}")
        });
        self.findings.extend(late.collect::<Vec<_>>());
        Ok(())
    }
}
