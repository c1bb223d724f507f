//! One transfer command with its data, to the end of both.
//!
//! Success takes two: the data plane's "all bytes moved" and the server's 2xx. Either alone is a
//! failure, whichever came first, and a 2xx after we gave up is none.

pub(crate) mod channels;
mod data_address;
pub(crate) mod live_requests;
pub(crate) mod prefetch;
pub(super) mod state;
pub(crate) mod stripes;

use std::{sync::Arc, time::Duration};

use godwit_engine::{
    control::Event as Spoken,
    data::{Monitor, Steered, Transfer, TransferEvent, TransferJob, TransferReport},
};
use godwit_proto::{
    Command, FtpPath, RangeSet, Reply,
    command::Mode,
    error::TransferFailure,
    pi::{client::CommandId, transfer::Direction},
};
use tokio::time::{Instant, sleep_until};

use self::{
    live_requests::{ANSWER_LIMIT, Answer, LiveRequests},
    state::TransferState,
};
use super::{NextTransfer, Prefetched, Session};
use crate::{
    endpoint::capabilities::Lack,
    error::{Error, Result, most_informative},
    local::{attributes::FileAttributes, journal::SafeRanges},
    passing::Side,
    report::{
        events::{ChannelState, Event},
        progress::{LocalView, RunningTransfer},
    },
};

/// Time that a server has to explain itself after the data plane has failed. Its words are worth a
/// wait, not a hang.
pub(super) const EXPLANATION_LIMIT: Duration = Duration::from_secs(10);

/// Time that a server has to end a transfer that the user has interrupted: the user at the
/// terminal shall not wait long.
pub(super) const CALLING_OFF_LIMIT: Duration = Duration::from_secs(2);

/// Time for an aborted transfer to let go of standard input or output.
const LETTING_GO_LIMIT: Duration = Duration::from_secs(1);

/// Nothing is asked of a transfer that ends within so many round trips: the answer would be late,
/// and is waited for.
const ASIDE_ROUND_TRIPS: f64 = 2.0;

/// Requests of HTTP have no monitor.
pub(crate) type Began<'a> = dyn Fn(Option<&Monitor>) + 'a;

/// A transfer to be run.
pub(crate) struct TransferPlan<'a> {
    /// Verb and URL for messages.
    pub(crate) doing: &'a str,
    pub(crate) direction: Direction,
    /// MODE S even where MODE E would work.
    pub(crate) stream: bool,
    /// Of a file that is worth all stripes of its server.
    pub(crate) striped: bool,
    /// ALLO, sent just before, whose refusal is ignored; or REST, whose reply is waited for:
    /// without it the transfer that follows is another one.
    pub(crate) ahead: Option<Command>,
    pub(crate) command: Command,
    /// Bytes that will come, where that is known.
    pub(crate) length: Option<u64>,
    /// The transfer that follows on this session for certain.
    pub(crate) next: Option<NextTransfer>,
    /// Our end is standard input or output, which may block a mover for ever.
    pub(crate) may_block: bool,
    /// Counts for the progress display, and follows the target.
    pub(crate) counts: bool,
    /// A get whose bytes go on to another server: the transfer that sends them on is shown, and
    /// keeps to the rate limit.
    pub(crate) feeds: bool,
    /// A put that ends early where its worker is wanted no more: what is left can be sent by
    /// others.
    pub(crate) may_be_cut: bool,
    /// A get that ends when `length` bytes are here: the server has more, and what it says when we
    /// go is no failure.
    pub(crate) is_cut: bool,
    /// Told once the server has begun.
    pub(crate) began: Option<&'a Began<'a>>,
    /// Which bytes of the file are at its destination, where only this side keeps account.
    pub(crate) safe: Option<&'a Arc<SafeRanges>>,
    /// Of a put: the final name of what has a temporary one, and its attributes, for servers that
    /// want them first.
    pub(crate) stored_as: Option<(FtpPath, FileAttributes)>,
}

impl<'a> TransferPlan<'a> {
    /// The progress display counts its bytes.
    pub(crate) fn is_shown(&self) -> bool {
        self.counts && !self.feeds
    }

    /// It sends parts of an upload to a bucket of which other jobs send others.
    pub(crate) fn is_divided(&self) -> bool {
        let is_part = matches!(self.ahead, Some(Command::Rest(_)));
        is_part && self.safe.is_none() && self.stored_as.is_some()
    }

    /// Of names in a directory, which are few and are not counted.
    pub(crate) fn listing(command: Command, doing: &'a str) -> Self {
        Self {
            doing,
            direction: Direction::Get,
            stream: true,
            striped: false,
            ahead: None,
            command,
            length: None,
            next: None,
            may_block: false,
            counts: false,
            feeds: false,
            may_be_cut: false,
            is_cut: false,
            began: None,
            safe: None,
            stored_as: None,
        }
    }
}

/// How it went.
pub(crate) struct TransferOutcome {
    /// `None` where it never began.
    pub(crate) report: Option<TransferReport>,
    /// Bytes of the region that the server has said to be on its storage.
    pub(crate) safe: RangeSet,
    /// The server's last word, where there was one.
    pub(crate) reply: Option<Reply>,
    pub(crate) result: Result<()>,
}

impl TransferOutcome {
    /// Nothing was moved.
    pub(crate) fn never_began(error: Error) -> Self {
        Self {
            report: None,
            safe: RangeSet::new(),
            reply: None,
            result: Err(error),
        }
    }
}

impl Session {
    /// Runs a transfer. `job` is made for the mode that the channels turn out to have.
    pub(crate) async fn transfer(
        &mut self,
        plan: TransferPlan<'_>,
        job: impl FnOnce(Mode) -> TransferJob,
    ) -> TransferOutcome {
        if !self.is_usable() {
            return TransferOutcome::never_began(self.not_connected(plan.doing));
        }
        if let Some(error) = self.endpoint.capabilities.data(false).given_up() {
            return TransferOutcome::never_began(error);
        }
        self.data.side = match plan.feeds {
            true => Side::Source,
            false => Side::Destination,
        };
        if self.endpoint.is_http() {
            return Box::pin(self.transfer_by_requests(plan, job(Mode::Stream))).await;
        }
        if plan.counts {
            self.context.counters.on_transfer_start(self.round_trip);
            self.data.params.parallelism = self.parallelism_for(plan.direction);
        }
        let prefetched = self.take_pipelined(&plan);
        let made = match &prefetched {
            Some(_) => Ok(Mode::ExtendedBlock),
            None if self.broken => Err(self.not_connected(plan.doing)),
            None => {
                self.make_channels(plan.direction, plan.stream, plan.striped, plan.doing)
                    .await
            }
        };
        let mode = match made {
            Ok(mode) => mode,
            Err(error) => return TransferOutcome::never_began(error),
        };
        if let (None, Some(rest @ Command::Rest(_))) = (&prefetched, &plan.ahead)
            && let Err(error) = Box::pin(self.ask_ok(rest, plan.doing)).await
        {
            return TransferOutcome::never_began(error);
        }
        let Some(set) = &self.data.set else {
            return TransferOutcome::never_began(self.not_connected(plan.doing));
        };
        let live_requests = self.live_requests(&plan, mode, set.cached());
        let mut prefetched = prefetched;
        let begun = prefetched.as_mut().and_then(|p| p.sending.take());
        let (transfer, running) = match begun {
            Some((transfer, running)) => (transfer, Some(running)),
            None => {
                let transfer = set.start(job(mode), mode);
                let here = || LocalView::Transfer(transfer.monitor());
                let running = plan
                    .is_shown()
                    .then(|| RunningTransfer::new(&self.context.counters, here()));
                (transfer, running)
            }
        };
        self.control.data_moves(Some(true));
        let state = self
            .drive(
                &plan,
                mode,
                prefetched,
                transfer,
                live_requests,
                running.as_ref(),
            )
            .await;
        self.control.data_moves(None);
        drop(running);
        self.evaluate(&plan, mode, state)
    }

    /// The target's data channels, as far as the server takes them.
    pub(crate) fn channels_wanted(&self) -> u32 {
        let target = self.context.target.now().of(self.data.side);
        (self.endpoint.capabilities).fit_channels(target.parallelism)
    }

    /// Channels to begin with: the target's, or those that are there, where the server can change
    /// them while it sends. New ones would have to find their windows again.
    fn parallelism_for(&self, direction: Direction) -> u32 {
        let wanted = self.channels_wanted();
        let there = self.server.can_reuse(direction)
            && self.data.set.as_ref().is_some_and(|set| set.cached() > 0);
        let live_requests = direction == Direction::Get
            && self.server.features.live_channels
            && !self.endpoint.capabilities.lacks(Lack::LiveRequests);
        match self.server.parallelism {
            Some(parallelism) if there && live_requests => parallelism,
            _ => wanted,
        }
    }

    async fn drive(
        &mut self,
        plan: &TransferPlan<'_>,
        mode: Mode,
        prefetched: Option<Prefetched>,
        mut transfer: Transfer,
        mut live_requests: LiveRequests,
        running: Option<&RunningTransfer>,
    ) -> TransferState {
        let mut state = TransferState {
            parallelism: self.data.params.parallelism,
            ..TransferState::default()
        };
        let monitor = transfer.monitor();
        let ahead;
        let id = match prefetched {
            Some(prefetched) => {
                ahead = prefetched.ahead;
                state.started = prefetched.started;
                if prefetched.started
                    && let Some(began) = plan.began
                {
                    began(Some(&monitor));
                }
                if prefetched
                    .reply
                    .as_ref()
                    .is_some_and(|r| r.code.is_failure())
                {
                    transfer.abort();
                }
                state.reply = prefetched.reply;
                prefetched.id
            }
            None => {
                let allo_command = (plan.ahead.as_ref()).filter(|c| matches!(c, Command::Allo(_)));
                ahead = allo_command.map(|c| self.control.submit(c));
                self.control.submit(&plan.command)
            }
        };
        let stop = self.context.stop.clone();
        let explanation_limit = EXPLANATION_LIMIT.min(self.context.connections.stall_limit);
        let began = Instant::now();
        let mut target = self.context.target.subscribe();
        target.mark_changed();
        let mut explanation_due = None;
        let mut letting_go_due = None;
        loop {
            let asks = state.flows() && !self.ends_soon(plan, &monitor, began);
            // The transfer is not to blame for silence; but whatever is asked behind it could not
            // be told from the answer.
            state.unanswered |= self.poll_live_requests(&mut live_requests, id, asks);
            if state.is_complete(&live_requests) {
                return state;
            }
            if state.is_healthy() {
                match &state.report {
                    None => self.send_next(plan, mode),
                    Some(report) => self.begin_next(plan, mode, report),
                }
            }
            let due = explanation_due.unwrap_or_else(Instant::now);
            if plan.may_block && state.was_aborted() && letting_go_due.is_none() {
                letting_go_due = Some(Instant::now() + LETTING_GO_LIMIT);
            }
            let let_go = letting_go_due.unwrap_or_else(Instant::now);
            let wake = live_requests
                .wake()
                .filter(|_| asks || live_requests.is_waiting());
            let awaits_reply = state.awaits_reply(&live_requests);
            tokio::select! {
                spoken = self.control.next_event(), if awaits_reply => match spoken {
                    Ok(Spoken::Preliminary(of, _)) if of == id && !state.started => {
                        state.started = true;
                        if let Some(began) = plan.began {
                            began(Some(&monitor));
                        }
                    }
                    Ok(Spoken::Preliminary(of, mark)) if of == id => state.on_preliminary(&mark),
                    Ok(Spoken::Preliminary(of, _)) => {
                        self.on_prefetched_reply(of, None);
                    }
                    Ok(Spoken::Final(of, reply)) if of == id => {
                        if reply.code.is_failure() {
                            give_up(&transfer, state.started);
                        }
                        state.reply = Some(reply);
                    }
                    Ok(Spoken::Final(of, reply)) => {
                        if self.on_prefetched_reply(of, Some(&reply)) {
                            // Its turn comes.
                        } else if Some(of) == state.aborting {
                            state.aborting = None;
                        } else if Some(of) == ahead {
                            self.on_allo_reply(&reply);
                        } else {
                            let answer = live_requests.answer(of, &reply, Instant::now());
                            self.answered(answer, &reply, &mut state, running);
                        }
                    }
                    Err(error) => {
                        self.broken = true;
                        if live_requests.is_waiting() {
                            self.disable_live_requests(&error);
                            live_requests.stop_asking();
                        }
                        if !state.awaits_final_reply() {
                            // The transfer has its reply; only an aside was due.
                            continue;
                        }
                        give_up(&transfer, state.started);
                        state.lost = Some(Error::Control {
                            doing: plan.doing.to_owned(),
                            error,
                        });
                    }
                },
                Ok(()) = target.changed(), if plan.counts && state.flows() => {
                    let target = *target.borrow_and_update();
                    if plan.may_be_cut && !target.includes(self.data.place) {
                        monitor.cut();
                    } else {
                        let wanted = self.channels_wanted();
                        state.set_parallelism(plan.direction, wanted);
                        self.follow(plan, &monitor, &mut live_requests, wanted);
                    }
                }
                event = transfer.next_event(), if state.report.is_none() => match event {
                    TransferEvent::Ready { reused } => {
                        state.reused = reused;
                        // A receiver hears of its first channel only: its channels are counted at
                        // the end.
                        if !reused && plan.direction == Direction::Put && !plan.stream {
                            // Some of them may have ended before we hear of it.
                            state.channels_told = monitor.channels_peak();
                            self.report_channels(ChannelState::Opened, state.channels_told);
                        }
                    }
                    TransferEvent::Done(report) => {
                        self.control.data_moves(Some(false));
                        if let Err(TransferFailure::NoConnection(_)) = report.result
                            && state.reply.is_none()
                            && self.server_listens(plan.direction, mode)
                        {
                            // It would wait for us as long as it waits for anybody.
                            state.gave_up = true;
                            state.aborting = Some(self.control.submit(&Command::Abor));
                        }
                        if (report.result.is_err() || plan.is_cut) && !state.stopped {
                            explanation_due = Some(Instant::now() + explanation_limit);
                        }
                        state.report = Some(report);
                    }
                },
                () = sleep_until(wake.unwrap_or(due)), if wake.is_some() => {}
                () = sleep_until(due), if explanation_due.is_some() => {
                    state.mute = true;
                    explanation_due = None;
                }
                () = sleep_until(let_go), if letting_go_due.is_some() => state.stuck = true,
                () = stop.cancelled(), if !state.stopped => {
                    state.stopped = true;
                    live_requests.stop_asking();
                    give_up(&transfer, state.started);
                    if state.awaits_final_reply() {
                        state.gave_up = true;
                        state.aborting = Some(self.control.submit(&Command::Abor));
                        explanation_due = Some(Instant::now() + CALLING_OFF_LIMIT);
                    }
                }
            }
        }
    }

    /// The target has changed, or the server has just begun: brings the channels of the running
    /// transfer to it.
    fn follow(
        &self,
        plan: &TransferPlan<'_>,
        monitor: &Monitor,
        live_requests: &mut LiveRequests,
        channels: u32,
    ) {
        match plan.direction {
            Direction::Put => {
                let channels = self.channels_of(Mode::ExtendedBlock, channels);
                let Steered { opened, retired } = monitor.steer(channels);
                self.report_channels(ChannelState::Opened, opened);
                self.report_channels(ChannelState::Retired, retired);
            }
            // The server connects: where it answers no live requests, the next transfer follows.
            Direction::Get => live_requests.want(channels),
        }
    }

    /// What may be asked of the server while this transfer runs, on `cached` connections if there
    /// are any.
    fn live_requests(&self, plan: &TransferPlan<'_>, mode: Mode, cached: usize) -> LiveRequests {
        let now = Instant::now();
        let is_get = plan.counts && plan.direction == Direction::Get;
        if !is_get
            || mode != Mode::ExtendedBlock
            || self.endpoint.capabilities.lacks(Lack::LiveRequests)
        {
            return LiveRequests::none(now);
        }
        let channels = match u32::try_from(cached) {
            Ok(0) | Err(_) => self.data.params.parallelism,
            // What is asked for is for each stripe.
            Ok(cached) => cached.div_ceil(self.server.stripes.max(1)),
        };
        let limit = ANSWER_LIMIT.min(self.context.connections.stall_limit);
        LiveRequests::new(
            &self.server.features,
            channels,
            limit,
            self.data.next_report,
        )
    }

    /// Asks what is to be asked of `transfer`; gives up an answer that does not come, and says so.
    pub(super) fn poll_live_requests(
        &mut self,
        live_requests: &mut LiveRequests,
        transfer: CommandId,
        asks: bool,
    ) -> bool {
        let now = Instant::now();
        let overdue = live_requests.is_overdue(now);
        if overdue {
            live_requests.stop_asking();
            self.disable_live_requests(&"no answer");
        }
        if asks
            && let Some(transfer) = self.control.transfer_number(transfer)
            && let Some(what) = live_requests.next(transfer, now)
        {
            let id = self.control.submit(&live_requests::command(what));
            live_requests.asked(what, id, now);
        }
        self.data.next_report = live_requests.next_report();
        overdue
    }

    /// A get whose server has sent the last byte before it hears a question.
    #[allow(clippy::cast_precision_loss)] // an estimate
    fn ends_soon(&self, plan: &TransferPlan<'_>, monitor: &Monitor, began: Instant) -> bool {
        let moved = monitor.progress().bytes;
        let Some(left) = plan.length.and_then(|length| length.checked_sub(moved)) else {
            return false;
        };
        let soon = ASIDE_ROUND_TRIPS * self.round_trip.as_secs_f64();
        (left as f64) * began.elapsed().as_secs_f64() < soon * moved as f64
    }

    fn answered(
        &mut self,
        answer: Option<Answer>,
        reply: &Reply,
        state: &mut TransferState,
        running: Option<&RunningTransfer>,
    ) {
        match answer {
            Some(Answer::Report(sample, before, after)) => {
                if let Some(running) = running {
                    running.report(*sample);
                }
                if before != after {
                    if !state.reused && state.channels_told == 0 {
                        state.channels_told = before;
                        self.report_channels(ChannelState::Opened, before);
                    }
                    self.report_channel_change(before, after);
                    self.server.parallelism = Some(after);
                }
            }
            Some(Answer::NoTransfer) | None => {}
            Some(Answer::Refused) => self.disable_live_requests(reply),
        }
    }

    pub(crate) fn disable_live_requests(&self, why: &dyn std::fmt::Display) {
        self.endpoint.capabilities.learn(
            Lack::LiveRequests,
            &self.context.reporter,
            format!(
                "{}: no SITE GODWIT after all: channels of running gets stay as they are ({why})",
                self.endpoint.name()
            ),
        );
    }

    /// What ALLO was answered.
    pub(super) fn on_allo_reply(&self, reply: &Reply) {
        if reply.code.is_failure() {
            self.lesson(Lack::Allo, reply, "ALLO", "space is not set aside");
        }
    }

    fn evaluate(
        &mut self,
        plan: &TransferPlan<'_>,
        mode: Mode,
        state: TransferState,
    ) -> TransferOutcome {
        if state.unanswered
            || state.aborting.is_some()
            || state.reply.is_none()
            || state.reply.as_ref().is_some_and(|r| r.code.get() == 421)
        {
            self.broken = true;
        }
        self.report_final_channels(plan, &state);
        // A server that refuses or goes away may have closed its port before we were there.
        let waited = (state.reply.as_ref())
            .is_some_and(|r| r.code.is_success() || matches!(r.code.get(), 425 | 426));
        if let Some(report) = state.report.as_ref().filter(|_| waited)
            && self.server_listens(plan.direction, mode)
        {
            self.learn_of_ports(&report.result);
        }
        let received =
            plan.direction == Direction::Get && state.report.as_ref().is_some_and(|r| r.bytes > 0);
        if received || !state.safe.is_empty() {
            self.endpoint.capabilities.data(false).worked();
        }
        let doing = || plan.doing.to_owned();
        let said = state.reply.clone();
        let too_many_from = state.too_many_from();
        let mut errors = Vec::new();
        if state.stopped {
            errors.push(Error::Interrupted);
        }
        if let Some(Err(failure)) = state.report.as_ref().map(|r| r.result.clone()) {
            errors.push(Error::Transfer {
                doing: doing(),
                failure: self.with_remedy(failure),
            });
        }
        // The answer to ABOR explains nothing.
        let is_answer = |r: &Reply| state.gave_up && r.code.get() == 426;
        // Nor do those of a server that we have left when we had what we wanted.
        let was_left = plan.is_cut
            && (state.report.as_ref())
                .is_some_and(|r| r.result.is_ok() && Some(r.bytes) == plan.length);
        let refusal = (state.reply).filter(|r| !r.code.is_success() && !is_answer(r) && !was_left);
        if let Some(reply) = refusal {
            errors.push(Error::Refused {
                doing: doing(),
                reply: Box::new(reply),
                started: state.started,
            });
        }
        errors.extend(state.lost);
        if let Some(before) = too_many_from.filter(|_| !errors.is_empty()) {
            self.context.target.channels_refused(&self.endpoint, before);
        }
        let cached = state.report.as_ref().map_or(0, |r| r.cached);
        self.check_pipelined(errors.is_empty() && cached > 0);
        let result = match most_informative(errors) {
            None => {
                self.endpoint.capabilities.data(false).worked();
                self.server.transfer_done(plan.direction, cached > 0);
                Ok(())
            }
            Some(error) => {
                // The two ends may differ about the connections now: start with new ones.
                self.server.forget();
                Err(error)
            }
        };
        if result.is_err() || mode == Mode::Stream {
            self.data.set = None;
        }
        TransferOutcome {
            report: state.report,
            safe: state.safe,
            reply: said,
            result,
        }
    }

    fn report_final_channels(&self, plan: &TransferPlan<'_>, state: &TransferState) {
        let Some(report) = &state.report else { return };
        if !plan.stream && !state.reused && state.channels_told == 0 {
            self.report_channels(ChannelState::Opened, report.channels_peak);
        }
        if let Err(TransferFailure::ConnectionLost(_)) = report.result {
            self.report_channels(ChannelState::Lost, report.channels_peak);
        }
    }

    /// There were `before` channels and are `after`.
    pub(crate) fn report_channel_change(&self, before: u32, after: u32) {
        self.report_channels(ChannelState::Opened, after.saturating_sub(before));
        self.report_channels(ChannelState::Retired, before.saturating_sub(after));
    }

    pub(crate) fn report_channels(&self, state: ChannelState, count: u32) {
        if count > 0 {
            self.context.reporter.emit(&Event::Channel {
                state,
                count,
                endpoint: self.endpoint.name(),
            });
        }
    }
}

/// The server is gone or has failed. What it has sent until then is taken, where it has begun to.
fn give_up(transfer: &Transfer, started: bool) {
    match started {
        true => transfer.drain(),
        false => transfer.abort(),
    }
}
