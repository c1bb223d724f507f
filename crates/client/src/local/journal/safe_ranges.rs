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

/// Time until new bytes are recorded, however few: for each KiB of the record, so that the journal
/// does not grow faster than by that, and at most.
const UNRECORDED_TIME: Duration = Duration::from_secs(5);
const UNRECORDED_TIME_MAX: Duration = Duration::from_secs(60);

/// Bytes of what a server calls a version. A longer one is not remembered.
const VERSION_BYTES_MAX: usize = 1000;

/// Ranges of a record. What lies in further ones is moved again.
const RANGES_MAX: usize = 1000;

/// The account of one file.
#[derive(Debug)]
pub(crate) struct SafeRanges {
    journal: Option<Arc<Journal>>,
    /// Names the file in the journal, and where its bytes lie until it is complete.
    target: String,
    temp_path: Vec<u8>,
    /// Bytes of the whole file.
    size: u64,
    account: Mutex<Account>,
}

#[derive(Debug)]
struct Account {
    safe: RangeSet,
    /// What the server calls the version that these bytes are of.
    version: Option<String>,
    /// The journal may name ranges.
    is_recorded: bool,
    /// Bytes since the last record, when that was, and how long it was.
    unrecorded: u64,
    recorded_at: Instant,
    record_bytes: usize,
}

impl SafeRanges {
    /// Of a file of `size` bytes that lie at `temp_path`, of which no more than the first `there`
    /// can be there, as far as the journal says which.
    pub(crate) fn of_journal(
        journal: Option<&Arc<Journal>>,
        target: String,
        temp_path: Vec<u8>,
        size: u64,
        there: u64,
    ) -> Self {
        let safe = journal.and_then(|journal| journal.safe_of(&target));
        let (safe, version) = safe.unwrap_or_default();
        let account = Account {
            version,
            is_recorded: !safe.is_empty(),
            safe,
            unrecorded: 0,
            recorded_at: Instant::now(),
            record_bytes: 0,
        };
        let own = Self {
            journal: journal.cloned(),
            target,
            temp_path,
            size,
            account: Mutex::new(account),
        };
        own.keep(there.min(size));
        own
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

    /// What the server calls the version that the bytes are of, where it has told.
    pub(crate) fn version(&self) -> Option<String> {
        self.account.lock().version.clone()
    }

    /// The bytes that come are of this version.
    pub(crate) fn set_version(&self, version: Option<String>) {
        let version = version.filter(|version| version.len() <= VERSION_BYTES_MAX);
        self.account.lock().version = version;
    }

    /// The same, known to a later run from now on.
    pub(crate) fn name_version(&self, version: String) {
        if self.version().as_ref() == Some(&version) {
            return;
        }
        self.set_version(Some(version));
        self.record(&mut self.account.lock());
    }

    /// These bytes are there, and no others.
    pub(crate) fn replace(&self, safe: RangeSet) {
        let mut account = self.account.lock();
        account.safe = safe;
        self.record(&mut account);
    }

    /// These bytes of the file are there now, and stay there if this process dies.
    pub(crate) fn add(&self, range: ByteRange) {
        let mut account = self.account.lock();
        account.safe.insert(range);
        account.unrecorded += range.len();
        let many = UNRECORDED_BYTES.max(self.size / RECORDS);
        if account.unrecorded >= many || account.is_late() {
            self.record(&mut account);
        }
    }

    /// These bytes are to be moved again.
    pub(crate) fn forget(&self, range: ByteRange) {
        let mut account = self.account.lock();
        let before = account.safe.covered();
        account.safe.remove(range);
        if account.safe.covered() < before {
            self.record(&mut account);
        }
    }

    /// No more than the first `bytes` of the file can be there.
    pub(crate) fn keep(&self, bytes: u64) {
        self.forget(ByteRange {
            start: bytes,
            end: u64::MAX,
        });
    }

    /// Nothing is there any more.
    pub(crate) fn clear(&self) {
        let mut account = self.account.lock();
        account.version = None;
        account.safe = RangeSet::new();
        if account.is_recorded {
            self.record(&mut account);
        }
    }

    /// Records all that is there.
    pub(crate) fn flush(&self) {
        let mut account = self.account.lock();
        if account.unrecorded > 0 {
            self.record(&mut account);
        }
    }

    /// Under the lock, so that the last record is the last account.
    fn record(&self, account: &mut Account) {
        let ranges = format_ranges(&account.safe);
        account.is_recorded = !account.safe.is_empty();
        account.unrecorded = 0;
        account.recorded_at = Instant::now();
        account.record_bytes = ranges.len();
        if let Some(journal) = &self.journal {
            let version = account.version.as_deref();
            journal.record_safe(&self.target, &self.temp_path, version, &ranges);
        }
    }
}

impl Account {
    fn is_late(&self) -> bool {
        let length = u32::try_from(self.record_bytes >> 10).unwrap_or(u32::MAX);
        let time = UNRECORDED_TIME.saturating_mul(length.saturating_add(1));
        self.recorded_at.elapsed() >= time.min(UNRECORDED_TIME_MAX)
    }
}

/// Ranges as a journal has them: `0-100,200-300`, and `0-0` where there are none.
fn format_ranges(safe: &RangeSet) -> String {
    let mut text = String::new();
    for range in safe.iter().take(RANGES_MAX) {
        // Writing to a `String` never fails.
        let _ = write!(text, "{range},");
    }
    match text.pop() {
        None => "0-0".to_owned(),
        Some(_) => text,
    }
}

/// The ranges of such a text; `None` for another one.
pub(super) fn parse_ranges(text: &[u8]) -> Option<RangeSet> {
    let text = std::str::from_utf8(text).ok()?;
    let range = |text: &str| {
        let (start, end) = text.split_once('-')?;
        ByteRange::new(start.parse().ok()?, end.parse().ok()?)
    };
    let ranges: Option<Vec<_>> = text.split(',').take(RANGES_MAX + 1).map(range).collect();
    let ranges = ranges.filter(|ranges| ranges.len() <= RANGES_MAX)?;
    Some(ranges.into_iter().collect())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::local::journal::{Order, SourceVersion};

    const PART: &str = "/d/.godwit-0123456789abcdef.part";

    const VERSION: SourceVersion = SourceVersion {
        size: 1 << 40,
        changed: Some(7),
    };

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange::new(start, end).unwrap()
    }

    struct Place(tempfile::TempDir);

    impl Place {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn file(&self) -> std::path::PathBuf {
            self.0.path().join("journal")
        }

        fn open(&self) -> Arc<Journal> {
            Arc::new(
                Journal::open(Some(&self.file()), "", false)
                    .unwrap()
                    .unwrap(),
            )
        }

        /// A journal of a run that has begun the file.
        fn begun(&self) -> Arc<Journal> {
            let journal = self.open();
            journal.record_temp("t", PART.as_bytes(), None);
            journal.record_source("t", VERSION, Order::Any);
            journal
        }

        fn recorded(&self) -> Vec<ByteRange> {
            let safe = self.open().safe_of("t");
            safe.map(|(safe, _)| safe.iter().collect())
                .unwrap_or_default()
        }
    }

    fn account(journal: &Arc<Journal>, there: u64) -> SafeRanges {
        let part = PART.as_bytes().to_vec();
        SafeRanges::of_journal(Some(journal), "t".to_owned(), part, VERSION.size, there)
    }

    #[test]
    fn what_is_there_is_known_to_a_later_run() {
        let place = Place::new();
        let safe = account(&place.begun(), VERSION.size);
        assert!(safe.is_empty());
        safe.add(range(0, 10));
        safe.set_version(Some("\"a b\"".to_owned()));
        safe.add(range(1 << 30, 2 << 30));
        safe.add(range(10, 20));
        drop(safe);
        let recorded = [range(0, 10), range(1 << 30, 2 << 30)];
        assert_eq!(place.recorded(), recorded, "small ones wait");
        let journal = place.open();
        let safe = account(&journal, VERSION.size);
        assert_eq!(safe.version().as_deref(), Some("\"a b\""));
        assert_eq!(
            safe.missing(),
            [range(10, 1 << 30), range(2 << 30, 1 << 40)]
        );
        // The same version is recorded again, and the account goes on.
        journal.record_source("t", VERSION, Order::Any);
        assert_eq!(place.recorded().len(), 2);
        safe.add(range(10, 20));
        safe.flush();
        assert_eq!(place.recorded()[0], range(0, 20));
        safe.clear();
        assert_eq!(place.recorded(), []);
    }

    #[test]
    fn what_is_gone_is_gone_from_the_journal_at_once() {
        let place = Place::new();
        let journal = place.begun();
        account(&journal, VERSION.size).add(range(0, 2 << 30));
        // Something has cut the partial file, and it grows again.
        let safe = account(&place.open(), 100);
        assert_eq!(place.recorded(), [range(0, 100)]);
        safe.clear();
        assert_eq!(place.recorded(), []);
        let safe = account(&place.begun(), VERSION.size);
        safe.add(range(0, 2 << 30));
        safe.forget(range(5, 10));
        assert_eq!(place.recorded(), [range(0, 5), range(10, 2 << 30)]);
    }

    #[test]
    fn nothing_is_known_of_another_version_file_or_boot() {
        let place = Place::new();
        let begun = || {
            let _ = fs::remove_file(place.file());
            let journal = place.begun();
            journal.record_safe("t", PART.as_bytes(), None, "0-10,20-30");
            assert_eq!(place.recorded(), [range(0, 10), range(20, 30)]);
            journal
        };
        let other = SourceVersion {
            changed: Some(8),
            ..VERSION
        };
        begun().record_source("t", other, Order::Any);
        assert_eq!(place.recorded(), []);
        begun().record_temp("t", PART.as_bytes(), None);
        assert_eq!(place.recorded(), []);
        // Of another run at the same time, which has a partial file of its own.
        let journal = begun();
        journal.record_safe("t", b"/d/.godwit-00000000000000ff.part", None, "0-1000");
        assert_eq!(place.recorded(), [range(0, 10), range(20, 30)]);
        drop(journal);
        let text = fs::read_to_string(place.file()).unwrap();
        let rest = text
            .lines()
            .skip(1)
            .filter(|line| !line.starts_with("boot"));
        let first = text.lines().next().unwrap();
        let rest = rest.collect::<Vec<_>>().join("\n");
        fs::write(place.file(), format!("{first}\nboot x .\n{rest}\n")).unwrap();
        assert_eq!(place.recorded(), [], "they may not have reached the disk");
    }

    #[test]
    fn ranges_of_another_form_are_none() {
        assert_eq!(parse_ranges(b"0-0").unwrap(), RangeSet::new());
        for bad in ["", "1", "1-", "2-1", "0-1,", "0-1;2-3", "-1-2", "x"] {
            assert!(parse_ranges(bad.as_bytes()).is_none(), "{bad}");
        }
        let many: RangeSet = (0..2000).map(|n| range(n * 10, n * 10 + 1)).collect();
        let kept = parse_ranges(format_ranges(&many).as_bytes()).unwrap();
        assert_eq!(kept.count(), RANGES_MAX);
        let too_many = "0-1,".repeat(RANGES_MAX + 1);
        assert!(parse_ranges(too_many.trim_end_matches(',').as_bytes()).is_none());
    }
}
