//! Events that the audit log, the transfer log and the metrics record. Sessions in processes of
//! their own send them to the monitor.

use std::{net::SocketAddr, time::Duration};

use godwit_proto::FtpPath;
use serde::{Deserialize, Serialize};

use super::class::Class;
use crate::access::{channel_quota::Channels, identity::Method};

/// Bytes of each text from outside; what is longer is cut.
pub(crate) const TEXT_MAX: usize = 4096;

/// Whose event it is.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Who {
    pub(crate) session: u64,
    pub(crate) peer: SocketAddr,
    /// Authenticated, before it had an account.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) identity: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) account: Option<String>,
}

/// What happened.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Entry {
    pub(crate) event: What,
    /// As the client sees it, beneath the root.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) path: Option<String>,
    /// The new name, the mode, the group, the target of a link, the name logged in with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    /// Named `octets` in the log: sites' tools read it by that name.
    #[serde(rename = "octets", default, skip_serializing_if = "Option::is_none")]
    pub(crate) bytes: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) seconds: Option<f64>,
    pub(crate) result: Verdict,
    /// Why not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) reason: Option<String>,
    /// Of a transfer: the data nodes that moved it, with blanks between them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) nodes: Option<String>,
    /// Of a transfer, and not for this log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) wire: Option<Wire>,
    /// From here on for [`crate::observe::metrics`] alone. How the user logged in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) method: Option<Method>,
    /// Of a failure.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) class: Option<Class>,
    /// Of a transfer, bytes that TCP retransmitted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) retransmitted: Option<u64>,
    /// Of the session, when a transfer has ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) channels: Option<Channels>,
}

/// Kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum What {
    /// A handshake.
    Prove,
    Login,
    Logout,
    Get,
    Put,
    List,
    Delete,
    Rename,
    Mkdir,
    Rmdir,
    Chmod,
    Chgrp,
    Touch,
    Truncate,
    Symlink,
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verdict {
    Done,
    Failed,
}

impl Entry {
    pub(crate) fn new(event: What) -> Self {
        Self {
            event,
            path: None,
            to: None,
            bytes: None,
            seconds: None,
            result: Verdict::Done,
            reason: None,
            nodes: None,
            wire: None,
            method: None,
            class: None,
            retransmitted: None,
            channels: None,
        }
    }

    /// An event from a session's process, with all texts cut to the limit.
    pub(crate) fn bounded(mut self) -> Self {
        self.method = None;
        if !self.is_of_session() {
            self.class = None;
        }
        let texts = [
            &mut self.path,
            &mut self.to,
            &mut self.reason,
            &mut self.nodes,
        ];
        for text in texts {
            *text = text.take().map(cut);
        }
        self
    }

    /// A session may report it: only its monitor reports authentication and logins.
    pub(crate) fn is_of_session(&self) -> bool {
        !matches!(self.event, What::Login | What::Prove)
    }

    pub(crate) fn is_logout(&self) -> bool {
        self.event == What::Logout
    }

    pub(crate) fn path(mut self, path: &FtpPath) -> Self {
        self.path = Some(cut(path.to_string()));
        self
    }

    pub(crate) fn to(mut self, to: impl ToString) -> Self {
        self.to = Some(cut(to.to_string()));
        self
    }

    pub(crate) fn moved(mut self, bytes: u64, time: Duration) -> Self {
        self.bytes = Some(bytes);
        self.seconds = Some(time.as_secs_f64());
        self
    }

    pub(crate) fn wire(mut self, wire: Wire) -> Self {
        self.wire = Some(wire);
        self
    }

    /// The data nodes that moved it; empty: this server did.
    pub(crate) fn on_nodes(mut self, nodes: &[String]) -> Self {
        self.nodes = (!nodes.is_empty()).then(|| cut(nodes.join(" ")));
        self
    }

    /// How the user has logged in.
    pub(crate) fn by(mut self, method: Method) -> Self {
        self.method = Some(method);
        self
    }

    /// What kind of failure it is, if it is one.
    pub(crate) fn class(mut self, class: Option<Class>) -> Self {
        self.class = class;
        self
    }

    /// Retransmissions and channels of a transfer.
    pub(crate) fn cost(mut self, retransmitted: Option<u64>, channels: Channels) -> Self {
        self.retransmitted = retransmitted;
        self.channels = Some(channels);
        self
    }

    pub(crate) fn ended(mut self, failure: Option<impl ToString>) -> Self {
        if let Some(reason) = failure {
            self.result = Verdict::Failed;
            self.reason = Some(cut(reason.to_string()));
        }
        self
    }
}

/// For the transfer log alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Wire {
    pub(crate) command: Command,
    /// Bytes of socket buffers that the client wants; 0: the default.
    pub(crate) buffer: u64,
    /// Bytes of a block at most.
    pub(crate) block: u64,
    /// Data channels at a time at most.
    pub(crate) streams: u32,
}

/// The command of the transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
#[allow(missing_docs)] // the word is the documentation
pub(crate) enum Command {
    Retr,
    Eret,
    Stor,
    Esto,
    List,
    Nlst,
    Mlsd,
}

impl Command {
    pub(super) const fn as_str(self) -> &'static str {
        match self {
            Self::Retr => "RETR",
            Self::Eret => "ERET",
            Self::Stor => "STOR",
            Self::Esto => "ESTO",
            Self::List => "LIST",
            Self::Nlst => "NLST",
            Self::Mlsd => "MLSD",
        }
    }
}

/// What a session reports while a transfer runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Progress {
    pub(crate) transfer: Option<Running>,
    pub(crate) channels: Channels,
}

/// A transfer that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Running {
    pub(crate) what: What,
    pub(crate) path: String,
    pub(crate) flow: Flow,
}

/// Bytes of a transfer so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Flow {
    pub(crate) bytes: u64,
    /// Of those that were sent, bytes that TCP retransmitted.
    pub(crate) retransmitted: u64,
}

impl Progress {
    /// The report of another process, its texts cut to our limit.
    pub(crate) fn bounded(mut self) -> Self {
        if let Some(running) = &mut self.transfer {
            running.path = cut(std::mem::take(&mut running.path));
        }
        self
    }
}

pub(crate) fn cut(mut text: String) -> String {
    if text.len() > TEXT_MAX {
        let end = (0..=TEXT_MAX).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
    }
    text
}
