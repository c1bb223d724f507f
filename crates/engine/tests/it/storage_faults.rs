//! Storages that fail on purpose, streams over files, checksums of files.

use std::{
    io::{Read, Write},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use godwit_engine::storage::{
    FastPath, FileCursor, FileKind, MemoryStorage, NullStorage, PosixStorage, Storage, WriteMode,
    digest, failure,
    faulty::{Fault, FaultyStorage, Operation},
    line_endings::{CrlfReader, LfWriter},
};
use godwit_proto::{ChecksumAlgorithm, FtpPath};

const EIO: i32 = 5;
const EINVAL: i32 = 22;
const ENOSPC: i32 = 28;
const ECANCELED: i32 = 125;

fn p(path: &str) -> FtpPath {
    FtpPath::new(path).unwrap()
}

fn memory_with(path: &str, bytes: &[u8]) -> Arc<MemoryStorage> {
    let storage = Arc::new(MemoryStorage::new());
    let file = storage.open_write(&p(path), WriteMode::New).unwrap();
    file.write_all_at(0, bytes).unwrap();
    storage
}

#[test]
fn the_nth_call_fails() {
    let faults = vec![
        Fault::Fail {
            operation: Operation::Read,
            nth: 1,
            errno: EIO,
        },
        Fault::ShortReads { bytes_max: 2 },
    ];
    let storage = FaultyStorage::new(memory_with("/f", b"abcdef"), faults);
    let file = storage.open_read(&p("/f")).unwrap();
    let mut bytes = [0; 6];
    assert_eq!(file.read_at(0, &mut bytes).unwrap(), 2);
    let failure = file.read_at(2, &mut bytes).unwrap_err();
    assert_eq!(
        (failure.errno, failure.text.as_str()),
        (EIO, "Input/output error")
    );
    assert_eq!(file.read_at(2, &mut bytes).unwrap(), 2);
    assert!(matches!(file.fast_path(), FastPath::Copy));
}

#[test]
fn a_full_device_keeps_what_fits() {
    let memory = Arc::new(MemoryStorage::new());
    let calls = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&calls);
    let storage = FaultyStorage::new(
        Arc::clone(&memory) as _,
        vec![Fault::NoSpaceAfter { bytes: 5 }],
    )
    .with_delay(Arc::new(move |_, _| {
        seen.fetch_add(1, Ordering::Relaxed);
    }));
    let file = storage.open_write(&p("/f"), WriteMode::New).unwrap();
    file.write_all_at(0, b"abc").unwrap();
    assert_eq!(file.write_all_at(3, b"def").unwrap_err().errno, ENOSPC);
    assert_eq!(file.write_all_at(6, b"x").unwrap_err().errno, ENOSPC);
    assert_eq!(memory.stat(&p("/f")).unwrap().size, 5);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

#[test]
fn a_seed_repeats_itself() {
    let faults = |seed| {
        FaultyStorage::from_seed(Arc::new(NullStorage::new(0)), seed, 100, 1 << 20)
            .faults()
            .to_vec()
    };
    assert_eq!(faults(7), faults(7));
    assert!((0..50).any(|seed| faults(seed) != faults(seed + 1)));
    assert!((0..200).all(|seed| (1..=3).contains(&faults(seed).len())));
}

#[test]
fn memory_is_bounded() {
    let clock = Arc::new(|| std::time::SystemTime::UNIX_EPOCH);
    let storage = MemoryStorage::with(10, clock);
    let file = storage.open_write(&p("/f"), WriteMode::New).unwrap();
    file.write_all_at(0, b"0123456").unwrap();
    assert_eq!(storage.free_bytes(&p("/")).unwrap(), 3);
    assert_eq!(file.write_all_at(5, b"0123456").unwrap_err().errno, ENOSPC);
    assert_eq!(file.write_all_at(1 << 50, b"x").unwrap_err().errno, ENOSPC);
    assert_eq!(file.metadata().unwrap().size, 7);
    storage.remove_file(&p("/f")).unwrap();
    drop(file);
    assert_eq!(storage.free_bytes(&p("/")).unwrap(), 10);
}

#[test]
fn null_reads_zeros_and_forgets() {
    let storage = NullStorage::new(5);
    let file = storage.open_read(&p("/any/thing")).unwrap();
    let mut bytes = [1; 9];
    assert_eq!(file.read_at(2, &mut bytes).unwrap(), 3);
    assert_eq!(bytes, [0, 0, 0, 1, 1, 1, 1, 1, 1]);
    assert!(matches!(file.fast_path(), FastPath::Zeros));
    let file = storage.open_write(&p("/x"), WriteMode::New).unwrap();
    file.write_all_at(10, b"abc").unwrap();
    assert_eq!(file.metadata().unwrap().size, 13);
    assert!(matches!(file.fast_path(), FastPath::Discard));
    assert_eq!(storage.stat(&p("/")).unwrap().kind, FileKind::Directory);
}

#[test]
fn text_streams_over_files() {
    let storage = memory_with("/unix", b"a\nb\r\nc");
    let source = FileCursor::new(storage.open_read(&p("/unix")).unwrap(), 0);
    let mut wire = Vec::new();
    CrlfReader::new(source).read_to_end(&mut wire).unwrap();
    assert_eq!(wire, b"a\r\nb\r\nc");
    let target = storage.open_write(&p("/back"), WriteMode::New).unwrap();
    LfWriter::new(FileCursor::new(target, 0))
        .write_all(&wire)
        .unwrap();
    let mut back = String::new();
    let file = storage.open_read(&p("/back")).unwrap();
    FileCursor::new(file, 2)
        .until(4)
        .read_to_string(&mut back)
        .unwrap();
    assert_eq!(back, "b\n");
}

#[test]
fn a_stream_error_carries_the_failure() {
    let fault = Fault::Fail {
        operation: Operation::Read,
        nth: 0,
        errno: EIO,
    };
    let storage = FaultyStorage::new(memory_with("/f", b"x"), vec![fault]);
    let mut cursor = FileCursor::new(storage.open_read(&p("/f")).unwrap(), 0);
    let error = cursor.read(&mut [0; 4]).unwrap_err();
    let found = failure("send", &error);
    assert_eq!((found.errno, found.doing.as_str()), (EIO, "read at 0"));
}

#[test]
fn ranges_of_files_have_checksums() {
    let dir = tempfile::tempdir().unwrap();
    let posix: Arc<dyn Storage> = Arc::new(PosixStorage::rooted(dir.path()).unwrap());
    let short = vec![Fault::ShortReads { bytes_max: 1000 }];
    let slow: Arc<dyn Storage> =
        Arc::new(FaultyStorage::new(Arc::new(MemoryStorage::new()), short));
    let bytes: Vec<u8> = (0..3_000_000_u32)
        .map(|i| i.to_le_bytes()[0] ^ 0x5a)
        .collect();
    for storage in [posix, slow] {
        let file = storage.open_write(&p("/f"), WriteMode::New).unwrap();
        file.write_all_at(0, &bytes).unwrap();
        for algorithm in ChecksumAlgorithm::ALL {
            for (offset, length, end) in [
                (0, None, 3_000_000),
                (5, Some(1_500_000), 1_500_005),
                (2_999_999, Some(100), 3_000_000),
                (7, Some(0), 7),
                (3_000_000, None, 3_000_000),
            ] {
                let got = digest::of_file(&*file, algorithm, offset, length, &mut |_| true);
                let mut whole = digest::Digest::new(algorithm);
                whole.update(&bytes[usize::try_from(offset).unwrap()..end]);
                assert_eq!(
                    got.unwrap(),
                    whole.finish(),
                    "{algorithm} {offset} {length:?}"
                );
            }
        }
        let past = digest::of_file(
            &*file,
            ChecksumAlgorithm::Adler32,
            1 << 40,
            None,
            &mut |_| true,
        );
        assert_eq!(past.unwrap(), "00000001");
    }
}

#[test]
fn a_checksum_reports_and_stops() {
    let file = NullStorage::new(100 << 20).open_read(&p("/f")).unwrap();
    let mut calls = Vec::new();
    let mut stop_at_third = |done| {
        calls.push(done);
        calls.len() < 3
    };
    let outcome = digest::of_file(
        &*file,
        ChecksumAlgorithm::Crc32c,
        0,
        None,
        &mut stop_at_third,
    );
    assert_eq!(outcome.unwrap_err().errno, ECANCELED);
    assert_eq!(calls, [16 << 20, 32 << 20, 48 << 20]);
    let zero = PosixStorage::rooted("/dev")
        .unwrap()
        .open_read(&p("/zero"))
        .unwrap();
    let endless = digest::of_file(&*zero, ChecksumAlgorithm::Md5, 0, None, &mut |_| true);
    assert_eq!(endless.unwrap_err().errno, EINVAL);
    let bounded = digest::of_file(&*zero, ChecksumAlgorithm::Crc32c, 9, Some(32), &mut |_| {
        true
    });
    assert_eq!(bounded.unwrap(), "8a9136aa");
}
