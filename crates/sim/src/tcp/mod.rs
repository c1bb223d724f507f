//! TCP senders and receivers that count in packets.
//!
//! | Module | Sender | Source |
//! |---|---|---|
//! | `reno` | [`Algorithm::Reno`] | RFC 5681, and ns-2's `Agent/TCP/Reno` |
//! | `newreno` | [`Algorithm::NewReno`] | RFC 6582 |
//! | `sack` | [`Algorithm::Sack`] | RFC 2018, RFC 6675 |
//! | `cubic` | [`Algorithm::Cubic`] | RFC 9438, over the recovery of `sack` |
//! | `hystart` | the end of its slow start | Ha and Rhee 2011, Linux |
//! | `window` | what they share: sequence numbers, timer, counters | |
//! | `rto` | the retransmission timeout | RFC 6298 |
//! | `receiver` | acknowledgements | RFC 1122, RFC 2018 |
//!
//! A connection opens without a handshake: the caller lets that round trip pass before.
//! Sequence numbers have 32 bits and do not wrap: a flow ends after 4 x 10^9 packets.

mod cubic;
mod hystart;
mod newreno;
mod receiver;
mod reno;
mod rto;
mod sack;
mod window;

use serde::{Deserialize, Serialize};

pub use receiver::{DelayedAck, ReceiverConfig};
pub(crate) use receiver::{Receiver, Reply};
pub use window::SenderCounters;
use window::Window;

use crate::{MS, SECOND};

/// Blocks of a selective acknowledgement: what fits beside a timestamp (RFC 2018 §3).
const SACK_BLOCKS: usize = 3;

/// A packet on a link.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Packet {
    pub(crate) flow: u32,
    /// Links of its route that it has passed.
    pub(crate) hop: u8,
    pub(crate) is_ack: bool,
    /// Headers included.
    pub(crate) bytes: u32,
    /// Of data: its number. Of an acknowledgement: the next that is expected.
    pub(crate) seq: u32,
    /// Of an acknowledgement: the number of the packet that caused it.
    pub(crate) cause: u32,
    /// When the data left its sender, ns; acknowledgements return it.
    pub(crate) sent_at: u64,
    /// Half-open ranges beyond `seq` that have arrived; unused ones are empty.
    pub(crate) sacks: [(u32, u32); SACK_BLOCKS],
}

/// A sender's reaction to losses, and how its window grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    /// Fast retransmit and fast recovery that ends with the first new acknowledgement.
    Reno,
    /// Fast recovery that stays for partial acknowledgements.
    NewReno,
    /// Recovery by selective acknowledgements, Reno's window.
    Sack,
    /// Recovery by selective acknowledgements, CUBIC's window.
    Cubic,
}

/// How a sender behaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SenderConfig {
    /// Losses and growth.
    pub algorithm: Algorithm,
    /// Payload of a packet, bytes; at least 1.
    pub payload_bytes: u32,
    /// Segments that a packet stands for, at least 1. With more of them fast paths need fewer
    /// events: windows grow by as many bytes a round trip as with single segments, but a loss takes
    /// all segments of a packet, and no window is smaller than a packet.
    pub segments: u32,
    /// Headers of a packet, bytes. ns-2 counts 0 or 40 of them.
    pub header_bytes: u32,
    /// The receiver's window, packets; at least 1.
    pub window_max: u32,
    /// First window, packets; at least 1.
    pub initial_window: u32,
    /// Shortest retransmission timeout, ns.
    pub min_rto_ns: u64,
    /// Granularity in which round trips are measured, ns; 0: exactly.
    pub tick_ns: u64,
    /// Whether the first two duplicate acknowledgements send a new packet each (RFC 3042). Senders
    /// with selective acknowledgements always do.
    pub limited_transmit: bool,
    /// Whether CUBIC's slow start ends with HyStart; else with a loss.
    pub hystart: bool,
}

impl SenderConfig {
    /// ns-2's published defaults of 2004 (`ns-default.tcl` of 2.27): packets of 1000 bytes, an
    /// initial window of 2, a clock of 10 ms, limited transmit; headers and minimum timeout as its
    /// later releases have them.
    pub const fn ns2(window_max: u32) -> Self {
        Self {
            algorithm: Algorithm::Reno,
            payload_bytes: 1000,
            segments: 1,
            header_bytes: 40,
            window_max,
            initial_window: 2,
            min_rto_ns: 200 * MS,
            tick_ns: 10 * MS,
            limited_transmit: true,
            hystart: false,
        }
    }

    /// As Linux sends over Ethernet: 1448 bytes with timestamps, an initial window of 10 packets,
    /// a timeout of at least 200 ms.
    pub const fn linux(algorithm: Algorithm, window_max: u32) -> Self {
        Self {
            algorithm,
            payload_bytes: 1448,
            segments: 1,
            header_bytes: 52,
            window_max,
            initial_window: 10,
            min_rto_ns: 200 * MS,
            tick_ns: 0,
            limited_transmit: true,
            hystart: true,
        }
    }

    /// The same with packets that stand for `segments` segments each: payload, headers and the
    /// first window follow; `window_max` stays what it is.
    #[must_use]
    pub const fn aggregated(self, segments: u32) -> Self {
        let segments = if segments == 0 { 1 } else { segments };
        Self {
            payload_bytes: self.payload_bytes.saturating_mul(segments),
            header_bytes: self.header_bytes.saturating_mul(segments),
            initial_window: self.initial_window.div_ceil(segments),
            segments,
            ..self
        }
    }

    /// Bytes of a data packet with its headers.
    pub const fn packet_bytes(&self) -> u32 {
        self.payload_bytes.saturating_add(self.header_bytes)
    }
}

/// Longest timeout, ns (RFC 6298 allows 60 s or more).
const MAX_RTO_NS: u64 = 64 * SECOND;

/// The algorithm of a sender with its state.
#[derive(Debug)]
enum Control {
    Reno(reno::Reno),
    NewReno(newreno::NewReno),
    Sack(sack::Sack),
}

/// One end of a connection: takes acknowledgements and timeouts, gives numbers of packets to send.
#[derive(Debug)]
pub(crate) struct Sender {
    pub(crate) window: Window,
    control: Control,
}

impl Sender {
    pub(crate) fn new(config: SenderConfig) -> Self {
        let control = match config.algorithm {
            Algorithm::Reno => Control::Reno(reno::Reno::default()),
            Algorithm::NewReno => Control::NewReno(newreno::NewReno::default()),
            Algorithm::Sack => Control::Sack(sack::Sack::new(None)),
            Algorithm::Cubic => {
                Control::Sack(sack::Sack::new(Some(cubic::Cubic::new(config.hystart))))
            }
        };
        Self {
            window: Window::new(config),
            control,
        }
    }

    /// An acknowledgement arrives.
    pub(crate) fn on_ack(&mut self, now: u64, ack: &Packet, out: &mut Vec<u32>) {
        self.window.measure(now, ack);
        match &mut self.control {
            Control::Reno(reno) => reno.on_ack(&mut self.window, now, ack.seq, out),
            Control::NewReno(newreno) => newreno.on_ack(&mut self.window, now, ack.seq, out),
            Control::Sack(sack) => sack.on_ack(&mut self.window, now, ack),
        }
    }

    /// The retransmission timer expires.
    pub(crate) fn on_timeout(&mut self, now: u64) {
        self.window.back_off(now);
        match &mut self.control {
            Control::Reno(reno) => reno.on_timeout(&mut self.window),
            Control::NewReno(newreno) => newreno.on_timeout(&mut self.window),
            Control::Sack(sack) => sack.on_timeout(&mut self.window),
        }
    }

    /// Sends what windows and supply allow.
    pub(crate) fn transmit(&mut self, now: u64, out: &mut Vec<u32>) {
        match &mut self.control {
            Control::Reno(reno) => self.window.send_in_order(now, reno.extra(), out),
            Control::NewReno(newreno) => self.window.send_in_order(now, newreno.extra(), out),
            Control::Sack(sack) => sack.transmit(&mut self.window, now, out),
        }
        self.window.note_limit(now);
    }
}
