//! Directories that users look into, each on a thread of its own.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use godwit_client::{CancellationToken, auth::granted::Granted, manage};
use godwit_proto::url::Location;
use godwit_service_api::{
    agent::{Browse, BrowseAnswer, Browsed},
    browse::{BrowsedDirectory, BrowsedEntry, MAX_BROWSED},
    job::{FileError, WhoActs},
};

use super::{
    file_error::file_error,
    link::Link,
    listing::{self, Silent},
    plan::{self, UnitSettings, unfit},
};

/// At a time; more are refused.
const BROWSES_MAX: usize = 8;

/// Longest that the service may have a user wait.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Looks into directories, and tells the service.
#[derive(Clone)]
pub(super) struct Browser {
    pub(super) link: Link,
    pub(super) settings: Arc<UnitSettings>,
    running: Arc<AtomicUsize>,
}

/// One of the places of those that run.
struct BrowsePlace(Arc<AtomicUsize>);

impl Drop for BrowsePlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Browser {
    pub(super) fn new(link: Link, settings: Arc<UnitSettings>) -> Self {
        Self {
            link,
            settings,
            running: Arc::default(),
        }
    }

    pub(super) fn start(&self, browse: Browse) {
        let running = BrowsePlace(Arc::clone(&self.running));
        let before = self.running.fetch_add(1, Ordering::Relaxed);
        let browser = self.clone();
        let look = move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(browser.tell(browse, before < BROWSES_MAX));
            // A resolver may hang.
            runtime.shutdown_background();
            drop(running);
            std::io::Result::Ok(())
        };
        let thread = std::thread::Builder::new().name("godwit-browse".to_owned());
        // The service asks again, or another.
        if let Err(error) = thread.spawn(look) {
            tracing::warn!(%error, "no thread to list a directory");
        }
    }

    async fn tell(&self, browse: Browse, has_room: bool) {
        let limit = Duration::from_secs(browse.seconds).min(WAIT_MAX);
        let found = match has_room {
            true => tokio::time::timeout(limit, self.list(&browse)).await,
            false => Ok(Err(passing("busy", "the agent lists other directories"))),
        };
        let late = || Err(passing("timeout", "the endpoint did not list it in time"));
        let found = match found.unwrap_or_else(|_| late()) {
            Ok(directory) => Browsed::Directory(directory),
            Err(error) => Browsed::Failed(error),
        };
        let id = browse.id;
        if let Err(error) = self.link.browsed(&BrowseAnswer { id, found }).await {
            tracing::info!(%error, "the service did not take the listing of a directory");
        }
    }

    async fn list(&self, browse: &Browse) -> Result<BrowsedDirectory, FileError> {
        let (url, settings) = (&browse.request.url, &self.settings);
        let mut place = plan::place(url, settings)?;
        let handed = (browse.addresses, browse.credentials.as_slice());
        let ends = [&mut place, &mut Location::Standard];
        let connections = plan::connections_for(handed, &Granted::default(), settings, ends)?;
        let stop = CancellationToken::default();
        let listed = match place {
            Location::Remote(url) => manage::list(url, connections, Arc::new(Silent), stop).await,
            Location::Local(path) => listing::list_here(&path),
            Location::Standard => return Err(unfit("not a directory")),
        };
        let names = listed.map_err(|error| file_error(&error))?;
        let total = names.len() as u64;
        let all = names.into_iter().filter_map(|found| {
            // What no URL can name no job can copy.
            let url = listing::below(url, &found.name).ok()?;
            Some(BrowsedEntry {
                name: String::from_utf8_lossy(&found.name).into_owned(),
                url,
                directory: found.is_directory,
                bytes: found.size.filter(|_| !found.is_directory),
            })
        });
        let after = browse.request.cursor.as_deref();
        let is_after = |entry: &BrowsedEntry| after.is_none_or(|after| *place_of(entry) > *after);
        let mut all: Vec<_> = all.filter(is_after).collect();
        all.sort_by_cached_key(place_of);
        let limit = browse.request.limit.clamp(1, MAX_BROWSED) as usize;
        let mut rest = all.into_iter();
        let entries: Vec<_> = rest.by_ref().take(limit).collect();
        let cursor = entries.last().map(place_of);
        Ok(BrowsedDirectory {
            cursor: cursor.filter(|_| rest.next().is_some()),
            entries,
            total,
        })
    }
}

/// Where an entry is in the list: directories come first.
fn place_of(entry: &BrowsedEntry) -> String {
    let kind = if entry.directory { 'd' } else { 'f' };
    format!("{kind}{}", entry.url)
}

fn passing(code: &str, message: &str) -> FileError {
    FileError {
        code: code.to_owned(),
        message: message.to_owned(),
        who: WhoActs::Service,
        may_pass: true,
    }
}
