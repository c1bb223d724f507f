//! What happens next: a heap of moments.
//!
//! Packets wait in their links, which are first in, first out; the heap holds one moment for each
//! link and each timer, so it stays small however many packets are under way. Of equal moments the
//! smaller [`Event`] comes first, whatever the order of insertion was.

use std::{cmp::Reverse, collections::BinaryHeap};

/// What is due.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Event {
    /// The next packet comes out of a link.
    Link(u32),
    /// The receiver of a flow sends a delayed acknowledgement.
    DelayedAck(u32),
    /// The retransmission timer of a flow.
    Timer(u32),
    /// A flow opens.
    Open(u32),
}

#[derive(Debug, Default)]
pub(crate) struct Events(BinaryHeap<Reverse<(u64, Event)>>);

impl Events {
    pub(crate) fn push(&mut self, at: u64, event: Event) {
        self.0.push(Reverse((at, event)));
    }

    /// The next event up to `until`.
    pub(crate) fn pop(&mut self, until: u64) -> Option<(u64, Event)> {
        let Reverse((at, _)) = self.0.peek()?;
        if *at > until {
            return None;
        }
        self.0.pop().map(|Reverse(next)| next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_moments_come_in_one_order() {
        let all = [
            (5, Event::Timer(1)),
            (5, Event::Link(9)),
            (3, Event::Open(0)),
        ];
        let drained = |order: [usize; 3]| {
            let mut events = Events::default();
            for at in order {
                events.push(all[at].0, all[at].1);
            }
            std::iter::from_fn(move || events.pop(10)).collect::<Vec<_>>()
        };
        assert_eq!(drained([0, 1, 2]), [all[2], all[1], all[0]]);
        assert_eq!(drained([2, 0, 1]), drained([0, 1, 2]));
    }
}
