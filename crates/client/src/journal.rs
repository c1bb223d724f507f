//! The journal of a job: files that are there already, so that the same command, given again, copies what is missing.
//!
//! ```text
//!   godwit-journal 1
//!   10240 1763730000000000000 /data/a ftp://host/data/a .
//! ```
//! One line a finished file, appended: octets of the source, its time of change, source and target (what is no printable ASCII
//! percent-encoded), and a dot. A line without its dot was torn by a crash and counts for nothing; a file whose line is missing is
//! copied once more. When all of a job is done its journal goes.

use std::{
    collections::HashSet,
    env,
    fs::{self, File, OpenOptions},
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, BufRead, BufReader, Write},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
};

use godwit_engine::digest::Digest;
use godwit_proto::ChecksumAlgorithm;

use crate::{
    error::{Error, Result},
    plan::Item,
};

const HEAD: &str = "godwit-journal 1";

/// Longest line that is read: two paths, each octet of them encoded.
const LINE_OCTETS_MAX: u64 = 64 << 10;

/// The journal of one job.
#[derive(Debug)]
pub(crate) struct Journal {
    file: PathBuf,
    /// Marks of files that earlier runs have finished, as hashes: 16 octets a file.
    finished: HashSet<u128>,
    /// Opened with the first file that is noted.
    out: Mutex<Option<File>>,
}

/// What tells a finished file from others, and from itself when it has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mark(String);

impl Mark {
    /// `None` where nothing would tell whether the source has changed since.
    pub(crate) fn of(item: &Item) -> Option<Self> {
        let source = encoded(item.source().as_bytes());
        let target = encoded(item.target().as_bytes());
        let (size, changed) = (item.size?, item.changed?);
        Some(Self(format!("{size} {changed} {source} {target} .")))
    }
}

impl Journal {
    /// Reads what there is. `key` names the job where the user names no file.
    ///
    /// # Errors
    /// A file that the user names cannot be read, or is none of ours. Our own folder out of reach is no reason to copy nothing: then
    /// there is no journal.
    pub(crate) fn open(file: Option<&Path>, key: &str) -> Result<Option<Self>> {
        let named = file.is_some();
        let Some(file) = file.map(Path::to_owned).or_else(|| of_user(key)) else {
            return Ok(None);
        };
        match read(&file) {
            Ok(finished) => Ok(Some(Self {
                file,
                finished,
                out: Mutex::default(),
            })),
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

    /// Whether an earlier run has finished this file.
    pub(crate) fn has(&self, mark: &Mark) -> bool {
        self.finished.contains(&hash(mark.0.as_bytes()))
    }

    /// A file is there.
    ///
    /// # Errors
    /// It cannot be noted. It would be copied again.
    pub(crate) fn note(&self, mark: &Mark) -> io::Result<()> {
        let mut out = self.out.lock().unwrap_or_else(PoisonError::into_inner);
        if out.is_none() {
            *out = Some(create(&self.file)?);
        }
        match out.as_mut() {
            // One write: another run of the same job appends whole lines too.
            Some(out) => out.write_all(format!("{}\n", mark.0).as_bytes()),
            None => Ok(()),
        }
    }

    /// All of the job is done: nobody needs it any more.
    pub(crate) fn remove(&self) {
        // Gone already is as good. One that stays is read in vain.
        let _ = fs::remove_file(&self.file);
    }
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

fn read(file: &Path) -> io::Result<HashSet<u128>> {
    let mut finished = HashSet::new();
    let mut reader = match File::open(file) {
        Ok(file) => BufReader::new(file),
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(finished),
        Err(e) => return Err(e),
    };
    let (mut line, mut first) = (Vec::new(), true);
    loop {
        line.clear();
        let mut bounded = io::Read::take(&mut reader, LINE_OCTETS_MAX);
        if bounded.read_until(b'\n', &mut line)? == 0 {
            return Ok(finished);
        }
        let whole = line.strip_suffix(b"\n");
        if first && whole != Some(HEAD.as_bytes()) {
            // The head itself may be torn, in which case nothing follows it.
            if HEAD.as_bytes().starts_with(&line) {
                return Ok(finished);
            }
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "it is no journal of ours",
            ));
        }
        if let Some(mark) = whole.filter(|l| !first && l.ends_with(b" .")) {
            finished.insert(hash(mark));
        }
        first = false;
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
    Ok(out)
}

/// 128 bits: among a million files two alike are one chance in 10^26.
fn hash(octets: &[u8]) -> u128 {
    let half = |salt: u8| {
        let mut hasher = DefaultHasher::new();
        (salt, octets).hash(&mut hasher);
        u128::from(hasher.finish())
    };
    half(0) << 64 | half(1)
}

fn encoded(octets: &[u8]) -> String {
    let mut out = String::with_capacity(octets.len());
    for octet in octets {
        match octet {
            b'%' | 0..=b' ' | 0x7f.. => out.push_str(&format!("%{octet:02X}")),
            _ => out.push(char::from(*octet)),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(text: &str) -> Mark {
        Mark(format!("{text} ."))
    }

    #[test]
    fn what_was_noted_is_there_the_next_time_and_gone_when_all_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("deep/journal");
        let open = || Journal::open(Some(&file), "").unwrap().unwrap();
        let journal = open();
        assert!(!file.exists(), "nothing is done yet");
        journal.note(&mark("1 2 a b")).unwrap();
        journal.note(&mark("3 4 c d")).unwrap();
        let again = open();
        assert!(again.has(&mark("1 2 a b")) && again.has(&mark("3 4 c d")));
        assert!(!again.has(&mark("1 3 a b")), "another time of change");
        again.note(&mark("5 6 e f")).unwrap();
        assert!(open().has(&mark("1 2 a b")) && open().has(&mark("5 6 e f")));
        again.remove();
        assert!(!open().has(&mark("1 2 a b")));
    }

    #[test]
    fn torn_lines_count_for_nothing_wherever_they_are_torn() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let whole = format!("{HEAD}\n1 2 /a/f1 x .\n1 2 /a/f10 x .\n");
        for end in 0..=whole.len() {
            fs::write(&file, &whole[..end]).unwrap();
            let journal = Journal::open(Some(&file), "").unwrap().unwrap();
            assert!(!journal.has(&mark("1 2 /a/f x")));
            assert_eq!(journal.has(&mark("1 2 /a/f10 x")), end == whole.len());
            journal.note(&mark("7 8 y z")).unwrap();
            let again = Journal::open(Some(&file), "").unwrap().unwrap();
            assert!(again.has(&mark("7 8 y z")), "cut at {end}");
            assert!(!again.has(&mark("1 2 /a/f x")));
        }
    }

    #[test]
    fn somebody_elses_file_is_not_touched() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("thesis");
        fs::write(&file, "chapter 1\n").unwrap();
        assert!(Journal::open(Some(&file), "").is_err());
        assert_eq!(fs::read(&file).unwrap(), b"chapter 1\n");
    }

    #[test]
    fn paths_are_one_word_each() {
        assert_eq!(encoded("a b%\n\u{fc}".as_bytes()), "a%20b%25%0A%C3%BC");
    }
}
