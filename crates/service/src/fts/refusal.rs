//! Refusals as FTS3 tells them: a status, and `{"status": ..., "message": ...}`.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::json;

use crate::problem::ApiError;

/// What a client is told in place of what it asked for.
#[derive(Debug)]
pub(super) struct Refusal {
    status: StatusCode,
    /// Where it is not that of the standard.
    reason: Option<&'static str>,
    pub(super) message: String,
}

/// What a handler gives.
pub(super) type FtsResult<T> = Result<T, Refusal>;

impl Refusal {
    pub(super) fn new(status: StatusCode, message: impl Into<String>) -> Self {
        Self {
            status,
            reason: None,
            message: message.into(),
        }
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(StatusCode::BAD_REQUEST, message)
    }

    pub(super) fn not_found(message: impl Into<String>) -> Self {
        Self::new(StatusCode::NOT_FOUND, message)
    }

    pub(super) fn forbidden(message: impl Into<String>) -> Self {
        Self::new(StatusCode::FORBIDDEN, message)
    }

    /// 419: the client delegates a credential, and asks again.
    pub(super) fn needs_delegation(user: &str) -> Self {
        Self {
            status: StatusCode::from_u16(419).unwrap_or(StatusCode::UNAUTHORIZED),
            reason: Some("Authentication Timeout"),
            message: format!("No delegation found for \"{user}\""),
        }
    }

    /// Status and reason, as `404 Not Found`.
    pub(super) fn line(&self) -> String {
        let reason = self.reason.or(self.status.canonical_reason());
        format!("{} {}", self.status.as_u16(), reason.unwrap_or("Error"))
    }
}

/// A value of a submission.
pub(super) fn invalid(why: impl std::fmt::Display) -> Refusal {
    Refusal::bad_request(format!("Invalid value within the request: {why}"))
}

impl From<ApiError> for Refusal {
    fn from(error: ApiError) -> Self {
        let problem = error.problem();
        let status = StatusCode::from_u16(problem.status);
        let status = match status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR) {
            // Clients know what a bad request is, and not what cannot be processed.
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        let at = problem.pointer.as_deref().unwrap_or_default();
        let message = match at.is_empty() {
            true => format!("{}: {}", problem.title, problem.detail),
            false => format!("{}: {} (at {at})", problem.title, problem.detail),
        };
        Self::new(status, message)
    }
}

impl From<crate::store::StoreError> for Refusal {
    fn from(error: crate::store::StoreError) -> Self {
        ApiError::from(error).into()
    }
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        let body = json!({"status": self.line(), "message": self.message});
        (self.status, Json(body)).into_response()
    }
}
