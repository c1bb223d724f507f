//! Started by a service manager, which has made the socket and waits for a word.

use std::{
    fs,
    net::TcpStream,
    os::{fd::OwnedFd, unix::net::UnixDatagram},
    process::{Command, Output, Stdio},
    time::Duration,
};

use crate::client::{Ftp, connect, listen};

/// For what the server certainly says; a hang costs a run so much.
const LONG: Duration = Duration::from_secs(60);

/// `godwitd`, handed `socket` as systemd hands it.
fn godwitd(socket: impl Into<OwnedFd>, arguments: &[&str]) -> Command {
    let hand_over = "exec 3<&0 0</dev/null; export LISTEN_PID=$$ LISTEN_FDS=1; exec \"$0\" \"$@\"";
    let mut command = Command::new("sh");
    command
        .args(["-c", hand_over, env!("CARGO_BIN_EXE_godwitd")])
        .args(["--anonymous", "ro"])
        .args(arguments)
        .stdin(Stdio::from(socket.into()));
    command
}

fn refusal(command: &mut Command) -> String {
    let Output { status, stderr, .. } = command.output().unwrap();
    assert_eq!(status.code(), Some(4));
    String::from_utf8(stderr).unwrap()
}

#[test]
fn serves_the_socket_that_was_handed_over_and_says_when() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().join("root");
    fs::create_dir(&root).unwrap();
    let manager_path = folder.path().join("notify");
    let manager = UnixDatagram::bind(&manager_path).unwrap();
    manager.set_read_timeout(Some(LONG)).unwrap();
    let heard = || {
        let mut text = [0; 256];
        let count = manager.recv(&mut text).unwrap();
        String::from_utf8(text[..count].to_vec()).unwrap()
    };
    let socket = listen();
    let address = socket.local_addr().unwrap();
    // It waits in the kernel until a server accepts it.
    let early = connect(address);
    let mut child = godwitd(socket, &["--root", root.to_str().unwrap()])
        .env("NOTIFY_SOCKET", &manager_path)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    assert_eq!(heard().trim_end(), "READY=1");
    let mut ftp = Ftp::connect(address);
    ftp.await_code(220);
    ftp.login();
    drop(early);
    let killed = Command::new("kill").arg(child.id().to_string()).status();
    assert!(killed.unwrap().success());
    assert_eq!(heard().trim_end(), "STOPPING=1");
    ftp.await_code(421);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn refuses_addresses_beside_sockets_and_sockets_that_do_not_listen() {
    let text = refusal(&mut godwitd(
        listen(),
        &["--root", "/", "--listen", "127.0.0.1:0"],
    ));
    assert!(text.contains("LISTEN_FDS"), "{text}");
    let door = listen();
    let connected = TcpStream::connect(door.local_addr().unwrap()).unwrap();
    let text = refusal(&mut godwitd(connected, &["--root", "/"]));
    assert!(text.contains("does not listen"), "{text}");
}
