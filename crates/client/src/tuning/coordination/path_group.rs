//! Transfers of one user on one host over one path: one of them tunes for all.
//!
//! Transfers that tune side by side disturb each other: each observes the experiments of the
//! others. So those between this host and the same server in the same direction form a *group*. Its
//! members publish how many bytes they have moved; the one that holds the leader's lock observes
//! the sum and decides one total setting, and each runs its share of it, by weight. When the leader
//! ends, even by a kill, the lock is free and another continues from the same total.
//!
//! ```text
//!   $XDG_RUNTIME_DIR/godwit/PATH/        a roster, and
//!       ID         weight, bytes and, where it has one, the cap of the member, bit/s
//!       leader     locked by the leader
//!       total      the setting that all share, replaced as a whole
//! ```
//! No process waits for another, and no error fails a transfer: without the folder each tunes
//! alone.

use std::{
    collections::HashMap,
    fs::{File, TryLockError},
    io,
    path::Path,
    str::FromStr,
};

use godwit_tune::Setting;

use crate::local::presence::{Presence, user_folder};

/// Membership; dropping it ends it.
#[derive(Debug)]
pub(crate) struct PathGroup {
    presence: Presence,
    weight: f64,
    /// Held by the leader.
    leader: Option<File>,
    /// Bytes of each other member at the last exchange.
    seen: HashMap<String, u64>,
    /// Bytes that others have moved since this run joined.
    others_bytes: u64,
}

/// The state of the group.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct GroupView {
    /// This run leads.
    pub(crate) leads: bool,
    /// Members, this run included.
    pub(crate) members: usize,
    /// Bytes that the others have moved since this run joined; never decreases.
    pub(crate) others_bytes: u64,
    /// This run's share, `0..=1`.
    pub(crate) part: f64,
    /// The leader's last decision.
    pub(crate) total: Option<Setting>,
    /// The sum of the others' rate limits, bit/s; `None` if one has none.
    pub(crate) others_cap_bps: Option<u64>,
}

impl PathGroup {
    /// Joins the transfers over `path`. `weight` is finite and above 0.
    ///
    /// # Errors
    /// There is no folder that only this user may enter.
    pub(crate) fn join(path: &str, weight: f64) -> io::Result<Self> {
        Self::join_in(&user_folder()?, path, weight)
    }

    fn join_in(user_folder: &Path, path: &str, weight: f64) -> io::Result<Self> {
        let mut group = Self {
            presence: Presence::join(user_folder, path)?,
            weight,
            leader: None,
            seen: HashMap::new(),
            others_bytes: 0,
        };
        group.exchange(0, None)?;
        Ok(group)
    }

    /// Publishes the bytes that this run has moved since it joined and its rate limit, bit/s, and
    /// reads those of the others. Takes some ten microseconds a member.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn exchange(&mut self, bytes: u64, cap_bps: Option<u64>) -> io::Result<GroupView> {
        let cap = cap_bps.map_or(String::new(), |bps| format!(" {bps}"));
        self.presence
            .publish(&format!("{} {bytes}{cap}", self.weight))?;
        let mut weights = self.weight;
        let mut members = 1;
        let mut others_cap_bps = Some(0_u64);
        for (id, line) in self.presence.read_peers()? {
            let Some((weight, total)) = pair::<f64, u64>(&line) else {
                continue;
            };
            if !(weight.is_finite() && weight > 0.0) {
                continue;
            }
            members += 1;
            weights += weight;
            let cap = line.split_whitespace().nth(2);
            let cap = cap.and_then(|word| word.parse::<u64>().ok());
            others_cap_bps = others_cap_bps.zip(cap).map(|(a, b)| a.saturating_add(b));
            let before = self.seen.insert(id, total).unwrap_or(total);
            self.others_bytes = self
                .others_bytes
                .saturating_add(total.saturating_sub(before));
        }
        self.try_lead()?;
        let total = self.presence.read("total");
        Ok(GroupView {
            leads: self.leader.is_some(),
            members,
            others_bytes: self.others_bytes,
            part: self.weight / weights,
            total: total
                .and_then(|line| pair(&line))
                .map(|(concurrency, parallelism)| Setting::new(concurrency, parallelism)),
            others_cap_bps,
        })
    }

    /// The leader's decision for all.
    ///
    /// # Errors
    /// The folder is gone, or full.
    pub(crate) fn decide(&self, total: Setting) -> io::Result<()> {
        let words = format!("{} {}", total.concurrency, total.parallelism);
        self.presence.write("total", &words)
    }

    fn try_lead(&mut self) -> io::Result<()> {
        if self.leader.is_some() {
            return Ok(());
        }
        let file = (File::options().create(true).truncate(false).write(true))
            .open(self.presence.folder().join("leader"))?;
        match file.try_lock() {
            Ok(()) => self.leader = Some(file),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(error),
        }
        Ok(())
    }
}

fn pair<A: FromStr, B: FromStr>(line: &str) -> Option<(A, B)> {
    let mut words = line.split_whitespace();
    Some((words.next()?.parse().ok()?, words.next()?.parse().ok()?))
}

/// The share `part` (`0..=1`) of a total: its part of the channels, at least one, on as many movers
/// as it has a part in.
pub(crate) fn share(total: Setting, part: f64) -> Setting {
    let part_of = |n: u32| {
        let exact = (f64::from(n) * part).round();
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // within 1..=n
        let whole = exact.clamp(1.0, f64::from(n.max(1))) as u32;
        whole
    };
    let channels = part_of(total.channels());
    let concurrency = part_of(total.concurrency).min(channels);
    Setting {
        pipelining_depth: total.pipelining_depth,
        ..Setting::new(concurrency, channels / concurrency)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    fn member(folder: &tempfile::TempDir, weight: f64) -> PathGroup {
        PathGroup::join_in(folder.path(), "put host:2811", weight).unwrap()
    }

    #[test]
    fn one_leads_and_all_see_the_total() {
        let folder = folder();
        let mut first = member(&folder, 1.0);
        let mut second = member(&folder, 3.0);
        first.decide(Setting::new(2, 16)).unwrap();
        let (a, b) = (
            first.exchange(10, None).unwrap(),
            second.exchange(0, None).unwrap(),
        );
        assert!(a.leads && !b.leads);
        assert_eq!((a.members, b.members), (2, 2));
        assert_eq!(b.total, Some(Setting::new(2, 16)));
        assert_eq!((a.part, b.part), (0.25, 0.75));
    }

    #[test]
    fn bytes_of_others_count_from_the_first_look() {
        let folder = folder();
        let mut first = member(&folder, 1.0);
        first.exchange(1000, None).unwrap();
        let mut second = member(&folder, 1.0);
        assert_eq!(second.exchange(5, None).unwrap().others_bytes, 0);
        first.exchange(1700, None).unwrap();
        assert_eq!(second.exchange(9, None).unwrap().others_bytes, 700);
        assert_eq!(first.exchange(1800, None).unwrap().others_bytes, 4);
        second.exchange(10, None).unwrap();
        assert_eq!(first.exchange(1800, None).unwrap().others_bytes, 5);
    }

    #[test]
    fn when_the_leader_ends_another_goes_on() {
        let folder = folder();
        let first = member(&folder, 1.0);
        let mut second = member(&folder, 1.0);
        first.decide(Setting::new(1, 30)).unwrap();
        drop(first);
        let view = second.exchange(0, None).unwrap();
        assert!(view.leads);
        assert_eq!((view.members, view.part), (1, 1.0));
        assert_eq!(view.total, Some(Setting::new(1, 30)));
    }

    #[test]
    fn nonsense_of_others_is_no_member() {
        let folder = folder();
        let mut group = member(&folder, 1.0);
        let other = member(&folder, 1.0);
        for text in ["", "x y", "NaN 4", "-1 4", "inf 4", "1"] {
            other.presence.publish(text).unwrap();
            let view = group.exchange(0, None).unwrap();
            assert_eq!((view.members, view.part), (1, 1.0), "{text:?}");
        }
        other.presence.write("total", "0 4000000000").unwrap();
        assert_eq!(
            group.exchange(0, None).unwrap().total.unwrap().concurrency,
            1
        );
    }

    #[test]
    fn caps_add_up_where_all_have_one() {
        let folder = folder();
        let (mut first, mut second) = (member(&folder, 1.0), member(&folder, 1.0));
        assert_eq!(first.exchange(0, None).unwrap().others_cap_bps, None);
        second.exchange(0, Some(5)).unwrap();
        assert_eq!(first.exchange(0, None).unwrap().others_cap_bps, Some(5));
        let mut third = member(&folder, 1.0);
        assert_eq!(first.exchange(0, None).unwrap().others_cap_bps, None);
        third.exchange(0, Some(7)).unwrap();
        assert_eq!(first.exchange(0, None).unwrap().others_cap_bps, Some(12));
    }

    proptest! {
        #[test]
        fn shares_are_settings_and_fit(c in 1_u32..500, p in 1_u32..500, part in 0.0_f64..=1.0) {
            let total = Setting::new(c, p);
            let got = share(total, part);
            prop_assert!(got.concurrency >= 1 && got.parallelism >= 1);
            prop_assert!(got.channels() <= total.channels());
            prop_assert_eq!(share(total, 1.0), total);
        }
    }
}
