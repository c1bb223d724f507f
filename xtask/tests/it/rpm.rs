//! Packages for Enterprise Linux, units as systemd reads them, and programs for another processor.

use std::{
    env, fs,
    io::{BufRead as _, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use tempfile::TempDir;

use crate::support::{have, programs, said, skip, told, tree, within};

/// Seconds for stripping and packing programs that were built for tests.
const LIMIT: u32 = 600;

/// Names a directory with programs for aarch64, as `scripts/package-rpm.sh --target aarch64` builds
/// them.
const AARCH64: &str = "GODWIT_AARCH64";

pub(crate) const UNITS: [&str; 5] = [
    "godwitd.service",
    "godwitd.socket",
    "godwitd-node.service",
    "godwit-service.service",
    "godwit-agent.service",
];

pub(crate) fn can_pack() -> bool {
    let ours = [
        "godwit",
        "godwitd",
        "godwit-service",
        "godwit-lab",
        "godwit-dist",
    ];
    have(&ours, &[("rpmbuild", "rpm"), ("objdump", "binutils")])
}

pub(crate) fn script(out: &Path) -> Command {
    let mut script = within(LIMIT, tree().join("scripts/package-rpm.sh"));
    script
        .arg("--binaries")
        .arg(programs())
        .arg("--out")
        .arg(out);
    script
}

#[test]
fn each_file_is_in_one_package_and_settings_outlive_an_upgrade() {
    if !can_pack() {
        return;
    }
    let folder = TempDir::new().unwrap();
    said(&mut script(folder.path()));
    let processor = said(Command::new("uname").arg("-m"));
    let version = env!("CARGO_PKG_VERSION");
    let asked = |name: &str, what: &[&str]| {
        let file = format!("{name}-{version}-1.{}.rpm", processor.trim());
        said(
            Command::new("rpm")
                .args(["--query", "--package"])
                .args(what)
                .arg(folder.path().join(file)),
        )
    };
    let mut all = Vec::new();
    for (name, file, setting) in [
        ("godwit", "/usr/bin/godwitd", "/etc/godwit/godwitd.toml"),
        (
            "godwit-service-common",
            "/usr/share/man/man8/godwit-service-agent.8.gz",
            "",
        ),
        (
            "godwit-service",
            "/usr/lib/systemd/system/godwit-service.service",
            "/etc/godwit/service.toml",
        ),
        (
            "godwit-agent",
            "/usr/lib/systemd/system/godwit-agent.service",
            "/etc/godwit/agent.conf",
        ),
    ] {
        let files = asked(name, &["--list"]);
        assert!(files.lines().any(|line| line == file), "{file}: {files}");
        // This directory goes with the last of the packages that have something in it.
        let own = files.lines().filter(|line| *line != "/etc/godwit");
        all.extend(own.map(str::to_owned));
        assert!(asked(name, &["--configfiles"]).contains(setting), "{name}");
        let owners = asked(
            name,
            &["--queryformat", "[%{FILEUSERNAME}:%{FILEGROUPNAME}\n]"],
        );
        assert!(owners.lines().all(|owner| owner == "root:root"), "{owners}");
        let scripts = asked(name, &["--queryformat", "%{POSTIN}\n%{PREUN}\n%{POSTUN}"]);
        let scripts = scripts.replace("(none)", ":");
        assert_eq!(
            scripts.contains("systemctl"),
            !setting.is_empty(),
            "{name}: {scripts}"
        );
        said(Command::new("sh").args(["-n", "-c", &scripts]));
    }
    let number = all.len();
    all.sort();
    all.dedup();
    assert_eq!(all.len(), number);
    for unit in UNITS {
        assert!(
            all.contains(&format!("/usr/lib/systemd/system/{unit}")),
            "{unit}"
        );
    }
    let requires = asked("godwit-agent", &["--requires"]);
    assert!(
        requires.contains(&format!("godwit-service-common = {version}-1")),
        "{requires}"
    );
    // Enterprise Linux 8 has 239.
    assert!(!requires.contains("systemd >="), "{requires}");
}

#[test]
fn programs_that_need_a_newer_c_library_are_not_packed() {
    if !can_pack() {
        return;
    }
    let folder = TempDir::new().unwrap();
    // No Linux that Rust still supports has so old a one.
    let refused = script(folder.path())
        .args(["--libc", "2.3"])
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(4), "{}", told(&refused));
    assert!(
        told(&refused).contains("need GLIBC_2.3 at most"),
        "{}",
        told(&refused)
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn systemd_understands_every_line_of_the_units() {
    let ours = ["godwitd", "godwit-service"];
    if !have(&ours, &[("systemd-analyze", "systemd")]) {
        return;
    }
    let folder = TempDir::new().unwrap();
    let installed = format!("{}/godwit", programs().display());
    for unit in UNITS {
        let text = fs::read_to_string(tree().join("packaging").join(unit)).unwrap();
        // It looks whether the program is there.
        let text = text.replace("/usr/bin/godwit", &installed);
        fs::write(folder.path().join(unit), text).unwrap();
    }
    for unit in UNITS {
        let mut verify = within(60, "systemd-analyze");
        verify
            .args(["verify", "--man=no"])
            .arg(folder.path().join(unit));
        let verified = verify.output().unwrap();
        let told = told(&verified);
        assert!(verified.status.success() && !told.contains(unit), "{told}");
    }
}

/// Lines of units that systemd knew before or with 239, that of Enterprise Linux 8.
const KNOWN: [&str; 48] = [
    "After",
    "Backlog",
    "CapabilityBoundingSet",
    "ConditionPathExists",
    "Description",
    "Documentation",
    "DynamicUser",
    "EnvironmentFile",
    "ExecReload",
    "ExecStart",
    "ExecStartPre",
    "KeepAlive",
    "KillMode",
    "LimitCORE",
    "LimitNOFILE",
    "ListenStream",
    "LockPersonality",
    "LogsDirectory",
    "LogsDirectoryMode",
    "MemoryDenyWriteExecute",
    "NoDelay",
    "NoNewPrivileges",
    "PrivateDevices",
    "PrivateTmp",
    "ProtectControlGroups",
    "ProtectHome",
    "ProtectKernelModules",
    "ProtectKernelTunables",
    "ProtectSystem",
    "Restart",
    "RestartSec",
    "RestrictAddressFamilies",
    "RestrictNamespaces",
    "RestrictRealtime",
    "RuntimeDirectory",
    "RuntimeDirectoryMode",
    "StateDirectory",
    "StateDirectoryMode",
    "SystemCallArchitectures",
    "SystemCallErrorNumber",
    "SystemCallFilter",
    "TasksMax",
    "TimeoutStopSec",
    "Type",
    "UMask",
    "User",
    "WantedBy",
    "Wants",
];

/// Newer ones, which an older systemd passes over with a warning: what they forbid is then not
/// forbidden, and nothing else changes.
const HARDENING: [(&str, u32); 5] = [
    ("ProtectHostname", 242),
    ("RestrictSUIDSGID", 242),
    ("ProtectKernelLogs", 244),
    ("ProtectClock", 245),
    ("ProtectProc", 247),
];

#[test]
fn units_mean_the_same_to_the_systemd_of_enterprise_linux_8() {
    for unit in UNITS {
        let text = fs::read_to_string(tree().join("packaging").join(unit)).unwrap();
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with(['#', '['])) {
            let (key, value) = line.split_once('=').unwrap();
            if HARDENING.iter().any(|(name, _)| *name == key) {
                continue;
            }
            match key {
                // It takes `exec`, of 240, for `simple`: a start whose program is missing counts as
                // a start.
                "Type" => assert!(["exec", "notify"].contains(&value), "{unit}: {line}"),
                _ => assert!(KNOWN.contains(&key), "{unit}: 239 does not know {line}"),
            }
            // Of 250 and newer are %d and others, which stay as they are.
            let parts = value.split('%').skip(1);
            let specifiers: Vec<_> = parts.filter_map(|part| part.chars().next()).collect();
            assert!(
                specifiers.iter().all(|c| ['S', 't', 'n', '%'].contains(c)),
                "{unit}: {line}"
            );
            // Signs of 231 and before that precede a command.
            let is_plain = value.starts_with(['/', '+']) || !key.starts_with("Exec");
            assert!(is_plain, "{unit}: {line}");
        }
    }
}

/// Ends with the test.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_client_for_aarch64_talks_to_a_server() {
    let Some(folder) = env::var_os(AARCH64).map(PathBuf::from) else {
        return skip(&format!(
            "{AARCH64} names no directory with programs for aarch64"
        ));
    };
    let tools = [
        ("qemu-aarch64-static", "qemu-user-static"),
        ("mmdebstrap", "mmdebstrap"),
    ];
    if !have(&["godwitd"], &tools) {
        return;
    }
    let place = TempDir::new().unwrap();
    let at = |name: &str| place.path().join(name);
    // The C library and libgcc of that processor, as Debian has them.
    let system = at("aarch64");
    let mut libraries = within(LIMIT, "mmdebstrap");
    libraries.args([
        "--quiet",
        "--mode=root",
        "--variant=extract",
        "--architectures=arm64",
    ]);
    libraries
        .args(["--include=libc6,libgcc-s1", "bookworm"])
        .arg(&system);
    said(&mut libraries);
    let client = || {
        let mut client = within(120, "qemu-aarch64-static");
        client.arg("-L").arg(&system).arg(folder.join("godwit"));
        client.env("XDG_STATE_HOME", at("state"));
        client
    };
    let version = said(client().arg("--version"));
    assert_eq!(
        version.trim(),
        format!("godwit {}", env!("CARGO_PKG_VERSION"))
    );
    fs::create_dir(at("served")).unwrap();
    fs::write(at("served/file"), [7; 12345]).unwrap();
    let mut server = Command::new(programs().join("godwitd"));
    server.args(["--anonymous", "rw", "--listen", "127.0.0.1:0", "--root"]);
    server
        .arg(at("served"))
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let mut server = Running(server.spawn().unwrap());
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap();
    // No copies and lists: the emulator answers TCP_INFO, which their movers ask for, with four
    // bytes.
    let url = |path: &str| format!("ftp://{address}/{path}");
    let told = said(client().args(["stat", &url("file")]));
    assert!(told.contains("12345"), "{told}");
    said(client().args(["mkdir", &url("made")]));
    said(client().args(["mv", &url("file"), &url("made/file")]));
    assert!(at("served/made/file").exists());
}
