//! One combination of everything that varies, and the network it runs on.

use serde::{Deserialize, Serialize};

use super::format::{At, Facet, Load, Method, PathSpec, Scenario, X};
use super::quantity::{QueueLength, Rate, Share, Size, Time};
use crate::analytic;
use crate::emulator::EmulatorConfig;
use crate::network::{NetworkConfig, Paths};
use crate::path::{CrossTraffic, Discipline, Loss, PathConfig, Queue, QueueLimit, RedConfig};

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
    /// Parallel data channels.
    pub channels: u32,
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
    }

    /// The coordinate on a horizontal axis, in the unit of its label; `None` for methods.
    pub fn x(&self, axis: X) -> Option<f64> {
        match axis {
            X::Channels => Some(f64::from(self.channels)),
            X::Rate => Some(self.rate.0 / 1e6),
            X::Delay => Some(self.delay.0 * 1e3),
            X::Loss => Some(self.loss.0 * 100.0),
            X::Background => Some(self.background.0 * 100.0),
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
            Facet::Channels => format!("N = {}", self.channels),
            Facet::Method => method.label.clone(),
        }
    }
}

/// The congestion control of hosts that nobody chose one for.
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
            Some(channels) => vec![channels],
            None => or(&sweep.channels, 1),
        };
        let mut cells = Vec::new();
        for rate in or(&sweep.rate, self.path.rate) {
            for delay in or(&sweep.delay, self.path.delay) {
                for loss in or(&sweep.loss, self.path.loss) {
                    for background in or(&sweep.background, self.path.background) {
                        for congestion_control in or(&sweep.congestion_control, control.clone()) {
                            cells.extend(channels.iter().map(|&channels| Cell {
                                rate,
                                delay,
                                loss,
                                background,
                                congestion_control: congestion_control.clone(),
                                channels,
                            }));
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
        if self.method.len() > 1 && self.figure.x != X::Method {
            facets.push(Facet::Method);
        }
        if sweep.channels.len() > 1 && self.figure.x != X::Channels {
            facets.push(Facet::Channels);
        }
        facets.retain(|facet| !self.figure.panels.contains(facet));
        facets
    }

    /// The network of a cell: `left0` serves, `right0` fetches. Where there are other TCP
    /// connections, they run from `left1` to `right1` through the same queue.
    pub fn network(&self, cell: &Cell, method: &Method, seed: u64) -> NetworkConfig {
        let (mut flows, mut load_buffer) = (0, None);
        for load in &self.load {
            if let Load::Tcp {
                flows: more,
                buffer_max,
                ..
            } = load
            {
                flows += more;
                load_buffer = buffer_max.or(load_buffer);
            }
        }
        let each_side = if flows > 0 { 2 } else { 1 };
        let forward = self.path.forward(cell, seed);
        let back = PathConfig {
            loss: Loss::None,
            cross_traffic: Vec::new(),
            seed: seed.wrapping_add(1 << 32),
            ..forward.clone()
        };
        let paths = Paths { forward, back };
        let mut config = NetworkConfig::sides(each_side, each_side, paths).each_host(|host| {
            let host = host.congestion_control(&cell.congestion_control);
            let ours = host.name.ends_with('0');
            let max = if ours {
                self.hosts.buffer_max
            } else {
                load_buffer
            };
            let Some(Size(max)) = max else {
                return host;
            };
            let mut host = host.tuned_buffers(max);
            if let (true, Some(Size(default))) = (ours, self.hosts.buffer_default) {
                let buffers = Some([4096, default.min(max), max]);
                (host.tcp_rmem, host.tcp_wmem) = (buffers, buffers);
            }
            host
        });
        config.mtu = self.path.mtu;
        config.emulator = EmulatorConfig {
            channels: cell.channels + flows,
            ..EmulatorConfig::default()
        };
        config.socket_buffer_max = method.tcp_buffer.map(|size| size.0);
        config
    }
}

impl PathSpec {
    /// The way of the data.
    #[allow(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "checked to be finite, not negative and far below 2^53"
    )]
    pub(super) fn forward(&self, cell: &Cell, seed: u64) -> PathConfig {
        let bdp_bytes = cell.rate.0 * cell.rtt_s() / 8.0;
        let limit = match self.queue {
            QueueLength::Packets(packets) => QueueLimit::Packets(packets),
            QueueLength::Bytes(bytes) => QueueLimit::Bytes(bytes),
            QueueLength::Bdp(factor) => QueueLimit::Bytes((factor * bdp_bytes).ceil() as u64),
        };
        let discipline = self.red.map_or(Discipline::DropTail, |red| {
            Discipline::Red(RedConfig {
                min: red.min,
                max: red.max,
                max_p: red.max_p,
                weight: red.w_q,
                mean_packet_bytes: self.mtu,
                wait: true,
            })
        });
        let background = (cell.rate.0 * cell.background.0).round() as u64;
        PathConfig {
            queue: Queue { limit, discipline },
            loss: if cell.loss.0 > 0.0 {
                Loss::Random { ratio: cell.loss.0 }
            } else {
                Loss::None
            },
            cross_traffic: if background > 0 {
                vec![CrossTraffic::constant(background)]
            } else {
                Vec::new()
            },
            seed,
            ..PathConfig::new(
                cell.rate.0.round() as u64,
                (cell.delay.0 * 1e9).round() as u64,
            )
        }
    }

    /// What the cell's link leaves for payload, bit/s.
    pub fn capacity_bps(&self, cell: &Cell) -> f64 {
        analytic::capacity_bps(cell.rate.0 * (1.0 - cell.background.0), self.mtu)
    }
}
