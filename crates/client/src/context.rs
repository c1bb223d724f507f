//! What all parts of one run share: the observer, the interrupt, the endpoints and what was learned of them.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_proto::{FtpPath, command::Password, pi::login::Credentials, url::RemoteUrl};
use godwit_tune::Setting;
use tokio::sync::watch;

use crate::{
    events::{Event, EventLog, Observer},
    progress::Counters,
    spec::Connections,
};

/// Shared by all sessions and workers of a run.
pub(crate) struct Context {
    pub(crate) connections: Connections,
    pub(crate) counters: Arc<Counters>,
    pub(crate) stop: Stop,
    /// The setting that transfers follow while they run. What neither moves files nor is tuned leaves it at 1 x 1.
    pub(crate) target: watch::Sender<Setting>,
    observer: Arc<dyn Observer>,
    log: Option<EventLog>,
    endpoints: Mutex<Vec<Arc<Endpoint>>>,
}

impl Context {
    pub(crate) fn new(
        connections: Connections,
        observer: Arc<dyn Observer>,
        log: Option<EventLog>,
        stop: Stop,
    ) -> Arc<Self> {
        Arc::new(Self {
            connections,
            counters: Arc::default(),
            stop,
            target: watch::Sender::new(Setting::new(1, 1)),
            observer,
            log,
            endpoints: Mutex::default(),
        })
    }

    pub(crate) fn emit(&self, event: &Event) {
        if let Some(log) = &self.log {
            log.append(event);
        }
        self.observer.on_event(event);
    }

    /// Something is done without, and why.
    pub(crate) fn note(&self, text: impl Display) {
        self.emit(&Event::Note {
            text: text.to_string(),
        });
    }

    /// Something the user must see.
    pub(crate) fn warn(&self, text: impl Display) {
        self.emit(&Event::Warning {
            text: text.to_string(),
        });
    }

    pub(crate) fn observer(&self) -> &dyn Observer {
        self.observer.as_ref()
    }

    pub(crate) fn finish_log(&self) -> std::io::Result<()> {
        self.log.as_ref().map_or(Ok(()), EventLog::finish)
    }

    /// The one endpoint of this run that `url` is on.
    pub(crate) fn endpoint(&self, url: &RemoteUrl) -> Arc<Endpoint> {
        let mut known = self
            .endpoints
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = known.iter().find(|e| e.is_of(url)) {
            return Arc::clone(found);
        }
        let endpoint = Arc::new(Endpoint {
            root: RemoteUrl {
                path: FtpPath::root(),
                ..url.clone()
            },
            learned: Learned::default(),
        });
        known.push(Arc::clone(&endpoint));
        endpoint
    }
}

/// A server as one user sees it.
pub(crate) struct Endpoint {
    root: RemoteUrl,
    pub(crate) learned: Learned,
}

/// What a server turned out to lack. Sessions of one endpoint share it, so that each lesson costs one command.
#[derive(Default)]
pub(crate) struct Learned {
    /// It answered a greeting once: failures to connect are passing from now on.
    pub(crate) reached: AtomicBool,
    pub(crate) no_port: AtomicBool,
    pub(crate) no_pasv: AtomicBool,
    pub(crate) no_mode_e: AtomicBool,
    pub(crate) no_allo: AtomicBool,
    pub(crate) no_mlst: AtomicBool,
    pub(crate) no_mlsd: AtomicBool,
    pub(crate) no_size: AtomicBool,
    pub(crate) no_cksm: AtomicBool,
    pub(crate) no_rename: AtomicBool,
    pub(crate) rename_probed: AtomicBool,
    pub(crate) no_buffers: AtomicBool,
    /// Octets above 0x7E in names were seen to come back whole.
    pub(crate) octets_pass: AtomicBool,
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.name())
    }
}

impl Endpoint {
    pub(crate) fn host(&self) -> &str {
        &self.root.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.root.port
    }

    /// The URL of `path` here, for messages.
    pub(crate) fn url(&self, path: &FtpPath) -> String {
        RemoteUrl {
            path: path.clone(),
            ..self.root.clone()
        }
        .to_string()
    }

    /// The URL without path, for messages.
    pub(crate) fn name(&self) -> String {
        let text = self.root.to_string();
        text.strip_suffix('/').map_or(text.clone(), str::to_owned)
    }

    pub(crate) fn scheme_name(&self) -> &'static str {
        self.root.scheme.as_str()
    }

    /// Who logs in. `environment` is the password for `user@` without one; it is never sent for anonymous logins.
    pub(crate) fn credentials(&self, environment: Option<&Password>) -> Credentials {
        match (&self.root.user, &self.root.password) {
            (None, _) => Credentials {
                user: "anonymous".to_owned(),
                password: Password::new("godwit@"),
            },
            (Some(user), password) => Credentials {
                user: user.clone(),
                password: password
                    .as_ref()
                    .or(environment)
                    .cloned()
                    .unwrap_or_default(),
            },
        }
    }

    fn is_of(&self, url: &RemoteUrl) -> bool {
        self.root.scheme == url.scheme
            && self.root.host == url.host
            && self.root.port == url.port
            && self.root.user == url.user
            && self.root.password == url.password
    }
}

impl Learned {
    /// Remembers a lesson and tells it, once.
    pub(crate) fn learn(flag: &AtomicBool, context: &Context, text: impl Display) {
        if !flag.swap(true, Ordering::Relaxed) {
            context.note(text);
        }
    }
}

/// True for a lesson learned.
pub(crate) fn known(flag: &AtomicBool) -> bool {
    flag.load(Ordering::Relaxed)
}

/// The user's wish to end. Clones share it; once set it stays.
#[derive(Clone, Debug)]
pub struct Stop {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Stop {
    /// Everything ends as soon as it can, cleaning up behind itself.
    pub fn set(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is set. Cancel-safe.
    pub async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        if receiver.wait_for(|set| *set).await.is_err() {
            // The sender lives in `self`: cannot happen, and must not end a select.
            std::future::pending::<()>().await;
        }
    }
}
