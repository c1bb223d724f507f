//! The request to end a run. By hand: 25 lines. `tokio_util`'s `CancellationToken` does the same;
//! take it once the client depends on that crate.

use std::sync::Arc;

use tokio::sync::watch;

/// The user's request to end. Clones share it; once set it stays.
#[derive(Clone, Debug)]
pub struct Stop {
    sender: Arc<watch::Sender<bool>>,
}

impl Default for Stop {
    fn default() -> Self {
        Self {
            sender: Arc::new(watch::Sender::new(false)),
        }
    }
}

impl Stop {
    /// Ends the run as soon as possible; temporary files are cleaned up.
    pub fn set(&self) {
        self.sender.send_replace(true);
    }

    /// True if it was set.
    pub fn is_set(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is set. Cancel-safe.
    pub async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        if receiver.wait_for(|set| *set).await.is_err() {
            // The sender lives in `self`, so an error cannot happen; if it did, it must not end a
            // select.
            std::future::pending::<()>().await;
        }
    }
}
