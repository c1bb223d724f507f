//! Asks the tuner while data flows, and publishes the setting that sessions and workers follow.
//!
//! ```text
//!   totals ─► Epoch ─► Observation ─► Tuner ─► Decision ─► SettingTarget
//!                                                           ├► sessions open and retire channels
//!                                                           └► the pool adds and retires workers
//! ```

use std::{sync::Arc, time::Duration};

use godwit_tune::{
    Bottleneck, Bounds, Decision, Method, Observation, Setting, Tuner, bottleneck,
    congestion::{Congestion, Step},
};
use tokio::{
    sync::Notify,
    time::{MissedTickBehavior, interval},
};

use super::{
    coordination::{Coordinator, ShareChange},
    epoch::{Epoch, EpochOutcome, EpochPlan, Measured, OBSERVE_INTERVAL, Totals},
    path_memory::PathMemory,
    sides::Sides,
};
use crate::{
    context::RunContext,
    local::files,
    passing::Side,
    report::events::Event,
    setting_target::Target,
    spec::{EpochMode, TunerSpec},
};

/// With less than this left to do, in seconds, no setting grows: it would not pay off.
const END_SECONDS: f64 = 1.0;

/// Fewer bytes begin with no more channels over a long round trip.
const SMALL_BYTES: u64 = 1 << 20;

/// Epochs of a transfer before its last setting is worth remembering.
const REMEMBERED_EPOCHS: u32 = 3;

/// The tuner of a job, and the setting in force.
pub(crate) struct Controller {
    tuner: Box<dyn Tuner>,
    method: Method,
    bounds: Bounds,
    seconds: f64,
    mode: EpochMode,
    /// For the whole path group; the target is this run's share.
    decided: Decision,
    coordinator: Coordinator,
    /// That of the job, as last seen.
    limit: Setting,
    memory: Option<SettingMemory>,
    congestion: Option<Congestion>,
    /// The round trip of logins is that of the data: one end is this machine.
    data_ends_here: bool,
    /// Where files pass through this machine, and one server was seen to be slower.
    sides: Option<Sides>,
}

/// Stores the setting at the end.
struct SettingMemory {
    paths: PathMemory,
    path: String,
    epochs: u32,
    goodput_bps: f64,
}

impl Controller {
    /// The tuner that the user asked for. `path` identifies the path of the job.
    pub(crate) fn new(spec: &TunerSpec, path: &str) -> Self {
        // Published methods use neither memory nor coordination.
        let ours = spec.method == Method::Godwit;
        let paths = PathMemory::of_user().filter(|_| ours && spec.remembers);
        let start = paths.as_ref().and_then(|paths| paths.recall(path));
        let tuner = spec.method.build(start, spec.bounds, files::random());
        let mut controller = Self::with(tuner, spec);
        if start.is_some() {
            let reason = "where the last transfer over this path ended";
            controller.decided.rationale = format!("{}: {reason}", controller.decided.setting);
        }
        controller.memory = paths.map(|paths| SettingMemory {
            paths,
            path: path.to_owned(),
            epochs: 0,
            goodput_bps: 0.0,
        });
        if let Some(weight) = spec.weight {
            let coordinator = Coordinator::on_host(weight, spec.rates);
            controller.coordinator = if ours {
                coordinator.on_path(path, weight)
            } else {
                coordinator
            };
        }
        controller
    }

    /// Some tuner, without memory and coordination.
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
            coordinator: Coordinator::alone(spec.rates),
            limit: Setting::new(u32::MAX, u32::MAX),
            memory: None,
            congestion: None,
            data_ends_here: false,
            sides: None,
        }
    }

    /// One end of the data is this machine, so that the round trip of logins is theirs, too.
    pub(crate) fn data_ends_here(&mut self, ends_here: bool) {
        self.data_ends_here = ends_here;
    }

    /// The chooser of congestion control (`--congestion auto`).
    pub(crate) fn chooses_congestion(&mut self, chooser: Option<Congestion>) {
        self.congestion = chooser;
    }

    /// Publishes the first setting. Before anything is opened.
    pub(crate) fn begin(&mut self, context: &RunContext) {
        context.rate.set(self.coordinator.rate_bps());
        if let Some(total) = self.coordinator.followed() {
            self.decided = Coordinator::follow_decision(total);
        }
        self.coordinator.demand_for(self.decided.setting);
        self.limit = context.target.limit();
        let setting = self.share(context);
        context.target.replace(Target {
            setting,
            ..Target::default()
        });
        context.reporter.emit(&Event::Decision {
            side: None,
            from: None,
            to: context.target.view(setting),
            reason: self.reason(),
        });
        self.coordinator.publish(self.decided.setting, context);
    }

    /// The round trip is known, and nothing was measured yet. True if that changes anything.
    fn begin_over(&mut self, round_trip: Duration, context: &RunContext) -> bool {
        // With `--epoch-mode restart` the first setting is measured as it is.
        let follows = self.coordinator.followed().is_some();
        let is_fixed = self.mode == EpochMode::Restart || follows;
        if !self.data_ends_here || is_fixed || is_small(context) {
            return false;
        }
        let stripes = context.target.stripes();
        let Some(decision) = self.tuner.begin_over(round_trip / stripes.max(1)) else {
            return false;
        };
        self.decided = decision;
        self.decided.setting = self.bounds.project(
            context
                .target
                .clamp_to_limits(self.decided.setting, self.side()),
        );
        self.coordinator.publish(self.decided.setting, context);
        self.publish(context, true)
    }

    /// Measures and decides until `on_path` fires, then reports the last epoch, too.
    pub(crate) async fn run(mut self, context: Arc<RunContext>, on_path: Arc<Notify>) {
        let mut looks = interval(OBSERVE_INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut settles = true;
        let mut channels = 0;
        let mut has_begun = false;
        let on_path = on_path.notified();
        tokio::pin!(on_path);
        loop {
            let plan = self.plan(&context, settles, channels);
            channels = plan.channels;
            let mut epoch = Epoch::new(plan);
            let outcome = loop {
                tokio::select! {
                    () = &mut on_path => {
                        if let Some(seen) = epoch.partial() {
                            report(&context, &seen);
                        }
                        self.remember(&context);
                        return;
                    }
                    _ = looks.tick() => {
                        let mut totals_now = totals_now(&context);
                        let bytes = totals_now.totals.bytes;
                        let change = self.coordinator.observe(totals_now.at, bytes, &context);
                        if let Some(change) = change {
                            self.follow(change, &context);
                            break EpochOutcome::Dropped;
                        }
                        let limit = context.target.limit();
                        if std::mem::replace(&mut self.limit, limit) != limit {
                            self.publish(&context, true);
                            break EpochOutcome::Dropped;
                        }
                        if !has_begun && totals_now.round_trip > 0.0 {
                            has_begun = true;
                            let round_trip = context.counters.round_trip();
                            if self.begin_over(round_trip, &context) {
                                // A leap: the epoch may begin as soon as goodput is even.
                                channels = 0;
                                break EpochOutcome::Dropped;
                            }
                        }
                        totals_now.others_bytes = self.coordinator.others_bytes();
                        if let Some(outcome) = epoch.observe(totals_now) {
                            break outcome;
                        }
                    }
                }
            };
            settles = match outcome {
                EpochOutcome::Dropped => true,
                EpochOutcome::Measured(seen) => {
                    report(&context, &seen);
                    self.decide(&context, &seen)
                }
            };
        }
    }

    /// The next epoch, after one with so many channels.
    fn plan(&self, context: &RunContext, settles: bool, channels: u32) -> EpochPlan {
        let restarts = self.mode == EpochMode::Restart;
        let setting = context.target.now().setting;
        let seconds = self.decided.epoch_seconds.unwrap_or(self.seconds);
        let now = setting.channels().saturating_mul(context.target.stripes());
        EpochPlan {
            setting,
            channels: now,
            seconds,
            side: self.side(),
            settles: settles && !restarts,
            leaps: now >= channels.saturating_mul(2),
            counts_idle: restarts,
            chunk_bytes: (self.decided.chunk_bytes(seconds)).filter(|_| restarts),
        }
    }

    /// This run's share of the decision.
    fn share(&self, context: &RunContext) -> Setting {
        let share = self.coordinator.share(self.decided.setting);
        self.bounds
            .project(context.target.clamp_to_limits(share, self.side()))
    }

    /// Asks the tuner and publishes its decision. True if anything changes.
    fn decide(&mut self, context: &RunContext, seen: &Measured) -> bool {
        let alone = self.coordinator.is_alone();
        // What is tried is about one side.
        let is_trying = (self.congestion.as_ref()).is_some_and(Congestion::is_trying);
        if alone
            && !is_trying
            && let Some(turned) = self.turn(context, seen.slower)
        {
            return turned;
        }
        // It is about what this machine sends.
        let sends = self.side() == Side::Destination;
        if let Some(chooser) = self.congestion.as_mut().filter(|_| sends)
            && let Some(step) = chooser.decide(&seen.observation, alone)
        {
            return self.send_with(step, context);
        }
        let is_trying = (self.congestion.as_ref()).is_some_and(Congestion::is_trying);
        if is_trying || self.coordinator.followed().is_some() {
            return false;
        }
        #[allow(clippy::cast_precision_loss)] // a rate
        let observation = Observation {
            setting: self.decided.setting,
            bytes: seen.observation.bytes.saturating_add(seen.others_bytes),
            rate_cap_bps: self.coordinator.path_rate_bps().map(|bps| bps as f64),
            ..seen.observation
        };
        if let Some(memory) = &mut self.memory {
            memory.epochs = memory.epochs.saturating_add(1);
            memory.goodput_bps = observation.goodput_bps();
        }
        let before = self.decided.setting;
        let mut decision = self.tuner.decide(&observation);
        decision.setting = self.bounds.project(
            context
                .target
                .clamp_to_limits(decision.setting, self.side()),
        );
        let grows = decision.setting.channels() > before.channels();
        if grows && ends_soon(context, seen.observation.goodput_bps()) {
            decision = Decision {
                setting: before,
                rationale: format!("{before}: stays, the end is near"),
                ..decision
            };
        }
        if decision.setting != before {
            self.coordinator.publish(decision.setting, context);
        }
        let news = decision.rationale != self.decided.rationale;
        self.decided = decision;
        self.publish(context, news)
    }

    /// Goes on with the server that was slower, where files pass through this machine. `None`:
    /// there is no reason to. Methods of papers know one setting.
    fn turn(&mut self, context: &RunContext, slower: Option<Side>) -> Option<bool> {
        let is_free = self.method == Method::Godwit && self.bounds.parallelism.is_none();
        if !is_free || self.sides.is_none() && slower.is_none() {
            return None;
        }
        let channels = context.target.now().of(Side::Source).parallelism;
        let begun = || Sides::beginning_at(channels);
        let sides = self.sides.get_or_insert_with(begun);
        let setting = sides.turn(slower, self.decided.setting)?;
        let side = sides.tuned().as_str();
        self.tuner = (self.method).build(Some(setting), self.bounds, files::random());
        self.decided = self.tuner.first();
        self.decided.setting = self.bounds.project(
            context
                .target
                .clamp_to_limits(self.decided.setting, self.side()),
        );
        self.decided.rationale = format!("{}: the {side} is slower", self.decided.setting);
        Some(self.publish(context, true))
    }

    /// Whose setting is decided about.
    fn side(&self) -> Side {
        self.sides.as_ref().map_or(Side::Destination, Sides::tuned)
    }

    /// Sets the congestion control. The setting follows unless another run decides. True if
    /// anything changes.
    fn send_with(&mut self, step: Step, context: &RunContext) -> bool {
        context.congestion.set(&step.control);
        if self.coordinator.followed().is_none() {
            let restarted = self.tuner.restart_at(step.setting);
            self.decided = restarted.unwrap_or(Decision::new(step.setting, String::new()));
            self.decided.setting = self.bounds.project(
                context
                    .target
                    .clamp_to_limits(self.decided.setting, self.side()),
            );
            self.coordinator.publish(self.decided.setting, context);
        }
        self.decided.rationale = step.rationale;
        self.publish(context, true);
        true
    }

    /// The path group changed: its members, or the decision of its leader.
    fn follow(&mut self, change: ShareChange, context: &RunContext) {
        // What is shared is one setting: that of the side with which a job begins.
        if let Some(sides) = self.sides.take() {
            self.decided.setting = sides.target(self.decided.setting, 0).setting;
            if self.coordinator.followed().is_none() {
                self.coordinator.publish(self.decided.setting, context);
            }
        }
        match change {
            ShareChange::Total(total) => self.decided = Coordinator::follow_decision(total),
            ShareChange::ShareChanged | ShareChange::Allocation => {
                self.decided.rationale = format!("{} for all", self.decided.setting);
            }
            ShareChange::BecameLeader => {
                // The previous leader has ended; its setting is the starting point.
                let total = self.decided.setting;
                self.tuner = (self.method).build(Some(total), self.bounds, files::random());
                self.decided = self.tuner.first();
                self.coordinator.publish(self.decided.setting, context);
            }
        }
        self.publish(context, true);
    }

    /// Makes this run's share of the decision the target. True if that changes anything.
    fn publish(&mut self, context: &RunContext, news: bool) -> bool {
        self.coordinator.demand_for(self.decided.setting);
        let before = context.target.now();
        let setting = self.share(context);
        let restarts = self.mode == EpochMode::Restart;
        let generation = before.generation + u64::from(restarts);
        let target = match &self.sides {
            Some(sides) => sides.target(setting, generation),
            None => Target {
                setting,
                source_channels: None,
                generation,
            },
        };
        let target = context.target.with_source_limit(target);
        let changes = target != before;
        if changes {
            context.target.replace(target);
        }
        let side = self.side();
        // Fixed settings have the same rationale after every epoch.
        if changes || news {
            context.reporter.emit(&Event::Decision {
                side: self.sides.as_ref().map(|_| side.as_str()),
                from: Some(context.target.view(before.of(side))),
                to: context.target.view(setting),
                reason: self.reason(),
            });
        }
        changes
    }

    fn reason(&self) -> String {
        let rationale = &self.decided.rationale;
        match self.coordinator.describe_share(self.decided.setting) {
            None => rationale.clone(),
            Some(describe_share) => format!("{rationale} ({describe_share})"),
        }
    }

    fn remember(&self, context: &RunContext) {
        let Some(memory) = &self.memory else { return };
        // A share of a group says little about a single transfer.
        if memory.epochs < REMEMBERED_EPOCHS || !self.coordinator.is_alone() {
            return;
        }
        // The next run starts with the system's congestion control, for which this setting may be
        // wrong.
        if self
            .congestion
            .as_ref()
            .is_some_and(Congestion::has_changed)
        {
            return;
        }
        let setting = match &self.sides {
            Some(_) => context.target.now().setting,
            None => self.decided.setting,
        };
        if let Err(error) = memory
            .paths
            .remember(&memory.path, setting, memory.goodput_bps)
        {
            context.reporter.note(format!(
                "the setting is not kept for the next time: {error}"
            ));
        }
    }
}

fn totals_now(context: &RunContext) -> Totals {
    let (totals, running) = context.counters.totals();
    Totals {
        // The totals are of that moment; with the current time short epochs would be distorted by
        // the age of the totals.
        at: context
            .started
            .elapsed()
            .saturating_sub(totals.age)
            .as_secs_f64(),
        totals,
        round_trip: context.counters.round_trip().as_secs_f64(),
        others_bytes: 0,
        running,
        windows: context.windows.look(),
        rate_cap_bps: context.rate.get(),
    }
}

/// Reports what an epoch measured.
fn report(context: &RunContext, seen: &Measured) {
    let o = &seen.observation;
    let limited_by = bottleneck::classify(o);
    context.counters.limited(limited_by, o.bytes);
    context.reporter.emit(&Event::Epoch {
        setting: context.target.view(o.setting),
        seconds: o.seconds,
        bytes: o.bytes,
        goodput_bps: o.goodput_bps(),
        channels: seen.channels,
        loss_ratio: o.loss_ratio,
        rtt_ms: o.rtt.map(|rtt| rtt.as_secs_f64() * 1e3),
        limited_by: limited_by.map(Bottleneck::as_str),
        slower_side: seen.slower.map(Side::as_str),
    });
}

/// The whole plan is known, and a few windows hold it.
fn is_small(context: &RunContext) -> bool {
    let now = context.counters.snapshot();
    now.total_known && (1..SMALL_BYTES).contains(&now.bytes_total)
}

/// The whole plan is known, and little of it is left.
#[allow(clippy::cast_precision_loss)] // an estimate
fn ends_soon(context: &RunContext, goodput_bps: f64) -> bool {
    let now = context.counters.snapshot();
    match now.bytes_total.checked_sub(now.bytes) {
        // More than was planned: sources without a size.
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
    fn user_settings_win_over_every_tuner() {
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
