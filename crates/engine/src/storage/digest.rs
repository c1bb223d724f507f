//! Checksums of ranges of a file.

use std::{
    fmt::Write as _,
    time::{Duration, Instant},
};

use godwit_proto::{
    ChecksumAlgorithm,
    block_checksums::{BLOCKS_MAX, BlockChecksums},
};
use rustix::{fs::Advice, io::Errno};
use sha2::Digest as _;

use crate::storage::{FastPath, File, FileKind, Pages, Result, Run, ZEROS, errno_failure};

/// Bytes read at a time: large enough that the system call costs nothing, small enough for the
/// second-level cache.
const BUFFER_MAX: usize = 1 << 20;
/// A file may have grown since its size was read.
const BUFFER_MIN: usize = 1 << 12;
/// Bytes between two calls of `progress`.
const PROGRESS_BYTES: u64 = 16 << 20;
/// What one step of a [`Region`] takes, in bytes and in time, whichever is reached first.
const STEP_BYTES: u64 = 16 << 20;
const STEP_TIME: Duration = Duration::from_millis(20);
/// Adler-32 counts modulo this prime (RFC 1950).
const ADLER_MODULUS: u64 = 65_521;

/// A running checksum.
pub struct Digest(State);

enum State {
    Adler32(simd_adler32::Adler32),
    Crc32c(u32),
    Crc64Nvme(Box<crc64fast_nvme::Digest>),
    Crc32(crc32fast::Hasher),
    Md5(md5::Md5),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
    Sha512(sha2::Sha512),
}

impl Digest {
    /// Of no bytes.
    pub fn new(algorithm: ChecksumAlgorithm) -> Self {
        Self(match algorithm {
            ChecksumAlgorithm::Adler32 => State::Adler32(simd_adler32::Adler32::new()),
            ChecksumAlgorithm::Crc32c => State::Crc32c(0),
            ChecksumAlgorithm::Crc64Nvme => State::Crc64Nvme(Box::default()),
            ChecksumAlgorithm::Crc32 => State::Crc32(crc32fast::Hasher::new()),
            ChecksumAlgorithm::Md5 => State::Md5(md5::Md5::new()),
            ChecksumAlgorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            ChecksumAlgorithm::Sha256 => State::Sha256(sha2::Sha256::new()),
            ChecksumAlgorithm::Sha512 => State::Sha512(sha2::Sha512::new()),
        })
    }

    /// Takes the next bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Adler32(s) => s.write(bytes),
            State::Crc32c(s) => *s = crc32c::crc32c_append(*s, bytes),
            State::Crc64Nvme(s) => s.write(bytes),
            State::Crc32(s) => s.update(bytes),
            State::Md5(s) => s.update(bytes),
            State::Sha1(s) => s.update(bytes),
            State::Sha256(s) => s.update(bytes),
            State::Sha512(s) => s.update(bytes),
        }
    }

    /// Lower-case hexadecimal value.
    pub fn finish(self) -> String {
        match self.0 {
            State::Adler32(s) => format!("{:08x}", s.finish()),
            State::Crc32c(s) => format!("{s:08x}"),
            State::Crc64Nvme(s) => format!("{:016x}", s.sum64()),
            State::Crc32(s) => format!("{:08x}", s.finalize()),
            State::Md5(s) => hex(&s.finalize()),
            State::Sha1(s) => hex(&s.finalize()),
            State::Sha256(s) => hex(&s.finalize()),
            State::Sha512(s) => hex(&s.finalize()),
        }
    }
}

/// Checksum of `offset..offset+length` (`None`: to the end) of `file`, read in order; what lies
/// past the end of the file counts for nothing. `progress` is called with the bytes so far about
/// every 16 MiB and stops the work by returning false (the result is then ECANCELED). EINVAL for a
/// device to its end, since it may have none.
pub fn of_file(
    file: &dyn File,
    algorithm: ChecksumAlgorithm,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<String> {
    let mut digest = Digest::new(algorithm);
    read_through(file, offset, length, progress, &mut digest)?;
    Ok(digest.finish())
}

/// The same region by leaves of `leaf` bytes, at least 1. EFBIG where it has more than
/// [`BLOCKS_MAX`] of them.
pub fn leaves_of_file(
    file: &dyn File,
    leaf: u64,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
) -> Result<BlockChecksums> {
    let mut summed = SummedLeaves::new(leaf);
    read_through(file, offset, length, progress, &mut summed)?;
    Ok(summed.finish())
}

fn read_through(
    file: &dyn File,
    offset: u64,
    length: Option<u64>,
    progress: &mut dyn FnMut(u64) -> bool,
    sum: &mut impl Sum,
) -> Result<()> {
    let mut region = Region::new(file, offset, length)?;
    let mut report_at = PROGRESS_BYTES;
    while region.step(file, sum)? {
        if region.done >= report_at {
            report_at = region.done + PROGRESS_BYTES;
            if !progress(region.done) {
                return Err(errno_failure("checksum", Errno::CANCELED));
            }
        }
    }
    Ok(())
}

/// What is made of the bytes of a file.
pub trait Sum: Send + 'static {
    /// Takes the next bytes.
    ///
    /// # Errors
    /// They are too many.
    fn bytes(&mut self, bytes: &[u8]) -> Result<()>;

    /// Takes some of `count` zeros that come next, at least one, and returns how many.
    ///
    /// # Errors
    /// They are too many.
    fn zeros(&mut self, count: u64) -> Result<u64>;
}

impl Sum for Digest {
    fn bytes(&mut self, bytes: &[u8]) -> Result<()> {
        self.update(bytes);
        Ok(())
    }

    /// Adler-32 and CRC-32C know what any number of zeros makes of them. Others must see each.
    fn zeros(&mut self, count: u64) -> Result<u64> {
        match &mut self.0 {
            State::Adler32(sum) => {
                let before = sum.finish();
                let (a, b) = (u64::from(before & 0xffff), u64::from(before >> 16));
                let b = (b + a * (count % ADLER_MODULUS)) % ADLER_MODULUS;
                // Both are below the modulus, which has 16 bits.
                let after = u32::try_from((b << 16) | a).unwrap_or(before);
                *sum = simd_adler32::Adler32::from_checksum(after);
                Ok(count)
            }
            State::Crc32c(crc) => {
                *crc = crc_after_zeros(*crc, count);
                Ok(count)
            }
            State::Crc64Nvme(_)
            | State::Crc32(_)
            | State::Md5(_)
            | State::Sha1(_)
            | State::Sha256(_)
            | State::Sha512(_) => {
                let some = usize::try_from(count).map_or(ZEROS.len(), |n| n.min(ZEROS.len()));
                self.update(&ZEROS[..some]);
                Ok(some as u64)
            }
        }
    }
}

/// CRC-32C of what has the CRC `crc` and `count` zeros behind it.
fn crc_after_zeros(mut crc: u32, mut count: u64) -> u32 {
    if let Some(few) = usize::try_from(count).ok().and_then(|n| ZEROS.get(..n)) {
        return crc32c::crc32c_append(crc, few);
    }
    // CRCs of 1, 2, 4 ... zeros.
    let (mut of_zeros, mut zeros) = (crc32c::crc32c(&[0]), 1_usize);
    loop {
        if count & 1 == 1 {
            crc = crc32c::crc32c_combine(crc, of_zeros, zeros);
        }
        count >>= 1;
        if count == 0 {
            return crc;
        }
        of_zeros = crc32c::crc32c_combine(of_zeros, of_zeros, zeros);
        // On a machine of 32 bits no file is as long.
        zeros = zeros.wrapping_mul(2);
    }
}

/// [`BlockChecksums`] in the making.
pub struct SummedLeaves {
    leaves: BlockChecksums,
    /// CRC of a leaf of zeros, once one was seen.
    of_zeros: Option<u32>,
}

impl SummedLeaves {
    /// Of leaves of `leaf` bytes, at least 1.
    pub fn new(leaf: u64) -> Self {
        let leaves = BlockChecksums {
            leaf,
            bytes: 0,
            digests: Vec::new(),
        };
        Self {
            leaves,
            of_zeros: None,
        }
    }

    /// What was made of the bytes.
    pub fn finish(self) -> BlockChecksums {
        self.leaves
    }

    /// Bytes that the present leaf has room for, after one was begun where none is; at least 1.
    fn room(&mut self) -> Result<u64> {
        let within = self.leaves.bytes % self.leaves.leaf;
        if within == 0 {
            if self.leaves.digests.len() as u64 == BLOCKS_MAX {
                return Err(errno_failure("checksum so many leaves", Errno::FBIG));
            }
            self.leaves.digests.push(0);
        }
        Ok(self.leaves.leaf - within)
    }

    fn took(&mut self, digest: impl FnOnce(u32) -> u32, bytes: u64) {
        if let Some(last) = self.leaves.digests.last_mut() {
            *last = digest(*last);
        }
        self.leaves.bytes += bytes;
    }
}

impl Sum for SummedLeaves {
    fn bytes(&mut self, mut bytes: &[u8]) -> Result<()> {
        while !bytes.is_empty() {
            let room = usize::try_from(self.room()?).unwrap_or(usize::MAX);
            let (now, later) = bytes.split_at(room.min(bytes.len()));
            self.took(|crc| crc32c::crc32c_append(crc, now), now.len() as u64);
            bytes = later;
        }
        Ok(())
    }

    fn zeros(&mut self, count: u64) -> Result<u64> {
        let leaf = self.leaves.leaf;
        let now = self.room()?.min(count);
        if now == leaf {
            let whole = *self
                .of_zeros
                .get_or_insert_with(|| crc_after_zeros(0, leaf));
            self.took(|_| whole, now);
        } else {
            self.took(|crc| crc_after_zeros(crc, now), now);
        }
        Ok(now)
    }
}

/// CRC-32C of all bytes that `leaves` were made of, lower-case hexadecimal: CRCs of neighbours can
/// be joined.
pub fn whole(leaves: &BlockChecksums) -> String {
    let mut left = leaves.bytes;
    let joined = leaves.digests.iter().fold(0, |joined, digest| {
        let bytes = left.min(leaves.leaf);
        left -= bytes;
        // A length beyond the address space is only on 32-bit machines, whose files are shorter.
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
        crc32c::crc32c_combine(joined, *digest, bytes)
    });
    format!("{joined:08x}")
}

/// A region of a file on its way into a [`Sum`], a step at a time: a thread that shares a processor
/// with others lets them work between two steps.
pub struct Region {
    start: u64,
    /// Bytes of it that were taken.
    done: u64,
    /// Bytes that are still wanted; the file may end before.
    left: u64,
    /// Of the file, when it was looked at.
    size: u64,
    /// What lies before this position is data, or was passed.
    data_until: u64,
    /// The last read has given less than was asked for.
    was_short: bool,
    buffer: Pages,
    /// Bytes that the buffer is to have.
    buffered: usize,
}

impl Region {
    /// `offset..offset+length` of `file` (`None`: to the end).
    ///
    /// # Errors
    /// EINVAL for a device to its end, since it may have none.
    pub fn new(file: &dyn File, offset: u64, length: Option<u64>) -> Result<Self> {
        let metadata = file.metadata()?;
        let is_special = matches!(metadata.kind, FileKind::Special(_));
        if length.is_none() && is_special {
            return Err(errno_failure("checksum a device to its end", Errno::INVAL));
        }
        let left = length.unwrap_or(u64::MAX).min(u64::MAX - offset);
        // Of a small file, to clear a large buffer would be the greater part of the work.
        let expected = match is_special {
            true => left,
            false => left.min(metadata.size),
        };
        let most = usize::try_from(expected).unwrap_or(BUFFER_MAX);
        if most > BUFFER_MAX
            && let FastPath::Descriptor(fd) = file.fast_path()
        {
            // Advice only; some file systems do not take it.
            let _ = rustix::fs::fadvise(fd, offset, None, Advice::Sequential);
        }
        Ok(Self {
            start: offset,
            done: 0,
            left,
            size: metadata.size,
            data_until: offset,
            was_short: false,
            buffer: Pages::default(),
            buffered: most.clamp(BUFFER_MIN, BUFFER_MAX),
        })
    }

    /// Bytes that were taken so far.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Gives memory back that the next step needs again.
    pub fn pause(&mut self) {
        self.buffer = Pages::default();
    }

    /// Lets `sum` take what comes next of `file`: some megabytes, and no more than takes some
    /// milliseconds where storage is fast. Returns whether there may be more.
    ///
    /// # Errors
    /// The file cannot be read, or the sum does not take as much.
    pub fn step(&mut self, file: &dyn File, sum: &mut impl Sum) -> Result<bool> {
        if let Some(rest) = file.in_memory(self.start + self.done) {
            let most = usize::try_from(self.left).unwrap_or(usize::MAX);
            sum.bytes(&rest[..rest.len().min(most)])?;
            return Ok(false);
        }
        let (begun, end) = (Instant::now(), (self.done / STEP_BYTES + 1) * STEP_BYTES);
        self.buffer.resize(self.buffered);
        while self.left > 0 {
            let Some(count) = self.pass(file, sum)? else {
                return Ok(false);
            };
            self.done += count;
            self.left -= count;
            if self.done >= end || begun.elapsed() >= STEP_TIME {
                break;
            }
        }
        Ok(self.left > 0)
    }

    /// What one read gives, or a hole has. `None` at the end.
    fn pass(&mut self, file: &dyn File, sum: &mut impl Sum) -> Result<Option<u64>> {
        let position = self.start + self.done;
        if position >= self.data_until {
            match file.run_at(position) {
                Run::Hole { end } if end > position => {
                    return sum.zeros(self.left.min(end - position)).map(Some);
                }
                Run::Hole { .. } => {}
                Run::Data { end } => self.data_until = end,
            }
        }
        let most = self.buffer.len();
        let most = usize::try_from(self.left).map_or(most, |left| left.min(most));
        if self.was_short && position == self.size {
            // It ended where it was said to: that need not be asked once more.
            return Ok(None);
        }
        let got = file.read_at(position, &mut self.buffer[..most])?;
        self.was_short = got < most;
        sum.bytes(&self.buffer[..got])?;
        Ok((got > 0).then_some(got as u64))
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
            // Writing to a String cannot fail.
            let _ = write!(out, "{byte:02x}");
            out
        })
}

#[cfg(test)]
mod tests {
    use godwit_proto::FtpPath;

    use super::*;
    use crate::storage::{MemoryStorage, PosixStorage, PreloadedFile, Storage as _, WriteMode};

    fn value(algorithm: ChecksumAlgorithm, bytes: &[u8]) -> String {
        let mut digest = Digest::new(algorithm);
        // Uneven pieces: the value must not depend on them.
        bytes.chunks(7).for_each(|piece| digest.update(piece));
        digest.finish()
    }

    /// RFC 1321 §A.5, RFC 3174 §7.3, RFC 6234 (FIPS 180-4 examples), RFC 3720 §B.4, Adler-32 of
    /// "Wikipedia", check values of CRC-64/NVME and CRC-32/ISO-HDLC.
    #[test]
    fn published_values() {
        use ChecksumAlgorithm as A;
        let abc = b"abc".as_slice();
        for (algorithm, bytes, want) in [
            (A::Adler32, b"".as_slice(), "00000001"),
            (A::Adler32, b"Wikipedia", "11e60398"),
            (A::Crc32c, b"", "00000000"),
            (A::Crc32c, b"123456789", "e3069283"),
            (A::Crc32c, &[0; 32], "8a9136aa"),
            (A::Crc32c, &[0xff; 32], "62a8ab43"),
            (A::Crc64Nvme, b"", "0000000000000000"),
            (A::Crc64Nvme, b"123456789", "ae8b14860a799888"),
            (A::Crc32, b"", "00000000"),
            (A::Crc32, b"123456789", "cbf43926"),
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
            assert_eq!(value(algorithm, bytes), want, "{algorithm} of {bytes:?}");
            assert_eq!(want.len(), algorithm.hex_digits());
        }
    }

    #[test]
    fn a_file_in_memory_has_the_checksums_of_its_regions() {
        let bytes = b"what is read";
        let path = FtpPath::new("/f").unwrap();
        let file = MemoryStorage::new().open_write(&path, WriteMode::New);
        let file = file.unwrap();
        file.write_all_at(0, bytes).unwrap();
        let held = PreloadedFile::read(file.as_ref(), &file.metadata().unwrap());
        let held = held.unwrap().unwrap();
        let algorithm = ChecksumAlgorithm::Crc32c;
        for (offset, length, region) in [
            (0, None, 0..12),
            (5, Some(2), 5..7),
            (5, Some(u64::MAX), 5..12),
            (13, None, 12..12),
        ] {
            let found = of_file(&held, algorithm, offset, length, &mut |_| true);
            assert_eq!(found.unwrap(), value(algorithm, &bytes[region]));
        }
    }

    #[test]
    fn block_checksums_combine_to_the_checksum_of_the_file() {
        let bytes: Vec<u8> = (0..2_500_000_u32).map(|i| (i % 251) as u8).collect();
        let storage = MemoryStorage::new();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        file.write_all_at(0, &bytes).unwrap();
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
            let region = &bytes[offset..];
            let region = &region[..length.unwrap_or(region.len())];
            let leaves = of(leaf, offset, length.map(|n| n as u64)).unwrap();
            assert_eq!(leaves.bytes, region.len() as u64);
            let want: Vec<_> = region.chunks(leaf).map(crc32c::crc32c).collect();
            assert_eq!(leaves.digests, want);
            assert_eq!(whole(&leaves), value(ChecksumAlgorithm::Crc32c, region));
        }
        let fits = BLOCKS_MAX * 600;
        assert!(of(600, 0, Some(fits)).is_ok());
        let failure = of(600, 0, Some(fits + 1)).unwrap_err();
        assert_eq!(failure.errno, Errno::FBIG.raw_os_error());
    }

    #[test]
    fn zeros_count_as_those_that_are_read() {
        let zeros = vec![0; (ZEROS.len() + 5) * 3];
        for algorithm in ChecksumAlgorithm::ALL {
            for count in [1, 7, ZEROS.len(), ZEROS.len() + 1, zeros.len()] {
                let mut digest = Digest::new(algorithm);
                digest.update(b"before");
                let mut left = count as u64;
                while left > 0 {
                    left -= digest.zeros(left).unwrap();
                }
                digest.update(b"behind");
                let want = [b"before".as_slice(), &zeros[..count], b"behind"].concat();
                assert_eq!(
                    digest.finish(),
                    value(algorithm, &want),
                    "{algorithm} {count}"
                );
            }
        }
    }

    #[test]
    fn checksums_of_files_with_holes_are_those_of_their_bytes() {
        let folder = tempfile::tempdir().unwrap();
        let storage = PosixStorage::rooted(folder.path()).unwrap();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        for at in [1_u64 << 20, 5 << 20] {
            file.write_all_at(at, b"an island").unwrap();
        }
        storage.set_len(&path, (7 << 20) + 11).unwrap();
        let bytes = std::fs::read(folder.path().join("f")).unwrap();
        for (offset, length) in [(0, None), (3, Some(2 << 20)), (6 << 20, Some(9 << 20))] {
            let region = &bytes[usize::try_from(offset).unwrap()..];
            let end = length.map_or(region.len(), |n| usize::try_from(n).unwrap());
            let region = &region[..end.min(region.len())];
            for algorithm in ChecksumAlgorithm::ALL {
                let found = of_file(&*file, algorithm, offset, length, &mut |_| true);
                assert_eq!(found.unwrap(), value(algorithm, region), "{algorithm}");
            }
            for leaf in [300_000, 1 << 20, 8 << 20] {
                let found = leaves_of_file(&*file, leaf, offset, length, &mut |_| true).unwrap();
                let chunks = region.chunks(usize::try_from(leaf).unwrap());
                let want: Vec<_> = chunks.map(crc32c::crc32c).collect();
                assert_eq!(found.digests, want, "{leaf}");
            }
        }
    }

    /// Reading it would take hours.
    #[test]
    fn checksums_skip_holes() {
        const TERABYTE: u64 = 1 << 40;
        let folder = tempfile::tempdir().unwrap();
        let storage = PosixStorage::rooted(folder.path()).unwrap();
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        storage.set_len(&path, TERABYTE).unwrap();
        let sum = |algorithm| of_file(&*file, algorithm, 0, None, &mut |_| true).unwrap();
        // As many zeros let the first half of an Adler-32 be, and add themselves to the second.
        let adler = ((TERABYTE % ADLER_MODULUS) << 16) | 1;
        assert_eq!(sum(ChecksumAlgorithm::Adler32), format!("{adler:08x}"));
        let leaf = TERABYTE / BLOCKS_MAX;
        let leaves = leaves_of_file(&*file, leaf, 0, None, &mut |_| true).unwrap();
        assert_eq!(leaves.bytes, TERABYTE);
        assert_eq!(sum(ChecksumAlgorithm::Crc32c), whole(&leaves));
    }
}
