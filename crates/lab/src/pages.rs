//! Reserves memory before a run for the files that the run will write.
//!
//! In a virtual machine whose host reclaims free memory, the first touch of such a page costs
//! several times as much as otherwise. A run would measure that cost, and the more of it the longer
//! its memory was free. So the lab holds the memory until the run writes its files.

use std::{
    fs::{self, File},
    io::{self, ErrorKind, Write as _},
    path::Path,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread::{self, JoinHandle},
    time::Duration,
};

use memmap2::{Advice, MmapMut};

/// Bytes of a page, what a file of any length on tmpfs is rounded up to.
const PAGE_BYTES: u64 = 4096;

/// What the kernel keeps of a file on tmpfs beside its pages: its inode and its name.
const RECORD_BYTES: u64 = 1024;

/// Bytes written at once.
const BLOCK_BYTES: u64 = 1 << 20;

/// Bytes that are given back at a time.
const PART_BYTES: usize = 32 << 20;

/// Free memory beyond what there was at first: what a run can take between two looks.
const AHEAD_BYTES: u64 = 256 << 20;

/// How often the free memory is looked at.
const LOOK: Duration = Duration::from_millis(50);

/// Bytes of memory that so many files of `file_bytes` take on tmpfs.
pub(crate) fn held(files: u32, file_bytes: u64) -> u64 {
    let file = file_bytes
        .next_multiple_of(PAGE_BYTES)
        .saturating_add(RECORD_BYTES);
    u64::from(files).saturating_mul(file)
}

/// Has the machine hold so many bytes of memory that are free: writes them to a file in `folder`,
/// which is on tmpfs, and removes it. For a GB and what goes beside an emulator, which a
/// [`Reserve`] disturbs each time it gives back.
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
    let block = vec![0; usize::try_from(BLOCK_BYTES.min(bytes)).unwrap_or(0)];
    let mut file = File::create(path)?;
    let mut left = bytes;
    while left > 0 {
        let part = usize::try_from(left).map_or(block.len(), |left| left.min(block.len()));
        file.write_all(&block[..part])?;
        left -= part as u64;
    }
    Ok(())
}

/// Memory that the machine has at hand, given back as others take it; all of it where this is
/// dropped.
pub(crate) struct Reserve {
    /// Nothing is sent: that it is gone ends the keeper.
    stop: Option<Sender<()>>,
    keeper: Option<JoinHandle<()>>,
}

impl Reserve {
    /// Takes so many bytes, or half of what is free where that is less, in pages as large as there
    /// are.
    ///
    /// # Errors
    /// The system gives no memory, no thread, or no account of it.
    pub(crate) fn of(bytes: u64) -> io::Result<Self> {
        let wanted = bytes.min(free()? / 2);
        let parts = wanted.div_ceil(PART_BYTES as u64);
        let parts: Vec<MmapMut> = (0..parts).map(|_| part()).collect::<io::Result<_>>()?;
        let goal = free()?.saturating_add(AHEAD_BYTES);
        let (stop, stopped) = mpsc::channel::<()>();
        let keep = move || {
            let mut parts = parts;
            while !parts.is_empty() && stopped.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout)
            {
                let missing = goal.saturating_sub(free().unwrap_or(0));
                let released = missing.div_ceil(PART_BYTES as u64);
                let left = (parts.len() as u64).saturating_sub(released);
                parts.truncate(usize::try_from(left).unwrap_or(0));
            }
        };
        let keeper = thread::Builder::new().name("reserve".into()).spawn(keep)?;
        Ok(Self {
            stop: Some(stop),
            keeper: Some(keeper),
        })
    }
}

impl Drop for Reserve {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(keeper) = self.keeper.take() {
            // It has nothing to say, not even where it has failed.
            drop(keeper.join());
        }
    }
}

/// Memory that is there: each of its pages was written to.
fn part() -> io::Result<MmapMut> {
    let mut part = MmapMut::map_anon(PART_BYTES)?;
    // Given back at once, where small pages would take a tenth of a second for a GB. A kernel
    // without has small ones.
    drop(part.advise(Advice::HugePage));
    for page in part.chunks_mut(4096) {
        page[0] = 1;
    }
    Ok(part)
}

/// Bytes of unused memory.
fn free() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/meminfo")?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemFree:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    let kib =
        kib.ok_or_else(|| io::Error::new(ErrorKind::InvalidData, "no MemFree in /proc/meminfo"))?;
    Ok(kib.saturating_mul(1024))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_hold_whole_pages_and_a_record() {
        assert_eq!(held(3, 0), 3 * 1024);
        assert_eq!(held(3, 1), 3 * 5120);
        assert_eq!(held(2, 4097), 2 * 9216);
    }

    #[test]
    fn a_reserve_of_any_size_ends_when_it_is_dropped() {
        for bytes in [0, 1, PART_BYTES as u64 + 1] {
            drop(Reserve::of(bytes).expect("a few pages"));
        }
    }

    #[test]
    fn nothing_stays_of_what_was_touched() {
        let folder = tempfile::tempdir().expect("a folder");
        for bytes in [0, 1, BLOCK_BYTES + 1] {
            touch(folder.path(), bytes).expect("room for a megabyte");
            assert_eq!(fs::read_dir(folder.path()).expect("there").count(), 0);
        }
        touch(&folder.path().join("missing"), 1).expect_err("no such folder");
    }
}
