//! What small files leave that were not finished.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use godwit_proto::temporary::temporary_digits;

/// A directory of this machine in which a run has begun small files: what of it is not whole has
/// [`temporary_digits`] whose first half is `run`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeftoverDirectory {
    pub(crate) directory: PathBuf,
    pub(crate) run: u32,
}

impl LeftoverDirectory {
    /// What lies there still. Reads the directory.
    pub(crate) fn files(&self) -> io::Result<Vec<PathBuf>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(&self.directory)? {
            let name = entry?.file_name();
            let digits = temporary_digits(name.as_bytes());
            if digits.is_some_and(|digits| digits >> 32 == u64::from(self.run)) {
                files.push(self.directory.join(name));
            }
        }
        Ok(files)
    }

    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }
}
