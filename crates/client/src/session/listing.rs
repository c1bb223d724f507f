//! Names that a server lists, read as they come and with suspicion: a name may not lead outside the directory it is listed in, and
//! comes once.
//!
//! ```text
//!   data channel ──octets──► Cutter (on the mover) ──whole lines──► queue ──► Names ──► who asked
//!                                                      └► spool ──┘
//! ```
//! Listings go at the server's pace, and files at theirs: what 16 MiB of memory do not hold waits in a file without a name. A server
//! that had to wait for files would lose patience.

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use godwit_proto::{
    FtpPath,
    facts::{self, FactType, Facts},
};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    error::{Error, Result},
    fingerprints::Fingerprints,
    local,
};

/// Octets that the listing of one directory may have, whatever they mean: some fifty million names. Ends one that has no end.
const LISTING_OCTETS_MAX: u64 = 4 << 30;

/// Octets that a line may have: the longest path of Linux is 4096, and facts are a few hundred.
const LINE_OCTETS_MAX: usize = 64 << 10;

/// Octets that are taken, and handed on, at a time.
const LINES_OCTETS: usize = 64 << 10;

/// Octets that wait in memory, of all listings that share a queue: some hundred thousand names.
const WAITING_OCTETS_MAX: usize = 16 << 20;

/// One name of a directory.
#[derive(Clone, Debug)]
pub(crate) struct Entry {
    /// One component.
    pub(crate) name: Vec<u8>,
    /// `kind` is absent where only the name is known.
    pub(crate) facts: Facts,
}

impl Entry {
    /// `None`: nobody knows.
    pub(crate) fn is_directory(&self) -> Option<bool> {
        match self.facts.kind {
            Some(FactType::Dir) => Some(true),
            Some(FactType::File) => Some(false),
            _ => None,
        }
    }
}

/// A name that a server must not list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadName {
    /// Lossy.
    pub(crate) name: String,
    pub(crate) why: &'static str,
}

/// Whole lines of a listing.
#[derive(Debug)]
pub(crate) struct Lines {
    /// Of which listing, where several share a queue.
    pub(crate) listing: u64,
    /// A listing that broke off begins anew, with a higher number.
    attempt: u32,
    /// MLSD; else NLST.
    machine: bool,
    octets: Octets,
}

#[derive(Debug)]
enum Octets {
    Here(
        Vec<u8>,
        #[allow(dead_code, reason = "held while they wait")] OwnedSemaphorePermit,
    ),
    Spooled {
        file: Arc<File>,
        at: u64,
        length: usize,
    },
}

impl Lines {
    /// Only names are known, and each has to be looked at.
    pub(crate) fn is_bare(&self) -> bool {
        !self.machine
    }

    /// For [`Names::read`].
    ///
    /// # Errors
    /// The spool cannot be read.
    pub(crate) fn text(&self) -> Result<Cow<'_, [u8]>> {
        match &self.octets {
            Octets::Here(octets, _) => Ok(Cow::Borrowed(octets)),
            Octets::Spooled { file, at, length } => {
                let mut octets = vec![0; *length];
                file.read_exact_at(&mut octets, *at)
                    .map_err(|e| Error::local(local::spooling(), &e))?;
                Ok(Cow::Owned(octets))
            }
        }
    }
}

/// The filling end of a queue of lines.
#[derive(Clone, Debug)]
pub(crate) struct Queue {
    lines: mpsc::UnboundedSender<Lines>,
    /// A permit for each octet that may wait in memory.
    room: Arc<Semaphore>,
}

/// A queue for lines. What it holds in memory is bounded.
pub(crate) fn queue() -> (Queue, mpsc::UnboundedReceiver<Lines>) {
    let (lines, reader) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(WAITING_OCTETS_MAX));
    (Queue { lines, room }, reader)
}

/// What one listing fills: one attempt after the other.
#[derive(Debug)]
pub(crate) struct Outlet {
    queue: Queue,
    listing: u64,
    attempt: u32,
}

impl Outlet {
    pub(crate) fn new(queue: Queue, listing: u64) -> Self {
        Self {
            queue,
            listing,
            attempt: 0,
        }
    }

    /// For the next attempt.
    pub(crate) fn again(&mut self) -> Self {
        self.attempt += 1;
        Self {
            queue: self.queue.clone(),
            ..*self
        }
    }
}

/// Cuts octets into whole lines as they come. Clones share it.
#[derive(Clone)]
pub(super) struct Cutter(Arc<Mutex<Cut>>);

struct Cut {
    outlet: Outlet,
    machine: bool,
    /// Came, and was not handed on.
    kept: Vec<u8>,
    octets: u64,
    octets_max: u64,
    /// What memory has no room for, and how long it is.
    spool: Option<(Arc<File>, u64)>,
    /// Why no more is taken.
    refused: Option<String>,
}

impl Cutter {
    pub(super) fn new(outlet: Outlet, machine: bool) -> Self {
        Self(Arc::new(Mutex::new(Cut {
            outlet,
            machine,
            kept: Vec::new(),
            octets: 0,
            octets_max: LISTING_OCTETS_MAX,
            spool: None,
            refused: None,
        })))
    }

    /// The listing has come to its end: hands on what is left, the last line also where nothing ends it.
    pub(super) fn finish(&self) -> Result<()> {
        let mut cut = self.lock();
        let rest = std::mem::take(&mut cut.kept);
        cut.hand_on(rest)
            .map_err(|e| Error::local(local::spooling(), &e))
    }

    /// Why it was not taken to its end, if that is the server's doing.
    pub(super) fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Cut> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Cut {
    fn refuse(&mut self, why: String) -> io::Error {
        self.refused = Some(why.clone());
        io::Error::other(why)
    }

    fn hand_on(&mut self, lines: Vec<u8>) -> io::Result<()> {
        let queue = &self.outlet.queue;
        let permits = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let room = Arc::clone(&queue.room).try_acquire_many_owned(permits);
        let octets = match room {
            Ok(room) => Octets::Here(lines, room),
            Err(_) => {
                let (file, end) = match &mut self.spool {
                    Some(spool) => spool,
                    None => self.spool.insert((Arc::new(local::nameless()?), 0)),
                };
                let at = *end;
                file.write_all_at(&lines, at)?;
                *end += lines.len() as u64;
                Octets::Spooled {
                    file: Arc::clone(file),
                    at,
                    length: lines.len(),
                }
            }
        };
        let lines = Lines {
            listing: self.outlet.listing,
            attempt: self.outlet.attempt,
            machine: self.machine,
            octets,
        };
        let sent = queue.lines.send(lines);
        sent.map_err(|_| io::Error::other("nobody reads this listing any more"))
    }
}

impl Write for Cutter {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let mut cut = self.lock();
        let octets = &octets[..octets.len().min(LINES_OCTETS)];
        cut.octets += octets.len() as u64;
        if cut.octets > cut.octets_max {
            let most = cut.octets_max >> 20;
            return Err(cut.refuse(format!(
                "the listing is longer than {most} MiB, and may have no end"
            )));
        }
        cut.kept.extend_from_slice(octets);
        let whole = cut.kept.iter().rposition(|b| *b == b'\n');
        let whole = whole.map_or(0, |last| last + 1);
        if cut.kept.len() - whole > LINE_OCTETS_MAX {
            return Err(cut.refuse(format!(
                "a line of the listing is longer than {LINE_OCTETS_MAX} octets"
            )));
        }
        // Little at a time only to somebody who has nothing to do.
        let idle = cut.outlet.queue.room.available_permits() == WAITING_OCTETS_MAX;
        if whole > 0 && (idle || cut.kept.len() >= LINES_OCTETS) {
            let rest = cut.kept.split_off(whole);
            let whole = std::mem::replace(&mut cut.kept, rest);
            cut.hand_on(whole)?;
        }
        Ok(octets.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the lines of one listing.
#[derive(Debug)]
pub(crate) struct Names {
    directory: FtpPath,
    seen: Fingerprints,
    /// The attempt that is read.
    attempt: u32,
    /// An attempt before it broke off: most names have been read already.
    repeated: bool,
}

impl Names {
    pub(crate) fn new(directory: &FtpPath) -> Self {
        Self {
            directory: directory.clone(),
            seen: Fingerprints::default(),
            attempt: 0,
            repeated: false,
        }
    }

    /// The names in `lines`, whose [`Lines::text`] is `text`, that have not been read before. One that comes twice in the same attempt is bad.
    pub(crate) fn read(
        &mut self,
        lines: &Lines,
        text: &[u8],
    ) -> impl Iterator<Item = std::result::Result<Entry, BadName>> {
        self.repeated |= self.attempt > 0 && lines.attempt > self.attempt;
        self.attempt = lines.attempt;
        let machine = lines.machine;
        let each = text.split(|b| *b == b'\n');
        each.filter_map(move |line| self.entry(line, machine))
    }

    fn entry(&mut self, line: &[u8], machine: bool) -> Option<std::result::Result<Entry, BadName>> {
        // GCT doubles the CR in TYPE A.
        let kept = line.iter().rposition(|b| *b != b'\r')? + 1;
        let line = &line[..kept];
        let (facts, name) = if machine {
            facts::parse_line(line)?
        } else {
            (Facts::default(), self.bare(line).to_vec())
        };
        if matches!(facts.kind, Some(FactType::Cdir | FactType::Pdir))
            || name == b"."
            || name == b".."
        {
            return None;
        }
        let why = why_hostile(&name);
        if !self.seen.insert(&name) {
            if self.repeated {
                return None;
            }
            return Some(Err(bad(&name, "it comes more than once")));
        }
        Some(match why {
            Some(why) => Err(bad(&name, why)),
            None => Ok(Entry { name, facts }),
        })
    }

    /// NLST may answer `name` or `directory/name`; anything else keeps its slashes and is refused for them.
    fn bare<'a>(&self, line: &'a [u8]) -> &'a [u8] {
        let directory = self.directory.as_bytes();
        let inside = line
            .strip_prefix(directory)
            .filter(|rest| directory.ends_with(b"/") || rest.starts_with(b"/"));
        match inside {
            Some(rest) => rest.strip_prefix(b"/").unwrap_or(rest),
            None => line.strip_prefix(b"./").unwrap_or(line),
        }
    }
}

fn bad(name: &[u8], why: &'static str) -> BadName {
    BadName {
        name: String::from_utf8_lossy(name).into_owned(),
        why,
    }
}

/// Why a name could lead outside its directory, or cannot be a name.
fn why_hostile(name: &[u8]) -> Option<&'static str> {
    if name.is_empty() {
        Some("it is empty")
    } else if name.contains(&b'/') {
        Some("it holds a slash")
    } else if name == b"." || name == b".." {
        Some("it is no name")
    } else if name.contains(&0) {
        Some("it holds a NUL")
    } else if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
        Some("it holds a line end")
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
