//! Where credentials lie on a machine, and who may read them. The one module of this folder that
//! touches files.

use std::ffi::OsString;
use std::fs::{self, File, Permissions};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::{Credential, CredentialError};

/// Largest file that is read. Proxies with attributes of virtual organisations have some 20 KiB.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;

/// Where the grid's tools look, in their order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Locations {
    /// The proxy: `X509_USER_PROXY`, else `/tmp/x509up_u<uid>`.
    pub proxy: PathBuf,
    /// Certificate and key of a user.
    pub user: Vec<(PathBuf, PathBuf)>,
    /// Certificate and key of a host.
    pub host: Vec<(PathBuf, PathBuf)>,
    /// Directories of trusted CAs.
    pub authorities: Vec<PathBuf>,
    /// Who is which local user.
    pub gridmap: PathBuf,
}

impl Locations {
    /// Resolves them for a user. `variable` is the environment; empty variables count as unset.
    #[must_use]
    pub fn new(variable: impl Fn(&str) -> Option<OsString>, uid: u32) -> Self {
        let path = |name: &str| {
            let value = variable(name).filter(|value| !value.is_empty());
            value.map(PathBuf::from)
        };
        let pair = |folder: &Path, name: &str| {
            (
                folder.join(format!("{name}cert.pem")),
                folder.join(format!("{name}key.pem")),
            )
        };
        let named = path("X509_USER_CERT").zip(path("X509_USER_KEY"));
        let dot_globus = path("HOME").map(|home| home.join(".globus"));
        let installed = path("GLOBUS_LOCATION");
        let system = Path::new("/etc/grid-security");

        let user = named
            .clone()
            .into_iter()
            .chain(dot_globus.as_deref().map(|folder| pair(folder, "user")));
        let host = named
            .into_iter()
            .chain([pair(system, "host")])
            .chain(installed.as_ref().map(|at| pair(&at.join("etc"), "host")))
            .chain(dot_globus.as_deref().map(|folder| pair(folder, "host")));
        let authorities = match path("X509_CERT_DIR") {
            Some(named) => vec![named],
            None => dot_globus
                .iter()
                .map(|folder| folder.join("certificates"))
                .chain([system.join("certificates")])
                .chain(installed.map(|at| at.join("share/certificates")))
                .collect(),
        };
        let own_map = || {
            let home = path("HOME").filter(|_| uid != 0)?;
            Some(home.join(".gridmap"))
        };
        Self {
            proxy: path("X509_USER_PROXY")
                .unwrap_or_else(|| PathBuf::from(format!("/tmp/x509up_u{uid}"))),
            user: user.collect(),
            host: host.collect(),
            authorities,
            gridmap: path("GRIDMAP")
                .or_else(|| path("GLOBUSMAP"))
                .or_else(own_map)
                .unwrap_or_else(|| system.join("grid-mapfile")),
        }
    }

    /// The first directory of CAs that exists.
    #[must_use]
    pub fn authority_directory(&self) -> Option<&Path> {
        let mut all = self.authorities.iter();
        all.find(|path| path.is_dir()).map(PathBuf::as_path)
    }
}

/// The user this process acts as.
#[must_use]
pub fn effective_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A proxy file.
///
/// # Errors
/// When it is not there, others could read it, or its content is no credential. The error names the
/// file.
pub fn load_proxy(path: &Path) -> Result<Credential, CredentialError> {
    let pem = read_private(path, "run `godwit proxy init`")?;
    Credential::from_pem(&pem, &pem, None).map_err(|fault| fault.at(path))
}

/// A certificate and its key in two files. The certificate may be readable by everyone.
///
/// # Errors
/// As [`load_proxy`]; [`CredentialError::Passphrase`] inside when the key is encrypted and this
/// does not open it.
pub fn load_pair(
    certificate: &Path,
    key: &Path,
    passphrase: Option<&[u8]>,
) -> Result<Credential, CredentialError> {
    let remedy = "set X509_USER_CERT and X509_USER_KEY";
    let certificates = read(certificate, remedy)?.0;
    let key_pem = read_private(key, remedy)?;
    Credential::from_pem(&certificates, &key_pem, passphrase).map_err(|fault| match fault {
        CredentialError::NoCertificate | CredentialError::CertificateMalformed => {
            fault.at(certificate)
        }
        fault => fault.at(key),
    })
}

/// The first of several pairs whose certificate exists. It must be valid now.
///
/// # Errors
/// As [`load_pair`] and [`check_time`]; when none exists, the last is named.
pub fn load_first_pair(
    pairs: &[(PathBuf, PathBuf)],
    passphrase: Option<&[u8]>,
    now: SystemTime,
) -> Result<Credential, CredentialError> {
    let Some((certificate, key)) = first_pair(pairs) else {
        return Err(CredentialError::NoCertificate);
    };
    let credential = load_pair(certificate, key, passphrase)?;
    check_time(&credential, certificate, now)?;
    Ok(credential)
}

/// Whether a credential that was read from `path` is valid now, with all above it.
///
/// # Errors
/// [`CredentialError::Expired`] or [`CredentialError::NotYetValid`], inside an error that names the
/// file.
pub fn check_time(
    credential: &Credential,
    path: &Path,
    now: SystemTime,
) -> Result<(), CredentialError> {
    if let Ok(ago) = now.duration_since(credential.not_after()) {
        let remedy = match credential.certificate().proxy() {
            Some(_) => "run `godwit proxy init`",
            None => "ask its CA for a new one",
        };
        return Err(CredentialError::Expired { ago, remedy }.at(path));
    }
    match credential.not_before().duration_since(now) {
        Ok(ahead) if !ahead.is_zero() => Err(CredentialError::NotYetValid { ahead }.at(path)),
        _ => Ok(()),
    }
}

/// The first pair whose certificate exists, else the last.
#[must_use]
pub fn first_pair(pairs: &[(PathBuf, PathBuf)]) -> Option<&(PathBuf, PathBuf)> {
    let found = pairs.iter().find(|(certificate, _)| certificate.exists());
    found.or(pairs.last())
}

/// Writes a file that only its owner can read, whole or not at all: a reader never sees half a
/// proxy. Until it is whole it has a random name in the same directory.
///
/// # Errors
/// When the system refuses; the error names the file.
pub fn write_private(path: &Path, content: &[u8]) -> Result<(), CredentialError> {
    write(path, content, 0o600, true)
}

/// Writes a file as [`write_private`] does, with this mode. `replaces`: also where there is one.
///
/// # Errors
/// When the system refuses, or there is one; the error names the file.
pub fn write(
    path: &Path,
    content: &[u8],
    mode: u32,
    replaces: bool,
) -> Result<(), CredentialError> {
    let written = || {
        let folder = path.parent().filter(|folder| *folder != Path::new(""));
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(".new");
        // With O_EXCL and mode 0600; it is removed unless it gets its name.
        let mut fresh = tempfile::Builder::new()
            .prefix(&name)
            .tempfile_in(folder.unwrap_or(Path::new(".")))?;
        fresh.write_all(content)?;
        fresh
            .as_file()
            .set_permissions(Permissions::from_mode(mode))?;
        fresh.as_file().sync_all()?;
        let named = match replaces {
            true => fresh.persist(path),
            false => fresh.persist_noclobber(path),
        };
        named.map_err(|error| error.error)?;
        Ok(())
    };
    written().map_err(|error: std::io::Error| CredentialError::File {
        path: path.to_owned(),
        reason: error.to_string(),
    })
}

/// A file with a key: regular, ours, and closed to others.
fn read_private(path: &Path, remedy: &'static str) -> Result<Vec<u8>, CredentialError> {
    let (content, metadata) = read(path, remedy)?;
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(CredentialError::Permissions {
            path: path.to_owned(),
            mode,
        });
    }
    let expected = effective_uid();
    if metadata.uid() != expected {
        return Err(CredentialError::Owner {
            path: path.to_owned(),
            owner: metadata.uid(),
            expected,
        });
    }
    Ok(content)
}

/// Content and metadata of the same open file: no process can exchange it in between.
fn read(path: &Path, remedy: &'static str) -> Result<(Vec<u8>, fs::Metadata), CredentialError> {
    let failed = |reason: String| CredentialError::File {
        path: path.to_owned(),
        reason,
    };
    // A named pipe would keep us waiting at `open`.
    let regular = fs::metadata(path).map(|metadata| metadata.is_file());
    match regular {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(CredentialError::Missing {
                path: path.to_owned(),
                remedy,
            });
        }
        Err(error) => return Err(failed(error.to_string())),
        Ok(false) => return Err(failed("not a regular file".to_owned())),
        Ok(true) => {}
    }
    let file = File::open(path).map_err(|error| failed(error.to_string()))?;
    let metadata = file.metadata().map_err(|error| failed(error.to_string()))?;
    let mut content = Vec::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut content)
        .map_err(|error| failed(error.to_string()))?;
    if content.len() as u64 > FILE_BYTES_MAX {
        return Err(failed(format!("larger than {FILE_BYTES_MAX} bytes")));
    }
    Ok((content, metadata))
}
