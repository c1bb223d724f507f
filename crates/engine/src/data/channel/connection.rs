//! A data connection as its channel reads and writes it: a socket and, where bytes are protected
//! (PROT S, E, P), the TLS between the two.

use std::io::{self, Read, Write};

use godwit_gsi::{Outgoing, Records};
use godwit_proto::error::TransferFailure;

use crate::{
    data::{
        channel::{
            kernel_tls::KernelTls, pending_headers::PendingHeaders, read_buffer::ReadBuffer,
            turn::TurnResult,
        },
        shaping::unsent_limit::UnsentLimit,
    },
    storage::text_of,
};

/// Most bytes that are read ahead at a time. As many may be carried by a channel.
pub(crate) const AHEAD_BYTES: usize = 64 * 1024;

/// A connection and what is known of its readiness (edge-triggered: true until the kernel says
/// "would block").
pub(crate) struct Connection {
    pub(crate) stream: mio::net::TcpStream,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
    /// The peer has closed its direction: a short read may hide the end, read on.
    pub(crate) read_closed: bool,
    /// Read ahead of the present block or transfer.
    pub(crate) read_buffer: ReadBuffer,
    pub(crate) unsent_limit: UnsentLimit,
    /// To be sent before anything else.
    pub(crate) headers: PendingHeaders,
    seal: Option<Box<TlsState>>,
}

struct TlsState {
    records: Records,
    /// To be sealed, or on its way to the socket.
    outgoing: Outgoing,
    sealer: Encryptor,
    /// The peer has sent its close_notify.
    ended: bool,
    close_notify: CloseNotify,
}

/// Which side of the system call seals outgoing bytes.
enum Encryptor {
    /// We do, and the kernel has not been asked.
    Unasked,
    /// We do.
    Ours,
    Kernel(KernelTls),
}

/// Our close_notify at the end of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CloseNotify {
    /// The peer does not expect it.
    NotExpected,
    Due,
    Sent,
}

impl Connection {
    /// Ready until proven otherwise: edges from before the registration are never seen.
    pub(crate) fn new(stream: mio::net::TcpStream) -> Self {
        Self {
            stream,
            readable: true,
            writable: true,
            read_closed: false,
            read_buffer: ReadBuffer::default(),
            unsent_limit: UnsentLimit::default(),
            headers: PendingHeaders::default(),
            seal: None,
        }
    }

    /// The peer's address, for messages.
    pub(crate) fn peer(&self) -> String {
        (self.stream.peer_addr()).map_or_else(|_| "peer".to_owned(), |peer| peer.to_string())
    }

    /// What a failed read or write of the socket comes to.
    pub(crate) fn lost(&self, error: &io::Error) -> TurnResult {
        self.broken(&text_of(error))
    }

    /// The connection is of no use any more.
    pub(crate) fn broken(&self, why: &str) -> TurnResult {
        TurnResult::Failed(TransferFailure::ConnectionLost(format!(
            "{}: {why}",
            self.peer()
        )))
    }

    /// Reads what the socket has, at most `most` bytes, into the read buffer. Returns the bytes
    /// read; where they are sealed and no record is whole yet, none of them can be taken.
    /// `Some(0)`: the peer sends no more; `None`: the socket is empty.
    pub(crate) fn read_ahead(
        &mut self,
        buffer: &mut [u8],
        most: usize,
    ) -> Result<Option<usize>, TurnResult> {
        if self.seal.as_ref().is_some_and(|seal| seal.ended) {
            return Ok(Some(0));
        }
        let most = most.min(AHEAD_BYTES);
        if self.seal.is_some() {
            return self.read_records(most);
        }
        let most = most.min(buffer.len());
        let Some(count) = self.read(&mut buffer[..most])? else {
            return Ok(None);
        };
        self.read_buffer.put(&buffer[..count]);
        Ok(Some(count))
    }

    /// Reads into what is carried, and opens it there.
    fn read_records(&mut self, most: usize) -> Result<Option<usize>, TurnResult> {
        let mut read_buffer = std::mem::take(&mut self.read_buffer);
        let read = self.read(read_buffer.spare(most));
        self.read_buffer = read_buffer;
        let Some(count) = read? else {
            return Ok(None);
        };
        self.read_buffer.filled(count);
        self.open_records()?;
        Ok(Some(count))
    }

    fn read(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, TurnResult> {
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

    fn open_records(&mut self) -> Result<(), TurnResult> {
        let Some(seal) = &mut self.seal else {
            return Ok(());
        };
        match seal.records.open(self.read_buffer.sealed()) {
            Ok(opened) => {
                self.read_buffer.opened(opened.clear, opened.taken);
                seal.ended = opened.is_closed;
                Ok(())
            }
            Err(error) => Err(self.broken(&error.to_string())),
        }
    }

    /// The handshake is over, and `rest` was read behind it. With `records`, what is written from
    /// now on is sealed and what is read is opened; `close_notify`: [`Self::send_close_notify`]
    /// sends one.
    pub(crate) fn begin(
        &mut self,
        records: Option<Records>,
        close_notify: bool,
        rest: &[u8],
    ) -> Result<(), TurnResult> {
        let Some(records) = records else {
            self.read_buffer.put(rest);
            return Ok(());
        };
        self.seal = Some({
            Box::new(TlsState {
                records,
                outgoing: Outgoing::default(),
                sealer: Encryptor::Unasked,
                ended: false,
                close_notify: match close_notify {
                    true => CloseNotify::Due,
                    false => CloseNotify::NotExpected,
                },
            })
        });
        self.read_buffer.spare(rest.len()).copy_from_slice(rest);
        self.read_buffer.filled(rest.len());
        self.open_records()
    }

    /// What comes is sealed.
    pub(crate) fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    /// What leaves is to be sealed here, and not by the kernel.
    pub(crate) fn seals_here(&self) -> bool {
        self.is_sealed() && !self.is_sealed_by_kernel()
    }

    /// What leaves is sealed by the kernel. It may keep a record back that its buffer had no room
    /// for, and forgets that when the connection is closed.
    pub(crate) fn is_sealed_by_kernel(&self) -> bool {
        (self.seal.as_ref()).is_some_and(|seal| matches!(seal.sealer, Encryptor::Kernel(_)))
    }

    /// Lets the kernel seal outgoing bytes from now on, where it can. Only where all before is
    /// flushed, and no close_notify is due at the end.
    pub(crate) fn let_kernel_seal(&mut self) {
        if let Some(seal) = &mut self.seal
            && let Encryptor::Unasked = seal.sealer
            && seal.close_notify == CloseNotify::NotExpected
        {
            let kernel = KernelTls::begin(&self.stream, &seal.records);
            seal.sealer = kernel.map_or(Encryptor::Ours, Encryptor::Kernel);
        }
    }

    /// Sees to it that what is written next may be sealed, where the kernel seals. False where the
    /// socket takes nothing now.
    pub(crate) fn may_write(&mut self) -> Result<bool, TurnResult> {
        let Some(seal) = &mut self.seal else {
            return Ok(true);
        };
        let Encryptor::Kernel(kernel) = &mut seal.sealer else {
            return Ok(true);
        };
        match kernel.renew_where_due(&self.stream, &mut seal.records) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                self.writable = false;
                Ok(false)
            }
            Err(e) => Err(self.lost(&e)),
        }
    }

    /// The kernel has taken `bytes` with one call.
    pub(crate) fn took(&mut self, bytes: usize) {
        if let Some(seal) = &mut self.seal
            && let Encryptor::Kernel(kernel) = &mut seal.sealer
        {
            kernel.took(bytes);
        }
    }

    /// The kernel has all that was sealed.
    pub(crate) fn is_flushed(&self) -> bool {
        (self.seal.as_ref()).is_none_or(|seal| seal.outgoing.is_sent())
    }

    /// Where payload is put that is to be sealed with the headers that are due, which are there
    /// already, and go with it in [`Self::write_sealed`]. Only where all before is flushed; `None`
    /// in clear.
    pub(crate) fn outgoing(&mut self) -> Option<&mut Outgoing> {
        let outgoing = &mut self.seal.as_mut()?.outgoing;
        // They are fewer than there is room for.
        let taken = outgoing.put(self.headers.unsent());
        self.headers.sent(taken);
        Some(outgoing)
    }

    /// Headers were put to be sealed with a payload that could not be had.
    fn holds_clear(&self) -> bool {
        (self.seal.as_ref()).is_some_and(|seal| !seal.outgoing.is_empty())
    }

    /// Seals the headers that are due, or all that was put behind them, and hands the kernel what
    /// it takes.
    pub(crate) fn write_sealed(&mut self) -> Result<(), TurnResult> {
        self.outgoing();
        if let Some(seal) = &mut self.seal
            && let Err(error) = seal.records.seal(&mut seal.outgoing)
        {
            return Err(self.broken(&error.to_string()));
        }
        self.flush().map(drop)
    }

    /// Hands the kernel what it takes of the headers that are due, though nothing follows them.
    pub(crate) fn write_headers(&mut self) -> Result<(), TurnResult> {
        self.flush()?;
        if !self.is_flushed() {
            return Ok(());
        }
        if self.seals_here() && (!self.headers.is_empty() || self.holds_clear()) {
            return self.write_sealed();
        }
        while !self.headers.is_empty() && self.may_write()? {
            match self.stream.write(self.headers.unsent()) {
                Ok(count) => {
                    self.headers.sent(count);
                    self.took(count);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.writable = false;
                    break;
                }
                Err(e) => return Err(self.lost(&e)),
            }
        }
        Ok(())
    }

    /// Headers, or what is sealed, wait for the kernel to take them.
    pub(crate) fn holds_back(&self) -> bool {
        !self.headers.is_empty() || !self.is_flushed()
    }

    /// Sends close_notify, once, where the peer waits for it. Only where all before is flushed; the
    /// kernel may take it later.
    pub(crate) fn send_close_notify(&mut self) -> Result<(), TurnResult> {
        if let Some(seal) = &mut self.seal
            && seal.close_notify == CloseNotify::Due
        {
            seal.close_notify = CloseNotify::Sent;
            seal.records.close(&mut seal.outgoing);
        }
        self.flush().map(drop)
    }

    /// The peer may still send records that the channel never reads: servers of FTP send tickets
    /// behind the handshake. A close with unread bytes resets the connection, and the peer may lose
    /// the bytes that were sent last.
    pub(crate) fn may_receive_more(&self) -> bool {
        (self.seal.as_ref()).is_some_and(|seal| seal.close_notify == CloseNotify::Sent)
    }

    /// Reads from the socket and keeps nothing: bytes read, 0 at the end, `None` when the socket is
    /// empty.
    pub(crate) fn discard(&mut self, buffer: &mut [u8]) -> Result<Option<usize>, TurnResult> {
        self.read(buffer)
    }

    /// Hands the kernel what it takes of what is sealed; bytes taken, 0 where it takes none now.
    pub(crate) fn flush(&mut self) -> Result<u64, TurnResult> {
        let mut taken = 0;
        while let Some(seal) = &mut self.seal
            && !seal.outgoing.is_sent()
        {
            match self.stream.write(seal.outgoing.unsent()) {
                Ok(count) => {
                    seal.outgoing.sent(count);
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

    /// Nothing moves for a while: gives memory back.
    pub(crate) fn rest(&mut self) {
        self.read_buffer.release();
        if let Some(seal) = &mut self.seal {
            seal.outgoing.release();
        }
    }
}
