//! Tokens in the text of a control channel: `ADAT <base64>` and `335 ADAT=<base64>`. RFC 2228 §3.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Longest token, in bytes before base64. A chain of certificates is in one.
pub const TOKEN_BYTES_MAX: usize = 128 * 1024;

/// The text is no token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdatError {
    /// Not the standard alphabet, or cut short.
    #[error("not base64")]
    Base64,
    /// Longer than [`TOKEN_BYTES_MAX`].
    #[error("longer than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
}

/// Base64 with padding, on one line.
#[must_use]
pub fn encode(token: &[u8]) -> String {
    STANDARD.encode(token)
}

/// The other way round. Blanks around it do no harm.
///
/// # Errors
/// When it is not base64, or too long.
pub fn decode(text: &str) -> Result<Vec<u8>, AdatError> {
    let text = text.trim();
    if text.len() > TOKEN_BYTES_MAX.div_ceil(3) * 4 {
        return Err(AdatError::TooLong);
    }
    STANDARD.decode(text).map_err(|_| AdatError::Base64)
}

/// The line `ADAT ...` for a token, without line end.
#[must_use]
pub fn command(token: &[u8]) -> String {
    format!("ADAT {}", encode(token))
}

/// The text of the reply 335 (or 235) for a token. Clients look for it right behind the code.
#[must_use]
pub fn reply_text(token: &[u8]) -> String {
    format!("ADAT={}", encode(token))
}

/// The token in the text of a reply, if it has one.
///
/// # Errors
/// As [`decode`].
pub fn token_of_reply(text: &str) -> Result<Option<Vec<u8>>, AdatError> {
    let label = text.get(..5).unwrap_or_default();
    if label.eq_ignore_ascii_case("ADAT=") {
        decode(&text[5..]).map(Some)
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_both_forms() {
        for length in [0, 1, 2, 3, 1000, TOKEN_BYTES_MAX] {
            let token = vec![0xfb; length];
            let command = command(&token);
            let argument = command.strip_prefix("ADAT ").expect("a command");
            assert_eq!(decode(argument), Ok(token.clone()));
            assert_eq!(token_of_reply(&reply_text(&token)), Ok(Some(token)));
        }
        assert_eq!(token_of_reply("more data needed"), Ok(None));
        assert_eq!(token_of_reply(""), Ok(None));
    }

    #[test]
    fn malformed_tokens_are_refused() {
        for text in [
            "A",
            "AAA",
            "AA A",
            "AAAA=",
            "-_AA",
            "\u{e4}\u{e4}\u{e4}\u{e4}",
        ] {
            assert_eq!(decode(text), Err(AdatError::Base64), "{text}");
        }
        let long = "A".repeat(TOKEN_BYTES_MAX * 4 / 3 + 8);
        assert_eq!(decode(&long), Err(AdatError::TooLong));
    }
}
