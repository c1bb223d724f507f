//! Directories of a server, listed by several sessions at once, and read while they are being
//! listed.

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

/// Sessions that list. A listing in MODE S costs about four round trips whatever its length, so
/// that this many make a tree of small directories as many times faster; more would take from the
/// workers what servers let in.
const LISTERS_MAX: usize = 4;

/// A directory still to be listed.
pub(super) struct PendingDirectory {
    pub(super) remote: FtpPath,
    pub(super) destination: CopyPath,
    /// What is at the goal was made for this.
    pub(super) is_new: bool,
    /// `Unique` facts from the top down to here: one that comes again is a loop.
    pub(super) above: Vec<String>,
    pub(super) trail: Trail,
    /// Of the source, until it is noted for the goal.
    pub(super) attributes: Option<FileAttributes>,
    pub(super) depth: usize,
}

/// A directory that is being listed.
pub(super) struct ActiveListing {
    pub(super) branch: PendingDirectory,
    pub(super) names: NameReader,
    /// Lines that wait for the end.
    pub(super) kept: Vec<ListingLines>,
    /// Names that have to be looked at, which wait likewise.
    pub(super) unclear: Vec<DirectoryEntry>,
    listing: u64,
}

/// What the listers tell.
pub(super) enum ListingEvent<'a> {
    /// More of a directory.
    ListingLines(&'a mut ActiveListing, ListingLines),
    /// All of it was told, or as much as could be had.
    Over(Box<ActiveListing>, ListingResult),
}

/// What came of a listing.
pub(super) enum ListingResult {
    Whole,
    Failed(Error),
    /// There was no session for it, and nothing was told: others go on.
    Later,
}

/// Sessions that list, each one directory at a time, into one queue.
pub(super) struct ParallelListing {
    pool: Arc<SessionPool>,
    endpoint: Arc<Endpoint>,
    idle: Vec<RetryingSession>,
    readings: Vec<ActiveListing>,
    busy: JoinSet<(RetryingSession, u64, ListingResult)>,
    lines: (LineQueue, mpsc::UnboundedReceiver<ListingLines>),
    begun: u64,
    /// The server lets no more in.
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

    /// Whether a further directory is to be begun while so many wait: a login must be worth it.
    pub(super) fn wants(&self, waiting: usize) -> bool {
        let busy = self.busy.len();
        busy < self.most && (!self.idle.is_empty() || busy == 0 || waiting >= 2 * busy)
    }

    pub(super) fn begin(&mut self, branch: PendingDirectory) {
        let mut retrying = self.idle.pop().unwrap_or_else(|| {
            let mut retrying = RetryingSession::new(Arc::clone(&self.pool));
            // The first must get in, the others may.
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

    /// What is there next; `None` where nothing is on its way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<ListingEvent<'_>> {
        loop {
            let lines = match self.lines.1.try_recv() {
                Ok(lines) => lines,
                Err(_) if self.busy.is_empty() => return None,
                // Who is over has sent its lines before: they come first.
                Err(_) => tokio::select! {
                    biased;
                    Some(lines) = self.lines.1.recv() => lines,
                    Some(over) = self.busy.join_next() => {
                        // The task catches the panics of its listing.
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

    /// Leaves the sessions that list nothing now to whoever needs one next.
    pub(super) fn rest(&mut self) {
        self.idle.iter_mut().for_each(RetryingSession::release);
    }

    /// Nothing more is listed.
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
    /// The listing broke off and begins again: what came of it before is void.
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
        // The queue ends with it.
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
    // A reader that ends early closes the queue, and so ends the listing.
    let (listed, read) = tokio::join!(listing, reading);
    let names = read?;
    let whole = listed?;
    if names.is_of_before(&whole) {
        take(ListingItem::Again)?;
    }
    Ok(names.complete(&whole))
}
