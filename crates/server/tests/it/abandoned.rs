//! Sessions that ask for something long and lose interest: they read nothing, then they are gone.
//!
//! `GODWIT_ABANDONED=300` lets as many ask for each long request, which takes some minutes of a
//! processor.

use std::{
    fs,
    io::{ErrorKind, Write as _},
    net::TcpStream,
    path::Path,
    time::{Duration, Instant},
};

use crate::{
    client::{Ftp, comma_address, connect},
    harness::{PATIENCE, TestServer, eventually, pattern},
    privsep::can_separate,
    program::Program,
};

/// More than what a server reads ahead (1000 commands), and than a socket's buffers hide.
const COMMANDS: usize = 200_000;

/// Bytes of a file of which the holes cannot be summed in a test's time.
const SPARSE_BYTES: u64 = 8 << 40;

/// Names in a directory, as long as they may be: their lines are more than sockets and the server
/// hold of a reply.
const NAMES: usize = 9000;

#[derive(Clone, Copy, Debug)]
enum Long {
    Cksm,
    Mlsc,
    Mlsr,
    Retr,
    Stor,
}

const ALL: [Long; 5] = [Long::Cksm, Long::Mlsc, Long::Mlsr, Long::Retr, Long::Stor];

/// What a session that was abandoned holds.
type Sockets = Vec<TcpStream>;

fn make_files(root: &Path) {
    fs::create_dir(root.join("d")).unwrap();
    for i in 0..NAMES {
        fs::write(root.join(format!("d/{i:0>250}")), b"").unwrap();
    }
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(SPARSE_BYTES).unwrap();
    fs::write(root.join("small"), pattern(1_000_000, 1)).unwrap();
}

/// As many as the kernel and the server take: the client reads no reply.
fn pile_up_commands(socket: &TcpStream) {
    let commands = "NOOP\r\n".repeat(COMMANDS);
    let mut rest = commands.as_bytes();
    socket
        .set_write_timeout(Some(Duration::from_millis(100)))
        .unwrap();
    let mut socket = socket;
    while !rest.is_empty() {
        match socket.write(rest) {
            Ok(count) => rest = &rest[count..],
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::WouldBlock, "{error}");
                return;
            }
        }
    }
}

/// Logs in, asks for it and reads no reply to it.
fn abandon(program: &Program, long: Long, number: usize) -> Sockets {
    let mut ftp = program.login();
    let mut data = None;
    if !matches!(long, Long::Cksm | Long::Mlsc) {
        let reply = ftp.expect("PASV", 227);
        data = Some(connect(comma_address(&reply.lines[0])));
    }
    ftp.send(&match long {
        Long::Cksm => "CKSM MD5 0 -1 /sparse".to_owned(),
        Long::Mlsc => "MLSC /d".to_owned(),
        Long::Mlsr => "MLSR /".to_owned(),
        Long::Retr => "RETR /sparse".to_owned(),
        Long::Stor => format!("STOR /stored{number}"),
    });
    if let (Long::Stor, Some(data)) = (long, &mut data) {
        data.write_all(b"a beginning").unwrap();
    }
    let mut sockets = vec![ftp.socket().try_clone().unwrap()];
    sockets.extend(data);
    sockets
}

/// A login from beginning to end, and a checksum, which clients ask for by default.
fn honest(program: &Program) -> Duration {
    let begun = Instant::now();
    let mut ftp = program.login();
    let took = begun.elapsed();
    ftp.expect("CKSM CRC32C 0 -1 /small", 213);
    ftp.expect("QUIT", 221);
    took
}

/// Clock ticks of processor time of the server and all its processes.
fn ticks(program: &Program) -> u64 {
    let mut processes = program.children("privsep-");
    processes.push(program.child.id());
    let of = |pid: u32| -> Option<u64> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (_, fields) = stat.rsplit_once(") ")?;
        let fields: Vec<&str> = fields.split(' ').collect();
        // utime and stime, fields 14 and 15 of proc(5).
        Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
    };
    processes.into_iter().filter_map(of).sum()
}

/// Below a tenth of one processor for a second. Processes that end take their ticks along, which is
/// no rest.
fn is_idle(program: &Program) -> bool {
    let processes = program.children("privsep-").len();
    let before = ticks(program);
    std::thread::sleep(Duration::from_secs(1));
    program.children("privsep-").len() == processes && ticks(program) < before + 10
}

#[allow(clippy::print_stderr, reason = "figures for the reader of the log")]
fn survive(program: &Program, root: &Path, sessions: usize) {
    make_files(root);
    for long in ALL {
        let begun = Instant::now();
        let mut abandoned = Vec::new();
        for number in 0..sessions {
            abandoned.push(abandon(program, long, number));
        }
        // Some with more than is read ahead, behind which the end of the connection hides.
        for sockets in abandoned.iter().take(3) {
            pile_up_commands(&sockets[0]);
        }
        let asked = begun.elapsed();
        let meanwhile = honest(program);
        let gone = Instant::now();
        drop(abandoned);
        eventually("the processors are idle", || is_idle(program));
        let idle = gone.elapsed();
        let afterwards = honest(program);
        eprintln!(
            "{sessions} of {long:?}, within {asked:.1?}: a login took {meanwhile:.1?} beside them \
             and {afterwards:.1?} behind them, idle after {idle:.1?}"
        );
    }
}

fn sessions() -> usize {
    std::env::var("GODWIT_ABANDONED").map_or(60, |count| count.parse().unwrap())
}

#[test]
fn one_process_survives_abandoned_sessions() {
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let program = Program::start(&["--anonymous", "rw", "--root", root, "--privsep=false"]);
    survive(&program, folder.path(), sessions());
}

#[test]
fn separated_processes_survive_abandoned_sessions() {
    if !can_separate() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let root = folder.path().to_str().unwrap();
    let program = Program::start(&["--anonymous", "rw", "--root", root, "--privsep"]);
    survive(&program, folder.path(), sessions());
}

/// There are more of them than processors.
#[test]
fn checksums_that_take_hours_stop_no_others() {
    let server = TestServer::start();
    make_sparse(&server);
    server.write("small", pattern(1_000_000, 1));
    let cores = std::thread::available_parallelism().unwrap().get();
    let mut endless: Vec<Ftp> = (0..=cores).map(|_| server.login()).collect();
    for ftp in &mut endless {
        ftp.send("CKSM MD5 0 -1 /sparse");
    }
    let mut honest = server.login();
    let digest = honest.expect("CKSM MD5 0 -1 /small", 213);
    assert_eq!(digest.text().len(), 32);
    let mut data = honest.put("STOR /behind", b"them");
    assert_eq!(data.code, 226, "{data:?}");
    data = honest.call("CKSM ADLER32 0 -1 /sparse");
    assert_eq!(data.code, 213, "a hole costs nothing here: {data:?}");
}

#[test]
fn a_connection_that_ends_behind_many_commands_is_noticed() {
    let server = TestServer::with(|settings| settings.bounds.per_account = 1);
    make_sparse(&server);
    let mut ftp = server.login();
    ftp.send("CKSM SHA512 0 -1 /sparse");
    pile_up_commands(ftp.socket());
    drop(ftp);
    eventually("the session ends", || {
        let mut next = server.connect();
        next.socket().set_read_timeout(Some(PATIENCE)).unwrap();
        next.expect("USER anonymous", 331);
        next.call("PASS me@example.org").code == 230
    });
}

fn make_sparse(server: &TestServer) {
    server.write("sparse", b"");
    let sparse = fs::File::options().write(true).open(server.path("sparse"));
    sparse.unwrap().set_len(SPARSE_BYTES).unwrap();
}
