//! Rates again, where flows began, changed or ended.
//!
//! A link that is not full keeps its flows apart: each has what its own limits and other links
//! allow. So a change reaches the flows that share a full link with what changed, those that share
//! one with these, and so on; and where more is asked of a link than others leave there, it is full
//! and its flows belong to it. All others keep their rates, which are the same as if all were
//! computed again.

use std::collections::BTreeSet;

use super::{
    Fluid, FluidId,
    flow::FlowRate,
    response,
    share::{self, Asked, Got},
};

/// What a change reaches.
struct Reach {
    flows: BTreeSet<FluidId>,
    /// All flows of these links belong to it.
    links: BTreeSet<usize>,
}

impl Fluid {
    /// Rates of the flows that the last changes reach.
    pub(super) fn refresh(&mut self) {
        // Again where that ended slow starts.
        while !(self.changed.is_empty() && self.left_links.is_empty()) {
            self.refresh_part();
        }
    }

    fn refresh_part(&mut self) {
        let mut part = Reach {
            flows: BTreeSet::new(),
            links: std::mem::take(&mut self.left_links),
        };
        let mut more: Vec<FluidId> = std::mem::take(&mut self.changed).into_iter().collect();
        for link in &part.links {
            more.extend(self.links[*link].flows.iter().copied());
        }
        loop {
            self.extend(&mut part, more);
            let (got, overrun) = self.shares_of(&part);
            if overrun.is_empty() {
                self.apply(&part, &got);
                return;
            }
            more = Vec::new();
            for link in overrun {
                part.links.insert(link);
                more.extend(self.links[link].flows.iter().copied());
            }
        }
    }

    /// Adds flows, and what full links tie to them.
    fn extend(&self, part: &mut Reach, mut more: Vec<FluidId>) {
        while let Some(id) = more.pop() {
            let Some(flow) = self.flows.get(&id) else {
                continue;
            };
            if !part.flows.insert(id) {
                continue;
            }
            for at in &flow.links {
                if self.links[*at].couples && part.links.insert(*at) {
                    more.extend(self.links[*at].flows.iter().copied());
                }
            }
        }
    }

    /// What each flow of a part gets, first were all weights those of one full link, and with the
    /// weights of several; and the links that would be full with flows of others on them.
    fn shares_of(&self, part: &Reach) -> (Vec<(Got, Got)>, BTreeSet<usize>) {
        let flows: Vec<_> = part.flows.iter().map(|id| &self.flows[id]).collect();
        // What others leave of the links.
        let mut first_left = vec![0.0; self.links.len()];
        let mut left = vec![0.0; self.links.len()];
        let mut ours = vec![0_usize; self.links.len()];
        for flow in &flows {
            for at in &flow.links {
                let link = &self.links[*at];
                if ours[*at] == 0 {
                    first_left[*at] = link.capacity_bps - link.first_bps;
                    left[*at] = link.capacity_bps - link.sent_bps;
                }
                ours[*at] += 1;
                first_left[*at] += flow.rate.first_bps;
                left[*at] += flow.rate.sent_bps;
            }
        }
        let is_shared = |at: usize| ours[at] < self.links[at].flows.len();
        for at in (0..self.links.len()).filter(|at| ours[*at] > 0 && !is_shared(*at)) {
            // Without what sums of floats have left over.
            (first_left[at], left[at]) = (self.links[at].capacity_bps, self.links[at].capacity_bps);
        }
        let mut asked: Vec<Asked<'_>> = (flows.iter())
            .map(|flow| Asked {
                links: &flow.links,
                weight: flow.weight(),
                limit: flow.limit().0,
            })
            .collect();
        let first = share::shares(&first_left, &asked);
        let mut full: BTreeSet<usize> = first.iter().filter_map(|got| got.link).collect();
        let mut several = false;
        for flow in &mut asked {
            let links = flow.links.iter().filter(|link| full.contains(link)).count();
            if let Ok(links @ 2..) = u32::try_from(links) {
                flow.weight /= f64::from(links).powi(3);
                several = true;
            }
        }
        let got = match several || left != first_left {
            true => share::shares(&left, &asked),
            false => first.clone(),
        };
        full.extend(got.iter().filter_map(|got| got.link));
        let overrun = full.into_iter().filter(|at| is_shared(*at)).collect();
        (first.into_iter().zip(got).collect(), overrun)
    }

    fn apply(&mut self, part: &Reach, got: &[(Got, Got)]) {
        let (flows, links, now_s) = (&mut self.flows, &mut self.links, self.now_s);
        for id in &part.flows {
            let flow = &flows[id];
            for at in &flow.links {
                links[*at].take_away(flow, *at, now_s);
            }
        }
        for at in &part.links {
            links[*at].carry_nothing();
        }
        let full = || got.iter().flat_map(|(first, got)| [first.link, got.link]);
        for at in part.links.iter().copied().chain(full().flatten()) {
            let link = &mut links[at];
            link.count(now_s);
            (link.is_full, link.couples, link.queue_s) = (false, false, 0.0);
        }
        for at in full().flatten() {
            links[at].couples = true;
        }
        for (id, (first, got)) in part.flows.iter().zip(got) {
            let Some(flow) = flows.get_mut(id) else {
                continue;
            };
            let (mut queue_s, mut full) = (0.0, None);
            if let Some(at) = got.link {
                let link = &mut links[at];
                queue_s = link.link.queue_s * response::mean_queue(link.queue);
                let rtt_s = flow.rtt_s + queue_s;
                let each = got.rate / f64::from(flow.connections) / 8.0;
                let lost = response::loss(rtt_s, each * rtt_s / super::SEGMENT_BYTES);
                full = Some((at, lost));
                (link.is_full, link.queue_s) = (true, queue_s);
            }
            self.due.remove(&(flow.due_s.to_bits(), *id));
            let rate = FlowRate {
                sent_bps: got.rate,
                first_bps: first.rate,
                full,
                queue_s,
            };
            if flow.set_rate(rate, now_s) {
                self.changed.insert(*id);
            }
            if flow.due_s.is_finite() {
                self.due.insert((flow.due_s.to_bits(), *id));
            }
            for at in &flow.links {
                links[*at].carry(flow, *at);
                links[*at].note_connections();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use godwit_tune::random::Random;

    use super::*;
    use crate::fluid::{FluidFlow, FluidLink};

    fn below(count: usize, random: &mut Random) -> usize {
        usize::try_from(random.next_u64() % count as u64).unwrap()
    }

    fn connections(random: &mut Random) -> u32 {
        u32::try_from(1 + below(64, random)).unwrap()
    }

    /// Of each flow, bit/s.
    fn rates(fluid: &mut Fluid) -> Vec<(FluidId, f64)> {
        fluid.refresh();
        let all = fluid.flows.iter();
        all.map(|(id, flow)| (*id, flow.rate.sent_bps)).collect()
    }

    #[test]
    fn a_part_has_the_rates_that_all_together_give() {
        let mut random = Random::new(3);
        for _ in 0..20 {
            let links: Vec<FluidLink> = (0..12)
                .map(|_| FluidLink {
                    rate_bps: 1e9 * (1.0 + 9.0 * random.unit()),
                    delay_s: 0.01 * random.unit(),
                    queue_s: 0.02 * random.unit(),
                    loss: if random.unit() < 0.3 { 1e-5 } else { 0.0 },
                })
                .collect();
            let mut fluid = Fluid::new(links);
            let mut open: Vec<FluidId> = Vec::new();
            let mut full = 0;
            for _ in 0..200 {
                match below(4, &mut random) {
                    0 | 1 => {
                        let links = (0..12).filter(|_| random.unit() < 0.2).collect();
                        open.push(fluid.open(FluidFlow {
                            links,
                            back_s: 0.01,
                            connections: connections(&mut random),
                            window_bytes: 1e5 + 4e6 * random.unit(),
                            under_way_bytes: None,
                            bytes: 1e9 * random.unit(),
                        }));
                    }
                    2 if !open.is_empty() => {
                        let id = open[below(open.len(), &mut random)];
                        fluid.set_connections(id, connections(&mut random));
                    }
                    _ if !open.is_empty() => {
                        fluid.close(open.swap_remove(below(open.len(), &mut random)));
                    }
                    _ => {}
                }
                let until = fluid.now_s() + 0.1 * random.unit();
                for id in fluid.run_until(until) {
                    fluid.close(id);
                    open.retain(|other| *other != id);
                }
                let parts = rates(&mut fluid);
                full += fluid.links.iter().filter(|link| link.is_full).count();
                fluid.changed.extend(open.iter().copied());
                fluid.left_links.extend(0..12);
                for ((id, part), (_, all)) in parts.iter().zip(rates(&mut fluid)) {
                    assert!((part - all).abs() <= 1e-6 * all, "{id:?}: {part} and {all}");
                }
                for link in &fluid.links {
                    let flows = link.flows.iter().map(|id| fluid.flows[id].rate.sent_bps);
                    let sum: f64 = flows.sum();
                    assert!((link.sent_bps - sum).abs() <= 1.0 + 1e-9 * sum);
                    assert!(sum <= link.capacity_bps * (1.0 + 1e-9));
                }
            }
            assert!(full > 100, "{full} full links: too few to try them");
        }
    }
}
