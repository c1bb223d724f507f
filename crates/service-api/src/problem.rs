//! Errors of the API: problem details (RFC 9457).

use serde::{Deserialize, Serialize};

/// Media type of a [`Problem`].
pub const MEDIA_TYPE: &str = "application/problem+json";

/// Why a request was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
#[error("{title}: {detail} ({code})")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Problem {
    /// `about:blank`, or the page of the documentation that explains the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// What kind of error, the same for each of a code.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// What was wrong with this request: which field, which limit.
    pub detail: String,
    /// Stable, for programs, e.g. `invalid_url`.
    pub code: String,
    /// Where in the request, as a JSON pointer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pointer: Option<String>,
    /// Seconds after which the same request may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after: Option<u64>,
}
