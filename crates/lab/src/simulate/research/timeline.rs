//! What happens when, in seconds.

use std::collections::BTreeMap;

/// Events by time; those of one moment stay in the order in which they were added.
#[derive(Debug)]
pub(super) struct Timeline<E> {
    events: BTreeMap<(u64, u64), E>,
    added: u64,
}

impl<E> Default for Timeline<E> {
    fn default() -> Self {
        Self {
            events: BTreeMap::new(),
            added: 0,
        }
    }
}

impl<E> Timeline<E> {
    pub(super) fn at(&mut self, at_s: f64, event: E) {
        // Bits of floats that are not negative have the order of the floats.
        self.events
            .insert((at_s.max(0.0).to_bits(), self.added), event);
        self.added += 1;
    }

    /// At the next multiple of `grid_s`.
    pub(super) fn on_grid(&mut self, at_s: f64, grid_s: f64, event: E) {
        self.at((at_s / grid_s).ceil() * grid_s, event);
    }

    pub(super) fn next_s(&self) -> Option<f64> {
        let ((bits, _), _) = self.events.first_key_value()?;
        Some(f64::from_bits(*bits))
    }

    /// The next one, if it is not later than now.
    pub(super) fn due(&mut self, now_s: f64) -> Option<E> {
        if self.next_s()? > now_s {
            return None;
        }
        self.events.pop_first().map(|(_, event)| event)
    }
}

#[cfg(test)]
mod tests {
    use super::Timeline;

    #[test]
    fn events_come_by_time_and_then_in_their_order() {
        let mut events = Timeline::default();
        events.at(2.0, "c");
        events.at(1.0, "a");
        events.at(1.0, "b");
        events.on_grid(2.01, 0.5, "d");
        assert_eq!(events.due(0.5), None);
        let all: Vec<_> = std::iter::from_fn(|| events.due(2.5)).collect();
        assert_eq!(all, ["a", "b", "c", "d"]);
    }
}
