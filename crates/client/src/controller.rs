//! Asks the tuner while data flows, and says what everybody steers towards.
//!
//! ```text
//!   looks at the totals ─► Epoch ─► observation ─► Tuner ─► decision ─► Context::target
//!                                                                        │ sessions open and retire channels
//!                                                                        │ the crew gets workers, or lets them go
//! ```

use std::sync::Arc;

use godwit_tune::{Bounds, Decision, Limit, Setting, Tuner, limit};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use crate::{
    context::{Context, Target},
    epoch::{Epoch, LOOK, Look, Measured, Plan, Verdict},
    events::Event,
    local,
    spec::{EpochMode, TunerSpec},
};

/// While less than this is left to do, seconds, nothing grows any more: it would not pay back.
const END_SECONDS: f64 = 1.0;

/// The tuner of a job, and what is in force.
pub(crate) struct Controller {
    tuner: Box<dyn Tuner>,
    bounds: Bounds,
    seconds: f64,
    mode: EpochMode,
    decided: Decision,
}

impl Controller {
    /// The tuner that the user asked for.
    pub(crate) fn new(spec: &TunerSpec) -> Self {
        let tuner = spec.method.build(None, spec.bounds, local::random());
        Self::with(tuner, spec)
    }

    /// Some tuner.
    pub(crate) fn with(mut tuner: Box<dyn Tuner>, spec: &TunerSpec) -> Self {
        let mut decided = tuner.first();
        let fixed = spec.bounds.project(decided.setting);
        if fixed != decided.setting {
            decided = Decision::new(fixed, format!("{fixed}: fixed by the command line"));
        }
        Self {
            tuner,
            bounds: spec.bounds,
            seconds: spec.epoch_seconds(),
            mode: spec.mode,
            decided,
        }
    }

    /// Publishes the first setting. Before anything is opened.
    pub(crate) fn begin(&self, context: &Context) {
        context.target.send_replace(Target {
            setting: self.decided.setting,
            generation: 0,
        });
        context.emit(&Event::Decision {
            from: None,
            to: self.decided.setting.into(),
            reason: self.decided.rationale.clone(),
        });
    }

    /// Measures and decides until `over` is told; then what the last epoch has seen is told too.
    pub(crate) async fn run(mut self, context: Arc<Context>, over: Arc<Notify>) {
        let mut looks = interval(LOOK);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut settles = true;
        let over = over.notified();
        tokio::pin!(over);
        loop {
            let mut epoch = Epoch::new(self.plan(&context, settles));
            let verdict = loop {
                tokio::select! {
                    () = &mut over => {
                        if let Some(seen) = epoch.so_far() {
                            report(&context, &seen);
                        }
                        return;
                    }
                    _ = looks.tick() => {
                        if let Some(verdict) = epoch.look(look(&context)) {
                            break verdict;
                        }
                    }
                }
            };
            settles = match verdict {
                Verdict::Dropped => true,
                Verdict::Measured(seen) => {
                    report(&context, &seen);
                    self.decide(&context, &seen)
                }
            };
        }
    }

    fn plan(&self, context: &Context, settles: bool) -> Plan {
        let restarts = self.mode == EpochMode::Restart;
        Plan {
            setting: context.target.borrow().setting,
            seconds: self.decided.epoch_seconds.unwrap_or(self.seconds),
            settles: settles && !restarts,
            counts_idle: restarts,
        }
    }

    /// Asks the tuner and publishes what it says. True where anything changes.
    fn decide(&mut self, context: &Context, seen: &Measured) -> bool {
        let before = *context.target.borrow();
        let mut decision = self.tuner.decide(&seen.observation);
        decision.setting = self.bounds.project(Setting {
            concurrency: decision.setting.concurrency.min(context.sessions_max()),
            ..decision.setting
        });
        let grows = decision.setting.channels() > before.setting.channels();
        if grows && ends_soon(context, seen.observation.goodput_bps()) {
            let reason = format!("{}: stays, the end is near", before.setting);
            decision = Decision {
                setting: before.setting,
                rationale: reason,
                ..decision
            };
        }
        let restarts = self.mode == EpochMode::Restart;
        let changes = decision.setting != before.setting || restarts;
        if changes {
            context.target.send_replace(Target {
                setting: decision.setting,
                generation: before.generation + u64::from(restarts),
            });
        }
        // Those who never move have the same to say after every epoch.
        if changes || decision.rationale != self.decided.rationale {
            context.emit(&Event::Decision {
                from: Some(before.setting.into()),
                to: decision.setting.into(),
                reason: decision.rationale.clone(),
            });
        }
        self.decided = decision;
        changes
    }
}

fn look(context: &Context) -> Look {
    let (totals, running) = context.counters.totals();
    Look {
        at: context.started.elapsed().as_secs_f64(),
        totals,
        running,
    }
}

/// Tells everybody what an epoch has seen.
fn report(context: &Context, seen: &Measured) {
    let o = &seen.observation;
    let limited_by = limit::judge(o);
    context.counters.limited(limited_by, o.bytes);
    context.emit(&Event::Epoch {
        setting: o.setting.into(),
        seconds: o.seconds,
        bytes: o.bytes,
        goodput_bps: o.goodput_bps(),
        channels: seen.channels,
        loss_ratio: o.loss_ratio,
        rtt_ms: o.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
        limited_by: limited_by.map(Limit::as_str),
    });
}

/// All that is to be done is known, and little of it is left.
#[allow(clippy::cast_precision_loss)] // an estimate
fn ends_soon(context: &Context, goodput_bps: f64) -> bool {
    let now = context.counters.snapshot();
    match now.bytes_total.checked_sub(now.bytes) {
        // More than was announced: sources without a size.
        None | Some(0) => false,
        Some(left) => now.total_known && left as f64 * 8.0 < goodput_bps * END_SECONDS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use godwit_tune::Method;

    fn controller(method: &str, bounds: Bounds) -> Controller {
        Controller::new(&TunerSpec {
            method: Method::parse(method).unwrap(),
            bounds,
            epoch: None,
            mode: EpochMode::Live,
        })
    }

    #[test]
    fn what_the_user_fixes_wins_over_every_tuner() {
        for method in Method::NAMES {
            let bounds = Bounds {
                concurrency: Some(2),
                parallelism: Some(3),
                ..Bounds::up_to(128)
            };
            let controller = controller(method, bounds);
            assert_eq!(controller.decided.setting, Setting::new(2, 3), "{method}");
        }
    }
}
