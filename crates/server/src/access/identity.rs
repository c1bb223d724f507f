//! The identity of a client: the credentials of a login, and the account that they lead to.

use std::{io, os::fd::OwnedFd};

use std::fmt;

use godwit_gsi::name::DistinguishedName;
use godwit_proto::{
    FtpPath,
    command::Password,
    pi::server::{Account, Mechanism},
};
use serde::{Deserialize, Serialize};

use super::rights::Rights;

/// The monitor, as a pre-login process sees it.
pub(crate) trait Monitor: Send + Sync {
    /// Asks for a session of `caller`: the relay to it, or why there is none.
    fn log_in(&self, caller: Box<LoginRequest>) -> Result<OwnedFd, String>;

    /// Reports a handshake that failed.
    fn handshake_failed(&self, why: &str) -> io::Result<()>;
}

/// A client's USER and PASS, and what the server knows of the client already.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    pub(crate) user: String,
    #[serde(with = "secret")]
    pub(crate) password: Password,
    /// Authenticated.
    #[serde(with = "name")]
    pub(crate) identity: Option<DistinguishedName>,
    /// Why the client's certificate is not trusted.
    pub(crate) disbelief: Option<String>,
    /// Of the control channel.
    pub(crate) channel: ControlProtection,
}

/// What protects a control channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ControlProtection {
    Clear,
    Gssapi,
    Tls,
}

impl ControlProtection {
    /// What AUTH has led to.
    pub(crate) fn mechanism(self) -> Option<Mechanism> {
        match self {
            Self::Clear => None,
            Self::Gssapi => Some(Mechanism::Gssapi),
            Self::Tls => Some(Mechanism::Tls),
        }
    }
}

/// Whose login it is, for limits and logs. Names of accounts, of anonymous users and of the
/// subjects of each issuer are apart: a token for `root` is not the account root.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Principal {
    /// Of the gridmap, the password file or the system.
    Account(String),
    /// Only a name to log in with.
    Anonymous(String),
    /// Of a token.
    Bearer { issuer: String, subject: String },
}

/// For logs, and for replies that name the user.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(name) | Self::Anonymous(name) => f.write_str(name),
            Self::Bearer { issuer, subject } => write!(f, "{issuer}#{subject}"),
        }
    }
}

/// A login that is allowed.
#[derive(Debug)]
pub(crate) struct Admitted {
    pub(crate) name: Principal,
    pub(crate) account: Account,
    /// `None`: all that storage allows.
    pub(crate) rights: Option<Rights>,
    pub(crate) actor: Actor,
    /// For who counts.
    pub(crate) method: Method,
}

impl Admitted {
    /// It took something that others do not have.
    pub(crate) fn is_proven(&self) -> bool {
        self.actor != Actor::Anonymous
    }
}

/// How a user has logged in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Method {
    /// Nothing.
    Anonymous,
    /// A grid identity.
    Gsi,
    /// A certificate, under AUTH TLS.
    Tls,
    Password,
    Token,
    /// A signature with an access key of S3.
    Key,
    /// What sshd has seen.
    Ssh,
}

impl Method {
    pub(crate) const COUNT: usize = 7;
}

/// Whose account of the system a session acts as, where it has a process of its own.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Actor {
    /// The one of this name.
    Account(String),
    /// That of bearers of tokens.
    Bearer,
    /// That of people without an account.
    Anonymous,
}

/// What a user may do who has proven an identity that is known here. Third-party transfers are what
/// grids are for.
pub(crate) fn user_account() -> Account {
    Account {
        home: FtpPath::root(),
        writable: true,
        foreign_data_hosts: true,
    }
}

/// For `serde(with)`.
mod secret {
    use godwit_proto::command::Password;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(password: &Password, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(password.reveal())
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Password, D::Error> {
        String::deserialize(from).map(Password::new)
    }
}

/// For `serde(with)`.
mod name {
    use godwit_gsi::name::DistinguishedName;
    use serde::{Deserialize as _, Deserializer, Serialize as _, Serializer, de::Error as _};

    pub(crate) fn serialize<S: Serializer>(
        name: &Option<DistinguishedName>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        name.as_ref().map(DistinguishedName::as_str).serialize(to)
    }

    pub(crate) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<DistinguishedName>, D::Error> {
        let text = Option::<String>::deserialize(from)?;
        let name = text.map(|text| DistinguishedName::parse(&text).ok_or("no distinguished name"));
        name.transpose().map_err(D::Error::custom)
    }
}
