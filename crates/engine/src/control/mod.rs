//! Drives a client's protocol interpreter over a socket, or over a program that leads to a server
//! ([`Stream`]); [`protection`]: its lines, and a server's, under a security context.

pub mod protection;
mod stream;

use std::{
    collections::VecDeque,
    io,
    net::SocketAddr,
    sync::Arc,
    time::{Duration, Instant, SystemTime},
};

use crate::{
    host::net::{keep_alive, set_linear_timeouts},
    storage::text_of,
};
use godwit_gsi::{
    Wrap,
    cert::Certificate,
    ftps::{Handshake, Secured},
};
use godwit_proto::{
    command::Command,
    pi::client::{ClientConfig, ClientPi, ClientPiError, CommandId, Input, Output},
    reply::Reply,
};
use tokio::{io::Interest, net::TcpStream, time};

use protection::{Encapsulation, ProtectedClient, ProtectionError};
pub use stream::Stream;

/// What the control channel brought.
#[derive(Debug)]
pub enum Event {
    /// 1xx.
    Preliminary(CommandId, Reply),
    /// End of a command.
    Final(CommandId, Reply),
}

/// Why it is over.
#[derive(Debug, Clone, thiserror::Error)]
pub enum ControlError {
    /// No connection.
    #[error("cannot connect to {peer}: {}", text_of(error))]
    Connect {
        /// Where to.
        peer: Arc<str>,
        /// Why not.
        error: Arc<std::io::Error>,
    },
    /// It broke.
    #[error("control connection to {peer} broke: {}", text_of(error))]
    Io {
        /// Peer.
        peer: Arc<str>,
        /// Why.
        error: Arc<std::io::Error>,
    },
    /// The dialogue failed.
    #[error("{peer}: {error}")]
    Dialogue {
        /// Peer.
        peer: Arc<str>,
        /// Why.
        error: ClientPiError,
    },
    /// A request of HTTP had no answer that means something.
    #[error("{reason}")]
    Http {
        /// Peer.
        peer: Arc<str>,
        /// Which, and why.
        reason: Arc<str>,
    },
    /// The server broke the protection of the channel, or an attacker on the path did.
    #[error("protected control connection to {peer}: {error}")]
    Protection {
        /// Peer.
        peer: Arc<str>,
        /// Why.
        error: ProtectionError,
    },
}

/// Sees every line of the dialogue, secrets masked: `true` for what we send.
pub type ProtocolTrace = Arc<dyn Fn(bool, &str) + Send + Sync>;

/// A control connection.
///
/// Every future of it may be dropped at any await and called again: bytes read and half-written
/// commands stay here, not in the future.
pub struct ControlChannel {
    stream: Stream,
    /// For messages.
    peer: Arc<str>,
    pi: ClientPi,
    log: Option<ProtocolTrace>,
    protection: Option<Box<ProtectedClient>>,
    unsent: Vec<u8>,
    events: VecDeque<Event>,
    failed: Option<ControlError>,
}

/// Bytes asked of the kernel at a time. Chosen arbitrarily; a FEAT fits.
const READ_BYTES: usize = 16 * 1024;

/// Bytes of commands that wait while replies are taken.
const UNSENT_BYTES_MAX: usize = 4 * 1024;

/// Time for a QUIT to be answered before the connection is closed anyway.
const QUIT_LIMIT: Duration = Duration::from_secs(2);

impl ControlChannel {
    /// Connects and waits for the greeting. Returns with it the addresses of the connection, ours
    /// first. All waits are limited by `config`.
    pub async fn connect(
        peer: SocketAddr,
        config: ClientConfig,
        log: Option<ProtocolTrace>,
    ) -> Result<(Self, Reply, [SocketAddr; 2]), ControlError> {
        let name: Arc<str> = peer.to_string().into();
        let no_connection = |error: io::Error| ControlError::Connect {
            peer: Arc::clone(&name),
            error: Arc::new(error),
        };
        let stream = time::timeout(config.reply_limit, TcpStream::connect(peer))
            .await
            .unwrap_or_else(|_| Err(no_answer(config.reply_limit)))
            .map_err(no_connection)?;
        // A command must not wait for the acknowledgement of the one before it.
        stream.set_nodelay(true).map_err(no_connection)?;
        // Without it answers are late where data fills the path, and no less right.
        drop(set_linear_timeouts(&stream));
        keep_alive(&stream).map_err(no_connection)?;
        let addresses = [stream.local_addr().map_err(no_connection)?, peer];
        let stream = Stream::Tcp(stream);
        let (channel, greeting) = Self::over(stream, Arc::clone(&name), config, log).await?;
        Ok((channel, greeting, addresses))
    }

    /// Waits for the greeting over what leads to a server already. `peer` names it in messages.
    pub async fn over(
        stream: Stream,
        peer: Arc<str>,
        config: ClientConfig,
        log: Option<ProtocolTrace>,
    ) -> Result<(Self, Reply), ControlError> {
        let mut channel = Self {
            stream,
            peer,
            pi: ClientPi::new(config, Instant::now()),
            log,
            protection: None,
            unsent: Vec::new(),
            events: VecDeque::new(),
            failed: None,
        };
        loop {
            if let Some(greeting) = channel.take_outputs()? {
                return Ok((channel, greeting));
            }
            channel.exchange().await?;
        }
    }

    /// Protects every command and reply from here on. For the moment at which the context is
    /// established and its 235 has come, with nothing in flight.
    ///
    /// # Errors
    /// When the server has sent something behind its 235 already: it would pass for protected.
    pub fn protect(&mut self, wrap: Wrap) -> Result<(), ControlError> {
        self.expect_silence()?;
        self.protection = Some(Box::new(ProtectedClient::new(wrap, Encapsulation::Lines)));
        Ok(())
    }

    /// Makes the connection one of TLS: for the moment at which AUTH TLS has its 234, with nothing
    /// in flight. Returns what the server has shown. Each wait is limited by `limit`.
    ///
    /// # Errors
    /// When the server has sent something behind its 234 already, is not whom the handshake
    /// expects, or does not continue.
    pub async fn start_tls(
        &mut self,
        mut handshake: Handshake,
        limit: Duration,
    ) -> Result<Option<Certificate>, ControlError> {
        self.expect_silence()?;
        loop {
            while let Some(bytes) = handshake.poll_output() {
                self.unsent.extend(bytes);
            }
            self.write_what_fits()?;
            if self.unsent.is_empty()
                && let Some(secured) = handshake.outcome()
            {
                return self.secure(secured);
            }
            let interest = match self.unsent.is_empty() {
                true => Interest::READABLE,
                false => Interest::READABLE | Interest::WRITABLE,
            };
            let ready = time::timeout(limit, self.stream.ready(interest)).await;
            let ready = ready.unwrap_or_else(|_| Err(no_answer(limit)));
            if !ready.map_err(|e| self.broke(e))?.is_readable() {
                continue;
            }
            let mut buffer = [0; READ_BYTES];
            let heard = match self.stream.try_read(&mut buffer) {
                Ok(0) => return Err(self.broke(io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => handshake.handle_input(SystemTime::now(), &buffer[..n]),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(()),
                Err(e) => return Err(self.broke(e)),
            };
            if let Err(error) = heard {
                // An alert informs the server.
                self.unsent
                    .extend(handshake.poll_output().unwrap_or_default());
                drop(self.write_what_fits());
                return Err(self.unprotected(error.into()));
            }
        }
    }

    fn secure(&mut self, secured: Secured) -> Result<Option<Certificate>, ControlError> {
        let mut protected = ProtectedClient::new(secured.wrap, Encapsulation::Records);
        let mut clear = Vec::new();
        let opened = protected.open(&secured.rest, &mut clear);
        opened.map_err(|error| self.unprotected(error))?;
        self.pi.handle_input(Instant::now(), Input::Bytes(&clear));
        self.protection = Some(Box::new(protected));
        Ok(secured.server)
    }

    fn expect_silence(&mut self) -> Result<(), ControlError> {
        self.take_outputs()?;
        if self.pi.is_inside_reply() || self.pi.in_flight() > 0 || !self.events.is_empty() {
            let error = ProtectionError::InClear("bytes before the channel is protected".into());
            return Err(self.unprotected(error));
        }
        Ok(())
    }

    /// TLS version and cipher suite of a protected channel.
    pub fn protection(&self) -> Option<String> {
        self.protection
            .as_ref()
            .map(|protected| protected.describe())
    }

    /// Queues a command; it is written by the next `next_event` or `call` that finds no reply
    /// waiting.
    pub fn submit(&mut self, command: &Command) -> CommandId {
        if self.log.is_some() {
            self.log_line(true, &command.masked());
        }
        self.pi.submit(Instant::now(), command)
    }

    /// See [`ClientPi::transfer_number`].
    pub fn transfer_number(&self, id: CommandId) -> Option<u64> {
        self.pi.transfer_number(id)
    }

    /// See [`ClientPi::data_moves`].
    pub fn data_moves(&mut self, moves: Option<bool>) {
        self.pi.data_moves(Instant::now(), moves);
    }

    /// The next reply, in command order. Cancel-safe.
    ///
    /// Returns an error at once when nothing is in flight and the connection is over; waits for
    /// ever when nothing is in flight.
    pub async fn next_event(&mut self) -> Result<Event, ControlError> {
        loop {
            let outcome = self.take_outputs();
            // What the replies that came together lead to leaves together.
            if self.events.len() <= 1 || self.unsent.len() >= UNSENT_BYTES_MAX {
                self.write_what_fits()?;
            }
            if let Some(event) = self.events.pop_front() {
                return Ok(event);
            }
            outcome?;
            self.exchange().await?;
        }
    }

    /// Sends one command and waits for its final reply; only while nothing else is in flight.
    pub async fn call(&mut self, command: &Command) -> Result<Reply, ControlError> {
        let id = self.submit(command);
        loop {
            match self.next_event().await? {
                Event::Final(of, reply) if of == id => return Ok(reply),
                Event::Final(..) | Event::Preliminary(..) => {}
            }
        }
    }

    /// Sends QUIT and closes. Errors do not matter any more and are dropped.
    pub async fn quit(mut self) {
        if self.failed.is_none() {
            let _ = time::timeout(QUIT_LIMIT, self.call(&Command::Quit)).await;
        }
    }

    /// The server, for messages.
    pub fn peer(&self) -> Arc<str> {
        Arc::clone(&self.peer)
    }

    /// Moves the interpreter's outputs to where they belong; the greeting is handed back.
    fn take_outputs(&mut self) -> Result<Option<Reply>, ControlError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let mut greeting = None;
        while let Some(output) = self.pi.poll_output() {
            match output {
                Output::Send(bytes) => match &mut self.protection {
                    None => self.unsent.extend_from_slice(&bytes),
                    Some(protected) => {
                        let sealed = protected.seal(&bytes, &mut self.unsent);
                        sealed.map_err(|error| self.unprotected(error))?;
                    }
                },
                Output::Greeting(reply) => {
                    self.log_reply(&reply);
                    greeting = Some(reply);
                }
                Output::Preliminary(id, reply) => {
                    self.log_reply(&reply);
                    self.events.push_back(Event::Preliminary(id, reply));
                }
                Output::Final(id, reply) => {
                    self.log_reply(&reply);
                    self.events.push_back(Event::Final(id, reply));
                }
                Output::Failed(error) => {
                    return Err(self.fail(ControlError::Dialogue {
                        peer: self.peer(),
                        error,
                    }));
                }
            }
        }
        Ok(greeting)
    }

    /// Waits until bytes have moved in either direction or a timer of the interpreter expires.
    async fn exchange(&mut self) -> Result<(), ControlError> {
        let interest = if self.unsent.is_empty() {
            Interest::READABLE
        } else {
            Interest::READABLE | Interest::WRITABLE
        };
        let ready = match self.pi.poll_timeout() {
            None => self.stream.ready(interest).await,
            Some(at) => match time::timeout_at(at.into(), self.stream.ready(interest)).await {
                Ok(ready) => ready,
                Err(_) => {
                    self.pi.handle_input(Instant::now(), Input::Timeout);
                    return Ok(());
                }
            },
        };
        let ready = ready.map_err(|e| self.broke(e))?;
        if ready.is_writable() {
            self.write_what_fits()?;
        }
        if ready.is_readable() {
            self.read_what_came()?;
        }
        Ok(())
    }

    fn read_what_came(&mut self) -> Result<(), ControlError> {
        let mut buffer = [0; READ_BYTES];
        match self.stream.try_read(&mut buffer) {
            Ok(0) => self.pi.handle_input(Instant::now(), Input::Closed),
            Ok(n) => {
                let bytes = &buffer[..n];
                let Some(protected) = &mut self.protection else {
                    self.pi.handle_input(Instant::now(), Input::Bytes(bytes));
                    return Ok(());
                };
                let mut clear = Vec::new();
                let opened = protected.open(bytes, &mut clear);
                self.pi.handle_input(Instant::now(), Input::Bytes(&clear));
                opened.map_err(|error| self.unprotected(error))?;
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            Err(e) => return Err(self.broke(e)),
        }
        Ok(())
    }

    /// Writes without waiting. A write error is not returned here while bytes may still be read:
    /// the server's last words (a 421) say more than "broken pipe".
    fn write_what_fits(&mut self) -> Result<(), ControlError> {
        while !self.unsent.is_empty() {
            match self.stream.try_write(&self.unsent) {
                Ok(n) => {
                    self.unsent.drain(..n);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {
                    self.unsent.clear();
                    break;
                }
                Err(e) => return Err(self.broke(e)),
            }
        }
        Ok(())
    }

    fn broke(&mut self, error: io::Error) -> ControlError {
        self.fail(ControlError::Io {
            peer: self.peer(),
            error: Arc::new(error),
        })
    }

    fn unprotected(&mut self, error: ProtectionError) -> ControlError {
        self.fail(ControlError::Protection {
            peer: self.peer(),
            error,
        })
    }

    fn fail(&mut self, error: ControlError) -> ControlError {
        self.failed = Some(error.clone());
        error
    }

    fn log_reply(&self, reply: &Reply) {
        if self.log.is_none() {
            return;
        }
        let text = reply.text();
        // Tokens are no secrets, but no reader understands them.
        let text = match text.split_at_checked("ADAT=".len()) {
            Some((label, token)) if label.eq_ignore_ascii_case("ADAT=") => {
                format!("{label}*** ({} characters)", token.len())
            }
            _ => text,
        };
        self.log_line(false, &format!("{} {text}", reply.code));
    }

    fn log_line(&self, sent: bool, text: &str) {
        if let Some(log) = &self.log {
            log(sent, text);
        }
    }
}

fn no_answer(limit: Duration) -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        format!("no answer within {} s", limit.as_secs()),
    )
}
