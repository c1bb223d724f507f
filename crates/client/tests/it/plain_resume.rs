//! Files of servers that have REST STREAM and no parts: what was cut is gone on with, in the same
//! command and in the next.

use std::{fs, path::PathBuf};

use crate::{
    fake::{Fake, Quirks},
    harness::{Ran, bytes, godwit, run, text, tree},
};

const LENGTH: usize = 3 << 20;
const CUT_AT: usize = 1 << 20;

/// As vsftpd has it.
const FEATURES: &[&str] = &["MDTM", "REST STREAM", "SIZE"];

fn cuts(cuts: usize) -> Quirks {
    Quirks {
        features: Some(FEATURES),
        replies: vec![("MLST", "500 what?"), ("MLSD", "500 what?")],
        cuts,
        cut_at: CUT_AT,
        ..Quirks::default()
    }
}

/// A server and a folder, and the same bytes at the source of a copy.
struct Copying {
    fake: Fake,
    here: tempfile::TempDir,
    get: bool,
}

impl Copying {
    fn new(get: bool, quirks: Quirks) -> Self {
        let copying = Self {
            fake: Fake::start(quirks),
            here: tempfile::tempdir().unwrap(),
            get,
        };
        copying.change_source(1);
        copying
    }

    fn at(&self, name: &str) -> PathBuf {
        self.here.path().join(name)
    }

    fn change_source(&self, seed: u64) {
        match self.get {
            true => self.fake.put("/f", &bytes(LENGTH, seed)),
            false => fs::write(self.at("f"), bytes(LENGTH, seed)).unwrap(),
        }
    }

    fn run(&self, retries: &str) -> Ran {
        let (there, here, copy) = (self.fake.url("/f"), self.at("f"), self.at("copy"));
        let to = self.fake.url("/copy");
        let ends = match self.get {
            true => [there.as_str(), text(&copy)],
            false => [text(&here), to.as_str()],
        };
        let flags = ["cp", "-v", "--retries", retries, "--retry-pause", "0.01"];
        let mut command = godwit(&[&flags[..], &ends].concat());
        command.env("XDG_STATE_HOME", self.at("state"));
        command.output().unwrap().into()
    }

    fn copied(&self) -> Vec<u8> {
        match self.get {
            true => fs::read(self.at("copy")).unwrap(),
            false => self.fake.get("/copy").unwrap(),
        }
    }

    fn is_clean(&self) -> bool {
        let names = [self.fake.names(), tree(self.here.path())].concat();
        !names.iter().any(|name| name.contains("godwit-"))
    }
}

#[test]
fn an_attempt_resumes_the_one_before() {
    for get in [true, false] {
        let copying = Copying::new(get, cuts(2));
        copying.run("5").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 1), "get: {get}");
        assert_eq!(copying.fake.moved(), LENGTH, "get: {get}: each byte once");
        assert!(copying.is_clean());
    }
}

#[test]
fn a_partial_file_without_a_leading_dot_is_resumed() {
    let quirks = Quirks {
        dots: Some("553 Prohibited file name"),
        ..cuts(1)
    };
    let copying = Copying::new(false, quirks);
    copying.run("1").expect(4, &["426 broken"]);
    let names = copying.fake.names();
    assert!(names[0].starts_with("/godwit-"), "{names:?}");
    copying.run("1").expect(0, &[]);
    assert_eq!(copying.copied(), bytes(LENGTH, 1));
    assert_eq!(copying.fake.moved(), LENGTH, "each byte once");
    assert!(copying.is_clean());
}

#[test]
fn a_refused_data_connection_keeps_the_partial_file() {
    for (get, verb) in [(true, "RETR"), (false, "STOR")] {
        let quirks = Quirks {
            nth: vec![(verb, 2, "425 Cannot open a data connection")],
            ..cuts(1)
        };
        let copying = Copying::new(get, quirks);
        copying.run("5").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 1), "get: {get}");
        assert_eq!(copying.fake.moved(), LENGTH, "get: {get}: each byte once");
        assert!(copying.is_clean());
    }
}

#[test]
fn the_next_command_resumes_the_failed_one() {
    for get in [true, false] {
        let copying = Copying::new(get, cuts(2));
        let words = ["the same command goes on"];
        copying.run("1").expect(4, &words);
        let ran = copying.run("1").expect(4, &words);
        assert!(ran.err.contains("1048576 bytes are there"), "{}", ran.err);
        copying.run("1").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 1), "get: {get}");
        assert_eq!(copying.fake.moved(), LENGTH, "get: {get}: each byte once");
        assert!(copying.is_clean());
    }
}

#[test]
fn a_source_that_has_changed_since_begins_at_its_first_byte() {
    for get in [true, false] {
        let copying = Copying::new(get, cuts(1));
        copying.run("1").expect(4, &[]);
        copying.change_source(2);
        copying.fake.change(|quirks| {
            quirks.replies.push(("MDTM", "213 20210101000000"));
        });
        copying.run("1").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 2), "get: {get}");
        assert_eq!(copying.fake.moved(), CUT_AT + LENGTH);
        assert!(copying.is_clean());
    }
}

#[test]
fn a_changed_source_restarts_at_its_first_byte() {
    let copying = Copying::new(true, cuts(1));
    copying.fake.change(|quirks| {
        let times = ["213 20210101000000", "213 20220101000000"];
        quirks.once = times.map(|time| ("MDTM", time)).to_vec();
    });
    copying.run("5").expect(0, &[]);
    assert_eq!(copying.copied(), bytes(LENGTH, 1));
    assert_eq!(copying.fake.moved(), CUT_AT + LENGTH);
}

#[test]
fn without_size_or_rest_every_attempt_restarts() {
    const ALL: &[&[&str]] = &[&["MDTM", "SIZE"], &["MDTM", "REST STREAM"]];
    for features in ALL {
        for get in [true, false] {
            let features = Some(*features);
            let copying = Copying::new(
                get,
                Quirks {
                    features,
                    ..cuts(1)
                },
            );
            copying.run("5").expect(0, &[]);
            assert_eq!(copying.copied(), bytes(LENGTH, 1));
            assert_eq!(copying.fake.moved(), CUT_AT + LENGTH);
        }
    }
}

#[test]
fn without_rest_a_put_appends_and_a_get_restarts() {
    for get in [true, false] {
        let mut quirks = cuts(1);
        quirks.replies.push(("REST", "502 no"));
        let copying = Copying::new(get, quirks);
        copying.run("5").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 1), "get: {get}");
        let twice = if get { CUT_AT } else { 0 };
        assert_eq!(copying.fake.moved(), twice + LENGTH);
        assert_eq!(copying.fake.heard("APPE"), usize::from(!get));
    }
}

#[test]
fn without_rest_and_append_a_put_restarts() {
    let mut quirks = cuts(1);
    quirks.replies.extend([
        ("REST", "502 no"),
        ("APPE", "550 Overwrite permission denied"),
    ]);
    let copying = Copying::new(false, quirks);
    copying.run("5").expect(0, &["no APPE"]);
    assert_eq!(copying.copied(), bytes(LENGTH, 1));
}

#[test]
fn a_server_that_passes_over_rest_spoils_nothing() {
    for get in [true, false] {
        let quirks = Quirks {
            passes_over_rest: true,
            ..cuts(1)
        };
        let copying = Copying::new(get, quirks);
        copying.run("5").expect(0, &[]);
        assert_eq!(copying.copied(), bytes(LENGTH, 1));
    }
}

#[test]
fn a_source_here_that_has_changed_meanwhile_is_not_continued() {
    let copying = Copying::new(false, cuts(1));
    copying.run("1").expect(4, &[]);
    // Of the same size and time, the file is another only for who reads it.
    let (file, old) = (copying.at("f"), fs::metadata(copying.at("f")).unwrap());
    fs::write(&file, bytes(LENGTH + 1, 2)).unwrap();
    let opened = fs::File::options().write(true).open(&file).unwrap();
    opened.set_modified(old.modified().unwrap()).unwrap();
    copying.run("1").expect(0, &[]);
    assert_eq!(copying.copied(), bytes(LENGTH + 1, 2));
}

#[test]
fn a_part_asked_for_by_the_user_is_fetched_as_before() {
    let copying = Copying::new(true, cuts(0));
    let copy = copying.at("part");
    let url = copying.fake.url("/f");
    run(&["cp", "--offset", "5", "--length", "7", &url, text(&copy)]).expect(0, &[]);
    assert_eq!(fs::read(copy).unwrap(), bytes(LENGTH, 1)[5..12]);
}
