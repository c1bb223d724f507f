//! Lists a directory at both ends at the same time; several pairs at once, since each costs round
//! trips.

use std::{
    fs, io,
    os::unix::{ffi::OsStrExt, fs::MetadataExt},
    path::Path,
    sync::Arc,
};

use godwit_proto::{
    facts::{FactType, Facts},
    timestamp::Timestamp,
};
use tokio::task::JoinSet;

use super::{
    DirectoryPair,
    spooled_listing::{SpooledListing, essential, in_buckets},
};
use crate::{
    error::{Error, Result},
    local::files,
    panics::{caught, on_thread, test_point},
    plan::{
        copy_path::CopyPath,
        parallel_listing::{ListingItem, gather},
        remote_walk::hostile,
    },
    session::{
        self, CompleteListing, DirectoryEntry, Session,
        pool::SessionPool,
        retry::{AttemptError, Operation, RetryingSession},
    },
    transfer::source_file::RemotePath,
};

/// Pairs that are listed at once: a server has as many listing sessions as for a copy.
const PAIRS_MAX: usize = 4;

/// Names without facts that are checked together.
const TOGETHER: usize = 100;

/// Unusable names of a directory that are reported one by one.
const BAD_MAX: usize = 16;

/// The contents of a directory at one end.
pub(super) struct DirectoryContents {
    pub(super) listing: SpooledListing,
    /// Unusable names, their paths, and why.
    pub(super) bad: Vec<(String, Error)>,
    /// False if names may be missing or were not checked.
    pub(super) complete: Option<CompleteListing>,
}

/// The result of listing a pair.
pub(super) enum PairListing {
    /// Source and target.
    Both(DirectoryContents, DirectoryContents),
    /// One of them, by name, could not be listed.
    Failed(String, Error),
    /// There was no session for it: other pairs continue.
    Later,
}

/// Listing sessions, two for a pair.
pub(super) struct PairLister {
    pool: Arc<SessionPool>,
    idle: Vec<[RetryingSession; 2]>,
    busy: JoinSet<([RetryingSession; 2], DirectoryPair, PairListing)>,
    /// Servers admit no more.
    most: usize,
}

impl PairLister {
    pub(super) fn new(pool: &Arc<SessionPool>) -> Self {
        Self {
            pool: Arc::clone(pool),
            idle: Vec::new(),
            busy: JoinSet::new(),
            most: PAIRS_MAX,
        }
    }

    /// True if another pair should start while `waiting` pairs wait: a login must pay off.
    pub(super) fn wants(&self, waiting: usize) -> bool {
        let busy = self.busy.len();
        busy < self.most && (!self.idle.is_empty() || busy == 0 || waiting >= 2 * busy)
    }

    pub(super) fn begin(&mut self, pair: DirectoryPair) {
        let mut sessions = self.idle.pop().unwrap_or_else(|| {
            let new_session = || RetryingSession::new(Arc::clone(&self.pool));
            [new_session(), new_session()]
        });
        for retrying in &mut sessions {
            // The first pair is required, the others are optional.
            retrying.requeue_on_session_limit = !self.busy.is_empty();
        }
        self.busy.spawn_local(async move {
            let shown = pair.source.as_ref().unwrap_or(&pair.target).to_string();
            let list = async {
                test_point("pair", &shown);
                list_both(&mut sessions, &pair).await
            };
            let listed = caught(|| format!("list {shown}"), list).await;
            let listed = listed.unwrap_or_else(|bug| {
                sessions.iter_mut().for_each(RetryingSession::discard);
                PairListing::Failed(shown, bug)
            });
            (sessions, pair, listed)
        });
    }

    /// The next pair with its listing; `None` if no listing runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(DirectoryPair, PairListing)> {
        // The task catches panics of its listing.
        let (sessions, pair, listed) = self.busy.join_next().await?.expect("no panic passes");
        match listed {
            PairListing::Later => self.most = (self.idle.len() + self.busy.len()).max(1),
            _ => self.idle.push(sessions),
        }
        Some((pair, listed))
    }

    /// Swaps the given sessions for those that listed last: the actions then need no further
    /// sessions, which servers might refuse.
    pub(super) fn swap_sessions(
        &mut self,
        source: &mut RetryingSession,
        target: &mut RetryingSession,
    ) {
        if let Some([one, other]) = self.idle.last_mut() {
            std::mem::swap(one, source);
            std::mem::swap(other, target);
            (
                source.requeue_on_session_limit,
                target.requeue_on_session_limit,
            ) = (false, false);
        }
    }

    /// Gives idle sessions back to the pool.
    pub(super) fn rest(&mut self) {
        self.idle
            .iter_mut()
            .flatten()
            .for_each(RetryingSession::release);
    }
}

async fn list_both([one, other]: &mut [RetryingSession; 2], pair: &DirectoryPair) -> PairListing {
    let (ours, theirs) = SpooledListing::pair();
    let there = pair.is_there.then_some(&pair.target);
    let (source, target) = tokio::join!(
        list(one, pair.source.as_ref(), ours),
        list(other, there, theirs)
    );
    match (source, target) {
        (Ok(source), Ok(target)) => PairListing::Both(source, target),
        (Err((what, error)), _) | (_, Err((what, error))) => match error {
            AttemptError::Failed(error) => PairListing::Failed(what, error),
            AttemptError::SessionLimit(..) => PairListing::Later,
        },
    }
}

async fn list(
    retrying: &mut RetryingSession,
    place: Option<&CopyPath>,
    listing: SpooledListing,
) -> std::result::Result<DirectoryContents, (String, AttemptError)> {
    let mut side = DirectoryContents::new(listing);
    match place {
        None => Ok(side),
        Some(CopyPath::There(at)) => match list_there(retrying, at, &mut side).await {
            Ok(()) => Ok(side),
            Err(error) => Err((at.url(), error)),
        },
        Some(CopyPath::Here(path)) => {
            let path = path.clone();
            let shown = path.display().to_string();
            let doing = || format!("read directory {shown}");
            let read = on_thread(doing, move || list_here(&path, &mut side).map(|()| side));
            let read = read.await.and_then(|read| read);
            read.map_err(|error| (shown, AttemptError::Failed(error)))
        }
    }
}

fn list_here(path: &Path, side: &mut DirectoryContents) -> Result<()> {
    test_point("read", &path.display());
    let complete = session::list_here(path, |path| {
        let name = path.file_name().unwrap_or_default().as_bytes().to_vec();
        if name.iter().any(|b| matches!(b, b'\r' | b'\n')) {
            let why = Error::Usage(format!("{}: cannot be named at a server", path.display()));
            side.refuse(path.display().to_string(), why);
            return Ok(());
        }
        let failed = |e: io::Error| Error::local(format!("look at {}", path.display()), &e);
        let facts = facts_here(&path).map_err(failed)?;
        let pushed = side.listing.push(&DirectoryEntry { name, facts });
        pushed.map_err(|e| Error::local(files::spool_context(), &e))
    })?;
    side.complete = Some(complete);
    Ok(())
}

/// The facts that a server would send of a local file; a dangling link has no type.
pub(super) fn facts_here(path: &Path) -> io::Result<Facts> {
    let own = fs::symlink_metadata(path)?;
    let is_link = own.is_symlink();
    let metadata = match is_link {
        true => fs::metadata(path).ok(),
        false => Some(own),
    };
    let unix_slink = is_link.then(|| b".".to_vec());
    let Some(metadata) = metadata else {
        return Ok(Facts {
            unix_slink,
            ..Facts::default()
        });
    };
    let kind = match metadata.file_type() {
        kind if kind.is_file() => FactType::File,
        kind if kind.is_dir() => FactType::Dir,
        _ => FactType::Other("special".to_owned()),
    };
    Ok(Facts {
        size: (kind == FactType::File).then_some(metadata.len()),
        kind: Some(kind),
        modify: Some(Timestamp(metadata.mtime())),
        unix_mode: Some(metadata.mode() & 0o7777),
        unique: Some(format!("{:x}-{:x}", metadata.dev(), metadata.ino())),
        unix_slink,
        ..Facts::default()
    })
}

async fn list_there(
    retrying: &mut RetryingSession,
    at: &RemotePath,
    side: &mut DirectoryContents,
) -> std::result::Result<(), AttemptError> {
    let mut unclear = false;
    side.complete = gather(retrying, &at.endpoint, &at.path, |listed| {
        match listed {
            ListingItem::Again => *side = DirectoryContents::new(side.listing.like()),
            ListingItem::Name(Ok(DirectoryEntry { name, facts })) => {
                let facts = essential(facts);
                let entry = DirectoryEntry { name, facts };
                unclear |= entry.is_unclear() || entry.lacks_time();
                let pushed = side.listing.push(&entry);
                pushed.map_err(|e| Error::local(files::spool_context(), &e))?;
            }
            ListingItem::Name(Err(bad)) => side.refuse(at.url(), hostile(at.url(), bad)),
        }
        Ok(())
    })
    .await?;
    match unclear {
        true => stat_entry(retrying, at, side).await,
        false => Ok(()),
    }
}

/// Asks for facts that the listing lacks. A name without an answer is unusable.
async fn stat_entry(
    retrying: &mut RetryingSession,
    at: &RemotePath,
    side: &mut DirectoryContents,
) -> std::result::Result<(), AttemptError> {
    let failed = |e: io::Error| Error::local(files::spool_context(), &e);
    let empty = side.listing.like();
    let known = side.listing.like();
    let listed = std::mem::replace(&mut side.listing, known);
    for part in in_buckets(listed, empty).map_err(failed)? {
        let (entries, _) = part.map_err(failed)?;
        for entries in entries.chunks(TOGETHER) {
            let shown = at.url();
            let look = async |session: &mut Session| session.stat_entries(&at.path, entries).await;
            let looked = retrying
                .attempt(Operation::on(&at.endpoint, &shown), look)
                .await?;
            for (entry, looked) in entries.iter().zip(looked) {
                match looked {
                    Ok(facts) => {
                        let name = entry.name.clone();
                        let entry = DirectoryEntry {
                            name,
                            facts: essential(facts),
                        };
                        side.listing.push(&entry).map_err(failed)?;
                    }
                    Err(error) => {
                        side.complete = None;
                        let what = at.path.join(&entry.name).map(|path| at.endpoint.url(&path));
                        side.refuse(what.unwrap_or(shown.clone()), error);
                    }
                }
            }
        }
    }
    Ok(())
}

impl DirectoryContents {
    fn new(listing: SpooledListing) -> Self {
        Self {
            listing,
            bad: Vec::new(),
            complete: None,
        }
    }

    fn refuse(&mut self, what: String, why: Error) {
        if self.bad.len() < BAD_MAX {
            self.bad.push((what, why));
        }
    }
}
