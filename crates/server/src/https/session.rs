//! Who a client is: a user by password, bearer token or certificate, or the anonymous user. A
//! connection logs in once, and again where a request has other credentials.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::Storage;
use godwit_gsi::{gridmap::MAPPED_USER, name::DistinguishedName};
use godwit_proto::{FtpPath, command::Password, error::StorageFailure, security::TOKEN_USER};
use hyper::{
    HeaderMap, StatusCode,
    header::{AUTHORIZATION, WWW_AUTHENTICATE},
};
use tokio::{sync::watch, task::spawn_blocking, time::timeout};
use tracing::{info, warn};

use super::{answer::Rejected, record::Recorder};
use crate::{
    access::{
        admission::ConnectionPermit,
        copies::{Copies, CopyPlace},
        gsi::refusal,
        identity::{Actor, Admitted, ControlProtection, LoginRequest, Method, Principal},
        issued::IssuedToken,
        limits::{Refusal, sharing_as},
        long_calls::ShareOfCalls,
        rights::{Operation, Rights},
        scoped::ScopedStorage,
        turns::AccountTurns,
    },
    config::Anonymous,
    login,
    observe::{
        class::Class,
        event::{Entry, What, Who},
    },
    service::Service,
    storage::durability::Committer,
};

/// Name that clients without credentials log in with.
const ANONYMOUS: &str = "anonymous";

/// When a copy may find a place.
const COPY_PAUSE: Duration = Duration::from_secs(10);

/// What the requests of a connection share.
pub(super) struct HttpConnection {
    pub(super) service: Arc<Service>,
    pub(super) permit: Arc<ConnectionPermit>,
    pub(super) peer: SocketAddr,
    /// Of the client's certificate.
    pub(super) identity: Option<DistinguishedName>,
    /// Why that is not trusted.
    pub(super) disbelief: Option<String>,
    /// With the `Authorization` header that has led to it.
    pub(super) login: Mutex<Option<(Password, Arc<HttpSession>)>>,
    /// Tells copies that the server stops. Each that runs listens, and nothing else does.
    pub(super) stop: watch::Sender<bool>,
}

/// A login.
pub(super) struct HttpSession {
    pub(super) recorder: Recorder,
    pub(super) committer: Arc<Committer>,
    /// That of the storage without the rights of the login.
    pub(super) unscoped_committer: Arc<Committer>,
    /// The storage of the committer, where the login has rights of its own.
    pub(super) scoped: Option<Arc<ScopedStorage>>,
    /// Without the rights of the login, which may have ended when a file is removed.
    pub(super) unscoped: Arc<dyn Storage>,
    pub(super) turns: AccountTurns,
    /// Time for a byte of a body.
    pub(super) data_limit: Duration,
    /// Copies with other servers; `None`: they are refused.
    copies: Option<Arc<Copies>>,
    /// That of the connection.
    pub(super) stop: watch::Sender<bool>,
    /// To some users.
    pub(super) issues_tokens: bool,
    /// Issues tokens with a part of the account's rights; `None`: there are none.
    issuer: Option<Issuer>,
    /// With whom the user shares what is limited.
    pub(super) sharing: String,
    /// The directory of the login, which stays when it is empty.
    pub(super) home: FtpPath,
    /// What the account may have of the threads for long calls.
    pub(super) long_calls: Arc<ShareOfCalls>,
    writes: bool,
    /// The client has shown no credentials.
    is_anonymous: bool,
    challenges: Vec<&'static str>,
}

/// Issues tokens for an account.
#[derive(Clone)]
pub(super) struct Issuer {
    service: Arc<Service>,
    account: String,
    identity: Option<DistinguishedName>,
}

impl Issuer {
    pub(super) fn account(&self) -> &str {
        &self.account
    }

    /// A token for a part of the account's rights. Reads files: it may block.
    ///
    /// # Errors
    /// For the user.
    pub(super) fn token(&self, rights: Rights) -> Result<String, String> {
        let standing = login::standing(&self.service, &self.account, self.identity.as_ref());
        let (Some(standing), Some(key)) = (standing, &self.service.issuer) else {
            return Err("the account was removed after the login".to_owned());
        };
        let token = IssuedToken {
            account: self.account.clone(),
            identity: self.identity.as_ref().map(ToString::to_string),
            standing,
            rights,
        };
        let sealed = token.seal(key);
        sealed.map_err(|_| "a token names paths of UTF-8 alone".to_owned())
    }
}

impl HttpSession {
    pub(super) fn storage(&self) -> Arc<dyn Storage> {
        self.committer.storage()
    }

    /// Refuses changes of logins that only read.
    pub(super) fn check_writes(&self) -> Result<(), Rejected> {
        match self.writes {
            true => Ok(()),
            false => Err(Rejected::new(
                StatusCode::FORBIDDEN,
                "this login may only read",
            )),
        }
    }

    /// For whom tokens are issued. What a token gives is not given on: it would not end with the
    /// token.
    pub(super) const fn issuer(&self) -> Option<&Issuer> {
        self.issuer.as_ref()
    }

    /// Whether the login may do so at a path, as far as its own rights go.
    pub(super) fn may(&self, deed: Operation, path: &FtpPath) -> bool {
        let only_reads = matches!(deed, Operation::Look | Operation::Read);
        let is_scoped = self.scoped.as_ref();
        (self.writes || only_reads) && is_scoped.is_none_or(|storage| storage.may(deed, path))
    }

    /// A place for one more copy between this server and another. Without a login anybody could
    /// send the server anywhere.
    pub(super) fn copy_place(&self) -> Result<CopyPlace, Rejected> {
        let refused = |status, text: &str| Err(Rejected::new(status, text));
        let Some(copies) = &self.copies else {
            let text = "copies between servers are not offered";
            return refused(StatusCode::NOT_IMPLEMENTED, text);
        };
        if self.is_anonymous {
            let text = "copies between servers need a login";
            return refused(StatusCode::FORBIDDEN, text);
        }
        copies.place(&self.sharing).ok_or_else(|| {
            let text = "too many copies run";
            Rejected::new(StatusCode::TOO_MANY_REQUESTS, text).retry_after(COPY_PAUSE)
        })
    }

    /// A client without credentials, or with a token that has ended, hears that others may help.
    pub(super) fn explain(&self, refused: Rejected) -> Rejected {
        match refused.status {
            StatusCode::FORBIDDEN if self.is_anonymous => challenge(refused, &self.challenges),
            StatusCode::UNAUTHORIZED => challenge(refused, &self.challenges),
            _ => refused,
        }
    }
}

/// What a client shows.
struct Credentials {
    user: String,
    password: Password,
}

impl HttpConnection {
    /// The login of a request with these headers.
    pub(super) async fn log_in(&self, headers: &HeaderMap) -> Result<Arc<HttpSession>, Rejected> {
        let mut values = headers.get_all(AUTHORIZATION).iter();
        let shown = values.next().map(|value| value.to_str().ok());
        let shown = match (shown, values.next()) {
            (None, _) => None,
            (Some(Some(text)), None) => Some(text),
            _ => {
                let text = "the Authorization header cannot be read";
                return Err(Rejected::new(StatusCode::BAD_REQUEST, text));
            }
        };
        let key = Password::new(shown.unwrap_or_default());
        if let Some((before, session)) = &*self.present()
            && before.reveal() == key.reveal()
        {
            return Ok(Arc::clone(session));
        }
        let challenges = challenges(&self.service);
        let credentials = match shown {
            Some(text) => credentials(text).ok_or_else(|| {
                let text = "the credentials are neither a password nor a bearer token";
                challenge(Rejected::new(StatusCode::UNAUTHORIZED, text), &challenges)
            })?,
            None => self.without_header().ok_or_else(|| {
                let text = match &self.disbelief {
                    Some(why) => format!("the certificate is not trusted: {why}"),
                    None => "log in".to_owned(),
                };
                challenge(Rejected::new(StatusCode::FORBIDDEN, text), &challenges)
            })?,
        };
        let limit = self.service.settings.login_limit;
        let session = timeout(limit, self.try_login(credentials, &challenges)).await;
        let session = session.unwrap_or_else(|_| {
            let text = "too many logins wait";
            Err(Rejected::new(StatusCode::SERVICE_UNAVAILABLE, text))
        })?;
        *self.present() = Some((key, Arc::clone(&session)));
        Ok(session)
    }

    pub(super) fn present(
        &self,
    ) -> std::sync::MutexGuard<'_, Option<(Password, Arc<HttpSession>)>> {
        self.login.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A certificate is a login of its own.
    fn without_header(&self) -> Option<Credentials> {
        let user = match &self.identity {
            Some(_) => MAPPED_USER,
            None if self.service.settings.anonymous != Anonymous::Off => ANONYMOUS,
            None => return None,
        };
        Some(Credentials {
            user: user.to_owned(),
            password: Password::new(String::new()),
        })
    }

    async fn try_login(
        &self,
        credentials: Credentials,
        challenges: &[&'static str],
    ) -> Result<Arc<HttpSession>, Rejected> {
        let user = credentials.user.clone();
        let caller = LoginRequest {
            user: credentials.user,
            password: credentials.password,
            identity: self.identity.clone(),
            disbelief: self.disbelief.clone(),
            channel: ControlProtection::Tls,
        };
        let service = Arc::clone(&self.service);
        let is_costly = login::is_costly(&service.settings, &caller);
        let turn = match self.permit.attempt(is_costly).await {
            Ok(turn) => turn,
            Err(why) => return Err(self.pause(&user, why)),
        };
        // The semaphore is never closed.
        let permit = Arc::clone(&service.logins).acquire_owned().await.ok();
        let admitted = spawn_blocking(move || {
            let _permit = permit;
            login::attempt(&service, &caller, Ok(turn))
        });
        let admitted = admitted.await.unwrap_or_else(|_| {
            Err((
                Class::Account,
                refusal("internal error, see the server's log"),
            ))
        });
        let admitted = match admitted {
            Ok(admitted) => admitted,
            Err((class, why)) => {
                self.refused(&user, class, &why);
                let refused = Rejected::new(StatusCode::UNAUTHORIZED, why.text);
                return Err(challenge(refused, challenges));
            }
        };
        if let Err(why) = self.permit.logged_in(&admitted.name) {
            return Err(self.pause(&user, why));
        }
        Ok(Arc::new(self.session(&user, *admitted, challenges)))
    }

    pub(super) fn session(
        &self,
        user: &str,
        admitted: Admitted,
        challenges: &[&'static str],
    ) -> HttpSession {
        let Admitted {
            name,
            account,
            rights,
            actor,
            method,
        } = admitted;
        let service = &self.service;
        let holder = name.to_string();
        let sharing = sharing_as(&name, self.peer.ip());
        let scoped = rights.map(|rights| {
            let inner = service.committer.storage();
            let made = service.made.of(&holder);
            let clock = Arc::new(SystemTime::now);
            Arc::new(ScopedStorage::new(inner, rights, clock, made))
        });
        let issuer = match name {
            Principal::Account(account) if method != Method::Token => {
                service.issuer.is_some().then(|| Issuer {
                    service: Arc::clone(service),
                    account,
                    identity: self.identity.clone(),
                })
            }
            _ => None,
        };
        let committer = match scoped.clone() {
            None => Arc::clone(&service.committer),
            Some(scoped) => Committer::new(service.committer.durability(), scoped),
        };
        let recorder = self.recorder(Some(holder));
        info!(session = self.permit.number(), peer = %self.peer, ?user, "HTTPS login");
        recorder.record(&Entry::new(What::Login).to(user).by(method));
        HttpSession {
            recorder,
            committer,
            scoped,
            unscoped: service.committer.storage(),
            unscoped_committer: Arc::clone(&service.committer),
            turns: service.turns.of(&sharing),
            copies: service.copies.clone(),
            stop: self.stop.clone(),
            issues_tokens: service.issuer.is_some(),
            issuer,
            long_calls: service.long_calls.of(&sharing),
            sharing,
            home: account.home,
            data_limit: service.settings.data_limit,
            writes: account.writable,
            is_anonymous: actor == Actor::Anonymous,
            challenges: challenges.to_vec(),
        }
    }

    pub(super) fn recorder(&self, account: Option<String>) -> Recorder {
        Recorder {
            permit: Arc::clone(&self.permit),
            audit: Arc::clone(&self.service.audit),
            who: Arc::new(Who {
                session: self.permit.number(),
                peer: self.peer,
                identity: self.identity.as_ref().map(ToString::to_string),
                account,
            }),
        }
    }

    pub(super) fn pause(&self, user: &str, why: Refusal) -> Rejected {
        let class = match why {
            Refusal::Account { .. } => Class::Sessions,
            _ => Class::Pause,
        };
        let failure = refusal(&why.to_string());
        self.refused(user, class, &failure);
        let pause = match why {
            Refusal::Failures(pause) => pause,
            _ => Duration::from_secs(1),
        };
        Rejected::new(StatusCode::TOO_MANY_REQUESTS, why.to_string()).retry_after(pause)
    }

    pub(super) fn refused(&self, user: &str, class: Class, why: &StorageFailure) {
        let session = self.permit.number();
        warn!(session, peer = %self.peer, ?user, why = ?why.text, "HTTPS login refused");
        let entry = Entry::new(What::Login).to(user).class(Some(class));
        self.recorder(None).record(&entry.ended(Some(&why.text)));
    }
}

/// `Basic` (RFC 7617) or `Bearer` (RFC 6750).
fn credentials(header: &str) -> Option<Credentials> {
    let (scheme, rest) = header.trim().split_once(' ')?;
    let rest = rest.trim();
    if scheme.eq_ignore_ascii_case("bearer") {
        return Some(Credentials {
            user: TOKEN_USER.to_owned(),
            password: Password::new(rest),
        });
    }
    if !scheme.eq_ignore_ascii_case("basic") {
        return None;
    }
    let both = Password::new(String::from_utf8(STANDARD.decode(rest).ok()?).ok()?);
    let (user, password) = both.reveal().split_once(':')?;
    Some(Credentials {
        user: user.to_owned(),
        password: Password::new(password),
    })
}

/// Credentials other than certificates, which a request cannot add.
fn challenges(service: &Service) -> Vec<&'static str> {
    let settings = &service.settings;
    let basic = settings.passwords.as_ref();
    let bearer = settings.tokens.as_ref();
    let basic = basic.map(|_| "Basic realm=\"godwitd\", charset=\"UTF-8\"");
    let bearer = bearer.map(|_| "Bearer realm=\"godwitd\"");
    basic.into_iter().chain(bearer).collect()
}

/// 401 where the client can do something about it, else 403.
fn challenge(mut refused: Rejected, challenges: &[&'static str]) -> Rejected {
    refused.status = match challenges.is_empty() {
        true => StatusCode::FORBIDDEN,
        false => StatusCode::UNAUTHORIZED,
    };
    for challenge in challenges {
        refused = refused.with(WWW_AUTHENTICATE, *challenge);
    }
    refused
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials_are_passwords_or_tokens() {
        let read = |header: &str| {
            let found = credentials(header)?;
            Some((found.user, found.password.reveal().to_owned()))
        };
        let pair = |user: &str, password: &str| Some((user.to_owned(), password.to_owned()));
        assert_eq!(read("Basic a2ltOnNlIGM6cmV0"), pair("kim", "se c:ret"));
        assert_eq!(read("bearer  abc"), pair(TOKEN_USER, "abc"));
        for header in [
            "",
            "Basic",
            "Basic !",
            "Basic a2lt",
            "Negotiate abc",
            "Basic /w==",
        ] {
            assert_eq!(read(header), None, "{header}");
        }
        // No password can be taken for a token: the name would have a colon.
        let forged = STANDARD.encode(format!("{TOKEN_USER}:x"));
        assert_eq!(read(&format!("Basic {forged}")), pair("", "token::x"));
    }
}
