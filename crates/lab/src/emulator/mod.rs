//! Sends real packets through the pure path model: TUN devices of hosts, joined by threads of the
//! emulator.
//!
//! Each host has one TUN device whose other end we hold. Hosts are grouped into *sites*; each
//! ordered pair of sites may have a link, a [`Path`] of its own. Between hosts of one site packets
//! pass at once unless a link from the site to itself says otherwise; without a link they are
//! dropped.
//!
//! ```text
//!  site 0                thread                     site 1
//!  host A --TUN-->  [ link 0>1: queue, rate, delay ]  --TUN--> host C
//!  host B --TUN-->  [ link 1>0:    "                ] <--TUN-- host D
//! ```
//!
//! *Arrival is computed, not timed*: a packet counts as arrived at an even spread over the interval
//! since its port was last read, half a millisecond at most, and the path model says what becomes
//! of it. So queue, drops and departures are exact although a thread wakes up now and then; only
//! the delivery is late, and how late is measured and reported. A run whose lateness is beyond the
//! limits of [`Report`] is *unfaithful*: its figures say more about the machine than about the
//! path.

mod arena;
mod clock;
mod control;
mod delay_line;
mod device;
mod frame;
#[cfg(test)]
mod frame_tests;
mod lateness;
mod pace;
mod report;
mod worker;

use std::io;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};

pub use control::Control;
pub use device::{Device, TUN_NODE};
pub use lateness::Lateness;
pub use report::{LinkReport, MEAN_LATENESS_MAX_US, P99_LATENESS_MAX_US, Report};

use crate::path::{Alteration, Counters, InvalidPath, Path, PathConfig, QueueLimit};
use arena::Arena;
use clock::{AwakeProcessors, Clock, Sleeper};
use delay_line::DelayLine;
use pace::Pace;
use worker::{Command, Lane, LaneCounts, LapStart, Worker};

/// Bounds of the memory for packets on their way, bytes a thread.
const ARENA_BOUNDS: (u64, u64) = (16 << 20, 512 << 20);

/// Rate assumed for a link without a bottleneck when memory is sized, bit/s.
const UNLIMITED_BPS: u64 = 10_000_000_000;

/// How long a thread may take to report. It hears commands at least every 10 ms.
const REPORT_TIMEOUT: Duration = Duration::from_secs(10);

/// How packets cross between kernel and emulator.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Senders hand over segments of up to 64 KB; the path still decides packet by packet, and
    /// neighbours due within 50 us are delivered as one segment. Half the cost of plain mode.
    #[default]
    Offload,
    /// Each packet by itself: the reference.
    Plain,
}

/// How many threads serve the paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Threads {
    /// Two from 2.5 Gbit/s on, without a bottleneck, or for more than 64 channels; otherwise one.
    #[default]
    Auto,
    /// One for all.
    One,
    /// Two: sites are dealt out in turn, so two sites have a thread for each direction.
    Two,
}

/// How an emulator works, apart from the paths.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EmulatorConfig {
    /// How packets cross.
    pub mode: Mode,
    /// How many threads.
    pub threads: Threads,
    /// Connections that are expected at once, for [`Threads::Auto`]. Default 0: few.
    pub channels: u32,
}

/// A host's end of the emulator.
#[derive(Debug, Clone)]
pub struct Port {
    /// The host's device, opened in its namespace with the emulator's [`Mode`].
    pub device: Arc<Device>,
    /// The host's address.
    pub address: Ipv4Addr,
    /// The site where it is.
    pub site: usize,
}

/// One direction between two sites.
#[derive(Debug, Clone, PartialEq)]
pub struct Link {
    /// For reports: `left>right`.
    pub name: String,
    /// Where packets come from.
    pub from_site: usize,
    /// Where they go.
    pub to_site: usize,
    /// What it is like.
    pub path: PathConfig,
}

/// Why an emulator cannot start or continue.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A link's configuration makes no sense.
    #[error("link {link}: {source}")]
    Path {
        /// Its name.
        link: String,
        /// The field, and what is wrong.
        source: InvalidPath,
    },
    /// No link of that name or number.
    #[error("no link {0}")]
    NoSuchLink(String),
    /// The kernel refused memory or a thread.
    #[error("{action}: {source}")]
    Os {
        /// What was attempted.
        action: &'static str,
        /// What the kernel said.
        source: io::Error,
    },
    /// A thread of the emulator is gone: a bug.
    #[error("the emulator stopped")]
    Stopped,
}

/// A running emulator. Dropping it stops it.
#[derive(Debug)]
pub struct Emulator {
    control: Control,
    threads: Vec<JoinHandle<()>>,
    names: Vec<String>,
    realtime: bool,
    memory_locked: bool,
    awake: Option<AwakeProcessors>,
    /// Counters at the start of the lap, to be taken off.
    base: Mutex<Vec<Counters>>,
}

impl Emulator {
    /// Starts to forward between `ports` over `links`. At most one link for each ordered pair of
    /// sites counts, the first.
    ///
    /// # Errors
    /// [`Error::Path`], [`Error::Os`].
    pub fn start(
        config: EmulatorConfig,
        ports: Vec<Port>,
        links: Vec<Link>,
    ) -> Result<Emulator, Error> {
        let count = config.thread_count(&links);
        let sites = (ports.iter().map(|port| port.site + 1).max()).unwrap_or(0);
        let names: Vec<String> = links.iter().map(|link| link.name.clone()).collect();
        let routes = (links.iter())
            .map(|link| (link.name.clone(), link.from_site % count))
            .collect();
        let clock = Clock::start();
        let ports: Arc<[Port]> = ports.into();
        let (started, starts) = mpsc::channel();
        let mut emulator = Emulator {
            control: Control {
                clock,
                workers: Vec::new(),
                links: routes,
            },
            threads: Vec::new(),
            base: Mutex::new(vec![Counters::default(); names.len()]),
            names,
            realtime: true,
            memory_locked: true,
            // Fast paths leave processors no time to sleep, and a hypervisor takes more time from a
            // machine that never does.
            awake: (!links.iter().any(is_fast))
                .then(AwakeProcessors::hold)
                .flatten(),
        };
        for index in 0..count {
            let (commands, receiver) = mpsc::channel();
            let of_worker: Vec<(usize, &Link)> = (links.iter().enumerate())
                .filter(|(_, link)| link.from_site % count == index)
                .collect();
            let arena = Arena::new(arena_bytes(&of_worker)).map_err(|source| Error::Os {
                action: "reserve memory for packets",
                source,
            })?;
            emulator.memory_locked &= arena.is_locked();
            let worker = Worker {
                clock,
                sleeper: Sleeper::new(clock),
                waiter: Sleeper::new(clock),
                woken_by_packet: false,
                mode: config.mode,
                pace: Pace::of(shortest_delay_ns(&links)),
                ingress: (0..ports.len())
                    .filter(|&port| ports[port].site % count == index)
                    .collect(),
                ports: ports.clone(),
                lanes: lanes(&of_worker, sites, index, count)?,
                arena,
                commands: receiver,
                tally: LaneCounts::default(),
                lap: LapStart::default(),
                batch: Vec::with_capacity(4096),
            };
            let started = started.clone();
            let thread = std::thread::Builder::new()
                .name(format!("emulator-{index}"))
                .spawn(move || {
                    // The receiver is gone when the start failed elsewhere.
                    let _ = started.send(clock::become_realtime());
                    worker.run();
                })
                .map_err(|source| Error::Os {
                    action: "start a thread of the emulator",
                    source,
                })?;
            emulator.threads.push(thread);
            emulator.control.workers.push(commands);
        }
        drop(started);
        emulator.realtime = starts.iter().take(count).all(|granted| granted);
        Ok(emulator)
    }

    /// What changes links from any thread.
    pub fn control(&self) -> Control {
        self.control.clone()
    }

    /// What happened since the last call or the start. Counting begins again: call it right before
    /// a run and right after, and keep the second.
    ///
    /// # Errors
    /// [`Error::Stopped`].
    pub fn lap(&self) -> Result<Report, Error> {
        let (reply, replies) = mpsc::channel();
        for worker in &self.control.workers {
            let command = Command::Lap(reply.clone());
            worker.send(command).map_err(|_| Error::Stopped)?;
        }
        let tallies: Vec<LaneCounts> = (self.control.workers.iter())
            .map(|_| replies.recv_timeout(REPORT_TIMEOUT))
            .collect::<Result<_, _>>()
            .map_err(|_| Error::Stopped)?;
        let mut report = Report::of(&tallies, &self.names, self.realtime, self.memory_locked);
        report.processors_awake = self.awake.is_some();
        let mut bases = self.base.lock();
        for (link, base) in report.links.iter_mut().zip(&mut *bases) {
            let total = link.counters;
            link.counters = total.since(base);
            *base = total;
        }
        Ok(report)
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        for worker in &self.control.workers {
            // Fails when the thread is gone already.
            let _ = worker.send(Command::Stop);
        }
        for thread in self.threads.drain(..) {
            // A panic there was reported when it happened.
            let _ = thread.join();
        }
    }
}

impl EmulatorConfig {
    fn thread_count(&self, links: &[Link]) -> usize {
        match self.threads {
            Threads::One => 1,
            Threads::Two => 2,
            Threads::Auto if self.channels > 64 || links.iter().any(is_fast) => 2,
            Threads::Auto => 1,
        }
    }
}

fn is_fast(link: &Link) -> bool {
    (link.path.rate_bps).is_none_or(|rate| rate >= 2_500_000_000)
}

/// The least that packets are delayed one way, ns, whatever changes.
fn shortest_delay_ns(links: &[Link]) -> u64 {
    let delays = links.iter().flat_map(|link| {
        let changed = link
            .path
            .schedule
            .iter()
            .filter_map(|change| match change.to {
                Alteration::DelayNs(delay) => Some(delay),
                _ => None,
            });
        changed.chain([link.path.delay_ns])
    });
    delays.min().unwrap_or(0)
}

/// The paths a worker owns: those of its links, and within each of its sites an ideal one.
fn lanes(
    links: &[(usize, &Link)],
    sites: usize,
    worker: usize,
    workers: usize,
) -> Result<Vec<Lane>, Error> {
    let mut lanes = Vec::new();
    for &(index, link) in links {
        let path = Path::new(link.path.clone()).map_err(|source| Error::Path {
            link: link.name.clone(),
            source,
        })?;
        lanes.push(Lane {
            link: Some(index),
            from_site: link.from_site,
            to_site: link.to_site,
            path,
            line: DelayLine::default(),
        });
    }
    for site in (0..sites).filter(|site| site % workers == worker) {
        if lanes
            .iter()
            .any(|l| l.from_site == site && l.to_site == site)
        {
            continue;
        }
        let path = Path::new(PathConfig::default()).map_err(|source| Error::Path {
            link: format!("within site {site}"),
            source,
        })?;
        lanes.push(Lane {
            link: None,
            from_site: site,
            to_site: site,
            path,
            line: DelayLine::default(),
        });
    }
    Ok(lanes)
}

/// What can be on its way at once over these links, with a quarter to spare.
fn arena_bytes(links: &[(usize, &Link)]) -> usize {
    let total: u64 = links
        .iter()
        .map(|(_, link)| in_flight_bytes(&link.path))
        .sum();
    let bytes = total
        .saturating_add(total / 4)
        .saturating_add(ARENA_BOUNDS.0);
    usize::try_from(bytes.min(ARENA_BOUNDS.1)).unwrap_or(usize::MAX)
}

fn in_flight_bytes(path: &PathConfig) -> u64 {
    let mut rate = path.rate_bps.unwrap_or(UNLIMITED_BPS);
    let mut delay = path.delay_ns;
    let mut queue = path.queue;
    for change in &path.schedule {
        match change.to {
            Alteration::RateBps(new) => rate = rate.max(new),
            Alteration::DelayNs(new) => delay = delay.max(new),
            Alteration::Queue(new) => queue = new,
            _ => {}
        }
    }
    let hold = path.reordering.map_or(0, |reordering| reordering.hold_ns);
    let delay = delay
        .saturating_add(path.jitter.max_ns)
        .saturating_add(hold);
    let on_wire = u128::from(rate) * u128::from(delay) / 8_000_000_000;
    let queued = match queue.limit {
        QueueLimit::Packets(packets) => packets.saturating_mul(1500),
        QueueLimit::Bytes(bytes) => bytes,
    };
    u64::try_from(on_wire)
        .unwrap_or(u64::MAX)
        .saturating_add(queued)
}
