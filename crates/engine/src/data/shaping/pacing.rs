//! The rate limit in the kernel: a socket lets its segments go evenly, where the limit alone would
//! let a turn's bytes go at once.
//!
//! What all channels may send together is held by [`super::rate_limit`]; a socket is only kept from
//! going much beyond it.

use std::os::fd::AsFd;

use nix::{getsockopt_impl, libc, setsockopt_impl, sockopt_impl, sys::socket::setsockopt};

/// How much faster than all may go together a single socket goes at most: its headers are counted
/// here, and it has to make up for when it waited. The kernel allows as much beyond the rate that a
/// congestion window stands for (net.ipv4.tcp_pacing_ca_ratio).
const ABOVE: (u64, u64) = (5, 4);

sockopt_impl!(
    /// SO_MAX_PACING_RATE: bytes per second, all ones for none (linux, include/net/sock.h).
    MaxPacingRate,
    Both,
    libc::SOL_SOCKET,
    libc::SO_MAX_PACING_RATE,
    u64
);

/// Lets segments go evenly, as fast as the congestion window stands for. Without, a sender that
/// comes back after a pause lets a whole window go at once, which a queue on the way may not hold.
pub fn pace_by_window(socket: &impl AsFd) {
    // The kernel paces where there is a limit, and none is so fast.
    pace(socket, Some(1 << 50));
}

/// Holds a socket to a limit of bits per second; `None`: to none.
pub(crate) fn pace(socket: &impl AsFd, bps: Option<u64>) {
    let rate = bps.map_or(u64::MAX, |bps| {
        (bps / 8).max(1).saturating_mul(ABOVE.0) / ABOVE.1
    });
    if let Err(error) = setsockopt(socket, MaxPacingRate, &rate) {
        tracing::debug!(%error, "the kernel does not pace a data connection");
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use nix::sys::socket::getsockopt;

    use super::*;

    #[test]
    fn a_limit_is_set_changed_and_taken_away() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        for (bps, rate) in [
            (Some(800_000_000), 125_000_000),
            (Some(1), 1),
            (Some(400_000_000_000), 62_500_000_000),
            (None, u64::MAX),
        ] {
            pace(&socket, bps);
            assert_eq!(getsockopt(&socket, MaxPacingRate).unwrap(), rate, "{bps:?}");
        }
    }
}
