//! Where a file that is sent has holes.

use godwit_proto::ByteRange;

use crate::storage::{FileRef, Run};

/// Shortest hole that does not travel: a header and the calls that clear its place cost about what
/// these bytes cost at 10 Gbit/s.
const HOLE_LEAST: u64 = 16 << 10;

/// How far beyond the next block the search for the next hole goes: in a file with many small holes
/// a channel does not wait for the search of all of it.
const LOOK_AHEAD: u64 = 16 << 20;

/// What a channel sends next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Block {
    Data(ByteRange),
    /// Zeros that do not travel.
    Hole(ByteRange),
}

/// The holes of a file, found as they are asked for.
pub(crate) struct Holes {
    file: FileRef,
    base: u64,
    /// The run that was found last.
    known: Block,
}

impl Holes {
    /// `base`: byte of the file that has offset 0.
    pub(crate) fn new(file: FileRef, base: u64) -> Self {
        let known = Block::Data(ByteRange { start: 0, end: 0 });
        Self { file, base, known }
    }

    /// Whether `range`, which is not empty, begins with data or a hole, and how much of it.
    pub(crate) fn run_of(&mut self, range: ByteRange) -> Block {
        let knows = |known: ByteRange| known.start <= range.start && range.start < known.end;
        let (Block::Data(known) | Block::Hole(known)) = self.known;
        if !knows(known) {
            self.known = self.look(range);
        }
        let part = |known: ByteRange| ByteRange {
            start: range.start,
            end: known.end.min(range.end),
        };
        match self.known {
            Block::Data(known) => Block::Data(part(known)),
            Block::Hole(known) => Block::Hole(part(known)),
        }
    }

    fn look(&self, range: ByteRange) -> Block {
        let start = range.start;
        let mut end = start;
        while end < range.end && end - start < LOOK_AHEAD {
            match self.run_at(end) {
                Run::Hole { end: to } if to.min(range.end) - end >= HOLE_LEAST => {
                    if end == start {
                        return Block::Hole(ByteRange { start, end: to });
                    }
                    break;
                }
                Run::Hole { end: to } | Run::Data { end: to } => end = to,
            }
        }
        let end = end.min(range.end);
        Block::Data(ByteRange { start, end })
    }

    /// In wire offsets; never empty.
    fn run_at(&self, at: u64) -> Run {
        let unknown_facts_are_question_marks = Run::Data { end: u64::MAX };
        let Some(offset) = self.base.checked_add(at) else {
            return unknown_facts_are_question_marks;
        };
        match self.file.run_at(offset) {
            Run::Hole { end } if end > offset => Run::Hole {
                end: end - self.base,
            },
            Run::Data { end } if end > offset => Run::Data {
                end: end - self.base,
            },
            Run::Hole { .. } | Run::Data { .. } => unknown_facts_are_question_marks,
        }
    }
}
