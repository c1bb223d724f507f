//! Jobs whose ends are buckets of S3, by keys that users have stored.

use std::{fs, net::TcpListener, time::SystemTime};

use axum::http::Method;
use godwit_gsi::{cert::files, ftps::Authorities};
use godwit_server::{ServerSettings, TlsSettings, access::s3_keys};
use godwit_service::agent::Config;
use godwit_service_api::{
    account::CredentialRequest,
    agent::{BucketKeys, Secret},
    job::{JobOptions, JobState, WhoActs},
};
use serde_json::json;

use crate::{
    harness::{Served, Service, bytes, file},
    pki::Blueprint,
    site::{Site, refusal},
};

/// A file of this size goes up in parts.
const LARGE: usize = 20 << 20;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_to_and_from_buckets_by_stored_keys() {
    let pki = tempfile::tempdir().unwrap();
    let at = |name: &str| pki.path().join(name);
    let host = Blueprint::host("/CN=lake", &["127.0.0.1"]).at(SystemTime::now());
    let host = host.self_signed();
    files::write_private(&at("host.pem"), &host.to_pem().unwrap()).unwrap();
    fs::write(at("ca.pem"), host.certificate().as_x509().to_pem().unwrap()).unwrap();
    let key = s3_keys::add(&at("s3-keys"), "alice", "/", false).unwrap();
    let free = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let lake = Served::start_with(|settings: &mut ServerSettings| {
        settings.s3 = vec![address];
        settings.s3_keys = Some(at("s3-keys"));
        settings.tls = Some(TlsSettings {
            host: vec![(at("host.pem"), at("host.pem"))],
        });
    });
    fs::create_dir(lake.path("lake")).unwrap();
    let source = Served::start();
    let service = Service::start().await;
    let _agent = service
        .agent("a", |config: &mut Config| {
            config.connections.authorities = Authorities::File(at("ca.pem"));
        })
        .await;
    let sizes = [0, 1000, LARGE];
    for size in sizes {
        source.write(&format!("in/{size}"), &bytes(size, 7));
    }
    let up = |size: usize| {
        file(
            source.url(&format!("/in/{size}")),
            format!("s3://lake/{size}"),
        )
    };
    let down = |size: usize| {
        file(
            format!("s3://lake/{size}"),
            source.url(&format!("/out/{size}")),
        )
    };

    // Without keys, and with a password that would fit.
    let mut stored = CredentialRequest {
        endpoint: "s3://*".to_owned(),
        secret: Secret::Password {
            user: "alice".to_owned(),
            password: "geheim".to_owned(),
        },
        expires: None,
    };
    service.vault.put("alice", None, &stored).await.unwrap();
    let job = service.submit(vec![up(1000)], JobOptions::default()).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Failed, "{record:?}");
    let failed = service.store.files(&record, None, 10, None).await.unwrap();
    let error = failed.items[0].error.as_ref().unwrap();
    assert!(error.message.contains("no keys are stored"), "{error:?}");
    assert_eq!(error.who, WhoActs::User);

    stored = CredentialRequest {
        endpoint: "s3://lake".to_owned(),
        secret: Secret::Keys(BucketKeys {
            access: key.access.clone(),
            secret: key.secret.reveal().to_owned(),
            token: None,
            service: Some(format!("https://{address}")),
            region: None,
        }),
        expires: None,
    };
    service.vault.put("alice", None, &stored).await.unwrap();
    for (way, content) in [("up", "lake/"), ("down", "out/")] {
        let files = sizes.map(|size| if way == "up" { up(size) } else { down(size) });
        let job = service.submit(files.to_vec(), JobOptions::default()).await;
        let record = service.ended(job).await;
        let files = service.store.files(&record, None, 10, None).await.unwrap();
        let errors: Vec<_> = files.items.iter().map(|file| &file.error).collect();
        assert_eq!(record.state, JobState::Finished, "{way}: {errors:?}");
        let there = if way == "up" { &lake } else { &source };
        for size in sizes {
            let copy = fs::read(there.path(&format!("{content}{size}"))).unwrap();
            assert!(copy == bytes(size, 7), "{way} {size}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_for_buckets_and_for_services_that_users_may_go_to() {
    let site = Site::start(&[]).await;
    let alice = site.user("alice", "user", &[]).await;
    let request = |endpoint: &str, service: &str| {
        let keys = json!({"access": "AK", "secret": "never-shown", "service": service});
        json!({"endpoint": endpoint, "secret": {"keys": keys}})
    };
    for (endpoint, service, status, code) in [
        ("https://*", "https://s3.example.org", 422, "invalid_value"),
        (
            "s3://lake",
            "https://s3.example.org/lake",
            422,
            "invalid_value",
        ),
        ("s3://lake", "ftp://s3.example.org", 422, "invalid_value"),
        (
            "s3://lake",
            "http://s3.example.org",
            422,
            "scheme_not_allowed",
        ),
        (
            "s3://lake",
            "https://127.0.0.1:9000",
            422,
            "endpoint_not_allowed",
        ),
        (
            "s3://lake",
            "https://u:p@s3.example.org",
            422,
            "credentials_in_url",
        ),
    ] {
        let refused = alice.refused(Method::POST, "/credentials", request(endpoint, service));
        assert_eq!(refused.await, refusal(status, code), "{endpoint} {service}");
    }
    let good = request("s3://lake*", "https://s3.example.org:9000");
    let stored = alice.ok(Method::POST, "/credentials", good).await;
    assert_eq!(stored["kind"], "keys");
    let listed = alice.get("/credentials").await;
    assert!(!listed.to_string().contains("never-shown"), "{listed}");
    let found = site.database_bytes();
    assert!(!found.windows(11).any(|window| window == b"never-shown"));
    let job =
        json!({"files": [{"source": "s3://lake/a", "destination": "https://b.example.org/a"}]});
    alice.ok(Method::POST, "/jobs", job).await;
}
