//! Both programs with every kind of bad credential: each is refused with its own message, and a
//! good credential in its place is accepted.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use godwit_gsi::cert::{Credential, files};
use godwit_lab::peers::godwit::{Godwitd, godwit_with};
use openssl::ssl::SslVersion;
use openssl::symm::Cipher;
use tempfile::TempDir;

use crate::anybody::{Anybody, show_to_server};
use crate::bad::{Case, HOST, Shown, Whose, cases};
use crate::grid::{Grid, sent};
use crate::pki::{Blueprint, DAY, HOUR, ec_key};
use crate::support::{Need, am_root, have};

/// Every kind of bad credential on the wire, in turn by one version of TLS and the other.
fn with_versions(cases: Vec<Case>) -> impl Iterator<Item = (Case, SslVersion)> {
    let versions = [SslVersion::TLS1_3, SslVersion::TLS1_2];
    assert!(cases.len() >= 40, "{} cases", cases.len());
    cases.into_iter().zip(versions.into_iter().cycle())
}

#[test]
fn the_server_refuses_every_bad_credential_and_says_why() {
    if !have(&[Need::Godwitd]) {
        return;
    }
    let now = SystemTime::now();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
    let folder = TempDir::new().expect("a folder");
    let path = |name: &str| folder.path().join(name);
    for name in ["root", "trusted"] {
        fs::create_dir(path(name)).expect("a folder");
    }
    write(&path("host"), &grid.user.to_pem().expect("pem"));
    let server = Godwitd::serving(path("root"))
        .anonymous("off")
        .arg("--cert")
        .arg(path("host"))
        .arg("--trusted-certs")
        .arg(path("trusted"))
        .arg("--allow-subject")
        .arg("/O=Grid/CN=Jo")
        // We are strangers on purpose, and are not to be kept waiting for it.
        .arg("--login-failures")
        .arg("1000");
    let server = server.start().expect("godwitd starts");
    for (case, version) in with_versions(cases(Whose::User, now)) {
        copy_files(case.bad.grid.path(), &path("trusted"));
        let refused = show_to_server(server.addr(), &case.bad, version);
        let said = refused.expect_err(case.name);
        assert!(said.contains("535"), "{}: {said}", case.name);
        assert!(said.contains(case.message), "{}: {said}", case.name);
        copy_files(case.good.grid.path(), &path("trusted"));
        let accepted = show_to_server(server.addr(), &case.good, version);
        accepted.unwrap_or_else(|said| panic!("good {}: {said}", case.name));
    }
}

#[test]
fn the_client_refuses_every_bad_credential_and_says_why() {
    if !have(&[Need::Godwit]) {
        return;
    }
    let now = SystemTime::now();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
    let folder = TempDir::new().expect("a folder");
    let proxy = folder.path().join("proxy");
    write(&proxy, &grid.user.to_pem().expect("pem"));
    let server = Anybody::start();
    assert_eq!(server.address.ip().to_string(), HOST);
    let url = format!("gsiftp://{}/new", server.address);
    let run = |trusted: &Path| {
        let variables = [("X509_USER_PROXY", &*proxy), ("X509_CERT_DIR", trusted)];
        let variables = variables.map(|(name, path)| (name.into(), path.into()));
        let finished = godwit_with(["mkdir", "--protect", "clear", &url], variables);
        let finished = finished.expect("runs");
        (finished.status.code(), finished.stderr_text())
    };
    for (case, version) in with_versions(cases(Whose::Host, now)) {
        server.show(&case.bad, version);
        let (status, said) = run(case.bad.grid.path());
        assert_eq!(status, Some(3), "{}: {said}", case.name);
        assert!(said.contains("identity of the server"), "{said}");
        assert!(said.contains(case.message), "{}: {said}", case.name);
        server.show(&case.good, version);
        let (status, said) = run(case.good.grid.path());
        assert_eq!(status, Some(0), "good {}: {said}", case.name);
    }
}

/// What can be wrong with a file of one's own, and what both programs say of it.
struct BadFile {
    name: &'static str,
    message: &'static str,
    spoil: fn(&Good, &Path),
}

/// A user's and a host's in one, so that both programs take it.
struct Good {
    grid: Grid,
    credential: Credential,
    certificate: Vec<u8>,
    key: Vec<u8>,
}

impl Good {
    fn pem(&self) -> Vec<u8> {
        [&self.certificate[..], &self.key].concat()
    }

    fn with(&self, change: impl Fn(Blueprint) -> Blueprint) -> Vec<u8> {
        let user = Blueprint::user("/O=Grid/CN=Jo").at(SystemTime::now());
        let changed = change(user).issued_by(&self.grid.authority);
        changed.to_pem().expect("pem")
    }
}

const BAD_FILES: &[BadFile] = &[
    BadFile {
        name: "open to everybody",
        message: "mode 0644 lets others at the key: run `chmod 600",
        spoil: |_, path| mode(path, 0o644),
    },
    BadFile {
        name: "open to the group",
        message: "mode 0640 lets others at the key: run `chmod 600",
        spoil: |_, path| mode(path, 0o640),
    },
    BadFile {
        name: "a directory",
        message: "not a regular file",
        spoil: |_, path| {
            fs::remove_file(path).expect("removes");
            fs::create_dir(path).expect("a directory");
        },
    },
    BadFile {
        name: "overlong",
        message: "larger than 1048576 bytes",
        spoil: |_, path| write(path, &vec![b'\n'; (1 << 20) + 1]),
    },
    BadFile {
        name: "empty",
        message: "no certificate found",
        spoil: |_, path| write(path, b""),
    },
    BadFile {
        name: "without a certificate",
        message: "no certificate found",
        spoil: |good, path| write(path, &good.key),
    },
    BadFile {
        name: "without a key",
        message: "no private key found",
        spoil: |good, path| write(path, &good.certificate),
    },
    BadFile {
        name: "a certificate cut short",
        message: "a certificate cannot be read: the file may be cut short",
        spoil: |good, path| {
            let half = &good.certificate[..good.certificate.len() / 2];
            write(path, &[&good.key, half].concat());
        },
    },
    BadFile {
        name: "a key cut short",
        message: "cannot be read: the file may be cut short",
        spoil: |good, path| {
            let half = &good.key[..good.key.len() / 2];
            write(path, &[&good.certificate, half].concat());
        },
    },
    BadFile {
        name: "an encrypted key",
        message: "the private key is encrypted, and the passphrase is missing or wrong",
        spoil: |good, path| {
            let key = good.credential.key();
            let sealed = key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"sesame");
            write(path, &[&good.certificate, &*sealed.expect("pem")].concat());
        },
    },
    BadFile {
        name: "another's key",
        message: "the private key does not belong to the certificate of /O=Grid/CN=Jo",
        spoil: |good, path| {
            let other = ec_key().private_key_to_pem_pkcs8().expect("pem");
            write(path, &[&good.certificate, &*other].concat());
        },
    },
    BadFile {
        name: "a chain without end",
        message: "more than 32 certificates in one chain",
        spoil: |good, path| write(path, &[good.pem(), good.certificate.repeat(32)].concat()),
    },
    BadFile {
        name: "expired",
        message: "expired 3 h ago: ask its CA for a new one",
        spoil: |good, path| write(path, &good.with(|b| b.valid(-DAY, -3 * HOUR - 60))),
    },
    BadFile {
        name: "of tomorrow",
        message: "is valid only in 23 h: the clock of this machine may be wrong",
        spoil: |good, path| write(path, &good.with(|b| b.valid(DAY - 60, 2 * DAY))),
    },
    BadFile {
        name: "another user's",
        message: "belongs to user 65534, not to user 0 who would use it",
        spoil: |_, path| std::os::unix::fs::chown(path, Some(65_534), None).expect("gives away"),
    },
];

#[test]
fn neither_program_uses_a_bad_file_of_its_own() {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(SystemTime::now()));
    let jo = Blueprint::host("/O=Grid/CN=Jo", &[HOST]).at(SystemTime::now());
    let credential = jo.issued_by(&grid.authority);
    let certificate = credential.certificate().as_x509().to_pem();
    let key = credential.key().private_key_to_pem_pkcs8();
    let good = Good {
        certificate: certificate.expect("pem"),
        key: key.expect("pem"),
        credential,
        grid,
    };
    let folder = TempDir::new().expect("a folder");
    let root = folder.path().join("root");
    fs::create_dir(&root).expect("a folder");
    let path = folder.path().join("credential");
    for BadFile {
        name,
        message,
        spoil,
    } in BAD_FILES
    {
        if *name == "another user's" && !am_root("only root can give a file away") {
            continue;
        }
        write(&path, &good.pem());
        let server = || {
            let config = Godwitd::serving(&root).anonymous("off");
            let (cert, trusted) = (path.clone(), good.grid.path().to_owned());
            let config = config.arg("--cert").arg(cert);
            let config = config.arg("--trusted-certs").arg(trusted);
            config.arg("--allow-subject").arg("/O=Grid/CN=Jo").start()
        };
        let running = server().unwrap_or_else(|error| panic!("good for {name}: {error}"));
        let url = format!("gsiftp://{}/", running.addr());
        let client = || {
            let variables = [
                ("X509_USER_PROXY", path.clone()),
                ("X509_CERT_DIR", good.grid.path().to_owned()),
            ];
            let variables = variables.map(|(name, path)| (name.into(), path.into()));
            let finished = godwit_with(["ls", "--protect", "clear", &url], variables);
            let finished = finished.expect("runs");
            (finished.status.code(), finished.stderr_text())
        };
        let (status, said) = client();
        assert_eq!(status, Some(0), "good for {name}: {said}");
        spoil(&good, &path);
        let (status, said) = client();
        assert_eq!(status, Some(3), "{name}: {said}");
        assert!(said.contains(message), "{name}: {said}");
        let refused = server().err().unwrap_or_else(|| panic!("{name} does"));
        let said = refused.to_string();
        assert!(said.contains(message), "{name}: {said}");
    }
}

/// What is not there at all: where it was looked for, and how to get it.
#[test]
fn a_missing_file_is_named_with_its_remedy() {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    let folder = TempDir::new().expect("a folder");
    let nowhere = folder.path().join("nowhere");
    let refused = Godwitd::serving(folder.path())
        .anonymous("off")
        .arg("--cert")
        .arg(&nowhere)
        .arg("--trusted-certs")
        .arg(folder.path())
        .arg("--allow-subject")
        .arg("/O=Grid/CN=Jo")
        .start();
    let said = refused.expect_err("does not start").to_string();
    let expected = format!("{}: no such file: set X509_USER_CERT", nowhere.display());
    assert!(said.contains(&expected), "{said}");
    let variables = [
        ("X509_USER_PROXY", nowhere.clone()),
        ("X509_USER_CERT", nowhere.clone()),
        ("X509_USER_KEY", nowhere.clone()),
        ("HOME", nowhere.clone()),
        ("X509_CERT_DIR", folder.path().to_owned()),
    ];
    let server = Anybody::start();
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(SystemTime::now()));
    let shown = Shown {
        sent: sent(&grid.user),
        key: grid.user.key().clone(),
        grid,
    };
    server.show(&shown, SslVersion::TLS1_3);
    let url = format!("gsiftp://{}/", server.address);
    let variables = variables.map(|(name, path)| (name.into(), path.into()));
    let finished = godwit_with(["ls", &url], variables).expect("runs");
    let said = finished.stderr_text();
    assert_eq!(finished.status.code(), Some(3), "{said}");
    let expected = format!("{}: no proxy", nowhere.display());
    assert!(
        said.contains(&expected) && said.contains("run `godwit proxy init`"),
        "{said}"
    );
}

fn mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

/// A private file, whatever was there.
fn write(path: &Path, content: &[u8]) {
    if path.is_dir() {
        fs::remove_dir(path).expect("removes");
    }
    files::write_private(path, content).expect("writes");
}

/// The files of one directory and no others: the server keeps its eyes on the directory.
fn copy_files(from: &Path, to: &Path) {
    let entries = |folder: &Path| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).expect("a folder");
        entries
            .map(|entry| entry.expect("an entry").path())
            .collect()
    };
    for path in entries(to) {
        fs::remove_file(path).expect("removes");
    }
    for path in entries(from) {
        fs::copy(&path, to.join(path.file_name().expect("a name"))).expect("copies");
    }
}
