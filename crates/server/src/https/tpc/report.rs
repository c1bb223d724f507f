//! The answer to a COPY: markers while it runs, and a line that says how it has ended.

use std::{
    net::SocketAddr,
    pin::pin,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use godwit_http::marker::{Ending, Marker};
use hyper::body::Bytes;
use tokio::{sync::mpsc, time::sleep};

use super::failed::Failed;
use crate::https::record::Transfer;

/// Between the first markers, and between later ones: a client takes a longer silence for a copy
/// that hangs.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const PAUSE: Duration = Duration::from_secs(5);
const FIRST_MARKERS: u32 = 5;

/// Addresses in a marker.
const CONNECTIONS_MAX: usize = 16;

/// How far a copy is.
#[derive(Debug, Default)]
pub(super) struct CopyProgress {
    bytes: AtomicU64,
    connections: Mutex<Vec<String>>,
}

impl CopyProgress {
    /// Bytes more on disk, or on their way to the other server.
    pub(super) fn add(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes in all.
    pub(super) fn set(&self, bytes: u64) {
        self.bytes.store(bytes, Ordering::Relaxed);
    }

    fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }

    /// A connection to this address is used.
    pub(super) fn connected(&self, peer: SocketAddr) {
        let mut connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let text = format!("tcp:{peer}");
        if connections.len() < CONNECTIONS_MAX && !connections.contains(&text) {
            connections.push(text);
        }
    }

    fn marker(&self) -> Bytes {
        let since = SystemTime::now().duration_since(UNIX_EPOCH);
        let connections = self
            .connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let marker = Marker {
            timestamp: since.map_or(0, |since| since.as_secs()),
            stripe: 0,
            stripes: 1,
            bytes: self.bytes(),
            connections: connections.clone(),
        };
        Bytes::from(marker.to_string())
    }
}

/// Reports on `work` until it has ended.
pub(super) async fn report(
    work: impl Future<Output = Result<(), Failed>>,
    progress: &CopyProgress,
    transfer: &mut Transfer,
    lines: mpsc::Sender<Bytes>,
) {
    let mut work = pin!(work);
    let (mut markers, mut reported) = (0, 0);
    let mut mark = |transfer: &mut Transfer| {
        let bytes = progress.bytes();
        transfer.moved(usize::try_from(bytes.saturating_sub(reported)).unwrap_or(usize::MAX));
        reported = bytes;
        progress.marker()
    };
    let ended = loop {
        // A client that does not read does not stop the copy.
        let _ = lines.try_send(mark(transfer));
        markers += 1;
        let pause = match markers <= FIRST_MARKERS {
            true => FIRST_PAUSE,
            false => PAUSE,
        };
        tokio::select! {
            ended = &mut work => break ended,
            () = sleep(pause) => {}
        }
    };
    let marker = mark(transfer);
    let ending = match &ended {
        Ok(()) => Ending::Success,
        Err(failed) => Ending::Failure(failed.text.clone()),
    };
    transfer.end(
        ended
            .as_ref()
            .err()
            .map(|failed| (failed.class, failed.text.as_str())),
    );
    for line in [marker, Bytes::from(ending.to_string())] {
        if lines.send(line).await.is_err() {
            return;
        }
    }
}
