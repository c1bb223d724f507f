//! Which bytes of a partial file are at its destination, where only this side keeps account: they
//! have come in any order, and no checksum tells. The journal has it for a later run.

use std::{
    fmt::Write as _,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_proto::{ByteRange, RangeSet};
use parking_lot::Mutex;

use super::Journal;

/// So many new bytes are recorded at once, or one part in so many of the file: a kill costs no
/// more, and the lines stay few.
const UNRECORDED_BYTES: u64 = 16 << 20;
const RECORDS: u64 = 4096;

/// Time until new bytes are recorded, however few.
const UNRECORDED_TIME: Duration = Duration::from_secs(5);

/// Ranges of a record. What lies in further ones is moved again.
pub(super) const RANGES_MAX: usize = 1000;

/// The account of one file.
#[derive(Debug)]
pub(crate) struct SafeRanges {
    journal: Option<Arc<Journal>>,
    /// Names it in the journal.
    target: String,
    /// Bytes of the whole file.
    size: u64,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    safe: RangeSet,
    /// Bytes since the last record, and when that was.
    unrecorded: u64,
    recorded: Instant,
}

impl SafeRanges {
    /// Of a file of so many bytes, as far as the journal says what is there.
    pub(crate) fn of_journal(journal: Option<&Arc<Journal>>, target: String, size: u64) -> Self {
        let safe = journal.map(|journal| journal.safe_of(&target));
        let safe = safe.unwrap_or_default();
        Self {
            journal: journal.cloned(),
            target,
            size,
            account: Mutex::new(Account {
                safe,
                unrecorded: 0,
                recorded: Instant::now(),
            }),
        }
    }

    /// Bytes of the whole file.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.account.lock().safe.is_empty()
    }

    /// What of `range` is not there.
    pub(crate) fn gaps(&self, range: ByteRange) -> Vec<ByteRange> {
        self.account.lock().safe.gaps(range)
    }

    /// What of the whole file is not there.
    pub(crate) fn missing(&self) -> Vec<ByteRange> {
        self.gaps(ByteRange {
            start: 0,
            end: self.size,
        })
    }

    /// These bytes of the file are there now, and stay there if this process dies.
    pub(crate) fn add(&self, range: ByteRange) {
        let mut account = self.account.lock();
        account.safe.insert(range);
        account.unrecorded += range.len();
        let many = UNRECORDED_BYTES.max(self.size / RECORDS);
        let is_due = account.unrecorded >= many || account.recorded.elapsed() >= UNRECORDED_TIME;
        let due = is_due.then(|| account.take());
        drop(account);
        if let Some(safe) = due {
            self.record(&safe);
        }
    }

    /// No more than the first `bytes` of the file can be there.
    pub(crate) fn keep(&self, bytes: u64) {
        self.account.lock().safe.remove(ByteRange {
            start: bytes,
            end: u64::MAX,
        });
    }

    /// Nothing is there any more.
    pub(crate) fn clear(&self) {
        let mut account = self.account.lock();
        if !account.safe.is_empty() {
            account.safe = RangeSet::new();
            let none = account.take();
            drop(account);
            self.record(&none);
        }
    }

    /// Records all that is there.
    pub(crate) fn flush(&self) {
        let mut account = self.account.lock();
        if account.unrecorded > 0 {
            let safe = account.take();
            drop(account);
            self.record(&safe);
        }
    }

    fn record(&self, safe: &str) {
        if let Some(journal) = &self.journal {
            journal.record_safe(&self.target, safe);
        }
    }
}

impl Account {
    /// What there is, for a line of the journal.
    fn take(&mut self) -> String {
        self.unrecorded = 0;
        self.recorded = Instant::now();
        word(&self.safe)
    }
}

/// Ranges as one word: `0-100,200-300`, and `0-0` where there are none.
fn word(safe: &RangeSet) -> String {
    let mut word = String::new();
    for range in safe.iter().take(RANGES_MAX) {
        // Writing to a `String` never fails.
        let _ = write!(word, "{range},");
    }
    match word.pop() {
        None => "0-0".to_owned(),
        Some(_) => word,
    }
}

/// The ranges of such a word; `None` for another one.
pub(super) fn ranges(word: &[u8]) -> Option<RangeSet> {
    let word = std::str::from_utf8(word).ok()?;
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        ByteRange::new(start.parse().ok()?, end.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = word.split(',').take(RANGES_MAX + 1).map(range).collect();
    let ranges = ranges.filter(|ranges| ranges.len() <= RANGES_MAX)?;
    Some(ranges.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::local::journal::SourceVersion;

    const PART: &str = "/d/.godwit-0123456789abcdef.part";

    const VERSION: SourceVersion = SourceVersion {
        size: 1 << 40,
        changed: Some(7),
    };

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    #[test]
    fn what_is_there_is_known_to_a_later_run() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Arc::new(Journal::open(Some(&file), "", false).unwrap().unwrap());
        let account = |journal: &Arc<Journal>| {
            SafeRanges::of_journal(Some(journal), "ftp://h/f".to_owned(), VERSION.size)
        };
        let journal = open();
        journal.record_temp("ftp://h/f", PART.as_bytes(), None);
        journal.record_source("ftp://h/f", VERSION);
        let safe = account(&journal);
        assert!(safe.is_empty());
        safe.add(range(0, 10));
        safe.add(range(1 << 30, 2 << 30));
        safe.add(range(10, 20));
        drop((safe, journal));
        let journal = open();
        let safe = account(&journal);
        let recorded = [range(0, 10), range(1 << 30, 2 << 30)];
        assert_eq!(
            journal.safe_of("ftp://h/f"),
            recorded.into_iter().collect(),
            "small ones wait"
        );
        assert_eq!(
            safe.missing(),
            [range(10, 1 << 30), range(2 << 30, 1 << 40)]
        );
        // The same version is recorded again, and the account goes on.
        journal.record_source("ftp://h/f", VERSION);
        assert_eq!(open().safe_of("ftp://h/f").count(), 2);
        safe.add(range(10, 20));
        safe.flush();
        assert_eq!(
            open().safe_of("ftp://h/f").gaps(range(0, 30)),
            [range(20, 30)]
        );
        safe.clear();
        assert!(open().safe_of("ftp://h/f").is_empty());
    }

    #[test]
    fn nothing_is_known_of_another_version_file_or_boot() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("journal");
        let open = || Arc::new(Journal::open(Some(&file), "", false).unwrap().unwrap());
        let begun = || {
            let _ = fs::remove_file(&file);
            let journal = open();
            journal.record_temp("t", PART.as_bytes(), None);
            journal.record_source("t", VERSION);
            journal.record_safe("t", "0-10,20-30");
            assert_eq!(open().safe_of("t").covered(), 20);
            journal
        };
        let other = SourceVersion {
            changed: Some(8),
            ..VERSION
        };
        begun().record_source("t", other);
        assert!(open().safe_of("t").is_empty());
        begun().record_temp("t", PART.as_bytes(), None);
        assert!(open().safe_of("t").is_empty());
        drop(begun());
        let text = fs::read_to_string(&file).unwrap();
        let lines: Vec<_> = text.lines().collect();
        let (first, rest) = lines.split_at(1);
        let before = rest.iter().filter(|line| !line.starts_with("boot"));
        let before: Vec<_> = before.copied().collect();
        fs::write(
            &file,
            format!("{}\nboot x .\n{}\n", first[0], before.join("\n")),
        )
        .unwrap();
        assert!(
            open().safe_of("t").is_empty(),
            "they may not have reached the disk"
        );
    }

    #[test]
    fn words_of_another_form_are_none() {
        assert_eq!(ranges(b"0-0").unwrap(), RangeSet::new());
        for bad in ["", "1", "1-", "2-1", "0-1,", "0-1;2-3", "-1-2", "x"] {
            assert!(ranges(bad.as_bytes()).is_none(), "{bad}");
        }
        let many: RangeSet = (0..2000).map(|n| range(n * 10, n * 10 + 1)).collect();
        let kept = ranges(word(&many).as_bytes()).unwrap();
        assert_eq!(kept.count(), RANGES_MAX);
        assert!(
            ranges(
                "0-1,"
                    .repeat(RANGES_MAX + 1)
                    .trim_end_matches(',')
                    .as_bytes()
            )
            .is_none()
        );
    }
}
