//! The program itself: flags, output, signals, exit status, memory.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::SocketAddr,
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
};

use crate::client::{EOD, EOF, Ftp, block, connect, data_block};

pub(crate) struct Program {
    pub(crate) child: Child,
    pub(crate) address: SocketAddr,
    /// With `--metrics`.
    pub(crate) metrics: Option<SocketAddr>,
    pub(crate) log: tempfile::NamedTempFile,
    stdout: BufReader<ChildStdout>,
}

pub(crate) fn godwitd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_godwitd"));
    command.env_remove("GLOBUS_TCP_PORT_RANGE");
    command
}

impl Program {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        // A file: a pipe has no reader here, and a server that logs would wait for ever.
        let log = tempfile::NamedTempFile::new().unwrap();
        let mut child = godwitd()
            .args(["--listen", "127.0.0.1:0"])
            .args(arguments)
            .stdout(Stdio::piped())
            .stderr(log.reopen().unwrap())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        let address = line
            .trim_end()
            .strip_prefix("listening on ")
            .unwrap_or_else(|| panic!("{line:?} {:?}", std::fs::read_to_string(log.path())))
            .parse()
            .unwrap();
        let metrics = arguments.contains(&"--metrics").then(|| {
            let mut line = String::new();
            stdout.read_line(&mut line).unwrap();
            let address = line.strip_prefix("metrics on http://");
            let address = address.and_then(|line| line.strip_suffix("/metrics\n"));
            address
                .unwrap_or_else(|| panic!("{line:?}"))
                .parse()
                .unwrap()
        });
        Self {
            child,
            address,
            metrics,
            log,
            stdout,
        }
    }

    /// Processes that it has now, by a word of their command line.
    pub(crate) fn children(&self, role: &str) -> Vec<u32> {
        let parent = self.child.id().to_string();
        let all = fs::read_dir("/proc").unwrap();
        let all = all.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse::<u32>().ok());
        all.filter(|pid| {
            let of = |name: &str| fs::read_to_string(format!("/proc/{pid}/{name}"));
            let is_child = of("status").is_ok_and(|status| field(&status, "PPid") == parent);
            is_child && of("cmdline").is_ok_and(|line| line.contains(role))
        })
        .collect()
    }

    pub(crate) fn signal(&self, name: &str) {
        let status = Command::new("kill")
            .args(["-s", name, &self.child.id().to_string()])
            .status();
        assert!(status.unwrap().success());
    }

    pub(crate) fn login(&self) -> Ftp {
        let mut ftp = Ftp::connect(self.address);
        ftp.await_code(220);
        ftp.login();
        ftp
    }

    /// Resident memory, KiB.
    pub(crate) fn resident_kib(&self) -> u64 {
        self.status_kib("VmRSS")
    }

    fn status_kib(&self, name: &str) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let value = field(&fs::read_to_string(path).unwrap(), name);
        value.split(' ').next().unwrap().parse().unwrap()
    }
}

/// A line of `/proc/PID/status`, its words with one blank between them.
pub(crate) fn field(status: &str, name: &str) -> String {
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    let words: Vec<_> = line.unwrap_or_default().split_whitespace().collect();
    words.join(" ")
}

impl Drop for Program {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn refuses_to_start_without_an_identity_source() {
    let output = godwitd().output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(output.stdout.is_empty());
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("--anonymous ro"), "{text}");
}

#[test]
fn says_why_it_cannot_start() {
    let output = godwitd()
        .args(["--anonymous", "ro", "--root", "/nonexistent"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent"), "{text}");

    let taken = crate::client::listen();
    let address = taken.local_addr().unwrap().to_string();
    let output = godwitd()
        .args(["--anonymous", "ro", "--root", "/", "--listen", &address])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(4));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains(&address), "{text}");

    let output = godwitd().arg("--help").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(
        String::from_utf8(output.stdout)
            .unwrap()
            .contains("Examples:")
    );
}

#[test]
fn serves_until_sigterm() {
    let root = tempfile::tempdir().unwrap();
    let mut program = Program::start(&[
        "--anonymous",
        "rw",
        "--root",
        root.path().to_str().unwrap(),
        "--log-json",
    ]);
    let mut ftp = program.login();
    assert_eq!(ftp.put("STOR /f\u{1b}[31m", b"abc").code, 226);
    program.signal("TERM");
    ftp.await_code(421);
    ftp.expect_end();
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
    let mut rest = String::new();
    program.stdout.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "", "one line for each listener and nothing else");
    let log = std::fs::read_to_string(program.log.path()).unwrap();
    assert!(log.lines().all(|line| line.starts_with('{')), "{log}");
    assert!(log.contains("transfer complete"), "{log}");
    assert!(!log.contains('\u{1b}'), "{log:?}");
}

#[test]
fn a_second_signal_does_not_wait_for_transfers() {
    let root = tempfile::tempdir().unwrap();
    let mut program = Program::start(&[
        "--anonymous",
        "rw",
        "--drain",
        "86400",
        "--root",
        root.path().to_str().unwrap(),
    ]);
    let mut ftp = program.login();
    let data = ftp.passive();
    ftp.send("STOR /f");
    ftp.await_code(150);
    let mut idle = program.login();
    program.signal("INT");
    idle.await_code(421);
    program.signal("INT");
    assert_eq!(program.child.wait().unwrap().code(), Some(0));
    drop(data);
}

#[test]
fn sighup_reads_the_file_again() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("godwitd.toml");
    let write = |text: &str, path: &Path| {
        std::fs::write(path, format!("root = {root:?}\n{text}", root = root.path())).unwrap();
    };
    write("anonymous = \"ro\"\n", &file);
    let program = Program::start(&["--config", file.to_str().unwrap()]);
    program.login().expect("MKD /a", 550);
    // Nonsense changes nothing; then something sensible.
    write("anonymous = \"perhaps\"\n", &file);
    program.signal("HUP");
    program.login().expect("MKD /a", 550);
    write("anonymous = \"rw\"\n", &file);
    program.signal("HUP");
    let mut number = 0;
    crate::harness::eventually("the new settings hold", || {
        number += 1;
        program.login().call(&format!("MKD /d{number}")).code == 257
    });
}

#[test]
fn memory_stays_flat_under_garbage() {
    let root = tempfile::tempdir().unwrap();
    let program = Program::start(&["--anonymous", "ro", "--root", root.path().to_str().unwrap()]);
    let assault = || {
        let sockets: Vec<_> = (0..100)
            .map(|_| {
                let mut socket = connect(program.address);
                // Half a line, longer than any may be; none of it may be kept.
                let _ = socket.write_all(&vec![b'A'; 512 * 1024]);
                socket
            })
            .collect();
        drop(sockets);
        program.login().expect("NOOP", 200);
    };
    assault();
    let before = program.resident_kib();
    for _ in 0..4 {
        assault();
    }
    let after = program.resident_kib();
    assert!(
        after < before + 16 * 1024,
        "grew from {before} KiB to {after} KiB"
    );
}

#[test]
fn a_receipt_in_very_many_pieces_takes_little_memory() {
    let root = tempfile::tempdir().unwrap();
    let program = Program::start(&["--anonymous", "rw", "--root", root.path().to_str().unwrap()]);
    let mut ftp = program.login();
    ftp.expect("MODE E", 200);
    let mut receive = |pieces: u64| {
        let mut data = ftp.passive();
        ftp.expect("STOR /f", 150);
        for some in (0..pieces).collect::<Vec<_>>().chunks(4096) {
            // A byte at every second place.
            let blocks = some.iter().flat_map(|i| data_block(2 * i, b"x"));
            data.write_all(&blocks.collect::<Vec<_>>()).unwrap();
        }
        data.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
        assert_eq!(ftp.final_reply().1.code, 226);
    };
    receive(1000);
    let before = program.status_kib("VmHWM");
    receive(500_000);
    let grown = program.status_kib("VmHWM") - before;
    // Some 40 bytes each would be 20 MB, and they were kept twice.
    assert!(grown < 12 * 1024, "{grown} KiB more at the peak");
}

#[test]
fn idle_sessions_are_cheap() {
    let root = tempfile::tempdir().unwrap();
    let program = Program::start(&["--anonymous", "ro", "--root", root.path().to_str().unwrap()]);
    let warm: Vec<_> = (0..50).map(|_| program.login()).collect();
    let before = program.resident_kib();
    let count = 300;
    let sessions: Vec<_> = (0..count).map(|_| program.login()).collect();
    let after = program.resident_kib();
    let each = after.saturating_sub(before) / count;
    assert!(each < 32, "{each} KiB for each idle session");
    drop((warm, sessions));
}
