//! Holding a point until goodput changes: the last part of Direct's Algorithms 2 and 3.

use crate::format::change_percent;

/// Compares each epoch with the one before.
#[derive(Clone, Copy, Debug)]
pub(super) struct Watch {
    eps: f64,
    last: Option<f64>,
}

impl Watch {
    /// `eps` in percent.
    pub(super) const fn new(eps: f64) -> Self {
        Self { eps, last: None }
    }

    /// Delta_c, where it is more than eps either way.
    pub(super) fn changed(&mut self, goodput_bps: f64) -> Option<f64> {
        let last = self.last.replace(goodput_bps)?;
        let delta = change_percent(last, goodput_bps);
        (delta.abs() > self.eps).then_some(delta)
    }
}
