//! Files into which a data node may still write, although the transfer is over for the client: the
//! link to the node has ended, and nobody can say whether it has bytes in hand. A whole file that is
//! stored under such a name later becomes a new file (a new inode), so that late bytes go into the
//! old one, which has no name any more.

use std::{
    collections::VecDeque,
    sync::{Mutex, PoisonError},
};

use godwit_engine::storage::{Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure};

/// Files that are remembered; the oldest is forgotten first. Each takes a node that was cut off in
/// the middle of a receipt.
const FILES_MAX: usize = 4096;

/// By device and inode, the oldest first.
#[derive(Default)]
pub(crate) struct Unfenced(Mutex<VecDeque<(u64, u64)>>);

impl Unfenced {
    pub(super) fn add(&self, file: (u64, u64)) {
        let mut files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if files.contains(&file) {
            return;
        }
        if files.len() >= FILES_MAX {
            files.pop_front();
        }
        files.push_back(file);
    }

    pub(super) fn has(&self, file: (u64, u64)) -> bool {
        let files = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        files.contains(&file)
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
        storage.remove_file(path).map_err(because)?;
        storage.open_write(path, WriteMode::New).map_err(because)?;
        storage.set_mode(path, before.mode).map_err(because)
    }
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
        unfenced.add(late.metadata().unwrap().unique);
        unfenced.replace(&storage, &path).unwrap();
        late.write_all_at(0, b"late").unwrap();
        let after = fs::metadata(root.path().join("f")).unwrap();
        assert_ne!(before.ino(), after.ino());
        assert_eq!((after.size(), after.mode() & 0o777), (0, 0o640));
        let none = FtpPath::new("/none").unwrap();
        assert!(unfenced.replace(&storage, &none).is_ok());
    }

    #[test]
    fn the_oldest_is_forgotten_first() {
        let unfenced = Unfenced::default();
        for inode in 0..=FILES_MAX as u64 {
            unfenced.add((1, inode));
            unfenced.add((1, inode));
        }
        assert!(!unfenced.has((1, 0)) && unfenced.has((1, 1)));
        assert!(unfenced.has((1, FILES_MAX as u64)));
    }
}
