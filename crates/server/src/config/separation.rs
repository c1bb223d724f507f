//! Settings of unprivileged processes.

use serde::{Deserialize, Serialize};

use super::{ConfigError, GsiSettings, Options};

/// How privileges are separated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Separation {
    /// Account of the processes that handle unauthenticated connections.
    pub front_user: String,
    /// Account of the users `anonymous` and `ftp`.
    pub anonymous_user: String,
    /// Account of sessions that log in by a token; `None`: there is no such login.
    pub token_user: Option<String>,
    /// The server refuses to run without all of the kernel's protection.
    pub require_sandbox: bool,
}

/// The account that owns nothing.
const NOBODY: &str = "nobody";

/// `None` if one process does everything.
pub(super) fn separation_of(
    options: &Options,
    gsi: Option<&GsiSettings>,
    is_root: bool,
) -> Result<Option<Separation>, ConfigError> {
    // Root with accounts of users at hand should run their sessions as those.
    let has_accounts = gsi.is_some_and(|gsi| gsi.gridmap.is_some())
        || options.password_file.is_some()
        || !options.token_issuer.is_empty();
    let wanted = options.privsep.unwrap_or(is_root && has_accounts);
    if !wanted {
        return match (options.require_sandbox, &options.token_user) {
            (Some(true), _) => Err(ConfigError::value(
                "require-sandbox",
                "a sandbox needs --privsep",
            )),
            (_, Some(_)) => Err(ConfigError::value("token-user", "it needs --privsep")),
            _ => Ok(None),
        };
    }
    if !is_root {
        let reason = "only root can run sessions as other accounts";
        return Err(ConfigError::value("privsep", reason));
    }
    if options.token_user.is_none() && !options.token_issuer.is_empty() {
        return Err(ConfigError::value(
            "token-issuer",
            "sessions with tokens need a system account: name it with --token-user, or add \
             --privsep=false to run them as the server's account",
        ));
    }
    let name = |said: &Option<String>| said.clone().unwrap_or_else(|| NOBODY.to_owned());
    Ok(Some(Separation {
        front_user: name(&options.front_user),
        anonymous_user: name(&options.anonymous_user),
        token_user: options.token_user.clone(),
        require_sandbox: options.require_sandbox.unwrap_or(false),
    }))
}

/// At a data node, whose front end decides on logins: as root each session has its account.
pub(super) fn separation_at_node(
    options: &Options,
    is_root: bool,
) -> Result<Option<Separation>, ConfigError> {
    match options.privsep {
        Some(true) if !is_root => {
            let reason = "only root can run sessions as other accounts";
            Err(ConfigError::value("privsep", reason))
        }
        Some(false) => Ok(None),
        None if !is_root => Ok(None),
        Some(true) | None => Ok(Some(Separation {
            front_user: NOBODY.to_owned(),
            anonymous_user: NOBODY.to_owned(),
            token_user: None,
            require_sandbox: options.require_sandbox.unwrap_or(false),
        })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_with_accounts_separates_privileges() {
        let gsi = |gridmap: Option<&str>| GsiSettings {
            host: Vec::new(),
            authorities: "/".into(),
            gridmap: gridmap.map(Into::into),
            allowed: Default::default(),
        };
        let (mapped, unmapped) = (gsi(Some("/map")), gsi(None));
        let said = |privsep| Options {
            privsep,
            ..Options::default()
        };
        let is_separated = |privsep, gsi: Option<&GsiSettings>, is_root| {
            separation_of(&said(privsep), gsi, is_root).map(|found| found.is_some())
        };
        assert!(is_separated(None, Some(&mapped), true).unwrap());
        for (privsep, gsi, is_root) in [
            (None, Some(&mapped), false),
            (None, Some(&unmapped), true),
            (None, None, true),
            (Some(false), Some(&mapped), true),
        ] {
            assert!(!is_separated(privsep, gsi, is_root).unwrap());
        }
        assert!(is_separated(Some(true), None, true).unwrap());
        let with_passwords = Options {
            password_file: Some("/p".into()),
            ..Options::default()
        };
        let found = |is_root| separation_of(&with_passwords, None, is_root).unwrap();
        assert!(found(true).is_some() && found(false).is_none());
        assert!(is_separated(Some(true), Some(&mapped), false).is_err());
        let mut options = said(None);
        options.require_sandbox = Some(true);
        assert!(separation_of(&options, None, true).is_err());
        let bearers = Options {
            token_issuer: vec!["https://i/=/keys".parse().unwrap()],
            ..Options::default()
        };
        let refused = separation_of(&bearers, None, true).unwrap_err();
        assert!(refused.to_string().contains("--token-user"), "{refused}");
        let mut named = bearers;
        named.token_user = Some("data".to_owned());
        let found = separation_of(&named, None, true).unwrap().unwrap();
        assert_eq!(found.token_user.as_deref(), Some("data"));
        assert!(separation_of(&named, None, false).is_err());
        let found = separation_of(&options, Some(&mapped), true).unwrap();
        assert!(found.is_some_and(|found| found.require_sandbox && found.front_user == "nobody"));
    }
}
