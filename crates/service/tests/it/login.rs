//! `godwit login` by the device flow of an issuer (RFC 8628), renewal of its tokens, and `logout`.

use std::{
    collections::{HashMap, VecDeque},
    os::unix::fs::PermissionsExt as _,
    path::PathBuf,
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use axum::{
    Json, Router,
    extract::State,
    http::{StatusCode, header::LOCATION},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use godwit_client::{
    CancellationToken,
    error::Exit,
    service::{self, ServiceCommand, ServiceRequest, ServiceTarget, connection::ServiceError},
};
use parking_lot::Mutex;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::{commands::Printed, site::Site, tokens};

/// An issuer whose answers a test changes.
struct Issuer {
    url: String,
    key: tokens::Issuer,
    /// Members of the answers that are others than usual.
    discovery: Mutex<Value>,
    device: Mutex<Value>,
    /// How often it is asked in vain, with which errors.
    errors: Mutex<VecDeque<&'static str>>,
    /// Of its tokens; `None`: what is asked for.
    audience: Mutex<Option<&'static str>>,
    /// What tokens last.
    life: Mutex<u64>,
    /// The refresh token that it takes next; `None`: none.
    refresh: Mutex<Option<String>>,
    /// What happens before it gives a token.
    before: Mutex<Option<Box<dyn FnOnce() + Send>>>,
    forms: Mutex<Vec<(&'static str, HashMap<String, String>)>>,
}

impl Issuer {
    async fn start() -> Arc<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let issuer = Arc::new(Self {
            url: format!("http://{}", listener.local_addr().unwrap()),
            key: tokens::Issuer::es256("key"),
            discovery: Mutex::new(json!({})),
            device: Mutex::new(json!({})),
            errors: Mutex::default(),
            audience: Mutex::default(),
            life: Mutex::new(3600),
            refresh: Mutex::default(),
            before: Mutex::default(),
            forms: Mutex::default(),
        });
        let router = Router::new()
            .route("/.well-known/openid-configuration", get(discovery))
            .route("/keys", get(keys))
            .route("/device", post(device))
            .route("/token", post(token))
            .route("/revoke", post(revoke))
            .route(
                "/moved",
                post(async || (StatusCode::FOUND, [(LOCATION, "/device")])),
            )
            .route("/huge", post(async || "x".repeat(1 << 20)))
            .with_state(Arc::clone(&issuer));
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        issuer
    }

    fn kept(&self, at: &'static str, body: &str) -> HashMap<String, String> {
        let form = form_urlencoded::parse(body.as_bytes());
        let form: HashMap<_, _> = form.into_owned().collect();
        self.forms.lock().push((at, form.clone()));
        form
    }

    fn asked(&self, at: &str) -> Vec<HashMap<String, String>> {
        let forms = self.forms.lock();
        let forms = forms.iter().filter(|(place, _)| *place == at);
        forms.map(|(_, form)| form.clone()).collect()
    }

    /// An access token of jo, each time another one.
    fn access(&self, audience: &Value) -> String {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let claims = json!({"iss": self.url, "sub": "jo-7", "aud": audience,
            "exp": now.as_secs() + 3600, "jti": uuid::Uuid::new_v4()});
        self.key.token(&claims)
    }
}

type Shared = State<Arc<Issuer>>;

/// `usual` with the members of `changed`.
fn merged(mut usual: Value, changed: &Value) -> Json<Value> {
    let members = usual.as_object_mut().unwrap();
    members.extend(changed.as_object().unwrap().clone());
    Json(usual)
}

async fn discovery(State(issuer): Shared) -> Json<Value> {
    let url = &issuer.url;
    let usual = json!({
        "issuer": url,
        "jwks_uri": format!("{url}/keys"),
        "token_endpoint": format!("{url}/token"),
        "device_authorization_endpoint": format!("{url}/device"),
        "revocation_endpoint": format!("{url}/revoke"),
        "code_challenge_methods_supported": ["plain", "S256"],
    });
    merged(usual, &issuer.discovery.lock())
}

async fn keys(State(issuer): Shared) -> Json<Value> {
    Json(json!({"keys": [issuer.key.jwk]}))
}

async fn device(State(issuer): Shared, body: String) -> Json<Value> {
    issuer.kept("device", &body);
    let usual = json!({
        "device_code": "device-s3cret",
        "user_code": "WDJB-MJHT",
        "verification_uri": "https://login.example.org/device",
        "expires_in": 600,
        "interval": 1,
    });
    merged(usual, &issuer.device.lock())
}

async fn token(State(issuer): Shared, body: String) -> Response {
    let form = issuer.kept("token", &body);
    let refuse = |error: &str| {
        let body = Json(json!({"error": error, "error_description": "\u{1b}[2J"}));
        (StatusCode::BAD_REQUEST, body).into_response()
    };
    let is_good = match form["grant_type"].as_str() {
        "refresh_token" => form.get("refresh_token") == issuer.refresh.lock().as_ref(),
        "urn:ietf:params:oauth:grant-type:device_code" => {
            if let Some(error) = issuer.errors.lock().pop_front() {
                return match error {
                    "down" => StatusCode::SERVICE_UNAVAILABLE.into_response(),
                    error => refuse(error),
                };
            }
            form["device_code"] == "device-s3cret"
        }
        _ => false,
    };
    if !is_good {
        return refuse("invalid_grant");
    }
    if let Some(before) = issuer.before.lock().take() {
        before();
    }
    let audience = issuer
        .audience
        .lock()
        .unwrap_or(&form["audience"])
        .to_owned();
    let refresh = format!("refresh-s3cret-{}", issuer.asked("token").len());
    *issuer.refresh.lock() = Some(refresh.clone());
    let answer = json!({
        "access_token": issuer.access(&json!(audience)),
        "refresh_token": refresh,
        "token_type": "Bearer",
        "expires_in": *issuer.life.lock(),
    });
    Json(answer).into_response()
}

async fn revoke(State(issuer): Shared, body: String) -> StatusCode {
    let form = issuer.kept("revoke", &body);
    let mut refresh = issuer.refresh.lock();
    if form.get("token") == refresh.as_ref() {
        *refresh = None;
    }
    StatusCode::OK
}

/// A service that trusts the issuer and knows jo, and the folder of jo's logins.
struct Stand {
    issuer: Arc<Issuer>,
    site: Site,
    logins: TempDir,
    /// Of the last command.
    warnings: Mutex<Vec<String>>,
}

impl Stand {
    async fn start() -> Self {
        let (issuer, logins) = (Issuer::start().await, tempfile::tempdir().unwrap());
        let settings = logins.path().join("settings");
        let text = format!(
            "[[issuer]]\nissuer = \"{}\"\naudiences = [\"transfers\", \"other\"]\n\
             allow-http = true\nlogin-client-id = \"cli\"\n",
            issuer.url
        );
        std::fs::write(&settings, text).unwrap();
        let site = Site::start(&["--config", &settings.display().to_string()]).await;
        let identity = format!("oidc:{}#jo-7", issuer.url);
        let jo = json!({"name": "jo", "role": "user", "identities": [identity]});
        site.operator().ok(Method::PUT, "/users", jo).await;
        Self {
            issuer,
            site,
            logins,
            warnings: Mutex::default(),
        }
    }

    fn folder(&self) -> PathBuf {
        self.logins.path().join("logins")
    }

    /// The file of the only login, and what it holds.
    fn file(&self) -> (PathBuf, Value) {
        let paths = std::fs::read_dir(self.folder()).unwrap();
        let mut paths = paths.map(|entry| entry.unwrap().path());
        let is_login = |path: &PathBuf| path.extension().is_some_and(|end| end == "json");
        let path = paths.find(is_login).unwrap();
        let content = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        (path, content)
    }

    async fn run_at(
        &self,
        url: &str,
        command: ServiceCommand,
        json: bool,
    ) -> (Result<Exit, ServiceError>, Vec<String>) {
        let target = ServiceTarget {
            url: url.to_owned(),
            token_file: None,
            token: None,
            ca: None,
            logins: Some(self.folder()),
        };
        let request = ServiceRequest {
            target,
            json,
            command,
        };
        let printed = Printed::default();
        let exit = service::run(request, &printed, &CancellationToken::default()).await;
        *self.warnings.lock() = printed.warnings();
        (exit, printed.into_lines())
    }

    /// With its warnings.
    async fn warned(&self, command: ServiceCommand) -> (Result<Exit, ServiceError>, Vec<String>) {
        let (exit, _) = self.run(command).await;
        (exit, self.warnings.lock().clone())
    }

    async fn run(&self, command: ServiceCommand) -> (Result<Exit, ServiceError>, Vec<String>) {
        self.run_at(&self.site.url, command, false).await
    }

    async fn login(&self) -> (Result<Exit, ServiceError>, Vec<String>) {
        self.run(ServiceCommand::Login { issuer: None }).await
    }

    /// Why a login fails, and what was printed before.
    async fn login_error(&self) -> (Exit, String) {
        let (exit, printed) = self.login().await;
        let error = exit.unwrap_err();
        let said = format!("{error}\n{}", printed.join("\n"));
        assert!(
            !said.contains('\u{1b}') && !said.contains("s3cret"),
            "{said:?}"
        );
        (error.exit(), said)
    }

    async fn jobs(&self) -> Result<Exit, ServiceError> {
        self.run(jobs()).await.0
    }
}

fn jobs() -> ServiceCommand {
    ServiceCommand::Jobs {
        states: Vec::new(),
        all_users: false,
        limit: 1,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_used_by_all_commands_until_logout() {
    let stand = Stand::start().await;
    let error = stand.jobs().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Refused);
    let remedy = format!("godwit login --service {}", stand.site.url);
    assert!(error.to_string().contains(&remedy), "{error}");

    *stand.issuer.errors.lock() = ["authorization_pending", "authorization_pending"].into();
    let (exit, printed) = stand.login().await;
    assert_eq!(exit.unwrap(), Exit::Done);
    let (issuer, site) = (&stand.issuer.url, &stand.site.url);
    let invitation = format!("to log in to {site} by {issuer}/ within 10 minutes,");
    assert_eq!(
        printed,
        [
            &*invitation,
            "open https://login.example.org/device and enter the code: WDJB-MJHT",
            "the service gets a token of the client cli for the audience transfers with the scopes \
             openid offline_access",
            "logged in as jo"
        ]
    );
    let asked = stand.issuer.asked("device")[0].clone();
    for (name, value) in [
        ("client_id", "cli"),
        ("scope", "openid offline_access"),
        ("audience", "transfers"),
        ("code_challenge_method", "S256"),
    ] {
        assert_eq!(asked[name], value);
    }
    let polls = stand.issuer.asked("token");
    assert_eq!(polls.len(), 3);
    let hash = openssl::sha::sha256(polls[0]["code_verifier"].as_bytes());
    assert_eq!(asked["code_challenge"], tokens::base64(hash));

    assert_eq!(stand.jobs().await.unwrap(), Exit::Done);
    assert_eq!(stand.issuer.asked("token").len(), 3, "nothing is renewed");
    let refresh = stand.file().1["refresh_token"].clone();
    let (exit, _) = stand.run(ServiceCommand::Logout).await;
    assert_eq!(exit.unwrap(), Exit::Done);
    assert_eq!(stand.issuer.asked("revoke")[0]["token"], refresh);
    assert_eq!(stand.jobs().await.unwrap_err().exit(), Exit::Refused);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_goes_to_its_service_only() {
    let (stand, other) = (Stand::start().await, Site::start(&[]).await);
    stand.login().await.0.unwrap();
    let (path, mut kept) = stand.file();
    let (exit, _) = stand.run_at(&other.url, jobs(), false).await;
    assert_eq!(exit.unwrap_err().exit(), Exit::Refused);
    // Even if another one is named in the file.
    kept["service"] = other.url.clone().into();
    std::fs::write(&path, kept.to_string()).unwrap();
    let error = stand.jobs().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Usage);
    assert!(error.to_string().contains("of another service"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_is_renewed_before_its_end_and_after_a_refusal() {
    let stand = Stand::start().await;
    *stand.issuer.life.lock() = 30;
    stand.login().await.0.unwrap();
    // Four that run at the same time renew it one after the other, each with the token of the last.
    let four = tokio::join!(stand.jobs(), stand.jobs(), stand.jobs(), stand.jobs());
    for exit in [four.0, four.1, four.2, four.3] {
        assert_eq!(exit.unwrap(), Exit::Done);
    }
    let renewals = stand.issuer.asked("token").len() - 1;
    assert!((1..=4).contains(&renewals), "{renewals}");
    *stand.issuer.life.lock() = 3600;
    stand.jobs().await.unwrap();
    let asked = stand.issuer.asked("token").len();
    stand.jobs().await.unwrap();
    assert_eq!(stand.issuer.asked("token").len(), asked, "it lasts an hour");

    // The service refuses what has not ended by our clock.
    let (path, mut kept) = stand.file();
    kept["access_token"] = "x.y.z".into();
    std::fs::write(&path, kept.to_string()).unwrap();
    stand.jobs().await.unwrap();
    assert_eq!(stand.issuer.asked("token").len(), asked + 1);

    // Once, and then the user has to log in.
    kept["refresh_token"] = "refresh-s3cret-withdrawn".into();
    std::fs::write(&path, kept.to_string()).unwrap();
    let error = stand.jobs().await.unwrap_err();
    assert_eq!(error.exit(), Exit::Refused);
    assert_eq!(stand.issuer.asked("token").len(), asked + 2);
    let said = error.to_string();
    assert!(
        said.contains("invalid_grant") && said.contains("godwit login"),
        "{said}"
    );
    assert!(!said.contains("s3cret"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_renewed_login_that_cannot_be_written_is_used_and_no_spent_token_is_shown_again() {
    let stand = Stand::start().await;
    *stand.issuer.life.lock() = 30;
    stand.login().await.0.unwrap();
    let (path, _) = stand.file();
    // Between the question to the issuer and the write the folder goes.
    let is_gone = |stand: &Stand| {
        let folder = stand.folder();
        let gone = move || std::fs::remove_dir_all(folder).unwrap();
        *stand.issuer.before.lock() = Some(Box::new(gone));
    };
    is_gone(&stand);
    let (exit, warnings) = stand.warned(jobs()).await;
    assert_eq!(exit.unwrap(), Exit::Done);
    assert_eq!(warnings.len(), 1);
    let said = &warnings[0];
    assert!(said.contains("godwit login"), "{said}");
    assert!(
        !said.contains("s3cret") && !said.contains("remove"),
        "{said}"
    );
    assert!(!path.exists());

    // The next request of the same command renews with what the issuer gave last, and keeps that.
    stand.login().await.0.unwrap();
    let file = json!({"source": "gsiftp://a/f", "destination": "gsiftp://b/f"});
    let mut ids = Vec::new();
    for _ in 0..2 {
        let (_, kept) = stand.file();
        let token = kept["access_token"].as_str().unwrap();
        let job = json!({"files": [file], "options": {"paused": true}});
        ids.push(stand.site.with(token).submit(job).await.parse().unwrap());
    }
    is_gone(&stand);
    let change = service::Change::Resume;
    let (exit, warnings) = stand.warned(ServiceCommand::Change { ids, change }).await;
    assert_eq!((exit.unwrap(), warnings), (Exit::Done, Vec::new()));
    assert!(path.exists());

    // A file that cannot be removed is left to the user.
    let (folder, aside) = (stand.folder(), stand.logins.path().join("aside"));
    *stand.issuer.before.lock() = Some(Box::new(move || {
        std::fs::rename(&folder, aside).unwrap();
        std::fs::write(&folder, "no folder").unwrap();
    }));
    let (exit, warnings) = stand.warned(jobs()).await;
    assert_eq!(exit.unwrap(), Exit::Done);
    let remedy = format!("remove {}", path.display());
    assert!(warnings[0].contains(&remedy), "{warnings:?}");

    let mut shown = stand.issuer.asked("token");
    shown.retain(|form| form["grant_type"] == "refresh_token");
    let shown: Vec<&String> = shown.iter().map(|form| &form["refresh_token"]).collect();
    let distinct: std::collections::HashSet<_> = shown.iter().collect();
    assert_eq!((shown.len(), distinct.len()), (4, 4), "{shown:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_login_that_is_denied_or_forgotten_leaves_nothing() {
    let stand = Stand::start().await;
    for (error, exit, text) in [
        ("access_denied", Exit::Refused, "denied"),
        ("expired_token", Exit::Refused, "expired"),
        ("invalid_client", Exit::Refused, "invalid_client"),
    ] {
        *stand.issuer.errors.lock() = [error].into();
        let (ended, said) = stand.login_error().await;
        assert!(ended == exit && said.contains(text), "{said}");
    }
    // A code that no user enters ends by our clock, whatever the issuer says.
    *stand.issuer.device.lock() = json!({"expires_in": 3});
    *stand.issuer.errors.lock() = vec!["authorization_pending"; 100].into();
    let (ended, said) = stand.login_error().await;
    assert!(ended == Exit::Refused && said.contains("expired"), "{said}");
    assert!(!stand.folder().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_issuer_that_is_busy_is_asked_more_rarely() {
    let stand = Stand::start().await;
    *stand.issuer.errors.lock() = ["slow_down", "down"].into();
    let began = std::time::Instant::now();
    stand.login().await.0.unwrap();
    // One second, then six, then twice that.
    assert!(
        began.elapsed() >= Duration::from_secs(19),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(stand.issuer.asked("token").len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_issuer_shows_nothing_that_steers_a_terminal_and_ends_the_login() {
    let stand = Stand::start().await;
    let escape = "\u{1b}]0;owned\u{7}";
    for (changed, text) in [
        (
            json!({"user_code": format!("A{escape}")}),
            "that people can type",
        ),
        (json!({"user_code": "A\u{9b}2J"}), "that people can type"),
        (json!({"user_code": ""}), "that people can type"),
        (
            json!({"user_code": "A".repeat(1000)}),
            "that people can type",
        ),
        (
            json!({"verification_uri": "javascript:alert(1)"}),
            "no https URL",
        ),
        (
            json!({"verification_uri": "file:///etc/passwd"}),
            "no https URL",
        ),
        (json!({"verification_uri": escape}), "no https URL"),
        (
            json!({"verification_uri": "http://login.example.org/"}),
            "no https URL",
        ),
        (
            json!({"verification_uri": "https://login.example.org@evil.example/"}),
            "no https URL",
        ),
        (
            json!({"verification_uri_complete": "ssh://evil"}),
            "no https URL",
        ),
        (
            json!({"verification_uri": format!("https://e/{}", "a".repeat(5000))}),
            "no https URL",
        ),
        (json!({"interval": 1_000_000_000}), "expires before"),
        (json!({"interval": -1}), "not as it must be"),
        (json!({"expires_in": 0}), "expires before"),
        (json!({"expires_in": "s3cret"}), "not as it must be"),
        (json!({"device_code": escape}), "no device code"),
    ] {
        *stand.issuer.device.lock() = changed;
        let (exit, said) = stand.login_error().await;
        assert!(exit == Exit::Failed && said.contains(text), "{said}");
    }
    *stand.issuer.device.lock() = json!({});
    let url = &stand.issuer.url;
    for (changed, text) in [
        (
            json!({"device_authorization_endpoint": null}),
            "no logins for command lines",
        ),
        (
            json!({"device_authorization_endpoint": format!("{url}/moved")}),
            "302",
        ),
        (
            json!({"device_authorization_endpoint": format!("{url}/huge")}),
            "too long",
        ),
        (
            json!({"device_authorization_endpoint": "http://192.0.2.1/"}),
            "is not https",
        ),
        (
            json!({"device_authorization_endpoint": "https://jo:secret@192.0.2.1/"}),
            "is not https",
        ),
        (
            json!({"device_authorization_endpoint": "file:///etc/passwd"}),
            "is not https",
        ),
        (
            json!({"issuer": "https://other.example.org"}),
            "of another issuer",
        ),
    ] {
        *stand.issuer.discovery.lock() = changed;
        let (exit, said) = stand.login_error().await;
        assert!(exit == Exit::Failed && said.contains(text), "{said}");
    }
    assert!(stand.issuer.asked("token").is_empty() && !stand.folder().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_are_shown_as_urls_have_them_and_the_interval_is_a_second_at_least() {
    let stand = Stand::start().await;
    *stand.issuer.device.lock() = json!({
        "interval": 0,
        "verification_uri_complete": "https://b\u{fc}cher.example/\u{1b}[31m?code=WDJB\u{202e}",
    });
    *stand.issuer.errors.lock() = ["authorization_pending"].into();
    let began = std::time::Instant::now();
    let command = ServiceCommand::Login { issuer: None };
    let (exit, printed) = stand.run_at(&stand.site.url, command, true).await;
    assert_eq!(exit.unwrap(), Exit::Done);
    assert!(began.elapsed() >= Duration::from_secs(2));
    let lines: Vec<Value> = printed
        .iter()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(
        lines[0]["verification_uri_complete"],
        "https://xn--bcher-kva.example/%1B[31m?code=WDJB%E2%80%AE"
    );
    for (name, value) in [
        ("client_id", "cli"),
        ("audience", "transfers"),
        ("scope", "openid offline_access"),
    ] {
        assert_eq!(lines[0][name], value);
    }
    assert_eq!(
        (&lines[0]["user_code"], &lines[0]["expires_in"]),
        (&json!("WDJB-MJHT"), &json!(600))
    );
    assert_eq!(
        (&lines[1]["user"], &lines[1]["renewable"]),
        (&json!("jo"), &json!(true))
    );
    assert!(!printed.join("").contains("s3cret"));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unknown_user_is_told_the_identity() {
    let stand = Stand::start().await;
    let jo = json!({"name": "jo", "role": "user", "identities": []});
    stand.site.operator().ok(Method::PUT, "/users", jo).await;
    let (exit, said) = stand.login_error().await;
    let identity = format!("oidc:{}#jo-7", stand.issuer.url);
    assert!(exit == Exit::Refused && said.contains(&identity), "{said}");
    assert!(!stand.folder().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_for_another_audience_is_not_shown_to_the_service() {
    let stand = Stand::start().await;
    // The service would take it.
    *stand.issuer.audience.lock() = Some("other");
    let (exit, said) = stand.login_error().await;
    let why = "not for the audience transfers";
    assert!(exit == Exit::Refused && said.contains(why), "{said}");
    assert!(!stand.folder().exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn logout_withdraws_a_token_that_others_can_read_unless_they_can_write_its_file() {
    let stand = Stand::start().await;
    for (mode, withdrawn) in [(0o644, 1), (0o622, 1)] {
        stand.login().await.0.unwrap();
        let (path, _) = stand.file();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let (exit, _) = stand.run(ServiceCommand::Logout).await;
        assert_eq!(exit.unwrap(), Exit::Done);
        assert!(!path.exists());
        assert_eq!(stand.issuer.asked("revoke").len(), withdrawn, "{mode:o}");
    }
}
