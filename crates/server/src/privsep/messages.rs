//! The messages of a link: JSON, each one packet of at most [`PACKET_MAX`] bytes; descriptors
//! travel beside it.

use std::{net::SocketAddr, time::Duration};

use godwit_proto::{FtpPath, pi::server::Account};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::access::accounts::Ids;
use crate::{
    access::{
        identity::{ControlProtection, LoginRequest},
        rights::{Rights, path_text},
    },
    config::{NodeAddress, ServerSettings},
    nodes::{front::monitor::NodeList, messages::NodeOrder},
    observe::event::{Entry, Progress},
};

/// Bytes of a message. The kernel's default for a packet is 208 KiB.
pub(crate) const PACKET_MAX: usize = 64 * 1024;

/// Bytes of a user's name from a client, and of an identity.
const NAME_MAX: usize = 4096;

/// The first message to a pre-login process. Beside it: the control connection, the certificate and
/// the key that the server shows.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PreLoginSetup {
    pub(crate) parent: u32,
    pub(crate) session: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) ids: Ids,
    pub(crate) require_sandbox: bool,
    pub(crate) settings: ServerSettings,
}

/// The first message to a session. Beside it: the relay, the pipe by which turns come and the share
/// in data channels; under AUTH TLS also the certificate and the key that data channels show.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct SessionSetup {
    pub(crate) parent: u32,
    pub(crate) session: u64,
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) ids: Ids,
    pub(crate) require_sandbox: bool,
    /// Name of the user, for the reply and the log.
    pub(crate) name: String,
    #[serde(with = "AccountText")]
    pub(crate) account: Account,
    /// Limits of the login; `None`: all rights of the account.
    pub(crate) rights: Option<Rights>,
    /// Of the control connection, which the pre-login process has.
    pub(crate) channel: ControlProtection,
    pub(crate) settings: ServerSettings,
}

/// The first message to the process of a session at a data node. Beside it: the link to the front
/// end; where the session needs the certificate for data channels that, and its key.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct NodeSessionSetup {
    pub(crate) parent: u32,
    pub(crate) ids: Ids,
    pub(crate) require_sandbox: bool,
    /// The node's end of the link.
    pub(crate) local: SocketAddr,
    /// As the front end has given it, without the account.
    pub(crate) login: NodeOrder,
    /// A certificate and its key are beside it.
    pub(crate) has_certificate: bool,
    pub(crate) settings: ServerSettings,
}

/// [`Account`], as it travels.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Account")]
struct AccountText {
    #[serde(with = "path_text")]
    home: FtpPath,
    writable: bool,
    foreign_data_hosts: bool,
}

/// From a pre-login process.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromPreLogin {
    /// Asks for a file of the directory of CAs.
    Trust { name: String },
    /// A client logs in. The pre-login process has authenticated an identity; a password or a
    /// token is verified by the monitor.
    Login(Box<LoginRequest>),
    /// A handshake has failed.
    HandshakeFailed { why: String },
}

/// From a session.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum FromSession {
    /// The process runs as the account, and the root is open.
    Ready,
    /// It failed.
    Unable {
        why: String,
    },
    Trust {
        name: String,
    },
    Audit(Entry),
    /// Progress, at most once a second.
    Progress(Progress),
    /// A checksum needs a processor for a moment. The monitor answers by the pipe of turns.
    TurnWanted,
    /// The processor is free again, or not needed any more.
    TurnEnded,
    /// Asks for the data nodes that are well.
    Nodes,
    /// Asks for a link to one of them.
    NodeLink {
        node: NodeAddress,
    },
    /// A data node that was cut off may still write into this file.
    AddUnfenced {
        device: u64,
        inode: u64,
        /// For so long it does not know that it is not heard.
        quiet_in: Duration,
    },
    /// Asks whether one may.
    IsUnfenced {
        device: u64,
        inode: u64,
    },
}

/// Replies of the monitor.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) enum MonitorReply {
    /// The file is beside it.
    File,
    NoFile {
        errno: i32,
    },
    /// The relay is beside it.
    Entered,
    Nodes(NodeList),
    /// The link is beside it.
    NodeLink,
    /// `None`: none may.
    Unfenced {
        quiet_in: Option<Duration>,
    },
    Refused {
        why: String,
    },
}

/// An invalid message.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadMessage {
    #[error("a message of {0} bytes")]
    TooLong(usize),
    #[error("an invalid message: {0}")]
    Malformed(#[from] serde_json::Error),
    #[error("an invalid name")]
    Name,
}

pub(crate) fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, BadMessage> {
    let bytes = serde_json::to_vec(message)?;
    match bytes.len() {
        length if length > PACKET_MAX => Err(BadMessage::TooLong(length)),
        _ => Ok(bytes),
    }
}

pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, BadMessage> {
    if bytes.len() > PACKET_MAX {
        return Err(BadMessage::TooLong(bytes.len()));
    }
    Ok(serde_json::from_slice(bytes)?)
}

/// A user's name or an identity, as a pre-login process tells it: bounded, and without what no name
/// holds.
pub(crate) fn checked_name(name: &str) -> Result<&str, BadMessage> {
    let fits = (1..=NAME_MAX).contains(&name.len()) && !name.contains(['\0', '\r', '\n']);
    fits.then_some(name).ok_or(BadMessage::Name)
}

/// `HASH.N`, `HASH.rN` or `HASH.signing_policy`, eight hexadecimal digits before: nothing that
/// leads out of the directory of CAs, and nothing else in it, such as a key.
pub(crate) fn checked_anchor(name: &str) -> Result<&str, BadMessage> {
    let digits = |text: &str| {
        (1..=3).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let fits = name.split_once('.').is_some_and(|(hash, kind)| {
        hash.len() == 8
            && hash.bytes().all(|byte| byte.is_ascii_hexdigit())
            && (kind == "signing_policy" || digits(kind.strip_prefix('r').unwrap_or(kind)))
    });
    fits.then_some(name).ok_or(BadMessage::Name)
}

#[cfg(test)]
mod tests {
    use godwit_gsi::name::DistinguishedName;
    use godwit_proto::command::Password;

    use super::*;

    #[test]
    fn only_names_of_ca_files_pass() {
        for name in ["0a1b2c3d.0", "0a1b2c3d.r12", "ABCDEF01.signing_policy"] {
            assert!(checked_anchor(name).is_ok(), "{name}");
        }
        for name in [
            "",
            ".",
            "0a1b2c3d",
            "0a1b2c3d.",
            "0a1b2c3d.r",
            "0a1b2c3d.rr0",
            "0a1b2c3d.1234",
            "0a1b2c3d.key",
            "0a1b2c3d.0/../../etc/shadow",
            "../../../etc/shadow",
            "0a1b2c3d.signing_policy\0",
            "0a1b2c3.00",
            "éééé.0",
        ] {
            assert!(checked_anchor(name).is_err(), "{name}");
        }
    }

    #[test]
    fn names_are_bounded_text() {
        assert!(checked_name("/O=Grid/CN=Jo").is_ok());
        for name in [String::new(), "a\nb".to_owned(), "x".repeat(NAME_MAX + 1)] {
            assert!(checked_name(&name).is_err());
        }
    }

    #[test]
    fn nonsense_is_no_message() {
        let login = FromPreLogin::Login(Box::new(LoginRequest {
            user: "jo".to_owned(),
            password: Password::new("secret"),
            identity: DistinguishedName::parse("/O=Grid/CN=Jo"),
            disbelief: None,
            channel: ControlProtection::Tls,
        }));
        assert!(!format!("{login:?}").contains("secret"));
        let bytes = encode(&login).unwrap();
        assert!(decode::<FromPreLogin>(&bytes).is_ok());
        assert!(decode::<FromSession>(&bytes).is_err());
        for cut in 0..bytes.len() {
            assert!(decode::<FromPreLogin>(&bytes[..cut]).is_err());
        }
        for bytes in [
            &br#"{"Login":{"user":"jo","password":"","identity":null,"disbelief":null,
            "channel":"Tls","uid":0}}"#[..],
            br#"{"Login":{"user":"jo","password":"","identity":"Jo","disbelief":null,
            "channel":"Tls"}}"#,
            b"{\"Entered\":null}",
            b"\"Entered\"",
            b"\xff\xff",
            &[b' '; PACKET_MAX + 1],
            "[".repeat(PACKET_MAX).as_bytes(),
        ] {
            assert!(decode::<FromPreLogin>(bytes).is_err());
        }
    }
}
