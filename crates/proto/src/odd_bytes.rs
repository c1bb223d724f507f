//! Bytes in names that some servers change without a word, so that a file gets another name than it
//! was given.

/// Kinds of such bytes that a path has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OddBytes(u8);

impl OddBytes {
    /// Above 0x7f. GCT's server drops them on clear control channels.
    pub const FOREIGN: Self = Self(1);
    /// Control characters. Pure-FTPd stores `_` in their place.
    pub const CONTROL: Self = Self(2);
    /// 0xff, which RFC 959 has doubled on the control channel. vsftpd and Pure-FTPd store both.
    pub const TELNET: Self = Self(4);
    /// A blank at the end. Pure-FTPd stores `_` in its place.
    pub const END_BLANK: Self = Self(8);

    /// Those of `path`.
    pub fn of(path: &[u8]) -> Self {
        let end = match path.last() {
            Some(b' ') => Self::END_BLANK,
            _ => Self::default(),
        };
        path.iter().fold(end, |kinds, byte| match byte {
            0xff => kinds | Self::TELNET | Self::FOREIGN,
            0x80.. => kinds | Self::FOREIGN,
            0x7f | 0..=0x1f => kinds | Self::CONTROL,
            _ => kinds,
        })
    }

    /// All of `other` are among them.
    pub fn has(self, other: Self) -> bool {
        other.0 & !self.0 == 0
    }

    /// Without those of `other`.
    pub fn without(self, other: Self) -> Self {
        Self(self.0 & !other.0)
    }

    /// None.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// As a number, for atomics.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// Of [`Self::bits`].
    pub fn from_bits(bits: u8) -> Self {
        Self(bits & 15)
    }
}

impl std::ops::BitOr for OddBytes {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_apart() {
        for (path, kinds) in [
            (&b"/a b/c"[..], OddBytes::default()),
            ("/\u{fc}".as_bytes(), OddBytes::FOREIGN),
            (b"/a\tb", OddBytes::CONTROL),
            (b"/a\x7f", OddBytes::CONTROL),
            (b"/a\xff", OddBytes::TELNET | OddBytes::FOREIGN),
            (b"/a ", OddBytes::END_BLANK),
        ] {
            assert_eq!(OddBytes::of(path), kinds, "{path:?}");
            assert_eq!(OddBytes::from_bits(kinds.bits()), kinds);
        }
        let both = OddBytes::of(b"/a\t ");
        assert!(both.has(OddBytes::CONTROL) && !OddBytes::CONTROL.has(both));
        assert_eq!(both.without(OddBytes::CONTROL), OddBytes::END_BLANK);
    }
}
