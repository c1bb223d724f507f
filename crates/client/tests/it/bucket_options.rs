//! Storage classes, encryption at the service, and who pays: what is said in which request, and
//! what a service must answer.

use std::{fs, net::TcpStream};

use crate::{
    buckets::{Bucket, State, head, is_part, object, value},
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
        "PUT" if heard.2.contains("x-amz-copy-source: ") => {
            let copied = b"<CopyObjectResult><ETag>\"x\"</ETag></CopyObjectResult>";
            send(stream, "200 OK", told, copied);
        }
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

/// A bucket with the object `a`, of another storage class.
fn of_one(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    match heard.0.as_str() {
        "HEAD" if heard.1 == "/mine/a" => {
            let said = "HTTP/1.1 200 OK\r\nContent-Length: 1\r\nETag: \"x\"\r\n\
                x-amz-storage-class: GLACIER_IR\r\n\r\n";
            drop(std::io::Write::write_all(stream, said.as_bytes()));
        }
        "DELETE" => send(stream, "204 No Content", "", b""),
        _ => return encrypting(heard, state, stream),
    }
    true
}

#[test]
fn an_object_that_is_renamed_keeps_its_storage_class_unless_another_is_wanted() {
    for (options, class) in [(&[][..], "glacier_ir"), (&[CLASS], "standard_ia")] {
        let bucket = Bucket::start(of_one);
        let ends = ["s3://mine/a", "s3://mine/c"];
        let encrypted = [KMS[0]];
        let arguments = [&["mv"], options, &encrypted, &ends].concat();
        bucket.run(&arguments).expect(0, &[]);
        let copies = bucket.server.heard("PUT");
        let said = format!("x-amz-storage-class: {class}\r");
        assert!(copies[0].2.contains(&said), "{}", copies[0].2);
        assert!(copies[0].2.contains(SAID[1]), "{}", copies[0].2);
    }
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
