//! What handlers take from a request: who asks, parts of the URL, bodies. Every failure is a
//! problem of ours.

use std::{sync::Arc, time::Duration};

use axum::{
    body::{Body, Bytes},
    extract::{FromRequest, FromRequestParts, Path, Query, Request},
    http::{HeaderMap, header, request::Parts},
};
use godwit_service_api::site::Role;
use serde::de::DeserializeOwned;
use tokio_stream::StreamExt as _;
use uuid::Uuid;
use zeroize::Zeroizing;

use super::Api;
use crate::{
    accounts::Evidence,
    problem::{Answer, ApiError, Kind},
    store::model::PrincipalRecord,
};

/// Longest body that is not a stream of lines.
pub(crate) const BODY_BYTES_MAX: usize = 8 << 20;

/// Longest wait for the next part of a body.
const BODY_WAIT: Duration = Duration::from_secs(30);

/// Longest wait for all of a body that is not a stream of lines.
const BODY_TIME_MAX: Duration = Duration::from_secs(300);

/// A user who asks within the limits of requests.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) PrincipalRecord);

impl Caller {
    pub(crate) fn name(&self) -> &str {
        &self.0.name
    }

    pub(crate) fn groups(&self) -> &[String] {
        &self.0.groups
    }

    pub(crate) fn is_operator(&self) -> bool {
        self.0.role == Role::Operator
    }
}

impl FromRequestParts<Arc<Api>> for Caller {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let principal = api.accounts.authenticate(&Evidence::of(parts)).await?;
        if principal.role < Role::User {
            return Err(ApiError::new(
                Kind::Forbidden,
                "this is for users, not for agents",
            ));
        }
        api.limits.take_request(&principal.name)?;
        Ok(Caller(principal))
    }
}

/// An operator.
#[derive(Clone, Debug)]
pub(super) struct Operator(pub(super) PrincipalRecord);

impl FromRequestParts<Arc<Api>> for Operator {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let caller = Caller::from_request_parts(parts, api).await?;
        match caller.is_operator() {
            true => Ok(Operator(caller.0)),
            false => Err(ApiError::new(Kind::Forbidden, "this is for operators")),
        }
    }
}

/// An id in the path. One that is none names nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Id(pub(super) Uuid);

impl FromRequestParts<Arc<Api>> for Id {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let path = Path::<Uuid>::from_request_parts(parts, api).await;
        path.map(|Path(id)| Id(id))
            .map_err(|_| ApiError::not_found())
    }
}

/// A name in the path.
#[derive(Clone, Debug)]
pub(super) struct Name(pub(super) String);

impl FromRequestParts<Arc<Api>> for Name {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<Api>) -> Answer<Self> {
        let path = Path::<String>::from_request_parts(parts, api).await;
        path.map(|Path(name)| Name(name))
            .map_err(|_| ApiError::not_found())
    }
}

/// The query of the URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequestParts<Arc<Api>> for Asked<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &Arc<Api>) -> Answer<Self> {
        match Query::try_from_uri(&parts.uri) {
            Ok(Query(asked)) => Ok(Asked(asked)),
            Err(error) => Err(ApiError::new(Kind::Query, error.body_text())),
        }
    }
}

/// A body as JSON.
pub(super) struct Json<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for Json<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<Api>) -> Answer<Self> {
        let body = json_body(request).await?;
        let parsed = serde_json::from_slice(&body);
        parsed
            .map(Json)
            .map_err(|error| ApiError::new(Kind::Body, error.to_string()))
    }
}

/// A body as JSON that holds a secret: errors say where it is wrong, not what is there.
pub(super) struct SecretJson<T>(pub(super) T);

impl<T: DeserializeOwned> FromRequest<Arc<Api>> for SecretJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, _: &Arc<Api>) -> Answer<Self> {
        let body = Zeroizing::new(json_body(request).await?);
        serde_json::from_slice(&body)
            .map(SecretJson)
            .map_err(|error| {
                let (line, column) = (error.line(), error.column());
                let detail = format!("the JSON is wrong at line {line}, column {column}");
                ApiError::new(Kind::Body, detail)
            })
    }
}

async fn json_body(request: Request) -> Answer<Vec<u8>> {
    if media_type(request.headers()) != "application/json" {
        return Err(ApiError::new(Kind::MediaType, "send application/json"));
    }
    whole(request.into_body(), BODY_BYTES_MAX).await
}

/// The media type of a body in lower case, without its parameters.
pub(super) fn media_type(headers: &HeaderMap) -> String {
    let value = headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok());
    let media = value
        .and_then(|value| value.split(';').next())
        .unwrap_or_default();
    media.trim().to_ascii_lowercase()
}

/// All of a body, of at most so many bytes.
pub(crate) async fn whole(body: Body, bytes_max: usize) -> Answer<Vec<u8>> {
    let mut parts = BodyParts::new(body);
    let read = async {
        let mut bytes = Vec::new();
        while let Some(part) = parts.next().await? {
            if bytes.len() + part.len() > bytes_max {
                let detail = format!("at most {bytes_max} bytes; send long lists as lines");
                return Err(ApiError::new(Kind::TooLarge, detail));
            }
            bytes.extend_from_slice(&part);
        }
        Ok(bytes)
    };
    let late = || Err(ApiError::new(Kind::Timeout, "the body takes too long"));
    tokio::time::timeout(BODY_TIME_MAX, read)
        .await
        .unwrap_or_else(|_| late())
}

/// A body part by part, each of which must come in time.
pub(super) struct BodyParts(axum::body::BodyDataStream);

impl BodyParts {
    pub(super) fn new(body: Body) -> Self {
        Self(body.into_data_stream())
    }

    pub(super) async fn next(&mut self) -> Answer<Option<Bytes>> {
        match tokio::time::timeout(BODY_WAIT, self.0.next()).await {
            Ok(Some(Ok(part))) => Ok(Some(part)),
            Ok(Some(Err(_))) => Err(ApiError::new(Kind::Body, "the body broke off")),
            Ok(None) => Ok(None),
            Err(_) => Err(ApiError::new(Kind::Timeout, "the body stopped")),
        }
    }
}
