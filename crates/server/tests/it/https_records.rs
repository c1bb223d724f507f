//! What the audit log and the metrics say of requests over HTTPS.

use godwit_server::{CopyAuthorities, CopySettings};

use crate::{
    audit::events,
    https::{KIM, ask},
    https_copies::{DONE, THEIRS, copy, ending, fails, passive, pull, url},
    metrics::scrape_at,
    tls::{Site, Wishes},
};

#[test]
fn transfers_and_changes_over_https_are_recorded_as_those_over_ftp() {
    let passive = passive();
    passive.server.write("theirs", b"abcdef");
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("audit");
    let wishes = Wishes {
        https: true,
        ..Wishes::default()
    };
    let mut active = Site::with(wishes, |settings| {
        settings.audit_log = Some(log.clone());
        settings.metrics = Some("127.0.0.1:0".parse().unwrap());
        settings.copies = Some(CopySettings {
            hosts: vec!["127.0.0.0/8".parse().unwrap()],
            authorities: CopyAuthorities::File(passive.at("ca.pem")),
            ..CopySettings::default()
        });
    });
    let on = |method: &str, path: &str, head: &str, body: &[u8]| {
        ask(&active, method, path, &format!("{KIM}{head}"), body)
    };
    let content = b"0123456789";
    on("PUT", "/f", "", content).is(201);
    on("PUT", "/f", "Digest: adler32=00000001\r\n", content).is(412);
    on("GET", "/f", "", b"").is(200);
    on("GET", "/f", "Range: bytes=2-4\r\n", b"").is(206);
    on("GET", "/none", "", b"").is(404);
    on("MKCOL", "/d", "", b"").is(201);
    on("MOVE", "/f", "Destination: /d/g\r\n", b"").is(201);
    let source = url(&passive, "/theirs");
    assert_eq!(ending(pull(&active, "/h", &source, "")), DONE);
    let missing = url(&passive, "/none");
    fails(pull(&active, "/i", &missing, ""), "status code 404");
    let destination = format!("Destination: {}\r\n{THEIRS}", url(&passive, "/new"));
    assert_eq!(ending(copy(&active, "/h", &destination)), DONE);
    on("DELETE", "/h", "", b"").is(204);
    on("DELETE", "/d", "Depth: infinity\r\n", b"").is(204);
    let stranger = "Authorization: Basic a2ltOndyb25n\r\n";
    ask(&active, "GET", "/d", stranger, b"").is(401);
    let metrics = scrape_at(active.server.metrics.unwrap());
    for (what, value) in [
        ("transfers_total{direction=\"in\",result=\"done\"}", 2.0),
        ("transfers_total{direction=\"in\",result=\"failed\"}", 2.0),
        ("transfers_total{direction=\"out\",result=\"done\"}", 3.0),
        ("transfers_total{direction=\"out\",result=\"failed\"}", 1.0),
        ("transfer_bytes_total{direction=\"in\"}", 26.0),
        ("transfer_bytes_total{direction=\"out\"}", 19.0),
        ("changes_total{result=\"done\"}", 4.0),
        ("logins_total{method=\"password\"}", 1.0),
        ("logins_refused_total{cause=\"credentials\"}", 1.0),
    ] {
        assert_eq!(metrics.value(&format!("godwitd_{what}")), value, "{what}");
    }
    active.server.begin_shutdown();
    active.server.join();
    let mut logged = events(&log);
    logged.retain(|event| !event.starts_with("logout "));
    assert_eq!(
        logged,
        [
            "login kim - kim - done",
            "put kim /f - 10 done",
            "put kim /f - 10 failed",
            "get kim /f - 10 done",
            "get kim /f - 3 done",
            "get kim /none - - failed",
            "mkdir kim /d - - done",
            "rename kim /f /d/g - done",
            "put kim /h - 6 done",
            "put kim /i - 0 failed",
            "get kim /h - 6 done",
            "delete kim /h - - done",
            "delete kim /d - - done",
            "login - - kim - failed",
        ]
    );
}
