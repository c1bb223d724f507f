//! Settings of processes without privileges.

use serde::{Deserialize, Serialize};

use super::{ConfigError, GsiSettings, Options};

/// How privileges are separated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Separation {
    /// Account of the processes that meet strangers.
    pub front_user: String,
    /// Account of the users `anonymous` and `ftp`.
    pub anonymous_user: String,
    /// Account of who logs in by a token; `None`: nobody does.
    pub token_user: Option<String>,
    /// No process runs with less than all of the kernel's protection.
    pub require_sandbox: bool,
}

/// The account that owns nothing.
const NOBODY: &str = "nobody";

/// `None` where all is done in one process.
pub(super) fn separation_of(
    options: &Options,
    gsi: Option<&GsiSettings>,
    is_root: bool,
) -> Result<Option<Separation>, ConfigError> {
    // Root that knows accounts is there to let users have them.
    let has_accounts = gsi.is_some_and(|gsi| gsi.gridmap.is_some())
        || options.password_file.is_some()
        || !options.token_issuer.is_empty();
    let wanted = options.privsep.unwrap_or(is_root && has_accounts);
    if !wanted {
        return match (options.require_sandbox, &options.token_user) {
            (Some(true), _) => Err(refused(
                "require-sandbox",
                "there is a sandbox with --privsep only",
            )),
            (_, Some(_)) => Err(refused(
                "token-user",
                "sessions act as accounts with --privsep only",
            )),
            _ => Ok(None),
        };
    }
    if !is_root {
        return Err(refused(
            "privsep",
            "only root can give sessions their accounts",
        ));
    }
    if options.token_user.is_none() && !options.token_issuer.is_empty() {
        return Err(refused(
            "token-issuer",
            "bearers of tokens need an account of this system to act as: name it with --token-user, or add \
             --privsep=false to let them act as who starts the server",
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

fn refused(name: &'static str, reason: &str) -> ConfigError {
    ConfigError::Value {
        name,
        reason: reason.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_with_a_gridmap_separates_and_nobody_else_can() {
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
