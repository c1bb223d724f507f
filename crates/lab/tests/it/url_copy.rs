//! The reference client and our server.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::Duration;

use godwit_lab::peers;

use crate::support::{
    Kind, Need, Site, assert_holds, assert_same, assert_same_tree, files_below, has_wildcard, have,
    length_of, noise, odd_names, read_at, write_noise, write_sparse, write_tree,
};
use crate::whole;

const NEEDS: &[Need] = &[Need::Gct, Need::Godwitd];

/// Block of the reference implementation.
const BLOCK: usize = 256 << 10;

fn both_ways(site: &Site, options: &[&str], size: usize) {
    let name = format!("f{size}{}", options.concat());
    let bytes = write_noise(&site.local("source"), size, size as u64);
    let mut put = options.to_vec();
    let (local, remote) = (site.local_url("source"), site.url(&name));
    put.extend([local.as_str(), remote.as_str()]);
    site.url_copy(&put);
    assert_holds(&site.at(&name), &bytes);

    let mut get = options.to_vec();
    let back = site.local_url("back");
    get.extend([remote.as_str(), back.as_str()]);
    site.url_copy(&get);
    assert_holds(&site.local("back"), &bytes);
}

#[test]
fn stream_mode_copies_every_size_both_ways() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for size in [0, 1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 3_000_001] {
        both_ways(&site, &[], size);
    }
}

#[test]
fn block_mode_copies_every_size_over_any_number_of_channels() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for channels in [1, 2, 16, 64] {
        let p = channels.to_string();
        for size in [0, 1, channels - 1, BLOCK * channels, BLOCK * channels + 1] {
            both_ways(&site, &["-p", &p], size);
        }
    }
    both_ways(&site, &["-fast"], 1_000_000);
}

#[test]
fn driver_stacks_that_change_nothing_are_taken() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for options in [
        &["-dcstack", "tcp"][..],
        &["-dcstack", "default"],
        &["-fsstack", "file"],
        &["-p", "2", "-dcstack", "tcp", "-fsstack", "default"],
    ] {
        both_ways(&site, options, 300_000);
    }
}

#[test]
fn block_sizes_and_socket_buffers_are_the_clients_choice() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for options in [
        &["-tcp-bs", "65536"][..],
        &["-tcp-bs", "65536", "-p", "3"],
        &["-bs", "1000", "-p", "2"],
        &["-bs", "5000000", "-p", "2"],
        &["-nodcau", "-fast"],
        &["-no-g2"],
    ] {
        both_ways(&site, options, 2_000_003);
    }
}

#[test]
fn files_beyond_four_gib_keep_every_byte() {
    if !have(NEEDS) {
        return;
    }
    const SIZE: u64 = (4 << 30) + 1;
    const LIMIT: Duration = Duration::from_secs(240);
    let _turn = whole::alone();
    let site = Site::roomy_godwitd(SIZE + SIZE / 4);
    let (here, there) = (site.local("big"), site.at("big"));
    let (local, url) = (site.local_url("big"), site.url("big"));
    // One way in each mode: the content is what costs time.
    write_sparse(&here, SIZE);
    site.url_copy_within(LIMIT, &["-p", "2", &local, &url]);
    assert_same(&here, &there);
    // Sparse again, so that there is only one copy that takes room.
    write_sparse(&there, SIZE);
    fs::remove_file(&here).expect("removes");
    site.url_copy_within(LIMIT, &[&url, &local]);
    assert_same(&there, &here);
}

#[test]
fn offsets_beyond_four_gib_are_kept() {
    if !have(NEEDS) {
        return;
    }
    const OFFSET: u64 = (4 << 30) - 1000;
    let site = Site::new(Kind::Godwitd);
    write_sparse(&site.at("big"), (5 << 30) + 7);
    let (url, part, copy) = (site.url("big"), site.local_url("part"), site.url("copy"));
    let offset = OFFSET.to_string();
    let expected = read_at(&site.at("big"), OFFSET, 100_000);
    assert!(expected.iter().any(|&byte| byte != 0), "a mark at 4 GiB");
    for options in [&[][..], &["-p", "3"]] {
        // The client keeps the offset: its file has a hole before the part.
        let mut get = options.to_vec();
        get.extend(["-off", &offset, "-len", "100000", &url, &part]);
        site.url_copy(&get);
        assert_eq!(length_of(&site.local("part")), OFFSET + 100_000);
        assert_eq!(read_at(&site.local("part"), OFFSET, 100_000), expected);

        let mut put = options.to_vec();
        put.extend(["-off", &offset, &part, &copy]);
        site.url_copy(&put);
        assert_eq!(length_of(&site.at("copy")), OFFSET + 100_000);
        assert_eq!(read_at(&site.at("copy"), OFFSET, 100_000), expected);
        fs::remove_file(site.local("part")).expect("removes");
        fs::remove_file(site.at("copy")).expect("removes");
    }
}

#[test]
fn trees_are_copied_both_ways() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let paths = write_tree(&site.local("tree"));
    for (i, options) in [
        &[][..],
        &["-p", "3"],
        &["-fast"],
        &["-pp"],
        &["-pp", "-fast", "-p", "2"],
        &["-cc", "3"],
        &["-cc", "2", "-fast", "-p", "2"],
    ]
    .into_iter()
    .enumerate()
    {
        let (there, back) = (format!("there {i}/"), format!("back {i}/"));
        let tree = site.local_url("tree/");
        let (remote, local) = (site.url(&there), site.local_url(&back));
        let mut put = vec!["-r", "-cd"];
        put.extend(options);
        put.extend([tree.as_str(), remote.as_str()]);
        site.url_copy(&put);
        assert_same_tree(&paths, &site.local("tree"), &site.at(&there));

        let mut get = vec!["-r", "-cd"];
        get.extend(options);
        get.extend([remote.as_str(), local.as_str()]);
        site.url_copy(&get);
        assert_same_tree(&paths, &site.local("tree"), &site.local(&back));
    }
}

#[test]
fn many_small_files_share_their_channels() {
    if !have(NEEDS) {
        return;
    }
    const FILES: usize = 100;
    let site = Site::new(Kind::Godwitd);
    fs::create_dir(site.local("many")).expect("a directory");
    for i in 0..FILES {
        write_noise(&site.local(&format!("many/{i}")), i * 100, i as u64);
    }
    let paths: Vec<String> = (0..FILES).map(|i| i.to_string()).collect();
    let reused = |log: &str| log.matches("\n125 ").count();

    let there = site.url("there/");
    let put = [
        "-dbg",
        "-r",
        "-cd",
        "-fast",
        &site.local_url("many/"),
        &there,
    ];
    let log = site.url_copy(&put).stderr_text();
    assert_same_tree(&paths, &site.local("many"), &site.at("there"));
    assert_eq!(reused(&log), FILES - 1, "{log}");

    let get = [
        "-dbg",
        "-r",
        "-cd",
        "-fast",
        "-p",
        "4",
        &there,
        &site.local_url("back/"),
    ];
    let log = site.url_copy(&get).stderr_text();
    assert_same_tree(&paths, &site.local("many"), &site.local("back"));
    // The listing came over the same channels first.
    assert_eq!(reused(&log), FILES, "{log}");
}

#[test]
fn parts_of_files_are_copied() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = write_noise(&site.at("f"), 1_000_000, 1);
    let (url, back) = (site.url("f"), site.local_url("part"));
    for options in [&[][..], &["-p", "2"]] {
        for (offset, length) in [
            (0, 1),
            (100, 50),
            (300_000, 600_000),
            (999_999, 1),
            (999_000, 5000),
        ] {
            let (off, len) = (offset.to_string(), length.to_string());
            let mut get = options.to_vec();
            get.extend(["-off", &off, "-len", &len, &url, &back]);
            site.url_copy(&get);
            // The client keeps the offset: its file has a hole before the part.
            let end = (offset + length).min(bytes.len());
            let mut expected = vec![0; offset];
            expected.extend_from_slice(&bytes[offset..end]);
            assert_holds(&site.local("part"), &expected);
            fs::remove_file(site.local("part")).expect("removes");
        }
        // A part that lies past the end is empty, not wrong.
        let mut get = options.to_vec();
        get.extend(["-off", "2000000", "-len", "10", &url, &back]);
        site.url_copy(&get);
        assert_eq!(length_of(&site.local("part")), 0);
    }
}

#[test]
fn parts_are_put_into_files_that_keep_the_rest() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let patch = write_noise(&site.local("patch"), 700_000, 2);
    for options in [&[][..], &["-p", "3"]] {
        let mut expected = write_noise(&site.at("f"), 1_000_000, 1);
        expected[400_000..700_000].copy_from_slice(&patch[400_000..]);
        let (local, url) = (site.local_url("patch"), site.url("f"));
        let mut put = options.to_vec();
        put.extend(["-off", "400000", &local, &url]);
        site.url_copy(&put);
        assert_holds(&site.at("f"), &expected);
    }
}

#[test]
fn synchronising_copies_only_what_differs() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let paths = write_tree(&site.local("tree"));
    let (tree, there) = (site.local_url("tree/"), site.url("there/"));
    for level in ["0", "1", "2", "3"] {
        let sync = [
            "-dbg",
            "-r",
            "-cd",
            "-sync",
            "-sync-level",
            level,
            &tree,
            &there,
        ];
        let stored = || {
            site.url_copy(&sync)
                .stderr_text()
                .matches("\nSTOR ")
                .count()
        };
        let _ = fs::remove_dir_all(site.at("there"));
        assert_eq!(stored(), paths.len(), "level {level}");
        assert_same_tree(&paths, &site.local("tree"), &site.at("there"));
        assert_eq!(stored(), 0, "level {level}");
        fs::write(site.at("there/file 3"), "short").expect("writes");
        fs::remove_file(site.at("there/below/file 2")).expect("removes");
        let expected = if level == "0" { 1 } else { 2 };
        assert_eq!(stored(), expected, "level {level}");
    }
}

#[test]
fn checksums_agree_with_the_clients() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = write_noise(&site.local("f"), 1_234_567, 5);
    let (local, url) = (site.local_url("f"), site.url("f"));
    // ADLER32 is unknown to the client; it can only let two servers compare.
    for algorithm in ["MD5", "SHA1", "SHA256", "SHA512"] {
        let verified = ["-verify-checksum", "-checksum-alg", algorithm];
        site.url_copy(&[&verified[..], &[&local, &url]].concat());
        assert_holds(&site.at("f"), &bytes);
        site.url_copy(&[&verified[..], &["-p", "2", &url, &site.local_url("back")]].concat());
        assert_holds(&site.local("back"), &bytes);
        fs::remove_file(site.at("f")).expect("removes");
    }
}

#[test]
fn odd_names_survive_both_ways() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    fs::create_dir(site.local("names")).expect("a directory");
    let names = odd_names();
    for (seed, name) in (1..).zip(&names) {
        let bytes = write_noise(&site.local("names").join(name), 300, seed);
        // The client takes even encoded wildcards for wildcards.
        if has_wildcard(name) {
            continue;
        }
        let local = site.local_url(&format!("names/{name}"));
        site.url_copy(&[&local, &site.url(name)]);
        assert_holds(&site.at(name), &bytes);
        site.url_copy(&["-p", "2", &site.url(name), &site.local_url("back")]);
        assert_holds(&site.local("back"), &bytes);
    }
    // With -r and -cd the client does not encode what it decoded, and stumbles over some.
    let (refused, names): (Vec<_>, Vec<_>) = names
        .into_iter()
        .partition(|name| name.contains(['%', '"']));
    for name in refused {
        fs::remove_file(site.local("names").join(name)).expect("removes");
    }
    let there = site.url("all of them; =/");
    site.url_copy(&["-r", "-cd", "-fast", &site.local_url("names/"), &there]);
    assert_same_tree(&names, &site.local("names"), &site.at("all of them; ="));
    site.url_copy(&["-r", "-cd", &there, &site.local_url("all back/")]);
    assert_same_tree(&names, &site.local("names"), &site.local("all back"));
}

#[test]
fn listings_are_understood() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let listed = |path: &str| -> Vec<String> {
        let output = site.url_copy(&["-list", &site.url(path)]).stdout_text();
        let lines = output.lines().skip(1).filter(|line| !line.is_empty());
        // Four blanks, the name, one blank.
        let name = |line: &str| line[4..].strip_suffix(' ').unwrap_or(&line[4..]).to_owned();
        let mut names: Vec<String> = lines.map(name).collect();
        names.sort();
        names
    };
    for name in ["empty", "full", "full/folder", "many"] {
        fs::create_dir(site.at(name)).expect("a directory");
    }
    assert!(listed("empty/").is_empty());

    let mut expected = odd_names();
    // Shown as part of a URL.
    expected.retain(|name| !name.contains('"'));
    for name in &expected {
        fs::write(site.at("full").join(name), "x").expect("a file");
    }
    symlink("nowhere", site.at("full/dangling")).expect("a link");
    expected.push("folder/".into());
    expected.sort();
    assert_eq!(listed("full/"), expected);

    let mut expected: Vec<String> = (0..10_000).map(|i| format!("entry {i:05}")).collect();
    for name in &expected {
        fs::write(site.at("many").join(name), "").expect("a file");
    }
    expected.sort();
    assert_eq!(listed("many/"), expected);
}

#[test]
fn wildcards_choose_files() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for name in ["a1.dat", "a2.dat", "b1.dat", "a3.txt"] {
        fs::write(site.at(name), name).expect("a file");
    }
    fs::create_dir(site.local("got")).expect("a directory");
    let pattern = format!("{}a[12]*.dat", site.url(""));
    site.url_copy(&[pattern.as_str(), &site.local_url("got/")]);
    assert_eq!(files_below(&site.local("got")), 2);
    assert_holds(&site.local("got/a2.dat"), b"a2.dat");
}

#[test]
fn striped_and_delayed_passive_copies_arrive() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    for options in [
        &["-stripe"][..],
        &["-stripe", "-p", "4"],
        &["-dp"],
        &["-dp", "-fast"],
        &["-dp", "-p", "4"],
    ] {
        both_ways(&site, options, 3_000_001);
    }
    let paths = write_tree(&site.local("tree"));
    let tree = site.local_url("tree/");
    site.url_copy(&["-dp", "-fast", "-r", "-cd", &tree, &site.url("there/")]);
    assert_same_tree(&paths, &site.local("tree"), &site.at("there"));
}

#[test]
fn extended_addresses_work_on_both_families() {
    if !have(NEEDS) {
        return;
    }
    let v4 = Site::new(Kind::Godwitd);
    for options in [&["-ipv6"][..], &["-ipv6", "-p", "3"]] {
        both_ways(&v4, options, 600_000);
    }
    let ip = IpAddr::V6(Ipv6Addr::LOCALHOST);
    if peers::free_port(ip).is_err() {
        return;
    }
    let v6 = Site::on_ip(Kind::Godwitd, ip);
    for options in [
        &["-ipv6"][..],
        &["-ipv6", "-p", "3"],
        &["-ipv6", "-stripe", "-p", "2"],
    ] {
        both_ways(&v6, options, 600_000);
    }
}

#[test]
fn a_greeting_of_several_lines_is_one_reply() {
    if !have(NEEDS) {
        return;
    }
    let banner = "Welcome.\n220 is not the end\n\n  of it";
    let site = Site::godwitd(|root| {
        let config = peers::godwit::Godwitd::serving(root);
        config.arg("--banner").arg(banner).start().expect("starts")
    });
    both_ways(&site, &["-p", "2"], 1000);
}

#[test]
fn failures_are_reported_and_leave_no_file() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    write_noise(&site.local("f"), 100_000, 1);
    fs::create_dir(site.at("folder")).expect("a directory");
    let (local, back) = (site.local_url("f"), site.local_url("back"));
    for options in [&[][..], &["-p", "2"]] {
        let run = |source: &str, target: &str| {
            let mut arguments = options.to_vec();
            arguments.extend([source, target]);
            site.url_copy_fails(&arguments)
        };
        let log = run(&site.url("absent"), &back);
        assert!(log.contains("No such file or directory"), "{log}");
        let log = run(&local, &site.url("absent/f"));
        assert!(log.contains("No such file or directory"), "{log}");
        let log = run(&local, &site.url("folder"));
        assert!(log.contains("Is a directory"), "{log}");
        assert_eq!(files_below(&site.at("")), 0);
    }
}

/// A list of copies as `-f` reads it.
pub(crate) fn write_list(path: &Path, copies: &[(String, String)]) {
    let lines = copies.iter().map(|(from, to)| format!("{from} {to}\n"));
    fs::write(path, lines.collect::<String>()).expect("a list");
}

#[test]
fn a_file_that_fails_stops_no_other() {
    if !have(NEEDS) {
        return;
    }
    let site = Site::new(Kind::Godwitd);
    let bytes = noise(50_000, 3);
    let list = site.local("list");
    let name = list.to_str().expect("UTF-8");
    for (i, options) in [&[][..], &["-p", "2"], &["-fast"]].into_iter().enumerate() {
        let there = format!("there {i}");
        fs::create_dir_all(site.at(&there).join("2")).expect("a directory in the way");
        let copies: Vec<_> = (0..5)
            .map(|n| {
                fs::write(site.local(&n.to_string()), &bytes).expect("a file");
                let target = site.url(&format!("{there}/{n}"));
                (site.local_url(&n.to_string()), target)
            })
            .collect();
        write_list(&list, &copies);
        let mut copy = vec!["-c"];
        copy.extend(options);
        copy.extend(["-f", name]);
        let log = site.url_copy_fails(&copy);
        assert!(log.contains("Is a directory"), "{log}");
        // In block mode the client has lost its channels and fails one more file by itself.
        let next = if options.is_empty() { 3 } else { 4 };
        for n in [0, 1, next, 4] {
            assert_holds(&site.at(&there).join(n.to_string()), &bytes);
        }

        if !options.is_empty() {
            // The other way it does not even come to an end: it aborts, whatever the server.
            continue;
        }
        let copies: Vec<_> = copies.into_iter().map(|(to, from)| (from, to)).collect();
        write_list(&list, &copies);
        for n in 0..5 {
            fs::remove_file(site.local(&n.to_string())).expect("removes");
        }
        site.url_copy_fails(&copy);
        for n in [0, 1, 3, 4] {
            assert_holds(&site.local(&n.to_string()), &bytes);
        }
    }
}
