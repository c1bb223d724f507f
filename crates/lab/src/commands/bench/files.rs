//! The file that benchmark cells move, on tmpfs.

use std::{
    fs,
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use super::{BenchError, testbed::Testbed};
use crate::file_error::io_error;
use crate::{
    pages::Reserve,
    peers::process::{self, Finished},
};

/// Bytes written at a time.
const BLOCK_BYTES: u64 = 1_000_000;

/// A folder with a source, which is made when it is first asked for, and room for a target.
pub(super) struct Files {
    folder: PathBuf,
    source: PathBuf,
    made: bool,
}

impl Files {
    /// In this folder, which must be there.
    pub(super) fn new(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
            source: folder.join("source"),
            made: false,
        }
    }

    pub(super) fn bytes(&self, testbed: &Testbed<'_>) -> u64 {
        let bytes = testbed.options.file_gb * 1_000_000_000 / testbed.scale();
        bytes.next_multiple_of(BLOCK_BYTES)
    }

    pub(super) fn target(&self) -> PathBuf {
        self.folder.join("target")
    }

    /// Makes it once.
    pub(super) fn source(&mut self, testbed: &Testbed<'_>) -> Result<&Path, BenchError> {
        if !self.made {
            let bytes = self.bytes(testbed);
            write(&self.source, bytes).map_err(io_error(&self.source))?;
            self.made = true;
        }
        Ok(&self.source)
    }
}

fn write(path: &Path, bytes: u64) -> std::io::Result<()> {
    let mut file = fs::File::create(path)?;
    let block: Vec<u8> = (0..BLOCK_BYTES).map(|i| (i % 251) as u8).collect();
    for _ in 0..bytes / BLOCK_BYTES {
        file.write_all(&block)?;
    }
    Ok(())
}

/// Runs a client to its end, with so many bytes of memory at hand for what it will write.
pub(super) fn run_with_room(
    command: Command,
    bytes: u64,
    limit: Duration,
) -> Result<Finished, BenchError> {
    let reserve = Reserve::of(bytes).map_err(io_error(Path::new("memory")))?;
    let finished = process::run(command, limit)?.success()?;
    drop(reserve);
    Ok(finished)
}

/// Looks whether all has arrived, and makes room for the next.
pub(super) fn check_and_remove(target: &Path, bytes: u64) -> Result<(), BenchError> {
    let length = fs::metadata(target).map_err(io_error(target))?.len();
    if length != bytes {
        let error = std::io::Error::other(format!("{length} bytes arrived of {bytes}"));
        return Err(io_error(target)(error).into());
    }
    Ok(fs::remove_file(target).map_err(io_error(target))?)
}
