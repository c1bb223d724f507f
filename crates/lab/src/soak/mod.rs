//! The soak test: transfers, listings, aborts and kills in a random mix at full speed for minutes,
//! after which no memory, descriptor or thread may have leaked.
//!
//! One `godwitd` serves all of it. Against it run, all over loopback:
//!
//! - one `godwit cp --files-from`, which lives from the beginning to the end and copies files whose
//!   names it gets while it runs: what it has of memory, descriptors and threads is the client's
//!   side of the question;
//! - workers, each of which starts one short command after the other: [`Act`]s drawn from a seed,
//!   some of them interrupted, some killed.
//!
//! Both processes are looked at every few seconds. What must be flat is in [`verdict`].

mod act;
mod load;
mod steady;
pub mod verdict;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use tempfile::TempDir;

pub use act::{Act, End};
pub use verdict::{Level, Side, TrendVerdict, UsageSample};

use crate::file_error::{FileError, io_error};
use crate::peers::godwit::Godwitd;
use crate::peers::{self, Process};
use crate::state::{FOLDER_PREFIX, OwnedFolder};
use load::LoadWorker;
use steady::Steady;

/// Short commands that run at once.
const WORKERS: u64 = 3;
/// How long the server may take to let go of sessions whose clients are gone.
const SETTLE_LIMIT: Duration = Duration::from_secs(60);
/// Descriptors and threads that may be more than before all of it: a runtime keeps some threads for
/// a while.
const SETTLED_SLACK: u64 = 4;

/// How long and how often.
#[derive(Debug, Clone, Copy)]
pub struct Length {
    /// Of the load.
    pub load: Duration,
    /// Between two looks at the processes.
    pub interval: Duration,
}

/// What was done.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Done {
    /// Short commands, or jobs of a service.
    pub commands: u64,
    /// Commands that were interrupted (SIGINT) or killed, or processes of a service.
    pub cut_short: u64,
    /// Files that the long command copied, or that jobs reported finished.
    pub files: u64,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Soak {
    /// The seed.
    pub seed: u64,
    /// How long the load lasted, s.
    pub seconds: f64,
    /// What was done.
    pub done: Done,
    /// What the processes had meanwhile.
    pub samples: Vec<UsageSample>,
    /// Whether that was flat.
    pub verdicts: Vec<TrendVerdict>,
    /// What else is wrong, a line or more each.
    pub findings: Vec<String>,
}

impl Soak {
    /// Whether all is as it should be.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.verdicts.iter().all(|verdict| verdict.flat)
    }
}

/// Why there is no soak.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program.
    #[error(transparent)]
    Peer(#[from] peers::Error),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
}

/// Where all of it happens.
#[derive(Debug)]
struct Workplace {
    folder: PathBuf,
    server: SocketAddr,
    stop: AtomicBool,
    commands: AtomicU64,
    cut_short: AtomicU64,
    files: AtomicU64,
}

impl Workplace {
    fn url(&self, path: &str) -> String {
        format!("ftp://{}/{path}", self.server)
    }

    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }
}

/// Runs one; `tell` hears a line now and then.
///
/// # Errors
/// [`Error`]. What goes wrong under load is no error but a finding.
pub fn run(seed: u64, length: Length, tell: &mut dyn FnMut(&str)) -> Result<Soak, Error> {
    let base = Path::new("/dev/shm");
    let base = if base.is_dir() {
        base.to_owned()
    } else {
        std::env::temp_dir()
    };
    let folder: TempDir = (tempfile::Builder::new().prefix(FOLDER_PREFIX))
        .tempdir_in(&base)
        .map_err(io_error(&base))?;
    let _owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
    let root = folder.path().join("root");
    std::fs::create_dir(&root).map_err(io_error(&root))?;
    let server = Godwitd::serving(&root).start()?;
    let place = Workplace {
        folder: folder.path().to_owned(),
        server: server.addr(),
        stop: AtomicBool::new(false),
        commands: AtomicU64::new(0),
        cut_short: AtomicU64::new(0),
        files: AtomicU64::new(0),
    };
    load::make_source(&place).map_err(io_error(&root))?;
    // The first session makes what every server has that was ever used.
    load::warm_up(&place)?;
    let before = Level::of(server.process().id()).unwrap_or_default();
    let mut steady = Steady::start(&place)?;
    let began = Instant::now();
    let mut samples = Vec::new();
    let mut findings = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                let place = &place;
                scope.spawn(move || LoadWorker::new(place, seed, number).run())
            })
            .collect();
        let feeder = scope.spawn({
            let (place, feed) = (&place, steady.feed());
            move || feed.map_or_else(Vec::new, |feed| feed.run(place))
        });
        while began.elapsed() < length.load && !workers.iter().all(|w| w.is_finished()) {
            std::thread::sleep(length.interval);
            let seconds = began.elapsed().as_secs_f64();
            for (side, pid) in [
                (Side::Server, server.process().id()),
                (Side::Client, steady.id()),
            ] {
                if let Some(level) = Level::of(pid) {
                    let sample = UsageSample {
                        seconds,
                        side,
                        level,
                    };
                    tell(&format!("{seconds:7.1} s {side}: {level}"));
                    samples.push(sample);
                }
            }
        }
        place.stop.store(true, Ordering::Release);
        let ends = workers
            .into_iter()
            .chain([feeder])
            .map(ScopedJoinHandle::join);
        ends.flat_map(|end| end.unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .collect::<Vec<String>>()
    });
    let seconds = began.elapsed().as_secs_f64();
    findings.extend(steady.end()?);
    findings.extend(settled(server.process(), before));
    if Level::of(server.process().id()).is_none() {
        findings.push(format!("the server ended:\n{}", server.log()));
    }
    let count = |counter: &AtomicU64| counter.load(Ordering::Acquire);
    Ok(Soak {
        seed,
        seconds,
        done: Done {
            commands: count(&place.commands),
            cut_short: count(&place.cut_short),
            files: count(&place.files),
        },
        verdicts: verdict::judge(&samples, seconds),
        samples,
        findings,
    })
}

/// Waits until the server has no more descriptors and threads than before, and says so if that does
/// not come.
fn settled(server: &Process, before: Level) -> Option<String> {
    let deadline = Instant::now() + SETTLE_LIMIT;
    loop {
        let now = Level::of(server.id())?;
        let is_back = now.descriptors <= before.descriptors + SETTLED_SLACK
            && now.threads <= before.threads + SETTLED_SLACK;
        if is_back {
            return None;
        }
        if Instant::now() >= deadline {
            return Some(format!(
                "{SETTLE_LIMIT:?} after the last client the server has {now}; before the first it \
                 had {before}"
            ));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}
