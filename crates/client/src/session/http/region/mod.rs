//! The bytes of a file that lanes fetch or send at the same time: who takes which of them next.
//!
//! A lane has one piece after the other, each of them one request. A request costs a round trip in
//! which its connection rests, so a piece takes many of those; the last ones are shorter, so that
//! all lanes end together, and one that has none left takes some of another's.

mod pieces;
#[cfg(test)]
mod tests;

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant, SystemTime},
};

use godwit_http::multistatus::Resource;
use godwit_proto::{ByteRange, RangeSet, Reply, error::TransferFailure};
use parking_lot::Mutex;
use tokio::sync::Notify;

pub(super) use self::pieces::HALF_BYTES_MIN;
pub(crate) use self::pieces::LANE_BYTES_MIN;
use self::pieces::{Active, State};
use crate::{local::journal::SafeRanges, report::progress::RequestTotals};

/// A file of more bytes is sent in parts: they cost round trips, but not all is lost with one.
pub(super) const PARTED_BYTES_MIN: u64 = 8 << 20;

/// Time until a lane that waits looks again whether another has become slow.
const LOOK_INTERVAL: Duration = Duration::from_millis(100);

/// Why a lane has ended.
#[derive(Debug)]
pub(super) enum Failure {
    Transfer(TransferFailure),
    /// `true`: bytes of the transfer have come before.
    Refused(Reply, bool),
    /// The file is another one than that of the first answer.
    Changed,
    /// The server has no room for this connection, and may have for fewer.
    Crowded(Box<Failure>),
}

impl Failure {
    pub(super) fn lost(why: impl Into<String>) -> Self {
        Self::Transfer(TransferFailure::ConnectionLost(why.into()))
    }
}

/// By what a server is asked for the same version of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Validator {
    /// A strong `ETag`.
    Tag(String),
    /// `Last-Modified`.
    Date(String),
    /// Size and time that the server lists; its answers to GET name none. Whether they are the
    /// same is looked at when all has come.
    Listed(String),
}

/// What the text of [`Validator::Listed`] begins with, and no date nor tag.
const LISTED: &str = "listed ";

impl Validator {
    /// Of its text: tags are in quotes.
    fn of(text: String) -> Self {
        match &text {
            _ if text.starts_with('"') => Self::Tag(text),
            _ if text.starts_with(LISTED) => Self::Listed(text),
            _ => Self::Date(text),
        }
    }

    fn text(&self) -> String {
        let (Self::Tag(text) | Self::Date(text) | Self::Listed(text)) = self;
        text.clone()
    }

    /// Of what the server lists. `None`: that tells no version.
    pub(super) fn listed(resource: &Resource) -> Option<Self> {
        let (size, time) = (resource.size?, resource.modified?);
        let time = time.duration_since(SystemTime::UNIX_EPOCH).ok()?;
        Some(Self::Listed(format!("{LISTED}{size} {}", time.as_secs())))
    }
}

/// Bytes of the file from the first of the transfer on, and the lanes that fetch them.
pub(super) struct Region {
    state: Mutex<State>,
    /// For lanes that wait.
    lanes: Notify,
    /// For the one that looks after them.
    pub(super) watcher: Notify,
    pub(super) totals: Arc<RequestTotals>,
    /// Where it is recorded which bytes are safe, and the byte of the file that is byte 0 here.
    record: Option<(Arc<SafeRanges>, u64)>,
}

/// Bytes for a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) start: u64,
    /// `None`: to the end, wherever that is.
    pub(super) end: Option<u64>,
    /// No answer has come before.
    pub(super) is_first: bool,
    /// Nothing of the region lies behind it.
    pub(super) is_rest: bool,
    /// Another lane sends the same, and is slow.
    pub(super) is_again: bool,
}

/// What became of a transfer.
pub(super) struct Fetched {
    pub(super) safe: RangeSet,
    pub(super) failure: Option<Failure>,
    pub(super) is_stopped: bool,
}

impl Region {
    /// `room`: bytes that the file takes before others are read from it; `round_trip`: to the
    /// server.
    pub(super) fn new(start: u64, end: Option<u64>, room: u64, round_trip: Duration) -> Self {
        Self {
            state: Mutex::new(State::new(start, end, room, round_trip)),
            lanes: Notify::new(),
            watcher: Notify::new(),
            totals: Arc::new(RequestTotals::new(false)),
            record: None,
        }
    }

    /// `record`: which bytes are safe is recorded there, of which `offset` is byte 0 here. They are
    /// of the version that it names.
    pub(super) fn recorded_in(mut self, record: Option<&Arc<SafeRanges>>, offset: u64) -> Self {
        let version = record.and_then(|record| record.version());
        self.state.get_mut().validator = version.map(Validator::of);
        let record = record.map(|record| (Arc::clone(record), offset));
        Self { record, ..self }
    }

    /// One that is sent to a server that takes parts. `are_open`: they may end before their end.
    /// `room`: bytes of the file that can be there, from the first that was not sent on.
    pub(super) fn of_parts(end: u64, room: u64, round_trip: Duration, are_open: bool) -> Self {
        let mut region = Self {
            totals: Arc::new(RequestTotals::new(true)),
            ..Self::new(0, Some(end), room, round_trip)
        };
        let state = region.state.get_mut();
        state.is_begun = true;
        state.has_parts = true;
        state.is_sent = true;
        state.can_cut = are_open;
        region
    }

    /// Each piece but the last has so many bytes, and begins where one of them does.
    pub(super) fn in_grains(mut self, bytes: u64) -> Self {
        self.state.get_mut().grain = Some(bytes);
        self
    }

    /// So many lanes may carry it at most, spare ones included.
    pub(super) fn allow(&self, lanes: usize) {
        self.state.lock().allowed = lanes;
    }

    /// So many lanes are wanted from now on. Which of them are to be sent here that are not.
    pub(super) fn want(&self, lanes: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        let most = state.crowded.unwrap_or(usize::MAX);
        // Those that run go on to the end.
        let useful = match state.is_alone {
            true => 1,
            false => state.useful_lanes().max(state.running.len()),
        };
        let wanted = lanes.min(most).min(useful).max(1);
        let grows = wanted > state.wanted;
        state.wanted = wanted;
        if grows {
            state.shorten();
        }
        let is_over = state.failure.is_some() || state.is_stopped || !state.has_work();
        let spares = state.spares().min(state.waiting());
        let missing = match is_over {
            true => 0,
            false => (wanted + spares).saturating_sub(state.running.len()),
        };
        let free: Vec<_> = (0..)
            .filter(|lane| !state.running.contains(lane))
            .take(missing)
            .collect();
        state.running.extend(&free);
        self.count(&state);
        drop(state);
        self.lanes.notify_waiters();
        free
    }

    /// The next piece for a lane that has none; `None`: it is to end.
    pub(super) async fn take(&self, lane: usize) -> Option<Piece> {
        loop {
            let room = self.lanes.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let mut state = self.state.lock();
                if state.is_one_too_many(lane) {
                    state.leaving.push(lane);
                }
                if state.failure.is_some()
                    || state.is_stopped
                    || state.leaving.contains(&lane)
                    || !(state.has_work() || state.may_repeat())
                {
                    return None;
                }
                if let Some(piece) = state.hand_out(lane) {
                    return Some(piece);
                }
            }
            let _ = tokio::time::timeout(LOOK_INTERVAL, room).await;
        }
    }

    /// Whether the lane is to end within its piece, as there is one too many: what is left of that
    /// is for others.
    pub(super) fn retires(&self, lane: usize) -> bool {
        let mut state = self.state.lock();
        if !state.is_one_too_many(lane) {
            return false;
        }
        let own = state.position(lane);
        let Some(own) = own.filter(|own| state.may_divide(&state.active[*own])) else {
            return false;
        };
        let own = state.active.swap_remove(own);
        state.returned.push((own.at, own.end));
        state.leaving.push(lane);
        drop(state);
        self.lanes.notify_waiters();
        true
    }

    /// Whether lanes wait for the first answer.
    pub(super) fn is_awaited(&self) -> bool {
        let state = self.state.lock();
        !state.is_begun && state.wanted > 1
    }

    /// Waits until no lane finds anything to do.
    pub(super) async fn is_through(&self) {
        loop {
            let change = self.lanes.notified();
            tokio::pin!(change);
            change.as_mut().enable();
            let is_through = {
                let state = self.state.lock();
                state.failure.is_some() || state.is_stopped || !state.has_work()
            };
            if is_through {
                return;
            }
            change.await;
        }
    }

    /// Bytes of it have arrived.
    pub(super) fn has_some(&self) -> bool {
        !self.state.lock().safe.is_empty()
    }

    /// Where the region ends, where that is known.
    pub(super) fn end(&self) -> Option<u64> {
        self.state.lock().end
    }

    /// Where the lane's piece ends now: others may have taken of it.
    pub(super) fn end_of(&self, lane: usize) -> Option<u64> {
        let state = self.state.lock();
        state.end?;
        let own = state.position(lane);
        own.map(|own| state.active[own].end)
    }

    /// What the file's version is asked for by; `None` before the first answer, and where the
    /// server tells none.
    pub(super) fn validator(&self) -> Option<Validator> {
        self.state.lock().validator.clone()
    }

    /// The first answer: parts can be asked for, or the lane has all of it.
    pub(super) fn begun(&self, lane: usize, validator: Option<Validator>, has_parts: bool) {
        let mut state = self.state.lock();
        if let Some((record, _)) = &self.record {
            record.set_version(validator.as_ref().map(Validator::text));
        }
        state.validator = validator;
        state.is_begun = true;
        state.has_parts = has_parts;
        let end = state.end.unwrap_or(u64::MAX);
        if !has_parts {
            if let Some(own) = state.position(lane) {
                state.active[own].end = end;
            }
            state.next = end;
            state.wanted = 1;
        } else if state.wanted > 1 {
            state.shorten();
        }
        drop(state);
        self.lanes.notify_waiters();
        self.watcher.notify_one();
    }

    /// The first answer is a part, and its server does not tell of which version. No lane asks for
    /// any before that is found out, see [`Self::tell_version`].
    pub(super) fn ask_version(&self, lane: usize) {
        let mut state = self.state.lock();
        if let Some(own) = state.position(lane) {
            state.next = state.active.swap_remove(own).start;
        }
        let returned = std::mem::take(&mut state.returned);
        let first = returned.iter().map(|(start, _)| *start).min();
        state.next = state.next.min(first.unwrap_or(u64::MAX));
        state.asks_version = true;
        drop(state);
        self.watcher.notify_one();
    }

    /// Whether lanes wait for [`Self::tell_version`].
    pub(super) fn asks_version(&self) -> bool {
        self.state.lock().asks_version
    }

    /// What is fetched is of this version. Without one, a lane is to ask for all of it.
    pub(super) fn tell_version(&self, version: Option<Validator>) {
        let mut state = self.state.lock();
        state.asks_version = false;
        if version.is_none() {
            state.is_alone = true;
            state.wanted = 1;
        }
        state.validator = version;
        drop(state);
        self.lanes.notify_waiters();
    }

    /// So many bytes more of the lane's piece are written.
    pub(super) fn written(&self, lane: usize, bytes: u64) {
        let mut state = self.state.lock();
        let Some(own) = state.position(lane) else {
            return;
        };
        let start = state.active[own].at;
        let end = start + bytes;
        state.active[own].at = end;
        state.safe.insert(ByteRange { start, end });
        self.has_moved(&mut state, lane);
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        let has_window = state.window < u64::MAX;
        let vouched = match state.is_last_doubted(end) {
            true => end - 1,
            false => end,
        };
        drop(state);
        self.record(start, vouched);
        if has_window {
            self.lanes.notify_waiters();
        }
    }

    /// The version that the server lists is still the same: the last byte counts, too.
    pub(super) fn vouch(&self) {
        if let Some(end) = self.end() {
            self.record(end.saturating_sub(1), end);
        }
    }

    fn record(&self, start: u64, end: u64) {
        if let Some((record, offset)) = &self.record
            && let Some(range) = ByteRange::new(start + offset, end + offset)
        {
            record.add(range);
        }
    }

    /// The server has all of the lane's piece. `false`: another lane has sent that before.
    pub(super) fn confirmed(&self, lane: usize) -> bool {
        let mut state = self.state.lock();
        let Some(own) = state.position(lane) else {
            return false;
        };
        let own = state.active.swap_remove(own);
        if let Some(twin) = state.twin(&own) {
            let twin = state.active.swap_remove(twin);
            state.outrun.push(twin.lane);
        }
        let Active { start, end, .. } = own;
        state.safe.insert(ByteRange { start, end });
        if let Some(pace) = state.paces.get_mut(&lane) {
            pace.done(end - start);
        }
        drop(state);
        self.record(start, end);
        self.lanes.notify_waiters();
        true
    }

    /// Waits until another lane has sent what the lane is sending.
    pub(super) async fn is_outrun(&self, lane: usize) {
        loop {
            let change = self.lanes.notified();
            tokio::pin!(change);
            change.as_mut().enable();
            if self.state.lock().outrun.contains(&lane) {
                return;
            }
            change.await;
        }
    }

    /// The bytes before `at` of the lane's piece that begins at `start` are on their way, and it
    /// reads as many as `next` before it asks again. Where it ends now: others may have taken of
    /// it, and it ends here if the rest is for others. `None`: it is not the lane's any more.
    pub(super) fn sent(&self, lane: usize, start: u64, (at, next): (u64, u64)) -> Option<u64> {
        let mut state = self.state.lock();
        let own = state.position(lane)?;
        if state.active[own].start != start {
            return None;
        }
        state.active[own].at = at;
        state.active[own].chunk = next;
        let end = state.active[own].end;
        if at > start {
            self.has_moved(&mut state, lane);
        } else if let Some(pace) = state.paces.get_mut(&lane) {
            // Sent again, it takes its time from now on.
            pace.began = Instant::now();
        }
        let is_long = state.may_divide(&state.active[own]);
        let leaves = is_long && state.is_one_too_many(lane);
        let is_late = state.can_cut && at < end && state.is_late(lane);
        if at == start || !(leaves || is_late) {
            let waits = at == end && state.spares() > 0;
            let has_window = state.window < u64::MAX;
            drop(state);
            if has_window || waits {
                self.lanes.notify_waiters();
            }
            if waits {
                self.watcher.notify_one();
            }
            return Some(end);
        }
        state.active[own].end = at;
        state.returned.push((at, end));
        state.leaving.extend(leaves.then_some(lane));
        drop(state);
        self.lanes.notify_waiters();
        Some(at)
    }

    /// The lane has all of its piece. `ends`: it was the last, of a file of unknown length.
    pub(super) fn done(&self, lane: usize, ends: bool) {
        let mut state = self.state.lock();
        if let Some(own) = state.position(lane) {
            let own = state.active.swap_remove(own);
            if let Some(pace) = state.paces.get_mut(&lane) {
                pace.done(own.at - own.start);
            }
            if ends {
                state.end = Some(own.at);
                state.next = own.at;
            }
        }
        drop(state);
        self.lanes.notify_waiters();
    }

    /// The lane ends; `failure`: why it could not do its piece.
    pub(super) fn left(&self, lane: usize, mut failure: Option<Failure>) {
        let mut state = self.state.lock();
        let own = state.position(lane);
        let own = own.map(|own| state.active.swap_remove(own));
        let twin = own.and_then(|own| state.twin(&own));
        if let Some(twin) = twin {
            state.active[twin].is_twice = false;
        }
        let is_lost = matches!(
            failure,
            Some(Failure::Crowded(_) | Failure::Transfer(TransferFailure::ConnectionLost(_)))
        );
        // Of two that send the same the other goes on, or was faster: then the server may refuse
        // what came behind.
        if is_lost && twin.is_some() || state.outrun.contains(&lane) {
            failure = None;
        }
        state.outrun.retain(|of| *of != lane);
        state.running.retain(|of| *of != lane);
        state.moving.retain(|of| *of != lane);
        state.leaving.retain(|of| *of != lane);
        match failure {
            Some(Failure::Crowded(_)) if !state.running.is_empty() => {
                state.has_no_spares = true;
                let running = state.running.len();
                // Or it was one of the spare ones.
                if running < state.wanted {
                    state.crowded = Some(running);
                    state.wanted = running;
                }
                let own = own.map(|own| match state.is_sent {
                    // Nothing of it is confirmed.
                    true => (own.start, own.end),
                    false => (own.at, own.end),
                });
                state.returned.extend(own.filter(|(at, end)| at < end));
            }
            Some(Failure::Crowded(failure)) => drop(state.failure.get_or_insert(*failure)),
            Some(failure) => drop(state.failure.get_or_insert(failure)),
            None => {}
        }
        self.count(&state);
        drop(state);
        self.lanes.notify_waiters();
        self.watcher.notify_one();
    }

    /// The transfer has failed: no lane begins another piece.
    pub(super) fn fail(&self, failure: Failure) {
        self.state.lock().failure.get_or_insert(failure);
        self.lanes.notify_waiters();
        self.watcher.notify_one();
    }

    /// No lane begins another piece.
    pub(super) fn stop(&self) {
        self.state.lock().is_stopped = true;
        self.lanes.notify_waiters();
        self.watcher.notify_one();
    }

    /// The server turned a lane away, and has room for these.
    pub(super) fn crowded(&self) -> Option<u32> {
        let state = self.state.lock();
        state.crowded.and_then(|lanes| u32::try_from(lanes).ok())
    }

    /// Bytes a second of the lane's last piece.
    pub(super) fn pace(&self, lane: usize) -> Option<f64> {
        self.state.lock().paces.get(&lane)?.rate
    }

    /// Lanes that run.
    pub(super) fn running(&self) -> usize {
        self.state.lock().running.len()
    }

    /// One more than the highest number of those.
    pub(super) fn highest(&self) -> usize {
        let state = self.state.lock();
        state.running.iter().max().map_or(0, |lane| lane + 1)
    }

    /// A lane has ended because of a failure.
    pub(super) fn has_failed(&self) -> bool {
        self.state.lock().failure.is_some()
    }

    /// Once no lane runs: whether that is the end.
    pub(super) fn is_over(&self) -> bool {
        let state = self.state.lock();
        let is_idle = state.running.is_empty();
        is_idle && (state.failure.is_some() || state.is_stopped || !state.has_work())
    }

    pub(super) fn finish(&self) -> Fetched {
        let mut state = self.state.lock();
        Fetched {
            safe: std::mem::take(&mut state.safe),
            failure: state.failure.take(),
            is_stopped: state.is_stopped,
        }
    }

    fn has_moved(&self, state: &mut State, lane: usize) {
        if !state.moving.contains(&lane) {
            state.moving.push(lane);
            self.count(state);
        }
    }

    /// A lane is a channel once its connection carries bytes: before that it costs round trips of
    /// handshakes, in which goodput does not tell of it.
    fn count(&self, state: &State) {
        let lanes = u32::try_from(state.channels()).unwrap_or(u32::MAX);
        self.totals.channels.store(lanes, Ordering::Relaxed);
    }
}
