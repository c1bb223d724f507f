//! Lines: what queues wait for, so that a step looks at those that may start and at no others.

use std::ops::RangeInclusive;

use crate::places::LinkId;

/// A node of the tree of shares.
pub(crate) type NodeId = u32;

/// What queues compete for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Domain {
    /// An endpoint; `None`: the slots of all agents.
    pub(crate) endpoint: Option<u32>,
    /// Scavengers compete among themselves.
    pub(crate) scavenger: bool,
}

/// What a queue waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum At {
    /// The slot of an agent.
    Slots,
    /// The same, for the first queue of another line in which something was freed.
    Freed,
    /// Room at an endpoint.
    Endpoint(u32),
    /// Room on a link.
    Link(LinkId),
    /// The end of a unit of a share or of a job.
    Node(NodeId),
}

/// Which units go before which, whatever the shares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Lane {
    /// First units of jobs.
    Fast,
    /// All but scavengers.
    Fair,
    Scavenger,
}

impl Lane {
    pub(crate) const ALL: [Self; 3] = [Self::Fast, Self::Fair, Self::Scavenger];
}

/// Queues that wait for the same and can go to the same agents. The domain says whose tags order
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Line {
    pub(crate) domain: Domain,
    at: At,
    lane: Lane,
    group: u32,
}

impl Line {
    pub(crate) fn new(lane: Lane, at: At, group: u32) -> Self {
        let endpoint = match at {
            At::Slots | At::Freed | At::Node(_) => None,
            At::Endpoint(endpoint) | At::Link((_, endpoint)) => Some(endpoint),
        };
        let domain = Domain {
            endpoint,
            scavenger: lane == Lane::Scavenger,
        };
        Self {
            domain,
            at,
            lane,
            group,
        }
    }

    /// Lines of all groups of agents.
    pub(crate) fn all_at(lane: Lane, at: At) -> RangeInclusive<Self> {
        Self::new(lane, at, 0)..=Self::new(lane, at, u32::MAX)
    }

    /// Lines that the domain orders.
    pub(crate) fn all_of(domain: Domain) -> RangeInclusive<Self> {
        let line = |at, lane, group| Self {
            domain,
            at,
            lane,
            group,
        };
        line(At::Slots, Lane::Fast, 0)..=line(At::Node(NodeId::MAX), Lane::Scavenger, u32::MAX)
    }
}
