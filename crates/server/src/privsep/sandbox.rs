//! Dropping privileges: account, files, system calls. Each step is for the whole process, so there
//! must be no second thread yet.

use std::{fmt, fs, io, os::unix::fs::MetadataExt as _, path::Path};

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, CompatLevel, Compatible as _, PathBeneath, PathFd,
    Ruleset, RulesetAttr as _, RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::{
    process::{
        DumpableBehavior, Signal, chroot, set_dumpable_behavior, set_parent_process_death_signal,
    },
    thread::{
        Gid, Uid, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
    },
};
use seccompiler::BpfProgram;

use super::syscalls;
use crate::access::accounts::Ids;
use crate::config::Separation;

/// What pre-login processes see of the file system where the kernel lacks Landlock, and where it
/// does not.
const EMPTY: &str = "/run/godwitd-empty";

/// Files that every user may read, for names of owners and groups. Where the system has them from
/// elsewhere, numbers must do.
const NAMES: [&str; 3] = ["/etc/passwd", "/etc/group", "/etc/nsswitch.conf"];

/// The oldest Landlock that lets files be renamed from one directory to another.
const NEEDED: ABI = ABI::V2;

/// The newest Landlock whose rights this program knows.
const KNOWN: ABI = ABI::V5;

/// The protection of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Protection {
    /// Missing protection, and why.
    missing: Vec<String>,
}

/// A privilege that could not be dropped. The process must exit.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing}: {error}")]
pub(crate) struct NotConfined {
    doing: &'static str,
    error: io::Error,
}

fn cannot<E: Into<io::Error>>(doing: &'static str) -> impl FnOnce(E) -> NotConfined {
    move |error| NotConfined {
        doing,
        error: error.into(),
    }
}

impl Protection {
    /// The protection that this kernel offers. Drops nothing.
    pub fn of_this_kernel() -> Self {
        let mut protection = Self::default();
        protection.note(
            "Landlock",
            landlock_rules()
                .map(drop)
                .map_err(|error| error.to_string()),
        );
        protection.note("seccomp", syscalls::for_pre_login().map(drop));
        protection
    }

    /// Nothing is missing.
    pub fn is_complete(&self) -> bool {
        self.missing.is_empty()
    }

    fn note(&mut self, what: &str, result: Result<(), String>) {
        if let Err(why) = result {
            self.missing.push(format!("{what} ({why})"));
        }
    }
}

impl fmt::Display for Protection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_complete() {
            true => f.write_str("own accounts, no new privileges, Landlock, seccomp"),
            false => write!(
                f,
                "own accounts, no new privileges; the kernel lacks {}",
                self.missing.join(", ")
            ),
        }
    }
}

/// Becomes a pre-login process: no files, no sockets, an account without rights. Needs root.
pub(super) fn confine_pre_login(ids: &Ids) -> Result<Protection, NotConfined> {
    enter_empty_root()?;
    become_account(ids)?;
    Ok(renounce_everything())
}

/// Takes away files and most system calls, which a pre-login process does not need.
fn renounce_everything() -> Protection {
    let mut protection = Protection::default();
    let files = landlock_rules()
        .and_then(|rules| {
            // From ABI 4 on; the system calls are refused as well.
            let rules = rules.set_compatibility(CompatLevel::BestEffort);
            rules
                .handle_access(AccessNet::from_all(ABI::V4))?
                .create()?
                .restrict_self()
        })
        .map(drop);
    protection.note("Landlock", files.map_err(|error| error.to_string()));
    filter(&mut protection, syscalls::for_pre_login());
    protection
}

/// Becomes an account, whose files beneath `root` are all that can be opened. Needs to be root.
pub(super) fn confine_session(ids: &Ids, root: &Path) -> Result<Protection, NotConfined> {
    become_account(ids)?;
    confine_to(root)
}

/// Becomes a reaper: beneath `root` it may read directories and remove files of any owner;
/// elsewhere nothing. Needs to be root, and stays it.
pub(super) fn confine_reaper(root: &Path) -> Result<Protection, NotConfined> {
    set_no_new_privs(true).map_err(cannot("renounce new privileges"))?;
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot("end with the monitor"))?;
    let root = open_root(root)?;
    let mut protection = Protection::default();
    let files = landlock_rules()
        .and_then(|rules| {
            let may = AccessFs::ReadDir | AccessFs::RemoveFile;
            rules
                .create()?
                .add_rule(PathBeneath::new(root, may))?
                .restrict_self()
        })
        .map(drop);
    protection.note("Landlock", files.map_err(|error| error.to_string()));
    filter(&mut protection, syscalls::for_session());
    Ok(protection)
}

fn open_root(root: &Path) -> Result<PathFd, NotConfined> {
    PathFd::new(root).map_err(|error| NotConfined {
        doing: "open the root directory",
        error: io::Error::other(error),
    })
}

/// Gives up files that are not beneath `root`, system calls that no session needs, and new
/// privileges.
pub(crate) fn confine_to(root: &Path) -> Result<Protection, NotConfined> {
    set_no_new_privs(true).map_err(cannot("renounce new privileges"))?;
    let mut protection = Protection::default();
    let root = open_root(root)?;
    let files = landlock_rules()
        .and_then(|rules| {
            let beneath = PathBeneath::new(root, AccessFs::from_all(KNOWN));
            let mut rules = rules.create()?.add_rule(beneath)?;
            for names in NAMES.iter().filter_map(|path| PathFd::new(path).ok()) {
                rules = rules.add_rule(PathBeneath::new(names, AccessFs::ReadFile))?;
            }
            rules.restrict_self()
        })
        .map(drop);
    protection.note("Landlock", files.map_err(|error| error.to_string()));
    filter(&mut protection, syscalls::for_session());
    Ok(protection)
}

/// Allows only what later rules add.
fn landlock_rules() -> Result<Ruleset, RulesetError> {
    Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))?
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(KNOWN))?
        .scope(Scope::from_all(ABI::V6))
}

fn filter(protection: &mut Protection, program: Result<BpfProgram, String>) {
    let applied = program
        .and_then(|program| seccompiler::apply_filter(&program).map_err(|error| error.to_string()));
    protection.note("seccomp", applied);
}

fn enter_empty_root() -> Result<(), NotConfined> {
    chroot(EMPTY).map_err(cannot("change to an empty root"))?;
    rustix::process::chdir("/").map_err(cannot("enter the empty root"))
}

/// Makes the directory that pre-login processes have as root, or finds that it is what it should
/// be. Needs to be root.
fn prepare_empty_root() -> io::Result<()> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("{EMPTY}: {error}"));
    match fs::create_dir(EMPTY) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(named(error)),
        _ => {}
    }
    let metadata = fs::symlink_metadata(EMPTY).map_err(named)?;
    let safe = metadata.is_dir() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0;
    if !safe || fs::read_dir(EMPTY).map_err(named)?.next().is_some() {
        return Err(io::Error::other(format!(
            "{EMPTY} must be an empty directory that is root's alone"
        )));
    }
    Ok(())
}

/// Cannot be undone without privileges.
fn become_account(ids: &Ids) -> Result<(), NotConfined> {
    let groups: Vec<Gid> = ids.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(ids.uid), Gid::from_raw(ids.gid));
    // The server never asks for it.
    if uid.is_root() || gid.is_root() {
        return Err(cannot("become root")(io::Error::from(
            io::ErrorKind::PermissionDenied,
        )));
    }
    set_thread_groups(&groups).map_err(cannot("take the account's groups"))?;
    set_thread_res_gid(gid, gid, gid).map_err(cannot("take the account's group"))?;
    set_thread_res_uid(uid, uid, uid).map_err(cannot("become the account"))?;
    set_no_new_privs(true).map_err(cannot("renounce new privileges"))?;
    // Changing the uid has reset this; and processes of the same uid are not trusted.
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(cannot("end with the monitor"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(cannot("forbid inspection by other processes"))
}

/// Makes sure that privileges can be separated here, as `separation` demands it.
pub(crate) fn prepare(separation: &Separation) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("it needs root".to_owned());
    }
    prepare_empty_root().map_err(|error| error.to_string())?;
    let protection = Protection::of_this_kernel();
    match separation.require_sandbox && !protection.is_complete() {
        true => Err(format!("--require-sandbox: {protection}")),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use std::{
        fs::File,
        io::ErrorKind,
        net::TcpListener,
        os::unix::fs::{PermissionsExt as _, chown, symlink},
        path::PathBuf,
        process::Command,
        thread,
    };

    use rustix::{
        io::Errno,
        process::{Resource, getrlimit, prlimit},
    };
    use tempfile::TempDir;

    use super::*;
    use crate::access::accounts::SystemAccount;

    /// An account that every Debian has and that runs nothing.
    const JO: &str = "games";

    /// Readable files beneath a root and beside it, and two of another account.
    struct Place {
        folder: TempDir,
        ids: Ids,
    }

    impl Place {
        /// `None`, and a word on why, where it cannot be.
        #[allow(clippy::print_stderr, reason = "a skip is reported")]
        fn new() -> Option<Self> {
            let account = SystemAccount::find(JO);
            let complete = Protection::of_this_kernel().is_complete();
            let (true, true, Ok(account)) =
                (rustix::process::geteuid().is_root(), complete, account)
            else {
                eprintln!("skipped: it needs root, the account {JO}, Landlock and seccomp");
                return None;
            };
            let folder = TempDir::new().unwrap();
            let at = |name: &str| folder.path().join(name);
            for (name, mode) in [
                ("", 0o755),
                ("root", 0o755),
                ("root/kim", 0o700),
                ("root/jo", 0o700),
            ] {
                if !name.is_empty() {
                    fs::create_dir(at(name)).unwrap();
                }
                fs::set_permissions(at(name), fs::Permissions::from_mode(mode)).unwrap();
            }
            chown(at("root/jo"), Some(account.ids.uid), Some(account.ids.gid)).unwrap();
            for name in ["outside", "root/inside", "root/kim/secret"] {
                fs::write(at(name), name).unwrap();
                fs::set_permissions(at(name), fs::Permissions::from_mode(0o644)).unwrap();
            }
            symlink(at("outside"), at("root/link")).unwrap();
            Some(Self {
                folder,
                ids: account.ids,
            })
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().join(name)
        }
    }

    /// What is given up here is given up by one thread (this is why it comes before all others in a
    /// process). Only the word on being looked into is the whole process's.
    fn apart<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        thread::scope(|scope| scope.spawn(work).join().unwrap())
    }

    fn denied<T>(result: io::Result<T>) -> bool {
        result.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
    }

    /// Every name by its plain path, past all that storage does with paths.
    #[test]
    fn paths_of_a_session_stay_beneath_the_root() {
        let Some(place) = Place::new() else { return };
        let elsewhere = [
            place.at("outside"),
            place.at("root/link"),
            place.at("root/../outside"),
            "/etc/os-release".into(),
            "/proc/self/status".into(),
            "/proc/self/maps".into(),
            "/proc/self/root/etc/os-release".into(),
            "/proc/mounts".into(),
        ];
        // The account alone does not protect those.
        apart(|| {
            become_account(&place.ids).unwrap();
            for path in &elsewhere[..3] {
                assert!(File::open(path).is_ok(), "{path:?}");
            }
        });
        apart(|| {
            let protection = confine_session(&place.ids, &place.at("root")).unwrap();
            assert!(protection.is_complete(), "{protection}");
            assert_eq!(fs::read(place.at("root/inside")).unwrap(), b"root/inside");
            fs::write(place.at("root/jo/f"), "mine").unwrap();
            fs::rename(place.at("root/jo/f"), place.at("root/jo/g")).unwrap();
            assert!(File::open("/etc/passwd").is_ok(), "names of owners");
            for path in &elsewhere {
                assert!(denied(File::open(path)), "{path:?}");
            }
            for folder in ["/", "/etc", "/proc/self/fd", "/tmp"] {
                assert!(denied(fs::read_dir(folder)), "{folder}");
            }
            let out = place.at("outside");
            assert!(denied(fs::write(&out, "changed")));
            assert!(denied(fs::remove_file(&out)));
            assert!(fs::hard_link(&out, place.at("root/jo/taken")).is_err());
            assert!(fs::rename(place.at("root/jo/g"), place.at("g")).is_err());
            // Of what others have beneath the root the system tells nothing, not even whether it is
            // there.
            for name in ["root/kim/secret", "root/kim/absent"] {
                assert!(denied(fs::metadata(place.at(name))), "{name}");
                assert!(denied(File::open(place.at(name))), "{name}");
            }
            assert!(denied(fs::read_dir(place.at("root/kim"))));
        });
        assert_eq!(fs::read(place.at("outside")).unwrap(), b"outside");
    }

    #[test]
    fn a_session_reaches_no_other_process_or_account() {
        let Some(place) = Place::new() else { return };
        apart(|| {
            confine_session(&place.ids, &place.at("root")).unwrap();
            assert!(Command::new("/bin/true").status().is_err());
            let root = Uid::from_raw(0);
            assert_eq!(set_thread_res_uid(root, root, root), Err(Errno::NOSYS));
            assert_eq!(chroot("/"), Err(Errno::NOSYS));
            let same = getrlimit(Resource::Core);
            let limits_of = |pid| prlimit(pid, Resource::Core, same).map(drop);
            let parent = rustix::process::getppid();
            assert_eq!(limits_of(parent), Err(Errno::NOSYS));
            assert!(limits_of(None).is_ok());
            assert!(TcpListener::bind("127.0.0.1:0").is_ok(), "data connections");
        });
    }

    /// Without the empty root, which is the whole process's.
    #[test]
    fn pre_login_opens_nothing_and_connects_nowhere() {
        let Some(place) = Place::new() else { return };
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        // pre-login processes are processes of one account.
        let parent = rustix::process::getppid();
        let same = getrlimit(Resource::Core);
        let limits_of = |pid| prlimit(pid, Resource::Core, same).map(drop);
        apart(|| {
            become_account(&place.ids).unwrap();
            assert!(File::open(place.at("root/inside")).is_ok());
            assert!(std::net::TcpStream::connect(address).is_ok());
            assert_eq!(limits_of(parent), Err(Errno::PERM), "another account's");
        });
        apart(|| {
            become_account(&place.ids).unwrap();
            let protection = renounce_everything();
            assert!(protection.is_complete(), "{protection}");
            assert!(File::open(place.at("root/inside")).is_err());
            assert!(fs::write(place.at("root/jo/f"), "x").is_err());
            assert!(fs::read_dir("/").is_err());
            assert!(std::net::TcpStream::connect(address).is_err());
            assert!(Command::new("/bin/true").status().is_err());
            assert_eq!(limits_of(parent), Err(Errno::NOSYS));
            assert!(limits_of(None).is_ok());
            listener.set_nonblocking(true).unwrap();
            assert!(listener.try_clone().is_ok());
        });
    }
}
