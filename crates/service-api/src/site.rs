//! Endpoints, agents, shares and users, as operators see them.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::why::Why;

/// Limits of an endpoint or of a link; `None`: no limit is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Limits {
    /// Control sessions at a time, of all agents.
    pub sessions: Option<u32>,
    /// Data channels at a time, of all agents.
    pub channels: Option<u32>,
    /// Bytes a second.
    pub bytes_per_second: Option<u64>,
    /// Files that start in a second.
    pub files_per_second: Option<u32>,
}

/// Whether an endpoint takes work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum EndpointState {
    /// It does.
    #[default]
    Open,
    /// Running units continue; none starts.
    Draining,
    /// Nothing runs.
    Banned,
}

/// An endpoint: scheme, host and port of URLs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointView {
    /// `scheme://host:port`, the port only where the URL had one.
    pub name: String,
    /// By an operator.
    pub state: EndpointState,
    /// By an operator.
    pub limits: Limits,
    /// What is in use now.
    pub sessions: u32,
    /// What is in use now.
    pub channels: u32,
    /// Bytes a second, as agents report.
    pub goodput: f64,
    /// Files that wait for it.
    pub files_waiting: u64,
    /// What holds back those that wait.
    pub why: Vec<Why>,
}

/// What an operator sets of an endpoint.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EndpointRequest {
    /// `scheme://host:port`, the port only where URLs have one.
    pub name: String,
    /// Whether it takes work.
    #[serde(default)]
    pub state: EndpointState,
    /// What it takes.
    #[serde(default)]
    pub limits: Limits,
}

/// A pair of endpoints, and what an operator has set of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LinkView {
    /// Endpoint.
    pub source: String,
    /// Endpoint.
    pub destination: String,
    /// What it takes.
    pub limits: Limits,
}

/// What an operator sets of an agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentRequest {
    /// It gets no new work.
    pub draining: bool,
}

/// An agent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AgentView {
    /// Unique.
    pub name: String,
    /// Of its program.
    pub version: String,
    /// What it says of itself.
    pub labels: Vec<String>,
    /// Its lease has not expired.
    pub alive: bool,
    /// It gets no new work.
    pub draining: bool,
    /// Units that it holds.
    pub units: u32,
    /// Units that it can hold.
    pub slots: u32,
    /// Bytes a second, as it reports.
    pub goodput: f64,
    /// Its last request, by the clock of the database.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub seen: Option<Timestamp>,
}

/// A node of the tree of shares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareView {
    /// `organisation/group/user`.
    pub path: String,
    /// Among its siblings, more than 0.
    pub weight: f64,
    /// Part of the capacity in use that it has now, 0 to 1.
    pub used: f64,
    /// Part that its weight gives it while its siblings want more, 0 to 1.
    pub fair: f64,
}

/// What an operator sets of a share.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct ShareRequest {
    /// `organisation/group/user`.
    pub path: String,
    /// Among its siblings, more than 0; `None` removes it.
    pub weight: Option<f64>,
}

/// Whether the service works: `GET /health` and `GET /ready`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Health {
    /// `ok`.
    pub status: String,
    /// Of the program.
    pub version: String,
}

/// What a user may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum Role {
    /// Poll for work under its name; nothing that users may do.
    Agent,
    /// Jobs of their own.
    #[default]
    User,
    /// Jobs of their group.
    GroupAdmin,
    /// Everything.
    Operator,
}
