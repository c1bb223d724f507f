//! Who may log in, and what they may do.
//!
//! | They show | How | They are |
//! |---|---|---|
//! | a grid identity | AUTH GSSAPI | the account that the gridmap has for it, and nobody else |
//! | a certificate | AUTH TLS | the same, or one of the below |
//! | a bearer token, as the user `:token:` | AUTH TLS | nobody but what the token says, for as long as it says |
//! | a password | AUTH TLS, or in clear where that is allowed | a line of the password file |
//! | nothing | any, where it is allowed | anonymous |
//! | anything | a session that sshd has started | who sshd has let in |

use std::{fmt, time::SystemTime};

use godwit_gsi::name::DistinguishedName;
use godwit_proto::{
    FtpPath,
    command::Password,
    error::StorageFailure,
    pi::server::{Account, ClearLogins, Mechanism, is_anonymous},
    security::TOKEN_USER,
};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use tracing::error;

use super::{
    gsi::refusal,
    rights::Rights,
    tokens::{self, Bearer},
};
use crate::{
    Service,
    config::{self, Anonymous, ServerSettings},
    failure,
    observe::metrics::Kind,
};

/// Who says USER and PASS, and what is known of them already.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct LoginRequest {
    pub(crate) user: String,
    #[serde(with = "secret")]
    pub(crate) password: Password,
    /// Proven.
    #[serde(with = "name")]
    pub(crate) identity: Option<DistinguishedName>,
    /// Why a certificate that was shown is not believed.
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

/// For logs, and as what a client is told that it is.
impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(name) | Self::Anonymous(name) => f.write_str(name),
            Self::Bearer { issuer, subject } => write!(f, "{issuer}#{subject}"),
        }
    }
}

/// Somebody who may come in.
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

/// By what somebody has logged in.
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
    /// What sshd has seen.
    Ssh,
}

impl Method {
    pub(crate) const COUNT: usize = 6;
}

impl Kind for Method {
    const ALL: &'static [Self] = &[
        Self::Anonymous,
        Self::Gsi,
        Self::Tls,
        Self::Password,
        Self::Token,
        Self::Ssh,
    ];

    fn index(self) -> usize {
        self as usize
    }

    fn word(self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::Gsi => "gsi",
            Self::Tls => "tls",
            Self::Password => "password",
            Self::Token => "token",
            Self::Ssh => "ssh",
        }
    }
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

/// Who may log in before AUTH. Where there is AUTH, passwords of accounts are not even heard in
/// clear, unless that is allowed.
pub(crate) fn in_clear(settings: &ServerSettings) -> ClearLogins {
    let has_auth = settings.gsi.is_some() || settings.tls.is_some();
    if settings.passwords.as_ref().is_some_and(|p| p.in_clear) {
        return ClearLogins::Anybody;
    }
    match (settings.anonymous, has_auth) {
        // Whom it may be is said at PASS, as ever.
        (_, false) => ClearLogins::Anybody,
        (Anonymous::Off, true) => ClearLogins::Nobody,
        (Anonymous::Ro | Anonymous::Rw, true) => ClearLogins::Anonymous,
    }
}

/// A password is to be verified, which takes memory and a processor: no more than some at a time.
pub(crate) fn is_costly(settings: &ServerSettings, caller: &LoginRequest) -> bool {
    settings.passwords.is_some()
        && caller.channel != ControlProtection::Gssapi
        && (caller.channel, caller.user.as_str()) != (ControlProtection::Tls, TOKEN_USER)
        && !is_anonymous(&caller.user)
}

/// Lets a caller in or not. Reads files; call it where blocking is allowed.
pub(crate) fn admit(service: &Service, caller: &LoginRequest) -> Result<Admitted, StorageFailure> {
    if let Some(owner) = &service.owner {
        return Ok(owner.admitted());
    }
    // Whoever has a grid identity is nobody else, and not anonymous.
    let by_identity = by_identity(service, caller);
    if caller.channel == ControlProtection::Gssapi {
        return by_identity.unwrap_or_else(|| Err(failure(Errno::ACCESS, "log in")));
    }
    if let Some(Ok(admitted)) = by_identity {
        return Ok(admitted);
    }
    let settings = &service.settings;
    if caller.user == TOKEN_USER && caller.channel == ControlProtection::Tls {
        return by_token(settings, caller);
    }
    let otherwise = match is_anonymous(&caller.user) {
        true => is_welcome(settings, &caller.user).then(|| Admitted {
            name: Principal::Anonymous(caller.user.clone()),
            account: anonymous_account(settings),
            rights: None,
            actor: Actor::Anonymous,
            method: Method::Anonymous,
        }),
        false => by_password(service, caller),
    };
    // What is wrong with a certificate helps whoever has shown one.
    otherwise.ok_or_else(|| match (by_identity, &caller.disbelief) {
        (Some(Err(why)), _) => why,
        (_, Some(why)) => refusal(why),
        _ => failure(Errno::ACCESS, "log in"),
    })
}

/// What people without an account may do.
pub(crate) fn anonymous_account(settings: &ServerSettings) -> Account {
    Account {
        home: FtpPath::root(),
        writable: settings.anonymous == Anonymous::Rw,
        foreign_data_hosts: settings.foreign_data_hosts,
    }
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

/// Somebody without an account, who needs no password: those that come with it are only a courtesy
/// (an e-mail address).
pub(crate) fn is_welcome(settings: &ServerSettings, user: &str) -> bool {
    is_anonymous(user) && settings.anonymous != Anonymous::Off
}

/// `None`: there is no identity.
fn by_identity(
    service: &Service,
    caller: &LoginRequest,
) -> Option<Result<Admitted, StorageFailure>> {
    let (identity, gsi) = caller.identity.as_ref().zip(service.gsi.as_ref())?;
    let account = gsi.account(identity, &caller.user);
    Some(account.map(|name| Admitted {
        actor: Actor::Account(name.clone()),
        method: match caller.channel {
            ControlProtection::Gssapi => Method::Gsi,
            ControlProtection::Tls | ControlProtection::Clear => Method::Tls,
        },
        name: Principal::Account(name),
        account: user_account(),
        rights: None,
    }))
}

fn by_token(settings: &ServerSettings, caller: &LoginRequest) -> Result<Admitted, StorageFailure> {
    let settings_of_tokens = settings.tokens.as_ref();
    let tokens = settings_of_tokens.ok_or_else(|| refusal("no tokens are taken here"))?;
    let bearer = tokens::admit(tokens, caller.password.reveal(), SystemTime::now());
    let Bearer {
        issuer,
        subject,
        rights,
    } = bearer.map_err(|why| refusal(&why))?;
    Ok(Admitted {
        name: Principal::Bearer { issuer, subject },
        account: Account {
            home: rights.home(),
            writable: rights.writes(),
            foreign_data_hosts: settings.foreign_data_hosts,
        },
        rights: Some(rights),
        actor: Actor::Bearer,
        method: Method::Token,
    })
}

fn by_password(service: &Service, caller: &LoginRequest) -> Option<Admitted> {
    let settings = &service.settings;
    let config::PasswordSettings { file, in_clear } = settings.passwords.as_ref()?;
    if caller.channel == ControlProtection::Clear && !in_clear {
        return None;
    }
    let passwords = (service.passwords.read(file))
        .inspect_err(|error| {
            error!(file = ?file, %error, "nobody can log in by password: the file cannot be used");
        })
        .ok()?;
    let entry = passwords.verify(&caller.user, caller.password.reveal().as_bytes())?;
    Some(Admitted {
        name: Principal::Account(entry.user.clone()),
        account: Account {
            home: entry.home.clone(),
            writable: entry.writes,
            foreign_data_hosts: settings.foreign_data_hosts,
        },
        rights: (entry.home != FtpPath::root()).then(|| Rights::within(&entry.home, entry.writes)),
        actor: Actor::Account(entry.account.as_ref().unwrap_or(&entry.user).clone()),
        method: Method::Password,
    })
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn only_anonymous_names_enter_and_only_when_allowed() {
        for (access, user, allowed) in [
            (Anonymous::Ro, "anonymous", true),
            (Anonymous::Rw, "ftp", true),
            (Anonymous::Ro, "Anonymous", false),
            (Anonymous::Rw, "root", false),
            (Anonymous::Rw, "", false),
            (Anonymous::Off, "anonymous", false),
        ] {
            let settings = ServerSettings::new("/", access);
            assert_eq!(is_welcome(&settings, user), allowed, "{access:?} {user:?}");
            let account = anonymous_account(&settings);
            assert_eq!(account.writable, access == Anonymous::Rw);
            assert!(!account.foreign_data_hosts);
        }
    }

    /// A pre-login process may claim what it likes.
    #[test]
    fn an_identity_is_no_login_where_none_are_known() {
        let settings = ServerSettings::new("/", Anonymous::Off);
        let storage = Arc::new(godwit_engine::storage::NullStorage::new(0));
        let service = Service::on(storage, settings, Arc::default(), None);
        for channel in [
            ControlProtection::Clear,
            ControlProtection::Gssapi,
            ControlProtection::Tls,
        ] {
            let caller = LoginRequest {
                user: "jo".to_owned(),
                password: Password::new("dummy".to_owned()),
                identity: DistinguishedName::parse("/O=Grid/CN=Jo"),
                disbelief: None,
                channel,
            };
            assert!(caller.identity.is_some());
            assert!(admit(&service, &caller).is_err(), "{channel:?}");
        }
    }
}
