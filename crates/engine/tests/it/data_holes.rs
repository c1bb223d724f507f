//! Holes of files: announced instead of sent, and holes again where they arrive.

use std::{fs::File, os::unix::fs::FileExt, path::Path, sync::Arc};

use godwit_engine::{
    data::{ChannelParams, Sink, Source, TransferJob, TransferReport},
    storage::{FileRef, PosixStorage, Run, Storage, WriteMode},
};
use godwit_proto::{ByteRange, FtpPath, command::Mode};
use rustix::fs::{SeekFrom, seek};
use tempfile::TempDir;

use crate::data::{Bytes, Pair, done, into, params, pattern, run};

/// Multiple of the blocks of any file system that tests run on.
const UNIT: u64 = 1 << 16;

/// Where the bytes of [`Place::sparse`] are, in units; what is between them are holes.
const DATA: [(u64, u64); 3] = [(2, 3), (20, 25), (90, 91)];

/// Its length in units.
const LENGTH: u64 = 128;

/// A directory with files.
struct Place {
    folder: TempDir,
    storage: PosixStorage,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let storage = PosixStorage::rooted(folder.path()).unwrap();
        Self { folder, storage }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, name: &str, how: WriteMode) -> FileRef {
        let path = FtpPath::new(format!("/{name}")).unwrap();
        self.storage.open_write(&path, how).unwrap()
    }

    /// A file with holes at its beginning, in its middle and at its end.
    fn sparse(&self, name: &str) -> FileRef {
        let file = File::create(self.path(name)).unwrap();
        file.set_len(LENGTH * UNIT).unwrap();
        for (start, end) in DATA {
            let bytes = pattern(usize::try_from((end - start) * UNIT).unwrap());
            file.write_all_at(&bytes, start * UNIT).unwrap();
        }
        self.open(name, WriteMode::Keep)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

/// Ranges of a file that are stored, in units.
fn map(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut map, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        map.push((start / UNIT, at.div_ceil(UNIT)));
    }
    map
}

pub(crate) fn knowing(channels: u32) -> ChannelParams {
    ChannelParams {
        holes: true,
        ..params(channels, 1 << 17)
    }
}

fn from(file: &FileRef, ranges: Vec<ByteRange>) -> TransferJob {
    TransferJob::Send(Source::File {
        file: Arc::clone(file),
        base: 0,
        ranges,
    })
}

fn to(file: &FileRef, limit: Option<u64>) -> TransferJob {
    TransferJob::Receive(Sink::File {
        file: Arc::clone(file),
        base: 0,
        stream_start: 0,
        limit,
    })
}

fn all() -> ByteRange {
    ByteRange {
        start: 0,
        end: LENGTH * UNIT,
    }
}

/// What both say of it, and the payload that travelled.
fn copy(
    pair: &Pair,
    mode: Mode,
    source: &FileRef,
    target: &FileRef,
) -> (TransferReport, TransferReport, u64) {
    run(async {
        let mut receive = pair.receiver.start(to(target, Some(all().end)), mode);
        let mut send = pair.sender.start(from(source, vec![all()]), mode);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        let travelled = send.monitor().sample().bytes;
        assert_eq!((&sent.result, &received.result), (&Ok(()), &Ok(())));
        assert_eq!(receive.monitor().sample().bytes, travelled);
        (sent, received, travelled)
    })
}

/// Copies a sparse file that is sparse again.
pub(crate) fn assert_carries_holes(pair: &Pair) {
    let Place { folder, storage } = Place::new();
    assert_carries_holes_in(folder, storage, pair);
}

/// The same in a directory that `storage` has as its root.
pub(crate) fn assert_carries_holes_in(folder: TempDir, storage: PosixStorage, pair: &Pair) {
    let place = Place { folder, storage };
    let (source, target) = (place.sparse("a"), place.open("b", WriteMode::New));
    let (sent, received, travelled) = copy(pair, Mode::ExtendedBlock, &source, &target);
    assert_eq!(travelled, 7 * UNIT);
    assert_eq!((sent.bytes, received.bytes), (all().end, all().end));
    assert_eq!(received.safe.iter().collect::<Vec<_>>(), [all()]);
    assert!(place.read("a") == place.read("b"));
    assert_eq!(map(&place.path("b")), DATA);
    let stored = |name: &FileRef| name.metadata().unwrap().stored;
    assert_eq!(stored(&source), stored(&target));
}

#[test]
fn holes_do_not_travel_and_are_holes_again() {
    for channels in [1, 4] {
        assert_carries_holes(&Pair::new(1, &knowing(channels)));
    }
}

#[test]
fn old_bytes_at_the_target_do_not_show_through() {
    let place = Place::new();
    let source = place.sparse("a");
    std::fs::write(place.path("b"), vec![0xff; 100 << 16]).unwrap();
    let target = place.open("b", WriteMode::Keep);
    let pair = Pair::new(1, &knowing(3));
    copy(&pair, Mode::ExtendedBlock, &source, &target);
    assert!(place.read("a") == place.read("b"));
    assert_eq!(map(&place.path("b")), DATA);
}

#[test]
fn holes_travel_as_data_without_agreement_and_in_streams() {
    for (parameters, mode) in [
        (params(2, 1 << 17), Mode::ExtendedBlock),
        (knowing(1), Mode::Stream),
    ] {
        let place = Place::new();
        let (source, target) = (place.sparse("a"), place.open("b", WriteMode::New));
        let pair = Pair::new(1, &parameters);
        let (_, _, travelled) = copy(&pair, mode, &source, &target);
        assert_eq!(travelled, all().end);
        assert!(place.read("a") == place.read("b"));
    }
}

/// A restart cuts holes anywhere; what lies outside the ranges stays as it is at the target.
#[test]
fn ranges_cut_holes_and_leave_the_rest_alone() {
    let place = Place::new();
    let source = place.sparse("a");
    let old = vec![0xff; usize::try_from(all().end).unwrap()];
    std::fs::write(place.path("b"), &old).unwrap();
    let target = place.open("b", WriteMode::Keep);
    let ranges: Vec<_> = [(0, 5 * UNIT + 17), (30 * UNIT + 1, 95 * UNIT - 1)]
        .map(|(start, end)| ByteRange { start, end })
        .into();
    let pair = Pair::new(1, &knowing(2));
    let safe = run(async {
        let mut receive = pair.receiver.start(to(&target, None), Mode::ExtendedBlock);
        let mut send = (pair.sender).start(from(&source, ranges.clone()), Mode::ExtendedBlock);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        received.safe
    });
    assert_eq!(safe.iter().collect::<Vec<_>>(), ranges);
    let mut want = old;
    let bytes = place.read("a");
    for range in ranges {
        let range = usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap();
        want[range.clone()].copy_from_slice(&bytes[range]);
    }
    assert!(place.read("b") == want);
}

#[test]
fn a_file_that_cannot_have_holes_gets_zeros() {
    let place = Place::new();
    let source = place.sparse("a");
    let target = Bytes::new(vec![0xff; usize::try_from(all().end).unwrap()]);
    let pair = Pair::new(1, &knowing(2));
    run(async {
        let mut receive = pair.receiver.start(into(&target), Mode::ExtendedBlock);
        let mut send = (pair.sender).start(from(&source, vec![all()]), Mode::ExtendedBlock);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
    });
    assert!(place.read("a") == target.bytes());
}

/// A reader past the end of a file that has become shorter must not see a hole there.
#[test]
fn a_truncated_file_is_not_read_as_a_hole() {
    let place = Place::new();
    let source = place.sparse("a");
    let cut = File::options().write(true).open(place.path("a"));
    cut.unwrap().set_len(50 * UNIT).unwrap();
    assert_eq!(source.run_at(60 * UNIT), Run::Data { end: u64::MAX });
    let target = place.open("b", WriteMode::New);
    let pair = Pair::new(1, &knowing(1));
    run(async {
        let mut receive = pair.receiver.start(to(&target, None), Mode::ExtendedBlock);
        let mut send = (pair.sender).start(from(&source, vec![all()]), Mode::ExtendedBlock);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        let error = sent.result.unwrap_err().to_string();
        assert!(error.contains("the file ends at"), "{error}");
        assert!(received.result.is_err());
    });
}

#[test]
fn cleared_bytes_read_as_zero_and_others_stay() {
    let place = Place::new();
    std::fs::write(place.path("f"), vec![7; 300_000]).unwrap();
    let file = place.open("f", WriteMode::Keep);
    let clear = |start: u64, end: u64| {
        let mut at = start;
        while at < end {
            at += file.clear_at(at, end - at).unwrap();
        }
        assert_eq!(at, end);
    };
    clear(100_001, 200_002);
    clear(299_000, 400_000);
    // Neither shorter nor longer.
    clear(350_000, 360_000);
    let mut want = vec![7; 300_000];
    want[100_001..200_002].fill(0);
    want[299_000..].fill(0);
    want.resize(400_000, 0);
    assert!(place.read("f") == want);
    assert_eq!(file.clear_at(5, 0), Ok(0));
    let beyond = file.clear_at(u64::MAX - 5, 6).map(|_| ());
    assert!(beyond.is_err(), "no file is so long");
    assert_eq!(file.metadata().unwrap().size, 400_000);
}
