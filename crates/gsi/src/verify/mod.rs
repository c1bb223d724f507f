//! Whether a peer is who it says: path validation for chains that end in proxies.
//!
//! Verifiers for the web refuse such chains, for their end-entity certificate is no CA and yet
//! signs. Here the part of the chain up to the holder (person or host) follows RFC 3820, the part
//! above RFC 5280 with the rules of grids: a directory of CAs, and for each CA a file that says
//! which names it may sign.
//!
//! - [`path`]: from certificates in any order to a path
//! - [`proxy`]: the rules of proxies; [`authority`]: those of CAs, revocation lists and signing
//!   policies
//! - [`anchors`]: whom we trust; [`signing_policy`]: for which names
//! - [`host`]: whether a certificate is a host's
//! - [`refusal`]: every way to be refused, with what to do about it
//!
//! Not looked at: extended key usage (grids use one certificate for all purposes) and certificate
//! policies. Name constraints are refused rather than ignored.

pub mod anchors;
mod authority;
pub mod host;
mod path;
mod proxy;
pub mod refusal;
pub mod signing_policy;

use std::time::SystemTime;

pub use anchors::{Anchors, Bundle, Directory, Extended, MaySign, Opener};
pub use host::HostName;
pub use refusal::Refusal;

use crate::cert::certificate::Certificate;
use crate::cert::credential::{CHAIN_MAX, inherits};
use crate::cert::extensions::ProxyPolicy;
use crate::cert::key::Digest;
pub use crate::cert::{Span, key::Strength};
use crate::name::DistinguishedName;

/// Longest RSA key that is accepted: verifying takes time cubic in it, and any peer may send one.
pub const RSA_BITS_MAX: u32 = 16_384;

/// What is acceptable beyond the rules that hold always.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Policy {
    /// Limited proxies are welcome. File servers take them, services that start jobs do not.
    pub limited: bool,
    /// How strong keys and signatures must be.
    pub strength: Strength,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            limited: true,
            strength: Strength::Modern,
        }
    }
}

/// Who the peer is, proven.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Peer {
    path: Vec<Certificate>,
    acting: usize,
    holder: usize,
    limited: bool,
    not_after: SystemTime,
}

impl Peer {
    /// Whom it acts as: the holder, without the names that inheriting proxies add. An independent
    /// proxy is only itself (RFC 3820 §3.8.2), so its own subject counts.
    #[must_use]
    pub fn identity(&self) -> &DistinguishedName {
        self.acting().subject()
    }

    /// The certificate whose subject is the identity: the holder's, or of the proxies that are
    /// independent the lowest.
    #[must_use]
    pub fn acting(&self) -> &Certificate {
        &self.path[self.acting]
    }

    /// The certificate of the person or host.
    #[must_use]
    pub fn holder(&self) -> &Certificate {
        &self.path[self.holder]
    }

    /// The peer's certificate, then its issuers in order, up to the trusted CA.
    #[must_use]
    pub fn path(&self) -> &[Certificate] {
        &self.path
    }

    /// The certificates that belong to a credential made from the peer's: proxies and the holder's.
    #[must_use]
    pub fn chain(&self) -> &[Certificate] {
        &self.path[..=self.holder]
    }

    /// A limited proxy is among them.
    #[must_use]
    pub fn is_limited(&self) -> bool {
        self.limited
    }

    /// When the first certificate of the path expires.
    #[must_use]
    pub fn not_after(&self) -> SystemTime {
        self.not_after
    }
}

/// Verifies the certificates that a peer has sent: its own first, the others in any order,
/// superfluous ones allowed. That it holds the key is for the handshake to show.
///
/// # Errors
/// Why it is refused; the fault nearest to the peer comes first.
pub fn verify(
    sent: &[Certificate],
    anchors: &dyn Anchors,
    policy: &Policy,
    now: SystemTime,
) -> Result<Peer, Refusal> {
    if sent.len() > CHAIN_MAX {
        return Err(Refusal::TooManyCertificates { max: CHAIN_MAX });
    }
    let mut path = path::to_holder(sent)?;
    for certificate in &path {
        check_alone(certificate, policy, now)?;
    }
    proxy::check(&path)?;
    let holder = path.len() - 1;
    let limited = path
        .iter()
        .filter_map(Certificate::proxy)
        .any(|proxy| proxy.policy == ProxyPolicy::Limited);
    if limited && !policy.limited {
        return Err(Refusal::Limited {
            subject: path[0].subject().to_string(),
        });
    }
    let acting = path.iter().position(|certificate| !inherits(certificate));
    let acting = acting.unwrap_or(holder);
    let identity = path[acting].subject();
    if identity.as_str().is_empty() {
        return Err(Refusal::NoName);
    }
    if identity.is_ambiguous() {
        return Err(Refusal::AmbiguousName {
            subject: identity.to_string(),
        });
    }
    let above = path::to_anchor(&path[holder], sent, anchors)?;
    for certificate in &above {
        check_alone(certificate, policy, now)?;
    }
    authority::check(&path[holder], &above, anchors, now)?;
    path.extend(above);
    let ends = path.iter().map(Certificate::not_after).min();
    Ok(Peer {
        acting,
        limited,
        not_after: ends.unwrap_or(now),
        holder,
        path,
    })
}

/// What can be said of a certificate without its neighbours.
fn check_alone(certificate: &Certificate, policy: &Policy, now: SystemTime) -> Result<(), Refusal> {
    let subject = || certificate.subject().to_string();
    if let Ok(ago) = now.duration_since(certificate.not_after()) {
        return Err(Refusal::Expired {
            kind: refusal::Kind::of(certificate),
            subject: subject(),
            ago,
        });
    }
    if let Ok(ahead) = certificate.not_before().duration_since(now)
        && !ahead.is_zero()
    {
        return Err(Refusal::NotYetValid {
            kind: refusal::Kind::of(certificate),
            subject: subject(),
            ahead,
        });
    }
    let extensions = certificate.extensions();
    if let Some(oid) = extensions.unknown_critical.first() {
        return Err(Refusal::UnknownCritical {
            subject: subject(),
            oid: oid.clone(),
        });
    }
    if extensions.has_name_constraints {
        return Err(Refusal::NameConstraints { subject: subject() });
    }
    let weak_digest = |digest| Refusal::WeakDigest {
        subject: subject(),
        digest,
    };
    // The signature of a self-signed certificate proves nothing.
    if !certificate.is_self_issued() {
        match crate::cert::key::digest_of(certificate.as_x509().signature_algorithm()) {
            Digest::Broken(name) => return Err(weak_digest(name)),
            Digest::Sha1 if policy.strength == Strength::Modern => {
                return Err(weak_digest("SHA-1"));
            }
            Digest::Unknown => return Err(weak_digest("an unknown algorithm")),
            Digest::Sha1 | Digest::Good => {}
        }
    }
    check_key(certificate, policy)
}

fn check_key(certificate: &Certificate, policy: &Policy) -> Result<(), Refusal> {
    const CURVE_BITS_MIN: u32 = 224;
    let subject = || certificate.subject().to_string();
    let key = certificate
        .public_key()
        .map_err(|_| Refusal::UnknownKey { subject: subject() })?;
    let bounds = match key.id() {
        openssl::pkey::Id::RSA | openssl::pkey::Id::RSA_PSS => {
            policy.strength.rsa_bits_min()..=RSA_BITS_MAX
        }
        openssl::pkey::Id::EC => CURVE_BITS_MIN..=u32::MAX,
        openssl::pkey::Id::ED25519 | openssl::pkey::Id::ED448 => 0..=u32::MAX,
        _ => return Err(Refusal::UnknownKey { subject: subject() }),
    };
    if bounds.contains(&key.bits()) {
        return Ok(());
    }
    Err(Refusal::KeySize {
        subject: subject(),
        key: crate::cert::key::describe(&key),
        bits_min: *bounds.start(),
        bits_max: *bounds.end(),
    })
}
