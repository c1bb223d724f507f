//! What the engine does for a block beside moving its bytes, many times and without sockets.
//! `cargo xtask instructions` counts what each costs. These are tests since only the crate itself
//! reaches the parts.

use std::hint::black_box;

use godwit_proto::{
    ByteRange,
    mode_e::{BlockHeader, HEADER_BYTES, receiver::ChannelPosition, sender::AfterEod},
};

use crate::data::{
    channel::{pending_headers::PendingHeaders, read_buffer::ReadBuffer},
    transfer::{accounting::Accounting, block_queue::BlockQueue, holes::Block, totals::Totals},
};

/// Bytes of a block.
const BLOCK: u64 = 1 << 20;
const BLOCKS: u64 = 64;
const CHANNELS: u32 = 4;

/// Runs a case as often as `HOT_TIMES` says; once as a plain test.
fn repeat(mut case: impl FnMut()) {
    let times = std::env::var("HOT_TIMES").ok();
    let times = times.map_or(1, |times| times.parse().unwrap());
    (0..times).for_each(|_| case());
}

/// A sender takes all blocks of a file, writes their headers and counts their bytes.
#[test]
fn blocks_sent() {
    repeat(|| {
        let bytes = BLOCKS * BLOCK;
        let all = ByteRange {
            start: 0,
            end: bytes,
        };
        let queue = BlockQueue::new([all], bytes, BLOCK);
        let (totals, mut headers) = (Totals::default(), PendingHeaders::default());
        totals.start();
        while let Some(Block::Data(range)) = queue.next_block(CHANNELS, || BLOCK) {
            headers.push(BlockHeader::data(range.start, range.len()));
            headers.sent(black_box(headers.unsent()).len());
            totals.moved(range.len());
        }
        assert_eq!(totals.bytes(), bytes);
    });
}

/// A receiver reads the headers of all blocks, which come on several channels, and the ends.
#[test]
fn blocks_received() {
    repeat(|| {
        let mut accounting = Accounting::new(1, CHANNELS);
        let mut positions = [ChannelPosition::Fresh; CHANNELS as usize];
        let (totals, mut read_buffer) = (Totals::default(), ReadBuffer::default());
        totals.start();
        for (block, channel) in (0..BLOCKS).zip((0..CHANNELS as usize).cycle()) {
            read_buffer.put(&BlockHeader::data(block * BLOCK, BLOCK).encode());
            let bytes = read_buffer.take(HEADER_BYTES).try_into().unwrap();
            let header = BlockHeader::decode(black_box(&bytes)).unwrap();
            let position = &mut positions[channel];
            let step = accounting.receive_header(position, &header).unwrap();
            totals.moved(step.payload_bytes);
        }
        assert_eq!(totals.bytes(), BLOCKS * BLOCK);
        black_box(positions);
    });
}

/// The channels of a sender join and end, and those of its receiver learn of it.
#[test]
fn channels_ended() {
    repeat(|| {
        let mut sender = Accounting::new(1, CHANNELS);
        let mut receiver = Accounting::new(1, CHANNELS);
        sender.expect_first(CHANNELS);
        for _ in 0..CHANNELS {
            assert!(sender.sender_joins(0));
        }
        for _ in 0..CHANNELS {
            sender.sender_opens(0);
            sender.first_resolved();
        }
        let mut complete = (false, false);
        for _ in 0..CHANNELS {
            let header = sender.sender_ends(0, AfterEod::Keep).unwrap();
            complete.0 = sender.sender_ended();
            let mut position = ChannelPosition::Fresh;
            let step = receiver.receive_header(&mut position, black_box(&header));
            complete.1 = receiver.receiver_channel_ended(step.unwrap().end.unwrap());
        }
        assert_eq!(complete, (true, true));
    });
}
