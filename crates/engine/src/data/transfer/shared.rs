//! What the channels of one transfer share: source or sink, accounting, progress, and its end.
//!
//! `Done` is sent when the result is known **and** the last [`TransferHandle`] is gone, so that the
//! session can then close, rename or delete the file: no mover touches it any more.

use std::{
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_proto::{
    ByteRange, RangeSet,
    command::Mode,
    error::TransferFailure,
    mode_e::{
        BlockHeader,
        layout::StripeLayout,
        receiver::{ChannelEnd, ChannelPosition, ReceiveError, Step},
        sender::{AfterEod, Ending},
    },
};
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::mpsc::UnboundedSender;

use crate::{
    data::{
        context::SetContext,
        job::{Source, TransferJob},
        notification_batch,
        params::{ChannelParams, FilePart},
        sampling::{
            batch::BatchShared,
            kernel_sampler::KernelSampler,
            sample::{Progress, Sample},
        },
        transfer::{
            accounting::Accounting,
            block_queue::BlockQueue,
            events::{TransferEvent, TransferReport},
            source_or_sink::SourceOrSink,
            totals::Totals,
        },
    },
    host::tcp_diag::AddressPair,
};

/// Separate ranges of one receipt whose report lists all of them. Blocks that a thousand channels
/// have in flight make two thousand; a striped sender makes one for each block by which its slowest
/// node is behind, and blocks of 1 MiB so reach 256 GiB. Some 12 MB of memory.
const SAFE_RANGES_MAX: usize = 1 << 18;

/// Separate ranges that wait for the next restart marker. More are left out of the markers: a
/// client that resumes sends those again. A marker lists 1000, and REST takes 4096. Some 800 KB of
/// memory.
pub const FRESH_RANGES_MAX: usize = 1 << 14;

/// Time in which a receipt that will fail takes the bytes that have arrived. The sender is gone or
/// has given up, so that its connections end by themselves; one that does not end is of no use.
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

/// What a transfer asks of the set that it runs on. Its methods take the lock of the set: a
/// transfer calls them without its own.
pub(crate) trait SetEvents: Send + Sync {
    /// The transfer succeeded. `others`: channels are still attached to it and must be released.
    fn transfer_over(&self, transfer: &TransferShared, others: bool);

    /// No channel carries the transfer any more, and it has a result.
    fn transfer_leaves(&self, transfer: &TransferShared);

    /// Takes a failure that must wait until the transfers before this one on its channels are over.
    /// Gives back one that must not wait: a session that aborts wants the connections to end.
    fn defer_failure(
        &self,
        transfer: &TransferShared,
        why: TransferFailure,
    ) -> Option<TransferFailure>;

    /// Channels that keep their EOD back ask again.
    fn reconsider(&self);

    /// Closes every connection; nothing can start any more.
    fn close_all(&self);

    /// Nothing can start any more, and nothing is read; connections stay open until the set is
    /// dropped.
    fn halt(&self);

    /// Connections that live on after a transfer that no channel carries any more.
    fn kept_count(&self) -> usize;

    /// Opens up to `count` further channels in the running transfer; how many.
    fn add_channels(self: Arc<Self>, transfer: &Arc<TransferShared>, count: u32) -> u32;
}

pub(crate) struct TransferShared {
    pub(crate) mode: Mode,
    sends: bool,
    source_or_sink: OnceLock<SourceOrSink>,
    context: Arc<SetContext>,
    set: Weak<dyn SetEvents>,
    /// Addresses that a sender connects to; at least 1.
    stripes: usize,
    totals: Totals,
    attached: AtomicU32,
    /// Channels that were to carry it when it began behind another, sending.
    following: AtomicU32,
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
    accounting: Accounting,
    ready_sent: bool,
    result: Option<Result<(), TransferFailure>>,
    /// It will fail with this, once what has come is taken, and at this moment at the latest.
    failing: Option<(TransferFailure, Instant)>,
    /// It will fail with this when the transfers before it are over, which shall not lose the
    /// connections with it.
    deferred_failure: Option<TransferFailure>,
    done_sent: bool,
}

impl TransferShared {
    pub(crate) fn new(
        sends: bool,
        mode: Mode,
        stripes: usize,
        context: &Arc<SetContext>,
        set: Weak<dyn SetEvents>,
        events: UnboundedSender<TransferEvent>,
    ) -> Self {
        let stripes = stripes.max(1);
        let control = Control {
            accounting: Accounting::new(stripes, context.params.channels_max),
            ready_sent: false,
            result: None,
            failing: None,
            deferred_failure: None,
            done_sent: false,
        };
        Self {
            mode,
            sends,
            source_or_sink: OnceLock::new(),
            context: Arc::clone(context),
            set,
            stripes,
            totals: Totals::default(),
            attached: AtomicU32::new(0),
            following: AtomicU32::new(0),
            retire_wanted: AtomicU32::new(0),
            settled: AtomicBool::new(false),
            control: Mutex::new(control),
            safe: Mutex::default(),
            sampler: KernelSampler::new(sends),
            batch: context.carrying.batch(),
            events,
        }
    }

    pub(crate) fn params(&self) -> &ChannelParams {
        &self.context.params
    }

    pub(crate) fn is_send(&self) -> bool {
        self.sends
    }

    /// Its turn has come: limits count from now.
    pub(crate) fn start(&self) {
        self.totals.start();
    }

    /// Source or sink is open. Called once, before the first channel.
    pub(crate) fn open(&self, job: TransferJob, layout: Option<StripeLayout>) {
        let block_bytes = self.params().block_bytes;
        // MODE S has no header for a hole.
        let holes = self.params().holes && self.mode == Mode::ExtendedBlock;
        let part = match self.mode {
            Mode::ExtendedBlock => self.params().part,
            Mode::Stream => FilePart::Whole,
        };
        if part == FilePart::Leased && matches!(job, TransferJob::Send(Source::File { .. })) {
            self.control.lock().accounting.withhold();
        }
        self.source_or_sink
            .get_or_init(|| SourceOrSink::new(job, self.stripes, layout, part, block_bytes, holes));
    }

    pub(crate) fn is_open(&self) -> bool {
        self.source_or_sink.get().is_some()
    }

    pub(crate) fn source_or_sink(&self) -> &SourceOrSink {
        static UNOPENED: SourceOrSink = SourceOrSink::Unopened;
        self.source_or_sink.get().unwrap_or(&UNOPENED)
    }

    pub(crate) fn is_finished(&self) -> bool {
        self.control.lock().result.is_some()
    }

    /// First channels are up.
    pub(crate) fn is_ready(&self) -> bool {
        self.control.lock().ready_sent
    }

    /// [`Self::is_finished`] without a for hot loops; may lag by a moment.
    pub(crate) fn is_finished_hint(&self) -> bool {
        self.settled.load(Ordering::Relaxed)
    }

    // ---- progress -------------------------------------------------------------------------------

    pub(crate) fn moved(&self, bytes: u64) {
        if let Some(batch) = &self.batch {
            batch.moved(bytes);
        }
        self.totals.moved(bytes);
    }

    /// `bytes` more are a hole.
    pub(crate) fn hole_passed(&self, bytes: u64) {
        self.totals.hole_passed(bytes);
    }

    /// Something happened on a connection: the stall clock starts again.
    pub(crate) fn touch(&self) {
        self.totals.touch();
    }

    /// A part of the file is on storage.
    ///
    /// # Errors
    /// The peer has sent more separate parts than a complete report may list.
    pub(crate) fn record_written(&self, range: ByteRange) -> Result<(), TransferFailure> {
        let most = match self.params().reports_safe {
            true => SAFE_RANGES_MAX,
            false => FRESH_RANGES_MAX,
        };
        let fits = self.safe.lock().insert_within(range, most);
        match fits || !self.params().reports_safe {
            true => Ok(()),
            false => Err(TransferFailure::Protocol(format!(
                "the peer sends more than {most} separate ranges: {range} touches none of them"
            ))),
        }
    }

    pub(crate) fn take_fresh(&self) -> RangeSet {
        match self.params().reports_safe {
            true => RangeSet::new(),
            false => std::mem::take(&mut self.safe.lock()),
        }
    }

    pub(crate) fn progress(&self) -> Progress {
        self.totals.progress()
    }

    pub(crate) fn channels_peak(&self) -> u32 {
        self.totals.channels_peak()
    }

    /// Handles of it: those of channels, also of such that are being made, and others.
    pub(crate) fn attached(&self) -> usize {
        self.attached.load(Ordering::SeqCst) as usize
    }

    pub(crate) fn sample(&self) -> Sample {
        self.look();
        let mut sample = Sample::default();
        self.sampler.fill(&mut sample);
        // Last, so that no more can be acknowledged than was moved.
        sample.bytes = self.totals.bytes();
        sample.channels = self.totals.channels();
        sample
    }

    /// Asks the kernel for its counters, unless that was done lately.
    pub(crate) fn look(&self) {
        self.sampler.look(self.totals.bytes(), &self.context.clocks);
    }

    /// A limit that has passed, if one has.
    pub(crate) fn overdue(&self, waiting_at: &str) -> Option<TransferFailure> {
        let now = self.totals.elapsed();
        let (limit, ready) = {
            let control = self.control.lock();
            if control.result.is_some() {
                return None;
            }
            if let Some((why, until)) = &control.failing
                && Instant::now() >= *until
            {
                return Some(why.clone());
            }
            (self.params().connect_limit, control.ready_sent)
        };
        if !ready {
            return (now > limit).then(|| {
                TransferFailure::NoConnection(format!(
                    "none was established within {} s {waiting_at}",
                    limit.as_secs_f64()
                ))
            });
        }
        (self.totals.stalled_for() > self.params().stall_limit).then(|| {
            TransferFailure::ConnectionLost(format!(
                "no byte moved for {} s after {} bytes",
                self.params().stall_limit.as_secs_f64(),
                self.totals.bytes()
            ))
        })
    }

    // ---- beginning ------------------------------------------------------------------------------

    /// Counts `count` first connections of a sender; `Ready` waits for them.
    pub(crate) fn expect_first(&self, count: u32) {
        self.control.lock().accounting.expect_first(count);
    }

    /// A channel carries the transfer now. Sends `Ready` when it was the last that was missing.
    /// `ends`: where known.
    pub(crate) fn channel_up(&self, stripe: usize, addresses: Option<AddressPair>, reuse: Reuse) {
        let reused = reuse != Reuse::New;
        if let Some(addresses) = addresses {
            self.sampler.joined(addresses, !reused);
        }
        self.totals.channel_up();
        let mut control = self.control.lock();
        if !reused {
            control.accounting.first_resolved();
        }
        if self.is_send() && reuse != Reuse::Successor {
            control.accounting.sender_opens(stripe);
        }
        self.ready_if_all_up(&mut control, reused);
        self.reconsider(control);
    }

    fn ready_if_all_up(&self, control: &mut Control, reused: bool) {
        if !control.accounting.misses_first() && !control.ready_sent && control.result.is_none() {
            control.ready_sent = true;
            self.send_event(TransferEvent::Ready { reused });
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
        self.totals.channel_down();
    }

    // ---- mode E ---------------------------------------------------------------------------------

    /// A connection towards `stripe` is about to be opened or reused; false: too late, EOF is out.
    pub(crate) fn sender_joins(&self, stripe: usize) -> bool {
        let mut control = self.control.lock();
        control.result.is_none() && control.accounting.sender_joins(stripe)
    }

    /// The stripe that a further connection is for.
    pub(crate) fn weakest_stripe(&self) -> usize {
        self.control.lock().accounting.weakest_stripe()
    }

    /// Whether another transfer may begin on each channel that has done its part in this one, while
    /// others have not. Where it may, no channel joins or ends early any more: the channels that
    /// exist will all carry the other transfer too, which counts them.
    pub(crate) fn lets_follow(&self) -> bool {
        let mut control = self.control.lock();
        let goes_well = control.deferred_failure.is_none()
            && control.failing.is_none()
            && !matches!(control.result, Some(Err(_)));
        let is_steady = !self.sends
            || self.stripes == 1
                && self.retire_wanted.load(Ordering::Relaxed) == 0
                && control.accounting.is_steady();
        let lets = self.mode == Mode::ExtendedBlock && control.ready_sent && goes_well && is_steady;
        if lets {
            control.accounting.set_followed();
        }
        lets
    }

    /// `channels` will carry it. Of these the `busy` ones still carry the transfer before.
    pub(crate) fn follow(&self, channels: u32, busy: u32) {
        self.control.lock().accounting.follow(busy);
        self.following.store(channels, Ordering::Relaxed);
    }

    /// A counted connection never came up. When none is left to carry on, the first reason counts:
    /// others may follow from it.
    pub(crate) fn sender_failed_to_open(&self, stripe: usize, why: TransferFailure) {
        let mut control = self.control.lock();
        control.accounting.first_resolved();
        let carried_on =
            self.mode == Mode::ExtendedBlock && control.accounting.sender_failed_to_open(stripe);
        let why = control.accounting.first_reason(why);
        if carried_on {
            self.ready_if_all_up(&mut control, false);
            self.reconsider(control);
            tracing::info!(%why, "a data channel could not be opened, the transfer continues");
        } else {
            drop(control);
            self.fail(why);
        }
    }

    /// More to send, of a transfer that [`FilePart::Leased`] holds open.
    pub(crate) fn lease(&self, ranges: Vec<ByteRange>) {
        if let SourceOrSink::SendFile { queues, .. } = self.source_or_sink()
            && let [queue] = &queues[..]
        {
            queue.extend(ranges);
            // Also where none waits yet: one may have looked just before.
            if let Some(set) = self.set.upgrade() {
                set.reconsider();
            }
        }
    }

    fn is_exhausted(&self) -> bool {
        match self.source_or_sink() {
            SourceOrSink::SendFile { queues, .. } => queues.iter().all(BlockQueue::is_exhausted),
            _ => true,
        }
    }

    /// Nothing more comes: channels end, and the last one so.
    pub(crate) fn finish(&self, ending: Ending) {
        let mut control = self.control.lock();
        control.accounting.finish(ending);
        self.reconsider(control);
    }

    /// EODs of a send so far.
    pub(crate) fn eods(&self) -> u64 {
        self.control.lock().accounting.eods()
    }

    /// See [`Accounting::sender_ends`].
    pub(crate) fn sender_ends(&self, stripe: usize, after: AfterEod) -> Option<BlockHeader> {
        let mut control = self.control.lock();
        if control.accounting.is_leased() && !self.is_exhausted() {
            // A lease came between: the channel is asked again.
            return None;
        }
        control.accounting.sender_ends(stripe, after)
    }

    /// A connection has opened or failed: channels that wait for it ask again.
    fn reconsider(&self, mut control: MutexGuard<'_, Control>) {
        let holding = control.accounting.take_holding();
        drop(control);
        if holding && let Some(set) = self.set.upgrade() {
            set.reconsider();
        }
    }

    /// The last header of a channel has left; finishes the transfer when it was the last of all.
    pub(crate) fn sender_ended(&self) {
        let complete = self.control.lock().accounting.sender_ended();
        if complete {
            self.succeed();
        }
    }

    /// The last header of a channel that may retire: a controller wants fewer, and another channel
    /// is left to carry on. Those with the smallest windows go first. Where nothing is left to send
    /// there may be none behind this one.
    pub(crate) fn retire(
        &self,
        stripe: usize,
        addresses: Option<AddressPair>,
        nothing_left: bool,
    ) -> Option<BlockHeader> {
        let wanted = self.retire_wanted.load(Ordering::Relaxed);
        if wanted == 0 {
            return None;
        }
        let carrying = &self.context.carrying;
        // Of several stripes each keeps a channel, which may be the least of all.
        if let Some(addresses) = addresses
            && self.stripes == 1
            && !nothing_left
            && carrying.count_weaker(addresses) >= wanted as usize
        {
            return None;
        }
        // Asked and answered under one lock: two channels must not both rely on that the other
        // stays.
        let mut control = self.control.lock();
        if !control.accounting.may_retire(stripe, nothing_left) {
            return None;
        }
        self.retire_wanted
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1))
            .ok()?;
        if let Some(addresses) = addresses {
            carrying.mark_leaving(addresses);
        }
        Some(control.accounting.retire(stripe))
    }

    /// How many channels are missing from `channels` or are more than it. Those that shall end and
    /// have not yet are asked to stay first.
    pub(crate) fn channel_difference(&self, channels: u32) -> (u32, u32) {
        let control = self.control.lock();
        if control.accounting.is_followed() {
            return (0, 0);
        }
        let live = u32::try_from(control.accounting.live()).unwrap_or(u32::MAX);
        let ending = self.retire_wanted.load(Ordering::Relaxed);
        let staying = live.saturating_sub(ending);
        // Towards the end channels have ended because nothing is left: none is to follow them.
        let missing = match self.source_or_sink() {
            SourceOrSink::SendFile { queues, .. }
                if queues.iter().all(BlockQueue::is_exhausted) =>
            {
                0
            }
            _ => channels.saturating_sub(staying),
        };
        let kept = missing.min(ending);
        self.retire_wanted.fetch_sub(kept, Ordering::Relaxed);
        (missing - kept, staying.saturating_sub(channels))
    }

    /// Lets up to `count` more channels end after their present block; how many will.
    pub(crate) fn want_retired(&self, count: u32) -> u32 {
        let control = self.control.lock();
        if control.accounting.is_followed() {
            return 0;
        }
        let pending = self.retire_wanted.load(Ordering::Relaxed);
        let granted = count.min(control.accounting.spare().saturating_sub(pending));
        self.retire_wanted.fetch_add(granted, Ordering::Relaxed);
        granted
    }

    pub(crate) fn receive_header(
        &self,
        position: &mut ChannelPosition,
        header: &BlockHeader,
    ) -> Result<Step, ReceiveError> {
        (self.control.lock().accounting).receive_header(position, header)
    }

    pub(crate) fn receive_close(&self, position: ChannelPosition) -> Result<(), ReceiveError> {
        self.control.lock().accounting.receive_close(position)
    }

    /// The payload up to a channel's end was written; finishes the transfer when nothing is
    /// missing.
    pub(crate) fn receiver_channel_ended(&self, end: ChannelEnd) {
        let complete = self.control.lock().accounting.receiver_channel_ended(end);
        if complete {
            self.succeed();
        }
    }

    // ---- end ------------------------------------------------------------------------------------

    /// Channels get no further block, where the peer can distinguish that from the end of the file.
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

    /// Defers a failure, unless there is one, or a result, already.
    pub(crate) fn set_deferred_failure(&self, why: TransferFailure) {
        let mut control = self.control.lock();
        if control.result.is_none() {
            control.deferred_failure.get_or_insert(why);
            self.settled.store(true, Ordering::Relaxed);
        }
    }

    /// It is the first transfer on its channels now. Limits count from now.
    pub(crate) fn comes_first(&self) {
        self.touch();
        let deferred_failure = self.control.lock().deferred_failure.take();
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
        self.params().closes_late && !self.sends && matches!(why, TransferFailure::Storage(_))
    }

    /// Fails it once its connections have ended, or at once where nothing they hold is worth
    /// taking: bytes that have come need not be sent again. Call with an attachment in hand.
    pub(crate) fn fail_once_drained(&self, why: TransferFailure) {
        if !matches!(self.source_or_sink(), SourceOrSink::ReceiveFile { .. }) {
            return self.fail(why);
        }
        let until = Instant::now() + DRAIN_LIMIT;
        self.control.lock().failing.get_or_insert((why, until));
    }

    /// Fails it with the failure that waited for the last bytes, if there is one; whether there
    /// was.
    fn fail_if_draining(&self) -> bool {
        let failing = self.control.lock().failing.take();
        let is_failing = failing.is_some();
        if let Some((why, _)) = failing {
            self.fail(why);
        }
        is_failing
    }

    /// Fails a transfer that has no result yet; its set is broken already.
    pub(crate) fn ends_with_set(&self, why: TransferFailure) {
        self.settle(Err(why));
        self.announce_if_over();
    }

    fn settle(&self, result: Result<(), TransferFailure>) -> bool {
        let mut control = self.control.lock();
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
            let mut control = self.control.lock();
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
        let elapsed = self.totals.elapsed();
        (self.sampler).close(self.totals.bytes(), &self.context.clocks, elapsed);
        let cached = set.as_ref().map_or(0, |s| s.kept_count());
        let report = TransferReport {
            bytes: self.totals.done(),
            safe: match self.params().reports_safe {
                true => std::mem::take(&mut self.safe.lock()),
                // The last news are taken behind this report.
                false => RangeSet::new(),
            },
            cached: if result.is_ok() { cached } else { 0 },
            result,
            channels_peak: self.channels_peak(),
            elapsed,
            unsent: self.unsent(),
        };
        // Before the event: the session may start the next transfer as soon as it gets it.
        if let Some(set) = set {
            set.transfer_leaves(self);
        }
        self.send_event(TransferEvent::Done(report));
    }

    fn send_event(&self, event: TransferEvent) {
        let events = self.events.clone();
        let send = move || {
            // The session may have dropped its end.
            let _ = events.send(event);
        };
        // Each mover batches its notifications alone: with several movers a late batch of one could
        // deliver `Ready` behind `Done`.
        match self.context.clocks.len() == 1 {
            true => notification_batch::notify(send),
            false => send(),
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
