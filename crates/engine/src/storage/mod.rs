//! What bytes live on.
//!
//! # Promises of a [`Storage`]
//! - Every method may be called from many threads at once.
//! - Paths are absolute and folded ([`FtpPath::resolve`]); a rooted storage never reaches outside
//!   its root, also while links are being changed under it.
//! - A failed call has no effect, but for [`Storage::remove_tree`] and writes, which may have
//!   happened in part.

mod cursor;
pub mod digest;
mod failure;
pub mod faulty;
mod hashing_file;
pub mod line_endings;
pub mod listing;
mod memory;
mod null;
mod owner;
mod pages;
mod posix;
mod preloaded_file;

use std::{
    io::IoSliceMut,
    os::fd::BorrowedFd,
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_proto::{
    FtpPath,
    error::StorageFailure,
    facts::{FactType, Facts},
    timestamp::Timestamp,
};

pub use self::{
    cursor::FileCursor,
    failure::failure,
    hashing_file::HashingFile,
    memory::{Clock, MemoryStorage},
    null::NullStorage,
    owner::Identity,
    posix::PosixStorage,
    preloaded_file::PreloadedFile,
};
pub(crate) use self::{
    failure::{errno_failure, into_io, text_of},
    pages::{PAGE, Pages, past_page},
};

/// Result of a storage operation. Failures are plain data: errno, what was tried, the system's
/// text.
pub type Result<T> = std::result::Result<T, StorageFailure>;

/// An open file, shared by all channels of a transfer.
pub type FileRef = Arc<dyn File>;

/// Entries of a directory, without `.` and `..`, in no order.
pub type Entries = Box<dyn Iterator<Item = Result<(Vec<u8>, Metadata)>> + Send>;

/// A tree of files.
pub trait Storage: Send + Sync + 'static {
    /// Opens for reading. Directories are refused with EISDIR.
    fn open_read(&self, path: &FtpPath) -> Result<FileRef>;
    /// Opens for writing. A directory is refused with EISDIR.
    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef>;
    /// Follows links; `link_target` is where the name points. A dangling link is ENOENT.
    fn stat(&self, path: &FtpPath) -> Result<Metadata>;
    /// Entries with their metadata; entries that vanish while listing and dangling links are left
    /// out.
    fn list(&self, path: &FtpPath) -> Result<Entries>;
    /// mkdir, mode 0777 less umask.
    fn create_dir(&self, path: &FtpPath) -> Result<()>;
    /// rmdir.
    fn remove_dir(&self, path: &FtpPath) -> Result<()>;
    /// unlink; directories are refused.
    fn remove_file(&self, path: &FtpPath) -> Result<()>;
    /// A directory and all below it; links are removed, never followed.
    fn remove_tree(&self, path: &FtpPath) -> Result<()>;
    /// rename(2): atomic, replaces a file.
    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()>;
    /// As [`Self::rename`] of a file, and EEXIST where `to` is taken. By default another may take
    /// it between the two steps.
    fn rename_noreplace(&self, from: &FtpPath, to: &FtpPath) -> Result<()> {
        match self.stat(to) {
            Ok(_) => Err(errno_failure(
                format!("rename {from} to {to}"),
                rustix::io::Errno::EXIST,
            )),
            Err(_) => self.rename(from, to),
        }
    }
    /// Sets the time of last modification.
    fn set_modified(&self, path: &FtpPath, modified: SystemTime) -> Result<()>;
    /// chmod: `mode & 0o7777`.
    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()>;
    /// chgrp by name or number.
    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()>;
    /// truncate(2).
    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()>;
    /// A symbolic link at `link` that holds `target` literally.
    fn symlink(&self, target: &FtpPath, link: &FtpPath) -> Result<()>;
    /// Bytes that an ordinary user may still write where `path` (or its nearest existing parent)
    /// lies.
    fn free_bytes(&self, path: &FtpPath) -> Result<u64>;
    /// Makes the names in a directory durable (fsync of the directory). Nothing to do where a crash
    /// leaves no names at all.
    fn sync_directory(&self, path: &FtpPath) -> Result<()>;
}

/// How a file is opened for writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteMode {
    /// Create or truncate.
    Replace,
    /// Create the file, or keep an existing one.
    Keep,
    /// The same, and the name itself may be no symbolic link (O_NOFOLLOW).
    KeepNoFollow,
    /// Keep the file, which must exist.
    Existing,
    /// Must not exist (O_EXCL): a partial file of ours.
    New,
}

/// An open file, read and written at offsets, from any thread.
pub trait File: Send + Sync + 'static {
    /// Reads up to `buffer.len()` bytes at `offset`; 0 at the end of the file only.
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize>;
    /// Reads into one after another of `buffers`, none of them empty, as far as one call gets; 0 at
    /// the end of the file only.
    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        read_each(self, offset, buffers)
    }
    /// As [`Self::read_at`], but only what lies in memory; `None`: it would wait for a device, or
    /// may.
    fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        let _ = (offset, buffer);
        Ok(None)
    }
    /// Writes all of `bytes` at `offset`.
    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Bytes that can be read from `offset` on without a wait for others who write them. 0: a mover
    /// asks again after a while, and serves other channels meanwhile.
    fn readable_at(&self, offset: u64) -> u64 {
        let _ = offset;
        u64::MAX
    }
    /// Bytes that can be written from `offset` on without a wait for others who read them. 0: as in
    /// [`Self::readable_at`].
    fn writable_at(&self, offset: u64) -> u64 {
        let _ = offset;
        u64::MAX
    }
    /// Bytes may be written now. Asked before each write that goes past the methods of this file,
    /// by its descriptor ([`FastPath`]); where they may not, [`Self::write_all_at`] says why.
    fn may_write(&self) -> bool {
        true
    }
    /// Of a file that is written and read at the same time: the next step is up to those who read,
    /// as the first byte that was not read is there. Else it is up to those who write. A limit on
    /// waits counts for the ones it is up to.
    fn waits_for_reader(&self) -> bool {
        false
    }
    /// Its bytes are read once, and are gone then: how many there can be at a time, from the first
    /// that was not read on. `None`: they stay.
    fn read_once_within(&self) -> Option<u64> {
        None
    }
    /// As of now.
    fn metadata(&self) -> Result<Metadata>;
    /// As it was when it was opened, where that is known; else as of now.
    fn as_opened(&self) -> Result<Metadata> {
        self.metadata()
    }
    /// Makes what was written durable (fsync).
    fn sync(&self) -> Result<()>;
    /// Makes durable whatever was written to the file system that the file is on, names included
    /// (syncfs): one call for many files, and for what others have written meanwhile.
    fn sync_file_system(&self) -> Result<()> {
        self.sync()
    }
    /// What lies at `offset`, as far as it is known.
    fn run_at(&self, offset: u64) -> Run {
        let _ = offset;
        Run::Data { end: u64::MAX }
    }
    /// Lets bytes from `offset` on, at most `bytes` of them, read as zero, in a file that has them;
    /// where possible they take no room. Returns how many, at least 1 where any were asked for.
    /// Other bytes are not touched, also where another writer changes them meanwhile.
    fn clear_at(&self, offset: u64, bytes: u64) -> Result<u64> {
        write_zeros(self, offset, bytes)
    }
    /// Its bytes from `offset` on, where they lie in memory and stay what they are.
    fn in_memory(&self, offset: u64) -> Option<&[u8]> {
        let _ = offset;
        None
    }
    /// A path that avoids user space, where there is one.
    fn fast_path(&self) -> FastPath<'_> {
        FastPath::Copy
    }
}

/// Part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Run {
    /// Bytes that are stored up to `end`, or whose storage is unknown.
    Data {
        /// One past the last, or any number past the end of the file.
        end: u64,
    },
    /// Bytes that read as zero and are not stored.
    Hole {
        /// One past the last; not past the end of the file.
        end: u64,
    },
}

/// As [`File::read_vectored_at`], by means that every file has.
fn read_each<F: File + ?Sized>(
    file: &F,
    offset: u64,
    buffers: &mut [IoSliceMut<'_>],
) -> Result<usize> {
    let mut got = 0;
    for buffer in buffers {
        let count = file.read_at(offset.saturating_add(got as u64), buffer)?;
        got += count;
        if count < buffer.len() {
            break;
        }
    }
    Ok(got)
}

/// Zeros that are written at a time where a part of a file cannot be cleared otherwise.
pub(crate) static ZEROS: [u8; 256 << 10] = [0; 256 << 10];

/// As [`File::clear_at`], by means that every file has.
fn write_zeros<F: File + ?Sized>(file: &F, offset: u64, bytes: u64) -> Result<u64> {
    let most = usize::try_from(bytes).map_or(ZEROS.len(), |bytes| bytes.min(ZEROS.len()));
    file.write_all_at(offset, &ZEROS[..most])?;
    Ok(most as u64)
}

/// How bytes of a file may move without `read_at` and `write_all_at`.
#[derive(Debug, Clone, Copy)]
pub enum FastPath<'a> {
    /// No short cut.
    Copy,
    /// A descriptor that `sendfile` reads from and `pwrite`/`splice` write to.
    Descriptor(BorrowedFd<'a>),
    /// No short cut, and past the page cache (O_DIRECT): so go many bytes of whole pages, which lie
    /// in memory as they do in the file.
    Direct,
    /// Endless zeros to read; writes vanish (`/dev/zero`).
    Zeros,
    /// Writes vanish; reads are at the end at once (`/dev/null`).
    Discard,
}

/// Kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// Regular.
    File,
    /// Directory.
    Directory,
    /// No size, no rename over it.
    Special(Special),
}

/// What is neither a file nor a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)] // the word is the documentation
pub enum Special {
    CharacterDevice,
    BlockDevice,
    Fifo,
    Socket,
}

impl FileKind {
    /// As `Type=` of MLSx (RFC 3659 §7.5.1).
    fn fact(self) -> FactType {
        let word = match self {
            Self::File => return FactType::File,
            Self::Directory => return FactType::Dir,
            Self::Special(Special::CharacterDevice) => "chr",
            Self::Special(Special::BlockDevice) => "blk",
            Self::Special(Special::Fifo) => "fifo",
            Self::Special(Special::Socket) => "socket",
        };
        FactType::Other(format!("OS.unix={word}"))
    }
}

/// What stat reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    /// Kind.
    pub kind: FileKind,
    /// Bytes; 0 for special files.
    pub size: u64,
    /// Bytes of storage that it takes: fewer where it has holes.
    pub stored: u64,
    /// Last modification.
    pub modified: SystemTime,
    /// Permission bits `0..=0o7777`.
    pub mode: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Hard links.
    pub links: u64,
    /// Device and inode: the same pair is the same file.
    pub unique: (u64, u64),
    /// Where the name points, when it is a symbolic link.
    pub link_target: Option<Vec<u8>>,
}

impl Metadata {
    /// As MLSx facts; names of owner and group are looked up and cached. `Perm` is for our
    /// effective user.
    pub fn facts(&self) -> Facts {
        self.facts_for(&Identity::effective())
    }

    /// Like [`Self::facts`], with `Perm` for `who`: what listings use, to ask the kernel only once.
    pub fn facts_for(&self, who: &Identity) -> Facts {
        let (device, inode) = self.unique;
        Facts {
            kind: Some(self.kind.fact()),
            size: Some(self.size),
            modify: Some(Timestamp(self.modified_seconds())),
            perm: Some(self.perm(who)),
            unix_mode: Some(self.mode),
            unix_owner: Some(owner::user_name(self.uid)),
            unix_uid: Some(self.uid),
            unix_group: Some(owner::group_name(self.gid)),
            unix_gid: Some(self.gid),
            unique: Some(format!("{device:x}-{inode:x}")),
            unix_slink: self.link_target.clone(),
            count: None,
            error: None,
        }
    }

    /// Letters of RFC 3659 §7.5.5, in the order of GCT. Deletion and renaming of the entry itself
    /// (`d`, `f` of a file) depend on its directory and are left out, as GCT does.
    fn perm(&self, who: &Identity) -> String {
        let access = who.access(self.mode, self.uid, self.gid);
        let may = |bits| access & bits == bits;
        let letters: &[(u32, &str)] = match self.kind {
            FileKind::Directory => &[(0o3, "cfmp"), (0o1, "e"), (0o5, "l")],
            FileKind::File | FileKind::Special(_) => &[(0o2, "aw"), (0o4, "r")],
        };
        letters
            .iter()
            .filter(|(bits, _)| may(*bits))
            .map(|(_, word)| *word)
            .collect()
    }

    /// Whole seconds since 1970, rounded down, negative before.
    pub fn modified_seconds(&self) -> i64 {
        match self.modified.duration_since(SystemTime::UNIX_EPOCH) {
            Ok(d) => i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            Err(e) => {
                let back = e.duration() + Duration::from_nanos(999_999_999);
                i64::try_from(back.as_secs()).map_or(i64::MIN, |s| -s)
            }
        }
    }
}
