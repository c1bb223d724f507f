//! Files that a run has put in place here: which they are, and how safe they are there.

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

/// Files that this run has put in place. Another source may mean the same file: by the same name,
/// or by one that differs in case or in the form of its letters where the file system sees no
/// difference. Then the second must not replace the first unseen.
#[derive(Debug, Default)]
pub(crate) struct LocalDurability {
    files: Mutex<CompactSet>,
    /// Unset: nothing is promised.
    durability: OnceLock<Durability>,
    /// Directories that are known to have outlasting names.
    directories: Mutex<CompactSet>,
    /// One directory of each device that something was written to.
    devices: Mutex<HashMap<u64, PathBuf>>,
}

impl LocalDurability {
    /// From now on files are this safe.
    pub(crate) fn set_level(&self, durability: Durability) {
        // Once a run.
        let _ = self.durability.set(durability);
    }

    fn durability(&self) -> Durability {
        self.durability.get().copied().unwrap_or_default()
    }

    /// Device and inode tell, whatever the names are.
    pub(crate) fn record(&self, unique: (u64, u64)) {
        self.files.lock().insert(&unique);
    }

    pub(crate) fn contains(&self, metadata: &fs::Metadata) -> bool {
        self.files
            .lock()
            .contains(&(metadata.dev(), metadata.ino()))
    }

    /// Before a file gets its name: with a name that outlasts a loss of power its bytes must.
    pub(crate) fn fsync_file(&self, file: &Path) -> io::Result<()> {
        match self.durability() {
            Durability::File => File::open(file)?.sync_all(),
            Durability::None | Durability::Batch => Ok(()),
        }
    }

    /// After it has got it.
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

    /// The names of the directories above, since this run may have made them. Held until that is
    /// done, so that nobody else believes it before.
    fn fsync_directories(&self, directory: &Path) {
        let mut known = self.directories.lock();
        for directory in directory.ancestors() {
            if !known.insert(directory) {
                return;
            }
            let Some(above) = directory.parent().filter(|p| !p.as_os_str().is_empty()) else {
                return;
            };
            // One that may not be read is none that we have made something in.
            let _ = File::open(above).and_then(|above| above.sync_all());
        }
    }

    /// At the end of the run: what was promised for then. Blocks as long as the disks take.
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
