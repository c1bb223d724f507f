//! A small file whose checksum is computed of its bytes while they pass, so that no one need read
//! it again.

use std::sync::Arc;

use godwit_proto::ChecksumAlgorithm;
use parking_lot::Mutex;

use super::{FastPath, File, FileRef, Metadata, Result, Run};
use crate::storage::digest::Digest;

/// A file that is read or written in order from its beginning, most often. Its bytes pass through
/// user space as long as they are summed.
pub struct HashingFile {
    file: FileRef,
    algorithm: ChecksumAlgorithm,
    sum: Mutex<RunningSum>,
}

struct RunningSum {
    bytes: u64,
    /// `None` once bytes have passed that do not follow those before.
    digest: Option<Digest>,
}

impl HashingFile {
    /// Bytes up to which a file is summed: more of them are read again for little.
    pub const BYTES_MAX: u64 = 256 << 10;

    /// Nothing of `file` has passed yet.
    pub fn new(file: FileRef, algorithm: ChecksumAlgorithm) -> Arc<Self> {
        Arc::new(Self {
            file,
            algorithm,
            sum: Mutex::new(RunningSum {
                bytes: 0,
                digest: Some(Digest::new(algorithm)),
            }),
        })
    }

    /// What the checksum is.
    pub fn algorithm(&self) -> ChecksumAlgorithm {
        self.algorithm
    }

    /// How many bytes have passed, and their checksum, in lower-case hexadecimal. Once. `None`
    /// where they were too many, or not in order from the first.
    pub fn finish(&self) -> Option<(u64, String)> {
        let mut sum = self.sum.lock();
        let bytes = sum.bytes;
        sum.digest.take().map(|digest| (bytes, digest.finish()))
    }

    fn passes(&self, offset: u64, bytes: &[u8]) {
        let mut sum = self.sum.lock();
        let end = offset.saturating_add(bytes.len() as u64);
        let follows = offset == sum.bytes && end <= Self::BYTES_MAX;
        match &mut sum.digest {
            Some(digest) if follows => digest.update(bytes),
            other => *other = None,
        }
        sum.bytes = end;
    }
}

impl File for HashingFile {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let got = self.file.read_at(offset, buffer)?;
        if got > 0 {
            self.passes(offset, &buffer[..got]);
        }
        Ok(got)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        self.file.write_all_at(offset, bytes)?;
        self.passes(offset, bytes);
        Ok(())
    }

    fn may_write(&self) -> bool {
        self.file.may_write()
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
        self.sum.lock().digest = None;
        self.file.clear_at(offset, bytes)
    }

    fn fast_path(&self) -> FastPath<'_> {
        match self.file.fast_path() {
            FastPath::Descriptor(_) if self.sum.lock().digest.is_some() => FastPath::Copy,
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::FtpPath;

    use super::*;
    use crate::storage::{MemoryStorage, Storage as _, WriteMode};

    fn summed() -> Arc<HashingFile> {
        let path = FtpPath::new("/f").unwrap();
        let file = MemoryStorage::new().open_write(&path, WriteMode::New);
        HashingFile::new(file.unwrap(), ChecksumAlgorithm::Crc32c)
    }

    #[test]
    fn bytes_in_order_are_hashed() {
        let file = summed();
        file.write_all_at(0, b"1234").unwrap();
        file.write_all_at(4, b"56789").unwrap();
        assert_eq!(file.finish(), Some((9, "e3069283".to_owned())));
        assert_eq!(file.finish(), None);
        let again = HashingFile::new(file, ChecksumAlgorithm::Adler32);
        let mut buffer = [0; 5];
        assert_eq!(again.read_at(0, &mut buffer).unwrap(), 5);
        assert_eq!(again.read_at(5, &mut buffer).unwrap(), 4);
        assert_eq!(again.read_at(9, &mut buffer).unwrap(), 0);
        assert_eq!(again.finish(), Some((9, "091e01de".to_owned())));
    }

    #[test]
    fn bytes_out_of_order_are_not_hashed() {
        for (first, second) in [(4, 0), (0, 4), (0, 6), (1, 5)] {
            let file = summed();
            file.write_all_at(first, b"12345").unwrap();
            file.write_all_at(second, b"12345").unwrap();
            assert_eq!(file.finish(), None, "{first}, {second}");
        }
        let file = summed();
        file.write_all_at(0, b"12345").unwrap();
        file.clear_at(0, 5).unwrap();
        assert_eq!(file.finish(), None);
    }

    #[test]
    fn a_large_file_soon_goes_past_user_space() {
        let directory = tempfile::tempdir().unwrap();
        let storage = crate::storage::PosixStorage::rooted(directory.path()).unwrap();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        let file = HashingFile::new(file, ChecksumAlgorithm::Crc32c);
        let bytes = vec![7; usize::try_from(HashingFile::BYTES_MAX).unwrap()];
        file.write_all_at(0, &bytes).unwrap();
        assert!(matches!(file.fast_path(), FastPath::Copy));
        file.write_all_at(HashingFile::BYTES_MAX, b"1").unwrap();
        assert!(matches!(file.fast_path(), FastPath::Descriptor(_)));
        assert_eq!(file.finish(), None);
    }
}
