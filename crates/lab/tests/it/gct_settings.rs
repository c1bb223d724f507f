//! Configuration and transfer log of the reference server, used with ours.

use std::{fs, process::Command};

use godwit_lab::peers::{Finished, RUN_TIMEOUT, gct, gct::GctServer, godwit, process};
use tempfile::TempDir;

use crate::support::{Kind, Need, Site, assert_holds, have, noise, wait_until};

fn import(path: &std::path::Path) -> Finished {
    let mut command = Command::new(godwit::binary("godwitd").expect("present"));
    command.arg("--import-gct-config").arg(path);
    process::run(command, RUN_TIMEOUT).expect("runs")
}

#[test]
fn every_option_that_the_reference_server_lists_has_a_fate() {
    if !have(&[Need::Gct, Need::Godwitd]) {
        return;
    }
    let help = gct::SERVER.run(["-hh"]).expect("runs").stdout_text();
    let options = help.lines().filter(|line| line.starts_with(" -"));
    let mut text = String::new();
    let mut count = 0;
    for line in options {
        let names = line
            .split_whitespace()
            .take_while(|word| word.starts_with('-'));
        let value = match line {
            _ if line.contains("<number>") => " 1",
            _ if line.contains("<string>") => " x",
            _ => "",
        };
        // These two name files to be read.
        for name in names.filter(|name| !matches!(*name, "-c" | "-C")) {
            text += &format!("{name}{value}\n");
            count += 1;
        }
    }
    assert!(count > 100, "{help}");
    let folder = TempDir::new().expect("a directory");
    let path = folder.path().join("all");
    fs::write(&path, &text).expect("writes");
    let output = import(&path);
    assert_eq!(output.status.code(), Some(1), "{}", output.log());
    let lists = output.stdout_text();
    assert_eq!(
        lists
            .lines()
            .filter(|line| line.starts_with("#   "))
            .count(),
        count,
        "{lists}"
    );
}

#[test]
fn an_imported_configuration_serves() {
    if !have(&[Need::Gct, Need::Godwitd]) {
        return;
    }
    let folder = TempDir::new().expect("a directory");
    let path = |name: &str| folder.path().join(name);
    let log = path("transfers");
    let text = format!(
        "# as a site has it\n$GLOBUS_TCP_PORT_RANGE 20000,60000\nallow_anonymous 1\n\
         banner \"of a site\"\nlog_level ALL\n\
         control_idle_timeout 100\nlog_transfer {}\n",
        log.display()
    );
    fs::write(path("gridftp.conf"), text).expect("writes");
    let output = import(&path("gridftp.conf"));
    assert_eq!(output.status.code(), Some(0), "{}", output.log());
    fs::write(path("godwitd.toml"), output.stdout_text()).expect("writes");
    let site = Site::godwitd(|root| {
        let config = godwit::Godwitd::serving(root).arg("--config");
        config
            .arg(path("godwitd.toml"))
            .start()
            .expect("godwitd starts")
    });
    fs::write(site.local("f"), noise(1000, 1)).expect("writes");
    let output = site.url_copy(&["-dbg", &site.local_url("f"), &site.url("f")]);
    assert!(
        output.stderr_text().contains("of a site"),
        "{}",
        output.log()
    );
    assert_holds(&site.at("f"), &noise(1000, 1));
    let line = fs::read_to_string(log).expect("a log");
    assert!(line.contains(" TYPE=STOR CODE=226"), "{line}");
}

/// `KEY=value`, in order.
fn pairs(line: &str) -> Vec<(String, String)> {
    let words = line
        .split_whitespace()
        .filter_map(|word| word.split_once('='));
    words
        // Of striped servers, and only where their kernels tell.
        .filter(|(key, _)| *key != "retrans")
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .collect()
}

/// What stands for a value in a comparison: digits are as good as others.
fn shape((key, value): &(String, String)) -> (String, String) {
    let shape = match &key[..] {
        "HOST" | "PROG" | "USER" | "FILE" => "text".to_owned(),
        "BUFFER" | "BLOCK" | "NBYTES" | "STREAMS" | "STRIPES" => {
            assert!(value.parse::<u64>().is_ok(), "{key}={value}");
            "number".to_owned()
        }
        "DATE" | "START" => value.replace(|c: char| c.is_ascii_digit(), "9"),
        _ => value.clone(),
    };
    (key.clone(), shape)
}

#[test]
fn transfers_are_logged_as_by_the_reference_server() {
    if !have(&[Need::Gct, Need::Godwitd]) {
        return;
    }
    let folder = TempDir::new().expect("a directory");
    let mut logs = Vec::new();
    for kind in [Kind::Gct, Kind::Godwitd] {
        let log = folder.path().join(format!("{kind:?}"));
        let site = match kind {
            Kind::Gct => Site::gct(|root| {
                let config = GctServer::serving(root).arg("-Z").arg(&log);
                config.start().expect("the reference server starts")
            }),
            Kind::Godwitd => Site::godwitd(|root| {
                let config = godwit::Godwitd::serving(root).arg("--transfer-log");
                config.arg(&log).start().expect("godwitd starts")
            }),
        };
        // So long that both connections are there before the end of it.
        fs::write(site.local("f"), noise(8_000_000, 1)).expect("writes");
        let (local, remote, back) = (site.local_url("f"), site.url("f"), site.local_url("back"));
        site.url_copy(&["-p", "2", "-tcp-bs", "65536", &local, &remote]);
        site.url_copy(&[&remote, &back]);
        site.url_copy(&["-off", "10", "-len", "20", &remote, &back]);
        let output = || fs::read_to_string(&log).unwrap_or_default();
        // The other writes when its session ends.
        wait_until("three transfers are logged", || {
            output().lines().count() == 3
        });
        logs.push(output());
    }
    let [theirs, ours] = &logs[..] else {
        panic!("two logs");
    };
    for (theirs, ours) in theirs.lines().zip(ours.lines()) {
        let (theirs, ours) = (pairs(theirs), pairs(ours));
        let shapes = |pairs: &[(String, String)]| pairs.iter().map(shape).collect::<Vec<_>>();
        assert_eq!(shapes(&ours), shapes(&theirs), "{ours:?}");
        let of = |pairs: &[(String, String)], wanted: &str| {
            let found = pairs.iter().find(|(key, _)| key == wanted);
            found.map(|(_, value)| value.clone())
        };
        for key in ["NBYTES", "TYPE", "STRIPES", "STREAMS"] {
            assert_eq!(
                of(&ours, key),
                of(&theirs, key),
                "{key}: {ours:?} {theirs:?}"
            );
        }
    }
}
