//! Files that a run has created on this machine, and how durable they are.

use std::{
    collections::HashMap,
    fs::{self, File},
    io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::OnceLock,
};

use parking_lot::Mutex;

use rustix::{fs::syncfs, io::retry_on_intr};

use super::compact_set::CompactSet;
use crate::{
    error::{Error, Result},
    spec::Durability,
};

/// Files that this run has created. Another source may lead to the same file: by the same name, or
/// by one that differs in case or normalization on a file system that ignores the difference. The
/// second must not silently replace the first.
#[derive(Debug, Default)]
pub(crate) struct LocalDurability {
    files: Mutex<CompactSet>,
    /// Unset: nothing is promised.
    durability: OnceLock<Durability>,
    /// Directories whose names are known to be durable.
    directories: Mutex<CompactSet>,
    /// One directory of each device with a written file.
    devices: Mutex<HashMap<u64, PathBuf>>,
}

impl LocalDurability {
    /// Sets the durability of later files.
    pub(crate) fn set_level(&self, durability: Durability) {
        // Once a run.
        let _ = self.durability.set(durability);
    }

    fn durability(&self) -> Durability {
        self.durability.get().copied().unwrap_or_default()
    }

    /// Device and inode identify a file whatever its names are.
    pub(crate) fn record(&self, unique: (u64, u64)) {
        self.files.lock().insert(&unique);
    }

    pub(crate) fn contains(&self, metadata: &fs::Metadata) -> bool {
        self.files
            .lock()
            .contains(&(metadata.dev(), metadata.ino()))
    }

    /// Called before a file gets its name: if the name survives a power failure, the bytes must,
    /// too.
    pub(crate) fn fsync_file(&self, file: &Path) -> io::Result<()> {
        match self.durability() {
            Durability::File => File::open(file)?.sync_all(),
            Durability::None | Durability::Batch => Ok(()),
        }
    }

    /// Called after it got its name.
    pub(crate) fn fsync_name(&self, file: &Path, device: u64) -> io::Result<()> {
        let directory = match file.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        match self.durability() {
            Durability::None => {}
            Durability::File => {
                File::open(directory)?.sync_all()?;
                self.fsync_directories(directory);
            }
            Durability::Batch => {
                let mut devices = self.devices.lock();
                devices
                    .entry(device)
                    .or_insert_with(|| directory.to_owned());
            }
        }
        Ok(())
    }

    /// Syncs the directories above, since this run may have created them. The lock is held until
    /// that is done, so that no other thread relies on it before.
    fn fsync_directories(&self, directory: &Path) {
        let mut known = self.directories.lock();
        for directory in directory.ancestors() {
            if !known.insert(directory) {
                return;
            }
            let Some(above) = directory.parent().filter(|p| !p.as_os_str().is_empty()) else {
                return;
            };
            // This run has created nothing in a directory that it cannot read.
            let _ = File::open(above).and_then(|above| above.sync_all());
        }
    }

    /// Syncs what was deferred to the end of the run. Blocks as long as the disks take.
    pub(crate) fn fsync_all(&self) -> Result<()> {
        let devices = std::mem::take(&mut *self.devices.lock());
        for directory in devices.into_values() {
            let synced = File::open(&directory).and_then(|at| Ok(retry_on_intr(|| syncfs(&at))?));
            synced.map_err(|e| {
                let doing = format!("write to disk what is in {}", directory.display());
                Error::local(doing, &e)
            })?;
        }
        Ok(())
    }
}
