//! Logins on the page at an issuer, by the code flow of OpenID Connect.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    response::{IntoResponse, Response},
    routing::{get, post},
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use godwit_service::serve::Server;
use openssl::sha::sha256;
use parking_lot::Mutex;
use reqwest::{Method, Url};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{
    browser::{Answer, Browser},
    site::{Site, settings},
    tokens,
};

const REDIRECT: &str = "https://transfer.example.org/login/return";

/// An issuer that a test bends.
struct Issuer {
    url: String,
    key: tokens::Issuer,
    /// Signs in place of the issuer.
    other: Mutex<Option<tokens::Issuer>>,
    /// Members of the identity that are others than usual; null: none.
    claims: Mutex<Value>,
    /// What the browser was sent with.
    asked: Mutex<HashMap<String, String>>,
    /// What the service has posted.
    posted: Mutex<Vec<HashMap<String, String>>>,
}

impl Issuer {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            key: tokens::Issuer::es256("key"),
            other: Mutex::default(),
            claims: Mutex::new(json!({})),
            asked: Mutex::default(),
            posted: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/token", post(token))
            .with_state(Arc::clone(&issuer));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        issuer
    }
}

async fn discovery(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    let url = &issuer.url;
    Json(json!({
        "issuer": url,
        "jwks_uri": format!("{url}/keys"),
        "token_endpoint": format!("{url}/token"),
        "authorization_endpoint": format!("{url}/authorize?theme=dark"),
    }))
}

async fn keys(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    Json(json!({"keys": [issuer.key.jwk]}))
}

/// Gives the identity of jo for the code, as RFC 7636 says.
async fn token(State(issuer): State<Arc<Issuer>>, body: String) -> Response {
    let form: HashMap<_, _> = form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    issuer.posted.lock().push(form.clone());
    let asked = issuer.asked.lock().clone();
    let challenge = URL_SAFE_NO_PAD.encode(sha256(form["code_verifier"].as_bytes()));
    let is_good = form["grant_type"] == "authorization_code"
        && form["code"] == "c0de"
        && form["redirect_uri"] == asked["redirect_uri"]
        && challenge == asked["code_challenge"];
    if !is_good {
        let error = Json(json!({"error": "invalid_grant"}));
        return (StatusCode::BAD_REQUEST, error).into_response();
    }
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap()
        .as_secs();
    let mut claims = json!({"iss": issuer.url, "sub": "jo-7", "aud": "page", "exp": now + 300,
        "iat": now, "nonce": asked["nonce"]});
    for (name, value) in issuer.claims.lock().as_object().unwrap() {
        match value.is_null() {
            true => drop(claims.as_object_mut().unwrap().remove(name)),
            false => claims[name] = value.clone(),
        }
    }
    let identity = match &*issuer.other.lock() {
        Some(other) => other.token(&claims),
        None => issuer.key.token(&claims),
    };
    Json(json!({"access_token": "acc3ss", "token_type": "Bearer", "id_token": identity}))
        .into_response()
}

struct Stand {
    issuer: Arc<Issuer>,
    site: Site,
    _folder: TempDir,
}

impl Stand {
    async fn start() -> Self {
        Self::with("").await
    }

    /// With further settings.
    async fn with(further: &str) -> Self {
        let (issuer, folder) = (Issuer::start().await, tempfile::tempdir().unwrap());
        let (settings, secret) = (folder.path().join("settings"), folder.path().join("secret"));
        std::fs::write(&secret, "cli3nt\n").unwrap();
        let text = format!(
            "[[issuer]]\nissuer = \"{}\"\naudiences = [\"transfers\"]\nallow-http = true\n\
             client-id = \"page\"\nclient-secret-file = \"{}\"\nredirect-url = \"{REDIRECT}\"\n\
             {further}",
            issuer.url,
            secret.display()
        );
        std::fs::write(&settings, text).unwrap();
        let site = Site::start(&["--config", &settings.display().to_string()]).await;
        let identity = format!("oidc:{}#jo-7", issuer.url);
        let jo = json!({"name": "jo", "role": "user", "identities": [identity]});
        site.operator().ok(Method::PUT, "/users", jo).await;
        Self {
            issuer,
            site,
            _folder: folder,
        }
    }

    /// Sends the browser to the issuer. The state that it is to bring back.
    async fn leave(&self, browser: &mut Browser, next: &str) -> String {
        let query = form_urlencoded::Serializer::new(String::new())
            .append_pair("issuer", &self.issuer.url)
            .append_pair("next", next)
            .finish();
        let answer = browser.get(&format!("/login/issuer?{query}")).await;
        assert_eq!(answer.status, 303, "{}", answer.text);
        let cookie = answer.set_cookies()[0];
        assert!(
            cookie.ends_with("; HttpOnly; SameSite=Lax; Secure; Max-Age=600"),
            "{cookie}"
        );
        let url = Url::parse(answer.location()).unwrap();
        assert!(
            url.as_str()
                .starts_with(&format!("{}/authorize?theme=dark&", self.issuer.url))
        );
        let asked: HashMap<String, String> = url.query_pairs().into_owned().collect();
        *self.issuer.asked.lock() = asked.clone();
        asked["state"].clone()
    }

    async fn come_back(&self, browser: &mut Browser, state: &str) -> Answer {
        browser
            .get(&format!("/login/return?code=c0de&state={state}"))
            .await
    }

    /// A whole login.
    async fn log_in(&self) -> (Browser, Answer) {
        let mut browser = Browser::new(&self.site);
        let state = self.leave(&mut browser, "/shares").await;
        let answer = self.come_back(&mut browser, &state).await;
        (browser, answer)
    }

    async fn refused(&self, why: &str) {
        let (mut browser, answer) = self.log_in().await;
        assert!(
            matches!(answer.status, 401 | 403 | 422 | 502),
            "{why}: {}",
            answer.status
        );
        assert!(
            !browser.cookies.contains_key("__Host-godwit-session"),
            "{why}"
        );
        assert!(answer.text.contains(why), "{why}: {}", answer.text);
        assert_eq!(browser.get("/jobs").await.status, 303, "{why}");
        for secret in ["acc3ss", "cli3nt", "c0de"] {
            assert!(!answer.text.contains(secret), "{secret}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_logs_a_browser_in_that_it_was_asked_for() {
    let stand = Stand::start().await;
    let page = Browser::new(&stand.site).page("/login").await;
    assert!(page.contains(&format!("Log in at {}", stand.issuer.url)));
    let (mut browser, answer) = stand.log_in().await;
    assert_eq!((answer.status, answer.location()), (303, "/shares"));
    assert!(browser.page("/jobs").await.contains("jo"));
    let asked = stand.issuer.asked.lock().clone();
    for (name, value) in [
        ("response_type", "code"),
        ("client_id", "page"),
        ("redirect_uri", REDIRECT),
        ("scope", "openid"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(asked[name], value);
    }
    for name in ["state", "nonce", "code_challenge"] {
        assert_eq!(asked[name].len(), 43, "{name}");
    }
    // The cookie of the login is gone, and what came back is good once.
    assert!(!browser.cookies.contains_key("__Host-godwit-login"));
    let answer = stand.come_back(&mut browser, &asked["state"]).await;
    assert_eq!(answer.status, 403);
    // The session ends with the identity.
    let jo = json!({"name": "jo", "role": "user", "identities": []});
    stand.site.operator().ok(Method::PUT, "/users", jo).await;
    assert_eq!(browser.get("/jobs").await.status, 303);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_session_ends_when_its_issuer_is_no_longer_in_the_settings() {
    let stand = Stand::start().await;
    let (mut browser, answer) = stand.log_in().await;
    assert_eq!(answer.status, 303, "{}", answer.text);
    let folder = stand.site.folder.path();
    let serve = async |issuer: &str| {
        let path = |name: &str| folder.join(name).display().to_string();
        let text = format!(
            "[[issuer]]\nissuer = \"{issuer}\"\naudiences = [\"transfers\"]\n\
             allow-http = true\nclient-id = \"page\"\nredirect-url = \"{REDIRECT}\"\n"
        );
        std::fs::write(path("settings"), text).unwrap();
        let (database, key) = (format!("sqlite:{}", path("db")), path("key"));
        let mut arguments = vec!["godwit-service", "serve", "--listen", "127.0.0.1:0"];
        let further = [&path("settings"), &database, &key];
        for (flag, value) in ["--config", "--database", "--key-file"].iter().zip(further) {
            arguments.extend([*flag, value.as_str()]);
        }
        let server = Server::bind(settings(&arguments)).await.unwrap();
        let url = server.url().to_owned();
        tokio::spawn(server.run(std::future::pending()));
        url
    };
    // Other processes on the same database, as after a restart.
    browser.url = serve(&stand.issuer.url).await;
    assert_eq!(browser.get("/jobs").await.status, 200);
    for other in [
        "https://other.example.org",
        // Another issuer, of which the first is the beginning, and one that is its beginning.
        &format!("{}/more", stand.issuer.url),
        &stand.issuer.url[..stand.issuer.url.len() - 1],
    ] {
        browser.url = serve(other).await;
        let answer = browser.get("/jobs").await;
        assert_eq!(answer.status, 303, "{other}: {}", answer.text);
        assert!(answer.location().starts_with("/login"), "{other}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_is_good_in_the_browser_that_it_was_given_to() {
    let stand = Stand::start().await;
    let (mut browser, mut victim) = (Browser::new(&stand.site), Browser::new(&stand.site));
    let state = stand.leave(&mut browser, "/jobs").await;
    // Without a login, with another one, and with the right one but another state.
    assert_eq!(stand.come_back(&mut victim, &state).await.status, 403);
    let own = stand.leave(&mut victim, "/jobs").await;
    assert_eq!(stand.come_back(&mut victim, &state).await.status, 403);
    for wrong in ["", "x", &own[1..], &format!("{own}a")] {
        assert_eq!(
            stand.come_back(&mut victim, wrong).await.status,
            403,
            "{wrong}"
        );
    }
    assert!(!victim.cookies.contains_key("__Host-godwit-session"));
    assert!(
        stand.issuer.posted.lock().is_empty(),
        "no code was shown to the issuer"
    );
    // An issuer that says it is another.
    let path = format!("/login/return?code=c0de&state={own}&iss=https://evil.example.org");
    assert_eq!(victim.get(&path).await.status, 403);
    assert!(stand.issuer.posted.lock().is_empty());
    // What the issuer refuses is said, and cannot become a part of the page.
    let state = stand.leave(&mut victim, "/jobs").await;
    let path = format!("/login/return?error=%3Cscript%3Ealert(1)%3C/script%3E&state={state}");
    let answer = victim.get(&path).await;
    assert_eq!(answer.status, 401);
    assert!(answer.text.contains("&lt;script&gt;alert(1)") && !answer.text.contains("<script>al"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_for_another_challenge_is_refused() {
    let stand = Stand::start().await;
    let mut browser = Browser::new(&stand.site);
    let state = stand.leave(&mut browser, "/jobs").await;
    // A code that was stolen belongs to the challenge of another browser.
    let other = URL_SAFE_NO_PAD.encode(sha256(b"another verifier"));
    stand
        .issuer
        .asked
        .lock()
        .insert("code_challenge".to_owned(), other);
    let answer = stand.come_back(&mut browser, &state).await;
    assert_eq!(answer.status, 422);
    assert!(answer.text.contains("invalid_grant"), "{}", answer.text);
    assert!(!browser.cookies.contains_key("__Host-godwit-session"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_identity_of_anything_else_is_refused() {
    let mut stand = Stand::start().await;
    for (place, (claims, why)) in [
        (json!({"nonce": "A".repeat(43)}), "its nonce is another"),
        (json!({"nonce": null}), "its nonce is another"),
        (json!({"aud": "transfers"}), "another service"),
        (json!({"aud": ["page", "other"]}), "for another client"),
        (
            json!({"aud": ["page", "other"], "azp": "other"}),
            "for another client",
        ),
        (json!({"azp": "other"}), "for another client"),
        (json!({"exp": 1000}), "has expired"),
        (json!({"iss": "https://evil.example.org"}), "another issuer"),
        (json!({"sub": "mallory"}), "no user here has this identity"),
        (json!({"sub": ""}), "it has no sub"),
    ]
    .into_iter()
    .enumerate()
    {
        // Logins that fail are limited.
        if place == 5 {
            stand = Stand::start().await;
        }
        *stand.issuer.claims.lock() = claims;
        stand.refused(why).await;
    }
    *stand.issuer.claims.lock() = json!({});
    *stand.issuer.other.lock() = Some(tokens::Issuer::es256("key"));
    stand.refused("signature is wrong").await;
    *stand.issuer.other.lock() = None;
    let (_, answer) = stand.log_in().await;
    assert_eq!(answer.status, 303, "{}", answer.text);
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_that_an_issuer_refuses_are_limited_and_hold_up_no_other_login() {
    let stand = Stand::start().await;
    let mut browser = Browser::new(&stand.site);
    let query = format!("/login/issuer?issuer={}", stand.issuer.url);
    // Ways there are no failures, and a picture of another site begins none.
    for _ in 0..25 {
        assert_eq!(browser.get(&query).await.status, 303);
    }
    let picture = [("sec-fetch-site", "cross-site")];
    let answer = browser.get_with(&query, &picture).await;
    assert_eq!((answer.status, answer.set_cookies().len()), (403, 0));
    for _ in 0..25 {
        let unknown = "/login/issuer?issuer=https://evil.example.org";
        let answer = browser.get(unknown).await;
        assert!(answer.location().is_empty() && answer.status != 429);
    }
    let mut statuses = Vec::new();
    while browser.get(&query).await.status != 429 {
        let state = stand.leave(&mut browser, "/jobs").await;
        let path = format!("/login/return?code=wr0ng&state={state}");
        statuses.push(browser.get(&path).await.status);
        assert!(statuses.len() < 25, "{statuses:?}");
    }
    assert_eq!(statuses, vec![422; statuses.len()]);
    assert!(statuses.len() >= 20, "{statuses:?}");
    let fields = [("user", "jo"), ("password", "guess")];
    assert_eq!(browser.send("/login", &fields).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_issuers_the_one_that_answers_must_say_who_it_is() {
    let other = "[[issuer]]\nissuer = \"https://other.example.org\"\n\
        audiences = [\"transfers\"]\nclient-id = \"page\"\n\
        redirect-url = \"https://transfer.example.org/login/return\"\n";
    let stand = Stand::with(other).await;
    stand.refused("RFC 9207").await;
    assert!(stand.issuer.posted.lock().is_empty());
    let mut browser = Browser::new(&stand.site);
    let state = stand.leave(&mut browser, "/jobs").await;
    let path = format!(
        "/login/return?code=c0de&state={state}&iss={}",
        stand.issuer.url
    );
    let answer = browser.get(&path).await;
    assert_eq!((answer.status, answer.location()), (303, "/jobs"));
}
