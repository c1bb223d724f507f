//! How far a job is: counters that all parts add to, and the display on a terminal.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_engine::data::{
    KernelSampler, Monitor, MoverClock, Progress, Sample, TcpTotals, TransferBatch,
};
use godwit_tune::{Bottleneck, Setting, bottleneck::LimitBytes};
use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::{Mutex, MutexGuard};

use super::{session_rates::SessionRates, totals};
use crate::units::{show_bytes, show_rate, show_setting};

/// Time between two looks at the counters.
pub(crate) const TICK: Duration = Duration::from_millis(200);

/// Round trips that a server reported of its channels are current for this long.
const REPORT_FRESH: Duration = Duration::from_secs(1);

/// Weight of the newest sample in the displayed rate: about the last three seconds count.
const RATE_WEIGHT: f64 = 0.07;

/// Numbers of a run.
#[derive(Default)]
pub(crate) struct Counters {
    /// Files found so far, and their bytes as far as known.
    pub(crate) files_found: AtomicU64,
    pub(crate) bytes_found: AtomicU64,
    /// Left out, since an earlier run has copied them.
    pub(crate) files_before: AtomicU64,
    /// Left out of a sync, since the destination has them.
    pub(crate) files_same: AtomicU64,
    /// Names that a sync has removed, or would.
    pub(crate) names_removed: AtomicU64,
    /// Nothing more will be found.
    pub(crate) scanned: AtomicBool,
    pub(crate) files_done: AtomicU64,
    pub(crate) files_failed: AtomicU64,
    /// Bytes of transfers that are over and were of use.
    pub(crate) bytes_moved: AtomicU64,
    /// Bytes of files that are there.
    pub(crate) bytes_done: AtomicU64,
    /// Checksums being computed now.
    pub(crate) verifying: AtomicU64,
    /// Of the control channel that began a transfer last, microseconds.
    round_trip_us: AtomicU64,
    /// Sessions that have small files in flight.
    pub(crate) session_rates: SessionRates,
    transfers: Mutex<Transfers>,
    limits: Mutex<LimitTotals>,
}

#[derive(Default)]
struct Transfers {
    running: Vec<TransferEntry>,
    next: u64,
    /// Of those that are over.
    over: Sample,
}

/// A transfer that runs, or some that follow each other.
struct TransferEntry {
    key: u64,
    here: LocalView,
    /// Nothing of it flows.
    rests: bool,
    /// What a server reported of its side of a get, or of a transfer to another server, and when.
    remote: Option<(Sample, Instant)>,
}

/// What can be seen here of a transfer.
pub(crate) enum LocalView {
    Transfer(Monitor),
    Batch(TransferBatch),
    Requests(Arc<RequestTotals>),
    /// It passes between two servers.
    Nothing,
}

/// What requests of HTTP have moved of a transfer.
pub(crate) struct RequestTotals {
    pub(crate) bytes: AtomicU64,
    /// Connections that carry it now.
    pub(crate) channels: AtomicU32,
    /// Time spent in reading the file and in writing it.
    pub(crate) read_us: AtomicU64,
    pub(crate) write_us: AtomicU64,
    /// Of its connections.
    pub(crate) sampler: KernelSampler,
    /// Of the threads that have carried it.
    clocks: Mutex<Vec<Arc<MoverClock>>>,
    began: Instant,
}

impl RequestTotals {
    /// `sends`: it goes to the server.
    pub(crate) fn new(sends: bool) -> Self {
        Self {
            bytes: AtomicU64::default(),
            channels: AtomicU32::default(),
            read_us: AtomicU64::default(),
            write_us: AtomicU64::default(),
            sampler: KernelSampler::new(sends),
            clocks: Mutex::default(),
            began: Instant::now(),
        }
    }

    /// The transfer is over: its connections may carry another one.
    pub(crate) fn close(&self) {
        let bytes = self.bytes.load(Ordering::Relaxed);
        let clocks = self.clocks.lock();
        self.sampler.close(bytes, &clocks, self.began.elapsed());
    }

    /// The thread of this clock carries it.
    pub(crate) fn carried_by(&self, clock: &Arc<MoverClock>) {
        let mut clocks = self.clocks.lock();
        if !clocks.iter().any(|own| Arc::ptr_eq(own, clock)) {
            clocks.push(Arc::clone(clock));
        }
    }

    fn sample(&self) -> Sample {
        let mut sample = Sample {
            bytes: self.bytes.load(Ordering::Relaxed),
            channels: self.channels.load(Ordering::Relaxed),
            ..Sample::default()
        };
        self.sampler.look(sample.bytes, &self.clocks.lock());
        // Its threads sleep while nothing comes, too: only they know what storage takes.
        self.sampler.fill(&mut sample);
        // Parts that are called back count no more: it would not follow.
        (sample.acknowledged, sample.age) = (None, Duration::ZERO);
        sample.storage.read_us = self.read_us.load(Ordering::Relaxed);
        sample.storage.write_us = self.write_us.load(Ordering::Relaxed);
        sample
    }
}

impl LocalView {
    fn sample(&self) -> Option<Sample> {
        match self {
            Self::Transfer(monitor) => Some(monitor.sample()),
            Self::Batch(batch) => Some(batch.sample()),
            Self::Requests(totals) => Some(totals.sample()),
            Self::Nothing => None,
        }
    }

    fn progress(&self) -> Option<Progress> {
        match self {
            Self::Transfer(monitor) => Some(monitor.progress()),
            // Its files count when they are over; what flows between is less than a moment's.
            Self::Batch(batch) => Some(Progress {
                channels: batch.progress().channels,
                ..Progress::default()
            }),
            Self::Requests(totals) => Some(Progress {
                bytes: totals.bytes.load(Ordering::Relaxed),
                channels: totals.channels.load(Ordering::Relaxed),
            }),
            Self::Nothing => None,
        }
    }
}

impl TransferEntry {
    /// Both sides: a sender knows TCP and the source, a receiver the destination. The bytes are
    /// ours, and both have movers. Of bytes that pass elsewhere only the last report is known.
    fn sample(&self) -> Sample {
        let Some(mut sample) = self.here.sample() else {
            return self
                .remote
                .map_or(Sample::default(), |(sample, at)| Sample {
                    age: sample.age + at.elapsed(),
                    ..sample
                });
        };
        if let (LocalView::Batch(_), Some((remote, at))) = (&self.here, &self.remote) {
            // Its sums begin again with each file.
            let fresh = remote.tcp.filter(|_| at.elapsed() < REPORT_FRESH);
            sample.tcp = fresh.map(|tcp| TcpTotals {
                rtt: tcp.rtt,
                rtt_min: tcp.rtt_min,
                ..TcpTotals::default()
            });
        } else if let Some((remote, _)) = &self.remote {
            sample.tcp = remote.tcp;
            sample.storage.read_us = remote.storage.read_us;
            sample.sender_movers = remote.movers;
        }
        sample
    }
}

impl TransferEntry {
    /// Bytes and channels.
    fn progress(&self) -> (u64, u32) {
        match (self.here.progress(), &self.remote) {
            (Some(p), _) => (p.bytes, p.channels),
            (None, Some((sample, _))) => (sample.bytes, sample.channels),
            (None, None) => (0, 0),
        }
    }
}

/// What limited the epochs so far.
#[derive(Default)]
struct LimitTotals {
    last: Option<Bottleneck>,
    bytes: LimitBytes,
}

/// One look at the counters.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[allow(missing_docs)] // the names say it; bytes and counts
pub struct Snapshot {
    pub phase: Phase,
    pub bytes: u64,
    pub bytes_total: u64,
    /// False while files are still being found: the total grows.
    pub total_known: bool,
    pub files: u64,
    pub files_total: u64,
    pub channels: u32,
    /// What is steered towards.
    pub setting: Option<Setting>,
    /// Stripes of transfers, each with the parallelism of the setting; 0 and 1: none.
    pub stripes: u32,
    /// What limited the last epoch.
    pub limited_by: Option<Bottleneck>,
}

/// What a job is busy with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Phase {
    /// Finding files.
    #[default]
    Scan,
    /// Moving bytes.
    Transfer,
    /// Comparing checksums.
    Verify,
}

impl Counters {
    pub(crate) fn snapshot(&self) -> Snapshot {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        let transfers = self.transfers();
        let running = &transfers.running;
        let (bytes, channels) = running.iter().fold((0_u64, 0_u32), |(b, c), entry| {
            let (bytes, channels) = entry.progress();
            (b.saturating_add(bytes), c.saturating_add(channels))
        });
        let total_known = self.scanned.load(Ordering::Relaxed);
        Snapshot {
            phase: if running.iter().any(|entry| !entry.rests) {
                Phase::Transfer
            } else if read(&self.verifying) > 0 {
                Phase::Verify
            } else if total_known {
                Phase::Transfer
            } else {
                Phase::Scan
            },
            bytes: read(&self.bytes_moved).saturating_add(bytes),
            bytes_total: read(&self.bytes_found),
            total_known,
            files: read(&self.files_done) + read(&self.files_failed),
            files_total: read(&self.files_found),
            channels,
            setting: None,
            stripes: 1,
            limited_by: self.limits().last,
        }
    }

    /// Totals since the job began, and whether a transfer is running.
    pub(crate) fn totals(&self) -> (Sample, bool) {
        let transfers = self.transfers();
        let mut totals = transfers.over;
        for entry in &transfers.running {
            totals::add(&mut totals, &entry.sample());
        }
        (totals, transfers.running.iter().any(|entry| !entry.rests))
    }

    /// The first session has logged in over a path of this round trip.
    pub(crate) fn on_login(&self, round_trip: Duration) {
        if self.round_trip().is_zero() {
            self.on_transfer_start(round_trip);
        }
    }

    /// A transfer begins over a path of this round trip.
    pub(crate) fn on_transfer_start(&self, round_trip: Duration) {
        let us = u64::try_from(round_trip.as_micros()).unwrap_or(0);
        self.round_trip_us.store(us, Ordering::Relaxed);
    }

    /// Of the path that the last transfer went over; of the first login before any, and 0 before
    /// that.
    pub(crate) fn round_trip(&self) -> Duration {
        Duration::from_micros(self.round_trip_us.load(Ordering::Relaxed))
    }

    /// So many bytes of use have moved.
    pub(crate) fn moved(&self, bytes: u64) {
        self.bytes_moved.fetch_add(bytes, Ordering::Relaxed);
    }

    /// An epoch of `bytes` was limited so.
    pub(crate) fn limited(&self, by: Option<Bottleneck>, bytes: u64) {
        let mut limits = self.limits();
        limits.last = by;
        limits.bytes.add(by, bytes);
    }

    /// What held for most bytes.
    pub(crate) fn limited_by(&self) -> Option<Bottleneck> {
        self.limits().bytes.most()
    }

    fn transfers(&self) -> MutexGuard<'_, Transfers> {
        self.transfers.lock()
    }

    fn limits(&self) -> MutexGuard<'_, LimitTotals> {
        self.limits.lock()
    }
}

/// A transfer that the display counts while this lives.
pub(crate) struct RunningTransfer {
    counters: Arc<Counters>,
    key: u64,
}

impl RunningTransfer {
    /// Of what passes elsewhere [`Self::report`] says how far it is.
    pub(crate) fn new(counters: &Arc<Counters>, here: LocalView) -> Self {
        let mut transfers = counters.transfers();
        let key = transfers.next;
        transfers.next += 1;
        transfers.running.push(TransferEntry {
            key,
            here,
            rests: false,
            remote: None,
        });
        drop(transfers);
        Self {
            counters: Arc::clone(counters),
            key,
        }
    }

    /// Whether nothing of it flows, but may again.
    pub(crate) fn rests(&self, rests: bool) {
        let mut transfers = self.counters.transfers();
        if let Some(entry) = transfers.running.iter_mut().find(|e| e.key == self.key) {
            entry.rests = rests;
        }
    }

    /// The server reported its side. Totals only grow: smaller ones are of the next transfer, which
    /// has begun there already.
    pub(crate) fn report(&self, sample: Sample) {
        let mut transfers = self.counters.transfers();
        if let Some(entry) = transfers.running.iter_mut().find(|e| e.key == self.key)
            && (matches!(entry.here, LocalView::Batch(_))
                || entry
                    .remote
                    .is_none_or(|(known, _)| known.bytes <= sample.bytes))
        {
            entry.remote = Some((sample, Instant::now()));
        }
    }
}

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        let mut transfers = self.counters.transfers();
        let transfers = &mut *transfers;
        let at = transfers.running.iter().position(|e| e.key == self.key);
        if let Some(at) = at {
            let entry = transfers.running.swap_remove(at);
            let sample = entry.sample();
            let last = Sample {
                // What was on its way when the connections closed has arrived, or is moved and
                // counted again.
                acknowledged: None,
                age: Duration::ZERO,
                channels: 0,
                // Sums go on; round trips are of the present. Where the server reported only those,
                // nothing is known of what was sent again, which is not the same as nothing.
                tcp: (sample.tcp)
                    .filter(|tcp| tcp.channel_us > 0)
                    .map(|tcp| TcpTotals {
                        rtt: Duration::ZERO,
                        ..tcp
                    }),
                receiving: None,
                ..sample
            };
            totals::add(&mut transfers.over, &last);
        }
    }
}

/// The display: one line on standard error, redrawn.
pub struct Display {
    bar: ProgressBar,
    last: Mutex<DisplayedRate>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DisplayedRate {
    bytes: u64,
    at: Option<Instant>,
    pub(crate) bps: f64,
}

impl Display {
    /// A line that is drawn by [`Self::show`].
    pub fn new() -> Self {
        let bar = ProgressBar::new_spinner();
        // The template is ours and has no variables that could be wrong; the default is no loss.
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            bar.set_style(style);
        }
        Self {
            bar,
            last: Mutex::default(),
        }
    }

    /// Draws; `None` wipes the line away.
    pub fn show(&self, snapshot: Option<&Snapshot>) {
        let Some(now) = snapshot else {
            self.bar.finish_and_clear();
            return;
        };
        let mut rate = self.last.lock();
        rate.update(now.bytes);
        self.bar.set_message(line(now, rate.bps));
        self.bar.tick();
    }

    /// Runs `print` with the line out of the way.
    pub fn suspend(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }
}

impl Default for Display {
    fn default() -> Self {
        Self::new()
    }
}

impl DisplayedRate {
    #[allow(clippy::cast_precision_loss)] // a rate for people
    pub(crate) fn update(&mut self, bytes: u64) {
        let now = Instant::now();
        if let Some(at) = self.at {
            let seconds = now.duration_since(at).as_secs_f64();
            if seconds > 0.0 {
                let sample = bytes.saturating_sub(self.bytes) as f64 * 8.0 / seconds;
                self.bps = if self.bps == 0.0 {
                    sample
                } else {
                    self.bps + RATE_WEIGHT * (sample - self.bps)
                };
            }
        }
        (self.bytes, self.at) = (bytes, Some(now));
    }
}

#[allow(clippy::cast_precision_loss)] // an estimate for people
fn line(s: &Snapshot, bps: f64) -> String {
    let more = if s.total_known { "" } else { "+" };
    let files = format!("{}/{}{more} files", s.files, s.files_total);
    match s.phase {
        Phase::Scan => format!("scan: {files}, {}", show_bytes(s.bytes_total)),
        Phase::Verify => format!("verify: {files}, {}", show_bytes(s.bytes)),
        Phase::Transfer => {
            let eta = if s.total_known && bps > 0.0 && s.bytes_total > s.bytes {
                let seconds = (s.bytes_total - s.bytes) as f64 * 8.0 / bps;
                format!(", {} left", clock(seconds))
            } else {
                String::new()
            };
            let channels = match s.setting {
                Some(setting) if s.stripes > 1 => show_setting(
                    setting.concurrency.into(),
                    s.stripes.into(),
                    setting.parallelism.into(),
                ),
                Some(setting) => setting.to_string(),
                None => s.channels.to_string(),
            };
            let limited = s
                .limited_by
                .map(|limit| format!(", limited by {limit}"))
                .unwrap_or_default();
            format!(
                "transfer: {} of {}{more}, {}{eta}, {files}, {channels} channels{limited}",
                show_bytes(s.bytes),
                show_bytes(s.bytes_total),
                show_rate(bps),
            )
        }
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // clamped just before
pub(crate) fn clock(seconds: f64) -> String {
    let s = seconds.clamp(0.0, 359_999.0) as u64;
    if s >= 3600 {
        format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
    } else {
        format!("{}:{:02}", s / 60, s % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_shows_rate_and_time_left_in_a_transfer() {
        let s = Snapshot {
            phase: Phase::Transfer,
            bytes: 1 << 30,
            bytes_total: 2 << 30,
            total_known: true,
            files: 1,
            files_total: 2,
            channels: 4,
            setting: None,
            stripes: 1,
            limited_by: None,
        };
        assert_eq!(
            line(&s, 1e9),
            "transfer: 1.00 GiB of 2.00 GiB, 1.00 Gbit/s, 0:08 left, 1/2 files, 4 channels"
        );
        let tuned = Snapshot {
            setting: Some(Setting::new(2, 8)),
            limited_by: Some(Bottleneck::PathCapacity),
            ..s
        };
        assert!(line(&tuned, 1e9).ends_with("2 x 8 channels, limited by path-capacity"));
        let striped = Snapshot {
            setting: Some(Setting::new(1, 6)),
            stripes: 4,
            ..s
        };
        assert!(line(&striped, 1e9).ends_with("1/2 files, 4 stripes x 6 channels"));
        let scanning = Snapshot {
            phase: Phase::Scan,
            total_known: false,
            ..s
        };
        assert_eq!(line(&scanning, 0.0), "scan: 1/2+ files, 2.00 GiB");
    }

    #[test]
    fn hours_are_shown_where_there_are_some() {
        assert_eq!(clock(59.9), "0:59");
        assert_eq!(clock(3725.0), "1:02:05");
        assert_eq!(clock(f64::MAX), "99:59:59");
    }
}
