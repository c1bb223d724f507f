//! Requests that want too much, that show tokens of others, or that lead outside.

use std::{fs, os::unix::fs::symlink, time::SystemTime};

use godwit_server::{CopyAuthorities, CopySettings};
use serde_json::{Value, json};

use crate::{
    harness::eventually,
    https::{Answer, KIM, ask, names},
    https_copies::{DONE, Fake, active, copy, ending, fails, ok, passive, pull, url},
    issuer::{Issuer, base64},
    tls::{AUDIENCE, ISSUER, Site, Wishes},
};

/// This range so many times.
fn times(range: &str, count: usize) -> String {
    vec![range; count].join(",")
}

#[test]
fn many_ranges_cost_no_more_than_the_file() {
    let site = passive();
    site.server.write("f", b"0123456789");
    site.server.write("large", [7; 5000]);
    let get = |path: &str, ranges: &str| {
        let head = format!("{KIM}Range: bytes={ranges}\r\n");
        ask(&site, "GET", path, &head, b"")
    };
    for ranges in [
        times("0-", 2),
        times("0-", 5000),
        times("0-9", 3000),
        times("-9", 1024),
        times("0-0", 11),
        times("0-0", 1025),
        times("10-", 1025),
        "0-6,3-9".to_owned(),
    ] {
        let answer = get("/f", &ranges).is(200);
        assert_eq!(answer.text(), "0123456789", "{ranges:.40}");
    }
    for ranges in [
        times("10-", 1024),
        "18446744073709551615-".to_owned(),
        "18446744073709551616-18446744073709551617".to_owned(),
    ] {
        let answer = get("/f", &ranges).is(416);
        assert_eq!(answer.header("content-range"), "bytes */10", "{ranges:.40}");
    }
    for ranges in ["0-18446744073709551615", "-99999999999999999999"] {
        assert_eq!(get("/f", ranges).is(206).text(), "0123456789", "{ranges}");
    }
    get("/f", &times("0-", 20_000)).is(431);
    // As many as are answered, each with a head of its own.
    let all: Vec<_> = (0..1024).map(|n| format!("{0}-{0}", 2 * n)).collect();
    let text = get("/large", &all.join(",")).is(206).text();
    assert_eq!(text.matches("Content-Range: bytes ").count(), 1024);
    assert!(text.len() < 1024 * 200, "{}", text.len());
}

/// A token that counts, and others with what is wrong with each.
fn tokens(site: &Site) -> (String, Vec<(&'static str, String)>) {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let now = now.unwrap().as_secs();
    let claims = |changes: Value| {
        let mut claims = json!({
            "iss": ISSUER, "sub": "robot", "aud": AUDIENCE, "exp": now + 3600, "wlcg.ver": "1.0",
            "scope": "storage.read:/ storage.modify:/",
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    };
    let signed = |changes: Value| site.issuer.token(&claims(changes));
    let right = claims(json!({}));
    let unsigned = json!({"alg": "none", "typ": "JWT"}).to_string();
    let unsigned = format!("{}.{}.", base64(unsigned), base64(right.to_string()));
    let other = Issuer::es256("k");
    let wrong = vec![
        (
            "audience",
            signed(json!({"aud": "https://other.example.org"})),
        ),
        ("it has ended", signed(json!({"exp": now - 3600}))),
        ("it has not begun", signed(json!({"nbf": now + 1800}))),
        (
            "issuer",
            signed(json!({"iss": "https://unknown.example.org/"})),
        ),
        ("the key of another issuer", other.token(&right)),
        ("no signature", unsigned),
    ];
    (signed(json!({})), wrong)
}

/// Wrong tokens delay no later request.
fn patient(copies: Option<CopySettings>) -> Site {
    let wishes = Wishes {
        https: true,
        ..Wishes::default()
    };
    Site::with(wishes, |settings| {
        settings.copies = copies;
        settings.bounds.free_failures = 1000;
    })
}

#[test]
fn tokens_of_others_and_of_other_times_are_refused() {
    let passive = passive();
    let site = patient(Some(CopySettings {
        hosts: vec!["127.0.0.0/8".parse().unwrap()],
        authorities: CopyAuthorities::File(passive.at("ca.pem")),
        ..CopySettings::default()
    }));
    site.server.write("f", b"old");
    let source = Fake::new(&passive, |_, stream| ok(stream, "", "new"));
    let copying = format!("Source: {}\r\n", source.url());
    let (right, wrong) = tokens(&site);
    let status = |token: &str, method: &str, path: &str, head: &str| {
        let head = format!("Authorization: Bearer {token}\r\n{head}");
        ask(&site, method, path, &head, b"").status()
    };
    for (what, token) in &wrong {
        for (method, path, head) in [
            ("GET", "/f", ""),
            ("PUT", "/f", ""),
            ("PUT", "/new", ""),
            ("DELETE", "/f", ""),
            ("MKCOL", "/new", ""),
            ("COPY", "/new", copying.as_str()),
        ] {
            assert_eq!(status(token, method, path, head), 401, "{what}: {method}");
        }
    }
    assert_eq!(source.heads().len(), 0);
    assert_eq!(names(&site, ""), ["f", "sam"]);
    assert_eq!(site.server.read("f"), b"old");
    assert_eq!(status(&right, "PUT", "/new", ""), 201);
    assert_eq!(status(&right, "COPY", "/new", &copying), 202);
    assert_eq!(site.server.read("new"), b"new");
}

#[test]
fn copies_with_tokens_that_the_other_server_refuses_store_nothing() {
    let passive = patient(None);
    let active = active(&passive);
    passive.server.write("f", b"theirs");
    active.server.write("g", b"ours");
    let with = |token: &str, header: &str, name: &str, path: &str| {
        let there = url(&passive, path);
        let token = format!("TransferHeaderAuthorization: Bearer {token}\r\n");
        copy(&active, name, &format!("{header}: {there}\r\n{token}"))
    };
    let (right, wrong) = tokens(&passive);
    for (_, token) in &wrong {
        fails(with(token, "Source", "/f", "/f"), "status code 401");
        fails(with(token, "Destination", "/g", "/g"), "status code 401");
    }
    eventually("nothing is left", || names(&active, "") == ["g", "sam"]);
    assert_eq!(names(&passive, ""), ["f", "sam"]);
    assert_eq!(ending(with(&right, "Source", "/f", "/f")), DONE);
    assert_eq!(ending(with(&right, "Destination", "/g", "/g")), DONE);
}

#[track_caller]
fn is_refused(answer: &Answer) {
    let status = answer.status();
    assert!(matches!(status, 403 | 404 | 409), "{status}");
}

#[test]
fn copies_lead_to_nothing_outside() {
    let passive = passive();
    let active = active(&passive);
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), b"secret").unwrap();
    for site in [&passive, &active] {
        symlink(outside.path(), site.server.path("out")).unwrap();
        site.server.write("f", b"inside");
    }
    let source = url(&passive, "/f");
    let within = |method: &str, path: &str, to: &str| {
        let head = format!("{KIM}Destination: {to}\r\n");
        ask(&active, method, path, &head, b"")
    };
    for path in [
        "/../x",
        "/%2e%2e/x",
        "/.%2E/x",
        "/sam/%2e%2e/%2e%2e/x",
        "/..%2fx",
        "/a%2Fx",
        "/x%00",
        "/x%0d%0ay",
        "/x%",
    ] {
        pull(&active, path, &source, "").is(400);
        fails(
            pull(&active, "/x", &url(&passive, path), ""),
            "status code 400",
        );
        for method in ["COPY", "MOVE"] {
            within(method, path, "/x").is(400);
            within(method, "/f", path).is(400);
            within(method, "/f", &format!("https://localhost{path}")).is(400);
        }
    }
    within("COPY", "/f", "//localhost/x").is(400);
    for path in ["/out/x", "/out/secret"] {
        is_refused(&pull(&active, path, &source, ""));
        for method in ["COPY", "MOVE"] {
            is_refused(&within(method, "/f", path));
        }
    }
    for method in ["COPY", "MOVE"] {
        is_refused(&within(method, "/out/secret", "/x"));
    }
    let secret = url(&passive, "/out/secret");
    fails(pull(&active, "/x", &secret, ""), "status code 403");
    is_refused(&copy(
        &active,
        "/out/secret",
        &format!("Destination: {}\r\n", url(&passive, "/x")),
    ));
    eventually("nothing is left", || {
        names(&active, "") == ["f", "out", "sam"]
    });
    assert_eq!(names(&passive, ""), ["f", "out", "sam"]);
    let entries = fs::read_dir(outside.path()).unwrap();
    assert_eq!(entries.count(), 1);
    assert_eq!(fs::read(outside.path().join("secret")).unwrap(), b"secret");
    assert_eq!(active.server.read("f"), b"inside");
    // Empty components are left out.
    assert_eq!(ending(pull(&active, "//sam//x", &source, "")), DONE);
    assert_eq!(active.server.read("sam/x"), b"inside");
}
