//! Partial small files of an earlier run.

use std::{
    fs, io,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use godwit_proto::temporary::temporary_digits;

/// A local directory in which a run wrote small files: its partial files have [`temporary_digits`]
/// whose first half is `run`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct LeftoverDirectory {
    pub(crate) directory: PathBuf,
    pub(crate) run: u32,
}

impl LeftoverDirectory {
    /// The partial files in it. Reads the directory.
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
