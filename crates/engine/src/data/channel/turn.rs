//! What a turn of a channel came to.

use std::{io, net::SocketAddr, time::Instant};

use godwit_proto::error::TransferFailure;

/// What a turn came to.
pub(crate) enum TurnResult {
    /// Until the kernel says more.
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
    /// The same, once the peer has said all.
    Leave,
    /// The transfer has failed.
    Failed(TransferFailure),
    /// The connection never came up.
    NotConnected(SocketAddr, io::Error),
    /// The peer is known: the connection may carry the transfer that is still attached, or any.
    Known,
    /// The peer is not who it must be.
    Rejected(HandshakeError),
}

/// Why a connection cannot be used.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// It came, said nothing and went: nobody who has to do with us.
    Silent,
    /// The peer is not who it must be, or does not take us for whom it must meet
    /// ([`TransferFailure::NotAuthenticated`]); or it went away or fell silent before either has
    /// said that ([`TransferFailure::ConnectionLost`]), and another connection may do better.
    Failed(TransferFailure),
}
