//! Open files and devices.

use std::os::fd::{AsFd, OwnedFd};

use godwit_proto::FtpPath;
use rustix::{
    fs::{
        FileType, Mode, OFlags, Stat, fcntl_setfl, fstat, fsync, ftruncate, major, minor, syncfs,
    },
    io::{Errno, pread, pwrite, retry_on_intr},
};

use super::{
    super::{FastPath, File, FileRef, Metadata, Result, WriteMode, errno_failure},
    metadata_of,
    root::Root,
};

/// (major, minor) of `/dev/null` (Linux Documentation/admin-guide/devices.txt).
const DEV_NULL: (u32, u32) = (1, 3);
/// (major, minor) of `/dev/zero`.
const DEV_ZERO: (u32, u32) = (1, 5);

struct PosixFile {
    fd: OwnedFd,
    way: Way,
    path: FtpPath,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Regular,
    Device,
    Zeros,
    Discard,
}

pub(super) fn open_read(root: &Root, path: &FtpPath) -> Result<FileRef> {
    let doing = || format!("open {path} for reading");
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root
        .open(path.as_bytes(), flags, Mode::empty())
        .and_then(|fd| settle(fd, flags));
    let (fd, way, _) = opened.map_err(|e| refusal(e, doing()))?;
    Ok(std::sync::Arc::new(PosixFile {
        fd,
        way,
        path: path.clone(),
    }))
}

pub(super) fn open_write(root: &Root, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
    let doing = || format!("open {path} for writing");
    let create = match how {
        WriteMode::Replace | WriteMode::Keep => OFlags::CREATE,
        WriteMode::New => OFlags::CREATE | OFlags::EXCL,
    };
    let base = create | OFlags::NONBLOCK | OFlags::NOCTTY;
    let mode = Mode::from_raw_mode(0o666);
    let octets = path.as_bytes();
    // Readable too, so that what was received can be checked; a file that we may only write is fine as well.
    let (flags, opened) = match root.open(octets, base | OFlags::RDWR, mode) {
        Err(Errno::ACCESS) => {
            let flags = base | OFlags::WRONLY;
            (flags, root.open(octets, flags, mode))
        }
        opened => (base | OFlags::RDWR, opened),
    };
    let (fd, way, stat) = opened
        .and_then(|fd| settle(fd, flags))
        .map_err(|e| refusal(e, doing()))?;
    // Not by O_TRUNC, which would reach devices.
    if how == WriteMode::Replace && way == Way::Regular && stat.st_size != 0 {
        ftruncate(&fd, 0).map_err(|e| errno_failure(doing(), e))?;
    }
    Ok(std::sync::Arc::new(PosixFile {
        fd,
        way,
        path: path.clone(),
    }))
}

pub(super) fn set_len(root: &Root, path: &FtpPath, length: u64) -> Result<()> {
    let doing = || format!("truncate {path} to {length} octets");
    let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let opened = root
        .open(path.as_bytes(), flags, Mode::empty())
        .and_then(|fd| settle(fd, flags));
    match opened.map_err(|e| refusal(e, doing()))? {
        (fd, Way::Regular, _) => ftruncate(&fd, length).map_err(|e| errno_failure(doing(), e)),
        _ => Err(errno_failure(doing(), Errno::INVAL)),
    }
}

/// Tells what was opened, and takes O_NONBLOCK away again: it is there only so that no FIFO holds an open up.
fn settle(fd: OwnedFd, flags: OFlags) -> std::result::Result<(OwnedFd, Way, Stat), Errno> {
    let stat = fstat(&fd)?;
    let way = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Way::Regular,
        FileType::Directory => return Err(Errno::ISDIR),
        FileType::CharacterDevice => match (major(stat.st_rdev), minor(stat.st_rdev)) {
            DEV_ZERO => Way::Zeros,
            DEV_NULL => Way::Discard,
            _ => Way::Device,
        },
        FileType::BlockDevice => Way::Device,
        FileType::Fifo | FileType::Socket | FileType::Symlink | FileType::Unknown => {
            return Err(Errno::NXIO);
        }
    };
    fcntl_setfl(&fd, flags.intersection(OFlags::RWMODE))?;
    Ok((fd, way, stat))
}

/// ENXIO comes from [`settle`] and, for FIFOs without a reader and sockets, from the kernel.
fn refusal(errno: Errno, doing: String) -> godwit_proto::error::StorageFailure {
    match errno {
        Errno::NXIO => errno_failure(format!("{doing} (a FIFO or socket)"), Errno::OPNOTSUPP),
        other => errno_failure(doing, other),
    }
}

impl File for PosixFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        match self.way {
            Way::Zeros => {
                buffer.fill(0);
                Ok(buffer.len())
            }
            Way::Discard => Ok(0),
            Way::Regular | Way::Device => retry_on_intr(|| pread(&self.fd, &mut *buffer, offset))
                .map_err(|e| errno_failure(format!("read {} at {offset}", self.path), e)),
        }
    }

    fn write_all_at(&self, offset: u64, octets: &[u8]) -> Result<()> {
        if matches!(self.way, Way::Zeros | Way::Discard) {
            return Ok(());
        }
        let mut done = 0;
        while done < octets.len() {
            let at = offset + done as u64;
            let step = match retry_on_intr(|| pwrite(&self.fd, &octets[done..], at)) {
                // Neither POSIX nor Linux knows this answer; without an end to it we would spin.
                Ok(0) => Err(Errno::IO),
                other => other,
            };
            done += step.map_err(|e| errno_failure(format!("write {} at {at}", self.path), e))?;
        }
        Ok(())
    }

    fn metadata(&self) -> Result<Metadata> {
        let stat = fstat(&self.fd).map_err(|e| errno_failure(format!("stat {}", self.path), e))?;
        Ok(metadata_of(&stat, None))
    }

    fn sync(&self) -> Result<()> {
        if self.way != Way::Regular {
            return Ok(());
        }
        retry_on_intr(|| fsync(&self.fd))
            .map_err(|e| errno_failure(format!("sync {}", self.path), e))
    }

    fn sync_file_system(&self) -> Result<()> {
        // Since Linux 5.8 it tells of every write that failed on this file system since the file was opened.
        retry_on_intr(|| syncfs(&self.fd))
            .map_err(|e| errno_failure(format!("sync the file system of {}", self.path), e))
    }

    fn fast_path(&self) -> FastPath<'_> {
        match self.way {
            Way::Regular => FastPath::Descriptor(self.fd.as_fd()),
            Way::Device => FastPath::Copy,
            Way::Zeros => FastPath::Zeros,
            Way::Discard => FastPath::Discard,
        }
    }
}
