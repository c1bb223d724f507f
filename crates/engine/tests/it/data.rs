//! Both ends of the data plane joined over loopback.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener},
    sync::{Arc, Condvar, Mutex},
    time::{Duration, SystemTime},
};

use godwit_engine::{
    data::{
        ChannelParams, ChannelSet, Mover, Sink, Source, Transfer, TransferEvent, TransferJob,
        TransferReport,
    },
    storage::{File, FileKind, FileRef, Metadata, PreloadedFile, Result},
};
use godwit_proto::{ByteRange, command::Mode, error::TransferFailure};

/// A file in memory that may hold up its writers.
#[derive(Default)]
pub(crate) struct Bytes {
    bytes: Mutex<Vec<u8>>,
    pub(crate) gate: Option<Gate>,
}

/// Writers wait here until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn pass(&self) {
        let mut open = self.open.lock().unwrap();
        while !*open {
            open = self.changed.wait(open).unwrap();
        }
    }
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }
}

impl Bytes {
    pub(crate) fn new(bytes: Vec<u8>) -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::new(bytes),
            gate: None,
        })
    }
    pub(crate) fn gated() -> Arc<Self> {
        Arc::new(Self {
            bytes: Mutex::default(),
            gate: Some(Gate::default()),
        })
    }
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.bytes.lock().unwrap().clone()
    }
}

impl File for Bytes {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let bytes = self.bytes.lock().unwrap();
        let at = usize::try_from(offset).unwrap().min(bytes.len());
        let n = buffer.len().min(bytes.len() - at);
        buffer[..n].copy_from_slice(&bytes[at..at + n]);
        Ok(n)
    }
    fn write_all_at(&self, offset: u64, new: &[u8]) -> Result<()> {
        if let Some(gate) = &self.gate {
            gate.pass();
        }
        let mut bytes = self.bytes.lock().unwrap();
        let at = usize::try_from(offset).unwrap();
        if bytes.len() < at + new.len() {
            bytes.resize(at + new.len(), 0);
        }
        bytes[at..at + new.len()].copy_from_slice(new);
        Ok(())
    }
    fn metadata(&self) -> Result<Metadata> {
        Ok(Metadata {
            kind: FileKind::File,
            size: self.bytes.lock().unwrap().len() as u64,
            stored: 0,
            modified: SystemTime::UNIX_EPOCH,
            mode: 0o644,
            uid: 0,
            gid: 0,
            links: 1,
            unique: (0, 0),
            link_target: None,
        })
    }
    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

pub(crate) fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| u8::try_from((i * 31 + i / 251) % 256).unwrap())
        .collect()
}

pub(crate) fn listener() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((IpAddr::V4(Ipv4Addr::LOCALHOST), 0)).unwrap();
    let at = listener.local_addr().unwrap();
    (listener, at)
}

pub(crate) fn whole(file: &Arc<Bytes>) -> TransferJob {
    let end = file.bytes().len() as u64;
    TransferJob::Send(Source::File {
        file: Arc::clone(file) as FileRef,
        base: 0,
        ranges: vec![ByteRange { start: 0, end }],
    })
}

pub(crate) fn into(file: &Arc<Bytes>) -> TransferJob {
    TransferJob::Receive(Sink::File {
        file: Arc::clone(file) as FileRef,
        base: 0,
        stream_start: 0,
        limit: None,
    })
}

pub(crate) async fn done(transfer: &mut Transfer) -> TransferReport {
    loop {
        if let TransferEvent::Done(report) = transfer.next_event().await {
            return report;
        }
    }
}

pub(crate) fn run<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(async {
            // A bound on every wait: a hang is a failure, not a hung build.
            tokio::time::timeout(Duration::from_secs(60), future)
                .await
                .expect("test hangs")
        })
}

pub(crate) fn params(parallelism: u32, block_bytes: u64) -> ChannelParams {
    ChannelParams {
        parallelism,
        block_bytes,
        ..ChannelParams::default()
    }
}

/// Sender and receiver sets on movers of their own.
pub(crate) struct Pair {
    pub(crate) sender: ChannelSet,
    pub(crate) receiver: ChannelSet,
}

impl Pair {
    pub(crate) fn new(movers: usize, parameters: &ChannelParams) -> Self {
        let spawn = |side: &str| -> Vec<Mover> {
            (0..movers)
                .map(|i| Mover::spawn(&format!("{side}-{i}")).unwrap())
                .collect()
        };
        let (listener, at) = listener();
        Self {
            receiver: ChannelSet::passive(&spawn("r"), listener, parameters.clone()).unwrap(),
            sender: ChannelSet::active(&spawn("s"), vec![at], None, parameters.clone()),
        }
    }

    pub(crate) async fn copy(
        &self,
        bytes: Vec<u8>,
        mode: Mode,
    ) -> (TransferReport, TransferReport) {
        let (source, target) = (Bytes::new(bytes), Bytes::new(Vec::new()));
        let mut receive = self.receiver.start(into(&target), mode);
        let mut send = self.sender.start(whole(&source), mode);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert!(source.bytes() == target.bytes(), "{sent:?} {received:?}");
        (sent, received)
    }
}

#[test]
fn every_size_and_width_arrives() {
    run(async {
        for movers in [1, 3] {
            for n in [1, 2, 16, 64] {
                for size in [0, 1, n - 1, 4096 * n, 100_003] {
                    let pair = Pair::new(movers, &params(u32::try_from(n).unwrap(), 4096));
                    let (sent, received) = pair.copy(pattern(size), Mode::ExtendedBlock).await;
                    assert_eq!(sent.result, Ok(()), "{movers} {n} {size}");
                    assert_eq!(received.result, Ok(()));
                    assert_eq!(received.bytes, size as u64);
                    assert_eq!(received.safe.covered(), size as u64);
                    assert_eq!(
                        (sent.cached, received.cached),
                        (n, n),
                        "{movers} {n} {size}"
                    );
                    // A channel may have ended before the last one came up.
                    assert!((1..=n).contains(&usize::try_from(received.channels_peak).unwrap()));
                }
            }
        }
    });
}

#[test]
fn cached_channels_carry_the_next_transfers() {
    run(async {
        let pair = Pair::new(2, &params(4, 1000));
        for i in 0..200 {
            let (sent, received) = pair.copy(pattern(i * 37), Mode::ExtendedBlock).await;
            assert_eq!((sent.result, received.result), (Ok(()), Ok(())), "{i}");
            assert_eq!((sent.cached, received.cached), (4, 4), "{i}");
        }
        assert_eq!(pair.sender.cached(), 4);
    });
}

#[test]
fn stream_mode_uses_a_connection_once() {
    run(async {
        let pair = Pair::new(1, &params(4, 1000));
        for size in [0, 1, 70_000] {
            let (sent, received) = pair.copy(pattern(size), Mode::Stream).await;
            assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
            assert_eq!((sent.cached, received.cached), (0, 0));
        }
    });
}

#[test]
fn a_file_in_memory_arrives() {
    run(async {
        for (mode, block_bytes) in [
            (Mode::ExtendedBlock, 1000),
            (Mode::ExtendedBlock, 1 << 20),
            (Mode::Stream, 1 << 20),
        ] {
            let pair = Pair::new(1, &params(3, block_bytes));
            let (source, target) = (Bytes::new(pattern(10_000)), Bytes::new(Vec::new()));
            let metadata = Metadata {
                stored: 10_000,
                ..source.metadata().unwrap()
            };
            let held = PreloadedFile::read(source.as_ref(), &metadata);
            let mut receive = pair.receiver.start(into(&target), mode);
            let job = TransferJob::Send(Source::File {
                file: Arc::new(held.unwrap().unwrap()),
                base: 100,
                ranges: vec![ByteRange {
                    start: 0,
                    end: 9_900,
                }],
            });
            let mut send = pair.sender.start(job, mode);
            let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
            assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
            assert_eq!(sent.bytes, 9_900);
            assert!(target.bytes() == pattern(10_000)[100..]);
        }
    });
}

#[test]
fn stream_mode_with_the_sender_listening() {
    run(async {
        let (listener, at) = listener();
        let mover = [Mover::spawn("m").unwrap()];
        let sender = ChannelSet::passive(&mover, listener, params(1, 1 << 20)).unwrap();
        let receiver = ChannelSet::active(&mover, vec![at], None, params(1, 1 << 20));
        let (source, target) = (Bytes::new(pattern(300_000)), Bytes::new(Vec::new()));
        let mut send = sender.start(whole(&source), Mode::Stream);
        let mut receive = receiver.start(into(&target), Mode::Stream);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        assert!(source.bytes() == target.bytes());
    });
}

#[test]
fn a_thousand_channels() {
    run(async {
        let pair = Pair::new(1, &params(1000, 16 * 1024));
        let (sent, received) = pair.copy(pattern(64_000_000), Mode::ExtendedBlock).await;
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        assert_eq!(received.cached, 1000);
        let (sent, _) = pair.copy(pattern(1_000_000), Mode::ExtendedBlock).await;
        assert_eq!(sent.result, Ok(()));
    });
}

#[test]
fn streams_without_offsets() {
    run(async {
        for mode in [Mode::Stream, Mode::ExtendedBlock] {
            let pair = Pair::new(1, &params(1, 1 << 20));
            let text = pattern(1_000_000);
            let (reader, mut writer) = std::io::pipe().unwrap();
            let collected = Arc::new(Mutex::new(Vec::new()));
            let mut receive = pair.receiver.start(
                TransferJob::Receive(Sink::Stream(Box::new(Tap(Arc::clone(&collected))))),
                mode,
            );
            let mut send = pair
                .sender
                .start(TransferJob::Send(Source::Stream(Box::new(reader))), mode);
            let feed = text.clone();
            std::thread::spawn(move || {
                use std::io::Write;
                for part in feed.chunks(7777) {
                    writer.write_all(part).unwrap();
                }
            });
            let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
            assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
            assert!(*collected.lock().unwrap() == text);
        }
    });
}

struct Tap(Arc<Mutex<Vec<u8>>>);
impl std::io::Write for Tap {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn a_peer_that_does_not_connect_fails_the_transfer() {
    run(async {
        let (listener, at) = listener();
        let mover = [Mover::spawn("m").unwrap()];
        let short = ChannelParams {
            connect_limit: Duration::from_millis(50),
            ..params(1, 1000)
        };
        let set = ChannelSet::passive(&mover, listener, short).unwrap();
        let mut transfer = set.start(into(&Bytes::new(Vec::new())), Mode::ExtendedBlock);
        let report = done(&mut transfer).await;
        let Err(TransferFailure::NoConnection(text)) = report.result else {
            panic!("{report:?}")
        };
        assert!(text.contains(&at.to_string()), "{text}");
        // The set is spent; the next transfer says so at once.
        let mut next = set.start(into(&Bytes::new(Vec::new())), Mode::ExtendedBlock);
        assert!(matches!(
            done(&mut next).await.result,
            Err(TransferFailure::NoConnection(_))
        ));
    });
}

#[test]
fn a_refused_connection_fails_the_transfer() {
    run(async {
        let (listener, at) = listener();
        drop(listener);
        let set = ChannelSet::active(
            &[Mover::spawn("m").unwrap()],
            vec![at],
            None,
            params(4, 1000),
        );
        let mut transfer = set.start(whole(&Bytes::new(pattern(10))), Mode::ExtendedBlock);
        let report = done(&mut transfer).await;
        let Err(TransferFailure::NoConnection(text)) = report.result else {
            panic!("{report:?}")
        };
        assert!(text.contains(&at.to_string()), "{text}");
    });
}

#[test]
fn wrong_direction_is_refused() {
    run(async {
        let (listener, _) = listener();
        let set =
            ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, params(1, 1000)).unwrap();
        let mut transfer = set.start(whole(&Bytes::new(pattern(10))), Mode::ExtendedBlock);
        assert!(matches!(
            done(&mut transfer).await.result,
            Err(TransferFailure::NoConnection(_))
        ));
    });
}

#[test]
fn abort_and_drop_end_a_transfer() {
    run(async {
        let pair = Pair::new(2, &params(4, 1000));
        let target = Bytes::gated();
        let mut receive = pair.receiver.start(into(&target), Mode::ExtendedBlock);
        let mut send = pair
            .sender
            .start(whole(&Bytes::new(pattern(50_000_000))), Mode::ExtendedBlock);
        assert!(matches!(
            send.next_event().await,
            TransferEvent::Ready { .. }
        ));
        send.abort();
        assert_eq!(done(&mut send).await.result, Err(TransferFailure::Aborted));
        target.gate.as_ref().unwrap().open();
        let report = done(&mut receive).await;
        assert!(
            matches!(report.result, Err(TransferFailure::ConnectionLost(_))),
            "{report:?}"
        );
        assert_eq!(report.cached, 0);
        // What was promised as safe is there and right.
        let (want, got) = (pattern(50_000_000), target.bytes());
        for r in report.safe.iter() {
            let r = usize::try_from(r.start).unwrap()..usize::try_from(r.end).unwrap();
            assert!(want[r.clone()] == got[r]);
        }
        let (listener, _) = listener();
        let set =
            ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, params(1, 1000)).unwrap();
        let mut transfer = set.start(into(&Bytes::new(Vec::new())), Mode::ExtendedBlock);
        drop(set);
        assert_eq!(
            done(&mut transfer).await.result,
            Err(TransferFailure::Aborted)
        );
    });
}

#[test]
fn a_shrinking_file_is_a_storage_failure() {
    run(async {
        let pair = Pair::new(1, &params(2, 1000));
        let source = Bytes::new(pattern(10));
        let job = TransferJob::Send(Source::File {
            file: source as FileRef,
            base: 0,
            ranges: vec![ByteRange { start: 0, end: 20 }],
        });
        let mut receive = pair
            .receiver
            .start(into(&Bytes::new(Vec::new())), Mode::ExtendedBlock);
        let mut send = pair.sender.start(job, Mode::ExtendedBlock);
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert!(
            matches!(sent.result, Err(TransferFailure::Storage(_))),
            "{sent:?}"
        );
        assert!(
            matches!(received.result, Err(TransferFailure::ConnectionLost(_))),
            "{received:?}"
        );
    });
}

#[test]
fn a_stream_is_cut_where_no_more_is_wanted() {
    const SENT: usize = 3_000_000;
    run(async {
        for bytes in [0, 1, 70_000, SENT - 1, SENT, SENT + 1] {
            let pair = Pair::new(1, &params(1, 1 << 20));
            let (source, target) = (Bytes::new(pattern(SENT)), Bytes::new(Vec::new()));
            let TransferJob::Receive(sink) = into(&target) else {
                panic!("it receives");
            };
            let sink = Box::new(sink);
            let cut = TransferJob::Receive(Sink::Prefix {
                sink,
                bytes: bytes as u64,
            });
            let mut receive = pair.receiver.start(cut, Mode::Stream);
            let mut send = pair.sender.start(whole(&source), Mode::Stream);
            let (received, sent) = tokio::join!(done(&mut receive), done(&mut send));
            let wanted = SENT.min(bytes);
            assert_eq!(received.result, Ok(()), "{bytes}");
            assert_eq!(received.bytes, wanted as u64);
            assert!(target.bytes() == source.bytes()[..wanted], "{bytes}");
            // What is cut off may be on its way.
            drop(sent);
        }
    });
}

#[test]
fn base_and_ranges_are_relative() {
    run(async {
        let pair = Pair::new(1, &params(3, 7));
        let source = Bytes::new(pattern(1000));
        let target = Bytes::new(vec![0; 1000]);
        let ranges = vec![
            ByteRange { start: 0, end: 50 },
            ByteRange {
                start: 90,
                end: 100,
            },
        ];
        let mut receive = pair.receiver.start(
            TransferJob::Receive(Sink::File {
                file: Arc::clone(&target) as FileRef,
                base: 500,
                stream_start: 0,
                limit: Some(100),
            }),
            Mode::ExtendedBlock,
        );
        let mut send = pair.sender.start(
            TransferJob::Send(Source::File {
                file: source as FileRef,
                base: 300,
                ranges,
            }),
            Mode::ExtendedBlock,
        );
        let (sent, received) = tokio::join!(done(&mut send), done(&mut receive));
        assert_eq!((sent.result, received.result), (Ok(()), Ok(())));
        let (want, got) = (pattern(1000), target.bytes());
        assert!(got[500..550] == want[300..350] && got[590..600] == want[390..400]);
        assert!(got[550..590].iter().all(|b| *b == 0));
        assert_eq!(received.safe.to_string(), "0-50,90-100");
    });
}
