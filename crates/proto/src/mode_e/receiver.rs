//! The receiving end (GFD.020 MODE E): what a header means on a channel, and when a transfer is
//! whole.
//!
//! ```text
//!   connection opens ──► Fresh/Reused ──header──► InBlock ──payload done──► BetweenBlocks ─┐
//!                            │                        ▲───────────header───────────────────┘
//!                            │ CLOSE alone (reused)      EOD ──► Ended (stop reading: the next
//!                            ▼                                    byte is the next transfer's)
//!                          Retired
//! ```
//! A transfer is complete when EOF was seen and the EODs seen are as many as it announced. Not when
//! all open channels have ended: more may be on the way.

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
    /// An EOF that announces more channels than we would ever accept, or as many EODs without it.
    #[error("{0} channels announced or ended, more than the limit of {1}")]
    TooManyChannels(u64, u64),
    /// A header was handed in for a channel whose EOD was seen: it belongs to the next transfer.
    #[error("a block behind the EOD of its channel")]
    BehindEod,
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
    ends_max: u64,
}

/// What to do behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// This many bytes of payload follow and belong at `offset`; then the next header, unless `end`
    /// says otherwise.
    pub payload_bytes: u64,
    /// Where they belong, relative to the transfer's region.
    pub offset: u64,
    /// This many bytes from `offset` on are zero, and do not follow.
    pub hole_bytes: u64,
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
    /// A transfer that accepts up to `ends_max` EODs: channels over its whole time, not at a time.
    pub fn new(ends_max: u64) -> Self {
        Self {
            eod_seen: 0,
            eod_expected: None,
            ends_max,
        }
    }

    /// Takes a header read on a channel at `position` and moves the position on. After an error the
    /// transfer is broken and its state means nothing.
    pub fn handle_header(
        &mut self,
        position: &mut ChannelPosition,
        header: &BlockHeader,
    ) -> Result<Step, ReceiveError> {
        let d = header.descriptor;
        let was = *position;
        if was == ChannelPosition::Ended {
            return Err(ReceiveError::BehindEod);
        }
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
            if announced > self.ends_max {
                return Err(ReceiveError::TooManyChannels(announced, self.ends_max));
            }
            self.eod_expected = Some(announced);
        }
        let mut end = None;
        if d.contains(Descriptor::EOD) {
            self.eod_seen += 1;
            if self.eod_seen > self.ends_max {
                return Err(ReceiveError::TooManyChannels(self.eod_seen, self.ends_max));
            }
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
            let carries = header.payload_bytes() + header.hole_bytes() != 0;
            if was != ChannelPosition::Reused || carries {
                return Err(ReceiveError::CloseWithoutEod);
            }
            *position = ChannelPosition::Ended;
            end = Some(ChannelEnd::Retired);
        }
        Ok(Step {
            payload_bytes: header.payload_bytes(),
            offset: header.offset,
            hole_bytes: header.hole_bytes(),
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

    /// EOF seen and every announced EOD counted. Payload of the blocks that carried an EOD may
    /// still be under way: the caller must finish reading it.
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

#[cfg(test)]
mod tests {
    use super::*;

    const EOD: Descriptor = Descriptor::EOD;
    const EOF: Descriptor = Descriptor::EOF;
    const CLOSE: Descriptor = Descriptor::CLOSE;

    fn block(descriptor: Descriptor, count: u64, offset: u64) -> BlockHeader {
        BlockHeader {
            descriptor,
            count,
            offset,
        }
    }

    /// Feeds (channel, header) in order, all channels fresh but those listed as reused.
    fn feed(
        headers: &[(usize, BlockHeader)],
        reused: &[usize],
    ) -> (Receiver, Vec<Result<Step, ReceiveError>>) {
        let mut receiver = Receiver::new(100);
        let mut positions = [ChannelPosition::Fresh; 4];
        for channel in reused {
            positions[*channel] = ChannelPosition::Reused;
        }
        let steps = headers
            .iter()
            .map(|(channel, header)| receiver.handle_header(&mut positions[*channel], header))
            .collect();
        (receiver, steps)
    }

    #[test]
    fn gct_with_parallelism_4_and_3000_bytes() {
        let (receiver, steps) = feed(
            &[
                (0, block(Descriptor::DATA, 3000, 0)),
                (1, block(EOD, 0, 0)),
                (0, block(EOF | EOD, 0, 4)),
                (2, block(EOD, 0, 0)),
            ],
            &[],
        );
        assert!(!receiver.is_complete(), "one channel is still on its way");
        assert_eq!(
            steps[0],
            Ok(Step {
                payload_bytes: 3000,
                offset: 0,
                hole_bytes: 0,
                end: None
            })
        );
        assert_eq!(
            steps[2].map(|s| (s.payload_bytes, s.end)),
            Ok((0, Some(ChannelEnd::Keep)))
        );
        let (receiver, _) = feed(
            &[
                (3, block(EOD, 0, 0)),
                (1, block(EOD, 0, 0)),
                (0, block(EOF | EOD, 0, 4)),
                (2, block(EOD, 0, 0)),
            ],
            &[],
        );
        assert!(receiver.is_complete());
    }

    #[test]
    fn eof_first_alone_and_eod_on_data() {
        let (receiver, steps) = feed(
            &[
                (0, block(EOF, 77, 2)), // its count means nothing
                (1, block(EOD, 10, 10)),
                (0, block(Descriptor::DATA, 0, 0)),
                (0, block(EOD | CLOSE, 10, 0)),
            ],
            &[],
        );
        assert!(receiver.is_complete());
        let seen: Vec<_> = steps
            .iter()
            .map(|s| s.map(|s| (s.payload_bytes, s.end)))
            .collect();
        assert_eq!(
            seen,
            [
                Ok((0, None)),
                Ok((10, Some(ChannelEnd::Keep))),
                Ok((0, None)),
                Ok((10, Some(ChannelEnd::Close)))
            ]
        );
    }

    #[test]
    fn goodbye_of_jglobus_on_a_cached_connection() {
        let (receiver, steps) = feed(
            &[(0, block(CLOSE, 0, 0)), (1, block(EOF | EOD, 0, 1))],
            &[0],
        );
        assert_eq!(steps[0].map(|s| s.end), Ok(Some(ChannelEnd::Retired)));
        assert!(receiver.is_complete());
        assert_eq!(receiver.eod_seen(), 1);
    }

    #[test]
    fn violations_have_their_errors() {
        let data = block(Descriptor::DATA, 1, 0);
        for (headers, want) in [
            (
                vec![(0, block(EOF, 0, 1)), (1, block(EOF, 0, 1))],
                ReceiveError::SecondEof,
            ),
            (
                vec![(0, block(EOF, 0, 0))],
                ReceiveError::EodCount {
                    announced: 0,
                    seen: 0,
                },
            ),
            (
                vec![
                    (0, block(EOD, 0, 0)),
                    (1, block(EOD, 0, 0)),
                    (2, block(EOF | EOD, 0, 1)),
                ],
                ReceiveError::EodCount {
                    announced: 1,
                    seen: 2,
                },
            ),
            (
                vec![(0, block(EOF | EOD, 0, 1)), (1, block(EOD, 0, 0))],
                ReceiveError::EodCount {
                    announced: 1,
                    seen: 2,
                },
            ),
            (
                vec![(0, block(EOF, 0, 101))],
                ReceiveError::TooManyChannels(101, 100),
            ),
            (vec![(0, block(CLOSE, 0, 0))], ReceiveError::CloseWithoutEod),
            (
                vec![(0, data), (0, block(CLOSE, 0, 0))],
                ReceiveError::CloseWithoutEod,
            ),
            (
                vec![(0, block(EOD, 0, 0)), (0, data)],
                ReceiveError::BehindEod,
            ),
        ] {
            let (_, steps) = feed(&headers, &[]);
            assert_eq!(steps.last(), Some(&Err(want)), "{headers:?}");
        }
        for carries in [CLOSE, CLOSE | Descriptor::HOLE] {
            let (_, steps) = feed(&[(0, block(carries, 5, 0))], &[0]);
            assert_eq!(steps, [Err(ReceiveError::CloseWithoutEod)]);
        }
    }

    #[test]
    fn a_hole_may_end_a_channel_as_data_may() {
        let (receiver, steps) = feed(
            &[
                (0, block(Descriptor::HOLE | EOD, 3000, 7)),
                (1, block(EOF | EOD, 0, 2)),
            ],
            &[],
        );
        let hole = Step {
            payload_bytes: 0,
            offset: 7,
            hole_bytes: 3000,
            end: Some(ChannelEnd::Keep),
        };
        assert_eq!(steps[0], Ok(hole));
        assert!(receiver.is_complete());
    }

    #[test]
    fn eods_are_bounded_without_eof() {
        let mut receiver = Receiver::new(2);
        let mut ends =
            || receiver.handle_header(&mut ChannelPosition::default(), &block(EOD, 0, 0));
        assert!(ends().is_ok() && ends().is_ok());
        assert_eq!(ends(), Err(ReceiveError::TooManyChannels(3, 2)));
    }

    #[test]
    fn a_close_is_an_error_only_where_an_eod_is_due() {
        let receiver = Receiver::new(1);
        for (position, fine) in [
            (ChannelPosition::Fresh, false),
            (ChannelPosition::Running, false),
            (ChannelPosition::Reused, true),
            (ChannelPosition::Ended, true),
        ] {
            assert_eq!(
                receiver.handle_close(position).is_ok(),
                fine,
                "{position:?}"
            );
        }
    }
}
