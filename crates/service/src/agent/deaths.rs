//! How often this agent's process died while it ran a unit: a count on disk.
//!
//! A process that a supervisor starts again at once keeps its lease, so the service grants it the
//! unit again. A unit that kills the process would do so for ever.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};

use godwit_service_api::agent::Lease;

/// A unit that ran for longer is not why the process died.
const FRESH: Duration = Duration::from_secs(600);

/// Deaths after which the unit runs alone, so that others do not share its blame.
pub(super) const DEATHS_SUSPECT: u32 = 2;

/// Deaths before the unit is handed back.
pub(super) const DEATHS_MAX: u32 = 3;

pub(super) struct Deaths {
    folder: PathBuf,
}

impl Deaths {
    /// # Errors
    /// The directory cannot be made or read.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let deaths = Self {
            folder: folder.to_owned(),
        };
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if !is_fresh(&path) {
                fs::remove_file(path)?;
            }
        }
        Ok(deaths)
    }

    /// Starts of a unit that did not end in this process or one before it.
    pub(super) fn of(&self, lease: Lease) -> u32 {
        let path = self.path(lease);
        let count = fs::read_to_string(&path).ok().filter(|_| is_fresh(&path));
        count.and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    /// The unit starts. A count that cannot be written is none.
    pub(super) fn starts(&self, lease: Lease) {
        let count = self.of(lease).saturating_add(1);
        let _ = fs::write(self.path(lease), count.to_string());
    }

    /// The unit ended or was suspended, and the process lives.
    pub(super) fn ended(&self, lease: Lease) {
        // There is no count where it could not be written.
        let _ = fs::remove_file(self.path(lease));
    }

    fn path(&self, lease: Lease) -> PathBuf {
        self.folder.join(format!("{}.{}", lease.unit, lease.epoch))
    }
}

fn is_fresh(path: &Path) -> bool {
    let written = path.metadata().and_then(|file| file.modified()).ok();
    written.is_some_and(|at| {
        // A clock that was set back shows the future.
        SystemTime::now()
            .duration_since(at)
            .is_ok_and(|age| age < FRESH)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_count_until_the_unit_ends() {
        let folder = tempfile::tempdir().unwrap();
        let lease = Lease { unit: 7, epoch: 1 };
        let deaths = Deaths::open(folder.path()).unwrap();
        deaths.starts(lease);
        deaths.starts(lease);
        assert_eq!(Deaths::open(folder.path()).unwrap().of(lease), 2);
        deaths.ended(lease);
        assert_eq!(deaths.of(lease), 0);
    }
}
