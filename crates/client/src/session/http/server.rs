//! A server of HTTP as all connections of one session see it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::{
    control::ProtocolTrace,
    data::{bound_unsent, pace_by_window, round_trip},
    host::net::keep_alive,
};
use godwit_gsi::{
    cert::Credential,
    ftps::Authorities,
    https::{HttpsClient, Trust},
    verify::Directory,
};
use godwit_http::{multistatus::Hrefs, target};
use godwit_http_client::{
    Connection, Connector, HeaderValue, Limits, Origin, Policy, Prepare, Scheme, Step,
};
use godwit_proto::FtpPath;
use tokio::net::TcpStream;

use super::{bucket::signing::Bucket, error::HttpError};
use crate::context::RunContext;

/// Bytes that a connection holds unsent in its socket, and in either direction before that: no
/// other can send them when it is slow, and the kernel would let it hold what its window once was.
/// Enough for 10 Gbit/s, as with data channels; over a long path there are many connections.
const NEAR: Held = Held {
    unsent: 128 << 10,
    waiting: 256 << 10,
};
const FAR: Held = Held {
    unsent: 32 << 10,
    waiting: 64 << 10,
};
const FAR_ROUND_TRIP: Duration = Duration::from_millis(5);

struct Held {
    unsent: u32,
    waiting: usize,
}

/// Whether the server speaks WebDAV.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Dav {
    Unknown,
    Yes,
    No,
}

/// What all connections of a session share.
pub(super) struct HttpServer {
    pub(super) origin: Origin,
    /// The first that the server's certificate passes is used.
    connectors: Vec<Connector>,
    /// The same without the user's certificate, for other servers that this one redirects to.
    bare_connectors: Vec<Connector>,
    connector: AtomicU8,
    /// Of the user; sent to this server only.
    pub(super) authorization: Option<HeaderValue>,
    /// Its connections show a certificate of the user to servers that ask for one.
    pub(super) shows_certificate: bool,
    dav: AtomicU8,
    /// Files are sent to it in parts.
    pub(super) takes_parts: AtomicBool,
    /// Those may end before their ranges do.
    pub(super) takes_open_parts: AtomicBool,
    /// Its answers to GET name no version of the file.
    pub(super) names_no_version: AtomicBool,
    /// It encodes no paths in bodies and headers, and decodes none in headers.
    is_literal: AtomicBool,
    /// Of all connections so far, microseconds.
    shortest_round_trip: Arc<AtomicU64>,
    log: Option<ProtocolTrace>,
    pub(super) limits: Limits,
    /// It is a service of S3, and this is what it is asked for.
    pub(super) bucket: Option<Bucket>,
}

impl HttpServer {
    /// # Errors
    /// Why there is no TLS, as a message for the user.
    pub(super) fn new(
        context: &RunContext,
        origin: Origin,
        credential: Option<&Credential>,
        authorization: Option<HeaderValue>,
        bucket: Option<Bucket>,
        log: Option<ProtocolTrace>,
    ) -> Result<Self, String> {
        let connections = &context.connections;
        let silence = connections.stall_limit;
        let limits = Limits {
            resolve: silence,
            connect: silence,
            handshake: silence,
            answer: silence,
            silence,
            ..Limits::default()
        };
        let (scope, host) = (connections.addresses, origin.host.clone());
        let policy: Policy = Arc::new(move |origin: &Origin, address: SocketAddr| {
            // The user names the server alone, and not where it redirects.
            match origin.host == host {
                true => scope.allows_for(&origin.host, address.ip()),
                false => scope.allows(address.ip()),
            }
        });
        let shortest_round_trip = Arc::new(AtomicU64::new(u64::MAX));
        let shortest = Arc::clone(&shortest_round_trip);
        let prepare: Prepare = Arc::new(move |socket| prepare(socket, &shortest));
        let connector = |tls| {
            let connector = Connector::new(tls, Arc::clone(&policy), limits);
            connector.preparing(Arc::clone(&prepare))
        };
        let connectors_of = |credential: Option<&Credential>| {
            if origin.scheme == Scheme::Http {
                return Ok(vec![connector(None)]);
            }
            let mut trusts = vec![Trust::Web(connections.authorities.clone())];
            let grid = connections.locations.authority_directory();
            if let (Authorities::System, Some(directory)) = (&connections.authorities, grid) {
                trusts.push(Trust::Grid(Arc::new(Directory::new(directory.to_owned()))));
            }
            let of_trust = |trust: &Trust| {
                let client = HttpsClient::new(credential, trust);
                let client = client.map_err(|error| format!("trusted CAs (--ca): {error}"))?;
                Ok(connector(Some(client)))
            };
            trusts
                .iter()
                .map(of_trust)
                .collect::<Result<Vec<_>, String>>()
        };
        let (connectors, bare_connectors) = (connectors_of(credential)?, connectors_of(None)?);
        Ok(Self {
            origin,
            connectors,
            bare_connectors,
            connector: AtomicU8::new(0),
            authorization,
            shows_certificate: credential.is_some(),
            dav: AtomicU8::new(Dav::Unknown as u8),
            takes_parts: AtomicBool::new(false),
            takes_open_parts: AtomicBool::new(false),
            names_no_version: AtomicBool::new(false),
            is_literal: AtomicBool::new(false),
            shortest_round_trip,
            log,
            limits,
            bucket,
        })
    }

    /// The token of the user, where it is one, for a server that fetches or stores in our place.
    pub(super) fn bearer(&self) -> Option<&HeaderValue> {
        let is_bearer = |value: &&HeaderValue| {
            let scheme = value.as_bytes().get(..7);
            scheme.is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
        };
        self.authorization.as_ref().filter(is_bearer)
    }

    /// The shortest that a connection has seen; `None` where the kernel tells none.
    pub(super) fn round_trip(&self) -> Option<Duration> {
        let us = self.shortest_round_trip.load(Ordering::Relaxed);
        (us < u64::MAX).then(|| Duration::from_micros(us))
    }

    /// Requests carry a password or a token.
    pub(super) fn has_login(&self) -> bool {
        self.authorization.is_some()
    }

    pub(super) fn dav(&self) -> Dav {
        match self.dav.load(Ordering::Relaxed) {
            1 => Dav::Yes,
            2 => Dav::No,
            _ => Dav::Unknown,
        }
    }

    pub(super) fn set_dav(&self, dav: Dav) {
        self.dav.store(dav as u8, Ordering::Relaxed);
    }

    pub(super) fn hrefs(&self) -> Hrefs {
        match self.is_literal.load(Ordering::Relaxed) {
            true => Hrefs::Literal,
            false => Hrefs::Encoded,
        }
    }

    /// By the name of its program (`Server`). XRootD, up to 6.1 at least, has paths as they are,
    /// and its answers to GET name no version.
    pub(super) fn learn_ways(&self, program: &str) {
        let is_xrootd = program.to_ascii_lowercase().starts_with("xrootd");
        self.is_literal.store(is_xrootd, Ordering::Relaxed);
        self.names_no_version.store(is_xrootd, Ordering::Relaxed);
    }

    /// The target of a path at this server.
    pub(super) fn target_of(&self, path: &FtpPath, is_directory: bool) -> String {
        match &self.bucket {
            Some(bucket) => bucket.target(path),
            None => Self::target(path, is_directory),
        }
    }

    /// The URL of a path as `Destination` of a request to this server.
    pub(super) fn destination(&self, path: &FtpPath, is_directory: bool) -> Vec<u8> {
        let mut url = self.origin.to_string().into_bytes();
        match self.hrefs() {
            Hrefs::Encoded => url.extend_from_slice(Self::target(path, is_directory).as_bytes()),
            // Bytes that are no letters of ASCII are cut off at the end of the header: the mark
            // stands there, which begins a query.
            Hrefs::Literal => url.extend_from_slice(&[path.as_bytes(), b"?"].concat()),
        }
        url
    }

    /// Connects, first by the authorities that this server's certificate has passed before.
    pub(super) async fn connect(
        &self,
        origin: &Origin,
        with_credentials: bool,
    ) -> Result<Connection, HttpError> {
        let connectors = match with_credentials {
            true => &self.connectors,
            false => &self.bare_connectors,
        };
        let known = usize::from(self.connector.load(Ordering::Relaxed));
        let known = known.min(connectors.len() - 1);
        let first = match connectors[known].connect(origin).await {
            Ok(connection) => return Ok(connection),
            Err(error) => error,
        };
        if first.step != Step::Handshake {
            return Err(first.into());
        }
        for (at, connector) in connectors.iter().enumerate().filter(|(at, _)| *at != known) {
            if let Ok(connection) = connector.connect(origin).await {
                if *origin == self.origin {
                    let at = u8::try_from(at).unwrap_or(0);
                    self.connector.store(at, Ordering::Relaxed);
                }
                return Ok(connection);
            }
        }
        Err(first.into())
    }

    pub(super) fn trace(&self, sent: bool, line: impl FnOnce() -> String) {
        if let Some(log) = &self.log {
            log(sent, &line());
        }
    }

    /// `target` of a file, or of a directory with the slash that some servers demand.
    pub(super) fn target(path: &FtpPath, is_directory: bool) -> String {
        let mut target = target::encoded(path.as_bytes());
        if is_directory && !target.ends_with('/') {
            target.push('/');
        }
        target
    }
}

fn prepare(socket: &TcpStream, shortest_round_trip: &AtomicU64) -> usize {
    // Between the parts of a file nothing is sent.
    pace_by_window(socket);
    // A server may work for minutes before it answers. Without it the end is noticed later.
    drop(keep_alive(socket));
    let time = round_trip(socket);
    let us = time.and_then(|time| u64::try_from(time.as_micros()).ok());
    shortest_round_trip.fetch_min(us.unwrap_or(u64::MAX), Ordering::Relaxed);
    let is_far = time.is_some_and(|time| time > FAR_ROUND_TRIP);
    let held = if is_far { FAR } else { NEAR };
    bound_unsent(socket, held.unsent);
    held.waiting
}
