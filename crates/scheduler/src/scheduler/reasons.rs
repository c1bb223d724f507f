//! Why a queue waits, by the checks of the step.

use std::collections::BTreeMap;

use super::{Blocked, Queue, Scheduler, part};
use crate::{
    agents::NoAgent,
    budget::Shortage,
    line::{Domain, Lane, NodeId},
    model::{EndpointState, Hold, QueueKey},
    places::Place,
    why::{Reason, TakenLimit},
};

/// How many holders of a limit a reason names.
const HOLDERS: usize = 3;

impl Scheduler {
    /// Why a queue waits, most telling first; why it is slow where all of it runs.
    pub fn why(&self, key: &QueueKey) -> Vec<Reason> {
        let queue = self.ids.get(key).map(|id| &self.queues[id]);
        let Some(queue) = queue.filter(|queue| queue.state.ready > 0) else {
            return self.limited_by(key);
        };
        let lane = match queue.lane() {
            Lane::Fair if self.check_first(queue).is_ok() => Lane::Fast,
            lane => lane,
        };
        let blocked = self
            .check_places(queue, lane)
            .and_then(|_| self.check_agents(queue, lane));
        match blocked {
            Ok(()) => vec![Reason::Scheduling],
            Err(blocked) => self.reasons(queue, blocked),
        }
    }

    fn check_agents(&self, queue: &Queue, lane: Lane) -> Result<(), Blocked> {
        let ends = [queue.link.0, queue.link.1].map(|id| &**self.places.name(id));
        let classes = self.agents.classes_now(ends, &queue.state.labels);
        self.agents
            .choose(&classes, lane)
            .map(|_| ())
            .map_err(Blocked::Agents)
    }

    fn limited_by(&self, key: &QueueKey) -> Vec<Reason> {
        let mut of = 0;
        let mut limits: BTreeMap<&str, u32> = BTreeMap::new();
        let (Some(source), Some(destination)) = (
            self.places.known(&key.source),
            self.places.known(&key.destination),
        ) else {
            return Vec::new();
        };
        let link = self.places.links.get(&(source, destination));
        let leases = link.into_iter().flat_map(|link| &link.leases);
        for lease in leases.map(|id| &self.leases[id]) {
            if lease.key == *key {
                of += 1;
                let limit = lease.limited_by.as_deref();
                limits.extend(limit.map(|limit| (limit, 0)));
                if let Some(units) = limit.and_then(|limit| limits.get_mut(limit)) {
                    *units += 1;
                }
            }
        }
        let most = limits.into_iter().max_by_key(|(_, units)| *units);
        most.map(|(limit, units)| Reason::LimitedBy {
            limit: limit.to_owned(),
            units,
            of,
        })
        .into_iter()
        .collect()
    }

    fn reasons(&self, queue: &Queue, blocked: Blocked) -> Vec<Reason> {
        let share_used = |scavenger| Reason::ShareUsed {
            share: self.tree.path(queue.owner),
            units: self.tree.units(queue.owner),
            scavenger,
        };
        let name = |id: u32| self.places.name(id).to_string();
        let one = match blocked {
            Blocked::Hold(Hold::Paused) => Reason::Paused,
            Blocked::Hold(Hold::Credential) => Reason::CredentialExpired,
            Blocked::Hold(Hold::AfterJob) => Reason::AfterJob,
            Blocked::RetryAt(at) => Reason::RetryAt {
                at,
                wait: at.saturating_sub(self.now),
            },
            Blocked::State(id, EndpointState::Down) => Reason::EndpointDown { endpoint: name(id) },
            Blocked::State(id, state) => Reason::Banned {
                endpoint: name(id),
                draining: state == EndpointState::Draining,
            },
            Blocked::Share(reached) => {
                let share = self.tree.path(reached.node);
                let (unit, used, limit) = match reached.limit_units {
                    Some(limit) => ("units", reached.units.into(), limit.into()),
                    None => (
                        "bytes",
                        reached.bytes,
                        reached.limit_bytes.unwrap_or(u64::MAX),
                    ),
                };
                Reason::Quota {
                    share,
                    unit,
                    used,
                    limit,
                }
            }
            Blocked::Endpoint(id, short) => {
                let place = &self.places.endpoints[&id];
                return self.shortage(queue, name(id), Some(id), place, short);
            }
            Blocked::Link(short) => {
                let place = &self.places.links[&queue.link];
                let name = self.places.link_name(queue.link);
                return self.shortage(queue, name, None, place, short);
            }
            Blocked::PathFull {
                endpoint,
                channels,
                units,
            } => Reason::PathFull {
                place: endpoint.map_or_else(|| self.places.link_name(queue.link), name),
                is_link: endpoint.is_none(),
                channels,
                units,
            },
            Blocked::LeftOver(_) | Blocked::Beside => share_used(true),
            Blocked::NotFirst(_) => Reason::Scheduling,
            Blocked::Agents(NoAgent::Busy { agents }) => {
                return vec![Reason::AgentsBusy { agents }, share_used(false)];
            }
            Blocked::Agents(NoAgent::Unreachable) => Reason::NoAgent {
                link: self.places.link_name(queue.link),
                labels: queue.state.labels.clone(),
            },
        };
        vec![one]
    }

    /// The share for which a session of the endpoint stays free.
    fn kept_for(&self, place: &Place) -> Option<String> {
        let kept = place.kept.filter(|_| self.is_kept(place))?;
        Some(self.tree.path(self.queues[&kept.queue].owner))
    }

    /// The holders of a limit that is reached.
    fn shortage(
        &self,
        queue: &Queue,
        place_name: String,
        endpoint: Option<u32>,
        place: &Place,
        short: Shortage,
    ) -> Vec<Reason> {
        let rate = |unit, limit, wait| Reason::Rate {
            place: place_name.clone(),
            is_link: endpoint.is_none(),
            unit,
            limit,
            wait,
        };
        let (unit, used, limit) = match short {
            Shortage::Bytes { wait, per_second } => {
                return vec![rate("bytes", per_second, wait)];
            }
            Shortage::Files { wait, per_second } => {
                return vec![rate("files", per_second.into(), wait)];
            }
            Shortage::Sessions { used, limit } => ("sessions", used, limit),
            Shortage::Channels { used, limit } => ("channels", used, limit),
        };
        let mut held: BTreeMap<NodeId, u32> = BTreeMap::new();
        for lease in place.leases.iter().map(|id| &self.leases[id]) {
            let (sessions, channels) = lease.held;
            let amount = if unit == "sessions" {
                sessions
            } else {
                channels
            };
            *held.entry(lease.owner).or_default() += amount;
        }
        let own = held.remove(&queue.owner).unwrap_or(0);
        let mut holders: Vec<(String, u32)> = held
            .into_iter()
            .map(|(owner, amount)| (self.tree.path(owner), amount))
            .collect();
        holders.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        holders.truncate(HOLDERS);
        let domain = Domain {
            endpoint: endpoint.or(Some(queue.link.1)),
            ..queue.domains[0]
        };
        let fraction = self.tree.fraction(queue.owner, &domain);
        let mut reasons = vec![Reason::Limit(TakenLimit {
            place: place_name,
            is_link: endpoint.is_none(),
            unit,
            used,
            limit,
            own,
            fair: part(fraction, limit),
            kept_for: self.kept_for(place).filter(|_| used < limit),
            holders,
        })];
        if own > 0 && own >= part(fraction, limit) {
            reasons.push(Reason::ShareUsed {
                share: self.tree.path(queue.owner),
                units: self.tree.units(queue.owner),
                scavenger: false,
            });
        }
        reasons
    }
}
