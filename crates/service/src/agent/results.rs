//! Results on disk until the service has acknowledged them. They outlive the agent.
//!
//! One file a result, written beside its name, synced and renamed. Memory holds their names and
//! lengths alone.

use std::{
    collections::{BTreeMap, VecDeque},
    fs::{self, File},
    io::{self, Write},
    path::{Path, PathBuf},
};

use godwit_service_api::agent::{Lease, UnitResult};

/// Results of one poll.
const TOGETHER: usize = 16;

/// Bytes of the results of one poll, but for the first.
const BYTES_TOGETHER: u64 = 2 << 20;

/// Above these no further units are taken: the service does not acknowledge.
const MOST: usize = 4096;
const BYTES_MOST: u64 = 256 << 20;

/// Longest result that is read back.
const FILE_BYTES_MAX: u64 = 64 << 20;

pub(super) struct Results {
    folder: PathBuf,
    /// By the order in which they came.
    stored: BTreeMap<u64, Stored>,
    /// The disk had no room for these.
    unwritten: VecDeque<UnitResult>,
    next: u64,
    bytes: u64,
}

struct Stored {
    lease: Lease,
    sequence: u64,
    last: bool,
    bytes: u64,
}

/// What waits of a grant.
pub(super) struct Queued {
    /// The number after the highest.
    pub(super) next: u64,
    /// The last of the grant is among them.
    pub(super) last: bool,
}

impl Results {
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        fs::create_dir_all(folder)?;
        let mut results = Self {
            folder: folder.to_owned(),
            stored: BTreeMap::new(),
            unwritten: VecDeque::new(),
            next: 0,
            bytes: 0,
        };
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let name = entry.file_name();
            match name.to_str().and_then(read_name) {
                Some((order, mut stored)) => {
                    stored.bytes = entry.metadata()?.len();
                    results.note(order, stored);
                }
                // Torn by a crash.
                None => fs::remove_file(entry.path())?,
            }
        }
        Ok(results)
    }

    pub(super) fn push(&mut self, result: UnitResult) {
        if !self.unwritten.is_empty() {
            // They are sent in order.
            self.unwritten.push_back(result);
        } else if let Err(error) = self.write(&result) {
            tracing::warn!(%error, "a result waits in memory, the disk does not take it");
            self.unwritten.push_back(result);
        }
    }

    pub(super) fn retry_writes(&mut self) {
        while let Some(result) = self.unwritten.front() {
            let result = result.clone();
            if self.write(&result).is_err() {
                return;
            }
            self.unwritten.pop_front();
        }
    }

    fn write(&mut self, result: &UnitResult) -> io::Result<()> {
        let text = serde_json::to_vec(result)?;
        let order = self.next;
        let stored = Stored {
            lease: result.lease,
            sequence: result.sequence,
            last: result.last,
            bytes: text.len() as u64,
        };
        write_durably(&self.path(order, &stored), &text)?;
        self.note(order, stored);
        Ok(())
    }

    fn note(&mut self, order: u64, stored: Stored) {
        self.next = self.next.max(order + 1);
        self.bytes += stored.bytes;
        self.stored.insert(order, stored);
    }

    fn path(&self, order: u64, stored: &Stored) -> PathBuf {
        let Lease { unit, epoch } = stored.lease;
        let (sequence, last) = (stored.sequence, u8::from(stored.last));
        self.folder
            .join(format!("{order:016}.{unit}.{epoch}.{sequence}.{last}"))
    }

    /// What waits of a grant; `None`: nothing.
    pub(super) fn of(&self, lease: Lease) -> Option<Queued> {
        let stored = self.stored.values().map(|s| (s.lease, s.sequence, s.last));
        let unwritten = self.unwritten.iter().map(|r| (r.lease, r.sequence, r.last));
        let of_lease = stored.chain(unwritten).filter(|(of, ..)| *of == lease);
        of_lease.fold(None, |queued, (_, sequence, last)| {
            let before = queued.unwrap_or(Queued {
                next: 0,
                last: false,
            });
            Some(Queued {
                next: before.next.max(sequence + 1),
                last: before.last || last,
            })
        })
    }

    /// The oldest, for a poll.
    pub(super) fn next(&mut self) -> Vec<UnitResult> {
        let (mut results, mut bytes, mut bad) = (Vec::new(), 0, Vec::new());
        for (order, stored) in &self.stored {
            bytes += stored.bytes;
            if results.len() == TOGETHER || (bytes > BYTES_TOGETHER && !results.is_empty()) {
                break;
            }
            let path = self.path(*order, stored);
            match read_result(&path) {
                Ok(result) => results.push(result),
                Err(error) => {
                    tracing::error!(%error, path = %path.display(), "a result is lost");
                    bad.push(*order);
                }
            }
        }
        bad.into_iter().for_each(|order| self.remove(order));
        // Memory alone has these: they follow when all others are gone.
        if self.stored.is_empty() {
            results.extend(self.unwritten.iter().take(TOGETHER).cloned());
        }
        results
    }

    pub(super) fn acknowledged(&mut self, lease: Lease, sequence: u64) {
        self.remove_all(|of, number| (of, number) == (lease, sequence));
    }

    /// The service counts none of this grant.
    pub(super) fn forget(&mut self, lease: Lease) {
        self.remove_all(|of, _| of == lease);
    }

    fn remove_all(&mut self, is_meant: impl Fn(Lease, u64) -> bool) {
        let meant = self.stored.iter();
        let meant = meant.filter(|(_, stored)| is_meant(stored.lease, stored.sequence));
        let orders: Vec<u64> = meant.map(|(order, _)| *order).collect();
        orders.into_iter().for_each(|order| self.remove(order));
        self.unwritten
            .retain(|result| !is_meant(result.lease, result.sequence));
    }

    fn remove(&mut self, order: u64) {
        let Some(stored) = self.stored.remove(&order) else {
            return;
        };
        self.bytes -= stored.bytes;
        let path = self.path(order, &stored);
        // One that stays is sent once more after a restart, and acknowledged once more.
        if let Err(error) = fs::remove_file(&path) {
            tracing::warn!(%error, path = %path.display(), "an acknowledged result stays");
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.stored.is_empty() && self.unwritten.is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.stored.len() > MOST || self.bytes > BYTES_MOST || !self.unwritten.is_empty()
    }
}

fn read_name(name: &str) -> Option<(u64, Stored)> {
    let mut parts = name.split('.');
    let order = parts.next()?.parse().ok()?;
    let lease = Lease {
        unit: parts.next()?.parse().ok()?,
        epoch: parts.next()?.parse().ok()?,
    };
    let stored = Stored {
        lease,
        sequence: parts.next()?.parse().ok()?,
        last: parts.next()? == "1",
        bytes: 0,
    };
    parts.next().is_none().then_some((order, stored))
}

fn read_result(path: &Path) -> io::Result<UnitResult> {
    if fs::metadata(path)?.len() > FILE_BYTES_MAX {
        return Err(io::Error::other("too long for a result"));
    }
    Ok(serde_json::from_slice(&fs::read(path)?)?)
}

/// All of it or nothing is there after a crash.
pub(super) fn write_durably(path: &Path, content: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    let mut file = File::create(&beside)?;
    file.write_all(content)?;
    file.sync_data()?;
    fs::rename(&beside, path)?;
    match path.parent() {
        Some(folder) => File::open(folder)?.sync_data(),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(unit: i64, sequence: u64) -> UnitResult {
        UnitResult {
            lease: Lease { unit, epoch: 3 },
            sequence,
            files: Vec::new(),
            found: Vec::new(),
            last: false,
            undivided: Vec::new(),
            error: None,
        }
    }

    #[test]
    fn results_outlive_the_agent_in_order_until_they_are_acknowledged() {
        let folder = tempfile::tempdir().unwrap();
        let mut results = Results::open(folder.path()).unwrap();
        for sent in [result(7, 0), result(5, 0), result(7, 1)] {
            results.push(sent);
        }
        results.acknowledged(Lease { unit: 5, epoch: 3 }, 0);
        fs::write(folder.path().join("torn.new"), "x").unwrap();
        let mut again = Results::open(folder.path()).unwrap();
        assert_eq!(again.next(), [result(7, 0), result(7, 1)]);
        again.acknowledged(Lease { unit: 7, epoch: 2 }, 1);
        assert_eq!(again.next().len(), 2, "another grant");
        again.forget(Lease { unit: 7, epoch: 3 });
        assert!(again.is_empty());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn results_that_the_disk_refuses_stay_in_memory_and_stop_new_work() {
        let folder = tempfile::tempdir().unwrap();
        let place = folder.path().join("results");
        let mut results = Results::open(&place).unwrap();
        fs::remove_dir(&place).unwrap();
        results.push(result(1, 0));
        assert!(results.is_full());
        assert_eq!(results.next(), [result(1, 0)]);
        fs::create_dir(&place).unwrap();
        results.retry_writes();
        assert!(!results.is_full());
        assert_eq!(Results::open(&place).unwrap().next(), [result(1, 0)]);
    }
}
