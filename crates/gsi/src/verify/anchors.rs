//! Whom we trust: a directory of CAs as grids keep it, or a bundle in memory.

use std::fs;
use std::io::{ErrorKind, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use openssl::x509::X509Crl;

use super::Refusal;
use super::signing_policy::SigningPolicy;
use crate::cert::credential::certificates_from_pem;
use crate::cert::{Certificate, CredentialError};

/// Trusted CAs, by the hash of their names (OpenSSL's, 8 hexadecimal digits in the names of files).
/// Several CAs may have one hash; the caller compares names. May be asked from several threads, and
/// any number of times for one peer.
pub trait Anchors: Send + Sync {
    /// The certificates with this hash.
    ///
    /// # Errors
    /// When our own files cannot be read.
    fn authorities(&self, hash: u32) -> Result<Vec<Certificate>, Refusal>;

    /// The revocation lists of CAs with this hash; none is no fault.
    ///
    /// # Errors
    /// As above.
    fn revocations(&self, hash: u32) -> Result<Vec<X509Crl>, Refusal>;

    /// Which names they may sign.
    ///
    /// # Errors
    /// As above, and when the signing policy cannot be understood.
    fn may_sign(&self, hash: u32) -> Result<MaySign, Refusal>;

    /// Where they are, for messages.
    fn describe(&self) -> String;
}

/// Which names a CA may certify.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MaySign {
    /// No policy is asked for here.
    Anything,
    /// There is no policy, and one is demanded.
    Nothing {
        /// The file that should be there.
        file: String,
    },
    /// What the file says.
    Subjects {
        /// The file.
        file: String,
        /// Its content.
        policy: SigningPolicy,
    },
}

/// A directory like `/etc/grid-security/certificates`: `HASH.0`, `HASH.1` ... certificates,
/// `HASH.r0` ... revocation lists, `HASH.signing_policy`. Files are read when a peer needs them, so
/// renewed ones count at once.
#[derive(Clone)]
pub struct Directory {
    path: PathBuf,
    open: Opener,
}

/// Opens the file of a [`Directory`] that has this name.
pub type Opener = Arc<dyn Fn(&str) -> std::io::Result<fs::File> + Send + Sync>;

impl std::fmt::Debug for Directory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Directory")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}

/// CAs whose names have one hash. More than two were never seen.
const SAME_HASH_MAX: u32 = 16;
/// A certificate or a policy.
const FILE_BYTES_MAX: u64 = 1024 * 1024;
/// A revocation list: the largest of the grids' have some megabytes.
const LIST_BYTES_MAX: u64 = 64 * 1024 * 1024;

impl Directory {
    /// The directory need not exist yet; then no CA is trusted.
    #[must_use]
    pub fn new(path: PathBuf) -> Self {
        let folder = path.clone();
        Self::opened_by(
            path,
            Arc::new(move |name| fs::File::open(folder.join(name))),
        )
    }

    /// For a process that may open no files itself. `path` is for messages only.
    #[must_use]
    pub fn opened_by(path: PathBuf, open: Opener) -> Self {
        Self { path, open }
    }

    fn read(&self, name: &str, bytes_max: u64) -> Result<Option<Vec<u8>>, Refusal> {
        let path = self.path.join(name);
        let file = match (self.open)(name) {
            Ok(file) => file,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(fault(&path, &error)),
        };
        let mut content = Vec::new();
        file.take(bytes_max + 1)
            .read_to_end(&mut content)
            .map_err(|error| fault(&path, &error))?;
        if content.len() as u64 > bytes_max {
            return Err(fault(&path, &format!("larger than {bytes_max} bytes")));
        }
        Ok(Some(content))
    }

    /// `HASH.0`, `HASH.1` ... as long as there are any.
    fn numbered(
        &self,
        hash: u32,
        prefix: &str,
        bytes_max: u64,
    ) -> Result<Vec<(PathBuf, Vec<u8>)>, Refusal> {
        let mut found = Vec::new();
        for number in 0..SAME_HASH_MAX {
            let name = format!("{hash:08x}.{prefix}{number}");
            match self.read(&name, bytes_max)? {
                Some(content) => found.push((self.path.join(name), content)),
                None => break,
            }
        }
        Ok(found)
    }
}

impl Anchors for Directory {
    fn authorities(&self, hash: u32) -> Result<Vec<Certificate>, Refusal> {
        let mut all = Vec::new();
        for (path, content) in self.numbered(hash, "", FILE_BYTES_MAX)? {
            let certificates =
                certificates_from_pem(&content).map_err(|error| fault(&path, &error))?;
            // A file may hold others; the hash is of the first only, and so is the trust.
            let first = certificates.into_iter().next();
            all.push(first.ok_or_else(|| fault(&path, &CredentialError::NoCertificate))?);
        }
        Ok(all)
    }

    fn revocations(&self, hash: u32) -> Result<Vec<X509Crl>, Refusal> {
        let mut all = Vec::new();
        for (path, content) in self.numbered(hash, "r", LIST_BYTES_MAX)? {
            let list = X509Crl::from_pem(&content).or_else(|_| X509Crl::from_der(&content));
            all.push(list.map_err(|_| fault(&path, &"the revocation list cannot be read"))?);
        }
        Ok(all)
    }

    fn may_sign(&self, hash: u32) -> Result<MaySign, Refusal> {
        let name = format!("{hash:08x}.signing_policy");
        let path = self.path.join(&name);
        let file = path.display().to_string();
        let Some(content) = self.read(&name, FILE_BYTES_MAX)? else {
            return Ok(MaySign::Nothing { file });
        };
        let text = String::from_utf8_lossy(&content);
        let policy = SigningPolicy::parse(&text).map_err(|error| fault(&path, &error))?;
        Ok(MaySign::Subjects { file, policy })
    }

    fn describe(&self) -> String {
        self.path.display().to_string()
    }
}

/// CAs in memory, without signing policies and revocation lists: a bundle that the user trusts
/// as it is, or the extra CAs of DCSC.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    certificates: Vec<Certificate>,
    name: String,
}

impl Bundle {
    /// Trusts these. `name` says in messages where they are from.
    #[must_use]
    pub fn new(name: &str, certificates: Vec<Certificate>) -> Self {
        Self {
            certificates,
            name: name.to_owned(),
        }
    }

    /// Trusts all certificates of a PEM text of any length.
    ///
    /// # Errors
    /// When one cannot be read.
    pub fn from_pem(name: &str, pem: &[u8]) -> Result<Self, CredentialError> {
        let certificates = openssl::x509::X509::stack_from_pem(pem)
            .map_err(|_| CredentialError::CertificateMalformed)?;
        let certificates: Result<_, _> = certificates.into_iter().map(Certificate::new).collect();
        Ok(Self::new(name, certificates?))
    }
}

impl Anchors for Bundle {
    fn authorities(&self, hash: u32) -> Result<Vec<Certificate>, Refusal> {
        let all = self.certificates.iter();
        Ok(all
            .filter(|certificate| certificate.subject_hash() == hash)
            .cloned()
            .collect())
    }

    fn revocations(&self, _hash: u32) -> Result<Vec<X509Crl>, Refusal> {
        Ok(Vec::new())
    }

    fn may_sign(&self, _hash: u32) -> Result<MaySign, Refusal> {
        Ok(MaySign::Anything)
    }

    fn describe(&self) -> String {
        self.name.clone()
    }
}

/// Other anchors and some CAs more: those of a credential that came with its own (DCSC).
pub struct Extended {
    base: Arc<dyn Anchors>,
    extra: Bundle,
}

impl Extended {
    /// Trusts in addition those of `certificates` that are CAs or stand for themselves; no signing
    /// policy is demanded of them.
    #[must_use]
    pub fn new(base: Arc<dyn Anchors>, certificates: Vec<Certificate>) -> Self {
        let mut anchors = certificates;
        anchors.retain(|one| one.extensions().is_ca || one.is_self_issued());
        Self {
            extra: Bundle::new("extra", anchors),
            base,
        }
    }
}

impl Anchors for Extended {
    fn authorities(&self, hash: u32) -> Result<Vec<Certificate>, Refusal> {
        let mut all = self.extra.authorities(hash)?;
        all.extend(self.base.authorities(hash)?);
        Ok(all)
    }

    fn revocations(&self, hash: u32) -> Result<Vec<X509Crl>, Refusal> {
        self.base.revocations(hash)
    }

    fn may_sign(&self, hash: u32) -> Result<MaySign, Refusal> {
        match self.extra.authorities(hash)?.is_empty() {
            true => self.base.may_sign(hash),
            false => Ok(MaySign::Anything),
        }
    }

    fn describe(&self) -> String {
        self.base.describe()
    }
}

fn fault(path: &Path, reason: &dyn std::fmt::Display) -> Refusal {
    Refusal::Anchors {
        path: path.display().to_string(),
        reason: reason.to_string(),
    }
}
