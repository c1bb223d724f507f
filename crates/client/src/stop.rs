//! The user's wish to end a run.

use std::sync::Arc;

use tokio::sync::watch;

/// The user's wish to end. Clones share it; once set it stays.
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
    /// Everything ends as soon as it can, cleaning up behind itself.
    pub fn set(&self) {
        self.sender.send_replace(true);
    }

    /// Whether it was set.
    pub fn is_set(&self) -> bool {
        *self.sender.borrow()
    }

    /// Waits until it is set. Cancel-safe.
    pub async fn wait(&self) {
        let mut receiver = self.sender.subscribe();
        if receiver.wait_for(|set| *set).await.is_err() {
            // The sender lives in `self`: cannot happen, and must not end a select.
            std::future::pending::<()>().await;
        }
    }
}
