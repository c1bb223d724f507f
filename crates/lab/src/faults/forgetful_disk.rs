//! A file system that loses what was not synced when the power fails.

use std::io;
use std::path::Path;

use super::store::Store;

/// A disk that forgets what was not synced when the power goes. Programs see it through the kernel
/// (FUSE); it has one directory.
#[derive(Debug)]
pub struct ForgetfulDisk(Store);

impl ForgetfulDisk {
    /// Keeps the files in `directory`, and shows them at `at`, an empty directory, until dropped.
    ///
    /// # Errors
    /// When there can be no such file system here: it needs `/dev/fuse`, and root.
    pub fn mount(directory: &Path, at: &Path) -> io::Result<ForgetfulDisk> {
        Store::mount(directory, at).map(ForgetfulDisk)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// All that was not synced is gone. Programs with open files must have ended.
    ///
    /// # Errors
    /// Those of the directory behind it.
    pub fn lose_power(&self) -> io::Result<()> {
        self.0.lose_power()
    }
}
