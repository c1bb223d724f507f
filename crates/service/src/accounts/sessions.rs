//! Sessions of browsers: a secret in a cookie, whose hash is in the database.
//!
//! A login makes a new secret, whatever the browser sent before. A session lasts as long as what
//! the user has shown for it: it ends with the token, the identity, the issuer of it, the password
//! and the user, and after [`LIFE`] anyway.

use std::{
    net::IpAddr,
    time::{Duration, SystemTime},
};

use godwit_service_api::site::Role;
use zeroize::Zeroizing;

use super::{
    AccessError, Accounts, Evidence, Proven,
    oidc::{BrowserLogin, IssuerError},
    secrets,
};
use crate::store::{
    StoreError,
    model::{PrincipalRecord, SessionProof},
    sessions::{SessionLife, SessionRecord},
};

/// How long sessions last.
pub(crate) const LIFE: SessionLife = SessionLife {
    whole: Duration::from_secs(12 * 3600),
    idle: Duration::from_secs(2 * 3600),
    most: 20,
};

/// Begins every secret of a session, so that scanners for leaked secrets find them.
const SECRET_PREFIX: &str = "gws_";

/// Longest secret that is looked at.
const SECRET_BYTES_MAX: usize = 64;

/// A session that has begun.
pub(crate) struct NewSession {
    /// For the cookie.
    pub(crate) secret: Zeroizing<String>,
    /// Whose.
    pub(crate) user: String,
}

impl Accounts {
    /// Begins a session for a token or a certificate.
    ///
    /// # Errors
    /// It is not accepted, or the database does not answer.
    pub(crate) async fn begin_session(
        &self,
        evidence: &Evidence,
    ) -> Result<NewSession, AccessError> {
        let proven = self.prove(evidence).await?;
        self.begin(proven, evidence.address).await
    }

    /// Begins a session for a password.
    ///
    /// # Errors
    /// As those of a login that asks for a token.
    pub(crate) async fn begin_session_by_password(
        &self,
        user: &str,
        password: Zeroizing<String>,
        address: Option<IpAddr>,
    ) -> Result<NewSession, AccessError> {
        let principal = self.by_password(user, password, address).await?;
        let hash = principal.password_hash.clone().unwrap_or_default();
        let proven = Proven {
            principal,
            proof: SessionProof::Password(hash),
            until: None,
        };
        self.begin(proven, address).await
    }

    /// Where the browser goes to log in at an issuer.
    ///
    /// # Errors
    /// The issuer is none of the page's, or does not answer; or did not so too often from there.
    pub(crate) async fn go_to_issuer(
        &self,
        login: &BrowserLogin,
        address: Option<IpAddr>,
    ) -> Result<String, SessionError> {
        if !self.issuers.of_browsers().contains(&login.issuer.as_str()) {
            return Err(IssuerError::Unknown.into());
        }
        let from = from_issuers(address);
        self.attempts.check(from.as_deref())?;
        self.attempts.failed(from.as_deref());
        let url = self.issuers.authorization_url(login).await?;
        self.attempts.forgive(from.as_deref());
        Ok(url)
    }

    /// Begins a session for the code that an issuer gave the browser.
    ///
    /// # Errors
    /// The issuer refuses the code, or no user of the service has the identity.
    pub(crate) async fn begin_session_by_code(
        &self,
        login: &BrowserLogin,
        code: &str,
        address: Option<IpAddr>,
    ) -> Result<NewSession, SessionError> {
        let from = from_issuers(address);
        self.attempts.check(from.as_deref())?;
        self.attempts.failed(from.as_deref());
        let identity = self.issuers.redeem(login, code).await?;
        let found = self.by_identity(identity.clone(), None).await;
        let proven = match found {
            Ok(proven) if !proven.principal.disabled => proven,
            Ok(_) | Err(StoreError::NotFound) => return Err(SessionError::UnknownUser(identity)),
            Err(error) => return Err(AccessError::Store(error).into()),
        };
        self.attempts.forgive(from.as_deref());
        Ok(self.begin(proven, address).await?)
    }

    async fn begin(
        &self,
        proven: Proven,
        address: Option<IpAddr>,
    ) -> Result<NewSession, AccessError> {
        let user = proven.principal.name;
        if proven.principal.role < Role::User {
            return Err(AccessError::Agent);
        }
        let secret = secrets::new_secret(SECRET_PREFIX);
        let secret = secret.map_err(|_| StoreError::Invalid("no random bytes"))?;
        let left = proven.until.map(|until| {
            let left = until.duration_since(SystemTime::now());
            left.unwrap_or_default()
        });
        let life = SessionLife {
            whole: left.unwrap_or(LIFE.whole).min(LIFE.whole),
            ..LIFE
        };
        let hash = secrets::hash_token(&secret);
        self.store
            .add_session(&hash, &user, &proven.proof, life)
            .await?;
        self.audit_login(&user, address).await?;
        Ok(NewSession { secret, user })
    }

    /// The user of a session. `is_use`: the session is not idle.
    ///
    /// # Errors
    /// It has ended, or the database does not answer.
    pub(crate) async fn session(
        &self,
        secret: &str,
        is_use: bool,
    ) -> Result<PrincipalRecord, AccessError> {
        if !secret.starts_with(SECRET_PREFIX) || secret.len() > SECRET_BYTES_MAX {
            return Err(AccessError::Refused);
        }
        let hash = secrets::hash_token(secret);
        match self.store.session(&hash, LIFE.idle, is_use).await {
            Err(StoreError::NotFound) => Err(AccessError::Refused),
            // The role may have become another one since the login.
            Ok(session) if session.principal.role < Role::User => Err(AccessError::Refused),
            // The database does not know the settings.
            Ok(SessionRecord {
                identity: Some(name),
                ..
            }) if !self.issuers.may_prove(&name) => Err(AccessError::Refused),
            found => Ok(found?.principal),
        }
    }

    /// Ends a session.
    ///
    /// # Errors
    /// The database does not answer.
    pub(crate) async fn end_session(&self, secret: &str) -> Result<(), StoreError> {
        self.store.end_session(&secrets::hash_token(secret)).await
    }
}

/// Who is counted where a login at an issuer fails: each makes the service ask the issuer. It is
/// not the address that fails with passwords and tokens, so that neither holds the other up.
fn from_issuers(address: Option<IpAddr>) -> Option<String> {
    address.map(|address| format!("issuers from address {address}"))
}

/// Why no session begins by way of an issuer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionError {
    /// Too many failed, or the database.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The issuer.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The issuer knows the user, and the service does not.
    #[error("the issuer knows you as {0}, and no user here has this identity")]
    UnknownUser(String),
}
