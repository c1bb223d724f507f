//! Proxies of users: delegated to the service, and as what they log in with.

use std::time::{Duration, SystemTime};

use godwit_client::{
    CancellationToken,
    report::events::{Event, Observer},
    service::{self, ServiceCommand, ServiceRequest, ServiceTarget, Submission},
};
use godwit_gsi::cert::{
    Credential,
    files::write_private,
    key::KeyKind,
    proxy::{self, ProxyRequest, sign_request_pem},
};
use godwit_service_api::job::{FileRequest, JobOptions};
use parking_lot::Mutex;
use reqwest::{Certificate, Client, Identity, Method};
use serde_json::{Value, json};

use crate::{
    pki::{Blueprint, rsa_key},
    site::{Site, User},
};

/// A CA, and a user of it with a proxy.
struct Grid {
    authority: Credential,
    user: Credential,
    proxy: Credential,
}

impl Grid {
    fn new(name: &str) -> Self {
        let now = SystemTime::now();
        let authority = Blueprint::authority(&format!("/O={name}/CN=CA"))
            .at(now)
            .self_signed();
        let user = Blueprint::user(&format!("/O={name}/CN=Jo"))
            .key(rsa_key())
            .at(now);
        let user = user.issued_by(&authority);
        let proxy = proxy::create(&user, &ProxyRequest::default(), KeyKind::EcP256, now).unwrap();
        Self {
            authority,
            user,
            proxy,
        }
    }
}

fn text(pem: Vec<u8>) -> String {
    String::from_utf8(pem).unwrap()
}

async fn request(user: &User<'_>) -> String {
    let asked = user
        .ok(Method::POST, "/delegation/request", Value::Null)
        .await;
    asked["request"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_delegated_without_its_key() {
    let site = Site::start(&[]).await;
    let (jo, grid) = (site.user("jo", "user", &[]).await, Grid::new("Grid"));
    assert_eq!(jo.get("/delegation").await, json!({"expires": null}));
    let early = json!({"chain": text(grid.proxy.certificate().as_x509().to_pem().unwrap())});
    let early = jo.refused(Method::PUT, "/delegation", early).await;
    assert_eq!(early, (422, "invalid_value".to_owned()));
    let asked = request(&jo).await;
    assert_eq!(asked, request(&jo).await, "the same until it is signed");
    let sign = |issuer: &Credential, wanted: &ProxyRequest| {
        sign_request_pem(issuer, &asked, wanted, SystemTime::now()).unwrap()
    };
    let usual = ProxyRequest::default();
    let whole = sign(&grid.proxy, &usual);
    let other = Grid::new("Other");
    let first = whole
        .find("-----BEGIN")
        .and_then(|_| whole.find("-----END CERTIFICATE-----\n"));
    let (alone, above) = whole.split_at(first.unwrap() + 26);
    for wrong in [
        // Without its issuer, only its issuer, of another issuer, for another key.
        alone.to_owned(),
        above.to_owned(),
        format!(
            "{alone}{}",
            text(other.user.certificate().as_x509().to_pem().unwrap())
        ),
        text(grid.proxy.to_pem().unwrap()),
        "no PEM".to_owned(),
    ] {
        let refused = jo
            .refused(Method::PUT, "/delegation", json!({"chain": wrong}))
            .await;
        assert_eq!(refused, (422, "invalid_value".to_owned()), "{wrong}");
    }
    let stored = jo
        .ok(Method::PUT, "/delegation", json!({"chain": whole}))
        .await;
    assert_eq!(stored["kind"], "proxy");
    assert_eq!(jo.get("/delegation").await["expires"], stored["expires"]);
    // What was signed is used up; the next proxy takes the place of the first.
    let again = jo
        .refused(Method::PUT, "/delegation", json!({"chain": whole}))
        .await;
    assert_eq!(again, (422, "invalid_value".to_owned()));
    let asked = request(&jo).await;
    let next = sign_request_pem(&grid.user, &asked, &usual, SystemTime::now()).unwrap();
    let next = jo
        .ok(Method::PUT, "/delegation", json!({"chain": next}))
        .await;
    assert_eq!(next["id"], stored["id"]);
    assert_eq!(jo.get("/credentials").await.as_array().unwrap().len(), 1);
    let mallory = site.user("mallory", "user", &[]).await;
    assert_eq!(mallory.get("/delegation").await, json!({"expires": null}));
    jo.ok(Method::DELETE, "/delegation", Value::Null).await;
    assert_eq!(jo.get("/credentials").await, json!([]));
    let gone = jo.refused(Method::DELETE, "/delegation", Value::Null).await;
    assert_eq!(gone.0, 404);
}

/// What a client of FTS is told that removes a delegation.
async fn remove(site: &Site, user: &User<'_>, id: &str) -> u16 {
    let url = format!("{}/delegation/{id}", site.fts_url);
    let request = site.client.delete(url).bearer_auth(&user.token);
    request.send().await.unwrap().status().as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_fts_remove_what_was_delegated_and_nothing_of_others() {
    let site = Site::start(&["--fts", "127.0.0.1:0"]).await;
    let (jo, grid) = (site.user("jo", "user", &[]).await, Grid::new("Grid"));
    let mallory = site.user("mallory", "user", &[]).await;
    // The first 16 digits of SHA-1 over the name.
    let (of_jo, of_mallory) = ("bd73d35759d75cc2", "1beef780003d3d85");
    assert_eq!(remove(&site, &jo, of_jo).await, 404);
    let asked = request(&jo).await;
    let now = SystemTime::now();
    let chain = sign_request_pem(&grid.user, &asked, &ProxyRequest::default(), now).unwrap();
    jo.ok(Method::PUT, "/delegation", json!({"chain": chain}))
        .await;
    assert_eq!(remove(&site, &mallory, of_jo).await, 403);
    assert_eq!(remove(&site, &mallory, of_mallory).await, 404);
    assert_eq!(jo.get("/credentials").await.as_array().unwrap().len(), 1);
    assert_eq!(remove(&site, &jo, of_jo).await, 204);
    assert_eq!(jo.get("/credentials").await, json!([]));
    assert_eq!(remove(&site, &jo, of_jo).await, 404);
}

#[derive(Default)]
struct Warnings(Mutex<Vec<String>>);

impl Observer for Warnings {
    fn on_event(&self, event: &Event) {
        if let Event::Warning { text } = event {
            self.0.lock().push(text.clone());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn submit_delegates_the_users_proxy_once() {
    let site = Site::start(&[]).await;
    let (jo, grid) = (site.user("jo", "user", &[]).await, Grid::new("Grid"));
    let token = jo
        .ok(Method::POST, "/tokens", json!({"label": "command"}))
        .await;
    let path = site.folder.path().join("proxy");
    write_private(&path, &grid.proxy.to_pem().unwrap()).unwrap();
    let warnings = Warnings::default();
    let submit = async |scheme: &str, proxy: bool| {
        let request = ServiceRequest {
            target: ServiceTarget {
                url: site.url.clone(),
                token_file: None,
                token: Some(token["token"].as_str().unwrap().to_owned()),
                ca: None,
                logins: None,
            },
            json: false,
            command: ServiceCommand::Submit(Box::new(Submission {
                files: vec![FileRequest {
                    source: format!("{scheme}://a.example.org/x"),
                    destination: "ftp://b.example.org/x".to_owned(),
                    ..FileRequest::default()
                }],
                list: None,
                options: JobOptions::default(),
                idempotency_key: None,
                watch: false,
                proxy: proxy.then(|| path.clone()),
            })),
        };
        service::run(request, &warnings, &CancellationToken::default())
            .await
            .unwrap();
        jo.get("/credentials").await
    };
    assert_eq!(submit("ftp", true).await, json!([]), "not asked for");
    assert_eq!(submit("gsiftp", false).await, json!([]), "not allowed");
    let stored = submit("gsiftp", true).await;
    assert_eq!(stored[0]["endpoint"], "gsiftp://*,https://*,davs://*");
    assert_eq!(submit("gsiftp", true).await, stored, "it lasts for long");
    assert!(warnings.0.lock().is_empty());
    jo.ok(Method::DELETE, "/delegation", Value::Null).await;
    std::fs::write(&path, "no proxy").unwrap();
    assert_eq!(submit("gsiftp", true).await, json!([]));
    assert!(warnings.0.lock()[0].contains("your proxy is not delegated"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_with_a_proxy() {
    let (grid, other) = (Grid::new("Grid"), Grid::new("Other"));
    let folder = tempfile::tempdir().unwrap();
    let save = |name: &str, pem: Vec<u8>| {
        let path = folder.path().join(name);
        std::fs::write(&path, pem).unwrap();
        path.display().to_string()
    };
    let host = Blueprint::host("/O=Grid/CN=server", &["127.0.0.1"]).at(SystemTime::now());
    let host = host.issued_by(&grid.authority);
    let root = grid.authority.certificate().as_x509().to_pem().unwrap();
    let cert = save("cert", host.certificate().as_x509().to_pem().unwrap());
    let key = save("key", host.key().private_key_to_pem_pkcs8().unwrap());
    let ca = save("ca", root.clone());
    let mut site = Site::start(&["--cert", &cert, "--key", &key, "--client-ca", &ca]).await;
    let trusting = || {
        let root = Certificate::from_pem(&root).unwrap();
        Client::builder().no_proxy().tls_certs_only([root])
    };
    site.client = trusting().build().unwrap();
    let jo = json!({"name": "jo", "role": "user", "identities": ["dn:/O=Grid/CN=Jo"]});
    site.operator().ok(Method::PUT, "/users", jo).await;
    let me = async |shown: &Credential| {
        let mut chain = shown.certificate().as_x509().to_pem().unwrap();
        for above in shown.chain() {
            chain.extend(above.as_x509().to_pem().unwrap());
        }
        let key = shown.key().private_key_to_pem_pkcs8().unwrap();
        let identity = Identity::from_pkcs8_pem(&chain, &key).unwrap();
        let client = trusting().identity(identity).build().unwrap();
        let answer = client
            .get(format!("{}/api/v1/me", site.url))
            .send()
            .await
            .unwrap();
        answer.json::<Value>().await.unwrap()
    };
    for shown in [&grid.user, &grid.proxy] {
        assert_eq!(me(shown).await["name"], "jo");
    }
    let wrong = |answer: Value, why: &str| {
        assert_eq!(answer["status"], 401, "{answer}");
        assert!(answer["detail"].as_str().unwrap().contains(why), "{answer}");
    };
    wrong(me(&other.proxy).await, "the certificate is not accepted");
    let short = ProxyRequest {
        lifetime: Duration::from_secs(3600),
        ..ProxyRequest::default()
    };
    let long_ago = SystemTime::now() - Duration::from_secs(2 * 3600);
    let expired = proxy::create(&grid.user, &short, KeyKind::EcP256, long_ago).unwrap();
    wrong(me(&expired).await, "expired");
}
