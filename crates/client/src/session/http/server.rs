//! A server of HTTP as one session sees it, and requests to it: connections that are kept, and
//! redirects that are followed.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering},
    },
    time::Duration,
};

use godwit_engine::{
    control::{ControlError, ProtocolTrace},
    data::{bound_unsent, pace_by_window, round_trip},
    host::{net::keep_alive, tcp_diag::AddressPair},
};
use godwit_gsi::{
    cert::Credential,
    ftps::Authorities,
    https::{HttpsClient, Trust},
    verify::Directory,
};
use godwit_http::{conditions::parse_date, multistatus::Hrefs, s3::answers::Refusal, target};
use godwit_http_client::{
    Answer, BadUrl, Body, Connection, Connector, HeaderValue, Limits, Method, Origin, Policy,
    Prepare, Request, Scheme, StatusCode, Step, Url, header, is_secret,
    redirect::{BadRedirect, Redirects},
};
use godwit_proto::FtpPath;
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout},
};

use super::bucket::signing::{Bucket, CONDITION_HEADER, meant};
use crate::{
    context::RunContext, endpoint::Endpoint, error::Error, local::files,
    report::progress::RequestTotals,
};

/// A connection that has rested for longer is not used again: servers close those, and a request
/// that comes then is lost.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Connections that wait for their next request: one to the server, one to where it redirects.
const KEPT_MAX: usize = 2;

/// Bytes of the answer to a request that has failed.
const REASON_BYTES_MAX: usize = 4 << 10;

/// Of what is sent to a bucket, and of what that has.
pub(super) const CHECKSUM_HEADER: &str = "x-amz-checksum-crc32c";

/// The same where a service of S3 says why.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Bytes of an answer that is not wanted, which are read so that the connection can be used again.
const REST_BYTES_MAX: u64 = 64 << 10;

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

/// A request that a bucket's service could not carry out is sent again so often before that counts
/// as a failed attempt: after this pause, and after twice as long each further time. Services of
/// many machines fail so now and then.
const PAUSES_MAX: u32 = 3;
const PAUSE_FIRST: Duration = Duration::from_millis(50);

/// Time for what is read of an answer beside what was asked for.
const UNWANTED_LIMIT: Duration = Duration::from_secs(5);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum HttpError {
    #[error("{0}")]
    Connection(#[from] godwit_http_client::Error),
    #[error("{0}")]
    Redirect(#[from] BadRedirect),
    #[error("{0}")]
    Url(#[from] BadUrl),
    /// The server says something that makes no sense.
    #[error("{0}")]
    Senseless(String),
}

impl HttpError {
    /// For what is asked of a session.
    pub(super) fn of_control(self, peer: &Arc<str>) -> ControlError {
        ControlError::Http {
            peer: Arc::clone(peer),
            reason: self.to_string().into(),
        }
    }

    /// For a session that cannot begin.
    pub(super) fn of_opening(self, endpoint: &Endpoint) -> Error {
        use godwit_http_client::Cause;
        let name = endpoint.name();
        let (step, cause) = match self {
            Self::Connection(error) => (error.step, error.cause),
            other => {
                return Error::Control {
                    doing: format!("log in to {name}"),
                    error: other.of_control(&name.as_str().into()),
                };
            }
        };
        let reason = format!("{}", cause);
        match (step, cause) {
            (_, Cause::Refused(address)) => Error::AddressRefused {
                endpoint: name,
                address: address.ip(),
            },
            (Step::Resolve, Cause::Io(error)) => Error::Resolve {
                endpoint: name,
                host: endpoint.host().to_owned(),
                error: Arc::new(error),
            },
            (Step::Resolve | Step::Connect, cause) => Error::Unreachable {
                error: ControlError::Connect {
                    peer: name.as_str().into(),
                    error: Arc::new(match cause {
                        Cause::Io(error) => error,
                        _ => std::io::Error::other(reason),
                    }),
                },
                endpoint: name,
            },
            (Step::Handshake, Cause::Tls(_) | Cause::Untrusted(_)) => Error::Identity {
                doing: name,
                reason,
            },
            _ => Error::Control {
                doing: format!("log in to {name}"),
                error: ControlError::Http {
                    peer: name.as_str().into(),
                    reason: reason.into(),
                },
            },
        }
    }
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
    authorization: Option<HeaderValue>,
    /// Its connections show a certificate of the user to servers that ask for one.
    pub(super) shows_certificate: bool,
    dav: AtomicU8,
    /// Files are sent to it in parts.
    pub(super) takes_parts: AtomicBool,
    /// Those may end before their ranges do.
    pub(super) takes_open_parts: AtomicBool,
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

    /// By the name of its program (`Server`). XRootD, up to 6.1 at least, has paths as they are.
    pub(super) fn learn_hrefs(&self, program: &str) {
        let is_xrootd = program.to_ascii_lowercase().starts_with("xrootd");
        self.is_literal.store(is_xrootd, Ordering::Relaxed);
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
    async fn connect(
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

    fn trace(&self, sent: bool, line: impl FnOnce() -> String) {
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

/// An answer, and where it has come from.
pub(super) struct Exchange {
    pub(super) answer: Answer,
    /// Path and query of the last redirect, or of the request.
    pub(super) url: Url,
    connection: Connection,
    method: Method,
    /// The connection shows the user's certificate.
    with_credentials: bool,
    /// Why a service of S3 refuses it.
    refusal: Option<Refusal>,
    signed: Signed,
    /// The service has refused it with its condition, and its status is well without: that was for
    /// the condition, and not for anything else, if the body says nothing else.
    pub(super) is_well_without_condition: bool,
}

/// What is remembered of a request to a bucket.
#[derive(Clone, Copy, Default)]
struct Signed {
    /// Of its keys.
    generation: u32,
    /// How far the service's clock was ahead, as far as was known.
    ahead_seconds: i64,
    /// Its body can be made again.
    is_repeatable: bool,
    /// It is only for where nothing is.
    is_conditional: bool,
}

/// What was tried for a request that a bucket has refused.
#[derive(Default)]
struct Remedies {
    clock: bool,
    keys: bool,
    /// It is sent without its condition.
    is_unconditional: bool,
    pauses: u32,
}

impl Exchange {
    /// A header's text.
    pub(super) fn header(&self, name: header::HeaderName) -> Option<&str> {
        self.answer.header(name.as_str())
    }

    /// How the connection is protected; `None`: in clear.
    pub(super) fn tls(&self) -> Option<&str> {
        self.connection.tls()
    }

    /// The whole body of at most so many bytes; `None`: it is longer.
    pub(super) async fn body(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, HttpError> {
        let mut body = Vec::new();
        while let Some(chunk) = self.answer.chunk().await? {
            if body.len() + chunk.len() > bytes_max {
                return Ok(None);
            }
            body.extend_from_slice(&chunk);
        }
        Ok(Some(body))
    }

    /// Reads why a service of S3 refuses it, which its status may not say.
    async fn read_refusal(&mut self) {
        if self.answer.status.is_success() || self.method == Method::HEAD {
            return;
        }
        let body = timeout(UNWANTED_LIMIT, self.body(REFUSAL_BYTES_MAX)).await;
        let Ok(Ok(Some(body))) = body else { return };
        self.refusal = Refusal::read(&body);
        if let Some(refusal) = &self.refusal {
            self.answer.status = meant(self.answer.status, &refusal.code);
        }
    }

    /// What the server says of a failure; nothing where it says it in HTML.
    pub(super) async fn reason(&mut self) -> String {
        if let Some(Refusal { code, message }) = &self.refusal {
            return match code.as_str() {
                "RequestTimeTooSkewed" => {
                    let theirs = self.header(header::DATE).unwrap_or("another time");
                    format!(
                        "{code}: {message} The service's clock says {theirs}: set the clock of \
                         this machine."
                    )
                }
                "ExpiredToken" | "TokenRefreshRequired" => format!(
                    "{code}: {message} The keys have expired, and where they come from there are \
                     no newer ones: run the same command with new ones."
                ),
                _ => format!("{code}: {message}"),
            };
        }
        let is_text = self
            .header(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.starts_with("text/plain"));
        let mut said = Vec::new();
        let read = async {
            while said.len() < REASON_BYTES_MAX
                && let Ok(Some(chunk)) = self.answer.chunk().await
            {
                said.extend_from_slice(&chunk);
            }
        };
        // The status says enough.
        let _ = timeout(UNWANTED_LIMIT, read).await;
        said.truncate(REASON_BYTES_MAX);
        match is_text {
            true => String::from_utf8_lossy(&said).trim().to_owned(),
            false => String::new(),
        }
    }
}

/// What may help a request that a bucket has refused.
enum Remedy {
    /// To send it again.
    Again,
    /// Other keys than those of this generation.
    Keys(u32),
    Pause(Duration),
}

impl Remedies {
    /// What was not tried before.
    fn next(&mut self, exchange: &Exchange, bucket: &Bucket) -> Option<Remedy> {
        let status = exchange.answer.status;
        if status.is_success() || !exchange.signed.is_repeatable {
            return None;
        }
        let code = exchange.refusal.as_ref().map(|refusal| &*refusal.code);
        // An answer to HEAD does not say why.
        let is_head = exchange.method == Method::HEAD;
        let may_be_late = is_head && status == StatusCode::FORBIDDEN;
        if (may_be_late || code == Some("RequestTimeTooSkewed")) && !self.clock {
            self.clock = true;
            let theirs = exchange.header(header::DATE).and_then(parse_date);
            let clock = &bucket.endpoint.service_clock;
            let is_learned = theirs.is_some_and(|theirs| clock.learn(theirs));
            // Another request may have learned it meanwhile.
            if is_learned || clock.ahead_seconds() != exchange.signed.ahead_seconds {
                return Some(Remedy::Again);
            }
        }
        let may_have_expired =
            is_head && bucket.has_token() && matches!(status.as_u16(), 400 | 401 | 403);
        let has_expired = matches!(code, Some("ExpiredToken" | "TokenRefreshRequired"));
        if (may_have_expired || has_expired) && !self.keys {
            self.keys = true;
            return Some(Remedy::Keys(exchange.signed.generation));
        }
        let is_unknown = status == StatusCode::NOT_IMPLEMENTED || code == Some("NotImplemented");
        if is_unknown && exchange.signed.is_conditional {
            self.is_unconditional = true;
            return Some(Remedy::Again);
        }
        // What POST has begun may be there all the same.
        let is_busy = matches!(status.as_u16(), 500 | 502 | 504) && exchange.method != Method::POST;
        if !is_busy || self.pauses >= PAUSES_MAX {
            return None;
        }
        let pause = PAUSE_FIRST.saturating_mul(1 << self.pauses);
        self.pauses += 1;
        // Many lanes do not come back together.
        let jitter = u32::try_from(files::random() % 1000).unwrap_or(0);
        let pause = pause / 2 + pause.saturating_mul(jitter) / 1000;
        Some(Remedy::Pause(pause))
    }
}

/// Connections of one task to a server, used one request at a time.
pub(super) struct Wire {
    pub(super) server: Arc<HttpServer>,
    kept: Vec<KeptConnection>,
    /// Who looks at the connection that is used now.
    watcher: Option<Arc<RequestTotals>>,
    watched: Option<AddressPair>,
}

/// A connection without a request.
struct KeptConnection {
    connection: Connection,
    with_credentials: bool,
    since: Instant,
}

impl Wire {
    pub(super) fn new(server: Arc<HttpServer>) -> Self {
        Self {
            server,
            kept: Vec::new(),
            watcher: None,
            watched: None,
        }
    }

    /// The connections of the requests that follow are seen in `totals`.
    pub(super) fn watched_by(&mut self, totals: &Arc<RequestTotals>) {
        self.unwatched();
        self.watcher = Some(Arc::clone(totals));
    }

    pub(super) fn unwatched(&mut self) {
        if let (Some(watcher), Some(left)) = (self.watcher.take(), self.watched.take()) {
            watcher.sampler.left(left);
        }
    }

    fn watch(&mut self, connection: &Connection, is_fresh: bool) {
        let ends = AddressPair {
            local: connection.local(),
            remote: connection.peer(),
        };
        let Some(watcher) = self.watcher.as_ref().filter(|_| self.watched != Some(ends)) else {
            return;
        };
        if let Some(left) = self.watched.replace(ends) {
            watcher.sampler.left(left);
        }
        watcher.sampler.joined(ends, is_fresh);
    }

    /// Sends a request to `target`, and to where it is redirected: `request` makes it for each. One
    /// that can be repeated is sent again where a connection that was kept has ended meanwhile.
    pub(super) async fn send(
        &mut self,
        target: &str,
        mut request: impl FnMut(&str) -> Request,
    ) -> Result<Exchange, HttpError> {
        let mut way = Redirects::new(Url::new(self.server.origin.clone(), target)?);
        let mut remedies = Remedies::default();
        loop {
            let url = way.url().clone();
            let mut exchange = self
                .send_once(
                    &url,
                    way.carries_credentials(),
                    remedies.is_unconditional,
                    &mut request,
                )
                .await?;
            let server = Arc::clone(&self.server);
            if let Some(bucket) = &server.bucket {
                // Signatures are for one host; where a bucket is, its login has found out.
                exchange.read_refusal().await;
                exchange.is_well_without_condition =
                    remedies.is_unconditional && exchange.answer.status.is_success();
                let helps = match remedies.next(&exchange, bucket) {
                    Some(Remedy::Again) => true,
                    Some(Remedy::Keys(generation)) => bucket.renew_keys(generation).await,
                    Some(Remedy::Pause(pause)) => {
                        sleep(pause).await;
                        true
                    }
                    None => false,
                };
                if !helps {
                    return Ok(exchange);
                }
                self.done(exchange).await;
                continue;
            }
            if !Redirects::is_redirect(exchange.answer.status) {
                return Ok(exchange);
            }
            let location = exchange.header(header::LOCATION).map(str::to_owned);
            way.follow(location.as_deref())?;
            // A server may not have the user change another one.
            let is_other = way.url().origin != self.server.origin;
            let method = exchange.method.as_str();
            if is_other && matches!(method, "DELETE" | "MOVE" | "MKCOL" | "COPY" | "POST") {
                let what = format!("{method} is redirected to {}", way.url().origin);
                return Err(HttpError::Senseless(what));
            }
            self.done(exchange).await;
        }
    }

    async fn send_once(
        &mut self,
        url: &Url,
        with_credentials: bool,
        is_unconditional: bool,
        request: &mut impl FnMut(&str) -> Request,
    ) -> Result<Exchange, HttpError> {
        loop {
            let mut request = request(url.target());
            // In a bucket POST begins uploads and completes them.
            let is_repeatable = match request.method.as_str() {
                "GET" | "HEAD" | "OPTIONS" | "PROPFIND" | "DELETE" | "MKCOL" => true,
                "POST" => self.server.bucket.is_none(),
                // What has one can be read again.
                _ if request.headers.contains_key(CHECKSUM_HEADER) => true,
                _ => request.headers.contains_key(header::CONTENT_RANGE),
            };
            if with_credentials {
                let value = self.server.authorization.clone();
                request
                    .headers
                    .extend(value.map(|value| (header::AUTHORIZATION, value)));
            } else {
                let secrets: Vec<_> = request
                    .headers
                    .keys()
                    .filter(|name| is_secret(name))
                    .cloned()
                    .collect();
                for name in secrets {
                    request.headers.remove(name);
                }
            }
            let agent = concat!("godwit/", env!("CARGO_PKG_VERSION"));
            let agent = HeaderValue::from_static(agent);
            request.headers.insert(header::USER_AGENT, agent);
            let mut signed = Signed::default();
            if let Some(bucket) = &self.server.bucket {
                bucket.prepare(&mut request);
                if is_unconditional {
                    request.headers.remove(CONDITION_HEADER);
                }
                let ahead_seconds = bucket.endpoint.service_clock.ahead_seconds();
                let generation = bucket.sign(&mut request, &url.origin, bucket.now());
                signed = Signed {
                    generation: generation.map_err(HttpError::Senseless)?,
                    ahead_seconds,
                    is_repeatable: !matches!(request.body, Body::Chunks(_))
                        || request.headers.contains_key(CHECKSUM_HEADER),
                    is_conditional: request.headers.contains_key(CONDITION_HEADER),
                };
            }
            let method = request.method.clone();
            let (mut connection, is_kept) =
                match self.take_kept(&url.origin, with_credentials).await {
                    Some(connection) => (connection, true),
                    None => (
                        self.server.connect(&url.origin, with_credentials).await?,
                        false,
                    ),
                };
            self.watch(&connection, !is_kept);
            // A query may be a secret.
            let shown = url
                .target()
                .split('?')
                .next()
                .unwrap_or_default()
                .to_owned();
            self.server.trace(true, || format!("{method} {shown}"));
            match connection.send(request).await {
                Ok(answer) => {
                    self.server.trace(false, || format!("{}", answer.status));
                    return Ok(Exchange {
                        answer,
                        url: url.clone(),
                        connection,
                        method,
                        with_credentials,
                        refusal: None,
                        signed,
                        is_well_without_condition: false,
                    });
                }
                Err(error) if is_kept && is_repeatable && error.is_transient() => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Connects, so that the next request finds a connection.
    pub(super) async fn connect_ahead(&mut self) {
        let origin = self.server.origin.clone();
        let connection = match self.take_kept(&origin, true).await {
            Some(connection) => connection,
            None => match self.server.connect(&origin, true).await {
                Ok(connection) => connection,
                Err(_) => return,
            },
        };
        self.keep(connection, true);
    }

    async fn take_kept(&mut self, origin: &Origin, with_credentials: bool) -> Option<Connection> {
        self.kept.retain(|kept| kept.since.elapsed() < IDLE_MAX);
        let fits = |kept: &KeptConnection| {
            kept.connection.origin() == origin && kept.with_credentials == with_credentials
        };
        let at = self.kept.iter().position(fits)?;
        let mut connection = self.kept.swap_remove(at).connection;
        connection.is_reusable().await.then_some(connection)
    }

    /// The answer is read as far as it is wanted: keeps the connection if little of it is left.
    pub(super) async fn done(&mut self, mut exchange: Exchange) {
        let read = async {
            let mut rest = REST_BYTES_MAX;
            loop {
                match exchange.answer.chunk().await {
                    Ok(None) => return true,
                    Ok(Some(chunk)) if (chunk.len() as u64) < rest => rest -= chunk.len() as u64,
                    _ => return false,
                }
            }
        };
        let is_read = timeout(UNWANTED_LIMIT, read).await.unwrap_or(false);
        if is_read && exchange.connection.is_reusable().await {
            self.keep(exchange.connection, exchange.with_credentials);
        }
    }

    fn keep(&mut self, connection: Connection, with_credentials: bool) {
        if self.kept.len() >= KEPT_MAX {
            self.kept.remove(0);
        }
        self.kept.push(KeptConnection {
            connection,
            with_credentials,
            since: Instant::now(),
        });
    }
}

/// A request of a method that has no name in HTTP itself.
pub(super) fn dav_method(name: &'static [u8]) -> Method {
    Method::from_bytes(name).unwrap_or(Method::OPTIONS)
}
