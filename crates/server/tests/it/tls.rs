//! AUTH TLS, driven by clients that people have. What is missing here is skipped.

use std::{
    fs,
    io::Write as _,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
    sync::Arc,
    time::SystemTime,
};

use godwit_engine::storage::Storage;
use godwit_gsi::cert::files;
use godwit_proto::security::MinProtection;
use godwit_server::{
    Anonymous, GsiSettings, PasswordSettings, ServerSettings, TlsSettings, TokenSettings,
    access::passwords::{self, Change},
};
use tempfile::TempDir;

use crate::{
    client::{Ftp, read_all},
    grid::Grid,
    harness::{TestServer, pattern},
    issuer::Issuer,
    pki::Blueprint,
};

/// Kind of a TLS record (RFC 8446 §5.1).
const ALERT: u8 = 21;

/// A server with a certificate of its own, two users with passwords, and what their clients need.
pub(crate) struct Site {
    pub(crate) server: TestServer,
    pub(crate) folder: TempDir,
    pub(crate) grid: Grid,
    pub(crate) issuer: Issuer,
}

pub(crate) const ISSUER: &str = "https://issuer.example.org/";
pub(crate) const AUDIENCE: &str = "https://data.example.org";

#[derive(Clone, Copy, Default)]
pub(crate) struct Wishes {
    pub(crate) anonymous: bool,
    pub(crate) private: bool,
    pub(crate) in_clear: bool,
    pub(crate) with_grid: bool,
    pub(crate) https: bool,
}

impl Site {
    pub(crate) fn new(wishes: Wishes) -> Self {
        Self::with(wishes, |_| {})
    }

    pub(crate) fn with(wishes: Wishes, change: impl FnOnce(&mut ServerSettings)) -> Self {
        Self::serving(None, wishes, change)
    }

    /// Serves `storage`; the directory of the server stays empty.
    pub(crate) fn on(
        storage: Arc<dyn Storage>,
        wishes: Wishes,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        Self::serving(Some(storage), wishes, change)
    }

    fn serving(
        storage: Option<Arc<dyn Storage>>,
        wishes: Wishes,
        change: impl FnOnce(&mut ServerSettings),
    ) -> Self {
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let host = Blueprint::host("/O=Grid/CN=host", &["localhost", "127.0.0.1", "::1"]).at(now);
        let host = host.issued_by(&grid.authority);
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        files::write_private(&at("host.pem"), &host.to_pem().unwrap()).unwrap();
        files::write_private(&at("jo.pem"), &grid.user.to_pem().unwrap()).unwrap();
        let authority = grid.authority.certificate().as_x509().to_pem().unwrap();
        fs::write(at("ca.pem"), authority).unwrap();
        fs::write(at("map"), "/O=Grid/CN=Jo jo\n").unwrap();
        for (user, home, reads_only) in [("kim", None, false), ("sam", Some("/sam"), true)] {
            let change = Change::Set {
                password: b"se cret",
                home,
                reads_only: Some(reads_only),
                account: None,
            };
            passwords::edit(&at("passwords"), user, change).unwrap();
        }
        let issuer = Issuer::es256("k");
        let keys = serde_json::json!({ "keys": [issuer.jwk] });
        fs::write(at("keys.json"), keys.to_string()).unwrap();
        let pair = vec![(at("host.pem"), at("host.pem"))];
        let set = |settings: &mut ServerSettings| {
            settings.anonymous = match wishes.anonymous {
                true => Anonymous::Ro,
                false => Anonymous::Off,
            };
            settings.tls = Some(TlsSettings { host: pair.clone() });
            settings.passwords = Some(PasswordSettings {
                file: at("passwords"),
                in_clear: wishes.in_clear,
            });
            settings.tokens = Some(TokenSettings {
                issuers: vec![
                    format!("{ISSUER}={}", at("keys.json").display())
                        .parse()
                        .unwrap(),
                ],
                audiences: vec![AUDIENCE.to_owned()],
            });
            if wishes.private {
                settings.protect = MinProtection::Private;
            }
            if wishes.https {
                settings.https = vec!["127.0.0.1:0".parse().unwrap()];
            }
            settings.gsi = wishes.with_grid.then(|| GsiSettings {
                host: pair,
                authorities: grid.path().to_owned(),
                gridmap: Some(at("map")),
                allowed: Default::default(),
            });
            change(settings);
        };
        let server = match storage {
            Some(storage) => TestServer::on(storage, set),
            None => TestServer::with(set),
        };
        fs::create_dir(server.path("sam")).unwrap();
        Self {
            server,
            folder,
            grid,
            issuer,
        }
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn curl(&self, user: &str, path: &str, more: &[&str]) -> Option<Output> {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--ssl-reqd", "--max-time", "60"])
            .arg("--cacert")
            .arg(self.at("ca.pem"))
            .args(["--user", user])
            .args(more)
            .arg(format!(
                "ftp://localhost:{}/{path}",
                self.server.address.port()
            ));
        run(curl)
    }

    fn python(&self, script: &str) -> Option<Output> {
        python(&self.at("ca.pem"), self.server.address, script)
    }
}

/// Python's ftplib; `script` has a session `f` that is connected, and `refused`, which demands an
/// error of FTP with some words.
pub(crate) fn python(authority: &Path, server: SocketAddr, script: &str) -> Option<Output> {
    let mut python = Command::new("python3");
    python.arg("-c").arg(format!(
        "import ssl, ftplib, io\n\
         def refused(what, *words):\n\
         \x20   try:\n        what()\n\
         \x20   except (ftplib.error_perm, ftplib.error_temp) as error:\n\
         \x20       assert all(word in str(error) for word in words), error\n\
         \x20       return\n\
         \x20   raise SystemExit('not refused: ' + str(words))\n\
         context = ssl.create_default_context(cafile={authority:?})\n\
         f = ftplib.FTP_TLS(context=context, timeout=60)\n\
         f.connect('localhost', {})\n{script}",
        server.port(),
    ));
    run(python)
}

/// `None`, and a word about it, where the program is missing.
fn run(mut command: Command) -> Option<Output> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.stdin(Stdio::null()).output();
    match output {
        Ok(output) => Some(output),
        Err(error) => {
            #[allow(clippy::print_stderr, reason = "a skip is reported")]
            {
                eprintln!("skipped: {name}: {error}");
            }
            None
        }
    }
}

#[track_caller]
pub(crate) fn succeeded(output: &Output) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{error}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[track_caller]
fn refused(output: &Output, word: &str) {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "it was let in");
    assert!(error.contains(word), "{error}");
}

fn write(path: &Path, bytes: &[u8]) -> String {
    fs::File::create(path).unwrap().write_all(bytes).unwrap();
    path.display().to_string()
}

#[test]
fn curl_puts_and_gets_with_a_password() {
    let site = Site::new(Wishes::default());
    let content = pattern(3_000_000, 1);
    let here = write(&site.at("up"), &content);
    for version in [&["--tls-max", "1.2"][..], &["--tlsv1.3"]] {
        let up = [version, &["--upload-file", &here]].concat();
        let Some(output) = site.curl("kim:se cret", "up", &up) else {
            return;
        };
        succeeded(&output);
        assert!(site.server.read("up") == content, "put with {version:?}");
        let there = site.at("down").display().to_string();
        let down = [version, &["--output", &there]].concat();
        succeeded(&site.curl("kim:se cret", "up", &down).unwrap());
        assert!(fs::read(there).unwrap() == content, "get with {version:?}");
    }
    let listed = succeeded(&site.curl("kim:se cret", "", &["--list-only"]).unwrap());
    assert!(listed.lines().any(|line| line == "up"), "{listed}");
    refused(&site.curl("kim:secret", "up", &[]).unwrap(), "denied");
    refused(&site.curl("stranger:se cret", "up", &[]).unwrap(), "denied");
    refused(&site.curl("anonymous:x", "up", &[]).unwrap(), "denied");
}

#[test]
fn a_user_with_a_home_stays_there() {
    let site = Site::new(Wishes::default());
    site.server.write("sam/f", b"sam's");
    site.server.write("f", b"not sam's");
    let Some(output) = site.curl("sam:se cret", "f", &[]) else {
        return;
    };
    assert_eq!(succeeded(&output), "sam's");
    for path in ["%2ff", "../f", "%2fsam/../f"] {
        refused(
            &site.curl("sam:se cret", path, &["--path-as-is"]).unwrap(),
            "",
        );
    }
    let here = write(&site.at("up"), b"x");
    let put = site.curl("sam:se cret", "up", &["--upload-file", &here]);
    refused(&put.unwrap(), "");
    assert!(!site.server.path("sam/up").exists());
}

/// unwrap() waits for the server's close_notify, and the end of the connection comes behind it.
pub(crate) const CLOSE_IN_GOOD_ORDER: &str = "\
    f.sock.settimeout(20)\n\
    f.sock.sendall(b'NOOP\\r\\n')\n\
    assert f.getresp().startswith('200')\n\
    plain = f.sock.unwrap()\n\
    assert plain.recv(1) == b''\n";

#[test]
fn a_close_notify_is_answered_and_ends_the_session() {
    let site = Site::new(Wishes::default());
    let script = format!("f.login('kim', 'se cret')\n{CLOSE_IN_GOOD_ORDER}");
    if let Some(output) = site.python(&script) {
        succeeded(&output);
    }
    if let Some(output) = site.python(&format!("f.auth()\n{CLOSE_IN_GOOD_ORDER}")) {
        succeeded(&output);
    }
}

#[test]
fn python_moves_files_and_ends_each_connection_in_good_order() {
    let site = Site::new(Wishes {
        private: true,
        ..Wishes::default()
    });
    let script = "\
        f.login('kim', 'se cret')\n\
        f.prot_p()\n\
        f.storbinary('STOR a', io.BytesIO(b'x' * 1000000))\n\
        got = io.BytesIO()\n\
        f.retrbinary('RETR a', got.write)\n\
        assert got.getvalue() == b'x' * 1000000\n\
        assert 'a' in f.nlst()\n\
        f.set_pasv(False)\n\
        assert 'a' in f.nlst(), 'the server connects, and the client begins TLS'\n\
        f.set_pasv(True)\n\
        f.prot_c()\n\
        try:\n    f.nlst()\n    raise SystemExit('data in clear')\n\
        except ftplib.error_perm as error:\n    assert 'PROT P' in str(error), error\n\
        f.quit()\n";
    let Some(output) = site.python(script) else {
        return;
    };
    succeeded(&output);
    assert_eq!(site.server.read("a").len(), 1_000_000);
}

#[test]
fn a_token_limits_operations_and_paths() {
    let site = Site::new(Wishes::default());
    site.server.write("f", b"secret");
    for name in ["data", "database"] {
        fs::create_dir(site.server.path(name)).unwrap();
        site.server.write(&format!("{name}/f"), b"x");
    }
    let now = SystemTime::now();
    let now = now
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let token = |scope: &str, ends: u64, audience: &str| {
        site.issuer.token(&serde_json::json!({
            "iss": ISSUER, "sub": "robot", "aud": audience, "exp": ends, "wlcg.ver": "1.0",
            "scope": scope,
        }))
    };
    let good = token(
        "storage.read:/data storage.create:/data/new",
        now + 600,
        AUDIENCE,
    );
    let script = format!(
        "refused(lambda: f.login(':token:', 'a.b.c'), '530', 'no token')\n\
        refused(lambda: f.login(':token:', '{late}'), '530', 'expired')\n\
        refused(lambda: f.login(':token:', '{elsewhere}'), '530', 'another service')\n\
        f.login(':token:', '{good}')\n\
        f.prot_p()\n\
        f.voidcmd('TYPE I')\n\
        assert f.size('/data/f') == 1\n\
        got = io.BytesIO()\n\
        f.retrbinary('RETR /data/f', got.write)\n\
        assert got.getvalue() == b'x'\n\
        f.mkd('/data/new')\n\
        f.storbinary('STOR /data/new/part', io.BytesIO(b'new'))\n\
        f.rename('/data/new/part', '/data/new/whole')\n\
        refused(lambda: f.storbinary('STOR /data/new/whole', io.BytesIO(b'x')), '550', 'change')\n\
        refused(lambda: f.delete('/data/new/whole'), '550', 'does not allow')\n\
        refused(lambda: f.rename('/data/new/whole', '/data/f'), '550')\n\
        refused(lambda: f.retrbinary('RETR /database/f', got.write), '550', 'does not allow')\n\
        refused(lambda: f.retrbinary('RETR /data/../f', got.write), '550', 'does not allow')\n\
        refused(lambda: f.nlst('/'), '550')\n\
        refused(lambda: f.sendcmd('CKSM MD5 0 -1 /f'), '550')\n\
        refused(lambda: f.sendcmd('SITE SYMLINK /f /data/new/link'), '550')\n\
        f.quit()\n",
        late = token("storage.read:/", now - 1, AUDIENCE),
        elsewhere = token("storage.read:/", now + 600, "https://elsewhere"),
    );
    let Some(output) = site.python(&script) else {
        return;
    };
    succeeded(&output);
    assert_eq!(site.server.read("data/new/whole"), b"new");
}

#[test]
fn lftp_mirrors_over_tls() {
    let site = Site::new(Wishes::default());
    site.server.write("a", pattern(100_000, 1));
    site.server.write("b", pattern(10, 2));
    let mut lftp = Command::new("lftp");
    let [ca, into] = ["ca.pem", "mirrored"].map(|name| site.at(name).display().to_string());
    lftp.env("HOME", site.folder.path()).arg("-c").arg(format!(
        "set ftp:ssl-force true; set ftp:ssl-protect-data true; set ssl:ca-file {ca}; \
         set net:max-retries 1; set net:timeout 30; \
         open -u kim,'se cret' localhost:{}; mirror / {into}; put {ca} -o c; rm b",
        site.server.address.port()
    ));
    let Some(output) = run(lftp) else { return };
    succeeded(&output);
    assert!(fs::read(site.at("mirrored/a")).unwrap() == pattern(100_000, 1));
    assert_eq!(fs::read(site.at("mirrored/b")).unwrap(), pattern(10, 2));
    assert!(site.server.path("c").exists() && !site.server.path("b").exists());
}

#[test]
fn a_certificate_of_the_grid_is_a_login() {
    let site = Site::new(Wishes {
        with_grid: true,
        ..Wishes::default()
    });
    site.server.write("f", b"for jo");
    let jo = site.at("jo.pem").display().to_string();
    let with = |user: &str| site.curl(user, "f", &["--cert", &jo, "--key", &jo]);
    let Some(output) = with("jo:x") else { return };
    // The account of the map by its name, and no other; without a certificate a password.
    assert_eq!(succeeded(&output), "for jo");
    let with = |user: &str| with(user).unwrap();
    refused(&with("root:x"), "denied");
    assert_eq!(succeeded(&with("kim:se cret")), "for jo");
    refused(&site.curl("jo:x", "f", &[]).unwrap(), "denied");
    // One of a stranger is no harm, and no help.
    let other = Grid::with(Blueprint::authority("/O=Other/CN=CA").at(SystemTime::now()));
    let stranger = site.at("stranger.pem");
    files::write_private(&stranger, &other.user.to_pem().unwrap()).unwrap();
    let stranger = stranger.display().to_string();
    let with = |user: &str| site.curl(user, "f", &["--cert", &stranger, "--key", &stranger]);
    refused(&with("jo:x").unwrap(), "denied");
    assert_eq!(succeeded(&with("kim:se cret").unwrap()), "for jo");
    drop(site.grid);
}

#[test]
fn passwords_are_not_heard_in_clear_unless_that_is_allowed() {
    let site = Site::new(Wishes {
        anonymous: true,
        ..Wishes::default()
    });
    let mut ftp = site.server.connect();
    let reply = ftp.expect("USER kim", 530);
    assert!(reply.text().contains("AUTH TLS"), "{reply:?}");
    ftp.expect("PASS se cret", 503);
    ftp.expect("USER anonymous", 331);
    ftp.expect("PASS x", 230);
    let site = Site::new(Wishes {
        in_clear: true,
        ..Wishes::default()
    });
    let mut ftp = site.server.connect();
    ftp.expect("USER kim", 331);
    ftp.expect("PASS secret", 530);
    ftp.expect("USER kim", 331);
    ftp.expect("PASS se cret", 230);
}

#[test]
fn bytes_before_the_handshake_are_not_protected() {
    let site = Site::new(Wishes::default());
    clear_text_behind_auth_tls_is_refused(site.server.address);
    // What is no handshake ends the session: no client would trust a reply in clear.
    let mut ftp = site.server.connect();
    ftp.expect("AUTH TLS", 234);
    ftp.send("USER kim");
    let rest = read_all(ftp.socket().try_clone().unwrap());
    assert!(rest.first().is_none_or(|kind| *kind == ALERT), "{rest:?}");
    // The server closes a silent connection in the end, and serves others meanwhile.
    let mut silent = site.server.connect();
    silent.expect("AUTH TLS", 234);
    assert!(Ftp::connect(site.server.address).reply().code == 220);
}

/// Each in one write: anybody on the path could put it before the handshake of an honest client.
pub(crate) fn clear_text_behind_auth_tls_is_refused(server: SocketAddr) {
    for clear in [
        "AUTH TLS\r\nUSER kim\r\n",
        "AUTH TLS\r\nUSER kim\r\nPASS x\r\nPWD\r\n",
        "AUTH TLS\r\nUS",
        "AUTH TLS\r\n\r\n",
        "AUTH TLS\r\n\n",
        "NOOP\r\nAUTH TLS-C\r\nABOR\r\n",
    ] {
        let mut ftp = Ftp::connect(server);
        ftp.await_code(220);
        ftp.send_raw(clear.as_bytes());
        let codes = std::iter::from_fn(|| ftp.try_reply().map(|reply| reply.code));
        let codes: Vec<u16> = codes.collect();
        assert_eq!(codes.last(), Some(&421), "{clear:?}: {codes:?}");
        assert!(!codes.contains(&234), "{clear:?}: {codes:?}");
    }
}
