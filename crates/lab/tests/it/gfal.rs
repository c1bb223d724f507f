//! gfal2, the transfer library of the grid, and our server.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::time::Duration;

use godwit_lab::peers::godwit::Godwitd;
use godwit_lab::peers::{Error, Finished, Tool, gfal};

use crate::support::{
    Kind, Need, Site, SmallDisk, am_root, assert_holds, have, odd_names, write_noise,
};

const NEEDS: &[Need] = &[Need::Gfal, Need::Godwitd];

/// Exit status of the tools: the errno that they understood.
const ENOENT: i32 = 2;
const EACCES: i32 = 13;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const ENOSPC: i32 = 28;

#[track_caller]
fn ok(site: &Site, tool: Tool, arguments: &[&str]) -> String {
    site.expect_ok(tool.run(arguments).and_then(Finished::success))
        .stdout_text()
}

/// Runs a tool that must fail with `errno`.
///
/// Now and then, whatever the server, the tool stumbles over itself when a store fails: it tells
/// another error when the refusal comes before it hands over its first bytes, that of a data
/// connection where it meets its end before our reply, hangs when the data connection is lost while
/// it hands over some, and is aborted by its own threads at its end. Then it is run again.
#[track_caller]
fn fails_with(site: &Site, errno: i32, tool: Tool, arguments: &[&str]) {
    const ATTEMPTS: usize = 10;
    const HANGS_AFTER: Duration = Duration::from_secs(10);
    for attempt in 1..=ATTEMPTS {
        let finished = match tool.run_within(HANGS_AFTER, arguments) {
            Err(Error::TimedOut { .. }) if attempt < ATTEMPTS => continue,
            other => site.expect_ok(other),
        };
        let (code, said) = (finished.status.code(), finished.log());
        let stumbles = [
            "GLOBUS_FTP_CLIENT_IDLE not allowed here",
            "Connection reset by peer",
            "[Thread System] GLOBUSTHREAD: pthread_mutex_lock() failed",
        ];
        if attempt < ATTEMPTS && stumbles.iter().any(|words| said.contains(words)) {
            continue;
        }
        assert_eq!(code, Some(errno), "{arguments:?}\n{said}{}", site.log());
        return;
    }
}

#[test]
fn files_are_copied_both_ways() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for (size, channels) in [
        (0, 0),
        (1, 0),
        (0, 4),
        (1, 4),
        (2_000_003, 0),
        (2_000_003, 4),
    ] {
        let bytes = write_noise(&site.local("source"), size, 3);
        let (source, back) = (site.local_url("source"), site.local_url("back"));
        site.expect_ok(gfal::copy(&source, &site.url("f"), channels));
        assert_holds(&site.at("f"), &bytes);
        site.expect_ok(gfal::copy(&site.url("f"), &back, channels));
        assert_holds(&site.local("back"), &bytes);
    }
}

#[test]
fn files_are_copied_between_servers() {
    if !have(&[Need::Gfal, Need::Godwitd, Need::Gct]) {
        return;
    }
    let (ours, theirs) = (Site::new(Kind::Godwitd), Site::new(Kind::Gct));
    let other = Site::new(Kind::Godwitd);
    for (from, to) in [(&ours, &theirs), (&theirs, &ours), (&ours, &other)] {
        let bytes = write_noise(&from.at("source"), 2_000_003, 3);
        for channels in [0, 4] {
            to.expect_ok(gfal::copy(&from.url("source"), &to.url("f"), channels));
            assert_holds(&to.at("f"), &bytes);
            fs::remove_file(to.at("f")).expect("removes");
        }
    }
}

#[test]
fn modes_are_taken_as_stat_has_them() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    write_noise(&site.at("f"), 1, 1);
    // gfal2 sends what it is given.
    ok(&site, gfal::CHMOD, &["100640", &site.url("f")]);
    let mode = fs::metadata(site.at("f")).expect("is there").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o640);
}

#[test]
fn files_are_described_and_read() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    fs::write(site.at("f"), "hello").expect("a file");
    fs::set_permissions(site.at("f"), fs::Permissions::from_mode(0o640)).expect("a mode");
    fs::create_dir(site.at("empty")).expect("a directory");
    fs::create_dir(site.at("folder")).expect("a directory");
    symlink("nowhere", site.at("folder/dangling")).expect("a link");
    let mut names = odd_names();
    // Not shown, as with ls, and not shown in full.
    names.retain(|name| !name.starts_with('.') && !name.ends_with(' '));
    names.sort();
    for name in &names {
        fs::write(site.at("folder").join(name), "x").expect("a file");
    }

    let url = site.url("f");
    assert_eq!(ok(&site, gfal::CAT, &[&url]), "hello");
    let status = ok(&site, gfal::STAT, &[&url]);
    assert!(
        status.contains("Size: 5") && status.contains("0640"),
        "{status}"
    );
    let status = ok(&site, gfal::STAT, &[&site.url("folder/")]);
    assert!(status.contains("directory"), "{status}");
    for (algorithm, sum) in [
        ("ADLER32", "062c0215"),
        ("MD5", "5d41402abc4b2a76b9719d911017c592"),
        ("SHA1", "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"),
    ] {
        let said = ok(&site, gfal::SUM, &[&url, algorithm]);
        assert!(said.contains(sum), "{said}");
    }
    assert_eq!(ok(&site, gfal::LS, &[&site.url("empty/")]), "");
    let listing = ok(&site, gfal::LS, &[&site.url("folder/")]);
    let mut listed: Vec<&str> = listing.lines().collect();
    listed.sort_unstable();
    assert_eq!(listed, names);
    let long = ok(&site, gfal::LS, &["-l", &url]);
    assert!(
        long.starts_with("-rw-r-----") && long.contains(" 5 "),
        "{long}"
    );
}

#[test]
fn files_and_directories_are_managed() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    ok(&site, gfal::MKDIR, &["-p", &site.url("a/b c/d")]);
    assert!(site.at("a/b c/d").is_dir());
    // It is no failure that it is there already.
    ok(&site, gfal::MKDIR, &["-p", &site.url("a/b c/d")]);
    fs::write(site.at("a/b c/f"), "x").expect("a file");
    ok(&site, gfal::CHMOD, &["600", &site.url("a/b c/f")]);
    let mode = fs::metadata(site.at("a/b c/f")).expect("f").permissions();
    assert_eq!(mode.mode() & 0o7777, 0o600);
    ok(
        &site,
        gfal::RENAME,
        &[&site.url("a/b c/f"), &site.url("a/g;=%")],
    );
    assert_holds(&site.at("a/g;=%"), b"x");
    ok(&site, gfal::RM, &[&site.url("a/g;=%")]);
    fs::write(site.at("a/b c/in ner"), "x").expect("a file");
    ok(&site, gfal::RM, &["-r", &site.url("a")]);
    assert!(!site.at("a").exists());
}

#[test]
fn each_failure_is_understood() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    write_noise(&site.local("source"), 1000, 1);
    fs::write(site.at("f"), "x").expect("a file");
    fs::create_dir(site.at("folder")).expect("a directory");
    let (source, back) = (site.local_url("source"), site.local_url("back"));
    let (absent, file) = (site.url("absent"), site.url("f"));
    for tool in [gfal::STAT, gfal::LS, gfal::CAT, gfal::RM] {
        fails_with(&site, ENOENT, tool, &[&absent]);
    }
    fails_with(&site, ENOENT, gfal::SUM, &[&absent, "ADLER32"]);
    fails_with(&site, ENOENT, gfal::CHMOD, &["600", &absent]);
    fails_with(&site, ENOENT, gfal::COPY, &[&absent, &back]);
    fails_with(
        &site,
        ENOENT,
        gfal::COPY,
        &["-f", &source, &site.url("absent/f")],
    );
    fails_with(&site, ENOENT, gfal::MKDIR, &[&site.url("absent/folder")]);
    fails_with(&site, EEXIST, gfal::MKDIR, &[&site.url("folder")]);
    fails_with(&site, EEXIST, gfal::COPY, &[&source, &file]);
    fails_with(&site, ENOTDIR, gfal::STAT, &[&site.url("f/below")]);
    fails_with(&site, ENOTDIR, gfal::MKDIR, &[&site.url("f/below")]);
    fails_with(
        &site,
        ENOTDIR,
        gfal::COPY,
        &["-f", &source, &site.url("f/below")],
    );
    fails_with(&site, EISDIR, gfal::CAT, &[&site.url("folder")]);
    fails_with(&site, EISDIR, gfal::RM, &[&site.url("folder")]);
}

#[test]
fn missing_permission_is_understood() {
    if !have(NEEDS) || !am_root("only root can start a server as another user") {
        return;
    }
    let site = Site::unprivileged_godwitd();
    let mode = |path: &str, mode: u32| {
        fs::set_permissions(site.at(path), fs::Permissions::from_mode(mode)).expect("a mode");
    };
    write_noise(&site.local("source"), 1000, 1);
    fs::write(site.at("f"), "secret").expect("a file");
    mode("f", 0o600);
    fs::create_dir(site.at("closed")).expect("a directory");
    fs::write(site.at("closed/f"), "x").expect("a file");
    mode("closed", 0o700);
    let (source, back) = (site.local_url("source"), site.local_url("back"));
    fails_with(&site, EACCES, gfal::COPY, &["-f", &site.url("f"), &back]);
    fails_with(&site, EACCES, gfal::CAT, &[&site.url("f")]);
    fails_with(&site, EACCES, gfal::SUM, &[&site.url("f"), "ADLER32"]);
    fails_with(
        &site,
        EACCES,
        gfal::COPY,
        &["-f", &source, &site.url("new")],
    );
    fails_with(&site, EACCES, gfal::LS, &[&site.url("closed/")]);
    fails_with(&site, EACCES, gfal::STAT, &[&site.url("closed/f")]);
    fails_with(&site, EACCES, gfal::MKDIR, &[&site.url("folder")]);
    fails_with(&site, EACCES, gfal::RM, &[&site.url("f")]);
    assert!(!site.at("new").exists());
}

#[test]
fn a_full_disk_is_understood() {
    if !have(NEEDS) {
        return;
    }
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    let site = Site::godwitd(|_| Godwitd::serving(disk.path()).start().expect("starts"));
    write_noise(&site.local("source"), 3_000_000, 1);
    let source = site.local_url("source");
    for channels in ["1", "4"] {
        let arguments = ["-f", "-n", channels, &source, &site.url("f")];
        fails_with(&site, ENOSPC, gfal::COPY, &arguments);
    }
    write_noise(&site.local("source"), 100_000, 1);
    ok(&site, gfal::COPY, &["-f", &source, &site.url("f")]);
}
