//! Small files through one session, many in flight: nothing that is asked for one of them stops the
//! stream of the others.
//!
//! The first begins on data channels that carried a file already, so that nothing about them is
//! left to be found out. Gets behind it send what makes new channels in front of their files,
//! without waiting for the answers. Whatever cannot be told for certain of a file is left to the
//! path of single files: the item goes back, and is neither done nor failed. Where it is doubtful
//! which bytes are whose, the session is given up.

mod outcome;

use std::{collections::VecDeque, sync::atomic::Ordering, time::Duration};

use godwit_engine::{
    control::{ControlError, Event as Spoken},
    data::TransferReport,
};
use godwit_proto::{
    Command, FtpPath, Reply,
    error::{FailureKind, TransferFailure, failure_kind},
    pi::{client::CommandId, transfer::Direction},
    site::Site,
};
use tokio::{
    sync::watch,
    time::{Instant, sleep_until},
};

use super::{
    Session,
    asides::{self, ANSWER_LIMIT, Answer, Asides},
    flowing::Flowing,
    lineup::Lineup,
    sending::{Sending, Sent},
};
use crate::{
    abreast::Place,
    context::{Context, Endpoint, Learned, Target, known},
    error::{Error, Result},
    events::ChannelState,
    flight::Flight,
    panics::test_point,
    pipelining::{COMMAND_BYTES_A_FILE, COMMANDS_A_FILE, DEPTH_MAX, DEPTH_MAX_PATIENT, Pace},
    plan::Item,
    progress::{Here, Running},
    put::Naming,
    spec::JobSpec,
    verify::Agreed,
};

/// Bytes of a command beside its path, at most.
const COMMAND_BYTES: usize = 32;

/// Where the files come from and whom their fate is told.
pub(crate) trait Feed {
    /// The next file; `None`: no more on this session. Cancel-safe.
    async fn next(&mut self) -> Option<Item>;
    /// A file is there, or never will be.
    fn settled(&mut self, flight: &Flight, outcome: Result<Option<Agreed>>);
    /// A file could not even be opened here.
    fn unopened(&mut self, item: &Item, error: &Error);
}

/// What a pipeline leaves behind.
#[derive(Default)]
pub(crate) struct Leavings {
    /// Files of which nothing is certain, in order: they are still to be copied.
    pub(crate) returned: Vec<Item>,
    /// Temporary names at the server under which something may lie.
    pub(crate) rubbish: Vec<FtpPath>,
}

impl Session {
    /// Whether small files can go in a pipeline now: the data channels are there and known to work.
    pub(crate) fn can_pipeline(&self, item: &Item) -> bool {
        let (learned, direction) = (&self.endpoint.learned, item.direction());
        let there = self.server.can_reuse(direction)
            && match (item.sender(), &self.source) {
                (None, _) => self.set.as_ref().is_some_and(|set| set.cached() > 0),
                (Some(_), None) => false,
                // Of the sender's channels nobody here knows more than that both have kept them.
                (Some(_), Some(source)) => {
                    source.server.can_reuse(Direction::Get)
                        && source.has_channels_wanted()
                        && !known(&source.endpoint.learned.no_pipelining)
                }
            };
        let ready = match direction {
            Direction::Get => known(&learned.gets_pipelined) || there && self.can_keep_channels(),
            // Bytes go out before the server has agreed to take them: a final name must not be in
            // reach.
            Direction::Put => {
                let renames = known(&learned.rename_probed) && !known(&learned.no_rename);
                there && renames && Naming::of(learned) != Naming::InPlace
            }
        };
        ready && self.is_usable() && self.pipelined.is_none() && !known(&learned.no_pipelining)
    }

    /// The channels of gets are as many as are wanted, or can become so.
    fn can_keep_channels(&self) -> bool {
        self.server.features.next_channels || self.has_channels_wanted()
    }

    /// What may be asked of a server that sends small files: it alone knows the round trips of the
    /// data channels.
    fn reports(&self, first: &Item) -> Asides {
        let now = Instant::now();
        let silent = first.direction() != Direction::Get
            || first.sender().is_some()
            || known(&self.endpoint.learned.no_asides);
        match silent {
            true => Asides::none(now),
            false => {
                let limit = ANSWER_LIMIT.min(self.context.connections.stall_limit);
                Asides::reports(&self.server.features, limit, now)
            }
        }
    }

    fn has_channels_wanted(&self) -> bool {
        let wanted = self.channels_wanted();
        self.server.parallelism == Some(wanted)
    }

    /// Moves `first` and what `feed` gives after it, all in one direction on this endpoint.
    pub(crate) async fn pipeline(
        &mut self,
        first: Item,
        spec: &JobSpec,
        feed: &mut impl Feed,
    ) -> Leavings {
        let cached = self.set.as_ref().map_or(0, |set| set.cached());
        let ready = cached > 0 && self.server.can_reuse(first.direction());
        let opens = first.direction() == Direction::Get && !(ready && self.can_keep_channels());
        if opens && let Err(error) = self.listen_ahead() {
            self.context.note(error.to_string());
            self.endpoint
                .learned
                .gets_pipelined
                .store(false, Ordering::Relaxed);
            return Leavings {
                returned: vec![first],
                rubbish: Vec::new(),
            };
        }
        let before = self.endpoint.learned.depth.load(Ordering::Relaxed);
        let source = self.source.as_ref().filter(|_| first.sender().is_some());
        // Who has the one of our extensions has the other virtues.
        let is_ours = |session: &Session| session.server.features.live_channels;
        let ours = is_ours(self) && source.is_none_or(|source| is_ours(source));
        let most = match ours {
            true => DEPTH_MAX_PATIENT,
            false => DEPTH_MAX,
        };
        let round_trip = self
            .round_trip
            .max(source.map_or(Duration::ZERO, |s| s.round_trip));
        self.context.counters.begins(round_trip);
        let sending = source.map(|source| {
            let channels = source.server.parallelism.unwrap_or(1);
            Sending::new(
                Running::new(&self.context.counters, Here::Nothing),
                channels,
            )
        });
        let channels = match (first.direction(), source) {
            (Direction::Get, _) => self.server.parallelism,
            (Direction::Put, Some(source)) => source.server.parallelism,
            (Direction::Put, None) => u32::try_from(cached).ok(),
        };
        let stamps = first.direction() == Direction::Put && first.stamp.is_some();
        let commands_each = if stamps { 4 } else { 2 };
        let mut pipeline = Pipeline {
            lineup: Lineup::new(first.direction(), ours),
            direction: first.direction(),
            opens,
            steers: first.sender().is_none() && self.server.features.next_channels,
            channels: channels.unwrap_or(1),
            wanted: channels.unwrap_or(1),
            asked: None,
            asides: self.reports(&first),
            place: Place::new(&self.context.counters, round_trip),
            pace: Pace::new(spec.pipelining, round_trip, before, most),
            command_bytes_max: COMMAND_BYTES_A_FILE * most as usize,
            commands_each,
            files_max: COMMANDS_A_FILE * most as usize / commands_each,
            flowing: Flowing::new(&self.context.counters),
            sending,
            session: self,
            spec,
            feed,
            feeding: true,
            filling: true,
            arrived: 0,
            channels_gone: false,
            removing: VecDeque::new(),
            leavings: Leavings::default(),
            ours,
        };
        pipeline.admit(first);
        pipeline.run().await;
        pipeline.end()
    }
}

struct Pipeline<'a, F> {
    session: &'a mut Session,
    spec: &'a JobSpec,
    feed: &'a mut F,
    direction: Direction,
    lineup: Lineup<Flight>,
    pace: Pace,
    place: Place,
    command_bytes_max: usize,
    /// Commands of a file that may wait at a time: its transfer and check; or, for a put, its stamp
    /// and its rename.
    commands_each: usize,
    /// Files that may have some.
    files_max: usize,
    flowing: Flowing,
    /// Another server sends; nothing flows through here then.
    sending: Option<Sending>,
    /// More may come.
    feeding: bool,
    /// The server was asked for new data channels, and what it said was not waited for: the answers
    /// to the files tell.
    opens: bool,
    /// The number of channels can change between two files.
    steers: bool,
    /// Channels there are, and that the tuner wants.
    channels: u32,
    wanted: u32,
    /// The server was asked for as many as are wanted.
    asked: Option<CommandId>,
    /// What the server is asked of its side of the channels.
    asides: Asides,
    /// Files are taken until the depth is reached, then none until some have gone: commands leave
    /// in bunches.
    filling: bool,
    arrived: u64,
    /// A transfer was refused for a reason that is not the file's: the data channels are of no use
    /// any more.
    channels_gone: bool,
    /// Temporary files that are being removed.
    removing: VecDeque<(CommandId, FtpPath)>,
    leavings: Leavings,
    /// Servers of ours only: bytes of one file do not end up in another, even where a file fails.
    ours: bool,
}

impl<F: Feed> Pipeline<'_, F> {
    async fn run(&mut self) {
        let stop = self.session.context.stop.clone();
        let stopped = stop.wait();
        tokio::pin!(stopped);
        let mut target = self.session.context.target.subscribe();
        target.mark_changed();
        let changed = when_changed(target);
        tokio::pin!(changed);
        loop {
            self.start_next();
            self.steer();
            self.ask();
            let room = self.has_room();
            let due = !self.lineup.is_empty()
                || !self.removing.is_empty()
                || self.asked.is_some()
                || self.asides.is_waiting();
            let wakes = self.asides.is_waiting() || self.asks();
            let wake = self.asides.wake().filter(|_| wakes);
            let later = Instant::now() + ANSWER_LIMIT;
            // What another server sends is not seen here.
            let watched = self.sending.is_none().then_some(!self.flowing.is_empty());
            self.session.control.data_moves(watched);
            if !due && !self.feeding {
                return;
            }
            tokio::select! {
                biased;
                () = &mut stopped => {
                    self.give_up(None);
                    return;
                }
                target = &mut changed => {
                    self.wanted = self.session.channels_wanted();
                    changed.set(when_changed(target));
                }
                item = self.feed.next(), if room => match item {
                    Some(item) => self.admit(item),
                    None => self.feeding = false,
                },
                report = self.flowing.next_end(), if !self.flowing.is_empty() => self.flowed(report).await,
                sent = next_sent(&mut self.sending, &mut self.session.source) => self.sent(sent).await,
                spoken = self.session.control.next_event(), if due => self.heard(spoken).await,
                () = sleep_until(wake.unwrap_or(later)), if wake.is_some() => {}
            }
        }
    }

    /// Asks for a report when it is time. What has no answer in time is not asked again.
    fn ask(&mut self) {
        let now = Instant::now();
        if self.asides.is_overdue(now) {
            self.asides.cease();
            self.session.without_asides(&"no answer");
        }
        if self.asks()
            && let Some(what) = self.asides.next(0, now)
        {
            let id = self.session.control.submit(&asides::command(what));
            self.asides.asked(what, id, now);
        }
    }

    /// Something flows that a report can be of, and the answer will not hold up the end.
    fn asks(&self) -> bool {
        self.feeding && !self.flowing.is_empty()
    }

    /// Brings the channels to what the tuner wants, as soon as nothing is in flight: no file is
    /// taken until then. A new connection would else be taken for one of the file that its receiver
    /// is still at.
    fn steer(&mut self) {
        let is_due = self.is_to_steer() && self.lineup.in_flight() == 0 && self.flowing.is_empty();
        if !is_due {
            return;
        }
        self.pace.interrupted();
        match (self.direction, &self.session.set) {
            (Direction::Put, Some(set)) => {
                set.next_channels(self.wanted);
                self.tell_steered();
            }
            (Direction::Put, None) => self.steers = false,
            (Direction::Get, _) => {
                let command = Command::Site(Site::NextChannels(self.wanted));
                self.asked = Some(self.session.control.submit(&command));
                self.session.server.parallelism = Some(self.wanted);
                self.tell_steered();
            }
        }
    }

    fn is_to_steer(&self) -> bool {
        self.steers && self.arrived > 0 && self.wanted != self.channels
    }

    fn tell_steered(&mut self) {
        let before = std::mem::replace(&mut self.channels, self.wanted);
        let opened = self.wanted.saturating_sub(before);
        self.session.tell(ChannelState::Opened, opened);
        let retired = before.saturating_sub(self.wanted);
        self.session.tell(ChannelState::Retired, retired);
    }

    fn has_room(&mut self) -> bool {
        let depth = self.pace.depth() as usize;
        let full = depth.saturating_sub(self.lineup.in_flight());
        let joins = |perishable| {
            let files = self.lineup.len();
            self.pace.lets_join(files, perishable, self.channels)
        };
        let perishable = self.lineup.perishable();
        self.filling = match self.filling {
            true => full > 0 && joins(perishable),
            // Near by an answer is soon there: half may have gone.
            false => full > depth / 8 && joins(2 * perishable),
        };
        // Files that are being renamed hold no place in the depth, but commands.
        self.feeding
            && self.filling
            && !self.is_to_steer()
            && !self.place.lags(self.pace.bytes_of(self.lineup.in_flight()))
            && self.lineup.len() < (2 * depth).min(self.files_max)
            && self.lineup.command_bytes() < self.command_bytes_max
    }

    /// Opens our end and asks for all that the file needs.
    fn admit(&mut self, item: Item) {
        test_point("small", &item.remote);
        let flight = match Flight::open(self.session, item, self.spec) {
            Ok(flight) => flight,
            Err(unopened) => {
                let (item, error) = *unopened;
                return self.feed.unopened(&item, &error);
            }
        };
        let stamping = flight.stamping(self.session);
        let control = &mut self.session.control;
        let transfer = flight.transfer();
        self.pace.asked(flight.size());
        let bytes = COMMAND_BYTES + flight.item.remote.as_bytes().len();
        let transfer = control.submit(&transfer);
        let stamping = stamping
            .into_iter()
            .map(|c| (control.submit(&c), c))
            .collect();
        let check = flight.check().map(|check| control.submit(&check));
        let bytes = bytes * self.commands_each;
        let perishable = flight.perishable();
        (self.lineup).push(flight, transfer, stamping, check, bytes, perishable);
    }

    /// Lets the next files use the data channels, one after the other.
    fn start_next(&mut self) {
        if let (Some(sending), Some(source)) = (&mut self.sending, &mut self.session.source) {
            while let Some(flight) = self.lineup.next_to_flow() {
                if let Some((transfer, check)) = flight.at_source() {
                    sending.queue(source, &transfer, check.as_ref(), flight.size());
                }
            }
            return;
        }
        let Some(set) = &self.session.set else { return };
        while self.flowing.has_room()
            && let Some(flight) = self.lineup.next_to_flow()
        {
            self.flowing.queue(set, flight.job(), flight.size());
        }
    }

    /// Gives up what the server will not send any more.
    async fn stop_flowing(&mut self) {
        if !self.lineup.flows_no_more() {
            return;
        }
        self.flowing.clear();
        self.session.set = None;
        let lost = || TransferFailure::ConnectionLost("behind a file that was refused".to_owned());
        while let Some(at) = self.lineup.moved(Err(lost())) {
            self.settle(at).await;
        }
    }

    async fn flowed(&mut self, report: TransferReport) {
        let whole = report.result.is_ok();
        if whole && std::mem::take(&mut self.opens) {
            self.session
                .tell(ChannelState::Opened, report.channels_peak);
        }
        let Some(at) = self.lineup.moved(report.result.clone()) else {
            return;
        };
        let complaint = match self.lineup.get_mut(at) {
            Some(slot) if whole => slot.load.moved(&report).err(),
            _ => None,
        };
        match complaint {
            Some(error) => self.give_up(Some((at, error))),
            None => self.settle(at).await,
        }
        self.stop_flowing().await;
    }

    /// The other server has sent a file, or will not.
    async fn sent(&mut self, sent: Sent) {
        if let Some(reply) = &sent.refusal
            && self.arrived == 0
            && (reply.code.get() == 421 || failure_kind(reply) == Some(FailureKind::NotSupported))
            && let Some(source) = &self.session.source
        {
            learn(&self.session.context, &source.endpoint, reply);
        }
        let Some(at) = self.lineup.moved(sent.result) else {
            return;
        };
        if let Some(slot) = self.lineup.get_mut(at) {
            slot.load.checked_at_source(sent.checked);
        }
        self.settle(at).await;
    }

    async fn heard(&mut self, spoken: std::result::Result<Spoken, ControlError>) {
        let (id, answer) = match spoken {
            Ok(Spoken::Preliminary(id, _)) => (id, None),
            Ok(Spoken::Final(id, reply)) => (id, Some(reply)),
            Err(error) => {
                let doing = match self.lineup.get(0) {
                    Some(slot) => slot.load.doing().to_string(),
                    None => format!("go on at {}", self.session.endpoint.name()),
                };
                self.tell_setback(&Error::Control { doing, error });
                return self.give_up(None);
            }
        };
        if answer.is_some() && self.asked.take_if(|asked| *asked == id).is_some() {
            // Where it was refused the channels stay as they are, until the next address.
            if answer.is_some_and(|reply| reply.code.is_failure()) {
                self.steers = false;
                self.session.server.parallelism = None;
            }
            return;
        }
        if let Some(reply) = &answer
            && let Some(told) = self.asides.answer(id, reply, Instant::now())
        {
            match told {
                Answer::Report(sample, ..) => self.flowing.tell(*sample),
                Answer::NoTransfer => {}
                Answer::Refused => self.session.without_asides(reply),
            }
            return;
        }
        let refusal = answer.clone().filter(|r| r.code.is_failure());
        match self.lineup.hear(id, answer) {
            Some(at) => self.settle(at).await,
            None => self.removed(id, refusal),
        }
        self.stop_flowing().await;
    }

    /// The answer to a removal, or to a check of a file that is out already.
    fn removed(&mut self, id: CommandId, refusal: Option<Reply>) {
        let Some(at) = self.removing.iter().position(|(of, _)| *of == id) else {
            return;
        };
        let path = self.removing.remove(at).map(|(_, path)| path);
        let absent = |r: &Reply| failure_kind(r) == Some(FailureKind::NotFound);
        if refusal.is_some_and(|r| !absent(&r)) {
            self.leavings.rubbish.extend(path);
        }
    }

    fn end(self) -> Leavings {
        let session = self.session;
        session.control.data_moves(None);
        if self.channels_gone {
            session.set = None;
            session.server.forget();
            if self.arrived == 0 {
                // Whatever the reason is, the path of single files finds it.
                session
                    .endpoint
                    .learned
                    .gets_pipelined
                    .store(false, Ordering::Relaxed);
            }
        }
        if let (Some(_), Some(source)) = (self.sending, &mut session.source) {
            session.server.transfer_done(Direction::Put, true);
            source.server.transfer_done(Direction::Get, true);
            return self.leavings;
        }
        let cached = session.set.as_ref().map_or(0, |set| set.cached());
        session.server.transfer_done(self.direction, cached > 0);
        self.leavings
    }
}

/// Gives the target back as soon as it is another. Never where nobody sets it any more.
async fn when_changed(mut target: watch::Receiver<Target>) -> watch::Receiver<Target> {
    if target.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    target
}

/// What became of the next file that another server was to send. Never where none does.
async fn next_sent(sending: &mut Option<Sending>, source: &mut Option<Box<Session>>) -> Sent {
    match (sending, source) {
        (Some(sending), Some(source)) => sending.next_end(source).await,
        _ => std::future::pending().await,
    }
}

fn learn(context: &Context, endpoint: &Endpoint, reply: &Reply) {
    Learned::learn(
        &endpoint.learned.no_pipelining,
        context,
        format!(
            "{}: takes no transfer before the one before it is over: files go one by one (server said: {reply})",
            endpoint.name()
        ),
    );
}
