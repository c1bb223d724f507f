//! Good credentials of all kinds are accepted, and what is a matter of choice.

use std::sync::Arc;
use std::time::Duration;

use godwit_gsi::cert::key::KeyKind;
use godwit_gsi::cert::proxy::{self, ProxyRequest};
use godwit_gsi::cert::{Credential, ProxyKind, ProxyPolicy};
use godwit_gsi::verify::refusal::ProxyFault;
use godwit_gsi::verify::{Bundle, Extended, Policy, Refusal, Strength, verify};
use openssl::hash::MessageDigest;

use crate::bad::{full, rsa_1024};
use crate::grid::{Grid, sent};
use crate::pki::*;

#[test]
fn good_proxies_of_all_kinds_are_accepted() {
    let grid = Grid::new();
    for kind in [ProxyKind::Rfc3820, ProxyKind::Gt3, ProxyKind::Legacy] {
        for key in [KeyKind::EcP256, KeyKind::Rsa(2048)] {
            let request = ProxyRequest {
                kind,
                ..ProxyRequest::default()
            };
            let first = proxy::create(&grid.user, &request, key, now()).expect("makes");
            let second = proxy::create(&first, &ProxyRequest::limited(), KeyKind::EcP256, now());
            let second = second.expect("makes");
            let peer = grid.verify(&first).expect("accepts");
            assert_eq!(peer.identity().as_str(), "/O=Grid/CN=Jo");
            assert!(!peer.is_limited());
            assert_eq!(peer.not_after(), first.not_after());
            assert_eq!(peer.chain().len(), 2);
            let peer = grid.verify(&second).expect("accepts");
            assert_eq!(peer.identity().as_str(), "/O=Grid/CN=Jo");
            assert_eq!(peer.holder(), grid.user.certificate());
            assert!(peer.is_limited());
        }
    }
}

#[test]
fn limited_proxies_are_a_matter_of_policy() {
    let grid = Grid::new();
    let limited = proxy::create(&grid.user, &ProxyRequest::limited(), KeyKind::EcP256, now());
    let limited = sent(&limited.expect("makes"));
    let strict = Policy {
        limited: false,
        ..Policy::default()
    };
    let refusal = verify(&limited, &grid.anchors(), &strict, now()).expect_err("refuses");
    assert!(matches!(refusal, Refusal::Limited { .. }), "{refusal}");
    verify(&limited, &grid.anchors(), &Policy::default(), now()).expect("accepts");
    verify(&sent(&grid.user), &grid.anchors(), &strict, now()).expect("accepts");
}

#[test]
fn an_independent_proxy_is_nobody_but_itself() {
    let grid = Grid::new();
    let request = ProxyRequest {
        policy: ProxyPolicy::Independent,
        ..ProxyRequest::default()
    };
    let independent = proxy::create(&grid.user, &request, KeyKind::EcP256, now()).expect("makes");
    let below = proxy::create(
        &independent,
        &ProxyRequest::default(),
        KeyKind::EcP256,
        now(),
    );
    let own = independent.certificate().subject();
    assert_ne!(own.as_str(), "/O=Grid/CN=Jo");
    assert_eq!(grid.verify(&independent).expect("accepts").identity(), own);
    let below = below.expect("makes");
    assert_eq!(grid.verify(&below).expect("accepts").identity(), own);
    assert_eq!(&below.identity(), own);
}

#[test]
fn the_order_of_what_was_sent_does_not_matter() {
    let grid = Grid::new();
    let middle = Blueprint::authority("/O=Grid/CN=Sub").issued_by(&grid.authority);
    grid.set_policy(middle.certificate(), "'\"/O=Grid/*\"'");
    let user = Blueprint::user("/O=Grid/CN=Jo").issued_by(&middle);
    let first = proxy::create(&user, &ProxyRequest::default(), KeyKind::EcP256, now()).unwrap();
    let second = proxy::create(&first, &ProxyRequest::default(), KeyKind::EcP256, now()).unwrap();
    let mut others = sent(&second);
    others.remove(0);
    others.push(grid.authority.certificate().clone());
    others.push(
        Blueprint::user("/O=Else/CN=Superfluous")
            .self_signed()
            .certificate()
            .clone(),
    );
    for turn in 0..others.len() {
        others.rotate_left(turn);
        let all = [vec![second.certificate().clone()], others.clone()].concat();
        let peer = verify(&all, &grid.anchors(), &Policy::default(), now()).expect("accepts");
        assert_eq!(peer.identity().as_str(), "/O=Grid/CN=Jo");
        assert_eq!(peer.path().len(), 5);
    }
    // An intermediate that is installed need not be sent.
    grid.install(middle.certificate());
    let without: Vec<_> = sent(&second).into_iter().take(3).collect();
    verify(&without, &grid.anchors(), &Policy::default(), now()).expect("accepts");
}

#[test]
fn old_strength_is_a_choice_and_md5_is_none() {
    let grid = Grid::new();
    let user = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key());
    let user = user.issued_by(&grid.authority);
    let legacy = Policy {
        strength: Strength::Legacy,
        ..Policy::default()
    };
    let old = Blueprint::proxy(&user, "1").extension(PROXY_CERT_INFO, true, &full());
    let sha1 = old
        .clone()
        .key(rsa_1024())
        .digest(MessageDigest::sha1())
        .issued_by(&user);
    verify(&sent(&sha1), &grid.anchors(), &legacy, now()).expect("accepts");
    let md5 = old.digest(MessageDigest::md5()).issued_by(&user);
    verify(&sent(&md5), &grid.anchors(), &legacy, now()).expect_err("refuses");
}

#[test]
fn a_renewed_authority_lies_beside_the_old() {
    let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").valid(-9 * DAY, -DAY));
    let key = grid.authority.key().clone();
    grid.verify(&grid.user)
        .expect_err("the old one has expired");
    let renewed = Blueprint::authority("/O=Grid/CN=CA").key(key).self_signed();
    grid.install(renewed.certificate());
    grid.verify(&grid.user).expect("accepts");
}

#[test]
fn revocation_lists_that_do_not_name_the_user_do_not_matter() {
    let grid = Grid::new();
    grid.revoke(&[1, 2], &grid.authority, (-DAY, DAY));
    grid.verify(&grid.user).expect("accepts");
}

#[test]
fn a_bundle_trusts_without_policies_and_pins() {
    let grid = Grid::new();
    let bundle = Bundle::from_pem(
        "extra",
        &grid.authority.certificate().as_x509().to_pem().unwrap(),
    );
    let bundle = bundle.expect("reads");
    verify(&sent(&grid.user), &bundle, &Policy::default(), now()).expect("accepts");
    // A certificate made for one transfer, signed by itself with MD5, as `-data-cred auto` makes
    // it.
    let own = Blueprint::user("/C=US/CN=Globus DCSC Cert")
        .key(rsa_key())
        .digest(MessageDigest::md5())
        .self_signed();
    let refusal = verify(&sent(&own), &bundle, &Policy::default(), now()).expect_err("refuses");
    assert!(refusal.to_string().contains("is not in extra"), "{refusal}");
    let pinned = Bundle::new("pinned", vec![own.certificate().clone()]);
    let peer = verify(&sent(&own), &pinned, &Policy::default(), now()).expect("accepts");
    assert_eq!(peer.identity().as_str(), "/C=US/CN=Globus DCSC Cert");
}

#[test]
fn time_is_an_argument() {
    let grid = Grid::new();
    grid.verify_at(&grid.user, now() + Duration::from_secs(29 * 86_400))
        .expect("accepts");
    let late = now() + Duration::from_secs(30 * 86_400);
    let refusal = grid.verify_at(&grid.user, late).expect_err("refuses");
    assert!(refusal.to_string().contains("expired 0 s ago"), "{refusal}");
}

#[test]
fn extra_authorities_are_trusted_beside_the_directory() {
    let grid = Grid::new();
    let [other, third] =
        ["/O=Other/CN=CA", "/O=Third/CN=CA"].map(|name| Blueprint::authority(name).self_signed());
    let kim = Blueprint::user("/O=Other/CN=Kim").issued_by(&other);
    let alone = Blueprint::user("/CN=thrown away").self_signed();
    let lee = Blueprint::user("/O=Third/CN=Lee").issued_by(&third);
    let extra = [&other, &alone, &lee].map(|one| one.certificate().clone());
    let anchors = Extended::new(Arc::new(grid.anchors()), extra.to_vec());
    let verify = |one| verify(&sent(one), &anchors, &Policy::default(), now());
    for known in [&grid.user, &kim, &alone] {
        let peer = verify(known).expect("accepts");
        assert_eq!(peer.identity(), known.certificate().subject());
    }
    // An end entity signs no certificate, not its own either.
    assert!(matches!(verify(&lee), Err(Refusal::NoAuthority { .. })));
    assert!(grid.verify(&kim).is_err() && grid.verify(&alone).is_err());
}

/// Each signature that is verified costs time, and anybody may send these.
#[test]
fn a_ring_of_links_is_left_at_once() {
    let grid = Grid::new();
    let own = Blueprint::user("/O=Grid/CN=Jo").extension(PROXY_CERT_INFO, true, &full());
    let own = vec![own.self_signed().certificate().clone(); 32];
    let refusal = verify(&own, &grid.anchors(), &Policy::default(), now()).expect_err("refuses");
    let is_name = |fault: &ProxyFault| *fault == ProxyFault::Name;
    assert!(
        matches!(&refusal, Refusal::Proxy { fault, .. } if is_name(fault)),
        "{refusal}"
    );

    let [one, two] =
        ["/O=Ring/CN=One", "/O=Ring/CN=Two"].map(|name| Blueprint::authority(name).self_signed());
    let by = |whose: &Credential, issuer: &Credential| {
        let own = Blueprint::authority(whose.certificate().subject().as_str());
        let own = own.key(whose.key().clone());
        own.signed_by(issuer.certificate().as_x509().subject_name(), issuer.key())
    };
    let jo = Blueprint::user("/O=Ring/CN=Jo").issued_by(&one);
    let sent = [jo.certificate().clone(), by(&one, &two), by(&two, &one)];
    let refusal = verify(&sent, &grid.anchors(), &Policy::default(), now()).expect_err("refuses");
    let is_one = |issuer: &str| issuer == "/O=Ring/CN=One";
    assert!(
        matches!(&refusal, Refusal::NoAuthority { issuer, .. } if is_one(issuer)),
        "{refusal}"
    );
}
