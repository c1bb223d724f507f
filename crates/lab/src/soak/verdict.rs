//! Memory, descriptors and threads of a process, and whether they grow.

use std::fmt;
use std::fs;

use serde::{Deserialize, Serialize};

/// Whose process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Side {
    /// `godwitd`, or a `godwit-service serve`.
    Server,
    /// The `godwit` that lives all the time, or an agent.
    Client,
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Side::Server => "server",
            Side::Client => "client",
        })
    }
}

/// What a process has at one moment.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Level {
    /// Resident memory, bytes.
    pub resident_bytes: u64,
    /// Open descriptors.
    pub descriptors: u64,
    /// Threads.
    pub threads: u64,
}

impl Level {
    /// Of a process; `None` once it has ended.
    pub fn of(pid: u32) -> Option<Level> {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let field = |name: &str| -> Option<u64> {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_ascii_whitespace().next()?.parse().ok()
        };
        let descriptors = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.count();
        Some(Level {
            resident_bytes: field("VmRSS:")? * 1024,
            descriptors: descriptors as u64,
            threads: field("Threads:")?,
        })
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:.1} MB resident, {} descriptors, {} threads",
            self.resident_bytes as f64 / 1e6,
            self.descriptors,
            self.threads
        )
    }
}

/// A look at a process.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct UsageSample {
    /// Since the load began, s.
    pub seconds: f64,
    /// Whose.
    pub side: Side,
    /// What it had.
    #[serde(flatten)]
    pub level: Level,
}

/// What is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Resource {
    /// Resident memory, bytes.
    ResidentBytes,
    /// Open descriptors.
    Descriptors,
    /// Threads.
    Threads,
}

impl Resource {
    /// All there are.
    pub const ALL: [Resource; 3] = [
        Resource::ResidentBytes,
        Resource::Descriptors,
        Resource::Threads,
    ];

    /// How much of it a process has.
    pub fn of(self, level: &Level) -> u64 {
        match self {
            Resource::ResidentBytes => level.resident_bytes,
            Resource::Descriptors => level.descriptors,
            Resource::Threads => level.threads,
        }
    }

    /// How much more is still flat, beside a tenth: commands come and go, and with them what they
    /// take. Chosen from what one short command takes at a time.
    fn slack(self) -> u64 {
        match self {
            Resource::ResidentBytes => 8 << 20,
            Resource::Descriptors => 32,
            Resource::Threads => 16,
        }
    }
}

/// Whether something is flat: the median of the last fifth of the time against that of the second
/// fifth.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct TrendVerdict {
    /// Whose.
    pub side: Side,
    /// Of what.
    pub quantity: Resource,
    /// Median after warming up.
    pub early: u64,
    /// Median at the end.
    pub late: u64,
    /// Whether `late` is at most a tenth more than `early`, with some slack.
    pub flat: bool,
}

/// Judges samples of a load that lasted `seconds`. Where there are none in one of the windows,
/// nothing is flat.
pub fn judge(samples: &[UsageSample], seconds: f64) -> Vec<TrendVerdict> {
    let window = |side, quantity: Resource, from: f64, to: f64| {
        let inside =
            |s: &&UsageSample| s.side == side && (from..=to).contains(&(s.seconds / seconds));
        let of_it = samples.iter().filter(inside);
        median(of_it.map(|sample| quantity.of(&sample.level)).collect())
    };
    let mut verdicts = Vec::new();
    for side in [Side::Server, Side::Client] {
        for quantity in Resource::ALL {
            let early = window(side, quantity, 0.2, 0.4);
            let late = window(side, quantity, 0.8, 1.0);
            let flat = match (early, late) {
                (Some(early), Some(late)) => late <= early + early / 10 + quantity.slack(),
                _ => false,
            };
            verdicts.push(TrendVerdict {
                side,
                quantity,
                early: early.unwrap_or(0),
                late: late.unwrap_or(0),
                flat,
            });
        }
    }
    verdicts
}

fn median(mut values: Vec<u64>) -> Option<u64> {
    values.sort_unstable();
    values.get(values.len() / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both sides with as much memory as `resident` says of each second of a hundred.
    fn samples(resident: impl Fn(u64) -> u64) -> Vec<UsageSample> {
        let sides = [Side::Server, Side::Client];
        let each = |second: u64| {
            let level = Level {
                resident_bytes: resident(second),
                descriptors: 40,
                threads: 10,
            };
            sides.map(|side| UsageSample {
                seconds: second as f64,
                side,
                level,
            })
        };
        (1..=100).flat_map(each).collect()
    }

    #[test]
    fn noise_is_flat_and_steady_growth_is_not() {
        let noisy = samples(|second| (100 << 20) + ((second % 7) << 20));
        assert!(judge(&noisy, 100.0).iter().all(|verdict| verdict.flat));
        let growing = samples(|second| (100 << 20) + (second << 20));
        let verdicts = judge(&growing, 100.0);
        let grows: Vec<_> = verdicts.iter().filter(|verdict| !verdict.flat).collect();
        assert_eq!(grows.len(), 2, "{grows:?}");
        assert!(grows.iter().all(|v| v.quantity == Resource::ResidentBytes));
    }

    #[test]
    fn warming_up_does_not_count() {
        let warm = samples(|second| second.min(20) << 24);
        assert!(judge(&warm, 100.0).iter().all(|verdict| verdict.flat));
    }

    #[test]
    fn a_process_that_ended_is_not_flat() {
        let mut early = samples(|_| 1 << 20);
        early.retain(|sample| sample.seconds < 50.0);
        assert!(judge(&early, 100.0).iter().all(|verdict| !verdict.flat));
    }

    #[test]
    fn our_own_level_is_seen() {
        let level = Level::of(std::process::id()).unwrap();
        assert!(level.resident_bytes > 0 && level.descriptors > 2 && level.threads > 0);
        assert_eq!(Level::of(0), None);
    }
}
