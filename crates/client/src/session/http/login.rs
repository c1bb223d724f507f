//! A session with a server of HTTP: who the user is, and what the server can do. Each request
//! carries the credentials; the first shows whether the server takes them.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, atomic::Ordering},
    time::{Instant, SystemTime},
};

use godwit_gsi::cert::Credential;
use godwit_http::{
    dav::{OPEN_PARTS, PARTS},
    digest::Form,
};
use godwit_http_client::{HeaderValue, Method, Origin, Request, Scheme, StatusCode, header};
use godwit_proto::{ChecksumAlgorithm, feature::Features, pi::transfer::ServerState};

use super::{
    bucket,
    commands::HttpControl,
    error::HttpError,
    replies::{Failed, refusal},
    server::{Dav, HttpServer},
    wire::Wire,
};
use crate::{
    auth::{identity, secrets::check_audience},
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::{Lack, Observed},
    },
    error::{Error, Result},
    kept_sessions::LoggedIn,
    panics::on_thread,
    report::events::Event,
    session::{control::Control, protocol_trace},
};

/// Connects and asks what the server can do.
pub(in crate::session) async fn open(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
) -> Result<LoggedIn<Control>> {
    if endpoint.is_bucket() {
        return Box::pin(bucket::login::open(context, endpoint)).await;
    }
    let unproven = |reason| Error::Identity {
        doing: endpoint.name(),
        reason,
    };
    let credential = match endpoint.is_tls() {
        true => credential(context, endpoint).map_err(unproven)?,
        false => None,
    };
    let authorization = authorization(context, endpoint).await?;
    let log = protocol_trace(context, endpoint);
    let origin = Origin {
        scheme: match endpoint.is_tls() {
            true => Scheme::Https,
            false => Scheme::Http,
        },
        host: endpoint.host().to_ascii_lowercase(),
        port: endpoint.port(),
    };
    let credential_shown = credential.as_ref();
    let server = HttpServer::new(context, origin, credential_shown, authorization, None, log);
    let server = Arc::new(server.map_err(unproven)?);
    let mut wire = Wire::new(Arc::clone(&server));
    let began = Instant::now();
    let asked = ask(&mut wire).await;
    let (status, offered, text) = asked.map_err(|error| error.of_opening(endpoint))?;
    // Without the kernel's word: TCP and TLS have gone there and back before.
    let round_trip = server.round_trip().unwrap_or(match endpoint.is_tls() {
        true => began.elapsed() / 3,
        false => began.elapsed() / 2,
    });
    if status == StatusCode::UNAUTHORIZED {
        return Err(Error::Login {
            endpoint: endpoint.name(),
            command: "OPTIONS",
            reply: Box::new(refusal(status, &text, Failed::Status)),
        });
    }
    endpoint.capabilities.record(Observed::Greeted);
    server.set_dav(offered.dav);
    server.learn_ways(&offered.program);
    if server.origin.scheme == Scheme::Https {
        context.reporter.emit(&Event::Secured {
            endpoint: endpoint.name(),
            server: format!("CN={}", endpoint.host()),
            user: credential.map_or_else(String::new, |own| own.identity().to_string()),
            control: offered.tls.clone(),
            data: "HTTPS".to_owned(),
        });
    }
    let takes_parts = offered.takes_parts;
    server.takes_parts.store(takes_parts, Ordering::Relaxed);
    let takes_open_parts = offered.takes_open_parts;
    (server.takes_open_parts).store(takes_open_parts, Ordering::Relaxed);
    // Files are sent whole, and never gone on with.
    let of_whole_files = [Lack::RestStor, Lack::Append];
    let of_whole_files = of_whole_files.into_iter().filter(|_| !takes_parts);
    for lack in of_whole_files.chain([Lack::Pipelining, Lack::LiveRequests]) {
        endpoint.capabilities.record_lack(lack);
    }
    Ok(LoggedIn {
        control: Control::Http(Box::new(HttpControl::new(
            wire,
            server.origin.to_string().into(),
        ))),
        addresses: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); 2],
        server: ServerState::new(features(offered.checksums)),
        set: None,
        markers_requested: false,
        round_trip,
        security: None,
        since: Instant::now(),
    })
}

/// What an answer to OPTIONS says.
struct Offered {
    /// How the connection is protected.
    tls: String,
    dav: Dav,
    takes_parts: bool,
    takes_open_parts: bool,
    /// Empty: the server does not tell.
    program: String,
    /// Where the server tells.
    checksums: Vec<ChecksumAlgorithm>,
}

/// In the terms of FTP: one stream from any byte on, by which a file is gone on with.
fn features(checksums: Vec<ChecksumAlgorithm>) -> Features {
    Features {
        rest_stream: true,
        size: true,
        mdtm: true,
        mlst: true,
        utf8: true,
        checksums: match checksums.is_empty() {
            // Those that most know: which of them shows when it is asked.
            true => vec![ChecksumAlgorithm::Adler32, ChecksumAlgorithm::Md5],
            false => checksums,
        },
        ..Features::default()
    }
}

async fn ask(wire: &mut Wire) -> std::result::Result<(StatusCode, Offered, String), HttpError> {
    let request = |target: &str| Request::new(Method::OPTIONS, target);
    let mut exchange = wire.send("/", request).await?;
    let allows = |method: &str| {
        let allowed = exchange.header(header::ALLOW).unwrap_or_default();
        allowed.split(',').any(|word| word.trim() == method)
    };
    let speaks_dav = exchange.answer.header("dav").is_some() || allows("PROPFIND");
    let classes = exchange.answer.header("dav").unwrap_or_default();
    let is_class = |class: &str| classes.split(',').any(|word| word.trim() == class);
    let offered = Offered {
        tls: exchange.tls().unwrap_or_default().to_owned(),
        dav: match speaks_dav {
            true => Dav::Yes,
            false => Dav::Unknown,
        },
        takes_parts: is_class(PARTS),
        takes_open_parts: is_class(OPEN_PARTS),
        program: exchange
            .header(header::SERVER)
            .unwrap_or_default()
            .to_owned(),
        checksums: (exchange.answer.header("want-digest"))
            .map(|told| Form::Rfc3230.offered(told))
            .unwrap_or_default(),
    };
    let status = exchange.answer.status;
    let text = match status.is_success() {
        true => String::new(),
        false => exchange.reason().await,
    };
    wire.done(exchange).await;
    Ok((status, offered, text))
}

/// The certificate or proxy that the server may ask for: what `gsiftp://` would show. There need be
/// none, but one that was named must do.
fn credential(
    context: &RunContext,
    endpoint: &Endpoint,
) -> std::result::Result<Option<Credential>, String> {
    let connections = &context.connections;
    let (host, port) = (endpoint.host(), endpoint.port());
    if let Some(granted) = connections.granted.proxy(host, port) {
        return Ok(Some(granted));
    }
    let now = SystemTime::now();
    if let Some(proxy) = connections.proxy_of(host) {
        let proxy = identity::valid_proxy(proxy, now);
        return proxy.map(Some).map_err(|error| error.to_string());
    }
    Ok(identity::credential(&connections.locations, now).ok())
}

/// The user and password of the URL; else the user's token, which goes to no server in clear, and
/// to none that it is not meant for.
async fn authorization(
    context: &RunContext,
    endpoint: &Arc<Endpoint>,
) -> Result<Option<HeaderValue>> {
    let secrets = &context.connections.secrets;
    if endpoint.user().is_some() {
        let credentials = endpoint.credentials(secrets).await?;
        let pair = format!("{}:{}", credentials.user, credentials.password.reveal());
        return secret(endpoint, format!("Basic {}", base64(pair.as_bytes()))).map(Some);
    }
    if !endpoint.is_tls() {
        return Ok(None);
    }
    let granted = &context.connections.granted;
    if let Some(token) = granted.token(endpoint.host(), endpoint.port()) {
        return secret(endpoint, format!("Bearer {}", token.reveal())).map(Some);
    }
    let doing = || format!("read the token for {}", endpoint.name());
    let own = secrets.clone();
    let Some(token) = on_thread(doing, move || own.token()).await?? else {
        return Ok(None);
    };
    match check_audience(&token, endpoint.host(), &secrets.token_hosts) {
        Ok(()) => secret(endpoint, format!("Bearer {}", token.reveal())).map(Some),
        Err(reason) if secrets.token_file.is_some() => Err(Error::Identity {
            doing: endpoint.name(),
            reason,
        }),
        // Servers of the web have files for everybody.
        Err(reason) => {
            let name = endpoint.name();
            let reporter = &context.reporter;
            reporter.note(format!("{name}: asked without a token: {reason}"));
            Ok(None)
        }
    }
}

fn secret(endpoint: &Endpoint, text: String) -> Result<HeaderValue> {
    let value = HeaderValue::try_from(text).map_err(|_| Error::Identity {
        doing: endpoint.name(),
        reason: "the password or token has a character that no request has".to_owned(),
    });
    value.map(|mut value| {
        value.set_sensitive(true);
        value
    })
}

/// RFC 4648 §4.
fn base64(bytes: &[u8]) -> String {
    godwit_gsi::adat::encode(bytes)
}
