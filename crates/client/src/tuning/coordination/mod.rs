//! The user's other transfers, as the controller sees them: who decides for those over our path,
//! how much of it is ours, and what is ours of that which all on this host share.

mod host_budget;
mod path_group;

use godwit_tune::{Decision, Setting};

use self::{
    host_budget::{Allocation, Demand, HostBudget},
    path_group::{GroupView, PathGroup, share},
};
use crate::{context::RunContext, spec::Rates};

/// Looks of the controller between two looks at the company.
const EVERY: u32 = 2;
/// Time over which our own rate is measured, seconds.
const RATE_SECONDS: f64 = 0.5;
/// Who uses so much of what it may have would use more.
const SATURATED_SHARE: f64 = 0.9;
/// Others leave us so much more than what we use at present.
const HEADROOM: f64 = 1.25;

/// A group that we belong to, or nobody.
pub(crate) struct Coordinator {
    group: Option<PathGroup>,
    view: GroupView,
    observations: u32,
    host: Option<HostBudget>,
    allocation: Allocation,
    /// What we say to the others on this host.
    wish: Demand,
    rates: Rates,
    /// Seconds and bytes when our rate was last measured.
    measured: (f64, u64),
}

/// What is new.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum ShareChange {
    /// We follow, and another total was decided.
    Total(Setting),
    /// Members came or went: our part is another one.
    ShareChanged,
    /// We decide from now on.
    BecameLeader,
    /// Others on this host leave us another number of channels.
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

    /// All transfers of this user on this host. Where they cannot be found each is on its own.
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

    /// And those who move over `path` too, to tune with them.
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

    /// Tells what we have moved `at` a time, seconds, and looks at the others.
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

    /// What we would have of the rate: all, or where we use less than we may, somewhat more than
    /// that.
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

    /// Tells the others what was decided.
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

    /// The total that another decided, where another decides.
    pub(crate) fn followed(&self) -> Option<Setting> {
        self.view.total.filter(|_| !self.view.leads)
    }

    pub(crate) const fn is_alone(&self) -> bool {
        self.view.members == 1
    }

    pub(crate) const fn others_bytes(&self) -> u64 {
        self.view.others_bytes
    }

    /// Our part of `total`, as far as others on this host leave us the channels.
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

    /// Our part of `total` is what we would run.
    pub(crate) fn demand_for(&mut self, total: Setting) {
        self.wish.channels = share(total, self.view.part).channels();
    }

    /// What we may have at most, bit/s.
    pub(crate) fn rate_bps(&self) -> Option<u64> {
        (self
            .rates
            .own_bps
            .into_iter()
            .chain(self.allocation.rate_bps))
        .min()
    }

    /// What all over our path may have at most, bit/s; `None` where one has no cap.
    pub(crate) fn path_rate_bps(&self) -> Option<u64> {
        let ours_and_theirs = self.rate_bps().zip(self.view.others_cap_bps);
        ours_and_theirs.map(|(ours, theirs)| ours.saturating_add(theirs))
    }

    /// Why `total` is not what runs here; `None` where it is.
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

    /// Somebody else's decision, as if it were ours.
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
    fn news_are_told_once_and_by_weight() {
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
