//! Users who prove who they are, said line by line. What other programs make of it: `godwit-lab`'s
//! tests.

use std::{fs, io::Write as _, net::SocketAddr, sync::Arc, time::SystemTime};

use godwit_gsi::{
    Channel, Context, Expect, Settings, Versions, Wrap, adat,
    cert::{
        Credential, files,
        key::KeyKind,
        proxy::{self, ProxyRequest},
    },
    verify::Policy,
};
use godwit_proto::security::MinProtection;
use godwit_server::{Anonymous, GsiSettings};
use tempfile::TempDir;

use crate::{
    capture::{Capture, End, records},
    client::{Ftp, Reply, connect},
    grid::Grid,
    harness::TestServer,
    pki::Blueprint,
};

/// A grid, and a server of it.
struct Site {
    grid: Grid,
    jo: Credential,
    server: TestServer,
    _folder: TempDir,
}

impl Site {
    fn new(anonymous: Anonymous) -> Self {
        Self::with(anonymous, MinProtection::Clear)
    }

    fn with(anonymous: Anonymous, floor: MinProtection) -> Self {
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
        let host = host.issued_by(&grid.authority);
        let folder = TempDir::new().unwrap();
        let [cert, map] = ["host.pem", "map"].map(|name| folder.path().join(name));
        files::write_private(&cert, &host.to_pem().unwrap()).unwrap();
        fs::write(&map, "/O=Grid/CN=Jo jo\n").unwrap();
        let jo = proxy::create(&grid.user, &ProxyRequest::default(), KeyKind::EcP256, now);
        let authorities = grid.path().to_owned();
        Self {
            server: TestServer::with(|settings| {
                settings.anonymous = anonymous;
                settings.protect = floor;
                settings.gsi = Some(GsiSettings {
                    host: vec![(cert.clone(), cert)],
                    authorities,
                    gridmap: Some(map),
                    allowed: Default::default(),
                });
            }),
            jo: jo.unwrap(),
            grid,
            _folder: folder,
        }
    }

    fn prove(&self, delegate: Option<ProxyRequest>, behind: &str) -> Protected {
        prove(self.server.address, &self.grid, &self.jo, delegate, behind)
    }
}

/// Proven to be whose `credential` is. `behind`: sent in clear in one packet with the last ADAT,
/// which the server must refuse.
pub(crate) fn prove(
    server: SocketAddr,
    grid: &Grid,
    credential: &Credential,
    delegate: Option<ProxyRequest>,
    behind: &str,
) -> Protected {
    prove_in(Versions::Any, server, grid, credential, delegate, behind)
}

fn prove_in(
    versions: Versions,
    server: SocketAddr,
    grid: &Grid,
    credential: &Credential,
    delegate: Option<ProxyRequest>,
    behind: &str,
) -> Protected {
    let mut ftp = Ftp::connect(server);
    ftp.await_code(220);
    ftp.expect("AUTH GSSAPI", 334);
    let context = Context::initiate(Settings {
        credential: credential.clone(),
        anchors: Arc::new(grid.anchors()),
        policy: Policy::default(),
        expect: Expect::Anyone,
        channel: Channel::Control { delegate },
        versions,
        server_name: None,
    });
    let mut context = context.unwrap();
    loop {
        let token = context.poll_output().expect("a token");
        let last = context.outcome();
        let behind = if last.is_some() { behind } else { "" };
        ftp.send(&format!("{}{behind}", adat::command(&token)));
        if let Some(established) = last {
            ftp.await_code(if behind.is_empty() { 235 } else { 421 });
            return Protected {
                ftp,
                wrap: established.wrap,
            };
        }
        let reply = ftp.await_code(335);
        let token = adat::token_of_reply(&reply.lines[0]).unwrap().unwrap();
        context.handle_input(SystemTime::now(), &token).unwrap();
    }
}

/// A client after the 235.
pub(crate) struct Protected {
    pub(crate) ftp: Ftp,
    pub(crate) wrap: Wrap,
}

impl Protected {
    pub(crate) fn call(&mut self, command: &str) -> String {
        let line = self.wrap.command(format!("{command}\r\n").as_bytes());
        self.ftp.send(&line.unwrap());
        self.reply()
    }

    pub(crate) fn reply(&mut self) -> String {
        let Reply { code, lines } = self.ftp.reply();
        assert_eq!(code, 632, "{lines:?}");
        let mut clear = Vec::new();
        for line in lines {
            let part = self.wrap.clear_reply(&format!("632 {line}")).unwrap();
            clear.extend(part.unwrap());
        }
        String::from_utf8(clear).unwrap()
    }

    #[track_caller]
    pub(crate) fn expect(&mut self, command: &str, code: &str) -> String {
        let reply = self.call(command);
        assert!(reply.starts_with(code), "{command}: {reply}");
        reply
    }

    pub(crate) fn log_in(&mut self) {
        self.expect("USER :globus-mapping:", "331 ");
        self.expect("PASS dummy", "230 ");
        self.expect("TYPE I", "200 ");
    }
}

#[test]
fn only_protected_lines_are_accepted() {
    let site = Site::new(Anonymous::Off);
    let mut jo = site.prove(None, "");
    jo.log_in();
    assert_eq!(jo.expect("SITE WHOAMI", "200 "), "200 jo\r\n");
    let features = jo.expect("FEAT", "211-");
    for feature in ["AUTH GSSAPI", "DCAU", "DCSC P,D", "PBSZ", "PROT"] {
        assert!(
            features.contains(&format!("\r\n {feature}\r\n")),
            "{features}"
        );
    }
    // Whichever of the three words a client uses.
    let line = jo.wrap.command(b"NOOP\r\n").unwrap();
    jo.ftp.send(&line.replace("ENC", "mic"));
    assert!(jo.reply().starts_with("200 "));
    // Anybody on the path could have written this.
    jo.ftp.send("DELE /f");
    assert!(jo.reply().starts_with("533 "));
    jo.expect("NOOP", "200 ");
    jo.expect("AUTH GSSAPI", "534 ");
    jo.ftp.send("ENC AAAA");
    assert!(jo.reply().starts_with("535 "));
    jo.ftp.expect_end();
}

#[test]
fn clear_text_behind_the_last_token_ends_the_session() {
    let site = Site::new(Anonymous::Rw);
    for behind in [
        "\r\nUSER anonymous\r\nPASS x\r\nMKD /made",
        "\r\nUSER",
        "\r\n\r",
    ] {
        site.prove(None, behind).ftp.expect_end();
    }
    assert!(!site.server.path("made").exists());
}

#[test]
fn unauthenticated_users_are_anonymous_or_refused() {
    let site = Site::new(Anonymous::Off);
    let mut ftp = Ftp::connect(site.server.address);
    ftp.await_code(220);
    let reply = ftp.expect("USER anonymous", 530);
    assert!(reply.text().contains("Must perform GSSAPI"), "{reply:?}");
    ftp.expect("MKD /f", 530);
    ftp.expect("AUTH GSSAPI", 334);
    ftp.expect("ADAT WloxMjM0NTY3ODkw", 535);
    ftp.expect("ADAT AAAA", 503);

    let site = Site::new(Anonymous::Ro);
    let mut ftp = Ftp::connect(site.server.address);
    ftp.await_code(220);
    ftp.login();
    ftp.expect("AUTH GSSAPI", 534);
    ftp.expect("PROT P", 536);
    ftp.expect("DCAU A", 504);
    ftp.expect("MKD /f", 550);
    // An identity is no way to become anonymous, or another user.
    let mut jo = site.prove(None, "");
    for user in ["anonymous", "ftp", "root"] {
        jo.expect(&format!("USER {user}"), "331 ");
        let reply = jo.expect("PASS x", "530 ");
        assert!(reply.contains("may not log in as"), "{reply}");
    }
    jo.log_in();
    jo.expect("MKD /f", "257 ");
}

#[test]
fn data_channels_have_the_requested_protection_or_fail() {
    let site = Site::new(Anonymous::Off);
    // DCAU A is in force, and nothing was delegated.
    let mut jo = site.prove(None, "");
    jo.log_in();
    let reply = jo.expect("PASV", "425 ");
    assert!(reply.contains("no delegated credential"), "{reply}");
    jo.expect("PROT P", "200 ");
    jo.expect("DCAU N", "200 ");
    jo.expect("PASV", "534 ");
    jo.expect("PROT C", "200 ");
    jo.expect("PASV", "227 ");
    // With a delegated proxy the server waits for one who proves to be the same.
    let mut jo = site.prove(Some(ProxyRequest::limited()), "");
    jo.log_in();
    let address = jo.expect("PASV", "227 ");
    let mut data = connect(crate::client::comma_address(&address));
    data.write_all(b"bytes in clear, and more than a record's header")
        .unwrap();
    let reply = jo.call("STOR /f");
    assert!(reply.starts_with("425-"), "{reply}");
    assert!(
        reply.contains("DATA_CHANNEL_AUTHENTICATION_FAILURE"),
        "{reply}"
    );
    // Where the file was opened first, nothing is in it.
    let left = fs::read(site.server.path("f")).unwrap_or_default();
    assert!(left.is_empty());
    let said = |floor| {
        let site = Site::with(Anonymous::Off, floor);
        let mut jo = site.prove(Some(ProxyRequest::limited()), "");
        jo.log_in();
        jo.call("PASV")
    };
    assert!(said(MinProtection::Identity).starts_with("227 "));
    assert!(said(MinProtection::Integrity).starts_with("534 "));
    jo.expect("DCAU S no name", "200 ");
    jo.expect("PASV", "425 ");
    jo.expect("DCSC P AAAA", "500 ");
}

/// A ticket would come with the server's last token, where clients expect the NUL record, or the
/// end of the handshake and nothing else.
#[test]
fn no_ticket_is_on_the_wire() {
    const CHANGE_CIPHER_SPEC: u8 = 20;
    const HANDSHAKE: u8 = 22;
    const DATA: u8 = 23;
    let site = Site::new(Anonymous::Off);
    for (versions, last) in [
        (Versions::Tls12, &[CHANGE_CIPHER_SPEC, HANDSHAKE][..]),
        (Versions::Tls13, &[DATA]),
    ] {
        let (address, capture) = Capture::before(site.server.address);
        let mut jo = prove_in(versions, address, &site.grid, &site.jo, None, "");
        jo.log_in();
        drop(jo);
        let turns = capture.turns();
        let said = turns.iter().filter(|(end, _)| *end == End::Called);
        let said = said.map(|(_, bytes)| String::from_utf8_lossy(bytes));
        let lines: Vec<String> = said
            .flat_map(|turn| turn.lines().map(str::to_owned).collect::<Vec<_>>())
            .collect();
        let tokens = lines
            .iter()
            .filter_map(|line| line.strip_prefix("335 ADAT="));
        let tokens: Vec<_> = tokens
            .map(|token| records(&adat::decode(token).unwrap()))
            .collect();
        let [flight, end] = &tokens[..] else {
            panic!("{versions:?}: {lines:?}")
        };
        assert_eq!(flight[0].0, HANDSHAKE, "{versions:?}");
        let kinds: Vec<u8> = end.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, last, "{versions:?}: {end:?}");
        if last == [DATA] {
            // One byte, its kind, and the tag.
            assert_eq!(end, &[(DATA, 1 + 1 + 16)]);
        }
        assert!(lines.iter().any(|line| line.starts_with("235 ")));
    }
}
