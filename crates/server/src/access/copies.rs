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

/// Connections of all copies beyond the first of each.
const EXTRA_STREAMS: u32 = 256;

/// What all copies share.
pub(crate) struct Copies {
    connector: Connector,
    total: u32,
    per_user: u32,
    running: Mutex<HashMap<String, CopiesOfUser>>,
}

/// What a user has now.
#[derive(Clone, Copy, Default)]
struct CopiesOfUser {
    copies: u32,
    extra_streams: u32,
}

/// A place among the copies that run. It is free again when this is dropped.
pub(crate) struct CopyPlace {
    copies: Arc<Copies>,
    user: String,
}

/// Connections of a copy beyond its first. They are free again when this is dropped.
pub(crate) struct ExtraStreams<'a> {
    place: &'a CopyPlace,
    pub(crate) count: u32,
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
        let total: u32 = running.values().map(|user| user.copies).sum();
        let of_user = running.get(user).map_or(0, |user| user.copies);
        if total >= self.total || of_user >= self.per_user {
            return None;
        }
        running.entry(user.to_owned()).or_default().copies += 1;
        Some(CopyPlace {
            copies: Arc::clone(self),
            user: user.to_owned(),
        })
    }

    fn running(&self) -> MutexGuard<'_, HashMap<String, CopiesOfUser>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CopyPlace {
    pub(crate) fn connector(&self) -> &Connector {
        &self.copies.connector
    }

    /// As many of the wanted connections as there are for this user.
    pub(crate) fn extra_streams(&self, wanted: u32) -> ExtraStreams<'_> {
        let mut running = self.copies.running();
        let all: u32 = running.values().map(|user| user.extra_streams).sum();
        let count = running.get_mut(&self.user).map_or(0, |user| {
            let count = wanted.min(streams_left(all, user.extra_streams));
            user.extra_streams += count;
            count
        });
        ExtraStreams { place: self, count }
    }
}

impl Drop for CopyPlace {
    fn drop(&mut self) {
        let mut running = self.copies.running();
        if let Some(user) = running.get_mut(&self.user) {
            user.copies -= 1;
            if user.copies == 0 {
                running.remove(&self.user);
            }
        }
    }
}

impl Drop for ExtraStreams<'_> {
    fn drop(&mut self) {
        let mut running = self.place.copies.running();
        if let Some(user) = running.get_mut(&self.place.user) {
            user.extra_streams -= self.count;
        }
    }
}

/// What a user may still get: in all a quarter of what the others leave, so that they find some.
fn streams_left(all: u32, of_user: u32) -> u32 {
    let left = EXTRA_STREAMS.saturating_sub(all - of_user);
    (left / 4).saturating_sub(of_user)
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
    fn a_user_gets_a_quarter_of_the_streams_that_others_leave() {
        assert_eq!(streams_left(0, 0), 64);
        assert_eq!(streams_left(64, 64), 0);
        assert_eq!(streams_left(64, 0), 48);
        assert_eq!(streams_left(112, 48), 0);
        assert_eq!(streams_left(EXTRA_STREAMS, 0), 0);
    }

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
