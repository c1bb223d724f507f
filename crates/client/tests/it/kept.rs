//! Runs that leave their sessions to the next.

use std::{net::TcpStream, sync::Arc};

use godwit_client::{
    CancellationToken,
    cli::{Environment, parse},
    job,
    kept_sessions::KeptSessions,
    report::events::{Event, Observer},
    spec::Request,
};

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, nap, text},
};

struct Silent;

impl Observer for Silent {
    fn on_event(&self, _: &Event) {}
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
