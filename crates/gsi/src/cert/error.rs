//! What can be wrong with credentials of our own, and with making new ones.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use openssl::error::ErrorStack;

/// A credential could not be read or made. The remedy is local.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CredentialError {
    /// There is no such file.
    #[error("{path}: no such file: {remedy}")]
    Missing {
        /// The file.
        path: PathBuf,
        /// What would put it there.
        remedy: &'static str,
    },
    /// The file could not be read or written.
    #[error("{path}: {reason}")]
    File {
        /// The file.
        path: PathBuf,
        /// What the system says.
        reason: String,
    },
    /// Others could read the key.
    #[error("{path}: mode {mode:04o} lets others at the key: run `chmod 600 {path}`")]
    Permissions {
        /// The file.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// The file belongs to another user, who could exchange it.
    #[error("{path}: belongs to user {owner}, not to user {expected} who would use it")]
    Owner {
        /// The file.
        path: PathBuf,
        /// Whose it is.
        owner: u32,
        /// Whose it should be.
        expected: u32,
    },
    /// Something is wrong inside a file.
    #[error("{path}: {fault}")]
    In {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        fault: Box<CredentialError>,
    },
    /// No `BEGIN CERTIFICATE` there.
    #[error("no certificate found (expected PEM with BEGIN CERTIFICATE)")]
    NoCertificate,
    /// No `BEGIN ... PRIVATE KEY` there.
    #[error("no private key found (expected PEM with BEGIN PRIVATE KEY)")]
    NoKey,
    /// The key is encrypted and there was no passphrase, or a wrong one.
    #[error("the private key is encrypted, and the passphrase is missing or wrong")]
    Passphrase,
    /// The key could not be read.
    #[error("the private key cannot be read: the file may be cut short or changed")]
    KeyMalformed,
    /// The certificate could not be read.
    #[error("a certificate cannot be read: the file may be cut short or changed")]
    CertificateMalformed,
    /// It was valid once.
    #[error("expired {} ago: {remedy}", Span(*.ago))]
    Expired {
        /// Since when.
        ago: Duration,
        /// How to get another.
        remedy: &'static str,
    },
    /// It will be valid.
    #[error("is valid only in {}: the clock of this machine may be wrong", Span(*.ahead))]
    NotYetValid {
        /// How long until then.
        ahead: Duration,
    },
    /// Too many certificates in one place.
    #[error("more than {max} certificates in one chain")]
    ChainTooLong {
        /// How many may be there.
        max: usize,
    },
    /// Key and certificate are of different people.
    #[error("the private key does not belong to the certificate of {subject}")]
    KeyMismatch {
        /// Whose certificate.
        subject: String,
    },
    /// A certificate of a site cannot be as it was asked for.
    #[error("the certificate that was asked for {fault}")]
    Site {
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The request of the other side for a proxy makes no sense.
    #[error("the request for a proxy {fault}")]
    Request {
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The issuer may not issue this.
    #[error("{subject} {fault}")]
    Issuer {
        /// The issuer.
        subject: String,
        /// Why it may not.
        fault: String,
    },
    /// The certificate that came back for our request is of another key.
    #[error("the delegated certificate is not for the key that was sent")]
    Delegated,
    /// OpenSSL failed at something that no bytes of a peer can make fail.
    #[error("OpenSSL: {0}")]
    Library(String),
}

impl From<ErrorStack> for CredentialError {
    fn from(stack: ErrorStack) -> Self {
        Self::Library(stack.to_string())
    }
}

impl CredentialError {
    pub(crate) fn at(self, path: &std::path::Path) -> Self {
        Self::In {
            path: path.to_owned(),
            fault: Box::new(self),
        }
    }
}

/// A duration as people say it: `40 s`, `5 min`, `2 h`, `3 days`.
pub struct Span(pub Duration);

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_secs() {
            seconds @ 0..=119 => write!(f, "{seconds} s"),
            seconds @ 120..=7199 => write!(f, "{} min", seconds / 60),
            seconds @ 7200..=172_799 => write!(f, "{} h", seconds / 3600),
            seconds => write!(f, "{} days", seconds / 86_400),
        }
    }
}
