//! `ftpes://` against ordinary FTP servers with TLS.

use std::{ffi::OsString, fs, path::Path};

use godwit_lab::peers::{
    Finished,
    ftps::{FtpsServer, Kind},
    godwit,
};
use tempfile::TempDir;

use crate::support::{assert_holds, ftps_server, write_noise};

struct Peer {
    server: FtpsServer,
    local: TempDir,
}

impl Peer {
    fn start(kind: Kind, demands_resumption: bool) -> Option<Self> {
        Some(Self {
            server: ftps_server(kind, demands_resumption, &[])?,
            local: TempDir::new().expect("a directory"),
        })
    }

    fn local(&self, name: &str) -> String {
        self.local.path().join(name).display().to_string()
    }

    /// Runs `godwit`, which must end with `status`.
    #[track_caller]
    fn godwit(&self, status: i32, arguments: &[&str]) -> Finished {
        let certificate = self.server.certificate().display().to_string();
        let all = [arguments, &["--ca", &certificate]].concat();
        let password = [("GODWIT_PASSWORD", "sesame")];
        let password = password.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let finished = godwit::godwit_with(&all, password.to_vec()).expect("runs");
        let code = finished.status.code();
        let log = format!("{}--- server\n{}", finished.log(), self.server.log());
        assert_eq!(code, Some(status), "{arguments:?}\n{log}");
        finished
    }
}

fn copies_lists_and_removes(kind: Kind, demands_resumption: bool) {
    let Some(peer) = Peer::start(kind, demands_resumption) else {
        return;
    };
    let (source, back) = (peer.local("source"), peer.local("back"));
    let (url, folder) = (peer.server.url("f"), peer.server.url(""));
    for protect in ["private", "clear"] {
        for size in [0, 1, 3_000_001] {
            let bytes = write_noise(source.as_ref(), size, 7);
            peer.godwit(0, &["cp", "--protect", protect, &source, &url]);
            assert_holds(&peer.server.at("f"), &bytes);
            peer.godwit(0, &["cp", "--protect", protect, &url, &back]);
            assert_holds(back.as_ref(), &bytes);
        }
        let listed = peer.godwit(0, &["ls", "--protect", protect, &folder]);
        assert_eq!(listed.stdout_text(), "f\n", "{protect}");
        peer.godwit(0, &["rm", &url]);
        assert_eq!(fs::read_dir(peer.server.at("")).expect("lists").count(), 0);
    }
}

/// Each data connection of each session resumes.
fn resumes_on_all_data_channels_of_all_sessions(kind: Kind) {
    let Some(peer) = Peer::start(kind, true) else {
        return;
    };
    let (tree, back) = (peer.local("tree"), peer.local("back"));
    fs::create_dir(&tree).expect("makes a directory");
    let names: Vec<_> = (0..24).map(|n| n.to_string()).collect();
    for (seed, name) in (0..).zip(&names) {
        write_noise(&Path::new(&tree).join(name), 50_000, seed);
    }
    let url = peer.server.url("tree");
    let many = ["-r", "--concurrency", "4"];
    peer.godwit(0, &[&["cp"], &many[..], &[&tree, &url]].concat());
    peer.godwit(0, &[&["cp"], &many[..], &[&url, &back]].concat());
    for name in &names {
        let bytes = fs::read(Path::new(&tree).join(name)).expect("reads");
        assert_holds(&Path::new(&back).join(name), &bytes);
    }
}

#[test]
fn vsftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Vsftpd, false);
}

#[test]
fn proftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Proftpd, false);
}

#[test]
fn pure_ftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::PureFtpd, false);
}

#[test]
fn pyftpdlib_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Pyftpdlib, false);
}

#[test]
fn vsftpd_that_wants_sessions_resumed_is_served() {
    copies_lists_and_removes(Kind::Vsftpd, true);
}

#[test]
fn proftpd_that_wants_sessions_resumed_is_served() {
    copies_lists_and_removes(Kind::Proftpd, true);
}

#[test]
fn vsftpd_sees_all_data_channels_resume() {
    resumes_on_all_data_channels_of_all_sessions(Kind::Vsftpd);
}

#[test]
fn proftpd_sees_all_data_channels_resume() {
    resumes_on_all_data_channels_of_all_sessions(Kind::Proftpd);
}
