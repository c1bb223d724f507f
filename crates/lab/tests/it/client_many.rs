//! Many small files with our client: the same requirements for the reference server and ours, also
//! with some unreadable files among them.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::Path;

use godwit_lab::peers::{gct::GctServer, godwit::Godwitd};

use crate::support::{
    Kind, Need, Site, SmallDisk, am_root, assert_holds, assert_same_tree, files_below, have, noise,
    write_noise,
};

/// Unreadable even for root, in a directory where no file can be made.
pub(crate) const UNREADABLE: &str = "/proc/sys/vm/drop_caches";

fn site(kind: Kind) -> Option<Site> {
    let server = match kind {
        Kind::Godwitd => Need::Godwitd,
        Kind::Gct => Need::Gct,
    };
    have(&[Need::Godwit, server]).then(|| Site::new(kind))
}

/// Paths below `root` of `count` files in seven directories, no two alike.
pub(crate) fn write_many(root: &Path, count: usize) -> Vec<String> {
    let paths: Vec<String> = (0..count).map(|i| format!("d{}/f{i}", i % 7)).collect();
    for (i, path) in paths.iter().enumerate() {
        let path = root.join(path);
        fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
        let bytes = [0, 1, 300, 4000, 10_240, 80_000][i % 6];
        write_noise(&path, bytes, i as u64);
    }
    paths
}

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn two_thousand_both_ways(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let many = site.local("many");
    let paths = write_many(&many, 2000);
    for options in [&["-c", "1", "-p", "1"][..], &["-c", "2", "-p", "4"], &[]] {
        let back = site.local("back");
        let url = site.url("there");
        for (from, to) in [(text(&many), url.as_str()), (url.as_str(), text(&back))] {
            site.godwit(&[&["cp", "-r"], options, &[from, to]].concat());
        }
        assert_same_tree(&paths, &many, &site.at("there"));
        assert_same_tree(&paths, &many, &back);
        assert_eq!(files_below(&site.at("there")), 2000);
        assert_eq!(files_below(&back), 2000);
        fs::remove_dir_all(site.at("there")).expect("removed");
        fs::remove_dir_all(back).expect("removed");
    }
}

#[test]
fn two_thousand_both_ways_with_the_reference_server() {
    two_thousand_both_ways(Kind::Gct);
}

#[test]
fn two_thousand_both_ways_with_godwitd() {
    two_thousand_both_ways(Kind::Godwitd);
}

#[test]
fn a_file_that_the_reference_server_cannot_open_fails_alone() {
    let Some(site) = site(Kind::Gct) else { return };
    if fs::read(UNREADABLE).is_ok() {
        return;
    }
    let paths = write_many(&site.at("many"), 300);
    for i in [0, 3, 5] {
        symlink(UNREADABLE, site.at(&format!("many/d{i}/closed"))).expect("a link");
    }
    let (back, journal) = (site.local("back"), site.local("journal"));
    let kept = ["--journal", text(&journal)];
    let get = ["cp", "-v", "-r", "-c", "1", &site.url("many"), text(&back)];
    let get = [&get[..], &kept].concat();
    for before in ["", "300 files were copied by an earlier run"] {
        let said = site.godwit_exits(1, &get);
        assert!(
            said.contains("d3/closed") && said.contains(before),
            "{said}"
        );
        assert_same_tree(&paths, &site.at("many"), &back);
        assert_eq!(
            files_below(&back),
            300,
            "the second goes on, and copies into nothing: {said}"
        );
    }
}

/// The reference server writes what was sent for a refused file into the next one, and calls that a
/// success.
#[test]
fn bytes_of_a_put_that_the_reference_server_refuses_reach_no_other_file() {
    let Some(site) = site(Kind::Gct) else { return };
    if fs::write("/proc/sys/vm/godwit", "x").is_ok() {
        return;
    }
    let many = site.local("many");
    let paths = write_many(&many, 300);
    fs::create_dir(site.at("there")).expect("a directory");
    symlink("/proc/sys/vm", site.at("there/d3")).expect("a link");
    for verify in ["--verify=md5", "--no-verify"] {
        let from = format!("{}/", text(&many));
        let to = site.url("there/");
        let put = ["cp", "-r", "-c", "1", verify, from.as_str(), to.as_str()];
        let said = site.godwit_exits(1, &put);
        assert!(said.contains("d3/f"), "{said}");
        let good: Vec<_> = paths.iter().filter(|p| !p.starts_with("d3/")).collect();
        for path in &good {
            let expected = fs::read(many.join(path)).expect("readable");
            assert_holds(&site.at("there").join(path), &expected);
        }
        for folder in ["d0", "d1", "d2", "d4", "d5", "d6"] {
            let folder = site.at("there").join(folder);
            for entry in fs::read_dir(&folder).expect("a directory") {
                let name = entry.expect("an entry").file_name();
                let name = name.to_string_lossy();
                assert!(!name.starts_with('.'), "{name} stays in {folder:?}");
            }
            fs::remove_dir_all(folder).expect("removed");
        }
    }
}

#[test]
fn files_that_our_server_cannot_open_fail_alone_both_ways() {
    if !have(&[Need::Godwit, Need::Godwitd]) || !am_root("an unprivileged server needs root") {
        return;
    }
    let site = Site::unprivileged_godwitd();
    let paths = write_many(&site.at("many"), 300);
    let close = |path: &Path, mode| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
    };
    for i in [10, 11, 12, 200] {
        close(&site.at("many").join(&paths[i]), 0o000);
    }
    let back = site.local("back");
    let get = ["cp", "-r", "-c", "1", &site.url("many"), text(&back)];
    let said = site.godwit_exits(1, &get);
    assert!(said.contains("ermission denied"), "{said}");
    assert_eq!(files_below(&back), 296, "{said}");
    for (i, path) in paths.iter().enumerate() {
        if ![10, 11, 12, 200].contains(&i) {
            let bytes = [0, 1, 300, 4000, 10_240, 80_000][i % 6];
            assert_holds(&back.join(path), &noise(bytes, i as u64));
        }
    }
    // All may write below it but into one directory.
    let there = site.at("there");
    for i in 0..7 {
        let folder = there.join(format!("d{i}"));
        fs::create_dir_all(&folder).expect("a directory");
        close(&folder, if i == 4 { 0o555 } else { 0o777 });
    }
    close(&there, 0o777);
    let from = format!("{}/", text(&back));
    let put = ["cp", "-r", "-c", "1", from.as_str(), &site.url("there/")];
    let said = site.godwit_exits(1, &put);
    assert!(said.contains("d4/f"), "{said}");
    let refused = files_below(&back.join("d4"));
    assert_eq!(files_below(&there), 296 - refused, "{said}");
    for path in paths.iter().filter(|p| !p.starts_with("d4/")) {
        if let Ok(expected) = fs::read(back.join(path)) {
            assert_holds(&there.join(path), &expected);
        }
    }
}

/// Copies more than there is room for, `from` one place `to` another on `disk`; then, when there is
/// room, what is missing.
fn full_and_then_not(site: &Site, disk: &SmallDisk, paths: &[String], [from, to]: [&str; 2]) {
    let journal = site.local("journal");
    let kept = ["--journal", text(&journal)];
    let copy = ["cp", "-v", "-r", "-c", "1", "--retries", "1"];
    let command = [&copy[..], &kept, &[from, to]].concat();
    let said = site.godwit_exits(1, &command);
    assert!(said.contains("o space left"), "{said}");
    let there = disk.path().join("there");
    let arrived: Vec<_> = paths.iter().filter(|p| there.join(p).exists()).collect();
    assert!(!arrived.is_empty() && arrived.len() < paths.len(), "{said}");
    assert_eq!(files_below(disk.path()), arrived.len(), "{said}");
    disk.grow("64m");
    let said = site.godwit_exits(0, &command);
    // A file may be there though the session was lost before the server could say so.
    let left_out = said
        .lines()
        .find_map(|line| {
            line.strip_suffix("/journal tells")?
                .split_once(" files were copied by an earlier run")
        })
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse::<usize>().ok());
    assert!(
        left_out.is_some_and(|n| n > 0 && n <= arrived.len()),
        "{said}"
    );
}

fn a_disk_that_is_full_costs_what_finds_no_room(kind: Kind) {
    if site(kind).is_none() {
        return;
    }
    let (Some(theirs), Some(ours)) = (SmallDisk::mount("2m"), SmallDisk::mount("2m")) else {
        return;
    };
    let root = theirs.path();
    let site = match kind {
        Kind::Godwitd => Site::godwitd(|_| Godwitd::serving(root).start().expect("starts")),
        Kind::Gct => Site::gct(|_| GctServer::serving(root).start().expect("starts")),
    };
    let many = site.local("many");
    let paths = write_many(&many, 200);
    let (from, to) = (format!("{}/", text(&many)), site.url("there/"));
    full_and_then_not(&site, &theirs, &paths, [&from, &to]);
    assert_same_tree(&paths, &many, &theirs.path().join("there"));
    let back = format!("{}/", text(&ours.path().join("there")));
    full_and_then_not(&site, &ours, &paths, [&to, &back]);
    assert_same_tree(&paths, &many, &ours.path().join("there"));
}

#[test]
fn a_full_disk_costs_only_what_does_not_fit_with_the_reference_server() {
    a_disk_that_is_full_costs_what_finds_no_room(Kind::Gct);
}

#[test]
fn a_disk_that_is_full_costs_what_finds_no_room_with_godwitd() {
    a_disk_that_is_full_costs_what_finds_no_room(Kind::Godwitd);
}

/// A file that cannot be read and one that is gone fail alone, towards either server.
fn bad_files_of_ours_fail_alone(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let many = site.local("many");
    let paths = write_many(&many, 300);
    symlink("nowhere", many.join("d2/gone")).expect("a link");
    let mut bad = vec!["d2/gone"];
    if fs::read(UNREADABLE).is_err() {
        symlink(UNREADABLE, many.join("d3/closed")).expect("a link");
        bad.push("d3/closed");
    }
    let (from, to) = (format!("{}/", text(&many)), site.url("there/"));
    let journal = site.local("journal");
    let kept = ["--journal", text(&journal)];
    let copy = ["cp", "-v", "-r", "-c", "1"];
    let command = [&copy[..], &kept, &[&from, &to]].concat();
    let said = site.godwit_exits(1, &command);
    assert!(bad.iter().all(|b| said.contains(b)), "{said}");
    assert_same_tree(&paths, &many, &site.at("there"));
    assert_eq!(files_below(&site.at("there")), 300, "{said}");
    // Removed or replaced at the server since: the client does not trust the journal alone.
    fs::remove_file(site.at("there").join(&paths[7])).expect("removed");
    fs::write(site.at("there").join(&paths[9]), "something else").expect("written");
    let said = site.godwit_exits(1, &command);
    assert!(
        said.contains("298 files were copied by an earlier run"),
        "{said}"
    );
    assert_same_tree(&paths, &many, &site.at("there"));
    // What becomes the copy of a directory is not copied into by the same command.
    fs::remove_file(&journal).expect("removed");
    let to = site.url("copy");
    let command = [&copy[..], &kept, &[text(&many), &to]].concat();
    for before in ["", "300 files were copied by an earlier run"] {
        let said = site.godwit_exits(1, &command);
        assert!(said.contains(before), "{said}");
        assert_eq!(files_below(&site.at("copy")), 300, "{said}");
        assert_same_tree(&paths, &many, &site.at("copy"));
    }
}

#[test]
fn bad_files_of_ours_fail_alone_at_the_reference_server() {
    bad_files_of_ours_fail_alone(Kind::Gct);
}

#[test]
fn bad_files_of_ours_fail_alone_at_godwitd() {
    bad_files_of_ours_fail_alone(Kind::Godwitd);
}

/// The machine of the client was without power for a moment: its kernel had files that its disk
/// does not have.
fn files_finished_before_a_power_loss_are_compared(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let paths = write_many(&site.at("many"), 300);
    let (back, journal) = (site.local("back"), site.local("journal"));
    // Something must be missing, or the journal goes.
    fs::create_dir_all(back.join(&paths[5])).expect("a directory");
    let from = site.url("many/");
    let command = [
        "cp",
        "-v",
        "-r",
        "--journal",
        text(&journal),
        &from,
        text(&back),
    ];
    let said = site.godwit_exits(1, &command);
    assert_eq!(files_below(&back), 299, "{said}");
    fs::remove_dir(back.join(&paths[5])).expect("removed");
    // Too short, and of the right length.
    fs::write(back.join(&paths[8]), "x").expect("written");
    fs::write(back.join(&paths[9]), [0; 4000]).expect("written");
    let of_now = fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("a kernel");
    let noted = fs::read_to_string(&journal).expect("a journal");
    assert!(noted.contains(of_now.trim()), "{noted}");
    fs::write(&journal, noted.replace(of_now.trim(), "another")).expect("written");
    let said = site.godwit_exits(0, &command);
    assert!(
        said.contains("297 files were copied by an earlier run"),
        "{said}"
    );
    assert_same_tree(&paths, &site.at("many"), &back);
}

#[test]
fn files_finished_before_a_power_loss_are_compared_with_the_reference_server() {
    files_finished_before_a_power_loss_are_compared(Kind::Gct);
}

#[test]
fn files_finished_before_a_power_loss_are_compared_with_godwitd() {
    files_finished_before_a_power_loss_are_compared(Kind::Godwitd);
}
