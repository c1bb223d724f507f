//! MODE E: whatever the order, a transfer ends exactly when the EOD count is met.

use godwit_proto::mode_e::{
    BlockHeader, Descriptor,
    receiver::{ChannelEnd, ChannelPosition, Receiver},
    sender::{AfterEod, Sender},
};
use proptest::{collection::vec, prelude::*};

/// What each channel sends: blocks of the file dealt out, then its EOD; one of them the EOF, at
/// some place.
fn dealt(
    blocks: &[u64],
    channels: usize,
    eof_channel: usize,
    eof_early: usize,
    shape: u8,
) -> Vec<Vec<BlockHeader>> {
    let mut sent: Vec<Vec<BlockHeader>> = vec![Vec::new(); channels];
    let mut offset = 0;
    for (i, count) in blocks.iter().enumerate() {
        let block = match count % 3 {
            0 => BlockHeader::hole(offset, *count),
            _ => BlockHeader::data(offset, *count),
        };
        sent[i * 7 % channels].push(block);
        offset += count;
    }
    let total = channels as u64;
    for (i, headers) in sent.iter_mut().enumerate() {
        let close = if shape & 1 == 1 {
            Descriptor::CLOSE
        } else {
            Descriptor::DATA
        };
        let eof = i == eof_channel % channels;
        if eof && shape & 2 == 2 {
            // EOF with the EOD: 0x48.
            headers.push(BlockHeader {
                descriptor: Descriptor::EOF | Descriptor::EOD | close,
                count: 0,
                offset: total,
            });
            continue;
        }
        match headers.last_mut() {
            // EOD on the last block of data.
            Some(last) if shape & 4 == 4 => last.descriptor = Descriptor::EOD | close,
            _ => headers.push(BlockHeader {
                descriptor: Descriptor::EOD | close,
                count: 0,
                offset: 0,
            }),
        }
        if eof {
            // EOF alone, anywhere before the channel's EOD.
            let at = eof_early % headers.len();
            headers.insert(
                at,
                BlockHeader {
                    descriptor: Descriptor::EOF,
                    count: 99,
                    offset: total,
                },
            );
        }
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn receiver_ends_exactly_when_the_count_is_met(
        blocks in vec(0_u64..1000, 0..20),
        channels in 1_usize..8,
        eof in any::<(usize, usize)>(),
        shape in 0_u8..8,
        order in vec(any::<usize>(), 60),
    ) {
        let mut queues = dealt(&blocks, channels, eof.0, eof.1, shape);
        let mut receiver = Receiver::new(100);
        let mut positions = vec![ChannelPosition::Fresh; channels];
        let (mut bytes, mut ended) = (0, 0);
        for pick in order.iter().cycle() {
            let open: Vec<usize> = (0..channels).filter(|c| !queues[*c].is_empty()).collect();
            let Some(&channel) = open.get(pick % open.len().max(1)) else {
                break;
            };
            prop_assert!(!receiver.is_complete(), "headers are still to come");
            let header = queues[channel].remove(0);
            // As it comes out of the wire.
            let header = BlockHeader::decode(&header.encode()).unwrap();
            let step = receiver.handle_header(&mut positions[channel], &header).unwrap();
            bytes += step.payload_bytes + step.hole_bytes;
            if let Some(end) = step.end {
                ended += 1;
                prop_assert_eq!(end == ChannelEnd::Close, shape & 1 == 1);
                prop_assert!(receiver.handle_close(positions[channel]).is_ok());
            } else {
                prop_assert!(receiver.handle_close(positions[channel]).is_err());
            }
        }
        prop_assert!(receiver.is_complete());
        prop_assert_eq!(receiver.eod_expected(), Some(ended));
        prop_assert_eq!(bytes, blocks.iter().sum::<u64>());
    }

    /// Joins, failures to open, retirements and ends in any order; the receiver agrees with what
    /// was announced.
    #[test]
    fn sender_announces_exactly_the_eods_sent(steps in vec(0_u8..7, 0..60)) {
        let mut sender = Sender::new();
        let mut receiver = Receiver::new(1000);
        let (mut live, mut open, mut failed) = (0_u64, 0_u64, false);
        let mut send = |header: BlockHeader| {
            receiver
                .handle_header(&mut ChannelPosition::default(), &header)
                .map(|_| receiver.is_complete())
        };
        let mut complete = false;
        for step in steps {
            match step {
                0 | 1 => live += u64::from(sender.channel_joins()),
                2 | 3 if live > open => {
                    open += 1;
                    sender.channel_opens();
                }
                4 if live > open => {
                    live -= 1;
                    failed = !sender.channel_failed_to_open();
                }
                5 if sender.may_retire(false) => {
                    (live, open) = (live - 1, open - 1);
                    complete = send(sender.channel_ends(AfterEod::Close)).unwrap();
                    prop_assert!(!complete, "a retirement never ends a transfer");
                }
                6 if sender.may_end() => {
                    (live, open) = (live - 1, open - 1);
                    complete = send(sender.channel_ends(AfterEod::Keep)).unwrap();
                    prop_assert_eq!(complete, live == 0);
                }
                _ => {}
            }
            prop_assert_eq!(sender.live(), live);
            prop_assert!(!failed || sender.ended() == 0, "who said EOD leaves somebody to say EOF");
            prop_assert_eq!(sender.is_complete(), complete);
            if failed || complete {
                break;
            }
        }
        if complete {
            prop_assert!(!sender.channel_joins());
        }
    }

    /// Any headers at all: no panic, and never complete with a wrong count.
    #[test]
    fn receiver_survives_any_headers(
        headers in vec((0_usize..4, any::<[u8; 17]>(), 0_u8..6), 0..40),
        channels_max in 0_u64..5,
    ) {
        let mut receiver = Receiver::new(channels_max);
        let mut positions = [
            ChannelPosition::Fresh,
            ChannelPosition::Fresh,
            ChannelPosition::Reused,
            ChannelPosition::Reused,
        ];
        let mut eods = 0;
        for (channel, mut bytes, kind) in headers {
            bytes[0] = [0x00, 0x04, 0x08, 0x0c, 0x40, 0x48][usize::from(kind)];
            bytes[9..16].fill(0);
            bytes[16] %= 6;
            let Ok(header) = BlockHeader::decode(&bytes) else { continue };
            match receiver.handle_header(&mut positions[channel], &header) {
                Ok(_) => eods += u64::from(bytes[0] & 0x08 != 0),
                Err(_) => break,
            }
            prop_assert_eq!(receiver.eod_seen(), eods);
            prop_assert!(eods <= channels_max);
            prop_assert_eq!(receiver.is_complete(), receiver.eod_expected() == Some(eods));
        }
    }
}
