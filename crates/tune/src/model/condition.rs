//! A path, its ends and their load.

use super::{Family, analytic};
use crate::{Bottleneck, Setting};

/// Payload of a segment, bytes, for the model's losses.
const MSS: f64 = 1448.0;
/// Loss at which retransmission timeouts halve what a full path carries. Chosen so that 4 segments
/// a round trip and channel, below which fast retransmission fails, cost about a third.
const LOSS_OF_TIMEOUTS: f64 = 0.2;

/// Everything that the goodput of a transfer depends on, apart from its setting.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// What kind of condition this is.
    pub family: Family,
    /// What the bottleneck carries of payload, bit/s.
    pub capacity_bps: f64,
    /// Round-trip time without queues, s.
    pub rtt_s: f64,
    /// Window of a channel, bytes.
    pub window_bytes: f64,
    /// Probability that a segment is lost although the path is not full, `0..1`.
    pub loss: f64,
    /// Share of the capacity that one channel alone leaves unused when it fills the path, `0..1`:
    /// shallow queues do that.
    pub shallow: f64,
    /// Processors of our end; `None`: they are no limit.
    pub cpu: Option<Cpu>,
    /// What storage reads or writes, bit/s; `None`: it is no limit.
    pub storage_bps: Option<f64>,
    /// Relative deviation of goodput, lognormal, with a memory of about half a second.
    pub noise: f64,
    /// Whether observations carry more than goodput.
    pub evidence: bool,
    /// The load, from when on; the first holds from the beginning.
    pub loads: Vec<Load>,
    /// Length of the transfer, s.
    pub seconds: f64,
}

/// How processors serve movers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cpu {
    /// Processors.
    pub cores: f64,
    /// What a mover moves that has a processor for itself, bit/s.
    pub core_bps: f64,
    /// The kernel shares time between groups (sessions), not threads: more movers get no larger
    /// share.
    pub by_group: bool,
}

/// What others do at the same time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Load {
    /// Since when, s from the beginning.
    pub from_s: f64,
    /// Share of the capacity taken by traffic that does not yield, `0..1`.
    pub constant: f64,
    /// Greedy TCP connections of others on the bottleneck.
    pub flows: u32,
    /// Busy processes on our processors.
    pub busy: u32,
}

/// What a setting gives once it has settled.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Steady {
    /// Payload, bit/s.
    pub goodput_bps: f64,
    /// Segments sent again over segments sent.
    pub loss_ratio: f64,
    /// What binds.
    pub limit: Bottleneck,
}

impl Condition {
    /// An undisturbed path without noise: the start for conditions made by hand.
    pub fn path(capacity_bps: f64, rtt_s: f64, window_bytes: f64) -> Self {
        Self {
            family: Family::Window,
            capacity_bps,
            rtt_s,
            window_bytes,
            loss: 0.0,
            shallow: 0.0,
            cpu: None,
            storage_bps: None,
            noise: 0.0,
            evidence: false,
            loads: vec![Load::default()],
            seconds: 60.0,
        }
    }

    /// The load at `t_s`.
    pub fn load(&self, t_s: f64) -> Load {
        self.loads
            .iter()
            .rev()
            .find(|load| load.from_s <= t_s)
            .copied()
            .unwrap_or_default()
    }

    /// What `setting` gives under `load` while copies of the transfer have `others` channels on the
    /// same path.
    pub fn steady(&self, setting: Setting, load: &Load, others: u32) -> Steady {
        let n = f64::from(setting.channels());
        let path = self.of_path(n, load, f64::from(others));
        let mut least = path;
        if let Some(cpu) = &self.cpu {
            let bps = cpu.goodput_bps(setting, load.busy);
            if bps < least.goodput_bps {
                least = Steady {
                    goodput_bps: bps,
                    limit: Bottleneck::Cpu,
                    ..least
                };
            }
        }
        if let Some(bps) = self.storage_bps
            && bps < least.goodput_bps
        {
            least = Steady {
                goodput_bps: bps,
                limit: Bottleneck::SourceStorage,
                ..least
            };
        }
        least
    }

    fn of_path(&self, n: f64, load: &Load, others: f64) -> Steady {
        let windowed = analytic::window_bps(self.window_bytes, self.rtt_s);
        let lossy = if self.loss > 0.0 {
            analytic::mathis_bps(MSS, self.rtt_s, self.loss)
        } else {
            f64::INFINITY
        };
        let each = windowed.min(lossy);
        let left = self.capacity_bps * (1.0 - load.constant);
        let flows = f64::from(load.flows);
        let free = Steady {
            goodput_bps: n * each * (1.0 - self.loss),
            loss_ratio: self.loss,
            limit: if lossy < windowed {
                Bottleneck::NetworkLoss
            } else {
                Bottleneck::ReceiveWindow
            },
        };
        // Without greedy flows all of us may fit; with them the path is full at all times.
        let share = left * n / (n + others + flows);
        if free.goodput_bps <= share || (flows == 0.0 && (n + others) * each <= left) {
            return free;
        }
        // Mathis turned round: the loss that makes all windows together fit the path.
        let segments = left * self.rtt_s / (8.0 * MSS);
        let congestion = (1.5 * ((n + others + flows) / segments).powi(2)).min(0.5);
        let unused = self.shallow / (n + others + flows);
        let timeouts = 1.0 / (1.0 + (congestion / LOSS_OF_TIMEOUTS).powi(2));
        Steady {
            goodput_bps: share * (1.0 - unused) * (1.0 - congestion) * timeouts,
            loss_ratio: self.loss.max(congestion),
            limit: Bottleneck::PathCapacity,
        }
    }
}

impl Cpu {
    /// A mover has at most one processor; what runs at the same time shares them evenly, by thread
    /// or by group. Each channel costs a little.
    fn goodput_bps(&self, setting: Setting, busy: u32) -> f64 {
        /// Share of a mover's time that a channel more takes.
        const CHANNEL_COST: f64 = 0.001;
        let movers = f64::from(setting.concurrency);
        let busy = f64::from(busy);
        let served = if self.by_group {
            if busy > 0.0 {
                (self.cores / 2.0).max(self.cores - busy)
            } else {
                self.cores
            }
        } else {
            self.cores * movers / (movers + busy).max(self.cores)
        };
        let cost = (1.0 - CHANNEL_COST * f64::from(setting.channels())).max(0.1);
        movers.min(served) * self.core_bps * cost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(condition: &Condition, nc: u32, np: u32) -> Steady {
        condition.steady(Setting::new(nc, np), &condition.load(0.0), 0)
    }

    #[test]
    fn windows_add_up_until_the_path_is_full() {
        let path = Condition::path(965e6, 0.02, 86_000.0);
        assert_eq!(at(&path, 1, 1).limit, Bottleneck::ReceiveWindow);
        assert!((at(&path, 1, 8).goodput_bps - 8.0 * 34.4e6).abs() < 1e3);
        let full = at(&path, 1, 29);
        assert_eq!(full.limit, Bottleneck::PathCapacity);
        assert!(full.goodput_bps > 0.99 * 965e6 && full.goodput_bps <= 965e6);
    }

    #[test]
    fn copies_and_flows_share_by_channel() {
        let mut path = Condition::path(1e9, 0.02, 1e7);
        let half = path
            .steady(Setting::new(1, 8), &Load::default(), 8)
            .goodput_bps;
        assert!((half - 0.5e9).abs() < 0.01e9, "{half}");
        path.loads[0].flows = 24;
        let quarter = at(&path, 1, 8).goodput_bps;
        assert!((quarter - 0.25e9).abs() < 0.01e9, "{quarter}");
    }

    #[test]
    fn threads_buy_processors_where_the_kernel_shares_by_thread() {
        let mut loaded = Condition::path(1e11, 0.001, 1e8);
        let mut cpu = Cpu {
            cores: 2.0,
            core_bps: 1e9,
            by_group: false,
        };
        loaded.loads[0].busy = 16;
        loaded.cpu = Some(cpu);
        let one = at(&loaded, 1, 8).goodput_bps;
        let many = at(&loaded, 16, 1).goodput_bps;
        assert!(many > 7.0 * one, "{one} {many}");
        cpu.by_group = true;
        loaded.cpu = Some(cpu);
        assert!(at(&loaded, 16, 1).goodput_bps <= at(&loaded, 1, 1).goodput_bps);
    }

    #[test]
    fn too_many_channels_for_the_path_cost_goodput() {
        let path = Condition::path(100e6, 0.01, 1e6);
        assert!(at(&path, 1, 128).goodput_bps < 0.8 * at(&path, 1, 8).goodput_bps);
    }

    #[test]
    fn load_begins_when_it_says() {
        let mut path = Condition::path(1e9, 0.02, 1e7);
        path.loads.push(Load {
            from_s: 30.0,
            constant: 0.5,
            ..Load::default()
        });
        assert_eq!(path.load(29.9).constant, 0.0);
        assert_eq!(path.load(30.0).constant, 0.5);
    }
}
