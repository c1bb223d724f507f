//! The Debian package and the tarball: their contents, and that they work on a clean system as the
//! book says.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::LazyLock,
};

use tempfile::TempDir;

use crate::{
    page::{Act, read},
    stage,
    support::{am_root, have, programs, said, skip, told, tree, within},
};

/// Seconds for stripping and packing programs that were built for tests, and for fetching a small
/// system.
const LIMIT: u32 = 600;

/// The packages.
const DEBS: [&str; 4] = [
    "godwit",
    "godwit-service-common",
    "godwit-service",
    "godwit-agent",
];

/// Names a directory with a package and a tarball that were made before, to be tried in place of
/// what is packed here.
const PACKAGES: &str = "GODWIT_PACKAGES";

/// What was packed of the programs that lie beside the tests.
static PACKED: LazyLock<TempDir> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    if let Some(made) = std::env::var_os(PACKAGES) {
        let mut copy = Command::new("cp");
        said(
            copy.arg("-R")
                .arg(Path::new(&made).join("."))
                .arg(folder.path()),
        );
        return folder;
    }
    let mut script = within(LIMIT, tree().join("scripts/package.sh"));
    script.arg("--binaries").arg(programs());
    said(script.arg("--out").arg(folder.path()));
    folder
});

/// Where the packages are.
pub(crate) fn packed_folder() -> &'static Path {
    PACKED.path()
}

/// A package by the beginning of its file's name.
fn packed_deb(name: &str) -> PathBuf {
    packed(&format!("{name}_"), ".deb")
}

fn packed(name: &str, extension: &str) -> PathBuf {
    let mut files = fs::read_dir(PACKED.path()).unwrap();
    let file = files.find_map(|file| {
        let path = file.unwrap().path();
        let file = path.file_name()?.to_str()?;
        (file.starts_with(name) && file.ends_with(extension)).then_some(path)
    });
    file.unwrap()
}

pub(crate) fn can_pack() -> bool {
    let ours = [
        "godwit",
        "godwitd",
        "godwit-service",
        "godwit-lab",
        "godwit-dist",
    ];
    let tools = [("dpkg-deb", "dpkg"), ("dpkg-shlibdeps", "dpkg-dev")];
    have(&ours, &tools)
}

#[test]
fn both_hold_programs_manuals_units_and_settings() {
    if !can_pack() {
        return;
    }
    let debs = DEBS.map(|name| {
        let contents = said(
            Command::new("dpkg-deb")
                .arg("--contents")
                .arg(packed_deb(name)),
        );
        (name, contents)
    });
    let deb = debs.iter().map(|(_, contents)| contents.as_str());
    let deb = deb.collect::<String>();
    let tar = said(
        Command::new("tar")
            .arg("-tvzf")
            .arg(packed("", "-linux.tar.gz")),
    );
    for (path, in_tar) in [
        ("./usr/bin/godwit", "bin/godwit"),
        ("./usr/bin/godwitd", "bin/godwitd"),
        ("./usr/bin/godwit-service", "bin/godwit-service"),
        ("./usr/bin/godwit-lab", "bin/godwit-lab"),
        (
            "./usr/share/man/man1/godwit-cp.1.gz",
            "share/man/man1/godwit-cp.1.gz",
        ),
        (
            "./usr/share/man/man8/godwitd.8.gz",
            "share/man/man8/godwitd.8.gz",
        ),
        (
            "./usr/share/bash-completion/completions/godwit",
            "share/bash-completion/completions/godwit",
        ),
        (
            "./lib/systemd/system/godwitd.service",
            "lib/systemd/system/godwitd.service",
        ),
        (
            "./lib/systemd/system/godwitd.socket",
            "lib/systemd/system/godwitd.socket",
        ),
        (
            "./lib/systemd/system/godwitd-node.service",
            "lib/systemd/system/godwitd-node.service",
        ),
        (
            "./lib/systemd/system/godwit-service.service",
            "lib/systemd/system/godwit-service.service",
        ),
        (
            "./lib/systemd/system/godwit-agent.service",
            "lib/systemd/system/godwit-agent.service",
        ),
        ("./etc/godwit/service.toml", "etc/godwit/service.toml"),
        ("./etc/godwit/agent.conf", "etc/godwit/agent.conf"),
        ("./etc/godwit/godwitd.toml", "etc/godwit/godwitd.toml"),
        ("./etc/logrotate.d/godwitd", "etc/logrotate.d/godwitd"),
        (
            "./usr/share/doc/godwit/examples/godwit.json",
            "share/doc/godwit/examples/godwit.json",
        ),
        ("./usr/share/doc/godwit/copyright", "LICENSE"),
        (
            "./usr/share/doc/godwit/THIRD-PARTY.txt",
            "share/doc/godwit/THIRD-PARTY.txt",
        ),
    ] {
        assert!(
            deb.lines().any(|line| line.ends_with(path)),
            "{path}: {deb}"
        );
        let in_tar = format!("-linux/{in_tar}");
        assert!(
            tar.lines().any(|line| line.ends_with(&in_tar)),
            "{in_tar}: {tar}"
        );
    }
    let odd = |line: &&str| !line.contains(" root/root ");
    assert_eq!(deb.lines().find(odd), None);
    for (name, files) in [
        (
            "godwit",
            &["usr/bin/godwit", "systemd/system/godwitd.socket"][..],
        ),
        (
            "godwit-service-common",
            &["usr/bin/godwit-service", "man8/godwit-service-agent.8.gz"],
        ),
        (
            "godwit-service",
            &["etc/godwit/service.toml", "system/godwit-service.service"],
        ),
        (
            "godwit-agent",
            &["etc/godwit/agent.conf", "system/godwit-agent.service"],
        ),
    ] {
        for file in files {
            let holds = |(_, contents): &&(&str, String)| {
                contents
                    .lines()
                    .any(|line| line.ends_with(&format!("/{file}")))
            };
            let holding: Vec<_> = debs.iter().filter(holds).map(|(name, _)| *name).collect();
            assert_eq!(holding, [name], "{file}");
        }
    }
    let mut field = Command::new("dpkg-deb");
    let control = said(field.arg("--field").arg(packed_deb("godwit")));
    let depends = control
        .lines()
        .find(|line| line.starts_with("Depends: "))
        .unwrap();
    assert!(
        depends.contains("libc6 (>= ") && depends.contains("libssl3"),
        "{depends}"
    );
}

#[test]
fn every_log_of_the_settings_is_rotated() {
    let read = |name: &str| fs::read_to_string(tree().join("packaging").join(name)).unwrap();
    let (settings, rotation) = (read("godwitd.toml"), read("logrotate"));
    let (files, _) = rotation.split_once('{').unwrap();
    let rotated: Vec<&str> = files.split_whitespace().collect();
    // What stands behind `#` is there to be switched on.
    let logs = settings.lines().filter(|line| line.contains("-log = "));
    let logs: Vec<&str> = logs.collect();
    assert_eq!(logs.len(), rotated.len(), "{logs:?} {rotated:?}");
    for log in logs {
        let file = log.split('"').nth(1).unwrap();
        assert!(rotated.contains(&file), "{file}");
    }
}

#[test]
fn the_service_accepts_its_settings_and_the_flags_of_its_units() {
    if !have(&["godwit-service"], &[]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let read = |name: &str| fs::read_to_string(tree().join("packaging").join(name)).unwrap();
    let program = programs().join("godwit-service");
    // What stands behind `#` is there to be switched on.
    let is_setting = |line: &&str| line.contains(" = ") || line.starts_with('[');
    let text = read("service.toml");
    let lines = text.lines().map(|line| line.trim_start_matches('#'));
    let settings: Vec<&str> = lines.filter(is_setting).collect();
    assert!(settings.len() > 8, "{settings:?}");
    let settings = settings.join("\n").replace("0.0.0.0", "127.0.0.1");
    fs::write(at("service.toml"), settings).unwrap();
    let mut migrate = within(60, &program);
    migrate
        .arg("migrate")
        .arg("--config")
        .arg(at("service.toml"));
    let database = format!("sqlite:{}?mode=rwc", at("service.db").display());
    migrate.args(["--database", &database]);
    said(migrate.arg("--key-file").arg(at("key")));
    for unit in ["godwit-service.service", "godwit-agent.service"] {
        let text = read(unit);
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("ExecStart=/usr/bin/godwit-service"));
        // The help comes where all flags before it are known.
        let script = format!(". \"$2\"; exec \"$1\" {} --help", line.unwrap());
        let mut shell = within(60, "sh");
        shell.args(["-euc", &script, "-"]).arg(&program);
        said(shell.arg(tree().join("packaging/agent.conf")));
    }
}

/// Why there is no clean system.
#[derive(Debug)]
pub(crate) enum Unmade {
    /// There is no network here, or not the right to it.
    Outside(String),
    Failed(String),
}

/// What is said where no packages can be fetched, and where file systems cannot be made.
const OUTSIDE: [&str; 7] = [
    "Temporary failure resolving",
    "Could not resolve",
    "Could not connect",
    "Connection timed out",
    "Connection failed",
    "Network is unreachable",
    "Operation not permitted",
];

/// A small Debian in `root`, from the mirrors of this system or from `mirror`.
fn clean_system(root: &Path, mirror: &[&str]) -> Result<(), Unmade> {
    let mut command = within(LIMIT, "mmdebstrap");
    // Without --quiet apt's own words are among those that are told.
    command.args(["--variant=apt", "--skip=cleanup/apt/lists"]);
    command.args([
        "--aptopt=APT::Get::Assume-Yes \"true\"",
        "--aptopt=APT::Install-Recommends \"false\"",
    ]);
    command.arg("bookworm").arg(root).args(mirror);
    let made = command.output().unwrap();
    if made.status.success() {
        return Ok(());
    }
    let told = told(&made);
    Err(match OUTSIDE.iter().any(|words| told.contains(words)) {
        true => Unmade::Outside(told),
        false => Unmade::Failed(told),
    })
}

/// Made once; who changes it copies it.
static CLEAN: LazyLock<(TempDir, Result<PathBuf, Unmade>)> = LazyLock::new(|| {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    let made = clean_system(&root, &[]).map(|()| root);
    (folder, made)
});

/// A small Debian, to be read only.
pub(crate) fn clean_root() -> Result<&'static Path, &'static Unmade> {
    CLEAN.1.as_deref()
}

/// A copy of it, or a skip that is told.
fn copied_root(folder: &TempDir) -> Option<PathBuf> {
    let clean = match clean_root() {
        Ok(clean) => clean,
        Err(Unmade::Outside(why)) => {
            skip(why);
            return None;
        }
        Err(Unmade::Failed(why)) => panic!("{why}"),
    };
    let root = folder.path().join("root");
    said(Command::new("cp").arg("-a").arg(clean).arg(&root));
    Some(root)
}

/// Runs a command in `root` as its administrator would.
fn in_root(root: &Path, script: &str) -> String {
    let mut chroot = within(LIMIT, "chroot");
    chroot
        .arg(root)
        .args(["env", "-i", "HOME=/root", "DEBIAN_FRONTEND=noninteractive"]);
    chroot.args(["PATH=/usr/sbin:/usr/bin:/sbin:/bin", "bash", "-ec"]);
    said(chroot.arg(format!("cd && {script}")))
}

#[test]
fn an_agent_is_installed_alone_and_purged_but_for_what_its_operator_has_put_there() {
    if !can_pack() || !am_root() || !have(&[], &[("mmdebstrap", "mmdebstrap")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let Some(root) = copied_root(&folder) else {
        return;
    };
    for name in ["godwit-service-common", "godwit-agent"] {
        let package = packed_deb(name);
        fs::copy(
            &package,
            root.join("root").join(package.file_name().unwrap()),
        )
        .unwrap();
    }
    in_root(&root, "apt install ./*.deb && godwit-service agent --help");
    // systemd makes these when it starts the unit.
    let state = root.join("var/lib/private/godwit-agent");
    fs::create_dir_all(&state).unwrap();
    fs::write(root.join("etc/godwit/agent-token"), "hush").unwrap();
    assert!(!root.join("etc/godwit/service.toml").exists());
    in_root(&root, "apt remove godwit-agent");
    assert!(state.exists() && root.join("etc/godwit/agent.conf").exists());
    in_root(&root, "apt purge godwit-agent");
    assert!(!state.exists() && !root.join("etc/godwit/agent.conf").exists());
    assert!(root.join("etc/godwit/agent-token").exists());
}

#[test]
fn a_clean_system_is_done_without_for_want_of_a_network_alone() {
    if !am_root() || !have(&[], &[("mmdebstrap", "mmdebstrap")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let at = |name: &str| folder.path().join(name);
    let nowhere = clean_system(&at("a"), &["http://mirror.invalid/debian"]);
    assert!(matches!(nowhere, Err(Unmade::Outside(_))), "{nowhere:?}");
    let empty = at("empty");
    fs::create_dir(&empty).unwrap();
    let mirror = format!("deb [trusted=yes] copy://{} bookworm main", empty.display());
    let nothing = clean_system(&at("b"), &[&mirror]);
    assert!(matches!(nothing, Err(Unmade::Failed(_))), "{nothing:?}");
}

#[test]
fn a_clean_system_installs_the_package_and_starts_by_the_book() {
    if !can_pack() || !stage::is_possible() || !have(&[], &[("mmdebstrap", "mmdebstrap")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let Some(root) = copied_root(&folder) else {
        return;
    };
    let home = root.join("root");
    let package = packed_deb("godwit");
    fs::copy(&package, home.join(package.file_name().unwrap())).unwrap();
    let start = tree().join("docs/start.md");
    let acts = read(&start);
    let installation = acts.iter().find_map(|act| match act {
        Act::Block(block) if block.is("package") => Some(block),
        _ => None,
    });
    for command in &installation.unwrap().commands {
        in_root(&root, &command.text);
    }
    stage::play(&start, Some(&root));
}
