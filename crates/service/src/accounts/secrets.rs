//! API tokens and passwords: how they are made, what is stored of them, how they are verified.
//!
//! A token has 256 random bits, so one SHA-256 hides it, and finding it by its hash tells nothing
//! by the time that it takes. Passwords are hashed by argon2id.

use std::{ops::RangeInclusive, sync::LazyLock};

use argon2::{
    Argon2, PasswordHash, PasswordHasher as _, PasswordVerifier as _,
    password_hash::{Salt, SaltString},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::rand::{SecureRandom as _, SystemRandom};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

/// Begins every token, so that scanners for leaked secrets find them.
pub(super) const TOKEN_PREFIX: &str = "gwt_";

const TOKEN_BYTES: usize = 32;

/// Characters of a password.
const PASSWORD_CHARS: RangeInclusive<usize> = 10..=256;

/// Why a secret cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum SecretError {
    /// The kernel gave no random bytes.
    #[error("the system gave no random bytes")]
    Random,
    /// Too short or too long.
    #[error("a password has {} to {} characters", PASSWORD_CHARS.start(), PASSWORD_CHARS.end())]
    Length,
    /// The hash function failed.
    #[error("the password cannot be hashed")]
    Hash,
}

/// A new token.
pub(super) fn new_token() -> Result<Zeroizing<String>, SecretError> {
    new_secret(TOKEN_PREFIX)
}

/// 256 random bits after a prefix, in characters of URLs and cookies.
pub(super) fn new_secret(prefix: &str) -> Result<Zeroizing<String>, SecretError> {
    let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
    SystemRandom::new()
        .fill(&mut *bytes)
        .map_err(|_| SecretError::Random)?;
    let mut text = Zeroizing::new(String::with_capacity(64));
    text.push_str(prefix);
    URL_SAFE_NO_PAD.encode_string(bytes.as_slice(), &mut text);
    Ok(text)
}

/// What is stored of a token.
pub(super) fn hash_token(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

/// What is stored of a password. Takes a while: for a thread that may block.
///
/// # Errors
/// It has too few or too many characters, or the system gives no random bytes.
pub fn hash_password(password: &str) -> Result<String, SecretError> {
    if !PASSWORD_CHARS.contains(&password.chars().count()) {
        return Err(SecretError::Length);
    }
    let mut salt = [0; Salt::RECOMMENDED_LENGTH];
    SystemRandom::new()
        .fill(&mut salt)
        .map_err(|_| SecretError::Random)?;
    let salt = SaltString::encode_b64(&salt).map_err(|_| SecretError::Hash)?;
    // The default is OWASP's first recommendation: argon2id, 19 MiB, two passes.
    let hash = Argon2::default().hash_password(password.as_bytes(), &salt);
    Ok(hash.map_err(|_| SecretError::Hash)?.to_string())
}

/// Whether a password is the one of this hash. `None` takes as long, and is never right.
pub(super) fn verify_password(hash: Option<&str>, password: &str) -> bool {
    static NOBODY: LazyLock<String> =
        LazyLock::new(|| hash_password("the password of nobody").unwrap_or_default());
    let Ok(parsed) = PasswordHash::new(hash.unwrap_or(&NOBODY)) else {
        return false;
    };
    let verified = Argon2::default().verify_password(password.as_bytes(), &parsed);
    verified.is_ok() && hash.is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_differ_and_have_256_bits() {
        let (one, other) = (new_token().unwrap(), new_token().unwrap());
        assert_ne!(*one, *other);
        let bytes = URL_SAFE_NO_PAD.decode(one.strip_prefix(TOKEN_PREFIX).unwrap());
        assert_eq!(bytes.unwrap().len(), TOKEN_BYTES);
    }

    #[test]
    fn a_password_is_verified_against_its_hash_only() {
        let hash = hash_password("correct horse").unwrap();
        assert!(hash.starts_with("$argon2id$"));
        assert!(verify_password(Some(&hash), "correct horse"));
        assert!(!verify_password(Some(&hash), "correct horsf"));
        assert!(!verify_password(None, "the password of nobody"));
        assert!(!verify_password(Some("no hash"), "correct horse"));
        assert!(matches!(hash_password("short"), Err(SecretError::Length)));
    }
}
