//! Objects: what is stored, kept with it, copied and removed.

use std::fs;

use godwit_http::s3::{answers::Made, signing::hex};
use openssl::sha::sha256;

use super::{Ask, Door, refused};
use crate::{
    harness::{eventually, pattern},
    https::names,
};

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
        "x-amz-checksum-crc64nvme: AAAAAAAAAAA=\r\n",
        "x-amz-checksum-sha256: AAAA\r\n",
    ] {
        refused(put(head), 400, "BadDigest");
    }
    refused(put("content-md5: x\r\n"), 400, "InvalidDigest");
    refused(put("x-amz-checksum-md4: AAAA\r\n"), 501, "NotImplemented");
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
    put("x-amz-checksum-crc64nvme: Ffmx7kz9nB0=\r\n").is(200);
    let told = door.ask("HEAD", "/b/f", "x-amz-checksum-mode: ENABLED\r\n", b"");
    assert_eq!(told.header("x-amz-checksum-crc64nvme"), "Ffmx7kz9nB0=");
}

#[test]
fn objects_have_a_checksum_until_another_program_writes_to_them() {
    let door = Door::new();
    let crc32c = |path: &str, head: &str, method: &str| {
        let head = format!("x-amz-checksum-mode: enabled\r\n{head}");
        let answer = door.ask(method, path, &head, b"");
        ["x-amz-checksum-crc32c", "x-amz-checksum-type"].map(|name| answer.header(name).to_owned())
    };
    let known = ["KAwGng==", "FULL_OBJECT"];
    door.ask("PUT", "/b/f", "", b"0123456789").is(200);
    let source = "x-amz-copy-source: /b/f\r\nx-amz-metadata-directive: REPLACE\r\n";
    door.ask("PUT", "/b/g", source, b"").is(200);
    for (path, method) in [("/b/f", "HEAD"), ("/b/f", "GET"), ("/b/g", "HEAD")] {
        assert_eq!(crc32c(path, "", method), known, "{method} {path}");
    }
    assert_eq!(crc32c("/b/f", "range: bytes=0-3\r\n", "GET"), ["", ""]);
    let told = door.ask("HEAD", "/b/f", "", b"").is(200);
    assert_eq!(told.header("x-amz-checksum-crc32c"), "");
    door.server().write("b/f", b"987654321");
    assert_eq!(crc32c("/b/f", "", "HEAD"), ["", ""]);
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
