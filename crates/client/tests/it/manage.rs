//! `ls`, `stat`, `cksum`, `mkdir`, `rm`, `mv`, `chmod`.

use std::{fs, os::unix::fs::PermissionsExt};

use crate::harness::{Served, run, tree};

#[test]
fn directories_are_made_listed_and_removed() {
    let served = Served::start();
    run(&["mkdir", &served.url("/a/b/c")]).expect(4, &["/a/b/c", "no such file or directory"]);
    run(&["mkdir", "-p", &served.url("/a/b/c")]).expect(0, &[]);
    run(&["mkdir", "-p", &served.url("/a/b/c")]).expect(0, &[]);
    run(&["mkdir", &served.url("/a")]).expect(4, &["exists already"]);
    fs::write(served.path("a/file"), "hello").unwrap();
    let ran = run(&["ls", &served.url("/a")]).expect(0, &[]);
    assert_eq!(ran.out, b"b\nfile\n");
    let ran = run(&["ls", "-l", &served.url("/a/file")]).expect(0, &[]);
    let line = String::from_utf8(ran.out).unwrap();
    assert!(
        line.starts_with("-rw") && line.contains(" 5 ") && line.ends_with(" file\n"),
        "{line}"
    );
    run(&["rm", &served.url("/a")]).expect(2, &["add -r"]);
    run(&["rm", "-r", &served.url("/a")]).expect(0, &[]);
    assert_eq!(tree(served.root.path()), Vec::<String>::new());
    run(&["rm", &served.url("/a")]).expect(4, &["/a: no such file or directory"]);
    run(&["ls", &served.url("/a")]).expect(4, &["no such file or directory"]);
}

#[test]
fn listings_and_descriptions_as_json_name_each_file_exactly() {
    let served = Served::start();
    fs::create_dir_all(served.path("d/sub")).unwrap();
    fs::write(served.path("d/a b%\"\u{e9}"), "hello").unwrap();
    let lines = |arguments: &[&str], exit| {
        let ran = run(arguments).expect(exit, &[]);
        let lines = ran.out.split(|byte| *byte == b'\n');
        let lines = lines.filter(|line| !line.is_empty());
        lines
            .map(|line| serde_json::from_slice(line).unwrap())
            .collect::<Vec<serde_json::Value>>()
    };
    let listed = lines(&["ls", "--json", &served.url("/d")], 0);
    assert_eq!(listed.len(), 2, "{listed:?}");
    let (file, directory) = (&listed[0], &listed[1]);
    assert_eq!(file["name"], "a b%\"\u{e9}");
    assert_eq!(
        (&file["type"], &file["size"]),
        (&"file".into(), &5.into()),
        "{file}"
    );
    assert!(file["modified"].as_str().unwrap().ends_with('Z'), "{file}");
    assert_eq!(directory["type"], "directory");
    let url = file["url"].as_str().unwrap();
    let described = lines(&["stat", "--json", url], 0);
    assert_eq!(described[0]["size"], 5);
    assert_eq!(lines(&["ls", "--json", url], 0)[0]["url"], url);
    for command in ["ls", "stat"] {
        let missing = lines(&[command, "--json", &served.url("/none")], 4);
        assert_eq!(missing[0]["error"]["code"], "not_found", "{missing:?}");
    }
    run(&["ls", "--json", "-l", url]).expect(2, &["--json"]);
}

#[test]
fn files_are_moved_described_and_summed() {
    let served = Served::start();
    fs::write(served.path("f"), "123456789").unwrap();
    fs::create_dir(served.path("d")).unwrap();
    run(&["mv", &served.url("/f"), &served.url("/d")]).expect(0, &[]);
    run(&["chmod", "640", &served.url("/d/f")]).expect(0, &[]);
    let mode = fs::metadata(served.path("d/f"))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o640);
    let ran = run(&["stat", &served.url("/d/f"), &served.url("/none")]).expect(1, &["/none"]);
    let out = String::from_utf8(ran.out).unwrap();
    assert!(
        out.contains("type: file") && out.contains("size: 9"),
        "{out}"
    );
    assert!(out.contains("mode: 0640"), "{out}");
    let ran = run(&["cksum", "-a", "crc32c", &served.url("/d/f")]).expect(0, &[]);
    let out = String::from_utf8(ran.out).unwrap();
    // The check value of RFC 3720 B.4's polynomial.
    assert!(out.starts_with("CRC32C e3069283  "), "{out}");
}
