//! Looking at a running transfer and changing its channels: `SITE GODWIT`, an extension of ours
//! (docs/spec/live-channels.md).
//!
//! The two commands are *live requests*: the server answers them at once, while the transfer that
//! they concern continues, so their replies come out of turn. [`DONE`] and [`NO_TRANSFER`] end no
//! other command, so that neither end can take them for the transfer's own.

use crate::{
    reply::{Reply, ReplyCode},
    text::decimal,
};

/// The live request was carried out; its text is a [`LiveReport`].
pub const DONE: ReplyCode = ReplyCode::of(258);

/// No transfer runs that could be looked at or changed so.
pub const NO_TRANSFER: ReplyCode = ReplyCode::of(558);

/// What FEAT announces.
pub const FEATURE: &str = "X-GODWIT CHANNELS,REPORT,NEXT";

/// A live request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Live {
    /// `SITE GODWIT CHANNELS n k`: n data channels (at least 1) from now on, if what runs is the
    /// k-th transfer ([`Command::is_transfer`]) that was asked for on this control connection. Only
    /// for what the server sends in MODE E.
    ///
    /// [`Command::is_transfer`]: crate::Command::is_transfer
    Channels(u32, u64),
    /// `SITE GODWIT REPORT`.
    Report,
}

/// The server's side of a running transfer: totals since it began (times in microseconds), so that
/// the difference of two reports tells what was between. What the server does not know is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveReport {
    /// Payload bytes moved.
    pub bytes: u64,
    /// Channels that carry data, or will as soon as they are up.
    pub channels: u32,
    /// Bytes that the peer's kernel has for certain (sending).
    pub acknowledged: Option<u64>,
    /// TCP segments sent on all channels, those that have ended included.
    pub segments_sent: Option<u64>,
    /// Those among them that were sent again.
    pub segments_retransmitted: Option<u64>,
    /// Payload bytes sent again.
    pub bytes_retransmitted: Option<u64>,
    /// Time that the channels were part of the transfer, added up.
    pub channel_us: Option<u64>,
    /// Part of it with bytes to send or unacknowledged.
    pub busy_us: Option<u64>,
    /// Part of that in which the receiver's window had no room.
    pub receive_window_limited_us: Option<u64>,
    /// Part of that in which the sender's socket buffer held no more.
    pub send_buffer_limited_us: Option<u64>,
    /// Smoothed round-trip time, mean over the channels.
    pub rtt_us: Option<u64>,
    /// Smallest round-trip time of any channel.
    pub rtt_min_us: Option<u64>,
    /// Rate at which the receiver lately acknowledged, bits per second.
    pub delivery_rate_bps: Option<u64>,
    /// Threads that move the data.
    pub movers: Option<u64>,
    /// Time that they existed, added up; the next four are parts of it.
    pub mover_us: Option<u64>,
    /// They were on a processor.
    pub running_us: Option<u64>,
    /// They could run and had no processor.
    pub runnable_us: Option<u64>,
    /// They waited for the source.
    pub read_us: Option<u64>,
    /// They waited for the destination.
    pub write_us: Option<u64>,
}

/// Gives one fact its place.
type Place = fn(&mut LiveReport) -> &mut Option<u64>;

/// Names of the facts that may be missing, in the order in which we write them.
const FACTS: [(&str, Place); 17] = [
    ("acknowledged", |r| &mut r.acknowledged),
    ("segments_sent", |r| &mut r.segments_sent),
    ("segments_retransmitted", |r| &mut r.segments_retransmitted),
    ("bytes_retransmitted", |r| &mut r.bytes_retransmitted),
    ("channel_us", |r| &mut r.channel_us),
    ("busy_us", |r| &mut r.busy_us),
    ("receive_window_limited_us", |r| {
        &mut r.receive_window_limited_us
    }),
    ("send_buffer_limited_us", |r| &mut r.send_buffer_limited_us),
    ("rtt_us", |r| &mut r.rtt_us),
    ("rtt_min_us", |r| &mut r.rtt_min_us),
    ("delivery_rate_bps", |r| &mut r.delivery_rate_bps),
    ("movers", |r| &mut r.movers),
    ("mover_us", |r| &mut r.mover_us),
    ("running_us", |r| &mut r.running_us),
    ("runnable_us", |r| &mut r.runnable_us),
    ("read_us", |r| &mut r.read_us),
    ("write_us", |r| &mut r.write_us),
];

impl LiveReport {
    /// `258 bytes=1048576;channels=4;...`: facts that are known, each ended by `;`.
    pub fn to_reply(mut self) -> Reply {
        let mut text = format!("bytes={};channels={};", self.bytes, self.channels);
        for (name, place) in FACTS {
            if let Some(value) = place(&mut self) {
                text += &format!("{name}={value};");
            }
        }
        Reply::new(DONE, text)
    }

    /// Reads a 258: facts in any order, names without case, unknown ones passed over, the last of
    /// each counts. `None` for another code, and where bytes or channels are not told.
    pub fn from_reply(reply: &Reply) -> Option<Self> {
        if reply.code != DONE {
            return None;
        }
        let text = reply.text();
        let mut report = Self::default();
        let (mut bytes, mut channels) = (None, None);
        for (name, value) in text.split(';').filter_map(|fact| fact.split_once('=')) {
            let name = name.trim_matches(' ').to_ascii_lowercase();
            match name.as_str() {
                "bytes" => bytes = decimal(value),
                "channels" => channels = decimal(value),
                _ => {
                    if let Some((_, place)) = FACTS.iter().find(|(known, _)| *known == name) {
                        *place(&mut report) = decimal(value);
                    }
                }
            }
        }
        report.bytes = bytes?;
        report.channels = channels?;
        Some(report)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn says_what_it_knows_and_no_more() {
        let report = LiveReport {
            bytes: 3000,
            channels: 4,
            rtt_us: Some(20_417),
            read_us: Some(0),
            ..LiveReport::default()
        };
        let reply = report.to_reply();
        assert_eq!(
            reply.text(),
            "bytes=3000;channels=4;rtt_us=20417;read_us=0;"
        );
        assert_eq!(LiveReport::from_reply(&reply), Some(report));
    }

    #[test]
    fn reads_leniently_but_invents_nothing() {
        let read = |code, text: &str| LiveReport::from_reply(&Reply::new(code, text));
        let report = read(
            DONE,
            "Channels=2; later=x; BYTES=1;rtt_us=-1;segments_sent=7;=;;",
        )
        .unwrap();
        assert_eq!((report.bytes, report.channels), (1, 2));
        assert_eq!((report.rtt_us, report.segments_sent), (None, Some(7)));
        for bad in [
            "",
            "bytes=1;",
            "channels=1;",
            "bytes=1;channels=4294967296;",
            "bytes;channels",
        ] {
            assert_eq!(read(DONE, bad), None, "{bad:?}");
        }
        assert_eq!(read(NO_TRANSFER, "bytes=1;channels=1;"), None);
    }
}
