//! Delegation of a proxy to the service, as gridsite has it.
//!
//! The service makes a key and a request, the user's client signs a proxy for it, and the service
//! puts both together: no key crosses the network. The key waits, sealed, in the database, since
//! the second request may come to another process.

use std::time::SystemTime;

use godwit_gsi::cert::{
    Credential, credential::certificates_from_pem, key::KeyKind, proxy::DelegationRequest,
};
use godwit_service_api::{
    account::{CredentialRequest, CredentialView, DelegationView},
    agent::Secret,
};
use openssl::pkey::PKey;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{CredentialError, SECRET_BYTES_MAX, Vault, named_id, view};
use crate::store::StoreError;

/// Endpoints that a delegated proxy is for: those that ask for one.
pub(crate) const ENDPOINTS: &str = "gsiftp://*,https://*,davs://*";

/// What clients of FTS sign: they know no other keys.
const KEY: KeyKind = KeyKind::Rsa(2048);

/// The credential that a user's delegated proxy is: each delegation replaces the one before.
pub(super) fn credential_id(owner: &str) -> Uuid {
    named_id(&format!("delegated proxy of {owner}"))
}

fn place(owner: &str) -> String {
    format!("delegation:{owner}")
}

impl Vault {
    /// What a user has delegated.
    ///
    /// # Errors
    /// The database does not answer.
    pub async fn delegated(&self, owner: &str) -> Result<DelegationView, StoreError> {
        let now = self.store.now().await?;
        let expires = match self.store.credential(owner, credential_id(owner)).await {
            Ok(record) => record.expires.filter(|expires| *expires > now),
            Err(StoreError::NotFound) => None,
            Err(error) => return Err(error),
        };
        Ok(DelegationView { expires })
    }

    /// The id of the credential that a user's delegated proxy is, where there is one.
    pub fn delegated_id(&self, owner: &str) -> Uuid {
        credential_id(owner)
    }

    /// A request for a proxy (PKCS#10, PEM), the same one until its proxy has come.
    ///
    /// # Errors
    /// No key can be made or sealed, or the database does not answer.
    pub async fn request_delegation(&self, owner: &str) -> Result<String, CredentialError> {
        let key = match self.delegation_key(owner).await? {
            Some(key) => key,
            None => {
                let made = tokio::task::spawn_blocking(|| {
                    let key = KEY.generate()?.private_key_to_pem_pkcs8()?;
                    Ok::<_, godwit_gsi::cert::CredentialError>(Zeroizing::new(key))
                });
                let made = made.await.map_err(|_| NO_KEY)?.map_err(|_| NO_KEY)?;
                let sealed = self.key.seal(&place(owner), &made)?;
                self.store.add_delegation(owner, &sealed).await?;
                // Another request may have been quicker.
                self.delegation_key(owner).await?.ok_or(NO_KEY)?
            }
        };
        pending(&key)?.to_pem().map_err(|_| NO_KEY)
    }

    /// Takes the proxy that was signed for the request, followed by the chain of its issuer (PEM).
    ///
    /// # Errors
    /// It is none for this request, nothing was requested, or the database does not answer.
    pub async fn take_delegation(
        &self,
        owner: &str,
        chain: &str,
    ) -> Result<CredentialView, CredentialError> {
        let invalid = |why| Err(CredentialError::Invalid(why));
        if chain.len() > SECRET_BYTES_MAX {
            return invalid("the chain is too long");
        }
        let Some(key) = self.delegation_key(owner).await? else {
            return invalid("no proxy was requested; ask for a request first");
        };
        let certificates = certificates_from_pem(chain.as_bytes()).map_err(|_| NO_PROXY)?;
        let Some((proxy, above)) = certificates.split_first() else {
            return Err(NO_PROXY);
        };
        if !proxy.extends_issuer() {
            return invalid("the subject of a proxy is its issuer's and one name more");
        }
        let proxy = proxy.to_der().map_err(|_| NO_PROXY)?;
        let credential: Credential =
            (pending(&key)?.finish(&proxy, above)).map_err(|_| NO_PROXY)?;
        if credential.not_after() <= SystemTime::now() {
            return invalid("the proxy has expired");
        }
        let pem = Zeroizing::new(credential.to_pem().map_err(|_| NO_PROXY)?);
        let pem = std::str::from_utf8(&pem).map_err(|_| NO_PROXY)?;
        let request = CredentialRequest {
            endpoint: ENDPOINTS.to_owned(),
            secret: Secret::Proxy(pem.to_owned()),
            expires: None,
        };
        let record = self.sealed(owner, credential_id(owner), &request)?;
        self.store.set_credential(&record).await?;
        self.store.remove_delegation(owner).await?;
        Ok(view(&self.store.credential(owner, record.id).await?))
    }

    /// Forgets what a user has delegated, and what was requested.
    ///
    /// # Errors
    /// Nothing was delegated, or the database does not answer.
    pub async fn remove_delegation(&self, owner: &str) -> Result<(), StoreError> {
        self.store.remove_delegation(owner).await?;
        self.store
            .remove_credential(owner, credential_id(owner))
            .await
    }

    async fn delegation_key(
        &self,
        owner: &str,
    ) -> Result<Option<Zeroizing<Vec<u8>>>, CredentialError> {
        let Some(sealed) = self.store.delegation(owner).await? else {
            return Ok(None);
        };
        Ok(Some(self.key.open(&place(owner), &sealed)?))
    }
}

const NO_KEY: CredentialError = CredentialError::Invalid("no key could be made");

const NO_PROXY: CredentialError = CredentialError::Invalid(
    "this is no proxy for the key of the request, followed by the chain of its issuer, as PEM",
);

fn pending(key: &[u8]) -> Result<DelegationRequest, CredentialError> {
    let key = PKey::private_key_from_pem(key).map_err(|_| NO_KEY)?;
    DelegationRequest::with_key(key).map_err(|_| NO_KEY)
}
