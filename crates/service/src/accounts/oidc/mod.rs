//! Tokens of other issuers: OpenID Connect, WLCG and SciTokens profiles.
//!
//! Only issuers of the settings are asked: what a token or a user names leads to no other request.

mod browsers;
mod grants;

use std::{
    collections::HashMap,
    fs, io,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use godwit_gsi::token::{Claims, KeySet, KeySetError, Token, TokenError};
use godwit_service_api::account::LoginIssuer;
use reqwest::{Client, Url};
use serde::Deserialize;
use tokio::sync::Mutex;
use zeroize::Zeroizing;

pub(crate) use browsers::{BrowserLogin, RETURN_PATH, is_same};
pub use grants::{IssuedTokens, TokenGrant};

/// Keys are fetched again after this.
const KEYS_LIFE: Duration = Duration::from_secs(3600);

/// Keys that cannot be fetched again are used so long.
const KEYS_LIFE_MAX: Duration = Duration::from_secs(24 * 3600);

/// Least time between two fetches from one issuer, whatever tokens name.
const FETCH_GAP: Duration = Duration::from_secs(60);

/// Begins the names of identities that issuers prove.
const IDENTITY_PREFIX: &str = "oidc:";

const FETCH_LIMIT: Duration = Duration::from_secs(10);

/// Longest document that is read.
const DOCUMENT_BYTES_MAX: usize = 1 << 20;

/// What command lines ask for where the settings of the issuer name no scopes: who the user is, and
/// that the token can be renewed.
const LOGIN_SCOPE: &str = "openid offline_access";

/// An issuer whose tokens are taken.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct IssuerSettings {
    /// URL, as tokens name it.
    pub issuer: String,
    /// Tokens must be for one of these.
    pub audiences: Vec<String>,
    /// Where its keys are; `None`: its discovery document says so.
    pub keys: Option<String>,
    /// What the issuer calls this service: it may then renew and exchange tokens of users.
    pub client_id: Option<String>,
    /// File whose first line is the secret of this client; `None`: it is a public one.
    pub client_secret_file: Option<PathBuf>,
    /// What is asked for when a token is exchanged.
    pub scope: Option<String>,
    /// What the issuer calls command lines, which then log in there: a public client.
    pub login_client_id: Option<String>,
    /// What command lines ask for.
    pub login_scope: Option<String>,
    /// Where the issuer sends browsers back to after a login on the web page:
    /// `https://HOST/login/return`, as its client `client_id` has it. `None`: the page does not
    /// offer this issuer.
    pub redirect_url: Option<String>,
    /// Keys may come by plain HTTP: for tests on one host.
    #[serde(default)]
    pub allow_http: bool,
}

impl IssuerSettings {
    /// # Errors
    /// What is wrong with them, for the operator.
    pub(crate) fn check(&self) -> Result<(), String> {
        let Some(redirect) = &self.redirect_url else {
            return Ok(());
        };
        let wrong = |why: &str| Err(format!("issuer {}: redirect-url {why}", self.issuer));
        if self.client_id.is_none() {
            return wrong("needs client-id, too");
        }
        match Url::parse(redirect) {
            Ok(url) if url.path() == RETURN_PATH && url.query().is_none() => Ok(()),
            _ => wrong(&format!("is https://HOST{RETURN_PATH}")),
        }
    }

    /// Whether browsers come back by TLS: the page is behind it, whatever the service listens on.
    pub(crate) fn returns_by_tls(&self) -> bool {
        let redirect = self.redirect_url.as_deref().map(Url::parse);
        redirect.is_some_and(|url| url.is_ok_and(|url| url.scheme() == "https"))
    }

    fn client_secret(&self) -> io::Result<Option<Zeroizing<String>>> {
        let read = |path: &PathBuf| {
            let text = Zeroizing::new(fs::read_to_string(path)?);
            Ok(Zeroizing::new(
                text.lines().next().unwrap_or_default().to_owned(),
            ))
        };
        self.client_secret_file.as_ref().map(read).transpose()
    }
}

/// Why a token of an issuer is refused, or none is granted. Messages hold no part of a token.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// It is none, or not good.
    #[error(transparent)]
    Token(#[from] TokenError),
    /// Its issuer is not in the settings.
    #[error("the token's issuer is not one that is accepted")]
    Unknown,
    /// What is asked of the issuer cannot be had now.
    #[error("{issuer}: {why}")]
    Unavailable {
        /// URL.
        issuer: String,
        /// What happened.
        why: String,
    },
    /// The service is not a client of the issuer.
    #[error("the settings of {issuer} have no client-id, so that it gives this service no tokens")]
    NoClient {
        /// URL.
        issuer: String,
    },
    /// It gives no token for what it is shown, and would not later.
    #[error("{issuer} refuses: {code}")]
    Refused {
        /// URL.
        issuer: String,
        /// RFC 6749, section 5.2, as `invalid_grant`.
        code: String,
    },
    /// The identity that it gives a browser belongs to something else.
    #[error("{issuer} gives no identity for this login: {why}")]
    OtherLogin {
        /// URL.
        issuer: String,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// All issuers whose tokens are taken.
#[derive(Default)]
pub struct Issuers {
    issuers: HashMap<String, Issuer>,
    client: Client,
}

struct Issuer {
    settings: IssuerSettings,
    keys: Mutex<Keys>,
    /// For browsers: each login needs it.
    discovery: Mutex<Option<(Arc<Discovery>, Instant)>>,
}

#[derive(Default)]
struct Keys {
    set: Option<(Arc<KeySet>, Instant)>,
    asked: Option<Instant>,
}

#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    jwks_uri: String,
    token_endpoint: Option<String>,
    authorization_endpoint: Option<String>,
}

impl Issuers {
    /// Issuers of the settings.
    ///
    /// # Errors
    /// No HTTP client can be made.
    pub fn new(settings: &[IssuerSettings]) -> Result<Self, reqwest::Error> {
        let issuers = settings.iter().map(|settings| {
            let issuer = Issuer {
                settings: settings.clone(),
                keys: Mutex::default(),
                discovery: Mutex::default(),
            };
            (settings.issuer.clone(), issuer)
        });
        let client = Client::builder()
            .timeout(FETCH_LIMIT)
            .redirect(reqwest::redirect::Policy::none());
        Ok(Self {
            issuers: issuers.collect(),
            client: client.build()?,
        })
    }

    /// Where command lines can log in.
    pub fn logins(&self) -> Vec<LoginIssuer> {
        let settings = self.issuers.values().map(|issuer| &issuer.settings);
        let login = |settings: &IssuerSettings| {
            let scope = settings.login_scope.as_deref().unwrap_or(LOGIN_SCOPE);
            Some(LoginIssuer {
                issuer: settings.issuer.clone(),
                client_id: settings.login_client_id.clone()?,
                scope: scope.to_owned(),
                audience: settings.audiences.first().cloned(),
            })
        };
        let mut logins: Vec<_> = settings.filter_map(login).collect();
        logins.sort_by(|one, other| one.issuer.cmp(&other.issuer));
        logins
    }

    /// The identity of the user that a token proves: `oidc:ISSUER#SUBJECT`.
    ///
    /// # Errors
    /// Why it proves none.
    pub async fn subject(&self, text: &str) -> Result<String, IssuerError> {
        self.verified(text).await.map(|(identity, _)| identity)
    }

    /// Whether an identity is of an issuer of the settings, or of none: of a certificate.
    pub(super) fn may_prove(&self, identity: &str) -> bool {
        let Some(rest) = identity.strip_prefix(IDENTITY_PREFIX) else {
            return true;
        };
        // Both may hold `#`.
        let mut issuers = self.issuers.keys();
        issuers.any(|issuer| {
            rest.strip_prefix(issuer.as_str())
                .is_some_and(|subject| subject.starts_with('#'))
        })
    }

    /// As [`Issuers::subject`], and until when the token is good.
    pub(super) async fn verified(&self, text: &str) -> Result<(String, SystemTime), IssuerError> {
        let token = Token::parse(text)?;
        let issuer = self
            .issuers
            .get(token.issuer())
            .ok_or(IssuerError::Unknown)?;
        let claims = self.claims(issuer, text).await?;
        claims.check(&issuer.settings.audiences, SystemTime::now())?;
        Ok((identity(&claims)?, claims.expires()))
    }

    /// What a token says that this issuer has signed.
    async fn claims(&self, issuer: &Issuer, text: &str) -> Result<Claims, IssuerError> {
        match Token::parse(text)?.verify(&*self.keys(issuer, false).await?) {
            // The issuer may have a new key.
            Err(TokenError::UnknownKey) => {
                Ok(Token::parse(text)?.verify(&*self.keys(issuer, true).await?)?)
            }
            verified => Ok(verified?),
        }
    }

    async fn keys(&self, issuer: &Issuer, newer: bool) -> Result<Arc<KeySet>, IssuerError> {
        let mut keys = issuer.keys.lock().await;
        let kept = keys.set.clone();
        let age = kept.as_ref().map(|(_, at)| at.elapsed());
        let may_ask = keys.asked.is_none_or(|at| at.elapsed() >= FETCH_GAP);
        let wants = newer || age.is_none_or(|age| age >= KEYS_LIFE);
        if wants && may_ask {
            keys.asked = Some(Instant::now());
            match self.fetch(&issuer.settings).await {
                Ok(set) => {
                    let set = Arc::new(set);
                    keys.set = Some((Arc::clone(&set), Instant::now()));
                    return Ok(set);
                }
                Err(error) => tracing::warn!(%error, "keys were not fetched"),
            }
        }
        match kept {
            Some((set, at)) if at.elapsed() < KEYS_LIFE_MAX => Ok(set),
            _ => Err(failed(
                &issuer.settings,
                "its keys could not be fetched of late",
            )),
        }
    }

    async fn fetch(&self, settings: &IssuerSettings) -> Result<KeySet, IssuerError> {
        let url = match &settings.keys {
            Some(url) => url.clone(),
            None => self.discovery(settings).await?.jwks_uri,
        };
        let document = self.document(settings, &url).await?;
        KeySet::parse(&document).map_err(|error: KeySetError| failed(settings, error))
    }

    async fn discovery(&self, settings: &IssuerSettings) -> Result<Discovery, IssuerError> {
        let base = settings.issuer.trim_end_matches('/');
        let url = format!("{base}/.well-known/openid-configuration");
        let document = self.document(settings, &url).await?;
        let parsed = serde_json::from_slice::<Discovery>(&document);
        let discovery = parsed.map_err(|error| failed(settings, error))?;
        // OpenID Connect Discovery 4.3.
        if discovery.issuer != settings.issuer {
            return Err(failed(
                settings,
                "its discovery document is of another issuer",
            ));
        }
        Ok(discovery)
    }

    async fn document(&self, settings: &IssuerSettings, url: &str) -> Result<Vec<u8>, IssuerError> {
        let answer = self.client.get(allowed(settings, url)?).send().await;
        let answer = answer.and_then(reqwest::Response::error_for_status);
        bounded(settings, answer.map_err(|error| failed(settings, error))?).await
    }
}

fn identity(claims: &Claims) -> Result<String, TokenError> {
    match claims.subject.is_empty() {
        true => Err(TokenError::Malformed("it has no sub")),
        false => Ok(format!(
            "{IDENTITY_PREFIX}{}#{}",
            claims.issuer, claims.subject
        )),
    }
}

/// A URL that the issuer may be asked at.
fn allowed(settings: &IssuerSettings, url: &str) -> Result<Url, IssuerError> {
    let url = Url::parse(url).map_err(|error| failed(settings, error))?;
    match url.scheme() {
        "https" => Ok(url),
        "http" if settings.allow_http => Ok(url),
        _ => Err(failed(settings, "a URL of it is not https")),
    }
}

async fn bounded(
    settings: &IssuerSettings,
    mut answer: reqwest::Response,
) -> Result<Vec<u8>, IssuerError> {
    let mut document = Vec::new();
    loop {
        let chunk = answer.chunk().await;
        let Some(chunk) = chunk.map_err(|error| failed(settings, error))? else {
            return Ok(document);
        };
        if document.len() + chunk.len() > DOCUMENT_BYTES_MAX {
            return Err(failed(settings, "its answer is too long"));
        }
        document.extend_from_slice(&chunk);
    }
}

fn failed(settings: &IssuerSettings, why: impl ToString) -> IssuerError {
    IssuerError::Unavailable {
        issuer: settings.issuer.clone(),
        why: why.to_string(),
    }
}
