//! `godwit sync`: what differs is copied, and nothing else.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::{MetadataExt, PermissionsExt, symlink},
    path::Path,
    time::{Duration, SystemTime},
};

use crate::harness::{Ran, Served, bytes, run, run_with, text, tree};

/// A file with its own time and permissions.
fn write(path: &Path, content: &[u8], seconds: u64, mode: u32) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
    set_time(path, seconds);
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

fn set_time(path: &Path, seconds: u64) {
    let file = File::open(path).unwrap();
    // Parts of a second do not travel.
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1000 * seconds + 456);
    file.set_modified(time).unwrap();
}

/// Some files of all sizes, and a directory without any.
fn write_tree(top: &Path) {
    let names = [
        "plain",
        "two  blanks",
        "ünïcode",
        "100%41",
        "a/b/deep",
        "a/b/deeper",
        "a/c",
    ];
    for (i, name) in (0..).zip(names) {
        let mode = [0o644, 0o600, 0o755][i % 3];
        write(
            &top.join(name),
            &bytes(i * 40_000, i as u64),
            1_500_000_000 + i as u64,
            mode,
        );
    }
    fs::create_dir(top.join("empty")).unwrap();
    set_directory_times(top);
}

/// Times of directories that no run of a test has by itself.
fn set_directory_times(top: &Path) {
    for (i, name) in (0..).zip(["", "a", "a/b", "empty"]) {
        set_time(&top.join(name), 1_400_000_000 + i);
    }
}

/// Same names, bytes, times in whole seconds and permissions; of directories names and times.
#[track_caller]
fn assert_alike(one: &Path, other: &Path) {
    assert_eq!(tree(one), tree(other));
    for name in tree(one) {
        let (one, other) = (one.join(&name), other.join(&name));
        if name.ends_with('/') {
            let time = |path: &Path| fs::metadata(path).unwrap().mtime();
            assert_eq!(time(&one), time(&other), "{name}");
            continue;
        }
        assert!(
            fs::read(&one).unwrap() == fs::read(&other).unwrap(),
            "{name}"
        );
        let known = |path: &Path| {
            let metadata = fs::metadata(path).unwrap();
            (metadata.mtime(), metadata.mode() & 0o777)
        };
        assert_eq!(known(&one), known(&other), "{name}");
    }
}

/// Lines of a dry run, in order.
fn lines(ran: Ran) -> Vec<String> {
    let text = String::from_utf8(ran.out).unwrap();
    let mut lines: Vec<_> = text.lines().map(str::to_owned).collect();
    lines.sort();
    lines
}

/// Everything below, with bytes and times, to see that nothing changes.
fn state(top: &Path) -> Vec<(String, i64, u64)> {
    let of = |name: String| {
        let metadata = fs::metadata(top.join(&name)).unwrap();
        (
            name,
            metadata.mtime_nsec() + metadata.mtime(),
            metadata.ino(),
        )
    };
    tree(top).into_iter().map(of).collect()
}

/// Source and destination for each way: up, down, from server to server.
fn each_way(test: impl Fn(&Path, &str, &Path, &str)) {
    let (one, other) = (Served::start(), Served::start());
    let here = tempfile::tempdir().unwrap();
    let made = |path: std::path::PathBuf| {
        fs::create_dir(&path).unwrap();
        path
    };
    let (from, to) = (made(here.path().join("from")), made(one.path("to")));
    test(&from, text(&from), &to, &one.url("/to"));
    let (from, to) = (made(one.path("from")), made(here.path().join("to")));
    test(&from, &one.url("/from"), &to, text(&to));
    let (from, to) = (made(one.path("a")), made(other.path("b")));
    test(&from, &one.url("/a"), &to, &other.url("/b"));
}

#[test]
fn sync_copies_times_and_modes_and_a_second_run_moves_nothing() {
    each_way(|from, source, to, target| {
        write_tree(from);
        let contents = format!("{source}/");
        run(&["sync", &contents, target]).expect(0, &["7 files", "0 the same"]);
        assert_alike(from, to);
        let before = state(to);
        for again in [
            &["sync"][..],
            &["sync", "--size-only"],
            &["sync", "--ignore-existing"],
        ] {
            let arguments = [again, &[&contents, target]].concat();
            run(&arguments).expect(0, &["0 files", "7 the same"]);
            assert_eq!(lines(run(&[&arguments[..], &["-n"]].concat())), [""; 0]);
        }
        assert_eq!(state(to), before);
    });
}

#[test]
fn differences_are_reported_with_their_reason_and_copied() {
    each_way(|from, source, to, target| {
        write_tree(from);
        let contents = format!("{source}/");
        run(&["sync", &contents, target]).expect(0, &[]);
        write(&from.join("new/file"), b"new", 1_600_000_000, 0o644);
        set_time(&from.join("new"), 1_600_000_001);
        set_directory_times(from);
        fs::remove_file(to.join("a/c")).unwrap();
        write(&to.join("plain"), b"larger", 1_500_000_000, 0o644);
        set_time(&to.join("a/b/deep"), 1_500_000_005);
        fs::set_permissions(to.join("ünïcode"), Permissions::from_mode(0o640)).unwrap();
        fs::write(to.join("extra"), "").unwrap();
        set_directory_times(to);
        set_time(&to.join("empty"), 1_400_000_010);
        let before = state(to);
        let dry = run(&["sync", "-n", &contents, target]).expect(0, &["dry run: 4 to copy"]);
        let expected = [
            "copy missing a/c",
            "copy missing new/file",
            "copy mtime a/b/deep",
            "copy size plain",
            "make missing new/",
            "set mode ünïcode",
            "set mtime empty/",
        ];
        assert_eq!(lines(dry), expected);
        assert_eq!(state(to), before, "a dry run changes nothing");
        let size = run(&["sync", "-n", "--size-only", &contents, target]).expect(0, &[]);
        assert!(!lines(size).iter().any(|line| line.contains("mtime")));
        run(&["sync", &contents, target]).expect(0, &["4 files", "4 the same"]);
        fs::remove_file(to.join("extra")).unwrap();
        assert_alike(from, to);
    });
}

#[test]
fn directories_get_their_times_after_copies_and_removals() {
    each_way(|from, source, to, target| {
        write_tree(from);
        let contents = format!("{source}/");
        run(&["sync", &contents, target]).expect(0, &[]);
        let top = |path: &Path| fs::metadata(path).unwrap().mtime();
        assert_eq!(
            top(to),
            1_400_000_000,
            "the contents are those of a directory with a time"
        );
        // Each of these changes one directory of the destination, whose time is right before.
        write(&to.join("a/b/deep"), b"other", 1_500_000_000, 0o644);
        fs::create_dir_all(to.join("empty/extra/inner")).unwrap();
        set_directory_times(to);
        run(&["sync", "--delete", &contents, target]).expect(0, &["1 file,"]);
        assert_alike(from, to);
        assert_eq!(top(to), 1_400_000_000);
        assert_eq!(lines(run(&["sync", "-n", &contents, target])), [""; 0]);
    });
}

#[test]
fn a_trailing_slash_means_the_contents() {
    each_way(|from, source, to, target| {
        write(&from.join("f"), b"x", 1_500_000_000, 0o644);
        let name = from.file_name().unwrap();
        for _ in 0..2 {
            run(&["sync", source, &format!("{target}/new")]).expect(0, &[]);
            assert_alike(from, &to.join("new").join(name));
            run(&["sync", &format!("{source}/"), &format!("{target}/other")]).expect(0, &[]);
            assert_alike(from, &to.join("other"));
        }
        assert_eq!(tree(to).len(), 5, "{:?}", tree(to));
        let file = format!("{source}/f");
        run(&["sync", &file, &format!("{target}/g")]).expect(0, &["1 file,"]);
        run(&["sync", &file, &format!("{target}/g")]).expect(0, &["0 files"]);
        run(&["sync", &file, &format!("{target}/into/")]).expect(0, &["1 file,"]);
        run(&["sync", &file, target]).expect(0, &["1 file,"]);
        run(&["sync", &file, target]).expect(0, &["0 files"]);
        for name in ["g", "into/f", "f"] {
            assert_eq!(fs::read(to.join(name)).unwrap(), b"x", "{name}");
        }
        run(&["sync", &format!("{source}/none"), target]).expect(4, &["no such file"]);
        run(&["sync", "--delete", &file, target]).expect(2, &["--delete"]);
    });
}

#[test]
fn extra_names_go_when_all_is_copied_and_only_then() {
    each_way(|from, source, to, target| {
        write_tree(from);
        let contents = format!("{source}/");
        for name in ["x", "a/x", "old/deep/er/x", "old/y"] {
            write(&to.join(name), b"extra", 1_500_000_000, 0o644);
        }
        write(
            &to.join("old/.godwit-0123456789abcdef.part"),
            b"",
            1_500_000_000,
            0o644,
        );
        run(&["sync", &contents, target]).expect(0, &["7 files"]);
        assert_eq!(
            tree(to).iter().filter(|name| name.ends_with('x')).count(),
            3
        );
        let dry =
            lines(run(&["sync", "-n", "--delete", &contents, target]).expect(0, &["6 to remove"]));
        let expected = [
            "delete extra a/x",
            "delete extra old/deep/",
            "delete extra old/deep/er/",
            "delete extra old/deep/er/x",
            "delete extra old/y",
            "delete extra x",
        ];
        assert_eq!(dry, expected);
        let most = ["sync", "--delete", "--max-delete", "5", &contents, target];
        let before = state(to);
        run(&most).expect(1, &["nothing is removed: 6 names"]);
        // What cannot be copied: a directory is in its place.
        fs::create_dir(to.join("f")).unwrap();
        write(&from.join("f"), b"x", 1_500_000_000, 0o644);
        run(&["sync", "--delete", &contents, target])
            .expect(1, &["nothing was removed", "is a directory"]);
        fs::remove_dir(to.join("f")).unwrap();
        fs::remove_file(from.join("f")).unwrap();
        assert_eq!(state(to).len(), before.len());
        run(&["sync", "--delete", "--max-delete", "6", &contents, target])
            .expect(0, &["6 removed"]);
        // The partial file of a running copy must not be removed.
        assert_eq!(tree(&to.join("old")), [".godwit-0123456789abcdef.part"]);
        fs::remove_dir_all(to.join("old")).unwrap();
        assert_alike(from, to);
    });
}

#[test]
fn source_links_are_followed_and_nothing_behind_a_link_is_removed() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (from, aside) = (here.path().join("from"), served.path("aside"));
    write(&from.join("real/f"), b"x", 1_500_000_000, 0o644);
    symlink("real", from.join("link")).unwrap();
    symlink("..", from.join("real/loop")).unwrap();
    symlink("real/f", from.join("file")).unwrap();
    write(&aside.join("precious"), b"p", 1_500_000_000, 0o644);
    fs::create_dir(served.path("to")).unwrap();
    symlink("../aside", served.path("to/real")).unwrap();
    symlink("../aside", served.path("to/extra")).unwrap();
    let contents = format!("{}/", text(&from));
    let ran = run(&["sync", "--delete", &contents, &served.url("/to")]);
    ran.expect(0, &["leads back to a directory above it", "1 removed"]);
    assert_eq!(tree(&aside), ["f", "precious"]);
    assert_eq!(
        tree(&served.path("to")),
        [
            "file",
            "link/",
            "link/f",
            "real/",
            "real/f",
            "real/precious"
        ]
    );
    // And the other way.
    let to = here.path().join("to");
    fs::create_dir(&to).unwrap();
    fs::create_dir(here.path().join("aside")).unwrap();
    fs::write(here.path().join("aside/precious"), "p").unwrap();
    symlink("../aside", to.join("real")).unwrap();
    symlink("../aside", to.join("extra")).unwrap();
    fs::remove_file(served.path("to/real")).unwrap();
    write(&served.path("to/real/f"), b"x", 1_500_000_000, 0o644);
    run(&["sync", "--delete", &served.url("/to/"), text(&to)]).expect(0, &["1 removed"]);
    assert_eq!(tree(&here.path().join("aside")), ["f", "precious"]);
}

#[test]
fn a_source_that_cannot_be_listed_to_its_end_costs_nothing() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let from = here.path().join("from");
    write(&from.join("f"), b"x", 1_500_000_000, 0o644);
    symlink("nowhere", from.join("dangling")).unwrap();
    write(&served.path("to/extra"), b"x", 1_500_000_000, 0o644);
    let contents = format!("{}/", text(&from));
    let ran = run(&["sync", "--delete", &contents, &served.url("/to")]);
    ran.expect(1, &["dangling: no such file", "nothing was removed"]);
    assert_eq!(tree(&served.path("to")), ["extra", "f"]);
}

#[test]
fn excluded_names_are_neither_copied_nor_removed() {
    each_way(|from, source, to, target| {
        for name in [
            "keep.rs",
            "skip.o",
            "build/x.rs",
            "src/a.rs",
            "src/b.o",
            "src/build",
        ] {
            write(&from.join(name), name.as_bytes(), 1_500_000_000, 0o644);
        }
        for name in ["extra.o", "old/extra.o", "old/extra.rs", "build/mine"] {
            write(&to.join(name), b"", 1_500_000_000, 0o644);
        }
        let contents = format!("{source}/");
        let rules = [
            "--exclude",
            "build/",
            "--include=/skip.o",
            "--exclude",
            "*.o",
        ];
        let arguments = [&["sync", "--delete"], &rules[..], &[&contents, target]].concat();
        run(&arguments).expect(0, &["4 files", "1 removed"]);
        let there = [
            "build/",
            "build/mine",
            "extra.o",
            "keep.rs",
            "old/",
            "old/extra.o",
            "skip.o",
            "src/",
            "src/a.rs",
            "src/build",
        ];
        assert_eq!(tree(to), there);
        run(&arguments).expect(0, &["0 files", "4 the same"]);
    });
}

#[test]
fn patterns_come_from_files_too_and_the_order_counts() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (from, list) = (here.path().join("from"), here.path().join("list"));
    for name in ["a", "b", "c", "-d"] {
        write(&from.join(name), b"", 1_500_000_000, 0o644);
    }
    fs::write(&list, "# these\n; not\n\n+ c\n*\n").unwrap();
    let from_list = format!("--exclude-from={}", text(&list));
    let names = |options: &[&str]| {
        let contents = format!("{}/", text(&from));
        let url = served.url("/to");
        let arguments = [&["sync", "-n"], options, &[&contents, &url]].concat();
        lines(run(&arguments).expect(0, &[]))
    };
    let copied = |options: &[&str]| -> Vec<String> {
        let names = names(options).into_iter();
        names
            .filter_map(|line| Some(line.strip_prefix("copy missing ")?.to_owned()))
            .collect()
    };
    assert_eq!(copied(&[&from_list]), ["c"]);
    assert_eq!(
        copied(&["--include", "a", &from_list, "--include", "b"]),
        ["a", "c"]
    );
    assert_eq!(copied(&["--exclude", "-d", "--exclude", "- a"]), ["b", "c"]);
    run_with(
        "sync --exclude-from /none",
        &[text(&from), &served.url("/to")],
    )
    .expect(2, &["/none"]);
}

#[test]
fn checksums_find_differences_of_equal_size_and_time() {
    each_way(|from, source, to, target| {
        for i in 0..130 {
            write(
                &from.join(format!("d/f{i}")),
                &bytes(1000, i),
                1_500_000_000,
                0o644,
            );
        }
        let contents = format!("{source}/");
        run(&["sync", "--checksum", &contents, target]).expect(0, &["130 files"]);
        assert_alike(from, to);
        let odd = to.join("d/f77");
        write(&odd, &bytes(1000, 1), 1_500_000_000, 0o644);
        set_time(&to.join("d/f5"), 1_600_000_000);
        run(&["sync", &contents, target]).expect(0, &["1 file,"]);
        set_time(&to.join("d/f5"), 1_600_000_000);
        let inode = fs::metadata(to.join("d/f5")).unwrap().ino();
        let checksum = ["sync", "--checksum", &contents, target];
        let dry = lines(run(&[&checksum[..], &["-n"]].concat()).expect(0, &[]));
        assert_eq!(dry, ["copy checksum d/f77", "set mtime d/f5"]);
        run(&checksum).expect(0, &["1 file,", "129 the same"]);
        assert_eq!(
            fs::metadata(to.join("d/f5")).unwrap().ino(),
            inode,
            "not copied"
        );
        assert_alike(from, to);
        run(&checksum).expect(0, &["0 files", "130 the same"]);
    });
}

#[test]
fn five_thousand_files_go_and_then_none() {
    each_way(|from, source, to, target| {
        for i in 0..5000 {
            let path = from.join(format!("d{}/f{i}", i % 7));
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, i.to_string()).unwrap();
        }
        let contents = format!("{source}/");
        run(&["sync", &contents, target]).expect(0, &["5000 files"]);
        assert_alike(from, to);
        run(&["sync", &contents, target]).expect(0, &["0 files", "5000 the same"]);
        fs::remove_dir_all(from.join("d3")).unwrap();
        run(&["sync", "--delete", &contents, target]).expect(0, &["0 files", "715 removed"]);
        assert_alike(from, to);
    });
}

/// Whether the server of a URL has a connection that it has not closed.
fn has_sessions(url: &str) -> bool {
    let Some((_, port)) = url
        .strip_prefix("ftp://")
        .and_then(|rest| rest.split('/').next()?.rsplit_once(':'))
    else {
        return false;
    };
    let port = format!(":{:04X}", port.parse::<u16>().unwrap());
    let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
    sockets.lines().any(|line| {
        let words: Vec<_> = line.split_whitespace().collect();
        // Established, or closed by the peer alone.
        words[1].ends_with(&port) && matches!(words[3], "01" | "08")
    })
}

#[test]
fn a_run_that_was_cut_is_finished_by_the_next() {
    each_way(|from, source, to, target| {
        for i in 0..300 {
            write(
                &from.join(format!("f{i}")),
                &bytes(50_000, i),
                1_500_000_000 + i,
                0o644,
            );
        }
        let contents = format!("{source}/");
        let mut child = crate::harness::godwit(&["sync", "--max-channels", "1", &contents, target])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        let has = |count: usize| fs::read_dir(to).unwrap().count() >= count;
        while !has(20) && child.try_wait().unwrap().is_none() {
            std::thread::yield_now();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        // A server that has not heard of it yet may still begin a file that it was asked for.
        while [source, target].iter().any(|url| has_sessions(url)) {
            std::thread::yield_now();
        }
        run(&["sync", &contents, target]).expect(0, &["the same"]);
        run(&["sync", &contents, target]).expect(0, &["0 files", "300 the same"]);
        assert_alike(from, to);
    });
}

#[test]
fn a_dry_run_notes_nothing_and_its_numbers_are_in_the_summary() {
    let served = Served::start();
    let here = tempfile::tempdir().unwrap();
    let (from, log) = (here.path().join("from"), here.path().join("log"));
    write(&from.join("f"), b"four", 1_500_000_000, 0o644);
    write(&served.path("to/old"), b"", 1_500_000_000, 0o644);
    let contents = format!("{}/", text(&from));
    let arguments = [
        "sync",
        "-n",
        "-q",
        "--json",
        "--delete",
        "--events",
        text(&log),
        &contents,
    ];
    let ran = run(&[&arguments[..], &[&served.url("/to")]].concat()).expect(0, &[]);
    let out = String::from_utf8(ran.out).unwrap();
    let (listed, summary) = out.trim_end().rsplit_once('\n').unwrap();
    assert_eq!(listed, "copy missing f\ndelete extra old");
    let summary: serde_json::Value = serde_json::from_str(summary).unwrap();
    for (key, value) in [
        ("files_done", 0),
        ("files_differing", 1),
        ("bytes_differing", 4),
        ("files_same", 0),
        ("names_removed", 1),
        ("exit", 0),
    ] {
        assert_eq!(summary[key], value, "{key}");
    }
    let events = fs::read_to_string(&log).unwrap();
    assert_eq!(
        events.matches("\"event\":\"difference\"").count(),
        2,
        "{events}"
    );
    assert_eq!(tree(&served.path("to")), ["old"]);
}
