//! Two servers that trust different CAs and know the user by different certificates: our client
//! makes them trust each other.

use std::fs;

use godwit_lab::peers::godwit;

use crate::{
    gsi_client::Secure,
    support::{Kind, assert_holds, assert_same_tree, files_below, write_noise, write_tree},
};

/// What each knows the user by.
const HERE: [&str; 2] = ["/O=Grid/CN=CA", "/O=Grid/CN=Jo"];
const THERE: [&str; 2] = ["/O=Grid/CN=Other CA", "/O=Grid/CN=Jo Elsewhere"];

fn copies_between(from: Kind, to: Kind) {
    let hosts = ["127.0.0.1", "localhost"];
    let Some(from) = Secure::under(HERE, from, &hosts, &[]) else {
        return;
    };
    let Some(to) = Secure::under(THERE, to, &hosts, &[]) else {
        return;
    };
    // The client trusts both.
    for entry in fs::read_dir(to.grid.path()).expect("a directory") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_owned();
        let bytes = fs::read(&path).expect("reads");
        from.grid.write(name.to_str().expect("text"), &bytes);
    }
    let proxies = [("127.0.0.1", &from), ("localhost", &to)];
    let proxies = proxies.map(|(host, realm)| format!("{host}={}", realm.path("proxy").display()));
    let target = |name: &str| to.url(name).replace("127.0.0.1", "localhost");
    let run = |options: &[&str], source: &str, target: &str| {
        let mut arguments = vec!["cp", "-v"];
        arguments.extend(proxies.iter().flat_map(|proxy| ["--proxy", proxy.as_str()]));
        arguments.extend(options.iter().chain([&source, &target]));
        let variables = [("X509_CERT_DIR", from.grid.path())];
        let variables = variables.map(|(name, path)| (name.into(), path.into()));
        let finished = godwit::godwit_with(&arguments, variables).expect("runs");
        assert!(
            finished.status.success(),
            "{arguments:?}\n{}--- source\n{}\n--- destination\n{}",
            finished.log(),
            from.site.log(),
            to.site.log()
        );
        finished.log()
    };
    let bytes = write_noise(&from.site.at("f"), 3_000_001, 5);
    for level in ["identity", "private"] {
        for p in ["1", "4"] {
            let name = format!("{level}-{p}");
            let said = run(
                &["--protect", level, "-p", p],
                &from.url("f"),
                &target(&name),
            );
            assert!(said.contains("/CN=Jo on data channels"), "{said}");
            assert_holds(&to.site.at(&name), &bytes);
        }
    }
    let before = files_below(&to.site.at(""));
    let paths = write_tree(&from.site.at("tree"));
    run(&["-r", "-c", "2"], &from.url("tree"), &target("tree"));
    assert_same_tree(&paths, &from.site.at("tree"), &to.site.at("tree"));
    assert_eq!(files_below(&to.site.at("")), before + paths.len());
}

#[test]
fn ours_and_ours_move_files() {
    copies_between(Kind::Godwitd, Kind::Godwitd);
}

#[test]
fn ours_and_the_reference_server_move_files() {
    copies_between(Kind::Godwitd, Kind::Gct);
}

#[test]
fn the_reference_server_and_ours_move_files() {
    copies_between(Kind::Gct, Kind::Godwitd);
}

#[test]
fn two_reference_servers_move_files() {
    copies_between(Kind::Gct, Kind::Gct);
}
