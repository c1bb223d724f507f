//! A storage that fails as its script says.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use godwit_proto::FtpPath;
use rustix::io::Errno;

use super::{
    Entries, File, FileRef, Metadata, Result, Run, Storage, WriteMode, errno_failure, failure,
};

/// What can fail. Calls of each kind are counted from 0 over the whole storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub enum Operation {
    OpenRead,
    OpenWrite,
    Read,
    Write,
    Sync,
    Stat,
    List,
    /// Whatever changes names or attributes.
    Change,
}

const OPERATIONS: usize = 8;

/// One thing that goes wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// This call fails and has no effect.
    Fail {
        /// Of this kind.
        operation: Operation,
        /// The first is 0.
        nth: u64,
        /// As the system would say.
        errno: i32,
    },
    /// No read gives more than this many bytes (at least 1).
    ShortReads {
        /// Most bytes.
        bytes_max: usize,
    },
    /// The device holds this many bytes more, counting every byte written. What fits of the write
    /// that passes the bound is written; it and later ones fail with ENOSPC.
    NoSpaceAfter {
        /// Bytes.
        bytes: u64,
    },
}

/// Wraps a storage. The same faults and the same order of calls give the same outcome; files offer
/// no fast path, so that nothing gets around the faults.
pub struct FaultyStorage {
    inner: Arc<dyn Storage>,
    script: Arc<Script>,
}

/// Called before each operation with its number; may block the caller, to stand for a slow device.
pub type Delay = Arc<dyn Fn(Operation, u64) + Send + Sync>;

struct Script {
    faults: Vec<Fault>,
    delay: Option<Delay>,
    calls: [AtomicU64; OPERATIONS],
    written: AtomicU64,
}

impl FaultyStorage {
    /// `inner` with these faults.
    pub fn new(inner: Arc<dyn Storage>, faults: Vec<Fault>) -> Self {
        let script = Script {
            faults,
            delay: None,
            calls: Default::default(),
            written: AtomicU64::new(0),
        };
        Self {
            inner,
            script: Arc::new(script),
        }
    }

    /// One to three faults drawn from `seed`, among the first `calls` reads and writes and the
    /// first `bytes` written.
    pub fn from_seed(inner: Arc<dyn Storage>, seed: u64, calls: u64, bytes: u64) -> Self {
        let mut draw = SplitMix(seed);
        let faults = (0..=draw.below(3)).map(|_| match draw.below(5) {
            0 => Fault::Fail {
                operation: Operation::Read,
                nth: draw.below(calls),
                errno: EIO,
            },
            1 => Fault::Fail {
                operation: Operation::Write,
                nth: draw.below(calls),
                errno: EIO,
            },
            2 => Fault::Fail {
                operation: Operation::Sync,
                nth: 0,
                errno: EIO,
            },
            3 => Fault::ShortReads {
                bytes_max: 1 + usize::try_from(draw.below(4096)).unwrap_or(0),
            },
            _ => Fault::NoSpaceAfter {
                bytes: draw.below(bytes),
            },
        });
        let faults = faults.collect();
        Self::new(inner, faults)
    }

    /// Calls `delay` before each operation.
    pub fn with_delay(self, delay: Delay) -> Self {
        let script = Script {
            faults: self.script.faults.clone(),
            delay: Some(delay),
            calls: Default::default(),
            written: AtomicU64::new(0),
        };
        Self {
            inner: self.inner,
            script: Arc::new(script),
        }
    }

    /// What goes wrong, e.g. for the message of a failed test.
    pub fn faults(&self) -> &[Fault] {
        &self.script.faults
    }

    fn open(&self, file: FileRef) -> FileRef {
        Arc::new(FaultyFile {
            inner: file,
            script: Arc::clone(&self.script),
        })
    }

    fn change(&self, doing: &str, path: &FtpPath) -> Result<()> {
        self.script
            .step(Operation::Change, || format!("{doing} {path}"))
    }
}

const EIO: i32 = Errno::IO.raw_os_error();

impl Script {
    fn step(&self, operation: Operation, doing: impl FnOnce() -> String) -> Result<()> {
        let number = self.calls[operation as usize].fetch_add(1, Ordering::Relaxed);
        if let Some(delay) = &self.delay {
            delay(operation, number);
        }
        for fault in &self.faults {
            match *fault {
                Fault::Fail {
                    operation: o,
                    nth,
                    errno,
                } if o == operation && nth == number => {
                    return Err(failure(doing(), &std::io::Error::from_raw_os_error(errno)));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn read_max(&self) -> usize {
        let bounds = self.faults.iter().filter_map(|f| match f {
            Fault::ShortReads { bytes_max } => Some((*bytes_max).max(1)),
            _ => None,
        });
        bounds.min().unwrap_or(usize::MAX)
    }

    /// How many of `wanted` bytes still fit.
    fn take_room(&self, wanted: usize) -> usize {
        let bounds = self.faults.iter().filter_map(|f| match f {
            Fault::NoSpaceAfter { bytes } => Some(*bytes),
            _ => None,
        });
        let Some(room) = bounds.min() else {
            return wanted;
        };
        let before = self.written.fetch_add(wanted as u64, Ordering::Relaxed);
        usize::try_from(room.saturating_sub(before))
            .unwrap_or(usize::MAX)
            .min(wanted)
    }
}

impl Storage for FaultyStorage {
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> {
        self.script
            .step(Operation::OpenRead, || format!("open {path} for reading"))?;
        Ok(self.open(self.inner.open_read(path)?))
    }

    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        self.script
            .step(Operation::OpenWrite, || format!("open {path} for writing"))?;
        Ok(self.open(self.inner.open_write(path, how)?))
    }

    fn stat(&self, path: &FtpPath) -> Result<Metadata> {
        self.script
            .step(Operation::Stat, || format!("stat {path}"))?;
        self.inner.stat(path)
    }

    fn list(&self, path: &FtpPath) -> Result<Entries> {
        self.script
            .step(Operation::List, || format!("list {path}"))?;
        self.inner.list(path)
    }

    fn create_dir(&self, path: &FtpPath) -> Result<()> {
        self.change("create directory", path)?;
        self.inner.create_dir(path)
    }

    fn remove_dir(&self, path: &FtpPath) -> Result<()> {
        self.change("remove directory", path)?;
        self.inner.remove_dir(path)
    }

    fn remove_file(&self, path: &FtpPath) -> Result<()> {
        self.change("remove", path)?;
        self.inner.remove_file(path)
    }

    fn remove_tree(&self, path: &FtpPath) -> Result<()> {
        self.change("remove tree", path)?;
        self.inner.remove_tree(path)
    }

    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        self.change("rename", from)?;
        self.inner.rename(from, to)
    }

    fn set_modified(&self, path: &FtpPath, modified: SystemTime) -> Result<()> {
        self.change("set time of", path)?;
        self.inner.set_modified(path, modified)
    }

    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> {
        self.change("set mode of", path)?;
        self.inner.set_mode(path, mode)
    }

    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> {
        self.change("set group of", path)?;
        self.inner.set_group(path, group)
    }

    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> {
        self.change("truncate", path)?;
        self.inner.set_len(path, length)
    }

    fn symlink(&self, target: &FtpPath, link: &FtpPath) -> Result<()> {
        self.change("link", link)?;
        self.inner.symlink(target, link)
    }

    fn free_bytes(&self, path: &FtpPath) -> Result<u64> {
        self.inner.free_bytes(path)
    }

    fn sync_directory(&self, path: &FtpPath) -> Result<()> {
        self.script
            .step(Operation::Sync, || format!("sync directory {path}"))?;
        self.inner.sync_directory(path)
    }
}

struct FaultyFile {
    inner: FileRef,
    script: Arc<Script>,
}

impl File for FaultyFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.script
            .step(Operation::Read, || format!("read at {offset}"))?;
        let most = buffer.len().min(self.script.read_max());
        self.inner.read_at(offset, &mut buffer[..most])
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.script
            .step(Operation::Write, || format!("write at {offset}"))?;
        let fits = self.script.take_room(bytes.len());
        self.inner.write_all_at(offset, &bytes[..fits])?;
        if fits < bytes.len() {
            return Err(errno_failure(format!("write at {offset}"), Errno::NOSPC));
        }
        Ok(())
    }

    fn metadata(&self) -> Result<Metadata> {
        self.inner.metadata()
    }

    fn as_opened(&self) -> Result<Metadata> {
        self.inner.as_opened()
    }

    fn run_at(&self, offset: u64) -> Run {
        self.inner.run_at(offset)
    }

    fn sync(&self) -> Result<()> {
        self.script.step(Operation::Sync, || "sync".to_owned())?;
        self.inner.sync()
    }

    fn sync_file_system(&self) -> Result<()> {
        self.script
            .step(Operation::Sync, || "sync file system".to_owned())?;
        self.inner.sync_file_system()
    }
}

/// SplitMix64 (Steele, Lea, Flood 2014): enough to spread faults, and the same everywhere.
/// A copy of the one in godwit-tune, on which this crate does not depend.
struct SplitMix(u64);

impl SplitMix {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound.max(1)
    }
}
