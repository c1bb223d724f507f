//! Errors of requests, of users and of agents, as problem details (RFC 9457).

use axum::{
    Json,
    http::{HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use godwit_service_api::problem::{MEDIA_TYPE, Problem};

use crate::{
    accounts::{AccessError, oidc::IssuerError, sessions::SessionError},
    credentials::CredentialError,
    store::StoreError,
};

/// When a user who has as much as is allowed may ask again: some of it may have ended.
const QUOTA_SECONDS: u64 = 30;

/// Why a request is refused.
#[derive(Debug)]
pub(crate) struct ApiError(Box<Problem>);

/// What a handler gives.
pub(crate) type Answer<T> = Result<T, ApiError>;

/// Status, stable code and title of each kind of problem.
macro_rules! kinds {
    ($($name:ident: $status:ident $code:literal $title:literal,)*) => {
        /// Kinds of problems; each has a stable code.
        #[derive(Clone, Copy, Debug)]
        pub(crate) enum Kind { $($name,)* }

        impl Kind {
            fn parts(self) -> (StatusCode, &'static str, &'static str) {
                match self { $(Kind::$name => (StatusCode::$status, $code, $title),)* }
            }
        }
    };
}

kinds! {
    Body: BAD_REQUEST "invalid_body" "The body of the request cannot be read",
    Query: BAD_REQUEST "invalid_query" "The query of the URL is wrong",
    Cursor: BAD_REQUEST "invalid_cursor" "The cursor is not one of this list",
    Header: BAD_REQUEST "invalid_header" "A header of the request is wrong",
    Unauthenticated: UNAUTHORIZED "unauthenticated" "The service does not know who asks",
    Forbidden: FORBIDDEN "forbidden" "The user may not do this",
    NotFound: NOT_FOUND "not_found" "There is no such thing, or the user may not see it",
    Method: METHOD_NOT_ALLOWED "method_not_allowed" "This cannot be done here",
    Timeout: REQUEST_TIMEOUT "timeout" "The body of the request did not come in time",
    Conflict: CONFLICT "conflict" "Its state does not allow this",
    AgentTaken: CONFLICT "agent_taken" "Another agent of this name is alive",
    Protocol: UPGRADE_REQUIRED "protocol" "Another version of the protocol is spoken here",
    KeyReused: UNPROCESSABLE_ENTITY "idempotency_key_reused" "The key was used for another job",
    TooLarge: PAYLOAD_TOO_LARGE "too_large" "The request is too large",
    MediaType: UNSUPPORTED_MEDIA_TYPE "media_type" "The body has a type that is not accepted",
    Invalid: UNPROCESSABLE_ENTITY "invalid_value" "A value makes no sense",
    Url: UNPROCESSABLE_ENTITY "invalid_url" "A URL cannot be used",
    Scheme: UNPROCESSABLE_ENTITY "scheme_not_allowed" "URLs of this scheme are not accepted",
    Endpoint: UNPROCESSABLE_ENTITY "endpoint_not_allowed" "The service does not go there",
    UserInfo: UNPROCESSABLE_ENTITY "credentials_in_url" "URLs hold no names and passwords",
    Issuer: UNPROCESSABLE_ENTITY "issuer" "The issuer gives no token",
    IssuerAway: BAD_GATEWAY "issuer_unavailable" "The issuer of tokens does not answer as it must",
    Listing: BAD_GATEWAY "listing_failed" "The directory cannot be listed",
    NoAnswer: GATEWAY_TIMEOUT "no_answer" "No agent has looked in time",
    Quota: TOO_MANY_REQUESTS "quota" "A limit of the user is reached",
    RateLimit: TOO_MANY_REQUESTS "rate_limit" "Too many requests",
    Logins: TOO_MANY_REQUESTS "too_many_logins" "Too many logins failed",
    Internal: INTERNAL_SERVER_ERROR "internal" "The service has a bug, or its database is damaged",
    Database: SERVICE_UNAVAILABLE "database_unavailable" "The database does not answer",
    Stopping: SERVICE_UNAVAILABLE "stopping" "The service is stopping",
}

impl ApiError {
    pub(crate) fn new(kind: Kind, detail: impl Into<String>) -> Self {
        let (status, code, title) = kind.parts();
        Self(Box::new(Problem {
            kind: "about:blank".to_owned(),
            title: title.to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            code: code.to_owned(),
            pointer: None,
            retry_after: None,
        }))
    }

    pub(crate) fn not_found() -> Self {
        Self::new(Kind::NotFound, "see the id and who asks")
    }

    pub(crate) fn problem(&self) -> &Problem {
        &self.0
    }

    /// Where in the request.
    pub(crate) fn at(mut self, pointer: impl Into<String>) -> Self {
        self.0.pointer = Some(pointer.into());
        self
    }

    /// As [`ApiError::at`], before where it says already.
    pub(crate) fn below(mut self, prefix: &str) -> Self {
        let pointer = self.0.pointer.take().unwrap_or_default();
        self.0.pointer = Some(format!("{prefix}{pointer}"));
        self
    }

    pub(crate) fn after(mut self, seconds: u64) -> Self {
        self.0.retry_after = Some(seconds);
        self
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let Self(problem) = self;
        let status = StatusCode::from_u16(problem.status);
        let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut answer = (status, Json(&problem)).into_response();
        let headers = answer.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(MEDIA_TYPE));
        if let Some(seconds) = problem.retry_after {
            headers.insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        answer
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::NotFound => Self::not_found(),
            StoreError::Conflict(why) => Self::new(Kind::Conflict, why),
            StoreError::Invalid(why) => Self::new(Kind::Invalid, why),
            error @ StoreError::Quota { .. } => {
                Self::new(Kind::Quota, error.to_string()).after(QUOTA_SECONDS)
            }
            StoreError::AgentTaken => Self::new(Kind::AgentTaken, "end it, or wait for its lease"),
            error if error.is_passing() => {
                tracing::warn!(%error, "a request met a database that does not answer");
                Self::new(Kind::Database, "the same request may succeed later").after(5)
            }
            error => {
                tracing::error!(%error, "a request failed");
                Self::new(Kind::Internal, "the log of the service says more")
            }
        }
    }
}

impl From<AccessError> for ApiError {
    fn from(error: AccessError) -> Self {
        match error {
            AccessError::Missing | AccessError::Refused | AccessError::Certificate(_) => {
                Self::new(Kind::Unauthenticated, error.to_string())
            }
            AccessError::Agent => Self::new(Kind::Forbidden, error.to_string()),
            AccessError::Bounds => Self::new(Kind::Invalid, error.to_string()),
            AccessError::TooMany(seconds) => {
                Self::new(Kind::Logins, error.to_string()).after(seconds)
            }
            AccessError::Store(error) => error.into(),
        }
    }
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Access(error) => error.into(),
            SessionError::Issuer(error) => error.into(),
            error @ SessionError::UnknownUser(_) => {
                Self::new(Kind::Unauthenticated, error.to_string())
            }
        }
    }
}

impl From<CredentialError> for ApiError {
    fn from(error: CredentialError) -> Self {
        match error {
            CredentialError::Store(error) => error.into(),
            CredentialError::Invalid(why) => Self::new(Kind::Invalid, why),
            CredentialError::Seal(error) => {
                tracing::error!(%error, "a credential cannot be sealed");
                Self::new(Kind::Internal, "the log of the service says more")
            }
        }
    }
}

impl From<IssuerError> for ApiError {
    fn from(error: IssuerError) -> Self {
        let kind = match error {
            IssuerError::Unavailable { .. } => Kind::IssuerAway,
            IssuerError::Unknown
            | IssuerError::NoClient { .. }
            | IssuerError::Refused { .. }
            | IssuerError::OtherLogin { .. }
            | IssuerError::Token(_) => Kind::Issuer,
        };
        Self::new(kind, error.to_string())
    }
}
