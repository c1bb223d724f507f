//! Files in flight on one control channel: whose reply is whose, whose turn it is to use the data
//! channels. No I/O.
//!
//! ```text
//!       command sent      1xx          data moved     2xx and check      renamed
//!   get ─► Waiting ─► (its turn) ─► Flowing ─► Moved ─► Arrived
//!   put ─► Waiting ─► (its turn) ─► Flowing ─► Moved ─► Arrived ─► Renaming ─► Renamed
//!                     no 1xx awaited
//! ```
//! A MODE E block says where in its file it belongs and not of which file it is: bytes belong to
//! files in the order of the transfers that the server has begun. So a get reads only after the 1xx
//! of its file, and a refused one is passed over. Of a server that ends the data channels with each
//! get that it refuses it reads at once: what comes then is the file's, and where the channels end
//! the answer says why. A put is sent before its 1xx, or each would cost a round trip; then a
//! refusal means that its bytes lie on the channels and meet the next file (GCT's server writes
//! them into it), so that nothing sent behind it counts.

use std::collections::VecDeque;

use godwit_proto::{
    Command, Reply, error::TransferFailure, pi::client::CommandId, pi::transfer::Direction,
};

use crate::transfer::verify::AgreedChecksum;

/// Files in flight, oldest first.
#[derive(Debug)]
pub(crate) struct InFlightFiles<T> {
    direction: Direction,
    /// Gets read before their 1xx.
    reads_ahead: bool,
    slots: VecDeque<InFlightFile<T>>,
    /// Slots whose bytes have moved, behind them those that flow, behind them all that wait: bytes
    /// follow the order of the files.
    moved: usize,
    flowing: usize,
    renaming: usize,
    /// Bytes of commands of files in flight.
    command_bytes: usize,
    /// Bytes of files that would come again, were the session lost.
    unresumable_bytes: u64,
}

/// A file in flight.
#[derive(Debug)]
pub(crate) struct InFlightFile<T> {
    pub(crate) load: T,
    transfer: CommandId,
    /// CKSM or SIZE.
    check: Option<CommandId>,
    /// RNFR and RNTO.
    rename: Option<[CommandId; 2]>,
    /// What sets its time and mode, sent before what gives it its name.
    attribute_commands: Vec<(CommandId, Command)>,
    /// Bytes of its commands.
    bytes: usize,
    unresumable_bytes: u64,
    /// A 1xx came.
    pub(crate) begun: bool,
    data: DataState,
    pub(crate) answer: Option<Reply>,
    pub(crate) checked: Option<Reply>,
    /// The answers to what set time and mode.
    pub(crate) attribute_replies: Vec<(Command, Reply)>,
    pub(crate) renamed: [Option<Reply>; 2],
    /// What the check has come to.
    pub(crate) agreed: Option<AgreedChecksum>,
}

#[derive(Debug)]
enum DataState {
    Waiting,
    LocalData,
    Moved(Result<(), TransferFailure>),
}

/// What a file has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileProgress {
    /// Something is still due.
    Open,
    /// The server refused the transfer, or broke it off.
    Refused,
    /// The data plane failed.
    Broken,
    /// Moved, said to be so, and the check is answered.
    Arrived,
    /// The rename is answered.
    Renamed,
}

impl<T> InFlightFiles<T> {
    /// `sure`: the server sends nothing more on data channels behind a get that it refuses.
    pub(crate) fn new(direction: Direction, sure: bool) -> Self {
        Self {
            direction,
            reads_ahead: sure && direction == Direction::Get,
            slots: VecDeque::new(),
            moved: 0,
            flowing: 0,
            renaming: 0,
            command_bytes: 0,
            unresumable_bytes: 0,
        }
    }

    /// The commands of a further file were sent, so many bytes. Of the file so many would come
    /// again, were the session lost.
    pub(crate) fn push(
        &mut self,
        load: T,
        transfer: CommandId,
        attribute_commands: Vec<(CommandId, Command)>,
        check: Option<CommandId>,
        bytes: usize,
        unresumable_bytes: u64,
    ) {
        self.command_bytes += bytes;
        self.unresumable_bytes += unresumable_bytes;
        self.slots.push_back(InFlightFile {
            load,
            transfer,
            check,
            rename: None,
            attribute_commands,
            bytes,
            unresumable_bytes,
            begun: false,
            data: DataState::Waiting,
            answer: None,
            checked: None,
            attribute_replies: Vec::new(),
            renamed: [None, None],
            agreed: None,
        });
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.slots.is_empty()
    }

    /// Files that are not being renamed: that is what the depth counts.
    pub(crate) fn in_flight(&self) -> usize {
        self.slots.len() - self.renaming
    }

    /// Bytes of commands of files in flight.
    pub(crate) fn command_bytes(&self) -> usize {
        self.command_bytes
    }

    /// Bytes of files that would come again, were the session lost.
    pub(crate) fn unresumable_bytes(&self) -> u64 {
        self.unresumable_bytes
    }

    /// A reply, 1xx without its text. The place of the file it is for; `None`: for none of these.
    pub(crate) fn on_reply(&mut self, id: CommandId, answer: Option<Reply>) -> Option<usize> {
        let at = self.slots.iter().position(|s| s.owns(id))?;
        let slot = &mut self.slots[at];
        match (answer, slot.rename) {
            (None, _) => slot.begun |= id == slot.transfer,
            (answer, _) if id == slot.transfer => slot.answer = answer,
            (answer, _) if Some(id) == slot.check => slot.checked = answer,
            (answer, Some(rename)) if rename.contains(&id) => {
                slot.renamed[usize::from(id != rename[0])] = answer;
            }
            (Some(answer), _) => slot.on_attribute_reply(id, answer),
        }
        Some(at)
    }

    /// The file that uses the data channels after those that flow, marked as flowing too; `None`
    /// while none may.
    pub(crate) fn next_to_flow(&mut self) -> Option<&T> {
        let awaits = self.direction == Direction::Get && !self.reads_ahead;
        let next = self.slots.get_mut(self.moved + self.flowing)?;
        // A refused file is taken out, not waited for.
        if awaits && !next.begun || next.answer.as_ref().is_some_and(|r| !r.code.is_success()) {
            return None;
        }
        next.data = DataState::LocalData;
        self.flowing += 1;
        Some(&next.load)
    }

    /// The data plane of the first file that flows has ended. Its place.
    pub(crate) fn moved(&mut self, result: Result<(), TransferFailure>) -> Option<usize> {
        self.flowing = self.flowing.checked_sub(1)?;
        let at = self.moved;
        self.moved += 1;
        self.slots[at].data = DataState::Moved(result);
        Some(at)
    }

    /// The first that flows was refused: with it the server has ended the data channels, and
    /// nothing flows that is behind it.
    pub(crate) fn flows_no_more(&self) -> bool {
        let first = self.slots.get(self.moved).filter(|_| self.flowing > 0);
        self.reads_ahead && first.is_some_and(InFlightFile::is_refused)
    }

    /// What the file at `at` has come to.
    pub(crate) fn state(&self, at: usize) -> FileProgress {
        let Some(slot) = self.slots.get(at) else {
            return FileProgress::Open;
        };
        if slot.rename.is_some() {
            let answered = slot.renamed.iter().all(Option::is_some);
            return if answered {
                FileProgress::Renamed
            } else {
                FileProgress::Open
            };
        }
        let unheard = self.reads_ahead && !slot.begun;
        match (&slot.answer, &slot.data) {
            // Its bytes are on their way, or the answer that tells why they are not.
            (Some(_), DataState::LocalData) | (None, DataState::Moved(Err(_))) if unheard => {
                FileProgress::Open
            }
            (Some(answer), _) if !answer.code.is_success() => FileProgress::Refused,
            // Without a 1xx nothing was read of what the server calls complete.
            (Some(_), DataState::Waiting) if self.direction == Direction::Get && !slot.begun => {
                FileProgress::Refused
            }
            (_, DataState::Moved(Err(_))) => FileProgress::Broken,
            (Some(_), DataState::Moved(_)) if slot.check.is_none() || slot.checked.is_some() => {
                FileProgress::Arrived
            }
            _ => FileProgress::Open,
        }
    }

    /// What sets time and mode of the file at `at`, RNFR and RNTO were sent, in this order.
    pub(crate) fn renames(
        &mut self,
        at: usize,
        attribute_commands: Vec<(CommandId, Command)>,
        rename: [CommandId; 2],
        bytes: usize,
    ) {
        if let Some(slot) = self.slots.get_mut(at) {
            slot.attribute_commands = attribute_commands;
            self.renaming += usize::from(slot.rename.replace(rename).is_none());
            let before = std::mem::replace(&mut slot.bytes, bytes);
            self.command_bytes = self.command_bytes - before + bytes;
        }
    }

    pub(crate) fn get(&self, at: usize) -> Option<&InFlightFile<T>> {
        self.slots.get(at)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut InFlightFile<T>> {
        self.slots.get_mut(at)
    }

    /// The file at `at` is settled.
    pub(crate) fn remove(&mut self, at: usize) -> Option<InFlightFile<T>> {
        let slot = self.slots.remove(at)?;
        match slot.data {
            DataState::Waiting => {}
            DataState::LocalData => self.flowing -= 1,
            DataState::Moved(_) => self.moved -= 1,
        }
        self.renaming -= usize::from(slot.rename.is_some());
        self.command_bytes -= slot.bytes;
        self.unresumable_bytes -= slot.unresumable_bytes;
        Some(slot)
    }

    /// All that are left, in order: nothing is known for certain of any.
    pub(crate) fn give_up(&mut self) -> impl Iterator<Item = T> {
        let all = std::mem::replace(self, Self::new(self.direction, self.reads_ahead));
        all.slots.into_iter().map(|s| s.load)
    }
}

impl<T> InFlightFile<T> {
    fn owns(&self, id: CommandId) -> bool {
        id == self.transfer
            || Some(id) == self.check
            || self.rename.is_some_and(|rename| rename.contains(&id))
            || self.attribute_commands.iter().any(|(of, _)| *of == id)
    }

    fn on_attribute_reply(&mut self, id: CommandId, answer: Reply) {
        if let Some((_, command)) = self.attribute_commands.iter().find(|(of, _)| *of == id) {
            self.attribute_replies.push((command.clone(), answer));
        }
    }

    /// Its bytes do not come: it was refused before it began.
    fn is_refused(&self) -> bool {
        let refused = (self.answer.as_ref()).is_some_and(|reply| !reply.code.is_success());
        refused && !self.begun
    }

    /// All that flowed for it has come.
    pub(crate) fn is_whole(&self) -> bool {
        matches!(self.data, DataState::Moved(Ok(())))
    }

    /// Why its bytes did not move.
    pub(crate) fn failure(&self) -> Option<&TransferFailure> {
        match &self.data {
            DataState::Moved(result) => result.as_ref().err(),
            DataState::Waiting | DataState::LocalData => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_proto::ReplyCode;

    use super::*;

    fn reply(code: u16) -> Option<Reply> {
        Some(Reply::new(ReplyCode::of(code), "x"))
    }

    /// Three files, transfers 0, 2, 4 and checks 1, 3, 5.
    fn three(direction: Direction) -> InFlightFiles<char> {
        let mut in_flight_files = InFlightFiles::new(direction, false);
        for (i, name) in (0..).zip(['a', 'b', 'c']) {
            let check = Some(CommandId(2 * i + 1));
            in_flight_files.push(name, CommandId(2 * i), Vec::new(), check, 10, 0);
        }
        in_flight_files
    }

    #[test]
    fn a_get_reads_in_its_turn_after_1xx_and_completes_with_its_checksum() {
        let mut in_flight_files = three(Direction::Get);
        assert_eq!(in_flight_files.next_to_flow(), None);
        assert_eq!(in_flight_files.on_reply(CommandId(0), None), Some(0));
        assert_eq!(in_flight_files.next_to_flow(), Some(&'a'));
        in_flight_files.on_reply(CommandId(0), reply(226));
        in_flight_files.on_reply(CommandId(1), reply(213));
        assert_eq!(
            in_flight_files.next_to_flow(),
            None,
            "no 1xx for the second"
        );
        in_flight_files.on_reply(CommandId(2), None);
        assert_eq!(in_flight_files.next_to_flow(), Some(&'b'));
        assert_eq!(in_flight_files.state(0), FileProgress::Open);
        assert_eq!(in_flight_files.moved(Ok(())), Some(0));
        assert_eq!(in_flight_files.state(0), FileProgress::Arrived);
        assert_eq!(in_flight_files.remove(0).map(|s| s.load), Some('a'));
        assert_eq!(in_flight_files.moved(Ok(())), Some(0), "then the second's");
        assert_eq!(in_flight_files.next_to_flow(), None);
    }

    #[test]
    fn gets_from_godwitd_read_at_once_and_its_reply_explains_missing_data() {
        let mut in_flight_files = three(Direction::Get);
        in_flight_files.reads_ahead = true;
        for load in ['a', 'b', 'c'] {
            assert_eq!(in_flight_files.next_to_flow(), Some(&load));
        }
        in_flight_files.on_reply(CommandId(0), None);
        assert_eq!(in_flight_files.moved(Ok(())), Some(0));
        // The second is refused, and the channels end, which they may do between two transfers
        // without a word.
        assert!(!in_flight_files.flows_no_more());
        assert_eq!(in_flight_files.on_reply(CommandId(2), reply(550)), Some(1));
        assert_eq!(
            in_flight_files.state(1),
            FileProgress::Open,
            "its bytes first"
        );
        assert!(in_flight_files.flows_no_more());
        let lost = || Err(TransferFailure::ConnectionLost("x".into()));
        assert_eq!(in_flight_files.moved(lost()), Some(1));
        assert_eq!(in_flight_files.state(1), FileProgress::Refused);
        assert_eq!(in_flight_files.moved(lost()), Some(2));
        assert_eq!(
            in_flight_files.state(2),
            FileProgress::Open,
            "its answer first"
        );
        in_flight_files.on_reply(CommandId(4), reply(425));
        assert_eq!(in_flight_files.state(2), FileProgress::Refused);
        // One that the server has begun was broken off.
        let mut in_flight_files = three(Direction::Get);
        in_flight_files.reads_ahead = true;
        in_flight_files.on_reply(CommandId(0), None);
        in_flight_files.next_to_flow();
        in_flight_files.moved(lost());
        assert_eq!(in_flight_files.state(0), FileProgress::Broken);
    }

    #[test]
    fn a_refused_get_is_passed_over() {
        let mut in_flight_files = three(Direction::Get);
        assert_eq!(in_flight_files.on_reply(CommandId(0), reply(550)), Some(0));
        assert_eq!(in_flight_files.state(0), FileProgress::Refused);
        in_flight_files.remove(0);
        assert_eq!(
            in_flight_files.on_reply(CommandId(1), reply(550)),
            None,
            "its check belongs to no file"
        );
        in_flight_files.on_reply(CommandId(2), None);
        assert_eq!(in_flight_files.next_to_flow(), Some(&'b'));
    }

    #[test]
    fn puts_flow_unasked_and_in_order() {
        let mut in_flight_files = three(Direction::Put);
        for name in ['a', 'b', 'c'] {
            assert_eq!(in_flight_files.next_to_flow(), Some(&name));
        }
        assert_eq!(in_flight_files.next_to_flow(), None);
        assert_eq!(in_flight_files.moved(Ok(())), Some(0));
        assert_eq!(in_flight_files.moved(Ok(())), Some(1));
        in_flight_files.on_reply(CommandId(0), None);
        in_flight_files.on_reply(CommandId(0), reply(226));
        assert_eq!(
            in_flight_files.state(0),
            FileProgress::Open,
            "the check is due"
        );
        in_flight_files.on_reply(CommandId(1), reply(213));
        assert_eq!(in_flight_files.state(0), FileProgress::Arrived);
        let attribute_commands = vec![(CommandId(8), Command::Noop)];
        in_flight_files.renames(0, attribute_commands, [CommandId(6), CommandId(7)], 8);
        assert_eq!(
            (in_flight_files.in_flight(), in_flight_files.command_bytes()),
            (2, 28)
        );
        in_flight_files.on_reply(CommandId(8), reply(550));
        assert_eq!(
            in_flight_files.state(0),
            FileProgress::Open,
            "whatever that says"
        );
        in_flight_files.on_reply(CommandId(6), reply(350));
        assert_eq!(in_flight_files.state(0), FileProgress::Open);
        in_flight_files.on_reply(CommandId(7), reply(250));
        assert_eq!(in_flight_files.state(0), FileProgress::Renamed);
        assert_eq!(
            in_flight_files
                .get(0)
                .map(|slot| slot.attribute_replies.len()),
            Some(1)
        );
        assert_eq!(in_flight_files.give_up().collect::<String>(), "abc");
        assert!(in_flight_files.is_empty());
    }

    #[test]
    fn removals_keep_the_order_and_count_of_the_other_files() {
        let mut in_flight_files = three(Direction::Put);
        for _ in 0..2 {
            in_flight_files.next_to_flow();
        }
        // One that flows, then one that waits.
        assert_eq!(in_flight_files.remove(1).map(|s| s.load), Some('b'));
        assert_eq!(in_flight_files.remove(1).map(|s| s.load), Some('c'));
        assert_eq!(
            (in_flight_files.in_flight(), in_flight_files.command_bytes()),
            (1, 10)
        );
        assert_eq!(in_flight_files.next_to_flow(), None);
        in_flight_files.push('d', CommandId(8), Vec::new(), None, 7, 5);
        assert_eq!(in_flight_files.moved(Ok(())), Some(0));
        assert_eq!(in_flight_files.moved(Ok(())), None, "nothing else flows");
        assert_eq!(in_flight_files.next_to_flow(), Some(&'d'));
        in_flight_files.renames(0, Vec::new(), [CommandId(20), CommandId(21)], 30);
        assert_eq!(
            (in_flight_files.in_flight(), in_flight_files.command_bytes()),
            (1, 37)
        );
        assert_eq!(in_flight_files.remove(0).map(|s| s.load), Some('a'));
        assert_eq!(
            (in_flight_files.in_flight(), in_flight_files.command_bytes()),
            (1, 7)
        );
        assert_eq!(in_flight_files.moved(Ok(())), Some(0));
        assert_eq!(in_flight_files.give_up().collect::<String>(), "d");
        assert_eq!(
            (in_flight_files.in_flight(), in_flight_files.command_bytes()),
            (0, 0)
        );
    }

    #[test]
    fn failures_of_either_plane_end_a_file() {
        let mut in_flight_files = three(Direction::Put);
        in_flight_files.next_to_flow();
        in_flight_files.moved(Err(TransferFailure::Aborted));
        assert_eq!(in_flight_files.state(0), FileProgress::Broken);
        in_flight_files.on_reply(CommandId(0), reply(426));
        assert_eq!(
            in_flight_files.state(0),
            FileProgress::Refused,
            "the server's words say more"
        );
        let mut in_flight_files = three(Direction::Get);
        in_flight_files.on_reply(CommandId(0), reply(226));
        assert_eq!(
            in_flight_files.state(0),
            FileProgress::Refused,
            "no 1xx before it"
        );
        assert_eq!(in_flight_files.moved(Ok(())), None, "nothing flows");
        assert_eq!(in_flight_files.on_reply(CommandId(99), reply(200)), None);
        assert_eq!(in_flight_files.state(7), FileProgress::Open);
    }
}
