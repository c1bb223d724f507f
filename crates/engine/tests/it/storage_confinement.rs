//! Nothing leads out of the root, and nothing in it hangs or harms.

use std::{
    fs,
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use godwit_engine::storage::{FastPath, FileKind, PosixStorage, Storage, WriteMode};
use godwit_proto::FtpPath;
use tempfile::TempDir;

const EACCES: i32 = 13;
const EBUSY: i32 = 16;
const EINVAL: i32 = 22;
const EOPNOTSUPP: i32 = 95;

const SECRET: &[u8] = b"secret";

fn p(path: &str) -> FtpPath {
    FtpPath::new(path).unwrap()
}

/// `root` and beside it `outside`, with a secret.
fn with_outside() -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    fs::create_dir(dir.path().join("outside")).unwrap();
    fs::write(dir.path().join("outside/f"), SECRET).unwrap();
    dir
}

/// Runs `check` with both ways to resolve paths.
fn both_ways(check: impl Fn(&PosixStorage, &Path)) {
    let ways: [fn(&Path) -> PosixStorage; 2] = [
        |root| PosixStorage::rooted(root).unwrap(),
        |root| PosixStorage::rooted_by_hand(root).unwrap(),
    ];
    for open in ways {
        let dir = with_outside();
        check(&open(&dir.path().join("root")), dir.path());
        assert_eq!(fs::read(dir.path().join("outside/f")).unwrap(), SECRET);
        assert_eq!(fs::read_dir(dir.path().join("outside")).unwrap().count(), 1);
    }
}

/// Whatever is tried on `path`, which leads to `outside/f`, is refused.
fn refused(storage: &PosixStorage, path: &str) {
    let path = p(path);
    let now = std::time::SystemTime::now();
    let outcomes = [
        storage.open_read(&path).map(drop),
        storage.open_write(&path, WriteMode::Replace).map(drop),
        storage.open_write(&path, WriteMode::Keep).map(drop),
        storage.stat(&path).map(drop),
        storage.list(&path).map(drop),
        storage.set_mode(&path, 0o777),
        storage.set_modified(&path, now),
        storage.set_len(&path, 0),
        storage.set_group(&path, "0"),
        storage.free_bytes(&path).map(drop),
    ];
    for (i, outcome) in outcomes.into_iter().enumerate() {
        let failure = outcome.expect_err(&format!("call {i} on {path}"));
        assert_eq!(failure.errno, EACCES, "call {i}: {failure}");
        assert_eq!(failure.text, "Permission denied");
    }
}

#[test]
fn dots_stay_inside() {
    both_ways(|storage, dir| {
        fs::create_dir(dir.join("root/d")).unwrap();
        for path in [
            "/../outside/f",
            "/d/../../outside/f",
            "/d/../d/../../outside/f",
            "../outside/f",
        ] {
            refused(storage, path);
            for outcome in [
                storage.remove_file(&p(path)),
                storage.remove_tree(&p(path)),
                storage.rename(&p(path), &p("/stolen")),
                storage.create_dir(&p("/../outside/new")),
                storage.symlink(&p("x"), &p("/../outside/new")),
            ] {
                assert_eq!(outcome.unwrap_err().errno, EACCES);
            }
        }
        assert_eq!(storage.stat(&p("/d/..")).unwrap().kind, FileKind::Directory);
    });
}

#[test]
fn links_out_are_refused_and_not_listed() {
    both_ways(|storage, dir| {
        let root = dir.join("root");
        fs::create_dir(root.join("d")).unwrap();
        symlink(dir.join("outside/f"), root.join("absolute")).unwrap();
        symlink(dir.join("outside"), root.join("absolute-dir")).unwrap();
        symlink("../outside/f", root.join("relative")).unwrap();
        symlink("../../outside", root.join("d/relative-dir")).unwrap();
        symlink("relative", root.join("chain")).unwrap();
        for path in [
            "/absolute",
            "/absolute-dir/f",
            "/relative",
            "/d/relative-dir/f",
            "/chain",
        ] {
            refused(storage, path);
        }
        for (from, to) in [("/absolute-dir/f", "/stolen"), ("/d", "/absolute-dir/d")] {
            assert_eq!(storage.rename(&p(from), &p(to)).unwrap_err().errno, EACCES);
        }
        let failure = storage.open_write(&p("/d/relative-dir/new"), WriteMode::New);
        assert_eq!(failure.map(drop).unwrap_err().errno, EACCES);
        let listed: Vec<_> = storage
            .list(&p("/"))
            .unwrap()
            .map(|e| e.unwrap().0)
            .collect();
        assert_eq!(listed, [b"d"]);
        storage.remove_tree(&p("/d")).unwrap();
        storage.remove_tree(&p("/absolute-dir")).unwrap();
    });
}

#[test]
fn magic_links_lead_nowhere() {
    // Both refuse to follow /proc/self/root, whatever is behind it.
    let by_kernel = PosixStorage::rooted("/proc/self").unwrap();
    let by_hand = PosixStorage::rooted_by_hand("/proc/self").unwrap();
    for storage in [by_kernel, by_hand] {
        for path in ["/root/etc/passwd", "/cwd/Cargo.toml", "/exe", "/fd/0"] {
            assert!(storage.open_read(&p(path)).is_err(), "{path}");
            assert!(storage.stat(&p(path)).is_err(), "{path}");
        }
    }
}

#[test]
fn the_whole_machine_as_root_follows_absolute_links() {
    let dir = with_outside();
    symlink(dir.path().join("outside/f"), dir.path().join("root/l")).unwrap();
    let link = FtpPath::new(
        dir.path()
            .join("root/l")
            .into_os_string()
            .into_encoded_bytes(),
    )
    .unwrap();
    for storage in [
        PosixStorage::rooted("/").unwrap(),
        PosixStorage::rooted_by_hand("/").unwrap(),
    ] {
        assert_eq!(
            storage.open_read(&link).unwrap().metadata().unwrap().size,
            6
        );
        assert_eq!(
            storage.stat(&p("/../../..")).unwrap().kind,
            FileKind::Directory
        );
    }
}

struct SetOnDrop<'a>(&'a AtomicBool);

impl Drop for SetOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn a_link_that_changes_meanwhile_never_leads_out() {
    both_ways(|storage, dir| {
        let root = dir.join("root");
        fs::create_dir(root.join("inside")).unwrap();
        fs::write(root.join("inside/f"), b"public").unwrap();
        let allowed = storage.stat(&p("/inside/f")).unwrap().unique;
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                // A directory, a link out of the root and a link in it take turns under one name.
                let name = root.join("d");
                while !done.load(Ordering::Relaxed) {
                    symlink(dir.join("outside"), &name).unwrap();
                    fs::remove_file(&name).unwrap();
                    symlink("../outside", &name).unwrap();
                    fs::remove_file(&name).unwrap();
                    symlink("inside", &name).unwrap();
                    fs::remove_file(&name).unwrap();
                    fs::rename(root.join("inside"), &name).unwrap();
                    fs::rename(&name, root.join("inside")).unwrap();
                }
            });
            // Also when an assertion fails: the scope waits for the thread.
            let _stop = SetOnDrop(&done);
            let mut public = 0;
            for round in 0..20_000 {
                let file = match round % 2 {
                    0 => storage.open_read(&p("/d/f")),
                    _ => storage.open_write(&p("/d/f"), WriteMode::Keep),
                };
                if let Ok(file) = file {
                    assert_eq!(file.metadata().unwrap().unique, allowed);
                    public += 1;
                }
                let _ = storage.remove_file(&p("/d/nothing"));
                if round >= 2000 && public > 0 {
                    break;
                }
            }
            assert!(public > 0, "the race was never won, so nothing was tested");
        });
    });
}

#[test]
fn the_root_itself_stays() {
    both_ways(|storage, _| {
        let root = FtpPath::root();
        assert_eq!(storage.remove_dir(&root).unwrap_err().errno, EBUSY);
        assert_eq!(storage.remove_tree(&root).unwrap_err().errno, EBUSY);
        assert_eq!(storage.rename(&root, &p("/x")).unwrap_err().errno, EBUSY);
        storage.set_mode(&root, 0o755).unwrap();
        assert_eq!(storage.stat(&root).unwrap().mode, 0o755);
    });
}

#[test]
fn fifos_and_sockets_do_not_hang() {
    both_ways(|storage, dir| {
        let fifo = dir.join("root/fifo");
        let mode = rustix::fs::Mode::from_raw_mode(0o666);
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, mode, 0).unwrap();
        let _socket = UnixListener::bind(dir.join("root/socket")).unwrap();
        for path in ["/fifo", "/socket"] {
            for outcome in [
                storage.open_read(&p(path)),
                storage.open_write(&p(path), WriteMode::Keep),
                storage.open_write(&p(path), WriteMode::Replace),
            ] {
                let failure = outcome.map(drop).unwrap_err();
                assert_eq!(failure.errno, EOPNOTSUPP, "{failure}");
                assert!(failure.doing.contains("a FIFO or socket"), "{failure}");
            }
            assert!(matches!(
                storage.stat(&p(path)).unwrap().kind,
                FileKind::Special(_)
            ));
        }
    });
}

#[test]
fn devices_are_known() {
    let storage = PosixStorage::rooted("/dev").unwrap();
    let zero = storage.open_read(&p("/zero")).unwrap();
    assert!(matches!(zero.fast_path(), FastPath::Zeros));
    let mut bytes = [1; 9];
    assert_eq!(zero.read_at(1 << 40, &mut bytes).unwrap(), 9);
    assert_eq!(bytes, [0; 9]);
    let null = storage.open_write(&p("/null"), WriteMode::Replace).unwrap();
    assert!(matches!(null.fast_path(), FastPath::Discard));
    null.write_all_at(u64::MAX - 20, b"gone").unwrap();
    null.sync().unwrap();
    assert_eq!(null.read_at(0, &mut bytes).unwrap(), 0);
    let seen = null.metadata().unwrap();
    assert!(matches!(seen.kind, FileKind::Special(_)));
    assert_eq!(seen.size, 0);
    let kind = godwit_proto::facts::FactType::Other("OS.unix=chr".to_owned());
    assert_eq!(seen.facts().kind, Some(kind));
    let random = storage.open_read(&p("/urandom")).unwrap();
    assert!(matches!(random.fast_path(), FastPath::Copy));
    assert_eq!(random.read_at(5, &mut bytes).unwrap(), 9);
    assert_eq!(storage.set_len(&p("/null"), 0).unwrap_err().errno, EINVAL);
}

#[test]
fn regular_files_give_a_blocking_descriptor_that_dies_on_exec() {
    both_ways(|storage, _| {
        let file = storage.open_write(&p("/f"), WriteMode::New).unwrap();
        let FastPath::Descriptor(fd) = file.fast_path() else {
            panic!("no descriptor")
        };
        let flags = rustix::fs::fcntl_getfl(fd).unwrap();
        assert!(!flags.contains(rustix::fs::OFlags::NONBLOCK));
        let on_exec = rustix::io::fcntl_getfd(fd).unwrap();
        assert!(on_exec.contains(rustix::io::FdFlags::CLOEXEC));
    });
}

#[test]
fn facts_speak_as_the_reference_server_does() {
    let dir = with_outside();
    let storage = PosixStorage::rooted(dir.path()).unwrap();
    storage.set_mode(&p("/outside/f"), 0o640).unwrap();
    let seen = storage.stat(&p("/outside/f")).unwrap();
    let facts = seen.facts();
    assert_eq!(facts.perm.as_deref(), Some("awr"));
    assert_eq!((facts.size, facts.unix_mode), (Some(6), Some(0o640)));
    let (device, inode) = seen.unique;
    assert_eq!(facts.unique, Some(format!("{device:x}-{inode:x}")));
    storage.set_mode(&p("/outside"), 0o755).unwrap();
    let facts = storage.stat(&p("/outside")).unwrap().facts();
    assert_eq!(facts.perm.as_deref(), Some("cfmpel"));
    assert_eq!(facts.kind, Some(godwit_proto::facts::FactType::Dir));
}
