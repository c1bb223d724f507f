//! Servers that announce SITE GODWIT and then do not keep to it. The copy must succeed all the
//! same, and end.

use std::{
    fs,
    io::{BufRead, BufReader, Write},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
};

use crate::harness::{bytes, for_each_at_once, run_with, text};

/// What the server does about an aside, and about the transfer that runs meanwhile.
#[derive(Clone, Copy, PartialEq)]
enum Manners {
    /// Answers as it must.
    Good,
    /// `500` in its turn: it does not know live requests.
    Late,
    /// `500` at once, out of turn.
    Rash,
    /// `200` in its turn.
    Wrong,
    /// Nothing.
    Mute,
    /// Hangs up.
    Gone,
}

const FEATURES: &str = "211-Features\r\n PARALLEL\r\n ERET\r\n SIZE\r\n MLST Type*;Size*;\r\n \
                        X-GODWIT CHANNELS,REPORT\r\n211 End\r\n";

struct Server {
    address: SocketAddr,
    live_requests: Arc<AtomicUsize>,
}

impl Server {
    fn start(manners: Manners, file: Vec<u8>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let live_requests = Arc::<AtomicUsize>::default();
        let heard = Arc::clone(&live_requests);
        thread::spawn(move || {
            for control in listener.incoming() {
                let (heard, file) = (Arc::clone(&heard), file.clone());
                // The client may go away at any time.
                thread::spawn(move || {
                    Session::serve(control.unwrap(), manners, &file, &heard).ok()
                });
            }
        });
        Self {
            address,
            live_requests,
        }
    }
}

struct Session<'a> {
    control: TcpStream,
    lines: BufReader<TcpStream>,
    manners: Manners,
    file: &'a [u8],
    data: Option<TcpStream>,
    live_requests: &'a AtomicUsize,
}

impl Session<'_> {
    fn serve(
        control: TcpStream,
        manners: Manners,
        file: &[u8],
        live_requests: &AtomicUsize,
    ) -> std::io::Result<()> {
        let mut session = Session {
            lines: BufReader::new(control.try_clone()?),
            control,
            manners,
            file,
            data: None,
            live_requests,
        };
        session.say("220 ready\r\n")?;
        while let Some(line) = session.line()? {
            let (verb, argument) = line.split_once(' ').unwrap_or((&line, ""));
            let size = file.len();
            match verb {
                "USER" => session.say("331 password\r\n")?,
                "PASS" => session.say("230 in\r\n")?,
                "FEAT" => session.say(FEATURES)?,
                "MLST" => session.say(&format!(
                    "250-status\r\n Type=file;Size={size}; {argument}\r\n250 End\r\n"
                ))?,
                "PORT" => {
                    session.data = Some(connect(argument)?);
                    session.say("200 ok\r\n")?;
                }
                "RETR" => session.send(0)?,
                // What came before the session broke is not asked for again. `P offset length
                // path`, to the end.
                "ERET" => {
                    let offset = argument
                        .split(' ')
                        .nth(1)
                        .and_then(|word| word.parse().ok());
                    session.send(offset.unwrap())?;
                }
                "TYPE" | "MODE" | "OPTS" | "SITE" => session.say("200 ok\r\n")?,
                "QUIT" => return session.say("221 bye\r\n"),
                _ => session.say("500 what?\r\n")?,
            }
        }
        Ok(())
    }

    fn say(&mut self, text: &str) -> std::io::Result<()> {
        self.control.write_all(text.as_bytes())
    }

    fn line(&mut self) -> std::io::Result<Option<String>> {
        let mut line = String::new();
        let n = self.lines.read_line(&mut line)?;
        Ok((n > 0).then(|| line.trim_end().to_owned()))
    }

    /// The file from `offset` on, over one channel. If there is to be an aside at all, the transfer
    /// waits for it.
    fn send(&mut self, offset: usize) -> std::io::Result<()> {
        let mut data = self.data.take().ok_or(std::io::ErrorKind::NotConnected)?;
        let file = &self.file[offset..];
        let half = file.len() / 2;
        self.say("150 go\r\n")?;
        block(&mut data, 0, 0, &file[..half])?;
        let tries_once = self.manners != Manners::Good;
        let asked = !(tries_once && self.live_requests.load(Ordering::SeqCst) > 0);
        if asked {
            let line = self.line()?.ok_or(std::io::ErrorKind::UnexpectedEof)?;
            assert_eq!(line, "SITE GODWIT REPORT");
            self.live_requests.fetch_add(1, Ordering::SeqCst);
            match self.manners {
                Manners::Good => self.say("258 bytes=1;channels=1;later=2;\r\n")?,
                Manners::Rash => self.say("500 what?\r\n")?,
                Manners::Gone => return Err(std::io::ErrorKind::Other.into()),
                Manners::Late | Manners::Wrong | Manners::Mute => {}
            }
        }
        let rest =
            block(&mut data, 0, half, &file[half..]).and_then(|()| block(&mut data, 0x48, 1, b""));
        // Who took the rash answer for the transfer's end may have closed the channel already.
        if self.manners != Manners::Rash {
            rest?;
        }
        self.say("226 done\r\n")?;
        self.data = Some(data);
        match self.manners {
            Manners::Late if asked => self.say("500 what?\r\n"),
            Manners::Wrong if asked => self.say("200 fine\r\n"),
            _ => Ok(()),
        }
    }
}

fn block(
    data: &mut TcpStream,
    descriptor: u8,
    offset: usize,
    payload: &[u8],
) -> std::io::Result<()> {
    let mut header = vec![descriptor];
    header.extend((payload.len() as u64).to_be_bytes());
    header.extend((offset as u64).to_be_bytes());
    data.write_all(&header)?;
    data.write_all(payload)
}

/// To the address in `h1,h2,h3,h4,p1,p2`.
fn connect(address: &str) -> std::io::Result<TcpStream> {
    let n: Vec<u8> = address.split(',').map(|n| n.parse().unwrap()).collect();
    let port = u16::from_be_bytes([n[4], n[5]]);
    TcpStream::connect((Ipv4Addr::new(n[0], n[1], n[2], n[3]), port))
}

/// Copies a file from such a server; returns standard error and the number of live requests.
fn copy(manners: Manners) -> (String, usize) {
    let data = bytes(200_000, 5);
    let server = Server::start(manners, data.clone());
    let here = tempfile::tempdir().unwrap();
    let to = here.path().join("f");
    let url = format!("ftp://{}/f", server.address);
    let ran = run_with(
        "cp -v --no-verify --stall-timeout 2",
        &["-p", "1", "-c", "1", &url, text(&to)],
    );
    let ran = ran.expect(0, &[]);
    assert!(fs::read(&to).unwrap() == data);
    (ran.err, server.live_requests.load(Ordering::SeqCst))
}

#[test]
fn a_good_server_is_asked() {
    let (err, live_requests) = copy(Manners::Good);
    assert!(!err.contains("SITE GODWIT"), "{err}");
    assert_eq!(live_requests, 1);
}

#[test]
fn servers_that_break_the_protocol_are_asked_once() {
    let cases = [
        (Manners::Late, "500 what?"),
        (Manners::Rash, "unexpected reply: 226"),
        (Manners::Wrong, "unexpected reply: 200"),
        (Manners::Gone, "closed the control connection"),
    ];
    for_each_at_once(cases, |(manners, why)| {
        let (err, live_requests) = copy(manners);
        assert!(err.contains("no SITE GODWIT after all"), "{err}");
        assert!(err.contains(why), "no {why:?} in: {err}");
        assert_eq!(live_requests, 1, "{err}");
    });
}

#[test]
fn the_wait_for_an_answer_is_limited() {
    let (err, live_requests) = copy(Manners::Mute);
    assert!(err.contains("no SITE GODWIT after all"), "{err}");
    assert_eq!(live_requests, 1, "{err}");
}
