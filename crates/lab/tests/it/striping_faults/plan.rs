//! Which fault happens to a striped transfer, and when: plain values, drawn from a seed.

use std::fmt;
use std::time::Duration;

use godwit_lab::path::Rng;

use super::liar::Lie;

/// What goes wrong with a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// SIGKILL.
    Killed,
    /// SIGTERM.
    Drained,
    /// SIGSTOP, and SIGCONT later.
    Stopped,
    /// Nothing passes its links, until later.
    Cut,
    /// All takes 400 ms more, until later.
    Delayed,
    /// One packet in twenty is lost, until later.
    Lossy,
    /// It tells its front end what is not so, once.
    Lying(Lie),
}

/// Which way the file goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// From the client to a striped server.
    Put,
    /// From a striped server to the client.
    Get,
    /// From a server without nodes to a striped one.
    Between,
}

/// One copy, and what goes wrong meanwhile.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fault {
    pub(super) number: u64,
    pub(super) kind: Kind,
    pub(super) way: Way,
    /// Which node, from 0.
    pub(super) node: usize,
    /// How much lies at the target when it happens, in thousandths.
    pub(super) at_per_mille: u64,
    /// How long it lasts, where it ends.
    pub(super) lasts: Duration,
    /// Data channels a stripe.
    pub(super) parallelism: u32,
}

/// Nodes of the server.
pub(super) const NODES: usize = 3;

/// Kinds, in turn: each is as frequent as the others.
const KINDS: u64 = 7;

impl Fault {
    /// The fault of this number in the campaign of `seed`.
    pub(super) fn draw(seed: u64, number: u64) -> Fault {
        let mut rng = Rng::new(seed, number);
        let kind = match number % KINDS {
            0 => Kind::Killed,
            1 => Kind::Cut,
            2 => Kind::Lying(Lie::ALL[below(&mut rng, Lie::ALL.len())]),
            3 => Kind::Drained,
            4 => Kind::Stopped,
            5 => Kind::Delayed,
            _ => Kind::Lossy,
        };
        let ways = [Way::Put, Way::Get, Way::Between];
        Fault {
            number,
            kind,
            way: ways[below(&mut rng, ways.len())],
            node: below(&mut rng, NODES),
            at_per_mille: rng.up_to(950),
            lasts: Duration::from_millis(200 + rng.up_to(4000)),
            parallelism: [1, 2, 4][below(&mut rng, 3)],
        }
    }
}

fn below(rng: &mut Rng, count: usize) -> usize {
    usize::try_from(rng.up_to(count as u64 - 1)).expect("small")
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "fault {}: {:?}, {:?} with -p {}, node {} when {} of 1000 are there, for {:?}",
            self.number,
            self.way,
            self.kind,
            self.parallelism,
            self.node + 1,
            self.at_per_mille,
            self.lasts
        )
    }
}
