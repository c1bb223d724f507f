//! Transfers of one user on one host that publish a line to each other, and show which are alive.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/godwit/NAME/        a folder that only the user may enter
//!       ID.alive   locked as long as the member lives: the kernel unlocks it also after a kill
//!       ID         what it says: a line, replaced as a whole
//! ```
//! No process waits for another.

use std::{
    fs::{self, File, TryLockError},
    io::{self, Read},
    os::unix::fs::{DirBuilderExt, MetadataExt},
    path::{Path, PathBuf},
};

use super::{directories, files};

/// Most members that are read.
const MEMBERS_MAX: usize = 256;
/// Bytes read of a file in the folder.
const NOTE_BYTES_MAX: u64 = 64 << 10;
/// Suffix of the lock files of live members.
const ALIVE: &str = ".alive";

/// Membership; dropping it ends it.
#[derive(Debug)]
pub(crate) struct Presence {
    folder: PathBuf,
    id: String,
    _alive: File,
}

impl Presence {
    /// Joins the group `name` in `user_folder`.
    ///
    /// # Errors
    /// There is no folder that only this user may enter.
    pub(crate) fn join(user_folder: &Path, name: &str) -> io::Result<Self> {
        let folder = user_folder.join(file_name_of(name));
        make_private(&folder)?;
        let id = format!(
            "{}-{:08x}",
            std::process::id(),
            files::random() & 0xffff_ffff
        );
        // Locked before it has its name, so that others never see it unlocked.
        let fresh = folder.join(format!("{id}.new"));
        let alive = File::create(&fresh)?;
        alive.lock()?;
        fs::rename(&fresh, folder.join(format!("{id}{ALIVE}")))?;
        Ok(Self {
            folder,
            id,
            _alive: alive,
        })
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// Publishes a line to the others.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn publish(&self, line: &str) -> io::Result<()> {
        self.write(&self.id, line)
    }

    /// The line of each other member, with its id. Members without a line are left out.
    ///
    /// # Errors
    /// The folder is gone.
    pub(crate) fn read_peers(&self) -> io::Result<Vec<(String, String)>> {
        let others = self.live_peers()?.into_iter();
        Ok(others
            .filter_map(|id| self.read(&id).map(|line| (id, line)))
            .collect())
    }

    /// The live members; files of dead ones are removed.
    fn live_peers(&self) -> io::Result<Vec<String>> {
        let mut others = Vec::new();
        for entry in fs::read_dir(&self.folder)?.take(8 * MEMBERS_MAX) {
            let name = entry?.file_name();
            let Some(id) = name.to_str().and_then(|name| name.strip_suffix(ALIVE)) else {
                continue;
            };
            if id == self.id || others.len() == MEMBERS_MAX {
                continue;
            }
            let alive = self.folder.join(&name);
            // It ended between the two system calls.
            let Ok(file) = File::open(&alive) else {
                continue;
            };
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => others.push(id.to_owned()),
                Err(TryLockError::Error(error)) => return Err(error),
                Ok(()) => {
                    // Another process may have removed them first.
                    let _ = fs::remove_file(self.folder.join(id));
                    let _ = fs::remove_file(&alive);
                }
            }
        }
        Ok(others)
    }

    /// Replaces the file `name` as a whole.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn write(&self, name: &str, line: &str) -> io::Result<()> {
        let fresh = self.folder.join(format!("{}.tmp", self.id));
        fs::write(&fresh, format!("{line}\n"))?;
        fs::rename(&fresh, self.folder.join(name))
    }

    /// The line of the file `name`; `None` if it is missing or no text.
    pub(crate) fn read(&self, name: &str) -> Option<String> {
        let mut text = String::new();
        let file = File::open(self.folder.join(name)).ok()?;
        file.take(NOTE_BYTES_MAX).read_to_string(&mut text).ok()?;
        Some(text.trim_end().to_owned())
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        // A leftover is removed by the next reader.
        let _ = fs::remove_file(self.folder.join(&self.id));
        let _ = fs::remove_file(self.folder.join(format!("{}{ALIVE}", self.id)));
    }
}

/// The folder of all groups of this user.
///
/// # Errors
/// There is none that only this user can enter.
pub(crate) fn user_folder() -> io::Result<PathBuf> {
    let folder = directories::runtime();
    make_private(&folder)?;
    Ok(folder)
}

/// Creates a folder and checks that it belongs to this user alone: under /tmp another user may have
/// created it first.
fn make_private(folder: &Path) -> io::Result<()> {
    match fs::DirBuilder::new().mode(0o700).create(folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let found = fs::symlink_metadata(folder)?;
    let ours = found.uid() == rustix::process::geteuid().as_raw();
    if found.is_dir() && ours && found.mode() & 0o077 == 0 {
        Ok(())
    } else {
        Err(io::Error::new(
            io::ErrorKind::PermissionDenied,
            format!("{} is not a folder of ours alone", folder.display()),
        ))
    }
}

fn file_name_of(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || c == '.' {
                c
            } else {
                '_'
            }
        })
        .take(200)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_hear_each_other_while_they_live() {
        let folder = tempfile::tempdir().unwrap();
        let join = || Presence::join(folder.path(), "put host:2811").unwrap();
        let (first, second) = (join(), join());
        assert_eq!(first.read_peers().unwrap(), []);
        second.publish("1 two").unwrap();
        let heard = first.read_peers().unwrap();
        assert_eq!(heard, [(second.id.clone(), "1 two".to_owned())]);
        drop(second);
        assert_eq!(first.read_peers().unwrap(), []);
    }

    #[test]
    fn files_of_dead_processes_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let presence = Presence::join(folder.path(), "all").unwrap();
        let dead = presence.folder.join("1-00000000.alive");
        fs::write(&dead, "").unwrap();
        fs::write(presence.folder.join("1-00000000"), "1 5\n").unwrap();
        assert_eq!(presence.read_peers().unwrap(), []);
        assert!(!dead.exists());
    }

    #[test]
    fn a_folder_of_others_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let open = folder.path().join("open");
        fs::DirBuilder::new().mode(0o777).create(&open).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o777);
        fs::set_permissions(&open, mode).unwrap();
        assert!(make_private(&open).is_err());
        let link = folder.path().join("link");
        std::os::unix::fs::symlink(folder.path(), &link).unwrap();
        assert!(make_private(&link).is_err());
    }
}
