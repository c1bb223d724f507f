//! The receiving end (GFD.020 MODE E): what a header means on a channel, and when a transfer is whole.
//!
//! ```text
//!   connection opens ──► Fresh/Reused ──header──► InBlock ──payload done──► BetweenBlocks ─┐
//!                            │                        ▲───────────header───────────────────┘
//!                            │ CLOSE alone (reused)      EOD ──► Ended (stop reading: the next octet is
//!                            ▼                                    the next transfer's)
//!                          Retired
//! ```
//! A transfer is complete when EOF was seen and the EODs seen are as many as it announced. Not when all
//! open channels have ended: more may be on the way.

use super::header::{BadHeader, BlockHeader, Descriptor};

/// What the peer did that MODE E forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReceiveError {
    /// A bad header.
    #[error(transparent)]
    Header(#[from] BadHeader),
    /// EOF came twice.
    #[error("a second EOF block")]
    SecondEof,
    /// EOF announced no EOD at all, or fewer than already seen.
    #[error("EOF announces {announced} channels where {seen} have already ended")]
    EodCount {
        /// From the EOF block.
        announced: u64,
        /// EODs seen.
        seen: u64,
    },
    /// An EOF that announces more channels than we would ever accept.
    #[error("EOF announces {0} channels, more than the limit of {1}")]
    TooManyChannels(u64, u64),
    /// The connection ended inside a block or before its EOD.
    #[error("connection closed before its EOD")]
    ClosedEarly,
    /// CLOSE without EOD after the channel had begun to carry this transfer.
    #[error("CLOSE without EOD in mid-transfer")]
    CloseWithoutEod,
}

/// EOD accounting of one transfer, shared by its channels.
#[derive(Clone, Debug)]
pub struct Receiver {
    eod_seen: u64,
    eod_expected: Option<u64>,
    channels_max: u64,
}

/// What to do behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// This many octets of payload follow and belong at `offset`; then the next header, unless `end` says otherwise.
    pub payload_octets: u64,
    /// Where they belong, relative to the transfer's region.
    pub offset: u64,
    /// What becomes of the channel after that payload.
    pub end: Option<ChannelEnd>,
}

/// How a channel's part in the transfer ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChannelEnd {
    /// EOD: keep the connection for the next transfer.
    Keep,
    /// EOD|CLOSE: close it.
    Close,
    /// CLOSE alone as the first header on a reused connection: not counted; close it.
    Retired,
}

/// Where a channel is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ChannelPosition {
    /// No header of this transfer yet, on a connection made for it.
    #[default]
    Fresh,
    /// No header of this transfer yet, on a connection that carried an earlier one.
    Reused,
    /// Some header of this transfer was seen.
    Running,
    /// Its EOD was seen.
    Ended,
}

impl Receiver {
    /// A transfer that accepts up to `channels_max` EODs.
    pub fn new(channels_max: u64) -> Self {
        Self {
            eod_seen: 0,
            eod_expected: None,
            channels_max,
        }
    }

    /// Takes a header read on a channel at `position` and moves the position on.
    pub fn handle_header(
        &mut self,
        position: &mut ChannelPosition,
        header: &BlockHeader,
    ) -> Result<Step, ReceiveError> {
        let d = header.descriptor;
        let was = *position;
        *position = ChannelPosition::Running;
        if d.contains(Descriptor::EOF) {
            if self.eod_expected.is_some() {
                return Err(ReceiveError::SecondEof);
            }
            let announced = header.offset;
            if announced == 0 || announced < self.eod_seen {
                return Err(ReceiveError::EodCount {
                    announced,
                    seen: self.eod_seen,
                });
            }
            if announced > self.channels_max {
                return Err(ReceiveError::TooManyChannels(announced, self.channels_max));
            }
            self.eod_expected = Some(announced);
        }
        let mut end = None;
        if d.contains(Descriptor::EOD) {
            self.eod_seen += 1;
            if let Some(announced) = self.eod_expected
                && announced < self.eod_seen
            {
                return Err(ReceiveError::EodCount {
                    announced,
                    seen: self.eod_seen,
                });
            }
            *position = ChannelPosition::Ended;
            end = Some(if d.contains(Descriptor::CLOSE) {
                ChannelEnd::Close
            } else {
                ChannelEnd::Keep
            });
        } else if d.contains(Descriptor::CLOSE) {
            if was != ChannelPosition::Reused || header.payload_octets() != 0 {
                return Err(ReceiveError::CloseWithoutEod);
            }
            *position = ChannelPosition::Ended;
            end = Some(ChannelEnd::Retired);
        }
        Ok(Step {
            payload_octets: header.payload_octets(),
            offset: header.offset,
            end,
        })
    }

    /// The peer closed a connection between blocks. Fine before any header on a reused connection
    /// (the peer dropped a cached channel) and after EOD; else the transfer is broken.
    pub fn handle_close(&self, position: ChannelPosition) -> Result<(), ReceiveError> {
        match position {
            ChannelPosition::Reused | ChannelPosition::Ended => Ok(()),
            ChannelPosition::Fresh | ChannelPosition::Running => Err(ReceiveError::ClosedEarly),
        }
    }

    /// EOF seen and every announced EOD counted. Payload of the blocks that carried an EOD may still be
    /// under way: the caller must finish reading it.
    pub fn is_complete(&self) -> bool {
        self.eod_expected == Some(self.eod_seen)
    }

    /// EODs counted so far.
    pub fn eod_seen(&self) -> u64 {
        self.eod_seen
    }

    /// EODs announced by EOF.
    pub fn eod_expected(&self) -> Option<u64> {
        self.eod_expected
    }
}
