//! A transfer between two servers, the receiver and the sender of a [`SessionPair`].
//!
//! ```text
//!        ┌─ MODE (TREV) ─ PASV ─► 227 ──────────┬─ STOR ────► 150, 111, 112 ... 226   receiver
//!   here ┤                                      │               ▲ ▲ ▲ data
//!        └─ MODE OPTS ─────────── PORT ─► 200 ──┴─ RETR ────► 150 ............. 226   sender
//! ```
//! Success takes two: the 2xx of both. What the receiver calls safe need not be sent again,
//! whichever end failed.

mod channels;
pub(crate) mod state;

use std::{sync::Arc, time::Duration};

use godwit_engine::{
    control::{ControlError, Event as Spoken},
    data::Sample,
};
use godwit_proto::{
    ByteRange, Command, FtpPath, RangeSet, Reply,
    command::Mode,
    error::TransferFailure,
    pi::{client::CommandId, transfer::Direction},
};
use tokio::time::{Instant, sleep_until, timeout};

use self::{
    channels::ThirdPartyChannels,
    state::{Role, ThirdPartyState},
};
use super::{
    Session, SessionPair,
    transfer::{
        CALLING_OFF_LIMIT, EXPLANATION_LIMIT,
        live_requests::{ANSWER_LIMIT, Answer, LiveRequests},
    },
};
use crate::{
    endpoint::capabilities::{Lack, Observed},
    error::{Error, Result},
    local::{attributes::FileAttributes, journal::SafeRanges},
    report::{
        events::ChannelState,
        progress::{LocalView, RunningTransfer},
    },
};

/// Time for what a sender has sent before it gave up, and for the receiver to say so: half of that
/// in which both must have ended.
const ARRIVAL_LIMIT: Duration = Duration::from_secs(1);

/// A transfer between servers to be run.
pub(crate) struct ThirdPartyPlan<'a> {
    /// Verb and URL of what the receiver does, for messages.
    pub(crate) storing: &'a str,
    /// And of what the sender does.
    pub(crate) retrieving: &'a str,
    /// MODE S even where MODE E would work.
    pub(crate) stream: bool,
    /// Called off where the worker is wanted no more.
    pub(crate) may_be_cut: bool,
    /// Long enough to follow the tuner while it runs, and worth all stripes of its servers.
    pub(crate) long: bool,
    /// ALLO, sent just before; a refusal is ignored. Where the bytes pass through this machine, or
    /// REST behind what the receiver has.
    pub(crate) ahead: Option<Command>,
    /// What the receiver has of a file that passes through this machine in parts.
    pub(crate) safe: Option<Arc<SafeRanges>>,
    /// See [`TransferPlan::stored_as`](crate::session::TransferPlan).
    pub(crate) stored_as: Option<(FtpPath, FileAttributes)>,
    pub(crate) store: Command,
    /// REST for the sender.
    pub(crate) restart: Option<Command>,
    pub(crate) retrieve: Command,
    /// What it is where the bytes pass through this machine.
    pub(crate) passed: PassedRegion,
}

/// Which bytes of a file pass, and where they lie in what the source sends.
#[derive(Clone, Copy)]
pub(crate) struct PassedRegion {
    /// `None`: all there are, whose number is not known.
    pub(crate) region: Option<ByteRange>,
    /// As in [`godwit_engine::data::Sink::File`].
    pub(crate) base: u64,
    pub(crate) stream_start: u64,
    pub(crate) limit: Option<u64>,
    /// The source sends more than these bytes.
    pub(crate) cut: Option<u64>,
}

/// How it went.
pub(crate) struct ThirdPartyOutcome {
    pub(crate) result: Result<()>,
    /// It was called off on its way, since the worker is wanted no more.
    pub(crate) is_cut: bool,
    /// Bytes of the region that the receiver called safe.
    pub(crate) safe: RangeSet,
    /// Bytes that have arrived, where the receiver tells.
    pub(crate) bytes: Option<u64>,
}

impl ThirdPartyOutcome {
    pub(super) fn failed(error: Error) -> Self {
        Self {
            result: Err(error),
            is_cut: false,
            safe: RangeSet::new(),
            bytes: None,
        }
    }
}

/// What was asked of the two.
struct ThirdPartyCommands {
    allo_command: Option<CommandId>,
    store: CommandId,
    restart: Option<CommandId>,
    retrieve: CommandId,
}

impl SessionPair {
    /// Runs a transfer from the sender to the receiver: from one to the other, or within their
    /// service, where they can, else by way of this machine.
    pub(crate) async fn relay(&mut self, plan: ThirdPartyPlan<'_>) -> ThirdPartyOutcome {
        let Self { receiver, sender } = self;
        let Some(sender) = sender else {
            return ThirdPartyOutcome::failed(receiver.not_connected(plan.storing));
        };
        let is_like = receiver.endpoint.is_like(&sender.endpoint);
        let direct = match (is_like, receiver.endpoint.is_http()) {
            (true, true) => receiver.relay_by_copy(sender, &plan).await,
            (true, false) => Some(receiver.relay_from(sender, &plan).await),
            (false, true) => receiver.relay_within_service(sender, &plan).await,
            (false, false) => None,
        };
        match direct {
            Some(outcome) => outcome,
            None => Box::pin(receiver.pass_from(sender, &plan)).await,
        }
    }

    /// A transfer between the two need not end for other channels, and when it is called off, the
    /// receiver has reported what it has, as servers of ours do.
    pub(crate) fn can_call_off(&self) -> bool {
        let sender = self.sender.as_ref();
        self.server.features.live_channels && sender.is_some_and(|s| s.changes_channels())
    }
}

impl Session {
    async fn relay_from(
        &mut self,
        source: &mut Session,
        plan: &ThirdPartyPlan<'_>,
    ) -> ThirdPartyOutcome {
        if let Some(error) = self.endpoint.capabilities.data(true).given_up() {
            return ThirdPartyOutcome::failed(error);
        }
        let parallelism = self.channels_to_begin_with(source, plan.long);
        source.data.params.parallelism = parallelism;
        self.context
            .counters
            .on_transfer_start(source.round_trip.max(self.round_trip));
        let striped = plan.long && source.sends_striped(&plan.retrieve, plan.restart.is_some());
        let made = self
            .make_channels_between(source, plan.stream, striped, plan.storing)
            .await;
        let between = match made {
            Ok(made) => made,
            Err(error) => return ThirdPartyOutcome::failed(error),
        };
        let asked = ThirdPartyCommands {
            allo_command: plan.ahead.as_ref().map(|c| self.control.submit(c)),
            store: self.control.submit(&plan.store),
            restart: plan.restart.as_ref().map(|c| source.control.submit(c)),
            retrieve: source.control.submit(&plan.retrieve),
        };
        let mut relay = ThirdPartyTransfer {
            live_requests: source.live_requests_of_sender(between.mode, parallelism),
            running: RunningTransfer::new(&self.context.counters, LocalView::Nothing),
            relaying: ThirdPartyState::default(),
            plan,
            asked,
            between,
            last_activity: Instant::now(),
            reported: None,
            stopped: false,
            cut: false,
            stalled: false,
            unanswered: false,
            receiver: self,
            sender: source,
        };
        relay.run().await;
        relay.end()
    }

    /// The target's, or those that are there, where the sender can change them while it sends
    /// `long` enough: new ones would have to find their windows again.
    fn channels_to_begin_with(&self, source: &Session, long: bool) -> u32 {
        let there =
            self.server.can_reuse(Direction::Put) && source.server.can_reuse(Direction::Get);
        let kept = source
            .server
            .parallelism
            .filter(|_| long && there && source.changes_channels());
        kept.unwrap_or_else(|| self.channels_wanted())
    }

    /// Its server opens and retires channels while it sends.
    fn changes_channels(&self) -> bool {
        self.server.features.live_channels && !self.endpoint.capabilities.lacks(Lack::LiveRequests)
    }

    /// What may be asked of the sender while it sends: the channels are its to open.
    fn live_requests_of_sender(&self, mode: Mode, channels: u32) -> LiveRequests {
        let now = Instant::now();
        if mode != Mode::ExtendedBlock || self.endpoint.capabilities.lacks(Lack::LiveRequests) {
            return LiveRequests::none(now);
        }
        let limit = ANSWER_LIMIT.min(self.context.connections.stall_limit);
        let channels = self.channels_of(mode, self.server.parallelism.unwrap_or(channels));
        LiveRequests::new(
            &self.server.features,
            channels,
            limit,
            self.data.next_report,
        )
    }
}

/// A transfer between two servers that runs.
struct ThirdPartyTransfer<'a> {
    receiver: &'a mut Session,
    sender: &'a mut Session,
    plan: &'a ThirdPartyPlan<'a>,
    asked: ThirdPartyCommands,
    between: ThirdPartyChannels,
    relaying: ThirdPartyState,
    live_requests: LiveRequests,
    running: RunningTransfer,
    /// When something last moved.
    last_activity: Instant,
    /// Bytes that the sender has sent, where it tells.
    reported: Option<u64>,
    stopped: bool,
    /// The worker is wanted no more.
    cut: bool,
    stalled: bool,
    /// The sender owes the answer to an aside and does not give it.
    unanswered: bool,
}

impl ThirdPartyTransfer<'_> {
    async fn run(&mut self) {
        let stop = self.receiver.context.stop.clone();
        let stall_limit = self.receiver.context.connections.stall_limit;
        let explanation_limit = EXPLANATION_LIMIT.min(stall_limit);
        let mut target = self.receiver.context.target.subscribe();
        target.mark_changed();
        let mut explanation_due = None;
        while !self.stopped && !self.cut && !self.stalled && !self.is_complete() {
            if self.relaying.waits_for_receiver() && explanation_due.is_none() {
                explanation_due = Some(Instant::now() + explanation_limit);
            }
            self.unanswered |= self.sender.poll_live_requests(
                &mut self.live_requests,
                self.asked.retrieve,
                self.relaying.flows(),
            );
            let wakes = self.relaying.flows() || self.live_requests.is_waiting();
            let wake = self.live_requests.wake().filter(|_| wakes);
            let stall_due = self.last_activity + stall_limit;
            let later = Instant::now() + stall_limit;
            let explained = explanation_due.unwrap_or(later);
            let silence_means_idle = self.relaying.silence_means_idle();
            let receives = self.relaying.is_due(Role::Receiver);
            let sends = self.relaying.is_due(Role::Sender) || self.live_requests.is_waiting();
            tokio::select! {
                spoken = self.receiver.control.next_event(), if receives => {
                    self.on_reply(Role::Receiver, spoken);
                }
                spoken = self.sender.control.next_event(), if sends => {
                    self.on_reply(Role::Sender, spoken);
                }
                Ok(()) = target.changed(), if self.relaying.flows() => {
                    let target = *target.borrow_and_update();
                    let wanted = self.receiver.channels_wanted();
                    self.live_requests.want(self.sender.channels_of(self.between.mode, wanted));
                    self.cut = self.plan.may_be_cut && !target.includes(self.receiver.data.place);
                }
                () = sleep_until(wake.unwrap_or(later)), if wake.is_some() => {}
                () = sleep_until(stall_due), if silence_means_idle => self.stalled = true,
                () = sleep_until(explained), if explanation_due.is_some() => return,
                () = stop.cancelled() => self.stopped = true,
            }
        }
        if self.stopped || self.cut {
            // A server that does not answer is given up.
            let _ = timeout(CALLING_OFF_LIMIT, self.call_off()).await;
        }
    }

    /// Has both servers give up, and hears what they say of it. The sender first: what it has sent
    /// arrives then, and need not come again.
    async fn call_off(&mut self) {
        let arrived = match self.relaying.flows() {
            true => Instant::now() + ARRIVAL_LIMIT,
            false => Instant::now(),
        };
        let mut asked = Vec::new();
        self.abort(Role::Sender, &mut asked);
        while !asked.is_empty() || self.relaying.is_due(Role::Receiver) {
            let waits = |of| asked.iter().any(|(side, _)| *side == of);
            let (sender, reported) = (waits(Role::Sender), waits(Role::Receiver));
            let due = self.relaying.is_due(Role::Receiver);
            let (side, spoken) = tokio::select! {
                heard = self.receiver.control.next_event(), if reported || due => {
                    (Role::Receiver, heard)
                }
                heard = self.sender.control.next_event(), if sender => (Role::Sender, heard),
                () = sleep_until(arrived), if due && !reported => {
                    self.abort(Role::Receiver, &mut asked);
                    continue;
                }
            };
            asked.retain(|(of, id)| match &spoken {
                Ok(Spoken::Final(heard, _)) => *of != side || id != heard,
                Ok(Spoken::Preliminary(..)) => true,
                Err(_) => *of != side,
            });
            self.on_reply(side, spoken);
        }
    }

    /// Tells a server to give up, where it has anything to.
    fn abort(&mut self, side: Role, asked: &mut Vec<(Role, CommandId)>) {
        if self.relaying.is_due(side) {
            let id = self.session(side).control.submit(&Command::Abor);
            asked.push((side, id));
        }
    }

    /// An answer to an aside is a round trip away at most, and cheaper than to tell it later from
    /// the reply to another command.
    fn is_complete(&self) -> bool {
        self.relaying.is_over() && !(self.live_requests.is_waiting() && self.sender.is_usable())
    }

    fn on_reply(&mut self, side: Role, spoken: std::result::Result<Spoken, ControlError>) {
        let doing = match side {
            Role::Receiver => self.plan.storing,
            Role::Sender => self.plan.retrieving,
        };
        let transfer = match side {
            Role::Receiver => self.asked.store,
            Role::Sender => self.asked.retrieve,
        };
        match spoken {
            Ok(Spoken::Preliminary(of, reply)) if of == transfer => self.on_begun(side, &reply),
            Ok(Spoken::Preliminary(..)) => {}
            Ok(Spoken::Final(of, reply)) if of == transfer => {
                if reply.code.get() == 421 {
                    self.session(side).broken = true;
                }
                self.last_activity = Instant::now();
                self.relaying.on_final_reply(side, reply, doing);
            }
            Ok(Spoken::Final(of, reply)) => self.on_other_reply(side, of, reply),
            Err(error) => {
                self.session(side).broken = true;
                if side == Role::Sender {
                    self.live_requests.stop_asking();
                }
                if self.relaying.is_due(side) {
                    let doing = doing.to_owned();
                    self.relaying.fail(side, Error::Control { doing, error });
                }
            }
        }
    }

    fn on_begun(&mut self, side: Role, reply: &Reply) {
        let flowed = self.relaying.flows();
        if self.relaying.on_preliminary(side, reply) {
            self.last_activity = Instant::now();
        }
        let flows = self.relaying.flows();
        if flows && !flowed && !self.between.reused && self.between.mode == Mode::ExtendedBlock {
            self.sender
                .report_channels(ChannelState::Opened, self.channels());
        }
        // The sender's report is newer, and says more.
        if flows && self.reported.is_none() {
            self.running.report(Sample {
                bytes: self.relaying.bytes().unwrap_or(0),
                channels: self.channels(),
                ..Sample::default()
            });
        }
    }

    /// As many as it begins with.
    fn channels(&self) -> u32 {
        let parallelism = self.sender.data.params.parallelism;
        self.sender.channels_of(self.between.mode, parallelism)
    }

    /// A reply to something beside the transfer.
    fn on_other_reply(&mut self, side: Role, of: CommandId, reply: Reply) {
        if side == Role::Receiver {
            if Some(of) == self.asked.allo_command {
                self.receiver.on_allo_reply(&reply);
            }
        } else if Some(of) == self.asked.restart {
            // Without REST the transfer that follows is another one than we think.
            if !reply.code.is_intermediate() {
                let error = Error::refused(self.plan.retrieving, reply);
                self.relaying.fail(side, error);
            }
        } else {
            match self.live_requests.answer(of, &reply, Instant::now()) {
                Some(Answer::Report(sample, before, after)) => {
                    self.on_report(&sample, before, after)
                }
                Some(Answer::Refused) => self.sender.disable_live_requests(&reply),
                Some(Answer::NoTransfer) | None => {}
            }
        }
    }

    fn on_report(&mut self, sample: &Sample, before: u32, after: u32) {
        if self.reported.is_none_or(|known| known < sample.bytes) {
            self.last_activity = Instant::now();
            self.reported = Some(sample.bytes);
        }
        self.running.report(*sample);
        if before != after {
            let sender = &mut *self.sender;
            sender.report_channel_change(before, after);
            sender.server.parallelism = Some(after / sender.server.stripes.max(1));
        }
    }

    /// Why one of the two could not connect to the other, where that was it.
    fn unreached(&self) -> Option<String> {
        let connects = self.between.awaits_final_reply.other();
        if self.between.reused {
            None
        } else if self.stalled {
            let limit = self.receiver.context.connections.stall_limit.as_secs();
            let silent = self.relaying.never_began(connects);
            silent.then(|| format!("no connection within {limit} s"))
        } else {
            self.relaying.unconnected(connects)
        }
    }

    /// The next attempt goes the other way, unless this one was seen to lead there.
    fn learn_unreached(&mut self, why: &str) {
        let connects = self.between.awaits_final_reply.other();
        let from = self.session(connects).endpoint.name();
        let listener = self.session(self.between.awaits_final_reply);
        let capabilities = &listener.endpoint.capabilities;
        if !capabilities.has(Observed::MetByServer)
            && capabilities.unreached.set(why.to_owned()).is_ok()
        {
            listener.context.reporter.note(format!(
                "{}: {from} cannot connect to it: it is to connect itself, with one data channel a \
                 file (MODE S): {why}",
                listener.endpoint.name()
            ));
        }
    }

    fn end(mut self) -> ThirdPartyOutcome {
        let unreached = self.unreached();
        if let Some(why) = &unreached {
            self.learn_unreached(why);
        }
        let Self {
            receiver,
            sender,
            plan,
            ..
        } = self;
        let over = self.relaying.is_over();
        // Not every receiver waits with its last word for the last report of each stripe.
        let may_miss = sender.server.stripes > 1;
        let wanted = plan.passed.region.map(ByteRange::len);
        let (failure, told) = self.relaying.end();
        // It may have ended by itself just then.
        let is_cut = self.cut && !self.stopped && !(over && failure.is_none());
        let result = if self.stopped {
            Err(Error::Interrupted)
        } else if is_cut {
            Ok(())
        } else if let Some(why) = unreached {
            Err(Error::Transfer {
                doing: plan.storing.to_owned(),
                failure: TransferFailure::NoConnection(why),
            })
        } else if self.stalled {
            let limit = receiver.context.connections.stall_limit.as_secs();
            Err(Error::Transfer {
                doing: plan.storing.to_owned(),
                failure: TransferFailure::ConnectionLost(format!(
                    "nothing moved between the two servers for {limit} s"
                )),
            })
        } else {
            failure.map_or(Ok(()), Err)
        };
        if result.is_ok() || told.bytes().is_some_and(|bytes| bytes > 0) {
            receiver.endpoint.capabilities.data(true).worked();
        }
        if result.is_ok() && !is_cut {
            let listener = match self.between.awaits_final_reply {
                Role::Receiver => &receiver.endpoint,
                Role::Sender => &sender.endpoint,
            };
            listener.capabilities.record(Observed::MetByServer);
            receiver.server.transfer_done(Direction::Put, true);
            sender.server.transfer_done(Direction::Get, true);
            sender.broken |= self.unanswered;
        } else {
            // One of the two may still wait for the other, and nothing else ends that.
            receiver.broken = true;
            sender.broken = true;
        }
        ThirdPartyOutcome {
            result,
            is_cut,
            bytes: (told.bytes()).filter(|bytes| !may_miss || wanted.is_none_or(|n| n <= *bytes)),
            safe: told.safe,
        }
    }

    fn session(&mut self, side: Role) -> &mut Session {
        match side {
            Role::Receiver => self.receiver,
            Role::Sender => self.sender,
        }
    }
}
