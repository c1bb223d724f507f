//! Memory for files that are to come.
//!
//! A virtual machine whose host takes free memory back gets it again page by page, at several times of what a page costs
//! otherwise: whoever writes first would pay for all who come later.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::Path;

/// Octets of a page, what a file of any length on tmpfs is rounded up to.
const PAGE_OCTETS: u64 = 4096;

/// Octets written at once.
const BLOCK_OCTETS: u64 = 1 << 20;

/// Octets of memory that so many files of `file_bytes` hold on tmpfs.
pub(crate) fn held(files: u32, file_bytes: u64) -> u64 {
    (u64::from(files)).saturating_mul(file_bytes.next_multiple_of(PAGE_OCTETS))
}

/// Has the machine hold so many octets of memory that are free: writes them to a file in `folder`, which is on tmpfs, and
/// removes it.
///
/// # Errors
/// There is no room, or the folder may not be written to.
pub(crate) fn touch(folder: &Path, bytes: u64) -> io::Result<()> {
    let path = folder.join("touched");
    let written = fill(&path, bytes);
    fs::remove_file(&path).or_else(|error| match error.kind() {
        io::ErrorKind::NotFound => Ok(()),
        _ => Err(error),
    })?;
    written
}

fn fill(path: &Path, bytes: u64) -> io::Result<()> {
    let block = vec![0; usize::try_from(BLOCK_OCTETS.min(bytes)).unwrap_or(0)];
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_whole_pages() {
        assert_eq!(held(3, 0), 0);
        assert_eq!(held(3, 1), 3 * 4096);
        assert_eq!(held(2, 4097), 4 * 4096);
    }

    #[test]
    fn nothing_stays_of_what_was_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [0, 1, BLOCK_OCTETS + 1] {
            touch(folder.path(), bytes).expect("room for a megabyte");
            assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
        }
        touch(&folder.path().join("missing"), 1).expect_err("no such folder");
    }
}
