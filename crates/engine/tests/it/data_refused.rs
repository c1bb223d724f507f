//! Receipts that fail for reasons of their file, where the peer is to hear why before its
//! connections break.

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::Arc,
};

use godwit_engine::{
    data::{ChannelParams, ChannelSet, JobOpener, Mover, Sink, Transfer, TransferJob},
    storage::{
        MemoryStorage, Storage as _, WriteMode, failure,
        faulty::{Fault, FaultyStorage},
    },
};
use godwit_proto::{FtpPath, command::Mode, error::TransferFailure};

use crate::data::{Bytes, done, into, listener, params, run};

const EOF: u8 = 0x40;
const EOD: u8 = 0x08;

fn block(bits: u8, count: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![bits];
    bytes.extend(count.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend_from_slice(payload);
    bytes
}

fn late_set(movers: usize) -> (ChannelSet, SocketAddr) {
    let (listener, at) = listener();
    let movers: Vec<_> = (0..movers).map(|_| Mover::spawn("m").unwrap()).collect();
    let params = ChannelParams {
        closes_late: true,
        ..params(1, 1000)
    };
    (ChannelSet::passive(&movers, listener, params).unwrap(), at)
}

fn refused() -> JobOpener {
    Box::new(|| Err(failure("open /none", &ErrorKind::NotFound.into())))
}

async fn fails_for_its_file(transfer: &mut Transfer) {
    let report = done(transfer).await;
    assert!(
        matches!(report.result, Err(TransferFailure::Storage(_))),
        "{report:?}"
    );
}

fn stays_open(connection: &mut TcpStream) {
    connection.set_nonblocking(true).unwrap();
    let found = connection.read(&mut [0]).unwrap_err();
    assert_eq!(found.kind(), ErrorKind::WouldBlock, "{found}");
    connection.set_nonblocking(false).unwrap();
}

fn is_closed(connection: &mut TcpStream) {
    // What was sent and not read makes a reset of it.
    let found = connection.read(&mut [0]);
    assert!(
        matches!(&found, Ok(0))
            || matches!(&found, Err(e) if e.kind() == ErrorKind::ConnectionReset),
        "{found:?}"
    );
}

#[test]
fn connections_outlast_a_file_that_cannot_be_opened() {
    run(async {
        let (set, at) = late_set(1);
        let mut kept = TcpStream::connect(at).unwrap();
        kept.write_all(&block(EOF | EOD, 0, 1, b"")).unwrap();
        let empty = Bytes::new(Vec::new());
        let mut first = set.start(into(&empty), Mode::ExtendedBlock);
        assert_eq!(done(&mut first).await.result, Ok(()));
        assert_eq!(set.cached(), 1);

        // As a sender does that does not wait for the receiver's word.
        kept.write_all(&block(EOD, 6, 0, b"sixth.")).unwrap();
        fails_for_its_file(&mut set.queue(false, false, refused())).await;
        stays_open(&mut kept);
        let mut late = TcpStream::connect(at).unwrap();
        late.write_all(&block(EOF | EOD, 0, 2, b"")).unwrap();
        stays_open(&mut late);
        let mut behind = set.queue(false, false, Box::new(|| unreachable!("nothing can start")));
        assert!(done(&mut behind).await.result.is_err());
        stays_open(&mut kept);

        drop(set);
        is_closed(&mut kept);
        is_closed(&mut late);
    });
}

#[test]
fn connections_outlast_a_full_disk() {
    for (mode, movers) in [
        (Mode::Stream, 1),
        (Mode::ExtendedBlock, 1),
        (Mode::ExtendedBlock, 2),
    ] {
        run(async {
            let full = vec![Fault::NoSpaceAfter { bytes: 0 }];
            let storage = FaultyStorage::new(Arc::new(MemoryStorage::new()), full);
            let path = FtpPath::new("/f").unwrap();
            let file = storage.open_write(&path, WriteMode::New).unwrap();
            let sink = Sink::File {
                file,
                base: 0,
                stream_start: 0,
                limit: None,
            };
            let (set, at) = late_set(movers);
            let mut transfer = set.start(TransferJob::Receive(sink), mode);
            let mut connections = vec![TcpStream::connect(at).unwrap()];
            if mode == Mode::ExtendedBlock {
                connections.push(TcpStream::connect(at).unwrap());
            }
            let bytes = match mode {
                Mode::ExtendedBlock => block(0, 6, 0, b"sixth."),
                _ => b"sixth.".to_vec(),
            };
            connections[0].write_all(&bytes).unwrap();
            fails_for_its_file(&mut transfer).await;
            connections.iter_mut().for_each(stays_open);
            drop(set);
            connections.iter_mut().for_each(is_closed);
        });
    }
}
