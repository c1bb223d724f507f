//! Jobs whose ends are buckets of S3, by keys that users have stored.

use std::{
    fs,
    net::TcpListener,
    time::{Duration, SystemTime},
};

use axum::http::Method;
use godwit_gsi::{cert::files, ftps::Authorities};
use godwit_server::{ServerSettings, TlsSettings, access::s3_keys};
use godwit_service::{agent::Config, store::model::JobRecord};
use godwit_service_api::{
    account::CredentialRequest,
    agent::{BucketKeys, DividedUpload, Division, FileEnd, FilePart, Lease, Secret, Work},
    event::JobEventKind,
    job::{JobOptions, JobState, Overwrite, Verify, WhoActs},
};
use serde_json::json;
use tempfile::TempDir;

use crate::{
    divided::{both_poll, events, workers},
    failures::Puppet,
    harness::{LEASE, Served, Service, bytes, file, slow},
    pki::Blueprint,
    site::{Site, refusal},
};

/// A file of this size goes up in parts.
const LARGE: usize = 20 << 20;

/// A bucket `lake` of ours, over TLS.
struct Lake {
    pki: TempDir,
    served: Served,
    service: String,
    key: s3_keys::NewKey,
}

impl Lake {
    fn start() -> Self {
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
        let served = Served::start_with(|settings: &mut ServerSettings| {
            settings.s3 = vec![address];
            settings.s3_keys = Some(at("s3-keys"));
            settings.tls = Some(TlsSettings {
                host: vec![(at("host.pem"), at("host.pem"))],
            });
        });
        fs::create_dir(served.path("lake")).unwrap();
        Self {
            service: format!("https://{address}"),
            pki,
            served,
            key,
        }
    }

    fn authorities(&self) -> Authorities {
        Authorities::File(self.pki.path().join("ca.pem"))
    }

    /// Her keys are stored.
    async fn open_to_alice(&self, service: &Service) {
        let keys = BucketKeys {
            access: self.key.access.clone(),
            secret: self.key.secret.reveal().to_owned(),
            token: None,
            service: Some(self.service.clone()),
            region: None,
        };
        let stored = CredentialRequest {
            endpoint: "s3://lake".to_owned(),
            secret: Secret::Keys(keys),
            expires: None,
        };
        service.vault.put("alice", None, &stored).await.unwrap();
    }

    /// Uploads that are not complete.
    fn uploads(&self) -> usize {
        let all = fs::read_dir(self.served.path("lake/.godwit-uploads"));
        all.map_or(0, Iterator::count)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_to_and_from_buckets_by_stored_keys() {
    let lake = Lake::start();
    let source = Served::start();
    let service = Service::start().await;
    let _agent = service
        .agent("a", |config: &mut Config| {
            config.connections.authorities = lake.authorities();
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
    let stored = CredentialRequest {
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

    lake.open_to_alice(&service).await;
    for (way, content) in [("up", "lake/"), ("down", "out/")] {
        let files = sizes.map(|size| if way == "up" { up(size) } else { down(size) });
        let job = service.submit(files.to_vec(), JobOptions::default()).await;
        let record = service.ended(job).await;
        let files = service.store.files(&record, None, 10, None).await.unwrap();
        let errors: Vec<_> = files.items.iter().map(|file| &file.error).collect();
        assert_eq!(record.state, JobState::Finished, "{way}: {errors:?}");
        let there = if way == "up" { &lake.served } else { &source };
        for size in sizes {
            let copy = fs::read(there.path(&format!("{content}{size}"))).unwrap();
            assert!(copy == bytes(size, 7), "{way} {size}");
        }
    }
}

fn checksums() -> JobOptions {
    JobOptions {
        verify: Verify::Checksum,
        ..JobOptions::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_agents_send_one_object() {
    let lake = Lake::start();
    let service = Service::start().await;
    lake.open_to_alice(&service).await;
    let local = tempfile::tempdir().unwrap();
    let change = |config: &mut Config| {
        config.slots = 1;
        config.local = vec![local.path().to_owned()];
        config.connections.authorities = lake.authorities();
    };
    let _first = service.agent("first", change).await;
    let _second = service.agent("second", change).await;
    both_poll(&service).await;
    let source = Served::start();
    let content = bytes(LARGE + 3, 7);
    source.write("large", &content);
    fs::write(local.path().join("large"), &content).unwrap();
    let here = format!("file://{}", local.path().join("large").display());
    for (from, name) in [(source.url("/large"), "a b"), (here, "local")] {
        let to = format!("s3://lake/{}", name.replace(' ', "%20"));
        let job = service.submit(vec![file(from, to)], checksums()).await;
        let record = service.ended(job).await;
        let files = service.store.files(&record, None, 10, None).await.unwrap();
        assert_eq!(record.state, JobState::Finished, "{files:?}");
        assert!(fs::read(lake.served.path(&format!("lake/{name}"))).unwrap() == content);
        assert!(files.items[0].checksum.is_some(), "{files:?}");
        let events = events(&service, job).await;
        // Of parts of 5 MiB.
        let divided = JobEventKind::Divided {
            index: 0,
            ranges: 5,
        };
        assert!(events.contains(&divided), "{events:?}");
        assert_eq!(workers(&service, job).await.len(), 2, "{events:?}");
        assert_eq!(lake.uploads(), 0);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cancel_ends_an_upload_that_several_agents_send() {
    let lake = Lake::start();
    let service = Service::start().await;
    lake.open_to_alice(&service).await;
    let local = tempfile::tempdir().unwrap();
    let change = |config: &mut Config| {
        slow(config, local.path());
        config.connections.authorities = lake.authorities();
    };
    let _first = service.agent("first", change).await;
    let _second = service.agent("second", change).await;
    both_poll(&service).await;
    fs::write(local.path().join("large"), bytes(96 << 20, 5)).unwrap();
    let here = format!("file://{}", local.path().join("large").display());
    let files = vec![file(here, "s3://lake/copy".to_owned())];
    let job = service.submit(files, checksums()).await;
    let copies = |job: &JobRecord| job.bytes_done > 0;
    service.until(job, Duration::from_secs(30), copies).await;
    assert_eq!(lake.uploads(), 1);
    service.store.cancel(job, "by the test").await.unwrap();
    for _ in 0..600 {
        if lake.uploads() == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(lake.uploads(), 0);
    assert!(!lake.served.path("lake/copy").exists());
}

/// A unit for an agent that takes no other, and what it does of a divided file.
async fn next(puppet: &mut Puppet<'_>) -> (Lease, Option<FilePart>) {
    puppet.poll.free_slots = 1;
    let grant = puppet.grant().await;
    puppet.poll.free_slots = 0;
    match grant.work {
        Work::Copy(files) => (grant.lease, files[0].part.clone()),
        Work::List { .. } => panic!("a listing"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_came_of_an_upload_is_found_by_it_and_stays() {
    let lake = Lake::start();
    let service = Service::start().await;
    lake.open_to_alice(&service).await;
    let local = tempfile::tempdir().unwrap();
    let content = bytes(LARGE, 5);
    fs::write(local.path().join("large"), &content).unwrap();
    let change = |config: &mut Config| {
        slow(config, local.path());
        config.slots = 1;
        config.connections.authorities = lake.authorities();
    };
    let here = format!("file://{}", local.path().join("large").display());
    let files = vec![file(here, "s3://lake/copy".to_owned())];
    let options = JobOptions {
        overwrite: Overwrite::Always,
        ..checksums()
    };
    let mut puppet = Puppet::of(&service, "puppet").await;
    puppet.poll.description.joins_uploads = true;
    puppet.poll.free_slots = 0;
    puppet.ask().await;

    let first = service.agent("first", change).await;
    both_poll(&service).await;
    let job = service.submit(files.clone(), options.clone()).await;
    let is_divided = |kind: &JobEventKind| matches!(kind, JobEventKind::Divided { .. });
    while !events(&service, job).await.iter().any(is_divided) {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let (lease, part) = next(&mut puppet).await;
    let part = part.unwrap();
    puppet.tell(lease, None).await;
    assert_eq!(service.ended(job).await.state, JobState::Finished);
    drop(first);

    // As if an agent had completed it and could not say so.
    let known_as = part.upload.unwrap();
    let part_bytes = known_as.split(' ').nth(1).unwrap().parse().unwrap();
    let divided = FileEnd::Divided(Division {
        temporary: part.temporary.rsplit_once('/').unwrap().1.to_owned(),
        size: part.size,
        changed: part.changed,
        upload: Some(DividedUpload {
            known_as,
            part_bytes,
        }),
    });
    let job = service.submit(files.clone(), options.clone()).await;
    let (lease, _) = next(&mut puppet).await;
    puppet.tell(lease, Some(divided.clone())).await;
    for _ in 0..LARGE as u64 / part_bytes {
        let (lease, _) = next(&mut puppet).await;
        puppet.tell(lease, Some(FileEnd::Copied)).await;
    }
    let second = service.agent("second", change).await;
    let record = service.ended(job).await;
    let ended = service.store.files(&record, None, 10, None).await.unwrap();
    assert_eq!(record.state, JobState::Finished, "{ended:?}");
    assert!(ended.items[0].checksum.is_some(), "{ended:?}");
    drop(second);

    // As if the job had been canceled between.
    let job = service.submit(files, options).await;
    let (lease, _) = next(&mut puppet).await;
    puppet.tell(lease, Some(divided)).await;
    service.store.cancel(job, "by the test").await.unwrap();
    let _third = service.agent("third", change).await;
    tokio::time::sleep(LEASE + Duration::from_secs(5)).await;
    assert!(fs::read(lake.served.path("lake/copy")).unwrap() == content);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_the_bucket_has_ended_is_begun_again() {
    let lake = Lake::start();
    let service = Service::start().await;
    lake.open_to_alice(&service).await;
    let local = tempfile::tempdir().unwrap();
    let large = local.path().join("large");
    let content = bytes(LARGE, 5);
    fs::write(&large, &content).unwrap();
    let changed = fs::metadata(&large).unwrap().modified().unwrap();
    let changed = changed.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let mut puppet = Puppet::of(&service, "puppet").await;
    puppet.poll.description.joins_uploads = true;
    for (verify, name) in [(Verify::Size, "by-size"), (Verify::Checksum, "by-checksum")] {
        let here = format!("file://{}", large.display());
        let files = vec![file(here, format!("s3://lake/{name}"))];
        let options = JobOptions {
            verify,
            ..JobOptions::default()
        };
        let job = service.submit(files, options).await;
        let (lease, _) = next(&mut puppet).await;
        let divided = Division {
            temporary: ".godwit-0123456789abcdef.part".to_owned(),
            size: LARGE as u64,
            changed: i64::try_from(changed.as_nanos()).unwrap(),
            upload: Some(DividedUpload {
                known_as: format!("{name} {LARGE} {LARGE} mark none"),
                part_bytes: LARGE as u64,
            }),
        };
        puppet.tell(lease, Some(FileEnd::Divided(divided))).await;
        let (lease, _) = next(&mut puppet).await;
        puppet.tell(lease, Some(FileEnd::Copied)).await;
        let agent = service.agent(name, |config: &mut Config| {
            config.local = vec![local.path().to_owned()];
            config.connections.authorities = lake.authorities();
        });
        let agent = agent.await;
        let record = service.ended(job).await;
        let events = events(&service, job).await;
        let codes = events.iter().filter_map(|kind| match kind {
            JobEventKind::FileFailed { error, .. } => Some(&*error.code),
            _ => None,
        });
        let codes: Vec<&str> = codes.collect();
        assert_eq!(codes, ["upload_ended"], "{events:?}");
        assert_eq!(record.state, JobState::Finished, "{events:?}");
        assert!(fs::read(lake.served.path(&format!("lake/{name}"))).unwrap() == content);
        drop(agent);
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
