//! `godwit-lab pictures` leaves no process behind.

use std::{
    fs,
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use godwit_lab::peers::process::{Options, Process, Signal};
use tempfile::TempDir;

/// It says its port as the driver does, starts a "browser", and answers nothing.
const DRIVER: &str = "#!/bin/sh
sleep 1000 &
echo $$ $! > \"$PLACE/pids\"
echo \"ChromeDriver was started successfully on port $PORT.\"
wait
";

#[test]
fn an_interrupt_ends_the_driver_and_its_browser() {
    let place = TempDir::new().unwrap();
    let driver = place.path().join("chromedriver");
    fs::write(&driver, DRIVER).unwrap();
    fs::set_permissions(&driver, fs::Permissions::from_mode(0o755)).unwrap();
    for signal in [Signal::INT, Signal::TERM] {
        let answers = TcpListener::bind("127.0.0.1:0").unwrap();
        let path = std::env::var("PATH").unwrap();
        let mut lab = Command::new(env!("CARGO_BIN_EXE_godwit-lab"));
        lab.args(["pictures", "--jobs", "1", "--out"])
            .arg(place.path().join("out"))
            .env("PATH", format!("{}:{path}", place.path().display()))
            .env("PLACE", place.path())
            .env("PORT", answers.local_addr().unwrap().port().to_string())
            .stdin(Stdio::null());
        let lab = Process::spawn(lab, Options::default()).unwrap();
        // The driver has said its port, and is asked for a browser.
        answers.set_nonblocking(true).unwrap();
        let mut asked = None;
        comes_true(|| {
            asked = answers.accept().ok();
            asked.is_some()
        });
        let pids = fs::read_to_string(place.path().join("pids")).unwrap();
        let pids: Vec<&str> = pids.split_whitespace().collect();
        assert!(pids.iter().all(|pid| is_running(pid)), "{pids:?}");
        lab.signal(signal).unwrap();
        let ended = lab.wait(Duration::from_secs(60)).unwrap();
        let told = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(130), "{told}");
        comes_true(|| !pids.iter().any(|pid| is_running(pid)));
    }
}

fn comes_true(mut what: impl FnMut() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < until, "it does not come true");
        thread::sleep(Duration::from_millis(10));
    }
}

/// A process that has ended and was not waited for does not run.
fn is_running(pid: &str) -> bool {
    let stat = fs::read_to_string(Path::new("/proc").join(pid).join("stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
