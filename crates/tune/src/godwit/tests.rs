//! What `godwit` promises, each on a condition of its own.

use std::time::Duration;

use super::*;
use crate::model::{
    Condition, Cpu, Load,
    arena::{Entrant, Track, run, run_together},
    score::{Score, best, jain, score},
};

const BOUNDS: Bounds = Bounds::up_to(128);

fn entrant(from_s: f64) -> Entrant {
    Entrant {
        tuner: Box::new(Godwit::new(None, BOUNDS)),
        epoch_s: 1.0,
        from_s,
    }
}

fn tuned(condition: &Condition) -> (Score, Track) {
    let track = run(entrant(0.0), condition, 1);
    (score(&track, condition, &best(condition, BOUNDS)), track)
}

/// 1 Gbit/s, 20 ms, 64 KiB of window as Linux makes it: 34.4 Mbit/s a channel.
fn published() -> Condition {
    Condition {
        noise: 0.02,
        ..Condition::path(965e6, 0.02, 86_000.0)
    }
}

#[test]
fn fills_the_published_path_within_two_seconds() {
    for evidence in [false, true] {
        let (score, track) = tuned(&Condition {
            evidence,
            ..published()
        });
        assert!(
            score.convergence_s <= 2.0,
            "{score:?} {:?}",
            track.decisions
        );
        assert!(score.regret <= 0.02, "{score:?}");
        assert!(score.steady >= 0.98 && score.channels <= 1.5, "{score:?}");
    }
}

#[test]
fn one_channel_that_fills_the_path_stays_nearly_alone() {
    let (score, track) = tuned(&Condition {
        window_bytes: 1e7,
        ..published()
    });
    assert!(
        score.steady >= 0.98 && score.channels <= 2.0,
        "{score:?} {:?}",
        track.decisions
    );
}

#[test]
fn grows_on_while_goodput_rises_with_channels() {
    let lossy = Condition {
        capacity_bps: 1e10,
        loss: 1e-4,
        window_bytes: 1e8,
        ..published()
    };
    let (score, _) = tuned(&lossy);
    assert!(score.steady >= 0.95 && score.regret <= 0.03, "{score:?}");
}

#[test]
fn movers_are_kept_only_where_they_pay() {
    let loaded = |by_group| Condition {
        cpu: Some(Cpu {
            cores: 4.0,
            core_bps: 400e6,
            by_group,
        }),
        loads: vec![Load {
            busy: 16,
            ..Load::default()
        }],
        window_bytes: 1e7,
        ..published()
    };
    let (score, track) = tuned(&loaded(false));
    assert!(score.steady >= 0.95, "{score:?} {:?}", track.decisions);
    let (score, track) = tuned(&loaded(true));
    assert!(score.steady >= 0.98, "{score:?} {:?}", track.decisions);
    assert!(
        track.channels[track.channels.len() - 1] <= 8,
        "{:?}",
        track.decisions
    );
}

#[test]
fn storage_that_binds_ends_the_growth() {
    let slow = Condition {
        storage_bps: Some(200e6),
        evidence: true,
        ..published()
    };
    let (score, track) = tuned(&slow);
    assert!(
        score.steady >= 0.98 && score.channels <= 2.0,
        "{score:?} {:?}",
        track.decisions
    );
}

#[test]
fn load_that_comes_and_goes_is_answered_within_ten_seconds() {
    let mut varying = Condition {
        seconds: 90.0,
        ..published()
    };
    varying.loads.push(Load {
        from_s: 30.0,
        constant: 0.5,
        ..Load::default()
    });
    varying.loads.push(Load {
        from_s: 60.0,
        ..Load::default()
    });
    let (score, track) = tuned(&varying);
    assert!(
        score.adaptation_s <= 10.0,
        "{score:?} {:?}",
        track.decisions
    );
}

#[test]
fn copies_share_and_one_alone_does_not_drift() {
    let path = Condition {
        seconds: 120.0,
        evidence: true,
        ..published()
    };
    let starts = [0.0, 10.0, 20.0, 30.0];
    let index_of = |seed| {
        let tracks = run_together(starts.map(entrant).into(), &path, seed);
        let last_third = |track: &Track| {
            track.goodput_bps[track.goodput_bps.len() * 2 / 3..]
                .iter()
                .sum()
        };
        jain(&tracks.iter().map(last_third).collect::<Vec<f64>>())
    };
    let mut indices: Vec<f64> = (0..10).map(index_of).collect();
    indices.sort_by(f64::total_cmp);
    assert!(indices[5] >= 0.95 && indices[0] >= 0.8, "{indices:?}");
    let (score, _) = tuned(&path);
    assert!(score.channels <= 1.5, "{score:?}");
}

#[test]
fn a_remembered_setting_is_measured_first() {
    let mut tuner = Godwit::new(Some(Setting::new(1, 100)), BOUNDS);
    let mut at = tuner.first().setting;
    assert_eq!(at, Setting::new(1, 100));
    for _ in 0..20 {
        at = tuner.decide(&Observation::of_rate(at, 1e9, 0.5)).setting;
    }
    assert!(at.channels() <= 4, "{at}");
}

#[test]
fn a_search_begins_with_more_channels_where_round_trips_are_long() {
    let begun = |bounds: Bounds, ms: u64| {
        let mut tuner = Godwit::new(None, bounds);
        let first = tuner.first().setting;
        let over = tuner.begin_over(Duration::from_millis(ms));
        over.map_or(first, |decision| decision.setting)
    };
    for (ms, channels) in [(0, 2), (20, 2), (45, 4), (100, 8), (150, 16), (600, 16)] {
        assert_eq!(begun(BOUNDS, ms), Setting::new(1, channels), "{ms} ms");
    }
    assert_eq!(begun(Bounds::up_to(4), 150), Setting::new(1, 4));
    // Channels of the user's number are no reason for more sessions.
    let four_each = Bounds {
        parallelism: Some(4),
        ..BOUNDS
    };
    assert_eq!(begun(four_each, 150), Setting::new(1, 4));
    let two_movers = Bounds {
        concurrency: Some(2),
        ..BOUNDS
    };
    assert_eq!(begun(two_movers, 150), Setting::new(2, 8));
}

#[test]
fn what_is_remembered_or_measured_counts_more_than_the_round_trip() {
    let far = Duration::from_millis(150);
    let mut remembering = Godwit::new(Some(Setting::new(1, 3)), BOUNDS);
    assert_eq!(remembering.begin_over(far), None);
    let mut late = Godwit::new(None, BOUNDS);
    let first = late.first().setting;
    late.decide(&Observation::of_rate(first, 1e9, 0.5));
    assert_eq!(late.begin_over(far), None);
}

/// All windows of a beginning meet their first losses together, and are small for a while.
#[test]
fn many_channels_that_fill_a_path_at_once_are_enough() {
    let mut tuner = Godwit::new(None, BOUNDS);
    let _ = tuner.first();
    let begun = tuner.begin_over(Duration::from_millis(90)).unwrap().setting;
    let full = Observation {
        rtt: Some(Duration::from_millis(220)),
        rtt_min: Some(Duration::from_millis(90)),
        loss_ratio: Some(0.15),
        ..Observation::of_rate(begun, 40e6, 0.4)
    };
    assert_eq!(tuner.decide(&full).setting, begun);
    // Windows that have been open for long are small because of others.
    let remembered = Setting::new(1, 8);
    let mut tuner = Godwit::new(Some(remembered), BOUNDS);
    let among_others = Observation {
        rtt: full.rtt,
        rtt_min: full.rtt_min,
        loss_ratio: Some(0.001),
        ..Observation::of_rate(remembered, 40e6, 0.4)
    };
    assert!(tuner.decide(&among_others).setting.channels() > 8);
}

/// Full windows without a queue are all needed, whatever a leap above them met.
#[test]
fn no_fewer_are_tried_than_full_windows_without_a_queue() {
    let mut tuner = Godwit::new(None, BOUNDS);
    let _ = tuner.first();
    let mut at = tuner
        .begin_over(Duration::from_millis(130))
        .unwrap()
        .setting;
    let mut tried = vec![at.channels()];
    for _ in 0..4 {
        let fills = at.channels() > 16;
        let seen = Observation {
            receive_window_limited: Some(if fills { 0.1 } else { 0.9 }),
            loss_ratio: Some(if at.channels() > 32 { 0.1 } else { 0.0 }),
            rtt: Some(Duration::from_millis(if at.channels() > 32 {
                170
            } else {
                132
            })),
            rtt_min: Some(Duration::from_millis(130)),
            // Windows that met losses are small for some seconds.
            ..Observation::of_rate(at, if at.channels() > 32 { 546e6 } else { 450e6 }, 0.5)
        };
        at = tuner.decide(&seen).setting;
        tried.push(at.channels());
    }
    assert!(
        tried.contains(&64) && tried.iter().all(|n| *n >= 16),
        "{tried:?}"
    );
}

/// Channels beyond those that a path with random loss can use only lose more.
#[test]
fn goodput_that_loses_much_more_does_not_pay() {
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting;
    for _ in 0..20 {
        let seen = Observation {
            rtt: Some(Duration::from_millis(180)),
            rtt_min: Some(Duration::from_millis(150)),
            loss_ratio: Some(if at.channels() > 16 { 0.2 } else { 0.08 }),
            ..Observation::of_rate(at, 8e6 * f64::from(at.channels()).powf(0.1), 0.8)
        };
        at = tuner.decide(&seen).setting;
    }
    assert!(at.channels() <= 16, "{at}");
}

#[test]
fn reasons_carry_numbers() {
    let (_, track) = tuned(&Condition {
        evidence: true,
        noise: 0.0,
        ..published()
    });
    let reasons: Vec<&str> = track
        .decisions
        .iter()
        .map(|(_, d)| d.rationale.as_str())
        .collect();
    assert_eq!(
        reasons[..4],
        [
            "1 x 2: to begin with",
            "1 x 2 -> 1 x 8: 67.6 Mbit/s, limited by receive-window",
            "1 x 8 -> 1 x 32: 4.0 times the goodput with 4.0 times the channels",
            "1 x 32: 953 Mbit/s is what there is to get",
        ]
    );
}

/// Slow starts run ahead of losses: what a search sees may be gone a second later.
#[test]
fn goodput_that_does_not_last_is_searched_for_again() {
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting;
    let mut epochs_at = 0;
    for _ in 0..60 {
        epochs_at += 1;
        // 25 Mbit/s a channel, three times as much at first, 1 Gbit/s together.
        let each = if epochs_at == 1 { 75e6 } else { 25e6 };
        let goodput = (each * f64::from(at.channels())).min(1e9);
        let next = tuner
            .decide(&Observation::of_rate(at, goodput, 0.5))
            .setting;
        if next.channels() > at.channels() {
            epochs_at = 0;
        }
        at = next;
    }
    assert!(at.channels() >= 36, "{at}");
}

#[test]
fn channels_that_are_left_get_time_to_recover() {
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting;
    let mut before = at;
    let mut contended = false;
    for _ in 0..60 {
        let full = (34e6 * f64::from(at.channels())).min(965e6);
        contended |= at.channels() >= 64;
        let retired = contended && at.channels() < before.channels();
        before = at;
        at = tuner
            .decide(&Observation::of_rate(
                at,
                full * if retired { 0.86 } else { 1.0 },
                0.4,
            ))
            .setting;
    }
    assert!((29..=40).contains(&at.channels()), "{at}");
}

/// Channels held after a minute beside `others` connections, all with windows that find their size
/// in some seconds.
fn held_beside(others: f64) -> u32 {
    const EPOCH_S: f64 = 0.5;
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting;
    // Ours on 1 Gbit/s: fresh channels begin with half of a share, and grow into all of it.
    let share = |n: u32| f64::from(n) / (f64::from(n) + others);
    let mut ours = share(at.channels()) / 2.0;
    for epoch in 0..120_u32 {
        ours += (share(at.channels()) - ours) * EPOCH_S / 6.0;
        // Everybody's windows halve now and then.
        let wave = 1.0 + 0.06 * (f64::from(epoch) * 1.7).sin();
        let seen = Observation {
            rtt: Some(Duration::from_millis(36)),
            rtt_min: Some(Duration::from_millis(26)),
            ..Observation::of_rate(at, 960e6 * ours * wave, EPOCH_S)
        };
        let next = tuner.decide(&seen).setting;
        let (now, then) = (f64::from(at.channels()), f64::from(next.channels()));
        if then > now {
            ours += (share(next.channels()) - ours).max(0.0) * (1.0 - now / then);
        } else {
            ours *= then / now;
        }
        at = next;
    }
    at.channels()
}

#[test]
fn one_foreign_connection_keeps_a_third_of_its_fair_share() {
    let held = held_beside(1.0);
    assert!(1.0 / (f64::from(held) + 1.0) >= 0.5 / 3.0, "{held}");
}

#[test]
fn many_connections_of_others_leave_room_for_more_than_two() {
    let held = held_beside(24.0);
    // On the way the windows become small, and a contended path has its own rule.
    assert!((4..=64).contains(&held), "{held}");
}

/// Epochs at 965 Mbit/s, `full` of them with a queue, then with hardly any: fewer than after which
/// a full path is looked at again.
fn after_a_queue(full: usize) -> Vec<String> {
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting;
    let seen = |at, rtt| Observation {
        rtt: Some(Duration::from_millis(rtt)),
        rtt_min: Some(Duration::from_millis(60)),
        cpu_wait: Some(0.0),
        cpu_busy: Some(0.2),
        ..Observation::new(at, 60_300_000, 0.5)
    };
    (0..20)
        .map(|epoch| {
            let decision = tuner.decide(&seen(at, if epoch < full { 110 } else { 64 }));
            at = decision.setting;
            decision.rationale
        })
        .collect()
}

#[test]
fn a_path_once_full_at_this_rate_counts_as_full_without_a_queue() {
    let moves = |decisions: &[String]| decisions.iter().any(|why| why.contains("->"));
    let (seen_full, unknown) = (after_a_queue(2), after_a_queue(0));
    assert!(!moves(&seen_full), "{seen_full:?}");
    assert!(moves(&unknown), "{unknown:?}");
}

/// An epoch over a path that loses one packet of a thousand, with a queue of so many round trips.
fn lossy(channels: u32, goodput_bps: f64, round_trip: Duration, queue: f64) -> Observation {
    Observation {
        loss_ratio: Some(1e-3),
        rtt: Some(round_trip.mul_f64(1.0 + queue)),
        rtt_min: Some(round_trip),
        ..Observation::of_rate(Setting::new(1, channels), goodput_bps, 1.0)
    }
}

/// What is decided after these epochs, of channels and Mbit/s, each of them seen so.
fn after(epochs: &[(u32, f64)], seen: impl Fn(u32, f64) -> Observation) -> u32 {
    let mut tuner = Godwit::new(None, BOUNDS);
    let mut at = tuner.first().setting.channels();
    for (n, (channels, mbps)) in epochs.iter().enumerate() {
        assert_eq!(at, *channels, "before epoch {n}");
        at = tuner.decide(&seen(at, mbps * 1e6)).setting.channels();
    }
    at
}

/// The same under loss: there is a queue from 900 Mbit/s on.
fn after_losses(round_trip_ms: u64, epochs: &[(u32, f64)]) -> u32 {
    let round_trip = Duration::from_millis(round_trip_ms);
    after(epochs, |at, bps| {
        lossy(at, bps, round_trip, if bps >= 900e6 { 0.8 } else { 0.0 })
    })
}

/// The same with full windows; from 8 channels on round trips are longer by this factor.
fn after_windows(queue: f64, epochs: &[(u32, f64)]) -> u32 {
    let round_trip = Duration::from_millis(60);
    after(epochs, |at, bps| Observation {
        receive_window_limited: Some(0.9),
        rtt: Some(round_trip.mul_f64(if at >= 8 { queue } else { 1.0 })),
        rtt_min: Some(round_trip),
        ..Observation::of_rate(Setting::new(1, at), bps, 1.0)
    })
}

#[test]
fn windows_that_were_late_do_not_end_the_growth() {
    assert_eq!(after_windows(1.0, &[(2, 8.0), (8, 32.0)]), 32);
    assert_eq!(after_windows(1.0, &[(2, 8.0), (8, 16.0)]), 16);
    // More give nothing at all: a reader is slow.
    assert!(after_windows(1.0, &[(2, 8.0), (8, 8.5)]) < 8);
}

#[test]
fn a_queue_ends_the_growth_where_goodput_does_not_rise_with_channels() {
    // Four would do, and a third more is to spare.
    assert_eq!(after_windows(1.2, &[(2, 8.0), (8, 16.0)]), 6);
    // It does: the queue is of other causes, or just begins.
    assert_eq!(after_windows(1.2, &[(2, 8.0), (8, 32.0)]), 16);
}

#[test]
fn channels_that_each_add_their_rate_under_loss_are_leapt_to() {
    assert_eq!(after_losses(60, &[(2, 16.0)]), 8);
    assert_eq!(after_losses(60, &[(2, 16.0), (8, 60.0)]), 32);
    // An epoch takes seconds there.
    assert_eq!(after_losses(250, &[(2, 3.0)]), 16);
    // What the first one gave before it had lost anything is not gone back to.
    assert!(after_losses(60, &[(2, 160.0), (8, 60.0)]) > 8);
}

#[test]
fn a_path_that_fresh_channels_fill_gets_as_many_as_will_fill_it() {
    // 38.6 segments in flight each, 7.45 Mbit/s.
    let lasting = after_losses(60, &[(2, 16.0), (8, 60.0), (32, 900.0)]);
    assert_eq!(lasting, 121);
    let full = [(2, 16.0), (8, 60.0), (32, 900.0), (121, 950.0)];
    assert_eq!(after_losses(60, &full), 121);
}
