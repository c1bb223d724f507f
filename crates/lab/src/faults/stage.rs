//! The testbed of a campaign: two hosts and the path between them, files to copy, a destination
//! with a file system of its own, and servers that can be killed and restarted.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::Error;
use super::account;
use super::memory_disk::MemoryDisk;
use super::plan::Shape;
use super::store::Store;
use crate::file_error::io_error;
use crate::host::Host;
use crate::network::{self, Network, NetworkConfig, Paths};
use crate::path::{PathConfig, Rng};
use crate::peers::gct::GctServer;
use crate::peers::godwit::{self, Godwitd};
use crate::peers::process::{Options, Process, Signal};
use crate::state::{self, OwnedFolder};

/// The path: 1 Gbit/s, 1 ms each way. Fast enough for a thousand faults, slow enough for a busy
/// machine.
const RATE_BPS: u64 = 1_000_000_000;
const DELAY_NS: u64 = 1_000_000;
/// Room at the target, bytes: twice the largest job, as what a killed client leaves may lie there
/// too.
const TARGET_BYTES: u64 = 1 << 30;
/// Where bad disks are shown.
const BAD_SOURCE: &str = "bad-source";
const BAD_TARGET: &str = "bad-target";
/// How long stopped programs may take to stand still.
const AT_REST: Duration = Duration::from_secs(1);
/// How long the address of a killed server may stay taken.
const COME_BACK: Duration = Duration::from_secs(30);

/// Both hosts, and directories on this machine that programs of both see.
#[derive(Debug)]
pub(super) struct Stage {
    // Dropped first: programs that run there use what follows.
    network: Network,
    target: PathBuf,
    disk: MemoryDisk,
    folder: TempDir,
    _owned: OwnedFolder,
}

impl Stage {
    /// Makes all of it. The calling thread, and what it starts, sees mounted file systems of its
    /// own from now on.
    pub(super) fn set(seed: u64) -> Result<Stage, Error> {
        let path = PathConfig {
            seed,
            ..PathConfig::new(RATE_BPS, DELAY_NS)
        };
        let network = Network::start(&NetworkConfig::pair(Paths::same(path)))?;
        let (folder, owned) = state::memory_folder()?;
        let disk = folder.path().join("disk");
        fs::create_dir(&disk).map_err(io_error(&disk))?;
        let mounted = MemoryDisk::mount(&disk, TARGET_BYTES).map_err(io_error(&disk))?;
        let target = disk.join("target");
        for path in [
            &target,
            &folder.path().join(BAD_SOURCE),
            &folder.path().join(BAD_TARGET),
        ] {
            fs::create_dir(path).map_err(io_error(path))?;
        }
        let stage = Stage {
            network,
            target,
            disk: mounted,
            folder,
            _owned: owned,
        };
        for shape in Shape::ALL {
            let source = stage.source(shape);
            make(shape, &source, seed).map_err(io_error(&source))?;
        }
        Ok(stage)
    }

    /// The client's.
    pub(super) fn left(&self) -> Result<&Host, network::Error> {
        self.network.host("left")
    }

    /// The server's, where the path matters.
    pub(super) fn right(&self) -> Result<&Host, network::Error> {
        self.network.host("right")
    }

    /// What changes the path.
    pub(super) fn control(&self) -> crate::emulator::Control {
        self.network.control()
    }

    pub(super) fn source(&self, shape: Shape) -> PathBuf {
        self.folder.path().join(format!("{shape:?}").to_lowercase())
    }

    pub(super) fn target(&self) -> &Path {
        &self.target
    }

    /// Shows the files of a shape through a disk that can go bad.
    pub(super) fn bad_source(&self, shape: Shape) -> Result<Store, Error> {
        let at = self.folder.path().join(BAD_SOURCE);
        Ok(Store::mount(&self.source(shape), &at).map_err(io_error(&at))?)
    }

    /// The same for the target.
    pub(super) fn bad_target(&self) -> Result<Store, Error> {
        let at = self.folder.path().join(BAD_TARGET);
        Ok(Store::mount(self.target(), &at).map_err(io_error(&at))?)
    }

    /// Leaves no room at the target.
    pub(super) fn fill(&self) -> Result<(), Error> {
        Ok(self.disk.fill().map_err(io_error(self.target()))?)
    }

    /// Gives it all its room again.
    pub(super) fn unfill(&self) -> Result<(), Error> {
        Ok(self.disk.unfill().map_err(io_error(self.target()))?)
    }

    /// What the client keeps between runs.
    fn home(&self) -> PathBuf {
        self.folder.path().join("home")
    }

    /// Nothing at the target, and a client that remembers nothing.
    pub(super) fn clear(&self) -> Result<(), Error> {
        let home = self.home();
        let emptied = || -> io::Result<()> {
            for entry in fs::read_dir(self.target())? {
                fs::remove_file(entry?.path())?;
            }
            if home.exists() {
                fs::remove_dir_all(&home)?;
            }
            fs::create_dir(&home)
        };
        Ok(emptied().map_err(io_error(self.folder.path()))?)
    }

    /// Bytes that the file system of the target holds, temporary files and all.
    pub(super) fn used(&self) -> Result<u64, Error> {
        Ok(self.disk.used().map_err(io_error(self.target()))?)
    }

    /// Payload that both hosts have sent so far.
    pub(super) fn payload_sent(&self) -> Result<u64, Error> {
        Ok(account::payload_sent(self.left()?)? + account::payload_sent(self.right()?)?)
    }

    /// What both hosts were sent and their programs have not read.
    pub(super) fn unread(&self) -> Result<u64, Error> {
        Ok(account::unread(self.left()?)? + account::unread(self.right()?)?)
    }

    /// The same once nothing moves any more: stopped readers and senders need a moment to stand
    /// still.
    pub(super) fn unread_at_rest(&self) -> Result<u64, Error> {
        let look = || Ok::<_, Error>((self.payload_sent()?, self.unread()?));
        let deadline = Instant::now() + AT_REST;
        let mut before = look()?;
        loop {
            std::thread::sleep(Duration::from_millis(2));
            let now = look()?;
            if now == before || Instant::now() >= deadline {
                return Ok(now.1);
            }
            before = now;
        }
    }

    /// Starts the client.
    pub(super) fn client(&self, arguments: &[String]) -> Result<Process, Error> {
        let home = self.home();
        let mut command =
            Command::new(godwit::binary("godwit").map_err(crate::peers::Error::from)?);
        command.args(arguments).env("HOME", &home);
        for name in ["XDG_STATE_HOME", "XDG_RUNTIME_DIR"] {
            command.env(name, &home);
        }
        Ok(self.left()?.spawn(command, Options::default())?)
    }
}

/// Files of noise, so that no byte is like its neighbours and none can be left out.
fn make(shape: Shape, folder: &Path, seed: u64) -> io::Result<()> {
    fs::create_dir(folder)?;
    let mut rng = Rng::new(seed, shape as u64);
    let mut piece = vec![0; 1 << 20];
    for (size, (bytes, count)) in shape.files().iter().enumerate() {
        for number in 0..*count {
            let mut file = File::create(folder.join(format!("{size}-{number}")))?;
            let mut left = usize::try_from(*bytes).unwrap_or(usize::MAX);
            while left > 0 {
                for bytes in piece.chunks_exact_mut(8) {
                    bytes.copy_from_slice(&rng.next_u64().to_le_bytes());
                }
                let part = left.min(piece.len());
                file.write_all(&piece[..part])?;
                left -= part;
            }
        }
    }
    Ok(())
}

/// Whose server it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Program {
    Godwitd,
    Gct,
}

#[derive(Debug)]
enum FaultProgram {
    Godwitd(Godwitd),
    Gct(GctServer),
}

/// A server that serves one directory, always at the same address.
#[derive(Debug)]
pub(super) struct StageServer {
    program: Program,
    root: PathBuf,
    addr: SocketAddr,
    url: String,
    /// `None` while there is none.
    running: Option<FaultProgram>,
}

impl StageServer {
    pub(super) fn start(program: Program, host: &Host, root: &Path) -> Result<StageServer, Error> {
        let addr = SocketAddr::new(IpAddr::V4(host.address()), 0);
        let running = run(program, host, root, addr)?;
        let (addr, url) = match &running {
            FaultProgram::Godwitd(server) => (server.addr(), server.url("/")),
            FaultProgram::Gct(server) => (server.addr(), server.url("/")),
        };
        Ok(StageServer {
            program,
            root: root.to_owned(),
            addr,
            url,
            running: Some(running),
        })
    }

    /// What its clients call the directory.
    pub(super) fn url(&self) -> String {
        self.url.clone()
    }

    /// Lets it stand still for a while.
    pub(super) fn freeze(&self, length: Duration) -> Result<(), Error> {
        let Some(process) = self.process() else {
            return Ok(());
        };
        process.signal(Signal::STOP)?;
        std::thread::sleep(length);
        Ok(process.signal(Signal::CONT)?)
    }

    fn process(&self) -> Option<&Process> {
        match &self.running {
            Some(FaultProgram::Godwitd(server)) => Some(server.process()),
            Some(FaultProgram::Gct(server)) => Some(server.process()),
            None => None,
        }
    }

    pub(super) fn log(&self) -> String {
        match &self.running {
            Some(FaultProgram::Godwitd(server)) => server.log(),
            Some(FaultProgram::Gct(server)) => server.log(),
            None => String::new(),
        }
    }

    /// Signals it and its sessions.
    pub(super) fn signal_group(&self, signal: Signal) -> Result<(), Error> {
        match self.process() {
            Some(process) => Ok(process.signal_group(signal)?),
            None => Ok(()),
        }
    }

    /// Kills it with all its sessions.
    pub(super) fn die(&mut self) {
        self.running = None;
    }

    /// Starts another in its place.
    pub(super) fn come_back(&mut self, host: &Host) -> Result<(), Error> {
        let deadline = Instant::now() + COME_BACK;
        loop {
            // The sockets of the dead one may take a moment to go.
            match run(self.program, host, &self.root, self.addr) {
                Ok(running) => {
                    self.running = Some(running);
                    return Ok(());
                }
                Err(error) if Instant::now() >= deadline => return Err(error),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }
}

fn run(
    program: Program,
    host: &Host,
    root: &Path,
    addr: SocketAddr,
) -> Result<FaultProgram, Error> {
    let (ip, port) = (addr.ip(), addr.port());
    let started = host.enter(|| match program {
        Program::Godwitd => {
            let config = Godwitd::serving(root).ip(ip).port(port);
            config.start().map(FaultProgram::Godwitd)
        }
        Program::Gct => {
            let config = GctServer::serving(root).ip(ip).port(port);
            config.start().map(FaultProgram::Gct)
        }
    })?;
    Ok(started?)
}
