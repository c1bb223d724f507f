//! Grid identities with programs beside the reference implementation: ARC's client and server, and
//! Java programs. Also the host names by which the reference client accepts our server.

use std::fs;
use std::path::Path;
use std::time::SystemTime;

use godwit_gsi::cert::proxy::ProxyRequest;
use godwit_lab::peers::arc::{self, ArcConfig, ArcServer};
use godwit_lab::peers::godwit::godwit_with;
use godwit_lab::peers::{RUN_TIMEOUT, file_url, gct, jglobus, process};

use crate::gsi_server::{Environment, GridSite, run, succeeds, url};
use crate::pki::{Blueprint, rsa_key};
use crate::support::{
    Need, am_root, assert_holds, assert_same_tree, have, write_noise, write_tree,
};

/// The environment of programs that look into a user's home.
fn environment(site: &GridSite) -> Environment {
    let mut environment = site.proxy(&site.jo(), &ProxyRequest::default());
    environment.push(("HOME", site.path("local")));
    environment
}

#[test]
fn arcs_client_copies_and_manages() {
    if !have(&[Need::ArcClient, Need::Godwitd]) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let environment = environment(&site);
    let bytes = write_noise(&site.path("local/source"), 700_003, 5);
    let source = file_url(&site.path("local/source"));
    let ok = |tool, arguments: &[&str]| succeeds(&server, tool, &environment, arguments);
    for (name, options) in [("clear", &[][..]), ("private", &["--secure"])] {
        let there = url(&server, name);
        let back = site.path(&format!("local/{name}"));
        ok(&arc::COPY, &[options, &[&source, &there]].concat());
        assert_holds(&site.path("a").join(name), &bytes);
        ok(&arc::COPY, &[options, &[&there, &file_url(&back)]].concat());
        assert_holds(&back, &bytes);
    }
    let (folder, file) = (url(&server, "folder"), url(&server, "folder/f"));
    ok(&arc::MKDIR, &[&folder]);
    ok(&arc::RENAME, &[&url(&server, "clear"), &file]);
    let listed = run(&arc::LS, &environment, &["-l", &format!("{folder}/")]);
    assert!(listed.stdout_text().contains("700003"), "{}", listed.log());
    ok(&arc::RM, &[&file]);
    assert!(!site.path("a/folder/f").exists() && site.path("a/folder").is_dir());
    let absent = run(&arc::LS, &environment, &[&url(&server, "absent")]);
    assert!(!absent.status.success(), "{}", absent.log());
}

#[test]
fn arcs_server_is_met_with_every_protection() {
    let needs = [Need::Godwit, Need::ArcServer];
    if !have(&needs) || !am_root("ARC's server maps its users to root") {
        return;
    }
    let site = GridSite::new();
    let config = ArcConfig {
        root: site.path("a"),
        certificate: site.path("hostcert.pem"),
        key: site.path("hostkey.pem"),
        authorities: site.grid.path().to_owned(),
    };
    let server = ArcServer::start(&config).expect("ARC's server starts");
    let environment = environment(&site);
    let godwit = |arguments: &[&str]| {
        let variables = environment.iter();
        let variables = variables.map(|(name, path)| ((*name).into(), path.into()));
        let finished = godwit_with(arguments, variables).expect("runs");
        let log = format!("{}--- server\n{}", finished.log(), server.log());
        assert!(finished.status.success(), "{arguments:?}\n{log}");
        finished
    };
    let url = |path: &str| format!("gsiftp://localhost:{}/{path}", server.addr().port());
    let path = |name: &str| site.path(&format!("local/{name}")).display().to_string();
    let (source, back) = (path("source"), path("back"));
    for (seed, level) in ["clear", "identity", "integrity", "private"]
        .iter()
        .enumerate()
    {
        let protect = ["cp", "--protect", level];
        for size in [0, 1, 700_003] {
            let bytes = write_noise(Path::new(&source), size, seed as u64);
            godwit(&[&protect[..], &[&source, &url(level)]].concat());
            assert_holds(&site.path("a").join(level), &bytes);
            godwit(&[&protect[..], &[&url(level), &back]].concat());
            assert_holds(Path::new(&back), &bytes);
        }
        let listed = godwit(&["ls", "-l", "--protect", level, &url("")]);
        assert!(listed.stdout_text().contains("700003"), "{}", listed.log());
    }
    let tree = site.path("local/tree");
    fs::create_dir(&tree).expect("a folder");
    let paths = write_tree(&tree);
    let options = ["cp", "-r", "-c", "2", "--protect", "private"];
    godwit(&[&options[..], &[&path("tree"), &url("tree")]].concat());
    assert_same_tree(&paths, &tree, &site.path("a/tree"));
    godwit(&[&options[..], &[&url("tree"), &path("tree back")]].concat());
    assert_same_tree(&paths, &tree, &site.path("local/tree back"));
}

#[test]
fn java_programs_copy_with_every_protection() {
    if !have(&[Need::JGlobus, Need::Godwitd]) {
        return;
    }
    let site = GridSite::new();
    let server = site.server("a", &[]);
    let bytes = write_noise(&site.path("local/source"), 700_003, 6);
    let settings = [
        "S:N:C:1", "S:A:C:1", "S:A:S:1", "S:A:P:1", "E:N:C:1", "E:N:C:3", "E:A:C:1", "E:A:S:2",
        "E:A:P:3",
    ];
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/java/JGlobus.java");
    let mut command = jglobus::command(&program, site.grid.path()).expect("is there");
    command
        .envs(environment(&site))
        .arg(server.addr().port().to_string())
        .arg(site.path("local/source"))
        .args(settings);
    let finished = process::run(command, RUN_TIMEOUT).expect("runs");
    let log = format!("{}--- server\n{}", finished.log(), server.log());
    assert!(finished.status.success(), "{log}");
    for setting in settings {
        assert_holds(&site.path("a").join(setting), &bytes);
        assert_holds(&site.path(&format!("local/source{setting}")), &bytes);
    }
}

#[test]
fn the_reference_client_knows_our_server_by_the_names_in_its_certificate() {
    if !have(&[Need::Gct, Need::Godwitd]) {
        return;
    }
    let site = GridSite::new();
    fs::write(site.path("a/f"), b"x").expect("writes");
    let back = file_url(&site.path("local/back"));
    let jo = site.proxy(&site.jo(), &ProxyRequest::default());
    for (subject, names, host, known) in [
        ("/O=Grid/CN=host", &["localhost"][..], "localhost", true),
        (
            "/O=Grid/CN=host",
            &["other.example", "localhost"],
            "localhost",
            true,
        ),
        ("/O=Grid/CN=host", &["127.0.0.1"], "127.0.0.1", true),
        // A name counts where there is no alternative one.
        ("/O=Grid/CN=localhost", &[], "localhost", true),
        (
            "/O=Grid/CN=localhost",
            &["other.example"],
            "localhost",
            false,
        ),
        ("/O=Grid/CN=host", &["*.example"], "localhost", false),
        ("/O=Grid/CN=host", &["127.0.0.2"], "127.0.0.1", false),
    ] {
        let shown = Blueprint::host(subject, names).key(rsa_key());
        let shown = shown.at(SystemTime::now());
        site.write_pair("host", &shown.issued_by(&site.grid.authority));
        let server = site.server("a", &[]);
        let from = url(&server, "f").replace("localhost", host);
        let finished = run(&gct::URL_COPY, &jo, &[&from, &back]);
        let said = finished.log();
        assert_eq!(
            finished.status.success(),
            known,
            "{subject} {names:?} {host}\n{said}"
        );
        // Unknown users learn nothing.
        assert!(known || !server.log().contains("login"), "{}", server.log());
    }
}
