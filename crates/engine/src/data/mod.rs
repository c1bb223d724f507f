//! The data plane: movers, channel sets, transfers.
//!
//! ```text
//!   session ── ChannelSet ──► listener or peers, cached connections       (the FTP "data channel object")
//!                  │ start(Job)
//!                  ▼
//!              Transfer ───► work queue of byte ranges / sink, accounting, progress
//!                  ▲ shared by
//!       Mover 0 ── channels        Mover 1 ── channels      one OS thread and event loop each
//! ```
//! Movers pull blocks from the transfer's one queue, so a slow channel holds at most one block, and
//! its socket little more (`backlog`); payload goes from file to socket and back without passing
//! `godwit-proto`. A channel that is through with one transfer goes on with the next of its set
//! (`set/line`), and small files are sent by all in turns (`share`).
//!
//! Beside that, and never on the way of the bytes, a watch asks the kernel what TCP and the
//! scheduler know of the transfer's connections and movers: [`Monitor::sample`].

pub mod channel;
pub(crate) mod mover;
mod notification_batch;
pub(crate) mod sampling;
pub(crate) mod set;
pub(crate) mod shaping;
pub(crate) mod transfer;

use std::{
    fmt, io,
    net::IpAddr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use godwit_proto::{
    ByteRange, RangeSet,
    error::{StorageFailure, TransferFailure},
};
use tokio::sync::mpsc;

pub use crate::data::{
    channel::security::{ChannelSecurity, GsiSecurity},
    mover::Mover,
    notification_batch::notify,
    sampling::sample::{Interval, MoverTotals, Sample, StorageTotals, TcpTotals},
    set::{ChannelSet, QueueTurn, QueuedWork, batch::TransferBatch},
    shaping::{congestion::Congestion, rate_limit::RateLimit},
    transfer::FRESH_RANGES_MAX,
};
use crate::{
    data::{
        set::SetShared,
        transfer::{TransferHandle, TransferShared},
    },
    storage::FileRef,
};

/// The engine's share of a setting.
#[derive(Clone, Debug)]
pub struct ChannelParams {
    /// Data channels opened per peer address at the start of a transfer that we send; at least 1.
    pub parallelism: u32,
    /// Most channels at a time; further connections are refused. Worst-case memory of a sender
    /// whose storage needs copies is `channels_max` x 256 KiB; with protected channels (see
    /// [`ChannelSecurity`]) `channels_max` x 448 KiB. Of files that pass the page cache by 768 KiB
    /// more.
    pub channels_max: u32,
    /// Longest MODE E block, bytes; at least 1. A sender makes them shorter, down to 64 KiB, for a
    /// small file and near the end, so that each channel finds work.
    pub block_bytes: u64,
    /// The peer knows headers of holes: a sender announces those of its file, in MODE E, and does
    /// not send them. They are taken in any case.
    pub holes: bool,
    /// SO_SNDBUF and SO_RCVBUF; `None` leaves them to the kernel's autotuning.
    pub socket_buffer_bytes: Option<u64>,
    /// TCP congestion control of sending sockets.
    pub congestion: Arc<Congestion>,
    /// How fast the channels may go in all, together with those of other sets that share it.
    pub rate: Arc<RateLimit>,
    /// Who must be at the other ends, and what protects the bytes (DCAU, PROT); `None`: nothing
    /// does.
    pub security: Option<ChannelSecurity>,
    /// The only host that connections are taken from, beside what `security` asks; `None`: any.
    pub only_from: Option<IpAddr>,
    /// What the channels share with those of other sets, beyond `channels_max`; `None`: nothing.
    pub channel_limiter: Option<Arc<dyn ChannelLimiter>>,
    /// Time for a connection to come up (either way) before the transfer fails. One that is added
    /// to a running transfer has 5 s at most, and its failure is noted only.
    pub connect_limit: Duration,
    /// Time without a byte on any channel before the transfer fails.
    pub stall_limit: Duration,
    /// Where a receipt fails for its file, the connections are not closed at once but with the set,
    /// and nothing is read from them until then: time to tell the peer why, before it notices by
    /// itself.
    pub closes_late: bool,
    /// [`TransferReport::safe`] lists all that a receipt has put on storage, and a receipt in too
    /// many pieces fails. Else [`Transfer::take_fresh`] has the news, and leaves out what is too
    /// much.
    pub reports_safe: bool,
}

impl ChannelParams {
    /// A connection from this address is taken.
    fn admits(&self, peer: IpAddr) -> bool {
        let host = |address: IpAddr| address.to_canonical();
        self.only_from.is_none_or(|only| host(only) == host(peer))
            && self
                .security
                .as_ref()
                .is_none_or(|security| security.admits(peer))
    }
}

impl Default for ChannelParams {
    fn default() -> Self {
        Self {
            parallelism: 1,
            channels_max: 2048,
            block_bytes: 1 << 20,
            holes: false,
            socket_buffer_bytes: None,
            congestion: Arc::default(),
            rate: Arc::default(),
            security: None,
            only_from: None,
            channel_limiter: None,
            connect_limit: Duration::from_secs(60),
            stall_limit: Duration::from_secs(60),
            closes_late: false,
            reports_safe: true,
        }
    }
}

/// How many data channels there may be in many sets together. Asked by movers and from other
/// threads: it never waits.
pub trait ChannelLimiter: fmt::Debug + Send + Sync {
    /// Counts one more.
    ///
    /// # Errors
    /// Why there may be none, for the peer.
    fn acquire(&self) -> Result<(), String>;

    /// One that was counted is gone.
    fn release(&self);
}

/// What a transfer does.
pub enum TransferJob {
    /// To the peer.
    Send(Source),
    /// From the peer.
    Receive(Sink),
}

/// Opens what a queued transfer works on, when its turn has come.
pub type JobOpener = Box<dyn FnOnce() -> Result<TransferJob, StorageFailure> + Send>;

/// Where sent bytes come from.
pub enum Source {
    /// `ranges` (relative to `base`, in order, disjoint) of a file; wire offsets are relative to
    /// `base` too.
    File {
        /// The file.
        file: FileRef,
        /// Byte of the file that has wire offset 0.
        base: u64,
        /// What to send.
        ranges: Vec<ByteRange>,
    },
    /// Bytes in order until the reader ends. The reader runs on a mover thread and may block it.
    Stream(Box<dyn io::Read + Send>),
}

/// Where received bytes go.
pub enum Sink {
    /// A file.
    File {
        /// The file.
        file: FileRef,
        /// Byte of the file that has wire offset 0.
        base: u64,
        /// MODE S: wire offset of the first byte received (REST).
        stream_start: u64,
        /// Bytes at or past this wire offset are an error (`None`: no bound). Protects a region
        /// from a peer that sends too much.
        limit: Option<u64>,
    },
    /// In order; a block that is out of order fails the transfer. The writer runs on a mover thread
    /// and may block it.
    Stream(Box<dyn io::Write + Send>),
    /// MODE S: the first `bytes` that come, after which the connection is closed, whatever else the
    /// peer has. So servers without ERET are asked for a part.
    Prefix {
        /// Where they go.
        sink: Box<Sink>,
        /// How many are wanted.
        bytes: u64,
    },
}

/// What a transfer says of itself, in this order.
#[derive(Debug)]
pub enum TransferEvent {
    /// First data connections are up (all of the sender's first ones; the receiver's first), or
    /// cached ones are in use.
    Ready {
        /// Cached.
        reused: bool,
    },
    /// Over. No mover touches source or sink any more.
    Done(TransferReport),
}

/// How a transfer went.
#[derive(Debug, Clone)]
pub struct TransferReport {
    /// Bytes of the source that are done: moved (for receipts, written), or holes.
    pub bytes: u64,
    /// Receipts: what is on storage, relative to `base`. Empty when sending, and without
    /// [`ChannelParams::reports_safe`].
    pub safe: RangeSet,
    /// How it ended.
    pub result: Result<(), TransferFailure>,
    /// Connections that were kept; 0 after a failure and in MODE S.
    pub cached: usize,
    /// Most channels at a time.
    pub channels_peak: u32,
    /// Time from start to done.
    pub elapsed: Duration,
    /// What a cut left unsent, relative to the base; empty without a cut.
    pub unsent: Vec<ByteRange>,
}

/// Numbers of a running transfer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Bytes of the source that are done so far: moved, or holes.
    pub bytes: u64,
    /// Channels that carry it now.
    pub channels: u32,
}

/// A running transfer. Dropping the handle aborts it.
pub struct Transfer {
    monitor: Monitor,
    events: mpsc::UnboundedReceiver<TransferEvent>,
    done: bool,
}

impl Transfer {
    fn new(
        transfer: Arc<TransferShared>,
        set: Arc<SetShared>,
        events: mpsc::UnboundedReceiver<TransferEvent>,
    ) -> Self {
        Self {
            monitor: Monitor { transfer, set },
            events,
            done: false,
        }
    }

    /// The next event; after `Done` never returns again. Cancel-safe.
    pub async fn next_event(&mut self) -> TransferEvent {
        if !self.done
            && let Some(event) = self.events.recv().await
        {
            self.done = matches!(event, TransferEvent::Done(_));
            return event;
        }
        std::future::pending().await
    }

    /// Ranges that became safe since the last call: of receipts without
    /// [`ChannelParams::reports_safe`].
    pub fn take_fresh(&self) -> RangeSet {
        self.monitor.transfer.take_fresh()
    }

    /// A clonable view for progress displays and controllers.
    pub fn monitor(&self) -> Monitor {
        self.monitor.clone()
    }

    /// Numbers of now.
    pub fn progress(&self) -> Progress {
        self.monitor.progress()
    }

    /// As [`Self::abort`], but a receipt into a file takes what has come first, for two seconds at
    /// most: the peer is gone or has given up, and what is written need not be sent again.
    pub fn drain(&self) {
        let held = TransferHandle::new(&self.monitor.transfer);
        held.fail_once_drained(TransferFailure::Aborted);
    }

    /// Ends it with `Aborted`; `Done` follows.
    pub fn abort(&self) {
        self.monitor.transfer.fail(TransferFailure::Aborted);
    }
}

impl Drop for Transfer {
    fn drop(&mut self) {
        if !self.done {
            self.abort();
        }
    }
}

/// What [`Monitor::steer`] set going.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steered {
    /// Channels that come up now.
    pub opened: u32,
    /// Channels that end after their present block.
    pub retired: u32,
}

/// A view of a transfer; does not keep it running.
#[derive(Clone)]
pub struct Monitor {
    transfer: Arc<TransferShared>,
    set: Arc<SetShared>,
}

impl Monitor {
    /// Numbers of now; the last ones after the end.
    pub fn progress(&self) -> Progress {
        self.transfer.progress()
    }

    /// Most channels that have carried it at a time, so far.
    pub fn channels_peak(&self) -> u32 {
        self.transfer.channels_peak()
    }

    /// Totals of now; the last ones after the end.
    pub fn sample(&self) -> Sample {
        self.transfer.sample()
    }

    /// Ends a send early, in good order: no further block is given out, each channel ends after its
    /// present one, and the report tells what is `unsent`. May come at any time, again, and too
    /// late. Does nothing to receipts, to streams (what they hold could not be asked for again) and
    /// in MODE S, where the peer would take the end for the file's.
    pub fn cut(&self) {
        self.transfer.cut();
    }

    /// Bytes that [`Self::split_off`] may halve.
    pub fn unstarted_bytes(&self) -> u64 {
        self.transfer.unstarted_bytes()
    }

    /// Takes the second half of what a send has not begun, so that another transfer sends it: at
    /// least `least` bytes, relative to the base. This transfer ends before them, and its report's
    /// `bytes` are fewer by them. `None` where less is left, before the first block, after a cut,
    /// for streams, stripes and MODE S.
    pub fn split_off(&self, least: u64) -> Option<ByteRange> {
        self.transfer.split_off(least)
    }

    /// Opens or retires channels while data flows until there are `channels`, those that come up
    /// counted and those that shall end not. Bounds and conditions are those of
    /// [`Self::add_channels`] and [`Self::retire_channels`].
    pub fn steer(&self, channels: u32) -> Steered {
        let (missing, spare) = self.transfer.channel_difference(channels);
        Steered {
            opened: self.add_channels(missing),
            retired: self.retire_channels(spare),
        }
    }

    /// Opens `count` further channels while data flows (MODE E, sending, after the peer's 1xx).
    /// Those that would pass `channels_max` or come after the EOF are not opened; returns how many
    /// are.
    pub fn add_channels(&self, count: u32) -> u32 {
        self.set.add_channels(&self.transfer, count)
    }

    /// Lets up to `count` channels end after their present block, but never the last. Returns how
    /// many will.
    pub fn retire_channels(&self, count: u32) -> u32 {
        self.transfer.want_retired(count)
    }
}

/// A mutex of ours is poisoned only by a panic of ours; the data behind it is still consistent,
/// since every critical section leaves it so.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
