//! Our ends of MODE E against a scripted peer that does what the mode allows, and what it forbids.

use std::{
    io::{Read, Write},
    net::{Shutdown, SocketAddr, TcpStream},
    sync::Arc,
    time::Duration,
};

use godwit_engine::{
    data::{ChannelParams, ChannelSet, Mover, Sink, TransferEvent, TransferJob, TransferReport},
    storage::{
        FileRef, MemoryStorage, Storage, WriteMode,
        faulty::{Fault, FaultyStorage, Operation},
    },
};
use godwit_proto::{ByteRange, FtpPath, command::Mode, error::TransferFailure};

use crate::data::{Bytes, done, into, listener, params, pattern, run, whole};

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;
const CLOSE: u8 = 0x04;
const HOLE: u8 = 0x02;

fn header(bits: u8, count: u64, offset: u64) -> Vec<u8> {
    let mut h = vec![bits];
    h.extend(count.to_be_bytes());
    h.extend(offset.to_be_bytes());
    h
}

fn block(bits: u8, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut b = header(bits, payload.len() as u64, offset);
    b.extend_from_slice(payload);
    b
}

struct Receiver {
    set: ChannelSet,
    at: SocketAddr,
}

impl Receiver {
    fn new() -> Self {
        Self::on(&Mover::spawn("m").unwrap())
    }

    fn on(mover: &Mover) -> Self {
        let quick = ChannelParams {
            connect_limit: Duration::from_millis(300),
            stall_limit: Duration::from_millis(300),
            channels_max: 8,
            ..params(1, 1000)
        };
        let (listener, at) = listener();
        Self {
            set: ChannelSet::passive(std::slice::from_ref(mover), listener, quick).unwrap(),
            at,
        }
    }

    fn connect(&self) -> TcpStream {
        TcpStream::connect(self.at).unwrap()
    }

    async fn receive(&self, script: impl FnOnce(&Self)) -> (TransferReport, Vec<u8>) {
        let target = Bytes::new(Vec::new());
        let mut transfer = self.set.start(into(&target), Mode::ExtendedBlock);
        script(self);
        (done(&mut transfer).await, target.bytes())
    }
}

fn ok(report: &TransferReport) {
    assert_eq!(report.result, Ok(()), "{report:?}");
}

#[test]
fn eof_first_middle_last_alone_or_with_eod() {
    let data = pattern(30);
    let scripts: [(&str, Vec<Vec<u8>>); 5] = [
        (
            "first, alone",
            vec![header(EOF, 0, 2), block(0, 0, &data[..10])],
        ),
        (
            "count field set",
            vec![header(EOF, 999, 2), block(0, 0, &data[..10])],
        ),
        (
            "middle",
            vec![
                block(0, 0, &data[..5]),
                header(EOF, 0, 2),
                block(0, 5, &data[5..10]),
            ],
        ),
        (
            "last, alone",
            vec![block(0, 0, &data[..10]), header(EOF, 0, 2)],
        ),
        (
            "empty blocks",
            vec![
                header(0, 0, 77),
                block(0, 0, &data[..10]),
                header(0, 0, 0),
                header(EOF, 0, 2),
            ],
        ),
    ];
    run(async {
        for (name, script) in scripts {
            let r = Receiver::new();
            let mut open = None;
            let (report, got) = r
                .receive(|r| {
                    let (mut a, mut b) = (r.connect(), r.connect());
                    for part in &script {
                        a.write_all(part).unwrap();
                    }
                    a.write_all(&header(EOD, 0, 0)).unwrap();
                    // Out of order, EOD on a data block.
                    b.write_all(&block(0, 20, &data[20..])).unwrap();
                    b.write_all(&block(EOD, 10, &data[10..20])).unwrap();
                    open = Some((a, b));
                })
                .await;
            ok(&report);
            assert_eq!(got, data, "{name}");
            assert_eq!(report.cached, 2);
        }
    });
}

#[test]
fn eof_with_eod_from_the_last_channel() {
    run(async {
        let r = Receiver::new();
        let (report, got) = r
            .receive(|r| {
                let mut b = r.connect();
                b.write_all(&header(EOD, 0, 0)).unwrap();
                r.connect()
                    .write_all(&[block(0, 0, b"abc"), header(EOF | EOD, 0, 2)].concat())
                    .unwrap();
                // The connection is dropped behind its EOD: allowed.
                std::mem::forget(b);
            })
            .await;
        ok(&report);
        assert_eq!(got, b"abc");
    });
}

#[test]
fn waits_for_a_late_connection_and_only_for_announced_ones() {
    run(async {
        let r = Receiver::new();
        let (report, got) = r
            .receive(|r| {
                let mut a = r.connect();
                a.write_all(&[block(0, 0, b"abc"), header(EOF | EOD, 0, 2)].concat())
                    .unwrap();
                let mut late = r.connect();
                late.write_all(&[block(0, 3, b"def"), header(EOD, 0, 0)].concat())
                    .unwrap();
                std::mem::forget((a, late));
            })
            .await;
        ok(&report);
        assert_eq!(got, b"abcdef");

        // Announced more than ever come: a limit ends the wait.
        let r = Receiver::new();
        let (report, _) = r
            .receive(|r| {
                let mut a = r.connect();
                a.write_all(&header(EOF | EOD, 0, 3)).unwrap();
                std::mem::forget(a);
            })
            .await;
        assert!(
            matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
            "{report:?}"
        );
    });
}

#[test]
fn close_in_each_of_its_forms() {
    run(async {
        let r = Receiver::new();
        // EOD|CLOSE: counted, then closed.
        let (report, _) = r
            .receive(|r| {
                let (mut a, mut b) = (r.connect(), r.connect());
                a.write_all(&block(EOD | CLOSE, 0, b"a")).unwrap();
                b.write_all(&[block(0, 1, b"b"), header(EOF | EOD, 0, 2)].concat())
                    .unwrap();
                std::mem::forget((a, b));
            })
            .await;
        ok(&report);
        assert_eq!(report.cached, 1);

        // EOD, then CLOSE as a header of its own, then the end of the connection: found by the next
        // transfer.
        let r = Receiver::new();
        let (mut a, mut b) = (r.connect(), r.connect());
        let (report, _) = r
            .receive(|_| {
                a.write_all(&[header(EOD, 0, 0), header(CLOSE, 0, 0)].concat())
                    .unwrap();
                a.shutdown(Shutdown::Both).unwrap();
                b.write_all(&header(EOF | EOD, 0, 2)).unwrap();
            })
            .await;
        ok(&report);
        let (report, got) = r
            .receive(|_| {
                b.write_all(&[block(0, 0, b"xyz"), header(EOF | EOD, 0, 1)].concat())
                    .unwrap()
            })
            .await;
        ok(&report);
        assert_eq!(got, b"xyz");
        // The other may have ended before it was looked at, and is found by the one after.
        assert!((1..=2).contains(&report.cached));

        // A cached connection that ends without a word is dropped as quietly.
        let mut c = r.connect();
        b.shutdown(Shutdown::Both).unwrap();
        let (report, _) = r
            .receive(|_| c.write_all(&header(EOF | EOD, 0, 1)).unwrap())
            .await;
        ok(&report);
    });
}

#[test]
fn early_connections_and_bytes_belong_to_the_next_transfer() {
    run(async {
        let r = Receiver::new();
        let mut a = r.connect();
        let (report, got) = r
            .receive(|_| {
                // Two files back to back on one connection.
                let both = [
                    block(0, 0, b"one"),
                    header(EOF | EOD, 0, 1),
                    block(0, 0, b"second"),
                    header(EOD, 0, 0),
                ]
                .concat();
                a.write_all(&both).unwrap();
            })
            .await;
        ok(&report);
        assert_eq!(got, b"one");
        // A connection between transfers is held, not forgotten.
        let mut early = r.connect();
        early
            .write_all(&[block(0, 6, b"!"), header(EOF | EOD, 0, 2)].concat())
            .unwrap();
        let (report, got) = r.receive(|_| ()).await;
        ok(&report);
        assert_eq!(got, b"second!");
    });
}

#[test]
fn a_stream_may_end_before_its_transfer_begins() {
    let data = pattern(5);
    run(async {
        // Many times: whether the mover sees the end before the transfer is a matter of chance.
        for i in 0..50 {
            let bytes = &data[..i % 6];
            let receiver = Receiver::new();
            receiver.connect().write_all(bytes).unwrap();
            tokio::task::yield_now().await;
            let target = Bytes::new(Vec::new());
            let mut transfer = receiver.set.start(into(&target), Mode::Stream);
            ok(&done(&mut transfer).await);
            assert_eq!(target.bytes(), bytes);
        }
    });
}

#[test]
fn violations_of_mode_e_are_named() {
    let cases: [(&str, Vec<u8>, &str); 8] = [
        ("unknown bit", header(0x01, 0, 0), "descriptor 0x01"),
        ("restart block", header(0x10, 4, 0), "descriptor 0x10"),
        ("overflow", header(0, u64::MAX, 5), "overflows"),
        (
            "beyond any file",
            header(0, 10, (1 << 63) - 5),
            "passes the end",
        ),
        ("2^63 bytes", header(0, 1 << 63, 0), "passes the end"),
        ("absurd EOF", header(EOF, 0, u64::MAX), "limit of 524288"),
        ("EOF of nothing", header(EOF, 0, 0), "announces 0"),
        (
            "second EOF",
            [header(EOF, 0, 2), header(EOF, 0, 2)].concat(),
            "second EOF",
        ),
    ];
    run(async {
        for (name, bytes, want) in cases {
            let r = Receiver::new();
            let (report, _) = r
                .receive(|r| {
                    let mut a = r.connect();
                    a.write_all(&bytes).unwrap();
                    std::mem::forget(a);
                })
                .await;
            let Err(TransferFailure::Protocol(text)) = &report.result else {
                panic!("{name}: {report:?}")
            };
            assert!(text.contains(want), "{name}: {text}");
        }
    });
}

#[test]
fn a_connection_that_dies_leaves_true_ranges() {
    run(async {
        for (cut, inside) in [
            (17 + 10, false),
            (17 + 10 + 17 + 4, true),
            (17 + 10 + 5, true),
            (0, false),
        ] {
            let r = Receiver::new();
            let bytes = [block(0, 0, &pattern(10)), block(0, 10, &pattern(10))].concat();
            let (report, got) = r
                .receive(|r| r.connect().write_all(&bytes[..cut]).unwrap())
                .await;
            assert!(
                matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
                "{cut} {inside} {report:?}"
            );
            assert!(report.safe.covered() <= got.len() as u64);
            assert!(report.safe.covered() <= cut as u64);
        }
    });
}

#[test]
fn one_lost_connection_drains_the_others() {
    run(async {
        let data = pattern(2 << 20);
        let half = data.len() / 2;
        let r = Receiver::new();
        let mut mute = None;
        let (report, got) = r
            .receive(|r| {
                let (mut a, mut b) = (r.connect(), r.connect());
                // A connection that never ends is given up: it was not broken, and delays no other.
                mute = Some(r.connect());
                a.write_all(&block(0, 0, &data[..10])[..20]).unwrap();
                drop(a);
                // More than may fit into the kernel: it is read while it comes.
                for (at, part) in data.chunks(1 << 16).enumerate().skip(16) {
                    b.write_all(&block(0, (at << 16) as u64, part)).unwrap();
                }
            })
            .await;
        assert!(
            matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
            "{report:?}"
        );
        let came = ByteRange::new(half as u64, data.len() as u64).unwrap();
        assert!(report.safe.contains(came), "{report:?}");
        assert!(got[half..] == data[half..]);
    });
}

/// A sender adds one while the last bytes of the others are under way.
#[test]
fn a_connection_that_closes_unused_fails_nothing() {
    run(async {
        let data = pattern(1 << 20);
        let r = Receiver::new();
        let (report, got) = r
            .receive(|r| {
                let mut a = r.connect();
                a.write_all(&block(0, 0, &data[..1000])).unwrap();
                for _ in 0..3 {
                    drop(r.connect());
                    // Time to be noticed.
                    std::thread::sleep(Duration::from_millis(20));
                }
                a.write_all(&header(EOF, 0, 1)).unwrap();
                a.write_all(&block(EOD, 1000, &data[1000..])).unwrap();
            })
            .await;
        ok(&report);
        assert!(got == data);
    });
}

#[test]
fn a_lost_connection_reports_the_written_part() {
    run(async {
        let (r, data) = (Receiver::new(), pattern(100_000));
        let (report, _) = r
            .receive(|r| {
                let block = block(0, 0, &data);
                r.connect().write_all(&block[..70_000]).unwrap();
            })
            .await;
        assert_eq!(report.safe.covered(), 70_000 - 17, "{report:?}");
    });
}

#[test]
fn a_write_that_fails_with_eio_is_retried() {
    // As often as it is tried, and once less.
    for (refused, arrives) in [(4, true), (5, false)] {
        run(async {
            let fail = |nth| Fault::Fail {
                operation: Operation::Write,
                nth,
                errno: 5,
            };
            let memory = Arc::new(MemoryStorage::new());
            let storage = FaultyStorage::new(memory, (0..refused).map(fail).collect());
            let path = FtpPath::new("/f").unwrap();
            let file = storage.open_write(&path, WriteMode::New).unwrap();
            let r = Receiver::new();
            let sink = Sink::File {
                file: Arc::clone(&file),
                base: 0,
                stream_start: 0,
                limit: None,
            };
            let mut transfer = r.set.start(TransferJob::Receive(sink), Mode::ExtendedBlock);
            let mut peer = r.connect();
            peer.write_all(&header(EOF, 0, 1)).unwrap();
            peer.write_all(&block(EOD, 0, b"sixth.")).unwrap();
            let report = done(&mut transfer).await;
            let mut bytes = [0; 6];
            match arrives {
                true => {
                    ok(&report);
                    assert_eq!(file.read_at(0, &mut bytes), Ok(6));
                    assert_eq!(&bytes, b"sixth.");
                }
                false => assert!(
                    matches!(&report.result, Err(TransferFailure::Storage(s)) if s.errno == 5),
                    "{report:?}"
                ),
            }
        });
    }
}

#[test]
fn a_panic_fails_its_transfer_and_the_thread_serves_the_next() {
    run(async {
        let panics = |operation, _| assert_ne!(operation, Operation::Write, "a bug of storage");
        let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()), Vec::new())
            .with_delay(Arc::new(panics));
        let path = FtpPath::new("/f").unwrap();
        let file = storage.open_write(&path, WriteMode::New).unwrap();
        let mover = Mover::spawn("m").unwrap();
        let r = Receiver::on(&mover);
        let sink = Sink::File {
            file,
            base: 0,
            stream_start: 0,
            limit: None,
        };
        let mut transfer = r.set.start(TransferJob::Receive(sink), Mode::ExtendedBlock);
        let mut peer = r.connect();
        peer.write_all(&header(EOF, 0, 1)).unwrap();
        peer.write_all(&block(EOD, 0, b"sixth.")).unwrap();
        let report = done(&mut transfer).await;
        let Err(failure) = &report.result else {
            panic!("{report:?}")
        };
        assert!(
            failure.to_string().contains("a bug of storage"),
            "{failure}"
        );
        let data = pattern(1000);
        let (report, bytes) = Receiver::on(&mover)
            .receive(|r| {
                let mut peer = r.connect();
                peer.write_all(&header(EOF, 0, 1)).unwrap();
                peer.write_all(&block(EOD, 0, &data)).unwrap();
            })
            .await;
        ok(&report);
        assert_eq!(bytes, data);
    });
}

#[test]
fn too_many_connections_fail_the_transfer_and_name_the_limit() {
    run(async {
        let r = Receiver::new();
        let (report, _) = r
            .receive(|r| std::mem::forget((0..9).map(|_| r.connect()).collect::<Vec<_>>()))
            .await;
        let Err(TransferFailure::Limit(text)) = &report.result else {
            panic!("{report:?}")
        };
        assert!(text.contains('8'), "{text}");
    });
}

#[test]
fn a_silent_peer_is_given_up() {
    run(async {
        let r = Receiver::new();
        let (report, _) = r
            .receive(|r| {
                let mut a = r.connect();
                a.write_all(&header(0, 100, 0)).unwrap();
                a.write_all(b"only this").unwrap();
                std::mem::forget(a);
            })
            .await;
        let Err(TransferFailure::ConnectionLost(text)) = &report.result else {
            panic!("{report:?}")
        };
        assert!(text.contains("no byte moved"), "{text}");
        assert_eq!(report.bytes, 9);
    });
}

#[test]
fn a_silent_peer_on_a_cached_connection_times_out() {
    run(async {
        let r = Receiver::new();
        let mut a = r.connect();
        let (report, _) = r
            .receive(|_| a.write_all(&header(EOF | EOD, 0, 1)).unwrap())
            .await;
        ok(&report);
        let (report, _) = r
            .receive(|_| a.write_all(&header(0, 100, 0)).unwrap())
            .await;
        assert!(
            matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
            "{report:?}"
        );
    });
}

/// What one connection of our sender said: payload blocks, then the last header.
fn read_channel(mut s: TcpStream) -> (Vec<(u64, Vec<u8>)>, u8, u64) {
    let mut blocks = Vec::new();
    loop {
        let mut h = [0; 17];
        s.read_exact(&mut h).unwrap();
        let count = u64::from_be_bytes(h[1..9].try_into().unwrap());
        let offset = u64::from_be_bytes(h[9..].try_into().unwrap());
        let mut payload = vec![0; usize::try_from(count).unwrap()];
        s.read_exact(&mut payload).unwrap();
        if h[0] & EOD != 0 {
            std::mem::forget(s);
            return (blocks, h[0], offset);
        }
        blocks.push((offset, payload));
    }
}

#[test]
fn our_sender_says_eod_everywhere_and_eof_once() {
    run(async {
        for (n, size) in [(1u32, 0usize), (4, 0), (4, 3000), (7, 100_000)] {
            let (listener, at) = listener();
            let set = ChannelSet::active(
                &[Mover::spawn("m").unwrap()],
                vec![at],
                None,
                params(n, 1000),
            );
            let source = Bytes::new(pattern(size));
            let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
            let readers: Vec<_> = (0..n)
                .map(|_| listener.accept().unwrap().0)
                .map(|s| std::thread::spawn(move || read_channel(s)))
                .collect();
            let mut got = vec![0; size];
            let mut eofs = Vec::new();
            for reader in readers {
                let (blocks, bits, announced) = reader.join().unwrap();
                for (offset, payload) in blocks {
                    assert!(payload.len() <= 1000);
                    let at = usize::try_from(offset).unwrap();
                    got[at..at + payload.len()].copy_from_slice(&payload);
                }
                if bits & EOF != 0 {
                    eofs.push(announced);
                }
            }
            assert!(got == pattern(size));
            assert_eq!(eofs, [u64::from(n)]);
            ok(&done(&mut transfer).await);
        }
    });
}

#[test]
fn stripes_get_their_layout_and_an_eof_each() {
    use godwit_proto::mode_e::layout::StripeLayout;
    run(async {
        let (one, two) = (listener(), listener());
        let layout = Some(StripeLayout::Blocked { block_bytes: 100 });
        let set = ChannelSet::active(
            &[Mover::spawn("m").unwrap()],
            vec![one.1, two.1],
            layout,
            params(2, 1000),
        );
        let source = Bytes::new(pattern(1000));
        let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
        for (stripe, listener) in [one.0, two.0].into_iter().enumerate() {
            let mut eofs = 0;
            for _ in 0..2 {
                let (blocks, bits, announced) = read_channel(listener.accept().unwrap().0);
                for (offset, payload) in blocks {
                    assert_eq!(usize::try_from(offset).unwrap() / 100 % 2, stripe);
                    let at = usize::try_from(offset).unwrap();
                    assert!(payload == pattern(1000)[at..at + payload.len()]);
                }
                if bits & EOF != 0 {
                    eofs += 1;
                    assert_eq!(announced, 2);
                }
            }
            assert_eq!(eofs, 1);
        }
        ok(&done(&mut transfer).await);
    });
}

#[test]
fn our_sender_notices_a_receiver_that_goes_away() {
    run(async {
        let (listener, at) = listener();
        let set = ChannelSet::active(
            &[Mover::spawn("m").unwrap()],
            vec![at],
            None,
            params(2, 1 << 20),
        );
        let source = Bytes::new(pattern(30_000_000));
        let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
        let first = listener.accept().unwrap().0;
        let second = listener.accept().unwrap().0;
        assert!(matches!(
            transfer.next_event().await,
            TransferEvent::Ready { .. }
        ));
        drop((first, second));
        let report = done(&mut transfer).await;
        assert!(
            matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
            "{report:?}"
        );
        // The source is let go of.
        drop(transfer);
        drop(set);
        let source = source as FileRef;
        while Arc::strong_count(&source) > 1 {
            tokio::task::yield_now().await;
        }
    });
}

/// A header costs its sender nothing: neither the bounds of the region nor those of files are
/// passed, and a stream is not filled.
#[test]
fn holes_that_cannot_be_are_refused() {
    run(async {
        for (what, count, offset, limit) in [
            ("past the region", 1001, 0, Some(1000)),
            ("past any file", i64::MAX.unsigned_abs(), 1, None),
            ("past every number", u64::MAX, 1, None),
        ] {
            let r = Receiver::new();
            let target = Bytes::new(Vec::new());
            let job = TransferJob::Receive(Sink::File {
                file: Arc::clone(&target) as FileRef,
                base: 0,
                stream_start: 0,
                limit,
            });
            let mut transfer = r.set.start(job, Mode::ExtendedBlock);
            r.connect()
                .write_all(&header(HOLE | EOD, count, offset))
                .unwrap();
            let result = done(&mut transfer).await.result;
            assert!(
                matches!(result, Err(TransferFailure::Protocol(_))),
                "{what}: {result:?}"
            );
            assert!(target.bytes().is_empty(), "{what}");
        }
        let r = Receiver::new();
        let nowhere = TransferJob::Receive(Sink::Stream(Box::new(std::io::sink())));
        let mut transfer = r.set.start(nowhere, Mode::ExtendedBlock);
        r.connect().write_all(&header(HOLE, 1, 0)).unwrap();
        let result = done(&mut transfer).await.result;
        let error = result.unwrap_err().to_string();
        assert!(error.contains("a stream has none"), "{error}");
    });
}

#[test]
fn holes_come_between_blocks_with_an_eod_and_empty() {
    run(async {
        let r = Receiver::new();
        let data = pattern(20);
        let (report, got) = r
            .receive(|r| {
                let mut a = r.connect();
                for part in [
                    header(HOLE, 0, 5),
                    block(0, 0, &data),
                    header(HOLE, 300_000, 20),
                    header(EOF, 0, 1),
                    header(HOLE | EOD, 80, 300_020),
                ] {
                    a.write_all(&part).unwrap();
                }
            })
            .await;
        ok(&report);
        assert_eq!(report.bytes, 300_100);
        assert_eq!(report.safe.to_string(), "0-300100");
        assert!(got[..20] == data && got.len() == 300_100);
        assert!(got[20..].iter().all(|byte| *byte == 0));
    });
}
