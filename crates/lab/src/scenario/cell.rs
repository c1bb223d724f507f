//! One combination of the values that a scenario varies.

use serde::{Deserialize, Serialize};

use super::format::{At, Facet, Method, Scenario, X};
use super::quantity::{Rate, Share, Size, Time};

/// Coordinates of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Bottleneck.
    pub rate: Rate,
    /// One-way delay.
    pub delay: Time,
    /// Random loss.
    pub loss: Share,
    /// Background traffic, share of `rate`.
    pub background: Share,
    /// Of both hosts.
    pub congestion_control: String,
    /// Parallel data channels; 0 where the program chooses them.
    pub channels: u32,
    /// Computing processes beside the transfer.
    #[serde(default)]
    pub compute: u32,
    /// Channels of a second transfer beside it.
    #[serde(default)]
    pub traffic: u32,
    /// Files that the payload comes in; 0 where it is no set of files.
    #[serde(default)]
    pub files: u32,
    /// Size of each of them, bytes; 0 likewise.
    #[serde(default)]
    pub file_bytes: u64,
    /// Data nodes of each server; 0 where the server moves data itself.
    #[serde(default)]
    pub nodes: u32,
}

impl Cell {
    /// Round-trip time without queueing, s.
    pub fn rtt_s(&self) -> f64 {
        2.0 * self.delay.0
    }

    /// Whether it has all coordinates that are given.
    pub fn is_at(&self, at: &At) -> bool {
        fn agrees<T: PartialEq>(wanted: &Option<T>, value: &T) -> bool {
            wanted.as_ref().is_none_or(|wanted| wanted == value)
        }
        agrees(&at.channels, &self.channels)
            && agrees(&at.rate, &self.rate)
            && agrees(&at.delay, &self.delay)
            && agrees(&at.loss, &self.loss)
            && agrees(&at.background, &self.background)
            && agrees(&at.congestion_control, &self.congestion_control)
            && agrees(&at.compute, &self.compute)
            && agrees(&at.traffic, &self.traffic)
            && agrees(&at.file_size, &Size(self.file_bytes))
            && agrees(&at.nodes, &self.nodes)
    }

    /// Whether everything is the same but the channels.
    pub fn is_beside(&self, other: &Cell) -> bool {
        let alike = Cell {
            channels: self.channels,
            ..other.clone()
        };
        *self == alike
    }

    /// The coordinate on a horizontal axis, in the unit of its label; `None` for methods, and for
    /// channels where the program chooses them.
    pub fn x(&self, axis: X) -> Option<f64> {
        match axis {
            X::Channels => (self.channels > 0).then_some(f64::from(self.channels)),
            X::Rate => Some(self.rate.0 / 1e6),
            X::Delay => Some(self.delay.0 * 1e3),
            X::Loss => Some(self.loss.0 * 100.0),
            X::Background => Some(self.background.0 * 100.0),
            #[allow(clippy::cast_precision_loss, reason = "sizes have fewer digits")]
            X::FileSize => (self.files > 0).then(|| self.file_bytes as f64 / 1e3),
            X::Nodes => Some(f64::from(self.nodes)),
            X::Method => None,
        }
    }

    /// The coordinate in words: `10 ms one way`.
    pub fn facet(&self, facet: Facet, method: &Method) -> String {
        match facet {
            Facet::Rate => self.rate.to_string(),
            Facet::Delay => format!("RTT {}", Time(self.rtt_s())),
            Facet::Loss => format!("loss {}", self.loss),
            Facet::Background => format!("background {}", self.background),
            Facet::CongestionControl => self.congestion_control.clone(),
            Facet::Channels if self.channels == 0 => method.label.clone(),
            Facet::Channels => format!("N = {}", self.channels),
            Facet::Compute => format!("ext.cmp = {}", self.compute),
            Facet::Traffic => format!("ext.tfr = {}", self.traffic),
            Facet::Files => format!("{} x {}", self.files, Size(self.file_bytes)),
            Facet::Nodes => format!("nodes {}", self.nodes),
            Facet::Method => method.label.clone(),
        }
    }
}

/// The congestion control of hosts without a choice of their own.
pub const DEFAULT_CONGESTION_CONTROL: &str = "cubic";

impl Scenario {
    /// What `method` runs, in the order of the file: all combinations of the axes.
    pub fn cells(&self, method: &Method) -> Vec<Cell> {
        fn or<T: Clone>(axis: &[T], single: T) -> Vec<T> {
            if axis.is_empty() {
                vec![single]
            } else {
                axis.to_vec()
            }
        }
        let sweep = &self.sweep;
        let control = (self.hosts.congestion_control.clone())
            .unwrap_or_else(|| DEFAULT_CONGESTION_CONTROL.to_owned());
        let channels = match method.channels {
            _ if method.is_tuned() => vec![0],
            Some(channels) => vec![channels],
            None => or(&sweep.channels, 1),
        };
        let mut loads = Vec::new();
        for compute in or(&sweep.compute, 0) {
            loads.extend((or(&sweep.traffic, 0).into_iter()).map(|traffic| (compute, traffic)));
        }
        let files = (self.work.files).map_or_else(
            || vec![(0, 0)],
            |Size(total)| {
                let split = |&count: &u32| (count, (total / u64::from(count.max(1))).max(1));
                sweep.files.iter().map(split).collect()
            },
        );
        let nodes = or(&sweep.nodes, 0);
        let sizes: Vec<_> = (files.iter())
            .flat_map(|&files| nodes.iter().map(move |&nodes| (files, nodes)))
            .collect();
        let mut cells = Vec::new();
        for rate in or(&sweep.rate, self.path.rate) {
            for delay in or(&sweep.delay, self.path.delay) {
                for loss in or(&sweep.loss, self.path.loss) {
                    for background in or(&sweep.background, self.path.background) {
                        for congestion_control in or(&sweep.congestion_control, control.clone()) {
                            for &(compute, traffic) in &loads {
                                for &((files, file_bytes), nodes) in &sizes {
                                    cells.extend(channels.iter().map(|&channels| Cell {
                                        rate,
                                        delay,
                                        loss,
                                        background,
                                        congestion_control: congestion_control.clone(),
                                        channels,
                                        compute,
                                        traffic,
                                        files,
                                        file_bytes,
                                        nodes,
                                    }));
                                }
                            }
                        }
                    }
                }
            }
        }
        cells
    }

    /// Facets that have more than one value in this scenario and are neither on the horizontal
    /// axis nor panels: what tells series apart.
    pub fn series_facets(&self) -> Vec<Facet> {
        let sweep = &self.sweep;
        let varying = [
            (Facet::Rate, X::Rate, sweep.rate.len()),
            (Facet::Delay, X::Delay, sweep.delay.len()),
            (Facet::Loss, X::Loss, sweep.loss.len()),
            (Facet::Background, X::Background, sweep.background.len()),
        ];
        let mut facets: Vec<Facet> = (varying.into_iter())
            .filter(|(_, x, count)| *count > 1 && *x != self.figure.x)
            .map(|(facet, _, _)| facet)
            .collect();
        if sweep.congestion_control.len() > 1 {
            facets.push(Facet::CongestionControl);
        }
        for (facet, count) in [
            (Facet::Compute, sweep.compute.len()),
            (Facet::Traffic, sweep.traffic.len()),
        ] {
            facets.extend((count > 1).then_some(facet));
        }
        if sweep.files.len() > 1 && self.figure.x != X::FileSize {
            facets.push(Facet::Files);
        }
        if sweep.nodes.len() > 1 && self.figure.x != X::Nodes {
            facets.push(Facet::Nodes);
        }
        if self.method.len() > 1 && self.figure.x != X::Method {
            facets.push(Facet::Method);
        }
        if sweep.channels.len() > 1 && self.figure.x != X::Channels {
            facets.push(Facet::Channels);
        }
        facets.retain(|facet| !self.figure.panels.contains(facet));
        facets
    }
}
