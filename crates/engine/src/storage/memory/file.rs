//! Bytes in memory.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::SystemTime,
};

use parking_lot::{Mutex, RwLock};
use rustix::io::Errno;

use super::{
    super::{File, FileKind, Metadata, Result, errno_failure},
    Clock,
};

/// Times and rights of a node.
#[derive(Clone, Copy)]
pub(super) struct About {
    pub(super) modified: SystemTime,
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl About {
    pub(super) fn metadata(&self, kind: FileKind, size: u64, inode: u64) -> Metadata {
        Metadata {
            kind,
            size,
            stored: size,
            modified: self.modified,
            mode: self.mode,
            uid: self.uid,
            gid: self.gid,
            links: 1,
            unique: (0, inode),
            link_target: None,
        }
    }
}

pub(super) struct Shared {
    pub(super) clock: Clock,
    pub(super) capacity: u64,
    pub(super) used: AtomicU64,
}

pub(super) struct MemoryFile {
    pub(super) bytes: RwLock<Vec<u8>>,
    pub(super) about: Mutex<About>,
    pub(super) inode: u64,
    pub(super) shared: Arc<Shared>,
}

impl MemoryFile {
    pub(super) fn describe(&self) -> Metadata {
        let size = self.bytes.read().len() as u64;
        self.about.lock().metadata(FileKind::File, size, self.inode)
    }

    pub(super) fn resize(&self, length: u64) -> std::result::Result<(), Errno> {
        self.change(length, |size| length == size, |_| {})
    }

    /// Makes the file `length` bytes long (unless `keep` says of the present size to leave it),
    /// then lets `write` at it.
    fn change(
        &self,
        length: u64,
        keep: impl FnOnce(u64) -> bool,
        write: impl FnOnce(&mut [u8]),
    ) -> std::result::Result<(), Errno> {
        let mut bytes = self.bytes.write();
        let size = bytes.len() as u64;
        if !keep(size) {
            let target = usize::try_from(length).map_err(|_| Errno::FBIG)?;
            if length > size {
                self.shared.take(length - size)?;
                bytes.resize(target, 0);
            } else {
                bytes.truncate(target);
                self.shared.used.fetch_sub(size - length, Ordering::Relaxed);
            }
        }
        write(&mut bytes);
        self.about.lock().modified = (self.shared.clock)();
        Ok(())
    }
}

impl Shared {
    fn take(&self, bytes: u64) -> std::result::Result<(), Errno> {
        let fits = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.capacity);
        self.used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map(|_| ())
            .map_err(|_| Errno::NOSPC)
    }
}

impl Drop for MemoryFile {
    fn drop(&mut self) {
        let bytes = self.bytes.get_mut();
        self.shared
            .used
            .fetch_sub(bytes.len() as u64, Ordering::Relaxed);
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes.read();
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let most = buffer.len().min(bytes.len() - start);
        buffer[..most].copy_from_slice(&bytes[start..start + most]);
        Ok(most)
    }

    fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.read_at(offset, buffer).map(Some)
    }

    fn write_all_at(&self, offset: u64, new: &[u8]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        let fail = |e| errno_failure(format!("write at {offset}"), e);
        let end = offset
            .checked_add(new.len() as u64)
            .ok_or_else(|| fail(Errno::FBIG))?;
        let write = |bytes: &mut [u8]| {
            // `change` made the file at least `end` bytes long, which fits in memory.
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            bytes[start..start + new.len()].copy_from_slice(new);
        };
        self.change(end, |size| size >= end, write).map_err(fail)
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.describe())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}
