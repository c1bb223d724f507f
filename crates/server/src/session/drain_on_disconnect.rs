//! What a client leaves on the way that is gone without a word, and what ends with a session.

use godwit_proto::temporary::is_temporary;
use tokio::sync::watch;

use super::{End, Phase, Session, next_step, session_log::CUT_SHORT, speculative::SpeculativeWork};
use crate::{
    observe::class::Class,
    transfers::{TransferEnd, TransferStep, data_channels::DataChannels},
};

impl Session {
    /// A client of ours that is gone has perhaps sent more than was read: it goes on where that
    /// ends. Only under a temporary name: another may be written again already.
    pub(super) async fn drain_upload(&mut self, end: &End, phase: &mut watch::Receiver<Phase>) {
        let (End::Lost | End::Broken(_), Some(transfer)) = (end, &mut self.transfer) else {
            return;
        };
        let is_worth_it = transfer.path.file_name().is_some_and(is_temporary);
        if !(is_worth_it && transfer.running.drain()) {
            return;
        }
        let over = async {
            let mut step = next_step(&mut self.transfer, &self.channels).await;
            while !matches!(step, TransferStep::Done(_)) {
                step = next_step(&mut self.transfer, &self.channels).await;
            }
        };
        tokio::select! {
            () = over => {}
            // Also where the server is gone.
            _ = phase.wait_for(|phase| *phase == Phase::Aborting) => {}
        }
    }
    /// Ends the running transfer, if there is one, without waiting for the data plane. It goes for
    /// good when it is dropped.
    pub(super) fn abort_transfer(&mut self) -> Option<TransferEnd> {
        let running = &mut self.transfer.as_mut()?.running;
        running.abort();
        let (bytes, fresh) = running.progress();
        Some(TransferEnd::aborted(bytes, fresh))
    }

    /// Gives up whatever runs, and closes files, sockets and listeners.
    pub(super) fn stop_work(&mut self) {
        if let (Some(end), Some(transfer)) = (self.abort_transfer(), self.transfer.take()) {
            self.log_transfer(&transfer, &end);
        }
        self.log_change(Some(Class::Aborted), Some(CUT_SHORT));
        self.request = None;
        self.log_speculative();
        self.speculative = SpeculativeWork::default();
        self.channels = DataChannels::default();
    }
}
