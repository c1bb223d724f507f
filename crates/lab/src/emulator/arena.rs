//! Memory for frames in flight: one ring, locked and touched before the run, since on a virtual
//! machine the first touch of a page costs more than the emulation of its packets.

use std::collections::VecDeque;
use std::io;

use memmap2::{MmapMut, MmapOptions};

/// A ring of frames of any size, each contiguous. Memory is given back in the order it was taken,
/// so a frame that stays long keeps those behind it; the size accounts for that.
#[derive(Debug)]
pub(super) struct Arena {
    memory: MmapMut,
    locked: bool,
    /// Where the next frame goes.
    head: usize,
    entries: VecDeque<Entry>,
    /// Number of the first of `entries`.
    first: u64,
}

/// A frame in the arena.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Slot {
    number: u64,
    start: usize,
    len: usize,
}

#[derive(Debug)]
struct Entry {
    start: usize,
    users: usize,
}

impl Arena {
    /// An arena of `bytes`.
    pub(super) fn new(bytes: usize) -> io::Result<Arena> {
        let memory = MmapOptions::new().len(bytes).populate().map_anon()?;
        // Locking is limited for ordinary users; touched pages are most of what counts.
        let locked = memory.lock().is_ok();
        Ok(Arena {
            memory,
            locked,
            head: 0,
            entries: VecDeque::with_capacity(4096),
            first: 0,
        })
    }

    /// Whether the kernel keeps it in memory.
    pub(super) fn is_locked(&self) -> bool {
        self.locked
    }

    /// Room for a frame of at most `max` bytes, or `None` when there is none left. Nothing is
    /// taken before [`Arena::take`].
    pub(super) fn room(&mut self, max: usize) -> Option<&mut [u8]> {
        let start = self.next_start(max)?;
        self.head = start;
        Some(&mut self.memory[start..start + max])
    }

    /// Takes the first `len` bytes of the room just offered, for one user.
    pub(super) fn take(&mut self, len: usize) -> Slot {
        let slot = Slot {
            number: self.first + self.entries.len() as u64,
            start: self.head,
            len,
        };
        self.entries.push_back(Entry {
            start: self.head,
            users: 1,
        });
        self.head += len;
        slot
    }

    /// Adds a user: the frame stays until all have released it.
    pub(super) fn share(&mut self, slot: Slot) {
        if let Some(entry) = self.entry(slot) {
            entry.users += 1;
        }
    }

    /// One user is done.
    pub(super) fn release(&mut self, slot: Slot) {
        if let Some(entry) = self.entry(slot) {
            entry.users = entry.users.saturating_sub(1);
        }
        while self.entries.front().is_some_and(|entry| entry.users == 0) {
            self.entries.pop_front();
            self.first += 1;
        }
    }

    /// The bytes of a frame that has not been released by all.
    pub(super) fn bytes(&self, slot: Slot) -> &[u8] {
        &self.memory[slot.start..slot.start + slot.len]
    }

    /// The same, to change them.
    pub(super) fn bytes_mut(&mut self, slot: Slot) -> &mut [u8] {
        &mut self.memory[slot.start..slot.start + slot.len]
    }

    fn entry(&mut self, slot: Slot) -> Option<&mut Entry> {
        let index = usize::try_from(slot.number.checked_sub(self.first)?).ok()?;
        self.entries.get_mut(index)
    }

    fn next_start(&self, max: usize) -> Option<usize> {
        let Some(oldest) = self.entries.front() else {
            return (max <= self.memory.len()).then_some(0);
        };
        let tail = oldest.start;
        if self.head > tail {
            if self.memory.len() - self.head >= max {
                Some(self.head)
            } else {
                // Never up to the tail: a head on the tail would look empty.
                (max < tail).then_some(0)
            }
        } else {
            (self.head + max < tail).then_some(self.head)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn put(arena: &mut Arena, max: usize, bytes: &[u8]) -> Option<Slot> {
        arena.room(max)?[..bytes.len()].copy_from_slice(bytes);
        Some(arena.take(bytes.len()))
    }

    #[test]
    fn a_full_arena_says_so_and_recovers() {
        let mut arena = Arena::new(8192).expect("memory");
        let slots: Vec<Slot> = (0..100)
            .map_while(|_| put(&mut arena, 1000, &[1; 1000]))
            .collect();
        assert_eq!(slots.len(), 8);
        for slot in slots {
            arena.release(slot);
        }
        assert!(put(&mut arena, 8192, &[2; 10]).is_some());
    }

    #[test]
    fn shared_frames_stay_until_the_last_release() {
        let mut arena = Arena::new(4096).expect("memory");
        let slot = put(&mut arena, 100, b"frame").expect("room");
        arena.share(slot);
        arena.release(slot);
        assert_eq!(arena.bytes(slot), b"frame");
        assert_eq!(arena.entries.len(), 1);
        arena.release(slot);
        assert_eq!(arena.entries.len(), 0);
    }

    proptest! {
        /// Frames keep their bytes whatever is taken and released around them.
        #[test]
        fn frames_never_overlap(
            steps in prop::collection::vec(
                (1..700_usize, any::<u8>(), any::<bool>(), 0..8_usize),
                1..300,
            ),
        ) {
            let mut arena = Arena::new(4096).expect("memory");
            let mut live: Vec<(Slot, u8)> = Vec::new();
            for (len, fill, release, which) in steps {
                if release && !live.is_empty() {
                    let (slot, _) = live.remove(which % live.len());
                    arena.release(slot);
                } else if let Some(slot) = put(&mut arena, 700, &vec![fill; len]) {
                    live.push((slot, fill));
                }
                for &(slot, fill) in &live {
                    prop_assert!(arena.bytes(slot).iter().all(|&byte| byte == fill));
                }
            }
        }
    }
}
