//! The sending half of a channel: block by block from the work queue to the socket.

use std::{
    io::{self, IoSlice, Write},
    net::Shutdown,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::LazyLock,
};

use godwit_gsi::Outgoing;
use godwit_proto::{
    command::Mode,
    mode_e::{BlockHeader, HEADER_BYTES, sender::AfterEod},
};
use rustix::{
    fs::{MemfdFlags, ftruncate, memfd_create},
    net::SendFlags,
};

use crate::{
    data::{
        channel::{connection::Connection, turn::TurnResult},
        transfer::{holes::Block, shared::TransferHandle, source_or_sink::SourceOrSink},
    },
    host::tcp_diag::AddressPair,
    storage::{FastPath, Pages, PreloadedFile},
};

/// Bytes read from storage at a time where they must pass through user space. One such buffer a
/// channel.
const COPY_BYTES: usize = 256 * 1024;

/// Where they pass the page cache by, too: each call waits for the device.
const DIRECT_BYTES: usize = 1 << 20;

/// Longest block that is read and then leaves in one call with its header and, where it is the
/// last, with the EOD.
const SMALL_BYTES: u64 = PreloadedFile::BYTES_MAX;

/// What a source of zeros sends at a time.
const ZEROS_BYTES: usize = 1 << 20;

pub(crate) struct Sending {
    pub(crate) handle: TransferHandle,
    stripe: usize,
    /// Of its connection.
    addresses: Option<AddressPair>,
    /// Position in the file and bytes left of the present block.
    at: u64,
    left: u64,
    /// Bytes of the blocks that it has taken.
    taken: u64,
    /// Bytes that passed through user space and wait for the socket.
    buffer: Pages,
    buffer_sent: usize,
    /// The channel's last header, where it leaves with the payload before it.
    tail: [u8; HEADER_BYTES],
    /// Bytes of `tail` already written; `HEADER_BYTES` when none is due.
    tail_sent: usize,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Blocks,
    /// The last header has left, waits with others on the wire, or is in `tail`.
    LastHeader(AfterEod),
}

impl Sending {
    pub(crate) fn new(
        handle: TransferHandle,
        stripe: usize,
        addresses: Option<AddressPair>,
    ) -> Self {
        Self {
            handle,
            stripe,
            addresses,
            at: 0,
            left: 0,
            taken: 0,
            buffer: Pages::default(),
            buffer_sent: 0,
            tail: [0; HEADER_BYTES],
            tail_sent: HEADER_BYTES,
            phase: Phase::Blocks,
        }
    }

    /// Bytes of the transfer that are its own.
    pub(crate) fn taken(&self) -> u64 {
        self.taken
    }

    /// Writes until the socket is full, the budget of bytes (at least 1) is used up, or there is no
    /// more.
    pub(crate) fn turn(&mut self, connection: &mut Connection, budget: &mut u64) -> TurnResult {
        loop {
            if self.handle.is_finished_hint() {
                // Aborted or failed elsewhere: the order to close is on its way.
                return TurnResult::Wait;
            }
            if self.left == 0
                && self.buffer_is_empty()
                && self.tail_sent == HEADER_BYTES
                && connection.is_flushed()
                && !self.must_write_headers(connection)
            {
                if let Phase::LastHeader(after) = self.phase {
                    return self.ended(connection, after);
                }
                match self.next_block(connection) {
                    Ok(true) => {}
                    Ok(false) => match self.no_more(connection) {
                        None => continue,
                        Some(flow) => return flow,
                    },
                    Err(flow) => return flow,
                }
            }
            if connection.is_flushed() && self.waits_for_file() {
                if !self.owes_progress() {
                    self.handle.touch();
                }
                return TurnResult::wait_for_file();
            }
            match self.write_some(connection, *budget) {
                Ok(0) => return TurnResult::Wait,
                Ok(n) => {
                    *budget = budget.saturating_sub(n);
                    if *budget == 0 {
                        return TurnResult::Again;
                    }
                }
                Err(flow) => return flow,
            }
        }
    }

    /// Before anything else is done. Others may wait for what follows them.
    fn must_write_headers(&self, connection: &Connection) -> bool {
        match self.phase {
            Phase::LastHeader(AfterEod::Close) => !connection.headers.is_empty(),
            Phase::Blocks | Phase::LastHeader(AfterEod::Keep) => connection.headers.is_full(),
        }
    }

    /// What is to be sent next is not in the file yet.
    fn waits_for_file(&self) -> bool {
        match self.handle.source_or_sink() {
            SourceOrSink::SendFile { file, .. } => {
                self.left > 0 && self.buffer_is_empty() && file.readable_at(self.at) == 0
            }
            _ => false,
        }
    }

    /// The peer takes too little for the file to be filled: it is to blame for a wait.
    fn owes_progress(&self) -> bool {
        match self.handle.source_or_sink() {
            SourceOrSink::SendFile { file, .. } => file.waits_for_reader(),
            _ => false,
        }
    }

    fn buffer_is_empty(&self) -> bool {
        self.buffer_sent == self.buffer.len()
    }

    /// What lies in memory of the block and waits for the socket: what was read of it, or all that
    /// is left where the whole file does.
    fn at_hand(&self) -> &[u8] {
        if !self.buffer_is_empty() {
            return &self.buffer[self.buffer_sent..];
        }
        let SourceOrSink::SendFile { file, .. } = self.handle.source_or_sink() else {
            return &[];
        };
        let left = usize::try_from(self.left).unwrap_or(usize::MAX);
        let behind = file.in_memory(self.at).unwrap_or_default();
        behind.get(..left).unwrap_or_default()
    }

    /// Takes the next block from the transfer; false when there is none left or this channel may
    /// retire.
    fn next_block(&mut self, connection: &mut Connection) -> Result<bool, TurnResult> {
        if self.handle.mode == Mode::Stream && connection.is_sealed_by_kernel() {
            // What it kept back would be lost with the end of the connection, and a file cut short
            // pass for whole.
            return Err(connection
                .broken("it has carried blocks, and cannot end with a stream: open another"));
        }
        if self.handle.mode == Mode::ExtendedBlock
            && let Some(last) = self.handle.retire(self.stripe, self.addresses, false)
        {
            self.last_header(connection, last, AfterEod::Close);
            return Ok(true);
        }
        match self.handle.source_or_sink() {
            SourceOrSink::SendFile { file, base, queues } => {
                let queue = &queues[self.stripe.min(queues.len() - 1)];
                let channels = self.handle.channels_expected();
                let most = || connection.unsent_limit.adapt(&connection.stream, channels);
                let Some(block) = queue.next_block(channels, most) else {
                    return Ok(false);
                };
                let block = match block {
                    Block::Data(block) => block,
                    Block::Hole(hole) => {
                        (connection.headers).push(BlockHeader::hole(hole.start, hole.len()));
                        self.handle.hole_passed(hole.len());
                        return Ok(true);
                    }
                };
                let Some(at) = base.checked_add(block.start) else {
                    return Ok(false);
                };
                self.at = at;
                self.left = block.len();
                let small = block.len() <= SMALL_BYTES && self.handle.mode == Mode::ExtendedBlock;
                let last = small && queue.is_exhausted();
                let spared = matches!(file.fast_path(), FastPath::Descriptor(_) | FastPath::Zeros);
                // A stream's end would be lost with what the kernel may keep back.
                if spared && !small && self.handle.mode == Mode::ExtendedBlock {
                    connection.let_kernel_seal();
                }
                self.open_block(connection, block.start, block.len());
                if small && !self.waits_for_file() {
                    self.gather(last)?;
                }
            }
            SourceOrSink::SendStream(stream) => {
                let offset = stream
                    .next_block(&mut self.buffer, COPY_BYTES)
                    .map_err(|e| TurnResult::Failed(e.into()))?;
                self.buffer_sent = 0;
                let Some(offset) = offset else {
                    return Ok(false);
                };
                self.open_block(connection, offset, self.buffer.len() as u64);
            }
            SourceOrSink::Unopened
            | SourceOrSink::ReceiveFile { .. }
            | SourceOrSink::ReceiveStream(_) => {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads a small block whole, and finds out what follows it where it is the `last`.
    fn gather(&mut self, last: bool) -> Result<(), TurnResult> {
        let SourceOrSink::SendFile { file, .. } = self.handle.source_or_sink() else {
            return Ok(());
        };
        if let FastPath::Zeros | FastPath::Discard = file.fast_path() {
            return Ok(());
        }
        let in_memory = !self.at_hand().is_empty();
        if !in_memory {
            self.fill_buffer()?;
        }
        // A storage may give less than was asked for: then the rest follows as of any block.
        if last
            && (in_memory || self.left == 0)
            && let Some(header) = self.handle.sender_ends(self.stripe, AfterEod::Keep)
        {
            self.tail = header.encode();
            self.tail_sent = 0;
            self.phase = Phase::LastHeader(AfterEod::Keep);
        }
        Ok(())
    }

    fn open_block(&mut self, connection: &mut Connection, offset: u64, bytes: u64) {
        self.taken += bytes;
        if self.handle.mode == Mode::ExtendedBlock {
            connection.headers.push(BlockHeader::data(offset, bytes));
        }
    }

    fn last_header(&mut self, connection: &mut Connection, header: BlockHeader, after: AfterEod) {
        connection.headers.push(header);
        self.phase = Phase::LastHeader(after);
    }

    /// Nothing is left to send. `None`: a last header is due.
    fn no_more(&mut self, connection: &mut Connection) -> Option<TurnResult> {
        match self.handle.mode {
            Mode::ExtendedBlock => {
                let handle = &self.handle;
                if let Some(last) = handle.retire(self.stripe, self.addresses, true) {
                    self.last_header(connection, last, AfterEod::Close);
                } else if let Some(last) = handle.sender_ends(self.stripe, AfterEod::Keep) {
                    self.last_header(connection, last, AfterEod::Keep);
                } else {
                    return Some(TurnResult::Wait);
                }
                None
            }
            Mode::Stream => {
                if let Err(lost) = connection.send_close_notify() {
                    return Some(lost);
                }
                if !connection.is_flushed() {
                    return Some(TurnResult::Wait);
                }
                // Close is the end of the file; what the kernel still holds is sent after it.
                if let Err(e) = connection.stream.shutdown(Shutdown::Write) {
                    return Some(connection.lost(&e));
                }
                self.handle.succeed();
                Some(match connection.may_receive_more() {
                    true => TurnResult::Leave,
                    false => TurnResult::Close,
                })
            }
        }
    }

    fn ended(&self, connection: &Connection, after: AfterEod) -> TurnResult {
        self.handle.sender_ended();
        match after {
            AfterEod::Keep => TurnResult::Park,
            // The peer closes once it has all.
            AfterEod::Close if connection.is_sealed_by_kernel() => TurnResult::Leave,
            AfterEod::Close => TurnResult::Close,
        }
    }

    /// One write of at most `budget` bytes of payload; bytes written, headers included, 0 when the
    /// socket is full.
    fn write_some(&mut self, connection: &mut Connection, budget: u64) -> Result<u64, TurnResult> {
        let most = usize::try_from(budget).unwrap_or(usize::MAX);
        if connection.seals_here() {
            return self.write_sealed(connection, most);
        }
        if !connection.may_write()? {
            return Ok(0);
        }
        let headers = connection.headers.unsent();
        let due = headers.len();
        let file = match self.handle.source_or_sink() {
            SourceOrSink::SendFile { file, .. } => Some(file),
            _ => None,
        };
        let path = file.map_or(FastPath::Copy, |f| f.fast_path());
        // Zeros are sent over and over from one place.
        let (path, at, most_left) = match path {
            FastPath::Zeros => (
                zeros().map_or(FastPath::Copy, FastPath::Descriptor),
                0,
                ZEROS_BYTES,
            ),
            path => (path, self.at, usize::MAX),
        };
        let rest = self.at_hand();
        let outcome = match path {
            _ if !rest.is_empty() || self.tail_sent < HEADER_BYTES => {
                let payload = &rest[..rest.len().min(most)];
                // Behind the whole payload only.
                let tail = match payload.len() == rest.len() {
                    true => &self.tail[self.tail_sent..],
                    false => &[],
                };
                let parts = [
                    IoSlice::new(headers),
                    IoSlice::new(payload),
                    IoSlice::new(tail),
                ];
                connection.stream.write_vectored(&parts).map(|n| {
                    let of_headers = n.min(due);
                    let of_payload = (n - of_headers).min(parts[1].len());
                    (of_headers, of_payload, n - of_headers - of_payload)
                })
            }
            _ if self.left == 0 => connection.stream.write(headers).map(|n| (n, 0, 0)),
            FastPath::Descriptor(_) if !headers.is_empty() => {
                // MSG_MORE: headers travel in one segment with what sendfile puts behind them.
                let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
                rustix::net::send(&connection.stream, headers, flags)
                    .map(|n| (n, 0, 0))
                    .map_err(Into::into)
            }
            FastPath::Descriptor(fd) => {
                let mut at = at;
                let left = usize::try_from(self.left).unwrap_or(usize::MAX);
                let count = left.min(most_left).min(most);
                match rustix::fs::sendfile(connection.stream.as_fd(), fd, Some(&mut at), count) {
                    Ok(0) => return Err(self.file_is_shorter()),
                    Ok(n) => Ok((0, n, 0)),
                    Err(rustix::io::Errno::IO) => {
                        return Err(TurnResult::Failed(
                            crate::storage::failure("read the file", &rustix::io::Errno::IO.into())
                                .into(),
                        ));
                    }
                    Err(e) => Err(e.into()),
                }
            }
            FastPath::Copy | FastPath::Direct | FastPath::Zeros | FastPath::Discard => {
                self.fill_buffer()?;
                return self.write_some(connection, budget);
            }
        };
        match outcome {
            Ok((of_headers, of_payload, of_tail)) => {
                connection.headers.sent(of_headers);
                self.payload_sent(of_payload);
                self.tail_sent += of_tail;
                connection.took(of_headers + of_payload + of_tail);
                Ok((of_headers + of_payload + of_tail) as u64)
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                connection.writable = false;
                Ok(0)
            }
            Err(e) if e.kind() == io::ErrorKind::Interrupted => Ok(1),
            Err(e) => Err(connection.lost(&e)),
        }
    }

    /// As [`Self::write_some`], through user space: what is due is sealed at once, and counts then.
    fn write_sealed(
        &mut self,
        connection: &mut Connection,
        most: usize,
    ) -> Result<u64, TurnResult> {
        if !connection.is_flushed() {
            // It was counted when it was sealed.
            let taken = connection.flush()?;
            self.handle.touch();
            return Ok(taken.min(1));
        }
        let due = connection.headers.unsent().len();
        let Some(outgoing) = connection.outgoing() else {
            return Ok(0);
        };
        let of_payload = self.put_payload(outgoing, most)?;
        // Behind the whole payload only.
        let of_tail = match of_payload == self.at_hand().len() {
            true => outgoing.put(&self.tail[self.tail_sent..]),
            false => 0,
        };
        connection.write_sealed()?;
        self.payload_sent(of_payload);
        self.tail_sent += of_tail;
        Ok((due + of_payload + of_tail) as u64)
    }

    /// Puts `most` bytes of the block there, or as many as there is room for: with the headers they
    /// fill their records. How many.
    fn put_payload(&mut self, outgoing: &mut Outgoing, most: usize) -> Result<usize, TurnResult> {
        let most = most.min(outgoing.room());
        if self.at_hand().is_empty()
            && self.left > 0
            && let SourceOrSink::SendFile { file, .. } = self.handle.source_or_sink()
        {
            if !matches!(file.fast_path(), FastPath::Direct) {
                let left = usize::try_from(self.left).unwrap_or(usize::MAX);
                let got = file
                    .read_vectored_at(self.at, &mut outgoing.places(left.min(most)))
                    .map_err(|e| TurnResult::Failed(e.into()))?;
                if got == 0 {
                    return Err(self.file_is_shorter());
                }
                outgoing.came(got);
                return Ok(got);
            }
            self.fill_buffer()?;
        }
        let rest = self.at_hand();
        Ok(outgoing.put(&rest[..rest.len().min(most)]))
    }

    fn payload_sent(&mut self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        if self.buffer_is_empty() {
            self.at += bytes as u64;
            self.left -= bytes as u64;
        } else {
            self.buffer_sent += bytes;
        }
        self.handle.moved(bytes as u64);
    }

    /// Reads the next part of the block through user space.
    fn fill_buffer(&mut self) -> Result<(), TurnResult> {
        let SourceOrSink::SendFile { file, .. } = self.handle.source_or_sink() else {
            return Ok(());
        };
        let most = match file.fast_path() {
            FastPath::Direct => DIRECT_BYTES,
            _ => COPY_BYTES,
        };
        let want = usize::try_from(self.left).unwrap_or(usize::MAX).min(most);
        self.buffer.resize(want);
        let got = file
            .read_at(self.at, &mut self.buffer)
            .map_err(|e| TurnResult::Failed(e.into()))?;
        if got == 0 {
            return Err(self.file_is_shorter());
        }
        self.buffer.truncate(got);
        self.buffer_sent = 0;
        self.at += got as u64;
        self.left -= got as u64;
        Ok(())
    }

    fn file_is_shorter(&self) -> TurnResult {
        let why = format!(
            "the file ends at {} while {} more bytes were announced",
            self.at, self.left
        );
        TurnResult::Failed(
            crate::storage::failure(
                "read the file",
                &io::Error::new(io::ErrorKind::UnexpectedEof, why),
            )
            .into(),
        )
    }
}

/// A file of [`ZEROS_BYTES`] zeros that takes no memory: the kernel reads its hole from one page.
/// `None` where the system gives none.
fn zeros() -> Option<BorrowedFd<'static>> {
    static ZEROS: LazyLock<Option<OwnedFd>> = LazyLock::new(|| {
        let file = memfd_create("zeros", MemfdFlags::CLOEXEC).ok()?;
        ftruncate(&file, ZEROS_BYTES as u64).ok()?;
        Some(file)
    });
    ZEROS.as_ref().map(AsFd::as_fd)
}
