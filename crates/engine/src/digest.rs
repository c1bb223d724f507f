//! Checksums of ranges of a file.

use godwit_proto::ChecksumAlgorithm;

use crate::storage::{File, Result};

/// A running checksum.
pub struct Digest {
    _todo: (),
}

impl Digest {
    /// Of no octets.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        let _ = algorithm;
        todo!()
    }
    /// Takes the next octets.
    pub fn update(&mut self, octets: &[u8]) {
        let _ = octets;
        todo!()
    }
    /// Lower-case hexadecimal value.
    pub fn finish(self) -> String {
        todo!()
    }
}

/// Checksum of `offset..offset+length` (`None`: to the end) of `file`, read in order. `progress` is called with the octets so
/// far about every 16 MiB and stops the work by returning false (the result is then ECANCELED).
pub fn of_file(
    file: &dyn File,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String> {
    let _ = (file, algorithm, offset, length, progress);
    todo!()
}
