//! What users look at before they submit, each on a thread of its own: directories, and what a job
//! would copy.

use std::{collections::HashMap, io, sync::Arc, time::Duration};

use godwit_client::{
    CancellationToken,
    auth::granted::Granted,
    manage::{self, ListedNames},
};
use godwit_proto::url::Location;
use godwit_service_api::{
    agent::{Browse, BrowseAnswer, Browsed, Preview},
    browse::{BrowseRequest, BrowsedDirectory, BrowsedEntry, MAX_BROWSED, MAX_LOOKED_AT},
    job::FileError,
};
use parking_lot::Mutex;
use tokio::time::Instant;
use uuid::Uuid;

use super::{
    file_error::file_error,
    link::Link,
    listing::{self, Silent},
    local::{LocalPlaces, apart, passing},
    plan::{self, UnitSettings, unfit},
    preview::preview,
};

/// At a time; more are refused.
const BROWSES_MAX: usize = 8;

/// Longest that the service may have a user wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Of the time that a user waits, for the listings of a preview. The rest is for its way back.
const PART_FOR_LISTINGS: f64 = 0.75;

/// What a user waits for.
#[derive(Clone)]
pub(super) enum Task {
    Directory(Browse),
    Job(Preview),
}

impl Task {
    fn id(&self) -> Uuid {
        match self {
            Task::Directory(browse) => browse.id,
            Task::Job(preview) => preview.id,
        }
    }

    fn seconds(&self) -> u64 {
        match self {
            Task::Directory(browse) => browse.seconds,
            Task::Job(preview) => preview.seconds,
        }
    }
}

/// Looks into directories, and tells the service.
#[derive(Clone)]
pub(super) struct Browser {
    link: Link,
    settings: Arc<UnitSettings>,
    running: Arc<Mutex<HashMap<Uuid, CancellationToken>>>,
    local: LocalPlaces,
}

/// A directory that is looked into.
struct RunningBrowse {
    all: Arc<Mutex<HashMap<Uuid, CancellationToken>>>,
    id: Uuid,
}

impl Drop for RunningBrowse {
    fn drop(&mut self) {
        self.all.lock().remove(&self.id);
    }
}

impl Browser {
    pub(super) fn new(link: Link, settings: Arc<UnitSettings>) -> Self {
        Self {
            link,
            settings,
            running: Arc::default(),
            local: LocalPlaces::default(),
        }
    }

    /// Those that it looks into.
    pub(super) fn running(&self) -> Vec<Uuid> {
        self.running.lock().keys().copied().collect()
    }

    /// Nobody waits for these any more.
    pub(super) fn stop(&self, over: &[Uuid]) {
        let running = self.running.lock();
        for id in over {
            if let Some(stop) = running.get(id) {
                stop.cancel();
            }
        }
    }

    pub(super) fn start(&self, task: Task) {
        let stop = CancellationToken::default();
        let has_room = {
            let mut running = self.running.lock();
            running.insert(task.id(), stop.clone());
            running.len() <= BROWSES_MAX
        };
        let running = RunningBrowse {
            all: Arc::clone(&self.running),
            id: task.id(),
        };
        let browser = self.clone();
        let look = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(browser.tell(task, has_room, stop));
            // A resolver may hang.
            runtime.shutdown_background();
            drop(running);
            io::Result::Ok(())
        };
        let thread = std::thread::Builder::new().name("godwit-browse".to_owned());
        // The service asks again, or another.
        if let Err(error) = thread.spawn(look) {
            tracing::warn!(%error, "no thread to list a directory");
        }
    }

    async fn tell(&self, task: Task, has_room: bool, stop: CancellationToken) {
        let limit = Duration::from_secs(task.seconds()).min(WAIT_MAX);
        let listing = async {
            match has_room {
                true => Box::pin(self.look(&task, limit, stop.clone())).await,
                false => Err(passing("busy", "the agent lists other directories")),
            }
        };
        let found = tokio::select! {
            found = listing => found,
            () = stop.cancelled() => Err(passing("canceled", "nobody waits any more")),
            () = tokio::time::sleep(limit) => {
                Err(passing("timeout", "the endpoint did not list it in time"))
            }
        };
        let found = found.unwrap_or_else(Browsed::Failed);
        let id = task.id();
        if let Err(error) = self.link.browsed(&BrowseAnswer { id, found }).await {
            tracing::info!(%error, "the service did not take the listing of a directory");
        }
    }

    async fn look(
        &self,
        task: &Task,
        limit: Duration,
        stop: CancellationToken,
    ) -> Result<Browsed, FileError> {
        match task {
            Task::Directory(browse) => {
                let found = Box::pin(self.list(browse, stop)).await;
                found.map(Browsed::Directory)
            }
            Task::Job(task) => {
                // What was counted until then is told.
                let until = Instant::now() + limit.mul_f64(PART_FOR_LISTINGS);
                let found = preview(task, (&self.settings, &self.local), until, stop);
                // Futures this large and deep are too much for the compiler in one another.
                Box::pin(found).await.map(Browsed::Preview)
            }
        }
    }

    async fn list(
        &self,
        browse: &Browse,
        stop: CancellationToken,
    ) -> Result<BrowsedDirectory, FileError> {
        let (url, settings) = (&browse.request.url, &self.settings);
        let mut place = plan::place(url, settings)?;
        let handed = (browse.addresses, browse.credentials.as_slice());
        let ends = [&mut place, &mut Location::Standard];
        let connections = plan::connections_for(handed, &Granted::default(), settings, ends)?;
        let listed = match place {
            Location::Remote(url) => {
                let watch = Arc::new(Silent);
                let listed = manage::list_up_to(MAX_LOOKED_AT, url, connections, watch, stop);
                listed.await.map_err(|error| file_error(&error))?
            }
            Location::Local(path) => {
                let read = move || {
                    let listed = listing::list_here(&path, MAX_LOOKED_AT, &stop);
                    listed.map_err(|error| file_error(&error))
                };
                apart(&self.local, read).await?
            }
            Location::Standard => return Err(unfit("not a directory")),
        };
        Ok(part_of(listed, &browse.request))
    }
}

/// The part of a directory that was asked for.
fn part_of(listed: ListedNames, request: &BrowseRequest) -> BrowsedDirectory {
    let total = listed.names.len() as u64;
    let all = listed.names.into_iter().filter_map(|found| {
        // What no URL can name no job can copy.
        let url = listing::below(&request.url, &found.name).ok()?;
        Some(BrowsedEntry {
            name: String::from_utf8_lossy(&found.name).into_owned(),
            url,
            directory: found.is_directory,
            bytes: found.size.filter(|_| !found.is_directory),
        })
    });
    let after = request.cursor.as_deref();
    let is_after = |entry: &BrowsedEntry| after.is_none_or(|after| *place_of(entry) > *after);
    let mut all: Vec<_> = all.filter(is_after).collect();
    all.sort_by_cached_key(place_of);
    let limit = request.limit.clamp(1, MAX_BROWSED) as usize;
    let mut rest = all.into_iter();
    let entries: Vec<_> = rest.by_ref().take(limit).collect();
    let cursor = entries.last().map(place_of);
    BrowsedDirectory {
        cursor: cursor.filter(|_| rest.next().is_some()),
        entries,
        total,
        has_more: listed.has_more,
    }
}

/// Where an entry is in the list: directories come first.
fn place_of(entry: &BrowsedEntry) -> String {
    let kind = if entry.directory { 'd' } else { 'f' };
    format!("{kind}{}", entry.url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_many_names_says_that_there_are_more() {
        let name = |n: usize| manage::ListedName {
            name: format!("{n:04}").into_bytes(),
            is_directory: n % 2 == 1,
            size: Some(1),
        };
        let listed = |has_more| ListedNames {
            names: (0..10).rev().map(name).collect(),
            has_more,
        };
        let mut request = BrowseRequest {
            url: "ftp://h/d".to_owned(),
            cursor: None,
            limit: 6,
            labels: Vec::new(),
        };
        let first = part_of(listed(true), &request);
        assert_eq!(
            (first.total, first.has_more, first.entries.len()),
            (10, true, 6)
        );
        let names: Vec<_> = first
            .entries
            .iter()
            .map(|entry| entry.name.as_str())
            .collect();
        assert_eq!(names, ["0001", "0003", "0005", "0007", "0009", "0000"]);
        request.cursor = first.cursor;
        let last = part_of(listed(false), &request);
        assert_eq!(
            (last.entries.len(), last.cursor, last.has_more),
            (4, None, false)
        );
    }
}
