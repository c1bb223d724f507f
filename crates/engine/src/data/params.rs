//! The parameters of a channel set.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use godwit_proto::mode_e::layout::StripeLayout;

use crate::data::{
    security::ChannelSecurity,
    shaping::{congestion::Congestion, rate_limit::RateLimit},
};

/// The engine's share of a setting.
#[derive(Clone, Debug)]
pub struct ChannelParams {
    /// Data channels opened per peer address at the start of a transfer that we send; at least 1.
    pub parallelism: u32,
    /// Most channels at a time; further connections are refused. Worst-case memory of a sender
    /// whose storage needs copies is `channels_max` x 256 KiB; with protected channels (see
    /// [`ChannelSecurity`]) `channels_max` x 448 KiB. Of files that pass the page cache by 768 KiB
    /// more.
    pub channels_max: u32,
    /// Longest MODE E block, bytes; at least 1. A sender makes them shorter, down to 64 KiB, for a
    /// small file and near the end, so that each channel finds work.
    pub block_bytes: u64,
    /// The peer understands headers of holes: a sender announces the holes of its file, in MODE E,
    /// and does not send their zeros. A receiver accepts such headers in any case.
    pub holes: bool,
    /// SO_SNDBUF and SO_RCVBUF; `None` leaves them to the kernel's autotuning.
    pub socket_buffer_bytes: Option<u64>,
    /// TCP congestion control of sending sockets.
    pub congestion: Arc<Congestion>,
    /// Limit of the rate of all channels together, and of those of other sets that share it.
    pub rate: Arc<RateLimit>,
    /// How peers authenticate, and what protects the bytes (DCAU, PROT); `None`: neither.
    pub security: Option<ChannelSecurity>,
    /// The only hosts whose connections are accepted, beside what `security` demands; `None`: any.
    pub only_from: Option<Arc<[IpAddr]>>,
    /// The address of this machine that connections are made from; `None`: the kernel chooses.
    pub source: Option<IpAddr>,
    /// Limit on channels that several sets share, beyond `channels_max`; `None`: none.
    pub channel_limiter: Option<Arc<dyn ChannelLimiter>>,
    /// Time for a connection, made or accepted, before the transfer fails. One that is added to a
    /// running transfer has 5 s at most, and its failure is only logged.
    pub connect_limit: Duration,
    /// Time without a byte on any channel before the transfer fails.
    pub stall_limit: Duration,
    /// Where storage fails a receipt, the connections stay open until the set is dropped, and
    /// nothing is read from them: the session has time to report the reason to the peer before the
    /// peer sees them close.
    pub closes_late: bool,
    /// [`TransferReport::safe`](crate::data::TransferReport::safe) lists all that a receipt has put
    /// on storage, and a receipt in too many pieces fails. Else
    /// [`Transfer::take_fresh`](crate::data::Transfer::take_fresh) has the news, and leaves out
    /// what is too much.
    pub reports_safe: bool,
    /// What of a file a set that connects sends, in MODE E; others send the rest.
    pub part: FilePart,
}

/// What of a file is sent by one of several sets, which may be on different machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FilePart {
    /// All of its ranges.
    #[default]
    Whole,
    /// The bytes that the layout has for one stripe.
    Stripe {
        /// Where each byte belongs.
        layout: StripeLayout,
        /// Which stripe, from 0.
        index: usize,
        /// Of how many.
        count: usize,
    },
    /// The ranges of the job, and those that [`Monitor::lease`](crate::data::Monitor::lease) adds
    /// while it runs. No channel ends before
    /// [`Monitor::finish`](crate::data::Monitor::finish).
    Leased,
}

impl ChannelParams {
    /// Connections from this address are accepted.
    pub(crate) fn admits(&self, peer: IpAddr) -> bool {
        let host = |address: IpAddr| address.to_canonical();
        let is_one = |hosts: &Arc<[IpAddr]>| hosts.iter().any(|only| host(*only) == host(peer));
        self.only_from.as_ref().is_none_or(is_one)
            && self
                .security
                .as_ref()
                .is_none_or(|security| security.admits(peer))
    }
}

impl Default for ChannelParams {
    fn default() -> Self {
        Self {
            parallelism: 1,
            channels_max: 2048,
            block_bytes: 1 << 20,
            holes: false,
            socket_buffer_bytes: None,
            congestion: Arc::default(),
            rate: Arc::default(),
            security: None,
            only_from: None,
            source: None,
            channel_limiter: None,
            connect_limit: Duration::from_secs(60),
            stall_limit: Duration::from_secs(60),
            closes_late: false,
            reports_safe: true,
            part: FilePart::Whole,
        }
    }
}

/// Limits the data channels of several sets together. Movers and other threads call it: it never
/// blocks.
pub trait ChannelLimiter: fmt::Debug + Send + Sync {
    /// Counts one channel more.
    ///
    /// # Errors
    /// The limit is reached; a text for the peer.
    fn acquire(&self) -> Result<(), String>;

    /// A channel that was counted is gone.
    fn release(&self);
}
