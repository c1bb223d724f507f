//! TLS of a client of HTTPS, on a socket that OpenSSL reads and writes itself during the handshake.
//!
//! The certificate of a server is verified either as on the web, by OpenSSL, or as in grids, by
//! [`verify`](mod@crate::verify): with revocation lists and signing policies. Grids verify when the
//! handshake is over, and before the first request is sent.

use std::fmt;
use std::sync::Arc;
use std::time::SystemTime;

use openssl::ssl::{Ssl, SslContext, SslRef, SslVerifyMode};

use crate::cert::{Credential, CredentialError};
use crate::ftps::{Authorities, HTTP_1, load, name_server};
use crate::tls::{builder, keep_secrets, peer_chain, show};
use crate::verify::{Anchors, HostName, Policy, Refusal, Strength, verify};
use crate::versions::Versions;

/// Whom a client trusts to vouch for servers.
#[derive(Clone)]
pub enum Trust {
    /// As browsers do.
    Web(Authorities),
    /// As grids do.
    Grid(Arc<dyn Anchors>),
}

/// A client's side, for any number of connections.
#[derive(Clone)]
pub struct HttpsClient {
    context: SslContext,
    /// `None`: OpenSSL verifies servers.
    anchors: Option<Arc<dyn Anchors>>,
}

impl HttpsClient {
    /// Shows `credential` to servers that ask for one. Reads the authorities of the web.
    ///
    /// # Errors
    /// When the authorities cannot be read, or OpenSSL does not take the credential.
    pub fn new(credential: Option<&Credential>, trust: &Trust) -> Result<Self, CredentialError> {
        let mut builder = builder(Strength::Modern, Versions::Any)?;
        if let Some(credential) = credential {
            show(&mut builder, credential)?;
        }
        let anchors = match trust {
            Trust::Web(authorities) => {
                load(&mut builder, authorities)?;
                builder.set_verify(SslVerifyMode::PEER);
                None
            }
            Trust::Grid(anchors) => {
                // OpenSSL checks that the server holds its key; whose key it is decides `verify`.
                builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
                Some(Arc::clone(anchors))
            }
        };
        builder.set_alpn_protos(HTTP_1)?;
        Ok(Self {
            context: builder.build(),
            anchors,
        })
    }

    /// The client's end of a connection to this host.
    ///
    /// # Errors
    /// When OpenSSL does not take the host's name.
    pub fn ssl(&self, host: &HostName, now: SystemTime) -> Result<Ssl, CredentialError> {
        let mut ssl = Ssl::new(&self.context)?;
        keep_secrets(&mut ssl)?;
        match (&self.anchors, host) {
            (None, _) => name_server(&mut ssl, host, now)?,
            (Some(_), HostName::Name(name)) => ssl.set_hostname(name)?,
            (Some(_), HostName::Address(_)) => {}
        }
        Ok(ssl)
    }

    /// Verifies the server of such a connection, after its handshake. The work reads certificates
    /// of CAs: it may block. `None`: OpenSSL has verified it.
    pub fn server_check(
        &self,
        ssl: &SslRef,
        host: HostName,
    ) -> Option<impl FnOnce(SystemTime) -> Result<(), Refusal> + Send + use<>> {
        let anchors = self.anchors.clone()?;
        let shown = peer_chain(ssl).map_err(|_| Refusal::Malformed);
        Some(move |now| {
            let peer = verify(&shown?, &*anchors, &Policy::default(), now)?;
            host.check(peer.acting())
        })
    }
}

/// Without the key.
impl fmt::Debug for HttpsClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpsClient")
            .field("is_grid", &self.anchors.is_some())
            .finish_non_exhaustive()
    }
}
