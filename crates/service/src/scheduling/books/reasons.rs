//! Why jobs wait, a little with each look.

use std::time::{Duration, Instant};

use godwit_service_api::why::{Why, WhyCode};

use super::Books;
use crate::{
    scheduling::convert::code,
    store::{Store, StoreError, model::Leadership},
};

/// Jobs that are reasoned about at a time, but for those that take longer than this.
const REASONED_TOGETHER: usize = 1000;
const REASONS_LIMIT: Duration = Duration::from_millis(5);

/// Jobs that are written at a time.
const WRITTEN_TOGETHER: usize = 100;

impl Books {
    /// Says of some jobs why they wait: of those that were read, then of all others in turn.
    pub(super) fn reason(&mut self) {
        let (began, now) = (Instant::now(), self.now());
        for _ in 0..REASONED_TOGETHER {
            if began.elapsed() >= REASONS_LIMIT {
                break;
            }
            let first = self.said.first.pop_first();
            let job = match (first, self.said.turn) {
                (Some(job), _) => job,
                (None, Some(turn)) => {
                    let next = self.waiting.after(turn);
                    self.said.turn = next.map(|queue| queue.record.key.job);
                    let Some(job) = self.said.turn else {
                        break;
                    };
                    job
                }
                (None, None) => break,
            };
            self.waiting.see_credentials(job, &self.lifetimes, now);
            self.reason_about(job, now);
        }
    }

    pub(super) fn reason_about(&mut self, job: i64, now: Duration) {
        let mut why: Vec<Why> = Vec::new();
        let mut id = None;
        for queue in self.waiting.of(job) {
            id = Some(queue.record.job);
            let reasons = self.scheduler.why(&queue.name).into_iter();
            let reasons = reasons.map(|reason| Why {
                code: code(reason.code()),
                text: reason.to_string(),
            });
            let reasons = reasons.filter(|why| why.code != WhyCode::CredentialExpired);
            let ending = self.lifetimes.of(&queue.record, now);
            for reason in reasons.chain(ending.map(|ending| ending.why)) {
                if !why.contains(&reason) {
                    why.push(reason);
                }
            }
        }
        if let Some(id) = id {
            self.said.why(id, why);
        }
    }

    /// Writes some of what has changed, for the other nodes.
    pub(super) async fn write(
        &mut self,
        store: &Store,
        leader: Leadership,
    ) -> Result<(), StoreError> {
        let some = self.said.unwritten(WRITTEN_TOGETHER);
        if some.is_empty() {
            return Ok(());
        }
        store.set_jobs_now(leader, &some).await?;
        self.said.written(some);
        Ok(())
    }
}
