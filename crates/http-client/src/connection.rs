//! A connection and its requests.

use std::{
    future::poll_fn,
    net::SocketAddr,
    pin::{Pin, pin},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use hyper::{
    HeaderMap, Method, StatusCode,
    body::{Body as _, Bytes, Incoming},
    client::conn::http1::{self, SendRequest},
    header::{CONTENT_LENGTH, EXPECT, HOST, HeaderValue, TRANSFER_ENCODING},
};
use hyper_util::rt::TokioIo;
use tokio::{
    sync::oneshot,
    task::JoinHandle,
    time::{Instant, timeout, timeout_at},
};

use crate::{
    body::{Outgoing, Progress},
    error::{Cause, Error, Step},
    limits::Limits,
    request::Request,
    text::printable,
    url::Origin,
    wire::Wire,
};

/// Longest head of an answer.
pub const HEAD_BYTES_MAX: usize = 64 << 10;

/// Headers of an answer.
pub const HEADERS_MAX: usize = 128;

/// Bytes that wait in either direction, where nothing else is wanted. A record of TLS has 16 KiB.
pub(crate) const BUFFER_BYTES: usize = 256 << 10;

/// A connection to a server, with at most one request at a time.
pub struct Connection {
    sender: SendRequest<Outgoing>,
    /// What reads and writes.
    driver: JoinHandle<()>,
    origin: Origin,
    local: SocketAddr,
    peer: SocketAddr,
    tls: Option<String>,
    limits: Limits,
    /// The last request and its answer are complete.
    is_idle: Arc<AtomicBool>,
}

impl Connection {
    pub(crate) async fn new(
        wire: Box<dyn Wire>,
        origin: Origin,
        (local, peer): (SocketAddr, SocketAddr),
        tls: Option<String>,
        (limits, buffer_bytes): (Limits, usize),
    ) -> Result<Self, Error> {
        let mut builder = http1::Builder::new();
        // XRootD 5 knows headers in this spelling alone.
        builder.title_case_headers(true);
        builder.max_headers(HEADERS_MAX);
        builder.max_header_size(HEAD_BYTES_MAX);
        builder.max_buf_size(buffer_bytes);
        let pair = builder.handshake(TokioIo::new(wire)).await;
        let (sender, connection) = pair.map_err(|error| Error {
            step: Step::Handshake,
            origin: origin.clone(),
            cause: error.into(),
        })?;
        // Its failures are those of the requests, too.
        let driver = tokio::spawn(async move { drop(connection.await) });
        Ok(Self {
            sender,
            driver,
            origin,
            local,
            peer,
            tls,
            limits,
            is_idle: Arc::new(AtomicBool::new(true)),
        })
    }

    /// The server.
    #[must_use]
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The address of this end.
    #[must_use]
    pub fn local(&self) -> SocketAddr {
        self.local
    }

    /// The address that it was found at.
    #[must_use]
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// `TLSv1.3, TLS_AES_128_GCM_SHA256`; `None`: in clear.
    #[must_use]
    pub fn tls(&self) -> Option<&str> {
        self.tls.as_deref()
    }

    /// Whether another request can be sent. A server may close a connection at any time: a request
    /// on one that was used before may fail because of that, see [`Error::is_transient`].
    pub async fn is_reusable(&mut self) -> bool {
        // The end of a body is known a moment before the connection is ready.
        let settle = Duration::from_secs(1);
        self.is_idle.load(Ordering::Acquire)
            && matches!(timeout(settle, self.sender.ready()).await, Ok(Ok(())))
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// When there is no answer. The connection is of no use then.
    pub async fn send(&mut self, request: Request) -> Result<Answer, Error> {
        let limits = Limits {
            answer: request.answer_limit.unwrap_or(self.limits.answer),
            ..self.limits
        };
        self.is_idle.store(false, Ordering::Release);
        let (is_head, bytes) = (request.method == Method::HEAD, request.body.bytes());
        let sent = self.carry(request, bytes, &limits).await;
        let (answer, is_sent) = sent.map_err(|cause| self.failure(Step::Request, cause))?;
        let (head, body) = answer.into_parts();
        let mut answer = Answer {
            status: head.status,
            headers: head.headers,
            trailers: HeaderMap::new(),
            body,
            is_head,
            origin: self.origin.clone(),
            silence: limits.silence,
            // A body that the server did not wait for keeps the connection busy.
            is_idle: is_sent.then(|| Arc::clone(&self.is_idle)),
        };
        if answer.body.is_end_stream() {
            answer.end();
        }
        Ok(answer)
    }

    /// The answer, and whether the request has been sent as a whole.
    async fn carry(
        &mut self,
        request: Request,
        bytes: Option<u64>,
        limits: &Limits,
    ) -> Result<(hyper::Response<Incoming>, bool), Cause> {
        let (mut gate, waits) = match request.expects_continue && bytes != Some(0) {
            true => {
                let (open, waits) = oneshot::channel();
                (Some(Arc::new(Mutex::new(Some(open)))), Some(waits))
            }
            false => (None, None),
        };
        let body = Outgoing::new(request.body, waits);
        let progress = body.progress();
        let mut outgoing = hyper::Request::new(body);
        *outgoing.method_mut() = request.method;
        *outgoing.uri_mut() = request.target.parse().map_err(|_| Cause::OwnRequest)?;
        *outgoing.headers_mut() = request.headers;
        self.add_headers(&mut outgoing, bytes, gate.is_some())?;
        if let Some(gate) = gate.clone() {
            hyper::ext::on_informational(&mut outgoing, move |interim| {
                if interim.status() == StatusCode::CONTINUE {
                    open(&gate);
                }
            });
        }
        let ready = timeout(limits.answer, self.sender.ready()).await;
        ready.map_err(|_| Cause::Timeout(limits.answer))??;
        let mut answer = pin!(self.sender.send_request(outgoing));
        let mut silence = Silence::new(progress);
        loop {
            let wait = match &gate {
                Some(_) => limits.go_ahead,
                None => silence.limit(limits),
            };
            match timeout(wait, &mut answer).await {
                Ok(answer) => {
                    // Before the body can be asked for.
                    drop(gate.take().map(|gate| take(&gate)));
                    return Ok((answer?, silence.is_sent()));
                }
                Err(_) => match gate.take() {
                    Some(gate) => open(&gate),
                    None if silence.is_over() => return Err(Cause::Timeout(wait)),
                    None => {}
                },
            }
        }
    }

    fn add_headers(
        &self,
        outgoing: &mut hyper::Request<Outgoing>,
        bytes: Option<u64>,
        expects_continue: bool,
    ) -> Result<(), Cause> {
        let has_body = matches!(*outgoing.method(), Method::PUT | Method::POST);
        let headers = outgoing.headers_mut();
        if !headers.contains_key(HOST) {
            let host = HeaderValue::try_from(self.origin.authority());
            headers.insert(HOST, host.map_err(|_| Cause::OwnRequest)?);
        }
        // An empty body is one, too, with these methods.
        if let Some(bytes) = bytes
            && (bytes > 0 || has_body)
        {
            headers.insert(CONTENT_LENGTH, HeaderValue::from(bytes));
        }
        if expects_continue {
            headers.insert(EXPECT, HeaderValue::from_static("100-continue"));
        }
        Ok(())
    }

    fn failure(&self, step: Step, cause: Cause) -> Error {
        Error {
            step,
            origin: self.origin.clone(),
            cause,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

type Gate = Mutex<Option<oneshot::Sender<()>>>;

fn take(gate: &Gate) -> Option<oneshot::Sender<()>> {
    gate.lock().unwrap_or_else(PoisonError::into_inner).take()
}

fn open(gate: &Gate) {
    // A connection that has ended needs no body.
    let _ = take(gate).map(|gate| gate.send(()));
}

/// Whether a request still gets on.
struct Silence {
    progress: Arc<Progress>,
    seen: u64,
}

impl Silence {
    fn new(progress: Arc<Progress>) -> Self {
        Self { progress, seen: 0 }
    }

    fn is_sent(&self) -> bool {
        self.progress.is_complete()
    }

    fn limit(&self, limits: &Limits) -> Duration {
        match self.is_sent() {
            true => limits.answer,
            false => limits.silence,
        }
    }

    /// A limit has passed. A body that its maker does not make is not the server's fault.
    fn is_over(&mut self) -> bool {
        let seen = std::mem::replace(&mut self.seen, self.progress.taken());
        seen == self.seen && !self.progress.is_starved()
    }
}

/// An answer, whose body is still to be read.
pub struct Answer {
    /// How the request has gone.
    pub status: StatusCode,
    /// Bounded, see [`HEAD_BYTES_MAX`] and [`HEADERS_MAX`].
    pub headers: HeaderMap,
    /// What came behind the body.
    pub trailers: HeaderMap,
    body: Incoming,
    is_head: bool,
    origin: Origin,
    silence: Duration,
    is_idle: Option<Arc<AtomicBool>>,
}

impl Answer {
    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }

    /// The length of the body, or that it would have had for a GET, if the server says it.
    #[must_use]
    pub fn bytes(&self) -> Option<u64> {
        match self.is_head {
            true => self.header(CONTENT_LENGTH.as_str())?.trim().parse().ok(),
            false => self.body.size_hint().exact(),
        }
    }

    /// Whether the body says where it ends. Another one ends with its connection, and one that is
    /// cut off looks complete.
    #[must_use]
    pub fn is_delimited(&self) -> bool {
        let coding = self.header(TRANSFER_ENCODING.as_str());
        self.body.size_hint().exact().is_some()
            || coding.is_some_and(|coding| coding.trim().eq_ignore_ascii_case("chunked"))
    }

    /// The next bytes of the body; `None`: it is complete.
    ///
    /// # Errors
    /// When the server is silent for too long, or the body is cut off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let frame = poll_fn(|context| Pin::new(&mut self.body).poll_frame(context));
            let frame = match timeout(self.silence, frame).await {
                Ok(Some(Ok(frame))) => frame,
                Ok(Some(Err(error))) => return Err(self.failure(error.into())),
                Ok(None) => {
                    self.end();
                    return Ok(None);
                }
                Err(_) => return Err(self.failure(Cause::Timeout(self.silence))),
            };
            match frame.into_data() {
                Ok(bytes) if bytes.is_empty() => {}
                Ok(bytes) => {
                    if self.body.is_end_stream() {
                        self.end();
                    }
                    return Ok(Some(bytes));
                }
                Err(frame) => self
                    .trailers
                    .extend(frame.into_trailers().unwrap_or_default()),
            }
        }
    }

    /// The body, of which no more than `bytes_max` is read.
    ///
    /// # Errors
    /// As [`Self::chunk`], and when the body is longer.
    pub async fn whole(&mut self, bytes_max: usize) -> Result<Vec<u8>, Error> {
        let mut whole = Vec::new();
        while let Some(chunk) = self.chunk().await? {
            if whole.len() + chunk.len() > bytes_max {
                let text = format!("the answer has more than {bytes_max} bytes");
                return Err(self.failure(Cause::Protocol(text)));
            }
            whole.extend_from_slice(&chunk);
        }
        Ok(whole)
    }

    /// What the server says about a failure: the beginning of the body, for people to read.
    pub async fn reason(&mut self) -> String {
        let mut head = Vec::new();
        let end = Instant::now() + REASON_LIMIT;
        while head.len() < REASON_BYTES {
            match timeout_at(end, self.chunk()).await {
                Ok(Ok(Some(chunk))) => head.extend_from_slice(&chunk),
                _ => break,
            }
        }
        printable(&head)
    }

    fn end(&mut self) {
        if let Some(is_idle) = self.is_idle.take() {
            is_idle.store(true, Ordering::Release);
        }
    }

    fn failure(&self, cause: Cause) -> Error {
        Error {
            step: Step::Body,
            origin: self.origin.clone(),
            cause,
        }
    }
}

/// How much of a failure's text is waited for, and how long.
const REASON_BYTES: usize = 1024;
const REASON_LIMIT: Duration = Duration::from_secs(5);
