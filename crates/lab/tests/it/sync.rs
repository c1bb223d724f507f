//! `godwit sync` with the reference server and with ours: the first run copies what differs, with
//! times and permissions; the second copies nothing.

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::support::{
    Kind, Need, Site, against_both, assert_same_tree, files_below, have, noise, write_tree,
};

against_both![
    trees_become_the_same_both_ways,
    what_the_source_lacks_goes,
    checksums_find_what_has_the_same_size_and_time,
];

fn site(kind: Kind) -> Option<Site> {
    let server = match kind {
        Kind::Godwitd => Need::Godwitd,
        Kind::Gct => Need::Gct,
    };
    have(&[Need::Godwit, server]).then(|| Site::new(kind))
}

/// A tree whose files have times and permissions of their own; their paths.
fn tree_with_times(top: &Path) -> Vec<String> {
    let paths = write_tree(top);
    for (i, path) in (0..).zip(&paths) {
        let mode = [0o644, 0o600, 0o750][i % 3];
        let path = top.join(path);
        fs::set_permissions(&path, Permissions::from_mode(mode)).expect("a mode");
        set_time(&path, 1_500_000_000 + i as u64);
    }
    paths
}

fn set_time(path: &Path, seconds: u64) {
    let file = File::options().append(true).open(path).expect("opens");
    let time = SystemTime::UNIX_EPOCH + Duration::from_millis(1000 * seconds + 789);
    file.set_modified(time).expect("a time");
}

#[track_caller]
fn assert_alike(paths: &[String], one: &Path, other: &Path) {
    assert_same_tree(paths, one, other);
    assert_eq!(files_below(one), files_below(other));
    for path in paths {
        let known = |top: &Path| {
            let metadata = fs::metadata(top.join(path)).expect("is there");
            (metadata.mtime(), metadata.mode() & 0o777)
        };
        assert_eq!(known(one), known(other), "{path}");
    }
}

/// Syncs from one place to another, and tells how many files were copied.
#[track_caller]
fn sync(site: &Site, options: &[&str], from: &str, to: &str) -> u64 {
    let arguments = [&["sync", "-q", "--json"], options, &[from, to]].concat();
    let finished = site.godwit(&arguments);
    // A dry run tells its differences before.
    let mut lines = finished.stdout.trim_ascii_end().rsplit(|b| *b == b'\n');
    let last = lines.next().expect("a line");
    let summary: serde_json::Value = serde_json::from_slice(last).expect("a summary");
    summary["files_done"].as_u64().expect("a number")
}

fn local(site: &Site, path: &str) -> String {
    let path = site.local(path).into_os_string();
    path.into_string().expect("UTF-8")
}

fn trees_become_the_same_both_ways(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let paths = tree_with_times(&site.local("tree"));
    let (tree, back) = (local(&site, "tree/"), local(&site, "back"));
    let (there, contents) = (site.url("there"), site.url("there/"));
    for copied in [paths.len() as u64, 0] {
        assert_eq!(sync(&site, &[], &tree, &there), copied);
        assert_alike(&paths, &site.local("tree"), &site.at("there"));
        assert_eq!(sync(&site, &[], &contents, &back), copied);
        assert_alike(&paths, &site.local("tree"), &site.local("back"));
    }
    let changed = site.local("tree").join(&paths[1]);
    fs::write(&changed, noise(12_345, 3)).expect("writes");
    set_time(&changed, 1_600_000_000);
    assert_eq!(sync(&site, &["-n", "--size-only"], &tree, &there), 0);
    assert_eq!(sync(&site, &[], &tree, &there), 1);
    assert_eq!(sync(&site, &["-c", "3"], &contents, &back), 1);
    assert_alike(&paths, &site.local("tree"), &site.local("back"));
}

fn what_the_source_lacks_goes(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let paths = tree_with_times(&site.local("tree"));
    let (tree, back) = (local(&site, "tree/"), local(&site, "back"));
    let (there, contents) = (site.url("there"), site.url("there/"));
    for top in [site.at("there"), site.local("back")] {
        fs::create_dir_all(top.join("old/deep")).expect("directories");
        for name in ["old/deep/x", "old/kept.o", "y"] {
            fs::write(top.join(name), name).expect("a file");
        }
    }
    let options = ["--delete", "--exclude", "*.o"];
    for copied in [paths.len() as u64, 0] {
        assert_eq!(sync(&site, &options, &tree, &there), copied);
        assert_eq!(sync(&site, &options, &contents, &back), copied);
    }
    for top in [site.at("there"), site.local("back")] {
        assert!(!top.join("y").exists() && !top.join("old/deep").exists());
        assert!(top.join("old/kept.o").exists());
        fs::remove_dir_all(top.join("old")).expect("goes");
        assert_alike(&paths, &site.local("tree"), &top);
    }
}

fn checksums_find_what_has_the_same_size_and_time(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let paths = tree_with_times(&site.local("tree"));
    let (tree, there) = (local(&site, "tree/"), site.url("there"));
    sync(&site, &[], &tree, &there);
    let spoilt = site.at("there").join(paths.last().expect("a file"));
    let before = fs::metadata(&spoilt).expect("is there");
    let length = usize::try_from(before.len()).expect("small");
    fs::write(&spoilt, noise(length, 77)).expect("writes");
    let seconds = u64::try_from(before.mtime()).expect("after 1970");
    set_time(&spoilt, seconds);
    assert_eq!(sync(&site, &[], &tree, &there), 0);
    assert_eq!(sync(&site, &["--checksum"], &tree, &there), 1);
    assert_alike(&paths, &site.local("tree"), &site.at("there"));
}

#[test]
fn trees_become_the_same_from_server_to_server() {
    if !have(&[Need::Godwit, Need::Godwitd, Need::Gct]) {
        return;
    }
    for (from, to) in [
        (Kind::Godwitd, Kind::Gct),
        (Kind::Gct, Kind::Godwitd),
        (Kind::Gct, Kind::Gct),
    ] {
        let (from, to) = (Site::new(from), Site::new(to));
        let paths = tree_with_times(&from.at("tree"));
        fs::create_dir(to.at("there")).expect("a directory");
        fs::write(to.at("there/extra"), "x").expect("a file");
        let (source, target) = (from.url("tree/"), to.url("there"));
        for copied in [paths.len() as u64, 0] {
            assert_eq!(sync(&to, &["--delete"], &source, &target), copied);
            assert_alike(&paths, &from.at("tree"), &to.at("there"));
        }
        assert_eq!(sync(&to, &["--checksum"], &source, &target), 0);
    }
}
