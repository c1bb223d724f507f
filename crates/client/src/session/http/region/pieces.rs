//! Who takes which bytes of a region next.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use godwit_proto::RangeSet;

use super::{Failure, Piece, Validator};

/// One lane more for so many of those that send pieces which cannot end early: while one waits for
/// its answer, a round trip and what the server has to do, another sends.
const LANES_OF_A_SPARE: usize = 2;

/// A part of a bucket is sent again by a lane that has nothing to do, where its own lane needs this
/// many times as long for the rest: a connection that has met losses holds up all.
const AGAIN: f64 = 1.5;

/// Bytes of a piece.
const PIECE_BYTES_MIN: u64 = 1 << 20;

/// A lane takes at least so many bytes of another's piece that is fetched, and leaves it as many:
/// no less than a chunk that the other may be writing.
pub(in crate::session::http) const HALF_BYTES_MIN: u64 = 256 << 10;

/// Of one that is sent it takes so many, and leaves it the chunk that it reads next.
pub(super) const SENT_HALF_BYTES_MIN: u64 = 16 << 10;

/// Bytes of a piece that is sent: all of them are sent again where it breaks off.
pub(super) const SENT_BYTES_MAX: u64 = 256 << 20;

/// A piece takes its lane so many round trips, as fast as that was with the piece before, and so
/// long: of one that is sent, less is lost with it. Where it can, it ends when it takes longer.
const PIECE_ROUND_TRIPS: u32 = 100;
pub(super) const PIECE_TIME_MIN: Duration = Duration::from_secs(1);
const PIECE_TIME_MAX: Duration = Duration::from_secs(20);
const SENT_TIME_MIN: Duration = Duration::from_millis(100);
const SENT_TIME_MAX: Duration = Duration::from_secs(5);

/// A lane for fewer bytes is not worth its connection, unless that would take it longer than
/// [`LANE_TIME_MIN`], and none is for the last so many. A lane begins with so many.
pub(crate) const LANE_BYTES_MIN: u64 = 4 << 20;
const LANE_TIME_MIN: Duration = Duration::from_secs(1);

/// The last pieces that are sent take so many, where they cannot be divided, so that no lane is
/// waited for much longer.
const LAST_ROUND_TRIPS: u32 = 16;

/// What a lane moves in fewer round trips is not divided: to ask for it takes others one, and a
/// lane whose answer is cut short loses its connection. One that sends does not.
const DIVIDED_ROUND_TRIPS: u32 = 8;
const DIVIDED_SENT_ROUND_TRIPS: u32 = 3;

/// The bytes and lanes of a region.
pub(super) struct State {
    /// First byte that no lane has.
    pub(super) next: u64,
    /// `None`: as many as the server sends.
    pub(super) end: Option<u64>,
    /// That lanes move now.
    pub(super) active: Vec<Active>,
    /// What is known of lanes that have had a piece.
    pub(super) paces: HashMap<usize, Pace>,
    /// Ranges that their lanes have given back.
    pub(super) returned: Vec<(u64, u64)>,
    /// Lanes that may run.
    pub(super) wanted: usize,
    /// That run.
    pub(super) running: Vec<usize>,
    /// Of those, the ones that have moved bytes.
    pub(super) moving: Vec<usize>,
    /// Of those that run, the ones that are about to end, as there was one too many.
    pub(super) leaving: Vec<usize>,
    /// Whose pieces others have sent again, and faster.
    pub(super) outrun: Vec<usize>,
    /// The first answer has come.
    pub(super) is_begun: bool,
    /// Parts can be asked for.
    pub(super) has_parts: bool,
    /// The session is asked which version the file is.
    pub(super) asks_version: bool,
    /// Parts may be of several versions: one lane fetches all of it in one answer.
    pub(super) is_alone: bool,
    /// Pieces are sent: one counts when the server has confirmed it.
    pub(super) is_sent: bool,
    /// A piece may end before all of it is moved.
    pub(super) can_cut: bool,
    /// Bytes of each piece, where the server wants equal ones.
    pub(super) grain: Option<u64>,
    pub(super) validator: Option<Validator>,
    pub(super) safe: RangeSet,
    pub(super) failure: Option<Failure>,
    /// Lanes that there may be, spare ones included.
    pub(super) allowed: usize,
    /// The server has turned a lane away.
    pub(super) has_no_spares: bool,
    /// The server had no room for more lanes than these.
    pub(super) crowded: Option<usize>,
    pub(super) is_stopped: bool,
    /// Bytes among which lanes work: as many as the file takes before others are read from it.
    pub(super) window: u64,
    pub(super) round_trip: Duration,
}

/// Bytes that a lane moves.
#[derive(Clone, Copy)]
pub(super) struct Active {
    pub(super) lane: usize,
    pub(super) start: u64,
    /// The next byte that it moves.
    pub(super) at: u64,
    pub(super) end: u64,
    /// Bytes that it may move before it looks whether others have taken some: they leave it these.
    pub(super) chunk: u64,
    /// Another lane moves the same.
    pub(super) is_twice: bool,
}

impl Active {
    fn left(&self) -> u64 {
        self.end.saturating_sub(self.at)
    }
}

/// How fast a lane is.
pub(super) struct Pace {
    /// When its last piece began.
    pub(super) began: Instant,
    /// Bytes a second of the last one that is done, and how long it took.
    pub(super) rate: Option<f64>,
    took: Duration,
}

impl Pace {
    /// The piece that has begun is moved: so many bytes.
    pub(super) fn done(&mut self, bytes: u64) {
        self.took = self.began.elapsed();
        self.rate = Some(bytes.max(1) as f64 / self.took.as_secs_f64().max(1e-6));
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
            moving: Vec::new(),
            leaving: Vec::new(),
            outrun: Vec::new(),
            is_begun: false,
            has_parts: false,
            asks_version: false,
            is_alone: false,
            is_sent: false,
            can_cut: true,
            grain: None,
            validator: None,
            safe: RangeSet::new(),
            failure: None,
            allowed: 0,
            has_no_spares: false,
            crowded: None,
            is_stopped: false,
            window: room,
            round_trip: round_trip.min(PIECE_TIME_MIN),
        }
    }

    /// Whether the last byte is in front of `at`, and it is not known yet whether all are of one
    /// version. It is not recorded before: an account of all bytes is one of a whole file.
    pub(super) fn is_last_doubted(&self, at: u64) -> bool {
        matches!(self.validator, Some(Validator::Listed(_))) && self.end == Some(at)
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
        if self.end.is_none() || self.is_alone {
            return 1;
        }
        let left: u64 = self.active.iter().map(Active::left).sum();
        let left = left + self.unassigned();
        if left <= LANE_BYTES_MIN {
            return 1;
        }
        usize::try_from(left / self.worth_a_lane()).unwrap_or(usize::MAX)
    }

    /// Bytes that another lane is worth its connection for.
    fn worth_a_lane(&self) -> u64 {
        let rates = self.running.iter().filter_map(|lane| self.rate_now(*lane));
        let (count, sum) = rates.fold((0, 0.0), |(count, sum), rate| (count + 1, sum + rate));
        if count == 0 {
            return LANE_BYTES_MIN;
        }
        let each = sum / f64::from(count) * LANE_TIME_MIN.as_secs_f64();
        saturating_bytes(each).clamp(HALF_BYTES_MIN, LANE_BYTES_MIN)
    }

    /// More lanes run than are wanted, and this is one of the slowest.
    pub(super) fn is_one_too_many(&self, lane: usize) -> bool {
        self.surplus().contains(&lane)
    }

    /// Lanes of which there are too many: the slowest, since the others have found their windows.
    fn surplus(&self) -> Vec<usize> {
        let most = self.wanted + self.spares();
        let more = self.staying().count().saturating_sub(most);
        if more == 0 {
            return Vec::new();
        }
        let rate = |lane| (self.rate_now(lane).unwrap_or(0.0), lane);
        let mut staying: Vec<_> = self.staying().map(rate).collect();
        // Of two that are new, the one that came later.
        staying.sort_by(|(one, a), (other, b)| one.total_cmp(other).then(b.cmp(a)));
        staying.truncate(more);
        staying.into_iter().map(|(_, lane)| lane).collect()
    }

    /// Lanes that send now, but for those of which there are too many: these end with their parts.
    fn sending(&self) -> usize {
        let surplus = self.surplus();
        let sends = |own: &&Active| own.left() > 0 && !surplus.contains(&own.lane);
        self.active.iter().filter(sends).count()
    }

    /// Lanes that may run beside those that are wanted, while others wait for answers. One that
    /// shall be alone is.
    pub(super) fn spares(&self) -> usize {
        if !self.is_sent || self.can_cut || self.wanted <= 1 || self.has_no_spares {
            return 0;
        }
        let room = self.allowed.saturating_sub(self.wanted);
        self.wanted.div_ceil(LANES_OF_A_SPARE).min(room)
    }

    /// Lanes that have sent all of their pieces and wait for the answers.
    pub(super) fn waiting(&self) -> usize {
        self.active.iter().filter(|own| own.left() == 0).count()
    }

    /// Lanes that carry bytes, as the tuner counts them: a spare one takes the place of another.
    pub(super) fn channels(&self) -> usize {
        let moving = self.moving.len();
        match self.spares() {
            spares @ 1.. if moving <= self.wanted + spares => moving.min(self.wanted),
            _ => moving,
        }
    }

    /// Lanes that run, but for those that are about to end.
    fn staying(&self) -> impl Iterator<Item = usize> + '_ {
        let running = self.running.iter().copied();
        running.filter(|lane| !self.leaving.contains(lane))
    }

    /// A lane's share of so many bytes: no lane is left without.
    fn share_of(&self, left: u64) -> u64 {
        let lanes = self.wanted.max(1) as u64;
        left.div_ceil(lanes).max(LANE_BYTES_MIN)
    }

    /// The first byte that is not here, or was not sent.
    fn floor(&self) -> u64 {
        // One that only waits for its answer has been read.
        let moves = |own: &&Active| !self.is_sent || own.left() > 0;
        let active = self.active.iter().filter(moves).map(|own| own.at);
        let returned = self.returned.iter().map(|(at, _)| *at);
        active.chain(returned).min().unwrap_or(self.next)
    }

    /// The next piece for a lane, which is timed from now on. `None`: nothing before others have
    /// got on.
    pub(super) fn hand_out(&mut self, lane: usize) -> Option<Piece> {
        if self.asks_version || !self.is_begun && !self.active.is_empty() {
            return None;
        }
        if self.spares() > 0 && self.sending() >= self.wanted {
            return None;
        }
        let piece = self.piece_for(lane)?;
        let began = Instant::now();
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
        if let Some(grain) = self.grain {
            return grain.min(row);
        }
        if self.wanted == 1 && !self.is_sent {
            return row;
        }
        let Some(Pace {
            rate: Some(rate),
            took,
            ..
        }) = self.paces.get(&lane)
        else {
            // Beside many others it will be slow. One that can be cut had better last: all lanes
            // that ask for their second one at the same time rest for a round trip.
            let first = match self.can_cut {
                true => LANE_BYTES_MIN,
                false => 4 * LANE_BYTES_MIN / self.wanted.max(1) as u64,
            };
            let first = first.clamp(PIECE_BYTES_MIN, LANE_BYTES_MIN);
            return first.min(self.share_of(row)).min(row);
        };
        let all: f64 = self.staying().filter_map(|lane| self.rate_now(lane)).sum();
        let left = Duration::try_from_secs_f64(self.unassigned() as f64 / all.max(1.0));
        let left = left.unwrap_or(Duration::MAX);
        // Those of all lanes fit into the window.
        let most = self.window / 4;
        let most_sent = most.min(SENT_BYTES_MAX);
        let (time, most) = match (self.is_sent, self.can_cut) {
            // What turns out to be slower than it began cannot be divided.
            (true, false) => {
                let end = (left / 2).max(self.round_trip * LAST_ROUND_TRIPS);
                let time = self.sent_time().min((*took * 2).max(SENT_TIME_MIN));
                (time.min(end), most_sent)
            }
            (true, true) => (self.sent_time().min(left), most_sent),
            (false, _) => {
                let time = self.round_trip * PIECE_ROUND_TRIPS;
                let time = time.clamp(PIECE_TIME_MIN, PIECE_TIME_MAX);
                (time.min(left), most)
            }
        };
        let bytes = saturating_bytes(rate * time.as_secs_f64()).min(most);
        bytes.max(PIECE_BYTES_MIN).min(row)
    }

    /// How long a piece takes that is sent.
    fn sent_time(&self) -> Duration {
        let time = self.round_trip * PIECE_ROUND_TRIPS;
        time.clamp(SENT_TIME_MIN, SENT_TIME_MAX)
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
            self.begin(lane, start, cut);
            return Some(Piece {
                start,
                end: Some(cut),
                is_first,
                is_rest: Some(cut) == self.end,
                is_again: false,
            });
        }
        let start = self.next;
        let Some(end) = self.end else {
            self.begin(lane, start, u64::MAX);
            self.next = u64::MAX;
            return Some(Piece {
                start,
                end: None,
                is_first,
                is_rest: true,
                is_again: false,
            });
        };
        if self.may_repeat() {
            return self.repeat(lane);
        }
        let bytes = self.bytes_for(lane, end - start);
        // A lane alone writes in order.
        let is_far = start + bytes > self.floor().saturating_add(self.window);
        if !self.active.is_empty() && (is_far || bytes == 0) {
            return self.divide(lane);
        }
        self.next = start + bytes;
        self.begin(lane, start, self.next);
        Some(Piece {
            start,
            end: Some(self.next),
            is_first,
            is_rest: self.next == end,
            is_again: false,
        })
    }

    pub(super) fn position(&self, lane: usize) -> Option<usize> {
        self.active.iter().position(|own| own.lane == lane)
    }

    fn begin(&mut self, lane: usize, start: u64, end: u64) {
        self.outrun.retain(|of| *of != lane);
        self.active.push(Active {
            lane,
            start,
            at: start,
            end,
            chunk: HALF_BYTES_MIN,
            is_twice: false,
        });
    }

    /// Whether parts that are sent now may be sent again: nothing else is left to send, and a
    /// bucket takes the same part twice. What passes through this machine is there once.
    pub(super) fn may_repeat(&self) -> bool {
        let is_last = self.returned.is_empty() && self.end.is_some_and(|end| self.next >= end);
        is_last && self.grain.is_some() && self.window == u64::MAX && self.single().next().is_some()
    }

    /// Pieces of which bytes are left that one lane sends.
    fn single(&self) -> impl Iterator<Item = usize> {
        (0..self.active.len())
            .filter(|at| !self.active[*at].is_twice && self.active[*at].left() > 0)
    }

    /// The part that is waited for longest, where this lane sends all of it sooner.
    fn repeat(&mut self, lane: usize) -> Option<Piece> {
        let rate = self.paces.get(&lane)?.rate?;
        let known = self
            .single()
            .map(|at| (at, self.time_left(&self.active[at])));
        let known = known.filter(|(_, time)| time.is_finite());
        let (slow, time) = known.max_by(|(_, one), (_, other)| one.total_cmp(other))?;
        let Active { start, end, .. } = self.active[slow];
        let again = (end - start) as f64 / rate + self.round_trip.as_secs_f64();
        if time < AGAIN * again {
            return None;
        }
        self.active[slow].is_twice = true;
        self.begin(lane, start, end);
        if let Some(own) = self.active.last_mut() {
            own.is_twice = true;
        }
        Some(Piece {
            start,
            end: Some(end),
            is_first: false,
            is_rest: Some(end) == self.end,
            is_again: true,
        })
    }

    /// The other lane's piece of one that is sent twice.
    pub(super) fn twin(&self, of: &Active) -> Option<usize> {
        let twin = |other: &Active| of.is_twice && other.start == of.start;
        self.active.iter().position(twin)
    }

    /// Whether others may take of a lane's piece.
    pub(super) fn may_divide(&self, own: &Active) -> bool {
        let may = self.has_parts && self.can_cut && !self.is_alone;
        may && own.left() >= own.chunk + self.half_bytes_min()
    }

    /// The least that a lane takes of another's piece.
    fn half_bytes_min(&self) -> u64 {
        match self.is_sent {
            true => SENT_HALF_BYTES_MIN,
            false => HALF_BYTES_MIN,
        }
    }

    /// Whether the lane's piece, which is sent, takes much longer than any should.
    pub(super) fn is_late(&self, lane: usize) -> bool {
        let pace = self.paces.get(&lane);
        pace.is_some_and(|pace| pace.began.elapsed() > 2 * SENT_TIME_MAX)
    }

    /// Takes of what a slower lane has left as much as both move until they end at the same time:
    /// near the end of the file of the lane that would end last, before of the one that all wait
    /// for.
    pub(super) fn divide(&mut self, lane: usize) -> Option<Piece> {
        let soon = match self.is_sent {
            true => DIVIDED_SENT_ROUND_TRIPS,
            false => DIVIDED_ROUND_TRIPS,
        };
        let soon = (self.round_trip * soon).as_secs_f64();
        let is_slow = |own: &Active| self.may_divide(own) && self.time_left(own) > soon;
        let slow = (0..self.active.len()).filter(|at| is_slow(&self.active[*at]));
        let slow = match self.end.is_some_and(|end| self.next < end) {
            true => slow.min_by_key(|at| self.active[*at].at),
            false => slow.max_by(|one, other| {
                let time = |at: &usize| self.time_left(&self.active[*at]);
                time(one).total_cmp(&time(other))
            }),
        }?;
        let Active { at, end, chunk, .. } = self.active[slow];
        let own = self.paces.get(&lane).and_then(|pace| pace.rate);
        let kept = match (self.rate_of(&self.active[slow]), own) {
            (Some(slow), Some(own)) => slow / (slow + own),
            _ => 0.5,
        };
        let kept = saturating_bytes((end - at) as f64 * kept);
        let start = at + kept.clamp(chunk, end - at - self.half_bytes_min());
        if start >= self.floor().saturating_add(self.window) {
            return None;
        }
        self.active[slow].end = start;
        self.begin(lane, start, end);
        Some(Piece {
            start,
            end: Some(end),
            is_first: false,
            is_rest: Some(end) == self.end,
            is_again: false,
        })
    }

    /// Seconds until a piece is moved, as fast as its lane is now; infinite before that is known.
    fn time_left(&self, own: &Active) -> f64 {
        match self.rate_of(own) {
            Some(rate) => own.left() as f64 / rate,
            None => f64::INFINITY,
        }
    }

    /// Bytes a second that a lane moves now, or has moved before.
    fn rate_now(&self, lane: usize) -> Option<f64> {
        match self.active.iter().find(|own| own.lane == lane) {
            Some(own) => self.rate_of(own),
            None => self.paces.get(&lane).and_then(|pace| pace.rate),
        }
    }

    /// Bytes a second that a lane moves now; `None` before that can be told.
    fn rate_of(&self, own: &Active) -> Option<f64> {
        let pace = self.paces.get(&own.lane)?;
        let since = pace.began.elapsed();
        match since > 2 * self.round_trip {
            // Never 0: there may be more in a moment.
            true => Some((own.at - own.start).max(1) as f64 / since.as_secs_f64()),
            false => pace.rate,
        }
    }

    /// A lane that was alone has all that is left: it keeps its share of that.
    pub(super) fn shorten(&mut self) {
        let (Some(_), Some(last)) = (self.end, self.active.iter().map(|own| own.end).max()) else {
            return;
        };
        if last != self.next || !self.has_parts || self.is_sent {
            return;
        }
        let Some(own) = self.active.iter().position(|own| own.end == last) else {
            return;
        };
        // With a window, others may go no further ahead of it.
        let kept = self.share_of(self.active[own].left());
        let kept = kept.min(self.window / 2).max(PIECE_BYTES_MIN);
        let cut = self.active[own].at + kept;
        if cut < last {
            self.active[own].end = cut;
            self.next = cut;
        }
    }
}

/// Whole bytes of so many.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "it saturates"
)]
fn saturating_bytes(bytes: f64) -> u64 {
    bytes as u64
}
