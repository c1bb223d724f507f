//! Delegation of a proxy under the paths that clients of FTS3 and gridsite know.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, Request, State},
    http::{HeaderName, StatusCode, header},
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

use super::{
    identity::Identity,
    refusal::{FtsResult, Refusal},
    views,
};
use crate::{
    api::{Api, BODY_BYTES_MAX, whole},
    credentials::CredentialError,
    problem::ApiError,
};

/// With the request for a proxy.
const DELEGATION_ID: HeaderName = HeaderName::from_static("x-delegation-id");

fn check_own(identity: &Identity, id: &str) -> FtsResult<()> {
    match id == identity.delegation_id() {
        true => Ok(()),
        false => Err(Refusal::forbidden(
            "The requested ID and the credentials ID do not match",
        )),
    }
}

/// `GET /delegation/{id}`: until when what was delegated is good; null where nothing is.
pub(super) async fn show(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
) -> FtsResult<Json<Value>> {
    check_own(&identity, &id)?;
    let delegated = api.vault().delegated(identity.caller.name()).await?;
    Ok(Json(match delegated.expires {
        Some(expires) => json!({"termination_time": views::time(expires), "voms_attrs": []}),
        None => Value::Null,
    }))
}

/// `GET /delegation/{id}/request`: PKCS#10 in PEM, the same until its proxy has come.
pub(super) async fn request(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
) -> FtsResult<Response> {
    check_own(&identity, &id)?;
    let asked = api.vault().request_delegation(identity.caller.name()).await;
    let asked = asked.map_err(ApiError::from)?;
    let headers = [
        (header::CONTENT_TYPE, "text/plain; charset=UTF-8".to_owned()),
        (DELEGATION_ID, id),
    ];
    Ok((headers, asked).into_response())
}

/// `PUT` or `POST /delegation/{id}/credential`: the proxy, followed by the chain of its issuer.
pub(super) async fn put(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
    request: Request,
) -> FtsResult<StatusCode> {
    check_own(&identity, &id)?;
    let body = whole(request.into_body(), BODY_BYTES_MAX).await?;
    let malformed = |why: &str| {
        Refusal::bad_request(format!(
            "Could not process the proxy: Malformed proxy: {why}"
        ))
    };
    let chain = std::str::from_utf8(&body).map_err(|_| malformed("it is no PEM"))?;
    let user = identity.caller.name();
    let view = match api.vault().take_delegation(user, chain).await {
        Ok(view) => view,
        Err(CredentialError::Invalid(why)) => return Err(malformed(why)),
        Err(error) => return Err(ApiError::from(error).into()),
    };
    let until = view.expires.map(views::time).unwrap_or_default();
    api.audit(user, "delegation", &view.id.to_string(), &until)
        .await;
    Ok(StatusCode::CREATED)
}

/// `DELETE /delegation/{id}`
pub(super) async fn remove(
    State(api): State<Arc<Api>>,
    identity: Identity,
    Path(id): Path<String>,
) -> FtsResult<StatusCode> {
    check_own(&identity, &id)?;
    let user = identity.caller.name();
    match api.vault().remove_delegation(user).await {
        Ok(()) => {}
        Err(crate::store::StoreError::NotFound) => {
            return Err(Refusal::not_found("Delegated credentials not found"));
        }
        Err(error) => return Err(error.into()),
    }
    api.audit(user, "delegation.remove", "", "").await;
    Ok(StatusCode::NO_CONTENT)
}
