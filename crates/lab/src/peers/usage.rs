//! What processes cost: processor time and memory, read from `/proc`.
//!
//! A server that forks a process per session has spent most of its time in processes that are gone
//! by the time anybody asks. The kernel adds a child's times to its parent when the parent reaps
//! it, so the cost of a process group is the sum, over its living members, of their own times and
//! of those of their reaped children.
//!
//! Times come in clock ticks of 10 ms. Work the kernel does in interrupts, on loopback most of
//! TCP's receive path, lands on whichever process happens to run; [`SystemCpu`] sees all of it.

use std::fs;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;

use super::Error;

/// What a process or a process group has cost so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Wall clock time from start to end, or to now while it runs.
    pub wall: Duration,
    /// Processor time in user mode, in ticks of 10 ms.
    pub user: Duration,
    /// Processor time in the kernel, in ticks of 10 ms.
    pub system: Duration,
    /// Largest resident set of a single process, bytes. It is sampled: growth in the last moments
    /// before an exit may be missing, and what ends within 2 ms may show 0.
    pub peak_rss_bytes: u64,
}

impl Usage {
    /// Processor time in both modes.
    pub fn cpu(&self) -> Duration {
        self.user + self.system
    }

    /// What one group and others have cost together, at the same time.
    pub fn sum(one: Usage, others: impl Iterator<Item = Usage>) -> Usage {
        others.fold(one, |sum, usage| Usage {
            wall: sum.wall.max(usage.wall),
            user: sum.user + usage.user,
            system: sum.system + usage.system,
            peak_rss_bytes: sum.peak_rss_bytes.max(usage.peak_rss_bytes),
        })
    }

    /// What was spent since `earlier`. The peak stays the later one: it cannot be taken apart.
    pub fn since(&self, earlier: &Usage) -> Usage {
        Usage {
            wall: self.wall.saturating_sub(earlier.wall),
            user: self.user.saturating_sub(earlier.user),
            system: self.system.saturating_sub(earlier.system),
            peak_rss_bytes: self.peak_rss_bytes,
        }
    }
}

/// Processor time of the whole machine since it booted, interrupts included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SystemCpu {
    busy_ticks: u64,
    /// Time the hypervisor gave to others: when it grows, measured rates are not ours.
    steal_ticks: u64,
}

impl SystemCpu {
    /// Reads the counters.
    ///
    /// # Errors
    /// [`Error::Os`] when `/proc/stat` cannot be read or understood.
    pub fn now() -> Result<SystemCpu, Error> {
        fs::read_to_string("/proc/stat")
            .and_then(|text| {
                SystemCpu::parse(&text).ok_or_else(|| io::ErrorKind::InvalidData.into())
            })
            .map_err(Error::os("read /proc/stat"))
    }

    /// Processor time that was busy since `earlier`, summed over all processors.
    pub fn busy_since(&self, earlier: &SystemCpu) -> Duration {
        ticks(self.busy_ticks.saturating_sub(earlier.busy_ticks))
    }

    /// Processor time the hypervisor kept from this machine since `earlier`.
    pub fn stolen_since(&self, earlier: &SystemCpu) -> Duration {
        ticks(self.steal_ticks.saturating_sub(earlier.steal_ticks))
    }

    // proc(5): cpu user nice system idle iowait irq softirq steal guest guest_nice; guest time is
    // in user and nice already.
    fn parse(text: &str) -> Option<SystemCpu> {
        let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
        let fields: Vec<u64> = line
            .split_ascii_whitespace()
            .map_while(|field| field.parse().ok())
            .collect();
        let [user, nice, system, _idle, _iowait, irq, softirq, rest @ ..] = &fields[..] else {
            return None;
        };
        Some(SystemCpu {
            busy_ticks: user + nice + system + irq + softirq,
            steal_ticks: rest.first().copied().unwrap_or(0),
        })
    }
}

/// A thread that samples a process group's memory: [`Usage::peak_rss_bytes`] of a forking server
/// only counts sessions that are alive when it is asked.
#[derive(Debug)]
pub struct MemoryWatch {
    stop: Arc<AtomicBool>,
    peak_total: Arc<AtomicU64>,
    peak_single: Arc<AtomicU64>,
    seen: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
}

/// What a [`MemoryWatch`] saw.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MemoryPeak {
    /// Largest sum of the resident sets of all members at one moment, bytes. Shared pages count
    /// once for every process that maps them.
    pub total_bytes: u64,
    /// Largest resident set of any single member, bytes.
    pub single_bytes: u64,
}

impl MemoryWatch {
    /// Samples `group` every `interval`; each sample reads every process of the machine,
    /// about 10 us of processor time each, so 100 ms and more leave a benchmark undisturbed.
    pub(super) fn start(group: ProcessGroup, interval: Duration) -> MemoryWatch {
        let stop = Arc::new(AtomicBool::new(false));
        let peak_total = Arc::new(AtomicU64::new(0));
        let peak_single = Arc::new(AtomicU64::new(0));
        let seen = Arc::new(AtomicU64::new(0));
        let thread = std::thread::spawn({
            let (stop, seen) = (stop.clone(), seen.clone());
            let (total, single) = (peak_total.clone(), peak_single.clone());
            move || {
                while !stop.load(Ordering::Acquire) {
                    let memory: Vec<Memory> = group_members(group)
                        .filter_map(|stat| Memory::read(stat.pid))
                        .collect();
                    total.fetch_max(memory.iter().map(|m| m.rss).sum(), Ordering::AcqRel);
                    let largest = memory.iter().map(|m| m.peak).max().unwrap_or(0);
                    single.fetch_max(largest, Ordering::AcqRel);
                    seen.fetch_add(u64::from(!memory.is_empty()), Ordering::AcqRel);
                    std::thread::park_timeout(interval);
                }
            }
        });
        MemoryWatch {
            stop,
            peak_total,
            peak_single,
            seen,
            thread: Some(thread),
        }
    }

    /// Samples taken so far that saw a member.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Acquire)
    }

    /// Stops sampling.
    pub fn stop(mut self) -> MemoryPeak {
        self.end();
        MemoryPeak {
            total_bytes: self.peak_total.load(Ordering::Acquire),
            single_bytes: self.peak_single.load(Ordering::Acquire),
        }
    }

    fn end(&mut self) {
        self.stop.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // A panic in the sampler loses samples, nothing else.
            let _ = thread.join();
        }
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.end();
    }
}

/// What a process group and the children of its members hold at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Held {
    /// Proportional set sizes of its members, bytes: pages that several map count once in all.
    /// Memory of the kernel for them is not in it.
    pub memory_bytes: u64,
    /// Open descriptors of its members.
    pub descriptors: usize,
    /// How many they are.
    pub processes: usize,
}

/// What all members of `group` and their children hold now: processes of a server may lead groups
/// of their own.
pub(super) fn held_by_group(group: ProcessGroup) -> Held {
    let all: Vec<Stat> = all_processes().collect();
    let is_member = |stat: &Stat| stat.pgid == group.pgid.as_raw_pid();
    let members = all.iter().filter(|stat| is_member(stat));
    let members: Vec<i32> = members.map(|stat| stat.pid.as_raw_pid()).collect();
    let is_counted = |stat: &&Stat| {
        Some(stat.pid) != group.guard && (is_member(stat) || members.contains(&stat.parent))
    };
    let mut held = Held::default();
    for stat in all.iter().filter(is_counted) {
        let rollup = fs::read_to_string(proc_file(stat.pid, "smaps_rollup"));
        held.memory_bytes += rollup.map_or(0, |text| size(&text, "Pss:").unwrap_or(0));
        held.descriptors += fs::read_dir(proc_file(stat.pid, "fd")).map_or(0, Iterator::count);
        held.processes += 1;
    }
    held
}

/// A process group.
#[derive(Debug, Clone, Copy)]
pub(super) struct ProcessGroup {
    pub(super) pgid: Pid,
    /// The member that is ours and not counted.
    pub(super) guard: Option<Pid>,
}

/// Times and peak memory of all members of `group`, without wall clock time.
pub(super) fn of_group(group: ProcessGroup) -> Usage {
    let mut usage = Usage::default();
    for stat in group_members(group) {
        usage.user += stat.user;
        usage.system += stat.system;
        let peak = Memory::read(stat.pid).map_or(0, |memory| memory.peak);
        usage.peak_rss_bytes = usage.peak_rss_bytes.max(peak);
    }
    usage
}

/// Largest resident set that `pid` has had, bytes; `None` once it has ended.
pub(super) fn peak_rss_bytes(pid: Pid) -> Option<u64> {
    Memory::read(pid).map(|memory| memory.peak)
}

/// Members of `group`, zombies included. Processes that come and go meanwhile may be missed.
fn group_members(group: ProcessGroup) -> impl Iterator<Item = Stat> {
    all_processes()
        .filter(move |stat| Some(stat.pid) != group.guard)
        .filter(move |stat| stat.pgid == group.pgid.as_raw_pid())
}

fn all_processes() -> impl Iterator<Item = Stat> {
    fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter_map(Pid::from_raw)
        .filter_map(|pid| Stat::parse(pid, &fs::read_to_string(proc_file(pid, "stat")).ok()?))
}

/// The fields of `/proc/PID/stat` we use; times include reaped children.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    pid: Pid,
    parent: i32,
    pgid: i32,
    user: Duration,
    system: Duration,
}

impl Stat {
    // proc(5): pid (comm) state ppid pgrp session tty_nr tpgid flags minflt cminflt majflt cmajflt
    // utime stime cutime cstime ... The name may hold blanks and parentheses, so the fields are
    // counted from its end.
    fn parse(pid: Pid, text: &str) -> Option<Stat> {
        let (_, fields) = text.rsplit_once(')')?;
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let time = |index: usize| fields.get(index)?.parse().ok().map(ticks);
        Some(Stat {
            pid,
            parent: fields.get(1)?.parse().ok()?,
            pgid: fields.get(2)?.parse().ok()?,
            user: time(11)? + time(13)?,
            system: time(12)? + time(14)?,
        })
    }
}

/// Resident sets from `/proc/PID/status`, bytes.
#[derive(Debug, PartialEq, Eq)]
struct Memory {
    rss: u64,
    peak: u64,
}

impl Memory {
    fn read(pid: Pid) -> Option<Memory> {
        Memory::parse(&fs::read_to_string(proc_file(pid, "status")).ok()?)
    }

    fn parse(text: &str) -> Option<Memory> {
        Some(Memory {
            rss: size(text, "VmRSS:")?,
            peak: size(text, "VmHWM:")?,
        })
    }
}

/// The bytes in the line of `text` that begins with `name`.
fn size(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib * 1024)
}

fn proc_file(pid: Pid, name: &str) -> String {
    format!("/proc/{}/{name}", pid.as_raw_pid())
}

/// `count` clock ticks as time.
fn ticks(count: u64) -> Duration {
    let per_second = rustix::param::clock_ticks_per_second().max(1);
    Duration::from_millis(count.saturating_mul(1000) / per_second)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_survives_names_with_parentheses() {
        let text = "7 (a) b (c)) S 1 5 5 0 -1 4194560 9 9 9 9 100 200 10 20 20 0 1 0 63 0 0";
        let stat = Stat::parse(Pid::INIT, text).expect("a stat line");
        assert_eq!((stat.parent, stat.pgid), (1, 5));
        assert_eq!(stat.user, ticks(110));
        assert_eq!(stat.system, ticks(220));
    }

    #[test]
    fn memory_of_a_zombie_is_unknown() {
        assert_eq!(Memory::parse("Name:\tx\nState:\tZ (zombie)\n"), None);
        let text = "VmHWM:\t    2048 kB\nVmRSS:\t    1024 kB\n";
        let memory = Memory {
            rss: 1 << 20,
            peak: 2 << 20,
        };
        assert_eq!(Memory::parse(text), Some(memory));
    }

    #[test]
    fn system_time_counts_interrupts_but_not_idling() {
        let earlier = SystemCpu::parse("cpu  1 2 3 1000 50 4 5 6 0 0\n").expect("counters");
        let later = SystemCpu::parse("cpu  11 2 3 2000 90 4 15 7 0 0\n").expect("counters");
        assert_eq!(later.busy_since(&earlier), ticks(20));
        assert_eq!(later.stolen_since(&earlier), ticks(1));
        assert!(SystemCpu::now().is_ok());
    }
}
