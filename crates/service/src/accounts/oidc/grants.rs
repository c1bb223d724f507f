//! Tokens that an issuer grants for other tokens: by refresh (RFC 6749, section 6) and by exchange
//! (RFC 8693).

use std::fmt;

use jiff::{SignedDuration, Timestamp};
use reqwest::{StatusCode, Url, header::CONTENT_TYPE};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::{IssuerError, IssuerSettings, Issuers, allowed, bounded, failed};

/// A token without an end is taken to last so long.
const LIFE: SignedDuration = SignedDuration::from_mins(10);

/// Longest life of an access token that is taken from an issuer's answer.
const LIFE_MAX: SignedDuration = SignedDuration::from_hours(24 * 365);

/// Longest token.
const TOKEN_BYTES_MAX: usize = 64 << 10;

/// What is asked for where the settings of the issuer name no scopes: that the token can be
/// renewed.
const SCOPE: &str = "offline_access";

/// What an issuer is shown.
#[derive(Clone, Copy)]
pub enum TokenGrant<'a> {
    /// A refresh token, for a new access token.
    Refresh(&'a str),
    /// An access token of the user for this service, for tokens of the service on behalf of the
    /// user.
    Exchange(&'a str),
}

/// What an issuer gives.
pub struct IssuedTokens {
    /// For the endpoint.
    pub access: Zeroizing<String>,
    /// For the next access token. `None`: the one before stays good.
    pub refresh: Option<Zeroizing<String>>,
    /// Who the user is, where browsers log in (OpenID Connect Core, section 2).
    pub identity: Option<Zeroizing<String>>,
    /// When the access token ends.
    pub expires: Timestamp,
}

impl fmt::Debug for IssuedTokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IssuedTokens(until {})", self.expires)
    }
}

/// RFC 6749, section 5.1.
#[derive(Deserialize)]
struct TokenAnswer {
    access_token: String,
    refresh_token: Option<String>,
    id_token: Option<String>,
    expires_in: Option<u32>,
}

/// RFC 6749, section 5.2.
#[derive(Deserialize)]
struct TokenRefusal {
    error: String,
}

impl Issuers {
    /// Asks an issuer for tokens.
    ///
    /// # Errors
    /// [`IssuerError::Unknown`] and [`IssuerError::NoClient`] where the settings lack it,
    /// [`IssuerError::Refused`] where it would refuse again, else [`IssuerError::Unavailable`].
    pub async fn grant(
        &self,
        issuer: &str,
        shown: TokenGrant<'_>,
    ) -> Result<IssuedTokens, IssuerError> {
        let settings = &self
            .issuers
            .get(issuer)
            .ok_or(IssuerError::Unknown)?
            .settings;
        let no_client = || IssuerError::NoClient {
            issuer: issuer.to_owned(),
        };
        let id = settings.client_id.as_deref().ok_or_else(no_client)?;
        let endpoint = self.discovery(settings).await?.token_endpoint;
        let endpoint = endpoint.ok_or_else(|| failed(settings, "it names no token endpoint"))?;
        let url = allowed(settings, &endpoint)?;
        let form = form(settings, shown);
        let secret = settings
            .client_secret()
            .map_err(|error| failed(settings, error))?;
        self.token(settings, url, id, secret.as_ref(), form).await
    }

    pub(super) async fn token(
        &self,
        settings: &IssuerSettings,
        url: Url,
        id: &str,
        secret: Option<&Zeroizing<String>>,
        mut form: Vec<(&str, &str)>,
    ) -> Result<IssuedTokens, IssuerError> {
        let mut post = self.client.post(url);
        match secret {
            Some(secret) => post = post.basic_auth(id, Some(secret.as_str())),
            // A public client names itself (RFC 6749, section 3.2.1).
            None => form.push(("client_id", id)),
        }
        let form = form_urlencoded::Serializer::new(String::new())
            .extend_pairs(form)
            .finish();
        post = post.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        // Errors of the client may hold the URL, and no part of the form.
        let answer = post.body(form).send().await;
        let answer = answer.map_err(|error| failed(settings, error))?;
        let status = answer.status();
        let document = Zeroizing::new(bounded(settings, answer).await?);
        if status == StatusCode::BAD_REQUEST || status == StatusCode::UNAUTHORIZED {
            let refusal = serde_json::from_slice::<TokenRefusal>(&document);
            let code = refusal.map(|refusal| refusal.error).unwrap_or_default();
            let is_code = |byte: u8| byte.is_ascii_lowercase() || byte == b'_';
            let is_code = (1..40).contains(&code.len()) && code.bytes().all(is_code);
            return Err(IssuerError::Refused {
                issuer: settings.issuer.clone(),
                code: if is_code { code } else { status.to_string() },
            });
        }
        if !status.is_success() {
            return Err(failed(settings, format!("it answers {status}")));
        }
        // What serde says of wrong JSON may quote it.
        let answer = serde_json::from_slice::<TokenAnswer>(&document)
            .map_err(|_| failed(settings, "its answer has no access token"))?;
        let (access, refresh) = (answer.access_token, answer.refresh_token);
        let (access, refresh) = (Zeroizing::new(access), refresh.map(Zeroizing::new));
        let is_token = |token: &Zeroizing<String>| {
            let is_sized = (1..=TOKEN_BYTES_MAX).contains(&token.len());
            is_sized && token.bytes().all(|byte| byte.is_ascii_graphic())
        };
        let identity = answer.id_token.map(Zeroizing::new);
        if !is_token(&access) || !refresh.iter().chain(&identity).all(is_token) {
            return Err(failed(settings, "its answer has no token that can be used"));
        }
        let life = answer
            .expires_in
            .map(|seconds| SignedDuration::from_secs(seconds.into()));
        Ok(IssuedTokens {
            access,
            refresh,
            identity,
            expires: Timestamp::now() + life.unwrap_or(LIFE).min(LIFE_MAX),
        })
    }
}

fn form<'a>(settings: &'a IssuerSettings, shown: TokenGrant<'a>) -> Vec<(&'a str, &'a str)> {
    const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
    match shown {
        TokenGrant::Refresh(token) => {
            vec![("grant_type", "refresh_token"), ("refresh_token", token)]
        }
        TokenGrant::Exchange(token) => vec![
            (
                "grant_type",
                "urn:ietf:params:oauth:grant-type:token-exchange",
            ),
            ("subject_token", token),
            ("subject_token_type", ACCESS_TOKEN),
            ("scope", settings.scope.as_deref().unwrap_or(SCOPE)),
        ],
    }
}
