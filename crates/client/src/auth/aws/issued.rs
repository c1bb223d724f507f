//! Keys that a service or a program has issued.

use std::time::{Duration, SystemTime};

use godwit_proto::command::Password;

use super::Keys;

/// Bytes of an access key, and of a secret or a token.
const ACCESS_BYTES_MAX: usize = 256;
const SECRET_BYTES_MAX: usize = 32 << 10;

/// Keys, and when they end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct IssuedKeys {
    pub(super) keys: Keys,
    /// `None`: it is not known.
    pub(super) expires: Option<SystemTime>,
}

impl IssuedKeys {
    /// # Errors
    /// No request can have them: why, without the keys.
    pub(super) fn new(
        access: String,
        secret: Password,
        token: Option<Password>,
        expires: Option<SystemTime>,
    ) -> Result<Self, String> {
        let is_plain = |text: &str, bytes_max: usize| {
            let is_shown = text.bytes().all(|byte| byte.is_ascii_graphic());
            (1..=bytes_max).contains(&text.len()) && is_shown
        };
        // These end it in the header of a signature.
        let is_access = is_plain(&access, ACCESS_BYTES_MAX) && !access.contains(['/', ',']);
        let is_secret = |secret: &Password| is_plain(secret.reveal(), SECRET_BYTES_MAX);
        if !is_access || !is_secret(&secret) || !token.as_ref().is_none_or(is_secret) {
            return Err("the answer has keys that no request can have".to_owned());
        }
        let keys = Keys {
            access,
            secret,
            token,
        };
        Ok(Self { keys, expires })
    }

    /// Those that have no known end.
    pub(super) fn lasting(keys: Keys) -> Self {
        Self {
            keys,
            expires: None,
        }
    }

    pub(super) fn lasts_until(&self, time: SystemTime) -> bool {
        self.expires.is_none_or(|expires| expires > time)
    }
}

/// A time as services and programs write it.
pub(super) fn time(text: &str) -> Option<SystemTime> {
    let time = text.trim().parse::<jiff::Timestamp>().ok()?;
    let since = u64::try_from(time.as_second()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_secs(since))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_no_request_can_have_are_refused_without_being_shown() {
        for (access, secret, token) in [
            ("", "s", "t"),
            ("A/B", "s", "t"),
            ("A,B", "s", "t"),
            ("A", "", "t"),
            ("A", "s\r\nx: y", "t"),
            ("A", "s", "t\u{e9}"),
            ("A", "s", " "),
        ] {
            let token = Some(Password::new(token));
            let made = IssuedKeys::new(access.to_owned(), Password::new(secret), token, None);
            assert!(made.is_err(), "{access} {secret}");
        }
    }
}
