//! Endpoints and links: names, budgets, what runs on them.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use godwit_tune::Setting;

use crate::{
    budget::Budget,
    model::{Config, EndpointName, EndpointState, LeaseId, Limits, Tuning},
    tuned_sum::TunedSum,
};

/// Weight of the unit that ended last in the pace of its link.
const PACE_WEIGHT: f64 = 0.3;

/// Source and destination.
pub(crate) type LinkId = (u32, u32);

/// A session that stays free for a queue.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) queue: u32,
    /// The end that is full.
    pub(crate) waits_at: u32,
    pub(crate) until: Duration,
}

/// An endpoint, or a link.
#[derive(Debug, Default)]
pub(crate) struct Place {
    pub(crate) state: EndpointState,
    pub(crate) budget: Budget,
    pub(crate) sum: Option<TunedSum>,
    /// What the last sum had come to when another place's turn came, and of how many links.
    learned: Option<(Setting, u32)>,
    /// Links that the sum is of.
    links: u32,
    pub(crate) leases: BTreeSet<LeaseId>,
    /// Leases without those of scavengers.
    pub(crate) others: u32,
    /// What a unit costs in a second, by those that ended.
    pub(crate) pace: Option<f64>,
    /// Queues and leases that name it.
    pub(crate) references: u32,
    /// Queues that wait for room there, without scavengers.
    pub(crate) waiting: u32,
    /// Of an endpoint: the last free session is for this queue, which waits for its other end.
    pub(crate) kept: Option<Kept>,
    /// Of a link: the group of agents that reach both ends, by the labels that they must have.
    pub(crate) reach: BTreeMap<Vec<String>, (u64, u32)>,
}

impl Place {
    /// Most channels that are of use, and how many make a session.
    pub(crate) fn tuned(&self) -> Option<Setting> {
        self.sum.as_ref().map(TunedSum::setting)
    }

    /// A unit that cost so much ended after so long.
    pub(crate) fn add_pace(&mut self, cost: f64, time: Duration) {
        if cost > 0.0 && !time.is_zero() {
            let pace = cost / time.as_secs_f64();
            let before = self.pace.unwrap_or(pace);
            self.pace = Some(before + PACE_WEIGHT * (pace - before));
        }
    }

    fn channels_max(&self, tuning: &Tuning) -> u32 {
        let limit = self.budget.limits.channels;
        limit.unwrap_or(tuning.channels_max).max(1)
    }

    /// Lets the sum decide, where it is this place's turn to be tuned.
    pub(crate) fn tune(
        &mut self,
        links: Option<u32>,
        start: Option<Setting>,
        tuning: &Tuning,
        now: Duration,
    ) {
        let Some(links) = links.map(|links| links.max(1)) else {
            if let Some(sum) = self.sum.take() {
                self.learned = Some((sum.setting(), self.links));
            }
            return;
        };
        self.links = links;
        let most = self.channels_max(tuning);
        let channels = self.budget.channels;
        match &mut self.sum {
            Some(sum) if sum.channels_max() == most => sum.observe(channels, tuning, now),
            None if self.leases.is_empty() => {}
            old => {
                let learned = self.learned.map(|(setting, of)| scaled(setting, links, of));
                let start = old.as_ref().map(TunedSum::setting).or(learned).or(start);
                *old = Some(TunedSum::new(start, most, now));
            }
        }
    }
}

/// Each link has as many channels as before.
fn scaled(setting: Setting, links: u32, of: u32) -> Setting {
    let sessions = setting
        .concurrency
        .saturating_mul(links)
        .div_ceil(of.max(1));
    Setting::new(sessions.max(1), setting.parallelism)
}

#[derive(Debug, Default)]
pub(crate) struct Places {
    ids: BTreeMap<EndpointName, u32>,
    names: BTreeMap<u32, EndpointName>,
    made: u32,
    pub(crate) endpoints: BTreeMap<u32, Place>,
    pub(crate) links: BTreeMap<LinkId, Place>,
}

impl Places {
    /// The endpoint's number; it is made where it is missing.
    pub(crate) fn id(&mut self, name: &EndpointName) -> u32 {
        if let Some(id) = self.ids.get(name) {
            return *id;
        }
        let id = self.made;
        self.made += 1;
        self.ids.insert(name.clone(), id);
        self.names.insert(id, name.clone());
        self.endpoints.insert(id, Place::default());
        id
    }

    pub(crate) fn known(&self, name: &EndpointName) -> Option<u32> {
        self.ids.get(name).copied()
    }

    pub(crate) fn name(&self, id: u32) -> &EndpointName {
        &self.names[&id]
    }

    pub(crate) fn link_name(&self, link: LinkId) -> String {
        format!("{} -> {}", self.name(link.0), self.name(link.1))
    }

    /// The two ends, one where they are the same, and the link.
    pub(crate) fn of(&mut self, link: LinkId) -> impl Iterator<Item = &mut Place> {
        let (low, high) = (link.0.min(link.1), link.0.max(link.1));
        let mut range = self.endpoints.range_mut(low..=high);
        let first = range.next();
        let last = range.next_back().filter(|(id, _)| **id == high);
        let endpoints = first.into_iter().chain(last);
        endpoints
            .map(|(_, place)| place)
            .chain(self.links.get_mut(&link))
    }

    /// Whether leases of a link may use so many sessions and channels more.
    pub(crate) fn have_room_for(&mut self, link: LinkId, more: (u32, u32)) -> bool {
        self.of(link).all(|place| place.budget.has_room_for(more))
    }

    pub(crate) fn configure(&mut self, config: &Config) {
        for place in self.endpoints.values_mut() {
            (place.state, place.budget.limits) = (EndpointState::Open, Limits::default());
        }
        for place in self.links.values_mut() {
            place.budget.limits = Limits::default();
        }
        for (name, endpoint) in &config.endpoints {
            let id = self.id(name);
            let place = self.endpoints.entry(id).or_default();
            (place.state, place.budget.limits) = (endpoint.state, endpoint.limits);
        }
        for ((source, destination), limits) in &config.links {
            let link = (self.id(source), self.id(destination));
            self.links.entry(link).or_default().budget.limits = *limits;
        }
    }

    pub(crate) fn hold(&mut self, link: LinkId) {
        self.links.entry(link).or_default();
        self.of(link).for_each(|place| place.references += 1);
    }

    pub(crate) fn release(&mut self, link: LinkId) {
        self.of(link).for_each(|place| place.references -= 1);
    }

    /// Removes what no queue, lease or configuration names.
    pub(crate) fn collect(&mut self, config: &Config) {
        let names = &self.names;
        self.links.retain(|link, place| {
            let ends = (names[&link.0].clone(), names[&link.1].clone());
            place.references > 0 || config.links.contains_key(&ends)
        });
        let mut kept: BTreeSet<u32> = self.links.keys().flat_map(|(s, d)| [*s, *d]).collect();
        kept.extend(config.endpoints.keys().filter_map(|name| self.known(name)));
        self.endpoints
            .retain(|id, place| place.references > 0 || kept.contains(id));
        let alive = &self.endpoints;
        self.names.retain(|id, _| alive.contains_key(id));
        self.ids.retain(|_, id| alive.contains_key(id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sum_goes_on_where_it_was_with_as_many_channels_for_each_link() {
        let (tuning, now) = (Tuning::default(), Duration::ZERO);
        let mut place = Place::default();
        place.leases.insert(LeaseId(1));
        let start = |concurrency| Some(Setting::new(concurrency, 2));
        place.tune(Some(2), start(8), &tuning, now);
        assert_eq!(place.tuned(), start(8));
        // One link is left, and tuned by itself.
        place.tune(None, start(1), &tuning, now);
        assert_eq!(place.tuned(), None);
        place.tune(Some(3), start(1), &tuning, now);
        assert_eq!(place.tuned(), start(12));
        place.tune(Some(2), start(1), &tuning, now);
        place.tune(None, start(1), &tuning, now);
        place.tune(Some(2), start(1), &tuning, now);
        assert_eq!(place.tuned(), start(12));
    }
}
