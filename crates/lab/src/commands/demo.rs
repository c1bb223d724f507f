//! `godwit-lab demo`: a server, a client, a directory of mixed files, up and down, every byte
//! verified.
//!
//! Over an emulated long path where this machine allows one, and then with one channel against many
//! first; otherwise over loopback. Then a transfer service and two agents copy the tree between two
//! servers, and one agent is killed.

mod service;

use std::{
    fs,
    io::{self, Write},
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use clap::{Args, value_parser};

use crate::file_error::{FileError, io_error};
use crate::{
    host::Host,
    netns,
    network::{self, Network, NetworkConfig, Paths},
    path::{PathConfig, Queue, QueueLimit},
    peers::{
        Error,
        godwit::{self, Godwitd},
        service::ServiceError,
    },
};

/// What to show.
#[derive(Debug, Args)]
pub struct Options {
    /// Parallel data channels
    #[arg(short, long, default_value_t = 32, value_parser = value_parser!(u16).range(1..=1000))]
    pub parallelism: u16,
    /// Where the files are made; everything is removed at the end
    #[arg(long)]
    pub folder: Option<PathBuf>,
    /// No emulated path even where there could be one
    #[arg(long)]
    pub loopback: bool,
}

/// Why the demo stopped.
#[derive(Debug, thiserror::Error)]
pub enum DemoError {
    /// The server or the client is not there or failed.
    #[error(transparent)]
    Peer(#[from] Error),
    /// The emulated path.
    #[error(transparent)]
    Network(#[from] network::Error),
    /// The transfer service.
    #[error(transparent)]
    Service(#[from] ServiceError),
    /// A file.
    #[error(transparent)]
    File(#[from] FileError),
    /// What came back is not what was sent.
    #[error("{0} differs from its source: this is a bug, please report it")]
    Differs(String),
    /// The client said no.
    #[error("`{0}` failed")]
    Client(String),
}

/// Sizes and counts of the files: many small ones, some middling, two large.
const FILES: &[(&str, u64, u32)] = &[
    ("empty", 0, 1),
    ("tiny", 100, 400),
    ("small", 20_000, 200),
    ("middling", 3_000_000, 40),
    ("large", 400_000_000, 2),
];

struct Row {
    what: &'static str,
    seconds: f64,
}

/// Runs the demo.
///
/// # Errors
/// Anything that fails, and any byte that differs.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<(), DemoError> {
    let base = options.folder.clone().unwrap_or_else(std::env::temp_dir);
    let folder = tempfile::Builder::new()
        .prefix("godwit-demo-")
        .tempdir_in(&base)
        .map_err(io_error(&base))?;
    let say = |out: &mut dyn Write, text: &str| {
        writeln!(out, "{text}")
            .and_then(|()| out.flush())
            .map_err(io_error(Path::new("output")))
    };
    let root = folder.path().join("server");
    let source = folder.path().join("source");
    let back = folder.path().join("back");
    fs::create_dir(&root).map_err(io_error(&root))?;
    let (files, bytes) = make_files(&source)?;
    say(
        out,
        &format!("made {files} files, {:.2} GB", bytes as f64 / 1e9),
    )?;

    let place = Place::choose(options)?;
    let server = place.serve(&root)?;
    say(out, &place.describe(&server))?;
    if let Place::Path(_) = place {
        one_against_many(options, &place, &server, &root, out)?;
    }

    // Small files cost round trips: over the path several go at a time, with as many channels in
    // all.
    let sessions = match place {
        Place::Loopback(_) => 1,
        Place::Path(_) => options.parallelism.min(SESSIONS),
    };
    let (c, p) = (
        sessions.to_string(),
        (options.parallelism / sessions).to_string(),
    );
    let there = server.url("there/");
    let mut rows = Vec::new();
    for (what, from, to) in [
        ("upload", source.display().to_string() + "/", there.clone()),
        ("download", there, back.display().to_string() + "/"),
    ] {
        let arguments = ["cp", "-r", "-c", &c, "-p", &p, &from, &to];
        say(out, &format!("\n$ godwit {}", arguments.join(" ")))?;
        rows.push(Row {
            what,
            seconds: place.client(&arguments)?,
        });
    }

    let began = Instant::now();
    let compared = compare(&source, &back)?;
    say(
        out,
        &format!(
            "\n{:<10} {:>7} {:>10} {:>9} {:>12}",
            "", "files", "GB", "seconds", "Mbit/s"
        ),
    )?;
    for row in &rows {
        let rate = bytes as f64 * 8.0 / row.seconds / 1e6;
        let gb = bytes as f64 / 1e9;
        say(
            out,
            &format!(
                "{:<10} {files:>7} {gb:>10.2} {:>9.2} {rate:>12.0}",
                row.what, row.seconds
            ),
        )?;
    }
    say(
        out,
        &format!(
            "{:<10} {compared:>7} {:>10.2} {:>9.2}   every byte that came back equals its source",
            "compare",
            bytes as f64 / 1e9,
            began.elapsed().as_secs_f64()
        ),
    )?;
    server.terminate(Duration::from_secs(10))?;
    service::run(folder.path(), &source, out)?;
    Ok(())
}

/// The path of the demo: 1 Gbit/s, bit/s.
const RATE_BPS: u64 = 1_000_000_000;

/// And 10 ms each way, ns.
const DELAY_NS: u64 = 10_000_000;

/// Control channels over the path.
const SESSIONS: u16 = 8;

/// Where server and client meet.
enum Place {
    Loopback(String),
    Path(Box<Network>),
}

impl Place {
    fn choose(options: &Options) -> Result<Place, DemoError> {
        if options.loopback {
            return Ok(Place::Loopback("as asked for".to_owned()));
        }
        if let Err(unavailable) = netns::available() {
            return Ok(Place::Loopback(unavailable.to_string()));
        }
        let path = PathConfig {
            queue: Queue {
                limit: QueueLimit::Packets(500),
                ..Queue::default()
            },
            ..PathConfig::new(RATE_BPS, DELAY_NS)
        };
        let config = NetworkConfig::pair(Paths::same(path));
        Ok(Place::Path(Box::new(Network::start(&config)?)))
    }

    fn serve(&self, root: &Path) -> Result<Godwitd, DemoError> {
        let config = Godwitd::serving(root).anonymous("rw");
        Ok(match self {
            Place::Loopback(_) => config.ip(IpAddr::V4(Ipv4Addr::LOCALHOST)).start()?,
            Place::Path(network) => {
                let host = network.host("left")?;
                host.enter(|| config.ip(IpAddr::V4(host.address())).start())??
            }
        })
    }

    fn describe(&self, server: &Godwitd) -> String {
        let addr = server.addr();
        match self {
            Place::Loopback(why) => {
                format!("godwitd listens on {addr}, on loopback: no network in between ({why})")
            }
            Place::Path(_) => format!(
                "godwitd listens on {addr}, in a host of its own; between it and the client lies \
                 an \
                 emulated path: 1 Gbit/s, RTT 20 ms, a queue of 500 packets"
            ),
        }
    }

    /// Runs `godwit` where the client is; seconds.
    fn client(&self, arguments: &[&str]) -> Result<f64, DemoError> {
        let program = godwit::binary("godwit").map_err(Error::from)?;
        let run = || {
            let began = Instant::now();
            let status = Command::new(program)
                .args(arguments)
                .stdin(Stdio::null())
                .status()
                .map_err(io_error(Path::new("godwit")))?;
            if !status.success() {
                return Err(DemoError::Client(format!("godwit {}", arguments.join(" "))));
            }
            Ok(began.elapsed().as_secs_f64())
        };
        match self {
            Place::Loopback(_) => run(),
            Place::Path(network) => {
                let host: &Host = network.host("right")?;
                host.enter(run)?
            }
        }
    }
}

/// Bytes that one channel with a small buffer fetches: ten seconds.
const FEW_BYTES: u64 = 40_000_000;

/// Bytes that the others fetch: some seconds at the rate of the path.
const MANY_BYTES: u64 = 800_000_000;

/// Fetches a file with one channel and with many, with the papers' socket buffers, and with those
/// that the kernel tunes.
fn one_against_many(
    options: &Options,
    place: &Place,
    server: &Godwitd,
    root: &Path,
    out: &mut dyn Write,
) -> Result<(), DemoError> {
    let many = options.parallelism;
    let failed = |error| io_error(Path::new("output"))(error);
    writeln!(
        out,
        "\none file, login included; a channel moves one socket buffer a round trip:"
    )
    .map_err(failed)?;
    for (bytes, channels, buffer, what) in [
        (FEW_BYTES, 1, "65536", "buffers of 64 KiB, as in the papers"),
        (MANY_BYTES, many, "65536", "the same buffers"),
        (
            MANY_BYTES,
            1,
            "0",
            "buffers that the kernel tunes, on a path without loss",
        ),
    ] {
        let file = root.join("one-file");
        fs::File::create(&file)
            .and_then(|made| made.set_len(bytes))
            .map_err(io_error(&file))?;
        let (p, url) = (channels.to_string(), server.url("one-file"));
        let seconds = place.client(&[
            "cp",
            "--quiet",
            "--no-verify",
            "--no-sparse",
            "-p",
            &p,
            "--tcp-buffer",
            buffer,
            &url,
            "/dev/null",
        ])?;
        fs::remove_file(&file).map_err(io_error(&file))?;
        let rate = bytes as f64 * 8.0 / seconds / 1e6;
        let noun = if channels == 1 {
            "channel "
        } else {
            "channels"
        };
        writeln!(
            out,
            "  {channels:>4} {noun} {:>4} MB in {seconds:>5.1} s: {rate:>4.0} Mbit/s   {what}",
            bytes / 1_000_000
        )
        .and_then(|()| out.flush())
        .map_err(failed)?;
    }
    Ok(())
}

/// Files of every size class in three directories; the same bytes each time.
fn make_files(source: &Path) -> Result<(u32, u64), DemoError> {
    let (mut files, mut bytes) = (0, 0);
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let noise: Vec<u8> = (0..1 << 20)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[0]
        })
        .collect();
    for (name, size, count) in FILES {
        let folder = source.join(name);
        fs::create_dir_all(&folder).map_err(io_error(&folder))?;
        for i in 0..*count {
            let path = folder.join(format!("{name} {i}.dat"));
            let mut file = fs::File::create(&path).map_err(io_error(&path))?;
            // Another beginning for each file, so that mixed-up files are seen.
            let mut left = usize::try_from(*size).unwrap_or(usize::MAX);
            let mut at = (i as usize * 7919) % noise.len();
            while left > 0 {
                let n = left.min(noise.len() - at);
                file.write_all(&noise[at..at + n])
                    .map_err(io_error(&path))?;
                (left, at) = (left - n, 0);
            }
            files += 1;
            bytes += size;
        }
    }
    Ok((files, bytes))
}

/// Compares two trees byte by byte; the number of files.
fn compare(source: &Path, back: &Path) -> Result<u32, DemoError> {
    let mut files = 0;
    for entry in fs::read_dir(source).map_err(io_error(source))? {
        let entry = entry.map_err(io_error(source))?;
        let (a, b) = (entry.path(), back.join(entry.file_name()));
        if a.is_dir() {
            files += compare(&a, &b)?;
            continue;
        }
        if !same_bytes(&a, &b)? {
            return Err(DemoError::Differs(b.display().to_string()));
        }
        files += 1;
    }
    Ok(files)
}

fn same_bytes(a: &Path, b: &Path) -> Result<bool, DemoError> {
    use std::io::Read;
    let open = |p: &Path| {
        fs::File::open(p)
            .map(|f| io::BufReader::with_capacity(1 << 20, f))
            .map_err(io_error(p))
    };
    let (mut one, mut two) = (open(a)?, open(b)?);
    let (mut x, mut y) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let n = one.read(&mut x).map_err(io_error(a))?;
        if n == 0 {
            return Ok(two.read(&mut y).map_err(io_error(b))? == 0);
        }
        if let Err(e) = two.read_exact(&mut y[..n]) {
            return if e.kind() == io::ErrorKind::UnexpectedEof {
                Ok(false)
            } else {
                Err(io_error(b)(e).into())
            };
        }
        if x[..n] != y[..n] {
            return Ok(false);
        }
    }
}
