//! Dialogues that go wrong: listings cut, refused or garbled, renames refused, replies lost, data
//! connections refused, directories that may not be read, and workers that panic. `cp -r`, `sync`
//! and `sync --delete` with real servers, each behind a [`Proxy`].
//!
//! What must hold: with status 0 all is there; otherwise nothing that was there is lost, and where
//! a listing was at fault nothing was removed. The same command, given again once the server is
//! well, ends with 0.

mod lines;
mod panics;
mod proxy;
mod servers;
mod tree;
mod trouble;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tempfile::TempDir;

use self::proxy::Proxy;
use self::servers::{RunningServer, ServerKind};
use self::tree::{Ended, Extras, Tree};
use self::trouble::{DialogueFault, Listings, Script, one_of};
use super::plan::{Fault, Way};
use super::{Error, Outcome};
use crate::file_error::io_error;
use crate::path::Rng;
use crate::peers;
use crate::peers::godwit;

/// A command that runs for so long hangs. Far more than any needs, also on a machine with other
/// work: the client waits twenty seconds for a peer, and gives each file five attempts.
const RUN_LIMIT: Duration = Duration::from_mins(10);
/// Time between two attempts of the client: what has gone wrong here does not pass with time.
const RETRY_PAUSE_SECONDS: &str = "0.05";
/// How often a command is given.
const RUNS_MAX: u32 = 4;
/// Lines of the client's and the server's words that a finding quotes.
const QUOTED_LINES: usize = 30;
/// Stack of a thread that may run the client: as large as that of a main thread, as its futures are
/// long without optimization.
const STACK_BYTES: usize = 8 << 20;
/// Separates what is drawn here from what the fault's other values are drawn from.
const STREAM: u64 = 0xd1a1;

/// What is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verb {
    Copy,
    Sync,
    SyncDelete,
}

impl Verb {
    fn words(self) -> &'static [&'static str] {
        match self {
            Verb::Copy => &["cp", "-r"],
            Verb::Sync => &["sync"],
            Verb::SyncDelete => &["sync", "--delete"],
        }
    }
}

/// One command and its trouble.
#[derive(Debug)]
struct Case {
    verb: Verb,
    way: Way,
    program: ServerKind,
    listings: Listings,
    sessions: u32,
    /// `None` where it is no server that is at fault.
    trouble: Option<DialogueFault>,
    at_target: bool,
    /// Events until a worker panics.
    panics_after: u64,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Case {
            verb,
            way,
            program,
            listings,
            sessions,
            ..
        } = self;
        let words = verb.words().join(" ");
        write!(
            f,
            "{words} ({way:?}, {sessions} sessions) with {program:?}, {listings:?} listings: "
        )?;
        match &self.trouble {
            Some(trouble) if self.at_target => write!(f, "{trouble} at the destination"),
            Some(trouble) => write!(f, "{trouble} at the source"),
            None => write!(f, "a panic after {} events", self.panics_after),
        }
    }
}

/// Runs dialogue faults, any number of them at a time: each has directories and proxies of its own,
/// and all share the servers.
#[derive(Debug)]
pub struct Dialogues {
    seed: u64,
    folder: TempDir,
    programs: Vec<ServerKind>,
    running: Mutex<BTreeMap<ServerKind, Arc<RunningServer>>>,
}

impl Dialogues {
    /// The dialogue faults of a seed. Servers are started when the first fault needs them.
    ///
    /// # Errors
    /// [`Error::File`]: there can be no temporary directory.
    pub fn new(seed: u64) -> Result<Dialogues, Error> {
        let folder = TempDir::new().map_err(io_error(Path::new("a temporary directory")))?;
        Ok(Dialogues {
            seed,
            folder,
            programs: ServerKind::here(),
            running: Mutex::default(),
        })
    }

    /// Names of servers that this machine lacks: the faults meet the others.
    pub fn lacking(&self) -> Vec<String> {
        let missing = ServerKind::ALL
            .iter()
            .filter(|program| !self.programs.contains(program));
        missing.map(|program| format!("{program:?}")).collect()
    }

    fn server(&self, program: ServerKind) -> Result<Arc<RunningServer>, Error> {
        let mut running = self.running.lock();
        if let Some(server) = running.get(&program) {
            return Ok(Arc::clone(server));
        }
        let server = Arc::new(RunningServer::start(program)?);
        running.insert(program, Arc::clone(&server));
        Ok(server)
    }

    fn draw(&self, fault: &Fault, rng: &mut Rng) -> Case {
        let trouble = DialogueFault::draw(fault.kind, rng);
        let verb = one_of(
            rng,
            &[Verb::Copy, Verb::Sync, Verb::SyncDelete, Verb::SyncDelete],
        );
        Case {
            // Only it removes what a server has.
            verb: match trouble {
                Some(DialogueFault::ReplyLost {
                    verb: "DELE" | "RMD",
                    ..
                }) => Verb::SyncDelete,
                _ => verb,
            },
            way: fault.way,
            program: one_of(rng, &self.programs),
            listings: one_of(
                rng,
                &[Listings::All, Listings::Ordinary, Listings::WithoutFacts],
            ),
            sessions: one_of(rng, &[1, 2]),
            at_target: trouble.is_some_and(|trouble| trouble.is_at_target(fault.way, rng)),
            trouble,
            panics_after: rng.up_to(200),
        }
    }

    /// Runs faults, so many at a time, and gives each outcome to `take` when it is there.
    ///
    /// # Errors
    /// The first of [`Self::run`] or of `take` ends the campaign; faults that run then are run to
    /// their ends.
    pub fn run_all<E: From<Error>>(
        &self,
        faults: impl Iterator<Item = Fault> + Send,
        jobs: u32,
        mut take: impl FnMut(Outcome) -> Result<(), E>,
    ) -> Result<(), E> {
        let faults = Mutex::new(faults);
        let next = || faults.lock().next();
        let (sender, outcomes) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..jobs {
                let (sender, next) = (sender.clone(), &next);
                let work = move || {
                    while let Some(fault) = next() {
                        // The receiver is gone where another fault could not be run.
                        if sender.send(self.run(&fault)).is_err() {
                            return;
                        }
                    }
                };
                thread::Builder::new()
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, work)
                    .map_err(io_error(self.folder.path()))
                    .map_err(Error::from)?;
            }
            drop(sender);
            outcomes.into_iter().try_for_each(|outcome| take(outcome?))
        })
    }

    /// Runs one fault.
    ///
    /// # Errors
    /// A server cannot be started, or a file not be made. What the fault led to is no error but a
    /// finding.
    pub fn run(&self, fault: &Fault) -> Result<Outcome, Error> {
        let mut rng = Rng::new(self.seed ^ STREAM, fault.number);
        let case = self.draw(fault, &mut rng);
        let trees = tree::draw(&mut rng);
        let server = self.server(case.program)?;
        let name = format!("fault-{}", fault.number);
        let directories = Directories {
            local: self.folder.path().join(&name),
            served: server.root().join(&name),
        };
        directories.make(server.owner())?;
        let outcome = try_out(fault, &case, &server, &directories, &trees);
        let removed = directories.remove();
        let outcome = outcome?;
        removed?;
        Ok(outcome)
    }
}

/// Directories of one fault.
struct Directories {
    /// On this machine, for the client.
    local: PathBuf,
    /// Below the root of the server.
    served: PathBuf,
}

impl Directories {
    fn make(&self, owner: Option<u32>) -> Result<(), Error> {
        for top in [&self.local, &self.served] {
            fs::create_dir(top).map_err(io_error(top))?;
        }
        Ok(chown(&self.served, owner, owner).map_err(io_error(&self.served))?)
    }

    fn remove(&self) -> Result<(), Error> {
        Ok([&self.local, &self.served]
            .into_iter()
            .try_for_each(|top| fs::remove_dir_all(top).map_err(io_error(top)))?)
    }
}

fn try_out(
    fault: &Fault,
    case: &Case,
    server: &RunningServer,
    directories: &Directories,
    [source, before]: &[Tree; 2],
) -> Result<Outcome, Error> {
    let began = Instant::now();
    let (local, served) = (&directories.local, &directories.served);
    let place = |is_remote: bool, name: &str| match is_remote {
        true => served.join(name),
        false => local.join(name),
    };
    let from = place(case.way != Way::Put, "source");
    let to = place(case.way != Way::Get, "target");
    for (top, tree, is_remote) in [
        (&from, source, case.way != Way::Put),
        (&to, before, case.way != Way::Get),
    ] {
        let owner = server.owner().filter(|_| is_remote);
        tree::make(tree, source, top, owner).map_err(io_error(top))?;
    }
    let home = local.join("home");
    fs::create_dir(&home).map_err(io_error(&home))?;
    let proxy = |is_target: bool| {
        let trouble = case.trouble.filter(|_| case.at_target == is_target);
        let script = Script::new(case.listings, trouble);
        Proxy::start(server.addr(), server.root(), script).map_err(io_error(local))
    };
    let proxies = [proxy(false)?, proxy(true)?];
    let url = |is_remote: bool, proxy: &Proxy, top: &Path| match is_remote {
        true => server.url(proxy.addr(), top),
        false => format!("{}/", top.display()),
    };
    let arguments = Arguments {
        case,
        places: [
            url(case.way != Way::Put, &proxies[0], &from),
            url(case.way != Way::Get, &proxies[1], &to),
        ],
        home: &home,
    };
    let mut outcome = Outcome {
        fault: *fault,
        happened: false,
        runs: 0,
        seconds: 0.0,
        bytes: source
            .values()
            .flatten()
            .map(|content| content.len() as u64)
            .sum(),
        resent_bytes: 0,
        resent_max: 0,
        unread_bytes: 0,
        findings: Vec::new(),
    };
    let mut start = before.clone();
    let mut status = None;
    while status != Some(0) && outcome.runs < RUNS_MAX {
        outcome.runs += 1;
        let is_first = outcome.runs == 1;
        let ran = match case.trouble {
            None if is_first => arguments.run_with_panic(&mut outcome.happened)?,
            _ => arguments.run()?,
        };
        outcome.happened |= proxies.iter().any(Proxy::happened);
        proxies.iter().for_each(Proxy::heal);
        let after = tree::read(&to).map_err(io_error(&to))?;
        let ended = Ended {
            status: ran.status,
            may_not_fail: case.may_not_fail() || !is_first,
        };
        let mut findings = tree::judge(source, &start, &after, case.extras(), ended);
        if tree::read(&from).map_err(io_error(&from))? != *source {
            findings.push("the source was changed".to_owned());
        }
        if case.trouble.is_none() && is_first && outcome.happened && ran.status == 0 {
            findings.push("a worker panicked, and the status is 0".to_owned());
        }
        findings.extend(ran.hung.clone());
        if !findings.is_empty() {
            findings.insert(
                0,
                format!("run {}, status {}: {case}", outcome.runs, ran.status),
            );
            findings.push(quoted(&ran.said));
            outcome.findings.append(&mut findings);
            break;
        }
        start = after;
        status = Some(ran.status);
        if outcome.runs == RUNS_MAX && ran.status != 0 {
            let story = format!(
                "it never said that all is done: {case}\n{}",
                quoted(&ran.said)
            );
            outcome.findings.push(story);
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    if !outcome.findings.is_empty() {
        outcome
            .findings
            .push(format!("--- server\n{}", quoted(&server.log())));
    }
    Ok(outcome)
}

impl Case {
    fn extras(&self) -> Extras {
        match (self.verb, self.trouble) {
            (Verb::Copy | Verb::Sync, _) => Extras::Stay,
            (
                Verb::SyncDelete,
                Some(
                    DialogueFault::ListingCut { .. }
                    | DialogueFault::ListingRefused { .. }
                    | DialogueFault::ListingGarbled { .. }
                    | DialogueFault::DirectoryUnreadable { .. },
                ),
            ) => Extras::GoUnlessItFails,
            (Verb::SyncDelete, _) => Extras::Go,
        }
    }

    /// A command that has done everything may say so. Where a listing was at fault it cannot know
    /// it, and a panic is a failure.
    fn may_not_fail(&self) -> bool {
        matches!(
            self.trouble,
            Some(
                DialogueFault::RenameRefused { .. }
                    | DialogueFault::ReplyLost { .. }
                    | DialogueFault::DataRefused { .. }
            )
        )
    }
}

/// What came of a run.
struct Ran {
    status: i32,
    said: String,
    hung: Option<String>,
}

/// What a command is given.
struct Arguments<'a> {
    case: &'a Case,
    places: [String; 2],
    home: &'a Path,
}

impl Arguments<'_> {
    fn words(&self) -> Vec<String> {
        let case = self.case;
        let sessions = case.sessions.to_string();
        let journal = self.home.join("journal").display().to_string();
        let settings = [
            "-c",
            &sessions,
            "-p",
            "1",
            "--stall-timeout",
            "20",
            "--journal",
            &journal,
            "--retry-pause",
            RETRY_PAUSE_SECONDS,
            "--alone",
            "--no-path-memory",
            "-v",
        ];
        let places = self.places.iter().map(String::as_str);
        let words = case
            .verb
            .words()
            .iter()
            .copied()
            .chain(settings)
            .chain(places);
        words.map(str::to_owned).collect()
    }

    fn run(&self) -> Result<Ran, Error> {
        let program: PathBuf = godwit::binary("godwit").map_err(peers::Error::from)?;
        let mut command = Command::new(program);
        command.args(self.words()).env("HOME", self.home);
        command.env("GODWIT_PASSWORD", servers::PASSWORD);
        for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, self.home);
        }
        match peers::process::run(command, RUN_LIMIT) {
            Ok(finished) => Ok(Ran {
                status: finished.status.code().unwrap_or(-1),
                said: finished.log(),
                hung: None,
            }),
            Err(error @ peers::Error::TimedOut { .. }) => Ok(Ran {
                status: -1,
                said: String::new(),
                hung: Some(format!("the command hung: {error}")),
            }),
            Err(error) => Err(error.into()),
        }
    }

    /// The same in this process, where a worker panics.
    fn run_with_panic(&self, happened: &mut bool) -> Result<Ran, Error> {
        let words = self.words();
        let after = self.case.panics_after;
        let panicked = panics::run(&words, after, RUN_LIMIT).map_err(io_error(self.home))?;
        *happened = panicked.happened;
        Ok(Ran {
            status: panicked.status,
            said: panicked.said,
            hung: panicked
                .hung
                .then(|| "the command hung after a panic".to_owned()),
        })
    }
}

fn quoted(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}
