//! The receiving half of a channel: headers to the accounting, payload to its place.
//!
//! Where a block begins that could be small, the channel reads all that the socket has into its
//! read buffer, and keeps the surplus for the blocks, and the transfers, that follow: many small
//! files cost one system call. Behind an EOD the next byte belongs to the next transfer. Payload of
//! larger blocks goes to its place without the read buffer, and the same call reads the header that
//! follows it. Protected bytes are all opened in the read buffer. For a file with direct I/O the
//! channel collects bytes in a write buffer.

use std::{
    io::{self, IoSliceMut, Read},
    thread,
    time::Duration,
};

use godwit_proto::{
    ByteRange,
    command::Mode,
    error::TransferFailure,
    mode_e::{
        BlockHeader, HEADER_BYTES,
        receiver::{ChannelEnd, ChannelPosition},
    },
};
use rustix::{io::Errno, net::RecvFlags};

use crate::{
    data::{
        channel::{
            connection::Connection,
            splice_pipe::{self, LazyPipe, SplicePipe, Spliced},
            turn::TurnResult,
            write_buffer::WriteBuffer,
        },
        transfer::{shared::TransferHandle, source_or_sink::SourceOrSink},
    },
    storage::{FastPath, FileRef},
};

/// Bytes after which a channel reports the safe range of a long block, so that markers never lag
/// far behind.
const REPORT_BYTES: u64 = 8 << 20;

/// Payload from which on a splice past user space, or direct I/O, pays.
const SPLICE_BYTES_MIN: usize = 64 << 10;

/// The end of a block that is not spliced: one read takes it together with the header behind it.
const BLOCK_TAIL: usize = 4 << 10;

/// Before a write that a device has refused (EIO) is tried again. The mover stands still meanwhile,
/// as it does in any write: a device that is gone must not hold it for long.
const WRITE_PAUSES: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(1),
    Duration::from_millis(10),
    Duration::from_millis(50),
];

/// What the channels of a mover share to receive.
pub(crate) struct Scratch {
    /// Bytes on their way through user space; none stay.
    pub(crate) buffer: Box<[u8]>,
    pub(crate) lazy_pipe: LazyPipe,
    /// Bytes that have come since the mover last waited.
    pub(crate) received: u64,
}

pub(crate) struct Receiving {
    pub(crate) handle: TransferHandle,
    position: ChannelPosition,
    header: [u8; HEADER_BYTES],
    header_have: usize,
    /// Wire offset of the next payload byte.
    offset: u64,
    /// Payload bytes left of the block; in MODE S of what is wanted, `u64::MAX` for all there is.
    left: u64,
    /// MODE S: what comes when `left` is 0 is not wanted.
    is_cut: bool,
    /// The part of the hole of the last header that is still to be cleared; wire offsets.
    hole: ByteRange,
    end: Option<ChannelEnd>,
    /// Received and not yet written.
    write_buffer: WriteBuffer,
    /// Written and not yet reported.
    unreported: ByteRange,
    /// The file takes what comes from a pipe, as far as is known.
    may_splice: bool,
}

/// Where payload goes from the socket.
#[derive(Clone, Copy)]
enum PayloadPath {
    Write,
    /// It belongs to this position in the file, and waits for more.
    Gather(u64),
    Discard,
}

impl Receiving {
    pub(crate) fn new(handle: TransferHandle, reused: bool) -> Self {
        let cut = handle.source_or_sink().cut();
        let (offset, left) = match (handle.mode, handle.source_or_sink()) {
            (Mode::ExtendedBlock, _) => (0, 0),
            (Mode::Stream, SourceOrSink::ReceiveFile { stream_start, .. }) => {
                (*stream_start, cut.unwrap_or(u64::MAX))
            }
            (Mode::Stream, _) => (0, cut.unwrap_or(u64::MAX)),
        };
        Self {
            is_cut: handle.mode == Mode::Stream && cut.is_some(),
            handle,
            position: if reused {
                ChannelPosition::Reused
            } else {
                ChannelPosition::Fresh
            },
            header: [0; HEADER_BYTES],
            header_have: 0,
            offset,
            left,
            hole: ByteRange { start: 0, end: 0 },
            end: None,
            write_buffer: WriteBuffer::default(),
            unreported: ByteRange {
                start: offset,
                end: offset,
            },
            may_splice: true,
        }
    }

    /// Nothing of the present transfer was read here.
    pub(crate) fn is_untouched(&self) -> bool {
        self.handle.mode == Mode::ExtendedBlock
            && self.header_have == 0
            && matches!(
                self.position,
                ChannelPosition::Fresh | ChannelPosition::Reused
            )
    }

    /// Reads until the socket is empty, the budget of bytes (at least 1) is used up, or this
    /// channel's part is done.
    pub(crate) fn turn(
        &mut self,
        connection: &mut Connection,
        scratch: &mut Scratch,
        budget: &mut u64,
    ) -> TurnResult {
        loop {
            if self.handle.is_finished_hint() {
                // Aborted, failed or complete on another channel: the mover will soon get the
                // command to close this one or to let it go idle.
                return TurnResult::Wait;
            }
            if self.is_cut && self.left == 0 {
                return self.stream_ended();
            }
            let step = if !self.hole.is_empty() {
                match self.clear() {
                    Ok(()) if self.hole.is_empty() => Ok(Some(0)),
                    Ok(()) => return TurnResult::Again,
                    Err(flow) => return flow,
                }
            } else if self.left > 0 {
                self.read_payload(connection, scratch, *budget)
            } else {
                self.read_header(connection, &mut scratch.buffer, *budget)
            };
            let n = match step {
                Ok(Some(n)) => n,
                Ok(None) => {
                    connection.readable = false;
                    return TurnResult::Wait;
                }
                Err(flow) => return flow,
            };
            if self.header_have == HEADER_BYTES
                && self.left == 0
                && let Err(flow) = self.handle_header()
            {
                return flow;
            }
            if self.left == 0
                && self.hole.is_empty()
                && let Some(end) = self.end
            {
                return self.ended(end);
            }
            *budget = budget.saturating_sub(n);
            if *budget == 0 {
                return TurnResult::Again;
            }
        }
    }

    /// Bytes of the header taken, `None` when the socket is empty. Of what follows about `ahead`
    /// bytes at most are carried.
    fn read_header(
        &mut self,
        connection: &mut Connection,
        buffer: &mut [u8],
        ahead: u64,
    ) -> Result<Option<u64>, TurnResult> {
        if connection.read_buffer.is_empty() {
            let most = usize::try_from(ahead).unwrap_or(usize::MAX);
            match connection.read_ahead(buffer, most.max(HEADER_BYTES))? {
                None => return Ok(None),
                Some(0) => return Err(self.closed_between_blocks()),
                Some(_) => {}
            }
        }
        let bytes = connection.read_buffer.take(HEADER_BYTES - self.header_have);
        let have = self.header_have + bytes.len();
        self.header[self.header_have..have].copy_from_slice(bytes);
        self.header_have = have;
        Ok(Some(bytes.len() as u64))
    }

    fn closed_between_blocks(&self) -> TurnResult {
        let inside = self.header_have > 0;
        match self.handle.receive_close(self.position) {
            Ok(()) if !inside => TurnResult::Close,
            Ok(()) => TurnResult::Failed(TransferFailure::ConnectionLost(
                "closed inside a block header".into(),
            )),
            Err(e) => TurnResult::Failed(TransferFailure::ConnectionLost(e.to_string())),
        }
    }

    fn handle_header(&mut self) -> Result<(), TurnResult> {
        let protocol = |e: String| TurnResult::Failed(TransferFailure::Protocol(e));
        let header = BlockHeader::decode(&self.header).map_err(|e| protocol(e.to_string()))?;
        self.header_have = 0;
        self.handle.touch();
        let step = self
            .handle
            .receive_header(&mut self.position, &header)
            .map_err(|e| protocol(e.to_string()))?;
        if step.payload_bytes > 0 {
            self.check_region(step.offset, step.payload_bytes)?;
            self.report_written()?;
            self.offset = step.offset;
            self.left = step.payload_bytes;
            self.unreported = ByteRange {
                start: step.offset,
                end: step.offset,
            };
        }
        if step.hole_bytes > 0 {
            self.check_region(step.offset, step.hole_bytes)?;
            self.report_written()?;
            self.hole = ByteRange {
                start: step.offset,
                end: step.offset.saturating_add(step.hole_bytes),
            };
        }
        self.end = step.end;
        Ok(())
    }

    /// Clears the present hole, or a part of it.
    fn clear(&mut self) -> Result<(), TurnResult> {
        let ByteRange { start, end } = self.hole;
        let SourceOrSink::ReceiveFile { file, base, .. } = self.handle.source_or_sink() else {
            return Err(TurnResult::Failed(TransferFailure::Protocol(format!(
                "a hole at {start}: a stream has none"
            ))));
        };
        let most = self.room(end - start)?;
        let cleared = file
            .clear_at(base + start, most)
            .map_err(|e| TurnResult::Failed(e.into()))?;
        let middle = end.min(start.saturating_add(cleared.max(1)));
        self.hole.start = middle;
        self.handle
            .record_written(ByteRange { start, end: middle })
            .map_err(TurnResult::Failed)?;
        self.handle.hole_passed(middle - start);
        Ok(())
    }

    /// How many of the next `bytes` the file takes now.
    fn room(&self, bytes: u64) -> Result<u64, TurnResult> {
        let SourceOrSink::ReceiveFile { file, base, .. } = self.handle.source_or_sink() else {
            return Ok(bytes);
        };
        let next = match self.hole.is_empty() {
            true => self.offset,
            false => self.hole.start,
        };
        match file.writable_at(base + next) {
            0 if bytes > 0 => {
                // The peer is not to blame, unless it owes others what they would read first.
                if file.waits_for_reader() {
                    self.handle.touch();
                }
                Err(TurnResult::wait_for_file())
            }
            room => Ok(bytes.min(room)),
        }
    }

    /// Refuses what would pass the end of the region or of any file.
    fn check_region(&self, offset: u64, bytes: u64) -> Result<(), TurnResult> {
        let SourceOrSink::ReceiveFile { base, limit, .. } = self.handle.source_or_sink() else {
            return Ok(());
        };
        let end = offset.checked_add(bytes);
        let fits = end.is_some_and(|e| {
            limit.is_none_or(|l| e <= l)
                && e.checked_add(*base)
                    .is_some_and(|e| i64::try_from(e).is_ok())
        });
        if fits {
            return Ok(());
        }
        Err(TurnResult::Failed(TransferFailure::Protocol(format!(
            "block of {bytes} bytes at {offset} passes the end of what was asked for"
        ))))
    }

    fn ended(&mut self, end: ChannelEnd) -> TurnResult {
        if let Err(flow) = self.report_written() {
            return flow;
        }
        self.handle.receiver_channel_ended(end);
        match end {
            ChannelEnd::Keep => TurnResult::Park,
            ChannelEnd::Close | ChannelEnd::Retired => TurnResult::Close,
        }
    }

    /// Reads at most `most` bytes of payload, and the header behind it.
    fn read_payload(
        &mut self,
        connection: &mut Connection,
        scratch: &mut Scratch,
        most: u64,
    ) -> Result<Option<u64>, TurnResult> {
        let stream_mode = self.handle.mode == Mode::Stream;
        let Scratch {
            buffer, lazy_pipe, ..
        } = scratch;
        let most = self.room(self.left.min(most))?;
        let most = usize::try_from(most).unwrap_or(usize::MAX);
        let path = self.payload_path();
        if !connection.read_buffer.is_empty() {
            let bytes = match path {
                PayloadPath::Gather(position) => {
                    let space = self.write_buffer.spare(position);
                    let bytes = connection.read_buffer.take(most.min(space.len()));
                    space[..bytes.len()].copy_from_slice(bytes);
                    bytes
                }
                PayloadPath::Write | PayloadPath::Discard => {
                    connection.read_buffer.take(most.min(buffer.len()))
                }
            };
            if stream_mode {
                self.check_region(self.offset, bytes.len() as u64)?;
            }
            match path {
                PayloadPath::Gather(_) => self.write_buffer.filled(bytes.len()),
                PayloadPath::Write => self.write(bytes)?,
                PayloadPath::Discard => {}
            }
            self.arrived(bytes.len() as u64)?;
            return Ok(Some(bytes.len() as u64));
        }
        if connection.is_sealed() {
            return match connection.read_ahead(buffer, usize::MAX)? {
                None => Ok(None),
                Some(0) if stream_mode => {
                    // A peer that has closed already does not miss it.
                    drop(connection.send_close_notify());
                    Err(self.stream_ended())
                }
                Some(0) => Err(self.closed_inside_block()),
                // They count when they are taken.
                Some(_) => Ok(Some(0)),
            };
        }
        connection.read_buffer.release();
        if !connection.readable {
            return Ok(None);
        }
        // What is gathered comes first, also where the file has changed its mind.
        if !matches!(path, PayloadPath::Gather(_))
            && let Some(n) = self.splice_payload(connection, buffer, lazy_pipe, most)?
        {
            return Ok(n);
        }
        let space = match path {
            PayloadPath::Gather(position) => self.write_buffer.spare(position),
            PayloadPath::Write | PayloadPath::Discard => &mut *buffer,
        };
        let want = most.min(space.len());
        let space = &mut space[..want];
        let discard = matches!(path, PayloadPath::Discard);
        // The header behind this payload, where all the rest of the payload fits.
        let with_header = !stream_mode && self.end.is_none() && want as u64 == self.left;
        let outcome = if discard {
            // MSG_TRUNC: the kernel drops the bytes without copying them.
            rustix::net::recv(&connection.stream, space, RecvFlags::TRUNC)
                .map(|(_, n)| n)
                .map_err(io::Error::from)
        } else if with_header {
            connection
                .stream
                .read_vectored(&mut [IoSliceMut::new(space), IoSliceMut::new(&mut self.header)])
        } else {
            connection.stream.read(space)
        };
        let n = match outcome {
            Ok(0) if stream_mode => return Err(self.stream_ended()),
            Ok(0) => return Err(self.closed_inside_block()),
            Ok(n) => n,
            Err(e) => return none_if_empty(connection, &e),
        };
        let payload = n.min(want);
        if stream_mode {
            self.check_region(self.offset, payload as u64)?;
        }
        match path {
            PayloadPath::Gather(_) => self.write_buffer.filled(payload),
            PayloadPath::Write => self.write(&buffer[..payload])?,
            PayloadPath::Discard => {}
        }
        self.header_have = n - payload;
        self.arrived(payload as u64)?;
        // A short read has emptied the socket, unless the peer's close hides behind it.
        let asked = if with_header && !discard {
            want + HEADER_BYTES
        } else {
            want
        };
        if n < asked && !connection.read_closed && self.header_have == 0 && self.left > 0 {
            connection.readable = false;
            return Ok(None);
        }
        Ok(Some(n as u64))
    }

    /// At most `most` bytes of payload from the socket to the file, past user space. `Ok(None)`:
    /// not in this way. Otherwise as [`Self::read_payload`], but for the header.
    fn splice_payload(
        &mut self,
        connection: &mut Connection,
        buffer: &mut [u8],
        lazy_pipe: &mut LazyPipe,
        most: usize,
    ) -> Result<Option<Option<u64>>, TurnResult> {
        let want = match self.left == most as u64 {
            true => most.saturating_sub(BLOCK_TAIL),
            false => most,
        };
        let stream_mode = self.handle.mode == Mode::Stream;
        if !self.may_splice
            || want < SPLICE_BYTES_MIN
            // No header announces the length of a stream: bytes that might pass the end of the
            // region are checked before they are written.
            || stream_mode && self.check_region(self.offset, want as u64).is_err()
        {
            return Ok(None);
        }
        let SourceOrSink::ReceiveFile { file, base, .. } = self.handle.source_or_sink() else {
            return Ok(None);
        };
        let FastPath::Descriptor(descriptor) = file.fast_path() else {
            return Ok(None);
        };
        let Some(pipe) = lazy_pipe.pipe() else {
            return Ok(None);
        };
        let at = base + self.offset;
        let may_write = || file.may_write();
        let came = match pipe.splice(&connection.stream, descriptor, at, want, may_write) {
            Ok(Spliced::Whole(0)) if stream_mode => {
                return Err(self.stream_ended());
            }
            Ok(Spliced::Whole(0)) => return Err(self.closed_inside_block()),
            Ok(Spliced::Whole(count)) => count,
            Ok(Spliced::Stuck { came, written }) => {
                self.may_splice = false;
                let at = base + self.offset + written as u64;
                let rest = came - written;
                if let Err(flow) = copy_stuck(pipe, file, at, rest, buffer) {
                    // Bytes may be left in the pipe, and must not reach the next file.
                    *lazy_pipe = LazyPipe::default();
                    return Err(flow);
                }
                came
            }
            // The kernel took nothing: where it has no splice, the channel reads and writes.
            Err(error) if splice_pipe::is_refused(&error) => {
                self.may_splice = false;
                return Ok(None);
            }
            Err(error) => return none_if_empty(connection, &error).map(Some),
        };
        self.arrived(came as u64)?;
        Ok(Some(Some(came as u64)))
    }

    /// Payload is in its place, or gathered.
    fn arrived(&mut self, bytes: u64) -> Result<(), TurnResult> {
        self.offset += bytes;
        if self.handle.mode == Mode::ExtendedBlock || self.is_cut {
            self.left -= bytes;
        }
        self.handle.moved(bytes);
        if self.left == 0 || self.write_buffer.is_full() {
            self.flush_write_buffer()?;
        }
        self.unreported.end = self.offset - self.write_buffer.bytes().len() as u64;
        if self.unreported.len() >= REPORT_BYTES {
            self.report_written()?;
        }
        Ok(())
    }

    fn payload_path(&self) -> PayloadPath {
        let SourceOrSink::ReceiveFile { file, base, .. } = self.handle.source_or_sink() else {
            return PayloadPath::Write;
        };
        let gather = PayloadPath::Gather(base + self.offset);
        match file.fast_path() {
            _ if !self.write_buffer.is_empty() => gather,
            FastPath::Direct if self.left >= SPLICE_BYTES_MIN as u64 => gather,
            FastPath::Discard | FastPath::Zeros => PayloadPath::Discard,
            FastPath::Copy | FastPath::Descriptor(_) | FastPath::Direct => PayloadPath::Write,
        }
    }

    fn closed_inside_block(&self) -> TurnResult {
        TurnResult::Failed(TransferFailure::ConnectionLost(format!(
            "closed inside a block, {} bytes short",
            self.left
        )))
    }

    fn stream_ended(&mut self) -> TurnResult {
        if let Err(flow) = self
            .flush_write_buffer()
            .and_then(|()| self.report_written())
        {
            return flow;
        }
        self.handle.succeed();
        TurnResult::Close
    }

    fn write(&self, bytes: &[u8]) -> Result<(), TurnResult> {
        match self.handle.source_or_sink() {
            SourceOrSink::ReceiveFile { file, base, .. } => {
                write_patiently(file, base + self.offset, bytes)
            }
            SourceOrSink::ReceiveStream(sink) => {
                let mut sink = sink.lock();
                if sink.next != self.offset {
                    return Err(TurnResult::Failed(TransferFailure::Protocol(format!(
                        "block at {} where {} must come next: a stream cannot go back",
                        self.offset, sink.next
                    ))));
                }
                sink.writer.write_all(bytes).map_err(|e| {
                    TurnResult::Failed(
                        crate::storage::failure("write the output stream", &e).into(),
                    )
                })?;
                sink.next += bytes.len() as u64;
                Ok(())
            }
            SourceOrSink::Unopened
            | SourceOrSink::SendFile { .. }
            | SourceOrSink::SendStream(_) => Ok(()),
        }
    }

    fn flush_write_buffer(&mut self) -> Result<(), TurnResult> {
        let bytes = self.write_buffer.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        if let SourceOrSink::ReceiveFile { file, base, .. } = self.handle.source_or_sink() {
            let from = self.offset - bytes.len() as u64;
            write_patiently(file, base + from, bytes)?;
        }
        self.write_buffer.clear();
        self.unreported.end = self.offset;
        Ok(())
    }

    /// The channel goes: what it has received need not come again.
    pub(crate) fn leave(&mut self) {
        // A file that cannot be written is heard of where more is to be written to it. Of what is
        // over nothing is touched.
        if self.handle.is_finished() || self.flush_write_buffer().is_ok() {
            // What is not listed is moved again.
            drop(self.report_written());
        }
    }

    /// Reports to the transfer which bytes are on storage.
    fn report_written(&mut self) -> Result<(), TurnResult> {
        if self.unreported.is_empty() {
            return Ok(());
        }
        let recorded = self.handle.record_written(self.unreported);
        self.unreported.start = self.unreported.end;
        recorded.map_err(TurnResult::Failed)
    }
}

/// Copies bytes from the pipe to a file that refuses a splice. Where the file refuses a write too,
/// that error says why.
fn copy_stuck(
    pipe: &SplicePipe,
    file: &FileRef,
    mut at: u64,
    mut bytes: usize,
    buffer: &mut [u8],
) -> Result<(), TurnResult> {
    while bytes > 0 {
        let most = bytes.min(buffer.len());
        let count = pipe.drain(&mut buffer[..most]).map_err(|e| {
            TurnResult::Failed(crate::storage::failure("read a pipe of ours", &e).into())
        })?;
        write_patiently(file, at, &buffer[..count])?;
        at += count as u64;
        bytes -= count;
    }
    Ok(())
}

/// Writes, and tries again where the device errs: that costs nothing, while bytes that are given up
/// have to be sent again, and all that is on its way with them.
fn write_patiently(file: &FileRef, at: u64, bytes: &[u8]) -> Result<(), TurnResult> {
    let mut pauses = WRITE_PAUSES.iter();
    loop {
        match (file.write_all_at(at, bytes), pauses.next()) {
            (Err(failure), Some(pause)) if failure.errno == Errno::IO.raw_os_error() => {
                tracing::warn!(%failure, "a write is tried again");
                thread::sleep(*pause);
            }
            (written, _) => return written.map_err(|e| TurnResult::Failed(e.into())),
        }
    }
}

fn none_if_empty(connection: &Connection, error: &io::Error) -> Result<Option<u64>, TurnResult> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(None),
        io::ErrorKind::Interrupted => Ok(Some(0)),
        _ => Err(connection.lost(error)),
    }
}
