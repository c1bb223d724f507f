//! What the fuzz target `privsep_message` does with the bytes of a compromised process; the test
//! below replays its corpus through the same function.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::Path,
    sync::Arc,
    time::SystemTime,
};

use serde::{Serialize, de::DeserializeOwned};

use super::messages::{
    FromPreLogin, FromSession, MonitorReply, PACKET_MAX, PreLoginSetup, SessionSetup,
    checked_anchor, checked_name, decode, encode,
};
use crate::observe::{
    audit::{self},
    event::{TEXT_MAX, Who},
    metrics::Metrics,
};

/// Bytes of a line about `who` below: four texts, of which each byte is escaped at worst, and what
/// is around them.
const LINE_MAX: usize = 4 * TEXT_MAX * "\\u0000".len() + 512;

/// Nothing panics, each valid message survives a round trip, and everything that the monitor acts
/// on is bounded.
pub(crate) fn message(bytes: &[u8]) {
    if let Some(message) = understood(bytes) {
        match message {
            FromPreLogin::Trust { name } => anchor(&name),
            FromPreLogin::Login(caller) => {
                let identity = caller.identity.as_ref().map(|name| name.as_str());
                for name in identity.into_iter().chain([caller.user.as_str()]) {
                    let passes = checked_name(name).is_ok();
                    assert!(!passes || !name.contains(['\0', '\r', '\n']));
                }
            }
            FromPreLogin::HandshakeFailed { .. } => {}
        }
    }
    if let Some(message) = understood(bytes) {
        match message {
            FromSession::Trust { name } => anchor(&name),
            FromSession::Audit(entry) => {
                let who = Who {
                    session: 1,
                    peer: SocketAddr::from((Ipv4Addr::LOCALHOST, 1)),
                    identity: None,
                    account: None,
                };
                let line = audit::line(SystemTime::UNIX_EPOCH, &who, &entry.bounded());
                assert!(line.len() <= LINE_MAX, "{} bytes", line.len());
                let inside = line.strip_suffix('\n').expect("a line");
                assert!(!inside.contains(char::is_control), "{line:?}");
            }
            FromSession::Progress(progress) => {
                let progress = progress.bounded();
                let path = progress.transfer.as_ref().map_or("", |t| &t.path);
                assert!(path.len() <= TEXT_MAX, "{} bytes", path.len());
                // No counter overflows, however often it is reported.
                let connection_metrics =
                    Arc::new(Metrics::default()).enter(1, Ipv4Addr::LOCALHOST.into());
                (0..3).for_each(|_| connection_metrics.progress(&progress));
            }
            FromSession::Ready
            | FromSession::Unable { .. }
            | FromSession::TurnWanted
            | FromSession::TurnEnded
            | FromSession::Nodes
            | FromSession::NodeLink { .. }
            | FromSession::AddUnfenced { .. }
            | FromSession::IsUnfenced { .. } => {}
        }
    }
    understood::<MonitorReply>(bytes);
    understood::<PreLoginSetup>(bytes);
    understood::<SessionSetup>(bytes);
}

fn understood<T: Serialize + DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let message = decode(bytes).ok()?;
    // Written again it may be too long: numbers have longer forms.
    if let Ok(written) = encode(&message) {
        assert!(written.len() <= PACKET_MAX);
        let read = decode::<T>(&written).expect("what we write we read");
        assert_eq!(encode(&read).ok(), Some(written));
    }
    Some(message)
}

/// Each accepted name is one of a file in the directory itself.
fn anchor(name: &str) {
    if checked_anchor(name).is_ok() {
        let path = Path::new("/cas").join(name);
        assert_eq!(path.parent(), Some(Path::new("/cas")));
        assert_eq!(path.file_name(), Some(name.as_ref()));
    }
}

#[cfg(test)]
#[path = "../../../../fuzz/replay.rs"]
pub(crate) mod replay;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{replay::replay, *};

    #[test]
    fn the_corpus_runs_clean() {
        let mut understood = 0;
        replay("privsep_message", |bytes| {
            message(bytes);
            understood += usize::from(decode::<FromPreLogin>(bytes).is_ok());
            understood += usize::from(decode::<FromSession>(bytes).is_ok());
        });
        assert!(understood > 5, "only {understood} inputs are messages");
    }

    proptest! {
        #[test]
        fn any_text_in_a_message_runs_clean(text: String) {
            let text = serde_json::to_string(&text).unwrap();
            for around in [
                r#"{"Trust":{"name":@}}"#,
                r#"{"HandshakeFailed":{"why":@}}"#,
                r#"{"Login":{"user":@,"password":@,"identity":@,"disbelief":@,"channel":"Tls"}}"#,
                r#"{"Audit":{"event":"put","path":@,"to":@,"result":"failed","reason":@}}"#,
                concat!(
                    r#"{"Progress":{"transfer":{"what":"put","path":@,"#,
                    r#""flow":{"bytes":7,"retransmitted":7}},"channels":{"now":1,"opened":1}}}"#
                ),
                r#"{"Refused":{"why":@}}"#,
            ] {
                message(around.replace('@', &text).as_bytes());
            }
        }
    }

    #[test]
    fn long_texts_of_sessions_are_cut_on_arrival() {
        let text = "\u{7f}".repeat(PACKET_MAX / 4);
        let audit = format!(
            r#"{{"Audit":{{"event":"put","path":"{text}","to":"{text}",
            "result":"done","reason":"{text}"}}}}"#
        );
        assert!(decode::<FromSession>(audit.as_bytes()).is_ok());
        message(audit.as_bytes());
    }
}
