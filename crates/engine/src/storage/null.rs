//! Files of zeros to read, and a place to write where bytes vanish.

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
    Entries, FastPath, File, FileKind, FileRef, Metadata, Result, Storage, WriteMode, errno_failure,
};

/// Every path but the root is a file of zeros of one size; every change succeeds and leaves no
/// trace. For measurements without disks.
#[derive(Clone, Copy, Debug)]
pub struct NullStorage {
    size: u64,
}

impl NullStorage {
    /// With files of `size` bytes.
    pub fn new(size: u64) -> Self {
        Self { size }
    }
}

impl Storage for NullStorage {
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> {
        refuse_root(path, "for reading")?;
        Ok(Arc::new(NullFile {
            size: AtomicU64::new(self.size),
            written: false,
        }))
    }

    fn open_write(&self, path: &FtpPath, _how: WriteMode) -> Result<FileRef> {
        refuse_root(path, "for writing")?;
        Ok(Arc::new(NullFile {
            size: AtomicU64::new(0),
            written: true,
        }))
    }

    fn stat(&self, path: &FtpPath) -> Result<Metadata> {
        Ok(if path.file_name().is_none() {
            metadata(FileKind::Directory, 0)
        } else {
            metadata(FileKind::File, self.size)
        })
    }

    fn list(&self, path: &FtpPath) -> Result<Entries> {
        if path.file_name().is_some() {
            return Err(errno_failure(format!("list {path}"), Errno::NOTDIR));
        }
        Ok(Box::new(std::iter::empty()))
    }

    fn create_dir(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn remove_dir(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn remove_file(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn remove_tree(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn rename(&self, _from: &FtpPath, _to: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn set_modified(&self, _path: &FtpPath, _modified: SystemTime) -> Result<()> {
        Ok(())
    }

    fn set_mode(&self, _path: &FtpPath, _mode: u32) -> Result<()> {
        Ok(())
    }

    fn set_group(&self, _path: &FtpPath, _group: &str) -> Result<()> {
        Ok(())
    }

    fn set_len(&self, _path: &FtpPath, _length: u64) -> Result<()> {
        Ok(())
    }

    fn symlink(&self, _target: &FtpPath, _link: &FtpPath) -> Result<()> {
        Ok(())
    }

    fn free_bytes(&self, _path: &FtpPath) -> Result<u64> {
        Ok(u64::MAX)
    }

    fn sync_directory(&self, _path: &FtpPath) -> Result<()> {
        Ok(())
    }
}

fn refuse_root(path: &FtpPath, what_for: &str) -> Result<()> {
    if path.file_name().is_none() {
        return Err(errno_failure(
            format!("open {path} {what_for}"),
            Errno::ISDIR,
        ));
    }
    Ok(())
}

fn metadata(kind: FileKind, size: u64) -> Metadata {
    Metadata {
        kind,
        size,
        stored: 0,
        modified: SystemTime::UNIX_EPOCH,
        mode: if kind == FileKind::Directory {
            0o777
        } else {
            0o666
        },
        uid: 0,
        gid: 0,
        links: 1,
        unique: (0, if kind == FileKind::Directory { 1 } else { 2 }),
        link_target: None,
    }
}

struct NullFile {
    size: AtomicU64,
    written: bool,
}

impl File for NullFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let left = self.size.load(Ordering::Relaxed).saturating_sub(offset);
        let most = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        buffer[..most].fill(0);
        Ok(most)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.size
            .fetch_max(offset.saturating_add(bytes.len() as u64), Ordering::Relaxed);
        Ok(())
    }

    fn clear_at(&self, offset: u64, bytes: u64) -> Result<u64> {
        self.size
            .fetch_max(offset.saturating_add(bytes), Ordering::Relaxed);
        Ok(bytes)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(metadata(FileKind::File, self.size.load(Ordering::Relaxed)))
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn fast_path(&self) -> FastPath<'_> {
        if self.written {
            FastPath::Discard
        } else {
            FastPath::Zeros
        }
    }
}
