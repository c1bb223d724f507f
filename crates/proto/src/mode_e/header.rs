//! The 17-byte block header: descriptor u8, count u64, offset u64, big-endian.

use std::{fmt, ops::BitOr};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 17;

/// What FEAT announces: [`Descriptor::HOLE`] is taken, and sent after `OPTS RETR Holes=1;`.
pub const HOLES_FEATURE: &str = "X-GODWIT HOLES";

/// Descriptor bits.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Descriptor(u8);

impl Descriptor {
    /// No bit: data.
    pub const DATA: Self = Self(0);
    /// Legacy end of record; ignored.
    pub const EOR: Self = Self(0x80);
    /// The offset field is the number of EODs to expect; no payload follows.
    pub const EOF: Self = Self(0x40);
    /// Suspected errors; ignored.
    pub const ERRORS: Self = Self(0x20);
    /// Payload is a marker; refused, since GCT would take it for data.
    pub const RESTART: Self = Self(0x10);
    /// Last block of this connection for this transfer.
    pub const EOD: Self = Self(0x08);
    /// The sender will close this connection.
    pub const CLOSE: Self = Self(0x04);
    /// No payload follows: the bytes that the header tells of are zero. Ours alone, sent to those
    /// only that are known to take it (docs/spec/holes.md).
    pub const HOLE: Self = Self(0x02);

    /// The raw bits.
    pub const fn bits(self) -> u8 {
        self.0
    }
    /// True where every bit of `other` is set.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Descriptor {
    type Output = Self;
    fn bitor(self, rhs: Self) -> Self {
        Self(self.0 | rhs.0)
    }
}

impl fmt::Debug for Descriptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }
}

/// One header.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct BlockHeader {
    /// Bits.
    pub descriptor: Descriptor,
    /// Bytes of payload that follow (unused in an EOF header), or of the hole.
    pub count: u64,
    /// Where they belong; in an EOF header the number of EODs.
    pub offset: u64,
}

/// A header that breaks the mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadHeader {
    /// 0x01, RESTART, or HOLE with EOF.
    #[error("descriptor {0:#04x} has bits that are not defined here")]
    Descriptor(u8),
    /// `offset + count` passes 2^64.
    #[error("block of {count} bytes at {offset} overflows")]
    Overflow {
        /// Bytes.
        count: u64,
        /// Offset.
        offset: u64,
    },
}

impl BlockHeader {
    /// A data block.
    pub const fn data(offset: u64, count: u64) -> Self {
        Self {
            descriptor: Descriptor::DATA,
            count,
            offset,
        }
    }

    /// A hole.
    pub const fn hole(offset: u64, count: u64) -> Self {
        Self {
            descriptor: Descriptor::HOLE,
            count,
            offset,
        }
    }

    /// As it travels.
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let mut out = [0; HEADER_BYTES];
        out[0] = self.descriptor.0;
        out[1..9].copy_from_slice(&self.count.to_be_bytes());
        out[9..17].copy_from_slice(&self.offset.to_be_bytes());
        out
    }

    /// Reads a header and refuses what would be misread: unknown bits, RESTART, overflow.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, BadHeader> {
        let descriptor = Descriptor(bytes[0]);
        let be = |o: usize| {
            u64::from_be_bytes([
                bytes[o],
                bytes[o + 1],
                bytes[o + 2],
                bytes[o + 3],
                bytes[o + 4],
                bytes[o + 5],
                bytes[o + 6],
                bytes[o + 7],
            ])
        };
        let (count, offset) = (be(1), be(9));
        let end_of_a_hole = descriptor.contains(Descriptor::HOLE | Descriptor::EOF);
        if descriptor.0 & (0x01 | Descriptor::RESTART.0) != 0 || end_of_a_hole {
            return Err(BadHeader::Descriptor(descriptor.0));
        }
        let header = Self {
            descriptor,
            count,
            offset,
        };
        if !descriptor.contains(Descriptor::EOF) && offset.checked_add(count).is_none() {
            return Err(BadHeader::Overflow { count, offset });
        }
        Ok(header)
    }

    /// Bytes of payload behind this header: `count`, or none behind EOF and of a hole.
    pub const fn payload_bytes(&self) -> u64 {
        if self.descriptor.contains(Descriptor::EOF) || self.descriptor.contains(Descriptor::HOLE) {
            0
        } else {
            self.count
        }
    }

    /// Bytes that are zero from `offset` on and do not travel.
    pub const fn hole_bytes(&self) -> u64 {
        if self.descriptor.contains(Descriptor::HOLE) {
            self.count
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(descriptor: u8, count: u64, offset: u64) -> [u8; HEADER_BYTES] {
        BlockHeader {
            descriptor: Descriptor(descriptor),
            count,
            offset,
        }
        .encode()
    }

    #[test]
    fn layout_on_the_wire() {
        let header = BlockHeader::data(0x0102_0304_0506_0708, 3000);
        let want = [0, 0, 0, 0, 0, 0, 0, 0x0b, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8];
        assert_eq!(header.encode(), want);
        assert_eq!(BlockHeader::decode(&want), Ok(header));
    }

    #[test]
    fn bits_that_are_refused_and_ignored() {
        for bad in [0x01, 0x03, 0x10, 0x12, 0x18, 0x42, 0x4a, 0xff] {
            assert_eq!(
                BlockHeader::decode(&bytes(bad, 0, 0)),
                Err(BadHeader::Descriptor(bad))
            );
        }
        for fine in [
            0x00, 0x02, 0x04, 0x08, 0x0a, 0x0c, 0x20, 0x40, 0x48, 0x4c, 0x80, 0xec,
        ] {
            assert!(BlockHeader::decode(&bytes(fine, 0, 1)).is_ok(), "{fine:#x}");
        }
    }

    #[test]
    fn a_hole_has_bytes_and_no_payload() {
        let hole = BlockHeader::hole(7, 3000);
        assert_eq!(hole.encode()[0], 0x02);
        assert_eq!(BlockHeader::decode(&hole.encode()), Ok(hole));
        assert_eq!((hole.payload_bytes(), hole.hole_bytes()), (0, 3000));
        assert_eq!(BlockHeader::data(7, 3000).hole_bytes(), 0);
    }

    #[test]
    fn overflow_is_refused_except_in_eof() {
        let (count, offset) = (1 << 63, 1 << 63);
        let hole = bytes(Descriptor::HOLE.bits(), count, offset);
        assert_eq!(
            BlockHeader::decode(&hole),
            Err(BadHeader::Overflow { count, offset })
        );
        assert_eq!(
            BlockHeader::decode(&bytes(0, count, offset)),
            Err(BadHeader::Overflow { count, offset })
        );
        assert!(BlockHeader::decode(&bytes(0, u64::MAX, 0)).is_ok());
        let eof = BlockHeader::decode(&bytes(0x40, u64::MAX, u64::MAX)).unwrap();
        assert_eq!(eof.payload_bytes(), 0);
    }
}
