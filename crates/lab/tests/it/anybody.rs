//! A peer that presents any certificate, whether or not it has the key: GSI's handshake by OpenSSL
//! alone, so that none of our own checks fails before the program under test.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use godwit_gsi::adat;
use openssl::ssl::{
    Ssl, SslContext, SslContextBuilder, SslMethod, SslStream, SslVerifyMode, SslVersion,
};

use crate::bad::Shown;
use crate::support::LONG;

/// Trusts every certificate, and shows the configured one, of whatever strength.
fn context(shown: &Shown, version: SslVersion) -> SslContext {
    let mut builder = SslContextBuilder::new(SslMethod::tls()).unwrap();
    builder.set_min_proto_version(Some(version)).unwrap();
    builder.set_max_proto_version(Some(version)).unwrap();
    builder.set_security_level(0);
    builder.set_num_tickets(0).unwrap();
    builder.set_verify_callback(SslVerifyMode::PEER, |_, _| true);
    if let Some((own, chain)) = shown.sent.split_first() {
        builder.set_certificate(own.as_x509()).unwrap();
        builder.set_private_key(&shown.key).unwrap();
        for certificate in chain {
            let certificate = certificate.as_x509().clone();
            builder.add_extra_chain_cert(certificate).unwrap();
        }
    }
    builder.build()
}

/// The lines of a control channel.
#[derive(Debug)]
struct Lines(BufReader<TcpStream>);

impl Lines {
    fn new(stream: TcpStream) -> Self {
        stream.set_read_timeout(Some(LONG)).unwrap();
        Self(BufReader::new(stream))
    }

    fn say(&mut self, line: &str) -> io::Result<()> {
        self.0.get_mut().write_all(format!("{line}\r\n").as_bytes())
    }

    fn hear(&mut self) -> io::Result<String> {
        let mut line = String::new();
        match self.0.read_line(&mut line)? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(line.trim_end().to_owned()),
        }
    }

    /// A reply with all its lines.
    fn reply(&mut self) -> io::Result<String> {
        let mut reply = self.hear()?;
        let end = format!("{} ", reply.get(..3).unwrap_or_default());
        let mut last = reply.clone();
        while !last.starts_with(&end) {
            last = self.hear()?;
            reply = format!("{reply}\n{last}");
        }
        Ok(reply)
    }
}

/// TLS in ADAT, and in ENC behind it: what is written leaves when something is to be read.
#[derive(Debug)]
struct Tokens {
    lines: Lines,
    is_client: bool,
    input: Vec<u8>,
    output: Vec<u8>,
}

impl Tokens {
    fn new(lines: Lines, is_client: bool) -> Self {
        Self {
            lines,
            is_client,
            input: Vec::new(),
            output: Vec::new(),
        }
    }

    fn exchange(&mut self) -> io::Result<()> {
        let token = adat::encode(&std::mem::take(&mut self.output));
        if self.is_client {
            self.lines.say(&format!("ADAT {token}"))?;
            let reply = self.lines.reply()?;
            let token = reply.strip_prefix("335 ADAT=");
            // Refused, or over: the reply says which.
            let token = token.ok_or_else(|| io::Error::other(reply.clone()))?;
            self.input = adat::decode(token).unwrap();
        } else {
            if !token.is_empty() {
                self.lines.say(&format!("335 ADAT={token}"))?;
            }
            let line = self.lines.hear()?;
            let token = line.strip_prefix("ADAT ").or(line.strip_prefix("ENC "));
            self.input = adat::decode(token.unwrap_or_default()).unwrap();
        }
        Ok(())
    }
}

impl Read for Tokens {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.input.is_empty() {
            self.exchange()?;
        }
        let count = self.input.len().min(buffer.len());
        buffer[..count].copy_from_slice(&self.input[..count]);
        self.input.drain(..count);
        Ok(count)
    }
}

impl Write for Tokens {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.output.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Shows a server these certificates. What it says against them, if anything.
pub(crate) fn show_to_server(
    server: SocketAddr,
    shown: &Shown,
    version: SslVersion,
) -> Result<(), String> {
    let mut lines = Lines::new(TcpStream::connect(server).unwrap());
    let greeting = lines.reply().unwrap();
    assert!(greeting.starts_with("220"), "{greeting}");
    lines.say("AUTH GSSAPI").unwrap();
    let reply = lines.reply().unwrap();
    assert!(reply.starts_with("334"), "{reply}");
    let ssl = Ssl::new(&context(shown, version)).unwrap();
    let stream = ssl.connect(Tokens::new(lines, true));
    let mut stream = stream.map_err(|error| error.to_string())?;
    let mut byte = [0];
    if version == SslVersion::TLS1_3 {
        // The NUL: until then the server has not said what it thinks.
        let read = stream.read_exact(&mut byte);
        read.map_err(|error| error.to_string())?;
    }
    // No delegation.
    stream.write_all(b"0").unwrap();
    match stream.get_mut().exchange() {
        Err(error) if error.to_string().starts_with("235") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// A server that shows the configured certificate; clients that accept it may make directories.
pub(crate) struct Anybody {
    pub(crate) address: SocketAddr,
    shows: Arc<Mutex<Option<SslContext>>>,
}

impl Anybody {
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let shows: Arc<Mutex<Option<SslContext>>> = Arc::default();
        let current = Arc::clone(&shows);
        // Ends with the tests.
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let context = current.lock().unwrap().clone().expect("shows something");
                // The client may go away at any time.
                std::thread::spawn(move || drop(serve(stream.unwrap(), &context)));
            }
        });
        Self { address, shows }
    }

    pub(crate) fn show(&self, shown: &Shown, version: SslVersion) {
        *self.shows.lock().unwrap() = Some(context(shown, version));
    }
}

fn serve(stream: TcpStream, context: &SslContext) -> io::Result<()> {
    let mut lines = Lines::new(stream);
    lines.say("220 Ready")?;
    let auth = lines.hear()?;
    assert_eq!(auth, "AUTH GSSAPI");
    lines.say("334 Go on")?;
    let ssl = Ssl::new(context).unwrap();
    let mut tls = ssl
        .accept(Tokens::new(lines, false))
        .map_err(io::Error::other)?;
    if tls.ssl().version2() == Some(SslVersion::TLS1_3) {
        tls.write_all(&[0])?;
    }
    let mut flag = [0];
    tls.read_exact(&mut flag)?;
    tls.get_mut().lines.say("235 Done")?;
    loop {
        let mut line = [0; 1024];
        let count = tls.read(&mut line)?;
        let line = String::from_utf8_lossy(&line[..count]).into_owned();
        let reply = match line.split_whitespace().next().unwrap_or_default() {
            "USER" => "331 Password",
            "PASS" => "230 Yes",
            "FEAT" => "211-Features\r\n DCAU\r\n SIZE\r\n211 End",
            "MKD" => "257 Made",
            "QUIT" => "221 Bye",
            _ => "200 Fine",
        };
        answer(&mut tls, reply)?;
    }
}

fn answer(tls: &mut SslStream<Tokens>, reply: &str) -> io::Result<()> {
    tls.write_all(format!("{reply}\r\n").as_bytes())?;
    let sealed = std::mem::take(&mut tls.get_mut().output);
    let line = format!("632 {}", adat::encode(&sealed));
    tls.get_mut().lines.say(&line)
}
