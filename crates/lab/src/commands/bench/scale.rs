//! Benchmark cells of a server's memory: many idle sessions, and many busy data channels.

use std::{
    io::{BufRead as _, BufReader, Write as _},
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use godwit_engine::host::net::raise_fd_limit;

use super::{
    BenchError, RUN_LIMIT, godwit_cp, io_error,
    testbed::{Testbed, goodput_cell},
};
use crate::peers::{
    godwit::Godwitd,
    process::{self, Process},
};

const NAME: &str = "scale";

/// Sessions and descriptors beyond them: of libraries, of the report.
const SPARE: u64 = 200;

/// Descriptors of the server for a session: its connection and its root.
const EACH: u64 = 2;

/// Data channels of the busy transfer.
const CHANNELS: &str = "1000";

/// How often memory is looked at.
const INTERVAL: Duration = Duration::from_millis(50);

/// Longest answer to a command.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// Opens sessions, then moves bytes on many channels beside them.
pub(super) fn run(testbed: &mut Testbed<'_>) -> Result<(), BenchError> {
    if !testbed.is_asked_for(NAME) {
        return Ok(());
    }
    let wanted = 10_000 / testbed.scale();
    let sessions = wanted.min(raise_fd_limit().saturating_sub(SPARE) / EACH);
    let most = (sessions + SPARE).to_string();
    let mut server = Godwitd::serving("/").ip(IpAddr::V4(Ipv4Addr::LOCALHOST));
    for limit in [
        "--max-sessions",
        "--max-sessions-per-address",
        "--max-sessions-per-user",
        "--max-logins",
    ] {
        server = server.arg(limit).arg(&most);
    }
    let server = server.anonymous("ro").start()?;
    testbed.begin(goodput_cell(
        NAME.into(),
        "one server process".into(),
        "godwit",
    ))?;

    let empty = memory_of(server.process());
    let begun = Instant::now();
    let mut held = Vec::new();
    for _ in 0..sessions {
        let session =
            log_in(server.addr()).map_err(io_error(format!("session {}", held.len()).as_ref()))?;
        held.push(session);
    }
    let a_second = sessions as f64 / begun.elapsed().as_secs_f64();
    let full = memory_of(server.process());
    testbed.fact(
        NAME,
        format!(
            "{sessions} sessions that are logged in and idle: {:.1} KiB of the server's memory \
             each ({:.0} MiB in all, {:.0} \
             without them); they came one after the other, {a_second:.0} a second",
            (full.saturating_sub(empty)) as f64 / 1024.0 / sessions as f64,
            full as f64 / 1_048_576.0,
            empty as f64 / 1_048_576.0,
        ),
    )?;

    let length = (testbed.options.memory_gb * 1_000_000_000 / testbed.scale()).to_string();
    let mut command = godwit_cp()?;
    command.args(["-c", "1", "-p", CHANNELS, "--max-channels", CHANNELS]);
    command.args(["--length", &length, &server.url("/dev/zero"), "/dev/null"]);
    let watch = server.process().watch_memory(INTERVAL);
    let client = process::run(command, RUN_LIMIT)?.success()?;
    let busy = watch.stop().total_bytes;
    let channels: f64 = CHANNELS.parse().unwrap_or(1.0);
    testbed.fact(
        NAME,
        format!(
            "{CHANNELS} busy data channels beside them, {:.1} Gbit/s from memory to memory: {:.1} \
             KiB of the server's memory each, {:.1} \
             KiB of the client's; what the kernel holds for sockets is not in it",
            length.parse::<f64>().unwrap_or(0.0) * 8e-9 / client.usage.wall.as_secs_f64(),
            busy.saturating_sub(full) as f64 / 1024.0 / channels,
            client.usage.peak_rss_bytes as f64 / 1024.0 / channels,
        ),
    )?;

    let alive = held.iter_mut().map(|session| say(session, "NOOP"));
    let answers = alive.filter(|answer| answer.as_ref().is_ok_and(|a| a.starts_with("200")));
    let answered = answers.count() as u64;
    testbed.fact(
        NAME,
        format!("{answered} of {sessions} sessions answer afterwards"),
    )
}

fn memory_of(process: &Process) -> u64 {
    let watch = process.watch_memory(INTERVAL);
    std::thread::sleep(INTERVAL * 2);
    watch.stop().total_bytes
}

type IdleSession = BufReader<TcpStream>;

fn log_in(server: SocketAddr) -> std::io::Result<IdleSession> {
    let stream = TcpStream::connect(server)?;
    stream.set_read_timeout(Some(ANSWER_LIMIT))?;
    let mut session = BufReader::with_capacity(1024, stream);
    expect("220", answer(&mut session)?)?;
    expect("331", say(&mut session, "USER anonymous")?)?;
    expect("230", say(&mut session, "PASS bench@")?)?;
    Ok(session)
}

fn say(session: &mut IdleSession, command: &str) -> std::io::Result<String> {
    session
        .get_mut()
        .write_all(format!("{command}\r\n").as_bytes())?;
    answer(session)
}

/// The last line of an answer.
fn answer(session: &mut IdleSession) -> std::io::Result<String> {
    loop {
        let mut line = String::new();
        if session.read_line(&mut line)? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        // RFC 959 §4.2: a hyphen behind the code says that more follows.
        if line.as_bytes().get(3) != Some(&b'-')
            && line.as_bytes().first().is_some_and(u8::is_ascii_digit)
        {
            return Ok(line);
        }
    }
}

fn expect(code: &str, answer: String) -> std::io::Result<()> {
    match answer.starts_with(code) {
        true => Ok(()),
        false => Err(std::io::Error::other(answer.trim().to_owned())),
    }
}
