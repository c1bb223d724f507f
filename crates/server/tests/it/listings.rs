//! LIST, NLST, MLSD over data connections, MLSC on the control connection.

use std::{
    collections::BTreeSet,
    io::{BufRead as _, BufReader, Read as _},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime},
};

use godwit_engine::storage::{Entries, FileRef, Metadata, NullStorage, Result, Storage, WriteMode};
use godwit_proto::FtpPath;

use crate::{
    client::{accept, assemble, take_channel},
    harness::{TestServer, eventually},
};

fn server_with_entries(count: usize) -> TestServer {
    let server = TestServer::start();
    std::fs::create_dir(server.path("d")).unwrap();
    for i in 0..count {
        server.write(&format!("d/file {i}"), b"x");
    }
    server
}

fn names(facts: &str) -> BTreeSet<&str> {
    facts
        .lines()
        .map(|line| line.split_once("; ").unwrap().1)
        .collect()
}

#[test]
fn listings_in_stream_mode() {
    let server = server_with_entries(2);
    let mut ftp = server.login();
    let text = String::from_utf8(ftp.get("MLSD /d")).unwrap();
    assert!(text.ends_with("\r\n"));
    assert_eq!(
        names(&text),
        BTreeSet::from([".", "..", "file 0", "file 1"])
    );
    let text = String::from_utf8(ftp.get("NLST /d")).unwrap();
    let lines: BTreeSet<_> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    let text = String::from_utf8(ftp.get("LIST -la /d")).unwrap();
    assert!(text.lines().all(|line| line.starts_with("-rw")), "{text}");
    std::fs::create_dir(server.path("empty")).unwrap();
    assert_eq!(ftp.get("NLST /empty"), b"");
}

#[test]
fn listings_end_lines_with_one_cr_in_ascii_too() {
    let server = server_with_entries(3);
    let mut ftp = server.login();
    ftp.expect("TYPE A", 200);
    let bytes = ftp.get("MLSD /d");
    assert!(!bytes.windows(2).any(|pair| pair == b"\r\r"));
    assert_eq!(bytes.iter().filter(|o| **o == b'\n').count(), 5);
}

#[test]
fn listing_of_a_missing_path_fails_before_150() {
    let server = TestServer::start();
    let mut ftp = server.login();
    let address = ftp.pasv();
    let reply = ftp.call("MLSD /none");
    assert_eq!(reply.code, 550, "{reply:?}");
    assert!(reply.text().contains("No such file or directory"));
    // The listener is still good: nothing was connected.
    let data = crate::client::connect(address);
    ftp.expect("MLSD /", 150);
    assert!(!crate::client::read_all(data).is_empty());
    ftp.await_code(226);
}

#[test]
fn listing_in_block_mode_then_file_on_the_same_connection() {
    let server = server_with_entries(300);
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    let listener = ftp.active();
    ftp.send("MLSD /d");
    let mut data = accept(&listener);
    ftp.await_code(150);
    let take = take_channel(&mut data);
    assert!(!take.close);
    let (_, reply) = ftp.final_reply();
    assert_eq!(reply.code, 226);
    let text = String::from_utf8(assemble(&[take])).unwrap();
    assert_eq!(names(&text).len(), 302);

    ftp.expect("RETR /d/file 7", 125);
    let take = take_channel(&mut data);
    assert_eq!(assemble(&[take]), b"x");
    ftp.await_code(226);
    ftp.expect("QUIT", 221);
    assert_eq!(data.read(&mut [0]).unwrap(), 0);
}

#[test]
fn control_listings_come_in_pages() {
    let server = server_with_entries(1200);
    let mut ftp = server.login();
    ftp.send("MLSC /d");
    let mut found = BTreeSet::new();
    let mut pages = 0;
    loop {
        let reply = ftp.reply();
        let body = &reply.lines[1..reply.lines.len() - 1];
        found.extend(
            body.iter()
                .map(|l| l.split_once("; ").unwrap().1.to_owned()),
        );
        pages += 1;
        if reply.code == 250 {
            break;
        }
        assert_eq!(reply.code, 150, "{:?}", reply.lines[0]);
    }
    assert_eq!(found.len(), 1202);
    assert_eq!(pages, 3);
    ftp.expect("MLSC /none", 550);
    ftp.expect("NOOP", 200);
}

#[test]
fn a_client_that_does_not_read_holds_its_listing_up() {
    // More text than two kernels' socket buffers take would need a huge directory: ask for it often
    // instead.
    let server = server_with_entries(500);
    let mut ftp = server.login();
    let rounds = 200;
    ftp.send_raw("MLSC /d\r\n".repeat(rounds).as_bytes());
    // Other sessions are served meanwhile.
    server.login().expect("NOOP", 200);
    for _ in 0..rounds {
        loop {
            let reply = ftp.reply();
            if reply.code == 250 {
                break;
            }
            assert_eq!(reply.code, 150);
        }
    }
}

#[test]
fn patterns_and_trees() {
    let server = server_with_entries(3);
    std::fs::create_dir_all(server.path("d/sub/deep")).unwrap();
    server.write("d/sub/deep/leaf", b"x");
    let mut ftp = server.login();
    let text = String::from_utf8(ftp.get("NLST /d/file*")).unwrap();
    assert_eq!(text.lines().count(), 3, "{text}");
    let text = String::from_utf8(ftp.get("MLSR /d")).unwrap();
    assert!(names(&text).contains("sub/deep/leaf"), "{text}");
    ftp.pasv();
    assert!(ftp.call("NLST /d/nothing*").code >= 400);
}

/// One directory of many files that are nowhere; counts those that were asked for.
struct Crowded {
    nothing: NullStorage,
    made: Arc<AtomicU64>,
}

const CROWD: u64 = 1_000_000;

#[rustfmt::skip]
impl Storage for Crowded {
    fn list(&self, _: &FtpPath) -> Result<Entries> {
        let about = self.nothing.stat(&FtpPath::new("/file").unwrap())?;
        let made = Arc::clone(&self.made);
        Ok(Box::new((0..CROWD).map(move |i| {
            made.fetch_add(1, Ordering::Relaxed);
            Ok((format!("{i:07}").into_bytes(), about.clone()))
        })))
    }
    fn stat(&self, path: &FtpPath) -> Result<Metadata> { self.nothing.stat(path) }
    fn open_read(&self, path: &FtpPath) -> Result<FileRef> { self.nothing.open_read(path) }
    fn open_write(&self, path: &FtpPath, how: WriteMode) -> Result<FileRef> {
        self.nothing.open_write(path, how)
    }
    fn create_dir(&self, path: &FtpPath) -> Result<()> { self.nothing.create_dir(path) }
    fn remove_dir(&self, path: &FtpPath) -> Result<()> { self.nothing.remove_dir(path) }
    fn remove_file(&self, path: &FtpPath) -> Result<()> { self.nothing.remove_file(path) }
    fn remove_tree(&self, path: &FtpPath) -> Result<()> { self.nothing.remove_tree(path) }
    fn rename(&self, from: &FtpPath, to: &FtpPath) -> Result<()> { self.nothing.rename(from, to) }
    fn set_modified(&self, path: &FtpPath, at: SystemTime) -> Result<()> {
        self.nothing.set_modified(path, at)
    }
    fn set_mode(&self, path: &FtpPath, mode: u32) -> Result<()> {
        self.nothing.set_mode(path, mode)
    }
    fn set_group(&self, path: &FtpPath, group: &str) -> Result<()> {
        self.nothing.set_group(path, group)
    }
    fn set_len(&self, path: &FtpPath, length: u64) -> Result<()> {
        self.nothing.set_len(path, length)
    }
    fn symlink(&self, target: &FtpPath, link: &FtpPath) -> Result<()> {
        self.nothing.symlink(target, link)
    }
    fn free_bytes(&self, path: &FtpPath) -> Result<u64> { self.nothing.free_bytes(path) }
    fn sync_directory(&self, path: &FtpPath) -> Result<()> { self.nothing.sync_directory(path) }
}

#[test]
fn a_million_entries_are_made_as_they_are_read() {
    let made = Arc::new(AtomicU64::new(0));
    let storage = Crowded {
        nothing: NullStorage::new(1),
        made: Arc::clone(&made),
    };
    let server = TestServer::on(Arc::new(storage), |_| {});
    let mut ftp = server.login();
    for command in ["MLSD /", "MLSR /"] {
        made.store(0, Ordering::Relaxed);
        let data = ftp.passive();
        ftp.expect(command, 150);
        eventually("entries are made", || made.load(Ordering::Relaxed) > 0);
        // Time enough to make them all, for a server that would.
        std::thread::sleep(Duration::from_millis(500));
        let mut lines = 0_u64;
        for line in BufReader::new(data).split(b'\n') {
            line.unwrap();
            if lines.is_multiple_of(1000) {
                // What sockets and buffers hold, with room to spare.
                let ahead = made.load(Ordering::Relaxed).saturating_sub(lines);
                assert!(ahead < CROWD / 4, "{command}: {ahead} entries ahead");
            }
            lines += 1;
        }
        assert!(lines >= CROWD, "{command}: {lines}");
        ftp.await_code(226);
    }
}

#[test]
fn special_files_are_listed_by_kind() {
    let server = TestServer::start();
    let status = std::process::Command::new("mkfifo")
        .arg(server.path("fifo"))
        .status();
    assert!(status.unwrap().success());
    let _socket = std::os::unix::net::UnixListener::bind(server.path("socket")).unwrap();
    let mut ftp = server.login();
    for (name, letter) in [("fifo", "p"), ("socket", "s")] {
        let fact = format!("Type=OS.unix={name};");
        let reply = ftp.expect(&format!("MLST /{name}"), 250);
        assert!(reply.lines[1].contains(&fact), "{reply:?}");
        for command in ["MLSD /", "MLSR /"] {
            let lines = String::from_utf8(ftp.get(command)).unwrap();
            let line = lines
                .lines()
                .find(|line| line.ends_with(&format!(" {name}")));
            assert!(line.unwrap().contains(&fact), "{command}: {lines}");
        }
        let lines = String::from_utf8(ftp.get("LIST /")).unwrap();
        let line = lines
            .lines()
            .find(|line| line.ends_with(&format!(" {name}")));
        assert!(line.unwrap().starts_with(letter), "{lines}");
    }
}
