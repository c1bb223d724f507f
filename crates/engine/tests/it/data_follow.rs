//! Channels that start the next transfer while others still carry the one before.

use std::{
    io::{Read, Write},
    net::TcpStream,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use godwit_engine::{
    data::{ChannelParams, ChannelSet, JobOpener, Mover, Transfer, TransferReport},
    storage::failure,
};
use godwit_proto::{command::Mode, error::TransferFailure};
use proptest::prelude::*;

use crate::data::{Bytes, Pair, done, into, listener, params, pattern, run, whole};

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

fn header(bits: u8, count: usize, offset: usize) -> Vec<u8> {
    let mut bytes = vec![bits];
    bytes.extend((count as u64).to_be_bytes());
    bytes.extend((offset as u64).to_be_bytes());
    bytes
}

fn block(bits: u8, offset: usize, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header(bits, payload.len(), offset);
    bytes.extend_from_slice(payload);
    bytes
}

fn opening(target: &Arc<Bytes>) -> JobOpener {
    let target = Arc::clone(target);
    Box::new(move || Ok(into(&target)))
}

fn ok(report: &TransferReport) {
    assert_eq!(report.result, Ok(()), "{report:?}");
}

/// Until `target` holds so many bytes.
async fn holds(target: &Bytes, bytes: usize) {
    while target.bytes().len() < bytes {
        tokio::task::yield_now().await;
    }
}

/// A receiver with two channels from us. The first is through with its half of the first file, the
/// second has sent nothing yet.
struct Half {
    set: ChannelSet,
    ahead: TcpStream,
    late: TcpStream,
    first: Transfer,
    target: Arc<Bytes>,
}

impl Half {
    async fn new() -> Self {
        let (listener, at) = listener();
        let set =
            ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, params(1, 1000)).unwrap();
        let target = Bytes::new(Vec::new());
        let first = set.queue(false, true, opening(&target));
        let [mut ahead, late] = [(); 2].map(|()| TcpStream::connect(at).unwrap());
        while first.progress().channels < 2 {
            tokio::task::yield_now().await;
        }
        ahead.write_all(&block(EOD, 0, b"one ")).unwrap();
        holds(&target, 4).await;
        Self {
            set,
            ahead,
            late,
            first,
            target,
        }
    }

    fn queue(&self) -> (Arc<Bytes>, Transfer) {
        let target = Bytes::new(Vec::new());
        let transfer = self.set.queue(false, true, opening(&target));
        (target, transfer)
    }
}

#[test]
fn a_receiver_continues_on_a_finished_channel() {
    run(async {
        let mut half = Half::new().await;
        let mut others = [half.queue(), half.queue()];
        half.ahead.write_all(&block(EOD, 0, b"second")).unwrap();
        half.ahead.write_all(&block(0, 0, b"third")).unwrap();
        holds(&others[0].0, 6).await;
        holds(&others[1].0, 5).await;
        assert_eq!(half.first.progress().channels, 1, "the other has gone on");
        half.late.write_all(&block(0, 4, b"two")).unwrap();
        for _ in 0..3 {
            half.late.write_all(&header(EOF | EOD, 0, 2)).unwrap();
        }
        half.ahead.write_all(&header(EOD, 0, 0)).unwrap();
        let report = done(&mut half.first).await;
        ok(&report);
        assert!(report.cached > 0, "{report:?}");
        for (target, want) in [
            (&half.target, &b"one two"[..]),
            (&others[0].0, b"second"),
            (&others[1].0, b"third"),
        ] {
            holds(target, want.len()).await;
            assert_eq!(target.bytes(), want);
        }
        for (_, transfer) in &mut others {
            ok(&done(transfer).await);
        }
        assert_eq!(half.set.cached(), 2);
    });
}

#[test]
fn a_failed_successor_does_not_harm_its_predecessor() {
    run(async {
        for opens in [false, true] {
            let mut half = Half::new().await;
            let tried = Arc::new(AtomicBool::new(false));
            let (target, flag) = (Bytes::new(Vec::new()), Arc::clone(&tried));
            let of_second = Arc::clone(&target);
            let open: JobOpener = Box::new(move || {
                flag.store(true, Ordering::SeqCst);
                match opens {
                    true => Ok(into(&of_second)),
                    false => Err(failure("open it", &std::io::ErrorKind::NotFound.into())),
                }
            });
            let mut second = half.set.queue(false, true, open);
            let (_, mut third) = half.queue();
            if opens {
                // A second EOF.
                half.ahead.write_all(&header(EOF, 0, 2)).unwrap();
                half.ahead.write_all(&header(EOF, 0, 2)).unwrap();
                assert_eq!(half.ahead.read(&mut [0]).unwrap(), 0, "only this one ends");
            }
            while !tried.load(Ordering::SeqCst) {
                tokio::task::yield_now().await;
            }
            half.late.write_all(&block(0, 4, b"two")).unwrap();
            half.late.write_all(&header(EOF | EOD, 0, 2)).unwrap();
            ok(&done(&mut half.first).await);
            assert_eq!(half.target.bytes(), b"one two");
            let report = done(&mut second).await;
            match report.result {
                Err(TransferFailure::Protocol(_)) if opens => {}
                Err(TransferFailure::Storage(_)) if !opens => {}
                _ => panic!("{report:?}"),
            }
            let report = done(&mut third).await;
            assert!(
                matches!(report.result, Err(TransferFailure::NoConnection(_))),
                "{report:?}"
            );
        }
    });
}

#[test]
fn aborting_a_successor_ends_the_set() {
    run(async {
        let mut half = Half::new().await;
        let (target, second) = half.queue();
        half.ahead.write_all(&block(0, 0, b"x")).unwrap();
        holds(&target, 1).await;
        second.abort();
        assert!(done(&mut half.first).await.result.is_err());
    });
}

#[test]
fn work_between_is_passed_where_it_may_be() {
    run(async {
        for passable in [true, false] {
            let mut half = Half::new().await;
            let (sender, mut heard) = tokio::sync::mpsc::unbounded_channel();
            half.set
                .queue_work(Box::new(move |_turn| sender.send(()).unwrap()), passable);
            let (target, mut second) = half.queue();
            half.ahead.write_all(&block(EOD, 0, b"second")).unwrap();
            if passable {
                holds(&target, 6).await;
                assert!(heard.try_recv().is_err(), "the first is not over");
            }
            half.late.write_all(&block(0, 4, b"two")).unwrap();
            half.late.write_all(&header(EOF | EOD, 0, 2)).unwrap();
            ok(&done(&mut half.first).await);
            heard.recv().await.unwrap();
            half.late.write_all(&header(EOF | EOD, 0, 2)).unwrap();
            ok(&done(&mut second).await);
            assert_eq!(target.bytes(), b"second");
        }
    });
}

/// Reads what a sender sends on a connection: the descriptor bits and the offset of each header.
fn headers(stream: &mut TcpStream, mut goes_on: impl FnMut(u8) -> bool) -> Vec<(u8, u64)> {
    let mut seen = Vec::new();
    loop {
        let mut bytes = [0; 17];
        stream.read_exact(&mut bytes).unwrap();
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
        let payload = usize::try_from(number(1)).unwrap();
        stream.read_exact(&mut vec![0; payload]).unwrap();
        seen.push((bytes[0], number(9)));
        if !goes_on(bytes[0]) {
            return seen;
        }
    }
}

#[test]
fn a_sender_goes_on_where_a_channel_is_through() {
    run(async {
        let (listener, at) = listener();
        let small = ChannelParams {
            socket_buffer_bytes: Some(64 << 10),
            ..params(2, 1 << 20)
        };
        let set = ChannelSet::active(&[Mover::spawn("m").unwrap()], vec![at], None, small);
        let mut sends: Vec<Transfer> = (0..3)
            .map(|_| {
                let source = Bytes::new(pattern(4 << 20));
                set.queue(true, true, Box::new(move || Ok(whole(&source))))
            })
            .collect();
        let reader = std::thread::spawn(move || {
            let [mut ahead, late] = [(); 2].map(|()| listener.accept().unwrap().0);
            let mut eods = 0;
            // The other one is not read meanwhile.
            let seen = headers(&mut ahead, |bits| {
                eods += usize::from(bits & EOD != 0);
                eods < 3
            });
            assert!(seen.iter().all(|(bits, _)| bits & EOF == 0), "{seen:?}");
            (ahead, late)
        });
        let (ahead, mut late) = tokio::task::spawn_blocking(|| reader.join().unwrap())
            .await
            .unwrap();
        assert_eq!(sends[0].monitor().add_channels(1), 0, "all are counted");
        assert_eq!(sends[0].monitor().retire_channels(1), 0);
        assert_eq!(sends[0].progress().channels, 1);
        let ends = tokio::task::spawn_blocking(move || {
            let mut eofs = 0;
            let seen = headers(&mut late, |bits| {
                eofs += usize::from(bits & EOF != 0);
                eofs < 3
            });
            (late, seen)
        });
        for send in &mut sends {
            let report = done(send).await;
            ok(&report);
            assert_eq!(report.bytes, 4 << 20);
        }
        let (late, ends) = ends.await.unwrap();
        let last = ends.iter().filter(|(bits, _)| bits & EOF != 0);
        assert_eq!(last.copied().collect::<Vec<_>>(), [(EOF | EOD, 2); 3]);
        assert_eq!(set.cached(), 2);
        drop((ahead, late));
    });
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    /// Whatever the sizes are, and however many channels and movers carry them.
    #[test]
    fn consecutive_files_arrive_separately(
        sizes in prop::collection::vec(0_usize..200_000, 1..40),
        channels in 1_u32..6,
        movers in 1_usize..4,
        follows in prop::collection::vec(prop::bool::weighted(0.9), 40),
        changed in prop::option::of((0_usize..40, 1_u32..6)),
    ) {
        run(async {
            let pair = Pair::new(movers, &params(channels, 20_000));
            let mut moving: Vec<Moving> = Vec::new();
            for (i, size) in sizes.iter().enumerate() {
                if let Some((at, wanted)) = changed && at == i {
                    // Nothing may be on its way then.
                    for moving in moving.drain(..) {
                        arrived(moving).await;
                    }
                    pair.sender.next_channels(wanted);
                }
                let bytes = pattern(*size + i);
                let source = Bytes::new(bytes.clone());
                let open = Box::new(move || Ok(whole(&source)));
                let send = pair.sender.queue(true, follows[i], open);
                let target = Bytes::new(Vec::new());
                let receipt = pair.receiver.queue(false, follows[39 - i], opening(&target));
                moving.push((bytes, target, send, receipt));
            }
            for moving in moving {
                arrived(moving).await;
            }
            // And then as ever.
            let (sent, received) = pair.copy(pattern(1000), Mode::ExtendedBlock).await;
            assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        });
    }
}

/// A file, where it goes, and its transfer at both ends.
type Moving = (Vec<u8>, Arc<Bytes>, Transfer, Transfer);

async fn arrived((bytes, target, mut send, mut receipt): Moving) {
    let sent = done(&mut send).await;
    ok(&sent);
    assert_eq!(sent.bytes, bytes.len() as u64);
    assert!(sent.cached > 0, "{sent:?}");
    let received = done(&mut receipt).await;
    ok(&received);
    assert!(received.cached > 0, "{received:?}");
    assert!(target.bytes() == bytes, "{} bytes", bytes.len());
}
