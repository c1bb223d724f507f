//! What the packet simulator gives in place of a run: path, seed, number of channels and spans are
//! those of the run, senders of [`godwit_sim`] stand for its kernels.

use godwit_sim::{
    MS, Simulation,
    network::{LinkConfig, Topology},
    tcp::{Algorithm, DelayedAck, ReceiverConfig, SenderConfig},
    transfer::{ChannelConfig, LiveConfig, run_live},
};
use godwit_tune::{Bounds, Method as Tuner, Setting, model::analytic};
use serde::{Deserialize, Serialize};

use super::RunError;
use crate::path::PathConfig;
use crate::scenario::{Cell, DATA_ENDS, Method, Scenario, Size, Theory, whole};

/// Longest delay of an acknowledgement, ns: Linux's shortest.
const ACK_DELAY_NS: u64 = 40 * MS;

/// Largest window, packets: with more of them no path of the lab could be filled.
const WINDOW_MAX: u64 = 1 << 20;

/// A run in the simulator.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Simulated {
    /// Payload that arrived in order over what was measured, bit/s.
    pub goodput_bps: f64,
    /// Packets sent again over packets sent meanwhile, `0..=1`.
    pub retransmitted: f64,
}

/// The run of `method` in `cell` with `seed`; `None` where the scenario wants none, or where there
/// is no simulated sender of this congestion control.
pub(super) fn simulate(
    scenario: &Scenario,
    method: &Method,
    cell: &Cell,
    seed: u64,
) -> Result<Option<Simulated>, RunError> {
    let algorithm = match cell.congestion_control.as_str() {
        _ if !scenario.theory.contains(&Theory::Simulation) => return Ok(None),
        "reno" => Algorithm::Sack,
        "cubic" => Algorithm::Cubic,
        _ => return Ok(None),
    };
    let network = scenario.network(cell, method, seed);
    let links = network.joins.iter().flat_map(|join| {
        let link = |from: &str, to: &str, path: &PathConfig| LinkConfig {
            from: from.into(),
            to: to.into(),
            path: path.clone(),
        };
        [
            link(&join.from, &join.to, &join.paths.forward),
            link(&join.to, &join.from, &join.paths.back),
        ]
    });
    let topology = Topology::new(&links.collect::<Vec<_>>())?;
    let [from, to] = DATA_ENDS;
    let channels = ChannelConfig {
        route: topology.route(from, to)?,
        sender: sender(scenario, algorithm),
        receiver: ReceiverConfig {
            delayed_ack: Some(DelayedAck {
                wait_ns: ACK_DELAY_NS,
            }),
        },
    };
    let (ramp, measure) = scenario.span(method, cell);
    // The first data comes a command and a handshake after the beginning.
    let begins = 2.0 * cell.rtt_s() + ramp;
    let config = LiveConfig {
        channels,
        epoch_s: begins + measure,
        until_s: begins + measure,
        seed,
    };
    let setting = Setting::new(1, cell.channels);
    let mut tuner = Tuner::Static(setting).build(None, Bounds::up_to(cell.channels), seed);
    let mut simulation = Simulation::new(topology, seed)?;
    let course = run_live(&mut simulation, &config, &mut *tuner);
    Ok(Some(Simulated {
        goodput_bps: course.goodput_bps(begins, config.until_s),
        retransmitted: course.retransmitted_ratio(begins, config.until_s),
    }))
}

fn sender(scenario: &Scenario, algorithm: Algorithm) -> SenderConfig {
    let mtu = scenario.path.mtu;
    let payload = whole(analytic::segment_payload_bytes(mtu)).max(1);
    let payload_bytes = u32::try_from(payload).unwrap_or(mtu);
    // Without a limit of the scenario no buffer limits.
    let packets = (scenario.hosts.buffer_max).map_or(u64::MAX, |Size(bytes)| bytes / payload);
    let window = u32::try_from(packets.clamp(1, WINDOW_MAX)).unwrap_or(u32::MAX);
    SenderConfig {
        payload_bytes,
        header_bytes: mtu.saturating_sub(payload_bytes),
        ..SenderConfig::linux(algorithm, window)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::parse;

    fn simulated(control: &str, theory: &str) -> Option<Simulated> {
        let text = format!(
            "title = \"t\"\n[path]\nrate = \"20 Mbit/s\"\ndelay = \"5 ms\"\n\
             queue = \"1 BDP\"\n[hosts]\ncongestion_control = \"{control}\"\n\
             [run]\nramp = \"1 s\"\nmeasure = \"4 s\"\n{theory}\n\
             [[method]]\nname = \"g\"\nlabel = \"g\"\nclient = \"godwit\"\n\
             server = \"godwitd\"\nchannels = 4\n"
        );
        let scenario = parse("x", &text).unwrap();
        let method = &scenario.method[0];
        simulate(&scenario, method, &scenario.cells(method)[0], 3).unwrap()
    }

    const WANTED: &str = "[[theory]]\nkind = \"simulation\"";

    #[test]
    fn channels_fill_the_path_of_the_run() {
        for control in ["reno", "cubic"] {
            let simulated = simulated(control, WANTED).unwrap();
            let payload = 20e6 * 1448.0 / 1500.0;
            let part = simulated.goodput_bps / payload;
            assert!((0.97..=1.001).contains(&part), "{control}: {part}");
            let again = simulated.retransmitted;
            assert!(again > 0.0 && again < 0.05, "{control}: {again}");
        }
    }

    #[test]
    fn what_is_not_wanted_or_not_known_is_not_simulated() {
        assert_eq!(simulated("bbr", WANTED), None);
        assert_eq!(simulated("cubic", ""), None);
    }
}
