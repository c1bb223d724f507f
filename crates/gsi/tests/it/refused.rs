//! Every kind of bad credential, refused with its own message.

use std::collections::BTreeSet;

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Certificate, Credential, ProxyKind};
use godwit_gsi::verify::{Policy, verify};
use openssl::hash::MessageDigest;
use openssl::pkey::PKey;

use crate::grid::{Grid, policy_name, sent};
use crate::pki::*;

/// What is refused: a grid, what the peer sends, and what the message must say.
struct Case {
    name: &'static str,
    grid: Grid,
    sent: Vec<Certificate>,
    message: String,
}

#[derive(Default)]
struct Cases(Vec<Case>);

impl Cases {
    fn add(&mut self, name: &'static str, grid: Grid, bad: &Credential, message: &str) {
        self.add_sent(name, grid, sent(bad), message);
    }

    fn add_sent(&mut self, name: &'static str, grid: Grid, sent: Vec<Certificate>, message: &str) {
        self.0.push(Case {
            name,
            grid,
            sent,
            message: message.to_owned(),
        });
    }

    /// A proxy below the user.
    fn proxy(
        &mut self,
        name: &'static str,
        change: impl FnOnce(Blueprint) -> Blueprint,
        message: &str,
    ) {
        let grid = Grid::new();
        let user = rsa_user(&grid);
        let good = Blueprint::proxy(&user, "1").extension(PROXY_CERT_INFO, true, &full());
        let bad = change(good).issued_by(&user);
        self.add(name, grid, &bad, message);
    }

    /// A holder below the CA.
    fn holder(
        &mut self,
        name: &'static str,
        change: impl FnOnce(Blueprint) -> Blueprint,
        message: &str,
    ) {
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").key(rsa_key()));
        let bad = change(Blueprint::user("/O=Grid/CN=Jo")).issued_by(&grid.authority);
        self.add(name, grid, &bad, message);
    }

    /// A root CA that is installed nevertheless.
    fn root(
        &mut self,
        name: &'static str,
        change: impl FnOnce(Blueprint) -> Blueprint,
        message: &str,
    ) {
        let grid = Grid::with(change(Blueprint::authority("/O=Grid/CN=CA")));
        let user = grid.user.clone();
        self.add(name, grid, &user, message);
    }
}

/// RSA keys sign with every digest, the broken ones too.
pub(crate) fn rsa_user(grid: &Grid) -> Credential {
    Blueprint::user("/O=Grid/CN=Jo")
        .key(rsa_key())
        .issued_by(&grid.authority)
}

pub(crate) fn full() -> Vec<u8> {
    proxy_cert_info(INHERIT_ALL, None, None)
}

fn limited() -> Vec<u8> {
    proxy_cert_info(LIMITED, None, None)
}

pub(crate) fn rsa(bits: u32) -> PKey<openssl::pkey::Private> {
    PKey::from_rsa(openssl::rsa::Rsa::generate(bits).unwrap()).unwrap()
}

fn proxies(cases: &mut Cases) {
    cases.proxy(
        "proxy expired",
        |b| b.valid(-DAY, -2 * HOUR),
        "the proxy /O=Grid/CN=Jo/CN=1 expired 2 h ago: run `godwit proxy init`",
    );
    cases.proxy(
        "proxy of tomorrow",
        |b| b.valid(600, DAY),
        "valid only in 10 min: one of the two clocks is wrong",
    );
    cases.proxy(
        "not critical",
        |b| {
            b.without(PROXY_CERT_INFO)
                .extension(PROXY_CERT_INFO, false, &full())
        },
        "proxyCertInfo that is not critical",
    );
    cases.proxy(
        "unknown language",
        |b| {
            b.without(PROXY_CERT_INFO).extension(
                PROXY_CERT_INFO,
                true,
                &proxy_cert_info("1.2.3.4", None, Some(b"x")),
            )
        },
        "restricted by a policy in the language 1.2.3.4",
    );
    cases.proxy(
        "any language",
        |b| {
            b.without(PROXY_CERT_INFO).extension(
                PROXY_CERT_INFO,
                true,
                &proxy_cert_info("1.3.6.1.5.5.7.21.0", None, None),
            )
        },
        "in the language 1.3.6.1.5.5.7.21.0",
    );
    cases.proxy(
        "policy text",
        |b| {
            b.without(PROXY_CERT_INFO).extension(
                PROXY_CERT_INFO,
                true,
                &proxy_cert_info(INHERIT_ALL, None, Some(b"x")),
            )
        },
        "policy text where its language has none",
    );
    cases.proxy(
        "proxy as CA",
        |b| b.extension(BASIC_CONSTRAINTS, true, CA_TRUE),
        "says that it is a CA",
    );
    cases.proxy(
        "proxy signs certificates",
        |b| b.extension(KEY_USAGE, true, &[3, 2, 2, 0x84]),
        "keyCertSign",
    );
    cases.proxy(
        "proxy with host names",
        |b| {
            b.extension(
                ALTERNATIVE_NAMES,
                false,
                &tlv(0x30, &tlv(0x82, b"a.example")),
            )
        },
        "has alternative names",
    );
    cases.proxy(
        "MD5 proxy",
        |b| b.digest(MessageDigest::md5()),
        "signed with MD5",
    );
    cases.proxy(
        "SHA-1 proxy",
        |b| b.digest(MessageDigest::sha1()),
        "signed with SHA-1",
    );
    cases.proxy(
        "short key",
        |b| b.key(rsa(1024)),
        "is RSA 1024, allowed are 2048 to 16384 bits",
    );
    cases.proxy(
        "small curve",
        |b| {
            let group =
                openssl::ec::EcGroup::from_curve_name(openssl::nid::Nid::X9_62_PRIME192V1).unwrap();
            b.key(PKey::from_ec_key(openssl::ec::EcKey::generate(&group).unwrap()).unwrap())
        },
        "is EC 192",
    );
    cases.proxy(
        "unknown critical extension",
        |b| b.extension("1.2.3.4.5", true, &[5, 0]),
        "critical extension 1.2.3.4.5",
    );

    let grid = Grid::new();
    let stranger = Blueprint::new("/O=Grid/CN=Eve/CN=1").extension(PROXY_CERT_INFO, true, &full());
    let stranger = stranger.issued_by(&grid.user);
    cases.add(
        "not the issuer's name",
        grid,
        &stranger,
        "is not named after its issuer",
    );

    let grid = Grid::new();
    let two = Blueprint::new("/O=Grid/CN=Jo/CN=1/CN=2").extension(PROXY_CERT_INFO, true, &full());
    let two = two.issued_by(&grid.user);
    cases.add(
        "two names more",
        grid,
        &two,
        "is not named after its issuer",
    );

    let grid = Grid::new();
    let unit = Blueprint::new("/O=Grid/CN=Jo/OU=1").extension(PROXY_CERT_INFO, true, &full());
    let unit = unit.issued_by(&grid.user);
    cases.add(
        "another attribute more",
        grid,
        &unit,
        "is not named after its issuer",
    );

    let grid = Grid::new();
    let plain = Blueprint::user("/O=Grid/CN=Jo/CN=1").issued_by(&grid.user);
    cases.add(
        "a user's certificate by a user",
        grid,
        &plain,
        "the issuer /O=Grid/CN=Jo is no CA",
    );

    let grid = Grid::new();
    let direct = Blueprint::proxy(&grid.authority, "1").extension(PROXY_CERT_INFO, true, &full());
    let direct = sent(&direct.issued_by(&grid.authority));
    let with_authority = [direct, sent(&grid.authority)].concat();
    cases.add_sent(
        "a proxy by a CA",
        grid,
        with_authority,
        "is issued by a CA; only persons",
    );

    let grid = Grid::new();
    let cipher = Blueprint::new("/O=Grid/CN=Jo").extension(KEY_USAGE, true, USAGE_NO_SIGNATURES);
    let cipher = cipher.issued_by(&grid.authority);
    let below = Blueprint::proxy(&cipher, "1").extension(PROXY_CERT_INFO, true, &full());
    let below = below.issued_by(&cipher);
    cases.add(
        "a key not for signatures",
        grid,
        &below,
        "key that is not for signatures",
    );

    let two_levels = |above: &[u8], below: Blueprint, oid: &str, content: &[u8]| {
        let grid = Grid::new();
        let first = Blueprint::proxy(&grid.user, "1").extension(PROXY_CERT_INFO, true, above);
        let first = first.issued_by(&grid.user);
        let subject = Blueprint::proxy(&first, "2").subject;
        let mut below = below.extension(oid, true, content);
        below.subject = subject;
        (grid, below.issued_by(&first))
    };
    let blank = || Blueprint::new("/CN=x");
    let (grid, bad) = two_levels(&limited(), blank(), PROXY_CERT_INFO, &full());
    cases.add(
        "full below limited",
        grid,
        &bad,
        "a full one below a limited one",
    );
    let (grid, bad) = two_levels(&full(), blank(), PROXY_CERT_INFO_GT3, &full());
    cases.add(
        "kinds mixed",
        grid,
        &bad,
        "kind draft (GT 3) below one of the kind RFC 3820",
    );
    let none_below = proxy_cert_info(INHERIT_ALL, Some(0), None);
    let (grid, bad) = two_levels(&none_below, blank(), PROXY_CERT_INFO, &full());
    cases.add(
        "path length",
        grid,
        &bad,
        "may have 0 proxies below it and has 1",
    );
    let (grid, bad) = two_levels(&full(), blank().valid(-DAY, DAY), PROXY_CERT_INFO, &full());
    let mut forgotten = sent(&bad);
    forgotten.remove(1);
    cases.add_sent(
        "a link is missing",
        grid,
        forgotten,
        "came without the certificate of its issuer /O=Grid/CN=Jo/CN=1",
    );

    let grid = Grid::new();
    let request = ProxyRequest {
        kind: ProxyKind::Legacy,
        ..ProxyRequest::limited()
    };
    let first = proxy::create(&grid.user, &request, KeyKind::EcP256, now()).unwrap();
    let second = Blueprint::proxy(&first, "proxy").issued_by(&first);
    cases.add(
        "legacy full below limited",
        grid,
        &second,
        "a full one below a limited one",
    );

    let grid = Grid::new();
    let forged = Blueprint::proxy(&grid.user, "1").extension(PROXY_CERT_INFO, true, &full());
    let own_key = forged.key.clone();
    let name = grid.user.certificate().as_x509().subject_name();
    let forged = vec![
        forged.signed_by(name, &own_key),
        grid.user.certificate().clone(),
    ];
    cases.add_sent(
        "a forged proxy",
        grid,
        forged,
        "the signature on the certificate of /O=Grid/CN=Jo/CN=1 is not by",
    );
}

fn holders(cases: &mut Cases) {
    cases.holder(
        "user expired",
        |b| b.valid(-9 * DAY, -3 * DAY),
        "the certificate of /O=Grid/CN=Jo expired 3 days ago: ask the CA",
    );
    cases.holder(
        "user of tomorrow",
        |b| b.valid(DAY, 2 * DAY),
        "valid only in 24 h",
    );
    cases.holder(
        "user MD5",
        |b| b.digest(MessageDigest::md5()),
        "/O=Grid/CN=Jo is signed with MD5",
    );
    cases.holder(
        "user short key",
        |b| b.key(rsa(1024)),
        "the key of /O=Grid/CN=Jo is RSA 1024",
    );
    cases.holder(
        "user DSA",
        |b| {
            let dsa = openssl::dsa::Dsa::generate(1024).unwrap();
            b.key(PKey::from_dsa(dsa).unwrap())
        },
        "is of a kind that is not supported",
    );
    cases.holder(
        "user as CA",
        |b| {
            b.without(KEY_USAGE)
                .extension(BASIC_CONSTRAINTS, true, CA_TRUE)
        },
        "is a CA's, not a person's",
    );
    cases.holder(
        "user's unknown critical extension",
        |b| b.extension("1.2.3.4.6", true, &[5, 0]),
        "critical extension 1.2.3.4.6",
    );
    cases.holder(
        "no name",
        |mut b| {
            b.subject.clear();
            b
        },
        "no subject",
    );

    let grid = Grid::new();
    let mut pretender = Blueprint::user("/O=x");
    pretender.subject = vec![("O".into(), "Grid/CN=Jo".into())];
    let pretender = pretender.issued_by(&grid.authority);
    cases.add(
        "a slash in a value",
        grid,
        &pretender,
        "could pass for another's",
    );

    cases.add_sent("nothing", Grid::new(), Vec::new(), "sent no certificate");
    let grid = Grid::new();
    let many = vec![grid.user.certificate().clone(); 33];
    cases.add_sent(
        "a chain without end",
        grid,
        many,
        "more than 32 certificates",
    );
}

fn authorities(cases: &mut Cases) {
    let grid = Grid::new();
    let stranger = Blueprint::authority("/O=Other/CN=CA").self_signed();
    let other = Blueprint::user("/O=Grid/CN=Jo").issued_by(&stranger);
    let hash = other.certificate().issuer_hash();
    let told = format!(
        "no CA with hash {hash:08x} (/O=Other/CN=CA) in {}: install",
        grid.path().display()
    );
    cases.add("an unknown CA", grid, &other, &told);

    let grid = Grid::new();
    let with_root = [sent(&other), sent(&stranger)].concat();
    cases.add_sent(
        "an unknown CA sent along",
        grid,
        with_root,
        "the root CA /O=Other/CN=CA (hash",
    );

    let grid = Grid::new();
    let own = Blueprint::user("/O=Grid/CN=Jo").self_signed();
    cases.add("signed by itself", grid, &own, "the root CA /O=Grid/CN=Jo");

    let grid = Grid::new();
    let impostor = Blueprint::authority("/O=Grid/CN=CA").self_signed();
    let forged = Blueprint::user("/O=Grid/CN=Jo").issued_by(&impostor);
    cases.add(
        "a CA of the same name",
        grid,
        &forged,
        "the signature on the certificate of /O=Grid/CN=Jo is not by /O=Grid/CN=CA",
    );

    cases.root(
        "root expired",
        |b| b.valid(-9 * DAY, -DAY),
        "the CA certificate /O=Grid/CN=CA expired 24 h ago: install",
    );
    cases.root(
        "root is no CA",
        |b| b.without(BASIC_CONSTRAINTS),
        "the issuer /O=Grid/CN=CA is no CA",
    );
    cases.root(
        "root may not sign",
        |b| b.without(KEY_USAGE).extension(KEY_USAGE, true, USAGE_END),
        "may not sign certificates (key usage)",
    );
    cases.root(
        "name constraints",
        |b| b.extension("2.5.29.30", true, &[0x30, 0]),
        "constrains names",
    );
    cases.root(
        "root's short key",
        |b| b.key(rsa(1024)),
        "the key of /O=Grid/CN=CA is RSA 1024",
    );

    let grid = Grid::with(
        Blueprint::authority("/O=Grid/CN=CA")
            .without(BASIC_CONSTRAINTS)
            .extension(BASIC_CONSTRAINTS, true, CA_TRUE_LENGTH_0),
    );
    let middle = Blueprint::authority("/O=Grid/CN=Sub").issued_by(&grid.authority);
    grid.set_policy(middle.certificate(), "'\"/O=Grid/*\"'");
    let below = Blueprint::user("/O=Grid/CN=Jo").issued_by(&middle);
    cases.add(
        "too many CAs",
        grid,
        &below,
        "may have 0 CAs below it and has 1",
    );

    let grid = Grid::new();
    let middle = Blueprint::authority("/O=Grid/CN=Sub").issued_by(&grid.authority);
    let below = Blueprint::user("/O=Grid/CN=Jo").issued_by(&middle);
    cases.add(
        "an intermediate without policy",
        grid,
        &below,
        "no signing policy for the CA /O=Grid/CN=Sub",
    );
}

fn policies_and_lists(cases: &mut Cases) {
    let with_user = |change: &dyn Fn(&Grid)| {
        let grid = Grid::new();
        change(&grid);
        let user = grid.user.clone();
        (grid, user)
    };
    let policy_of = |grid: &Grid| policy_name(grid.authority.certificate());
    let (grid, user) = with_user(&|grid| grid.remove(&policy_of(grid)));
    cases.add(
        "no signing policy",
        grid,
        &user,
        "no signing policy for the CA /O=Grid/CN=CA: install",
    );
    let (grid, user) =
        with_user(&|grid| grid.set_policy(grid.authority.certificate(), "'\"/O=Else/*\"'"));
    cases.add(
        "outside of the policy",
        grid,
        &user,
        "the CA /O=Grid/CN=CA may not certify /O=Grid/CN=Jo (signing policy",
    );
    let (grid, user) = with_user(&|grid| {
        grid.write(
            &policy_of(grid),
            b"access_id_CA X509 '/O=X'\npos_rights globus CA:sign\ncond_subjects globus '*'\n",
        )
    });
    cases.add(
        "policy of another",
        grid,
        &user,
        "has no entry for the CA /O=Grid/CN=CA",
    );
    let (grid, user) =
        with_user(&|grid| grid.write(&policy_of(grid), b"\nneg_rights globus CA:sign\n"));
    cases.add(
        "policy not understood",
        grid,
        &user,
        "signing_policy: line 2: expected access_id_CA",
    );
    let (grid, user) = with_user(&|grid| {
        grid.write(
            &format!("{:08x}.0", grid.authority.certificate().subject_hash()),
            b"junk",
        )
    });
    cases.add(
        "CA file is no certificate",
        grid,
        &user,
        ".0: no certificate found",
    );

    let (grid, user) = with_user(&|grid| grid.revoke(&[7, 4711], &grid.authority, (-DAY, DAY)));
    cases.add(
        "revoked",
        grid,
        &user,
        "the certificate of /O=Grid/CN=Jo was revoked by /O=Grid/CN=CA",
    );
    let (grid, user) = with_user(&|grid| grid.revoke(&[7], &grid.authority, (-9 * DAY, -2 * DAY)));
    cases.add(
        "list expired",
        grid,
        &user,
        "expired 2 days ago: fetch a new one",
    );
    let (grid, user) = with_user(&|grid| grid.revoke(&[7], &grid.authority, (DAY, 2 * DAY)));
    cases.add("list of tomorrow", grid, &user, "is not valid yet");
    let (grid, user) = with_user(&|grid| grid.revoke(&[7], &grid.user, (-DAY, DAY)));
    cases.add("list by somebody else", grid, &user, "is not signed by it");
    let (grid, user) = with_user(&|grid| {
        grid.write(
            &format!("{:08x}.r0", grid.authority.certificate().subject_hash()),
            b"junk",
        )
    });
    cases.add(
        "list is junk",
        grid,
        &user,
        "the revocation list cannot be read",
    );
    let (grid, user) = with_user(&|grid| grid.revoke(&[4711], &grid.authority, (-DAY, DAY)));
    let below = proxy::create(&user, &ProxyRequest::default(), KeyKind::EcP256, now()).unwrap();
    cases.add(
        "proxy of a revoked user",
        grid,
        &below,
        "/O=Grid/CN=Jo was revoked",
    );
}

#[test]
fn every_bad_credential_is_refused_with_its_own_message() {
    let mut cases = Cases::default();
    proxies(&mut cases);
    holders(&mut cases);
    authorities(&mut cases);
    policies_and_lists(&mut cases);
    assert!(cases.0.len() >= 40, "{} cases", cases.0.len());
    let mut messages = BTreeSet::new();
    let mut wrong = Vec::new();
    for case in cases.0 {
        let refused = verify(&case.sent, &case.grid.anchors(), &Policy::default(), now());
        let refusal = refused.expect_err(case.name).to_string();
        if !refusal.contains(&case.message) {
            wrong.push(format!("{}: {refusal}", case.name));
        }
        let folder = case.grid.path().display().to_string();
        messages.insert(refusal.replace(&folder, ""));
        // The same place with a good credential.
        let good = Grid::new();
        let good_proxy =
            proxy::create(&good.user, &ProxyRequest::default(), KeyKind::EcP256, now());
        good.verify(&good_proxy.expect("makes")).expect(case.name);
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(messages.len() >= 40, "{messages:#?}");
}
