use godwit_sim::{
    MS, SECOND, Simulation,
    path::{Discipline, Loss, PathConfig, Queue, QueueLimit, RedConfig, Reordering},
    tcp::{Algorithm, SenderConfig},
};
use proptest::prelude::*;

use crate::support::{open, simulation};

fn algorithms() -> impl Strategy<Value = Algorithm> {
    prop_oneof![
        Just(Algorithm::Reno),
        Just(Algorithm::NewReno),
        Just(Algorithm::Sack),
        Just(Algorithm::Cubic),
    ]
}

prop_compose! {
    fn paths()(
        rate in 1_000_000..50_000_000_u64,
        delay_ms in 0..60_u64,
        packets in 1..120_u64,
        loss in prop_oneof![Just(0.0), 0.0..0.2],
        red: bool,
        reorders: bool,
        seed: u64,
    ) -> PathConfig {
        let red = RedConfig {
            min: 5.0,
            max: 15.0,
            max_p: 0.1,
            weight: 0.002,
            mean_packet_bytes: 1000,
            wait: true,
            gentle: seed.is_multiple_of(2),
        };
        let discipline = if reorders || seed.is_multiple_of(3) {
            Discipline::DropTail
        } else {
            Discipline::Red(red)
        };
        PathConfig {
            queue: Queue { limit: QueueLimit::Packets(packets), discipline },
            loss: if loss > 0.0 { Loss::Random { ratio: loss } } else { Loss::None },
            reordering: (reorders && red.gentle)
                .then_some(Reordering { ratio: 0.05, hold_ns: 20 * MS }),
            seed,
            ..PathConfig::new(rate, delay_ms * MS)
        }
    }
}

fn run(path: PathConfig, sender: SenderConfig, flows: u64, seconds: u64) -> Simulation {
    let (mut simulation, route) = simulation(path, 1);
    for n in 0..flows {
        open(&mut simulation, &route, sender, n * 3 * MS);
    }
    simulation.run_until(seconds * SECOND);
    simulation
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// What entered is on a link, was dropped by one, or came to its end; what came to its end is
    /// in order, waits behind a gap or is a copy.
    #[test]
    fn packets_are_conserved(
        path in paths(), algorithm in algorithms(), flows in 1..6_u64, seed: u64,
    ) {
        let (mut simulation, route) = simulation(path, seed);
        let sender = SenderConfig { algorithm, ..SenderConfig::ns2(60) };
        let ids: Vec<_> = (0..flows)
            .map(|n| open(&mut simulation, &route, sender, n * MS))
            .collect();
        for step in 1..=4 {
            simulation.run_until(step * SECOND);
            let totals = simulation.totals();
            let dropped: u64 = (0..2)
                .filter_map(|link| simulation.link_counters(link))
                .map(|counters| counters.dropped())
                .sum();
            prop_assert_eq!(totals.entered, totals.arrived + dropped + simulation.on_links());
            for id in &ids {
                let stats = simulation.stats(*id);
                prop_assert!(
                    u64::from(stats.delivered) + stats.duplicates <= stats.sender.sent
                );
                prop_assert!(stats.sender.outstanding_max <= sender.window_max);
            }
        }
    }

    #[test]
    fn equal_seeds_give_equal_traces(path in paths(), algorithm in algorithms()) {
        let sender = SenderConfig { algorithm, ..SenderConfig::ns2(60) };
        let once = run(path.clone(), sender, 3, 3);
        let again = run(path, sender, 3, 3);
        prop_assert_eq!(once.trace(), again.trace());
        prop_assert_eq!(once.totals(), again.totals());
    }

    /// However many packets are lost, flows make progress: no state waits for ever.
    #[test]
    fn flows_never_stall(path in paths(), algorithm in algorithms()) {
        let sender = SenderConfig { algorithm, ..SenderConfig::ns2(60) };
        let (mut simulation, route) = simulation(path, 1);
        let flow = open(&mut simulation, &route, sender, 0);
        simulation.run_until(40 * SECOND);
        let before = simulation.stats(flow).delivered;
        simulation.run_until(120 * SECOND);
        prop_assert!(simulation.stats(flow).delivered > before);
    }
}

#[test]
fn another_seed_is_another_run() {
    let path = PathConfig {
        loss: Loss::Random { ratio: 0.01 },
        ..PathConfig::new(10_000_000, 10 * MS)
    };
    let trace = |seed| {
        let (mut simulation, route) = simulation(path.clone(), seed);
        open(&mut simulation, &route, SenderConfig::ns2(60), 0);
        simulation.run_until(2 * SECOND);
        simulation.trace()
    };
    assert_ne!(trace(1), trace(2));
}

/// The number that this run gave when it was written: on every machine and in every release it
/// gives it again.
#[test]
fn a_trace_never_changes() {
    let path = PathConfig {
        loss: Loss::Random { ratio: 0.01 },
        ..PathConfig::new(10_000_000, 10 * MS)
    };
    let sender = SenderConfig {
        algorithm: Algorithm::Sack,
        ..SenderConfig::ns2(60)
    };
    assert_eq!(run(path, sender, 3, 3).trace(), 7_602_400_610_130_491_946);
}
