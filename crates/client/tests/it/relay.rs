//! Stands between a client and a server of this machine, and spoils bytes of their data
//! connections.

use std::{
    io::{self, BufRead, BufReader, Read, Write},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst},
    },
    thread,
};

/// Which bytes of a data connection come out with a bit turned, counted from its first one, headers
/// of MODE E included.
#[derive(Clone, Copy)]
pub(crate) enum Spoil {
    /// This one, of the first connection that carries so many.
    Once(u64),
    /// The middle one of so many, each time.
    Always(u64),
    Never,
    /// None; the first connection that carries so many ends there.
    End(u64),
}

/// Where clients connect to instead.
pub(crate) struct Relay {
    pub(crate) address: SocketAddr,
    spoiler: Arc<Spoiler>,
}

struct Spoiler {
    spoil: Spoil,
    spoiled: AtomicUsize,
    carried: AtomicU64,
}

impl Relay {
    pub(crate) fn to(server: SocketAddr, spoil: Spoil) -> Self {
        let (listener, address) = listen();
        let spoiled = AtomicUsize::new(0);
        let spoiler = Arc::new(Spoiler {
            spoil,
            spoiled,
            carried: AtomicU64::new(0),
        });
        let relay = Self {
            address,
            spoiler: Arc::clone(&spoiler),
        };
        thread::spawn(move || {
            for client in listener.incoming() {
                let Ok(client) = client else { return };
                let server = TcpStream::connect(server).unwrap();
                let back = (server.try_clone().unwrap(), client.try_clone().unwrap());
                for ((from, to), rewrite) in [
                    ((client, server), commands as Rewrite),
                    (back, replies as Rewrite),
                ] {
                    let spoiler = Arc::clone(&spoiler);
                    thread::spawn(move || control(from, to, rewrite, &spoiler));
                }
            }
        });
        relay
    }

    /// It has spoiled something.
    pub(crate) fn has_spoiled(&self) -> bool {
        self.spoiler.spoiled.load(SeqCst) > 0
    }

    /// Bytes of data connections that went through.
    pub(crate) fn carried(&self) -> u64 {
        self.spoiler.carried.load(SeqCst)
    }
}

fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// A line with another address, or none where there is none in it.
type Rewrite = fn(&str, &Arc<Spoiler>) -> Option<String>;

fn control(from: TcpStream, mut to: TcpStream, rewrite: Rewrite, spoiler: &Arc<Spoiler>) {
    let mut from = BufReader::new(from);
    let mut line = Vec::new();
    while from.read_until(b'\n', &mut line).is_ok_and(|n| n > 0) {
        let rewritten = std::str::from_utf8(&line)
            .ok()
            .and_then(|l| rewrite(l, spoiler));
        let sent = match rewritten {
            Some(line) => to.write_all(line.as_bytes()),
            None => to.write_all(&line),
        };
        if sent.is_err() {
            break;
        }
        line.clear();
    }
    // Gone already is as good.
    let _ = to.shutdown(Shutdown::Write);
}

fn commands(line: &str, spoiler: &Arc<Spoiler>) -> Option<String> {
    let numbers = line.strip_prefix("PORT ")?;
    let here = forward(address_in(numbers.trim_end())?, spoiler);
    Some(format!("PORT {}\r\n", numbers_of(here)))
}

fn replies(line: &str, spoiler: &Arc<Spoiler>) -> Option<String> {
    if let Some(numbers) = line.strip_prefix(' ') {
        // An address of SPAS.
        let here = forward(address_in(numbers.trim_end())?, spoiler);
        return Some(format!(" {}\r\n", numbers_of(here)));
    }
    let (head, rest) = line.strip_prefix("227 ")?.split_once('(')?;
    let (numbers, _) = rest.split_once(')')?;
    let here = forward(address_in(numbers)?, spoiler);
    Some(format!("227 {head}({})\r\n", numbers_of(here)))
}

pub(crate) fn address_in(numbers: &str) -> Option<SocketAddr> {
    let numbers: Vec<u8> = numbers.split(',').map_while(|n| n.parse().ok()).collect();
    let [a, b, c, d, high, low] = numbers[..] else {
        return None;
    };
    let port = u16::from_be_bytes([high, low]);
    Some((IpAddr::from([a, b, c, d]), port).into())
}

fn numbers_of(address: SocketAddr) -> String {
    let [high, low] = address.port().to_be_bytes();
    format!("127,0,0,1,{high},{low}")
}

/// Where data connections to `target` are taken and passed on, until the test ends.
fn forward(target: SocketAddr, spoiler: &Arc<Spoiler>) -> SocketAddr {
    let (listener, address) = listen();
    let spoiler = Arc::clone(spoiler);
    thread::spawn(move || {
        for from in listener.incoming() {
            let (Ok(from), Ok(to)) = (from, TcpStream::connect(target)) else {
                return;
            };
            let back = (to.try_clone().unwrap(), from.try_clone().unwrap());
            for (from, to) in [(from, to), back] {
                let spoiler = Arc::clone(&spoiler);
                thread::spawn(move || data(from, to, &spoiler));
            }
        }
    });
    address
}

fn data(mut from: TcpStream, mut to: TcpStream, spoiler: &Spoiler) {
    let mut buffer = vec![0; 64 << 10];
    let mut passed = 0;
    loop {
        let read = match from.read(&mut buffer) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            Ok(n) if n > 0 => n,
            _ => break,
        };
        let bytes = &mut buffer[..read];
        spoiler.touch(bytes, passed);
        passed += read as u64;
        if to.write_all(bytes).is_err() {
            break;
        }
        spoiler.carried.fetch_add(read as u64, SeqCst);
        if spoiler.ends(passed) {
            let _ = from.shutdown(Shutdown::Both);
            break;
        }
    }
    let _ = to.shutdown(Shutdown::Write);
}

impl Spoiler {
    fn ends(&self, passed: u64) -> bool {
        matches!(self.spoil, Spoil::End(at) if passed >= at)
            && self.spoiled.fetch_add(1, SeqCst) == 0
    }

    /// `bytes` are those behind so many.
    fn touch(&self, bytes: &mut [u8], passed: u64) {
        let end = passed + bytes.len() as u64;
        let first = match self.spoil {
            Spoil::Never | Spoil::End(_) => return,
            Spoil::Once(at) => at,
            Spoil::Always(each) => {
                passed.saturating_sub(each / 2).next_multiple_of(each) + each / 2
            }
        };
        if !(passed..end).contains(&first) {
            return;
        }
        let before = self.spoiled.fetch_add(1, SeqCst);
        if matches!(self.spoil, Spoil::Once(_)) && before > 0 {
            return;
        }
        bytes[usize::try_from(first - passed).unwrap()] ^= 0x10;
    }
}
