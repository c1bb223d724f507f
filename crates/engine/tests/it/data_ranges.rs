//! Receipts in very many pieces: what a peer makes us remember is bounded.

use std::{io::Write as _, net::TcpStream, time::Duration};

use godwit_engine::{
    data::{ChannelParams, ChannelSet, FRESH_RANGES_MAX, Mover, Sink, Transfer, TransferJob},
    storage::{NullStorage, Storage as _},
};
use godwit_proto::{FtpPath, command::Mode, error::TransferFailure};

use crate::data::{done, listener, run};

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

fn block(bits: u8, count: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let numbers = [count.to_be_bytes(), offset.to_be_bytes()].concat();
    [&[bits][..], &numbers, payload].concat()
}

/// One byte at each second place.
fn islands(count: u64) -> impl Iterator<Item = Vec<u8>> {
    (0..count).map(|i| block(0, 1, 2 * i, b"x"))
}

fn end() -> Vec<u8> {
    block(EOF | EOD, 0, 1, b"")
}

fn receive(reports_safe: bool) -> (ChannelSet, Transfer, TcpStream) {
    let (listener, at) = listener();
    let params = ChannelParams {
        stall_limit: Duration::from_secs(60),
        reports_safe,
        ..ChannelParams::default()
    };
    let set = ChannelSet::passive(&[Mover::spawn("m").unwrap()], listener, params).unwrap();
    let file = NullStorage::new(0).open_read(&FtpPath::new("/f").unwrap());
    let sink = Sink::File {
        file: file.unwrap(),
        base: 0,
        stream_start: 0,
        limit: None,
    };
    let transfer = set.start(TransferJob::Receive(sink), Mode::ExtendedBlock);
    (set, transfer, TcpStream::connect(at).unwrap())
}

/// A refused peer closes the connection.
fn send(mut peer: TcpStream, blocks: impl Iterator<Item = Vec<u8>>) {
    let mut blocks = blocks.peekable();
    while blocks.peek().is_some() {
        let some: Vec<u8> = blocks.by_ref().take(4096).flatten().collect();
        if peer.write_all(&some).is_err() {
            return;
        }
    }
}

#[test]
fn ranges_beyond_the_marker_limit_are_omitted() {
    let count = FRESH_RANGES_MAX as u64 + 5000;
    run(async {
        let (_set, mut transfer, peer) = receive(false);
        let sender = std::thread::spawn(move || {
            send(peer, islands(count).chain(std::iter::once(end())));
        });
        let report = done(&mut transfer).await;
        sender.join().unwrap();
        assert_eq!(report.result, Ok(()));
        assert_eq!(report.bytes, count);
        assert_eq!(report.safe.count(), 0);
        assert_eq!(transfer.take_fresh().count(), FRESH_RANGES_MAX);
    });
}

#[test]
fn a_receipt_of_too_many_ranges_fails() {
    run(async {
        let (_set, mut transfer, peer) = receive(true);
        let sender = std::thread::spawn(move || send(peer, islands(1 << 20)));
        let report = done(&mut transfer).await;
        sender.join().unwrap();
        let Err(TransferFailure::Protocol(why)) = &report.result else {
            panic!("{:?}", report.result)
        };
        assert!(why.contains("more than 262144 separate ranges"), "{why}");
        assert_eq!(report.safe.count(), 262_144);
    });
}
