//! The door for S3, by a client that signs what a test tells it to sign.

use std::{
    fs,
    io::Write as _,
    os::unix::fs::PermissionsExt as _,
    sync::Arc,
    thread,
    time::{SystemTime, UNIX_EPOCH},
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::{MemoryStorage, Storage, faulty::Operation};
use godwit_http::s3::{
    answers::{Made, Page, PartsPage, Refusal, UploadsPage, completing, read_upload_id},
    requests::Query,
    signing::{Scope, Signable, SigningKey, hex},
};
use godwit_proto::FtpPath;
use godwit_server::{
    ServerSettings,
    access::s3_keys::{self, NewKey},
};
use openssl::sha::sha256;

use crate::{
    harness::{Gate, TestServer, eventually, pattern},
    https::{Answer, connect_to, names, read_answer},
    tls::{Site, Wishes},
};

/// A server with the bucket `b`, and a key.
pub(crate) struct Door {
    pub(crate) site: Site,
    pub(crate) key: NewKey,
}

impl Door {
    pub(crate) fn new() -> Self {
        Self::with("/", false)
    }

    fn with(home: &str, reads_only: bool) -> Self {
        let mut made = None;
        let site = Site::with(Wishes::default(), |settings| {
            made = Some(offer(settings, home, reads_only));
        });
        fs::create_dir(site.server.path("b")).unwrap();
        let key = made.unwrap();
        Self { site, key }
    }

    /// Serves `storage`.
    fn on(storage: Arc<dyn Storage>) -> Self {
        let mut made = None;
        let site = Site::on(storage, Wishes::default(), |settings| {
            made = Some(offer(settings, "/", false));
        });
        let key = made.unwrap();
        Self { site, key }
    }

    pub(crate) fn server(&self) -> &TestServer {
        &self.site.server
    }

    fn keys(&self) -> std::path::PathBuf {
        self.site.server.settings.s3_keys.clone().unwrap()
    }

    fn ask(&self, method: &str, target: &str, head: &str, body: &[u8]) -> Answer {
        self.send(&Ask::new(method, target).with(head).body(body))
    }

    fn send(&self, ask: &Ask<'_>) -> Answer {
        self.send_as(&self.key, ask)
    }

    fn send_as(&self, key: &NewKey, ask: &Ask<'_>) -> Answer {
        let mut stream = connect_to(&self.site, self.site.server.s3.unwrap(), None);
        let text = ask.text(key);
        // The server may refuse it before it has read all.
        let _ = stream.write_all(&text);
        read_answer(&mut stream, ask.method == "HEAD").expect("an answer")
    }
}

/// Turns S3 on, with a key.
fn offer(settings: &mut ServerSettings, home: &str, reads_only: bool) -> NewKey {
    let passwords = &settings.passwords.as_ref().unwrap().file;
    let keys = passwords.with_file_name("s3-keys");
    let key = s3_keys::add(&keys, "kim", home, reads_only).unwrap();
    settings.s3 = vec!["127.0.0.1:0".parse().unwrap()];
    settings.s3_keys = Some(keys);
    key
}

/// A request, and what is false of it.
struct Ask<'a> {
    method: &'a str,
    target: &'a str,
    head: String,
    body: Vec<u8>,
    payload: String,
    /// Signed at another time than now, in seconds.
    late: i64,
    secret: Option<&'a str>,
    access: Option<&'a str>,
    /// Sent in place of what was signed.
    sent: Option<&'a str>,
    unsigned: &'a str,
}

impl<'a> Ask<'a> {
    fn new(method: &'a str, target: &'a str) -> Self {
        Self {
            method,
            target,
            head: String::new(),
            body: Vec::new(),
            payload: "UNSIGNED-PAYLOAD".to_owned(),
            late: 0,
            secret: None,
            access: None,
            sent: None,
            unsigned: "",
        }
    }

    /// `head`: headers in small letters, each with its line end.
    fn with(mut self, head: &str) -> Self {
        self.head = head.to_owned();
        self
    }

    fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    fn scope(&self) -> Scope {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        Scope::new(now.checked_add_signed(self.late).unwrap(), "us-east-1").unwrap()
    }

    fn signed(&self, key: &NewKey, scope: &Scope) -> (String, String) {
        let mut headers: Vec<(&str, String)> = vec![
            ("host", "localhost".to_owned()),
            ("x-amz-content-sha256", self.payload.clone()),
            ("x-amz-date", scope.time().to_owned()),
        ];
        for line in self.head.lines() {
            let (name, value) = line.split_once(": ").unwrap();
            headers.push((name, value.to_owned()));
        }
        headers.sort();
        let (path, query) = self.target.split_once('?').unwrap_or((self.target, ""));
        let mut pairs: Vec<_> = query.split('&').collect();
        pairs.sort_unstable();
        let signable = Signable {
            method: self.method,
            path,
            query: &pairs.join("&"),
            headers: &headers,
            payload: &self.payload,
        };
        let secret = self.secret.unwrap_or_else(|| key.secret.reveal());
        let signature = SigningKey::new(secret, scope).sign(&signable.text(scope));
        let access = self.access.unwrap_or(&key.access);
        let authorization = format!(
            "AWS4-HMAC-SHA256 Credential={access}/{},SignedHeaders={},Signature={signature}",
            scope.text(),
            signable.names()
        );
        (authorization, signature)
    }

    fn text(&self, key: &NewKey) -> Vec<u8> {
        let scope = self.scope();
        let (authorization, _) = self.signed(key, &scope);
        self.raw(&format!(
            "authorization: {authorization}\r\nx-amz-date: {}\r\nx-amz-content-sha256: {}\r\n",
            scope.time(),
            self.payload
        ))
    }

    fn raw(&self, signature: &str) -> Vec<u8> {
        let mut text = format!(
            "{} {} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n{signature}{}{}\r\n",
            self.method,
            self.sent.unwrap_or(self.target),
            self.body.len(),
            self.head,
            self.unsigned
        )
        .into_bytes();
        text.extend_from_slice(&self.body);
        text
    }
}

#[track_caller]
fn refused(answer: Answer, status: u16, code: &str) {
    let answer = answer.is(status);
    let refusal = Refusal::read(answer.text().as_bytes()).expect("an error of S3");
    assert_eq!(refusal.code, code, "{}", refusal.message);
}

#[test]
fn objects_are_files_below_their_bucket() {
    let door = Door::new();
    let content = pattern(3_000_000, 1);
    let stored = door.ask("PUT", "/b/d/e/f", "", &content).is(200);
    assert!(door.server().read("b/d/e/f") == content);
    assert_eq!(names(&door.site, "b/d/e"), ["f"]);
    let head = door.ask("HEAD", "/b/d/e/f", "", b"").is(200);
    assert_eq!(head.header("content-length"), "3000000");
    assert_eq!(head.header("etag"), stored.header("etag"));
    // It is not MD5, and does not look like it.
    assert!(head.header("etag").contains('-'));
    let got = door
        .ask("GET", "/b/d/e/f", "range: bytes=5-9\r\n", b"")
        .is(206);
    assert_eq!(
        got.text().as_bytes(),
        String::from_utf8_lossy(&content[5..10]).as_bytes()
    );
    assert_eq!(got.header("content-range"), "bytes 5-9/3000000");
    let range = "range: bytes=3000000-\r\n";
    refused(door.ask("GET", "/b/d/e/f", range, b""), 416, "InvalidRange");
    let list = "range: bytes=0-1,4-5\r\n";
    refused(
        door.ask("GET", "/b/d/e/f", list, b""),
        501,
        "NotImplemented",
    );
    let tag = head.header("etag");
    door.ask("GET", "/b/d/e/f", &format!("if-none-match: {tag}\r\n"), b"")
        .is(304);
    refused(
        door.ask("GET", "/b/d/e/f", "if-match: \"x\"\r\n", b""),
        412,
        "PreconditionFailed",
    );
    let new = "if-none-match: *\r\n";
    refused(
        door.ask("PUT", "/b/d/e/f", new, b"x"),
        412,
        "PreconditionFailed",
    );
    door.ask("PUT", "/b/d/e/g", new, b"x").is(200);
    // It would replace what the condition is to protect.
    for unreadable in ["x", "\"x"] {
        let head = format!("if-none-match: {unreadable}\r\n");
        let answer = door.ask("PUT", "/b/d/e/g", &head, b"y");
        refused(answer, 400, "InvalidRequest");
    }
    assert_eq!(door.server().read("b/d/e/g"), b"x");
    refused(door.ask("GET", "/b/missing", "", b""), 404, "NoSuchKey");
    refused(door.ask("GET", "/none/f", "", b""), 404, "NoSuchBucket");
    refused(door.ask("PUT", "/none/f", "", b"x"), 404, "NoSuchBucket");
    refused(door.ask("GET", "/b/d", "", b""), 404, "NoSuchKey");
    refused(door.ask("PUT", "/b/d", "", b"x"), 409, "InvalidRequest");
    refused(
        door.ask("PUT", "/b/d/e/f/g", "", b"x"),
        409,
        "InvalidRequest",
    );
    door.ask("DELETE", "/b/d/e/f", "", b"").is(204);
    door.ask("DELETE", "/b/d/e/f", "", b"").is(204);
    door.ask("DELETE", "/b/d/e/g", "", b"").is(204);
    // The last object takes its directories with it.
    assert!(names(&door.site, "b").is_empty() && door.server().path("b").exists());
}

#[test]
fn checksums_are_compared_before_an_object_gets_its_name() {
    let door = Door::new();
    let put = |head: &str| door.ask("PUT", "/b/f", head, b"0123456789");
    for head in [
        "content-md5: eB5eJF1ptWaXm4bijSPyxg==\r\n",
        "x-amz-checksum-crc32c: AAAAAA==\r\n",
        "x-amz-checksum-crc32: AAAAAA==\r\n",
        "x-amz-checksum-sha256: AAAA\r\n",
    ] {
        refused(put(head), 400, "BadDigest");
    }
    refused(put("content-md5: x\r\n"), 400, "InvalidDigest");
    refused(
        put("x-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\n"),
        501,
        "NotImplemented",
    );
    let other = Ask {
        payload: hex(&sha256(b"0123456788")),
        ..Ask::new("PUT", "/b/f").body(b"0123456789")
    };
    refused(door.send(&other), 400, "XAmzContentSHA256Mismatch");
    eventually("no partial file", || names(&door.site, "b").is_empty());
    let right = Ask {
        payload: hex(&sha256(b"0123456789")),
        ..Ask::new("PUT", "/b/f").body(b"0123456789")
    };
    door.send(&right).is(200);
    put("content-md5: eB5eJF1ptWaXm4bijSPyxw==\r\n").is(200);
    let crc = put("x-amz-checksum-crc32: poTHxg==\r\n").is(200);
    assert_eq!(crc.header("x-amz-checksum-crc32"), "poTHxg==");
}

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
fn listings_of_one_user_wait_and_those_of_others_do_not() {
    let memory = MemoryStorage::new();
    memory.create_dir(&FtpPath::new("/b").unwrap()).unwrap();
    // As many as a user may have at a time.
    let (gate, storage) = Gate::before(Arc::new(memory), Operation::List, 8);
    let door = Door::on(storage);
    let other = s3_keys::add(&door.keys(), "sam", "/", false).unwrap();
    let list = || Ask::new("GET", "/b?list-type=2");
    thread::scope(|scope| {
        let listings = [(); 24].map(|()| scope.spawn(|| door.send(&list())));
        eventually("the share is used", || gate.entered() == 8);
        door.send_as(&other, &list()).is(200);
        assert!(listings.iter().all(|listing| !listing.is_finished()));
        gate.open();
        for listing in listings {
            listing.join().unwrap().is(200);
        }
    });
}

#[test]
fn directories_go_with_the_objects_that_they_were_made_for() {
    let door = Door::with("/b/own", false);
    fs::create_dir(door.server().path("b/own")).unwrap();
    let sum = "x-amz-checksum-crc32c: AAAAAA==\r\n";
    let failed = door.ask("PUT", "/b/own/d/e/f", sum, b"x");
    refused(failed, 400, "BadDigest");
    eventually("no directories", || names(&door.site, "b/own").is_empty());
    door.ask("PUT", "/b/own/d/e/f", "", b"x").is(200);
    door.ask("DELETE", "/b/own/d/e/f", "", b"").is(204);
    // The directory of the key stays, also where it is named.
    assert_eq!(names(&door.site, "b"), ["own"]);
    assert!(names(&door.site, "b/own").is_empty());
    door.ask("DELETE", "/b/own/", "", b"").is(204);
    assert_eq!(names(&door.site, "b"), ["own"]);
    door.ask("PUT", "/b/own/g", "", b"x").is(200);
}

#[test]
fn headers_that_describe_an_object_are_kept() {
    let door = Door::new();
    let kept = [
        ("cache-control", "max-age=60"),
        ("content-disposition", "attachment"),
        ("content-language", "de"),
        ("expires", "Thu, 01 Dec 1994 16:00:00 GMT"),
    ];
    let head: String = (kept.iter())
        .map(|(name, value)| format!("{name}: {value}\r\n"))
        .collect();
    door.ask("PUT", "/b/f", &head, b"x").is(200);
    let got = door.ask("GET", "/b/f", "", b"").is(200);
    for (name, value) in kept {
        assert_eq!(got.header(name), value);
    }
    let is_kept = || {
        door.ask("HEAD", "/b/f", "", b"")
            .is(200)
            .header("content-language")
            == "de"
    };
    assert!(is_kept());
    // Another program writes into the file: they are not of its bytes.
    door.server().write("b/f", b"other");
    assert!(!is_kept());
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
fn keys_that_are_no_paths_are_refused() {
    let door = Door::new();
    door.server().write("secret", b"x");
    for (target, code) in [
        ("/b/../secret", "InvalidArgument"),
        ("/b/a/../../secret", "InvalidArgument"),
        ("/b/%2E%2E/secret", "SignatureDoesNotMatch"),
        ("/b/a//b", "InvalidArgument"),
        ("/b//a", "InvalidArgument"),
        ("/b/a%2F..%2F..%2Fsecret", "InvalidURI"),
        ("/b/a%00", "InvalidURI"),
        ("/b/.godwit-uploads/x", "InvalidArgument"),
        ("/b/.godwit-0123456789abcdef.part", "InvalidArgument"),
        ("/../b", "NoSuchBucket"),
        ("/./secret", "NoSuchBucket"),
    ] {
        for method in ["GET", "PUT", "DELETE"] {
            let answer = door.ask(method, target, "", b"");
            let status = answer.status();
            refused(answer, status, code);
            assert!((400..500).contains(&status), "{method} {target}");
        }
    }
    let long = format!("/b/{}", "k/".repeat(600));
    refused(door.ask("PUT", &long, "", b""), 400, "KeyTooLongError");
    assert_eq!(door.server().read("secret"), b"x");
    assert!(names(&door.site, "b").is_empty());
}

#[test]
fn listings_are_complete_page_by_page() {
    let door = Door::new();
    for name in ["a-b", "a/c", "a/b/d", "a0", "z z"] {
        door.ask("PUT", &format!("/b/{}", name.replace(' ', "%20")), "", b"x")
            .is(200);
    }
    door.ask("PUT", "/b/e/", "", b"").is(200);
    refused(door.ask("PUT", "/b/e/", "", b"x"), 400, "InvalidArgument");
    door.ask("HEAD", "/b/e/", "", b"").is(200);
    let list = |query: &str| {
        let target = format!("/b?encoding-type=url&list-type=2{query}");
        let body = door.ask("GET", &target, "", b"").is(200).text();
        Page::read(body.as_bytes()).unwrap()
    };
    let (mut keys, mut token) = (Vec::new(), String::new());
    loop {
        let page = list(&format!("&max-keys=2{token}"));
        keys.extend(
            page.objects
                .iter()
                .map(|o| String::from_utf8(o.key.clone()).unwrap()),
        );
        match page.next {
            Some(next) => token = format!("&continuation-token={next}"),
            None => break,
        }
    }
    assert_eq!(keys, ["a-b", "a/b/d", "a/c", "a0", "e/", "z z"]);
    let page = list("&delimiter=%2F");
    assert_eq!(page.prefixes, [b"a/", b"e/"]);
    assert_eq!(page.objects.len(), 3);
    assert!(list("&prefix=..%2F").objects.is_empty());
    refused(
        door.ask("GET", "/b?versions=", "", b""),
        501,
        "NotImplemented",
    );
    refused(door.ask("GET", "/none", "", b""), 404, "NoSuchBucket");
    let buckets = door.ask("GET", "/", "", b"").is(200).text();
    assert!(buckets.contains("<Name>b</Name>") && buckets.contains("<Name>sam</Name>"));
    door.ask("HEAD", "/b", "", b"").is(200);
    door.ask("GET", "/b?location=", "", b"").is(200);
}

#[test]
fn many_keys_are_removed_by_one_request() {
    let door = Door::new();
    for name in ["f", "g", "h"] {
        door.server().write(&format!("b/{name}"), b"x");
    }
    let object = |key: &str| format!("<Object><Key>{key}</Key></Object>");
    let keys: String = ["f", "g", "missing", "../sam", "a//b"].map(object).concat();
    let body = format!("<Delete>{keys}</Delete>");
    let answer = door
        .ask("POST", "/b?delete=", "", body.as_bytes())
        .is(200)
        .text();
    assert_eq!(answer.matches("<Deleted>").count(), 3, "{answer}");
    assert_eq!(
        answer.matches("<Code>InvalidArgument</Code>").count(),
        2,
        "{answer}"
    );
    assert_eq!(names(&door.site, "b"), ["h"]);
    // The answer could not name one of them: none is removed.
    let unnamed = format!("<Delete>{}{}</Delete>", object("h"), object("x\u{7f}"));
    refused(
        door.ask("POST", "/b?delete=", "", unnamed.as_bytes()),
        400,
        "InvalidArgument",
    );
    let many = format!("<Delete>{}</Delete>", object("h").repeat(1001));
    refused(
        door.ask("POST", "/b?delete=", "", many.as_bytes()),
        400,
        "MalformedXML",
    );
    let huge = vec![b' '; (4 << 20) + 1];
    refused(
        door.ask("POST", "/b?delete=", "", &huge),
        400,
        "MaxMessageLengthExceeded",
    );
    let entity = b"<!DOCTYPE a [<!ENTITY x \"y\">]><Delete/>";
    refused(
        door.ask("POST", "/b?delete=", "", entity),
        400,
        "MalformedXML",
    );
    assert_eq!(names(&door.site, "b"), ["h"]);
}

#[test]
fn copies_stay_on_the_server_and_keep_metadata() {
    let door = Door::new();
    let head = "content-type: text/plain\r\nx-amz-meta-mtime: 1354040105.5\r\n";
    door.ask("PUT", "/b/f", head, b"0123456789").is(200);
    let source = "x-amz-copy-source: /b/f\r\n";
    let copied = door.ask("PUT", "/b/d/g", source, b"").is(200).text();
    assert!(Made::read(copied.as_bytes()).unwrap().is_ok());
    assert_eq!(door.server().read("b/d/g"), b"0123456789");
    let told = door.ask("HEAD", "/b/d/g", "", b"").is(200);
    assert_eq!(told.header("x-amz-meta-mtime"), "1354040105.500000000");
    let told = door.ask("HEAD", "/b/f", "", b"").is(200);
    assert_eq!(told.header("x-amz-meta-mtime"), "1354040105.500000000");
    refused(door.ask("PUT", "/b/f", source, b""), 400, "InvalidRequest");
    let replaced =
        "x-amz-copy-source: b/f\r\nx-amz-metadata-directive: REPLACE\r\nx-amz-meta-mtime: 7\r\n";
    door.ask("PUT", "/b/f", replaced, b"").is(200);
    let told = door.ask("HEAD", "/b/f", "", b"").is(200);
    assert_eq!(told.header("x-amz-meta-mtime"), "7");
    let other = "x-amz-copy-source: /b/f\r\nx-amz-copy-source-if-match: \"x\"\r\n";
    refused(
        door.ask("PUT", "/b/h", other, b""),
        412,
        "PreconditionFailed",
    );
    let outside = "x-amz-copy-source: /b/../sam/f\r\n";
    refused(
        door.ask("PUT", "/b/h", outside, b""),
        400,
        "InvalidArgument",
    );
    let acl = "x-amz-acl: public-read\r\n";
    refused(door.ask("PUT", "/b/h", acl, b""), 501, "NotImplemented");
}

fn begun(door: &Door, target: &str) -> String {
    let body = door
        .ask("POST", &format!("{target}?uploads="), "", b"")
        .is(200)
        .text();
    read_upload_id(body.as_bytes()).unwrap()
}

#[test]
fn parts_become_an_object_when_all_are_there() {
    let door = Door::new();
    let id = begun(&door, "/b/d/f");
    let content = pattern(1_000_000, 3);
    let part = |number: &str, body: &[u8]| {
        let target = format!("/b/d/f?partNumber={number}&uploadId={id}");
        door.ask("PUT", &target, "", body)
    };
    for number in ["0", "10001", "-1", "x", ""] {
        refused(part(number, b"x"), 400, "InvalidArgument");
    }
    part("3", &content[600_000..]).is(200);
    part("1", b"replaced").is(200);
    part("1", &content[..600_000]).is(200);
    let listed = || {
        let body = door
            .ask("GET", &format!("/b/d/f?uploadId={id}"), "", b"")
            .is(200)
            .text();
        PartsPage::read(body.as_bytes()).unwrap().parts
    };
    let parts = listed();
    let sizes: Vec<_> = parts.iter().map(|part| (part.number, part.size)).collect();
    assert_eq!(sizes, [(1, 600_000), (3, 400_000)]);
    let uploads = door.ask("GET", "/b?uploads=", "", b"").is(200).text();
    let uploads = UploadsPage::read(uploads.as_bytes()).unwrap().uploads;
    assert_eq!(
        (uploads.len(), &*uploads[0].key, &uploads[0].id),
        (1, &b"d/f"[..], &id)
    );
    // There is nothing to go on behind a page that has nothing.
    for target in [
        "/b?uploads=&max-uploads=0",
        &format!("/b/d/f?max-parts=0&uploadId={id}"),
    ] {
        let none = door.ask("GET", target, "", b"").is(200).text();
        assert!(none.contains("<IsTruncated>false<"), "{none}");
    }
    let complete = |parts: &[godwit_http::s3::answers::Part], head: &str| {
        let target = format!("/b/d/f?uploadId={id}");
        door.ask("POST", &target, head, completing(parts.iter()).as_bytes())
    };
    let mut wrong = parts.clone();
    wrong[1].tag = parts[0].tag.clone();
    refused(complete(&wrong, ""), 400, "InvalidPart");
    wrong[1].number = 2;
    refused(complete(&wrong, ""), 400, "InvalidPart");
    let mut wrong = parts.clone();
    wrong[0].crc32c = parts[1].crc32c.clone();
    refused(complete(&wrong, ""), 400, "InvalidPart");
    let told = |element: &str, value: &str| {
        let one = completing(parts[..1].iter());
        let told = format!("<{element}>{value}</{element}></Part>");
        let target = format!("/b/d/f?uploadId={id}");
        let body = one.replace("</Part>", &told);
        door.ask(
            "POST",
            &target,
            "x-amz-mp-object-size: 7\r\n",
            body.as_bytes(),
        )
    };
    for element in ["ChecksumCRC32", "ChecksumSHA1", "ChecksumSHA256"] {
        refused(told(element, "AAAAAA=="), 400, "InvalidPart");
    }
    let sum = STANDARD.encode(sha256(&content[..600_000]));
    refused(told("ChecksumSHA256", &sum), 400, "InvalidRequest");
    refused(told("ChecksumCRC64NVME", ""), 400, "MalformedXML");
    let backwards: Vec<_> = parts.iter().rev().cloned().collect();
    refused(complete(&backwards, ""), 400, "InvalidPartOrder");
    refused(complete(&[], ""), 400, "MalformedXML");
    let size = "x-amz-mp-object-size: 7\r\n";
    refused(complete(&parts, size), 400, "InvalidRequest");
    let sum = "x-amz-checksum-crc32c: AAAAAA==\r\n";
    refused(complete(&parts, sum), 400, "BadDigest");
    // Nothing of what failed is there.
    eventually("no partial file", || {
        !door.server().path("b/d").exists() || names(&door.site, "b/d").is_empty()
    });
    refused(door.ask("GET", "/b/d/f", "", b""), 404, "NoSuchKey");
    let answer = complete(&parts, "").is(200).text();
    let made = Made::read(answer.as_bytes()).unwrap().unwrap();
    assert!(made.crc32c.is_some());
    assert!(door.server().read("b/d/f") == content);
    assert_eq!(names(&door.site, "b"), ["d"]);
    // The answer was lost.
    assert_eq!(complete(&parts, "").is(200).text(), answer);
    let new = "if-none-match: *\r\n";
    assert_eq!(complete(&parts, new).is(200).text(), answer);
    refused(complete(&parts[..1], ""), 404, "NoSuchUpload");
    let other = format!("/b/d/g?uploadId={id}");
    let all = completing(parts.iter());
    let answer = door.ask("POST", &other, "", all.as_bytes());
    refused(answer, 404, "NoSuchUpload");
    let id = begun(&door, "/b/g");
    let other = format!("/b/f?uploadId={id}");
    refused(door.ask("DELETE", &other, "", b""), 404, "NoSuchUpload");
    for id in ["..", "x", "manifest", "%2E%2E"] {
        let answer = door.ask("DELETE", &format!("/b/g?uploadId={id}"), "", b"");
        assert!(matches!(answer.status(), 403 | 404), "{id}");
    }
    door.ask("DELETE", &format!("/b/g?uploadId={id}"), "", b"")
        .is(204);
    assert_eq!(names(&door.site, "b"), ["d"]);
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
