//! Every way to be refused, with what to do about it.

use std::fmt;
use std::time::Duration;

use crate::cert::{Certificate, Span};

/// Why a peer is not trusted. The text may go to the peer: it names nothing that it does not know,
/// apart from where our CAs lie.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The peer sent none.
    #[error(
        "the peer sent no certificate: it needs a proxy (`godwit proxy init`) or a host certificate"
    )]
    NoCertificate,
    /// More than any grid needs.
    #[error(
        "the peer's chain has more than {max} certificates: it takes the proxies, the holder's and \
         the CAs between only"
    )]
    TooManyCertificates {
        /// The bound.
        max: usize,
    },
    /// One cannot be read.
    #[error("a certificate of the peer's chain cannot be read: have it issued anew")]
    Malformed,
    /// It was valid once.
    #[error("the {kind} {subject} expired {} ago: {}", Span(*ago), kind.renewal())]
    Expired {
        /// Proxy, CA or neither.
        kind: Kind,
        /// Whose.
        subject: String,
        /// Since when.
        ago: Duration,
    },
    /// It will be valid.
    #[error(
        "the {kind} {subject} is valid only in {}: one of the two clocks is wrong",
        Span(*ahead)
    )]
    NotYetValid {
        /// Proxy, CA or neither.
        kind: Kind,
        /// Whose.
        subject: String,
        /// How long until then.
        ahead: Duration,
    },
    /// A part of the chain is not there.
    #[error(
        "the proxy {subject} came without the certificate of its issuer {issuer}: make the proxy \
         anew, with its chain"
    )]
    IssuerNotSent {
        /// The proxy.
        subject: String,
        /// Whose certificate is wanted.
        issuer: String,
    },
    /// The issuer did not sign this.
    #[error(
        "the signature on the certificate of {subject} is not by {issuer}: either it is forged, or \
         {issuer} has a new key, whose certificate is wanted"
    )]
    Signature {
        /// Whose certificate.
        subject: String,
        /// Who should have signed.
        issuer: String,
    },
    /// Signatures of this kind can be forged.
    #[error(
        "the certificate of {subject} is signed with {digest}, which is not safe: have it issued \
         anew with SHA-256"
    )]
    WeakDigest {
        /// Whose certificate.
        subject: String,
        /// The digest.
        digest: &'static str,
    },
    /// Too small, or absurdly large.
    #[error(
        "the key of {subject} is {key}, allowed are {bits_min} to {bits_max} bits: make a new one"
    )]
    KeySize {
        /// Whose key.
        subject: String,
        /// Family and size.
        key: String,
        /// Least size.
        bits_min: u32,
        /// Largest size.
        bits_max: u32,
    },
    /// Not RSA, EC or Ed25519.
    #[error(
        "the key of {subject} is of a kind that is not supported: make one of RSA, EC or Ed25519"
    )]
    UnknownKey {
        /// Whose key.
        subject: String,
    },
    /// Critical means: refuse unless you know what I mean.
    #[error(
        "the certificate of {subject} has the critical extension {oid}, which is not supported: \
         have it issued without"
    )]
    UnknownCritical {
        /// Whose certificate.
        subject: String,
        /// The extension.
        oid: String,
    },
    /// Name constraints are not evaluated.
    #[error(
        "the certificate of {subject} constrains names, which is not supported: a CA without name \
         constraints is needed"
    )]
    NameConstraints {
        /// Whose certificate.
        subject: String,
    },
    /// No subject.
    #[error("the peer's certificate has no subject: ask the CA for one with a name")]
    NoName,
    /// See [`crate::name::DistinguishedName::is_ambiguous`].
    #[error(
        "the subject {subject} holds a slash and an equals sign inside one value, so that it could \
         pass for another's: ask the CA for another name"
    )]
    AmbiguousName {
        /// The subject.
        subject: String,
    },
    /// A rule of proxies.
    #[error("the proxy {subject} {fault}: make it anew (`godwit proxy init`)")]
    Proxy {
        /// The proxy.
        subject: String,
        /// The rule.
        fault: ProxyFault,
    },
    /// Limited proxies are not accepted here.
    #[error(
        "the proxy {subject} is limited, and a full one is needed: make it without `--limited`"
    )]
    Limited {
        /// The proxy.
        subject: String,
    },
    /// The CA is unknown.
    #[error(
        "no CA with hash {hash:08x} ({issuer}) in {anchors}: install its certificate as \
         {hash:08x}.0"
    )]
    NoAuthority {
        /// Its name.
        issuer: String,
        /// Its name's hash.
        hash: u32,
        /// Where we looked.
        anchors: String,
    },
    /// The peer sent a root that we do not have.
    #[error(
        "the root CA {subject} (hash {hash:08x}) is not in {anchors}: install its certificate as \
         {hash:08x}.0 if you trust it"
    )]
    UntrustedRoot {
        /// Its name.
        subject: String,
        /// Its name's hash.
        hash: u32,
        /// Where we looked.
        anchors: String,
    },
    /// A rule of CAs.
    #[error("the issuer {subject} {fault}: a certificate by a good CA is needed")]
    Authority {
        /// The CA, or what should be one.
        subject: String,
        /// The rule.
        fault: AuthorityFault,
    },
    /// CAs do not copy files.
    #[error(
        "the certificate of {subject} is a CA's, not a person's or host's: use one that it has \
         issued"
    )]
    HolderIsAuthority {
        /// The CA.
        subject: String,
    },
    /// On the list.
    #[error("the certificate of {subject} was revoked by {issuer}: ask it for a new one")]
    Revoked {
        /// Whose certificate.
        subject: String,
        /// Whose list.
        issuer: String,
    },
    /// The list is unusable.
    #[error("the revocation list of {issuer} ({hash:08x}.r0 in {anchors}) {fault}")]
    Crl {
        /// Whose list.
        issuer: String,
        /// The hash that names the file.
        hash: u32,
        /// Where it lies.
        anchors: String,
        /// What is wrong with it.
        fault: CrlFault,
    },
    /// No policy says which names it may sign.
    #[error("no signing policy for the CA {issuer}: install {file}")]
    NoSigningPolicy {
        /// The CA.
        issuer: String,
        /// The file that should say it.
        file: String,
    },
    /// The file is of another CA.
    #[error("the signing policy {file} has no entry for the CA {issuer}: install that CA's own")]
    SigningPolicyOfOther {
        /// The CA.
        issuer: String,
        /// The file.
        file: String,
    },
    /// The CA signed what it may not.
    #[error(
        "the CA {issuer} may not certify {subject} (signing policy {file}): install its present \
         policy, or ask another CA"
    )]
    OutsideSigningPolicy {
        /// Whom it certified.
        subject: String,
        /// The CA.
        issuer: String,
        /// The file.
        file: String,
    },
    /// Our own files of CAs cannot be read.
    #[error("{path}: {reason}")]
    Anchors {
        /// The file.
        path: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Another host.
    #[error(
        "the certificate is for {found}, not for host {host}: name the host as its certificate does"
    )]
    Host {
        /// The host that was wanted.
        host: String,
        /// What the certificate is for.
        found: String,
    },
    /// Another person or service.
    #[error("the peer is {found}, expected was {expected}")]
    Identity {
        /// The expected identity.
        expected: String,
        /// Who it is.
        found: String,
    },
}

/// What certificate is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A proxy.
    Proxy,
    /// A person's or host's.
    Holder,
    /// A CA's.
    Authority,
}

impl Kind {
    pub(super) fn of(certificate: &Certificate) -> Self {
        if certificate.proxy().is_some() {
            Self::Proxy
        } else if certificate.extensions().is_ca {
            Self::Authority
        } else {
            Self::Holder
        }
    }

    fn renewal(self) -> &'static str {
        match self {
            Self::Proxy => "run `godwit proxy init`",
            Self::Holder => "ask the CA for a new certificate",
            Self::Authority => "install the CA's new certificate",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Proxy => "proxy",
            Self::Holder => "certificate of",
            Self::Authority => "CA certificate",
        })
    }
}

/// What a proxy does against the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProxyFault {
    /// RFC 3820 §3.4.
    #[error("is not named after its issuer (issuer's name and one CN more)")]
    Name,
    /// RFC 3820 §3.8.
    #[error("has a proxyCertInfo that is not critical")]
    NotCritical,
    /// RFC 3820 §3.8.2.
    #[error("is restricted by a policy in the language {0}, which is not supported")]
    Language(String),
    /// RFC 3820 §3.8.2: inheritAll and independent have no text.
    #[error("has a policy text where its language has none")]
    PolicyText,
    /// RFC 3820 §3.7.
    #[error("says that it is a CA")]
    Authority,
    /// RFC 3820 §3.6.
    #[error("has a key usage for signing certificates (keyCertSign)")]
    CertSign,
    /// RFC 3820 §3.5.
    #[error("has alternative names")]
    AlternativeNames,
    /// RFC 3820 §3.8.1.
    #[error("may have {most} proxies below it and has {below}")]
    PathLength {
        /// Its bound.
        most: u32,
        /// How many there are.
        below: usize,
    },
    /// RFC 3820 §3.1.
    #[error("is issued by a CA; only persons, hosts and proxies issue proxies")]
    IssuerIsAuthority,
    /// RFC 3820 §3.1.
    #[error("is issued with a key that is not for signatures (key usage)")]
    IssuerUsage,
    /// As in the Grid Community Toolkit.
    #[error("is of the kind {one} below one of the kind {other}: kinds do not mix")]
    MixedKinds {
        /// Its kind.
        one: &'static str,
        /// Its issuer's kind.
        other: &'static str,
    },
    /// Once limited, always limited.
    #[error("is a full one below a limited one")]
    FullBelowLimited,
}

/// What a CA does against the rules.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AuthorityFault {
    /// RFC 5280 §6.1.4 (k).
    #[error("is no CA (basic constraints)")]
    NotAuthority,
    /// RFC 5280 §6.1.4 (n).
    #[error("may not sign certificates (key usage)")]
    KeyUsage,
    /// RFC 5280 §6.1.4 (l).
    #[error("may have {most} CAs below it and has {below}")]
    PathLength {
        /// Its bound.
        most: u32,
        /// How many there are.
        below: u32,
    },
}

/// What is wrong with a revocation list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CrlFault {
    /// Another issuer signed it.
    #[error("is not signed by it: fetch it anew (`fetch-crl`)")]
    Signature,
    /// It should have been renewed.
    #[error("expired {} ago: fetch a new one (`fetch-crl`)", Span(*ago))]
    Expired {
        /// Since when.
        ago: Duration,
    },
    /// It is from the future.
    #[error("is not valid yet: the clock is wrong")]
    NotYetValid,
}
