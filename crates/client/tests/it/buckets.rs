//! Buckets whose service fails, lies and is slow; tests of `crates/lab` have real ones.

use std::{
    collections::BTreeSet,
    fs,
    net::{SocketAddr, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use crate::{
    fake_bucket::{
        Bucket, INTERNAL, MIB, PART, SECRET, SLOW_DOWN, State, answer, complete, head,
        is_completion, is_gone, is_part, length, lists_parts, object, value,
    },
    harness::{nap, text},
    hostile_http::{FakeHttp, Heard, send},
};

/// `true`: the request is answered.
type Fault = fn(&Heard, &mut State, &mut TcpStream) -> bool;

#[test]
fn a_large_file_goes_in_equal_parts_and_is_there_when_all_are() {
    let bucket = Bucket::start(|_, _, _| false);
    bucket.put(&["-p", "3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 1, 0));
    let parts = bucket.server.heard("PUT");
    let mut sizes: Vec<_> = parts.iter().map(length).collect();
    sizes.sort_unstable();
    assert_eq!(sizes, [5, PART, PART, PART, PART]);
    assert!(
        parts
            .iter()
            .all(|part| part.2.contains("x-amz-checksum-crc32c: "))
    );
    let begun = &bucket.server.heard("POST")[0];
    let modified = fs::metadata(bucket.here.path().join("large"))
        .unwrap()
        .modified()
        .unwrap();
    let since = modified.duration_since(SystemTime::UNIX_EPOCH).unwrap();
    let said = format!("x-amz-meta-mtime: {}\r", since.as_secs());
    assert!(begun.2.contains(&said), "{}", begun.2);
}

#[test]
fn an_error_with_status_200_completes_nothing_and_is_tried_again() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_completion(heard) && state.faults == 0;
        if fails {
            send(stream, "200 OK", "", INTERNAL);
        }
        fails
    });
    bucket.put(&["--retries=3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 1));
}

#[test]
fn an_upload_that_fails_for_good_is_aborted() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = is_completion(heard);
        if fails {
            send(stream, "200 OK", "", INTERNAL);
        }
        fails
    });
    let ran = bucket.put(&["--retries=1", "--no-journal"]);
    ran.expect(4, &["InternalError"]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.aborted), (0, 1));
}

#[test]
fn a_service_that_wants_less_gets_less_and_all() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_part(heard) && state.faults < 3;
        if fails {
            send(stream, "503 Slow Down", "", SLOW_DOWN);
        }
        fails
    });
    bucket.put(&["-p", "3", "--retries=5"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.faults), (1, 3));
}

#[test]
fn a_part_whose_answer_is_lost_is_sent_again_or_found() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = is_part(heard) && state.faults == 0;
        if fails {
            let number = value(heard, "partNumber").unwrap().parse().unwrap();
            state.parts.insert(number, length(heard));
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        fails
    });
    bucket.put(&["--retries=3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 1));
}

#[test]
fn an_upload_that_was_killed_goes_on_with_the_parts_that_are_there() {
    let is_gone = Arc::new(AtomicBool::new(false));
    let first_is_gone = Arc::clone(&is_gone);
    let bucket = Bucket::start(move |heard, state, stream| {
        // Nothing more is answered until the first run is gone, however often it asks.
        let waits =
            is_part(heard) && state.parts.len() == 2 && !first_is_gone.load(Ordering::SeqCst);
        if waits {
            drop(stream.shutdown(std::net::Shutdown::Read));
        }
        waits
    });
    let journal = bucket.here.path().join("journal");
    let (journal, large) = (text(&journal).to_owned(), bucket.large());
    let arguments = [
        "cp",
        "--journal",
        &journal,
        "-p",
        "1",
        &large,
        "s3://mine/large",
    ];
    let mut first = bucket.command(&arguments).spawn().unwrap();
    for _ in 0..6000 {
        if bucket.state.lock().unwrap().faults > 0 {
            break;
        }
        nap();
    }
    first.kill().unwrap();
    first.wait().unwrap();
    is_gone.store(true, Ordering::SeqCst);
    let before = bucket.server.heard("PUT").len();
    bucket.run(&arguments).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 1, 0));
    let again = bucket.server.heard("PUT").len() - before;
    assert_eq!(again, 3, "of five parts two are there");
}

#[test]
fn a_list_of_parts_that_lacks_the_last_completes_nothing() {
    let bucket = Bucket::start(|heard, state, stream| {
        if is_part(heard) {
            let mut lines = heard.2.lines();
            let sum = lines.find(|line| line.starts_with("x-amz-checksum-crc32c: "));
            // Values of headers are heard in lower case: the parts have no checksum in base64.
            assert!(sum.is_some());
        }
        let is_short = lists_parts(heard) && state.parts.len() == 5;
        if is_short {
            let last = state.parts.remove(&5).unwrap();
            answer(heard, state, stream);
            state.parts.insert(5, last);
        }
        is_short
    });
    let ran = bucket.put(&["--retries=1", "--no-journal"]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let state = bucket.state.lock().unwrap();
    assert!(state.faults > 0);
    assert_eq!((state.completed, state.aborted), (0, 1));
}

#[test]
fn an_object_that_is_shorter_than_its_parts_is_an_error() {
    let bucket = Bucket::start(|heard, state, _| {
        if heard.0 == "HEAD"
            && let Some((size, _)) = &mut state.object
        {
            *size = 7;
        }
        false
    });
    let ran = bucket.put(&["--retries=1", "--no-journal"]);
    ran.expect(4, &["the object has 7 bytes"]);
}

#[test]
fn a_completion_whose_answer_is_lost_is_known_by_the_mark_of_its_object() {
    let lost: Fault = |heard, state, stream| {
        let fails = is_completion(heard) && state.completed == 0;
        if fails {
            complete(state);
            drop(stream.shutdown(std::net::Shutdown::Both));
        }
        fails || is_gone(heard, state, stream)
    };
    let bucket = Bucket::start(lost);
    bucket.put(&["--retries=3"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed), (1, 1));
}

#[test]
fn an_older_object_of_the_same_size_is_not_taken_for_the_new_one() {
    let ended: Fault = |heard, state, stream| {
        state.object = Some((4 * PART + 5, "of another".to_owned()));
        let fails = is_completion(heard);
        if fails {
            state.completed += 1;
            send(stream, "500 Internal Server Error", "", INTERNAL);
        }
        fails || is_gone(heard, state, stream)
    };
    for more in [&[][..], &["--no-verify"]] {
        let bucket = Bucket::start(ended);
        let options = [&["--retries=2", "--no-journal"], more].concat();
        let ran = bucket.put(&options);
        assert_eq!(ran.code, 4, "{}", ran.err);
    }
}

/// A bucket with the objects `a` and `a/b`.
fn of_two(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    let path = heard.1.split('?').next().unwrap();
    match heard.0.as_str() {
        "HEAD" if matches!(path, "/mine/a" | "/mine/a/b") => head(stream, 1, ""),
        "DELETE" => {
            state.aborted += 1;
            send(stream, "204 No Content", "", b"");
        }
        "PUT" => {
            let copied = b"<CopyObjectResult><ETag>\"x\"</ETag></CopyObjectResult>";
            send(stream, "200 OK", "", copied);
        }
        "GET" if value(heard, "prefix") == Some("a%2F") && state.aborted == 0 => {
            let one = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
                <Key>a/b</Key><Size>1</Size></Contents></ListBucketResult>";
            send(stream, "200 OK", "", one);
        }
        _ => return false,
    }
    true
}

#[test]
fn a_slash_at_the_end_removes_what_is_below_and_not_the_object_beside() {
    let removed = |arguments: &[&str]| {
        let bucket = Bucket::start(of_two);
        let ran = bucket.run(arguments);
        let heard = bucket.server.heard("DELETE").into_iter();
        (ran.code, heard.map(|heard| heard.1).collect::<Vec<_>>())
    };
    let below = vec!["/mine/a/b".to_owned()];
    assert_eq!(removed(&["rm", "-r", "s3://mine/a/"]), (0, below));
    assert_eq!(removed(&["rm", "s3://mine/a/"]).1, [""; 0]);
    for end in ["a//", "a/.", "/", "a/./"] {
        let url = format!("s3://mine/{end}");
        assert_eq!(removed(&["rm", "-r", &url]), (2, Vec::new()), "{end}");
    }
    assert_eq!(
        removed(&["rm", "s3://mine/a"]),
        (0, vec!["/mine/a".to_owned()])
    );
}

#[test]
fn a_sync_to_a_path_that_could_be_another_deletes_nothing() {
    for end in ["a//", "a/.", "/"] {
        let bucket = Bucket::start(of_two);
        let from = bucket.here.path().join("from");
        fs::create_dir(&from).unwrap();
        let url = format!("s3://mine/{end}");
        let ran = bucket.run(&["sync", "--delete", text(&from), &url]);
        assert_ne!(ran.code, 0, "{end}: {}", ran.err);
        assert!(bucket.server.heard("DELETE").is_empty(), "{end}");
    }
}

#[test]
fn an_object_that_is_moved_onto_itself_stays() {
    for (from, to) in [
        ("s3://mine/a", "s3://mine/a"),
        ("s3://mine/a/b", "s3://mine/a/b"),
        ("s3://mine/a/", "s3://mine/c"),
    ] {
        let bucket = Bucket::start(of_two);
        let ran = bucket.run(&["mv", from, to]);
        assert_ne!(ran.code, 0, "{from}: {}", ran.err);
        assert!(bucket.server.heard("DELETE").is_empty(), "{from}");
    }
    let bucket = Bucket::start(of_two);
    bucket
        .run(&["mv", "s3://mine/a", "s3://mine/c"])
        .expect(0, &[]);
    let copies = bucket.server.heard("PUT");
    assert!(copies[0].2.contains("x-amz-copy-source-if-match: \"x\""));
    assert_eq!(bucket.server.heard("DELETE").len(), 1);
}

#[test]
fn a_service_that_fails_for_a_moment_does_not_lose_a_resume() {
    let bucket = Bucket::start(|heard, state, stream| {
        // The third part fails; then the list of parts, once.
        let fails = match state.faults {
            0 => is_part(heard) && state.parts.len() == 2,
            1 => lists_parts(heard),
            _ => false,
        };
        if fails {
            send(stream, "503 Slow Down", "", SLOW_DOWN);
        }
        fails
    });
    bucket.put(&["-p", "1", "--retries=5"]).expect(0, &[]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.faults), (1, 1, 2));
    assert_eq!(
        bucket.server.heard("PUT").len(),
        6,
        "five parts, one of them twice"
    );
}

const ONE: &[u8] = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
    <Key>d/a</Key><Size>1</Size></Contents></ListBucketResult>";

/// What is left of `mine`, which the bucket does not have, by a sync from a listing.
fn mine_is_left(status: &'static str, body: &'static [u8], more: &'static [u8]) -> bool {
    let server = FakeHttp::start(move |heard, stream| {
        let is_listing = heard.0 == "GET" && value(heard, "delimiter").is_some();
        let is_more = value(heard, "continuation-token").is_some();
        match heard.0.as_str() {
            "HEAD" if heard.1 == "/mine/d/a" => head(stream, 1, ""),
            "GET" if heard.1.starts_with("/mine/d/a") => object(heard, "x", b"x", stream),
            _ if is_listing && is_more => send(stream, status, "", more),
            _ if is_listing => send(
                stream,
                if more.is_empty() { status } else { "200 OK" },
                "",
                body,
            ),
            "GET" => send(stream, "200 OK", "", ONE),
            _ => answer(heard, &mut State::default(), stream),
        }
    });
    let bucket = Bucket {
        server,
        ..Bucket::start(|_, _, _| false)
    };
    let to = bucket.here.path().join("d");
    fs::create_dir(&to).unwrap();
    fs::write(to.join("mine"), "x").unwrap();
    let ran = bucket.run(&["sync", "--delete", "--retries=1", "s3://mine/d/", text(&to)]);
    let mut listings = bucket.server.heard("GET").into_iter();
    assert!(listings.any(|heard| value(&heard, "delimiter").is_some()));
    let is_left = to.join("mine").exists();
    assert_eq!(ran.code != 0, is_left, "{}", ran.err);
    is_left
}

#[test]
fn a_listing_that_may_be_cut_deletes_nothing() {
    const PAGE: &[u8] = b"<ListBucketResult><IsTruncated>true</IsTruncated>\
        <NextContinuationToken>t</NextContinuationToken><Contents><Key>d/a</Key>\
        <Size>1</Size></Contents></ListBucketResult>";
    // One that is whole does.
    assert!(!mine_is_left("200 OK", ONE, b""));
    for body in [
        &b"<ListBucketResult><Contents><Key>d/a</Key><Size>1</Size></Contents>"[..],
        b"<ListBucketResult><Contents><Key>d/a</Key><Size>1</Size></Contents></ListBucketResult>",
        INTERNAL,
    ] {
        assert!(mine_is_left("200 OK", body, b""));
    }
    // It is asked again soon.
    let busy = "503 Slow Down\r\nRetry-After: 0";
    assert!(mine_is_left(busy, SLOW_DOWN, b""));
    // On the second page it fails, is cut, or comes again.
    assert!(mine_is_left(busy, PAGE, SLOW_DOWN));
    assert!(mine_is_left(
        "200 OK",
        PAGE,
        b"<ListBucketResult><Contents>"
    ));
    assert!(mine_is_left("200 OK", PAGE, PAGE));
}

#[test]
fn keys_that_are_no_names_of_files_are_reported_and_leave_no_directory() {
    let bucket = Bucket::start(|heard, _, stream| {
        if heard.0 != "GET" {
            return false;
        }
        let body = match value(heard, "prefix") {
            Some("d%2F") => {
                b"<ListBucketResult><IsTruncated>false</IsTruncated>\
                <Contents><Key>d/</Key><Size>0</Size></Contents>\
                <Contents><Key>d/&#10;x</Key><Size>1</Size></Contents>\
                <CommonPrefixes><Prefix>d//</Prefix></CommonPrefixes>\
                <CommonPrefixes><Prefix>d/../</Prefix></CommonPrefixes></ListBucketResult>"
                    as &[u8]
            }
            _ => b"<ListBucketResult><IsTruncated>false</IsTruncated></ListBucketResult>",
        };
        send(stream, "200 OK", "", body);
        true
    });
    let to = bucket.here.path().join("d");
    let ran = bucket.run(&["cp", "-r", "--retries=1", "s3://mine/d/", text(&to)]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    for said in ["d//", "d/../"] {
        assert!(ran.err.contains(said), "{}", ran.err);
    }
    let made = fs::read_dir(bucket.here.path()).unwrap().count();
    assert_eq!(made, 1, "the directory alone");
}

#[test]
fn an_object_that_changes_under_way_is_noticed() {
    let bucket = Bucket::start(|heard, state, stream| {
        let content = vec![7; 12 * MIB];
        match heard.0.as_str() {
            "HEAD" if heard.1.ends_with("/o") => {
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\
                     Last-Modified: Mon, 12 Jan 2026 09:25:24 GMT\r\n\r\n",
                    content.len()
                );
                drop(std::io::Write::write_all(stream, head.as_bytes()));
            }
            "GET" => {
                state.begun += 1;
                let tag = if state.begun == 1 { "one" } else { "two" };
                object(heard, tag, &content, stream);
            }
            _ => return false,
        }
        true
    });
    let to = bucket.here.path().join("o");
    let options = ["cp", "-p", "4", "--retries=1", "--no-journal"];
    let ran = bucket.run(&[&options[..], &["s3://mine/o", text(&to)]].concat());
    ran.expect(4, &["changed meanwhile"]);
    assert!(!Path::new(&to).exists());
}

#[test]
fn a_wrong_clock_is_named_and_no_secret_is_shown() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = heard.0 == "PUT";
        if fails {
            let body = b"<Error><Code>RequestTimeTooSkewed</Code><Message>too large.</Message>\
                </Error>";
            send(stream, "403 Forbidden", "", body);
        }
        fails
    });
    let from = bucket.here.path().join("f");
    fs::write(&from, "x").unwrap();
    let ran = bucket.run(&["cp", "-vv", text(&from), "s3://mine/f"]);
    let ran = ran.expect(3, &["RequestTimeTooSkewed", "clock"]);
    for secret in [SECRET, "t0ken", "Signature"] {
        assert!(!ran.err.contains(secret), "{}", ran.err);
    }
    assert!(bucket.server.heard("PUT")[0].2.contains("signature="));
}

#[test]
fn the_time_that_is_kept_with_an_object_tells_which_file_is_newer() {
    // Stored long ago, of a file of 2001 or of 2096; or in the second in which ours was changed.
    let stored = SystemTime::UNIX_EPOCH + Duration::from_secs(1_262_401_445);
    for (kept, changed, sent) in [
        ("1000000000", SystemTime::now(), 1),
        ("4000000000", SystemTime::now(), 0),
        ("1000000000", stored, 1),
    ] {
        let bucket = Bucket::start(move |heard, _, stream| {
            match heard.0.as_str() {
                "GET" => {
                    let one = b"<ListBucketResult><IsTruncated>false</IsTruncated><Contents>\
                        <Key>d/o</Key><Size>9</Size>\
                        <LastModified>2010-01-02T03:04:05.000Z</LastModified>\
                        </Contents></ListBucketResult>";
                    send(stream, "200 OK", "", one);
                }
                "HEAD" if heard.1 == "/mine/d/o" => {
                    let told = format!("ETag: \"x\"\r\nx-amz-meta-mtime: {kept}\r\n");
                    send(stream, "200 OK", &told, b"");
                }
                "HEAD" if heard.1 == "/mine/d" => send(stream, "404 Not Found", "", b""),
                _ => return false,
            }
            true
        });
        let from = bucket.here.path().join("from");
        fs::create_dir(&from).unwrap();
        fs::write(from.join("o"), "9 bytes o").unwrap();
        let file = fs::File::options().write(true).open(from.join("o"));
        file.unwrap().set_modified(changed).unwrap();
        let from = format!("{}/", text(&from));
        let ran = bucket.run(&["sync", "--retries=1", &from, "s3://mine/d"]);
        ran.expect(0, &[]);
        assert_eq!(bucket.server.heard("PUT").len(), sent, "{kept} {changed:?}");
    }
}

#[test]
fn times_of_many_objects_are_asked_for_over_the_same_connections() {
    // More than two times as many as are asked for together, by eight.
    const FILES: usize = 600;
    let asked = Arc::<Mutex<BTreeSet<SocketAddr>>>::default();
    let askers = Arc::clone(&asked);
    let bucket = Bucket::start(move |heard, _, stream| {
        match heard.0.as_str() {
            "GET" => {
                let mut body = "<ListBucketResult><IsTruncated>false</IsTruncated>".to_owned();
                for file in 0..FILES {
                    body += &format!(
                        "<Contents><Key>d/{file}</Key><Size>3</Size>\
                         <LastModified>2010-01-02T03:04:05.000Z</LastModified></Contents>"
                    );
                }
                body += "</ListBucketResult>";
                send(stream, "200 OK", "", body.as_bytes());
            }
            "HEAD" if heard.1.starts_with("/mine/d/") => {
                askers.lock().unwrap().insert(stream.peer_addr().unwrap());
                let told = "ETag: \"x\"\r\nx-amz-meta-mtime: 4000000000\r\n";
                send(stream, "200 OK", told, b"");
            }
            "HEAD" if heard.1 == "/mine/d" => send(stream, "404 Not Found", "", b""),
            _ => return false,
        }
        true
    });
    let from = bucket.here.path().join("from");
    fs::create_dir(&from).unwrap();
    for file in 0..FILES {
        fs::write(from.join(file.to_string()), "one").unwrap();
    }
    let from = format!("{}/", text(&from));
    let ran = bucket.run(&["sync", "--retries=1", &from, "s3://mine/d"]);
    ran.expect(0, &[]);
    assert_eq!(bucket.server.heard("PUT").len(), 0);
    assert!(bucket.server.heard("HEAD").len() >= FILES);
    let connections = asked.lock().unwrap().len();
    assert!((2..=8).contains(&connections), "{connections}");
}
