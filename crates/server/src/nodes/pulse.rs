//! How long ago an end of a link was heard, by the clock of the one who asks: a node that its front
//! end may have given up writes nothing more into files.
//!
//! A beat says when it was sent, and the answer of the other end says which beat it answers. So
//! what counts is when the question was sent: an answer that waited while this process was stopped
//! is as old as its question.

use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

/// A node writes for a front end that has answered a beat which is younger than this. The front end
/// gives a node up later: after 2.5 s without a sign of it.
pub(crate) const FENCE: Duration = Duration::from_secs(2);

/// Added where the other end's fence is waited for.
const MARGIN: Duration = Duration::from_millis(50);

/// The longest that a node may write after a link to it has ended, as a process sees it that had
/// the link by way of another one. The other may have answered beats until now. Where it stood
/// still, both ends of it give it up within [`LINK_PHASE`] of one another.
pub(crate) const QUIET_MAX: Duration = FENCE.saturating_add(MARGIN).saturating_add(LINK_PHASE);

/// Two beats: each end notices silence up to one late, and has heard the last beat up to one
/// earlier than the other.
const LINK_PHASE: Duration = Duration::from_secs(1);

/// Says that an end lives, and what it has heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Beat {
    /// When it was sent, by the clock of this end: milliseconds.
    pub(crate) sent: u64,
    /// The newest beat of the other end that has come, by the clock of that end.
    pub(crate) heard: Option<u64>,
}

/// What both ends know of one another, at one of them.
pub(crate) struct Pulse {
    began: Duration,
    state: Mutex<State>,
    changed: Condvar,
    /// A beat has come.
    pub(super) came: Notify,
}

#[derive(Default)]
struct State {
    /// The newest of our beats.
    said: u64,
    /// The newest of ours that the other end has heard.
    answered: Option<u64>,
    /// The newest of the other end, by its clock, and when it came, by ours.
    heard: Option<(u64, u64)>,
    is_over: bool,
}

impl Pulse {
    pub(crate) fn new() -> Self {
        Self {
            began: since_boot(),
            state: Mutex::default(),
            changed: Condvar::new(),
            came: Notify::new(),
        }
    }

    /// The next beat of this end.
    pub(super) fn next_beat(&self) -> Beat {
        let sent = self.now();
        let mut state = self.lock();
        state.said = sent;
        Beat {
            sent,
            heard: state.heard.map(|(sent, _)| sent),
        }
    }

    /// A beat of the other end has come.
    pub(super) fn hear(&self, beat: Beat) {
        let now = self.now();
        let mut state = self.lock();
        let is_newer = state.heard.is_none_or(|(sent, _)| sent < beat.sent);
        if is_newer {
            state.heard = Some((beat.sent, now));
        }
        // What was never said has no answer.
        let answered = beat.heard.filter(|sent| *sent <= state.said);
        state.answered = state.answered.max(answered);
        drop(state);
        self.changed.notify_all();
        self.came.notify_one();
    }

    /// The link has ended.
    pub(crate) fn end(&self) {
        self.lock().is_over = true;
        self.changed.notify_all();
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// The other end has heard us within [`FENCE`], as far as this end can know.
    pub(crate) fn is_heard(&self) -> bool {
        self.lock().is_heard(self.now())
    }

    /// Blocks until [`Self::is_heard`], no longer than `limit`. `false`: it is not, or the link is
    /// over.
    pub(crate) fn wait_until_heard(&self, limit: Duration) -> bool {
        let is_open = |state: &mut State| !state.is_over && !state.is_heard(self.now());
        let state = self.lock();
        let waited = self.changed.wait_timeout_while(state, limit, is_open);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        state.is_heard(self.now())
    }

    /// After so long the other end knows that it is not heard.
    pub(crate) fn quiet_in(&self) -> Duration {
        let Some((_, came)) = self.lock().heard else {
            return Duration::ZERO;
        };
        let until = Duration::from_millis(came) + FENCE + MARGIN;
        until.saturating_sub(Duration::from_millis(self.now()))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        let since = since_boot().saturating_sub(self.began);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl State {
    fn is_heard(&self, now: u64) -> bool {
        let fence = FENCE.as_millis();
        !self.is_over
            && (self.answered).is_some_and(|sent| u128::from(now.saturating_sub(sent)) < fence)
    }
}

/// Counts while the machine sleeps, too.
fn since_boot() -> Duration {
    let now = clock_gettime(ClockId::Boottime);
    let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(now.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
impl Pulse {
    /// Of an end that has heard all beats up to now, once.
    pub(crate) fn heard_now() -> Self {
        let pulse = Self::new();
        let sent = pulse.next_beat().sent;
        pulse.hear(Beat {
            sent: 0,
            heard: Some(sent),
        });
        pulse
    }
}

#[cfg(test)]
mod tests {
    use std::thread::sleep;

    use super::*;

    const LITTLE: Duration = Duration::from_millis(20);

    fn answer(heard: Option<u64>) -> Beat {
        Beat { sent: 0, heard }
    }

    #[test]
    fn an_answer_is_as_old_as_its_question() {
        let pulse = Pulse::new();
        assert!(!pulse.is_heard(), "no answer has come");
        let first = pulse.next_beat().sent;
        sleep(FENCE + LITTLE);
        pulse.hear(answer(Some(first)));
        assert!(!pulse.is_heard(), "it comes when the question is old");
        let second = pulse.next_beat().sent;
        pulse.hear(answer(Some(second)));
        assert!(pulse.is_heard());
        pulse.hear(answer(Some(first)));
        assert!(
            pulse.is_heard(),
            "a later answer to an older one takes nothing"
        );
    }

    #[test]
    fn an_answer_to_what_was_not_said_yet_counts_for_nothing() {
        let pulse = Pulse::new();
        let sent = pulse.next_beat().sent;
        pulse.hear(answer(Some(sent + 3_600_000)));
        assert!(!pulse.is_heard());
        pulse.hear(answer(None));
        assert!(!pulse.is_heard());
    }

    #[test]
    fn a_wait_ends_with_an_answer_and_with_the_link() {
        let pulse = Pulse::new();
        assert!(!pulse.wait_until_heard(LITTLE));
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pulse.wait_until_heard(Duration::from_secs(60)));
            sleep(LITTLE);
            let sent = pulse.next_beat().sent;
            pulse.hear(answer(Some(sent)));
            assert!(waiting.join().unwrap());
        });
        let pulse = Pulse::new();
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| pulse.wait_until_heard(Duration::from_secs(60)));
            sleep(LITTLE);
            pulse.end();
            assert!(!waiting.join().unwrap());
        });
        let pulse = Pulse::heard_now();
        assert!(pulse.is_heard());
        pulse.end();
        assert!(
            !pulse.is_heard(),
            "nothing is written for a link that is over"
        );
    }

    #[test]
    fn the_other_end_is_quiet_when_its_fence_stands() {
        let pulse = Pulse::new();
        assert_eq!(
            pulse.quiet_in(),
            Duration::ZERO,
            "it has never been answered"
        );
        pulse.hear(Beat {
            sent: 5,
            heard: None,
        });
        let quiet_in = pulse.quiet_in();
        assert!(quiet_in > LITTLE && quiet_in <= FENCE + MARGIN);
        // An older one changes nothing.
        sleep(LITTLE);
        pulse.hear(Beat {
            sent: 4,
            heard: None,
        });
        assert!(pulse.quiet_in() < quiet_in);
    }
}
