//! The reference implementation: the Grid Community Toolkit's server and client.
//!
//! The server is started for anonymous, clear-text use; what it takes was found by trying 13.24:
//!
//! - `-p 0` picks a free port and prints `Server listening at HOST:PORT` on standard output. HOST
//!   is the reverse name of the address, so only the port is read. With a port of ours it prints
//!   nothing.
//! - It starts only when that name lookup gives an answer, be it "no such name". In a network
//!   namespace without a name server the lookup fails, and with it the start; GLOBUS_HOSTNAME does
//!   not help. An `/etc/hosts` line for the address does, or `hosts: files` in
//!   `/etc/nsswitch.conf`, both of which `ip netns exec` can put in place from `/etc/netns`.
//! - Each connection is served by a program started again. It stays in the process group of the
//!   server, and lives on when only the server is ended.
//! - As root it needs the account of anonymous users; if that is root,
//!   `-allow-root` too, or the login ends with 530.
//! - Sessions do not log to standard error, only to a file.
//! - `-c /dev/null`: `/etc/gridftp.conf` sets a port.
//!
//! What meets the eye of a test:
//!
//! - The type in force when the data channel was set up decides, not that of the transfer command.
//!   A client that sends `TYPE I` after `EPSV`, as curl does, gets its bytes mangled as text.
//! - `globus-url-copy` leaves an empty or partial destination file behind when a get fails.
//! - `-r` without `-cd` does not make the destination directory.

use std::ffi::OsString;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use super::process::{Process, Spawn, Stream, spawn_here};
use super::usage::Usage;
use super::{Error, Missing, START_TIMEOUT, Tool, url_host};

/// The client. Needs no environment; anonymous with `ftp://` URLs.
pub const URL_COPY: Tool = Tool::new("globus-url-copy", "globus-gass-copy-progs");

/// The server. [`GctServer`] starts it.
pub const SERVER: Tool = Tool::new("globus-gridftp-server", "globus-gridftp-server-progs");

/// How often a server that cannot tell is asked whether it listens.
const ASK_INTERVAL: Duration = Duration::from_millis(10);

/// Bytes of the log file that [`GctServer::log`] shows, from its end.
const LOG_SHOWN_BYTES: usize = 256 << 10;

/// Whether server and client are both there.
///
/// # Errors
/// [`Missing`], which names the first package that is not.
pub fn available() -> Result<(), Missing> {
    SERVER.available()?;
    URL_COPY.available()?;
    Ok(())
}

/// How a server is started; made by [`GctServer::serving`].
#[derive(Debug, Clone)]
pub struct GctConfig {
    root: PathBuf,
    ip: IpAddr,
    port: u16,
    chroot: bool,
    data_nodes: Vec<Option<IpAddr>>,
    nodes_subject: Option<String>,
    log_level: String,
    arguments: Vec<OsString>,
    environment: Vec<(OsString, OsString)>,
}

impl GctConfig {
    /// The address to listen on, for control and data. Default 127.0.0.1.
    #[must_use]
    pub fn ip(mut self, ip: IpAddr) -> GctConfig {
        self.ip = ip;
        self
    }

    /// The port to listen on. Default 0, a free one; another only to come back where a server was
    /// before, and no program listens now.
    #[must_use]
    pub fn port(mut self, port: u16) -> GctConfig {
        self.port = port;
        self
    }

    /// Makes the directory the root of what clients see. Only root can. Off by default: then
    /// clients see the whole machine, `/dev/zero` and `/dev/null` included, and log in to the
    /// directory.
    #[must_use]
    pub fn chroot(mut self, chroot: bool) -> GctConfig {
        self.chroot = chroot;
        self
    }

    /// Moves data in this many processes of their own, so that `SPAS` names as many addresses.
    /// Default 0: the process of the session moves data itself.
    #[must_use]
    pub fn data_nodes(mut self, data_nodes: u8) -> GctConfig {
        self.data_nodes = vec![None; data_nodes.into()];
        self
    }

    /// Moves data in a process at each of these addresses: a striped server whose data nodes are
    /// hosts of their own.
    #[must_use]
    pub fn data_nodes_at(mut self, addresses: &[IpAddr]) -> GctConfig {
        self.data_nodes = addresses.iter().copied().map(Some).collect();
        self
    }

    /// Front end and data nodes prove to each other that they are of this subject, and their link
    /// is protected. Anonymous users are not let in then. Without it that link is open.
    #[must_use]
    pub fn protects_nodes(mut self, subject: &str) -> GctConfig {
        self.nodes_subject = Some(subject.to_owned());
        self
    }

    /// Comma-separated levels of ERROR, WARN, INFO, TRANSFER, DUMP, ALL. Default
    /// `ERROR,WARN,INFO`. `ALL` shows every command and reply, and costs time: the log is written
    /// unbuffered, so that nothing is lost when the server is killed.
    #[must_use]
    pub fn log_level(mut self, levels: &str) -> GctConfig {
        levels.clone_into(&mut self.log_level);
        self
    }

    /// Adds an argument of `globus-gridftp-server`, for all its processes.
    #[must_use]
    pub fn arg(mut self, argument: impl Into<OsString>) -> GctConfig {
        self.arguments.push(argument.into());
        self
    }

    /// Sets an environment variable.
    #[must_use]
    pub fn env(mut self, name: impl Into<OsString>, value: impl Into<OsString>) -> GctConfig {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// Starts the server and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Missing`], [`Error::Os`], [`Error::EndedEarly`] with its own words when it refuses
    /// its arguments, [`Error::TimedOut`].
    pub fn start(self) -> Result<GctServer, Error> {
        self.start_by(&spawn_here)
    }

    /// The same, each process on the host that `spawn` starts programs on.
    ///
    /// # Errors
    /// As [`GctConfig::start`].
    pub fn start_by(self, spawn: &Spawn<'_>) -> Result<GctServer, Error> {
        let logs = TempDir::new().map_err(Error::os("make a directory for logs"))?;
        let mut nodes = Vec::new();
        let mut contacts = Vec::new();
        for (index, at) in self.data_nodes.iter().enumerate() {
            let ip = at.unwrap_or(self.ip);
            let mut command = self.command(ip, 0, &logs.path().join(format!("node{index}.log")))?;
            command.arg("-dn").arg("-ipc-interface").arg(ip.to_string());
            let (node, port) = start_one(spawn(ip, command)?)?;
            nodes.push(GctNode {
                process: node,
                port,
            });
            contacts.push(format!("{}:{port}", url_host(ip)));
        }
        let mut command = self.command(self.ip, self.port, &logs.path().join("server.log"))?;
        if !contacts.is_empty() {
            command.arg("-r").arg(contacts.join(","));
        }
        let (process, port) = match self.port {
            0 => start_one(spawn(self.ip, command)?)?,
            port => (
                start_at(spawn(self.ip, command)?, SocketAddr::new(self.ip, port))?,
                port,
            ),
        };
        Ok(GctServer {
            process,
            nodes,
            addr: SocketAddr::new(self.ip, port),
            config: self,
            logs,
        })
    }

    /// Only `-r` and `-dn` are left to add.
    fn command(&self, ip: IpAddr, port: u16, log_file: &Path) -> Result<Command, Missing> {
        let mut command = SERVER.command()?;
        let ip = ip.to_string();
        command
            // Each session looks up the name of its client before it greets. A lost packet costs
            // 5 s by default.
            .env("RES_OPTIONS", "timeout:1 attempts:4")
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(["-c", "/dev/null"])
            .args(["-p", &port.to_string()])
            .args(["-control-interface", &ip])
            .args(["-data-interface", &ip]);
        let is_root = rustix::process::geteuid().is_root();
        match &self.nodes_subject {
            Some(subject) => {
                command.arg("-ipc-auth-mode");
                command.arg(format!("subject:{subject}"));
            }
            // It opens the link to the data nodes.
            None => {
                command.arg("-allow-anonymous");
                if is_root {
                    command.args(["-anonymous-user", "root"]);
                }
            }
        }
        if is_root {
            command.arg("-allow-root");
        }
        if self.chroot {
            command.arg("-chroot-path").arg(&self.root);
        } else {
            command.arg("-home-dir").arg(&self.root);
        }
        command
            .args(["-log-level", &self.log_level])
            .args(["-log-module", "stdio:buffer=0"])
            .arg("-logfile")
            .arg(log_file)
            .args(&self.arguments);
        Ok(command)
    }
}

/// A data node, and the port where it hears of its front end.
#[derive(Debug)]
struct GctNode {
    process: Process,
    port: u16,
}

/// A running `globus-gridftp-server`. Dropping it ends it, its sessions and its data nodes.
#[derive(Debug)]
pub struct GctServer {
    process: Process,
    nodes: Vec<GctNode>,
    addr: SocketAddr,
    config: GctConfig,
    logs: TempDir,
}

impl GctServer {
    /// The configuration of a server that gives anonymous users read and write access to `root`,
    /// an absolute path of an existing directory.
    pub fn serving(root: impl Into<PathBuf>) -> GctConfig {
        GctConfig {
            root: root.into(),
            ip: IpAddr::V4(Ipv4Addr::LOCALHOST),
            port: 0,
            chroot: false,
            data_nodes: Vec::new(),
            nodes_subject: None,
            log_level: "ERROR,WARN,INFO".to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// The directory it serves.
    pub fn root(&self) -> &Path {
        &self.config.root
    }

    /// The `ftp://` URL of `path` below the served directory; a trailing `/` is kept.
    pub fn url(&self, path: &str) -> String {
        let path = path.trim_start_matches('/');
        if self.config.chroot {
            super::ftp_url(self.addr, &format!("/{path}"))
        } else {
            let root = self.config.root.to_string_lossy();
            super::ftp_url(self.addr, &format!("{}/{path}", root.trim_end_matches('/')))
        }
    }

    /// The `ftp://` URL of a path of the machine, such as `/dev/zero`; of the served directory
    /// when that is the root of what clients see.
    pub fn machine_url(&self, path: &str) -> String {
        super::ftp_url(self.addr, path)
    }

    /// The process that listens, to signal or watch it.
    pub fn process(&self) -> &Process {
        &self.process
    }

    /// Kills the listening process and all sessions at once, as a crash would. Data nodes go on.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    pub fn crash(&self) -> Result<(), Error> {
        self.process.signal_group(Signal::KILL)
    }

    /// Sends a signal to a data node and the transfers that it carries.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    ///
    /// # Panics
    /// There is no such node.
    pub fn signal_node(&self, index: usize, signal: Signal) -> Result<(), Error> {
        self.nodes[index].process.signal_group(signal)
    }

    /// Where each data node hears of its front end; none where the server moves data itself.
    pub fn node_ports(&self) -> Vec<u16> {
        self.nodes.iter().map(|node| node.port).collect()
    }

    /// What the front end and its sessions have cost so far, without data nodes.
    pub fn front_usage(&self) -> Usage {
        self.process.usage()
    }

    /// Kills a data node and the transfers that it carries, as a crash of its host would.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses.
    ///
    /// # Panics
    /// There is no such node.
    pub fn crash_node(&self, index: usize) -> Result<(), Error> {
        self.signal_node(index, Signal::KILL)
    }

    /// Kills the transfers that a data node carries, and leaves it listening.
    ///
    /// # Errors
    /// [`Error::Os`] when the kernel refuses, or does not tell what belongs to the node.
    ///
    /// # Panics
    /// There is no such node.
    pub fn crash_node_transfers(&self, index: usize) -> Result<(), Error> {
        let node = self.nodes[index].process.id();
        let children = fs::read_to_string(format!("/proc/{node}/task/{node}/children"))
            .map_err(Error::os("read the processes of a data node"))?;
        for child in children.split_whitespace() {
            let Some(pid) = child.parse().ok().and_then(Pid::from_raw) else {
                continue;
            };
            rustix::process::kill_process(pid, Signal::KILL)
                .map_err(|error| Error::os("kill a process of a data node")(error.into()))?;
        }
        Ok(())
    }

    /// What all its processes printed and logged so far, the end of it if it is much.
    pub fn log(&self) -> String {
        let mut text = self.process.log();
        for node in &self.nodes {
            text.push_str(&node.process.log());
        }
        let mut files: Vec<PathBuf> = fs::read_dir(self.logs.path())
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        files.sort();
        for file in files {
            let bytes = fs::read(&file).unwrap_or_default();
            let shown = &bytes[bytes.len().saturating_sub(LOG_SHOWN_BYTES)..];
            text.push_str(&format!("--- {}\n", file.display()));
            text.push_str(&String::from_utf8_lossy(shown));
        }
        text
    }

    /// What the server, its sessions and its data nodes have cost so far. A session counts fully
    /// once the server has reaped it, a moment after its connection closed.
    pub fn usage(&self) -> Usage {
        Usage::sum(
            self.process.usage(),
            self.nodes.iter().map(|node| node.process.usage()),
        )
    }
}

fn start_one(mut process: Process) -> Result<(Process, u16), Error> {
    let port = process.wait_for_line(
        Stream::Stdout,
        "say that it listens",
        START_TIMEOUT,
        listening_port,
    )?;
    Ok((process, port))
}

/// It says where it listens only if it had to choose, so we ask there.
fn start_at(mut process: Process, addr: SocketAddr) -> Result<Process, Error> {
    let deadline = Instant::now() + START_TIMEOUT;
    while TcpStream::connect_timeout(&addr, START_TIMEOUT).is_err() {
        let program = process.program().to_owned();
        if process.ended_within(ASK_INTERVAL)? {
            let finished = process.stop()?;
            return Err(Error::EndedEarly {
                program,
                status: Some(finished.status),
                log: finished.log(),
            });
        }
        if Instant::now() >= deadline {
            return Err(Error::TimedOut {
                program,
                what: "listen",
                waited: START_TIMEOUT,
                log: process.log(),
            });
        }
    }
    Ok(process)
}

fn listening_port(line: &str) -> Option<u16> {
    let contact = line.strip_prefix("Server listening at ")?;
    contact.rsplit_once(':')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::present;
    use std::net::Ipv6Addr;

    const CONTENT: &[u8] = b"line one\r\nline two\n\0\xff";

    fn served() -> (TempDir, PathBuf) {
        let directory = TempDir::new().expect("a directory");
        let root = directory.path().join("root");
        fs::create_dir(&root).expect("a root");
        fs::write(root.join("a file"), CONTENT).expect("a file");
        (directory, root)
    }

    fn file_url(path: &Path) -> String {
        format!("file://{}", path.display())
    }

    #[test]
    fn the_port_is_found_behind_any_host() {
        assert_eq!(
            listening_port("Server listening at localhost:43337"),
            Some(43337)
        );
        assert_eq!(
            listening_port("Server listening at [::1]:32863"),
            Some(32863)
        );
        assert_eq!(listening_port("something else: 5"), None);
    }

    #[test]
    fn copies_files_both_ways() {
        if present("copies_files_both_ways", available()).is_none() {
            return;
        }
        let (directory, root) = served();
        let server = GctServer::serving(&root).start().expect("starts");
        let got = directory.path().join("got");
        URL_COPY
            .run([server.url("a file"), file_url(&got)])
            .and_then(|finished| finished.success())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        assert_eq!(fs::read(&got).expect("got"), CONTENT);
        URL_COPY
            .run(["-p", "4", &file_url(&got), &server.url("put")])
            .and_then(|finished| finished.success())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        assert_eq!(fs::read(root.join("put")).expect("put"), CONTENT);
    }

    #[test]
    fn a_server_comes_back_where_it_was() {
        if present("a_server_comes_back_where_it_was", available()).is_none() {
            return;
        }
        let (_directory, root) = served();
        let server = GctServer::serving(&root).start().expect("starts");
        let addr = server.addr();
        drop(server);
        let again = GctServer::serving(&root).port(addr.port()).start();
        assert_eq!(again.expect("starts").addr(), addr);
    }

    #[test]
    fn third_party_between_two_servers_at_once() {
        let test = "third_party_between_two_servers_at_once";
        if present(test, available()).is_none() {
            return;
        }
        let (_source_directory, source_root) = served();
        let (_target_directory, target_root) = served();
        let source = GctServer::serving(&source_root).start().expect("starts");
        let target = GctServer::serving(&target_root).start().expect("starts");
        assert_ne!(source.addr(), target.addr());
        let arguments = [
            "-fast",
            "-p",
            "2",
            &source.url("a file"),
            &target.url("copy"),
        ];
        URL_COPY
            .run(arguments)
            .and_then(|finished| finished.success())
            .expect("copies");
        assert_eq!(fs::read(target_root.join("copy")).expect("copy"), CONTENT);
    }

    #[test]
    fn a_striped_server_offers_all_its_nodes() {
        if present("a_striped_server_offers_all_its_nodes", available()).is_none() {
            return;
        }
        let (_directory, root) = served();
        let big: Vec<u8> = (0_u32..3 << 20).map(|i| (i % 251) as u8).collect();
        fs::write(root.join("big"), &big).expect("a file");
        let server = GctServer::serving(&root)
            .data_nodes(2)
            .start()
            .expect("starts");
        let target = server.url("striped");
        let arguments = ["-dbg", "-stripe", &file_url(&root.join("big")), &target];
        let finished = URL_COPY
            .run(arguments)
            .and_then(|finished| finished.success())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        let dialogue = finished.log();
        assert!(dialogue.contains("Total Stripe Count: 2"), "{dialogue}");
        assert_eq!(fs::read(root.join("striped")).expect("striped"), big);
    }

    #[test]
    fn a_confined_server_hides_the_machine() {
        if present("a_confined_server_hides_the_machine", available()).is_none() {
            return;
        }
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let (directory, root) = served();
        let server = GctServer::serving(&root)
            .chroot(true)
            .start()
            .expect("starts");
        assert!(server.url("a file").ends_with("/a%20file"));
        let got = directory.path().join("got");
        URL_COPY
            .run([server.url("a file"), file_url(&got)])
            .and_then(|finished| finished.success())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        let refused = URL_COPY
            .run([server.machine_url("/etc/passwd"), file_url(&got)])
            .expect("runs");
        assert!(!refused.status.success());
    }

    #[test]
    fn listens_on_ipv6() {
        if present("listens_on_ipv6", available()).is_none() {
            return;
        }
        let ip = IpAddr::V6(Ipv6Addr::LOCALHOST);
        if crate::peers::free_port(ip).is_err() {
            return;
        }
        let (_directory, root) = served();
        let server = GctServer::serving(&root).ip(ip).start().expect("starts");
        assert!(server.url("").starts_with("ftp://[::1]:"));
    }

    #[test]
    fn sessions_end_with_the_server_and_are_measured() {
        let test = "sessions_end_with_the_server_and_are_measured";
        if present(test, available()).is_none() {
            return;
        }
        let (_directory, root) = served();
        let config = GctServer::serving(&root).log_level("ALL");
        let server = config.start().expect("starts");
        let mut session = std::net::TcpStream::connect(server.addr()).expect("connects");
        let mut greeting = [0_u8; 4];
        std::io::Read::read_exact(&mut session, &mut greeting).expect("greets");
        assert_eq!(&greeting, b"220 ");
        assert!(server.usage().peak_rss_bytes > 0);
        assert!(server.log().contains("New connection"), "{}", server.log());
        server.crash().expect("crashes");
        // Reading to the end only returns when the session's process is dead too.
        let mut rest = Vec::new();
        let _ = std::io::Read::read_to_end(&mut session, &mut rest);
    }

    #[test]
    fn the_cost_of_ended_sessions_is_counted() {
        let test = "the_cost_of_ended_sessions_is_counted";
        if present(test, available()).is_none() {
            return;
        }
        let (_directory, root) = served();
        let server = GctServer::serving(&root).start().expect("starts");
        let before = server.usage();
        let zero = server.machine_url("/dev/zero");
        let finished = URL_COPY
            .run(["-len", "500000000", &zero, "file:///dev/null"])
            .and_then(|finished| finished.success())
            .unwrap_or_else(|error| panic!("{error}\n{}", server.log()));
        assert!(finished.usage.cpu() > Duration::ZERO);
        // The session ends, and is reaped, a moment after its client.
        let deadline = Instant::now() + START_TIMEOUT;
        while server.usage().since(&before).cpu() < Duration::from_millis(20) {
            assert!(Instant::now() < deadline, "{:?}", server.usage());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    #[test]
    fn a_refused_argument_is_reported() {
        if present("a_refused_argument_is_reported", SERVER.available()).is_none() {
            return;
        }
        let (_directory, root) = served();
        let error = GctServer::serving(&root)
            .arg("-no-such-option")
            .start()
            .expect_err("refuses");
        assert!(matches!(error, Error::EndedEarly { .. }), "{error}");
    }
}
