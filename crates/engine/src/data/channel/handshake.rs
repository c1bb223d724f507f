//! The handshake of a secured connection, in slices.
//!
//! ```text
//!   flush ──► established? ──► done
//!     ▲            │ no
//!     └── step of the machine ◄── one read
//! ```
//! A step may take some milliseconds of a processor (a signature with RSA). A mover makes some,
//! then gives all channels that carry data their turn, then continues: many handshakes at once take
//! long, but stall no transfer.

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

/// As a rule a peer that refuses us sends an alert first.
const CLOSED: &str =
    "the peer closed the connection in the handshake: it may not accept who we are";

/// Which end sends first.
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
    /// The peer has sent something.
    received: bool,
}

/// What a step came to.
pub(crate) enum HandshakeStep {
    /// Until the kernel reports an event.
    Wait,
    /// There may be more to do at once.
    Again,
    /// The peer is authenticated, and our last message has left. Holds the keys that seal and open
    /// the bytes that follow, and the bytes that were read behind the handshake.
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
            received: false,
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
        self.receive(connection, &buffer[..count])?;
        Ok(HandshakeStep::Again)
    }

    /// The time is up.
    pub(crate) fn late(&self, connection: &Connection) -> HandshakeError {
        self.left(connection, "the handshake was not over in time")
    }

    fn is_expected(&self) -> bool {
        self.received || self.role == Role::Initiator
    }

    fn receive(&mut self, connection: &mut Connection, bytes: &[u8]) -> Result<(), HandshakeError> {
        self.received = true;
        let Some(machine) = &mut self.machine else {
            return Ok(());
        };
        let outcome = machine.handle_input(bytes);
        self.take_output();
        outcome.map_err(|error| failed(connection, &error.to_string()))
    }

    /// Sends the peer an alert that it is refused. Call it once our reason is recorded: the peer
    /// may then close its other connections, and their ends must not count as the reason. The alert
    /// helps the peer's user; whether it arrives changes nothing.
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

    /// The connection is of no use, and neither end has refused the other.
    fn left(&self, connection: &Connection, why: &str) -> HandshakeError {
        match self.is_expected() {
            true => {
                HandshakeError::Failed(TransferFailure::ConnectionLost(with_peer(connection, why)))
            }
            false => HandshakeError::Silent,
        }
    }
}

fn failed(connection: &Connection, why: &str) -> HandshakeError {
    HandshakeError::Failed(TransferFailure::NotAuthenticated(with_peer(
        connection, why,
    )))
}

fn with_peer(connection: &Connection, why: &str) -> String {
    format!("{}: {why}", connection.peer())
}
