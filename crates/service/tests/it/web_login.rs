//! Logins on the page, sessions, and who may send forms.

use std::time::{Duration, SystemTime};

use godwit_gsi::cert::Credential;
use reqwest::{Certificate, Client, Identity, Method, redirect::Policy};
use serde_json::{Value, json};

use crate::{
    browser::Browser,
    pki::{Blueprint, rsa_key},
    site::{Site, files},
};

const SESSION: &str = "godwit-session";

#[tokio::test(flavor = "multi_thread")]
async fn a_token_begins_a_session_and_logout_ends_it_on_the_server() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::new(&site);
    for path in ["/jobs", "/submit", "/shares", "/endpoints", "/operator"] {
        let answer = browser.get(path).await;
        assert_eq!(answer.status, 303, "{path}");
        assert!(answer.location().starts_with("/login"), "{path}");
    }
    assert_eq!(
        browser.get("/jobs?state=failed").await.location(),
        "/login?next=%2Fjobs%3Fstate%3Dfailed"
    );
    let answer = browser.log_in(&alice.token).await;
    assert_eq!((answer.status, answer.location()), (303, "/jobs"));
    let cookies = answer.set_cookies();
    let (value, attributes) = cookies[0].split_once(';').unwrap();
    assert_eq!(attributes, " Path=/; HttpOnly; SameSite=Lax");
    // 256 bits, of which the database has nothing.
    let secret = value
        .strip_prefix("godwit-session=gws_")
        .unwrap()
        .to_owned();
    assert_eq!(secret.len(), 43);
    let kept = site.database_bytes();
    assert!(!kept.windows(43).any(|part| part == secret.as_bytes()));
    assert!(browser.page("/jobs").await.contains("alice"));
    let before = browser.cookies.clone();
    let answer = browser.post("/logout", &[]).await;
    assert_eq!((answer.status, answer.location()), (303, "/login"));
    assert!(answer.set_cookies()[0].contains("Max-Age=0"));
    browser.cookies = before;
    assert_eq!(browser.get("/jobs").await.status, 303);
    assert_eq!(alice.get("/me").await["name"], "alice");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_makes_a_new_session_and_ends_the_one_before() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::new(&site);
    let planted = format!("gws_{}", "A".repeat(43));
    browser.cookies.insert(SESSION.to_owned(), planted.clone());
    browser.log_in(&alice.token).await;
    let first = browser.cookies[SESSION].clone();
    assert_ne!(first, planted);
    browser.log_in(&alice.token).await;
    let second = browser.cookies[SESSION].clone();
    assert_ne!(first, second);
    assert_eq!(browser.get("/jobs").await.status, 200);
    for ended in [planted, first, String::new(), "gws_".repeat(5000)] {
        browser.cookies.insert(SESSION.to_owned(), ended);
        assert_eq!(browser.get("/jobs").await.status, 303);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_with_what_it_began_with() {
    let site = Site::start(&[]).await;
    let operator = site.operator();
    let alice = site.user("alice", "user", &[]).await;
    // The token is removed.
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let mut other = Browser::logged_in(&site, &site.user("alice", "user", &[]).await.token).await;
    let tokens = alice.get("/tokens").await;
    let path = format!("/tokens/{}", tokens[0]["id"].as_str().unwrap());
    alice.ok(Method::DELETE, &path, Value::Null).await;
    assert_eq!(browser.get("/jobs").await.status, 303);
    assert_eq!(other.get("/jobs").await.status, 200);
    // The password is another one.
    let password = |text: &str| json!({"name": "alice", "role": "user", "password": text});
    operator
        .ok(Method::PUT, "/users", password("correct horse"))
        .await;
    let mut by_password = Browser::new(&site);
    let fields = [("user", "alice"), ("password", "correct horse")];
    assert_eq!(by_password.send("/login", &fields).await.status, 303);
    assert_eq!(by_password.get("/jobs").await.status, 200);
    operator
        .ok(Method::PUT, "/users", password("battery staple"))
        .await;
    assert_eq!(by_password.get("/jobs").await.status, 303);
    // The user is refused.
    let disabled = json!({"name": "alice", "role": "user", "disabled": true});
    operator.ok(Method::PUT, "/users", disabled).await;
    assert_eq!(other.get("/jobs").await.status, 303);
    // An agent is no user, nor is a user who has become one.
    let user = json!({"name": "alice", "role": "user"});
    operator.ok(Method::PUT, "/users", user).await;
    assert_eq!(other.get("/jobs").await.status, 200);
    let role = json!({"name": "alice", "role": "agent"});
    operator.ok(Method::PUT, "/users", role).await;
    assert_eq!(other.get("/jobs").await.status, 303);
    let agent = site.user("dtn1", "agent", &[]).await;
    assert_eq!(Browser::new(&site).log_in(&agent.token).await.status, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oldest_session_ends_where_there_are_too_many() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut first = Browser::logged_in(&site, &alice.token).await;
    // The clock of SQLite has milliseconds: the second is later.
    first.page("/jobs").await;
    let mut second = Browser::logged_in(&site, &alice.token).await;
    second.page("/jobs").await;
    for _ in 0..19 {
        Browser::logged_in(&site, &alice.token).await;
    }
    assert_eq!(first.get("/jobs").await.status, 303);
    assert_eq!(second.get("/jobs").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn logins_that_fail_are_limited_as_those_of_the_api() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::new(&site);
    let mut statuses = Vec::new();
    for n in 0..25 {
        let answer = browser.log_in(&format!("gwt_guess{n}")).await;
        assert!(answer.set_cookies().is_empty() && !answer.text.contains("guess"));
        statuses.push(answer.status);
    }
    assert_eq!(statuses[0], 401);
    let answer = browser.log_in("gwt_guess").await;
    assert_eq!(answer.status, 429, "{statuses:?}");
    assert!(answer.header("retry-after").parse::<u64>().unwrap() >= 1);
    let fields = [("user", "alice"), ("password", "guess")];
    assert_eq!(browser.send("/login", &fields).await.status, 429);
    let guess = site.with("gwt_guess");
    let api = guess.refused(Method::GET, "/me", Value::Null).await;
    assert_eq!(api.0, 429);
    // What is right is not held up.
    assert_eq!(browser.log_in(&alice.token).await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn names_and_passwords_that_nobody_has_are_not_remembered() {
    let site = Site::start(&[]).await;
    let mut browser = Browser::new(&site);
    let long = "m".repeat(60_000);
    for (user, password) in [
        (long.as_str(), "guess"),
        ("a\0b", "guess"),
        ("alice", &long[..2000]),
    ] {
        let answer = browser
            .send("/login", &[("user", user), ("password", password)])
            .await;
        assert_eq!(answer.status, 422);
        let body = json!({"user": user, "password": password});
        let api = site.with("").refused(Method::POST, "/login", body).await;
        assert_eq!(api.0, 422);
    }
    let kept = site.operator().get("/audit").await.to_string();
    assert!(!kept.contains("login.failed"), "{}", kept.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_leads_to_no_other_site() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let mut browser = Browser::new(&site);
    for (next, to) in [
        ("/shares", "/shares"),
        ("//evil.example.org", "/jobs"),
        ("/\\evil.example.org", "/jobs"),
        ("https://evil.example.org", "/jobs"),
        ("javascript:alert(1)", "/jobs"),
        ("/\t/evil.example.org", "/jobs"),
    ] {
        let fields = [("token", alice.token.as_str()), ("next", next)];
        assert_eq!(
            browser.send("/login", &fields).await.location(),
            to,
            "{next:?}"
        );
        let query = form_urlencoded::byte_serialize(next.as_bytes()).collect::<String>();
        let page = browser.page(&format!("/login?next={query}")).await;
        assert!(
            page.contains(&format!("value=\"{to}\"")) && !page.contains("evil"),
            "{next:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_of_other_sites_and_other_sessions_are_refused() {
    let site = Site::start(&[]).await;
    let (alice, bob) = (
        site.user("alice", "user", &[]).await,
        site.user("bob", "user", &[]).await,
    );
    let id = alice.submit(json!({"files": files(1)})).await;
    let mut browser = Browser::logged_in(&site, &alice.token).await;
    let foreign = Browser::logged_in(&site, &bob.token)
        .await
        .form_token()
        .await;
    let own = browser.form_token().await;
    let operator = Browser::logged_in(&site, &site.operator).await;
    let mut operator = operator;
    let own_of_operator = operator.form_token().await;
    let paths = [
        "/logout".to_owned(),
        format!("/jobs/{id}/pause"),
        format!("/jobs/{id}/cancel"),
        format!("/jobs/{id}/clone"),
        format!("/jobs/{id}/priority"),
        "/submit".to_owned(),
        "/agents".to_owned(),
        "/operator/endpoint".to_owned(),
        "/operator/link".to_owned(),
        "/operator/share".to_owned(),
    ];
    let evil = Some("https://evil.example.org".to_owned());
    let usual = browser.origin.clone();
    for path in &paths {
        for token in ["", "x", foreign.as_str()] {
            let answer = browser.send(path, &[("form", token)]).await;
            assert_eq!(answer.status, 403, "{path} {token}");
        }
        for origin in [None, evil.clone(), Some("null".to_owned())] {
            (browser.origin, operator.origin) = (origin.clone(), origin);
            let answer = browser.send(path, &[("form", &own)]).await;
            assert_eq!(answer.status, 403, "{path} {:?}", browser.origin);
            let answer = operator.send(path, &[("form", &own_of_operator)]).await;
            assert_eq!(answer.status, 403, "{path} {:?}", browser.origin);
        }
        (browser.origin, operator.origin) = (usual.clone(), usual.clone());
        for from in ["cross-site", "same-site"] {
            let headers = [("sec-fetch-site", from)];
            let answer = browser.send_with(path, &[("form", &own)], &headers).await;
            assert_eq!(answer.status, 403, "{path} {from}");
        }
    }
    for from in ["cross-site", "same-site"] {
        let fields = [("token", alice.token.as_str())];
        let answer = Browser::new(&site)
            .send_with("/login", &fields, &[("sec-fetch-site", from)])
            .await;
        assert_eq!((answer.status, answer.set_cookies().len()), (403, 0));
    }
    assert_eq!(alice.get(&format!("/jobs/{id}")).await["state"], "queued");
    assert_eq!(
        alice.get("/jobs").await["items"].as_array().unwrap().len(),
        1
    );
    assert_eq!(browser.get("/jobs").await.status, 200);
    let headers = [("sec-fetch-site", "same-origin")];
    let path = format!("/jobs/{id}/pause");
    let answer = browser.send_with(&path, &[("form", &own)], &headers).await;
    assert_eq!(answer.status, 303);
    assert_eq!(alice.get(&format!("/jobs/{id}")).await["state"], "paused");
}

#[tokio::test(flavor = "multi_thread")]
async fn by_tls_cookies_are_of_this_host_and_certificates_log_in() {
    let now = SystemTime::now();
    let authority = Blueprint::authority("/O=Grid/CN=CA").at(now).self_signed();
    let host = Blueprint::host("/CN=service", &["127.0.0.1"]).at(now);
    let host = host.issued_by(&authority);
    let jo = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key()).at(now);
    let jo = jo.issued_by(&authority);
    let keys = tempfile::tempdir().unwrap();
    let save = |name: &str, pem: &[u8]| {
        let path = keys.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let root = authority.certificate().as_x509().to_pem().unwrap();
    let pem = |credential: &Credential| {
        let certificate = credential.certificate().as_x509().to_pem().unwrap();
        (
            certificate,
            credential.key().private_key_to_pem_pkcs8().unwrap(),
        )
    };
    let (cert, key) = pem(&host);
    let (cert, key, ca) = (save("cert", &cert), save("key", &key), save("ca", &root));
    let flags = ["--cert", &cert, "--key", &key, "--client-ca", &ca];
    let mut site = Site::start(&flags).await;
    let client = || {
        Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .tls_certs_only([Certificate::from_pem(&root).unwrap()])
    };
    site.client = client().build().unwrap();
    let identities = ["dn:/O=Grid/CN=Jo"];
    let user = json!({"name": "jo", "role": "user", "identities": identities});
    site.operator().ok(Method::PUT, "/users", user).await;
    let (cert, key) = pem(&jo);
    let identity = Identity::from_pkcs8_pem(&cert, &key).unwrap();
    let with_certificate = client().identity(identity).build().unwrap();
    // It ends before its session would. Its connection is kept.
    let brief = Blueprint::user("/O=Grid/CN=Jo").key(rsa_key());
    let brief = brief.at(SystemTime::now()).valid(-60, 6);
    let (cert, key) = pem(&brief.issued_by(&authority));
    let identity = Identity::from_pkcs8_pem(&cert, &key).unwrap();
    let brief = client().identity(identity).build().unwrap();
    let mut brief = Browser::with(brief, &site.url);
    let answer = brief.send("/login/certificate", &[]).await;
    assert_eq!((answer.status, answer.location()), (303, "/jobs"));
    let mut browser = Browser::with(with_certificate.clone(), &site.url);
    assert!(browser.page("/login").await.contains("/O=Grid/CN=Jo"));
    let answer = browser.send("/login/certificate", &[]).await;
    assert_eq!((answer.status, answer.location()), (303, "/jobs"));
    let cookie = answer.set_cookies()[0].to_owned();
    assert!(cookie.starts_with("__Host-godwit-session=gws_"), "{cookie}");
    assert!(
        cookie.ends_with("; Path=/; HttpOnly; SameSite=Lax; Secure"),
        "{cookie}"
    );
    assert!(browser.page("/jobs").await.contains("jo"));
    // A page of another site has the browser show the certificate, too.
    let evil = [
        ("origin", "https://evil.example.org"),
        ("sec-fetch-site", "cross-site"),
    ];
    browser.origin = None;
    let answer = browser.send_with("/login/certificate", &[], &evil).await;
    assert_eq!((answer.status, answer.set_cookies().len()), (403, 0));
    let me = format!("{}/api/v1/me", site.url);
    assert_eq!(
        with_certificate.get(&me).send().await.unwrap().status(),
        200
    );
    let asked = with_certificate
        .get(&me)
        .header("sec-fetch-site", "cross-site");
    assert_eq!(asked.send().await.unwrap().status(), 401);
    let asked = with_certificate
        .get(&me)
        .header("origin", "https://evil.example.org");
    assert_eq!(asked.send().await.unwrap().status(), 401);
    // The session ends with the certificate, and with the identity.
    tokio::time::sleep(Duration::from_secs(7)).await;
    assert_eq!(brief.get("/jobs").await.status, 303);
    let answer = brief.send("/login/certificate", &[]).await;
    assert_eq!((answer.status, answer.set_cookies().len()), (401, 0));
    assert_eq!(browser.get("/jobs").await.status, 200);
    let user = json!({"name": "jo", "role": "user", "identities": []});
    site.operator().ok(Method::PUT, "/users", user).await;
    assert_eq!(browser.get("/jobs").await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_a_balancer_cookies_are_for_tls_alone() {
    let site = Site::start(&["--plain-http"]).await;
    let answer = Browser::new(&site).log_in(&site.operator).await;
    let cookie = answer.set_cookies()[0].to_owned();
    assert!(
        cookie.starts_with("__Host-") && cookie.ends_with("; Secure"),
        "{cookie}"
    );
}
