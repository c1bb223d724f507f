//! One transfer with a server of HTTP, to its end.
//!
//! The session looks after it: it has as many lanes as the target says, shows how far it is, and
//! ends it when the user interrupts.

use std::{
    io::Write,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_engine::{
    data::{Sink, Source, TransferJob, TransferReport},
    storage::FileRef,
};
use godwit_http::s3;
use godwit_proto::{
    ByteRange, Command, FtpPath, RangeSet, Reply, RestartPoint,
    error::{StorageFailure, TransferFailure},
    temporary,
};
use parking_lot::Mutex;
use tokio_util::sync::CancellationToken;

use super::{
    bucket::uploads::{MARK_HEADER, headers, mark_of, metadata},
    commands::HttpControl,
    get::{GetJob, LaneSink, unreached},
    lanes::Work,
    parts::PartsJob,
    put::{LaneSource, PutJob},
    region::{Failure, PARTED_BYTES_MIN, Region, Validator},
    replies::{not_offered, reply},
    server::HttpServer,
};
use crate::{
    endpoint::{
        capabilities::Lack,
        uploads::{PendingObject, StoredObject},
    },
    error::{Error, Result},
    report::{
        events::ChannelState,
        progress::{LocalView, RequestTotals, RunningTransfer},
    },
    session::{Session, TransferOutcome, TransferPlan, control::Control},
};

impl Session {
    /// Runs a transfer of a session with a server of HTTP.
    pub(in crate::session) async fn transfer_by_requests(
        &mut self,
        plan: TransferPlan<'_>,
        job: TransferJob,
    ) -> TransferOutcome {
        let began = Instant::now();
        if plan.counts {
            self.context.counters.on_transfer_start(self.round_trip);
        }
        let ended = match (&plan.command, job) {
            (Command::Mlsd(Some(directory)), TransferJob::Receive(Sink::Stream(sink))) => {
                Box::pin(self.list_by_request(directory, sink)).await
            }
            (Command::Retr(path), TransferJob::Receive(sink)) => self.get(&plan, path, sink).await,
            (Command::Stor(path), TransferJob::Send(source)) => self.put(&plan, path, source).await,
            (other, _) => Ended::refused(not_offered(other.verb())),
        };
        let result = self.result_of(&plan, ended.failure, ended.is_stopped);
        if result.is_ok() {
            self.endpoint.capabilities.data(false).worked();
        }
        TransferOutcome {
            report: Some(TransferReport {
                bytes: ended.bytes,
                safe: ended.safe,
                result: result.as_ref().copied().map_err(|error| match error {
                    Error::Transfer { failure, .. } => failure.clone(),
                    _ => TransferFailure::Aborted,
                }),
                cached: 0,
                channels_peak: ended.lanes_peak,
                elapsed: began.elapsed(),
                unsent: Vec::new(),
            }),
            safe: RangeSet::new(),
            reply: result.is_ok().then(|| reply(226, "complete")),
            result,
        }
    }

    fn result_of(
        &mut self,
        plan: &TransferPlan<'_>,
        failure: Option<Failure>,
        is_stopped: bool,
    ) -> Result<()> {
        if is_stopped {
            return Err(Error::Interrupted);
        }
        let doing = plan.doing.to_owned();
        Err(match failure {
            None => return Ok(()),
            Some(Failure::Transfer(failure)) => Error::Transfer { doing, failure },
            Some(Failure::Refused(reply, started)) => Error::Refused {
                doing,
                reply: Box::new(reply),
                started,
            },
            Some(Failure::Changed) => Error::Changed {
                what: match &plan.command {
                    Command::Retr(path) => self.endpoint.url(path),
                    _ => doing,
                },
            },
            Some(Failure::Crowded(failure)) => return self.result_of(plan, Some(*failure), false),
        })
    }

    pub(super) fn http(&mut self) -> Option<&mut HttpControl> {
        match &mut self.commands.control {
            Control::Http(control) => Some(control),
            Control::Ftp(_) => None,
        }
    }

    async fn list_by_request(
        &mut self,
        directory: &FtpPath,
        mut sink: Box<dyn Write + Send>,
    ) -> Ended {
        let stop = Some(self.context.stop.clone());
        let Some(control) = self.http() else {
            return Ended::refused(not_offered("MLSD"));
        };
        let stop = stop.filter(|stop| !stop.is_cancelled());
        let interrupted = async {
            match stop {
                Some(stop) => stop.cancelled_owned().await,
                // This is part of cleaning up.
                None => std::future::pending().await,
            }
        };
        let listing = async {
            if control.server().bucket.is_some() {
                return control.list_bucket(directory, &mut *sink).await;
            }
            control.list(directory, sink).await
        };
        let listed = tokio::select! {
            listed = listing => listed,
            () = interrupted => {
                return Ended {
                    is_stopped: true,
                    ..Ended::default()
                };
            }
        };
        match listed {
            Ok(bytes) => Ended {
                bytes,
                ..Ended::default()
            },
            Err(failure) => Ended::failed(failure),
        }
    }

    async fn get(&mut self, plan: &TransferPlan<'_>, path: &FtpPath, sink: Sink) -> Ended {
        let Some(server) = self.http().map(|control| Arc::clone(control.server())) else {
            return Ended::refused(not_offered("RETR"));
        };
        let wanted = Wanted::of(plan, sink);
        let room = wanted.sink.room(wanted.start);
        let region = Region::new(wanted.start, wanted.end, room, self.round_trip);
        let job = Arc::new(GetJob {
            region: region.recorded_in(plan.safe, wanted.remote),
            size: plan.safe.map(|safe| safe.size()),
            target: server.target_of(path, false),
            remote: wanted.remote,
            is_to_the_end: !wanted.is_cut,
            is_cut: wanted.is_cut,
            sink: wanted.sink,
            rate: match plan.feeds {
                true => Arc::default(),
                false => Arc::clone(&self.context.rate),
            },
            cancel: CancellationToken::new(),
        });
        let is_one = matches!(job.sink, LaneSink::Stream(_)) || !plan.counts;
        let region = &job.region;
        let is_large = region.end().is_some_and(|end| end > PARTED_BYTES_MIN);
        let lacks_version = server.names_no_version.load(Ordering::Relaxed);
        match region.validator() {
            Some(known @ Validator::Listed(_)) => {
                if let Err(unchecked) = self.check_listed(path, &known).await {
                    return unchecked;
                }
            }
            None if is_large && !is_one && lacks_version => {
                region.tell_version(self.listed_version(path).await);
            }
            _ => {}
        }
        let work = Work::Get(Arc::clone(&job));
        let mut ended = self.carry(plan, region, &job.cancel, &work, is_one).await;
        if let (Some(known @ Validator::Listed(_)), Some(end)) = (region.validator(), region.end())
            && let (None, false) = (&ended.failure, ended.is_stopped)
        {
            match self.check_listed(path, &known).await {
                Ok(()) => region.vouch(),
                Err(unchecked) => {
                    (ended.failure, ended.is_stopped) = (unchecked.failure, unchecked.is_stopped);
                    let start = end.saturating_sub(1);
                    ended.safe.remove(ByteRange { start, end });
                }
            }
        }
        if ended.bytes > 0 {
            self.endpoint.capabilities.data(false).worked();
        }
        ended
    }

    /// The version of a file by what the server lists, if that tells one.
    async fn listed_version(&mut self, path: &FtpPath) -> Option<Validator> {
        let stop = self.context.stop.clone();
        let control = self.http()?;
        tokio::select! {
            listed = control.listed_version(path) => listed.unwrap_or(None),
            () = stop.cancelled() => None,
        }
    }

    /// Fails if a file has another version now, or if that cannot be told.
    async fn check_listed(
        &mut self,
        path: &FtpPath,
        known: &Validator,
    ) -> std::result::Result<(), Ended> {
        let stop = self.context.stop.clone();
        let Some(control) = self.http() else {
            return Err(Ended::refused(not_offered("MLST")));
        };
        tokio::select! {
            checked = control.check_listed(path, known) => checked.map_err(Ended::failed),
            () = stop.cancelled() => Err(Ended {
                is_stopped: true,
                ..Ended::default()
            }),
        }
    }

    /// Looks after the lanes of a region until all of it is moved, or cannot be.
    async fn carry(
        &mut self,
        plan: &TransferPlan<'_>,
        region: &Region,
        cancel: &CancellationToken,
        work: &Work,
        is_one: bool,
    ) -> Ended {
        let running = self.show(plan, &region.totals);
        let stop = self.context.stop.clone();
        let mut target = self.context.target.subscribe();
        let mut ended = Ended::default();
        let mut told_crowded = false;
        loop {
            let watch = region.watcher.notified();
            tokio::pin!(watch);
            watch.as_mut().enable();
            let wanted = match is_one {
                true => 1,
                false => usize::try_from(self.channels_wanted()).unwrap_or(1),
            };
            if let Err(error) = self.send_lanes(region, wanted, work) {
                region.stop();
                cancel.cancel();
                ended.failure = Some(Failure::lost(error.to_string()));
            }
            if let (Command::Retr(path), true) = (&plan.command, region.asks_version()) {
                region.tell_version(self.listed_version(path).await);
                continue;
            }
            if let (Some(before), false) = (region.crowded(), told_crowded) {
                told_crowded = true;
                self.context.target.channels_refused(&self.endpoint, before);
            }
            let lanes = u32::try_from(region.running()).unwrap_or(u32::MAX);
            ended.lanes_peak = ended.lanes_peak.max(lanes);
            if region.has_failed() {
                cancel.cancel();
            }
            if region.is_over() {
                break;
            }
            tokio::select! {
                () = watch => {}
                Ok(()) = target.changed() => {}
                () = stop.cancelled(), if !cancel.is_cancelled() => {
                    region.stop();
                    cancel.cancel();
                }
                // A lane that writes to a pipe without a reader cannot be called off.
                () = given_up(cancel, plan.may_block) => break,
            }
        }
        region.totals.close();
        drop(running);
        if !region.is_over() {
            self.data.lanes.close();
        }
        let moved = region.finish();
        ended.failure = ended.failure.or(moved.failure);
        ended.is_stopped = moved.is_stopped && stop.is_cancelled();
        ended.bytes = region.totals.bytes.load(Ordering::Relaxed);
        ended.safe = moved.safe;
        ended
    }

    /// Connections that a transfer may have, spare ones included.
    fn connections_allowed(&self) -> usize {
        let allowed = self.context.target.connections_allowed();
        let allowed = self.endpoint.capabilities.fit_channels(allowed);
        usize::try_from(allowed).unwrap_or(usize::MAX)
    }

    /// Sends lanes to a transfer until so many carry it, and ends those that are one too many.
    fn send_lanes(&mut self, region: &Region, wanted: usize, work: &Work) -> Result<()> {
        let Some(server) = self.http().map(|control| Arc::clone(control.server())) else {
            return Ok(());
        };
        let mut opened = 0;
        region.allow(self.connections_allowed());
        for lane in region.want(wanted) {
            opened += u32::from(self.data.lanes.start(&server, lane, work)?);
        }
        self.report_channels(ChannelState::Opened, opened);
        let retired = self.data.lanes.keep(wanted.max(region.highest()));
        self.report_channels(ChannelState::Retired, retired);
        Ok(())
    }

    async fn put(&mut self, plan: &TransferPlan<'_>, path: &FtpPath, source: Source) -> Ended {
        let Some(server) = self.http().map(|control| Arc::clone(control.server())) else {
            return Ended::refused(not_offered("STOR"));
        };
        let (source, length) = match source {
            Source::File { file, base, ranges } => {
                let start = ranges.first().map_or(0, |range| range.start);
                let end = ranges.last().map_or(0, |range| range.end);
                let base = base + start;
                (LaneSource::File { file, base }, Some(end - start))
            }
            Source::Stream(stream) => (LaneSource::Stream(Mutex::new(Some(stream))), None),
        };
        let are_open = server.takes_open_parts.load(Ordering::Relaxed)
            && !self.endpoint.capabilities.lacks(Lack::OpenParts);
        if let (LaneSource::File { file, base }, Some(length)) = (&source, length)
            // A part whose bytes do not come can end before.
            && (are_open || server.bucket.is_some() || file.read_once_within().is_none())
            && match server.bucket {
                Some(_) => self.sends_upload(plan, path, file, length),
                None => self.sends_parts(&server, plan, path, length),
            }
        {
            let file = (Arc::clone(file), *base, length);
            return Box::pin(self.put_parts(plan, path, file, are_open)).await;
        }
        if matches!(plan.ahead, Some(Command::Rest(_))) {
            // A part of a file would be the whole of it.
            return Ended::refused(not_offered("REST"));
        }
        if let (Some(_), Some(refused)) = (&server.bucket, unfit_for_put(length)) {
            return Ended::refused(refused);
        }
        let totals = Arc::new(RequestTotals::new(true));
        // A bucket has all of an object or nothing: it needs no other name meanwhile.
        let object = plan.stored_as.as_ref().filter(|_| server.bucket.is_some());
        if let (Some((to, attributes)), Some(control)) = (object, self.http()) {
            match control.check_encryption(path, to, *attributes).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Ended::refused(refusal),
                Err(error) => return Ended::failed(unreached(error)),
            }
            // What an attempt before has stored may be another's by now.
            self.endpoint.uploads.forget(path);
        }
        let target = server.target_of(object.map_or(path, |(to, _)| to), false);
        let rate = Arc::clone(&self.context.rate);
        let mut job = PutJob::new(target, source, length, rate, Arc::clone(&totals));
        if let Some(bucket) = &server.bucket {
            let said = object.map(|(_, attributes)| metadata(*attributes));
            let mut said = said.unwrap_or_default();
            said.extend(bucket.object_headers());
            if let Some(condition) = bucket.condition().filter(|_| object.is_some()) {
                said.push((MARK_HEADER, mark_of(path)));
                said.push(condition);
            }
            job = job.of_object(headers(&said));
        }
        let job = Arc::new(job);
        let running = self.show(plan, &totals);
        let stop = self.context.stop.clone();
        let work = Work::Put(Arc::clone(&job));
        let mut ended = Ended {
            lanes_peak: 1,
            ..Ended::default()
        };
        if let Some(began) = plan.began {
            began(None);
        }
        match self.data.lanes.start(&server, 0, &work) {
            Ok(is_new) => self.report_channels(ChannelState::Opened, u32::from(is_new)),
            Err(error) => return Ended::failed(Failure::lost(error.to_string())),
        }
        loop {
            let watch = job.watcher.notified();
            tokio::pin!(watch);
            watch.as_mut().enable();
            if let Some(failure) = job.take_end() {
                ended.failure = failure;
                break;
            }
            tokio::select! {
                () = watch => {}
                () = stop.cancelled(), if !job.cancel.is_cancelled() => {
                    ended.is_stopped = true;
                    job.cancel.cancel();
                }
                () = given_up(&job.cancel, plan.may_block) => {
                    self.data.lanes.close();
                    break;
                }
            }
        }
        totals.close();
        drop(running);
        ended.bytes = job.bytes();
        let is_there = match &ended.failure {
            None => !ended.is_stopped,
            // It is not what was wanted, and is removed with what lies under the temporary name.
            Some(_) => job.is_stored(),
        };
        if let (Some((to, _)), true) = (object, is_there) {
            let stored = StoredObject {
                at: to.clone(),
                size: ended.bytes,
                tag: job.tag(),
                crc32c: job.crc32c(),
            };
            self.endpoint
                .uploads
                .insert(path, PendingObject::Stored(stored));
        }
        ended
    }

    /// Whether a file goes to a bucket in parts: it is gone on with, or is large enough. `file` may
    /// be read once, and then is to hold some parts.
    fn sends_upload(
        &self,
        plan: &TransferPlan<'_>,
        path: &FtpPath,
        file: &FileRef,
        length: u64,
    ) -> bool {
        let is_known = self.endpoint.uploads.parts_of(path).is_some();
        let goes_on = restart_of(plan) > 0 || is_known || plan.is_divided();
        let part_bytes = s3::part_bytes(length).unwrap_or(u64::MAX);
        let room = file.read_once_within().unwrap_or(u64::MAX);
        let has_room = room / 2 >= part_bytes || length > s3::PUT_BYTES_MAX;
        plan.stored_as.is_some() && (goes_on || length > PARTED_BYTES_MIN && has_room)
    }

    /// Whether a file goes to the server in parts: it is gone on with, or is large enough.
    fn sends_parts(
        &self,
        server: &HttpServer,
        plan: &TransferPlan<'_>,
        path: &FtpPath,
        length: u64,
    ) -> bool {
        // What is there of it already has come in parts.
        let goes_on = restart_of(plan) > 0 || plan.safe.is_some_and(|safe| !safe.is_empty());
        let is_large = goes_on || length > PARTED_BYTES_MIN;
        if is_large && !server.takes_parts.load(Ordering::Relaxed) {
            let name = self.endpoint.name();
            let text = "an upload goes in one stream, and begins again if it breaks off";
            let text = format!("{name}: no uploads in parts: {text}");
            let capabilities = &self.endpoint.capabilities;
            capabilities.learn(Lack::Parts, &self.context.reporter, text);
            return false;
        }
        is_large && path.file_name().is_some_and(temporary::is_temporary)
    }

    /// Sends a file, or what is left of it, in parts. What is there under its temporary name is
    /// written over: who may only create cannot empty it.
    async fn put_parts(
        &mut self,
        plan: &TransferPlan<'_>,
        path: &FtpPath,
        (file, base, length): (FileRef, u64, u64),
        are_open: bool,
    ) -> Ended {
        let remote = restart_of(plan);
        let size = match plan.safe {
            Some(safe) => safe.size(),
            // Others send other parts of the same upload.
            None if plan.is_divided() => match self.endpoint.uploads.parts_of(path) {
                Some(upload) => upload.size,
                // The next attempt finds out whether it has.
                None => return Ended::refused(reply(450, "the service has ended the upload")),
            },
            None => remote + length,
        };
        let Some(control) = self.http() else {
            return Ended::refused(not_offered("STOR"));
        };
        let server = Arc::clone(control.server());
        let mut upload = None;
        if let (Some(_), Some((to, attributes))) = (&server.bucket, &plan.stored_as) {
            let began = control.begin_upload(path, to, *attributes, size).await;
            let began = match began {
                Ok(Ok(began)) => began,
                Ok(Err(refusal)) => return Ended::refused(refusal),
                Err(error) => return Ended::failed(unreached(error)),
            };
            if let Some(safe) = plan.safe {
                safe.name_version(began.version());
            }
            upload = Some((path.clone(), began));
        } else if plan.safe.map_or(remote == 0, |safe| safe.is_empty()) {
            match control.make_empty(path).await {
                Ok(Ok(())) => {}
                Ok(Err(refusal)) => return Ended::refused(refusal),
                Err(error) => return Ended::failed(unreached(error)),
            }
        }
        if let Some(began) = plan.began {
            began(None);
        }
        let room = file.read_once_within().unwrap_or(u64::MAX);
        let mut region = Region::of_parts(length, room, self.round_trip, are_open);
        let mut target = server.target_of(path, false);
        if let Some((_, upload)) = &upload {
            region = region.in_grains(upload.part_bytes);
            target = server.target_of(&upload.to, false);
        }
        let job = Arc::new(PartsJob {
            region: region.recorded_in(plan.safe, remote),
            are_open,
            upload,
            endpoint: Arc::clone(&self.endpoint),
            reporter: Arc::clone(&self.context.reporter),
            target,
            remote,
            base,
            size,
            file,
            rate: Arc::clone(&self.context.rate),
            cancel: CancellationToken::new(),
        });
        let work = Work::Parts(Arc::clone(&job));
        let carried = self.carry(plan, &job.region, &job.cancel, &work, !plan.counts);
        let ended = carried.await;
        Ended {
            bytes: ended.safe.iter().map(|range| range.len()).sum(),
            ..ended
        }
    }

    fn show(
        &self,
        plan: &TransferPlan<'_>,
        totals: &Arc<RequestTotals>,
    ) -> Option<RunningTransfer> {
        let counters = &self.context.counters;
        let here = || LocalView::Requests(Arc::clone(totals));
        plan.is_shown()
            .then(|| RunningTransfer::new(counters, here()))
    }
}

pub(super) fn listing_failure(error: &std::io::Error) -> Failure {
    Failure::Transfer(TransferFailure::Storage(StorageFailure {
        errno: error.raw_os_error().unwrap_or(0),
        doing: "take a listing".to_owned(),
        text: error.to_string(),
    }))
}

/// Why a bucket does not take so many bytes in one request.
fn unfit_for_put(length: Option<u64>) -> Option<Reply> {
    match length {
        Some(length) if length <= s3::PUT_BYTES_MAX => None,
        Some(_) => Some(reply(
            552,
            "more than 5 GiB need a temporary name, in parts",
        )),
        None => Some(reply(504, "a bucket must be told how many bytes come")),
    }
}

/// How a transfer went.
#[derive(Default)]
struct Ended {
    bytes: u64,
    safe: RangeSet,
    failure: Option<Failure>,
    is_stopped: bool,
    lanes_peak: u32,
}

impl Ended {
    fn failed(failure: Failure) -> Self {
        Self {
            failure: Some(failure),
            ..Self::default()
        }
    }

    fn refused(reply: Reply) -> Self {
        Self::failed(Failure::Refused(reply, false))
    }
}

/// Which bytes of a file are wanted, and where they go.
struct Wanted {
    /// First byte of the region.
    start: u64,
    end: Option<u64>,
    /// Byte at the server that is byte 0 of the region.
    remote: u64,
    /// The file may go on behind the region.
    is_cut: bool,
    sink: LaneSink,
}

/// The first byte that is wanted at the server.
fn restart_of(plan: &TransferPlan<'_>) -> u64 {
    match &plan.ahead {
        Some(Command::Rest(RestartPoint::Offset(from))) => *from,
        _ => 0,
    }
}

impl Wanted {
    fn of(plan: &TransferPlan<'_>, sink: Sink) -> Self {
        let rest = restart_of(plan);
        match sink {
            Sink::Prefix { sink, bytes } => {
                let wanted = Self::of(plan, *sink);
                Self {
                    end: Some(wanted.start + bytes),
                    is_cut: true,
                    ..wanted
                }
            }
            Sink::File {
                file,
                base,
                stream_start,
                limit,
            } => Self {
                start: stream_start,
                end: limit,
                remote: rest.saturating_sub(stream_start),
                is_cut: false,
                sink: LaneSink::File {
                    file,
                    base,
                    turn: Mutex::new(()),
                },
            },
            Sink::Stream(stream) => Self {
                start: 0,
                end: plan.length,
                remote: rest,
                is_cut: false,
                sink: LaneSink::Stream(Mutex::new(stream)),
            },
        }
    }
}

/// Time for lanes to let go: standard output may block one for ever.
const LETTING_GO_LIMITS: [Duration; 2] = [Duration::from_secs(10), Duration::from_secs(1)];

async fn given_up(cancel: &CancellationToken, may_block: bool) {
    cancel.cancelled().await;
    tokio::time::sleep(LETTING_GO_LIMITS[usize::from(may_block)]).await;
}
