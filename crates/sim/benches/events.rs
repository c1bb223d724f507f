//! How many packet events a second of processor time are simulated: `cargo bench -p godwit-sim`, on
//! Linux.
#![allow(clippy::print_stdout, reason = "a benchmark speaks")]

use std::fs;

use godwit_sim::{
    FlowConfig, MS, SECOND, Simulation, Supply,
    network::{LinkConfig, Topology},
    path::{PathConfig, Queue, QueueLimit},
    tcp::{Algorithm, DelayedAck, ReceiverConfig, SenderConfig},
};

/// Simulated time, ns.
const UNTIL: u64 = 20 * SECOND;
const REPEATS: usize = 5;

fn simulate(algorithm: Algorithm, channels: u32) -> (u64, u64) {
    let path = PathConfig {
        queue: Queue {
            limit: QueueLimit::Packets(800),
            ..Queue::default()
        },
        ..PathConfig::new(1_000_000_000, 10 * MS)
    };
    let link = |from: &str, to: &str| LinkConfig {
        from: from.into(),
        to: to.into(),
        path: path.clone(),
    };
    let topology = Topology::new(&[link("a", "b"), link("b", "a")]).expect("valid");
    let route = topology.route("a", "b").expect("linked");
    let mut simulation = Simulation::new(topology, 1).expect("valid");
    for n in 0..channels {
        simulation.open(FlowConfig {
            route: route.clone(),
            sender: SenderConfig::linux(algorithm, 20_000),
            receiver: ReceiverConfig {
                delayed_ack: Some(DelayedAck { wait_ns: 40 * MS }),
            },
            supply: Supply::Endless,
            at_ns: u64::from(n) * MS,
        });
    }
    simulation.run_until(UNTIL);
    (simulation.totals().packet_events, simulation.trace())
}

/// Time that this process has run, s: other work on the machine does not count.
fn processor_s() -> f64 {
    let text = fs::read_to_string("/proc/self/schedstat").expect("Linux");
    let ns = text.split(' ').next().and_then(|ns| ns.parse::<f64>().ok());
    ns.expect("begins with a number") / 1e9
}

fn main() {
    for algorithm in [
        Algorithm::Reno,
        Algorithm::NewReno,
        Algorithm::Sack,
        Algorithm::Cubic,
    ] {
        for channels in [1, 8, 64] {
            let mut rates: Vec<f64> = (0..REPEATS)
                .map(|_| {
                    let began = processor_s();
                    let (events, _) = simulate(algorithm, channels);
                    events as f64 / (processor_s() - began) / 1e6
                })
                .collect();
            rates.sort_by(f64::total_cmp);
            let name = format!("{algorithm:?}");
            println!(
                "{name:8} {channels:3} channels: {:6.2} million packet events a second \
                 ({:.2} to {:.2}, {REPEATS} runs)",
                rates[REPEATS / 2],
                rates[0],
                rates[REPEATS - 1]
            );
        }
    }
}
