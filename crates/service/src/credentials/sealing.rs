//! Secrets at rest: envelope encryption with a key that lies outside the database.
//!
//! A sealed secret is `version | wrapped key | sealed text`. Each has a data key of its own, which
//! the installation's key wraps, so that a new installation key rewrites 60 bytes a row. Both
//! layers are AES-256-GCM with a random nonce; the additional data is the place where the blob
//! belongs, so that a row copied to another owner does not open.

use std::{
    fs::File,
    io::{self, Read, Write},
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use ring::{
    aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    rand::{SecureRandom, SystemRandom},
};
use tempfile::NamedTempFile;
use zeroize::Zeroizing;

/// First byte of a sealed secret.
const VERSION: u8 = 1;

/// Bytes of a key.
const KEY_BYTES: usize = 32;

/// Bytes that AES-GCM adds.
const TAG_BYTES: usize = 16;

/// Bytes of a wrapped data key: nonce, key, tag.
const WRAPPED_BYTES: usize = NONCE_LEN + KEY_BYTES + TAG_BYTES;

/// Most bytes that a key file or the output of a key command may have.
const MAX_KEY_TEXT: u64 = 1024;

/// Why a secret cannot be sealed or opened.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    /// The key file cannot be read or made.
    #[error("{}: {error}", path.display())]
    File {
        /// Of the key.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// Others than the owner could read the key.
    #[error("{}: mode {mode:o} lets others read the key; use chmod 600", path.display())]
    Readable {
        /// Of the key.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// The key is not 64 hexadecimal digits.
    #[error("{origin}: the key must be 64 hexadecimal digits")]
    Format {
        /// Path or command.
        origin: String,
    },
    /// The key command failed.
    #[error("{command}: {why}")]
    Command {
        /// As configured.
        command: String,
        /// How.
        why: String,
    },
    /// Sealed with another key, for another place, or damaged.
    #[error("a stored credential does not open with the installation's key")]
    Damaged,
    /// The kernel gave no random bytes.
    #[error("the system gave no random bytes")]
    Random,
}

/// The installation's key.
pub struct SealingKey {
    key: LessSafeKey,
    random: SystemRandom,
}

impl SealingKey {
    /// Reads the key from a file of mode 0600, which is made with a new key where there is none.
    ///
    /// # Errors
    /// The file cannot be read or made, others can read it, or it holds no key.
    pub fn from_file(path: &Path) -> Result<Self, SealError> {
        let failed = |error| SealError::File {
            path: path.to_owned(),
            error,
        };
        let file = match File::open(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Self::create(path)?;
                File::open(path)
            }
            opened => opened,
        };
        let file = file.map_err(failed)?;
        let mode = file.metadata().map_err(failed)?.mode() & 0o777;
        if mode & 0o077 != 0 {
            return Err(SealError::Readable {
                path: path.to_owned(),
                mode,
            });
        }
        let mut text = Zeroizing::new(String::new());
        file.take(MAX_KEY_TEXT)
            .read_to_string(&mut text)
            .map_err(failed)?;
        Self::parse(&text, &path.display().to_string())
    }

    /// Takes the key from the standard output of a shell command, such as a client of a key
    /// management service.
    ///
    /// # Errors
    /// The command fails, or prints no key.
    pub fn from_command(command: &str) -> Result<Self, SealError> {
        let failed = |why: String| SealError::Command {
            command: command.to_owned(),
            why,
        };
        let mut shell = Command::new("sh");
        shell
            .args(["-c", command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped());
        let mut child = shell.spawn().map_err(|error| failed(error.to_string()))?;
        let mut text = Zeroizing::new(String::new());
        if let Some(output) = child.stdout.take() {
            let read = output.take(MAX_KEY_TEXT).read_to_string(&mut text);
            read.map_err(|error| failed(error.to_string()))?;
        }
        match child.wait() {
            Ok(status) if status.success() => Self::parse(&text, command),
            Ok(status) => Err(failed(status.to_string())),
            Err(error) => Err(failed(error.to_string())),
        }
    }

    /// Makes the file, unless another process does.
    fn create(path: &Path) -> Result<(), SealError> {
        let failed = |error| SealError::File {
            path: path.to_owned(),
            error,
        };
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        let random = SystemRandom::new();
        random.fill(&mut *bytes).map_err(|_| SealError::Random)?;
        let digits = bytes.iter().map(|byte| format!("{byte:02x}"));
        let text = Zeroizing::new(digits.collect::<String>() + "\n");
        // Processes that begin together take the key of the first, and none reads half of it.
        let parent = match path.parent() {
            Some(parent) if parent != Path::new("") => parent,
            _ => Path::new("."),
        };
        let mut file = NamedTempFile::new_in(parent).map_err(failed)?;
        file.write_all(text.as_bytes())
            .and_then(|()| file.as_file().sync_all())
            .map_err(failed)?;
        match file.persist_noclobber(path) {
            Ok(_) => File::open(parent).and_then(|parent| parent.sync_all()),
            Err(error) if error.error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
            Err(error) => Err(error.error),
        }
        .map_err(failed)
    }

    fn parse(text: &str, origin: &str) -> Result<Self, SealError> {
        let wrong = || SealError::Format {
            origin: origin.to_owned(),
        };
        let digits = text.trim().as_bytes();
        let mut bytes = Zeroizing::new([0; KEY_BYTES]);
        if digits.len() != 2 * KEY_BYTES {
            return Err(wrong());
        }
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16);
            let (high, low) = digit(pair[0]).zip(digit(pair[1])).ok_or_else(wrong)?;
            *byte = u8::try_from(16 * high + low).map_err(|_| wrong())?;
        }
        Ok(SealingKey {
            key: cipher(&bytes),
            random: SystemRandom::new(),
        })
    }

    /// Seals `secret` for the place that `context` names, such as `credential:ID:OWNER`.
    ///
    /// # Errors
    /// The system gives no random bytes.
    pub fn seal(&self, context: &str, secret: &[u8]) -> Result<Vec<u8>, SealError> {
        let mut data_key = Zeroizing::new([0; KEY_BYTES]);
        self.random
            .fill(&mut *data_key)
            .map_err(|_| SealError::Random)?;
        let mut sealed = vec![VERSION];
        self.encrypt(&self.key, context, &*data_key, &mut sealed)?;
        self.encrypt(&cipher(&data_key), context, secret, &mut sealed)?;
        Ok(sealed)
    }

    /// Opens what [`SealingKey::seal`] made with the same `context`.
    ///
    /// # Errors
    /// It was sealed with another key or for another context, or it is damaged.
    pub fn open(&self, context: &str, sealed: &[u8]) -> Result<Zeroizing<Vec<u8>>, SealError> {
        let (version, rest) = sealed.split_first().ok_or(SealError::Damaged)?;
        if *version != VERSION {
            return Err(SealError::Damaged);
        }
        let (wrapped, text) = rest
            .split_at_checked(WRAPPED_BYTES)
            .ok_or(SealError::Damaged)?;
        let data_key = decrypt(&self.key, context, wrapped)?;
        let data_key: &[u8; KEY_BYTES] = data_key
            .as_slice()
            .try_into()
            .map_err(|_| SealError::Damaged)?;
        decrypt(&cipher(data_key), context, text)
    }

    /// Appends `nonce | ciphertext | tag`.
    fn encrypt(
        &self,
        key: &LessSafeKey,
        context: &str,
        text: &[u8],
        into: &mut Vec<u8>,
    ) -> Result<(), SealError> {
        let mut nonce = [0; NONCE_LEN];
        self.random
            .fill(&mut nonce)
            .map_err(|_| SealError::Random)?;
        into.extend_from_slice(&nonce);
        let start = into.len();
        into.extend_from_slice(text);
        let (aad, nonce) = (Aad::from(context), Nonce::assume_unique_for_key(nonce));
        let tag = key.seal_in_place_separate_tag(nonce, aad, &mut into[start..]);
        into.extend_from_slice(tag.map_err(|_| SealError::Damaged)?.as_ref());
        Ok(())
    }
}

fn cipher(key: &[u8; KEY_BYTES]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).expect("a key of 32 bytes"))
}

fn decrypt(
    key: &LessSafeKey,
    context: &str,
    sealed: &[u8],
) -> Result<Zeroizing<Vec<u8>>, SealError> {
    let (nonce, text) = sealed
        .split_at_checked(NONCE_LEN)
        .ok_or(SealError::Damaged)?;
    let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| SealError::Damaged)?;
    let mut text = Zeroizing::new(text.to_vec());
    let opened = key.open_in_place(nonce, Aad::from(context), &mut text);
    let length = opened.map_err(|_| SealError::Damaged)?.len();
    text.truncate(length);
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn key() -> SealingKey {
        SealingKey::parse(&"0f".repeat(KEY_BYTES), "test").expect("a key")
    }

    #[test]
    fn a_secret_opens_at_its_place_only() {
        let sealed = key().seal("credential:1:alice", b"secret").expect("sealed");
        assert_eq!(
            *key().open("credential:1:alice", &sealed).expect("opens"),
            b"secret"
        );
        assert!(key().open("credential:1:bob", &sealed).is_err());
        assert!(!sealed.windows(6).any(|part| part == b"secret"));
    }

    #[test]
    fn every_damage_is_found() {
        let sealed = key().seal("c", b"secret").expect("sealed");
        for at in 0..sealed.len() {
            let mut damaged = sealed.clone();
            damaged[at] ^= 1;
            assert!(key().open("c", &damaged).is_err(), "byte {at}");
            assert!(key().open("c", &sealed[..at]).is_err(), "cut at {at}");
        }
    }

    #[test]
    fn another_key_does_not_open() {
        let sealed = key().seal("c", b"secret").expect("sealed");
        let other = SealingKey::parse(&"1e".repeat(KEY_BYTES), "test").expect("a key");
        assert!(other.open("c", &sealed).is_err());
    }

    #[test]
    fn a_key_file_is_made_once_and_private() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        let sealed = SealingKey::from_file(&path).and_then(|key| key.seal("c", b"x"));
        let sealed = sealed.expect("a new key");
        let again = SealingKey::from_file(&path).expect("the same key");
        assert_eq!(*again.open("c", &sealed).expect("opens"), b"x");
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
        fs::set_permissions(&path, open).expect("chmod");
        assert!(matches!(
            SealingKey::from_file(&path),
            Err(SealError::Readable { .. })
        ));
    }

    #[test]
    fn processes_that_begin_together_have_one_key() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("key");
        let keys: Vec<SealingKey> = std::thread::scope(|scope| {
            let made: Vec<_> = (0..16)
                .map(|_| scope.spawn(|| SealingKey::from_file(&path).expect("a key")))
                .collect();
            made.into_iter()
                .map(|key| key.join().expect("ends"))
                .collect()
        });
        let sealed = keys[0].seal("c", b"x").expect("seals");
        assert!(keys.iter().all(|key| key.open("c", &sealed).is_ok()));
        assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 1);
    }

    #[test]
    fn a_command_can_hold_the_key() {
        let digits = "ab".repeat(KEY_BYTES);
        assert!(SealingKey::from_command(&format!("echo {digits}")).is_ok());
        assert!(matches!(
            SealingKey::from_command("exit 3"),
            Err(SealError::Command { .. })
        ));
        assert!(matches!(
            SealingKey::from_command("echo key"),
            Err(SealError::Format { .. })
        ));
    }
}
