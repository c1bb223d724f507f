//! Open files and devices.

use std::{
    io::IoSliceMut,
    os::fd::{AsFd, OwnedFd},
    sync::OnceLock,
};

use godwit_proto::{FtpPath, error::StorageFailure};
use rustix::{
    fs::{
        FallocateFlags, FileType, FsWord, Mode, OFlags, SeekFrom, Stat, fallocate, fcntl_setfl,
        fstat, fstatfs, fsync, ftruncate, major, minor, seek, syncfs,
    },
    io::{Errno, ReadWriteFlags, pread, preadv, preadv2, pwrite, retry_on_intr},
};

use super::{
    super::{
        FastPath, File, FileRef, Metadata, PreloadedFile, Result, Run, WriteMode, errno_failure,
        read_each, write_zeros,
    },
    direct::{self, Direct, Reading},
    metadata_of,
    root::Root,
};

/// (major, minor) of `/dev/null` (Linux Documentation/admin-guide/devices.txt).
const DEV_NULL: (u32, u32) = (1, 3);
/// (major, minor) of `/dev/zero`.
const DEV_ZERO: (u32, u32) = (1, 5);

/// Of tmpfs (statfs(2)).
const TMPFS_MAGIC: FsWord = 0x0102_1994;

/// What `st_blocks` counts in (stat(3type)).
const BLOCK_BYTES: u64 = 512;

struct PosixFile {
    fd: OwnedFd,
    /// Where it was asked for, and the file system has it.
    direct: Option<Direct>,
    access: Access,
    path: FtpPath,
    as_opened: Metadata,
    lies_in_memory: OnceLock<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    Regular,
    Device,
    Zeros,
    Discard,
}

pub(super) fn open_read(root: &Root, path: &FtpPath, direct_io: bool) -> Result<FileRef> {
    let doing = || format!("open {path} for reading");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root
        .open(path.as_bytes(), flags, Mode::empty())
        .and_then(|fd| settle(fd, flags));
    let settled = opened.map_err(|e| refusal(e, doing()))?;
    Ok(PosixFile::opened(settled, path, direct_io.then_some(flags)))
}

pub(super) fn open_write(
    root: &Root,
    path: &FtpPath,
    how: WriteMode,
    direct_io: bool,
) -> Result<FileRef> {
    let doing = || format!("open {path} for writing");
    let create = match how {
        WriteMode::Replace | WriteMode::Keep => OFlags::CREATE,
        WriteMode::KeepNoFollow => OFlags::CREATE | OFlags::NOFOLLOW,
        WriteMode::Existing => OFlags::empty(),
        WriteMode::New => OFlags::CREATE | OFlags::EXCL,
    };
    // What is made has no other end to wait for.
    let wait = match how {
        WriteMode::New => OFlags::empty(),
        _ => OFlags::NONBLOCK,
    };
    let base = create | wait | OFlags::NOCTTY;
    // openat2(2) takes no mode for a file that is not made.
    let mode = match how {
        WriteMode::Existing => Mode::empty(),
        _ => Mode::from_raw_mode(0o666),
    };
    let bytes = path.as_bytes();
    // Readable too, so that what was received can be checked; a file that we may only write is fine
    // as well.
    let (flags, opened) = match root.open(bytes, base | OFlags::RDWR, mode) {
        Err(Errno::ACCESS) => {
            let flags = base | OFlags::WRONLY;
            (flags, root.open(bytes, flags, mode))
        }
        opened => (base | OFlags::RDWR, opened),
    };
    let mut settled = opened
        .and_then(|fd| settle(fd, flags))
        .map_err(|e| refusal(e, doing()))?;
    // Not by O_TRUNC, which would reach devices.
    if how == WriteMode::Replace && settled.access == Access::Regular && settled.stat.st_size != 0 {
        ftruncate(&settled.fd, 0).map_err(|e| errno_failure(doing(), e))?;
        settled.stat = fstat(&settled.fd).map_err(|e| errno_failure(doing(), e))?;
    }
    Ok(PosixFile::opened(settled, path, direct_io.then_some(flags)))
}

pub(super) fn set_len(root: &Root, path: &FtpPath, length: u64) -> Result<()> {
    let doing = || format!("truncate {path} to {length} bytes");
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root
        .open(path.as_bytes(), flags, Mode::empty())
        .and_then(|fd| settle(fd, flags));
    let settled = opened.map_err(|e| refusal(e, doing()))?;
    match settled.access {
        Access::Regular => ftruncate(&settled.fd, length).map_err(|e| errno_failure(doing(), e)),
        _ => Err(errno_failure(doing(), Errno::INVAL)),
    }
}

/// What was opened.
struct Settled {
    fd: OwnedFd,
    access: Access,
    stat: Stat,
}

/// Tells what was opened, and takes O_NONBLOCK away again: it is there only so that no FIFO holds
/// an open up. Where a regular file may lie on tape it means something as well: not to wait for
/// that.
fn settle(fd: OwnedFd, flags: OFlags) -> std::result::Result<Settled, Errno> {
    let stat = fstat(&fd)?;
    let access = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Access::Regular,
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::CharacterDevice => match (major(stat.st_rdev), minor(stat.st_rdev)) {
            DEV_ZERO => Access::Zeros,
            DEV_NULL => Access::Discard,
            _ => Access::Device,
        },
        FileType::BlockDevice => Access::Device,
        FileType::Fifo | FileType::Socket | FileType::Symlink | FileType::Unknown => {
            return Err(Errno::NXIO);
        }
    };
    if flags.contains(OFlags::NONBLOCK) {
        fcntl_setfl(&fd, flags.intersection(OFlags::RWMODE))?;
    }
    Ok(Settled { fd, access, stat })
}

/// ENXIO comes from [`settle`] and, for FIFOs without a reader and sockets, from the kernel.
fn refusal(errno: Errno, doing: String) -> godwit_proto::error::StorageFailure {
    match errno {
        Errno::NXIO => errno_failure(format!("{doing} (a FIFO or socket)"), Errno::OPNOTSUPP),
        other => errno_failure(doing, other),
    }
}

impl PosixFile {
    /// `direct`: what it was opened with, where it is to be used past the page cache too.
    fn opened(settled: Settled, path: &FtpPath, direct: Option<OFlags>) -> FileRef {
        let Settled { fd, access, stat } = settled;
        let direct = direct
            .filter(|_| access == Access::Regular)
            .and_then(|flags| {
                Direct::open(fd.as_fd(), flags)
                    .inspect_err(|error| direct::tell(error, path))
                    .ok()
            });
        std::sync::Arc::new(Self {
            fd,
            direct,
            access,
            path: path.clone(),
            as_opened: metadata_of(&stat, None),
            lies_in_memory: OnceLock::new(),
        })
    }

    fn direct(&self) -> Option<&Direct> {
        self.direct.as_ref().filter(|direct| !direct.is_refused())
    }

    fn read_either(&self, offset: u64, buffer: &mut [u8]) -> std::result::Result<usize, Errno> {
        let most = match self.direct() {
            None => buffer.len(),
            Some(direct) => match direct.read(offset, buffer)? {
                Reading::Done(count) => return Ok(count),
                Reading::Not(most) => most,
            },
        };
        retry_on_intr(|| pread(&self.fd, &mut buffer[..most], offset))
    }

    /// On tmpfs, which does not know of reads that must not wait (RWF_NOWAIT).
    fn lies_in_memory(&self) -> bool {
        *self
            .lies_in_memory
            .get_or_init(|| fstatfs(&self.fd).is_ok_and(|about| about.f_type == TMPFS_MAGIC))
    }

    fn unread(&self, offset: u64, errno: Errno) -> StorageFailure {
        errno_failure(format!("read {} at {offset}", self.path), errno)
    }

    fn write_cached(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let mut done = 0;
        while done < bytes.len() {
            let at = offset + done as u64;
            let step = match retry_on_intr(|| pwrite(&self.fd, &bytes[done..], at)) {
                // Neither POSIX nor Linux knows this answer; without an end to it we would spin.
                Ok(0) => Err(Errno::IO),
                other => other,
            };
            done += step.map_err(|e| errno_failure(format!("write {} at {at}", self.path), e))?;
        }
        Ok(())
    }

    /// To look for holes in it costs more than to send what little it has.
    fn was_small_and_whole(&self) -> bool {
        let Metadata { size, stored, .. } = self.as_opened;
        (1..=PreloadedFile::BYTES_MAX).contains(&size) && stored >= size
    }

    /// `None`: nothing is known, or the file ends before `offset`. The position of the descriptor,
    /// which this moves, is not used.
    fn look_at(&self, offset: u64) -> std::result::Result<Option<Run>, Errno> {
        if self.was_small_and_whole() {
            return Ok(None);
        }
        let stat = fstat(&self.fd)?;
        let size = u64::try_from(stat.st_size).unwrap_or(0);
        // As many blocks as bytes leave no room for holes, and to look for one takes its time where
        // it goes page by page to the end of the file, as on tmpfs: 7 ms a GB, with the file
        // locked.
        if u64::try_from(stat.st_blocks).unwrap_or(0) >= size.div_ceil(BLOCK_BYTES) {
            return Ok(None);
        }
        let end = seek(&self.fd, SeekFrom::Hole(offset))?;
        if end > offset {
            return Ok(Some(Run::Data { end }));
        }
        let end = match seek(&self.fd, SeekFrom::Data(offset)) {
            // To the end of the file.
            Err(Errno::NXIO) => size,
            found => found?,
        };
        Ok((end > offset).then_some(Run::Hole { end }))
    }

    fn punch(&self, offset: u64, bytes: u64) -> Result<u64> {
        let doing = || format!("clear {bytes} bytes of {} at {offset}", self.path);
        let fail = |errno| errno_failure(doing(), errno);
        let end = offset.checked_add(bytes).ok_or_else(|| fail(Errno::FBIG))?;
        let size = || fstat(&self.fd).map(|stat| u64::try_from(stat.st_size).unwrap_or(0));
        // To set the length, which might have grown meanwhile, could cut off what others write.
        // This only ever makes it longer.
        let reach =
            || match retry_on_intr(|| fallocate(&self.fd, FallocateFlags::empty(), end - 1, 1)) {
                Err(Errno::OPNOTSUPP | Errno::NOSYS) => self.write_all_at(end - 1, &[0]),
                reached => reached.map_err(fail),
            };
        let old = size().map_err(fail)?.min(end);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let punch = || retry_on_intr(|| fallocate(&self.fd, flags, offset, bytes));
        // First, since what is there may be all the room that is left.
        match punch() {
            Ok(()) => {
                if old < end {
                    reach()?;
                    // That byte takes no block.
                    punch().map_err(fail)?;
                }
                Ok(bytes)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) if offset < old => {
                write_zeros(self, offset, old - offset)
            }
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => {
                reach()?;
                Ok(bytes)
            }
            Err(errno) => Err(fail(errno)),
        }
    }
}

impl File for PosixFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.access {
            Access::Zeros => {
                buffer.fill(0);
                Ok(buffer.len())
            }
            Access::Discard => Ok(0),
            Access::Regular | Access::Device => self
                .read_either(offset, buffer)
                .map_err(|e| self.unread(offset, e)),
        }
    }

    fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        if self.access != Access::Regular || self.direct().is_some() {
            return Ok(None);
        }
        if self.lies_in_memory() {
            return self.read_at(offset, buffer).map(Some);
        }
        let flags = ReadWriteFlags::NOWAIT;
        let mut buffers = [IoSliceMut::new(buffer)];
        match retry_on_intr(|| preadv2(&self.fd, &mut buffers, offset, flags)) {
            Ok(count) if count > 0 || buffers[0].is_empty() => Ok(Some(count)),
            // Linux 5.9 and 5.10 may say 0 before the end (preadv2(2)), and what fails in another
            // way fails again where it may wait.
            Ok(_) | Err(_) => Ok(None),
        }
    }

    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        match (self.access, self.direct()) {
            (Access::Regular | Access::Device, None) => {
                retry_on_intr(|| preadv(&self.fd, buffers, offset))
                    .map_err(|e| self.unread(offset, e))
            }
            _ => read_each(self, offset, buffers),
        }
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        if matches!(self.access, Access::Zeros | Access::Discard) {
            return Ok(());
        }
        let past = match self.direct() {
            Some(direct) => direct.write(offset, bytes).map_err(|e| {
                errno_failure(format!("write {} at {offset} (direct I/O)", self.path), e)
            })?,
            None => 0..0,
        };
        self.write_cached(offset, &bytes[..past.start])?;
        self.write_cached(offset + past.end as u64, &bytes[past.end..])
    }

    fn metadata(&self) -> Result<Metadata> {
        let stat = fstat(&self.fd).map_err(|e| errno_failure(format!("stat {}", self.path), e))?;
        Ok(metadata_of(&stat, None))
    }

    fn as_opened(&self) -> Result<Metadata> {
        Ok(self.as_opened.clone())
    }

    fn run_at(&self, offset: u64) -> Run {
        // A file system without holes reports all as data, or fails.
        match self.access {
            Access::Regular => self.look_at(offset).ok().flatten(),
            Access::Device | Access::Zeros | Access::Discard => None,
        }
        .unwrap_or(Run::Data { end: u64::MAX })
    }

    fn clear_at(&self, offset: u64, bytes: u64) -> Result<u64> {
        match self.access {
            Access::Zeros | Access::Discard => Ok(bytes),
            Access::Device => write_zeros(self, offset, bytes),
            Access::Regular if bytes == 0 => Ok(0),
            Access::Regular => self.punch(offset, bytes),
        }
    }

    fn sync(&self) -> Result<()> {
        if self.access != Access::Regular {
            return Ok(());
        }
        retry_on_intr(|| fsync(&self.fd))
            .map_err(|e| errno_failure(format!("sync {}", self.path), e))
    }

    fn sync_file_system(&self) -> Result<()> {
        // Since Linux 5.8 it reports every write that failed on this file system since the file was
        // opened.
        retry_on_intr(|| syncfs(&self.fd))
            .map_err(|e| errno_failure(format!("sync the file system of {}", self.path), e))
    }

    fn fast_path(&self) -> FastPath<'_> {
        match self.access {
            Access::Regular if self.direct().is_some() => FastPath::Direct,
            Access::Regular => FastPath::Descriptor(self.fd.as_fd()),
            Access::Device => FastPath::Copy,
            Access::Zeros => FastPath::Zeros,
            Access::Discard => FastPath::Discard,
        }
    }
}
