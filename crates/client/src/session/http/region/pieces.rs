//! Who takes which bytes of a region next.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use godwit_proto::RangeSet;

use super::{Failure, Piece, Validator};

/// Bytes of a piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// Of what one lane takes of another's piece.
pub(super) const HALF_BYTES_MIN: u64 = 256 << 10;

/// Bytes of a piece that is sent: all of them are sent again where it breaks off.
pub(super) const SENT_BYTES_MAX: u64 = 256 << 20;

/// A piece takes its lane so many round trips, as fast as that was with the piece before, and so
/// long: of one that is sent, less is lost with it.
const PIECE_ROUND_TRIPS: u32 = 100;
pub(super) const PIECE_TIME_MIN: Duration = Duration::from_secs(1);
const PIECE_TIME_MAX: Duration = Duration::from_secs(20);
const SENT_TIME_MAX: Duration = Duration::from_secs(5);

/// A lane for fewer bytes is not worth its connection. A lane begins with so many.
pub(super) const LANE_BYTES_MIN: u64 = 4 << 20;

/// The last pieces that are sent take so many, so that no lane is waited for much longer.
const LAST_ROUND_TRIPS: u32 = 16;

/// What a lane moves in fewer round trips is not divided: to ask for it takes others one, and the
/// lane that is cut short loses its connection.
const DIVIDED_ROUND_TRIPS: u32 = 8;

/// The bytes and lanes of a region.
pub(super) struct State {
    /// First byte that no lane has.
    pub(super) next: u64,
    /// `None`: as many as the server sends.
    pub(super) end: Option<u64>,
    /// That lanes fetch now: the number of the lane, its next byte, and where it ends.
    pub(super) active: Vec<(usize, u64, u64)>,
    /// What is known of lanes that have had a piece.
    pub(super) paces: HashMap<usize, Pace>,
    /// That were given back.
    pub(super) returned: Vec<(u64, u64)>,
    /// Lanes that may run.
    pub(super) wanted: usize,
    /// That run.
    pub(super) running: Vec<usize>,
    /// Of those, the ones that are about to end, as there was one too many.
    pub(super) leaving: Vec<usize>,
    /// The first answer has come.
    pub(super) is_begun: bool,
    /// Parts can be asked for.
    pub(super) has_parts: bool,
    /// Parts may be of several versions: one lane fetches all of it in one answer.
    pub(super) is_alone: bool,
    /// Pieces are sent: one counts when the server has confirmed it, and stays as long as it is.
    pub(super) is_sent: bool,
    pub(super) validator: Option<Validator>,
    pub(super) safe: RangeSet,
    pub(super) failure: Option<Failure>,
    /// The server had no room for more lanes than these.
    pub(super) crowded: Option<usize>,
    pub(super) is_stopped: bool,
    /// Bytes among which lanes work: as many as the file takes before others are read from it.
    pub(super) window: u64,
    pub(super) round_trip: Duration,
}

/// How fast a lane is.
pub(super) struct Pace {
    /// When its last piece began, and where.
    began: (Instant, u64),
    /// Bytes a second of the last one that is done, and how long it took.
    rate: Option<f64>,
    took: Duration,
}

impl Pace {
    /// The piece that has begun ends at `end`.
    pub(super) fn done(&mut self, end: u64) {
        let (began, start) = self.began;
        self.took = began.elapsed();
        let took = self.took.as_secs_f64().max(1e-6);
        self.rate = Some(end.saturating_sub(start).max(1) as f64 / took);
    }
}

impl State {
    pub(super) fn new(start: u64, end: Option<u64>, room: u64, round_trip: Duration) -> Self {
        Self {
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
        }
    }

    /// Bytes that no lane has.
    pub(super) fn has_work(&self) -> bool {
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
    pub(super) fn useful_lanes(&self) -> usize {
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
    pub(super) fn is_one_too_many(&self, lane: usize) -> bool {
        let more = self.staying().count().saturating_sub(self.wanted);
        if more == 0 || self.is_sent {
            return more > 0;
        }
        // Of two that are new, the one that came later.
        let rate = |of: usize| (self.rate_now(of).unwrap_or(0.0), usize::MAX - of);
        let own = rate(lane);
        self.staying().filter(|of| rate(*of) < own).count() < more
    }

    /// Lanes that run, but for those that are about to end.
    fn staying(&self) -> impl Iterator<Item = usize> + '_ {
        let running = self.running.iter().copied();
        running.filter(|lane| !self.leaving.contains(lane))
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
    pub(super) fn hand_out(&mut self, lane: usize) -> Option<Piece> {
        if !self.is_begun && !self.active.is_empty() {
            return None;
        }
        let piece = self.piece_for(lane)?;
        let began = (Instant::now(), piece.start);
        let pace = self.paces.entry(lane);
        let pace = pace.or_insert(Pace {
            began,
            rate: None,
            took: Duration::ZERO,
        });
        pace.began = began;
        Some(piece)
    }

    /// Bytes of the lane's next piece, of so many in a row that no lane has.
    fn bytes_for(&self, lane: usize, row: u64) -> u64 {
        if self.wanted == 1 && !self.is_sent {
            return row;
        }
        let Some(Pace {
            rate: Some(rate),
            took,
            ..
        }) = self.paces.get(&lane)
        else {
            // Beside many others it will be slow.
            let first = 4 * LANE_BYTES_MIN / self.wanted.max(1) as u64;
            let first = first.clamp(PIECE_BYTES_MIN, LANE_BYTES_MIN);
            return first.min(self.share_of(row)).min(row);
        };
        let all: f64 = self.staying().filter_map(|lane| self.rate_now(lane)).sum();
        let left = Duration::try_from_secs_f64(self.unassigned() as f64 / all.max(1.0));
        let left = left.unwrap_or(Duration::MAX);
        let time = self.round_trip * PIECE_ROUND_TRIPS;
        let (time, most) = match self.is_sent {
            // What turns out to be slower than it began cannot be divided.
            true => {
                let end = (left / 2).max(self.round_trip * LAST_ROUND_TRIPS);
                let time = time.min(SENT_TIME_MAX).min(*took * 2).max(PIECE_TIME_MIN);
                (time.min(end), SENT_BYTES_MAX)
            }
            // Those of all lanes fit into the window.
            false => {
                let time = time.clamp(PIECE_TIME_MIN, PIECE_TIME_MAX);
                (time.min(left), self.window / 4)
            }
        };
        let bytes = whole(rate * time.as_secs_f64()).min(most);
        bytes.max(PIECE_BYTES_MIN).min(row)
    }

    /// Bytes that no lane has, of a region whose end is known.
    fn unassigned(&self) -> u64 {
        let returned = self.returned.iter().map(|(from, to)| to - from);
        let behind = self.end.unwrap_or(self.next).saturating_sub(self.next);
        returned.sum::<u64>() + behind
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
    pub(super) fn may_divide(&self, own: &(usize, u64, u64)) -> bool {
        let left = own.2.saturating_sub(own.1);
        let may = self.has_parts && !self.is_sent && !self.is_alone;
        may && left >= 2 * HALF_BYTES_MIN
    }

    /// Takes of what a slower lane has left as much as both move until they end at the same time:
    /// near the end of the file of the lane that would end last, before of the one that all wait
    /// for.
    pub(super) fn divide(&mut self, lane: usize) -> Option<Piece> {
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
        let most = to - from - HALF_BYTES_MIN;
        let kept = whole((to - from) as f64 * kept);
        let start = from + kept.clamp(HALF_BYTES_MIN, most);
        self.active[slow].2 = start;
        self.active.push((lane, start, to));
        Some(Piece {
            start,
            end: Some(to),
            is_first: false,
            is_rest: Some(to) == self.end,
        })
    }

    /// Bytes a second that a lane moves now, or has moved before.
    fn rate_now(&self, lane: usize) -> Option<f64> {
        let own = self.active.iter().find(|(of, ..)| *of == lane);
        match own {
            Some((_, at, _)) if !self.is_sent => self.rate_of(lane, *at),
            _ => self.paces.get(&lane).and_then(|pace| pace.rate),
        }
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
    pub(super) fn shorten(&mut self) {
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

/// Whole bytes of so many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates"
)]
fn whole(bytes: f64) -> u64 {
    bytes as u64
}
