//! What the leader says of pairs of endpoints: what waits, and how fast the rest is.

use std::{
    collections::BTreeMap,
    time::{Duration, Instant},
};

use super::{holders::Holders, waiting::WaitingQueues};
use crate::store::{
    Store, StoreError,
    model::{Leadership, LinkNow},
};

/// Between two writings.
const GAP: Duration = Duration::from_secs(5);

/// Pairs that are written at a time: a job's list may name any number of hosts.
const WRITTEN_TOGETHER: usize = 500;

/// What the database has of it.
#[derive(Default)]
pub(super) struct LinksSaid {
    /// `None`: not known.
    written: Option<BTreeMap<i64, LinkNow>>,
    at: Option<Instant>,
    /// The pair before this one was written last.
    last: i64,
}

impl LinksSaid {
    /// Writes what has changed, every few seconds.
    pub(super) async fn write(
        &mut self,
        store: &Store,
        leader: Leadership,
        waiting: &WaitingQueues,
        holders: &Holders,
    ) -> Result<(), StoreError> {
        if self.at.is_some_and(|at| at.elapsed() < GAP) {
            return Ok(());
        }
        self.at = Some(Instant::now());
        let now = links(waiting, holders);
        let mut written = match self.written.take() {
            Some(written) => written,
            None => store.links_now().await?,
        };
        let gone = written.keys().filter(|link| !now.contains_key(*link));
        let mut changes: BTreeMap<i64, Option<LinkNow>> = gone.map(|link| (*link, None)).collect();
        let new = now
            .iter()
            .filter(|(link, said)| written.get(*link) != Some(*said));
        changes.extend(new.map(|(link, said)| (*link, Some(said.clone()))));
        // Those after the last ones first, so that all have their turn.
        let later = changes.split_off(&self.last);
        let some: BTreeMap<_, _> = later
            .into_iter()
            .chain(changes)
            .take(WRITTEN_TOGETHER)
            .collect();
        if !some.is_empty() {
            store.set_links_now(leader, &some).await?;
        }
        for (link, said) in some {
            self.last = link + 1;
            match said {
                Some(said) => drop(written.insert(link, said)),
                None => drop(written.remove(&link)),
            }
        }
        self.written = Some(written);
        Ok(())
    }
}

fn links(waiting: &WaitingQueues, holders: &Holders) -> BTreeMap<i64, LinkNow> {
    let mut now: BTreeMap<i64, LinkNow> = BTreeMap::new();
    for (link, amount) in waiting.of_links() {
        if amount.files > 0 {
            let link = now.entry(*link).or_default();
            (link.waiting_files, link.waiting_bytes) = (amount.files, amount.bytes);
        }
    }
    for (link, progress) in holders.progress_of_links() {
        let link = now.entry(link).or_default();
        (link.goodput, link.pace) = (progress.goodput, progress.pace);
    }
    now
}
