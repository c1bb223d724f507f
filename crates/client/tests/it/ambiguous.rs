//! Servers whose refusals do not tell whether a file is missing or may not be looked at.

use std::fs;

use crate::{
    fake::{Fake, Quirks},
    harness::{bytes, run, text},
};

/// As vsftpd answers, without MLST and with nothing but this for each file.
fn like_vsftpd() -> Quirks {
    Quirks {
        replies: vec![
            ("MLST", "500 Unknown command."),
            ("MLSD", "500 Unknown command."),
            ("SIZE", "550 Could not get file size."),
        ],
        long: true,
        options: true,
        ..Quirks::default()
    }
}

/// MLST refuses everything in words that may mean anything.
fn like_filezilla() -> Quirks {
    Quirks::default().replies(&[("MLST", "550 Couldn't open the file")])
}

const SERVERS: [fn() -> Quirks; 2] = [like_vsftpd, like_filezilla];

#[test]
fn a_file_whose_directory_lists_it_is_copied() {
    for quirks in SERVERS {
        let fake = Fake::start(quirks());
        let here = tempfile::tempdir().unwrap();
        let (data, back) = (bytes(1000, 3), here.path().join("back"));
        fake.put("/d/f", &data);
        run(&["cp", &fake.url("/d/f"), text(&back)]).expect(0, &[]);
        assert_eq!(fs::read(&back).unwrap(), data);
    }
}

#[test]
fn unlisted_names_are_missing() {
    for quirks in SERVERS {
        let fake = Fake::start(quirks());
        let here = tempfile::tempdir().unwrap();
        fake.put("/d/f", b"x");
        for path in ["/d/g", "/none/g"] {
            let url = fake.url(path);
            let words = [&*url, "no such file or directory"];
            run(&["cp", &url, text(&here.path().join("back"))]).expect(4, &words);
            run(&["stat", &url]).expect(4, &words);
        }
    }
}

#[test]
fn a_destination_that_is_missing_is_made() {
    for quirks in SERVERS {
        let fake = Fake::start(quirks());
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("f");
        fs::write(&file, b"new").unwrap();
        fake.put("/d/f", b"x");
        run(&["cp", text(&file), &fake.url("/d/new/")]).expect(0, &[]);
        assert_eq!(fake.heard("MKD"), 1);
        assert_eq!(fake.get("/d/new/f").unwrap(), b"new");
    }
}

#[test]
fn a_directory_that_may_not_be_entered_is_not_missing() {
    let quirks = Quirks {
        nth: vec![("CWD", 1, "550 Failed to change directory.")],
        ..like_vsftpd()
    };
    for (quirks, words) in [
        (quirks, "550 Could not get file size."),
        (like_filezilla(), "550 Couldn't open the file"),
    ] {
        let fake = Fake::start(quirks);
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("f");
        fs::write(&file, b"new").unwrap();
        fake.put("/d/f", b"x");
        let url = fake.url("/d/");
        let done = run(&["cp", text(&file), &url]).expect(4, &[words, "/d"]);
        assert!(!done.err.contains("no such file"), "{}", done.err);
        assert_eq!((fake.heard("MKD"), fake.heard("STOR")), (0, 0));
        assert_eq!(fake.get("/d/f").unwrap(), b"x");
    }
}

#[test]
fn where_nothing_can_be_listed_a_put_is_tried() {
    for quirks in SERVERS {
        let mut quirks = quirks();
        for verb in ["LIST", "NLST", "MLSD"] {
            quirks.replies.retain(|(of, _)| *of != verb);
            quirks.replies.push((verb, "550 Permission denied."));
        }
        let fake = Fake::start(quirks);
        let here = tempfile::tempdir().unwrap();
        let file = here.path().join("f");
        fs::write(&file, b"new").unwrap();
        fake.put("/d/x", b"x");
        run(&["cp", text(&file), &fake.url("/d/f")]).expect(0, &[]);
        assert_eq!(fake.get("/d/f").unwrap(), b"new");
        run(&["cp", text(&file), &fake.url("/d/new/")]).expect(0, &[]);
        assert_eq!(fake.get("/d/new/f").unwrap(), b"new");
    }
}

#[test]
fn a_removal_whose_reply_was_lost_is_no_failure() {
    // Behind the command that was done the server says what vsftpd says of whatever it refuses.
    let fake = Fake::start(Quirks {
        hang_up_after: Some(("DELE", 1)),
        nth: vec![("DELE", 2, "550 Delete operation failed.")],
        features: Some(&["SIZE", "MLST"]),
        ..Quirks::default()
    });
    let here = tempfile::tempdir().unwrap();
    fs::write(here.path().join("f"), b"new").unwrap();
    fake.put("/d/old", b"x");
    let (source, directory) = (format!("{}/", here.path().display()), fake.url("/d/"));
    let words = ["sync", "--delete", "-c", "1", "--retry-pause", "0.01"];
    let ends = [&source[..], &directory];
    run(&[&words[..], &ends].concat()).expect(0, &["1 removed"]);
    assert_eq!(
        (fake.heard("DELE"), fake.names()),
        (2, vec!["/d/f".to_owned()])
    );
}
