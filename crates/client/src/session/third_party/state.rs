//! What is known of a transfer between two servers, and whether it is over. No I/O.

use std::collections::BTreeMap;

use godwit_proto::{
    RangeSet, Reply,
    error::{FailureKind, failure_kind},
    marker::{PerfMarker, parse_range_marker},
};

use crate::{error::Error, session::transfer::state::RANGES_MAX};

/// Stripes whose bytes are counted. More than any server has.
const STRIPES_MAX: u32 = 4096;

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    Receiver,
    Sender,
}

impl Role {
    pub(crate) fn other(self) -> Self {
        match self {
            Self::Receiver => Self::Sender,
            Self::Sender => Self::Receiver,
        }
    }
}

/// What both servers have said so far.
#[derive(Debug, Default)]
pub(crate) struct ThirdPartyState {
    receiver: RoleState,
    sender: RoleState,
    progress: ReceiverProgress,
    /// In the order in which they came.
    failures: Vec<(Role, Error)>,
}

#[derive(Debug, Default)]
struct RoleState {
    /// 1xx.
    begun: bool,
    /// Its last word on this transfer has come, or never will.
    over: bool,
}

/// What the receiver has reported of its progress.
#[derive(Debug, Default)]
pub(crate) struct ReceiverProgress {
    stripes: BTreeMap<u32, u64>,
    /// Bytes of the region that are on its storage.
    pub(crate) safe: RangeSet,
}

impl ReceiverProgress {
    /// Bytes that it has; `None` where it tells nothing.
    pub(crate) fn bytes(&self) -> Option<u64> {
        let of_stripes = self
            .stripes
            .values()
            .copied()
            .fold(0_u64, u64::saturating_add);
        let has_reported = !self.stripes.is_empty() || !self.safe.is_empty();
        has_reported.then(|| of_stripes.max(self.safe.covered()))
    }

    fn take(&mut self, marker: &Reply) {
        if let Some(perf) = PerfMarker::from_reply(marker) {
            if perf.stripe_index < STRIPES_MAX {
                let bytes = self.stripes.entry(perf.stripe_index).or_default();
                *bytes = perf.stripe_bytes.max(*bytes);
            }
        } else if let Some(ranges) = parse_range_marker(marker)
            && self.safe.count() < RANGES_MAX
        {
            self.safe.union_with(&ranges);
        }
    }
}

impl ThirdPartyState {
    /// A 1xx. True where it is news: a server has begun, or bytes have arrived.
    pub(crate) fn on_preliminary(&mut self, side: Role, preliminary: &Reply) -> bool {
        if side == Role::Receiver && matches!(preliminary.code.get(), 111 | 112) {
            let before = self.progress.bytes();
            self.progress.take(preliminary);
            return self.progress.bytes() != before;
        }
        let half = self.half(side);
        !std::mem::replace(&mut half.begun, true)
    }

    /// The last word of a server on this transfer. `doing` is what it was to do.
    pub(crate) fn on_final_reply(&mut self, side: Role, reply: Reply, doing: &str) {
        let half = self.half(side);
        let started = half.begun;
        half.over = true;
        if !reply.code.is_success() {
            let error = Error::Refused {
                doing: doing.to_owned(),
                reply: Box::new(reply),
                started,
            };
            self.failures.push((side, error));
        }
    }

    /// The control connection of a server is gone, or it will not do what must come first.
    pub(crate) fn fail(&mut self, side: Role, error: Error) {
        self.half(side).over = true;
        self.failures.push((side, error));
    }

    /// What `side`, which was to connect to the other, says of that; `None`: something else
    /// happened to it, or bytes have moved.
    pub(crate) fn unconnected(&self, side: Role) -> Option<String> {
        let failure = self.failures.iter().find(|(of, _)| *of == side);
        match failure {
            Some((_, Error::Refused { reply, .. }))
                if self.bytes().unwrap_or(0) == 0 && is_of_connecting(reply) =>
            {
                Some(reply.to_string())
            }
            _ => None,
        }
    }

    /// No 1xx came from `side`.
    pub(crate) fn never_began(&self, side: Role) -> bool {
        let half = match side {
            Role::Receiver => &self.receiver,
            Role::Sender => &self.sender,
        };
        !half.begun
    }

    /// Bytes that the receiver has; `None` where it tells nothing.
    pub(crate) fn bytes(&self) -> Option<u64> {
        self.progress.bytes()
    }

    /// Its last word is still due.
    pub(crate) fn is_due(&self, side: Role) -> bool {
        match side {
            Role::Receiver => !self.receiver.over,
            Role::Sender => !self.sender.over,
        }
    }

    /// Both have begun, and neither has ended.
    pub(crate) fn flows(&self) -> bool {
        let goes = |half: &RoleState| half.begun && !half.over;
        goes(&self.receiver) && goes(&self.sender)
    }

    /// Silence means that nothing moves: one of them has not begun, the receiver is one that tells
    /// how far it is and still gets bytes, or it has ended and the sender has nothing more to send.
    pub(crate) fn silence_means_idle(&self) -> bool {
        let begun = self.receiver.begun && self.sender.begun;
        let is_counted = self.receiver.over || self.progress.bytes().is_some();
        !begun || !self.sender.over && is_counted
    }

    /// Both have said their last word, or one has failed so that nothing can be expected of the
    /// other.
    pub(crate) fn is_over(&self) -> bool {
        match self.failures.first() {
            None => self.receiver.over && self.sender.over,
            // The receiver knows best what it has, and may know why the sender failed.
            Some((Role::Sender, _)) => self.receiver.over || !self.waits_for_receiver(),
            Some((Role::Receiver, _)) => true,
        }
    }

    /// The sender has failed in mid-transfer: the receiver will notice and say what it has.
    pub(crate) fn waits_for_receiver(&self) -> bool {
        let sender_failed = matches!(self.failures.first(), Some((Role::Sender, _)));
        sender_failed && self.sender.begun && !self.receiver.over
    }

    /// The most telling failure, and what the receiver has reported.
    pub(crate) fn end(self) -> (Option<Error>, ReceiverProgress) {
        let tells_why = |error: &Error| match error {
            Error::Refused { reply, .. } => !matches!(
                failure_kind(reply),
                Some(FailureKind::Other | FailureKind::Transient | FailureKind::NotSupported)
                    | None
            ),
            _ => false,
        };
        let mut failures: Vec<_> = self.failures.into_iter().map(|(_, error)| error).collect();
        let telling = failures.iter().position(tells_why).unwrap_or(0);
        let failure = (!failures.is_empty()).then(|| failures.swap_remove(telling));
        (failure, self.progress)
    }

    fn half(&mut self, side: Role) -> &mut RoleState {
        match side {
            Role::Receiver => &mut self.receiver,
            Role::Sender => &mut self.sender,
        }
    }
}

/// A connection did not come up: 425, or 500 with the words of GCT's server.
fn is_of_connecting(reply: &Reply) -> bool {
    let text = reply.text();
    match reply.code.get() {
        425 => !text.contains("AUTHENTICATION"),
        _ => text.contains("Unable to connect to") || text.contains("System error in connect"),
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::ReplyCode;

    use super::*;

    fn reply(code: u16, text: &str) -> Reply {
        Reply::new(ReplyCode::of(code), text)
    }

    fn perf(bytes: u64, index: u32) -> Reply {
        let marker = PerfMarker {
            timestamp: 0.0,
            stripe_index: index,
            stripe_bytes: bytes,
            stripe_count: index + 1,
        };
        marker.to_reply()
    }

    fn flowing() -> ThirdPartyState {
        let mut relaying = ThirdPartyState::default();
        assert!(relaying.silence_means_idle() && !relaying.flows());
        assert!(relaying.on_preliminary(Role::Sender, &reply(150, "Begins")));
        assert!(relaying.on_preliminary(Role::Receiver, &reply(125, "Begins")));
        assert!(relaying.flows());
        relaying
    }

    #[test]
    fn both_must_say_that_it_is_well() {
        let mut relaying = flowing();
        relaying.on_final_reply(Role::Sender, reply(226, "Done"), "get x");
        assert!(!relaying.is_over() && !relaying.flows());
        relaying.on_final_reply(Role::Receiver, reply(226, "Done"), "put y");
        assert!(relaying.is_over());
        assert!(relaying.end().0.is_none());
    }

    #[test]
    fn the_wait_for_a_sender_is_limited_once_the_receiver_ended() {
        let mut relaying = flowing();
        assert!(
            !relaying.silence_means_idle(),
            "no server reports what moves"
        );
        relaying.on_final_reply(Role::Receiver, reply(226, "Done"), "put y");
        assert!(!relaying.is_over() && relaying.silence_means_idle());
    }

    #[test]
    fn an_end_that_fails_before_its_start_ends_the_wait() {
        for side in [Role::Sender, Role::Receiver] {
            let mut relaying = ThirdPartyState::default();
            relaying.on_final_reply(side, reply(550, "No such file"), "x");
            assert!(relaying.is_over(), "{side:?}");
        }
    }

    #[test]
    fn after_a_failed_sender_the_receivers_reply_decides() {
        let mut relaying = flowing();
        relaying.on_final_reply(Role::Sender, reply(426, "Broke"), "get x");
        assert!(!relaying.is_over() && relaying.waits_for_receiver());
        assert!(relaying.on_preliminary(Role::Receiver, &reply(111, "Range Marker 0-8,10-12")));
        relaying.on_final_reply(Role::Receiver, reply(552, "Disk full"), "put y");
        assert!(relaying.is_over());
        let (error, progress) = relaying.end();
        assert!(error.unwrap().to_string().contains("Disk full"));
        assert_eq!(progress.bytes(), Some(10));
    }

    #[test]
    fn markers_add_up_and_never_go_back() {
        let mut relaying = flowing();
        assert!(relaying.progress.bytes().is_none());
        assert!(
            relaying.on_preliminary(Role::Receiver, &perf(0, 0)),
            "it tells"
        );
        assert!(!relaying.on_preliminary(Role::Receiver, &perf(0, 0)));
        assert!(relaying.on_preliminary(Role::Receiver, &perf(100, 0)));
        assert!(relaying.on_preliminary(Role::Receiver, &perf(10, 1)));
        assert!(!relaying.on_preliminary(Role::Receiver, &perf(90, 0)));
        assert!(!relaying.on_preliminary(Role::Receiver, &perf(7, STRIPES_MAX)));
        assert_eq!(relaying.progress.bytes(), Some(110));
        assert!(relaying.silence_means_idle());
        relaying.on_final_reply(Role::Sender, reply(226, "Done"), "get x");
        assert!(!relaying.silence_means_idle(), "storage may take its time");
    }

    #[test]
    fn the_end_that_could_not_connect_is_known_by_its_reply() {
        let gct =
            "Command failed. : callback failed.\nglobus_xio: Unable to connect to 192.0.2.1:51209";
        let ours = "GlobusError: v=1 c=DATA_CHANNEL_COMMUNICATION_FAILURE";
        let stranger = "GlobusError: v=1 c=DATA_CHANNEL_AUTHENTICATION_FAILURE";
        for (code, text, tells) in [
            (500, gct, true),
            (425, ours, true),
            (425, stranger, false),
            (550, "No such file", false),
        ] {
            let mut relaying = ThirdPartyState::default();
            relaying.on_final_reply(Role::Sender, reply(code, text), "get x");
            assert_eq!(
                relaying.unconnected(Role::Sender).is_some(),
                tells,
                "{text}"
            );
            assert!(relaying.unconnected(Role::Receiver).is_none());
        }
        let mut relaying = flowing();
        relaying.on_preliminary(Role::Receiver, &perf(100, 0));
        relaying.on_final_reply(Role::Sender, reply(425, ours), "get x");
        let later = relaying.unconnected(Role::Sender);
        assert!(later.is_none(), "bytes have moved");
    }
}
