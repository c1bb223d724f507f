//! OPTS (RFC 2389 §4, GFD.020).

/// What OPTS sets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opts {
    /// `OPTS RETR a=b;c=d;`.
    Retr(RetrOptions),
    /// `OPTS PASV AllowDelayed=1;` (also SPAS, EPSV).
    AllowDelayed(bool),
    /// `OPTS MLST fact;fact;` (also MLSD, MLSR, MLSC): the raw selection.
    Mlst(String),
    /// `OPTS MLSR OnError=continue;TraverseSymbolicLinks=true;`.
    Mlsr {
        /// Go on where a directory cannot be read.
        continue_on_error: bool,
        /// Follow symbolic links.
        follow_links: bool,
    },
    /// `OPTS CKSM Markers=n;`: seconds between 113 replies, 0 for none.
    Cksm {
        /// Seconds.
        marker_seconds: u32,
    },
    /// `OPTS UTF8 ON` or `OFF`.
    Utf8(bool),
}

/// Options of RETR. `None` leaves a value as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetrOptions {
    /// `Parallelism=start,min,max;`.
    pub parallelism: Option<Parallelism>,
    /// `StripeLayout=...`.
    pub layout: Option<crate::mode_e::layout::StripeLayout>,
    /// `PacketSize=n`.
    pub packet_bytes: Option<u64>,
    /// `WindowSize=n`.
    pub window_bytes: Option<u64>,
    /// `Markers=n`: seconds between 112 replies of a RETR.
    pub marker_seconds: Option<u32>,
}

/// Data channels wanted. GCT uses `start` only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallelism {
    /// To begin with.
    pub start: u32,
    /// At least.
    pub min: u32,
    /// At most.
    pub max: u32,
}
