//! The network of a cell, and how it changes during a run.

use godwit_tune::model::analytic;

use super::cell::Cell;
use super::format::{Direction, Load, Method, PathSpec, Scenario};
use super::quantity::{QueueLength, Rate, Share, Size};
use crate::emulator::EmulatorConfig;
use crate::host::HostConfig;
use crate::network::{Join, Member, NetworkConfig, Paths};
use crate::path::{
    Alteration, CrossTraffic, Discipline, Loss, PathConfig, Queue, QueueLimit, RedConfig,
};

/// Sites that data goes between, by the names of [`NetworkConfig::sides`].
pub(crate) const DATA_ENDS: [&str; 2] = ["left", "right"];

/// The way of the data.
pub(super) const DATA_LINK: &str = "left>right";

/// The way back.
const BACK_LINK: &str = "right>left";

/// The host that tells both ends of a third-party transfer what to do.
pub const CLIENT_HOST: &str = "client";

impl Scenario {
    /// The network of a cell. Data of transfer i goes from `left`i to `right`i, that of other TCP
    /// connections from the next such host to its counterpart, all through one queue. Without a
    /// path each `left`i has both ends.
    pub fn network(&self, cell: &Cell, method: &Method, seed: u64) -> NetworkConfig {
        let (flows, load_buffer) = self.flows(cell);
        let transfers = method.transfers as usize;
        let each_side = transfers + usize::from(flows > 0);
        let forward = self.path.forward(cell, seed);
        let back = PathConfig {
            loss: Loss::None,
            cross_traffic: Vec::new(),
            seed: seed.wrapping_add(1 << 32),
            ..forward.clone()
        };
        let control = self.hosts.client_delay.map_or_else(
            || back.clone(),
            |delay| PathConfig {
                delay_ns: nanoseconds(delay.0),
                ..back.clone()
            },
        );
        let paths = Paths { forward, back };
        let mut config = if cell.nodes > 0 {
            self.striped_network(cell, method, seed)
        } else if self.path.is_emulated() {
            NetworkConfig::sides(each_side, each_side, paths)
        } else {
            let mut config = NetworkConfig::sides(each_side, 0, paths);
            config.joins.clear();
            config
        };
        if method.direction == Direction::ThirdParty && cell.nodes == 0 {
            add_client(&mut config, &control);
        }
        let of_load = ["left", "right"].map(|side| format!("{side}{transfers}"));
        let mut config = config.each_host(|host| {
            let host = host.congestion_control(&cell.congestion_control);
            let ours = !of_load.contains(&host.name);
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
        // A tuner is given what the largest static setting gets, so that both meet one emulator.
        let swept = self.sweep.channels.iter().copied().max().unwrap_or(1);
        let channels = match cell.channels {
            0 => swept,
            channels => channels,
        };
        config.emulator = EmulatorConfig {
            channels: channels * cell.nodes.max(1) * method.transfers + flows,
            ..EmulatorConfig::default()
        };
        config.socket_buffer_max = method.tcp_buffer.map(|size| size.0);
        config
    }

    /// Other TCP connections beside the transfer, and the largest buffer of their hosts.
    pub(super) fn flows(&self, cell: &Cell) -> (u32, Option<Size>) {
        let (mut flows, mut buffer) = (cell.traffic, None);
        for load in &self.load {
            if let Load::Tcp {
                flows: more,
                buffer_max,
                ..
            } = load
            {
                flows += more;
                buffer = buffer_max.or(buffer);
            }
        }
        (flows, buffer)
    }

    /// What becomes of the links of a cell: when, in s from the first data, which link, and what.
    /// A queue given in bandwidth-delay products stays that of the beginning.
    pub fn alterations(&self, cell: &Cell, method: &Method) -> Vec<(f64, String, Alteration)> {
        let mut changes: Vec<_> = self.change.iter().collect();
        changes.sort_by(|a, b| a.at.0.total_cmp(&b.at.0));
        let (mut rate, mut background) = (cell.rate, cell.background);
        let mut all = Vec::new();
        for change in changes {
            if cell.nodes > 0 {
                let altered = self.node_alterations(change, cell, method).into_iter();
                all.extend(altered.map(|(link, to)| (change.at.0, link, to)));
                continue;
            }
            let mut add = |links: &[&str], to: &Alteration| {
                all.extend(
                    (links.iter()).map(|link| (change.at.0, (*link).to_owned(), to.clone())),
                );
            };
            let both = [DATA_LINK, BACK_LINK];
            if let Some(new) = change.rate {
                rate = new;
                add(&both, &Alteration::RateBps(whole(rate.0)));
            }
            if let Some(delay) = change.delay {
                add(&both, &Alteration::DelayNs(nanoseconds(delay.0)));
            }
            if let Some(loss) = change.loss {
                add(&[DATA_LINK], &Alteration::Loss(random(loss)));
            }
            let before = background;
            background = change.background.unwrap_or(background);
            if change.background.is_some() || (change.rate.is_some() && before.0 > 0.0) {
                let traffic = Alteration::CrossTraffic(constant(rate, background));
                add(&[DATA_LINK], &traffic);
            }
        }
        all
    }
}

pub(super) fn add_client(config: &mut NetworkConfig, control: &PathConfig) {
    config.members.push(Member {
        host: HostConfig::new(CLIENT_HOST),
        site: CLIENT_HOST.into(),
    });
    for site in ["left", "right"] {
        config.joins.push(Join {
            from: CLIENT_HOST.into(),
            to: site.into(),
            paths: Paths::same(control.clone()),
        });
    }
}

impl PathSpec {
    /// The way of the data.
    pub(super) fn forward(&self, cell: &Cell, seed: u64) -> PathConfig {
        let bdp_bytes = cell.rate.0 * cell.rtt_s() / 8.0;
        let limit = match self.queue {
            QueueLength::Packets(packets) => QueueLimit::Packets(packets),
            QueueLength::Bytes(bytes) => QueueLimit::Bytes(bytes),
            QueueLength::Bdp(factor) => QueueLimit::Bytes(whole((factor * bdp_bytes).ceil())),
        };
        let discipline = self.red.map_or(Discipline::DropTail, |red| {
            Discipline::Red(RedConfig {
                min: red.min,
                max: red.max,
                max_p: red.max_p,
                weight: red.w_q,
                mean_packet_bytes: self.mtu,
                wait: true,
                gentle: false,
            })
        });
        PathConfig {
            rate_bps: self.is_emulated().then(|| whole(cell.rate.0)),
            delay_ns: nanoseconds(cell.delay.0),
            queue: Queue { limit, discipline },
            loss: random(cell.loss),
            cross_traffic: constant(cell.rate, cell.background),
            seed,
            ..PathConfig::default()
        }
    }

    /// What a link of this rate leaves for payload beside the cell's background, bit/s.
    fn payload_bps(&self, rate_bps: f64, cell: &Cell) -> f64 {
        analytic::capacity_bps(rate_bps * (1.0 - cell.background.0), self.mtu)
    }

    /// What the cell's link leaves for payload, bit/s.
    pub fn capacity_bps(&self, cell: &Cell) -> f64 {
        self.payload_bps(cell.rate.0, cell)
    }
}

impl Scenario {
    /// What the links of all nodes leave for payload, or the path without nodes, bit/s.
    pub fn capacity_bps(&self, cell: &Cell) -> f64 {
        self.path.payload_bps(self.links_bps(cell), cell)
    }
}

pub(super) fn random(loss: Share) -> Loss {
    if loss.0 > 0.0 {
        Loss::Random { ratio: loss.0 }
    } else {
        Loss::None
    }
}

pub(super) fn constant(rate: Rate, share: Share) -> Vec<CrossTraffic> {
    let traffic = if share.0 > 0.0 { rate.0 * share.0 } else { 0.0 };
    let bps = whole(traffic);
    (bps > 0)
        .then(|| CrossTraffic::constant(bps))
        .into_iter()
        .collect()
}

pub(super) fn nanoseconds(seconds: f64) -> u64 {
    whole(seconds * 1e9)
}

/// A whole number of nanoseconds, bytes or packets.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "not negative, and casts of floats saturate"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value.round() as u64
}
