//! The budget that all transfers of one user on this host share, to any server: channels, and a
//! rate if one of them sets it (`--host-rate`).
//!
//! Each publishes its demand and computes its allocation from all demands: weighted max-min shares,
//! so that the others use what one does not need. There is no leader; all reach the same shares
//! within one or two exchanges.

use std::{io, path::Path};

use crate::local::presence::{Presence, user_folder};

/// Data channels of all transfers together. Four times the limit of one transfer; more sockets help
/// no host, and most paths from one host share the first link.
pub(crate) const CHANNELS: u32 = 512;

/// The group of all transfers. Names of paths start differently.
const NAME: &str = "host";

/// Membership; dropping it ends it.
#[derive(Debug)]
pub(crate) struct HostBudget {
    presence: Presence,
    weight: f64,
    /// The rate limit that this run sets for all, bit/s.
    rate_bps: Option<u64>,
}

/// The demand of a member.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Demand {
    pub(crate) channels: u32,
    /// Bit/s; infinite for as much as possible.
    pub(crate) rate_bps: f64,
}

/// The allocation of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Allocation {
    /// At least 1.
    pub(crate) channels: u32,
    /// Bit/s; `None` without a limit.
    pub(crate) rate_bps: Option<u64>,
}

impl HostBudget {
    /// Joins all transfers of this user. `weight` is finite and above 0.
    ///
    /// # Errors
    /// There is no folder that only this user can enter.
    pub(crate) fn join(weight: f64, rate_bps: Option<u64>) -> io::Result<Self> {
        Self::join_in(&user_folder()?, weight, rate_bps)
    }

    fn join_in(user_folder: &Path, weight: f64, rate_bps: Option<u64>) -> io::Result<Self> {
        Ok(Self {
            presence: Presence::join(user_folder, NAME)?,
            weight,
            rate_bps,
        })
    }

    /// Publishes this run's demand and computes its allocation. A run that has used less than its
    /// share can use all of it at once: its own demand counts as unlimited.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn exchange(&mut self, wish: Demand) -> io::Result<Allocation> {
        self.presence.publish(&format!(
            "{} {} {} {}",
            self.weight,
            wish.channels,
            wish.rate_bps,
            self.rate_bps.unwrap_or(0)
        ))?;
        let others: Vec<MemberDemand> = (self.presence.read_peers()?.iter())
            .filter_map(|(_, line)| MemberDemand::read(line))
            .collect();
        let weighted = |wish: fn(&MemberDemand) -> f64| -> Vec<WeightedDemand> {
            let weighted = |said: &MemberDemand| WeightedDemand {
                weight: said.weight,
                wish: wish(said),
            };
            others.iter().map(weighted).collect()
        };
        let mine = |wish| WeightedDemand {
            weight: self.weight,
            wish,
        };
        let channels = share(
            f64::from(CHANNELS),
            mine(f64::INFINITY),
            weighted(|said| said.channels),
        );
        let limits = (others.iter().map(|said| said.host_rate_bps)).chain(self.rate_bps);
        let whole = limits.filter(|bps| *bps > 0).min();
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "shares lie between 1 and the whole"
        )]
        Ok(Allocation {
            channels: (channels as u32).max(1),
            rate_bps: whole.map(|whole| {
                let rate = share(
                    whole as f64,
                    mine(f64::INFINITY),
                    weighted(|said| said.rate_bps),
                );
                (rate as u64).max(1)
            }),
        })
    }
}

/// The line of another member.
#[derive(Clone, Copy, Debug)]
struct MemberDemand {
    weight: f64,
    channels: f64,
    rate_bps: f64,
    host_rate_bps: u64,
}

impl MemberDemand {
    fn read(line: &str) -> Option<Self> {
        let mut words = line.split_whitespace();
        let said = Self {
            weight: words.next()?.parse().ok()?,
            channels: f64::from(words.next()?.parse::<u32>().ok()?),
            rate_bps: words.next()?.parse().ok()?,
            host_rate_bps: words.next()?.parse().ok()?,
        };
        let sound = said.weight.is_finite() && said.weight > 0.0 && said.rate_bps >= 0.0;
        sound.then_some(said)
    }
}

#[derive(Clone, Copy, Debug)]
struct WeightedDemand {
    weight: f64,
    wish: f64,
}

/// This run's share of `whole`: members that demand less than their weighted share get their
/// demand, and the others share the rest.
fn share(whole: f64, mine: WeightedDemand, mut weighted: Vec<WeightedDemand>) -> f64 {
    weighted.push(mine);
    weighted.sort_by(|a, b| (a.wish / a.weight).total_cmp(&(b.wish / b.weight)));
    let (mut left, mut weights) = (whole, weighted.iter().map(|c| c.weight).sum::<f64>());
    for weighted in &weighted {
        let level = left / weights;
        if weighted.wish > level * weighted.weight {
            return mine.wish.min(level * mine.weight);
        }
        left -= weighted.wish;
        weights -= weighted.weight;
    }
    mine.wish
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ALL: f64 = f64::INFINITY;

    fn wish(channels: u32, rate_bps: f64) -> Demand {
        Demand { channels, rate_bps }
    }

    #[test]
    fn channels_are_bounded_where_the_sum_would_pass_the_bound() {
        let folder = tempfile::tempdir().unwrap();
        let join = |weight| HostBudget::join_in(folder.path(), weight, None).unwrap();
        let mut members = [join(1.0), join(1.0), join(2.0)];
        let mut exchange = |i: usize, n| members[i].exchange(wish(n, ALL)).unwrap().channels;
        for i in 0..3 {
            exchange(i, 128);
        }
        assert_eq!([0, 1, 2].map(|i| exchange(i, 128)), [256; 3]);
        exchange(0, 1000);
        exchange(1, 50);
        assert_eq!(
            exchange(2, 1000),
            308,
            "two parts of three of what one leaves"
        );
        assert_eq!(exchange(0, 1000), 154);
        assert_eq!(exchange(1, 50), 128, "as much as it would like");
    }

    #[test]
    fn a_rate_holds_for_all_and_idle_ones_hold_nothing_back() {
        let folder = tempfile::tempdir().unwrap();
        let join = |rate| HostBudget::join_in(folder.path(), 1.0, rate).unwrap();
        let (mut first, mut second) = (join(None), join(Some(900)));
        assert_eq!(first.exchange(wish(1, ALL)).unwrap().rate_bps, None);
        let half = second.exchange(wish(1, ALL)).unwrap();
        assert_eq!(half.rate_bps, Some(450));
        assert_eq!(first.exchange(wish(1, ALL)).unwrap(), half);
        second.exchange(wish(1, 100.0)).unwrap();
        assert_eq!(first.exchange(wish(1, ALL)).unwrap().rate_bps, Some(800));
        // Current use does not limit the allocation.
        assert_eq!(second.exchange(wish(1, 100.0)).unwrap().rate_bps, Some(450));
        let mut third = join(Some(300));
        assert_eq!(third.exchange(wish(1, 0.0)).unwrap().rate_bps, Some(100));
        assert_eq!(first.exchange(wish(1, ALL)).unwrap().rate_bps, Some(200));
        drop((second, third));
        assert_eq!(first.exchange(wish(1, ALL)).unwrap().rate_bps, None);
    }

    #[test]
    fn nonsense_of_others_is_no_member() {
        let folder = tempfile::tempdir().unwrap();
        let mut host = HostBudget::join_in(folder.path(), 1.0, Some(100)).unwrap();
        let other = HostBudget::join_in(folder.path(), 1.0, None).unwrap();
        for text in [
            "",
            "1 2 3",
            "NaN 9 9 9",
            "-1 9 9 9",
            "1 9 NaN 9",
            "1 x 9 9",
            "1 9 -1 9",
        ] {
            other.presence.publish(text).unwrap();
            let allowance = host.exchange(wish(600, ALL)).unwrap();
            assert_eq!(
                (allowance.channels, allowance.rate_bps),
                (512, Some(100)),
                "{text:?}"
            );
        }
    }

    fn weighted_demand() -> impl Strategy<Value = WeightedDemand> {
        let wish = prop_oneof![0.0_f64..1e3, Just(ALL)];
        (0.01_f64..100.0, wish).prop_map(|(weight, wish)| WeightedDemand { weight, wish })
    }

    proptest! {
        #[test]
        fn shares_use_the_whole_budget_or_meet_all_demands(
            weighted in proptest::collection::vec(weighted_demand(), 1..20),
        ) {
            let shares: Vec<f64> = (0..weighted.len()).map(|i| {
                let mut others = weighted.clone();
                let mine = others.remove(i);
                share(1000.0, mine, others)
            }).collect();
            let sum: f64 = shares.iter().sum();
            let wishes: f64 = weighted.iter().map(|c| c.wish).sum();
            prop_assert!((sum - wishes.min(1000.0)).abs() < 1e-6, "{sum} of {wishes}");
            for (share, weighted) in shares.iter().zip(&weighted) {
                prop_assert!(*share <= weighted.wish);
            }
        }
    }
}
