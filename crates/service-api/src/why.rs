//! Why something waits or is slow.

use serde::{Deserialize, Serialize};

/// One reason, with a stable code.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// For programs.
    pub code: WhyCode,
    /// One line for people: which endpoint, share or agent, how much is taken and by whom.
    pub text: String,
}

/// Codes of reasons; names never change their meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum WhyCode {
    /// An endpoint's budget is taken.
    EndpointLimit,
    /// A link's budget is taken.
    LinkLimit,
    /// Others have a right to what is free.
    ShareUsed,
    /// Agents that reach both ends have no free slot.
    AgentsBusy,
    /// No agent that is alive reaches both ends, or has the labels.
    NoAgent,
    /// The user or an operator paused it.
    Paused,
    /// An operator closed an endpoint.
    Banned,
    /// An endpoint does not answer; it is tried again with one file at a time.
    EndpointDown,
    /// A credential has expired or is missing.
    CredentialExpired,
    /// A limit of the user.
    Quota,
    /// A failed file waits for its next attempt.
    RetryAt,
    /// It waits for another job.
    AfterJob,
    /// Its turn comes with the next step.
    Scheduling,
    /// It moves; what holds it back.
    LimitedBy,
}
