//! Logins of the user at services: the file of each, and the token in it, which is renewed.
//!
//! A file is of one service and names it: its token goes to no other. Processes that run at the
//! same time renew a token once, since many issuers take each refresh token once.

use std::{
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read as _},
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::Duration,
};

use godwit_gsi::cert::{CredentialError, files::write_private};
use godwit_proto::command::Password;
use godwit_service_api::account::LoginIssuer;
use jiff::{SignedDuration, Timestamp};
use reqwest::Url;
use serde::{Deserialize, Serialize};
use tokio::{
    sync::Mutex,
    time::{sleep, timeout},
};

use super::issuer::{Issuer, IssuerError, Tokens, is_local};

/// A token with less time left is renewed.
const LEFT_MIN: SignedDuration = SignedDuration::from_secs(60);

/// Longest file that is read.
const FILE_BYTES_MAX: u64 = 256 << 10;

/// Longest name of a file.
const NAME_BYTES_MAX: usize = 200;

/// Longest wait for another process that renews the same token.
const LOCK_LIMIT: Duration = Duration::from_secs(60);

const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// Why a login cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// A file cannot be read or written.
    #[error("{}: {why}", path.display())]
    File {
        /// Which.
        path: PathBuf,
        /// What happened.
        why: String,
    },
    /// The user has to log in.
    #[error("{service}: {why}; log in with: godwit login --service {service}")]
    Needed {
        /// URL of the service.
        service: String,
        /// Why.
        why: String,
    },
    /// A token would be sent in clear, or there is no place for it.
    #[error("{service}: no login is possible: {why}")]
    Impossible {
        /// URL of the service.
        service: String,
        /// Why.
        why: String,
    },
    /// The service does not take what its issuer has given.
    #[error("{service} does not accept the login: {why}")]
    Mistrusted {
        /// URL of the service.
        service: String,
        /// Why, as far as can be known here.
        why: String,
    },
    /// The issuer.
    #[error(transparent)]
    Issuer(#[from] IssuerError),
    /// The user ended it.
    #[error("the login was interrupted")]
    Interrupted,
}

/// A login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Login {
    pub(super) issuer: LoginIssuer,
    pub(super) tokens: Tokens,
}

/// The file of a login.
pub(super) struct LoginFile {
    path: PathBuf,
    service: Url,
}

/// What a file holds.
#[derive(Serialize, Deserialize)]
struct LoginRecord {
    service: String,
    #[serde(flatten)]
    issuer: LoginIssuer,
    access_token: String,
    refresh_token: Option<String>,
    expires: Timestamp,
}

impl LoginFile {
    /// Where the login at this service is, or would be; `None`: no token may be sent there.
    pub(super) fn of(folder: &Path, service: &Url) -> Option<Self> {
        let is_protected = service.scheme() == "https" || is_local(service);
        // No two URLs have the same name.
        let name: String = form_urlencoded::byte_serialize(text(service).as_bytes()).collect();
        (is_protected && name.len() <= NAME_BYTES_MAX).then(|| Self {
            path: folder.join(name + ".json"),
            service: service.clone(),
        })
    }

    /// Service and issuer may be on this machine, without TLS.
    fn is_local(&self) -> bool {
        self.service.scheme() == "http"
    }

    pub(super) fn read(&self) -> Result<Option<Login>, LoginError> {
        self.read_closed_to(0o077)
    }

    /// For the end of a login: a token that others could read must be withdrawn most of all. Users
    /// who can write the file could have named another issuer.
    pub(super) fn read_to_withdraw(&self) -> Result<Option<Login>, LoginError> {
        self.read_closed_to(0o022)
    }

    /// `closed`: others have none of these rights.
    fn read_closed_to(&self, closed: u32) -> Result<Option<Login>, LoginError> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
            .open(&self.path);
        let file = match file {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(self.failed(error)),
        };
        let metadata = file.metadata().map_err(|error| self.failed(error))?;
        if metadata.uid() != rustix::process::geteuid().as_raw() {
            return Err(self.failed("it belongs to another user: remove it, then godwit login"));
        }
        if metadata.mode() & closed != 0 {
            let path = self.path.display();
            return Err(self.failed(format!("others can read or write it: chmod 600 {path}")));
        }
        let mut bytes = Vec::new();
        let read = file.take(FILE_BYTES_MAX).read_to_end(&mut bytes);
        read.map_err(|error| self.failed(error))?;
        // What serde says may quote a token.
        let damaged = |_| self.failed("it is damaged: log in again (godwit login)");
        let kept: LoginRecord = serde_json::from_slice(&bytes).map_err(damaged)?;
        if kept.service != text(&self.service) {
            return Err(self.failed("it is of another service: log in again (godwit login)"));
        }
        Ok(Some(Login {
            issuer: kept.issuer,
            tokens: Tokens {
                access: Password::new(kept.access_token),
                refresh: kept.refresh_token.map(Password::new),
                expires: kept.expires,
            },
        }))
    }

    /// Replaces it, whole.
    pub(super) fn write(&self, login: &Login) -> Result<(), LoginError> {
        let tokens = &login.tokens;
        let kept = LoginRecord {
            service: text(&self.service).to_owned(),
            issuer: login.issuer.clone(),
            access_token: tokens.access.reveal().to_owned(),
            refresh_token: (tokens.refresh.as_ref()).map(|token| token.reveal().to_owned()),
            expires: tokens.expires,
        };
        let bytes = serde_json::to_vec(&kept).expect("plain data is JSON");
        write_private(&self.path, &bytes).map_err(|error| match error {
            CredentialError::File { reason, .. } => self.failed(reason),
            other => self.failed(other),
        })
    }

    /// Removes it. `false`: there was none.
    pub(super) fn remove(&self) -> Result<bool, LoginError> {
        match fs::remove_file(&self.path) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(self.failed(error)),
        }
    }

    /// Keeps other processes from changing it, until what is returned is dropped.
    pub(super) async fn lock(&self) -> Result<File, LoginError> {
        if let Some(folder) = self.path.parent() {
            let mut builder = fs::DirBuilder::new();
            let made = builder.recursive(true).mode(0o700).create(folder);
            made.map_err(|error| self.failed(error))?;
        }
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(self.path.with_extension("lock"))
            .map_err(|error| self.failed(error))?;
        let locked = async {
            loop {
                match file.try_lock() {
                    Ok(()) => return Ok(()),
                    Err(TryLockError::WouldBlock) => sleep(LOCK_PAUSE).await,
                    Err(TryLockError::Error(error)) => return Err(self.failed(error)),
                }
            }
        };
        let waited = timeout(LOCK_LIMIT, locked).await;
        waited
            .unwrap_or_else(|_| Err(self.failed("another process renews it, and does not end")))?;
        Ok(file)
    }

    fn failed(&self, why: impl ToString) -> LoginError {
        LoginError::File {
            path: self.path.clone(),
            why: why.to_string(),
        }
    }

    fn needed(&self, why: impl Into<String>) -> LoginError {
        LoginError::Needed {
            service: text(&self.service).to_owned(),
            why: why.into(),
        }
    }
}

/// A login that requests use.
pub(super) struct StoredLogin {
    file: LoginFile,
    used: Mutex<UsedLogin>,
    /// What the user has to know.
    warnings: parking_lot::Mutex<Vec<String>>,
}

struct UsedLogin {
    login: Login,
    /// The access token of the login that is in the file in its place, if any is: it was renewed,
    /// and the new one could not be written. An issuer that sees the refresh token of the old one
    /// again may withdraw both.
    spent: Option<Password>,
}

impl StoredLogin {
    /// The login of this file, if there is one.
    pub(super) fn open(file: LoginFile) -> Result<Option<Self>, LoginError> {
        let login = file.read()?;
        Ok(login.map(|login| Self {
            file,
            used: Mutex::new(UsedLogin { login, spent: None }),
            warnings: parking_lot::Mutex::default(),
        }))
    }

    /// What the user has to know, and has not been told.
    pub(super) fn take_warnings(&self) -> Vec<String> {
        std::mem::take(&mut self.warnings.lock())
    }

    /// A token, renewed where the one before ends soon.
    pub(super) async fn token(&self) -> Result<Password, LoginError> {
        let mut used = self.used.lock().await;
        let left = used.login.tokens.expires.duration_since(Timestamp::now());
        if left < LEFT_MIN {
            match self.renew(&mut used).await {
                Ok(()) => {}
                Err(_) if left.is_positive() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(used.login.tokens.access.clone())
    }

    /// Another token, after the service has refused this one.
    pub(super) async fn token_after(&self, refused: &Password) -> Result<Password, LoginError> {
        let mut used = self.used.lock().await;
        if used.login.tokens.access == *refused {
            self.renew(&mut used).await?;
        }
        Ok(used.login.tokens.access.clone())
    }

    /// Says that another login is needed.
    pub(super) fn refused(&self, why: &str) -> LoginError {
        self.file.needed(why)
    }

    async fn renew(&self, used: &mut UsedLogin) -> Result<(), LoginError> {
        let _lock = self.file.lock().await?;
        let kept = match (self.file.read()?, &used.spent) {
            (Some(kept), Some(spent)) => Some(kept).filter(|kept| kept.tokens.access != *spent),
            (Some(kept), None) => Some(kept),
            (None, Some(_)) => None,
            (None, None) => return Err(self.file.needed("you have logged out")),
        };
        if let Some(kept) = kept
            && kept.tokens.access != used.login.tokens.access
        {
            // Another process has renewed it, or the user has logged in again.
            *used = UsedLogin {
                login: kept,
                spent: None,
            };
            return Ok(());
        }
        let Some(refresh) = &used.login.tokens.refresh else {
            return Err(self.file.needed("the login has ended"));
        };
        let issuer = Issuer::find(&used.login.issuer, self.file.is_local()).await?;
        let tokens = match issuer.renew(refresh).await {
            Err(error @ IssuerError::Refused { .. }) => {
                return Err(self.file.needed(format!("the login has ended ({error})")));
            }
            renewed => renewed?,
        };
        let before = std::mem::replace(&mut used.login.tokens, tokens);
        match self.file.write(&used.login) {
            Ok(()) => {
                used.spent = None;
                self.warnings.lock().clear();
            }
            // What the issuer has given is good, and was given once.
            Err(error) => {
                if used.spent.is_none() {
                    self.warn_unwritten(&error);
                }
                used.spent.get_or_insert(before.access);
            }
        }
        Ok(())
    }

    /// The renewed login is not in its file. That must not show a spent refresh token to the issuer
    /// in the next command.
    fn warn_unwritten(&self, error: &LoginError) {
        let service = text(&self.file.service);
        let path = self.file.path.display();
        let old = match self.file.remove() {
            Ok(_) => String::new(),
            Err(_) => format!("remove {path}, whose login is spent, and "),
        };
        self.warnings.lock().push(format!(
            "the renewed login cannot be written, and ends with this command ({error}); {old}log \
             in again with: godwit login --service {service}"
        ));
    }
}

/// The URL of a service, without a slash at its end.
fn text(service: &Url) -> &str {
    service.as_str().trim_end_matches('/')
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn url(text: &str) -> Url {
        Url::parse(text).expect("a URL")
    }

    fn login() -> Login {
        Login {
            issuer: LoginIssuer {
                issuer: "https://login.example.org/".to_owned(),
                client_id: "cli".to_owned(),
                scope: "openid".to_owned(),
                audience: None,
            },
            tokens: Tokens {
                access: Password::new("access-s3cret"),
                refresh: Some(Password::new("refresh-s3cret")),
                expires: Timestamp::from_second(2_000_000_000).expect("a time"),
            },
        }
    }

    fn at(folder: &Path, service: &str) -> LoginFile {
        LoginFile::of(folder, &url(service)).expect("a place")
    }

    #[tokio::test]
    async fn a_login_is_kept_for_its_user_and_its_service_alone() {
        let parent = tempfile::tempdir().expect("a folder");
        let folder = parent.path().join("logins");
        let file = at(&folder, "https://a.example.org:8447");
        assert_eq!(file.read().expect("no file"), None);
        drop(file.lock().await.expect("a lock"));
        file.write(&login()).expect("written");
        assert_eq!(file.read().expect("a login"), Some(login()));
        let mode = |path: &Path| fs::metadata(path).expect("metadata").permissions().mode() & 0o777;
        assert_eq!((mode(&folder), mode(&file.path)), (0o700, 0o600));
        // However it is written, the service is the same one, and others have none.
        let same = at(&folder, "HTTPS://A.example.org:8447/");
        assert_eq!(same.read().expect("a login"), Some(login()));
        for other in [
            "https://a.example.org",
            "http://localhost:8447",
            "https://a.example.org:8447/b",
        ] {
            assert_eq!(at(&folder, other).read().expect("no file"), None, "{other}");
        }
        let other = at(&folder, "https://b.example.org:8447");
        fs::copy(&file.path, &other.path).expect("copied");
        let error = other.read().expect_err("another service").to_string();
        assert!(error.contains("of another service"), "{error}");
    }

    #[test]
    fn a_file_that_others_can_read_is_refused_with_the_remedy() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = at(folder.path(), "https://a.example.org");
        for mode in [0o640, 0o604, 0o620] {
            file.write(&login()).expect("written");
            fs::set_permissions(&file.path, fs::Permissions::from_mode(mode)).expect("a mode");
            let error = file.read().expect_err("open to others").to_string();
            let remedy = format!("chmod 600 {}", file.path.display());
            assert!(error.contains(&remedy), "{error}");
        }
        let elsewhere = folder.path().join("elsewhere");
        fs::rename(&file.path, &elsewhere).expect("renamed");
        std::os::unix::fs::symlink(&elsewhere, &file.path).expect("a link");
        assert!(file.read().is_err(), "a link is followed");
    }

    #[test]
    fn nothing_that_is_shown_of_a_login_has_its_tokens() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = at(folder.path(), "https://a.example.org");
        let mut shown = format!("{:?}", login());
        for damaged in [
            r#"{"access_token": ["s3cret"]}"#,
            r#"{"expires": "s3cret"}"#,
            "s3cret",
        ] {
            write_private(&file.path, damaged.as_bytes()).expect("written");
            shown += &file.read().expect_err("damaged").to_string();
        }
        assert!(
            shown.contains("godwit login") && !shown.contains("s3cret"),
            "{shown}"
        );
    }

    #[test]
    fn no_login_goes_over_the_network_in_clear() {
        let folder = Path::new("/nowhere");
        for (service, may) in [
            ("https://a.example.org", true),
            ("http://127.0.0.1:8447", true),
            ("http://a.example.org", false),
            ("http://127.0.0.1:8447@a.example.org", false),
        ] {
            assert_eq!(
                LoginFile::of(folder, &url(service)).is_some(),
                may,
                "{service}"
            );
        }
    }
}
