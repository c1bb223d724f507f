//! Names that a server lists, read as they come and with suspicion: a name may not lead outside the
//! directory it is listed in, and comes once.
//!
//! ```text
//!   data channel ──bytes──► Cutter (on the mover) ──whole lines──► queue ──► Names ──► who asked
//!                                                      └► spool ──┘
//! ```
//! A directory is [`CompleteListing`] when its listing ended well and each line of it was
//! understood. Only that says which names are *not* there: nothing is removed for want of a name
//! otherwise.
//!
//! Listings go at the server's pace, and files at theirs: what 16 MiB of memory do not hold waits
//! in a file without a name. A server that had to wait for files would lose patience.

#[cfg(test)]
mod tests;

use std::{
    borrow::Cow,
    fs::File,
    io::{self, Write},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::Arc,
};

use godwit_proto::{
    FtpPath, Reply,
    error::TransferFailure,
    facts::{self, FactType, Facts},
    list_line::{self, ListLine},
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use crate::{
    error::{Error, Result},
    local::{compact_set::CompactSet, files},
};

/// Bytes that the listing of one directory may have, whatever they mean: some fifty million names.
/// Ends one that has no end.
const LISTING_BYTES_MAX: u64 = 4 << 30;

/// Bytes that a line may have: the longest path of Linux is 4096, and facts are a few hundred.
const LINE_BYTES_MAX: usize = 64 << 10;

/// Bytes that are taken, and handed on, at a time.
const LINES_BYTES: usize = 64 << 10;

/// Bytes that wait in memory, of all listings that share a queue: some hundred thousand names.
const WAITING_BYTES_MAX: usize = 16 << 20;

/// One name of a directory.
#[derive(Clone, Debug)]
pub(crate) struct DirectoryEntry {
    /// One component.
    pub(crate) name: Vec<u8>,
    /// `kind` is absent where only the name is known.
    pub(crate) facts: Facts,
}

impl DirectoryEntry {
    /// `None`: not known.
    pub(crate) fn is_directory(&self) -> Option<bool> {
        match self.facts.kind {
            Some(FactType::Dir) => Some(true),
            Some(FactType::File) => Some(false),
            _ => None,
        }
    }

    /// A file of which the server did not say when it changed.
    pub(crate) fn lacks_time(&self) -> bool {
        self.is_directory() == Some(false) && self.facts.modify.is_none()
    }

    /// It has to be looked at.
    pub(crate) fn is_unclear(&self) -> bool {
        self.is_directory().is_none() && !self.is_special()
    }

    /// A link, of which nothing tells what it leads to.
    pub(crate) fn is_link(&self) -> bool {
        self.facts.kind.as_ref().is_some_and(FactType::is_link)
    }

    /// A device, a pipe or a socket.
    pub(crate) fn is_special(&self) -> bool {
        self.facts.kind.as_ref().is_some_and(FactType::is_special)
    }
}

/// A name that a server must not list, or a line that is not understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadName {
    /// Lossy; of a line, the line.
    pub(crate) name: String,
    pub(crate) why: &'static str,
    pub(crate) is_line: bool,
}

/// What ARC lists beside the content of its root: itself, without a name.
const ROOT_OF_ARC: &[u8] = b"type=dir;size=0;modify=19700101000000;perm=; ";

/// In which shape a server lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListingForm {
    /// MLSD.
    Facts,
    /// LIST.
    Long,
    /// NLST.
    Names,
}

impl std::fmt::Display for ListingForm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Facts => "MLSD",
            Self::Long => "LIST",
            Self::Names => "NLST",
        })
    }
}

/// A listing that its server ended well, and nothing says that a part of it is missing. Made here
/// only.
#[derive(Debug)]
pub(crate) struct WholeListing {
    attempt: u32,
    lines: u64,
    /// Names that begin with a dot may be there and not be listed.
    hides_dotted: bool,
}

impl WholeListing {
    /// Nothing came at all.
    pub(crate) fn is_empty(&self) -> bool {
        self.lines == 0
    }
}

/// All names of a directory are known: its listing is [`WholeListing`], and each line of it was
/// understood. Made here only.
#[derive(Debug)]
pub(crate) struct CompleteListing {
    hides_dotted: bool,
}

impl CompleteListing {
    /// Whether the directory may have `name`, though its listing lacks it.
    pub(crate) fn may_hide(&self, name: &[u8]) -> bool {
        self.hides_dotted && name.starts_with(b".")
    }
}

/// Reads a directory of this machine to its end.
pub(crate) fn list_here(
    path: &Path,
    mut take: impl FnMut(PathBuf) -> Result<()>,
) -> Result<CompleteListing> {
    let failed = |e: io::Error| Error::local(format!("read directory {}", path.display()), &e);
    for entry in std::fs::read_dir(path).map_err(failed)? {
        take(entry.map_err(failed)?.path())?;
    }
    Ok(CompleteListing {
        hides_dotted: false,
    })
}

/// Whole lines of a listing.
#[derive(Debug)]
pub(crate) struct ListingLines {
    /// Of which listing, where several share a queue.
    pub(crate) listing: u64,
    /// A listing that broke off begins again, with a higher number.
    attempt: u32,
    form: ListingForm,
    bytes: LineBytes,
}

#[derive(Debug)]
enum LineBytes {
    LocalView(
        Vec<u8>,
        #[allow(dead_code, reason = "held while they wait")] OwnedSemaphorePermit,
    ),
    Spooled {
        file: Arc<File>,
        at: u64,
        length: usize,
    },
}

impl ListingLines {
    /// Names may have to be looked at: all of NLST, and the links of LIST.
    pub(crate) fn needs_stat(&self) -> bool {
        self.form != ListingForm::Facts
    }

    /// For [`NameReader::read`].
    ///
    /// # Errors
    /// The spool cannot be read.
    pub(crate) fn text(&self) -> Result<Cow<'_, [u8]>> {
        match &self.bytes {
            LineBytes::LocalView(bytes, _) => Ok(Cow::Borrowed(bytes)),
            LineBytes::Spooled { file, at, length } => {
                let mut bytes = vec![0; *length];
                file.read_exact_at(&mut bytes, *at)
                    .map_err(|e| Error::local(files::spool_context(), &e))?;
                Ok(Cow::Owned(bytes))
            }
        }
    }
}

/// The filling end of a queue of lines.
#[derive(Clone, Debug)]
pub(crate) struct LineQueue {
    lines: mpsc::UnboundedSender<ListingLines>,
    /// A permit for each byte that may wait in memory.
    allo_command: Arc<Semaphore>,
}

/// A queue for lines. What it holds in memory is bounded.
pub(crate) fn queue() -> (LineQueue, mpsc::UnboundedReceiver<ListingLines>) {
    let (lines, reader) = mpsc::unbounded_channel();
    let allo_command = Arc::new(Semaphore::new(WAITING_BYTES_MAX));
    (
        LineQueue {
            lines,
            allo_command,
        },
        reader,
    )
}

/// What one listing fills: one attempt after the other.
#[derive(Debug)]
pub(crate) struct LineSink {
    queue: LineQueue,
    listing: u64,
    attempt: u32,
}

impl LineSink {
    pub(crate) fn new(queue: LineQueue, listing: u64) -> Self {
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

/// How a listing ended, if it did.
pub(crate) enum ListingEnd {
    WholeListing(WholeListing),
    /// Its lines have another shape than was asked for; this one is none of it.
    Misunderstood(String),
}

/// Cuts bytes into whole lines as they come. Clones share it.
#[derive(Clone)]
pub(crate) struct LineSplitter(Arc<Mutex<LineSplitterState>>);

struct LineSplitterState {
    outlet: LineSink,
    form: ListingForm,
    /// That came, empty ones not counted.
    lines: u64,
    /// The directory itself is among them.
    lists_itself: bool,
    /// It says of itself that its files cannot be looked at.
    may_not_enter: bool,
    /// `total` announces blocks of files, and none has come.
    lacks_announced: bool,
    /// A name that begins with a dot is among them.
    lists_dotted: bool,
    /// The line for which no more is read: the server has another shape than was asked for.
    misunderstood: Option<String>,
    /// Came, and was not handed on.
    kept: Vec<u8>,
    bytes: u64,
    bytes_max: u64,
    /// What memory has no room for, and how long it is.
    spool: Option<(Arc<File>, u64)>,
    /// Why no more is taken.
    refused: Option<String>,
}

impl LineSplitter {
    pub(crate) fn new(outlet: LineSink, form: ListingForm) -> Self {
        Self(Arc::new(Mutex::new(LineSplitterState {
            outlet,
            form,
            lines: 0,
            lists_itself: false,
            may_not_enter: false,
            lacks_announced: false,
            lists_dotted: false,
            misunderstood: None,
            kept: Vec::new(),
            bytes: 0,
            bytes_max: LISTING_BYTES_MAX,
            spool: None,
            refused: None,
        })))
    }

    /// The listing has come to its end, with this reply: hands on what is left.
    pub(crate) fn finish(&self, doing: &str, reply: Option<&Reply>) -> Result<ListingEnd> {
        let mut cut = self.lock();
        let rest = std::mem::take(&mut cut.kept);
        // What ends in the middle of a line was cut, whatever the server says of it.
        let end = rest
            .iter()
            .rposition(|b| *b == b'\n')
            .map_or(0, |at| at + 1);
        let is_cut = end < rest.len();
        cut.hand_on(rest[..end].to_vec())
            .map_err(|e| Error::local(files::spool_context(), &e))?;
        if let Some(line) = cut.misunderstood.take() {
            return Ok(ListingEnd::Misunderstood(line));
        }
        if is_cut {
            let how = "the listing ends in the middle of a line".to_owned();
            return Err(Error::Transfer {
                doing: doing.to_owned(),
                failure: TransferFailure::ConnectionLost(how),
            });
        }
        let barred = cut
            .may_not_enter
            .then(|| "it may be read and not be entered, so that names may be missing".to_owned());
        let announced = cut
            .lacks_announced
            .then(|| "its first line announces files, and none came".to_owned());
        let short = || reply.and_then(|reply| list_line::shortfall(reply, cut.lines));
        if let Some(why) = barred.or(announced).or_else(short) {
            let doing = doing.to_owned();
            return Err(Error::Listing { doing, why });
        }
        Ok(ListingEnd::WholeListing(WholeListing {
            attempt: cut.outlet.attempt,
            lines: cut.lines,
            hides_dotted: cut.form != ListingForm::Facts && !cut.lists_itself && !cut.lists_dotted,
        }))
    }

    /// The directory itself was in its listing.
    pub(crate) fn lists_itself(&self) -> bool {
        self.lock().lists_itself
    }

    /// The server has sent some of it.
    pub(crate) fn has_bytes(&self) -> bool {
        self.lock().bytes > 0
    }

    /// Why it was not taken to its end, if that is the server's doing.
    pub(crate) fn refused(&self) -> Option<String> {
        self.lock().refused.clone()
    }

    fn lock(&self) -> MutexGuard<'_, LineSplitterState> {
        self.0.lock()
    }
}

impl LineSplitterState {
    fn refuse(&mut self, why: String) -> io::Error {
        self.refused = Some(why.clone());
        io::Error::other(why)
    }

    /// Takes note of whole lines, and finds out whether they have the shape that was asked for.
    fn inspect(&mut self, text: &[u8]) {
        let lines = text.split(|b| *b == b'\n').filter_map(without_end);
        for line in lines {
            self.lines += 1;
            if self.form == ListingForm::Facts && line == ROOT_OF_ARC {
                continue;
            }
            let is_first = self.lines == 1;
            if self.form == ListingForm::Facts && is_first && facts::parse_line(line).is_none() {
                // Some servers answer MLSD in the shape of LIST.
                self.form = ListingForm::Long;
            }
            let name = match self.form {
                // The reader tells of lines that are none.
                ListingForm::Facts => {
                    let itself = |line: &[u8]| {
                        let own = line.ends_with(b" .").then(|| facts::parse_line(line))?;
                        own.filter(|(facts, _)| facts.kind == Some(FactType::Cdir))
                    };
                    if let Some((facts, _)) = itself(line) {
                        self.lists_itself = true;
                        // ProFTPD leaves out what it may not look at, and says no word of it.
                        let enters = |perm: &String| perm.contains(['e', 'E']);
                        self.may_not_enter = !facts.perm.as_ref().is_none_or(enters);
                    }
                    continue;
                }
                ListingForm::Long => match list_line::parse_line(line) {
                    Some(ListLine::Entry(_, name)) => {
                        self.lacks_announced = false;
                        name
                    }
                    Some(ListLine::Total(blocks)) => {
                        self.lacks_announced = blocks > 0;
                        continue;
                    }
                    None => {
                        let line = String::from_utf8_lossy(line).into_owned();
                        self.misunderstood = Some(line);
                        return;
                    }
                },
                ListingForm::Names => line.rsplit(|b| *b == b'/').next().unwrap_or(line).to_vec(),
            };
            self.lists_itself |= name == b".";
            self.lists_dotted |= name.starts_with(b".") && name != b"." && name != b"..";
        }
    }

    fn hand_on(&mut self, lines: Vec<u8>) -> io::Result<()> {
        if self.misunderstood.is_none() {
            self.inspect(&lines);
        }
        if lines.is_empty() || self.misunderstood.is_some() {
            return Ok(());
        }
        let queue = &self.outlet.queue;
        let permits = u32::try_from(lines.len()).unwrap_or(u32::MAX);
        let allo_command = Arc::clone(&queue.allo_command).try_acquire_many_owned(permits);
        let bytes = match allo_command {
            Ok(allo_command) => LineBytes::LocalView(lines, allo_command),
            Err(_) => {
                let (file, end) = match &mut self.spool {
                    Some(spool) => spool,
                    None => self.spool.insert((Arc::new(files::anonymous_file()?), 0)),
                };
                let at = *end;
                file.write_all_at(&lines, at)?;
                *end += lines.len() as u64;
                LineBytes::Spooled {
                    file: Arc::clone(file),
                    at,
                    length: lines.len(),
                }
            }
        };
        let lines = ListingLines {
            listing: self.outlet.listing,
            attempt: self.outlet.attempt,
            form: self.form,
            bytes,
        };
        let sent = queue.lines.send(lines);
        sent.map_err(|_| io::Error::other("no task reads this listing any more"))
    }
}

impl Write for LineSplitter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut cut = self.lock();
        let bytes = &bytes[..bytes.len().min(LINES_BYTES)];
        cut.bytes += bytes.len() as u64;
        if cut.bytes > cut.bytes_max {
            let most = cut.bytes_max >> 20;
            return Err(cut.refuse(format!(
                "the listing is longer than {most} MiB, and may have no end"
            )));
        }
        if cut.misunderstood.is_some() {
            return Ok(bytes.len());
        }
        cut.kept.extend_from_slice(bytes);
        let whole = cut.kept.iter().rposition(|b| *b == b'\n');
        let whole = whole.map_or(0, |last| last + 1);
        if cut.kept.len() - whole > LINE_BYTES_MAX {
            return Err(cut.refuse(format!(
                "a line of the listing is longer than {LINE_BYTES_MAX} bytes"
            )));
        }
        // Little at a time only to a reader that has nothing to do.
        let idle = cut.outlet.queue.allo_command.available_permits() == WAITING_BYTES_MAX;
        if whole > 0 && (idle || cut.kept.len() >= LINES_BYTES) {
            let rest = cut.kept.split_off(whole);
            let whole = std::mem::replace(&mut cut.kept, rest);
            cut.hand_on(whole)?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Reads the lines of one listing.
#[derive(Debug)]
pub(crate) struct NameReader {
    directory: FtpPath,
    seen: CompactSet,
    /// The attempt that is read.
    attempt: u32,
    /// An attempt before it broke off: most names have been read already.
    repeated: bool,
    /// Lines of the attempt that were read, and those that were bad.
    lines: u64,
    bad: u64,
}

impl NameReader {
    pub(crate) fn new(directory: &FtpPath) -> Self {
        Self {
            directory: directory.clone(),
            seen: CompactSet::default(),
            attempt: 0,
            repeated: false,
            lines: 0,
            bad: 0,
        }
    }

    /// The names in `lines`, whose [`ListingLines::text`] is `text`, that have not been read
    /// before. One that comes twice in the same attempt is bad.
    pub(crate) fn read(
        &mut self,
        lines: &ListingLines,
        text: &[u8],
    ) -> impl Iterator<Item = std::result::Result<DirectoryEntry, BadName>> {
        if lines.attempt > self.attempt {
            self.repeated |= self.attempt > 0;
            (self.attempt, self.lines, self.bad) = (lines.attempt, 0, 0);
        }
        let form = lines.form;
        let each = text.split(|b| *b == b'\n').filter_map(without_end);
        each.filter_map(move |line| {
            self.lines += 1;
            let entry = self.entry(line, form);
            self.bad += u64::from(matches!(entry, Some(Err(_))));
            entry
        })
    }

    /// Whether names were read that the listing which came to its end may not have.
    pub(crate) fn is_of_before(&self, whole: &WholeListing) -> bool {
        self.attempt != 0 && self.attempt != whole.attempt
    }

    /// The attempt that `lines` belong to is not the one that was read so far.
    pub(crate) fn begins_again(&self, lines: &ListingLines) -> bool {
        self.attempt != 0 && lines.attempt > self.attempt
    }

    /// `None` unless each line of the listing was read and understood.
    pub(crate) fn complete(&self, whole: &WholeListing) -> Option<CompleteListing> {
        let read = match whole.lines {
            0 => true,
            lines => self.attempt == whole.attempt && self.lines == lines && self.bad == 0,
        };
        read.then_some(CompleteListing {
            hides_dotted: whole.hides_dotted,
        })
    }

    fn entry(
        &mut self,
        line: &[u8],
        form: ListingForm,
    ) -> Option<std::result::Result<DirectoryEntry, BadName>> {
        if form == ListingForm::Facts && line == ROOT_OF_ARC {
            return None;
        }
        let parsed = match form {
            ListingForm::Facts => facts::parse_line(line),
            ListingForm::Long => match list_line::parse_line(line) {
                Some(ListLine::Total(_)) => return None,
                Some(ListLine::Entry(facts, name)) => Some((*facts, name)),
                None => None,
            },
            ListingForm::Names => Some((Facts::default(), self.bare(line).to_vec())),
        };
        let is_known = |facts: &Facts| match &facts.kind {
            Some(kind @ FactType::Other(_)) => kind.is_link() || kind.is_special(),
            _ => true,
        };
        let Some((facts, name)) = parsed.filter(|(facts, _)| is_known(facts)) else {
            return Some(Err(BadName {
                is_line: true,
                ..bad(line, "it is not understood")
            }));
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
            None => Ok(DirectoryEntry { name, facts }),
        })
    }

    /// NLST may answer `name` or `directory/name`; anything else keeps its slashes and is refused
    /// for them.
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
        is_line: false,
    }
}

/// A line without its end; `None` where nothing is left. GCT doubles the CR in TYPE A.
fn without_end(line: &[u8]) -> Option<&[u8]> {
    let end = line.iter().rposition(|b| *b != b'\r')?;
    Some(&line[..=end])
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
