//! Checksums of the parts of a file, `SITE GODWIT LEAVES`, an extension of ours
//! (docs/spec/leaves.md): where two copies differ, only the parts that differ are moved again.

use crate::{
    checksum::ChecksumAlgorithm,
    range_set::{ByteRange, RangeSet},
    reply::{BodyStyle, Reply, ReplyCode},
    text::decimal,
};

/// What FEAT announces.
pub const FEATURE: &str = "X-GODWIT LEAVES";

/// The one algorithm: see docs/adr/0030.
pub const ALGORITHM: ChecksumAlgorithm = ChecksumAlgorithm::Crc32c;

/// Leaves of one answer, at most: some 40 KB of it.
pub const BLOCKS_MAX: u64 = 4096;

/// Smallest leaf that is answered, bytes. Chosen arbitrarily: a checksum for fewer costs more to
/// tell than to send the bytes again.
pub const BLOCK_BYTES_MIN: u64 = 64 << 10;

/// Smallest leaf that is compared, bytes: what differs costs no more than a block.
const BLOCK_BYTES_ASKED: u64 = 256 << 10;

/// Leaves that are compared of a file, as long as they have no more than [`BLOCK_BYTES_ENOUGH`]: an
/// answer of 9 KB, which comes in one round trip.
const BLOCKS_ASKED: u64 = 1024;

/// Leaves this long cost nothing beside a file of [`BLOCKS_ASKED`] of them.
const BLOCK_BYTES_ENOUGH: u64 = 4 << 20;

/// Digests in a line of the answer.
const LINE_DIGESTS: usize = 64;

/// Hexadecimal digits of one.
const DIGITS: usize = ALGORITHM.hex_digits();

/// CRC-32C of each part of some bytes: all of the same length but the last, which is shorter or the
/// same, and not empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockChecksums {
    /// Bytes of a leaf, at least 1.
    pub leaf: u64,
    /// Bytes of all.
    pub bytes: u64,
    /// One a leaf, in order.
    pub digests: Vec<u32>,
}

/// The leaf to ask for where a region has so many bytes, a power of two: a part in 512 to 1024 of
/// it from 256 KiB to 4 MiB, and longer only where there would be too many.
pub fn block_bytes(region: u64) -> u64 {
    let few = region.div_ceil(BLOCKS_ASKED);
    let least = few.clamp(BLOCK_BYTES_ASKED, BLOCK_BYTES_ENOUGH);
    region.div_ceil(BLOCKS_MAX).max(least).next_power_of_two()
}

/// The leaf to ask for where bytes are looked for that need not be moved: the smallest power of two
/// that is answered.
pub fn finest_block_bytes(region: u64) -> u64 {
    let least = region.div_ceil(BLOCKS_MAX).max(BLOCK_BYTES_MIN);
    least.next_power_of_two()
}

impl BlockChecksums {
    /// `213-octets=9437184;leaf=4194304;`, lines of digests, and an end.
    pub fn to_reply(&self) -> Reply {
        let head = format!("octets={};leaf={};", self.bytes, self.leaf);
        let lines = self.digests.chunks(LINE_DIGESTS).map(|digests| {
            let words: Vec<_> = digests.iter().map(|d| format!("{d:08x}")).collect();
            words.join(" ").into_bytes()
        });
        Reply::with_body(ReplyCode::of(213), BodyStyle::Blank, head, lines, "End.")
    }

    /// Reads a 213: facts in any order, unknown ones passed over. `None` for another code, and
    /// where the digests are not those of so many bytes.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        let (head, body) = reply.lines.split_first()?;
        if reply.code != ReplyCode::of(213) {
            return None;
        }
        let head = std::str::from_utf8(head).ok()?;
        let fact = |name: &str| {
            let mut facts = head.split(';').filter_map(|fact| fact.split_once('='));
            let (_, value) = facts.find(|(n, _)| n.trim_matches(' ').eq_ignore_ascii_case(name))?;
            decimal::<u64>(value)
        };
        let (bytes, leaf) = (fact("octets")?, fact("leaf")?);
        let (_end, lines) = body.split_last()?;
        let mut digests = Vec::new();
        for word in lines.iter().flat_map(|line| line.split(|b| *b == b' ')) {
            match word {
                [] => {}
                word if word.len() == DIGITS && word.iter().all(u8::is_ascii_hexdigit) => {
                    let word = std::str::from_utf8(word).ok()?;
                    digests.push(u32::from_str_radix(word, 16).ok()?);
                }
                _ => return None,
            }
        }
        let leaves = bytes.div_ceil(Some(leaf).filter(|leaf| *leaf > 0)?);
        let found = Self {
            leaf,
            bytes,
            digests,
        };
        (found.digests.len() as u64 == leaves).then_some(found)
    }

    /// Where the bytes of the two differ, neighbours joined; `None` where that cannot be told by
    /// leaves: there are not as many, or they are of another size.
    pub fn differing(&self, other: &Self) -> Option<Vec<ByteRange>> {
        let same = (self.leaf, self.bytes) == (other.leaf, other.bytes);
        same.then(|| self.missing_in(other))
    }

    /// Which of these bytes `part`, a copy of them that may be shorter, does not have, neighbours
    /// joined. All, where leaves cannot tell.
    pub fn missing_in(&self, part: &Self) -> Vec<ByteRange> {
        let comparable = self.leaf == part.leaf && part.bytes <= self.bytes;
        let mut there = part.digests.iter();
        let mut missing = RangeSet::new();
        let mut start = 0_u64;
        for digest in &self.digests {
            let end = start.saturating_add(self.leaf).min(self.bytes);
            let is_there = there.next() == Some(digest) && end <= part.bytes;
            if !(comparable && is_there) {
                missing.insert(ByteRange { start, end });
            }
            start = end;
        }
        missing.iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn leaves(bytes: u64, leaf: u64, digests: &[u32]) -> BlockChecksums {
        BlockChecksums {
            leaf,
            bytes,
            digests: digests.to_vec(),
        }
    }

    #[test]
    fn written_values_parse_to_themselves() {
        for count in [0_u32, 1, 63, 64, 65, 4096] {
            let digests: Vec<u32> = (0..count).map(|i| i.wrapping_mul(0x9E37_79B9)).collect();
            let bytes = u64::from(count).saturating_sub(1) * 65_536 + u64::from(count.min(1));
            let told = leaves(bytes, 65_536, &digests);
            let mut wire = Vec::new();
            told.to_reply().write_to(&mut wire);
            let mut reader = crate::reply::ReplyReader::default();
            reader.push(&wire);
            let read = reader.next_reply().unwrap().unwrap();
            assert_eq!(BlockChecksums::from_reply(&read), Some(told));
        }
    }

    #[test]
    fn answers_that_cannot_be_are_none() {
        let read = |code, head: &str, body: &str| {
            let body = [body.as_bytes().to_vec()];
            let reply = Reply::with_body(ReplyCode::of(code), BodyStyle::Blank, head, body, "End.");
            BlockChecksums::from_reply(&reply)
        };
        let (head, body) = ("Leaf=4; new=x;OCTETS=5;", " 0000000A  ffffffff ");
        assert_eq!(
            read(213, head, body),
            Some(leaves(5, 4, &[10, 0xffff_ffff]))
        );
        assert_eq!(read(250, head, body), None);
        for head in [
            "leaf=4;octets=9;",
            "leaf=0;octets=5;",
            "octets=5;",
            "leaf=4;octets=-5;",
        ] {
            assert_eq!(read(213, head, body), None, "{head}");
        }
        for body in [
            "0000000a",
            "0000000a fffffff",
            "0000000a +fffffff",
            "0000000a\u{fc}",
        ] {
            assert_eq!(read(213, "leaf=4;octets=5;", body), None, "{body}");
        }
        assert_eq!(
            BlockChecksums::from_reply(&Reply::new(ReplyCode::of(213), "7")),
            None
        );
    }

    #[test]
    fn differing_blocks_are_named_and_the_last_ends_with_the_file() {
        let range = |start, end| ByteRange { start, end };
        let one = leaves(18, 5, &[1, 2, 3, 4]);
        let differs = |other: &[u32]| one.differing(&leaves(18, 5, other)).unwrap();
        assert_eq!(differs(&[1, 2, 3, 4]), []);
        assert_eq!(differs(&[1, 0, 3, 0]), [range(5, 10), range(15, 18)]);
        assert_eq!(differs(&[0, 0, 3, 4]), [range(0, 10)]);
        assert_eq!(one.differing(&leaves(19, 5, &[1, 2, 3, 4])), None);
        assert_eq!(one.differing(&leaves(18, 6, &[1, 2, 3])), None);
    }

    #[test]
    fn the_missing_part_of_a_partial_copy_is_found() {
        let range = |start, end| ByteRange { start, end };
        let all = leaves(18, 5, &[1, 2, 3, 4]);
        let missing = |bytes, digests: &[u32]| all.missing_in(&leaves(bytes, 5, digests));
        assert_eq!(missing(0, &[]), [range(0, 18)]);
        assert_eq!(missing(18, &[1, 0, 3, 4]), [range(5, 10)]);
        assert_eq!(missing(10, &[1, 2]), [range(10, 18)]);
        // The same digest of fewer bytes is chance.
        assert_eq!(missing(13, &[1, 2, 3]), [range(10, 18)]);
        assert_eq!(missing(19, &[1, 2, 3, 4]), [range(0, 18)]);
        assert_eq!(all.missing_in(&leaves(18, 6, &[1, 2, 3])), [range(0, 18)]);
    }

    #[test]
    fn no_region_has_more_leaves_than_are_answered() {
        assert_eq!(block_bytes(0), 256 << 10);
        assert_eq!(block_bytes(256 << 20), 256 << 10);
        assert_eq!(block_bytes((256 << 20) + 1), 512 << 10);
        assert_eq!(block_bytes(4 << 30), 4 << 20);
        for bytes in [0, 1, 1 << 28, (1 << 28) + 1, 1 << 40] {
            let leaf = finest_block_bytes(bytes);
            assert!(leaf >= BLOCK_BYTES_MIN && bytes.div_ceil(leaf) <= BLOCKS_MAX);
        }
        assert_eq!(block_bytes(16 << 30), 4 << 20);
        assert_eq!(block_bytes((16 << 30) + 1), 8 << 20);
        for region in [1, 1 << 40, u64::MAX] {
            assert!(region.div_ceil(block_bytes(region)) <= BLOCKS_MAX);
        }
    }
}
