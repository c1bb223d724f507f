//! Transfers: what their channels share, and what a session holds of one.
//!
//! - [`shared`]: state and result, for the channels; [`accounting`], [`totals`]: parts of it
//! - [`source_or_sink`], [`block_queue`], [`holes`]: where bytes come from or go
//! - [`events`]: what the session is sent

pub(crate) mod accounting;
pub(crate) mod block_queue;
pub(crate) mod events;
pub(crate) mod holes;
pub(crate) mod shared;
pub(crate) mod source_or_sink;
pub(crate) mod totals;

use std::sync::Arc;

use godwit_proto::{ByteRange, RangeSet, error::TransferFailure, mode_e::sender::Ending};
use tokio::sync::mpsc;

use crate::data::{
    sampling::sample::{Progress, Sample},
    transfer::{
        events::TransferEvent,
        shared::{SetEvents, TransferHandle, TransferShared},
    },
};

/// A running transfer. Dropping the handle aborts it.
pub struct Transfer {
    monitor: Monitor,
    events: mpsc::UnboundedReceiver<TransferEvent>,
    done: bool,
}

impl Transfer {
    pub(crate) fn new(
        transfer: Arc<TransferShared>,
        set: Arc<dyn SetEvents>,
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
    /// [`reports_safe`](crate::data::ChannelParams::reports_safe).
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

    /// As [`Self::abort`], but a receipt into a file first takes the bytes that have arrived, for
    /// two seconds at most: the peer is gone or has given up, and bytes that are written need not
    /// be sent again.
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

/// What [`Monitor::steer`] has started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Steered {
    /// Channels that are being made.
    pub opened: u32,
    /// Channels that end after their present block.
    pub retired: u32,
}

/// A view of a transfer; does not keep it running.
#[derive(Clone)]
pub struct Monitor {
    transfer: Arc<TransferShared>,
    set: Arc<dyn SetEvents>,
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

    /// Ends a send early, in good order: channels get no further block, each ends after its present
    /// one, and the report lists what is `unsent`. May be called at any time, again, and too late.
    /// Does nothing to receipts, to streams (which cannot be read again) and in MODE S, where the
    /// peer would take the end for the end of the file.
    pub fn cut(&self) {
        self.transfer.cut();
    }

    /// Bytes that [`Self::split_off`] may halve.
    pub fn unstarted_bytes(&self) -> u64 {
        self.transfer.unstarted_bytes()
    }

    /// Takes the second half of the bytes that a send has not started, so that another transfer
    /// sends them: at least `least` bytes, relative to the base. This transfer ends before them,
    /// and its report counts fewer `bytes`. `None` where less is left, before the first block,
    /// after a cut, for streams, stripes and MODE S.
    pub fn split_off(&self, least: u64) -> Option<ByteRange> {
        self.transfer.split_off(least)
    }

    /// Adds ranges to a send of [`FilePart::Leased`](crate::data::FilePart::Leased); its channels
    /// take them up at once. Before [`Self::finish`].
    pub fn lease(&self, ranges: Vec<ByteRange>) {
        self.transfer.lease(ranges);
    }

    /// Lets the channels of such a send end when all is sent, and says how the last one does.
    pub fn finish(&self, ending: Ending) {
        self.transfer.finish(ending);
    }

    /// EODs that a send has given out so far; all of them once it is over.
    pub fn eods(&self) -> u64 {
        self.transfer.eods()
    }

    /// Opens or retires channels while data flows until there are `channels`. Channels that are
    /// still being made count, those that are to end do not. Bounds and conditions are those of
    /// [`Self::add_channels`] and [`Self::retire_channels`].
    pub fn steer(&self, channels: u32) -> Steered {
        let (missing, spare) = self.transfer.channel_difference(channels);
        Steered {
            opened: self.add_channels(missing),
            retired: self.retire_channels(spare),
        }
    }

    /// Opens `count` further channels while data flows (MODE E, sending, after the peer's 1xx).
    /// Returns how many are opened: none above `channels_max`, and none after the EOF.
    pub fn add_channels(&self, count: u32) -> u32 {
        Arc::clone(&self.set).add_channels(&self.transfer, count)
    }

    /// Lets up to `count` channels end after their present block, but never the last. Returns how
    /// many will.
    pub fn retire_channels(&self, count: u32) -> u32 {
        self.transfer.want_retired(count)
    }
}
