//! Credentials that were handed over for endpoints, and may be renewed while a job runs.

use std::sync::{Arc, PoisonError, RwLock};

use godwit_gsi::cert::Credential;
use godwit_proto::command::Password;

use super::aws::AwsEnvironment;

/// What was handed over. Clones share it: sessions that log in later use what it has then.
#[derive(Clone, Default)]
pub struct Granted(Arc<RwLock<Vec<Entry>>>);

struct Entry {
    host: String,
    port: u16,
    secret: GrantedSecret,
}

/// A credential for an endpoint.
#[derive(Clone)]
pub enum GrantedSecret {
    /// For `gsiftp://`, before all others.
    Proxy(Box<Credential>),
    /// A bearer token.
    Token(Password),
    /// Keys for the bucket that is the host, and where it is.
    Keys(Box<AwsEnvironment>),
}

impl GrantedSecret {
    fn is_like(&self, other: &Self) -> bool {
        std::mem::discriminant(self) == std::mem::discriminant(other)
    }
}

impl Granted {
    /// Takes a credential, in place of an earlier one of the same kind.
    pub fn set(&self, host: &str, port: u16, secret: GrantedSecret) {
        let mut entries = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let is_for = |entry: &&mut Entry| {
            entry.host == host && entry.port == port && entry.secret.is_like(&secret)
        };
        if let Some(entry) = entries.iter_mut().find(is_for) {
            entry.secret = secret;
            return;
        }
        entries.push(Entry {
            host: host.to_owned(),
            port,
            secret,
        });
    }

    pub(crate) fn proxy(&self, host: &str, port: u16) -> Option<Credential> {
        self.find(host, port, |secret| match secret {
            GrantedSecret::Proxy(proxy) => Some(proxy.as_ref().clone()),
            _ => None,
        })
    }

    pub(crate) fn token(&self, host: &str, port: u16) -> Option<Password> {
        self.find(host, port, |secret| match secret {
            GrantedSecret::Token(token) => Some(token.clone()),
            _ => None,
        })
    }

    pub(crate) fn keys(&self, bucket: &str, port: u16) -> Option<AwsEnvironment> {
        self.find(bucket, port, |secret| match secret {
            GrantedSecret::Keys(keys) => Some(keys.as_ref().clone()),
            _ => None,
        })
    }

    fn find<T>(&self, host: &str, port: u16, of: fn(&GrantedSecret) -> Option<T>) -> Option<T> {
        let entries = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let mut fitting = entries.iter().filter(|e| e.host == host && e.port == port);
        fitting.find_map(|entry| of(&entry.secret))
    }
}

impl std::fmt::Debug for Granted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Granted(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_renewed_is_seen_by_those_that_share_it() {
        let granted = Granted::default();
        let token = |text| GrantedSecret::Token(Password::new(text));
        granted.set("a", 1, token("old"));
        granted.set("b", 1, token("other"));
        let shared = granted.clone();
        granted.set("a", 1, token("new"));
        assert_eq!(shared.token("a", 1), Some(Password::new("new")));
        assert_eq!(shared.token("b", 1), Some(Password::new("other")));
        assert_eq!(shared.token("a", 2), None);
        assert!(shared.proxy("a", 1).is_none());
    }
}
