//! RPM packages in a root of their own: installed, tried, installed again, removed; and what
//! rpmlint finds in them.

use std::{
    collections::BTreeSet,
    env,
    ffi::OsStr,
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use tempfile::TempDir;

use crate::{
    rpm::{UNITS, can_pack, script},
    support::{am_root, have, said, told, within},
};

/// Names a directory with packages that were made before, to be tried in place of what is packed
/// here.
const RPMS: &str = "GODWIT_RPMS";

const PROGRAMS: [&str; 4] = ["godwit", "godwitd", "godwit-service", "godwit-lab"];

/// Seconds for one call of rpm, which compares the sums of hundreds of megabytes.
const LIMIT: u32 = 300;

/// Where rpm of other distributions has its database, whatever that of this one does.
const DATABASE: &str = "/var/lib/rpm";

/// In place of systemd: it says what it was told.
const SYSTEMCTL: &str = "#!/bin/sh\necho \"$*\" >> /systemctl.log\n";

static PACKED: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    if env::var_os(RPMS).is_none() {
        said(&mut script(folder.path()));
    }
    folder
});

fn packages() -> Vec<PathBuf> {
    let made = env::var_os(RPMS).map(PathBuf::from);
    let folder = made.unwrap_or_else(|| PACKED.path().to_owned());
    let files = fs::read_dir(folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let packages: Vec<_> = files
        .filter(|path| path.extension() == Some(OsStr::new("rpm")))
        .collect();
    assert_eq!(packages.len(), 4, "{packages:?}");
    packages
}

/// A system with a shell, the libraries of our programs, and nothing else.
struct CleanRoot(TempDir);

impl CleanRoot {
    fn new() -> Self {
        let root = Self(TempDir::new().unwrap());
        for folder in ["run/systemd/system", "tmp", "dev", "var/lib/rpm", "var/tmp"] {
            fs::create_dir_all(root.path(folder)).unwrap();
        }
        // A file does: scripts write there.
        fs::write(root.path("dev/null"), "").unwrap();
        for link in ["bin", "lib", "lib64", "sbin"] {
            fs::create_dir_all(root.path(&format!("usr/{link}"))).unwrap();
            std::os::unix::fs::symlink(format!("usr/{link}"), root.path(link)).unwrap();
        }
        fs::copy(
            fs::canonicalize("/bin/sh").unwrap(),
            root.path("usr/bin/sh"),
        )
        .unwrap();
        fs::write(root.path("usr/bin/systemctl"), SYSTEMCTL).unwrap();
        let all = fs::Permissions::from_mode(0o755);
        fs::set_permissions(root.path("usr/bin/systemctl"), all).unwrap();
        root.add_libraries(Path::new("/bin/sh"));
        root
    }

    fn path(&self, below: &str) -> PathBuf {
        self.0.path().join(below)
    }

    /// What the dynamic linker would load for a program.
    fn add_libraries(&self, program: &Path) {
        let listed = said(Command::new("ldd").arg(program));
        for word in listed
            .split_whitespace()
            .filter(|word| word.starts_with('/'))
        {
            let to = self.path(word.trim_start_matches('/'));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::copy(word, to).unwrap();
        }
    }

    fn rpm(&self, arguments: &[&str], packages: &[PathBuf]) -> Command {
        let mut rpm = within(LIMIT, "rpm");
        rpm.arg("--root").arg(self.0.path());
        rpm.args(["--dbpath", DATABASE])
            .args(arguments)
            .args(packages);
        rpm
    }

    /// What systemd was told since this was asked last.
    fn told_systemd(&self) -> String {
        let log = self.path("systemctl.log");
        let told = fs::read_to_string(&log).unwrap_or_default();
        let _ = fs::remove_file(log);
        told
    }

    fn everything(&self) -> BTreeSet<PathBuf> {
        let mut find = Command::new("find");
        find.arg(".").current_dir(self.0.path());
        find.args(["-path", "./var/lib/rpm", "-prune", "-o", "-print"]);
        said(&mut find).lines().map(PathBuf::from).collect()
    }
}

#[test]
fn packages_in_a_clean_root_work_keep_settings_and_leave_nothing() {
    let tools = [("rpm", "rpm"), ("chroot", "coreutils"), ("ldd", "libc-bin")];
    if !can_pack() || !have(&[], &tools) || !am_root() {
        return;
    }
    let (packages, root) = (packages(), CleanRoot::new());
    let before = root.everything();
    // Nothing is asked for but a shell and libraries, and each other.
    let asked = root
        .rpm(&["--install", "--test"], &packages)
        .output()
        .unwrap();
    let asked = told(&asked);
    for line in asked.lines().filter(|line| line.contains(" is needed by ")) {
        let is_of_every_system = ["/bin/sh ", "lib", "ld-linux", "rtld("];
        let need = line.trim_start();
        assert!(
            is_of_every_system.iter().any(|of| need.starts_with(of)),
            "{line}"
        );
    }
    let installed = root
        .rpm(&["--install", "--nodeps"], &packages)
        .output()
        .unwrap();
    assert!(installed.status.success(), "{}", told(&installed));
    let warned = String::from_utf8_lossy(&installed.stderr).into_owned();
    // Debian's says that Debian has another format.
    let warned = warned.lines().find(|line| !line.starts_with("rpm: "));
    assert_eq!(warned, None);
    assert_eq!(
        root.told_systemd(),
        "daemon-reload\n".repeat(3),
        "nothing is started"
    );
    let verify = ["--verify", "--all", "--nodeps"];
    assert_eq!(said(&mut root.rpm(&verify, &[])), "");
    for unit in UNITS {
        assert!(
            root.path("usr/lib/systemd/system").join(unit).exists(),
            "{unit}"
        );
    }
    for program in PROGRAMS {
        root.add_libraries(&root.path("usr/bin").join(program));
        let mut version = within(60, "chroot");
        version
            .arg(root.0.path())
            .arg(format!("/usr/bin/{program}"));
        let version = said(version.arg("--version"));
        assert_eq!(
            version.trim(),
            format!("{program} {}", env!("CARGO_PKG_VERSION"))
        );
    }
    let before: BTreeSet<_> = before.into_iter().chain(libraries(&root)).collect();
    // An upgrade keeps what an administrator has written, and restarts what runs.
    let setting = root.path("etc/godwit/agent.conf");
    fs::write(&setting, "--slots 7\n").unwrap();
    said(&mut root.rpm(&["--upgrade", "--force", "--nodeps"], &packages));
    assert_eq!(fs::read_to_string(&setting).unwrap(), "--slots 7\n");
    let told = root.told_systemd();
    for unit in ["godwitd", "godwit-service", "godwit-agent"] {
        assert!(
            told.contains(&format!("try-restart {unit}.service")),
            "{told}"
        );
    }
    assert!(!told.contains("disable"), "{told}");
    // A removal stops units, and leaves what an administrator has written under another name.
    let names = [
        "godwit",
        "godwit-service-common",
        "godwit-service",
        "godwit-agent",
    ];
    let erase = [&["--erase", "--nodeps"][..], &names].concat();
    said(&mut root.rpm(&erase, &[]));
    let told = root.told_systemd();
    for units in [
        "godwitd.socket godwitd.service godwitd-node.service",
        "godwit-service.service",
        "godwit-agent.service",
    ] {
        assert!(told.contains(&format!("disable --now {units}\n")), "{told}");
    }
    let after = root.everything();
    let left: Vec<_> = after.difference(&before).collect();
    let expected = ["./etc", "./etc/godwit", "./etc/godwit/agent.conf.rpmsave"];
    let shared = |path: &Path| path.starts_with("./usr") || path.starts_with("./etc/logrotate.d");
    let left: Vec<_> = left
        .into_iter()
        // Directories that every system has are no part of a package.
        .filter(|path| !(shared(path) && root.path(path.to_str().unwrap()).is_dir()))
        .collect();
    assert_eq!(left, expected.iter().map(Path::new).collect::<Vec<_>>());
    let of_ours = after.iter().filter(|path| path.ends_with("godwit"));
    assert_eq!(of_ours.count(), 1, "{after:?}");
}

/// What was copied for the programs to run.
fn libraries(root: &CleanRoot) -> Vec<PathBuf> {
    let all = root.everything().into_iter();
    let is_library = |path: &PathBuf| path.to_str().is_some_and(|path| path.contains(".so"));
    all.filter(is_library).collect()
}

/// What rpmlint finds and is as it is meant: it looks for manuals that are packed by bzip2, knows
/// older names of licences, and asks for tags of a distribution. Two packages have a unit alone,
/// and the server's unit makes the directory of its logs.
const MEANT: [&str; 11] = [
    "manpage-not-compressed",
    "no-manual-page-for-binary",
    "invalid-license",
    "no-signature",
    "no-packager-tag",
    "no-group-tag",
    "no-changelogname-tag",
    "requires-on-release",
    "only-non-binary-in-usr-lib",
    "no-binary",
    "logrotate",
];

#[test]
fn rpmlint_finds_no_fault_in_the_packages() {
    if !can_pack() || !have(&[], &[("rpmlint", "rpmlint")]) {
        return;
    }
    let linted = within(LIMIT, "rpmlint").args(packages()).output().unwrap();
    let told = told(&linted);
    let faults = told
        .lines()
        .filter(|line| line.contains(": E: ") || line.contains(": W: "));
    let faults: Vec<_> = faults
        .filter(|line| !MEANT.iter().any(|meant| line.contains(meant)))
        .collect();
    assert!(faults.is_empty(), "{faults:#?}");
    assert!(told.contains("packages and 0 specfiles checked"), "{told}");
}
