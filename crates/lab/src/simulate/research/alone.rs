//! Every transfer alone: static, or with a tuner of its own.

use std::{collections::BTreeMap, time::Duration};

use godwit_sim::fluid::{Fluid, FluidFlow, FluidId, FluidLimit};
use godwit_tune::{Bounds, Decision, Method, Observation, Tuner};

use super::{
    outcome::{DayOutcome, LONGEST_DAYS},
    scenario::{Map, ResearchStudy},
    timeline::Timeline,
    workload::DrawnTransfer,
};

const BOUNDS: Bounds = Bounds::up_to(128);
/// Epoch where the tuner wants none in particular, s.
const EPOCH_S: f64 = 1.0;
/// As in the client: a changed setting settles for so many round trips, within these limits.
const SETTLE_ROUND_TRIPS: f64 = 12.0;
const SETTLE_S: (f64, f64) = (0.1, 2.0);
/// An epoch has so many round trips at least.
const EPOCH_ROUND_TRIPS: f64 = 4.0;
/// New settings begin at multiples of this, s: many flows change at once, and rates are computed
/// once for them.
const GRID_S: f64 = 0.05;

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AloneEvent {
    /// It has logged in.
    Begin(usize),
    /// Its setting has settled.
    Settled(FluidId),
    /// Its epoch is over.
    Decide(FluidId),
}

struct OpenTransfer {
    transfer: usize,
    tuned: Option<Tuned>,
}

struct Tuned {
    tuner: Box<dyn Tuner>,
    decided: Decision,
    /// Moved, and when, as the epoch began.
    began: (f64, f64),
}

/// `is_tuned`: by godwit's default tuner.
pub(super) fn run(
    study: &ResearchStudy,
    map: &Map,
    transfers: &[DrawnTransfer],
    is_tuned: bool,
) -> DayOutcome {
    let mut fluid = Fluid::new(map.links.clone());
    let mut outcome = DayOutcome::new(transfers);
    let mut events = Timeline::default();
    let login = f64::from(study.login_round_trips);
    for (at, transfer) in transfers.iter().enumerate() {
        let rtt = map.passage(transfer.source, transfer.destination).rtt_s;
        events.at(transfer.at_s + login * rtt, AloneEvent::Begin(at));
    }
    let mut running: BTreeMap<FluidId, OpenTransfer> = BTreeMap::new();
    loop {
        let next = events.next_s().or_else(|| fluid.next_s());
        let Some(until) = next.filter(|until| *until < LONGEST_DAYS * 86_400.0) else {
            break;
        };
        for id in fluid.run_until(until) {
            fluid.close(id);
            if let Some(flow) = running.remove(&id) {
                outcome.ended(flow.transfer, fluid.now_s());
            }
        }
        while let Some(event) = events.due(fluid.now_s()) {
            match event {
                AloneEvent::Begin(at) => {
                    let transfer = &transfers[at];
                    let passage = map.passage(transfer.source, transfer.destination);
                    let tuned = is_tuned.then(|| {
                        let mut tuner = Method::Godwit.build(None, BOUNDS, at as u64);
                        let first = tuner.first();
                        let round_trip = Duration::from_secs_f64(passage.rtt_s);
                        let decided = tuner.begin_over(round_trip).unwrap_or(first);
                        let began = (0.0, fluid.now_s());
                        Tuned {
                            tuner,
                            decided,
                            began,
                        }
                    });
                    let first = tuned.as_ref().map(|tuned| tuned.decided.setting.channels());
                    #[allow(clippy::cast_precision_loss, reason = "bytes of a transfer")]
                    let bytes = transfer.bytes as f64;
                    let id = fluid.open(FluidFlow {
                        links: passage.links.clone(),
                        back_s: passage.back_s,
                        connections: first.unwrap_or(study.channels),
                        window_bytes: window(study),
                        under_way_bytes: None,
                        bytes,
                    });
                    if is_tuned {
                        events.at(
                            fluid.now_s() + settle_s(passage.rtt_s),
                            AloneEvent::Settled(id),
                        );
                    }
                    let transfer = at;
                    running.insert(id, OpenTransfer { transfer, tuned });
                }
                AloneEvent::Settled(id) => {
                    let now_s = fluid.now_s();
                    let tuned = running.get_mut(&id).and_then(|flow| flow.tuned.as_mut());
                    if let (Some(tuned), Some(state)) = (tuned, fluid.state(id)) {
                        tuned.began = (state.bytes, now_s);
                        let wanted = tuned.decided.epoch_seconds.unwrap_or(EPOCH_S);
                        let epoch = wanted.max(EPOCH_ROUND_TRIPS * state.rtt_min_s);
                        events.on_grid(now_s + epoch, GRID_S, AloneEvent::Decide(id));
                    }
                }
                AloneEvent::Decide(id) => {
                    let tuned = running.get_mut(&id).and_then(|flow| flow.tuned.as_mut());
                    if let Some(tuned) = tuned {
                        decide(&mut fluid, &mut events, id, tuned);
                    }
                }
            }
        }
    }
    outcome.finish(&mut fluid, map);
    outcome
}

pub(super) fn window(study: &ResearchStudy) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "bytes of a window")]
    let window = study.window.0 as f64;
    window
}

fn settle_s(rtt_s: f64) -> f64 {
    (SETTLE_ROUND_TRIPS * rtt_s).clamp(SETTLE_S.0, SETTLE_S.1)
}

fn decide(fluid: &mut Fluid, events: &mut Timeline<AloneEvent>, id: FluidId, tuned: &mut Tuned) {
    let now_s = fluid.now_s();
    let Some(state) = fluid.state(id) else {
        return;
    };
    let seconds = now_s - tuned.began.1;
    let moved = state.bytes - tuned.began.0;
    let by_window = if state.limit == FluidLimit::Window {
        1.0
    } else {
        0.0
    };
    let seen = Observation {
        loss_ratio: Some(state.loss),
        rtt: Some(Duration::from_secs_f64(state.rtt_s)),
        rtt_min: Some(Duration::from_secs_f64(state.rtt_min_s)),
        receive_window_limited: Some(by_window),
        send_buffer_limited: Some(0.0),
        sender_idle: Some(0.0),
        cpu_wait: Some(0.0),
        cpu_busy: Some(0.0),
        source_wait: Some(0.0),
        destination_wait: Some(0.0),
        ..Observation::of_rate(
            tuned.decided.setting,
            8.0 * moved / seconds.max(1e-9),
            seconds,
        )
    };
    let before = tuned.decided.setting;
    tuned.decided = tuned.tuner.decide(&seen);
    if tuned.decided.setting == before {
        tuned.began = (state.bytes, now_s);
        let wanted = tuned.decided.epoch_seconds.unwrap_or(EPOCH_S);
        let epoch = wanted.max(EPOCH_ROUND_TRIPS * state.rtt_min_s);
        events.on_grid(now_s + epoch, GRID_S, AloneEvent::Decide(id));
    } else {
        fluid.set_connections(id, tuned.decided.setting.channels());
        events.at(now_s + settle_s(state.rtt_s), AloneEvent::Settled(id));
    }
}
