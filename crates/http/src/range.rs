//! Ranges of bytes (RFC 9110 §14).

use std::fmt;

use godwit_proto::ByteRange;

/// Ranges that a request may have: what vector reads of physics programs take.
pub const RANGES_MAX: usize = 1024;

/// What a `Range` header selects of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selection {
    /// All: there is no range, or none that has to be answered.
    Whole,
    /// Some, at least one, as they were requested. Together they have no more bytes than the file.
    Parts(Vec<ByteRange>),
    /// None of the ranges begins inside the file.
    Unsatisfiable,
}

/// Reads a `Range` header for a file of `size` bytes. A header that is malformed, has too many
/// ranges, or selects more bytes than the file has counts as none (RFC 9110 §14.2).
pub fn select(header: &str, size: u64) -> Selection {
    let Some(specs) = bytes_of(header) else {
        return Selection::Whole;
    };
    let (mut parts, mut count, mut bytes) = (Vec::new(), 0, 0_u64);
    for spec in specs.split(',') {
        let spec = spec.trim_matches([' ', '\t']);
        if spec.is_empty() {
            continue;
        }
        count += 1;
        if count > RANGES_MAX {
            return Selection::Whole;
        }
        let Some(found) = part(spec, size) else {
            return Selection::Whole;
        };
        if let Some(range) = found {
            bytes = bytes.saturating_add(range.end - range.start);
            parts.push(range);
        }
    }
    match (count, parts.is_empty()) {
        (0, _) => Selection::Whole,
        (_, true) => Selection::Unsatisfiable,
        // Overlapping ranges would make a small request cost many times the file.
        _ if bytes > size => Selection::Whole,
        _ => Selection::Parts(parts),
    }
}

fn bytes_of(header: &str) -> Option<&str> {
    let (unit, specs) = header.trim().split_once('=')?;
    unit.eq_ignore_ascii_case("bytes").then_some(specs)
}

/// `None`: malformed. `Some(None)`: outside of the file.
fn part(spec: &str, size: u64) -> Option<Option<ByteRange>> {
    let (first, last) = spec.split_once('-')?;
    let range = match (first, last) {
        ("", suffix) => {
            let length = number(suffix)?.min(size);
            ByteRange {
                start: size - length,
                end: size,
            }
        }
        (first, last) => {
            let start = number(first)?;
            let end = match last {
                "" => size,
                last => {
                    let last = number(last)?;
                    if last < start {
                        return None;
                    }
                    last.saturating_add(1).min(size)
                }
            };
            ByteRange { start, end }
        }
    };
    Some((range.start < range.end).then_some(range))
}

/// Digits alone; numbers past the largest are the largest.
fn number(text: &str) -> Option<u64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A `Content-Range` header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentRange {
    /// `None`: a request could not be satisfied. Else not empty.
    pub range: Option<ByteRange>,
    /// Bytes of the whole; `None`: unknown.
    pub size: Option<u64>,
}

impl ContentRange {
    /// `None`: malformed.
    pub fn parse(text: &str) -> Option<Self> {
        let (unit, rest) = text.trim().split_once(' ')?;
        if !unit.eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (range, size) = rest.trim_start().split_once('/')?;
        let size = match size {
            "*" => None,
            size => Some(size.parse().ok().filter(|_| number(size).is_some())?),
        };
        let range = match range {
            "*" => None,
            range => {
                let (first, last) = range.split_once('-')?;
                let (start, last) = (number(first)?, number(last)?);
                let end = last.checked_add(1)?;
                if start >= end || size.is_some_and(|size| end > size) {
                    return None;
                }
                Some(ByteRange { start, end })
            }
        };
        (range.is_some() || size.is_some()).then_some(Self { range, size })
    }
}

impl fmt::Display for ContentRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.range {
            Some(ByteRange { start, end }) => {
                write!(f, "bytes {start}-{}/", end.saturating_sub(1))?
            }
            None => f.write_str("bytes */")?,
        }
        match self.size {
            Some(size) => write!(f, "{size}"),
            None => f.write_str("*"),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parts(list: &[(u64, u64)]) -> Selection {
        let ranges = list.iter();
        Selection::Parts(
            ranges
                .map(|&(start, end)| ByteRange { start, end })
                .collect(),
        )
    }

    #[test]
    fn ranges_are_cut_at_the_end_of_the_file() {
        for (header, selected) in [
            ("bytes=0-4", parts(&[(0, 5)])),
            ("Bytes=5-", parts(&[(5, 10)])),
            ("bytes=-3", parts(&[(7, 10)])),
            ("bytes=-30", parts(&[(0, 10)])),
            ("bytes=8-99999999999999999999999", parts(&[(8, 10)])),
            ("bytes=8-8, 0-0 ,,20-30", parts(&[(8, 9), (0, 1)])),
            ("bytes=10-", Selection::Unsatisfiable),
            ("bytes=-0", Selection::Unsatisfiable),
            ("bytes=10-20,30-40", Selection::Unsatisfiable),
        ] {
            assert_eq!(select(header, 10), selected, "{header}");
        }
        assert_eq!(select("bytes=0-", 0), Selection::Unsatisfiable);
        assert_eq!(select("bytes=-5", 0), Selection::Unsatisfiable);
    }

    #[test]
    fn headers_that_make_no_sense_select_all() {
        for header in [
            "",
            "bytes",
            "bytes=",
            "bytes=,",
            "lines=0-4",
            "bytes=4-0",
            "bytes=a-b",
            "bytes=-",
            "bytes=+1-2",
            "bytes=0-4,x",
            "bytes=--1",
            "bytes=0-9,0-9",
        ] {
            assert_eq!(select(header, 10), Selection::Whole, "{header}");
        }
        let many = format!("bytes={}", "0-0,".repeat(RANGES_MAX + 1));
        assert_eq!(select(&many, u64::MAX), Selection::Whole);
    }

    #[test]
    fn content_ranges_that_make_no_sense_are_refused() {
        for text in [
            "",
            "bytes",
            "bytes 0-4",
            "bytes 4-0/9",
            "bytes 0-9/9",
            "bytes */*",
            "lines 0-4/9",
            "bytes 0-18446744073709551615/*",
            "bytes 0-4/+9",
            "bytes 0-4/",
        ] {
            assert_eq!(ContentRange::parse(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn headers_are_read_as_written(start: u32, length in 1..u32::MAX, more: Option<u32>) {
            let (start, length) = (u64::from(start), u64::from(length));
            let end = start + length;
            let range = ContentRange {
                range: Some(ByteRange { start, end }),
                size: more.map(|more| end + u64::from(more)),
            };
            prop_assert_eq!(ContentRange::parse(&range.to_string()), Some(range));
        }

        #[test]
        fn selected_parts_lie_in_the_file(header in "bytes=[0-9,-]{0,40}", size: u32) {
            let size = u64::from(size);
            if let Selection::Parts(parts) = select(&header, size) {
                prop_assert!(parts.iter().all(|part| part.start < part.end && part.end <= size));
                prop_assert!(parts.iter().map(|part| part.end - part.start).sum::<u64>() <= size);
            }
        }
    }
}
