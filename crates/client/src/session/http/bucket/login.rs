//! A session with a bucket: which service has it, and as whom it is asked.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::{Arc, atomic::Ordering},
    time::Instant,
};

use godwit_http::s3::CHECKSUMS;
use godwit_http_client::{Method, Request, Scheme, StatusCode};
use godwit_proto::{
    Reply, feature::Features, odd_bytes::OddBytes, pi::transfer::ServerState,
    security::MinProtection,
};

use super::signing::Bucket;
use crate::{
    auth::aws::Service,
    context::RunContext,
    endpoint::{
        Endpoint,
        capabilities::{Lack, Observed},
    },
    error::{Error, Result},
    kept_sessions::LoggedIn,
    report::events::Event,
    session::{
        control::Control,
        http::{
            commands::HttpControl,
            error::HttpError,
            replies::{Failed, refusal},
            server::HttpServer,
            wire::Wire,
        },
        protocol_trace,
    },
};

/// Finds the service and asks whether it has the bucket.
pub(in crate::session) async fn open(
    context: &Arc<RunContext>,
    endpoint: &Arc<Endpoint>,
) -> Result<LoggedIn<Control>> {
    let unproven = |reason| Error::Identity {
        doing: endpoint.name(),
        reason,
    };
    let connections = &context.connections;
    let granted = connections.granted.keys(endpoint.host(), endpoint.port());
    let aws = granted.unwrap_or_else(|| connections.secrets.aws.clone());
    let aws = aws.trusting(&connections.authorities);
    let mut service = aws
        .service(endpoint.host(), endpoint.user(), None)
        .await
        .map_err(unproven)?;
    let mut is_moved = false;
    let (wire, tls, round_trip) = loop {
        check_protection(context, endpoint, &service)?;
        let bucket = Bucket::new(endpoint, &service, &aws, &connections.buckets)
            .reporting_to(&context.reporter);
        let log = protocol_trace(context, endpoint);
        let origin = service.origin.clone();
        let server = HttpServer::new(context, origin, None, None, Some(bucket), log);
        let mut wire = Wire::new(Arc::new(server.map_err(unproven)?));
        let began = Instant::now();
        let asked = ask(&mut wire).await;
        let asked = asked.map_err(|error| error.of_opening(endpoint))?;
        let known = wire.server.round_trip();
        let round_trip = known.unwrap_or(match service.origin.scheme {
            Scheme::Https => began.elapsed() / 3,
            Scheme::Http => began.elapsed() / 2,
        });
        let elsewhere = asked.region.filter(|region| *region != service.region);
        if let Some(region) = elsewhere.filter(|_| !is_moved) {
            is_moved = true;
            service = service.in_region(endpoint.host(), &region);
            continue;
        }
        if !asked.status.is_success() {
            let why = why_refused(&mut wire, asked.status).await;
            if let Some(reply) = why.map_err(|error| error.of_opening(endpoint))? {
                return Err(Error::Login {
                    endpoint: endpoint.name(),
                    command: "HEAD",
                    reply: Box::new(reply),
                });
            }
        }
        warn_of_clock(context, endpoint);
        break (wire, asked.tls, round_trip);
    };
    let capabilities = &endpoint.capabilities;
    capabilities.record(Observed::Greeted);
    let all = OddBytes::from_bits(u8::MAX).bits();
    capabilities.names_pass.store(all, Ordering::Relaxed);
    let lacks = [
        Lack::Pipelining,
        Lack::LiveRequests,
        Lack::Mfmt,
        Lack::Chmod,
        Lack::Copies,
        Lack::IssuedTokens,
    ];
    for lack in lacks {
        capabilities.record_lack(lack);
    }
    if let Some(tls) = tls {
        context.reporter.emit(&Event::Secured {
            endpoint: endpoint.name(),
            server: format!("CN={}", service.origin.host),
            user: service
                .keys
                .as_ref()
                .map_or_else(String::new, |keys| keys.access.clone()),
            control: tls,
            data: "HTTPS".to_owned(),
        });
    }
    let peer = wire.server.origin.to_string().into();
    Ok(LoggedIn {
        control: Control::Http(Box::new(HttpControl::new(wire, peer))),
        addresses: [IpAddr::V4(Ipv4Addr::UNSPECIFIED); 2],
        server: ServerState::new(features()),
        set: None,
        markers_requested: false,
        round_trip,
        security: None,
        since: Instant::now(),
    })
}

/// Says once that the service has refused the clock of this machine.
fn warn_of_clock(context: &RunContext, endpoint: &Endpoint) {
    let clock = &endpoint.service_clock;
    if !clock.is_to_be_told() {
        return;
    }
    let ahead = clock.ahead_seconds();
    let way = if ahead < 0 { "behind" } else { "ahead of" };
    context.reporter.warn(format!(
        "{}: the service's clock is {} s {way} that of this machine, and requests are signed with \
         its time",
        endpoint.name(),
        ahead.unsigned_abs(),
    ));
}

fn check_protection(context: &RunContext, endpoint: &Endpoint, service: &Service) -> Result<()> {
    let floor = context.connections.protect.unwrap_or(MinProtection::Clear);
    match service.origin.scheme == Scheme::Http && floor > MinProtection::Clear {
        true => Err(Error::Usage(format!(
            "{}: {} has no protection: use a service with https://, or --protect clear",
            endpoint.name(),
            service.origin
        ))),
        false if may_be_heard(context, service) => Err(Error::Usage(format!(
            "{}: a session token would go to {} unprotected: use a service with https://, or \
             --protect clear",
            endpoint.name(),
            service.origin
        ))),
        false => Ok(()),
    }
}

/// True if a token, which is all that others need beside the keys, would leave this machine in
/// clear, and that was not asked for.
fn may_be_heard(context: &RunContext, service: &Service) -> bool {
    let host = service.origin.host.trim_matches(['[', ']']);
    let address = host.parse::<IpAddr>();
    let is_here = host == "localhost" || address.is_ok_and(|address| address.is_loopback());
    let has_token = service
        .keys
        .as_ref()
        .is_some_and(|keys| keys.token.is_some());
    let is_asked_for = context.connections.protect.is_some();
    service.origin.scheme == Scheme::Http && has_token && !is_here && !is_asked_for
}

/// What an answer to HEAD of the bucket says.
struct BucketAnswer {
    status: StatusCode,
    /// Where the bucket is, if the service tells.
    region: Option<String>,
    tls: Option<String>,
}

async fn ask(wire: &mut Wire) -> std::result::Result<BucketAnswer, HttpError> {
    let Some(bucket) = &wire.server.bucket else {
        return Err(HttpError::Senseless("no bucket".to_owned()));
    };
    let target = bucket.itself(&[]);
    let target = target.trim_end_matches('?');
    let request = |target: &str| Request::new(Method::HEAD, target);
    let exchange = wire.send(target, request).await?;
    let is_name = |text: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        !text.is_empty() && text.bytes().all(allowed)
    };
    let region = exchange.answer.header("x-amz-bucket-region");
    let asked = BucketAnswer {
        status: exchange.answer.status,
        region: region.filter(is_name).map(str::to_owned),
        tls: exchange.tls().map(str::to_owned),
    };
    wire.done(exchange).await;
    Ok(asked)
}

/// What makes all requests fail, and an answer to HEAD does not say; `None`: others may succeed.
/// Who may not list a bucket may not ask for it either, and may fetch from it.
async fn why_refused(
    wire: &mut Wire,
    status: StatusCode,
) -> std::result::Result<Option<Reply>, HttpError> {
    let Some(bucket) = &wire.server.bucket else {
        return Ok(None);
    };
    let target = bucket.itself(&[("list-type", "2"), ("max-keys", "1")]);
    let request = |target: &str| Request::new(Method::GET, target);
    let mut exchange = wire.send(&target, request).await?;
    let text = exchange.reason().await;
    let is_denied = text.is_empty() || text.starts_with("AccessDenied");
    let may_fetch = exchange.answer.status == StatusCode::FORBIDDEN && is_denied;
    let is_well = exchange.answer.status.is_success();
    let status = if is_well {
        status
    } else {
        exchange.answer.status
    };
    wire.done(exchange).await;
    Ok((!may_fetch && !is_well).then(|| refusal(status, &text, Failed::Status)))
}

/// In the terms of FTP: one stream from any byte on, by which a file is gone on with.
fn features() -> Features {
    Features {
        rest_stream: true,
        size: true,
        mdtm: true,
        mlst: true,
        utf8: true,
        checksums: CHECKSUMS.map(|(algorithm, ..)| algorithm).to_vec(),
        ..Features::default()
    }
}
