//! A file of a transfer that is written only while the front end is known to hear this node.

use std::{io::IoSliceMut, sync::Arc, time::Duration};

use godwit_engine::storage::{FastPath, File, FileRef, Metadata, Run};
use godwit_proto::error::StorageFailure;

use crate::nodes::pulse::{FENCE, Pulse};

type Result<T> = std::result::Result<T, StorageFailure>;

/// Time for a front end to answer, where bytes are in hand that it may still want: after a pause of
/// both machines it does at once.
const ANSWER_WAIT: Duration = Duration::from_secs(1);

/// Where direct I/O splits what it writes: a system call each.
const PAGE: usize = 4096;

pub(super) struct FencedFile {
    file: FileRef,
    pulse: Arc<Pulse>,
}

impl FencedFile {
    pub(super) fn over(file: FileRef, pulse: Arc<Pulse>) -> FileRef {
        Arc::new(Self { file, pulse })
    }

    fn pass(&self) -> Result<()> {
        if self.pulse.is_heard() || self.pulse.wait_until_heard(ANSWER_WAIT) {
            return Ok(());
        }
        Err(StorageFailure {
            errno: 0,
            doing: "write".to_owned(),
            text: format!(
                "the front end has not answered for {} s: nothing more is written",
                FENCE.as_secs()
            ),
        })
    }
}

/// The rest of a page, whole pages, and the rest.
fn pages(offset: u64, bytes: &[u8]) -> [&[u8]; 3] {
    let past = usize::try_from(offset % PAGE as u64).unwrap_or(0);
    let (first, rest) = bytes.split_at(bytes.len().min((PAGE - past) % PAGE));
    let (whole, last) = rest.split_at(rest.len() / PAGE * PAGE);
    [first, whole, last]
}

impl File for FencedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        self.file.read_at(offset, buffer)
    }

    fn read_vectored_at(&self, offset: u64, buffers: &mut [IoSliceMut<'_>]) -> Result<usize> {
        self.file.read_vectored_at(offset, buffers)
    }

    fn read_cached_at(&self, offset: u64, buffer: &mut [u8]) -> Result<Option<usize>> {
        self.file.read_cached_at(offset, buffer)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let parts = match self.file.fast_path() {
            FastPath::Direct => pages(offset, bytes),
            _ => [bytes, &[], &[]],
        };
        let mut at = offset;
        for part in parts.into_iter().filter(|part| !part.is_empty()) {
            self.pass()?;
            self.file.write_all_at(at, part)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    /// Movers serve others while it is not known, and none takes bytes that it could not write.
    fn writable_at(&self, offset: u64) -> u64 {
        match self.pulse.is_heard() || self.pulse.is_over() {
            true => self.file.writable_at(offset),
            false => 0,
        }
    }

    fn may_write(&self) -> bool {
        self.pulse.is_heard() && self.file.may_write()
    }

    fn metadata(&self) -> Result<Metadata> {
        self.file.metadata()
    }

    fn as_opened(&self) -> Result<Metadata> {
        self.file.as_opened()
    }

    fn sync(&self) -> Result<()> {
        self.file.sync()
    }

    fn sync_file_system(&self) -> Result<()> {
        self.file.sync_file_system()
    }

    fn run_at(&self, offset: u64) -> Run {
        self.file.run_at(offset)
    }

    fn clear_at(&self, offset: u64, bytes: u64) -> Result<u64> {
        self.pass()?;
        self.file.clear_at(offset, bytes)
    }

    fn fast_path(&self) -> FastPath<'_> {
        self.file.fast_path()
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::MetadataExt as _};

    use godwit_engine::storage::{PosixStorage, Storage as _, WriteMode};
    use godwit_proto::FtpPath;

    use super::*;

    #[test]
    fn nothing_is_written_for_a_front_end_that_does_not_answer() {
        let root = tempfile::tempdir().unwrap();
        let storage = PosixStorage::rooted(root.path()).unwrap();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        let pulse = Arc::new(Pulse::heard_now());
        let fenced = FencedFile::over(FileRef::clone(&file), Arc::clone(&pulse));
        assert!(fenced.may_write() && fenced.writable_at(0) > 0);
        fenced.write_all_at(0, b"in time").unwrap();
        std::thread::sleep(FENCE);
        assert!(!fenced.may_write(), "and none is spliced");
        assert_eq!(
            fenced.writable_at(7),
            0,
            "no mover takes what it cannot write"
        );
        let stat = || fs::metadata(root.path().join("f")).unwrap();
        let before = (stat().mtime(), stat().mtime_nsec());
        let late = fenced.write_all_at(0, b"late...").unwrap_err();
        assert!(late.text.contains("has not answered"), "{late}");
        fenced.clear_at(0, 4).unwrap_err();
        assert_eq!(fs::read(root.path().join("f")).unwrap(), b"in time");
        assert_eq!((stat().mtime(), stat().mtime_nsec()), before);
        // A front end that is there after all, as after a pause of both.
        let sent = pulse.next_beat().sent;
        pulse.hear(crate::nodes::pulse::Beat {
            sent: 1,
            heard: Some(sent),
        });
        fenced.write_all_at(0, b"again").unwrap();
        pulse.end();
        fenced.write_all_at(0, b"never").unwrap_err();
        assert!(
            fenced.writable_at(0) > 0,
            "a mover that tries is told at once"
        );
        assert_eq!(fs::read(root.path().join("f")).unwrap(), b"againme");
    }

    #[test]
    fn what_direct_io_splits_is_looked_at_before_each_part() {
        let bytes = [7; 3 * PAGE];
        let lengths = |offset, count| pages(offset, &bytes[..count]).map(<[u8]>::len);
        assert_eq!(lengths(0, 3 * PAGE), [0, 3 * PAGE, 0]);
        assert_eq!(lengths(1, 3 * PAGE), [PAGE - 1, 2 * PAGE, 1]);
        assert_eq!(lengths(5, 2), [2, 0, 0]);
        assert_eq!(lengths(PAGE as u64, PAGE + 1), [0, PAGE, 1]);
    }
}
