//! 10,000 files of 100 bytes to 1 MB, and one of 8 GiB, up and down, with each pair of ends.

use std::{fs, path::Path, time::Instant};

use godwit_lab::peers::{
    self,
    gct::{self, GctServer},
    godwit::Godwitd,
};

use super::{RUN_LIMIT, alone, godwit_cp, roomy_folder, trees};

const FILES: u64 = 10_000;
const HUGE: u64 = 8 << 30;

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

#[test]
fn ours_to_ours() {
    let _turn = alone();
    let (root, folder) = (
        roomy_folder(HUGE + (2 << 30)),
        roomy_folder(HUGE + (2 << 30)),
    );
    let server = Godwitd::serving(root.path())
        .anonymous("rw")
        .start()
        .unwrap();
    let ends = Ends {
        url: server.url(""),
        copy: &godwit_cp,
        tree_options: &["-r"],
        file_options: &["-p", "4"],
        local: path,
    };
    both_ways(root.path(), folder.path(), &ends);
}

#[test]
fn ours_to_gct() {
    let Some(()) = peers::present("ours_to_gct", gct::available()) else {
        return;
    };
    let _turn = alone();
    let (root, folder) = (
        roomy_folder(HUGE + (2 << 30)),
        roomy_folder(HUGE + (2 << 30)),
    );
    let server = GctServer::serving(root.path()).start().unwrap();
    let ends = Ends {
        url: server.url(""),
        copy: &godwit_cp,
        tree_options: &["-r"],
        file_options: &["-p", "4"],
        local: path,
    };
    both_ways(root.path(), folder.path(), &ends);
}

#[test]
fn gct_to_ours() {
    let Some(()) = peers::present("gct_to_ours", gct::available()) else {
        return;
    };
    let _turn = alone();
    let (root, folder) = (
        roomy_folder(HUGE + (2 << 30)),
        roomy_folder(HUGE + (2 << 30)),
    );
    let server = Godwitd::serving(root.path())
        .anonymous("rw")
        .start()
        .unwrap();
    let ends = Ends {
        url: server.url("").replace("gsiftp://", "ftp://"),
        copy: &|arguments| gct::URL_COPY.run_within(RUN_LIMIT, arguments).unwrap(),
        tree_options: &["-r", "-cd", "-fast", "-p", "2"],
        file_options: &["-fast", "-p", "4"],
        local: file_url,
    };
    both_ways(root.path(), folder.path(), &ends);
}
