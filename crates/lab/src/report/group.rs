//! The repeats of a cell and method as one group, and the theory for it.

use godwit_tune::model::analytic::{self, AptModel};

use crate::judge;
use crate::runner::{Results, Run, RunOutcome, Simulated};
use crate::scenario::{Cell, Facet, Method, Scenario, Theory, Window};
use crate::stats::{self, Summary};

/// All repeats of one method in one cell.
#[derive(Debug, Clone)]
pub(super) struct Group<'a> {
    pub(super) method: &'a Method,
    pub(super) cell: Cell,
    pub(super) runs: Vec<&'a Run>,
}

/// All groups, in the order of the scenario: method by method, cell by cell.
pub(super) fn groups(results: &Results) -> Vec<Group<'_>> {
    let mut groups = Vec::new();
    for method in &results.scenario.method {
        for cell in results.scenario.cells(method) {
            let runs: Vec<&Run> = (results.runs.iter())
                .filter(|run| run.method == method.name && run.cell == cell)
                .collect();
            if !runs.is_empty() {
                groups.push(Group { method, cell, runs });
            }
        }
    }
    groups
}

impl Group<'_> {
    /// What figures are made of: faithful runs, or, when there is none, all that did not fail.
    pub(super) fn used(&self) -> impl Iterator<Item = &RunOutcome> {
        let all = self.only_unfaithful();
        (self.runs.iter())
            .filter(move |run| all || run.is_faithful())
            .filter_map(|run| run.result.as_ref())
    }

    /// Whether nothing was measured but what is not to be trusted.
    pub(super) fn only_unfaithful(&self) -> bool {
        let measured = || self.runs.iter().filter(|run| run.result.is_some());
        measured().next().is_some() && measured().all(|run| !run.is_faithful())
    }

    /// What a reader must know of these runs; empty when all went well.
    pub(super) fn remarks(&self) -> String {
        let mut remarks = Vec::new();
        match self.unfaithful() {
            0 => {}
            _ if self.only_unfaithful() => remarks.push("unfaithful".to_owned()),
            count => remarks.push(format!("{count} unfaithful left out")),
        }
        if self.failed() > 0 {
            remarks.push(format!("{} failed", self.failed()));
        }
        let stopped = || self.used().filter(|outcome| outcome.stopped);
        if let Some(least) = stopped().map(|outcome| outcome.files).min() {
            let count = stopped().count();
            remarks.push(format!("{count} stopped, {least} files or more were done"));
        }
        let channels = (self.used().map(|outcome| outcome.channels_seen)).min();
        if let Some(seen) = channels.filter(|seen| *seen < self.expected_channels()) {
            remarks.push(format!("{seen} channels seen"));
        }
        remarks.join(", ")
    }

    /// Connections that all runs should have shown: of small files one looks too seldom to see all.
    fn expected_channels(&self) -> usize {
        match self.cell.files {
            0 => self.cell.channels as usize,
            _ => 0,
        }
    }

    /// Goodput, Mbit/s; `None` when all runs failed.
    pub(super) fn goodput(&self) -> Option<Summary> {
        self.summary(|outcome| outcome.goodput_bps / 1e6)
    }

    /// Of any figure of a run.
    pub(super) fn summary(&self, of: impl Fn(&RunOutcome) -> f64) -> Option<Summary> {
        let values: Vec<f64> = self.used().map(of).collect();
        Summary::of(&values)
    }

    /// Of any figure of the same runs in the simulator; `None` where they were not simulated.
    pub(super) fn simulated(&self, of: impl Fn(&Simulated) -> f64) -> Option<Summary> {
        let simulated = self.used().filter_map(|outcome| outcome.simulated.as_ref());
        Summary::of(&simulated.map(of).collect::<Vec<_>>())
    }

    /// Runs whose path was not the one asked for.
    pub(super) fn unfaithful(&self) -> usize {
        self.runs.iter().filter(|run| !run.is_faithful()).count()
    }

    /// Runs that failed.
    pub(super) fn failed(&self) -> usize {
        self.runs.iter().filter(|run| run.result.is_none()).count()
    }
}

/// Payload in flight per channel in the cells with the fewest channels, bytes: median over runs.
/// That is the window that really flew, as long as so few channels do not fill the path.
pub(super) fn measured_window_bytes(results: &Results) -> Option<f64> {
    let asking = |run: &&Run| {
        let method = results.scenario.method(&run.method);
        method.is_some_and(|method| method.tcp_buffer.is_some() && !method.is_tuned())
    };
    let fewest = (results.runs.iter().filter(asking))
        .map(|run| run.cell.channels)
        .min()?;
    let flights: Vec<f64> = (results.runs.iter().filter(asking))
        .filter(|run| run.cell.channels == fewest && run.is_faithful())
        .filter_map(|run| Some(run.result.as_ref()?.sender.in_flight_bytes))
        .collect();
    stats::median(&flights)
}

/// Processors that other programs may take before a reader must know: senders that wait for a
/// processor are slower than the path.
const OTHERS_MAX: f64 = 0.3;

/// A warning when the machine was busy with something else, unless the scenario says so itself.
pub(super) fn disturbance(results: &Results) -> Option<String> {
    let others: Vec<f64> = (results.runs.iter())
        .filter_map(|run| Some(run.result.as_ref()?.other_cpus()))
        .collect();
    let median = stats::median(&others)?;
    let worst = others.iter().copied().fold(0.0, f64::max);
    let loaded = !results.scenario.load.is_empty()
        || results
            .runs
            .iter()
            .any(|run| run.cell.compute + run.cell.traffic > 0);
    (median > OTHERS_MAX && !loaded).then(|| {
        format!(
            "The machine was busy with other programs: they took {median:.1} of its {} \
             processors (median over runs, at most {worst:.1}), which slows the ends of the path.",
            results.environment.processors
        )
    })
}

/// A theory with all it needs to be evaluated anywhere.
#[derive(Debug, Clone)]
pub(super) struct Curve {
    pub(super) label: String,
    kind: Kind,
    mtu: u32,
}

#[derive(Debug, Clone, Copy)]
enum Kind {
    Apt { window_bytes: f64 },
    Response,
}

/// The curves of a scenario; those whose window was not measured are left out.
pub(super) fn curves(results: &Results) -> Vec<Curve> {
    let mtu = results.scenario.path.mtu;
    (results.scenario.theory.iter())
        .filter_map(|theory| {
            let (label, kind) = match theory {
                Theory::Response => ("theory".to_owned(), Kind::Response),
                // It has values where runs are, and nowhere else.
                Theory::Simulation => return None,
                Theory::Apt {
                    window: Window::Size(size),
                } => (
                    format!("model, W = {size}"),
                    Kind::Apt {
                        #[allow(clippy::cast_precision_loss, reason = "a window")]
                        window_bytes: size.0 as f64,
                    },
                ),
                Theory::Apt {
                    window: Window::Measured(_),
                } => {
                    let window_bytes = measured_window_bytes(results)?;
                    let label = format!("model, W = {:.0} KB measured", window_bytes / 1e3);
                    (label, Kind::Apt { window_bytes })
                }
            };
            Some(Curve { label, kind, mtu })
        })
        .collect()
}

impl Curve {
    /// Goodput in a cell with this many channels, Mbit/s.
    pub(super) fn goodput(&self, scenario: &Scenario, cell: &Cell, channels: f64) -> f64 {
        let rtt_s = cell.rtt_s();
        let capacity = scenario.path.capacity_bps(cell);
        let bps = match self.kind {
            Kind::Apt { window_bytes } => {
                let model = AptModel {
                    rate_bps: cell.rate.0 * (1.0 - cell.background.0),
                    rtt_s,
                    mtu_bytes: self.mtu,
                    window_bytes,
                };
                model.goodput_bps(channels)
            }
            Kind::Response => {
                let payload = analytic::segment_payload_bytes(self.mtu);
                let one = match cell.congestion_control.as_str() {
                    _ if cell.loss.0 <= 0.0 => capacity,
                    "reno" => analytic::mathis_bps(payload, rtt_s, cell.loss.0),
                    "cubic" => analytic::cubic_bps(payload, rtt_s, cell.loss.0),
                    // What was lost has taken its share of the link.
                    _ => capacity,
                };
                (one * channels).min(capacity * (1.0 - cell.loss.0))
            }
        };
        bps / 1e6
    }
}

/// Goodput that counts as the highest: a reader would not pay more channels for the rest.
const WITHIN: f64 = 0.98;

/// The fewest channels within 2 % of the highest median goodput, the number with the highest, and
/// that goodput; of groups that differ in channels alone.
pub(super) fn best(groups: &[&Group<'_>]) -> Option<(u32, u32, f64)> {
    let points: Vec<(u32, f64)> = (groups.iter())
        .filter_map(|group| Some((group.cell.channels, group.goodput()?.median)))
        .collect();
    let highest = (points.iter().copied()).max_by(|a, b| a.1.total_cmp(&b.1))?;
    let fewest = judge::smallest_within(&points, WITHIN)?;
    Some((fewest, highest.0, highest.1))
}

/// Coordinates that tell groups apart, without channels and method.
pub(super) fn varying(groups: &[Group<'_>]) -> Vec<Facet> {
    [
        Facet::Rate,
        Facet::Delay,
        Facet::Loss,
        Facet::Background,
        Facet::CongestionControl,
        Facet::Compute,
        Facet::Traffic,
        Facet::Files,
        Facet::Nodes,
    ]
    .into_iter()
    .filter(|facet| {
        let of = |group: &Group<'_>| group.cell.facet(*facet, group.method);
        (groups.first()).is_some_and(|first| groups.iter().any(|group| of(group) != of(first)))
    })
    .collect()
}
