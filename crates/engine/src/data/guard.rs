//! What guards the data channels of a set: DCAU and PROT, as the engine needs them.

use std::{fmt, sync::Arc};

use godwit_gsi::{
    Channel, Expect, Settings, Versions,
    cert::Credential,
    name::DistinguishedName,
    verify::{Anchors, Policy},
};
use godwit_proto::security::Protection;

/// Each connection of the set begins with a handshake in which both ends prove who they are (the side that connected speaks
/// first), and goes on as `protection` says. Without a guard (DCAU N) there is neither. GFD.020 on DCAU, RFC 2228 §3 on PROT.
///
/// Nothing is ever taken from or given to a connection whose handshake has not succeeded. One that fails is closed, and fails the
/// transfer with [`TransferFailure::NotAuthenticated`], unless that can go on with other channels that it has opened itself.
///
/// [`TransferFailure::NotAuthenticated`]: godwit_proto::error::TransferFailure::NotAuthenticated
#[derive(Clone)]
pub struct Guard {
    /// What we prove ourselves with: the user's; at a server the one that was delegated.
    pub credential: Credential,
    /// Whom we trust.
    pub anchors: Arc<dyn Anchors>,
    /// What chains must be like beyond the rules that hold always.
    pub policy: Policy,
    /// Who must be at the other end: the same identity as ours (DCAU A) or a named subject (DCAU S).
    pub peer: DistinguishedName,
    /// What follows the handshake: octets in clear (PROT C), or TLS, which does for S, E and P alike.
    pub protection: Protection,
    /// Versions of TLS.
    pub versions: Versions,
}

impl Guard {
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
    pub(super) fn settings(&self) -> Settings {
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

/// Without the key, and without whom we trust.
impl fmt::Debug for Guard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Guard")
            .field("peer", &self.peer)
            .field("protection", &self.protection)
            .finish_non_exhaustive()
    }
}
