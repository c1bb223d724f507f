//! The user's identity, and the CAs that the client trusts.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use godwit_gsi::{
    cert::{
        Credential, CredentialError,
        files::{self, Locations},
    },
    verify::{Anchors, Directory},
};

use crate::spec::Connections;

/// The credential and the trust anchors of a handshake.
pub(crate) struct Identity {
    pub(crate) credential: Credential,
    pub(crate) anchors: Arc<dyn Anchors>,
}

/// Why there is no usable identity. The remedy is local, and the message names it.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum NoIdentity {
    #[error(transparent)]
    Credential(#[from] CredentialError),
    #[error(
        "{path}: no proxy, and no certificate of a user at {others}: run `godwit proxy init`, or \
         set X509_USER_PROXY"
    )]
    Nothing { path: PathBuf, others: String },
    #[error("no directory of trusted CAs at {0}: set X509_CERT_DIR")]
    NoAnchors(String),
}

impl Identity {
    /// The credential that was handed over for `host` and `port`, else the proxy that was named for
    /// `host`, else the proxy if there is one, else the user's
    /// certificate. Read again for each session: a proxy may be renewed while a long copy runs.
    ///
    /// # Errors
    /// When there is neither, it has expired, its key is encrypted or open to others, or no CAs are
    /// trusted here.
    pub(crate) fn load(
        connections: &Connections,
        host: &str,
        port: u16,
        now: SystemTime,
    ) -> Result<Self, NoIdentity> {
        let locations = &connections.locations;
        let anchors = locations
            .authority_directory()
            .ok_or_else(|| NoIdentity::NoAnchors(listed(locations.authorities.iter())))?;
        let anchors = Directory::new(anchors.to_owned());
        Ok(Self {
            credential: match (
                connections.granted.proxy(host, port),
                connections.proxy_of(host),
            ) {
                (Some(granted), _) => {
                    files::check_time(&granted, Path::new(host), now)?;
                    granted
                }
                (None, Some(proxy)) => valid_proxy(proxy, now)?,
                (None, None) => credential(locations, now)?,
            },
            anchors: Arc::new(anchors),
        })
    }
}

/// See [`Identity::load`].
pub(crate) fn credential(locations: &Locations, now: SystemTime) -> Result<Credential, NoIdentity> {
    let proxy = &locations.proxy;
    // A dangling link counts, too: the user meant a proxy.
    if proxy.symlink_metadata().is_ok() {
        return Ok(valid_proxy(proxy, now)?);
    }
    let Some((certificate, key)) = locations.user.iter().find(|(cert, _)| cert.exists()) else {
        return Err(NoIdentity::Nothing {
            path: proxy.clone(),
            others: listed(locations.user.iter().map(|(certificate, _)| certificate)),
        });
    };
    let credential = files::load_pair(certificate, key, None)?;
    files::check_time(&credential, certificate, now)?;
    Ok(credential)
}

pub(crate) fn valid_proxy(path: &Path, now: SystemTime) -> Result<Credential, CredentialError> {
    let credential = files::load_proxy(path)?;
    files::check_time(&credential, path, now)?;
    Ok(credential)
}

/// Paths for a message.
fn listed<'a>(paths: impl Iterator<Item = &'a PathBuf>) -> String {
    let paths: Vec<String> = paths.map(|path| path.display().to_string()).collect();
    paths.join(", ")
}
