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

use std::net::{IpAddr, SocketAddr};

use godwit_engine::data::FilePart;
use godwit_proto::{
    ByteRange, FtpPath, RangeSet,
    command::{Mode, NetworkProtocol},
    error::{StorageFailure, TransferFailure},
    facts::FactSelection,
    mode_e::{layout::StripeLayout, sender::Ending},
    pi::server::{DataChannelSpec, ListForm},
    security::{Dcau, Protection, Token},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::access::rights::Rights;

/// Version of the messages. Front end and nodes have the same.
pub(crate) const VERSION: u32 = 1;

/// Bytes of a message. The largest is the order to send what a REST of 4096 ranges leaves.
pub(crate) const MESSAGE_MAX: usize = 256 * 1024;

/// Ranges of an order and of a report. More follow in the next report.
pub(crate) const RANGES_MAX: usize = 4200;

/// Bytes of a name and of a text for people.
const TEXT_MAX: usize = 1024;

/// What both ends say.
pub(crate) trait Message: Serialize + DeserializeOwned + Send {
    /// Says that this end lives.
    fn beat() -> Self;
    fn is_beat(&self) -> bool;
}

/// From a front end.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum NodeOrder {
    /// The first message.
    Hello {
        version: u32,
    },
    /// What is in this file at the root? It was made for this question.
    Look {
        name: String,
    },
    /// The session that the link is for.
    Login {
        user: String,
        session: u64,
        /// Host of the client.
        client: IpAddr,
        /// What it may list; `None`: everything.
        rights: Option<Rights>,
    },
    /// What the session's data channels prove themselves with.
    Secure {
        #[serde(with = "secret")]
        text: Token,
        is_chosen: bool,
    },
    Listen {
        spec: Spec,
        family: Family,
    },
    ConnectTo {
        spec: Spec,
        peer: SocketAddr,
        share: Share,
    },
    Start(Box<Start>),
    /// More ranges for a transfer of [`Share::Leased`].
    Lease {
        ranges: Spans,
    },
    /// Nothing more comes for it.
    Finish {
        ending: LastEod,
    },
    /// So many channels for what is sent.
    Steer {
        channels: u32,
    },
    /// So many for what is sent next.
    NextChannels {
        channels: u32,
    },
    /// End a receipt when what has arrived is written.
    Drain,
    Abort,
    /// Close the data channels.
    Drop,
    Beat,
}

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
    /// To `Look`: the first bytes of the file, or why there are none.
    Seen {
        text: Result<String, String>,
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
        reused: bool,
    },
    /// Of what runs, from time to time.
    Progress {
        counts: Counts,
        fresh: Spans,
    },
    /// It is over; nothing touches the file any more.
    Done(Box<Done>),
    Beat,
}

impl Message for NodeOrder {
    fn beat() -> Self {
        Self::Beat
    }

    fn is_beat(&self) -> bool {
        matches!(self, Self::Beat)
    }
}

impl Message for NodeReport {
    fn beat() -> Self {
        Self::Beat
    }

    fn is_beat(&self) -> bool {
        matches!(self, Self::Beat)
    }
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

/// A transfer on the channels of the link.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    pub(crate) job: Job,
    #[serde(with = "ModeText")]
    pub(crate) mode: Mode,
}

/// What moves. Offsets on the wire begin at byte `base` of the file.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Job {
    Send {
        #[serde(with = "path_bytes")]
        path: FtpPath,
        base: u64,
        ranges: Spans,
        /// TYPE A: ends of lines are CRLF on the wire.
        ascii: bool,
    },
    /// Into a file that is there.
    Receive {
        #[serde(with = "path_bytes")]
        path: FtpPath,
        base: u64,
        /// MODE S: offset of the first byte.
        stream_start: u64,
        limit: Option<u64>,
        ascii: bool,
    },
    List {
        #[serde(with = "path_bytes")]
        path: FtpPath,
        form: Form,
    },
}

/// What of a file goes to an address by this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Share {
    /// All that is ordered.
    Whole,
    /// One stripe of it.
    Stripe {
        index: usize,
        count: usize,
        #[serde(with = "LayoutText")]
        layout: StripeLayout,
    },
    /// What [`NodeOrder::Lease`] says, until [`NodeOrder::Finish`].
    Leased,
}

impl From<Share> for FilePart {
    fn from(share: Share) -> Self {
        match share {
            Share::Whole => Self::Whole,
            Share::Stripe {
                index,
                count,
                layout,
            } => Self::Stripe {
                layout,
                index,
                count,
            },
            Share::Leased => Self::Leased,
        }
    }
}

/// [`Ending`], as it travels.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum LastEod {
    /// With EOF, which counts so many EODs of other nodes, too.
    Eof { others: u64 },
    /// Another node says EOF.
    Eod,
}

impl From<LastEod> for Ending {
    fn from(ending: LastEod) -> Self {
        match ending {
            LastEod::Eof { others } => Self::Eof { others },
            LastEod::Eod => Self::Eod,
        }
    }
}

/// Ranges, as pairs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spans(Vec<(u64, u64)>);

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

    /// In order; without those that are empty or backwards.
    pub(crate) fn ranges(&self) -> Vec<ByteRange> {
        let set: RangeSet = (self.0.iter())
            .filter_map(|(start, end)| ByteRange::new(*start, *end))
            .collect();
        set.iter().collect()
    }
}

/// [`ListForm`], as it travels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum Form {
    Long,
    Names,
    /// Names of facts, as OPTS MLST has them.
    Facts(String),
    Tree {
        facts: String,
        continue_on_error: bool,
        follow_links: bool,
    },
}

impl From<ListForm> for Form {
    fn from(form: ListForm) -> Self {
        match form {
            ListForm::Long => Self::Long,
            ListForm::Names => Self::Names,
            ListForm::Facts(selection) => Self::Facts(selection.names()),
            ListForm::FactsRecursive {
                selection,
                continue_on_error,
                follow_links,
            } => Self::Tree {
                facts: selection.names(),
                continue_on_error,
                follow_links,
            },
        }
    }
}

impl From<&Form> for ListForm {
    fn from(form: &Form) -> Self {
        match form {
            Form::Long => Self::Long,
            Form::Names => Self::Names,
            Form::Facts(names) => Self::Facts(FactSelection::parse(names)),
            Form::Tree {
                facts,
                continue_on_error,
                follow_links,
            } => Self::FactsRecursive {
                selection: FactSelection::parse(facts),
                continue_on_error: *continue_on_error,
                follow_links: *follow_links,
            },
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Family {
    V4,
    V6,
}

impl From<NetworkProtocol> for Family {
    fn from(protocol: NetworkProtocol) -> Self {
        match protocol {
            NetworkProtocol::Ipv4 => Self::V4,
            NetworkProtocol::Ipv6 => Self::V6,
        }
    }
}

impl From<Family> for NetworkProtocol {
    fn from(family: Family) -> Self {
        match family {
            Family::V4 => Self::Ipv4,
            Family::V6 => Self::Ipv6,
        }
    }
}

/// [`DataChannelSpec`], as it travels: the layout is in the [`Share`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Spec {
    pub(crate) parallelism: u32,
    pub(crate) holes: bool,
    pub(crate) socket_buffer_bytes: Option<u64>,
    pub(crate) foreign_hosts: bool,
    #[serde(with = "DcauText")]
    pub(crate) dcau: Dcau,
    #[serde(with = "ProtectionText")]
    pub(crate) protection: Protection,
}

impl From<&DataChannelSpec> for Spec {
    fn from(spec: &DataChannelSpec) -> Self {
        Self {
            parallelism: spec.parallelism,
            holes: spec.holes,
            socket_buffer_bytes: spec.socket_buffer_bytes,
            foreign_hosts: spec.foreign_hosts,
            dcau: spec.dcau.clone(),
            protection: spec.protection,
        }
    }
}

impl From<&Spec> for DataChannelSpec {
    fn from(spec: &Spec) -> Self {
        Self {
            striped: false,
            parallelism: spec.parallelism,
            layout: None,
            holes: spec.holes,
            socket_buffer_bytes: spec.socket_buffer_bytes,
            foreign_hosts: spec.foreign_hosts,
            dcau: spec.dcau.clone(),
            protection: spec.protection,
        }
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

/// For `serde(with)`: bytes of any kind.
mod path_bytes {
    use base64::{Engine as _, engine::general_purpose::STANDARD};
    use godwit_proto::FtpPath;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(path: &FtpPath, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&STANDARD.encode(path.as_bytes()))
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<FtpPath, D::Error> {
        let bytes = STANDARD.decode(String::deserialize(from)?);
        FtpPath::new(bytes.map_err(D::Error::custom)?).map_err(D::Error::custom)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Mode")]
enum ModeText {
    Stream,
    ExtendedBlock,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Dcau")]
enum DcauText {
    None,
    OwnIdentity,
    Subject(String),
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "Protection")]
enum ProtectionText {
    Clear,
    Safe,
    Confidential,
    Private,
}

/// For `serde(with)`.
mod secret {
    use godwit_proto::security::Token;
    use serde::{Deserialize as _, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(token: &Token, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(token.reveal())
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Token, D::Error> {
        String::deserialize(from).map(Token::new)
    }
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StripeLayout")]
enum LayoutText {
    Partitioned,
    Blocked { block_bytes: u64 },
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "StorageFailure")]
struct StorageText {
    errno: i32,
    doing: String,
    text: String,
}

#[derive(Serialize, Deserialize)]
#[serde(remote = "TransferFailure")]
enum FailureText {
    Storage(#[serde(with = "StorageText")] StorageFailure),
    NoConnection(String),
    NotAuthenticated(String),
    ConnectionLost(String),
    Protocol(String),
    Aborted,
    Checksum { computed: String, expected: String },
    Limit(String),
}

/// For `serde(with)`.
mod failure_text {
    use godwit_proto::error::TransferFailure;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Serialize)]
    struct FailureRef<'a>(#[serde(with = "super::FailureText")] &'a TransferFailure);

    #[derive(Deserialize)]
    struct Read(#[serde(with = "super::FailureText")] TransferFailure);

    pub(super) fn serialize<S: Serializer>(
        failure: &Option<TransferFailure>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        failure.as_ref().map(FailureRef).serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(
        from: D,
    ) -> Result<Option<TransferFailure>, D::Error> {
        Ok(Option::<Read>::deserialize(from)?.map(|Read(failure)| failure))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_in_pieces_is_one_message() {
        let order = NodeOrder::Start(Box::new(Start {
            job: Job::Send {
                path: FtpPath::new(b"/caf\xe9".to_vec()).unwrap(),
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
        bytes.extend(encode(&NodeOrder::Beat).unwrap());
        let read = decode::<NodeOrder>(&mut bytes).unwrap().unwrap();
        assert_eq!(format!("{read:?}"), format!("{order:?}"));
        assert!(decode::<NodeOrder>(&mut bytes).unwrap().unwrap().is_beat());
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
    fn backward_ranges_are_left_out() {
        let spans = Spans(vec![(9, 3), (5, 5), (4, 6), (0, 2)]);
        let starts: Vec<_> = spans.ranges().iter().map(|r| (r.start, r.end)).collect();
        assert_eq!(starts, [(0, 2), (4, 6)]);
    }
}
