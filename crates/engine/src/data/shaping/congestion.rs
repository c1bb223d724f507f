//! The congestion control of sending sockets, which may change while they live.

use std::{
    io,
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use parking_lot::Mutex;
use socket2::SockRef;

/// The TCP congestion control that the channels which share it send with.
#[derive(Debug, Default)]
pub struct Congestion {
    name: Mutex<Option<Arc<str>>>,
    /// How often it changed.
    changes: AtomicU64,
}

impl Congestion {
    /// `name`, from the first connection on; `None`: the system's.
    pub fn new(name: Option<&str>) -> Self {
        let congestion = Self::default();
        if let Some(name) = name {
            congestion.set(name);
        }
        congestion
    }

    /// From now on, on connections that are up too, within a quarter of a second. A new connection
    /// fails where the kernel refuses; an established one keeps what it has.
    pub fn set(&self, name: &str) {
        let mut known = self.name.lock();
        if known.as_deref() != Some(name) {
            *known = Some(name.into());
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// `None`: the system's.
    pub fn get(&self) -> Option<Arc<str>> {
        self.name.lock().clone()
    }

    /// Brings a connection that is up to it. `seen`: how many changes it has seen, 0 at first.
    pub(crate) fn apply(&self, socket: &impl AsFd, seen: &mut u64) {
        let changes = self.changes.load(Ordering::Acquire);
        if changes == *seen {
            return;
        }
        *seen = changes;
        if let Some(name) = self.get()
            && let Err(error) = SockRef::from(socket).set_tcp_congestion(name.as_bytes())
        {
            tracing::debug!(%error, %name, "a data channel keeps its congestion control");
        }
    }

    /// Brings a socket that is not connected yet to it.
    pub(crate) fn demand(&self, socket: &impl AsFd) -> io::Result<()> {
        let Some(name) = self.get() else {
            return Ok(());
        };
        (SockRef::from(socket).set_tcp_congestion(name.as_bytes())).map_err(|e| {
            let text = format!("congestion control {name:?} is not available: {e}");
            io::Error::new(e.kind(), text)
        })
    }
}
