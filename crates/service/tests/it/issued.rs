//! Tokens that an issuer gives the service for its users, by refresh and by exchange.

use std::{collections::HashMap, sync::Arc, time::Duration};

use axum::{
    Json, Router,
    extract::State,
    http::{HeaderMap, StatusCode},
    routing::{get, post},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::site::{Site, User};

/// An issuer that gives each refresh token once, as RFC 9700 advises.
struct Issuer {
    url: String,
    /// What it was asked for.
    forms: Mutex<Vec<HashMap<String, String>>>,
    /// Refresh token that it takes next; `None`: it has withdrawn it.
    good: Mutex<Option<String>>,
}

impl Issuer {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            forms: Mutex::default(),
            good: Mutex::new(Some("refresh-0".to_owned())),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/token", post(token))
            .with_state(Arc::clone(&issuer));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        issuer
    }

    fn asked(&self) -> usize {
        self.forms.lock().len()
    }

    async fn wait_until_asked(&self, times: usize) {
        for _ in 0..300 {
            if self.asked() >= times {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("asked {} times", self.asked());
    }
}

async fn discovery(State(issuer): State<Arc<Issuer>>) -> Json<Value> {
    let url = &issuer.url;
    Json(json!({
        "issuer": url,
        "jwks_uri": format!("{url}/keys"),
        "token_endpoint": format!("{url}/token"),
    }))
}

async fn token(
    State(issuer): State<Arc<Issuer>>,
    headers: HeaderMap,
    body: String,
) -> (StatusCode, Json<Value>) {
    let form: HashMap<_, _> = form_urlencoded::parse(body.as_bytes())
        .into_owned()
        .collect();
    let client = format!("Basic {}", BASE64_STANDARD.encode("godwit:hush hush"));
    let is_client = headers
        .get("authorization")
        .is_some_and(|given| *given == client);
    let mut good = issuer.good.lock();
    let is_good = match form["grant_type"].as_str() {
        "refresh_token" => form.get("refresh_token") == good.as_ref(),
        "urn:ietf:params:oauth:grant-type:token-exchange" => form["subject_token"] == "of-jo",
        _ => false,
    };
    let mut forms = issuer.forms.lock();
    forms.push(form);
    if !is_client || !is_good || good.is_none() {
        return (
            StatusCode::BAD_REQUEST,
            Json(json!({"error": "invalid_grant"})),
        );
    }
    let number = forms.len();
    *good = Some(format!("refresh-{number}"));
    let answer = json!({
        "access_token": format!("access-{number}"),
        "refresh_token": good.as_ref(),
        "token_type": "Bearer",
        "expires_in": 3,
    });
    (StatusCode::OK, Json(answer))
}

/// A service that is a client of the issuer.
async fn site_of(issuer: &Issuer) -> (Site, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    std::fs::write(path("secret"), "hush hush\n").unwrap();
    let settings = format!(
        "[[issuer]]\nissuer = \"{}\"\naudiences = [\"godwit\"]\nallow-http = true\n\
         client-id = \"godwit\"\nclient-secret-file = \"{}\"\n",
        issuer.url,
        path("secret"),
    );
    std::fs::write(path("settings"), settings).unwrap();
    // The secret is read whenever it is needed.
    (Site::start(&["--config", &path("settings")]).await, folder)
}

fn request(issuer: &Issuer, shown: Value) -> Value {
    json!({"endpoint": "ftp://*", "issuer": issuer.url, "shown": shown})
}

async fn credential(user: &User<'_>) -> Value {
    user.get("/credentials").await[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_renewed_until_the_issuer_withdraws_it() {
    let issuer = Issuer::start().await;
    let (site, _folder) = site_of(&issuer).await;
    let jo = site.user("jo", "user", &[]).await;
    let body = request(&issuer, json!({"refresh_token": "refresh-0"}));
    let stored = jo.ok(Method::POST, "/credentials/issued", body).await;
    assert_eq!(stored["kind"], "issued");
    // Each refresh token is shown once.
    issuer.wait_until_asked(3).await;
    let shown: Vec<String> = (issuer.forms.lock().iter())
        .map(|form| form["refresh_token"].clone())
        .collect();
    assert_eq!(shown[..3], ["refresh-0", "refresh-1", "refresh-2"]);
    assert_eq!(credential(&jo).await["kind"], "issued");
    assert_ne!(credential(&jo).await["expires"], stored["expires"]);
    *issuer.good.lock() = None;
    let asked = issuer.asked();
    issuer.wait_until_asked(asked + 1).await;
    for _ in 0..50 {
        if credential(&jo).await["kind"] == "token" {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(
        credential(&jo).await["kind"],
        "token",
        "it is renewed no more"
    );
    let lies = String::from_utf8_lossy(&site.database_bytes()).into_owned();
    for secret in ["refresh-", "access-", "hush"] {
        assert!(!lies.contains(secret), "{secret} lies open in the database");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_is_exchanged_for_one_that_can_be_renewed() {
    let issuer = Issuer::start().await;
    let (site, _folder) = site_of(&issuer).await;
    let jo = site.user("jo", "user", &[]).await;
    let body = request(&issuer, json!({"subject_token": "of-jo"}));
    jo.ok(Method::POST, "/credentials/issued", body).await;
    let form = issuer.forms.lock()[0].clone();
    assert_eq!(form["scope"], "offline_access");
    assert_eq!(
        form["subject_token_type"],
        "urn:ietf:params:oauth:token-type:access_token"
    );
    issuer.wait_until_asked(2).await;
    assert_eq!(issuer.forms.lock()[1]["refresh_token"], "refresh-1");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_issuers_of_the_settings_are_asked_and_refusals_quote_no_token() {
    let issuer = Issuer::start().await;
    let other = Issuer::start().await;
    let (site, _folder) = site_of(&issuer).await;
    let jo = site.user("jo", "user", &[]).await;
    for (asked, shown, code) in [
        (&other, json!({"refresh_token": "refresh-0"}), "issuer"),
        (&issuer, json!({"refresh_token": "stolen-token"}), "issuer"),
        (&issuer, json!({"subject_token": "stolen-token"}), "issuer"),
        (&issuer, json!({"password": "stolen-token"}), "invalid_body"),
    ] {
        let body = request(asked, shown);
        let answer = jo.send(Method::POST, "/credentials/issued", body).await;
        assert!(answer.status().is_client_error());
        let text = answer.text().await.unwrap();
        assert!(text.contains(&format!("\"code\":\"{code}\"")), "{text}");
        assert!(!text.contains("stolen"), "{text}");
    }
    assert_eq!(other.asked(), 0);
    assert_eq!(jo.get("/credentials").await, json!([]));
}
