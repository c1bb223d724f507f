//! Which logins succeed, and what they may do.
//!
//! | They show | How | They are |
//! |---|---|---|
//! | a grid identity | AUTH GSSAPI | only the account that the gridmap has for it |
//! | a certificate | AUTH TLS | the same, or one of the below |
//! | a bearer token, as the user `:token:` | AUTH TLS | as the token says |
//! | a token that this server has issued, likewise | AUTH TLS | an account, with a part of its rights |
//! | a password | AUTH TLS, or in clear where that is allowed | a line of the password file |
//! | nothing | any, where it is allowed | anonymous |
//! | anything | a session that sshd has started | who sshd has let in |

use crate::access::identity::{
    Actor, Admitted, ControlProtection, LoginRequest, Method, Principal, user_account,
};
use std::time::SystemTime;

use godwit_gsi::{gridmap::MAPPED_USER, name::DistinguishedName};
use godwit_proto::{
    FtpPath,
    error::StorageFailure,
    pi::server::{Account, ClearLogins, is_anonymous},
    security::TOKEN_USER,
};
use rustix::io::Errno;
use tracing::error;

use crate::{
    access::{
        admission::attempts::Attempt,
        gsi::refusal,
        issued::IssuedToken,
        limits::Refusal,
        rights::Rights,
        tokens::{self, Bearer},
    },
    config::{self, Anonymous, ServerSettings},
    observe::class::Class,
    service::Service,
    storage::failure,
};

/// Which users may log in before AUTH. If the server offers AUTH, it refuses passwords of accounts
/// in clear unless the settings allow them.
pub(crate) fn in_clear(settings: &ServerSettings) -> ClearLogins {
    let has_auth = settings.gsi.is_some() || settings.tls.is_some();
    if settings.passwords.as_ref().is_some_and(|p| p.in_clear) {
        return ClearLogins::All;
    }
    match (settings.anonymous, has_auth) {
        // PASS decides, as always.
        (_, false) => ClearLogins::All,
        (Anonymous::Off, true) => ClearLogins::Never,
        (Anonymous::Ro | Anonymous::Rw, true) => ClearLogins::Anonymous,
    }
}

/// The login verifies a password, which takes memory and a processor: few run at a time.
pub(crate) fn is_costly(settings: &ServerSettings, caller: &LoginRequest) -> bool {
    settings.passwords.is_some()
        && caller.channel != ControlProtection::Gssapi
        && (caller.channel, caller.user.as_str()) != (ControlProtection::Tls, TOKEN_USER)
        && !is_anonymous(&caller.user)
}

/// Decides on a login. Reads files: it may block.
pub(crate) fn admit(service: &Service, caller: &LoginRequest) -> Result<Admitted, StorageFailure> {
    if let Some(owner) = &service.owner {
        return Ok(owner.admitted());
    }
    // A client with a grid identity logs in by it, never as an anonymous user.
    let by_identity = by_identity(service, caller);
    if caller.channel == ControlProtection::Gssapi {
        return by_identity.unwrap_or_else(|| Err(failure(Errno::ACCESS, "log in")));
    }
    if let Some(Ok(admitted)) = by_identity {
        return Ok(admitted);
    }
    let settings = &service.settings;
    if caller.user == TOKEN_USER && caller.channel == ControlProtection::Tls {
        return by_token(service, caller);
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
    // A client with a certificate receives the reason why it is not trusted.
    otherwise.ok_or_else(|| match (by_identity, &caller.disbelief) {
        (Some(Err(why)), _) => why,
        (_, Some(why)) => refusal(why),
        _ => failure(Errno::ACCESS, "log in"),
    })
}

/// The same, where the address may try it: `turn`. May block.
pub(crate) fn attempt(
    service: &Service,
    caller: &LoginRequest,
    turn: Result<Attempt, Refusal>,
) -> Result<Box<Admitted>, (Class, StorageFailure)> {
    let attempt = turn.map_err(|why| (Class::Pause, refusal(&why.to_string())))?;
    let admitted = admit(service, caller).map_err(|why| (Class::Credentials, why))?;
    attempt.succeeded(admitted.is_proven());
    Ok(Box::new(admitted))
}

/// Rights of users without an account.
pub(crate) fn anonymous_account(settings: &ServerSettings) -> Account {
    Account {
        home: FtpPath::root(),
        writable: settings.anonymous == Anonymous::Rw,
        foreign_data_hosts: settings.foreign_data_hosts,
    }
}

/// A user without an account, who needs no password: those that come with it are only a courtesy
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

fn by_token(service: &Service, caller: &LoginRequest) -> Result<Admitted, StorageFailure> {
    let (settings, now) = (&service.settings, SystemTime::now());
    let issued = service.issuer.as_ref();
    let issued = issued.and_then(|key| IssuedToken::open(key, caller.password.reveal(), now));
    if let Some(issued) = issued {
        let issued = issued.and_then(|token| still_stands(service, token));
        return issued.map(of_issued).map_err(|why| refusal(&why));
    }
    let settings_of_tokens = settings.tokens.as_ref();
    let tokens = settings_of_tokens.ok_or_else(|| refusal("no tokens are taken here"))?;
    let bearer = tokens::admit(tokens, caller.password.reveal(), now);
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

/// What the rights of an account rest on: another text once they have changed, or its password has.
/// `None`: there is no such account, or not for this identity. Reads files: it may block.
pub(crate) fn standing(
    service: &Service,
    account: &str,
    identity: Option<&DistinguishedName>,
) -> Option<String> {
    let by_identity = identity.zip(service.gsi.as_ref()).is_some_and(|(of, gsi)| {
        let users = [MAPPED_USER, account];
        (users.iter()).any(|user| gsi.account(of, user).is_ok_and(|found| found == account))
    });
    if by_identity {
        return Some("certificate".to_owned());
    }
    let file = &service.settings.passwords.as_ref()?.file;
    let line = service.passwords.read(file).ok()?.line(account)?;
    let line = format!("standing {line}");
    Some(service.issuer.as_ref()?.tag(line.as_bytes()))
}

/// A token ends with its account, and with what the account might do.
fn still_stands(service: &Service, token: IssuedToken) -> Result<IssuedToken, String> {
    let identity = token.identity.as_deref().and_then(DistinguishedName::parse);
    match standing(service, &token.account, identity.as_ref()) {
        Some(now) if now == token.standing => Ok(token),
        _ => Err("the token's account was removed or changed after it was issued".to_owned()),
    }
}

/// A part of the rights of an account.
fn of_issued(token: IssuedToken) -> Admitted {
    let IssuedToken {
        account, rights, ..
    } = token;
    Admitted {
        name: Principal::Account(account.clone()),
        account: Account {
            home: rights.home(),
            writable: rights.writes(),
            foreign_data_hosts: false,
        },
        rights: Some(rights),
        actor: Actor::Account(account),
        method: Method::Token,
    }
}

fn by_password(service: &Service, caller: &LoginRequest) -> Option<Admitted> {
    let settings = &service.settings;
    let config::PasswordSettings { file, in_clear } = settings.passwords.as_ref()?;
    if caller.channel == ControlProtection::Clear && !in_clear {
        return None;
    }
    let passwords = (service.passwords.read(file))
        .inspect_err(|error| {
            error!(file = ?file, %error, "no login by password succeeds: cannot use the file");
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use godwit_proto::command::Password;

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
    fn an_identity_needs_gsi_to_log_in() {
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
