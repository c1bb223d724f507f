//! A server as one user sees it, and what is known of it.
//!
//! # Map
//! - [`capabilities`]: what it lacks; [`addresses`]: where it is reached; [`observed_limit`]: how
//!   much it takes at a time; [`naming`]: how files are named until they are whole;
//!   [`uploads`]: what of them is in a bucket; [`service_clock`]: what time it is there

pub(crate) mod addresses;
pub(crate) mod capabilities;
pub(crate) mod naming;
pub(crate) mod observed_limit;
pub(crate) mod service_clock;
pub(crate) mod uploads;

use std::{
    sync::{Arc, atomic::AtomicBool},
    time::Instant,
};

use godwit_proto::{
    FtpPath,
    command::Password,
    pi::login::Credentials,
    url::{RemoteUrl, Scheme, in_url},
};
use parking_lot::Mutex;
use tokio::sync::OnceCell;

use self::{
    capabilities::{Capabilities, Observed},
    observed_limit::Ceiling,
    service_clock::ServiceClock,
    uploads::Uploads,
};
use crate::{auth::secrets::Secrets, error::Result, panics::on_thread, passing::Side};

/// A server as one user sees it.
pub(crate) struct Endpoint {
    root: RemoteUrl,
    /// `root` without its slash.
    name: String,
    /// The home directory of the user of `root`, once it was needed.
    password: OnceCell<Password>,
    pub(crate) capabilities: Capabilities,
    /// Where it is a bucket.
    pub(crate) uploads: Uploads,
    /// Of the service of a bucket.
    pub(crate) service_clock: ServiceClock,
    /// That service has answered no question for all pauses that a request makes: the pauses
    /// between attempts are enough until it answers one.
    pub(crate) is_overloaded: AtomicBool,
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

    /// The URL of `path` at this server, for messages.
    pub(crate) fn url(&self, path: &FtpPath) -> String {
        // Called for each small file, more than once.
        let mut url = String::with_capacity(self.name.len() + path.as_bytes().len() + 8);
        url.push_str(&self.name);
        url.extend(in_url(path));
        url
    }

    /// The URL without path, for messages.
    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    pub(crate) fn scheme_name(&self) -> &'static str {
        self.root.scheme.as_str()
    }

    /// Both sides prove who they are (GSI).
    pub(crate) fn has_identities(&self) -> bool {
        self.root.scheme == Scheme::Gsiftp
    }

    /// The session runs through the user's ssh.
    pub(crate) fn is_ssh(&self) -> bool {
        self.root.scheme == Scheme::Sshftp
    }

    /// HTTP, WebDAV or S3.
    pub(crate) fn is_http(&self) -> bool {
        self.root.scheme.is_http()
    }

    /// S3.
    pub(crate) fn is_bucket(&self) -> bool {
        self.root.scheme == Scheme::S3
    }

    /// Both are of HTTP or both are not, so that one may send to the other. A bucket sends to none.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.is_http() == other.is_http() && !self.is_bucket() && !other.is_bucket()
    }

    /// The user of the URL.
    pub(crate) fn user(&self) -> Option<&str> {
        self.root.user.as_deref()
    }

    /// Under TLS: as FTP has it (AUTH TLS), or HTTPS. Whether a bucket is, its service says.
    pub(crate) fn is_tls(&self) -> bool {
        matches!(
            self.root.scheme,
            Scheme::Ftpes | Scheme::Https | Scheme::Davs
        )
    }

    /// The login without a token. No password is sent for anonymous logins or after GSI
    /// authentication: then the user is one of the accounts that the server maps to the
    /// certificate, or the first of them. Asks the user at most once.
    pub(crate) async fn credentials(&self, secrets: &Secrets) -> Result<Credentials> {
        if self.has_identities() {
            let mapped = || ":globus-mapping:".to_owned();
            return Ok(Credentials {
                user: self.root.user.clone().unwrap_or_else(mapped),
                password: Password::new("dummy"),
                secret: false,
            });
        }
        // ssh has authenticated the user.
        let user = self.root.user.clone().filter(|_| !self.is_ssh());
        let Some(user) = user else {
            return Ok(Credentials {
                user: "anonymous".to_owned(),
                password: Password::new("godwit@"),
                secret: false,
            });
        };
        if let Some(password) = self.root.password.clone() {
            return Ok(Credentials {
                user,
                password,
                secret: true,
            });
        }
        let asked = self.password.get_or_try_init(|| async {
            let (secrets, host, name) = (secrets.clone(), self.root.host.clone(), user.clone());
            let doing = || format!("find the password for {}", self.name());
            on_thread(doing, move || secrets.password(&host, &name)).await?
        });
        let password = asked.await?.clone();
        Ok(Credentials {
            user,
            password,
            secret: true,
        })
    }

    /// Server and user, without a path.
    pub(crate) fn root(&self) -> &RemoteUrl {
        &self.root
    }

    /// `url` is of the same server and user.
    pub(crate) fn is_of(&self, url: &RemoteUrl) -> bool {
        self.root.scheme == url.scheme
            && self.root.host == url.host
            && self.root.port == url.port
            && self.root.user == url.user
            && self.root.password == url.password
    }
}

/// The servers of a run.
#[derive(Default)]
pub(crate) struct EndpointRegistry(Mutex<Vec<Arc<Endpoint>>>);

impl EndpointRegistry {
    /// The endpoint of this run that `url` belongs to.
    pub(crate) fn of(&self, url: &RemoteUrl) -> Arc<Endpoint> {
        let mut known = self.0.lock();
        if let Some(found) = known.iter().find(|e| e.is_of(url)) {
            return Arc::clone(found);
        }
        let root = RemoteUrl {
            path: FtpPath::root(),
            ..url.clone()
        };
        let name = root.to_string();
        let endpoint = Arc::new(Endpoint {
            name: name.strip_suffix('/').unwrap_or(&name).to_owned(),
            root,
            password: OnceCell::new(),
            capabilities: Capabilities::default(),
            uploads: Uploads::default(),
            service_clock: ServiceClock::default(),
            is_overloaded: AtomicBool::new(false),
        });
        known.push(Arc::clone(&endpoint));
        endpoint
    }

    /// Sessions that the servers of the run admit: each file has one with both sides.
    pub(crate) fn sessions_max(&self) -> u32 {
        let of = |side| self.limit(side, |capabilities| &capabilities.sessions);
        of(Side::Source).min(of(Side::Destination))
    }

    /// Data channels that the servers of a side accept in one transfer. Where one server sends to
    /// the other, both have the same channels; where files pass through this machine, each has its
    /// own.
    pub(crate) fn channels_max(&self, side: Side) -> u32 {
        let of = |side| self.limit(side, |capabilities| &capabilities.channels);
        match self.are_fed_by_client() {
            true => of(side),
            false => of(Side::Source).min(of(Side::Destination)),
        }
    }

    /// Files pass through this machine.
    fn are_fed_by_client(&self) -> bool {
        let endpoints = self.0.lock();
        let mut endpoints = endpoints.iter();
        endpoints.any(|endpoint| endpoint.capabilities.has(Observed::FedByClient))
    }

    /// The limit of a side. Files go to any receiving endpoint and come from any sending one: the
    /// highest limit counts.
    fn limit(&self, side: Side, ceiling: fn(&Capabilities) -> &Mutex<Ceiling>) -> u32 {
        let now = Instant::now();
        let is_of_side = match side {
            Side::Source => Observed::SendsToServer,
            Side::Destination => Observed::MovesFiles,
        };
        let endpoints = self.0.lock();
        let limits = (endpoints.iter().map(|e| &e.capabilities))
            .filter(|capabilities| capabilities.has(is_of_side))
            .map(|capabilities| {
                ceiling(capabilities)
                    .lock()
                    .in_force(now)
                    .unwrap_or(u32::MAX)
            });
        limits.max().unwrap_or(u32::MAX)
    }
}

impl Endpoint {
    /// It admitted no more than `most` sessions. True if that is a limit from now on.
    pub(crate) fn refused_sessions(&self, most: u32) -> bool {
        self.capabilities
            .sessions
            .lock()
            .refused(most, Instant::now())
    }

    /// It gave up a transfer that had grown to more than `most` data channels, likewise.
    pub(crate) fn refused_channels(&self, most: u32) -> bool {
        self.capabilities
            .channels
            .lock()
            .refused(most, Instant::now())
    }
}
