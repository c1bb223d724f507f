//! Users, their tokens and their credentials.

use std::{sync::Arc, time::Duration};

use axum::{Extension, Json as JsonAnswer, extract::State, http::StatusCode};
use godwit_service_api::account::{
    CredentialRequest, CredentialView, DelegatedChain, DelegationRequest, DelegationView,
    IssuedCredentialRequest, Login, LoginIssuer, NewToken, ShownToken, TokenRequest, TokenView,
    UserRequest, UserView, WebhookKey,
};
use serde::Deserialize;
use utoipa::IntoParams;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::{
    Api,
    extract::{Asked, Caller, Id, Json, Operator, SecretJson},
    openapi::Routes,
    submit::is_plain,
};
use crate::problem::{Answer, ApiError, Kind};
use crate::{
    accounts::{Peer, SecretError, hash_password, oidc::TokenGrant},
    store::{
        StoreError,
        model::{PrincipalRecord, TokenRecord},
    },
};

/// Most groups and identities of a user.
const LIST_MAX: usize = 64;

/// Most tokens of a user.
const TOKENS_MAX: usize = 200;

/// Longest identity: a distinguished name, or an issuer and a subject.
const IDENTITY_BYTES_MAX: usize = 2048;

pub(super) fn routes(routes: &mut Routes) {
    routes
        .add::<__path_me, _, _>(me)
        .add::<__path_login, _, _>(login)
        .add::<__path_login_issuers, _, _>(login_issuers)
        .add::<__path_list_users, _, _>(list_users)
        .add::<__path_set_user, _, _>(set_user)
        .add::<__path_list_tokens, _, _>(list_tokens)
        .add::<__path_new_token, _, _>(new_token)
        .add::<__path_remove_token, _, _>(remove_token)
        .add::<__path_list_credentials, _, _>(list_credentials)
        .add::<__path_add_credential, _, _>(add_credential)
        .add::<__path_add_issued_credential, _, _>(add_issued_credential)
        .add::<__path_renew_credential, _, _>(renew_credential)
        .add::<__path_remove_credential, _, _>(remove_credential)
        .add::<__path_new_webhook_key, _, _>(new_webhook_key)
        .add::<__path_show_delegation, _, _>(show_delegation)
        .add::<__path_request_delegation, _, _>(request_delegation)
        .add::<__path_put_delegation, _, _>(put_delegation)
        .add::<__path_remove_delegation, _, _>(remove_delegation);
}

fn user_view(principal: PrincipalRecord) -> UserView {
    UserView {
        name: principal.name,
        role: principal.role,
        groups: principal.groups,
        has_password: principal.password_hash.is_some(),
        identities: principal.identities,
        disabled: principal.disabled,
        max_jobs: principal.max_jobs,
        max_files: principal.max_files,
    }
}

/// Says who asks
#[utoipa::path(
    get, path = "/api/v1/me",
    responses((status = 200, description = "The user", body = UserView)),
)]
pub(super) async fn me(Caller(principal): Caller) -> JsonAnswer<UserView> {
    JsonAnswer(user_view(principal))
}

/// Gives a token for a password
#[utoipa::path(
    post, path = "/api/v1/login", request_body = Login, security(()),
    responses((status = 201, description = "A token of twelve hours", body = NewToken)),
)]
pub(super) async fn login(
    State(api): State<Arc<Api>>,
    Extension(peer): Extension<Peer>,
    SecretJson(login): SecretJson<Login>,
) -> Answer<(StatusCode, JsonAnswer<NewToken>)> {
    let password = Zeroizing::new(login.password);
    let token = api
        .accounts
        .login(&login.user, password, peer.address)
        .await?;
    Ok((StatusCode::CREATED, JsonAnswer(token)))
}

/// Says where command lines can log in, by the device flow of OAuth
#[utoipa::path(
    get, path = "/api/v1/login/issuers", security(()),
    responses((status = 200, description = "Issuers of tokens", body = Vec<LoginIssuer>)),
)]
pub(super) async fn login_issuers(State(api): State<Arc<Api>>) -> JsonAnswer<Vec<LoginIssuer>> {
    JsonAnswer(api.accounts.issuers().logins())
}

/// Lists users
#[utoipa::path(
    get, path = "/api/v1/users",
    responses((status = 200, description = "By name", body = Vec<UserView>)),
)]
pub(super) async fn list_users(
    State(api): State<Arc<Api>>,
    Operator(_): Operator,
) -> Answer<JsonAnswer<Vec<UserView>>> {
    let users = api.store.principals().await?;
    Ok(JsonAnswer(users.into_iter().map(user_view).collect()))
}

/// Makes a user or an agent, or changes one
#[utoipa::path(
    put, path = "/api/v1/users", request_body = UserRequest,
    responses((status = 200, description = "The user as it is now", body = UserView)),
)]
pub(super) async fn set_user(
    State(api): State<Arc<Api>>,
    Operator(operator): Operator,
    SecretJson(request): SecretJson<UserRequest>,
) -> Answer<JsonAnswer<UserView>> {
    let wrong = |field: &str, why: &str| Err(ApiError::new(Kind::Invalid, why).at(field));
    if !is_plain(&request.name) || request.name.contains(['/', ' ']) {
        return wrong("/name", "at most 200 characters without blanks and slashes");
    }
    let are_plain = request
        .groups
        .iter()
        .all(|group| is_plain(group) && !group.contains('/'));
    if request.groups.len() > LIST_MAX || !are_plain {
        return wrong("/groups", "at most 64 names without slashes");
    }
    let is_identity = |name: &String| {
        let is_kind = name.starts_with("dn:/") || name.starts_with("oidc:http");
        is_kind && name.len() <= IDENTITY_BYTES_MAX && !name.chars().any(char::is_control)
    };
    if request.identities.len() > LIST_MAX || !request.identities.iter().all(is_identity) {
        return wrong("/identities", "dn:/... or oidc:ISSUER#SUBJECT");
    }
    if request.name == operator.name && request.disabled {
        return wrong("/disabled", "operators do not disable themselves");
    }
    let limits = [request.max_jobs, request.max_files];
    if limits
        .iter()
        .flatten()
        .any(|limit| i64::try_from(*limit).is_err())
    {
        return wrong("/max_files", "no limit is that large");
    }
    let password_hash = match (&request.password, api.store.principal(&request.name).await) {
        (Some(password), _) => Some(hash(Zeroizing::new(password.clone())).await?),
        (None, Ok(before)) => before.password_hash,
        (None, Err(StoreError::NotFound)) => None,
        (None, Err(error)) => return Err(error.into()),
    };
    let principal = PrincipalRecord {
        name: request.name,
        role: request.role,
        groups: request.groups,
        password_hash,
        identities: request.identities,
        disabled: request.disabled,
        max_jobs: request.max_jobs,
        max_files: request.max_files,
    };
    api.store.set_principal(&principal).await?;
    let detail = format!(
        "{:?} disabled {} groups {:?} identities {:?} password {}",
        principal.role,
        principal.disabled,
        principal.groups,
        principal.identities,
        if request.password.is_some() {
            "set"
        } else {
            "as it was"
        },
    );
    api.audit(&operator.name, "user.set", &principal.name, &detail)
        .await;
    Ok(JsonAnswer(user_view(principal)))
}

impl Api {
    /// Removes a credential of the caller.
    pub(crate) async fn remove_credential_of(&self, caller: &Caller, id: Uuid) -> Answer<()> {
        self.vault.remove(caller.name(), id).await?;
        self.audit(caller.name(), "credential.remove", &id.to_string(), "")
            .await;
        Ok(())
    }

    /// Forgets the proxy that the caller has delegated.
    pub(crate) async fn remove_delegation_of(&self, caller: &Caller) -> Answer<()> {
        self.vault.remove_delegation(caller.name()).await?;
        self.audit(caller.name(), "delegation.remove", "", "").await;
        Ok(())
    }

    /// Refuses a user from now on, or no more.
    pub(crate) async fn set_disabled(
        &self,
        who: &str,
        mut user: PrincipalRecord,
        disabled: bool,
    ) -> Answer<()> {
        user.disabled = disabled;
        self.store.set_principal(&user).await?;
        let detail = format!("disabled {disabled}");
        self.audit(who, "user.set", &user.name, &detail).await;
        Ok(())
    }
}

async fn hash(password: Zeroizing<String>) -> Answer<String> {
    let hashed = tokio::task::spawn_blocking(move || hash_password(&password)).await;
    match hashed.unwrap_or(Err(SecretError::Hash)) {
        Ok(hash) => Ok(hash),
        Err(error @ SecretError::Length) => {
            Err(ApiError::new(Kind::Invalid, error.to_string()).at("/password"))
        }
        Err(error) => {
            tracing::error!(%error, "a password cannot be hashed");
            Err(ApiError::new(
                Kind::Internal,
                "the log of the service says more",
            ))
        }
    }
}

#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct TokensQuery {
    /// Whose, for operators
    user: Option<String>,
}

/// Whose tokens are meant: one's own, or, for operators, those of others.
fn whose(caller: &Caller, user: Option<String>) -> Answer<String> {
    match user {
        Some(user) if user != caller.name() && !caller.is_operator() => {
            Err(ApiError::new(Kind::Forbidden, "this is for operators"))
        }
        Some(user) => Ok(user),
        None => Ok(caller.name().to_owned()),
    }
}

fn token_view(token: TokenRecord) -> TokenView {
    TokenView {
        id: token.id,
        user: token.principal,
        label: token.label,
        created: token.created,
        expires: token.expires,
    }
}

/// Lists tokens, without their text
#[utoipa::path(
    get, path = "/api/v1/tokens", params(TokensQuery),
    responses((status = 200, description = "Earliest first", body = Vec<TokenView>)),
)]
pub(super) async fn list_tokens(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Asked(asked): Asked<TokensQuery>,
) -> Answer<JsonAnswer<Vec<TokenView>>> {
    let tokens = api.store.tokens(&whose(&caller, asked.user)?).await?;
    Ok(JsonAnswer(tokens.into_iter().map(token_view).collect()))
}

/// Makes a token; only this answer has its text
#[utoipa::path(
    post, path = "/api/v1/tokens", request_body = TokenRequest,
    responses((status = 201, description = "The token", body = NewToken)),
)]
pub(super) async fn new_token(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(request): Json<TokenRequest>,
) -> Answer<(StatusCode, JsonAnswer<NewToken>)> {
    let user = whose(&caller, request.user)?;
    if !is_plain(&request.label) {
        let error = ApiError::new(Kind::Invalid, "what it is for, at most 200 characters");
        return Err(error.at("/label"));
    }
    // A century is as good as for ever, and a time that databases and clocks can hold.
    let lifetime = request.lifetime_seconds;
    if !lifetime.is_none_or(|seconds| (1..=3_155_760_000).contains(&seconds)) {
        let error = ApiError::new(Kind::Invalid, "1 second to 100 years");
        return Err(error.at("/lifetime_seconds"));
    }
    api.store.principal(&user).await?;
    if api.store.tokens(&user).await?.len() >= TOKENS_MAX {
        return Err(ApiError::new(
            Kind::Quota,
            "remove tokens that are not used any more",
        ));
    }
    let lifetime = lifetime.map(Duration::from_secs);
    let token = api
        .accounts
        .new_token(&user, &request.label, lifetime)
        .await?;
    let subject = format!("{user} {}", token.view.id);
    api.audit(caller.name(), "token.new", &subject, &request.label)
        .await;
    Ok((StatusCode::CREATED, JsonAnswer(token)))
}

/// Removes a token
#[utoipa::path(
    delete, path = "/api/v1/tokens/{id}",
    params(("id" = Uuid, Path, description = "Token"), TokensQuery),
    responses((status = 204, description = "It is not accepted any more")),
)]
pub(super) async fn remove_token(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    Asked(asked): Asked<TokensQuery>,
) -> Answer<StatusCode> {
    let user = whose(&caller, asked.user)?;
    api.store.remove_token(&user, id).await?;
    api.audit(caller.name(), "token.remove", &format!("{user} {id}"), "")
        .await;
    Ok(StatusCode::NO_CONTENT)
}

/// Lists one's credentials, without their secrets
#[utoipa::path(
    get, path = "/api/v1/credentials",
    responses((status = 200, description = "Latest first", body = Vec<CredentialView>)),
)]
pub(super) async fn list_credentials(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<JsonAnswer<Vec<CredentialView>>> {
    Ok(JsonAnswer(api.vault.list(caller.name()).await?))
}

/// Stores a credential for endpoints
#[utoipa::path(
    post, path = "/api/v1/credentials", request_body = CredentialRequest,
    responses((status = 201, description = "It is stored", body = CredentialView)),
)]
pub(super) async fn add_credential(
    State(api): State<Arc<Api>>,
    caller: Caller,
    SecretJson(request): SecretJson<CredentialRequest>,
) -> Answer<(StatusCode, JsonAnswer<CredentialView>)> {
    api.policy.check_keys(&request.secret)?;
    let view = api.vault.put(caller.name(), None, &request).await?;
    api.audit(
        caller.name(),
        "credential.add",
        &view.id.to_string(),
        &view.endpoint,
    )
    .await;
    Ok((StatusCode::CREATED, JsonAnswer(view)))
}

/// Has an issuer give a token for endpoints, which the service renews
#[utoipa::path(
    post, path = "/api/v1/credentials/issued", request_body = IssuedCredentialRequest,
    responses((status = 201, description = "It is stored", body = CredentialView)),
)]
pub(super) async fn add_issued_credential(
    State(api): State<Arc<Api>>,
    caller: Caller,
    SecretJson(request): SecretJson<IssuedCredentialRequest>,
) -> Answer<(StatusCode, JsonAnswer<CredentialView>)> {
    let IssuedCredentialRequest {
        endpoint,
        issuer,
        shown,
    } = request;
    let shown = match &shown {
        ShownToken::RefreshToken(token) => TokenGrant::Refresh(token),
        ShownToken::SubjectToken(token) => TokenGrant::Exchange(token),
    };
    let granted = api.accounts.issuers().grant(&issuer, shown).await?;
    let stored = api
        .vault
        .put_issued(caller.name(), &endpoint, &issuer, granted);
    let view = stored.await?;
    let id = view.id.to_string();
    api.audit(caller.name(), "credential.add", &id, &view.endpoint)
        .await;
    Ok((StatusCode::CREATED, JsonAnswer(view)))
}

/// Renews a credential
#[utoipa::path(
    put, path = "/api/v1/credentials/{id}", request_body = CredentialRequest,
    params(("id" = Uuid, Path, description = "Credential")),
    responses((status = 200, description = "It is stored", body = CredentialView)),
)]
pub(super) async fn renew_credential(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
    SecretJson(request): SecretJson<CredentialRequest>,
) -> Answer<JsonAnswer<CredentialView>> {
    api.policy.check_keys(&request.secret)?;
    let view = api.vault.put(caller.name(), Some(id), &request).await?;
    api.audit(
        caller.name(),
        "credential.renew",
        &id.to_string(),
        &view.endpoint,
    )
    .await;
    Ok(JsonAnswer(view))
}

/// Removes a credential
#[utoipa::path(
    delete, path = "/api/v1/credentials/{id}",
    params(("id" = Uuid, Path, description = "Credential")),
    responses((status = 204, description = "It is removed")),
)]
pub(super) async fn remove_credential(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Id(id): Id,
) -> Answer<StatusCode> {
    api.remove_credential_of(&caller, id).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Says until when the proxy is good that one has delegated
#[utoipa::path(
    get, path = "/api/v1/delegation",
    responses((status = 200, description = "Its end, if there is one", body = DelegationView)),
)]
pub(super) async fn show_delegation(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<JsonAnswer<DelegationView>> {
    Ok(JsonAnswer(api.vault.delegated(caller.name()).await?))
}

/// Asks for a proxy: makes a key, whose certificate the user's client signs
#[utoipa::path(
    post, path = "/api/v1/delegation/request",
    responses((status = 200, description = "The same until signed", body = DelegationRequest)),
)]
pub(super) async fn request_delegation(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<JsonAnswer<DelegationRequest>> {
    let request = api.vault.request_delegation(caller.name()).await?;
    Ok(JsonAnswer(DelegationRequest { request }))
}

/// Takes the proxy that was signed for the request
#[utoipa::path(
    put, path = "/api/v1/delegation", request_body = DelegatedChain,
    responses((status = 200, description = "It is stored", body = CredentialView)),
)]
pub(super) async fn put_delegation(
    State(api): State<Arc<Api>>,
    caller: Caller,
    Json(signed): Json<DelegatedChain>,
) -> Answer<JsonAnswer<CredentialView>> {
    let view = api
        .vault
        .take_delegation(caller.name(), &signed.chain)
        .await?;
    let until = view.expires.map(|end| end.to_string());
    let detail = until.unwrap_or_default();
    api.audit(caller.name(), "delegation", &view.id.to_string(), &detail)
        .await;
    Ok(JsonAnswer(view))
}

/// Forgets the delegated proxy
#[utoipa::path(
    delete, path = "/api/v1/delegation",
    responses((status = 204, description = "It is removed")),
)]
pub(super) async fn remove_delegation(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<StatusCode> {
    api.remove_delegation_of(&caller).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Makes the key that one's webhooks are signed with, in place of the one before
#[utoipa::path(
    post, path = "/api/v1/webhook-key",
    responses((status = 201, description = "Only this answer has it", body = WebhookKey)),
)]
pub(super) async fn new_webhook_key(
    State(api): State<Arc<Api>>,
    caller: Caller,
) -> Answer<(StatusCode, JsonAnswer<WebhookKey>)> {
    let key = api.vault.new_webhook_key(caller.name()).await?;
    api.audit(caller.name(), "webhook.key", "", "").await;
    Ok((StatusCode::CREATED, JsonAnswer(key)))
}
