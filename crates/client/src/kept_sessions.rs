//! Sessions that outlive a run.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use godwit_engine::{control::ControlChannel, data::ChannelSecurity};
use godwit_proto::{pi::transfer::ServerState, url::RemoteUrl};
use parking_lot::Mutex;

/// Time in which it shows that a server has closed its connection: what the kernel knows is read.
const CHECK_LIMIT: Duration = Duration::from_millis(1);

/// A session that may begin: one that has just logged in, or that an earlier run has left.
pub(crate) struct LoggedIn {
    pub(crate) control: ControlChannel,
    /// Where data channels begin and end, ours first.
    pub(crate) addresses: [IpAddr; 2],
    pub(crate) server: ServerState,
    /// A receiver was asked to report its progress often.
    pub(crate) markers_requested: bool,
    /// Shortest time from a command to its answer.
    pub(crate) round_trip: Duration,
    /// For the data channels; `None`: they are in clear, and anybody may be at their other end.
    pub(crate) security: Option<ChannelSecurity>,
}

/// Sessions without work, for further runs of the same user with the same credentials and address
/// scope: the holder has one for each of them. The runtime that the sessions began on must live as
/// long. Clones share them.
#[derive(Clone, Default)]
pub struct KeptSessions(Arc<Mutex<Vec<(RemoteUrl, LoggedIn)>>>);

impl KeptSessions {
    /// Closes all of them in good order.
    pub async fn close(&self) {
        let kept = std::mem::take(&mut *self.0.lock());
        for (_, opened) in kept {
            opened.control.quit().await;
        }
    }

    /// `root` names server and user.
    pub(crate) fn keep(&self, root: RemoteUrl, opened: LoggedIn) {
        self.0.lock().push((root, opened));
    }

    /// One that is alive.
    pub(crate) async fn take(&self, is_of: impl Fn(&RemoteUrl) -> bool) -> Option<LoggedIn> {
        loop {
            let mut opened = self.take_any(&is_of)?;
            // A server without a command says nothing, but that it closes the session.
            let word = opened.control.next_event();
            if tokio::time::timeout(CHECK_LIMIT, word).await.is_err() {
                return Some(opened);
            }
        }
    }

    fn take_any(&self, is_of: impl Fn(&RemoteUrl) -> bool) -> Option<LoggedIn> {
        let mut kept = self.0.lock();
        let at = kept.iter().position(|(root, _)| is_of(root))?;
        Some(kept.swap_remove(at).1)
    }
}

impl fmt::Debug for KeptSessions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeptSessions(..)")
    }
}
