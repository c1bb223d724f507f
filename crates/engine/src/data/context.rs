//! What a channel set shares with its transfers and its channels, and what never changes of it.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use crate::data::{
    params::ChannelParams,
    sampling::{batch::CarryingConnections, cpu_time::MoverClock},
};

pub(crate) struct SetContext {
    /// Of this process.
    pub(crate) id: u64,
    pub(crate) params: ChannelParams,
    /// The clocks of the set's movers, in the order of these.
    pub(crate) clocks: Vec<Arc<MoverClock>>,
    pub(crate) carrying: CarryingConnections,
}

impl SetContext {
    pub(crate) fn new(params: ChannelParams, clocks: Vec<Arc<MoverClock>>) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: NEXT.fetch_add(1, Ordering::Relaxed),
            params,
            clocks,
            carrying: CarryingConnections::default(),
        }
    }
}
