//! Listings of keys, and removals of many.

use std::{sync::Arc, thread};

use godwit_engine::storage::{MemoryStorage, Storage as _, faulty::Operation};
use godwit_http::s3::answers::Page;
use godwit_proto::FtpPath;
use godwit_server::access::s3_keys;

use super::{Ask, Door, refused};
use crate::{
    harness::{Gate, eventually},
    https::names,
};

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
