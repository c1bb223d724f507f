//! `godwit proxy`.

use std::{
    fs,
    path::PathBuf,
    time::{Duration, SystemTime},
};

use godwit_gsi::cert::{
    Credential, files,
    key::KeyKind,
    proxy::{self, ProxyRequest},
};
use openssl::symm::Cipher;
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    grid::Grid,
    harness::{Ran, godwit, text},
    pki::Blueprint,
};

/// A user with certificate and key in files.
struct User {
    grid: Grid,
    home: TempDir,
}

impl User {
    fn new() -> Self {
        let authority = Blueprint::authority("/O=Grid/CN=CA").at(SystemTime::now());
        let user = Self {
            grid: Grid::with(authority),
            home: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(user.path(".globus")).unwrap();
        let certificate = user.grid.user.certificate().as_x509().to_pem().unwrap();
        fs::write(user.path(".globus/usercert.pem"), certificate).unwrap();
        let key = user.grid.user.key().private_key_to_pem_pkcs8().unwrap();
        files::write_private(&user.path(".globus/userkey.pem"), &key).unwrap();
        user
    }

    fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        self.run_with_input(arguments, "")
    }

    fn run_with_input(&self, arguments: &[&str], input: &str) -> Ran {
        let input_path = self.path("input");
        fs::write(&input_path, input).unwrap();
        godwit(arguments)
            .env_remove("X509_USER_CERT")
            .env_remove("X509_USER_KEY")
            .env("HOME", self.home.path())
            .env("X509_USER_PROXY", self.path("proxy"))
            .env("X509_CERT_DIR", self.grid.path())
            .stdin(fs::File::open(input_path).unwrap())
            .output()
            .unwrap()
            .into()
    }

    fn info(&self, path: &str) -> Value {
        let output = self.run(&["proxy", "info", "--json", path]).expect(0, &[]);
        serde_json::from_slice(&output.out).unwrap()
    }
}

#[test]
fn a_proxy_is_made_where_every_tool_finds_it_and_shown() {
    let user = User::new();
    let output = user.run(&["proxy", "init"]).expect(0, &[]);
    let output = String::from_utf8(output.out).unwrap();
    assert!(
        output.contains("RFC 3820 proxy, full for /O=Grid/CN=Jo"),
        "{output}"
    );
    assert!(
        output.contains("valid for 12 h") || output.contains("valid for 11 h"),
        "{output}"
    );
    let made = files::load_proxy(&user.path("proxy")).expect("closed to others, and whole");
    assert_eq!(made.info().key, "RSA 2048");
    assert!(user.grid.verify_at(&made, SystemTime::now()).is_ok());

    let shown = user.run(&["proxy", "info"]).expect(0, &[]);
    let shown = String::from_utf8(shown.out).unwrap();
    for line in [
        "issuer    : /O=Grid/CN=Jo",
        "identity  : /O=Grid/CN=Jo",
        "kind      : RFC 3820 proxy, full",
        "key       : RSA 2048",
        "time left : 11:5",
    ] {
        assert!(shown.contains(line), "{line}: {shown}");
    }
    user.run(&["proxy", "info", "--valid-for", "11"])
        .expect(0, &[]);
    user.run(&["proxy", "info", "--valid-for", "13"])
        .expect(3, &[]);
}

#[test]
fn options_select_the_kind_of_proxy() {
    let user = User::new();
    for (options, kind, key) in [
        (&["--limited"][..], "RFC 3820 proxy, limited", "RSA 2048"),
        (&["--legacy"], "legacy (GT 2) proxy, full", "RSA 2048"),
        (&["--key-type", "ec"], "RFC 3820 proxy, full", "EC 256"),
        (
            &["--key-type", "rsa:3072"],
            "RFC 3820 proxy, full",
            "RSA 3072",
        ),
    ] {
        let out = user.path("out");
        let mut arguments = vec!["proxy", "init", "--hours", "2", "-o", text(&out)];
        arguments.extend(options);
        user.run(&arguments).expect(0, &[]);
        let info = user.info(text(&out));
        assert_eq!(
            (info["kind"].as_str(), info["key"].as_str()),
            (Some(kind), Some(key))
        );
        assert_eq!(info["identity"], "/O=Grid/CN=Jo");
        let left = info["seconds_left"].as_u64().unwrap();
        assert!((7000..=7200).contains(&left), "{left}");
    }
}

#[test]
fn an_encrypted_key_wants_its_pass_phrase() {
    let user = User::new();
    let key = user.grid.user.key();
    let sealed = key.private_key_to_pem_pkcs8_passphrase(Cipher::aes_256_cbc(), b"open sesame");
    let path = user.path(".globus/userkey.pem");
    fs::remove_file(&path).unwrap();
    files::write_private(&path, &sealed.unwrap()).unwrap();
    let init = ["proxy", "init", "--passphrase-stdin"];
    let refused = user
        .run_with_input(&init, "close sesame\n")
        .expect(3, &["passphrase"]);
    assert!(!refused.err.contains("close sesame"), "{}", refused.err);
    assert!(!user.path("proxy").exists());
    user.run_with_input(&init, "open sesame\n").expect(0, &[]);
    assert_eq!(
        user.info(text(&user.path("proxy")))["identity"],
        "/O=Grid/CN=Jo"
    );
}

#[test]
fn a_proxy_that_cannot_be_created_or_shown_is_3() {
    let user = User::new();
    user.run(&["proxy", "info"])
        .expect(3, &["proxy", "run `godwit proxy init`"]);

    let early = SystemTime::now() - Duration::from_secs(5 * 3600);
    let request = ProxyRequest {
        lifetime: Duration::from_secs(2 * 3600),
        ..ProxyRequest::default()
    };
    let expired = proxy::create(&user.grid.user, &request, KeyKind::EcP256, early).unwrap();
    files::write_private(&user.path("proxy"), &expired.to_pem().unwrap()).unwrap();
    let shown = user.run(&["proxy", "info"]).expect(3, &[]);
    let shown = String::from_utf8(shown.out).unwrap();
    assert!(
        shown.contains("time left : none: expired 3 h ago"),
        "{shown}"
    );

    fs::remove_file(user.path(".globus/usercert.pem")).unwrap();
    user.run(&["proxy", "init"])
        .expect(3, &["usercert.pem", "no such file"]);
}

#[test]
fn an_untrusted_proxy_is_created_with_a_warning() {
    let user = User::new();
    let stranger = Grid::with(Blueprint::authority("/O=Other/CN=CA").at(SystemTime::now()));
    let certificate = |credential: &Credential| credential.certificate().as_x509().to_pem();
    fs::write(
        user.path(".globus/usercert.pem"),
        certificate(&stranger.user).unwrap(),
    )
    .unwrap();
    fs::remove_file(user.path(".globus/userkey.pem")).unwrap();
    let key = stranger.user.key().private_key_to_pem_pkcs8().unwrap();
    files::write_private(&user.path(".globus/userkey.pem"), &key).unwrap();
    user.run(&["proxy", "init"])
        .expect(0, &["will refuse this proxy"]);
}
