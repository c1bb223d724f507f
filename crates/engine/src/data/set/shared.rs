//! What a channel set shares with its transfers and movers: connections, their number, and which
//! transfer has its turn.

use std::{
    net::SocketAddr,
    sync::{Arc, Weak},
    time::Duration,
};

use godwit_proto::{command::Mode, error::TransferFailure, mode_e::layout::StripeLayout};
use parking_lot::Mutex;

use super::queue::{Next, QueueTurn, TransferQueue, Waiting, WorkEvents};
use crate::data::{
    channel::{IdleChannel, round_robin::QueuePosition},
    context::SetContext,
    job::JobOpener,
    mover::commands::{ConnectionSet, MoverCommand, MoverShared},
    params::ChannelParams,
    transfer::shared::{SetEvents, TransferHandle, TransferShared},
};

/// Time for a connection to open that a running transfer can do without: two repeats of a lost
/// first packet. The end of a transfer may have to wait for it.
const FURTHER_LIMIT: Duration = Duration::from_secs(5);

pub(super) struct SetShared {
    /// Itself, for commands to movers.
    pub(super) me: Weak<SetShared>,
    pub(super) context: Arc<SetContext>,
    pub(super) movers: Vec<Arc<MoverShared>>,
    /// Empty for a passive set.
    pub(super) peers: Vec<SocketAddr>,
    pub(super) layout: Option<StripeLayout>,
    /// Where peers are awaited, for messages.
    pub(super) listening_at: Option<SocketAddr>,
    pub(super) inner: Mutex<Inner>,
}

#[derive(Default)]
pub(super) struct Inner {
    /// Dropped, or a transfer failed: nothing can start any more.
    broken: bool,
    pub(super) queue: TransferQueue,
    /// In the order in which the next send is given to them.
    pub(super) idle: Vec<IdleChannel>,
    /// Why a connection that came before its transfer was refused, until the next transfer begins.
    refused: Option<TransferFailure>,
    /// Connections of the set, connecting ones included.
    open: u32,
    turn: usize,
    /// Channels of the next send, see `ChannelSet::next_channels`.
    pub(super) wanted: Option<u32>,
}

impl Inner {
    fn park(&mut self, channel: IdleChannel) {
        let at = match channel.place {
            QueuePosition::Front => 0,
            QueuePosition::Middle => {
                let last = |c: &&IdleChannel| c.place == QueuePosition::Back;
                self.idle.len() - self.idle.iter().rev().take_while(last).count()
            }
            QueuePosition::Back => self.idle.len(),
        };
        self.idle.insert(at, channel);
    }
}

impl SetShared {
    fn params(&self) -> &ChannelParams {
        &self.context.params
    }

    /// Makes `transfer` the running one.
    pub(super) fn occupy(&self, transfer: &Arc<TransferShared>) -> Result<(), TransferFailure> {
        let mut inner = self.inner.lock();
        if inner.broken {
            return Err(lost_with_earlier_transfer());
        }
        if !inner.queue.is_empty() {
            return Err(TransferFailure::NoConnection(
                "data channels are busy with another transfer".into(),
            ));
        }
        inner.queue.begin(transfer);
        Ok(())
    }

    /// Finds connections for the running transfer.
    pub(super) fn begin(
        self: &Arc<Self>,
        transfer: &Arc<TransferShared>,
    ) -> Result<(), TransferFailure> {
        let mut inner = self.inner.lock();
        if inner.broken {
            return Err(lost_with_earlier_transfer());
        }
        let block_mode = transfer.mode == Mode::ExtendedBlock;
        if block_mode && transfer.is_send() == self.peers.is_empty() {
            return Err(TransferFailure::NoConnection(
                "in extended block mode the sender connects and the receiver listens".into(),
            ));
        }
        // The first mover checks the limits, also while no peer connects.
        let mut orders = vec![(0, MoverCommand::Watch(self.me.clone() as _))];
        let refused = inner.refused.take();
        if block_mode && matches!(refused, Some(TransferFailure::Limit(_))) {
            // The peer counts that connection, so the transfer could never be whole.
            return refused.map_or(Ok(()), Err);
        }
        inner.queue.opened(transfer);
        let mut idle = std::mem::take(&mut inner.idle);
        if !block_mode {
            // MODE S has one connection; a second that arrived early has no meaning.
            inner.idle = idle.split_off(idle.len().min(1));
        }
        if !idle.is_empty() {
            let lost = match block_mode && transfer.is_send() {
                true => self.stripes_without(&idle),
                false => Vec::new(),
            };
            // All join before any gets its command, so that none can end the transfer before the
            // others count.
            idle.retain(|c| !transfer.is_send() || transfer.sender_joins(c.stripe));
            orders.extend(idle.into_iter().map(|channel| {
                let handle = TransferHandle::new(transfer);
                let mover = channel.mover;
                (mover, MoverCommand::Assign { channel, handle })
            }));
            if block_mode && transfer.is_send() {
                let there = u32::try_from(orders.len() - 1).unwrap_or(u32::MAX);
                // Asked for once: where no more can be had, each transfer would wait for that.
                let wanted = inner.wanted.take().unwrap_or(there);
                transfer.want_retired(there.saturating_sub(wanted));
                let further = wanted.saturating_sub(there);
                orders.extend(self.connect_further(&mut inner, transfer, further));
                let first = orders.len();
                for stripe in lost {
                    let made = self.reserve_connection(&mut inner);
                    made.map_err(TransferFailure::Limit)?;
                    if transfer.sender_joins(stripe) {
                        let limit = self.params().connect_limit;
                        orders.push(self.connect_order(&mut inner, stripe, limit, transfer));
                    }
                }
                transfer.expect_first(u32::try_from(orders.len() - first).unwrap_or(u32::MAX));
            }
            self.give_all(orders);
            return Ok(());
        }
        if self.peers.is_empty() {
            self.give_all(orders);
            // The peer has tried to connect, and may wait for the reason.
            return refused.map_or(Ok(()), Err);
        }
        // It was meant for cached connections, and there are none: the next send must not make
        // others while its receiver still carries this one.
        inner.wanted = None;
        let each = if block_mode {
            self.params().parallelism.max(1)
        } else {
            1
        };
        let stripes = if block_mode { self.peers.len() } else { 1 };
        let before = orders.len();
        'all: for _ in 0..each {
            for stripe in 0..stripes {
                if let Err(why) = self.reserve_connection(&mut inner) {
                    if orders.len() == before {
                        return Err(TransferFailure::Limit(why));
                    }
                    break 'all;
                }
                if transfer.is_send() && !transfer.sender_joins(stripe) {
                    self.release_connection(&mut inner);
                    break;
                }
                let limit = self.params().connect_limit;
                orders.push(self.connect_order(&mut inner, stripe, limit, transfer));
            }
        }
        transfer.expect_first(u32::try_from(orders.len() - before).unwrap_or(u32::MAX));
        self.give_all(orders);
        Ok(())
    }

    /// Stripes whose connections the peer has all closed since the last transfer. Each is told the
    /// end of the next one, too.
    fn stripes_without(&self, idle: &[IdleChannel]) -> Vec<usize> {
        (0..self.peers.len())
            .filter(|stripe| idle.iter().all(|channel| channel.stripe != *stripe))
            .collect()
    }

    /// Each mover gets all its commands at once: otherwise a small file would wake it twice.
    fn give_all(&self, mut orders: Vec<(usize, MoverCommand)>) {
        for (index, mover) in self.movers.iter().enumerate() {
            let theirs = orders.extract_if(.., |(of, _)| *of == index);
            mover.give_all(theirs.map(|(_, order)| order));
        }
    }

    /// One connection more, or why there may be none.
    fn reserve_connection(&self, inner: &mut Inner) -> Result<(), String> {
        let max = self.params().channels_max;
        if inner.open >= max {
            return Err(format!("more than {max} data channels in one transfer"));
        }
        if let Some(channel_limiter) = &self.params().channel_limiter {
            channel_limiter.acquire()?;
        }
        inner.open += 1;
        Ok(())
    }

    /// One less.
    fn release_connection(&self, inner: &mut Inner) {
        if inner.open > 0 {
            inner.open -= 1;
            if let Some(channel_limiter) = &self.params().channel_limiter {
                channel_limiter.release();
            }
        }
    }

    /// For a connection that counts already.
    fn connect_order(
        self: &Arc<Self>,
        inner: &mut Inner,
        stripe: usize,
        limit: Duration,
        transfer: &Arc<TransferShared>,
    ) -> (usize, MoverCommand) {
        let mover = inner.turn % self.movers.len();
        inner.turn += 1;
        let order = MoverCommand::Connect {
            set: Arc::clone(self) as _,
            mover,
            stripe,
            peer: self.peers[stripe],
            limit,
            handle: TransferHandle::new(transfer),
        };
        (mover, order)
    }

    /// Up to `count` connections that `transfer` can do without.
    fn connect_further(
        self: &Arc<Self>,
        inner: &mut Inner,
        transfer: &Arc<TransferShared>,
        count: u32,
    ) -> Vec<(usize, MoverCommand)> {
        let limit = self.params().connect_limit.min(FURTHER_LIMIT);
        let mut orders = Vec::new();
        for _ in 0..count {
            if self.reserve_connection(inner).is_err() {
                break;
            }
            let stripe = transfer.weakest_stripe();
            if !transfer.sender_joins(stripe) {
                self.release_connection(inner);
                break;
            }
            orders.push(self.connect_order(inner, stripe, limit, transfer));
        }
        orders
    }

    fn end(&self, order: fn(u64) -> MoverCommand) {
        let queue = {
            let mut inner = self.inner.lock();
            inner.broken = true;
            inner.idle.clear();
            // Without the lock: what waits may hold files, and closes them.
            std::mem::take(&mut inner.queue)
        };
        // One that runs may have no connection yet whose end it would notice.
        for transfer in queue.into_transfers() {
            transfer.ends_with_set(lost_with_earlier_transfer());
        }
        for mover in &self.movers {
            mover.give(order(self.context.id));
        }
    }

    /// Begins at once where nothing is before it, or where a channel has done its part in what is.
    /// Else the transfer before it asks when it is over, and no mover is woken for each.
    pub(super) fn enqueue(&self, waiting: Waiting) {
        let (refused, begins) = {
            let mut inner = self.inner.lock();
            if inner.broken {
                (Some(waiting), false)
            } else {
                let follows = !inner.idle.is_empty() && !inner.queue.has_waiting_transfer();
                let begins = inner.queue.is_empty() || follows;
                inner.queue.push(waiting);
                (None, begins)
            }
        };
        if let Some(Waiting::Transfer { transfer, .. }) = refused {
            transfer.ends_with_set(lost_with_earlier_transfer());
        }
        if begins {
            self.ask_for_next();
        }
    }

    /// A mover looks whether something may begin.
    fn ask_for_next(&self) {
        // It is gone where nothing holds it any more: then nothing is left to begin.
        if let Some(me) = self.me.upgrade() {
            self.movers[0].give(MoverCommand::BeginNext(me));
        }
    }

    fn begin_queued(
        self: &Arc<Self>,
        transfer: &Arc<TransferShared>,
        open: JobOpener,
        behind: bool,
    ) {
        // As in `ChannelSet::start`.
        let starter = TransferHandle::new(transfer);
        transfer.start();
        let begun = open().map_err(TransferFailure::from).and_then(|job| {
            transfer.open(job, self.layout);
            match behind {
                true => self.follow(transfer),
                false => self.begin(transfer),
            }
        });
        if let Err(why) = begun {
            transfer.fail(why);
        }
        drop(starter);
    }

    /// Lets the channels carry it that are through with what is before it; the others come when
    /// they are.
    fn follow(&self, transfer: &Arc<TransferShared>) -> Result<(), TransferFailure> {
        let mut inner = self.inner.lock();
        if inner.broken {
            return Err(lost_with_earlier_transfer());
        }
        let mut idle = std::mem::take(&mut inner.idle);
        if transfer.is_send() {
            let free = u32::try_from(idle.len()).unwrap_or(u32::MAX);
            transfer.follow(inner.open, inner.open.saturating_sub(free));
            idle.retain(|channel| transfer.sender_joins(channel.stripe));
        }
        // As in `begin`: at the last tick there may have been nothing to watch.
        let watch = (0, MoverCommand::Watch(self.me.clone() as _));
        let assigned = idle.into_iter().map(|channel| {
            let handle = TransferHandle::new(transfer);
            let mover = channel.mover;
            let order = MoverCommand::Assign { channel, handle };
            (mover, order)
        });
        self.give_all([watch].into_iter().chain(assigned).collect());
        inner.queue.opened(transfer);
        Ok(())
    }
}

impl SetEvents for SetShared {
    fn transfer_over(&self, transfer: &TransferShared, others: bool) {
        let first = self.inner.lock().queue.over(transfer);
        if let Some(first) = first {
            first.comes_first();
        }
        if others {
            for mover in &self.movers {
                mover.give(MoverCommand::Release(self.context.id));
            }
        }
    }

    fn transfer_leaves(&self, transfer: &TransferShared) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.queue.leaves(transfer);
            inner.queue.has_waiting()
        };
        if waiting {
            self.ask_for_next();
        }
    }

    fn defer_failure(
        &self,
        transfer: &TransferShared,
        why: TransferFailure,
    ) -> Option<TransferFailure> {
        let inner = self.inner.lock();
        if why == TransferFailure::Aborted || !inner.queue.is_behind(transfer) {
            return Some(why);
        }
        transfer.set_deferred_failure(why);
        None
    }

    fn reconsider(&self) {
        for mover in &self.movers {
            mover.give(MoverCommand::Reconsider(self.context.id));
        }
    }

    fn close_all(&self) {
        self.end(MoverCommand::CloseChannels);
    }

    fn halt(&self) {
        self.end(MoverCommand::HaltChannels);
    }

    fn kept_count(&self) -> usize {
        let inner = self.inner.lock();
        let gone_on = inner.queue.running().map(|transfer| transfer.attached());
        inner.idle.len() + gone_on.sum::<usize>()
    }

    fn add_channels(self: Arc<Self>, transfer: &Arc<TransferShared>, count: u32) -> u32 {
        if transfer.mode != Mode::ExtendedBlock || !transfer.is_send() {
            return 0;
        }
        let orders = self.connect_further(&mut self.inner.lock(), transfer, count);
        let opened = u32::try_from(orders.len()).unwrap_or(u32::MAX);
        for (mover, order) in orders {
            self.movers[mover].give(order);
        }
        opened
    }
}

impl ConnectionSet for SetShared {
    fn context(&self) -> &Arc<SetContext> {
        &self.context
    }

    fn mover(&self, index: usize) -> &Arc<MoverShared> {
        &self.movers[index]
    }

    fn admit(&self) -> Option<usize> {
        let (first, why) = {
            let mut inner = self.inner.lock();
            if inner.broken {
                return None;
            }
            match self.reserve_connection(&mut inner) {
                Ok(()) => {
                    let mover = inner.turn % self.movers.len();
                    inner.turn += 1;
                    return Some(mover);
                }
                Err(why) => {
                    let why = TransferFailure::Limit(why);
                    let first = inner.queue.first().cloned();
                    if first.is_none() {
                        inner.refused = Some(why.clone());
                    }
                    (first, why)
                }
            }
        };
        if let Some(transfer) = first {
            // The peer counts this connection, so the transfer could never be whole.
            transfer.fail(why);
        }
        None
    }

    fn is_halted(&self) -> bool {
        self.params().closes_late && self.inner.lock().broken
    }

    fn attach_or_park(&self, channel: IdleChannel) -> Option<TransferHandle> {
        let mut inner = self.inner.lock();
        match inner.queue.first() {
            Some(t)
                if t.is_open()
                    && !t.is_finished()
                    && (t.mode == Mode::ExtendedBlock || t.progress().channels == 0)
                    && (!t.is_send() || t.sender_joins(0)) =>
            {
                Some(TransferHandle::new(t))
            }
            _ => {
                inner.park(channel);
                None
            }
        }
    }

    fn next_or_park(
        &self,
        channel: IdleChannel,
        transfer: &TransferShared,
    ) -> Option<TransferHandle> {
        let mut inner = self.inner.lock();
        if let Some(next) = inner.queue.after(transfer) {
            return Some(TransferHandle::new(next));
        }
        inner.park(channel);
        if inner.queue.has_waiting() {
            self.ask_for_next();
        }
        None
    }

    fn begin_next(self: Arc<Self>) {
        loop {
            let next = {
                let mut inner = self.inner.lock();
                // Other channels for the next send are made when none carries anything.
                let free = inner.wanted.is_none() && inner.idle.iter().any(|idle| idle.used);
                inner.queue.next(free)
            };
            match next {
                Some(Next::Transfer {
                    transfer,
                    open,
                    behind,
                }) => self.begin_queued(&transfer, open, behind),
                Some(Next::Work(work)) => work(QueueTurn::new(Arc::clone(&self) as _)),
                None => return,
            }
        }
    }

    fn refuse(&self, why: TransferFailure) {
        let first = {
            let mut inner = self.inner.lock();
            let first = inner.queue.first().cloned();
            if first.is_none() {
                inner.refused = Some(why.clone());
            }
            first
        };
        tracing::warn!(%why, "a data connection is refused");
        if let Some(transfer) = first.filter(|t| !t.is_ready()) {
            transfer.fail(why);
        }
    }

    fn closed(&self, mover: usize, serial: u64) {
        let mut inner = self.inner.lock();
        self.release_connection(&mut inner);
        inner
            .idle
            .retain(|c| c.mover != mover || c.serial != serial);
    }

    fn has_connections(&self) -> bool {
        self.inner.lock().open > 0
    }

    fn is_busy(&self) -> bool {
        self.inner.lock().queue.first().is_some()
    }

    fn tick(&self) {
        let running: Vec<_> = self.inner.lock().queue.running().cloned().collect();
        let Some((transfer, others)) = running.split_first() else {
            return;
        };
        let place = match (self.listening_at, self.peers.first()) {
            (Some(at), _) => format!("at {at}: the peer must connect there"),
            (None, Some(peer)) => format!("to {peer}: it does not answer"),
            (None, None) => String::new(),
        };
        match transfer.overdue(&place) {
            Some(why) => transfer.fail(why),
            None => transfer.look(),
        }
        others.iter().for_each(|transfer| transfer.look());
        if let Some(batch) = self.context.carrying.batch() {
            batch.look(&self.context.clocks);
        }
    }
}

impl WorkEvents for SetShared {
    fn work_leaves(&self) {
        let waiting = {
            let mut inner = self.inner.lock();
            inner.queue.work_leaves();
            inner.queue.has_waiting()
        };
        if waiting {
            self.ask_for_next();
        }
    }
}

/// A mover that ends drops connections without [`ConnectionSet::closed`].
impl Drop for SetShared {
    fn drop(&mut self) {
        let open = self.inner.lock().open;
        if let Some(channel_limiter) = &self.params().channel_limiter {
            (0..open).for_each(|_| channel_limiter.release());
        }
    }
}

fn lost_with_earlier_transfer() -> TransferFailure {
    TransferFailure::NoConnection(
        "data channels were lost with an earlier transfer: a new address command is needed".into(),
    )
}
