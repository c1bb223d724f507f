//! Copies between this server and others: how many at a time, and with whom.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use godwit_gsi::{
    cert::{Credential, CredentialError},
    ftps::Authorities,
    https::{HttpsClient, Trust},
    verify::Directory,
};
use godwit_http_client::{Connector, Limits, Policy};

use crate::config::{CopyAuthorities, CopySettings, ServerSettings, is_public};

/// The port of HTTPS.
const HTTPS_PORT: u16 = 443;

/// Lower ports are of system services.
const USER_PORTS: u16 = 1024;

/// What all copies share.
pub(crate) struct Copies {
    connector: Connector,
    total: u32,
    per_user: u32,
    running: Mutex<HashMap<String, u32>>,
}

/// A place among the copies that run. It is free again when this is dropped.
pub(crate) struct CopyPlace {
    copies: Arc<Copies>,
    user: String,
}

impl Copies {
    /// `credential`: the server's. Reads the authorities.
    pub(crate) fn new(
        settings: &CopySettings,
        server: &ServerSettings,
        credential: &Credential,
    ) -> Result<Self, CredentialError> {
        let trust = match &settings.authorities {
            CopyAuthorities::System => Trust::Web(Authorities::System),
            CopyAuthorities::File(file) => Trust::Web(Authorities::File(file.clone())),
            CopyAuthorities::Grid(path) => Trust::Grid(Arc::new(Directory::new(path.clone()))),
        };
        let tls = HttpsClient::new(settings.as_host.then_some(credential), &trust)?;
        let limits = Limits {
            silence: server.data_limit,
            ..Limits::default()
        };
        Ok(Self {
            connector: Connector::new(Some(tls), policy(settings), limits),
            total: settings.total,
            per_user: settings.per_user,
            running: Mutex::default(),
        })
    }

    /// A place for one more copy of a user. `None`: there are too many.
    pub(crate) fn place(self: &Arc<Self>, user: &str) -> Option<CopyPlace> {
        let mut running = self.running();
        let total: u32 = running.values().sum();
        let of_user = running.get(user).copied().unwrap_or(0);
        if total >= self.total || of_user >= self.per_user {
            return None;
        }
        running.insert(user.to_owned(), of_user + 1);
        Some(CopyPlace {
            copies: Arc::clone(self),
            user: user.to_owned(),
        })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CopyPlace {
    pub(crate) fn connector(&self) -> &Connector {
        &self.copies.connector
    }
}

impl Drop for CopyPlace {
    fn drop(&mut self) {
        let mut running = self.copies.running();
        if let Some(count) = running.get_mut(&self.user) {
            *count -= 1;
            if *count == 0 {
                running.remove(&self.user);
            }
        }
    }
}

/// Users choose the addresses: none may lead to where only this host can connect to.
fn policy(settings: &CopySettings) -> Policy {
    let hosts = settings.hosts.clone();
    Arc::new(move |origin, address| {
        let (ip, port) = (address.ip(), address.port());
        hosts.iter().any(|host| host.has(&origin.host, ip))
            || is_public(ip) && (port == HTTPS_PORT || port >= USER_PORTS)
    })
}

#[cfg(test)]
mod tests {
    use godwit_http_client::Url;

    use super::*;

    #[test]
    fn other_servers_are_public_or_allowed() {
        let settings = CopySettings {
            hosts: vec!["10.0.0.0/8".parse().unwrap(), "store".parse().unwrap()],
            ..CopySettings::default()
        };
        let policy = policy(&settings);
        let may = |url: &str, address: &str| {
            let origin = Url::parse(url).unwrap().origin;
            policy(&origin, address.parse().unwrap())
        };
        assert!(may("https://x", "8.8.8.8:443"));
        assert!(may("https://x", "8.8.8.8:1094"));
        assert!(!may("https://x", "8.8.8.8:22"), "a service of another kind");
        assert!(!may("https://x", "127.0.0.1:443"));
        assert!(!may("https://x", "[::ffff:127.0.0.1]:443"));
        assert!(may("https://x", "10.1.1.1:22"));
        assert!(may("https://STORE", "127.0.0.1:80"));
    }
}
