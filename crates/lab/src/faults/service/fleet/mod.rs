//! Every process of a service under test, and what happens to each.

mod database;
mod server;

use std::fs;
use std::io::Write as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::server::FileServer;
use super::balancer::{Balancer, Nodes, PollDelivery};
use super::plan::{AGENTS, Database, LEASE, Means, SERVERS, ServiceKind, ServicePlan};
use super::poison::{PoisonServer, has_socket};
use super::work::{TO, TO_GUARDED};
use crate::faults::Error;
use crate::faults::memory_disk::MemoryDisk;
use crate::file_error::io_error;
use crate::peers::godwit::binary;
use crate::peers::postgres::{self, Postgres};
use crate::peers::process::{self, Options, Process, Signal, Stream};
use crate::peers::{self, START_TIMEOUT};
use crate::soak::Side;

/// The program.
const PROGRAM: &str = "godwit-service";

/// Room of the disk that can be full, bytes.
const DISK_BYTES: u64 = 256 << 20;

/// Pause before a process that ended by itself is started again, as a supervisor does.
const RESTART: Duration = Duration::from_millis(500);

/// Rate of each unit whose bytes pass its agent, so that faults meet work.
const AGENT_RATE: &str = "60M";

/// Longest search for secrets.
const GREP_LIMIT: Duration = Duration::from_secs(60);

/// Shows a program the wall clock that a file says. It comes with Debian's package libfaketime.
const WRONG_CLOCK: &str = "/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1";

/// The database's clock where clocks are wrong.
const DATABASE_CLOCK: &str = "-300s";

/// Who may write to the guarded server.
pub(super) const USER: &str = "keeper";

/// A process that is started again whenever it ends.
#[derive(Debug)]
struct FleetProcess {
    name: String,
    process: Option<Process>,
    /// A process that serves: where, once it has said so.
    address: Option<SocketAddr>,
    wanted: bool,
    retry_at: Instant,
    /// What those before it printed.
    said: String,
}

impl FleetProcess {
    fn new(name: String) -> FleetProcess {
        FleetProcess {
            name,
            process: None,
            address: None,
            wanted: true,
            retry_at: Instant::now(),
            said: String::new(),
        }
    }

    fn kill(&mut self) -> Result<(), Error> {
        self.address = None;
        if let Some(process) = self.process.take() {
            self.said.push_str(&process.stop()?.log());
        }
        Ok(())
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        match &self.process {
            Some(process) => Ok(process.signal(signal)?),
            None => Ok(()),
        }
    }

    fn log(&self) -> String {
        let now = self.process.as_ref().map_or(String::new(), Process::log);
        format!("{}{now}", self.said)
    }
}

/// All of it. Processes end before the directories that they use.
#[derive(Debug)]
pub(super) struct Fleet {
    nodes: Vec<FleetProcess>,
    agents: Vec<FleetProcess>,
    servers: Vec<FileServer>,
    balancers: Vec<Balancer>,
    addresses: Nodes,
    postgres: Option<Postgres>,
    replica: Option<Postgres>,
    database_log: String,
    /// The database was not always there.
    database_failed: bool,
    poisons: Vec<PoisonServer>,
    disk: Option<MemoryDisk>,
    database_disk: Option<MemoryDisk>,
    clocks: bool,
    folder: PathBuf,
    sources: PathBuf,
    database: String,
    /// Processes that ended without a kill by the campaign.
    pub(super) findings: Vec<String>,
}

impl Fleet {
    /// Makes all of it below `folder`.
    ///
    /// # Errors
    /// A program is missing, or does not start.
    pub(super) fn start(
        plan: &ServicePlan,
        folder: &Path,
        sources: &Path,
        password: &str,
        means: Means,
    ) -> Result<Fleet, Error> {
        let home = folder.join("database");
        fs::create_dir(&home).map_err(io_error(&home))?;
        let mount = |path: &Path| MemoryDisk::mount(path, DISK_BYTES).map_err(io_error(path));
        let database_disk = match plan.has(ServiceKind::DatabaseDiskFull) {
            true => Some(mount(&home)?),
            false => None,
        };
        let clocks = plan.has(ServiceKind::ClockOff);
        let clock = match clocks {
            true => wrong_clock([("FAKETIME", DATABASE_CLOCK)]),
            false => Vec::new(),
        };
        let postgres = match plan.database {
            Database::Sqlite => None,
            Database::Postgres => Some(Postgres::start_with(&home, clock)?),
        };
        let synchronous = plan.has(ServiceKind::SynchronousFailover);
        let replica = match &postgres {
            Some(first) if synchronous || plan.has(ServiceKind::AsynchronousFailover) => {
                let replica = first.replica(&home)?;
                if synchronous {
                    first.wait_for_replica()?;
                }
                Some(replica)
            }
            _ => None,
        };
        let database = match &postgres {
            Some(postgres) => {
                let link = folder.join("socket");
                let linked = std::os::unix::fs::symlink(postgres.data(), &link);
                linked.map_err(io_error(&link))?;
                postgres::url(&link)
            }
            None => format!("sqlite:{}?mode=rwc", home.join("db").display()),
        };
        let to = folder.join("to");
        fs::create_dir(&to).map_err(io_error(&to))?;
        let disk = match means.disks {
            true => Some(mount(&to)?),
            false => None,
        };
        let poisons = plan.faults.iter().filter(|fault| fault.kind.is_poison());
        let poisons = poisons.map(|fault| PoisonServer::start(fault.kind));
        let poisons = poisons.collect::<std::io::Result<_>>();
        let addresses = Nodes::default();
        let balancers = (0..AGENTS).map(|_| Balancer::start(Arc::clone(&addresses), plan.doubled));
        let balancers = balancers.collect::<std::io::Result<_>>();
        let named = |what: &str, count| {
            let names = (0..count).map(|number| FleetProcess::new(format!("{what}{number}")));
            names.collect()
        };
        let mut fleet = Fleet {
            nodes: named("node", plan.nodes),
            agents: named("agent", AGENTS),
            servers: Vec::new(),
            balancers: balancers.map_err(io_error(folder))?,
            addresses,
            postgres,
            replica,
            database_log: String::new(),
            database_failed: false,
            poisons: poisons.map_err(io_error(folder))?,
            disk,
            database_disk,
            clocks,
            folder: folder.to_owned(),
            sources: sources.to_owned(),
            database,
            findings: Vec::new(),
        };
        fleet.prepare()?;
        fleet.start_servers(password)?;
        let until = Instant::now() + START_TIMEOUT;
        while fleet.nodes.iter().any(|node| node.address.is_none()) {
            fleet.keep_up()?;
            if Instant::now() > until {
                let log = fleet.log();
                return Err(Error::Peer(peers::Error::TimedOut {
                    program: PROGRAM.to_owned(),
                    what: "say where it listens",
                    waited: START_TIMEOUT,
                    log,
                }));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(fleet)
    }

    /// Tables, the operator's token and those of agents.
    fn prepare(&self) -> Result<(), Error> {
        let mut migrate = self.program()?;
        migrate
            .arg("migrate")
            .arg("--operator-token")
            .arg(self.token_file());
        self.with_database(&mut migrate);
        process::run(migrate, START_TIMEOUT)?.success()?;
        for agent in &self.agents {
            let mut enroll = self.program()?;
            enroll.args(["enroll", &agent.name, "--to"]);
            enroll.arg(self.folder.join(format!("{}.token", agent.name)));
            self.with_database(&mut enroll);
            process::run(enroll, START_TIMEOUT)?.success()?;
            let state = self.folder.join(&agent.name);
            fs::create_dir(&state).map_err(io_error(&state))?;
        }
        Ok(())
    }

    fn start_servers(&mut self, password: &str) -> Result<(), Error> {
        let passwords = self.folder.join("passwords");
        let mut command = Command::new(binary("godwitd").map_err(peers::Error::from)?);
        command.arg("passwd").arg(&passwords).arg(USER);
        let mut added = || -> std::io::Result<bool> {
            let mut command = command
                .arg("--stdin")
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .spawn()?;
            let input = command.stdin.take();
            if let Some(mut input) = input {
                writeln!(input, "{password}")?;
            }
            Ok(command.wait()?.success())
        };
        if !added().map_err(io_error(&passwords))? {
            let error = std::io::Error::other("godwitd passwd failed");
            return Err(io_error(&passwords)(error).into());
        }
        for number in 0..SERVERS {
            let root = match number {
                TO => self.folder.join("to"),
                TO_GUARDED => self.folder.join("guarded"),
                _ => self.sources.clone(),
            };
            if number == TO_GUARDED {
                fs::create_dir(&root).map_err(io_error(&root))?;
            }
            let mut server = FileServer {
                root,
                address: SocketAddr::from(([127, 0, 0, 1], 0)),
                password_file: (number == TO_GUARDED).then(|| passwords.clone()),
                running: None,
                metrics: None,
                received: (0, 0),
                said: String::new(),
            };
            server.start()?;
            self.servers.push(server);
        }
        Ok(())
    }

    pub(super) fn addresses(&self) -> Nodes {
        Arc::clone(&self.addresses)
    }

    /// The servers that are of no use, with their URLs.
    pub(super) fn poisons(&self) -> Vec<(ServiceKind, String)> {
        let poisons = self.poisons.iter();
        poisons
            .map(|server| (server.kind, format!("ftp://{}", server.address)))
            .collect()
    }

    /// URLs of the servers, without a path.
    pub(super) fn urls(&self) -> Vec<String> {
        let urls = self.servers.iter();
        urls.map(|server| format!("ftp://{}", server.address))
            .collect()
    }

    pub(super) fn root(&self, server: usize) -> &Path {
        &self.servers[server].root
    }

    fn token_file(&self) -> PathBuf {
        self.folder.join("operator.token")
    }

    /// Tokens of the operator and the agents.
    pub(super) fn tokens(&self) -> Result<Vec<String>, Error> {
        let agents = self.agents.iter();
        let agents = agents.map(|agent| self.folder.join(format!("{}.token", agent.name)));
        let files = std::iter::once(self.token_file()).chain(agents);
        let read = |path: PathBuf| -> Result<String, Error> {
            let text = fs::read_to_string(&path).map_err(io_error(&path))?;
            Ok(text.trim().to_owned())
        };
        files.map(read).collect()
    }

    fn program(&self) -> Result<Command, Error> {
        let mut command = Command::new(binary(PROGRAM).map_err(peers::Error::from)?);
        command.env("NO_COLOR", "1").env("HOME", &self.folder);
        Ok(command)
    }

    fn with_database(&self, command: &mut Command) {
        command.args(["--database", &self.database, "--key-file"]);
        command.arg(self.folder.join("key"));
    }

    /// Starts what has ended and should not have.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn keep_up(&mut self) -> Result<(), Error> {
        for number in 0..self.nodes.len() {
            self.keep_node(number)?;
        }
        let serving = self.nodes.iter().filter_map(|node| node.address);
        *self.addresses.lock() = serving.collect();
        for inode in self.poisons.iter().flat_map(PoisonServer::victims) {
            let holds = |process: &Process| has_socket(process.id(), inode);
            let mut agents = self.agents.iter_mut();
            if let Some(agent) = agents.find(|agent| agent.process.as_ref().is_some_and(holds)) {
                agent.kill()?;
                agent.retry_at = Instant::now() + RESTART;
            }
        }
        for number in 0..self.agents.len() {
            let agent = &mut self.agents[number];
            if let Some(process) = &mut agent.process {
                if process.is_running()? {
                    continue;
                }
                agent.kill()?;
                agent.retry_at = Instant::now() + RESTART;
                let told = format!("{} ended by itself:\n{}", agent.name, tail(&agent.said));
                self.findings.push(told);
            }
            if self.agents[number].wanted && self.agents[number].retry_at <= Instant::now() {
                let process = self.start_agent(number)?;
                self.agents[number].process = Some(process);
            }
        }
        Ok(())
    }

    fn keep_node(&mut self, number: usize) -> Result<(), Error> {
        let database_runs = self.postgres.as_ref().is_none_or(Postgres::is_running);
        let node = &mut self.nodes[number];
        if let Some(process) = &mut node.process {
            if process.is_running()? {
                if node.address.is_none() {
                    node.address = address_in(process, "http://")?;
                }
                return Ok(());
            }
            let served = node.address.is_some();
            node.kill()?;
            node.retry_at = Instant::now() + RESTART;
            // One that starts may say that there is no database, and end.
            if served || database_runs && !self.database_failed {
                let told = format!("{} ended by itself:\n{}", node.name, tail(&node.said));
                self.findings.push(told);
            }
        }
        if self.nodes[number].wanted && self.nodes[number].retry_at <= Instant::now() {
            let mut command = self.program()?;
            command.arg("serve");
            self.with_database(&mut command);
            command.args(["--listen", "127.0.0.1:0", "--allow-endpoint", "*"]);
            command.args(["--requests-per-second", "1000", "--lease-seconds"]);
            command.arg(LEASE.as_secs().to_string());
            command.arg("--allow-local").arg(&self.sources);
            command.envs(self.clock(&self.nodes[number].name));
            self.nodes[number].process = Some(Process::spawn(command, Options::default())?);
        }
        Ok(())
    }

    fn start_agent(&self, number: usize) -> Result<Process, Error> {
        let name = &self.agents[number].name;
        let mut command = self.program()?;
        command.args(["agent", "--service", &self.balancers[number].url()]);
        command.args(["--name", name, "--max-rate", AGENT_RATE, "--token-file"]);
        command.arg(self.folder.join(format!("{name}.token")));
        command.arg("--state").arg(self.folder.join(name));
        command.arg("--allow-local").arg(&self.sources);
        command.envs(self.clock(name));
        Ok(Process::spawn(command, Options::default())?)
    }

    pub(super) fn kill_agent(&mut self, number: usize) -> Result<(), Error> {
        self.agents[number].wanted = false;
        self.agents[number].kill()
    }

    pub(super) fn want_agent(&mut self, number: usize) {
        self.agents[number].wanted = true;
    }

    pub(super) fn signal_agent(&self, number: usize, signal: Signal) -> Result<(), Error> {
        self.agents[number].signal(signal)
    }

    pub(super) fn kill_node(&mut self, number: usize) -> Result<(), Error> {
        self.nodes[number].wanted = false;
        self.nodes[number].kill()?;
        let serving = self.nodes.iter().filter_map(|node| node.address);
        *self.addresses.lock() = serving.collect();
        Ok(())
    }

    pub(super) fn want_nodes(&mut self) {
        self.nodes.iter_mut().for_each(|node| node.wanted = true);
    }

    pub(super) fn signal_node(&self, number: usize, signal: Signal) -> Result<(), Error> {
        self.nodes[number].signal(signal)
    }

    pub(super) fn signal_nodes(&self, signal: Signal) -> Result<(), Error> {
        self.nodes.iter().try_for_each(|node| node.signal(signal))
    }

    /// The agent and the process that serve of a number, while they run.
    pub(super) fn members(&self, number: usize) -> impl Iterator<Item = (Side, u32)> {
        let sides = [(Side::Server, &self.nodes), (Side::Client, &self.agents)];
        sides.into_iter().filter_map(move |(side, members)| {
            let process = members.get(number)?.process.as_ref()?;
            Some((side, process.id()))
        })
    }

    /// The process that said last that it leads.
    pub(super) fn leader(&self) -> usize {
        let epoch = |node: &FleetProcess| -> u64 {
            let log = node.process.as_ref().map_or(String::new(), Process::log);
            let epochs = log.lines().filter_map(|line| {
                let (_, epoch) = line.split_once("this node leads epoch=")?;
                epoch.trim().parse().ok()
            });
            epochs.max().unwrap_or(0)
        };
        let nodes = 0..self.nodes.len();
        nodes
            .max_by_key(|number| epoch(&self.nodes[*number]))
            .unwrap_or(0)
    }

    /// What makes a process read the clock of a file of its own, where clocks may be wrong.
    fn clock(&self, name: &str) -> Vec<(String, String)> {
        let file = self.clock_file(name);
        let file = file.display().to_string();
        let clock = self
            .clocks
            .then(|| wrong_clock([("FAKETIME_TIMESTAMP_FILE", &file)]));
        clock.unwrap_or_default()
    }

    fn clock_file(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.clock"))
    }

    /// Sets the clock of an agent or, after those, of a process that serves.
    pub(super) fn set_clock(&self, number: usize, seconds: i64) -> Result<(), Error> {
        let mut members = self.agents.iter().chain(&self.nodes);
        let Some(member) = members.nth(number) else {
            return Ok(());
        };
        let file = self.clock_file(&member.name);
        // The library ends a process that reads half of it.
        let new = file.with_extension("new");
        let set = fs::write(&new, format!("{seconds:+}s\n")).and_then(|()| fs::rename(&new, &file));
        Ok(set.map_err(io_error(&file))?)
    }

    pub(super) fn kill_server(&mut self, number: usize) {
        self.servers[number].look();
        self.servers[number].die();
    }

    pub(super) fn start_server(&mut self, number: usize) -> Result<(), Error> {
        match self.servers[number].running {
            Some(_) => Ok(()),
            None => self.servers[number].start(),
        }
    }

    pub(super) fn deliver(&self, agent: Option<usize>, delivery: PollDelivery) {
        for (number, balancer) in self.balancers.iter().enumerate() {
            if agent.is_none_or(|agent| agent == number) {
                balancer.deliver(delivery);
            }
        }
    }

    pub(super) fn fill_disk(&self) -> Result<(), Error> {
        let to = self.root(TO);
        let filled = self.disk.as_ref().map_or(Ok(()), MemoryDisk::fill);
        Ok(filled.map_err(io_error(to))?)
    }

    pub(super) fn empty_disk(&self) -> Result<(), Error> {
        let to = self.root(TO);
        let emptied = self.disk.as_ref().map_or(Ok(()), MemoryDisk::unfill);
        Ok(emptied.map_err(io_error(to))?)
    }

    /// Bytes that all servers were sent by now, at least.
    pub(super) fn received(&mut self) -> u64 {
        self.servers.iter_mut().map(FileServer::look).sum()
    }

    /// What every process has printed, the last lines of each.
    pub(super) fn log(&self) -> String {
        let members = self.nodes.iter().chain(&self.agents);
        let logs = members.map(|member| format!("--- {}\n{}", member.name, tail(&member.log())));
        logs.collect::<Vec<_>>().join("\n")
    }

    /// Ends all of it, and looks whether a log panicked or holds a secret, or a file of database or
    /// agents does. What else was found meanwhile.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn end(mut self, secrets: &[String]) -> Result<Vec<String>, Error> {
        let mut findings = std::mem::take(&mut self.findings);
        let mut logs = Vec::new();
        for member in self.agents.iter_mut().chain(&mut self.nodes) {
            member.kill()?;
            logs.push((member.name.clone(), std::mem::take(&mut member.said)));
        }
        for (number, server) in self.servers.iter_mut().enumerate() {
            server.die();
            logs.push((format!("server{number}"), std::mem::take(&mut server.said)));
        }
        self.crash_database()?;
        logs.push((
            "postgres".to_owned(),
            std::mem::take(&mut self.database_log),
        ));
        let folder = self.folder.join("logs");
        fs::create_dir(&folder).map_err(io_error(&folder))?;
        for (name, text) in &logs {
            if let Some(line) = text.lines().find(|line| line.contains("panicked at")) {
                findings.push(format!("{name}: {line}"));
            }
            let file = folder.join(name);
            fs::write(&file, text).map_err(io_error(&file))?;
        }
        findings.extend(self.with_secrets(secrets)?);
        Ok(findings)
    }

    /// Files that hold one of the secrets, apart from those that were made for it.
    fn with_secrets(&self, secrets: &[String]) -> Result<Option<String>, Error> {
        let mut grep = Command::new("grep");
        grep.args(["-rlaF", "--exclude=*.token", "--exclude=passwords"]);
        for secret in secrets {
            grep.args(["-e", secret]);
        }
        grep.args([
            "--exclude-dir=to",
            "--exclude-dir=guarded",
            "--exclude=.s.PGSQL.*",
        ]);
        grep.arg(&self.folder);
        let found = process::run(grep, GREP_LIMIT)?;
        // 1: nothing was found.
        Ok((found.status.code() != Some(1))
            .then(|| format!("these hold a secret:\n{}", found.log())))
    }
}

/// The environment of a program whose wall clock is wrong; other clocks are right.
fn wrong_clock(clock: [(&str, &str); 1]) -> Vec<(String, String)> {
    let always = [
        ("LD_PRELOAD", WRONG_CLOCK),
        ("DONT_FAKE_MONOTONIC", "1"),
        ("FAKETIME_NO_CACHE", "1"),
    ];
    let all = always.into_iter().chain(clock);
    all.map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// What can be had here: disks can be full where we may mount some.
pub(super) fn means() -> Means {
    Means {
        disks: rustix::process::geteuid().is_root(),
        clocks: Path::new(WRONG_CLOCK).exists(),
    }
}

/// The address that a line of standard output names, if there is one by now.
fn address_in(process: &mut Process, before: &str) -> Result<Option<SocketAddr>, Error> {
    let found = process.wait_for_line(
        Stream::Stdout,
        "say where it listens",
        Duration::ZERO,
        |line| line.strip_prefix(before)?.trim().parse().ok(),
    );
    match found {
        Ok(address) => Ok(Some(address)),
        Err(peers::Error::TimedOut { .. } | peers::Error::EndedEarly { .. }) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Lines of a log that a finding quotes.
const QUOTED_LINES: usize = 30;

fn tail(log: &str) -> String {
    let lines: Vec<&str> = log.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}
