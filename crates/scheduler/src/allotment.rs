//! Max-min shares of sums of channels for the leases that run.

use std::collections::BTreeMap;

use crate::{
    model::{LeaseId, Share},
    places::{LinkId, Place, Places},
};

/// A lease that takes part.
pub(crate) struct Taker {
    pub(crate) lease: LeaseId,
    pub(crate) link: LinkId,
    pub(crate) scavenger: bool,
    pub(crate) files: u32,
}

/// What is left of a place.
#[derive(Clone, Copy)]
struct Left {
    channels: u32,
    sessions: u32,
}

impl Left {
    /// After one session and one channel for each lease, and for those that wait for one.
    fn of(place: &Place) -> Self {
        let kept = place.budget.units.saturating_add(place.waiting);
        let channels = place.budget.limits.channels.unwrap_or(u32::MAX);
        let tuned = place.tuned().map_or(u32::MAX, |setting| setting.channels());
        let limit = channels.saturating_sub(kept);
        Self {
            channels: limit.min(tuned.saturating_sub(place.budget.units)),
            sessions: place.budget.session_limit().saturating_sub(kept),
        }
    }
}

/// Every lease has a channel; then each gets one more in turn, until nothing is left at an end or
/// on the link. Scavengers come last. A lease on which no sum has decided keeps what it has.
pub(crate) fn allot(takers: &[Taker], places: &Places) -> Vec<(LeaseId, Share)> {
    let mut ends: BTreeMap<u32, Left> = BTreeMap::new();
    let mut links: BTreeMap<LinkId, (Left, u32)> = BTreeMap::new();
    for taker in takers {
        for end in [taker.link.0, taker.link.1] {
            let place = &places.endpoints[&end];
            ends.entry(end).or_insert_with(|| Left::of(place));
        }
        let place = &places.links[&taker.link];
        let parallelism = [taker.link.0, taker.link.1]
            .map(|end| &places.endpoints[&end])
            .into_iter()
            .chain([place])
            .filter_map(Place::tuned)
            .map(|setting| setting.parallelism)
            .min();
        if let Some(parallelism) = parallelism {
            let entry = links.entry(taker.link);
            entry.or_insert_with(|| (Left::of(place), parallelism));
        }
    }
    let mut shares = Vec::new();
    for scavenger in [false, true] {
        let class: Vec<&Taker> = takers
            .iter()
            .filter(|taker| taker.scavenger == scavenger && links.contains_key(&taker.link))
            .collect();
        let channels = rounds(&class, &mut ends, &mut links);
        for (taker, channels) in class.into_iter().zip(channels) {
            let (left, parallelism) = links[&taker.link];
            let (source, destination) = (ends[&taker.link.0], ends[&taker.link.1]);
            let sessions = left
                .sessions
                .min(source.sessions)
                .min(destination.sessions)
                .saturating_add(1)
                .min(taker.files);
            let share = split(channels, parallelism, sessions);
            let more = share.concurrency - 1;
            for end in both(taker.link) {
                if let Some(left) = ends.get_mut(&end) {
                    left.sessions -= more;
                }
            }
            if let Some((left, _)) = links.get_mut(&taker.link) {
                left.sessions -= more;
            }
            shares.push((taker.lease, share));
        }
    }
    shares
}

/// Channels of each, by turns.
fn rounds(
    takers: &[&Taker],
    ends: &mut BTreeMap<u32, Left>,
    links: &mut BTreeMap<LinkId, (Left, u32)>,
) -> Vec<u32> {
    let mut channels = vec![1; takers.len()];
    let mut growing: Vec<usize> = (0..takers.len()).collect();
    while !growing.is_empty() {
        growing.retain(|at| {
            let link = takers[*at].link;
            let has_end = both(link).all(|end| ends[&end].channels > 0);
            if !has_end || links[&link].0.channels == 0 || channels[*at] >= CHANNELS_MAX {
                return false;
            }
            for end in both(link) {
                if let Some(left) = ends.get_mut(&end) {
                    left.channels -= 1;
                }
            }
            if let Some((left, _)) = links.get_mut(&link) {
                left.channels -= 1;
            }
            channels[*at] += 1;
            true
        });
    }
    channels
}

/// Most channels of one lease.
const CHANNELS_MAX: u32 = 1024;

fn both((source, destination): LinkId) -> impl Iterator<Item = u32> {
    let other = (destination != source).then_some(destination);
    [source].into_iter().chain(other)
}

/// So many channels at most, as near as sessions of equal channels come: with at least
/// `parallelism` a session where there are several, and at most so many sessions.
pub(crate) fn split(channels: u32, parallelism: u32, sessions: u32) -> Share {
    let channels = channels.max(1);
    let most = (channels / parallelism.max(1)).clamp(1, sessions.max(1));
    let used = |concurrency: &u32| concurrency * (channels / concurrency);
    let concurrency = (1..=most).max_by_key(used).unwrap_or(1);
    Share {
        concurrency,
        parallelism: channels / concurrency,
    }
}
