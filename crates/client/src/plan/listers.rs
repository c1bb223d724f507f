//! Directories of a server, listed by several sessions at once.

use std::{path::PathBuf, sync::Arc};

use godwit_proto::FtpPath;
use tokio::task::JoinSet;

use super::get::step;
use crate::{
    carrier::{Carrier, Pool, Setback},
    context::Endpoint,
    error::Error,
    session::{Names, Session},
};

/// Sessions that list. A listing in MODE S costs about four round trips whatever its length, so that this many make a tree of
/// small directories as many times faster; more would take from the workers what servers let in.
const LISTERS_MAX: usize = 4;

/// A directory still to be listed.
pub(super) struct Branch {
    pub(super) remote: FtpPath,
    pub(super) local: PathBuf,
    /// `Unique` facts from the top down to here: one that comes again is a loop.
    pub(super) above: Vec<String>,
    pub(super) depth: usize,
}

/// What came of a listing.
pub(super) enum Listed {
    Names(Names),
    Failed(Error),
    /// There was no session for it: others go on.
    Later,
}

/// Sessions that list, each one directory at a time.
pub(super) struct Listers {
    pool: Arc<Pool>,
    endpoint: Arc<Endpoint>,
    idle: Vec<Carrier>,
    busy: JoinSet<(Carrier, Branch, Listed)>,
    /// The server lets no more in.
    most: usize,
}

impl Listers {
    pub(super) fn new(pool: &Arc<Pool>, endpoint: &Arc<Endpoint>) -> Self {
        Self {
            pool: Arc::clone(pool),
            endpoint: Arc::clone(endpoint),
            idle: Vec::new(),
            busy: JoinSet::new(),
            most: LISTERS_MAX,
        }
    }

    /// Whether a further directory is to be begun while so many wait: a login must be worth it.
    pub(super) fn wants(&self, waiting: usize) -> bool {
        let busy = self.busy.len();
        busy < self.most && (!self.idle.is_empty() || busy == 0 || waiting >= 2 * busy)
    }

    pub(super) fn begin(&mut self, branch: Branch) {
        let mut carrier = self.idle.pop().unwrap_or_else(|| {
            let mut carrier = Carrier::new(Arc::clone(&self.pool));
            // The first must get in, the others may.
            carrier.may_yield = !self.busy.is_empty();
            carrier
        });
        let endpoint = Arc::clone(&self.endpoint);
        self.busy.spawn_local(async move {
            let shown = endpoint.url(&branch.remote);
            let list = async |session: &mut Session| session.list(&branch.remote).await;
            let listed = match carrier.attempt(step(&endpoint, &shown), list).await {
                Ok(names) => Listed::Names(names),
                Err(Setback::Failed(error)) => Listed::Failed(error),
                Err(Setback::Crowded(_)) => Listed::Later,
            };
            (carrier, branch, listed)
        });
    }

    /// The next listing that is there; `None` where none is on its way. Cancel-safe.
    pub(super) async fn next(&mut self) -> Option<(Branch, Listed)> {
        loop {
            // A panic of a lister is a bug of ours; its directory is lost, and the planner's end will tell.
            let Ok((carrier, branch, listed)) = self.busy.join_next().await? else {
                continue;
            };
            if matches!(listed, Listed::Later) {
                self.most = (self.idle.len() + self.busy.len()).max(1);
            } else {
                self.idle.push(carrier);
            }
            return Some((branch, listed));
        }
    }

    /// Leaves the sessions that list nothing now to whoever needs one next.
    pub(super) fn rest(&mut self) {
        self.idle.iter_mut().for_each(Carrier::release);
    }

    /// Nothing more is listed.
    pub(super) fn release(mut self) {
        self.busy.abort_all();
        self.rest();
    }
}
