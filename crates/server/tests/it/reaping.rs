//! `--reap-after`: what uploads have left goes, and nothing that a session may still need.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
};

use tempfile::TempDir;

use crate::{
    harness::eventually,
    privsep::{can_separate, uid},
    program::Program,
};

const LEFT: &str = ".godwit-0123456789abcdef.part";

#[test]
fn leftovers_go_once_no_session_can_need_them() {
    reaps("--privsep=false");
}

#[test]
fn leftovers_go_with_privileges_apart() {
    if can_separate() {
        reaps("--privsep");
    }
}

fn reaps(privsep: &str) {
    let folder = TempDir::new().unwrap();
    let root = folder.path().join("root");
    let inner = root.join("inner");
    fs::create_dir_all(&inner).unwrap();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).unwrap();
    if fs::metadata(&root).unwrap().uid() == 0 {
        chown(&inner, Some(uid("nobody")), None).unwrap();
    }
    fs::set_permissions(&inner, fs::Permissions::from_mode(0o700)).unwrap();
    let left = inner.join(LEFT);
    for name in [LEFT, "whole", "f.part"] {
        fs::write(inner.join(name), "x").unwrap();
    }
    let program = Program::start(&[
        "--root",
        root.to_str().unwrap(),
        "--anonymous",
        "rw",
        "--reap-after",
        "1",
        privsep,
    ]);
    eventually("what was left over is removed", || !left.exists());
    assert!(inner.join("whole").exists() && inner.join("f.part").exists());

    let sweeps = || {
        let log = fs::read_to_string(program.log.path()).unwrap();
        log.matches("looked for leftovers of uploads").count()
    };
    let mut ftp = program.login();
    let stored = ftp.put(&format!("STOR /inner/{LEFT}"), b"x");
    assert_eq!(stored.code, 226, "{stored:?}");
    // Whole, with the time of its source, and without its name yet.
    ftp.expect(&format!("MFMT 20000101000000 /inner/{LEFT}"), 213);
    // The first of these may have begun before.
    let enough = sweeps() + 4;
    eventually("there were sweeps", || sweeps() >= enough);
    assert!(left.exists(), "its session is there");
    ftp.send("QUIT");
    ftp.await_code(221);
    ftp.expect_end();
    eventually("what the session has left is removed", || !left.exists());
    let log = fs::read_to_string(program.log.path()).unwrap();
    assert!(!log.contains("cannot look"), "{log}");
}
