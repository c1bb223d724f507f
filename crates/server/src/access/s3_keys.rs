//! Access keys of S3: a file of keys, secrets and users, one key a line.
//!
//! ```text
//!   GWABCDEFGHIJKLMNOPQR:c2VjcmV0...:jo:/:rw
//!   GWRSTUVWXYZ234567ABC:c2VjcmV0...:sam:/pub:ro      reads below /pub
//! ```
//! A signature can be verified with the secret alone, so the file has it as it is. Empty lines and
//! those that begin with `#` are skipped. Each request looks whether the file has changed.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use godwit_gsi::cert::{CredentialError, files};
use godwit_proto::{FtpPath, command::Password};
use rustix::rand::{GetRandomFlags, getrandom};
use tracing::warn;

use super::passwords::{FileVersion, SETTLED, check_owner, is_user, read_text, text_of};

/// Characters of a new access key, behind `GW`.
const ACCESS_DIGITS: usize = 18;

/// Those characters: what cannot be taken for another.
const ALPHABET: &[u8; 32] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567";

/// Random bytes of a new secret: 40 characters.
const SECRET_BYTES: usize = 30;

/// Shortest secret that is taken.
const SECRET_CHARACTERS_MIN: usize = 16;

/// A key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    pub(crate) secret: Password,
    pub(crate) user: String,
    /// What the key reaches.
    pub(crate) home: FtpPath,
    pub(crate) writes: bool,
}

/// What the file says.
#[derive(Debug, Default)]
pub(crate) struct Keys(HashMap<String, Key>);

/// A line that counts for nothing: which, from 1, and why.
type KeyFault = (usize, &'static str);

impl Keys {
    fn parse(text: &str) -> (Self, Vec<KeyFault>) {
        let (mut keys, mut faults) = (HashMap::new(), Vec::new());
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            match Key::parse(line) {
                Ok((access, _)) if keys.contains_key(&access) => {
                    faults.push((at + 1, "the key has a line above"));
                }
                Ok((access, key)) => drop(keys.insert(access, key)),
                Err(what) => faults.push((at + 1, what)),
            }
        }
        (Self(keys), faults)
    }

    pub(crate) fn get(&self, access: &str) -> Option<&Key> {
        self.0.get(access)
    }
}

impl Key {
    fn parse(line: &str) -> Result<(String, Self), &'static str> {
        let fields: Vec<_> = line.split(':').collect();
        let [access, secret, user, home, rights] = fields[..] else {
            return Err("a line is ACCESS:SECRET:USER:HOME:rw, or ro at its end");
        };
        let is_plain = |text: &str| text.bytes().all(|byte| byte.is_ascii_graphic());
        if access.is_empty() || !is_plain(access) || access.contains(['/', ',', '=']) {
            return Err("no access key is like that");
        }
        if secret.len() < SECRET_CHARACTERS_MIN || !is_plain(secret) {
            return Err("the secret is too short, or no plain text");
        }
        if !is_user(user) {
            return Err("no user can have this name");
        }
        let home = FtpPath::new(home).ok().filter(FtpPath::is_absolute);
        let home = home.ok_or("the directory does not begin with /")?;
        let key = Self {
            secret: Password::new(secret),
            user: user.to_owned(),
            home: home.resolve(&FtpPath::root(), &FtpPath::root()),
            writes: match rights {
                "rw" => true,
                "ro" => false,
                _ => return Err("the rights are rw or ro"),
            },
        };
        Ok((access.to_owned(), key))
    }
}

/// What the file said when it was read last.
#[derive(Default)]
pub(crate) struct KeyCache(Mutex<Option<(FileVersion, Arc<Keys>)>>);

impl KeyCache {
    /// What the file says now. Blocks.
    ///
    /// # Errors
    /// It cannot be read, or is open to others.
    pub(crate) fn read(&self, path: &Path) -> io::Result<Arc<Keys>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        check_owner(&metadata)?;
        let version = FileVersion::of(path, &metadata);
        let mut read = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, keys)) = read.as_ref().filter(|(of, _)| *of == version) {
            return Ok(Arc::clone(keys));
        }
        *read = None;
        let keys = Arc::new(Keys::parse(&text_of(file)?).0);
        let age = metadata
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age >= SETTLED) {
            *read = Some((version, Arc::clone(&keys)));
        }
        Ok(keys)
    }
}

/// Logs the faults of the file, for an administrator who has just started the server.
///
/// # Errors
/// As [`KeyCache::read`].
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let (keys, faults) = Keys::parse(&read_text(path)?);
    for (line, fault) in faults {
        warn!(file = ?path, line, fault, "a line of the keys of S3 is ignored");
    }
    if keys.0.is_empty() {
        warn!(file = ?path, "there are no keys of S3");
    }
    Ok(())
}

/// Why the file stays as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The file, which need not exist, cannot be read.
    #[error("cannot read {path}: {error}")]
    Read {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// It cannot be written.
    #[error("cannot write: {0}")]
    Write(#[from] CredentialError),
    /// No such key.
    #[error("there is no key {0}")]
    Unknown(String),
    /// A line that would count for nothing.
    #[error("{user}: {what}")]
    Value {
        /// Whose.
        user: String,
        /// Why.
        what: &'static str,
    },
    /// The system has no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] rustix::io::Errno),
}

/// A key that was made.
#[derive(Debug)]
pub struct NewKey {
    /// The name of the key, which requests show.
    pub access: String,
    /// Its secret, which signs them.
    pub secret: Password,
}

/// Adds a key of `user` to the file at `path`, which is made where there is none, readable for its
/// owner only.
///
/// # Errors
/// When it stays as it was.
pub fn add(path: &Path, user: &str, home: &str, reads_only: bool) -> Result<NewKey, KeyError> {
    let mut random = [0; ACCESS_DIGITS + SECRET_BYTES];
    getrandom(&mut random, GetRandomFlags::empty())?;
    let (access, secret) = random.split_at(ACCESS_DIGITS);
    let letters = access
        .iter()
        .map(|byte| char::from(ALPHABET[usize::from(byte % 32)]));
    let access: String = "GW".chars().chain(letters).collect();
    let secret = Password::new(URL_SAFE_NO_PAD.encode(secret));
    let rights = if reads_only { "ro" } else { "rw" };
    let line = format!("{access}:{}:{user}:{home}:{rights}", secret.reveal());
    let refused = |what| KeyError::Value {
        user: user.to_owned(),
        what,
    };
    // What is written is what will be read.
    if line.contains(['\n', '\r']) {
        return Err(refused("a line has no line end"));
    }
    Key::parse(&line).map_err(refused)?;
    rewrite(path, |lines| {
        lines.push(line);
        Ok(())
    })?;
    Ok(NewKey { access, secret })
}

/// Removes a key.
///
/// # Errors
/// When the file stays as it was.
pub fn remove(path: &Path, access: &str) -> Result<(), KeyError> {
    let is_of_key = |line: &String| line.split(':').next() == Some(access);
    rewrite(path, |lines| {
        let count = lines.len();
        lines.retain(|line| !is_of_key(line));
        match lines.len() < count {
            true => Ok(()),
            false => Err(KeyError::Unknown(access.to_owned())),
        }
    })
}

/// Leaves the file alone where `change` fails.
fn rewrite(
    path: &Path,
    change: impl FnOnce(&mut Vec<String>) -> Result<(), KeyError>,
) -> Result<(), KeyError> {
    let text = match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| KeyError::Read {
            path: path.to_owned(),
            error,
        })?,
    };
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    change(&mut lines)?;
    lines.push(String::new());
    Ok(files::write_private(path, lines.join("\n").as_bytes())?)
}

#[cfg(test)]
mod tests {
    use std::{
        fs,
        os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    };

    use super::*;

    #[test]
    fn keys_come_and_go_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("keys");
        let first = add(&path, "jo", "/", false).unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&path), 0o600);
        let text = format!("# kept\n{}", fs::read_to_string(&path).unwrap());
        fs::write(&path, text).unwrap();
        let second = add(&path, "sam", "/pub/", true).unwrap();
        assert!(first.access != second.access && first.secret != second.secret);
        assert!(!format!("{second:?}").contains(second.secret.reveal()));
        let keys = KeyCache::default().read(&path).unwrap();
        let jo = keys.get(&first.access).unwrap();
        assert_eq!((&*jo.user, jo.writes), ("jo", true));
        assert!(jo.secret == first.secret && !format!("{keys:?}").contains(jo.secret.reveal()));
        let sam = keys.get(&second.access).unwrap();
        assert_eq!((sam.home.as_bytes(), sam.writes), (&b"/pub"[..], false));
        remove(&path, &first.access).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# kept\n"));
        let keys = KeyCache::default().read(&path).unwrap();
        assert!(keys.get(&first.access).is_none() && keys.get(&second.access).is_some());
        let file = fs::metadata(&path).unwrap().ino();
        let gone = remove(&path, &first.access);
        assert!(matches!(gone, Err(KeyError::Unknown(_))));
        assert_eq!(
            fs::metadata(&path).unwrap().ino(),
            file,
            "it is not rewritten"
        );
        let missing = folder.path().join("missing");
        assert!(remove(&missing, &first.access).is_err() && !missing.exists());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(KeyCache::default().read(&path).is_err() && check(&path).is_err());
        assert!(add(&path, "jo", "/", false).is_err());
    }

    #[test]
    fn lines_that_are_no_key_count_for_nothing() {
        let good = "AKID:0123456789abcdef:jo:/:rw";
        assert!(Keys::parse(good).1.is_empty());
        for line in [
            "AKID",
            ":0123456789abcdef:jo:/:rw",
            "AK/ID:0123456789abcdef:jo:/:rw",
            "AKID:short:jo:/:rw",
            "AKID:0123456789abcdef:ftp:/:rw",
            "AKID:0123456789abcdef:jo:home:rw",
            "AKID:0123456789abcdef:jo:/:w",
            "AKID:0123456789abcdef:jo:/:rw:more",
        ] {
            let (keys, faults) = Keys::parse(line);
            assert!(keys.0.is_empty() && faults.len() == 1, "{line}");
        }
        let (keys, faults) = Keys::parse(&format!("{good}\n\n# \n{}", good.replace("rw", "ro")));
        assert!(keys.get("AKID").unwrap().writes && faults.len() == 1);
        for (user, home) in [("a:b", "/"), ("jo", "/a:b"), ("jo", "/a\nX"), ("ftp", "/")] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("keys");
            assert!(add(&path, user, home, false).is_err() && !path.exists());
        }
    }
}
