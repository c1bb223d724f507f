//! One transfer: the file first (a fast failure leaves the data channel alone), then connections, then octets,
//! then what success depends on (checksums, modification time).
//!
//! ```text
//!   Opening ──► Moving ──► Finishing ──► Done          Opening and Finishing run on blocking threads
//!      └──────────┴── failure, abort ──────┘
//! ```

use std::{
    io::Write as _,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::{Job, Sample, Sink, Source, Transfer, TransferEvent, TransferReport},
    digest,
    storage::{FastPath, FileCursor, FileKind, Storage, WriteMode, listing::Listing},
    text::{CrlfReader, LfWriter},
};
use godwit_proto::{
    ByteRange, ChecksumAlgorithm, FtpPath, RangeSet, RestartPoint,
    command::{Mode, Region, TypeCode},
    error::{StorageFailure, TransferFailure},
    live::{Live, LiveReport},
    pi::server::{Placement, TransferKind, TransferRequest},
    timestamp::Timestamp,
};
use rustix::io::Errno;
use tokio::task::JoinHandle;

use crate::{data_channels::DataChannels, failure, failure_of, shared_writer::SharedWriter};

/// Largest offset that a file can have: `off_t` is signed.
const FILE_OFFSET_MAX: u64 = i64::MAX as u64;

/// Octets of a RETR of an endless device: until the client has had enough.
const ENDLESS: u64 = FILE_OFFSET_MAX;

/// A transfer of a session. Dropping it ends it, and the data channels it runs on must then be dropped too.
pub(crate) struct RunningTransfer {
    stage: Stage,
    mode: Mode,
    receiving: bool,
    /// Ranges of a receipt are news for 111 only where wire offsets are file offsets.
    reports_ranges: bool,
    checks: Option<Checks>,
    bytes: u64,
    /// Known once the octets have moved.
    totals: Sample,
    aborted: bool,
}

enum Stage {
    Opening(JoinHandle<Result<Opened, StorageFailure>>),
    Moving(Transfer),
    Finishing {
        report: TransferReport,
        fresh: RangeSet,
        verdict: JoinHandle<Result<(), TransferFailure>>,
        stop: Arc<AtomicBool>,
    },
    Over,
}

/// What the interpreter hears of it.
#[derive(Debug)]
pub(crate) enum TransferStep {
    /// Data connections are up.
    Ready { reused: bool },
    /// Over.
    Done(TransferEnd),
}

/// How it ended.
#[derive(Debug)]
pub(crate) struct TransferEnd {
    pub(crate) bytes: u64,
    pub(crate) fresh: RangeSet,
    pub(crate) result: Result<(), TransferFailure>,
    pub(crate) cached: bool,
    pub(crate) channels_peak: u32,
    pub(crate) elapsed: Duration,
}

impl TransferEnd {
    /// Ended from outside with `bytes` moved.
    pub(crate) fn aborted(bytes: u64, fresh: RangeSet) -> Self {
        Self {
            bytes,
            fresh,
            ..Self::failed(TransferFailure::Aborted)
        }
    }

    fn failed(failure: TransferFailure) -> Self {
        Self {
            bytes: 0,
            fresh: RangeSet::new(),
            result: Err(failure),
            cached: false,
            channels_peak: 0,
            elapsed: Duration::ZERO,
        }
    }
}

impl RunningTransfer {
    /// Begins to open the file.
    pub(crate) fn start(request: TransferRequest, storage: Arc<dyn Storage>) -> Self {
        let mode = request.mode;
        let receiving = matches!(request.kind, TransferKind::Receive { .. });
        Self {
            stage: Stage::Opening(tokio::task::spawn_blocking(move || open(request, storage))),
            mode,
            receiving,
            reports_ranges: false,
            checks: None,
            bytes: 0,
            totals: Sample::default(),
            aborted: false,
        }
    }

    /// What comes next. Cancel-safe; after `Done` never returns.
    pub(crate) async fn next(&mut self, channels: &DataChannels) -> TransferStep {
        loop {
            match &mut self.stage {
                Stage::Opening(opening) => {
                    let opened = opening.await;
                    if let Some(end) = self.opened(opened, channels) {
                        self.stage = Stage::Over;
                        return TransferStep::Done(end);
                    }
                }
                Stage::Moving(transfer) => match transfer.next_event().await {
                    TransferEvent::Ready { reused } => return TransferStep::Ready { reused },
                    TransferEvent::Done(report) => {
                        if let Some(end) = self.moved(report) {
                            return TransferStep::Done(end);
                        }
                    }
                },
                Stage::Finishing { verdict, .. } => {
                    let verdict = verdict.await.unwrap_or_else(|_| Err(internal_error()));
                    if let Some(end) = self.finished(verdict) {
                        return TransferStep::Done(end);
                    }
                }
                Stage::Over => std::future::pending().await,
            }
        }
    }

    fn opened(
        &mut self,
        opened: Result<Result<Opened, StorageFailure>, tokio::task::JoinError>,
        channels: &DataChannels,
    ) -> Option<TransferEnd> {
        let opened = match opened {
            Ok(Ok(_)) if self.aborted => {
                return Some(TransferEnd::failed(TransferFailure::Aborted));
            }
            Ok(Ok(opened)) => opened,
            Ok(Err(failure)) => {
                let mut end = TransferEnd::failed(failure.into());
                // A receipt that fails before it starts must not leave connections behind: the client may have put
                // the file's octets on them already.
                end.cached = !self.receiving && channels.cached() > 0;
                return Some(end);
            }
            Err(_) => return Some(TransferEnd::failed(internal_error())),
        };
        self.reports_ranges = opened.reports_ranges;
        self.checks = opened.checks;
        match channels.start(opened.job, self.mode) {
            Ok(transfer) => {
                self.stage = Stage::Moving(transfer);
                None
            }
            Err(failure) => Some(TransferEnd::failed(failure)),
        }
    }

    /// The octets have moved, or not. `None`: there is more to check.
    fn moved(&mut self, report: TransferReport) -> Option<TransferEnd> {
        let fresh = self.fresh();
        self.bytes = report.bytes;
        if let Stage::Moving(transfer) = &self.stage {
            self.totals = transfer.monitor().sample();
        }
        // The transfer holds the file until here.
        self.stage = Stage::Over;
        match self.checks.take() {
            Some(checks) if report.result.is_ok() && !self.aborted => {
                let stop = Arc::new(AtomicBool::new(false));
                let stopped = Arc::clone(&stop);
                self.stage = Stage::Finishing {
                    report,
                    fresh,
                    verdict: tokio::task::spawn_blocking(move || checks.run(&stopped)),
                    stop,
                };
                None
            }
            _ => Some(end_of(report, fresh)),
        }
    }

    fn finished(&mut self, verdict: Result<(), TransferFailure>) -> Option<TransferEnd> {
        match std::mem::replace(&mut self.stage, Stage::Over) {
            Stage::Finishing {
                mut report, fresh, ..
            } => {
                report.result = if self.aborted {
                    Err(TransferFailure::Aborted)
                } else {
                    verdict
                };
                Some(end_of(report, fresh))
            }
            other => {
                self.stage = other;
                None
            }
        }
    }

    /// What the data plane knows of the whole transfer, once the octets have moved.
    pub(crate) fn totals(&self) -> Sample {
        self.totals
    }

    /// Octets so far, and ranges that became safe since the last call.
    pub(crate) fn progress(&mut self) -> (u64, RangeSet) {
        if let Stage::Moving(transfer) = &self.stage {
            self.bytes = transfer.monitor().progress().bytes;
        }
        (self.bytes, self.fresh())
    }

    /// Looks at the data plane or changes its channels; `None` where it does not run.
    pub(crate) fn live(&self, live: Live) -> Option<LiveReport> {
        let Stage::Moving(transfer) = &self.stage else {
            return None;
        };
        let monitor = transfer.monitor();
        match live {
            Live::Channels(wanted) => {
                monitor.steer(wanted);
            }
            Live::Report => {}
        }
        Some(monitor.sample().into())
    }

    fn fresh(&self) -> RangeSet {
        match &self.stage {
            Stage::Moving(transfer) if self.reports_ranges => transfer.take_fresh(),
            _ => RangeSet::new(),
        }
    }

    /// Ends it; [`TransferStep::Done`] follows. Work on a blocking thread is waited for: a file that is still being opened
    /// would else be truncated under the next transfer.
    pub(crate) fn abort(&mut self) {
        self.aborted = true;
        match &self.stage {
            Stage::Moving(transfer) => transfer.abort(),
            Stage::Finishing { stop, .. } => stop.store(true, Ordering::Relaxed),
            Stage::Opening(_) | Stage::Over => {}
        }
    }
}

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        if let Stage::Finishing { stop, .. } = &self.stage {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

fn end_of(report: TransferReport, fresh: RangeSet) -> TransferEnd {
    TransferEnd {
        bytes: report.bytes,
        fresh,
        cached: report.result.is_ok() && report.cached > 0,
        result: report.result,
        channels_peak: report.channels_peak,
        elapsed: report.elapsed,
    }
}

fn internal_error() -> TransferFailure {
    TransferFailure::Storage(StorageFailure {
        errno: 0,
        doing: "carry out the transfer".to_owned(),
        text: "internal error, see the server's log".to_owned(),
    })
}

/// A file that is open, ready for the data plane.
struct Opened {
    job: Job,
    reports_ranges: bool,
    checks: Option<Checks>,
}

fn open(request: TransferRequest, storage: Arc<dyn Storage>) -> Result<Opened, StorageFailure> {
    let TransferRequest {
        kind,
        mode,
        type_code,
        ..
    } = request;
    match kind {
        TransferKind::Send {
            path,
            region,
            restart,
        } => open_source(&*storage, &path, region, restart.as_ref(), mode, type_code),
        TransferKind::Receive {
            path,
            placement,
            restart,
            expected_bytes: _,
            checksums,
            modify,
        } => {
            let checks = Checks {
                unflushed: None,
                storage: Arc::clone(&storage),
                path: path.clone(),
                checksums,
                modify,
            };
            let restart = restart.as_ref();
            open_sink(
                &*storage, &path, placement, restart, mode, type_code, checks,
            )
        }
        TransferKind::List { path, form } => {
            let listing = Listing::open(storage, &path, form, now())?;
            Ok(Opened {
                job: Job::Send(Source::Stream(Box::new(listing))),
                reports_ranges: false,
                checks: None,
            })
        }
    }
}

fn open_source(
    storage: &dyn Storage,
    path: &FtpPath,
    region: Option<Region>,
    restart: Option<&RestartPoint>,
    mode: Mode,
    type_code: TypeCode,
) -> Result<Opened, StorageFailure> {
    let file = storage.open_read(path)?;
    let metadata = file.metadata()?;
    let size = match (metadata.kind, file.fast_path()) {
        (FileKind::Special, FastPath::Zeros) => ENDLESS,
        (FileKind::Special, FastPath::Discard) => 0,
        (FileKind::Special, _) => {
            // A terminal or a pipe has no octets at offsets, and may never end.
            return Err(failure(
                Errno::PERM,
                &format!("read the special file {path}"),
            ));
        }
        _ => metadata.size,
    };
    let (base, length) = region_of(size, region);
    let ranges = ranges_to_send(length, restart, mode);
    let source = match type_code {
        TypeCode::Image => Source::File { file, base, ranges },
        TypeCode::Ascii => {
            let start = ranges.first().map_or(length, |range| range.start);
            let octets = FileCursor::new(file, base + start).until(base + length);
            Source::Stream(Box::new(CrlfReader::new(octets)))
        }
    };
    Ok(Opened {
        job: Job::Send(source),
        reports_ranges: false,
        checks: None,
    })
}

/// Octet of the file where the region begins, and how long it is: a region past the end is short or empty.
fn region_of(size: u64, region: Option<Region>) -> (u64, u64) {
    match region {
        None => (0, size),
        Some(Region { offset, length }) => {
            let base = offset.min(size);
            (base, length.min(size - base))
        }
    }
}

fn ranges_to_send(length: u64, restart: Option<&RestartPoint>, mode: Mode) -> Vec<ByteRange> {
    let whole = ByteRange {
        start: 0,
        end: length,
    };
    let there = restart.map(RestartPoint::to_ranges).unwrap_or_default();
    let mut gaps = there.gaps(whole);
    // A stream has no offsets: all from the first missing octet on. Octets repeat at worst.
    if mode == Mode::Stream
        && let Some(first) = gaps.first().copied()
    {
        gaps = vec![ByteRange {
            start: first.start,
            end: length,
        }];
    }
    gaps
}

fn open_sink(
    storage: &dyn Storage,
    path: &FtpPath,
    placement: Placement,
    restart: Option<&RestartPoint>,
    mode: Mode,
    type_code: TypeCode,
    checks: Checks,
) -> Result<Opened, StorageFailure> {
    let there = restart.map(RestartPoint::to_ranges).unwrap_or_default();
    let how = write_mode(placement, &there);
    let file = storage.open_write(path, how)?;
    let base = match placement {
        Placement::Replace => 0,
        Placement::Append => file.metadata()?.size,
        Placement::At(offset) => offset,
    };
    let Some(limit) = FILE_OFFSET_MAX.checked_sub(base) else {
        return Err(failure(
            Errno::FBIG,
            &format!("write {path} at octet {base}"),
        ));
    };
    let stream_start = match mode {
        Mode::Stream => first_missing(&there),
        Mode::ExtendedBlock => 0,
    };
    let image = type_code == TypeCode::Image;
    let mut checks = checks;
    let sink = if image {
        Sink::File {
            file,
            base,
            stream_start,
            limit: Some(limit),
        }
    } else {
        let octets = FileCursor::new(file, base.saturating_add(stream_start));
        let writer = SharedWriter::new(LfWriter::new(octets));
        checks.unflushed = Some(writer.clone());
        Sink::Stream(Box::new(writer))
    };
    Ok(Opened {
        job: Job::Receive(sink),
        reports_ranges: image,
        checks: checks.needed(),
    })
}

/// A restart that leaves octets in place must not truncate them away.
fn write_mode(placement: Placement, there: &RangeSet) -> WriteMode {
    match placement {
        Placement::Replace if there.is_empty() => WriteMode::Replace,
        _ => WriteMode::Keep,
    }
}

fn first_missing(there: &RangeSet) -> u64 {
    there
        .gaps(ByteRange::ALL)
        .first()
        .map_or(u64::MAX, |gap| gap.start)
}

/// What success of a receipt still depends on.
struct Checks {
    /// TYPE A: a CR at the very end waits for what follows it.
    unflushed: Option<SharedWriter>,
    storage: Arc<dyn Storage>,
    path: FtpPath,
    checksums: Vec<(ChecksumAlgorithm, String)>,
    modify: Option<Timestamp>,
}

impl Checks {
    fn needed(self) -> Option<Self> {
        let is_needed =
            self.unflushed.is_some() || !self.checksums.is_empty() || self.modify.is_some();
        is_needed.then_some(self)
    }

    /// `stop` ends a long checksum.
    fn run(mut self, stop: &AtomicBool) -> Result<(), TransferFailure> {
        if let Some(mut writer) = self.unflushed.take() {
            writer
                .flush()
                .map_err(|e| failure_of(&e, &format!("write {}", self.path)))?;
        }
        for (algorithm, expected) in &self.checksums {
            // The file as it now is, read back: what the octets on the wire were proves less.
            let file = self.storage.open_read(&self.path)?;
            let computed = digest::of_file(&*file, *algorithm, 0, None, &mut |_| {
                !stop.load(Ordering::Relaxed)
            })?;
            if !computed.eq_ignore_ascii_case(expected) {
                return Err(TransferFailure::Checksum {
                    computed,
                    expected: expected.clone(),
                });
            }
        }
        if let Some(modify) = self.modify {
            self.storage.set_modified(&self.path, system_time(modify))?;
        }
        Ok(())
    }
}

/// Seconds since 1970, for listings.
fn now() -> Timestamp {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    Timestamp(i64::try_from(since.as_secs()).unwrap_or(i64::MAX))
}

/// Clamped to what the system's clock type holds; 14 digits never reach its ends.
pub(crate) fn system_time(Timestamp(seconds): Timestamp) -> SystemTime {
    let distance = Duration::from_secs(seconds.unsigned_abs());
    let time = if seconds < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(start: u64, end: u64) -> ByteRange {
        ByteRange { start, end }
    }

    fn ranges(list: &[(u64, u64)]) -> RestartPoint {
        RestartPoint::Ranges(list.iter().map(|(s, e)| range(*s, *e)).collect())
    }

    #[test]
    fn a_region_past_the_end_is_cut() {
        let region = |offset, length| Some(Region { offset, length });
        assert_eq!(region_of(100, None), (0, 100));
        assert_eq!(region_of(100, region(10, 20)), (10, 20));
        assert_eq!(region_of(100, region(90, 20)), (90, 10));
        assert_eq!(region_of(100, region(200, 20)), (100, 0));
        assert_eq!(region_of(100, region(1, u64::MAX)), (1, 99));
        assert_eq!(region_of(100, region(u64::MAX, u64::MAX)), (100, 0));
    }

    #[test]
    fn restart_leaves_out_what_is_there() {
        let holes = ranges(&[(0, 10), (20, 30)]);
        assert_eq!(
            ranges_to_send(50, Some(&holes), Mode::ExtendedBlock),
            [range(10, 20), range(30, 50)]
        );
        assert_eq!(
            ranges_to_send(50, Some(&holes), Mode::Stream),
            [range(10, 50)]
        );
        let offset = RestartPoint::Offset(40);
        assert_eq!(
            ranges_to_send(50, Some(&offset), Mode::Stream),
            [range(40, 50)]
        );
        let past = RestartPoint::Offset(60);
        assert_eq!(ranges_to_send(50, Some(&past), Mode::Stream), []);
        assert_eq!(ranges_to_send(0, None, Mode::Stream), []);
    }

    #[test]
    fn only_a_plain_store_truncates() {
        let none = RangeSet::new();
        let some = ranges(&[(0, 5)]).to_ranges();
        assert_eq!(write_mode(Placement::Replace, &none), WriteMode::Replace);
        assert_eq!(write_mode(Placement::Replace, &some), WriteMode::Keep);
        assert_eq!(write_mode(Placement::Append, &none), WriteMode::Keep);
        assert_eq!(write_mode(Placement::At(0), &none), WriteMode::Keep);
    }

    #[test]
    fn a_stream_goes_on_at_the_first_missing_octet() {
        assert_eq!(first_missing(&RangeSet::new()), 0);
        assert_eq!(first_missing(&RestartPoint::Offset(7).to_ranges()), 7);
        assert_eq!(first_missing(&ranges(&[(5, 9)]).to_ranges()), 0);
    }

    #[test]
    fn dates_before_the_epoch_are_dates() {
        assert_eq!(
            system_time(Timestamp(-1)),
            SystemTime::UNIX_EPOCH - Duration::from_secs(1)
        );
        system_time(Timestamp::MIN);
        system_time(Timestamp::MAX);
    }
}
