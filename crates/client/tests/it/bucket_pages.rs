//! Listings of buckets page by page: pages that are empty, and services that are busy.

use std::net::TcpStream;

use crate::{
    fake_bucket::{Bucket, SLOW_DOWN, value},
    hostile_http::{Heard, send},
};

/// A page with these keys, whose objects have one byte, or none where they make a directory.
fn send_page(stream: &mut TcpStream, keys: &[&str], next: Option<&str>) {
    let mut body = format!(
        "<ListBucketResult><IsTruncated>{}</IsTruncated>",
        next.is_some()
    );
    for key in keys {
        let size = usize::from(!key.ends_with('/'));
        body += &format!("<Contents><Key>{key}</Key><Size>{size}</Size></Contents>");
    }
    if let Some(next) = next {
        body += &format!("<NextContinuationToken>{next}</NextContinuationToken>");
    }
    body += "</ListBucketResult>";
    send(stream, "200 OK", "", body.as_bytes());
}

/// Number of a page of the keys that begin with `d/`; `None`: another request.
fn page_of(heard: &Heard) -> Option<usize> {
    if heard.0 != "GET" || value(heard, "prefix") != Some("d%2F") {
        return None;
    }
    let token = value(heard, "continuation-token");
    Some(token.map_or(0, |token| token.parse().unwrap()))
}

/// A bucket whose listings of `d/` have these pages.
fn paged(pages: &'static [&'static [&'static str]]) -> Bucket {
    Bucket::start(move |heard, _, stream| {
        let Some(page) = page_of(heard) else {
            return false;
        };
        let next = (page + 1 < pages.len()).then(|| (page + 1).to_string());
        send_page(stream, pages[page], next.as_deref());
        true
    })
}

#[test]
fn empty_pages_before_a_key_do_not_hide_it() {
    let bucket = paged(&[&[], &[], &["d/a"]]);
    let ran = bucket.run(&["stat", "s3://mine/d"]).expect(0, &[]);
    let said = String::from_utf8(ran.out).unwrap();
    assert!(said.contains("type: directory"), "{said}");
    let ran = bucket.run(&["ls", "s3://mine/d"]).expect(0, &[]);
    assert_eq!(ran.out, b"a\n");
    let bucket = paged(&[&[], &[], &[]]);
    for command in ["stat", "ls"] {
        bucket
            .run(&[command, "s3://mine/d"])
            .expect(4, &["no such"]);
    }
}

#[test]
fn a_directory_that_has_keys_on_a_later_page_is_not_removed() {
    // Where it is listed as a directory, it has none: a key comes meanwhile.
    let bucket = Bucket::start(|heard, _, stream| {
        match (page_of(heard), value(heard, "delimiter")) {
            (Some(_), Some(_)) => send_page(stream, &["d/"], None),
            (Some(0), None) => send_page(stream, &["d/"], Some("1")),
            (Some(1), None) => send_page(stream, &[], Some("2")),
            (Some(_), None) => send_page(stream, &["d/new"], None),
            (None, _) => return false,
        }
        true
    });
    let ran = bucket.run(&["rm", "-r", "s3://mine/d/"]);
    ran.expect(4, &["directory not empty"]);
    assert!(bucket.server.heard("DELETE").is_empty());
}

/// A request that is refused while the service is busy: it may be sent again soon.
const BUSY: &str = "503 Slow Down\r\nRetry-After: 0";

#[test]
fn a_page_that_a_busy_service_refuses_is_asked_for_again_and_no_other_one_is() {
    let bucket = Bucket::start(|heard, state, stream| {
        let Some(page) = page_of(heard) else {
            return false;
        };
        // Each but the first is refused twice.
        if page > 0 && state.begun < 2 {
            state.begun += 1;
            send(stream, BUSY, "", SLOW_DOWN);
            return true;
        }
        state.begun = 0;
        let key = format!("d/{page}");
        let next = (page < 3).then(|| (page + 1).to_string());
        send_page(stream, &[&key], next.as_deref());
        true
    });
    let ran = bucket.run(&["ls", "s3://mine/d"]).expect(0, &[]);
    assert_eq!(ran.out, b"0\n1\n2\n3\n");
    let heard = bucket.server.heard("GET").into_iter();
    let listed = heard.filter(|heard| value(heard, "delimiter").is_some());
    let pages: Vec<_> = listed.filter_map(|heard| page_of(&heard)).collect();
    assert_eq!(pages, [0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
}

#[test]
fn questions_are_asked_again_in_place_and_attempts_do_not_multiply_that() {
    // HEAD tells no reason.
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = heard.0 == "HEAD" && heard.1.ends_with("/o") && state.faults < 5;
        if fails {
            send(stream, BUSY, "", b"");
        }
        fails
    });
    bucket.state.lock().unwrap().content = Some(b"x");
    bucket.run(&["stat", "s3://mine/o"]).expect(0, &[]);
    assert_eq!(bucket.state.lock().unwrap().faults, 5);
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = heard.0 == "HEAD" && heard.1.ends_with("/o");
        if fails {
            send(stream, BUSY, "", b"");
        }
        fails
    });
    bucket.run(&["stat", "s3://mine/o"]).expect(4, &["503"]);
    // The first of three attempts asks nine times, the others once each.
    assert_eq!(bucket.state.lock().unwrap().faults, 11);
}
