//! How questions and answers stand in messages: `linux/netlink.h`, `linux/inet_diag.h`,
//! `linux/tcp.h`.
//!
//! By hand: netlink-packet-sock-diag refuses a `struct tcp_info` shorter than the one it knows,
//! which is what older kernels send, and allocates for each attribute of each connection.

use std::{
    io,
    net::{IpAddr, SocketAddr},
};

use super::{AddressPair, TcpConnection};

/// `SOCK_DIAG_BY_FAMILY`: the type of request and answers.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST`: one connection.
pub(super) const REQUEST_ONE: u16 = 0x1;
/// `NLM_F_REQUEST | NLM_F_DUMP`: all.
pub(super) const REQUEST_DUMP: u16 = 0x301;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `INET_DIAG_INFO`, the attribute that holds `struct tcp_info`.
const INFO: u16 = 2;
/// All states but LISTEN (10), TIME_WAIT (6) and NEW_SYN_RECV (12), which move no data.
const STATES: u32 = 0xfff & !(1 << 10) & !(1 << 6);
/// `sizeof(struct nlmsghdr)`.
pub(super) const HEADER: usize = 16;
/// `sizeof(struct inet_diag_req_v2)`.
pub(super) const REQUEST: usize = 56;
/// Of a request, header included.
const REQUEST_LENGTH: u32 = 72;
/// `AF_INET`.
pub(super) const IPV4: u8 = 2;
/// `AF_INET6`.
pub(super) const IPV6: u8 = 10;
/// `TCP_LISTEN`: what a look-up finds where the connection itself is gone.
const LISTEN: u8 = 10;
/// `ENOENT`: no such connection.
pub(super) const NOT_FOUND: i32 = 2;
/// `sizeof(struct inet_diag_msg)`.
const MESSAGE: usize = 72;
/// `sizeof(struct rtattr)`.
const ATTRIBUTE: usize = 4;

/// A `struct nlmsghdr` and a `struct inet_diag_req_v2`. An empty `id` is any address, any port.
pub(super) fn question(family: u8, flags: u16, sequence: u32, id: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + REQUEST);
    message.extend(REQUEST_LENGTH.to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend([0; 4]); // the sender, which the kernel fills in
    let (tcp, extensions) = (6, 1 << (INFO - 1));
    message.extend([family, tcp, extensions, 0]);
    message.extend(STATES.to_ne_bytes());
    message.extend(id);
    message.resize(HEADER + REQUEST, 0);
    message
}

/// Family and `struct inet_diag_sockid`.
pub(super) fn identity(ends: &AddressPair) -> (u8, Vec<u8>) {
    let mut id = Vec::with_capacity(48);
    id.extend(ends.local.port().to_be_bytes());
    id.extend(ends.remote.port().to_be_bytes());
    let mut family = IPV4;
    for address in [ends.local.ip(), ends.remote.ip()] {
        // An IPv4 connection of an IPv6 socket is found as an IPv4 connection.
        let mut bytes = [0; 16];
        match address.to_canonical() {
            IpAddr::V4(v4) => bytes[..4].copy_from_slice(&v4.octets()),
            IpAddr::V6(v6) => {
                family = IPV6;
                bytes = v6.octets();
            }
        }
        id.extend(bytes);
    }
    let interface = match ends.remote {
        SocketAddr::V6(v6) => v6.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    id.extend(interface.to_ne_bytes());
    id.extend([0xff; 8]); // INET_DIAG_NOCOOKIE
    (family, id)
}

/// One message of the kernel.
#[derive(Debug)]
pub(super) enum Answer<'a> {
    /// Of a dump: that was all.
    Done,
    /// The question cannot be answered.
    Refused { sequence: u32, errno: i32 },
    /// A `struct inet_diag_msg` and its attributes.
    Connection { sequence: u32, body: &'a [u8] },
}

/// The messages of one datagram; ends after damage.
pub(super) struct Answers<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Answers<'a> {
    type Item = io::Result<Answer<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.0.len() >= HEADER {
            let bytes = self.0;
            let length = u32_at(bytes, 0) as usize;
            if length < HEADER || length > bytes.len() {
                self.0 = &[];
                return Some(Err(io::ErrorKind::InvalidData.into()));
            }
            self.0 = &bytes[length.next_multiple_of(4).min(bytes.len())..];
            let sequence = u32_at(bytes, 8);
            let body = &bytes[HEADER..length];
            match u16_at(bytes, 4) {
                DONE => return Some(Ok(Answer::Done)),
                ERROR => {
                    let errno = u32_at(body, 0).cast_signed().saturating_neg();
                    return Some(Ok(Answer::Refused { sequence, errno }));
                }
                BY_FAMILY => return Some(Ok(Answer::Connection { sequence, body })),
                _ => {}
            }
        }
        None
    }
}

/// Of a `struct inet_diag_msg` and its attributes; `None` for listeners and without `struct
/// tcp_info`.
pub(super) fn connection(body: &[u8]) -> Option<TcpConnection> {
    let mut attributes = body.get(MESSAGE..)?;
    if body[1] == LISTEN {
        return None;
    }
    while attributes.len() >= ATTRIBUTE {
        let length = u16_at(attributes, 0) as usize;
        if length < ATTRIBUTE || length > attributes.len() {
            return None;
        }
        if u16_at(attributes, 2) == INFO {
            let info = &attributes[ATTRIBUTE..length];
            return Some(TcpConnection {
                // Of struct inet_diag_sockid, in network byte order but for the cookie.
                local_port: u16_at(body, 4).to_be(),
                remote_port: u16_at(body, 6).to_be(),
                cookie: u64_at(body, 44),
                // Of struct inet_diag_msg.
                bytes_queued: u32_at(body, 60),
                // Of struct tcp_info.
                segment_bytes: u32_at(info, 16),
                unacked: u32_at(info, 24),
                receive_window_max: u32_at(info, 64),
                rtt_us: u32_at(info, 68),
                congestion_window: u32_at(info, 80),
                receive_rtt_us: u32_at(info, 92),
                segments_retransmitted: u32_at(info, 100),
                bytes_acknowledged: u64_at(info, 120),
                bytes_received: u64_at(info, 128),
                bytes_not_sent: u32_at(info, 144),
                rtt_min_us: u32_at(info, 148),
                segments_sent: u32_at(info, 156),
                delivery_bytes_per_second: u64_at(info, 160),
                busy_us: u64_at(info, 168),
                receive_window_limited_us: u64_at(info, 176),
                send_buffer_limited_us: u64_at(info, 184),
                bytes_sent: u64_at(info, 200),
                bytes_retransmitted: u64_at(info, 208),
            });
        }
        let next = length.next_multiple_of(4).min(attributes.len());
        attributes = &attributes[next..];
    }
    None
}

fn bytes_at<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    (bytes.get(at..at + N))
        .and_then(|part| part.try_into().ok())
        .unwrap_or([0; N])
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(bytes_at(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes_at(bytes, at))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_ne_bytes(bytes_at(bytes, at))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn damaged_answers_are_refused() {
        assert!(matches!(Answers(&[255; 64]).next(), Some(Err(_))));
        assert!(matches!(Answers(&[0; 64]).next(), Some(Err(_))));
        assert_eq!(Answers(&[255; 64]).count(), 1);
        assert!(Answers(&[]).next().is_none());
        let mut error = vec![0; 36];
        error[..4].copy_from_slice(&36_u32.to_ne_bytes());
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        error[8..12].copy_from_slice(&77_u32.to_ne_bytes());
        error[16..20].copy_from_slice(&(-NOT_FOUND).to_ne_bytes());
        let Some(Ok(Answer::Refused { sequence, errno })) = Answers(&error).next() else {
            panic!("{:?}", Answers(&error).next());
        };
        assert_eq!((sequence, errno), (77, NOT_FOUND));
        assert!(connection(&[0; MESSAGE]).is_none());
        assert!(connection(&[9; 100]).is_none());
    }
}
