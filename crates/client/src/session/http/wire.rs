//! Requests to a server, one after the other: connections that are kept, and redirects that are
//! followed.

use std::{sync::Arc, time::Duration};

use godwit_engine::host::tcp_diag::AddressPair;
use godwit_http_client::{
    Body, Connection, HeaderValue, Method, Origin, Request, Url, header, is_secret,
    redirect::Redirects,
};
use tokio::time::{Instant, sleep, timeout};

use super::{
    bucket::{
        remedies::{Remedies, Remedy},
        signing::CONDITION_HEADER,
    },
    error::HttpError,
    exchange::{Exchange, Signed, UNWANTED_LIMIT},
    server::HttpServer,
};
use crate::report::progress::RequestTotals;

/// A connection that has rested for longer is not used again: servers close those, and a request
/// that comes then is lost.
const IDLE_MAX: Duration = Duration::from_secs(4);

/// Connections that wait for their next request: one to the server, one to where it redirects.
const KEPT_MAX: usize = 2;

/// The header with the CRC32C of what is sent to a bucket, and of what that has.
pub(super) const CHECKSUM_HEADER: &str = "x-amz-checksum-crc32c";

/// Bytes of an answer that is not wanted, which are read so that the connection can be used again.
const REST_BYTES_MAX: u64 = 64 << 10;

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
