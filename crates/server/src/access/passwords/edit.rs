//! `godwitd passwd`: puts a user into a password file, or takes one out.

use std::{
    io,
    path::{Path, PathBuf},
};

use godwit_gsi::cert::{CredentialError, files};
use rustix::rand::{GetRandomFlags, getrandom};

use super::{Entry, SALT_BYTES, hash, is_user, read_text};

/// What becomes of a user.
#[derive(Clone, Copy)]
pub enum Change<'a> {
    /// This is the password from now on.
    Set {
        /// At least one byte.
        password: &'a [u8],
        /// What the user cannot leave; `None`: as it was, for a new user everything.
        home: Option<&'a str>,
        /// Reads only; `None`: as it was, for a new user no.
        reads_only: Option<bool>,
        /// Account of the system that sessions act as; `None`: as it was, for a new user the one of
        /// the same name.
        account: Option<&'a str>,
    },
    /// No longer a user.
    Remove,
}

/// Why the file stays as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EditError {
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
    /// No such user.
    #[error("{user} is not in {path}")]
    Unknown {
        /// Who.
        user: String,
        /// Where.
        path: PathBuf,
    },
    /// No password matches the line.
    #[error("{user}: {what}")]
    Value {
        /// Who.
        user: String,
        /// Why.
        what: &'static str,
    },
    /// The system has no random bytes.
    #[error("no random bytes: {0}")]
    Random(#[from] rustix::io::Errno),
}

/// Changes the line of `user` in the file at `path`, all others stay as they are. The file is made
/// where there is none, readable for its owner only, and replaced as a whole.
///
/// # Errors
/// When it stays as it was.
pub fn edit(path: &Path, user: &str, change: Change<'_>) -> Result<(), EditError> {
    let text = match read_text(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        read => read.map_err(|error| EditError::Read {
            path: path.to_owned(),
            error,
        })?,
    };
    let is_theirs = |line: &&str| line.split(':').next() == Some(user);
    let old = text.lines().find(is_theirs);
    let new = match change {
        Change::Remove if old.is_none() => {
            return Err(EditError::Unknown {
                user: user.to_owned(),
                path: path.to_owned(),
            });
        }
        Change::Remove => None,
        Change::Set { .. } => Some(line_of(user, old, change)?),
    };
    let mut lines: Vec<&str> = text.lines().filter(|line| !is_theirs(line)).collect();
    lines.extend(new.as_deref());
    lines.push("");
    Ok(files::write_private(path, lines.join("\n").as_bytes())?)
}

fn line_of(user: &str, old: Option<&str>, change: Change<'_>) -> Result<String, EditError> {
    let refused = |what| EditError::Value {
        user: user.to_owned(),
        what,
    };
    let Change::Set {
        password,
        home,
        reads_only,
        account,
    } = change
    else {
        return Err(refused("there is nothing to write"));
    };
    if !is_user(user) {
        return Err(refused("no user can have this name"));
    }
    if password.is_empty() {
        return Err(refused("an empty password would let everybody in"));
    }
    let mut salt = [0; SALT_BYTES];
    getrandom(&mut salt, GetRandomFlags::empty())?;
    let old = old.and_then(|line| Entry::parse(line).ok());
    let old_home = old.as_ref().map(|entry| entry.home.to_string());
    let home = home.map(str::to_owned).or(old_home);
    let reads_only = reads_only.unwrap_or(old.as_ref().is_some_and(|entry| !entry.writes));
    let old_account = old.as_ref().and_then(|entry| entry.account.as_deref());
    let mut line = format!(
        "{user}:{}:{}:{}",
        hash(password, &salt),
        home.as_deref().unwrap_or("/"),
        if reads_only { "ro" } else { "rw" }
    );
    if let Some(account) = account.or(old_account) {
        line.push(':');
        line.push_str(account);
    }
    // What is written is what will be read.
    Entry::parse(&line).map_err(refused)?;
    Ok(line)
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::PermissionsExt as _};

    use super::*;
    use crate::access::passwords::read;

    fn set<'a>(password: &'a str, home: Option<&'a str>, reads_only: Option<bool>) -> Change<'a> {
        Change::Set {
            password: password.as_bytes(),
            home,
            reads_only,
            account: None,
        }
    }

    #[test]
    fn users_come_change_and_go_and_others_stay() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        edit(&path, "jo", set("first", Some("/home/jo"), Some(true))).unwrap();
        assert_eq!(
            fs::metadata(&path).unwrap().permissions().mode() & 0o777,
            0o600
        );
        let text = format!("# kept\n{}", fs::read_to_string(&path).unwrap());
        fs::write(&path, text).unwrap();
        edit(&path, "kim", set("other", None, None)).unwrap();
        let with_account = Change::Set {
            password: b"then",
            home: None,
            reads_only: None,
            account: Some("data"),
        };
        edit(&path, "jo", with_account).unwrap();
        edit(&path, "jo", set("second", None, None)).unwrap();
        assert!(fs::read_to_string(&path).unwrap().starts_with("# kept\n"));
        let (passwords, faults) = read(&path).unwrap();
        assert!(faults.is_empty());
        assert!(passwords.verify("jo", b"first").is_none());
        let jo = passwords.verify("jo", b"second").unwrap();
        assert_eq!((jo.home.as_bytes(), jo.writes), (&b"/home/jo"[..], false));
        assert_eq!(jo.account.as_deref(), Some("data"));
        assert!(passwords.verify("kim", b"other").unwrap().writes);
        edit(&path, "jo", Change::Remove).unwrap();
        let gone = edit(&path, "jo", Change::Remove);
        assert!(matches!(gone, Err(EditError::Unknown { .. })));
        let (passwords, _) = read(&path).unwrap();
        assert!(passwords.verify("jo", b"second").is_none());
        assert!(passwords.verify("kim", b"other").is_some());
    }

    #[test]
    fn unusable_lines_are_not_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        for (user, change) in [
            ("a:b", set("x", None, None)),
            ("ftp", set("x", None, None)),
            ("jo", set("", None, None)),
            ("jo", set("x", Some("home"), None)),
            ("jo", set("x", Some("/a:b"), None)),
            ("jo", set("x", Some("/a\nkim:x"), None)),
        ] {
            assert!(edit(&path, user, change).is_err(), "{user}");
        }
        assert!(!path.exists());
        fs::write(&path, "").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        let open = edit(&path, "jo", set("x", None, None));
        assert!(matches!(open, Err(EditError::Read { .. })));
    }
}
