//! The error of a file or directory operation, with its path; all errors of the lab use it.

use std::io;
use std::path::{Path, PathBuf};

/// What the system said of a file.
#[derive(Debug, thiserror::Error)]
#[error("{}: {source}", path.display())]
pub struct FileError {
    /// Which file or directory.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

/// Puts the path to what the system says.
pub(crate) fn io_error(path: &Path) -> impl FnOnce(io::Error) -> FileError + use<> {
    let path = path.to_owned();
    move |source| FileError { path, source }
}
