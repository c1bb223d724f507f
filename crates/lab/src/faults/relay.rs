//! A relay of TCP connections to one address, which counts the bytes that pass.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

/// Bytes passed at a time.
const PIECE_BYTES: usize = 256 << 10;

/// Dropping it ends it; connections end with one of their ends.
#[derive(Debug)]
pub(super) struct Relay {
    address: SocketAddr,
    passed: Arc<Passed>,
}

#[derive(Debug, Default)]
struct Passed {
    to_server: AtomicU64,
    to_client: AtomicU64,
    is_over: AtomicBool,
}

impl Relay {
    /// Listens on a port that the kernel chose.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(super) fn start(server: SocketAddr) -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let passed = Arc::<Passed>::default();
        let counts = Arc::clone(&passed);
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                if counts.is_over.load(Ordering::Acquire) {
                    break;
                }
                // An error is what a peer sees as a broken connection.
                drop(connect(client, server, &counts));
            }
        });
        Ok(Self { address, passed })
    }

    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bytes so far, heads of requests and answers included.
    pub(super) fn to_server(&self) -> u64 {
        self.passed.to_server.load(Ordering::Relaxed)
    }

    /// The same the other way.
    pub(super) fn to_client(&self) -> u64 {
        self.passed.to_client.load(Ordering::Relaxed)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.passed.is_over.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

fn connect(client: TcpStream, server: SocketAddr, passed: &Arc<Passed>) -> io::Result<()> {
    let server = TcpStream::connect(server)?;
    for stream in [&client, &server] {
        stream.set_nodelay(true)?;
    }
    let back = (server.try_clone()?, client.try_clone()?);
    let counts = Arc::clone(passed);
    thread::spawn(move || pass(client, server, &counts.to_server));
    let counts = Arc::clone(passed);
    thread::spawn(move || pass(back.0, back.1, &counts.to_client));
    Ok(())
}

fn pass(mut from: TcpStream, mut to: TcpStream, count: &AtomicU64) {
    let mut piece = vec![0; PIECE_BYTES];
    loop {
        match from.read(&mut piece) {
            Ok(0) => {
                let _ = to.shutdown(Shutdown::Write);
                return;
            }
            Ok(bytes) if to.write_all(&piece[..bytes]).is_ok() => {
                count.fetch_add(bytes as u64, Ordering::Relaxed);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Ok(_) | Err(_) => {
                for stream in [&from, &to] {
                    let _ = stream.shutdown(Shutdown::Both);
                }
                return;
            }
        }
    }
}
