//! What `godwit` promises, each on a condition of its own.

use super::*;
use crate::model::{
    Condition,
    arena::{Entrant, Track, run},
    score::{Score, best, score},
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
    Condition::path(965e6, 0.02, 86_000.0)
}

#[test]
fn fills_the_published_path_within_two_seconds() {
    let (score, track) = tuned(&published());
    assert!(
        score.convergence_s <= 2.0,
        "{score:?} {:?}",
        track.decisions
    );
    assert!(score.regret <= 0.02, "{score:?}");
    assert!(score.steady >= 0.98 && score.channels <= 1.5, "{score:?}");
}
