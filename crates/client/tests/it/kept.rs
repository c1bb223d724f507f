//! Runs that leave their sessions to the next.

use std::{net::TcpStream, sync::Arc};

use godwit_client::{
    CancellationToken,
    cli::{Environment, parse},
    job,
    kept_sessions::KeptSessions,
    manage,
    report::events::{Event, Observer},
    spec::{Connections, Request},
};

use godwit_proto::url::Location;
use godwit_server::ServerSettings;

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, nap, text},
};

struct Silent;

impl Observer for Silent {
    fn on_event(&self, _: &Event) {}
}

fn connections() -> Connections {
    let words = ["godwit", "ls", "ftp://h/"].map(Into::into);
    let parsed = parse(&words, &Environment::default());
    parsed.map_err(|exit| exit.text).unwrap().connections
}

/// Copies as the program does, with sessions of `kept`, or of its own only. How it ended.
async fn copy(arguments: &[&str], kept: Option<&KeptSessions>) -> u8 {
    let words = ["godwit", "cp"].iter().chain(arguments);
    let words: Vec<_> = words.map(Into::into).collect();
    let environment = Environment::default();
    let invocation = parse(&words, &environment).map_err(|exit| exit.text);
    let invocation = invocation.unwrap();
    let Request::Copy(spec) = invocation.request else {
        panic!("no copy");
    };
    let mut connections = invocation.connections;
    connections.kept = kept.cloned();
    let stop = CancellationToken::default();
    let ran = job::run(*spec, connections, Arc::new(Silent), stop).await;
    ran.unwrap().exit
}

#[tokio::test]
async fn a_run_goes_on_with_the_sessions_of_the_run_before() {
    let server = Fake::start(Quirks::default());
    let here = tempfile::tempdir().unwrap();
    let kept = KeptSessions::default();
    let get = async |name: &str, kept: Option<&KeptSessions>| {
        server.put(name, name.as_bytes());
        let to = here.path().join(name.trim_start_matches('/'));
        assert_eq!(copy(&[&server.url(name), text(&to)], kept).await, 0);
        assert_eq!(std::fs::read(&to).unwrap(), name.as_bytes());
        server.heard("USER")
    };
    let first = get("/first", Some(&kept)).await;
    assert_eq!(get("/second", Some(&kept)).await, first);
    assert_eq!(server.heard("QUIT"), 0);
    // Another user of the library has none of them.
    let of_others = get("/third", None).await;
    assert!(of_others > first);
    let quits = server.heard("QUIT");
    assert_eq!(get("/fourth", Some(&kept)).await, of_others);
    kept.close().await;
    assert!(server.heard("QUIT") > quits);
    assert!(get("/fifth", Some(&kept)).await > of_others);
}

#[tokio::test]
async fn a_session_that_left_the_home_of_its_user_is_not_kept() {
    let server = Fake::start(Quirks {
        long: true,
        replies: vec![("MLSD", "500 no"), ("MLST", "500 no")],
        ..Quirks::default()
    });
    server.put("/d/file", b"bytes");
    let kept = KeptSessions::default();
    for logins in 1..3 {
        let Ok(Location::Remote(url)) = Location::parse(server.url("/d/").as_bytes()) else {
            panic!("no URL");
        };
        let connections = Connections {
            kept: Some(kept.clone()),
            ..connections()
        };
        let stop = CancellationToken::default();
        let names = manage::list(url, connections, Arc::new(Silent), stop).await;
        assert_eq!(names.unwrap().len(), 1);
        assert!(server.heard("CWD") > 0);
        assert_eq!(server.heard("USER"), logins);
    }
}

#[tokio::test]
async fn a_session_whose_last_transfer_failed_is_not_kept() {
    let server = Fake::start(Quirks {
        once: vec![("RETR", "451 broken")],
        ..Quirks::default()
    });
    server.put("/file", b"bytes");
    let here = tempfile::tempdir().unwrap();
    let kept = KeptSessions::default();
    let to = here.path().join("file");
    assert_ne!(
        copy(
            &["--retries", "1", &server.url("/file"), text(&to)],
            Some(&kept)
        )
        .await,
        0
    );
    let logins = server.heard("USER");
    assert_eq!(
        copy(&[&server.url("/file"), text(&to)], Some(&kept)).await,
        0
    );
    assert!(server.heard("USER") > logins);
}

#[tokio::test]
async fn a_pair_of_servers_goes_on_with_its_sessions_and_channels() {
    let foreign = |settings: &mut ServerSettings| settings.foreign_data_hosts = true;
    let [from, to] = [Served::start_with(foreign), Served::start_with(foreign)];
    let kept = KeptSessions::default();
    for name in ["first", "second", "third"] {
        std::fs::write(from.path(name), name.repeat(1000)).unwrap();
        let ends = [from.url(&format!("/{name}")), to.url(&format!("/{name}"))];
        assert_eq!(copy(&[&ends[0], &ends[1]], Some(&kept)).await, 0);
        assert_eq!(
            std::fs::read(to.path(name)).unwrap(),
            name.repeat(1000).as_bytes()
        );
    }
    // Sessions of another shape: each with one of the two.
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("file");
    assert_eq!(
        copy(&[&from.url("/first"), text(&file)], Some(&kept)).await,
        0
    );
    assert_eq!(copy(&[text(&file), &to.url("/put")], Some(&kept)).await, 0);
    let ends = [from.url("/second"), to.url("/again")];
    let once = ["--retries", "1", &ends[0], &ends[1]];
    assert_eq!(copy(&once, Some(&kept)).await, 0);
    assert_eq!(
        std::fs::read(to.path("again")).unwrap(),
        "second".repeat(1000).as_bytes()
    );
}

#[tokio::test]
async fn a_kept_session_that_its_server_has_closed_is_not_used() {
    let kept = KeptSessions::default();
    let server = Served::start();
    std::fs::write(server.path("file"), b"bytes").unwrap();
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("file");
    let (url, address) = (server.url("/file"), server.address.to_string());
    assert_eq!(copy(&[&url, text(&to)], Some(&kept)).await, 0);
    drop(server);
    while TcpStream::connect(&address).is_ok() {
        nap();
    }
    let server = Served::start_at(&address, |_| {});
    std::fs::write(server.path("file"), b"other").unwrap();
    // No attempt is lost with it.
    let once = ["--retries", "1", &url, text(&to)];
    assert_eq!(copy(&once, Some(&kept)).await, 0);
    assert_eq!(std::fs::read(&to).unwrap(), b"other");
}
