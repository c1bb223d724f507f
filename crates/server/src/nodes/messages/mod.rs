//! The messages of a node link: JSON, each of at most [`MESSAGE_MAX`] bytes behind its length.
//!
//! ```text
//!   front end                                             data node
//!   Hello ──────────────────────────────────────────────► Welcome
//!   Look ───────────────────────────────────────────────► Seen            (health)
//!   Login, then Listen or ConnectTo ────────────────────► Listening, Noted
//!   Start ──────────────────────────────────────────────► Ready, Progress..., Done
//!   Abort, Drain, Steer: to what runs      Drop: channels, too      Beat: both, all the time
//! ```
//! The first message and its answer are the same in every version.

//!
//! - [`orders`], [`reports`]: the two directions; `texts`: types of other crates

mod orders;
mod reports;
mod texts;

use godwit_proto::{ByteRange, RangeSet};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

pub(crate) use self::{
    orders::{Family, Form, Job, LastEod, NodeAccount, NodeOrder, SameFile, Share, Spec, Start},
    reports::{Counts, Done, NodeReport, Sight},
};
use super::pulse::Beat;

/// Version of the messages. Front end and nodes have the same.
pub(crate) const VERSION: u32 = 3;

/// Bytes of a message. The largest is the order to send what a REST of 4096 ranges leaves.
pub(crate) const MESSAGE_MAX: usize = 256 * 1024;

/// Bytes of the first message, which comes from someone who is not known yet.
pub(crate) const FIRST_MESSAGE_MAX: usize = 4 * 1024;

/// Ranges of an order and of a report. More follow in the next report.
pub(crate) const RANGES_MAX: usize = 4200;

/// Bytes of a name and of a text for people.
const TEXT_MAX: usize = 1024;

/// What both ends say.
pub(crate) trait Message: Serialize + DeserializeOwned + Send {
    /// Who says it answers each beat of the other end at once. One end does.
    const ANSWERS_BEATS: bool;

    /// Says that this end lives.
    fn beat(beat: Beat) -> Self;
    fn as_beat(&self) -> Option<Beat>;
    /// Says what `later` says, too, where one message can; else gives it back.
    fn absorb(&mut self, later: Self) -> Option<Self>
    where
        Self: Sized,
    {
        Some(later)
    }
}

/// Ranges, as pairs; of the other end no more than [`RANGES_MAX`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Vec<(u64, u64)>")]
pub(crate) struct Spans(Vec<(u64, u64)>);

impl TryFrom<Vec<(u64, u64)>> for Spans {
    type Error = String;

    fn try_from(pairs: Vec<(u64, u64)>) -> Result<Self, String> {
        match pairs.len() {
            0..=RANGES_MAX => Ok(Self(pairs)),
            count => Err(format!("{count} ranges; the most are {RANGES_MAX}")),
        }
    }
}

impl Spans {
    /// The first [`RANGES_MAX`] of `ranges`, which it takes out.
    pub(crate) fn take(ranges: &mut RangeSet) -> Self {
        let some: Vec<ByteRange> = ranges.iter().take(RANGES_MAX).collect();
        some.iter().for_each(|range| ranges.remove(*range));
        Self::of(&some)
    }

    pub(crate) fn of(ranges: &[ByteRange]) -> Self {
        Self(ranges.iter().map(|r| (r.start, r.end)).collect())
    }

    /// Adds `later`; of more than [`RANGES_MAX`] ranges those that fit. What is left out counts as
    /// not safe.
    fn absorb(&mut self, later: &Self) {
        let mut all: RangeSet = self.ranges().into_iter().collect();
        let later: RangeSet = later.ranges().into_iter().collect();
        all.union_within(&later, RANGES_MAX);
        *self = Self::take(&mut all);
    }

    /// In order; without those that are empty or backwards.
    pub(crate) fn ranges(&self) -> Vec<ByteRange> {
        let set: RangeSet = (self.0.iter())
            .filter_map(|(start, end)| ByteRange::new(*start, *end))
            .collect();
        set.iter().collect()
    }
}

/// An invalid message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadNodeMessage {
    #[error("a message of {0} bytes; the most are {MESSAGE_MAX}")]
    TooLong(usize),
    #[error("an invalid message: {0}")]
    Malformed(#[from] serde_json::Error),
}

/// Length and message.
pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BadNodeMessage> {
    let mut bytes = vec![0; 4];
    serde_json::to_writer(&mut bytes, message)?;
    let length = bytes.len() - 4;
    match u32::try_from(length) {
        Ok(short) if length <= MESSAGE_MAX => bytes[..4].copy_from_slice(&short.to_be_bytes()),
        _ => return Err(BadNodeMessage::TooLong(length)),
    }
    Ok(bytes)
}

/// Takes the first message out of `bytes`; `None` while it is not whole.
pub(crate) fn decode<T: DeserializeOwned>(
    bytes: &mut Vec<u8>,
) -> Result<Option<T>, BadNodeMessage> {
    let Some((head, rest)) = bytes.split_first_chunk::<4>() else {
        return Ok(None);
    };
    let length = usize::try_from(u32::from_be_bytes(*head)).unwrap_or(usize::MAX);
    if length > MESSAGE_MAX {
        return Err(BadNodeMessage::TooLong(length));
    }
    let Some(text) = rest.get(..length) else {
        return Ok(None);
    };
    let message = serde_json::from_slice(text)?;
    bytes.drain(..4 + length);
    Ok(Some(message))
}

/// A text of the other end for people: no more than a kilobyte, on one line.
pub(crate) fn shown(text: &str) -> String {
    let end = text.floor_char_boundary(TEXT_MAX);
    text[..end].replace(char::is_control, " ")
}

#[cfg(test)]
mod tests {
    use godwit_proto::{
        FtpPath,
        command::Mode,
        error::{StorageFailure, TransferFailure},
    };

    use super::*;

    #[test]
    fn a_message_in_pieces_is_one_message() {
        let order = NodeOrder::Start(Box::new(Start {
            transfer: 1,
            job: Job::Send {
                path: FtpPath::new(b"/caf\xe9".to_vec()).unwrap(),
                file: SameFile::Inode(5),
                base: 7,
                ranges: Spans(vec![(0, 5), (9, 12)]),
                ascii: false,
            },
            mode: Mode::ExtendedBlock,
        }));
        let whole = encode(&order).unwrap();
        let mut bytes = Vec::new();
        for (at, byte) in whole.iter().enumerate() {
            assert!(decode::<NodeOrder>(&mut bytes).unwrap().is_none(), "{at}");
            bytes.push(*byte);
        }
        let beat = Beat {
            sent: 5,
            heard: None,
        };
        bytes.extend(encode(&NodeOrder::beat(beat)).unwrap());
        let read = decode::<NodeOrder>(&mut bytes).unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{order:?}"));
        let read = decode::<NodeOrder>(&mut bytes).unwrap().unwrap();
        assert_eq!(read.as_beat(), Some(beat));
        assert!(bytes.is_empty());
    }

    #[test]
    fn what_is_too_long_or_not_known_is_refused() {
        let mut long = u32::try_from(MESSAGE_MAX + 1)
            .unwrap()
            .to_be_bytes()
            .to_vec();
        assert!(
            decode::<NodeOrder>(&mut long).is_err(),
            "before it has come"
        );
        let framed = |text: &str| {
            let length = u32::try_from(text.len()).unwrap();
            [&length.to_be_bytes(), text.as_bytes()].concat()
        };
        for text in [
            r#""Other""#,
            r#"{"Hello":{"version":1,"more":2}}"#,
            r#"{"Steer":{"channels":-1}}"#,
            "",
        ] {
            assert!(decode::<NodeOrder>(&mut framed(text)).is_err(), "{text}");
        }
        let hello = decode::<NodeOrder>(&mut framed(r#"{"Hello":{"version":9}}"#));
        assert!(matches!(hello, Ok(Some(NodeOrder::Hello { version: 9 }))));
        let huge = NodeOrder::Look {
            name: "x".repeat(MESSAGE_MAX),
        };
        assert!(encode(&huge).is_err());
    }

    #[test]
    fn failures_come_as_they_were() {
        let storage = StorageFailure {
            errno: 28,
            doing: "write /f".to_owned(),
            text: "No space left on device".to_owned(),
        };
        for failure in [
            None,
            Some(TransferFailure::Storage(storage)),
            Some(TransferFailure::Aborted),
            Some(TransferFailure::Limit("x".to_owned())),
        ] {
            let report = NodeReport::Done(Box::new(Done {
                transfer: 1,
                counts: Counts::default(),
                fresh: Spans::default(),
                failure: failure.clone(),
                cached: false,
                channels_peak: 3,
                eods: 3,
            }));
            let read = decode::<NodeReport>(&mut encode(&report).unwrap());
            let Ok(Some(NodeReport::Done(done))) = read else {
                panic!("{read:?}");
            };
            assert_eq!(done.failure, failure);
        }
    }

    #[test]
    fn the_largest_order_fits_and_reports_are_cut() {
        let apart = |n: usize| {
            (0..n as u64).map(|i| ByteRange {
                start: u64::MAX - 4 * i - 2,
                end: u64::MAX - 4 * i,
            })
        };
        let all: Vec<_> = apart(RANGES_MAX).collect();
        assert!(encode(&Spans::of(&all)).is_ok());
        let mut fresh: RangeSet = apart(RANGES_MAX + 5).collect();
        assert_eq!(Spans::take(&mut fresh).ranges().len(), RANGES_MAX);
        assert_eq!(fresh.iter().count(), 5);
    }

    #[test]
    fn more_ranges_than_one_may_say_are_refused() {
        for (count, is_good) in [(RANGES_MAX, true), (RANGES_MAX + 1, false)] {
            let ranges = Spans(vec![(0, 1); count]);
            let mut bytes = encode(&NodeOrder::Lease { ranges }).unwrap();
            let read = decode::<NodeOrder>(&mut bytes);
            assert_eq!(read.is_ok(), is_good, "{count}");
        }
    }

    #[test]
    fn backward_ranges_are_left_out() {
        let spans = Spans(vec![(9, 3), (5, 5), (4, 6), (0, 2)]);
        let starts: Vec<_> = spans.ranges().iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(starts, [(0, 2), (4, 6)]);
    }

    #[test]
    fn later_progress_of_a_transfer_replaces_what_was_not_read_yet() {
        let progress = |transfer, bytes, range| NodeReport::Progress {
            transfer,
            counts: Counts {
                bytes,
                ..Counts::default()
            },
            fresh: Spans(vec![range]),
        };
        let mut waiting = progress(1, 10, (0, 10));
        assert!(waiting.absorb(progress(1, 20, (10, 20))).is_none());
        let NodeReport::Progress { counts, fresh, .. } = &waiting else {
            panic!("{waiting:?}");
        };
        assert_eq!((counts.bytes, fresh), (20, &Spans(vec![(0, 20)])));
        assert!(waiting.absorb(progress(2, 1, (0, 1))).is_some(), "another");
        assert!(waiting.absorb(NodeReport::Noted).is_some());
    }
}
