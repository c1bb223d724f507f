//! Keys for buckets that come from where a machine or a container asks for those of its role.

use std::{
    fs,
    process::Command,
    sync::atomic::{AtomicUsize, Ordering},
};

use crate::{
    fake_bucket::Bucket,
    harness::{Ran, text},
    hostile_http::{FakeHttp, Heard, send},
};

/// A header of a request, in lower case.
pub(crate) fn says(heard: &Heard, line: &str) -> bool {
    heard.2.to_ascii_lowercase().contains(line)
}

/// `cp` of a small file to a bucket without keys of its own.
pub(crate) fn copy(bucket: &Bucket) -> Command {
    let from = bucket.here.path().join("f");
    fs::write(&from, "of a role").unwrap();
    let mut command = bucket.command(&["cp", "--retries=1", text(&from), "s3://mine/f"]);
    for name in ["ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN"] {
        command.env_remove(format!("AWS_{name}"));
    }
    command.env_remove("AWS_EC2_METADATA_DISABLED");
    command
}

fn keys(access: &str) -> String {
    format!(
        "{{\"Code\": \"Success\", \"AccessKeyId\": \"{access}\", \"SecretAccessKey\": \"s3cret\", \
         \"Token\": \"t{access}\", \"Expiration\": \"2037-01-01T00:00:00Z\"}}"
    )
}

/// A metadata service that knows requests with its token alone.
fn metadata(role: &'static str) -> FakeHttp {
    let asked = AtomicUsize::new(0);
    FakeHttp::start(move |heard, stream| {
        let roles = "/latest/meta-data/iam/security-credentials/";
        let is_known = says(heard, "x-aws-ec2-metadata-token: 4711\r");
        match (heard.0.as_str(), heard.1.as_str()) {
            ("PUT", "/latest/api/token") => send(stream, "200 OK", "", b"4711"),
            _ if !is_known => send(stream, "401 Unauthorized", "", b""),
            ("GET", path) if path == roles => send(stream, "200 OK", "", role.as_bytes()),
            ("GET", path) if path == format!("{roles}{role}") => {
                let number = asked.fetch_add(1, Ordering::Relaxed);
                send(
                    stream,
                    "200 OK",
                    "",
                    keys(&format!("ROLE{number}")).as_bytes(),
                );
            }
            _ => send(stream, "404 Not Found", "", b""),
        }
    })
}

#[test]
fn an_instance_signs_with_the_keys_of_its_role_and_with_newer_ones_once_they_expire() {
    let metadata = metadata("mover");
    let bucket = Bucket::start(|heard, _, stream| {
        let is_old = heard.0 == "PUT" && says(heard, "credential=role0/");
        if is_old {
            let body = b"<Error><Code>ExpiredToken</Code></Error>";
            send(stream, "400 Bad Request", "", body);
        }
        is_old
    });
    let mut command = copy(&bucket);
    command.env("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.url("/"));
    Ran::from(command.output().unwrap()).expect(0, &[]);
    let puts = bucket.server.heard("PUT");
    let last = &puts[puts.len() - 1];
    assert!(says(last, "credential=role1/"), "{}", last.2);
    assert!(says(last, "x-amz-security-token: trole1\r"), "{}", last.2);
}

#[test]
fn a_container_shows_its_authorization() {
    let host = FakeHttp::start(|heard, stream| {
        let is_known = heard.1 == "/v2/keys?id=1" && says(heard, "authorization: of-the-pod\r");
        match is_known {
            true => send(stream, "200 OK", "", keys("POD").as_bytes()),
            false => send(stream, "403 Forbidden", "", b""),
        }
    });
    let bucket = Bucket::start(|_, _, _| false);
    let shown = bucket.here.path().join("authorization");
    fs::write(&shown, "of-the-pod\n").unwrap();
    let mut command = copy(&bucket);
    command
        .env(
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            host.url("/v2/keys?id=1"),
        )
        .env("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", &shown);
    Ran::from(command.output().unwrap()).expect(0, &[]);
    let put = &bucket.server.heard("PUT")[0];
    assert!(says(put, "credential=pod/"), "{}", put.2);
}

#[test]
fn what_has_no_keys_is_named_and_other_hosts_are_not_asked_in_clear() {
    let bucket = Bucket::start(|_, _, _| false);
    let none = metadata("");
    let closed = FakeHttp::start(|_, stream| send(stream, "403 Forbidden", "", b""));
    let nowhere = "http://192.0.2.1/keys";
    for (name, value, said) in [
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            none.url(""),
            "has no role",
        ),
        (
            "AWS_EC2_METADATA_SERVICE_ENDPOINT",
            closed.url(""),
            "no keys: set AWS_ACCESS_KEY_ID",
        ),
        (
            "AWS_EC2_METADATA_DISABLED",
            "true".to_owned(),
            "no keys: set AWS_ACCESS_KEY_ID",
        ),
        (
            "AWS_CONTAINER_CREDENTIALS_FULL_URI",
            nowhere.to_owned(),
            "192.0.2.1",
        ),
    ] {
        let mut command = copy(&bucket);
        let ran = Ran::from(command.env(name, value).output().unwrap());
        assert!(
            ran.code != 0 && ran.err.contains(said),
            "{name}: {}",
            ran.err
        );
    }
    assert!(bucket.server.heard("PUT").is_empty());
}
