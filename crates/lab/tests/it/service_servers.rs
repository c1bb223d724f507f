//! The transfer service and the servers that sites run: ours, the reference server and vsftpd.

use std::net::{IpAddr, Ipv4Addr};

use godwit_lab::peers::{
    self,
    ftps::{self, FtpsServer},
    gct::GctServer,
    godwit::Godwitd,
    grid::{self, Grid},
    process::Process,
    service::Service,
};
use tempfile::TempDir;

use crate::support::{Kind, LONG, Need, Site, assert_same_tree, have, write_tree};

const NEEDS: &[Need] = &[Need::Gct, Need::Godwit, Need::Godwitd, Need::Service];

fn two_agents(service: &Service, data: &TempDir) -> [Process; 2] {
    ["one", "two"].map(|name| service.agent(name, data.path(), &[]).expect("an agent"))
}

/// Copies a directory with all below it, and waits for the end.
fn submit(service: &Service, options: &[&str], source: &str, destination: &str) {
    let arguments = [
        &["submit", "-r", "--watch"],
        options,
        &[source, destination],
    ]
    .concat();
    let ran = service
        .godwit(arguments, LONG)
        .and_then(|ran| ran.success());
    ran.expect("the job is done");
}

#[test]
fn a_tree_goes_around_by_servers_of_three_makers() {
    if !have(NEEDS) || !have(&[Need::Ftps(ftps::Kind::Vsftpd)]) {
        return;
    }
    let [ours, reference] = [Kind::Godwitd, Kind::Gct].map(Site::new);
    let vsftpd = FtpsServer::start_with(ftps::Kind::Vsftpd, false, &["ssl_enable=NO"]);
    let vsftpd = vsftpd.expect("it starts");
    let data = TempDir::new().expect("a directory");
    let service = Service::start(data.path(), data.path(), &[]).expect("a service");
    let _agents = two_agents(&service, &data);
    let paths = write_tree(&ours.at("tree"));
    let there = format!("ftp://{}{}", vsftpd.addr(), vsftpd.path("tree"));
    submit(
        &service,
        &["--verify"],
        &ours.url("tree"),
        &reference.url("tree"),
    );
    submit(&service, &[], &reference.url("tree"), &there);
    submit(&service, &[], &there, &ours.url("back"));
    for copy in [reference.at("tree"), vsftpd.at("tree"), ours.at("back")] {
        assert_same_tree(&paths, &ours.at("tree"), &copy);
    }
}

#[test]
fn a_delegated_proxy_moves_trees_between_grid_servers() {
    let test = "a_delegated_proxy_moves_trees_between_grid_servers";
    if !have(NEEDS) || peers::present(test, grid::available()).is_none() {
        return;
    }
    let host = IpAddr::from(Ipv4Addr::LOCALHOST);
    let grid = Grid::new(&[host]).expect("certificates");
    let [ours, theirs, data] = [(); 3].map(|()| TempDir::new().expect("a directory"));
    let godwitd = grid.of_godwitd(Godwitd::serving(ours.path()));
    let godwitd = godwitd.start().expect("godwitd starts");
    let reference = grid.of_gct(GctServer::serving(theirs.path()));
    let reference = reference.start().expect("the reference server starts");
    let service = Service::start(data.path(), data.path(), &[]).expect("a service");
    let service = service.with(grid.of_user());
    let _agents = two_agents(&service, &data);
    let paths = write_tree(&ours.path().join("tree"));
    let [home, there] = [
        format!("gsiftp://{}", godwitd.addr()),
        format!("gsiftp://{}{}", reference.addr(), theirs.path().display()),
    ];
    let at = |base: &str, name: &str| format!("{base}/{name}");
    submit(
        &service,
        &["--verify"],
        &at(&home, "tree"),
        &at(&there, "tree"),
    );
    submit(
        &service,
        &["--verify"],
        &at(&there, "tree"),
        &at(&home, "back"),
    );
    for copy in [theirs.path().join("tree"), ours.path().join("back")] {
        assert_same_tree(&paths, &ours.path().join("tree"), &copy);
    }
}
