//! What the channels of one transfer share: source or sink, accounting, progress, and the news of
//! its end.
//!
//! `Done` is sent when the result is known **and** the last [`TransferHandle`] is gone, so that
//! whoever hears it can close, rename or delete the file: no mover touches it any more.

mod accounting;
pub(crate) mod block_queue;
pub(crate) mod holes;
pub(crate) mod source_or_sink;

use std::{
    sync::{
        Arc, Mutex, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_proto::{
    ByteRange, RangeSet,
    command::Mode,
    error::TransferFailure,
    mode_e::{layout::StripeLayout, receiver::Receiver, sender::Sender},
};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    data::{
        ChannelParams, Progress, Sample, TransferEvent, TransferJob, TransferReport, lock,
        notification_batch,
        sampling::kernel_sampler::KernelSampler,
        set::{SetShared, batch::BatchShared},
        transfer::{block_queue::BlockQueue, source_or_sink::SourceOrSink},
    },
    host::tcp_diag::AddressPair,
};

/// Channels come and go while a transfer runs: so many times the most that may be open at a time
/// are taken from a peer before its count is held to be nonsense. A controller that changes its
/// mind each second needs a day for as many.
const CHANNEL_TURNOVER: u64 = 1 << 16;

/// Separate ranges of one receipt whose report lists all of them. Blocks that a thousand channels
/// have in flight make two thousand; a striped sender makes one for each block by which its slowest
/// node is behind, and blocks of 1 MiB so reach 256 GiB. Some 12 MB of memory.
const SAFE_RANGES_MAX: usize = 1 << 18;

/// Separate ranges that wait for the next restart marker. More are left out of the markers: a
/// client that resumes sends those again. A marker lists 1000, and REST takes 4096. Some 800 KB of
/// memory.
pub const FRESH_RANGES_MAX: usize = 1 << 14;

/// A receipt that will fail takes what has come for so long. Who sent it is gone or has given up,
/// so that its connections end by themselves; one that does not is of no use.
const DRAIN_LIMIT: Duration = Duration::from_secs(2);

/// What a channel has carried before it begins to carry a transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reuse {
    /// It was made for it.
    New,
    /// Others, and then it was free.
    Cached,
    /// The transfer before, which others may still carry: it was counted when that one was.
    Successor,
}

pub(crate) struct TransferShared {
    pub(crate) mode: Mode,
    pub(crate) params: Arc<ChannelParams>,
    sends: bool,
    source_or_sink: OnceLock<SourceOrSink>,
    set: Weak<SetShared>,
    /// Of the set.
    one_mover: bool,
    /// Addresses that a sender connects to; at least 1.
    stripes: usize,
    /// When its turn came.
    started: OnceLock<Instant>,
    /// Payload bytes moved.
    bytes: AtomicU64,
    /// Bytes of holes that were announced, or cleared.
    holes: AtomicU64,
    /// Milliseconds after `started` at which a byte last moved.
    moved_at_ms: AtomicU64,
    attached: AtomicU32,
    /// Channels that were to carry it when it began behind another, sending.
    following: AtomicU32,
    /// Channels that carry data: attached and connected.
    channels: AtomicU32,
    channels_peak: AtomicU32,
    retire_wanted: AtomicU32,
    settled: AtomicBool,
    control: Mutex<Control>,
    /// On storage: all of it, or what was not taken yet ([`ChannelParams::reports_safe`]).
    safe: Mutex<RangeSet>,
    sampler: KernelSampler,
    batch: Option<Arc<BatchShared>>,
    events: UnboundedSender<TransferEvent>,
}

struct Control {
    /// First connections that have neither come up nor failed (sending).
    first_missing: u32,
    /// Why the first connection that failed to come up did (sending).
    first_unopened: Option<TransferFailure>,
    ready_sent: bool,
    result: Option<Result<(), TransferFailure>>,
    /// It will fail with this, once what has come is taken, and at this moment at the latest.
    failing: Option<(TransferFailure, Instant)>,
    /// It will fail with this when those before it are over: they shall not lose the connections
    /// with it.
    deferred_failure: Option<TransferFailure>,
    /// Another transfer may have begun on channels that are through with this one.
    followed: bool,
    /// A channel has ended early (sending).
    retired: bool,
    done_sent: bool,
    /// Sending: one per receiving address.
    senders: Vec<Sender>,
    /// A channel keeps its EOD back until a connection has come up or failed.
    holding: bool,
    receiver: Receiver,
    /// Channels whose part is done: EOD written (sending), payload up to the EOD written
    /// (receiving).
    ended: u64,
}

impl TransferShared {
    pub(crate) fn new(
        sends: bool,
        mode: Mode,
        stripes: usize,
        params: Arc<ChannelParams>,
        set: &Arc<SetShared>,
        events: UnboundedSender<TransferEvent>,
    ) -> Self {
        let sampler = KernelSampler::new(sends);
        let control = Control {
            first_missing: 0,
            first_unopened: None,
            ready_sent: false,
            result: None,
            failing: None,
            deferred_failure: None,
            followed: false,
            retired: false,
            done_sent: false,
            senders: vec![Sender::new(); stripes.max(1)],
            holding: false,
            receiver: Receiver::new(u64::from(params.channels_max) * CHANNEL_TURNOVER),
            ended: 0,
        };
        Self {
            mode,
            params,
            sends,
            source_or_sink: OnceLock::new(),
            set: Arc::downgrade(set),
            one_mover: set.movers.len() == 1,
            stripes: stripes.max(1),
            started: OnceLock::new(),
            bytes: AtomicU64::new(0),
            holes: AtomicU64::new(0),
            moved_at_ms: AtomicU64::new(0),
            attached: AtomicU32::new(0),
            following: AtomicU32::new(0),
            channels: AtomicU32::new(0),
            channels_peak: AtomicU32::new(0),
            retire_wanted: AtomicU32::new(0),
            settled: AtomicBool::new(false),
            control: Mutex::new(control),
            safe: Mutex::default(),
            sampler,
            batch: set.batch(),
            events,
        }
    }

    pub(crate) fn is_send(&self) -> bool {
        self.sends
    }

    /// Its turn has come: limits count from now.
    pub(crate) fn start(&self) {
        self.started.get_or_init(Instant::now);
    }

    /// Source or sink is there. Once, before the first channel.
    pub(crate) fn open(&self, job: TransferJob, layout: Option<StripeLayout>) {
        let block_bytes = self.params.block_bytes;
        // A stream has no place to say it.
        let holes = self.params.holes && self.mode == Mode::ExtendedBlock;
        self.source_or_sink
            .get_or_init(|| SourceOrSink::new(job, self.stripes, layout, block_bytes, holes));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.source_or_sink.get().is_some()
    }

    pub(crate) fn source_or_sink(&self) -> &SourceOrSink {
        static UNOPENED: SourceOrSink = SourceOrSink::Unopened;
        self.source_or_sink.get().unwrap_or(&UNOPENED)
    }

    fn elapsed(&self) -> Duration {
        self.started.get().map_or(Duration::ZERO, Instant::elapsed)
    }

    pub(crate) fn is_finished(&self) -> bool {
        lock(&self.control).result.is_some()
    }

    /// First channels are up.
    pub(crate) fn is_ready(&self) -> bool {
        lock(&self.control).ready_sent
    }

    /// [`Self::is_finished`] without a lock, for hot loops; may lag by a moment.
    pub(crate) fn is_finished_hint(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    // ---- progress -------------------------------------------------------------------------------

    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if let Some(batch) = &self.batch {
            batch.moved(bytes);
        }
        self.touch();
    }

    /// So many bytes are a hole.
    pub(crate) fn hole_passed(&self, bytes: u64) {
        // Whoever announces more than there can be is refused by the bounds of files, but not in
        // sum.
        let add = |sum: u64| Some(sum.saturating_add(bytes));
        let _ = (self.holes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        self.touch();
    }

    /// Something happened on a connection: the stall clock starts anew.
    pub(crate) fn touch(&self) {
        let ms = u64::try_from(self.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.moved_at_ms.store(ms, Ordering::Relaxed);
    }

    /// A part of the file is on storage.
    ///
    /// # Errors
    /// The peer has sent more separate parts than a complete report may list.
    pub(crate) fn written(&self, range: ByteRange) -> Result<(), TransferFailure> {
        let most = match self.params.reports_safe {
            true => SAFE_RANGES_MAX,
            false => FRESH_RANGES_MAX,
        };
        let fits = lock(&self.safe).insert_within(range, most);
        match fits || !self.params.reports_safe {
            true => Ok(()),
            false => Err(TransferFailure::Protocol(format!(
                "the peer sends more than {most} separate ranges: {range} touches none of them"
            ))),
        }
    }

    pub(crate) fn take_fresh(&self) -> RangeSet {
        match self.params.reports_safe {
            true => RangeSet::new(),
            false => std::mem::take(&mut lock(&self.safe)),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        Progress {
            bytes: self.done(),
            channels: self.channels.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn channels_peak(&self) -> u32 {
        self.channels_peak.load(Ordering::Relaxed)
    }

    /// Channels that are or will be its own, and whoever else holds it.
    pub(crate) fn attached(&self) -> usize {
        self.attached.load(Ordering::SeqCst) as usize
    }

    fn done(&self) -> u64 {
        let holes = self.holes.load(Ordering::Relaxed);
        self.bytes.load(Ordering::Relaxed).saturating_add(holes)
    }

    pub(crate) fn sample(&self) -> Sample {
        self.look();
        let mut sample = Sample::default();
        self.sampler.tell(&mut sample);
        // Last, so that no more can be acknowledged than was moved.
        sample.bytes = self.bytes.load(Ordering::Relaxed);
        sample.channels = self.channels.load(Ordering::Relaxed);
        sample
    }

    /// Asks the kernel for its counters, unless that was done lately.
    pub(crate) fn look(&self) {
        if let Some(set) = self.set.upgrade() {
            let bytes = self.bytes.load(Ordering::Relaxed);
            self.sampler.look(bytes, &set.movers);
        }
    }

    /// A limit that has passed, if one has.
    pub(crate) fn overdue(&self, waiting_at: &str) -> Option<TransferFailure> {
        let now = self.elapsed();
        let (limit, ready) = {
            let control = lock(&self.control);
            if control.result.is_some() {
                return None;
            }
            if let Some((why, until)) = &control.failing
                && Instant::now() >= *until
            {
                return Some(why.clone());
            }
            (self.params.connect_limit, control.ready_sent)
        };
        if !ready {
            return (now > limit).then(|| {
                TransferFailure::NoConnection(format!(
                    "none came up within {} s {waiting_at}",
                    limit.as_secs_f64()
                ))
            });
        }
        let idle = now.saturating_sub(Duration::from_millis(
            self.moved_at_ms.load(Ordering::Relaxed),
        ));
        (idle > self.params.stall_limit).then(|| {
            TransferFailure::ConnectionLost(format!(
                "no byte moved for {} s after {} bytes",
                self.params.stall_limit.as_secs_f64(),
                self.bytes.load(Ordering::Relaxed)
            ))
        })
    }

    // ---- beginning ------------------------------------------------------------------------------

    /// Counts `count` first connections of a sender; `Ready` waits for them.
    pub(crate) fn expect_first(&self, count: u32) {
        lock(&self.control).first_missing += count;
    }

    /// A channel carries the transfer now. Sends `Ready` when it was the last that was missing.
    /// `ends`: where known.
    pub(crate) fn channel_up(&self, stripe: usize, addresses: Option<AddressPair>, reuse: Reuse) {
        let reused = reuse != Reuse::New;
        if let Some(addresses) = addresses {
            self.sampler.joined(addresses, !reused);
        }
        let now = self.channels.fetch_add(1, Ordering::Relaxed) + 1;
        self.channels_peak.fetch_max(now, Ordering::Relaxed);
        self.touch();
        let mut control = lock(&self.control);
        if !reused {
            control.first_missing = control.first_missing.saturating_sub(1);
        }
        if let Some(sender) = control.senders.get_mut(stripe)
            && self.is_send()
            && reuse != Reuse::Successor
        {
            sender.channel_opens();
        }
        self.ready_if_all_up(&mut control, reused);
        self.reconsider(control);
    }

    fn ready_if_all_up(&self, control: &mut Control, reused: bool) {
        if control.first_missing == 0 && !control.ready_sent && control.result.is_none() {
            control.ready_sent = true;
            self.tell(TransferEvent::Ready { reused });
        }
    }

    /// Channels of a stripe that carry data or are about to.
    pub(crate) fn channels_expected(&self) -> u32 {
        let stripes = u32::try_from(self.stripes).unwrap_or(u32::MAX);
        let attached = self.attached.load(Ordering::Relaxed);
        (attached.max(self.following.load(Ordering::Relaxed))).div_ceil(stripes)
    }

    pub(crate) fn channel_down(&self, addresses: Option<AddressPair>) {
        if let Some(addresses) = addresses {
            self.sampler.left(addresses);
        }
        self.channels.fetch_sub(1, Ordering::Relaxed);
    }

    // ---- end ------------------------------------------------------------------------------------

    /// Gives out no further block, where the peer can tell that from the end of the file.
    pub(crate) fn cut(&self) {
        if self.mode == Mode::ExtendedBlock
            && let SourceOrSink::SendFile { queues, .. } = self.source_or_sink()
        {
            queues.iter().for_each(BlockQueue::cut);
        }
    }

    /// The queue of a send that may be given up in part.
    fn divisible(&self) -> Option<&BlockQueue> {
        match self.source_or_sink() {
            SourceOrSink::SendFile { queues, .. } if self.mode == Mode::ExtendedBlock => {
                match &queues[..] {
                    [queue] => Some(queue),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    pub(crate) fn unstarted_bytes(&self) -> u64 {
        self.divisible().map_or(0, BlockQueue::unstarted_bytes)
    }

    pub(crate) fn split_off(&self, least: u64) -> Option<ByteRange> {
        self.divisible()?.split_off(least)
    }

    fn unsent(&self) -> Vec<ByteRange> {
        let mut unsent = RangeSet::new();
        if let SourceOrSink::SendFile { queues, .. } = self.source_or_sink() {
            for queue in queues {
                queue.drain_cut(|range| unsent.insert(range));
            }
        }
        unsent.iter().collect()
    }

    /// All is moved. Call with an attachment in hand.
    pub(crate) fn succeed(&self) {
        if !self.fail_if_draining()
            && self.settle(Ok(()))
            && let Some(set) = self.set.upgrade()
        {
            set.transfer_over(self, self.attached.load(Ordering::SeqCst) > 1);
        }
    }

    /// Ends the transfer; the first reason stays. All connections of the set are closed, unless
    /// [`Self::closes_late`]. Where others are before it on them, nothing more is moved, and it
    /// ends when they are over.
    pub(crate) fn fail(&self, why: TransferFailure) {
        let Some(set) = self.set.upgrade() else {
            return self.fail_now(why);
        };
        if let Some(why) = set.defer_failure(self, why) {
            self.fail_now(why);
        }
    }

    /// Keeps a failure back, unless there is one, or a result, already.
    pub(crate) fn set_deferred_failure(&self, why: TransferFailure) {
        let mut control = lock(&self.control);
        if control.result.is_none() {
            control.deferred_failure.get_or_insert(why);
            self.settled.store(true, Ordering::Relaxed);
        }
    }

    /// Nothing is before it any more on its channels. Limits count from now.
    pub(crate) fn comes_first(&self) {
        self.touch();
        let deferred_failure = lock(&self.control).deferred_failure.take();
        if let Some(why) = deferred_failure {
            self.fail_now(why);
        }
    }

    fn fail_now(&self, why: TransferFailure) {
        let late = self.closes_late(&why);
        if !self.settle(Err(why)) {
            return;
        }
        if let Some(set) = self.set.upgrade() {
            match late {
                true => set.halt(),
                false => set.close_all(),
            }
        }
        self.announce_if_over();
    }

    /// Whether connections outlast this failure: see [`ChannelParams::closes_late`].
    pub(crate) fn closes_late(&self, why: &TransferFailure) -> bool {
        self.params.closes_late && !self.sends && matches!(why, TransferFailure::Storage(_))
    }

    /// Fails it once its connections have ended, or at once where nothing they hold is worth
    /// taking: bytes that have come need not be sent again. Call with an attachment in hand.
    pub(crate) fn fail_once_drained(&self, why: TransferFailure) {
        if !matches!(self.source_or_sink(), SourceOrSink::ReceiveFile { .. }) {
            return self.fail(why);
        }
        let until = Instant::now() + DRAIN_LIMIT;
        lock(&self.control).failing.get_or_insert((why, until));
    }

    /// Nothing more will come. Whether that was to be its end.
    fn fail_if_draining(&self) -> bool {
        let failing = lock(&self.control).failing.take();
        let is_doomed = failing.is_some();
        if let Some((why, _)) = failing {
            self.fail(why);
        }
        is_doomed
    }

    /// Fails a transfer that has no result yet; its set is broken already.
    pub(crate) fn ends_with_set(&self, why: TransferFailure) {
        self.settle(Err(why));
        self.announce_if_over();
    }

    fn settle(&self, result: Result<(), TransferFailure>) -> bool {
        let mut control = lock(&self.control);
        let first =
            control.result.is_none() && (result.is_err() || control.deferred_failure.is_none());
        if first {
            control.result = Some(result);
            self.settled.store(true, Ordering::Relaxed);
        }
        first
    }

    fn announce_if_over(&self) {
        let result = {
            let mut control = lock(&self.control);
            if control.done_sent || self.attached.load(Ordering::SeqCst) != 0 {
                return;
            }
            let Some(result) = control.result.clone() else {
                return;
            };
            control.done_sent = true;
            result
        };
        let set = self.set.upgrade();
        let bytes = self.bytes.load(Ordering::Relaxed);
        let elapsed = self.elapsed();
        let movers = set.as_ref().map_or(&[][..], |s| &s.movers);
        self.sampler.close(bytes, movers, elapsed);
        let cached = set.as_ref().map_or(0, |s| s.kept_count());
        let report = TransferReport {
            bytes: self.done(),
            safe: match self.params.reports_safe {
                true => std::mem::take(&mut lock(&self.safe)),
                // The last news are taken behind this report.
                false => RangeSet::new(),
            },
            cached: if result.is_ok() { cached } else { 0 },
            result,
            channels_peak: self.channels_peak(),
            elapsed,
            unsent: self.unsent(),
        };
        // First: whoever hears of the end may start the next one at once.
        if let Some(set) = set {
            set.transfer_leaves(self);
        }
        self.tell(TransferEvent::Done(report));
    }

    fn tell(&self, event: TransferEvent) {
        let events = self.events.clone();
        let tell = move || {
            // The listener may be gone: then nobody wants to know.
            let _ = events.send(event);
        };
        // Movers do not wait for each other's news: the end must not be told before the beginning.
        match self.one_mover {
            true => notification_batch::notify(tell),
            false => tell(),
        }
    }
}

/// A channel's share in a transfer; the last one to go announces the end.
pub(crate) struct TransferHandle(Arc<TransferShared>);

impl TransferHandle {
    pub(crate) fn new(transfer: &Arc<TransferShared>) -> Self {
        transfer.attached.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(transfer))
    }
}

impl std::ops::Deref for TransferHandle {
    type Target = TransferShared;
    fn deref(&self) -> &TransferShared {
        &self.0
    }
}

impl Drop for TransferHandle {
    fn drop(&mut self) {
        if self.0.attached.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.fail_if_draining();
            self.0.announce_if_over();
        }
    }
}
