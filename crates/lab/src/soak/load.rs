//! The workers of a soak: each runs one short command after the other.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::act::{Act, End};
use super::{Error, Workplace};
use crate::file_error::io_error;
use crate::path::Rng;
use crate::peers::process::{Options, Process, Signal};
use crate::peers::{self, godwit};

/// Bytes and number of the files of a copy.
const FILES: [(usize, usize); 3] = [(8 << 20, 2), (300_000, 10), (1_000, 100)];
/// How long a short command may take on a busy machine.
const LIMIT: Duration = Duration::from_secs(120);
/// Findings of a worker, after which it has seen enough.
const FINDINGS_MAX: usize = 5;

/// Bytes of a copy.
fn bytes() -> u64 {
    FILES
        .iter()
        .map(|(size, count)| (size * count) as u64)
        .sum()
}

/// What gets fetch, and what puts send: below the server's root, which is on this machine too.
fn source(place: &Workplace) -> PathBuf {
    place.folder.join("root/source")
}

pub(super) fn make_source(place: &Workplace) -> io::Result<()> {
    let source = source(place);
    fs::create_dir(&source)?;
    let mut rng = Rng::new(0, 0);
    for (size, count) in FILES {
        for number in 0..count {
            let mut bytes = Vec::with_capacity(size + 8);
            while bytes.len() < size {
                bytes.extend_from_slice(&rng.next_u64().to_le_bytes());
            }
            bytes.truncate(size);
            fs::write(source.join(format!("{size}-{number}")), bytes)?;
        }
    }
    Ok(())
}

/// One command, after which a server has what it keeps.
pub(super) fn warm_up(place: &Workplace) -> Result<(), Error> {
    let into = place.folder.join("warm/");
    let words = [
        "cp",
        "-q",
        "-r",
        &place.url("source/"),
        &into.to_string_lossy(),
    ];
    let finished = client(&place.folder, &words.map(str::to_owned))?.wait(LIMIT)?;
    finished.success()?;
    Ok(())
}

/// Starts the client with a memory of its own. Its allocator keeps no free pages, which would be
/// counted as resident: what grows is in use.
pub(super) fn client(home: &Path, arguments: &[String]) -> Result<Process, peers::Error> {
    let mut command = Command::new(godwit::binary("godwit")?);
    command.args(arguments).env("HOME", home);
    command.env("MIMALLOC_PURGE_DELAY", "0");
    for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
        command.env(name, home);
    }
    Process::spawn(command, Options::default())
}

pub(super) struct LoadWorker<'a> {
    place: &'a Workplace,
    rng: Rng,
    /// Its directory at the server, by name.
    there: String,
    /// Its directory here, with what its commands remember.
    here: PathBuf,
}

impl<'a> LoadWorker<'a> {
    pub(super) fn new(place: &'a Workplace, seed: u64, number: u64) -> LoadWorker<'a> {
        LoadWorker {
            place,
            rng: Rng::new(seed, number),
            there: format!("worker-{number}"),
            here: place.folder.join(format!("worker-{number}")),
        }
    }

    /// Works until it is over; what was wrong.
    pub(super) fn run(mut self) -> Vec<String> {
        let mut findings = Vec::new();
        while !self.place.is_over() && findings.len() < FINDINGS_MAX {
            let act = Act::draw(&mut self.rng, bytes());
            match self.act(act) {
                Ok(None) => {}
                Ok(Some(wrong)) => findings.push(format!("{act:?}: {wrong}")),
                Err(error) => findings.push(format!("{act:?}: {error}")),
            }
            self.place.commands.fetch_add(1, Ordering::Relaxed);
        }
        findings
    }

    fn act(&self, act: Act) -> Result<Option<String>, Error> {
        let (url, local) = (self.place.url("source/"), source(self.place));
        let one = self.place.url(&format!("source/{}-0", FILES[0].0));
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>()
        };
        match act {
            Act::Put(end) => {
                let to = self.place.folder.join("root").join(&self.there);
                let from = format!("{}/", local.display());
                let url = self.place.url(&format!("{}/", self.there));
                self.copy(&words(&["cp", "-q", "-r", &from, &url]), &to, end)
            }
            Act::Get(end) => {
                let to = self.here.join("to");
                let into = format!("{}/", to.display());
                self.copy(&words(&["cp", "-q", "-r", &url, &into]), &to, end)
            }
            Act::List => self.ends_with(0, &words(&["ls", "-l", &url])),
            Act::Stat => self.ends_with(0, &words(&["stat", &one])),
            Act::Checksum => self.ends_with(0, &words(&["cksum", &one])),
            Act::Missing => self.ends_with(4, &words(&["stat", &self.place.url("missing")])),
        }
    }

    fn ends_with(&self, status: i32, words: &[String]) -> Result<Option<String>, Error> {
        let finished = client(&self.home()?, words)?.wait(LIMIT)?;
        let as_wanted = finished.status.code() == Some(status);
        Ok((!as_wanted).then(|| format!("{}: {}", finished.status, finished.log())))
    }

    /// Copies into an empty directory `to`, and empties it again.
    fn copy(&self, words: &[String], to: &Path, end: End) -> Result<Option<String>, Error> {
        let home = self.home()?;
        let made = || -> io::Result<()> {
            empty(to)?;
            fs::create_dir_all(to)
        };
        made().map_err(io_error(to))?;
        let mut client = client(&home, words)?;
        let cut_short = match end {
            End::Whole => None,
            End::Interrupted(at) => Some((at, Signal::INT)),
            End::Killed(at) => Some((at, Signal::KILL)),
        };
        if let Some((at, signal)) = cut_short {
            let deadline = Instant::now() + LIMIT;
            while client.is_running()? && stored(to) < at && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(2));
            }
            client.signal(signal)?;
            self.place.cut_short.fetch_add(1, Ordering::Relaxed);
        }
        let finished = client.wait(LIMIT)?;
        if cut_short.is_some() {
            // It may have been done just before.
            return Ok(None);
        }
        if !finished.status.success() {
            return Ok(Some(format!("{}: {}", finished.status, finished.log())));
        }
        let files: usize = FILES.iter().map(|(_, count)| count).sum();
        let there = fs::read_dir(to).map_err(io_error(to))?.count();
        Ok((there != files || stored(to) < bytes())
            .then(|| format!("{there} files instead of {files}")))
    }

    /// Commands that were cut short leave journals: each begins again.
    fn home(&self) -> Result<PathBuf, Error> {
        let home = self.here.join("home");
        let made = || -> io::Result<()> {
            if home.exists() {
                fs::remove_dir_all(&home)?;
            }
            fs::create_dir_all(&home)
        };
        made().map_err(io_error(&home))?;
        Ok(home)
    }
}

/// Removes a directory. A server whose client was killed may still write there what has come.
fn empty(directory: &Path) -> io::Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        match fs::remove_dir_all(directory) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error)
                if error.kind() == io::ErrorKind::DirectoryNotEmpty
                    && Instant::now() < deadline =>
            {
                std::thread::sleep(Duration::from_millis(20));
            }
            done => return done,
        }
    }
}

/// Bytes of the files of a directory, temporary ones included.
fn stored(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|entry| Some(entry.metadata().ok()?.len()))
        .sum()
}
