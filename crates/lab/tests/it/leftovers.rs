//! What networks leave behind after a normal end, and after a kill.

use std::os::unix::fs::MetadataExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use godwit_lab::network::{NetworkConfig, Paths};
use godwit_lab::path::PathConfig;
use godwit_lab::peers;
use godwit_lab::peers::process::Options;

use crate::netns::{LONG, MBPS, ends, pair, present, start};

fn in_namespace(inode: u64) -> usize {
    (std::fs::read_dir("/proc").expect("proc"))
        .filter_map(|entry| std::fs::metadata(entry.ok()?.path().join("ns/net")).ok())
        .filter(|metadata| metadata.ino() == inode)
        .count()
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000");
    command
}

#[test]
fn programs_end_with_their_network() {
    if !present("programs_end_with_their_network") {
        return;
    }
    let network = pair(PathConfig::new(MBPS, 0));
    let directory = network.directory();
    let (left, _) = ends(&network);
    let mut child = left
        .enter(|| sleeper().spawn().expect("starts"))
        .expect("entered");
    drop(network);
    // Reaped here, so it has ended.
    assert!(!child.wait().expect("reaped").success());
    assert!(!directory.exists());
}

/// Makes a network with a program without its guard, says so, and waits to be killed.
#[test]
#[ignore = "run by leftovers_of_a_killed_run_are_removed"]
fn victim() {
    let config = NetworkConfig::pair(Paths::same(PathConfig::new(MBPS, 0)))
        .each_host(|host| host.congestion_control("cubic"));
    let network = start(&config);
    let (left, _) = ends(&network);
    let mut child = left
        .enter(|| sleeper().spawn().expect("starts"))
        .expect("entered");
    println!("\nready {} {}", child.id(), network.directory().display());
    child.wait().expect("killed first");
}

#[test]
fn leftovers_of_a_killed_run_are_removed() {
    let test = "leftovers_of_a_killed_run_are_removed";
    if !present(test) {
        return;
    }
    let mut command = Command::new(std::env::current_exe().expect("this program"));
    command.args(["--ignored", "--exact", "leftovers::victim", "--nocapture"]);
    let options = Options {
        guarded: false,
        ..Options::default()
    };
    let mut process = peers::Process::spawn(command, options).expect("starts");
    let stdout = peers::process::Stream::Stdout;
    let (pid, directory) = process
        .wait_for_line(stdout, "get ready", LONG, |line| {
            let (pid, directory) = line.strip_prefix("ready ")?.split_once(' ')?;
            Some((pid.to_owned(), directory.to_owned()))
        })
        .expect("ready");
    let inode = {
        std::fs::metadata(format!("/proc/{pid}/ns/net"))
            .expect("runs")
            .ino()
    };
    assert!(in_namespace(inode) > 0);
    // Only itself: its group would take the program in the host along.
    process
        .signal(peers::process::Signal::KILL)
        .expect("killed");
    while process.is_running().expect("known") {
        std::thread::sleep(Duration::from_millis(5));
    }
    // Its program lives on, unless another test that makes networks was first.
    godwit_lab::state::remove_leftovers().expect("removed");
    assert!(!std::path::Path::new(&directory).exists());
    let gone = Instant::now() + LONG;
    while in_namespace(inode) > 0 {
        assert!(Instant::now() < gone, "still runs");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_ordinary_user_learns_what_is_missing() {
    let program = env!("CARGO_BIN_EXE_godwit-lab");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Where only root may open the device or make namespaces, this is status 3.
    let mut command = Command::new("setpriv");
    command
        .args([
            "--reuid=65534",
            "--regid=65534",
            "--clear-groups",
            "--inh-caps=-all",
        ])
        .arg(program)
        .args(["calibrate", "--quick"]);
    let finished = peers::process::run(command, Duration::from_secs(120)).expect("runs");
    if finished.status.code() == Some(3) {
        let said = finished.stderr_text();
        assert!(
            said.contains("no emulated network here") && said.contains("as root"),
            "{said}"
        );
    }
}
