//! Tokens of files: for each endpoint the one that its files name. Pure.

use std::collections::BTreeMap;

use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use jiff::Timestamp;
use serde_json::{Map, Value};

use super::refusal::{FtsResult, invalid};
use crate::store::endpoint_of;

/// Longest token.
const TOKEN_BYTES_MAX: usize = 16 << 10;

/// What a token must say of itself.
const CLAIMS: [&str; 5] = ["iss", "nbf", "exp", "scope", "aud"];

/// A token for an endpoint, and when it ends.
#[derive(Clone, PartialEq)]
pub(super) struct Token {
    pub(super) text: String,
    pub(super) expires: Timestamp,
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(..)")
    }
}

/// By endpoint.
pub(super) type EndpointTokens = BTreeMap<String, Token>;

/// Adds the tokens of a file to those of its submission.
///
/// # Errors
/// A token is missing, is none, or is another than that of an earlier file for the same endpoint:
/// agents log in to an endpoint once for many files.
pub(super) fn read(
    file: &Map<String, Value>,
    sources: &[String],
    destinations: &[String],
    tokens: &mut EndpointTokens,
) -> FtsResult<()> {
    let list = |name: &str| match file.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::Array(list)) => {
            let text = |token: &Value| token.as_str().map(|token| token.trim().to_owned());
            let list = list.iter().map(text).collect::<Option<Vec<String>>>();
            list.ok_or_else(|| invalid(format!("{name} holds no text")))
        }
        Some(_) => Err(invalid(format!("{name} is not a list"))),
    };
    let (of_sources, of_destinations) = (list("source_tokens")?, list("destination_tokens")?);
    if of_sources.is_empty() && of_destinations.is_empty() {
        return Ok(());
    }
    let pairs = [
        ("source", sources, of_sources),
        ("destination", destinations, of_destinations),
    ];
    for (side, urls, list) in pairs {
        if urls.len() != list.len() {
            return Err(invalid(format!("each {side} needs a token of its own")));
        }
        for (url, text) in urls.iter().zip(list) {
            let Some(endpoint) = endpoint_of(url) else {
                continue;
            };
            let expires = end(&text)?;
            let token = Token { text, expires };
            match tokens.get(&endpoint) {
                Some(earlier) if *earlier != token => {
                    return Err(invalid(format!("two tokens for {endpoint} in one job")));
                }
                _ => drop(tokens.insert(endpoint, token)),
            }
        }
    }
    Ok(())
}

/// When a token ends, by itself: its issuer is asked by the storage, not here.
fn end(token: &str) -> FtsResult<Timestamp> {
    let wrong = || invalid("Token is not a JSON web token");
    if token.is_empty() {
        return Err(invalid("Token is empty"));
    }
    let mut parts = token.split('.');
    let payload = parts.nth(1).filter(|_| token.len() <= TOKEN_BYTES_MAX);
    let payload = BASE64_URL_SAFE_NO_PAD.decode(payload.ok_or_else(wrong)?);
    let payload = payload.map_err(|_| wrong())?;
    let claims: Map<String, Value> = serde_json::from_slice(&payload).map_err(|_| wrong())?;
    for claim in CLAIMS {
        if claims.get(claim).is_none_or(Value::is_null) {
            return Err(invalid(format!("Token does not contain an {claim} claim")));
        }
    }
    let seconds = claims["exp"].as_f64().unwrap_or(0.0);
    #[allow(clippy::cast_possible_truncation, reason = "casts of floats saturate")]
    Timestamp::from_second(seconds as i64).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn token(claims: &Value) -> String {
        let payload = BASE64_URL_SAFE_NO_PAD.encode(claims.to_string());
        format!("e30.{payload}.c2ln")
    }

    fn whole(subject: &str) -> Value {
        json!({"iss": "https://issuer.example.org", "nbf": 0, "exp": 4_000_000_000_u64,
            "scope": "storage.read:/", "aud": "any", "sub": subject})
    }

    fn tokens_of(file: &Value) -> Result<EndpointTokens, String> {
        let urls = |side: &str| [format!("ftpes://{side}.example.org/x")];
        let mut tokens = EndpointTokens::new();
        let file = file.as_object().unwrap();
        match read(file, &urls("a"), &urls("b"), &mut tokens) {
            Ok(()) => Ok(tokens),
            Err(refusal) => Err(refusal.message),
        }
    }

    #[test]
    fn each_endpoint_has_its_token() {
        let (a, b) = (token(&whole("a")), token(&whole("b")));
        let file = json!({"source_tokens": [a], "destination_tokens": [b]});
        let tokens = tokens_of(&file).unwrap();
        assert_eq!(tokens["ftpes://a.example.org"].text, a);
        assert_eq!(tokens["ftpes://b.example.org"].text, b);
        assert_eq!(
            tokens["ftpes://b.example.org"].expires.as_second(),
            4_000_000_000
        );
        assert!(
            tokens_of(&json!({"source_tokens": null}))
                .unwrap()
                .is_empty()
        );
    }

    #[test]
    fn tokens_that_are_none_are_refused() {
        let good = token(&whole("a"));
        let without = |claim: &str| {
            let mut claims = whole("a");
            claims.as_object_mut().unwrap().remove(claim);
            token(&claims)
        };
        let cases = [
            (
                json!([without("iss")]),
                "Token does not contain an iss claim",
            ),
            (
                json!([without("aud")]),
                "Token does not contain an aud claim",
            ),
            (json!([""]), "Token is empty"),
            (json!(["a.b"]), "Token is not a JSON web token"),
            (json!([]), "each source needs a token of its own"),
            (json!([good, good]), "each source needs a token of its own"),
            (json!([7]), "source_tokens holds no text"),
        ];
        for (sources, text) in cases {
            let file = json!({"source_tokens": sources, "destination_tokens": [good]});
            let refused = tokens_of(&file).err().unwrap();
            assert!(refused.ends_with(text), "{file}: {refused}");
        }
    }

    #[test]
    fn one_endpoint_has_one_token_in_a_job() {
        let (one, two) = (token(&whole("1")), token(&whole("2")));
        let urls = ["ftpes://a/x".to_owned()];
        let mut tokens = EndpointTokens::new();
        let file = json!({"source_tokens": [one], "destination_tokens": [two]});
        let file = file.as_object().unwrap();
        assert!(read(file, &urls, &urls, &mut tokens).is_err());
    }
}
