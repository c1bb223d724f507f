//! `ftpes://`: TLS, passwords and bearer tokens, against our server.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    time::SystemTime,
};

use godwit_gsi::cert::files;
use godwit_proto::security::MinProtection;
use godwit_server::{
    Anonymous, PasswordSettings, TlsSettings, TokenSettings,
    access::passwords::{self, Change},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    grid::Grid,
    harness::{Ran, Served, godwit},
    issuer::Issuer,
    pki::Blueprint,
};

const ISSUER: &str = "https://issuer.example.org/";
const AUDIENCE: &str = "https://127.0.0.1:8443/";

/// A server without a grid, and what its users have.
struct Site {
    served: Served,
    folder: TempDir,
    issuer: Issuer,
}

impl Site {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let own = Blueprint::host("/CN=data", &["127.0.0.1"]).at(SystemTime::now());
        let own = own.self_signed();
        files::write_private(&at("host.pem"), &own.to_pem().unwrap()).unwrap();
        fs::write(at("ca.pem"), own.certificate().as_x509().to_pem().unwrap()).unwrap();
        let change = Change::Set {
            password: b"s3cret",
            home: None,
            reads_only: None,
            account: None,
        };
        passwords::edit(&at("passwords"), "jo", change).unwrap();
        let issuer = Issuer::es256("k");
        fs::write(at("keys"), json!({ "keys": [issuer.jwk] }).to_string()).unwrap();
        let served = Served::start_with(|settings| {
            settings.anonymous = Anonymous::Off;
            settings.protect = MinProtection::Private;
            settings.tls = Some(TlsSettings {
                host: vec![(at("host.pem"), at("host.pem"))],
            });
            settings.passwords = Some(PasswordSettings {
                file: at("passwords"),
                in_clear: false,
            });
            settings.tokens = Some(TokenSettings {
                issuers: vec![
                    format!("{ISSUER}={}", at("keys").display())
                        .parse()
                        .unwrap(),
                ],
                audiences: vec![AUDIENCE.to_owned()],
            });
        });
        Self {
            served,
            folder,
            issuer,
        }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn url(&self, user: &str, path: &str) -> String {
        format!("ftpes://{user}{}{path}", self.served.address)
    }

    /// A file that only its owner can read.
    fn private(&self, name: &str, text: &str) -> String {
        let path = self.at(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        path.display().to_string()
    }

    fn run(&self, arguments: &[&str], environment: &[(&str, &str)]) -> Ran {
        let ca = self.at("ca.pem").display().to_string();
        let mut command = godwit(&[arguments, &["--ca", &ca]].concat());
        command.env("HOME", self.folder.path());
        command.envs(environment.iter().copied());
        command.output().unwrap().into()
    }

    fn token(&self, scope: &str, seconds: i64) -> String {
        self.token_for(AUDIENCE, scope, seconds)
    }

    fn token_for(&self, audience: &str, scope: &str, seconds: i64) -> String {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let now = i64::try_from(now.unwrap().as_secs()).unwrap();
        self.issuer.token(&json!({
            "iss": ISSUER, "sub": "robot", "aud": audience, "exp": now + seconds, "wlcg.ver": "1.0",
            "scope": scope,
        }))
    }
}

fn bytes(count: usize) -> Vec<u8> {
    let byte = |i: usize| (i / 251 + i).to_le_bytes()[0];
    (0..count).map(byte).collect()
}

#[test]
fn files_go_both_ways_over_many_channels_with_a_password() {
    let site = Site::new();
    let tree = site.at("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("large"), bytes(20_000_000)).unwrap();
    for i in 0..40 {
        fs::write(tree.join(format!("small{i}")), bytes(i)).unwrap();
    }
    let password = [("GODWIT_PASSWORD", "s3cret")];
    let (tree, back) = (tree.display().to_string(), site.at("back"));
    let up = ["cp", "-r", "-p", "4", "-vv", &tree, &site.url("jo@", "/up")];
    let ran = site.run(&up, &password).expect(0, &["PROT P", "TLSv1.3"]);
    assert!(!ran.err.contains("s3cret"), "{}", ran.err);
    let down = [
        "cp",
        "-r",
        "-p",
        "4",
        &site.url("jo@", "/up"),
        &back.display().to_string(),
    ];
    site.run(&down, &password).expect(0, &[]);
    for name in ["large", "small0", "small39"] {
        let copy = |root: &Path| fs::read(root.join(name)).unwrap();
        assert!(copy(Path::new(&tree)) == copy(&back), "{name}");
    }
    let listed = site
        .run(&["ls", &site.url("jo@", "/up")], &password)
        .expect(0, &[]);
    assert_eq!(listed.out.iter().filter(|byte| **byte == b'\n').count(), 41);
}

#[test]
fn passwords_are_found_and_wrong_ones_are_refused() {
    let site = Site::new();
    let url = site.url("jo@", "/");
    let file = site.private("password", "s3cret\n");
    site.run(&["ls", &url, "--password-file", &file], &[])
        .expect(0, &[]);
    site.run(&["ls", &url], &[("GODWIT_PASSWORD", "wrong")])
        .expect(3, &["login refused"]);
    site.run(&["ls", &url], &[]).expect(3, &["login refused"]);
    site.private(".netrc", "machine 127.0.0.1 login jo password s3cret\n");
    site.run(&["ls", &url], &[]).expect(0, &[]);
    fs::set_permissions(site.at(".netrc"), fs::Permissions::from_mode(0o644)).unwrap();
    site.run(&["ls", &url], &[])
        .expect(3, &[".netrc", "chmod 600"]);
}

#[test]
fn an_untrusted_server_receives_no_password() {
    let site = Site::new();
    let other = Grid::with(Blueprint::authority("/O=Other/CN=CA").at(SystemTime::now()));
    let stranger = site.at("other.pem");
    let pem = other.authority.certificate().as_x509().to_pem().unwrap();
    fs::write(&stranger, pem).unwrap();
    for ca in [&["--ca", stranger.to_str().unwrap()][..], &[]] {
        let ran: Ran = godwit(&[&["ls", "-vv", &site.url("jo@", "/")], ca].concat())
            .env("GODWIT_PASSWORD", "s3cret")
            .output()
            .unwrap()
            .into();
        let ran = ran.expect(3, &["not trusted"]);
        assert!(!ran.err.contains("USER"), "{}", ran.err);
    }
    site.run(
        &["ls", &site.url("jo@", "/"), "--protect", "clear"],
        &[("GODWIT_PASSWORD", "s3cret")],
    )
    .expect(3, &["PROT P"]);
    // A server without TLS: no word more.
    let plain = Served::start();
    let url = format!("ftpes://jo@{}/", plain.address);
    let ran = site.run(&["ls", "-vv", &url], &[("GODWIT_PASSWORD", "s3cret")]);
    let ran = ran.expect(4, &["TLS (AUTH TLS)"]);
    assert!(!ran.err.contains("USER"), "{}", ran.err);
}

#[test]
fn tokens_log_in_and_limit_access() {
    let site = Site::new();
    fs::create_dir(site.served.path("data")).unwrap();
    fs::write(site.served.path("data/f"), bytes(1000)).unwrap();
    fs::write(site.served.path("f"), b"x").unwrap();
    let text = site.token("storage.read:/data storage.modify:/data", 600);
    let token = site.private("token", &text);
    let here = site.at("here").display().to_string();
    let get = [
        "cp",
        "-vv",
        &site.url("", "/data/f"),
        &here,
        "--token",
        &token,
    ];
    let ran = site.run(&get, &[]).expect(0, &[":token:"]);
    assert!(
        !ran.err.contains(text.rsplit('.').next().unwrap()),
        "a secret was shown"
    );
    assert_eq!(fs::read(&here).unwrap(), bytes(1000));
    let put = ["cp", &here, &site.url("", "/data/g"), "--token", &token];
    site.run(&put, &[]).expect(0, &[]);
    assert_eq!(fs::read(site.served.path("data/g")).unwrap(), bytes(1000));
    // Found where it is usually kept.
    let environment = [("BEARER_TOKEN", text.as_str())];
    site.run(&["ls", &site.url("", "/data/")], &environment)
        .expect(0, &[]);
    site.run(&["cp", &site.url("", "/f"), &here], &environment)
        .expect(3, &["does not allow"]);
    let late = site.private("late", &site.token("storage.read:/", -5));
    site.run(&["ls", &site.url("", "/"), "--token", &late], &[])
        .expect(3, &["expired"]);
    site.run(&["ls", &site.url("", "/"), "--token", "/nonexistent"], &[])
        .expect(3, &["/nonexistent"]);
}

#[test]
fn foreign_tokens_go_only_to_hosts_that_the_user_names() {
    let site = Site::new();
    let text = site.token_for("https://other.example.org", "storage.read:/", 600);
    let url = site.url("", "/");
    let found = ("BEARER_TOKEN", text.as_str());
    let file = site.private("token", &text);
    let opaque = [("BEARER_TOKEN", "opaque")];
    for (option, environment, why) in [
        (&[][..], &[found][..], "is for https://other.example.org"),
        (&["--token", &file], &[], "is for https://other.example.org"),
        (&["--token-host", "other"], &opaque, "it is no JWT"),
    ] {
        let ran = site.run(&[&["ls", "-vv", &url], option].concat(), environment);
        let ran = ran.expect(3, &["127.0.0.1", why, "--token-host"]);
        assert!(!ran.err.contains("USER"), "{}", ran.err);
    }
    // Now the server judges.
    let judged = "the token is for another service";
    let ls = ["ls", &url, "--token-host", "127.0.0.1"];
    site.run(&ls, &[found]).expect(3, &[judged]);
    let hosts = ("GODWIT_TOKEN_HOSTS", "other 127.0.0.1");
    site.run(&["ls", &url], &[found, hosts])
        .expect(3, &[judged]);
    site.run(&ls, &opaque).expect(3, &["this is no token"]);
    // What is for every service goes everywhere.
    let any = site.token_for("https://wlcg.cern.ch/jwt/v1/any", "storage.read:/", 600);
    site.run(&["ls", &url], &[("BEARER_TOKEN", &any)])
        .expect(0, &[]);
}

#[test]
fn a_token_that_may_only_create_is_enough_to_put_files() {
    let site = Site::new();
    fs::create_dir(site.served.path("data")).unwrap();
    let tree = site.at("tree");
    fs::create_dir_all(tree.join("below")).unwrap();
    for n in 0..60 {
        fs::write(tree.join(format!("below/{n}")), bytes(1000 + n)).unwrap();
    }
    let large = bytes(48 << 20);
    fs::write(tree.join("large"), &large).unwrap();
    for (to, scope) in [
        ("a", "storage.create:/data"),
        ("b", "storage.create:/data storage.read:/data"),
    ] {
        let token = site.private("token", &site.token(scope, 600));
        let url = site.url("", &format!("/data/{to}"));
        let many = ["--concurrency", "4", "-p", "4", "--token", &token];
        let put = ["cp", "-r", tree.to_str().unwrap(), &url];
        site.run(&[&put[..], &many[..]].concat(), &[])
            .expect(0, &["61 files"]);
        let there = site.served.path(&format!("data/{to}"));
        assert!(fs::read(there.join("large")).unwrap() == large);
        for n in 0..60 {
            let stored = fs::read(there.join(format!("below/{n}"))).unwrap();
            assert_eq!(stored, bytes(1000 + n));
        }
        assert_eq!(fs::read_dir(there.join("below")).unwrap().count(), 60);
        assert_eq!(fs::read_dir(&there).unwrap().count(), 2);
    }
}
