//! Uploads in parts that are called off: those of others by `uploads rm`, and our own.

use std::net::TcpStream;

use crate::{
    fake_bucket::{Bucket, INTERNAL, PART, State, answer, is_completion, value},
    hostile_http::{Heard, send},
};

/// A bucket with uploads of these keys, encoded, whose ids are their numbers, and which aborts
/// none of the key `denied`.
fn with_uploads(keys: &'static [&'static str]) -> Bucket {
    Bucket::start(
        move |heard: &Heard, _: &mut State, stream: &mut TcpStream| {
            let id = value(heard, "uploadId").and_then(|id| id.parse::<usize>().ok());
            match (heard.0.as_str(), id) {
                ("GET", None) if value(heard, "uploads").is_some() => {
                    let mut body = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>\
                    <EncodingType>url</EncodingType>"
                        .to_owned();
                    for (id, key) in keys.iter().enumerate() {
                        body +=
                            &format!("<Upload><Key>{key}</Key><UploadId>{id}</UploadId></Upload>");
                    }
                    body += "</ListMultipartUploadsResult>";
                    send(stream, "200 OK", "", body.as_bytes());
                }
                ("DELETE", Some(id)) if keys[id] == "denied" => {
                    let body = b"<Error><Code>AccessDenied</Code><Message>no</Message></Error>";
                    send(stream, "403 Forbidden", "", body);
                }
                _ => return false,
            }
            true
        },
    )
}

/// Paths of the aborts that the service was asked for.
fn aborts(bucket: &Bucket) -> Vec<String> {
    let heard = bucket.server.heard("DELETE").into_iter();
    heard.map(|heard| heard.1).collect()
}

#[test]
fn an_upload_that_stays_is_named_and_those_behind_it_are_removed() {
    let bucket = with_uploads(&["a", "denied", "line%0Aend", "denied", "z"]);
    let ran = bucket.run(&["uploads", "rm", "s3://mine/"]);
    let ran = ran.expect(1, &["the upload 1 of s3://mine/denied", "the upload 3 of"]);
    let asked = [
        "/mine/a?uploadId=0",
        "/mine/denied?uploadId=1",
        "/mine/line%0Aend?uploadId=2",
        "/mine/denied?uploadId=3",
        "/mine/z?uploadId=4",
    ];
    assert_eq!(aborts(&bucket), asked);
    assert_eq!(bucket.state.lock().unwrap().aborted, 3);
    // Those that are gone are printed, and no others.
    let out = String::from_utf8(ran.out).unwrap();
    let lines: Vec<_> = out.lines().collect();
    assert_eq!(
        lines,
        [
            "-  s3://mine/a  0",
            "-  s3://mine/line%0Aend  2",
            "-  s3://mine/z  4"
        ]
    );
}

#[test]
fn where_no_upload_can_be_removed_the_status_says_why() {
    let bucket = with_uploads(&["denied"]);
    let ran = bucket.run(&["uploads", "rm", "s3://mine/"]);
    ran.expect(3, &["permission denied"]);
}

/// A service that fails to complete, and stores a part again after each of so many aborts.
fn with_late_parts(aborts: u32) -> Bucket {
    Bucket::start(move |heard, state, stream| {
        if is_completion(heard) {
            send(stream, "200 OK", "", INTERNAL);
            return true;
        }
        let is_abort = heard.0 == "DELETE" && value(heard, "uploadId").is_some();
        if is_abort {
            answer(heard, state, stream);
            if state.aborted <= aborts {
                state.parts.insert(1, PART);
            }
        }
        is_abort
    })
}

#[test]
fn a_part_that_is_stored_after_an_abort_is_aborted_too() {
    let options = ["-p", "1", "--retries=1", "--no-journal"];
    let bucket = with_late_parts(2);
    let ran = bucket.put(&options).expect(4, &["InternalError"]);
    assert!(!ran.err.contains("uploads ls"), "{}", ran.err);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.aborted, state.parts.len()), (3, 0));
}

#[test]
fn parts_that_stay_after_all_aborts_are_named() {
    let options = ["-p", "1", "--retries=1", "--no-journal"];
    let bucket = with_late_parts(u32::MAX);
    bucket
        .put(&options)
        .expect(4, &["`godwit uploads ls s3://mine/large`"]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.aborted, state.parts.len()), (6, 1));
}
