//! Access tokens that an issuer gives the service for a user, and that the service renews in time.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use godwit_service_api::account::CredentialView;
use serde::{Deserialize, Serialize};
use tokio::{task::JoinSet, time::sleep};
use uuid::Uuid;
use zeroize::{Zeroize as _, Zeroizing};

use super::{CredentialError, SealError, Vault, check_endpoint, place, view};
use crate::{
    accounts::{
        Accounts,
        oidc::{IssuedTokens, IssuerError, TokenGrant},
    },
    scheduling::Board,
    store::{StoreError, model::CredentialRecord},
};

/// Kind of a credential that can be renewed.
pub(super) const KIND: &str = "issued";

/// Between two looks for tokens that end soon.
const LOOK: Duration = Duration::from_secs(2);

/// Between two attempts to renew one token.
const RETRY: Duration = Duration::from_secs(30);

/// Most renewals at a time.
const TOGETHER: u32 = 100;

/// What lies sealed in the database.
#[derive(Serialize, Deserialize)]
struct Tokens {
    issuer: String,
    access: String,
    refresh: String,
}

impl Drop for Tokens {
    fn drop(&mut self) {
        self.access.zeroize();
        self.refresh.zeroize();
    }
}

impl Vault {
    /// Stores what an issuer has granted for endpoints of a user.
    ///
    /// # Errors
    /// The pattern is none, there are too many, nothing can renew the token, or the database does
    /// not answer.
    pub async fn put_issued(
        &self,
        owner: &str,
        endpoint: &str,
        issuer: &str,
        granted: IssuedTokens,
    ) -> Result<CredentialView, CredentialError> {
        check_endpoint(endpoint)?;
        self.check_count(owner).await?;
        let no_refresh = CredentialError::Invalid("the issuer gives no refresh token for this");
        let tokens = Tokens {
            issuer: issuer.to_owned(),
            refresh: granted.refresh.ok_or(no_refresh)?.to_string(),
            access: granted.access.to_string(),
        };
        let mut record = CredentialRecord {
            id: Uuid::now_v7(),
            owner: owner.to_owned(),
            endpoint: endpoint.to_ascii_lowercase(),
            kind: KIND.to_owned(),
            sealed: Vec::new(),
            expires: Some(granted.expires),
            created: jiff::Timestamp::UNIX_EPOCH,
        };
        record.sealed = self.seal_tokens(&record, &tokens)?;
        self.store.set_credential(&record).await?;
        Ok(view(&self.store.credential(owner, record.id).await?))
    }

    fn seal_tokens(
        &self,
        record: &CredentialRecord,
        tokens: &Tokens,
    ) -> Result<Vec<u8>, CredentialError> {
        let text = serde_json::to_vec(tokens).expect("strings are JSON");
        let place = place(record.id, &record.owner);
        Ok(self.key.seal(&place, &Zeroizing::new(text))?)
    }

    fn open_tokens(&self, record: &CredentialRecord) -> Result<Tokens, CredentialError> {
        let text = self
            .key
            .open(&place(record.id, &record.owner), &record.sealed)?;
        Ok(serde_json::from_slice(&text).map_err(|_| SealError::Damaged)?)
    }
}

/// The access token of what lies sealed.
pub(super) fn access_token(text: &[u8]) -> Result<String, SealError> {
    let tokens: Tokens = serde_json::from_slice(text).map_err(|_| SealError::Damaged)?;
    Ok(tokens.access.clone())
}

/// Renews tokens of all users while this process leads: of two that show one refresh token, an
/// issuer may withdraw both.
pub struct Renewer {
    /// The credentials.
    pub vault: Vault,
    /// Whose issuers are asked.
    pub accounts: Arc<Accounts>,
    /// Tells who leads.
    pub board: Arc<Board>,
}

impl Renewer {
    /// Works until `stop`.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let renewer = Arc::new(self);
        let mut failed = HashMap::<Uuid, Instant>::new();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => return,
                () = sleep(LOOK) => {}
            }
            if !renewer.board.leads() {
                continue;
            }
            failed.retain(|_, at| at.elapsed() < RETRY);
            let due = match renewer
                .vault
                .store
                .credentials_to_renew(KIND, TOGETHER)
                .await
            {
                Ok(due) => due,
                Err(error) => {
                    tracing::warn!(%error, "credentials could not be read");
                    continue;
                }
            };
            let mut renewals = JoinSet::new();
            for record in due {
                if !failed.contains_key(&record.id) {
                    let renewer = Arc::clone(&renewer);
                    renewals.spawn(async move { (record.id, renewer.renew(record).await) });
                }
            }
            for (id, renewed) in renewals.join_all().await {
                if let Err(error) = renewed {
                    failed.insert(id, Instant::now());
                    tracing::warn!(%error, credential = %id, "a token is not renewed yet");
                }
            }
        }
    }

    async fn renew(&self, record: CredentialRecord) -> Result<(), RenewalError> {
        let mut tokens = self.vault.open_tokens(&record)?;
        let issuers = self.accounts.issuers();
        let shown = TokenGrant::Refresh(&tokens.refresh);
        let mut renewed = record.clone();
        match issuers.grant(&tokens.issuer, shown).await {
            Ok(granted) => {
                tokens.access = granted.access.to_string();
                if let Some(refresh) = granted.refresh {
                    tokens.refresh = refresh.to_string();
                }
                renewed.expires = Some(granted.expires);
                renewed.sealed = self.vault.seal_tokens(&renewed, &tokens)?;
            }
            // Jobs wait for the user when the token ends.
            Err(error @ IssuerError::Refused { .. }) => {
                tracing::warn!(%error, credential = %record.id, "a token is renewed no more");
                let token = godwit_service_api::agent::Secret::Token(tokens.access.clone());
                renewed.kind = super::kind(&token).to_owned();
                renewed.sealed = self.vault.seal_secret(record.id, &record.owner, &token)?;
            }
            Err(error) => return Err(error.into()),
        }
        match self
            .vault
            .store
            .renew_credential(&renewed, record.created)
            .await
        {
            // The user has removed or replaced it meanwhile.
            Ok(()) | Err(StoreError::NotFound) => Ok(()),
            Err(error) => Err(CredentialError::from(error).into()),
        }
    }
}

/// Why a token is not renewed.
#[derive(Debug, thiserror::Error)]
enum RenewalError {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(transparent)]
    Issuer(#[from] IssuerError),
}
