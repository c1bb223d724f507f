//! The clock of the emulator, and how its threads sleep until a time.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::num::NonZeroU64;

use rustix::event::PollFd;
use rustix::thread::ClockId as SleepClock;
use rustix::time::{ClockId, Timespec};
use thread_priority::unix::{
    RealtimeThreadSchedulePolicy, ThreadSchedulePolicy, set_thread_priority_and_policy,
    thread_native_id,
};
use thread_priority::{ThreadPriority, ThreadPriorityValue};

const NS_PER_S: u64 = 1_000_000_000;

/// `SCHED_FIFO` priority: above all ordinary work, below the kernel's own threads at 50.
const PRIORITY: u8 = 10;

/// Most that a thread expects to need for waking up, ns, and so the longest it ever spins.
const LATENCY_MAX_NS: u64 = 100_000;

/// Time spent spinning is at most one part in this many, beyond a budget saved while idle, ns.
const SPIN_SHARE: u64 = 20;
const SPIN_BUDGET_NS: u64 = 1_000_000;

/// The monotonic clock, counted from an origin that all threads of an emulator share.
#[derive(Debug, Clone, Copy)]
pub(super) struct Clock {
    origin_ns: u64,
}

impl Clock {
    pub(super) fn start() -> Clock {
        Clock {
            origin_ns: read(ClockId::Monotonic),
        }
    }

    /// Nanoseconds since the origin.
    pub(super) fn now(&self) -> u64 {
        read(ClockId::Monotonic).saturating_sub(self.origin_ns)
    }

    /// Sleeps until `at_ns`, watching nothing.
    pub(super) fn sleep_until(&self, at_ns: u64) {
        let at = timespec(self.origin_ns.saturating_add(at_ns));
        // A signal ends the sleep early; the loop comes back.
        let _ = rustix::thread::clock_nanosleep_absolute(SleepClock::Monotonic, &at);
    }
}

/// Sleeps that end on time although waking up takes a while, on an idle virtual machine some 50 us:
/// how long is learnt from each sleep, the next one ends that much earlier, and what is left is
/// spent spinning. The share of time spent so is bounded: a real-time thread that spins when the
/// machine is busy takes the processor from those whose packets it waits for.
#[derive(Debug)]
pub(super) struct Sleeper {
    clock: Clock,
    /// Moving average of how late sleeps ended, ns.
    latency_ns: u64,
    /// Time that may be spent spinning, ns, and until when it was granted.
    budget_ns: u64,
    granted_until_ns: u64,
}

impl Sleeper {
    pub(super) fn new(clock: Clock) -> Sleeper {
        Sleeper {
            clock,
            latency_ns: 0,
            budget_ns: 0,
            granted_until_ns: 0,
        }
    }

    /// How long it takes to wake up, ns.
    pub(super) fn latency_ns(&self) -> u64 {
        self.latency_ns
    }

    /// Sleeps until `at_ns`, or until about then when it need not be `exact`.
    pub(super) fn sleep_until(&mut self, at_ns: u64, exact: bool) {
        let now = self.clock.now();
        let early = if exact {
            self.early(now)
        } else {
            // Whatever was learnt, at least half of it is slept.
            self.latency_ns.min(at_ns.saturating_sub(now) / 2)
        };
        let asked = at_ns.saturating_sub(early);
        if asked > now {
            self.clock.sleep_until(asked);
            self.learn(asked);
        }
        if exact {
            self.spin_until(at_ns, early);
        }
    }

    /// Waits until one of `fds` is readable, until `at_ns`, or at most for `max_ns`. Whether one
    /// is.
    pub(super) fn wait_until(&mut self, at_ns: u64, max_ns: u64, fds: &mut [PollFd<'_>]) -> bool {
        let now = self.clock.now();
        let early = self.early(now);
        let asked = at_ns.saturating_sub(early).min(now.saturating_add(max_ns));
        if asked > now {
            match rustix::event::poll(fds, Some(&timespec(asked - now))) {
                Ok(0) => self.learn(asked),
                Ok(_) => return true,
                // A signal; the caller comes back.
                Err(rustix::io::Errno::INTR) => return false,
                // Then sleeping is what is left to do; reading will say what is wrong.
                Err(_) => self.clock.sleep_until(asked),
            }
        }
        self.spin_until(at_ns, early);
        false
    }

    /// How much earlier to wake up, ns: nothing when there is no time left for spinning.
    fn early(&mut self, now: u64) -> u64 {
        let grant = now.saturating_sub(self.granted_until_ns) / SPIN_SHARE;
        self.granted_until_ns = now;
        self.budget_ns = (self.budget_ns + grant).min(SPIN_BUDGET_NS);
        if self.budget_ns < self.latency_ns {
            return 0;
        }
        self.latency_ns
    }

    fn learn(&mut self, asked_ns: u64) {
        let late = self.clock.now().saturating_sub(asked_ns);
        // Weight 1/8: a change of load is learnt within a millisecond of traffic.
        self.latency_ns = (self.latency_ns * 7 + late.min(LATENCY_MAX_NS)) / 8;
    }

    /// Spins until `at_ns` if that is no further away than `early`.
    fn spin_until(&mut self, at_ns: u64, early: u64) {
        let start = self.clock.now();
        let mut now = start;
        while now < at_ns && at_ns - now <= early {
            std::hint::spin_loop();
            now = self.clock.now();
        }
        self.budget_ns = self.budget_ns.saturating_sub(now - start);
    }
}

/// A duration for system calls.
fn timespec(ns: u64) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(ns / NS_PER_S).unwrap_or(i64::MAX),
        tv_nsec: (ns % NS_PER_S).try_into().unwrap_or(0),
    }
}

/// Processor time of the calling thread, ns.
pub(super) fn thread_cpu_ns() -> u64 {
    read(ClockId::ThreadCPUTime)
}

/// Asks for timers without slack, and for a place before all ordinary threads: without it a compute
/// load starves the emulator and the path lies. Whether the place was granted.
pub(super) fn become_realtime() -> bool {
    // A kernel that refuses leaves a slack of 50 us, which shows as lateness.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
    let Ok(priority) = ThreadPriorityValue::try_from(PRIORITY) else {
        return false;
    };
    set_thread_priority_and_policy(
        thread_native_id(),
        ThreadPriority::Crossplatform(priority),
        ThreadSchedulePolicy::Realtime(RealtimeThreadSchedulePolicy::Fifo),
    )
    .is_ok()
}

/// As long as this lives, idle processors of the machine stay awake.
///
/// An idle processor sleeps, and the longer it was idle the longer it takes to wake up: on a
/// virtual machine 20 us after half a millisecond, over 100 us after twenty. Each end of a path
/// wakes up for each packet of a quiet connection, so round trips would be that much too long, and
/// no timer of the emulator can make up for what happens in the hosts. The kernel offers this
/// switch (`Documentation/power/pm_qos_interface.rst`) to programs that may open the node; it falls
/// back when the descriptor is closed, also by a kill.
#[derive(Debug)]
pub(super) struct AwakeProcessors {
    _held: File,
}

impl AwakeProcessors {
    /// `None` where the node is missing or forbidden.
    pub(super) fn hold() -> Option<AwakeProcessors> {
        let mut node = (OpenOptions::new().write(true))
            .open("/dev/cpu_dma_latency")
            .ok()?;
        // Latency that may be tolerated, us, as a C int.
        node.write_all(&0_i32.to_ne_bytes()).ok()?;
        Some(AwakeProcessors { _held: node })
    }
}

fn read(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(nanos)
}
