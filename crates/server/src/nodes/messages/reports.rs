//! What data nodes say to front ends.

use std::net::SocketAddr;

use godwit_proto::error::{StorageFailure, TransferFailure};
use serde::{Deserialize, Serialize};

use super::{
    Message, Spans,
    texts::{StorageText, failure_text},
};
use crate::nodes::pulse::Beat;

/// From a data node.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum NodeReport {
    /// To `Hello`. `instance`: differs from node to node and from start to start.
    Welcome {
        version: u32,
        instance: String,
    },
    /// To `Hello`: it takes no orders. The link ends.
    Refused {
        why: String,
    },
    /// To `Look`: what is in the file, or why that cannot be said.
    Seen {
        file: Result<Sight, String>,
    },
    /// To `Listen`.
    Listening {
        address: SocketAddr,
    },
    /// To `ConnectTo`.
    Noted,
    /// To either: it cannot be.
    Unable {
        #[serde(with = "StorageText")]
        failure: StorageFailure,
    },
    /// The data connections of what runs are up.
    Ready {
        transfer: u64,
        reused: bool,
    },
    /// Of what runs, from time to time.
    Progress {
        transfer: u64,
        counts: Counts,
        fresh: Spans,
    },
    /// It is over; nothing touches the file any more.
    Done(Box<Done>),
    Beat(Beat),
}

impl Message for NodeReport {
    const ANSWERS_BEATS: bool = false;

    fn beat(beat: Beat) -> Self {
        Self::Beat(beat)
    }

    fn as_beat(&self) -> Option<Beat> {
        match self {
            Self::Beat(beat) => Some(*beat),
            _ => None,
        }
    }

    fn absorb(&mut self, later: Self) -> Option<Self> {
        match (self, later) {
            (
                Self::Progress {
                    transfer,
                    counts,
                    fresh,
                },
                Self::Progress {
                    transfer: same,
                    counts: now,
                    fresh: more,
                },
            ) if *transfer == same => {
                *counts = now;
                fresh.absorb(&more);
                None
            }
            (_, later) => Some(later),
        }
    }
}

/// The file of a `Look`.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Sight {
    /// Its first bytes.
    pub(crate) text: String,
    pub(crate) inode: u64,
}

/// Numbers of a transfer since it began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Counts {
    /// Payload bytes.
    pub(crate) bytes: u64,
    /// Channels now.
    pub(crate) channels: u32,
    /// What TCP has sent again, where it says so.
    pub(crate) retransmitted: Option<u64>,
}

/// How a transfer ended.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Done {
    pub(crate) transfer: u64,
    pub(crate) counts: Counts,
    /// Safe since the last report.
    pub(crate) fresh: Spans,
    /// `None`: well.
    #[serde(with = "failure_text")]
    pub(crate) failure: Option<TransferFailure>,
    /// The connections stay.
    pub(crate) cached: bool,
    pub(crate) channels_peak: u32,
    /// EODs of a send.
    pub(crate) eods: u64,
}
