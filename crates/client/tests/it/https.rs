//! `https://`: the commands of the client against our server's door of HTTPS.

use std::{
    fs,
    net::{SocketAddr, TcpListener},
    path::{Path, PathBuf},
    time::SystemTime,
};

use godwit_gsi::cert::files;
use godwit_server::{
    Anonymous, PasswordSettings, ServerSettings, TlsSettings,
    access::passwords::{self, Change},
};
use serde_json::Value;
use tempfile::TempDir;

use crate::{
    harness::{Ran, Served, bytes, godwit, run_with_input, text, tree},
    pki::Blueprint,
};

/// Our server with a door of HTTPS, whose user is jo.
pub(crate) struct Door {
    pub(crate) served: Served,
    folder: TempDir,
    address: SocketAddr,
}

impl Door {
    pub(crate) fn open() -> Self {
        Self::open_with(|_| {})
    }

    /// With other settings.
    pub(crate) fn open_with(more: impl FnOnce(&mut ServerSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let own = Blueprint::host("/CN=data", &["127.0.0.1"]).at(SystemTime::now());
        let own = own.self_signed();
        files::write_private(&at("host.pem"), &own.to_pem().unwrap()).unwrap();
        fs::write(at("ca.pem"), own.certificate().as_x509().to_pem().unwrap()).unwrap();
        let change = Change::Set {
            password: b"s3cret",
            home: None,
            reads_only: None,
            account: None,
        };
        passwords::edit(&at("passwords"), "jo", change).unwrap();
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = free.local_addr().unwrap();
        drop(free);
        let served = Served::start_with(|settings| {
            settings.anonymous = Anonymous::Off;
            settings.https = vec![address];
            settings.tls = Some(TlsSettings {
                host: vec![(at("host.pem"), at("host.pem"))],
            });
            settings.passwords = Some(PasswordSettings {
                file: at("passwords"),
                in_clear: false,
            });
            more(settings);
        });
        Self {
            served,
            folder,
            address,
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("https://jo@{}{path}", self.address)
    }

    pub(crate) fn anonymous_url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    /// The certificate of whom its clients trust.
    pub(crate) fn ca(&self) -> PathBuf {
        self.folder.path().join("ca.pem")
    }

    /// Clients of this door trust that one, too.
    pub(crate) fn trust(&self, other: &Self) {
        let both = [self.ca(), other.ca()].map(|ca| fs::read(ca).unwrap());
        fs::write(self.ca(), both.concat()).unwrap();
    }

    pub(crate) fn root(&self, path: &str) -> PathBuf {
        self.served.path(path.trim_start_matches('/'))
    }

    pub(crate) fn run(&self, arguments: &[&str]) -> Ran {
        let (command, rest) = arguments.split_first().unwrap();
        let mut program = godwit(&[command, "--ca", text(&self.ca())]);
        program.env("GODWIT_PASSWORD", "s3cret").args(rest);
        program.output().unwrap().into()
    }
}

fn same(one: &Path, other: &Path) {
    assert!(fs::read(one).unwrap() == fs::read(other).unwrap());
}

#[test]
fn files_and_trees_go_both_ways() {
    let door = Door::open();
    let here = tempfile::tempdir().unwrap();
    let at = |name: &str| here.path().join(name);
    fs::create_dir_all(at("tree/sub dir")).unwrap();
    for (name, length) in [("a", 0), ("b c", 1), ("sub dir/ü%", 70_000)] {
        fs::write(at("tree").join(name), bytes(length, 7)).unwrap();
    }
    let (from, to) = (at("tree"), door.url("/up"));
    door.run(&["cp", "-r", text(&from), &to]).expect(0, &[]);
    assert_eq!(tree(&at("tree")), tree(&door.root("/up")));
    same(&at("tree/sub dir/ü%"), &door.root("/up/sub dir/ü%"));
    let back = at("back");
    door.run(&["cp", "-r", &to, text(&back)]).expect(0, &[]);
    assert_eq!(tree(&at("tree")), tree(&back));
    same(&back.join("sub dir/ü%"), &door.root("/up/sub dir/ü%"));
    let listed = door.run(&["ls", &door.url("/up/")]).expect(0, &[]);
    assert_eq!(String::from_utf8_lossy(&listed.out), "a\nb c\nsub dir\n");
}

#[test]
fn a_large_file_comes_over_several_connections() {
    let door = Door::open();
    let here = tempfile::tempdir().unwrap();
    let (from, to) = (door.root("/large"), here.path().join("large"));
    fs::write(&from, bytes(48 << 20, 3)).unwrap();
    let log = here.path().join("log");
    let source = door.url("/large");
    let flags = [
        "cp",
        "--parallelism=4",
        "--concurrency=1",
        "--verify=crc32c",
        "--events",
        text(&log),
    ];
    door.run(&[&flags[..], &[&source, text(&to)]].concat())
        .expect(0, &[]);
    same(&from, &to);
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("CRC32C:"), "{log}");
}

#[test]
fn small_files_go_over_as_many_connections_as_are_wanted() {
    let door = Door::open();
    let here = tempfile::tempdir().unwrap();
    let (from, back) = (here.path().join("from"), here.path().join("back"));
    fs::create_dir(&from).unwrap();
    for n in 0..400 {
        fs::write(from.join(n.to_string()), bytes(5_000, n)).unwrap();
    }
    let there = door.url("/there");
    for (log, source, target) in [("put", text(&from), &*there), ("get", &there, text(&back))] {
        let log = here.path().join(log);
        let flags = [
            "cp",
            "-r",
            "--parallelism=4",
            "--concurrency=1",
            "--events",
            text(&log),
        ];
        door.run(&[&flags[..], &[source, target]].concat())
            .expect(0, &[]);
        let log = fs::read_to_string(log).unwrap();
        let events = log.lines().map(|line| serde_json::from_str(line).unwrap());
        let channels = events.filter(|event: &Value| event["event"] == "channel");
        let opened = channels.filter(|event| event["state"] == "opened");
        let opened: u64 = opened.map(|event| event["count"].as_u64().unwrap()).sum();
        assert!((2..=4).contains(&opened), "{opened}: {log}");
    }
    assert_eq!(tree(&from), tree(&back));
}

#[test]
fn files_are_looked_at_moved_and_removed() {
    let door = Door::open();
    fs::write(door.root("/f"), b"12345").unwrap();
    let run = |arguments: &[&str]| door.run(arguments);
    run(&["stat", &door.url("/f")]).expect(0, &[]);
    run(&["mkdir", &door.url("/d")]).expect(0, &[]);
    run(&["mv", &door.url("/f"), &door.url("/d/g")]).expect(0, &[]);
    assert_eq!(fs::read(door.root("/d/g")).unwrap(), b"12345");
    run(&["rm", &door.url("/d")]).expect(2, &["is a directory"]);
    assert!(door.root("/d/g").exists());
    run(&["rm", "-r", &door.url("/d")]).expect(0, &[]);
    assert!(!door.root("/d").exists());
    run(&["ls", &door.url("/d")]).expect(4, &["no such file or directory"]);
}

#[test]
fn a_wrong_password_is_a_refusal() {
    let door = Door::open();
    let mut program = godwit(&["ls", "--ca", text(&door.folder.path().join("ca.pem"))]);
    program.env("GODWIT_PASSWORD", "wrong").arg(door.url("/"));
    let ran = Ran::from(program.output().unwrap());
    ran.expect(3, &["HTTP 401"]);
    // The certificate is none of an authority of the system.
    let ran = Ran::from(godwit(&["ls", &door.url("/")]).output().unwrap());
    ran.expect(3, &["certificate"]);
}

#[test]
fn standard_input_and_output_are_ends() {
    let door = Door::open();
    fs::write(door.root("/f"), b"12345").unwrap();
    let ca = door.folder.path().join("ca.pem");
    let (ca, to) = (text(&ca), door.url("/in").replace("jo@", "jo:s3cret@"));
    run_with_input(&["cp", "--ca", ca, "-", &to], b"of standard input").expect(0, &[]);
    assert_eq!(fs::read(door.root("/in")).unwrap(), b"of standard input");
    let ran = door.run(&["cp", &door.url("/f"), "-"]).expect(0, &[]);
    assert_eq!(ran.out, b"12345");
    let ran = door.run(&["cp", "--offset", "1", "--length", "3", &door.url("/f"), "-"]);
    assert_eq!(ran.expect(0, &[]).out, b"234");
}
