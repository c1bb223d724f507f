//! What goes over a connection, as an observer on the path sees it.

use std::{
    io::{Read, Write},
    net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{Arc, Mutex},
    thread::JoinHandle,
};

/// The end that has sent something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The one that has connected.
    Caller,
    Called,
}

/// Bytes in the order in which they came.
type Said = Mutex<Vec<(End, Vec<u8>)>>;

/// Takes down what one connection carries.
pub(crate) struct Capture {
    said: Arc<Said>,
    copiers: JoinHandle<()>,
}

impl Capture {
    /// Where to connect in place of `to`.
    pub(crate) fn before(to: SocketAddr) -> (SocketAddr, Self) {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let said = Arc::<Said>::default();
        let [forth, back] = [Arc::clone(&said), Arc::clone(&said)];
        let copiers = std::thread::spawn(move || {
            let (caller, _) = listener.accept().unwrap();
            let called = TcpStream::connect(to).unwrap();
            let ends = (called.try_clone().unwrap(), caller.try_clone().unwrap());
            let back = std::thread::spawn(move || carry(ends.0, ends.1, End::Called, &back));
            carry(caller, called, End::Caller, &forth);
            back.join().unwrap();
        });
        (address, Self { said, copiers })
    }

    /// All that was said once both have closed: each turn in one piece, in order.
    pub(crate) fn turns(self) -> Vec<(End, Vec<u8>)> {
        self.copiers.join().unwrap();
        let mut turns: Vec<(End, Vec<u8>)> = Vec::new();
        for (end, bytes) in std::mem::take(&mut *self.said.lock().unwrap()) {
            match turns.last_mut() {
                Some((last, all)) if *last == end => all.extend(bytes),
                _ => turns.push((end, bytes)),
            }
        }
        turns
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, end: End, said: &Said) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(count @ 1..) = from.read(&mut buffer) {
        // Before it is passed on, so that no answer comes before it.
        said.lock().unwrap().push((end, buffer[..count].to_vec()));
        if to.write_all(&buffer[..count]).is_err() {
            break;
        }
    }
    // Either may be gone.
    let _ = to.shutdown(Shutdown::Write);
}

/// Kind and length of each record of TLS (RFC 8446 §5.1).
pub(crate) fn records(bytes: &[u8]) -> Vec<(u8, u16)> {
    let mut found = Vec::new();
    let mut rest = bytes;
    while let [kind, _, _, high, low, behind @ ..] = rest {
        let length = u16::from_be_bytes([*high, *low]);
        found.push((*kind, length));
        rest = behind.get(length.into()..).expect("whole records");
    }
    assert!(rest.is_empty(), "whole records");
    found
}
