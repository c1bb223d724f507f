//! Trees on ordinary FTP servers, whose listings differ: vsftpd has no MLSD, and Pure-FTPd and
//! ProFTPD report of a symbolic link only that it is one.

use std::{
    ffi::OsString, fs, os::unix::fs::PermissionsExt as _, os::unix::fs::symlink, path::Path,
};

use godwit_lab::peers::{
    Finished,
    ftps::{FtpsServer, Kind},
    godwit,
};
use tempfile::TempDir;

use crate::support::ftps_server;

struct Peer {
    server: FtpsServer,
    local: TempDir,
}

impl Peer {
    fn start(kind: Kind) -> Option<Self> {
        Some(Self {
            server: ftps_server(kind, false, &[])?,
            local: TempDir::new().expect("a directory"),
        })
    }

    /// In clear.
    fn url(&self, name: &str) -> String {
        self.server.url(name).replace("ftpes://", "ftp://")
    }

    fn local(&self, name: &str) -> String {
        self.local.path().join(name).display().to_string()
    }

    #[track_caller]
    fn godwit(&self, status: i32, arguments: &[&str]) -> Finished {
        let password = vec![(OsString::from("GODWIT_PASSWORD"), OsString::from("sesame"))];
        let finished = godwit::godwit_with(arguments, password).expect("runs");
        let code = finished.status.code();
        let log = format!("{}--- server\n{}", finished.log(), self.server.log());
        assert_eq!(code, Some(status), "{arguments:?}\n{log}");
        finished
    }
}

const FILES: [&str; 6] = [
    "plain",
    ".hidden",
    "two  blanks",
    " lead",
    "a -> b",
    "sub/f",
];

fn write_files(top: &Path) {
    fs::create_dir_all(top.join("sub")).expect("a directory");
    fs::create_dir(top.join("empty")).expect("a directory");
    for name in FILES {
        fs::write(top.join(name), name).expect("a file");
    }
}

#[track_caller]
fn assert_has_files(top: &Path) {
    for name in FILES {
        let content = fs::read_to_string(top.join(name));
        assert_eq!(content.ok().as_deref(), Some(name));
    }
    assert!(top.join("empty").is_dir());
}

fn names(top: &Path) -> Vec<String> {
    let entries = fs::read_dir(top).expect("lists");
    let names = entries.map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<_> = names
        .map(|name| name.to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn trees_become_the_same(kind: Kind) {
    let Some(peer) = Peer::start(kind) else {
        return;
    };
    // Down, with links: one of them leads back.
    let tree = peer.server.at("tree");
    write_files(&tree);
    symlink("plain", tree.join("file link")).expect("a link");
    symlink("sub", tree.join("link")).expect("a link");
    symlink("..", tree.join("sub/up")).expect("a link");
    // ProFTPD calls it a file.
    if kind != Kind::Proftpd {
        rustix::fs::mkfifoat(rustix::fs::CWD, tree.join("pipe"), rustix::fs::Mode::RUSR)
            .expect("a pipe");
    }
    let down = peer.local("down");
    fs::create_dir(&down).expect("a directory");
    fs::write(Path::new(&down).join("extra"), "x").expect("a file");
    let url = peer.url("tree/");
    let output = peer
        .godwit(0, &["sync", "--delete", &url, &down])
        .stderr_text();
    assert!(output.contains("1 removed"), "{output}");
    assert!(
        output.contains("leads back to a directory above it"),
        "{output}"
    );
    let down = Path::new(&down);
    assert_has_files(down);
    assert_eq!(
        fs::read(down.join("file link")).expect("followed"),
        b"plain"
    );
    assert_eq!(names(&down.join("link")), ["f"]);
    assert_eq!(names(&down.join("sub")), ["f"]);
    assert!(!down.join("pipe").exists() && !down.join("extra").exists());
    let again = peer.godwit(0, &["sync", "--delete", &url, &peer.local("down")]);
    assert!(again.stderr_text().contains("0 files"), "{}", again.log());
    peer.godwit(0, &["cp", "-r", &url, &peer.local("copy")]);
    assert_has_files(&peer.local.path().join("copy"));
    // Up.
    let from = peer.local.path().join("from");
    write_files(&from);
    let (from, up) = (peer.local("from/"), peer.url("up"));
    peer.godwit(0, &["sync", &from, &up]);
    assert_has_files(&peer.server.at("up"));
    let extra = peer.server.at("up/.extra");
    fs::write(&extra, "x").expect("a file");
    peer.godwit(0, &["sync", "--delete", &from, &up]);
    assert!(!extra.exists());
    assert_has_files(&peer.server.at("up"));
}

#[test]
fn trees_of_vsftpd_become_the_same_both_ways() {
    trees_become_the_same(Kind::Vsftpd);
}

#[test]
fn trees_of_proftpd_become_the_same_both_ways() {
    trees_become_the_same(Kind::Proftpd);
}

#[test]
fn trees_of_pure_ftpd_become_the_same_both_ways() {
    trees_become_the_same(Kind::PureFtpd);
}

#[test]
fn a_directory_that_may_not_be_read_is_named_and_nothing_is_removed() {
    let Some(peer) = Peer::start(Kind::PureFtpd) else {
        return;
    };
    write_files(&peer.server.at("tree"));
    let closed = peer.server.at("tree/closed");
    fs::create_dir(&closed).expect("a directory");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).expect("a mode");
    let (down, url) = (peer.local("down"), peer.url("tree/"));
    fs::create_dir(&down).expect("a directory");
    let extra = Path::new(&down).join("extra");
    fs::write(&extra, "x").expect("a file");
    for command in [&["cp", "-r"][..], &["sync", "--delete"]] {
        let output = peer.godwit(1, &[command, &[&url, &down]].concat());
        let output = output.stderr_text();
        assert!(output.contains("/tree/closed"), "{output}");
        assert!(extra.exists());
        assert_has_files(Path::new(&down));
    }
}

#[test]
fn removing_a_tree_does_not_follow_links() {
    for kind in [Kind::PureFtpd, Kind::Proftpd] {
        let Some(peer) = Peer::start(kind) else {
            continue;
        };
        write_files(&peer.server.at("aside"));
        let tree = peer.server.at("tree");
        fs::create_dir(&tree).expect("a directory");
        symlink("../aside", tree.join("link")).expect("a link");
        if let Some(owner) = peer.server.owner() {
            std::os::unix::fs::chown(&tree, Some(owner), Some(owner)).expect("an owner");
        }
        peer.godwit(0, &["rm", "-r", &peer.url("tree")]);
        assert!(!tree.exists());
        assert_has_files(&peer.server.at("aside"));
    }
}
