//! Actions on differences, besides copying; a dry run only reports them.

use std::sync::Arc;

use godwit_proto::facts::{FactType, Facts};

use super::{DirectoryPair, SyncPlanner, delete_list::DirectoryDeletion};
use crate::{
    error::{Error, Result},
    local::{attributes::FileAttributes, files},
    plan::{DEPTH_MAX, copy_path::CopyPath},
    report::events::Event,
    session::{Session, retry::Operation},
    spec::Level,
};

/// Files whose attributes are set together.
const PENDING_ATTRIBUTES_MAX: usize = 50;

impl SyncPlanner<'_> {
    /// Queues the attributes of a file of the destination.
    pub(super) async fn set_attributes_soon(
        &mut self,
        target: CopyPath,
        attributes: FileAttributes,
    ) -> Result<()> {
        match target {
            CopyPath::Here(path) => {
                let doing = || format!("set time and permissions of {}", path.display());
                attributes
                    .apply(&path)
                    .map_err(|e| Error::local(doing(), &e))
            }
            CopyPath::There(at) => {
                self.pending_attributes.push((at, attributes));
                match self.pending_attributes.len() < PENDING_ATTRIBUTES_MAX {
                    true => Ok(()),
                    false => self.set_pending_attributes().await,
                }
            }
        }
    }

    /// Sets the queued times and permissions.
    pub(super) async fn set_pending_attributes(&mut self) -> Result<()> {
        let pending_attributes = std::mem::take(&mut self.pending_attributes);
        let Some((first, _)) = pending_attributes.first() else {
            return Ok(());
        };
        let (endpoint, shown) = (Arc::clone(&first.endpoint), first.url());
        let pending_attributes: Vec<_> = pending_attributes
            .iter()
            .map(|(at, attributes)| (&at.path, *attributes))
            .collect();
        let attributes =
            async |session: &mut Session| session.set_attributes(&pending_attributes, None).await;
        Ok(self
            .planner
            .retrying
            .attempt(Operation::on(&endpoint, &shown), attributes)
            .await?)
    }

    /// A directory of the destination differs from its source in time. A missing directory is
    /// reported as one to be created.
    pub(super) fn is_stale(&mut self, below: &[u8], source: &Facts, there: Option<&Facts>) -> bool {
        let Some(there) = there else {
            return true;
        };
        let times_count = self.spec.attributes
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

    /// A directory gets the time of its source at the end. `changes`: an entry is copied, created
    /// or removed, which changes the directory's time.
    pub(super) async fn set_directory_time(&mut self, pair: &DirectoryPair, changes: bool) {
        let is_wanted = self.spec.attributes && self.keeps_times && !self.spec.dry_run;
        if is_wanted && pair.source.is_some() && (pair.is_stale || changes) {
            let attributes = FileAttributes {
                modified: pair.modified,
                mode: None,
            };
            self.planner.set_later(&pair.target, attributes).await;
        }
    }

    /// Creates the missing directories. Returns those that exist then.
    pub(super) async fn make_pairs(&mut self, pairs: Vec<DirectoryPair>) -> Vec<DirectoryPair> {
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
        // The vector is emptied from its end.
        good.reverse();
        good
    }

    /// Creates directories in this order. Returns a result for each.
    pub(super) async fn make(&mut self, places: Vec<(CopyPath, Vec<u8>)>) -> Vec<Result<()>> {
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
                CopyPath::Here(path) => here.push(files::make_directory(&path).map(|_| ())),
                CopyPath::There(at) => {
                    paths.push(at.path);
                    there = Some(at.endpoint);
                }
            }
        }
        let Some(endpoint) = there else { return here };
        let made = self.planner.make_all_remote(&endpoint, &paths).await;
        made.unwrap_or_else(|error| paths.iter().map(|_| Err(error.clone())).collect())
    }

    /// A name that the source does not have. The contents of a directory are deleted first.
    pub(super) fn extra(
        &mut self,
        pair: &DirectoryPair,
        name: &[u8],
        facts: &Facts,
    ) -> Result<Option<DirectoryPair>> {
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
        // The link is deleted, not its target.
        if !is_directory || facts.unix_slink.is_some() {
            self.delete_later(false, &target, path)?;
            return Ok(None);
        }
        path.push(b'/');
        self.changes += 1;
        let deletion = DirectoryDeletion::new(target.clone(), path.clone(), pair.deletion.clone());
        Ok(Some(DirectoryPair {
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
            deletion: Some(deletion),
        }))
    }

    pub(super) fn delete_later(
        &mut self,
        is_directory: bool,
        place: &CopyPath,
        path: Vec<u8>,
    ) -> Result<()> {
        self.tell("delete", "extra", path);
        let pushed = self.delete_list.push(is_directory, place);
        pushed.map_err(|e| Error::local(files::spool_context(), &e))
    }

    pub(super) fn tell(&mut self, action: &'static str, reason: &'static str, path: Vec<u8>) {
        self.changes += u64::from(action != "set");
        self.planner.context.reporter.emit(&Event::Difference {
            action,
            reason,
            path: String::from_utf8_lossy(&path).into_owned(),
            dry_run: self.spec.dry_run,
        });
    }
}
