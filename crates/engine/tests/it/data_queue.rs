//! Transfers that wait for their turn on one set of channels.

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::{
    data::{ChannelSet, Mover, Transfer, TransferEvent, TransferJob},
    storage::failure,
};
use godwit_proto::{command::Mode, error::TransferFailure};
use proptest::prelude::*;

use crate::data::{Bytes, Pair, done, into, listener, params, pattern, run, whole};

/// Around every bound that decides how bytes travel: header, small block, what is read ahead, the
/// mover's buffer.
const SIZES: [usize; 12] = [
    0, 1, 16, 17, 18, 1024, 16_384, 16_385, 65_519, 65_536, 70_000, 300_000,
];

fn opening(job: impl FnOnce() -> TransferJob + Send + 'static) -> godwit_engine::data::JobOpener {
    Box::new(move || Ok(job()))
}

fn receive_all(set: &ChannelSet, count: usize) -> Vec<(Arc<Bytes>, Transfer)> {
    (0..count)
        .map(|_| {
            let target = Bytes::new(Vec::new());
            let of_job = Arc::clone(&target);
            let transfer = set.queue(false, false, opening(move || into(&of_job)));
            (target, transfer)
        })
        .collect()
}

#[test]
fn queued_files_arrive_each_in_its_place() {
    for (movers, parallelism) in [(1, 1), (2, 3)] {
        run(async {
            let pair = Pair::new(movers, &params(parallelism, 1 << 20));
            let files: Vec<Vec<u8>> = (0..60).map(|i| pattern(SIZES[i % 12] + i / 12)).collect();
            let sends: Vec<Transfer> = files
                .iter()
                .map(|bytes| {
                    let source = Bytes::new(bytes.clone());
                    pair.sender
                        .queue(true, false, opening(move || whole(&source)))
                })
                .collect();
            let mut receipts = receive_all(&pair.receiver, files.len());
            for (i, mut send) in sends.into_iter().enumerate() {
                match send.next_event().await {
                    TransferEvent::Ready { reused } => assert_eq!(reused, i > 0),
                    other => panic!("{other:?}"),
                }
                let sent = done(&mut send).await;
                assert_eq!(sent.result, Ok(()), "{i}: {sent:?}");
                assert_eq!(sent.bytes, files[i].len() as u64);
                let (target, receipt) = &mut receipts[i];
                let received = done(receipt).await;
                assert_eq!(received.result, Ok(()), "{i}: {received:?}");
                assert!(target.bytes() == files[i], "file {i}");
            }
        });
    }
}

#[test]
fn queued_files_open_in_their_turn() {
    run(async {
        let pair = Pair::new(1, &params(1, 1000));
        let held = Bytes::gated();
        let opened = Arc::new(AtomicBool::new(false));
        let of_first = Arc::clone(&held);
        let mut first = pair
            .receiver
            .queue(false, false, opening(move || into(&of_first)));
        let (target, flag) = (Bytes::new(Vec::new()), Arc::clone(&opened));
        let of_second = Arc::clone(&target);
        let mut second = pair.receiver.queue(
            false,
            false,
            opening(move || {
                flag.store(true, Ordering::SeqCst);
                into(&of_second)
            }),
        );
        let mut sends = [3000, 5].map(|bytes| {
            let source = Bytes::new(pattern(bytes));
            pair.sender
                .queue(true, false, opening(move || whole(&source)))
        });
        for send in &mut sends {
            assert_eq!(done(send).await.result, Ok(()));
        }
        assert!(matches!(
            first.next_event().await,
            TransferEvent::Ready { reused: false }
        ));
        assert!(!opened.load(Ordering::SeqCst));
        held.gate.as_ref().unwrap().open();
        assert_eq!(done(&mut first).await.result, Ok(()));
        assert_eq!(done(&mut second).await.result, Ok(()));
        assert_eq!(target.bytes(), pattern(5));
    });
}

#[test]
fn transfers_behind_a_failure_fail() {
    run(async {
        let pair = Pair::new(1, &params(1, 1000));
        let mut receipts = receive_all(&pair.receiver, 1);
        let source = Bytes::new(pattern(10));
        let mut first = pair
            .sender
            .queue(true, false, opening(move || whole(&source)));
        let mut refused = pair.sender.queue(
            true,
            false,
            Box::new(|| {
                let why = std::io::Error::from(std::io::ErrorKind::NotFound);
                Err(failure("open /none", &why))
            }),
        );
        let mut behind: Vec<Transfer> = (0..3)
            .map(|_| {
                pair.sender.queue(
                    true,
                    false,
                    opening(|| unreachable!("its turn never comes")),
                )
            })
            .collect();
        assert_eq!(done(&mut first).await.result, Ok(()));
        let report = done(&mut refused).await;
        assert!(
            matches!(report.result, Err(TransferFailure::Storage(_))),
            "{report:?}"
        );
        for transfer in &mut behind {
            let report = done(transfer).await;
            assert!(
                matches!(report.result, Err(TransferFailure::NoConnection(_))),
                "{report:?}"
            );
        }
        let mut late = pair.sender.queue(true, false, opening(|| unreachable!()));
        assert!(done(&mut late).await.result.is_err());
        assert_eq!(done(&mut receipts[0].1).await.result, Ok(()));
    });
}

#[test]
fn a_set_that_goes_ends_what_waits_in_it() {
    run(async {
        let (listener, _at) = listener();
        let set =
            ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, params(1, 1000)).unwrap();
        let mut waiting = receive_all(&set, 4);
        drop(set);
        for (_, transfer) in &mut waiting {
            assert!(done(transfer).await.result.is_err());
        }
    });
}

/// All files of a sender on one connection, one after the other.
fn on_the_wire(files: &[Vec<u8>], block_bytes: usize) -> Vec<u8> {
    let header = |bits: u8, count: usize, offset: usize| {
        let mut bytes = vec![bits];
        bytes.extend((count as u64).to_be_bytes());
        bytes.extend((offset as u64).to_be_bytes());
        bytes
    };
    let mut wire = Vec::new();
    for file in files {
        for (i, block) in file.chunks(block_bytes).enumerate() {
            wire.extend(header(0, block.len(), i * block_bytes));
            wire.extend_from_slice(block);
        }
        wire.extend(header(0x48, 0, 1));
    }
    wire
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// However the bytes of many files come in pieces, and wherever the pieces end.
    #[test]
    fn slices_of_the_wire_make_no_difference(
        sizes in prop::collection::vec(prop::sample::select(&SIZES[..]), 1..12),
        block_bytes in prop::sample::select(&[1000_usize, 20_000, 1 << 20][..]),
        cuts in prop::collection::vec(1_usize..100_000, 0..12),
    ) {
        let files: Vec<Vec<u8>> = sizes.iter().map(|size| pattern(*size)).collect();
        let wire = on_the_wire(&files, block_bytes);
        run(async {
            let (listener, at) = listener();
            let set = ChannelSet::passive(
                &[Mover::spawn("m").unwrap()],
                listener,
                params(1, 1 << 20),
            )
            .unwrap();
            let mut receipts = receive_all(&set, files.len());
            let writer = std::thread::spawn(move || {
                let mut socket = TcpStream::connect(at).unwrap();
                socket.set_nodelay(true).unwrap();
                let mut rest = &wire[..];
                for cut in cuts {
                    let (piece, after) = rest.split_at(cut.min(rest.len()));
                    socket.write_all(piece).unwrap();
                    std::thread::yield_now();
                    rest = after;
                }
                socket.write_all(rest).unwrap();
                socket
            });
            for (i, (target, receipt)) in receipts.iter_mut().enumerate() {
                let report = done(receipt).await;
                assert_eq!(report.result, Ok(()), "file {i}: {report:?}");
                assert!(target.bytes() == files[i], "file {i}");
            }
            drop(writer.join().unwrap());
        });
    }
}

#[test]
fn small_files_are_shared_by_all_channels() {
    let (channels, files, bytes) = (4, 400, 10_000);
    let (listener, at) = listener();
    let receiver = std::thread::spawn(move || -> Vec<usize> {
        let readers: Vec<_> = (0..channels)
            .map(|_| {
                let (mut socket, _) = listener.accept().unwrap();
                std::thread::spawn(move || socket.read_to_end(&mut Vec::new()).unwrap())
            })
            .collect();
        readers.into_iter().map(|r| r.join().unwrap()).collect()
    });
    run(async {
        let movers = [Mover::spawn("s").unwrap()];
        let set = ChannelSet::active(&movers, vec![at], None, params(channels, 1 << 20));
        let sends: Vec<Transfer> = (0..files)
            .map(|_| {
                let source = Bytes::new(pattern(bytes));
                set.queue(true, false, opening(move || whole(&source)))
            })
            .collect();
        for mut send in sends {
            assert_eq!(done(&mut send).await.result, Ok(()));
        }
    });
    let carried = receiver.join().unwrap();
    // With room for all in the first one's buffers, which others would be left with nothing for.
    let least = files * bytes / channels as usize / 2;
    assert!(carried.iter().all(|&n| n >= least), "{carried:?}");
}

#[test]
fn one_transfer_at_a_time_where_nothing_is_queued() {
    run(async {
        let pair = Pair::new(1, &params(1, 1000));
        let mut queued = receive_all(&pair.receiver, 1);
        let mut second = pair
            .receiver
            .start(into(&Bytes::new(Vec::new())), Mode::ExtendedBlock);
        assert!(done(&mut second).await.result.is_err());
        // The refusal ends the set, as any failure does.
        assert!(done(&mut queued[0].1).await.result.is_err());
    });
}

#[test]
fn channels_come_and_go_between_queued_files() {
    run(async {
        let pair = Pair::new(1, &params(2, 1 << 20));
        for wanted in [2, 5, 1, 3] {
            // Nothing runs: the next file has them.
            pair.sender.next_channels(wanted);
            for _ in 0..2 {
                let source = Bytes::new(pattern(200_000));
                let mut received = receive_all(&pair.receiver, 1);
                let mut sent = pair
                    .sender
                    .queue(true, false, opening(move || whole(&source)));
                assert_eq!(done(&mut sent).await.result, Ok(()));
                assert_eq!(done(&mut received[0].1).await.result, Ok(()));
                assert!(received[0].0.bytes() == pattern(200_000));
            }
            assert_eq!(pair.sender.cached(), wanted as usize);
        }
    });
}

#[test]
fn a_batch_sums_transfers_too_short_to_sample() {
    run(async {
        let pair = Pair::new(2, &params(2, 1 << 20));
        let (sent, _) = pair.copy(pattern(5000), Mode::ExtendedBlock).await;
        assert_eq!(sent.result, Ok(()));
        let before = pair.sender.batch();
        for round in 1..=2_u64 {
            let (out, inwards) = (pair.sender.batch(), pair.receiver.batch());
            assert_eq!((out.progress().bytes, out.progress().channels), (0, 2));
            // Connections that are older count from the first look.
            out.sample();
            pair.sender.next_channels(3);
            for _ in 0..20 {
                let source = Bytes::new(pattern(20_000));
                let mut received = receive_all(&pair.receiver, 1);
                let mut sent = pair
                    .sender
                    .queue(true, false, opening(move || whole(&source)));
                assert_eq!(done(&mut sent).await.result, Ok(()));
                assert_eq!(done(&mut received[0].1).await.result, Ok(()));
            }
            let (sent, received) = (out.sample(), inwards.sample());
            assert_eq!((sent.bytes, received.bytes), (400_000, 400_000));
            assert_eq!((sent.channels, received.channels), (3, 3));
            assert!(sent.acknowledged.is_none_or(|n| n <= 400_000));
            assert_eq!(received.tcp, None, "only a sender knows");
            let Some(_) = sent.tcp else {
                println!("skipped in part: the kernel tells nothing of TCP here");
                return;
            };
            // At most one look in 20 ms.
            while out.sample().tcp.is_none_or(|tcp| tcp.segments_sent == 0) {
                tokio::task::yield_now().await;
            }
            pair.sender.next_channels(2);
            let (sent, _) = pair.copy(pattern(5000), Mode::ExtendedBlock).await;
            assert_eq!(sent.result, Ok(()), "round {round}");
            while inwards.progress().channels > 2 {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(before.sample().bytes, 0, "another one has begun");
    });
}

#[test]
fn work_has_its_turn_among_transfers() {
    run(async {
        let pair = Pair::new(1, &params(2, 1 << 20));
        let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
        let mut targets = Vec::new();
        let mut sends = Vec::new();
        for i in 0..20_usize {
            let source = Bytes::new(pattern(i * 1000));
            sends.push(
                pair.sender
                    .queue(true, false, opening(move || whole(&source))),
            );
            targets.extend(receive_all(&pair.receiver, 1));
            let target = Arc::clone(&targets[i].0);
            let sender = sender.clone();
            pair.receiver.queue_work(
                Box::new(move |turn| {
                    let seen = (i, target.bytes().len());
                    let tell = move || {
                        sender.send(seen).unwrap();
                        drop(turn);
                    };
                    // Another thread does a part of it: what follows waits all the same.
                    match i % 3 {
                        0 => drop(std::thread::spawn(tell)),
                        _ => tell(),
                    }
                }),
                false,
            );
        }
        for i in 0..20 {
            assert_eq!(heard.recv().await, Some((i, i * 1000)));
        }
        for (_, mut transfer) in targets {
            assert_eq!(done(&mut transfer).await.result, Ok(()));
        }
        for mut send in sends {
            assert_eq!(done(&mut send).await.result, Ok(()));
        }
    });
}

#[test]
fn work_behind_a_failure_is_dropped() {
    run(async {
        let pair = Pair::new(1, &params(1, 1 << 20));
        let mut refused = pair.receiver.queue(
            false,
            false,
            Box::new(|| {
                Err(failure(
                    "open",
                    &std::io::ErrorKind::PermissionDenied.into(),
                ))
            }),
        );
        let (sender, heard) = tokio::sync::oneshot::channel::<()>();
        pair.receiver
            .queue_work(Box::new(move |_turn| sender.send(()).unwrap()), false);
        assert!(done(&mut refused).await.result.is_err());
        assert!(heard.await.is_err(), "dropped without being run");
        let (sender, heard) = tokio::sync::oneshot::channel::<()>();
        pair.receiver
            .queue_work(Box::new(move |_turn| sender.send(()).unwrap()), false);
        assert!(heard.await.is_err(), "nothing begins any more");
    });
}
