//! Uploads that have become objects a short while ago. A client whose answer was lost asks again,
//! and gets the same answer.

use std::{
    collections::VecDeque,
    sync::{Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use godwit_engine::storage::digest::Digest;
use godwit_http::s3::requests::CompletingPart;
use godwit_proto::{ChecksumAlgorithm, FtpPath};

/// How long clients may ask again. Chosen arbitrarily: they do so within minutes.
const KEPT_FOR: Duration = Duration::from_secs(15 * 60);

/// Uploads that are remembered, of all buckets: some kilobytes each.
const COUNT_MAX: usize = 1000;

static COMPLETED: RecentCompletions = RecentCompletions::new(COUNT_MAX);

/// Remembers what was answered when the parts became the object at `path`.
pub(super) fn remember(id: &str, path: &FtpPath, parts: &[CompletingPart], answer: &str) {
    COMPLETED.remember(Completed {
        id: id.to_owned(),
        path: path.clone(),
        parts: digest_of(parts),
        answer: answer.to_owned(),
        at: Instant::now(),
    });
}

/// What was answered to the same request.
pub(super) fn answer_of(id: &str, path: &FtpPath, parts: &[CompletingPart]) -> Option<String> {
    COMPLETED.answer_of(id, path, &digest_of(parts))
}

struct RecentCompletions {
    count_max: usize,
    /// The oldest first.
    completed: Mutex<VecDeque<Completed>>,
}

struct Completed {
    /// No two uploads have the same.
    id: String,
    path: FtpPath,
    /// Of the numbers and tags of its parts.
    parts: String,
    answer: String,
    at: Instant,
}

fn digest_of(parts: &[CompletingPart]) -> String {
    let mut digest = Digest::new(ChecksumAlgorithm::Sha256);
    for CompletingPart { part, .. } in parts {
        digest.update(format!("{} {}\n", part.number, part.tag.trim_matches('"')).as_bytes());
    }
    digest.finish()
}

impl RecentCompletions {
    const fn new(count_max: usize) -> Self {
        Self {
            count_max,
            completed: Mutex::new(VecDeque::new()),
        }
    }

    /// Those that are not too old.
    fn lock(&self) -> MutexGuard<'_, VecDeque<Completed>> {
        let mut completed = self
            .completed
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        while completed
            .front()
            .is_some_and(|oldest| oldest.at.elapsed() >= KEPT_FOR)
        {
            completed.pop_front();
        }
        completed
    }

    fn remember(&self, new: Completed) {
        let mut completed = self.lock();
        if completed.len() == self.count_max {
            completed.pop_front();
        }
        completed.push_back(new);
    }

    fn answer_of(&self, id: &str, path: &FtpPath, parts: &str) -> Option<String> {
        let completed = self.lock();
        let found = completed.iter().find(|completed| completed.id == id)?;
        let is_same = found.path == *path && found.parts == parts;
        is_same.then(|| found.answer.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_answers_are_forgotten() {
        let memory = RecentCompletions::new(2);
        let path = FtpPath::new("/b/f").unwrap();
        let put = |id: &str, at: Instant| {
            memory.remember(Completed {
                id: id.to_owned(),
                path: path.clone(),
                parts: "p".to_owned(),
                answer: format!("of {id}"),
                at,
            });
        };
        let known = |id: &str| memory.answer_of(id, &path, "p");
        let now = Instant::now();
        if let Some(old) = now.checked_sub(KEPT_FOR) {
            put("0", old);
            assert_eq!(known("0"), None);
        }
        for id in ["1", "2", "3"] {
            put(id, now);
        }
        assert_eq!(known("1"), None);
        assert_eq!(known("2").unwrap(), "of 2");
        assert_eq!(known("3").unwrap(), "of 3");
        assert_eq!(memory.answer_of("3", &path, "q"), None);
        let other = FtpPath::new("/b/g").unwrap();
        assert_eq!(memory.answer_of("3", &other, "p"), None);
    }
}
