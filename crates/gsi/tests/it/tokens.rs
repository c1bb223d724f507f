//! Bearer tokens, good ones and such as attackers make.

use std::time::{Duration, SystemTime};

use godwit_gsi::token::{
    ANY_AUDIENCE, Audience, KeySet, KeySetError, TOKEN_BYTES_MAX, Token, TokenError, names_host,
};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::issuer::{Issuer, base64, keys};

const NOW: u64 = 1_800_000_000;

fn at(seconds: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(seconds)
}

fn claims() -> Value {
    json!({
        "iss": "https://issuer.example.org/", "sub": "jo", "aud": ["https://data.example.org"],
        "exp": NOW + 600, "nbf": NOW - 10, "iat": NOW - 10, "wlcg.ver": "1.0",
        "scope": "storage.read:/a openid", "wlcg.groups": ["/x"],
    })
}

fn verified(token: &str, keys: &KeySet) -> Result<String, TokenError> {
    Ok(Token::parse(token)?.verify(keys)?.scope)
}

#[test]
fn an_audience_names_hosts_by_name_or_url_with_or_without_a_port() {
    for (name, host) in [
        ("a.example.org", "a.example.org"),
        ("A.example.org.", "a.Example.org"),
        ("a.example.org:2811", "a.example.org"),
        ("https://a.example.org", "a.example.org"),
        ("https://a.example.org:8443/webdav?x#y", "a.example.org"),
        ("ftpes://192.0.2.1/", "192.0.2.1"),
        ("https://[2001:db8::1]:8443/", "2001:db8::1"),
        ("[2001:db8::1]", "2001:db8::1"),
        ("2001:db8::1", "2001:db8::1"),
    ] {
        assert!(names_host(name, host), "{name} {host}");
        assert!(Audience::One(name.to_owned()).includes_host(host));
    }
    for name in [
        "",
        "https://",
        "https:///a.example.org",
        "example.org",
        "b.a.example.org",
        "a.example.org.evil.example",
        "https://evil.example/a.example.org",
        "https://a.example.org@evil.example/",
        "https://evil.example@a.example.org/",
        "https://evil.example#a.example.org",
        "a.example.org:x",
        "*.example.org",
        "https://wlcg.cern.ch/jwt/v1/any/",
    ] {
        assert!(!names_host(name, "a.example.org"), "{name}");
        assert!(!Audience::One(name.to_owned()).includes_host("a.example.org"));
    }
    let any = Audience::Several(vec!["x".to_owned(), ANY_AUDIENCE.to_owned()]);
    assert!(any.includes_host("a.example.org"));
    assert!(!Audience::default().includes_host("a.example.org"));
}

#[test]
fn only_tokens_signed_by_the_issuer_are_accepted() {
    let rsa = Issuer::rs256("r", 2048);
    for issuer in [&Issuer::es256("e"), &rsa, &Issuer::ed25519("d")] {
        let token = issuer.token(&claims());
        let accepted = verified(&token, &issuer.keys());
        assert_eq!(
            accepted.as_deref(),
            Ok("storage.read:/a openid"),
            "{}",
            issuer.algorithm
        );
        let parsed = Token::parse(&token).unwrap();
        assert_eq!(parsed.issuer(), "https://issuer.example.org/");
        // Other claims under the same signature.
        let mut greedy = claims();
        greedy["scope"] = "storage.modify:/".into();
        let parts: Vec<&str> = token.split('.').collect();
        let forged = [parts[0], &base64(greedy.to_string()), parts[2]].join(".");
        assert_eq!(
            verified(&forged, &issuer.keys()),
            Err(TokenError::Signature)
        );
        for signature in ["", "AAAA", &base64([0; 64]), &base64([0; 256])] {
            let forged = [parts[0], parts[1], signature].join(".");
            assert_eq!(
                verified(&forged, &issuer.keys()),
                Err(TokenError::Signature)
            );
        }
    }
    // Somebody else's key of the same name.
    let token = Issuer::es256("e").token(&claims());
    let other = Issuer::es256("e").keys();
    assert_eq!(verified(&token, &other), Err(TokenError::Signature));
}

#[test]
fn the_key_decides_on_the_algorithm() {
    let (ec, rsa) = (Issuer::es256("k"), Issuer::rs256("k", 2048));
    let both = keys(&[&ec.jwk, &rsa.jwk]);
    for (header, expected) in [
        (json!({"alg": "none", "kid": "k"}), TokenError::Algorithm),
        (json!({"alg": "HS256", "kid": "k"}), TokenError::Algorithm),
        (json!({"alg": "es256", "kid": "k"}), TokenError::Algorithm),
        (json!({"alg": "RS256", "kid": "k"}), TokenError::Signature),
        (json!({"alg": "EdDSA", "kid": "k"}), TokenError::UnknownKey),
        (
            json!({"alg": "ES256", "kid": "other"}),
            TokenError::UnknownKey,
        ),
    ] {
        let token = ec.sign(&header, &claims());
        assert_eq!(verified(&token, &both), Err(expected), "{header}");
    }
    let nameless = ec.sign(&json!({"alg": "ES256"}), &claims());
    assert!(
        verified(&nameless, &both).is_ok(),
        "all keys of the kind are tried"
    );
    let critical = ec.sign(&json!({"alg": "ES256", "crit": ["exp"]}), &claims());
    assert!(matches!(
        verified(&critical, &both),
        Err(TokenError::Malformed(_))
    ));
}

#[test]
fn audience_and_time_are_checked() {
    let here = [
        "https://other".to_owned(),
        "https://data.example.org".to_owned(),
    ];
    let issuer = Issuer::ed25519("k");
    let check = |change: &dyn Fn(&mut Value), now: u64| {
        let mut claims = claims();
        change(&mut claims);
        let token = issuer.token(&claims);
        let claims = Token::parse(&token)?.verify(&issuer.keys())?;
        claims.check(&here, at(now))
    };
    assert_eq!(check(&|_| {}, NOW), Ok(()));
    assert_eq!(
        check(&|c| c["aud"] = "https://data.example.org".into(), NOW),
        Ok(())
    );
    for aud in [json!("https://data.example.org/"), json!([]), json!("any")] {
        assert_eq!(
            check(&|c| c["aud"] = aud.clone(), NOW),
            Err(TokenError::Audience)
        );
    }
    let without =
        |name: &'static str| move |c: &mut Value| drop(c.as_object_mut().unwrap().remove(name));
    assert_eq!(check(&without("aud"), NOW), Err(TokenError::Audience));
    assert_eq!(check(&|_| {}, NOW + 599), Ok(()));
    assert_eq!(
        check(&|_| {}, NOW + 600),
        Err(TokenError::Expired(Duration::ZERO))
    );
    assert!(check(&without("nbf"), NOW).is_ok());
    assert!(
        check(&|c| c["nbf"] = (NOW + 60).into(), NOW).is_ok(),
        "clocks differ"
    );
    for name in ["nbf", "iat"] {
        let later = check(&|c| c[name] = (NOW + 61).into(), NOW);
        assert_eq!(later, Err(TokenError::NotYetValid(Duration::from_secs(61))));
    }
    // Times that no clock can show: never valid, or valid no more.
    for name in ["nbf", "iat"] {
        let never = check(&|c| c[name] = json!(1e300), NOW);
        assert!(matches!(never, Err(TokenError::NotYetValid(_))), "{name}");
    }
    let expired = check(&|c| c["exp"] = json!(1e300), NOW);
    assert!(matches!(expired, Err(TokenError::Expired(_))));
    // Types are what they are.
    for (name, value) in [
        ("exp", json!("1900000000")),
        ("exp", Value::Null),
        ("nbf", json!("0")),
        ("iss", json!(["https://issuer.example.org/"])),
        ("scope", json!(["storage.read:/"])),
        ("aud", json!({"a": 1})),
    ] {
        let refused = check(&|c| c[name] = value.clone(), NOW);
        assert!(
            matches!(refused, Err(TokenError::Malformed(_))),
            "{name}: {value}"
        );
    }
    assert!(matches!(
        check(&without("exp"), NOW),
        Err(TokenError::Malformed(_))
    ));
    assert!(matches!(
        check(&without("iss"), NOW),
        Err(TokenError::Malformed(_))
    ));
    for exp in [json!(-1), json!(1e300), json!(0)] {
        let refused = check(&|c| c["exp"] = exp.clone(), NOW);
        assert!(matches!(refused, Err(TokenError::Expired(_))), "{exp}");
    }
    let fraction = check(&|c| c["exp"] = json!(NOW as f64 + 0.5), NOW);
    assert_eq!(fraction, Ok(()));
}

#[test]
fn keys_of_no_use_are_skipped() {
    let good = Issuer::es256("k");
    let mut for_secrets = good.jwk.clone();
    for_secrets["use"] = "enc".into();
    let mut other_curve = good.jwk.clone();
    other_curve["crv"] = "P-384".into();
    let mut off_curve = good.jwk.clone();
    off_curve["x"] = base64([1; 32]).into();
    let mut for_another = good.jwk.clone();
    for_another["alg"] = "ES384".into();
    let weak = Issuer::rs256("w", 1024).jwk;
    let secret = json!({"kty": "oct", "k": "c2VjcmV0", "kid": "k"});
    let useless = [
        for_secrets,
        other_curve,
        off_curve,
        for_another,
        weak,
        secret,
        json!(7),
        json!({}),
    ];
    for key in &useless {
        let set = KeySet::parse(json!({ "keys": [key] }).to_string().as_bytes());
        assert_eq!(set.err(), Some(KeySetError::Empty), "{key}");
    }
    let mut all: Vec<&Value> = useless.iter().collect();
    all.push(&good.jwk);
    assert!(verified(&good.token(&claims()), &keys(&all)).is_ok());
    for text in ["", "[]", "{}", "{\"keys\": 1}"] {
        let set = KeySet::parse(text.as_bytes());
        assert!(matches!(set, Err(KeySetError::Malformed(_))), "{text}");
    }
}

#[test]
fn malformed_tokens_are_refused_and_never_shown() {
    let good = Issuer::ed25519("k").token(&claims());
    for text in [
        "",
        "a.b",
        "a.b.c.d",
        "..",
        "se cret.x.y",
        &good.replace('.', "="),
        &format!("{good}.x"),
        &format!("{good}="),
        &"A".repeat(TOKEN_BYTES_MAX + 1),
    ] {
        let error = Token::parse(text).unwrap_err();
        assert!(matches!(error, TokenError::Malformed(_)));
        assert!(!error.to_string().contains("cret"));
    }
    assert_eq!(
        format!("{:?}", Token::parse(&good).unwrap()),
        "Token { .. }"
    );
}

proptest! {
    #[test]
    fn noise_never_panics(text in "[A-Za-z0-9_.-]{0,200}", bytes: Vec<u8>) {
        let issuer = keys(&[&json!({"kty": "OKP", "crv": "Ed25519", "x": base64([9; 32])})]);
        if let Ok(token) = Token::parse(&text) {
            prop_assert!(token.verify(&issuer).is_err());
        }
        let _ = KeySet::parse(&bytes);
    }
}
