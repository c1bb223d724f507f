//! 111 range markers and 112 performance markers.

use crate::{range_set::RangeSet, reply::Reply};

/// 112: octets of one stripe so far (GFD.020 "Performance Markers").
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PerfMarker {
    /// UNIX time in seconds, one decimal on the wire.
    pub timestamp: f64,
    /// `0..stripe_count`.
    pub stripe_index: u32,
    /// Octets moved for this transfer and stripe since it began; cumulative.
    pub stripe_bytes: u64,
    /// At least 1.
    pub stripe_count: u32,
}

impl PerfMarker {
    /// The reply that carries it.
    pub fn to_reply(&self) -> Reply {
        todo!()
    }
    /// Reads a 112 reply as leniently as GCT does; `None` where a field is missing or absurd.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        let _ = reply;
        todo!()
    }
}

/// The 111 reply for octets newly safe, or `None` where `fresh` has nothing that can be said.
///
/// Range starts are rounded up and ends down to multiples of 2, but never 0 and never an end equal to `end_of_file`, so that
/// no two ranges are ever one octet apart: GCT's and jglobus' readers merge such ranges and
/// would never ask for the octet between.
pub fn range_marker(fresh: &RangeSet, end_of_file: Option<u64>) -> Option<Reply> {
    let _ = (fresh, end_of_file);
    todo!()
}

/// Ranges of a 111 reply (`Range Marker 0-100,200-300`), exclusive ends; `None` where it is no such reply.
pub fn parse_range_marker(reply: &Reply) -> Option<RangeSet> {
    let _ = reply;
    todo!()
}
