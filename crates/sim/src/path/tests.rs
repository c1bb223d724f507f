//! Properties of whole paths.

use proptest::prelude::*;

use super::*;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000_000_000;

fn drop_tail(limit: u64) -> Queue {
    Queue {
        limit: QueueLimit::Packets(limit),
        discipline: Discipline::DropTail,
    }
}

/// Sends packets at the given gaps and sizes.
fn run(config: &PathConfig, arrivals: &[(u64, u32)]) -> Vec<Verdict> {
    let mut path = Path::new(config.clone()).expect("valid");
    let mut at = 0;
    (arrivals.iter())
        .map(|&(gap, bytes)| {
            at += gap;
            path.arrive(at, bytes)
        })
        .collect()
}

fn delivery(verdict: Verdict) -> Delivery {
    match verdict {
        Verdict::Deliver(delivery) => delivery,
        Verdict::Drop(reason) => panic!("dropped: {reason:?}"),
    }
}

fn arrivals() -> impl Strategy<Value = Vec<(u64, u32)>> {
    prop::collection::vec((0..40_000_u64, 40..9000_u32), 1..400)
}

prop_compose! {
    fn red()(
        min in 1.0..20.0,
        span in 1.0..30.0,
        max_p in 0.01..1.0,
        weight in 0.001..1.0,
        wait: bool,
        gentle: bool,
    ) -> Discipline {
        let max = min + span;
        let mean_packet_bytes = 1000;
        Discipline::Red(RedConfig { min, max, max_p, weight, mean_packet_bytes, wait, gentle })
    }
}

prop_compose! {
    /// Anything but reordering.
    fn ordered_paths()(
        rate in 1_000_000..20_000_000_000_u64,
        delay_ns in 0..100 * MS,
        limit in prop_oneof![
            (1..60_u64).prop_map(QueueLimit::Packets),
            (9000..90_000_u64).prop_map(QueueLimit::Bytes),
        ],
        discipline in prop_oneof![Just(Discipline::DropTail), red()],
        loss in prop_oneof![Just(Loss::None), (0.0..0.5).prop_map(|ratio| Loss::Random { ratio })],
        jitter in 0..MS,
        cross in prop::collection::vec(1_000_000..1_000_000_000_u64, 0..3),
        new_delay in 0..100 * MS,
        new_rate in 1_000_000..20_000_000_000_u64,
        changed_at in 0..4 * MS,
        seed: u64,
    ) -> PathConfig {
        PathConfig {
            queue: Queue { limit, discipline },
            loss,
            jitter: Jitter { max_ns: jitter, reorders: false },
            cross_traffic: cross.into_iter().map(CrossTraffic::constant).collect(),
            schedule: vec![
                Change { at_ns: changed_at, to: Alteration::DelayNs(new_delay) },
                Change { at_ns: changed_at / 2, to: Alteration::RateBps(new_rate) },
            ],
            seed,
            ..PathConfig::new(rate, delay_ns)
        }
    }
}

proptest! {
    #[test]
    fn packets_keep_their_order(config in ordered_paths(), arrivals in arrivals()) {
        let mut last = Delivery { departure_ns: 0, release_ns: 0, corrupt: None, twice: false };
        for verdict in run(&config, &arrivals) {
            if let Verdict::Deliver(delivery) = verdict {
                prop_assert!(delivery.departure_ns > last.departure_ns);
                prop_assert!(delivery.release_ns >= last.release_ns);
                last = delivery;
            }
        }
    }

    #[test]
    fn the_queue_never_exceeds_its_limit(config in ordered_paths(), arrivals in arrivals()) {
        let mut path = Path::new(config.clone()).expect("valid");
        let mut at = 0;
        for (gap, bytes) in arrivals {
            at += gap;
            path.arrive(at, bytes);
            let (packets, bytes) = path.queued(at);
            match config.queue.limit {
                QueueLimit::Packets(limit) => prop_assert!(packets <= limit),
                QueueLimit::Bytes(limit) => prop_assert!(bytes <= limit),
            }
        }
        let counters = path.counters();
        match config.queue.limit {
            QueueLimit::Packets(limit) => prop_assert!(counters.queue_peak_packets <= limit),
            QueueLimit::Bytes(limit) => prop_assert!(counters.queue_peak_bytes <= limit),
        }
        prop_assert_eq!(counters.packets, counters.delivered + counters.dropped());
    }

    /// Between any two departures no more leaves than the rate allows.
    #[test]
    fn throughput_stays_within_the_rate(
        rate in 1_000_000..20_000_000_000_u64, arrivals in arrivals(), overhead in 0..100_u32,
    ) {
        let config = PathConfig { overhead_bytes: overhead, ..PathConfig::new(rate, 0) };
        let mut first = None;
        let mut bits = 0_u64;
        for (verdict, (_, bytes)) in run(&config, &arrivals).into_iter().zip(&arrivals) {
            let Verdict::Deliver(delivery) = verdict else { continue };
            let start = *first.get_or_insert(delivery.departure_ns);
            if delivery.departure_ns > start {
                bits += u64::from(bytes + overhead) * 8;
                let possible = u128::from(delivery.departure_ns - start + 1) * u128::from(rate);
                prop_assert!(u128::from(bits) * 1_000_000_000 <= possible);
            }
        }
    }

    #[test]
    fn the_same_seed_decides_the_same(config in ordered_paths(), arrivals in arrivals()) {
        prop_assert_eq!(run(&config, &arrivals), run(&config, &arrivals));
    }

    /// Looking at a path changes nothing.
    #[test]
    fn advancing_in_between_changes_nothing(config in ordered_paths(), arrivals in arrivals()) {
        let mut path = Path::new(config.clone()).expect("valid");
        let mut at = 0;
        let looked: Vec<Verdict> = (arrivals.iter())
            .map(|&(gap, bytes)| {
                path.advance(at + gap / 3);
                path.queued(at + gap / 2);
                at += gap;
                path.arrive(at, bytes)
            })
            .collect();
        prop_assert_eq!(looked, run(&config, &arrivals));
    }
}

#[test]
fn a_full_queue_drops_and_drains_at_the_rate() {
    let config = PathConfig {
        queue: drop_tail(500),
        ..PathConfig::new(1_000_000_000, 10 * MS)
    };
    let verdicts = run(&config, &vec![(0, 1500); 600]);
    assert!(
        verdicts[..500]
            .iter()
            .all(|v| matches!(v, Verdict::Deliver(_)))
    );
    assert!(
        verdicts[500..]
            .iter()
            .all(|v| *v == Verdict::Drop(DropReason::QueueFull))
    );
    assert_eq!(delivery(verdicts[499]).departure_ns, 500 * 12_000);
}

#[test]
fn uneven_rates_stay_exact() {
    // 1500 bytes at 622.08 Mbit/s take 19290.12... ns.
    let config = PathConfig {
        queue: drop_tail(200_000),
        ..PathConfig::new(622_080_000, 0)
    };
    let last = delivery(run(&config, &vec![(0, 1500); 100_000])[99_999]);
    assert_eq!(last.departure_ns, 100_000 * 12_000 * SECOND / 622_080_000);
}

#[test]
fn a_lost_packet_takes_its_share_of_the_link() {
    let config = PathConfig {
        loss: Loss::Random { ratio: 0.5 },
        queue: drop_tail(10_000),
        ..PathConfig::new(1_000_000_000, 0)
    };
    let verdicts = run(&config, &vec![(0, 1500); 1000]);
    for (index, verdict) in verdicts.into_iter().enumerate() {
        if let Verdict::Deliver(delivery) = verdict {
            assert_eq!(delivery.departure_ns, (index as u64 + 1) * 12_000);
        }
    }
}

#[test]
fn packets_come_out_twice_as_often_as_asked_and_no_longer() {
    let config = PathConfig {
        duplication: Some(Duplication { ratio: 0.25 }),
        schedule: vec![Change {
            at_ns: 1000,
            to: Alteration::Duplication(None),
        }],
        ..PathConfig::default()
    };
    let mut path = Path::new(config).expect("valid");
    let mut twice = |at_ns| {
        (0..1000)
            .filter(|_| delivery(path.arrive(at_ns, 100)).twice)
            .count()
    };
    assert!((200..300).contains(&twice(0)));
    assert_eq!(twice(2000), 0);
    assert!((200..300).contains(&path.counters().duplicated));
}

#[test]
fn cross_traffic_leaves_what_it_should() {
    for cross in [100_000_000, 500_000_000, 900_000_000] {
        let config = PathConfig {
            cross_traffic: vec![CrossTraffic::constant(cross)],
            queue: drop_tail(100),
            ..PathConfig::new(1_000_000_000, 0)
        };
        // Twice the rate for a second: the queue is always full, and shares by arrivals.
        let mut path = Path::new(config).expect("valid");
        for index in 0..166_666_u64 {
            path.arrive(index * 6_000, 1500);
        }
        let counters = path.counters();
        let passed = counters.delivered + counters.cross_packets - counters.cross_dropped;
        assert!(passed.abs_diff(83_333) < 200, "{passed}");
        let sent = counters.cross_packets * 12_000;
        assert!(sent.abs_diff(cross) < 24_000, "{sent}");
    }
}

#[test]
fn the_schedule_applies_on_time() {
    let at = |ms: u64, to| Change { at_ns: ms * MS, to };
    let config = PathConfig {
        // Out of order on purpose.
        schedule: vec![
            at(60, Alteration::Heal),
            at(50, Alteration::Cut),
            at(10, Alteration::DelayNs(5 * MS)),
            at(20, Alteration::RateBps(100_000_000)),
            at(30, Alteration::Loss(Loss::Random { ratio: 1.0 })),
            at(40, Alteration::Loss(Loss::None)),
            at(70, Alteration::Queue(drop_tail(1))),
        ],
        ..PathConfig::new(1_000_000_000, MS)
    };
    let mut path = Path::new(config).expect("valid");
    let mut after = |ms: u64| path.arrive(ms * MS + 1, 1250);
    let took = |ms: u64, verdict| delivery(verdict).release_ns - ms * MS - 1;
    assert_eq!(took(0, after(0)), MS + 10_000);
    assert_eq!(took(10, after(10)), 5 * MS + 10_000);
    assert_eq!(took(20, after(20)), 5 * MS + 100_000);
    assert_eq!(after(30), Verdict::Drop(DropReason::Loss));
    assert_eq!(took(40, after(40)), 5 * MS + 100_000);
    assert_eq!(after(50), Verdict::Drop(DropReason::Cut));
    assert_eq!(took(60, after(60)), 5 * MS + 100_000);
    after(70);
    assert_eq!(after(70), Verdict::Drop(DropReason::QueueFull));
}

#[test]
fn changes_can_be_added_in_mid_run() {
    let mut path = Path::new(PathConfig::new(1_000_000_000, 0)).expect("valid");
    path.advance(5 * MS);
    let cut = |at_ns| Change {
        at_ns,
        to: Alteration::Cut,
    };
    path.schedule(cut(0)).expect("valid");
    assert_eq!(path.arrive(5 * MS, 100), Verdict::Drop(DropReason::Cut));
    let bad = Change {
        at_ns: 0,
        to: Alteration::RateBps(0),
    };
    assert!(path.schedule(bad).is_err());
}

#[test]
fn held_packets_are_overtaken() {
    let config = PathConfig {
        reordering: Some(Reordering {
            ratio: 0.1,
            hold_ns: MS,
        }),
        ..PathConfig::new(1_000_000_000, 0)
    };
    let verdicts = run(&config, &vec![(20_000, 1500); 1000]);
    let releases: Vec<u64> = verdicts
        .into_iter()
        .map(|v| delivery(v).release_ns)
        .collect();
    let late = releases.windows(2).filter(|pair| pair[1] < pair[0]).count();
    assert!((60..140).contains(&late), "{late}");
}

#[test]
fn jitter_reorders_only_when_asked() {
    for reorders in [false, true] {
        let config = PathConfig {
            jitter: Jitter {
                max_ns: MS,
                reorders,
            },
            ..PathConfig::new(1_000_000_000, MS)
        };
        let verdicts = run(&config, &vec![(20_000, 1500); 1000]);
        let releases: Vec<u64> = verdicts
            .into_iter()
            .map(|v| delivery(v).release_ns)
            .collect();
        assert_eq!(releases.is_sorted(), !reorders);
    }
}

#[test]
fn corruption_spares_small_packets() {
    let config = PathConfig {
        corruption: Some(Corruption {
            ratio: 1.0,
            min_packet_bytes: 600,
            packets_max: None,
        }),
        ..PathConfig::new(1_000_000_000, 0)
    };
    let mut path = Path::new(config).expect("valid");
    assert_eq!(delivery(path.arrive(0, 599)).corrupt, None);
    assert!(delivery(path.arrive(0, 600)).corrupt.is_some());
    assert_eq!(path.counters().corrupted, 1);
}

#[test]
fn corruption_ends_after_so_many_packets() {
    let config = PathConfig {
        corruption: Some(Corruption {
            ratio: 1.0,
            min_packet_bytes: 0,
            packets_max: Some(2),
        }),
        ..PathConfig::new(1_000_000_000, 0)
    };
    let mut path = Path::new(config).expect("valid");
    let corrupted: Vec<bool> = (0..4)
        .map(|_| delivery(path.arrive(0, 1500)).corrupt.is_some())
        .collect();
    assert_eq!(corrupted, [true, true, false, false]);
}

#[test]
fn nonsense_is_refused_by_field() {
    let refused = |config: PathConfig| config.check().expect_err("refused").to_string();
    let good = PathConfig::new(1, 0);
    assert_eq!(
        refused(PathConfig::new(0, 0)),
        "rate_bps: must be at least 1"
    );
    let lossy = Loss::Random { ratio: 1.5 };
    let to = Alteration::Loss(lossy);
    assert_eq!(
        refused(PathConfig {
            schedule: vec![Change { at_ns: 0, to }],
            ..good.clone()
        }),
        "schedule[0].to.loss.random.ratio: must lie between 0 and 1"
    );
    assert_eq!(
        refused(PathConfig {
            loss: Loss::Random { ratio: f64::NAN },
            ..good.clone()
        }),
        "loss.random.ratio: must lie between 0 and 1"
    );
    assert_eq!(
        refused(PathConfig {
            cross_traffic: vec![CrossTraffic::constant(1)],
            ..PathConfig::default()
        }),
        "cross_traffic: needs rate_bps"
    );
    assert_eq!(
        refused(PathConfig {
            queue: drop_tail(0),
            ..good
        }),
        "queue.limit: must be at least 1"
    );
}
