//! Copies between buckets of one service, which the service carries out.

use std::net::TcpStream;

use crate::{
    fake_bucket::{Bucket, PART, SLOW_DOWN, State, is_part, value},
    harness::Ran,
    hostile_http::{Heard, send},
};

/// Copies objects and parts of `mine/o`.
fn copies(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    let says = |line: &str| heard.2.contains(&format!("{line}\r"));
    if !says("x-amz-copy-source: /mine/o") {
        return false;
    }
    assert!(says("x-amz-copy-source-if-match: \"x\""), "{}", heard.2);
    let size = state.content.unwrap().len();
    let Some(number) = value(heard, "partNumber") else {
        state.object = Some((size, String::new()));
        let made = b"<CopyObjectResult><ETag>\"c\"</ETag></CopyObjectResult>";
        send(stream, "200 OK", "", made);
        return true;
    };
    let number: u32 = number.parse().unwrap();
    let start = (number as usize - 1) * PART;
    let end = size.min(start + PART);
    let range = format!("x-amz-copy-source-range: bytes={start}-{}", end - 1);
    assert!(says(&range), "{}", heard.2);
    state.parts.insert(number, end - start);
    let made = b"<CopyPartResult><ETag>\"p\"</ETag></CopyPartResult>";
    send(stream, "200 OK", "", made);
    true
}

/// A service with the object `mine/o` of so many bytes.
fn with_object(
    size: usize,
    fault: impl Fn(&Heard, &mut State, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Bucket {
    let bucket = Bucket::start(fault);
    bucket.state.lock().unwrap().content = Some(vec![7; size].leak());
    bucket
}

fn copy(bucket: &Bucket, more: &[&str]) -> Ran {
    bucket.run(&[&["cp"], more, &["s3://mine/o", "s3://other/copy"]].concat())
}

/// Bytes of the object came here.
fn passed(bucket: &Bucket) -> bool {
    let fetched = bucket.server.heard("GET");
    fetched.iter().any(|heard| heard.1 == "/mine/o")
}

#[test]
fn a_large_object_is_copied_in_parts_and_a_small_one_by_one_request() {
    let bucket = with_object(4 * PART + 5, copies);
    copy(&bucket, &["-p", "3"]).expect(0, &[]);
    assert!(!passed(&bucket));
    {
        let state = bucket.state.lock().unwrap();
        assert_eq!((state.begun, state.completed, state.faults), (1, 1, 5));
    }
    let bucket = with_object(1000, copies);
    copy(&bucket, &[]).expect(0, &[]);
    assert!(!passed(&bucket));
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.faults), (0, 1));
    let put = &bucket.server.heard("PUT")[0];
    let directive = "x-amz-metadata-directive: replace\r";
    assert!(put.2.contains(directive), "{}", put.2);
    assert!(put.2.contains("x-amz-meta-mtime: "), "{}", put.2);
}

#[test]
fn where_a_service_copies_nothing_objects_pass_through_this_machine() {
    for size in [1000, 4 * PART] {
        let bucket = with_object(size, |heard, _, stream| {
            let is_copy = heard.2.contains("x-amz-copy-source: ");
            if is_copy {
                let lacks = b"<Error><Code>NotImplemented</Code><Message>no</Message></Error>";
                send(stream, "501 Not Implemented", "", lacks);
            }
            is_copy
        });
        copy(&bucket, &["-v", "-p", "1"]).expect(0, &["no copies from another bucket"]);
        assert!(passed(&bucket));
        let state = bucket.state.lock().unwrap();
        let completed = u32::from(size > PART);
        assert_eq!((state.completed, state.faults), (completed, 1));
    }
}

#[test]
fn a_service_whose_checksums_of_parts_are_not_those_of_their_bytes_copies_no_more() {
    let bucket = with_object(2 * PART, |heard, state, stream| {
        if heard.0 == "HEAD" && heard.1 == "/mine/o" {
            let head = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nETag: \"x\"\r\n\
                 Last-Modified: Mon, 12 Jan 2026 09:25:24 GMT\r\n\
                 x-amz-checksum-crc32c: AAAAAQ==\r\nx-amz-checksum-type: FULL_OBJECT\r\n\r\n",
                2 * PART
            );
            drop(std::io::Write::write_all(stream, head.as_bytes()));
            return true;
        }
        let Some(number) = value(heard, "partNumber") else {
            return false;
        };
        if !heard.2.contains("x-amz-copy-source: ") {
            return false;
        }
        state.parts.insert(number.parse().unwrap(), PART);
        let made = b"<CopyPartResult><ETag>\"p\"</ETag>\
            <ChecksumCRC32C>AAAAAQ==</ChecksumCRC32C></CopyPartResult>";
        send(stream, "200 OK", "", made);
        true
    });
    copy(&bucket, &["-v", "--no-verify"]).expect(0, &["no copies from another bucket"]);
    assert!(passed(&bucket));
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.aborted, state.completed), (2, 1, 1));
}

#[test]
fn buckets_of_two_users_are_copied_through_this_machine() {
    let bucket = with_object(1000, copies);
    let to = "s3://anonymous@other/copy";
    bucket.run(&["cp", "s3://mine/o", to]).expect(0, &[]);
    assert!(passed(&bucket));
}

#[test]
fn a_part_that_fails_is_copied_again_and_others_are_not() {
    let bucket = with_object(4 * PART + 5, |heard, state, stream| {
        let fails = is_part(heard) && state.faults == 2;
        if fails {
            send(stream, "503 Slow Down", "", SLOW_DOWN);
            return true;
        }
        copies(heard, state, stream)
    });
    let more = ["-p", "1", "--retries=3", "--retry-pause=0.01"];
    copy(&bucket, &more).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 6));
}

#[test]
fn an_object_that_changes_under_way_is_an_error() {
    let bucket = with_object(4 * PART, |heard, state, stream| {
        if is_part(heard) && state.faults > 1 {
            let changed = b"<Error><Code>PreconditionFailed</Code><Message>no</Message></Error>";
            send(stream, "412 Precondition Failed", "", changed);
            return true;
        }
        copies(heard, state, stream)
    });
    copy(&bucket, &["-p", "1", "--retries=1"]).expect(4, &["changed meanwhile"]);
    assert_eq!(bucket.state.lock().unwrap().completed, 0);
}
