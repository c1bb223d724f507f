//! The final name: what has it is never lost, whatever the server refuses and wherever the
//! connection breaks off.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tempfile::TempDir;

use crate::{
    fake::{Fake, Quirks},
    harness::{Ran, Served, bytes, run, text},
    interposed::interposed,
    many::assert_same,
};

const OLD: &[u8] = b"what was there";
const NEW: &[u8] = b"what comes now";

/// A server with a file `/f`, and what comes of a put over it.
fn put_over(quirks: Quirks, options: &[&str]) -> (Fake, Ran) {
    let fake = Fake::start(quirks);
    fake.put("/f", OLD);
    let here = TempDir::new().unwrap();
    let file = here.path().join("f");
    fs::write(&file, NEW).unwrap();
    let url = fake.url("/f");
    let mut arguments = vec!["cp", "--retry-pause", "0.01"];
    arguments.extend(options);
    arguments.extend([text(&file), url.as_str()]);
    let ran = run(&arguments);
    (fake, ran)
}

fn no_replace() -> Quirks {
    Quirks {
        features: Some(&["SIZE", "MLST type*;size*;"]),
        no_replace: true,
        ..Quirks::default()
    }
}

#[test]
fn where_rename_does_not_replace_the_old_file_is_moved_first() {
    let (fake, ran) = put_over(no_replace(), &[]);
    ran.expect(0, &[]);
    assert_eq!(fake.get("/f").unwrap(), NEW);
    assert_eq!(fake.names(), ["/f"]);
    let heard = fake.heard_all();
    let last = |verb| heard.iter().rposition(|v| v == verb);
    assert!(last("RNTO") < last("DELE"), "{heard:?}");
}

#[test]
fn a_failed_rename_restores_the_old_file_and_keeps_the_new() {
    // The first finds the name taken, the second takes the old file aside.
    let third = ("RNTO", 3, "550 Permission denied");
    let fourth = ("RNTO", 4, "550 Permission denied");
    for back in [true, false] {
        let (fake, ran) = put_over(
            Quirks {
                nth: if back {
                    vec![third]
                } else {
                    vec![third, fourth]
                },
                ..no_replace()
            },
            &[],
        );
        let names = fake.names();
        let part = names.iter().find(|name| name.ends_with(".part")).unwrap();
        assert_eq!(fake.get(part).unwrap(), NEW);
        assert!(
            ran.err.contains(part.trim_start_matches('/')),
            "{}",
            ran.err
        );
        assert!(matches!(ran.code, 3 | 4), "{}", ran.err);
        let old = match back {
            true => "/f",
            false => names.iter().find(|name| name.ends_with(".old")).unwrap(),
        };
        assert_eq!(fake.get(old).unwrap(), OLD);
        assert!(ran.err.contains(old.trim_start_matches('/')), "{}", ran.err);
    }
}

#[test]
fn a_lost_connection_leaves_one_of_both_files_and_the_error_names_it() {
    for attempts in ["1", "4"] {
        for (verb, most) in [("RNFR", 4), ("RNTO", 3), ("DELE", 1)] {
            for nth in 1..=most {
                for replaces in [true, false] {
                    let quirks = Quirks {
                        no_replace: !replaces,
                        hang_up_after: Some((verb, nth)),
                        ..no_replace()
                    };
                    let (fake, ran) = put_over(quirks, &["--retries", attempts]);
                    let shown = format!("{attempts} {verb} {nth} {replaces}: {}", ran.err);
                    let names = fake.names();
                    let holds =
                        |data: &[u8]| names.iter().find(|name| fake.get(name).unwrap() == data);
                    if ran.code == 0 {
                        assert_eq!(fake.get("/f").unwrap(), NEW, "{shown}");
                    } else {
                        let old = holds(OLD);
                        assert!(old.is_some() || fake.get("/f").unwrap() == NEW, "{shown}");
                        if let Some(old) = old.filter(|old| *old != "/f") {
                            let name = old.trim_start_matches('/');
                            assert!(ran.err.contains(name), "{names:?} {shown}");
                            assert!(holds(NEW).is_some(), "{names:?} {shown}");
                        }
                    }
                    if attempts == "4" {
                        assert_eq!(ran.code, 0, "{shown}");
                        assert_eq!(names, ["/f"], "{shown}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_rename_whose_answer_was_lost_is_not_a_failure() {
    for verb in ["RNTO", "RNFR"] {
        let fake = Fake::start(Quirks {
            hang_up_after: Some((verb, 1)),
            ..Quirks::default()
        });
        fake.put("/a", NEW);
        run(&["mv", &fake.url("/a"), &fake.url("/b")]).expect(0, &[]);
        assert_eq!(fake.names(), ["/b"]);
    }
}

#[test]
fn a_code_that_is_none_is_an_error_at_once() {
    let fake = Fake::start(Quirks {
        nth: (1..9).map(|nth| ("RNTO", nth, "999 Renamed")).collect(),
        ..Quirks::default()
    });
    fake.put("/a", NEW);
    let ran = run(&["mv", &fake.url("/a"), &fake.url("/b")]);
    ran.expect(4, &["reply code is none of 100 to 699"]);
    assert_eq!(fake.names(), ["/a"]);
}

#[test]
fn a_rename_whose_reply_was_lost_is_done() {
    let fake = Fake::start(Quirks {
        hang_up_after: Some(("DELE", 1)),
        ..Quirks::default()
    });
    fake.put("/a", NEW);
    run(&["rm", &fake.url("/a")]).expect(0, &[]);
    assert!(fake.names().is_empty());
    run(&["rm", &fake.url("/a")]).expect(4, &["no such file"]);
}

#[test]
fn small_files_whose_answers_are_lost_are_there_and_once() {
    // The answer that tells of the name, where the server compares and renames and where it is
    // asked to rename.
    for hidden in ["-", " COMMIT"] {
        for size in [1000, 3_000_000] {
            let served = Served::start();
            let losses = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&losses);
            let reply = move |line: String| {
                let is_lost =
                    line.starts_with("250 ") && counted.fetch_add(1, Ordering::Relaxed) == 5;
                match is_lost {
                    true => String::new(),
                    false => line.replace(hidden, "-"),
                }
            };
            let address = interposed(served.address, |line| line, reply);
            let here = TempDir::new().unwrap();
            let top = here.path().join("top");
            fs::create_dir(&top).unwrap();
            for i in 0..12 {
                fs::write(top.join(format!("f{i}")), bytes(size, i)).unwrap();
            }
            let url = format!("ftp://{address}/to");
            let ran = run(&["cp", "-r", "-c", "1", "-vv", text(&top), &url]);
            let ran = ran.expect(0, &[]);
            assert!(losses.load(Ordering::Relaxed) > 6, "{}", ran.err);
            assert_same(&top, &served.path("to"));
            assert_eq!(ran.err.contains("COMMIT"), hidden == "-", "{}", ran.err);
        }
    }
}
