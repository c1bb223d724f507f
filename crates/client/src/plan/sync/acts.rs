//! What is done about differences, besides copying; in a dry run it is only told.

use std::sync::Arc;

use godwit_proto::facts::{FactType, Facts};

use super::{Pair, Syncing, condemned::Doomed};
use crate::{
    error::{Error, Result},
    events::Event,
    local,
    plan::{DEPTH_MAX, get::step, goal::Goal},
    session::Session,
    spec::Level,
    stamp::Stamp,
};

/// Files whose times and permissions are set together.
const MARKS_MAX: usize = 50;

impl Syncing<'_> {
    /// Gives a file of the destination its stamp, soon.
    pub(super) async fn stamp(&mut self, target: Goal, stamp: Stamp) -> Result<()> {
        match target {
            Goal::Here(path) => {
                let doing = || format!("set time and permissions of {}", path.display());
                stamp.put_on(&path).map_err(|e| Error::local(doing(), &e))
            }
            Goal::There(at) => {
                self.marks.push((at, stamp));
                match self.marks.len() < MARKS_MAX {
                    true => Ok(()),
                    false => self.mark().await,
                }
            }
        }
    }

    /// Sets the times and permissions that wait for it.
    pub(super) async fn mark(&mut self) -> Result<()> {
        let marks = std::mem::take(&mut self.marks);
        let Some((first, _)) = marks.first() else {
            return Ok(());
        };
        let (endpoint, shown) = (Arc::clone(&first.endpoint), first.url());
        let marks: Vec<_> = marks.iter().map(|(at, stamp)| (&at.path, *stamp)).collect();
        let stamp = async |session: &mut Session| session.stamp_all(&marks, None).await;
        Ok(self
            .planner
            .carrier
            .attempt(step(&endpoint, &shown), stamp)
            .await?)
    }

    /// A directory of the destination has not the time of its source, though it could. One that is
    /// not there is told of as one to be made.
    pub(super) fn is_stale(&mut self, below: &[u8], source: &Facts, there: Option<&Facts>) -> bool {
        let Some(there) = there else {
            return true;
        };
        let times_count = self.spec.stamps
            && self.keeps_times
            && matches!(self.spec.level, Level::Modified | Level::Checksum);
        let is_stale = times_count
            && source
                .modify
                .zip(there.modify)
                .is_some_and(|(ours, theirs)| ours != theirs);
        if is_stale {
            let path = if below.is_empty() { b"./" } else { below };
            self.tell("set", "mtime", path.to_vec());
        }
        is_stale
    }

    /// A directory gets the time of its source when all is done. `changes`: something in it is
    /// copied, made or removed, which changes its time.
    pub(super) async fn stamp_directory(&mut self, pair: &Pair, changes: bool) {
        let is_wanted = self.spec.stamps && self.keeps_times && !self.spec.dry_run;
        if is_wanted && pair.source.is_some() && (pair.is_stale || changes) {
            let stamp = Stamp {
                modified: pair.modified,
                mode: None,
            };
            self.planner.stamp_later(&pair.target, stamp).await;
        }
    }

    /// Makes the directories that are not there. Those that can be gone on with.
    pub(super) async fn make_pairs(&mut self, pairs: Vec<Pair>) -> Vec<Pair> {
        let missing = pairs.iter().filter(|pair| !pair.is_there);
        let missing = missing.map(|pair| (pair.target.clone(), pair.below.clone()));
        let mut made = self.make(missing.collect()).await.into_iter();
        let mut good = Vec::with_capacity(pairs.len());
        for pair in pairs {
            match if pair.is_there {
                Some(Ok(()))
            } else {
                made.next()
            } {
                Some(Err(error)) => self.planner.fail(pair.target.to_string(), error).await,
                _ => good.push(pair),
            }
        }
        // Taken from the end.
        good.reverse();
        good
    }

    /// Makes directories in this order. How each went.
    pub(super) async fn make(&mut self, places: Vec<(Goal, Vec<u8>)>) -> Vec<Result<()>> {
        let mut here = Vec::new();
        let (mut there, mut paths) = (None, Vec::new());
        for (place, below) in places {
            let path = if below.is_empty() {
                b"./".to_vec()
            } else {
                below
            };
            self.tell("make", "missing", path);
            match place {
                _ if self.spec.dry_run => here.push(Ok(())),
                Goal::Here(path) => here.push(local::make_directory(&path).map(|_| ())),
                Goal::There(at) => {
                    paths.push(at.path);
                    there = Some(at.endpoint);
                }
            }
        }
        let Some(endpoint) = there else { return here };
        let made = self.planner.make_all_remote(&endpoint, &paths).await;
        made.unwrap_or_else(|error| paths.iter().map(|_| Err(error.clone())).collect())
    }

    /// A name that the source does not have. Where it is a directory, what is in it goes first.
    pub(super) fn extra(
        &mut self,
        pair: &Pair,
        name: &[u8],
        facts: &Facts,
    ) -> Result<Option<Pair>> {
        let target = pair.target.join(name)?;
        let mut path = [&pair.below[..], name].concat();
        let is_directory = facts.kind == Some(FactType::Dir);
        if self.leaves_out(&path, is_directory) || pair.depth >= DEPTH_MAX {
            pair.stays();
            return Ok(None);
        }
        if facts.kind.is_none() && facts.unix_slink.is_none() {
            pair.stays();
            return Err(Error::Listing {
                doing: format!("look at {target}"),
                why: "nothing tells whether it is a file or a directory".to_owned(),
            });
        }
        // A link goes, and not what it leads to.
        if !is_directory || facts.unix_slink.is_some() {
            self.condemn(false, &target, path)?;
            return Ok(None);
        }
        path.push(b'/');
        self.changes += 1;
        let doomed = Doomed::new(target.clone(), path.clone(), pair.doomed.clone());
        Ok(Some(Pair {
            below: path,
            source: None,
            target,
            is_there: true,
            is_behind_link: false,
            above: Vec::new(),
            trail: None,
            modified: None,
            is_stale: false,
            depth: pair.depth + 1,
            doomed: Some(doomed),
        }))
    }

    pub(super) fn condemn(
        &mut self,
        is_directory: bool,
        place: &Goal,
        path: Vec<u8>,
    ) -> Result<()> {
        self.tell("delete", "extra", path);
        let pushed = self.condemned.push(is_directory, place);
        pushed.map_err(|e| Error::local(local::spooling(), &e))
    }

    pub(super) fn tell(&mut self, action: &'static str, reason: &'static str, path: Vec<u8>) {
        self.changes += u64::from(action != "set");
        self.planner.context.emit(&Event::Difference {
            action,
            reason,
            path: String::from_utf8_lossy(&path).into_owned(),
            dry_run: self.spec.dry_run,
        });
    }
}
