//! Channel sets: the listener or the peers, and the connections that live on between transfers.

pub(crate) mod batch;
pub(crate) mod queue;
mod shared;

use std::{
    io,
    net::{SocketAddr, TcpListener},
    sync::{Arc, Weak},
};

use godwit_proto::{command::Mode, error::TransferFailure, mode_e::layout::StripeLayout};
use parking_lot::Mutex;
use tokio::sync::mpsc;

use self::{
    batch::TransferBatch,
    queue::{QueuedWork, Waiting},
    shared::SetShared,
};
use crate::data::{
    context::SetContext,
    job::{JobOpener, TransferJob},
    mover::{Mover, commands::MoverCommand},
    params::ChannelParams,
    transfer::{
        Transfer,
        events::TransferEvent,
        shared::{SetEvents, TransferHandle, TransferShared},
    },
};

/// The data channel object of a session: a listener or peers to connect to, and the connections
/// that live on between transfers. Dropping it closes them all and fails a running transfer with
/// `Aborted`.
pub struct ChannelSet {
    shared: Arc<SetShared>,
    /// Keeps the threads alive as long as the set.
    _movers: Vec<Mover>,
}

impl ChannelSet {
    /// Connections come to `listener`, which stays open between transfers. New connections go to
    /// `movers` in turn. At least one mover; panics on none, which is a bug of the caller.
    pub fn passive(
        movers: &[Mover],
        listener: TcpListener,
        params: ChannelParams,
    ) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let set = Self::new(movers, Vec::new(), None, Some(at), params);
        set.shared.movers[0].give(MoverCommand::Listen {
            set: Arc::clone(&set.shared) as _,
            listener: mio::net::TcpListener::from_std(listener),
        });
        Ok(set)
    }

    /// We connect to `peers` (one per stripe; at least one) when a transfer starts. At least one
    /// mover; panics on none, which is a bug of the caller.
    pub fn active(
        movers: &[Mover],
        peers: Vec<SocketAddr>,
        layout: Option<StripeLayout>,
        params: ChannelParams,
    ) -> Self {
        Self::new(movers, peers, layout, None, params)
    }

    fn new(
        movers: &[Mover],
        peers: Vec<SocketAddr>,
        layout: Option<StripeLayout>,
        listening_at: Option<SocketAddr>,
        params: ChannelParams,
    ) -> Self {
        assert!(!movers.is_empty(), "a channel set needs a mover");
        let shared: Vec<_> = movers.iter().map(Mover::shared).collect();
        let clocks = shared.iter().map(|mover| Arc::clone(&mover.clock));
        let context = SetContext::new(params, clocks.collect());
        let shared = Arc::new_cyclic(|me| SetShared {
            me: Weak::clone(me),
            context: Arc::new(context),
            movers: shared,
            peers,
            layout,
            listening_at,
            inner: Mutex::default(),
        });
        Self {
            shared,
            _movers: movers.to_vec(),
        }
    }

    /// Starts a transfer; one at a time (a second is answered by a transfer that has failed). In
    /// MODE E cached connections are used where there are any, else connections are made or
    /// awaited.
    pub fn start(&self, job: TransferJob, mode: Mode) -> Transfer {
        let (transfer, events) = self.transfer(matches!(job, TransferJob::Send(_)), mode);
        // Held until every command is out, so that the transfer cannot be over before it has begun.
        let starter = TransferHandle::new(&transfer);
        transfer.start();
        transfer.open(job, self.shared.layout);
        let begun = self
            .shared
            .occupy(&transfer)
            .and_then(|()| self.shared.begin(&transfer));
        if let Err(why) = begun {
            transfer.fail(why);
        }
        drop(starter);
        self.handle(transfer, events)
    }

    /// Starts a transfer when all that were queued before it have succeeded; where one of them
    /// fails, it fails with the connections. `open` runs on a mover when the turn has come, and may
    /// block it; `sends` says which way the job will go. So one small file follows another without
    /// a session being woken. MODE E: a stream's connection carries one transfer.
    ///
    /// `follows`: it may begin before those are over, on each channel that is through with them.
    /// Behind an EOD the next byte on a channel belongs to the next transfer, whatever other
    /// channels do. Then its failure, other than by being aborted, ends no connection before the
    /// others are over.
    pub fn queue(&self, sends: bool, follows: bool, open: JobOpener) -> Transfer {
        let (transfer, events) = self.transfer(sends, Mode::ExtendedBlock);
        self.shared.enqueue(Waiting::Transfer {
            transfer: Arc::clone(&transfer),
            open,
            follows,
        });
        self.handle(transfer, events)
    }

    fn transfer(
        &self,
        sends: bool,
        mode: Mode,
    ) -> (Arc<TransferShared>, mpsc::UnboundedReceiver<TransferEvent>) {
        let (events, receiver) = mpsc::unbounded_channel();
        let transfer = Arc::new(TransferShared::new(
            sends,
            mode,
            self.shared.peers.len(),
            &self.shared.context,
            Weak::clone(&self.shared.me) as Weak<dyn SetEvents>,
            events,
        ));
        (transfer, receiver)
    }

    fn handle(
        &self,
        transfer: Arc<TransferShared>,
        events: mpsc::UnboundedReceiver<TransferEvent>,
    ) -> Transfer {
        let set: Arc<dyn SetEvents> = Arc::clone(&self.shared) as _;
        Transfer::new(transfer, set, events)
    }

    /// Runs `work` on a mover when all transfers that were queued before have succeeded; where one
    /// of them fails, it is dropped. Work that takes longer than a small file must move to another
    /// thread with its `QueueTurn`. `passable`: transfers that are queued behind it and may
    /// follow others need not wait for it either.
    pub fn queue_work(&self, work: QueuedWork, passable: bool) {
        self.shared.enqueue(Waiting::Work { work, passable });
    }

    /// Transfers that are started or queued from now on are one batch, until the next begins or the
    /// last clone of this one is gone. The connections count from now on: as senders where we
    /// connect, else as receivers (MODE E).
    pub fn batch(&self) -> TransferBatch {
        TransferBatch::begin(&self.shared.context, !self.shared.peers.is_empty())
    }

    /// Asks for `channels` in the send that begins next on cached connections. To be called while
    /// neither end has a transfer on them: a new connection does not name its transfer, and the
    /// peer counts it for the one that it carries.
    pub fn next_channels(&self, channels: u32) {
        self.shared.inner.lock().wanted = Some(channels);
    }

    /// Connections kept for the next transfer.
    pub fn cached(&self) -> usize {
        self.shared
            .inner
            .lock()
            .idle
            .iter()
            .filter(|c| c.used)
            .count()
    }
}

impl Drop for ChannelSet {
    fn drop(&mut self) {
        let first = self.shared.inner.lock().queue.first().cloned();
        if let Some(transfer) = first {
            transfer.fail(TransferFailure::Aborted);
        }
        self.shared.close_all();
        self.shared.movers[0].give(MoverCommand::StopListening(self.shared.context.id));
    }
}
