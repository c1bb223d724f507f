//! Jobs between servers of HTTPS: one of them copies, and no byte goes through the agent.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::SystemTime,
};

use godwit_gsi::{cert::files, ftps::Authorities};
use godwit_server::{
    Anonymous, CopyAuthorities, CopySettings, PasswordSettings, ServerSettings, TlsSettings,
    access::passwords::{self, Change},
};
use godwit_service::agent::Config;
use godwit_service_api::job::{JobOptions, JobState, Verify};

use crate::{
    harness::{Served, Service, bytes, file},
    pki::Blueprint,
};

/// The certificates of the doors of a test, and the password of jo.
struct Keys(tempfile::TempDir);

impl Keys {
    fn new() -> Self {
        let keys = Self(tempfile::tempdir().unwrap());
        let host = Blueprint::host("/CN=data", &["127.0.0.1"]).at(SystemTime::now());
        let host = host.self_signed();
        files::write_private(&keys.at("host.pem"), &host.to_pem().unwrap()).unwrap();
        let certificate = host.certificate().as_x509().to_pem().unwrap();
        fs::write(keys.at("ca.pem"), certificate).unwrap();
        let change = Change::Set {
            password: b"s3cret",
            home: None,
            reads_only: None,
            account: None,
        };
        passwords::edit(&keys.at("passwords"), "jo", change).unwrap();
        keys
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn door(&self, anonymous: Anonymous) -> (Served, SocketAddr) {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let served = Served::start_with(|settings: &mut ServerSettings| {
            settings.anonymous = anonymous;
            settings.https = vec![address];
            settings.tls = Some(TlsSettings {
                host: vec![(self.at("host.pem"), self.at("host.pem"))],
            });
            settings.passwords = Some(PasswordSettings {
                file: self.at("passwords"),
                in_clear: false,
            });
            settings.copies = Some(CopySettings {
                hosts: vec!["127.0.0.0/8".parse().unwrap()],
                authorities: CopyAuthorities::File(self.at("ca.pem")),
                ..CopySettings::default()
            });
        });
        (served, address)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_go_between_servers_of_https_and_to_and_from_the_agent() {
    let keys = Keys::new();
    let (source, from) = keys.door(Anonymous::Ro);
    let (target, to) = keys.door(Anonymous::Off);
    let service = Service::start().await;
    let local = tempfile::tempdir().unwrap();
    let _agent = service
        .agent("a", |config: &mut Config| {
            config.local = vec![local.path().to_owned()];
            config.connections.authorities = Authorities::File(keys.at("ca.pem"));
        })
        .await;
    let mut files = Vec::new();
    for number in 0..12_usize {
        source.write(
            &format!("in/{number}"),
            &bytes(100_000 * number, number as u64),
        );
        files.push(file(
            format!("https://{from}/in/{number}"),
            format!("davs://jo:s3cret@{to}/out/{number}"),
        ));
    }
    fs::write(local.path().join("up"), b"from the agent").unwrap();
    let here = |name: &str| format!("file://{}", local.path().join(name).display());
    files.push(file(here("up"), format!("https://jo:s3cret@{to}/up")));
    files.push(file(format!("davs://{from}/in/3"), here("down")));
    files.push(file(
        format!("https://{from}/none"),
        format!("https://jo:s3cret@{to}/none"),
    ));
    let options = JobOptions {
        verify: Verify::Checksum,
        ..JobOptions::default()
    };
    let job = service.submit(files, options).await;
    let record = service.ended(job).await;
    assert_eq!(record.state, JobState::Partial, "{record:?}");
    assert_eq!(
        (record.files.finished, record.files.failed),
        (14, 1),
        "{record:?}"
    );
    let has = |path: &Path, content: &[u8]| assert!(fs::read(path).unwrap() == content);
    for number in 0..12_usize {
        let copy = target.path(&format!("out/{number}"));
        has(&copy, &bytes(100_000 * number, number as u64));
    }
    has(&target.path("up"), b"from the agent");
    has(&local.path().join("down"), &bytes(300_000, 3));
}
