//! Whose signature a request has.

use std::{sync::Arc, time::SystemTime};

use godwit_http::s3::{
    requests::{ObjectTarget, Query},
    signing::{Asked, BadSignature, Claim, UNSIGNED_PAYLOAD, Verified},
};
use godwit_proto::{FtpPath, command::Password, pi::server::Account};
use hyper::{HeaderMap, StatusCode, header::AUTHORIZATION, http::request::Parts};
use tokio::{task::spawn_blocking, time::timeout};
use tracing::error;

use super::{
    super::{
        answer::header_text,
        session::{HttpConnection, HttpSession},
    },
    refused::S3Error,
};
use crate::{
    access::{
        gsi::refusal,
        identity::{Actor, Admitted, Method, Principal},
        rights::Rights,
        s3_keys::Key,
    },
    observe::class::Class,
};

/// Whose request it is, and how its body is signed.
pub(super) struct SignedLogin {
    pub(super) session: Arc<HttpSession>,
    /// What `x-amz-content-sha256` says.
    pub(super) payload: String,
    /// `None`: it is not signed.
    pub(super) verified: Option<Verified>,
}

impl HttpConnection {
    /// The login of a request. Each is verified; a connection has one session as long as the key
    /// stays the same.
    pub(super) async fn log_in_by_key(
        &self,
        parts: &Parts,
        target: &ObjectTarget,
        query: &Query,
    ) -> Result<SignedLogin, S3Error> {
        let headers = text_of(&parts.headers)?;
        let payload = header_text(&parts.headers, "x-amz-content-sha256");
        let Some(claim) = claim_of(&parts.headers, query)? else {
            return Ok(SignedLogin {
                session: self.log_in(&HeaderMap::new()).await?,
                payload: payload.unwrap_or(UNSIGNED_PAYLOAD).to_owned(),
                verified: None,
            });
        };
        let payload = match (payload, claim.is_of_url()) {
            (Some(payload), _) => payload,
            (None, true) => query
                .get("X-Amz-Content-Sha256")
                .unwrap_or(UNSIGNED_PAYLOAD),
            (None, false) => {
                let text = "x-amz-content-sha256 is missing";
                return Err(S3Error::new(
                    StatusCode::BAD_REQUEST,
                    "InvalidRequest",
                    text,
                ));
            }
        };
        claim.check_time(SystemTime::now()).map_err(refused)?;
        let asked = Asked {
            method: parts.method.as_str(),
            path: &target.encoded,
            query,
            headers: &headers,
            payload,
        };
        let key = self.key_of(&claim.access).await?;
        let verified = match &key {
            None => Err(S3Error::new(
                StatusCode::FORBIDDEN,
                "InvalidAccessKeyId",
                "there is no such access key",
            )),
            Some(key) => claim.verify(key.secret.reveal(), &asked).map_err(refused),
        };
        let (key, verified) = match (key, verified) {
            (Some(key), Ok(verified)) => (key, verified),
            (_, Err(why)) => return Err(self.failed(&claim.access, why).await),
            (None, Ok(_)) => return Err(S3Error::denied("there is no such access key")),
        };
        Ok(SignedLogin {
            session: self.session_of(&claim.access, &key).await?,
            payload: payload.to_owned(),
            verified: Some(verified),
        })
    }

    async fn key_of(&self, access: &str) -> Result<Option<Key>, S3Error> {
        let (service, access) = (Arc::clone(&self.service), access.to_owned());
        let found = spawn_blocking(move || {
            let Some(file) = service.settings.s3_keys.as_ref() else {
                return Ok(None);
            };
            let keys = service.s3_keys.read(file).inspect_err(|error| {
                error!(?file, %error, "no key of S3 counts: cannot use the file");
            });
            keys.map(|keys| keys.get(&access).cloned())
        });
        let found = found.await.map_err(|_| {
            let status = StatusCode::INTERNAL_SERVER_ERROR;
            S3Error::new(status, "InternalError", "see the log of the server")
        })?;
        // Not the client's fault: it does not count as a login that failed.
        found.map_err(|_| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            let text = "the server cannot read its keys: see its log";
            S3Error::new(status, "ServiceUnavailable", text)
        })
    }

    /// Counts as a login that failed: the address has to pause after some.
    async fn failed(&self, access: &str, why: S3Error) -> S3Error {
        let limit = self.service.settings.login_limit;
        match timeout(limit, self.permit.attempt(false)).await {
            Ok(Err(pause)) => return self.pause(access, pause).into(),
            Ok(Ok(attempt)) => drop(attempt),
            Err(_) => {}
        }
        self.refused(access, Class::Credentials, &refusal(&why.text));
        why
    }

    async fn session_of(&self, access: &str, key: &Key) -> Result<Arc<HttpSession>, S3Error> {
        // All that a session rests on.
        let standing = Password::new(format!(
            "{access} {} {} {} {}",
            key.secret.reveal(),
            key.user,
            key.home,
            key.writes
        ));
        if let Some((before, session)) = &*self.present()
            && before.reveal() == standing.reveal()
        {
            return Ok(Arc::clone(session));
        }
        let limit = self.service.settings.login_limit;
        let attempt = timeout(limit, self.permit.attempt(false)).await;
        let attempt = attempt.map_err(|_| {
            let status = StatusCode::SERVICE_UNAVAILABLE;
            S3Error::new(status, "SlowDown", "too many logins wait")
        })?;
        let attempt = attempt.map_err(|why| S3Error::from(self.pause(access, why)))?;
        attempt.succeeded(true);
        let admitted = admitted(key);
        let counted = self.permit.logged_in(&admitted.name);
        counted.map_err(|why| S3Error::from(self.pause(access, why)))?;
        let session = Arc::new(self.session(access, admitted, &[]));
        *self.present() = Some((standing, Arc::clone(&session)));
        Ok(session)
    }
}

fn admitted(key: &Key) -> Admitted {
    let is_whole = key.home == FtpPath::root();
    Admitted {
        name: Principal::Account(key.user.clone()),
        account: Account {
            home: key.home.clone(),
            writable: key.writes,
            foreign_data_hosts: false,
        },
        rights: (!is_whole).then(|| Rights::within(&key.home, key.writes)),
        actor: Actor::Account(key.user.clone()),
        method: Method::Key,
    }
}

/// All headers, for a signature.
fn text_of(headers: &HeaderMap) -> Result<Vec<(&str, &str)>, S3Error> {
    let pairs = headers.iter().map(|(name, value)| {
        let unreadable = || S3Error::argument("a header is no text");
        Ok((name.as_str(), value.to_str().map_err(|_| unreadable())?))
    });
    pairs.collect()
}

/// `None`: the request is not signed.
fn claim_of(headers: &HeaderMap, query: &Query) -> Result<Option<Claim>, S3Error> {
    let mut shown = headers.get_all(AUTHORIZATION).iter();
    let is_of_url = query.get("X-Amz-Signature").is_some()
        || query.get("X-Amz-Algorithm").is_some()
        || query.get("Signature").is_some();
    let claim = match (shown.next(), shown.next(), is_of_url) {
        (None, _, false) => return Ok(None),
        (None, _, true) => Claim::of_query(query),
        (Some(header), None, false) => {
            let text = header.to_str().unwrap_or_default();
            Claim::of_header(text, header_text(headers, "x-amz-date"))
        }
        _ => return Err(S3Error::argument("a request is signed once")),
    };
    if headers.contains_key("x-amz-security-token") || query.get("X-Amz-Security-Token").is_some() {
        let text = "keys that end are not known here";
        return Err(S3Error::new(StatusCode::BAD_REQUEST, "InvalidToken", text));
    }
    claim.map(Some).map_err(refused)
}

fn refused(why: BadSignature) -> S3Error {
    let (status, code) = match why {
        BadSignature::Malformed(_) => (400, "AuthorizationHeaderMalformed"),
        BadSignature::Algorithm => (400, "InvalidRequest"),
        BadSignature::Header => (403, "AccessDenied"),
        BadSignature::Skew => (403, "RequestTimeTooSkewed"),
        BadSignature::Expired => (403, "AccessDenied"),
        BadSignature::Wrong => (403, "SignatureDoesNotMatch"),
    };
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::FORBIDDEN);
    S3Error::new(status, code, why.to_string())
}
