//! Copies to and from a striped server while one of its nodes is killed, drained, stopped, cut off,
//! delayed, loses packets, or lies: each copy, fault and moment by a seed.
//!
//! `GODWIT_STRIPING_FAULTS=200` makes it a campaign of so many; `GODWIT_STRIPING_FAULT=17` repeats
//! the one of that number.

mod liar;
mod plan;

use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use godwit_lab::faults::{TargetWatch, difference, temporary_files};
use godwit_lab::host::{Host, HostConfig};
use godwit_lab::network::{Join, Member, Network, NetworkConfig, Paths};
use godwit_lab::path::{Alteration, Loss, PathConfig};
use godwit_lab::peers::godwit::{self, Godwitd};
use godwit_lab::peers::grid::Grid;
use godwit_lab::peers::process::{Options, Process};
use godwit_lab::peers::striped::StripedGodwitd;
use rustix::process::Signal;
use tempfile::TempDir;

use crate::netns::present;
use crate::support::{Need, have, write_noise};
use liar::Liar;
use plan::{Fault, Kind, NODES, Way};

/// Chosen arbitrarily, and kept: the same faults each time.
const SEED: u64 = 1;

/// Faults of a test run: three of each kind.
const COUNT: u64 = 21;

/// Stages at a time, each with hosts of its own: most of the time of a fault is waiting.
const STAGES: u64 = 4;

/// Bytes of the file: more than a client keeps to one stripe.
const FILE_BYTES: usize = 20_000_001;

/// Rate of the link of each node, bit/s: slow enough that faults fall into the copy.
const LINK_BPS: u64 = 60_000_000;

/// One-way delay of the links, ns.
const DELAY_NS: u64 = 1_000_000;

/// How long one command may take, with all its attempts.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);

/// Commands until all is there, at most: the second meets nodes that are well.
const COMMANDS_MAX: u32 = 3;

#[test]
fn nothing_wrong_has_a_final_name_whatever_becomes_of_a_node() {
    let test = "nothing_wrong_has_a_final_name_whatever_becomes_of_a_node";
    if !have(&[Need::Godwit, Need::Godwitd]) || !present(test) {
        return;
    }
    let number = |name: &str| std::env::var(name).ok()?.parse::<u64>().ok();
    let numbers = match number("GODWIT_STRIPING_FAULT") {
        Some(one) => one..one + 1,
        None => 0..number("GODWIT_STRIPING_FAULTS").unwrap_or(COUNT),
    };
    let stages = STAGES.min(numbers.end - numbers.start);
    let queue = Mutex::new(numbers);
    let findings = Mutex::new(Vec::new());
    let happened = Mutex::new(0);
    std::thread::scope(|scope| {
        for _ in 0..stages {
            scope.spawn(|| {
                let stage = Stage::new();
                loop {
                    let Some(number) = queue.lock().unwrap().next() else {
                        return;
                    };
                    let fault = Fault::draw(SEED, number);
                    let outcome = stage.run(&fault);
                    *happened.lock().unwrap() += u32::from(outcome.happened);
                    let wrong = outcome.findings.iter();
                    let wrong = wrong.map(|what| format!("seed {SEED}, {fault}: {what}"));
                    findings.lock().unwrap().extend(wrong);
                }
            });
        }
    });
    let findings = findings.into_inner().unwrap();
    assert!(findings.is_empty(), "{}", findings.join("\n"));
    let happened = happened.into_inner().unwrap();
    println!("{happened} faults happened");
    // A moment may come too late, but not each of them.
    assert!(happened > 0);
}

/// What came of a fault.
#[derive(Default)]
struct Outcome {
    happened: bool,
    findings: Vec<String>,
}

/// Hosts, certificates and files.
struct Stage {
    network: Network,
    grid: Grid,
    folder: TempDir,
}

/// The host of a node, from 0.
fn node_name(node: usize) -> String {
    format!("node{}", node + 1)
}

/// A client and a front end, and nodes behind a link each.
fn hosts_and_links() -> NetworkConfig {
    let names = (0..NODES).map(node_name);
    let names = ["client".to_owned(), "front".to_owned()]
        .into_iter()
        .chain(names);
    let members = names.map(|name| Member {
        host: HostConfig::new(name.clone()),
        site: name,
    });
    let join = |from: &str, to: String, rate: u64| Join {
        from: from.to_owned(),
        to,
        paths: Paths::same(PathConfig::new(rate, DELAY_NS)),
    };
    let to_nodes = (0..NODES).flat_map(|node| {
        let control = join("front", node_name(node), 1_000_000_000);
        [join("client", node_name(node), LINK_BPS), control]
    });
    let control = join("client", "front".to_owned(), 1_000_000_000);
    NetworkConfig {
        members: members.collect(),
        joins: to_nodes.chain([control]).collect(),
        ..NetworkConfig::sides(0, 0, Paths::same(PathConfig::default()))
    }
}

impl Stage {
    fn new() -> Stage {
        let network = Network::start(&hosts_and_links()).unwrap();
        let addresses = network.hosts().iter().map(|host| host.address().into());
        let grid = Grid::new(&addresses.collect::<Vec<IpAddr>>()).unwrap();
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("from")).unwrap();
        write_noise(&folder.path().join("from/f"), FILE_BYTES, 40);
        Stage {
            network,
            grid,
            folder,
        }
    }

    fn host(&self, name: &str) -> &Host {
        self.network.host(name).unwrap()
    }

    fn at(&self, path: &str) -> PathBuf {
        self.folder.path().join(path)
    }

    /// One copy, with its fault.
    fn run(&self, fault: &Fault) -> Outcome {
        let (from, to) = (self.at("from"), self.at("to"));
        drop(fs::remove_dir_all(&to));
        fs::create_dir(&to).unwrap();
        let mut cluster = Cluster::start(self, fault);
        let watch = TargetWatch::start(&to, &from).unwrap();
        let mut client = self.copy(&cluster, fault);
        let mut outcome = Outcome::default();
        let at = FILE_BYTES as u64 / 1000 * fault.at_per_mille;
        while stored(&to) < at && client.is_running().unwrap() {
            std::thread::sleep(Duration::from_millis(2));
        }
        if client.is_running().unwrap() {
            cluster.begin(self, fault);
            let until = Instant::now() + fault.lasts;
            while Instant::now() < until && client.is_running().unwrap() {
                std::thread::sleep(Duration::from_millis(5));
            }
            outcome.happened = cluster.has_happened(fault);
        }
        cluster.end(self, fault);
        for command in 1.. {
            let finished = match client.wait(COMMAND_LIMIT) {
                Ok(finished) => finished,
                Err(error) => {
                    let text = format!("command {command} hangs: {error}\n{}", cluster.log());
                    outcome.findings.push(text);
                    break;
                }
            };
            if finished.status.success() {
                break;
            }
            if command == COMMANDS_MAX {
                let text = format!("no command of {command} is done: {}", finished.log());
                outcome.findings.push(format!("{text}\n{}", cluster.log()));
                break;
            }
            client = self.copy(&cluster, fault);
        }
        drop(cluster);
        outcome.findings.extend(watch.finish().unwrap());
        let differs = difference(&from.join("f"), &to.join("f"));
        outcome
            .findings
            .extend(differs.map(|how| format!("f {how}")));
        let left = temporary_files(&to).unwrap();
        (outcome.findings).extend(
            left.iter()
                .map(|path| format!("{} is left", path.display())),
        );
        outcome
    }

    /// Gives the command.
    fn copy(&self, cluster: &Cluster, fault: &Fault) -> Process {
        let local = |path: &str| self.at(path).display().to_string();
        let front = |path: &str| cluster.server.front().url(path);
        let (from, to) = match fault.way {
            Way::Put => (local("from/f"), front("to/f")),
            Way::Get => (front("from/f"), local("to/f")),
            Way::Between => {
                let source = cluster.source.as_ref().expect("is there for it");
                (source.url("from/f"), front("to/f"))
            }
        };
        let mut command = Command::new(godwit::binary("godwit").unwrap());
        command.args(["cp", "--alone", "--retries", "8", "--no-path-memory"]);
        command.args(["-c", "1", "-p", &fault.parallelism.to_string()]);
        for node in 0..NODES {
            let host = self.host(&node_name(node)).address().to_string();
            command.args(["--data-host", &host]);
        }
        command.args([from, to]).env("HOME", self.folder.path());
        self.host("client")
            .spawn(command, Options::default())
            .unwrap()
    }
}

/// The servers of one fault.
struct Cluster {
    server: StripedGodwitd,
    liars: Vec<Liar>,
    /// A server without nodes.
    source: Option<Godwitd>,
}

impl Cluster {
    fn start(stage: &Stage, fault: &Fault) -> Cluster {
        let root = stage.folder.path();
        let ip = |name: &str| IpAddr::from(stage.host(name).address());
        let addresses: Vec<IpAddr> = (0..NODES).map(|node| ip(&node_name(node))).collect();
        let [cert, key] = stage.grid.host();
        let mut liars = Vec::new();
        let server = StripedGodwitd::start_via(
            Godwitd::serving(root).ip(ip("front")),
            root,
            &addresses,
            &stage.grid,
            &|at, command| stage.spawn(at, command),
            |address| {
                let lies = matches!(fault.kind, Kind::Lying(_)) && liars.len() <= fault.node;
                match lies {
                    true => {
                        let host = stage.host(&node_name(liars.len()));
                        liars.push(Liar::start(host, address, [&cert, &key]));
                        liars.last().expect("was made").address
                    }
                    false => address,
                }
            },
        );
        let source = (fault.way == Way::Between).then(|| {
            let config = Godwitd::serving(root).ip(ip("client"));
            let config = config.arg("--allow-foreign-data-hosts");
            let spawn = |at: IpAddr, command: Command| stage.spawn(at, command);
            config.start_by(&spawn).unwrap()
        });
        Cluster {
            server: server.unwrap(),
            liars,
            source,
        }
    }

    /// The fault begins.
    fn begin(&mut self, stage: &Stage, fault: &Fault) {
        let node = fault.node;
        match fault.kind {
            Kind::Killed => self.signal(node, Signal::KILL),
            Kind::Drained => self.signal(node, Signal::TERM),
            Kind::Stopped => self.signal(node, Signal::STOP),
            Kind::Cut => stage.alter(node, &Alteration::Cut),
            Kind::Delayed => stage.alter(node, &Alteration::DelayNs(400_000_000)),
            Kind::Lossy => stage.alter(node, &Alteration::Loss(Loss::Random { ratio: 0.05 })),
            Kind::Lying(lie) => self.liars[node].lie(lie),
        }
    }

    /// It ends: all is well again.
    fn end(&mut self, stage: &Stage, fault: &Fault) {
        let node = fault.node;
        match fault.kind {
            Kind::Killed | Kind::Drained => {
                let spawn = |at: IpAddr, command: Command| stage.spawn(at, command);
                self.server.restart_node(node, &spawn).unwrap();
            }
            Kind::Stopped => self.signal(node, Signal::CONT),
            Kind::Cut => stage.alter(node, &Alteration::Heal),
            Kind::Delayed => stage.alter(node, &Alteration::DelayNs(DELAY_NS)),
            Kind::Lossy => stage.alter(node, &Alteration::Loss(Loss::None)),
            Kind::Lying(_) => {}
        }
    }

    fn has_happened(&self, fault: &Fault) -> bool {
        match fault.kind {
            Kind::Lying(_) => self.liars[fault.node].has_lied(),
            _ => true,
        }
    }

    fn signal(&self, node: usize, signal: Signal) {
        self.server.signal_node(node, signal).unwrap();
    }

    fn log(&self) -> String {
        self.server.log()
    }
}

impl Stage {
    fn spawn(&self, at: IpAddr, command: Command) -> Result<Process, godwit_lab::peers::Error> {
        let mut hosts = self.network.hosts().iter();
        let host = hosts
            .find(|host| IpAddr::from(host.address()) == at)
            .unwrap();
        Ok(host.spawn(command, Options::default()).unwrap())
    }

    /// Changes all links of a node.
    fn alter(&self, node: usize, to: &Alteration) {
        let name = node_name(node);
        let control = self.network.control();
        let links: Vec<String> = control.links().map(str::to_owned).collect();
        for link in links
            .iter()
            .filter(|link| link.split('>').any(|end| end == name))
        {
            control.alter(link, Duration::ZERO, to.clone()).unwrap();
        }
    }
}

/// Bytes for which there is room in the files of a directory.
fn stored(directory: &Path) -> u64 {
    let entries = fs::read_dir(directory).unwrap().flatten();
    let blocks = entries.filter_map(|entry| Some(entry.metadata().ok()?.blocks()));
    blocks.sum::<u64>() * 512
}
