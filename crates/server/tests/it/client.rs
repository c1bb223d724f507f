//! A raw FTP client: lines out, replies in, data connections by hand.

use std::{
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream},
};

use crate::harness::PATIENCE;

/// One reply: code, and lines without code and continuation mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reply {
    pub(crate) code: u16,
    pub(crate) lines: Vec<String>,
}

impl Reply {
    pub(crate) fn text(&self) -> String {
        self.lines.join("\n")
    }
}

pub(crate) struct Ftp {
    socket: TcpStream,
    reader: BufReader<TcpStream>,
}

impl Ftp {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::of(connect(address))
    }

    pub(crate) fn of(socket: TcpStream) -> Self {
        Self {
            reader: BufReader::new(socket.try_clone().unwrap()),
            socket,
        }
    }

    pub(crate) fn login(&mut self) {
        self.expect("USER anonymous", 331);
        self.expect("PASS me@example.org", 230);
        self.expect("TYPE I", 200);
    }

    pub(crate) fn send(&mut self, line: &str) {
        self.send_raw(format!("{line}\r\n").as_bytes());
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    pub(crate) fn socket(&self) -> &TcpStream {
        &self.socket
    }

    /// The next reply; `None` at the end of the connection.
    pub(crate) fn try_reply(&mut self) -> Option<Reply> {
        let first = self.line()?;
        let code = first
            .get(..3)
            .and_then(|digits| digits.parse().ok())
            .unwrap_or_else(|| panic!("no reply: {first:?}"));
        let mut lines = vec![first[4..].to_owned()];
        if first.as_bytes()[3] == b'-' {
            let (last, body) = (format!("{code} "), format!("{code}-"));
            loop {
                let line = self.line().expect("a whole reply");
                if let Some(text) = line.strip_prefix(&last) {
                    lines.push(text.to_owned());
                    break;
                }
                let text = line
                    .strip_prefix(&body)
                    .or_else(|| line.strip_prefix(' '))
                    .unwrap_or_else(|| panic!("body line without mark: {line:?}"));
                lines.push(text.to_owned());
            }
        } else {
            assert_eq!(first.as_bytes()[3], b' ', "{first:?}");
        }
        Some(Reply { code, lines })
    }

    pub(crate) fn reply(&mut self) -> Reply {
        self.try_reply()
            .expect("a reply, not the end of the connection")
    }

    /// The next reply must have this code.
    pub(crate) fn await_code(&mut self, code: u16) -> Reply {
        let reply = self.reply();
        assert_eq!(reply.code, code, "{reply:?}");
        reply
    }

    pub(crate) fn call(&mut self, line: &str) -> Reply {
        self.send(line);
        self.reply()
    }

    pub(crate) fn expect(&mut self, line: &str, code: u16) -> Reply {
        let reply = self.call(line);
        assert_eq!(reply.code, code, "{line}: {reply:?}");
        reply
    }

    /// Replies up to the first that is neither 111 nor 112; those are returned apart.
    pub(crate) fn final_reply(&mut self) -> (Vec<Reply>, Reply) {
        let mut markers = Vec::new();
        loop {
            let reply = self.reply();
            if !matches!(reply.code, 111 | 112) {
                return (markers, reply);
            }
            markers.push(reply);
        }
    }

    /// Nothing more comes: the server has closed.
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(self.try_reply(), None);
    }

    pub(crate) fn close_write(&self) {
        let _ = self.socket.shutdown(Shutdown::Write);
    }

    pub(crate) fn pasv(&mut self) -> SocketAddr {
        let reply = self.expect("PASV", 227);
        comma_address(&reply.lines[0])
    }

    /// PASV and a connection to it.
    pub(crate) fn passive(&mut self) -> TcpStream {
        connect(self.pasv())
    }

    /// A listener of ours that the server knows.
    pub(crate) fn active(&mut self) -> TcpListener {
        let listener = listen();
        self.expect(&port_command(listener.local_addr().unwrap()), 200);
        listener
    }

    /// MODE S by PASV: sends `bytes` with `command` and returns the final reply.
    pub(crate) fn put(&mut self, command: &str, bytes: &[u8]) -> Reply {
        let mut data = self.passive();
        self.send(command);
        let first = self.reply();
        if first.code != 150 {
            return first;
        }
        data.write_all(bytes).unwrap();
        drop(data);
        self.final_reply().1
    }

    /// MODE S by PASV: bytes that come with `command`, which must succeed.
    pub(crate) fn get(&mut self, command: &str) -> Vec<u8> {
        let data = self.passive();
        self.expect(command, 150);
        let bytes = read_all(data);
        self.await_code(226);
        bytes
    }

    fn line(&mut self) -> Option<String> {
        let mut line = Vec::new();
        let count = self.reader.read_until(b'\n', &mut line).unwrap();
        if count == 0 {
            return None;
        }
        assert!(line.ends_with(b"\r\n"), "{line:?}");
        line.truncate(line.len() - 2);
        Some(String::from_utf8(line).unwrap())
    }
}

pub(crate) fn connect(address: SocketAddr) -> TcpStream {
    let socket = TcpStream::connect(address).unwrap();
    patient(&socket);
    socket
}

/// From another address of this machine.
pub(crate) fn connect_from(host: Ipv4Addr, to: SocketAddr) -> TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let from = SocketAddr::from((host, 0));
    let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&fd, &from).unwrap();
    connect(&fd, &to).unwrap();
    let socket = TcpStream::from(fd);
    patient(&socket);
    socket
}

pub(crate) fn listen() -> TcpListener {
    TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap()
}

pub(crate) fn accept(listener: &TcpListener) -> TcpStream {
    let socket = listener.accept().unwrap().0;
    patient(&socket);
    socket
}

fn patient(socket: &TcpStream) {
    socket.set_read_timeout(Some(PATIENCE)).unwrap();
    socket.set_write_timeout(Some(PATIENCE)).unwrap();
}

/// All bytes up to the end of the connection.
pub(crate) fn read_all(mut socket: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    socket.read_to_end(&mut bytes).unwrap();
    bytes
}

/// The other end closed, in order or not.
pub(crate) fn expect_closed(mut socket: TcpStream) {
    let mut bytes = [0; 4096];
    loop {
        match socket.read(&mut bytes) {
            Ok(0) => return,
            Ok(_) => {}
            Err(error) => {
                assert!(
                    !matches!(
                        error.kind(),
                        std::io::ErrorKind::WouldBlock | std::io::ErrorKind::TimedOut
                    ),
                    "connection is still open"
                );
                return;
            }
        }
    }
}

pub(crate) fn port_command(address: SocketAddr) -> String {
    format!("PORT {}", comma(address))
}

/// `h1,h2,h3,h4,p1,p2`
pub(crate) fn comma(address: SocketAddr) -> String {
    let IpAddr::V4(ip) = address.ip() else {
        panic!("{address} is not IPv4")
    };
    let [a, b, c, d] = ip.octets();
    let [high, low] = address.port().to_be_bytes();
    format!("{a},{b},{c},{d},{high},{low}")
}

/// The address in `(h1,h2,h3,h4,p1,p2)` or a line that is nothing else.
pub(crate) fn comma_address(text: &str) -> SocketAddr {
    let inner = text
        .split_once('(')
        .map_or(text, |(_, rest)| rest.split_once(')').unwrap().0);
    let numbers: Vec<u8> = inner
        .trim()
        .split(',')
        .map(|n| n.parse().unwrap())
        .collect();
    let [a, b, c, d, high, low] = numbers[..] else {
        panic!("{text}")
    };
    SocketAddr::from(([a, b, c, d], u16::from_be_bytes([high, low])))
}

/// One block of MODE E, whatever its header says.
pub(crate) fn block(descriptor: u8, count: u64, offset: u64, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![descriptor];
    bytes.extend(count.to_be_bytes());
    bytes.extend(offset.to_be_bytes());
    bytes.extend(payload);
    bytes
}

pub(crate) fn data_block(offset: u64, payload: &[u8]) -> Vec<u8> {
    block(0, payload.len() as u64, offset, payload)
}

/// Descriptor bits.
pub(crate) const EOF: u8 = 0x40;
pub(crate) const EOD: u8 = 0x08;
pub(crate) const CLOSE: u8 = 0x04;
pub(crate) const HOLE: u8 = 0x02;

/// What one channel of a sender said in one transfer.
#[derive(Debug, Default)]
pub(crate) struct ChannelTake {
    /// Offset and bytes of each block, those of holes included.
    pub(crate) blocks: Vec<(u64, Vec<u8>)>,
    /// Bytes of holes.
    pub(crate) holes: u64,
    /// The count of an EOF header.
    pub(crate) eof: Option<u64>,
    pub(crate) close: bool,
}

/// Reads one channel up to its EOD.
pub(crate) fn take_channel(socket: &mut TcpStream) -> ChannelTake {
    let mut take = ChannelTake::default();
    loop {
        let mut header = [0; 17];
        socket.read_exact(&mut header).unwrap();
        let number = |at: usize| u64::from_be_bytes(header[at..at + 8].try_into().unwrap());
        let (descriptor, count, offset) = (header[0], number(1), number(9));
        if descriptor & EOF != 0 {
            take.eof = Some(offset);
        } else if count > 0 {
            let mut payload = vec![0; usize::try_from(count).unwrap()];
            if descriptor & HOLE == 0 {
                socket.read_exact(&mut payload).unwrap();
            } else {
                take.holes += count;
            }
            take.blocks.push((offset, payload));
        }
        take.close |= descriptor & CLOSE != 0;
        if descriptor & EOD != 0 {
            return take;
        }
    }
}

/// Puts the blocks of all channels together and checks that EOF came once, with the right count.
pub(crate) fn assemble(takes: &[ChannelTake]) -> Vec<u8> {
    let eofs: Vec<u64> = takes.iter().filter_map(|take| take.eof).collect();
    assert_eq!(
        eofs,
        [takes.len() as u64],
        "one EOF that counts all channels"
    );
    let mut blocks: Vec<_> = takes.iter().flat_map(|take| &take.blocks).collect();
    blocks.sort();
    let mut bytes = Vec::new();
    for (offset, payload) in blocks {
        assert_eq!(*offset, bytes.len() as u64, "no gap and no overlap");
        bytes.extend(payload);
    }
    bytes
}
