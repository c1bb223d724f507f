//! Credentials in files, and new proxies.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use godwit_gsi::cert::files::{self, Locations};
use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, DelegationRequest, ProxyRequest};
use godwit_gsi::cert::{Credential, CredentialError, ProxyKind, ProxyPolicy};
use tempfile::TempDir;

use crate::pki::{Blueprint, DAY, HOUR, KEY_USAGE, USAGE_NO_SIGNATURES, ec_key, now, rsa_key};

fn user() -> Credential {
    let authority = Blueprint::authority("/O=Grid/CN=CA").self_signed();
    Blueprint::user("/O=Grid/CN=Jo").issued_by(&authority)
}

fn written(credential: &Credential) -> (TempDir, std::path::PathBuf) {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("x509up_u1");
    files::write_private(&path, &credential.to_pem().expect("pem")).expect("writes");
    (folder, path)
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("chmod");
}

#[test]
fn a_proxy_survives_its_file() {
    for key in [KeyKind::EcP256, KeyKind::Rsa(2048)] {
        let made = proxy::create(&user(), &ProxyRequest::default(), key, now()).expect("makes");
        let (_folder, path) = written(&made);
        let mode = fs::metadata(&path).expect("metadata").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let read = files::load_proxy(&path).expect("reads");
        assert_eq!(read.certificate(), made.certificate());
        assert_eq!(read.chain(), made.chain());
        assert!(read.key().public_eq(made.key()));
        let info = read.info();
        assert_eq!(info.identity.as_str(), "/O=Grid/CN=Jo");
        assert_eq!(info.kind, "RFC 3820 proxy, full");
        assert_eq!(info.not_after, now() + Duration::from_secs(12 * 3600));
    }
}

#[test]
fn a_file_that_others_can_read_is_refused() {
    let (_folder, path) = written(&user());
    for mode in [0o640, 0o604, 0o660, 0o777] {
        set_mode(&path, mode);
        let error = files::load_proxy(&path).expect_err("refuses");
        assert!(
            matches!(error, CredentialError::Permissions { mode: told, .. } if told == mode),
            "{error}"
        );
        assert!(error.to_string().contains("chmod 600"), "{error}");
    }
    set_mode(&path, 0o400);
    files::load_proxy(&path).expect("accepts");
}

#[test]
fn a_file_of_somebody_else_is_refused() {
    if files::effective_uid() != 0 {
        println!("skip: only root can give files away");
        return;
    }
    let (_folder, path) = written(&user());
    std::os::unix::fs::chown(&path, Some(12_345), None).expect("chown");
    let error = files::load_proxy(&path).expect_err("refuses");
    assert!(
        matches!(error, CredentialError::Owner { owner: 12_345, .. }),
        "{error}"
    );
}

#[test]
fn private_files_are_written_whole_by_several_at_a_time_and_leave_nothing_else() {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("proxy");
    // Of a process with our number that was killed, before names were random.
    let left = folder
        .path()
        .join(format!("proxy.new{}", std::process::id()));
    fs::write(&left, "left").expect("writes");
    std::thread::scope(|scope| {
        for byte in 0..8_u8 {
            let path = &path;
            let content = vec![byte; 10_000];
            scope.spawn(move || files::write_private(path, &content).expect("writes"));
        }
    });
    let content = fs::read(&path).expect("reads");
    assert!(content.len() == 10_000 && content.iter().all(|byte| *byte == content[0]));
    let mode = fs::metadata(&path).expect("metadata").permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert!(files::write_private(&folder.path().join("no/proxy"), b"").is_err());
    assert_eq!(fs::read_dir(&folder).expect("lists").count(), 2);
}

#[test]
fn errors_of_files_name_the_file() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("proxy");
    let told = |content: &[u8]| {
        let _ = fs::remove_file(&path);
        files::write_private(&path, content).expect("writes");
        let error = files::load_proxy(&path).expect_err("refuses").to_string();
        assert!(error.contains("proxy: "), "{error}");
        error
    };
    let error = files::load_proxy(&path).expect_err("refuses").to_string();
    assert!(
        error.contains("no such file: run `godwit proxy init`"),
        "{error}"
    );
    let error = files::load_proxy(folder.path()).expect_err("refuses");
    assert!(error.to_string().contains("not a regular file"), "{error}");

    let pem = user().to_pem().expect("pem");
    let text = String::from_utf8(pem.clone()).expect("text");
    let (certificate, key) = text.split_at(text.find("-----BEGIN PRIVATE").expect("a key"));
    assert!(told(b"").contains("no certificate found"));
    assert!(told(certificate.as_bytes()).contains("no private key found"));
    assert!(told(key.as_bytes()).contains("no certificate found"));
    let other = user().to_pem().expect("pem");
    let other = String::from_utf8(other).expect("text");
    let other_key = &other[other.find("-----BEGIN PRIVATE").expect("a key")..];
    let mixed = told(format!("{certificate}{other_key}").as_bytes());
    assert!(
        mixed.contains("does not belong to the certificate of /O=Grid/CN=Jo"),
        "{mixed}"
    );
    let cut = told(&pem[200..]);
    assert!(cut.contains("certificate"), "{cut}");
    assert!(told(&certificate.repeat(40).into_bytes()).contains("more than 32 certificates"));
    assert!(told(&vec![b'x'; 2 << 20]).contains("larger than"));
}

#[test]
fn an_encrypted_key_without_passphrase_is_an_error() {
    let user = Blueprint::user("/O=Grid/CN=Jo")
        .key(rsa_key())
        .issued_by(&Blueprint::authority("/O=Grid/CN=CA").self_signed());
    let folder = TempDir::new().expect("a folder");
    let certificate = folder.path().join("usercert.pem");
    let key = folder.path().join("userkey.pem");
    let pem = user.certificate().as_x509().to_pem().expect("pem");
    fs::write(&certificate, pem).expect("writes");
    let cipher = openssl::symm::Cipher::aes_128_cbc();
    let encrypted = [
        user.key()
            .private_key_to_pem_pkcs8_passphrase(cipher, b"sesame"),
        user.key()
            .rsa()
            .expect("rsa")
            .private_key_to_pem_passphrase(cipher, b"sesame"),
    ];
    for pem in encrypted {
        let _ = fs::remove_file(&key);
        files::write_private(&key, &pem.expect("pem")).expect("writes");
        for wrong in [None, Some(&b"wrong"[..]), Some(&[b'x'; 4096][..])] {
            let error = files::load_pair(&certificate, &key, wrong).expect_err("refuses");
            assert!(error.to_string().contains("passphrase"), "{error}");
        }
        files::load_pair(&certificate, &key, Some(b"sesame")).expect("opens");
    }
}

#[test]
fn places_follow_the_environment() {
    let resolve = |variables: &[(&str, &str)], uid| {
        let found = |name: &str| {
            let mut all = variables.iter();
            all.find(|(known, _)| *known == name)
                .map(|(_, value)| value.into())
        };
        Locations::new(found, uid)
    };
    let plain = resolve(&[("HOME", "/home/jo"), ("X509_USER_PROXY", "")], 7);
    assert_eq!(plain.proxy, Path::new("/tmp/x509up_u7"));
    assert_eq!(plain.user[0].0, Path::new("/home/jo/.globus/usercert.pem"));
    assert_eq!(plain.host[0].1, Path::new("/etc/grid-security/hostkey.pem"));
    assert_eq!(
        plain.authorities[1],
        Path::new("/etc/grid-security/certificates")
    );
    assert_eq!(plain.gridmap, Path::new("/home/jo/.gridmap"));
    let root = resolve(&[("HOME", "/root")], 0);
    assert_eq!(root.gridmap, Path::new("/etc/grid-security/grid-mapfile"));
    let named = resolve(
        &[
            ("X509_USER_PROXY", "/p"),
            ("X509_USER_CERT", "/c"),
            ("X509_USER_KEY", "/k"),
            ("X509_CERT_DIR", "/ca"),
            ("GRIDMAP", "/map"),
        ],
        7,
    );
    assert_eq!(named.proxy, Path::new("/p"));
    assert_eq!(named.user[0], ("/c".into(), "/k".into()));
    assert_eq!(named.host[0], ("/c".into(), "/k".into()));
    assert_eq!(named.authorities, [Path::new("/ca")]);
    assert_eq!(named.gridmap, Path::new("/map"));
}

#[test]
fn proxies_say_what_they_are() {
    let user = user();
    for (kind, name) in [
        (ProxyKind::Rfc3820, "RFC 3820"),
        (ProxyKind::Gt3, "draft (GT 3)"),
        (ProxyKind::Legacy, "legacy (GT 2)"),
    ] {
        for (policy, word) in [
            (ProxyPolicy::Impersonation, "full"),
            (ProxyPolicy::Limited, "limited"),
            (ProxyPolicy::Independent, "independent"),
        ] {
            let request = ProxyRequest {
                kind,
                policy: policy.clone(),
                ..ProxyRequest::default()
            };
            let made = proxy::create(&user, &request, KeyKind::EcP256, now());
            if (kind, &policy) == (ProxyKind::Legacy, &ProxyPolicy::Independent) {
                made.expect_err("a legacy proxy cannot say so");
                continue;
            }
            let made = made.expect("makes");
            assert_eq!(made.info().kind, format!("{name} proxy, {word}"));
            let info = made.certificate().proxy().expect("a proxy");
            assert_eq!((info.kind, &info.policy), (kind, &policy));
            assert!(made.certificate().extends_issuer());
            assert!(made.certificate().is_signed_by(user.certificate()));
            let usage = made.certificate().extensions().key_usage.expect("copied");
            assert!(usage.digital_signature());
        }
    }
}

#[test]
fn a_proxy_is_never_more_than_its_issuer() {
    let user = user();
    let limited = proxy::create(&user, &ProxyRequest::limited(), KeyKind::EcP256, now());
    let limited = limited.expect("makes");
    // Kind and limits are the issuer's, the end is not behind the issuer's.
    let wanted = ProxyRequest {
        kind: ProxyKind::Legacy,
        lifetime: Duration::from_secs(1_000_000_000),
        path_length: Some(1),
        ..ProxyRequest::default()
    };
    let below = proxy::create(&limited, &wanted, KeyKind::EcP256, now()).expect("makes");
    let info = below.certificate().proxy().expect("a proxy");
    assert_eq!(info.kind, ProxyKind::Rfc3820);
    assert_eq!(info.policy, ProxyPolicy::Limited);
    assert_eq!(below.not_after(), limited.not_after());
    assert_eq!(below.identity().as_str(), "/O=Grid/CN=Jo");
    let last = proxy::create(&below, &wanted, KeyKind::EcP256, now()).expect("makes");
    let info = last.certificate().proxy().expect("a proxy");
    assert_eq!(info.path_length, Some(0));
    let error = proxy::create(&last, &wanted, KeyKind::EcP256, now()).expect_err("refuses");
    assert!(error.to_string().contains("path length of 0"), "{error}");
}

#[test]
fn an_invalid_issuer_is_refused_with_the_reason() {
    let authority = Blueprint::authority("/O=Grid/CN=CA").self_signed();
    let refused = |issuer: &Credential| {
        let made = proxy::create(issuer, &ProxyRequest::default(), KeyKind::EcP256, now());
        made.expect_err("refuses").to_string()
    };
    assert!(refused(&authority).contains("is a CA"));
    let expired = Blueprint::user("/O=Grid/CN=Jo").valid(-2 * DAY, -HOUR);
    assert!(refused(&expired.issued_by(&authority)).contains("has expired"));
    let cipher_only =
        Blueprint::new("/O=Grid/CN=Jo").extension(KEY_USAGE, true, USAGE_NO_SIGNATURES);
    assert!(refused(&cipher_only.issued_by(&authority)).contains("not for signatures"));
}

#[test]
fn delegation_gives_the_peer_a_proxy_with_its_own_key() {
    let user = user();
    let mine = proxy::create(&user, &ProxyRequest::default(), KeyKind::EcP256, now());
    let mine = mine.expect("makes");
    let shown: Vec<_> = [mine.certificate().clone()]
        .into_iter()
        .chain(mine.chain().iter().cloned())
        .collect();
    let asked = DelegationRequest::new().expect("asks");
    let signed = proxy::sign_request(&mine, asked.der(), &ProxyRequest::limited(), now());
    let signed = signed.expect("signs").to_der().expect("der");
    let got = asked.finish(&signed, &shown).expect("fits");
    assert_eq!(got.identity().as_str(), "/O=Grid/CN=Jo");
    assert_eq!(got.info().kind, "RFC 3820 proxy, limited");
    assert!(!got.key().public_eq(mine.key()));

    // Another key, another issuer, no proxy at all.
    let other = DelegationRequest::with_key(ec_key()).expect("asks");
    assert_eq!(
        other.finish(&signed, &shown).err(),
        Some(CredentialError::Delegated)
    );
    let other = DelegationRequest::with_key(ec_key()).expect("asks");
    assert!(other.finish(&signed, &shown[1..]).is_err());
    let other = DelegationRequest::with_key(ec_key()).expect("asks");
    let plain = user.certificate().to_der().expect("der");
    assert!(other.finish(&plain, &shown).is_err());
}

#[test]
fn a_request_that_makes_no_sense_is_not_signed() {
    let user = user();
    let asked = DelegationRequest::with_key(ec_key()).expect("asks");
    let sign = |der: &[u8]| {
        let signed = proxy::sign_request(&user, der, &ProxyRequest::default(), now());
        signed.expect_err("refuses").to_string()
    };
    assert!(sign(b"").contains("cannot be read"));
    assert!(sign(&vec![0x30; 20_000]).contains("too long"));
    let mut forged = asked.der().to_vec();
    let last = forged.len() - 1;
    forged[last] ^= 1;
    let error = sign(&forged);
    assert!(error.contains("not signed by its own key") || error.contains("cannot be read"));
    let short = openssl::rsa::Rsa::generate(512).expect("a key");
    let short = openssl::pkey::PKey::from_rsa(short).expect("a key");
    let short = DelegationRequest::with_key(short).expect("asks");
    assert!(sign(short.der()).contains("below 1024"));
}

#[test]
fn keys_are_not_shown() {
    let shown = format!("{:?}", user());
    assert!(
        shown.contains("***") && !shown.contains("PRIVATE"),
        "{shown}"
    );
}
