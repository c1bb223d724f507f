//! What a turn of a channel came to.

use std::{io, net::SocketAddr, time::Instant};

use godwit_proto::error::TransferFailure;

/// What a turn came to.
pub(crate) enum TurnResult {
    /// Until the kernel reports an event.
    Wait,
    /// Budget used up, more can be done at once.
    Again,
    /// The rate limit lets nothing through before then.
    Pause(Instant),
    /// Part in the transfer done, keep the connection. The attachment is still held: call `let_go`
    /// after parking.
    Park,
    /// Close the connection; all is well.
    Close,
    /// The same, once the peer has ended its direction too.
    Leave,
    /// The transfer has failed.
    Failed(TransferFailure),
    /// The connection could not be made.
    NotConnected(SocketAddr, io::Error),
    /// The peer is known: the connection may carry the transfer that is still attached, or any.
    Known,
    /// The peer is not who it must be.
    Rejected(HandshakeError),
}

/// Why a connection cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// The peer connected, sent nothing and closed: a scanner, not our peer.
    Silent,
    /// The peer failed to authenticate, or refused our identity
    /// ([`TransferFailure::NotAuthenticated`]); or it closed the connection or stopped sending
    /// before that was decided ([`TransferFailure::ConnectionLost`]), and another connection may do
    /// better.
    Failed(TransferFailure),
}
