//! What services of S3 do wrong for a while: storms of errors, answers that are late, cut or lost,
//! clocks and keys that do not fit. Nothing that is wrong is reported as done, and nothing stays
//! behind.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, TcpStream},
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
    thread,
    time::Duration,
};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use godwit_engine::storage::digest::Digest;
use godwit_proto::ChecksumAlgorithm;
use jiff::{SignedDuration, Timestamp};

use crate::{
    fake_bucket::{
        Bucket, INTERNAL, MIB, PART, SLOW_DOWN, State, answer, head, is_completion, is_gone,
        is_part, lists_parts, value,
    },
    harness::{Ran, bytes, nap, text},
    hostile_http::{FakeHttp, Heard, send},
};

/// Short pauses between attempts.
const SOON: &str = "--retry-pause=0.01";

const DENIED: &str = "403 Forbidden";

fn error_of(code: &str) -> String {
    format!("<Error><Code>{code}</Code><Message>so it is.</Message></Error>")
}

/// The value of a header, in lower case.
fn header<'a>(heard: &'a Heard, name: &str) -> Option<&'a str> {
    let mut lines = heard.2.lines();
    let value = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))?;
    Some(value.trim())
}

fn number_of(heard: &Heard) -> u32 {
    value(heard, "partNumber").unwrap().parse().unwrap()
}

/// One upload was begun and completed; nothing of another is left.
#[track_caller]
fn is_one_upload(bucket: &Bucket) {
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.begun, state.completed, state.aborted), (1, 1, 0));
    assert_eq!(state.object.as_ref().unwrap().0, 4 * PART + 5);
}

/// A bucket with one object `o` of these bytes, whose GET is answered by `fault` if that says so.
fn serving(
    content: &'static [u8],
    fault: impl Fn(&Heard, &mut State, &mut TcpStream) -> bool + Send + Sync + 'static,
) -> Bucket {
    let bucket = Bucket::start(move |heard, state, stream| {
        let is_fetched = heard.0 == "GET" && heard.1.ends_with("/o");
        is_fetched && fault(heard, state, stream)
    });
    bucket.state.lock().unwrap().content = Some(content);
    bucket
}

/// Fetches `o`; what came of it.
fn get(bucket: &Bucket, options: &[&str]) -> (Ran, Option<Vec<u8>>) {
    let to = bucket.here.path().join("o");
    let ends = ["s3://mine/o", text(&to)];
    let ran = bucket.run(&[&["cp", SOON], options, &ends].concat());
    (ran, fs::read(&to).ok())
}

fn content() -> &'static [u8] {
    Box::leak(bytes(3 * MIB, 4).into_boxed_slice())
}

#[test]
fn a_part_that_fails_now_and_then_is_sent_again_while_the_others_go_on() {
    let failed = Mutex::new(BTreeMap::<u32, u32>::new());
    let bucket = Bucket::start(move |heard, _, stream| {
        let mut failed = failed.lock().unwrap();
        let fails = is_part(heard) && {
            let times = failed.entry(number_of(heard)).or_default();
            *times += 1;
            *times <= 2
        };
        if fails {
            send(stream, "500 Internal Server Error", "", INTERNAL);
        }
        fails
    });
    // No attempt is used up.
    let ran = bucket.put(&["-v", "-p", "3", "--retries=1"]);
    let ran = ran.expect(0, &[]);
    assert!(!ran.err.contains("InternalError"), "{}", ran.err);
    is_one_upload(&bucket);
    assert_eq!(bucket.state.lock().unwrap().faults, 10);
}

#[test]
fn a_storm_of_errors_is_outlasted_and_reported_if_it_stays() {
    let storm = |most: u32| {
        Bucket::start(move |heard, state, stream| {
            let fails = is_part(heard) && state.faults < most;
            if fails {
                send(stream, "503 Slow Down", "", SLOW_DOWN);
            }
            fails
        })
    };
    let bucket = storm(8);
    let options = ["-p", "3", "--retries=9", SOON];
    bucket.put(&options).expect(0, &[]);
    is_one_upload(&bucket);
    assert_eq!(bucket.state.lock().unwrap().faults, 8);
    let bucket = storm(u32::MAX);
    let options = ["-p", "3", "--retries=2", "--no-journal", SOON];
    bucket.put(&options).expect(4, &["SlowDown"]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.aborted), (0, 1));
}

#[test]
fn a_service_that_wants_less_is_asked_over_fewer_connections() {
    /// Connections that were told to slow down, and those that brought parts later.
    #[derive(Default)]
    struct Seen {
        told: HashSet<u16>,
        later: HashSet<u16>,
    }
    let seen = Arc::<Mutex<Seen>>::default();
    let own = Arc::clone(&seen);
    let bucket = Bucket::start(move |heard, _, stream| {
        if !is_part(heard) {
            return false;
        }
        let port = stream.peer_addr().unwrap().port();
        let mut seen = own.lock().unwrap();
        let fails = seen.told.len() < 3 && seen.told.insert(port);
        match fails {
            true => send(stream, "503 Slow Down", "", SLOW_DOWN),
            false => drop(seen.later.insert(port)),
        }
        fails
    });
    bucket
        .put(&["-p", "4", "-c", "1", "--retries=5", SOON])
        .expect(0, &[]);
    is_one_upload(&bucket);
    let seen = seen.lock().unwrap();
    assert!(seen.later.len() < 4, "{:?}", seen.later);
}

#[test]
fn an_upload_whose_beginning_was_not_answered_is_named_in_a_warning() {
    let begins = |heard: &Heard| heard.0 == "POST" && value(heard, "uploads").is_some();
    let losing = Bucket::start(move |heard, state, stream| {
        let loses = begins(heard) && state.faults == 0;
        if loses {
            drop(stream.shutdown(Shutdown::Both));
        }
        loses
    });
    let failing = Bucket::start(move |heard, state, stream| {
        let fails = begins(heard) && state.faults == 0;
        if fails {
            send(stream, "504 Gateway Timeout", "", b"");
        }
        fails
    });
    let senseless = Bucket::start(move |heard, state, stream| {
        let is_cut = begins(heard) && state.faults == 0;
        if is_cut {
            send(stream, "200 OK", "", b"<InitiateMultipartUploadResult>");
        }
        is_cut
    });
    let said = "`godwit uploads ls s3://mine/large`";
    for bucket in [losing, failing] {
        bucket.put(&["--retries=2", SOON]).expect(0, &[said]);
        is_one_upload(&bucket);
    }
    senseless.put(&["--retries=2", SOON]).expect(4, &[said]);
    // One that is refused has not begun.
    let refusing = Bucket::start(move |heard, state, stream| {
        let fails = begins(heard) && state.faults == 0;
        if fails {
            send(stream, "503 Slow Down", "", SLOW_DOWN);
        }
        fails
    });
    let ran = refusing.put(&["--retries=2", SOON]).expect(0, &[]);
    assert!(!ran.err.contains("uploads ls"), "{}", ran.err);
    is_one_upload(&refusing);
}

#[test]
fn a_part_without_a_tag_is_not_stored() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = is_part(heard);
        if fails {
            send(stream, "200 OK", "", b"");
        }
        fails
    });
    let ran = bucket.put(&["--retries=2", "--no-journal", SOON]);
    ran.expect(4, &["no ETag"]);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.aborted), (0, 1));
}

/// Lists the parts, the second of them with another tag.
fn list_wrongly(state: &State, stream: &mut TcpStream) {
    let part = |(number, size): (&u32, &usize)| {
        let tag = if *number == 2 { "of another" } else { "p" };
        format!(
            "<Part><PartNumber>{number}</PartNumber><Size>{size}</Size>\
             <ETag>\"{tag}\"</ETag></Part>"
        )
    };
    let parts: String = state.parts.iter().map(part).collect();
    let head = "<ListPartsResult><IsTruncated>false</IsTruncated>";
    let body = format!("{head}{parts}</ListPartsResult>");
    send(stream, "200 OK", "", body.as_bytes());
}

#[test]
fn parts_of_which_one_has_another_tag_in_the_list_are_not_completed() {
    let lying = |most: u32| {
        Bucket::start(move |heard, state, stream| {
            let lies = lists_parts(heard) && state.faults < most;
            if lies {
                list_wrongly(state, stream);
            }
            lies
        })
    };
    let bucket = lying(1);
    bucket.put(&["-p", "1", "--retries=3", SOON]).expect(0, &[]);
    is_one_upload(&bucket);
    let bucket = lying(u32::MAX);
    let ran = bucket.put(&["-p", "1", "--retries=3", "--no-journal", SOON]);
    assert_eq!(ran.code, 4, "{}", ran.err);
    let state = bucket.state.lock().unwrap();
    assert_eq!((state.completed, state.aborted), (0, 1));
}

#[test]
fn a_completed_object_that_is_not_shown_yet_is_waited_for() {
    let bucket = Bucket::start(|heard, state, stream| {
        let hides = heard.0 == "HEAD" && state.object.is_some() && state.faults < 3;
        if hides {
            send(stream, "404 Not Found", "", b"");
        }
        hides
    });
    bucket.put(&["--retries=1"]).expect(0, &[]);
    is_one_upload(&bucket);
    assert_eq!(bucket.server.heard("PUT").len(), 5);
}

/// Some services copy all parts before they answer.
#[test]
fn a_completion_may_take_longer_than_other_answers() {
    let bucket = Bucket::start(|heard, _, _| {
        if is_completion(heard) {
            thread::sleep(Duration::from_millis(2500));
        }
        false
    });
    let options = ["--retries=1", "--stall-timeout=1"];
    bucket.put(&options).expect(0, &[]);
    is_one_upload(&bucket);
}

#[test]
fn an_object_that_is_still_put_together_when_the_connection_is_lost_is_waited_for() {
    for replaces in [false, true] {
        let bucket = Bucket::start(move |heard, state, stream| {
            if is_completion(heard) && state.completed == 0 {
                state.completed = 1;
                drop(stream.shutdown(Shutdown::Both));
                return true;
            }
            let is_seen = heard.0 == "HEAD" && heard.1.contains("/large") && state.completed == 1;
            if is_seen && state.faults == 4 {
                state.object = Some((4 * PART + 5, state.mark.clone()));
            }
            let hides = is_seen && state.object.is_none();
            match hides {
                true if replaces => head(stream, 7, "of another"),
                true => send(stream, "404 Not Found", "", b""),
                false => {}
            }
            hides || is_gone(heard, state, stream)
        });
        bucket.put(&["--retries=3", SOON]).expect(0, &[]);
        is_one_upload(&bucket);
    }
}

#[test]
fn an_object_that_a_listing_does_not_show_yet_is_sent_again_and_nothing_is_removed() {
    let bucket = Bucket::start(|_, _, _| false);
    let from = bucket.here.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("new"), "x").unwrap();
    for sent in [1, 2] {
        // The fake service lists nothing at all.
        let ran = bucket.run(&["sync", "--delete", text(&from), "s3://mine/"]);
        ran.expect(0, &[]);
        assert_eq!(bucket.server.heard("PUT").len(), sent);
    }
    assert!(bucket.server.heard("DELETE").is_empty());
}

#[test]
fn answers_that_are_cut_short_are_gone_on_with() {
    let content = content();
    let bucket = serving(content, move |heard, state, stream| {
        // Each brings a part of what is missing.
        if state.faults == 7 {
            return false;
        }
        let start = header(heard, "range").map_or(0, |range| {
            let start = range.strip_prefix("bytes=").unwrap().split('-').next();
            start.unwrap().parse().unwrap()
        });
        let rest = content.len() - start;
        let range = format!("bytes {start}-{}/{}", content.len() - 1, content.len());
        let status = match start {
            0 => "200 OK".to_owned(),
            _ => format!("206 Partial Content\r\nContent-Range: {range}"),
        };
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {rest}\r\nETag: \"one\"\r\n\r\n");
        drop(stream.write_all(head.as_bytes()));
        drop(stream.write_all(&content[start..start + rest.min(MIB / 4)]));
        drop(stream.shutdown(Shutdown::Both));
        true
    });
    // Those that bring something are more than the attempts.
    let (ran, got) = get(&bucket, &["-p", "1", "--retries=3"]);
    ran.expect(0, &[]);
    assert!(got.unwrap() == content);
    assert_eq!(bucket.state.lock().unwrap().faults, 7);
}

#[test]
fn an_answer_that_stops_in_its_middle_is_given_up_and_gone_on_with() {
    let content = content();
    let bucket = serving(content, move |_, state, stream| {
        if state.faults > 0 {
            return false;
        }
        let size = content.len();
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nETag: \"one\"\r\n\r\n");
        drop(stream.write_all(head.as_bytes()));
        drop(stream.write_all(&content[..MIB]));
        // Until the client goes.
        drop(stream.read(&mut [0]));
        true
    });
    let (ran, got) = get(&bucket, &["-p", "1", "--stall-timeout=1"]);
    ran.expect(0, &[]);
    assert!(got.unwrap() == content);
    let gets = bucket.server.heard("GET");
    let ranges: Vec<_> = gets.iter().filter_map(|get| header(get, "range")).collect();
    assert!(
        ranges.iter().all(|range| !range.starts_with("bytes=0-")),
        "{ranges:?}"
    );
}

#[test]
fn bytes_that_are_not_those_of_the_checksum_are_no_file() {
    let content = content();
    let bucket = serving(content, move |_, _, stream| {
        let sum = "x-amz-checksum-crc32c: AAAAAA==\r\nx-amz-checksum-type: FULL_OBJECT\r\n";
        let headers = format!("ETag: \"one\"\r\n{sum}");
        send(stream, "200 OK", &headers, content);
        true
    });
    let (ran, got) = get(&bucket, &["--retries=1", "--no-journal", "-p", "1"]);
    ran.expect(4, &["CRC32C differs"]);
    assert!(got.is_none());
}

/// A service has those checksums that an object was stored with.
#[test]
fn an_object_is_compared_by_a_checksum_that_its_service_has() {
    let content = content();
    let of = |algorithm| {
        let mut digest = Digest::new(algorithm);
        digest.update(content);
        digest.finish()
    };
    let nvme = u64::from_str_radix(&of(ChecksumAlgorithm::Crc64Nvme), 16).unwrap();
    let crc32 = u32::from_str_radix(&of(ChecksumAlgorithm::Crc32), 16).unwrap();
    for (name, right, wrong) in [
        (
            "crc64nvme",
            STANDARD.encode(nvme.to_be_bytes()),
            "AAAAAAAAAAA=",
        ),
        ("crc32", STANDARD.encode(crc32.to_be_bytes()), "AAAAAA=="),
    ] {
        for (value, status) in [(&*right, 0), (wrong, 4)] {
            let headers = format!(
                "ETag: \"one\"\r\nx-amz-checksum-{name}: {value}\r\n\
                 x-amz-checksum-type: FULL_OBJECT\r\n"
            );
            let bucket = serving(content, move |_, _, stream| {
                send(stream, "200 OK", &headers, content);
                true
            });
            let (ran, got) = get(&bucket, &["--retries=1", "--no-journal", "-p", "1"]);
            let differs = format!("{} differs", name.to_uppercase());
            match status {
                0 => ran.expect(0, &[]),
                _ => ran.expect(status, &[&differs]),
            };
            assert_eq!(got.is_some(), status == 0);
        }
    }
}

/// So does `sync --checksum`: each object may have another one.
#[test]
fn a_sync_compares_each_object_by_a_checksum_that_its_service_has() {
    const CONTENT: &[u8] = b"9 bytes o";
    let sum = |algorithm, bytes: usize| {
        let mut digest = Digest::new(algorithm);
        digest.update(CONTENT);
        let value = u64::from_str_radix(&digest.finish(), 16).unwrap();
        STANDARD.encode(&value.to_be_bytes()[8 - bytes..])
    };
    let headers = [
        format!(
            "x-amz-checksum-crc64nvme: {}\r\n",
            sum(ChecksumAlgorithm::Crc64Nvme, 8)
        ),
        format!(
            "x-amz-checksum-crc32: {}\r\n",
            sum(ChecksumAlgorithm::Crc32, 4)
        ),
        "x-amz-checksum-crc32: AAAAAA==\r\n".to_owned(),
        String::new(),
    ];
    let bucket = Bucket::start(move |heard, _, stream| {
        let of: Option<usize> = heard
            .1
            .strip_prefix("/mine/d/")
            .and_then(|key| key.parse().ok());
        match (heard.0.as_str(), of) {
            ("GET", _) => {
                let objects = (0..headers.len()).map(|key| {
                    format!(
                        "<Contents><Key>d/{key}</Key><Size>9</Size>\
                         <LastModified>2010-01-02T03:04:05.000Z</LastModified></Contents>"
                    )
                });
                let body = format!(
                    "<ListBucketResult><IsTruncated>false</IsTruncated>{}</ListBucketResult>",
                    objects.collect::<String>()
                );
                send(stream, "200 OK", "", body.as_bytes());
            }
            ("HEAD", Some(key)) => {
                let told = format!(
                    "ETag: \"x\"\r\nx-amz-checksum-type: FULL_OBJECT\r\n{}",
                    headers[key]
                );
                send(stream, "200 OK", &told, b"");
            }
            ("HEAD", None) if heard.1 == "/mine/d" => send(stream, "404 Not Found", "", b""),
            _ => return false,
        }
        true
    });
    let from = bucket.here.path().join("from");
    fs::create_dir(&from).unwrap();
    for key in 0..4 {
        fs::write(from.join(key.to_string()), CONTENT).unwrap();
    }
    let from = format!("{}/", text(&from));
    let ran = bucket.run(&["sync", "--checksum", "--retries=1", &from, "s3://mine/d"]);
    // Of the last it tells none.
    ran.expect(1, &["d/3", "tells no CRC32C"]);
    let sent = bucket.server.heard("PUT");
    let sent: Vec<_> = sent.iter().map(|heard| &*heard.1).collect();
    assert_eq!(sent, ["/mine/d/2"]);
}

/// A service whose clock is an hour ahead, and says so.
fn an_hour_ahead(heard: &Heard, _: &mut State, stream: &mut TcpStream) -> bool {
    let theirs = Timestamp::now() + SignedDuration::from_hours(1);
    let signed = header(heard, "x-amz-date").unwrap();
    let oldest = (theirs - SignedDuration::from_mins(10)).strftime("%Y%m%dt%H%M%Sz");
    if *signed >= *oldest.to_string() {
        return false;
    }
    let date = theirs
        .strftime("Date: %a, %d %b %Y %H:%M:%S GMT\r\n")
        .to_string();
    let body = match heard.0.as_str() {
        "HEAD" => String::new(),
        _ => error_of("RequestTimeTooSkewed"),
    };
    send(stream, DENIED, &date, body.as_bytes());
    true
}

#[test]
fn where_the_clock_is_wrong_requests_are_signed_with_the_time_of_the_service() {
    let bucket = Bucket::start(an_hour_ahead);
    let ran = bucket.put(&["-p", "2", "-c", "1", "--retries=1"]);
    ran.expect(
        0,
        &["the service's clock is 3", "ahead of that of this machine"],
    );
    is_one_upload(&bucket);
    assert_eq!(bucket.state.lock().unwrap().faults, 1, "it is learned once");
}

#[test]
fn a_clock_that_jumps_in_the_middle_is_followed() {
    let bucket = Bucket::start(|heard, state, stream| {
        let is_later = is_part(heard) && state.parts.len() >= 2 || is_completion(heard);
        is_later && an_hour_ahead(heard, state, stream)
    });
    bucket.put(&["-p", "1", "--retries=1"]).expect(0, &[]);
    is_one_upload(&bucket);
}

#[test]
fn a_clock_that_jumps_is_followed_by_all_requests_that_are_under_way() {
    let (state, arrived) = (Arc::<Mutex<State>>::default(), AtomicU32::new(0));
    let own = Arc::clone(&state);
    let server = FakeHttp::start(move |heard, stream| {
        if is_part(heard) && arrived.fetch_add(1, Ordering::SeqCst) < 2 {
            // Two are signed with the time before.
            while arrived.load(Ordering::SeqCst) < 2 {
                nap();
            }
        }
        let mut state = own.lock().unwrap();
        match is_part(heard) && an_hour_ahead(heard, &mut state, stream) {
            true => state.faults += 1,
            false => answer(heard, &mut state, stream),
        }
    });
    let here = tempfile::tempdir().unwrap();
    let bucket = Bucket {
        server,
        state,
        here,
    };
    let options = ["-p", "2", "-c", "1", "--retries=1", "--stall-timeout=20"];
    bucket.put(&options).expect(0, &[]);
    is_one_upload(&bucket);
    assert_eq!(bucket.state.lock().unwrap().faults, 2);
}

fn write_keys(path: &Path, token: &str) {
    let keys = format!(
        "[default]\naws_access_key_id = AKID\naws_secret_access_key = k\n\
         aws_session_token = {token}\n"
    );
    // As programs do that others read beside.
    let mut new = tempfile::NamedTempFile::new_in(path.parent().unwrap()).unwrap();
    new.write_all(keys.as_bytes()).unwrap();
    new.persist(path).unwrap();
}

/// Whether the keys of a request have expired, in the middle of an upload.
fn has_expired(heard: &Heard, state: &State) -> bool {
    let is_old = header(heard, "x-amz-security-token") != Some("fresh");
    is_old && state.parts.len() >= 2
}

fn refuse_expired(heard: &Heard, stream: &mut TcpStream) {
    let body = match heard.0.as_str() {
        "HEAD" => String::new(),
        _ => error_of("ExpiredToken"),
    };
    send(stream, "400 Bad Request", "", body.as_bytes());
}

#[test]
fn keys_that_expire_in_the_middle_are_read_again() {
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("credentials");
    write_keys(&file, "old");
    let own = file.clone();
    let bucket = Bucket::start(move |heard, state, stream| {
        let fails = has_expired(heard, state);
        if fails {
            write_keys(&own, "fresh");
            refuse_expired(heard, stream);
        }
        fails
    });
    let large = bucket.large();
    let mut command = bucket.command(&["cp", "-p", "3", "--retries=1", &large, "s3://mine/large"]);
    command.env("AWS_SHARED_CREDENTIALS_FILE", &file);
    for name in [
        "AWS_ACCESS_KEY_ID",
        "AWS_SECRET_ACCESS_KEY",
        "AWS_SESSION_TOKEN",
    ] {
        command.env_remove(name);
    }
    Ran::from(command.output().unwrap()).expect(0, &[]);
    is_one_upload(&bucket);
}

#[test]
fn where_no_newer_keys_are_the_error_says_so_and_the_same_command_goes_on_with_newer_ones() {
    let bucket = Bucket::start(|heard, state, stream| {
        let fails = has_expired(heard, state);
        if fails {
            refuse_expired(heard, stream);
        }
        fails
    });
    let (journal, large) = (bucket.here.path().join("journal"), bucket.large());
    let journal = format!("--journal={}", text(&journal));
    let arguments = ["cp", &journal, "-p", "1", &large, "s3://mine/large"];
    let ran = bucket.run(&arguments);
    ran.expect(3, &["ExpiredToken", "with new ones"]);
    assert_eq!(bucket.state.lock().unwrap().aborted, 0);
    let before = bucket.server.heard("PUT").len();
    let mut command = bucket.command(&arguments);
    command.env("AWS_SESSION_TOKEN", "fresh");
    Ran::from(command.output().unwrap()).expect(0, &[]);
    is_one_upload(&bucket);
    let again = bucket.server.heard("PUT").len() - before;
    assert_eq!(again, 3, "of five parts two are there");
}

#[test]
fn a_small_object_whose_answer_is_lost_is_stored_once_more_and_whole() {
    let bucket = Bucket::start(|heard, state, stream| {
        let loses = heard.0 == "PUT" && state.faults == 0;
        if loses {
            drop(stream.shutdown(Shutdown::Both));
        }
        loses
    });
    let from = bucket.here.path().join("small");
    fs::write(&from, bytes(1000, 6)).unwrap();
    let ran = bucket.run(&["cp", "--retries=2", SOON, text(&from), "s3://mine/small"]);
    ran.expect(0, &[]);
    let puts = bucket.server.heard("PUT");
    let sums: HashSet<_> = puts
        .iter()
        .map(|put| header(put, "x-amz-checksum-crc32c"))
        .collect();
    assert_eq!((puts.len(), sums.len()), (2, 1));
    assert!(bucket.server.heard("DELETE").is_empty());
}

/// A service that computes another CRC32C than that of the bytes that were sent, and later shows an
/// object with this tag.
fn storing_other_bytes(tag_later: &'static str, knows_conditions: bool) -> Bucket {
    Bucket::start(move |heard, _, stream| {
        match heard.0.as_str() {
            "PUT" => {
                let told = "ETag: \"ours\"\r\nx-amz-checksum-crc32c: AAAAAA==\r\n";
                send(stream, "200 OK", told, b"");
            }
            "HEAD" if heard.1.ends_with("/small") => {
                let told = format!("ETag: {tag_later}\r\n");
                send(stream, "200 OK", &told, b"");
            }
            "DELETE" if heard.2.contains("if-match: ") && !knows_conditions => {
                let body = error_of("NotImplemented");
                send(stream, "501 Not Implemented", "", body.as_bytes());
            }
            "DELETE" => send(stream, "204 No Content", "", b""),
            _ => return false,
        }
        true
    })
}

fn put_small(bucket: &Bucket, length: usize, options: &[&str]) -> Ran {
    let from = bucket.here.path().join("small");
    fs::write(&from, bytes(length, 6)).unwrap();
    let ends = [text(&from), "s3://mine/small"];
    bucket.run(&[&["cp", "--retries=1", SOON], options, &ends].concat())
}

#[test]
fn an_object_that_was_stored_wrongly_is_removed_unless_another_writer_has_replaced_it() {
    for (knows_conditions, conditions) in [(true, &[true][..]), (false, &[true, false])] {
        let bucket = storing_other_bytes("\"ours\"", knows_conditions);
        let ran = put_small(&bucket, 1000, &["--no-journal"]);
        ran.expect(4, &["has stored bytes with CRC32C"]);
        let removed = bucket.server.heard("DELETE");
        let said: Vec<_> = removed
            .iter()
            .map(|heard| header(heard, "if-match") == Some("\"ours\""))
            .collect();
        assert_eq!(said, conditions, "{removed:?}");
        assert!(removed.iter().all(|heard| heard.1 == "/mine/small"));
    }
    let bucket = storing_other_bytes("\"of another\"", true);
    let ran = put_small(&bucket, 1000, &["--no-journal"]);
    ran.expect(4, &["may be that of another writer, and stays"]);
    assert!(bucket.server.heard("DELETE").is_empty());
}

#[test]
fn an_object_that_was_stored_wrongly_is_not_kept_for_the_journal() {
    let bucket = storing_other_bytes("\"ours\"", true);
    let journal = bucket.here.path().join("journal");
    let journal = format!("--journal={}", text(&journal));
    let ran = put_small(&bucket, 3 * MIB, &[&journal]);
    ran.expect(4, &["has stored bytes with CRC32C"]);
    assert_eq!(bucket.server.heard("DELETE").len(), 1);
}
