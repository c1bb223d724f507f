//! A security context of GSSAPI from its first byte to the proof of who the peer is.
//!
//! ```text
//! initiator                                   acceptor
//!   ClientHello                        ──►
//!                                      ◄──   ServerHello ... (1.2: ServerHelloDone, 1.3: Finished)
//!   verifies the acceptor
//!   Certificate ... Finished           ──►
//!                                             verifies the initiator
//!                                      ◄──    1.2: Finished      1.3: a record with one NUL
//!   a record with `0`, or `D`          ──►    `0`: established
//!                                      ◄──    after `D`: a request for a proxy, PKCS#10
//!   the proxy                          ──►    established
//! ```
//!
//! A token is whatever records are ready, without framing of its own: in ADAT each reply and
//! command carries one, on a data channel they are the bytes of the connection. On a data channel
//! with PROT C raw bytes follow the `0`; with PROT S or P there is neither NUL nor `0`, and the
//! stream stays TLS.

pub(crate) mod handshake;
mod machine;

use std::sync::Arc;

pub use machine::Context;

use crate::cert::proxy::ProxyRequest;
use crate::cert::{Credential, CredentialError};
use crate::name::DistinguishedName;
use crate::tls::{NO_CERTIFICATE, TlsFault};
use crate::verify::{Anchors, HostName, Peer, Policy, Refusal};
use crate::versions::Versions;
use crate::wrap::Wrap;

/// Most bytes from the peer until the context is established: some proxies with all their CAs take
/// 20 KiB.
pub const HANDSHAKE_BYTES_MAX: usize = 512 * 1024;

/// Whom the peer must be, beyond having a trusted identity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expect {
    /// Any peer with a valid chain: what a server expects.
    Anyone,
    /// This host: what a client expects on the control channel.
    Host(HostName),
    /// This identity: data channels (DCAU A and S), and clients with a given subject.
    Identity(DistinguishedName),
}

/// What the context is for, which decides what follows the handshake.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Channel {
    /// A control channel. An initiator delegates such a proxy; an acceptor takes what it is given.
    Control {
        /// What to delegate; `None` delegates nothing.
        delegate: Option<ProxyRequest>,
    },
    /// A data channel that continues in clear (PROT C).
    ClearData,
    /// A data channel that stays protected (PROT S, E, P).
    ProtectedData,
}

/// What both roles need.
#[derive(Clone)]
pub struct Settings {
    /// What we prove ourselves with.
    pub credential: Credential,
    /// Whom we trust.
    pub anchors: Arc<dyn Anchors>,
    /// What we accept beyond the rules that hold always.
    pub policy: Policy,
    /// Whom we expect.
    pub expect: Expect,
    /// What the context is for.
    pub channel: Channel,
    /// Versions of TLS.
    pub versions: Versions,
    /// The host that an initiator asks for (SNI); on data channels none.
    pub server_name: Option<String>,
}

/// Why a context failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ContextError {
    /// The peer is not trusted.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Our own credential cannot be used.
    #[error("our own credential: {0}")]
    Credential(CredentialError),
    /// The peer's bytes are no TLS, or it has sent an alert.
    #[error("TLS with the peer failed: {0}")]
    Tls(String),
    /// The peer's bytes are TLS, but not what GSI has at this place.
    #[error("the peer broke the protocol of GSI: {0}")]
    Protocol(&'static str),
    /// The peer's delegated certificate or request is not good.
    #[error("delegation: {0}")]
    Delegation(CredentialError),
    /// The peer sends too much.
    #[error("the peer sent more than {max} bytes before it was known")]
    TooMuch {
        /// The bound.
        max: usize,
    },
    /// It had failed before.
    #[error("the context has failed before")]
    Over,
}

impl From<TlsFault> for ContextError {
    fn from(fault: TlsFault) -> Self {
        match fault.0.as_str() {
            NO_CERTIFICATE => Self::Refused(Refusal::NoCertificate),
            _ => Self::Tls(fault.0),
        }
    }
}

/// An established context.
pub struct Established {
    /// Who the peer is.
    pub peer: Peer,
    /// What it has delegated to us.
    pub delegated: Option<Credential>,
    /// Wraps and unwraps what follows. Of no use on a data channel in clear.
    pub wrap: Wrap,
    /// Bytes that were handed in and belong to what follows: of a data channel, raw (PROT C) or
    /// protected (S, P: hand them to [`crate::Records::open`]). On a control channel it is empty,
    /// for tokens are whole.
    pub rest: Vec<u8>,
}
