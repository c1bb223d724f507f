//! The registry of what the lab creates outside its process (namespaces, programs, settings of the
//! machine), so that the next run can remove what a killed run left.
//!
//! Below one directory (`/run/godwit-lab` for root) each network has a directory named by process
//! id, start time of that process, and a count. If no such process lives, the next run removes what
//! is left of the network: the directory, programs that still run inside its namespaces, and
//! settings of the machine that were changed for it. Folders of files for a run are registered in
//! the same way. A namespace is identified by its number and by an alias of its loopback interface
//! that names the owner, since the kernel reuses numbers.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::FlockOperation;
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use crate::file_error::{FileError, io_error};
use crate::netns;

/// In a network's directory: numbers of its namespaces, one a line.
const NAMESPACES: &str = "namespaces";
/// In the directory of an [`OwnedFolder`]: where that is.
const FOLDER: &str = "folder";
/// How names of folders begin that may be removed.
pub(crate) const FOLDER_PREFIX: &str = "godwit-lab-";
/// Beside the networks: settings of the machine we changed.
const SETTINGS: &str = "settings.json";
/// Beside the networks: held while any of this is changed.
const LOCK: &str = "lock";

/// What was found of networks whose owners are gone, and removed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Leftovers {
    /// Networks.
    pub networks: usize,
    /// Folders with files that were to be moved.
    pub folders: Vec<PathBuf>,
    /// Programs that were still running inside and were killed, by process id.
    pub killed: Vec<u32>,
    /// Settings of the machine that were put back, as `key = value`.
    pub restored: Vec<String>,
}

/// The directory of one network, removed when dropped.
#[derive(Debug)]
pub(crate) struct RunDir {
    base: PathBuf,
    name: String,
}

/// A note of a folder elsewhere, with much in it: when its owner was killed, the next run removes
/// it.
#[derive(Debug)]
pub(crate) struct OwnedFolder {
    _note: RunDir,
}

impl OwnedFolder {
    /// Notes `folder`, whose name begins with [`FOLDER_PREFIX`]. Its owner removes it before this
    /// is dropped.
    pub(crate) fn note(folder: &Path) -> io::Result<OwnedFolder> {
        let note = RunDir::create()?;
        let path = note.path().join(FOLDER);
        fs::write(path, folder.as_os_str().as_encoded_bytes())?;
        Ok(OwnedFolder { _note: note })
    }
}

/// A folder in memory where there is one, else where temporary files go. The first is dropped
/// before the second.
pub(crate) fn memory_folder() -> Result<(TempDir, OwnedFolder), FileError> {
    let memory = Path::new("/dev/shm");
    let base = match memory.is_dir() {
        true => memory.to_owned(),
        false => std::env::temp_dir(),
    };
    let folder = (tempfile::Builder::new().prefix(FOLDER_PREFIX))
        .tempdir_in(&base)
        .map_err(io_error(&base))?;
    let owned = OwnedFolder::note(folder.path()).map_err(io_error(folder.path()))?;
    Ok((folder, owned))
}

/// A setting we changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Changed {
    original: String,
    ours: String,
}

type Settings = BTreeMap<String, Changed>;

/// Removes what is left of networks whose owners are gone.
///
/// # Errors
/// When the state directory cannot be read or changed.
pub fn remove_leftovers() -> io::Result<Leftovers> {
    let base = base();
    if !base.exists() {
        return Ok(Leftovers::default());
    }
    let _lock = lock(&base)?;
    sweep(&base)
}

impl RunDir {
    /// Removes leftovers, then makes a directory for a network of ours.
    pub(crate) fn create() -> io::Result<RunDir> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let base = base();
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&base)?;
        let _lock = lock(&base)?;
        sweep(&base)?;
        let pid = std::process::id();
        let start = start_time(pid).ok_or_else(|| io::Error::other("no start time in /proc"))?;
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("{pid}.{start}.{count}");
        fs::create_dir(base.join(&name))?;
        Ok(RunDir { base, name })
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.base.join(&self.name)
    }

    /// What a namespace of this network is marked with.
    pub(crate) fn mark(&self) -> String {
        mark(&self.name)
    }

    /// Notes a namespace, so that programs inside can be found later.
    pub(crate) fn note_namespace(&self, inode: u64) -> io::Result<()> {
        let mut file = File::options()
            .create(true)
            .append(true)
            .open(self.path().join(NAMESPACES))?;
        writeln!(file, "{inode}")
    }

    /// Changes a setting of the machine (`net.ipv4.x`) until the last network is gone. `choose`
    /// gets the value it has and returns the one it needs, or `None` when it will do.
    pub(crate) fn change_setting(
        &self,
        key: &str,
        choose: impl FnOnce(&str) -> Option<String>,
    ) -> io::Result<()> {
        let _lock = lock(&self.base)?;
        let current = read_setting(key)?;
        let Some(ours) = choose(&current) else {
            return Ok(());
        };
        let mut settings = read_settings(&self.base)?;
        let original = (settings.remove(key)).map_or(current, |changed| changed.original);
        // Noted first: better to restore what was not changed than the other way round.
        let changed = Changed {
            original,
            ours: ours.clone(),
        };
        settings.insert(key.to_owned(), changed);
        write_settings(&self.base, &settings)?;
        write_setting(key, &ours)
    }

    fn remove(&self) -> io::Result<()> {
        let _lock = lock(&self.base)?;
        let inodes = inodes(&self.path());
        kill_inside(&inodes, None);
        fs::remove_dir_all(self.path())?;
        sweep(&self.base)?;
        Ok(())
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        // What stays is a leftover, which the next run removes.
        let _ = self.remove();
    }
}

/// The file of a setting below `/proc/sys`.
pub(crate) fn setting_file(key: &str) -> PathBuf {
    Path::new("/proc/sys").join(key.replace('.', "/"))
}

fn base() -> PathBuf {
    let uid = netns::outer_uid();
    if uid == 0 && !netns::in_user_namespace() {
        return PathBuf::from("/run/godwit-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR") {
        Some(directory) if Path::new(&directory).is_dir() => {
            PathBuf::from(directory).join("godwit-lab")
        }
        _ => std::env::temp_dir().join(format!("godwit-lab-{uid}")),
    }
}

fn lock(base: &Path) -> io::Result<File> {
    let file = File::options()
        .create(true)
        .truncate(false)
        .write(true)
        .open(base.join(LOCK))?;
    rustix::fs::flock(&file, FlockOperation::LockExclusive)?;
    Ok(file)
}

/// Removes dead networks and, when none is left, our changes to the machine. The lock is held.
fn sweep(base: &Path) -> io::Result<Leftovers> {
    let mut leftovers = Leftovers::default();
    let mut alive = false;
    for entry in fs::read_dir(base)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let Some((pid, start)) = owner(&name) else {
            continue;
        };
        if start_time(pid) == Some(start) {
            alive = true;
            continue;
        }
        let killed = kill_inside(&inodes(&entry.path()), Some(&mark(&name)));
        leftovers.killed.extend(killed);
        match noted_folder(&entry.path()) {
            Some(folder) => {
                remove_if_there(&folder)?;
                leftovers.folders.push(folder);
            }
            None => leftovers.networks += 1,
        }
        fs::remove_dir_all(entry.path())?;
    }
    if !alive {
        for (key, changed) in read_settings(base)? {
            // Another program may have changed it meanwhile; then it is no longer ours.
            if read_setting(&key).is_ok_and(|current| current == changed.ours)
                && write_setting(&key, &changed.original).is_ok()
            {
                leftovers
                    .restored
                    .push(format!("{key} = {}", changed.original));
            }
        }
        write_settings(base, &Settings::new())?;
    }
    Ok(leftovers)
}

/// The folder that is noted in a directory of ours.
fn noted_folder(run: &Path) -> Option<PathBuf> {
    let folder = PathBuf::from(fs::read_to_string(run.join(FOLDER)).ok()?);
    let name = folder.file_name()?.to_str()?;
    name.starts_with(FOLDER_PREFIX).then_some(folder)
}

fn remove_if_there(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Process id and start time in the name of a network's directory.
fn owner(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.split('.');
    let pid = parts.next()?.parse().ok()?;
    let start = parts.next()?.parse().ok()?;
    let _count: u32 = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some((pid, start))
}

/// When a process started, in clock ticks since boot: with its id, who it is.
fn start_time(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): starttime is field 22; the name, field 2, may hold blanks and parentheses.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    let start = fields.nth(18)?.parse().ok()?;
    // A zombie owns nothing any more.
    (state != "Z" && state != "X").then_some(start)
}

fn mark(name: &str) -> String {
    format!("godwit-lab {name}")
}

fn inodes(run: &Path) -> BTreeSet<u64> {
    fs::read_to_string(run.join(NAMESPACES))
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.parse().ok())
        .collect()
}

/// Kills all programs inside the namespaces; with a mark, only inside those that bear it.
fn kill_inside(namespaces: &BTreeSet<u64>, mark: Option<&str>) -> Vec<u32> {
    let mut killed = Vec::new();
    let mut ours: BTreeMap<u64, bool> = BTreeMap::new();
    if namespaces.is_empty() {
        return killed;
    }
    let pids = (fs::read_dir("/proc").into_iter().flatten())
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    for pid in pids {
        // Opened first: then what is looked at is what is killed.
        let Some(fd) = i32::try_from(pid)
            .ok()
            .and_then(Pid::from_raw)
            .and_then(|pid| rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok())
        else {
            continue;
        };
        let Some(inode) = netns::inode_of_process(pid).filter(|inode| namespaces.contains(inode))
        else {
            continue;
        };
        let is_ours = *ours
            .entry(inode)
            .or_insert_with(|| mark.is_none_or(|mark| bears(pid, mark)));
        if is_ours && rustix::process::pidfd_send_signal(&fd, Signal::KILL).is_ok() {
            killed.push(pid);
        }
    }
    killed
}

/// Whether the namespace of a process bears a mark.
fn bears(pid: u32, mark: &str) -> bool {
    let shown = netns::enter_process(pid, || {
        Command::new("ip")
            .args(["-o", "link", "show", "dev", "lo"])
            .output()
    });
    // `ip -o` writes `\` for line ends; the alias is the last of them.
    matches!(shown, Ok(Ok(output)) if String::from_utf8_lossy(&output.stdout)
        .trim_end()
        .ends_with(&format!("alias {mark}")))
}

fn read_setting(key: &str) -> io::Result<String> {
    Ok(fs::read_to_string(setting_file(key))?.trim().to_owned())
}

fn write_setting(key: &str, value: &str) -> io::Result<()> {
    fs::write(setting_file(key), value)
}

fn read_settings(base: &Path) -> io::Result<Settings> {
    match fs::read(base.join(SETTINGS)) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Settings::new()),
        Err(error) => Err(error),
    }
}

fn write_settings(base: &Path, settings: &Settings) -> io::Result<()> {
    let path = base.join(SETTINGS);
    if settings.is_empty() {
        return match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
            _ => Ok(()),
        };
    }
    fs::write(path, serde_json::to_vec(settings)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_who_owns_a_network() {
        assert_eq!(owner("12.345.0"), Some((12, 345)));
        assert_eq!(owner("12.345"), None);
        assert_eq!(owner("lock"), None);
        assert_eq!(owner("settings.json"), None);
        let pid = std::process::id();
        assert!(start_time(pid).is_some());
        assert_eq!(start_time(pid), start_time(pid));
    }

    #[test]
    fn dead_networks_are_swept_and_living_ones_stay() {
        let base = tempfile::tempdir().expect("a directory");
        let pid = std::process::id();
        let living = format!("{pid}.{}.0", start_time(pid).expect("a start time"));
        // Our id with another start: a process that had the id before us.
        let dead = format!("{pid}.1.0");
        for name in [&living, &dead] {
            fs::create_dir(base.path().join(name)).expect("made");
        }
        let leftovers = sweep(base.path()).expect("swept");
        assert_eq!(leftovers.networks, 1);
        assert!(base.path().join(living).exists());
        assert!(!base.path().join(dead).exists());
    }

    #[test]
    fn folders_of_the_dead_are_removed_if_they_are_ours() {
        let (base, elsewhere) = (tempfile::tempdir(), tempfile::tempdir());
        let (base, elsewhere) = (base.expect("one"), elsewhere.expect("another"));
        let ours = elsewhere.path().join("godwit-lab-x");
        let others = elsewhere.path().join("home");
        for (number, folder) in [&ours, &others].into_iter().enumerate() {
            let dead = base
                .path()
                .join(format!("{}.1.{number}", std::process::id()));
            fs::create_dir(&dead).expect("made");
            fs::create_dir(folder).expect("made");
            fs::write(dead.join(FOLDER), folder.as_os_str().as_encoded_bytes()).expect("noted");
        }
        let leftovers = sweep(base.path()).expect("swept");
        assert_eq!(leftovers.folders, std::slice::from_ref(&ours));
        assert!(!ours.exists() && others.exists());
    }

    #[test]
    fn settings_that_others_changed_are_left_alone() {
        let base = tempfile::tempdir().expect("a directory");
        let changed = Changed {
            original: "never written".into(),
            ours: "not what it is".into(),
        };
        let settings = Settings::from([("kernel.ostype".to_owned(), changed)]);
        write_settings(base.path(), &settings).expect("written");
        let leftovers = sweep(base.path()).expect("swept");
        assert!(leftovers.restored.is_empty());
        assert!(!base.path().join(SETTINGS).exists());
    }
}
