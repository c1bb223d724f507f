//! The data plane: movers, channel sets, transfers.
//!
//! ```text
//!   session ── ChannelSet ──► listener or peers, cached connections   ("data channel object")
//!                  │ start(TransferJob)
//!                  ▼
//!              Transfer ───► queue of blocks / sink, accounting, totals
//!                  ▲ shared by
//!       Mover 0 ── channels        Mover 1 ── channels      one OS thread and event loop each
//! ```
//! Movers pull blocks from the transfer's one queue, so a slow channel holds at most one block, and
//! its socket little more ([`shaping::unsent_limit`]); payload goes from file to socket and back
//! without passing `godwit-proto`. A channel that has done its part in one transfer continues with
//! the next of its set ([`set::queue`]), and channels take turns at sending small files
//! ([`channel::round_robin`]).
//!
//! Beside that, and never between file and socket, a sampler asks the kernel what TCP and the
//! scheduler know of the transfer's connections and movers: [`Monitor::sample`].
//!
//! # Rooms
//! Each uses those below it, and none above it.
//! - [`set`]: the listener or the peers, the queue of transfers, cached connections
//! - [`mover`]: threads and their event loops, and what they are asked to do
//! - [`channel`]: one connection, its handshake, sending and receiving
//! - [`transfer`]: what the channels of a transfer share
//! - [`context`]: what a set shares with its channels and transfers
//! - [`params`], [`job`], [`security`]: what sessions say
//! - [`sampling`], [`shaping`], [`notification_batch`]: measuring, limiting, telling

pub mod channel;
pub(crate) mod context;
#[cfg(test)]
mod hot;
pub(crate) mod job;
pub(crate) mod mover;
pub(crate) mod notification_batch;
pub(crate) mod params;
pub(crate) mod sampling;
pub(crate) mod security;
pub(crate) mod set;
pub(crate) mod shaping;
pub(crate) mod transfer;

pub use self::{
    job::{JobOpener, Sink, Source, TransferJob},
    mover::Mover,
    notification_batch::notify,
    params::{ChannelLimiter, ChannelParams, FilePart},
    sampling::{
        cpu_time::MoverClock,
        kernel_sampler::KernelSampler,
        sample::{Interval, MoverTotals, Progress, ReceivingTcp, Sample, StorageTotals, TcpTotals},
    },
    security::{ChannelSecurity, GsiSecurity},
    set::{
        ChannelSet,
        batch::TransferBatch,
        queue::{QueueTurn, QueuedWork},
    },
    shaping::{
        congestion::Congestion,
        pacing::pace_by_window,
        rate_limit::RateLimit,
        unsent_limit::{bound_unsent, round_trip},
    },
    transfer::{
        Monitor, Steered, Transfer,
        events::{TransferEvent, TransferReport},
        shared::FRESH_RANGES_MAX,
    },
};
