//! A little file that was read when it was opened: nothing is open for it while it waits for its
//! turn.

use super::{File, FileKind, Metadata, Result, failure};

/// What a file was at one moment: its checksum and what is sent are of the same bytes, whatever
/// becomes of the file.
#[derive(Debug)]
pub struct PreloadedFile {
    bytes: Vec<u8>,
    metadata: Metadata,
}

impl PreloadedFile {
    /// Bytes up to which a file is worth its memory: to ask the system for so many costs more than
    /// to copy them.
    pub const BYTES_MAX: u64 = 16 << 10;

    /// Reads `file`, whose metadata were `metadata`. `None` where it is too large, is no regular
    /// one, has holes, or is another by now.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn read(file: &dyn File, metadata: &Metadata) -> Result<Option<Self>> {
        let size = metadata.size;
        if metadata.kind != FileKind::File || size > Self::BYTES_MAX || metadata.stored < size {
            return Ok(None);
        }
        // One more, to see whether that was all.
        let size = usize::try_from(size).unwrap_or(0);
        let mut bytes = vec![0; size + 1];
        let mut got = 0;
        while got < size {
            match file.read_at(got as u64, &mut bytes[got..])? {
                0 => break,
                more => got += more,
            }
        }
        bytes.truncate(got);
        let metadata = metadata.clone();
        Ok((got == size).then_some(Self { bytes, metadata }))
    }

    fn behind(&self, offset: u64) -> &[u8] {
        let at = usize::try_from(offset).ok();
        at.and_then(|at| self.bytes.get(at..)).unwrap_or_default()
    }
}

impl File for PreloadedFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let rest = self.behind(offset);
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    }

    fn write_all_at(&self, _: u64, _: &[u8]) -> Result<()> {
        let error = rustix::io::Errno::BADF.into();
        Err(failure(
            "write to a file that was opened for reading",
            &error,
        ))
    }

    fn metadata(&self) -> Result<Metadata> {
        Ok(self.metadata.clone())
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }

    fn in_memory(&self, offset: u64) -> Option<&[u8]> {
        Some(self.behind(offset))
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::FtpPath;

    use super::*;
    use crate::storage::{FileRef, MemoryStorage, Storage as _, WriteMode};

    fn file(bytes: &[u8]) -> (FileRef, Metadata) {
        let path = FtpPath::new("/f").unwrap();
        let file = MemoryStorage::new().open_write(&path, WriteMode::New);
        let file = file.unwrap();
        file.write_all_at(0, bytes).unwrap();
        let metadata = file.metadata().unwrap();
        (file, metadata)
    }

    #[test]
    fn it_stays_what_it_was() {
        let (file, metadata) = file(b"before");
        let held = PreloadedFile::read(file.as_ref(), &metadata)
            .unwrap()
            .unwrap();
        file.write_all_at(0, b"behind").unwrap();
        let mut buffer = [0; 4];
        for (offset, expected) in [(0, "befo"), (4, "re"), (6, ""), (u64::MAX, "")] {
            let count = held.read_at(offset, &mut buffer).unwrap();
            assert_eq!(&buffer[..count], expected.as_bytes());
        }
        for (offset, expected) in [(0, "before"), (4, "re"), (6, ""), (u64::MAX, "")] {
            assert_eq!(held.in_memory(offset), Some(expected.as_bytes()));
        }
        assert_eq!(held.metadata().unwrap(), metadata);
        held.write_all_at(0, b"x").unwrap_err();
    }

    #[test]
    fn large_and_changed_files_are_not_preloaded() {
        let most = usize::try_from(PreloadedFile::BYTES_MAX).unwrap();
        for (bytes, fits) in [(0, true), (most, true), (most + 1, false)] {
            let (file, metadata) = file(&vec![7; bytes]);
            let held = PreloadedFile::read(file.as_ref(), &metadata).unwrap();
            assert_eq!(held.is_some(), fits, "{bytes}");
        }
        let (file, metadata) = file(b"12345");
        for size in [4, 6] {
            let metadata = Metadata {
                size,
                ..metadata.clone()
            };
            assert!(
                PreloadedFile::read(file.as_ref(), &metadata)
                    .unwrap()
                    .is_none(),
                "{size}"
            );
        }
    }
}
