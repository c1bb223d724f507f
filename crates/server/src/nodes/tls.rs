//! Who is at the other end of a node link: TLS with certificates of a site's authority on both
//! sides.

use std::{
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    time::SystemTime,
};

use godwit_gsi::{
    cert::{Credential, CredentialError, files},
    ftps,
    https::{HttpsClient, Trust},
    name::DistinguishedName,
    verify::{Anchors, Bundle, HostName, Peer},
};
use godwit_tls_stream::TlsStream;
use tokio::{net::TcpStream, task::spawn_blocking};

use super::keys::is_apart;
use crate::config::NodeTls;

/// Why there is no TLS for node links.
#[derive(Debug, thiserror::Error)]
pub enum NodeTlsError {
    /// Certificate or key.
    #[error("node-cert, node-key: {0}")]
    Credential(#[from] CredentialError),
    /// They are not of one pair.
    #[error(
        "node-cert, node-key: {} and {} are not a pair: name those of one, or, after a \
         `godwitd node-key` that was cut off, repeat it with --force",
        .cert.display(), .key.display()
    )]
    Apart {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// The authorities cannot be read.
    #[error("node-ca: cannot read {path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: std::io::Error,
    },
    /// They are none.
    #[error("node-ca: {path}: {error}")]
    Authorities {
        /// Which.
        path: PathBuf,
        /// Why.
        error: CredentialError,
    },
}

/// A front end's side.
pub(super) struct FrontTls(HttpsClient);

/// A node's side.
pub(super) struct NodeEndTls {
    server: ftps::Server,
    front_ends: Vec<String>,
}

impl FrontTls {
    pub(super) fn load(settings: &NodeTls) -> Result<Self, NodeTlsError> {
        let (credential, authorities) = load(settings)?;
        let client = HttpsClient::new(Some(&credential), &Trust::Grid(authorities))?;
        Ok(Self(client))
    }

    /// The node, which must have a certificate for `host`.
    pub(super) async fn connect(
        &self,
        host: &str,
        socket: TcpStream,
    ) -> Result<TlsStream<TcpStream>, String> {
        let host = HostName::new(host);
        let ssl = self.0.ssl(&host, SystemTime::now());
        let ssl = ssl.map_err(|error| error.to_string())?;
        let stream = TlsStream::connect(ssl, socket).await;
        let stream = stream.map_err(|(error, _)| format!("no TLS: {error}"))?;
        if let Some(check) = self.0.server_check(stream.ssl(), host) {
            let checked = spawn_blocking(move || check(SystemTime::now())).await;
            checked
                .map_err(|error| error.to_string())?
                .map_err(|refusal| format!("its certificate (node-cert there): {refusal}"))?;
        }
        Ok(stream)
    }
}

impl NodeEndTls {
    pub(super) fn load(settings: &NodeTls, front_ends: &[String]) -> Result<Self, NodeTlsError> {
        let (credential, authorities) = load(settings)?;
        Ok(Self {
            server: ftps::Server::new(&credential, Some(authorities))?,
            front_ends: front_ends.to_vec(),
        })
    }

    /// A front end, and its name; or why it is none. The stream is there in both cases once TLS
    /// has begun: the reason can be told.
    pub(super) async fn accept(
        &self,
        socket: TcpStream,
    ) -> Result<(TlsStream<TcpStream>, Result<String, String>), String> {
        let ssl = self.server.ssl().map_err(|error| error.to_string())?;
        let stream = TlsStream::accept(ssl, socket).await;
        let stream = stream.map_err(|error| format!("no TLS: {error}"))?;
        let Some(check) = self.server.client_check(stream.ssl()) else {
            return Ok((
                stream,
                Err("it shows no certificate (node-cert there)".to_owned()),
            ));
        };
        let checked = spawn_blocking(move || check(SystemTime::now())).await;
        let front_end = match checked.map_err(|error| error.to_string())? {
            Ok(peer) => self.known(&peer),
            Err(refusal) => Err(format!("its certificate (node-cert there): {refusal}")),
        };
        Ok((stream, front_end))
    }

    fn known(&self, peer: &Peer) -> Result<String, String> {
        let subject = peer.identity();
        let is_meant = |name: &String| match name.starts_with('/') {
            true => DistinguishedName::parse(name).is_some_and(|name| name.same_as(subject)),
            false => HostName::new(name).check(peer.acting()).is_ok(),
        };
        match self.front_ends.iter().any(is_meant) {
            true => Ok(subject.to_string()),
            false => Err(format!("{subject} is none of its front-ends")),
        }
    }
}

fn load(settings: &NodeTls) -> Result<(Credential, Arc<dyn Anchors>), NodeTlsError> {
    let pair = [(settings.cert.clone(), settings.key.clone())];
    let credential = files::load_first_pair(&pair, None, SystemTime::now());
    let credential = credential.map_err(|error| match is_apart(&error) {
        true => NodeTlsError::Apart {
            cert: settings.cert.clone(),
            key: settings.key.clone(),
        },
        false => NodeTlsError::Credential(error),
    })?;
    let authorities = authorities_of(&settings.authorities)?;
    Ok((credential, Arc::new(authorities)))
}

fn authorities_of(path: &Path) -> Result<Bundle, NodeTlsError> {
    let pem = fs::read(path).map_err(|error| NodeTlsError::Read {
        path: path.to_owned(),
        error,
    })?;
    let name = path.display().to_string();
    Bundle::from_pem(&name, &pem).map_err(|error| NodeTlsError::Authorities {
        path: path.to_owned(),
        error,
    })
}
