//! `apt`: GridFTP-APT, a golden section search for the number of channels (APT §3).

use super::{Move, Walk};
use crate::{
    Observation,
    format::{Change, Rate, change_percent},
    space::Space,
};

/// (3 - sqrt 5) / 2: where a golden section search cuts.
const NU: f64 = 0.381_966_011_250_105_1;

/// N0 of the paper.
pub(crate) const N0: u32 = 4;

/// Parameters, with the paper's names.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Params {
    /// Channels of the first chunk, at least 1; `None`: what is remembered, else the paper's 4.
    pub n0: Option<u32>,
    /// Growth in the bracket phase, more than 1. The paper uses 2.
    pub alpha: f64,
}

/// A number of channels and the goodput it gave.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Seen {
    n: u32,
    g: f64,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Bracket phase, N under way; the chunks before it, newest last.
    Grow {
        before: Option<Seen>,
        last: Option<Seen>,
        n: u32,
    },
    /// The very first growth did not pay: `l` is under way. *Our reading*: the paper has no N_-2
    /// there.
    Low { l: u32, m: Seen, r: Seen },
    /// Search phase, N under way.
    Search { l: Seen, m: Seen, r: Seen, n: u32 },
    /// Found.
    Rest { m: Seen },
}

pub(crate) struct Apt {
    space: Space,
    alpha: f64,
    phase: Phase,
}

impl Apt {
    pub(crate) fn new(space: Space, n0: u32, alpha: f64) -> Self {
        let n = space.bound_one(f64::from(n0));
        Self {
            space,
            alpha,
            phase: Phase::Grow {
                before: None,
                last: None,
                n,
            },
        }
    }

    fn grow(&mut self, before: Option<Seen>, last: Option<Seen>, now: Seen) -> Move {
        if let Some(last) = last
            && now.g < last.g
        {
            return self.bracketed(before, last, now);
        }
        let n = self.space.bound_one(self.alpha * f64::from(now.n));
        if n == now.n {
            // Our reading: at the bound the bracket is (N_-1, max, max), which leaves the left
            // interval.
            let l = last.unwrap_or(now);
            return self.search(l, now, now, "no room to grow");
        }
        // X = alpha G Delta for the second chunk, G (G / G_-1) Delta later.
        let growth = last.map_or(self.alpha, |last| ratio(now.g, last.g));
        let why = last.map_or_else(
            || format!("{} to begin with", Rate(now.g)),
            |last| format!("goodput {}", Change(change_percent(last.g, now.g))),
        );
        self.phase = Phase::Grow {
            before: last,
            last: Some(now),
            n,
        };
        Move::to([n], why).expecting(now.g * growth)
    }

    /// G(N) < G(N_-1): (l, m, r) = (N_-2, N_-1, N).
    fn bracketed(&mut self, before: Option<Seen>, m: Seen, r: Seen) -> Move {
        if let Some(l) = before {
            return self.search(l, m, r, "bracketed");
        }
        let l = self.space.bound_one(f64::from(m.n) / self.alpha);
        if l >= m.n {
            return self.search(m, m, r, "bracketed");
        }
        self.phase = Phase::Low { l, m, r };
        Move::to([l], "fewer to complete the bracket").expecting(m.g)
    }

    fn search(&mut self, l: Seen, m: Seen, r: Seen, why: &str) -> Move {
        let [x_l, x_m, x_r] = [l, m, r].map(|s| f64::from(s.n));
        let n = self.space.bound_one(if x_m - x_l > x_r - x_m {
            x_l + (x_m - x_l) * NU
        } else {
            x_m + (x_r - x_m) * NU
        });
        if [l.n, m.n, r.n].contains(&n) {
            self.phase = Phase::Rest { m };
            return Move::to([m.n], format!("best of the search, {}", Rate(m.g))).expecting(m.g);
        }
        let (from, to) = if n < m.n { (l, m) } else { (m, r) };
        let xi = f64::from(n - from.n) / f64::from(to.n - from.n);
        self.phase = Phase::Search { l, m, r, n };
        Move::to([n], format!("{why}, bracket {} {} {}", l.n, m.n, r.n))
            .expecting((1.0 - xi) * from.g + xi * to.g)
    }
}

impl Walk for Apt {
    fn name(&self) -> &'static str {
        "apt"
    }

    fn first(&mut self) -> Move {
        let (Phase::Grow { n, .. }
        | Phase::Low { l: n, .. }
        | Phase::Search { n, .. }
        | Phase::Rest { m: Seen { n, .. } }) = self.phase;
        Move::to([n], "to begin with")
    }

    fn step(&mut self, seen: &Observation) -> Move {
        let g = seen.goodput_bps();
        match self.phase {
            Phase::Grow { before, last, n } => self.grow(before, last, Seen { n, g }),
            Phase::Low { l, m, r } => self.search(Seen { n: l, g }, m, r, "bracketed"),
            Phase::Search { l, m, r, n } => {
                let now = Seen { n, g };
                let (l, m, r) = match (now.g > m.g, m.n < now.n) {
                    (true, true) => (m, now, r),
                    (true, false) => (l, now, m),
                    (false, true) => (l, m, now),
                    (false, false) => (now, m, r),
                };
                let better = if now == m { "better" } else { "not better" };
                self.search(l, m, r, &format!("{} {better}", Rate(g)))
            }
            Phase::Rest { m } => Move::to([m.n], format!("found, now {}", Rate(g))).expecting(m.g),
        }
    }
}

fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 1.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Setting;
    use crate::published::tests::{line, trace};

    /// APT §3.5: N0 = 1, alpha = 2, optimum 6.
    #[test]
    fn worked_example_of_the_paper() {
        let visited = trace(Apt::new(line(128), 1, 2.0), 12, |n| {
            100.0
                - if n < 6 {
                    6.0 - f64::from(n)
                } else {
                    1.5 * f64::from(n) - 9.0
                }
        });
        assert_eq!(visited, [1, 2, 4, 8, 6, 7, 5, 6, 6, 6, 6, 6]);
    }

    #[test]
    fn a_first_decrease_measures_the_left_end() {
        let visited = trace(Apt::new(line(128), N0, 2.0), 9, |n| 100.0 - f64::from(n));
        assert_eq!(visited, [4, 8, 2, 6, 5, 3, 3, 3, 3]);
    }

    #[test]
    fn at_the_bound_the_left_interval_is_searched() {
        let visited = trace(Apt::new(line(20), N0, 2.0), 9, f64::from);
        assert_eq!(visited[..4], [4, 8, 16, 20]);
        assert_eq!(visited[8], 20);
    }

    #[test]
    fn expects_what_chunks_are_sized_by() {
        let mut apt = Apt::new(line(128), N0, 2.0);
        let seen = |g: f64| Observation::of_rate(Setting::new(1, 1), g, 1.0);
        let _ = apt.first();
        // alpha G(N_-1)
        assert_eq!(apt.step(&seen(80.0)).expected_bps, Some(160.0));
        // G x G / G_-1
        assert_eq!(apt.step(&seen(160.0)).expected_bps, Some(320.0));
        // Bracket 4 8 16: N = 8 + 8 x 0.382 = 11, xi = 3/8 between G(8) and G(16).
        let search = apt.step(&seen(80.0));
        assert_eq!(search.to, [11]);
        assert_eq!(
            search.expected_bps,
            Some(160.0 * 5.0 / 8.0 + 80.0 * 3.0 / 8.0)
        );
    }
}
