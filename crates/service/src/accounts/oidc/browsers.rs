//! Logins of browsers by the code flow of OpenID Connect, with PKCE (RFC 7636).
//!
//! The service keeps nothing of a login that is under way: state, nonce and verifier follow from
//! one secret in a cookie of the browser, so that any process can end what another began, and what
//! comes back to another browser fits nothing there.

use std::{
    sync::Arc,
    time::{Instant, SystemTime},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use openssl::memcmp;
use reqwest::Url;
use ring::{digest, hmac};
use zeroize::Zeroizing;

use super::{
    Discovery, Issuer, IssuerError, IssuerSettings, Issuers, KEYS_LIFE, allowed, failed, identity,
};
use crate::accounts::secrets::{self, SecretError};

/// Path that issuers send browsers back to.
pub(crate) const RETURN_PATH: &str = "/login/return";

/// What the service wants to know.
const SCOPE: &str = "openid";

/// Longest code of an issuer that is sent back to it.
const CODE_BYTES_MAX: usize = 4096;

/// A login of a browser that is under way.
pub(crate) struct BrowserLogin {
    /// At this issuer.
    pub(crate) issuer: String,
    /// Where the browser goes afterwards.
    pub(crate) next: String,
    secret: Zeroizing<String>,
}

impl BrowserLogin {
    /// A new one.
    pub(crate) fn new(issuer: &str, next: &str) -> Result<Self, SecretError> {
        Ok(Self {
            issuer: issuer.to_owned(),
            next: next.to_owned(),
            secret: secrets::new_secret("")?,
        })
    }

    /// As a cookie.
    pub(crate) fn to_cookie(&self) -> Zeroizing<String> {
        let [issuer, next] = [&self.issuer, &self.next].map(|text| URL_SAFE_NO_PAD.encode(text));
        Zeroizing::new(format!("{}.{issuer}.{next}", self.secret.as_str()))
    }

    /// From a cookie.
    pub(crate) fn from_cookie(cookie: &str) -> Option<Self> {
        let mut parts = cookie.splitn(3, '.');
        let secret = parts.next().filter(|secret| secret.len() >= 43)?;
        let mut text = || {
            let bytes = URL_SAFE_NO_PAD.decode(parts.next()?).ok()?;
            String::from_utf8(bytes).ok()
        };
        Some(Self {
            issuer: text()?,
            next: text()?,
            secret: Zeroizing::new(secret.to_owned()),
        })
    }

    /// Whether this is what the issuer was given to bring back.
    pub(crate) fn has_state(&self, state: &str) -> bool {
        is_same(&self.derived("state"), state)
    }

    /// One of the values of the flow: 256 bits, of which none tells another.
    fn derived(&self, of: &str) -> String {
        let key = hmac::Key::new(hmac::HMAC_SHA256, self.secret.as_bytes());
        let all = [of, &self.issuer, &self.next].join("\0");
        URL_SAFE_NO_PAD.encode(hmac::sign(&key, all.as_bytes()))
    }
}

impl Issuers {
    /// Issuers that browsers can log in at, by URL.
    pub(crate) fn of_browsers(&self) -> Vec<&str> {
        let settings = self.issuers.values().map(|issuer| &issuer.settings);
        let fit = settings.filter(|settings| client(settings).is_ok());
        let mut urls: Vec<&str> = fit.map(|settings| settings.issuer.as_str()).collect();
        urls.sort_unstable();
        urls
    }

    /// Where a browser goes to log in.
    pub(crate) async fn authorization_url(
        &self,
        login: &BrowserLogin,
    ) -> Result<String, IssuerError> {
        let issuer = self.issuers.get(&login.issuer);
        let issuer = issuer.ok_or(IssuerError::Unknown)?;
        let settings = &issuer.settings;
        let (id, redirect) = client(settings)?;
        let discovery = self.kept_discovery(issuer).await?;
        let endpoint = discovery.authorization_endpoint.as_ref();
        let missing = || failed(settings, "it names no authorization endpoint");
        let mut url = allowed(settings, endpoint.ok_or_else(missing)?)?;
        let verifier = login.derived("verifier");
        let challenge = digest::digest(&digest::SHA256, verifier.as_bytes());
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", id)
            .append_pair("redirect_uri", redirect)
            .append_pair("scope", SCOPE)
            .append_pair("state", &login.derived("state"))
            .append_pair("nonce", &login.derived("nonce"))
            .append_pair("code_challenge", &URL_SAFE_NO_PAD.encode(challenge))
            .append_pair("code_challenge_method", "S256");
        Ok(url.into())
    }

    /// The identity of the user that the issuer gave this code for: `oidc:ISSUER#SUBJECT`.
    pub(crate) async fn redeem(
        &self,
        login: &BrowserLogin,
        code: &str,
    ) -> Result<String, IssuerError> {
        let issuer = self.issuers.get(&login.issuer);
        let issuer = issuer.ok_or(IssuerError::Unknown)?;
        let settings = &issuer.settings;
        let (id, redirect) = client(settings)?;
        let other = |why| IssuerError::OtherLogin {
            issuer: settings.issuer.clone(),
            why,
        };
        let is_code = (1..=CODE_BYTES_MAX).contains(&code.len())
            && code.bytes().all(|byte| (b' '..=b'~').contains(&byte));
        if !is_code {
            return Err(other("its code is none"));
        }
        let discovery = self.kept_discovery(issuer).await?;
        let endpoint = discovery.token_endpoint.as_ref();
        let missing = || failed(settings, "it names no token endpoint");
        let url: Url = allowed(settings, endpoint.ok_or_else(missing)?)?;
        let verifier = Zeroizing::new(login.derived("verifier"));
        let form = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", redirect),
            ("code_verifier", verifier.as_str()),
        ];
        let secret = settings
            .client_secret()
            .map_err(|error| failed(settings, error))?;
        let tokens = self.token(settings, url, id, secret.as_ref(), form).await?;
        let text = tokens.identity.ok_or_else(|| other("it has no id_token"))?;
        // OpenID Connect Core, section 3.1.3.7.
        let claims = self.claims(issuer, &text).await?;
        if claims.issuer != settings.issuer {
            return Err(other("another issuer is named"));
        }
        claims.check(&[id.to_owned()], SystemTime::now())?;
        let several = claims.audience.names().len() > 1;
        let is_ours = match &claims.authorized_party {
            Some(party) => party == id,
            None => !several,
        };
        if !is_ours {
            return Err(other("it is for another client"));
        }
        let nonce = claims.nonce.as_deref().unwrap_or_default();
        if !is_same(nonce, &login.derived("nonce")) {
            return Err(other("its nonce is another"));
        }
        Ok(identity(&claims)?)
    }

    async fn kept_discovery(&self, issuer: &Issuer) -> Result<Arc<Discovery>, IssuerError> {
        let mut kept = issuer.discovery.lock().await;
        if let Some((discovery, at)) = &*kept
            && at.elapsed() < KEYS_LIFE
        {
            return Ok(Arc::clone(discovery));
        }
        let discovery = Arc::new(self.discovery(&issuer.settings).await?);
        *kept = Some((Arc::clone(&discovery), Instant::now()));
        Ok(discovery)
    }
}

/// In a time that tells nothing of where they differ.
pub(crate) fn is_same(one: &str, other: &str) -> bool {
    one.len() == other.len() && memcmp::eq(one.as_bytes(), other.as_bytes())
}

/// What the issuer calls the service, and where it sends browsers back to.
fn client(settings: &IssuerSettings) -> Result<(&str, &str), IssuerError> {
    let both = settings
        .client_id
        .as_ref()
        .zip(settings.redirect_url.as_ref());
    let both = both.ok_or_else(|| IssuerError::NoClient {
        issuer: settings.issuer.clone(),
    })?;
    Ok((both.0, both.1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_in_a_cookie_is_the_same_and_its_values_differ() {
        let login = BrowserLogin::new("https://i.example.org", "/jobs?state=failed").unwrap();
        let again = BrowserLogin::from_cookie(&login.to_cookie()).unwrap();
        assert_eq!(again.next, "/jobs?state=failed");
        assert!(again.has_state(&login.derived("state")));
        let values = ["state", "nonce", "verifier"].map(|of| again.derived(of));
        assert!(values[0] != values[1] && values[1] != values[2] && values[2] != values[0]);
        assert!(values.iter().all(|value| value.len() == 43));
        for wrong in ["", "x", "a.b", "a.b.c", &login.to_cookie()[1..]] {
            let login = BrowserLogin::from_cookie(wrong);
            assert!(
                !login.is_some_and(|login| login.has_state(&values[0])),
                "{wrong}"
            );
        }
    }

    #[test]
    fn what_the_cookie_says_beside_its_secret_is_bound_to_the_state() {
        let login = BrowserLogin::new("https://i.example.org", "/jobs").unwrap();
        let state = login.derived("state");
        let cookie = login.to_cookie();
        let parts: Vec<&str> = cookie.split('.').collect();
        let other = URL_SAFE_NO_PAD.encode("https://evil.example.org");
        for changed in [
            format!("{}.{other}.{}", parts[0], parts[2]),
            format!("{}.{}.{other}", parts[0], parts[1]),
        ] {
            assert!(
                !BrowserLogin::from_cookie(&changed)
                    .unwrap()
                    .has_state(&state)
            );
        }
    }
}
