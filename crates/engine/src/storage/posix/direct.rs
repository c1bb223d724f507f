//! Reading and writing past the page cache (O_DIRECT): whole pages of a file, from and to whole
//! pages of memory.

use std::{
    ops::Range,
    os::fd::{BorrowedFd, OwnedFd},
    sync::{
        Once,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_proto::FtpPath;
use rustix::{
    fs::{Mode, OFlags, open},
    io::{Errno, pread, pwrite, retry_on_intr},
};

use super::{
    super::{PAGE, past_page},
    by_proc,
};

/// Fewer bytes go through the page cache: each call waits for the device.
const DIRECT_LEAST: usize = 64 << 10;

/// A second descriptor of an open file.
pub(super) struct Direct {
    fd: OwnedFd,
    /// It could be opened so, and yet not be used.
    is_refused: AtomicBool,
}

/// What direct I/O could read.
pub(super) enum Reading {
    /// Bytes that it read; 0 at the end of the file.
    Done(usize),
    /// Bytes that must be read through the page cache first.
    Not(usize),
}

impl Direct {
    /// Opens `fd`, which was opened with `flags`, once more.
    ///
    /// # Errors
    /// EINVAL: the file system has no direct I/O.
    pub(super) fn open(fd: BorrowedFd<'_>, flags: OFlags) -> Result<Self, Errno> {
        let flags = flags.intersection(OFlags::RWMODE) | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = retry_on_intr(|| open(by_proc(fd), flags, Mode::empty()))?;
        Ok(Self {
            fd,
            is_refused: AtomicBool::new(false),
        })
    }

    pub(super) fn is_refused(&self) -> bool {
        self.is_refused.load(Ordering::Relaxed)
    }

    /// Reads whole pages, as many as fit.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> Result<Reading, Errno> {
        let whole = buffer.len() - buffer.len() % PAGE;
        if !is_page(buffer) || whole < DIRECT_LEAST {
            return Ok(Reading::Not(buffer.len()));
        }
        match before_page(offset) {
            0 => {
                let read = retry_on_intr(|| pread(&self.fd, &mut buffer[..whole], offset));
                Ok(self
                    .unless_refused(read)?
                    .map_or(Reading::Not(buffer.len()), Reading::Done))
            }
            before => Ok(Reading::Not(before)),
        }
    }

    /// Writes the part of `bytes` that direct I/O can write, and returns it.
    pub(super) fn write(&self, offset: u64, bytes: &[u8]) -> Result<Range<usize>, Errno> {
        let start = before_page(offset);
        let whole = bytes.len().saturating_sub(start) / PAGE * PAGE;
        if whole < DIRECT_LEAST || !is_page(&bytes[start..]) {
            return Ok(0..0);
        }
        let (at, pages) = (offset + start as u64, &bytes[start..start + whole]);
        let written = retry_on_intr(|| pwrite(&self.fd, pages, at));
        Ok(self
            .unless_refused(written)?
            .map_or(0..0, |count| start..start + count))
    }

    /// `None`: no direct I/O on this file from now on.
    fn unless_refused(&self, outcome: Result<usize, Errno>) -> Result<Option<usize>, Errno> {
        match outcome {
            Err(error @ (Errno::INVAL | Errno::OPNOTSUPP)) => {
                tracing::warn!(%error, "direct I/O is refused: the page cache is used");
                self.is_refused.store(true, Ordering::Relaxed);
                Ok(None)
            }
            outcome => outcome.map(Some),
        }
    }
}

/// Logs that there is no direct I/O, once in the process.
pub(super) fn tell(error: &Errno, path: &FtpPath) {
    static LOGGED: Once = Once::new();
    LOGGED.call_once(|| {
        tracing::warn!(%path, %error, "no direct I/O there: the page cache is used");
    });
}

fn is_page(bytes: &[u8]) -> bool {
    bytes.as_ptr().addr().is_multiple_of(PAGE)
}

/// Bytes from a position to the next that is the first of a page.
fn before_page(position: u64) -> usize {
    (PAGE - past_page(position)) % PAGE
}
