//! One large file whose copy is killed again and again, and what is sent again for that.
//!
//! `godwit cp` of a sparse file to or from a server of ours, or a bucket of versitygw, gets SIGKILL
//! at moments that a seed draws, and is given again each time until it says that all is done. A
//! moment is one in the state of the destination: so many bytes are stored. The server's own
//! counter, or a relay before the bucket, says how many bytes have gone over the network: what is
//! above the length of the file was sent again.

use std::fs::{self, File};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use godwit_engine::storage::digest::Digest;
use godwit_proto::ChecksumAlgorithm;
use serde::{Deserialize, Serialize};

use super::Error;
use super::relay::Relay;
use super::watch::{difference, temporary_files};
use crate::file_error::io_error;
use crate::path::Rng;
use crate::peers;
use crate::peers::godwit::{self, Godwitd};
use crate::peers::grid::Grid;
use crate::peers::process::{Options, Process, Signal};
use crate::peers::request::fetch;
use crate::peers::s3::S3Server;

/// What each channel may have to fetch or send again for a kill: the largest range that a channel
/// asks for or sends at a time, bytes.
pub const RANGE_BYTES_MAX: u64 = 32 << 20;

/// What lies in the buffers of a connection when its client is killed, and the server has counted,
/// bytes.
pub const BUFFERS_BYTES_MAX: u64 = 8 << 20;

/// The file has bytes of its own at each multiple of this, so that none can be taken for another.
const MARK_INTERVAL: u64 = 1 << 20;

/// Bytes at these places.
const MARK_BYTES: usize = 64;

/// How often is looked whether the moment has come.
const LOOK_AGAIN: Duration = Duration::from_millis(1);

/// How long one run may take.
const RUN_LIMIT: Duration = Duration::from_secs(4 * 3600);

/// Runs without a kill that may fail: then the command counts as one that never ends well.
const FAILURES_MAX: u32 = 3;

/// The name of the file.
const NAME: &str = "file";

/// Which way it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CopyDirection {
    /// To the server.
    Up,
    /// From the server.
    Down,
}

/// By which protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Over {
    /// `https://`
    Https,
    /// `gsiftp://`, with private data channels.
    Gridftp,
    /// `s3://`, in clear.
    S3,
}

/// What is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct KillPlan {
    /// Draws the moments and the bytes of the file.
    pub seed: u64,
    /// How often the client is killed.
    pub kills: u32,
    /// Length of the file.
    pub bytes: u64,
    /// Which way it goes.
    pub direction: CopyDirection,
    /// By which protocol.
    pub over: Over,
    /// Channels of the client.
    pub parallelism: u32,
}

/// What came of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct KillOutcome {
    /// What was done.
    #[serde(flatten)]
    pub plan: KillPlan,
    /// Kills that happened: the copy may have been done before the last moments.
    pub killed: u32,
    /// How often the command was given.
    pub runs: u32,
    /// From its first start to its last end, s.
    pub seconds: f64,
    /// Bytes of files that went over the network, by the server's counter.
    pub moved_bytes: u64,
    /// Of them those beyond the length of the file.
    pub resent_bytes: u64,
    /// What was promised about that: a range, and what buffers hold, for each kill and channel.
    pub resent_max: u64,
    /// Bytes that the file takes at its destination.
    pub stored_bytes: u64,
    /// CRC32C of both files.
    pub checksums: [String; 2],
    /// What is wrong, a line each; empty when nothing is.
    pub findings: Vec<String>,
}

impl KillOutcome {
    /// Nothing is wrong, and no more was sent again than promised.
    pub fn is_good(&self) -> bool {
        self.findings.is_empty() && self.resent_bytes <= self.resent_max
    }
}

impl KillPlan {
    /// Bytes that are stored when the client is killed, in order.
    pub fn moments(&self) -> Vec<u64> {
        let mut rng = Rng::new(self.seed, 1);
        let mut moments: Vec<u64> = (0..self.kills)
            .map(|_| rng.up_to(self.bytes.saturating_sub(1)))
            .collect();
        moments.sort_unstable();
        moments
    }
}

/// Runs it below `folder`, an empty directory with room for the file.
///
/// # Errors
/// A program cannot be started, a file cannot be made, or there is no room. What the kills led to
/// is no error but a finding.
pub fn run(plan: &KillPlan, folder: &Path) -> Result<KillOutcome, Error> {
    let site = KillSite::new(plan, folder)?;
    let began = Instant::now();
    let mut outcome = KillOutcome {
        plan: *plan,
        killed: 0,
        runs: 0,
        seconds: 0.0,
        moved_bytes: 0,
        resent_bytes: 0,
        resent_max: 0,
        stored_bytes: 0,
        checksums: Default::default(),
        findings: Vec::new(),
    };
    let mut failures = 0;
    let mut moments = plan.moments().into_iter().peekable();
    loop {
        outcome.runs += 1;
        let mut client = site.client()?;
        // What the run before has stored is no progress of this one.
        let before = site.stored()?;
        let mut is_killed = false;
        while let Some(moment) = moments.peek()
            && client.is_running()?
        {
            if site.stored()? > before.max(*moment) {
                client.signal(Signal::KILL)?;
                is_killed = true;
                moments.next();
                break;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        let finished = client.wait(RUN_LIMIT)?;
        if finished.status.success() {
            break;
        }
        if is_killed {
            outcome.killed += 1;
            outcome.findings.extend(site.wrong_name());
            continue;
        }
        failures += 1;
        if failures == FAILURES_MAX {
            let log = finished.log();
            outcome
                .findings
                .push(format!("it never said that all is done:\n{log}"));
            break;
        }
    }
    outcome.seconds = began.elapsed().as_secs_f64();
    outcome.moved_bytes = site.moved()?;
    outcome.resent_bytes = outcome.moved_bytes.saturating_sub(plan.bytes);
    let channels = u64::from(outcome.killed) * u64::from(plan.parallelism);
    outcome.resent_max = channels * (RANGE_BYTES_MAX + BUFFERS_BYTES_MAX);
    site.judge(&mut outcome)?;
    Ok(outcome)
}

/// The server, the directories of both ends, and the command.
struct KillSite {
    plan: KillPlan,
    grid: Grid,
    server: KillServer,
    source: PathBuf,
    target: PathBuf,
    home: PathBuf,
}

enum KillServer {
    Ours {
        server: Godwitd,
        https: SocketAddr,
        metrics: SocketAddr,
    },
    /// The directories of both ends are its buckets.
    Buckets { server: S3Server, relay: Relay },
}

impl KillServer {
    fn ours(root: &Path, grid: &Grid, ip: IpAddr) -> Result<Self, peers::Error> {
        peers::on_a_free_port(ip, |https| {
            peers::on_a_free_port(ip, |metrics| {
                let config = grid.of_godwitd(Godwitd::serving(root));
                let config = config.arg("--https").arg(https.to_string());
                let config = config.arg("--metrics").arg(metrics.to_string());
                Ok(Self::Ours {
                    server: config.start()?,
                    https,
                    metrics,
                })
            })
        })
    }

    fn buckets(root: &Path, ip: IpAddr) -> Result<Self, peers::Error> {
        let server = S3Server::gateway(root, ip)?;
        let relay = Relay::start(server.addr());
        Ok(Self::Buckets {
            relay: relay.map_err(peers::Error::os("listen before a bucket"))?,
            server,
        })
    }

    fn log(&self) -> String {
        match self {
            Self::Ours { server, .. } => server.log(),
            Self::Buckets { server, .. } => server.log(),
        }
    }
}

impl KillSite {
    fn new(plan: &KillPlan, folder: &Path) -> Result<Self, Error> {
        let [source, target, home] = ["source", "target", "home"].map(|name| folder.join(name));
        for path in [&source, &target, &home] {
            fs::create_dir(path).map_err(io_error(path))?;
        }
        // Parts and what is put together of them lie there at the same time.
        let copies = if plan.over == Over::S3 { 2 } else { 1 };
        check_room(&target, plan.bytes.saturating_mul(copies))?;
        let file = source.join(NAME);
        make_source(&file, plan).map_err(io_error(&file))?;
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let grid = Grid::new(&[ip])?;
        let root = match plan.direction {
            CopyDirection::Up => &target,
            CopyDirection::Down => &source,
        };
        let server = match plan.over {
            Over::Https | Over::Gridftp => KillServer::ours(root, &grid, ip)?,
            Over::S3 => KillServer::buckets(folder, ip)?,
        };
        Ok(Self {
            plan: *plan,
            grid,
            server,
            source,
            target,
            home,
        })
    }

    fn client(&self) -> Result<Process, Error> {
        let binary = godwit::binary("godwit").map_err(peers::Error::from)?;
        let mut command = Command::new(binary);
        let channels = self.plan.parallelism.to_string();
        // Holes are to cost the network what other bytes do.
        command.args(["cp", "--quiet", "--no-sparse", "-c", "1", "-p", &channels]);
        let url = match (&self.server, self.plan.over) {
            (KillServer::Ours { https, .. }, Over::Https) => {
                command.arg("--ca").arg(self.grid.authority());
                format!("https://{https}/{NAME}")
            }
            (KillServer::Ours { server, .. }, _) => {
                command.args(["--protect", "private"]);
                format!("gsiftp://{}/{NAME}", server.addr())
            }
            (KillServer::Buckets { server, relay }, _) => {
                command.envs(server.variables_at(relay.address()));
                match self.plan.direction {
                    CopyDirection::Up => format!("s3://target/{NAME}"),
                    CopyDirection::Down => format!("s3://source/{NAME}"),
                }
            }
        };
        match self.plan.direction {
            CopyDirection::Up => command.arg(self.source.join(NAME)).arg(url),
            CopyDirection::Down => command.arg(url).arg(self.target.join(NAME)),
        };
        command.envs(self.grid.of_user());
        for variable in ["HOME", "XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(variable, &self.home);
        }
        Ok(Process::spawn(command, Options::default())?)
    }

    /// Bytes that files at the destination take.
    fn stored(&self) -> Result<u64, Error> {
        stored_below(&self.target).map_err(|error| io_error(&self.target)(error).into())
    }

    /// Bytes of files that went in or out of the server since it was started.
    fn moved(&self) -> Result<u64, Error> {
        let metrics = match &self.server {
            KillServer::Ours { metrics, .. } => *metrics,
            KillServer::Buckets { relay, .. } => {
                return Ok(match self.plan.direction {
                    CopyDirection::Up => relay.to_server(),
                    CopyDirection::Down => relay.to_client(),
                });
            }
        };
        let text = fetch(metrics, "/metrics");
        let text = text.map_err(peers::Error::os("ask godwitd for its metrics"))?;
        let word = match self.plan.direction {
            CopyDirection::Up => "in",
            CopyDirection::Down => "out",
        };
        let name = format!("godwitd_transfer_bytes_total{{direction=\"{word}\"}} ");
        let value = text.lines().find_map(|line| line.strip_prefix(&name));
        value.and_then(|value| value.parse().ok()).ok_or_else(|| {
            let missing = io::Error::other("there is no counter of bytes");
            peers::Error::os("read godwitd's metrics")(missing).into()
        })
    }

    /// Where the client was killed, the final name stands for the whole file or is not there.
    fn wrong_name(&self) -> Option<String> {
        let [source, target] = [&self.source, &self.target].map(|folder| folder.join(NAME));
        let how = target.exists().then(|| difference(&source, &target))??;
        Some(format!(
            "the final name was there after a kill, and the file {how}"
        ))
    }

    fn judge(&self, outcome: &mut KillOutcome) -> Result<(), Error> {
        let [source, target] = [&self.source, &self.target].map(|folder| folder.join(NAME));
        if let Some(how) = difference(&source, &target) {
            outcome.findings.push(format!("at the end the file {how}"));
        }
        for (sum, path) in outcome.checksums.iter_mut().zip([&source, &target]) {
            if path.exists() {
                *sum = checksum(path).map_err(io_error(path))?;
            }
        }
        outcome.stored_bytes = self.stored()?;
        // Parts of uploads lie in a directory of the service.
        let parts = outcome.stored_bytes.saturating_sub(
            (target.metadata()).map_or(0, |metadata| metadata.blocks().saturating_mul(512)),
        );
        if parts > 0 {
            let text = format!("{parts} bytes are stored beside the file");
            outcome.findings.push(text);
        }
        let left = temporary_files(&self.target).map_err(io_error(&self.target))?;
        if !left.is_empty() {
            outcome
                .findings
                .push(format!("temporary files stay: {left:?}"));
        }
        if !outcome.findings.is_empty() {
            let log = self.server.log();
            outcome.findings.push(format!("the server said:\n{log}"));
        }
        Ok(())
    }
}

/// Of files and of directories beneath, which some services have for parts.
fn stored_below(folder: &Path) -> io::Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)?.flatten() {
        // One may get its final name meanwhile, or go.
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        bytes += match metadata.is_dir() {
            true => stored_below(&entry.path()).unwrap_or(0),
            false => metadata.blocks() * 512,
        };
    }
    Ok(bytes)
}

/// The zeros of a sparse file are written at the destination.
fn check_room(folder: &Path, bytes: u64) -> Result<(), Error> {
    let room = rustix::fs::statvfs(folder).map_err(|errno| io_error(folder)(errno.into()))?;
    let free = room.f_bavail.saturating_mul(room.f_frsize);
    match free > bytes.saturating_add(bytes / 20) {
        true => Ok(()),
        false => {
            let text = format!("{free} bytes are free, and the copy of {bytes} bytes needs more");
            Err(io_error(folder)(io::Error::other(text)).into())
        }
    }
}

fn make_source(path: &Path, plan: &KillPlan) -> io::Result<()> {
    let mut file = File::create_new(path)?;
    file.set_len(plan.bytes)?;
    let mut rng = Rng::new(plan.seed, 2);
    let mut at = 0;
    while at + MARK_BYTES as u64 <= plan.bytes {
        let mut mark = Vec::with_capacity(MARK_BYTES);
        while mark.len() < MARK_BYTES {
            mark.extend_from_slice(&rng.next_u64().to_le_bytes());
        }
        file.seek(SeekFrom::Start(at))?;
        file.write_all(&mark)?;
        at += MARK_INTERVAL;
    }
    Ok(())
}

fn checksum(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut digest = Digest::new(ChecksumAlgorithm::Crc32c);
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(digest.finish()),
            count => digest.update(&buffer[..count]),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: KillPlan = KillPlan {
        seed: 3,
        kills: 20,
        bytes: 50_000_000,
        direction: CopyDirection::Up,
        over: Over::Https,
        parallelism: 4,
    };

    #[test]
    fn moments_are_drawn_by_the_seed_and_come_in_order() {
        let moments = PLAN.moments();
        assert_eq!(moments, PLAN.moments());
        assert_eq!(moments.len(), 20);
        assert!(moments.is_sorted() && moments.iter().all(|at| *at < PLAN.bytes));
        let other = KillPlan { seed: 4, ..PLAN };
        assert_ne!(moments, other.moments());
    }

    #[test]
    fn the_source_takes_little_and_no_two_places_are_alike() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        make_source(&path, &PLAN).unwrap();
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!(metadata.len(), PLAN.bytes);
        assert!(metadata.blocks() * 512 < PLAN.bytes / 10, "{metadata:?}");
        let content = fs::read(&path).unwrap();
        let mut marks: Vec<_> = content
            .chunks(1 << 20)
            .map(|mib| &mib[..MARK_BYTES])
            .collect();
        let count = marks.len();
        marks.sort_unstable();
        marks.dedup();
        assert_eq!((count, marks.len()), (48, 48));
    }

    #[test]
    fn a_copy_without_room_is_refused_before_it_begins() {
        let folder = tempfile::tempdir().unwrap();
        let refused = check_room(folder.path(), u64::MAX / 2).unwrap_err();
        assert!(refused.to_string().contains("needs more"), "{refused}");
    }
}
