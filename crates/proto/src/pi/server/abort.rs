//! ABOR (RFC 959 §4.1.3), the one command that is seen out of order.
//!
//! The running command ends first, then each command that waited gets a 426, then ABOR its 226. A
//! transfer that ABOR overtook is never reported as whole: the shell's success and our ABOR may
//! have crossed, and the client has given the file up.

use super::{Output, Pending, Queued, ServerPi};

impl ServerPi {
    pub(super) fn on_abort_while_busy(&mut self) {
        if let Pending::Transfer(transfer) = &mut self.pending
            && !transfer.aborted
        {
            transfer.aborted = true;
            if transfer.is_with_shell() {
                self.outputs.push_back(Output::AbortTransfer);
            }
        }
        self.drop_speculative();
        for item in &mut self.queue {
            if matches!(item, Queued::Command { .. } | Queued::Bad(_)) {
                self.queue_bytes -= item.bytes();
                *item = Queued::Aborted;
            }
        }
        self.enqueue(Queued::Abort);
    }

    pub(super) fn run_abort(&mut self) {
        self.drop_data_channel();
        self.session.forget_sequences();
        self.answer(226, "Abort successful");
    }
}
