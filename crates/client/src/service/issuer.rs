//! An issuer of tokens (OpenID Connect) as a command line meets it: the device flow (RFC 8628),
//! renewal (RFC 6749, section 6) and withdrawal (RFC 7009) of tokens.
//!
//! An issuer is a peer: what it says is bounded, and what people see of it has no controls.

use std::{
    net::Ipv4Addr,
    time::{Duration, Instant},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use godwit_proto::command::Password;
use godwit_service_api::account::LoginIssuer;
use jiff::{SignedDuration, Timestamp};
use openssl::sha::sha256;
use reqwest::{Client, Response, StatusCode, Url, header::CONTENT_TYPE, redirect::Policy};
use serde::{Deserialize, de::DeserializeOwned};
use uuid::Uuid;

/// Longest time for one answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Longest answer.
const ANSWER_BYTES_MAX: usize = 256 << 10;

/// Longest time that people have for a login, whatever the issuer says.
const LOGIN_LIMIT: Duration = Duration::from_secs(30 * 60);

/// Time between two questions where the issuer says none (RFC 8628, section 3.2).
const INTERVAL: Duration = Duration::from_secs(5);

/// Least time between two questions, whatever the issuer says.
const INTERVAL_MIN: Duration = Duration::from_secs(1);

/// What `slow_down` adds (RFC 8628, section 3.5).
const SLOWER: Duration = Duration::from_secs(5);

/// Longest code that people have to type.
const CODE_BYTES_MAX: usize = 64;

/// Longest address that people have to open.
const ADDRESS_BYTES_MAX: usize = 2048;

/// Most of a text of a peer that people see.
const SHOWN_CHARS_MAX: usize = 256;

/// Longest token.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// A token without an end is taken to last so long.
const LIFE: SignedDuration = SignedDuration::from_mins(10);

/// Longest life of a token that is believed.
const LIFE_MAX: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Why an issuer gives no token. Messages hold no part of a token.
#[derive(Debug, thiserror::Error)]
pub enum IssuerError {
    /// It does not answer; it may later.
    #[error("{issuer}: {why}")]
    Unreachable {
        /// URL.
        issuer: String,
        /// What happened.
        why: String,
    },
    /// Its answer cannot be used.
    #[error("{issuer}: {why}")]
    Answer {
        /// URL.
        issuer: String,
        /// What is wrong with it.
        why: String,
    },
    /// It refuses.
    #[error("{issuer} refuses: {code}")]
    Refused {
        /// URL.
        issuer: String,
        /// RFC 6749, section 5.2, as `invalid_grant`.
        code: String,
    },
    /// The user said no.
    #[error("the login was denied at {issuer}")]
    Denied {
        /// URL.
        issuer: String,
    },
    /// The code is good no more.
    #[error("the code has expired before the login at {issuer} was complete: log in again")]
    Expired {
        /// URL.
        issuer: String,
    },
}

/// What an issuer gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Tokens {
    /// For the service.
    pub(super) access: Password,
    /// For the next access token.
    pub(super) refresh: Option<Password>,
    /// When the access token ends.
    pub(super) expires: Timestamp,
}

/// What people enter where, so that the issuer gives tokens to this command line.
pub(super) struct DeviceCode {
    /// Shown by people.
    pub(super) user_code: String,
    /// Where.
    pub(super) address: Url,
    /// The same with the code in it.
    pub(super) complete: Option<Url>,
    /// From now on.
    pub(super) lifetime: Duration,
    interval: Duration,
    device_code: Password,
    verifier: Option<Password>,
}

/// An issuer that has said where it is asked for what.
pub(super) struct Issuer<'a> {
    client: Client,
    login: &'a LoginIssuer,
    /// It is on this machine, without TLS, and so is what it names.
    local: bool,
    found: Discovery,
}

/// OpenID Connect Discovery 1.0, section 3; RFC 8628, section 4; RFC 8414, section 2.
#[derive(Deserialize)]
struct Discovery {
    issuer: String,
    token_endpoint: Option<String>,
    device_authorization_endpoint: Option<String>,
    revocation_endpoint: Option<String>,
    #[serde(default)]
    code_challenge_methods_supported: Vec<String>,
}

/// RFC 8628, section 3.2.
#[derive(Deserialize)]
struct DeviceAnswer {
    device_code: String,
    user_code: String,
    #[serde(alias = "verification_url")]
    verification_uri: String,
    verification_uri_complete: Option<String>,
    expires_in: u64,
    interval: Option<u64>,
}

/// RFC 6749, section 5.1.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    refresh_token: Option<String>,
    expires_in: Option<u32>,
}

/// RFC 6749, section 5.2.
#[derive(Deserialize)]
struct Refusal {
    error: String,
}

impl<'a> Issuer<'a> {
    /// Reads its discovery document. `local`: the service is on this machine, and its issuer may be
    /// there too, without TLS.
    pub(super) async fn find(login: &'a LoginIssuer, local: bool) -> Result<Self, IssuerError> {
        let local = local && is_local_http(&url_of(login)?);
        let mut client = Client::builder()
            .timeout(ANSWER_LIMIT)
            .redirect(Policy::none());
        if local {
            client = client.no_proxy();
        }
        let unreachable = |error: reqwest::Error| IssuerError::Unreachable {
            issuer: login.issuer.clone(),
            why: explained(error),
        };
        let mut issuer = Issuer {
            client: client.build().map_err(unreachable)?,
            login,
            local,
            found: Discovery {
                issuer: login.issuer.clone(),
                token_endpoint: None,
                device_authorization_endpoint: None,
                revocation_endpoint: None,
                code_challenge_methods_supported: Vec::new(),
            },
        };
        let base = login.issuer.trim_end_matches('/');
        let url = issuer.allowed(&format!("{base}/.well-known/openid-configuration"))?;
        let answer = issuer.client.get(url).send().await.map_err(unreachable)?;
        issuer.found = issuer.document(answer, "discovery document").await?;
        // OpenID Connect Discovery 4.3.
        match issuer.found.issuer == login.issuer {
            true => Ok(issuer),
            false => Err(issuer.strange("its discovery document is of another issuer")),
        }
    }

    /// Asks for a code (RFC 8628, section 3.1).
    pub(super) async fn device_code(&self) -> Result<DeviceCode, IssuerError> {
        let endpoint = self.found.device_authorization_endpoint.as_deref();
        let endpoint = endpoint
            .ok_or_else(|| self.strange("it has no logins for command lines (RFC 8628)"))?;
        let methods = &self.found.code_challenge_methods_supported;
        let proves = methods.iter().any(|method| method == "S256");
        let verifier = proves.then(|| {
            let random = || Uuid::new_v4().simple().to_string();
            Password::new(random() + &random())
        });
        let challenge = verifier.as_ref().map(challenge);
        let mut form = self.form(&[("scope", &self.login.scope)]);
        if let Some(challenge) = &challenge {
            form.extend([
                ("code_challenge", challenge.as_str()),
                ("code_challenge_method", "S256"),
            ]);
        }
        let answer = self.post(endpoint, &form).await?;
        let answer: DeviceAnswer = self.document(answer, "answer about a code").await?;
        let is_shown = |byte: u8| byte.is_ascii_graphic() || byte == b' ';
        let is_code = (1..=CODE_BYTES_MAX).contains(&answer.user_code.len())
            && answer.user_code.bytes().all(is_shown);
        if !is_code {
            return Err(self.strange("its code is none that people can type"));
        }
        if !is_token(&answer.device_code) {
            return Err(self.strange("its answer has no device code"));
        }
        let interval = answer.interval.map_or(INTERVAL, Duration::from_secs);
        let (interval, lifetime) = (
            interval.max(INTERVAL_MIN),
            Duration::from_secs(answer.expires_in).min(LOGIN_LIMIT),
        );
        if interval >= lifetime {
            return Err(self.strange("its code expires before it may be asked for tokens"));
        }
        let complete = answer.verification_uri_complete;
        Ok(DeviceCode {
            user_code: answer.user_code,
            address: self.address(&answer.verification_uri)?,
            complete: complete.map(|text| self.address(&text)).transpose()?,
            lifetime,
            interval,
            device_code: Password::new(answer.device_code),
            verifier,
        })
    }

    /// Asks until the user has logged in (RFC 8628, section 3.4).
    pub(super) async fn tokens(&self, code: &DeviceCode) -> Result<Tokens, IssuerError> {
        let issuer = || self.login.issuer.clone();
        let mut form = self.form(&[
            ("grant_type", "urn:ietf:params:oauth:grant-type:device_code"),
            ("device_code", code.device_code.reveal()),
        ]);
        let verifier = code.verifier.as_ref();
        form.extend(verifier.map(|verifier| ("code_verifier", verifier.reveal())));
        let mut polling = Polling {
            interval: code.interval,
            ends: Instant::now() + code.lifetime,
        };
        while let Some(pause) = polling.pause(Instant::now()) {
            tokio::time::sleep(pause).await;
            match self.grant(&form).await {
                Err(IssuerError::Refused { code, .. }) => match code.as_str() {
                    "authorization_pending" => {}
                    "slow_down" => polling.slow_down(),
                    "access_denied" => return Err(IssuerError::Denied { issuer: issuer() }),
                    "expired_token" => break,
                    _ => return Err(self.refused(code)),
                },
                Err(IssuerError::Unreachable { .. }) => polling.back_off(),
                ended => return ended,
            }
        }
        Err(IssuerError::Expired { issuer: issuer() })
    }

    /// Tokens for a refresh token.
    pub(super) async fn renew(&self, refresh: &Password) -> Result<Tokens, IssuerError> {
        let form = self.form(&[
            ("grant_type", "refresh_token"),
            ("refresh_token", refresh.reveal()),
        ]);
        let mut tokens = self.grant(&form).await?;
        // Without another the one before stays good.
        tokens.refresh.get_or_insert_with(|| refresh.clone());
        Ok(tokens)
    }

    /// Makes the issuer forget a token, if it can.
    pub(super) async fn withdraw(&self, token: &Password) -> Result<(), IssuerError> {
        let endpoint = self.found.revocation_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| self.strange("it withdraws no tokens"))?;
        let form = [
            ("token", token.reveal()),
            ("client_id", &self.login.client_id),
        ];
        let answer = self.post(endpoint, &form).await?;
        self.body(answer).await.map(drop)
    }

    async fn grant(&self, form: &[(&str, &str)]) -> Result<Tokens, IssuerError> {
        let endpoint = self.found.token_endpoint.as_deref();
        let endpoint = endpoint.ok_or_else(|| self.strange("it names no token endpoint"))?;
        let answer = self.post(endpoint, form).await?;
        let answer: TokenAnswer = self.document(answer, "answer about tokens").await?;
        let refresh = answer.refresh_token;
        if !is_token(&answer.access_token) || !refresh.iter().all(|token| is_token(token)) {
            return Err(self.strange("its answer has no token that can be used"));
        }
        let life = answer.expires_in.map(i64::from);
        let life = life.map_or(LIFE, SignedDuration::from_secs);
        Ok(Tokens {
            access: Password::new(answer.access_token),
            refresh: refresh.map(Password::new),
            expires: Timestamp::now() + life.min(LIFE_MAX),
        })
    }

    /// With what every question to the issuer says of this client.
    fn form<'b>(&'b self, what: &[(&'b str, &'b str)]) -> Vec<(&'b str, &'b str)> {
        let audience = self.login.audience.as_deref();
        let mut form = vec![("client_id", self.login.client_id.as_str())];
        form.extend(audience.map(|audience| ("audience", audience)));
        form.extend(what);
        form
    }

    async fn post(&self, endpoint: &str, form: &[(&str, &str)]) -> Result<Response, IssuerError> {
        let body = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        let post = self.client.post(self.allowed(endpoint)?);
        let post = post.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        post.body(body)
            .send()
            .await
            .map_err(|error| self.unreachable(explained(error)))
    }

    async fn document<T: DeserializeOwned>(
        &self,
        answer: Response,
        what: &str,
    ) -> Result<T, IssuerError> {
        let body = self.body(answer).await?;
        // What serde says of wrong JSON may quote a token.
        serde_json::from_slice(&body)
            .map_err(|_| self.strange(format!("its {what} is not as it must be")))
    }

    /// The body of an answer that is no error.
    async fn body(&self, mut answer: Response) -> Result<Vec<u8>, IssuerError> {
        let status = answer.status();
        let mut body = Vec::new();
        loop {
            let part = answer.chunk().await;
            let Some(part) = part.map_err(|error| self.unreachable(explained(error)))? else {
                break;
            };
            if body.len() + part.len() > ANSWER_BYTES_MAX {
                return Err(self.strange("its answer is too long"));
            }
            body.extend_from_slice(&part);
        }
        if status.is_success() {
            return Ok(body);
        }
        if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS {
            return Err(self.unreachable(format!("it answers {status}")));
        }
        match serde_json::from_slice::<Refusal>(&body) {
            Ok(refusal) if is_error_code(&refusal.error) => Err(self.refused(refusal.error)),
            _ => Err(self.strange(format!("it answers {status}"))),
        }
    }

    /// A URL that the issuer may be asked at.
    fn allowed(&self, text: &str) -> Result<Url, IssuerError> {
        let url = Url::parse(text).map_err(|_| self.strange("an address of it is no URL"))?;
        match self.is_safe(&url) {
            true => Ok(url),
            false => Err(self.strange("an address of it is not https")),
        }
    }

    fn is_safe(&self, url: &Url) -> bool {
        !has_user(url) && (url.scheme() == "https" || self.local && is_local_http(url))
    }

    /// A URL for people, without controls and with the host as resolvers see it.
    fn address(&self, text: &str) -> Result<Url, IssuerError> {
        let url = Url::parse(text).ok().filter(|url| {
            let is_plain = url.as_str().bytes().all(|byte| byte.is_ascii_graphic());
            is_plain && url.as_str().len() <= ADDRESS_BYTES_MAX && url.has_host()
        });
        url.filter(|url| self.is_safe(url))
            .ok_or_else(|| self.strange("the address for people is no https URL"))
    }

    fn unreachable(&self, why: String) -> IssuerError {
        let issuer = self.login.issuer.clone();
        IssuerError::Unreachable { issuer, why }
    }

    fn strange(&self, why: impl Into<String>) -> IssuerError {
        let (issuer, why) = (self.login.issuer.clone(), why.into());
        IssuerError::Answer { issuer, why }
    }

    fn refused(&self, code: String) -> IssuerError {
        let issuer = self.login.issuer.clone();
        IssuerError::Refused { issuer, code }
    }
}

/// When the issuer is asked whether the user has logged in.
struct Polling {
    interval: Duration,
    ends: Instant,
}

impl Polling {
    /// Time until the next question; `None`: the code has expired by then.
    fn pause(&self, now: Instant) -> Option<Duration> {
        (now + self.interval < self.ends).then_some(self.interval)
    }

    fn slow_down(&mut self) {
        self.interval = self.interval.saturating_add(SLOWER).min(LOGIN_LIMIT);
    }

    /// After a question without an answer (RFC 8628, section 3.5).
    fn back_off(&mut self) {
        self.interval = self.interval.saturating_mul(2).min(LOGIN_LIMIT);
    }
}

/// Whether a URL is of this machine, without TLS. No proxy may have what goes there.
pub(super) fn is_local_http(url: &Url) -> bool {
    url.scheme() == "http" && is_local(url)
}

/// The URL of an issuer, which a service names.
pub(super) fn url_of(login: &LoginIssuer) -> Result<Url, IssuerError> {
    let text = &login.issuer;
    let is_plain = text.len() <= ADDRESS_BYTES_MAX && text.bytes().all(|b| b.is_ascii_graphic());
    let url = Url::parse(text).ok().filter(|url| {
        let is_bare = url.query().is_none() && url.fragment().is_none();
        is_plain && is_bare && url.has_host() && !has_user(url)
    });
    url.ok_or_else(|| IssuerError::Answer {
        issuer: shown(text),
        why: "an issuer has a plain https URL, without user, query and fragment".to_owned(),
    })
}

/// What a peer says, for people: without controls, in ASCII, and not too long.
pub(super) fn shown(text: &str) -> String {
    text.chars()
        .take(SHOWN_CHARS_MAX)
        .flat_map(char::escape_default)
        .collect()
}

fn has_user(url: &Url) -> bool {
    !url.username().is_empty() || url.password().is_some()
}

/// Whether a URL is of this machine.
pub(super) fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    let is_loopback = |address: Ipv4Addr| address.is_loopback();
    host == "localhost" || host == "[::1]" || host.parse().is_ok_and(is_loopback)
}

/// RFC 7636, section 4.2.
fn challenge(verifier: &Password) -> String {
    URL_SAFE_NO_PAD.encode(sha256(verifier.reveal().as_bytes()))
}

fn is_token(text: &str) -> bool {
    let is_sized = (1..=TOKEN_BYTES_MAX).contains(&text.len());
    is_sized && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn is_error_code(text: &str) -> bool {
    let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
    (1..40).contains(&text.len()) && text.bytes().all(is_code)
}

/// An error with its causes, without the URL.
fn explained(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(&error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_issuer_is_asked_more_rarely_and_not_after_the_end_of_the_code() {
        let now = Instant::now();
        let after = |seconds| now + Duration::from_secs(seconds);
        let mut polling = Polling {
            interval: Duration::from_secs(5),
            ends: after(60),
        };
        assert_eq!(polling.pause(now), Some(Duration::from_secs(5)));
        polling.slow_down();
        assert_eq!(polling.pause(after(40)), Some(Duration::from_secs(10)));
        assert_eq!(polling.pause(after(50)), None);
        polling.back_off();
        assert_eq!(polling.pause(after(30)), Some(Duration::from_secs(20)));
        (0..100).for_each(|_| polling.back_off());
        assert_eq!(polling.pause(now), None);
    }

    #[test]
    fn a_challenge_is_that_of_the_example_of_rfc_7636() {
        let verifier = Password::new("dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk");
        let expected = "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM";
        assert_eq!(challenge(&verifier), expected);
    }

    #[test]
    fn the_url_of_an_issuer_is_plain_and_what_is_shown_of_another_has_no_controls() {
        let url_of = |issuer: &str| {
            url_of(&LoginIssuer {
                issuer: issuer.to_owned(),
                client_id: "cli".to_owned(),
                scope: String::new(),
                audience: None,
            })
        };
        let url = url_of("https://LOGIN.example.org/realm").expect("a plain one");
        assert_eq!(url.as_str(), "https://login.example.org/realm");
        for text in [
            "https://login.example.org@evil.example/",
            "https://:s@evil.example/",
            "https://evil.example/?https://login.example.org",
            "https://evil.example/#login",
            "https://evil.example/\n\u{1b}[2J",
            "https://evil.example/\u{202e}",
            "none",
        ] {
            let said = url_of(text).expect_err("refused").to_string();
            let is_shown = |c: char| c.is_ascii_graphic() || c == ' ';
            assert!(said.chars().all(is_shown), "{said:?}");
        }
    }

    #[test]
    fn only_addresses_of_this_machine_are_local() {
        let local = |text: &str| is_local(&Url::parse(text).expect("a URL"));
        for text in ["http://127.0.0.1:1/", "http://[::1]/", "http://LOCALHOST:8"] {
            assert!(local(text), "{text}");
        }
        for text in [
            "http://127.0.0.1:1@evil.example/",
            "http://127.0.0.1.evil.example/",
            "http://10.0.0.1/",
            "http://localhost.evil.example/",
        ] {
            assert!(!local(text), "{text}");
        }
    }
}
