//! Asks for the times of files whose objects are in a bucket, which its listings do not have. Only
//! where that decides: sizes are equal, and the time at which the object was stored tells nothing.

use godwit_proto::{facts::Facts, timestamp::Timestamp};

use super::{
    SyncPlanner,
    checksums::UndecidedFile,
    policy::{Comparison, compare},
};
use crate::{
    plan::copy_path::CopyPath,
    session::{
        Session,
        retry::{Operation, RetryingSession},
    },
    spec::Level,
};

/// Files that are asked for together.
const TOGETHER: usize = 256;

impl SyncPlanner<'_> {
    /// The times that are kept with objects may decide otherwise. Equal times do not tell that a
    /// file is the same: it may have changed in the second in which the object was stored.
    pub(super) fn may_have_time(
        &self,
        comparison: &Comparison,
        files: [&Facts; 2],
        ends: [&CopyPath; 2],
    ) -> bool {
        let is_object = |end: &&CopyPath| end.in_bucket().is_some();
        let decides = match comparison {
            Comparison::Differs("mtime" | "older") => true,
            Comparison::Same => {
                matches!(self.spec.level, Level::Modified | Level::NotOlder)
                    && files[0].modify == files[1].modify
            }
            _ => false,
        };
        decides && ends.iter().any(is_object)
    }

    /// Queues a pair for [`Self::settle_times`].
    pub(super) async fn settle_time_later(&mut self, untimed: UndecidedFile) {
        self.untimed.push(untimed);
        if self.untimed.len() >= TOGETHER {
            self.settle_times().await;
        }
    }

    /// Compares the times of the queued pairs.
    pub(super) async fn settle_times(&mut self) {
        let untimed = std::mem::take(&mut self.untimed);
        if untimed.is_empty() || self.planner.context.stop.is_cancelled() {
            return;
        }
        let sources: Vec<_> = untimed.iter().map(|file| &file.pair_of.source).collect();
        let targets: Vec<_> = untimed.iter().map(|file| &file.pair_of.target).collect();
        let (ours, theirs) = tokio::join!(
            times(&mut self.other, &sources),
            times(&mut self.planner.retrying, &targets),
        );
        for ((file, ours), theirs) in untimed.into_iter().zip(ours).zip(theirs) {
            let UndecidedFile {
                pair_of,
                source,
                target,
            } = file;
            let timed = |file: &Facts, kept: Option<Timestamp>| Facts {
                modify: kept.or(file.modify),
                ..file.clone()
            };
            let (ours, theirs) = (timed(&source, ours), timed(&target, theirs));
            let comparison = match ours.modify.is_some() && ours.modify == theirs.modify {
                true => Comparison::Same,
                false => compare(self.spec.level, self.keeps_times, &ours, Some(&theirs)),
            };
            let shown = pair_of.source.to_string();
            if let Err(error) = self.act(pair_of, &source, comparison).await {
                self.planner.fail(shown, error).await;
            }
        }
    }
}

/// Those that a bucket has, of files of one end.
async fn times(retrying: &mut RetryingSession, places: &[&CopyPath]) -> Vec<Option<Timestamp>> {
    let objects: Vec<_> = places
        .iter()
        .filter_map(|place| place.in_bucket())
        .collect();
    let unknown = vec![None; places.len()];
    let Some(first) = objects.first().filter(|_| objects.len() == places.len()) else {
        return unknown;
    };
    let paths: Vec<_> = objects.iter().map(|at| at.path.clone()).collect();
    let name = first.endpoint.name();
    let ask = async |session: &mut Session| Ok(session.times_of_objects(&paths).await);
    let asked = retrying.attempt(Operation::on(&first.endpoint, &name), ask);
    // What is not known is copied, which says what is wrong.
    asked.await.unwrap_or(unknown)
}
