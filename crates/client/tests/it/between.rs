//! Copies between two servers: the bytes go from one to the other.

use std::{fs, path::Path};

use crate::harness::{Served, bytes, run, text, tree};

/// Two servers, `from` with a file of so many bytes.
fn pair(size: usize) -> (Served, Served, Vec<u8>) {
    let (from, to) = (Served::start(), Served::start());
    let data = bytes(size, 7);
    fs::write(from.path("f"), &data).unwrap();
    (from, to, data)
}

#[track_caller]
fn assert_holds(path: &Path, data: &[u8]) {
    assert!(fs::read(path).unwrap() == data, "{}", path.display());
}

#[test]
fn files_of_every_size_go_from_server_to_server() {
    let (from, to) = (Served::start(), Served::start());
    for (i, size) in [0, 1, 255, 256 << 10, 3_000_001].into_iter().enumerate() {
        let data = bytes(size, i as u64 + 1);
        fs::write(from.path("f"), &data).unwrap();
        for channels in ["1", "4"] {
            let name = format!("f{i}-{channels}");
            let (source, target) = (from.url("/f"), to.url(&format!("/{name}")));
            let ran = run(&["cp", "-vv", "-p", channels, &source, &target]);
            let ran = ran.expect(0, &["1 file"]);
            // Larger ones by leaves.
            let compared = match size > 256 << 10 {
                true => "-> SITE GODWIT LEAVES",
                false => "-> CKSM",
            };
            assert_eq!(ran.err.matches(compared).count(), 2, "{}", ran.err);
            assert_holds(&to.path(&name), &data);
        }
    }
    assert_eq!(tree(to.root.path()).len(), 10, "no temporary file stays");
    assert_eq!(tree(from.root.path()), ["f"]);
}

#[test]
fn large_files_are_shared_by_pairs_of_sessions() {
    let (from, to, data) = pair((100 << 20) + 1);
    let (source, target) = (from.url("/f"), to.url("/g"));
    let ran = run(&["cp", "-vv", "-c", "3", "-p", "2", &source, &target]).expect(0, &["ESTO A"]);
    assert_holds(&to.path("g"), &data);
    let addresses = ["-> PASV", "-> SPAS"].map(|asked| ran.err.matches(asked).count());
    assert_eq!(
        addresses.iter().sum::<usize>(),
        3,
        "one address a pair: {}",
        ran.err
    );
    assert_eq!(tree(to.root.path()), ["g"]);
}

#[test]
fn trees_go_from_server_to_server() {
    let (from, to) = (Served::start(), Served::start());
    let names = [
        "plain",
        "two  blanks",
        "ünïcode",
        "100%41",
        "quo\"te'",
        "deep/er/and/deeper",
        "deep/er/f",
    ];
    for (i, name) in names.iter().enumerate() {
        let path = from.path("top").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes(i * 1000, i as u64)).unwrap();
    }
    fs::create_dir(from.path("top/empty")).unwrap();
    for (options, target) in [(&["-c", "1"][..], "a"), (&["-c", "3", "-p", "2"], "b")] {
        let mut arguments = vec!["cp", "-r"];
        arguments.extend(options);
        let (source, target_url) = (from.url("/top"), to.url(&format!("/{target}")));
        arguments.extend([source.as_str(), &target_url]);
        run(&arguments).expect(0, &["7 files"]);
        assert_eq!(tree(&to.path(target)), tree(&from.path("top")));
        for name in names {
            let data = fs::read(from.path("top").join(name)).unwrap();
            assert_holds(&to.path(target).join(name), &data);
        }
    }
    // With a slash at the end of the destination the directory itself.
    run(&["cp", "-r", &from.url("/top"), &to.url("/new/")]).expect(0, &[]);
    assert_eq!(tree(&to.path("new/top")), tree(&from.path("top")));
}

#[test]
fn listed_files_go_from_server_to_server() {
    let (from, to) = (Served::start(), Served::start());
    for name in ["a/b/one", "a/two", "three"] {
        let path = from.path(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, name).unwrap();
    }
    let here = tempfile::tempdir().unwrap();
    let list = here.path().join("list");
    fs::write(&list, "a/b/one\nthree\nmissing\n").unwrap();
    let (source, target) = (from.url("/"), to.url("/side"));
    let ran = run(&["cp", "--files-from", text(&list), &source, &target]);
    ran.expect(1, &["missing", "no such file"]);
    assert_eq!(
        tree(to.root.path()),
        [
            "side/",
            "side/a/",
            "side/a/b/",
            "side/a/b/one",
            "side/three"
        ]
    );
}

#[test]
fn parts_go_to_the_same_place_at_the_other_server() {
    let (from, to, data) = pair(1_000_000);
    let old = bytes(1_000_000, 8);
    fs::write(to.path("f"), &old).unwrap();
    let (source, target) = (from.url("/f"), to.url("/f"));
    let part = ["--offset", "300001", "--length", "200000"];
    for channels in ["1", "3"] {
        let mut arguments = vec!["cp", "-p", channels];
        arguments.extend(part);
        arguments.extend([source.as_str(), &target]);
        run(&arguments).expect(0, &[]);
        let mut expected = old.clone();
        expected[300_001..500_001].copy_from_slice(&data[300_001..500_001]);
        assert_holds(&to.path("f"), &expected);
    }
}

#[test]
fn one_server_may_be_both_ends() {
    let (from, _, data) = pair(2_000_000);
    run(&["cp", "-p", "2", &from.url("/f"), &from.url("/g")]).expect(0, &[]);
    assert_holds(&from.path("g"), &data);
}

#[test]
fn a_failure_at_either_server_is_named_and_stops_no_other() {
    let (from, to) = (Served::start(), Served::start());
    for name in ["a", "b", "c"] {
        fs::write(from.path(name), bytes(5000, 1)).unwrap();
    }
    fs::create_dir_all(to.path("there/b")).unwrap();
    let sources = ["/a", "/b", "/c", "/missing"].map(|name| from.url(name));
    let target = to.url("/there/");
    let mut arguments = vec!["cp"];
    arguments.extend(sources.iter().map(String::as_str));
    arguments.push(&target);
    let missing = format!("{}/missing: no such file", from.url(""));
    let ran = run(&arguments).expect(1, &[&missing, &to.url("/there/b")]);
    assert!(!ran.err.contains(".part"), "{}", ran.err);
    assert_eq!(tree(&to.path("there")), ["a", "b/", "c"]);
}

#[test]
fn a_server_that_cannot_be_reached_is_named() {
    let (from, to, _) = pair(10);
    let gone = "ftp://127.0.0.1:9/x";
    run(&["cp", "--retries", "1", &from.url("/f"), gone]).expect(4, &["ftp://127.0.0.1:9"]);
    run(&["cp", "--retries", "1", gone, &to.url("/f")]).expect(4, &["ftp://127.0.0.1:9"]);
}

#[test]
fn rate_limits_of_third_party_copies_are_refused() {
    let (from, to, _) = pair(10);
    run(&["cp", "--max-rate", "1M", &from.url("/f"), &to.url("/f")]).expect(2, &["--max-rate"]);
}
