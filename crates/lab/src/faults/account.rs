//! Bytes that the programs of a host handed to TCP, as its kernel counts them: bytes that a program
//! sends twice count twice.

use std::fs;
use std::io;

use crate::host::Host;
use crate::network::Error;

/// Header of an IPv4 packet and of a TCP segment with time stamps, which nearly all have, bytes.
const HEADERS: u64 = 20 + 32;
/// Payload of a full segment of the emulated path, bytes: what one that TCP sent again carried at
/// most.
const SEGMENT: u64 = 1500 - HEADERS;

/// The state of a listener in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// What a host has sent since it was made: payload of TCP without what TCP itself sent again,
/// bytes. Right to some bytes a segment.
///
/// # Errors
/// The host's kernel does not tell.
pub(super) fn payload_sent(host: &Host) -> Result<u64, Error> {
    let read = || -> io::Result<u64> {
        let simple = fs::read_to_string("/proc/thread-self/net/snmp")?;
        let more = fs::read_to_string("/proc/thread-self/net/netstat")?;
        payload(&simple, &more).ok_or_else(|| io::ErrorKind::InvalidData.into())
    };
    let payload = host.enter(read)?;
    payload.map_err(Error::os(host.name(), "read its counters"))
}

fn payload(simple: &str, more: &str) -> Option<u64> {
    let packets = counter(simple, "Ip:", "OutRequests")?;
    let again = counter(simple, "Tcp:", "RetransSegs")?;
    let bytes = counter(more, "IpExt:", "OutOctets")?;
    Some(bytes.saturating_sub(packets * HEADERS + again * SEGMENT))
}

/// What programs of a host were sent and have not read: what lies in the receive buffers of its
/// connections, bytes. Lost with the program that would have read it.
///
/// # Errors
/// The host's kernel does not tell.
pub(super) fn unread(host: &Host) -> Result<u64, Error> {
    let connections = host.enter(|| fs::read_to_string("/proc/thread-self/net/tcp"))?;
    let connections = connections.map_err(Error::os(host.name(), "read its connections"))?;
    Ok(connections.lines().filter_map(unread_of).sum())
}

/// Of a line of `/proc/net/tcp`: number, both addresses, state, `sent:unread` and more. A listener
/// counts connections there.
fn unread_of(line: &str) -> Option<u64> {
    let mut words = line.split_ascii_whitespace().skip(3);
    let state = words.next()?;
    let (_, unread) = words.next()?.split_once(':')?;
    (state != LISTENS).then_some(u64::from_str_radix(unread, 16).ok()?)
}

/// A line of names and a line of values: `Ip: A B` and `Ip: 1 2`.
fn counter(text: &str, group: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines().filter(|line| line.starts_with(group));
    let names = lines.next()?.split_ascii_whitespace();
    let values = lines.next()?.split_ascii_whitespace();
    let (_, value) = names.zip(values).find(|(found, _)| *found == name)?;
    value.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_and_retransmissions_are_no_payload() {
        let simple = "Ip: Forwarding OutRequests\nIp: 2 100\nTcp: RetransSegs\nTcp: 3\n";
        let more = "TcpExt: A\nTcpExt: 1\nIpExt: InOctets OutOctets\nIpExt: 7 1005200\n";
        assert_eq!(payload(simple, more), Some(1_000_000 - 3 * 1448));
        assert_eq!(payload(simple, "IpExt: InOctets\nIpExt: 7\n"), None);
    }

    #[test]
    fn backlogs_of_listeners_are_not_unread_bytes() {
        let head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt";
        assert_eq!(unread_of(head), None);
        let listener = "   0: 0100007F:0AFB 00000000:0000 0A 00000000:00000003 00:00000000 0";
        assert_eq!(unread_of(listener), None);
        let connection = "   1: 0100007F:0AFB 0100007F:D431 01 00000010:0000BEEF 00:00000000 0";
        assert_eq!(unread_of(connection), Some(0xbeef));
    }

    #[test]
    fn this_kernel_reports_unread_bytes() {
        let [simple, more] = ["snmp", "netstat"]
            .map(|name| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap());
        assert!(payload(&simple, &more).is_some());
    }
}
