//! The program as sshd starts it: one session over standard input and output.

use std::{
    io::Read as _,
    net::{TcpListener, TcpStream},
    os::fd::OwnedFd,
    process::{Child, Stdio},
};

use crate::{client::Ftp, program::godwitd};

const CONNECTION: &str = "127.0.0.1 40000 127.0.0.1 22";

/// A session of the program: a socket, as sshd has one, in place of its pipes.
fn start(arguments: &[&str]) -> (Child, Ftp) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (theirs, _) = listener.accept().unwrap();
    let child = godwitd()
        .arg("--ssh")
        .args(arguments)
        .env("SSH_CONNECTION", CONNECTION)
        .env("HOME", "/")
        .stdin(OwnedFd::from(theirs.try_clone().unwrap()))
        .stdout(OwnedFd::from(theirs))
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    (child, Ftp::of(ours))
}

fn end(mut child: Child) -> (Option<i32>, String) {
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    (child.wait().unwrap().code(), said)
}

#[test]
fn any_name_is_the_user_and_a_root_of_its_own_is_all_there_is() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("here"), "x").unwrap();
    let (child, mut ftp) = start(&["--root", root.path().to_str().unwrap()]);
    ftp.await_code(220);
    ftp.expect("PWD", 530);
    ftp.expect("USER jane", 331);
    ftp.expect("PASS nothing", 230);
    ftp.expect("TYPE I", 200);
    ftp.expect("SIZE /here", 213);
    ftp.expect("SIZE /etc/passwd", 550);
    ftp.expect("MKD /made", 257);
    assert!(root.path().join("made").is_dir());
    let announced = ftp.expect("PASV", 227);
    assert!(announced.text().contains("(127,0,0,1,"), "{announced:?}");
    ftp.expect("QUIT", 221);
    ftp.expect_end();
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn the_session_ends_with_its_input_and_with_a_signal() {
    let (child, mut ftp) = start(&[]);
    ftp.await_code(220);
    drop(ftp);
    assert_eq!(end(child), (Some(0), String::new()));

    let (child, mut ftp) = start(&[]);
    ftp.await_code(220);
    let kill = std::process::Command::new("kill")
        .args(["-s", "TERM", &child.id().to_string()])
        .status();
    assert!(kill.unwrap().success());
    ftp.await_code(421);
    ftp.expect_end();
    assert_eq!(end(child), (Some(0), String::new()));
}

#[test]
fn minimum_data_channel_protection_holds() {
    let (_child, mut ftp) = start(&["--protect", "private"]);
    ftp.await_code(220);
    ftp.login();
    let refused = ftp.expect("PASV", 534);
    assert!(refused.text().contains("DCAU"), "{refused:?}");
}

#[test]
fn errors_go_to_standard_error() {
    let fails = |arguments: &[&str], connection: Option<&str>, status, words: &str| {
        let mut command = godwitd();
        command.arg("--ssh").args(arguments).stdin(Stdio::piped());
        command.env_remove("SSH_CONNECTION");
        command.envs(connection.map(|connection| ("SSH_CONNECTION", connection)));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(status), "{said}");
        assert!(said.contains(words), "{said}");
        assert!(output.stdout.is_empty());
    };
    fails(&[], None, 2, "SSH_CONNECTION");
    fails(
        &["--anonymous", "ro"],
        Some(CONNECTION),
        2,
        "no meaning with --ssh",
    );
    fails(
        &["--root", "/nonexistent"],
        Some(CONNECTION),
        4,
        "root directory",
    );
}
