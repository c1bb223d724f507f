//! How many bytes a channel takes at a time, where other channels could send them too.
//!
//! The kernel lets a socket's buffer grow to more than twice what the path holds. A channel that is
//! slower than others takes as much of a file as they do, and then has it for seconds while they
//! have nothing left: 9 MB were seen where a channel sent 27 MB/s. So each takes about half a round
//! trip's bytes at a time, as its congestion window has it, and its socket holds no more in
//! advance. Over a short path that is little, gone in microseconds, and each turn of a channel
//! costs about 20: there it takes what it sends in two milliseconds. Where there are very many, the
//! turn of each comes seldom, and it holds more so that it lasts.

use std::{
    os::fd::AsFd,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use nix::{getsockopt_impl, libc, sockopt_impl, sys::socket::getsockopt};
use socket2::SockRef;

/// What all channels of a transfer may hold unsent, bytes.
const OF_ALL: u32 = 1 << 20;

/// What one may hold at most where there are many: a mover that is woken each time half of it has
/// left keeps up with 10 Gbit/s.
const OF_EACH: u32 = 128 << 10;

/// And where there are very many, for each of them, so that it lasts until all others had their
/// turn.
const OF_EACH_BY_CHANNELS: u32 = 2 << 10;
const OF_EACH_MOST: u32 = 2 << 20;

/// What a channel takes at least, as time in which it sends that alone, microseconds.
const TAKES_US: u32 = 2000;

/// And at most, where half a round trip's bytes are not more.
const TAKES_MOST: u32 = 2 << 20;

/// The least, about the window of a new connection.
const LEAST: u32 = 16 << 10;

/// Time for which a look holds: with little files there would be one for each, about a hundredth of
/// all that a file costs.
const LOOKS_APART: Duration = Duration::from_micros(500);

sockopt_impl!(
    /// TCP_INFO, as much of it as every kernel since 4.6 gives.
    TcpInfo,
    GetOnly,
    libc::IPPROTO_TCP,
    libc::TCP_INFO,
    TcpInfoHead
);

/// The beginning of `struct tcp_info` (linux, include/uapi/linux/tcp.h). A kernel fills as much as
/// it knows of, and the whole, which grows from version to version, is more than an older one has.
#[expect(unreachable_pub, reason = "the macro makes TcpInfo public")]
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct TcpInfoHead {
    _state: [u8; 8],
    _timeouts: [u32; 2],
    snd_mss: u32,
    _rcv_mss: u32,
    _segments: [u32; 5],
    _times: [u32; 4],
    _path: [u32; 5],
    snd_cwnd: u32,
    _receiver: [u32; 5],
    _rates_and_bytes: [u64; 4],
    _counts: [u32; 3],
    /// Microseconds.
    min_rtt: u32,
}

/// Lets `socket` hold no more than so many bytes unsent, beside what is on its way.
pub fn bound_unsent(socket: &impl AsFd, bytes: u32) {
    if let Err(error) = SockRef::from(socket).set_tcp_notsent_lowat(bytes) {
        tracing::debug!(%error, "the kernel does not bound what a data connection holds");
    }
}

/// The shortest round trip that `socket` has seen; `None` where its kernel does not tell.
pub fn round_trip(socket: &impl AsFd) -> Option<Duration> {
    let path = path(socket).filter(|path| path.round_trip_us < u32::MAX);
    path.map(|path| Duration::from_micros(path.round_trip_us.into()))
}

/// The bound of a socket.
#[derive(Debug, Default)]
pub(crate) struct UnsentLimit {
    /// Bytes; 0: as the kernel has it.
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

/// Congestion window of a connection when it came up, or last took a block beside others, bytes.
#[derive(Clone, Debug, Default)]
pub(crate) struct Window(Arc<AtomicU32>);

impl Window {
    pub(crate) fn bytes(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn set(&self, bytes: u32) {
        self.0.store(bytes, Ordering::Relaxed);
    }
}

impl UnsentLimit {
    /// Bounds the bytes that `socket`, one of `channels`, may hold unsent. Returns the most bytes
    /// of the next block.
    pub(crate) fn adapt(&mut self, socket: &mio::net::TcpStream, channels: u32) -> u64 {
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
        // One channel alone keeps no other waiting.
        let path = (channels > 1).then(|| path(socket)).flatten();
        let (bound, block) = match path {
            None => (0, u64::MAX),
            Some(path) => {
                self.window.set(path.window);
                let block = path.block();
                let each = (OF_EACH_BY_CHANNELS.saturating_mul(channels)).min(OF_EACH_MOST);
                let most = (OF_ALL / channels).max(OF_EACH).max(each);
                // By powers of two: most changes of the window need no system call.
                ((1 << block.ilog2()).min(most), u64::from(block))
            }
        };
        if bound != std::mem::replace(&mut self.bound, bound) {
            bound_unsent(socket, bound);
        }
        block
    }

    /// The window of `socket`, as it is now and will be seen from now on.
    pub(crate) fn window_of(&self, socket: &mio::net::TcpStream) -> Window {
        if let Some(path) = path(socket) {
            self.window.set(path.window);
        }
        self.window.clone()
    }
}

/// The path as a connection knows it.
#[derive(Clone, Copy, Debug)]
struct Path {
    /// Congestion window, bytes.
    window: u32,
    /// Shortest round trip seen, microseconds; far more than any where none was.
    round_trip_us: u32,
}

fn path(socket: &impl AsFd) -> Option<Path> {
    let info = getsockopt(socket, TcpInfo).ok()?;
    Some(Path {
        window: info.snd_cwnd.saturating_mul(info.snd_mss),
        round_trip_us: info.min_rtt,
    })
}

impl Path {
    /// Bytes that one of several channels takes at a time.
    fn block(self) -> u32 {
        let windows = TAKES_US / self.round_trip_us.max(1);
        let soon = self.window.saturating_mul(windows).min(TAKES_MOST);
        (self.window / 2).max(soon).max(LEAST)
    }
}

#[cfg(test)]
mod tests {
    use std::mem::offset_of;

    use super::*;

    #[test]
    fn several_channels_bound_their_unsent_bytes() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = mio::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        drop(listener.accept().unwrap());
        let bound = || SockRef::from(&socket).tcp_notsent_lowat().unwrap();
        let as_it_was = bound();
        let block = u64::from(path(&socket).unwrap().block());
        let mut unsent_limit = UnsentLimit::default();
        for (channels, most) in [(2, 512 << 10), (8, 128 << 10), (512, 1 << 20)] {
            assert_eq!(unsent_limit.adapt(&socket, channels), block);
            assert!((LEAST..=most).contains(&bound()), "{}", bound());
            assert!(u64::from(bound()) <= block);
            assert!(u64::from(unsent_limit.window.bytes() / 2) <= block);
        }
        assert_eq!(unsent_limit.adapt(&socket, 1), u64::MAX);
        assert_eq!(bound(), as_it_was);
        bound_unsent(&socket, 12_345);
        assert_eq!(bound(), 12_345);
    }

    #[test]
    fn tcp_info_fields_match_the_kernel() {
        assert_eq!(
            (
                offset_of!(TcpInfoHead, snd_mss),
                offset_of!(TcpInfoHead, snd_cwnd),
                offset_of!(TcpInfoHead, min_rtt),
            ),
            (
                offset_of!(libc::tcp_info, tcpi_snd_mss),
                offset_of!(libc::tcp_info, tcpi_snd_cwnd),
                offset_of!(libc::tcp_info, tcpi_min_rtt),
            )
        );
        // Linux 4.6 has so many.
        assert_eq!(size_of::<TcpInfoHead>(), 152);
    }

    #[test]
    fn a_short_path_still_gets_blocks_worth_a_turn() {
        let block = |window, round_trip_us| {
            Path {
                window,
                round_trip_us,
            }
            .block()
        };
        assert_eq!(block(200_000, 60_000), 100_000);
        assert_eq!(block(200_000, u32::MAX), 100_000);
        assert_eq!(block(200_000, 1_000), 400_000);
        for round_trip_us in [0, 1, 50] {
            assert_eq!(block(200_000, round_trip_us), TAKES_MOST);
        }
        assert_eq!(block(10_000_000, 50), 5_000_000);
        assert_eq!(block(0, 50), LEAST);
    }
}
