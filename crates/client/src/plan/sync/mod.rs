//! Finds the differences between two trees, directory by directory.
//!
//! ```text
//!   DirectoryPair ─► PairLister ─► two SpooledListings ─► compare ─► policy
//!      ▲                                                               ├► copy: to the workers
//!      │                                                               ├► unsure: checksums, times
//!      │                                                               │          of objects
//!      │                                                               ├► set time or permissions
//!      │                                                               ├► extra: DeleteList
//!      └───────────────────────────────────────────────────────────────┴► subdirectories
//! ```
//! The job deletes extra files after all copies, if none failed.

mod actions;
mod checksums;
mod compare;
mod delete_list;
mod pair_lister;
mod policy;
mod spooled_listing;
mod times;

use std::sync::Arc;

use godwit_proto::{
    ChecksumAlgorithm,
    facts::{FactType, Facts},
    timestamp::Timestamp,
    url::{Location, names_directory},
};

use self::{
    checksums::UndecidedFile,
    compare::no_directory,
    delete_list::{DeleteList, DirectoryDeletion, ListingCensus},
    pair_lister::{PairLister, PairListing, facts_here},
};
use super::{Planner, copy_path::CopyPath, trail::Trail};
use crate::{
    error::{Error, Result},
    local::{attributes::FileAttributes, files},
    session::{
        Found, Session,
        retry::{Operation, RetryingSession},
    },
    spec::{Level, SyncSpec, place_of},
    transfer::source_file::RemotePath,
};

pub(crate) use self::delete_list::{Deletion, SealedDeleteList};

/// A directory of the source and its counterpart at the destination.
struct DirectoryPair {
    /// Its path below the top, with a slash at its end unless it is empty.
    below: Vec<u8>,
    /// `None`: the source has no such directory.
    source: Option<CopyPath>,
    target: CopyPath,
    /// The target exists.
    is_there: bool,
    /// Links lead to the target: nothing in it is deleted.
    is_behind_link: bool,
    /// `Unique` facts of the source from the top down to this directory: a repeated one is a loop.
    above: Vec<String>,
    /// Of the source, where that is at a server.
    trail: Option<Trail>,
    depth: usize,
    /// When the source last changed.
    modified: Option<Timestamp>,
    /// The target has another modification time, or is new.
    is_stale: bool,
    /// The target itself is deleted.
    deletion: Option<Arc<DirectoryDeletion>>,
}

/// A name that the source has.
struct FilePair {
    /// Below the top.
    path: Vec<u8>,
    source: CopyPath,
    target: CopyPath,
}

impl DirectoryPair {
    fn pair_of(&self, source: &CopyPath, name: &[u8]) -> Result<FilePair> {
        Ok(FilePair {
            path: [&self.below[..], name].concat(),
            source: source.join(name)?,
            target: self.target.join(name)?,
        })
    }
}

/// The entry at a path of either end.
enum PathKind {
    Missing,
    File(Facts),
    Directory(Facts),
}

impl Planner {
    /// Exactly one source.
    pub(super) async fn plan_sync(&mut self) -> Result<()> {
        let job = Arc::clone(&self.spec);
        let (Some(source), Some(mut spec)) = (job.sources.first(), job.sync.clone()) else {
            return Ok(());
        };
        let (place, contents) = self.place_of(source)?;
        let (target, into) = self.place_of(&job.destination)?;
        let seen = self.stat_path(&place).await?;
        let is_of_bucket = matches!(&place, CopyPath::There(at) if at.endpoint.is_bucket());
        if is_of_bucket && contents && matches!(seen, PathKind::File(_)) {
            let why = "an object has this name without the slash, and a bucket is not synced by it";
            return Err(Error::Usage(format!("{source}: {why}")));
        }
        let keeps_times = self.keeps_times(&target).await?;
        let is_bucket = matches!(&target, CopyPath::There(at) if at.endpoint.is_bucket());
        if is_bucket && spec.level == Level::Modified {
            // What a bucket lists are the times at which objects were stored.
            spec.level = Level::NotOlder;
        }
        if !keeps_times && !is_bucket && spec.level >= Level::Modified {
            self.context.reporter.warn(format!(
                "{}: has no MFMT to set times with, so that times are not compared",
                job.destination
            ));
        }
        let mut syncing = SyncPlanner {
            other: RetryingSession::new(Arc::clone(&self.retrying.pool)),
            planner: self,
            keeps_times,
            algorithms: Vec::new(),
            undecided: Vec::new(),
            untimed: Vec::new(),
            undecided_bytes: 0,
            pending_attributes: Vec::new(),
            delete_list: DeleteList::default(),
            census: ListingCensus::default(),
            changes: 0,
            spec,
        };
        syncing.choose_algorithms([&place, &target]).await?;
        let planned = match seen {
            PathKind::Missing => Err(Error::Missing {
                what: source.to_string(),
            }),
            PathKind::File(facts) => syncing.file(place, &facts, target, into).await,
            PathKind::Directory(facts) => syncing.tree(place, contents, facts, target).await,
        };
        syncing.settle_times().await;
        syncing.check_pending().await;
        let marked = syncing.set_pending_attributes().await;
        syncing.other.release();
        let incomplete = syncing.census.incomplete();
        let count = syncing.delete_list.count;
        self.delete_list = syncing.delete_list.seal(&syncing.census);
        if incomplete > 0 && !self.context.stop.is_cancelled() {
            let doing = format!("compare {source} with {}", job.destination);
            let directories = if incomplete == 1 {
                "directory"
            } else {
                "directories"
            };
            let mut why = format!("not all names of {incomplete} {directories} are known");
            if job.sync.as_ref().is_some_and(|sync| sync.delete.is_some()) {
                why.push_str(&format!(
                    ", so that nothing was removed of {count} extra names"
                ));
            }
            self.fail(job.destination.to_string(), Error::Listing { doing, why })
                .await;
        }
        planned.and(marked)
    }

    /// The entry of a command-line argument, and whether its name must be a directory.
    fn place_of(&self, location: &Location) -> Result<(CopyPath, bool)> {
        Ok(match location {
            Location::Remote(url) => {
                let at = RemotePath {
                    endpoint: self.context.endpoints.of(url),
                    path: place_of(url)?,
                };
                (CopyPath::There(at), url.names_directory())
            }
            Location::Local(path) => (CopyPath::Here(files::path_of(path)), names_directory(path)),
            // The command line was checked for it.
            Location::Standard => return Err(Error::Usage("- is no file".to_owned())),
        })
    }

    async fn stat_path(&mut self, place: &CopyPath) -> Result<PathKind> {
        let at = match place {
            CopyPath::Here(path) => {
                return Ok(match files::stat(path)? {
                    None => PathKind::Missing,
                    Some(_) => {
                        let doing = || format!("look at {}", path.display());
                        let facts = facts_here(path).map_err(|e| Error::local(doing(), &e))?;
                        match facts.kind == Some(FactType::Dir) {
                            true => PathKind::Directory(facts),
                            false => PathKind::File(facts),
                        }
                    }
                });
            }
            CopyPath::There(at) => at,
        };
        Ok(match self.stat_remote(&at.endpoint, &at.path).await? {
            Found::Missing => PathKind::Missing,
            Found::File(facts) => PathKind::File(*facts),
            Found::Directory(facts) => PathKind::Directory(*facts),
            Found::Unknown => PathKind::File(Facts::default()),
        })
    }

    pub(super) async fn keeps_times(&mut self, target: &CopyPath) -> Result<bool> {
        let CopyPath::There(at) = target else {
            return Ok(true);
        };
        let shown = at.url();
        let ask = async |session: &mut Session| Ok(session.keeps_times());
        Ok(self
            .retrying
            .attempt(Operation::on(&at.endpoint, &shown), ask)
            .await?)
    }
}

/// A sync that is being planned.
struct SyncPlanner<'a> {
    planner: &'a mut Planner,
    spec: SyncSpec,
    /// The destination keeps the times that are set.
    keeps_times: bool,
    /// For a session with the source; the planner has one with the destination.
    other: RetryingSession,
    /// For the comparison of checksums, the cheapest first: a further one is for files of which an
    /// end does not have those before.
    algorithms: Vec<ChecksumAlgorithm>,
    undecided: Vec<UndecidedFile>,
    /// Whose times in buckets are to be asked for.
    untimed: Vec<UndecidedFile>,
    undecided_bytes: u64,
    /// Files at a server whose times and permissions are to be set.
    pending_attributes: Vec<(RemotePath, FileAttributes)>,
    delete_list: DeleteList,
    census: ListingCensus,
    /// Names that are copied, created or deleted, or may be.
    changes: u64,
}

impl SyncPlanner<'_> {
    async fn file(
        &mut self,
        source: CopyPath,
        facts: &Facts,
        target: CopyPath,
        into: bool,
    ) -> Result<()> {
        if self.spec.delete.is_some() {
            return Err(Error::Usage(format!(
                "{source}: is no directory, and --delete means what is in one"
            )));
        }
        let name = source.file_name().unwrap_or_default();
        let target = match self.planner.stat_path(&target).await? {
            PathKind::Directory(_) => target.join(&name)?,
            PathKind::Missing if into => {
                self.make(vec![(target.clone(), Vec::new())]).await;
                target.join(&name)?
            }
            _ => target,
        };
        let there = match self.planner.stat_path(&target).await? {
            PathKind::Missing => None,
            PathKind::File(facts) | PathKind::Directory(facts) => Some(facts),
        };
        self.planner.retrying.release();
        if self.leaves_out(&name, false) {
            return Ok(());
        }
        let pair_of = FilePair {
            path: name,
            source,
            target,
        };
        self.compare_file(pair_of, facts, there).await
    }

    async fn tree(
        &mut self,
        source: CopyPath,
        contents: bool,
        facts: Facts,
        target: CopyPath,
    ) -> Result<()> {
        let mut tops = vec![(target, Vec::new())];
        if let Some(name) = source.file_name().filter(|_| !contents) {
            if self.leaves_out(&name, true) {
                return Ok(());
            }
            tops.push((tops[0].0.join(&name)?, [&name[..], b"/"].concat()));
        }
        let mut missing = Vec::new();
        let mut there = None;
        for (place, below) in &tops {
            match self.planner.stat_path(place).await? {
                PathKind::Directory(facts) => there = Some(facts),
                PathKind::File(_) => return Err(no_directory(place)),
                PathKind::Missing => missing.push((place.clone(), below.clone())),
            }
        }
        let is_there = missing.is_empty();
        for made in self.make(missing).await {
            made?;
        }
        let Some((target, below)) = tops.pop() else {
            return Ok(());
        };
        let trail = match &source {
            CopyPath::Here(_) => None,
            CopyPath::There(at) => Some(Trail::new(&at.path)),
        };
        let is_stale = !is_there || self.is_stale(&below, &facts, there.as_ref());
        self.walk(DirectoryPair {
            below,
            modified: facts.modify,
            is_stale,
            source: Some(source),
            target,
            is_there,
            is_behind_link: false,
            above: facts.unique.into_iter().collect(),
            trail,
            depth: 0,
            deletion: None,
        })
        .await;
        Ok(())
    }

    /// Depth first, so that the stack stays short.
    async fn walk(&mut self, top: DirectoryPair) {
        let stop = self.planner.context.stop.clone();
        // The first listing uses the session that exists.
        self.planner.retrying.release();
        let mut pairs = PairLister::new(&self.planner.retrying.pool);
        let mut branches = vec![top];
        while !stop.is_cancelled() {
            while pairs.wants(branches.len())
                && let Some(branch) = branches.pop()
            {
                pairs.begin(branch);
                self.census.begun += 1;
            }
            let Some((pair, listed)) = pairs.next().await else {
                break;
            };
            match listed {
                PairListing::Later => {
                    self.census.begun -= 1;
                    branches.push(pair);
                    continue;
                }
                PairListing::Failed(what, error) => self.lost(&pair, what, error).await,
                PairListing::Both(source, target) => {
                    let complete = (source.complete.as_ref(), target.complete.as_ref());
                    self.census.count(&pair, complete.0, complete.1);
                    pairs.swap_sessions(&mut self.other, &mut self.planner.retrying);
                    let changes = self.changes;
                    let met = self
                        .compare_directories(&pair, source, target, &mut branches)
                        .await;
                    self.set_directory_time(&pair, self.changes > changes).await;
                    pairs.swap_sessions(&mut self.other, &mut self.planner.retrying);
                    if let Err(error) = met {
                        self.lost(&pair, pair.target.to_string(), error).await;
                    }
                }
            }
            for (place, below) in pair
                .deletion
                .into_iter()
                .flat_map(DirectoryDeletion::released)
            {
                if let Err(error) = self.delete_later(true, &place, below) {
                    self.planner.fail(place.to_string(), error).await;
                }
            }
        }
        // The queued pairs still need sessions.
        pairs.swap_sessions(&mut self.other, &mut self.planner.retrying);
        pairs.rest();
    }

    /// A directory with an incomplete listing.
    async fn lost(&mut self, pair: &DirectoryPair, what: String, error: Error) {
        pair.stays();
        self.planner.fail(what, error).await;
    }
}

impl DirectoryPair {
    /// An entry of the target stays, so the target stays.
    fn stays(&self) {
        if let Some(deletion) = &self.deletion {
            deletion.stays();
        }
    }
}
