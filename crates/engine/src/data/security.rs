//! How the peers of a set authenticate and what protects their bytes: DCAU and PROT.

use std::{fmt, net::IpAddr, sync::Arc, time::SystemTime};

use godwit_gsi::{
    Channel, Context, ContextError, Expect, Settings, Versions, Wrap,
    cert::Credential,
    ftps::{self, ServerIs},
    name::DistinguishedName,
    verify::{Anchors, Policy},
};
use godwit_proto::security::Protection;

/// Each connection of the set begins with a handshake in which both ends prove who they are (the
/// side that connected speaks first), and continues as `protection` says. DCAU N has neither.
/// GFD.020 on DCAU, RFC 2228 §3 on PROT.
///
/// Nothing is ever taken from or given to a connection whose handshake has not succeeded. One that
/// fails is closed, and fails the transfer with [`TransferFailure::NotAuthenticated`] (or
/// [`TransferFailure::ConnectionLost`] where the peer closed without an alert), unless the transfer
/// can continue with other channels that it has opened itself.
///
/// [`TransferFailure::NotAuthenticated`]: godwit_proto::error::TransferFailure::NotAuthenticated
/// [`TransferFailure::ConnectionLost`]: godwit_proto::error::TransferFailure::ConnectionLost
#[derive(Clone)]
pub struct GsiSecurity {
    /// What we prove ourselves with: the user's; at a server the one that was delegated.
    pub credential: Credential,
    /// Whom we trust.
    pub anchors: Arc<dyn Anchors>,
    /// What chains must be like beyond the rules that hold always.
    pub policy: Policy,
    /// Who must be at the other end: the same identity as ours (DCAU A) or a named subject (DCAU
    /// S).
    pub peer: DistinguishedName,
    /// What follows the handshake: bytes in clear (PROT C), or TLS, which does for S, E and P
    /// alike.
    pub protection: Protection,
    /// Versions of TLS.
    pub versions: Versions,
}

impl GsiSecurity {
    /// DCAU A: the peer must have the credential's identity.
    pub fn own_identity(
        credential: Credential,
        anchors: Arc<dyn Anchors>,
        protection: Protection,
    ) -> Self {
        Self {
            peer: credential.identity(),
            credential,
            anchors,
            policy: Policy::default(),
            protection,
            versions: Versions::Any,
        }
    }

    /// What a context of either role needs.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            credential: self.credential.clone(),
            anchors: Arc::clone(&self.anchors),
            policy: self.policy,
            expect: Expect::Identity(self.peer.clone()),
            channel: match self.protection {
                Protection::Clear => Channel::ClearData,
                Protection::Safe | Protection::Confidential | Protection::Private => {
                    Channel::ProtectedData
                }
            },
            versions: self.versions,
            // The identity takes the place of a host's name.
            server_name: None,
        }
    }
}

/// What comes before the first byte of each connection of a set.
#[derive(Clone, Debug)]
pub enum ChannelSecurity {
    /// Both ends prove who they are (DCAU A and S).
    Gsi(Arc<GsiSecurity>),
    /// TLS as FTP has it (PROT P behind AUTH TLS), at a server. The client does not authenticate
    /// here, so that a connection must at least come from its host.
    TlsServer {
        /// What it shows.
        server: ftps::Server,
        /// The client of the control channel; connections are taken from there only.
        client: IpAddr,
    },
    /// The same, at a client: the server holds the certificate that it has shown on the control
    /// channel.
    TlsClient {
        /// What it shows.
        client: ftps::Client,
        /// Whom it expects.
        server: ServerIs,
    },
}

impl From<GsiSecurity> for ChannelSecurity {
    fn from(security: GsiSecurity) -> Self {
        Self::Gsi(Arc::new(security))
    }
}

/// A handshake of either kind.
pub(crate) enum SecurityHandshake {
    Identities(Box<Context>),
    Tls(Box<ftps::Handshake>),
}

impl ChannelSecurity {
    /// For a connection that we have made (`initiates`) or taken.
    pub(crate) fn begin(&self, initiates: bool) -> Result<SecurityHandshake, ContextError> {
        Ok(match self {
            Self::Gsi(security) => {
                let settings = security.settings();
                SecurityHandshake::Identities(Box::new(match initiates {
                    true => Context::initiate(settings)?,
                    false => Context::accept(settings)?,
                }))
            }
            // RFC 4217 §7: the FTP client is the TLS client, whichever end has connected.
            Self::TlsServer { server, .. } => SecurityHandshake::Tls(Box::new(server.accept()?)),
            Self::TlsClient { client, server } => {
                SecurityHandshake::Tls(Box::new(client.connect(server, SystemTime::now())?))
            }
        })
    }

    /// A connection from or to this address may prove itself.
    pub(crate) fn admits(&self, peer: IpAddr) -> bool {
        match self {
            Self::TlsServer { client, .. } => client.to_canonical() == peer.to_canonical(),
            Self::Gsi(_) | Self::TlsClient { .. } => true,
        }
    }

    /// The handshake is all: bytes travel as they are (DCAU with PROT C).
    pub(crate) fn ends_with_handshake(&self) -> bool {
        match self {
            Self::Gsi(security) => security.protection == Protection::Clear,
            Self::TlsServer { .. } | Self::TlsClient { .. } => false,
        }
    }

    /// The end of a stream is sent within TLS (close_notify). Clients of FTP wait for it; no client
    /// of GSI was seen to.
    pub(crate) fn sends_close_notify(&self) -> bool {
        !matches!(self, Self::Gsi(_))
    }
}

impl SecurityHandshake {
    pub(crate) fn handle_input(&mut self, bytes: &[u8]) -> Result<(), ContextError> {
        match self {
            Self::Identities(context) => context.handle_input(SystemTime::now(), bytes),
            Self::Tls(handshake) => handshake.handle_input(SystemTime::now(), bytes),
        }
    }

    pub(crate) fn poll_output(&mut self) -> Option<Vec<u8>> {
        match self {
            Self::Identities(context) => context.poll_output(),
            Self::Tls(handshake) => handshake.poll_output(),
        }
    }

    /// What seals and opens the bytes that follow, and those that are here already.
    pub(crate) fn outcome(&mut self) -> Option<(Wrap, Vec<u8>)> {
        match self {
            Self::Identities(context) => context.outcome().map(|end| (end.wrap, end.rest)),
            Self::Tls(handshake) => handshake.outcome().map(|end| (end.wrap, end.rest)),
        }
    }
}

/// Without the key, and without whom we trust.
impl fmt::Debug for GsiSecurity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GsiSecurity")
            .field("peer", &self.peer)
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}
