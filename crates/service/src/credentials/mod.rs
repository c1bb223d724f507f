//! Credentials of users for endpoints: what they are, and how they lie in the database.
//!
//! # Map
//! - [`Vault`]: stores them sealed, shows all but the secret, opens them for a unit
//! - [`delegation`]: a proxy that the user's client signs for a key of the service
//! - [`issued`]: tokens of issuers, which the service renews
//! - [`sealing`]: envelope encryption with a key that lies outside the database

pub mod delegation;
pub mod issued;
pub mod sealing;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use godwit_scheduler::matches;
use godwit_service_api::{
    account::{CredentialRequest, CredentialView, WebhookKey},
    agent::{BucketKeys, GrantedCredential, Secret},
};
use jiff::Timestamp;
use openssl::{asn1::Asn1Time, pkey::PKey, sha::sha1, x509::X509};
use parking_lot::Mutex;
use ring::rand::{SecureRandom as _, SystemRandom};
use uuid::Uuid;
use zeroize::Zeroizing;

use self::sealing::{SealError, SealingKey};
use crate::store::{Store, StoreError, model::CredentialRecord};

/// Longest secret.
const SECRET_BYTES_MAX: usize = 64 << 10;

/// Bytes of a key for signatures of webhooks.
const WEBHOOK_KEY_BYTES: usize = 32;

/// Longest pattern of endpoints.
const PATTERN_BYTES_MAX: usize = 300;

/// Most credentials of a user.
const CREDENTIALS_MAX: usize = 1000;

/// Kind of those that are for buckets.
const KEYS: &str = "keys";

/// Between two looks whether credentials were renewed.
const LATEST_LIFE: Duration = Duration::from_secs(1);

/// Why a credential cannot be stored or opened. Messages hold no part of it.
#[derive(Debug, thiserror::Error)]
pub enum CredentialError {
    /// It is none.
    #[error("{0}")]
    Invalid(&'static str),
    /// It cannot be sealed or opened.
    #[error(transparent)]
    Seal(#[from] SealError),
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Credentials of all users.
#[derive(Clone)]
pub struct Vault {
    store: Store,
    key: Arc<SealingKey>,
    latest: Arc<Mutex<Option<Look>>>,
}

/// When it was made, and the latest credential of then.
type Look = (Instant, Option<Timestamp>);

impl Vault {
    /// With the key of this installation.
    pub fn new(store: Store, key: SealingKey) -> Self {
        Self {
            store,
            key: Arc::new(key),
            latest: Arc::default(),
        }
    }

    /// Stores a credential of a user; with an id, in place of that one.
    ///
    /// # Errors
    /// It is none, there is no such id of this user, or the database does not answer.
    pub async fn put(
        &self,
        owner: &str,
        id: Option<Uuid>,
        request: &CredentialRequest,
    ) -> Result<CredentialView, CredentialError> {
        match id {
            Some(id) => drop(self.store.credential(owner, id).await?),
            None => self.check_count(owner).await?,
        }
        let record = self.sealed(owner, id.unwrap_or_else(Uuid::now_v7), request)?;
        self.store.set_credential(&record).await?;
        Ok(view(&self.store.credential(owner, record.id).await?))
    }

    async fn check_count(&self, owner: &str) -> Result<(), CredentialError> {
        match self.store.credentials(owner).await?.len() {
            0..CREDENTIALS_MAX => Ok(()),
            _ => Err(CredentialError::Invalid("there are too many credentials")),
        }
    }

    fn seal_secret(
        &self,
        id: Uuid,
        owner: &str,
        secret: &Secret,
    ) -> Result<Vec<u8>, CredentialError> {
        let text = serde_json::to_vec(secret);
        let text = Zeroizing::new(text.map_err(|_| CredentialError::Invalid("no secret"))?);
        Ok(self.key.seal(&place(id, owner), &text)?)
    }

    /// A credential as the database has it.
    fn sealed(
        &self,
        owner: &str,
        id: Uuid,
        request: &CredentialRequest,
    ) -> Result<CredentialRecord, CredentialError> {
        let expires = check(request)?;
        Ok(CredentialRecord {
            id,
            owner: owner.to_owned(),
            endpoint: request.endpoint.to_ascii_lowercase(),
            kind: kind(&request.secret).to_owned(),
            sealed: self.seal_secret(id, owner, &request.secret)?,
            expires,
            created: Timestamp::UNIX_EPOCH,
        })
    }

    /// Stores the token of a user for an endpoint, in place of the one before.
    ///
    /// # Errors
    /// It is none, the user has too many credentials, or the database does not answer.
    pub async fn put_token(
        &self,
        owner: &str,
        endpoint: &str,
        token: String,
        expires: Timestamp,
    ) -> Result<(), CredentialError> {
        let id = named_id(&format!("token of {owner} for {endpoint}"));
        let others = self.store.credentials(owner).await?;
        if others.iter().filter(|record| record.id != id).count() >= CREDENTIALS_MAX {
            return Err(CredentialError::Invalid("there are too many credentials"));
        }
        let request = CredentialRequest {
            endpoint: endpoint.to_owned(),
            secret: Secret::Token(token),
            expires: Some(expires),
        };
        let record = self.sealed(owner, id, &request)?;
        Ok(self.store.set_credential(&record).await?)
    }

    /// Credentials of a user, latest first.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn list(&self, owner: &str) -> Result<Vec<CredentialView>, StoreError> {
        Ok(self
            .store
            .credentials(owner)
            .await?
            .iter()
            .map(view)
            .collect())
    }

    /// Makes a key for signatures of a user's webhooks, in place of the one before.
    ///
    /// # Errors
    /// The system gives no random bytes, or the database does not answer.
    pub async fn new_webhook_key(&self, owner: &str) -> Result<WebhookKey, CredentialError> {
        let mut key = Zeroizing::new([0; WEBHOOK_KEY_BYTES]);
        let random = SystemRandom::new();
        random.fill(&mut *key).map_err(|_| SealError::Random)?;
        let sealed = self.key.seal(&format!("webhook:{owner}"), &*key)?;
        self.store.set_webhook_key(owner, &sealed).await?;
        let key = format!("whsec_{}", BASE64_STANDARD.encode(*key));
        Ok(WebhookKey { key })
    }

    /// The key for signatures of a user's webhooks.
    ///
    /// # Errors
    /// It does not open, or the database does not answer.
    pub async fn webhook_key(
        &self,
        owner: &str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialError> {
        let sealed = self.store.webhook_key(owner).await?;
        let open = |sealed: Vec<u8>| self.key.open(&format!("webhook:{owner}"), &sealed);
        Ok(sealed.map(open).transpose()?)
    }

    /// Removes a credential of a user.
    ///
    /// # Errors
    /// There is none of this id, or the database does not answer.
    pub async fn remove(&self, owner: &str, id: Uuid) -> Result<(), StoreError> {
        self.store.remove_credential(owner, id).await
    }

    /// When the latest credential of all users was stored, by a look within the last seconds.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn latest(&self) -> Result<Option<Timestamp>, StoreError> {
        let known = *self.latest.lock();
        if let Some((at, latest)) = known
            && at.elapsed() < LATEST_LIFE
        {
            return Ok(latest);
        }
        let latest = self.store.latest_credential().await?;
        *self.latest.lock() = Some((Instant::now(), latest));
        Ok(latest)
    }

    /// What a user has for these endpoints: for each the latest that has not ended. A delegated
    /// proxy, which is for all endpoints, comes after those that the user has stored.
    ///
    /// # Errors
    /// The database does not answer, or the key of the installation is another.
    pub async fn find(
        &self,
        owner: &str,
        endpoints: &[String],
    ) -> Result<Vec<GrantedCredential>, CredentialError> {
        let records = self.store.credentials(owner).await?;
        let now = self.store.now().await?;
        let mut found = Vec::new();
        for endpoint in endpoints {
            let fitting = records.iter().filter(|record| {
                let is_good = record.expires.is_none_or(|expires| expires > now);
                // Buckets know nothing but keys.
                let is_kind = (record.kind == KEYS) == endpoint.starts_with("s3://");
                is_good && is_kind && matches(&record.endpoint, endpoint)
            });
            let delegated = delegation::credential_id(owner);
            if let Some(record) = fitting.min_by_key(|record| record.id == delegated) {
                let text = self.key.open(&place(record.id, owner), &record.sealed)?;
                let secret = match record.kind.as_str() {
                    issued::KIND => Secret::Token(issued::access_token(&text)?),
                    _ => serde_json::from_slice(&text).map_err(|_| SealError::Damaged)?,
                };
                found.push(GrantedCredential {
                    endpoint: endpoint.clone(),
                    secret,
                });
            }
        }
        Ok(found)
    }
}

/// The id of the only credential of this name.
fn named_id(name: &str) -> Uuid {
    let digest = sha1(name.as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest[..16]);
    uuid::Builder::from_custom_bytes(bytes).into_uuid()
}

/// Where a sealed secret belongs.
fn place(id: Uuid, owner: &str) -> String {
    format!("credential:{id}:{owner}")
}

fn kind(secret: &Secret) -> &'static str {
    match secret {
        Secret::Proxy(_) => "proxy",
        Secret::Token(_) => "token",
        Secret::Password { .. } => "password",
        Secret::Keys(_) => KEYS,
    }
}

fn view(record: &CredentialRecord) -> CredentialView {
    CredentialView {
        id: record.id,
        endpoint: record.endpoint.clone(),
        kind: record.kind.clone(),
        expires: record.expires,
        created: record.created,
    }
}

fn check_endpoint(pattern: &str) -> Result<(), CredentialError> {
    let is_sized = pattern.len() <= PATTERN_BYTES_MAX;
    let is_plain = pattern
        .bytes()
        .all(|byte| byte.is_ascii_graphic() && byte != b'@');
    match pattern.contains("://") && is_sized && is_plain {
        true => Ok(()),
        false => Err(CredentialError::Invalid(
            "the endpoint is a pattern over scheme://host:port",
        )),
    }
}

/// When it ends.
fn check(request: &CredentialRequest) -> Result<Option<Timestamp>, CredentialError> {
    let invalid = |why| Err(CredentialError::Invalid(why));
    check_endpoint(&request.endpoint)?;
    let is_line = |text: &str| !text.is_empty() && !text.chars().any(char::is_control);
    match &request.secret {
        Secret::Proxy(pem) if pem.len() > SECRET_BYTES_MAX => invalid("the proxy is too long"),
        Secret::Proxy(pem) => {
            let end = proxy_end(pem.as_bytes())?;
            Ok(Some(request.expires.map_or(end, |given| given.min(end))))
        }
        Secret::Token(token) if token.len() > SECRET_BYTES_MAX || !is_line(token) => {
            invalid("a token is one line")
        }
        Secret::Password { user, password } if !is_line(user) || !is_line(password) => {
            invalid("user and password are one line each")
        }
        Secret::Password { user, password } if user.len() + password.len() > SECRET_BYTES_MAX => {
            invalid("user and password are too long")
        }
        Secret::Keys(_) if !request.endpoint.starts_with("s3://") => {
            invalid("keys are for buckets: the endpoint is a pattern over s3://bucket")
        }
        Secret::Keys(keys) if !keys_fit(keys, is_line) => {
            invalid("keys are one line each, and the service is https://host:port")
        }
        _ => Ok(request.expires),
    }
}

fn keys_fit(keys: &BucketKeys, is_line: impl Fn(&str) -> bool) -> bool {
    let texts = [&keys.token, &keys.service, &keys.region];
    let texts = texts.into_iter().flatten();
    let mut texts = texts.chain([&keys.access, &keys.secret]);
    texts.all(|text| text.len() <= SECRET_BYTES_MAX / 8 && is_line(text))
}

/// When the first certificate of a chain ends.
fn proxy_end(pem: &[u8]) -> Result<Timestamp, CredentialError> {
    const NO_CHAIN: CredentialError =
        CredentialError::Invalid("a proxy is certificates and a key without passphrase, as PEM");
    let chain = X509::stack_from_pem(pem).map_err(|_| NO_CHAIN)?;
    // A passphrase would be asked for on a terminal.
    PKey::private_key_from_pem_callback(pem, |_| Ok(0)).map_err(|_| NO_CHAIN)?;
    let ends = chain.iter().map(|certificate| {
        let left = Asn1Time::from_unix(0).and_then(|start| start.diff(certificate.not_after()));
        let left = left.map_err(|_| NO_CHAIN)?;
        let seconds = i64::from(left.days) * 86_400 + i64::from(left.secs);
        Timestamp::from_second(seconds).map_err(|_| NO_CHAIN)
    });
    let ends = ends.collect::<Result<Vec<_>, _>>()?;
    ends.into_iter().min().ok_or(NO_CHAIN)
}
