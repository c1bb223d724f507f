//! A proxy between a client and a server, for the control connection and for data connections to
//! the server's ports. It injects the faults of its [`Script`]. It reads the dialogue, so both
//! connections are unencrypted.
//!
//! One command passes at a time, so that it is known which reply belongs to which command. Commands
//! that a client sends ahead wait; only what concerns a running transfer passes at once.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags};
use rustix::net::{AddressFamily, SocketType};

use super::lines::{Lines, Reply};
use super::trouble::{Refusal, Script, Spoilt, Treatment, spoil};

/// Most bytes of a listing, which is held as a whole before it is spoilt.
const LISTING_MAX: u64 = 16 << 20;

/// Verbs that are of use while data flow.
const AT_ONCE: [&str; 2] = ["ABOR", "STAT"];

/// A proxy before a server. Dropping it ends all its connections.
#[derive(Debug)]
pub(super) struct Proxy {
    addr: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    /// The directory that clients of the server see as `/`.
    root: PathBuf,
    script: Mutex<Script>,
    over: AtomicBool,
    /// What threads wait for.
    connections: Mutex<Vec<TcpStream>>,
    listeners: Mutex<Vec<SocketAddr>>,
    /// Bound and not listening: their ports refuse connections, and no other program can take them.
    closed_ports: Mutex<Vec<OwnedFd>>,
}

impl Proxy {
    pub(super) fn start(server: SocketAddr, root: &Path, script: Script) -> io::Result<Proxy> {
        let shared = Arc::new(Shared {
            server,
            root: root.to_owned(),
            script: Mutex::new(script),
            over: AtomicBool::new(false),
            connections: Mutex::default(),
            listeners: Mutex::default(),
            closed_ports: Mutex::default(),
        });
        let addr = shared.accept(|shared, client| {
            // Either end may go at any time: then both go.
            let _ = ProxySession::begin(shared, client).and_then(ProxySession::converse);
        })?;
        Ok(Proxy { addr, shared })
    }

    pub(super) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Nothing goes wrong any more.
    pub(super) fn heal(&self) {
        self.shared.script.lock().heal();
    }

    /// Whether something went wrong.
    pub(super) fn happened(&self) -> bool {
        self.shared.script.lock().happened
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        for listener in self.shared.listeners.lock().iter() {
            // Wakes the thread that waits there.
            let _ = TcpStream::connect(listener);
        }
        for connection in self.shared.connections.lock().iter() {
            let _ = connection.shutdown(Shutdown::Both);
        }
    }
}

impl Shared {
    /// Listens, and gives each connection a thread.
    fn accept(
        self: &Arc<Shared>,
        serve: impl Fn(Arc<Shared>, TcpStream) + Clone + Send + 'static,
    ) -> io::Result<SocketAddr> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let addr = listener.local_addr()?;
        self.listeners.lock().push(addr);
        let shared = Arc::clone(self);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                if shared.over.load(Ordering::Acquire) {
                    return;
                }
                let (shared, serve) = (Arc::clone(&shared), serve.clone());
                thread::spawn(move || serve(shared, stream));
            }
        });
        Ok(addr)
    }

    /// Ends with the proxy.
    fn keep(&self, stream: &TcpStream) -> io::Result<()> {
        self.connections.lock().push(stream.try_clone()?);
        match self.over.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::ConnectionAborted.into()),
            false => Ok(()),
        }
    }

    /// A port where nothing listens, as long as the proxy lives.
    fn closed_port(&self) -> io::Result<u16> {
        let socket = rustix::net::socket(AddressFamily::INET, SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0))?;
        let addr = SocketAddrV4::try_from(rustix::net::getsockname(&socket)?)?;
        self.closed_ports.lock().push(socket);
        Ok(addr.port())
    }

    /// Whether there is a file of a name that a client uses.
    fn exists(&self, name: &[u8]) -> bool {
        let name = String::from_utf8_lossy(name);
        let name = Path::new(name.trim_end());
        let below = name.strip_prefix("/").unwrap_or(name);
        let path = match name.starts_with(&self.root) {
            true => name.to_owned(),
            false => self.root.join(below),
        };
        path.symlink_metadata().is_ok()
    }
}

/// What becomes of the data of the next transfer of a session.
type Fate = Arc<Mutex<Option<(Spoilt, bool)>>>;

struct ProxySession {
    shared: Arc<Shared>,
    client: Lines,
    server: Lines,
    ends: [TcpStream; 2],
    /// Where the client was led by its last CWD.
    directory: Vec<u8>,
    fate: Fate,
}

impl ProxySession {
    fn begin(shared: Arc<Shared>, client: TcpStream) -> io::Result<ProxySession> {
        let server = TcpStream::connect(shared.server)?;
        for stream in [&client, &server] {
            stream.set_nodelay(true)?;
            shared.keep(stream)?;
        }
        Ok(ProxySession {
            ends: [client.try_clone()?, server.try_clone()?],
            client: Lines::new(client),
            server: Lines::new(server),
            shared,
            directory: Vec::new(),
            fate: Fate::default(),
        })
    }

    fn converse(mut self) -> io::Result<()> {
        let greeting = self.server.reply()?;
        self.tell(&greeting)?;
        while let Some(line) = self.client.line()? {
            self.treat(&line)?;
        }
        Ok(())
    }

    fn treat(&mut self, line: &[u8]) -> io::Result<()> {
        let command = line.trim_ascii_end();
        let verb = verb(command);
        let argument = command.get(verb.len() + 1..).unwrap_or_default();
        // Options of LIST and NLST stand before what is listed.
        let listed = match argument.strip_prefix(b"-") {
            Some(options) => options
                .splitn(2, |byte| *byte == b' ')
                .nth(1)
                .unwrap_or_default(),
            None => argument,
        };
        let directory = if listed.is_empty() {
            &self.directory[..]
        } else {
            listed
        };
        let treatment = {
            let shared = &self.shared;
            let mut script = shared.script.lock();
            script.treat(&verb, command, directory, |name| shared.exists(name))
        };
        match treatment {
            Treatment::Answer(reply) => self.client.say(format!("{reply}\r\n").as_bytes()),
            Treatment::Instead { command, reply } => {
                self.ask(&command)?;
                self.server.reply()?;
                self.client.say(format!("{reply}\r\n").as_bytes())
            }
            Treatment::Translate(command) => {
                self.ask(&command)?;
                self.answered().and_then(|reply| self.tell(&reply))
            }
            Treatment::LoseReply => {
                self.ask(command)?;
                self.answered()?;
                Err(io::ErrorKind::ConnectionAborted.into())
            }
            Treatment::Spoil { spoilt, reply } => {
                *self.fate.lock() = Some((spoilt, verb.starts_with("MLS")));
                self.ask(command)?;
                let answered = self.answered()?;
                match reply {
                    Some(reply) if answered.code < 300 => {
                        self.client.say(format!("{reply}\r\n").as_bytes())
                    }
                    _ => self.tell(&answered),
                }
            }
            Treatment::RefuseData(how) => {
                self.ask(command)?;
                let reply = self.answered()?;
                let refused = self.led(&reply, Some(how))?;
                self.tell(&refused)
            }
            Treatment::Pass => {
                self.ask(command)?;
                let reply = self.answered()?;
                if verb == "CWD" && reply.code == 250 {
                    self.directory = argument.to_vec();
                }
                let reply = match &*verb {
                    "PASV" | "EPSV" | "SPAS" => self.led(&reply, None)?,
                    "FEAT" => self.announced(reply),
                    _ => reply,
                };
                self.tell(&reply)
            }
        }
    }

    fn ask(&mut self, command: &[u8]) -> io::Result<()> {
        self.server.say(&[command, b"\r\n"].concat())
    }

    fn tell(&mut self, reply: &Reply) -> io::Result<()> {
        self.client.say(&reply.lines.concat())
    }

    /// The final reply. Those before it pass, and so do commands that cannot wait for it.
    fn answered(&mut self) -> io::Result<Reply> {
        let mut asked = 1;
        loop {
            let mut listens = true;
            while self.server.peek().is_none() {
                let ready = {
                    let mut ends = vec![PollFd::new(&self.server, PollFlags::IN)];
                    if listens {
                        ends.push(PollFd::new(&self.client, PollFlags::IN));
                    }
                    rustix::io::retry_on_intr(|| rustix::event::poll(&mut ends, None))?;
                    let is_ready = |end: &PollFd<'_>| !end.revents().is_empty();
                    (is_ready(&ends[0]), ends.get(1).is_some_and(is_ready))
                };
                if ready.1 && !self.client.fill()? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                match self.client.peek() {
                    Some(line) if AT_ONCE.contains(&&*verb(line)) => {
                        let line = self.client.line()?.unwrap_or_default();
                        self.server.say(&line)?;
                        asked += 1;
                    }
                    Some(_) => listens = false,
                    None => {}
                }
                if ready.0 && !self.server.fill()? {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            let reply = self.server.reply()?;
            if !reply.is_preliminary() {
                asked -= 1;
                if asked == 0 {
                    return Ok(reply);
                }
            }
            self.tell(&reply)?;
        }
    }

    fn announced(&self, mut reply: Reply) -> Reply {
        let script = self.shared.script.lock();
        reply.lines.retain(|line| script.announces(line));
        reply
    }

    /// A reply that leads the client to ports of ours in place of the server's.
    fn led(&mut self, reply: &Reply, refused: Option<Refusal>) -> io::Result<Reply> {
        self.fate = Fate::default();
        let mut led = reply.clone();
        for line in &mut led.lines {
            if let Some((range, port)) = address(line) {
                let server = SocketAddr::new(self.shared.server.ip(), port);
                let ours = match refused {
                    Some(Refusal::Port) => self.shared.closed_port()?,
                    _ => self.relay(server, refused.is_some())?,
                };
                let ours = match line[range.start] {
                    b'|' => format!("|||{ours}|"),
                    _ => format!("127,0,0,1,{},{}", ours / 256, ours % 256),
                };
                line.splice(range, ours.into_bytes());
            }
        }
        Ok(led)
    }

    /// A port whose connections lead to one of the server.
    fn relay(&self, server: SocketAddr, refused: bool) -> io::Result<u16> {
        let fate = Arc::clone(&self.fate);
        let addr = self.shared.accept(move |shared, client| {
            // The ends of a data connection may go at any time, too.
            let _ = pass_on(&shared, client, server, refused, &fate);
        })?;
        Ok(addr.port())
    }
}

impl Drop for ProxySession {
    fn drop(&mut self) {
        for end in &self.ends {
            let _ = end.shutdown(Shutdown::Both);
        }
    }
}

/// Joins a data connection with one to the server, until both have ended.
fn pass_on(
    shared: &Arc<Shared>,
    mut client: TcpStream,
    server: SocketAddr,
    refused: bool,
    fate: &Fate,
) -> io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    if refused {
        rustix::net::connect_unspec(&client)?;
        return Ok(());
    }
    for stream in [&client, &server] {
        shared.keep(stream)?;
    }
    let (mut up, mut to) = (client.try_clone()?, server.try_clone()?);
    let upwards = thread::spawn(move || {
        let _ = io::copy(&mut up, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let down = down(shared, &mut server, &mut client, fate);
    let _ = client.shutdown(Shutdown::Write);
    if down.is_err() {
        let _ = server.shutdown(Shutdown::Both);
    }
    let _ = upwards.join();
    down
}

/// What a server sends.
fn down(
    shared: &Shared,
    server: &mut TcpStream,
    client: &mut TcpStream,
    fate: &Fate,
) -> io::Result<()> {
    let mut piece = vec![0; 64 << 10];
    let first = server.read(&mut piece)?;
    // The server has sent something, so it has heard the command, and the fate was set before.
    let Some((spoilt, has_facts)) = fate.lock().take() else {
        client.write_all(&piece[..first])?;
        if first > 0 {
            io::copy(server, client)?;
        }
        return Ok(());
    };
    piece.truncate(first);
    if first > 0 {
        server.take(LISTING_MAX).read_to_end(&mut piece)?;
    }
    let Some(left) = spoil(&piece, spoilt, has_facts) else {
        return client.write_all(&piece);
    };
    shared.script.lock().happened = true;
    client.write_all(&left)?;
    if matches!(spoilt, Spoilt::Cut { reset: true, .. }) {
        rustix::net::connect_unspec(&*client)?;
    }
    Ok(())
}

fn verb(command: &[u8]) -> String {
    // ABOR comes behind TELNET's marks.
    let command = command.trim_ascii_end();
    let start = command
        .iter()
        .position(u8::is_ascii_alphabetic)
        .unwrap_or(0);
    let word = command[start..].split(|byte| *byte == b' ').next();
    String::from_utf8_lossy(word.unwrap_or_default()).to_ascii_uppercase()
}

/// Where a line has an address as in 227 or 229, and its port.
fn address(line: &[u8]) -> Option<(std::ops::Range<usize>, u16)> {
    let text = std::str::from_utf8(line).ok()?;
    if let Some(start) = text.find("|||") {
        let digits = text[start + 3..].split('|').next()?;
        return Some((start..start + digits.len() + 4, digits.parse().ok()?));
    }
    let is_part = |c: char| c.is_ascii_digit() || c == ',';
    let mut at = 0;
    for word in text.split(|c| !is_part(c)) {
        let numbers: Vec<u16> = word
            .split(',')
            .filter_map(|number| number.parse().ok())
            .collect();
        if let [_, _, _, _, high, low] = numbers[..] {
            return Some((
                at..at + word.len(),
                high.checked_mul(256)?.checked_add(low)?,
            ));
        }
        at += word.len() + 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_found_in_replies() {
        fn found(line: &str) -> Option<(&str, u16)> {
            address(line.as_bytes()).map(|(at, port)| (&line[at], port))
        }
        assert_eq!(
            found("227 Entering Passive Mode (127,0,0,1,4,1).\r\n"),
            Some(("127,0,0,1,4,1", 1025))
        );
        assert_eq!(
            found("229 Entering Extended Passive Mode (|||1025|)\r\n"),
            Some(("|||1025|", 1025))
        );
        assert_eq!(
            found(" 127,0,0,1,255,255\r\n"),
            Some(("127,0,0,1,255,255", 65_535))
        );
        assert_eq!(found("229-Entering Striped Passive Mode\r\n"), None);
        assert_eq!(found("227 (1,2,3,4,300,1)\r\n"), None);
    }

    #[test]
    fn verbs_are_found_behind_marks_of_telnet() {
        assert_eq!(verb(b"\xff\xf4\xff\xf2abor\r\n"), "ABOR");
        assert_eq!(verb(b"MLSD a b"), "MLSD");
        assert_eq!(verb(b""), "");
    }
}
