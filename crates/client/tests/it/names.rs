//! Names with bytes that some servers change: what would get another name is a failure, and nothing
//! is removed for it.

use std::{
    collections::BTreeMap,
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt, OsStringExt},
    path::Path,
};

use tempfile::TempDir;

use crate::{
    fake::{Fake, Quirks},
    harness::{Served, run, text},
};

/// As Pure-FTPd does it.
fn without_controls(name: &str) -> String {
    let name = name
        .strip_suffix(' ')
        .map_or(name.to_owned(), |name| format!("{name}_"));
    name.replace(|c: char| c.is_ascii_control(), "_")
}

/// Names and contents of all files.
fn all_below(folder: &Path) -> BTreeMap<OsString, Vec<u8>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap() {
        let (name, path) = entry
            .map(|entry| (entry.file_name(), entry.path()))
            .unwrap();
        match path.is_dir() {
            false => drop(all.insert(name, fs::read(path).unwrap())),
            true => {
                for (below, content) in all_below(&path) {
                    let whole = [name.as_bytes(), b"/", below.as_bytes()].concat();
                    all.insert(OsString::from_vec(whole), content);
                }
            }
        }
    }
    all
}

fn write(folder: &Path, name: &[u8], content: &str) {
    fs::write(folder.join(OsStr::from_bytes(name)), content).unwrap();
}

#[test]
fn names_that_the_server_changes_are_not_copied() {
    let (tab, blank, telnet) = (&b"a\tb"[..], &b"a "[..], &b"a\xffb"[..]);
    for name in [tab, blank, telnet] {
        for lacks in ["", "MLST", "MLSD"] {
            let fake = Fake::start(Quirks {
                features: Some(&["SIZE", "MLST type*;size*;"]),
                mangles: Some(without_controls),
                replies: vec![(lacks, "500 Command not supported")],
                ..Quirks::default()
            });
            let others = ["/d/a_b", "/d/a_", "/d/a", "/d/extra"];
            others.iter().for_each(|name| fake.put(name, b"theirs"));
            let here = TempDir::new().unwrap();
            write(here.path(), name, "ours");
            write(here.path(), b"plain", "plain");
            let (from, to) = (format!("{}/", text(here.path())), fake.url("/d"));
            for _ in 0..2 {
                let ran = run(&["sync", "--delete", &from, &to]);
                ran.expect(1, &["the server changes bytes of this name"]);
                for other in others {
                    assert_eq!(fake.get(other).unwrap(), b"theirs", "{name:?} {lacks}");
                }
                assert_eq!(fake.get("/d/plain").unwrap(), b"plain");
                assert_eq!(fake.names().len(), others.len() + 1, "{:?}", fake.names());
            }
        }
    }
}

#[test]
fn a_server_that_keeps_names_gets_all_of_them() {
    let served = Served::start();
    let here = TempDir::new().unwrap();
    let names: [&[u8]; 8] = [
        b"a\tb",
        b"a\x01b",
        b"a\x7fb",
        b"a\xffb",
        b"a\xff\xffb",
        b"end ",
        b" start",
        "\u{fc}\t\u{fc} ".as_bytes(),
    ];
    for name in names {
        write(here.path(), name, "content");
        let folder = here.path().join(OsStr::from_bytes(&[name, b"d"].concat()));
        fs::create_dir(&folder).unwrap();
        write(&folder, name, "in a folder");
    }
    let (from, to) = (format!("{}/", text(here.path())), served.url("/d"));
    run(&["sync", "--delete", &from, &to]).expect(0, &["16 files"]);
    assert_eq!(all_below(here.path()), all_below(&served.path("d")));
    run(&["sync", "--delete", &from, &to]).expect(0, &["0 files", "16 the same"]);
    let back = TempDir::new().unwrap();
    let again = format!("{}/", text(back.path()));
    run(&["sync", "--delete", &served.url("/d/"), &again]).expect(0, &["16 files"]);
    assert_eq!(all_below(here.path()), all_below(back.path()));
}
