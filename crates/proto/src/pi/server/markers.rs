//! When a running transfer says 112 and 111, and what of the news each 111 carries.

use std::time::{Duration, Instant};

use crate::{
    marker::{PerfMarker, parse_range_marker, range_marker},
    range_set::RangeSet,
    reply::Reply,
};

/// Ranges in one 111: keeps its line below the line length that readers bound.
const RANGES_MAX: usize = 1000;

/// Ranges that wait to be said. More are left out: a client that resumes sends those again.
const NEWS_MAX: usize = 16 * 1024;

/// Receipts of so few bytes that succeed so soon need no markers: 226 says all of it. Of many small
/// files they would be most of what is said.
const SHORT: Duration = Duration::from_millis(200);
const LITTLE_BYTES: u64 = 1 << 20;

#[derive(Debug, Default)]
pub(super) struct Markers {
    /// When data connections were up, by both clocks, until the first 112 tells of it.
    began: Option<(Instant, Duration)>,
    /// 112: `None` where this transfer sends none.
    performance: Option<Cadence>,
    /// 111: `None` where this transfer sends none.
    restart: Option<Cadence>,
    /// `ReportProgress` is unanswered.
    asked: bool,
    /// Safe, and not yet said in a 111.
    news: RangeSet,
    /// Bytes of each stripe, where there are several.
    stripes: Vec<u64>,
}

#[derive(Debug)]
struct Cadence {
    every: Option<Duration>,
    due: Option<Instant>,
}

impl Cadence {
    fn new(every: Option<Duration>) -> Self {
        Self { every, due: None }
    }

    fn rearm(&mut self, now: Instant) {
        self.due = self.every.and_then(|every| now.checked_add(every));
    }

    fn is_due(&self, now: Instant) -> bool {
        self.due.is_some_and(|due| due <= now)
    }
}

impl Markers {
    /// Receipts in MODE E: both kinds, also the first and the last where the interval is "never".
    pub(super) fn of_receipt(performance: Option<Duration>, restart: Option<Duration>) -> Self {
        Self {
            performance: Some(Cadence::new(performance)),
            restart: Some(Cadence::new(restart)),
            ..Self::default()
        }
    }

    /// Anything else: 112 if OPTS RETR Markers asked.
    pub(super) fn if_asked(every: Option<Duration>) -> Self {
        Self {
            performance: every.map(|every| Cadence::new(Some(every))),
            ..Self::default()
        }
    }

    /// When to ask the shell for progress; never while it owes us an answer.
    pub(super) fn due(&self) -> Option<Instant> {
        if self.asked {
            return None;
        }
        [&self.performance, &self.restart]
            .into_iter()
            .flatten()
            .filter_map(|cadence| cadence.due)
            .min()
    }

    /// True where the shell must be asked now.
    pub(super) fn ask(&mut self, now: Instant) -> bool {
        let ask = self.due().is_some_and(|due| due <= now);
        self.asked |= ask;
        ask
    }

    /// Data connections are up.
    pub(super) fn begin(&mut self, now: Instant, unix_time: Duration) {
        if let Some(restart) = &mut self.restart {
            restart.rearm(now);
        }
        if let Some(performance) = &mut self.performance {
            performance.due = now.checked_add(SHORT);
            self.began = Some((now, unix_time));
        }
    }

    pub(super) fn progress(
        &mut self,
        now: Instant,
        unix_time: Duration,
        bytes: u64,
        fresh: &RangeSet,
    ) -> Vec<Reply> {
        self.asked = false;
        self.news.union_within(fresh, NEWS_MAX);
        let mut replies = Vec::new();
        if let Some(performance) = &mut self.performance
            && performance.is_due(now)
        {
            performance.rearm(now);
            replies.extend(self.first());
            replies.extend(self.performance_markers(unix_time, bytes));
        }
        if let Some(restart) = &mut self.restart
            && restart.is_due(now)
        {
            restart.rearm(now);
            replies.extend(self.tell_news(None));
        }
        replies
    }

    /// The last of each kind. Ranges are said after a failure too: they are true, and the client
    /// resumes from them.
    pub(super) fn end(
        &mut self,
        now: Instant,
        unix_time: Duration,
        bytes: u64,
        fresh: &RangeSet,
        whole: bool,
    ) -> Vec<Reply> {
        let is_short = |(began, _)| now.saturating_duration_since(began) < SHORT;
        if whole && bytes <= LITTLE_BYTES && self.began.is_some_and(is_short) {
            return Vec::new();
        }
        self.news.union_within(fresh, NEWS_MAX);
        let mut replies = self.first();
        if self.performance.is_some() {
            replies.extend(self.performance_markers(unix_time, bytes));
        }
        if self.restart.is_some() {
            let end_of_file = self.news.iter().last().filter(|_| whole).map(|r| r.end);
            while let Some(reply) = self.tell_news(end_of_file) {
                replies.push(reply);
            }
        }
        replies
    }

    /// The first 112, with 0 bytes, tells clients when the clock began.
    fn first(&mut self) -> Vec<Reply> {
        let Some((_, unix_time)) = self.began.take() else {
            return Vec::new();
        };
        let stripes = self.stripes.len().max(1);
        performance_series(unix_time, &vec![0; stripes])
    }

    /// One 112 for each stripe.
    fn performance_markers(&self, unix_time: Duration, bytes: u64) -> Vec<Reply> {
        match self.stripes.len() {
            0 | 1 => performance_series(unix_time, &[bytes]),
            _ => performance_series(unix_time, &self.stripes),
        }
    }

    /// What each stripe has moved.
    pub(super) fn set_stripes(&mut self, stripes: Vec<u64>) {
        self.stripes = stripes;
    }

    /// A 111, if there is something to say. What rounding holds back stays news: said with the
    /// bytes that join it later.
    fn tell_news(&mut self, end_of_file: Option<u64>) -> Option<Reply> {
        let some: RangeSet = self.news.iter().take(RANGES_MAX).collect();
        let reply = range_marker(&some, end_of_file)?;
        let said = parse_range_marker(&reply)?;
        for range in said.iter() {
            self.news.remove(range);
        }
        (!said.is_empty()).then_some(reply)
    }
}

fn performance_series(unix_time: Duration, stripes: &[u64]) -> Vec<Reply> {
    let count = u32::try_from(stripes.len()).unwrap_or(u32::MAX);
    let markers = (0..count).zip(stripes).map(|(index, bytes)| {
        PerfMarker {
            timestamp: unix_time.as_secs_f64(),
            stripe_index: index,
            stripe_bytes: *bytes,
            stripe_count: count,
        }
        .to_reply()
    });
    markers.collect()
}
