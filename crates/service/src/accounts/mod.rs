//! Who asks: tokens, passwords, tokens of other issuers, client certificates; and what they may do.
//!
//! # Map
//! - [`Accounts`]: from what a request shows, [`Evidence`], to a user of the database
//! - `secrets`: API tokens and passwords, made and verified
//! - `attempts`: how often logins may fail
//! - [`sessions`]: logins of browsers, which end with what they began with
//! - [`oidc`]: issuers whose tokens are taken, their keys, and tokens that they grant

mod attempts;
mod evidence;
pub mod oidc;
mod secrets;
pub mod sessions;

use std::{
    net::IpAddr,
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_service_api::{
    account::{NewToken, TokenView},
    site::Role,
};
use tokio::sync::Semaphore;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::store::{
    Store, StoreError,
    model::{PrincipalRecord, SessionProof},
};
use attempts::Attempts;
pub(crate) use evidence::is_of_another_site;
pub use evidence::{Evidence, Peer, Shown};
use oidc::Issuers;
pub use secrets::{SecretError, hash_password};

/// Verifications of passwords at a time: each takes 19 MiB.
const VERIFICATIONS_MAX: usize = 2;

/// Longest name of a user and longest password that are looked at.
const USER_BYTES_MAX: usize = 200;
const PASSWORD_BYTES_MAX: usize = 1024;

/// How long a token from a login by password lasts.
const LOGIN_LIFETIME: Duration = Duration::from_secs(12 * 3600);

/// Why a sender is refused.
#[derive(Debug, thiserror::Error)]
pub enum AccessError {
    /// Nothing was shown.
    #[error("this needs a token (Authorization: Bearer ...), or a certificate of a user")]
    Missing,
    /// What was shown proves nothing, or the user is disabled. Says no more to the sender.
    #[error("the token, password or certificate is not accepted")]
    Refused,
    /// A certificate that proves nothing. Why is for who showed it.
    #[error("the certificate is not accepted: {0}")]
    Certificate(String),
    /// An agent is no user.
    #[error("this is for users, not for agents")]
    Agent,
    /// No user has such a name, or no password is that long.
    #[error("no name or password is that long")]
    Bounds,
    /// Too many logins failed.
    #[error("too many logins failed; try again in {0} s")]
    TooMany(u64),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A user, and what has shown that it is they.
struct Proven {
    principal: PrincipalRecord,
    proof: SessionProof,
    /// From then on it is good for nothing; `None`: the database knows.
    until: Option<SystemTime>,
}

/// The users of the service.
pub struct Accounts {
    store: Store,
    attempts: Attempts,
    issuers: Issuers,
    verifications: Arc<Semaphore>,
}

impl Accounts {
    /// Users of this database, and of these issuers.
    pub fn new(store: Store, issuers: Issuers) -> Self {
        Self {
            store,
            attempts: Attempts::default(),
            issuers,
            verifications: Arc::new(Semaphore::new(VERIFICATIONS_MAX)),
        }
    }

    /// Issuers of tokens.
    pub fn issuers(&self) -> &Issuers {
        &self.issuers
    }

    /// The user who sent this.
    ///
    /// # Errors
    /// Nothing is shown, it is not accepted, or the database does not answer.
    pub async fn authenticate(&self, evidence: &Evidence) -> Result<PrincipalRecord, AccessError> {
        self.prove(evidence).await.map(|proven| proven.principal)
    }

    /// The user who sent this, and by what.
    async fn prove(&self, evidence: &Evidence) -> Result<Proven, AccessError> {
        let found = match (&evidence.bearer, &evidence.certificate) {
            (Some(token), _) => self.by_token(token).await,
            // A connection may last longer than the certificate that it began with.
            (None, Shown::Name { until, .. }) if *until <= SystemTime::now() => {
                return Err(AccessError::Certificate("it has expired".to_owned()));
            }
            (None, Shown::Name { name, until }) => {
                self.by_identity(format!("dn:{name}"), Some(*until)).await
            }
            (None, Shown::Refused(why)) => return Err(AccessError::Certificate(why.clone())),
            (None, Shown::Nothing) => return Err(AccessError::Missing),
        };
        match found {
            Ok(proven) if !proven.principal.disabled => Ok(proven),
            found @ (Ok(_) | Err(StoreError::NotFound)) => {
                // What is right is never held up by what others behind the same address try.
                let address = evidence.address.map(|address| format!("address {address}"));
                self.attempts.failed(address.as_deref());
                self.attempts.check(address.as_deref())?;
                Err(match (found, &evidence.bearer, &evidence.certificate) {
                    (Err(_), None, Shown::Name { name, .. }) => AccessError::Certificate(format!(
                        "no user has the identity dn:{name}; an operator can give it to one"
                    )),
                    _ => AccessError::Refused,
                })
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn by_token(&self, token: &str) -> Result<Proven, StoreError> {
        if token.starts_with(secrets::TOKEN_PREFIX) {
            let hash = secrets::hash_token(token);
            return Ok(Proven {
                principal: self.store.principal_by_token(&hash).await?,
                proof: SessionProof::Token(hash.to_vec()),
                until: None,
            });
        }
        match self.issuers.verified(token).await {
            Ok((identity, until)) => self.by_identity(identity, Some(until)).await,
            Err(error) => {
                tracing::info!(%error, "a token was refused");
                Err(StoreError::NotFound)
            }
        }
    }

    async fn by_identity(
        &self,
        identity: String,
        until: Option<SystemTime>,
    ) -> Result<Proven, StoreError> {
        Ok(Proven {
            principal: self.store.principal_by_identity(&identity).await?,
            proof: SessionProof::Identity(identity),
            until,
        })
    }

    /// A token for a password.
    ///
    /// # Errors
    /// It is wrong, logins of this user or from this address failed too often, or the database does
    /// not answer.
    pub async fn login(
        &self,
        user: &str,
        password: Zeroizing<String>,
        address: Option<IpAddr>,
    ) -> Result<NewToken, AccessError> {
        let principal = self.by_password(user, password, address).await?;
        let token = self
            .new_token(&principal.name, "login", Some(LOGIN_LIFETIME))
            .await?;
        self.audit_login(user, address).await?;
        Ok(token)
    }

    async fn audit_login(&self, user: &str, address: Option<IpAddr>) -> Result<(), StoreError> {
        let from = address.map(|address| format!("address {address}"));
        let from = from.unwrap_or_default();
        self.store.audit(user, "login", user, &from).await
    }

    /// The user of a password.
    async fn by_password(
        &self,
        user: &str,
        password: Zeroizing<String>,
        address: Option<IpAddr>,
    ) -> Result<PrincipalRecord, AccessError> {
        // What is longer is neither remembered nor written into the audit.
        let is_user = (1..=USER_BYTES_MAX).contains(&user.len());
        let is_user = is_user && !user.chars().any(char::is_control);
        if !is_user || password.len() > PASSWORD_BYTES_MAX {
            return Err(AccessError::Bounds);
        }
        let from = address.map(|address| format!("address {address}"));
        let name = format!("user {user}");
        self.attempts.check(from.as_deref())?;
        self.attempts.check(Some(&name))?;
        // Before the password is verified: many logins at the same time are no way round the limit.
        self.attempts.failed(from.as_deref());
        self.attempts.failed(Some(&name));
        let principal = match self.store.principal(user).await {
            Ok(principal) => Some(principal),
            Err(StoreError::NotFound) => None,
            Err(error) => return Err(error.into()),
        };
        let principal = principal.filter(|principal| !principal.disabled);
        let hash = principal
            .as_ref()
            .and_then(|principal| principal.password_hash.clone());
        let is_right = self.verify(hash, password).await;
        if is_right {
            self.attempts.forgive(from.as_deref());
            self.attempts.forgive(Some(&name));
        }
        let Some(principal) = principal.filter(|_| is_right) else {
            self.store
                .audit(user, "login.failed", user, from.as_deref().unwrap_or(""))
                .await?;
            return Err(AccessError::Refused);
        };
        Ok(principal)
    }

    /// Takes as long for a user without a password, or one who does not exist.
    async fn verify(&self, hash: Option<String>, password: Zeroizing<String>) -> bool {
        let permit = Arc::clone(&self.verifications).acquire_owned().await;
        let verified = tokio::task::spawn_blocking(move || {
            let is_right = secrets::verify_password(hash.as_deref(), &password);
            drop(permit);
            is_right
        });
        verified.await.unwrap_or(false)
    }

    /// Makes a token of a user.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn new_token(
        &self,
        user: &str,
        label: &str,
        lifetime: Option<Duration>,
    ) -> Result<NewToken, StoreError> {
        let token = secrets::new_token().map_err(|_| StoreError::Invalid("no random bytes"))?;
        let (id, created) = (Uuid::now_v7(), self.store.now().await?);
        let expires = lifetime.and_then(|lifetime| created.checked_add(lifetime).ok());
        let hash = secrets::hash_token(&token);
        self.store
            .add_token(id, user, &hash, label, expires)
            .await?;
        Ok(NewToken {
            token: token.to_string(),
            view: TokenView {
                id,
                user: user.to_owned(),
                label: label.to_owned(),
                created,
                expires,
            },
        })
    }

    /// Makes sure that a user exists who has at least this role.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn ensure(&self, name: &str, role: Role) -> Result<(), StoreError> {
        match self.store.principal(name).await {
            Ok(principal) if principal.role >= role && !principal.disabled => Ok(()),
            Ok(mut principal) => {
                principal.role = principal.role.max(role);
                principal.disabled = false;
                self.store.set_principal(&principal).await
            }
            Err(StoreError::NotFound) => {
                let principal = PrincipalRecord {
                    name: name.to_owned(),
                    role,
                    ..PrincipalRecord::default()
                };
                self.store.set_principal(&principal).await
            }
            Err(error) => Err(error),
        }
    }
}
