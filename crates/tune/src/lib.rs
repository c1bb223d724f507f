//! Tuners as pure values: an observation goes in, a decision comes out.
//!
//! # Map
//! - [`Setting`]: what is tuned, and its [`Bounds`]
//! - [`Observation`]: what one control epoch measured
//! - [`Decision`]: the next setting and why, in words
//! - [`Tuner`]: the trait, and [`Method`]: what the user calls a tuner, its keys, and how to make
//!   one
//! - [`congestion`]: which congestion control to send with
//! - [`bottleneck`]: what held an epoch back, in one word
//! - [`fixed`]: `static` and `globus`, which never move
//! - [`godwit`]: our own, the default
//! - [`published`]: the methods of the papers, one a file, over the points of a `space`
//! - [`model`]: where tuners are tried without a network
//! - `random`, `format`: randomness from a seed; numbers as reasons show them
//!
//! # Contract
//! A tuner has no clock, does no I/O and takes its randomness from a seed, so that the same value
//! runs in a live transfer, in an emulator and in a replay of yesterday's log. It is asked for
//! [`Tuner::first`] once and then told one [`Observation`] per control epoch. Whatever it is told
//! (zero, NaN, nothing), it must not panic and must stay inside its bounds.

pub mod bottleneck;
pub mod congestion;
mod fixed;
mod format;
mod godwit;
mod method;
pub mod model;
pub mod published;
pub mod random;
mod setting;
mod space;

use std::time::Duration;

pub use bottleneck::Bottleneck;
pub use fixed::Fixed;
pub use method::{Method, ParseError};
pub use setting::{Bounds, Setting};

/// What one control epoch measured under one setting. Everything but `setting`, `bytes` and
/// `seconds` may be unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Observation {
    /// The setting that was in force.
    pub setting: Setting,
    /// Payload bytes that became safe (or were acknowledged) in the epoch.
    pub bytes: u64,
    /// Length of the epoch after the settling time was left out, seconds; may be 0 or NaN when a
    /// clock misbehaves.
    pub seconds: f64,
    /// Segments sent again over segments sent, `0..=1`.
    pub loss_ratio: Option<f64>,
    /// Smoothed round-trip time over the channels.
    pub rtt: Option<Duration>,
    /// Smallest round-trip time seen.
    pub rtt_min: Option<Duration>,
    /// Standard error of the goodput over the epoch's samples, bit/s.
    pub goodput_error_bps: Option<f64>,
    /// Share of the channels' time, `0..=1`, in which the sender had data and the receiver's window
    /// had no room.
    pub receive_window_limited: Option<f64>,
    /// Share of the channels' time, `0..=1`, in which the sender's socket buffer was what ended a
    /// flight.
    pub send_buffer_limited: Option<f64>,
    /// Share of the channels' time, `0..=1`, in which the sending socket had nothing to send.
    pub sender_idle: Option<f64>,
    /// Share of the movers' time, `0..=1`, in which they could run and had no processor.
    pub cpu_wait: Option<f64>,
    /// Share of the movers' time, `0..=1`, in which they ran.
    pub cpu_busy: Option<f64>,
    /// Share of the movers' time, `0..=1`, spent reading the source.
    pub source_wait: Option<f64>,
    /// Share of the movers' time, `0..=1`, spent writing the destination.
    pub destination_wait: Option<f64>,
    /// Highest rate that the user or the server allows this transfer (`--max-rate`), bit/s.
    pub rate_cap_bps: Option<f64>,
}

impl Observation {
    /// An observation that knows goodput only.
    pub const fn new(setting: Setting, bytes: u64, seconds: f64) -> Self {
        Self {
            setting,
            bytes,
            seconds,
            loss_ratio: None,
            rtt: None,
            rtt_min: None,
            goodput_error_bps: None,
            receive_window_limited: None,
            send_buffer_limited: None,
            sender_idle: None,
            cpu_wait: None,
            cpu_busy: None,
            source_wait: None,
            destination_wait: None,
            rate_cap_bps: None,
        }
    }

    /// An epoch of `seconds` at `goodput_bps`, and nothing else known; nonsense is no bytes.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and NaN is 0"
    )]
    pub fn of_rate(setting: Setting, goodput_bps: f64, seconds: f64) -> Self {
        Self::new(
            setting,
            (goodput_bps * seconds / 8.0).round() as u64,
            seconds,
        )
    }

    /// Payload bits per second, finite; 0 where `seconds` is no number of at least a nanosecond.
    #[allow(clippy::cast_precision_loss)] // 53 bits of bytes are enough for a rate
    pub fn goodput_bps(&self) -> f64 {
        if self.seconds.is_finite() && self.seconds >= 1e-9 {
            self.bytes as f64 * 8.0 / self.seconds
        } else {
            0.0
        }
    }
}

/// The next setting, and a sentence that says why.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// What to run the next epoch with.
    pub setting: Setting,
    /// Why, in lower case and without a full stop: `4 -> 8: goodput rose by 60 %`.
    pub rationale: String,
    /// How long to measure the setting once it has settled, seconds; `None`: as long as the user's
    /// epoch.
    pub epoch_seconds: Option<f64>,
    /// The goodput that the tuner expects of the setting, bit/s. Where an epoch is a chunk of bytes
    /// (`--epoch-mode restart`), its size is this times the wanted length of the epoch.
    pub expected_bps: Option<f64>,
}

impl Decision {
    /// A decision for an epoch of the user's length, without an expectation.
    pub const fn new(setting: Setting, rationale: String) -> Self {
        Self {
            setting,
            rationale,
            epoch_seconds: None,
            expected_bps: None,
        }
    }

    /// Bytes of a chunk that lasts about `seconds`: X = expected goodput x Delta (APT §3), at
    /// least 1. `None` where nothing is expected; nonsense (zero, negative, NaN) makes the smallest
    /// chunk.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "casts of floats saturate, and NaN is 0"
    )]
    pub fn chunk_bytes(&self, seconds: f64) -> Option<u64> {
        self.expected_bps
            .map(|bps| ((bps / 8.0 * seconds) as u64).max(1))
    }
}

/// A method that picks settings.
///
/// Calls come from one thread, in the order of time. The same calls to a tuner made with the same
/// seed give the same decisions.
pub trait Tuner: Send {
    /// As `--tuner` spells it.
    fn name(&self) -> &'static str;
    /// The setting to begin with.
    fn first(&mut self) -> Decision;
    /// The round trip is known, and nothing was measured yet: another setting to begin with.
    /// `None`: the method begins with [`Tuner::first`] over any path.
    fn begin_over(&mut self, round_trip: Duration) -> Option<Decision> {
        let _ = round_trip;
        None
    }
    /// An epoch is over.
    fn decide(&mut self, observation: &Observation) -> Decision;
    /// Another congestion control is in force, so what was measured is void: goes on from
    /// `setting`. `None`: the method knows nothing of that, and decides after the next epoch.
    fn restart_at(&mut self, setting: Setting) -> Option<Decision> {
        let _ = setting;
        None
    }
}
