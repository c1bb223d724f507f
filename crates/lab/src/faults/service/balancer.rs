//! What stands between agents and the processes that serve: passes each request to one of them, or
//! drops, delays and doubles it.

use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Longest head of a request.
const HEAD_BYTES_MAX: usize = 64 << 10;

/// Longest body of a request.
const BODY_BYTES_MAX: usize = 64 << 20;

/// How often waiting threads look whether the way was cut.
const LOOK: Duration = Duration::from_millis(50);

/// Longest time of a request with its answer.
const EXCHANGE_LIMIT: Duration = Duration::from_secs(60);

/// What becomes of requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PollDelivery {
    /// They arrive, and so do the answers.
    Works,
    /// Nothing passes, and what is under way breaks off.
    Cut,
    /// Requests arrive, answers do not.
    AnswersLost,
    /// Requests arrive after so long.
    Late(Duration),
}

/// Addresses of the processes that serve.
pub(super) type Nodes = Arc<Mutex<Vec<SocketAddr>>>;

/// One agent's way to the service.
#[derive(Debug)]
pub(super) struct Balancer {
    address: SocketAddr,
    way: Arc<AgentWay>,
}

#[derive(Debug)]
struct AgentWay {
    nodes: Nodes,
    turn: AtomicUsize,
    delivery: Mutex<PollDelivery>,
    doubled: bool,
    ended: AtomicBool,
}

impl Balancer {
    /// Listens on a port that the kernel chose.
    ///
    /// # Errors
    /// The kernel gives none.
    pub(super) fn start(nodes: Nodes, doubled: bool) -> io::Result<Balancer> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let way = Arc::new(AgentWay {
            nodes,
            turn: AtomicUsize::new(0),
            delivery: Mutex::new(PollDelivery::Works),
            doubled,
            ended: AtomicBool::new(false),
        });
        let passes = Arc::clone(&way);
        thread::Builder::new()
            .name("balancer".into())
            .spawn(move || {
                for connection in listener.incoming() {
                    if passes.ended.load(Ordering::Acquire) {
                        break;
                    }
                    let way = Arc::clone(&passes);
                    let Ok(mut client) = connection else { continue };
                    // An error is what a peer sees as a broken connection.
                    thread::spawn(move || drop(way.exchange(&mut client)));
                }
            })?;
        Ok(Balancer { address, way })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(super) fn deliver(&self, delivery: PollDelivery) {
        *self.way.delivery.lock() = delivery;
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.way.ended.store(true, Ordering::Release);
        // Wakes the thread that accepts.
        let _ = TcpStream::connect(self.address);
    }
}

impl AgentWay {
    fn is_cut(&self) -> bool {
        *self.delivery.lock() == PollDelivery::Cut || self.ended.load(Ordering::Acquire)
    }

    fn exchange(self: &Arc<Self>, client: &mut TcpStream) -> io::Result<()> {
        client.set_read_timeout(Some(EXCHANGE_LIMIT))?;
        let request = read_request(client)?;
        if self.is_cut() {
            return Ok(());
        }
        let delivery = *self.delivery.lock();
        if let PollDelivery::Late(late) = delivery {
            thread::sleep(late);
        }
        if self.doubled {
            let (way, again) = (Arc::clone(self), request.clone());
            thread::spawn(move || drop(way.ask(&again)));
        }
        let answer = self.ask(&request)?;
        let lost = [delivery, *self.delivery.lock()].contains(&PollDelivery::AnswersLost);
        if lost || self.is_cut() {
            return Ok(());
        }
        client.write_all(&answer)
    }

    /// The answer of the next process that takes connections.
    fn ask(&self, request: &[u8]) -> io::Result<Vec<u8>> {
        let nodes = self.nodes.lock().clone();
        let first = self.turn.fetch_add(1, Ordering::Relaxed);
        let in_turn = (0..nodes.len()).map(|next| nodes[(first + next) % nodes.len()]);
        let mut found = in_turn.filter_map(|node| TcpStream::connect(node).ok());
        let mut node = found.next().ok_or(io::ErrorKind::ConnectionRefused)?;
        node.set_read_timeout(Some(LOOK))?;
        node.write_all(request)?;
        let (mut answer, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
        let until = Instant::now() + EXCHANGE_LIMIT;
        loop {
            match node.read(&mut buffer) {
                Ok(0) => return Ok(answer),
                Ok(length) => answer.extend_from_slice(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.is_cut() || Instant::now() > until {
                        return Err(io::ErrorKind::TimedOut.into());
                    }
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// A request of HTTP/1.1 with its body, changed so that the connection ends with the answer.
fn read_request(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let odd = || io::Error::from(io::ErrorKind::InvalidData);
    let (mut seen, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    let end = loop {
        if let Some(at) = seen.windows(4).position(|window| window == b"\r\n\r\n") {
            break at;
        }
        let length = client.read(&mut buffer)?;
        if length == 0 || seen.len() > HEAD_BYTES_MAX {
            return Err(odd());
        }
        seen.extend_from_slice(&buffer[..length]);
    };
    let head = std::str::from_utf8(&seen[..end]).map_err(|_| odd())?;
    let named = |name: &'static str| {
        move |line: &&str| {
            let start = line.get(..name.len());
            start.is_some_and(|start| start.eq_ignore_ascii_case(name))
        }
    };
    let length = head.lines().find(named("content-length:"));
    let length = length.and_then(|line| line.split_once(':')?.1.trim().parse::<usize>().ok());
    let length = length.unwrap_or(0);
    if length > BODY_BYTES_MAX {
        return Err(odd());
    }
    let kept = head.lines().filter(|line| !named("connection:")(line));
    let head: Vec<&str> = kept.chain(["connection: close"]).collect();
    let mut request = format!("{}\r\n\r\n", head.join("\r\n")).into_bytes();
    let mut body = seen.split_off(end + 4);
    while body.len() < length {
        let read = client.read(&mut buffer)?;
        if read == 0 {
            return Err(odd());
        }
        body.extend_from_slice(&buffer[..read]);
    }
    request.extend_from_slice(&body);
    Ok(request)
}
