//! Transfers of the reference client that are interrupted and resumed.

use std::process::Command;

use godwit_lab::peers::gct::URL_COPY;
use godwit_lab::peers::godwit;
use godwit_lab::peers::process::{Options, Process, Signal, Stream};
use rustix::process::Pid;

use crate::support::{
    Kind, LONG, Need, OneWay, Site, assert_same, files_below, have, length_of, stored_below,
    wait_until, write_sparse,
};

const NEEDS: &[Need] = &[Need::Gct, Need::Godwitd];

/// Long enough to be met in the middle.
const BIG: u64 = (1 << 30) + 1;

fn start(arguments: &[&str]) -> Process {
    let mut command: Command = URL_COPY.command().expect("present");
    command.args(arguments);
    let options = Options {
        output_limit: 8 << 20,
        ..Options::default()
    };
    Process::spawn(command, options).expect("starts")
}

/// Patient enough for a server that comes back, quick enough for a test.
const RESTARTING: [&str; 6] = ["-rst", "-rst-retries", "50", "-rst-interval", "1", "-dbg"];

#[track_caller]
fn ends_well(client: Process, site: &Site) -> String {
    let finished = site.expect_ok(client.wait(LONG).and_then(|finished| finished.success()));
    finished.stderr_text()
}

/// With -rst the client takes up copies between servers only; its own it must fail, not pass off
/// as whole.
#[test]
fn a_server_that_dies_is_a_failure_and_the_next_attempt_is_whole() {
    if !have(NEEDS) {
        return;
    }
    for options in [&[][..], &["-p", "3"]] {
        for upload in [true, false] {
            let mut site = Site::new(Kind::Godwitd);
            let OneWay {
                source,
                target,
                from,
                to,
            } = site.one_way(upload, "f");
            write_sparse(&source, BIG);
            let mut arguments = options.to_vec();
            arguments.extend([from.as_str(), &to]);
            let client = start(&arguments);
            wait_until("some has arrived", || length_of(&target) > 1 << 20);
            site.crash();
            let finished = client.wait(LONG).expect("ends");
            assert!(!finished.status.success(), "{}", finished.log());
            site.come_back();
            write_sparse(&source, 5_000_001);
            site.url_copy(&arguments);
            assert_same(&source, &target);
        }
    }
}

#[test]
fn a_copy_goes_on_where_our_server_died_as_its_destination() {
    if !have(NEEDS) {
        return;
    }
    let (from, mut to) = (Site::new(Kind::Gct), Site::new(Kind::Godwitd));
    write_sparse(&from.at("f"), BIG);
    let mut arguments = RESTARTING.to_vec();
    let (source, target) = (from.url("f"), to.url("f"));
    arguments.extend(["-p", "2", &source, &target]);
    let mut client = start(&arguments);
    wait_until("some has arrived", || length_of(&to.at("f")) > 1 << 20);
    // Long enough for a marker, so that the next attempt can resume.
    from.process().signal_group(Signal::STOP).expect("stops");
    client
        .wait_for_line(Stream::Stderr, "get a range marker", LONG, |line| {
            line.starts_with("111 Range Marker").then_some(())
        })
        .expect("a marker");
    to.crash();
    from.process().signal_group(Signal::CONT).expect("goes on");
    to.come_back();
    let dialogue = ends_well(client, &to);
    assert_same(&from.at("f"), &to.at("f"));
    // Both ends got the restart point.
    let restarts = dialogue.matches("\n350 ").count();
    assert!(restarts >= 2, "{dialogue}");
}

#[test]
fn a_copy_goes_on_where_our_server_died_as_its_source() {
    if !have(NEEDS) {
        return;
    }
    let (mut from, to) = (Site::new(Kind::Godwitd), Site::new(Kind::Gct));
    write_sparse(&from.at("f"), BIG);
    let mut arguments = RESTARTING.to_vec();
    let (source, target) = (from.url("f"), to.url("f"));
    arguments.extend(["-p", "2", &source, &target]);
    let client = start(&arguments);
    wait_until("some has arrived", || length_of(&to.at("f")) > 1 << 20);
    from.crash();
    from.come_back();
    ends_well(client, &from);
    assert_same(&from.at("f"), &to.at("f"));
}

#[test]
fn a_client_that_dies_takes_nothing_along() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for options in [&["-p", "1"][..], &["-p", "3"], &["-fast", "-dp"]] {
        for upload in [true, false] {
            let OneWay {
                source,
                target,
                from,
                to,
            } = site.one_way(upload, "f");
            let _ = std::fs::remove_file(&target);
            write_sparse(&source, BIG);
            let mut arguments = options.to_vec();
            arguments.extend([from.as_str(), &to]);
            let client = start(&arguments);
            wait_until("some has arrived", || length_of(&target) > 1 << 20);
            client.signal(Signal::KILL).expect("kills");
            client.wait(LONG).expect("ends");
            wait_until("the server has let go", || !has_open(&site, "/root/f"));
            write_sparse(&source, 5_000_001);
            site.url_copy(&arguments);
            assert_same(&source, &target);
        }
    }
}

/// Kills the sessions of the reference server, as a crash of each would.
fn kill_sessions(site: &Site) {
    let listener = site.process().id();
    let children = std::fs::read_to_string(format!("/proc/{listener}/task/{listener}/children"));
    for child in children.expect("the server runs").split_whitespace() {
        let pid = Pid::from_raw(child.parse().expect("an id")).expect("not 0");
        rustix::process::kill_process(pid, Signal::KILL).expect("kills");
    }
}

#[test]
fn godwit_resumes_where_a_session_of_the_reference_server_died() {
    if !have(&[Need::Gct, Need::Godwit]) {
        return;
    }
    our_client_goes_on(Kind::Gct, |site| kill_sessions(site));
}

#[test]
fn our_client_goes_on_where_our_server_died() {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    our_client_goes_on(Kind::Godwitd, |site| {
        site.crash();
        site.come_back();
    });
}

fn our_client_goes_on(kind: Kind, mut kill: impl FnMut(&mut Site)) {
    for upload in [true, false] {
        let mut site = Site::new(kind);
        let OneWay {
            source,
            target,
            from,
            to,
        } = site.one_way(upload, "f");
        write_sparse(&source, BIG);
        let mut command = Command::new(godwit::binary("godwit").expect("present"));
        command.args(["cp", "-v", "-p", "2", "--no-sparse"]);
        command.args(["--retries", "20", &from, &to]);
        let mut client = Process::spawn(command, Options::default()).expect("starts");
        let folder = target.parent().expect("a parent");
        wait_until("some has arrived", || stored_below(folder) > 1 << 20);
        kill(&mut site);
        let retries = |line: &str| (line.contains("trying ")).then_some(());
        client
            .wait_for_line(Stream::Stderr, "try again", LONG, retries)
            .expect("tries again");
        let finished = site.expect_ok(client.wait(LONG));
        assert!(
            finished.status.success(),
            "{}\n{}",
            finished.log(),
            site.log()
        );
        assert_same(&source, &target);
        assert_eq!(files_below(folder), 1, "no temporary file stays");
    }
}

#[test]
fn a_copy_between_servers_goes_on_where_one_of_them_died() {
    if !have(&[Need::Godwit, Need::Godwitd]) {
        return;
    }
    for source_dies in [false, true] {
        let (mut from, mut to) = (Site::new(Kind::Godwitd), Site::new(Kind::Godwitd));
        write_sparse(&from.at("f"), BIG);
        let mut command = Command::new(godwit::binary("godwit").expect("present"));
        let (source, target) = (from.url("f"), to.url("f"));
        let options = ["cp", "-v", "-c", "2", "-p", "2", "--no-sparse"];
        command
            .args(options)
            .args(["--retries", "20", &source, &target]);
        let mut client = Process::spawn(command, Options::default()).expect("starts");
        wait_until("some has arrived", || stored_below(&to.at("")) > 1 << 20);
        let dies = match source_dies {
            true => &mut from,
            false => &mut to,
        };
        dies.crash();
        dies.come_back();
        let retries = |line: &str| (line.contains("trying ")).then_some(());
        client
            .wait_for_line(Stream::Stderr, "try again", LONG, retries)
            .expect("tries again");
        let finished = to.expect_ok(client.wait(LONG));
        let story = format!("{}\n{}\n{}", finished.log(), from.log(), to.log());
        assert!(finished.status.success(), "{story}");
        assert_same(&from.at("f"), &to.at("f"));
        assert_eq!(files_below(&to.at("")), 1, "no temporary file stays");
    }
}

/// Whether the server holds a file open whose path ends so.
fn has_open(site: &Site, path: &str) -> bool {
    let descriptors = format!("/proc/{}/fd", site.process().id());
    std::fs::read_dir(descriptors)
        .expect("the server runs")
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .any(|target| target.to_string_lossy().ends_with(path))
}
