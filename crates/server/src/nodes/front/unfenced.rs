//! Files into which a data node may still write, although the transfer is over for the client: the
//! link to the node has ended, and nobody can say whether it has bytes in hand. A whole file that
//! is stored under such a name later becomes a new file (a new inode), so that late bytes go into
//! the old one, which has no name any more. What goes on in the same file, or gives it another
//! name, waits until the node knows that it is not heard.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use godwit_engine::storage::{Storage, WriteMode};
use godwit_proto::{FtpPath, error::StorageFailure, temporary::temporary_name};
use rustix::{
    io::Errno,
    rand::{GetRandomFlags, getrandom},
};
use tokio::time::sleep;

use super::monitor::NodeMonitor;
use crate::{nodes::pulse::QUIET_MAX, storage::failure, transfers::checksums::blocking};

/// Files of a user that are remembered; the oldest is forgotten first. Each takes a node that was
/// cut off in the middle of a receipt.
const FILES_MAX: usize = 4096;

/// By device and inode, the oldest first.
#[derive(Default)]
pub(crate) struct Unfenced {
    /// Of each user, so that none makes room at the cost of others.
    files: Mutex<BTreeMap<String, VecDeque<UnfencedFile>>>,
    /// Who remembers them in place of this process.
    monitor: Option<Arc<dyn NodeMonitor>>,
}

struct UnfencedFile {
    file: (u64, u64),
    /// From then on the node writes only what it cannot be kept from.
    quiet_at: Instant,
}

impl Unfenced {
    pub(super) fn monitored(monitor: Arc<dyn NodeMonitor>) -> Self {
        Self {
            monitor: Some(monitor),
            ..Self::default()
        }
    }

    /// `user`: whose transfer it was. `quiet_in`: after so long the node knows that it is not
    /// heard; no more than [`QUIET_MAX`] counts.
    pub(crate) fn add(&self, user: &str, file: (u64, u64), quiet_in: Duration) {
        if let Some(monitor) = &self.monitor {
            return monitor.add_unfenced(file, quiet_in);
        }
        let quiet_at = Instant::now() + quiet_in.min(QUIET_MAX);
        let mut all = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let files = all.entry(user.to_owned()).or_default();
        if let Some(known) = files.iter_mut().find(|known| known.file == file) {
            known.quiet_at = known.quiet_at.max(quiet_at);
            return;
        }
        if files.len() >= FILES_MAX {
            files.pop_front();
        }
        files.push_back(UnfencedFile { file, quiet_at });
    }

    /// Where late bytes may come into `file`: after so long none come that can be kept away.
    pub(crate) fn quiet_in(&self, file: (u64, u64)) -> Option<Duration> {
        if let Some(monitor) = &self.monitor {
            return monitor.unfenced(file);
        }
        let quiet_at = self.quiet_at(file)?;
        Some(quiet_at.saturating_duration_since(Instant::now()))
    }

    pub(super) fn quiet_at(&self, file: (u64, u64)) -> Option<Instant> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        let of_file = files.values().flatten().filter(|known| known.file == file);
        of_file.map(|known| known.quiet_at).max()
    }

    /// Waits until no node writes late bytes into the file at `path` that can be kept away.
    pub(crate) async fn wait(self: Arc<Self>, storage: Arc<dyn Storage>, path: FtpPath) {
        let looked = blocking(move || Ok(self.quiet_in(storage.stat(&path)?.unique)));
        // What cannot be looked at is told by the one that needs it.
        if let Ok(Some(quiet_in)) = looked.await {
            sleep(quiet_in).await;
        }
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
        if self.quiet_in(before.unique).is_none() {
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
        unfenced.add("jo", late.metadata().unwrap().unique, Duration::ZERO);
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
        let add = |user, file| unfenced.add(user, file, Duration::ZERO);
        let has = |file| unfenced.quiet_in(file).is_some();
        add("kim", (2, 0));
        for inode in 0..=FILES_MAX as u64 {
            add("jo", (1, inode));
            add("jo", (1, inode));
        }
        assert!(has((2, 0)));
        assert!(!has((1, 0)) && has((1, 1)));
        assert!(has((1, FILES_MAX as u64)));
    }

    #[test]
    fn the_longest_lease_of_a_file_counts_and_none_without_end() {
        let unfenced = Unfenced::default();
        let file = (1, 1);
        assert_eq!(unfenced.quiet_in(file), None);
        unfenced.add("jo", file, Duration::ZERO);
        assert_eq!(unfenced.quiet_in(file), Some(Duration::ZERO));
        let before = Instant::now();
        unfenced.add("kim", file, Duration::MAX);
        let longest = unfenced.quiet_at(file).unwrap();
        assert!(longest >= before + QUIET_MAX && longest <= Instant::now() + QUIET_MAX);
        for user in ["jo", "kim"] {
            unfenced.add(user, file, Duration::ZERO);
        }
        assert!(unfenced.quiet_at(file).unwrap() >= longest);
    }
}
