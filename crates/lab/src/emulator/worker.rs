//! One thread of the emulator: reads frames from the hosts of its sites, asks the paths when each
//! arrives, and delivers frames when they are due.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, TryRecvError};

use rustix::event::{PollFd, PollFlags};

use super::arena::{Arena, Slot};
use super::clock::{self, Clock, Sleeper};
use super::delay_line::{DelayLine, Parcel};
use super::frame::{FRAME_MAX, HEAD_MAX, Layout};
use super::lateness::Histogram;
use super::pace::Pace;
use super::{Mode, Port};
use crate::path::{Change, Counters, Path, Verdict};

/// Longest wait for packets, ns: how long a command may go unheard, and how much cross traffic may
/// pile up.
const IDLE_WAIT_MAX_NS: u64 = 10_000_000;
/// Longest interval over which arrivals are spread, ns. A thread that comes back after milliseconds
/// without a processor cannot know when packets came; counting them as come long ago would make
/// round trips shorter than the path.
const SPREAD_MAX_NS: u64 = 500_000;
/// Frames read from one port, and parcels delivered, before the other gets its turn.
const BATCH: usize = 64;
/// Commands to a worker.
pub(super) enum Command {
    /// Change a path at a time, ns of the emulator's clock.
    Change(usize, Change),
    /// Report, and count from zero again.
    Lap(Sender<LaneCounts>),
    /// End.
    Stop,
}

/// What a worker has done since the last lap.
#[derive(Debug, Clone, Default)]
pub(super) struct LaneCounts {
    pub(super) lateness: Histogram,
    pub(super) frames_read: u64,
    pub(super) frames_written: u64,
    pub(super) packets_read: u64,
    /// Frames without a destination: not IPv4, or to an address or a path that does not exist.
    pub(super) unroutable: u64,
    /// Frames lost since the arena was full.
    pub(super) overruns: u64,
    /// Reads and writes that failed.
    pub(super) device_errors: u64,
    pub(super) cpu_ns: u64,
    pub(super) wall_ns: u64,
    /// Number of the link, and its counters since the start.
    pub(super) paths: Vec<(usize, Counters)>,
}

/// A path and the packets on it.
pub(super) struct Lane {
    /// Number of the link; none for the ideal one within a site.
    pub(super) link: Option<usize>,
    pub(super) from_site: usize,
    pub(super) to_site: usize,
    pub(super) path: Path,
    pub(super) line: DelayLine,
}

pub(super) struct Worker {
    pub(super) clock: Clock,
    /// For short sleeps, and for waits: those end from deeper sleep, hence later.
    pub(super) sleeper: Sleeper,
    pub(super) waiter: Sleeper,
    /// The first packet of the next round arrived right at the start of its interval.
    pub(super) woken_by_packet: bool,
    pub(super) mode: Mode,
    pub(super) pace: Pace,
    /// All ports; any may be written to.
    pub(super) ports: Arc<[Port]>,
    /// Those this thread reads.
    pub(super) ingress: Vec<usize>,
    pub(super) lanes: Vec<Lane>,
    pub(super) arena: Arena,
    pub(super) commands: Receiver<Command>,
    pub(super) tally: LaneCounts,
    pub(super) lap: LapStart,
    /// Frames read in this round.
    pub(super) batch: Vec<ArrivedFrame>,
}

/// When the current lap began.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct LapStart {
    wall_ns: u64,
    cpu_ns: u64,
}

/// A frame that was read, before it is known when it arrived.
#[derive(Debug)]
pub(super) struct ArrivedFrame {
    port: usize,
    slot: Slot,
    layout: Layout,
    /// Packets read from the same port in the same round before it.
    packets_before: usize,
    /// When its first packet arrived, and the time between its packets, ns.
    first_ns: u64,
    spacing_ns: u64,
}

impl Worker {
    /// Runs until the command to stop.
    pub(super) fn run(mut self) {
        self.start_lap();
        let mut read_until = self.clock.now();
        // Rises with every frame and falls with time.
        let mut flow_ns = 0_u64;
        while self.serve_commands() {
            let before = read_until;
            let more_to_read = self.read(&mut read_until);
            flow_ns = flow_ns.saturating_sub(read_until - before);
            if !self.batch.is_empty() {
                let frames = self.batch.len() as u64;
                flow_ns = (flow_ns + frames * self.pace.sparse_ns()).min(2 * self.pace.memory_ns());
                self.admit();
            }
            for lane in &mut self.lanes {
                if lane.path.has_own_events() {
                    lane.path.advance(read_until);
                }
            }
            let more_to_deliver = self.deliver();
            if more_to_read || more_to_deliver {
                continue;
            }
            let now = self.clock.now();
            let due = self.next_release().unwrap_or(u64::MAX);
            if flow_ns >= self.pace.memory_ns() {
                let wake = self.pace.wake(now, due);
                self.sleeper.sleep_until(wake, wake == due);
            } else if self.wait(due) {
                // Nothing was there when the wait began: the first packet woke us.
                let woken = self.clock.now();
                let arrived = woken.saturating_sub(self.waiter.latency_ns());
                read_until = read_until.max(arrived);
                self.woken_by_packet = true;
            }
        }
    }

    /// False when it is time to end.
    fn serve_commands(&mut self) -> bool {
        loop {
            match self.commands.try_recv() {
                Ok(Command::Change(link, change)) => {
                    if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.link == Some(link)) {
                        // The sender has checked it.
                        let _ = lane.path.schedule(change);
                    }
                }
                Ok(Command::Lap(reply)) => {
                    self.tally.wall_ns = self.clock.now().saturating_sub(self.lap.wall_ns);
                    self.tally.cpu_ns = clock::thread_cpu_ns().saturating_sub(self.lap.cpu_ns);
                    self.tally.paths = (self.lanes.iter())
                        .filter_map(|lane| Some((lane.link?, lane.path.counters())))
                        .collect();
                    // The caller may have given up.
                    let _ = reply.send(std::mem::take(&mut self.tally));
                    self.start_lap();
                }
                Err(TryRecvError::Empty) => return true,
                Ok(Command::Stop) | Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn start_lap(&mut self) {
        self.tally.lateness.clear();
        self.lap = LapStart {
            wall_ns: self.clock.now(),
            cpu_ns: clock::thread_cpu_ns(),
        };
    }

    /// Reads what has arrived since `read_until`, and moves that on. Whether there may be more.
    fn read(&mut self, read_until: &mut u64) -> bool {
        let mut more = false;
        let offload = self.mode == Mode::Offload;
        for index in 0..self.ingress.len() {
            let port = self.ingress[index];
            let mut packets_before = 0;
            for count in 0.. {
                if count == BATCH {
                    more = true;
                    break;
                }
                let device = &self.ports[port].device;
                let Some(room) = self.arena.room(FRAME_MAX) else {
                    // Read all the same, or the host would find the device full.
                    let mut nowhere = [0; FRAME_MAX];
                    match device.read(&mut nowhere) {
                        Ok(Some(_)) => self.tally.overruns += 1,
                        Ok(None) => break,
                        Err(_) => {
                            self.tally.device_errors += 1;
                            break;
                        }
                    }
                    continue;
                };
                let len = match device.read(room) {
                    Ok(Some(len)) => len,
                    Ok(None) => break,
                    Err(_) => {
                        self.tally.device_errors += 1;
                        break;
                    }
                };
                self.tally.frames_read += 1;
                let Some(layout) = Layout::of(&room[..len], offload) else {
                    self.tally.unroutable += 1;
                    continue;
                };
                let slot = self.arena.take(len);
                self.batch.push(ArrivedFrame {
                    port,
                    slot,
                    layout,
                    packets_before,
                    first_ns: 0,
                    spacing_ns: 0,
                });
                packets_before += layout.packets();
            }
            self.tally.packets_read += packets_before as u64;
        }
        let now = self.clock.now();
        self.spread((*read_until).max(now.saturating_sub(SPREAD_MAX_NS)), now);
        *read_until = now;
        more
    }

    /// Gives what was read arrival times: the packets of each port evenly over the interval in
    /// which they came.
    fn spread(&mut self, from: u64, to: u64) {
        let span = to.saturating_sub(from);
        let woken = std::mem::take(&mut self.woken_by_packet);
        let mut ports = 0;
        let mut rest = &mut self.batch[..];
        while let Some(first) = rest.first() {
            let port = first.port;
            let end = rest.partition_point(|arrived| arrived.port <= port);
            let (of_port, others) = rest.split_at_mut(end);
            let packets = of_port
                .last()
                .map_or(1, |last| last.packets_before + last.layout.packets());
            let spacing_ns = span / packets as u64;
            let first_ns = from + if woken { 0 } else { spacing_ns / 2 };
            for arrived in of_port {
                arrived.first_ns = first_ns + spacing_ns * arrived.packets_before as u64;
                arrived.spacing_ns = spacing_ns;
            }
            rest = others;
            ports += 1;
        }
        if ports > 1 {
            self.batch.sort_by_key(|arrived| arrived.first_ns);
        }
    }

    /// Asks the paths about every packet that was read.
    fn admit(&mut self) {
        let mut batch = std::mem::take(&mut self.batch);
        for arrived in batch.drain(..) {
            if !self.admit_frame(&arrived) {
                self.tally.unroutable += 1;
            }
            // The reader's own share; parcels hold theirs.
            self.arena.release(arrived.slot);
        }
        self.batch = batch;
    }

    /// False when there is no way to the destination.
    fn admit_frame(&mut self, arrived: &ArrivedFrame) -> bool {
        let Some(port) = port_of(&self.ports, arrived.layout.destination()) else {
            return false;
        };
        let (from, to) = (self.ports[arrived.port].site, self.ports[port].site);
        let Some(lane) = (self.lanes.iter_mut()).find(|l| l.from_site == from && l.to_site == to)
        else {
            return false;
        };
        let mut run: Option<Parcel> = None;
        for index in 0..arrived.layout.packets() {
            let at_ns = arrived.first_ns + arrived.spacing_ns * index as u64;
            let bytes = u32::try_from(arrived.layout.packet_bytes(index)).unwrap_or(u32::MAX);
            let Verdict::Deliver(delivery) = lane.path.arrive(at_ns, bytes) else {
                continue;
            };
            if let Some(choice) = delivery.corrupt {
                let frame = self.arena.bytes_mut(arrived.slot);
                arrived.layout.corrupt(frame, index, choice);
            }
            let due = delivery.release_ns;
            if delivery.twice {
                self.arena.share(arrived.slot);
                lane.line.push(Parcel {
                    slot: arrived.slot,
                    packets: index..index + 1,
                    first_release_ns: due,
                    release_ns: due,
                    port,
                });
            }
            if let Some(run) = &mut run
                && run.packets.end == index
                && (run.release_ns..=run.first_release_ns + self.pace.quantum_ns()).contains(&due)
            {
                run.packets.end += 1;
                run.release_ns = due;
                continue;
            }
            let parcel = Parcel {
                slot: arrived.slot,
                packets: index..index + 1,
                first_release_ns: due,
                release_ns: due,
                port,
            };
            self.arena.share(arrived.slot);
            if let Some(done) = run.replace(parcel) {
                lane.line.push(done);
            }
        }
        if let Some(done) = run {
            lane.line.push(done);
        }
        true
    }

    /// Delivers what is due. Whether there may be more.
    fn deliver(&mut self) -> bool {
        for _ in 0..BATCH {
            let now = self.clock.now();
            let due = (self.lanes.iter_mut())
                .filter(|lane| lane.line.next_ns().is_some_and(|next| next <= now))
                .min_by_key(|lane| lane.line.next_ns())
                .and_then(|lane| lane.line.pop_due(now));
            let Some(parcel) = due else { return false };
            self.write(&parcel);
            // Packets of a run come together: on average they are late from its middle.
            let mean_due = parcel.first_release_ns.midpoint(parcel.release_ns);
            let late = now.saturating_sub(mean_due);
            self.tally
                .lateness
                .record(late, parcel.packets.len() as u64);
            self.arena.release(parcel.slot);
        }
        true
    }

    fn write(&mut self, parcel: &Parcel) {
        let device = &self.ports[parcel.port].device;
        let frame = self.arena.bytes(parcel.slot);
        let written = match Layout::of(frame, self.mode == Mode::Offload) {
            Some(layout) if parcel.packets.len() < layout.packets() => {
                let mut buffer = [0; HEAD_MAX];
                let head = layout.head_of(frame, &parcel.packets, &mut buffer);
                device.write_pieces(head, &frame[layout.payload_of(&parcel.packets)])
            }
            _ => device.write(frame),
        };
        match written {
            Ok(()) => self.tally.frames_written += 1,
            Err(_) => self.tally.device_errors += 1,
        }
    }

    fn next_release(&self) -> Option<u64> {
        (self.lanes.iter())
            .filter_map(|lane| lane.line.next_ns())
            .min()
    }

    /// Waits for packets until the next release. Whether packets came.
    fn wait(&mut self, due: u64) -> bool {
        let mut fds: Vec<PollFd<'_>> = (self.ingress.iter())
            .map(|&port| PollFd::new(&*self.ports[port].device, PollFlags::IN))
            .collect();
        self.waiter.wait_until(due, IDLE_WAIT_MAX_NS, &mut fds)
    }
}

fn port_of(ports: &[Port], address: Ipv4Addr) -> Option<usize> {
    ports.iter().position(|port| port.address == address)
}
