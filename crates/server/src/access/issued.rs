//! Tokens that this server issues to its users: a part of their rights, for another server that is
//! to fetch or store a file in their place. Nothing is kept of them: their text says what they
//! allow, under a key of this process.

use std::time::SystemTime;

use godwit_gsi::seal::SealKey;
use serde::{Deserialize, Serialize};

use super::rights::Rights;

/// Begins each. No token of another issuer begins so: those begin with JSON in base64url.
const PREFIX: &str = "godwit.";

/// What a token says.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct IssuedToken {
    /// Whose rights they are a part of.
    pub(crate) account: String,
    /// The certificate that has led to it, if one has.
    pub(crate) identity: Option<String>,
    /// What the account rested on: see [`crate::login::standing`].
    pub(crate) standing: String,
    pub(crate) rights: Rights,
}

impl IssuedToken {
    /// Its text.
    ///
    /// # Errors
    /// A path of the rights is no text.
    pub(crate) fn seal(&self, key: &SealKey) -> Result<String, serde_json::Error> {
        Ok(format!("{PREFIX}{}", key.seal(&serde_json::to_vec(self)?)))
    }

    /// What a text says; `None`: it is of another issuer.
    ///
    /// # Errors
    /// Why it is refused, for its bearer.
    pub(crate) fn open(key: &SealKey, text: &str, now: SystemTime) -> Option<Result<Self, String>> {
        let sealed = text.strip_prefix(PREFIX)?;
        let Some(content) = key.open(sealed) else {
            let text = "the token is not of this server, or of a time before it was started";
            return Some(Err(text.to_owned()));
        };
        let token: Result<Self, _> = serde_json::from_slice(&content);
        Some(match token {
            Ok(token) if token.rights.have_ended(now) => Err("the token has expired".to_owned()),
            Ok(token) => Ok(token),
            Err(_) => Err("the token is of another version of this server".to_owned()),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use godwit_proto::FtpPath;

    use super::*;
    use crate::access::rights::{Access, Grant, Operation};

    const NOW: SystemTime = SystemTime::UNIX_EPOCH;

    fn token(path: &[u8], seconds: u64) -> IssuedToken {
        let grant = Grant {
            access: Access::Read,
            path: FtpPath::new(path).unwrap(),
        };
        IssuedToken {
            account: "jo".to_owned(),
            identity: None,
            standing: String::new(),
            rights: Rights::new(vec![grant], Some(NOW + Duration::from_secs(seconds))),
        }
    }

    #[test]
    fn a_token_comes_back_as_it_was_issued() {
        let key = SealKey::random().unwrap();
        let text = token(b"/d/f", 100).seal(&key).unwrap();
        let opened = IssuedToken::open(&key, &text, NOW).unwrap().unwrap();
        assert_eq!(opened.account, "jo");
        let may = |path: &str| {
            let path = FtpPath::new(path).unwrap();
            opened.rights.check(Operation::Read, &path, NOW).is_ok()
        };
        assert!(may("/d/f") && !may("/d/g"));
    }

    #[test]
    fn other_keys_other_texts_and_old_tokens_are_refused() {
        let key = SealKey::random().unwrap();
        let text = token(b"/f", 100).seal(&key).unwrap();
        let refused = |key: &SealKey, text: &str, now| {
            let opened = IssuedToken::open(key, text, now);
            opened.unwrap().unwrap_err()
        };
        let other = SealKey::random().unwrap();
        assert!(refused(&other, &text, NOW).contains("not of this server"));
        let expired = NOW + Duration::from_secs(100);
        assert!(refused(&key, &text, expired).contains("expired"));
        let foreign = format!("{PREFIX}{}", key.seal(b"{}"));
        assert!(refused(&key, &foreign, NOW).contains("version"));
        assert!(IssuedToken::open(&key, "eyJhbGciOi.e30.c2ln", NOW).is_none());
    }

    #[test]
    fn a_path_that_is_no_text_gets_no_token() {
        let key = SealKey::random().unwrap();
        assert!(token(b"/\xff", 100).seal(&key).is_err());
    }
}
