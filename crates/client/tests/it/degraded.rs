//! Servers that lack, refuse and break things: the client degrades, says what it lost, never hangs
//! and never claims what is not so.

use std::fs;

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, bytes, run, run_with, text, tree},
};

/// Copies a file there and back and expects both to be right.
fn round_trip(quirks: Quirks, words: &[&str]) -> Fake {
    let fake = Fake::start(quirks);
    let here = tempfile::tempdir().unwrap();
    let data = bytes(300_000, 3);
    let (file, back) = (here.path().join("f"), here.path().join("back"));
    fs::write(&file, &data).unwrap();
    let put = run_with("cp -v --stall-timeout 5", &[text(&file), &fake.url("/d/f")]);
    let get = run_with("cp -v --stall-timeout 5", &[&fake.url("/d/f"), text(&back)]);
    let (put, get) = (put.expect(0, &[]), get.expect(0, &[]));
    let said = format!("{}{}", put.err, get.err);
    for word in words {
        assert!(said.contains(word), "no {word:?} in: {said}");
    }
    assert_eq!(fake.get("/d/f").unwrap(), data);
    assert_eq!(fs::read(&back).unwrap(), data);
    assert_eq!(fake.names(), ["/d/f"]);
    assert_eq!(tree(here.path()), ["back", "f"]);
    fake
}

#[test]
fn a_server_without_features_still_copies() {
    round_trip(
        Quirks::default(),
        &["no PARALLEL", "no CKSM", "not verified"],
    );
}

#[test]
fn each_command_may_be_missing() {
    const NO: &str = "500 Command not supported";
    for (verb, words) in [
        ("SIZE", &[][..]),
        ("MLST", &["no MLST"][..]),
        ("ALLO", &["no ALLO"]),
        ("SITE", &[]),
        ("MODE", &[]),
    ] {
        let quirks = Quirks::default().replies(&[(verb, NO)]);
        round_trip(quirks, words);
    }
    let nothing = Quirks {
        replies: ["SIZE", "MLST", "MLSD", "ALLO", "CWD"]
            .map(|v| (v, NO))
            .to_vec(),
        ..Quirks::default()
    };
    let fake = Fake::start(nothing);
    fake.put("/f", b"content");
    let here = tempfile::tempdir().unwrap();
    let ran = run(&["cp", "-v", &fake.url("/f"), text(&here.path().join("f"))]);
    ran.expect(0, &["no MLST", "no SIZE"]);
    assert_eq!(fs::read(here.path().join("f")).unwrap(), b"content");
}

#[test]
fn without_rename_files_are_written_in_place() {
    let quirks = Quirks::default().replies(&[("RNFR", "502 no")]);
    let fake = round_trip(quirks, &["no RNFR"]);
    assert_eq!((fake.heard("RNTO"), fake.heard("RNFR")), (0, 1));
}

#[test]
fn a_server_that_refuses_port_is_read_in_stream_mode() {
    let quirks = Quirks::default()
        .features(&["PARALLEL", "SIZE", "MLST Type*;Size*;"])
        .replies(&[("PORT", "553 Active data transfer is disabled")]);
    let fake = Fake::start(quirks);
    fake.put("/f", b"content");
    let here = tempfile::tempdir().unwrap();
    let ran = run(&["cp", "-v", &fake.url("/f"), text(&here.path().join("f"))]);
    ran.expect(0, &["no PORT", "MODE S"]);
    assert_eq!(fs::read(here.path().join("f")).unwrap(), b"content");
}

#[test]
fn a_refused_mode_e_falls_back_to_mode_s() {
    let quirks = Quirks {
        features: Some(&["PARALLEL"]),
        replies: vec![("MODE", "504 no")],
        once: vec![],
        ..Quirks::default()
    };
    // MODE S is refused as well: nothing is left, and that is said.
    let fake = Fake::start(quirks);
    fake.put("/f", b"content");
    run(&["cp", "-v", &fake.url("/f"), "/dev/null"]).expect(4, &["no MODE E", "504"]);
    let quirks = Quirks {
        features: Some(&["PARALLEL"]),
        once: vec![("MODE", "504 no")],
        ..Quirks::default()
    };
    round_trip(quirks, &["no MODE E"]);
}

#[test]
fn early_150_stray_lines_and_a_cut_upload_are_survived() {
    // 150 before the data connection, two answers to a broken transfer, lines that are no replies.
    let quirks = Quirks {
        features: Some(&["AUTH", "ERET", "SIZE", "MDTM", "MLSD", "MLST"]),
        early_150: true,
        stray_lines: true,
        cuts: 1,
        cut_at: 1000,
        replies: vec![("RNFR", "500 no"), ("SITE", "500 no")],
        ..Quirks::default()
    };
    let fake = round_trip(quirks, &["again", "426 broken"]);
    assert_eq!(fake.heard("STOR"), 2);
}

#[test]
fn cut_downloads_are_retried_and_resumed_with_rest() {
    for features in [&["SIZE", "MLST"][..], &["SIZE", "MLST", "REST STREAM"]] {
        let fake = Fake::start(Quirks {
            features: Some(features),
            cuts: 2,
            cut_at: 70_000,
            ..Quirks::default()
        });
        let data = bytes(200_000, 8);
        fake.put("/f", &data);
        let here = tempfile::tempdir().unwrap();
        let back = here.path().join("back");
        let log = here.path().join("log");
        run(&["cp", "--events", text(&log), &fake.url("/f"), text(&back)]).expect(0, &[]);
        assert_eq!(fs::read(&back).unwrap(), data);
        let events = fs::read_to_string(&log).unwrap();
        assert_eq!(events.matches("\"retry\"").count(), 2, "{events}");
        assert_eq!(tree(here.path()), ["back", "log"]);
    }
}

/// More than the kernel buffers without a reader: the server notices that the client goes.
const LONG: usize = 32 << 20;

#[test]
fn a_part_is_cut_out_of_a_stream_where_there_is_no_eret() {
    let fake = Fake::start(Quirks::default().features(&["SIZE", "MLST", "REST STREAM"]));
    let data = bytes(LONG, 8);
    fake.put("/f", &data);
    let url = fake.url("/f");
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    for (offset, length) in [(0, 0), (0, 70_000), (70_001, 1), (70_001, LONG - 70_001)] {
        let (from, count) = (offset.to_string(), length.to_string());
        let part = ["cp", "--offset", &from, "--length", &count];
        run(&[&part[..], &[&url, text(&back)]].concat()).expect(0, &[]);
        let wanted = &data[offset..offset + length];
        assert!(fs::read(&back).unwrap() == wanted, "{offset} {length}");
        let ran = run(&[&part[..], &[&url, "-"]].concat()).expect(0, &[]);
        assert!(ran.out == wanted, "{offset} {length}");
        fs::remove_file(&back).unwrap();
    }
    // A server that cuts it before is no success.
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST", "REST STREAM"]),
        cuts: usize::MAX,
        cut_at: 10,
        ..Quirks::default()
    });
    fake.put("/f", &data);
    let ran = run_with(
        "cp --offset 100 --length 1000 --retries 1",
        &[&fake.url("/f"), text(&back)],
    );
    ran.expect(4, &["426 broken"]);
    assert!(!back.exists());
}

#[test]
fn a_part_needs_eret_or_rest() {
    let fake = Fake::start(Quirks::default().features(&["SIZE", "MLST"]));
    fake.put("/f", &bytes(5000, 8));
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    let get = |offset| {
        let part = ["cp", "--offset", offset, "--length", "10"];
        run(&[&part[..], &[&fake.url("/f"), text(&back)]].concat())
    };
    get("1").expect(4, &["no ERET and no REST STREAM"]);
    get("0").expect(0, &[]);
    assert_eq!(fs::read(&back).unwrap(), bytes(5000, 8)[..10]);
}

#[test]
fn without_mlsd_facts_come_from_a_long_listing() {
    const NO: &str = "500 Command not supported";
    let lacks = |verbs: &[&'static str]| Quirks {
        replies: verbs.iter().map(|verb| (*verb, NO)).collect(),
        ..Quirks::default()
    };
    let fake = Fake::start(lacks(&["MLSD", "MLST"]));
    fake.put("/d/f", b"12345");
    fake.put("/d/below/g", b"");
    let file = "-?????????   1 ? ?            5 Feb 29  2020 f\n";
    let folder = "d?????????   1 ? ?            ?            ? below";
    let list = |options: &[&str], path| {
        let ran = run(&[&["ls"], options, &[&fake.url(path)]].concat());
        String::from_utf8(ran.expect(0, &[]).out).unwrap()
    };
    assert_eq!(list(&["-l"], "/d/"), format!("{folder}\n{file}"));
    assert_eq!(list(&["-l"], "/d/f"), file);
    assert_eq!(list(&["-F"], "/d"), "below/\nf\n");
    // Where nothing tells, nothing is made up.
    let fake = Fake::start(lacks(&["MLSD", "MLST", "SIZE", "MDTM", "CWD"]));
    fake.put("/d/f", b"12345");
    let ran = run(&["ls", "-l", &fake.url("/d/")]).expect(0, &[]);
    let nothing = b"??????????   1 ? ?            ?            ? f\n";
    assert_eq!(ran.out, nothing);
}

#[test]
fn refused_opts_are_reported() {
    let quirks = Quirks::default()
        .features(&["PARALLEL"])
        .replies(&[("OPTS", "501 no")]);
    let fake = Fake::start(quirks);
    fake.put("/f", b"content");
    let ran = run_with("cp -v -p 3 --retries 1", &[&fake.url("/f"), "/dev/null"]);
    let said = "refused OPTS RETR Parallelism=3,3,3; and goes on as before: 501 no";
    assert!(ran.err.contains(said), "{}", ran.err);
}

#[test]
fn exhausted_attempts_leave_nothing() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST"]),
        cuts: usize::MAX,
        cut_at: 10,
        ..Quirks::default()
    });
    fake.put("/f", &bytes(5000, 1));
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("mine");
    run_with(
        "cp --retries 2",
        &[&fake.url("/f"), text(&here.path().join("back"))],
    )
    .expect(4, &[&fake.url("/f"), "426 broken"]);
    assert_eq!(tree(here.path()), Vec::<String>::new());
    fs::write(&file, bytes(5000, 2)).unwrap();
    run(&["cp", "--retries", "2", text(&file), &fake.url("/up")]).expect(4, &["put", "/up"]);
    assert_eq!(fake.names(), ["/f"]);
}

#[test]
fn a_226_for_a_short_file_is_a_failure() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST"]),
        cuts: usize::MAX,
        cut_at: 10,
        lies: true,
        ..Quirks::default()
    });
    fake.put("/f", &bytes(5000, 1));
    let here = tempfile::tempdir().unwrap();
    run_with(
        "cp --retries 1",
        &[&fake.url("/f"), text(&here.path().join("back"))],
    )
    .expect(4, &["10 bytes arrived, 5000 were expected"]);
    assert_eq!(tree(here.path()), Vec::<String>::new());
    let file = here.path().join("mine");
    fs::write(&file, bytes(3_000_000, 2)).unwrap();
    run(&["cp", "--retries", "1", text(&file), &fake.url("/up")]).expect(4, &["/up"]);
    assert_eq!(fake.names(), ["/f"]);
}

#[test]
fn a_confirmed_file_that_is_missing_is_sent_again() {
    let from = Served::start();
    fs::write(from.path("f"), "content").unwrap();
    let local = from.path("f");
    for source in [text(&local), &from.url("/f")] {
        let fake = Fake::start(Quirks {
            features: Some(&["SIZE", "MLST"]),
            cuts: 1,
            lies: true,
            ..Quirks::default()
        });
        run(&["cp", source, &fake.url("/g")]).expect(0, &[]);
        assert_eq!(fake.get("/g").unwrap(), b"content", "{source}");
        assert!(fake.heard("STOR") >= 2);
    }
}

#[test]
fn a_server_whose_data_connections_never_work_is_given_up() {
    let fake = Fake::start(
        Quirks::default()
            .features(&["SIZE", "MLST"])
            .replies(&[("PASV", "425 Can't open passive connection.")]),
    );
    let here = tempfile::tempdir().unwrap();
    for i in 0..10 {
        fs::write(here.path().join(format!("f{i}")), "content").unwrap();
    }
    let words = [
        "cp",
        "-r",
        "-c",
        "1",
        "--retries",
        "2",
        "--retry-pause",
        "0.01",
    ];
    let ends = [text(here.path()), &fake.url("/up")];
    let said = "no data connection worked for 3 transfers in a row";
    let ran = run(&[&words[..], &ends].concat()).expect(4, &[said]);
    assert!(ran.err.contains("10 failed"), "{}", ran.err);
    assert_eq!(fake.heard("STOR"), 0);
    assert!(fake.heard("PASV") <= 6, "{}", fake.heard("PASV"));
    assert_eq!(fake.names(), Vec::<String>::new());
}

#[test]
fn checksums_that_differ_name_both_and_leave_nothing() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST", "CKSM ADLER32:1"]),
        checksum: Some("deadbeef"),
        ..Quirks::default()
    });
    fake.put("/f", b"Wikipedia");
    let here = tempfile::tempdir().unwrap();
    let back = here.path().join("back");
    let words = ["ADLER32 differs", "here 11e60398", "at the server deadbeef"];
    run(&["cp", &fake.url("/f"), text(&back)]).expect(4, &words);
    assert_eq!(tree(here.path()), Vec::<String>::new());
    fs::write(&back, b"Wikipedia").unwrap();
    run(&["cp", text(&back), &fake.url("/up")]).expect(4, &words);
    assert_eq!(fake.names(), ["/f"]);
    run(&["cp", "--no-verify", &fake.url("/f"), text(&back)]).expect(0, &[]);
    run(&["cp", "--verify=md5", &fake.url("/f"), text(&back)]).expect(4, &["no CKSM MD5"]);
}

#[test]
fn names_that_lead_out_are_refused_and_the_rest_is_copied() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST"]),
        listing: Some(b"Type=file;Size=2; ok\r\nType=file;Size=2; ../evil\r\nType=dir; ..\r\n"),
        ..Quirks::default()
    });
    fake.put("/d/ok", b"ok");
    fake.put("/evil", b"no");
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    run(&["cp", "-r", &fake.url("/d"), text(&to)])
        .expect(1, &["refused the name \"../evil\"", "it holds a slash"]);
    assert_eq!(tree(here.path()), ["to/", "to/ok"]);
}

#[test]
fn directories_without_mlsd_are_listed_by_names() {
    let fake = Fake::start(Quirks {
        replies: ["MLSD", "MLST"].map(|v| (v, "500 no")).to_vec(),
        ..Quirks::default()
    });
    for (name, data) in [("/d/a", "1"), ("/d/s/b", "22"), ("/d/s/t/c", "333")] {
        fake.put(name, data.as_bytes());
    }
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("to");
    run(&["cp", "-v", "-r", &fake.url("/d"), text(&to)]).expect(0, &["no MLSD", "3 files"]);
    assert_eq!(tree(&to), ["a", "s/", "s/b", "s/t/", "s/t/c"]);
}

#[test]
fn silence_and_sudden_ends_are_failures_and_not_hangs() {
    for (quirks, words) in [
        (Quirks::default().mute("RETR"), &[][..]),
        (Quirks::default().mute("PASV"), &["no reply to PASV"]),
        (Quirks::default().mute("TYPE"), &["no reply to TYPE"]),
        (
            Quirks::default().hang_up("RETR"),
            &["closed the control connection"],
        ),
        (
            Quirks::default().hang_up("PASS"),
            &["closed the control connection"],
        ),
        (
            Quirks {
                greeting: Some("421 Too many users"),
                ..Quirks::default()
            },
            &["421 Too many users"],
        ),
    ] {
        let fake = Fake::start(quirks);
        fake.put("/f", b"x");
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("f");
        let get = [
            "cp",
            "--retries",
            "1",
            "--stall-timeout",
            "1",
            &fake.url("/f"),
            text(&file),
        ];
        run(&get).expect(4, words);
        assert_eq!(tree(here.path()), Vec::<String>::new());
    }
}

#[test]
fn a_421_in_the_middle_is_transient() {
    let quirks = Quirks {
        once: vec![
            ("RETR", "421 Service not available"),
            ("STOR", "421 Idle Timeout"),
        ],
        ..Quirks::default()
    };
    let fake = round_trip(quirks, &["again"]);
    assert_eq!(fake.heard("USER"), 4);
}

#[test]
fn a_server_that_demands_gsi_is_3_and_says_so() {
    let fake = Fake::start(
        Quirks::default().replies(&[("USER", "530 Must perform GSSAPI authentication")]),
    );
    run(&["cp", &fake.url("/f"), "/dev/null"]).expect(
        3,
        &["demands a grid identity: use gsiftp:// instead of ftp://"],
    );
}

#[test]
fn refusals_are_3() {
    let fake = Fake::start(Quirks::default().replies(&[("STOR", "550 Permission denied")]));
    let here = tempfile::tempdir().unwrap();
    let file = here.path().join("f");
    fs::write(&file, "x").unwrap();
    run(&["cp", text(&file), &fake.url("/up")])
        .expect(3, &["/up", "permission denied", "550 Permission denied"]);
    assert_eq!(fake.heard("STOR"), 1);
}

#[test]
fn refused_sessions_leave_their_work_to_the_others() {
    let fake = Fake::start(Quirks {
        sessions_max: Some(2),
        ..Quirks::default()
    });
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    for i in 0..20 {
        fs::write(top.join(i.to_string()), bytes(1000, i)).unwrap();
    }
    run(&["cp", "-r", "-c", "6", text(&top), &fake.url("/d/")]).expect(0, &["20 files"]);
    assert_eq!(fake.names().len(), 20);
}

/// The event log of a copy of twenty files over several sessions.
fn events_of_a_copy(fake: &Fake, sessions: &str) -> String {
    let here = tempfile::tempdir().unwrap();
    let (top, log) = (here.path().join("top"), here.path().join("log"));
    fs::create_dir(&top).unwrap();
    for i in 0..20 {
        fs::write(top.join(i.to_string()), bytes(1000, i)).unwrap();
    }
    let options = ["cp", "-r", "-c", sessions, "--events", text(&log)];
    let up = fake.url("/d/");
    run(&[&options[..], &[text(&top), &up]].concat()).expect(0, &[]);
    assert_eq!(fake.names().len(), 20);
    fs::read_to_string(&log).unwrap()
}

#[test]
fn the_second_refusal_limits_sessions_and_names_the_server() {
    let once = Fake::start(Quirks {
        // The second session is one opened ahead, whose refusal counts for nothing.
        nth: vec![("USER", 3, "421 Too many connections")],
        ..Quirks::default()
    });
    let events = events_of_a_copy(&once, "3");
    assert!(!events.contains("lets no further session in"), "{events}");
    let often = Fake::start(Quirks {
        sessions_max: Some(2),
        ..Quirks::default()
    });
    let events = events_of_a_copy(&often, "6");
    let limited = format!("{}: the server lets no further session in", often.address);
    assert!(events.contains(&limited), "{events}");
}

#[test]
fn with_one_session_each_worker_finishes_its_own_files() {
    let fake = Fake::start(Quirks {
        sessions_max: Some(1),
        ..Quirks::default()
    });
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    for i in 0..4 {
        fs::write(top.join(i.to_string()), bytes(17 << 20, i)).unwrap();
    }
    let up = fake.url("/d/");
    run_with("cp -r -c 1 -p 1", &[text(&top), &up]).expect(0, &["4 files"]);
    assert_eq!(fake.names().len(), 4);
}

#[test]
fn refused_temporary_names_are_replaced_by_visible_then_final_names() {
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    for i in 0..9 {
        fs::write(top.join(i.to_string()), bytes(1000, i)).unwrap();
    }
    for (prefix, said, renames) in [
        ("/d/top/.", "refuses names with a leading dot", true),
        ("/d/top/.|/d/top/godwit-", "refuses temporary names", false),
    ] {
        let fake = Fake::start(Quirks {
            refused_names: Some(prefix),
            ..Quirks::default()
        });
        let up = fake.url("/d/");
        run(&["cp", "-r", "-v", text(&top), &up]).expect(0, &[said]);
        let names: Vec<_> = (0..9).map(|i| format!("/d/top/{i}")).collect();
        assert_eq!(fake.names(), names);
        assert_eq!(fake.heard("RNTO") == 9, renames);
    }
}

#[test]
fn secrets_are_masked_in_the_dialogue() {
    let fake = Fake::start(Quirks::default());
    fake.put("/f", b"x");
    let url = format!("ftp://me:s3cret@{}/f", fake.address);
    let ran = run(&["cp", "-vv", &url, "/dev/null"]).expect(0, &["-> USER me", "-> PASS ***"]);
    assert!(!ran.err.contains("s3cret"), "{}", ran.err);
}

#[test]
fn all_bytes_and_a_failure_is_a_failure() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE", "MLST", "ERET", "REST STREAM"]),
        cuts: usize::MAX,
        // Nothing is missing, and the server says 426 all the same.
        cut_at: 5000,
        whole_cuts: true,
        ..Quirks::default()
    });
    fake.put("/f", &bytes(5000, 1));
    let here = tempfile::tempdir().unwrap();
    run_with(
        "cp --retries 3",
        &[&fake.url("/f"), text(&here.path().join("back"))],
    )
    .expect(4, &["426 broken"]);
    assert_eq!(fake.heard("RETR"), 3);
    assert_eq!(tree(here.path()), Vec::<String>::new());
}

#[test]
fn standard_input_is_sent_once() {
    let fake = Fake::start(Quirks {
        cuts: usize::MAX,
        cut_at: 10,
        ..Quirks::default()
    });
    let ran = crate::harness::run_with_input(&["cp", "-", &fake.url("/up")], &bytes(500_000, 1));
    ran.expect(4, &["put", "/up"]);
    assert_eq!((fake.heard("STOR"), fake.names().len()), (1, 0));
}
