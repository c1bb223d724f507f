//! Listings of buckets page by page: pages that are empty, and services that are busy.

use std::net::TcpStream;

use crate::{
    fake_bucket::{Bucket, value},
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
