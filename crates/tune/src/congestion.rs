//! Which congestion control the sending sockets use, where the user leaves that to us.
//!
//! ```text
//!   watch ── steady, held back by loss ──► try ── pays, without harm ──► keep ── harm ──┐
//!     ▲                                     └── else ──┐                                │
//!     └──────────── after a long time ──── rest ◄──────┴────────────────────────────────┘
//! ```
//! A control that takes loss for a full path (cubic, reno) stays far below a path that loses
//! packets by chance, whatever the number of channels; one that measures rate and delay (bbr) does
//! not. But where loss means a full path the latter takes it from others. So it is tried where the
//! evidence speaks for chance, judged by what it brings *and* by what it does to the path, and
//! given up when it does harm.
//!
//! As pure as a tuner: observations go in, steps come out.

use std::fmt;

use crate::{Bottleneck, Observation, Setting, bottleneck, format::Rate};

/// Epochs in a row under one setting that make a level: neither a search nor a probe is running.
const STEADY_EPOCHS: u32 = 4;
/// Below this share of segments sent again, another control has little to win back.
const LOSS_WORTH_IT: f64 = 1e-4;
/// What the other control must bring, relative. Less may be chance, and does not pay for what
/// others may lose.
const GAIN: f64 = 1.1;
/// Harm: more segments sent again than this, or than twice as many as before where that is more,
const LOSS_HARMFUL: f64 = 0.02;
/// or round trips longer than this many times the shortest: a standing queue, which everybody else
/// waits in too.
const QUEUE_HARMFUL: f64 = 2.0;
/// Harm for so long, seconds, ends it. A search or a probe that overshoots does some for shorter.
const HARM_S: f64 = 5.0;
/// The beginning of a trial says nothing, seconds: a start-up that overshoots loses more packets
/// than it will ever lose again, and repeats them for a while.
const START_UP_S: f64 = 2.0;
/// A trial that has found no level by then is over, seconds.
const TRIAL_S: f64 = 20.0;
/// The setting of a trial. One channel of a control that measures rate fills a path, and several
/// make a queue that one does not.
const TRIAL: Setting = Setting::new(1, 1);
/// After a control was given up it is not tried again for so long, seconds: a trial in vain costs
/// less than a thirtieth.
const REST_S: f64 = 600.0;

/// Chooses between the control that the system would use and another.
#[derive(Clone, Debug)]
pub struct Congestion {
    usual: String,
    other: String,
    state: State,
    steady: LevelFinder,
}

#[derive(Clone, Debug)]
enum State {
    Watch,
    /// The other control is in force.
    Other {
        before: Level,
        kept: bool,
        seconds: f64,
        /// Seconds in a row in which it did harm.
        harm_s: f64,
    },
    Rest {
        seconds: f64,
    },
}

/// What to do, and why.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    /// The control to use from now on.
    pub control: String,
    /// The setting to continue from.
    pub setting: Setting,
    /// Why, in lower case and without a full stop.
    pub rationale: String,
}

impl Congestion {
    /// `usual` is in force, `other` can be had.
    pub fn new(usual: &str, other: &str) -> Self {
        Self {
            usual: usual.to_owned(),
            other: other.to_owned(),
            state: State::Watch,
            steady: LevelFinder::default(),
        }
    }

    /// The other control is in force.
    pub const fn has_changed(&self) -> bool {
        matches!(self.state, State::Other { .. })
    }

    /// The other control is being tried: the setting must stay as it is.
    pub const fn is_trying(&self) -> bool {
        matches!(self.state, State::Other { kept: false, .. })
    }

    /// An epoch under the control in force is over. `alone`: no other transfer of the user is part
    /// of what was observed; else nothing new is tried, and a trial ends.
    pub fn decide(&mut self, seen: &Observation, alone: bool) -> Option<Step> {
        let level = self.steady.note(seen);
        let passed = if seen.seconds.is_finite() {
            seen.seconds.max(0.0)
        } else {
            0.0
        };
        match &mut self.state {
            State::Watch => {
                let before = level.filter(|l| l.lossy && l.loss > LOSS_WORTH_IT && alone)?;
                Some(self.try_other(before))
            }
            State::Rest { seconds } => {
                *seconds -= passed;
                if *seconds <= 0.0 {
                    self.state = State::Watch;
                }
                None
            }
            State::Other {
                before,
                kept,
                seconds,
                harm_s,
            } => {
                let starts = *seconds < START_UP_S;
                *seconds += passed;
                if starts {
                    self.steady = LevelFinder::default();
                    return None;
                }
                let harm = harm_of(&Level::of(seen), before);
                *harm_s = if harm.is_some() {
                    *harm_s + passed
                } else {
                    0.0
                };
                let (before, kept, seconds) = (*before, *kept, *seconds);
                if let Some(harm) = harm.filter(|_| *harm_s >= HARM_S) {
                    return Some(self.back(&before, &harm.to_string()));
                }
                if kept {
                    return None;
                }
                if !alone {
                    return Some(self.back(&before, "other transfers share the path now"));
                }
                match level.filter(|level| harm_of(level, &before).is_none()) {
                    Some(level) => Some(self.classify(&before, &level)),
                    None if seconds >= TRIAL_S => {
                        Some(self.back(&before, "nothing steady and harmless came of it"))
                    }
                    None => None,
                }
            }
        }
    }

    fn try_other(&mut self, before: Level) -> Step {
        self.steady = LevelFinder::default();
        self.state = State::Other {
            before,
            kept: false,
            seconds: 0.0,
            harm_s: 0.0,
        };
        Step {
            control: self.other.clone(),
            setting: TRIAL,
            rationale: format!(
                "{} -> {}: {} with {:.2} % of segments lost and no queue",
                self.usual,
                self.other,
                Rate(before.goodput_bps),
                before.loss * 100.0
            ),
        }
    }

    fn classify(&mut self, before: &Level, level: &Level) -> Step {
        let words = format!(
            "{} instead of {}",
            Rate(level.goodput_bps),
            Rate(before.goodput_bps)
        );
        if level.goodput_bps <= GAIN * before.goodput_bps {
            return self.back(before, &format!("only {words}"));
        }
        if let State::Other { kept, .. } = &mut self.state {
            *kept = true;
        }
        Step {
            control: self.other.clone(),
            setting: level.setting,
            rationale: format!(
                "{} stays: {words}, {:.2} % of segments lost",
                self.other,
                level.loss * 100.0
            ),
        }
    }

    fn back(&mut self, before: &Level, why: &str) -> Step {
        self.steady = LevelFinder::default();
        self.state = State::Rest { seconds: REST_S };
        Step {
            control: self.usual.clone(),
            setting: before.setting,
            rationale: format!("{} -> {}: {why}", self.other, self.usual),
        }
    }
}

/// What is done to the path and those on it.
#[derive(Clone, Copy, Debug)]
enum Harm {
    Loss(f64),
    Queue(f64),
}

impl fmt::Display for Harm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Loss(loss) => write!(f, "{:.1} % of segments are lost", loss * 100.0),
            Self::Queue(times) => write!(f, "round trips take {times:.1} times the shortest"),
        }
    }
}

fn harm_of(level: &Level, before: &Level) -> Option<Harm> {
    if level.loss > LOSS_HARMFUL.max(2.0 * before.loss) {
        return Some(Harm::Loss(level.loss));
    }
    (level.queue > QUEUE_HARMFUL).then_some(Harm::Queue(level.queue))
}

/// What a setting gives: in an epoch, or once nothing changes any more.
#[derive(Clone, Copy, Debug)]
struct Level {
    setting: Setting,
    goodput_bps: f64,
    loss: f64,
    /// Round-trip time over the shortest; 0 where it is not known.
    queue: f64,
    /// Every epoch was held back by loss, without a queue.
    lossy: bool,
}

impl Level {
    fn of(seen: &Observation) -> Self {
        let queue = match (seen.rtt, seen.rtt_min) {
            (Some(rtt), Some(least)) if !least.is_zero() => rtt.as_secs_f64() / least.as_secs_f64(),
            _ => 0.0,
        };
        Self {
            setting: seen.setting,
            goodput_bps: seen.goodput_bps(),
            loss: seen.loss_ratio.filter(|l| l.is_finite()).unwrap_or(0.0),
            queue,
            lossy: bottleneck::classify(seen) == Some(Bottleneck::NetworkLoss),
        }
    }
}

/// Finds levels: runs of epochs under one setting.
#[derive(Clone, Copy, Debug, Default)]
struct LevelFinder {
    run: Option<Level>,
    epochs: u32,
}

impl LevelFinder {
    /// The mean of the run that `seen` belongs to, once it is long enough. Then the next run
    /// begins.
    fn note(&mut self, seen: &Observation) -> Option<Level> {
        let this = Level::of(seen);
        let run = self.run.filter(|run| run.setting == this.setting);
        self.epochs = run.map_or(1, |_| self.epochs + 1);
        let n = f64::from(self.epochs);
        let mean = run.map_or(this, |run| Level {
            goodput_bps: run.goodput_bps + (this.goodput_bps - run.goodput_bps) / n,
            loss: run.loss + (this.loss - run.loss) / n,
            queue: run.queue + (this.queue - run.queue) / n,
            lossy: run.lossy && this.lossy,
            ..this
        });
        if self.epochs < STEADY_EPOCHS {
            self.run = Some(mean);
            return None;
        }
        self.run = None;
        Some(mean)
    }
}

#[cfg(test)]
mod tests;
