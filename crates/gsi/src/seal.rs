//! Text that only the holder of a key can have written: what a server gives to its users and takes
//! back as a credential.
//!
//! The text is `CONTENT.TAG`, both in base64url (RFC 4648 §5); the tag is HMAC-SHA256 (RFC 2104) of
//! the content. Readers can see the content, and change nothing of it.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use ring::{hmac, rand::SystemRandom};

/// Longest text that is opened.
pub const SEALED_BYTES_MAX: usize = 8 * 1024;

/// The system gives no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the system gives no random bytes for a key")]
pub struct NoRandomBytes;

/// A key that leaves this process nowhere.
pub struct SealKey(hmac::Key);

impl SealKey {
    /// A new one.
    ///
    /// # Errors
    /// [`NoRandomBytes`].
    pub fn random() -> Result<Self, NoRandomBytes> {
        let key = hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new());
        key.map(Self).map_err(|_| NoRandomBytes)
    }

    /// The text of `content`, which [`Self::open`] takes.
    pub fn seal(&self, content: &[u8]) -> String {
        format!("{}.{}", URL_SAFE_NO_PAD.encode(content), self.tag(content))
    }

    /// The tag alone, in base64url: tells whether two contents are the same, and nothing of them.
    pub fn tag(&self, content: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(hmac::sign(&self.0, content))
    }

    /// The content of a text of this key; `None`: it is of another, or of none.
    pub fn open(&self, text: &str) -> Option<Vec<u8>> {
        if text.len() > SEALED_BYTES_MAX {
            return None;
        }
        let (content, tag) = text.split_once('.')?;
        let content = URL_SAFE_NO_PAD.decode(content).ok()?;
        let tag = URL_SAFE_NO_PAD.decode(tag).ok()?;
        hmac::verify(&self.0, &content, &tag).ok()?;
        Some(content)
    }
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SealKey(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_opens_its_own_texts_alone() {
        let (key, other) = (SealKey::random().unwrap(), SealKey::random().unwrap());
        let text = key.seal(b"content");
        assert_eq!(key.open(&text).as_deref(), Some(&b"content"[..]));
        assert_eq!(other.open(&text), None);
        assert_eq!(key.open(""), None);
        assert_eq!(key.open(&"a".repeat(SEALED_BYTES_MAX + 1)), None);
    }

    #[test]
    fn no_character_of_a_text_can_be_changed_or_left_out() {
        let key = SealKey::random().unwrap();
        let text = key.seal(b"some content");
        for at in 0..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            let changed = String::from_utf8(changed).unwrap();
            assert_eq!(key.open(&changed), None, "{changed}");
            assert_eq!(key.open(&text[..at]), None, "{at}");
            assert_eq!(key.open(&text[at + 1..]), None, "{at}");
        }
    }
}
