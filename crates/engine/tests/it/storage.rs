//! What every storage promises. The null storage is exempt: it keeps nothing, so that little here
//! means anything to it.

use std::{
    collections::BTreeMap,
    sync::Arc,
    thread,
    time::{Duration, SystemTime},
};

use godwit_engine::storage::{
    FileKind, MemoryStorage, Metadata, PosixStorage, Storage, WriteMode, faulty::FaultyStorage,
};
use godwit_proto::FtpPath;
use tempfile::TempDir;

const ENOENT: i32 = 2;
const EEXIST: i32 = 17;
const ENOTDIR: i32 = 20;
const EISDIR: i32 = 21;
const EINVAL: i32 = 22;
const ENAMETOOLONG: i32 = 36;
const ENOTEMPTY: i32 = 39;
const ELOOP: i32 = 40;

/// A storage under test, and the empty directory in it where the test may work.
struct Case {
    name: &'static str,
    storage: Arc<dyn Storage>,
    base: String,
    _kept: Option<TempDir>,
}

impl Case {
    fn path(&self, below: &str) -> FtpPath {
        FtpPath::new(format!("{}/{below}", self.base)).unwrap()
    }

    fn write(&self, below: &str, bytes: &[u8]) {
        let file = self
            .storage
            .open_write(&self.path(below), WriteMode::Replace)
            .unwrap();
        file.write_all_at(0, bytes).unwrap();
    }

    fn read(&self, below: &str) -> Vec<u8> {
        let file = self.storage.open_read(&self.path(below)).unwrap();
        let mut bytes = vec![0; usize::try_from(file.metadata().unwrap().size).unwrap() + 1];
        let mut done = 0;
        loop {
            match file.read_at(done as u64, &mut bytes[done..]).unwrap() {
                0 => break,
                got => done += got,
            }
        }
        bytes.truncate(done);
        bytes
    }

    fn names(&self, below: &str) -> BTreeMap<Vec<u8>, Metadata> {
        self.storage
            .list(&self.path(below))
            .unwrap()
            .map(Result::unwrap)
            .collect()
    }

    fn mkdir(&self, below: &str) {
        self.storage.create_dir(&self.path(below)).unwrap();
    }

    fn link(&self, target: &str, below: &str) {
        let target = FtpPath::new(target).unwrap();
        self.storage.symlink(&target, &self.path(below)).unwrap();
    }

    /// errno of a call that must fail.
    #[track_caller]
    fn refuses<T>(
        &self,
        errno: i32,
        call: impl FnOnce(&dyn Storage) -> godwit_engine::storage::Result<T>,
    ) {
        match call(&*self.storage) {
            Ok(_) => panic!("{}: succeeded, errno {errno} expected", self.name),
            Err(e) => assert_eq!(e.errno, errno, "{}: {e}", self.name),
        }
    }
}

#[allow(
    clippy::print_stdout,
    reason = "shown when a check fails: which storage"
)]
fn every_storage(check: impl Fn(&Case)) {
    let rooted = |name, open: fn(&TempDir) -> PosixStorage| {
        let dir = tempfile::tempdir().unwrap();
        let storage: Arc<dyn Storage> = Arc::new(open(&dir));
        Case {
            name,
            storage,
            base: String::new(),
            _kept: Some(dir),
        }
    };
    let plain = tempfile::tempdir().unwrap();
    let beneath = rooted("openat2", |dir| PosixStorage::rooted(dir).unwrap());
    let cases = [
        Case {
            name: "memory",
            storage: Arc::new(MemoryStorage::new()),
            base: String::new(),
            _kept: None,
        },
        Case {
            name: "faulty without faults",
            storage: Arc::new(FaultyStorage::new(
                Arc::new(MemoryStorage::new()),
                Vec::new(),
            )),
            base: String::new(),
            _kept: None,
        },
        beneath,
        rooted("by hand", |dir| PosixStorage::rooted_by_hand(dir).unwrap()),
        rooted("direct", |dir| {
            PosixStorage::rooted(dir).unwrap().with_direct_io(true)
        }),
        Case {
            name: "unconfined",
            storage: Arc::new(PosixStorage::unconfined()),
            base: plain.path().to_str().unwrap().to_owned(),
            _kept: Some(plain),
        },
    ];
    for case in &cases {
        println!("{}", case.name);
        check(case);
    }
}

#[test]
fn files_are_created_kept_and_replaced() {
    every_storage(|case| {
        let path = case.path("f");
        case.refuses(ENOENT, |s| s.open_read(&path));
        case.refuses(ENOENT, |s| s.open_write(&path, WriteMode::Existing));
        case.refuses(ENOENT, |s| s.open_read(&path));
        let file = case.storage.open_write(&path, WriteMode::New).unwrap();
        file.write_all_at(0, b"hello").unwrap();
        assert_eq!(file.metadata().unwrap().size, 5);
        file.sync().unwrap();
        case.refuses(EEXIST, |s| s.open_write(&path, WriteMode::New));
        let kept = case.storage.open_write(&path, WriteMode::Keep).unwrap();
        kept.write_all_at(1, b"E").unwrap();
        kept.write_all_at(5, b"").unwrap();
        let existing = case.storage.open_write(&path, WriteMode::Existing);
        existing.unwrap().write_all_at(4, b"o").unwrap();
        assert_eq!(case.read("f"), b"hEllo");
        let mut back = [0; 3];
        assert_eq!(
            kept.read_at(2, &mut back).unwrap(),
            3,
            "readable by the writer"
        );
        assert_eq!(&back, b"llo");
        case.storage.open_write(&path, WriteMode::Replace).unwrap();
        assert_eq!(case.read("f"), b"");
        let kept = case
            .storage
            .open_write(&case.path("g"), WriteMode::Keep)
            .unwrap();
        kept.write_all_at(3, b"x").unwrap();
        assert_eq!(case.read("g"), b"\0\0\0x", "a hole reads as zeros");
        assert_eq!(kept.read_at(4, &mut back).unwrap(), 0);
        assert_eq!(kept.read_at(400, &mut back).unwrap(), 0);
    });
}

#[test]
fn what_lies_in_memory_reads_as_all_else() {
    every_storage(|case| {
        case.write("f", b"0123456789");
        let file = case.storage.open_read(&case.path("f")).unwrap();
        for (offset, length) in [(0, 4), (6, 10), (10, 4), (99, 1)] {
            let (mut one, mut other) = (vec![0; length], vec![0; length]);
            let read = file.read_at(offset, &mut one).unwrap();
            match file.read_cached_at(offset, &mut other).unwrap() {
                // A storage that cannot tell.
                None => {}
                Some(cached) => assert_eq!((cached, other), (read, one), "{}", case.name),
            }
        }
    });
    let memory = MemoryStorage::new();
    let path = FtpPath::new("/f").unwrap();
    let file = memory.open_write(&path, WriteMode::New).unwrap();
    file.write_all_at(0, b"ab").unwrap();
    assert_eq!(file.read_cached_at(0, &mut [0; 4]), Ok(Some(2)));
}

#[test]
fn wrong_kinds_are_refused() {
    every_storage(|case| {
        case.mkdir("d");
        case.write("f", b"x");
        for path in [case.path("d"), case.path("")] {
            case.refuses(EISDIR, |s| s.open_read(&path));
            case.refuses(EISDIR, |s| s.open_write(&path, WriteMode::Keep));
            case.refuses(EISDIR, |s| s.open_write(&path, WriteMode::Replace));
        }
        case.refuses(EISDIR, |s| s.remove_file(&case.path("d")));
        case.refuses(EISDIR, |s| s.set_len(&case.path("d"), 0));
        case.refuses(ENOTDIR, |s| s.remove_dir(&case.path("f")));
        case.refuses(ENOTDIR, |s| s.list(&case.path("f")));
        case.refuses(ENOTDIR, |s| s.open_read(&case.path("f/x")));
        case.refuses(ENOTDIR, |s| {
            s.open_write(&case.path("f/x"), WriteMode::Replace)
        });
        case.refuses(ENOTDIR, |s| s.stat(&case.path("f/x")));
        case.refuses(ENOENT, |s| {
            s.open_write(&case.path("no/x"), WriteMode::Replace)
        });
        case.refuses(ENOENT, |s| s.list(&case.path("no")));
        case.refuses(ENOENT, |s| s.remove_file(&case.path("no")));
        case.refuses(ENOENT, |s| s.remove_tree(&case.path("no")));
        assert_eq!(case.read("f"), b"x");
    });
}

#[test]
fn directories_are_listed_with_metadata() {
    every_storage(|case| {
        assert_eq!(
            case.storage.stat(&case.path("")).unwrap().kind,
            FileKind::Directory
        );
        assert!(case.names("").is_empty());
        case.mkdir("d");
        case.refuses(EEXIST, |s| s.create_dir(&case.path("d")));
        case.refuses(EEXIST, |s| s.create_dir(&case.path("")));
        case.refuses(ENOENT, |s| s.create_dir(&case.path("x/y")));
        case.write("d/f", b"abc");
        case.mkdir("d/sub");
        let listed = case.names("d");
        assert_eq!(
            listed.keys().map(Vec::as_slice).collect::<Vec<_>>(),
            [&b"f"[..], b"sub"]
        );
        let seen = &listed[&b"f"[..]];
        assert_eq!((seen.kind, seen.size), (FileKind::File, 3));
        assert_eq!(seen, &case.storage.stat(&case.path("d/f")).unwrap());
        assert_ne!(seen.unique, listed[&b"sub"[..]].unique);
        case.refuses(ENOTEMPTY, |s| s.remove_dir(&case.path("d")));
        case.storage.remove_file(&case.path("d/f")).unwrap();
        case.storage.remove_dir(&case.path("d/sub")).unwrap();
        case.storage.remove_dir(&case.path("d")).unwrap();
        case.refuses(ENOENT, |s| s.stat(&case.path("d")));
    });
}

#[test]
fn a_large_directory_is_listed_whole() {
    every_storage(|case| {
        for i in 0..3000 {
            case.write(&format!("file-with-a-name-of-some-length-{i}"), b"");
        }
        assert_eq!(case.names("").len(), 3000);
        // Removing what was listed, while listing, neither stops nor repeats.
        let mut seen = 0;
        for entry in case.storage.list(&case.path("")).unwrap() {
            let (name, _) = entry.unwrap();
            case.storage
                .remove_file(&case.path(&String::from_utf8(name).unwrap()))
                .unwrap();
            seen += 1;
        }
        assert_eq!(seen, 3000);
    });
}

#[test]
fn rename_noreplace_takes_only_a_free_name() {
    every_storage(|case| {
        case.write("a", b"a");
        case.write("b", b"b");
        let rename = |s: &dyn Storage, from: &str, to: &str| {
            s.rename_noreplace(&case.path(from), &case.path(to))
        };
        case.refuses(EEXIST, |s| rename(s, "a", "b"));
        case.refuses(ENOENT, |s| rename(s, "none", "c"));
        rename(&*case.storage, "a", "c").unwrap();
        assert_eq!(case.read("c"), b"a");
        assert_eq!(case.read("b"), b"b");
    });
}

#[test]
fn rename_is_rename() {
    every_storage(|case| {
        let rename =
            |s: &dyn Storage, from: &str, to: &str| s.rename(&case.path(from), &case.path(to));
        case.write("a", b"a");
        case.write("b", b"b");
        rename(&*case.storage, "a", "b").unwrap();
        assert_eq!(case.read("b"), b"a");
        rename(&*case.storage, "b", "b").unwrap();
        case.refuses(ENOENT, |s| rename(s, "a", "c"));
        case.refuses(ENOENT, |s| rename(s, "b", "no/c"));
        case.mkdir("d");
        case.mkdir("e");
        rename(&*case.storage, "d", "e").unwrap();
        case.refuses(EISDIR, |s| rename(s, "b", "e"));
        case.refuses(ENOTDIR, |s| rename(s, "e", "b"));
        case.refuses(EINVAL, |s| rename(s, "e", "e/sub"));
        rename(&*case.storage, "b", "e/b").unwrap();
        assert_eq!(case.read("e/b"), b"a");
        case.mkdir("g");
        case.refuses(ENOTEMPTY, |s| rename(s, "g", "e"));
    });
}

#[test]
fn links_are_followed_and_told() {
    every_storage(|case| {
        case.mkdir("d");
        case.write("d/f", b"abc");
        case.link("d/f", "to-file");
        case.link("d", "to-dir");
        case.link("../d/f", "d/up");
        case.link("nothing", "dangling");
        case.link("loop", "loop");
        let seen = case.storage.stat(&case.path("to-file")).unwrap();
        assert_eq!(seen.link_target.as_deref(), Some(&b"d/f"[..]));
        assert_eq!((seen.kind, seen.size), (FileKind::File, 3));
        assert_eq!(
            seen.unique,
            case.storage.stat(&case.path("d/f")).unwrap().unique
        );
        assert_eq!(case.read("to-dir/up"), b"abc");
        assert_eq!(
            case.storage
                .stat(&case.path("to-dir/f"))
                .unwrap()
                .link_target,
            None
        );
        case.refuses(ENOENT, |s| s.stat(&case.path("dangling")));
        case.refuses(ELOOP, |s| s.stat(&case.path("loop")));
        case.refuses(ELOOP, |s| s.open_read(&case.path("loop")));
        let listed = case.names("");
        assert!(!listed.contains_key(&b"dangling"[..]) && !listed.contains_key(&b"loop"[..]));
        assert_eq!(listed[&b"to-file"[..]], seen);
        assert_eq!(listed[&b"to-dir"[..]].kind, FileKind::Directory);
        // A new file never lands behind a link; an ordinary one does.
        case.refuses(EEXIST, |s| {
            s.open_write(&case.path("dangling"), WriteMode::New)
        });
        case.write("dangling", b"new");
        assert_eq!(case.read("nothing"), b"new");
        // What changes names changes the link.
        case.storage
            .rename(&case.path("to-file"), &case.path("moved"))
            .unwrap();
        assert_eq!(
            case.storage
                .stat(&case.path("moved"))
                .unwrap()
                .link_target
                .as_deref(),
            Some(&b"d/f"[..])
        );
        case.storage.remove_file(&case.path("moved")).unwrap();
        case.refuses(ENOTDIR, |s| s.remove_dir(&case.path("to-dir")));
        case.storage.remove_tree(&case.path("to-dir")).unwrap();
        assert_eq!(case.read("d/f"), b"abc");
        case.refuses(EEXIST, |s| s.symlink(&case.path("x"), &case.path("d")));
    });
}

#[test]
fn attributes_are_set_behind_links_too() {
    every_storage(|case| {
        case.write("f", b"abcdef");
        case.link("f", "l");
        for back in [0, 1, 1_000_000_000] {
            let when = SystemTime::UNIX_EPOCH - Duration::from_secs(back);
            case.storage.set_modified(&case.path("l"), when).unwrap();
            assert_eq!(case.storage.stat(&case.path("f")).unwrap().modified, when);
        }
        let when = SystemTime::UNIX_EPOCH + Duration::new(1_795_241_134, 5_000);
        case.storage.set_modified(&case.path("f"), when).unwrap();
        assert_eq!(
            case.storage
                .stat(&case.path("l"))
                .unwrap()
                .modified_seconds(),
            1_795_241_134
        );
        case.storage.set_mode(&case.path("l"), 0o100_640).unwrap();
        assert_eq!(case.storage.stat(&case.path("f")).unwrap().mode, 0o640);
        case.storage.set_mode(&case.path("f"), 0).unwrap();
        assert_eq!(case.storage.stat(&case.path("f")).unwrap().mode, 0);
        case.storage.set_len(&case.path("l"), 3).unwrap();
        assert_eq!(case.read("f"), b"abc");
        case.storage.set_len(&case.path("f"), 5).unwrap();
        assert_eq!(case.read("f"), b"abc\0\0");
        let gid = case.storage.stat(&case.path("f")).unwrap().gid;
        case.storage
            .set_group(&case.path("l"), &gid.to_string())
            .unwrap();
        case.refuses(EINVAL, |s| s.set_group(&case.path("f"), "no such group"));
        case.refuses(ENOENT, |s| s.set_mode(&case.path("no"), 0o600));
        case.refuses(ENOENT, |s| s.set_modified(&case.path("no"), when));
        case.refuses(ENOENT, |s| s.set_len(&case.path("no"), 0));
    });
}

#[test]
fn names_are_bytes() {
    every_storage(|case| {
        let longest = "n".repeat(255);
        case.write(&longest, b"long");
        assert_eq!(case.read(&longest), b"long");
        let longer = case.path(&"n".repeat(256));
        case.refuses(ENAMETOOLONG, |s| s.open_write(&longer, WriteMode::Replace));
        for name in [
            &b"\xff\xfe"[..],
            b" a ",
            b"-r",
            b"*",
            b"a\\b",
            b"~",
            b"\t",
            "é".as_bytes(),
        ] {
            let path = case.path("").as_bytes().to_vec();
            let path = FtpPath::new([&path, name].concat()).unwrap();
            case.storage.open_write(&path, WriteMode::New).unwrap();
            assert_eq!(case.storage.stat(&path).unwrap().kind, FileKind::File);
            assert!(case.names("").contains_key(name), "{}: {name:?}", case.name);
        }
    });
}

#[test]
fn trees_go_whole_and_only_they() {
    every_storage(|case| {
        case.mkdir("outside");
        case.write("outside/f", b"stays");
        case.mkdir("t");
        // Deeper than the levels that are kept open.
        let mut deep = "t".to_owned();
        for _ in 0..100 {
            deep.push_str("/d");
            case.mkdir(&deep);
            case.write(&format!("{deep}/f"), b"x");
            case.mkdir(&format!("{deep}/z"));
        }
        case.link("../outside", "t/link");
        case.link("nowhere", "t/dangling");
        case.storage.remove_tree(&case.path("t")).unwrap();
        case.refuses(ENOENT, |s| s.stat(&case.path("t")));
        assert_eq!(case.read("outside/f"), b"stays");
        case.storage.remove_tree(&case.path("outside/f")).unwrap();
        assert!(case.names("outside").is_empty());
    });
}

#[test]
fn many_threads_write_one_file() {
    every_storage(|case| {
        const PIECE: usize = 10_000;
        let file = case
            .storage
            .open_write(&case.path("f"), WriteMode::Replace)
            .unwrap();
        thread::scope(|scope| {
            for part in 0..8_u8 {
                let file = &file;
                scope.spawn(move || {
                    for i in 0..4 {
                        let at = (usize::from(part) * 4 + i) * PIECE;
                        file.write_all_at(at as u64, &[part; PIECE]).unwrap();
                    }
                });
            }
        });
        let bytes = case.read("f");
        assert_eq!(bytes.len(), 32 * PIECE);
        assert!(
            bytes
                .chunks(4 * PIECE)
                .zip(0_u8..)
                .all(|(c, part)| c.iter().all(|b| *b == part))
        );
    });
}

#[test]
fn an_open_file_outlives_its_name() {
    every_storage(|case| {
        case.write("f", b"abc");
        let file = case.storage.open_read(&case.path("f")).unwrap();
        case.storage.remove_file(&case.path("f")).unwrap();
        let mut back = [0; 3];
        assert_eq!(file.read_at(0, &mut back).unwrap(), 3);
        assert_eq!(&back, b"abc");
    });
}

#[test]
fn free_space_is_asked_of_the_nearest_parent() {
    every_storage(|case| {
        assert!(
            case.storage
                .free_bytes(&case.path("not/yet/there"))
                .unwrap()
                > 0
        );
        assert!(case.storage.free_bytes(&case.path("")).unwrap() > 0);
    });
}
