//! A transfer over many channels, and the tuner that chooses their number.
//!
//! | Function | How settings change |
//! |---|---|
//! | [`run_live`] | godwit: channels join and retire while the others move data |
//! | [`run_chunks`] | GridFTP-APT as published: each chunk runs under one setting, then all stops |
//!
//! The tuners are those of `godwit_tune`, unchanged; an epoch begins, settles and ends as in the
//! client, and its observation holds what `TCP_INFO` would tell. Processors and storage are no
//! limit unless [`run_live_between`] is given [`Hosts`], and concurrency and parallelism are the
//! same: N is their product. Commands take a
//! round trip, and so does the handshake of a new connection; logins are not simulated.

mod channels;
mod chunks;
mod end_times;
mod epoch;
mod hosts;
mod live;

use godwit_tune::{Decision, Observation};

pub use channels::ChannelConfig;
pub use chunks::{ChunkConfig, Sharing, run as run_chunks};
pub use hosts::{Host, Hosts};
pub use live::{LiveConfig, run as run_live, run_between as run_live_between};

/// Time between two looks at a transfer, ns: as in the client.
pub const LOOK_NS: u64 = 50 * crate::MS;

/// What a transfer did.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Course {
    /// Looks, [`LOOK_NS`] apart, in the order of time.
    pub looks: Vec<Look>,
    /// When it decided what, s.
    pub decisions: Vec<(f64, Decision)>,
    /// What each epoch of a live transfer measured, in the order of time.
    pub epochs: Vec<Observation>,
    /// Packets sent, retransmissions included.
    pub sent: u64,
    /// Packets sent again.
    pub retransmitted: u64,
}

/// A transfer at a moment.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Look {
    /// Seconds since the simulation began.
    pub at_s: f64,
    /// Payload that has arrived in order, bytes.
    pub bytes: u64,
    /// Channels that may send.
    pub channels: u32,
    /// Packets sent until then, retransmissions included.
    pub sent: u64,
    /// Packets sent again until then.
    pub retransmitted: u64,
}

impl Course {
    /// Goodput between two moments, bit/s, by the looks nearest to them.
    #[allow(clippy::cast_precision_loss, reason = "bytes of a simulation")]
    pub fn goodput_bps(&self, from_s: f64, to_s: f64) -> f64 {
        match (self.at(from_s), self.at(to_s)) {
            (Some(from), Some(to)) if to.at_s > from.at_s => {
                to.bytes.saturating_sub(from.bytes) as f64 * 8.0 / (to.at_s - from.at_s)
            }
            _ => 0.0,
        }
    }

    /// Packets sent again over packets sent between two moments, `0..=1`, by the same looks.
    #[allow(clippy::cast_precision_loss, reason = "packets of a simulation")]
    pub fn retransmitted_ratio(&self, from_s: f64, to_s: f64) -> f64 {
        match (self.at(from_s), self.at(to_s)) {
            (Some(from), Some(to)) if to.sent > from.sent => {
                (to.retransmitted - from.retransmitted) as f64 / (to.sent - from.sent) as f64
            }
            _ => 0.0,
        }
    }

    /// The first look from `s` on, or the last.
    fn at(&self, s: f64) -> Option<&Look> {
        let index = self.looks.partition_point(|look| look.at_s < s - 1e-9);
        self.looks.get(index).or(self.looks.last())
    }

    /// Mean number of channels between two moments.
    #[allow(clippy::cast_precision_loss, reason = "counts of looks")]
    pub fn channels(&self, from_s: f64, to_s: f64) -> f64 {
        let within = self
            .looks
            .iter()
            .filter(|look| look.at_s >= from_s && look.at_s < to_s);
        let (n, sum) = within.fold((0_u32, 0.0), |(n, sum), look| {
            (n + 1, sum + f64::from(look.channels))
        });
        if n > 0 { sum / f64::from(n) } else { 0.0 }
    }
}
