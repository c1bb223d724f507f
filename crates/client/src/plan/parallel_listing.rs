//! Several sessions list directories of a server at once; names are read while a listing arrives.

use std::sync::Arc;

use godwit_proto::FtpPath;
use tokio::{sync::mpsc, task::JoinSet};

use super::{copy_path::CopyPath, trail::Trail};
use crate::{
    endpoint::Endpoint,
    error::{Error, Result},
    local::attributes::FileAttributes,
    panics::{caught, test_point},
    session::{
        BadName, CompleteListing, DirectoryEntry, LineQueue, LineSink, ListingLines, NameReader,
        Session,
        pool::SessionPool,
        queue,
        retry::{AttemptError, Operation, RetryingSession},
    },
};

/// Sessions that list. A listing in MODE S costs about four round trips whatever its length, so a
/// tree of small directories is listed this many times faster; more would use up the sessions that
/// servers admit and the workers need.
const LISTERS_MAX: usize = 4;

/// A directory that is still to be listed.
pub(super) struct PendingDirectory {
    pub(super) remote: FtpPath,
    pub(super) destination: CopyPath,
    /// The destination was created for this directory.
    pub(super) is_new: bool,
    /// `Unique` facts of each directory from the top down to this one: a repeated one is a loop.
    pub(super) above: Vec<String>,
    pub(super) trail: Trail,
    /// Of the source, until it is recorded for the destination.
    pub(super) attributes: Option<FileAttributes>,
    pub(super) depth: usize,
}

/// A directory that is being listed.
pub(super) struct ActiveListing {
    pub(super) branch: PendingDirectory,
    pub(super) names: NameReader,
    /// Lines that wait for the end of the listing.
    pub(super) kept: Vec<ListingLines>,
    /// Names without facts, which wait likewise.
    pub(super) unclear: Vec<DirectoryEntry>,
    listing: u64,
}

/// What the listing sessions report.
pub(super) enum ListingEvent<'a> {
    /// More of a directory.
    ListingLines(&'a mut ActiveListing, ListingLines),
    /// The listing ended, complete or not.
    Over(Box<ActiveListing>, ListingResult),
}

/// The result of a listing.
pub(super) enum ListingResult {
    Whole,
    Failed(Error),
    /// There was no session for it, and no name came: other sessions continue.
    Later,
}

/// Sessions that list one directory at a time each, into one queue.
pub(super) struct ParallelListing {
    pool: Arc<SessionPool>,
    endpoint: Arc<Endpoint>,
    idle: Vec<RetryingSession>,
    readings: Vec<ActiveListing>,
    busy: JoinSet<(RetryingSession, u64, ListingResult)>,
    lines: (LineQueue, mpsc::UnboundedReceiver<ListingLines>),
    begun: u64,
    /// The server admits no more.
    most: usize,
}

impl ParallelListing {
    pub(super) fn new(pool: &Arc<SessionPool>, endpoint: &Arc<Endpoint>) -> Self {
        Self {
            pool: Arc::clone(pool),
            endpoint: Arc::clone(endpoint),
            idle: Vec::new(),
            readings: Vec::new(),
            busy: JoinSet::new(),
            lines: queue(),
            begun: 0,
            most: LISTERS_MAX,
        }
    }

    /// True if another listing should start while `waiting` directories wait: a login must pay off.
    pub(super) fn wants(&self, waiting: usize) -> bool {
        let busy = self.busy.len();
        busy < self.most && (!self.idle.is_empty() || busy == 0 || waiting >= 2 * busy)
    }

    pub(super) fn begin(&mut self, branch: PendingDirectory) {
        let mut retrying = self.idle.pop().unwrap_or_else(|| {
            let mut retrying = RetryingSession::new(Arc::clone(&self.pool));
            // The first session is required, the others are optional.
            retrying.requeue_on_session_limit = !self.busy.is_empty();
            retrying
        });
        self.begun += 1;
        let listing = self.begun;
        let endpoint = Arc::clone(&self.endpoint);
        let directory = branch.remote.clone();
        let mut outlet = LineSink::new(self.lines.0.clone(), listing);
        self.readings.push(ActiveListing {
            names: NameReader::new(&directory),
            kept: Vec::new(),
            unclear: Vec::new(),
            branch,
            listing,
        });
        self.busy.spawn_local(async move {
            let shown = endpoint.url(&directory);
            let list = async |session: &mut Session| session.list(&directory, &mut outlet).await;
            let listing_it = async {
                test_point("lister", &shown);
                retrying
                    .attempt(Operation::on(&endpoint, &shown), list)
                    .await
            };
            let listed = match caught(|| format!("list {shown}"), listing_it).await {
                Ok(Ok(_)) => ListingResult::Whole,
                Ok(Err(AttemptError::Failed(error))) => ListingResult::Failed(error),
                Ok(Err(AttemptError::SessionLimit(..))) => ListingResult::Later,
                Err(bug) => {
                    retrying.discard();
                    ListingResult::Failed(bug)
                }
            };
            (retrying, listing, listed)
        });
    }

    /// The next event; `None` if no listing runs. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<ListingEvent<'_>> {
        loop {
            let lines = match self.lines.1.try_recv() {
                Ok(lines) => lines,
                Err(_) if self.busy.is_empty() => return None,
                // A session that has ended sent its lines before: they come first.
                Err(_) => tokio::select! {
                    biased;
                    Some(lines) = self.lines.1.recv() => lines,
                    Some(over) = self.busy.join_next() => {
                        // The task catches panics of its listing.
                        let (retrying, listing, listed) = over.expect("no panic passes");
                        if let Some(reading) = self.over(retrying, listing, &listed) {
                            return Some(ListingEvent::Over(Box::new(reading), listed));
                        }
                        continue;
                    }
                },
            };
            let of = self
                .readings
                .iter()
                .position(|r| r.listing == lines.listing);
            if let Some(at) = of {
                return Some(ListingEvent::ListingLines(&mut self.readings[at], lines));
            }
        }
    }

    fn over(
        &mut self,
        retrying: RetryingSession,
        listing: u64,
        listed: &ListingResult,
    ) -> Option<ActiveListing> {
        if matches!(listed, ListingResult::Later) {
            self.most = (self.idle.len() + self.busy.len()).max(1);
        } else {
            self.idle.push(retrying);
        }
        let at = self.readings.iter().position(|r| r.listing == listing)?;
        Some(self.readings.swap_remove(at))
    }

    /// Gives idle sessions back to the pool.
    pub(super) fn rest(&mut self) {
        self.idle.iter_mut().for_each(RetryingSession::release);
    }

    /// Ends all listings.
    pub(super) fn release(mut self) {
        self.busy.abort_all();
        self.rest();
    }
}

/// What [`gather`] gives.
#[allow(
    clippy::large_enum_variant,
    reason = "one at a time, and nearly all are names"
)]
pub(crate) enum ListingItem {
    Name(std::result::Result<DirectoryEntry, BadName>),
    /// The listing failed and starts again: names received before are void.
    Again,
}

/// Lists one directory with the session of `retrying`, and gives each name to `take`. An error of
/// `take` ends it. `None` where bad names came: then names may be missing.
pub(crate) async fn gather(
    retrying: &mut RetryingSession,
    endpoint: &Arc<Endpoint>,
    directory: &FtpPath,
    mut take: impl FnMut(ListingItem) -> Result<()>,
) -> std::result::Result<Option<CompleteListing>, AttemptError> {
    let (queue, mut reader) = queue();
    let shown = endpoint.url(directory);
    let listing = async move {
        // Its end closes the queue.
        let mut outlet = LineSink::new(queue, 0);
        let list = async |session: &mut Session| session.list(directory, &mut outlet).await;
        retrying
            .attempt(Operation::on(endpoint, &shown), list)
            .await
    };
    let taking = &mut take;
    let reading = async move {
        let mut names = NameReader::new(directory);
        while let Some(lines) = reader.recv().await {
            if names.begins_again(&lines) {
                names = NameReader::new(directory);
                taking(ListingItem::Again)?;
            }
            let text = lines.text()?;
            let mut read = names.read(&lines, &text);
            read.try_for_each(|name| taking(ListingItem::Name(name)))?;
        }
        Ok::<_, Error>(names)
    };
    // A reader that ends early closes the queue, which ends the listing.
    let (listed, read) = tokio::join!(listing, reading);
    let names = read?;
    let whole = listed?;
    if names.is_of_before(&whole) {
        take(ListingItem::Again)?;
    }
    Ok(names.complete(&whole))
}
