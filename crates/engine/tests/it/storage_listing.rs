//! Listings as they go over a data connection.

use std::{io::Read, sync::Arc};

use godwit_engine::storage::{
    Entries, FileRef, MemoryStorage, Metadata, NullStorage, PosixStorage, Result, Storage,
    WriteMode, failure,
    faulty::{Fault, FaultyStorage, Operation},
    listing::{Listing, directory_facts},
};
use godwit_proto::{
    FtpPath,
    facts::{FactSelection, FactType, Facts, parse_line},
    pi::server::ListForm,
    timestamp::Timestamp,
};

const ENOENT: i32 = 2;
const EIO: i32 = 5;
const EACCES: i32 = 13;
const ENOTDIR: i32 = 20;

const NOW: Timestamp = Timestamp(1_795_242_095);
const FACTS: ListForm = ListForm::Facts(FactSelection::ALL);

fn recursive(continue_on_error: bool, follow_links: bool) -> ListForm {
    ListForm::FactsRecursive {
        selection: FactSelection::ALL,
        continue_on_error,
        follow_links,
    }
}

fn p(path: &str) -> FtpPath {
    FtpPath::new(path).unwrap()
}

/// A tree: names that end in `/` are directories, `a->b` are links.
fn tree(names: &[&str]) -> Arc<dyn Storage> {
    let storage = MemoryStorage::new();
    for name in names {
        if let Some(dir) = name.strip_suffix('/') {
            storage.create_dir(&p(&format!("/{dir}"))).unwrap();
        } else if let Some((link, target)) = name.split_once("->") {
            storage
                .symlink(&p(target), &p(&format!("/{link}")))
                .unwrap();
        } else {
            let file = storage
                .open_write(&p(&format!("/{name}")), WriteMode::New)
                .unwrap();
            file.write_all_at(0, b"12345").unwrap();
        }
    }
    Arc::new(storage)
}

fn lines(storage: &Arc<dyn Storage>, path: &str, form: ListForm) -> Vec<String> {
    let mut text = String::new();
    Listing::open(Arc::clone(storage), &p(path), form, NOW)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert!(text.is_empty() || text.ends_with("\r\n"));
    let lines = text
        .split_terminator("\r\n")
        .map(str::to_owned)
        .collect::<Vec<_>>();
    assert!(lines.iter().all(|l| !l.contains(['\r', '\n'])));
    lines
}

fn facts(storage: &Arc<dyn Storage>, path: &str, form: ListForm) -> Vec<(String, Facts)> {
    lines(storage, path, form)
        .iter()
        .map(|line| {
            let (facts, name) = parse_line(line.as_bytes()).unwrap();
            (String::from_utf8(name).unwrap(), facts)
        })
        .collect()
}

fn names(found: &[(String, Facts)]) -> Vec<&str> {
    found.iter().map(|(name, _)| name.as_str()).collect()
}

#[track_caller]
fn refused(storage: &Arc<dyn Storage>, path: &str, form: ListForm, errno: i32) {
    match Listing::open(Arc::clone(storage), &p(path), form, NOW) {
        Ok(_) => panic!("{path}: errno {errno} expected"),
        Err(failure) => assert_eq!(failure.errno, errno, "{failure}"),
    }
}

#[test]
fn names_of_directories_files_and_patterns() {
    let storage = tree(&[
        "d/", "d/a.dat", "d/b.dat", "d/.c.dat", "d/e", "d/sub/", "[x]", "l->d",
    ]);
    let list = |path| lines(&storage, path, ListForm::Names);
    assert_eq!(list("/d"), [".c.dat", "a.dat", "b.dat", "e", "sub"]);
    assert_eq!(list("/l"), list("/d"));
    assert_eq!(list("/d/sub"), [""; 0]);
    assert_eq!(list("/d/e"), ["e"]);
    assert_eq!(list("/d/*.dat"), ["a.dat", "b.dat"]);
    assert_eq!(list("/l/[!a]*"), ["b.dat", "e", "sub"]);
    assert_eq!(list("/[x]"), ["[x]"], "a name that is there is no pattern");
    refused(&storage, "/d/*.no", ListForm::Names, ENOENT);
    refused(&storage, "/no/*", ListForm::Names, ENOENT);
    refused(&storage, "/d/no", ListForm::Long, ENOENT);
    refused(&storage, "/d/e/*", ListForm::Long, ENOTDIR);
}

#[test]
fn long_lines_look_like_ls() {
    let storage = tree(&["d/", "d/f", "d/sub/"]);
    let modified =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_795_241_134);
    storage.set_modified(&p("/d/f"), modified).unwrap();
    storage.set_mode(&p("/d/f"), 0o640).unwrap();
    let listed = lines(&storage, "/d", ListForm::Long);
    assert_eq!(
        listed[0],
        "-rw-r-----   1 root root            5 Nov 21 06:05 f"
    );
    assert!(listed[1].starts_with("drwxr-xr-x   1 root root") && listed[1].ends_with(" sub"));
}

#[test]
fn mlsd_begins_with_the_directory_and_its_parent() {
    let storage = tree(&["d/", "d/a", "d/b/", "d/l->a", "d/dangling->x"]);
    let found = facts(&storage, "/d", FACTS);
    assert_eq!(names(&found), [".", "..", "a", "b", "l"]);
    let kinds: Vec<_> = found.iter().map(|(_, f)| f.kind.clone().unwrap()).collect();
    use FactType::{Cdir, Dir, File, Pdir};
    assert_eq!(kinds, [Cdir, Pdir, File, Dir, File]);
    let counts: Vec<_> = found.iter().filter_map(|(_, f)| f.count).collect();
    assert_eq!(counts, [5], "on the cdir only");
    assert_eq!(found[4].1.unix_slink.as_deref(), Some(&b"a"[..]));
    assert_eq!(found[4].1.unique, found[2].1.unique);
    let root = facts(&storage, "/", FACTS);
    assert_eq!(names(&root), [".", "..", "d"]);
    assert_eq!(root[0].1.unique, root[1].1.unique);
    refused(&storage, "/d/a", FACTS, ENOTDIR);
    let paged: Vec<_> = directory_facts(&*storage, &p("/d"))
        .unwrap()
        .map(|e| e.unwrap())
        .collect();
    assert_eq!(paged.len(), 5);
    assert_eq!(paged[0].0.kind, Some(Cdir));
}

#[test]
fn a_name_with_a_line_end_is_left_out() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a\nType=file; forged", "b\rx", "c"] {
        std::fs::write(dir.path().join(name), b"").unwrap();
    }
    let storage: Arc<dyn Storage> = Arc::new(PosixStorage::rooted(dir.path()).unwrap());
    assert_eq!(lines(&storage, "/", ListForm::Names), ["c"]);
    assert_eq!(
        names(&facts(&storage, "/", recursive(false, false))),
        [".", "c"]
    );
}

/// A directory without end, in no memory.
struct Endless(NullStorage, u64);

#[rustfmt::skip]
impl Storage for Endless {
    fn list(&self, _: &FtpPath) -> Result<Entries> {
        let about = self.0.stat(&p("/file"))?;
        Ok(Box::new((0..self.1).map(move |i| Ok((format!("{i:07}").into_bytes(), about.clone())))))
    }
    fn stat(&self, path: &FtpPath) -> Result<Metadata> { self.0.stat(path) }
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> { self.0.open_read(path) }
    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        self.0.open_write(path, how)
    }
    fn create_dir(&self, path: &FtpPath) -> Result<()> { self.0.create_dir(path) }
    fn remove_dir(&self, path: &FtpPath) -> Result<()> { self.0.remove_dir(path) }
    fn remove_file(&self, path: &FtpPath) -> Result<()> { self.0.remove_file(path) }
    fn remove_tree(&self, path: &FtpPath) -> Result<()> { self.0.remove_tree(path) }
    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> { self.0.rename(from, to) }
    fn set_modified(&self, path: &FtpPath, at: std::time::SystemTime) -> Result<()> {
        self.0.set_modified(path, at)
    }
    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> { self.0.set_mode(path, mode) }
    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> { self.0.set_group(path, group) }
    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> { self.0.set_len(path, length) }
    fn symlink(&self, to: &FtpPath, link: &FtpPath) -> Result<()> { self.0.symlink(to, link) }
    fn free_bytes(&self, path: &FtpPath) -> Result<u64> { self.0.free_bytes(path) }
    fn sync_directory(&self, path: &FtpPath) -> Result<()> { self.0.sync_directory(path) }
}

#[test]
fn a_large_directory_gives_its_count_last() {
    const ENTRIES: u64 = 5000;
    let storage: Arc<dyn Storage> = Arc::new(Endless(NullStorage::new(1), ENTRIES));
    let found = facts(&storage, "/", FACTS);
    assert_eq!(found.len(), 5002);
    assert_eq!(found[0].0, "0000000");
    assert_eq!(
        (found[5000].0.as_str(), found[5000].1.count),
        (".", Some(ENTRIES + 2))
    );
    assert_eq!(found[5001].0, "..");
    // Opening does not read it all.
    let storage: Arc<dyn Storage> = Arc::new(Endless(NullStorage::new(1), u64::MAX));
    for form in [
        FACTS,
        ListForm::Names,
        ListForm::Long,
        recursive(true, true),
    ] {
        let mut listing = Listing::open(Arc::clone(&storage), &p("/"), form, NOW).unwrap();
        let mut piece = vec![0; 100_000];
        listing.read_exact(&mut piece).unwrap();
    }
}

#[test]
fn mlsr_walks_the_tree() {
    let storage = tree(&[
        "t/",
        "t/a/",
        "t/a/f",
        "t/a/b/",
        "t/a/b/g",
        "t/z",
        "t/l->../other",
        "other/",
        "other/o",
    ]);
    let found = facts(&storage, "/t", recursive(false, false));
    assert_eq!(names(&found), [".", "a", "a/b", "a/b/g", "a/f", "l", "z"]);
    assert_eq!(found[0].1.kind, Some(FactType::Cdir));
    assert_eq!(found[1].1.kind, Some(FactType::Dir));
    let found = facts(&storage, "/t", recursive(false, true));
    assert_eq!(
        names(&found),
        [".", "a", "a/b", "a/b/g", "a/f", "l", "l/o", "z"]
    );
    assert_eq!(
        names(&facts(&storage, "/t/z", recursive(false, false))),
        ["z"]
    );
    refused(&storage, "/no", recursive(true, true), ENOENT);
}

#[test]
fn mlsr_cuts_loops() {
    let storage = tree(&[
        "t/",
        "t/f",
        "t/self->.",
        "t/up->..",
        "t/a/",
        "t/a/top->../../t",
        "t/b/",
        "t/b/a->../a",
    ]);
    let found = facts(&storage, "/t", recursive(false, true));
    let mut seen = names(&found);
    seen.sort_unstable();
    assert_eq!(
        seen,
        [
            ".", "a", "a/top", "b", "b/a", "b/a/top", "f", "self", "up", "up/t"
        ],
        "the tree above is reached by `up` and ends where it comes back"
    );
    assert!(found.iter().all(|(_, f)| f.error.is_none()));
}

#[test]
fn links_to_one_another_do_not_multiply() {
    let mut made = Vec::new();
    for i in 0..9 {
        made.push(format!("d{i}/"));
    }
    for i in 0..9 {
        for j in 0..9 {
            made.push(format!("d{i}/to{j}->../d{j}"));
        }
    }
    let made: Vec<_> = made.iter().map(String::as_str).collect();
    let found = facts(&tree(&made), "/", recursive(false, true));
    assert!(found.len() < 9 * 9 * 3, "{}", found.len());
}

#[test]
fn mlsr_reports_what_it_cannot_read() {
    let inner = tree(&["a/", "a/f", "b/", "b/g"]);
    // The first listing is that of the top.
    let fault = Fault::Fail {
        operation: Operation::List,
        nth: 1,
        errno: EACCES,
    };
    let storage: Arc<dyn Storage> =
        Arc::new(FaultyStorage::new(Arc::clone(&inner), vec![fault.clone()]));
    let found = facts(&storage, "/", recursive(true, false));
    assert_eq!(names(&found), [".", "a", "b", "b/g"]);
    assert_eq!(found[1].1.error.as_deref(), Some("OpenFailed"));
    assert_eq!(found[2].1.error, None);
    let storage: Arc<dyn Storage> = Arc::new(FaultyStorage::new(inner, vec![fault]));
    let mut listing = Listing::open(storage, &p("/"), recursive(false, false), NOW).unwrap();
    let mut text = Vec::new();
    let error = listing.read_to_end(&mut text).unwrap_err();
    assert_eq!(failure("list", &error).errno, EACCES);
    assert_eq!(
        text.split(|b| *b == b'\n').count(),
        2,
        "what came before is sent"
    );
    assert_eq!(listing.read(&mut [0; 9]).unwrap(), 0);
}

#[test]
fn a_directory_that_cannot_be_listed_fails_at_once() {
    for form in [
        FACTS,
        ListForm::Names,
        ListForm::Long,
        recursive(true, true),
    ] {
        let fault = Fault::Fail {
            operation: Operation::List,
            nth: 0,
            errno: EIO,
        };
        let storage: Arc<dyn Storage> = Arc::new(FaultyStorage::new(tree(&[]), vec![fault]));
        refused(&storage, "/", form, EIO);
    }
}
