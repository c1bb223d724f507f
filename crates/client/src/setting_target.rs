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
    units::show_setting,
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
    /// Data channels in all, which those of stripes keep to; none: no transfer has stripes.
    channels_max: OnceLock<u32>,
    /// Connections in all, where a transfer may have more than its channels; none: it may not.
    connections_max: OnceLock<u32>,
    /// Stripes of the transfers that have most: each has the parallelism of the setting.
    stripes: AtomicU32,
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
            channels_max: OnceLock::new(),
            connections_max: OnceLock::new(),
            stripes: AtomicU32::new(1),
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

    /// `setting` as far as the servers of its side were found to let it, the limit of the job, and
    /// room for all stripes.
    pub(crate) fn clamp_to_limits(&self, setting: Setting, side: Side) -> Setting {
        let limit = self.limit();
        let sessions = self.endpoints.sessions_max().min(limit.concurrency);
        let channels = self.endpoints.channels_max(side).min(limit.parallelism);
        let concurrency = setting.concurrency.min(sessions);
        let stripes = self.stripes();
        let room = match self.channels_max.get() {
            Some(most) if stripes > 1 => {
                let most = limit.channels().min(*most);
                (most / stripes / concurrency.max(1)).max(1)
            }
            _ => u32::MAX,
        };
        Setting {
            concurrency,
            parallelism: setting.parallelism.min(channels).min(room),
            ..setting
        }
    }

    /// `target` with a number for the source that its servers take, if they take fewer channels
    /// than the destination is to have.
    pub(crate) fn with_source_limit(&self, target: Target) -> Target {
        let wanted = target.of(Side::Source);
        let source = self.clamp_to_limits(wanted, Side::Source).parallelism;
        let has_own = target.source_channels.is_some() || source < target.setting.parallelism;
        Target {
            source_channels: has_own.then_some(source),
            ..target
        }
    }

    /// Stripes of the transfers that have most, at least 1.
    pub(crate) fn stripes(&self) -> u32 {
        self.stripes.load(Ordering::Relaxed)
    }

    /// A transfer with `endpoint` has so many stripes: reports it where that is more than any had.
    pub(crate) fn on_stripes(&self, endpoint: &Endpoint, stripes: u32) {
        if self.stripes.fetch_max(stripes, Ordering::Relaxed) >= stripes {
            return;
        }
        let before = self.now();
        let from = before.setting;
        let to = self.clamp_to_limits(from, Side::Destination);
        let parallelism = to.parallelism.into();
        let shown = show_setting(to.concurrency.into(), stripes.into(), parallelism);
        self.reporter.emit(&Event::Decision {
            side: None,
            from: Some(self.view(from)),
            to: self.view(to),
            reason: format!("{shown}: {} has {stripes} stripes", endpoint.name()),
        });
        if from != to {
            self.replace(Target {
                setting: to,
                ..before
            });
        }
    }

    /// Transfers may have stripes.
    pub(crate) fn allows_stripes(&self) -> bool {
        self.channels_max.get().is_some()
    }

    /// Each of so many stripes may have a channel.
    pub(crate) fn has_room_for(&self, stripes: usize) -> bool {
        let most = self.channels_max.get().copied().unwrap_or(u32::MAX);
        u32::try_from(stripes).is_ok_and(|stripes| stripes <= most)
    }

    /// Transfers may have stripes from now on, with so many data channels in all. Before anything
    /// is opened.
    pub(crate) fn allow_stripes(&self, channels_max: u32) {
        // It is set once: here.
        let _ = self.channels_max.set(channels_max);
    }

    /// A transfer may have connections beside its channels from now on, and all together so many.
    /// Before anything is opened.
    pub(crate) fn allow_spares(&self, connections_max: u32) {
        // It is set once: here.
        let _ = self.connections_max.set(connections_max);
    }

    /// Connections that each transfer may have; 0: as many as channels.
    pub(crate) fn connections_allowed(&self) -> u32 {
        let all = self.connections_max.get().copied().unwrap_or(0);
        let each = all / self.now().setting.concurrency.max(1);
        each.min(self.limit().parallelism)
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
        let target = self.with_source_limit(Target {
            setting: self.clamp_to_limits(before.setting, Side::Destination),
            ..before
        });
        if target == before {
            return;
        }
        self.replace(target);
        let is_of_source = target.setting == before.setting;
        let side = is_of_source.then_some(Side::Source);
        let shown = side.unwrap_or(Side::Destination);
        let (from, to) = (before.of(shown), target.of(shown));
        self.reporter.emit(&Event::Decision {
            side: side.map(Side::as_str),
            from: Some(self.view(from)),
            to: self.view(to),
            reason: format!("{from} -> {to}: {}: {why}", endpoint.name()),
        });
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
        SettingView {
            stripes: self.stripes(),
            pipelining: self.pipelining.load(Ordering::Relaxed),
            ..setting.into()
        }
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
        let count = match place.is_extra {
            true => self.setting.channels(),
            false => self.setting.concurrency,
        };
        place.rank < count && place.generation == self.generation
    }
}

/// A worker's place: the ones of the highest rank leave first, and all when a new generation
/// begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WorkerSlot {
    pub(crate) rank: u32,
    /// A channel that moves small files of its own, one at a time.
    pub(crate) is_extra: bool,
    pub(crate) generation: u64,
}

#[cfg(test)]
mod tests {
    use godwit_proto::url::Location;

    use super::*;
    use crate::{endpoint::capabilities::Observed, report::events::Observer};

    /// Side, parallelism and reason of each decision.
    #[derive(Default)]
    struct Decisions(Mutex<Vec<(Option<&'static str>, u32, String)>>);

    impl Observer for Decisions {
        fn on_event(&self, event: &Event) {
            if let Event::Decision {
                side, to, reason, ..
            } = event
            {
                let decision = (*side, to.parallelism, reason.clone());
                self.0.lock().push(decision);
            }
        }
    }

    struct Between {
        target: SettingTarget,
        source: Arc<Endpoint>,
        destination: Arc<Endpoint>,
        decisions: Arc<Decisions>,
    }

    /// Files from one server to another, with two sessions of 16 channels.
    fn between(passes_here: bool) -> Between {
        let endpoints = Arc::<EndpointRegistry>::default();
        let endpoint = |url: &[u8]| {
            let Ok(Location::Remote(url)) = Location::parse(url) else {
                panic!("a URL");
            };
            endpoints.of(&url)
        };
        let source = endpoint(b"s3://mine/");
        let destination = endpoint(b"ftp://there/");
        source.capabilities.record(Observed::SendsToServer);
        destination.capabilities.record(Observed::MovesFiles);
        if passes_here {
            destination.capabilities.record(Observed::FedByClient);
        }
        let decisions = Arc::<Decisions>::default();
        let observer = Arc::<Decisions>::clone(&decisions);
        let reporter = Arc::new(Reporter::new(observer, None));
        let target = SettingTarget::new(endpoints, reporter);
        target.replace(Target {
            setting: Setting::new(2, 16),
            ..Target::default()
        });
        Between {
            target,
            source,
            destination,
            decisions,
        }
    }

    #[test]
    fn a_source_that_takes_few_channels_leaves_the_destination_its_own() {
        let between = between(true);
        let (target, source) = (&between.target, &between.source);
        let channels = || {
            let now = target.now();
            let of = |side| now.of(side).parallelism;
            (of(Side::Source), of(Side::Destination))
        };
        target.channels_refused(source, 10);
        assert_eq!(channels(), (16, 16), "one refusal may have any cause");
        target.channels_refused(source, 10);
        assert_eq!(channels(), (10, 16));
        {
            let decisions = between.decisions.0.lock();
            let (side, parallelism, reason) = &decisions[0];
            assert_eq!((*side, *parallelism), (Some("source"), 10));
            assert!(reason.contains("s3://mine"), "{reason}");
        }
        let clamped = |side| target.clamp_to_limits(Setting::new(2, 64), side);
        assert_eq!(clamped(Side::Source), Setting::new(2, 10));
        assert_eq!(clamped(Side::Destination), Setting::new(2, 64));
        // What a tuner decides next about the destination does not give the source more.
        let next = target.with_source_limit(Target {
            setting: Setting::new(2, 64),
            ..Target::default()
        });
        assert_eq!(next.of(Side::Source).parallelism, 10);
        for _ in 0..2 {
            target.channels_refused(&between.destination, 12);
        }
        assert_eq!(channels(), (10, 12));
        let decisions = between.decisions.0.lock();
        assert_eq!((decisions[1].0, decisions[1].1), (None, 12));
    }

    #[test]
    fn where_one_server_sends_to_the_other_both_have_the_fewer_channels() {
        let between = between(false);
        for _ in 0..2 {
            between.target.channels_refused(&between.source, 10);
        }
        let now = between.target.now();
        assert_eq!(
            (now.setting, now.source_channels),
            (Setting::new(2, 10), None)
        );
    }
}
