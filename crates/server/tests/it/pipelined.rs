//! Commands that are sent ahead: what follows must be as if each had waited for the reply before
//! it.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::TcpListener,
    path::{Path, PathBuf},
};

use godwit_proto::pi::server::SPECULATIVE_MAX;
use proptest::prelude::*;

use crate::{
    client::{
        EOD, EOF, Ftp, accept, assemble, block, connect, data_block, listen, port_command,
        take_channel,
    },
    harness::{TestServer, eventually, pattern},
};

fn block_mode(server: &TestServer) -> Ftp {
    let mut ftp = server.login();
    ftp.expect("MODE E", 200);
    ftp
}

/// A file of one block as the only channel sends it.
fn whole(bytes: &[u8]) -> Vec<u8> {
    let mut wire = Vec::new();
    if !bytes.is_empty() {
        wire.extend(data_block(0, bytes));
    }
    wire.extend(block(EOF | EOD, 0, 1, b""));
    wire
}

/// The next reply that ends a command.
fn ending(ftp: &mut Ftp) -> (u16, String) {
    loop {
        let reply = ftp.reply();
        if reply.code >= 200 {
            let text = if reply.code == 213 {
                reply.text()
            } else {
                String::new()
            };
            return (reply.code, text);
        }
    }
}

fn open_files_below(root: &Path) -> Vec<PathBuf> {
    let root = root.canonicalize().unwrap();
    fs::read_dir("/proc/self/fd")
        .unwrap()
        .filter_map(|entry| fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.starts_with(&root) && *target != root)
        .collect()
}

#[test]
fn many_small_files_come_in_order() {
    let server = TestServer::start();
    let files: Vec<Vec<u8>> = (0..300)
        .map(|i| pattern(i * 7 % 1500, u8::try_from(i % 256).unwrap()))
        .collect();
    for (i, bytes) in files.iter().enumerate() {
        server.write(&format!("f{i}"), bytes);
    }
    let mut ftp = block_mode(&server);
    let listener = ftp.active();
    let commands: String = (0..300).map(|i| format!("RETR /f{i}\r\n")).collect();
    ftp.send_raw(commands.as_bytes());
    let mut data = accept(&listener);
    for bytes in &files {
        assert_eq!(&assemble(&[take_channel(&mut data)]), bytes);
    }
    for i in 0..300 {
        ftp.await_code(if i == 0 { 150 } else { 125 });
        ftp.await_code(226);
    }

    let mut data = ftp.passive();
    let commands: String = (0..300).map(|i| format!("STOR /g{i}\r\n")).collect();
    ftp.send_raw(commands.as_bytes());
    let wire: Vec<u8> = files.iter().flat_map(|bytes| whole(bytes)).collect();
    data.write_all(&wire).unwrap();
    for (i, bytes) in files.iter().enumerate() {
        assert_eq!(ending(&mut ftp).0, 226);
        assert_eq!(&server.read(&format!("g{i}")), bytes);
    }
}

#[test]
fn a_refused_file_is_answered_in_its_place() {
    let server = TestServer::start();
    server.write("a", b"abc");
    let mut ftp = block_mode(&server);
    let listener = ftp.active();
    ftp.send_raw(b"RETR /a\r\nRETR /a\r\nRETR /none\r\nSIZE /a\r\nRETR /a\r\nNOOP\r\n");
    let mut data = accept(&listener);
    for _ in 0..2 {
        assert_eq!(assemble(&[take_channel(&mut data)]), b"abc");
    }
    // A receiver could not tell whose bytes come behind a file that never began: the channel goes
    // with it.
    for code in [226, 226, 550, 213, 425, 200] {
        assert_eq!(ending(&mut ftp).0, code);
    }
    assert_eq!(data.read(&mut [0]).unwrap(), 0);
    ftp.expect(&port_command(listener.local_addr().unwrap()), 200);
    ftp.send_raw(b"RETR /a\r\nRETR /a\r\n");
    let mut data = accept(&listener);
    for _ in 0..2 {
        assert_eq!(assemble(&[take_channel(&mut data)]), b"abc");
        assert_eq!(ending(&mut ftp).0, 226);
    }
}

/// A session whose first retrieval waits for us, with many behind it.
fn stalled(server: &TestServer, behind: usize) -> (Ftp, TcpListener) {
    server.write("big", pattern(40_000_000, 1));
    for i in 0..behind {
        server.write(&format!("f{i}"), b"abc");
    }
    let mut ftp = block_mode(server);
    let listener = ftp.active();
    let commands: String = (0..behind).map(|i| format!("RETR /f{i}\r\n")).collect();
    ftp.send_raw(format!("RETR /big\r\n{commands}").as_bytes());
    ftp.await_code(150);
    (ftp, listener)
}

#[test]
fn so_many_files_are_opened_ahead_and_no_more() {
    let server = TestServer::start();
    let (ftp, listener) = stalled(&server, 300);
    eventually("files are opened ahead", || {
        open_files_below(&server.path("")).len() == SPECULATIVE_MAX + 1
    });
    drop((ftp, listener));
    eventually("all are closed", || {
        open_files_below(&server.path("")).is_empty()
    });
}

#[test]
fn an_abort_ends_all_that_waits() {
    let server = TestServer::start();
    let (mut ftp, listener) = stalled(&server, 40);
    ftp.send("ABOR");
    for _ in 0..41 {
        ftp.await_code(426);
    }
    ftp.await_code(226);
    eventually("all are closed", || {
        open_files_below(&server.path("")).is_empty()
    });
    drop(listener);
    let listener = ftp.active();
    ftp.send("RETR /f7");
    assert_eq!(assemble(&[take_channel(&mut accept(&listener))]), b"abc");
    assert_eq!(ending(&mut ftp).0, 226);
}

#[test]
fn an_abort_between_receipts_leaves_no_writer_behind() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let mut data = ftp.passive();
    let commands: String = (0..50).map(|i| format!("STOR /f{i}\r\n")).collect();
    ftp.send_raw(commands.as_bytes());
    // Ten whole files, and the eleventh in part.
    data.write_all(&whole(b"abc").repeat(10)).unwrap();
    data.write_all(&data_block(0, b"abc")).unwrap();
    for _ in 0..10 {
        assert_eq!(ending(&mut ftp).0, 226);
    }
    ftp.await_code(125);
    ftp.send("ABOR");
    for _ in 10..50 {
        assert_eq!(ending(&mut ftp).0, 426);
    }
    ftp.await_code(226);
    ftp.expect("DELE /f10", 250);
    assert!(!server.path("f10").exists() && !server.path("f11").exists());
}

#[test]
fn commands_wait_in_the_kernel_while_many_are_ahead() {
    let server = TestServer::start();
    let mut ftp = block_mode(&server);
    let mut data = connect(ftp.pasv());
    ftp.send("STOR /f");
    // More than are ever queued; the client may send them all and is not sent away.
    let sender = ftp.socket().try_clone().unwrap();
    let sending = std::thread::spawn(move || {
        (&sender)
            .write_all("NOOP\r\n".repeat(50_000).as_bytes())
            .unwrap();
    });
    ftp.await_code(150);
    data.write_all(&whole(b"abc")).unwrap();
    assert_eq!(ending(&mut ftp).0, 226);
    for _ in 0..50_000 {
        ftp.await_code(200);
    }
    sending.join().unwrap();
}

#[derive(Clone, Debug)]
enum Step {
    Retr(&'static str),
    Eret(&'static str),
    Stor(&'static str, u16, u8),
    Say(String),
}

impl Step {
    fn line(&self) -> String {
        match self {
            Self::Retr(path) => format!("RETR {path}"),
            Self::Eret(path) => format!("ERET P 1 2 {path}"),
            Self::Stor(path, ..) => format!("STOR {path}"),
            Self::Say(line) => line.clone(),
        }
    }
}

const PATHS: [&str; 6] = ["/a", "/b", "/d/c", "/link", "/dirlink/c", "/none"];

fn path() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&PATHS[..])
}

/// What may stand between transfers; RNFR and RNTO come as a pair, most of the time.
fn other() -> impl Strategy<Value = Vec<Step>> {
    prop_oneof![
        3 => path().prop_map(|p| vec![Step::Say(format!("SIZE {p}"))]),
        2 => path().prop_map(|p| vec![Step::Say(format!("DELE {p}"))]),
        2 => (path(), path()).prop_map(|(from, to)| {
            vec![Step::Say(format!("RNFR {from}")), Step::Say(format!("RNTO {to}"))]
        }),
        1 => path().prop_map(|p| vec![Step::Say(format!("RNFR {p}"))]),
        1 => path().prop_map(|p| vec![Step::Say(format!("RNTO {p}"))]),
        1 => path().prop_map(|p| vec![Step::Say(format!("MFMT 20260102030405 {p}"))]),
        1 => path().prop_map(|p| vec![Step::Say(format!("MLST {p}"))]),
        2 => path().prop_map(|p| vec![Step::Say(format!("CKSM MD5 0 -1 {p}"))]),
        1 => Just(vec![Step::Say("CWD /d".to_owned())]),
        1 => Just(vec![Step::Say("REST 1".to_owned())]),
        1 => Just(vec![Step::Say("NOOP".to_owned())]),
        1 => Just(vec![Step::Say("NONSENSE".to_owned())]),
        1 => path().prop_map(|p| vec![Step::Say(format!("SITE RDEL {p}"))]),
    ]
}

/// Steps on one data channel object.
fn stretch(sends: bool) -> impl Strategy<Value = (bool, Vec<Step>)> {
    let transfer = if sends {
        prop_oneof![
            4 => path().prop_map(|p| vec![Step::Retr(p)]),
            1 => path().prop_map(|p| vec![Step::Eret(p)]),
            1 => Just(vec![Step::Retr("c")]),
        ]
        .boxed()
    } else {
        (path(), 0_u16..3000, any::<u8>())
            .prop_map(|(p, bytes, seed)| vec![Step::Stor(p, bytes, seed)])
            .boxed()
    };
    prop::collection::vec(prop_oneof![3 => transfer, 1 => other()], 1..12)
        .prop_map(move |steps| (sends, steps.concat()))
}

type Tree = BTreeMap<PathBuf, Vec<u8>>;

/// Replies, files as they came, and what is there in the end.
type Seen = (Vec<(u16, String)>, Vec<Vec<u8>>, Tree);

fn set_up(server: &TestServer) {
    for entry in fs::read_dir(server.path("")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }
    fs::create_dir(server.path("d")).unwrap();
    server.write("a", pattern(1000, 1));
    server.write("b", pattern(20, 2));
    server.write("d/c", pattern(70_000, 3));
    std::os::unix::fs::symlink("a", server.path("link")).unwrap();
    std::os::unix::fs::symlink("d", server.path("dirlink")).unwrap();
}

fn tree(root: &Path) -> Tree {
    let mut tree = Tree::new();
    for entry in fs::read_dir(root).unwrap() {
        let path = entry.unwrap().path();
        if path.is_symlink() {
            let target = fs::read_link(&path).unwrap();
            tree.insert(path, target.into_os_string().into_encoded_bytes());
        } else if path.is_dir() {
            tree.extend(self::tree(&path));
        } else {
            tree.insert(path.clone(), fs::read(&path).unwrap());
        }
    }
    tree
}

fn play(server: &TestServer, stretches: &[(bool, Vec<Step>)], ahead: bool) -> Seen {
    set_up(server);
    let (mut replies, mut files) = (Vec::new(), Vec::new());
    let mut ftp = block_mode(server);
    for (sends, steps) in stretches {
        ftp.expect("CWD /", 250);
        if *sends {
            retrieve(&mut ftp, steps, ahead, &mut replies, &mut files);
        } else {
            store(&mut ftp, steps, ahead, &mut replies);
        }
    }
    ftp.expect("QUIT", 221);
    (replies, files, tree(&server.path("")))
}

fn retrieve(
    ftp: &mut Ftp,
    steps: &[Step],
    ahead: bool,
    replies: &mut Vec<(u16, String)>,
    files: &mut Vec<Vec<u8>>,
) {
    let listener = listen();
    ftp.expect(&port_command(listener.local_addr().unwrap()), 200);
    // Takes every file of the one connection there is, if one comes, until the server closes it or
    // we do.
    let address = listener.local_addr().unwrap();
    let taking = std::thread::spawn(move || {
        let mut data = accept(&listener);
        let mut files = Vec::new();
        while data.peek(&mut [0]).is_ok_and(|count| count > 0) {
            files.push(take_channel(&mut data).blocks);
        }
        files
    });
    if ahead {
        let lines: String = steps.iter().map(|s| s.line() + "\r\n").collect();
        ftp.send_raw(lines.as_bytes());
    }
    for step in steps {
        if !ahead {
            ftp.send(&step.line());
        }
        replies.push(ending(ftp));
    }
    // Ends the data channel, and the wait where there never was one.
    ftp.expect(&port_command(address), 200);
    drop(std::net::TcpStream::connect(address));
    for blocks in taking.join().unwrap() {
        let mut blocks = blocks;
        blocks.sort();
        files.push(blocks.into_iter().flat_map(|(_, bytes)| bytes).collect());
    }
}

fn store(ftp: &mut Ftp, steps: &[Step], ahead: bool, replies: &mut Vec<(u16, String)>) {
    let mut data = ftp.passive();
    let bytes = |step: &Step| match step {
        Step::Stor(_, bytes, seed) => whole(&pattern(usize::from(*bytes), *seed)),
        _ => Vec::new(),
    };
    if ahead {
        let lines: String = steps.iter().map(|s| s.line() + "\r\n").collect();
        ftp.send_raw(lines.as_bytes());
        // A receipt that fails takes the connection along, and what is on it.
        let _ = data.write_all(&steps.iter().flat_map(bytes).collect::<Vec<_>>());
    }
    for step in steps {
        if !ahead {
            ftp.send(&step.line());
            let _ = data.write_all(&bytes(step));
        }
        replies.push(ending(ftp));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn sent_ahead_or_one_by_one_is_the_same(
        stretches in prop::collection::vec(any::<bool>().prop_flat_map(stretch), 1..4),
    ) {
        let server = TestServer::start();
        let one_by_one = play(&server, &stretches, false);
        let ahead = play(&server, &stretches, true);
        prop_assert_eq!(one_by_one.0, ahead.0);
        prop_assert!(one_by_one.1 == ahead.1, "files differ");
        prop_assert!(one_by_one.2 == ahead.2, "trees differ");
    }
}
