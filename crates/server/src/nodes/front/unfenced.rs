//! Files into which a data node may still write, although the transfer is over for the client: the
//! link to the node has ended, and nobody can say whether it has bytes in hand. A whole file that
//! is stored under such a name later becomes a new file (a new inode), so that late bytes go into
//! the old one, which has no name any more.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
};

use godwit_engine::storage::{Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::temporary_name};
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};

use super::monitor::NodeMonitor;
use crate::storage::failure;

/// Files of a user that are remembered; the oldest is forgotten first. Each takes a node that was
/// cut off in the middle of a receipt.
const FILES_MAX: usize = 4096;

/// By device and inode, the oldest first.
#[derive(Default)]
pub(crate) struct Unfenced {
    /// Of each user, so that none makes room at the cost of others.
    files: Mutex<BTreeMap<String, VecDeque<(u64, u64)>>>,
    /// Who remembers them in place of this process.
    monitor: Option<Arc<dyn NodeMonitor>>,
}

impl Unfenced {
    pub(super) fn monitored(monitor: Arc<dyn NodeMonitor>) -> Self {
        Self {
            monitor: Some(monitor),
            ..Self::default()
        }
    }

    /// `user`: whose transfer it was.
    pub(crate) fn add(&self, user: &str, file: (u64, u64)) {
        if let Some(monitor) = &self.monitor {
            return monitor.add_unfenced(file);
        }
        let mut all = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let files = all.entry(user.to_owned()).or_default();
        if files.contains(&file) {
            return;
        }
        if files.len() >= FILES_MAX {
            files.pop_front();
        }
        files.push_back(file);
    }

    pub(crate) fn has(&self, file: (u64, u64)) -> bool {
        if let Some(monitor) = &self.monitor {
            return monitor.is_unfenced(file);
        }
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.values().any(|files| files.contains(&file))
    }

    /// Takes the name from the file at `path`, where late bytes may still come into it, and gives
    /// it to a new one with the same permissions. Blocks.
    ///
    /// # Errors
    /// The login may not remove it, or storage fails: then nothing must be written there.
    pub(crate) fn replace(
        &self,
        storage: &dyn Storage,
        path: &FtpPath,
    ) -> Result<(), StorageFailure> {
        // What cannot be looked at is told by the one that opens it.
        let Ok(before) = storage.stat(path) else {
            return Ok(());
        };
        if !self.has(before.unique) {
            return Ok(());
        }
        let because = |failure: StorageFailure| StorageFailure {
            errno: 0,
            text: format!(
                "a data node that was cut off may still write into the file of this name, and it \
                 cannot be replaced ({}): store under another name",
                failure.text
            ),
            ..failure
        };
        let new = another_name(path).map_err(because)?;
        // Both are there for a moment: so the new one has another number, by which a node that is
        // late to open it knows that it is not its file.
        storage.open_write(&new, WriteMode::New).map_err(because)?;
        let replaced = (storage.set_mode(&new, before.mode))
            .and_then(|()| storage.rename(&new, path))
            .map_err(because);
        if replaced.is_err() {
            drop(storage.remove_file(&new));
        }
        replaced
    }
}

/// A name of a partial upload in the same directory.
fn another_name(path: &FtpPath) -> Result<FtpPath, StorageFailure> {
    let mut digits = [0; 8];
    let random = getrandom(&mut digits, GetRandomFlags::empty());
    random.map_err(|errno| failure(errno, "make a name"))?;
    let name = temporary_name(u64::from_ne_bytes(digits));
    let name = path.sibling(name.as_bytes());
    name.ok_or_else(|| failure(Errno::ISDIR, &format!("store {path}")))
}

#[cfg(test)]
mod tests {
    use godwit_engine::storage::PosixStorage;
    use std::{fs, os::unix::fs::MetadataExt as _};

    use super::*;

    #[test]
    fn late_bytes_go_into_a_file_without_a_name() {
        let root = tempfile::tempdir().unwrap();
        let storage = PosixStorage::rooted(root.path()).unwrap();
        let path = FtpPath::new("/f").unwrap();
        fs::write(root.path().join("f"), b"old").unwrap();
        storage.set_mode(&path, 0o640).unwrap();
        let late = storage.open_write(&path, WriteMode::Existing).unwrap();
        let unfenced = Unfenced::default();
        unfenced.replace(&storage, &path).unwrap();
        let before = fs::metadata(root.path().join("f")).unwrap();
        assert_eq!(before.size(), 3, "no node was cut off");
        unfenced.add("jo", late.metadata().unwrap().unique);
        unfenced.replace(&storage, &path).unwrap();
        late.write_all_at(0, b"late").unwrap();
        let after = fs::metadata(root.path().join("f")).unwrap();
        assert_ne!(before.ino(), after.ino());
        assert_eq!((after.size(), after.mode() & 0o777), (0, 0o640));
        let none = FtpPath::new("/none").unwrap();
        assert!(unfenced.replace(&storage, &none).is_ok());
    }

    #[test]
    fn the_oldest_is_forgotten_first_and_none_of_others() {
        let unfenced = Unfenced::default();
        unfenced.add("kim", (2, 0));
        for inode in 0..=FILES_MAX as u64 {
            unfenced.add("jo", (1, inode));
            unfenced.add("jo", (1, inode));
        }
        assert!(unfenced.has((2, 0)));
        assert!(!unfenced.has((1, 0)) && unfenced.has((1, 1)));
        assert!(unfenced.has((1, FILES_MAX as u64)));
    }
}
