//! Who may ask: signatures, signed URLs, signed chunks, and what a key reaches.

use std::{fs, io::Write as _, os::unix::fs::PermissionsExt as _};

use godwit_http::s3::{
    requests::Query,
    signing::{Signable, SigningKey, hex},
};
use godwit_server::access::s3_keys;
use openssl::sha::sha256;

use super::{Ask, Door, begun, refused};
use crate::{
    harness::eventually,
    https::{connect_to, names, read_answer},
};

#[test]
fn requests_that_are_not_signed_right_are_refused() {
    let door = Door::new();
    door.server().write("b/f", b"secret");
    let get = || Ask::new("GET", "/b/f");
    refused(
        door.send(&Ask {
            secret: Some("another secret"),
            ..get()
        }),
        403,
        "SignatureDoesNotMatch",
    );
    let other = s3_keys::add(&door.keys(), "jo", "/", false).unwrap();
    // The name of one key, and the secret of another.
    let mixed = Ask {
        access: Some(&other.access),
        ..get()
    };
    refused(door.send(&mixed), 403, "SignatureDoesNotMatch");
    refused(
        door.send(&Ask {
            access: Some("GWNONE"),
            ..get()
        }),
        403,
        "InvalidAccessKeyId",
    );
    for late in [-1000, 1000] {
        refused(
            door.send(&Ask { late, ..get() }),
            403,
            "RequestTimeTooSkewed",
        );
    }
    door.send(&Ask {
        late: -800,
        ..get()
    })
    .is(200);
    refused(
        door.send(&Ask {
            sent: Some("/b/g"),
            ..get()
        }),
        403,
        "SignatureDoesNotMatch",
    );
    // A header that makes another request of it.
    let copies = Ask {
        unsigned: "x-amz-copy-source: /b/f\r\n",
        ..Ask::new("PUT", "/b/g")
    };
    refused(door.send(&copies), 403, "AccessDenied");
    let mut stream = connect_to(&door.site, door.site.server.s3.unwrap(), None);
    stream.write_all(&get().raw("")).unwrap();
    refused(
        read_answer(&mut stream, false).unwrap(),
        403,
        "AccessDenied",
    );
    // A key that is removed counts no longer, and neither do those of a file open to others.
    door.send(&get()).is(200);
    s3_keys::remove(&door.keys(), &door.key.access).unwrap();
    refused(door.send(&get()), 403, "InvalidAccessKeyId");
}

#[test]
fn keys_that_cannot_be_read_are_not_the_clients_fault() {
    let door = Door::new();
    door.server().write("b/f", b"x");
    let open = fs::Permissions::from_mode(0o644);
    let closed = fs::Permissions::from_mode(0o600);
    fs::set_permissions(door.keys(), open).unwrap();
    // More than the failures after which an address has to pause.
    for _ in 0..12 {
        let answer = door.ask("GET", "/b/f", "", b"");
        assert_eq!(answer.header("retry-after"), "10");
        refused(answer, 503, "ServiceUnavailable");
    }
    fs::set_permissions(door.keys(), closed).unwrap();
    door.ask("GET", "/b/f", "", b"").is(200);
}

#[test]
fn signed_urls_are_good_until_they_expire() {
    let door = Door::new();
    door.server().write("b/f", b"0123456789");
    let signed = |method: &str, expires: u64, late: i64| {
        let ask = Ask {
            late,
            ..Ask::new(method, "/b/f")
        };
        let scope = ask.scope();
        let credential = format!("{}/{}", door.key.access, scope.text()).replace('/', "%2F");
        let query = format!(
            "X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={credential}&X-Amz-Date={}&\
             X-Amz-Expires={expires}&X-Amz-SignedHeaders=host",
            scope.time()
        );
        assert!(Query::parse(&query).is_some());
        let signable = Signable {
            method,
            path: "/b/f",
            query: &query,
            headers: &[("host", "localhost".to_owned())],
            payload: "UNSIGNED-PAYLOAD",
        };
        let key = SigningKey::new(door.key.secret.reveal(), &scope);
        format!(
            "/b/f?{query}&X-Amz-Signature={}",
            key.sign(&signable.text(&scope))
        )
    };
    let ask = |method: &str, url: &str| {
        let mut stream = connect_to(&door.site, door.site.server.s3.unwrap(), None);
        stream.write_all(&Ask::new(method, url).raw("")).unwrap();
        read_answer(&mut stream, false).unwrap()
    };
    assert_eq!(
        ask("GET", &signed("GET", 60, 0)).is(200).text(),
        "0123456789"
    );
    ask("GET", &signed("GET", 604_800, -600_000)).is(200);
    refused(ask("GET", &signed("GET", 60, -70)), 403, "AccessDenied");
    refused(
        ask("GET", &signed("GET", 604_801, 0)),
        400,
        "AuthorizationHeaderMalformed",
    );
    refused(
        ask("PUT", &signed("GET", 60, 0)),
        403,
        "SignatureDoesNotMatch",
    );
    let longer = signed("GET", 60, 0).replace("Expires=60", "Expires=600");
    refused(ask("GET", &longer), 403, "SignatureDoesNotMatch");
}

#[test]
fn chunks_of_a_body_are_verified() {
    let door = Door::new();
    let send = |change: fn(String) -> String, length: &str| {
        let ask = Ask {
            payload: "STREAMING-AWS4-HMAC-SHA256-PAYLOAD".to_owned(),
            ..Ask::new("PUT", "/b/f").with(&format!("x-amz-decoded-content-length: {length}\r\n"))
        };
        let scope = ask.scope();
        let (authorization, mut before) = ask.signed(&door.key, &scope);
        let key = SigningKey::new(door.key.secret.reveal(), &scope);
        let empty = hex(&sha256(b""));
        let mut body = String::new();
        for data in ["0123456789", "abc", ""] {
            let hash = hex(&sha256(data.as_bytes()));
            let text = format!(
                "AWS4-HMAC-SHA256-PAYLOAD\n{}\n{}\n{before}\n{empty}\n{hash}",
                scope.time(),
                scope.text()
            );
            before = key.sign(&text);
            body += &format!("{:x};chunk-signature={before}\r\n{data}\r\n", data.len());
        }
        let head = format!(
            "authorization: {authorization}\r\nx-amz-date: {}\r\nx-amz-content-sha256: {}\r\n",
            scope.time(),
            ask.payload
        );
        let ask = ask.body(change(body).as_bytes());
        let mut stream = connect_to(&door.site, door.site.server.s3.unwrap(), None);
        stream.write_all(&ask.raw(&head)).unwrap();
        read_answer(&mut stream, false).unwrap()
    };
    send(|body| body, "13").is(200);
    assert_eq!(door.server().read("b/f"), b"0123456789abc");
    refused(send(|body| body, "12"), 400, "IncompleteBody");
    refused(send(|body| body, "14"), 400, "IncompleteBody");
    let changed = |body: String| body.replace("abc\r\n", "abd\r\n");
    refused(send(changed, "13"), 403, "SignatureDoesNotMatch");
    let longer = |body: String| body.replacen("a;chunk", "b;chunk", 1);
    refused(send(longer, "13"), 400, "IncompleteBody");
    let cut = |body: String| body[..body.find("\r\n0;").unwrap() + 2].to_owned();
    refused(send(cut, "13"), 400, "IncompleteBody");
    assert_eq!(door.server().read("b/f"), b"0123456789abc");
    eventually("no partial file", || names(&door.site, "b") == ["f"]);
    let ask = Ask {
        payload: "STREAMING-UNSIGNED-PAYLOAD-TRAILER".to_owned(),
        ..Ask::new("PUT", "/b/g")
            .with("x-amz-decoded-content-length: 10\r\nx-amz-trailer: x-amz-checksum-crc32\r\n")
    };
    let body = |sum: &str| format!("a\r\n0123456789\r\n0\r\nx-amz-checksum-crc32:{sum}\r\n\r\n");
    let ask = ask.body(body("poTHxw==").as_bytes());
    refused(door.send(&ask), 400, "BadDigest");
    let ask = ask.body(body("poTHxg==").as_bytes());
    door.send(&ask).is(200);
    assert_eq!(door.server().read("b/g"), b"0123456789");
}

#[test]
fn a_key_reaches_its_directory_and_may_only_read() {
    let door = Door::with("/b/own", false);
    fs::create_dir(door.server().path("b/own")).unwrap();
    door.server().write("b/f", b"x");
    door.ask("PUT", "/b/own/f", "", b"x").is(200);
    refused(door.ask("GET", "/b/f", "", b""), 403, "AccessDenied");
    refused(door.ask("PUT", "/b/g", "", b"x"), 403, "AccessDenied");
    refused(door.ask("DELETE", "/b/f", "", b""), 403, "AccessDenied");
    refused(
        door.ask("POST", "/b/g?uploads=", "", b""),
        403,
        "AccessDenied",
    );
    refused(
        door.ask("GET", "/b?list-type=2", "", b""),
        403,
        "AccessDenied",
    );
    let page = door
        .ask("GET", "/b?list-type=2&prefix=own%2F", "", b"")
        .is(200)
        .text();
    assert!(page.contains("own/f"), "{page}");
    let source = "x-amz-copy-source: /b/f\r\n";
    refused(
        door.ask("PUT", "/b/own/g", source, b""),
        403,
        "AccessDenied",
    );
    let buckets = door.ask("GET", "/", "", b"").is(200).text();
    assert!(
        buckets.contains("<Name>b</Name>") && !buckets.contains("sam"),
        "{buckets}"
    );
    let id = begun(&door, "/b/own/h");
    door.ask(
        "PUT",
        &format!("/b/own/h?partNumber=1&uploadId={id}"),
        "",
        b"x",
    )
    .is(200);
    door.ask("DELETE", &format!("/b/own/h?uploadId={id}"), "", b"")
        .is(204);
    let reader = Door::with("/", true);
    reader.server().write("b/f", b"x");
    reader.ask("GET", "/b/f", "", b"").is(200);
    refused(reader.ask("PUT", "/b/f", "", b"y"), 403, "AccessDenied");
    refused(reader.ask("DELETE", "/b/f", "", b""), 403, "AccessDenied");
    refused(
        reader.ask("POST", "/b/f?uploads=", "", b""),
        403,
        "AccessDenied",
    );
    assert_eq!(reader.server().read("b/f"), b"x");
}
