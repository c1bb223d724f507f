//! The front end's end of a link to a data node.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::{Notify, mpsc, mpsc::error::TrySendError},
    time::timeout,
};

use super::data_node::{Gone, Node, lock};
use crate::nodes::{
    link::{HEARD, QUEUE, carry},
    messages::{NodeOrder, NodeReport},
    pulse::{Pulse, QUIET_MAX},
};

/// Time for a connection to a node with its handshakes, and for the answer to a question.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_millis(2500);

/// Channels of a link that count: a node that says more lies.
pub(super) const CHANNELS_MAX: u32 = 1 << 16;

/// The front end's end of a link.
pub(crate) struct FrontLink {
    pub(crate) node: Arc<Node>,
    orders: mpsc::Sender<NodeOrder>,
    /// An order has found no room.
    overrun: Arc<Notify>,
    pub(super) reports: Mutex<mpsc::Receiver<NodeReport>>,
    /// Why it ended.
    fault: Arc<Mutex<Option<Gone>>>,
    pulse: Arc<Pulse>,
    /// Passes by another process, which knows more of the node.
    is_passed_on: bool,
    /// Of transfers on it.
    transfers: AtomicU64,
    /// Channels at its last report.
    channels: AtomicU32,
}

impl FrontLink {
    /// A link over `stream`. Within a runtime.
    pub(super) fn over<S>(node: &Arc<Node>, stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::begin(node, stream, false)
    }

    fn begin<S>(node: &Arc<Node>, stream: S, is_passed_on: bool) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let (orders, outgoing) = mpsc::channel(QUEUE);
        let (incoming, reports) = mpsc::channel(HEARD);
        let fault = Arc::new(Mutex::new(None));
        let told = Arc::clone(&fault);
        let pulse = Arc::new(Pulse::new());
        let beats = Arc::clone(&pulse);
        let overrun = Arc::new(Notify::new());
        let lost = Arc::clone(&overrun);
        tokio::spawn(async move {
            // Told before the end of the reports, which `carry` owns, shows.
            let keep = incoming.clone();
            let ended = tokio::select! {
                ended = carry(stream, outgoing, incoming, &beats) => ended.map_err(|error| Gone {
                    why: error.to_string(),
                    is_of_one_link: error.is_of_one_link(),
                }),
                () = lost.notified() => Err(Gone {
                    why: format!("it does not take {QUEUE} orders in time"),
                    is_of_one_link: true,
                }),
            };
            if let Err(gone) = ended {
                *lock(&told) = Some(gone);
            }
            drop(keep);
        });
        node.links.fetch_add(1, Ordering::Relaxed);
        Self {
            node: Arc::clone(node),
            orders,
            overrun,
            reports: Mutex::new(reports),
            fault,
            pulse,
            is_passed_on,
            transfers: AtomicU64::new(0),
            channels: AtomicU32::new(0),
        }
    }

    /// The same, by way of a process that has the link to the node.
    pub(super) fn passed_on<S>(node: &Arc<Node>, stream: S) -> Self
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        Self::begin(node, stream, true)
    }

    /// After so long the node writes nothing more for it, however it goes on, once the link has
    /// ended. `is_told`: its end was reported, and has not just been noticed.
    pub(super) fn quiet_in(&self, is_told: bool) -> Duration {
        match (self.is_passed_on, is_told) {
            (false, _) => self.pulse.quiet_in(),
            // The process that has the link to the node has waited before it reported.
            (true, true) => Duration::ZERO,
            // It may have answered the node until now.
            (true, false) => QUIET_MAX,
        }
    }

    /// Counts the channels that a report tells of.
    pub(super) fn set_channels(&self, now: u32) {
        let now = now.min(CHANNELS_MAX);
        let before = self.channels.swap(now, Ordering::Relaxed);
        self.node.channels.fetch_add(now, Ordering::Relaxed);
        self.node.channels.fetch_sub(before, Ordering::Relaxed);
    }

    /// At its last report.
    pub(super) fn channels(&self) -> u32 {
        self.channels.load(Ordering::Relaxed)
    }

    /// A link whose queue is full ends, so that no order is lost without a word.
    pub(crate) fn send(&self, order: NodeOrder) {
        if let Err(TrySendError::Full(_)) = self.orders.try_send(order) {
            self.overrun.notify_one();
        }
    }

    /// Waits for room: no longer than the link bears a node that does not read.
    pub(super) async fn pass(&self, order: NodeOrder) {
        // Its end tells that it has ended.
        drop(self.orders.send(order).await);
    }

    /// It has ended.
    pub(super) fn is_gone(&self) -> bool {
        self.orders.is_closed()
    }

    /// Why it ended, once it has.
    pub(super) fn why_gone(&self) -> Gone {
        let fault = lock(&self.fault).clone();
        fault.unwrap_or_else(|| Gone {
            why: "it closed the link".to_owned(),
            is_of_one_link: false,
        })
    }

    /// A number for a transfer on it.
    pub(super) fn next_transfer(&self) -> u64 {
        self.transfers.fetch_add(1, Ordering::Relaxed)
    }

    /// The next report. Cancel-safe.
    pub(super) async fn next(&self) -> Result<NodeReport, Gone> {
        let report = std::future::poll_fn(|context| lock(&self.reports).poll_recv(context)).await;
        report.ok_or_else(|| self.why_gone())
    }

    /// The answer to an order about channels, past what is still said of a transfer before.
    pub(super) async fn answer(&self) -> Result<NodeReport, Gone> {
        let answer = async {
            loop {
                match self.next().await? {
                    NodeReport::Ready { .. }
                    | NodeReport::Progress { .. }
                    | NodeReport::Done(_) => {}
                    answer => return Ok(answer),
                }
            }
        };
        (timeout(ANSWER_LIMIT, answer).await).unwrap_or_else(|_| {
            Err(Gone {
                why: no_answer(),
                is_of_one_link: false,
            })
        })
    }
}

#[cfg(test)]
impl FrontLink {
    /// Without a connection: what it sends, and where its reports come from.
    pub(super) fn detached(
        host: &str,
        is_passed_on: bool,
    ) -> (Self, mpsc::Receiver<NodeOrder>, mpsc::Sender<NodeReport>) {
        let node = Node::well(super::monitor::WellNode {
            address: crate::config::NodeAddress {
                host: host.to_owned(),
                port: 1,
            },
            same_inodes: true,
        });
        node.links.fetch_add(1, Ordering::Relaxed);
        let (orders, sent) = mpsc::channel(QUEUE);
        let (said, reports) = mpsc::channel(QUEUE);
        let link = Self {
            node,
            orders,
            overrun: Arc::default(),
            reports: Mutex::new(reports),
            fault: Arc::default(),
            pulse: Arc::new(Pulse::new()),
            is_passed_on,
            transfers: AtomicU64::new(7),
            channels: AtomicU32::new(0),
        };
        (link, sent, said)
    }
}

impl Drop for FrontLink {
    fn drop(&mut self) {
        self.set_channels(0);
        self.node.links.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why what takes longer than [`ANSWER_LIMIT`] has failed.
pub(super) fn no_answer() -> String {
    format!("it does not answer within {} s", ANSWER_LIMIT.as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_ends_when_an_order_is_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let (of_node, _, _) = FrontLink::detached("dtn", false);
            let (stream, _node) = tokio::io::duplex(10);
            let link = FrontLink::over(&of_node.node, stream);
            for _ in 0..=QUEUE {
                link.send(NodeOrder::Abort);
            }
            let gone = link.next().await.unwrap_err();
            assert!(gone.why.contains("orders in time"), "{}", gone.why);
            assert!(gone.is_of_one_link);
        });
    }
}
