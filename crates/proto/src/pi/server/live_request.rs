//! `SITE GODWIT` ([`crate::live`]): answered out of turn while a transfer runs, and at any other
//! time.

use crate::{
    live::{Live, LiveReport, NO_TRANSFER},
    reply::Reply,
};

use super::{Output, Pending, QUEUE_MAX, ServerPi};

impl ServerPi {
    /// Whether a live request that comes now is answered at once.
    pub(super) fn takes_live_requests(&self) -> bool {
        !self.is_idle() && self.session.is_logged_in()
    }

    pub(super) fn run_live_request(&mut self, live: Live) {
        let can_be = matches!(
            &self.pending,
            Pending::Transfer(transfer) if transfer.can_be(live, self.transfers)
        );
        // A refusal waits for those that the shell has not answered: live requests are answered in
        // their own order.
        if !can_be && self.live_requests.is_empty() {
            return self.refuse_live_request();
        }
        if self.live_requests.len() >= QUEUE_MAX {
            self.answer(500, "Pipeline queue full.");
            return self.end_session();
        }
        self.live_requests.push_back(live);
        self.outputs.push_back(Output::Live(live));
    }

    /// In its turn, so that nothing runs: the client has all that was sent before, and so knows
    /// what new connections carry.
    pub(super) fn run_next_channels(&mut self, n: u32) {
        if !self.session.data_channel.is_cached() {
            return self.answer(503, "No data connections wait for a transfer.");
        }
        let n = n.clamp(1, self.config.channels_max.max(1));
        self.session.parallelism = n;
        self.outputs.push_back(Output::NextChannels(n));
        self.answer(200, "OK.");
    }

    pub(super) fn on_live(&mut self, report: Option<Box<LiveReport>>) {
        let Some(live) = self.live_requests.pop_front() else {
            return;
        };
        let Some(report) = report else {
            return self.refuse_live_request();
        };
        // Cached channels are then as many as OPTS says, so that neither end need ask for what is
        // there.
        if let Live::Channels(n, _) = live {
            self.session.parallelism = n.clamp(1, self.config.channels_max.max(1));
        }
        self.reply(&report.to_reply());
    }

    fn refuse_live_request(&mut self) {
        self.reply(&Reply::new(
            NO_TRANSFER,
            "No transfer runs that this applies to.",
        ));
    }
}
