//! Objects that must not replace others: what is asked of the service, and what its answers mean.

use std::{
    fs,
    net::{Shutdown, TcpStream},
    sync::{Arc, Mutex},
};

use crate::{
    fake_bucket::{Bucket, INTERNAL, MIB, State, answer, is_completion, is_part},
    harness::{Ran, bytes, text},
    hostile_http::{FakeHttp, Heard, send},
};

const CONDITION: &str = "if-none-match: *\r";

/// Makes objects: the PUT of a small one, and what completes a large one.
fn makes(heard: &Heard) -> bool {
    heard.0 == "PUT" && !is_part(heard) || is_completion(heard)
}

fn refuse(stream: &mut TcpStream, status: &str, code: &str) {
    let body = format!("<Error><Code>{code}</Code><Message>so it is.</Message></Error>");
    send(stream, status, "", body.as_bytes());
}

/// Files of 1 kB, and of parts if `is_large`, are sent where nothing is.
fn send_new(bucket: &Bucket, is_large: bool, options: &[&str]) -> Ran {
    let from = bucket.here.path().join("from");
    fs::create_dir_all(&from).unwrap();
    match is_large {
        true => fs::rename(bucket.large(), from.join("o")).unwrap(),
        false => fs::write(from.join("o"), bytes(1000, 3)).unwrap(),
    }
    let ends = [text(&from), "s3://mine/"];
    let first = ["sync", "--ignore-existing", "--retry-pause=0.01"];
    bucket.run(&[&first, options, &ends].concat())
}

#[test]
fn a_copy_that_may_replace_says_nothing_and_one_that_may_not_says_so() {
    let bucket = Bucket::start(|_, _, _| false);
    for is_large in [false, true] {
        send_new(&bucket, is_large, &[]).expect(0, &[]);
    }
    let all = [bucket.server.heard("PUT"), bucket.server.heard("POST")].concat();
    for heard in &all {
        assert_eq!(heard.2.contains(CONDITION), makes(heard), "{heard:?}");
    }
    assert_eq!(all.iter().filter(|heard| makes(heard)).count(), 2);
    let bucket = Bucket::start(|_, _, _| false);
    bucket.put(&[]).expect(0, &[]);
    let all = [bucket.server.heard("PUT"), bucket.server.heard("POST")].concat();
    assert!(all.iter().all(|heard| !heard.2.contains(CONDITION)));
}

#[test]
fn an_object_that_came_meanwhile_is_not_replaced_and_nothing_of_ours_stays() {
    for is_large in [false, true] {
        let bucket = Bucket::start(|heard, _, stream| {
            let fails = makes(heard);
            if fails {
                refuse(stream, "412 Precondition Failed", "PreconditionFailed");
            }
            fails
        });
        let ran = send_new(&bucket, is_large, &["--no-journal"]);
        assert!(
            ran.code != 0 && ran.err.contains("file exists"),
            "{}",
            ran.err
        );
        let state = bucket.state.lock().unwrap();
        assert_eq!((state.completed, state.aborted), (0, u32::from(is_large)));
        let removed = bucket.server.heard("DELETE");
        assert!(
            removed.iter().all(|heard| heard.1.contains("uploadId")),
            "{removed:?}"
        );
    }
}

#[test]
fn a_conflict_is_tried_again() {
    for is_large in [false, true] {
        let bucket = Bucket::start(|heard, state, stream| {
            let fails = makes(heard) && state.faults == 0;
            if fails {
                refuse(stream, "409 Conflict", "ConditionalRequestConflict");
            }
            fails
        });
        send_new(&bucket, is_large, &["--retries=2"]).expect(0, &[]);
        assert_eq!(bucket.state.lock().unwrap().faults, 1);
    }
}

#[test]
fn a_service_without_conditions_is_asked_without_and_that_is_said() {
    for is_large in [false, true] {
        let bucket = Bucket::start(|heard, _, stream| {
            let fails = heard.2.contains(CONDITION);
            if fails {
                refuse(stream, "501 Not Implemented", "NotImplemented");
            }
            fails
        });
        let ran = send_new(&bucket, is_large, &["-v", "--retries=1"]);
        ran.expect(0, &["no If-None-Match"]);
        assert_eq!(bucket.state.lock().unwrap().faults, 1);
    }
}

/// Stores the object; the answer is lost, and from then on there is one.
fn store_and_lose(heard: &Heard, state: &mut State, stream: &mut TcpStream) -> bool {
    match heard.0.as_str() {
        "PUT" if state.faults == 0 => {
            let mut lines = heard.2.lines();
            let mark = lines.find_map(|line| line.strip_prefix("x-amz-meta-godwit-upload: "));
            state.object = Some((1000, mark.unwrap().trim().to_owned()));
            drop(stream.shutdown(Shutdown::Both));
            true
        }
        "PUT" => {
            refuse(stream, "412 Precondition Failed", "PreconditionFailed");
            true
        }
        _ => false,
    }
}

#[test]
fn an_object_whose_answer_was_lost_is_not_taken_for_that_of_another() {
    let bucket = Bucket::start(store_and_lose);
    send_new(&bucket, false, &["--retries=2"]).expect(0, &[]);
    assert_eq!(bucket.server.heard("PUT").len(), 2);
    assert!(bucket.server.heard("DELETE").is_empty());
    let bucket = Bucket::start(|heard, state, stream| {
        let is_handled = store_and_lose(heard, state, stream);
        if let Some((_, mark)) = &mut state.object {
            *mark = "of another".to_owned();
        }
        is_handled
    });
    let ran = send_new(&bucket, false, &["--retries=2"]);
    assert!(
        ran.code != 0 && ran.err.contains("file exists"),
        "{}",
        ran.err
    );
    let removed = bucket.server.heard("DELETE");
    assert!(
        removed.iter().all(|heard| !heard.1.ends_with("/o")),
        "{removed:?}"
    );
}

#[test]
fn an_object_whose_answer_was_lost_is_known_by_a_service_that_refuses_before_it_reads() {
    const LENGTH: usize = 6 * MIB;
    let state = Arc::<Mutex<State>>::default();
    let own = Arc::clone(&state);
    let server = FakeHttp::reading(false, move |heard, stream| {
        let mut state = own.lock().unwrap();
        if !store_and_lose(heard, &mut state, stream) {
            return answer(heard, &mut state, stream);
        }
        state.faults += 1;
        state.object.as_mut().unwrap().0 = LENGTH;
        drop(state);
        // Its body is no request.
        drop(std::io::copy(stream, &mut std::io::sink()));
    });
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    fs::create_dir(&from).unwrap();
    fs::write(from.join("o"), bytes(LENGTH, 5)).unwrap();
    let bucket = Bucket {
        server,
        state,
        here,
    };
    let first = ["sync", "--ignore-existing", "--retry-pause=0.01"];
    let ends = ["--retries=2", "--no-journal", text(&from), "s3://mine/"];
    bucket.run(&[&first[..], &ends].concat()).expect(0, &[]);
    assert_eq!(bucket.server.heard("PUT").len(), 2);
    assert!(bucket.server.heard("DELETE").is_empty());
}

#[test]
fn a_request_that_is_refused_without_its_condition_too_says_nothing_of_conditions() {
    let bucket = Bucket::start(|heard, _, stream| {
        let fails = heard.0 == "PUT" && heard.1.ends_with("/o");
        if fails {
            refuse(stream, "501 Not Implemented", "NotImplemented");
        }
        fails
    });
    let ran = send_new(&bucket, false, &["-v", "--retries=1", "--no-journal"]);
    assert!(ran.code != 0, "{}", ran.err);
    assert!(!ran.err.contains("no If-None-Match"), "{}", ran.err);
    let puts = bucket.server.heard("PUT");
    let said: Vec<_> = puts.iter().map(|put| put.2.contains(CONDITION)).collect();
    assert_eq!(said, [true, false]);
}

#[test]
fn a_completion_whose_body_is_an_error_says_nothing_of_conditions() {
    let fault = |heard: &Heard, state: &mut State, stream: &mut TcpStream| {
        if !is_completion(heard) {
            return false;
        }
        let is_conditional = heard.2.contains(CONDITION);
        match is_conditional {
            true => refuse(stream, "501 Not Implemented", "NotImplemented"),
            // The first without it.
            false if state.faults == 1 => send(stream, "200 OK", "", INTERNAL),
            false => return false,
        }
        true
    };
    for (attempts, code, completions) in [("--retries=1", 4, 2), ("--retries=2", 0, 4)] {
        let bucket = Bucket::start(fault);
        let ran = send_new(&bucket, true, &["-v", attempts, "--no-journal"]);
        assert_eq!(ran.code, code, "{}", ran.err);
        assert_eq!(
            ran.err.contains("no If-None-Match"),
            code == 0,
            "{}",
            ran.err
        );
        let posts = bucket.server.heard("POST");
        let said: Vec<_> = posts
            .iter()
            .filter(|heard| is_completion(heard))
            .map(|heard| heard.2.contains(CONDITION))
            .collect();
        assert_eq!(said, [true, false, true, false][..completions]);
    }
}
