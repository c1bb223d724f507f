//! What a running get asks of its server beside the transfer: other numbers of channels, reports.
//! Only where the server announced that it answers ([`godwit_proto::live`]). No I/O.
//!
//! Reports wait for the answer to what was asked before. Other numbers of channels do not: an
//! answer may be lost for seconds where data fills the path, and commands pass it.

use std::{collections::VecDeque, time::Duration};

use godwit_engine::data::Sample;
use godwit_proto::{
    Command, Reply,
    feature::Features,
    live::{Live, LiveReport, NO_TRANSFER},
    pi::client::CommandId,
    site::Site,
};
use tokio::time::Instant;

/// Time between an answer and the next look at the server's side.
const REPORT_PAUSE: Duration = Duration::from_millis(250);

/// Time for an answer. The server has nothing to wait for; what is this late will not come.
pub(crate) const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// At most so many requests wait for an answer.
const PENDING_MAX: usize = 4;

pub(crate) struct LiveRequests {
    changes: bool,
    reports: bool,
    /// Channels that the transfer has, as far as the server has answered.
    in_force: u32,
    /// Channels that were asked for last.
    requested: u32,
    wanted: u32,
    /// In the order of their commands.
    pending: VecDeque<PendingRequest>,
    answer_limit: Duration,
    next_report: Instant,
}

struct PendingRequest {
    id: CommandId,
    what: Live,
    due: Instant,
}

/// What an answer came to.
#[derive(Debug, PartialEq)]
pub(crate) enum Answer {
    /// The server's side as it is, and how many channels there were and are.
    Report(Box<Sample>, u32, u32),
    /// The transfer is over, or not yet so far.
    NoTransfer,
    /// The server does not know the question after all.
    Refused,
}

impl LiveRequests {
    /// Nothing is ever asked.
    pub(crate) fn none(now: Instant) -> Self {
        Self::new(&Features::default(), 1, ANSWER_LIMIT, now)
    }

    /// For a get that begins with `in_force` channels; reports from `next_report` on.
    pub(crate) fn new(
        features: &Features,
        in_force: u32,
        answer_limit: Duration,
        next_report: Instant,
    ) -> Self {
        Self {
            changes: features.live_channels,
            reports: features.live_report,
            in_force,
            requested: in_force,
            wanted: in_force,
            pending: VecDeque::new(),
            answer_limit,
            next_report,
        }
    }

    /// Reports alone, from `next_report` on.
    pub(crate) fn reports(
        features: &Features,
        answer_limit: Duration,
        next_report: Instant,
    ) -> Self {
        Self {
            changes: false,
            ..Self::new(features, 1, answer_limit, next_report)
        }
    }

    /// The transfer shall have this many channels.
    pub(crate) fn want(&mut self, channels: u32) {
        self.wanted = channels;
    }

    /// What is to be asked now of the transfer of this number; the caller sends it and tells
    /// [`Self::asked`].
    pub(crate) fn next(&self, transfer: u64, now: Instant) -> Option<Live> {
        let changes = self.changes && self.wanted != self.requested;
        if changes && self.pending.len() < PENDING_MAX {
            return Some(Live::Channels(self.wanted, transfer));
        }
        let may_report = self.reports && self.pending.is_empty() && self.next_report <= now;
        may_report.then_some(Live::Report)
    }

    pub(crate) fn asked(&mut self, what: Live, id: CommandId, now: Instant) {
        if let Live::Channels(n, _) = what {
            self.requested = n;
        }
        let due = now + self.answer_limit;
        self.pending.push_back(PendingRequest { id, what, due });
    }

    /// Takes a final reply. `None`: it answers something else.
    pub(crate) fn answer(&mut self, id: CommandId, reply: &Reply, now: Instant) -> Option<Answer> {
        let at = self.pending.iter().position(|asked| asked.id == id)?;
        let asked = self.pending.remove(at)?;
        self.next_report = now + REPORT_PAUSE;
        let before = self.in_force;
        // Also where it was not to be had: asking again would give the same answer.
        if let Live::Channels(n, _) = asked.what {
            self.in_force = n;
        }
        if reply.code == NO_TRANSFER {
            return Some(Answer::NoTransfer);
        }
        Some(match LiveReport::from_reply(reply) {
            Some(report) => Answer::Report(Box::new(report.into()), before, self.in_force),
            None => {
                self.stop_asking();
                Answer::Refused
            }
        })
    }

    /// An answer is due.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// The answer that is due has not come in time.
    pub(crate) fn is_overdue(&self, now: Instant) -> bool {
        self.pending.front().is_some_and(|asked| asked.due <= now)
    }

    /// Nothing more is asked or waited for.
    pub(crate) fn stop_asking(&mut self) {
        self.pending.clear();
        self.changes = false;
        self.reports = false;
    }

    /// When the next transfer of the session may ask for a report.
    pub(crate) fn next_report(&self) -> Instant {
        self.next_report
    }

    /// When to look here again.
    pub(crate) fn wake(&self) -> Option<Instant> {
        match self.pending.front() {
            Some(asked) => Some(asked.due),
            None => self.reports.then_some(self.next_report),
        }
    }
}

/// The command that asks.
pub(crate) fn command(what: Live) -> Command {
    Command::Site(Site::Live(what))
}

#[cfg(test)]
mod tests {
    use godwit_proto::ReplyCode;

    use super::*;

    const FIRST: CommandId = CommandId(7);

    fn all(now: Instant) -> LiveRequests {
        let features = Features {
            live_channels: true,
            live_report: true,
            ..Features::default()
        };
        LiveRequests::new(&features, 4, ANSWER_LIMIT, now)
    }

    fn reply(code: u16) -> Reply {
        Reply::new(ReplyCode::of(code), "bytes=10;channels=4;")
    }

    #[test]
    fn changes_do_not_wait_for_answers_and_reports_do() {
        let now = Instant::now();
        let mut live_requests = all(now);
        assert_eq!(live_requests.next(1, now), Some(Live::Report));
        live_requests.asked(Live::Report, FIRST, now);
        assert_eq!(live_requests.next(1, now), None);
        live_requests.want(8);
        assert_eq!(live_requests.next(1, now), Some(Live::Channels(8, 1)));
        let second = CommandId(8);
        live_requests.asked(Live::Channels(8, 1), second, now);
        assert_eq!(live_requests.next(1, now), None);
        assert_eq!(live_requests.answer(CommandId(6), &reply(226), now), None);
        assert!(matches!(
            live_requests.answer(FIRST, &reply(258), now),
            Some(Answer::Report(_, 4, 4))
        ));
        assert_eq!(live_requests.next(1, now + REPORT_PAUSE), None);
        assert!(matches!(
            live_requests.answer(second, &reply(258), now),
            Some(Answer::Report(_, 4, 8))
        ));
        assert_eq!(live_requests.next(1, now), None);
        assert_eq!(
            live_requests.next(1, now + REPORT_PAUSE),
            Some(Live::Report)
        );
    }

    #[test]
    fn commands_without_an_answer_are_few() {
        let now = Instant::now();
        let mut live_requests = all(now);
        for n in (0..).take(PENDING_MAX) {
            live_requests.want(8 + n);
            assert_eq!(live_requests.next(1, now), Some(Live::Channels(8 + n, 1)));
            live_requests.asked(Live::Channels(8 + n, 1), CommandId(u64::from(n)), now);
        }
        live_requests.want(64);
        assert_eq!(live_requests.next(1, now), None);
        live_requests.answer(CommandId(0), &reply(258), now);
        assert_eq!(live_requests.next(1, now), Some(Live::Channels(64, 1)));
    }

    #[test]
    fn a_refusal_or_silence_is_the_last_word() {
        let now = Instant::now();
        let mut live_requests = all(now);
        live_requests.asked(Live::Report, FIRST, now);
        assert!(!live_requests.is_overdue(now) && live_requests.is_overdue(now + ANSWER_LIMIT));
        assert_eq!(live_requests.wake(), Some(now + ANSWER_LIMIT));
        assert_eq!(
            live_requests.answer(FIRST, &reply(500), now),
            Some(Answer::Refused)
        );
        assert_eq!(
            (
                live_requests.next(1, now + ANSWER_LIMIT),
                live_requests.wake()
            ),
            (None, None)
        );
        // Too early or too late is none.
        let mut live_requests = all(now);
        live_requests.want(2);
        live_requests.asked(Live::Channels(2, 1), FIRST, now);
        assert_eq!(
            live_requests.answer(FIRST, &reply(558), now),
            Some(Answer::NoTransfer)
        );
        assert_eq!(live_requests.next(1, now), None, "not again at once");
        assert!(LiveRequests::none(now).next(1, now).is_none());
    }
}
