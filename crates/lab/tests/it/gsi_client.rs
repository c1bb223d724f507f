//! Our client with identities, against the reference server and our own, with certificates made
//! here for each test.

use std::{ffi::OsString, fs, io::Write as _, path::PathBuf, process::Stdio, time::SystemTime};

use godwit_gsi::cert::{
    Credential, files,
    key::KeyKind,
    proxy::{self, ProxyRequest},
};
use godwit_lab::peers::{Finished, gct::GctServer, godwit};
use tempfile::TempDir;

use crate::{
    grid::{Grid, policy_name},
    pki::{Blueprint, HOUR, rsa_key},
    support::{
        Kind, Need, Site, against_both, assert_holds, assert_same, assert_same_tree, files_below,
        have, write_noise, write_tree,
    },
};

/// A server that knows one user, who has a proxy.
pub(crate) struct Secure {
    pub(crate) site: Site,
    pub(crate) grid: Grid,
    folder: TempDir,
}

impl Secure {
    pub(crate) fn start(kind: Kind) -> Option<Self> {
        Self::start_with(kind, &["127.0.0.1", "localhost"], &[])
    }

    /// With a certificate for these hosts and further variables in the server's environment.
    fn start_with(kind: Kind, hosts: &[&str], variables: &[(&str, &str)]) -> Option<Self> {
        Self::under(["/O=Grid/CN=CA", "/O=Grid/CN=Jo"], kind, hosts, variables)
    }

    /// With a CA and a user of these names.
    pub(crate) fn under(
        [authority, user]: [&str; 2],
        kind: Kind,
        hosts: &[&str],
        variables: &[(&str, &str)],
    ) -> Option<Self> {
        let server = match kind {
            Kind::Gct => Need::Gct,
            Kind::Godwitd => Need::Godwitd,
        };
        if !have(&[Need::Godwit, server]) {
            return None;
        }
        let now = SystemTime::now();
        // One RSA key for all: making them takes its time, and the reference server wants them.
        let authority = Blueprint::authority(authority).key(rsa_key());
        let grid = Grid::with(authority.at(now));
        let folder = TempDir::new().expect("a directory");
        let path = |name: &str| folder.path().join(name);
        let host = Blueprint::host("/O=Grid/CN=server", hosts).key(rsa_key());
        save(&host.at(now).issued_by(&grid.authority), &path("host"));
        let map = format!("\"{user}\"");
        let user = Blueprint::user(user).key(rsa_key());
        save(&user.at(now).issued_by(&grid.authority), &path("user"));
        let account = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let map = format!("{map} {account}\n");
        fs::write(path("gridmap"), map).expect("writes");
        let site = match kind {
            Kind::Gct => Site::gct(|root| {
                let mut config = GctServer::serving(root)
                    .env("X509_CERT_DIR", grid.path())
                    .env("X509_USER_CERT", path("hostcert.pem"))
                    .env("X509_USER_KEY", path("hostkey.pem"))
                    .env("GRIDMAP", path("gridmap"));
                for (name, value) in variables {
                    config = config.env(name, value);
                }
                config.start().expect("the reference server starts")
            }),
            Kind::Godwitd => Site::godwitd(|root| {
                let mut config = godwit::Godwitd::serving(root).anonymous("off");
                for (flag, value) in [
                    ("--cert", path("hostcert.pem")),
                    ("--key", path("hostkey.pem")),
                    ("--trusted-certs", grid.path().to_owned()),
                    ("--gridmap", path("gridmap")),
                ] {
                    config = config.arg(flag).arg(value);
                }
                config.start().expect("godwitd starts")
            }),
        };
        let secure = Self { site, grid, folder };
        secure.godwit(0, &["proxy", "init"]);
        Some(secure)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn user(&self) -> Credential {
        let (certificate, key) = (self.path("usercert.pem"), self.path("userkey.pem"));
        files::load_pair(&certificate, &key, None).expect("loads")
    }

    pub(crate) fn url(&self, path: &str) -> String {
        self.site.url(path).replace("ftp://", "gsiftp://")
    }

    /// A path of this machine as a user would type it.
    fn local(&self, path: &str) -> String {
        let path = self.site.local(path);
        path.into_os_string().into_string().expect("UTF-8")
    }

    pub(crate) fn variables(&self) -> Vec<(OsString, OsString)> {
        [
            ("X509_USER_CERT", self.path("usercert.pem")),
            ("X509_USER_KEY", self.path("userkey.pem")),
            ("X509_USER_PROXY", self.path("proxy")),
            ("X509_CERT_DIR", self.grid.path().to_owned()),
        ]
        .map(|(name, path)| (name.into(), path.into()))
        .into()
    }

    /// Runs `godwit`, which must end with `status`.
    #[track_caller]
    fn godwit(&self, status: i32, arguments: &[&str]) -> Finished {
        let finished = godwit::godwit_with(arguments, self.variables());
        let finished = self.site.expect_ok(finished);
        assert_eq!(
            finished.status.code(),
            Some(status),
            "{arguments:?}\n{}--- server\n{}",
            finished.log(),
            self.site.log()
        );
        finished
    }
}

/// `NAMEcert.pem` and `NAMEkey.pem`.
fn save(credential: &Credential, path: &std::path::Path) {
    let beside = |end: &str| {
        let mut path = path.as_os_str().to_owned();
        path.push(end);
        PathBuf::from(path)
    };
    let pem = credential.certificate().as_x509().to_pem().expect("pem");
    fs::write(beside("cert.pem"), pem).expect("writes");
    let key = credential.key().private_key_to_pem_pkcs8().expect("pem");
    files::write_private(&beside("key.pem"), &key).expect("writes");
}

against_both![
    files_travel_under_every_protection,
    trees_and_listings_travel_under_protection,
    streams_travel_under_every_protection,
    large_files_are_shared_by_sessions_under_protection,
    files_travel_between_servers_under_every_protection,
    every_kind_of_proxy_logs_in,
    a_server_of_another_name_is_refused,
    untrusted_peers_are_refused,
    policies_and_revocations_count,
];

const LEVELS: [&str; 4] = ["clear", "identity", "integrity", "private"];

fn files_travel_under_every_protection(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let (source, back, url) = (
        secure.local("source"),
        secure.local("back"),
        secure.url("f"),
    );
    for (seed, level) in LEVELS.into_iter().enumerate() {
        let protect = ["cp", "--protect", level];
        for p in ["1", "4"] {
            for size in [0, 1, 300_001, (5 << 20) + 1] {
                let bytes = write_noise(&secure.site.local("source"), size, seed as u64);
                secure.godwit(0, &[&protect[..], &["-p", p, &source, &url]].concat());
                assert_holds(&secure.site.at("f"), &bytes);
                secure.godwit(0, &[&protect[..], &["-p", p, &url, &back]].concat());
                assert_holds(&secure.site.local("back"), &bytes);
            }
        }
        let part = ["--offset", "70000", "--length", "200000"];
        secure.godwit(0, &[&protect[..], &part, &[&url, &back]].concat());
        let bytes = fs::read(secure.site.at("f")).expect("reads");
        assert_holds(&secure.site.local("back"), &bytes[70_000..270_000]);
    }
    // What is said where nothing is: both ends are of one user, and bytes travel as they are.
    let said = secure.godwit(0, &["cp", "-vv", &url, &back]).stderr_text();
    assert!(said.contains("data channels: DCAU A, PROT C"), "{said}");
    assert_eq!(
        files_below(&secure.site.at("")),
        1,
        "no temporary file stays"
    );
}

/// One server is both ends: its two sessions prove to each other that they are of one user.
fn files_travel_between_servers_under_every_protection(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let bytes = write_noise(&secure.site.at("f"), 3_000_001, 5);
    let source = secure.url("f");
    for level in LEVELS {
        for p in ["1", "4"] {
            let name = format!("{level}-{p}");
            let cp = ["cp", "-vv", "--protect", level, "-p", p];
            let target = secure.url(&name);
            let said = secure.godwit(0, &[&cp[..], &[&source, &target]].concat());
            assert_holds(&secure.site.at(&name), &bytes);
            let agreed = match level {
                "clear" => "data channels: N",
                "identity" => "data channels: DCAU A, PROT C",
                "integrity" => "data channels: DCAU A, PROT S",
                _ => "data channels: DCAU A, PROT P",
            };
            let said = said.stderr_text();
            let sessions = said.matches("data channels: ").count();
            assert!(sessions >= 2, "{said}");
            assert_eq!(said.matches(agreed).count(), sessions, "{said}");
        }
    }
}

fn trees_and_listings_travel_under_protection(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let paths = write_tree(&secure.site.local("tree"));
    let tree = secure.local("tree");
    for level in ["identity", "private"] {
        let url = secure.url(level);
        let back = secure.local(&format!("back {level}"));
        let options = ["cp", "-r", "-c", "2", "-p", "2", "--protect", level];
        secure.godwit(0, &[&options[..], &[&tree, &url]].concat());
        assert_same_tree(&paths, &secure.site.local("tree"), &secure.site.at(level));
        secure.godwit(0, &[&options[..], &[&url, &back]].concat());
        let local = secure.site.local(&format!("back {level}"));
        assert_same_tree(&paths, &secure.site.local("tree"), &local);
        let listed = secure.godwit(0, &["ls", "--protect", level, &url]);
        assert!(listed.stdout_text().contains("file 3"), "{}", listed.log());
    }
}

/// MODE S, where a connection is used once.
fn streams_travel_under_every_protection(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let url = secure.url("f");
    for (seed, level) in LEVELS.into_iter().enumerate() {
        let bytes = write_noise(&secure.site.local("source"), 700_003, seed as u64);
        let mut put = std::process::Command::new(godwit::binary("godwit").expect("present"))
            .args(["cp", "--protect", level, "-", &url])
            .envs(secure.variables())
            .stdin(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut input = put.stdin.take().expect("is piped");
        input.write_all(&bytes).expect("is read");
        drop(input);
        assert!(put.wait().expect("ends").success(), "{}", secure.site.log());
        assert_holds(&secure.site.at("f"), &bytes);
        let got = secure.godwit(0, &["cp", "-q", "--protect", level, &url, "-"]);
        assert!(got.stdout == bytes, "{} bytes came", got.stdout.len());
        let listed = secure.godwit(0, &["ls", "-l", "--protect", level, &secure.url("")]);
        assert!(listed.stdout_text().contains("700003"), "{}", listed.log());
    }
}

fn large_files_are_shared_by_sessions_under_protection(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    write_noise(&secure.site.local("source"), (40 << 20) + 1, 7);
    let (source, back, url) = (
        secure.local("source"),
        secure.local("back"),
        secure.url("f"),
    );
    for level in ["identity", "private"] {
        let options = ["cp", "-c", "2", "-p", "3", "--protect", level];
        secure.godwit(0, &[&options[..], &[&source, &url]].concat());
        assert_same(&secure.site.local("source"), &secure.site.at("f"));
        secure.godwit(0, &[&options[..], &[&url, &back]].concat());
        assert_same(&secure.site.local("source"), &secure.site.local("back"));
    }
}

fn every_kind_of_proxy_logs_in(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let bytes = write_noise(&secure.site.local("source"), 1000, 1);
    let (source, url) = (secure.local("source"), secure.url("f"));
    for options in [
        &["--limited"][..],
        &["--hours", "1"],
        &["--key-type", "rsa:3072"],
    ] {
        secure.godwit(0, &[&["proxy", "init"], options].concat());
        secure.godwit(0, &["cp", &source, &url]);
        assert_holds(&secure.site.at("f"), &bytes);
    }
    // A proxy of a proxy.
    let first = files::load_proxy(&secure.path("proxy")).expect("loads");
    let below = |request: &ProxyRequest, key| {
        let made = proxy::create(&first, request, key, SystemTime::now()).expect("makes");
        let pem = made.to_pem().expect("pem");
        files::write_private(&secure.path("proxy"), &pem).expect("writes");
    };
    below(&ProxyRequest::default(), KeyKind::Rsa(2048));
    secure.godwit(0, &["cp", &source, &url]);
    // No proxy at all: the certificate itself.
    fs::remove_file(secure.path("proxy")).expect("removes");
    secure.godwit(0, &["cp", &source, &url]);
    // A key that cannot be delegated from is enough where nothing is delegated.
    secure.godwit(0, &["proxy", "init", "--key-type", "ec"]);
    secure.godwit(0, &["cp", "--protect", "clear", &source, &url]);
    if kind == Kind::Gct {
        let said = secure.godwit(3, &["cp", &source, &url]).stderr_text();
        assert!(
            said.contains("EC 256") && said.contains("need RSA"),
            "{said}"
        );
    } else {
        secure.godwit(0, &["cp", &source, &url]);
    }
}

fn a_server_of_another_name_is_refused(kind: Kind) {
    let Some(secure) = Secure::start_with(kind, &["elsewhere.example.org"], &[]) else {
        return;
    };
    let said = secure.godwit(3, &["ls", &secure.url("")]).stderr_text();
    assert!(said.contains("elsewhere.example.org"), "{said}");
}

fn untrusted_peers_are_refused(kind: Kind) {
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let now = SystemTime::now();
    // Expired: nothing is sent.
    let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key()).at(now);
    let expired = user
        .valid(-3 * HOUR, -HOUR)
        .issued_by(&secure.grid.authority);
    save(&expired, &secure.path("user"));
    fs::remove_file(secure.path("proxy")).expect("removes");
    let said = secure.godwit(3, &["ls", &secure.url("")]).stderr_text();
    assert!(said.contains("expired 60 min ago"), "{said}");
    // Signed by a CA that the server does not know.
    let stranger = Grid::with(
        Blueprint::authority("/O=Other/CN=CA")
            .key(rsa_key())
            .at(now),
    );
    let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key()).at(now);
    save(&user.issued_by(&stranger.authority), &secure.path("user"));
    let said = secure.godwit(3, &["ls", &secure.url("")]).stderr_text();
    assert!(
        said.contains("the server does not trust our certificate"),
        "{said}"
    );
    // Known to the CA and not to the server.
    let user = Blueprint::user("/O=Grid/CN=Nobody").key(rsa_key()).at(now);
    save(
        &user.issued_by(&secure.grid.authority),
        &secure.path("user"),
    );
    let said = secure.godwit(3, &["ls", &secure.url("")]).stderr_text();
    assert!(said.contains("login refused"), "{said}");
    assert_eq!(secure.user().identity().as_str(), "/O=Grid/CN=Nobody");
}

/// What is beside a CA in its directory counts at both ends.
fn policies_and_revocations_count(kind: Kind) {
    const REVOKED: u32 = 99;
    const OF_HOSTS: u32 = 4711;
    let Some(secure) = Secure::start(kind) else {
        return;
    };
    let list = |status: i32| secure.godwit(status, &["ls", &secure.url("")]);
    let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key());
    let user = user.serial(REVOKED).at(SystemTime::now());
    save(
        &user.issued_by(&secure.grid.authority),
        &secure.path("user"),
    );
    fs::remove_file(secure.path("proxy")).expect("removes");
    list(0);
    let revoke = |serials: &[u32]| {
        let grid = &secure.grid;
        grid.revoke(serials, &grid.authority, (-HOUR, HOUR));
    };
    revoke(&[REVOKED]);
    let said = list(3).stderr_text();
    assert!(
        said.contains("the server does not trust our certificate"),
        "{said}"
    );
    revoke(&[OF_HOSTS]);
    let said = list(3).stderr_text();
    assert!(said.contains("revoked"), "{said}");
    revoke(&[]);
    list(0);
    let policy = policy_name(secure.grid.authority.certificate());
    secure.grid.remove(&policy);
    let said = list(3).stderr_text();
    assert!(said.contains(&policy), "{said}");
}

#[test]
fn the_reference_server_is_met_with_each_version_of_tls() {
    for (variable, version) in [
        ("GLOBUS_GSSAPI_MAX_TLS_PROTOCOL", "TLSv1.2"),
        ("GLOBUS_GSSAPI_MIN_TLS_PROTOCOL", "TLSv1.3"),
    ] {
        let value = version.replace("TLSv", "TLS").replace('.', "_") + "_VERSION";
        let hosts = ["127.0.0.1"];
        let Some(secure) = Secure::start_with(Kind::Gct, &hosts, &[(variable, &value)]) else {
            return;
        };
        let bytes = write_noise(&secure.site.local("source"), 700_001, 3);
        let (source, back, url) = (
            secure.local("source"),
            secure.local("back"),
            secure.url("f"),
        );
        for level in LEVELS {
            let copy = ["cp", "-vv", "-p", "3", "--protect", level];
            let said = secure.godwit(0, &[&copy[..], &[&source, &url]].concat());
            assert!(said.stderr_text().contains(version), "{}", said.log());
            assert_holds(&secure.site.at("f"), &bytes);
            secure.godwit(0, &[&copy[..], &[&url, &back]].concat());
            assert_holds(&secure.site.local("back"), &bytes);
        }
    }
}
