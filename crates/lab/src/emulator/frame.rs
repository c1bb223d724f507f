//! What a TUN device delivers: an IPv4 packet, or in offload mode a virtio network header and a
//! segment of up to 64 KB that stands for many packets.
//!
//! The header of 10 bytes is `struct virtio_net_hdr` (virtio 1.2 §5.1.6) in the byte order of the
//! machine: flags u8, gso_type u8, hdr_len u16, gso_size u16, csum_start u16, csum_offset u16.

use std::net::Ipv4Addr;
use std::ops::Range;

/// Bytes of the header in offload mode.
pub(super) const VNET_LEN: usize = 10;

/// The largest frame: header, and the largest IPv4 packet.
pub(super) const FRAME_MAX: usize = VNET_LEN + 65_535;

/// The longest headers: virtual device, IPv4 and TCP with all options.
pub(super) const HEAD_MAX: usize = VNET_LEN + 60 + 60;

pub(super) const FLAG_NEEDS_CSUM: u8 = 1;
pub(super) const GSO_NONE: u8 = 0;
pub(super) const GSO_TCPV4: u8 = 1;
pub(super) const GSO_UDP_L4: u8 = 5;
/// Set beside the type when the first packet carries CWR.
pub(super) const GSO_ECN: u8 = 0x80;

pub(super) const TCP: u8 = 6;
pub(super) const UDP: u8 = 17;
const TCP_FIN: u8 = 0x01;
pub(super) const TCP_PSH: u8 = 0x08;
pub(super) const TCP_CWR: u8 = 0x80;

/// Where things are in a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Layout {
    /// Bytes before the IP packet: 0, or [`VNET_LEN`].
    ip: usize,
    /// Bytes before the transport header.
    transport: usize,
    /// Bytes before the payload.
    payload: usize,
    /// Bytes of payload of one packet; all of it when the frame is one packet.
    segment_bytes: usize,
    len: usize,
    protocol: u8,
    destination: Ipv4Addr,
}

impl Layout {
    /// Understands a frame; `None` when it is no IPv4 packet or not whole.
    pub(super) fn of(frame: &[u8], offload: bool) -> Option<Layout> {
        let ip = if offload { VNET_LEN } else { 0 };
        let packet = frame.get(ip..)?;
        let &[version_and_length, _, _, _, ..] = packet else {
            return None;
        };
        let ip_header = usize::from(version_and_length & 0x0f) * 4;
        if version_and_length >> 4 != 4 || ip_header < 20 || packet.len() < ip_header {
            return None;
        }
        let protocol = packet[9];
        let destination = Ipv4Addr::new(packet[16], packet[17], packet[18], packet[19]);
        let first_fragment = u16::from_be_bytes([packet[6], packet[7]]) & 0x1fff == 0;
        let transport_header = match protocol {
            TCP if first_fragment => usize::from(packet.get(ip_header + 12)? >> 4) * 4,
            UDP if first_fragment => 8,
            _ => 0,
        };
        let transport = ip + ip_header;
        let payload = transport + transport_header;
        if frame.len() < payload {
            return None;
        }
        let mut segment_bytes = frame.len() - payload;
        if offload && matches!(frame[1] & !GSO_ECN, GSO_TCPV4 | GSO_UDP_L4) {
            let gso_size = usize::from(u16::from_ne_bytes([frame[4], frame[5]]));
            if gso_size == 0 || transport_header == 0 {
                return None;
            }
            segment_bytes = gso_size;
        }
        Some(Layout {
            ip,
            transport,
            payload,
            segment_bytes,
            len: frame.len(),
            protocol,
            destination,
        })
    }

    pub(super) fn destination(&self) -> Ipv4Addr {
        self.destination
    }

    /// IP packets it stands for; at least 1.
    pub(super) fn packets(&self) -> usize {
        (self.len - self.payload)
            .div_ceil(self.segment_bytes.max(1))
            .max(1)
    }

    /// Bytes of one of these IP packets.
    pub(super) fn packet_bytes(&self, index: usize) -> usize {
        self.payload - self.ip + self.payload_of(&(index..index + 1)).len()
    }

    /// Where the payload of some consecutive packets lies in the frame.
    pub(super) fn payload_of(&self, packets: &Range<usize>) -> Range<usize> {
        let at = |index: usize| (self.payload + index * self.segment_bytes).min(self.len);
        at(packets.start)..at(packets.end)
    }

    /// Writes the headers of a frame that stands for `packets` of this one: what precedes
    /// [`Layout::payload_of`] them. Only called for some of the packets of a segmented frame.
    pub(super) fn head_of<'b>(
        &self,
        frame: &[u8],
        packets: &Range<usize>,
        buffer: &'b mut [u8; HEAD_MAX],
    ) -> &'b [u8] {
        let head = &mut buffer[..self.payload];
        head.copy_from_slice(&frame[..self.payload]);
        let is_last = packets.end == self.packets();
        let one = packets.len() == 1;
        if one {
            head[1] = GSO_NONE;
            head[4..6].fill(0);
        } else if packets.start > 0 {
            head[1] &= !GSO_ECN;
        }

        let payload_bytes = self.payload_of(packets).len();
        let transport_bytes = self.payload - self.transport + payload_bytes;
        let ip_bytes = to_u16(self.payload - self.ip + payload_bytes);
        let ip = &mut head[self.ip..];
        ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
        let id = u16::from_be_bytes([ip[4], ip[5]]).wrapping_add(to_u16(packets.start));
        ip[4..6].copy_from_slice(&id.to_be_bytes());
        ip[10..12].fill(0);
        let header_bytes = self.transport - self.ip;
        let checksum = !fold(sum(&ip[..header_bytes]));
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());

        // Sum of the pseudo header only: the receiver's kernel takes a frame that still needs its
        // checksum for correct, as from a virtual machine on the same host (RFC 9293 §3.1).
        let pseudo =
            sum(&ip[12..20]) + u32::from(self.protocol) + u32::from(to_u16(transport_bytes));
        let pseudo = fold(pseudo).to_be_bytes();
        let transport = &mut head[self.transport..];
        if self.protocol == TCP {
            let skipped = u32::from(to_u16(packets.start * self.segment_bytes));
            let sequence =
                u32::from_be_bytes([transport[4], transport[5], transport[6], transport[7]]);
            transport[4..8].copy_from_slice(&sequence.wrapping_add(skipped).to_be_bytes());
            if !is_last {
                transport[13] &= !(TCP_FIN | TCP_PSH);
            }
            if packets.start > 0 {
                transport[13] &= !TCP_CWR;
            }
            transport[16..18].copy_from_slice(&pseudo);
        } else {
            transport[4..6].copy_from_slice(&to_u16(transport_bytes).to_be_bytes());
            transport[6..8].copy_from_slice(&pseudo);
        }
        head
    }

    /// Flips one bit in the payload of one packet so that its checksum stays correct; `choice` says
    /// which. False when there is no payload to flip, or none whose checksum is known.
    pub(super) fn corrupt(&self, frame: &mut [u8], packet: usize, choice: u64) -> bool {
        let payload = self.payload_of(&(packet..packet + 1));
        if payload.is_empty() || (self.protocol != TCP && self.protocol != UDP) {
            return false;
        }
        let nth = (choice >> 3) % payload.len() as u64;
        let byte = payload.start + usize::try_from(nth).unwrap_or(0);
        let flip = 1_u8 << (choice & 7);
        let before = frame[byte];
        frame[byte] ^= flip;
        // A frame that needs its checksum yet carries only the sum of its pseudo header.
        if self.ip == VNET_LEN && frame[0] & FLAG_NEEDS_CSUM != 0 {
            return true;
        }
        let field = self.transport + if self.protocol == TCP { 16 } else { 6 };
        let old = u16::from_be_bytes([frame[field], frame[field + 1]]);
        if self.protocol == UDP && old == 0 {
            return true;
        }
        // HC' = ~(~HC + ~m + m') (RFC 1624 §3); m is a byte in its half of a 16-bit word.
        let word = |value: u8| {
            if (byte - self.transport).is_multiple_of(2) {
                u16::from(value) << 8
            } else {
                u16::from(value)
            }
        };
        let new =
            !fold(u32::from(!old) + u32::from(!word(before)) + u32::from(word(before ^ flip)));
        // Zero means "no checksum" in UDP (RFC 768).
        let new = if self.protocol == UDP && new == 0 {
            !0
        } else {
            new
        };
        frame[field..field + 2].copy_from_slice(&new.to_be_bytes());
        true
    }
}

/// IPv4 lengths fit by construction; a frame is read from a device that knows no larger ones.
fn to_u16(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

/// Sum of 16-bit words (RFC 1071), an odd last byte padded.
pub(super) fn sum(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|pair| {
            u32::from(u16::from_be_bytes([
                pair[0],
                pair.get(1).copied().unwrap_or(0),
            ]))
        })
        .sum()
}

/// The sum with its carries added back in.
#[allow(
    clippy::cast_possible_truncation,
    reason = "nothing is left above 16 bits"
)]
pub(super) fn fold(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
