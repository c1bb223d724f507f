//! TLS as FTP has it without GSI (RFC 4217): the server shows a certificate, the client may.
//!
//! ```text
//!   Client ──connect──► Handshake ◄── bytes ──► Handshake ◄──accept── Server
//!                           └────────► Secured ◄────────┘
//! ```
//! FTP's client is the client of TLS, on data channels too, whichever end connected (RFC 4217 §7).
//! The calling contract is that of a [`Context`](crate::Context): feed, poll, look at the outcome.
//!
//! A server's certificate is verified by OpenSSL with the authorities of the system or others that
//! were named, for the host of the URL; on a data channel it must be the one of the control
//! channel. A client's certificate is verified as in GSI, and the result is reported and not
//! enforced: there are other ways to log in.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;

use openssl::error::ErrorStack;
use openssl::ssl::{
    AlpnError, Ssl, SslContext, SslContextBuilder, SslRef, SslVerifyMode, select_next_proto,
};
use openssl::x509::verify::{X509CheckFlags, X509VerifyFlags};

use crate::cert::{Certificate, Credential, CredentialError};
use crate::context::ContextError;
use crate::context::handshake::{Driver, Machine};
use crate::sessions;
use crate::tls::{Keep, Role, Tls, TlsFault, builder, keep_secrets, peer_chain, show};
use crate::verify::{Anchors, HostName, Peer, Policy, Refusal, Strength, verify};
use crate::versions::Versions;
use crate::wrap::Wrap;

pub use crate::sessions::Sessions;

/// HTTP/1.1 in a list of protocols (RFC 7301 §3.1).
pub(crate) const HTTP_1: &[u8] = b"\x08http/1.1";

/// A server's side, for any number of connections.
#[derive(Clone)]
pub struct Server {
    context: SslContext,
    clients: Option<Arc<dyn Anchors>>,
}

/// A client's side, for any number of connections.
#[derive(Clone)]
pub struct Client {
    context: SslContext,
}

/// Which authorities a client trusts for servers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Authorities {
    /// Those of the system: what OpenSSL was built for, or `SSL_CERT_FILE` and `SSL_CERT_DIR`.
    #[default]
    System,
    /// Those in a PEM file. The certificate of a server itself may stand there.
    File(PathBuf),
    /// Those in a directory, by the hash of their names.
    Directory(PathBuf),
}

/// Which server a client expects.
#[derive(Clone, Debug)]
pub enum ServerIs {
    /// The host of a URL, vouched for by an authority.
    Host(HostName),
    /// The holder of this certificate: data channels. They resume what [`Handshake::sessions`] of
    /// the control channel has.
    Holder(Box<Certificate>, Sessions),
}

/// A handshake of either role.
pub struct Handshake(Machine<PeerCheck>);

/// A handshake that has succeeded.
pub struct Secured {
    /// At a server that asks: who the client is, or why its certificate is not trusted; `None`: it
    /// has shown none.
    pub client: Option<Result<Peer, Refusal>>,
    /// At a client: what the server has shown.
    pub server: Option<Certificate>,
    /// Seals and opens what follows.
    pub wrap: Wrap,
    /// Bytes that came behind the handshake.
    pub rest: Vec<u8>,
}

/// How the peer's certificate is checked.
enum PeerCheck {
    /// At a server: by the authorities, if it asks for one.
    Anyone(Option<Arc<dyn Anchors>>),
    /// At a client: by OpenSSL, for the host of the URL.
    Host(Sessions),
    /// At a client: it must be this one.
    Holder(Box<Certificate>),
}

impl Server {
    /// Shows `credential`. `clients`: authorities by whose certificates clients may say who they
    /// are; `None`: no certificate is asked for.
    ///
    /// # Errors
    /// When OpenSSL does not take the credential.
    pub fn new(
        credential: &Credential,
        clients: Option<Arc<dyn Anchors>>,
    ) -> Result<Self, CredentialError> {
        Self::build(credential, clients, |_| {})
    }

    /// The same for HTTPS, which is another protocol to clients that name theirs (RFC 7301): they
    /// get HTTP/1.1. A server of FTP must not take that name, or a web page could let a browser
    /// talk to it.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub fn https(
        credential: &Credential,
        clients: Option<Arc<dyn Anchors>>,
    ) -> Result<Self, CredentialError> {
        Self::build(credential, clients, |builder| {
            builder.set_alpn_select_callback(|_, offered| {
                select_next_proto(HTTP_1, offered).ok_or(AlpnError::ALERT_FATAL)
            });
        })
    }

    fn build(
        credential: &Credential,
        clients: Option<Arc<dyn Anchors>>,
        more: impl FnOnce(&mut SslContextBuilder),
    ) -> Result<Self, CredentialError> {
        let mut builder = builder(Strength::Modern, Versions::Any)?;
        show(&mut builder, credential)?;
        if clients.is_some() {
            // OpenSSL checks that the client holds its key; whose key it is decides `verify`.
            builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
        }
        more(&mut builder);
        Ok(Self {
            context: builder.build(),
            clients,
        })
    }

    /// The server's end of a connection whose socket OpenSSL reads and writes itself.
    ///
    /// # Errors
    /// When OpenSSL is out of memory.
    pub fn ssl(&self) -> Result<Ssl, CredentialError> {
        let mut ssl = Ssl::new(&self.context)?;
        keep_secrets(&mut ssl)?;
        Ok(ssl)
    }

    /// Says who the client of such a connection is, or why its certificate is not trusted. The work
    /// reads certificates of CAs: it may block. `None`: the client has shown none.
    pub fn client_check(
        &self,
        ssl: &SslRef,
    ) -> Option<impl FnOnce(SystemTime) -> Result<Peer, Refusal> + Send + use<>> {
        let anchors = self.clients.clone()?;
        let shown = peer_chain(ssl).map_err(|_| Refusal::Malformed);
        let has_shown = shown.as_ref().map_or(true, |shown| !shown.is_empty());
        has_shown.then_some(move |now| verify(&shown?, &*anchors, &Policy::default(), now))
    }

    /// Waits for a client.
    ///
    /// # Errors
    /// When OpenSSL is out of memory.
    pub fn accept(&self) -> Result<Handshake, ContextError> {
        let tls = Ssl::new(&self.context)
            .map_err(CredentialError::from)
            .and_then(|ssl| Tls::of(Role::Acceptor, ssl, Keep::Secrets));
        let tls = tls.map_err(ContextError::Credential)?;
        let check = PeerCheck::Anyone(self.clients.clone());
        Ok(Handshake(Machine::new(check, tls)))
    }
}

impl Client {
    /// Shows `credential` to servers that ask for one. Reads `authorities`.
    ///
    /// # Errors
    /// When the authorities cannot be read, or OpenSSL does not take the credential.
    pub fn new(
        credential: Option<&Credential>,
        authorities: &Authorities,
    ) -> Result<Self, CredentialError> {
        let mut builder = builder(Strength::Modern, Versions::Any)?;
        if let Some(credential) = credential {
            show(&mut builder, credential)?;
        }
        load(&mut builder, authorities)?;
        builder.set_verify(SslVerifyMode::PEER);
        sessions::keep_sessions(&mut builder);
        Ok(Self {
            context: builder.build(),
        })
    }

    /// Begins: the first bytes are ready at once.
    ///
    /// # Errors
    /// When OpenSSL does not take the host's name.
    pub fn connect(&self, server: &ServerIs, now: SystemTime) -> Result<Handshake, ContextError> {
        let (ssl, check) = self.aim(server, now).map_err(ContextError::Credential)?;
        let tls = Tls::of(Role::Initiator, ssl, Keep::Secrets).map_err(ContextError::Credential)?;
        Ok(Handshake(Machine::begin(check, tls)?))
    }

    fn aim(&self, server: &ServerIs, now: SystemTime) -> Result<(Ssl, PeerCheck), CredentialError> {
        Ok(match server {
            ServerIs::Host(host) => {
                let mut ssl = Ssl::new(&self.context)?;
                name_server(&mut ssl, host, now)?;
                let sessions = Sessions::of(&mut ssl)?;
                (ssl, PeerCheck::Host(sessions))
            }
            ServerIs::Holder(certificate, sessions) => {
                let mut ssl = match sessions.resume() {
                    Some(ssl) => ssl,
                    None => Ssl::new(&self.context)?,
                };
                // Known already: only that it holds the key is left to show, and OpenSSL checks
                // that.
                ssl.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
                (ssl, PeerCheck::Holder(certificate.clone()))
            }
        })
    }
}

/// Makes OpenSSL trust those authorities.
pub(crate) fn load(
    builder: &mut SslContextBuilder,
    authorities: &Authorities,
) -> Result<(), ErrorStack> {
    match authorities {
        Authorities::System => builder.set_default_verify_paths(),
        Authorities::File(file) => builder.load_verify_locations(Some(file), None),
        Authorities::Directory(path) => builder.load_verify_locations(None, Some(path)),
    }
}

/// Makes OpenSSL verify that the server is this host.
pub(crate) fn name_server(
    ssl: &mut SslRef,
    host: &HostName,
    now: SystemTime,
) -> Result<(), ErrorStack> {
    let param = ssl.param_mut();
    let seconds = now.duration_since(SystemTime::UNIX_EPOCH);
    let seconds = seconds.unwrap_or_default().as_secs();
    param.set_time(i64::try_from(seconds).unwrap_or(i64::MAX));
    param.set_hostflags(X509CheckFlags::NO_PARTIAL_WILDCARDS);
    // A server's own certificate may be what is trusted.
    param.set_flags(X509VerifyFlags::PARTIAL_CHAIN)?;
    match host {
        HostName::Name(name) => {
            param.set_host(name)?;
            ssl.set_hostname(name)
        }
        HostName::Address(address) => param.set_ip(*address),
    }
}

impl Handshake {
    /// Bytes from the peer, cut anywhere. A step takes some milliseconds of a processor.
    ///
    /// # Errors
    /// Why it has failed. There may still be output then, an alert for the peer.
    pub fn handle_input(&mut self, now: SystemTime, input: &[u8]) -> Result<(), ContextError> {
        self.0.handle_input(now, input)
    }

    /// Bytes for the peer.
    pub fn poll_output(&mut self) -> Option<Vec<u8>> {
        self.0.poll_output()
    }

    /// What data channels resume, at a client that knows its server by the host: it fills while the
    /// connection is used.
    pub fn sessions(&self) -> Sessions {
        match &self.0.driver {
            PeerCheck::Host(sessions) => sessions.clone(),
            PeerCheck::Anyone(_) | PeerCheck::Holder(_) => Sessions::default(),
        }
    }

    /// The outcome, once. Send what [`Self::poll_output`] still has before anything else.
    pub fn outcome(&mut self) -> Option<Secured> {
        self.0.outcome()
    }
}

impl Driver for PeerCheck {
    type Outcome = Secured;

    fn advance(
        &mut self,
        tls: &mut Tls,
        _now: SystemTime,
        output: &mut Vec<u8>,
    ) -> Result<bool, ContextError> {
        let result = tls.handshake();
        if let Self::Holder(certificate) = self {
            // Before anything leaves that follows from what the peer has shown.
            let shown = tls.peer_chain().map_err(|_| Refusal::Malformed)?;
            if shown.first().is_some_and(|first| *first != **certificate) {
                return Err(ContextError::Protocol(
                    "the server has another certificate than on its control channel",
                ));
            }
        }
        output.extend(tls.take_output());
        result.map_err(|TlsFault(fault)| {
            ContextError::Tls(match (&self, tls.verdict()) {
                (Self::Host(_), Some(verdict)) => {
                    format!("the server's certificate is not trusted: {verdict}")
                }
                _ => fault,
            })
        })
    }

    fn finish(&mut self, mut tls: Tls, now: SystemTime) -> Result<Secured, ContextError> {
        let shown = tls.peer_chain().map_err(|_| Refusal::Malformed)?;
        let (client, server) = match self {
            Self::Anyone(Some(anchors)) if !shown.is_empty() => {
                let client = verify(&shown, &**anchors, &Policy::default(), now);
                (Some(client), None)
            }
            Self::Anyone(_) => (None, None),
            Self::Host(_) | Self::Holder(_) => (None, shown.into_iter().next()),
        };
        let rest = tls.take_unread();
        Ok(Secured {
            client,
            server,
            wrap: Wrap::new(tls),
            rest,
        })
    }

    fn rest(outcome: &mut Secured) -> &mut Vec<u8> {
        &mut outcome.rest
    }
}

/// Without the key.
impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server")
            .field("asks_clients", &self.clients.is_some())
            .finish_non_exhaustive()
    }
}

/// Without the key.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").finish_non_exhaustive()
    }
}
