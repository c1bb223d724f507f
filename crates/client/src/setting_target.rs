//! The setting that a run steers towards, within the limits of its servers.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use godwit_tune::Setting;
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::{
    endpoint::{Endpoint, EndpointRegistry},
    passing::Side,
    report::{
        events::{Event, SettingView},
        reporter::Reporter,
    },
    spec::SettingLimit,
};

/// Time between two reports of how many small files are in flight.
const DEPTH_REPORTED_EVERY: Duration = Duration::from_secs(1);

/// What transfers and workers follow while they run. A run that moves no files leaves it at 1 x 1.
pub(crate) struct SettingTarget {
    sender: watch::Sender<Target>,
    endpoints: Arc<EndpointRegistry>,
    reporter: Arc<Reporter>,
    /// What no setting may pass, as another thread says; none: nothing.
    limit: OnceLock<SettingLimit>,
    /// Small files in flight on a session, as last reported.
    pipelining: AtomicU32,
    /// When it was reported last, and the maximum of all reports.
    depth_reported: Mutex<Option<(Instant, u32)>>,
}

impl SettingTarget {
    pub(crate) fn new(endpoints: Arc<EndpointRegistry>, reporter: Arc<Reporter>) -> Self {
        Self {
            sender: watch::Sender::new(Target::default()),
            endpoints,
            reporter,
            limit: OnceLock::new(),
            pipelining: AtomicU32::new(1),
            depth_reported: Mutex::default(),
        }
    }

    pub(crate) fn now(&self) -> Target {
        *self.sender.borrow()
    }

    pub(crate) fn subscribe(&self) -> watch::Receiver<Target> {
        self.sender.subscribe()
    }

    pub(crate) fn replace(&self, target: Target) {
        self.sender.send_replace(target);
    }

    /// No setting passes `limit` from now on. Before anything is opened.
    pub(crate) fn limit_to(&self, limit: SettingLimit) {
        // It is set once: here.
        let _ = self.limit.set(limit);
    }

    /// `setting` as far as servers were found to let it, and the limit of the job.
    pub(crate) fn clamp_to_limits(&self, setting: Setting) -> Setting {
        let limit = self.limit();
        let sessions = self.endpoints.sessions_max().min(limit.concurrency);
        let channels = self.endpoints.channels_max().min(limit.parallelism);
        Setting {
            concurrency: setting.concurrency.min(sessions),
            parallelism: setting.parallelism.min(channels),
            ..setting
        }
    }

    /// The limit of the job.
    pub(crate) fn limit(&self) -> Setting {
        let limit = self.limit.get().map(SettingLimit::now);
        limit.unwrap_or(Setting::new(u32::MAX, u32::MAX))
    }

    /// `endpoint` admitted no more than `most` sessions.
    pub(crate) fn sessions_refused(&self, endpoint: &Endpoint, most: u32) {
        if endpoint.refused_sessions(most) {
            self.keep_to_limits(endpoint, "the server lets no further session in");
        }
    }

    /// `endpoint` gave up a transfer that had grown to more than `most` data channels.
    pub(crate) fn channels_refused(&self, endpoint: &Endpoint, most: u32) {
        if endpoint.refused_channels(most) {
            self.keep_to_limits(endpoint, "the server gave up when channels were added");
        }
    }

    fn keep_to_limits(&self, endpoint: &Endpoint, why: &str) {
        let before = self.now();
        let (from, to) = (before.setting, self.clamp_to_limits(before.setting));
        if from != to {
            self.replace(Target {
                setting: to,
                ..before
            });
            self.reporter.emit(&Event::Decision {
                side: None,
                from: Some(self.view(from)),
                to: self.view(to),
                reason: format!("{from} -> {to}: {}: {why}", endpoint.name()),
            });
        }
    }

    /// Reports how many small files a session has in flight. Changes of less than a factor of two
    /// are left out, and those within a second of the last report, but for a new maximum: sessions
    /// differ.
    pub(crate) fn report_depth(&self, depth: u32, round_trip: Duration) {
        let before = self.pipelining.load(Ordering::Relaxed);
        if depth < before.saturating_mul(2) && before < depth.saturating_mul(2) {
            return;
        }
        {
            let mut reported = self.depth_reported.lock();
            let (at, most) = reported.unzip();
            let grows = most.is_none_or(|most| depth > most);
            if !grows && at.is_some_and(|at| at.elapsed() < DEPTH_REPORTED_EVERY) {
                return;
            }
            *reported = Some((Instant::now(), depth.max(most.unwrap_or(0))));
        }
        let setting = self.now().setting;
        let from = self.view(setting);
        self.pipelining.store(depth, Ordering::Relaxed);
        self.reporter.emit(&Event::Decision {
            side: None,
            from: Some(from),
            to: self.view(setting),
            reason: format!(
                "{setting}: {depth} small files in flight on a control channel with a round trip \
                 of {:.1} ms",
                round_trip.as_secs_f64() * 1e3
            ),
        });
    }

    /// A setting as logs hold it.
    pub(crate) fn view(&self, setting: Setting) -> SettingView {
        Setting {
            pipelining_depth: self.pipelining.load(Ordering::Relaxed),
            ..setting
        }
        .into()
    }
}

/// What a run steers towards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) setting: Setting,
    /// Data channels of each session with the source of files that pass through this machine, where
    /// it has a number of its own; the setting is that of the destination then.
    pub(crate) source_channels: Option<u32>,
    /// How often all channels were restarted (`--epoch-mode restart`).
    pub(crate) generation: u64,
}

impl Default for Target {
    fn default() -> Self {
        Self {
            setting: Setting::new(1, 1),
            source_channels: None,
            generation: 0,
        }
    }
}

impl Target {
    /// The setting of one side.
    pub(crate) fn of(&self, side: Side) -> Setting {
        match (side, self.source_channels) {
            (Side::Source, Some(parallelism)) => Setting {
                parallelism,
                ..self.setting
            },
            _ => self.setting,
        }
    }

    /// True if the worker in `place` is still wanted.
    pub(crate) fn includes(&self, place: WorkerSlot) -> bool {
        place.rank < self.setting.concurrency && place.generation == self.generation
    }
}

/// A worker's place: the ones of the highest rank leave first, and all when a new generation
/// begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerSlot {
    pub(crate) rank: u32,
    pub(crate) generation: u64,
}
