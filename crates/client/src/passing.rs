//! Files that pass through this machine from one server to another: which of the two is slower.

/// A server of files that pass through this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Source,
    Destination,
}

impl Side {
    /// The word of the event log.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Source => "source",
            Self::Destination => "destination",
        }
    }

    pub(crate) const fn other(self) -> Self {
        match self {
            Self::Source => Self::Destination,
            Self::Destination => Self::Source,
        }
    }
}

/// How windows were found, summed over looks at them while their sources had more to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct WindowLooks {
    pub(crate) all: u64,
    /// What the destination is to get next had not come.
    pub(crate) empty: u64,
    /// It had bytes for long, and the source waited for room or soon would.
    pub(crate) full: u64,
}

impl WindowLooks {
    /// The side that the other mostly waited for since `earlier`.
    pub(crate) fn slower_since(&self, earlier: &Self) -> Option<Side> {
        let since = |now: u64, then: u64| now.saturating_sub(then);
        let all = since(self.all, earlier.all);
        let is_most = |part: u64| all > 0 && 2 * part > all;
        match () {
            () if is_most(since(self.empty, earlier.empty)) => Some(Side::Source),
            () if is_most(since(self.full, earlier.full)) => Some(Side::Destination),
            () => None,
        }
    }
}
