//! How much of what is to be sent a channel takes for itself, where others could send it too.
//!
//! The kernel lets a socket's buffer grow to more than twice what the path holds. A channel that is slower than others takes as much of
//! a file as they do, and then has it for seconds while they have nothing left: 9 MB were seen where a channel sent 27 MB/s. So each
//! takes about half a round trip's octets at a time, as its congestion window has it, and its socket holds no more in advance.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{getsockopt_impl, libc, sockopt_impl, sys::socket::getsockopt};
use socket2::SockRef;

/// What all channels of a transfer may hold unsent, octets.
const OF_ALL: u32 = 1 << 20;

/// What one may hold at most where there are many: a mover that is woken each time half of it has left keeps up with 10 Gbit/s.
const OF_EACH: u32 = 128 << 10;

/// The least, about the window of a new connection.
const LEAST: u32 = 16 << 10;

/// Time for which a look holds: with little files there would be one for each, about a hundredth of all that a file costs.
const LOOKS_APART: Duration = Duration::from_micros(500);

sockopt_impl!(
    /// TCP_INFO (linux, include/uapi/linux/tcp.h).
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    libc::tcp_info
);

/// The bound of a socket.
#[derive(Debug, Default)]
pub(super) struct Backlog {
    /// Octets; 0: as the kernel has it.
    bound: u32,
    window: Window,
    last: Option<Look>,
}

/// What was found, and for how many channels.
#[derive(Debug)]
struct Look {
    at: Instant,
    channels: u32,
    block: u64,
}

/// Congestion window of a connection when it came up, or last took a block beside others, octets.
#[derive(Clone, Debug, Default)]
pub(super) struct Window(Arc<AtomicU32>);

impl Window {
    pub(super) fn octets(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, octets: u32) {
        self.0.store(octets, Ordering::Relaxed);
    }
}

impl Backlog {
    /// Bounds what `socket` may hold unsent, one of so many `channels`. Octets of the next block, at most.
    pub(super) fn adapt(&mut self, socket: &mio::net::TcpStream, channels: u32) -> u64 {
        let at = Instant::now();
        match &self.last {
            Some(last) if last.channels == channels && at - last.at < LOOKS_APART => last.block,
            _ => {
                let block = self.look(socket, channels);
                self.last = Some(Look {
                    at,
                    channels,
                    block,
                });
                block
            }
        }
    }

    fn look(&mut self, socket: &mio::net::TcpStream, channels: u32) -> u64 {
        // One alone keeps nobody waiting.
        let window = (channels > 1).then(|| window(socket)).flatten();
        let (bound, block) = match window {
            None => (0, u64::MAX),
            Some(window) => {
                self.window.set(window);
                let half = (window / 2).max(LEAST);
                let most = (OF_ALL / channels).max(OF_EACH);
                // By powers of two: it need not be told each time.
                ((1 << half.ilog2()).min(most), u64::from(half))
            }
        };
        if bound != std::mem::replace(&mut self.bound, bound)
            && let Err(error) = SockRef::from(socket).set_tcp_notsent_lowat(bound)
        {
            tracing::debug!(%error, "the kernel does not bound what a data connection holds");
        }
        block
    }

    /// The window of `socket`, as it is now and will be seen from now on.
    pub(super) fn window_of(&self, socket: &mio::net::TcpStream) -> Window {
        if let Some(octets) = window(socket) {
            self.window.set(octets);
        }
        self.window.clone()
    }
}

/// Octets of the congestion window.
fn window(socket: &mio::net::TcpStream) -> Option<u32> {
    let info = getsockopt(socket, TcpInfo).ok()?;
    Some(info.tcpi_snd_cwnd.saturating_mul(info.tcpi_snd_mss))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_channel_takes_what_it_can_send_and_one_alone_as_much_as_it_likes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = mio::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let bound = || SockRef::from(&socket).tcp_notsent_lowat().unwrap();
        let as_it_was = bound();
        let half = u64::from(window(&socket).unwrap() / 2);
        let mut backlog = Backlog::default();
        for (channels, most) in [(2, 512 << 10), (8, 128 << 10), (1000, 128 << 10)] {
            let block = backlog.adapt(&socket, channels);
            assert_eq!(block, half.max(LEAST.into()));
            assert!((LEAST..=most).contains(&bound()), "{}", bound());
            assert!(u64::from(bound()) <= block);
            assert_eq!(u64::from(backlog.window.octets() / 2), half);
        }
        assert_eq!(backlog.adapt(&socket, 1), u64::MAX);
        assert_eq!(bound(), as_it_was);
    }
}
