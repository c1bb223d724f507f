//! When leftovers of uploads are removed.

use std::{
    sync::Arc,
    time::{Duration, SystemTime},
};

use tokio::{sync::watch, task::spawn_blocking, time::sleep};

use crate::{
    access::admission::Admission, privsep, service::Service, storage::leftovers::sweep_and_tell,
};

/// Sweeps during the age at which files are removed.
const SWEEPS_PER_AGE: u32 = 4;

/// Shortest and longest time between two sweeps: a tree is walked whole.
const PAUSES: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(3600)];

/// Largest difference between the clocks of storage and of this machine.
const CLOCKS_DIFFER_MAX: Duration = Duration::from_secs(60);

/// Sweeps as often as the settings demand, forever.
pub(crate) async fn run(service: &watch::Sender<Arc<Service>>, admission: &Admission) {
    let mut changes = service.subscribe();
    loop {
        let now = Arc::clone(&changes.borrow_and_update());
        let Some(age) = now.settings.reap_after else {
            // The sender is ours, so there is always another change to wait for.
            let _ = changes.changed().await;
            continue;
        };
        let pause = (age / SWEEPS_PER_AGE).clamp(PAUSES[0], PAUSES[1]);
        tokio::select! {
            _ = changes.changed() => continue,
            () = sleep(pause) => {}
        }
        let Some(before) = limit(SystemTime::now(), age, admission.oldest()) else {
            continue;
        };
        let root = now.settings.root.clone();
        match &now.settings.separation {
            Some(_) => privsep::reap(&now.settings, before).await,
            None => drop(spawn_blocking(move || sweep_and_tell(&root, before)).await),
        }
    }
}

/// Files that have changed since stay. `oldest`: when the oldest present session started.
fn limit(now: SystemTime, age: Duration, oldest: Option<SystemTime>) -> Option<SystemTime> {
    let by_age = now.checked_sub(age)?;
    match oldest {
        None => Some(by_age),
        Some(oldest) => Some(by_age.min(oldest.checked_sub(CLOCKS_DIFFER_MAX)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_older_than_age_and_oldest_session_are_removed() {
        let at = |seconds| SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        let age = Duration::from_secs(1000);
        assert_eq!(limit(at(5000), age, None), Some(at(4000)));
        assert_eq!(limit(at(5000), age, Some(at(4900))), Some(at(4000)));
        assert_eq!(limit(at(5000), age, Some(at(3000))), Some(at(2940)));
    }
}
