//! Sending to several addresses: how many channels each has, and what becomes of one without any.

use std::{
    io::{ErrorKind, Read},
    net::{TcpListener, TcpStream},
    thread::JoinHandle,
};

use godwit_engine::data::{ChannelSet, Mover};
use godwit_proto::command::Mode;

use crate::data::{Bytes, done, listener, params, pattern, run, whole};

const EOF: u8 = 64;
const EOD: u8 = 8;

/// Waits without holding up the runtime, whose limit on the test holds.
async fn accepted(listener: &TcpListener) -> TcpStream {
    listener.set_nonblocking(true).unwrap();
    loop {
        match listener.accept() {
            Ok((stream, _)) => {
                stream.set_nonblocking(false).unwrap();
                return stream;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                tokio::task::yield_now().await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Reads a channel up to its EOD: payload bytes, the bits of its last header, and the count in it.
fn reader(mut stream: TcpStream) -> JoinHandle<(u64, u8, u64, TcpStream)> {
    std::thread::spawn(move || {
        let mut bytes = 0;
        loop {
            let mut header = [0; 17];
            stream.read_exact(&mut header).unwrap();
            let count = u64::from_be_bytes(header[1..9].try_into().unwrap());
            let offset = u64::from_be_bytes(header[9..].try_into().unwrap());
            let mut payload = vec![0; usize::try_from(count).unwrap()];
            stream.read_exact(&mut payload).unwrap();
            bytes += count;
            if header[0] & EOD != 0 {
                return (bytes, header[0], offset, stream);
            }
        }
    })
}

/// Towards both listeners, with so many channels each.
fn set(listeners: [&TcpListener; 2], each: u32) -> ChannelSet {
    let peers = listeners.map(|listener| listener.local_addr().unwrap());
    let movers = [Mover::spawn("m").unwrap()];
    ChannelSet::active(&movers, peers.to_vec(), None, params(each, 10_000))
}

#[test]
fn stripes_keep_as_many_channels_as_each_other() {
    run(async {
        let (one, two) = (listener().0, listener().0);
        let set = set([&one, &two], 1);
        let source = Bytes::new(pattern(30_000_000));
        let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
        let monitor = transfer.monitor();
        // Nothing is read yet, so the transfer cannot end.
        let mut streams = vec![accepted(&one).await, accepted(&two).await];
        while monitor.progress().channels < 2 {
            tokio::task::yield_now().await;
        }
        for channels in [3, 4, 5, 6] {
            assert_eq!(monitor.steer(channels).opened, 1);
        }
        for _ in 0..2 {
            streams.push(accepted(&one).await);
            streams.push(accepted(&two).await);
        }
        while monitor.progress().channels < 6 {
            tokio::task::yield_now().await;
        }
        assert_eq!(monitor.steer(2).retired, 4);
        let at = |stream: &TcpStream| stream.local_addr().unwrap();
        let own: Vec<_> = streams.iter().map(at).collect();
        let readers: Vec<_> = streams.into_iter().map(reader).collect();
        let mut moved = 0;
        let mut ended_early = [0, 0];
        for (reader, own) in readers.into_iter().zip(own) {
            let (bytes, bits, count, _) = reader.join().unwrap();
            moved += bytes;
            let stripe = usize::from(own != one.local_addr().unwrap());
            match bits & EOF {
                0 => ended_early[stripe] += 1,
                _ => assert_eq!(count, 3, "the connections to each address"),
            }
        }
        assert_eq!(moved, 30_000_000);
        assert_eq!(ended_early, [2, 2]);
        assert_eq!(done(&mut transfer).await.result, Ok(()));
    });
}

/// Each address waits for its EOF, also where its connections were closed between two transfers.
#[test]
fn a_stripe_whose_connections_were_closed_is_connected_again() {
    run(async {
        let (one, two) = (listener().0, listener().0);
        let set = set([&one, &two], 1);
        let source = Bytes::new(pattern(100_000));
        let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
        let streams = [accepted(&one).await, accepted(&two).await];
        let [first, second] = streams.map(reader).map(|reader| reader.join().unwrap().3);
        assert_eq!(done(&mut transfer).await.result, Ok(()));
        assert_eq!(set.cached(), 2);
        drop(second);
        while set.cached() > 1 {
            tokio::task::yield_now().await;
        }
        let mut transfer = set.start(whole(&source), Mode::ExtendedBlock);
        let first = reader(first);
        let second = reader(accepted(&two).await);
        let mut moved = 0;
        for reader in [first, second] {
            let (bytes, bits, count, _) = reader.join().unwrap();
            moved += bytes;
            assert_eq!((bits & EOF, count), (EOF, 1));
        }
        assert_eq!(moved, 100_000);
        assert_eq!(done(&mut transfer).await.result, Ok(()));
    });
}
