//! Small files through one session, many in flight: nothing that is asked for one of them stops the
//! stream of the others.
//!
//! The first begins on data channels that carried a file already, so that nothing about them is
//! left to be found out. Gets behind it send what makes new channels in front of their files,
//! without waiting for the answers. Whatever cannot be told for certain of a file is left to the
//! path of single files: the item goes back, and is neither done nor failed. Where it is doubtful
//! which bytes are whose, the session is given up.

pub(crate) mod depth;
pub(crate) mod drain_balance;
pub(crate) mod file;
mod in_flight;
mod local_data;
mod outcome;
mod remote_data;

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

use self::{
    depth::{COMMAND_BYTES_A_FILE, COMMANDS_A_FILE, DEPTH_MAX, DEPTH_MAX_PATIENT, DepthController},
    drain_balance::RateSlot,
    file::PipelinedFile,
    in_flight::InFlightFiles,
    local_data::LocalData,
    remote_data::{RemoteData, SendOutcome},
};
use super::{source_file::SourceFile, verify::AgreedChecksum};
use crate::{
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::{Lack, Observed},
        naming::Naming,
    },
    error::{Error, Result},
    panics::test_point,
    report::{
        events::ChannelState,
        progress::{LocalView, RunningTransfer},
    },
    session::{
        Session, SessionPair,
        transfer::live_requests::{self, ANSWER_LIMIT, Answer, LiveRequests},
    },
    setting_target::Target,
    spec::JobSpec,
};

/// Bytes of a command beside its path, at most.
const COMMAND_BYTES: usize = 32;

/// Where the files come from and whom their fate is told.
pub(crate) trait FileSource {
    /// The next file; `None`: no more on this session. Cancel-safe.
    async fn next(&mut self) -> Option<SourceFile>;
    /// A file is there, or never will be.
    fn settled(&mut self, file_in_flight: &PipelinedFile, outcome: Result<Option<AgreedChecksum>>);
    /// A file could not even be opened here.
    fn unopened(&mut self, source_file: &SourceFile, error: &Error);
}

/// What a pipeline leaves behind.
#[derive(Default)]
pub(crate) struct PipelineLeftovers {
    /// Files of which nothing is certain, in order: they are still to be copied.
    pub(crate) returned: Vec<SourceFile>,
    /// Temporary names at the server under which something may lie.
    pub(crate) leftover: Vec<FtpPath>,
}

impl SessionPair {
    /// Whether small files can go in a pipeline now: the data channels are there and known to work.
    pub(crate) fn can_pipeline(&self, source_file: &SourceFile) -> bool {
        let (capabilities, direction) = (&self.endpoint.capabilities, source_file.direction());
        // With several stripes a file cannot follow another before all of them are through.
        let is_striped = direction == Direction::Put && self.server.stripes > 1;
        let there = !is_striped
            && self.server.can_reuse(direction)
            && match (source_file.sender(), &self.sender) {
                (None, _) => self.data.set.as_ref().is_some_and(|set| set.cached() > 0),
                (Some(_), None) => false,
                // Of the sender's channels no more is known here than that both have kept them.
                (Some(_), Some(source)) => {
                    source.server.can_reuse(Direction::Get)
                        && has_channels_wanted(source)
                        && !source.endpoint.capabilities.lacks(Lack::Pipelining)
                }
            };
        let ready = match direction {
            Direction::Get => {
                capabilities.has(Observed::GetsPipelined) || there && self.can_keep_channels()
            }
            // Bytes go out before the server has agreed to take them: a final name must not be in
            // reach.
            Direction::Put => {
                let renames =
                    capabilities.has(Observed::RenameProbed) && !capabilities.lacks(Lack::Rename);
                there && renames && Naming::of(capabilities, &source_file.remote) != Naming::InPlace
            }
        };
        ready
            && self.is_usable()
            && self.prefetched.is_none()
            && !capabilities.lacks(Lack::Pipelining)
    }

    /// The channels of gets are as many as are wanted, or can become so.
    fn can_keep_channels(&self) -> bool {
        self.server.features.next_channels || has_channels_wanted(self)
    }

    /// What may be asked of a server that sends small files: it alone knows the round trips of the
    /// data channels.
    fn reports(&self, first: &SourceFile) -> LiveRequests {
        let now = Instant::now();
        let silent = first.direction() != Direction::Get
            || first.sender().is_some()
            || self.endpoint.capabilities.lacks(Lack::LiveRequests);
        match silent {
            true => LiveRequests::none(now),
            false => {
                let limit = ANSWER_LIMIT.min(self.context.connections.stall_limit);
                LiveRequests::reports(&self.server.features, limit, now)
            }
        }
    }

    /// Moves `first` and what `feed` gives after it, all in one direction on this endpoint.
    pub(crate) async fn pipeline(
        &mut self,
        first: SourceFile,
        spec: &JobSpec,
        feed: &mut impl FileSource,
    ) -> PipelineLeftovers {
        let cached = self.data.set.as_ref().map_or(0, |set| set.cached());
        let ready = cached > 0 && self.server.can_reuse(first.direction());
        let opens = first.direction() == Direction::Get && !(ready && self.can_keep_channels());
        if opens && let Err(error) = self.listen_ahead() {
            self.context.reporter.note(error.to_string());
            self.endpoint.capabilities.forget(Observed::GetsPipelined);
            return PipelineLeftovers {
                returned: vec![first],
                leftover: Vec::new(),
            };
        }
        let before = self.endpoint.capabilities.depth.load(Ordering::Relaxed);
        let source = self.sender.as_ref().filter(|_| first.sender().is_some());
        // A server with this extension of ours has the others too.
        let is_ours = |session: &Session| session.server.features.live_channels;
        let ours = is_ours(self) && source.is_none_or(is_ours);
        let most = match ours {
            true => DEPTH_MAX_PATIENT,
            false => DEPTH_MAX,
        };
        let round_trip = self
            .round_trip
            .max(source.map_or(Duration::ZERO, |s| s.round_trip));
        self.context.counters.on_transfer_start(round_trip);
        let sending = source.map(|source| {
            let channels = source.server.parallelism.unwrap_or(1);
            RemoteData::new(
                RunningTransfer::new(&self.context.counters, LocalView::Nothing),
                channels,
            )
        });
        let channels = match (first.direction(), source) {
            (Direction::Get, _) => self.server.parallelism,
            (Direction::Put, Some(source)) => source.server.parallelism,
            (Direction::Put, None) => u32::try_from(cached).ok(),
        };
        let all_attributes = first.direction() == Direction::Put && first.attributes.is_some();
        let commands_each = if all_attributes { 4 } else { 2 };
        let mut pipeline = Pipeline {
            in_flight_files: InFlightFiles::new(first.direction(), ours),
            direction: first.direction(),
            opens,
            steers: first.sender().is_none() && self.server.features.next_channels,
            channels: channels.unwrap_or(1),
            wanted: channels.unwrap_or(1),
            asked: None,
            live_requests: self.reports(&first),
            rate_slot: RateSlot::new(&self.context.counters, round_trip),
            depth_controller: DepthController::new(spec.pipelining, round_trip, before, most),
            command_bytes_max: COMMAND_BYTES_A_FILE * most as usize,
            commands_each,
            files_max: COMMANDS_A_FILE * most as usize / commands_each,
            flowing: LocalData::new(&self.context.counters),
            sending,
            session: self,
            spec,
            feed,
            feeding: true,
            filling: true,
            arrived: 0,
            channels_gone: false,
            removing: VecDeque::new(),
            leftovers: PipelineLeftovers::default(),
            ours,
        };
        pipeline.admit(first);
        pipeline.run().await;
        pipeline.end()
    }
}

struct Pipeline<'a, F> {
    session: &'a mut SessionPair,
    spec: &'a JobSpec,
    feed: &'a mut F,
    direction: Direction,
    in_flight_files: InFlightFiles<PipelinedFile>,
    depth_controller: DepthController,
    rate_slot: RateSlot,
    command_bytes_max: usize,
    /// Commands of a file that may wait at a time: its transfer and check; or, for a put, its stamp
    /// and its rename.
    commands_each: usize,
    /// Files that may have some.
    files_max: usize,
    flowing: LocalData,
    /// Another server sends; nothing flows through here then.
    sending: Option<RemoteData>,
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
    live_requests: LiveRequests,
    /// Files are taken until the depth is reached, then none until some have gone: commands leave
    /// in bunches.
    filling: bool,
    arrived: u64,
    /// A transfer was refused for a reason that is not the file's: the data channels are of no use
    /// any more.
    channels_gone: bool,
    /// Temporary files that are being removed.
    removing: VecDeque<(CommandId, FtpPath)>,
    leftovers: PipelineLeftovers,
    /// Servers of ours only: bytes of one file do not end up in another, even where a file fails.
    ours: bool,
}

impl<F: FileSource> Pipeline<'_, F> {
    async fn run(&mut self) {
        let stop = self.session.context.stop.clone();
        let stopped = stop.cancelled();
        tokio::pin!(stopped);
        let mut target = self.session.context.target.subscribe();
        target.mark_changed();
        let changed = when_changed(target);
        tokio::pin!(changed);
        loop {
            self.start_next();
            self.steer();
            self.ask();
            let has_room = self.has_room();
            let due = !self.in_flight_files.is_empty()
                || !self.removing.is_empty()
                || self.asked.is_some()
                || self.live_requests.is_waiting();
            let wakes = self.live_requests.is_waiting() || self.may_ask_for_report();
            let wake = self.live_requests.wake().filter(|_| wakes);
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
                source_file = self.feed.next(), if has_room => match source_file {
                    Some(source_file) => self.admit(source_file),
                    None => self.feeding = false,
                },
                report = self.flowing.next_end(), if !self.flowing.is_empty() => {
                    self.on_moved(report).await;
                }
                sent = next_sent(&mut self.sending, &mut self.session.sender) => {
                    self.on_sent(sent).await;
                }
                spoken = self.session.receiver.control.next_event(), if due => {
                    self.on_reply(spoken).await;
                }
                () = sleep_until(wake.unwrap_or(later)), if wake.is_some() => {}
            }
        }
    }

    /// Asks for a report when it is time. What has no answer in time is not asked again.
    fn ask(&mut self) {
        let now = Instant::now();
        if self.live_requests.is_overdue(now) {
            self.live_requests.stop_asking();
            self.session.disable_live_requests(&"no answer");
        }
        if self.may_ask_for_report()
            && let Some(what) = self.live_requests.next(0, now)
        {
            let id = self.session.control.submit(&live_requests::command(what));
            self.live_requests.asked(what, id, now);
        }
    }

    /// Something flows that a report can be of, and the answer will not hold up the end.
    fn may_ask_for_report(&self) -> bool {
        self.feeding && !self.flowing.is_empty()
    }

    /// Brings the channels to what the tuner wants, as soon as nothing is in flight: no file is
    /// taken until then. A new connection would else be taken for one of the file that its receiver
    /// is still at.
    fn steer(&mut self) {
        let is_due =
            self.is_to_steer() && self.in_flight_files.in_flight() == 0 && self.flowing.is_empty();
        if !is_due {
            return;
        }
        self.depth_controller.on_pause();
        match (self.direction, &self.session.data.set) {
            (Direction::Put, Some(set)) => {
                set.next_channels(self.wanted);
                self.report_channel_change();
            }
            (Direction::Put, None) => self.steers = false,
            (Direction::Get, _) => {
                let command = Command::Site(Site::NextChannels(self.wanted));
                self.asked = Some(self.session.control.submit(&command));
                self.session.server.parallelism = Some(self.wanted);
                self.report_channel_change();
            }
        }
    }

    fn is_to_steer(&self) -> bool {
        self.steers && self.arrived > 0 && self.wanted != self.channels
    }

    fn report_channel_change(&mut self) {
        let before = std::mem::replace(&mut self.channels, self.wanted);
        self.session.report_channel_change(before, self.wanted);
    }

    fn has_room(&mut self) -> bool {
        let depth = self.depth_controller.depth() as usize;
        let full = depth.saturating_sub(self.in_flight_files.in_flight());
        let joins = |unresumable_bytes| {
            let files = self.in_flight_files.len();
            self.depth_controller
                .admits(files, unresumable_bytes, self.channels)
        };
        let unresumable_bytes = self.in_flight_files.unresumable_bytes();
        self.filling = match self.filling {
            true => full > 0 && joins(unresumable_bytes),
            // Near by an answer is soon there: half may have gone.
            false => full > depth / 8 && joins(2 * unresumable_bytes),
        };
        // Files that are being renamed hold no place in the depth, but commands.
        self.feeding
            && self.filling
            && !self.is_to_steer()
            && !self.rate_slot.falls_behind(
                self.depth_controller
                    .bytes_of(self.in_flight_files.in_flight()),
            )
            && self.in_flight_files.len() < (2 * depth).min(self.files_max)
            && self.in_flight_files.command_bytes() < self.command_bytes_max
    }

    /// Opens our end and asks for all that the file needs.
    fn admit(&mut self, source_file: SourceFile) {
        test_point("small", &source_file.remote);
        let file_in_flight = match PipelinedFile::open(self.session, source_file, self.spec) {
            Ok(file_in_flight) => file_in_flight,
            Err(unopened) => {
                let (source_file, error) = *unopened;
                return self.feed.unopened(&source_file, &error);
            }
        };
        let attribute_commands = file_in_flight.attribute_commands(self.session);
        let control = &mut self.session.control;
        let transfer = file_in_flight.command();
        self.depth_controller.on_request(file_in_flight.size());
        let bytes = COMMAND_BYTES + file_in_flight.source_file.remote.as_bytes().len();
        let transfer = control.submit(&transfer);
        let attribute_commands = attribute_commands
            .into_iter()
            .map(|c| (control.submit(&c), c))
            .collect();
        let check = file_in_flight.check().map(|check| control.submit(&check));
        let bytes = bytes * self.commands_each;
        let unresumable_bytes = file_in_flight.unresumable_bytes();
        (self.in_flight_files).push(
            file_in_flight,
            transfer,
            attribute_commands,
            check,
            bytes,
            unresumable_bytes,
        );
    }

    /// Lets the next files use the data channels, one after the other.
    fn start_next(&mut self) {
        if let (Some(sending), Some(source)) = (&mut self.sending, &mut self.session.sender) {
            while let Some(file_in_flight) = self.in_flight_files.next_to_flow() {
                if let Some((transfer, check)) = file_in_flight.at_source() {
                    sending.queue(source, &transfer, check.as_ref(), file_in_flight.size());
                }
            }
            return;
        }
        let Some(set) = &self.session.data.set else {
            return;
        };
        while self.flowing.has_room()
            && let Some(file_in_flight) = self.in_flight_files.next_to_flow()
        {
            self.flowing
                .queue(set, file_in_flight.job(), file_in_flight.size());
        }
    }

    /// Gives up what the server will not send any more.
    async fn stop_flowing(&mut self) {
        if !self.in_flight_files.flows_no_more() {
            return;
        }
        self.flowing.clear();
        self.session.data.set = None;
        let lost = || TransferFailure::ConnectionLost("behind a file that was refused".to_owned());
        while let Some(at) = self.in_flight_files.moved(Err(lost())) {
            self.settle(at).await;
        }
    }

    async fn on_moved(&mut self, report: TransferReport) {
        let whole = report.result.is_ok();
        if whole && std::mem::take(&mut self.opens) {
            self.session
                .report_channels(ChannelState::Opened, report.channels_peak);
        }
        let Some(at) = self.in_flight_files.moved(report.result.clone()) else {
            return;
        };
        let complaint = match self.in_flight_files.get_mut(at) {
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
    async fn on_sent(&mut self, sent: SendOutcome) {
        if let Some(reply) = &sent.refusal
            && self.arrived == 0
            && (reply.code.get() == 421 || failure_kind(reply) == Some(FailureKind::NotSupported))
            && let Some(source) = &self.session.sender
        {
            learn(&self.session.context, &source.endpoint, reply);
        }
        let Some(at) = self.in_flight_files.moved(sent.result) else {
            return;
        };
        if let Some(slot) = self.in_flight_files.get_mut(at) {
            slot.load.checked_at_source(sent.checked);
        }
        self.settle(at).await;
    }

    async fn on_reply(&mut self, spoken: std::result::Result<Spoken, ControlError>) {
        let (id, answer) = match spoken {
            Ok(Spoken::Preliminary(id, _)) => (id, None),
            Ok(Spoken::Final(id, reply)) => (id, Some(reply)),
            Err(error) => {
                let doing = match self.in_flight_files.get(0) {
                    Some(slot) => slot.load.doing().to_string(),
                    None => format!("go on at {}", self.session.endpoint.name()),
                };
                self.report_retry(&Error::Control { doing, error });
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
            && let Some(told) = self.live_requests.answer(id, reply, Instant::now())
        {
            match told {
                Answer::Report(sample, ..) => self.flowing.report(*sample),
                Answer::NoTransfer => {}
                Answer::Refused => self.session.disable_live_requests(reply),
            }
            return;
        }
        let refusal = answer.clone().filter(|r| r.code.is_failure());
        match self.in_flight_files.on_reply(id, answer) {
            Some(at) => self.settle(at).await,
            None => self.on_removed(id, refusal),
        }
        self.stop_flowing().await;
    }

    /// The answer to a removal, or to a check of a file that is out already.
    fn on_removed(&mut self, id: CommandId, refusal: Option<Reply>) {
        let Some(at) = self.removing.iter().position(|(of, _)| *of == id) else {
            return;
        };
        let path = self.removing.remove(at).map(|(_, path)| path);
        let absent = |r: &Reply| failure_kind(r) == Some(FailureKind::NotFound);
        if refusal.is_some_and(|r| !absent(&r)) {
            self.leftovers.leftover.extend(path);
        }
    }

    fn end(self) -> PipelineLeftovers {
        let session = self.session;
        session.control.data_moves(None);
        if self.channels_gone {
            session.data.set = None;
            session.server.forget();
            if self.arrived == 0 {
                // Whatever the reason is, the path of single files finds it.
                session
                    .endpoint
                    .capabilities
                    .forget(Observed::GetsPipelined);
            }
        }
        if let (Some(_), Some(source)) = (self.sending, &mut session.sender) {
            session.receiver.server.transfer_done(Direction::Put, true);
            source.server.transfer_done(Direction::Get, true);
            return self.leftovers;
        }
        let cached = session.data.set.as_ref().map_or(0, |set| set.cached());
        session.server.transfer_done(self.direction, cached > 0);
        self.leftovers
    }
}

fn has_channels_wanted(session: &Session) -> bool {
    session.server.parallelism == Some(session.channels_wanted())
}

/// Gives the target back as soon as it has changed. Never where it cannot change any more.
async fn when_changed(mut target: watch::Receiver<Target>) -> watch::Receiver<Target> {
    if target.changed().await.is_err() {
        std::future::pending::<()>().await;
    }
    target
}

/// What became of the next file that another server was to send. Never where none does.
async fn next_sent(sending: &mut Option<RemoteData>, source: &mut Option<Session>) -> SendOutcome {
    match (sending, source) {
        (Some(sending), Some(source)) => sending.next_end(source).await,
        _ => std::future::pending().await,
    }
}

fn learn(context: &RunContext, endpoint: &Endpoint, reply: &Reply) {
    endpoint.capabilities.learn(
        Lack::Pipelining,
        &context.reporter,
        format!(
            "{}: takes no transfer before the one before it is over: files go one by one (server \
             said: {reply})",
            endpoint.name()
        ),
    );
}
