//! Time as the emulator sees it, and the discipline by which its threads sleep.

use std::io;
use std::num::NonZeroU64;

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

/// A duration for system calls.
pub(super) fn timespec(ns: u64) -> Timespec {
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

/// Waits until one of `fds` is readable, at most for `timeout_ns`. Whether one is.
pub(super) fn poll_readable(
    fds: &mut [rustix::event::PollFd<'_>],
    timeout_ns: u64,
) -> io::Result<bool> {
    match rustix::event::poll(fds, Some(&timespec(timeout_ns))) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

fn read(clock: ClockId) -> u64 {
    let now = rustix::time::clock_gettime(clock);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec).unwrap_or(0);
    seconds.saturating_mul(NS_PER_S).saturating_add(nanos)
}
