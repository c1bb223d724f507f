//! `ftpes://` against ordinary FTP servers with TLS.

use std::{ffi::OsString, fs};

use godwit_lab::peers::{
    Finished,
    ftps::{FtpsServer, Kind},
    godwit,
};
use tempfile::TempDir;

use crate::support::{Need, am_root, assert_holds, have, write_noise};

struct Peer {
    server: FtpsServer,
    local: TempDir,
}

impl Peer {
    fn start(kind: Kind, demands_resumption: bool) -> Option<Self> {
        let need = match kind {
            Kind::Vsftpd => Need::Vsftpd,
            Kind::Proftpd => Need::Proftpd,
            Kind::PureFtpd => Need::PureFtpd,
            Kind::Pyftpdlib => Need::Pyftpdlib,
        };
        let may = matches!(kind, Kind::Vsftpd | Kind::Pyftpdlib)
            || am_root("the server becomes its users");
        (may && have(&[Need::Godwit, need])).then(|| Self {
            server: FtpsServer::start(kind, demands_resumption).expect("it starts"),
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
        let told = format!("{}--- server\n{}", finished.log(), self.server.log());
        assert_eq!(code, Some(status), "{arguments:?}\n{told}");
        finished
    }
}

fn copies_lists_and_removes(kind: Kind) {
    let Some(peer) = Peer::start(kind, false) else {
        return;
    };
    let (source, back) = (peer.local("source"), peer.local("back"));
    let (url, folder) = (peer.server.url("f"), peer.server.url(""));
    for protect in ["private", "clear"] {
        for size in [0, 1, 3_000_001] {
            let octets = write_noise(source.as_ref(), size, 7);
            peer.godwit(0, &["cp", "--protect", protect, &source, &url]);
            assert_holds(&peer.server.at("f"), &octets);
            peer.godwit(0, &["cp", "--protect", protect, &url, &back]);
            assert_holds(back.as_ref(), &octets);
        }
        let listed = peer.godwit(0, &["ls", "--protect", protect, &folder]);
        assert_eq!(listed.stdout_text(), "f\n", "{protect}");
        peer.godwit(0, &["rm", &url]);
        assert_eq!(fs::read_dir(peer.server.at("")).expect("lists").count(), 0);
    }
}

/// What they demand by default. The user hears what can be done about it, and data in clear travels.
fn says_which_option_lets_us_in(kind: Kind, status: i32, option: &str) {
    let Some(peer) = Peer::start(kind, true) else {
        return;
    };
    fs::write(peer.server.at("f"), "content").expect("writes");
    let (url, back) = (peer.server.url("f"), peer.local("back"));
    let refused = peer.godwit(status, &["cp", &url, &back]).stderr_text();
    assert!(refused.contains(option), "{refused}");
    assert!(refused.contains("--protect clear"), "{refused}");
    peer.godwit(0, &["cp", "--protect", "clear", &url, &back]);
    assert_holds(back.as_ref(), b"content");
}

#[test]
fn vsftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Vsftpd);
}

#[test]
fn proftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Proftpd);
}

#[test]
fn pure_ftpd_takes_and_gives_files() {
    copies_lists_and_removes(Kind::PureFtpd);
}

#[test]
fn pyftpdlib_takes_and_gives_files() {
    copies_lists_and_removes(Kind::Pyftpdlib);
}

#[test]
fn vsftpd_that_wants_sessions_resumed_can_be_told_not_to() {
    says_which_option_lets_us_in(Kind::Vsftpd, 4, "require_ssl_reuse=NO");
}

#[test]
fn proftpd_that_wants_sessions_resumed_can_be_told_not_to() {
    says_which_option_lets_us_in(Kind::Proftpd, 3, "NoSessionReuseRequired");
}
