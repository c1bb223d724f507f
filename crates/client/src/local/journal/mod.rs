//! The journal of a job: its complete files, so that the same command copies only the missing ones.
//!
//! ```text
//!   godwit-journal 1
//!   boot 0a9a0ba3-9d0f-4a38-8bbc-6c1f2c9c3a51 .
//!   becomes .
//!   part /data/a /data/.godwit-0123456789abcdef.part .
//!   source /data/a 10240 1763730000 .
//!   version /data/b 20480 1763730000 .
//!   safe /data/b /data/.godwit-0123456789abcdee.part "5f3a" 0-4096,8192-10240 .
//!   parts /data 89abcdef .
//!   10240 1763730000000000000 /data/a ftp://host/data/a .
//! ```
//! A `part` line is appended before a file is started: target and temporary name. Small local
//! files, which are never resumed, share one `parts` line per directory instead: the first half of
//! the digits of all their temporary names in this run. A line without a keyword is written when a
//! file is complete: bytes of the source, its modification time, source and target. These lines are
//! batched for at most a fifth of a second. Other bytes than printable ASCII are percent-encoded,
//! and each line ends in a dot: one without it was torn by a crash and is ignored. An incomplete
//! file is copied again; its partial file is resumed if block checksums show which bytes are right
//! ([`godwit_proto::block_checksums`]), else it is removed: the journal does not say which bytes
//! are safe, so nothing need be synced for it to be true. At a server without block checksums, a
//! partial file is assumed to be the beginning of the source version in the `source` line: size and
//! modification time. Over HTTP the bytes come in any order: there the version is in a `version`
//! line, and `safe` lines say which bytes of it the partial file has, after what the server calls
//! it ([`SafeRanges`]). Each run first records its boot: a file that was complete before an earlier
//! boot may have been lost in a power failure, and is checked more closely. A `becomes` line
//! records that a destination was no directory and becomes the copy of one: the next run must not
//! copy into it. The journal is removed when the job is complete.

mod format;
mod leftovers;
mod safe_ranges;

use std::{
    collections::{HashMap, HashSet},
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, BufRead, BufReader, Write},
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
    time::SystemTime,
};

use godwit_engine::{host::line_log::LineLog, storage::digest::Digest};
use godwit_proto::{ChecksumAlgorithm, RangeSet, temporary::temporary_name};
use parking_lot::{Mutex, MutexGuard};

use self::format::{boot, decoded, encode, read};
use super::{compact_set::CompactSet, directories, files};
use crate::error::{Error, Result};

pub(crate) use self::{leftovers::LeftoverDirectory, safe_ranges::SafeRanges};

/// Partial files of more bytes than this are recorded and resumed. Chosen arbitrarily: a fault
/// costs no more than a block of a smaller one.
pub(crate) const RESUME_BYTES_MIN: u64 = 1 << 20;

/// Of a version that the server has no name for.
const UNNAMED: &str = "-";

const HEAD: &str = "godwit-journal 1";

/// Most directories that are remembered as recorded. One more, and all are recorded again.
const DIRECTORIES_MAX: usize = 1000;

/// Bytes of records that wait for the next write. After a kill those files are copied again.
const BUFFERED_BYTES_MAX: usize = 4 << 10;

/// The journal of one job.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    /// Files completed since boot.
    finished: CompactSet,
    /// Files completed before.
    finished_before: CompactSet,
    /// The destination did not exist when an earlier run started, and became the copy of a
    /// directory.
    becomes: bool,
    /// Partial files of an earlier run, by target, until they are taken.
    partials: Mutex<HashMap<Vec<u8>, Vec<u8>>>,
    /// The source version of each, by target, if it was recorded since boot.
    sources: HashMap<Vec<u8>, PartialSource>,
    /// Directories with partial small files of an earlier run, until they are taken.
    leftovers: Mutex<HashSet<LeftoverDirectory>>,
    /// The prefix of this run's temporary names.
    run: u32,
    /// Only partial files of more than this many bytes are recorded.
    least: Option<u64>,
    /// Holds a lock, so that another run of the same job sees that this one is alive.
    _lock: Option<File>,
    /// When the last of them was recorded.
    last_record_time: Option<SystemTime>,
    out: Mutex<JournalWriter>,
}

#[derive(Debug, Default)]
struct JournalWriter {
    /// Opened with the first written line.
    file: Option<LineLog<File>>,
    /// Whole lines.
    waiting: Vec<u8>,
    /// Directories whose `parts` line this run has written.
    directories: HashSet<PathBuf>,
}

/// What a journal says about a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Completion {
    No,
    /// Completed before this boot: bytes in the page cache may not have reached the disk.
    BeforeBoot,
    Yes,
}

/// Identifies a version of a source.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SourceVersion {
    pub(crate) size: u64,
    /// As in [`crate::transfer::source_file::SourceFile::changed`]; `None` if unknown.
    pub(crate) changed: Option<i64>,
}

/// In which order the bytes of a file come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// What is there is the beginning.
    Ascending,
    /// [`SafeRanges`] say what is there.
    Any,
}

/// What is recorded of the source of a partial file.
#[derive(Clone, Debug)]
pub(crate) struct PartialSource {
    version: SourceVersion,
    order: Order,
    /// Bytes of it that are there, where they come in any order, and what the server calls it.
    safe: RangeSet,
    name: Option<String>,
}

/// Identifies a complete file and the version of its source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CompletedFile(Vec<u8>);

impl CompletedFile {
    /// A file of `size` bytes, last changed at `changed`, by its names at both ends.
    pub(crate) fn new(size: u64, changed: i64, source: &str, target: &str) -> Self {
        // Two numbers.
        let mut mark = Vec::with_capacity(source.len() + target.len() + 48);
        // Writing to a `Vec` never fails.
        let _ = write!(mark, "{size} {changed} ");
        encode(source.as_bytes(), &mut mark);
        mark.push(b' ');
        encode(target.as_bytes(), &mut mark);
        mark.extend_from_slice(b" .");
        Self(mark)
    }
}

impl Journal {
    /// Reads an existing journal. `key` identifies the job if the user names no file. A job of
    /// `one` file records only its temporary path, and only if the file is large.
    ///
    /// # Errors
    /// A file that the user names cannot be read, or is no journal. If the default folder cannot be
    /// used, the copy runs without a journal.
    pub(crate) fn open(file: Option<&Path>, key: &str, one: bool) -> Result<Option<Self>> {
        let named = file.is_some();
        let Some(file) = file.map(Path::to_owned).or_else(|| of_user(key)) else {
            return Ok(None);
        };
        let last_record_time = fs::metadata(&file).and_then(|m| m.modified()).ok();
        let lock = File::open(&file).ok();
        let others_live = lock
            .as_ref()
            .is_some_and(|f| matches!(f.try_lock(), Err(TryLockError::WouldBlock)));
        match read(&file) {
            Ok(mut noted) => {
                if others_live {
                    noted.partials.clear();
                    noted.leftovers.clear();
                }
                Ok(Some(Self {
                    file,
                    finished: noted.finished,
                    finished_before: noted.finished_before,
                    becomes: noted.becomes,
                    partials: Mutex::new(noted.partials),
                    sources: noted.sources,
                    leftovers: Mutex::new(noted.leftovers),
                    run: (files::random() >> 32) as u32,
                    least: one.then_some(RESUME_BYTES_MIN),
                    _lock: lock,
                    last_record_time,
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

    /// True if an earlier run has completed any file.
    pub(crate) fn has_any(&self) -> bool {
        !(self.finished.is_empty() && self.finished_before.is_empty())
    }

    /// Whether an earlier run has probably completed this file: see [`CompactSet`].
    pub(crate) fn has(&self, mark: &CompletedFile) -> Completion {
        if self.finished.contains(&mark.0) {
            Completion::Yes
        } else if self.finished_before.contains(&mark.0) {
            Completion::BeforeBoot
        } else {
            Completion::No
        }
    }

    /// True if a directory at the destination is one to copy into. The copy of a directory that an
    /// earlier run started is not; a missing destination is recorded as such a copy.
    pub(crate) fn copies_into(&self, is_directory: bool) -> bool {
        let copies_into = is_directory && !self.becomes;
        if !copies_into && !self.becomes {
            let mut out = self.out();
            out.take(b"becomes .");
            // If it cannot be recorded, a repeated command does what cp does.
            let _ = out.write(&self.file);
        }
        copies_into
    }

    /// When the last file of an earlier run was recorded; `None` if there was none.
    pub(crate) fn last_record_time(&self) -> Option<SystemTime> {
        self.last_record_time
    }

    /// Takes the path of the partial file that an ended run left for `target`: the caller resumes
    /// it.
    pub(crate) fn take_partial(&self, target: &str) -> Option<Vec<u8>> {
        let mut partials = self.partials();
        if partials.is_empty() {
            return None;
        }
        let mut name = Vec::new();
        encode(target.as_bytes(), &mut name);
        let path = partials.remove(&name)?;
        Some(decoded(&path)).filter(|path| is_ours(path))
    }

    /// Takes the other such paths. Only this program gives such names.
    pub(crate) fn orphans(&self) -> Vec<Vec<u8>> {
        let partials = std::mem::take(&mut *self.partials());
        let paths = partials.into_values().map(|path| decoded(&path));
        paths.filter(|path| is_ours(path)).collect()
    }

    /// Takes the directories with partial small files.
    pub(crate) fn leftovers(&self) -> Vec<LeftoverDirectory> {
        let leftovers = std::mem::take(&mut *self.leftovers.lock());
        leftovers.into_iter().collect()
    }

    fn partials(&self) -> MutexGuard<'_, HashMap<Vec<u8>, Vec<u8>>> {
        self.partials.lock()
    }

    /// The temporary path of a file of `size` bytes for `target`, which is the local file
    /// `destination`. It is in the same directory, and recorded.
    pub(crate) fn temp_beside(
        &self,
        destination: &Path,
        size: Option<u64>,
        target: impl FnOnce() -> String,
    ) -> PathBuf {
        let is_pipelinable = size.is_some_and(|size| size <= RESUME_BYTES_MIN);
        if self.least.is_some() || !is_pipelinable {
            let beside = destination.with_file_name(files::temporary_name());
            self.record_temp(&target(), beside.as_os_str().as_bytes(), size);
            return beside;
        }
        let directory = match destination.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        self.record_small_files_in(directory);
        let digits = u64::from(self.run) << 32 | files::random() >> 32;
        destination.with_file_name(temporary_name(digits))
    }

    fn record_small_files_in(&self, directory: &Path) {
        let mut out = self.out();
        if out.directories.contains(directory) {
            return;
        }
        if out.directories.len() == DIRECTORIES_MAX {
            out.directories.clear();
        }
        out.directories.insert(directory.to_owned());
        out.waiting.extend_from_slice(b"parts ");
        encode(directory.as_os_str().as_bytes(), &mut out.waiting);
        // Writing to a `Vec` never fails.
        let _ = writeln!(out.waiting, " {:08x} .", self.run);
        let _ = out.write(&self.file);
    }

    /// Records that `path` is the temporary path of `target`. If that fails, the file at `path`
    /// stays after a crash.
    pub(crate) fn record_temp(&self, target: &str, path: &[u8], size: Option<u64>) {
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

    /// The source version of that partial file, if it was recorded as one whose bytes come in such
    /// an order.
    pub(crate) fn source_of(&self, target: &str, order: Order) -> Option<SourceVersion> {
        let mut name = Vec::new();
        encode(target.as_bytes(), &mut name);
        let source = self.sources.get(&name).filter(|of| of.order == order)?;
        Some(source.version)
    }

    /// Which bytes of that version an earlier run has recorded as safe, and what the server called
    /// it.
    fn safe_of(&self, target: &str) -> Option<(RangeSet, Option<String>)> {
        let mut name = Vec::new();
        encode(target.as_bytes(), &mut name);
        let source = self.sources.get(&name)?;
        Some((source.safe.clone(), source.name.clone()))
    }

    /// What the server called what an earlier run has begun, of whatever version of the source.
    pub(crate) fn version_of(&self, target: &str) -> Option<String> {
        self.safe_of(target)?.1
    }

    /// Records the source version of the file that [`Self::record_temp`] recorded.
    pub(crate) fn record_source(&self, target: &str, source: SourceVersion, order: Order) {
        let Some(changed) = source.changed else {
            return;
        };
        let mut out = self.out();
        out.waiting.extend_from_slice(match order {
            Order::Ascending => b"source ",
            Order::Any => b"version ",
        });
        encode(target.as_bytes(), &mut out.waiting);
        // Writing to a `Vec` never fails.
        let _ = writeln!(out.waiting, " {} {changed} .", source.size);
        let _ = out.write(&self.file);
    }

    /// Records which bytes of the recorded version are safe at that temporary path, as
    /// [`SafeRanges`] says it. `version`: what the server calls it.
    fn record_safe(&self, target: &str, path: &[u8], version: Option<&str>, ranges: &str) {
        let mut out = self.out();
        out.waiting.extend_from_slice(b"safe ");
        encode(target.as_bytes(), &mut out.waiting);
        out.waiting.push(b' ');
        encode(path, &mut out.waiting);
        out.waiting.push(b' ');
        encode(version.unwrap_or(UNNAMED).as_bytes(), &mut out.waiting);
        // Writing to a `Vec` never fails.
        let _ = writeln!(out.waiting, " {ranges} .");
        let _ = out.write(&self.file);
    }

    /// Records a complete file. The line is written soon, or by [`Self::flush`].
    ///
    /// # Errors
    /// It cannot be recorded. A repeated command copies the file again.
    pub(crate) fn record_done(&self, mark: &CompletedFile) -> io::Result<()> {
        // A job of one file is complete, and its journal is removed.
        if self.least.is_some() {
            return Ok(());
        }
        let mut out = self.out();
        out.take(&mark.0);
        match out.waiting.len() < BUFFERED_BYTES_MAX {
            true => Ok(()),
            false => out.write(&self.file),
        }
    }

    /// Writes the buffered lines.
    ///
    /// # Errors
    /// As [`Self::record_done`].
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.out().write(&self.file)
    }

    fn out(&self) -> MutexGuard<'_, JournalWriter> {
        self.out.lock()
    }

    /// Removes the journal of a complete job.
    pub(crate) fn remove(&self) {
        self.out().waiting.clear();
        // It may be gone already. A journal that stays is harmless.
        let _ = fs::remove_file(&self.file);
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // A caller that can handle the error has flushed before.
        let _ = self.flush();
    }
}

impl JournalWriter {
    fn take(&mut self, line: &[u8]) {
        self.waiting.extend_from_slice(line);
        self.waiting.push(b'\n');
    }

    fn write(&mut self, path: &Path) -> io::Result<()> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let file = match &mut self.file {
            Some(file) => Ok(file),
            None => create(path).map(|file| self.file.insert(LineLog::new(file, false))),
        };
        let written = file.and_then(|file| file.append(&self.waiting));
        self.waiting.clear();
        written
    }
}

/// True for a name that only this program gives.
fn is_ours(path: &[u8]) -> bool {
    path.rsplit(|b| *b == b'/')
        .next()
        .is_some_and(files::is_temporary)
}

/// `$XDG_STATE_HOME/godwit/journals/HASH`, `~/.local/state/...` if that is unset.
fn of_user(key: &str) -> Option<PathBuf> {
    // The algorithm must not change between versions.
    let mut digest = Digest::new(ChecksumAlgorithm::Md5);
    digest.update(key.as_bytes());
    let name = digest.finish();
    Some(directories::state()?.join("journals").join(name))
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
    // A run that has read this file holds the lock; another live run does not need this run's
    // lines.
    let _ = out.try_lock();
    let mut text = Vec::new();
    BufReader::new(&out).read_until(b'\n', &mut text)?;
    if text != format!("{HEAD}\n").as_bytes() {
        // Empty, or its first line was torn.
        out.set_len(0)?;
        writeln!(out, "{HEAD}")?;
    } else {
        // Ends a line that a crash may have torn; empty lines are ignored.
        out.write_all(b"\n")?;
    }
    if let Some(boot) = boot() {
        writeln!(out, "boot {boot} .")?;
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> CompletedFile {
        CompletedFile(format!("{text} .").into_bytes())
    }

    fn has(journal: &Journal, text: &str) -> bool {
        journal.has(&mark(text)) != Completion::No
    }

    #[test]
    fn files_finished_before_the_last_boot_are_marked() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let boot = boot().unwrap();
        fs::write(&file, format!("{HEAD}\n1 1 a b .\nboot x .\n2 2 a b .\n")).unwrap();
        open().record_done(&mark("3 3 a b")).unwrap();
        let journal = open();
        let of = |text| journal.has(&mark(text));
        assert_eq!(of("1 1 a b"), Completion::BeforeBoot);
        assert_eq!(of("2 2 a b"), Completion::BeforeBoot);
        assert_eq!(of("3 3 a b"), Completion::Yes);
        assert_eq!(of("4 4 a b"), Completion::No);
        let text = fs::read_to_string(&file).unwrap();
        assert!(
            text.contains(&format!("\nboot {boot} .\n3 3 a b .\n")),
            "{text}"
        );
    }

    #[test]
    fn records_last_until_the_job_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let journal = open();
        assert!(!file.exists(), "nothing is done yet");
        journal.record_done(&mark("1 2 a b")).unwrap();
        journal.record_done(&mark("3 4 c d")).unwrap();
        journal.flush().unwrap();
        let again = open();
        assert!(has(&again, "1 2 a b") && has(&again, "3 4 c d"));
        assert!(!has(&again, "1 3 a b"), "another time of change");
        again.record_done(&mark("5 6 e f")).unwrap();
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
            journal.record_done(&mark("7 8 y z")).unwrap();
            journal.flush().unwrap();
            let again = Journal::open(Some(&file), "", false).unwrap().unwrap();
            assert!(has(&again, "7 8 y z"), "cut at {end}");
            assert!(!has(&again, "1 2 /a/f x"));
        }
    }

    #[test]
    fn files_of_other_users_are_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("thesis");
        fs::write(&file, "chapter 1\n").unwrap();
        assert!(Journal::open(Some(&file), "", false).is_err());
        assert_eq!(fs::read(&file).unwrap(), b"chapter 1\n");
    }

    #[test]
    fn partial_files_of_dead_runs_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let part = |digit: &str| format!("/d e/.godwit-{}.part", digit.repeat(16));
        let journal = open();
        for digit in ["1", "2", "3"] {
            journal.record_temp(&format!("ftp://h/{digit}"), part(digit).as_bytes(), None);
        }
        journal.record_temp("ftp://h/thesis", b"/d/thesis", None);
        journal.record_done(&mark("1 2 /s/1 ftp://h/1")).unwrap();
        assert_eq!(open().orphans().len(), 0, "its run lives");
        drop(journal);
        let again = open();
        let mut left = again.orphans();
        left.sort();
        assert_eq!(left, [part("2").into_bytes(), part("3").into_bytes()]);
        assert!(again.orphans().is_empty());
        assert!(has(&again, "1 2 /s/1 ftp://h/1"));
        drop(again);
        let once_more = open();
        assert_eq!(
            once_more.take_partial("ftp://h/2"),
            Some(part("2").into_bytes())
        );
        assert_eq!(once_more.take_partial("ftp://h/2"), None);
        assert_eq!(once_more.take_partial("ftp://h/thesis"), None);
        assert_eq!(once_more.orphans(), [part("3").into_bytes()]);
    }

    #[test]
    fn finished_files_are_buffered_until_a_part_or_a_flush() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
        let text = || fs::read_to_string(&file).unwrap_or_default();
        journal.record_done(&mark("1 1 a b")).unwrap();
        assert_eq!(text(), "");
        journal.record_temp("c", b"/d/.godwit-0123456789abcdef.part", Some(1));
        assert!(
            text().contains("1 1 a b .\npart c "),
            "before anything has that name: {}",
            text()
        );
        journal.record_done(&mark("2 2 a b")).unwrap();
        assert!(!text().contains("2 2 a b"));
        journal.flush().unwrap();
        assert!(text().ends_with("2 2 a b .\n"));
        let long = "x".repeat(BUFFERED_BYTES_MAX);
        journal.record_done(&mark(&long)).unwrap();
        assert!(text().ends_with(&format!("{long} .\n")));
        journal.record_done(&mark("3 3 a b")).unwrap();
        drop(journal);
        assert!(text().ends_with("3 3 a b .\n"));
    }

    #[test]
    fn records_that_cannot_be_written_fail_and_are_dropped() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
        // No line can be appended to it any more.
        fs::create_dir(&file).unwrap();
        journal.record_done(&mark("1 1 a b")).unwrap();
        assert!(journal.flush().is_err());
        assert!(journal.flush().is_ok());
        fs::remove_dir(&file).unwrap();
        journal.record_done(&mark("2 2 a b")).unwrap();
        drop(journal);
        let text = fs::read_to_string(&file).unwrap();
        assert!(text.ends_with("2 2 a b .\n") && !text.contains("1 1 a b"));
    }

    #[test]
    fn a_line_that_is_two_counts_for_nothing() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let part = "/d/.godwit-0123456789abcdef.part";
        let long = "x".repeat(70_000);
        for glued in [
            format!("part /d/apart /d/b {part} ."),
            format!("part /d/a {part}1 2 /s/a /d/a ."),
            format!("part /d/a {part} /d/b ."),
            "1 2 /s/a1 2 /s/b /d/b .".to_owned(),
            format!("parts {} 89abcdef0 .", folder.path().display()),
            format!("parts {} 89abcdef 1 .", folder.path().display()),
            "1 2 /s/abecomes .".to_owned(),
            "becomes becomes .".to_owned(),
            format!("1 2 {long}part /d/a {part} ."),
            format!("{} part /d/a {part} .", &long[..65_536 - 1]),
            format!("{}part /d/a {part} .", &long[..65_536]),
        ] {
            fs::write(&file, format!("{HEAD}\n{glued}\n")).unwrap();
            let journal = Journal::open(Some(&file), "", false).unwrap().unwrap();
            let shown = &glued[glued.len().saturating_sub(80)..];
            assert!(journal.orphans().is_empty(), "{shown}");
            assert!(
                journal.leftovers().is_empty() && !journal.becomes,
                "{shown}"
            );
            assert!(!journal.has_any(), "{shown}");
        }
    }

    #[test]
    fn the_journal_records_the_place_of_a_large_single_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Journal::open(Some(&file), "", true).unwrap().unwrap();
        let (journal, part) = (open(), b"/d/.godwit-0123456789abcdef.part");
        journal.record_temp("ftp://h/f", part, Some(RESUME_BYTES_MIN));
        journal.record_done(&mark("1 2 a b")).unwrap();
        assert!(!file.exists());
        journal.record_temp("ftp://h/f", part, Some(RESUME_BYTES_MIN + 1));
        drop(journal);
        assert_eq!(open().take_partial("ftp://h/f").as_deref(), Some(&part[..]));
    }

    #[test]
    fn small_files_share_a_line_and_their_leftovers_are_found() {
        let folder = tempfile::tempdir().unwrap();
        let (file, data) = (folder.path().join("journal"), folder.path().join("d e"));
        fs::create_dir(&data).unwrap();
        let open = || Journal::open(Some(&file), "", false).unwrap().unwrap();
        let lines = || fs::read_to_string(&file).unwrap().matches("\npart").count();
        let found = |journal: &Journal| {
            let mut files: Vec<_> = (journal.leftovers().iter())
                .flat_map(|leftovers| leftovers.files().unwrap())
                .collect();
            files.sort();
            files
        };
        let (journal, other) = (open(), data.join(files::temporary_name()));
        fs::write(&other, "of another job").unwrap();
        let target = || unreachable!("their directory is enough");
        let small = |name| journal.temp_beside(&data.join(name), Some(1), target);
        let mut begun: Vec<_> = ["f", "g", "h"].map(small).into();
        assert_eq!(lines(), 1);
        begun.iter().for_each(|path| fs::write(path, "x").unwrap());
        for size in [None, Some(RESUME_BYTES_MIN + 1)] {
            journal.temp_beside(&data.join("large"), size, || "ftp://h/large".into());
        }
        assert_eq!(lines(), 3);
        assert!(found(&open()).is_empty(), "its run lives");
        drop(journal);
        fs::remove_file(begun.remove(1)).unwrap();
        begun.sort();
        let again = open();
        assert_eq!(found(&again), begun);
        assert!(again.leftovers().is_empty(), "once");
        assert_eq!(again.orphans().len(), 1);
    }
}
