//! Requests for keys: each goes over a connection of its own.

use std::{sync::Arc, time::Duration};

use godwit_gsi::{
    ftps::Authorities,
    https::{HttpsClient, Trust},
};
use godwit_http_client::{
    Connector, Error, HeaderValue, Limits, Origin, Request, Scheme, StatusCode, header,
};
use tokio::time::sleep;

/// Longest answer.
pub(super) const ANSWER_BYTES_MAX: usize = 64 << 10;

/// Time for name lookup, for the connection and for TLS; answers have three times as much.
const LIMIT: Duration = Duration::from_secs(10);

/// A request that may succeed a little later is sent so often, after this pause and twice it.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_millis(500);

/// Status and body.
pub(super) type KeyAnswer = (StatusCode, Vec<u8>);

/// Sends a request.
pub(super) async fn ask(
    connector: &Connector,
    origin: &Origin,
    mut request: Request,
) -> Result<KeyAnswer, Error> {
    let agent = concat!("godwit/", env!("CARGO_PKG_VERSION"));
    let agent = HeaderValue::from_static(agent);
    request.headers.insert(header::USER_AGENT, agent);
    let mut connection = connector.connect(origin).await?;
    let mut answer = connection.send(request).await?;
    let body = answer.whole(ANSWER_BYTES_MAX).await?;
    Ok((answer.status, body))
}

/// Sends what `request` makes to a service, again while `passes` says of its answer that a later
/// one may be another.
///
/// # Errors
/// There is no answer: a message.
pub(super) async fn ask_service(
    authorities: &Authorities,
    origin: &Origin,
    request: impl Fn() -> Result<Request, String>,
    passes: impl Fn(&KeyAnswer) -> bool,
) -> Result<KeyAnswer, String> {
    let tls = match origin.scheme {
        Scheme::Http => None,
        Scheme::Https => {
            let client = HttpsClient::new(None, &Trust::Web(authorities.clone()));
            Some(client.map_err(|error| format!("trusted CAs (--ca): {error}"))?)
        }
    };
    let limits = Limits {
        resolve: LIMIT,
        connect: LIMIT,
        handshake: LIMIT,
        answer: 3 * LIMIT,
        silence: 3 * LIMIT,
        ..Limits::default()
    };
    // The user has named the service, or it is that of AWS.
    let any = Arc::new(|_: &_, _| true);
    let connector = Connector::new(tls, any, limits);
    let mut attempt = 0;
    loop {
        let answer = ask(&connector, origin, request()?).await;
        attempt += 1;
        let may_pass = match &answer {
            Ok(answer) => is_passing(answer.0) || passes(answer),
            Err(error) => error.is_transient(),
        };
        if !may_pass || attempt == ATTEMPTS {
            return answer.map_err(|error| error.to_string());
        }
        sleep(PAUSE * attempt).await;
    }
}

fn is_passing(status: StatusCode) -> bool {
    status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS
}
