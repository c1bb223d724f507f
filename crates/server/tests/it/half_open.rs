//! Clients that begin a login and never end it: other users still log in, each such client holds
//! little, and the server releases all of it.

use std::{
    fs,
    io::{self, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::{Duration, SystemTime},
};

use godwit_gsi::{
    Channel, Context, Expect, Settings, Versions, adat,
    cert::{Credential, files},
    verify::Policy,
};
use tempfile::TempDir;

use crate::{
    client::{connect, expect_closed},
    grid::Grid,
    gsi::prove,
    harness::eventually,
    pki::Blueprint,
    privsep::{JO, can_separate},
    program::Program,
};

/// How far a stranger comes before it falls silent.
#[derive(Clone, Copy, Debug)]
enum Depth {
    /// It says nothing.
    Connected,
    /// A name without a password.
    Named,
    /// AUTH TLS, and half of a handshake's first message.
    HalfHello,
    /// AUTH TLS and the first message: the server has answered with all that it has.
    Hello,
    /// The same in an ADAT.
    Token,
    /// An ADAT without end.
    HalfToken,
}

const DEPTHS: [Depth; 6] = [
    Depth::Connected,
    Depth::Named,
    Depth::HalfHello,
    Depth::Hello,
    Depth::Token,
    Depth::HalfToken,
];

/// A server for users of a grid, which offers TLS as well.
struct Site {
    grid: Grid,
    program: Program,
    /// The first message of anybody's handshake.
    hello: Vec<u8>,
    _folder: TempDir,
}

impl Site {
    fn new(more: &[&str]) -> Self {
        let now = SystemTime::now();
        let grid = Grid::with(Blueprint::authority("/O=Grid/CN=CA").at(now));
        let host = Blueprint::host("/O=Grid/CN=host", &["localhost"]).at(now);
        let host = host.issued_by(&grid.authority).to_pem().unwrap();
        let folder = TempDir::new().unwrap();
        let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        files::write_private(path("host").as_ref(), &host).unwrap();
        fs::write(path("map"), format!("/O=Grid/CN=Jo {JO}\n")).unwrap();
        fs::create_dir(path("root")).unwrap();
        let (host, map, root) = (path("host"), path("map"), path("root"));
        let authorities = grid.path().to_str().unwrap();
        let named = ["--cert", &host, "--gridmap", &map, "--root", &root];
        let site = ["--tls", "--gsi", "--trusted-certs", authorities];
        Self {
            program: Program::start(&[&named[..], &site, more].concat()),
            hello: hello(&grid, &grid.user),
            grid,
            _folder: folder,
        }
    }

    /// Comes as far as that, or until the server has had enough.
    fn stranger(&self, depth: Depth) -> TcpStream {
        let mut socket = connect(self.program.address);
        drop(fall_silent(&mut socket, depth, &self.hello));
        socket
    }

    fn honest(&self) {
        let mut jo = prove(self.program.address, &self.grid, &self.grid.user, None, "");
        jo.log_in();
        jo.expect("NOOP", "200 ");
    }
}

fn hello(grid: &Grid, user: &Credential) -> Vec<u8> {
    let context = Context::initiate(Settings {
        credential: user.clone(),
        anchors: Arc::new(grid.anchors()),
        policy: Policy::default(),
        expect: Expect::Anyone,
        channel: Channel::Control { delegate: None },
        versions: Versions::Any,
        server_name: None,
    });
    context.unwrap().poll_output().unwrap()
}

fn fall_silent(socket: &mut TcpStream, depth: Depth, hello: &[u8]) -> io::Result<()> {
    let half = &hello[..hello.len() / 2];
    let token = adat::command(hello);
    answer(socket, "220 ")?;
    match depth {
        Depth::Connected => Ok(()),
        Depth::Named => {
            socket.write_all(b"USER jo\r\n")?;
            answer(socket, "530 ")
        }
        Depth::HalfHello => {
            socket.write_all(b"AUTH TLS\r\n")?;
            answer(socket, "234 ")?;
            socket.write_all(half)
        }
        Depth::Hello => {
            socket.write_all(b"AUTH TLS\r\n")?;
            answer(socket, "234 ")?;
            socket.write_all(hello)?;
            socket.read_exact(&mut [0])
        }
        Depth::HalfToken => {
            socket.write_all(b"AUTH GSSAPI\r\n")?;
            answer(socket, "334 ")?;
            socket.write_all(&token.as_bytes()[..token.len() / 2])
        }
        Depth::Token => {
            socket.write_all(b"AUTH GSSAPI\r\n")?;
            answer(socket, "334 ")?;
            socket.write_all(format!("{token}\r\n").as_bytes())?;
            answer(socket, "335 ")
        }
    }
}

/// Reads up to the end of a line that begins so, and no byte further.
fn answer(socket: &mut TcpStream, code: &str) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            socket.read_exact(&mut byte)?;
            line.extend(byte);
        }
        if line.starts_with(code.as_bytes()) {
            return Ok(());
        }
    }
}

#[test]
fn unfinished_handshakes_cost_little_and_block_no_login() {
    let site = Site::new(&["--privsep=false"]);
    let strangers = |count: u64| -> Vec<_> {
        let all = DEPTHS.iter().cycle().take(usize::try_from(count).unwrap());
        all.map(|depth| site.stranger(*depth)).collect()
    };
    // What is made once, and what allocators keep.
    let warm = strangers(60);
    site.honest();
    let before = site.program.resident_kib();
    let count = 300;
    let crowd = strangers(count);
    site.honest();
    let grown = site.program.resident_kib().saturating_sub(before);
    assert!(grown < 128 * count, "{} KiB for each", grown / count);
    drop((warm, crowd));
}

#[test]
fn all_that_a_crowd_held_is_given_back_when_its_time_is_over() {
    for privsep in ["--privsep=false", "--privsep=true"] {
        if privsep == "--privsep=true" && !can_separate() {
            continue;
        }
        // Whose handshake is cut short counts as one who failed.
        let site = Site::new(&[privsep, "--login-timeout", "1", "--login-failures", "1000"]);
        let held = || {
            let pid = site.program.child.id();
            let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).unwrap().count();
            descriptors + site.program.children("privsep-").len()
        };
        let before = held();
        let all = DEPTHS.iter().cycle().take(60);
        let crowd: Vec<_> = all.map(|depth| site.stranger(*depth)).collect();
        // One sends its handshake without end, byte by byte.
        let mut slow = site.stranger(Depth::HalfHello);
        while slow.write_all(&[0]).is_ok() {
            std::thread::sleep(Duration::from_millis(20));
        }
        crowd.into_iter().for_each(expect_closed);
        eventually("all is given back", || held() <= before);
    }
}
