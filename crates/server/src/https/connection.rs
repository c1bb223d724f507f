//! One connection: TLS, then one request after another.

use std::{
    convert::Infallible,
    net::SocketAddr,
    pin::pin,
    sync::{Arc, Mutex},
    time::{Duration, Instant, SystemTime},
};

use godwit_engine::data::pace_by_window;
use godwit_gsi::ftps;
use godwit_tls_stream::TlsStream;
use hyper::{server::conn::http1::Builder, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{net::TcpStream, sync::watch, task::spawn_blocking, time::timeout};
use tracing::{debug, info};

use super::{requests, s3, session::HttpConnection, stalls::StallLimit};
use crate::{
    access::admission::ConnectionPermit,
    observe::{
        class::Class,
        event::{Entry, What},
    },
    service::Service,
    session::{Phase, canonical},
};

/// Headers of a request.
const HEADERS_MAX: usize = 64;

/// Bytes of a request's head: a token, and many ranges.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Bytes that are read at a time.
const BUFFER_BYTES_MAX: usize = 256 * 1024;

/// For the last line of a copy when the server stops; less than the server waits for connections.
const LAST_LINE_LIMIT: Duration = Duration::from_secs(2);

/// What a client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dialect {
    WebDav,
    S3,
}

/// Serves one client until the end.
pub(crate) async fn serve(
    socket: TcpStream,
    peer: SocketAddr,
    permit: ConnectionPermit,
    service: Arc<Service>,
    mut phase: watch::Receiver<Phase>,
    dialect: Dialect,
) {
    let (number, peer, began) = (permit.number(), canonical(peer), Instant::now());
    let tls = match dialect {
        Dialect::WebDav => service.https.clone(),
        Dialect::S3 => service.s3.clone(),
    };
    let Some(tls) = tls else {
        return;
    };
    // Clients pause between the pieces of a file.
    pace_by_window(&socket);
    let limit = service.settings.login_limit;
    let shaken = tokio::select! {
        shaken = timeout(limit, shake_hands(socket, &tls)) => shaken,
        () = permit.evicted() => return debug!(session = number, %peer, "evicted before login"),
        () = aborting(&mut phase) => return,
    };
    permit.received_first_byte();
    let permit = Arc::new(permit);
    let mut connection = HttpConnection {
        service,
        permit,
        peer,
        identity: None,
        disbelief: None,
        login: Mutex::default(),
        stop: watch::Sender::new(false),
    };
    let stream = match shaken {
        Ok(Ok((stream, shown))) => {
            match shown {
                Some(Ok(identity)) => connection.identity = Some(identity),
                Some(Err(why)) => connection.disbelief = Some(why),
                None => {}
            }
            stream
        }
        failed => {
            let why = match failed {
                Ok(Err(why)) => why,
                _ => "the client has not completed the handshake".to_owned(),
            };
            debug!(session = number, %peer, why, "TLS handshake failed");
            let entry = Entry::new(What::Prove).class(Some(Class::Handshake));
            return connection.recorder(None).record(&entry.ended(Some(why)));
        }
    };
    let connection = Arc::new(connection);
    serve_requests(stream, &connection, phase, dialect).await;
    if let Some((_, session)) = connection.present().take() {
        session.recorder.record(&Entry::new(What::Logout));
    }
    let seconds = began.elapsed().as_secs();
    info!(session = number, %peer, seconds, "HTTPS connection ends");
}

async fn serve_requests(
    stream: TlsStream<TcpStream>,
    connection: &Arc<HttpConnection>,
    mut phase: watch::Receiver<Phase>,
    dialect: Dialect,
) {
    let settings = &connection.service.settings;
    let stream = StallLimit::new(stream, settings.data_limit);
    let answering = {
        let connection = Arc::clone(connection);
        service_fn(move |request| {
            let connection = Arc::clone(&connection);
            async move {
                Ok::<_, Infallible>(match dialect {
                    Dialect::WebDav => requests::answer(&connection, request).await,
                    Dialect::S3 => s3::answer(&connection, request).await,
                })
            }
        })
    };
    let serving = Builder::new()
        .timer(TokioTimer::new())
        // Also the time between two requests.
        .header_read_timeout(settings.login_limit)
        .max_headers(HEADERS_MAX)
        .max_header_size(HEAD_BYTES_MAX)
        .max_buf_size(BUFFER_BYTES_MAX)
        .serve_connection(TokioIo::new(stream), answering);
    let mut serving = pin!(serving);
    let (mut aborts, mut is_draining) = (phase.clone(), false);
    loop {
        tokio::select! {
            ended = &mut serving => {
                if let Err(error) = ended {
                    let session = connection.permit.number();
                    debug!(session, peer = %connection.peer, %error, "HTTPS connection broke");
                }
                return;
            }
            () = connection.permit.evicted() => return,
            () = draining(&mut phase), if !is_draining => {
                is_draining = true;
                serving.as_mut().graceful_shutdown();
            }
            () = aborting(&mut aborts) => {
                // A copy says in its last line that it was stopped. Nothing else has time.
                if connection.stop.send(true).is_ok() {
                    serving.as_mut().graceful_shutdown();
                    drop(timeout(LAST_LINE_LIMIT, serving.as_mut()).await);
                }
                return;
            }
        }
    }
}

/// Who the client is: its name, or why that is not trusted; `None`: it shows none.
type Shown = Option<Result<godwit_gsi::name::DistinguishedName, String>>;

async fn shake_hands(
    socket: TcpStream,
    tls: &ftps::Server,
) -> Result<(TlsStream<TcpStream>, Shown), String> {
    let ssl = tls.ssl().map_err(|error| error.to_string())?;
    let stream = TlsStream::accept(ssl, socket).await;
    let stream = stream.map_err(|error| error.to_string())?;
    let shown = match tls.client_check(stream.ssl()) {
        None => None,
        Some(check) => {
            let checked = spawn_blocking(move || check(SystemTime::now())).await;
            Some(match checked {
                Ok(Ok(peer)) => Ok(peer.identity().clone()),
                Ok(Err(refusal)) => Err(refusal.to_string()),
                Err(_) => Err("it was not verified".to_owned()),
            })
        }
    };
    Ok((stream, shown))
}

/// Ready when no new request may begin.
async fn draining(phase: &mut watch::Receiver<Phase>) {
    drop(phase.wait_for(|phase| *phase != Phase::Serving).await);
}

/// Ready when running requests have to end.
async fn aborting(phase: &mut watch::Receiver<Phase>) {
    drop(phase.wait_for(|phase| *phase == Phase::Aborting).await);
}
