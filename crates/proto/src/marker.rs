//! 111 range markers and 112 performance markers.

use crate::{
    range_set::RangeSet,
    reply::{BodyStyle, Reply, ReplyCode},
    restart::parse_ranges,
    text::{decimal, find_ignoring_case},
};

/// 112: bytes of one stripe so far (GFD.020 "Performance Markers").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerfMarker {
    /// UNIX time in seconds, one decimal on the wire.
    pub timestamp: f64,
    /// `0..stripe_count`.
    pub stripe_index: u32,
    /// Bytes moved for this transfer and stripe since it began; cumulative.
    pub stripe_bytes: u64,
    /// At least 1.
    pub stripe_count: u32,
}

impl PerfMarker {
    /// The reply that carries it. A time that is no number, or before 1970, is written as 0.
    pub fn to_reply(&self) -> Reply {
        let timestamp = if self.timestamp.is_finite() {
            self.timestamp.max(0.0)
        } else {
            0.0
        };
        Reply::with_body(
            ReplyCode::of(112),
            BodyStyle::Blank,
            "Perf Marker",
            [
                format!("Timestamp: {timestamp:.1}"),
                format!("Stripe Index: {}", self.stripe_index),
                format!("Stripe Bytes Transferred: {}", self.stripe_bytes),
                format!("Total Stripe Count: {}", self.stripe_count),
            ]
            .map(String::into_bytes),
            "End.",
        )
    }

    /// Reads a 112 reply as leniently as GCT does; `None` where a field is missing or absurd.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        if reply.code.get() != 112 {
            return None;
        }
        let text = reply.text();
        let field = |key: &str| {
            let at = find_ignoring_case(&text, key)? + key.len();
            text[at..].split_whitespace().next()
        };
        let timestamp: f64 = field("Timestamp:")?.parse().ok()?;
        let marker = Self {
            timestamp,
            stripe_index: decimal(field("Stripe Index:")?)?,
            stripe_bytes: decimal(field("Stripe Bytes Transferred:")?)?,
            stripe_count: decimal(field("Total Stripe Count:")?)?,
        };
        let sound =
            timestamp.is_finite() && timestamp >= 0.0 && marker.stripe_index < marker.stripe_count;
        sound.then_some(marker)
    }
}

/// Ranges that one 111 says at most, so that its line stays below what readers take
/// ([`crate::line::LINE_BYTES_MAX`]). What was said can be read back with [`parse_range_marker`].
pub const MARKER_RANGES_MAX: usize = 1000;

/// The 111 reply for bytes newly safe, or `None` where `fresh` has nothing that can be said.
///
/// Range starts are rounded up and ends down to multiples of 2, but never 0 and never an end equal
/// to `end_of_file`, so that no two ranges are ever one byte apart: GCT's and jglobus' readers
/// merge such ranges and would never ask for the byte between. At most the first
/// [`MARKER_RANGES_MAX`] ranges are said.
pub fn range_marker(fresh: &RangeSet, end_of_file: Option<u64>) -> Option<Reply> {
    let last = fresh.iter().last()?;
    let mut text = "Range Marker ".to_owned();
    let mut said = 0;
    for range in fresh.iter() {
        // Only the last range may keep an odd end: another one would have a neighbour to be merged
        // with.
        let keeps_end = range == last && end_of_file == Some(range.end);
        let start = range.start + (range.start & 1);
        let end = if keeps_end { range.end } else { range.end & !1 };
        if start >= end {
            continue;
        }
        if said == MARKER_RANGES_MAX {
            break;
        }
        if said > 0 {
            text.push(',');
        }
        text.push_str(&format!("{start}-{end}"));
        said += 1;
    }
    (said > 0).then(|| Reply::new(ReplyCode::of(111), text))
}

/// Ranges of a 111 reply (`Range Marker 0-100,200-300`), exclusive ends; `None` where it is no such
/// reply.
pub fn parse_range_marker(reply: &Reply) -> Option<RangeSet> {
    const KEY: &str = "Range Marker";
    if reply.code.get() != 111 {
        return None;
    }
    let text = reply.text();
    let at = find_ignoring_case(&text, KEY)? + KEY.len();
    let list = text[at..].trim_start_matches([':', ' ']);
    parse_ranges(list.lines().next()?.trim_end_matches(['.', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::range_set::ByteRange;

    fn set(ranges: &[(u64, u64)]) -> RangeSet {
        let ranges = ranges.iter().map(|(s, e)| ByteRange::new(*s, *e).unwrap());
        ranges.collect()
    }

    fn written(reply: &Reply) -> String {
        let mut out = Vec::new();
        reply.write_to(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn performance_marker_in_gcts_words() {
        let marker = PerfMarker {
            timestamp: 1_795_242_095.9,
            stripe_index: 0,
            stripe_bytes: 199,
            stripe_count: 1,
        };
        assert_eq!(
            written(&marker.to_reply()),
            "112-Perf Marker\r\n Timestamp: 1795242095.9\r\n Stripe Index: 0\r\n \
             Stripe Bytes Transferred: 199\r\n Total Stripe Count: 1\r\n112 End.\r\n"
        );
        assert_eq!(PerfMarker::from_reply(&marker.to_reply()), Some(marker));
    }

    #[test]
    fn performance_marker_of_others() {
        let read = |body: &[&str]| {
            let body = body.iter().map(|l| l.as_bytes().to_vec());
            PerfMarker::from_reply(&Reply::with_body(
                ReplyCode::of(112),
                BodyStyle::Blank,
                "Perf Marker",
                body,
                "End.",
            ))
        };
        // GCT 13.24 prints two blanks; dCache orders the lines as it likes.
        let marker = read(&[
            "Total Stripe Count: 2",
            "Timestamp:  5",
            "Stripe Bytes Transferred:7",
            "Stripe Index: 1",
        ]);
        assert_eq!(
            marker.map(|m| (m.stripe_bytes, m.stripe_index)),
            Some((7, 1))
        );
        for (at, bad) in [
            (0, "Timestamp: nan"),
            (0, "Timestamp: 1e999"),
            (0, "Timestamp: -5"),
            (1, "Stripe Index: 1"),
            (1, "Stripe Index: x"),
            (2, "Stripe Bytes Transferred: -1"),
            (3, "Total Stripe Count: 0"),
            (3, ""),
        ] {
            let mut lines = [
                "Timestamp: 5",
                "Stripe Index: 0",
                "Stripe Bytes Transferred: 7",
                "Total Stripe Count: 1",
            ];
            assert!(read(&lines).is_some());
            lines[at] = bad;
            assert_eq!(read(&lines), None, "{bad}");
        }
    }

    #[test]
    fn range_marker_keeps_ranges_apart() {
        let said = |ranges: &[(u64, u64)], eof| range_marker(&set(ranges), eof).map(|r| r.text());
        assert_eq!(
            said(&[(0, 7_864_320)], None).as_deref(),
            Some("Range Marker 0-7864320")
        );
        // Byte 100 is missing: a reader that merges 0-100 and 101-200 would lose it.
        assert_eq!(
            said(&[(0, 100), (101, 200)], None).as_deref(),
            Some("Range Marker 0-100,102-200")
        );
        assert_eq!(
            said(&[(0, 101)], None).as_deref(),
            Some("Range Marker 0-100")
        );
        assert_eq!(
            said(&[(0, 101)], Some(101)).as_deref(),
            Some("Range Marker 0-101")
        );
        assert_eq!(
            said(&[(0, 5), (6, 10)], Some(5)).as_deref(),
            Some("Range Marker 0-4,6-10")
        );
        assert_eq!(said(&[(0, 1)], None), None);
        assert_eq!(said(&[], Some(0)), None);
        let all = (0, u64::MAX);
        assert_eq!(
            said(&[all], None).as_deref(),
            Some("Range Marker 0-18446744073709551614")
        );
    }

    #[test]
    fn range_marker_fits_a_line() {
        let many: RangeSet = (0..5000)
            .map(|i| {
                ByteRange::new(u64::MAX - 10_000 * (i + 1), u64::MAX - 10_000 * i - 500).unwrap()
            })
            .collect();
        let reply = range_marker(&many, None).unwrap();
        assert!(written(&reply).len() < crate::line::LINE_BYTES_MAX);
        assert_eq!(
            parse_range_marker(&reply).unwrap().count(),
            MARKER_RANGES_MAX
        );
    }

    #[test]
    fn range_markers_of_others() {
        let read = |text: &str| parse_range_marker(&Reply::new(ReplyCode::of(111), text));
        assert_eq!(
            read("Range Marker 0-100,200-300"),
            Some(set(&[(0, 100), (200, 300)]))
        );
        assert_eq!(read("range marker: 0-100."), Some(set(&[(0, 100)])));
        for bad in [
            "",
            "Range Marker",
            "Range Marker x",
            "Range Marker 5-4",
            "0-100",
        ] {
            assert_eq!(read(bad), None, "{bad:?}");
        }
        assert_eq!(
            parse_range_marker(&Reply::new(ReplyCode::of(112), "Range Marker 0-1")),
            None
        );
    }
}
