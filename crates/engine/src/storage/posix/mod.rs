//! Files of the system, as a whole or beneath a root.
//!
//! Beneath a root every path is resolved by the kernel with RESOLVE_BENEATH, relative to a
//! descriptor of the root; what changes names acts on a descriptor of the parent directory and the
//! last name, which is not followed. So links that are changed under the root meanwhile lead
//! nowhere else. Where the kernel cannot do that, [`walk`] does it.

mod direct;
mod file;
mod root;
mod tree;
mod walk;

use std::{
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_proto::{FtpPath, error::StorageFailure};
use rustix::{
    fs::{
        AtFlags, CWD, FileType, Gid, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps,
        UTIME_OMIT, chmodat, chownat, fchmod, fstat, fstatvfs, fsync, linkat, mkdirat, readlinkat,
        renameat, renameat_with, statat, symlinkat, unlinkat, utimensat,
    },
    io::{Errno, retry_on_intr},
};

use self::{
    root::{Resolver, Root},
    walk::NAMED,
};
use super::{
    Entries, FileKind, FileRef, Metadata, Result, Special, Storage, WriteMode, errno_failure, owner,
};

/// Files of this machine.
pub struct PosixStorage {
    root: Arc<Root>,
    direct_io: bool,
}

impl PosixStorage {
    /// The tree beneath `root`, which must be a directory. Links that lead out of it, absolute ones
    /// included, are refused with EACCES; `..` and magic links of /proc do not help either. Where
    /// `root` is `/`, absolute links stay inside and are followed.
    pub fn rooted(root: impl AsRef<Path>) -> Result<Self> {
        Self::confined(root.as_ref(), None)
    }

    /// Like [`Self::rooted`], with links followed in user space, as kernels before Linux 5.6 need
    /// it. Slower; for tests.
    pub fn rooted_by_hand(root: impl AsRef<Path>) -> Result<Self> {
        Self::confined(root.as_ref(), Some(Resolver::ByHand))
    }

    /// All files; paths mean what they mean to the process, relative ones too. For the local side
    /// of a client.
    pub fn unconfined() -> Self {
        Self {
            root: Arc::new(Root::Unconfined),
            direct_io: false,
        }
    }

    /// Whether files are read and written past the page cache, where their file system can
    /// ([`FastPath::Direct`]).
    ///
    /// [`FastPath::Direct`]: super::FastPath::Direct
    #[must_use]
    pub fn with_direct_io(self, direct_io: bool) -> Self {
        Self { direct_io, ..self }
    }

    /// As [`Self::with_direct_io`] has set it.
    pub fn is_direct_io(&self) -> bool {
        self.direct_io
    }

    fn confined(dir: &Path, resolver: Option<Resolver>) -> Result<Self> {
        let root = Root::confined(dir, resolver)
            .map_err(|e| errno_failure(format!("open root {}", dir.display()), e))?;
        Ok(Self {
            root: Arc::new(root),
            direct_io: false,
        })
    }

    /// The file itself, links followed, without opening it for its bytes.
    fn named(&self, path: &FtpPath) -> std::result::Result<OwnedFd, Errno> {
        self.root.open(path.as_bytes(), NAMED, Mode::empty())
    }

    fn look(&self, path: &FtpPath) -> std::result::Result<Metadata, Errno> {
        let target = match self.root.parent(path.as_bytes()) {
            // The root, or a name that can be no link.
            Err(Errno::BUSY) => None,
            Err(e) => return Err(e),
            Ok((parent, name)) => {
                let stat = statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW)?;
                if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
                    return Ok(metadata_of(&stat, None));
                }
                Some(readlinkat(&parent, name, Vec::new())?.into_bytes())
            }
        };
        let stat = fstat(self.named(path)?)?;
        Ok(metadata_of(&stat, target))
    }
}

impl Storage for PosixStorage {
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> {
        file::open_read(&self.root, path, self.direct_io)
    }

    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        file::open_write(&self.root, path, how, self.direct_io)
    }

    fn stat(&self, path: &FtpPath) -> Result<Metadata> {
        self.look(path).map_err(on("stat", path))
    }

    fn list(&self, path: &FtpPath) -> Result<Entries> {
        Ok(Box::new(tree::Listed::open(Arc::clone(&self.root), path)?))
    }

    fn create_dir(&self, path: &FtpPath) -> Result<()> {
        let made = match self.root.parent(path.as_bytes()) {
            Ok((parent, name)) => mkdirat(parent, name, Mode::from_raw_mode(0o777)),
            Err(Errno::BUSY) => Err(Errno::EXIST),
            Err(e) => Err(e),
        };
        made.map_err(on("create directory", path))
    }

    fn remove_dir(&self, path: &FtpPath) -> Result<()> {
        self.root
            .parent(path.as_bytes())
            .and_then(|(parent, name)| unlinkat(parent, name, AtFlags::REMOVEDIR))
            .map_err(on("remove directory", path))
    }

    fn remove_file(&self, path: &FtpPath) -> Result<()> {
        let removed = match self.root.parent(path.as_bytes()) {
            Ok((parent, name)) => unlinkat(parent, name, AtFlags::empty()),
            Err(Errno::BUSY) => Err(Errno::ISDIR),
            Err(e) => Err(e),
        };
        removed.map_err(on("remove", path))
    }

    fn remove_tree(&self, path: &FtpPath) -> Result<()> {
        self.root
            .parent(path.as_bytes())
            .and_then(|(parent, name)| tree::remove(parent.as_fd(), name))
            .map_err(on("remove tree", path))
    }

    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        let rename = || {
            let (old_parent, old_name) = self.root.parent(from.as_bytes())?;
            // Mostly a temporary file gets its name where it lies.
            if let Some(new_name) = root::sibling(from.as_bytes(), to.as_bytes()) {
                return renameat(&old_parent, old_name, &old_parent, new_name);
            }
            let (new_parent, new_name) = self.root.parent(to.as_bytes())?;
            renameat(old_parent, old_name, new_parent, new_name)
        };
        rename().map_err(|e| errno_failure(format!("rename {from} to {to}"), e))
    }

    fn rename_noreplace(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        let rename = || {
            let (old_parent, old_name) = self.root.parent(from.as_bytes())?;
            let (new_parent, new_name) = self.root.parent(to.as_bytes())?;
            let (old, new) = (old_parent.as_fd(), new_parent.as_fd());
            match renameat_with(old, old_name, new, new_name, RenameFlags::NOREPLACE) {
                // File systems that know no flags. A second name is never made over another.
                Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                    linkat(old, old_name, new, new_name, AtFlags::empty())?;
                    unlinkat(old, old_name, AtFlags::empty())
                }
                other => other,
            }
        };
        rename().map_err(|e| errno_failure(format!("rename {from} to {to}"), e))
    }

    fn set_modified(&self, path: &FtpPath, modified: SystemTime) -> Result<()> {
        let times = Timestamps {
            last_access: Timespec {
                tv_sec: 0,
                tv_nsec: UTIME_OMIT,
            },
            last_modification: timespec(modified),
        };
        let set = self.named(path).and_then(|fd| {
            match utimensat(&fd, "", &times, AtFlags::EMPTY_PATH) {
                // Before Linux 5.8.
                Err(Errno::INVAL) => utimensat(CWD, by_proc(fd.as_fd()), &times, AtFlags::empty()),
                other => other,
            }
        });
        set.map_err(on("set time of", path))
    }

    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> {
        let mode = Mode::from_raw_mode(mode & 0o7777);
        let set = self.named(path).and_then(|fd| {
            match chmodat(CWD, by_proc(fd.as_fd()), mode, AtFlags::empty()) {
                // No /proc here. The call by descriptor needs the right to read.
                Err(Errno::NOENT | Errno::NOTDIR) => {
                    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
                    let fd = self.root.open(path.as_bytes(), flags, Mode::empty())?;
                    fchmod(fd, mode)
                }
                other => other,
            }
        });
        set.map_err(on("set mode of", path))
    }

    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> {
        let doing = || format!("set group of {path} to {group}");
        let Some(gid) = owner::group_id(group) else {
            // What chgrp(1) says in its own words; EINVAL is the nearest errno.
            return Err(errno_failure(
                format!("{} (no such group)", doing()),
                Errno::INVAL,
            ));
        };
        self.named(path)
            .and_then(|fd| chownat(fd, "", None, Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH))
            .map_err(|e| errno_failure(doing(), e))
    }

    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> {
        file::set_len(&self.root, path, length)
    }

    fn symlink(&self, target: &FtpPath, link: &FtpPath) -> Result<()> {
        let made = match self.root.parent(link.as_bytes()) {
            Ok((parent, name)) => symlinkat(target.as_bytes(), parent, name),
            Err(Errno::BUSY) => Err(Errno::EXIST),
            Err(e) => Err(e),
        };
        made.map_err(|e| errno_failure(format!("link {link} to {target}"), e))
    }

    fn free_bytes(&self, path: &FtpPath) -> Result<u64> {
        let mut at = path.clone();
        let found = loop {
            match (self.named(&at), at.parent()) {
                (Err(Errno::NOENT), Some(parent)) if parent != at => at = parent,
                (found, _) => break found,
            }
        };
        let stat = found
            .and_then(fstatvfs)
            .map_err(on("ask for free space at", path))?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }

    fn sync_directory(&self, path: &FtpPath) -> Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        self.root
            .open(path.as_bytes(), flags, Mode::empty())
            .and_then(|fd| retry_on_intr(|| fsync(&fd)))
            .map_err(on("sync directory", path))
    }
}

fn on(doing: &'static str, path: &FtpPath) -> impl FnOnce(Errno) -> StorageFailure {
    let path = path.clone();
    move |errno| errno_failure(godwit_proto::error::describe(doing, &path), errno)
}

/// For calls that take no descriptor made with O_PATH: the file behind it, by way of /proc.
fn by_proc(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

// Widths of the fields differ between machines.
#[allow(clippy::unnecessary_cast, clippy::cast_sign_loss)]
fn metadata_of(stat: &Stat, link_target: Option<Vec<u8>>) -> Metadata {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::CharacterDevice => FileKind::Special(Special::CharacterDevice),
        FileType::BlockDevice => FileKind::Special(Special::BlockDevice),
        FileType::Fifo => FileKind::Special(Special::Fifo),
        _ => FileKind::Special(Special::Socket),
    };
    let nanoseconds = u32::try_from(stat.st_mtime_nsec).unwrap_or(0);
    Metadata {
        kind,
        size: if matches!(kind, FileKind::Special(_)) {
            0
        } else {
            u64::try_from(stat.st_size).unwrap_or(0)
        },
        // In units of 512 bytes, whatever the file system's blocks are.
        stored: u64::try_from(stat.st_blocks)
            .unwrap_or(0)
            .saturating_mul(512),
        modified: system_time(stat.st_mtime as i64, nanoseconds),
        mode: stat.st_mode as u32 & 0o7777,
        uid: stat.st_uid as u32,
        gid: stat.st_gid as u32,
        links: stat.st_nlink as u64,
        unique: (stat.st_dev as u64, stat.st_ino as u64),
        link_target,
    }
}

fn system_time(seconds: i64, nanoseconds: u32) -> SystemTime {
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(whole)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(whole)
    };
    time.and_then(|t| t.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

fn timespec(time: SystemTime) -> Timespec {
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(after) => Timespec {
            tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: after.subsec_nanos().into(),
        },
        Err(e) => {
            let before = e.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            match before.subsec_nanos() {
                0 => Timespec {
                    tv_sec: -seconds,
                    tv_nsec: 0,
                },
                n => Timespec {
                    tv_sec: -seconds - 1,
                    tv_nsec: (1_000_000_000 - n).into(),
                },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_before_1970_keep_their_nanoseconds() {
        for (seconds, nanoseconds) in [(0, 0), (5, 7), (-1, 0), (-5, 250_000_000)] {
            let spec = timespec(system_time(seconds, nanoseconds));
            assert_eq!((spec.tv_sec, spec.tv_nsec), (seconds, nanoseconds.into()));
        }
    }
}
