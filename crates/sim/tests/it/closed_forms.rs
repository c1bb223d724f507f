//! Cases in which theory says what comes out.

use godwit_sim::{
    FlowId, MS, SECOND, Simulation,
    path::Loss,
    tcp::{Algorithm, SenderConfig},
};

use crate::support::{open, pipe, simulation};

const ALL: [Algorithm; 4] = [
    Algorithm::Reno,
    Algorithm::NewReno,
    Algorithm::Sack,
    Algorithm::Cubic,
];

/// Packets a second that flows deliver together between two moments.
fn rate(simulation: &mut Simulation, flows: &[FlowId], from_s: u64, to_s: u64) -> f64 {
    let delivered = |simulation: &Simulation| -> u64 {
        let all = flows.iter().map(|flow| simulation.stats(*flow).delivered);
        all.map(u64::from).sum()
    };
    simulation.run_until(from_s * SECOND);
    let before = delivered(simulation);
    simulation.run_until(to_s * SECOND);
    (delivered(simulation) - before) as f64 / (to_s - from_s) as f64
}

fn sender(algorithm: Algorithm, window_max: u32) -> SenderConfig {
    SenderConfig {
        algorithm,
        header_bytes: 0,
        tick_ns: 0,
        ..SenderConfig::ns2(window_max)
    }
}

/// W / R: 20 packets in 100 ms and the 80 us that one takes on the link.
#[test]
fn a_flow_limited_by_its_window_sends_it_once_a_round_trip() {
    for algorithm in ALL {
        let (mut simulation, route) = simulation(pipe(100_000_000, 50, 100, Loss::None), 1);
        let flow = open(&mut simulation, &route, sender(algorithm, 20), 0);
        let rate = rate(&mut simulation, &[flow], 5, 25);
        assert!(
            (rate / (20.0 / 0.10008) - 1.0).abs() < 0.001,
            "{algorithm:?}: {rate}"
        );
        let stats = simulation.stats(flow);
        assert_eq!(stats.sender.retransmitted, 0);
        let limited = stats.sender.receive_window_limited_ns as f64 / 25e9;
        assert!(limited > 0.9, "{limited}");
        assert_eq!(stats.rtt_min_ns, Some(100 * MS + 80_000));
    }
}

/// A queue of a bandwidth-delay product keeps the link busy while a halved window grows again:
/// 125 packets fill 10 Mbit/s over 100 ms.
#[test]
fn one_flow_fills_a_link_with_a_deep_queue() {
    for algorithm in ALL {
        let (mut simulation, route) = simulation(pipe(10_000_000, 50, 140, Loss::None), 1);
        let flow = open(&mut simulation, &route, sender(algorithm, 1000), 0);
        let share = rate(&mut simulation, &[flow], 30, 130) / 1250.0;
        // Reno pays with a timeout where a window loses several packets.
        let least = if algorithm == Algorithm::Reno {
            0.93
        } else {
            0.98
        };
        assert!(share > least && share < 1.003, "{algorithm:?}: {share}");
        assert!(simulation.stats(flow).sender.recoveries > 1);
    }
}

/// Mathis, Semke, Mahdavi, Ott 1997: sqrt(3/2) / (R sqrt p).
#[test]
fn random_loss_gives_what_mathis_says() {
    for algorithm in [Algorithm::NewReno, Algorithm::Sack] {
        for loss in [0.0005, 0.002, 0.005] {
            let path = pipe(1_000_000_000, 10, 10_000, Loss::Random { ratio: loss });
            let (mut simulation, route) = simulation(path, 1);
            let flow = open(&mut simulation, &route, sender(algorithm, 10_000), 0);
            let rate = rate(&mut simulation, &[flow], 10, 210);
            let mathis = 1.5_f64.sqrt() / (0.02 * loss.sqrt());
            let ratio = rate / mathis;
            assert!(
                (0.8..1.15).contains(&ratio),
                "{algorithm:?} {loss}: {ratio}"
            );
        }
    }
}

/// Padhye, Firoiu, Towsley, Kurose 1998, eq. 30, with an acknowledgement a packet: with timeouts,
/// within half.
#[test]
fn reno_under_heavy_loss_gives_about_what_padhye_says() {
    for loss in [0.01, 0.03, 0.08_f64] {
        let path = pipe(1_000_000_000, 50, 10_000, Loss::Random { ratio: loss });
        let (mut simulation, route) = simulation(path, 1);
        let flow = open(&mut simulation, &route, sender(Algorithm::Reno, 10_000), 0);
        let rate = rate(&mut simulation, &[flow], 10, 510);
        let (r, t0) = (0.1, 0.2);
        let timeouts = (3.0 * (3.0 * loss / 8.0).sqrt()).min(1.0);
        let padhye = 1.0
            / (r * (2.0 * loss / 3.0).sqrt() + t0 * timeouts * loss * (1.0 + 32.0 * loss * loss));
        let ratio = rate / padhye;
        assert!((0.6..1.5).contains(&ratio), "{loss}: {ratio}");
    }
}

/// RFC 9438 §5.1, eq. 5: 0.4 and 0.7 give 1.054 (R^3 / p^3)^(1/4) / R packets a second.
#[test]
fn cubic_under_random_loss_gives_what_its_rfc_says() {
    // A long round trip and rare losses lie in the cubic region.
    let (loss, r) = (0.0005_f64, 0.2_f64);
    let path = pipe(10_000_000_000, 100, 100_000, Loss::Random { ratio: loss });
    let (mut simulation, route) = simulation(path, 1);
    let flow = open(
        &mut simulation,
        &route,
        sender(Algorithm::Cubic, 100_000),
        0,
    );
    let rate = rate(&mut simulation, &[flow], 20, 420);
    let expected = 1.054 * r.powf(0.75) / loss.powf(0.75) / r;
    let ratio = rate / expected;
    assert!((0.8..1.2).contains(&ratio), "{ratio}");
}

#[test]
fn equal_flows_share_a_link() {
    for algorithm in [Algorithm::NewReno, Algorithm::Sack, Algorithm::Cubic] {
        let (mut simulation, route) = simulation(pipe(20_000_000, 10, 60, Loss::None), 1);
        let flows: Vec<_> = (0..4)
            .map(|n| {
                open(
                    &mut simulation,
                    &route,
                    sender(algorithm, 1000),
                    n * 17 * MS,
                )
            })
            .collect();
        simulation.run_until(120 * SECOND);
        let got: Vec<f64> = flows
            .iter()
            .map(|flow| f64::from(simulation.stats(*flow).delivered))
            .collect();
        let (sum, squares) = (
            got.iter().sum::<f64>(),
            got.iter().map(|g| g * g).sum::<f64>(),
        );
        let jain = sum * sum / (4.0 * squares);
        assert!(jain > 0.85, "{algorithm:?}: {jain} {got:?}");
    }
}

/// Packets that stand for four segments move as many bytes: a loss a segment of p is 4 p a packet,
/// and windows grow by as many bytes a round trip.
#[test]
fn packets_of_several_segments_move_as_many_bytes() {
    for algorithm in [Algorithm::Sack, Algorithm::Cubic] {
        for (loss, rate_bps, queue) in
            [(0.000_1_f64, 1_000_000_000, 10_000), (0.0, 40_000_000, 300)]
        {
            let goodput = |segments: u32| {
                let ratio = 1.0 - (1.0 - loss).powf(f64::from(segments));
                let wire = match loss > 0.0 {
                    true => Loss::Random { ratio },
                    false => Loss::None,
                };
                let path = pipe(rate_bps, 25, queue / u64::from(segments), wire);
                let (mut simulation, route) = simulation(path, 1);
                let config = sender(algorithm, 20_000 / segments).aggregated(segments);
                let flow = open(&mut simulation, &route, config, 0);
                rate(&mut simulation, &[flow], 20, 220) * f64::from(segments)
            };
            let ratio = goodput(4) / goodput(1);
            assert!(
                (0.85..1.15).contains(&ratio),
                "{algorithm:?} {loss}: {ratio}"
            );
        }
    }
}

/// 375 packets fill 20 Mbit/s over 150 ms, and 250 fit into the queue: slow start sends twice
/// what fits before it sees a loss. HyStart ends it before.
#[test]
fn hystart_ends_slow_start_before_a_loss() {
    for (hystart, loses) in [(false, true), (true, false)] {
        let (mut simulation, route) = simulation(pipe(20_000_000, 75, 250, Loss::None), 1);
        let sender = SenderConfig {
            hystart,
            ..sender(Algorithm::Cubic, 2000)
        };
        let flow = open(&mut simulation, &route, sender, 0);
        let rate = rate(&mut simulation, &[flow], 2, 5);
        let lost = simulation.stats(flow).sender.retransmitted;
        assert_eq!(lost > 0, loses, "{hystart}: {lost}");
        assert!(rate > 0.5 * 2500.0, "{hystart}: {rate}");
    }
}
