//! A flow: what limits it but links, and what it has moved.

use super::{FluidFlow, FluidLimit, FluidLink, FluidState, NOW_S, SEGMENT_BYTES, response};

/// First window of a connection (RFC 6928), bytes.
const FIRST_BYTES: f64 = 10.0 * SEGMENT_BYTES;
/// A flow is at a limit from this share of it on.
const AT_LIMIT: f64 = 0.999;
/// A flow has ended when less than this is left, bytes: rates are floats.
const NOTHING_BYTES: f64 = 0.5;

/// A flow that was opened.
#[derive(Debug)]
pub(super) struct OpenFlow {
    pub(super) links: Vec<usize>,
    pub(super) rtt_s: f64,
    pub(super) connections: u32,
    window_bytes: f64,
    /// Random loss of its links.
    loss: f64,
    /// The window that it leaves a connection, bytes.
    loss_window_bytes: f64,
    left: f64,
    moved: f64,
    /// Up to when bytes are counted.
    counted_s: f64,
    /// What slow start lets out, and when that doubles.
    slow_start: Option<(f64, f64)>,
    /// Nothing is left, and the caller knows.
    pub(super) is_done: bool,
    /// The last one, where it is done.
    pub(super) rate: FlowRate,
    /// When it ends or its slow start doubles, s; infinite where neither is known.
    pub(super) due_s: f64,
}

/// What a flow sends, and why no more.
#[derive(Debug, Clone, Copy)]
pub(super) struct FlowRate {
    /// Payload, bit/s.
    pub(super) sent_bps: f64,
    /// The same were all weights those of one full link.
    pub(super) first_bps: f64,
    /// The link that keeps it from more, and that link's loss.
    pub(super) full: Option<(usize, f64)>,
    pub(super) queue_s: f64,
}

const NO_RATE: FlowRate = FlowRate {
    sent_bps: 0.0,
    first_bps: 0.0,
    full: None,
    queue_s: 0.0,
};

impl OpenFlow {
    pub(super) fn new(
        flow: &FluidFlow,
        links: impl Iterator<Item = FluidLink> + Clone,
        now_s: f64,
    ) -> Self {
        let delay_s: f64 = links.clone().map(|link| link.delay_s).sum();
        let rtt_s = (delay_s + flow.back_s).max(1e-4);
        let connections = flow.connections.max(1);
        let first = (flow.under_way_bytes).unwrap_or(f64::from(connections) * FIRST_BYTES);
        let loss = 1.0 - links.map(|link| 1.0 - link.loss).product::<f64>();
        Self {
            rtt_s,
            connections,
            window_bytes: flow.window_bytes,
            loss,
            loss_window_bytes: response::window(rtt_s, loss) * SEGMENT_BYTES,
            left: flow.bytes,
            moved: 0.0,
            counted_s: now_s,
            slow_start: Some((first.max(FIRST_BYTES), now_s + rtt_s)),
            is_done: false,
            rate: NO_RATE,
            due_s: f64::INFINITY,
            links: flow.links.clone(),
        }
    }

    /// Connections for each second of round trip, of which links give equal shares.
    pub(super) fn weight(&self) -> f64 {
        f64::from(self.connections) / self.rtt_s
    }

    fn loss(&self) -> f64 {
        self.loss.max(self.rate.full.map_or(0.0, |(_, lost)| lost))
    }

    fn goodput_bps(&self) -> f64 {
        self.rate.sent_bps * (1.0 - self.loss())
    }

    /// Most that it sends, bit/s, and why.
    pub(super) fn limit(&self) -> (f64, FluidLimit) {
        let n = f64::from(self.connections);
        let per_window = 8.0 / self.rtt_s;
        let windows = n * self.window_bytes * per_window;
        let by_loss = n * self.loss_window_bytes * per_window;
        let start = (self.slow_start).map_or(f64::INFINITY, |(bytes, _)| bytes * per_window);
        let all = [
            (windows, FluidLimit::Window),
            (by_loss, FluidLimit::Loss),
            (start, FluidLimit::SlowStart),
        ];
        all.into_iter()
            .min_by(|a, b| a.0.total_cmp(&b.0))
            .unwrap_or((windows, FluidLimit::Window))
    }

    pub(super) fn set_connections(&mut self, connections: u32, now_s: f64) {
        let before = self.connections;
        self.connections = connections;
        let under_way = self.rate.sent_bps / 8.0 * self.rtt_s;
        let share = f64::from(connections) / f64::from(before);
        if connections > before {
            let more = f64::from(connections - before) * FIRST_BYTES;
            self.slow_start = match self.slow_start {
                Some((bytes, at)) => Some((bytes + more, at)),
                None => Some((under_way + more, now_s + self.rtt_s)),
            };
        } else if let Some((bytes, _)) = &mut self.slow_start {
            *bytes *= share;
        }
    }

    /// Counts what moved up to now.
    pub(super) fn count(&mut self, now_s: f64) {
        let bytes = (self.goodput_bps() / 8.0 * (now_s - self.counted_s)).min(self.left);
        self.left -= bytes;
        self.moved += bytes;
        self.counted_s = now_s;
    }

    pub(super) fn has_moved_all(&self) -> bool {
        self.left <= NOTHING_BYTES.max(self.goodput_bps() / 8.0 * NOW_S)
    }

    /// Slow start doubles what is under way, if that is due.
    pub(super) fn grow(&mut self, now_s: f64) {
        if let Some((bytes, at)) = &mut self.slow_start
            && *at <= now_s + NOW_S
        {
            *bytes *= 2.0;
            *at = now_s + self.rtt_s;
        }
    }

    /// From now on it sends at another rate. Returns whether that ends its slow start, which is a
    /// limit no more.
    pub(super) fn set_rate(&mut self, rate: FlowRate, now_s: f64) -> bool {
        self.count(now_s);
        self.rate = rate;
        let most = self.slow_start.map(|(bytes, _)| bytes * 8.0 / self.rtt_s);
        let ends = most.is_some_and(|most| rate.sent_bps < AT_LIMIT * most);
        if ends {
            self.slow_start = None;
        }
        let bps = self.goodput_bps();
        let end_s = match bps > 0.0 {
            true => now_s + self.left.max(0.0) * 8.0 / bps,
            false => f64::INFINITY,
        };
        self.due_s = self.slow_start.map_or(end_s, |(_, at)| at.min(end_s));
        ends
    }

    pub(super) fn state(&self, now_s: f64) -> FluidState {
        let goodput_bps = self.goodput_bps();
        let more = (goodput_bps / 8.0 * (now_s - self.counted_s)).min(self.left);
        let full = self.rate.full.map(|(link, _)| FluidLimit::Link(link));
        FluidState {
            bytes: self.moved + more,
            goodput_bps,
            loss: self.loss(),
            rtt_s: self.rtt_s + self.rate.queue_s,
            rtt_min_s: self.rtt_s,
            limit: full.unwrap_or_else(|| self.limit().1),
        }
    }
}
