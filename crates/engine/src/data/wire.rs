//! A data connection as its channel reads and writes it: a socket and, where octets are protected (PROT S, E, P), the TLS
//! between the two.

use std::io::{self, Read, Write};

use godwit_gsi::{
    Wrap,
    wrap::{ReadOutcome, WrapError},
};
use godwit_proto::error::TransferFailure;

use super::{carry::Carry, channel::Flow};
use crate::storage::text_of;

/// Octets that are sealed at a time, headers not counted: four records. They wait in a buffer of the channel for the socket.
pub(super) const SEALED_OCTETS: usize = 64 * 1024;

/// Most octets that are read ahead at a time. As many may be carried by a channel.
pub(super) const AHEAD_OCTETS: usize = 64 * 1024;

/// Clear octets of one record at most (RFC 8446 §5.1).
const RECORD_OCTETS: usize = 16 * 1024;

/// A connection and what is known of its readiness (edge-triggered: true until the kernel says "would block").
pub(super) struct Wire {
    pub(super) stream: mio::net::TcpStream,
    pub(super) readable: bool,
    pub(super) writable: bool,
    /// The peer has closed its direction: a short read may hide the end, read on.
    pub(super) read_closed: bool,
    /// Read ahead of the present block or transfer.
    pub(super) carry: Carry,
    seal: Option<Box<Seal>>,
}

struct Seal {
    wrap: Wrap,
    /// Sealed, and on its way to the socket.
    sealed: Vec<u8>,
    /// Octets of `sealed` that the kernel has.
    sent: usize,
    /// The peer has said that it sends no more.
    ended: bool,
    goodbye: Goodbye,
}

/// The word that we send no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goodbye {
    /// The peer expects none.
    None,
    Due,
    Said,
}

impl Wire {
    /// Ready until proven otherwise: edges from before the registration are never seen.
    pub(super) fn new(stream: mio::net::TcpStream) -> Self {
        Self {
            stream,
            readable: true,
            writable: true,
            read_closed: false,
            carry: Carry::default(),
            seal: None,
        }
    }

    /// The peer's address, for messages.
    pub(super) fn peer(&self) -> String {
        (self.stream.peer_addr()).map_or_else(|_| "peer".to_owned(), |peer| peer.to_string())
    }

    /// What a failed read or write of the socket comes to.
    pub(super) fn lost(&self, error: &io::Error) -> Flow {
        self.broken(&text_of(error))
    }

    fn broken(&self, why: &str) -> Flow {
        Flow::Failed(TransferFailure::ConnectionLost(format!(
            "{}: {why}",
            self.peer()
        )))
    }

    /// Carries what the socket has, `most` octets of it or as many as there are. Octets read, of which none is carried as yet
    /// where they are sealed and no record is whole; `Some(0)`: the peer sends no more; `None`: nothing is there now.
    pub(super) fn read_ahead(
        &mut self,
        scratch: &mut [u8],
        most: usize,
    ) -> Result<Option<usize>, Flow> {
        if self.seal.as_ref().is_some_and(|seal| seal.ended) {
            return Ok(Some(0));
        }
        let most = most.min(AHEAD_OCTETS).min(scratch.len());
        let Some(count) = self.read(&mut scratch[..most])? else {
            return Ok(None);
        };
        self.take_in(&scratch[..count])?;
        Ok(Some(count))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, Flow> {
        while self.readable {
            match self.stream.read(buffer) {
                Ok(count) => {
                    // A short read has emptied the socket, unless the peer's close hides behind it.
                    self.readable = count == buffer.len() || self.read_closed;
                    return Ok(Some(count));
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.readable = false,
                Err(e) => return Err(self.lost(&e)),
            }
        }
        Ok(None)
    }

    /// Carries octets from the socket.
    fn take_in(&mut self, octets: &[u8]) -> Result<(), Flow> {
        let Some(seal) = &mut self.seal else {
            self.carry.put(octets);
            return Ok(());
        };
        seal.wrap.feed(octets);
        loop {
            match seal.wrap.read(self.carry.room(RECORD_OCTETS)) {
                Ok(ReadOutcome::Octets(count)) => self.carry.filled(count),
                Ok(ReadOutcome::Starved) => return Ok(()),
                Ok(ReadOutcome::Closed) => {
                    seal.ended = true;
                    return Ok(());
                }
                Err(error) => return Err(self.broken(&error.to_string())),
            }
        }
    }

    /// The handshake is over, and `rest` was read behind it. With `wrap`, what is written from now on is sealed and what is read
    /// is opened; `goodbye`: [`Self::say_goodbye`] says something.
    pub(super) fn begin(
        &mut self,
        wrap: Option<Wrap>,
        goodbye: bool,
        rest: &[u8],
    ) -> Result<(), Flow> {
        self.seal = wrap.map(|wrap| {
            Box::new(Seal {
                wrap,
                sealed: Vec::new(),
                sent: 0,
                ended: false,
                goodbye: match goodbye {
                    true => Goodbye::Due,
                    false => Goodbye::None,
                },
            })
        });
        self.take_in(rest)
    }

    pub(super) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// The kernel has all that was sealed.
    pub(super) fn is_flushed(&self) -> bool {
        (self.seal.as_ref()).is_none_or(|seal| seal.sent == seal.sealed.len())
    }

    /// Seals all of `parts`, in order, and hands the kernel what it takes. Only where all before is flushed.
    pub(super) fn write_sealed(&mut self, parts: [&[u8]; 3]) -> Result<(), Flow> {
        if let Some(seal) = &mut self.seal
            && let Err(error) = seal.fill(parts)
        {
            return Err(self.broken(&error.to_string()));
        }
        self.flush().map(drop)
    }

    /// Seals the word that nothing follows, once, where the peer waits for it, and hands the kernel what it takes. Only where all
    /// before is flushed.
    pub(super) fn say_goodbye(&mut self) -> Result<(), Flow> {
        if let Some(seal) = &mut self.seal
            && seal.goodbye == Goodbye::Due
        {
            seal.goodbye = Goodbye::Said;
            seal.sealed.clear();
            seal.sent = 0;
            seal.wrap.close(&mut seal.sealed);
        }
        self.flush().map(drop)
    }

    /// The peer may still say something that is not for us to read: servers of FTP send tickets behind the handshake. Octets that
    /// nobody has read when a connection is closed reset it, and what was sent last may be lost with that.
    pub(super) fn may_hear_more(&self) -> bool {
        (self.seal.as_ref()).is_some_and(|seal| seal.goodbye == Goodbye::Said)
    }

    /// Reads some of what there is and keeps nothing of it: octets read, 0 at the end, `None` when nothing is there now.
    pub(super) fn discard(&mut self, scratch: &mut [u8]) -> Result<Option<usize>, Flow> {
        self.read(scratch)
    }

    /// Hands the kernel what it takes of what is sealed; octets taken, 0 where it takes none now.
    pub(super) fn flush(&mut self) -> Result<u64, Flow> {
        let mut taken = 0;
        while let Some(seal) = &mut self.seal
            && seal.sent < seal.sealed.len()
        {
            match self.stream.write(&seal.sealed[seal.sent..]) {
                Ok(count) => {
                    seal.sent += count;
                    taken += count as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    break;
                }
                Err(e) => return Err(self.lost(&e)),
            }
        }
        Ok(taken)
    }

    /// Nothing moves for a while: gives memory back. All that was sealed is flushed.
    pub(super) fn rest(&mut self) {
        self.carry.release();
        if let Some(seal) = &mut self.seal {
            seal.sealed = Vec::new();
            seal.sent = 0;
        }
    }
}

impl Seal {
    fn fill(&mut self, parts: [&[u8]; 3]) -> Result<(), WrapError> {
        self.sealed.clear();
        self.sent = 0;
        for part in parts {
            self.wrap.seal(part, &mut self.sealed)?;
        }
        Ok(())
    }
}
