//! The receiving half of a channel: headers to the accounting, payload to its place.
//!
//! Where a block begins that could be small, the connection is read as far as it goes, and what is
//! too much is carried on to the blocks, and the transfers, that follow: so many small files cost
//! one system call. Behind an EOD the next byte belongs to the next transfer. Payload of larger
//! blocks goes to its place without being carried, and the header that follows it is read in the
//! same call. Protected bytes are all opened into what is carried. For a file that passes the page
//! cache by, bytes are gathered.

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

use super::{
    body::Body,
    channel::Flow,
    conduit::{self, Carried, Conduit, Pipe},
    gathered::Gathered,
    lock,
    transfer::Attachment,
    wire::Wire,
};
use crate::storage::{FastPath, FileRef};

/// Bytes after which a long block's safe range is told, so that markers never lag far behind.
const TELL_BYTES: u64 = 8 << 20;

/// Payload that is worth a way around user space, or around the page cache.
const CONDUIT_LEAST: usize = 64 << 10;

/// What the end of a block keeps back from that way: it is read together with the header behind it.
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
pub(super) struct Room {
    /// Bytes on their way through user space; none stay.
    pub(super) scratch: Box<[u8]>,
    pub(super) conduit: Conduit,
    /// Bytes that have come since the mover last waited.
    pub(super) received: u64,
}

pub(super) struct Receiving {
    pub(super) attachment: Attachment,
    position: ChannelPosition,
    header: [u8; HEADER_BYTES],
    header_have: usize,
    /// Wire offset of the next payload byte.
    offset: u64,
    /// Payload bytes left of the block; in MODE S of what is wanted, `u64::MAX` for all there is.
    left: u64,
    /// MODE S: what comes when `left` is 0 is not wanted.
    is_cut: bool,
    /// What is still to be cleared of the hole that the last header told of; wire offsets.
    hole: ByteRange,
    end: Option<ChannelEnd>,
    /// Received and not yet written.
    gathered: Gathered,
    /// Written and not yet told.
    untold: ByteRange,
    /// The file takes what comes from a pipe, as far as is known.
    by_conduit: bool,
}

/// Where payload goes from the socket.
#[derive(Clone, Copy)]
enum Way {
    Write,
    /// It belongs to this position in the file, and waits for more.
    Gather(u64),
    Discard,
}

impl Receiving {
    pub(super) fn new(attachment: Attachment, reused: bool) -> Self {
        let cut = attachment.body().cut();
        let (offset, left) = match (attachment.mode, attachment.body()) {
            (Mode::ExtendedBlock, _) => (0, 0),
            (Mode::Stream, Body::ReceiveFile { stream_start, .. }) => {
                (*stream_start, cut.unwrap_or(u64::MAX))
            }
            (Mode::Stream, _) => (0, cut.unwrap_or(u64::MAX)),
        };
        Self {
            is_cut: attachment.mode == Mode::Stream && cut.is_some(),
            attachment,
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
            gathered: Gathered::default(),
            untold: ByteRange {
                start: offset,
                end: offset,
            },
            by_conduit: true,
        }
    }

    /// Nothing of the present transfer was read here.
    pub(super) fn is_untouched(&self) -> bool {
        self.attachment.mode == Mode::ExtendedBlock
            && self.header_have == 0
            && matches!(
                self.position,
                ChannelPosition::Fresh | ChannelPosition::Reused
            )
    }

    /// Reads until the socket is empty, the budget of bytes (at least 1) is used up, or this
    /// channel's part is done.
    pub(super) fn turn(&mut self, wire: &mut Wire, room: &mut Room, budget: &mut u64) -> Flow {
        loop {
            if self.attachment.is_finished_hint() {
                // Aborted, failed or complete elsewhere: the order that says what becomes of us is
                // on its way.
                return Flow::Wait;
            }
            if self.is_cut && self.left == 0 {
                return self.stream_ended();
            }
            let step = if !self.hole.is_empty() {
                match self.clear() {
                    Ok(()) if self.hole.is_empty() => Ok(Some(0)),
                    Ok(()) => return Flow::Again,
                    Err(flow) => return flow,
                }
            } else if self.left > 0 {
                self.read_payload(wire, room, *budget)
            } else {
                self.read_header(wire, &mut room.scratch, *budget)
            };
            let n = match step {
                Ok(Some(n)) => n,
                Ok(None) => {
                    wire.readable = false;
                    return Flow::Wait;
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
                return Flow::Again;
            }
        }
    }

    /// Bytes of the header taken, `None` when the socket is empty. Of what follows about `ahead`
    /// bytes at most are carried.
    fn read_header(
        &mut self,
        wire: &mut Wire,
        scratch: &mut [u8],
        ahead: u64,
    ) -> Result<Option<u64>, Flow> {
        if wire.carry.is_empty() {
            let most = usize::try_from(ahead).unwrap_or(usize::MAX);
            match wire.read_ahead(scratch, most.max(HEADER_BYTES))? {
                None => return Ok(None),
                Some(0) => return Err(self.closed_between_blocks()),
                Some(_) => {}
            }
        }
        let bytes = wire.carry.take(HEADER_BYTES - self.header_have);
        let have = self.header_have + bytes.len();
        self.header[self.header_have..have].copy_from_slice(bytes);
        self.header_have = have;
        Ok(Some(bytes.len() as u64))
    }

    fn closed_between_blocks(&self) -> Flow {
        let inside = self.header_have > 0;
        match self.attachment.receive_close(self.position) {
            Ok(()) if !inside => Flow::Close,
            Ok(()) => Flow::Failed(TransferFailure::ConnectionLost(
                "closed inside a block header".into(),
            )),
            Err(e) => Flow::Failed(TransferFailure::ConnectionLost(e.to_string())),
        }
    }

    fn handle_header(&mut self) -> Result<(), Flow> {
        let protocol = |e: String| Flow::Failed(TransferFailure::Protocol(e));
        let header = BlockHeader::decode(&self.header).map_err(|e| protocol(e.to_string()))?;
        self.header_have = 0;
        self.attachment.touch();
        let step = self
            .attachment
            .receive_header(&mut self.position, &header)
            .map_err(|e| protocol(e.to_string()))?;
        if step.payload_bytes > 0 {
            self.check_region(step.offset, step.payload_bytes)?;
            self.tell()?;
            self.offset = step.offset;
            self.left = step.payload_bytes;
            self.untold = ByteRange {
                start: step.offset,
                end: step.offset,
            };
        }
        if step.hole_bytes > 0 {
            self.check_region(step.offset, step.hole_bytes)?;
            self.tell()?;
            self.hole = ByteRange {
                start: step.offset,
                end: step.offset.saturating_add(step.hole_bytes),
            };
        }
        self.end = step.end;
        Ok(())
    }

    /// Clears the present hole, or a part of it.
    fn clear(&mut self) -> Result<(), Flow> {
        let ByteRange { start, end } = self.hole;
        let Body::ReceiveFile { file, base, .. } = self.attachment.body() else {
            return Err(Flow::Failed(TransferFailure::Protocol(format!(
                "a hole at {start}: a stream has none"
            ))));
        };
        let cleared = file
            .clear_at(base + start, end - start)
            .map_err(|e| Flow::Failed(e.into()))?;
        let middle = end.min(start.saturating_add(cleared.max(1)));
        self.hole.start = middle;
        self.attachment
            .written(ByteRange { start, end: middle })
            .map_err(Flow::Failed)?;
        self.attachment.passed(middle - start);
        Ok(())
    }

    /// Refuses what would pass the end of the region or of any file.
    fn check_region(&self, offset: u64, bytes: u64) -> Result<(), Flow> {
        let Body::ReceiveFile { base, limit, .. } = self.attachment.body() else {
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
        Err(Flow::Failed(TransferFailure::Protocol(format!(
            "block of {bytes} bytes at {offset} passes the end of what was asked for"
        ))))
    }

    fn ended(&mut self, end: ChannelEnd) -> Flow {
        if let Err(flow) = self.tell() {
            return flow;
        }
        self.attachment.receiver_channel_ended(end);
        match end {
            ChannelEnd::Keep => Flow::Park,
            ChannelEnd::Close | ChannelEnd::Retired => Flow::Close,
        }
    }

    /// Reads at most `most` bytes of payload, and the header behind it.
    fn read_payload(
        &mut self,
        wire: &mut Wire,
        room: &mut Room,
        most: u64,
    ) -> Result<Option<u64>, Flow> {
        let stream_mode = self.attachment.mode == Mode::Stream;
        let Room {
            scratch, conduit, ..
        } = room;
        let most = usize::try_from(self.left.min(most)).unwrap_or(usize::MAX);
        let way = self.way();
        if !wire.carry.is_empty() {
            let bytes = match way {
                Way::Gather(position) => {
                    let room = self.gathered.room(position);
                    let bytes = wire.carry.take(most.min(room.len()));
                    room[..bytes.len()].copy_from_slice(bytes);
                    bytes
                }
                Way::Write | Way::Discard => wire.carry.take(most.min(scratch.len())),
            };
            if stream_mode {
                self.check_region(self.offset, bytes.len() as u64)?;
            }
            match way {
                Way::Gather(_) => self.gathered.came(bytes.len()),
                Way::Write => self.write(bytes)?,
                Way::Discard => {}
            }
            self.arrived(bytes.len() as u64)?;
            return Ok(Some(bytes.len() as u64));
        }
        if wire.is_sealed() {
            return match wire.read_ahead(scratch, usize::MAX)? {
                None => Ok(None),
                Some(0) if stream_mode => {
                    // Whoever has gone already does not miss it.
                    drop(wire.say_goodbye());
                    Err(self.stream_ended())
                }
                Some(0) => Err(self.closed_inside_block()),
                // They count when they are taken.
                Some(_) => Ok(Some(0)),
            };
        }
        wire.carry.release();
        if !wire.readable {
            return Ok(None);
        }
        // What is gathered comes first, also where the file has changed its mind.
        if !matches!(way, Way::Gather(_))
            && let Some(n) = self.read_by_conduit(wire, scratch, conduit, most)?
        {
            return Ok(n);
        }
        let room = match way {
            Way::Gather(position) => self.gathered.room(position),
            Way::Write | Way::Discard => &mut *scratch,
        };
        let want = most.min(room.len());
        let room = &mut room[..want];
        let discard = matches!(way, Way::Discard);
        // The header behind this payload, where all the rest of the payload fits.
        let with_header = !stream_mode && self.end.is_none() && want as u64 == self.left;
        let outcome = if discard {
            // MSG_TRUNC: the kernel drops the bytes without copying them.
            rustix::net::recv(&wire.stream, room, RecvFlags::TRUNC)
                .map(|(_, n)| n)
                .map_err(io::Error::from)
        } else if with_header {
            wire.stream
                .read_vectored(&mut [IoSliceMut::new(room), IoSliceMut::new(&mut self.header)])
        } else {
            wire.stream.read(room)
        };
        let n = match outcome {
            Ok(0) if stream_mode => return Err(self.stream_ended()),
            Ok(0) => return Err(self.closed_inside_block()),
            Ok(n) => n,
            Err(e) => return none_if_empty(wire, &e),
        };
        let payload = n.min(want);
        if stream_mode {
            self.check_region(self.offset, payload as u64)?;
        }
        match way {
            Way::Gather(_) => self.gathered.came(payload),
            Way::Write => self.write(&scratch[..payload])?,
            Way::Discard => {}
        }
        self.header_have = n - payload;
        self.arrived(payload as u64)?;
        // A short read has emptied the socket, unless the peer's close hides behind it.
        let asked = if with_header && !discard {
            want + HEADER_BYTES
        } else {
            want
        };
        if n < asked && !wire.read_closed && self.header_have == 0 && self.left > 0 {
            wire.readable = false;
            return Ok(None);
        }
        Ok(Some(n as u64))
    }

    /// At most `most` bytes of payload from the socket to the file, past user space. `Ok(None)`:
    /// not in this way. Otherwise as [`Self::read_payload`], but for the header.
    fn read_by_conduit(
        &mut self,
        wire: &mut Wire,
        scratch: &mut [u8],
        conduit: &mut Conduit,
        most: usize,
    ) -> Result<Option<Option<u64>>, Flow> {
        let want = match self.left == most as u64 {
            true => most.saturating_sub(BLOCK_TAIL),
            false => most,
        };
        let stream_mode = self.attachment.mode == Mode::Stream;
        if !self.by_conduit
            || want < CONDUIT_LEAST
            // Nobody has announced how much comes: what might pass the end is looked at before it
            // is written.
            || stream_mode && self.check_region(self.offset, want as u64).is_err()
        {
            return Ok(None);
        }
        let Body::ReceiveFile { file, base, .. } = self.attachment.body() else {
            return Ok(None);
        };
        let FastPath::Descriptor(descriptor) = file.fast_path() else {
            return Ok(None);
        };
        let Some(pipe) = conduit.pipe() else {
            return Ok(None);
        };
        let came = match pipe.carry(&wire.stream, descriptor, base + self.offset, want) {
            Ok(Carried::Whole(0)) if stream_mode => {
                return Err(self.stream_ended());
            }
            Ok(Carried::Whole(0)) => return Err(self.closed_inside_block()),
            Ok(Carried::Whole(count)) => count,
            Ok(Carried::Stuck { came, written }) => {
                self.by_conduit = false;
                let at = base + self.offset + written as u64;
                let rest = came - written;
                if let Err(flow) = copy_stuck(pipe, file, at, rest, scratch) {
                    // What may still be in it is nobody's.
                    *conduit = Conduit::default();
                    return Err(flow);
                }
                came
            }
            // Nothing was taken: a system without this way has the other.
            Err(error) if conduit::is_refused(&error) => {
                self.by_conduit = false;
                return Ok(None);
            }
            Err(error) => return none_if_empty(wire, &error).map(Some),
        };
        self.arrived(came as u64)?;
        Ok(Some(Some(came as u64)))
    }

    /// Payload is in its place, or gathered.
    fn arrived(&mut self, bytes: u64) -> Result<(), Flow> {
        self.offset += bytes;
        if self.attachment.mode == Mode::ExtendedBlock || self.is_cut {
            self.left -= bytes;
        }
        self.attachment.moved(bytes);
        if self.left == 0 || self.gathered.is_full() {
            self.write_gathered()?;
        }
        self.untold.end = self.offset - self.gathered.bytes().len() as u64;
        if self.untold.len() >= TELL_BYTES {
            self.tell()?;
        }
        Ok(())
    }

    fn way(&self) -> Way {
        let Body::ReceiveFile { file, base, .. } = self.attachment.body() else {
            return Way::Write;
        };
        let gather = Way::Gather(base + self.offset);
        match file.fast_path() {
            _ if !self.gathered.is_empty() => gather,
            FastPath::Direct if self.left >= CONDUIT_LEAST as u64 => gather,
            FastPath::Discard | FastPath::Zeros => Way::Discard,
            FastPath::Copy | FastPath::Descriptor(_) | FastPath::Direct => Way::Write,
        }
    }

    fn closed_inside_block(&self) -> Flow {
        Flow::Failed(TransferFailure::ConnectionLost(format!(
            "closed inside a block, {} bytes short",
            self.left
        )))
    }

    fn stream_ended(&mut self) -> Flow {
        if let Err(flow) = self.write_gathered().and_then(|()| self.tell()) {
            return flow;
        }
        self.attachment.succeed();
        Flow::Close
    }

    fn write(&self, bytes: &[u8]) -> Result<(), Flow> {
        match self.attachment.body() {
            Body::ReceiveFile { file, base, .. } => {
                write_patiently(file, base + self.offset, bytes)
            }
            Body::ReceiveStream(sink) => {
                let mut sink = lock(sink);
                if sink.next != self.offset {
                    return Err(Flow::Failed(TransferFailure::Protocol(format!(
                        "block at {} where {} must come next: a stream cannot go back",
                        self.offset, sink.next
                    ))));
                }
                sink.writer.write_all(bytes).map_err(|e| {
                    Flow::Failed(crate::storage::failure("write the output stream", &e).into())
                })?;
                sink.next += bytes.len() as u64;
                Ok(())
            }
            Body::Unopened | Body::SendFile { .. } | Body::SendStream(_) => Ok(()),
        }
    }

    fn write_gathered(&mut self) -> Result<(), Flow> {
        let bytes = self.gathered.bytes();
        if bytes.is_empty() {
            return Ok(());
        }
        if let Body::ReceiveFile { file, base, .. } = self.attachment.body() {
            let from = self.offset - bytes.len() as u64;
            write_patiently(file, base + from, bytes)?;
        }
        self.gathered.clear();
        self.untold.end = self.offset;
        Ok(())
    }

    /// The channel goes: what it has received need not come again.
    pub(super) fn leave(&mut self) {
        // A file that cannot be written is heard of where more is to be written to it. Of what is
        // over nothing is touched.
        if self.attachment.is_finished() || self.write_gathered().is_ok() {
            // What is not listed is moved again.
            drop(self.tell());
        }
    }

    /// Tells the transfer what is on storage.
    fn tell(&mut self) -> Result<(), Flow> {
        if self.untold.is_empty() {
            return Ok(());
        }
        let told = self.attachment.written(self.untold);
        self.untold.start = self.untold.end;
        told.map_err(Flow::Failed)
    }
}

/// Copies bytes from a pipe to a file that does not take them from there, which says why where it
/// takes them in no way.
fn copy_stuck(
    pipe: &Pipe,
    file: &FileRef,
    mut at: u64,
    mut bytes: usize,
    scratch: &mut [u8],
) -> Result<(), Flow> {
    while bytes > 0 {
        let most = bytes.min(scratch.len());
        let count = pipe
            .drain(&mut scratch[..most])
            .map_err(|e| Flow::Failed(crate::storage::failure("read a pipe of ours", &e).into()))?;
        write_patiently(file, at, &scratch[..count])?;
        at += count as u64;
        bytes -= count;
    }
    Ok(())
}

/// Writes, and tries again where the device errs: that costs nothing, while bytes that are given up
/// have to be sent again, and all that is on its way with them.
fn write_patiently(file: &FileRef, at: u64, bytes: &[u8]) -> Result<(), Flow> {
    let mut pauses = WRITE_PAUSES.iter();
    loop {
        match (file.write_all_at(at, bytes), pauses.next()) {
            (Err(failure), Some(pause)) if failure.errno == Errno::IO.raw_os_error() => {
                tracing::warn!(%failure, "a write is tried again");
                thread::sleep(*pause);
            }
            (written, _) => return written.map_err(|e| Flow::Failed(e.into())),
        }
    }
}

fn none_if_empty(wire: &Wire, error: &io::Error) -> Result<Option<u64>, Flow> {
    match error.kind() {
        io::ErrorKind::WouldBlock => Ok(None),
        io::ErrorKind::Interrupted => Ok(Some(0)),
        _ => Err(wire.lost(error)),
    }
}
