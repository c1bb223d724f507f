//! Checksums of ranges of a file.

use std::fmt::Write as _;

use godwit_proto::{
    ChecksumAlgorithm,
    leaves::{LEAVES_MAX, Leaves},
};
use rustix::{fs::Advice, io::Errno};
use sha2::Digest as _;

use crate::storage::{FastPath, File, FileKind, Pages, Result, errno_failure};

/// Octets read at a time: large enough that the system call costs nothing, small enough for the second-level cache.
const BUFFER_MAX: usize = 1 << 20;
/// A file may have grown since it was looked at.
const BUFFER_MIN: usize = 1 << 12;
/// Octets between two calls of `progress`.
const PROGRESS_BYTES: u64 = 16 << 20;

/// A running checksum.
pub struct Digest(State);

enum State {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Digest {
    /// Of no octets.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        Self(match algorithm {
            ChecksumAlgorithm::Adler32 => State::Adler32(simd_adler32::Adler32::new()),
            ChecksumAlgorithm::Crc32c => State::Crc32c(0),
            ChecksumAlgorithm::Md5 => State::Md5(md5::Md5::new()),
            ChecksumAlgorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            ChecksumAlgorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            ChecksumAlgorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
        })
    }

    /// Takes the next octets.
    pub fn update(&mut self, octets: &[u8]) {
        match &mut self.0 {
            State::Adler32(s) => s.write(octets),
            State::Crc32c(s) => *s = crc32c::crc32c_append(*s, octets),
            State::Md5(s) => s.update(octets),
            State::Sha1(s) => s.update(octets),
            State::Sha256(s) => s.update(octets),
            State::Sha512(s) => s.update(octets),
        }
    }

    /// Lower-case hexadecimal value.
    pub fn finish(self) -> String {
        match self.0 {
            State::Adler32(s) => format!("{:08x}", s.finish()),
            State::Crc32c(s) => format!("{s:08x}"),
            State::Md5(s) => hex(&s.finalize()),
            State::Sha1(s) => hex(&s.finalize()),
            State::Sha256(s) => hex(&s.finalize()),
            State::Sha512(s) => hex(&s.finalize()),
        }
    }
}

/// Checksum of `offset..offset+length` (`None`: to the end) of `file`, read in order; what lies past the end of the
/// file counts for nothing. `progress` is called with the octets so far about every 16 MiB and stops the work by
/// returning false (the result is then ECANCELED). EINVAL for a device to its end, since it may have none.
pub fn of_file(
    file: &dyn File,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String> {
    let mut digest = Digest::new(algorithm);
    read_through(file, offset, length, progress, &mut |octets| {
        digest.update(octets);
        Ok(())
    })?;
    Ok(digest.finish())
}

/// The same region by leaves of `leaf` octets, at least 1. EFBIG where it has more than [`LEAVES_MAX`] of them.
pub fn leaves_of_file(
    file: &dyn File,
    leaf: u64,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<Leaves> {
    let mut found = Leaves {
        leaf,
        octets: 0,
        digests: Vec::new(),
    };
    read_through(file, offset, length, progress, &mut |octets| {
        if take(&mut found, octets) {
            Ok(())
        } else {
            Err(errno_failure("checksum so many leaves", Errno::FBIG))
        }
    })?;
    Ok(found)
}

/// Adds octets to those that leaves were made of. False where they are too many.
fn take(leaves: &mut Leaves, mut octets: &[u8]) -> bool {
    while !octets.is_empty() {
        let within = leaves.octets % leaves.leaf;
        if within == 0 {
            if leaves.digests.len() as u64 == LEAVES_MAX {
                return false;
            }
            leaves.digests.push(0);
        }
        let room = usize::try_from(leaves.leaf - within).unwrap_or(usize::MAX);
        let (now, later) = octets.split_at(room.min(octets.len()));
        if let Some(last) = leaves.digests.last_mut() {
            *last = crc32c::crc32c_append(*last, now);
        }
        leaves.octets += now.len() as u64;
        octets = later;
    }
    true
}

/// CRC-32C of all octets that `leaves` were made of, lower-case hexadecimal: CRCs of neighbours can be joined.
pub fn whole(leaves: &Leaves) -> String {
    let mut left = leaves.octets;
    let joined = leaves.digests.iter().fold(0, |joined, digest| {
        let octets = left.min(leaves.leaf);
        left -= octets;
        // A length beyond the address space is only on 32-bit machines, whose files are shorter.
        let octets = usize::try_from(octets).unwrap_or(usize::MAX);
        crc32c::crc32c_combine(joined, *digest, octets)
    });
    format!("{joined:08x}")
}

/// Hands the octets of a region to `take`, in order, which may end it by a failure.
fn read_through(
    file: &dyn File,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
    take: &mut dyn FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    if let Some(rest) = file.in_memory(offset) {
        let most = length.map_or(usize::MAX, |length| {
            usize::try_from(length).unwrap_or(usize::MAX)
        });
        return take(&rest[..rest.len().min(most)]);
    }
    let metadata = file.metadata()?;
    let is_special = metadata.kind == FileKind::Special;
    if length.is_none() && is_special {
        return Err(errno_failure("checksum a device to its end", Errno::INVAL));
    }
    let mut left = length.unwrap_or(u64::MAX).min(u64::MAX - offset);
    // Of a small file, to clear a large buffer would be the greater part of the work.
    let expected = if is_special {
        left
    } else {
        left.min(metadata.size)
    };
    let most = usize::try_from(expected).unwrap_or(BUFFER_MAX);
    if most > BUFFER_MAX
        && let FastPath::Descriptor(fd) = file.fast_path()
    {
        // Advice only; some file systems do not take it.
        let _ = rustix::fs::fadvise(fd, offset, None, Advice::Sequential);
    }
    let mut buffer = Pages::new(most.clamp(BUFFER_MIN, BUFFER_MAX));
    let (mut done, mut report_at) = (0, PROGRESS_BYTES);
    while left > 0 {
        let most = usize::try_from(left).map_or(buffer.len(), |left| left.min(buffer.len()));
        let got = file.read_at(offset + done, &mut buffer[..most])?;
        if got == 0 {
            break;
        }
        take(&buffer[..got])?;
        done += got as u64;
        left -= got as u64;
        if got < most && offset + done == metadata.size {
            // It ends where it was said to: that need not be asked once more.
            break;
        }
        if done >= report_at {
            report_at = done + PROGRESS_BYTES;
            if !progress(done) {
                return Err(errno_failure("checksum", Errno::CANCELED));
            }
        }
    }
    Ok(())
}

fn hex(octets: &[u8]) -> String {
    octets
        .iter()
        .fold(String::with_capacity(octets.len() * 2), |mut out, octet| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{octet:02x}");
            out
        })
}

#[cfg(test)]
mod tests {
    use godwit_proto::FtpPath;

    use super::*;
    use crate::storage::{Held, MemoryStorage, Storage as _, WriteMode};

    fn value(algorithm: ChecksumAlgorithm, octets: &[u8]) -> String {
        let mut digest = Digest::new(algorithm);
        // Uneven pieces: the value must not depend on them.
        octets.chunks(7).for_each(|piece| digest.update(piece));
        digest.finish()
    }

    /// RFC 1321 §A.5, RFC 3174 §7.3, RFC 6234 (FIPS 180-4 examples), RFC 3720 §B.4, Adler-32 of "Wikipedia".
    #[test]
    fn published_values() {
        use ChecksumAlgorithm as A;
        let abc = b"abc".as_slice();
        for (algorithm, octets, want) in [
            (A::Adler32, b"".as_slice(), "00000001"),
            (A::Adler32, b"Wikipedia", "11e60398"),
            (A::Crc32c, b"", "00000000"),
            (A::Crc32c, b"123456789", "e3069283"),
            (A::Crc32c, &[0; 32], "8a9136aa"),
            (A::Crc32c, &[0xff; 32], "62a8ab43"),
            (A::Md5, b"", "d41d8cd98f00b204e9800998ecf8427e"),
            (A::Md5, abc, "900150983cd24fb0d6963f7d28e17f72"),
            (A::Sha1, b"", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (A::Sha1, abc, "a9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                A::Sha256,
                b"",
                "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
            ),
            (
                A::Sha256,
                abc,
                "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (
                A::Sha512,
                b"",
                "cf83e1357eefb8bdf1542850d66d8007d620e4050b5715dc83f4a921d36ce9ce\
                 47d0d13c5d85f2b0ff8318d2877eec2f63b931bd47417a81a538327af927da3e",
            ),
            (
                A::Sha512,
                abc,
                "ddaf35a193617abacc417349ae20413112e6fa4e89a97ea20a9eeee64b55d39a\
                 2192992a274fc1a836ba3c23a3feebbd454d4423643ce80e2a9ac94fa54ca49f",
            ),
        ] {
            assert_eq!(value(algorithm, octets), want, "{algorithm} of {octets:?}");
            assert_eq!(want.len(), algorithm.hex_digits());
        }
    }

    #[test]
    fn a_file_in_memory_has_the_checksums_of_its_regions() {
        let octets = b"what is read";
        let path = FtpPath::new("/f").unwrap();
        let file = MemoryStorage::new().open_write(&path, WriteMode::New);
        let file = file.unwrap();
        file.write_all_at(0, octets).unwrap();
        let held = Held::read(file.as_ref(), &file.metadata().unwrap());
        let held = held.unwrap().unwrap();
        let algorithm = ChecksumAlgorithm::Crc32c;
        for (offset, length, region) in [
            (0, None, 0..12),
            (5, Some(2), 5..7),
            (5, Some(u64::MAX), 5..12),
            (13, None, 12..12),
        ] {
            let found = of_file(&held, algorithm, offset, length, &mut |_| true);
            assert_eq!(found.unwrap(), value(algorithm, &octets[region]));
        }
    }

    #[test]
    fn leaves_are_checksums_of_their_parts_and_join_to_that_of_all() {
        let octets: Vec<u8> = (0..2_500_000_u32).map(|i| (i % 251) as u8).collect();
        let storage = MemoryStorage::new();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        file.write_all_at(0, &octets).unwrap();
        let of = |leaf: usize, offset: usize, length: Option<u64>| {
            let (leaf, offset) = (leaf as u64, offset as u64);
            leaves_of_file(file.as_ref(), leaf, offset, length, &mut |_| true)
        };
        for (leaf, offset, length) in [
            (1 << 20, 0, None),
            (700_001, 1, Some(2_000_000)),
            (3_000_000, 0, None),
            (1 << 20, 2_500_000, None),
            (5, 0, Some(0)),
        ] {
            let region = &octets[offset..];
            let region = &region[..length.unwrap_or(region.len())];
            let leaves = of(leaf, offset, length.map(|n| n as u64)).unwrap();
            assert_eq!(leaves.octets, region.len() as u64);
            let want: Vec<_> = region.chunks(leaf).map(crc32c::crc32c).collect();
            assert_eq!(leaves.digests, want);
            assert_eq!(whole(&leaves), value(ChecksumAlgorithm::Crc32c, region));
        }
        let fits = LEAVES_MAX * 600;
        assert!(of(600, 0, Some(fits)).is_ok());
        let failure = of(600, 0, Some(fits + 1)).unwrap_err();
        assert_eq!(failure.errno, Errno::FBIG.raw_os_error());
    }
}
