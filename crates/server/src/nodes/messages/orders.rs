//! What front ends say to data nodes.

use std::net::{IpAddr, SocketAddr};

use godwit_engine::data::FilePart;
use godwit_proto::{
    FtpPath,
    command::{Mode, NetworkProtocol},
    facts::FactSelection,
    mode_e::{layout::StripeLayout, sender::Ending},
    pi::server::{DataChannelSpec, ListForm},
    security::{Dcau, Protection, Token},
};
use serde::{Deserialize, Serialize};

use super::{
    Message, Spans,
    texts::{DcauText, LayoutText, ModeText, ProtectionText, path_bytes, secret},
};
use crate::{
    access::{accounts::Ids, rights::Rights},
    config::Durability,
    nodes::pulse::Beat,
};

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
        /// What 226 and 111 of the front end promise.
        durability: Durability,
        /// Its control connection has TLS: its data channels may need the certificate of the node.
        ftps: bool,
        /// Whose account a separated front end runs the session as.
        account: Option<NodeAccount>,
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
    Beat(Beat),
}

/// An account of the system, as the front end sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct NodeAccount {
    pub(crate) name: String,
    pub(crate) ids: Ids,
}

impl NodeOrder {
    /// The process of a session may give it. Who the session is, the front end says itself.
    pub(crate) fn is_of_a_session(&self) -> bool {
        !matches!(
            self,
            Self::Hello { .. } | Self::Look { .. } | Self::Login { .. }
        )
    }
}

impl Message for NodeOrder {
    const ANSWERS_BEATS: bool = true;

    fn beat(beat: Beat) -> Self {
        Self::Beat(beat)
    }

    fn as_beat(&self) -> Option<Beat> {
        match self {
            Self::Beat(beat) => Some(*beat),
            _ => None,
        }
    }
}

/// A transfer on the channels of the link.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Start {
    /// Reports on it name this number. On a link none has it twice.
    pub(crate) transfer: u64,
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
        file: SameFile,
        base: u64,
        ranges: Spans,
        /// TYPE A: ends of lines are CRLF on the wire.
        ascii: bool,
    },
    /// Into a file that is there.
    Receive {
        #[serde(with = "path_bytes")]
        path: FtpPath,
        file: SameFile,
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

/// How a node finds out that a name leads it to the file which the front end has opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum SameFile {
    /// By its number, where both see the same numbers.
    Inode(u64),
    /// Else a file that is sent by its size and the time of its last change (since 1970).
    Looks {
        size: u64,
        seconds: u64,
        nanoseconds: u32,
    },
    /// A file that is received into changes while others write: nothing tells.
    Unknown,
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
    /// The control connection has TLS (AUTH TLS): protection is that of FTP over TLS.
    pub(crate) ftps: bool,
}

impl Spec {
    pub(crate) fn new(spec: &DataChannelSpec, ftps: bool) -> Self {
        Self {
            ftps,
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
