//! The handshake of a guarded connection, in slices.
//!
//! ```text
//!   flush ──► established? ──► done
//!     ▲            │ no
//!     └── step of the machine ◄── one read
//! ```
//! A step may take some milliseconds of a processor (a signature with RSA). A mover makes some,
//! then all channels that carry data get their turn, then it goes on: many handshakes at once take
//! their time and stall nobody.

use std::io::{self, Read, Write};

use godwit_gsi::Wrap;
use godwit_proto::error::TransferFailure;

use crate::{
    data::{
        channel::{connection::Connection, turn::HandshakeError},
        security::{ChannelSecurity, SecurityHandshake},
    },
    storage::text_of,
};

/// Bytes read in a step: a chain of certificates comes in one or two.
const READ_BYTES: usize = 16 * 1024;

/// A peer that refuses us says so in an alert, as a rule.
const CLOSED: &str =
    "the peer closed the connection in the handshake: it may not accept who we are";

/// Who speaks first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// We have connected: first.
    Initiator,
    /// The peer has.
    Acceptor,
}

pub(crate) struct Handshake {
    security: ChannelSecurity,
    role: Role,
    /// From the first step on.
    machine: Option<SecurityHandshake>,
    established: Option<(Wrap, Vec<u8>)>,
    unsent: Vec<u8>,
    /// The peer has said something.
    heard: bool,
}

/// What a step came to.
pub(crate) enum HandshakeStep {
    /// Until the kernel says more.
    Wait,
    /// There may be more to do at once.
    Again,
    /// The peer is known, and all that it must hear of this has left. What seals and opens the
    /// bytes that follow, and those that were read already.
    Done(Box<(Wrap, Vec<u8>)>),
}

impl Handshake {
    pub(crate) fn new(security: ChannelSecurity, role: Role) -> Self {
        Self {
            security,
            role,
            machine: None,
            established: None,
            unsent: Vec::new(),
            heard: false,
        }
    }

    pub(crate) fn step(
        &mut self,
        connection: &mut Connection,
        buffer: &mut [u8],
    ) -> Result<HandshakeStep, HandshakeError> {
        if !self.flush(connection)? {
            return Ok(HandshakeStep::Wait);
        }
        if let Some(established) = self.established.take() {
            return Ok(HandshakeStep::Done(Box::new(established)));
        }
        if self.machine.is_none() {
            let machine = self.security.begin(self.role == Role::Initiator);
            self.machine = Some(machine.map_err(|e| failed(connection, &e.to_string()))?);
            self.take_output();
            return Ok(HandshakeStep::Again);
        }
        let Some(count) = self.read(connection, buffer)? else {
            return Ok(HandshakeStep::Wait);
        };
        self.hear(connection, &buffer[..count])?;
        Ok(HandshakeStep::Again)
    }

    /// The time is up.
    pub(crate) fn late(&self, connection: &Connection) -> HandshakeError {
        self.left(connection, "the handshake was not over in time")
    }

    fn is_anybody(&self) -> bool {
        self.heard || self.role == Role::Initiator
    }

    fn hear(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<(), HandshakeError> {
        self.heard = true;
        let Some(machine) = &mut self.machine else {
            return Ok(());
        };
        let heard = machine.handle_input(bytes);
        self.take_output();
        heard.map_err(|error| failed(connection, &error.to_string()))
    }

    /// Tells the peer that it is refused. Only once our reason is recorded: the peer may then close
    /// its other connections, and what they end with is no reason. What an alert says helps the
    /// peer's user; whether it arrives changes nothing.
    pub(crate) fn send_alert(&mut self, connection: &mut Connection) {
        drop(self.flush(connection));
    }

    fn take_output(&mut self) {
        if let Some(machine) = &mut self.machine {
            while let Some(token) = machine.poll_output() {
                self.unsent.extend(token);
            }
            self.established = self.established.take().or_else(|| machine.outcome());
        }
    }

    /// True when the kernel has all.
    fn flush(&mut self, connection: &mut Connection) -> Result<bool, HandshakeError> {
        while !self.unsent.is_empty() {
            match connection.stream.write(&self.unsent) {
                Ok(count) => drop(self.unsent.drain(..count)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    connection.writable = false;
                    return Ok(false);
                }
                Err(e) => return Err(self.left(connection, &text_of(&e))),
            }
        }
        Ok(true)
    }

    /// Bytes read, `None` when there are none now.
    fn read(
        &self,
        connection: &mut Connection,
        buffer: &mut [u8],
    ) -> Result<Option<usize>, HandshakeError> {
        while connection.readable {
            match connection.stream.read(&mut buffer[..READ_BYTES]) {
                Ok(0) => return Err(self.left(connection, CLOSED)),
                Ok(count) => {
                    connection.readable = count == READ_BYTES || connection.read_closed;
                    return Ok(Some(count));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => connection.readable = false,
                Err(e) => return Err(self.left(connection, &text_of(&e))),
            }
        }
        Ok(None)
    }

    /// The connection is of no use, and nobody has said anything against the other.
    fn left(&self, connection: &Connection, why: &str) -> HandshakeError {
        match self.is_anybody() {
            true => HandshakeError::Failed(TransferFailure::ConnectionLost(told(connection, why))),
            false => HandshakeError::Silent,
        }
    }
}

fn failed(connection: &Connection, why: &str) -> HandshakeError {
    HandshakeError::Failed(TransferFailure::NotAuthenticated(told(connection, why)))
}

fn told(connection: &Connection, why: &str) -> String {
    format!("{}: {why}", connection.peer())
}
