//! What the kernel knows of every TCP connection of a host: sock_diag(7), the source of ss(8).
//!
//! Goodput is measured here and not by the programs, so that all are measured alike: the receiving
//! kernel counts for each connection the octets it has received in order, once each
//! (`tcpi_bytes_received`). Their sum over a host's connections is payload that cannot be lost any
//! more, headers and retransmissions not included, whichever program reads it.
//!
//! The layout of the messages is that of `linux/netlink.h`, `linux/inet_diag.h` and
//! `linux/tcp.h`; fields that an old kernel does not report read as 0.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::OwnedFd;

use rustix::net::netlink::{self, SocketAddrNetlink};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

/// `SOCK_DIAG_BY_FAMILY`: the type of request and answers.
const BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const REQUEST_DUMP: u16 = 0x301;
/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLMSG_DONE`.
const DONE: u16 = 3;
/// `INET_DIAG_INFO`, the attribute that holds `struct tcp_info`.
const INFO: u16 = 2;
/// All states but LISTEN (10), TIME_WAIT (6) and NEW_SYN_RECV (12), which move no data.
const STATES: u32 = 0xfff & !(1 << 10) & !(1 << 6);
/// `sizeof(struct nlmsghdr)`.
const HEADER: usize = 16;
/// `sizeof(struct inet_diag_req_v2)`.
const REQUEST: usize = 56;
/// Of a request, header included.
const REQUEST_LENGTH: u32 = 72;
/// `AF_INET` and `AF_INET6`.
const FAMILIES: [u8; 2] = [2, 10];
/// `sizeof(struct inet_diag_msg)`.
const MESSAGE: usize = 72;
/// `sizeof(struct rtattr)`.
const ATTRIBUTE: usize = 4;

/// One connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Connection {
    /// The kernel's number for it; never given twice.
    pub cookie: u64,
    /// Port of this end.
    pub local_port: u16,
    /// Port of the other end.
    pub remote_port: u16,
    /// Payload octets received in order.
    pub bytes_received: u64,
    /// Payload octets sent, retransmissions included.
    pub bytes_sent: u64,
    /// Payload octets sent again.
    pub bytes_retransmitted: u64,
    /// Segments in flight.
    pub unacked: u32,
    /// Size of segments, bytes of payload.
    pub segment_bytes: u32,
    /// Smoothed round-trip time, us.
    pub rtt_us: u32,
    /// Smallest round-trip time seen, us.
    pub rtt_min_us: u32,
    /// Congestion window, segments.
    pub congestion_window: u32,
    /// Time with something to send, us.
    pub busy_us: u64,
    /// Part of it in which the other end's window had no room, us.
    pub receive_window_limited_us: u64,
    /// Part of it in which our own buffer had no more, us.
    pub send_buffer_limited_us: u64,
}

/// Asks the kernel about the connections of one host, from any thread.
#[derive(Debug)]
pub struct TcpDiag {
    socket: OwnedFd,
    buffer: Vec<u8>,
}

impl TcpDiag {
    /// Of the network namespace of the calling thread.
    ///
    /// # Errors
    /// What the kernel says, for instance that it was built without this.
    pub fn open() -> io::Result<TcpDiag> {
        let socket = rustix::net::socket_with(
            AddressFamily::NETLINK,
            SocketType::RAW,
            SocketFlags::CLOEXEC,
            Some(netlink::SOCK_DIAG),
        )?;
        Ok(TcpDiag {
            socket,
            buffer: vec![0; 1 << 16],
        })
    }

    /// All connections at this moment.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn connections(&mut self) -> io::Result<Vec<Connection>> {
        let mut found = Vec::new();
        // Programs may use IPv6 sockets for IPv4 connections.
        for family in FAMILIES {
            let kernel = SocketAddrNetlink::new(0, 0);
            let request = request(family);
            rustix::net::sendto(&self.socket, &request, SendFlags::empty(), &kernel)?;
            loop {
                let (length, _) =
                    rustix::net::recv(&self.socket, &mut self.buffer[..], RecvFlags::empty())?;
                if parse(&self.buffer[..length], &mut found)? {
                    break;
                }
            }
        }
        Ok(found)
    }
}

fn request(family: u8) -> Vec<u8> {
    let mut message = Vec::with_capacity(HEADER + REQUEST);
    message.extend(REQUEST_LENGTH.to_ne_bytes());
    message.extend(BY_FAMILY.to_ne_bytes());
    message.extend(REQUEST_DUMP.to_ne_bytes());
    message.extend([0; 8]); // sequence number and sender, which nobody compares
    let (tcp, extensions) = (6, 1 << (INFO - 1));
    message.extend([family, tcp, extensions, 0]);
    message.extend(STATES.to_ne_bytes());
    message.resize(HEADER + REQUEST, 0); // any address, any port
    message
}

/// Takes the connections out of one answer; true when it was the last.
fn parse(mut bytes: &[u8], found: &mut Vec<Connection>) -> io::Result<bool> {
    while bytes.len() >= HEADER {
        let length = u32_at(bytes, 0) as usize;
        if length < HEADER || length > bytes.len() {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let body = &bytes[HEADER..length];
        match u16_at(bytes, 4) {
            DONE => return Ok(true),
            ERROR => {
                let errno = i32::from_ne_bytes(u32_at(body, 0).to_ne_bytes());
                return Err(io::Error::from_raw_os_error(errno.saturating_neg()));
            }
            BY_FAMILY => found.extend(connection(body)),
            _ => {}
        }
        let next = length.next_multiple_of(4).min(bytes.len());
        bytes = &bytes[next..];
    }
    Ok(false)
}

/// A `struct inet_diag_msg` and its attributes; `None` without `struct tcp_info`.
fn connection(body: &[u8]) -> Option<Connection> {
    let mut attributes = body.get(MESSAGE..)?;
    while attributes.len() >= ATTRIBUTE {
        let length = u16_at(attributes, 0) as usize;
        if length < ATTRIBUTE || length > attributes.len() {
            return None;
        }
        if u16_at(attributes, 2) == INFO {
            let info = &attributes[ATTRIBUTE..length];
            return Some(Connection {
                // Of struct inet_diag_sockid, in network byte order but for the cookie.
                local_port: u16_at(body, 4).to_be(),
                remote_port: u16_at(body, 6).to_be(),
                cookie: u64_at(body, 44),
                // Of struct tcp_info.
                segment_bytes: u32_at(info, 16),
                unacked: u32_at(info, 24),
                rtt_us: u32_at(info, 68),
                congestion_window: u32_at(info, 80),
                bytes_received: u64_at(info, 128),
                rtt_min_us: u32_at(info, 148),
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

/// The last state of every connection that was ever seen, so that what closed connections moved
/// still counts.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    connections: BTreeMap<u64, Connection>,
}

impl Ledger {
    /// Takes a new look into account.
    pub fn update(&mut self, connections: &[Connection]) {
        for connection in connections {
            self.connections.insert(connection.cookie, *connection);
        }
    }

    /// All connections that were ever seen.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values()
    }

    /// Payload octets received over all of them.
    pub fn bytes_received(&self) -> u64 {
        self.connections().map(|c| c.bytes_received).sum()
    }

    /// Connections that received more than `bytes`.
    pub fn receivers(&self, bytes: u64) -> usize {
        self.connections()
            .filter(|c| c.bytes_received > bytes)
            .count()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counts_what_a_connection_received() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let mut sender = TcpStream::connect(listener.local_addr().expect("bound")).expect("up");
        let (mut receiver, _) = listener.accept().expect("accepted");
        sender.write_all(&[7; 12_345]).expect("sent");
        receiver.read_exact(&mut [0; 12_345]).expect("received");
        let Ok(mut diag) = TcpDiag::open() else {
            println!("skipped counts_what_a_connection_received: no sock_diag here");
            return;
        };
        let connections = diag.connections().expect("answers");
        let port = receiver.local_addr().expect("bound").port();
        let peer = receiver.peer_addr().expect("bound").port();
        let found = (connections.iter())
            .find(|c| c.local_port == port && c.remote_port == peer)
            .expect("is there");
        assert_eq!(found.bytes_received, 12_345);
        assert_eq!(found.bytes_sent, 0);
        let other = (connections.iter())
            .find(|c| c.local_port == peer && c.remote_port == port)
            .expect("is there");
        assert_eq!(other.bytes_sent, 12_345);
        assert!(other.segment_bytes > 500, "{other:?}");
        let mut ledger = Ledger::default();
        ledger.update(&[*found]);
        ledger.update(&[]);
        assert_eq!(ledger.bytes_received(), 12_345, "also when it has closed");
        assert_eq!(ledger.receivers(12_345), 0);
        assert_eq!(ledger.receivers(12_344), 1);
    }

    #[test]
    fn damaged_answers_are_refused() {
        let mut found = Vec::new();
        assert!(parse(&[255; 64], &mut found).is_err());
        assert!(parse(&[0; 64], &mut found).is_err());
        assert!(!parse(&[], &mut found).expect("nothing"));
        let mut error = vec![0; 36];
        error[..4].copy_from_slice(&36_u32.to_ne_bytes());
        error[4..6].copy_from_slice(&ERROR.to_ne_bytes());
        error[16..20].copy_from_slice(&(-2_i32).to_ne_bytes());
        let said = parse(&error, &mut found).expect_err("an error");
        assert_eq!(said.kind(), io::ErrorKind::NotFound);
        assert!(connection(&[0; MESSAGE]).is_none());
        assert!(connection(&[9; 100]).is_none());
    }
}
