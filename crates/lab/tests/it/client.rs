//! Our client with the reference server and with ours: the same requirements for both.

use std::fs;
use std::process::Command;

use godwit_lab::peers::godwit;
use godwit_lab::peers::process::{self, Options, Process};

use crate::support::{
    Kind, LONG, Need, Site, against_both, assert_holds, assert_same, assert_same_tree, files_below,
    have, length_of, odd_names, write_noise, write_sparse, write_tree,
};

against_both![
    copies_every_size_over_any_number_of_channels,
    shares_one_big_file_between_sessions,
    copies_trees_both_ways,
    copies_what_a_pattern_matches,
    uses_its_data_channels_again,
    copies_from_standard_input_and_to_standard_output,
    copies_parts,
    verifies_with_each_algorithm_of_the_server,
    odd_names_survive,
    lists_and_describes,
    manages_files_and_directories,
    replaces_what_is_there,
    works_over_ipv6,
];

fn site(kind: Kind) -> Option<Site> {
    have(&[Need::Godwit, need(kind)]).then(|| Site::new(kind))
}

fn need(kind: Kind) -> Need {
    match kind {
        Kind::Godwitd => Need::Godwitd,
        Kind::Gct => Need::Gct,
    }
}

/// A path as a user would type it.
fn typed(site: &Site, path: &str) -> String {
    let path = site.local(path);
    path.into_os_string().into_string().expect("UTF-8")
}

fn copies_every_size_over_any_number_of_channels(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let (source, back) = (typed(&site, "source"), typed(&site, "back"));
    for p in ["1", "4", "16", "64"] {
        let block = 256 << 10;
        let n: usize = p.parse().expect("a number");
        for size in [0, 1, n - 1, block * n, block * n + 1] {
            let bytes = write_noise(&site.local("source"), size, size as u64);
            let url = site.url("f");
            site.godwit(&["cp", "-p", p, &source, &url]);
            assert_holds(&site.at("f"), &bytes);
            site.godwit(&["cp", "-p", p, &url, &back]);
            assert_holds(&site.local("back"), &bytes);
        }
    }
    assert_eq!(files_below(&site.at("")), 1, "no temporary file stays");
    assert_eq!(files_below(&site.local("")), 2, "no temporary file stays");
}

fn shares_one_big_file_between_sessions(kind: Kind) {
    let Some(site) = site(kind) else { return };
    write_sparse(&site.local("source"), (300 << 20) + 1);
    let (source, back, url) = (typed(&site, "source"), typed(&site, "back"), site.url("f"));
    for c in ["2", "4"] {
        site.godwit(&["cp", "-c", c, "-p", "3", &source, &url]);
        assert_same(&site.local("source"), &site.at("f"));
        site.godwit(&["cp", "-c", c, "-p", "3", &url, &back]);
        assert_same(&site.local("source"), &site.local("back"));
    }
}

fn copies_trees_both_ways(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let paths = write_tree(&site.local("tree"));
    fs::create_dir(site.local("tree/empty")).expect("a directory");
    for (i, options) in [&["-p", "1"][..], &["-p", "4"], &["-c", "3", "-p", "2"]]
        .into_iter()
        .enumerate()
    {
        let (there, back) = (format!("there {i}"), format!("back {i}"));
        let mut put = vec!["cp", "-r"];
        put.extend(options);
        let mut get = put.clone();
        let (tree, url) = (typed(&site, "tree"), site.url(&there));
        put.extend([tree.as_str(), &url]);
        site.godwit(&put);
        assert_same_tree(&paths, &site.local("tree"), &site.at(&there));
        assert!(site.at(&there).join("empty").is_dir());
        let local = typed(&site, &back);
        get.extend([url.as_str(), &local]);
        site.godwit(&get);
        assert_same_tree(&paths, &site.local("tree"), &site.local(&back));
        assert!(site.local(&back).join("empty").is_dir());
    }
    // With a slash the contents, without it the directory itself.
    let url = site.url("");
    site.godwit(&[
        "cp",
        "-r",
        &format!("{}/", typed(&site, "tree")),
        &format!("{url}inside/"),
    ]);
    assert_same_tree(&paths, &site.local("tree"), &site.at("inside"));
    site.godwit(&["cp", "-r", &typed(&site, "tree"), &format!("{url}inside/")]);
    assert!(site.at("inside/tree/below/deeper still/file 5").is_file());
}

fn uses_its_data_channels_again(kind: Kind) {
    let Some(site) = site(kind) else { return };
    const FILES: usize = 100;
    fs::create_dir(site.local("many")).expect("a directory");
    let paths: Vec<String> = (0..FILES).map(|i| i.to_string()).collect();
    for (i, path) in paths.iter().enumerate() {
        write_noise(&site.local("many").join(path), i * 50, i as u64);
    }
    let (many, url) = (typed(&site, "many/"), site.url("there"));
    let back = typed(&site, "back");
    for (from, to) in [(&many, &url), (&format!("{url}/"), &back)] {
        let options = ["cp", "-vv", "-r", "-c", "1", "-p", "2", "--no-verify"];
        let said = site
            .godwit(&[&options[..], &[from, to]].concat())
            .stderr_text();
        let reused = said.matches("<- 125 ").count();
        assert_eq!(reused, FILES - 1, "{said}");
    }
    assert_same_tree(&paths, &site.local("many"), &site.at("there"));
    assert_same_tree(&paths, &site.local("many"), &site.local("back"));
}

fn copies_what_a_pattern_matches(kind: Kind) {
    let Some(site) = site(kind) else { return };
    for name in ["a1.dat", "a2.dat", "b1.dat", "a3.txt"] {
        fs::write(site.at(name), name).expect("a file");
    }
    let into = |name: &str| {
        fs::create_dir(site.local(name)).expect("a directory");
        typed(&site, name)
    };
    site.godwit(&["cp", &format!("{}a*.dat", site.url("")), &into("one")]);
    assert_eq!(files_below(&site.local("one")), 2);
    assert_holds(&site.local("one/a2.dat"), b"a2.dat");
    site.godwit(&["cp", &format!("{}?[12].dat", site.url("")), &into("two")]);
    assert_eq!(files_below(&site.local("two")), 3);
    let said = site.godwit_exits(4, &["cp", &format!("{}c*", site.url("")), &into("three")]);
    assert!(
        said.contains("c*") && said.contains("no such file"),
        "{said}"
    );
}

fn copies_from_standard_input_and_to_standard_output(kind: Kind) {
    let Some(site) = site(kind) else { return };
    for size in [0, 1, 3_000_001] {
        let bytes = write_noise(&site.local("source"), size, 5);
        let url = site.url("f");
        // A pipe, which tells neither its length nor its place.
        let program = godwit::binary("godwit").expect("present");
        let mut put = Command::new("/bin/sh");
        put.args(["-c", r#"cat "$1" | exec "$2" cp - "$3""#, "sh"]);
        put.args([
            typed(&site, "source").as_ref(),
            program.as_os_str(),
            url.as_ref(),
        ]);
        site.expect_ok(process::run(put, LONG).and_then(process::Finished::success));
        assert_holds(&site.at("f"), &bytes);

        let mut get = Command::new(program);
        get.args(["cp", "-p", "4", &url, "-"]);
        let options = Options {
            output_limit: 8 << 20,
            guarded: false,
        };
        let finished = Process::spawn(get, options).and_then(|process| process.wait(LONG));
        let finished = site.expect_ok(finished.and_then(process::Finished::success));
        assert!(finished.stdout == bytes, "{} bytes", finished.stdout.len());
    }
}

fn copies_parts(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let bytes = write_noise(&site.at("f"), 2_000_000, 1);
    let (url, back) = (site.url("f"), typed(&site, "part"));
    for p in ["1", "4"] {
        for (offset, length) in [(0, 1), (777, 1_000_000), (1_999_999, 1), (1_999_000, 9000)] {
            let (off, len) = (offset.to_string(), length.to_string());
            site.godwit(&[
                "cp", "-p", p, "--offset", &off, "--length", &len, &url, &back,
            ]);
            let end = (offset + length).min(bytes.len());
            assert_holds(&site.local("part"), &bytes[offset..end]);
        }
        site.godwit(&["cp", "-p", p, "--offset", "1500000", &url, &back]);
        assert_holds(&site.local("part"), &bytes[1_500_000..]);
    }
    // A put writes the part where it belongs and keeps the rest.
    let patch = write_noise(&site.local("patch"), 2_000_000, 2);
    let mut expected = bytes;
    expected[300_000..800_000].copy_from_slice(&patch[300_000..800_000]);
    let patch = typed(&site, "patch");
    site.godwit(&[
        "cp", "--offset", "300000", "--length", "500000", &patch, &url,
    ]);
    assert_holds(&site.at("f"), &expected);
}

fn verifies_with_each_algorithm_of_the_server(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let bytes = write_noise(&site.local("source"), 700_001, 9);
    let (source, back, url) = (typed(&site, "source"), typed(&site, "back"), site.url("f"));
    for algorithm in ["adler32", "md5", "sha1", "sha256", "sha512"] {
        let verify = format!("--verify={algorithm}");
        site.godwit(&["cp", &verify, &source, &url]);
        assert_holds(&site.at("f"), &bytes);
        site.godwit(&["cp", &verify, "-p", "2", &url, &back]);
        assert_holds(&site.local("back"), &bytes);
        let said = site.godwit(&["cksum", "-a", algorithm, &url]).stdout_text();
        assert!(said.to_lowercase().contains(algorithm), "{said}");
    }
    site.godwit(&["cp", "--verify", &source, &url]);
    site.godwit(&["cp", "--no-verify", &source, &url]);
    if kind == Kind::Godwitd {
        site.godwit(&["cp", "--verify=crc32c", &source, &url]);
    } else {
        // What cannot be had is an error, not a promise that is not kept.
        let said = site.godwit_exits(4, &["cp", "--verify=crc32c", &source, &url]);
        assert!(said.to_lowercase().contains("crc32c"), "{said}");
    }
}

fn odd_names_survive(kind: Kind) {
    let Some(site) = site(kind) else { return };
    let mut names = odd_names();
    if kind == Kind::Gct {
        // It deletes what is not ASCII from commands in clear text.
        names.retain(|name| name.is_ascii());
    }
    fs::create_dir(site.local("names")).expect("a directory");
    for (seed, name) in (1..).zip(&names) {
        let bytes = write_noise(&site.local("names").join(name), 300, seed);
        let local = typed(&site, &format!("names/{name}"));
        // Encoded, so that no pattern is seen, and no login; a file of the machine is no pattern
        // where it exists.
        let url_of = |name: &str| site.url(name).replace('*', "%2A").replace('@', "%40");
        let url = url_of(name);
        site.godwit(&["cp", "--", &local, &url]);
        assert_holds(&site.at(name), &bytes);
        site.godwit(&["cp", &url, &typed(&site, "back")]);
        assert_holds(&site.local("back"), &bytes);
        site.godwit(&["cksum", &url]);
        let moved = url_of(&format!("{}x", &name[1..]));
        site.godwit(&["mv", &url, &moved]);
        site.godwit(&["rm", &moved]);
    }
    assert_eq!(files_below(&site.at("")), 0);
    let there = site.url("all of them; 100%");
    site.godwit(&["cp", "-r", &typed(&site, "names"), &there]);
    assert_same_tree(&names, &site.local("names"), &site.at("all of them; 100%"));
    site.godwit(&["cp", "-r", &there, &typed(&site, "all back")]);
    assert_same_tree(&names, &site.local("names"), &site.local("all back"));
    let listed = site.godwit(&["ls", &there]).stdout_text();
    let mut listed: Vec<&str> = listed.lines().collect();
    listed.sort_unstable();
    names.sort();
    assert_eq!(listed, names);
}

fn lists_and_describes(kind: Kind) {
    let Some(site) = site(kind) else { return };
    fs::create_dir_all(site.at("folder/below")).expect("a directory");
    fs::create_dir(site.at("many")).expect("a directory");
    fs::write(site.at("folder/f"), "hello").expect("a file");
    let ls = |arguments: &[&str]| {
        let mut all = vec!["ls"];
        all.extend(arguments);
        site.godwit(&all).stdout_text()
    };
    assert_eq!(ls(&[&site.url("many")]), "");
    let mut listed: Vec<String> = ls(&[&site.url("folder")]).lines().map(Into::into).collect();
    listed.sort();
    assert_eq!(listed.len(), 2, "{listed:?}");
    assert!(
        listed[0].starts_with("below") && listed[1] == "f",
        "{listed:?}"
    );
    let long = ls(&["-l", &site.url("folder")]);
    let of = |name: &str| {
        long.lines()
            .find(|line| line.contains(name))
            .expect("listed")
    };
    assert!(
        of(" below").starts_with('d') && of(" f").starts_with("-rw"),
        "{long}"
    );
    assert!(of(" f").contains(" 5 "), "{long}");

    for i in 0..10_000 {
        fs::write(site.at(&format!("many/entry {i}")), "").expect("a file");
    }
    assert_eq!(ls(&[&site.url("many")]).lines().count(), 10_000);

    let stat = site.godwit(&["stat", &site.url("folder/f"), &site.url("folder")]);
    let stat = stat.stdout_text();
    assert!(stat.contains("size: 5"), "{stat}");
    assert!(
        stat.contains("type: file") && stat.contains("type: dir"),
        "{stat}"
    );
    let sum = site
        .godwit(&["cksum", "-a", "md5", &site.url("folder/f")])
        .stdout_text();
    assert!(sum.contains("5d41402abc4b2a76b9719d911017c592"), "{sum}");
}

fn manages_files_and_directories(kind: Kind) {
    let Some(site) = site(kind) else { return };
    site.godwit(&["mkdir", &site.url("a")]);
    site.godwit(&["mkdir", "-p", &site.url("a/b/c d")]);
    site.godwit(&["mkdir", "-p", &site.url("a/b/c d")]);
    assert!(site.at("a/b/c d").is_dir());
    let said = site.godwit_exits(4, &["mkdir", &site.url("a")]);
    assert!(
        said.contains(&site.url("a")) && said.contains("exists"),
        "{said}"
    );
    fs::write(site.at("f"), "x").expect("a file");
    site.godwit(&["chmod", "640", &site.url("f")]);
    let mode = std::os::unix::fs::PermissionsExt::mode(
        &fs::metadata(site.at("f")).expect("f").permissions(),
    );
    assert_eq!(mode & 0o7777, 0o640);
    site.godwit(&["mv", &site.url("f"), &site.url("a/b")]);
    assert_holds(&site.at("a/b/f"), b"x");
    site.godwit(&["mv", &site.url("a/b/f"), &site.url("g")]);
    site.godwit(&["rm", &site.url("g")]);
    assert_eq!(files_below(&site.at("")), 0);
    let said = site.godwit_exits(2, &["rm", &site.url("a")]);
    assert!(said.contains("-r"), "{said}");
    site.godwit(&["rm", "-r", &site.url("a")]);
    assert!(!site.at("a").exists());
}

fn replaces_what_is_there(kind: Kind) {
    let Some(site) = site(kind) else { return };
    write_noise(&site.at("f"), 500_000, 1);
    write_noise(&site.local("back"), 700_000, 2);
    let bytes = write_noise(&site.local("source"), 100_000, 3);
    site.godwit(&["cp", &typed(&site, "source"), &site.url("f")]);
    assert_holds(&site.at("f"), &bytes);
    site.godwit(&["cp", &site.url("f"), &typed(&site, "back")]);
    assert_holds(&site.local("back"), &bytes);
    fs::create_dir(site.local("folder")).expect("a directory");
    site.godwit(&["cp", &site.url("f"), &typed(&site, "folder")]);
    assert_eq!(length_of(&site.local("folder/f")), 100_000);
}

fn works_over_ipv6(kind: Kind) {
    let ip = std::net::Ipv6Addr::LOCALHOST.into();
    if !have(&[Need::Godwit, need(kind)]) || godwit_lab::peers::free_port(ip).is_err() {
        return;
    }
    let site = Site::on_ip(kind, ip);
    let bytes = write_noise(&site.local("source"), 900_000, 1);
    for p in ["1", "4"] {
        site.godwit(&["cp", "-p", p, &typed(&site, "source"), &site.url("f")]);
        assert_holds(&site.at("f"), &bytes);
        site.godwit(&["cp", "-p", p, &site.url("f"), &typed(&site, "back")]);
        assert_holds(&site.local("back"), &bytes);
    }
}
