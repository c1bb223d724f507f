//! Who may log in, and what they may do. Users are those who have proven who they are ([`crate::gsi`]); without a proof there are
//! anonymous users only, and every other name is refused.

use godwit_proto::{FtpPath, command::Password, error::StorageFailure, pi::server::Account};
use rustix::io::Errno;

use crate::{
    config::{Anonymous, ServerSettings},
    failure,
};

/// Names that mean "nobody in particular" (RFC 1635; `ftp` by custom). Compared exactly, as account names are.
const ANONYMOUS_NAMES: [&str; 2] = ["anonymous", "ftp"];

/// Lets `user` in or not. Anonymous passwords are only a courtesy (an e-mail address) and any will do.
pub(crate) fn check(
    settings: &ServerSettings,
    user: &str,
    password: &Password,
) -> Result<Account, StorageFailure> {
    let _ = password;
    if !ANONYMOUS_NAMES.contains(&user) || settings.anonymous == Anonymous::Off {
        return Err(failure(Errno::ACCESS, "log in"));
    }
    Ok(anonymous_account(settings))
}

/// What people without an account may do.
pub(crate) fn anonymous_account(settings: &ServerSettings) -> Account {
    Account {
        home: FtpPath::root(),
        writable: settings.anonymous == Anonymous::Rw,
        foreign_data_hosts: settings.foreign_data_hosts,
    }
}

/// What a user may do who has proven an identity that is known here. Third-party transfers are what grids are for.
pub(crate) fn user_account() -> Account {
    Account {
        home: FtpPath::root(),
        writable: true,
        foreign_data_hosts: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_anonymous_names_enter_and_only_when_allowed() {
        let password = Password::new("me@here");
        for (access, user, allowed) in [
            (Anonymous::Ro, "anonymous", true),
            (Anonymous::Rw, "ftp", true),
            (Anonymous::Ro, "Anonymous", false),
            (Anonymous::Rw, "root", false),
            (Anonymous::Rw, "", false),
            (Anonymous::Off, "anonymous", false),
        ] {
            let account = check(&ServerSettings::new("/", access), user, &password);
            assert_eq!(account.is_ok(), allowed, "{access:?} {user:?}");
            if let Ok(account) = account {
                assert_eq!(account.writable, access == Anonymous::Rw);
                assert!(!account.foreign_data_hosts);
            }
        }
    }
}
