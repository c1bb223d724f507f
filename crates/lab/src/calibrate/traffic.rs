//! Traffic of our own over a network: bulk data on many channels, and probes for round trips.
//!
//! Both ends are threads of this process whose sockets belong to the hosts, so that nothing needs
//! to be installed, started or waited for.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use mio::net::{TcpListener, TcpStream};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::host::Host;
use crate::network::Error;

/// Bytes given to or taken from the kernel at once.
const BLOCK: usize = 256 << 10;
/// How often threads look whether it is time to end.
const TICK: Duration = Duration::from_millis(20);
/// How long a probe is waited for before it counts as lost.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);

/// Bulk traffic from one host to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bulk {
    /// TCP connections; 1 and more.
    pub channels: usize,
    /// Socket buffers at both ends, bytes, as a program asks for them. Default: the kernel tunes.
    pub buffer_bytes: Option<usize>,
    /// Time to reach a steady state, not measured.
    pub ramp: Duration,
    /// Time measured.
    pub time: Duration,
}

impl Bulk {
    /// Sends, and measures goodput at the receiver, bit/s. `begin` is called when the measured time
    /// begins.
    ///
    /// # Errors
    /// [`Error::Os`] when a socket fails.
    pub fn run(&self, from: &Host, to: &Host, begin: impl FnOnce()) -> Result<f64, Error> {
        // The receiver ends last, or the sender would find its connections closed.
        let (stop, stop_receiver) = (AtomicBool::new(false), AtomicBool::new(false));
        let received = AtomicU64::new(0);
        let listener = to.enter(|| self.listen(to))?;
        let mut listener = listener.map_err(Error::os(to.name(), "listen for bulk traffic"))?;
        let address = listener
            .local_addr()
            .map_err(Error::os(to.name(), "listen for bulk traffic"))?;
        std::thread::scope(|scope| {
            let receiver = scope.spawn(|| receive(&mut listener, &received, &stop_receiver));
            let sender = scope.spawn(|| {
                let streams = from.enter(|| self.connect(address))?;
                Ok::<_, Error>(streams.and_then(|streams| send(streams, &stop)))
            });
            std::thread::sleep(self.ramp);
            begin();
            let (start, before) = (Instant::now(), received.load(Ordering::Relaxed));
            std::thread::sleep(self.time);
            let bytes = received.load(Ordering::Relaxed) - before;
            let seconds = start.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            let sent = join(sender);
            stop_receiver.store(true, Ordering::Relaxed);
            let got = join(receiver);
            // First: when the receiver fails, the sender does too.
            got.map_err(Error::os(to.name(), "receive bulk traffic"))?;
            sent?.map_err(Error::os(from.name(), "send bulk traffic"))?;
            #[allow(clippy::cast_precision_loss, reason = "bytes of some seconds")]
            Ok(bytes as f64 * 8.0 / seconds)
        })
    }

    fn listen(&self, host: &Host) -> io::Result<TcpListener> {
        let listener = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
        if let Some(bytes) = self.buffer_bytes {
            // Accepted sockets inherit it, early enough for the window scale.
            listener.set_recv_buffer_size(bytes)?;
        }
        listener.bind(&SocketAddr::from((host.address(), 0)).into())?;
        // Room for all at once: connections beyond it are reset after a while.
        listener.listen(i32::try_from(self.channels).unwrap_or(i32::MAX).max(1))?;
        listener.set_nonblocking(true)?;
        Ok(TcpListener::from_std(listener.into()))
    }

    fn connect(&self, to: SocketAddr) -> io::Result<Vec<TcpStream>> {
        (0..self.channels.max(1))
            .map(|_| {
                let stream = TcpStream::connect(to)?;
                if let Some(bytes) = self.buffer_bytes {
                    SockRef::from(&stream).set_send_buffer_size(bytes)?;
                }
                Ok(stream)
            })
            .collect()
    }
}

fn send(mut streams: Vec<TcpStream>, stop: &AtomicBool) -> io::Result<()> {
    let mut poll = Poll::new()?;
    for (index, stream) in streams.iter_mut().enumerate() {
        let interest = Interest::WRITABLE;
        poll.registry().register(stream, Token(index), interest)?;
    }
    let block = vec![0; BLOCK];
    each_ready(&mut poll, stop, |token| {
        retry(|| streams[token.0].write(&block).map(|_| true))
    })
}

fn receive(listener: &mut TcpListener, received: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    const LISTENER: Token = Token(usize::MAX - 1);
    let mut poll = Poll::new()?;
    poll.registry()
        .register(listener, LISTENER, Interest::READABLE)?;
    let registry = poll.registry().try_clone()?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut block = vec![0; BLOCK];
    each_ready(&mut poll, stop, |token| {
        if token == LISTENER {
            return retry(|| {
                let (mut stream, _) = listener.accept()?;
                registry.register(&mut stream, Token(streams.len()), Interest::READABLE)?;
                streams.push(stream);
                Ok(true)
            });
        }
        retry(|| {
            let len = streams[token.0].read(&mut block)?;
            received.fetch_add(len as u64, Ordering::Relaxed);
            Ok(len > 0)
        })
    })
}

/// Calls `ready` for every token that is, until `stop`.
fn each_ready(
    poll: &mut Poll,
    stop: &AtomicBool,
    mut ready: impl FnMut(Token) -> io::Result<()>,
) -> io::Result<()> {
    let mut events = Events::with_capacity(256);
    while !stop.load(Ordering::Relaxed) {
        match poll.poll(&mut events, Some(TICK)) {
            Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
            _ => {}
        }
        for event in &events {
            ready(event.token())?;
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
    }
    Ok(())
}

/// Repeats `step` until it would block or returns false.
fn retry(mut step: impl FnMut() -> io::Result<bool>) -> io::Result<()> {
    loop {
        match step() {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) => match error.kind() {
                io::ErrorKind::WouldBlock | io::ErrorKind::NotConnected => return Ok(()),
                io::ErrorKind::Interrupted => {}
                _ => return Err(error),
            },
        }
    }
}

/// Round trips of `count` UDP packets, one after the other, sorted; lost ones are left out.
///
/// # Errors
/// [`Error::Os`] when a socket fails.
pub fn round_trips(
    from: &Host,
    to: &Host,
    count: usize,
    gap: Duration,
) -> Result<Vec<Duration>, Error> {
    let bind = |host: &Host| {
        host.enter(|| UdpSocket::bind((host.address(), 0)))?
            .map_err(Error::os(host.name(), "bind a socket for probes"))
    };
    let (probe, echo) = (bind(from)?, bind(to)?);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| answer(&echo, &stop));
        let rtts = echo
            .local_addr()
            .and_then(|to| probe.connect(to))
            .and_then(|()| probe_all(&probe, count, gap));
        stop.store(true, Ordering::Relaxed);
        join(answering).map_err(Error::os(to.name(), "answer probes"))?;
        rtts.map_err(Error::os(from.name(), "send probes"))
    })
}

fn probe_all(probe: &UdpSocket, count: usize, gap: Duration) -> io::Result<Vec<Duration>> {
    probe.set_read_timeout(Some(PROBE_TIMEOUT))?;
    let mut rtts = Vec::with_capacity(count);
    for number in 0..count as u64 {
        let sent = Instant::now();
        probe.send(&number.to_be_bytes())?;
        let mut buffer = [0; 8];
        loop {
            match probe.recv(&mut buffer) {
                Ok(8) if buffer == number.to_be_bytes() => {
                    rtts.push(sent.elapsed());
                    break;
                }
                // The answer to an earlier one.
                Ok(_) => {}
                Err(error) if is_timeout(&error) => break,
                Err(error) => return Err(error),
            }
        }
        std::thread::sleep(gap);
    }
    rtts.sort();
    Ok(rtts)
}

fn answer(echo: &UdpSocket, stop: &AtomicBool) -> io::Result<()> {
    echo.set_read_timeout(Some(TICK))?;
    let mut buffer = [0; 64];
    while !stop.load(Ordering::Relaxed) {
        match echo.recv_from(&mut buffer) {
            Ok((len, from)) => {
                echo.send_to(&buffer[..len], from)?;
            }
            Err(error) if is_timeout(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn is_timeout(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted
    )
}

fn join<T>(thread: std::thread::ScopedJoinHandle<'_, T>) -> T {
    match thread.join() {
        Ok(value) => value,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}
