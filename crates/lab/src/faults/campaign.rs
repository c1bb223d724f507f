//! Runs faults: each injects one into a command and repeats the command until it succeeds, while
//! the destination is watched.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Error;
use super::dialogue::Dialogues;
use super::outcome::Outcome;
use super::plan::{Fault, Kind, Shape, Way};
use super::stage::{Program, Stage, StageServer};
use super::store::{self, Store, Trouble};
use super::watch::{TargetWatch, difference, temporary_files};
use crate::file_error::io_error;
use crate::path::{Alteration, Corruption, Duplication, Loss, Reordering};
use crate::peers;
use crate::peers::process::Signal;

/// How often a command is given before it counts as one that never ends well.
const RUNS_MAX: u32 = 5;
/// How long one run may take: a cut of a minute, what the client waits for a peer, and its work.
const RUN_LIMIT: Duration = Duration::from_secs(300);
/// Links of the path, by direction.
const LINKS: [&str; 2] = ["left>right", "right>left"];
/// Lines of a program's output that a finding quotes.
const QUOTED_LINES: usize = 20;

/// Reads or writes that a bad disk spoils: enough that some are of the data, few enough that trying
/// again can help.
const BAD_READS_OR_WRITES: u32 = 4;
/// Those that are cut short, or slow.
const ODD_WRITES: u32 = 60;
/// How long a server stands still.
const FROZEN: Duration = Duration::from_secs(3);
/// Payload of a packet of the path, about.
const PACKET_BYTES: u64 = 1448;

/// The kinds of faults that can be had on this machine, provided that there are emulated networks.
pub fn kinds_here() -> Vec<Kind> {
    let disks = store::available();
    let gct = peers::gct::available().is_ok();
    let kinds = Kind::ALL.into_iter().filter(|kind| match kind {
        Kind::GctKilled => gct,
        kind => disks || !kind.is_of_a_disk(),
    });
    kinds.collect()
}

/// Everything that faults of one seed need.
#[derive(Debug)]
pub struct Campaign {
    seed: u64,
    /// Made for the first fault that needs it.
    stage: Option<Stage>,
    dialogues: Option<Dialogues>,
    /// Payload of a command without a fault.
    undisturbed: BTreeMap<(Shape, Way, Program, bool), u64>,
}

impl Campaign {
    /// A campaign that has run nothing.
    pub fn new(seed: u64) -> Campaign {
        Campaign {
            seed,
            stage: None,
            dialogues: None,
            undisturbed: BTreeMap::new(),
        }
    }

    /// Runs one fault. The first that needs them makes hosts and files: the calling thread, and
    /// what it starts, sees mounted file systems of its own from then on.
    ///
    /// # Errors
    /// [`Error::Network`] where there can be no emulated network. A program cannot be started, the
    /// kernel refuses something. What the fault led to is no error but a finding.
    pub fn run(&mut self, fault: &Fault) -> Result<Outcome, Error> {
        if fault.kind.is_of_a_dialogue() {
            if self.dialogues.is_none() {
                self.dialogues = Some(Dialogues::new(self.seed)?);
            }
            return (self.dialogues.as_ref()).expect("made just now").run(fault);
        }
        if self.stage.is_none() {
            self.stage = Some(Stage::set(self.seed)?);
        }
        let program = match fault.kind {
            Kind::GctKilled => Program::Gct,
            _ => Program::Godwitd,
        };
        let kind = (fault.shape, fault.way, program, fault.kind.is_of_the_path());
        let undisturbed = match self.undisturbed.get(&kind) {
            Some(payload) => *payload,
            None => {
                let (outcome, payload) = self.copy(fault, program, false)?;
                if !outcome.findings.is_empty() {
                    return Ok(outcome);
                }
                self.undisturbed.insert(kind, payload);
                payload
            }
        };
        let (mut outcome, payload) = self.copy(fault, program, true)?;
        outcome.resent_bytes = payload.saturating_sub(undisturbed);
        Ok(outcome)
    }

    fn stage(&self) -> &Stage {
        self.stage
            .as_ref()
            .expect("made before anything is copied on it")
    }

    /// Copies, with or without the fault; also what was sent.
    fn copy(
        &self,
        fault: &Fault,
        program: Program,
        disturbed: bool,
    ) -> Result<(Outcome, u64), Error> {
        let stage = self.stage();
        stage.clear()?;
        let (source, target) = (stage.source(fault.shape), stage.target().to_owned());
        let watch = TargetWatch::start(&target, &source).map_err(io_error(&target))?;
        let mut ends = FaultEnds::open(stage, fault, program)?;
        let arguments = ends.arguments(fault);
        let before = stage.payload_sent()?;
        let empty = stage.used()?;
        let began = Instant::now();
        let mut outcome = Outcome {
            fault: *fault,
            happened: false,
            runs: 0,
            seconds: 0.0,
            bytes: fault.shape.bytes(),
            resent_bytes: 0,
            resent_max: fault.resent_max(),
            unread_bytes: 0,
            findings: Vec::new(),
        };
        let mut said = String::new();
        let mut done = false;
        while !done && outcome.runs < RUNS_MAX {
            outcome.runs += 1;
            let mut client = stage.client(&arguments)?;
            if disturbed && !outcome.happened {
                let at = empty + fault.at_bytes();
                while client.is_running()? && stage.used()? < at {
                    std::thread::sleep(Duration::from_millis(1));
                }
                if client.is_running()? {
                    outcome.happened = true;
                    outcome.unread_bytes = ends.strike(stage, fault, &mut client)?;
                }
            }
            match client.wait(RUN_LIMIT) {
                Ok(finished) => {
                    done = finished.status.success();
                    said = finished.log();
                }
                Err(error @ peers::Error::TimedOut { .. }) => {
                    ends.heal(stage, fault.kind)?;
                    outcome.findings.push(format!("the command hung: {error}"));
                    break;
                }
                Err(error) => return Err(error.into()),
            }
            if outcome.runs == 1 {
                ends.heal(stage, fault.kind)?;
            }
        }
        outcome.seconds = began.elapsed().as_secs_f64();
        if !done {
            let story = format!("it never said that all is done:\n{}", quoted(&said));
            outcome.findings.push(story);
        }
        let payload = stage.payload_sent()?.saturating_sub(before);
        let seen = watch.finish().map_err(io_error(&target))?;
        outcome.findings.extend(seen);
        if done {
            outcome.findings.extend(self.missing(fault.shape)?);
        }
        if !outcome.findings.is_empty() {
            outcome.findings.push(ends.logs());
        }
        Ok((outcome, payload))
    }

    /// What is not as it must be once all is done.
    fn missing(&self, shape: Shape) -> Result<Vec<String>, Error> {
        let (source, target) = (self.stage().source(shape), self.stage().target());
        let mut findings = Vec::new();
        for entry in std::fs::read_dir(&source).map_err(io_error(&source))? {
            let name = entry.map_err(io_error(&source))?.file_name();
            if let Some(how) = difference(&source.join(&name), &target.join(&name)) {
                findings.push(format!("at the end {} {how}", name.display()));
            }
        }
        let left = temporary_files(target).map_err(io_error(target))?;
        if !left.is_empty() {
            findings.push(format!("temporary files stay: {left:?}"));
        }
        Ok(findings)
    }
}

/// The servers that a command names, and the disks.
struct FaultEnds {
    // Servers are dropped before the disks that they use.
    /// Where files come from, unless the client has them.
    from: Option<StageServer>,
    /// Where they go, unless the client takes them.
    to: Option<StageServer>,
    /// Those that can go bad.
    disks: Vec<Store>,
    /// `SRC DST` of the command.
    places: [String; 2],
}

impl FaultEnds {
    fn open(stage: &Stage, fault: &Fault, program: Program) -> Result<FaultEnds, Error> {
        let host = match fault.kind.is_of_the_path() {
            true => stage.right()?,
            false => stage.left()?,
        };
        let (mut source, mut target) = (stage.source(fault.shape), stage.target().to_owned());
        let mut disks = Vec::new();
        if matches!(fault.kind, Kind::ReadError | Kind::Slow) {
            let disk = stage.bad_source(fault.shape)?;
            source = disk.path().to_owned();
            disks.push(disk);
        }
        if fault.kind.is_of_a_disk() && fault.kind != Kind::ReadError {
            let disk = stage.bad_target()?;
            target = disk.path().to_owned();
            disks.push(disk);
        }
        let serve = |root| StageServer::start(program, host, root);
        let (from, to) = match fault.way {
            Way::Put => (None, Some(serve(&target)?)),
            Way::Get => (Some(serve(&source)?), None),
            Way::Between => (Some(serve(&source)?), Some(serve(&target)?)),
        };
        let place = |server: &Option<StageServer>, path: &std::path::Path| {
            (server.as_ref()).map_or_else(|| format!("{}/", path.display()), StageServer::url)
        };
        let places = [place(&from, &source), place(&to, &target)];
        Ok(FaultEnds {
            from,
            to,
            disks,
            places,
        })
    }

    fn arguments(&self, fault: &Fault) -> Vec<String> {
        let (c, p) = (fault.concurrency.to_string(), fault.parallelism.to_string());
        let [from, to] = &self.places;
        let words = ["cp", "-r", "-c", &c, "-p", &p, from, to];
        words.map(str::to_owned).into()
    }

    /// Lets it happen. What lies unread then, in receive buffers of the kernel.
    fn strike(
        &mut self,
        stage: &Stage,
        fault: &Fault,
        client: &mut peers::Process,
    ) -> Result<u64, Error> {
        if !fault.kind.is_of_a_program() {
            let mut unread = stage.unread()?;
            self.spoil(stage, fault)?;
            // What comes until an end says that it has no room is lost with the rest.
            let until = Instant::now() + RUN_LIMIT;
            while fault.kind == Kind::Full && client.is_running()? && Instant::now() < until {
                unread = unread.max(stage.unread()?);
                std::thread::sleep(Duration::from_millis(1));
            }
            return Ok(unread);
        }
        // No program reads or sends between the count and the end of the reader.
        self.signal_all(client, Signal::STOP)?;
        let unread = stage.unread_at_rest()?;
        match fault.kind {
            Kind::ClientKilled => {
                client.signal(Signal::KILL)?;
                client.ended_within(RUN_LIMIT)?;
            }
            kind => self.dying(kind).for_each(StageServer::die),
        }
        self.signal_all(client, Signal::CONT)?;
        let host = stage.left()?;
        let mut dead = self.dying(fault.kind);
        dead.try_for_each(|server| server.come_back(host))?;
        Ok(unread)
    }

    /// The servers that this kind of fault kills.
    fn dying(&mut self, kind: Kind) -> impl Iterator<Item = &mut StageServer> {
        let of_source = matches!(
            kind,
            Kind::SourceKilled | Kind::ServerKilled | Kind::GctKilled
        );
        let of_target = matches!(
            kind,
            Kind::TargetKilled | Kind::ServerKilled | Kind::GctKilled
        );
        let from = self.from.as_mut().filter(|_| of_source);
        let to = self.to.as_mut().filter(|_| of_target);
        from.into_iter().chain(to)
    }

    /// Signals the client and both servers, with all their processes.
    fn signal_all(&self, client: &peers::Process, signal: Signal) -> Result<(), Error> {
        client.signal_group(signal)?;
        for server in self.from.iter().chain(&self.to) {
            server.signal_group(signal)?;
        }
        Ok(())
    }

    /// Lets a path or a disk go bad, or servers stand still.
    fn spoil(&self, stage: &Stage, fault: &Fault) -> Result<(), Error> {
        let spoil = |disks: &[Store], trouble, times| {
            for disk in disks {
                disk.trouble(trouble, times);
            }
        };
        match fault.kind {
            Kind::Cut => cut(stage, Duration::from_secs(1))?,
            Kind::LongCut => cut(stage, Duration::from_secs(60))?,
            Kind::Lost => alter(stage, Alteration::Loss(Loss::Random { ratio: 0.02 }))?,
            Kind::Reordered => {
                let reordering = Reordering {
                    ratio: 0.05,
                    hold_ns: 3_000_000,
                };
                alter(stage, Alteration::Reordering(Some(reordering)))?;
            }
            Kind::Duplicated => {
                let duplication = Duplication { ratio: 0.05 };
                alter(stage, Alteration::Duplication(Some(duplication)))?;
            }
            Kind::Flipped => {
                let link = match fault.way {
                    Way::Put => "left>right",
                    Way::Get | Way::Between => "right>left",
                };
                alter_link(stage, link, Alteration::Corruption(Some(flips(fault))))?;
            }
            Kind::Full => stage.fill()?,
            Kind::ReadError => spoil(&self.disks, Trouble::Reads, BAD_READS_OR_WRITES),
            Kind::WriteError => spoil(&self.disks, Trouble::Writes, BAD_READS_OR_WRITES),
            Kind::ShortWrite => spoil(&self.disks, Trouble::Short, ODD_WRITES),
            Kind::Slow => spoil(&self.disks, Trouble::Slow, ODD_WRITES),
            Kind::Frozen => {
                for server in self.from.iter().chain(&self.to) {
                    server.freeze(FROZEN)?;
                }
            }
            kind => unreachable!("{kind} is of a program"),
        }
        Ok(())
    }

    /// Ends faults that would last, once the command that met them has ended.
    fn heal(&self, stage: &Stage, kind: Kind) -> Result<(), Error> {
        match kind {
            Kind::Lost => alter(stage, Alteration::Loss(Loss::None)),
            Kind::Reordered => alter(stage, Alteration::Reordering(None)),
            Kind::Duplicated => alter(stage, Alteration::Duplication(None)),
            Kind::Flipped => alter(stage, Alteration::Corruption(None)),
            Kind::Full => stage.unfill(),
            _ => Ok(()),
        }
    }

    fn logs(&self) -> String {
        let servers = [("source", &self.from), ("target", &self.to)];
        let logs = servers.into_iter().filter_map(|(name, server)| {
            let log = server.as_ref()?.log();
            Some(format!("--- server of the {name}\n{}", quoted(&log)))
        });
        logs.collect::<Vec<_>>().join("\n")
    }
}

/// Flips a bit or two in what is still to come, and hardly any on control channels, whose packets
/// are seldom full.
#[allow(clippy::cast_precision_loss, reason = "a ratio")]
fn flips(fault: &Fault) -> Corruption {
    let left = fault.shape.bytes().saturating_sub(fault.at_bytes());
    Corruption {
        ratio: (2.0 * PACKET_BYTES as f64 / left.max(1) as f64).min(1.0),
        min_packet_bytes: 1500,
        packets_max: Some(2),
    }
}

fn alter(stage: &Stage, to: Alteration) -> Result<(), Error> {
    (LINKS.iter()).try_for_each(|link| alter_link(stage, link, to.clone()))
}

fn alter_link(stage: &Stage, link: &str, to: Alteration) -> Result<(), Error> {
    let altered = stage.control().alter(link, Duration::ZERO, to);
    Ok(altered.map_err(crate::network::Error::from)?)
}

fn cut(stage: &Stage, length: Duration) -> Result<(), Error> {
    let control = stage.control();
    control.cut(&LINKS).map_err(crate::network::Error::from)?;
    std::thread::sleep(length);
    control.heal(&LINKS).map_err(crate::network::Error::from)?;
    Ok(())
}

fn quoted(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(QUOTED_LINES)..].join("\n")
}
