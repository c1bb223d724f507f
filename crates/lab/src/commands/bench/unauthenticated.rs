//! Benchmark cells of unauthenticated connections: thousands that never log in, what they cost the
//! server, and how long logins take meanwhile.
//!
//! On paper: a silent connection costs a descriptor and some KiB. One that has begun TLS costs a
//! signature and the buffers of its handshake, and with privilege separation a process. By default
//! a server keeps 1000 of either kind and evicts the oldest; without that limit the cell shows what
//! each of them costs.

use std::{
    io::{self, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    process::Command,
    thread::ScopedJoinHandle,
    time::{Duration, Instant},
};

use godwit_engine::host::net::raise_fd_limit;
use socket2::{Domain, Socket, Type};

use super::{
    BenchError, RUN_LIMIT,
    testbed::{Testbed, goodput_cell},
};
use crate::peers::{
    Error, Held,
    godwit::{self, Godwitd, GodwitdConfig},
    grid::{self, Grid},
    process,
};
use crate::stats::median;

const NAME: &str = "strangers";

/// Strangers of one address.
const PER_ADDRESS: u32 = 200;

/// Descriptors beyond theirs.
const SPARE: u64 = 1000;

/// Strangers that come at the same moment.
const AT_A_TIME: u32 = 8;

/// Longest wait for a word of the server.
const PATIENCE: Duration = Duration::from_secs(30);

/// Time that a stranger has.
const LOGIN_SECONDS: &str = "30";

/// Time after which what strangers held must be back, at the latest.
const BACK_WITHIN: Duration = Duration::from_secs(120);

/// Logins before strangers come, and again once they are there.
const LOGINS: u32 = 10;

/// What strangers do.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Depth {
    Silent,
    Begun,
}

/// How the server stands to them.
struct ServerMode {
    name: &'static str,
    apart: bool,
    room_for_all: bool,
}

const MODES: [ServerMode; 3] = [
    ServerMode {
        name: "one process, room for all",
        apart: false,
        room_for_all: true,
    },
    ServerMode {
        name: "one process, its defaults",
        apart: false,
        room_for_all: false,
    },
    ServerMode {
        name: "privileges apart, its defaults",
        apart: true,
        room_for_all: false,
    },
];

/// What came of a crowd.
struct HeldConnections {
    /// Connections that were there at the end.
    there: usize,
    rest: Held,
    held: Held,
    /// Wall clock times of logins, ms: before, while they came, once they were there.
    logins_ms: [Vec<f64>; 3],
    came_in: Duration,
    /// From the last arrival until the server held what it had held before; `None`: not within the
    /// limit.
    given_back: Option<Duration>,
}

/// Meets them in every way.
pub(super) fn run(testbed: &mut Testbed<'_>) -> Result<(), BenchError> {
    if !testbed.is_asked_for(NAME) {
        return Ok(());
    }
    let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
    grid::available().map_err(Error::from)?;
    let grid = Grid::new(&[ip])?;
    let room = raise_fd_limit().saturating_sub(SPARE);
    let count = u32::try_from((10_000 / testbed.scale()).min(room)).unwrap_or(u32::MAX);
    testbed.begin(goodput_cell(
        NAME.into(),
        "connections that never log in, and logins beside them".into(),
        "godwit",
    ))?;
    for mode in MODES {
        if mode.apart && !rustix::process::geteuid().is_root() {
            testbed.leave_out(NAME, mode.name, "not root")?;
            continue;
        }
        for (what, depth) in [
            ("without a word", Depth::Silent),
            ("TLS begun", Depth::Begun),
        ] {
            let server = serve(&grid, &mode, ip).start()?;
            let outcome = hold_connections(&grid, &server, count, depth)?;
            testbed.fact(
                NAME,
                format!("{}, {count} x {what}: {}", mode.name, describe(&outcome)),
            )?;
        }
    }
    Ok(())
}

fn serve(grid: &Grid, mode: &ServerMode, ip: IpAddr) -> GodwitdConfig {
    let config = Godwitd::serving("/").ip(ip);
    let config = match mode.apart {
        true => grid.of_godwitd_apart(config),
        false => grid.of_godwitd(config),
    };
    let config = config.arg("--tls").arg("--gsi");
    let config = config.arg("--login-timeout").arg(LOGIN_SECONDS);
    if !mode.room_for_all {
        return config;
    }
    let limits = [
        "--max-sessions",
        "--max-sessions-per-address",
        "--max-logins",
        "--max-logins-per-address",
    ];
    limits
        .into_iter()
        .fold(config, |config, limit| config.arg(limit).arg("1000000"))
}

fn hold_connections(
    grid: &Grid,
    server: &Godwitd,
    count: u32,
    depth: Depth,
) -> Result<HeldConnections, BenchError> {
    let address = server.addr();
    let before = (0..LOGINS).map(|_| log_in(grid, server));
    let before = before.collect::<Result<Vec<_>, _>>()?;
    let rest = server.process().held();
    let begun = Instant::now();
    let (held, meanwhile) = std::thread::scope(|scope| {
        let part = |first: u32| {
            scope.spawn(move || -> Vec<TcpStream> {
                let numbers = (first..count).step_by(AT_A_TIME as usize);
                let connections =
                    numbers.map(|number| unauthenticated_connection(address, number, depth));
                connections.filter_map(Result::ok).collect()
            })
        };
        let parts: Vec<_> = (0..AT_A_TIME).map(part).collect();
        let mut meanwhile = Vec::new();
        while !parts.iter().all(ScopedJoinHandle::is_finished) {
            meanwhile.push(log_in(grid, server));
        }
        // A stranger fails by an error, and an error is no panic.
        let parts = parts
            .into_iter()
            .map(|part| part.join().unwrap_or_default());
        (parts.flatten().collect::<Vec<_>>(), meanwhile)
    });
    let came_in = begun.elapsed();
    let last = Instant::now();
    let meanwhile = meanwhile.into_iter().collect::<Result<Vec<_>, _>>()?;
    let there = held.iter().filter(|socket| is_open(socket)).count();
    let held = server.process().held();
    let after = (0..LOGINS).map(|_| log_in(grid, server));
    let after = after.collect::<Result<Vec<_>, _>>()?;
    let mut given_back = None;
    while given_back.is_none() && last.elapsed() < BACK_WITHIN {
        let now = server.process().held();
        if now.descriptors <= rest.descriptors && now.processes <= rest.processes {
            given_back = Some(last.elapsed());
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(HeldConnections {
        there,
        rest,
        held,
        logins_ms: [before, meanwhile, after],
        came_in,
        given_back,
    })
}

/// Wall clock time of a user's login and a question, ms, from start to end of the client's process.
fn log_in(grid: &Grid, server: &Godwitd) -> Result<f64, BenchError> {
    let mut command = Command::new(godwit::binary("godwit").map_err(Error::from)?);
    let url = server.url("/etc").replacen("ftp://", "gsiftp://", 1);
    command.args(["stat", "--protect", "clear", &url]);
    command.envs(grid.of_user());
    let finished = process::run(command, RUN_LIMIT)?.success()?;
    Ok(finished.usage.wall.as_secs_f64() * 1e3)
}

/// Comes from an address of this machine that so many share, goes so far, and falls silent.
fn unauthenticated_connection(
    server: SocketAddr,
    number: u32,
    depth: Depth,
) -> io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    let [.., high, low] = (number / PER_ADDRESS).to_be_bytes();
    let from = SocketAddr::from(([127, 1, high, low], 0));
    socket.bind(&from.into())?;
    socket.connect(&server.into())?;
    let mut socket = TcpStream::from(socket);
    socket.set_read_timeout(Some(PATIENCE))?;
    if depth == Depth::Begun {
        await_line(&mut socket, b"220 ")?;
        socket.write_all(b"AUTH TLS\r\n")?;
        await_line(&mut socket, b"234 ")?;
        socket.write_all(&client_hello())?;
        // The server has answered with its certificate and a signature.
        socket.read_exact(&mut [0])?;
    }
    Ok(socket)
}

/// Reads up to the end of a line that begins so, and no byte further.
fn await_line(socket: &mut TcpStream, start: &[u8]) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            let mut byte = [0];
            socket.read_exact(&mut byte)?;
            line.extend(byte);
        }
        if line.starts_with(start) {
            return Ok(());
        }
    }
}

/// The first message of TLS 1.2 (RFC 5246 §7.4.1.2) in a record, with suites and extensions that
/// any server takes.
fn client_hello() -> Vec<u8> {
    // ECDHE with RSA and with ECDSA, AES-128-GCM.
    const SUITES: [u8; 6] = [0, 4, 0xc0, 0x2f, 0xc0, 0x2b];
    // secp256r1; uncompressed points; RSA-PSS, RSA and ECDSA with SHA-256.
    const EXTENSIONS: [u8; 26] = [
        0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0, 0, 13, 0, 8, 0, 6, 8, 4, 4, 1, 4, 3,
    ];
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    // No session.
    hello.push(0);
    hello.extend(SUITES);
    // No compression.
    hello.extend([1, 0]);
    hello.extend([0, 26]);
    hello.extend(EXTENSIONS);
    let length = u8::try_from(hello.len()).unwrap_or(u8::MAX);
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length], &hello[..]].concat()
}

/// The server has not closed it.
fn is_open(socket: &TcpStream) -> bool {
    let mut bytes = [0; 4096];
    let mut socket = socket;
    if socket.set_nonblocking(true).is_err() {
        return false;
    }
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return false,
            Ok(_) => {}
            Err(error) => return error.kind() == io::ErrorKind::WouldBlock,
        }
    }
}

fn describe(outcome: &HeldConnections) -> String {
    let HeldConnections {
        there, rest, held, ..
    } = outcome;
    let grown = held.memory_bytes.saturating_sub(rest.memory_bytes) / 1024;
    let mut text = format!(
        "they came in {:.1} s, {there} are there, in {} processes, {} KiB each ({} MiB)",
        outcome.came_in.as_secs_f64(),
        held.processes,
        grown / (*there).max(1) as u64,
        grown / 1024
    );
    let names = ["before", "while they come", "beside them"];
    for (name, times) in names.into_iter().zip(&outcome.logins_ms) {
        let most = times.iter().copied().fold(0.0, f64::max);
        let middle = median(times).unwrap_or_default();
        text.push_str(&format!(
            "; a login {name} {middle:.0} ms, {most:.0} at most of {}",
            times.len()
        ));
    }
    text.push_str(&match outcome.given_back {
        Some(after) => format!(
            "; all given back {:.1} s after the last came, who had {LOGIN_SECONDS} s",
            after.as_secs_f64()
        ),
        None => format!("; NOT given back within {} s", BACK_WITHIN.as_secs()),
    });
    text
}
