//! What all links of a node share.

use std::sync::{Arc, Mutex, PoisonError};

use godwit_gsi::verify::{Anchors, Directory};
use tokio::sync::Semaphore;

use crate::{config::Durability, service::Service, storage::durability::Committer};

pub(super) struct NodeShared {
    pub(super) service: Arc<Service>,
    /// One question about a file at the root at a time: where the file system hangs, each would
    /// keep a thread.
    pub(super) looks: Arc<Semaphore>,
    /// The authorities of users whose data channels prove who they are.
    pub(super) users: Option<Arc<dyn Anchors>>,
    /// For front ends that promise something else than this node's own settings say.
    others: Mutex<Vec<Arc<Committer>>>,
}

impl NodeShared {
    pub(super) fn new(service: Arc<Service>) -> Self {
        let node = service.settings.node.as_ref();
        let users = node.and_then(|node| node.users.clone());
        let users = users.map(|users| Arc::new(Directory::new(users)) as _);
        Self::of_process(service, users)
    }

    /// In a process that opens no files of authorities itself.
    pub(super) fn of_process(service: Arc<Service>, users: Option<Arc<dyn Anchors>>) -> Self {
        Self {
            service,
            users,
            looks: Arc::new(Semaphore::new(1)),
            others: Mutex::default(),
        }
    }

    /// Where sessions bring what must be durable, as their front end promises it.
    pub(super) fn committer(&self, durability: Durability) -> Arc<Committer> {
        let own = &self.service.committer;
        if own.durability() == durability {
            return Arc::clone(own);
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        match others.iter().find(|other| other.durability() == durability) {
            Some(other) => Arc::clone(other),
            None => {
                let other = Committer::new(durability, own.storage());
                others.push(Arc::clone(&other));
                other
            }
        }
    }
}
