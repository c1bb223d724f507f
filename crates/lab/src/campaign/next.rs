//! What runs next: a function of what has run.

/// What a cell needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted {
    /// Runs that count.
    pub runs: u32,
    /// The same where one run was long.
    pub runs_if_long: u32,
    /// Runs that may not count.
    pub spare: u32,
}

/// A run that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DoneRun {
    /// Of which cell and method, by its number.
    pub slot: usize,
    /// It did not fail, was faithful, and the machine was at rest.
    pub counts: bool,
    /// It took long.
    pub long: bool,
}

/// What to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Next {
    /// A run of this cell and method. Its repeat decides its seed: runs that count have different
    /// ones, the same for all cells.
    Run {
        /// Which.
        slot: usize,
        /// From 0.
        repeat: u32,
        /// Runs of this repeat so far and this one.
        attempt: u32,
    },
    /// Nothing; these have fewer than wanted, and no spare run left.
    Finished(Vec<usize>),
}

/// What to do after `done`, with so many slots: repeat by repeat, every other one backwards, so
/// that whatever drifts meets all alike.
pub fn next(slots: usize, done: &[DoneRun], wanted: Wanted) -> Next {
    let runs = match done.iter().any(|run| run.long) {
        true => wanted.runs_if_long,
        false => wanted.runs,
    };
    let mut counts = vec![0_u32; slots];
    // Runs that did not count: all, and since the last that did.
    let mut failed = vec![(0_u32, 0_u32); slots];
    for run in done.iter().filter(|run| run.slot < slots) {
        if run.counts {
            counts[run.slot] += 1;
            failed[run.slot].1 = 0;
        } else {
            failed[run.slot].0 += 1;
            failed[run.slot].1 += 1;
        }
    }
    let open = (0..slots).filter(|slot| counts[*slot] < runs && failed[*slot].0 <= wanted.spare);
    let open: Vec<usize> = open.collect();
    let Some(repeat) = open.iter().map(|slot| counts[*slot]).min() else {
        return Next::Finished((0..slots).filter(|slot| counts[*slot] < runs).collect());
    };
    let mut least = open.into_iter().filter(|slot| counts[*slot] == repeat);
    let slot = if repeat % 2 == 0 {
        least.next()
    } else {
        least.next_back()
    };
    let slot = slot.unwrap_or(0);
    Next::Run {
        slot,
        repeat,
        attempt: failed[slot].1 + 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WANTED: Wanted = Wanted {
        runs: 3,
        runs_if_long: 2,
        spare: 1,
    };

    /// Runs until nothing is left; `outcome` says whether run n of a slot counts, and was long.
    fn all(
        slots: usize,
        outcome: impl Fn(usize, usize) -> (bool, bool),
    ) -> (Vec<(usize, u32)>, Vec<usize>) {
        let (mut done, mut order) = (Vec::new(), Vec::new());
        loop {
            match next(slots, &done, WANTED) {
                Next::Finished(short) => return (order, short),
                Next::Run { slot, repeat, .. } => {
                    let before = done
                        .iter()
                        .filter(|run: &&DoneRun| run.slot == slot)
                        .count();
                    let (counts, long) = outcome(slot, before);
                    done.push(DoneRun { slot, counts, long });
                    order.push((slot, repeat));
                    assert!(order.len() < 100);
                }
            }
        }
    }

    #[test]
    fn repeats_follow_one_another_and_turn_around() {
        let (order, short) = all(3, |_, _| (true, false));
        let expected = [
            (0, 0),
            (1, 0),
            (2, 0),
            (2, 1),
            (1, 1),
            (0, 1),
            (0, 2),
            (1, 2),
            (2, 2),
        ];
        assert_eq!(order, expected);
        assert_eq!(short, [0_usize; 0]);
    }

    #[test]
    fn a_run_that_does_not_count_is_repeated_with_its_seed_until_no_spare_is_left() {
        // The second run of slot 0 does not count, and none of slot 1.
        let (order, short) = all(2, |slot, before| (slot == 0 && before != 1, false));
        let of = |slot| {
            order
                .iter()
                .filter(move |run| run.0 == slot)
                .map(|run| run.1)
        };
        assert_eq!(of(0).collect::<Vec<_>>(), [0, 1, 1, 2]);
        assert_eq!(of(1).collect::<Vec<_>>(), [0, 0]);
        assert_eq!(short, [1]);
    }

    #[test]
    fn long_runs_need_fewer() {
        let (order, short) = all(2, |slot, _| (true, slot == 1));
        assert_eq!((order.len(), short.len()), (4, 0));
    }

    #[test]
    fn what_was_interrupted_continues_as_if_it_had_not_been() {
        let outcome = |slot: usize, before: usize| (!(slot + before).is_multiple_of(3), false);
        let (whole, _) = all(4, outcome);
        // The state is what has run, so any prefix of it gives the rest.
        let mut done: Vec<DoneRun> = Vec::new();
        for (slot, repeat) in whole {
            let Next::Run {
                slot: found,
                repeat: seed,
                ..
            } = next(4, &done.clone(), WANTED)
            else {
                panic!("not finished");
            };
            assert_eq!((found, seed), (slot, repeat));
            let before = done.iter().filter(|run| run.slot == slot).count();
            let (counts, long) = outcome(slot, before);
            done.push(DoneRun { slot, counts, long });
        }
    }
}
