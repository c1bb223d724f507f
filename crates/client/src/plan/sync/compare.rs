//! Compares a name at both ends and acts on the difference.

use std::{
    collections::HashMap,
    sync::{Arc, atomic::Ordering},
};

use godwit_proto::{
    facts::{FactType, Facts},
    temporary::is_backup_name,
};

use super::{
    DirectoryPair, FilePair, SyncPlanner,
    checksums::UndecidedFile,
    pair_lister::DirectoryContents,
    policy::{Comparison, compare},
    spooled_listing::in_buckets,
};
use crate::{
    error::{Error, Result},
    local::{attributes::FileAttributes, files},
    plan::{DEPTH_MAX, copy_path::CopyPath, local_walk::put, remote_walk::get, too_deep},
    transfer::source_file::{LocalEnd, SourceFile},
};

impl SyncPlanner<'_> {
    /// Compares what both ends have.
    pub(super) async fn compare_directories(
        &mut self,
        pair: &DirectoryPair,
        source: DirectoryContents,
        target: DirectoryContents,
        branches: &mut Vec<DirectoryPair>,
    ) -> Result<()> {
        for (what, error) in source.bad {
            self.planner.fail(what, error).await;
        }
        for (what, error) in target.bad {
            pair.stays();
            match pair.target {
                // Such a name cannot exist at a server.
                CopyPath::Here(_) => self.planner.context.reporter.warn(error),
                CopyPath::There(_) => self.planner.fail(what, error).await,
            }
        }
        let failed = |e: std::io::Error| Error::local(files::spool_context(), &e);
        for part in in_buckets(source.listing, target.listing).map_err(failed)? {
            let (mut ours, theirs) = part.map_err(failed)?;
            ours.sort_unstable_by(|a, b| a.name.cmp(&b.name));
            let theirs = theirs.into_iter().map(|entry| (entry.name, entry.facts));
            let mut theirs: HashMap<_, _> = theirs.collect();
            let mut below = Vec::new();
            for entry in ours {
                if self.planner.context.stop.is_cancelled() {
                    return Ok(());
                }
                let there = theirs.remove(&entry.name);
                let Some(source) = &pair.source else { break };
                let pair_of = pair.pair_of(source, &entry.name);
                let shown = pair_of
                    .as_ref()
                    .map_or(source.to_string(), |m| m.source.to_string());
                let met = match pair_of {
                    Ok(pair_of) => {
                        self.compare_entry(pair, pair_of, entry.facts, there, &mut below)
                            .await
                    }
                    Err(error) => Err(error),
                };
                if let Err(error) = met {
                    self.planner.fail(shown, error).await;
                }
            }
            branches.extend(self.make_pairs(below).await);
            if self.spec.delete.is_some() && !pair.is_behind_link {
                let mut extra: Vec<_> = theirs.into_iter().collect();
                extra.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
                for (name, facts) in extra {
                    let hidden = (source.complete.as_ref()).is_some_and(|c| c.may_hide(&name));
                    if hidden {
                        pair.stays();
                        let target = pair.target.join(&name)?;
                        self.planner.context.reporter.warn(format!(
                            "{target}: left, since the source does not list names with a leading \
                             dot"
                        ));
                        continue;
                    }
                    branches.extend(self.extra(pair, &name, &facts)?);
                }
            }
        }
        Ok(())
    }

    /// Handles a name of the source. Directories are added to `below`.
    async fn compare_entry(
        &mut self,
        pair: &DirectoryPair,
        pair_of: FilePair,
        facts: Facts,
        there: Option<Facts>,
        below: &mut Vec<DirectoryPair>,
    ) -> Result<()> {
        let is_directory = facts.kind == Some(FactType::Dir);
        if self.leaves_out(&pair_of.path, is_directory) {
            return Ok(());
        }
        match facts.kind {
            Some(FactType::Dir) => {}
            None | Some(FactType::File) => return self.compare_file(pair_of, &facts, there).await,
            Some(kind) if kind.is_link() => {
                let what = pair_of.source.to_string();
                return Err(Error::Missing { what });
            }
            Some(_) => {
                let what = pair_of.source;
                self.planner
                    .context
                    .reporter
                    .warn(format!("{what}: neither file nor directory, left out"));
                return Ok(());
            }
        }
        let FilePair {
            mut path,
            source,
            target,
        } = pair_of;
        if pair.depth >= DEPTH_MAX {
            return Err(too_deep(&source.to_string()));
        }
        let leads_back =
            |source: &CopyPath| format!("{source}: leads back to a directory above it, left out");
        let name = source.file_name().unwrap_or_default();
        let trail = match &pair.trail {
            None => None,
            Some(trail) => match trail.on_to(&name, &facts) {
                None => {
                    self.planner.context.reporter.warn(leads_back(&source));
                    return Ok(());
                }
                trail => trail,
            },
        };
        let modified = facts.modify;
        let is_stale = self.is_stale(&[&path[..], b"/"].concat(), &facts, there.as_ref());
        let mut above = pair.above.clone();
        if let Some(unique) = facts.unique {
            if above.contains(&unique) {
                self.planner.context.reporter.warn(leads_back(&source));
                return Ok(());
            }
            above.push(unique);
        }
        if there
            .as_ref()
            .is_some_and(|facts| facts.kind != Some(FactType::Dir))
        {
            return Err(no_directory(&target));
        }
        path.push(b'/');
        let is_link = there
            .as_ref()
            .is_some_and(|facts| facts.unix_slink.is_some());
        below.push(DirectoryPair {
            below: path,
            source: Some(source),
            target,
            is_there: there.is_some(),
            is_behind_link: pair.is_behind_link || is_link,
            above,
            trail,
            modified,
            is_stale,
            depth: pair.depth + 1,
            deletion: None,
        });
        Ok(())
    }

    pub(super) async fn compare_file(
        &mut self,
        pair_of: FilePair,
        facts: &Facts,
        there: Option<Facts>,
    ) -> Result<()> {
        if there
            .as_ref()
            .is_some_and(|facts| facts.kind == Some(FactType::Dir))
        {
            let why = "is a directory, and the source has a file of that name";
            return Err(Error::unfit(pair_of.target, why));
        }
        let comparison = compare(self.spec.level, self.keeps_times, facts, there.as_ref());
        match (comparison, there) {
            (Comparison::Unsure, Some(target)) => {
                // The result of the checksums comes too late for the directory.
                self.changes += 1;
                let source = facts.clone();
                self.check_later(UndecidedFile {
                    pair_of,
                    source,
                    target,
                })
                .await;
                Ok(())
            }
            (comparison, Some(target))
                if self.may_have_time(
                    &comparison,
                    [facts, &target],
                    [&pair_of.source, &pair_of.target],
                ) =>
            {
                // What comes of it comes too late for the directory.
                self.changes += 1;
                let source = facts.clone();
                self.settle_time_later(UndecidedFile {
                    pair_of,
                    source,
                    target,
                })
                .await;
                Ok(())
            }
            (comparison, _) => self.act(pair_of, facts, comparison).await,
        }
    }

    /// Carries out the action.
    pub(super) async fn act(
        &mut self,
        pair_of: FilePair,
        facts: &Facts,
        comparison: Comparison,
    ) -> Result<()> {
        let FilePair {
            path,
            source,
            target,
        } = pair_of;
        let counters = Arc::clone(&self.planner.context.counters);
        match comparison {
            Comparison::Differs(reason) => {
                self.tell("copy", reason, path);
                if !self.spec.dry_run {
                    let mut file = item_of(source, target, facts)?;
                    file.attributes = file.attributes.filter(|_| self.spec.attributes);
                    self.planner.copy(file).await;
                    return Ok(());
                }
                counters.files_found.fetch_add(1, Ordering::Relaxed);
                let bytes = facts.size.unwrap_or(0);
                counters.bytes_found.fetch_add(bytes, Ordering::Relaxed);
                return Ok(());
            }
            Comparison::Attributes(reason) if self.spec.attributes => {
                self.tell("set", reason, path);
                if !self.spec.dry_run {
                    self.set_attributes_soon(target, FileAttributes::of_facts(facts))
                        .await?;
                }
            }
            Comparison::Same | Comparison::Attributes(_) | Comparison::Unsure => {}
        }
        counters.files_same.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Names outside the comparison: those that filters exclude, and temporary files of running
    /// copies.
    pub(super) fn leaves_out(&self, path: &[u8], is_directory: bool) -> bool {
        let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
        files::is_temporary(name)
            || is_backup_name(name)
            || self.spec.filter.excludes(path, is_directory)
    }
}

pub(super) fn no_directory(target: &CopyPath) -> Error {
    Error::unfit(
        target,
        "is no directory, and the source has one of that name",
    )
}

/// A copy with the time and the permissions of its source.
fn item_of(source: CopyPath, target: CopyPath, facts: &Facts) -> Result<SourceFile> {
    match (source, target) {
        (CopyPath::There(at), target) => Ok(get(&at.endpoint, at.path, target, facts)),
        (CopyPath::Here(path), CopyPath::There(at)) => {
            let found = files::stat(&path)?;
            let metadata = found.ok_or_else(|| Error::Missing {
                what: path.display().to_string(),
            })?;
            let from = LocalEnd::Path(path);
            Ok(put(&at.endpoint, from, at.path, Some(&metadata)))
        }
        // The command line was checked for it.
        (CopyPath::Here(path), CopyPath::Here(_)) => Err(Error::Usage(format!(
            "{}: one end must be a server",
            path.display()
        ))),
    }
}
