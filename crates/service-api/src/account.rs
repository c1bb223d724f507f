//! Users, their tokens and their credentials.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{agent::Secret, site::Role};

/// A user. Who writes one says all of it, but for the password, which stays unless it is given.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserRequest {
    /// Unique; owner of jobs. Of an agent: the name that it polls under.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Groups whose jobs a group admin sees.
    #[serde(default)]
    pub groups: Vec<String>,
    /// For logins by password. Never returned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub password: Option<String>,
    /// Names that other systems know them by: `dn:/DC=org/CN=Jo`, `oidc:ISSUER#SUBJECT`.
    #[serde(default)]
    pub identities: Vec<String>,
    /// They are refused.
    #[serde(default)]
    pub disabled: bool,
    /// Jobs that are not final; `None`: the service's default.
    #[serde(default)]
    pub max_jobs: Option<u64>,
    /// Files of jobs that are not final; `None`: the service's default.
    #[serde(default)]
    pub max_files: Option<u64>,
}

impl std::fmt::Debug for UserRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "UserRequest({} {:?})", self.name, self.role)
    }
}

/// A user as operators, and the user, see them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct UserView {
    /// Unique; owner of jobs.
    pub name: String,
    /// What they may do.
    pub role: Role,
    /// Groups whose jobs a group admin sees.
    pub groups: Vec<String>,
    /// They can log in by password.
    pub has_password: bool,
    /// Names that other systems know them by.
    pub identities: Vec<String>,
    /// They are refused.
    pub disabled: bool,
    /// Jobs that are not final; `None`: no limit.
    pub max_jobs: Option<u64>,
    /// Files of jobs that are not final; `None`: no limit.
    pub max_files: Option<u64>,
}

/// `POST /api/v1/login`: a token for a password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Login {
    /// Name.
    pub user: String,
    /// Password.
    pub password: String,
}

impl std::fmt::Debug for Login {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Login({})", self.user)
    }
}

/// An issuer whose tokens log in, and that gives them to command lines (RFC 8628).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LoginIssuer {
    /// URL, as tokens name it.
    pub issuer: String,
    /// What the issuer calls command lines: a public client.
    pub client_id: String,
    /// Scopes to ask it for, with blanks between.
    pub scope: String,
    /// Audience to ask it for.
    pub audience: Option<String>,
}

/// A token to be made.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenRequest {
    /// What it is for.
    pub label: String,
    /// Seconds until it ends; `None`: it does not.
    pub lifetime_seconds: Option<u64>,
    /// For another user or an agent, by an operator.
    pub user: Option<String>,
}

/// A token that was made. Only this answer has its text.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NewToken {
    /// For the header `Authorization: Bearer`.
    pub token: String,
    /// What is known of it.
    #[serde(flatten)]
    pub view: TokenView,
}

impl std::fmt::Debug for NewToken {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "NewToken({:?})", self.view)
    }
}

/// A token without its text, which the service does not know.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TokenView {
    /// Names it.
    pub id: Uuid,
    /// Whose.
    pub user: String,
    /// What it is for.
    pub label: String,
    /// When it was made.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
    /// When it ends.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
}

/// A credential to be stored. It is sealed, and goes to agents for units of this user only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CredentialRequest {
    /// Pattern over `scheme://host:port`, in which `*` stands for any text.
    pub endpoint: String,
    /// The secret itself.
    pub secret: Secret,
    /// When it ends. Of a proxy certificate the service finds out itself.
    #[serde(default)]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
}

/// A token of an issuer to be stored, which the service renews by itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct IssuedCredentialRequest {
    /// Pattern over `scheme://host:port`, in which `*` stands for any text.
    pub endpoint: String,
    /// URL of the issuer, one of those that the service is a client of.
    pub issuer: String,
    /// What the service shows it.
    pub shown: ShownToken,
}

/// What an issuer gives tokens for.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub enum ShownToken {
    /// A refresh token that the issuer has given this service (RFC 6749, section 6).
    RefreshToken(String),
    /// An access token of the user, which is exchanged (RFC 8693).
    SubjectToken(String),
}

impl std::fmt::Debug for IssuedCredentialRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "IssuedCredentialRequest({} of {})",
            self.endpoint, self.issuer
        )
    }
}

/// A credential without its secret, which nobody can read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CredentialView {
    /// Names it.
    pub id: Uuid,
    /// Pattern over `scheme://host:port`.
    pub endpoint: String,
    /// `proxy`, `token`, `issued` (a token that the service renews), `password` or `keys`.
    pub kind: String,
    /// When it ends.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
    /// When it was stored.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created: Timestamp,
}

/// What a user has delegated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DelegationView {
    /// When the delegated proxy ends; `None`: there is none.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>, format = DateTime))]
    pub expires: Option<Timestamp>,
}

/// A request for a proxy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DelegationRequest {
    /// PKCS#10, PEM.
    pub request: String,
}

/// A proxy that was signed for the request.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct DelegatedChain {
    /// The proxy, then its issuer with the issuer's chain, PEM. It holds no key.
    pub chain: String,
}

/// A key that reports of ended jobs are signed with (Standard Webhooks). Only this answer has it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct WebhookKey {
    /// `whsec_` and the key in base64.
    pub key: String,
}

impl std::fmt::Debug for WebhookKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WebhookKey(..)")
    }
}

/// Who did what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct AuditView {
    /// Rises.
    pub number: i64,
    /// By the clock of the database.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub at: Timestamp,
    /// Name of the user.
    pub who: String,
    /// E.g. `job.cancel`.
    pub action: String,
    /// What it was done to.
    pub subject: String,
    /// One line.
    pub detail: String,
}
