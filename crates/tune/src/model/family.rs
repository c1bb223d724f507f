//! Kinds of conditions.

use std::fmt;

/// A kind of condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// Windows too small for the path, from one channel that fills it to a hundred.
    Window,
    /// One channel fills the path.
    OneIsEnough,
    /// Queues so short that a single channel does not fill the path.
    Shallow,
    /// Random loss, the path far from full.
    Lossy,
    /// Traffic that does not yield takes a share.
    Background,
    /// Greedy connections of others share the bottleneck.
    Contended,
    /// Busy processes, time shared by thread.
    CpuByThread,
    /// Busy processes, time shared by group: concurrency buys nothing.
    CpuByGroup,
    /// Storage is slower than the path.
    Storage,
    /// Load comes and goes half-way.
    Varying,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Window,
        Self::OneIsEnough,
        Self::Shallow,
        Self::Lossy,
        Self::Background,
        Self::Contended,
        Self::CpuByThread,
        Self::CpuByGroup,
        Self::Storage,
        Self::Varying,
    ];

    /// As tables show it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Window => "window",
            Self::OneIsEnough => "one-is-enough",
            Self::Shallow => "shallow",
            Self::Lossy => "lossy",
            Self::Background => "background",
            Self::Contended => "contended",
            Self::CpuByThread => "cpu-by-thread",
            Self::CpuByGroup => "cpu-by-group",
            Self::Storage => "storage",
            Self::Varying => "varying",
        }
    }
}

impl fmt::Display for Family {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
