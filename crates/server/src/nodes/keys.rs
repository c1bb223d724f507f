//! `godwitd node-key`: the authority of a site, and keys and certificates of its front ends and
//! data nodes.

use std::{
    fmt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use godwit_gsi::cert::{Credential, CredentialError, files, site};

/// Name of the files of the authority.
const AUTHORITY: &str = "site-ca";

/// Bytes of a name that stands for files, too.
const FILE_NAME_MAX: usize = 64;

/// Why there is no key.
#[derive(Debug, thiserror::Error)]
pub enum NodeKeyError {
    /// It exists.
    #[error("{0} exists already, and is not replaced: name another --directory, or add --force")]
    Exists(PathBuf),
    /// Its certificate and key are not of one pair, or one is missing.
    #[error(
        "{} and {} are not a pair, as a node-key that was cut off leaves them: make both \
         again with --force, or name another --directory",
        .cert.display(), .key.display()
    )]
    Apart {
        /// The certificate.
        cert: PathBuf,
        /// The key.
        key: PathBuf,
    },
    /// There is no authority that could issue it.
    #[error("no authority ({0}): make one first with `godwitd node-key ca`")]
    NoAuthority(CredentialError),
    /// The name is none.
    #[error("{0:?} is no name for files: use letters, digits, `.`, `_` and `-`")]
    Name(String),
    /// Another reason.
    #[error(transparent)]
    Credential(#[from] CredentialError),
}

/// What was made. Shows itself to people.
#[derive(Debug)]
pub struct NodeKey {
    /// The certificate.
    pub cert: PathBuf,
    /// Its key.
    pub key: PathBuf,
    subject: String,
    fingerprint: String,
    hosts: Vec<String>,
}

/// Where keys are, and how long they last.
#[derive(Clone, Debug)]
pub struct NodeKeys {
    /// Directory of all files.
    pub directory: PathBuf,
    /// Of a new certificate.
    pub lifetime: Duration,
    /// Replaces what is there.
    pub force: bool,
}

impl NodeKeys {
    /// Makes an authority.
    ///
    /// # Errors
    /// It exists, or cannot be written; the organization is no name.
    pub fn authority(&self, organization: &str, now: SystemTime) -> Result<NodeKey, NodeKeyError> {
        self.check(AUTHORITY)?;
        let credential = site::authority(organization, self.lifetime, now)?;
        self.write(AUTHORITY, &credential, Vec::new())
    }

    /// Makes a key, and a certificate of the authority in the same directory, for `hosts`.
    ///
    /// # Errors
    /// It exists, or cannot be written; there is no authority; a name is none.
    pub fn issue(
        &self,
        name: &str,
        hosts: &[String],
        now: SystemTime,
    ) -> Result<NodeKey, NodeKeyError> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
        let is_name = (1..=FILE_NAME_MAX).contains(&name.len())
            && name.starts_with(|c: char| c.is_ascii_alphanumeric())
            && name.chars().all(is_plain)
            && name != AUTHORITY;
        if !is_name {
            return Err(NodeKeyError::Name(name.to_owned()));
        }
        self.check(name)?;
        let pair = self.files(AUTHORITY);
        let authority = files::load_first_pair(&[pair.into()], None, now);
        let authority = authority.map_err(NodeKeyError::NoAuthority)?;
        let credential = site::issue(&authority, name, hosts, self.lifetime, now)?;
        self.write(name, &credential, hosts.to_vec())
    }

    fn files(&self, name: &str) -> [PathBuf; 2] {
        ["pem", "key"].map(|kind| {
            let file = format!("{name}.{kind}");
            match self.directory == Path::new(".") {
                true => file.into(),
                false => self.directory.join(file),
            }
        })
    }

    /// Before a key is made for nothing.
    fn check(&self, name: &str) -> Result<(), NodeKeyError> {
        let [cert, key] = self.files(name);
        let there = |path: &PathBuf| path.symlink_metadata().is_ok();
        let load = |cert, key| files::load_pair(cert, key, None);
        match (there(&cert), there(&key)) {
            _ if self.force => Ok(()),
            (false, false) => Ok(()),
            (false, true) => Err(NodeKeyError::Apart { cert, key }),
            (true, true) if matches!(load(&cert, &key), Err(error) if is_apart(&error)) => {
                Err(NodeKeyError::Apart { cert, key })
            }
            (true, _) => Err(NodeKeyError::Exists(cert)),
        }
    }

    fn write(
        &self,
        name: &str,
        credential: &Credential,
        hosts: Vec<String>,
    ) -> Result<NodeKey, NodeKeyError> {
        let [cert, key] = self.files(name);
        let pem = credential.key().private_key_to_pem_pkcs8();
        let pem = pem.map_err(CredentialError::from)?;
        // The key first: a certificate without one is of no use. A crash between both leaves two
        // that are not a pair: who loads them says so, and so does the next call.
        self.write_one(&key, &pem, 0o600)?;
        let pem = credential.certificate().as_x509().to_pem();
        let pem = pem.map_err(CredentialError::from)?;
        self.write_one(&cert, &pem, 0o644)?;
        Ok(NodeKey {
            cert,
            key,
            subject: credential.certificate().subject().to_string(),
            fingerprint: site::fingerprint(credential.certificate())?,
            hosts,
        })
    }

    /// Also where it has come there meanwhile, nothing is replaced unless that is meant.
    fn write_one(&self, path: &Path, pem: &[u8], mode: u32) -> Result<(), CredentialError> {
        files::write(path, pem, mode, self.force)
    }
}

/// The key is not that of the certificate.
pub(super) fn is_apart(error: &CredentialError) -> bool {
    match error {
        CredentialError::In { fault, .. } => is_apart(fault),
        CredentialError::KeyMismatch { .. } => true,
        _ => false,
    }
}

impl fmt::Display for NodeKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            cert,
            key,
            subject,
            fingerprint,
            hosts,
        } = self;
        write!(f, "{}: certificate of {subject}", cert.display())?;
        if !hosts.is_empty() {
            write!(f, " for {}", hosts.join(", "))?;
        }
        writeln!(f, "\n  SHA-256 {fingerprint}")?;
        writeln!(f, "{}: its private key, mode 0600", key.display())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::{config::NodeTls, nodes::tls::FrontTls};

    fn keys(directory: &Path) -> NodeKeys {
        NodeKeys {
            directory: directory.to_owned(),
            lifetime: Duration::from_secs(3600),
            force: false,
        }
    }

    #[test]
    fn keys_are_private_and_are_not_replaced_by_chance() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (keys, now) = (keys(folder.path()), SystemTime::now());
        let host = ["dtn1".to_owned()];
        let error = keys.issue("dtn1", &host, now).unwrap_err();
        assert!(error.to_string().contains("node-key ca"), "{error}");
        let made = keys.authority("Site", now).unwrap().to_string();
        assert!(
            made.contains("/O=Site/CN=CA") && made.contains("SHA-256 "),
            "{made}"
        );
        let made = keys.issue("dtn1", &host, now).unwrap().to_string();
        assert!(made.contains("/O=Site/CN=dtn1 for dtn1"), "{made}");
        let mode = |name: &str| fs::metadata(at(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("site-ca.key"), mode("dtn1.key")), (0o600, 0o600));
        assert_eq!((mode("site-ca.pem"), mode("dtn1.pem")), (0o644, 0o644));
        let read = |name: &str| fs::read(at(name)).unwrap();
        let before = ["site-ca.key", "site-ca.pem", "dtn1.key", "dtn1.pem"].map(read);
        let refused = [
            keys.authority("Site", now).unwrap_err(),
            keys.issue("dtn1", &host, now).unwrap_err(),
        ];
        for error in refused {
            assert!(matches!(error, NodeKeyError::Exists(_)), "{error}");
        }
        // A certificate, or a link, is as good a reason as a key.
        std::os::unix::fs::symlink("/nowhere", at("dtn2.pem")).unwrap();
        assert!(keys.issue("dtn2", &host, now).is_err() && !at("dtn2.key").exists());
        let after = ["site-ca.key", "site-ca.pem", "dtn1.key", "dtn1.pem"].map(read);
        assert_eq!(before, after);
        let forced = NodeKeys {
            force: true,
            ..keys
        };
        forced.issue("dtn1", &host, now).unwrap();
        assert_ne!(read("dtn1.key"), before[2]);
        assert_eq!(mode("dtn1.key"), 0o600);
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            5,
            "no other files"
        );
    }

    /// A crash between the two replacements of a forced call, or after the first file of a pair.
    #[test]
    fn a_pair_that_was_cut_off_is_noticed_and_made_again() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let (keys, now) = (keys(folder.path()), SystemTime::now());
        let host = ["dtn1".to_owned()];
        keys.authority("Site", now).unwrap();
        keys.issue("dtn1", &host, now).unwrap();
        let forced = NodeKeys {
            force: true,
            ..keys.clone()
        };
        let pair = [(at("dtn1.pem"), at("dtn1.key"))];
        let load = || files::load_first_pair(&pair, None, now);
        // Only the key is new.
        let before = fs::read(at("dtn1.pem")).unwrap();
        forced.issue("dtn1", &host, now).unwrap();
        fs::write(at("dtn1.pem"), before).unwrap();
        assert!(is_apart(&load().unwrap_err()));
        let tls = NodeTls {
            cert: at("dtn1.pem"),
            key: at("dtn1.key"),
            authorities: at("site-ca.pem"),
        };
        let error = FrontTls::load(&tls).err().unwrap();
        assert!(error.to_string().contains("--force"), "{error}");
        let error = keys.issue("dtn1", &host, now).unwrap_err();
        assert!(matches!(error, NodeKeyError::Apart { .. }), "{error}");
        assert!(error.to_string().contains("--force"), "{error}");
        forced.issue("dtn1", &host, now).unwrap();
        load().unwrap();
        // The certificate was never made.
        fs::remove_file(at("dtn1.pem")).unwrap();
        let error = keys.issue("dtn1", &host, now).unwrap_err();
        assert!(matches!(error, NodeKeyError::Apart { .. }), "{error}");
        forced.issue("dtn1", &host, now).unwrap();
        load().unwrap();
        // So with the authority, whose certificates are then worth nothing.
        let before = fs::read(at("site-ca.pem")).unwrap();
        forced.authority("Site", now).unwrap();
        fs::write(at("site-ca.pem"), before).unwrap();
        let error = forced.issue("dtn1", &host, now).unwrap_err();
        assert!(matches!(error, NodeKeyError::NoAuthority(_)), "{error}");
        assert!(error.to_string().contains("does not belong"), "{error}");
    }

    #[test]
    fn a_name_leads_out_of_no_directory() {
        let folder = tempfile::tempdir().unwrap();
        let keys = keys(folder.path());
        let now = SystemTime::now();
        keys.authority("Site", now).unwrap();
        let long = "x".repeat(FILE_NAME_MAX + 1);
        for name in [
            "", ".", "..", "../x", "a/b", "-a", ".a", "a b", "site-ca", &long,
        ] {
            let error = keys.issue(name, &["dtn1".to_owned()], now).unwrap_err();
            assert!(matches!(error, NodeKeyError::Name(_)), "{name:?}: {error}");
        }
    }
}
