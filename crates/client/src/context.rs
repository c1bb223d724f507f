//! State that all parts of a run share.

use std::{fmt::Display, sync::Arc, time::Instant};

use godwit_engine::{
    data::{Congestion, RateLimit},
    storage::{FastPath, FileRef, PosixStorage},
};
use tokio_util::sync::CancellationToken;

use crate::{
    auth::shared::SharedCredentials,
    endpoint::EndpointRegistry,
    kept_sessions::KeptSessions,
    local::LocalState,
    report::{
        events::{EventLog, Observer},
        progress::{Counters, Snapshot},
        reporter::Reporter,
    },
    session::WindowMemory,
    setting_target::SettingTarget,
    spec::Connections,
};

/// Shared by all sessions and workers of a run.
pub(crate) struct RunContext {
    pub(crate) connections: Connections,
    pub(crate) stop: CancellationToken,
    pub(crate) reporter: Arc<Reporter>,
    pub(crate) endpoints: Arc<EndpointRegistry>,
    pub(crate) target: SettingTarget,
    pub(crate) counters: Arc<Counters>,
    pub(crate) local: LocalState,
    pub(crate) credentials: SharedCredentials,
    /// The common rate limit of all data channels.
    pub(crate) rate: Arc<RateLimit>,
    /// Congestion control of the data channels that send.
    pub(crate) congestion: Arc<Congestion>,
    /// Of files that pass from server to server through this machine.
    pub(crate) windows: WindowMemory,
    pub(crate) started: Instant,
}

impl RunContext {
    pub(crate) fn new(
        connections: Connections,
        observer: Arc<dyn Observer>,
        log: Option<EventLog>,
        stop: CancellationToken,
        storage: PosixStorage,
    ) -> Arc<Self> {
        let reporter = Arc::new(Reporter::new(observer, log));
        let endpoints = Arc::<EndpointRegistry>::default();
        let kept = connections.kept.as_ref();
        Arc::new(Self {
            rate: kept.map(KeptSessions::rate).unwrap_or_default(),
            congestion: kept.map(KeptSessions::congestion).unwrap_or_default(),
            connections,
            stop,
            target: SettingTarget::new(Arc::clone(&endpoints), Arc::clone(&reporter)),
            reporter,
            endpoints,
            counters: Arc::default(),
            local: LocalState::new(storage),
            credentials: SharedCredentials::default(),
            windows: WindowMemory::default(),
            started: Instant::now(),
        })
    }

    /// Reports, once, that direct I/O was asked for and the file system of `file` has none.
    pub(crate) fn warn_no_direct_io(&self, file: &FileRef, name: impl Display) {
        let local = &self.local;
        if local.storage.is_direct_io() && matches!(file.fast_path(), FastPath::Descriptor(_)) {
            local.direct_io_warned.call_once(|| {
                self.reporter.note(format_args!(
                    "{name}: no direct I/O there, the page cache is used"
                ));
            });
        }
    }

    /// Progress, with the setting that the run steers towards.
    pub(crate) fn snapshot(&self) -> Snapshot {
        Snapshot {
            setting: Some(self.target.now().setting),
            stripes: self.target.stripes(),
            ..self.counters.snapshot()
        }
    }
}
