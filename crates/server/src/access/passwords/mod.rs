//! Users with passwords: a file of names and argon2id hashes, one user a line.
//!
//! ```text
//!   jo:$argon2id$v=19$m=19456,t=2,p=1$c2FsdHNhbHQ$aGFzaA...
//!   kim:$argon2id$...:/groups/physics      sees only /groups/physics, as its root
//!   guest:$argon2id$...:/pub:ro                reads there
//!   robot:$argon2id$...:/in:rw:data            runs as the system account data with --privsep;
//!                                              the others act as the accounts of their names
//! ```
//! Empty lines and those that begin with `#` are skipped. Each login looks whether the file has
//! changed, so changes count at once.

mod edit;

use std::{
    collections::HashMap,
    fmt,
    fs::{File, Metadata},
    io::{self, Read as _},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use argon2::{
    Algorithm, Argon2, Block, Params, PasswordHash, PasswordHasher as _, Version,
    password_hash::{Output, Salt, SaltString},
};
use godwit_proto::{FtpPath, pi::server::is_anonymous};
use tracing::warn;

use super::admission::attempts::VERIFICATIONS_MAX;

pub use self::edit::{Change, EditError, edit};

/// Longest file that is read. A line has some 120 bytes.
const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// Most memory that a hash may ask for, KiB: each login in progress takes as much.
const MEMORY_KIB_MAX: u32 = 256 * 1024;

/// Most passes over it.
const PASSES_MAX: u32 = 16;

/// Most lanes.
const LANES_MAX: u32 = 8;

/// What a new hash costs: OWASP's first recommendation for argon2id, 19 MiB and two passes.
const COST: (u32, u32, u32) = (19 * 1024, 2, 1);

/// Most memory that is kept for the next verification, KiB. What is larger goes back to the system
/// at once: the C library maps it by itself.
const KEPT_KIB_MAX: usize = 32 * 1024;

/// A file that has changed so lately may change again without another time of change.
pub(super) const SETTLED: Duration = Duration::from_secs(2);

/// Bytes of salt of a new hash.
const SALT_BYTES: usize = 16;

/// What the password file said when it was read last, and memory for verifications. Both are kept:
/// to read a file of many users takes as long as to verify a password, and memory that was given
/// back by many threads stays with each of them.
#[derive(Default)]
pub(crate) struct Cache {
    read: Mutex<Option<(FileVersion, Arc<Passwords>)>>,
    memory: Arc<Memory>,
}

/// What a password file says.
pub(crate) struct Passwords {
    entries: HashMap<String, Entry>,
    /// Verified for unknown names, so that they take as long as known ones. No user has it.
    unknown_user: String,
    memory: Arc<Memory>,
}

/// Which file it is, and as of when.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct FileVersion {
    path: PathBuf,
    device: u64,
    inode: u64,
    length: u64,
    changed: [i64; 4],
}

impl FileVersion {
    pub(super) fn of(path: &Path, metadata: &Metadata) -> Self {
        Self {
            path: path.to_owned(),
            device: metadata.dev(),
            inode: metadata.ino(),
            length: metadata.len(),
            changed: [
                metadata.mtime(),
                metadata.mtime_nsec(),
                metadata.ctime(),
                metadata.ctime_nsec(),
            ],
        }
    }
}

/// Memory of verifications, as much as were made at a time.
#[derive(Default)]
struct Memory(Mutex<Vec<Vec<Block>>>);

impl Memory {
    fn take(&self) -> Vec<Block> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .pop()
            .unwrap_or_default()
    }

    fn keep(&self, blocks: Vec<Block>) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if blocks.capacity() * Block::SIZE <= KEPT_KIB_MAX * 1024 && kept.len() < VERIFICATIONS_MAX
        {
            kept.push(blocks);
        }
    }
}

impl Cache {
    /// What the file says now. Reads it where it is not the one that was read last.
    ///
    /// # Errors
    /// As [`read`].
    pub(crate) fn read(&self, path: &Path) -> io::Result<Arc<Passwords>> {
        let file = File::open(path)?;
        let metadata = file.metadata()?;
        check_owner(&metadata)?;
        let version = FileVersion::of(path, &metadata);
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, passwords)) = read.as_ref().filter(|(of, _)| *of == version) {
            return Ok(Arc::clone(passwords));
        }
        *read = None;
        let (mut passwords, _) = Passwords::parse(&text_of(file)?);
        passwords.memory = Arc::clone(&self.memory);
        let passwords = Arc::new(passwords);
        let age = metadata
            .modified()
            .ok()
            .and_then(|at| SystemTime::now().duration_since(at).ok());
        if age.is_some_and(|age| age >= SETTLED) {
            *read = Some((version, Arc::clone(&passwords)));
        }
        Ok(passwords)
    }
}

/// A user.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) user: String,
    /// PHC string.
    hash: String,
    /// Where the user begins, and what he cannot leave.
    pub(crate) home: FtpPath,
    /// May change what is there.
    pub(crate) writes: bool,
    /// Account of the system that a session of its own acts as; `None`: the user's name is its.
    pub(crate) account: Option<String>,
}

/// A line that counts for nothing.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Fault {
    /// From 1.
    pub(crate) line: usize,
    pub(crate) what: &'static str,
}

/// Reads a file that only its owner (we, or root) can read or change.
///
/// # Errors
/// When it cannot be read, is too long, no text, or open to others.
pub(crate) fn read(path: &Path) -> io::Result<(Passwords, Vec<Fault>)> {
    Ok(Passwords::parse(&read_text(path)?))
}

/// Logs the faults of the file, for an administrator who has just started the server.
///
/// # Errors
/// As [`read`].
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let (passwords, faults) = read(path)?;
    for Fault { line, what } in faults {
        warn!(file = ?path, line, fault = what, "a line of the password file is ignored");
    }
    if passwords.is_empty() {
        warn!(file = ?path, "the password file has no users");
    }
    Ok(())
}

pub(super) fn read_text(path: &Path) -> io::Result<String> {
    let file = File::open(path)?;
    check_owner(&file.metadata()?)?;
    text_of(file)
}

/// Only its owner has written it and can read it.
pub(super) fn check_owner(metadata: &Metadata) -> io::Result<()> {
    let owner = metadata.uid();
    if !metadata.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    if owner != 0 && owner != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other("neither ours nor root's"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "open to others (mode {:04o}): chmod 600",
            metadata.mode() & 0o7777
        )));
    }
    Ok(())
}

pub(super) fn text_of(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > FILE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "larger than {FILE_BYTES_MAX} bytes"
        )));
    }
    Ok(text)
}

impl Passwords {
    /// Reads the text of a file. Invalid lines allow no login.
    pub(crate) fn parse(text: &str) -> (Self, Vec<Fault>) {
        let mut entries: HashMap<String, Entry> = HashMap::new();
        let mut cost = None;
        let mut faults = Vec::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let what = match Entry::parse(line) {
                Ok(entry) if entries.contains_key(&entry.user) => "the user has a line above",
                Ok(entry) => {
                    cost = cost.or_else(|| entry.cost());
                    entries.insert(entry.user.clone(), entry);
                    continue;
                }
                Err(what) => what,
            };
            faults.push(Fault { line: at + 1, what });
        }
        let unknown_user = hash_with(cost.unwrap_or_default(), b"", &[0; SALT_BYTES]);
        let memory = Arc::default();
        let passwords = Self {
            entries,
            unknown_user,
            memory,
        };
        (passwords, faults)
    }

    /// No line allows a login.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// All that a user's line says, the hash of the password too. `None`: there is no such user.
    pub(crate) fn line(&self, user: &str) -> Option<String> {
        let Entry {
            user,
            hash,
            home,
            writes,
            account,
        } = self.entries.get(user)?;
        Some(format!("{user}:{hash}:{home}:{writes}:{account:?}"))
    }

    /// The user whose password this is. Takes as long for unknown names as for the first
    /// user of the file, and some ten milliseconds and megabytes in any case.
    pub(crate) fn verify(&self, user: &str, password: &[u8]) -> Option<&Entry> {
        let entry = self.entries.get(user);
        let hash = entry.map_or(&self.unknown_user, |entry| &entry.hash);
        let is_right = self.is_right(hash, password)?;
        entry.filter(|_| is_right)
    }

    /// In memory of a verification before, where there is some. `None`: the hash is none.
    fn is_right(&self, hash: &str, password: &[u8]) -> Option<bool> {
        let hash = PasswordHash::new(hash).ok()?;
        let cost = Params::try_from(&hash).ok()?;
        let (expected, salt) = (hash.hash?, hash.salt?);
        let mut bytes = [0; Salt::MAX_LENGTH];
        let salt = salt.decode_b64(&mut bytes).ok()?;
        let mut blocks = self.memory.take();
        let needed = cost.block_count();
        blocks.resize(blocks.len().max(needed), Block::default());
        let mut output = [0; Output::MAX_LENGTH];
        let output = output.get_mut(..expected.len())?;
        let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
        let hashed =
            hasher.hash_password_into_with_memory(password, salt, output, &mut blocks[..needed]);
        self.memory.keep(blocks);
        hashed.ok()?;
        // It takes as long wherever they differ.
        Some(Output::new(output).ok()? == expected)
    }
}

impl Entry {
    /// Of its hash.
    fn cost(&self) -> Option<Params> {
        Params::try_from(&PasswordHash::new(&self.hash).ok()?).ok()
    }

    fn parse(line: &str) -> Result<Self, &'static str> {
        let mut fields = line.split(':');
        let mut next = || fields.next();
        let user = next().filter(|user| is_user(user));
        let user = user.ok_or("no user can have this name")?;
        let hash = next().ok_or("the hash is missing")?;
        check_hash(hash)?;
        let home = match next() {
            None | Some("") => FtpPath::root(),
            Some(path) if path.starts_with('/') => FtpPath::new(path)
                .map_err(|_| "the directory is no path")?
                .resolve(&FtpPath::root(), &FtpPath::root()),
            Some(_) => return Err("the directory does not begin with /"),
        };
        let writes = match next() {
            None | Some("rw") => true,
            Some("ro") => false,
            Some(_) => return Err("behind the directory stands neither ro nor rw"),
        };
        let account = match next() {
            None | Some("") => None,
            Some(name) if is_user(name) => Some(name.to_owned()),
            Some(_) => return Err("no account can have this name"),
        };
        if next().is_some() {
            return Err("there are more than five fields");
        }
        Ok(Self {
            user: user.to_owned(),
            hash: hash.to_owned(),
            home,
            writes,
            account,
        })
    }
}

/// Names are words, and none that means something else.
pub(super) fn is_user(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && !c.is_whitespace() && c != ':';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with('#') && !is_anonymous(name)
}

/// Of a kind that we verify, at a price that we pay.
fn check_hash(text: &str) -> Result<(), &'static str> {
    let hash = PasswordHash::new(text).map_err(|_| "the hash is no PHC string")?;
    if hash.algorithm != Algorithm::Argon2id.ident() {
        return Err("the hash is not of argon2id");
    }
    if hash
        .version
        .is_some_and(|version| version != Version::V0x13 as u32)
    {
        return Err("the hash is of an old version of argon2");
    }
    if hash.salt.is_none() || hash.hash.is_none() {
        return Err("the hash is not complete");
    }
    let cost = Params::try_from(&hash).map_err(|_| "the hash has no good parameters")?;
    if cost.m_cost() > MEMORY_KIB_MAX || cost.t_cost() > PASSES_MAX || cost.p_cost() > LANES_MAX {
        return Err("the hash is too expensive: at most m=262144, t=16, p=8");
    }
    Ok(())
}

/// A new hash of `password`. `salt` is random.
fn hash(password: &[u8], salt: &[u8; SALT_BYTES]) -> String {
    let (memory, passes, lanes) = COST;
    let cost = Params::new(memory, passes, lanes, None);
    hash_with(cost.unwrap_or_default(), password, salt)
}

fn hash_with(cost: Params, password: &[u8], salt: &[u8; SALT_BYTES]) -> String {
    let hasher = Argon2::new(Algorithm::Argon2id, Version::V0x13, cost);
    let salt = SaltString::encode_b64(salt).expect("sixteen bytes are a salt");
    let hash = hasher.hash_password(password, &salt);
    hash.expect("the cost is in bounds").to_string()
}

/// Without the hash.
impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry")
            .field("user", &self.user)
            .field("home", &self.home)
            .field("writes", &self.writes)
            .field("account", &self.account)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use godwit_gsi::cert::files;

    use super::*;

    /// Cheap: tests run many.
    fn cheap(password: &str) -> String {
        let cost = Params::new(64, 1, 1, None).unwrap();
        hash_with(cost, password.as_bytes(), &[7; SALT_BYTES])
    }

    #[test]
    fn the_right_password_of_the_right_user_and_nothing_else() {
        let (jo, kim) = (cheap("secret"), cheap("other"));
        let text = format!("# users\n\njo:{jo}\nkim:{kim}:/groups/../pub/:ro:data\n");
        let (passwords, faults) = Passwords::parse(&text);
        assert_eq!(faults, []);
        let entry = passwords.verify("jo", b"secret").unwrap();
        assert_eq!((&entry.home, entry.writes), (&FtpPath::root(), true));
        let entry = passwords.verify("kim", b"other").unwrap();
        assert_eq!((entry.home.as_bytes(), entry.writes), (&b"/pub"[..], false));
        assert_eq!(entry.account.as_deref(), Some("data"));
        for (user, password) in [
            ("jo", &b"other"[..]),
            ("jo", b""),
            ("Jo", b"secret"),
            ("kim", b"secret"),
            ("nobody", b""),
            ("", b""),
        ] {
            assert_eq!(passwords.verify(user, password), None, "{user}");
        }
    }

    #[test]
    fn unknown_users_take_as_long_as_known_ones() {
        let (passwords, _) = Passwords::parse(&format!("jo:{}", cheap("secret")));
        let cost = |hash: &str| Params::try_from(&PasswordHash::new(hash).unwrap()).unwrap();
        assert_eq!(
            cost(&passwords.unknown_user),
            cost(&passwords.entries["jo"].hash)
        );
        let (none, _) = Passwords::parse("");
        assert!(none.is_empty());
        assert_eq!(
            cost(&none.unknown_user).m_cost(),
            Params::default().m_cost()
        );
    }

    #[test]
    fn invalid_lines_allow_no_login() {
        let good = cheap("x");
        let dear = good.replace("m=64", "m=9999999");
        let long = good.replace("t=1", "t=1000");
        let other = good.replace("argon2id", "argon2i");
        let (bare, _) = good.rsplit_once('$').unwrap();
        for (line, what) in [
            ("jo", "missing"),
            ("jo:", "PHC"),
            ("jo:secret", "PHC"),
            (&format!("anonymous:{good}"), "name"),
            (&format!(":{good}"), "name"),
            (&format!(" jo:{good}"), "name"),
            (&format!("jo:{dear}"), "expensive"),
            (&format!("jo:{long}"), "expensive"),
            (&format!("jo:{other}"), "argon2id"),
            (&format!("jo:{bare}"), "complete"),
            (&format!("jo:{good}:home"), "begin"),
            (&format!("jo:{good}:/a:rx"), "neither"),
            (&format!("jo:{good}:/a:ro:a b"), "account"),
            (&format!("jo:{good}:/a:ro:x:"), "five"),
            (&format!("ok:{good}\nok:{good}"), "above"),
        ] {
            let (passwords, faults) = Passwords::parse(line);
            assert!(faults[0].what.contains(what), "{line}: {faults:?}");
            assert!(passwords.entries.keys().all(|user| user == "ok"));
            assert_eq!(passwords.verify("jo", b"x"), None);
        }
    }

    #[test]
    fn a_file_that_others_can_read_is_refused() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), format!("jo:{}\n", cheap("x"))).unwrap();
        let set = |mode| {
            std::fs::set_permissions(file.path(), std::fs::Permissions::from_mode(mode)).unwrap();
            read(file.path())
        };
        assert!(!set(0o600).unwrap().0.is_empty());
        assert!(set(0o400).is_ok());
        for mode in [0o640, 0o604, 0o620, 0o666] {
            let error = set(mode).err().unwrap().to_string();
            assert!(error.contains("open to others"), "{error}");
        }
    }

    #[test]
    fn nothing_is_shown_by_accident() {
        let (passwords, _) = Passwords::parse(&format!("jo:{}", cheap("secret")));
        assert!(!format!("{:?}", passwords.entries).contains("argon2"));
    }

    /// A file whose last change is old enough that its time shows the next one.
    fn settled(path: &Path, text: &str) {
        files::write_private(path, text.as_bytes()).unwrap();
        let file = File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - 2 * SETTLED).unwrap();
    }

    #[test]
    fn only_a_changed_file_is_read_again() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("passwords");
        let cache = Cache::default();
        settled(&path, &format!("jo:{}\n", cheap("secret")));
        let first = cache.read(&path).unwrap();
        assert!(Arc::ptr_eq(&first, &cache.read(&path).unwrap()));
        // As long as before, and written at the same second.
        settled(&path, &format!("jo:{}\n", cheap("change")));
        let second = cache.read(&path).unwrap();
        assert!(
            second.verify("jo", b"secret").is_none() && second.verify("jo", b"change").is_some()
        );
        // What has changed just now may change again unnoticed: it is not kept.
        let file = File::options().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now()).unwrap();
        let third = cache.read(&path).unwrap();
        assert!(!Arc::ptr_eq(&third, &cache.read(&path).unwrap()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(cache.read(&path).is_err());
        std::fs::remove_file(&path).unwrap();
        assert!(cache.read(&path).is_err());
    }

    #[test]
    fn memory_of_verifications_is_used_again_and_bounded() {
        let text = format!("jo:{}\nkim:{}\n", cheap("secret"), cheap("other"));
        let (passwords, _) = Passwords::parse(&text);
        let blocks = || {
            passwords
                .memory
                .0
                .lock()
                .unwrap()
                .iter()
                .map(Vec::len)
                .collect::<Vec<_>>()
        };
        for _ in 0..3 {
            // What a verification has left changes nothing for the next.
            assert!(passwords.verify("jo", b"secret").is_some());
            assert!(passwords.verify("kim", b"secret").is_none());
            assert_eq!(blocks(), [64]);
        }
        let large = KEPT_KIB_MAX + 1;
        passwords.memory.keep(vec![Block::default(); large]);
        (0..20).for_each(|_| passwords.memory.keep(vec![Block::default(); 8]));
        assert_eq!(blocks().len(), VERIFICATIONS_MAX);
        assert!(!blocks().contains(&large));
    }

    /// Not a clock: a user more costs a lookup in a table, whatever stands above.
    #[test]
    fn a_file_of_ten_thousand_users_is_read() {
        let hash = cheap("x");
        let lines = (0..10_000).map(|number| format!("u{number}:{hash}\n"));
        let text: String = lines.collect();
        let (passwords, faults) = Passwords::parse(&text);
        assert_eq!((passwords.entries.len(), faults.len()), (10_000, 0));
        assert!(passwords.verify("u9999", b"x").is_some());
    }
}
