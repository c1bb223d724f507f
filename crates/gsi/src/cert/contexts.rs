//! What OpenSSL has made of a credential.

use std::sync::{Arc, Mutex, PoisonError};

use openssl::ssl::SslContext;

use super::CredentialError;
use super::key::Strength;
use crate::versions::Versions;

/// What OpenSSL has made of one credential so far. Making it is up to a fifth of a handshake's
/// work, and many connections prove themselves with the same one: all clones of a credential share
/// this.
#[derive(Clone, Default)]
pub(crate) struct Contexts(Arc<Mutex<Vec<Made>>>);

struct Made {
    strength: Strength,
    versions: Versions,
    context: SslContext,
}

impl Contexts {
    /// The context for these, by `make` where there is none yet.
    pub(crate) fn get_or_make(
        &self,
        strength: Strength,
        versions: Versions,
        make: impl FnOnce() -> Result<SslContext, CredentialError>,
    ) -> Result<SslContext, CredentialError> {
        // A thread that panicked has added all of an entry or nothing.
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = all.iter();
        let known = known.find(|made| made.strength == strength && made.versions == versions);
        if let Some(made) = known {
            return Ok(made.context.clone());
        }
        let context = make()?;
        all.push(Made {
            strength,
            versions,
            context: context.clone(),
        });
        Ok(context)
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).len()
    }
}
