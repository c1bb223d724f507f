//! Bytes in memory.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU64, Ordering},
};

use rustix::io::Errno;

use super::{
    super::{File, FileKind, Metadata, Result, errno_failure},
    Clock,
    tree::About,
};

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
        let size = self
            .bytes
            .read()
            .unwrap_or_else(PoisonError::into_inner)
            .len() as u64;
        locked(&self.about).metadata(FileKind::File, size, self.inode)
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
        let mut bytes = self.bytes.write().unwrap_or_else(PoisonError::into_inner);
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
        locked(&self.about).modified = (self.shared.clock)();
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
        let bytes = self.bytes.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.shared
            .used
            .fetch_sub(bytes.len() as u64, Ordering::Relaxed);
    }
}

impl File for MemoryFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes.read().unwrap_or_else(PoisonError::into_inner);
        let start = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let most = buffer.len().min(bytes.len() - start);
        buffer[..most].copy_from_slice(&bytes[start..start + most]);
        Ok(most)
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

pub(super) fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
