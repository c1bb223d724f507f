//! The bytes of a file that lanes fetch or send at the same time: who takes which of them next.
//!
//! A lane has one piece after the other, each of them one request. A request costs a round trip in
//! which its connection rests, so a piece takes many of those; the last ones are shorter, so that
//! all lanes end together, and one that has none left takes half of another's.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use godwit_proto::{ByteRange, RangeSet, Reply, error::TransferFailure};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::{local::journal::SafeRanges, report::progress::RequestTotals};

/// Bytes of a piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// Bytes of a piece that is sent: all of them are sent again where it breaks off.
const SENT_BYTES_MAX: u64 = 256 << 20;

/// A piece takes its lane so many round trips, as fast as that was with the piece before, and so
/// long: of one that is sent, less is lost with it.
const PIECE_ROUND_TRIPS: u32 = 100;
const PIECE_TIME_MIN: Duration = Duration::from_secs(1);
const PIECE_TIME_MAX: Duration = Duration::from_secs(20);
const SENT_TIME_MAX: Duration = Duration::from_secs(5);

/// A lane for fewer bytes is not worth its connection. A lane begins with so many: it is slow
/// beside others.
const LANE_BYTES_MIN: u64 = 4 << 20;

/// What a lane moves in fewer round trips is not divided: to ask for it takes others one, and the
/// lane that is cut short loses its connection.
const DIVIDED_ROUND_TRIPS: u32 = 8;

/// Time until a lane that waits looks again, where no other gets on.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);

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

struct State {
    /// First byte that no lane has.
    next: u64,
    /// `None`: as many as the server sends.
    end: Option<u64>,
    /// That lanes fetch now: the number of the lane, its next byte, and where it ends.
    active: Vec<(usize, u64, u64)>,
    /// What is known of lanes that have had a piece.
    paces: HashMap<usize, Pace>,
    /// That were given back.
    returned: Vec<(u64, u64)>,
    /// Lanes that may run.
    wanted: usize,
    /// That run.
    running: Vec<usize>,
    /// Of those, the ones that are about to end, as there was one too many.
    leaving: Vec<usize>,
    /// The first answer has come.
    is_begun: bool,
    /// Parts can be asked for.
    has_parts: bool,
    /// Parts may be of several versions: one lane fetches all of it in one answer.
    is_alone: bool,
    /// Pieces are sent: one counts when the server has confirmed it, and stays as long as it is.
    is_sent: bool,
    validator: Option<Validator>,
    safe: RangeSet,
    failure: Option<Failure>,
    /// The server had no room for more lanes than these.
    crowded: Option<usize>,
    is_stopped: bool,
    /// Bytes among which lanes work: as many as the file takes before others are read from it.
    window: u64,
    round_trip: Duration,
}

/// How fast a lane is.
struct Pace {
    /// When its last piece began, and where.
    began: (Instant, u64),
    /// Bytes a second of the last one that is done.
    rate: Option<f64>,
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
            state: Mutex::new(State {
                next: start,
                end,
                active: Vec::new(),
                paces: HashMap::new(),
                returned: Vec::new(),
                wanted: 1,
                running: Vec::new(),
                leaving: Vec::new(),
                is_begun: false,
                has_parts: false,
                is_alone: false,
                is_sent: false,
                validator: None,
                safe: RangeSet::new(),
                failure: None,
                crowded: None,
                is_stopped: false,
                window: room,
                round_trip: round_trip.min(PIECE_TIME_MIN),
            }),
            lanes: Notify::new(),
            watcher: Notify::new(),
            totals: Arc::new(RequestTotals::new(false)),
            record: None,
        }
    }

    /// `record`: which bytes are safe is recorded there, of which `offset` is byte 0 here.
    pub(super) fn recorded_in(self, record: Option<&Arc<SafeRanges>>, offset: u64) -> Self {
        let record = record.map(|record| (Arc::clone(record), offset));
        Self { record, ..self }
    }

    /// One that is sent to a server that takes parts.
    pub(super) fn of_parts(end: u64, round_trip: Duration) -> Self {
        let mut region = Self {
            totals: Arc::new(RequestTotals::new(true)),
            ..Self::new(0, Some(end), u64::MAX, round_trip)
        };
        let state = region.state.get_mut();
        state.is_begun = true;
        state.has_parts = true;
        state.is_sent = true;
        region
    }

    /// So many lanes are wanted from now on. Which of them are to be sent here that are not.
    pub(super) fn want(&self, lanes: usize) -> Vec<usize> {
        let mut state = self.state.lock();
        let most = state.crowded.unwrap_or(usize::MAX);
        let wanted = lanes.min(most).min(state.useful_lanes()).max(1);
        let grows = wanted > state.wanted;
        state.wanted = wanted;
        if grows {
            state.shorten();
        }
        let is_over = state.failure.is_some() || state.is_stopped || !state.has_work();
        let missing = match is_over {
            true => 0,
            false => wanted.saturating_sub(state.running.len()),
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
                if state.failure.is_some()
                    || state.is_stopped
                    || state.is_one_too_many(lane)
                    || state.leaving.contains(&lane)
                    || !state.has_work()
                {
                    return None;
                }
                if let Some(piece) = state.hand_out(lane) {
                    return Some(piece);
                }
            }
            // A lane that others wait for may have come to a stop.
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
        let own = state.active.iter().position(|(of, ..)| *of == lane);
        let Some(own) = own.filter(|own| state.may_divide(&state.active[*own])) else {
            return false;
        };
        let (_, at, end) = state.active.swap_remove(own);
        state.returned.push((at, end));
        state.leaving.push(lane);
        drop(state);
        self.lanes.notify_waiters();
        true
    }

    /// The first answer has come.
    pub(super) fn is_begun(&self) -> bool {
        self.state.lock().is_begun
    }

    /// Where the region ends, where that is known.
    pub(super) fn end(&self) -> Option<u64> {
        self.state.lock().end
    }

    /// Where the lane's piece ends now: others may have taken of it.
    pub(super) fn end_of(&self, lane: usize) -> Option<u64> {
        let state = self.state.lock();
        state.end?;
        let own = state.active.iter().find(|(of, ..)| *of == lane);
        own.map(|(_, _, end)| *end)
    }

    /// What the file's version is asked for by; `None` before the first answer, and where the
    /// server tells none.
    pub(super) fn validator(&self) -> Option<Validator> {
        self.state.lock().validator.clone()
    }

    /// The first answer: parts can be asked for, or the lane has all of it.
    pub(super) fn begun(&self, lane: usize, validator: Option<Validator>, has_parts: bool) {
        let mut state = self.state.lock();
        state.validator = validator;
        state.is_begun = true;
        state.has_parts = has_parts;
        let end = state.end.unwrap_or(u64::MAX);
        if !has_parts {
            if let Some(own) = state.active.iter_mut().find(|(of, ..)| *of == lane) {
                own.2 = end;
            }
            state.next = end;
            state.wanted = 1;
        }
        drop(state);
        self.lanes.notify_waiters();
        self.watcher.notify_one();
    }

    /// The first answer is a part, and its server does not tell of which version: the lane is to
    /// ask for all of it.
    pub(super) fn begin_alone(&self, lane: usize) {
        let mut state = self.state.lock();
        if let Some(at) = state.active.iter().position(|(of, ..)| *of == lane) {
            let (_, start, _) = state.active.swap_remove(at);
            state.next = start;
        }
        state.is_alone = true;
        state.wanted = 1;
    }

    /// So many bytes more of the lane's piece are written.
    pub(super) fn written(&self, lane: usize, bytes: u64) {
        let mut state = self.state.lock();
        let Some(own) = state.active.iter_mut().find(|(of, ..)| *of == lane) else {
            return;
        };
        let start = own.1;
        own.1 += bytes;
        let end = own.1;
        state.safe.insert(ByteRange { start, end });
        self.totals.bytes.fetch_add(bytes, Ordering::Relaxed);
        drop(state);
        self.record(start, end);
        self.lanes.notify_waiters();
    }

    fn record(&self, start: u64, end: u64) {
        if let Some((record, offset)) = &self.record
            && let Some(range) = ByteRange::new(start + offset, end + offset)
        {
            record.add(range);
        }
    }

    /// The server has all of the lane's piece.
    pub(super) fn confirmed(&self, lane: usize) {
        let mut state = self.state.lock();
        let own = state.active.iter().position(|(of, ..)| *of == lane);
        let own = own.map(|at| state.active.swap_remove(at));
        if let Some((_, start, end)) = own {
            state.safe.insert(ByteRange { start, end });
            if let Some(pace) = state.paces.get_mut(&lane) {
                pace.done(end);
            }
        }
        drop(state);
        if let Some((_, start, end)) = own {
            self.record(start, end);
        }
        self.lanes.notify_waiters();
    }

    /// The lane has all of its piece. `ends`: it was the last, of a file of unknown length.
    pub(super) fn done(&self, lane: usize, ends: bool) {
        let mut state = self.state.lock();
        if let Some(at) = state.active.iter().position(|(of, ..)| *of == lane) {
            let (_, at_byte, _) = state.active.swap_remove(at);
            if let Some(pace) = state.paces.get_mut(&lane) {
                pace.done(at_byte);
            }
            if ends {
                state.end = Some(at_byte);
                state.next = at_byte;
            }
        }
        drop(state);
        self.lanes.notify_waiters();
    }

    /// The lane ends; `failure`: why it could not do its piece.
    pub(super) fn left(&self, lane: usize, failure: Option<Failure>) {
        let mut state = self.state.lock();
        let own = state.active.iter().position(|(of, ..)| *of == lane);
        let own = own.map(|at| state.active.swap_remove(at));
        state.running.retain(|of| *of != lane);
        state.leaving.retain(|of| *of != lane);
        match failure {
            Some(Failure::Crowded(_)) if !state.running.is_empty() => {
                state.crowded = Some(state.running.len());
                state.wanted = state.running.len();
                state.returned.extend(
                    own.map(|(_, at, end)| (at, end))
                        .filter(|(at, end)| at < end),
                );
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

    /// The server turned a lane away, and has room for these; once.
    pub(super) fn take_crowded(&self) -> Option<u32> {
        let state = self.state.lock();
        state.crowded.and_then(|lanes| u32::try_from(lanes).ok())
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

    fn count(&self, state: &State) {
        let lanes = u32::try_from(state.running.len()).unwrap_or(u32::MAX);
        self.totals.channels.store(lanes, Ordering::Relaxed);
    }
}

impl Pace {
    /// The piece that has begun ends at `end`.
    fn done(&mut self, end: u64) {
        let (began, start) = self.began;
        let took = began.elapsed().as_secs_f64().max(1e-6);
        self.rate = Some(end.saturating_sub(start).max(1) as f64 / took);
    }
}

impl State {
    /// Bytes that no lane has.
    fn has_work(&self) -> bool {
        !self.returned.is_empty()
            || match (self.end, self.is_begun) {
                (Some(end), true) => {
                    self.next < end || self.active.iter().any(|own| self.may_divide(own))
                }
                (None, true) => false,
                // The others ask for the version that the first has got, and connect meanwhile.
                (Some(_), false) => true,
                (None, false) => self.active.is_empty(),
            }
    }

    /// More would have nothing to do.
    fn useful_lanes(&self) -> usize {
        let Some(end) = self.end.filter(|_| !self.is_alone) else {
            return 1;
        };
        let left = self
            .active
            .iter()
            .map(|(_, at, end)| end.saturating_sub(*at));
        let left: u64 = left.sum();
        let left = left + end.saturating_sub(self.next);
        usize::try_from(left / LANE_BYTES_MIN).unwrap_or(usize::MAX)
    }

    /// More lanes run than are wanted, and this is one of the slowest: the others have found their
    /// windows.
    fn is_one_too_many(&self, lane: usize) -> bool {
        let stays = |of: &&usize| !self.leaving.contains(of);
        let staying = self.running.iter().filter(stays);
        let more = staying.clone().count().saturating_sub(self.wanted);
        if more == 0 || self.is_sent {
            return more > 0;
        }
        let rate = |of: usize| {
            let own = self.active.iter().find(|(lane, ..)| *lane == of);
            let rate = match own {
                Some((_, at, _)) => self.rate_of(of, *at),
                None => self.paces.get(&of).and_then(|pace| pace.rate),
            };
            // Of two that are new, the one that came later.
            (rate.unwrap_or(0.0), usize::MAX - of)
        };
        let own = rate(lane);
        staying.filter(|of| rate(**of) < own).count() < more
    }

    /// Of so many bytes, so that no lane is left without.
    fn share_of(&self, left: u64) -> u64 {
        let lanes = self.wanted.max(1) as u64;
        left.div_ceil(lanes).max(LANE_BYTES_MIN)
    }

    /// The first byte that is not here.
    fn floor(&self) -> u64 {
        let active = self.active.iter().map(|(_, at, _)| *at);
        let returned = self.returned.iter().map(|(at, _)| *at);
        active.chain(returned).min().unwrap_or(self.next)
    }

    /// The next piece for a lane, which is timed from now on. `None`: nothing before others have
    /// got on.
    fn hand_out(&mut self, lane: usize) -> Option<Piece> {
        if !self.is_begun && !self.active.is_empty() {
            return None;
        }
        let piece = self.piece_for(lane)?;
        let began = (Instant::now(), piece.start);
        let pace = self.paces.entry(lane);
        let pace = pace.or_insert(Pace { began, rate: None });
        pace.began = began;
        Some(piece)
    }

    /// Bytes of the lane's next piece, of so many that no lane has.
    fn bytes_for(&self, lane: usize, left: u64) -> u64 {
        if self.wanted == 1 && !self.is_sent {
            return left;
        }
        let (time, most) = match self.is_sent {
            true => (SENT_TIME_MAX, SENT_BYTES_MAX),
            // Those of all lanes fit into it.
            false => (PIECE_TIME_MAX, (self.window / 4).max(PIECE_BYTES_MIN)),
        };
        let time = (self.round_trip * PIECE_ROUND_TRIPS).clamp(PIECE_TIME_MIN, time);
        let bytes = match self.paces.get(&lane).and_then(|pace| pace.rate) {
            Some(rate) => in_time(rate, time).max(PIECE_BYTES_MIN),
            None => LANE_BYTES_MIN,
        };
        bytes.min(most).min(self.share_of(left)).min(left)
    }

    fn piece_for(&mut self, lane: usize) -> Option<Piece> {
        let is_first = !self.is_begun;
        if let Some((start, end)) = self.returned.pop() {
            let cut = start + self.bytes_for(lane, end - start);
            if cut < end {
                self.returned.push((cut, end));
            }
            self.active.push((lane, start, cut));
            return Some(Piece {
                start,
                end: Some(cut),
                is_first,
                is_rest: false,
            });
        }
        let start = self.next;
        let Some(end) = self.end else {
            self.active.push((lane, start, u64::MAX));
            self.next = u64::MAX;
            return Some(Piece {
                start,
                end: None,
                is_first,
                is_rest: true,
            });
        };
        let bytes = self.bytes_for(lane, end - start);
        // A lane alone writes in order.
        let is_far = start + bytes > self.floor().saturating_add(self.window);
        if !self.active.is_empty() && (is_far || bytes == 0) {
            return self.divide(lane);
        }
        self.next = start + bytes;
        self.active.push((lane, start, self.next));
        Some(Piece {
            start,
            end: Some(self.next),
            is_first,
            is_rest: self.next == end,
        })
    }

    /// Whether others may take of a lane's piece. A part that is sent stays whole.
    fn may_divide(&self, own: &(usize, u64, u64)) -> bool {
        let left = own.2.saturating_sub(own.1);
        let may = self.has_parts && !self.is_sent && !self.is_alone;
        may && left >= 2 * PIECE_BYTES_MIN
    }

    /// Takes of what a slower lane has left as much as both move until they end at the same time:
    /// near the end of the file of the lane that would end last, before of the one that all wait
    /// for.
    fn divide(&mut self, lane: usize) -> Option<Piece> {
        let time = |at: &usize| {
            let (of, from, to) = self.active[*at];
            let rate = self.rate_of(of, from)?;
            Some((to - from) as f64 / rate)
        };
        let soon = (self.round_trip * DIVIDED_ROUND_TRIPS).as_secs_f64();
        let is_slow = |at: &usize| time(at).is_none_or(|time| time > soon);
        let all = (0..self.active.len()).filter(|at| self.may_divide(&self.active[*at]));
        let slow = match self.end.is_some_and(|end| self.next < end) {
            true => all.min_by_key(|at| self.active[*at].1).filter(is_slow),
            false => all.filter(is_slow).max_by(|one, other| {
                let time = |at| time(at).unwrap_or(f64::INFINITY);
                time(one).total_cmp(&time(other))
            }),
        }?;
        let (of, from, to) = self.active[slow];
        let own = self.paces.get(&lane).and_then(|pace| pace.rate);
        let kept = match (self.rate_of(of, from), own) {
            (Some(slow), Some(own)) => slow / (slow + own),
            _ => 0.5,
        };
        let most = to - from - PIECE_BYTES_MIN;
        let kept = whole((to - from) as f64 * kept);
        let start = from + kept.clamp(PIECE_BYTES_MIN, most);
        self.active[slow].2 = start;
        self.active.push((lane, start, to));
        Some(Piece {
            start,
            end: Some(to),
            is_first: false,
            is_rest: Some(to) == self.end,
        })
    }

    /// Bytes a second that a lane moves now, of which `at` is the next byte; `None` before that
    /// can be told.
    fn rate_of(&self, lane: usize, at: u64) -> Option<f64> {
        let pace = self.paces.get(&lane)?;
        let (began, start) = pace.began;
        let since = began.elapsed();
        match since > 2 * self.round_trip {
            // Never 0: there may be more in a moment.
            true => Some(at.saturating_sub(start).max(1) as f64 / since.as_secs_f64()),
            false => pace.rate,
        }
    }

    /// A lane that was alone has all that is left: it keeps its share of that.
    fn shorten(&mut self) {
        let (Some(_), Some(last)) = (self.end, self.active.iter().map(|a| a.2).max()) else {
            return;
        };
        if last != self.next || !self.has_parts || self.is_sent {
            return;
        }
        let Some(own) = self.active.iter().position(|own| own.2 == last) else {
            return;
        };
        let (_, at, end) = self.active[own];
        let kept = self.share_of(end.saturating_sub(at));
        if at + kept < end {
            self.active[own].2 = at + kept;
            self.next = at + kept;
        }
    }
}

/// Bytes that come at such a rate, bytes a second, in such a time.
fn in_time(rate: f64, time: Duration) -> u64 {
    whole(rate * time.as_secs_f64())
}

/// Whole bytes of so many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROUND_TRIP: Duration = Duration::from_millis(50);

    /// What a relay has room for.
    const ROOM: u64 = 128 << 20;

    /// A region whose first lane has a piece of [`LANE_BYTES_MIN`], and lane 1 none.
    async fn begun(room: u64) -> Region {
        let region = Region::new(0, Some(1 << 30), room, ROUND_TRIP);
        assert_eq!(region.want(2), [0, 1]);
        assert_eq!(region.take(0).await.unwrap().end, Some(LANE_BYTES_MIN));
        assert_eq!(region.state.lock().hand_out(1), None, "of which version?");
        region.begun(0, Some(Validator::Date(String::new())), true);
        region
    }

    #[tokio::test]
    async fn a_slow_lane_loses_the_later_half_of_its_piece_to_one_that_waits() {
        let region = begun(ROOM).await;
        let mut end = LANE_BYTES_MIN;
        let half = loop {
            let piece = region.take(1).await.unwrap();
            if piece.start < LANE_BYTES_MIN {
                break piece;
            }
            assert_eq!(piece.start, end);
            end = piece.end.unwrap();
            region.written(1, end - piece.start);
            region.done(1, false);
        };
        assert!(end > ROOM - ROOM / 4);
        assert_eq!(
            (half.start, half.end),
            (LANE_BYTES_MIN / 2, Some(LANE_BYTES_MIN))
        );
        assert!(!half.is_rest && region.end_of(0) == Some(half.start));
        region.written(1, half.end.unwrap() - half.start);
        region.done(1, false);
        // What is small is waited for.
        region.written(0, half.start - PIECE_BYTES_MIN);
        let waits = tokio::time::timeout(Duration::from_millis(20), region.take(1));
        assert!(waits.await.is_err());
        region.written(0, PIECE_BYTES_MIN);
        region.done(0, false);
        assert_eq!(region.take(1).await.unwrap().start, end);
    }

    #[tokio::test]
    async fn pieces_are_as_large_as_their_lane_is_fast() {
        let region = begun(u64::MAX).await;
        let slow = Duration::from_millis(500);
        tokio::time::sleep(slow).await;
        region.written(0, LANE_BYTES_MIN);
        region.done(0, false);
        let piece = region.take(0).await.unwrap();
        let bytes = piece.end.unwrap() - piece.start;
        // As much in 100 round trips, and half of it if this machine stood still.
        assert!((5 * LANE_BYTES_MIN..=10 * LANE_BYTES_MIN).contains(&bytes));
        let quick = region.take(1).await.unwrap();
        region.written(1, quick.end.unwrap() - quick.start);
        region.done(1, false);
        let piece = region.take(1).await.unwrap();
        assert!(piece.end.unwrap() - piece.start > bytes);
    }

    #[tokio::test]
    async fn a_lane_that_had_all_keeps_its_share_when_others_come() {
        let region = Region::new(0, Some(1 << 30), u64::MAX, ROUND_TRIP);
        assert_eq!(region.want(1), [0]);
        assert_eq!(region.take(0).await.unwrap().end, Some(1 << 30));
        region.begun(0, Some(Validator::Date(String::new())), true);
        assert_eq!(region.want(4), [1, 2, 3]);
        assert_eq!(region.end_of(0), Some(1 << 28));
        assert_eq!(region.take(1).await.unwrap().start, 1 << 28);
    }

    #[tokio::test]
    async fn a_lane_too_many_ends_within_its_piece_and_others_take_the_rest() {
        let region = Region::new(0, Some(1 << 30), u64::MAX, ROUND_TRIP);
        region.want(1);
        region.take(0).await.unwrap();
        region.begun(0, Some(Validator::Date(String::new())), true);
        region.want(2);
        region.take(1).await.unwrap();
        region.written(1, 1 << 20);
        assert!(!region.retires(1), "two are wanted");
        region.want(1);
        assert!(!region.retires(0), "one of them stays");
        assert!(region.retires(1), "the one that came later");
        assert_eq!(region.take(1).await, None);
        region.left(1, None);
        region.written(0, 1 << 29);
        region.done(0, false);
        let rest = region.take(0).await.unwrap();
        assert_eq!(rest.start, (1 << 29) + (1 << 20));
        // It may come back.
        assert_eq!(region.want(2), [1]);
        assert!(region.take(1).await.is_some());
    }

    #[tokio::test]
    async fn the_last_piece_is_divided_but_no_part_that_is_sent() {
        let region = Region::new(0, Some(8 << 20), u64::MAX, ROUND_TRIP);
        region.want(2);
        assert_eq!(region.take(0).await.unwrap().end, Some(4 << 20));
        region.begun(0, Some(Validator::Date(String::new())), true);
        region.want(2);
        let last = region.take(1).await.unwrap();
        assert_eq!(
            (last.start, last.end, last.is_rest),
            (4 << 20, Some(8 << 20), true)
        );
        region.written(0, 4 << 20);
        region.done(0, false);
        let half = region.take(0).await.unwrap();
        assert_eq!(
            (half.start, half.end, half.is_rest),
            (6 << 20, Some(8 << 20), true)
        );
        assert_eq!(region.end_of(1), Some(6 << 20));
        let sent = Region::of_parts(8 << 20, ROUND_TRIP);
        sent.want(2);
        for lane in [0, 1] {
            assert!(sent.take(lane).await.is_some());
        }
        assert_eq!(sent.state.lock().divide(0), None);
    }

    #[tokio::test]
    async fn a_part_that_is_sent_is_not_shortened_for_others() {
        let region = Region::of_parts(1 << 30, ROUND_TRIP);
        assert_eq!(region.want(1), [0]);
        region.take(0).await.unwrap();
        region.confirmed(0);
        let alone = region.take(0).await.unwrap();
        let bytes = alone.end.unwrap() - alone.start;
        assert_eq!(bytes, SENT_BYTES_MAX, "one request is bounded");
        assert_eq!(region.want(4), [1, 2, 3]);
        assert_eq!(region.end_of(0), alone.end);
        assert_eq!(Some(region.take(1).await.unwrap().start), alone.end);
    }

    #[tokio::test]
    async fn nothing_is_sent_behind_what_could_not_be_read() {
        let region = Region::of_parts(1 << 30, ROUND_TRIP);
        region.want(2);
        let first = region.take(0).await.unwrap();
        region.take(1).await.unwrap();
        region.fail(Failure::lost("it cannot be read"));
        region.left(0, None);
        region.confirmed(1);
        assert_eq!(region.take(1).await, None);
        let moved = region.finish();
        assert!(moved.failure.is_some());
        assert_eq!(moved.safe.iter().next().map(|range| range.start), first.end);
    }

    #[tokio::test]
    async fn what_one_lane_could_not_send_another_sends() {
        let region = Region::of_parts(64 << 20, ROUND_TRIP);
        region.want(2);
        let first = region.take(0).await.unwrap();
        let second = region.take(1).await.unwrap();
        let lost = Failure::lost("no room");
        region.left(1, Some(Failure::Crowded(Box::new(lost))));
        region.confirmed(0);
        let again = region.take(0).await.unwrap();
        assert_eq!((again.start, again.end), (second.start, second.end));
        assert_eq!(region.take_crowded(), Some(1));
        region.confirmed(0);
        let safe = region.finish().safe;
        let bytes: u64 = safe.iter().map(|range| range.len()).sum();
        assert_eq!(bytes, second.end.unwrap() - first.start);
    }
}
