//! The user's other transfers as the controller sees them: which run decides for the path, this
//! run's share of it, and its share of the host's budget.

mod host_budget;
mod path_group;

use godwit_tune::{Decision, Setting};

use self::{
    host_budget::{Allocation, Demand, HostBudget},
    path_group::{GroupView, PathGroup, share},
};
use crate::{context::RunContext, spec::Rates};

/// Samples of the controller between two exchanges with the others.
const EVERY: u32 = 2;
/// Time over which this run's rate is measured, seconds.
const RATE_SECONDS: f64 = 0.5;
/// A run that uses this fraction of its allocation would use more.
const SATURATED_SHARE: f64 = 0.9;
/// A run's demand exceeds its current use by this factor.
const HEADROOM: f64 = 1.25;

/// The group of this run, if any.
pub(crate) struct Coordinator {
    group: Option<PathGroup>,
    view: GroupView,
    observations: u32,
    host: Option<HostBudget>,
    allocation: Allocation,
    /// This run's demand on this host.
    wish: Demand,
    rates: Rates,
    /// Seconds and bytes at the last measurement of the rate.
    measured: (f64, u64),
}

/// A change.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ShareChange {
    /// The leader, another run, chose another total.
    Total(Setting),
    /// Members joined or left: the share changed.
    ShareChanged,
    /// This run leads from now on.
    BecameLeader,
    /// The host's budget gives this run another number of channels.
    Allocation,
}

const ALONE: GroupView = GroupView {
    leads: true,
    members: 1,
    others_bytes: 0,
    part: 1.0,
    total: None,
    others_cap_bps: Some(0),
};

impl Coordinator {
    pub(crate) const fn alone(rates: Rates) -> Self {
        Self {
            group: None,
            view: ALONE,
            observations: 0,
            host: None,
            allocation: Allocation {
                channels: u32::MAX,
                rate_bps: rates.host_bps,
            },
            wish: Demand {
                channels: 1,
                rate_bps: f64::INFINITY,
            },
            rates,
            measured: (0.0, 0),
        }
    }

    /// All transfers of this user on this host. If they cannot be found, each runs alone.
    pub(crate) fn on_host(weight: f64, rates: Rates) -> Self {
        let mut coordinator = Self::alone(rates);
        let wish = coordinator.wish;
        let joined = HostBudget::join(weight, rates.host_bps).and_then(|mut host| {
            let allocation = host.exchange(wish)?;
            Ok((host, allocation))
        });
        match joined {
            Ok((host, allocation)) => {
                (coordinator.host, coordinator.allocation) = (Some(host), allocation);
            }
            Err(error) => {
                tracing::debug!(%error, "other transfers on this host are not looked for")
            }
        }
        coordinator
    }

    /// Also joins those over `path`, to tune together.
    pub(crate) fn on_path(mut self, path: &str, weight: f64) -> Self {
        let cap_bps = self.rate_bps();
        let joined = PathGroup::join(path, weight).and_then(|mut group| {
            let view = group.exchange(0, cap_bps)?;
            Ok((group, view))
        });
        match joined {
            Ok((group, view)) => (self.group, self.view) = (Some(group), view),
            Err(error) => {
                tracing::debug!(%error, "transfers over the same path are not looked for");
            }
        }
        self
    }

    /// Publishes the bytes moved `at` a time, in seconds, and reads those of the others.
    pub(crate) fn observe(
        &mut self,
        at: f64,
        bytes: u64,
        context: &RunContext,
    ) -> Option<ShareChange> {
        self.observations = self.observations.wrapping_add(1);
        if !self.observations.is_multiple_of(EVERY) {
            return None;
        }
        let allowed = self.exchange_with_host(at, bytes, context);
        self.exchange_with_path(bytes, context).or(allowed)
    }

    fn exchange_with_host(
        &mut self,
        at: f64,
        bytes: u64,
        context: &RunContext,
    ) -> Option<ShareChange> {
        self.measure(at, bytes);
        let before = self.allocation;
        match self.host.as_mut()?.exchange(self.wish) {
            Ok(allocation) => self.allocation = allocation,
            Err(error) => {
                context.reporter.note(format!(
                    "other transfers on this host are looked for no more: {error}"
                ));
                self.host = None;
                self.allocation = Self::alone(self.rates).allocation;
            }
        }
        context.rate.set(self.rate_bps());
        let runs = |allocation: Allocation| self.wish.channels.min(allocation.channels);
        (runs(before) != runs(self.allocation)).then_some(ShareChange::Allocation)
    }

    /// This run's demand of the rate: all, or a little more than its use if that is below the
    /// allocation.
    #[allow(clippy::cast_precision_loss)] // rates need no more than 53 bits
    fn measure(&mut self, at: f64, bytes: u64) {
        let (then, had) = self.measured;
        if at - then < RATE_SECONDS {
            return;
        }
        self.measured = (at, bytes);
        let rate = bytes.saturating_sub(had) as f64 * 8.0 / (at - then);
        let most = self.rates.own_bps.map_or(f64::INFINITY, |bps| bps as f64);
        let uses_all = (self.rate_bps()).is_none_or(|bps| rate >= SATURATED_SHARE * bps as f64);
        self.wish.rate_bps = if uses_all {
            most
        } else {
            most.min(HEADROOM * rate)
        };
    }

    fn exchange_with_path(&mut self, bytes: u64, context: &RunContext) -> Option<ShareChange> {
        let before = self.view;
        let cap_bps = self.rate_bps();
        match self.group.as_mut()?.exchange(bytes, cap_bps) {
            Ok(view) => self.view = view,
            Err(error) => {
                self.leave(&error, context);
                return (!before.leads).then_some(ShareChange::BecameLeader);
            }
        }
        change(&before, &self.view)
    }

    /// Publishes the decision to the others.
    pub(crate) fn publish(&mut self, total: Setting, context: &RunContext) {
        if !self.view.leads {
            return;
        }
        if let Some(group) = &self.group
            && let Err(error) = group.decide(total)
        {
            self.leave(&error, context);
        }
    }

    fn leave(&mut self, error: &std::io::Error, context: &RunContext) {
        context.reporter.note(format!(
            "other transfers over this path are looked for no more: {error}"
        ));
        self.group = None;
        self.view = GroupView {
            others_bytes: self.view.others_bytes,
            ..ALONE
        };
    }

    /// The total of the leader, if another run leads.
    pub(crate) fn followed(&self) -> Option<Setting> {
        self.view.total.filter(|_| !self.view.leads)
    }

    pub(crate) const fn is_alone(&self) -> bool {
        self.view.members == 1
    }

    pub(crate) const fn others_bytes(&self) -> u64 {
        self.view.others_bytes
    }

    /// This run's share of `total`, within the host's budget.
    pub(crate) fn share(&self, total: Setting) -> Setting {
        let wished = share(total, self.view.part);
        let channels = wished.channels().max(1);
        if channels <= self.allocation.channels {
            return wished;
        }
        share(
            wished,
            f64::from(self.allocation.channels) / f64::from(channels),
        )
    }

    /// The share of `total` without the host's budget.
    pub(crate) fn demand_for(&mut self, total: Setting) {
        self.wish.channels = share(total, self.view.part).channels();
    }

    /// This run's rate limit, bit/s.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        (self
            .rates
            .own_bps
            .into_iter()
            .chain(self.allocation.rate_bps))
        .min()
    }

    /// The sum of the rate limits over the path, bit/s; `None` if a member has none.
    pub(crate) fn path_rate_bps(&self) -> Option<u64> {
        let ours_and_theirs = self.rate_bps().zip(self.view.others_cap_bps);
        ours_and_theirs.map(|(ours, theirs)| ours.saturating_add(theirs))
    }

    /// Why `total` is not in force here; `None` if it is.
    pub(crate) fn describe_share(&self, total: Setting) -> Option<String> {
        let of_path = (!self.is_alone()).then(|| {
            format!(
                "{:.0} % of it here, {} transfers over this path",
                self.view.part * 100.0,
                self.view.members
            )
        });
        let wished = share(total, self.view.part).channels();
        let of_host = (wished > self.allocation.channels).then(|| {
            let (ours, all) = (
                self.allocation.channels,
                crate::tuning::coordination::host_budget::CHANNELS,
            );
            format!("{ours} of the {all} channels of this host")
        });
        match (of_path, of_host) {
            (Some(path), Some(host)) => Some(format!("{path}; {host}")),
            (path, host) => path.or(host),
        }
    }

    /// Another run's decision as this run's.
    pub(crate) fn follow_decision(total: Setting) -> Decision {
        Decision::new(total, format!("{total} for all, decided by another"))
    }
}

fn change(before: &GroupView, now: &GroupView) -> Option<ShareChange> {
    match (before.leads, now.leads) {
        (false, true) => Some(ShareChange::BecameLeader),
        (_, false) if now.total != before.total => now.total.map(ShareChange::Total),
        _ if (now.part - before.part).abs() > f64::EPSILON => Some(ShareChange::ShareChanged),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_reported_once_and_by_weight() {
        let view = |leads, part, total| GroupView {
            leads,
            part,
            total,
            ..ALONE
        };
        let (a, b) = (Some(Setting::new(1, 8)), Some(Setting::new(1, 9)));
        let follows = view(false, 0.5, a);
        assert_eq!(change(&follows, &follows), None);
        assert_eq!(
            change(&follows, &view(false, 0.5, b)),
            Some(ShareChange::Total(Setting::new(1, 9)))
        );
        assert_eq!(
            change(&follows, &view(false, 0.25, a)),
            Some(ShareChange::ShareChanged)
        );
        assert_eq!(
            change(&follows, &view(true, 1.0, b)),
            Some(ShareChange::BecameLeader)
        );
        let leads = view(true, 1.0, a);
        assert_eq!(change(&leads, &view(true, 1.0, b)), None);
        assert_eq!(
            change(&leads, &view(true, 0.5, a)),
            Some(ShareChange::ShareChanged)
        );
    }
}
