//! What a client leaves on the way that is gone without a word.

use godwit_proto::temporary::is_temporary;
use tokio::sync::watch;

use super::{End, Phase, Session, next_step};
use crate::transfers::TransferStep;

impl Session {
    /// A client of ours that is gone has perhaps sent more than was read: it goes on where that ends. Only under a temporary name:
    /// another may be written anew already.
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
}
