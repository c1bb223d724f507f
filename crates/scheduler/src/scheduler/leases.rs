//! Leases: units that start, report and end, what they are charged, and the shares of those that
//! run.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use godwit_tune::Setting;

use super::Scheduler;
use crate::{
    allotment::{Taker, allot},
    charge::{Usage, as_float, cost},
    line::{At, Domain, NodeId},
    model::{Class, LeaseId, LeaseReport, QueueKey, Share, StartedLease},
    places::{LinkId, Place},
    tree::NodeName,
};

/// Most sessions and channels that a report may claim; more count as this many.
const REPORTED_MAX: u32 = 4096;

#[derive(Debug)]
pub(super) struct Lease {
    pub(super) key: QueueKey,
    pub(super) link: LinkId,
    pub(super) job: NodeId,
    pub(super) owner: NodeId,
    pub(super) domains: Vec<Domain>,
    pub(super) scavenger: bool,
    pub(super) fast: bool,
    pub(super) agent: String,
    pub(super) bytes: u64,
    pub(super) files: u32,
    pub(super) started: Duration,
    /// What was charged for when it started.
    pub(super) expected: Usage,
    /// Cost over which weights were divided: of class and deadline.
    pub(super) boost: f64,
    pub(super) share: Share,
    /// Sessions and channels that it may be using.
    pub(super) held: (u32, u32),
    /// Seconds of sessions and channels that were held until then.
    pub(super) held_seconds: (f64, f64),
    pub(super) held_until: Duration,
    pub(super) limited_by: Option<String>,
    /// Bytes a second, by the last report.
    pub(super) goodput: f64,
    /// Bytes that reports said so far, and when the last one came.
    pub(super) reported: f64,
    pub(super) reported_at: Duration,
    /// Bytes that were added to sums, which run on at the last goodput between reports.
    pub(super) counted: f64,
}

impl Lease {
    /// It may use so much from now on.
    pub(super) fn hold(&mut self, held: (u32, u32), now: Duration) {
        let seconds = now.saturating_sub(self.held_until).as_secs_f64();
        self.held_seconds.0 += f64::from(self.held.0) * seconds;
        self.held_seconds.1 += f64::from(self.held.1) * seconds;
        (self.held, self.held_until) = (held, now);
    }
}

impl Scheduler {
    /// Counts a unit that runs already, e.g. after a restart of the caller.
    pub fn lease_started(&mut self, lease: StartedLease, now: Duration) -> LeaseId {
        self.advance(now);
        let (link, domains) = self.place(&lease.queue, lease.class);
        let owner = self.tree.share(&lease.path);
        let job = self.tree.child(owner, NodeName::Job(lease.queue.job));
        self.start(Lease {
            key: lease.queue,
            link,
            job,
            owner,
            domains,
            scavenger: lease.class == Class::Scavenger,
            fast: false,
            agent: lease.agent,
            bytes: lease.bytes,
            files: lease.files,
            started: now,
            expected: Usage {
                bytes: lease.bytes,
                files: lease.files,
                ..Usage::default()
            },
            boost: 1.0,
            share: lease.share,
            held: (lease.share.concurrency, lease.share.channels()),
            held_seconds: (0.0, 0.0),
            held_until: now,
            limited_by: None,
            goodput: 0.0,
            reported: 0.0,
            reported_at: now,
            counted: 0.0,
        })
    }

    pub(super) fn start(&mut self, lease: Lease) -> LeaseId {
        self.leases_made += 1;
        let id = LeaseId(self.leases_made);
        self.tree.hold(lease.job);
        self.tree.add_running(lease.job, lease.bytes);
        self.agents.started(&lease.agent);
        self.places.hold(lease.link);
        let now = self.now;
        for place in self.places.of(lease.link) {
            place.leases.insert(id);
            place.others += u32::from(!lease.scavenger);
            place.budget.units += 1;
            place.budget.sessions += lease.held.0;
            place.budget.channels += lease.held.1;
            let bytes = as_float(lease.bytes);
            place.budget.take(bytes, f64::from(lease.files), now);
        }
        if lease.fast {
            *self.fast.entry(lease.owner).or_default() += 1;
        }
        self.leases.insert(id, lease);
        id
    }

    /// A unit ended, or never began: these bytes and files are what it cost.
    pub fn lease_ended(&mut self, id: LeaseId, bytes: u64, files: u32, now: Duration) {
        self.advance(now);
        let Some(mut lease) = self.leases.remove(&id) else {
            return;
        };
        lease.hold(lease.held, self.now);
        let began = bytes > 0 || files > 0;
        let (session_seconds, channel_seconds) = lease.held_seconds;
        let used = Usage {
            bytes,
            files,
            session_seconds: session_seconds * f64::from(u8::from(began)),
            channel_seconds: channel_seconds * f64::from(u8::from(began)),
        };
        let paid = self.costs(&lease.domains, &lease.expected, lease.boost);
        let mut differences = self.costs(&lease.domains, &used, lease.boost);
        for ((_, cost), (_, paid)) in differences.iter_mut().zip(paid) {
            *cost -= paid;
        }
        self.tree.correct(lease.job, &differences);
        self.tree.remove_running(lease.job, lease.bytes);
        self.agents.ended(&lease.agent);
        for place in self.places.of(lease.link) {
            place.leases.remove(&id);
            place.others -= u32::from(!lease.scavenger);
            place.budget.units -= 1;
            place.budget.sessions -= lease.held.0;
            place.budget.channels -= lease.held.1;
            place.add_pace(cost(bytes, files), self.now.saturating_sub(lease.started));
            let more = as_float(bytes) - as_float(lease.bytes);
            let files = f64::from(files) - f64::from(lease.files);
            place.budget.take(more, files, self.now);
            if let Some(sum) = &mut place.sum {
                sum.add_bytes(as_float(bytes) - lease.counted);
            }
        }
        if lease.fast
            && let Some(running) = self.fast.get_mut(&lease.owner)
        {
            *running -= 1;
            if *running == 0 {
                self.fast.remove(&lease.owner);
            }
        }
        self.wake_link(lease.link);
        let nodes: Vec<NodeId> = self.tree.ancestry(lease.job).collect();
        nodes.into_iter().for_each(|node| self.wake(At::Node(node)));
        self.places.release(lease.link);
        self.tree.release(lease.job);
    }

    /// What so much costs in each domain: in slots by bytes, at endpoints by what is limited there.
    pub(super) fn costs(
        &self,
        domains: &[Domain],
        usage: &Usage,
        boost: f64,
    ) -> Vec<(Domain, f64)> {
        let cost = |domain: &Domain| {
            let place = domain.endpoint.map(|id| &self.places.endpoints[&id]);
            place.map_or(usage.cost(), |place| usage.cost_at(&place.budget))
        };
        let costs = domains.iter().map(|domain| (*domain, cost(domain) / boost));
        costs.collect()
    }

    /// An agent says how a unit does.
    pub fn lease_report(&mut self, id: LeaseId, report: LeaseReport, now: Duration) {
        self.advance(now);
        let Some(lease) = self.leases.get_mut(&id) else {
            return;
        };
        let seconds = self.now.saturating_sub(lease.reported_at).as_secs_f64();
        lease.goodput = match report.goodput {
            goodput if goodput.is_finite() => goodput.max(0.0),
            _ => 0.0,
        };
        lease.reported += lease.goodput * seconds;
        lease.reported_at = self.now;
        let bytes = lease.reported - lease.counted;
        lease.counted = lease.reported;
        lease.limited_by = report.limited_by;
        let sessions = report.setting.concurrency.min(REPORTED_MAX);
        let channels = report.setting.channels().min(REPORTED_MAX);
        let held = (
            sessions.max(lease.share.concurrency),
            channels.max(lease.share.channels()),
        );
        let before = lease.held;
        lease.hold(held, self.now);
        let link = lease.link;
        for place in self.places.of(link) {
            place.budget.sessions = place.budget.sessions - before.0 + held.0;
            place.budget.channels = place.budget.channels - before.1 + held.1;
            if let Some(sum) = &mut place.sum {
                sum.add_bytes(bytes);
            }
        }
        if held.0 < before.0 || held.1 < before.1 {
            self.wake_link(link);
        }
    }

    /// Lets the sums of channels decide by what was reported, and says which leases get another
    /// share. To be called every second or so.
    pub fn shares(&mut self, now: Duration) -> Vec<(LeaseId, Share)> {
        self.advance(now);
        self.count_bytes();
        self.tune();
        let takers: Vec<Taker> = self
            .leases
            .iter()
            .map(|(id, lease)| Taker {
                lease: *id,
                link: lease.link,
                scavenger: lease.scavenger,
                files: lease.files,
            })
            .collect();
        let mut changes = Vec::new();
        let wanted = allot(&takers, &self.places);
        // What is given up makes room first, as far as agents have confirmed it already.
        for lowers in [true, false] {
            for (id, share) in &wanted {
                let Some(lease) = self.leases.get_mut(id) else {
                    continue;
                };
                let (old, held) = (lease.share, lease.held);
                if *share == old || lowers != (share.channels() <= old.channels()) {
                    continue;
                }
                let next = (held.0.max(share.concurrency), held.1.max(share.channels()));
                let more = (next.0 - held.0, next.1 - held.1);
                if !self.places.have_room_for(lease.link, more) {
                    continue;
                }
                lease.share = *share;
                lease.hold(next, self.now);
                for place in self.places.of(lease.link) {
                    place.budget.sessions += more.0;
                    place.budget.channels += more.1;
                }
                changes.push((*id, *share));
            }
        }
        changes
    }

    /// Reports of leases come at different times: between them each counts at its last goodput.
    fn count_bytes(&mut self) {
        for lease in self.leases.values_mut() {
            let since = self.now.saturating_sub(lease.reported_at).as_secs_f64();
            let so_far = lease.reported + lease.goodput * since;
            let so_far = so_far.min(as_float(lease.bytes).max(lease.reported));
            for place in self.places.of(lease.link) {
                if let Some(sum) = &mut place.sum {
                    sum.add_bytes(so_far - lease.counted);
                }
            }
            lease.counted = so_far;
        }
    }

    /// A link that has its ends to itself is tuned by itself; an endpoint of several links by the
    /// sum over them.
    fn tune(&mut self) {
        let (tuning, now) = (self.config.tuning, self.now);
        let busy: Vec<LinkId> = self
            .places
            .links
            .iter()
            .filter(|(_, place)| !place.leases.is_empty())
            .map(|(link, _)| *link)
            .collect();
        let mut links_of: BTreeMap<u32, u32> = BTreeMap::new();
        for link in &busy {
            for end in BTreeSet::from([link.0, link.1]) {
                *links_of.entry(end).or_default() += 1;
            }
        }
        let is_shared = |end: &u32| links_of.get(end).is_some_and(|links| *links > 1);
        let mut changed = Vec::new();
        for (id, place) in &mut self.places.endpoints {
            // What the links had is where the sum begins.
            let (start, before) = (place_start(place), place.tuned());
            let links = links_of.get(id).copied().filter(|links| *links > 1);
            place.tune(links, start, &tuning, now);
            changed.extend((place.tuned() != before).then_some(At::Endpoint(*id)));
        }
        for (link, place) in &mut self.places.links {
            let alone = !is_shared(&link.0) && !is_shared(&link.1);
            let (start, before) = (place_start(place), place.tuned());
            place.tune(alone.then_some(1), start, &tuning, now);
            changed.extend((place.tuned() != before).then_some(At::Link(*link)));
        }
        changed.into_iter().for_each(|at| self.wake(at));
    }
}

/// Where a sum begins: at what runs, where more than one unit does.
fn place_start(place: &Place) -> Option<Setting> {
    let budget = &place.budget;
    let parallelism = budget.channels / budget.sessions.max(1);
    (budget.units > 1).then(|| Setting::new(budget.sessions, parallelism))
}
