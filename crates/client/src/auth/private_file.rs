//! Files with secrets of the user.

use std::{fs::File, io::Read as _, os::unix::fs::MetadataExt as _, path::Path};

use crate::error::{Error, Result};

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Opens a file that belongs to the user and is closed to others.
pub(super) fn read_private(path: &Path) -> Result<String> {
    let name = path.display().to_string();
    let file = File::open(path).map_err(|error| unusable(&name, error))?;
    let metadata = file.metadata().map_err(|error| unusable(&name, error))?;
    let owner = metadata.uid();
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(unusable(&name, "it belongs to another user"));
    }
    if metadata.is_file() && metadata.mode() & 0o077 != 0 {
        return Err(unusable(&name, "it is open to others: chmod 600"));
    }
    let mut text = String::new();
    let read = file.take(FILE_BYTES_MAX).read_to_string(&mut text);
    read.map_err(|error| unusable(&name, error))?;
    Ok(text)
}

/// The user cannot be known by it.
pub(super) fn unusable(what: &str, why: impl ToString) -> Error {
    Error::Identity {
        doing: what.to_owned(),
        reason: why.to_string(),
    }
}
