//! The emulator's report on itself: whether the emulated path was the configured one.

use serde::Serialize;

use super::lateness::Lateness;
use super::worker::LaneCounts;
use crate::path::Counters;

/// Mean lateness above which a run is not to be trusted, us. Within its limits the emulator is some
/// 20 us late on average, beyond them ten milliseconds and more: anything between separates the
/// two.
pub const MEAN_LATENESS_MAX_US: f64 = 200.0;

/// 99th percentile of lateness above which a run is not to be trusted, us. A millisecond is a
/// twentieth of the shortest round trips worth emulating, less than TCP's own estimate wavers by;
/// one packet in a hundred may be worse, since a virtual machine loses its processor now and then.
pub const P99_LATENESS_MAX_US: f64 = 1000.0;

/// What an emulator did during a lap.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Report {
    /// Length of the lap, s.
    pub seconds: f64,
    /// How late packets came out.
    pub lateness: Lateness,
    /// Share of one processor that each thread took, 0..=1.
    pub cpu_shares: Vec<f64>,
    /// Whether all threads run at real-time priority.
    pub realtime: bool,
    /// Whether the memory for packets is locked.
    pub memory_locked: bool,
    /// Whether idle processors were kept from sleeping. If not, round trips are longer by what
    /// waking up takes.
    pub processors_awake: bool,
    /// Processor time that the hypervisor kept from this machine, all processors together, s. When
    /// packets are late by many milliseconds, look here first.
    pub stolen_seconds: f64,
    /// Packets that hosts sent.
    pub packets: u64,
    /// Frames in which they came; fewer than packets in offload mode.
    pub frames_read: u64,
    /// Frames in which packets were delivered.
    pub frames_written: u64,
    /// Frames that had nowhere to go.
    pub unroutable: u64,
    /// Frames lost since more was on its way than fits into memory.
    pub overruns: u64,
    /// Reads and writes the kernel refused.
    pub device_errors: u64,
    /// Each link, in the order they were given.
    pub links: Vec<LinkReport>,
    /// Why the run is not to be trusted; empty when it is.
    pub unfaithful: Vec<String>,
}

/// What happened on one link during a lap; queue peaks are since the start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LinkReport {
    /// Its name: `left>right`.
    pub name: String,
    /// What its path counted.
    #[serde(flatten)]
    pub counters: Counters,
}

impl Report {
    /// Whether the path was the one asked for.
    pub fn is_faithful(&self) -> bool {
        self.unfaithful.is_empty()
    }

    /// The link of this name.
    pub fn link(&self, name: &str) -> Option<&Counters> {
        let link = self.links.iter().find(|link| link.name == name)?;
        Some(&link.counters)
    }

    #[allow(clippy::cast_precision_loss, reason = "reported to a few digits")]
    pub(super) fn of(
        tallies: &[LaneCounts],
        names: &[String],
        realtime: bool,
        locked: bool,
    ) -> Report {
        let mut total = LaneCounts::default();
        let mut counters = vec![Counters::default(); names.len()];
        let mut cpu_shares = Vec::new();
        for tally in tallies {
            total.lateness.merge(&tally.lateness);
            total.packets_read += tally.packets_read;
            total.frames_read += tally.frames_read;
            total.frames_written += tally.frames_written;
            total.unroutable += tally.unroutable;
            total.overruns += tally.overruns;
            total.device_errors += tally.device_errors;
            total.wall_ns = total.wall_ns.max(tally.wall_ns);
            cpu_shares.push(tally.cpu_ns as f64 / tally.wall_ns.max(1) as f64);
            for &(link, of_link) in &tally.paths {
                counters[link] = of_link;
            }
        }
        let lateness = total.lateness.summary();
        Report {
            seconds: total.wall_ns as f64 / 1e9,
            lateness,
            cpu_shares,
            realtime,
            memory_locked: locked,
            processors_awake: false,
            stolen_seconds: 0.0,
            packets: total.packets_read,
            frames_read: total.frames_read,
            frames_written: total.frames_written,
            unroutable: total.unroutable,
            overruns: total.overruns,
            device_errors: total.device_errors,
            links: (names.iter().cloned().zip(counters))
                .map(|(name, counters)| LinkReport { name, counters })
                .collect(),
            unfaithful: reasons(&lateness, total.overruns, total.device_errors),
        }
    }
}

fn reasons(lateness: &Lateness, overruns: u64, device_errors: u64) -> Vec<String> {
    let mut reasons = Vec::new();
    if lateness.mean_us > MEAN_LATENESS_MAX_US {
        reasons.push(format!(
            "packets were {:.0} us late on average, more than {MEAN_LATENESS_MAX_US:.0}",
            lateness.mean_us
        ));
    }
    if lateness.p99_us > P99_LATENESS_MAX_US {
        reasons.push(format!(
            "one packet in a hundred was {:.0} us late or more, more than {P99_LATENESS_MAX_US:.0}",
            lateness.p99_us
        ));
    }
    if overruns > 0 {
        reasons.push(format!("{overruns} frames found no room in the emulator"));
    }
    if device_errors > 0 {
        reasons.push(format!("{device_errors} frames were refused by the kernel"));
    }
    reasons
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_packets_make_a_run_unfaithful() {
        let report = |ns: u64, packets: u64| {
            let mut tally = LaneCounts::default();
            tally.lateness.record(20_000, 1000);
            tally.lateness.record(ns, packets);
            Report::of(&[tally], &[], true, true)
        };
        assert!(report(30_000, 100).is_faithful());
        assert!(report(5_000_000, 5).is_faithful(), "rare outliers");
        assert!(!report(5_000_000, 50).is_faithful());
        assert!(!report(500_000, 2000).is_faithful());
    }
}
