//! The reference client controls two servers, at least one of them ours.

use std::fs;

use godwit_lab::peers::gct::GctServer;

use crate::support::{
    Kind, Need, Site, assert_holds, assert_same_tree, have, noise, write_noise, write_sparse,
    write_tree,
};
use crate::url_copy::write_list;

const NEEDS: &[Need] = &[Need::Gct, Need::Godwitd];

/// Source and destination.
const PAIRS: [(Kind, Kind); 3] = [
    (Kind::Godwitd, Kind::Gct),
    (Kind::Gct, Kind::Godwitd),
    (Kind::Godwitd, Kind::Godwitd),
];

fn copies_a_file(from: &Site, to: &Site, options: &[&str], size: usize) {
    let bytes = write_noise(&from.at("source"), size, size as u64);
    let _ = fs::remove_file(to.at("copy"));
    let (source, target) = (from.url("source"), to.url("copy"));
    let mut arguments = options.to_vec();
    arguments.extend([source.as_str(), target.as_str()]);
    to.url_copy(&arguments);
    assert_holds(&to.at("copy"), &bytes);
}

#[test]
fn single_files_travel_between_servers() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        for options in [
            &[][..],
            &["-p", "1"],
            &["-p", "4"],
            &["-p", "64"],
            &["-fast"],
            &["-fast", "-p", "2"],
            &["-dp"],
            &["-dp", "-p", "3"],
            &["-stripe"],
            &["-stripe", "-p", "2"],
            &["-stripe", "-sbs", "100000", "-p", "2"],
            &["-stripe", "-sbs", "0"],
            &["-rst"],
            &["-rst", "-p", "2"],
            &["-tcp-bs", "65536", "-p", "2"],
            &["-verify-checksum", "-p", "2"],
            &["-verify-checksum", "-checksum-alg", "ADLER32"],
            &["-verify-checksum", "-checksum-alg", "SHA512"],
            &["-ipv6"],
            &["-ipv6", "-p", "2"],
        ] {
            for size in [0, 1, 2_000_003] {
                copies_a_file(&from, &to, options, size);
            }
        }
    }
}

#[test]
fn parts_of_files_travel_between_servers() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        let bytes = write_noise(&from.at("f"), 1_000_000, 1);
        for options in [&[][..], &["-p", "2"]] {
            let (source, target) = (from.url("f"), to.url("part"));
            let mut arguments = options.to_vec();
            arguments.extend(["-len", "300000", &source, &target]);
            to.url_copy(&arguments);
            assert_holds(&to.at("part"), &bytes[..300_000]);
            fs::remove_file(to.at("part")).expect("removes");
        }
    }
}

#[test]
fn trees_travel_between_servers() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        let paths = write_tree(&from.at("tree"));
        for (i, options) in [
            &[][..],
            &["-p", "2"],
            &["-fast"],
            &["-fast", "-p", "4"],
            &["-pp"],
            &["-pp", "-p", "2"],
            &["-pp", "-fast", "-p", "2"],
            &["-cc", "2"],
            &["-cc", "2", "-fast", "-p", "2"],
            &["-cc", "3", "-pp", "-p", "2"],
            &["-dp", "-fast", "-p", "2"],
            &["-stripe", "-fast"],
            &["-rst", "-fast"],
        ]
        .into_iter()
        .enumerate()
        {
            let there = format!("there{i}/");
            let (source, target) = (from.url("tree/"), to.url(&there));
            let mut arguments = vec!["-r", "-cd"];
            arguments.extend(options);
            arguments.extend([source.as_str(), target.as_str()]);
            to.url_copy(&arguments);
            assert_same_tree(&paths, &from.at("tree"), &to.at(&there));
        }
    }
}

#[test]
fn many_small_files_share_the_channels_between_servers() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        fs::create_dir(from.at("many")).expect("a directory");
        let paths: Vec<String> = (0..100).map(|i| i.to_string()).collect();
        for (i, path) in paths.iter().enumerate() {
            write_noise(&from.at("many").join(path), i * 50, i as u64);
        }
        for options in [&["-fast", "-p", "4"][..], &["-pp", "-fast", "-p", "4"]] {
            let (source, target) = (from.url("many/"), to.url("there/"));
            let mut arguments = vec!["-dbg", "-r", "-cd"];
            arguments.extend(options);
            arguments.extend([source.as_str(), target.as_str()]);
            let log = to.url_copy(&arguments).stderr_text();
            assert_same_tree(&paths, &from.at("many"), &to.at("there"));
            let reused = log.matches("\n125 ").count();
            assert!(reused >= 2 * 99, "{pair:?} {options:?}: {reused}\n{log}");
            fs::remove_dir_all(to.at("there")).expect("removes");
        }
    }
}

/// The node that `SPAS` names is each of several, or ours gets several addresses.
#[test]
fn a_server_of_several_nodes_is_met() {
    if !have(NEEDS) {
        return;
    }
    let striped = || {
        Site::gct(|root| {
            let config = GctServer::serving(root).data_nodes(2);
            config.start().expect("starts")
        })
    };
    let (ours, theirs) = (Site::new(Kind::Godwitd), striped());
    for (from, to) in [(&ours, &theirs), (&theirs, &ours)] {
        for options in [
            &["-stripe"][..],
            &["-stripe", "-p", "3"],
            &["-stripe", "-sbs", "100000", "-p", "2"],
            &["-stripe", "-sbs", "0", "-p", "2"],
        ] {
            for size in [0, 1, 1_000_000, 5_000_001] {
                copies_a_file(from, to, options, size);
            }
        }
    }
}

#[test]
fn a_store_that_fails_at_once_is_reported_and_stops_no_other() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        let bytes = noise(80_000, 4);
        for n in 0..5 {
            fs::write(from.at(&n.to_string()), &bytes).expect("a file");
        }
        // Not with -pp: there the client never starts the last file, whatever the servers.
        for (i, options) in [&[][..], &["-p", "2"], &["-fast"]].into_iter().enumerate() {
            let there = format!("there{i}");
            fs::create_dir_all(to.at(&there).join("2")).expect("a directory in the way");
            let copies: Vec<_> = (0..5)
                .map(|n| (from.url(&n.to_string()), to.url(&format!("{there}/{n}"))))
                .collect();
            let list = from.local("list");
            write_list(&list, &copies);
            let mut arguments = vec!["-dbg", "-c"];
            arguments.extend(options);
            arguments.extend(["-f", list.to_str().expect("UTF-8")]);
            let log = to.url_copy_fails(&arguments);
            // In the dialogue: the client's last word may be the source's complaint.
            if pair.1 == Kind::Godwitd {
                assert!(log.contains("Is a directory"), "{log}");
            }
            for n in [0, 1, 3, 4] {
                assert_holds(&to.at(&there).join(n.to_string()), &bytes);
            }
        }
    }
}

#[test]
fn a_source_that_is_missing_stops_no_other() {
    if !have(NEEDS) {
        return;
    }
    for pair in PAIRS {
        let (from, to) = (Site::new(pair.0), Site::new(pair.1));
        let bytes = noise(80_000, 4);
        for n in [0, 1, 3, 4] {
            fs::write(from.at(&n.to_string()), &bytes).expect("a file");
        }
        for (i, options) in [&[][..], &["-p", "2"], &["-fast"]].into_iter().enumerate() {
            let there = format!("there{i}");
            fs::create_dir(to.at(&there)).expect("a directory");
            let copies: Vec<_> = (0..5)
                .map(|n| (from.url(&n.to_string()), to.url(&format!("{there}/{n}"))))
                .collect();
            let list = from.local("list");
            write_list(&list, &copies);
            let mut arguments = vec!["-c"];
            arguments.extend(options);
            arguments.extend(["-f", list.to_str().expect("UTF-8")]);
            to.url_copy_fails(&arguments);
            for n in [0, 1, 3, 4] {
                assert_holds(&to.at(&there).join(n.to_string()), &bytes);
            }
        }
    }
}

#[test]
fn markers_tell_the_progress_of_a_store() {
    if !have(NEEDS) {
        return;
    }
    let (from, to) = (Site::new(Kind::Gct), Site::new(Kind::Godwitd));
    write_sparse(&from.at("f"), 50_000_001);
    let arguments = ["-dbg", "-p", "2", &from.url("f"), &to.url("f")];
    let log = to.url_copy(&arguments).stderr_text();
    let bytes: Vec<u64> = log
        .lines()
        .filter_map(|line| line.trim().strip_prefix("Stripe Bytes Transferred: "))
        .map(|count| count.trim().parse().expect("a count"))
        .collect();
    assert_eq!(bytes.first(), Some(&0), "{log}");
    assert_eq!(bytes.last(), Some(&50_000_001), "{log}");
    assert!(bytes.is_sorted(), "{bytes:?}");
    assert!(log.contains("111 Range Marker "), "{log}");
}
