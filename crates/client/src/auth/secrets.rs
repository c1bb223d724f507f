//! Sources of a user's passwords and tokens. Never the command line, which all users of the host
//! can read.
//!
//! | | in this order |
//! |---|---|
//! | password of `user@host` | in the URL, `--password-file`, `GODWIT_PASSWORD`, `~/.netrc` (or `NETRC`), the terminal |
//! | bearer token | `--token`, `BEARER_TOKEN`, `BEARER_TOKEN_FILE`, `$XDG_RUNTIME_DIR/bt_u<uid>`, `/tmp/bt_u<uid>` (WLCG Bearer Token Discovery) |
//!
//! Keys of `s3://` are in [`super::aws`].
//!
//! A token is sent to the hosts of its audience (`aud`), and to those that `--token-host` or
//! `GODWIT_TOKEN_HOSTS` name.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use godwit_engine::host::terminal::{self, SecretError};
use godwit_gsi::token::{Token, names_host};
use godwit_proto::command::Password;

use super::{
    aws::AwsEnvironment,
    private_file::{read_private, unusable},
};
use crate::error::{Error, Result};

/// Where to look.
#[derive(Clone, Debug, Default)]
pub struct Secrets {
    /// `--password-file`: its first line is the password.
    pub password_file: Option<PathBuf>,
    /// `GODWIT_PASSWORD`.
    pub password: Option<Password>,
    /// Passwords by host and user, in the format of `ftp` and `curl`; need not exist.
    pub netrc: Option<PathBuf>,
    /// A user is at a terminal.
    pub may_ask: bool,
    /// `--token`.
    pub token_file: Option<PathBuf>,
    /// `BEARER_TOKEN`.
    pub token: Option<Password>,
    /// Files that may hold a token; need not exist.
    pub token_places: Vec<PathBuf>,
    /// `--token-host` and `GODWIT_TOKEN_HOSTS`: hosts that get the token whatever its audience is.
    pub token_hosts: Vec<String>,
    /// Of `s3://`.
    pub aws: AwsEnvironment,
}

impl Secrets {
    /// Reads the environment through `variable`.
    pub fn of_environment(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Self {
        let text = |name: &str| {
            let value = variable(name)?.into_string().ok()?;
            (!value.is_empty()).then(|| Password::new(value))
        };
        let place = |name: &str| variable(name).filter(|value| !value.is_empty());
        let below = |folder: OsString, name: String| PathBuf::from(folder).join(name);
        let of_user = format!("bt_u{uid}");
        Self {
            password: text("GODWIT_PASSWORD"),
            netrc: (place("NETRC").map(PathBuf::from))
                .or_else(|| Some(below(place("HOME")?, ".netrc".to_owned()))),
            token: text("BEARER_TOKEN"),
            token_places: [
                place("BEARER_TOKEN_FILE").map(PathBuf::from),
                place("XDG_RUNTIME_DIR").map(|folder| below(folder, of_user.clone())),
                Some(below("/tmp".into(), of_user.clone())),
            ]
            .into_iter()
            .flatten()
            .collect(),
            token_hosts: (text("GODWIT_TOKEN_HOSTS").iter())
                .flat_map(|hosts| hosts.reveal().split([',', ' ']))
                .filter(|host| !host.is_empty())
                .map(str::to_owned)
                .collect(),
            aws: AwsEnvironment::of_environment(&variable),
            ..Self::default()
        }
    }

    /// The password of `user` at `host`; an empty one if there is none and no user to ask. Blocks.
    ///
    /// # Errors
    /// A file that holds it is open to others, or the user at the terminal ends the dialogue.
    pub(crate) fn password(&self, host: &str, user: &str) -> Result<Password> {
        if let Some(file) = &self.password_file {
            let text = read_private(file)?;
            return Ok(Password::new(text.lines().next().unwrap_or_default()));
        }
        if let Some(password) = &self.password {
            return Ok(password.clone());
        }
        if let Some(netrc) = self.netrc.as_deref().filter(|path| path.exists())
            && let Some(password) = in_netrc(&read_private(netrc)?, host, user)
        {
            return Ok(password);
        }
        if !self.may_ask {
            return Ok(Password::default());
        }
        match terminal::from_terminal(&format!("Password of {user}@{host}: ")) {
            Ok(secret) => Ok(Password::new(String::from_utf8_lossy(secret.reveal()))),
            Err(SecretError::NoTerminal) => Ok(Password::default()),
            Err(SecretError::Interrupted) => Err(Error::Interrupted),
            Err(why) => Err(unusable(&format!("{user}@{host}"), why)),
        }
    }

    /// The user's token, read again each time, since it may be renewed during a long copy. Blocks.
    ///
    /// # Errors
    /// A file that holds it cannot be read, or is open to others.
    pub(crate) fn token(&self) -> Result<Option<Password>> {
        let of = |file: &Path| Ok(Some(Password::new(read_private(file)?.trim())));
        if let Some(file) = &self.token_file {
            return of(file);
        }
        if let Some(token) = &self.token {
            return Ok(Some(Password::new(token.reveal().trim())));
        }
        match self.token_places.iter().find(|place| place.exists()) {
            Some(place) => of(place),
            None => Ok(None),
        }
    }
}

/// Most names of an audience, and characters of one, that an error shows.
const NAMES_SHOWN_MAX: usize = 4;
const NAME_CHARS_SHOWN_MAX: usize = 200;

/// Checks that the user's token may be sent to `host`. A server can use any token it receives, so a
/// token for another service must not reach it, however valid its certificate.
///
/// # Errors
/// Why not, as a message for the user.
pub(crate) fn check_audience(
    token: &Password,
    host: &str,
    named: &[String],
) -> std::result::Result<(), String> {
    if named.iter().any(|name| names_host(name, host)) {
        return Ok(());
    }
    let token = Token::parse(token.reveal());
    let names = match &token {
        Ok(token) if token.audience().includes_host(host) => return Ok(()),
        Ok(token) => token.audience().names(),
        Err(_) => &[],
    };
    let shown = |name: &String| name.chars().take(NAME_CHARS_SHOWN_MAX).collect::<String>();
    let shown: Vec<_> = names.iter().take(NAMES_SHOWN_MAX).map(shown).collect();
    let says = match (&token, names.len()) {
        (Err(_), _) => "the bearer token does not say what it is for (it is no JWT)".to_owned(),
        (Ok(_), 0) => "the bearer token does not say what it is for (it has no aud)".to_owned(),
        (Ok(_), count) => {
            let more = count - shown.len();
            let more = if more > 0 {
                format!(" and {more} more")
            } else {
                String::new()
            };
            format!("the bearer token is for {}{more}", shown.join(", "))
        }
    };
    Err(format!(
        "{says}: name the host with --token-host (or GODWIT_TOKEN_HOSTS) if it is meant for it, or \
         log in without it as anonymous@{host}"
    ))
}

/// The password of a netrc file for `user` at `host`: of the first `machine` of that name, else of
/// `default`. An entry without `login` holds for all users.
fn in_netrc(text: &str, host: &str, user: &str) -> Option<Password> {
    let mut found = None;
    let (mut for_host, mut for_user) = (false, true);
    let mut words = words_of(text);
    while let Some(word) = words.next() {
        match word {
            "machine" => (for_host, for_user) = (words.next()? == host, true),
            "default" => (for_host, for_user) = (true, true),
            "login" => for_user = words.next()? == user,
            "password" => {
                let password = words.next()?;
                if for_host && for_user && found.is_none() {
                    found = Some(Password::new(password));
                }
            }
            "account" => drop(words.next()),
            _ => {}
        }
    }
    found
}

/// Skips macros, which end with an empty line.
fn words_of(text: &str) -> impl Iterator<Item = &str> {
    let mut in_macro = false;
    let lines = text.lines().filter(move |line| {
        in_macro = !line.trim().is_empty() && (in_macro || line.trim().starts_with("macdef"));
        !in_macro
    });
    lines
        .filter(|line| !line.trim_start().starts_with('#'))
        .flat_map(str::split_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};

    use super::*;

    fn private(folder: &Path, name: &str, text: &str) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path
    }

    fn of(variables: &[(&str, &Path)]) -> Secrets {
        let variables: Vec<(String, OsString)> = variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), value.as_os_str().to_owned()))
            .collect();
        let look = |name: &str| {
            variables
                .iter()
                .find(|(n, _)| n == name)
                .map(|(_, v)| v.clone())
        };
        // No user has this id, so that /tmp/bt_u... of the user who runs the test is not read.
        Secrets::of_environment(look, u32::MAX)
    }

    #[test]
    fn passwords_are_found_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let netrc =
            "machine other login jo password wrong\nmachine host login jo password of-netrc\n";
        private(folder.path(), ".netrc", netrc);
        let home = ("HOME", folder.path());
        let environment = ("GODWIT_PASSWORD", Path::new("of-environment"));
        let password = |secrets: &Secrets, user| secrets.password("host", user).unwrap();
        assert_eq!(password(&of(&[home]), "jo").reveal(), "of-netrc");
        assert_eq!(password(&of(&[home]), "kim").reveal(), "");
        assert_eq!(
            password(&of(&[home, environment]), "jo").reveal(),
            "of-environment"
        );
        let mut named = of(&[home, environment]);
        named.password_file = Some(private(folder.path(), "p", "of-file\nrest"));
        assert_eq!(password(&named, "jo").reveal(), "of-file");
    }

    #[test]
    fn tokens_are_found_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let named = private(folder.path(), "named", " of-file\n");
        let in_folder = private(folder.path(), "bt_u4294967295", "of-folder\n");
        let token = |secrets: &Secrets| Some(secrets.token().unwrap()?.reveal().to_owned());
        let text = ("BEARER_TOKEN", Path::new("of-environment"));
        let file = ("BEARER_TOKEN_FILE", named.as_path());
        let runtime = ("XDG_RUNTIME_DIR", folder.path());
        assert_eq!(token(&of(&[])), None);
        assert_eq!(token(&of(&[runtime])).as_deref(), Some("of-folder"));
        assert_eq!(token(&of(&[runtime, file])).as_deref(), Some("of-file"));
        assert_eq!(
            token(&of(&[runtime, file, text])).as_deref(),
            Some("of-environment")
        );
        let mut chosen = of(&[text]);
        chosen.token_file = Some(in_folder);
        assert_eq!(token(&chosen).as_deref(), Some("of-folder"));
        chosen.token_file = Some(folder.path().join("none"));
        assert!(chosen.token().is_err(), "the user named this file");
    }

    #[test]
    fn hosts_that_a_token_is_for_are_in_the_environment() {
        let hosts = |text: &str| of(&[("GODWIT_TOKEN_HOSTS", Path::new(text))]).token_hosts;
        assert_eq!(
            hosts("a.example.org, [::1]:2811,"),
            ["a.example.org", "[::1]:2811"]
        );
        assert_eq!(hosts(""), [""; 0]);
    }

    fn with_claims(claims: &str) -> Password {
        let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let (header, claims) = (part(r#"{"alg":"ES256"}"#), part(claims));
        Password::new(format!("{header}.{claims}.AAAA"))
    }

    #[test]
    fn tokens_are_sent_to_their_own_hosts_and_those_the_user_names() {
        let any = "https://wlcg.cern.ch/jwt/v1/any";
        let aud = |aud: &str| with_claims(&format!(r#"{{"iss":"i","exp":1,"aud":{aud}}}"#));
        let one = aud(r#""https://b.example.org""#);
        let two = aud(r#"["https://b.example.org","https://a.example.org:8443/x"]"#);
        let check = |token: &Password, named: &[&str]| {
            let named: Vec<String> = named.iter().map(|name| (*name).to_owned()).collect();
            check_audience(token, "a.example.org", &named)
        };
        for good in [two, aud(&format!("\"{any}\""))] {
            assert_eq!(check(&good, &[]), Ok(()));
        }
        let opaque = Password::new("opaque");
        let cases = [
            (
                &one,
                "is for https://b.example.org: name the host with --token-host",
            ),
            (&opaque, "it is no JWT"),
            (&aud("[]"), "it has no aud"),
            (&with_claims(r#"{"iss":"i","exp":1}"#), "it has no aud"),
            (
                &aud(r#"["1","2","3","4","5"]"#),
                "is for 1, 2, 3, 4 and 1 more",
            ),
        ];
        for (token, why) in cases {
            let refused = check(token, &["b.example.org"]).unwrap_err();
            assert!(refused.contains(why), "{refused}");
            assert!(!refused.contains("opaque"), "{refused}");
            assert_eq!(check(token, &["b.example.org", "A.example.org"]), Ok(()));
        }
    }

    #[test]
    fn files_that_others_can_read_are_refused_and_nothing_is_shown() {
        let folder = tempfile::tempdir().unwrap();
        let path = private(folder.path(), "token", "se.cr.et");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let mut secrets = of(&[("BEARER_TOKEN", Path::new("se.cr.et"))]);
        assert!(!format!("{secrets:?}").contains("se.cr"));
        secrets.token_file = Some(path.clone());
        let error = secrets.token().unwrap_err().to_string();
        assert!(
            error.contains("chmod 600") && !error.contains("se.cr"),
            "{error}"
        );
        secrets.password_file = Some(path);
        assert!(secrets.password("h", "u").is_err());
    }

    #[test]
    fn netrc_is_read_as_ftp_reads_it() {
        let text = "# machine h login jo password commented\n\
            machine other login jo password x account y\n\
            macdef init\nmachine h login jo password in-macro\n\n\
            machine h\n  login kim password k\nmachine h login jo\n\tpassword j\n\
            machine h password z\n\
            default login anonymous password me@\n";
        let password = |host, user| Some(in_netrc(text, host, user)?.reveal().to_owned());
        assert_eq!(password("h", "jo").as_deref(), Some("j"));
        assert_eq!(password("h", "kim").as_deref(), Some("k"));
        assert_eq!(password("h", "sam").as_deref(), Some("z"));
        assert_eq!(password("x", "anonymous").as_deref(), Some("me@"));
        assert_eq!(password("x", "jo"), None);
        assert_eq!(in_netrc("machine", "h", "jo"), None);
    }
}
