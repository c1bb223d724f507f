//! Asks the tuner while data flows, and says what everybody steers towards.
//!
//! ```text
//!   looks at the totals ─► Epoch ─► observation ─► Tuner ─► decision ─► Context::target
//!                                                                        │ sessions open and retire channels
//!                                                                        │ the crew gets workers, or lets them go
//! ```

use std::sync::Arc;

use godwit_tune::{
    Bounds, Decision, Limit, Method, Observation, Setting, Tuner,
    congestion::{Congestion, Step},
    limit,
};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use crate::{
    company::{Change, Company},
    context::{Context, Target},
    epoch::{Epoch, LOOK, Look, Measured, Plan, Verdict},
    events::Event,
    local,
    path_memory::PathMemory,
    spec::{EpochMode, TunerSpec},
};

/// While less than this is left to do, seconds, nothing grows any more: it would not pay back.
const END_SECONDS: f64 = 1.0;

/// Epochs that a transfer must have seen before what it ends with is worth remembering.
const REMEMBERED_EPOCHS: u32 = 3;

/// The tuner of a job, and what is in force.
pub(crate) struct Controller {
    tuner: Box<dyn Tuner>,
    method: Method,
    bounds: Bounds,
    seconds: f64,
    mode: EpochMode,
    /// For all of the company; our target is our share of it.
    decided: Decision,
    company: Company,
    memory: Option<Memory>,
    congestion: Option<Congestion>,
}

/// Where the setting goes at the end.
struct Memory {
    paths: PathMemory,
    path: String,
    epochs: u32,
    goodput_bps: f64,
}

impl Controller {
    /// The tuner that the user asked for. `path` names what the job goes over.
    pub(crate) fn new(spec: &TunerSpec, path: &str) -> Self {
        // The methods of others know neither memory nor company.
        let ours = spec.method == Method::Godwit;
        let paths = PathMemory::of_user().filter(|_| ours && spec.remembers);
        let start = paths.as_ref().and_then(|paths| paths.recall(path));
        let tuner = spec.method.build(start, spec.bounds, local::random());
        let mut controller = Self::with(tuner, spec);
        if start.is_some() {
            let reason = "where the last transfer over this path ended";
            controller.decided.rationale = format!("{}: {reason}", controller.decided.setting);
        }
        controller.memory = paths.map(|paths| Memory {
            paths,
            path: path.to_owned(),
            epochs: 0,
            goodput_bps: 0.0,
        });
        if let Some(weight) = spec.weight {
            let company = Company::on_host(weight, spec.rates);
            controller.company = if ours {
                company.over(path, weight)
            } else {
                company
            };
        }
        controller
    }

    /// Some tuner, without memory and company.
    pub(crate) fn with(mut tuner: Box<dyn Tuner>, spec: &TunerSpec) -> Self {
        let mut decided = tuner.first();
        let fixed = spec.bounds.project(decided.setting);
        if fixed != decided.setting {
            decided = Decision::new(fixed, format!("{fixed}: fixed by the command line"));
        }
        Self {
            tuner,
            method: spec.method.clone(),
            bounds: spec.bounds,
            seconds: spec.epoch_seconds(),
            mode: spec.mode,
            decided,
            company: Company::none(spec.rates),
            memory: None,
            congestion: None,
        }
    }

    /// Who chooses the congestion control of our sockets (`--congestion auto`).
    pub(crate) fn chooses_congestion(&mut self, chooser: Option<Congestion>) {
        self.congestion = chooser;
    }

    /// Publishes the first setting. Before anything is opened.
    pub(crate) fn begin(&mut self, context: &Context) {
        context.rate.set(self.company.rate_bps());
        if let Some(total) = self.company.followed() {
            self.decided = Company::reason_to_follow(total);
        }
        self.company.wish_for(self.decided.setting);
        let setting = self.share(context);
        context.target.send_replace(Target {
            setting,
            generation: 0,
        });
        context.emit(&Event::Decision {
            from: None,
            to: context.view(setting),
            reason: self.reason(),
        });
        self.company.tell(self.decided.setting, context);
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
                        self.remember(&context);
                        return;
                    }
                    _ = looks.tick() => {
                        let mut look = look(&context);
                        let change = self.company.look(look.at, look.totals.bytes, &context);
                        if let Some(change) = change {
                            self.follow(change, &context);
                            break Verdict::Dropped;
                        }
                        look.others_bytes = self.company.others_bytes();
                        if let Some(verdict) = epoch.look(look) {
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
        let setting = context.target.borrow().setting;
        let seconds = self.decided.epoch_seconds.unwrap_or(self.seconds);
        Plan {
            setting,
            channels: setting.channels(),
            seconds,
            settles: settles && !restarts,
            counts_idle: restarts,
            chunk_bytes: (self.decided.chunk_bytes(seconds)).filter(|_| restarts),
        }
    }

    /// Our part of what was decided.
    fn share(&self, context: &Context) -> Setting {
        let share = self.company.share(self.decided.setting);
        self.bounds.project(context.fit(share))
    }

    /// Asks the tuner and publishes what it says. True where anything changes.
    fn decide(&mut self, context: &Context, seen: &Measured) -> bool {
        let alone = self.company.is_alone();
        if let Some(chooser) = &mut self.congestion
            && let Some(step) = chooser.decide(&seen.observation, alone)
        {
            return self.send_with(step, context);
        }
        if (self.congestion.as_ref()).is_some_and(Congestion::is_trying) {
            return false;
        }
        if self.company.followed().is_some() {
            return false;
        }
        #[allow(clippy::cast_precision_loss)] // a rate
        let observation = Observation {
            setting: self.decided.setting,
            bytes: seen.observation.bytes.saturating_add(seen.others_bytes),
            rate_cap_bps: self.company.path_rate_bps().map(|bps| bps as f64),
            ..seen.observation
        };
        if let Some(memory) = &mut self.memory {
            memory.epochs = memory.epochs.saturating_add(1);
            memory.goodput_bps = observation.goodput_bps();
        }
        let before = self.decided.setting;
        let mut decision = self.tuner.decide(&observation);
        decision.setting = self.bounds.project(context.fit(decision.setting));
        let grows = decision.setting.channels() > before.channels();
        if grows && ends_soon(context, seen.observation.goodput_bps()) {
            decision = Decision {
                setting: before,
                rationale: format!("{before}: stays, the end is near"),
                ..decision
            };
        }
        if decision.setting != before {
            self.company.tell(decision.setting, context);
        }
        let news = decision.rationale != self.decided.rationale;
        self.decided = decision;
        self.publish(context, news)
    }

    /// The congestion control changes, or is to stay. The setting goes with it, unless another
    /// decides. True where anything changes.
    fn send_with(&mut self, step: Step, context: &Context) -> bool {
        context.congestion.set(&step.control);
        if self.company.followed().is_none() {
            let anew = self.tuner.begin_anew(step.setting);
            self.decided = anew.unwrap_or(Decision::new(step.setting, String::new()));
            self.decided.setting = self.bounds.project(context.fit(self.decided.setting));
            self.company.tell(self.decided.setting, context);
        }
        self.decided.rationale = step.rationale;
        self.publish(context, true);
        true
    }

    /// The company changed: other members, or another decision of the one who leads it.
    fn follow(&mut self, change: Change, context: &Context) {
        match change {
            Change::Total(total) => self.decided = Company::reason_to_follow(total),
            Change::Parts | Change::Allowance => {
                self.decided.rationale = format!("{} for all", self.decided.setting);
            }
            Change::Leads => {
                // Whoever led before has ended; what it had found is where we go on.
                let total = self.decided.setting;
                self.tuner = (self.method).build(Some(total), self.bounds, local::random());
                self.decided = self.tuner.first();
                self.company.tell(self.decided.setting, context);
            }
        }
        self.publish(context, true);
    }

    /// Makes our share of what was decided the target. True where that changes anything.
    fn publish(&mut self, context: &Context, news: bool) -> bool {
        self.company.wish_for(self.decided.setting);
        let before = *context.target.borrow();
        let setting = self.share(context);
        let restarts = self.mode == EpochMode::Restart;
        let changes = setting != before.setting || restarts;
        if changes {
            context.target.send_replace(Target {
                setting,
                generation: before.generation + u64::from(restarts),
            });
        }
        // Those who never move have the same to say after every epoch.
        if changes || news {
            context.emit(&Event::Decision {
                from: Some(context.view(before.setting)),
                to: context.view(setting),
                reason: self.reason(),
            });
        }
        changes
    }

    fn reason(&self) -> String {
        let rationale = &self.decided.rationale;
        match self.company.words(self.decided.setting) {
            None => rationale.clone(),
            Some(words) => format!("{rationale} ({words})"),
        }
    }

    fn remember(&self, context: &Context) {
        let Some(memory) = &self.memory else { return };
        // A share of what several have says little about one.
        if memory.epochs < REMEMBERED_EPOCHS || !self.company.is_alone() {
            return;
        }
        // The next one begins with the usual congestion control, and what is right for another is
        // not for that.
        if self
            .congestion
            .as_ref()
            .is_some_and(Congestion::has_changed)
        {
            return;
        }
        let setting = self.decided.setting;
        if let Err(error) = memory
            .paths
            .remember(&memory.path, setting, memory.goodput_bps)
        {
            context.note(format!(
                "the setting is not kept for the next time: {error}"
            ));
        }
    }
}

fn look(context: &Context) -> Look {
    let (totals, running) = context.counters.totals();
    Look {
        // The totals are of that moment; with the present one short epochs would be fast by as much
        // as they are old.
        at: context
            .started
            .elapsed()
            .saturating_sub(totals.age)
            .as_secs_f64(),
        totals,
        round_trip: context.counters.round_trip().as_secs_f64(),
        others_bytes: 0,
        running,
        rate_cap_bps: context.rate.get(),
    }
}

/// Tells everybody what an epoch has seen.
fn report(context: &Context, seen: &Measured) {
    let o = &seen.observation;
    let limited_by = limit::judge(o);
    context.counters.limited(limited_by, o.bytes);
    context.emit(&Event::Epoch {
        setting: context.view(o.setting),
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
    use crate::spec::Rates;
    use godwit_tune::Method;

    fn controller(method: &str, bounds: Bounds) -> Controller {
        Controller::new(
            &TunerSpec {
                method: Method::parse(method).unwrap(),
                bounds,
                epoch: None,
                mode: EpochMode::Live,
                remembers: false,
                weight: None,
                rates: Rates::default(),
            },
            "",
        )
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
