//! Settings of logins without a grid: TLS, passwords, bearer tokens.

use std::{net::SocketAddr, path::PathBuf, str::FromStr};

use serde::{Deserialize, Serialize};

use super::{
    ConfigError, GsiSettings, Options, ServerSettings,
    gsi::{host_of, locations},
};

/// The server's certificate under AUTH TLS.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TlsSettings {
    /// Certificate and key: the first pair whose certificate exists.
    pub host: Vec<(PathBuf, PathBuf)>,
}

/// Logins by password.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PasswordSettings {
    /// See [`crate::access::passwords`].
    pub file: PathBuf,
    /// Also without TLS.
    pub in_clear: bool,
}

/// Logins by bearer token.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenSettings {
    /// At least one, each URL once.
    pub issuers: Vec<IssuerSettings>,
    /// Names of this server: a token must be for one of them. At least one.
    pub audiences: Vec<String>,
}

/// An issuer of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "String", into = "String")]
pub struct IssuerSettings {
    /// As tokens name it (`iss`), byte by byte.
    pub url: String,
    /// File with its keys, a JSON Web Key Set.
    pub keys: PathBuf,
}

impl FromStr for IssuerSettings {
    type Err = String;
    /// `URL=FILE`.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.rsplit_once('=') {
            Some((url, keys)) if !url.is_empty() && !keys.is_empty() => Ok(Self {
                url: url.to_owned(),
                keys: keys.into(),
            }),
            _ => Err(format!("{text:?}: wanted URL=FILE")),
        }
    }
}

impl From<IssuerSettings> for String {
    fn from(issuer: IssuerSettings) -> Self {
        format!("{}={}", issuer.url, issuer.keys.display())
    }
}

impl TryFrom<String> for IssuerSettings {
    type Error = String;
    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

/// `None` without TLS. GSI implies a certificate, and so TLS.
pub(super) fn tls_of(
    options: &Options,
    gsi: &Option<GsiSettings>,
    environment: &impl Fn(&str) -> Option<String>,
) -> Result<Option<TlsSettings>, ConfigError> {
    if !options.tls.unwrap_or(options.wants_tls() || gsi.is_some()) {
        return Ok(None);
    }
    let host = host_of(options, &locations(environment))?;
    Ok(Some(TlsSettings { host }))
}

/// Addresses for HTTPS or S3, which need a certificate, and whose requests run in this process.
pub(super) fn https_of(
    name: &'static str,
    addresses: &[SocketAddr],
    settings: &ServerSettings,
) -> Result<Vec<SocketAddr>, ConfigError> {
    let refused = |reason| Err(ConfigError::value(name, reason));
    if addresses.is_empty() {
        return Ok(Vec::new());
    }
    if settings.tls.is_none() {
        return refused("it needs TLS: leave --tls=false out");
    }
    if settings.separation.is_some() {
        return refused(
            "its requests run as the server's account, and --privsep runs each session as the \
             user's: start a second godwitd for it as the account that owns the files, or add \
             --privsep=false",
        );
    }
    Ok(addresses.to_vec())
}

/// The file of keys. Without one only anonymous users could come.
pub(super) fn s3_keys_of(
    addresses: &[SocketAddr],
    keys: Option<PathBuf>,
) -> Result<Option<PathBuf>, ConfigError> {
    match (addresses.is_empty(), &keys) {
        (false, None) => Err(ConfigError::value(
            "s3",
            "it needs access keys: name a file with --s3-keys, which godwitd s3-key writes",
        )),
        (true, Some(_)) => Err(ConfigError::value(
            "s3-keys",
            "there is no address for S3: add --s3 ADDR:PORT",
        )),
        _ => Ok(keys),
    }
}

/// `None` without a password file. Passwords need TLS or permission to come in clear.
pub(super) fn passwords_of(
    options: &Options,
    has_tls: bool,
) -> Result<Option<PasswordSettings>, ConfigError> {
    let in_clear = options.allow_clear_passwords.unwrap_or(false);
    let Some(file) = &options.password_file else {
        return match in_clear {
            true => Err(ConfigError::value(
                "allow-clear-passwords",
                "there are no passwords: name a file with --password-file",
            )),
            false => Ok(None),
        };
    };
    if !has_tls && !in_clear {
        let reason = "passwords need TLS: leave --tls=false out, or add --allow-clear-passwords";
        return Err(ConfigError::value("password-file", reason));
    }
    Ok(Some(PasswordSettings {
        file: file.clone(),
        in_clear,
    }))
}

/// `None` where there are none.
pub(super) fn tokens_of(
    options: &Options,
    has_tls: bool,
) -> Result<Option<TokenSettings>, ConfigError> {
    let (issuers, audiences) = (&options.token_issuer, &options.token_audience);
    let refused = |name, reason: &str| Err(ConfigError::value(name, reason));
    if issuers.is_empty() {
        return match audiences.is_empty() {
            true => Ok(None),
            false => refused("token-audience", "there is no issuer: add --token-issuer"),
        };
    }
    if audiences.iter().all(String::is_empty) {
        return refused(
            "token-issuer",
            "tokens name the server they are for: give that name with --token-audience",
        );
    }
    if !has_tls {
        return refused("token-issuer", "tokens need TLS: leave --tls=false out");
    }
    let repeated = |issuer: &IssuerSettings| issuers.iter().filter(|o| o.url == issuer.url).count();
    if let Some(twice) = issuers.iter().find(|issuer| repeated(issuer) > 1) {
        let reason = format!(
            "{} is named twice: an issuer has one file of keys",
            twice.url
        );
        return refused("token-issuer", &reason);
    }
    Ok(Some(TokenSettings {
        issuers: issuers.clone(),
        audiences: audiences.clone(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::gsi::gsi_of;

    fn environment(name: &str) -> Option<String> {
        (name == "X509_CERT_DIR").then(|| "/".to_owned())
    }

    #[test]
    fn a_certificate_implies_gsi_unless_tls_is_on() {
        let tls = |options: &Options| {
            let gsi = gsi_of(options, &environment).unwrap();
            let tls = tls_of(options, &gsi, &environment).unwrap();
            (gsi.is_some(), tls.map(|tls| tls.host))
        };
        let shows = Options {
            cert: Some("/c".into()),
            key: Some("/k".into()),
            ..Options::default()
        };
        let pair = Some(vec![("/c".into(), "/k".into())]);
        assert_eq!(tls(&Options::default()), (false, None));
        assert_eq!(tls(&shows), (true, pair.clone()));
        let alone = Options {
            tls: Some(true),
            ..shows.clone()
        };
        assert_eq!(tls(&alone), (false, pair.clone()));
        let both = Options {
            gridmap: Some("/m".into()),
            ..alone
        };
        assert_eq!(tls(&both), (true, pair));
        let never = Options {
            tls: Some(false),
            ..shows
        };
        assert_eq!(tls(&never), (true, None));
    }

    #[test]
    fn settings_of_impossible_logins_are_refused_by_name() {
        let refused = |options: &Options, has_tls| {
            let passwords = passwords_of(options, has_tls).map(drop);
            let error = passwords.and_then(|()| tokens_of(options, has_tls).map(drop));
            error.unwrap_err().to_string()
        };
        let file = Options {
            password_file: Some("/p".into()),
            ..Options::default()
        };
        assert!(refused(&file, false).starts_with("password-file: "));
        assert!(passwords_of(&file, true).unwrap().is_some());
        let in_clear = Options {
            allow_clear_passwords: Some(true),
            ..Options::default()
        };
        assert!(refused(&in_clear, true).starts_with("allow-clear-passwords: "));
        let issuer = |url: &str| IssuerSettings {
            url: url.to_owned(),
            keys: "/keys".into(),
        };
        let tokens = |issuers: &[&str], audiences: &[&str]| Options {
            token_issuer: issuers.iter().map(|url| issuer(url)).collect(),
            token_audience: audiences.iter().map(|&name| name.to_owned()).collect(),
            ..Options::default()
        };
        assert!(refused(&tokens(&["i"], &[]), true).starts_with("token-issuer: "));
        assert!(refused(&tokens(&["i"], &["a"]), false).starts_with("token-issuer: "));
        let twice = refused(&tokens(&["i", "j", "i"], &["a"]), true);
        assert!(
            twice.starts_with("token-issuer: i is named twice"),
            "{twice}"
        );
        assert!(refused(&tokens(&[], &["a"]), true).starts_with("token-audience: "));
        let good = tokens_of(&tokens(&["i", "j"], &["a"]), true).unwrap();
        assert_eq!(good.unwrap().issuers.len(), 2);
        assert_eq!(
            "https://i/?a=b=/k".parse(),
            Ok(IssuerSettings {
                url: "https://i/?a=b".to_owned(),
                keys: "/k".into(),
            })
        );
        assert!("https://i/".parse::<IssuerSettings>().is_err());
    }
}
