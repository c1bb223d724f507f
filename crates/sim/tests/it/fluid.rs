//! Flows as rates beside the same flows as packets, where both can run.

use godwit_sim::{
    FlowConfig, FlowId, MS, SECOND, Simulation, Supply,
    fluid::{Fluid, FluidFlow, FluidId, FluidLimit, FluidLink, SEGMENT_BYTES},
    network::{LinkConfig, Route, Topology},
    path::{Loss, PathConfig},
    tcp::{Algorithm, ReceiverConfig, SenderConfig},
};

use crate::support::{link, pipe};

/// A flow of both models.
struct Both {
    /// Nodes of a graph.
    from: usize,
    to: usize,
    connections: u32,
    window_packets: u32,
}

/// A link between two nodes.
#[derive(Clone, Copy)]
struct Hop {
    ends: (usize, usize),
    mbps: f64,
    one_way_ms: u64,
    queue_ms: f64,
    loss: f64,
}

fn path(hop: Hop) -> PathConfig {
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)]
    let (rate, packets) = (
        (hop.mbps * 1e6) as u64,
        (hop.mbps * 1e3 * hop.queue_ms / 12_000.0) as u64,
    );
    let loss = match hop.loss > 0.0 {
        true => Loss::Random { ratio: hop.loss },
        false => Loss::None,
    };
    pipe(rate, hop.one_way_ms, packets.max(2), loss)
}

/// Both directions of each link, and the routes of the flows.
fn topology(hops: &[Hop], flows: &[Both]) -> (Topology, Vec<Route>) {
    let mut links: Vec<LinkConfig> = Vec::new();
    for hop in hops {
        let (a, b) = (format!("n{}", hop.ends.0), format!("n{}", hop.ends.1));
        let back = PathConfig {
            delay_ns: hop.one_way_ms * MS,
            ..PathConfig::default()
        };
        links.push(link(&a, &b, path(*hop)));
        links.push(link(&b, &a, back));
    }
    let topology = Topology::new(&links).expect("valid");
    let route = |flow: &Both| {
        let ends = (format!("n{}", flow.from), format!("n{}", flow.to));
        topology.route(&ends.0, &ends.1).expect("linked")
    };
    let routes = flows.iter().map(route).collect();
    (topology, routes)
}

/// Goodput of each flow in packets between two moments, bit/s, and retransmissions over packets.
fn packets(hops: &[Hop], flows: &[Both], from_s: u64, to_s: u64) -> (Vec<f64>, Vec<f64>) {
    let (topology, routes) = topology(hops, flows);
    let mut simulation = Simulation::new(topology, 1).expect("valid");
    let mut opened: Vec<Vec<FlowId>> = Vec::new();
    for (flow, route) in flows.iter().zip(&routes) {
        let all = (0..flow.connections).map(|n| {
            simulation.open(FlowConfig {
                route: route.clone(),
                sender: SenderConfig::linux(Algorithm::Cubic, flow.window_packets),
                receiver: ReceiverConfig { delayed_ack: None },
                supply: Supply::Endless,
                at_ns: u64::from(n) * 13 * MS,
            })
        });
        opened.push(all.collect());
    }
    let totals = |simulation: &Simulation| -> Vec<(u64, u64, u64)> {
        let of = |ids: &Vec<FlowId>| {
            let all = ids.iter().map(|id| simulation.stats(*id));
            all.fold((0, 0, 0), |sum, stats| {
                let sender = stats.sender;
                (
                    sum.0 + stats.delivered_bytes,
                    sum.1 + sender.sent,
                    sum.2 + sender.retransmitted,
                )
            })
        };
        opened.iter().map(of).collect()
    };
    simulation.run_until(from_s * SECOND);
    let before = totals(&simulation);
    simulation.run_until(to_s * SECOND);
    let after = totals(&simulation);
    let pairs = || after.iter().zip(&before);
    let seconds = (to_s - from_s) as f64;
    (
        pairs()
            .map(|(a, b)| (a.0 - b.0) as f64 * 8.0 / seconds)
            .collect(),
        pairs()
            .map(|(a, b)| (a.2 - b.2) as f64 / (a.1 - b.1) as f64)
            .collect(),
    )
}

fn fluid(hops: &[Hop], flows: &[Both], bytes: f64) -> (Fluid, Vec<FluidId>) {
    let links = hops.iter().map(|hop| FluidLink {
        rate_bps: hop.mbps * 1e6,
        delay_s: hop.one_way_ms as f64 / 1e3,
        queue_s: hop.queue_ms / 1e3,
        loss: hop.loss,
    });
    let mut fluid = Fluid::new(links.collect());
    let open = |(flow, route): (&Both, Route)| {
        // The links there are those with even numbers.
        let links: Vec<usize> = route
            .forward
            .iter()
            .map(|at| usize::from(*at) / 2)
            .collect();
        let back = links.iter().map(|at| hops[*at].one_way_ms as f64 / 1e3);
        fluid.open(FluidFlow {
            back_s: back.sum(),
            links,
            connections: flow.connections,
            window_bytes: f64::from(flow.window_packets) * SEGMENT_BYTES,
            under_way_bytes: None,
            bytes,
        })
    };
    let routes = topology(hops, flows).1;
    let ids = flows.iter().zip(routes).map(open).collect();
    (fluid, ids)
}

/// Goodput of each flow as a rate at the end of slow start, bit/s, and its loss.
fn rates(hops: &[Hop], flows: &[Both]) -> (Vec<f64>, Vec<f64>) {
    let (mut fluid, ids) = fluid(hops, flows, 1e15);
    assert!(fluid.run_until(60.0).is_empty());
    let state = |id: &FluidId| fluid.state(*id).expect("open");
    let states: Vec<_> = ids.iter().map(state).collect();
    (
        states.iter().map(|state| state.goodput_bps).collect(),
        states.iter().map(|state| state.loss).collect(),
    )
}

fn flow(from: usize, to: usize, connections: u32) -> Both {
    Both {
        from,
        to,
        connections,
        window_packets: 20_000,
    }
}

const HOP: Hop = Hop {
    ends: (0, 1),
    mbps: 60.0,
    one_way_ms: 15,
    queue_ms: 20.0,
    loss: 0.0,
};

fn near(what: &str, fluid: f64, packets: f64, within: f64) {
    let ratio = fluid / packets;
    assert!(
        (ratio - 1.0).abs() <= within,
        "{what}: {fluid:.4e} as a rate, {packets:.4e} in packets, ratio {ratio:.3}"
    );
}

#[test]
fn windows_and_random_loss_limit_rates_as_they_limit_packets() {
    let windows = [Both {
        window_packets: 50,
        ..flow(0, 1, 2)
    }];
    near(
        "windows",
        rates(&[HOP], &windows).0[0],
        packets(&[HOP], &windows, 5, 25).0[0],
        0.02,
    );
    for (loss, within) in [(0.000_5, 0.2), (0.004, 0.2)] {
        let hop = Hop {
            mbps: 1000.0,
            one_way_ms: 40,
            loss,
            ..HOP
        };
        let lossy = [flow(0, 1, 2)];
        near(
            "random loss",
            rates(&[hop], &lossy).0[0],
            packets(&[hop], &lossy, 20, 220).0[0],
            within,
        );
    }
}

#[test]
fn a_full_link_carries_and_loses_about_as_many_rates_as_packets() {
    for connections in [1, 4, 16] {
        for queue_ms in [3.0, 30.0] {
            let hops = [Hop { queue_ms, ..HOP }];
            let flows = [flow(0, 1, connections)];
            let (rate, loss) = rates(&hops, &flows);
            let (seen, lost) = packets(&hops, &flows, 30, 150);
            near(
                &format!("{connections} over {queue_ms} ms"),
                rate[0],
                seen[0],
                0.06,
            );
            let ratio = loss[0] / lost[0];
            println!("  loss {:.2e} and {:.2e}", loss[0], lost[0]);
            assert!(
                (0.3..3.0).contains(&ratio),
                "{connections} {queue_ms}: {ratio}"
            );
        }
    }
}

#[test]
fn connections_share_links_as_in_packets() {
    // Three connections beside one.
    let beside = [flow(0, 1, 6), flow(0, 1, 2)];
    let (rate, seen) = (
        rates(&[HOP], &beside).0,
        packets(&[HOP], &beside, 30, 230).0,
    );
    near("six", rate[0], seen[0], 0.1);
    near("two", rate[1], seen[1], 0.25);
}

#[test]
fn slow_start_takes_as_long_as_in_packets() {
    // 4 MB over 1 Gbit/s and 40 ms: most of it is slow start.
    let hop = Hop {
        ends: (0, 1),
        mbps: 1000.0,
        one_way_ms: 20,
        queue_ms: 40.0,
        loss: 0.0,
    };
    let flows = [flow(0, 1, 1)];
    let (mut fluid, ids) = fluid(&[hop], &flows, 4e6);
    assert_eq!(fluid.state(ids[0]).unwrap().limit, FluidLimit::SlowStart);
    assert_eq!(fluid.run_until(60.0), ids);
    let as_rate = fluid.now_s();
    let (mut low, mut high) = (0_u64, 3000_u64);
    let moved = |ms: u64| {
        let forward = path(hop);
        let (mut simulation, route) = crate::support::simulation(forward, 1);
        let sender = SenderConfig::linux(Algorithm::Cubic, 20_000);
        let id = crate::support::open(&mut simulation, &route, sender, 0);
        simulation.run_until(ms * MS);
        simulation.stats(id).delivered_bytes
    };
    while high - low > 1 {
        let middle = u64::midpoint(low, high);
        if moved(middle) >= 4_000_000 {
            high = middle;
        } else {
            low = middle;
        }
    }
    near("4 MB, s", as_rate, high as f64 / 1e3, 0.15);
}

#[test]
fn links_carry_what_flows_move() {
    let hops = [
        HOP,
        Hop {
            ends: (1, 2),
            ..HOP
        },
    ];
    let flows = [flow(0, 2, 2), flow(1, 2, 1)];
    let (mut fluid, ids) = fluid(&hops, &flows, 1e7);
    let mut ended = Vec::new();
    while let Some(next) = fluid.next_s() {
        for id in fluid.run_until(next) {
            ended.push(id);
            fluid.close(id);
        }
    }
    ended.sort();
    assert_eq!(ended, ids);
    let first = fluid.link_use(0).unwrap();
    // Headers, and what was sent again.
    let payload = (first.bytes - first.lost_bytes) * SEGMENT_BYTES / 1500.0;
    assert!((payload / 1e7 - 1.0).abs() < 1e-3, "{payload}");
    let second = fluid.link_use(1).unwrap();
    assert!(second.full_s > 0.0 && second.queue_s2 > 0.0 && first.full_s < second.full_s);
    assert_eq!(second.connections_max, 3);
}
