//! Paths and flows of the tests.

use godwit_sim::{
    FlowConfig, FlowId, MS, Simulation, Supply,
    network::{LinkConfig, Route, Topology},
    path::{Discipline, Loss, PathConfig, Queue, QueueLimit},
    tcp::{ReceiverConfig, SenderConfig},
};

pub(crate) fn link(from: &str, to: &str, path: PathConfig) -> LinkConfig {
    LinkConfig {
        from: from.into(),
        to: to.into(),
        path,
    }
}

/// A bottleneck of `rate_bps`, and a way back that is as long and never full.
pub(crate) fn pipe(rate_bps: u64, one_way_ms: u64, packets: u64, loss: Loss) -> PathConfig {
    PathConfig {
        queue: Queue {
            limit: QueueLimit::Packets(packets),
            discipline: Discipline::DropTail,
        },
        loss,
        ..PathConfig::new(rate_bps, one_way_ms * MS)
    }
}

pub(crate) fn simulation(forward: PathConfig, seed: u64) -> (Simulation, Route) {
    let back = PathConfig {
        delay_ns: forward.delay_ns,
        ..PathConfig::default()
    };
    let topology = Topology::new(&[link("a", "b", forward), link("b", "a", back)]).expect("valid");
    let route = topology.route("a", "b").expect("linked");
    (Simulation::new(topology, seed).expect("valid"), route)
}

pub(crate) fn open(
    simulation: &mut Simulation,
    route: &Route,
    sender: SenderConfig,
    at_ns: u64,
) -> FlowId {
    simulation.open(FlowConfig {
        route: route.clone(),
        sender,
        receiver: ReceiverConfig { delayed_ack: None },
        supply: Supply::Endless,
        at_ns,
    })
}
