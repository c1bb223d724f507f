//! Sparse files: what travels of them, and that they are sparse again where they arrive.

use std::{
    fs::{self, File},
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    thread,
    time::{Duration, Instant},
};

use rustix::fs::{SeekFrom, seek};

use crate::harness::{Ran, Served, bytes, godwit, run, text, tree};

/// Multiple of the blocks of any file system that tests run on.
const UNIT: u64 = 1 << 16;

/// Bytes of a file in units; the rest are holes.
const DATA: [(u64, u64); 4] = [(1, 2), (40, 44), (700, 701), (900, 932)];

const LENGTH: u64 = 1000;

fn make_sparse(path: &Path, data: &[(u64, u64)], length: u64) {
    let file = File::create(path).unwrap();
    file.set_len(length * UNIT).unwrap();
    for (start, end) in data {
        let bytes = bytes(usize::try_from((end - start) * UNIT).unwrap(), *start);
        file.write_all_at(&bytes, start * UNIT).unwrap();
    }
}

/// Ranges that are stored, in units.
fn map(path: &Path) -> Vec<(u64, u64)> {
    let file = File::open(path).unwrap();
    let (mut map, mut at) = (Vec::new(), 0);
    while let Ok(start) = seek(&file, SeekFrom::Data(at)) {
        at = seek(&file, SeekFrom::Hole(start)).unwrap();
        map.push((start / UNIT, at.div_ceil(UNIT)));
    }
    map
}

fn assert_alike(a: &Path, b: &Path) {
    assert!(fs::read(a).unwrap() == fs::read(b).unwrap(), "{a:?} {b:?}");
    assert_eq!(map(a), map(b));
    // Room that was set aside is given back.
    let stored = |path| fs::metadata(path).unwrap().blocks();
    assert_eq!(stored(a), stored(b));
}

fn bytes_of(ran: &Ran) -> u64 {
    let summary: serde_json::Value = serde_json::from_slice(&ran.out).unwrap();
    summary["bytes"].as_u64().unwrap()
}

struct Here {
    folder: tempfile::TempDir,
    served: Served,
}

impl Here {
    fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
            served: Served::start(),
        }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn sparse(&self) -> PathBuf {
        let path = self.path("sparse");
        make_sparse(&path, &DATA, LENGTH);
        path
    }
}

#[test]
fn sparse_files_are_sparse_there_and_back() {
    for options in [&["-p", "1", "-c", "1"][..], &["-p", "3", "-c", "2"]] {
        let here = Here::new();
        let (source, back) = (here.sparse(), here.path("back"));
        let (source_text, url) = (text(&source), here.served.url("/f"));
        let cp = [&["cp", "-q", "--json"][..], options].concat();
        let put = run(&[&cp[..], &[source_text, &url]].concat()).expect(0, &[]);
        assert_alike(&source, &here.served.path("f"));
        let get = run(&[&cp[..], &[&url, text(&back)]].concat()).expect(0, &[]);
        assert_alike(&source, &back);
        // What is done, whatever travelled.
        assert_eq!([bytes_of(&put), bytes_of(&get)], [LENGTH * UNIT; 2]);
    }
}

#[test]
fn small_sparse_files_in_a_pipeline_too() {
    let here = Here::new();
    let (tree_here, back) = (here.path("tree"), here.path("back"));
    fs::create_dir(&tree_here).unwrap();
    for i in 0..8 {
        let data = [(i, i + 1), (10 + i, 11 + i)];
        make_sparse(&tree_here.join(format!("f{i}")), &data, 20 + i % 3);
    }
    fs::write(tree_here.join("dense"), bytes(100_000, 1)).unwrap();
    make_sparse(&tree_here.join("nothing"), &[], 7);
    let url = here.served.url("/t/");
    run(&["cp", "-r", &format!("{}/", text(&tree_here)), &url]).expect(0, &["10 files"]);
    run(&["cp", "-r", &url, &format!("{}/", text(&back))]).expect(0, &["10 files"]);
    for name in tree(&tree_here) {
        assert_alike(&tree_here.join(&name), &here.served.path("t").join(&name));
        assert_alike(&tree_here.join(&name), &back.join(&name));
    }
}

#[test]
fn sparse_files_go_from_server_to_server() {
    let (from, to) = (Here::new(), Here::new());
    make_sparse(&from.served.path("f"), &DATA, LENGTH);
    for options in [&["-p", "1"][..], &["-p", "2", "-c", "2"]] {
        let urls = [from.served.url("/f"), to.served.url("/g")];
        run(&[&["cp"][..], options, &[&urls[0], &urls[1]]].concat()).expect(0, &["1 file"]);
        assert_alike(&from.served.path("f"), &to.served.path("g"));
        fs::remove_file(to.served.path("g")).unwrap();
    }
}

#[test]
fn holes_are_sent_where_the_user_wants_it_so() {
    let here = Here::new();
    let (source, back) = (here.sparse(), here.path("back"));
    let url = here.served.url("/f");
    run(&["cp", "--no-sparse", text(&source), &url]).expect(0, &[]);
    assert!(fs::read(&source).unwrap() == fs::read(here.served.path("f")).unwrap());
    assert_eq!(map(&here.served.path("f")), [(0, LENGTH)]);
    make_sparse(&here.served.path("f"), &DATA, LENGTH);
    run(&["cp", "--no-sparse", &url, text(&back)]).expect(0, &[]);
    assert_eq!(map(&back), [(0, LENGTH)]);
}

#[test]
fn standard_output_gets_zeros() {
    let here = Here::new();
    make_sparse(&here.served.path("f"), &DATA, LENGTH);
    let ran = run(&["cp", &here.served.url("/f"), "-"]).expect(0, &[]);
    assert!(ran.out == fs::read(here.served.path("f")).unwrap());
}

/// More than any disk has: a warning says so, and the copy may still succeed.
#[test]
fn a_file_larger_than_the_free_space_is_reported_at_once() {
    let here = Here::new();
    let file = File::create(here.served.path("f")).unwrap();
    file.set_len(1 << 43).unwrap();
    let (url, back) = (here.served.url("/f"), here.path("back"));
    let get = ["cp", "--no-verify", &url, text(&back)];
    run(&get).expect(0, &["8.00 TiB are to come", "are free"]);
    let got = fs::metadata(&back).unwrap();
    assert_eq!((got.len(), got.blocks()), (1 << 43, 0));
}

/// A part is written into what is there: nothing of that may show through.
#[test]
fn parts_overwrite_old_data() {
    let here = Here::new();
    let source = here.sparse();
    let whole = usize::try_from(LENGTH * UNIT).unwrap();
    let old = bytes(whole, 99);
    let (from, to) = (40 * 65_536 - 100, 890 * 65_536 + 5);
    let part = |dir: [&str; 2]| {
        let (offset, length) = (from.to_string(), (to - from).to_string());
        let cp = ["cp", "--offset", &offset, "--length", &length];
        run(&[&cp[..], &dir].concat()).expect(0, &[]);
    };
    fs::write(here.served.path("f"), &old).unwrap();
    let url = here.served.url("/f");
    part([text(&source), &url]);
    let mut want = old;
    want[from..to].copy_from_slice(&fs::read(&source).unwrap()[from..to]);
    let there = here.served.path("f");
    assert!(fs::read(&there).unwrap() == want);
    assert_eq!(map(&there), [(0, 44), (700, 701), (890, LENGTH)]);
}

/// Kills a copy in the midst of a file, spoils what lies in its holes, and gives the same command
/// again.
#[test]
fn a_copy_killed_amid_holes_is_resumed() {
    /// Bytes every now and then.
    const SPREAD: u64 = 8;
    let data: Vec<_> = (0..120)
        .map(|n| (n * SPREAD, n * SPREAD + 1 + n % 3))
        .collect();
    for upload in [true, false] {
        let here = Here::new();
        let (source, target, folder) = match upload {
            true => (
                here.path("f"),
                here.served.path("f"),
                here.served.root.path(),
            ),
            false => (here.served.path("f"), here.path("f"), here.folder.path()),
        };
        make_sparse(&source, &data, LENGTH);
        let (local, url) = (here.path("f"), here.served.url("/f"));
        let (from, to) = match upload {
            true => (text(&local), url.as_str()),
            false => (url.as_str(), text(&local)),
        };
        let journal = tempfile::NamedTempFile::new().unwrap();
        let command = |options: &[&str]| {
            let cp = [
                "cp",
                "-c",
                "1",
                "-p",
                "2",
                "--journal",
                text(journal.path()),
            ];
            godwit(&[&cp[..], options, &[from, to]].concat())
        };
        // Too slow to end.
        let mut slow = command(&["--max-rate", "16M"]).spawn().unwrap();
        let begun = || {
            fs::read_dir(folder).unwrap().find_map(|entry| {
                let path = entry.unwrap().path();
                let partial = path.file_name()?.to_str()?.starts_with(".godwit-");
                (partial && fs::metadata(&path).ok()?.blocks() * 512 > 3 << 20).then_some(path)
            })
        };
        let deadline = Instant::now() + Duration::from_secs(60);
        let partial = loop {
            if let Some(path) = begun() {
                break path;
            }
            assert!(Instant::now() < deadline, "nothing arrives");
            thread::sleep(Duration::from_millis(5));
        };
        slow.kill().unwrap();
        slow.wait().unwrap();
        // The server hears of it at once; whatever it writes until then is right.
        let spoilt = File::options().write(true).open(&partial).unwrap();
        spoilt.write_all_at(&[0xff; 100_000], 5 * UNIT).unwrap();
        let reached = fs::metadata(&partial).unwrap().len();
        assert!(reached < LENGTH * UNIT, "it has ended");
        let ran: Ran = command(&[]).output().unwrap().into();
        ran.expect(0, &["1 file"]);
        assert_alike(&source, &target);
        assert_eq!(tree(folder), ["f"]);
    }
}
