//! What a client leaves on the way that is gone without a word, and what ends with a session.

use godwit_proto::temporary::is_temporary;
use tokio::sync::watch;

use super::{End, Phase, Session, next_step, trail::CUT_SHORT};
use crate::{
    data_channels::DataChannels,
    foreseen::Foreseen,
    metrics::Class,
    transfers::{TransferEnd, TransferStep},
};

impl Session {
    /// A client of ours that is gone has perhaps sent more than was read: it goes on where that
    /// ends. Only under a temporary name: another may be written anew already.
    pub(super) async fn take_what_has_come(
        &mut self,
        end: &End,
        phase: &mut watch::Receiver<Phase>,
    ) {
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
            // Also where nobody can say so any more.
            _ = phase.wait_for(|phase| *phase == Phase::Cutting) => {}
        }
    }
    /// Ends the running transfer, if there is one, without waiting for the data plane. It goes for
    /// good when it is dropped.
    pub(super) fn cut_transfer(&mut self) -> Option<TransferEnd> {
        let running = &mut self.transfer.as_mut()?.running;
        running.abort();
        let (bytes, fresh) = running.progress();
        Some(TransferEnd::aborted(bytes, fresh))
    }

    /// Gives up whatever runs, and closes files, sockets and listeners.
    pub(super) fn stop_work(&mut self) {
        if let (Some(end), Some(transfer)) = (self.cut_transfer(), self.transfer.take()) {
            self.log_transfer(&transfer, &end);
        }
        self.log_change(Some(Class::Aborted), Some(CUT_SHORT));
        self.request = None;
        self.log_foreseen();
        self.foreseen = Foreseen::default();
        self.channels = DataChannels::default();
    }
}
