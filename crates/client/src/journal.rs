//! The journal of a job: files that are there already, so that the same command, given again, copies what is missing.
//!
//! ```text
//!   godwit-journal 1
//!   boot 0a9a0ba3-9d0f-4a38-8bbc-6c1f2c9c3a51 .
//!   becomes .
//!   part ftp://host/data/a /data/.godwit-0123456789abcdef.part .
//!   10240 1763730000000000000 /data/a ftp://host/data/a .
//! ```
//! One line a file that is begun, appended before anything has that name: target, and the name that it has until it is whole. One line when it is
//! finished: octets of the source, its time of change, source and target. That waits for others, a fifth of a second at most. What is no printable ASCII is percent-encoded, and each line ends in a dot: one without it was torn by a crash
//! and counts for nothing. A file that is not finished is copied once more; what was begun of it is taken up where leaves can tell what of it is
//! right ([`godwit_proto::leaves`]), else it is removed: nothing here says which octets are safe, so nothing need be synced for it to be true.
//! Each run first says since which start of the machine it runs: what was finished before an earlier one may have been lost with the power, or may never have
//! reached the disk, and is looked at more closely. Where a destination was no directory and becomes the copy of one, that is noted too: the next run finds a directory, and must not copy into it. When all of a job is done its journal goes.

use std::{
    collections::HashMap,
    env,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
    time::SystemTime,
};

use godwit_engine::digest::Digest;
use godwit_proto::ChecksumAlgorithm;

use crate::{
    error::{Error, Result},
    fingerprints::Fingerprints,
    local,
    plan::Item,
    taking_up,
};

const HEAD: &str = "godwit-journal 1";

/// Longest line that is read: two paths, each octet of them encoded.
const LINE_OCTETS_MAX: u64 = 64 << 10;

/// Files begun and not finished that are remembered. Further ones are not removed.
const PARTS_MAX: usize = 100_000;

/// Octets of notes that wait for the next write. A killed process copies those files again.
const WAITING_OCTETS_MAX: usize = 4 << 10;

/// The journal of one job.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    /// Marks of files finished since the machine was started.
    finished: Fingerprints,
    /// And before.
    finished_before: Fingerprints,
    /// The destination was none when an earlier run began, and became the copy of a directory.
    becomes: bool,
    /// Where files lie that an earlier run had begun, by target, until somebody asks for them.
    parts: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// Nothing but begun files of more than so many octets is noted.
    least: Option<u64>,
    /// Holds a lock, so that another run of the same job sees that we live.
    _lock: Option<File>,
    /// When the last of them was noted.
    noted_until: Option<SystemTime>,
    out: Mutex<Out>,
}

#[derive(Debug, Default)]
struct Out {
    /// Opened with the first line that is written.
    file: Option<File>,
    /// Whole lines.
    waiting: Vec<u8>,
}

/// What earlier runs have noted.
#[derive(Debug, Default)]
struct Noted {
    /// Marks of files finished since the machine was started.
    finished: Fingerprints,
    /// And before.
    finished_before: Fingerprints,
    becomes: bool,
    /// The lines that are read are of this start of the machine.
    of_this_boot: bool,
    /// Targets of files that were begun since and not finished, and where they lie.
    parts: HashMap<Vec<u8>, Vec<u8>>,
}

/// What a journal tells of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finished {
    No,
    /// Before the machine was started: what the kernel had may not have reached the disk.
    BeforeBoot,
    Yes,
}

/// What tells a finished file from others, and from itself when it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(Vec<u8>);

impl Mark {
    /// `None` where nothing would tell whether the source has changed since.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let (size, changed) = (item.size?, item.changed?);
        let (source, target) = (item.source(), item.target());
        // And two numbers.
        let mut mark = Vec::with_capacity(source.len() + target.len() + 48);
        // Writing to a `Vec` cannot fail.
        let _ = write!(mark, "{size} {changed} ");
        encode(source.as_bytes(), &mut mark);
        mark.push(b' ');
        encode(target.as_bytes(), &mut mark);
        mark.extend_from_slice(b" .");
        Some(Self(mark))
    }
}

impl Journal {
    /// Reads what there is. `key` names the job where the user names no file. A job of `one` file notes nothing but where it lies
    /// while it is not whole, and that only where it is large.
    ///
    /// # Errors
    /// A file that the user names cannot be read, or is none of ours. Our own folder out of reach is no reason to copy nothing: then
    /// there is no journal.
    pub(crate) fn open(file: Option<&Path>, key: &str, one: bool) -> Result<Option<Self>> {
        let named = file.is_some();
        let Some(file) = file.map(Path::to_owned).or_else(|| of_user(key)) else {
            return Ok(None);
        };
        let noted_until = fs::metadata(&file).and_then(|m| m.modified()).ok();
        let lock = File::open(&file).ok();
        let others_live = lock
            .as_ref()
            .is_some_and(|f| matches!(f.try_lock(), Err(TryLockError::WouldBlock)));
        match read(&file) {
            Ok(mut noted) => {
                if others_live {
                    noted.parts.clear();
                }
                Ok(Some(Self {
                    file,
                    finished: noted.finished,
                    finished_before: noted.finished_before,
                    becomes: noted.becomes,
                    parts: Mutex::new(noted.parts),
                    least: one.then_some(taking_up::OCTETS_MIN),
                    _lock: lock,
                    noted_until,
                    out: Mutex::default(),
                }))
            }
            Err(error) if named => {
                let doing = format!("read journal {}", file.display());
                Err(Error::local(doing, &error))
            }
            Err(_) => Ok(None),
        }
    }

    pub(crate) fn path(&self) -> &Path {
        &self.file
    }

    /// Whether an earlier run has finished any file.
    pub(crate) fn has_any(&self) -> bool {
        !(self.finished.is_empty() && self.finished_before.is_empty())
    }

    /// Whether an earlier run has finished this file, as it seems: see [`Fingerprints`].
    pub(crate) fn has(&self, mark: &Mark) -> Finished {
        if self.finished.contains(&mark.0) {
            Finished::Yes
        } else if self.finished_before.contains(&mark.0) {
            Finished::BeforeBoot
        } else {
            Finished::No
        }
    }

    /// Whether a directory at the destination is one to copy into. One that is the copy of a directory, begun by an earlier run, is not; and
    /// what is none now will be such a copy.
    pub(crate) fn goes_into(&self, is_directory: bool) -> bool {
        let goes_into = is_directory && !self.becomes;
        if !goes_into && !self.becomes {
            let mut out = self.out();
            out.take(b"becomes .");
            // Where it cannot be noted, a repeated command does what cp does.
            let _ = out.write(&self.file);
        }
        goes_into
    }

    /// When the last file of an earlier run was noted; `None` where there was none.
    pub(crate) fn noted_until(&self) -> Option<SystemTime> {
        self.noted_until
    }

    /// Where a copy lies that a run which is no more had begun for `target`. Once: who asks is to go on with it.
    pub(crate) fn take_part(&self, target: &str) -> Option<Vec<u8>> {
        let mut parts = self.parts();
        if parts.is_empty() {
            return None;
        }
        let mut name = Vec::new();
        encode(target.as_bytes(), &mut name);
        let path = parts.remove(&name)?;
        Some(decoded(&path)).filter(|path| is_ours(path))
    }

    /// The other such paths, once. They bear names that only we give.
    pub(crate) fn left_behind(&self) -> Vec<Vec<u8>> {
        let parts = std::mem::take(&mut *self.parts());
        let paths = parts.into_values().map(|path| decoded(&path));
        paths.filter(|path| is_ours(path)).collect()
    }

    fn parts(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<u8>>> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A file is written to at `path` before it is `target`. Where that cannot be noted, the path stays where it is after a crash.
    pub(crate) fn begins(&self, target: &str, path: &[u8], size: Option<u64>) {
        if self
            .least
            .is_some_and(|least| size.is_none_or(|size| size <= least))
        {
            return;
        }
        let mut out = self.out();
        out.waiting.extend_from_slice(b"part ");
        encode(target.as_bytes(), &mut out.waiting);
        out.waiting.push(b' ');
        encode(path, &mut out.waiting);
        out.waiting.extend_from_slice(b" .\n");
        let _ = out.write(&self.file);
    }

    /// A file is there. That is written soon, or by [`Self::flush`].
    ///
    /// # Errors
    /// It cannot be noted. It would be copied again.
    pub(crate) fn note(&self, mark: &Mark) -> io::Result<()> {
        // Of one file that is all, and the journal goes.
        if self.least.is_some() {
            return Ok(());
        }
        let mut out = self.out();
        out.take(&mark.0);
        match out.waiting.len() < WAITING_OCTETS_MAX {
            true => Ok(()),
            false => out.write(&self.file),
        }
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// As [`Self::note`].
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.out().write(&self.file)
    }

    fn out(&self) -> MutexGuard<'_, Out> {
        self.out.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All of the job is done: nobody needs it any more.
    pub(crate) fn remove(&self) {
        self.out().waiting.clear();
        // Gone already is as good. One that stays is read in vain.
        let _ = fs::remove_file(&self.file);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Whoever can do something about it has flushed.
        let _ = self.flush();
    }
}

impl Out {
    fn take(&mut self, line: &[u8]) {
        self.waiting.extend_from_slice(line);
        self.waiting.push(b'\n');
    }

    fn write(&mut self, path: &Path) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        // One write: another run of the same job appends whole lines too.
        let written = match &mut self.file {
            Some(file) => file.write_all(&self.waiting),
            None => create(path).and_then(|file| self.file.insert(file).write_all(&self.waiting)),
        };
        self.waiting.clear();
        written
    }
}

/// It bears a name that only we give.
fn is_ours(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/')
        .next()
        .is_some_and(local::is_temporary)
}

/// `$XDG_STATE_HOME/godwit/journals/HASH`, `~/.local/state/...` where that is unset.
fn of_user(key: &str) -> Option<PathBuf> {
    let set = |name| {
        env::var_os(name)
            .filter(|v| !v.is_empty())
            .map(PathBuf::from)
    };
    let state = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")))?;
    // Of an algorithm that stays, whatever the next version is built with.
    let mut digest = Digest::new(ChecksumAlgorithm::Md5);
    digest.update(key.as_bytes());
    let name = digest.finish();
    Some(state.join("godwit/journals").join(name))
}

fn read(file: &Path) -> io::Result<Noted> {
    let mut noted = Noted::default();
    let mut reader = match File::open(file) {
        Ok(file) => BufReader::new(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(noted),
        Err(e) => return Err(e),
    };
    let (mut line, mut first) = (Vec::new(), true);
    loop {
        line.clear();
        let mut bounded = io::Read::take(&mut reader, LINE_OCTETS_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(noted);
        }
        let whole = line.strip_suffix(b"\n");
        if first && whole != Some(HEAD.as_bytes()) {
            // The head itself may be torn, in which case nothing follows it.
            if HEAD.as_bytes().starts_with(&line) {
                return Ok(noted);
            }
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no journal of ours",
            ));
        }
        if let Some(line) = whole.filter(|l| !first && l.ends_with(b" .")) {
            noted.take(line);
        }
        first = false;
    }
}

impl Noted {
    fn take(&mut self, line: &[u8]) {
        let mut words = line.split(|b| *b == b' ');
        match words.next() {
            Some(b"boot") => {
                let boot = boot();
                self.of_this_boot =
                    boot.is_some() && words.next() == boot.as_deref().map(str::as_bytes);
            }
            Some(b"becomes") => self.becomes = true,
            Some(b"part") => {
                if let (Some(target), Some(path)) = (words.next(), words.next())
                    && self.parts.len() < PARTS_MAX
                {
                    self.parts.insert(target.to_owned(), path.to_owned());
                }
            }
            _ => {
                self.parts.remove(words.nth(2).unwrap_or_default());
                match self.of_this_boot {
                    true => self.finished.insert(line),
                    false => self.finished_before.insert(line),
                };
            }
        }
    }
}

fn create(file: &Path) -> io::Result<File> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let mut out = OpenOptions::new()
        .create(true)
        .append(true)
        .read(true)
        .open(file)?;
    // Who has read this file already holds the lock; if it is another run, it lives and needs none of ours.
    let _ = out.try_lock();
    let mut text = Vec::new();
    BufReader::new(&out).read_until(b'\n', &mut text)?;
    if text != format!("{HEAD}\n").as_bytes() {
        // Empty, or its head was torn.
        out.set_len(0)?;
        writeln!(out, "{HEAD}")?;
    } else {
        // Ends what a crash may have torn; an empty line is none.
        out.write_all(b"\n")?;
    }
    if let Some(boot) = boot() {
        writeln!(out, "boot {boot} .")?;
    }
    Ok(out)
}

/// What the kernel calls this start of the machine; `None` where it does not say. One word.
fn boot() -> Option<String> {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?;
    text.split_whitespace().next().map(str::to_owned)
}

fn encode(octets: &[u8], out: &mut Vec<u8>) {
    let mut rest = octets;
    while let Some(other) = rest
        .iter()
        .position(|o| *o == b'%' || !o.is_ascii_graphic())
    {
        let (plain, after) = rest.split_at(other);
        out.extend_from_slice(plain);
        // Writing to a `Vec` cannot fail.
        let _ = write!(out, "%{:02X}", after[0]);
        rest = &after[1..];
    }
    out.extend_from_slice(rest);
}

/// What [`encode`] made, as it was.
fn decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let digits = after.get(..2).and_then(|d| std::str::from_utf8(d).ok());
        let octet = digits.and_then(|d| u8::from_str_radix(d, 16).ok());
        let (octet, after) = match (first, octet) {
            (b'%', Some(octet)) => (octet, &after[2..]),
            _ => (*first, after),
        };
        out.push(octet);
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> Mark {
        Mark(format!("{text} .").into_bytes())
    }

    fn has(journal: &Journal, text: &str) -> bool {
        journal.has(&mark(text)) != Finished::No
    }

    #[test]
    fn what_was_finished_before_the_machine_was_started_is_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let boot = boot().unwrap();
        fs::write(&file, format!("{HEAD}\n1 1 a b .\nboot x .\n2 2 a b .\n")).unwrap();
        open().note(&mark("3 3 a b")).unwrap();
        let journal = open();
        let of = |text| journal.has(&mark(text));
        assert_eq!(of("1 1 a b"), Finished::BeforeBoot);
        assert_eq!(of("2 2 a b"), Finished::BeforeBoot);
        assert_eq!(of("3 3 a b"), Finished::Yes);
        assert_eq!(of("4 4 a b"), Finished::No);
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.contains(&format!("\nboot {boot} .\n3 3 a b .\n")),
            "{text}"
        );
    }

    #[test]
    fn what_was_noted_is_there_the_next_time_and_gone_when_all_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let journal = open();
        assert!(!file.exists(), "nothing is done yet");
        journal.note(&mark("1 2 a b")).unwrap();
        journal.note(&mark("3 4 c d")).unwrap();
        journal.flush().unwrap();
        let again = open();
        assert!(has(&again, "1 2 a b") && has(&again, "3 4 c d"));
        assert!(!has(&again, "1 3 a b"), "another time of change");
        again.note(&mark("5 6 e f")).unwrap();
        again.flush().unwrap();
        assert!(has(&open(), "1 2 a b") && has(&open(), "5 6 e f"));
        again.remove();
        assert!(!has(&open(), "1 2 a b"));
    }

    #[test]
    fn torn_lines_count_for_nothing_wherever_they_are_torn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let whole = format!("{HEAD}\n1 2 /a/f1 x .\n1 2 /a/f10 x .\n");
        for end in 0..=whole.len() {
            fs::write(&file, &whole[..end]).unwrap();
            let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
            assert!(!has(&journal, "1 2 /a/f x"));
            assert_eq!(has(&journal, "1 2 /a/f10 x"), end == whole.len());
            journal.note(&mark("7 8 y z")).unwrap();
            journal.flush().unwrap();
            let again = Journal::open(Some(&file), "", false).unwrap().unwrap();
            assert!(has(&again, "7 8 y z"), "cut at {end}");
            assert!(!has(&again, "1 2 /a/f x"));
        }
    }

    #[test]
    fn somebody_elses_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("thesis");
        fs::write(&file, "chapter 1\n").unwrap();
        assert!(Journal::open(Some(&file), "", false).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"chapter 1\n");
    }

    #[test]
    fn what_was_begun_and_not_finished_is_found_unless_its_run_lives() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let part = |digit: &str| format!("/d e/.godwit-{}.part", digit.repeat(16));
        let journal = open();
        for digit in ["1", "2", "3"] {
            journal.begins(&format!("ftp://h/{digit}"), part(digit).as_bytes(), None);
        }
        journal.begins("ftp://h/thesis", b"/d/thesis", None);
        journal.note(&mark("1 2 /s/1 ftp://h/1")).unwrap();
        assert_eq!(open().left_behind().len(), 0, "its run lives");
        drop(journal);
        let again = open();
        let mut left = again.left_behind();
        left.sort();
        assert_eq!(left, [part("2").into_bytes(), part("3").into_bytes()]);
        assert!(again.left_behind().is_empty());
        assert!(has(&again, "1 2 /s/1 ftp://h/1"));
        drop(again);
        let once_more = open();
        assert_eq!(
            once_more.take_part("ftp://h/2"),
            Some(part("2").into_bytes())
        );
        assert_eq!(once_more.take_part("ftp://h/2"), None);
        assert_eq!(once_more.take_part("ftp://h/thesis"), None);
        assert_eq!(once_more.left_behind(), [part("3").into_bytes()]);
    }

    #[test]
    fn what_is_finished_waits_for_what_is_begun_for_enough_of_it_or_to_be_flushed() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
        let text = || fs::read_to_string(&file).unwrap_or_default();
        journal.note(&mark("1 1 a b")).unwrap();
        assert_eq!(text(), "");
        journal.begins("c", b"/d/.godwit-0123456789abcdef.part", Some(1));
        assert!(
            text().contains("1 1 a b .\npart c "),
            "before anything has that name: {}",
            text()
        );
        journal.note(&mark("2 2 a b")).unwrap();
        assert!(!text().contains("2 2 a b"));
        journal.flush().unwrap();
        assert!(text().ends_with("2 2 a b .\n"));
        let long = "x".repeat(WAITING_OCTETS_MAX);
        journal.note(&mark(&long)).unwrap();
        assert!(text().ends_with(&format!("{long} .\n")));
        journal.note(&mark("3 3 a b")).unwrap();
        drop(journal);
        assert!(text().ends_with("3 3 a b .\n"));
    }

    #[test]
    fn what_cannot_be_noted_is_told_and_does_not_pile_up() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
        // Nothing can be appended to it any more.
        fs::create_dir(&file).unwrap();
        journal.note(&mark("1 1 a b")).unwrap();
        assert!(journal.flush().is_err());
        assert!(journal.flush().is_ok());
        fs::remove_dir(&file).unwrap();
        journal.note(&mark("2 2 a b")).unwrap();
        drop(journal);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("2 2 a b .\n") && !text.contains("1 1 a b"));
    }

    #[test]
    fn of_one_file_only_where_it_lies_is_noted_and_only_if_it_is_large() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", true).unwrap().unwrap();
        let (journal, part) = (open(), b"/d/.godwit-0123456789abcdef.part");
        journal.begins("ftp://h/f", part, Some(taking_up::OCTETS_MIN));
        journal.note(&mark("1 2 a b")).unwrap();
        assert!(!file.exists());
        journal.begins("ftp://h/f", part, Some(taking_up::OCTETS_MIN + 1));
        drop(journal);
        assert_eq!(open().take_part("ftp://h/f").as_deref(), Some(&part[..]));
    }

    #[test]
    fn paths_are_one_word_each() {
        let any: Vec<u8> = (0..=255).collect();
        let encoded = |octets: &[u8]| {
            let mut text = Vec::new();
            encode(octets, &mut text);
            text
        };
        assert_eq!(decoded(&encoded(&any)), any);
        assert_eq!(encoded("a b%\n\u{fc}".as_bytes()), b"a%20b%25%0A%C3%BC");
    }
}
