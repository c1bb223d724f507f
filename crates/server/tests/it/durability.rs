//! What 226 and 111 promise where storage must be synced first.

use std::{io::Write as _, sync::Arc};

use godwit_engine::storage::{
    MemoryStorage, PosixStorage, Storage,
    faulty::{Delay, Fault, FaultyStorage, Operation},
};
use godwit_server::Durability;

use crate::{
    client::{EOD, EOF, Ftp, block, data_block},
    harness::{TestServer, pattern},
};

const EIO: i32 = 5;

fn whole(bytes: &[u8]) -> Vec<u8> {
    [data_block(0, bytes), block(EOF | EOD, 0, 1, b"")].concat()
}

fn failing_sync(nth: u64) -> Vec<Fault> {
    vec![Fault::Fail {
        operation: Operation::Sync,
        nth,
        errno: EIO,
    }]
}

fn server(durability: Durability, faults: Vec<Fault>) -> TestServer {
    let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()), faults);
    TestServer::on(Arc::new(storage), |settings| {
        settings.durability = durability;
    })
}

fn final_code(ftp: &mut Ftp) -> u16 {
    loop {
        let reply = ftp.reply();
        if reply.code >= 200 {
            return reply.code;
        }
    }
}

#[test]
fn a_sync_that_fails_is_no_226() {
    for durability in [Durability::File, Durability::Batch] {
        // The file, then its directory.
        for nth in [0, 1] {
            let server = server(durability, failing_sync(nth));
            let mut ftp = server.login();
            let reply = ftp.put("STOR /f", b"abc");
            assert_eq!(reply.code, 451, "{durability:?}: {reply:?}");
            assert!(reply.text().contains("Input/output error"), "{reply:?}");
            assert_eq!(ftp.put("STOR /f", b"abc").code, 226, "{durability:?}");
        }
    }
    let server = server(Durability::None, failing_sync(0));
    assert_eq!(server.login().put("STOR /f", b"abc").code, 226);
}

#[test]
fn names_are_synced_before_their_reply() {
    // Of the file: two syncs.
    let server = server(Durability::File, failing_sync(2));
    let mut ftp = server.login();
    assert_eq!(ftp.put("STOR /f", b"abc").code, 226);
    ftp.expect("RNFR /f", 350);
    ftp.expect("RNTO /g", 451);
    ftp.expect("MKD /d", 257);
    ftp.expect("SIZE /g", 213);
}

#[test]
fn files_behind_one_that_was_not_synced_are_refused() {
    for durability in [Durability::File, Durability::Batch] {
        let server = server(durability, failing_sync(0));
        let mut ftp = server.login();
        ftp.expect("MODE E", 200);
        let mut data = ftp.passive();
        let commands: String = (0..20).map(|i| format!("STOR /f{i}\r\n")).collect();
        ftp.send_raw(commands.as_bytes());
        let _ = data.write_all(&whole(b"abc").repeat(20));
        let codes: Vec<u16> = (0..20).map(|_| final_code(&mut ftp)).collect();
        let failed = codes.iter().position(|code| *code == 451);
        let (whole_ones, refused) = codes.split_at(failed.expect("one sync failed"));
        assert!(whole_ones.iter().all(|code| *code == 226), "{codes:?}");
        assert!(refused[1..].iter().all(|code| *code == 425), "{codes:?}");
        let mut data = ftp.passive();
        ftp.send_raw(commands.as_bytes());
        data.write_all(&whole(b"abc").repeat(20)).unwrap();
        for i in 0..20 {
            assert_eq!(final_code(&mut ftp), 226, "{durability:?} {i}");
        }
    }
}

/// Counts syncs; the first waits for the end of `gate`'s sender.
fn counting(
    inner: Arc<dyn Storage>,
) -> (
    Arc<dyn Storage>,
    Arc<std::sync::atomic::AtomicU64>,
    std::sync::mpsc::Sender<()>,
) {
    let (open, gate) = std::sync::mpsc::channel::<()>();
    let gate = std::sync::Mutex::new(gate);
    let syncs = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let counted = Arc::clone(&syncs);
    let delay: Delay = Arc::new(move |operation, number| {
        if operation == Operation::Sync {
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            if number == 0 {
                let _ = gate.lock().unwrap().recv();
            }
        }
    });
    let storage = FaultyStorage::new(inner, Vec::new()).with_delay(delay);
    (Arc::new(storage), syncs, open)
}

#[test]
fn pipelined_files_are_synced_together() {
    let directory = tempfile::tempdir().unwrap();
    let root = PosixStorage::rooted(directory.path()).unwrap();
    let (storage, syncs, open) = counting(Arc::new(root));
    let server = TestServer::on(storage, |settings| settings.durability = Durability::Batch);
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let mut data = ftp.passive();
    let commands: String = (0..30).map(|i| format!("STOR /f{i}\r\n")).collect();
    ftp.send_raw(commands.as_bytes());
    data.write_all(&whole(b"abc").repeat(30)).unwrap();
    ftp.await_code(150);
    // No 226 before the first sync ends; all bytes have been written by then.
    crate::harness::eventually("all files are written", || {
        (0..30).all(|i| {
            let written = std::fs::read(directory.path().join(format!("f{i}")));
            written.is_ok_and(|bytes| bytes == b"abc")
        })
    });
    drop(open);
    for i in 0..30 {
        assert_eq!(final_code(&mut ftp), 226, "{i}");
    }
    let syncs = syncs.load(std::sync::atomic::Ordering::SeqCst);
    assert!(syncs < 30, "{syncs} for 30 files and their directory");
}

#[test]
fn markers_tell_of_synced_ranges_only() {
    let (storage, _, open) = counting(Arc::new(MemoryStorage::new()));
    let server = TestServer::on(storage, |settings| settings.durability = Durability::File);
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    ftp.expect("TREV RESTART 1", 200);
    ftp.expect("TREV PERF 1", 200);
    let mut data = ftp.passive();
    ftp.send("STOR /f");
    let bytes = pattern(1000, 1);
    // A block is news when the next begins.
    for (offset, half) in [(0, &bytes[..500]), (500, &bytes[500..])] {
        data.write_all(&data_block(offset, half)).unwrap();
    }
    ftp.await_code(150);
    // One at the beginning, one that asks for the sync, and those that wait for it.
    for _ in 0..4 {
        ftp.await_code(112);
    }
    drop(open);
    let safe = loop {
        let reply = ftp.reply();
        if reply.code != 112 {
            break reply;
        }
    };
    assert_eq!(safe.code, 111, "{safe:?}");
    assert!(safe.text().contains("0-500"), "{safe:?}");
    data.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
    assert_eq!(final_code(&mut ftp), 226);
}
