//! Time as the emulator sees it, and the discipline by which its threads sleep.

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
/// how long is learnt from each sleep, and the next one ends that much earlier.
#[derive(Debug)]
pub(super) struct Sleeper {
    clock: Clock,
    /// Moving average of how late sleeps ended, ns.
    latency_ns: u64,
}

impl Sleeper {
    pub(super) fn new(clock: Clock) -> Sleeper {
        Sleeper {
            clock,
            latency_ns: 0,
        }
    }

    /// How long it takes to wake up, ns.
    pub(super) fn latency_ns(&self) -> u64 {
        self.latency_ns
    }

    /// Sleeps until `at_ns`; ends somewhat before or after unless it must be `exact`.
    pub(super) fn sleep_until(&mut self, at_ns: u64, exact: bool) {
        if let Some(asked) = self.wake_for(at_ns, u64::MAX) {
            self.clock.sleep_until(asked);
            self.learn(asked);
        }
        if exact {
            self.finish(at_ns);
        }
    }

    /// Waits until one of `fds` is readable, until `at_ns`, or at most for `max_ns`. Whether one
    /// is.
    pub(super) fn wait_until(&mut self, at_ns: u64, max_ns: u64, fds: &mut [PollFd<'_>]) -> bool {
        if let Some(asked) = self.wake_for(at_ns, max_ns) {
            let timeout = asked.saturating_sub(self.clock.now());
            match rustix::event::poll(fds, Some(&timespec(timeout))) {
                Ok(0) => self.learn(asked),
                Ok(_) => return true,
                // A signal; the caller comes back.
                Err(rustix::io::Errno::INTR) => return false,
                // Then sleeping is what is left to do; reading will say what is wrong.
                Err(_) => self.clock.sleep_until(asked),
            }
        }
        self.finish(at_ns);
        false
    }

    /// When to ask to be woken so as to be awake at `at_ns`; `None` when that has passed.
    fn wake_for(&self, at_ns: u64, max_ns: u64) -> Option<u64> {
        let now = self.clock.now();
        let at_ns = at_ns.min(now.saturating_add(max_ns));
        let asked = at_ns.saturating_sub(self.latency_ns);
        (asked > now).then_some(asked)
    }

    fn learn(&mut self, asked_ns: u64) {
        let late = self.clock.now().saturating_sub(asked_ns);
        // Weight 1/8: a change of load is learnt within a millisecond of traffic.
        self.latency_ns = (self.latency_ns * 7 + late.min(LATENCY_MAX_NS)) / 8;
    }

    /// Spins until `at_ns` if that is so near that a sleep would end after it.
    fn finish(&self, at_ns: u64) {
        loop {
            let now = self.clock.now();
            if now >= at_ns || at_ns - now > self.latency_ns {
                break;
            }
            std::hint::spin_loop();
        }
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

fn read(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(nanos)
}
