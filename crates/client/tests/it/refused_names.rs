//! Servers that refuse temporary names, or to rename: another name is found once, and reported.

use std::{fs, net::SocketAddr, path::PathBuf};

use tempfile::TempDir;

use crate::{
    fake::{Fake, Quirks},
    harness::{Ran, Served, bytes, run, run_with_input, text, tree},
    interposed::interposed,
    many::assert_same,
};

/// As Pure-FTPd, vsftpd and ProFTPD refuse a dot.
const REFUSALS: [&str; 3] = [
    "553 Prohibited file name",
    "550 Permission denied.",
    "550 Forbidden filename",
];
/// As ProFTPD refuses one that is hidden: no look tells it from another.
const HIDDEN: &str = "550 No such file";
const NO_DOTS: &str = "refuses names with a leading dot";
const IN_PLACE: &str = "written under their final names at once";

fn dots(refusal: &'static str) -> Quirks {
    Quirks {
        features: Some(&["SIZE"]),
        dots: Some(refusal),
        ..Quirks::default()
    }
}

fn no_renames(refusal: &'static str) -> Quirks {
    Quirks::default()
        .features(&["SIZE"])
        .replies(&[("RNFR", refusal)])
}

/// Nine files in a folder `top`.
fn nine() -> (TempDir, PathBuf) {
    let here = tempfile::tempdir().unwrap();
    let top = here.path().join("top");
    fs::create_dir(&top).unwrap();
    for i in 0..9 {
        fs::write(top.join(i.to_string()), bytes(1000, i)).unwrap();
    }
    (here, top)
}

fn put_nine(fake: &Fake) -> Ran {
    let (_here, top) = nine();
    run(&["cp", "-r", "-v", "-c", "1", text(&top), &fake.url("/d/")])
}

fn assert_has_nine(fake: &Fake) {
    let names: Vec<_> = (0..9).map(|i| format!("/d/top/{i}")).collect();
    assert_eq!(fake.names(), names);
    for (i, name) in names.iter().enumerate() {
        assert_eq!(fake.get(name).unwrap(), bytes(1000, i as u64));
    }
}

#[test]
fn refused_dots_are_learned_once_and_then_avoided() {
    for (refusal, stored) in REFUSALS.map(|r| (r, 9)).into_iter().chain([(HIDDEN, 10)]) {
        let fake = Fake::start(dots(refusal));
        let ran = put_nine(&fake).expect(0, &[NO_DOTS]);
        assert_eq!(ran.err.matches(NO_DOTS).count(), 1, "{}", ran.err);
        assert_has_nine(&fake);
        assert_eq!(
            (fake.heard("STOR"), fake.heard("RNTO")),
            (stored, 9),
            "{refusal}"
        );
    }
}

#[test]
fn a_file_steps_aside_under_a_name_without_a_dot() {
    for refusal in REFUSALS.into_iter().chain([HIDDEN]) {
        let fake = Fake::start(Quirks {
            no_replace: true,
            features: Some(&["SIZE", "MLST type*;size*;"]),
            ..dots(refusal)
        });
        fake.put("/f", b"old");
        run_with_input(&["cp", "-", &fake.url("/f")], b"new").expect(0, &[]);
        assert_eq!(
            (fake.names(), fake.get("/f").unwrap()),
            (vec!["/f".to_owned()], b"new".to_vec())
        );
        fake.put("/g", b"newer");
        run(&["mv", &fake.url("/g"), &fake.url("/f")]).expect(0, &[]);
        assert_eq!(
            (fake.names(), fake.get("/f").unwrap()),
            (vec!["/f".to_owned()], b"newer".to_vec())
        );
    }
}

#[test]
fn the_users_own_dotted_names_fail_alone() {
    for refusal in REFUSALS.into_iter().chain([HIDDEN]) {
        let fake = Fake::start(dots(refusal));
        let (_here, top) = nine();
        fs::write(top.join(".own"), "x").unwrap();
        fs::create_dir(top.join(".folder")).unwrap();
        fs::write(top.join(".folder/f"), "x").unwrap();
        let ran = run(&["cp", "-r", "-c", "1", text(&top), &fake.url("/d/")]);
        ran.expect(1, &["/d/top/.own", "/d/top/.folder", refusal]);
        assert_has_nine(&fake);
    }
}

#[test]
fn standard_input_is_sent_once_under_a_name_that_is_taken() {
    for refusal in REFUSALS.into_iter().chain([HIDDEN]) {
        let fake = Fake::start(dots(refusal));
        let data = bytes(300_000, 3);
        let ran = run_with_input(&["cp", "-v", "-", &fake.url("/f")], &data);
        ran.expect(0, &[NO_DOTS]);
        assert_eq!(fake.names(), ["/f"]);
        assert!(fake.get("/f").unwrap() == data);
        assert_eq!(fake.moved(), data.len());
    }
}

#[test]
fn standard_input_stays_whole_where_the_server_does_not_rename_it() {
    let fake = Fake::start(no_renames("550 Rename/move failure"));
    let ran = run_with_input(&["cp", "-", &fake.url("/f")], b"data");
    let ran = ran.expect(4, &["550 Rename/move failure", "it is complete at"]);
    let names = fake.names();
    assert_eq!(names.len(), 1);
    assert!(ran.err.contains(&names[0]), "{}", ran.err);
    assert_eq!(fake.get(&names[0]).unwrap(), b"data");
}

#[test]
fn without_rename_files_are_written_in_place_with_a_note() {
    for refusal in ["550 Rename/move failure", "550 Permission denied."] {
        let fake = Fake::start(no_renames(refusal));
        fake.put("/d/top/3", b"old");
        let ran = put_nine(&fake).expect(0, &[IN_PLACE, "is overwritten", "partial file"]);
        assert_eq!(ran.err.matches(IN_PLACE).count(), 1, "{}", ran.err);
        assert_has_nine(&fake);
        // Those that were stored before the server was seen not to rename, twice.
        let again = fake.heard("DELE");
        assert!((1..9).contains(&again), "{refusal}: {again}");
        assert_eq!(fake.heard("STOR"), 9 + again, "{refusal}");
    }
}

#[test]
fn a_directory_that_refuses_all_names_reports_the_first_refusal() {
    let any = Quirks {
        features: Some(&["SIZE"]),
        refused_names: Some("/d/"),
        ..Quirks::default()
    };
    let check = |refusal, looked, stored| {
        let fake = Fake::start(Quirks {
            name_refusal: Some(refusal),
            replies: vec![("RNFR", looked)],
            ..any.clone()
        });
        let ran = put_nine(&fake).expect(3, &[refusal]);
        assert!(
            !ran.err.contains(NO_DOTS) && !ran.err.contains(IN_PLACE),
            "{}",
            ran.err
        );
        assert_eq!(fake.heard("STOR"), stored, "{refusal}");
        assert_eq!(fake.names(), Vec::<String>::new());
    };
    // As vsftpd: a temporary name of each kind and the final one are tried for the first file.
    check(
        "553 Could not create file.",
        "550 RNFR command failed.",
        9 + 2,
    );
    check("550 Permission denied.", "550 RNFR command failed.", 9 + 1);
    // It has looked at the dot and has not minded it.
    check("550 Permission denied.", "550 No such file", 9);
}

#[test]
fn a_closed_directory_does_not_switch_others_to_in_place() {
    let fake = Fake::start(Quirks {
        features: Some(&["SIZE"]),
        refused_names: Some("/d/top/closed/"),
        name_refusal: Some("553 Could not create file."),
        ..Quirks::default()
    });
    let (_here, top) = nine();
    fs::create_dir(top.join("closed")).unwrap();
    fs::write(top.join("closed/f"), "x").unwrap();
    let url = fake.url("/d/");
    let ran = run(&["cp", "-r", "-v", "-c", "1", text(&top), &url]);
    let ran = ran.expect(
        1,
        &["closed/f: the server refused (server said: 553 Could not create file.)"],
    );
    assert!(
        !ran.err.contains(NO_DOTS) && !ran.err.contains(IN_PLACE),
        "{}",
        ran.err
    );
    assert_has_nine(&fake);
    assert_eq!(fake.heard("RNTO"), 9);
}

/// The server behind it finds no temporary name with a dot.
fn without_dots(served: &Served) -> SocketAddr {
    let hides = |line: String| line.replace("/.godwit-", "/nowhere/.godwit-");
    interposed(served.address, hides, |line| line)
}

#[test]
fn godwitd_behind_a_filter_of_dots_gets_all_files() {
    let (_here, top) = nine();
    fs::write(top.join("large"), bytes(20 << 20, 5)).unwrap();
    let from = Served::start();
    run(&["cp", "-r", text(&top), &from.url("/")]).expect(0, &[]);
    for source in [text(&top).to_owned(), from.url("/top")] {
        let to = Served::start();
        let url = format!("ftp://{}/", without_dots(&to));
        let ran = run(&["cp", "-r", "-v", &source, &url]).expect(0, &[NO_DOTS]);
        assert_eq!(ran.err.matches(NO_DOTS).count(), 1, "{}", ran.err);
        assert_same(&top, &to.path("top"));
        assert_eq!(tree(to.root.path()).len(), 11, "no temporary file stays");
    }
}
