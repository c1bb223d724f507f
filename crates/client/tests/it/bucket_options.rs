//! Storage classes, encryption at the service, and who pays: what is said in which request, and
//! what a service must answer.

use std::{fs, io::Write as _, net::TcpStream};

use crate::{
    fake_bucket::{Bucket, State, head, is_part, object, value},
    harness::{Ran, bytes, text},
    hostile_http::{Heard, send},
};

const CLASS: &str = "--s3-storage-class=STANDARD_IA";

const KMS: [&str; 2] = [
    "--s3-server-side-encryption=aws:kms",
    "--s3-sse-kms-key-id=alias/k1",
];

/// What requests have of such options.
const SAID: [&str; 3] = [
    "x-amz-storage-class: standard_ia\r",
    "x-amz-server-side-encryption: aws:kms\r",
    "x-amz-server-side-encryption-aws-kms-key-id: alias/k1\r",
];

/// A service that says it has encrypted what it was to encrypt.
fn encrypting(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    let told = "x-amz-server-side-encryption: aws:kms\r\nETag: \"x\"\r\n";
    match heard.0.as_str() {
        "PUT" if !is_part(heard) => send(stream, "200 OK", told, b""),
        "POST" if value(heard, "uploads").is_some() => {
            state.begun += 1;
            let mut lines = heard.2.lines();
            let mark = lines.find_map(|line| line.strip_prefix("x-amz-meta-godwit-upload: "));
            state.mark = mark.unwrap().trim().to_owned();
            let begun = b"<InitiateMultipartUploadResult><UploadId>the id</UploadId>\
                </InitiateMultipartUploadResult>";
            send(stream, "200 OK", told, begun);
        }
        _ => return false,
    }
    true
}

fn put_small(bucket: &Bucket, options: &[&str]) -> Ran {
    let from = bucket.here.path().join("small");
    fs::write(&from, bytes(1000, 2)).unwrap();
    let ends = [text(&from), "s3://mine/small"];
    bucket.run(&[&["cp", "--retries=1"], options, &ends].concat())
}

#[test]
fn what_is_said_of_objects_is_said_where_they_are_made_and_nowhere_else() {
    let bucket = Bucket::start(encrypting);
    let options = [CLASS, KMS[0], KMS[1]];
    put_small(&bucket, &options).expect(0, &[]);
    bucket.put(&options).expect(0, &[]);
    let (puts, posts) = (bucket.server.heard("PUT"), bucket.server.heard("POST"));
    let all = puts.iter().chain(&posts);
    let others = ["GET", "HEAD"]
        .map(|method| bucket.server.heard(method))
        .concat();
    for heard in all.chain(&others) {
        let makes = matches!(heard.0.as_str(), "PUT" if !is_part(heard))
            || value(heard, "uploads").is_some();
        for said in SAID {
            assert_eq!(heard.2.contains(said), makes, "{said} {heard:?}");
        }
    }
    assert_eq!(puts.len(), 6);
}

#[test]
fn a_service_that_does_not_encrypt_is_an_error_before_anything_is_replaced() {
    // The fake service knows nothing of encryption.
    let bucket = Bucket::start(|_, _, _| false);
    let said = "does not say that it has encrypted";
    let ran = bucket.put(&["--retries=1", "--no-journal", KMS[0]]);
    assert!(ran.code != 0 && ran.err.contains(said), "{}", ran.err);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 0, 1));
    drop(state);
    assert!(bucket.server.heard("PUT").is_empty());
    let ran = put_small(&bucket, &["--s3-server-side-encryption=AES256"]);
    assert!(ran.code != 0 && ran.err.contains(said), "{}", ran.err);
    // What has the name now is not replaced.
    assert!(bucket.server.heard("PUT").is_empty());
    let removed = bucket.server.heard("DELETE");
    assert!(
        removed
            .iter()
            .all(|request| request.1.contains("uploadId="))
    );
}

/// The method that a request asks for, as its answer tells it.
fn told(heard: &Heard) -> String {
    let name = "x-amz-server-side-encryption: ";
    let mut lines = heard.2.lines();
    let method = lines.find_map(|line| line.strip_prefix(name));
    method.map_or_else(String::new, |method| format!("{name}{method}\r\n"))
}

/// A bucket with the object `a`, of another storage class and with a key, and with its copy `c`.
fn of_one(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    let copied = b"<CopyObjectResult><ETag>&quot;c&quot;</ETag></CopyObjectResult>";
    match (heard.0.as_str(), heard.1.as_str()) {
        ("HEAD", "/mine/a") => {
            let said = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: \"a\"\r\n\
                x-amz-storage-class: GLACIER_IR\r\nx-amz-server-side-encryption: aws:kms\r\n\
                x-amz-server-side-encryption-aws-kms-key-id: k7\r\n\
                x-amz-server-side-encryption-bucket-key-enabled: true\r\n\r\n";
            drop(stream.write_all(said.as_bytes()));
        }
        ("HEAD", "/mine/c") => send(stream, "200 OK", "ETag: \"c\"\r\n", b""),
        ("DELETE", _) => send(stream, "204 No Content", "", b""),
        ("PUT", _) => send(stream, "200 OK", &told(heard), copied),
        _ => return encrypting(heard, state, stream),
    }
    true
}

/// The header of a request.
fn header<'a>(heard: &'a Heard, name: &str) -> Option<&'a str> {
    let mut lines = heard.2.lines();
    lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
}

#[test]
fn an_object_that_is_renamed_keeps_its_class_and_its_encryption_unless_others_are_wanted() {
    let names = [
        "x-amz-storage-class",
        "x-amz-server-side-encryption",
        "x-amz-server-side-encryption-aws-kms-key-id",
        "x-amz-server-side-encryption-bucket-key-enabled",
    ];
    let own = [
        Some("glacier_ir"),
        Some("aws:kms"),
        Some("k7"),
        Some("true"),
    ];
    let class = [Some("standard_ia"), own[1], own[2], own[3]];
    let keyed = [own[0], Some("aws:kms"), Some("alias/k1"), None];
    for (options, said) in [
        (&[][..], own),
        (&[CLASS], class),
        (&KMS, keyed),
        (&[KMS[0]], [own[0], Some("aws:kms"), None, None]),
    ] {
        let bucket = Bucket::start(of_one);
        let ends = ["s3://mine/a", "s3://mine/c"];
        let arguments = [&["mv"], options, &ends].concat();
        bucket.run(&arguments).expect(0, &[]);
        let copies = bucket.server.heard("PUT");
        assert_eq!(names.map(|name| header(&copies[0], name)), said);
        let removed = bucket.server.heard("DELETE");
        assert_eq!(removed.last().unwrap().1, "/mine/a", "{removed:?}");
    }
}

/// A service that encrypts what it is sent, and stores copies as they come. It shows the copy with
/// this tag, and with these headers.
fn copying_in_clear(tag: &'static str, headers: &'static str) -> Bucket {
    Bucket::start(move |heard, state, stream| {
        let copied = b"<CopyObjectResult><ETag>\"c\"</ETag></CopyObjectResult>";
        match (heard.0.as_str(), heard.1.as_str()) {
            ("PUT", _) => send(stream, "200 OK", "", copied),
            ("HEAD", "/mine/c") => {
                let shown = format!("ETag: \"{tag}\"\r\n{headers}");
                send(stream, "200 OK", &shown, b"");
            }
            _ => return of_one(heard, state, stream),
        }
        true
    })
}

/// Objects that were removed, and the condition of that.
fn removed(bucket: &Bucket) -> Vec<(String, Option<String>)> {
    let removed = bucket.server.heard("DELETE");
    let objects = removed
        .iter()
        .filter(|heard| value(heard, "uploadId").is_none());
    let seen = |heard: &Heard| {
        (
            heard.1.clone(),
            header(heard, "if-match").map(str::to_owned),
        )
    };
    objects.map(seen).collect()
}

#[test]
fn a_copy_that_is_not_encrypted_is_removed_and_its_source_stays() {
    for options in [&[][..], &[KMS[0]]] {
        let bucket = copying_in_clear("c", "");
        let ends = ["s3://mine/a", "s3://mine/c"];
        let ran = bucket.run(&[&["mv"], options, &ends].concat());
        ran.expect(
            4,
            &[
                "does not say that it has encrypted the object with aws:kms",
                "the copy was removed, and its source stays",
            ],
        );
        let own = ("/mine/c".to_owned(), Some("\"c\"".to_owned()));
        assert_eq!(removed(&bucket), [own]);
    }
    // Another writer has replaced it meanwhile.
    let bucket = copying_in_clear("of another", "");
    let ran = bucket.run(&["mv", "s3://mine/a", "s3://mine/c"]);
    ran.expect(
        4,
        &[
            "the copy was not removed, and its source stays",
            "s3://mine/c: is not encrypted, and was not removed: ",
        ],
    );
    assert_eq!(removed(&bucket), []);
}

#[test]
fn a_copy_whose_encryption_is_told_later_is_a_copy() {
    let bucket = copying_in_clear("c", "x-amz-server-side-encryption: aws:kms\r\n");
    let ran = bucket.run(&["mv", "s3://mine/a", "s3://mine/c"]);
    ran.expect(0, &[]);
    assert_eq!(removed(&bucket), [("/mine/a".to_owned(), None)]);
}

#[test]
fn a_service_that_does_not_encrypt_is_known_before_a_copy_replaces_anything() {
    let bucket = Bucket::start(|heard, state, stream| {
        let begins = value(heard, "uploads").is_some();
        !begins && value(heard, "uploadId").is_none() && of_one(heard, state, stream)
    });
    let ran = bucket.run(&["mv", KMS[0], "s3://mine/a", "s3://mine/c"]);
    ran.expect(4, &["does not say that it has encrypted"]);
    assert!(bucket.server.heard("PUT").is_empty());
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.aborted), (1, 1));
    assert_eq!(removed(&bucket), []);
}

#[test]
fn who_pays_is_said_in_every_request_and_signed() {
    let bucket = Bucket::start(|heard, _, stream| {
        match heard.0.as_str() {
            "HEAD" if heard.1.ends_with("/o") => head(stream, 1, ""),
            "GET" if heard.1.ends_with("/o") => object(heard, "one", b"x", stream),
            _ => return false,
        }
        true
    });
    let to = bucket.here.path().join("o");
    for arguments in [
        &["cp", "s3://mine/o", text(&to)][..],
        &["ls", "s3://mine/"],
        &["stat", "s3://mine/o"],
        &["rm", "s3://mine/o"],
    ] {
        bucket.run(&[arguments, &["--s3-requester-pays"]].concat());
    }
    bucket.put(&["--s3-requester-pays"]).expect(0, &[]);
    let methods = ["GET", "HEAD", "PUT", "POST", "DELETE"];
    for method in methods {
        let heard = bucket.server.heard(method);
        assert!(!heard.is_empty(), "{method}");
        for heard in heard {
            assert!(
                heard.2.contains("x-amz-request-payer: requester\r"),
                "{heard:?}"
            );
            assert!(heard.2.contains(";x-amz-request-payer"), "{heard:?}");
        }
    }
}

#[test]
fn options_that_mean_nothing_are_refused() {
    let bucket = Bucket::start(|_, _, _| false);
    for (arguments, said) in [
        (
            &["cp", CLASS, "s3://mine/o", "/tmp/none"][..],
            "is no bucket",
        ),
        (
            &["cp", "--s3-storage-class=a b", "x", "s3://mine/o"],
            "storage class",
        ),
        (
            &["cp", KMS[1], "x", "s3://mine/o"],
            "--s3-server-side-encryption",
        ),
        (
            &[
                "cp",
                "--s3-server-side-encryption=AES256",
                KMS[1],
                "x",
                "s3://mine/o",
            ],
            "has no keys of users",
        ),
        (
            &[
                "cp",
                "--s3-server-side-encryption=rot13",
                "x",
                "s3://mine/o",
            ],
            "aws:kms",
        ),
        (
            &["ls", "--s3-endpoint=http://h/x", "s3://mine/"],
            "has a path",
        ),
    ] {
        let ran = bucket.run(arguments);
        assert!(
            ran.code != 0 && ran.err.contains(said),
            "{arguments:?}: {}",
            ran.err
        );
    }
    assert!(bucket.server.heard("PUT").is_empty());
}

#[test]
fn the_service_and_the_region_of_the_command_line_come_first() {
    let bucket = Bucket::start(|_, _, _| false);
    let (url, from) = (bucket.server.url(""), bucket.here.path().join("f"));
    fs::write(&from, "x").unwrap();
    let endpoint = format!("--s3-endpoint={url}");
    let region = "--s3-region=eu-north-9";
    let mut command = bucket.command(&["cp", &endpoint, region, text(&from), "s3://mine/f"]);
    command
        .env("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        .env("AWS_REGION", "us-west-1");
    Ran::from(command.output().unwrap()).expect(0, &[]);
    let put = &bucket.server.heard("PUT")[0];
    assert!(put.2.contains("/eu-north-9/s3/aws4_request"), "{}", put.2);
}
