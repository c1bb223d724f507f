//! Times and permissions that copies have of their sources, and servers that refuse some.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, bytes, run, text},
};

#[test]
fn a_time_that_is_refused_is_that_of_one_file() {
    const FEATURES: &[&str] = &["MFMT", "SIZE", "MLST type*;size*;modify*;"];
    // The directory is asked for too.
    for (refusal, asked, words) in [
        ("550 /d/f0: not yours", 4, "did not set its time"),
        ("501 bad time", 4, "did not set its time"),
        ("504 not here", 1, "refuses to set times"),
    ] {
        let fake = Fake::start(Quirks {
            features: Some(FEATURES),
            once: vec![("MFMT", refusal)],
            ..Quirks::default()
        });
        let here = tempfile::tempdir().unwrap();
        for name in ["f0", "f1", "f2"] {
            fs::write(here.path().join(name), name).unwrap();
        }
        let top = format!("{}/", text(here.path()));
        let ran = run(&["sync", "-c", "1", &top, &fake.url("/d/")]).expect(0, &[words]);
        assert_eq!(fake.heard("MFMT"), asked, "{refusal}: {}", ran.err);
        assert_eq!(fake.names().len(), 3);
        if asked == 4 {
            assert_eq!(ran.err.matches(words).count(), 1, "{}", ran.err);
            assert!(!ran.err.contains(".godwit-"), "{}", ran.err);
        }
    }
}

/// A tree with times and permissions that no copy has by itself. Its names below `top`.
fn write_tree(top: &Path) -> Vec<&'static str> {
    fs::create_dir_all(top.join("dir/empty")).unwrap();
    fs::write(top.join("small"), "small").unwrap();
    fs::write(top.join("dir/large"), bytes(3_000_000, 1)).unwrap();
    // From the inside out: the last of them cannot be written to.
    let all = [
        ("small", 0o604, 1_400_000_000),
        ("dir/large", 0o4750, 1_400_000_001),
        ("dir/empty", 0o1777, 1_400_000_002),
        ("dir", 0o555, 1_400_000_003),
        ("", 0o705, 1_400_000_004),
    ];
    for (name, mode, seconds) in all {
        let path = top.join(name);
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        File::open(&path).unwrap().set_modified(time).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
    }
    all.map(|(name, ..)| name).to_vec()
}

/// Sources and destinations for each way: up, down, from server to server.
fn each_way(test: impl Fn(&Path, &str, &Path, &str)) {
    let (one, other) = (Served::start(), Served::start());
    let here = tempfile::tempdir().unwrap();
    let (up, down) = (here.path().join("up"), here.path().join("down"));
    test(&up, text(&up), &one.path("up"), &one.url("/up"));
    test(&one.path("up"), &one.url("/up"), &down, text(&down));
    test(
        &one.path("a"),
        &one.url("/a"),
        &other.path("b"),
        &other.url("/b"),
    );
}

#[test]
fn preserved_times_and_modes_are_those_of_files_and_directories() {
    each_way(|from, source, to, target| {
        let names = write_tree(from);
        let same = |name: &str| {
            let of = |top: &Path| fs::metadata(top.join(name)).unwrap();
            let (one, two) = (of(from), of(to));
            let modes = [one.mode(), two.mode()].map(|mode| mode & 0o1777);
            (one.mtime() == two.mtime(), modes[0] == modes[1])
        };
        let cases = [
            ("--preserve", (true, true)),
            ("--preserve=times", (true, false)),
            ("--preserve=mode", (false, true)),
        ];
        for (flag, wanted) in cases {
            if to.exists() {
                fs::set_permissions(to.join("dir"), Permissions::from_mode(0o755)).unwrap();
                fs::remove_dir_all(to).unwrap();
            }
            run(&["cp", "-r", "-c", "2", flag, source, target]).expect(0, &["2 files"]);
            for name in &names {
                assert_eq!(same(name), wanted, "{flag} {name:?} {target}");
            }
        }
        let mode = fs::metadata(to.join("dir/large")).unwrap().mode() & 0o7777;
        assert_eq!(mode, 0o750, "no file runs as its owner");
        for top in [from, to] {
            fs::set_permissions(top.join("dir"), Permissions::from_mode(0o755)).unwrap();
        }
    });
}

#[test]
fn attributes_that_a_server_cannot_preserve_are_reported_once() {
    const TIMES: &[&str] = &["MFMT", "SIZE", "MLST type*;size*;modify*;"];
    const NO_TIMES: &[&str] = &["SIZE", "MLST type*;size*;modify*;"];
    for (features, refusal, words) in [
        (NO_TIMES, None, "has no MFMT to set times with"),
        (TIMES, Some(("MFMT", "500 what?")), "refuses to set times"),
    ] {
        let fake = Fake::start(Quirks {
            features: Some(features),
            replies: refusal.into_iter().collect(),
            ..Quirks::default()
        });
        let here = tempfile::tempdir().unwrap();
        for name in ["f0", "d/f1", "e/f2"] {
            let path = here.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let top = format!("{}/", text(here.path()));
        let arguments = [
            "cp",
            "-r",
            "-c",
            "1",
            "--preserve=times",
            &top,
            &fake.url("/d/"),
        ];
        let ran = run(&arguments).expect(0, &["3 files", words]);
        assert_eq!(ran.err.matches(words).count(), 1, "{}", ran.err);
        assert_eq!(fake.names().len(), 3);
    }
}

#[test]
fn directories_with_refused_times_are_reported_together() {
    let fake = Fake::start(
        Quirks::default()
            .features(&["MFMT", "SIZE", "MLST type*;size*;modify*;"])
            .replies(&[("MFMT", "550 no file")]),
    );
    let here = tempfile::tempdir().unwrap();
    for name in ["a", "b", "c"] {
        fs::create_dir(here.path().join(name)).unwrap();
    }
    let top = format!("{}/", text(here.path()));
    let words = "the times or permissions of 4 directories were not set";
    let arguments = ["cp", "-r", "--preserve=times", &top, &fake.url("/d/")];
    let ran = run(&arguments).expect(0, &[words, "550 no file"]);
    assert_eq!(ran.err.matches("550").count(), 1, "{}", ran.err);
}

#[test]
fn preserve_needs_whole_files_at_both_ends() {
    for (words, expected) in [
        (&["--preserve", "-", "ftp://h/f"][..], "- is none"),
        (&["--preserve", "ftp://h/f", "-"], "- is none"),
        (
            &["--preserve=times", "--length", "1", "f", "ftp://h/f"],
            "whole files",
        ),
        (
            &["--preserve=owner", "f", "ftp://h/f"],
            "wanted times, mode",
        ),
    ] {
        run(&[&["cp"], words].concat()).expect(2, &[expected]);
    }
}
