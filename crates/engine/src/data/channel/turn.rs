//! What a turn of a channel came to.

use std::{
    io,
    net::SocketAddr,
    time::{Duration, Instant},
};

use godwit_proto::error::TransferFailure;

/// Time until a file is asked again that others must first read or write. At 100 Gbit/s 12 MB pass
/// meanwhile, which is less than such a file holds.
const FILE_PAUSE: Duration = Duration::from_millis(1);

/// What a turn came to.
pub(crate) enum TurnResult {
    /// Until the kernel reports an event.
    Wait,
    /// Budget used up, more can be done at once.
    Again,
    /// The rate limit, or the file, lets nothing through before then.
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

impl TurnResult {
    /// The file takes nothing now, or has nothing.
    pub(crate) fn wait_for_file() -> Self {
        Self::Pause(Instant::now() + FILE_PAUSE)
    }
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
