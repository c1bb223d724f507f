//! A data node, as a front end sees it: whether it is well, and how busy it is.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
};

use tracing::{info, warn};

use super::monitor::WellNode;
use crate::{config::NodeAddress, observe::metrics::NodeSample};

/// One of the data nodes of a front end.
pub(crate) struct Node {
    pub(crate) address: NodeAddress,
    state: Mutex<State>,
    /// Of sessions of this front end, now.
    pub(super) links: AtomicU32,
    pub(super) channels: AtomicU32,
    /// Payload bytes moved there since this front end began.
    bytes: AtomicU64,
    /// It sees the inode numbers that this front end sees.
    same_inodes: AtomicBool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Unchecked,
    Well,
    /// Why not.
    Out(String),
}

/// Why a link gives no more reports.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gone {
    pub(super) why: String,
    /// Other links of the node may be well.
    pub(super) is_of_one_link: bool,
}

impl Node {
    pub(super) fn new(address: NodeAddress) -> Self {
        Self {
            address,
            state: Mutex::new(State::Unchecked),
            links: AtomicU32::new(0),
            channels: AtomicU32::new(0),
            bytes: AtomicU64::new(0),
            same_inodes: AtomicBool::new(false),
        }
    }

    /// As another process has found it.
    pub(super) fn well(
        WellNode {
            address,
            same_inodes,
        }: WellNode,
    ) -> Arc<Self> {
        let node = Self::new(address);
        *lock(&node.state) = State::Well;
        node.same_inodes.store(same_inodes, Ordering::Relaxed);
        Arc::new(node)
    }

    /// For [`Self::well`].
    pub(super) fn as_well(&self) -> WellNode {
        WellNode {
            address: self.address.clone(),
            same_inodes: self.same_inodes(),
        }
    }

    /// For monitoring.
    pub(super) fn sample(&self) -> NodeSample {
        NodeSample {
            name: self.address.to_string(),
            is_well: self.is_well(),
            links: self.links.load(Ordering::Relaxed),
            channels: self.channels.load(Ordering::Relaxed),
            bytes: self.bytes.load(Ordering::Relaxed),
        }
    }

    pub(super) fn is_well(&self) -> bool {
        *lock(&self.state) == State::Well
    }

    /// Channels and links, for the choice of a node.
    pub(super) fn load(&self) -> (u32, u32) {
        let of = |count: &AtomicU32| count.load(Ordering::Relaxed);
        (of(&self.channels), of(&self.links))
    }

    /// No session gets it until the next round finds it well.
    pub(super) fn leave_out(&self, why: &str) {
        let mut state = lock(&self.state);
        let out = State::Out(why.to_owned());
        if *state != out {
            warn!(node = %self.address, why, "a data node is left out");
            *state = out;
        }
    }

    /// A link to it has ended: no session gets it, unless the fault is of that link alone.
    pub(super) fn lost(&self, gone: &Gone) {
        match gone.is_of_one_link {
            true => warn!(node = %self.address, why = gone.why, "a session loses a data node"),
            false => self.leave_out(&gone.why),
        }
    }

    pub(super) fn take_back(&self, same_inodes: bool) {
        self.same_inodes.store(same_inodes, Ordering::Relaxed);
        let mut state = lock(&self.state);
        if *state != State::Well {
            info!(node = %self.address, same_inodes, "a data node is well");
            *state = State::Well;
        }
    }

    /// It sees the inode numbers that this front end sees.
    pub(super) fn same_inodes(&self) -> bool {
        self.same_inodes.load(Ordering::Relaxed)
    }

    /// Counts payload bytes that it says to have moved.
    pub(super) fn add_bytes(&self, moved: u64) {
        let add = |bytes: u64| Some(bytes.saturating_add(moved));
        // It never refuses.
        let _ = (self.bytes).fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
    }
}

impl fmt::Display for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*lock(&self.state) {
            State::Unchecked => f.write_str("not asked yet"),
            State::Well => f.write_str("well"),
            State::Out(why) => f.write_str(why),
        }
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
