//! TLS of the listeners, and who the other end of a connection is.
//!
//! Grid users log in with proxy certificates (RFC 3820), whose chains verifiers for the web refuse:
//! OpenSSL checks that the peer holds its key, [`godwit_gsi::verify`] whose key it is.

use std::{fs, pin::Pin, sync::Arc, time::SystemTime};

use godwit_gsi::{
    cert::{Certificate, CredentialError},
    verify::{Anchors, Bundle, Directory, Policy, verify},
};
use openssl::ssl::{
    Ssl, SslAcceptor, SslFiletype, SslMethod, SslOptions, SslRef, SslSessionCacheMode,
    SslVerifyMode,
};
use tokio::{net::TcpStream, task::spawn_blocking};
use tokio_openssl::SslStream;

use crate::{ServiceError, accounts::Shown, config::TlsFiles};

/// How connections of a listener are protected.
#[derive(Clone)]
pub(crate) struct Tls {
    acceptor: SslAcceptor,
    anchors: Option<Arc<dyn Anchors>>,
}

impl Tls {
    /// # Errors
    /// A file cannot be read, or is not what it should be.
    pub(crate) fn new(files: &TlsFiles) -> Result<Self, ServiceError> {
        let mut builder = SslAcceptor::mozilla_intermediate_v5(SslMethod::tls_server())?;
        builder.set_certificate_chain_file(&files.certificate)?;
        builder.set_private_key_file(&files.key, SslFiletype::PEM)?;
        builder.check_private_key()?;
        let mut anchors: Option<Arc<dyn Anchors>> = None;
        if let Some(path) = &files.client_authorities {
            anchors = Some(match path.is_dir() {
                true => Arc::new(Directory::new(path.clone())),
                false => {
                    let pem = fs::read(path).map_err(ServiceError::file(path))?;
                    let bundle = Bundle::from_pem(&path.display().to_string(), &pem);
                    let why = |error| ServiceError::Usage(format!("{}: {error}", path.display()));
                    Arc::new(bundle.map_err(why)?)
                }
            });
            // Users with tokens have no certificate; what others show is verified afterwards.
            builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
            // A resumed session has no chain.
            builder.set_options(SslOptions::NO_TICKET);
            builder.set_num_tickets(0)?;
            builder.set_session_cache_mode(SslSessionCacheMode::OFF);
        }
        let acceptor = builder.build();
        Ok(Self { acceptor, anchors })
    }

    /// The handshake. A certificate that is refused is no failure of it: the request may bring a
    /// token, and its answer can say what is wrong.
    pub(crate) async fn accept(
        &self,
        stream: TcpStream,
    ) -> Result<(SslStream<TcpStream>, Shown), openssl::ssl::Error> {
        let mut stream = SslStream::new(Ssl::new(self.acceptor.context())?, stream)?;
        Pin::new(&mut stream).accept().await?;
        let Some(anchors) = &self.anchors else {
            return Ok((stream, Shown::Nothing));
        };
        let (chain, anchors) = (chain(stream.ssl()), Arc::clone(anchors));
        let shown = match chain {
            Ok(chain) if chain.is_empty() => Shown::Nothing,
            Ok(chain) => {
                // It may read files.
                let verified = spawn_blocking(move || judge(&chain, &*anchors)).await;
                verified.unwrap_or_else(|_| Shown::Refused("it was not verified".to_owned()))
            }
            Err(error) => Shown::Refused(error.to_string()),
        };
        Ok((stream, shown))
    }
}

fn judge(chain: &[Certificate], anchors: &dyn Anchors) -> Shown {
    match verify(chain, anchors, &Policy::default(), SystemTime::now()) {
        Ok(peer) => Shown::Name {
            name: peer.identity().as_str().to_owned(),
            until: peer.not_after(),
        },
        Err(refusal) => Shown::Refused(refusal.to_string()),
    }
}

/// What the peer has shown, its own certificate first.
fn chain(ssl: &SslRef) -> Result<Vec<Certificate>, CredentialError> {
    let Some(own) = ssl.peer_certificate() else {
        return Ok(Vec::new());
    };
    // A server is given the chain without the peer's own certificate.
    let above = ssl.peer_cert_chain().into_iter().flatten();
    let above = above.map(ToOwned::to_owned);
    std::iter::once(own)
        .chain(above)
        .map(Certificate::new)
        .collect()
}
