//! Frames taken apart and put together again.

#![allow(clippy::cast_possible_truncation, reason = "packets are small")]

use std::net::Ipv4Addr;
use std::ops::Range;

use super::frame::*;

/// An IPv4 packet of TCP or UDP with correct checksums, behind `vnet` bytes of header.
fn packet(protocol: u8, payload: &[u8]) -> Vec<u8> {
    let transport_header = if protocol == TCP { 32 } else { 8 };
    let total = 20 + transport_header + payload.len();
    let mut ip = vec![0_u8; 20];
    ip[0] = 0x45;
    ip[2..4].copy_from_slice(&(total as u16).to_be_bytes());
    ip[4..6].copy_from_slice(&7_u16.to_be_bytes());
    ip[8] = 64;
    ip[9] = protocol;
    ip[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
    let checksum = !fold(sum(&ip));
    ip[10..12].copy_from_slice(&checksum.to_be_bytes());
    let mut transport = vec![0_u8; transport_header];
    transport[..4].copy_from_slice(&[4, 1, 4, 2]);
    if protocol == TCP {
        transport[4..8].copy_from_slice(&0xffff_ff00_u32.to_be_bytes());
        transport[12] = 8 << 4;
        transport[13] = 0x10 | TCP_PSH | TCP_CWR;
    } else {
        let length = (8 + payload.len()) as u16;
        transport[4..6].copy_from_slice(&length.to_be_bytes());
    }
    ip.extend(transport);
    ip.extend(payload);
    let field = if protocol == TCP { 36 } else { 26 };
    let checksum = !transport_sum(&ip);
    ip[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    ip
}

/// Sum over pseudo header and segment: 0xffff when the checksum is correct.
fn transport_sum(ip: &[u8]) -> u16 {
    let pseudo = sum(&ip[12..20]) + u32::from(ip[9]) + (ip.len() - 20) as u32;
    fold(pseudo + sum(&ip[20..]))
}

/// A segmented frame as the kernel hands it over: partial checksum.
fn segmented(protocol: u8, payload: &[u8], gso_size: u16) -> Vec<u8> {
    let mut ip = packet(protocol, payload);
    let field = if protocol == TCP { 36 } else { 26 };
    let pseudo = fold(sum(&ip[12..20]) + u32::from(protocol) + (ip.len() - 20) as u32);
    ip[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    let kind = if protocol == TCP {
        GSO_TCPV4 | GSO_ECN
    } else {
        GSO_UDP_L4
    };
    let mut frame = vec![FLAG_NEEDS_CSUM, kind];
    let start = 20_u16;
    let offset = if protocol == TCP { 16_u16 } else { 6 };
    for value in [start + 32, gso_size, start, offset] {
        frame.extend(value.to_ne_bytes());
    }
    frame.extend(ip);
    frame
}

/// What a receiver makes of a frame: the checksum completed.
fn completed(frame: &[u8]) -> Vec<u8> {
    let mut ip = frame[VNET_LEN..].to_vec();
    let field = 20 + usize::from(u16::from_ne_bytes([frame[8], frame[9]]));
    let checksum = !fold(sum(&ip[20..]));
    ip[field..field + 2].copy_from_slice(&checksum.to_be_bytes());
    ip
}

fn piece(frame: &[u8], packets: Range<usize>) -> Vec<u8> {
    let layout = Layout::of(frame, true).expect("a frame");
    let mut buffer = [0; HEAD_MAX];
    let mut piece = layout.head_of(frame, &packets, &mut buffer).to_vec();
    piece.extend(&frame[layout.payload_of(&packets)]);
    piece
}

fn numbered(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index % 251) as u8).collect()
}

#[test]
fn plain_packets_are_one_packet() {
    let ip = packet(TCP, &numbered(100));
    let layout = Layout::of(&ip, false).expect("a packet");
    assert_eq!(layout.packets(), 1);
    assert_eq!(layout.packet_bytes(0), ip.len());
    assert_eq!(layout.destination(), Ipv4Addr::new(10, 0, 0, 2));
    let empty = packet(TCP, &[]);
    assert_eq!(Layout::of(&empty, false).expect("a packet").packets(), 1);
}

#[test]
fn nonsense_is_no_packet() {
    assert_eq!(Layout::of(&[], false), None);
    assert_eq!(Layout::of(&[0; 9], true), None);
    assert_eq!(Layout::of(&[0x60; 60], false), None);
    let ip = packet(TCP, &numbered(10));
    for len in 0..52 {
        assert_eq!(Layout::of(&ip[..len], false), None, "{len}");
    }
    let mut frame = segmented(TCP, &numbered(3000), 1448);
    frame[4..6].fill(0);
    assert_eq!(Layout::of(&frame, true), None);
}

#[test]
fn segments_have_the_sizes_of_their_packets() {
    let frame = segmented(TCP, &numbered(3000), 1448);
    let layout = Layout::of(&frame, true).expect("a frame");
    assert_eq!(layout.packets(), 3);
    let sizes: Vec<usize> = (0..3).map(|i| layout.packet_bytes(i)).collect();
    assert_eq!(sizes, [1500, 1500, 52 + 104]);
}

#[test]
fn every_piece_is_a_correct_frame() {
    for protocol in [TCP, UDP] {
        let payload = numbered(5000);
        let frame = segmented(protocol, &payload, 1448);
        for (start, end) in [(0, 1), (1, 2), (1, 3), (0, 2), (2, 4), (3, 4)] {
            let piece = piece(&frame, start..end);
            let ip = completed(&piece);
            assert_eq!(fold(sum(&ip[..20])), 0xffff, "IP checksum");
            assert_eq!(transport_sum(&ip), 0xffff, "transport checksum");
            assert_eq!(usize::from(u16::from_be_bytes([ip[2], ip[3]])), ip.len());
            let head = if protocol == TCP { 52 } else { 28 };
            let from = start * 1448;
            assert_eq!(ip[head..], payload[from..(end * 1448).min(5000)]);
            if protocol == TCP {
                let sequence = u32::from_be_bytes([ip[24], ip[25], ip[26], ip[27]]);
                assert_eq!(sequence, 0xffff_ff00_u32.wrapping_add(from as u32));
                assert_eq!(ip[33] & TCP_PSH != 0, end == 4);
                assert_eq!(ip[33] & TCP_CWR != 0, start == 0);
            }
            let expected = if end - start > 1 { 1448 } else { 0 };
            assert_eq!(u16::from_ne_bytes([piece[4], piece[5]]), expected);
        }
    }
}

#[test]
fn corruption_flips_one_bit_under_a_correct_checksum() {
    for protocol in [TCP, UDP] {
        for choice in [0, 7, 8, 12_345, u64::MAX] {
            let mut ip = packet(protocol, &numbered(101));
            let clean = ip.clone();
            let layout = Layout::of(&ip, false).expect("a packet");
            assert!(layout.corrupt(&mut ip, 0, choice));
            assert_eq!(transport_sum(&ip), 0xffff);
            let head = clean.len() - 101;
            let flipped: u32 = (ip[head..].iter().zip(&clean[head..]))
                .map(|(a, b)| (a ^ b).count_ones())
                .sum();
            assert_eq!(flipped, 1);
        }
    }
}

#[test]
fn corruption_stays_in_its_packet() {
    let mut frame = segmented(TCP, &numbered(3000), 1448);
    let clean = frame.clone();
    let layout = Layout::of(&frame, true).expect("a frame");
    assert!(layout.corrupt(&mut frame, 1, 99_999));
    let range = layout.payload_of(&(1..2));
    assert_ne!(frame[range.clone()], clean[range.clone()]);
    assert_eq!(frame[..range.start], clean[..range.start]);
    assert_eq!(frame[range.end..], clean[range.end..]);
    let empty = packet(TCP, &[]);
    let layout = Layout::of(&empty, false).expect("a packet");
    assert!(!layout.corrupt(&mut empty.clone(), 0, 1));
}
