//! Loads beside the transfers of a run: other connections and busy processes, each with its start
//! and end.

use super::RunError;
use crate::load::{ComputeLoad, Grouping, Sharing, TrafficLoad};
use crate::network::Network;
use crate::scenario::{Cell, Load, Scenario};

/// All loads of a run.
pub(super) struct Loads {
    all: Vec<(Load, Option<RunningLoad>)>,
    /// Hosts that other connections go from and to.
    hosts: [String; 2],
    sharing: Option<Sharing>,
}

/// A load; dropping it ends it.
#[allow(dead_code, reason = "held until it is to end")]
enum RunningLoad {
    Tcp(TrafficLoad),
    Compute(ComputeLoad),
}

impl Loads {
    /// What the scenario has everywhere, and what this cell has.
    pub(super) fn new(scenario: &Scenario, cell: &Cell, hosts: [String; 2]) -> Loads {
        let traffic = (cell.traffic > 0).then_some(Load::Tcp {
            flows: cell.traffic,
            buffer_max: None,
            from: None,
            until: None,
        });
        let compute = (cell.compute > 0).then_some(Load::Compute {
            processes: cell.compute,
            grouping: Grouping::default(),
            from: None,
            until: None,
        });
        let all = scenario.load.iter().cloned().chain(traffic).chain(compute);
        Loads {
            all: all.map(|load| (load, None)).collect(),
            hosts,
            sharing: None,
        }
    }

    /// Starts and ends what is due; `seconds` since the first data, `None` before the transfer.
    /// Whether a load runs.
    pub(super) fn at(&mut self, network: &Network, seconds: Option<f64>) -> Result<bool, RunError> {
        for (load, running) in &mut self.all {
            let (from, until) = load.times();
            let started = match (from, seconds) {
                (None, _) => true,
                (Some(from), Some(now)) => now >= from.0,
                (Some(_), None) => false,
            };
            let ended = until.is_some_and(|until| seconds.is_some_and(|now| now >= until.0));
            let due = started && !ended;
            if !due {
                *running = None;
                continue;
            }
            if running.is_some() {
                continue;
            }
            *running = Some(match *load {
                Load::Tcp { flows, .. } => {
                    let [from, to] = &self.hosts;
                    let (from, to) = (network.host(from)?, network.host(to)?);
                    RunningLoad::Tcp(TrafficLoad::start(from, to, flows)?)
                }
                Load::Compute {
                    processes,
                    grouping,
                    ..
                } => {
                    let load = ComputeLoad::start(processes as usize, grouping)?;
                    self.sharing = Some(load.sharing()?);
                    RunningLoad::Compute(load)
                }
            });
        }
        Ok(self.all.iter().any(|(_, running)| running.is_some()))
    }

    /// How the last busy processes shared processors with the transfers.
    pub(super) fn sharing(&self) -> Option<Sharing> {
        self.sharing
    }
}
