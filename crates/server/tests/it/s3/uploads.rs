//! Uploads in parts.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::digest::Digest;
use godwit_http::s3::answers::{Made, PartsPage, UploadsPage, completing};
use godwit_proto::ChecksumAlgorithm;
use openssl::sha::sha256;

use super::{Door, begun, refused};
use crate::{
    harness::{eventually, pattern},
    https::names,
};

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
    for kind in ["CRC32", "CRC64NVME", "SHA1", "SHA256"] {
        let element = &format!("Checksum{kind}");
        refused(told(element, "AAAAAA=="), 400, "InvalidPart");
    }
    let sum = STANDARD.encode(sha256(&content[..600_000]));
    refused(told("ChecksumSHA256", &sum), 400, "InvalidRequest");
    refused(told("ChecksumMD4", ""), 400, "MalformedXML");
    let backwards: Vec<_> = parts.iter().rev().cloned().collect();
    refused(complete(&backwards, ""), 400, "InvalidPartOrder");
    refused(complete(&[], ""), 400, "MalformedXML");
    let size = "x-amz-mp-object-size: 7\r\n";
    refused(complete(&parts, size), 400, "InvalidRequest");
    let sum = "x-amz-checksum-crc32c: AAAAAA==\r\n";
    refused(complete(&parts, sum), 400, "BadDigest");
    let nvme = |digest: &str| {
        let bytes = u64::from_str_radix(digest, 16).unwrap().to_be_bytes();
        let sum = STANDARD.encode(bytes);
        format!("x-amz-checksum-crc64nvme: {sum}\r\n")
    };
    refused(complete(&parts, &nvme("0")), 400, "BadDigest");
    // Nothing of what failed is there.
    eventually("no partial file", || {
        !door.server().path("b/d").exists() || names(&door.site, "b/d").is_empty()
    });
    refused(door.ask("GET", "/b/d/f", "", b""), 404, "NoSuchKey");
    let mut digest = Digest::new(ChecksumAlgorithm::Crc64Nvme);
    digest.update(&content);
    let sum = nvme(&digest.finish());
    let answer = complete(&parts, &sum).is(200).text();
    let head = door.ask("HEAD", "/b/d/f", "x-amz-checksum-mode: ENABLED\r\n", b"");
    assert!(sum.contains(head.header("x-amz-checksum-crc64nvme")));
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
