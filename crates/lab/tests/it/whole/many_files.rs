//! 10,000 files of 100 bytes to 1 MB, and one beyond 4 GiB, up and down, with each pair of ends.

use std::{any::Any, fs, path::Path, time::Instant};

use godwit_lab::peers::{
    self,
    gct::{self, GctServer},
    godwit::Godwitd,
};

use super::{RUN_LIMIT, alone, godwit_cp, roomy_folder, trees};

const FILES: u64 = 10_000;
/// More than 32 bits count.
const HUGE: u64 = (4 << 30) + (8 << 20);

/// Copies trees and files with one client to and from one server.
struct Ends<'a> {
    /// URL of the server's folder, with a slash at its end.
    url: String,
    copy: &'a dyn Fn(&[&str]) -> peers::Finished,
    tree_options: &'a [&'a str],
    file_options: &'a [&'a str],
    local: fn(&Path) -> String,
}

impl Ends<'_> {
    fn copy(&self, options: &[&str], from: &str, to: &str) {
        let mut arguments = options.to_vec();
        arguments.extend([from, to]);
        let began = Instant::now();
        (self.copy)(&arguments).success().unwrap();
        println!("{from} -> {to}: {:.1} s", began.elapsed().as_secs_f64());
    }
}

fn both_ways(root: &Path, folder: &Path, ends: &Ends<'_>) {
    let source = folder.join("source");
    let local = |name: &str| (ends.local)(&folder.join(name));
    trees::make_many(&source, FILES);
    ends.copy(
        ends.tree_options,
        &local("source/"),
        &format!("{}up/", ends.url),
    );
    trees::assert_same_tree(&source, &root.join("up"));
    ends.copy(
        ends.tree_options,
        &format!("{}up/", ends.url),
        &local("down/"),
    );
    trees::assert_same_tree(&source, &folder.join("down"));
    for used in [source, root.join("up"), folder.join("down")] {
        fs::remove_dir_all(used).unwrap();
    }

    let huge = folder.join("huge");
    trees::make_sparse(&huge, HUGE);
    ends.copy(
        ends.file_options,
        &local("huge"),
        &format!("{}huge-up", ends.url),
    );
    trees::assert_same_file(&huge, &root.join("huge-up"));
    fs::remove_file(root.join("huge-up")).unwrap();
    trees::make_sparse(&root.join("huge-there"), HUGE);
    ends.copy(
        ends.file_options,
        &format!("{}huge-there", ends.url),
        &local("huge-down"),
    );
    trees::assert_same_file(&huge, &folder.join("huge-down"));
}

fn path(p: &Path) -> String {
    let slash = if p.ends_with("source") || p.ends_with("down") {
        "/"
    } else {
        ""
    };
    format!("{}{slash}", p.display())
}

fn file_url(p: &Path) -> String {
    format!("file://{}", path(p))
}

/// Serves a folder while both ways are tried with a client.
fn try_with(
    serve: impl FnOnce(&Path) -> (Box<dyn Any>, String),
    copy: &dyn Fn(&[&str]) -> peers::Finished,
    [tree_options, file_options]: [&[&str]; 2],
    local: fn(&Path) -> String,
) {
    let _turn = alone();
    let [root, folder] = [(); 2].map(|()| roomy_folder(HUGE + (2 << 30)));
    let (_server, url) = serve(root.path());
    let ends = Ends {
        url,
        copy,
        tree_options,
        file_options,
        local,
    };
    both_ways(root.path(), folder.path(), &ends);
}

fn ours(root: &Path) -> (Box<dyn Any>, String) {
    let server = Godwitd::serving(root).anonymous("rw").start().unwrap();
    let url = server.url("");
    (Box::new(server), url)
}

const OUR_OPTIONS: [&[&str]; 2] = [&["-r"], &["-p", "4"]];

#[test]
fn ours_to_ours() {
    try_with(ours, &godwit_cp, OUR_OPTIONS, path);
}

#[test]
fn ours_to_gct() {
    let Some(()) = peers::present("ours_to_gct", gct::available()) else {
        return;
    };
    let serve = |root: &Path| -> (Box<dyn Any>, String) {
        let server = GctServer::serving(root).start().unwrap();
        let url = server.url("");
        (Box::new(server), url)
    };
    try_with(serve, &godwit_cp, OUR_OPTIONS, path);
}

#[test]
fn gct_to_ours() {
    let Some(()) = peers::present("gct_to_ours", gct::available()) else {
        return;
    };
    let serve = |root: &Path| {
        let (server, url) = ours(root);
        (server, url.replace("gsiftp://", "ftp://"))
    };
    let copy = |arguments: &[&str]| gct::URL_COPY.run_within(RUN_LIMIT, arguments).unwrap();
    let options: [&[&str]; 2] = [&["-r", "-cd", "-fast", "-p", "2"], &["-fast", "-p", "4"]];
    try_with(serve, &copy, options, file_url);
}
