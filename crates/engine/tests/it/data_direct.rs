//! Files that are read and written past the page cache: the same bytes in the same places, wherever
//! they begin.

use std::{
    fs::File,
    io::{IoSliceMut, Write as _},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::{
    data::{ChannelSet, Mover, Sink, Source, TransferJob},
    storage::{FastPath, FileRef, Metadata, PosixStorage, Result, Storage, WriteMode, digest},
};
use godwit_proto::{ByteRange, ChecksumAlgorithm, FtpPath, command::Mode, mode_e::BlockHeader};
use rustix::{
    fs::{FsWord, fstatfs},
    io::{Errno, ReadWriteFlags, preadv2},
};
use tempfile::TempDir;

use crate::{
    data::{Bytes, Pair, done, into, listener, params, pattern, run},
    data_holes::{assert_carries_holes_in, knowing},
};

const PAGE: usize = 4 << 10;
const MIB: usize = 1 << 20;

/// Of statfs(2).
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// A directory that direct I/O is asked for in.
pub(crate) struct Place {
    folder: TempDir,
    pub(crate) storage: PosixStorage,
}

impl Place {
    pub(crate) fn new() -> Self {
        Self::below(&std::env::temp_dir())
    }

    fn below(parent: &Path) -> Self {
        let folder = tempfile::tempdir_in(parent).unwrap();
        let storage = PosixStorage::rooted(folder.path()).unwrap();
        Self {
            folder,
            storage: storage.with_direct_io(true),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn open(&self, name: &str) -> FileRef {
        let path = FtpPath::new(format!("/{name}")).unwrap();
        self.storage.open_write(&path, WriteMode::Keep).unwrap()
    }

    fn holding(&self, name: &str, bytes: &[u8]) -> FileRef {
        std::fs::write(self.path(name), bytes).unwrap();
        self.open(name)
    }

    fn read(&self, name: &str) -> Vec<u8> {
        std::fs::read(self.path(name)).unwrap()
    }
}

/// A directory on a disk, and one in memory, where the kernel takes what is asked for or refuses
/// it.
fn places() -> Vec<Place> {
    let memory = Path::new("/dev/shm");
    let mut places = vec![Place::new()];
    if memory.is_dir() {
        places.push(Place::below(memory));
    }
    places
}

fn from(file: &FileRef, ranges: &[ByteRange]) -> TransferJob {
    TransferJob::Send(Source::File {
        file: Arc::clone(file),
        base: 0,
        ranges: ranges.to_vec(),
    })
}

fn to(file: &FileRef) -> TransferJob {
    TransferJob::Receive(Sink::File {
        file: Arc::clone(file),
        base: 0,
        stream_start: 0,
        limit: None,
    })
}

fn copy(pair: &Pair, mode: Mode, send: TransferJob, receive: TransferJob) {
    run(async {
        let mut receive = pair.receiver.start(receive, mode);
        let mut send = pair.sender.start(send, mode);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
    });
}

fn range(start: usize, end: usize) -> ByteRange {
    ByteRange {
        start: start as u64,
        end: end as u64,
    }
}

/// Whether the page at `at` is in memory. `None`: the file system cannot tell. Once of a file: the
/// kernel reads ahead.
fn is_cached(path: &Path, at: u64) -> Option<bool> {
    let file = File::open(path).unwrap();
    let mut byte = [0; 1];
    let read = preadv2(
        &file,
        &mut [IoSliceMut::new(&mut byte)],
        at,
        ReadWriteFlags::NOWAIT,
    );
    match read {
        Ok(_) => Some(true),
        Err(Errno::AGAIN) => Some(false),
        Err(_) => None,
    }
}

/// Between files of `place`, in both modes and from and to memory, so that each end is seen alone.
pub(crate) fn assert_copies(place: &Place, pair: impl Fn(u32) -> Pair) {
    for bytes in [1, PAGE, 65_535, 65_536, MIB - 1, MIB, 3 * MIB + 70_001] {
        let content = pattern(bytes);
        let source = place.holding("a", &content);
        for (mode, channels) in [
            (Mode::ExtendedBlock, 1),
            (Mode::ExtendedBlock, 3),
            (Mode::Stream, 1),
        ] {
            let pair = pair(channels);
            let target = place.holding("b", b"");
            let (sent, got) = (Bytes::new(Vec::new()), Bytes::new(content.clone()));
            let all = [range(0, bytes)];
            copy(&pair, mode, from(&source, &all), to(&target));
            assert!(place.read("b") == content, "{bytes} {mode:?} {channels}");
            copy(&pair, mode, from(&source, &all), into(&sent));
            assert!(sent.bytes() == content, "{bytes} {mode:?} {channels}");
            let target = place.holding("c", b"");
            copy(&pair, mode, crate::data::whole(&got), to(&target));
            assert!(place.read("c") == content, "{bytes} {mode:?} {channels}");
        }
    }
}

#[test]
fn every_length_arrives_in_every_mode() {
    for place in places() {
        assert_copies(&place, |channels| Pair::new(1, &params(channels, 1 << 20)));
        // Blocks that are no pages long.
        assert_copies(&place, |channels| Pair::new(1, &params(channels, 150_001)));
    }
}

/// What a restart asks for begins and ends anywhere; what lies outside of it stays as it is.
#[test]
fn ranges_begin_and_end_anywhere() {
    let bytes = 5 * MIB + 12_345;
    let content = pattern(bytes);
    let old = vec![0xff; bytes];
    let asked = [
        range(1, PAGE),
        range(PAGE + 17, 2 * MIB - 3),
        range(2 * MIB, 2 * MIB + 200_000),
        range(3 * MIB + 9, bytes),
    ];
    for place in places() {
        let source = place.holding("a", &content);
        for (channels, block) in [(1, MIB), (3, MIB), (2, 100_003)] {
            let target = place.holding("b", &old);
            let pair = Pair::new(1, &params(channels, block as u64));
            let mode = Mode::ExtendedBlock;
            copy(&pair, mode, from(&source, &asked), to(&target));
            let mut want = old.clone();
            for range in asked {
                let [start, end] = [range.start, range.end].map(|at| usize::try_from(at).unwrap());
                let range = start..end;
                want[range.clone()].copy_from_slice(&content[range]);
            }
            assert!(place.read("b") == want, "{channels} {block}");
        }
    }
}

#[test]
fn holes_are_holes_again() {
    for channels in [1, 3] {
        let place = Place::new();
        let pair = Pair::new(1, &knowing(channels));
        assert_carries_holes_in(place.folder, place.storage, &pair);
    }
}

#[test]
fn direct_io_leaves_nothing_in_the_page_cache() {
    let place = Place::new();
    let content = pattern(4 * MIB);
    let cached = place.path("cached");
    std::fs::write(&cached, &content).unwrap();
    let [received, sent] = ["received", "sent"].map(|name| place.open(name));
    // A file system without it, one in memory, or one that cannot be asked has nothing to show.
    let in_memory = fstatfs(File::open(&cached).unwrap()).unwrap().f_type == TMPFS_MAGIC;
    if !matches!(received.fast_path(), FastPath::Direct)
        || in_memory
        || is_cached(&cached, 2 << 20) != Some(true)
    {
        return;
    }
    let pair = Pair::new(1, &params(2, 1 << 20));
    let (source, target) = (Bytes::new(content.clone()), Bytes::new(Vec::new()));
    let mode = Mode::ExtendedBlock;
    copy(&pair, mode, crate::data::whole(&source), to(&received));
    copy(&pair, mode, crate::data::whole(&source), to(&sent));
    copy(
        &pair,
        mode,
        from(&sent, &[range(0, 4 * MIB)]),
        into(&target),
    );
    let sum = |file: &dyn godwit_engine::storage::File| {
        digest::of_file(file, ChecksumAlgorithm::Crc32c, 0, None, &mut |_| true)
    };
    assert_eq!(sum(&*sent), sum(&*source));
    let in_cache = ["received", "sent"].map(|name| is_cached(&place.path(name), 2 << 20));
    assert_eq!(in_cache, [Some(false); 2]);
    assert!(target.bytes() == content && place.read("received") == content);
}

/// The last write of a channel is what it has gathered.
#[test]
fn bytes_before_a_lost_connection_are_kept() {
    let content = pattern(MIB + 300_007);
    for place in places() {
        let target = place.open("f");
        let (listener, at) = listener();
        let mover = [Mover::spawn("m").unwrap()];
        let set = ChannelSet::passive(&mover, listener, params(1, 1 << 20)).unwrap();
        let report = run(async {
            let mut transfer = set.start(to(&target), Mode::ExtendedBlock);
            let mut peer = TcpStream::connect(at).unwrap();
            // Far more is announced than comes.
            let header = BlockHeader::data(5, 4 << 20).encode();
            peer.write_all(&header).unwrap();
            peer.write_all(&content).unwrap();
            drop(peer);
            done(&mut transfer).await
        });
        assert!(report.result.is_err());
        let came = range(5, 5 + content.len());
        assert_eq!(report.safe.iter().collect::<Vec<_>>(), [came]);
        assert!(place.read("f")[5..] == content);
    }
}

/// A file that passes the cache by until it is written to for the first time.
struct Fickle {
    file: FileRef,
    is_written: AtomicBool,
}

impl godwit_engine::storage::File for Fickle {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.is_written.store(true, Ordering::SeqCst);
        self.file.write_all_at(offset, bytes)
    }
    fn metadata(&self) -> Result<Metadata> {
        self.file.metadata()
    }
    fn sync(&self) -> Result<()> {
        self.file.sync()
    }
    fn fast_path(&self) -> FastPath<'_> {
        match self.is_written.load(Ordering::SeqCst) {
            true => self.file.fast_path(),
            false => FastPath::Direct,
        }
    }
}

/// What a channel has gathered is written before what comes behind it, which may take the way of a
/// descriptor by then.
#[test]
fn a_file_may_refuse_it_at_any_time() {
    const FIRST: usize = 100_001;
    let folder = tempfile::tempdir().unwrap();
    let path = FtpPath::new("/f").unwrap();
    let plain = PosixStorage::rooted(folder.path()).unwrap();
    let file: FileRef = Arc::new(Fickle {
        file: plain.open_write(&path, WriteMode::New).unwrap(),
        is_written: AtomicBool::new(false),
    });
    let content = pattern(2 * MIB);
    let (listener, at) = listener();
    let mover = [Mover::spawn("m").unwrap()];
    let set = ChannelSet::passive(&mover, listener, params(2, 1 << 20)).unwrap();
    let report = run(async {
        let mut transfer = set.start(to(&file), Mode::ExtendedBlock);
        let mut peers = [0, 1].map(|_| TcpStream::connect(at).unwrap());
        let header = |bytes: usize, at: usize| BlockHeader::data(at as u64, bytes as u64).encode();
        peers[0].write_all(&header(MIB, 0)).unwrap();
        peers[0].write_all(&content[..FIRST]).unwrap();
        while transfer.monitor().sample().bytes < FIRST as u64 {
            tokio::task::yield_now().await;
        }
        peers[1].write_all(&header(MIB, MIB)).unwrap();
        peers[1].write_all(&content[MIB..]).unwrap();
        while transfer.monitor().sample().bytes < (FIRST + MIB) as u64 {
            tokio::task::yield_now().await;
        }
        peers[0].write_all(&content[FIRST..MIB]).unwrap();
        // EOD, and an EOF that counts two of them.
        let end = |bits: u8, count: u64| {
            let mut header = [0; 17];
            header[0] = bits;
            header[9..].copy_from_slice(&count.to_be_bytes());
            header
        };
        peers[0].write_all(&end(0x48, 2)).unwrap();
        peers[1].write_all(&end(0x08, 0)).unwrap();
        done(&mut transfer).await
    });
    assert_eq!(report.result, Ok(()));
    assert!(std::fs::read(folder.path().join("f")).unwrap() == content);
}

/// Bytes lie in memory where they will; no call may leave any out.
#[test]
fn reads_and_writes_are_whole_wherever_they_lie() {
    let bytes = 3 * MIB;
    for place in places() {
        let mut want = pattern(bytes);
        let file = place.holding("f", &want);
        let memory: Vec<_> = pattern(bytes + PAGE).into_iter().rev().collect();
        let page = (PAGE - memory.as_ptr().addr() % PAGE) % PAGE;
        for (at, start, length) in [
            (0, page, MIB),
            (PAGE, page, 65_536),
            (5, page, 200_000),
            (2 * PAGE + 5, page + 5, 300_000),
            (MIB, page + 1, MIB),
            (2 * MIB - 1, page + PAGE - 1, 65_537 + PAGE),
            (bytes - 10, page, 100_000),
        ] {
            let written = &memory[start..start + length];
            file.write_all_at(at as u64, written).unwrap();
            want.resize(want.len().max(at + length), 0);
            want[at..at + length].copy_from_slice(written);
            let mut back = vec![0; length + 10];
            let mut read = 0;
            loop {
                let got = file.read_at((at + read) as u64, &mut back[read..]).unwrap();
                read += got;
                if got == 0 || read == back.len() {
                    break;
                }
            }
            assert!(back[..read] == want[at..at + read], "{at} {start} {length}");
            assert_eq!(read, back.len().min(want.len() - at));
            assert!(place.read("f") == want, "{at} {start} {length}");
        }
    }
}

/// Files of /proc are regular, and have no such way.
#[test]
fn files_without_direct_io_are_opened_plainly() {
    let storage = PosixStorage::unconfined().with_direct_io(true);
    let path = FtpPath::new("/proc/self/comm").unwrap();
    let plain = PosixStorage::unconfined();
    for file in [
        storage.open_read(&path).unwrap(),
        storage.open_write(&path, WriteMode::Keep).unwrap(),
        plain.open_read(&path).unwrap(),
    ] {
        assert!(matches!(file.fast_path(), FastPath::Descriptor(_)));
        let mut name = [0; 64];
        assert!(file.read_at(0, &mut name).unwrap() > 0);
    }
}
