//! FTS's own command lines and Rucio's daemons, unchanged, against the transfer service: by
//! certificates and proxies, and by tokens. Both come from PyPI, into the target directory.

use std::fs;
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use godwit_lab::peers::gct::GctServer;
use godwit_lab::peers::godwit::{self, Godwitd};
use godwit_lab::peers::grid::Grid;
use godwit_lab::peers::process::{self, Options, Process};
use godwit_lab::peers::service::Service;
use godwit_lab::peers::{Missing, free_port, plain_ftp, present};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::issuer::Issuer;
use crate::support::{LONG, Need, PYTHON, have, write_noise};

const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Packages are built for at most this.
const INSTALL_LIMIT: Duration = Duration::from_secs(420);

/// Issuer of the tokens that storages take.
const ISSUER: &str = "https://issuer.example.org/";

/// The programs of a Python package that is installed once, with those that build it. `None`, and
/// a printed skip, where it cannot be had.
pub(crate) fn programs(test: &str, name: &str, steps: &[&[&str]]) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let programs = folder.join("bin");
    // Tests run side by side.
    static INSTALLING: Mutex<()> = Mutex::new(());
    let _alone = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if folder.join("complete").exists() {
        return Some(programs);
    }
    let make = || -> Option<()> {
        let mut create = PYTHON.command().ok()?;
        create.args(["-m", "venv", "--clear"]).arg(&folder);
        process::run(create, LONG).ok()?.success().ok()?;
        for step in steps {
            let mut install = Command::new(programs.join("pip"));
            // The build of M2Crypto finds `swig` among the programs.
            let path = std::env::var("PATH").unwrap_or_default();
            install.env("PATH", format!("{}:{path}", programs.display()));
            install.args(["install", "--quiet"]).args(*step);
            process::run(install, INSTALL_LIMIT).ok()?.success().ok()?;
        }
        fs::write(folder.join("complete"), "").ok()
    };
    let missing = || Missing {
        program: name.to_owned(),
        package: "the Python package index".to_owned(),
    };
    present(test, make().ok_or_else(missing))?;
    Some(programs)
}

pub(crate) fn fts3(test: &str) -> Option<PathBuf> {
    programs(
        test,
        "fts3-3.14.2",
        &[
            &["wheel", "setuptools<80", "swig"],
            &["--no-build-isolation", "M2Crypto"],
            &["fts3==3.14.2"],
        ],
    )
}

/// A service for FTS's clients with an agent, and a user with a proxy.
pub(crate) struct FtsSite {
    pub(crate) grid: Rc<Grid>,
    directory: TempDir,
    pub(crate) service: Service,
    pub(crate) fts: String,
    agent: Process,
}

impl FtsSite {
    pub(crate) fn start() -> Self {
        let grid = Rc::new(Grid::new(&[LOOPBACK]).expect("a grid"));
        let directory = TempDir::new().expect("a directory");
        let data = directory.path().join("data");
        let address = format!("{LOOPBACK}:{}", free_port(LOOPBACK).expect("a port"));
        let mut flags: Vec<String> = vec!["--fts".to_owned(), address.clone()];
        for (flag, path) in grid.of_service() {
            flags.extend([flag.to_owned(), path.display().to_string()]);
        }
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let service = Service::start(&data, directory.path(), &flags).expect("it serves");
        let state = directory.path().join("agent");
        fs::create_dir(&state).expect("a directory");
        let mut enroll = Command::new(godwit::binary("godwit-service").expect("present"));
        enroll
            .args(["enroll", "dtn", "--to"])
            .arg(state.join("token"));
        enroll.arg("--data").arg(&data);
        process::run(enroll, LONG)
            .expect("runs")
            .success()
            .expect("an agent is known");
        let mut agent = Command::new(godwit::binary("godwit-service").expect("present"));
        agent.args(["agent", "--name", "dtn", "--service", service.url(), "--ca"]);
        agent
            .arg(grid.authority())
            .arg("--token-file")
            .arg(state.join("token"));
        agent.arg("--state").arg(&state).env("HOME", &state);
        agent.envs(
            grid.of_user()
                .into_iter()
                .filter(|(name, _)| *name == "X509_CERT_DIR"),
        );
        let agent = Process::spawn(agent, Options::default()).expect("an agent");
        Self {
            grid,
            directory,
            service,
            fts: format!("https://{address}"),
            agent,
        }
    }

    /// What the agent printed so far.
    pub(crate) fn log_of_agent(&self) -> String {
        self.agent.log()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A server of ours for the grid's user, and its directory.
    fn storage(&self, name: &str) -> (Godwitd, PathBuf) {
        let root = self.path(name);
        fs::create_dir(&root).expect("a directory");
        let server = self.grid.of_godwitd(Godwitd::serving(&root)).start();
        (server.expect("godwitd starts"), root)
    }

    /// A request to the service's own interface by its owner.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let mut command = plain_ftp::CURL.command().expect("present");
        command.args([
            "--silent",
            "--fail-with-body",
            "--request",
            method,
            "--cacert",
        ]);
        command.arg(self.grid.authority()).arg("--header");
        command.arg(format!("Authorization: Bearer {}", self.service.token()));
        command.args(["--header", "Content-Type: application/json", "--data"]);
        command
            .arg(body.to_string())
            .arg(format!("{}/api/v1{path}", self.service.url()));
        let answer = process::run(command, LONG)
            .expect("runs")
            .success()
            .expect("it is done");
        serde_json::from_str(&answer.stdout_text()).expect("JSON")
    }

    pub(crate) fn set_user(&self, role: &str) {
        let user = json!({"name": "jo", "role": role, "groups": ["testvo"],
            "identities": ["dn:/O=Lab/CN=Jo"]});
        self.ask("PUT", "/users", &user);
    }

    /// Runs a command of FTS's clients as the user with the proxy; it must succeed.
    #[track_caller]
    pub(crate) fn fts(&self, programs: &Path, program: &str, arguments: &[&str]) -> String {
        let proxy = self.grid.of_user()[0].1.display().to_string();
        let shown = ["--cert", &proxy, "--key", &proxy];
        self.run(programs, program, &[&shown, arguments].concat())
    }

    #[track_caller]
    pub(crate) fn run(&self, programs: &Path, program: &str, arguments: &[&str]) -> String {
        let mut command = Command::new(programs.join(program));
        command
            .args(["-s", &self.fts, "--capath"])
            .arg(self.grid.authorities());
        command.args(arguments).env("HOME", self.directory.path());
        let finished = process::run(command, LONG).expect("runs");
        assert!(
            finished.status.success(),
            "{program} {arguments:?}\n{}",
            finished.log()
        );
        finished.stdout_text()
    }
}

pub(crate) fn id_of(submitted: &str) -> &str {
    let after = submitted.split("Job id: ").nth(1).expect("a job");
    after.lines().next().expect("a line").trim()
}

#[test]
fn command_lines_of_fts_delegate_submit_poll_cancel_and_ban() {
    let test = "command_lines_of_fts_delegate_submit_poll_cancel_and_ban";
    if !have(&[
        Need::Godwit,
        Need::Godwitd,
        Need::Service,
        Need::Curl,
        Need::Python,
    ]) {
        return;
    }
    let Some(programs) = fts3(test) else { return };
    let site = FtsSite::start();
    let ((one, one_root), (other, other_root)) = (site.storage("one"), site.storage("other"));
    let gsi = |server: &Godwitd, path: &str| format!("gsiftp://{}/{path}", server.addr());
    site.set_user("user");
    let bytes = write_noise(&one_root.join("x"), 700_003, 1);
    let whoami = site.fts(&programs, "fts-rest-whoami", &[]);
    assert!(
        whoami.contains("/O=Lab/CN=Jo") && whoami.contains("testvo"),
        "{whoami}"
    );
    site.fts(&programs, "fts-rest-delegate", &[]);
    let blocking = ["--blocking", "--interval", "1"];
    let (from, to) = (gsi(&one, "x"), gsi(&other, "x"));
    let pair = [from.as_str(), to.as_str()];
    let submitted = site.fts(
        &programs,
        "fts-rest-transfer-submit",
        &[&blocking[..], &pair].concat(),
    );
    assert!(submitted.contains("FINISHED"), "{submitted}");
    assert_eq!(fs::read(other_root.join("x")).unwrap(), bytes);
    let status = site.fts(&programs, "fts-rest-transfer-status", &[id_of(&submitted)]);
    assert!(status.contains("FINISHED"), "{status}");
    // Many files at once, one of which has a replica that is not there.
    let bulk = json!({"files": [
        {"sources": [gsi(&one, "missing"), from], "destinations": [gsi(&other, "replica")],
            "checksum": "ADLER32:0"},
    ], "params": {"retry": -1}});
    fs::write(site.path("bulk.json"), bulk.to_string()).unwrap();
    let bulk = site.path("bulk.json").display().to_string();
    let from_file = ["--file", &bulk];
    let submitted = site.fts(
        &programs,
        "fts-rest-transfer-submit",
        &[&blocking[..], &from_file].concat(),
    );
    assert!(submitted.contains("FINISHED"), "{submitted}");
    assert_eq!(fs::read(other_root.join("replica")).unwrap(), bytes);
    // A way over a third place.
    let hops = json!({"files": [
        {"sources": [from], "destinations": [gsi(&other, "half-way")]},
        {"sources": [gsi(&other, "half-way")], "destinations": [gsi(&one, "back")]},
    ], "params": {"multihop": true}});
    fs::write(&bulk, hops.to_string()).unwrap();
    let submitted = site.fts(
        &programs,
        "fts-rest-transfer-submit",
        &[&blocking[..], &from_file].concat(),
    );
    assert!(submitted.contains("FINISHED"), "{submitted}");
    assert_eq!(fs::read(one_root.join("back")).unwrap(), bytes);
    site.set_user("operator");
    let storage = "gsiftp://waits.example.org";
    site.fts(
        &programs,
        "fts-rest-ban",
        &["--storage", storage, "--status", "wait"],
    );
    // The leader reads what operators change once a second.
    std::thread::sleep(Duration::from_secs(3));
    let waits = format!("{storage}/x");
    let submitted = site.fts(&programs, "fts-rest-transfer-submit", &[&waits, pair[1]]);
    let id = id_of(&submitted);
    let listed = site.fts(&programs, "fts-rest-transfer-list", &[]);
    assert!(listed.contains(id), "{listed}");
    site.fts(&programs, "fts-rest-transfer-cancel", &[id]);
    let status = site.fts(&programs, "fts-rest-transfer-status", &[id]);
    assert!(status.contains("CANCELED"), "{status}");
    let banned = site.fts(&programs, "fts-rest-ban", &["--storage", storage]);
    assert!(banned.contains("No jobs affected"), "{banned}");
    site.fts(
        &programs,
        "fts-rest-ban",
        &["--storage", storage, "--unban"],
    );
    let hosts = site.fts(&programs, "fts-rest-server-status", &[]);
    assert!(hosts.contains("active: 0"), "{hosts}");
}

#[test]
fn command_lines_of_fts_submit_with_tokens() {
    let test = "command_lines_of_fts_submit_with_tokens";
    if !have(&[
        Need::Godwit,
        Need::Godwitd,
        Need::Service,
        Need::Curl,
        Need::Python,
    ]) {
        return;
    }
    let Some(programs) = fts3(test) else { return };
    let site = FtsSite::start();
    let storage = |name: &str| {
        let root = site.path(name);
        fs::create_dir(&root).unwrap();
        (
            Godwitd::serving(&root).start().expect("godwitd starts"),
            root,
        )
    };
    let ((one, one_root), (other, other_root)) = (storage("one"), storage("other"));
    // The command line demands one for each storage, whatever that takes.
    let token = Issuer::es256("k").token(&json!({
        "iss": ISSUER, "sub": "jo", "aud": "https://wlcg.cern.ch/jwt/v1/any",
        "scope": "storage.read:/ storage.modify:/", "nbf": 0, "exp": 4_000_000_000_u64,
    }));
    let bytes = write_noise(&one_root.join("x"), 700_003, 1);
    let (from, to) = (one.url("x"), other.url("x"));
    let mut arguments = vec!["--fts-access-token", site.service.token()];
    let whoami = site.run(&programs, "fts-rest-whoami", &arguments);
    assert!(whoami.contains("operator"), "{whoami}");
    arguments.extend(["--src-access-token", &token, "--dst-access-token", &token]);
    arguments.extend(["--blocking", "--interval", "1", &from, &to]);
    let submitted = site.run(&programs, "fts-rest-transfer-submit", &arguments);
    assert!(submitted.contains("FINISHED"), "{submitted}");
    assert_eq!(fs::read(other_root.join("x")).unwrap(), bytes);
}

#[test]
fn rules_of_rucio_become_ok_and_their_bytes_arrive() {
    let test = "rules_of_rucio_become_ok_and_their_bytes_arrive";
    let needs = [
        Need::Godwit,
        Need::Godwitd,
        Need::Service,
        Need::Gct,
        Need::Curl,
        Need::Python,
    ];
    if !have(&needs) {
        return;
    }
    let Some(fts) = fts3(test) else { return };
    let Some(rucio) = programs(test, "rucio-41.5.1", &[&["rucio==41.5.1"]]) else {
        return;
    };
    let site = FtsSite::start();
    site.set_user("user");
    site.fts(&fts, "fts-rest-delegate", &[]);
    let (one, one_root) = site.storage("one");
    let (other, other_root) = site.storage("other");
    let gct_root = site.path("gct");
    fs::create_dir(&gct_root).unwrap();
    let gct = site
        .grid
        .of_gct(GctServer::serving(&gct_root))
        .start()
        .expect("it starts");
    let at = |address, root: &Path| format!("gsiftp://{address}{}", root.display());
    let (one, other) = (
        at(one.addr(), Path::new("")),
        at(other.addr(), Path::new("")),
    );
    let gct = at(gct.addr(), &gct_root);
    let bytes = write_noise(&site.path("content"), 700_003, 1);
    for root in [&one_root, &other_root, &gct_root] {
        fs::create_dir(root.join("lab")).unwrap();
    }
    let run = |name: &str, storages: &[&String]| {
        let mut script = Command::new(rucio.join("python"));
        script.arg(concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/it/rucio_rule.py"
        ));
        script
            .arg(site.path(name))
            .arg(&site.fts)
            .arg(&site.grid.of_user()[0].1);
        script.arg(site.path("content")).args(storages);
        let finished = process::run(script, 2 * LONG).expect("runs");
        assert!(
            finished.stdout_text().contains("rule OK"),
            "{}",
            finished.log()
        );
    };
    fs::copy(site.path("content"), one_root.join("lab/file")).unwrap();
    run("one-to-gct", &[&one, &gct]);
    assert_eq!(fs::read(gct_root.join("lab/file")).unwrap(), bytes);
    // The first of two sources has lost the file.
    fs::remove_file(one_root.join("lab/file")).unwrap();
    run("two-sources", &[&one, &gct, &other]);
    assert_eq!(fs::read(other_root.join("lab/file")).unwrap(), bytes);
}
