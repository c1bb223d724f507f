//! `--direct-io` at both ends: the same files, whatever their lengths, and a word where it cannot
//! be.

use std::{fs, path::Path};

use crate::harness::{Served, bytes, run, text};

const LENGTHS: [usize; 6] = [0, 1, 70_000, 1 << 20, (3 << 20) + 4097, (5 << 20) - 1];

fn assert_alike(a: &Path, b: &Path) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{a:?} {b:?}");
}

fn name(length: usize) -> String {
    format!("f{length}")
}

#[test]
fn trees_go_there_and_back() {
    let served = Served::start_with(|settings| settings.direct_io = true);
    let folder = tempfile::tempdir().unwrap();
    let source = folder.path().join("source");
    fs::create_dir(&source).unwrap();
    for length in LENGTHS {
        fs::write(source.join(name(length)), bytes(length, 1)).unwrap();
    }
    for (round, options) in [&["-p", "1", "-c", "1"][..], &["-p", "3", "-c", "2"]]
        .into_iter()
        .enumerate()
    {
        let there = served.url(&format!("/{round}/"));
        let back = folder.path().join(round.to_string());
        let cp = [&["cp", "-r", "--direct-io"][..], options].concat();
        let (from, to) = (format!("{}/", text(&source)), format!("{}/", text(&back)));
        run(&[&cp[..], &[&from, &there]].concat()).expect(0, &["6 files"]);
        run(&[&cp[..], &[&there, &to]].concat()).expect(0, &["6 files"]);
        for name in LENGTHS.map(name) {
            let there = served.path(&round.to_string()).join(&name);
            assert_alike(&source.join(&name), &there);
            assert_alike(&source.join(&name), &back.join(&name));
        }
    }
}

#[test]
fn parts_of_files_are_put_where_they_belong() {
    let served = Served::start_with(|settings| settings.direct_io = true);
    let folder = tempfile::tempdir().unwrap();
    let (source, back) = (folder.path().join("f"), folder.path().join("back"));
    let content = bytes(4 << 20, 3);
    fs::write(&source, &content).unwrap();
    fs::write(served.path("f"), vec![7; 4 << 20]).unwrap();
    let (from, to) = (text(&source), served.url("/f"));
    let part = ["--offset", "1000001", "--length", "2000003"];
    let cp = [&["cp", "--direct-io", "-p", "2"][..], &part].concat();
    run(&[&cp[..], &[from, &to]].concat()).expect(0, &[]);
    run(&[&cp[..], &[&to, text(&back)]].concat()).expect(0, &[]);
    let part = 1_000_001..3_000_004;
    let mut want = vec![7; 4 << 20];
    want[part.clone()].copy_from_slice(&content[part.clone()]);
    assert!(fs::read(&back).unwrap() == content[part]);
    assert!(fs::read(served.path("f")).unwrap() == want);
}

/// Files of /proc are regular, and have no such way.
#[test]
fn a_file_system_without_direct_io_is_reported_once() {
    let served = Served::start();
    let [a, b] = ["/proc/self/status", "/proc/self/stat"];
    let to = served.url("/d/");
    let notes = |options: &[&str]| {
        let cp = [&["cp", "-v", "--no-verify"][..], options, &[a, b, &to]].concat();
        let said = run(&cp).expect(0, &["2 files"]).err;
        said.matches("no direct I/O there").count()
    };
    assert_eq!(notes(&[]), 0);
    assert_eq!(notes(&["--direct-io"]), 1);
}
