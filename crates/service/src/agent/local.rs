//! Files of the agent's own machine, looked at for users who wait. A file system may never answer.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use godwit_service_api::job::{FileError, WhoActs};
use tokio::sync::oneshot;

/// Local directories that are read at a time. A file system that does not answer keeps a thread for
/// as long as it likes, also when nobody waits any more.
const LOCAL_MAX: usize = 4;

/// How many of a kind there are at a time.
#[derive(Clone, Default)]
pub(super) struct LocalPlaces(Arc<AtomicUsize>);

/// One of them, while it is there.
struct LocalPlace(Arc<AtomicUsize>);

impl LocalPlaces {
    /// `None`: `most` are taken.
    fn take(&self, most: usize) -> Option<LocalPlace> {
        let place = LocalPlace(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < most).then_some(place)
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Runs what may never return on a thread that nobody waits for longer than they like.
pub(super) async fn apart<T: Send + 'static>(
    places: &LocalPlaces,
    work: impl FnOnce() -> Result<T, FileError> + Send + 'static,
) -> Result<T, FileError> {
    let hangs = "file systems of the agent do not answer";
    let place = places
        .take(LOCAL_MAX)
        .ok_or_else(|| passing("busy", hangs))?;
    let (tell, told) = oneshot::channel();
    let thread = std::thread::Builder::new().name("godwit-list".to_owned());
    let spawned = thread.spawn(move || {
        let done = work();
        drop(place);
        // Nobody may wait any more.
        let _ = tell.send(done);
    });
    spawned.map_err(|error| passing("busy", &format!("no thread: {error}")))?;
    let ended = told.await;
    ended.unwrap_or_else(|_| Err(passing("failed", "the directory could not be read")))
}

pub(super) fn passing(code: &str, message: &str) -> FileError {
    FileError {
        code: code.to_owned(),
        message: message.to_owned(),
        who: WhoActs::Service,
        may_pass: true,
    }
}

#[cfg(test)]
mod tests {
    use std::{sync::mpsc, time::Duration};

    use super::*;

    #[tokio::test]
    async fn a_file_system_that_hangs_keeps_one_place_and_nobody_waiting() {
        let places = LocalPlaces::default();
        let mut hanging = Vec::new();
        for _ in 0..LOCAL_MAX {
            let (release, held) = mpsc::channel::<()>();
            let read = move || {
                let _ = held.recv();
                Ok(())
            };
            let waited = tokio::time::timeout(Duration::from_millis(10), apart(&places, read));
            assert!(waited.await.is_err());
            hanging.push(release);
        }
        let refused = apart(&places, || Ok(())).await.unwrap_err();
        assert_eq!(refused.code, "busy");
        hanging.pop();
        // The thread that was released gives its place back.
        while apart(&places, || Ok(())).await.is_err() {
            tokio::task::yield_now().await;
        }
    }
}
