//! A full path that others use too: how many channels are fair there.
//!
//! All channels over a bottleneck see about the same window, of any transfer. Copies that each
//! hold a number which follows from that window alone hold the same number, whatever they held
//! before: N = K w channels of w segments. On a path that holds B segments, its queue included, m
//! copies settle where m N w = B, at N = sqrt(K B / m) each. Copies do not outbid each other, and
//! the first has no advantage.
//!
//! More channels than that are given up unasked. Fewer are raised only as long as it pays: one
//! transfer alone on its path gains nothing by it.

use super::point::Point;

/// Channels for each segment of their window. Four copies on 1 Gbit/s, 20 ms and a queue of 500
/// packets hold about 30 each, which is what one alone needs there with 64 KiB windows.
const K: f64 = 1.6;
/// Segments in flight below which a channel waits for timeouts more than it sends: its window says
/// nothing then of how many share the path.
const LEAST: f64 = 4.0;
/// A number that is off by less than this factor is let be.
const NEAR: f64 = 1.25;
/// Epochs in a row, about, that must show contention.
const SEEN: u32 = 2;
/// Epochs before more channels are tried again that bought nothing; doubled each time.
const UNPRODUCTIVE_REST: u32 = 12;
const UNPRODUCTIVE_REST_MAX: u32 = 96;

/// The fair number of channels whose windows are of `window` segments.
pub(super) fn fair(window: f64) -> f64 {
    K * window.max(LEAST)
}

/// What epochs of holding say about contention.
#[derive(Clone, Copy, Debug)]
pub(super) struct Contention {
    /// Mean of the logarithm of the window.
    window_ln: f64,
    streak: u32,
    /// Epochs until more channels may be tried.
    rest: u32,
    next_rest: u32,
    /// Epochs until channels may be given up again.
    hold_off: u32,
}

impl Contention {
    pub(super) const fn new() -> Self {
        Self {
            window_ln: 0.0,
            streak: 0,
            rest: 0,
            next_rest: UNPRODUCTIVE_REST,
            hold_off: 0,
        }
    }

    pub(super) fn note(&mut self, point: &Point) {
        self.rest = self.rest.saturating_sub(1);
        self.hold_off = self.hold_off.saturating_sub(1);
        match point.window.filter(|_| point.is_contended()) {
            Some(window) => {
                let x = window.max(1.0).ln();
                self.window_ln = if self.streak == 0 {
                    x
                } else {
                    f64::midpoint(self.window_ln, x)
                };
                self.streak = (self.streak + 1).min(2 * SEEN);
            }
            None => self.streak = self.streak.saturating_sub(1),
        }
    }

    /// Whether many channels are on the path, of any transfer.
    pub(super) const fn is_present(&self) -> bool {
        self.streak >= SEEN
    }

    /// Whether they are others', as far as is known: had more channels gained nothing, all of them
    /// would be ours.
    pub(super) const fn is_from_others(&self) -> bool {
        self.is_present() && self.may_rise()
    }

    /// The number of channels to go to from `n`, half the way in their logarithms since the others
    /// move too; `None`: stay.
    pub(super) fn step(&self, n: f64) -> Option<f64> {
        if !self.is_present() {
            return None;
        }
        let fair = fair(self.window_ln.exp());
        let wanted = (n * fair).sqrt();
        if n > NEAR * fair {
            (self.hold_off == 0).then_some(wanted.floor())
        } else if n * NEAR < fair && self.may_rise() {
            Some(wanted.ceil())
        } else {
            None
        }
    }

    /// Segments in the window of a channel.
    pub(super) fn window(&self) -> f64 {
        self.window_ln.exp()
    }

    /// Whether more channels may be tried again.
    pub(super) const fn may_rise(&self) -> bool {
        self.rest == 0
    }

    /// More channels were tried, and bought nothing.
    pub(super) fn mark_unproductive(&mut self) {
        self.rest = self.next_rest;
        self.next_rest = (2 * self.next_rest).min(UNPRODUCTIVE_REST_MAX);
    }

    /// No other took the released share: the queue was ours, and packets are lost anyway.
    pub(super) const fn mark_own_queue(&mut self) {
        self.hold_off = UNPRODUCTIVE_REST_MAX;
    }

    /// Others came or went: everything may be worth a look again.
    pub(super) const fn forget(&mut self) {
        self.rest = 0;
        self.next_rest = UNPRODUCTIVE_REST;
        self.hold_off = 0;
    }

    /// The same others, another number of channels.
    pub(super) const fn moved(self) -> Self {
        Self { streak: 0, ..self }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Observation, Setting};

    /// An epoch of `n` channels with windows of `window` segments behind a queue of half a round
    /// trip.
    fn contended(n: u32, window: f64) -> Point {
        let setting = Setting::new(1, n);
        let goodput = window * f64::from(n) * 8.0 * 1448.0 / 0.03;
        let seen = Observation {
            rtt: Some(Duration::from_millis(30)),
            rtt_min: Some(Duration::from_millis(20)),
            ..Observation::of_rate(setting, goodput, 1.0)
        };
        Point::seen(setting, &seen)
    }

    #[test]
    fn channels_that_wait_for_timeouts_are_not_given_up_for_their_windows() {
        assert_eq!(fair(1.0), fair(LEAST));
        assert!(fair(1.0) >= 6.0 && fair(2.0 * LEAST) > fair(LEAST));
    }

    #[test]
    fn copies_converge_to_the_same_number() {
        const SEGMENTS: f64 = 2300.0;
        let mut held: [u32; 4] = [128, 64, 9, 2];
        for _ in 0..8 {
            let window = SEGMENTS / f64::from(held.iter().sum::<u32>());
            held = held.map(|n| {
                let mut contention = Contention::new();
                for _ in 0..SEEN {
                    contention.note(&contended(n, window));
                }
                #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // small numbers
                contention.step(f64::from(n)).map_or(n, |x| x as u32)
            });
        }
        let fair = (K * SEGMENTS / 4.0).sqrt();
        for n in held {
            let off = f64::from(n) / fair;
            assert!((1.0 / NEAR / NEAR..NEAR * NEAR).contains(&off), "{held:?}");
        }
    }

    #[test]
    fn one_epoch_or_large_windows_are_no_contention() {
        let mut contention = Contention::new();
        contention.note(&contended(64, 10.0));
        assert_eq!(contention.step(64.0), None);
        let mut roomy = Contention::new();
        (0..10).for_each(|_| roomy.note(&contended(2, 900.0)));
        assert_eq!(roomy.step(2.0), None);
        assert!(!roomy.is_present());
    }

    #[test]
    fn unproductive_rises_rest_for_longer_and_longer() {
        let mut contention = Contention::new();
        let mut tries = Vec::new();
        for epoch in 0..100 {
            contention.note(&contended(10, 60.0));
            if contention.step(10.0).is_some() {
                tries.push(epoch);
                contention.mark_unproductive();
            }
        }
        assert_eq!(tries, [1, 13, 37, 85]);
    }

    #[test]
    fn missed_channels_are_not_retired_again_soon() {
        let mut contention = Contention::new();
        (0..SEEN).for_each(|_| contention.note(&contended(100, 10.0)));
        assert_eq!(contention.step(100.0), Some(40.0));
        contention.mark_own_queue();
        assert_eq!(contention.step(100.0), None);
        contention.forget();
        assert_eq!(contention.step(100.0), Some(40.0));
    }
}
