//! Bytes of a file that have come from one server and have not gone to the other.
//!
//! A transfer from the source writes them, in any order; one to the destination reads each of them
//! once. Those that may lie here begin at the first byte that was not read and are at most as many
//! as the window is long. What lies behind is not written, nor is what has not come read: both are
//! asked for again after a moment ([`File::writable_at`], [`File::readable_at`]), so that the
//! threads that move them can serve what lies before.

use std::{
    collections::BTreeMap,
    io,
    sync::{Arc, Weak},
    time::{Duration, SystemTime},
};

use godwit_engine::storage::{File, FileKind, Metadata, Result, failure};
use godwit_proto::{ByteRange, RangeSet};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};

use crate::passing::WindowLooks;

/// Bytes that all windows of a run hold at most.
pub(super) const ALL_BYTES: u64 = 256 << 20;

/// Those of one file: enough that neither transfer waits for the pauses of the other.
const WINDOW_BYTES_MAX: u64 = 64 << 20;
const WINDOW_BYTES_MIN: u64 = 8 << 20;

/// Memory is taken in blocks of so many bytes.
const BLOCK_BYTES: u64 = 256 << 10;

/// Time until a reader that may block looks again.
const PAUSE: Duration = Duration::from_millis(1);

/// The windows of a run, and the memory that they share.
#[derive(Clone)]
pub(crate) struct WindowMemory {
    blocks: Arc<Semaphore>,
    looks: Arc<Mutex<Looks>>,
}

#[derive(Default)]
struct Looks {
    windows: Vec<Weak<Window>>,
    seen: WindowLooks,
}

impl Default for WindowMemory {
    fn default() -> Self {
        Self {
            // In blocks: a count of them always fits.
            blocks: Arc::new(Semaphore::new((ALL_BYTES / BLOCK_BYTES) as usize)),
            looks: Arc::default(),
        }
    }
}

impl WindowMemory {
    /// A window for `region`, one of about `files` at a time. Waits until others have ended where
    /// there is no memory.
    pub(super) async fn window(&self, region: Option<ByteRange>, files: u32) -> Arc<Window> {
        let share = ALL_BYTES / u64::from(files.max(1));
        let share = share.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX);
        // A window need not begin where a block does: it may touch one block more.
        let share = share - BLOCK_BYTES;
        let bytes = region.map_or(share, |region| region.len().clamp(1, share));
        let blocks = u32::try_from(bytes.div_ceil(BLOCK_BYTES) + 1).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let permit = Arc::clone(&self.blocks);
        let permit = permit.acquire_many_owned(blocks).await.ok();
        let start = region.map_or(0, |region| region.start);
        let window = Arc::new(Window::new(start, bytes, permit));
        self.looks.lock().windows.push(Arc::downgrade(&window));
        window
    }

    /// Looks at all windows, and returns the sums with this look.
    pub(crate) fn look(&self) -> WindowLooks {
        let mut looks = self.looks.lock();
        let Looks { windows, seen } = &mut *looks;
        windows.retain(|window| {
            let window = window.upgrade();
            if let Some(window) = &window {
                window.add_to(seen);
            }
            window.is_some()
        });
        *seen
    }
}

pub(super) struct Window {
    bytes: u64,
    state: Mutex<State>,
    /// The first byte has come, or none will.
    begun: Notify,
    _permit: Option<OwnedSemaphorePermit>,
}

struct State {
    /// First byte of the region.
    start: u64,
    /// By their numbers: those that hold bytes between the first that was not read and the end of
    /// the window.
    blocks: BTreeMap<u64, Box<[u8]>>,
    /// For the next ones.
    spare: Vec<Box<[u8]>>,
    written: RangeSet,
    read: RangeSet,
    /// No more comes.
    is_complete: bool,
    /// Why nothing is read nor written any more.
    is_broken: bool,
}

impl Window {
    fn new(start: u64, bytes: u64, permit: Option<OwnedSemaphorePermit>) -> Self {
        Self {
            bytes,
            state: Mutex::new(State {
                start,
                blocks: BTreeMap::new(),
                spare: Vec::new(),
                written: RangeSet::new(),
                read: RangeSet::new(),
                is_complete: false,
                is_broken: false,
            }),
            begun: Notify::new(),
            _permit: permit,
        }
    }

    /// Waits for the first byte, or the end.
    pub(super) async fn begun(&self) {
        loop {
            let begun = self.begun.notified();
            tokio::pin!(begun);
            begun.as_mut().enable();
            {
                let state = self.state.lock();
                if !state.written.is_empty() || state.is_complete || state.is_broken {
                    return;
                }
            }
            begun.await;
        }
    }

    /// Adds how it is found.
    fn add_to(&self, looks: &mut WindowLooks) {
        let state = self.state.lock();
        if state.written.is_empty() || state.is_complete || state.is_broken {
            return;
        }
        let floor = state.floor();
        let end = end_of_run(&state.written, floor);
        // Some of it may have been read, out of order.
        let unread = ByteRange::new(floor, end).map(|run| state.read.gaps(run));
        let unread = unread.into_iter().flatten();
        let ready: u64 = unread.map(|range| range.len()).sum();
        looks.all += 1;
        looks.empty += u64::from(ready == 0);
        // Pieces of several channels from the source come out of order, and are at most a fourth.
        looks.full += u64::from(ready >= self.bytes / 2);
    }

    /// All of `region` has come.
    pub(super) fn has(&self, region: ByteRange) -> bool {
        self.state.lock().written.contains(region)
    }

    /// No more comes.
    pub(super) fn complete(&self) {
        self.state.lock().is_complete = true;
        self.begun.notify_waiters();
    }

    /// One of the transfers has failed: the other fails where it reads or writes.
    pub(super) fn break_off(&self) {
        let mut state = self.state.lock();
        state.is_broken = true;
        state.blocks.clear();
        state.spare.clear();
        drop(state);
        self.begun.notify_waiters();
    }
}

impl State {
    /// The first byte that was not read.
    fn floor(&self) -> u64 {
        end_of_run(&self.read, self.start)
    }

    /// Blocks before the first byte that was not read go.
    fn release(&mut self, most: u64) {
        let floor = self.floor() / BLOCK_BYTES;
        while let Some(first) = self.blocks.first_entry()
            && *first.key() < floor
        {
            let block = first.remove();
            if ((self.blocks.len() + self.spare.len()) as u64) < most {
                self.spare.push(block);
            }
        }
    }
}

/// Where the run of `set` ends that holds `at`; `at` itself where none does.
fn end_of_run(set: &RangeSet, at: u64) -> u64 {
    let gap = set.gaps(ByteRange {
        start: at,
        end: u64::MAX,
    });
    gap.first().map_or(u64::MAX, |gap| gap.start)
}

/// Of bytes that are in memory.
fn count_of(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// The part of block `number` that lies in `start..end` of the file: in the block.
fn part_of(number: u64, start: u64, end: u64) -> std::ops::Range<usize> {
    let first = number * BLOCK_BYTES;
    let at = |byte: u64| count_of(byte.clamp(first, first + BLOCK_BYTES) - first);
    at(start)..at(end)
}

fn broken(doing: &str) -> godwit_proto::error::StorageFailure {
    failure(
        doing,
        &io::Error::other("the other server's transfer has failed"),
    )
}

impl File for Window {
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<usize> {
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(broken("read what has come"));
        }
        if offset < state.floor() && !buffer.is_empty() {
            let error = io::Error::other("it is sent on once");
            return Err(failure("read what has come", &error));
        }
        let end = end_of_run(&state.written, offset);
        let end = end.min(offset.saturating_add(buffer.len() as u64));
        let mut done = 0;
        for number in offset / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let part = part_of(number, offset, end);
            // Read before, out of order.
            let Some(block) = state.blocks.get(&number) else {
                let error = io::Error::other("it is sent on once");
                return Err(failure("read what has come", &error));
            };
            let count = part.len();
            buffer[done..done + count].copy_from_slice(&block[part]);
            done += count;
        }
        state.read.insert(ByteRange { start: offset, end });
        state.release(self.bytes / BLOCK_BYTES);
        Ok(done)
    }

    fn write_all_at(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let end = offset.saturating_add(bytes.len() as u64);
        let mut state = self.state.lock();
        if state.is_broken {
            return Err(broken("keep what has come"));
        }
        if end > state.floor().saturating_add(self.bytes) {
            let error = io::Error::other("more came than there is room for");
            return Err(failure("keep what has come", &error));
        }
        // A server may send again what is on its way already.
        let start = offset.max(state.floor()).min(end);
        if start == end {
            return Ok(());
        }
        let mut done = count_of(start - offset);
        for number in start / BLOCK_BYTES..end.div_ceil(BLOCK_BYTES) {
            let part = part_of(number, start, end);
            let count = part.len();
            let State { blocks, spare, .. } = &mut *state;
            let block = blocks.entry(number).or_insert_with(|| {
                let new = || vec![0; count_of(BLOCK_BYTES)].into_boxed_slice();
                spare.pop().unwrap_or_else(new)
            });
            block[part].copy_from_slice(&bytes[done..done + count]);
            done += count;
        }
        let is_first = state.written.is_empty();
        state.written.insert(ByteRange { start: offset, end });
        drop(state);
        if is_first {
            self.begun.notify_waiters();
        }
        Ok(())
    }

    fn readable_at(&self, offset: u64) -> u64 {
        let state = self.state.lock();
        match state.is_broken || state.is_complete {
            true => u64::MAX,
            false => end_of_run(&state.written, offset) - offset,
        }
    }

    fn writable_at(&self, offset: u64) -> u64 {
        let state = self.state.lock();
        let end = state.floor().saturating_add(self.bytes);
        match state.is_broken {
            true => u64::MAX,
            false => end.saturating_sub(offset),
        }
    }

    fn waits_for_reader(&self) -> bool {
        let state = self.state.lock();
        end_of_run(&state.written, state.floor()) > state.floor()
    }

    fn read_once_within(&self) -> Option<u64> {
        Some(self.bytes)
    }

    fn metadata(&self) -> Result<Metadata> {
        let state = self.state.lock();
        let size = state.written.iter().map(|range| range.end).max();
        Ok(Metadata {
            kind: FileKind::File,
            size: size.unwrap_or(0),
            stored: state.blocks.len() as u64 * BLOCK_BYTES,
            modified: SystemTime::UNIX_EPOCH,
            mode: 0o600,
            uid: 0,
            gid: 0,
            links: 0,
            unique: (0, 0),
            link_target: None,
        })
    }

    fn sync(&self) -> Result<()> {
        Ok(())
    }
}

/// Reads a window from its start, where the length is unknown, on a thread that may block.
pub(super) struct WindowReader {
    pub(super) window: Arc<Window>,
    pub(super) at: u64,
}

impl io::Read for WindowReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.window.readable_at(self.at) == 0 {
            std::thread::sleep(PAUSE);
        }
        let read = self.window.read_at(self.at, buffer);
        let count = read.map_err(|failure| io::Error::other(failure.to_string()))?;
        self.at += count as u64;
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::passing::Side;

    fn region(bytes: u64) -> Option<ByteRange> {
        ByteRange::new(0, bytes)
    }

    fn held(window: &Window) -> u64 {
        window.metadata().unwrap().stored
    }

    #[test]
    fn a_stalled_reader_stops_the_writer_before_the_bound() {
        let window = Window::new(100, 8 << 20, None);
        let piece = vec![7; 64 << 10];
        let mut at = 100;
        while window.writable_at(at) > 0 {
            let room = usize::try_from(window.writable_at(at)).unwrap();
            let piece = &piece[..piece.len().min(room)];
            window.write_all_at(at, piece).unwrap();
            at += piece.len() as u64;
        }
        assert_eq!(at, 100 + (8 << 20));
        assert!(window.write_all_at(at, b"x").is_err());
        assert!(held(&window) <= (8 << 20) + BLOCK_BYTES);
        let mut buffer = vec![0; 1 << 20];
        assert_eq!(window.read_at(100, &mut buffer).unwrap(), buffer.len());
        assert_eq!(window.writable_at(at), 1 << 20);
        // What was sent on takes no memory, also where a server sends it again.
        let before = held(&window);
        window.write_all_at(100, &piece).unwrap();
        assert_eq!(held(&window), before);
    }

    #[test]
    fn bytes_come_and_go_in_any_order_and_once() {
        let content: Vec<u8> = (0..3 * BLOCK_BYTES + 5)
            .map(|at| (at % 251) as u8)
            .collect();
        let end = content.len() as u64;
        let window = Window::new(0, 4 << 20, None);
        let halves = [BLOCK_BYTES + 3..end, 0..BLOCK_BYTES + 3];
        for half in halves.clone() {
            assert_eq!(window.readable_at(half.start), 0);
            let bytes = &content[count_of(half.start)..count_of(half.end)];
            window.write_all_at(half.start, bytes).unwrap();
        }
        assert!(window.has(ByteRange { start: 0, end }));
        for half in halves {
            let mut got = vec![0; count_of(half.end - half.start)];
            assert_eq!(window.read_at(half.start, &mut got).unwrap(), got.len());
            assert!(got == content[count_of(half.start)..count_of(half.end)]);
        }
        assert!(window.read_at(0, &mut [0]).is_err(), "it is gone");
        assert!(held(&window) <= BLOCK_BYTES);
        window.complete();
        assert_eq!(window.read_at(end, &mut [0]).unwrap(), 0);
    }

    #[test]
    fn the_next_step_is_up_to_the_writer_until_the_first_byte_is_there() {
        let window = Window::new(0, 1 << 20, None);
        assert!(!window.waits_for_reader());
        window.write_all_at(1, &[7; (1 << 20) - 1]).unwrap();
        assert_eq!(window.writable_at(1 << 20), 0);
        assert!(!window.waits_for_reader(), "byte 0 is missing");
        window.write_all_at(0, &[7]).unwrap();
        assert!(window.waits_for_reader());
        window.read_at(0, &mut vec![0; 1 << 20]).unwrap();
        assert!(!window.waits_for_reader());
    }

    #[test]
    fn a_failure_ends_reading_and_writing() {
        let window = Window::new(0, 1 << 20, None);
        window.break_off();
        assert!(window.readable_at(0) > 0 && window.writable_at(2 << 20) > 0);
        assert!(window.read_at(0, &mut [0]).is_err());
        assert!(window.write_all_at(0, b"x").is_err());
    }

    #[tokio::test]
    async fn looks_tell_which_side_the_other_waits_for() {
        let memory = WindowMemory::default();
        let window = memory.window(region(8 << 20), 1).await;
        let begun = memory.look();
        assert_eq!(begun.all, 0, "the source has not begun");
        window.write_all_at(0, &[7]).unwrap();
        window.write_all_at(2, &[7; 5 << 20]).unwrap();
        window.read_at(0, &mut [0]).unwrap();
        let late = memory.look();
        assert_eq!(late.slower_since(&begun), Some(Side::Source));
        window.write_all_at(1, &[7]).unwrap();
        let full = memory.look();
        assert_eq!(full.slower_since(&late), Some(Side::Destination));
        assert_eq!(full.slower_since(&begun), None, "one look each");
        window.read_at(1, &mut vec![0; 3 << 20]).unwrap();
        assert_eq!(memory.look().slower_since(&full), None, "there is some");
        // Of 7 MiB without a gap, 4 MiB were read.
        window.write_all_at((5 << 20) + 2, &[7; 5 << 20]).unwrap();
        let before = memory.look();
        window.read_at(4 << 20, &mut vec![0; 4 << 20]).unwrap();
        assert_eq!(memory.look().slower_since(&before), None, "sent already");
        window.complete();
        let last = memory.look();
        assert_eq!(memory.look(), last, "the source has ended");
    }

    #[tokio::test]
    async fn windows_share_the_memory_of_a_run() {
        let memory = WindowMemory::default();
        let mut windows = Vec::new();
        let next = || memory.window(region(u64::MAX), 4);
        while let Ok(window) = tokio::time::timeout(Duration::from_millis(50), next()).await {
            windows.push(window);
        }
        let all: u64 = windows.iter().map(|window| window.bytes).sum();
        assert!(all <= ALL_BYTES && all > ALL_BYTES / 2, "{all}");
        assert_eq!(windows.len(), 4);
        windows.pop();
        next().await;
        // Small files take little.
        assert_eq!(memory.window(region(5), 1).await.bytes, 5);
    }
}
